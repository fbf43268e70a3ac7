//! Rows that are no whole vectors, taken by blocks that have those which begin alike among vectors.
//!
//! Rows of 5121 elements of 16 bits begin at any of the 8 places of a vector, and every eighth one at the same. A block that takes rows whose numbers are
//! a multiple of 8 apart has them in whole vectors, and what is common to rows, as weights, beside them: it is read once, as these rows lie
//! (`line-alignment` of the compiler). A block for each row would read weights in two vectors each, and shift them: rows of 8191 took 1.3 times as long.

use tessera_types::{Arch, DType};

use crate::operator::{Argument, LaunchSpec, Machine, Unsupported};
use crate::set::rows;

/// A block that takes rows of elements of 16 bits.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Block {
    warps: usize,
    /// Elements of a row that each of its threads has at most.
    most: usize,
    /// Blocks that a multiprocessor holds of it.
    resident: usize,
    /// The next row is on its way meanwhile; else it is waited for, by more blocks.
    ahead: bool,
}

impl Block {
    pub(crate) const fn new(warps: usize, most: usize, resident: usize, ahead: bool) -> Block {
        Block { warps, most, resident, ahead }
    }
}

/// How rows are taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Alike {
    warps: usize,
    resident: usize,
    ahead: bool,
    /// Rows from one of a block's to the next one.
    step: usize,
}

/// Columns that are worth a block for each row.
const SHORT: usize = 512;

impl Alike {
    /// By the first of some blocks that holds rows of `n` elements; none where rows are whole vectors or short, nor where sums take 64 bits.
    pub(crate) fn of(blocks: &[Block], n: usize, (storage, acc): (DType, DType), machine: Machine) -> Option<Alike> {
        let bits = storage.bits() as usize;
        let Machine::Gpu(arch) = machine else { return None };
        if bits != 16 || acc.bits() > 32 || !rows::is_odd(n, storage) || n < SHORT {
            return None;
        }
        let vector = rows::VECTOR_BITS / bits;
        // Where a row begins at the end of a vector, it has one more.
        let elements = |warps: usize| (n + vector - 1).div_ceil(Arch::WARP as usize * warps * vector) * vector;
        let &Block { warps, resident, ahead, .. } = blocks.iter().find(|block| elements(block.warps) <= block.most)?;
        let blocks = resident * arch.multiprocessors() as usize;
        Some(Alike { warps, resident, ahead, step: blocks / vector * vector })
    }

    /// The launch of a kernel for so many rows, which is told how far apart they are.
    pub(crate) fn launch(
        self,
        kernel: &'static str,
        mut arguments: Vec<(&'static str, Argument)>,
        count: usize,
    ) -> Result<LaunchSpec, Unsupported> {
        arguments.extend([("STEP", rows::int(self.step)), ("AHEAD", Argument::Bool(self.ahead))]);
        let launch = LaunchSpec::new(kernel, arguments, rows::grid(count.min(self.step), 1)?);
        Ok(LaunchSpec { warps: self.warps as u32, resident: self.resident as u32, ..launch })
    }
}
