//! Operators and comparisons of compile-time values.

use std::cmp::Ordering;

use tessera_ir::{Diagnostic, Span, bug};

use super::{Fixed, MAX_ITEMS, MAX_TEXT, not_evaluated, range_len, too_long};
use crate::ast::{BinaryOp, CompareOp, UnaryOp};
use crate::diagnostics::id;
use crate::lower::Res;
use crate::number::{Fault, Num};

/// What a number operation that has no value is told the user as.
pub(crate) fn fault(fault: Fault, what: &str, span: Span) -> Box<Diagnostic> {
    let (id, message) = match fault {
        Fault::ZeroDivision => (id::DIVISION_BY_ZERO, format!("`{what}` divides by zero")),
        Fault::Overflow => (id::CONSTANT_OVERFLOW, format!("the result of `{what}` is too large")),
        Fault::Kind => (id::OPERAND_TYPE, format!("`{what}` does not take these constants")),
        Fault::Domain => (id::VALUE_RANGE, format!("`{what}` is not defined for these constants")),
    };
    Box::new(Diagnostic::error(id, span, message).label("known when the kernel is compiled"))
}

/// `a op b`.
pub(crate) fn binary(op: BinaryOp, a: &Fixed, b: &Fixed, span: Span) -> Res<Fixed> {
    let repeat = |count: i128, length: usize, limit: usize| match count.max(0).saturating_mul(length as i128) {
        total if total > limit as i128 => Err(too_long(span)),
        total => Ok(total as usize),
    };
    match (op, a, b) {
        (_, Fixed::Num(a), Fixed::Num(b)) => a.binary(op, *b).map(Fixed::Num).map_err(|kind| fault(kind, op.symbol(), span)),
        (BinaryOp::Add, Fixed::Str(a), Fixed::Str(b)) => {
            repeat(1, a.len() + b.len(), MAX_TEXT)?;
            Ok(Fixed::str(&format!("{a}{b}")))
        }
        (BinaryOp::Add, Fixed::Tuple(a), Fixed::Tuple(b)) => {
            repeat(1, a.len() + b.len(), MAX_ITEMS)?;
            Ok(Fixed::Tuple(a.iter().chain(b.iter()).cloned().collect()))
        }
        (BinaryOp::Add, Fixed::List(a), Fixed::List(b)) => {
            repeat(1, a.len() + b.len(), MAX_ITEMS)?;
            Ok(Fixed::List(a.iter().chain(b.iter()).cloned().collect()))
        }
        (BinaryOp::Mul, Fixed::Str(text), Fixed::Num(times)) | (BinaryOp::Mul, Fixed::Num(times), Fixed::Str(text))
            if times.as_int().is_some() =>
        {
            let bytes = repeat(times.as_int().unwrap_or(0), text.len(), MAX_TEXT)?;
            Ok(Fixed::str(&text.repeat(bytes / text.len().max(1))))
        }
        (BinaryOp::Mul, Fixed::Tuple(items), times @ Fixed::Num(_))
        | (BinaryOp::Mul, times @ Fixed::Num(_), Fixed::Tuple(items))
            if times.as_int().is_some() =>
        {
            Ok(Fixed::Tuple(repeated(items.len(), times, span)?.into_iter().map(|at| items[at].clone()).collect()))
        }
        (BinaryOp::Mul, Fixed::List(items), times @ Fixed::Num(_))
        | (BinaryOp::Mul, times @ Fixed::Num(_), Fixed::List(items))
            if times.as_int().is_some() =>
        {
            Ok(Fixed::List(repeated(items.len(), times, span)?.into_iter().map(|at| items[at].clone()).collect()))
        }
        _ => {
            Err(Box::new(
                Diagnostic::error(id::OPERAND_TYPE, span, format!("`{}` does not take these values", op.symbol()))
                    .label(format!("{} and {}", a.describe(), b.describe())),
            ))
        }
    }
}

/// The places of the items of a sequence that is repeated.
pub(crate) fn repeated(length: usize, times: &Fixed, span: Span) -> Res<Vec<usize>> {
    let times = times.as_int().unwrap_or_else(|| bug!("a sequence repeated by what is no integer"));
    let total = times.max(0).saturating_mul(length as i128);
    if total > MAX_ITEMS as i128 {
        return Err(too_long(span));
    }
    Ok((0..total as usize).map(|at| at % length).collect())
}

/// A unary operation.
pub(crate) fn unary(op: UnaryOp, a: &Fixed, span: Span) -> Res<Fixed> {
    let symbol = match op {
        UnaryOp::Not => return Ok(Fixed::bool(!a.truth(span)?)),
        UnaryOp::Neg => "-",
        UnaryOp::Pos => "+",
        UnaryOp::Invert => "~",
    };
    match (op, a) {
        (UnaryOp::Neg, Fixed::Num(value)) => value.neg().map(Fixed::Num).map_err(|kind| fault(kind, symbol, span)),
        (UnaryOp::Pos, Fixed::Num(Num::Bool(value))) => Ok(Fixed::int(i128::from(*value))),
        (UnaryOp::Pos, Fixed::Num(_)) => Ok(a.clone()),
        (UnaryOp::Invert, Fixed::Num(Num::Int(value))) => Ok(Fixed::int(!value)),
        // Truth values of tiles are complemented, Python's become -1 and -2: the one would be taken for the other.
        (UnaryOp::Invert, Fixed::Num(Num::Bool(_))) => Err(Box::new(
            Diagnostic::error(id::OPERAND_TYPE, span, "`~` on a constant truth value gives an integer in Python")
                .help("write `not x`"),
        )),
        _ => Err(Box::new(
            Diagnostic::error(id::OPERAND_TYPE, span, format!("`{symbol}` does not take this value")).label(a.describe()),
        )),
    }
}

/// `a op b` for comparisons.
pub(crate) fn compare(op: CompareOp, a: &Fixed, b: &Fixed, span: Span) -> Res<bool> {
    match op {
        CompareOp::Eq => equal(a, b, span),
        CompareOp::Ne => Ok(!equal(a, b, span)?),
        CompareOp::Is => identity(a, b, span),
        CompareOp::IsNot => Ok(!identity(a, b, span)?),
        CompareOp::In => contains(a, b, span),
        CompareOp::NotIn => Ok(!contains(a, b, span)?),
        CompareOp::Lt | CompareOp::Le | CompareOp::Gt | CompareOp::Ge => ordered(op, a, b, span),
    }
}

fn equal(a: &Fixed, b: &Fixed, span: Span) -> Res<bool> {
    Ok(match (a, b) {
        (Fixed::Path(path), _) | (_, Fixed::Path(path)) => return Err(not_evaluated(path, span)),
        (Fixed::Num(a), Fixed::Num(b)) => a.test(CompareOp::Eq, *b) == Some(true),
        (Fixed::Str(a), Fixed::Str(b)) => a == b,
        (Fixed::None, Fixed::None) => true,
        (Fixed::DType(a), Fixed::DType(b)) => a == b,
        (Fixed::Tuple(a), Fixed::Tuple(b)) | (Fixed::List(a), Fixed::List(b)) => {
            if a.len() != b.len() {
                return Ok(false);
            }
            for (a, b) in a.iter().zip(b.iter()) {
                if !equal_items(a, b, span)? {
                    return Ok(false);
                }
            }
            true
        }
        (Fixed::Range(a), Fixed::Range(b)) => {
            let (count, other) = (range_len(*a), range_len(*b));
            count == other && (count == 0 || a[0] == b[0] && (count == 1 || a[2] == b[2]))
        }
        (Fixed::Iterator(_), _) | (_, Fixed::Iterator(_)) => return Err(incomparable(a, b, span)),
        // A dtype has names of several styles: whether a text is one of them is not what `==` should decide.
        (Fixed::DType(_), Fixed::Str(_)) | (Fixed::Str(_), Fixed::DType(_)) => {
            return Err(Box::new(
                Diagnostic::error(id::OPERAND_TYPE, span, "a dtype is never equal to a string")
                    .label(format!("{} and {}", a.describe(), b.describe()))
                    .help("compare dtypes: `x.dtype == ct.float32`"),
            ));
        }
        _ => false,
    })
}

/// Equality of items, by which sequences are compared. Python takes an object for equal to itself, even if it is no number.
pub(crate) fn equal_items(a: &Fixed, b: &Fixed, span: Span) -> Res<bool> {
    match (a, b) {
        (Fixed::Num(Num::Float(x)), Fixed::Num(Num::Float(y))) if x.is_nan() && y.is_nan() => Err(Box::new(
            Diagnostic::error(
                id::VALUE_RANGE,
                span,
                "whether one NaN in a sequence equals another depends on where they come from",
            )
            .help("ask with `math.isnan`"),
        )),
        _ => equal(a, b, span),
    }
}

/// `a is b`.
fn identity(a: &Fixed, b: &Fixed, span: Span) -> Res<bool> {
    let singleton = |value: &Fixed| matches!(value, Fixed::None | Fixed::DType(_) | Fixed::Num(Num::Bool(_)));
    match (a, b) {
        (Fixed::Path(path), _) | (_, Fixed::Path(path)) => Err(not_evaluated(path, span)),
        (Fixed::Num(Num::Bool(a)), Fixed::Num(Num::Bool(b))) => Ok(a == b),
        (Fixed::None, Fixed::None) => Ok(true),
        (Fixed::DType(a), Fixed::DType(b)) => Ok(a == b),
        _ if singleton(a) || singleton(b) => Ok(false),
        _ => Err(Box::new(
            Diagnostic::error(id::OPERAND_TYPE, span, "`is` compares identity, which these values don't have")
                .label(format!("{} and {}", a.describe(), b.describe()))
                .help("write `==`"),
        )),
    }
}

fn contains(a: &Fixed, b: &Fixed, span: Span) -> Res<bool> {
    match (a, b) {
        (Fixed::Str(part), Fixed::Str(text)) => Ok(text.contains(&**part)),
        (_, Fixed::Tuple(items) | Fixed::List(items)) => {
            for item in items.iter() {
                if equal_items(a, item, span)? {
                    return Ok(true);
                }
            }
            Ok(false)
        }
        (Fixed::Num(value), Fixed::Range(bounds)) => {
            let whole = match value {
                Num::Float(value) if value.fract() == 0.0 && value.abs() < 1e30 => Some(*value as i128),
                Num::Float(_) => None,
                _ => value.as_int(),
            };
            let [start, _, step] = *bounds;
            Ok(whole.is_some_and(|value| {
                let offset = value - start;
                offset % step == 0 && (0..range_len(*bounds)).contains(&(offset / step))
            }))
        }
        _ => Err(Box::new(
            Diagnostic::error(id::OPERAND_TYPE, span, format!("`in` looks into tuples and strings, not {}", b.describe()))
                .label(format!("searched for {}", a.describe())),
        )),
    }
}

/// True where an order stands to another as an operator asks.
pub(crate) fn holds(op: CompareOp, order: Ordering) -> bool {
    match op {
        CompareOp::Lt => order.is_lt(),
        CompareOp::Le => order.is_le(),
        CompareOp::Gt => order.is_gt(),
        _ => order.is_ge(),
    }
}

fn ordered(op: CompareOp, a: &Fixed, b: &Fixed, span: Span) -> Res<bool> {
    match (a, b) {
        (Fixed::Num(x), Fixed::Num(y)) => x.test(op, *y).ok_or_else(|| incomparable(a, b, span)),
        (Fixed::Str(a), Fixed::Str(b)) => Ok(holds(op, a.cmp(b))),
        (Fixed::Tuple(x), Fixed::Tuple(y)) | (Fixed::List(x), Fixed::List(y)) => {
            for (a, b) in x.iter().zip(y.iter()) {
                if !equal_items(a, b, span)? {
                    return ordered(op, a, b, span);
                }
            }
            Ok(holds(op, x.len().cmp(&y.len())))
        }
        _ => Err(incomparable(a, b, span)),
    }
}

fn incomparable(a: &Fixed, b: &Fixed, span: Span) -> Box<Diagnostic> {
    Box::new(Diagnostic::error(id::OPERAND_TYPE, span, "these values are not compared").label(format!(
        "{} and {}",
        a.describe(),
        b.describe()
    )))
}

/// The place of an index in a sequence; negative ones count from its end.
pub(crate) fn position(index: i128, length: usize) -> Option<usize> {
    let counted = if index < 0 { index.checked_add(length as i128)? } else { index };
    usize::try_from(counted).ok().filter(|&at| at < length)
}

/// The places that `[start:stop:step]` takes from a sequence.
pub(crate) fn slice_positions(length: usize, parts: [Option<i128>; 3], span: Span) -> Res<Vec<usize>> {
    let [start, stop, step] = parts;
    let length = length as i128;
    let clamp = |at: i128, low: i128, high: i128| (if at < 0 { at.saturating_add(length) } else { at }).clamp(low, high);
    let step = step.unwrap_or(1);
    let bounds = match step {
        0 => return Err(Box::new(Diagnostic::error(id::VALUE_RANGE, span, "a slice step can't be 0"))),
        1.. => [start.map_or(0, |at| clamp(at, 0, length)), stop.map_or(length, |at| clamp(at, 0, length)), step],
        _ => [start.map_or(length - 1, |at| clamp(at, -1, length - 1)), stop.map_or(-1, |at| clamp(at, -1, length - 1)), step],
    };
    Ok((0..range_len(bounds)).map(|round| (bounds[0] + round * step) as usize).collect())
}

/// `base[index]`.
pub(crate) fn item(base: &Fixed, index: &Fixed, span: Span) -> Res<Fixed> {
    let length = match base {
        Fixed::Tuple(items) | Fixed::List(items) => items.len(),
        Fixed::Str(text) => text.chars().count(),
        Fixed::Range(bounds) => usize::try_from(range_len(*bounds)).unwrap_or(usize::MAX),
        Fixed::Path(path) => return Err(not_evaluated(path, span)),
        _ => {
            return Err(Box::new(
                Diagnostic::error(id::OPERAND_TYPE, span, "only arrays, tuples and strings are indexed").label(base.describe()),
            ));
        }
    };
    let Some(number) = index.as_int() else {
        return Err(Box::new(
            Diagnostic::error(id::ARGUMENT_TYPE, span, "an index of a sequence is an integer")
                .label(format!("this is {}", index.describe())),
        ));
    };
    match (position(number, length), base) {
        (Some(at), Fixed::Tuple(items) | Fixed::List(items)) => Ok(items[at].clone()),
        (Some(at), Fixed::Range(bounds)) => Ok(Fixed::int(bounds[0] + at as i128 * bounds[2])),
        (Some(at), Fixed::Str(text)) => Ok(Fixed::str(&text.chars().skip(at).take(1).collect::<String>())),
        _ => Err(Box::new(
            Diagnostic::error(id::AXIS, span, format!("there is no item {number} in {}", base.describe())).label("out of range"),
        )),
    }
}

/// `base[start:stop:step]`.
pub(crate) fn slice(base: &Fixed, parts: [Option<i128>; 3], span: Span) -> Res<Fixed> {
    match base {
        Fixed::Tuple(items) => {
            Ok(Fixed::Tuple(slice_positions(items.len(), parts, span)?.into_iter().map(|at| items[at].clone()).collect()))
        }
        Fixed::List(items) => {
            Ok(Fixed::List(slice_positions(items.len(), parts, span)?.into_iter().map(|at| items[at].clone()).collect()))
        }
        Fixed::Str(text) => {
            let letters: Vec<char> = text.chars().collect();
            let taken: String = slice_positions(letters.len(), parts, span)?.into_iter().map(|at| letters[at]).collect();
            Ok(Fixed::str(&taken))
        }
        _ => Err(Box::new(
            Diagnostic::error(id::OPERAND_TYPE, span, "only tuples, lists and strings are sliced").label(base.describe()),
        )),
    }
}
