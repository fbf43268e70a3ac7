//! How many blocks a multiprocessor shall hold at once.
//!
//! A block that combines over a row waits while its threads meet: others must load meanwhile. Left alone, the assembler takes
//! registers to load further ahead, and fewer blocks fit. What must be in registers at once is what is live where threads meet;
//! everything else it can do piece by piece. So it is told how many blocks that leaves room for, up to 1024 threads, which have 64 KiB in
//! flight with 64 bytes each. (Rows of 8192 16-bit elements on an H200: 0.90 of a copy
//! without, 0.98 with.)

use tessera_ir::{Block, Changed, Func, Op, OpKind, ScheduleOp, TileOp, Type, Value, bug};
use tessera_layout::Axis;
use tessera_types::Arch;

use super::anchors::{Units, fastest, widest};
use super::threads;
use crate::facts::Facts;
use tessera_analysis::memory::is_written;
use tessera_analysis::views::ViewFacts;

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

/// The same where vectors are cut, for the conditions of their elements; and of each array whose vectors are made of two, which all are there before
/// it is known whether any is cut.
const CUT: u64 = 8;
const ASTRAY: u64 = 16;

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
    let accesses = accesses(func);
    if !straight(func, func.body, &mut ways) || converts || accesses.contains(&Access::Single) {
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
    let astray = accesses.iter().filter(|access| **access == Access::Astray).count() as u64;
    let cut = u64::from(accesses.iter().any(|access| *access != Access::Whole)) * CUT + astray * ASTRAY;
    let beside = u64::from(masked) * MASKS + u64::from(gathers) * GATHERS + cut;
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

/// How an access by a view goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Access {
    /// By whole vectors; or there is none.
    Whole,
    /// By vectors among whose elements the array may end.
    Cut,
    /// By two vectors for each, between which it begins.
    Astray,
    /// Element by element.
    Single,
}

/// Of each operation.
fn accesses(func: &Func) -> Vec<Access> {
    let facts = Facts::of(func);
    func.linked_ops().into_iter().map(|op| access(func, &facts, op)).collect()
}

fn access(func: &Func, facts: &Facts, op: Op) -> Access {
    let (data, stores) = (&func.ops[op], matches!(func.ops[op].kind.schedule(), Some(ScheduleOp::StoreViewTko { .. })));
    let (view, index) = match data.kind.schedule() {
        Some(ScheduleOp::LoadViewTko { .. }) => (data.one(0), data.group(1)),
        Some(ScheduleOp::StoreViewTko { .. }) => (data.one(1), data.group(2)),
        _ => return Access::Whole,
    };
    let Type::TileView(ty) = func.ty(view) else { bug!("tiles of what is no view") };
    if ty.tile.iter().all(|&extent| extent == 1) {
        return Access::Whole;
    }
    let (known, bits) = (ViewFacts::of(func, facts, view, ty), u64::from(ty.tensor.elem.bits()));
    let axis = fastest(ty);
    let Some(&dim) = ty.dim_map.get(axis) else { return Access::Whole };
    let whole = |elements: u64| (elements * bits).is_multiple_of(128);
    let bytes = (bits / 8).max(1);
    if whole(known.neighbours(dim as usize, bytes)) {
        return Access::Whole;
    }
    let one_line = (0..ty.tile.len()).all(|other| other == axis || ty.tile[other] == 1);
    let aligned =
        if one_line { known.alignment(func, facts, ty, index) >= 16 } else { whole(known.aligned(dim as usize, bytes)) };
    // Threads that have neighbours read the two vectors that have them.
    let several = |value: Value| {
        func.ty(value).layout().is_some_and(|layout| {
            let core = layout.core();
            core.bits(Axis::Register) > 0 && core.basis(Axis::Register, 0)[axis] == 1
        })
    };
    match (aligned, one_line && !stores && known.align >= 16 && several(data.results[0]) && !is_written(func, op)) {
        (true, _) => Access::Cut,
        (false, true) => Access::Astray,
        (false, false) => Access::Single,
    }
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
    in_registers(func, held.copied())
}

/// The registers of a thread that values take.
fn in_registers(func: &Func, values: impl IntoIterator<Item = Value>) -> u64 {
    let bits = values.into_iter().map(|value| match func.ty(value) {
        Type::Distributed(ty) => ty.layout.registers() * ty.tile.elem.bits(),
        _ => 0,
    });
    bits.sum::<u64>().div_ceil(32)
}

/// Registers that a thread has for what it holds, next to pieces: where the author says how many blocks shall be resident, of those.
pub(super) fn registers(func: &Func, units: &Units) -> u64 {
    let limits = units.arch.limits();
    let threads = u64::from(threads::warps(func) * Arch::WARP * func.hints.occupancy.unwrap_or(1));
    let all = u64::from(limits.registers_per_sm) / threads;
    all.min(u64::from(limits.registers_per_thread)).saturating_sub(PIECES)
}

/// Registers that a thread holds where a loop's threads meet: what the loop carries, what it takes from outside, and what it computes before and uses
/// behind. 0 where they do not meet.
pub(super) fn held_in_loop(func: &Func, body: Block) -> u64 {
    let ops = &func.blocks[body].ops;
    let combines = |op: Op| matches!(func.ops[op].kind, OpKind::Schedule(ScheduleOp::Reduce { .. }));
    let own = (0..ops.len()).filter(|&at| combines(ops[at])).map(|at| live_across(func, ops, at)).max();
    let mut held: Vec<Value> = ops.iter().flat_map(|&op| func.ops[op].operands.iter().copied()).collect();
    held.sort_unstable();
    held.dedup();
    let is_cheap = |op: Op| matches!(func.ops[op].kind, OpKind::Schedule(ScheduleOp::Constant { .. } | ScheduleOp::Broadcast {}));
    held.retain(|&value| func.defining_op(value).is_none_or(|op| !ops.contains(&op) && !is_cheap(op)));
    own.map_or(0, |own| own + in_registers(func, held))
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
