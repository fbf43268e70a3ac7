//! `fma-contract`: a product that only one sum uses becomes part of it, rounded once. cuTile's rule, and the only place where
//! rounding changes: every pipeline runs it at the same point, so that all levels of optimisation give the same bits.
//!
//! | from | to |
//! |---|---|
//! | `a * b + c`, `c + a * b` | `fma(a, b, c)` |
//! | `a * b - c` | `fma(a, b, -c)` |
//! | `c - a * b` | `fma(-a, b, c)` |
//!
//! Both operations must have one rounding mode and one `flush_to_zero`; of two products the left one goes in.

use tessera_ir::{Changed, Func, Op, OpKind, Pass, PassCx, ScheduleOp, Value};

use crate::analysis::uses::Uses;
use crate::passes::rewrite::{Step, make, rewrite};

/// FMA contraction.
pub(super) const PASS: Pass =
    Pass { name: "fma-contract", doc: "Joins a product and the only sum that uses it into one `fma`.", run };

fn run(func: &mut Func, _: &mut PassCx<'_>) -> Changed {
    let uses = Uses::of(func);
    rewrite(func, |func, op, out| {
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

fn product(func: &Func, value: Value) -> Option<Op> {
    let op = func.defining_op(value)?;
    matches!(func.ops[op].kind, OpKind::Schedule(ScheduleOp::MulF { .. })).then_some(op)
}
