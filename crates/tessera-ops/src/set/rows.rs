//! What operators over rows share: precisions, tiles and grids.

use tessera_runtime::Sharing;
use tessera_types::room::{ROW_COLUMNS, row_part};
use tessera_types::{Arch, DType, Policy, Storage};

use crate::operator::{Argument, LaunchSpec, Machine, Role, TensorSpec, Unsupported};

/// Storage and accumulator of a float policy.
pub(crate) fn storage(policy: Policy, operator: &str) -> Result<(DType, DType), Unsupported> {
    match policy.storage() {
        Storage::Plain(dtype) if dtype.is_float() && dtype != DType::E8M0 => Ok((dtype, policy.accumulator())),
        _ => Err(Unsupported(format!("{operator} takes float precisions, not `{policy}`"))),
    }
}

pub(crate) fn int(value: usize) -> Argument {
    Argument::Int(value as i64)
}

/// The integer that has the bits of a sum, which blocks leave for each other.
pub(crate) fn word(acc: DType) -> DType {
    match acc.bits() {
        16 => DType::I16,
        32 => DType::I32,
        64 => DType::I64,
        bits => panic!("sums of {bits} bits"),
    }
}

/// Arguments for a plan's arrays of these names.
pub(crate) fn arrays(tensors: &[TensorSpec], names: &[&'static str]) -> Vec<(&'static str, Argument)> {
    let place = |name: &str| tensors.iter().position(|tensor| tensor.name == name).expect("an array of the plan");
    names.iter().map(|name| (*name, Argument::Tensor(place(name)))).collect()
}

/// How the rows of a problem are divided among blocks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Division {
    /// A block takes so many whole rows at once.
    Whole(usize),
    /// A cluster of so many blocks, of so many warps each, takes a row, each block some of its columns; one block takes it alone.
    Cluster { blocks: u32, warps: u32 },
    /// All blocks take the pieces of all rows, one after the other.
    Pieces(Pieces),
}

/// Rows in pieces. A block leaves what it finds of one piece, and writes the results of the piece that lies so many behind it:
///
/// ```text
/// 2 rows of 3 pieces, 4 behind     block      0   1   2   3   4   5   6   7   8   9
///                                  finds     00  01  02  10  11  12
///                                  writes                    00  01  02  10  11  12
/// ```
///
/// Whatever the number and the length of the rows, each multiprocessor has work, and each byte comes from memory once: the second time a
/// piece is still in the cache.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Pieces {
    rows: usize,
    /// Elements of a piece.
    size: usize,
    /// Pieces of a row.
    count: usize,
    /// How many pieces before a block's results begin: a row at least, since a block waits for those of lower numbers alone.
    behind: usize,
}

/// Elements of a row that a block's registers hold, by the bits of an element.
fn held(bits: u32) -> usize {
    if bits > 32 { 16384 } else { 32768 }
}

/// The shortest rows that clusters share.
const SHARED: usize = 32768;
/// Bytes of a row's numbers that each thread holds: with 64 of them, as the compiler takes otherwise, half as many are on their way.
const HELD_BYTES: usize = 128;
/// Blocks of a cluster, where so many have columns: those that every device has room for, so that a multiprocessor holds parts of several rows.
const BLOCKS: usize = 8;
/// Columns of a block for elements of 16 bits, of which registers hold twice as many: with more blocks than it takes these meet more often.
const PART: usize = 8192;

/// The most blocks of a cluster, which not every launch of every device has room for, and the bytes of numbers that threads of theirs hold. Of so many
/// rows at least: fewer leave multiprocessors without work, which pieces do not.
const MOST_BLOCKS: usize = 16;
const MOST_HELD_BYTES: usize = 256;
const MANY: usize = 32;

/// Threads of the kernels that take pieces, and blocks of them that a multiprocessor holds: as their files say.
const THREADS: usize = 256;
const RESIDENT: usize = 4;

/// Bytes of a piece for each thread, with which a multiprocessor has 64 KiB in flight.
const BYTES: usize = 64;

/// Bits of the widest access of a thread.
pub(crate) const VECTOR_BITS: usize = 128;

/// Whether rows begin within vectors.
pub(crate) fn is_odd(n: usize, storage: DType) -> bool {
    !(n * storage.bits() as usize).is_multiple_of(VECTOR_BITS)
}

/// Pieces of a row whose findings are put together at a time, at most.
const PARTS: usize = 256;

impl Pieces {
    /// Results follow behind by a row and by what the device has resident, so that who waits finds everything there. Between a piece's first
    /// and second reading go by as many pieces: 8 MiB and a row, of caches of 40 MiB and more.
    fn of(arrays: usize, [rows, n]: [usize; 2], storage: DType, arch: Arch) -> Pieces {
        // What a thread's registers hold; 8 bits that no instruction converts take more, and so do accesses of single elements.
        let vectors = !is_odd(n, storage);
        let most = if storage.bits() <= 8 && !arch.has_fp8_cvt() || !vectors { 16 } else { 32 };
        let size = THREADS * (BYTES * 8 / storage.bits() as usize).min(most) / arrays;
        let count = n.div_ceil(size);
        let behind = (count + RESIDENT * arch.multiprocessors() as usize).min(rows * count);
        Pieces { rows, size, count, behind }
    }

    /// Pieces of all rows.
    pub(crate) fn all(self) -> usize {
        self.rows * self.count
    }

    /// What kernels call these numbers.
    pub(crate) fn constants(self) -> [(&'static str, Argument); 4] {
        let parts = self.count.next_power_of_two().min(PARTS);
        [("CHUNK", self.size), ("PIECES", self.count), ("PARTS", parts), ("BEHIND", self.behind)]
            .map(|(name, number)| (name, Argument::Int(number as i64)))
    }

    /// What lies in memory between findings and results: words of each piece, and of each row a count of those that were read.
    pub(crate) fn between(self, words: &[&'static str], acc: DType) -> Vec<TensorSpec> {
        let words = words.iter().map(|name| TensorSpec::new(name, word(acc), [self.rows, self.count], Role::Counter));
        words.chain([TensorSpec::new("gone", DType::I32, [self.rows], Role::Counter)]).collect()
    }
}

/// How rows lie in memory, which is what a cluster's blocks and warps depend on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Lines {
    /// Each block of the largest cluster has as many columns.
    Even,
    /// Whole vectors, but the last block has fewer: the fewer blocks there are, the less is masked.
    Ragged,
    /// No whole vectors: rows begin anywhere among them, and their ends are taken element by element, which each block more would do again.
    Odd,
}

/// Elements of such rows that a thread takes at most where nothing else is read behind the row, and elsewhere; the longest rows that a block takes alone,
/// and the shortest that it does where nothing else is read.
const LINE_ELEMENTS: usize = 104;
const READ_ELEMENTS: usize = 136;
const LINE: usize = 512 * LINE_ELEMENTS;
const SHORT_LINE: usize = 512;

impl Lines {
    fn of(n: usize, storage: DType) -> Lines {
        let bits = storage.bits() as usize;
        if n.is_multiple_of(BLOCKS * ROW_COLUMNS as usize) {
            Lines::Even
        } else if bits <= 32 && is_odd(n, storage) {
            Lines::Odd
        } else {
            Lines::Ragged
        }
    }

    /// The cluster for rows of so many elements of several arrays.
    fn cluster(self, arrays: usize, n: usize, storage: DType) -> Division {
        let (bits, halves) = (storage.bits() as usize, storage.bits() == 16);
        let of_columns = |part: usize| n.div_ceil(part / arrays).next_power_of_two().min(BLOCKS);
        let mut blocks = match self {
            Lines::Even if !halves => BLOCKS,
            Lines::Ragged if bits > 32 => BLOCKS,
            Lines::Odd => BLOCKS,
            Lines::Even => of_columns(PART),
            Lines::Ragged => of_columns(2 * PART),
        };
        while row_part(n as u64, blocks as u64).is_none() {
            blocks /= 2;
        }
        let bytes = if halves && self != Lines::Even { 2 * HELD_BYTES } else { HELD_BYTES };
        let held = bytes * 8 / bits.max(32) / arrays;
        let warps = n.div_ceil(blocks * Arch::WARP as usize * held).next_power_of_two();
        Division::Cluster { blocks: blocks as u32, warps: warps as u32 }
    }
}

/// A block for each row that begins anywhere: as few threads as can have it, of which fewer have a vector less than others.
fn line(elements: usize, n: usize, least: usize) -> Division {
    let threads = n.div_ceil(elements).next_power_of_two();
    Division::Cluster { blocks: 1, warps: (threads / Arch::WARP as usize).clamp(least, 32) as u32 }
}

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

    /// The division of rows, of which a block's registers hold one, where nothing but numbers is left of them; of no whole vectors, threads take so many
    /// elements.
    pub(crate) fn reduced(elements: usize, n: usize, storage: DType, machine: Machine) -> Division {
        match machine {
            Machine::Gpu(_) if Lines::of(n, storage) == Lines::Odd && storage.bits() < 32 && n > 2048 => line(elements, n, 1),
            Machine::Gpu(_) | Machine::Cpu => Division::whole(n, storage, machine),
        }
    }

    /// The division of `count` rows of `n` elements.
    pub(crate) fn of(count: usize, n: usize, storage: DType, machine: Machine) -> Division {
        Division::of_several(1, [count, n], storage, machine)
    }

    /// The division of `count` rows of `n` elements of which each row sees some: whole rows, or pieces where no block holds one.
    pub(crate) fn of_causal(count: usize, n: usize, storage: DType, machine: Machine) -> Division {
        match machine {
            Machine::Gpu(arch) if n > held(storage.bits()) => Division::Pieces(Pieces::of(1, [count, n], storage, arch)),
            Machine::Gpu(_) | Machine::Cpu => Division::whole(n, storage, machine),
        }
    }

    /// The division of `count` rows of `n` elements of several arrays, all of which a block holds at once.
    pub(crate) fn of_several(arrays: usize, [count, n]: [usize; 2], storage: DType, machine: Machine) -> Division {
        let (held, lines) = (held(storage.bits()) / arrays, Lines::of(n, storage));
        match machine {
            Machine::Gpu(_) if lines == Lines::Odd && storage.bits() < 32 && (8193..=LINE / arrays).contains(&n) => {
                line(READ_ELEMENTS / arrays, n, 1)
            }
            // Half of what a block holds, or all registers of a multiprocessor are one row's.
            Machine::Gpu(arch) if arch.has_clusters() && ((SHARED / arrays).min(held + 1)..=BLOCKS * held / 2).contains(&n) => {
                lines.cluster(arrays, n, storage)
            }
            Machine::Gpu(arch) if n > held => Division::Pieces(Pieces::of(arrays, [count, n], storage, arch)),
            Machine::Gpu(_) | Machine::Cpu => Division::whole(n, storage, machine),
        }
    }

    /// The same where nothing else is read behind the last sum of a row, as weights are: clusters of the most blocks take rows that those of fewer
    /// cannot hold.
    pub(crate) fn alone(arrays: usize, [count, n]: [usize; 2], storage: DType, machine: Machine) -> Division {
        let part = held(storage.bits()) / arrays / 2;
        match machine {
            Machine::Gpu(_)
                if Lines::of(n, storage) == Lines::Odd && storage.bits() < 32 && (SHORT_LINE..=LINE / arrays).contains(&n) =>
            {
                line(LINE_ELEMENTS / arrays, n, 1)
            }
            // Two blocks, where one is all that a multiprocessor holds.
            Machine::Gpu(arch)
                if arch.has_clusters()
                    && storage.bits() == 16
                    && Lines::of(n, storage) == Lines::Ragged
                    && (SHARED / 2 / arrays + 1..SHARED / arrays).contains(&n) =>
            {
                Lines::Ragged.cluster(arrays, n, storage)
            }
            Machine::Gpu(arch)
                if arch.has_clusters()
                    && count >= MANY
                    && storage.bits() <= 32
                    && (BLOCKS * part + 1..=MOST_BLOCKS * part).contains(&n) =>
            {
                let held = MOST_HELD_BYTES * 8 / (storage.bits() as usize).max(32) / arrays;
                let warps = n.div_ceil(MOST_BLOCKS * Arch::WARP as usize * held).next_power_of_two();
                Division::Cluster { blocks: MOST_BLOCKS as u32, warps: warps as u32 }
            }
            Machine::Gpu(_) | Machine::Cpu => Division::of_several(arrays, [count, n], storage, machine),
        }
    }

    /// Rows that a block, or a cluster of them, takes whole at once; `None` of rows in pieces.
    pub(crate) fn rows(self) -> Option<usize> {
        match self {
            Division::Whole(rows) => Some(rows),
            Division::Cluster { .. } => Some(1),
            Division::Pieces(_) => None,
        }
    }

    /// The launch of a kernel for rows that are divided so.
    pub(crate) fn launch(self, kernel: &'static str, arguments: Vec<(&'static str, Argument)>, grid: [u32; 3]) -> LaunchSpec {
        let launch = LaunchSpec::new(kernel, arguments, grid);
        match self {
            Division::Cluster { blocks: 1, warps } => LaunchSpec { warps, ..launch },
            Division::Cluster { blocks, warps } => LaunchSpec { sharing: Sharing::Cluster, cluster: blocks, warps, ..launch },
            Division::Whole(_) | Division::Pieces(_) => launch,
        }
    }

    /// The grid for `count` rows.
    pub(crate) fn grid(self, count: usize) -> Result<[u32; 3], Unsupported> {
        match self {
            Division::Whole(rows) => grid(count, rows),
            Division::Cluster { .. } => grid(count, 1),
            Division::Pieces(pieces) => grid(count * pieces.count + pieces.behind, 1),
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

#[cfg(test)]
mod tests {
    use super::*;

    fn pieces(rows: usize, n: usize, storage: DType) -> Pieces {
        match Division::of(rows, n, storage, Machine::Gpu(Arch::Sm90a)) {
            Division::Pieces(pieces) => pieces,
            Division::Whole(_) | Division::Cluster { .. } => panic!("{rows} x {n} is taken whole"),
        }
    }

    #[test]
    fn every_piece_is_found_before_its_row_is_written() {
        for rows in [1, 2, 7, 64, 2048] {
            for n in [131_073, 300_000, 1 << 20, 3_000_000] {
                for storage in [DType::F32, DType::BF16, DType::F8E4M3, DType::F64] {
                    let pieces = pieces(rows, n, storage);
                    let total = rows * pieces.count;
                    assert!(pieces.size * pieces.count >= n && pieces.size * (pieces.count - 1) < n);
                    // No more than all are behind, and a row at least.
                    assert!((pieces.count..=total).contains(&pieces.behind), "{rows} x {n}: {pieces:?}");
                    let grid = Division::Pieces(pieces).grid(rows).unwrap();
                    assert_eq!(grid, [(total + pieces.behind) as u32, 1, 1]);
                }
            }
        }
    }

    #[test]
    fn rows_that_registers_hold_are_taken_whole() {
        let whole = |n, storage, arch| matches!(Division::of(9, n, storage, Machine::Gpu(arch)), Division::Whole(1));
        for arch in [Arch::Sm80, Arch::Sm90a] {
            assert!(whole(16384, DType::F64, arch) && !whole(16385, DType::F64, arch) && !whole(32769, DType::F8E4M3, arch));
        }
        assert!(whole(32768, DType::F32, Arch::Sm80) && whole(32767, DType::F32, Arch::Sm90a));
        assert_eq!(Division::of(9, 1 << 20, DType::F32, Machine::Cpu), Division::Whole(1));
    }

    #[test]
    fn clusters_take_rows_that_their_registers_hold() {
        let of = |n, storage, arch| Division::of(9, n, storage, Machine::Gpu(arch));
        let blocks = |n, storage| match of(n, storage, Arch::Sm90a) {
            Division::Cluster { blocks, .. } => blocks,
            other => panic!("{n} columns are {other:?}"),
        };
        let lengths = [32768, 33000, 65536, 66000, 1 << 17];
        assert_eq!(lengths.map(|n| blocks(n, DType::F32)), [8, 4, 8, 8, 8]);
        assert_eq!(lengths.map(|n| blocks(n, DType::F8E4M3)), [8, 1, 8, 8, 8]);
        assert_eq!(lengths.map(|n| blocks(n, DType::BF16)), [4, 4, 8, 8, 8]);
        // Where the last block has less, and where lines are no whole vectors.
        let cluster = |blocks, warps| Division::Cluster { blocks, warps };
        let found = [50304, 128_256, 50257, 16385].map(|n| of(n, DType::BF16, Arch::Sm90a));
        assert_eq!(found, [cluster(4, 8), cluster(8, 8), cluster(1, 16), cluster(1, 4)]);
        assert_eq!(of(50304, DType::F32, Arch::Sm90a), cluster(4, 16));
        let alone = |count, n| Division::alone(1, [count, n], DType::BF16, Machine::Gpu(Arch::Sm90a));
        assert_eq!(alone(64, 32000), cluster(2, 8));
        assert_eq!([1001, 4097, 16385].map(|n| alone(64, n)), [cluster(1, 1), cluster(1, 2), cluster(1, 8)]);
        assert_eq!(alone(64, 1 << 18), Division::Cluster { blocks: 16, warps: 8 });
        assert!([alone(8, 1 << 18), alone(64, (1 << 18) + 1)].iter().all(|found| matches!(found, Division::Pieces(_))));
        assert_eq!(alone(8, 1 << 17), of(1 << 17, DType::BF16, Arch::Sm90a));
        assert_eq!([16385, 20000, 1 << 16].map(|n| blocks(n, DType::F64)), [4, 8, 8]);
        assert!(matches!(of((1 << 16) + 1, DType::F64, Arch::Sm90a), Division::Pieces(_)));
        // There are no clusters.
        assert!(matches!(of(1 << 16, DType::F32, Arch::Sm80), Division::Pieces(_)));
        assert_eq!(Division::Cluster { blocks: 8, warps: 4 }.grid(9).unwrap(), [9, 1, 1]);
    }

    #[test]
    fn one_long_row_has_work_for_most_multiprocessors() {
        assert_eq!(pieces(1, 1 << 20, DType::BF16).count, 128);
        assert_eq!(pieces(1, 1 << 20, DType::F32).count, 256);
    }
}
