//! `program-packing`: blocks of one warp that have nothing of a block, side by side in one that is launched.
//!
//! ```text
//! %x = get_tile_block_id {axis=x}; work(%x)
//! ->
//! if get_tile_block_id < get_num_tile_blocks { %x = get_tile_block_id {axis=x}; work(%x) }     hints(programs=4)
//! ```
//!
//! A multiprocessor holds 32 blocks and 64 warps, and starts a block in the time of some 140 instructions: of blocks of one warp half of its places stay
//! empty, and small ones end faster than others start. How many of those that were asked for a launched one takes is the launch's business
//! ([`GridRule::together`](tessera_ir::GridRule::together)), as there are enough only in some. Rows of 128 elements that are combined twice: 162 us alone,
//! 76 us four together; of 512: 45 us and 39 us (H200, 2^25 elements of 16 bits).

use tessera_ir::attrs::GridAxis;
use tessera_ir::{Changed, Func, Level, Op, OpKind, Pass, ScheduleOp, TileOp};

use crate::tile::in_grid;

/// The pass.
pub(super) const PASS: Pass = Pass {
    name: "program-packing",
    doc: "Has a launched block take several of the blocks that are asked for, where each is a warp and no more.",
    run: |func, _| Changed(pack(func)),
};

/// Programs of a block at most: twice as many were no faster, and fewer lie at its end without work.
const TOGETHER: u32 = 4;

fn pack(func: &mut Func) -> bool {
    let hints = &func.hints;
    let alone = hints.num_warps == Some(1) && hints.num_threads.is_none() && hints.timeline.is_none();
    if func.level != Level::Tile || !alone || hints.is_launched_otherwise() {
        return false;
    }
    let ops = func.linked_ops();
    let along = |&op: &Op| matches!(func.ops[op].kind, OpKind::Schedule(ScheduleOp::GetTileBlockId { axis: GridAxis::X }));
    if !ops.iter().any(along) || !ops.iter().all(|&op| is_of_a_warp(func, op)) {
        return false;
    }
    in_grid(func, 0);
    func.hints.programs = Some(TOGETHER);
    true
}

/// Whether an operation needs nothing but its warp: no memory of a block, none of its barriers.
fn is_of_a_warp(func: &Func, op: Op) -> bool {
    let data = &func.ops[op];
    let shared = data.through.is_some()
        || data.used().chain(data.results.iter().copied()).any(|value| func.ty(value).as_shared().is_some());
    let known = match &data.kind {
        OpKind::Schedule(_) => true,
        OpKind::Tile(kind) => matches!(
            kind,
            TileOp::ThreadId {}
                | TileOp::LaneId {}
                | TileOp::ConvertLayout {}
                | TileOp::Renew { .. }
                | TileOp::Vary {}
                | TileOp::AllocRegister {}
                | TileOp::LoadElement {}
                | TileOp::StoreElement { .. }
                | TileOp::LoadVector { .. }
                | TileOp::StoreVector { .. }
                | TileOp::Prefetch {}
                | TileOp::WarpReduce { .. }
                | TileOp::Shuffle { .. }
                | TileOp::MatchAny { .. }
                | TileOp::Popcount {}
                | TileOp::MmaFragment { .. }
                | TileOp::MmaSync { .. }
        ),
        OpKind::Graph(_) => false,
    };
    known && !shared
}
