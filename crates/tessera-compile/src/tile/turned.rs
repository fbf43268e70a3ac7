//! Loads whose tiles are stored along another axis: transposes.
//!
//! Such a tile goes through shared memory, written along one axis and read along the other. A thread that held a vector along the load's lines alone
//! would write single elements there, from lanes that meet in one bank. So it holds a block, and lanes next to each other complete vectors
//! along the store's lines ([`Distribution::turned`](tessera_layout::Distribution::turned)).
//!
//! ```text
//! %t = load_view_tko : tile<64x64xf32>       contiguous along axis 1
//! store_view_tko (permute %t)                contiguous along the load's axis 0: blocks of 4 x 4
//! ```

use rustc_hash::FxHashMap;
use tessera_ir::{Func, Op, OpKind, ScheduleOp, Type, Value};

use super::anchors::fastest;
use super::relation::{Relation, has_layout, shape};
use super::slots;

/// The loads, with the axis along which their tiles are stored.
pub(super) fn loads(func: &Func) -> FxHashMap<Op, usize> {
    let mut found = FxHashMap::default();
    for op in func.linked_ops() {
        let data = &func.ops[op];
        let OpKind::Schedule(ScheduleOp::StoreViewTko { .. }) = data.kind else { continue };
        let Type::TileView(view) = func.ty(data.one(1)) else { continue };
        if let Some((load, axis)) = axis_of_load(func, data.one(0), fastest(view))
            && slots::contiguous_axis(func, load).is_some_and(|lines| lines != axis)
        {
            found.insert(load, axis);
        }
    }
    found
}

/// The load that a value comes from by arithmetic of elements and renaming, and the load's axis that one of the value's axes is.
fn axis_of_load(func: &Func, value: Value, axis: usize) -> Option<(Op, usize)> {
    let op = func.defining_op(value)?;
    let data = &func.ops[op];
    if let OpKind::Schedule(ScheduleOp::LoadViewTko { .. }) = data.kind {
        return Some((op, axis));
    }
    match Relation::of(func, op) {
        Relation::Same => {
            let first = data.operands.iter().find(|&&operand| has_layout(func, operand));
            axis_of_load(func, *first?, axis)
        }
        Relation::Permute(permutation) => axis_of_load(func, data.one(0), permutation[axis]),
        Relation::Reshape => {
            let (from, to) = (shape(func, data.one(0)), shape(func, data.result()));
            let wide = |shape: &[u64]| (0..shape.len()).filter(|&axis| shape[axis] != 1).collect::<Vec<_>>();
            let (before, after) = (wide(&from), wide(&to));
            let same = before.iter().map(|&axis| from[axis]).eq(after.iter().map(|&axis| to[axis]));
            let number = after.iter().position(|&other| other == axis).filter(|_| same)?;
            axis_of_load(func, data.one(0), before[number])
        }
        _ => None,
    }
}
