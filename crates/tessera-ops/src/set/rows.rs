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

/// How the rows of a problem are divided among blocks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Division {
    /// A block takes so many whole rows at once.
    Whole(usize),
    /// A block takes a row in pieces of so many elements, twice.
    InTurn(usize),
    /// A block takes a piece of so many elements of a row; what is common to the row goes through memory between two launches.
    Shared(usize),
}

/// Rows that leave multiprocessors without work where a block takes one, and from how many elements on a second launch costs less than that.
const FEW: usize = 128;
const LONG: usize = 65536;

/// Elements of a row that a block's registers hold, by the bits of an element.
fn held(bits: u32) -> usize {
    if bits > 32 { 16384 } else { 32768 }
}

/// Bits of the widest access of a thread.
pub(crate) const VECTOR_BITS: u32 = 128;

impl Division {
    /// Whole rows: enough elements that a block is worth starting, one row at least; on a GPU a power of two of rows, since threads are
    /// shared out by halves. Rows in 8 bits get a warp each as long as it can hold one, in whole vectors of 16.
    pub(crate) fn whole(n: usize, storage: DType, machine: Machine) -> Division {
        Division::Whole(match machine {
            Machine::Cpu => (16384 / n.max(1)).clamp(1, 16),
            Machine::Gpu(_) if storage.bits() <= 8 && (1025..2048).contains(&n) => 4,
            Machine::Gpu(_) => 1 << (4096 / n.max(1)).clamp(1, 64).ilog2(),
        })
    }

    /// The division of `count` rows of `n` elements.
    pub(crate) fn of(count: usize, n: usize, storage: DType, machine: Machine) -> Division {
        match machine {
            Machine::Cpu => Division::whole(n, storage, machine),
            Machine::Gpu(_) if n <= held(storage.bits()) => Division::whole(n, storage, machine),
            Machine::Gpu(_) if count <= FEW && n > LONG => Division::Shared(8192),
            // As long as a block's threads can take at once.
            Machine::Gpu(_) => Division::InTurn(if storage.bits() > 32 { 4096 } else { 16384 }),
        }
    }

    /// The grid for `count` rows of `n` elements.
    pub(crate) fn grid(self, count: usize, n: usize) -> Result<[u32; 3], Unsupported> {
        match self {
            Division::Whole(rows) => grid(count, rows),
            Division::InTurn(_) => grid(count, 1),
            Division::Shared(piece) => grid(count, 1).map(|[rows, ..]| [rows, n.div_ceil(piece) as u32, 1]),
        }
    }
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
