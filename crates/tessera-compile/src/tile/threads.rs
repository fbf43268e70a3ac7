//! How many warps a block has, where the kernel's author does not say.
//!
//! Memory-bound blocks want two accesses of 16 bytes a thread, and four where threads combine over a tile: a multiprocessor then has
//! the 40 KiB in flight that its share of the memory's latency asks for, what a thread does once is shared by many elements, and its
//! registers suffice. Products want an accumulator of at most 64 elements a thread, which leaves room for operands.
//!
//! A block that combines over a small tile has one warp: 32 such blocks of a multiprocessor have as much under way as fewer larger ones, and threads of one
//! warp need no barrier. Rows of 128, 512 and 1000 elements that are combined twice take 0.60, 0.57 and 0.91 of the time that blocks of four warps took
//! (`results/users/warps-h200.txt`).

use tessera_ir::{Func, OpKind, ScheduleOp};

use super::anchors::widest_held;

/// Bytes a thread of the largest tile in blocks that move data, and in those that combine over it outside of loops.
const BYTES: (usize, usize) = (32, 64);

/// Elements a thread of that tile, at least and at most.
const ELEMENTS: (usize, usize) = (8, 32);

/// Elements a thread of the largest accumulator, in blocks that multiply matrices.
const ACCUMULATOR: usize = 64;

/// Warps of a block.
pub(super) fn warps(func: &Func) -> u32 {
    if let Some(warps) = func.hints.num_warps {
        return warps.clamp(1, 32);
    }
    let (mut tile, mut accumulator) = (0, 0);
    let (mut combines, mut scans, mut loops, mut rows) = (false, false, false, true);
    for op in func.linked_ops() {
        let data = &func.ops[op];
        let tiles = || data.results.iter().chain(&data.operands).filter_map(|&value| func.ty(value).as_tile());
        rows &= tiles().all(|tile| tile.shape.iter().filter(|&&extent| extent > 1).count() <= 1);
        // An operation on no tile moves nothing.
        let largest = tiles().map(|tile| tile.len()).max().unwrap_or(0);
        match &data.kind {
            OpKind::Schedule(ScheduleOp::MmaF { .. } | ScheduleOp::MmaI { .. } | ScheduleOp::MmaFSparse {}) => {
                accumulator = accumulator.max(func.ty(data.result()).the_tile().len());
            }
            kind => {
                tile = tile.max(largest);
                combines |= matches!(kind, OpKind::Schedule(ScheduleOp::Reduce { .. } | ScheduleOp::Scan { .. }));
                scans |= matches!(kind, OpKind::Schedule(ScheduleOp::Scan { .. }));
                loops |= matches!(kind, OpKind::Schedule(ScheduleOp::For { .. } | ScheduleOp::Loop {}));
            }
        }
    }
    let threads = match (accumulator, func.hints.num_worker_warps) {
        // Of products it says what a plan is made of.
        (0, Some(warps)) => 32 * warps.clamp(1, 32) as usize,
        (0, None) => {
            let bytes = if combines && (!loops || rows) { BYTES.1 } else { BYTES.0 };
            // What a thread has is scanned one by one, what threads have in as many rounds as doubling takes.
            let least = if scans { ELEMENTS.1 } else { ELEMENTS.0 };
            let elements = (bytes * 8 / widest_held(func) as usize).clamp(least, ELEMENTS.1);
            let threads = (tile / elements).next_power_of_two();
            // Half as many more a thread are better than a quarter of the threads idle.
            let threads = if tile <= threads / 2 * elements * 3 / 2 { threads / 2 } else { threads };
            // In a loop threads meet again and again: more of them at once.
            let most = if tile > 16 * 1024 || loops { 1024 } else { 512 };
            threads.clamp(if loops { 128 } else { 32 }, most)
        }
        (accumulator, _) => (accumulator / ACCUMULATOR).clamp(128, 256),
    };
    (threads.next_power_of_two() / 32) as u32
}
