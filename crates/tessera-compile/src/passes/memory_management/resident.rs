//! How many blocks a multiprocessor holds, by a block's threads and its shared memory: what decides whether bytes are worth a barrier.

use tessera_ir::Func;
use tessera_types::Arch;

/// Registers of a thread below which nothing is gained: enough for addresses and little else.
const FEW_REGISTERS: u32 = 32;

/// The blocks that fit at once when each takes so many bytes of shared memory.
pub(crate) fn blocks(func: &Func, arch: Arch, shared: u64) -> u64 {
    let limits = arch.limits();
    let threads = func.hints.threads().max(1);
    let bytes = (shared + u64::from(limits.shared_reserved_per_block)).max(1);
    let by_threads = limits.threads_per_sm / threads;
    let by_registers = limits.registers_per_sm / (threads * FEW_REGISTERS);
    // More blocks than were asked for are no use.
    let wanted = func.hints.occupancy.unwrap_or(limits.blocks_per_sm);
    let others = by_threads.min(by_registers).min(limits.blocks_per_sm).min(wanted.max(1)).max(1);
    (u64::from(limits.shared_per_sm) / bytes).min(u64::from(others))
}
