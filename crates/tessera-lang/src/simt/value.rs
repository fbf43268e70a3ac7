//! Typed values: constants, conversions, common types, operators.

use tessera_ir::{Const, Diagnostic, Span};
use tessera_types::DType;

use super::env::Item;
use super::program::{Binary, Expression, ExpressionKind, Unary};
use crate::ast::{BinaryOp, CompareOp};
use crate::diagnostics::id;
use crate::fixed::Fixed;
use crate::lower::{Res, encode};
use crate::number::{self, Num};
use crate::promote::{WithLiteral, dtype_name, is_restricted, promote, promote_literal};

/// An item with the place it was written.
pub(super) type At = (Item, Span);

pub(super) fn out_of_range(number: Num, holder: &str, span: Span) -> Box<Diagnostic> {
    Box::new(Diagnostic::error(id::CONSTANT_OVERFLOW, span, format!("{number} does not fit {holder}")).label("this constant"))
}

/// A number in an element type.
pub(super) fn constant(number: Num, dtype: DType, span: Span) -> Res<Expression> {
    let bits = encode(number, dtype).ok_or_else(|| out_of_range(number, dtype_name(dtype), span))?;
    Ok(Expression { kind: ExpressionKind::Constant(Const::splat(dtype.signless(), bits)), dtype, uniform: true, span })
}

/// The value in a type.
pub(super) fn convert(value: Expression, dtype: DType) -> Expression {
    if value.dtype == dtype {
        return value;
    }
    let (uniform, span) = (value.uniform, value.span);
    Expression { kind: ExpressionKind::Convert(Box::new(value)), dtype, uniform, span }
}

/// The value in a type that arithmetic is defined on.
pub(super) fn readable(value: Expression) -> Expression {
    if is_restricted(value.dtype) || value.dtype == DType::I4 {
        let dtype = if value.dtype.is_float() { DType::F32 } else { DType::I32 };
        return convert(value, dtype);
    }
    value
}

/// What an operator does to run-time values.
pub(super) fn operator(op: BinaryOp) -> Option<Binary> {
    Some(match op {
        BinaryOp::Add => Binary::Add,
        BinaryOp::Sub => Binary::Sub,
        BinaryOp::Mul => Binary::Mul,
        BinaryOp::Div => Binary::Div,
        BinaryOp::FloorDiv => Binary::FloorDiv,
        BinaryOp::Mod => Binary::Mod,
        BinaryOp::Pow => Binary::Pow,
        BinaryOp::Shl => Binary::Shl,
        BinaryOp::Shr => Binary::Shr,
        BinaryOp::And => Binary::And,
        BinaryOp::Or => Binary::Or,
        BinaryOp::Xor => Binary::Xor,
        BinaryOp::MatMul => return None,
    })
}

/// The comparison; `None` for `is` and `in`.
pub(super) fn comparison(op: CompareOp) -> Option<Binary> {
    Some(match op {
        CompareOp::Eq => Binary::Eq,
        CompareOp::Ne => Binary::Ne,
        CompareOp::Lt => Binary::Lt,
        CompareOp::Le => Binary::Le,
        CompareOp::Gt => Binary::Gt,
        CompareOp::Ge => Binary::Ge,
        CompareOp::Is | CompareOp::IsNot | CompareOp::In | CompareOp::NotIn => return None,
    })
}

fn is_comparison(op: Binary) -> bool {
    matches!(op, Binary::Eq | Binary::Ne | Binary::Lt | Binary::Le | Binary::Gt | Binary::Ge)
}

pub(super) fn not_a_value((item, span): &At) -> Box<Diagnostic> {
    let help = match item {
        Item::Array(_) => "index the array: `x[i]`",
        _ => "values are numbers, elements of arrays and what is computed from them",
    };
    Box::new(Diagnostic::error(id::OPERAND_TYPE, *span, format!("expected a value, found {}", item.describe())).help(help))
}

/// Both sides in their common type.
pub(super) fn unify(a: &At, b: &At, to_float: bool) -> Res<(Expression, Expression)> {
    let dtype = match (&a.0, &b.0) {
        (Item::Value(x), Item::Value(y)) => promote(x.dtype, y.dtype).ok_or_else(|| {
            let message = format!("{} and {} have no common type", dtype_name(x.dtype), dtype_name(y.dtype));
            Box::new(
                Diagnostic::error(id::PROMOTION, a.1.to(b.1), message)
                    .also(a.1, format!("this is {}", a.0.describe()))
                    .also(b.1, format!("this is {}", b.0.describe()))
                    .help("convert one of them with `tile.cast(x, dtype)`"),
            )
        })?,
        (Item::Value(typed), Item::Fixed(Fixed::Num(number))) | (Item::Fixed(Fixed::Num(number)), Item::Value(typed)) => {
            match promote_literal(typed.dtype, *number, to_float) {
                WithLiteral::Common(dtype) => dtype,
                WithLiteral::OutOfRange => {
                    let span = if matches!(a.0, Item::Fixed(_)) { a.1 } else { b.1 };
                    return Err(out_of_range(*number, dtype_name(typed.dtype), span));
                }
            }
        }
        (Item::Fixed(Fixed::Num(x)), Item::Fixed(Fixed::Num(y))) => {
            let own = |number: Num, span| {
                crate::promote::literal_dtype(number).ok_or_else(|| out_of_range(number, "any integer type", span))
            };
            promote(own(*x, a.1)?, own(*y, b.1)?).unwrap_or(DType::F32)
        }
        (Item::Value(_) | Item::Fixed(Fixed::Num(_)), _) => return Err(not_a_value(b)),
        _ => return Err(not_a_value(a)),
    };
    let dtype = if to_float && !dtype.is_float() { DType::F32 } else { dtype };
    Ok((typed(a, dtype)?, typed(b, dtype)?))
}

/// The value in a type.
pub(super) fn typed(at: &At, dtype: DType) -> Res<Expression> {
    match &at.0 {
        Item::Value(value) => Ok(convert(value.clone(), dtype)),
        Item::Fixed(Fixed::Num(number)) => constant(*number, dtype, at.1),
        _ => Err(not_a_value(at)),
    }
}

/// The value as a truth value: unequal to zero.
pub(super) fn truth(at: &At) -> Res<Expression> {
    match &at.0 {
        Item::Value(value) if value.dtype == DType::B1 => Ok(value.clone()),
        Item::Value(value) => {
            let zero = constant(Num::Int(0), value.dtype, at.1)?;
            Ok(Expression {
                uniform: value.uniform,
                kind: ExpressionKind::Binary(Binary::Ne, Box::new(value.clone()), Box::new(zero)),
                dtype: DType::B1,
                span: at.1,
            })
        }
        Item::Fixed(value) => constant(Num::Bool(value.truth(at.1)?), DType::B1, at.1),
        _ => Err(Box::new(
            Diagnostic::error(id::CONDITION, at.1, "a condition is a truth value or a number")
                .label(format!("this is {}", at.0.describe())),
        )),
    }
}

/// `a op b` of run-time values.
pub(super) fn binary(op: Binary, symbol: &str, a: &At, b: &At, span: Span) -> Res<Item> {
    let (x, y) = unify(a, b, matches!(op, Binary::Div | Binary::Pow))?;
    let dtype = x.dtype;
    let bits = matches!(op, Binary::And | Binary::Or | Binary::Xor);
    let fits = match op {
        Binary::Shl | Binary::Shr => dtype.is_integer(),
        _ if bits => !dtype.is_float(),
        _ if is_comparison(op) => true,
        _ => dtype != DType::B1,
    };
    if !fits {
        return Err(Box::new(
            Diagnostic::error(id::OPERAND_TYPE, span, format!("`{symbol}` does not take {}", dtype_name(dtype)))
                .also(a.1, format!("this is {}", a.0.describe()))
                .also(b.1, format!("this is {}", b.0.describe())),
        ));
    }
    if let Item::Fixed(Fixed::Num(number)) = &b.0 {
        number::divides_or_shifts(symbol, *number, dtype, (span, b.1))?;
    }
    let uniform = x.uniform && y.uniform;
    let dtype = if is_comparison(op) { DType::B1 } else { dtype };
    Ok(Item::Value(Expression { kind: ExpressionKind::Binary(op, Box::new(x), Box::new(y)), dtype, uniform, span }))
}

/// A function of one run-time value.
pub(super) fn unary(function: Unary, name: &str, at: &At, span: Span) -> Res<Item> {
    let value = match &at.0 {
        Item::Value(value) => value.clone(),
        Item::Fixed(Fixed::Num(number)) => {
            let dtype = if function == Unary::Neg { crate::promote::literal_dtype(*number) } else { Some(DType::F32) };
            constant(*number, dtype.unwrap_or(DType::F32), at.1)?
        }
        _ => return Err(not_a_value(at)),
    };
    let takes_integers = matches!(function, Unary::Neg | Unary::Abs | Unary::Not);
    let value = match value.dtype {
        DType::B1 if function != Unary::Not => {
            return Err(Box::new(
                Diagnostic::error(id::OPERAND_TYPE, at.1, format!("`{name}` does not take truth values"))
                    .help("convert with `tile.cast(x, int32)`"),
            ));
        }
        dtype if dtype.is_integer() && !takes_integers => convert(value, DType::F32),
        _ => value,
    };
    let (dtype, uniform) = (value.dtype, value.uniform);
    Ok(Item::Value(Expression { kind: ExpressionKind::Unary(function, Box::new(value)), dtype, uniform, span }))
}
