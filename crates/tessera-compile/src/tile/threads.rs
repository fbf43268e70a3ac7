//! How many warps a block has, where the kernel's author does not say.
//!
//! Memory-bound blocks want two accesses of 16 bytes a thread, and four where threads combine over a tile: a multiprocessor then has
//! the 40 KiB in flight that its share of the memory's latency asks for, what a thread does once is shared by many elements, and its
//! registers suffice. Products want an accumulator of at most 64 elements a thread, which leaves room for operands.
//!
//! A block that combines over a small tile has one warp: 32 such blocks of a multiprocessor have as much under way as fewer larger ones, and threads of one
//! warp need no barrier. Rows of 128, 512 and 1000 elements that are combined twice take 0.60, 0.57 and 0.91 of the time that blocks of four warps took
//! (`results/users/warps-h200.txt`).

use tessera_ir::{Block, Func, OpKind, ScheduleOp};

use super::anchors::widest_held;

/// Bytes a thread of the largest tile in blocks that move data, and in those that combine over it outside of loops.
const BYTES: (usize, usize) = (32, 64);

/// Elements a thread of that tile, at least and at most.
const ELEMENTS: (usize, usize) = (8, 32);

/// Elements of a row's part that a loop reads and combines, and of which a thread has as many as outside of loops. (A row's maximum and sum, by 4096 and
/// 8192 elements: 0.95, 0.72 and 0.85 of the time.)
const LONG: usize = 4096;

/// Operations of a program whose threads may do them for many elements: of more, code grows beyond what a multiprocessor holds of it.
const FEW: usize = 64;

/// Bytes of a tile that a warp moves by itself, two accesses of each lane.
const SMALL: usize = 1024;

/// Elements a thread of the largest accumulator, in blocks that multiply matrices.
const ACCUMULATOR: usize = 64;

/// Warps of a block.
pub(super) fn warps(func: &Func) -> u32 {
    if let Some(warps) = func.hints.num_warps {
        return warps.clamp(1, 32);
    }
    let work = Work::of(func);
    let threads = match (work.accumulator, func.hints.num_worker_warps) {
        // Of products it says what a plan is made of.
        (0, Some(warps)) => 32 * warps.clamp(1, 32) as usize,
        (0, None) => work.threads(widest_held(func) as usize),
        (accumulator, _) => (accumulator / ACCUMULATOR).clamp(128, 256),
    };
    (threads.next_power_of_two() / 32) as u32
}

/// What a function does with its tiles.
struct Work {
    /// Elements of the largest tile, and of the largest accumulator.
    tile: usize,
    accumulator: usize,
    /// It combines over tiles; only by running sums.
    combines: bool,
    scans: bool,
    loops: bool,
    /// No tile has several lines, and loops read arrays and write none.
    rows: bool,
    /// Operations.
    count: usize,
}

impl Work {
    fn of(func: &Func) -> Work {
        let ops = func.linked_ops();
        let mut work =
            Work { tile: 0, accumulator: 0, combines: false, scans: false, loops: false, rows: true, count: ops.len() };
        let mut reduces = false;
        for op in ops {
            let data = &func.ops[op];
            let tiles = || data.results.iter().chain(&data.operands).filter_map(|&value| func.ty(value).as_tile());
            work.rows &= tiles().all(|tile| tile.shape.iter().filter(|&&extent| extent > 1).count() <= 1);
            // An operation on no tile moves nothing.
            let largest = tiles().map(|tile| tile.len()).max().unwrap_or(0);
            match &data.kind {
                OpKind::Schedule(ScheduleOp::MmaF { .. } | ScheduleOp::MmaI { .. } | ScheduleOp::MmaFSparse {}) => {
                    work.accumulator = work.accumulator.max(func.ty(data.result()).the_tile().len());
                }
                kind => {
                    work.tile = work.tile.max(largest);
                    reduces |= matches!(kind, OpKind::Schedule(ScheduleOp::Reduce { .. }));
                    work.scans |= matches!(kind, OpKind::Schedule(ScheduleOp::Scan { .. }));
                    if matches!(kind, OpKind::Schedule(ScheduleOp::For { .. } | ScheduleOp::Loop {})) {
                        work.loops = true;
                        work.rows &= data.regions.iter().all(|&region| reads_alone(func, region));
                    }
                }
            }
        }
        work.combines = reduces || work.scans;
        work.scans &= !reduces;
        work
    }

    /// Threads of a block whose widest element has so many bits.
    fn threads(&self, bits: usize) -> usize {
        let &Work { tile, combines, loops, rows, .. } = self;
        let few = self.count <= FEW;
        let bytes = if combines && (!loops || rows && tile >= LONG) { BYTES.1 } else { BYTES.0 };
        // What a thread has is scanned one by one, what threads have in as many rounds as doubling takes.
        let least = if self.scans && rows && !loops && few { ELEMENTS.1 } else { ELEMENTS.0 };
        let elements = (bytes * 8 / bits).clamp(least, ELEMENTS.1);
        let threads = (tile / elements).next_power_of_two();
        // Half as many more a thread are better than a quarter of the threads idle.
        let threads = if tile <= threads / 2 * elements * 3 / 2 { threads / 2 } else { threads };
        // In a loop threads meet again and again: more of them at once.
        let most = if tile > 16 * 1024 || loops { 1024 } else { 512 };
        let small = few && tile * bits / 8 <= SMALL;
        threads.clamp(if !loops && (combines || small) { 32 } else { 128 }, most)
    }
}

/// A loop's body loads from arrays, and writes none.
fn reads_alone(func: &Func, body: Block) -> bool {
    let has = |is: fn(&ScheduleOp) -> bool| func.blocks[body].ops.iter().any(|&op| func.ops[op].kind.schedule().is_some_and(is));
    has(|kind| matches!(kind, ScheduleOp::LoadViewTko { .. }))
        && !has(|kind| matches!(kind, ScheduleOp::StoreViewTko { .. } | ScheduleOp::StorePtrTko { .. }))
}
