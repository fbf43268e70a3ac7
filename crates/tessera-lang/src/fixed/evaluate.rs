//! Expressions in which only compile-time values can stand: annotations, decorators, module-level constants.

use std::sync::Arc;

use indexmap::IndexMap;
use tessera_ir::Span;
use tessera_types::DType;

use super::Fixed;
use crate::ast::{Expr, ExprKind, Function};
use crate::file::{Definition, Global, Moment, ParsedFile};
use crate::lower::{self, Res};
use crate::number::Num;

/// What a dotted path stands for: a dtype, a constant of `math`, or a module.
pub(crate) fn of_path(path: &str) -> Fixed {
    match path {
        "math.pi" => return Fixed::Num(Num::Float(std::f64::consts::PI)),
        "math.e" => return Fixed::Num(Num::Float(std::f64::consts::E)),
        "math.inf" => return Fixed::Num(Num::Float(f64::INFINITY)),
        "math.nan" => return Fixed::Num(Num::Float(f64::NAN)),
        _ => {}
    }
    let member = path.rsplit('.').next().unwrap_or(path);
    match DType::parse(member) {
        Some(dtype) => Fixed::DType(dtype),
        None => Fixed::Path(path.into()),
    }
}

/// Evaluates an expression of module level as it is at a moment.
pub(crate) fn evaluate(file: &ParsedFile, expr: &Expr, moment: Moment) -> Res<Fixed> {
    lower::constant(file, expr, moment)
}

/// The value of a literal; for every other expression, what a message calls it.
pub(crate) fn literal(expr: &ExprKind) -> Result<Fixed, &str> {
    match expr {
        ExprKind::Int(value) => Ok(Fixed::int(*value)),
        ExprKind::Float(value) => Ok(Fixed::Num(Num::Float(*value))),
        ExprKind::Bool(value) => Ok(Fixed::bool(*value)),
        ExprKind::Str(text) => Ok(Fixed::str(text)),
        ExprKind::None => Ok(Fixed::None),
        ExprKind::FString(_) => Err("f-strings"),
        ExprKind::Ellipsis => Err("`...`"),
        ExprKind::Starred(_) => Err("`*`"),
        ExprKind::DoubleStarred(_) => Err("`**`"),
        ExprKind::Yield(_) => Err("`yield`"),
        ExprKind::Dict(_) => Err("dictionaries"),
        ExprKind::Slice(_) => Err("slices"),
        ExprKind::Lambda(_) => Err("`lambda`"),
        ExprKind::Comprehension { .. } => Err("comprehensions"),
        ExprKind::Unsupported(what) => Err(what),
        ExprKind::Name(_)
        | ExprKind::Tuple(_)
        | ExprKind::List(_)
        | ExprKind::Attribute(..)
        | ExprKind::Unary(..)
        | ExprKind::Binary(..)
        | ExprKind::BoolOp(..)
        | ExprKind::Compare(..)
        | ExprKind::IfElse { .. }
        | ExprKind::Subscript(..)
        | ExprKind::Call(..) => Err("this expression"),
    }
}

/// What a name stands for outside a kernel.
pub(crate) enum Outer {
    Fixed(Fixed),
    /// A function of the file, with the moment of its definition.
    Function(Arc<Function>, Moment),
}

/// What a definition of module level is: a function, or a value.
pub(crate) fn defined(file: &ParsedFile, definition: &Definition) -> Res<Outer> {
    match &definition.what {
        Global::Function(function) => Ok(Outer::Function(function.clone(), definition.at)),
        _ => lower::global_constant(file, definition).map(Outer::Fixed),
    }
}

/// A name that a kernel does not bind itself: a value that the launch fixed, or what the file or the language has under it.
pub(crate) fn outer(file: &ParsedFile, named: &IndexMap<String, Fixed>, name: &str, span: Span) -> Option<Res<Outer>> {
    if let Some(value) = named.get(name) {
        return Some(Ok(Outer::Fixed(value.clone())));
    }
    let moment = Moment::end(span.source);
    if let Some(definition) = file.global(name, moment) {
        return Some(defined(file, definition));
    }
    let value = match DType::parse(name) {
        Some(dtype) => Fixed::DType(dtype),
        None if matches!(name, "tile" | "tessera") => Fixed::Path(name.into()),
        None => return None,
    };
    Some(Ok(Outer::Fixed(value)))
}
