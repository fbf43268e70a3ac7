//! What a caller passes for a kernel's parameter.

use tessera_lang::ConstValue;
use tessera_types::DType;

use crate::tensor::Tensor;

/// An argument of a launch. Whether a number is a constant or passed at launch is the parameter's to say.
#[derive(Clone, Debug)]
pub enum Value {
    /// An array.
    Tensor(Tensor),
    /// A list of arrays of one type and rank.
    List(Vec<Tensor>),
    /// An integer.
    Int(i64),
    /// A float.
    Float(f64),
    /// A truth value.
    Bool(bool),
    /// A string.
    Str(String),
    /// An element type.
    DType(DType),
    /// A tuple of constants; of one with arrays in it, each item is an argument of its own, `xs.0` and `xs.1` ([`item_name`](tessera_lang::item_name)).
    Tuple(Vec<ConstValue>),
    /// `None`.
    None,
}

impl Value {
    /// The constant, unless it is an array.
    pub(crate) fn constant(&self) -> Option<ConstValue> {
        Some(match self {
            Value::Tensor(_) | Value::List(_) => return None,
            Value::Int(value) => ConstValue::Int(*value),
            Value::Float(value) => ConstValue::Float(*value),
            Value::Bool(value) => ConstValue::Bool(*value),
            Value::Str(value) => ConstValue::Str(value.clone()),
            Value::DType(value) => ConstValue::DType(*value),
            Value::Tuple(items) => ConstValue::Tuple(items.clone()),
            Value::None => ConstValue::None,
        })
    }

    /// What a message calls it.
    pub(crate) fn describe(&self) -> String {
        match self {
            Value::Tensor(tensor) => format!("an array `{}{:?}`", tensor.dtype(), tensor.shape()),
            Value::List(items) => format!("a list of {} arrays", items.len()),
            Value::Int(value) => format!("the integer {value}"),
            Value::Float(value) => format!("the float {value}"),
            Value::Bool(value) => format!("the truth value {}", if *value { "True" } else { "False" }),
            Value::Str(value) => format!("the string {value:?}"),
            Value::DType(value) => format!("the element type `{value}`"),
            Value::Tuple(_) => "a tuple".into(),
            Value::None => "`None`".into(),
        }
    }
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
