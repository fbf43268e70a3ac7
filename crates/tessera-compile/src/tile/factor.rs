//! Factors of products that come from memory as they are: what stands between the load and the product only renames axes.
//!
//! That is a reshape which adds or drops axes of extent 1, or a permutation. [`loaded`] looks through both, and [`matrix`] does the same
//! with the buffer that the tile has in a slot:
//!
//! ```text
//! %t = load_view_tko %view, [...] : tile<1x1x128x64xbf16>     slot: shared<1x1x128x64xbf16, swizzle=<3,4,3>>
//! %u = reshape %t : tile<128x64xbf16>                         tile.slice_shared twice
//! %k = permute %u {permutation=[1, 0]} : tile<64x128xbf16>    tile.transpose_shared before
//! ```

use tessera_ir::{Func, Op, OpKind, ScheduleOp, Shape, SharedType, Span, Value};

use super::feed::{entry, permuted};
use super::slots;
use tessera_ir::Reason;

/// A factor of a product that is a whole tile of a view.
#[derive(Clone, Debug)]
pub(super) struct Loaded {
    /// The load.
    pub(super) load: Op,
    /// The tile's axes that are the factor's.
    pub(super) axes: [usize; 2],
    /// What stands between the load and the product.
    pub(super) through: Vec<Op>,
}

impl Loaded {
    /// The operations that a buffer takes the place of.
    pub(super) fn covers(&self, op: Op) -> bool {
        op == self.load || self.through.contains(&op)
    }

    /// What a slot holds of it.
    pub(super) fn slot(&self, func: &Func) -> Result<SharedType, Reason> {
        slots::brought(func, self.load, self.axes)
    }
}

/// The load behind a factor that `users` alone use.
pub(super) fn loaded(func: &Func, factor: Value, users: &[Op]) -> Result<Loaded, Reason> {
    let mut axes = [0, 1];
    let mut through: Vec<Op> = Vec::new();
    let mut value = factor;
    loop {
        let op = func.defining_op(value).ok_or("a factor is carried around the loop")?;
        let at = func.ops[op].span;
        let known = |user: Op| users.contains(&user) || through.contains(&user);
        let foreign = |user: &Op| func.ops[*user].operands.iter().any(|v| func.ops[op].results.contains(v)) && !known(*user);
        if func.linked_ops().iter().any(foreign) {
            return Err(Reason::at("a factor is used outside the product", at));
        }
        let data = &func.ops[op];
        match &data.kind {
            OpKind::Schedule(ScheduleOp::LoadViewTko { allow_tma, .. }) => {
                let free = data.group(2).is_empty() && *allow_tma != Some(false);
                if !free {
                    return Err(Reason::at("a factor's load is ordered behind a store, or may not use the copy engine", at));
                }
                return Ok(Loaded { load: op, axes, through });
            }
            OpKind::Schedule(ScheduleOp::Permute { permutation }) => axes = axes.map(|axis| permutation[axis] as usize),
            OpKind::Schedule(ScheduleOp::Reshape {}) => {
                let shape = |value| func.ty(value).as_tile().map_or(&[][..], |tile| &tile.shape[..]);
                let (from, to) = (shape(data.one(0)), shape(value));
                let wide = |shape: &[u32]| (0..shape.len()).filter(|&axis| shape[axis] != 1).collect::<Vec<_>>();
                let (before, after) = (wide(from), wide(to));
                let no = || Reason::at("a factor is reshaped otherwise than by axes of extent 1", at);
                if before.iter().map(|&axis| from[axis]).ne(after.iter().map(|&axis| to[axis])) {
                    return Err(no());
                }
                for axis in &mut axes {
                    *axis = before[after.iter().position(|other| other == axis).ok_or_else(no)?];
                }
            }
            _ => return Err(Reason::at("a factor is not what a load yields", at)),
        }
        through.push(op);
        value = data.one(0);
    }
}

/// The slot of a factor as a matrix: the factor's axes in its order, and no others.
pub(super) fn matrix(func: &mut Func, factor: &Loaded, slot: Value, span: Span, out: &mut Vec<Op>) -> Value {
    let rank = func.ty(slot).as_shared().map_or(0, |ty| ty.shape.len());
    let others = (0..rank).filter(|axis| !factor.axes.contains(axis));
    let permutation: Shape = others.chain(factor.axes).map(|axis| axis as u32).collect();
    let mut value = slot;
    if !permutation.iter().copied().eq(0..rank as u32) {
        value = permuted(func, value, permutation, span, out);
    }
    for _ in 2..rank {
        value = entry(func, value, span, out);
    }
    value
}
