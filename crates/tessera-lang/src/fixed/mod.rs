//! Compile-time Python: numbers, strings, element types, and sequences of them, with Python's operators and functions.
//!
//! What a kernel knows when it is compiled means the same in all three styles, and here it is defined: [`operate`] has the operators and
//! comparisons, [`builtins`] Python's functions, [`function`] those of numbers, [`text`] strings. The styles' own walks call them for the parts of a kernel that
//! are fixed; [`evaluate`] reads annotations, decorators and module-level constants, where nothing else can stand.
//!
//! ```text
//! stride = int(pattern.split('_')[1])        # pattern == "strided_4": 4, at compile time
//! ```

mod builtins;
mod evaluate;
mod function;
mod host;
mod operate;
mod text;

use std::rc::Rc;

use tessera_ir::{Diagnostic, Span};
use tessera_types::DType;

pub(crate) use builtins::{BUILTINS, builtin};
pub(crate) use evaluate::{Outer, defined, evaluate, literal, of_path, outer};
pub(crate) use function::{function, function_of_two, math};
pub(crate) use host::{HOST, host};
pub(crate) use operate::{binary, compare, equal_items, fault, holds, item, position, repeated, slice, slice_positions, unary};
pub(crate) use text::{format, method, of_number, percent, repr, str_of};

use crate::args::ConstValue;
use crate::diagnostics::id;
use crate::lower::Res;
use crate::number::Num;
use crate::promote::dtype_name;

/// Items of a sequence.
const MAX_ITEMS: usize = 10_000;
/// Bytes of a string.
const MAX_TEXT: usize = 1 << 20;

/// A compile-time value. Two are `==` here where they are interchangeable; what Python's `==` says, [`compare`] knows.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Fixed {
    Num(Num),
    Str(Rc<str>),
    None,
    DType(DType),
    Tuple(Rc<[Fixed]>),
    /// A list; it never changes.
    List(Rc<[Fixed]>),
    /// `range(start, stop, step)`.
    Range([i128; 3]),
    /// What `zip`, `enumerate`, `reversed` and generator expressions make: items that are taken once.
    Iterator(Rc<[Fixed]>),
    /// A module or a member of one that is no value.
    Path(Rc<str>),
}

impl Fixed {
    pub(crate) fn of(value: &ConstValue) -> Fixed {
        match value {
            ConstValue::None => Fixed::None,
            ConstValue::Bool(value) => Fixed::Num(Num::Bool(*value)),
            ConstValue::Int(value) => Fixed::Num(Num::Int((*value).into())),
            ConstValue::Float(value) => Fixed::Num(Num::Float(*value)),
            ConstValue::Str(text) => Fixed::Str(text.as_str().into()),
            ConstValue::DType(dtype) => Fixed::DType(*dtype),
            ConstValue::Tuple(items) => Fixed::Tuple(items.iter().map(Fixed::of).collect()),
        }
    }

    pub(crate) fn int(value: impl Into<i128>) -> Fixed {
        Fixed::Num(Num::Int(value.into()))
    }

    pub(crate) fn bool(value: bool) -> Fixed {
        Fixed::Num(Num::Bool(value))
    }

    pub(crate) fn str(text: &str) -> Fixed {
        Fixed::Str(text.into())
    }

    /// The integer, for integers and truth values.
    pub(crate) fn as_int(&self) -> Option<i128> {
        match self {
            Fixed::Num(number) => number.as_int(),
            _ => None,
        }
    }

    /// What Python's `bool` makes of it.
    pub(crate) fn truth(&self, span: Span) -> Res<bool> {
        Ok(match self {
            Fixed::Num(number) => number.truth(),
            Fixed::Str(text) => !text.is_empty(),
            Fixed::Tuple(items) | Fixed::List(items) => !items.is_empty(),
            Fixed::Range(bounds) => range_len(*bounds) > 0,
            Fixed::None => false,
            Fixed::DType(_) | Fixed::Iterator(_) => true,
            Fixed::Path(path) => return Err(not_evaluated(path, span)),
        })
    }

    /// The items of a tuple or list.
    pub(crate) fn items(&self) -> Option<&Rc<[Fixed]>> {
        match self {
            Fixed::Tuple(items) | Fixed::List(items) => Some(items),
            _ => None,
        }
    }

    /// What iterating over it yields.
    pub(crate) fn iterate(&self, span: Span) -> Res<Rc<[Fixed]>> {
        match self {
            Fixed::Tuple(items) | Fixed::List(items) | Fixed::Iterator(items) => Ok(items.clone()),
            Fixed::Str(text) => {
                let items: Rc<[Fixed]> =
                    text.chars().take(MAX_ITEMS + 1).map(|c| Fixed::str(c.encode_utf8(&mut [0; 4]))).collect();
                if items.len() > MAX_ITEMS { Err(too_long(span)) } else { Ok(items) }
            }
            Fixed::Range(bounds) => {
                let count = range_len(*bounds);
                if count > MAX_ITEMS as i128 {
                    return Err(too_long(span));
                }
                Ok((0..count).map(|round| Fixed::int(bounds[0] + round * bounds[2])).collect())
            }
            other => Err(Box::new(
                Diagnostic::error(id::NOT_ITERABLE, span, format!("{} is not iterated over", other.describe()))
                    .label("expected a tuple, a list or a range"),
            )),
        }
    }

    /// What it is, for messages.
    pub(crate) fn describe(&self) -> String {
        let counted = |what: &str, count: usize| format!("a {what} of {count} item{}", if count == 1 { "" } else { "s" });
        match self {
            Fixed::Num(value) => format!("the constant {value}"),
            Fixed::Str(text) => format!("the string {text:?}"),
            Fixed::None => "`None`".to_string(),
            Fixed::DType(dtype) => format!("the dtype `{}`", dtype_name(*dtype)),
            Fixed::Tuple(items) => counted("tuple", items.len()),
            Fixed::List(items) => counted("list", items.len()),
            Fixed::Range(_) => "a range".to_string(),
            Fixed::Iterator(_) => "an iterator".to_string(),
            Fixed::Path(path) => format!("`{path}`, which is imported and not evaluated"),
        }
    }
}

/// How many integers a range has.
pub(crate) fn range_len([start, stop, step]: [i128; 3]) -> i128 {
    let (span, step) =
        if step > 0 { (stop.saturating_sub(start), step) } else { (start.saturating_sub(stop), -step.max(-i128::MAX)) };
    if span <= 0 || step <= 0 { 0 } else { (span - 1) / step + 1 }
}

/// The diagnostic for a decision that depends on what another file holds.
pub(crate) fn not_evaluated(path: &str, span: Span) -> Box<Diagnostic> {
    Box::new(
        Diagnostic::error(id::NOT_CONSTANT, span, format!("`{path}` is imported, and its value is not known here"))
            .label("needed when the kernel is compiled")
            .help("define the constant in this file, or pass it to the kernel"),
    )
}

/// The diagnostic for a value that grows without bound.
pub(crate) fn too_long(span: Span) -> Box<Diagnostic> {
    Box::new(
        Diagnostic::error(id::TOO_LARGE, span, "a compile-time value grows too large")
            .label(format!("it has {MAX_ITEMS} items or more, or is a text of more than {MAX_TEXT} bytes")),
    )
}
