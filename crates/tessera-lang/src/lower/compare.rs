//! Comparisons, of tiles and of compile-time values.

use tessera_ir::attrs::{NanOrder, Predicate};
use tessera_ir::{Diagnostic, ScheduleOp, Span};
use tessera_types::DType;

use super::operand::At;
use super::{Lowerer, Res, signedness};
use crate::ast::CompareOp;
use crate::diagnostics::id;
use crate::promote::is_restricted;
use crate::value::{Tile, Val};

impl Lowerer<'_> {
    /// `a op b`.
    pub(crate) fn compare(&mut self, op: CompareOp, a: &At, b: &At, span: Span) -> Res<Val> {
        match op {
            CompareOp::In | CompareOp::NotIn => return self.membership(op, a, b, span),
            CompareOp::Is | CompareOp::IsNot => return self.identity(op, a, b, span),
            _ => {}
        }
        if let (Val::Num(x), Val::Num(y)) = (&a.0, &b.0)
            && let Some(result) = x.test(op, *y)
        {
            return Ok(Val::bool(result));
        }
        if a.0.is_numeric() && b.0.is_numeric() {
            let dtype = self.common_dtype(a, b, false)?;
            if is_restricted(dtype) {
                return Err(Box::new(
                    Diagnostic::error(id::OPERAND_TYPE, span, format!("{} is not compared", crate::promote::dtype_name(dtype)))
                        .also(a.1, format!("this is {}", a.0.describe()))
                        .help("cast both sides first: `.astype(ct.float32)`"),
                ));
            }
            let (x, y) = self.unify(a, b, dtype)?;
            return Ok(Val::Tile(self.compare_tiles(op, &x, &y)));
        }
        let equal = match (&a.0, &b.0) {
            (Val::Str(x), Val::Str(y)) => {
                let order = x.cmp(y);
                return Ok(Val::bool(match op {
                    CompareOp::Eq => order.is_eq(),
                    CompareOp::Ne => order.is_ne(),
                    CompareOp::Lt => order.is_lt(),
                    CompareOp::Le => order.is_le(),
                    CompareOp::Gt => order.is_gt(),
                    _ => order.is_ge(),
                }));
            }
            (Val::Tuple(x), Val::Tuple(y)) if x.len() == y.len() => {
                let mut all = Val::bool(true);
                for (x, y) in x.iter().zip(y.iter()) {
                    let item = self.compare(CompareOp::Eq, &(x.clone(), a.1), &(y.clone(), b.1), span)?;
                    all = self.bitwise(crate::ast::BinaryOp::And, &(all, span), &(item, span), span)?;
                }
                match (op, all.number()) {
                    (CompareOp::Eq, Some(_)) => return Ok(all),
                    (CompareOp::Ne, Some(equal)) => return Ok(Val::bool(!equal.truth())),
                    _ => true,
                }
            }
            (x, y) => x.same(y),
        };
        let incomparable =
            a.0.is_numeric() != b.0.is_numeric() && [&a.0, &b.0].iter().any(|value| matches!(value, Val::Array(_)));
        match op {
            CompareOp::Eq if !incomparable => Ok(Val::bool(equal)),
            CompareOp::Ne if !incomparable => Ok(Val::bool(!equal)),
            _ => Err(Box::new(
                Diagnostic::error(id::OPERAND_TYPE, span, format!("{} and {} are not compared", a.0.describe(), b.0.describe()))
                    .also(a.1, format!("this is {}", a.0.describe()))
                    .also(b.1, format!("this is {}", b.0.describe()))
                    .help(if incomparable {
                        "load a tile with `ct.load` first"
                    } else {
                        "only numbers, tiles and strings have an order"
                    }),
            )),
        }
    }

    fn identity(&mut self, op: CompareOp, a: &At, b: &At, span: Span) -> Res<Val> {
        let compile_time =
            |value: &Val| !matches!(value, Val::Tile(_) | Val::Num(crate::number::Num::Int(_) | crate::number::Num::Float(_)));
        if !compile_time(&a.0) && !compile_time(&b.0) {
            return Err(Box::new(
                Diagnostic::error(id::OPERAND_TYPE, span, "`is` compares identity, which tiles and numbers don't have")
                    .help("write `==`"),
            ));
        }
        Ok(Val::bool(a.0.same(&b.0) == (op == CompareOp::Is)))
    }

    fn membership(&mut self, op: CompareOp, a: &At, b: &At, span: Span) -> Res<Val> {
        let found = match (&a.0, &b.0) {
            (Val::Str(part), Val::Str(text)) => text.contains(&**part),
            (_, Val::Tuple(items) | Val::Sequence(items)) => {
                let mut found = false;
                for item in items.iter() {
                    let equal = self.compare(CompareOp::Eq, a, &(item.clone(), b.1), span)?;
                    match equal.number() {
                        Some(equal) => found |= equal.truth(),
                        None => {
                            return Err(Box::new(
                                Diagnostic::error(id::NOT_CONSTANT, span, "`in` needs values known when the kernel is compiled")
                                    .label(format!("this is {}", a.0.describe())),
                            ));
                        }
                    }
                }
                found
            }
            _ => {
                return Err(Box::new(
                    Diagnostic::error(
                        id::OPERAND_TYPE,
                        b.1,
                        format!("`in` looks into tuples and strings, not {}", b.0.describe()),
                    )
                    .label("searched here"),
                ));
            }
        };
        Ok(Val::bool(found == (op == CompareOp::In)))
    }

    /// A comparison of two tiles of one type.
    pub(crate) fn compare_tiles(&mut self, op: CompareOp, x: &Tile, y: &Tile) -> Tile {
        let kind = comparison(op, x.dtype);
        let known = x.known.zip(y.known).and_then(|(x, y)| x.test(op, y)).map(crate::number::Num::Bool);
        Tile { known, ..self.emit_tile(kind, &[x.value, y.value], DType::B1, x.shape.clone()) }
    }
}

/// The operation that compares elements of a type; `is` and `in` never get here.
pub(crate) fn comparison(op: CompareOp, dtype: DType) -> ScheduleOp {
    let predicate = match op {
        CompareOp::Ne => Predicate::Ne,
        CompareOp::Lt => Predicate::Lt,
        CompareOp::Le => Predicate::Le,
        CompareOp::Gt => Predicate::Gt,
        CompareOp::Ge => Predicate::Ge,
        _ => Predicate::Eq,
    };
    if dtype.is_float() {
        // A NaN is unequal to everything, itself included.
        let nan = if predicate == Predicate::Ne { NanOrder::Unordered } else { NanOrder::Ordered };
        ScheduleOp::CmpF { predicate, nan }
    } else {
        ScheduleOp::CmpI { predicate, signedness: signedness(dtype) }
    }
}
