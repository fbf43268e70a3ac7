//! `constant-fold`: operations on compile-time tiles become compile-time tiles, where every executor would compute the same
//! bits ([`crate::fold`]).

use smallvec::SmallVec;
use tessera_ir::{Changed, Const, ConstData, Func, Op, OpKind, Pass, PassCx, ScheduleOp, Trait, Type};

use crate::fold;
use crate::rewrite::{Step, make, rewrite};

/// Constant folding.
pub(super) const PASS: Pass = Pass { name: "constant-fold", doc: "Computes operations on constants.", run };

fn run(func: &mut Func, _: &mut PassCx<'_>) -> Changed {
    rewrite(func, |func, op, out| match folded(func, op) {
        Some(value) => {
            let ty = func.ty(func.ops[op].result()).clone();
            Step::value(make(func, op, ScheduleOp::Constant { value }, &[], ty, out))
        }
        None => Step::Keep,
    })
}

fn folded(func: &Func, op: Op) -> Option<Const> {
    let data = &func.ops[op];
    let OpKind::Schedule(kind) = &data.kind else { return None };
    if matches!(kind, ScheduleOp::Constant { .. }) || data.results.len() != 1 {
        return None;
    }
    let Type::Tile(result) = func.ty(data.result()) else { return None };
    let dtype = result.elem.num()?;
    if let ScheduleOp::Iota {} = kind {
        return (result.len() == 1).then(|| Const::int(dtype, 0));
    }
    let operands: Option<SmallVec<[&Const; 3]>> = data.operands.iter().map(|&operand| func.constant(operand)).collect();
    let operands = operands?;
    match kind {
        ScheduleOp::Broadcast {} | ScheduleOp::Permute { .. } | ScheduleOp::Extract {} => {
            Some(Const::splat(dtype, operands.first()?.splat_bits()?))
        }
        ScheduleOp::Reshape {} => operands.first().map(|&source| source.clone()),
        ScheduleOp::Cat { .. } => {
            let bits = operands.iter().map(|operand| operand.splat_bits()).collect::<Option<SmallVec<[u64; 2]>>>()?;
            (bits[0] == bits[1]).then(|| Const::splat(dtype, bits[0]))
        }
        ScheduleOp::Assume { .. } => operands.first().map(|&value| value.clone()),
        _ if data.row().has(Trait::Elementwise) && !operands.is_empty() => {
            let value = fold::elementwise(kind, &operands, dtype)?;
            let uniform = match &value.data {
                ConstData::Dense(items) => items.first().filter(|first| items.iter().all(|item| item == *first)).copied(),
                ConstData::Splat(_) => None,
            };
            Some(uniform.map_or(value, |bits| Const::splat(dtype, bits)))
        }
        _ => None,
    }
}
