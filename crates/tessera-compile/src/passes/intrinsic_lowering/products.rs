//! Products: by warpgroups, by the instruction of a warp, or as they are.

use tessera_ir::attrs::Signedness;
use tessera_ir::{Diagnostic, Func, Level, Op, OpData, OpKind, ScheduleOp, TileOp, Type, Value};
use tessera_layout::MmaAtom;

use crate::tile::{Units, has_better_product, relay};
use tessera_analysis::sharing::{Sharing, instructions};

/// Chooses instructions for the function's products.
///
/// # Errors
/// A tile that no layout covers.
pub(super) fn lower(func: &mut Func, units: &Units) -> Result<bool, Diagnostic> {
    let open: Vec<Op> = func.linked_ops().into_iter().filter(|&op| is_product(&func.ops[op])).collect();
    let mut changed = false;
    if can_be_laid_out(func) && open.iter().any(|&op| sync(func, op, units).is_none() && has_better_product(func, op, units)) {
        *func = relay(func, units)?;
        fence(func);
        changed = true;
    }
    for op in func.linked_ops() {
        if let Some(kind) = sync(func, op, units) {
            func.ops[op].turn_into(kind);
            changed = true;
        }
    }
    Ok(changed)
}

fn is_product(data: &OpData) -> bool {
    matches!(
        data.kind,
        OpKind::Schedule(ScheduleOp::MmaF { .. } | ScheduleOp::MmaI { .. }) | OpKind::Tile(TileOp::MmaShared { .. })
    )
}

/// Layouts may be chosen anew: nobody has started products or divided the warps.
fn can_be_laid_out(func: &Func) -> bool {
    func.level == Level::Tile
        && !func.linked_ops().into_iter().any(|op| {
            matches!(
                func.ops[op].kind,
                OpKind::Tile(TileOp::Role { .. } | TileOp::Wgmma { .. } | TileOp::WgmmaPromoted { .. } | TileOp::MmaSync { .. })
            )
        })
}

/// The operation that names the instruction whose fragments a product's tiles are.
fn sync(func: &Func, op: Op, units: &Units) -> Option<TileOp> {
    let data = &func.ops[op];
    let (lhs_signedness, rhs_signedness) = match &data.kind {
        // `tile.mma_sync` names no instruction that takes half of a factor.
        _ if data.places().is_some() => return None,
        OpKind::Schedule(ScheduleOp::MmaF { .. }) => (Signedness::Signed, Signedness::Signed),
        OpKind::Schedule(ScheduleOp::MmaI { lhs_signedness, rhs_signedness })
        | OpKind::Tile(TileOp::MmaShared { lhs_signedness, rhs_signedness, .. }) => (*lhs_signedness, *rhs_signedness),
        _ => return None,
    };
    let acc = func.ty(data.one(2)).layout()?;
    let extents = |value: Value| match func.ty(value) {
        Type::Shared(shared) => Some(shared.tile()),
        ty => ty.as_tile().cloned(),
    };
    let (lhs, rhs) = (extents(data.one(0))?, extents(data.one(1))?);
    let (&[m, depth], &[_, n]) = (&lhs.shape[..], &rhs.shape[..]) else { return None };
    let dtype = rhs.elem.num()?;
    let (m, n, depth) = (u64::from(m), u64::from(n), u64::from(depth));
    instructions(units.arch, dtype).find_map(|(rows, columns, k)| {
        if !depth.is_multiple_of(k) {
            return None;
        }
        let atom = MmaAtom::sync(rows, columns, k, u64::from(dtype.bits())).ok()?;
        let sharing = Sharing::by(atom, acc, depth)?;
        // Factors in registers must lie as the instruction takes them, unless the right one is read from memory and the left one
        // is brought there on the way.
        let fits = |value: Value, operand, shape| match func.ty(value).layout() {
            Some(layout) => sharing.operand(operand, shape).is_some_and(|wanted| wanted == *layout),
            None => true,
        };
        let buffers = func.ty(data.one(1)).as_shared().is_some();
        let right = fits(data.one(1), tessera_layout::Operand::B, [depth, n]);
        let left = buffers || fits(data.one(0), tessera_layout::Operand::A, [m, depth]);
        let shape = [rows as u32, columns as u32, k as u32].into_iter().collect();
        (left && right).then_some(TileOp::MmaSync { shape, lhs_signedness, rhs_signedness })
    })
}

/// What threads wrote is seen by warpgroups' products behind the barrier that follows: they read through the asynchronous proxy.
fn fence(func: &mut Func) {
    let started =
        |func: &Func, op: Op| matches!(func.ops[op].kind, OpKind::Tile(TileOp::Wgmma { .. } | TileOp::WgmmaPromoted { .. }));
    if !func.linked_ops().into_iter().any(|op| started(func, op)) {
        return;
    }
    for block in func.linked_blocks() {
        let old = std::mem::take(&mut func.blocks[block].ops);
        let mut ops = Vec::with_capacity(old.len());
        for op in old {
            if matches!(func.ops[op].kind, OpKind::Tile(TileOp::Barrier {})) {
                let span = func.ops[op].span;
                ops.push(func.make_op(TileOp::FenceAsync {}.into(), &[], [], [], span));
            }
            ops.push(op);
        }
        func.blocks[block].ops = ops;
    }
}
