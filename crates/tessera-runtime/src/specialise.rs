//! From the arguments of a launch to the types that a kernel is compiled for.
//!
//! An array is taken with run-time sizes, a unit stride where it has one, and the alignment that it has (up to 16 bytes), so
//! that launches of other sizes find the same compiled kernel; of lines that are no whole vectors what is a constant of the kernel is known, too, and
//! of block programs which arrays are alike and in which eighth of a tile rows end ([`state_rows`]).
//! A number is a constant where the parameter says so and a run-time
//! scalar elsewhere: integers `i32` (`i64` beyond its range), floats `f32`, truth values `b1`. The items of a tuple come as
//! arguments of their own, `xs.0` and `xs.1`, each by these rules.

use tessera_ir::{Diagnostic, Extent, Func, IndexType, ParamKind};
use tessera_lang::{Annotation, ArgType, ConstValue, Kernel, Param, Style, state_odd_lines, state_rows};
use tessera_launch::{Placed, within_a_byte};
use tessera_types::DType;

use crate::value::Value;

/// Alignment that kernels make use of, in bytes.
pub(crate) const USEFUL_ALIGN: u64 = 16;

/// The types of all arguments that belong to a parameter; others are left to the compiler to refuse.
pub(crate) fn argument_types<A: Placed>(
    kernel: &Kernel,
    args: &[(&str, Value<A>)],
) -> Result<Vec<(String, ArgType)>, Vec<Diagnostic>> {
    let mut types = Vec::with_capacity(args.len());
    let mut wrong = Vec::new();
    for (name, value) in args {
        let mut path = name.split('.');
        let head = path.next().unwrap_or(name);
        let param = kernel.params.iter().find(|param| param.name == head);
        let refuse = |id, message: String| match param {
            Some(param) => Diagnostic::error(id, param.span, message).label("this parameter"),
            None => Diagnostic::bare(id, message),
        };
        match argument_type(param, name, value) {
            Ok(ty) => match insert(&mut types, head, &path.collect::<Vec<_>>(), ty) {
                Ok(()) => {}
                Err(Misplaced::Twice) => {
                    wrong.push(refuse("argument-twice", format!("the argument `{name}` is given twice")));
                }
                Err(Misplaced::Item) => {
                    let message = format!("`{name}` is not the next item of a tuple `{head}`");
                    wrong
                        .push(refuse("argument-item", message).help(format!("items come in order: `{head}.0`, `{head}.1`, ...")));
                }
            },
            Err(diagnostic) => wrong.push(*diagnostic),
        }
    }
    let numbers = |of: &[usize]| of.iter().map(|&number| number as i64).collect();
    let lies = |(name, _): &(String, ArgType)| {
        args.iter().find_map(|(given, value)| match value {
            Value::Tensor(tensor) if given == name => Some([numbers(tensor.sizes()), numbers(tensor.steps())]),
            _ => None,
        })
    };
    let lies: Vec<Option<[Vec<i64>; 2]>> = types.iter().map(lies).collect();
    let integers = |(name, _): &(String, ArgType)| {
        args.iter().find_map(|(given, value)| match value {
            Value::Int(number) if given == name => Some(*number),
            _ => None,
        })
    };
    let integers: Vec<Option<i64>> = types.iter().map(integers).collect();
    state_odd_lines(&mut types, |place| lies[place].clone());
    if matches!(kernel.style, Style::Block { .. }) {
        state_rows(&mut types, |place| lies[place].clone(), |place| integers[place]);
    }
    if wrong.is_empty() { Ok(types) } else { Err(wrong) }
}

/// Forgets what is stated of numbers, which later launches may change.
pub(crate) fn open_numbers(types: &mut [(String, ArgType)]) {
    for (_, ty) in types {
        if let ArgType::Stated { of, .. } = ty
            && matches!(**of, ArgType::Scalar(_))
        {
            *ty = (**of).clone();
        }
    }
}

/// Why an argument does not fit behind those before it.
enum Misplaced {
    /// One of that name is there.
    Twice,
    /// It is an item of what is no tuple, or of one with other items before it.
    Item,
}

/// Adds the type of an argument, or of the item at `path` of a tuple.
fn insert(types: &mut Vec<(String, ArgType)>, name: &str, path: &[&str], ty: ArgType) -> Result<(), Misplaced> {
    let known = types.iter().position(|(known, _)| known == name);
    let mut place = match (known, path) {
        (Some(_), []) => return Err(Misplaced::Twice),
        (Some(at), _) => &mut types[at].1,
        (None, []) => {
            types.push((name.to_owned(), ty));
            return Ok(());
        }
        (None, _) => {
            types.push((name.to_owned(), ArgType::Tuple(Vec::new())));
            &mut types.last_mut().ok_or(Misplaced::Item)?.1
        }
    };
    for (depth, step) in path.iter().enumerate() {
        let ArgType::Tuple(items) = place else { return Err(Misplaced::Item) };
        let at: usize = step.parse().map_err(|_| Misplaced::Item)?;
        let is_last = depth + 1 == path.len();
        if at < items.len() && is_last {
            return Err(Misplaced::Twice);
        } else if at > items.len() {
            return Err(Misplaced::Item);
        } else if at == items.len() {
            items.push(if is_last { ty.clone() } else { ArgType::Tuple(Vec::new()) });
        }
        place = &mut items[at];
    }
    Ok(())
}

/// The types for a kernel of IR text, whose interface says what is a scalar of which type.
pub(crate) fn ir_argument_types<A: Placed>(
    func: &Func,
    args: &[(&str, Value<A>)],
) -> Result<Vec<(String, ArgType)>, Vec<Diagnostic>> {
    let mut types = Vec::new();
    let mut wrong = Vec::new();
    for (name, value) in args {
        match (func.abi.params.iter().find(|param| param.name == *name).map(|param| &param.kind), value) {
            (None, _) => {
                let names: Vec<String> = func.abi.params.iter().map(|param| format!("`{}`", param.name)).collect();
                let message = format!("`{}` has no parameter `{name}`", func.name);
                wrong.push(
                    Diagnostic::error("unknown-argument", func.span, message)
                        .note("what was a constant when the IR was made is part of it")
                        .help(format!("its parameters are {}", names.join(", "))),
                );
            }
            (Some(ParamKind::Operand { .. }), Value::Tensor(tensor)) => match array(None, name, tensor) {
                Ok(ty) => types.push((name.to_string(), ty)),
                Err(diagnostic) => wrong.push(*diagnostic),
            },
            // The interface is all that there is to compile for.
            (Some(_), _) => {}
        }
    }
    if wrong.is_empty() { Ok(types) } else { Err(wrong) }
}

fn argument_type<A: Placed>(param: Option<&Param>, name: &str, value: &Value<A>) -> Result<ArgType, Box<Diagnostic>> {
    match value {
        Value::Tensor(tensor) => array(param, name, tensor),
        Value::List(items) => list_type(param, name, items),
        Value::Int(_)
        | Value::Float(_)
        | Value::Double(_)
        | Value::Bool(_)
        | Value::Str(_)
        | Value::DType(_)
        | Value::Tuple(_)
        | Value::None => {
            let constant = value.constant().unwrap_or(ConstValue::None);
            Ok(match param.map(|param| &param.annotation) {
                Some(Annotation::Constant(_)) => ArgType::Const(constant),
                Some(Annotation::Scalar(dtype)) if scalar_type(&constant).is_some() => ArgType::Scalar(*dtype),
                _ if matches!(value, Value::Double(_)) => ArgType::Scalar(DType::F64),
                _ => scalar_type(&constant).map_or(ArgType::Const(constant), ArgType::Scalar),
            })
        }
    }
}

/// The run-time type of a number; `None` for what has none.
fn scalar_type(value: &ConstValue) -> Option<DType> {
    match value {
        ConstValue::Bool(_) => Some(DType::B1),
        ConstValue::Int(value) => Some(if i32::try_from(*value).is_ok() { DType::I32 } else { DType::I64 }),
        ConstValue::Float(_) => Some(DType::F32),
        ConstValue::None | ConstValue::Str(_) | ConstValue::DType(_) | ConstValue::Tuple(_) => None,
    }
}

fn misplaced<A: Placed>(param: Option<&Param>, name: &str, tensor: &A) -> Box<Diagnostic> {
    Box::new(within_a_byte(name, param.map(|param| param.span), tensor.dtype()))
}

fn array<A: Placed>(param: Option<&Param>, name: &str, tensor: &A) -> Result<ArgType, Box<Diagnostic>> {
    if tensor.address().is_none() {
        return Err(misplaced(param, name, tensor));
    }
    if let Some(param) = param
        && let Annotation::Array { static_shape, static_strides, .. } = &param.annotation
    {
        let rank = tensor.sizes().len() as i64;
        for (field, axes) in [("static_shape_dims", static_shape), ("static_stride_dims", static_strides)] {
            if let Some(axis) = axes.iter().find(|axis| !(-rank..rank).contains(*axis)) {
                let message = format!("`{field}` names axis {axis}, but `{name}` has {rank} axes");
                return Err(Box::new(
                    Diagnostic::error("argument-rank", param.span, message)
                        .label(format!("`{name}` has shape {:?}", tensor.sizes()))
                        .help(format!("pass an array with that axis, or leave {axis} out of `{field}`")),
                ));
            }
        }
    }
    Ok(array_type(param, tensor))
}

fn array_type<A: Placed>(param: Option<&Param>, tensor: &A) -> ArgType {
    let (shape, strides) = (tensor.sizes(), tensor.steps());
    let axes = |of: &[i64]| -> Vec<usize> {
        let rank = shape.len() as i64;
        of.iter().map(|&axis| if axis < 0 { axis + rank } else { axis }).filter_map(|axis| usize::try_from(axis).ok()).collect()
    };
    let (known_shape, known_strides, wide) = match param.map(|param| &param.annotation) {
        Some(Annotation::Array { index, static_shape, static_strides }) => {
            (axes(static_shape), axes(static_strides), *index == IndexType::I64)
        }
        _ => (Vec::new(), Vec::new(), false),
    };
    // The innermost axis of unit stride; of several, where all but one have one element, the last. An author who says which
    // strides are constants has said all.
    let unit = (0..shape.len()).rev().find(|&axis| strides[axis] == 1 && known_strides.is_empty());
    let extent = |known: bool, value: usize| if known { Extent::Static(value as i64) } else { Extent::Dynamic };
    let index = if wide || tensor.needs_wide_index() { IndexType::I64 } else { IndexType::I32 };
    ArgType::Array {
        dtype: tensor.dtype(),
        shape: shape.iter().enumerate().map(|(axis, &size)| extent(known_shape.contains(&axis), size)).collect(),
        strides: strides
            .iter()
            .enumerate()
            .map(|(axis, &stride)| extent(unit == Some(axis) || known_strides.contains(&axis), stride))
            .collect(),
        align: useful(tensor.start() * 8),
        lines: lines(tensor),
        index,
        disjoint: true,
    }
}

/// The largest useful power of two of bytes that divides a number of bits.
fn useful(bits: u64) -> u32 {
    ((1 << bits.trailing_zeros().min(63)) / 8).clamp(1, USEFUL_ALIGN) as u32
}

/// The largest useful power of two that divides all strides but the unit one, and the size of the axis that has that, in bytes.
fn lines<A: Placed>(tensor: &A) -> u32 {
    let bits = u64::from(tensor.dtype().bits());
    let axes = tensor.sizes().iter().zip(tensor.steps()).filter(|&(&size, &stride)| size > 1 || stride == 1);
    axes.map(|(&size, &stride)| useful(if stride == 1 { size } else { stride } as u64 * bits))
        .min()
        .unwrap_or(USEFUL_ALIGN as u32)
}

fn list_type<A: Placed>(param: Option<&Param>, name: &str, items: &[A]) -> Result<ArgType, Box<Diagnostic>> {
    let wrong = |message: String| {
        Box::new(match param {
            Some(param) => Diagnostic::error("argument-list", param.span, message).label("this parameter"),
            None => Diagnostic::bare("argument-list", message),
        })
    };
    let Some(first) = items.first() else {
        return Err(Box::new(
            (*wrong(format!("the list `{name}` is empty"))).help("a list needs an array to know its element type by"),
        ));
    };
    for (position, item) in items.iter().enumerate() {
        if item.dtype() != first.dtype() || item.sizes().len() != first.sizes().len() {
            return Err(wrong(format!(
                "the arrays of the list `{name}` differ: item 0 is `{}` of rank {}, item {position} is `{}` of rank {}",
                first.dtype(),
                first.sizes().len(),
                item.dtype(),
                item.sizes().len()
            )));
        }
        if item.address().is_none() {
            return Err(misplaced(param, name, item));
        }
    }
    let wide = param.is_some_and(|param| param.index_type() == IndexType::I64) || items.iter().any(A::needs_wide_index);
    let index = if wide { IndexType::I64 } else { IndexType::I32 };
    Ok(ArgType::List { dtype: first.dtype(), rank: first.sizes().len() as u32, index })
}
