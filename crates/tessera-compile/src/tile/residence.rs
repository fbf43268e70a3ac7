//! How many blocks a multiprocessor shall hold at once.
//!
//! A block that combines over a row waits while its threads meet: others must load meanwhile. Left alone, the assembler takes
//! registers to load further ahead, and fewer blocks fit. What must be in registers at once is what is live where threads meet;
//! everything else it can do piece by piece. So it is told how many blocks that leaves room for, up to 1024 threads, which have 64 KiB in
//! flight with 64 bytes each. (Rows of 8192 16-bit elements on an H200: 0.90 of a copy
//! without, 0.98 with.)

use tessera_ir::{Block, Changed, Extent, Func, Op, OpKind, ParamKind, ScheduleOp, TileOp, Type, Value};
use tessera_types::Arch;

use super::anchors::{Units, widest};
use super::threads;
use tessera_analysis::arrays::viewed_array;

/// Threads of a multiprocessor that have enough in flight.
const THREADS: u64 = 1024;

/// Registers of a thread for addresses, and for the pieces that elementwise work is done in.
const PIECES: u64 = 32;

/// Threads that have enough in flight where elements of 16 bits are held ([`again`](super::again)), and registers for pieces there, and of each
/// array that is read behind the last reduction.
const NARROW_THREADS: u64 = 1536;
const NARROW_PIECES: u64 = 24;
const READ_BEHIND: u64 = 8;

/// The same where elements take two registers, where a thread holds many of an 8-bit format, and for the assembler's older targets.
const MORE_PIECES: u64 = 48;

/// Registers of a thread for the masks of a tile's end, next to the pieces (more pieces leave room for them): decided before the load, asked
/// for again by each reduction and by the store. They are bits, and lie in one register together.
const MASKS: u64 = 1;

/// The same for what blocks of a cluster give each other, where arrays are read behind it.
const GATHERS: u64 = 1;

/// Says how many blocks shall be resident, where neither the kernel's author nor what has staged the function does.
pub(super) fn choose(func: &mut Func, units: &Units) -> Changed {
    let staged = |op: Op| matches!(func.ops[op].kind, OpKind::Tile(TileOp::Role { .. } | TileOp::CommitGroup {}));
    if func.hints.occupancy.is_some() || func.linked_ops().into_iter().any(staged) {
        return Changed(false);
    }
    func.hints.occupancy = blocks(func, units, threads::warps(func));
    Changed(func.hints.occupancy.is_some())
}

/// The blocks, where the function combines over tiles outside of loops and that decides; `None` elsewhere, and where elements are moved or
/// converted one by one, which takes as many registers as there are.
pub(super) fn blocks(func: &Func, units: &Units, warps: u32) -> Option<u32> {
    let mut ways = Vec::new();
    let converts = widest(func) == 8 && !units.arch.has_fp8_cvt();
    if !straight(func, func.body, &mut ways) || converts || !in_vectors(func) {
        return None;
    }
    let combines = |op: &Op| matches!(func.ops[*op].kind, OpKind::Schedule(ScheduleOp::Reduce { .. }));
    let most = |ops: &[Op]| (0..ops.len()).filter(|&at| combines(&ops[at])).map(|at| live_across(func, ops, at)).max();
    let live = ways.iter().filter_map(|&way| most(&func.blocks[way].ops)).max()?;
    let threads = u64::from(warps * Arch::WARP);
    let more = widest(func) == 64 || !units.arch.has_small_pieces() || live > 32 && widest(func) == 8;
    let masked = ways.iter().flat_map(|&way| &func.blocks[way].ops).any(|op| combines(op) && has_holes(func, *op));
    let gathers = |op: &Op| matches!(func.ops[*op].kind, OpKind::Tile(TileOp::ClusterGather {}));
    let gathers = ways.iter().any(|&way| reads_behind(func, &func.blocks[way].ops, gathers) > 0);
    let beside = u64::from(masked) * MASKS + u64::from(gathers) * GATHERS;
    let body = &func.blocks[func.body].ops;
    let narrow = body.iter().any(|&op| matches!(func.ops[op].kind, OpKind::Tile(TileOp::Renew { .. })));
    let behind = reads_behind(func, body, combines) as u64 * READ_BEHIND;
    let (pieces, most) = match (more, narrow) {
        (true, _) => (MORE_PIECES, THREADS),
        (_, true) => (NARROW_PIECES + beside + behind, NARROW_THREADS),
        (_, false) => (PIECES + beside, THREADS),
    };
    let blocks = (u64::from(units.arch.limits().registers_per_sm) / (threads * (live + pieces))).min(most / threads);
    (blocks > 1).then_some(blocks as u32)
}

/// Whether a block goes its way once, and the ways through its branches do; each is noted.
fn straight(func: &Func, block: Block, ways: &mut Vec<Block>) -> bool {
    ways.push(block);
    func.blocks[block].ops.iter().all(|&op| match &func.ops[op].kind {
        OpKind::Schedule(
            ScheduleOp::MmaF { .. }
            | ScheduleOp::MmaI { .. }
            | ScheduleOp::MmaFScaled {}
            | ScheduleOp::MmaFSparse {}
            | ScheduleOp::Scan { .. },
        )
        | OpKind::Tile(TileOp::MmaShared { .. } | TileOp::Wgmma { .. } | TileOp::WgmmaPromoted { .. }) => false,
        OpKind::Schedule(ScheduleOp::Reduce { .. }) | OpKind::Tile(_) => true,
        OpKind::Schedule(ScheduleOp::If {}) => func.ops[op].regions.iter().all(|&way| straight(func, way, ways)),
        OpKind::Schedule(_) => func.ops[op].regions.is_empty(),
        OpKind::Graph(_) => false,
    })
}

/// Lines of every array that the function has views of are whole vectors of 16 bytes: their stated sizes are, and the array is aligned so.
fn in_vectors(func: &Func) -> bool {
    let results = func.linked_ops().into_iter().flat_map(|op| func.ops[op].results.to_vec());
    results.into_iter().all(|value| {
        let Type::TileView(view) = func.ty(value) else { return true };
        let array = viewed_array(func, value).map(|position| &func.abi.params[position].kind);
        let aligned =
            !matches!(array, Some(ParamKind::Array { align, .. }) if *align < 16) || view.tile.iter().all(|&extent| extent == 1);
        let bits = i64::from(view.tensor.elem.bits());
        let mut lines = view.tensor.strides.iter().zip(&view.tensor.shape).filter(|(stride, _)| **stride == Extent::Static(1));
        aligned && lines.all(|(_, size)| !matches!(size, Extent::Static(size) if size * bits % 128 != 0))
    })
}

/// Registers of a thread that hold what is computed before an operation and used behind it.
fn live_across(func: &Func, ops: &[Op], at: usize) -> u64 {
    let mut later: Vec<Value> = ops[at + 1..].iter().flat_map(|&op| func.ops[op].operands.iter().copied()).collect();
    later.sort_unstable();
    later.dedup();
    let before = ops[..at].iter().filter(|&&op| {
        // Constants, counts and repetitions are no registers, or are cheap to make again.
        let kind = &func.ops[op].kind;
        !matches!(kind, OpKind::Schedule(ScheduleOp::Constant { .. } | ScheduleOp::Iota {} | ScheduleOp::Broadcast {}))
    });
    let held = before.flat_map(|&op| &func.ops[op].results).filter(|result| later.binary_search(result).is_ok());
    let bits = held.map(|&value| match func.ty(value) {
        Type::Distributed(ty) => ty.layout.registers() * ty.tile.elem.bits(),
        _ => 0,
    });
    bits.sum::<u64>().div_ceil(32)
}

/// How many arrays are read behind the last of some operations.
fn reads_behind(func: &Func, ops: &[Op], are: impl Fn(&Op) -> bool) -> usize {
    let reads = |op: &&Op| matches!(func.ops[**op].kind, OpKind::Schedule(ScheduleOp::LoadViewTko { .. }));
    ops.iter().rposition(are).map_or(0, |last| ops[last..].iter().filter(reads).count())
}

/// Whether what an operation combines is no whole number of its layout's boxes.
fn has_holes(func: &Func, op: Op) -> bool {
    func.ty(func.ops[op].one(0)).layout().is_some_and(|layout| layout.has_holes())
}
