//! What a caller passes for a kernel's parameter.

use tessera_lang::ConstValue;
use tessera_launch::{Argument, Constant, Placed};
use tessera_types::DType;

use crate::error::TensorError;
use crate::tensor::Tensor;

/// An argument of a launch. Whether a number is a constant or passed at launch is the parameter's to say.
///
/// Where nothing is launched, what is only [`Placed`] may stand for a tensor.
#[derive(Clone, Debug)]
pub enum Value<A = Tensor> {
    /// An array.
    Tensor(A),
    /// A list of arrays of one type and rank.
    List(Vec<A>),
    /// An integer.
    Int(i64),
    /// A float; a kernel takes it in 32 bits where it does not say otherwise.
    Float(f64),
    /// A float that a kernel takes in 64 bits where it does not say otherwise.
    Double(f64),
    /// A truth value.
    Bool(bool),
    /// A string.
    Str(String),
    /// An element type.
    DType(DType),
    /// A tuple of constants; of one with arrays in it, each item is an argument of its own, `xs.0` and `xs.1` ([`item_name`](tessera_ir::item_name)).
    Tuple(Vec<ConstValue>),
    /// `None`.
    None,
}

impl<A: Placed> Value<A> {
    /// The constant, unless it is an array.
    pub(crate) fn constant(&self) -> Option<ConstValue> {
        Some(match self {
            Value::Tensor(_) | Value::List(_) => return None,
            Value::Int(value) => ConstValue::Int(*value),
            Value::Float(value) | Value::Double(value) => ConstValue::Float(*value),
            Value::Bool(value) => ConstValue::Bool(*value),
            Value::Str(value) => ConstValue::Str(value.clone()),
            Value::DType(value) => ConstValue::DType(*value),
            Value::Tuple(items) => ConstValue::Tuple(items.clone()),
            Value::None => ConstValue::None,
        })
    }

    /// What a launch takes it for.
    pub(crate) fn argument(&self) -> Argument<A> {
        match self {
            Value::Tensor(array) => Argument::Array(array.clone()),
            Value::List(items) => Argument::List(items.clone()),
            Value::Int(value) => Argument::Constant(Constant::Int(*value)),
            Value::Float(value) | Value::Double(value) => Argument::Constant(Constant::Float(*value)),
            Value::Bool(value) => Argument::Constant(Constant::Bool(*value)),
            Value::Str(value) => Argument::Constant(Constant::Text(value.clone())),
            Value::DType(value) => Argument::Constant(Constant::Type(*value)),
            Value::Tuple(items) => Argument::Constant(Constant::Tuple(items.iter().map(constant).collect())),
            Value::None => Argument::Constant(Constant::None),
        }
    }
}

impl Value {
    /// The same with 1 wherever it has an infinity or no number, in memory of its own, and whether there was any. What holds nothing stays so.
    ///
    /// # Errors
    /// Where there is no memory.
    pub fn finite(&self) -> Result<(Value, bool), TensorError> {
        let mut is_other = false;
        let mut finite = |tensor: &Tensor| -> Result<Tensor, TensorError> {
            if tensor.is_poisoned() || !tensor.dtype().is_float() {
                return tensor.contiguous();
            }
            let mut numbers = tensor.to_f64()?;
            if numbers.iter().all(|number| number.is_finite()) {
                return tensor.contiguous();
            }
            is_other = true;
            numbers.iter_mut().filter(|number| !number.is_finite()).for_each(|number| *number = 1.0);
            Tensor::from_f64(tensor.dtype(), tensor.shape(), &numbers)
        };
        let value = match self {
            Value::Tensor(tensor) => Value::Tensor(finite(tensor)?),
            Value::List(items) => Value::List(items.iter().map(&mut finite).collect::<Result<_, _>>()?),
            Value::Float(number) if !number.is_finite() => return Ok((Value::Float(1.0), true)),
            other => other.clone(),
        };
        Ok((value, is_other))
    }
}

/// A constant of the language as compiled kernels keep it.
pub(crate) fn constant(value: &ConstValue) -> Constant {
    match value {
        ConstValue::None => Constant::None,
        ConstValue::Bool(value) => Constant::Bool(*value),
        ConstValue::Int(value) => Constant::Int(*value),
        ConstValue::Float(value) => Constant::Float(*value),
        ConstValue::Str(value) => Constant::Text(value.clone()),
        ConstValue::DType(value) => Constant::Type(*value),
        ConstValue::Tuple(items) => Constant::Tuple(items.iter().map(constant).collect()),
    }
}

/// Arguments as a launch takes them.
pub(crate) fn arguments<'a, A: Placed>(args: &[(&'a str, Value<A>)]) -> Vec<(&'a str, Argument<A>)> {
    args.iter().map(|(name, value)| (*name, value.argument())).collect()
}

impl From<ConstValue> for Value {
    fn from(value: ConstValue) -> Value {
        match value {
            ConstValue::None => Value::None,
            ConstValue::Bool(value) => Value::Bool(value),
            ConstValue::Int(value) => Value::Int(value),
            ConstValue::Float(value) => Value::Float(value),
            ConstValue::Str(value) => Value::Str(value),
            ConstValue::DType(value) => Value::DType(value),
            ConstValue::Tuple(items) => Value::Tuple(items),
        }
    }
}

impl From<&Tensor> for Value {
    fn from(tensor: &Tensor) -> Value {
        Value::Tensor(tensor.clone())
    }
}

impl From<i64> for Value {
    fn from(value: i64) -> Value {
        Value::Int(value)
    }
}

impl From<f64> for Value {
    fn from(value: f64) -> Value {
        Value::Float(value)
    }
}

impl From<bool> for Value {
    fn from(value: bool) -> Value {
        Value::Bool(value)
    }
}

impl From<DType> for Value {
    fn from(value: DType) -> Value {
        Value::DType(value)
    }
}
