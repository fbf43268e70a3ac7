//! What operators over rows share: precisions, tiles and grids.

use tessera_types::{DType, Policy, Storage};

use crate::operator::{Machine, Unsupported};

/// Storage and accumulator of a float policy.
pub(crate) fn storage(policy: Policy, operator: &str) -> Result<(DType, DType), Unsupported> {
    match policy.storage() {
        Storage::Plain(dtype) if dtype.is_float() && dtype != DType::E8M0 => Ok((dtype, policy.accumulator())),
        _ => Err(Unsupported(format!("{operator} takes float precisions, not `{policy}`"))),
    }
}

/// How many rows one block takes: enough elements that a block is worth starting, one row at least; on a GPU a power of two, since
/// threads are shared out by halves.
pub(crate) fn rows_per_block(n: usize, machine: Machine) -> usize {
    match machine {
        Machine::Cpu => (16384 / n.max(1)).clamp(1, 16),
        Machine::Gpu(_) => 1 << (4096 / n.max(1)).clamp(1, 64).ilog2(),
    }
}

/// The pieces that a row goes by in where registers cannot hold it: as long as a block's threads can take at once.
pub(crate) fn pieces(n: usize, storage: DType, machine: Machine) -> Option<usize> {
    (matches!(machine, Machine::Gpu(_)) && n > 16384).then_some(if storage.bits() > 32 { 4096 } else { 16384 })
}

/// Elements one block of an elementwise kernel takes: blocks cost a few hundred nanoseconds each on a CPU, so large arrays get large
/// tiles (a copy of 64 MiB reached 0.6 of the copy rate with tiles of 4096 and 0.85 with 65536), small ones enough blocks for every core.
/// On a GPU a tile is a few vectors of each thread.
pub(crate) fn elementwise_tile(n: usize, machine: Machine) -> usize {
    match machine {
        Machine::Cpu if n >= 1 << 19 => 65536,
        Machine::Cpu => 4096,
        Machine::Gpu(_) => 2048,
    }
}

/// One block for every `per_block` rows.
pub(crate) fn grid(rows: usize, per_block: usize) -> Result<[u32; 3], Unsupported> {
    let blocks = u32::try_from(rows.div_ceil(per_block)).ok().filter(|&blocks| blocks < 1 << 31);
    blocks.map(|blocks| [blocks, 1, 1]).ok_or_else(|| Unsupported(format!("{rows} rows need too many blocks")))
}
