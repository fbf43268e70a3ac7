//! Rows that are no whole vectors, taken by blocks that have those which begin alike among vectors.
//!
//! Rows of 5121 elements of 16 bits begin at any of the 8 places of a vector, and every eighth one at the same. A block that takes rows whose numbers are
//! a multiple of 8 apart has them in whole vectors, and what is common to rows, as weights, beside them: it is read once, as these rows lie
//! (`line-alignment` of the compiler). A block for each row would read weights in two vectors each, and shift them: rows of 8191 took 1.3 times as long.

use tessera_types::{Arch, DType};

use crate::operator::{Argument, LaunchSpec, Machine, Unsupported};
use crate::set::rows;

/// A block that takes rows of elements of 16 bits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Block {
    pub(crate) warps: usize,
    /// Elements of a row that each of its threads has at most.
    most: usize,
    /// Blocks that a multiprocessor holds of it.
    pub(crate) resident: usize,
    /// The next row is on its way meanwhile; else it is waited for, by more blocks.
    pub(crate) ahead: bool,
}

impl Block {
    pub(crate) const fn new(warps: usize, most: usize, resident: usize, ahead: bool) -> Block {
        Block { warps, most, resident, ahead }
    }

    /// The first of some blocks that holds rows of `n` elements; none where rows are whole vectors.
    pub(crate) fn of(blocks: &[Block], n: usize, storage: DType) -> Option<Block> {
        if storage.bits() != 16 || !rows::is_odd(n, storage) {
            return None;
        }
        let vector = vector(storage);
        // Where a row begins at the end of a vector, it has one more.
        let elements = |block: &Block| (n + vector - 1).div_ceil(Arch::WARP as usize * block.warps * vector) * vector;
        blocks.iter().copied().find(|block| elements(block) <= block.most)
    }
}

/// Elements of the widest access of a thread.
fn vector(storage: DType) -> usize {
    rows::VECTOR_BITS / storage.bits() as usize
}

/// How far rows of a block that begin alike are apart, where so many blocks take all of them.
pub(crate) fn apart(blocks: usize, storage: DType) -> usize {
    blocks / vector(storage) * vector(storage)
}

/// How rows are taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Alike {
    block: Block,
    /// Rows from one of a block's to the next one.
    step: usize,
}

/// Columns that are worth a block for each row.
const SHORT: usize = 512;

impl Alike {
    /// By the first of some blocks that holds rows of `n` elements; none where rows are whole vectors or short, nor where sums take 64 bits.
    pub(crate) fn of(blocks: &[Block], n: usize, (storage, acc): (DType, DType), machine: Machine) -> Option<Alike> {
        let Machine::Gpu(arch) = machine else { return None };
        let block = Block::of(blocks, n, storage).filter(|_| acc.bits() <= 32 && n >= SHORT)?;
        Some(Alike { block, step: apart(block.resident * arch.multiprocessors() as usize, storage) })
    }

    /// The launch of a kernel for so many rows, which is told how far apart they are.
    pub(crate) fn launch(
        self,
        kernel: &'static str,
        mut arguments: Vec<(&'static str, Argument)>,
        count: usize,
    ) -> Result<LaunchSpec, Unsupported> {
        let Block { warps, resident, ahead, .. } = self.block;
        arguments.extend([("STEP", rows::int(self.step)), ("AHEAD", Argument::Bool(ahead))]);
        let launch = LaunchSpec::new(kernel, arguments, rows::grid(count.min(self.step), 1)?);
        Ok(LaunchSpec { warps: warps as u32, resident: resident as u32, ..launch })
    }
}
