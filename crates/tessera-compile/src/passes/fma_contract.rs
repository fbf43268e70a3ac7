//! `fma-contract`: a product that only one sum uses becomes part of it, rounded once. cuTile's rule, and the only place where
//! rounding changes: every pipeline runs it at the same point, so that all levels of optimisation give the same bits.
//!
//! | from | to |
//! |---|---|
//! | `a * b + c`, `c + a * b` | `fma(a, b, c)` |
//! | `a * b - c` | `fma(a, b, -c)` |
//! | `c - a * b` | `fma(-a, b, c)` |
//! | `c + mma(a, b, 0)`, `mma(a, b, 0) + c` | `mma(a, b, c)` |
//!
//! Both operations must have one rounding mode and one `flush_to_zero`; of two products the left one goes in. A product of matrices rounds
//! as its units do, and takes a sum that rounds to nearest; one that may add up fast is left to do so for itself alone.

use tessera_ir::attrs::{Overflow, Rounding};
use tessera_ir::{Changed, Const, Func, Op, OpKind, Pass, PassCx, ScheduleOp, Value};

use crate::rewrite::{Step, make, rewrite};
use tessera_analysis::uses::Uses;

/// FMA contraction.
pub(super) const PASS: Pass =
    Pass { name: "fma-contract", doc: "Joins a product and the only sum that uses it into one `fma` or `mma`.", run };

fn run(func: &mut Func, _: &mut PassCx<'_>) -> Changed {
    let uses = Uses::of(func);
    rewrite(func, |func, op, out| {
        if let Some(sum) = accumulated(func, op, &uses, out) {
            return Step::value(sum);
        }
        let data = &func.ops[op];
        let (subtracts, rounding, flush_to_zero) = match &data.kind {
            OpKind::Schedule(ScheduleOp::AddF { rounding, flush_to_zero }) => (false, *rounding, *flush_to_zero),
            OpKind::Schedule(ScheduleOp::SubF { rounding, flush_to_zero }) => (true, *rounding, *flush_to_zero),
            _ => return Step::Keep,
        };
        let (lhs, rhs) = (data.one(0), data.one(1));
        // Only the left product is tried when there are two: if it does not fit, neither is joined.
        let (product, rhs_is_product) = match (product(func, lhs), product(func, rhs)) {
            (Some(product), _) => (product, false),
            (None, Some(product)) => (product, true),
            (None, None) => return Step::Keep,
        };
        let fits = func.ops[product].kind == OpKind::Schedule(ScheduleOp::MulF { rounding, flush_to_zero });
        if !fits || uses.count(func.ops[product].result()) != 1 {
            return Step::Keep;
        }
        let (mut a, b) = (func.ops[product].one(0), func.ops[product].one(1));
        let mut acc = if rhs_is_product { lhs } else { rhs };
        let ty = func.ty(acc).clone();
        if subtracts {
            let negated = if rhs_is_product { &mut a } else { &mut acc };
            *negated = make(func, op, ScheduleOp::NegF {}, &[*negated], ty.clone(), out);
        }
        Step::value(make(func, op, ScheduleOp::Fma { rounding, flush_to_zero }, &[a, b, acc], ty, out))
    })
}

/// A sum with a product of matrices that starts from zero, as a product that starts from the other summand.
fn accumulated(func: &mut Func, op: Op, uses: &Uses, out: &mut Vec<Op>) -> Option<Value> {
    let data = &func.ops[op];
    let plain = match &data.kind {
        OpKind::Schedule(ScheduleOp::AddF { rounding, flush_to_zero }) => *rounding == Rounding::NearestEven && !flush_to_zero,
        OpKind::Schedule(ScheduleOp::AddI { overflow }) => *overflow == Overflow::Wraps,
        _ => false,
    };
    let (lhs, rhs) = plain.then(|| (data.one(0), data.one(1)))?;
    let ty = func.ty(lhs).clone();
    let from_zero = |value: Value| {
        let product = &func.ops[func.defining_op(value)?];
        let slow = matches!(product.kind, OpKind::Schedule(ScheduleOp::MmaF { fast_acc: false } | ScheduleOp::MmaI { .. }));
        let zero = slow && func.constant(product.one(2)).and_then(Const::splat_bits) == Some(0);
        (zero && uses.count(value) == 1).then(|| (product.kind.clone(), product.one(0), product.one(1)))
    };
    let (found, start) = from_zero(rhs).map(|found| (found, lhs)).or_else(|| Some((from_zero(lhs)?, rhs)))?;
    let (kind, a, b) = found;
    Some(make(func, op, kind, &[a, b, start], ty, out))
}

fn product(func: &Func, value: Value) -> Option<Op> {
    let op = func.defining_op(value)?;
    matches!(func.ops[op].kind, OpKind::Schedule(ScheduleOp::MulF { .. })).then_some(op)
}
