//! Intrinsic lowering: which instruction of the target does an operation of Tile IR.
//!
//! | operation | becomes | where |
//! |---|---|---|
//! | `tile.mma_shared` of buffers that warpgroups can read | `tile.wgmma`, `tile.wgmma_wait`, fences | sm_90a |
//! | `tile.mma_shared`, `mmaf`, `mmai` made of whole instructions | `tile.mma_sync` | factors that the target's `mma.sync` takes |
//! | `tile.copy_async` groups that are waited for at once | `tile.tma_load` into a ring of one slot | sm_90a, sm_100a |
//! | `store_view_tko` of fragments of 8 and 16 bits | `tile.store_shared`, by `stmatrix` for 16, `tile.tma_store` | sm_90a, sm_100a |
//! | `store_view_tko` of sums as warpgroups hold them, of 16 and 32 bits | `tile.send_tile` | sm_90a, sm_100a |
//! | `tile.store_shared` of fragments | the same with `matrices` | sm_90a, sm_100a |
//! | `tile.warp_reduce` of `i32` | the same with `redux` | sm_80 and later |
//!
//! What has no instruction keeps its operation: the lowering does that by multiply-adds, `cp.async` or shuffles. An operation that names
//! an instruction which the target does not have is refused; no other is taken in its place.
//!
//! Tiles whose layouts no instruction has are laid out anew ([`crate::tile::relay`]); recipes have laid theirs out before.
//!
//! Requires and leaves: a Tile function that verifies. Running the pass twice changes nothing more.
//!
//! ```text
//! %r = tile.mma_shared %a, %b, %c : tile<64x64xf32, #0>
//!     %0 = tile.wgmma %a, %b, %c : inflight<64x64xf32, #1>
//!     %r = tile.wgmma_wait [%0] {pending=0} : tile<64x64xf32, #1>
//! ```

mod copies;
mod legal;
mod products;
mod stores;

use tessera_ir::attrs::Combine;
use tessera_ir::{Changed, Func, Level, OpKind, Pass, PassCx, TileOp, Type};
use tessera_types::DType;

use crate::tile::Units;

/// The pass.
pub(super) const PASS: Pass = Pass {
    name: "intrinsic-lowering",
    doc: "Chooses the target's instructions for products, copies and reductions of Tile IR.",
    run,
};

fn run(func: &mut Func, cx: &mut PassCx<'_>) -> Changed {
    if func.level != Level::Tile {
        return Changed(false);
    }
    let Some(arch) = cx.needs_target(PASS.name, func) else { return Changed(false) };
    let wrong = legal::check(func, arch);
    if !wrong.is_empty() {
        cx.diagnostics.extend(wrong);
        return Changed(false);
    }
    let units = Units::of(func, arch);
    let mut changed = match products::lower(func, &units) {
        Ok(changed) => changed,
        Err(diagnostic) => {
            cx.diagnostics.push(diagnostic);
            return Changed(false);
        }
    };
    changed |= arch.has_tma() && copies::lower(func);
    changed |= arch.has_tma() && stores::lower(func, arch);
    changed |= arch.has_stmatrix() && stores::by_matrices(func);
    changed |= arch.has_redux() && reductions(func);
    Changed(changed)
}

/// Reductions of 32-bit integers over a warp are one instruction.
fn reductions(func: &mut Func) -> bool {
    let mut changed = false;
    for op in func.linked_ops() {
        let whole = func.ops[op].operands.first().is_some_and(|&value| *func.ty(value) == Type::scalar(DType::I32));
        if let OpKind::Tile(TileOp::WarpReduce { combine, redux, .. }) = &mut func.ops[op].kind
            && whole
            && *combine != Combine::Prod
        {
            changed |= !std::mem::replace(redux, true);
        }
    }
    changed
}
