//! How many warps a block has, where the kernel's author does not say.
//!
//! Memory-bound blocks want about eight elements a thread, so that a thread has a few wide accesses in flight and its registers
//! suffice; products want an accumulator of at most 64 elements a thread, which leaves room for operands.

use tessera_ir::{Func, OpKind, ScheduleOp};

/// Elements a thread of the largest tile, in blocks that move data.
const ELEMENTS: usize = 8;

/// Elements a thread of the largest accumulator, in blocks that multiply matrices.
const ACCUMULATOR: usize = 64;

/// Warps of a block.
pub(super) fn warps(func: &Func) -> u32 {
    if let Some(warps) = func.hints.num_warps {
        return warps.clamp(1, 32);
    }
    let (mut tile, mut accumulator) = (0, 0);
    for op in func.linked_ops() {
        let data = &func.ops[op];
        let largest =
            data.results.iter().chain(&data.operands).filter_map(|&value| func.ty(value).as_tile()).map(|tile| tile.len());
        let largest = largest.max().unwrap_or(0);
        match &data.kind {
            OpKind::Schedule(ScheduleOp::MmaF { .. } | ScheduleOp::MmaI { .. }) => {
                let result = func.ty(data.result()).as_tile().map_or(0, |tile| tile.len());
                accumulator = accumulator.max(result);
            }
            _ => tile = tile.max(largest),
        }
    }
    let threads = match accumulator {
        0 => (tile / ELEMENTS).clamp(128, if tile > 16 * 1024 { 1024 } else { 512 }),
        accumulator => (accumulator / ACCUMULATOR).clamp(128, 256),
    };
    (threads.next_power_of_two() / 32) as u32
}
