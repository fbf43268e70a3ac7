//! A matrix product with one batch is a plain product: instructions have no batch axis.

use smallvec::SmallVec;
use tessera_ir::{Func, Op, OpKind, ScheduleOp, Type, Value};

use crate::passes::rewrite::{Step, make, rewrite};

/// Drops batch axes of extent 1 from products.
pub(super) fn flatten(func: &mut Func) {
    rewrite(func, |func, op, out| {
        let data = func.ops[op].clone();
        let product = matches!(data.kind, OpKind::Schedule(ScheduleOp::MmaF { .. } | ScheduleOp::MmaI { .. }));
        if !product || func.ty(data.result()).as_tile().is_none_or(|tile| tile.shape.len() != 3 || tile.shape[0] != 1) {
            return Step::Keep;
        }
        let plain: SmallVec<[Value; 3]> =
            data.operands.iter().map(|&value| reshape(func, op, value, |shape| shape[1..].into(), out)).collect();
        let ty = func.ty(plain[2]).clone();
        let product = make(func, op, data.kind, &plain, ty, out);
        Step::value(reshape(func, op, product, |shape| [&[1], shape].concat(), out))
    });
}

fn reshape(func: &mut Func, at: Op, value: Value, to: impl Fn(&[u32]) -> Vec<u32>, out: &mut Vec<Op>) -> Value {
    let Some(mut tile) = func.ty(value).as_tile().cloned() else { return value };
    tile.shape = to(&tile.shape).into();
    make(func, at, ScheduleOp::Reshape {}, &[value], Type::Tile(tile), out)
}
