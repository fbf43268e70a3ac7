//! `narrow-integers`: 64-bit sums, differences and products whose operands are 32-bit numbers made wider, and whose result
//! is proven to fit 32 bits, are computed in 32 bits.
//!
//! ```text
//! muli (exti %a), (exti %b) : tile<i64>     where a < 1024 and b < 1024
//! exti (muli %a, %b : tile<i32>) : tile<i64>
//! ```

use tessera_ir::attrs::{Overflow, Signedness};
use tessera_ir::{Changed, Const, Elem, Func, Op, OpKind, Pass, PassCx, ScheduleOp, Type, Value};
use tessera_types::DType;

use crate::rewrite::{Step, make, rewrite};
use tessera_analysis::facts::Facts;

/// Integer narrowing.
pub(super) const PASS: Pass = Pass { name: "narrow-integers", doc: "Computes in 32 bits what is proven to fit.", run };

fn run(func: &mut Func, _: &mut PassCx<'_>) -> Changed {
    let facts = Facts::of(func);
    rewrite(func, |func, op, out| {
        let data = &func.ops[op];
        let overflow = Overflow::Wraps;
        let narrow = match &data.kind {
            OpKind::Schedule(ScheduleOp::AddI { .. }) => ScheduleOp::AddI { overflow },
            OpKind::Schedule(ScheduleOp::SubI { .. }) => ScheduleOp::SubI { overflow },
            OpKind::Schedule(ScheduleOp::MulI { .. }) => ScheduleOp::MulI { overflow },
            _ => return Step::Keep,
        };
        let (result, lhs, rhs) = (data.result(), data.one(0), data.one(1));
        let ty = func.ty(result).clone();
        let fact = facts.fact(result);
        let fits = |value: i64| i32::try_from(value).is_ok();
        let Type::Tile(tile) = &ty else { return Step::Keep };
        if ty.num() != Some(DType::I64) || !fits(fact.least) || !fits(fact.greatest) {
            return Step::Keep;
        }
        let small = Type::Tile(tile.with_elem(Elem::Num(DType::I32)));
        // At least one operand was made wider, else nothing is gained.
        if widened(func, lhs, &small).is_none() && widened(func, rhs, &small).is_none() {
            return Step::Keep;
        }
        let (Some(a), Some(b)) = (narrowed(func, op, lhs, &small, out), narrowed(func, op, rhs, &small, out)) else {
            return Step::Keep;
        };
        let value = make(func, op, narrow, &[a, b], small, out);
        Step::value(make(func, op, ScheduleOp::ExtI { signedness: Signedness::Signed }, &[value], ty, out))
    })
}

/// The 32-bit value that was made wider.
fn widened(func: &Func, value: Value, small: &Type) -> Option<Value> {
    let data = &func.ops[func.defining_op(value)?];
    let extends = data.kind == OpKind::Schedule(ScheduleOp::ExtI { signedness: Signedness::Signed });
    (extends && func.ty(data.operands[0]) == small).then(|| data.operands[0])
}

fn narrowed(func: &mut Func, at: Op, value: Value, small: &Type, out: &mut Vec<Op>) -> Option<Value> {
    if let Some(source) = widened(func, value, small) {
        return Some(source);
    }
    let number = func.constant(value)?.as_int()?;
    i32::try_from(number).ok()?;
    let kind = ScheduleOp::Constant { value: Const::int(DType::I32, number) };
    Some(make(func, at, kind, &[], small.clone(), out))
}
