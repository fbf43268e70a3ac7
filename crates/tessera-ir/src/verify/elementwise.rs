//! Operations whose row states the type rule. They apply to tiles and, in Graph functions, to tensors; arithmetic is defined
//! on `f64 f32 f16 bf16` and on integers of 8 bits and more and truth values. Narrower formats are storage: they are
//! converted, moved and multiplied by the matrix unit.

use tessera_types::DType;

use crate::attrs::Rounding;
use crate::dialect::{Class, TypeRule};
use crate::op::OpKind;
use crate::schedule::ScheduleOp;
use crate::types::{Elem, Type};
use crate::verify::{Rule, Site, ensure, one_of};

/// Elements of a tile or tensor.
pub(super) fn elem(ty: &Type) -> Option<Elem> {
    match ty {
        Type::Tile(tile) => Some(tile.elem),
        Type::Distributed(distributed) => Some(distributed.tile.elem),
        Type::Tensor(tensor) => Some(Elem::Num(tensor.elem)),
        Type::TensorView(_) | Type::TileView(_) | Type::Token | Type::Operand(_) => None,
        Type::InFlight(_) | Type::Shared(_) | Type::Registers(_) | Type::Ring(_) | Type::Cursor => None,
    }
}

/// Same kind of value, same shape, and same layout where there is one.
pub(super) fn same_shape(a: &Type, b: &Type) -> bool {
    match (a, b) {
        (Type::Tile(a), Type::Tile(b)) => a.shape == b.shape,
        (Type::Tensor(a), Type::Tensor(b)) => a.axes == b.axes,
        (Type::Distributed(a), Type::Distributed(b)) => a.tile.shape == b.tile.shape && a.layout == b.layout,
        _ => false,
    }
}

/// Formats that arithmetic is defined on.
pub(super) fn computes(dtype: DType) -> bool {
    match dtype {
        DType::F64 | DType::F32 | DType::F16 | DType::BF16 => true,
        DType::B1 => true,
        _ => dtype.is_integer() && dtype.bits() >= 8,
    }
}

fn in_class(elem: Elem, class: Class, arithmetic: bool) -> bool {
    match (class, elem) {
        (Class::Any, _) => true,
        (Class::Float, Elem::Num(dtype)) => dtype.is_float() && (!arithmetic || computes(dtype)),
        (Class::Int, Elem::Num(dtype)) => !dtype.is_float() && (!arithmetic || computes(dtype)),
        (Class::Float | Class::Int, Elem::Ptr(_)) => false,
    }
}

fn class_name(class: Class) -> &'static str {
    match class {
        Class::Float => "floats that arithmetic is defined on (`f64`, `f32`, `f16`, `bf16`)",
        Class::Int => "integers of at least 8 bits or truth values",
        Class::Any => "numbers or pointers",
    }
}

pub(super) fn check(site: &Site<'_>, kind: &ScheduleOp) -> Rule {
    match site.op.row().rule {
        TypeRule::Special => return Ok(()),
        TypeRule::Elementwise(class) => {
            operands_agree(site, class)?;
            site.result_is(0, site.operand(0))?;
        }
        TypeRule::Compare(class) => {
            operands_agree(site, class)?;
            let (source, result) = (site.operand(0), site.result(0));
            let right = same_shape(source, result) && elem(result) == Some(Elem::Num(DType::B1));
            ensure!(right, "ir-result-type", "the result must have the operands' shape and truth values, not be `{result}`");
        }
        TypeRule::Convert(from, to) => {
            let (source, result) = (site.operand(0), site.result(0));
            ensure!(same_shape(source, result), "ir-shape", "`{source}` and `{result}` differ in shape");
            let (Some(source), Some(result)) = (elem(source), elem(result)) else {
                return Err(site.wrong_operand(0, "a tile", source));
            };
            ensure!(in_class(source, from, false), "ir-element-type", "cannot convert from `{source}`");
            ensure!(in_class(result, to, false), "ir-element-type", "cannot convert to `{result}`");
            conversion(kind, source, result)?;
        }
    }
    attributes(site, kind)
}

fn operands_agree(site: &Site<'_>, class: Class) -> Rule {
    let first = site.operand(0);
    let Some(elem) = elem(first) else { return Err(site.wrong_operand(0, "a tile", first)) };
    ensure!(in_class(elem, class, true), "ir-element-type", "needs {}, not `{first}`", class_name(class));
    for position in 1..site.op.operands.len() {
        let other = site.operand(position);
        ensure!(first == other, "ir-operand-type", "operands are `{first}` and `{other}`, but must have one type");
    }
    Ok(())
}

fn conversion(kind: &ScheduleOp, source: Elem, result: Elem) -> Rule {
    let bits = |elem: Elem| elem.num().map(DType::bits);
    let right = match kind {
        ScheduleOp::Bitcast {} => bits(source).is_some() && bits(source) == bits(result),
        ScheduleOp::ExtI { .. } => bits(source) < bits(result),
        ScheduleOp::TruncI { .. } => bits(source) > bits(result),
        ScheduleOp::FToI { .. } | ScheduleOp::IToF { .. } | ScheduleOp::FToF { .. } => true,
        ScheduleOp::IntToPtr {} => source == Elem::Num(DType::I64) && matches!(result, Elem::Ptr(_)),
        ScheduleOp::PtrToInt {} => matches!(source, Elem::Ptr(_)) && result == Elem::Num(DType::I64),
        ScheduleOp::PtrToPtr {} => matches!((source, result), (Elem::Ptr(_), Elem::Ptr(_))),
        _ => true,
    };
    ensure!(right, "ir-element-type", "cannot convert `{source}` to `{result}`");
    Ok(())
}

/// Rounding modes that every IEEE operation has.
const IEEE: &[Rounding] = &[Rounding::NearestEven, Rounding::Zero, Rounding::NegativeInf, Rounding::PositiveInf];

fn attributes(site: &Site<'_>, kind: &ScheduleOp) -> Rule {
    use Rounding::{Approx, Full, NearestAway, NearestEven, NearestIntToZero, NegativeInf, PositiveInf, Zero};
    use ScheduleOp as S;
    let rounding: Option<(Rounding, &[Rounding])> = match kind {
        S::AddF { rounding, .. } | S::SubF { rounding, .. } | S::MulF { rounding, .. } | S::Fma { rounding, .. } => {
            Some((*rounding, IEEE))
        }
        S::DivF { rounding, .. } => Some((*rounding, &[NearestEven, Zero, NegativeInf, PositiveInf, Full, Approx])),
        S::Sqrt { rounding, .. } => Some((*rounding, &[NearestEven, Zero, NegativeInf, PositiveInf, Approx])),
        S::Exp { rounding, .. } | S::TanH { rounding } => Some((*rounding, &[NearestEven, Full, Approx])),
        S::FToF { rounding } => Some((*rounding, &[NearestEven, Zero, NegativeInf, PositiveInf, NearestAway])),
        S::FToI { rounding, .. } => Some((*rounding, &[NearestIntToZero, NearestEven, Zero, NegativeInf, PositiveInf])),
        S::IToF { rounding, .. } => Some((*rounding, IEEE)),
        S::DivI { rounding, .. } => Some((*rounding, &[Zero, NegativeInf, PositiveInf])),
        _ => None,
    };
    if let Some((rounding, allowed)) = rounding {
        one_of("the rounding mode", rounding, allowed)?;
        let approximate = matches!(rounding, Full | Approx);
        let single = elem(site.operand(0)) == Some(Elem::Num(DType::F32));
        ensure!(!approximate || single, "ir-attribute", "the rounding mode `{}` needs `f32`", rounding.word());
    }
    let flushes = match &site.op.kind {
        OpKind::Schedule(
            S::AddF { flush_to_zero, .. }
            | S::SubF { flush_to_zero, .. }
            | S::MulF { flush_to_zero, .. }
            | S::DivF { flush_to_zero, .. }
            | S::Fma { flush_to_zero, .. }
            | S::MaxF { flush_to_zero, .. }
            | S::MinF { flush_to_zero, .. }
            | S::Sqrt { flush_to_zero, .. }
            | S::Rsqrt { flush_to_zero }
            | S::Exp { flush_to_zero, .. }
            | S::Exp2 { flush_to_zero },
        ) => *flush_to_zero,
        _ => false,
    };
    let single = elem(site.operand(0)) == Some(Elem::Num(DType::F32));
    ensure!(!flushes || single, "ir-attribute", "`flush_to_zero` needs `f32`");
    Ok(())
}
