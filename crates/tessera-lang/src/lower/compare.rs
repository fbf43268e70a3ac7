//! Comparisons, of tiles, of compile-time values, and of sequences of both.

use std::rc::Rc;

use tessera_ir::attrs::{NanOrder, Predicate};
use tessera_ir::{Diagnostic, ScheduleOp, Span};
use tessera_types::DType;

use super::control::Condition;
use super::operand::At;
use super::{Lowerer, Res, signedness};
use crate::ast::{BinaryOp, BoolOp, CompareOp, Expr};
use crate::diagnostics::id;
use crate::fixed;
use crate::promote::is_restricted;
use crate::value::{Tile, Val};

impl Lowerer<'_> {
    /// `a < b <= c`: each comparison is made where those before it hold.
    pub(crate) fn comparisons(&mut self, left: &At, rest: &[(CompareOp, Expr)], span: Span) -> Res<Val> {
        let Some(((op, right), rest)) = rest.split_first() else { return Ok(Val::bool(true)) };
        let right = self.at(right)?;
        let one = self.compare(*op, left, &right, span)?;
        if rest.is_empty() {
            return Ok(one);
        }
        let first = self.condition(&(one, span))?;
        let all = self.and_then(BoolOp::And, first, span, |lowerer| {
            let others = (lowerer.comparisons(&right, rest, span)?, span);
            lowerer.condition(&others)
        })?;
        Ok(all.into())
    }

    /// `a op b`.
    pub(crate) fn compare(&mut self, op: CompareOp, a: &At, b: &At, span: Span) -> Res<Val> {
        if let Some(value) = self.compare_objects(op, a, b, span)? {
            return Ok(value);
        }
        let (a, b) = (&(a.0.plain(), a.1), &(b.0.plain(), b.1));
        if let (Some(x), Some(y)) = (a.0.fixed(), b.0.fixed()) {
            return fixed::compare(op, &x, &y, span).map(Val::bool);
        }
        match op {
            CompareOp::In => return self.contains(a, b, span),
            CompareOp::NotIn => {
                let found = self.contains(a, b, span)?;
                return self.negation(&(found, span));
            }
            CompareOp::Is | CompareOp::IsNot => return Ok(Val::bool(identity(a, b, span)? == (op == CompareOp::Is))),
            CompareOp::Eq | CompareOp::Ne | CompareOp::Lt | CompareOp::Le | CompareOp::Gt | CompareOp::Ge => {}
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
        match (&a.0, &b.0) {
            (Val::Tuple(x), Val::Tuple(y)) | (Val::Sequence(x), Val::Sequence(y)) => {
                let (x, y) = (x.clone(), y.clone());
                match op {
                    CompareOp::Eq => self.sequences_equal(&x, &y, [a.1, b.1], span),
                    CompareOp::Ne => {
                        let equal = self.sequences_equal(&x, &y, [a.1, b.1], span)?;
                        self.negation(&(equal, span))
                    }
                    _ => self.sequences_ordered(op, &x, &y, [a.1, b.1], span),
                }
            }
            _ => match (op, equal_kinds(&a.0, &b.0)) {
                (CompareOp::Eq, Some(equal)) => Ok(Val::bool(equal)),
                (CompareOp::Ne, Some(equal)) => Ok(Val::bool(!equal)),
                _ => Err(incomparable(a, b, span)),
            },
        }
    }

    fn negation(&mut self, at: &At) -> Res<Val> {
        match self.condition(at)? {
            Condition::Known(value) => Ok(Val::bool(!value)),
            Condition::AtRunTime(tile) => self.complement(&tile, at.1).map(Val::Tile),
        }
    }

    /// Equality of two items, by which sequences are compared; a value is equal to itself.
    fn items_equal(&mut self, a: &At, b: &At, span: Span) -> Res<Condition> {
        if let (Val::Tile(x), Val::Tile(y)) = (&a.0, &b.0)
            && x.value == y.value
            && x.shape.is_empty()
        {
            return Ok(Condition::Known(true));
        }
        let equal = match (a.0.fixed(), b.0.fixed()) {
            (Some(x), Some(y)) => Val::bool(fixed::equal_items(&x, &y, span)?),
            _ => self.compare(CompareOp::Eq, a, b, span)?,
        };
        self.condition(&(equal, span))
    }

    fn sequences_equal(&mut self, x: &[Val], y: &[Val], places: [Span; 2], span: Span) -> Res<Val> {
        let mut all = Condition::Known(x.len() == y.len());
        for (x, y) in x.iter().zip(y) {
            all = self.and_then(BoolOp::And, all, span, |lowerer| {
                lowerer.items_equal(&(x.clone(), places[0]), &(y.clone(), places[1]), span)
            })?;
        }
        Ok(all.into())
    }

    /// The order of the first items that differ, or of the lengths.
    fn sequences_ordered(&mut self, op: CompareOp, x: &[Val], y: &[Val], places: [Span; 2], span: Span) -> Res<Val> {
        let (Some((first, x)), Some((second, y))) = (x.split_first(), y.split_first()) else {
            return Ok(Val::bool(fixed::holds(op, x.len().cmp(&y.len()))));
        };
        let (first, second) = ((first.clone(), places[0]), (second.clone(), places[1]));
        let equal = match self.items_equal(&first, &second, span)? {
            Condition::Known(true) => return self.sequences_ordered(op, x, y, places, span),
            Condition::Known(false) => return self.compare(op, &first, &second, span),
            Condition::AtRunTime(equal) => equal,
        };
        let here = self.compare(op, &first, &second, span)?;
        let behind = self.sequences_ordered(op, x, y, places, span)?;
        self.where_(&(Val::Tile(equal), span), &(behind, span), &(here, span))
    }

    /// `a in b`.
    fn contains(&mut self, a: &At, b: &At, span: Span) -> Res<Val> {
        if let Val::Dict(items) = &b.0 {
            return Ok(Val::bool(self.find_key(items, a)?.is_some()));
        }
        if let (Val::SourceClass(class), Val::Member(own, _)) = (&b.0, &a.0) {
            return Ok(Val::bool(own.is(class)));
        }
        let (Val::Tuple(items) | Val::Sequence(items)) = &b.0 else {
            return Err(Box::new(
                Diagnostic::error(id::OPERAND_TYPE, b.1, format!("`in` looks into tuples and strings, not {}", b.0.describe()))
                    .label("searched here"),
            ));
        };
        let mut found = Condition::Known(false);
        for item in items.iter() {
            found = self.and_then(BoolOp::Or, found, span, |lowerer| lowerer.items_equal(a, &(item.clone(), b.1), span))?;
        }
        Ok(found.into())
    }

    /// A comparison of two tiles of one type.
    pub(crate) fn compare_tiles(&mut self, op: CompareOp, x: &Tile, y: &Tile) -> Tile {
        let kind = comparison(op, x.dtype);
        let known = x.known.zip(y.known).and_then(|(x, y)| x.test(op, y)).map(crate::number::Num::Bool);
        Tile { known, ..self.emit_tile(kind, &[x.value, y.value], DType::B1, x.shape.clone()) }
    }

    /// The complement of a truth value at run time.
    pub(crate) fn complement(&mut self, tile: &Tile, span: Span) -> Res<Tile> {
        let one = self.constant(crate::number::Num::Bool(true), DType::B1, tile.shape.clone(), span)?;
        Ok(self.bitwise_tiles(BinaryOp::Xor, tile, &one))
    }
}

impl From<Condition> for Val {
    fn from(condition: Condition) -> Val {
        match condition {
            Condition::Known(value) => Val::bool(value),
            Condition::AtRunTime(tile) => Val::Tile(tile),
        }
    }
}

/// Equality of values that exist only at compile time and are no data; `None` where it is not defined.
fn equal_kinds(a: &Val, b: &Val) -> Option<bool> {
    let is_thing = |value: &Val| {
        matches!(value, Val::Ellipsis | Val::Closure(_) | Val::Builtin(_) | Val::Enum(..) | Val::Class(_) | Val::Method(..))
    };
    match (a, b) {
        (Val::Closure(a), Val::Closure(b)) => Some(Rc::ptr_eq(a, b)),
        (Val::Ellipsis, Val::Ellipsis) => Some(true),
        (Val::Builtin(a), Val::Builtin(b)) => Some(a == b),
        (Val::Enum(..), Val::Enum(..)) | (Val::Class(_), Val::Class(_)) => Some(a.same(b)),
        (Val::Method(..), _) | (_, Val::Method(..)) => None,
        _ if is_thing(a) && (is_thing(b) || b.fixed().is_some()) || is_thing(b) && a.fixed().is_some() => Some(false),
        _ => None,
    }
}

/// `a is b`.
fn identity(a: &At, b: &At, span: Span) -> Res<bool> {
    match (&a.0, &b.0) {
        (Val::Module(path), _) | (_, Val::Module(path)) => Err(fixed::not_evaluated(path, span)),
        (Val::None, _) | (_, Val::None) => Ok(false),
        (x, y) => match equal_kinds(x, y) {
            Some(same) => Ok(same),
            None => Err(Box::new(
                Diagnostic::error(id::OPERAND_TYPE, span, "`is` compares identity, which tiles and numbers don't have")
                    .also(a.1, format!("this is {}", a.0.describe()))
                    .also(b.1, format!("this is {}", b.0.describe()))
                    .help("write `==`"),
            )),
        },
    }
}

fn incomparable(a: &At, b: &At, span: Span) -> Box<Diagnostic> {
    let is_array = [&a.0, &b.0].iter().any(|value| matches!(value, Val::Array(_)));
    let is_none = [&a.0, &b.0].iter().any(|value| matches!(value, Val::None));
    Box::new(
        Diagnostic::error(id::OPERAND_TYPE, span, format!("{} and {} are not compared", a.0.describe(), b.0.describe()))
            .also(a.1, format!("this is {}", a.0.describe()))
            .also(b.1, format!("this is {}", b.0.describe()))
            .help(match (is_none, is_array) {
                (true, _) => "write `is None`",
                (false, true) => "load a tile with `ct.load` first",
                (false, false) => "only numbers, tiles, strings and tuples of them have an order",
            }),
    )
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
