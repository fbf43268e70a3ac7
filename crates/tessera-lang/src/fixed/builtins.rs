//! Python's functions on compile-time values.

use std::rc::Rc;

use tessera_ir::{Diagnostic, Span};

use super::{Fixed, binary, compare, fault, function, range_len, str_of};
use crate::ast::{BinaryOp, CompareOp};
use crate::builtins::Builtin;
use crate::diagnostics::id;
use crate::lower::Res;
use crate::number::{Fault, Num};

/// The functions that [`builtin`] knows.
pub(crate) const BUILTINS: &[&str] = &[
    "abs",
    "all",
    "any",
    "bool",
    "divmod",
    "enumerate",
    "float",
    "int",
    "len",
    "list",
    "max",
    "min",
    "pow",
    "range",
    "reversed",
    "round",
    "str",
    "sum",
    "tuple",
    "zip",
];

/// The value of a function of [`BUILTINS`], whose arguments come by position.
pub(crate) fn builtin(name: &str, args: &[Fixed], span: Span) -> Res<Fixed> {
    let tuple = |items: Vec<Fixed>| Fixed::Tuple(items.into());
    Ok(match (name, args) {
        ("int", []) => Fixed::int(0),
        ("int", [Fixed::Num(Num::Float(value))]) if value.is_finite() && value.abs() < 1e30 => Fixed::int(value.trunc() as i128),
        ("int", [Fixed::Num(value)]) => Fixed::int(value.as_int().ok_or_else(|| fault(Fault::Domain, "int", span))?),
        ("int", [Fixed::Str(text)]) => Fixed::int(text.trim().parse::<i128>().map_err(|_| unreadable("int", text, span))?),
        ("float", []) => Fixed::Num(Num::Float(0.0)),
        ("float", [Fixed::Num(value)]) => Fixed::Num(Num::Float(value.as_f64())),
        ("float", [Fixed::Str(text)]) => {
            let value = text.trim().to_ascii_lowercase().parse().map_err(|_| unreadable("float", text, span))?;
            Fixed::Num(Num::Float(value))
        }
        ("bool", []) => Fixed::bool(false),
        ("bool", [value]) => Fixed::bool(value.truth(span)?),
        ("str", []) => Fixed::str(""),
        ("str", [value]) => Fixed::str(&str_of(value, span)?),
        ("len", [Fixed::Str(text)]) => Fixed::int(text.chars().count() as i128),
        ("len", [Fixed::Tuple(items) | Fixed::List(items)]) => Fixed::int(items.len() as i128),
        ("len", [Fixed::Range(bounds)]) => Fixed::int(range_len(*bounds)),
        ("len", [other]) => {
            return Err(Box::new(
                Diagnostic::error(id::ARGUMENT_TYPE, span, format!("{} has no length", other.describe()))
                    .help("`len` takes tuples, strings and lists"),
            ));
        }
        ("abs", [Fixed::Num(value)]) => Fixed::Num(function(Builtin::PyAbs, *value).map_err(|kind| fault(kind, "abs", span))?),
        ("round", [Fixed::Num(Num::Float(value))]) if value.is_finite() && value.abs() < 1e30 => {
            Fixed::int(value.round_ties_even() as i128)
        }
        ("round", [Fixed::Num(value)]) => Fixed::int(value.as_int().ok_or_else(|| fault(Fault::Domain, "round", span))?),
        ("pow", [a, b]) => binary(BinaryOp::Pow, a, b, span)?,
        ("divmod", [a, b]) => tuple(vec![binary(BinaryOp::FloorDiv, a, b, span)?, binary(BinaryOp::Mod, a, b, span)?]),
        ("min", args) if !args.is_empty() => extreme(CompareOp::Lt, args, span)?,
        ("max", args) if !args.is_empty() => extreme(CompareOp::Gt, args, span)?,
        ("sum", [items]) => sum(items, &Fixed::int(0), span)?,
        ("sum", [items, start]) => sum(items, start, span)?,
        ("all", [items]) => Fixed::bool(find(items, false, span)?.is_none()),
        ("any", [items]) => Fixed::bool(find(items, true, span)?.is_some()),
        ("range", [stop]) => range([&Fixed::int(0), stop, &Fixed::int(1)], span)?,
        ("range", [start, stop]) => range([start, stop, &Fixed::int(1)], span)?,
        ("range", [start, stop, step]) => range([start, stop, step], span)?,
        ("tuple", []) => tuple(Vec::new()),
        ("tuple", [items]) => Fixed::Tuple(items.iterate(span)?),
        ("list", []) => Fixed::List(Rc::from([])),
        ("list", [items]) => Fixed::List(items.iterate(span)?),
        ("reversed", [items @ (Fixed::Tuple(_) | Fixed::List(_) | Fixed::Range(_) | Fixed::Str(_))]) => {
            Fixed::Iterator(items.iterate(span)?.iter().rev().cloned().collect())
        }
        ("enumerate", [items]) => enumerate(items, 0, span)?,
        ("enumerate", [items, start]) if start.as_int().is_some() => enumerate(items, start.as_int().unwrap_or(0), span)?,
        ("zip", columns) => {
            let columns = columns.iter().map(|column| column.iterate(span)).collect::<Res<Vec<_>>>()?;
            let rows = columns.iter().map(|column| column.len()).min().unwrap_or(0);
            Fixed::Iterator((0..rows).map(|row| tuple(columns.iter().map(|column| column[row].clone()).collect())).collect())
        }
        _ => {
            let given: Vec<String> = args.iter().map(Fixed::describe).collect();
            return Err(Box::new(
                Diagnostic::error(id::CALL, span, format!("`{name}` does not take these arguments")).label(if given.is_empty() {
                    "none are given".to_string()
                } else {
                    given.join(", ")
                }),
            ));
        }
    })
}

fn unreadable(name: &str, text: &str, span: Span) -> Box<Diagnostic> {
    Box::new(Diagnostic::error(id::VALUE_RANGE, span, format!("`{name}` can't read {text:?}")))
}

/// The first of several values, or of one sequence's items, to which no other stands as the operator says.
fn extreme(op: CompareOp, args: &[Fixed], span: Span) -> Res<Fixed> {
    let items = match args {
        [only] => only.iterate(span)?,
        several => several.into(),
    };
    let mut items = items.iter();
    let Some(mut best) = items.next() else {
        return Err(Box::new(Diagnostic::error(id::CALL, span, "`min` and `max` need at least one value")));
    };
    for item in items {
        if compare(op, item, best, span)? {
            best = item;
        }
    }
    Ok(best.clone())
}

fn sum(items: &Fixed, start: &Fixed, span: Span) -> Res<Fixed> {
    if matches!(start, Fixed::Str(_)) {
        return Err(Box::new(Diagnostic::error(id::CALL, span, "`sum` does not join strings")));
    }
    items.iterate(span)?.iter().try_fold(start.clone(), |total, item| binary(BinaryOp::Add, &total, item, span))
}

/// The first item of a truth value.
fn find(items: &Fixed, wanted: bool, span: Span) -> Res<Option<Fixed>> {
    for item in items.iterate(span)?.iter() {
        if item.truth(span)? == wanted {
            return Ok(Some(item.clone()));
        }
    }
    Ok(None)
}

fn range(bounds: [&Fixed; 3], span: Span) -> Res<Fixed> {
    let mut numbers = [0; 3];
    for (number, bound) in numbers.iter_mut().zip(bounds) {
        *number = bound.as_int().filter(|value| value.abs() < 1 << 100).ok_or_else(|| {
            Box::new(
                Diagnostic::error(id::ARGUMENT_TYPE, span, "`range` takes integers")
                    .label(format!("one is {}", bound.describe())),
            )
        })?;
    }
    if numbers[2] == 0 {
        return Err(Box::new(Diagnostic::error(id::VALUE_RANGE, span, "the step of a `range` is zero")));
    }
    Ok(Fixed::Range(numbers))
}

fn enumerate(items: &Fixed, start: i128, span: Span) -> Res<Fixed> {
    let pair = |(number, item): (i128, &Fixed)| Fixed::Tuple(Rc::from([Fixed::int(number), item.clone()]));
    Ok(Fixed::Iterator((start..).zip(items.iterate(span)?.iter()).map(pair).collect()))
}
