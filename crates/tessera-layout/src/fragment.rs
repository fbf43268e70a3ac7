//! What the threads of a matrix instruction hold: operands and results of `mma.sync` and `wgmma`.
//!
//! All of them follow one pattern. A 32-bit register packs `p` neighbouring elements along the contraction (A, B: 2 of 16 bits, 4 of
//! 8 bits, 1 of 32 or 64 bits) or two results along n; four lanes lie side by side along it; eight groups of four lanes lie along
//! the other dimension; further registers step 8 rows, then further along the contraction or n. The four warps of a `wgmma` lie
//! along m. For 16-bit elements and k = 16:
//!
//! ```text
//! A [m, k]: id(reg,2,k) x id(lane,4,k) x id(lane,8,m) x id(reg,2,m) x id(reg,2,k)
//! B [k, n]: id(reg,2,k) x id(lane,4,k) x id(lane,8,n) x id(reg,2,k)
//! C [m, n]: id(reg,2,n) x id(lane,4,n) x id(lane,8,m) x id(reg,2,m)
//! ```
//!
//! Of a left factor that is stored by half (2:4) threads hold words beside it, one for each 32 columns of a row, that say where its elements stand: the
//! four lanes of a row have the words of two neighbouring instructions, each of them in two lanes, of which one gives the lower half of its word.
//!
//! ```text
//! words [m, k / 32]: copies(lane,2) x id(lane,2,k) x id(lane,8,m) x id(reg,2,m)
//! ```
//!
//! A tile is covered by a grid of warps, each one instruction, then by repeats: registers enumerate instructions row-major, so
//! that the registers of one instruction are neighbours, in the order in which the PTX ISA lists them.

use crate::LayoutError;
use crate::distribution::{Distribution, WARP};
use crate::linear::{Axis, LinearLayout};

/// One side of a matrix product.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Operand {
    /// The left factor, a tile `[m, k]`.
    A,
    /// The right factor, a tile `[k, n]`.
    B,
    /// The accumulator or result, a tile `[m, n]`.
    C,
}

/// How the warps of a block or role share a product: `m * n` warps, warp `i + m * j` at row `i`, column `j`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct WarpGrid {
    /// Warps along m (a multiple of 4 for `wgmma`: a warpgroup is four warps along m).
    pub m: u64,
    /// Warps along n.
    pub n: u64,
}

impl WarpGrid {
    /// Warps in all.
    pub fn warps(self) -> u64 {
        self.m * self.n
    }
}

/// The shape of one matrix instruction.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct MmaAtom {
    /// Rows of the result.
    pub m: u64,
    /// Columns of the result.
    pub n: u64,
    /// Length of the contraction.
    pub k: u64,
    /// Width of an element of A and B.
    pub bits: u64,
    /// Warps that execute it together: 1, or 4 for `wgmma`.
    pub warps: u64,
}

/// Shapes of `mma.sync` (m, n, k, bits of A and B).
const SYNC: &[(u64, u64, u64, u64)] = &[
    (16, 8, 8, 16),
    (16, 8, 16, 16),
    (16, 8, 4, 32),
    (16, 8, 8, 32),
    (16, 8, 16, 8),
    (16, 8, 32, 8),
    (16, 8, 32, 4),
    (16, 8, 64, 4),
    (8, 8, 4, 64),
    (16, 8, 4, 64),
    (16, 8, 8, 64),
    (16, 8, 16, 64),
];

impl MmaAtom {
    /// The `mma.sync` of a shape.
    ///
    /// # Errors
    /// There is no such instruction.
    pub fn sync(m: u64, n: u64, k: u64, bits: u64) -> Result<MmaAtom, LayoutError> {
        if SYNC.contains(&(m, n, k, bits)) {
            Ok(MmaAtom { m, n, k, bits, warps: 1 })
        } else {
            Err(LayoutError::NoInstruction { what: format!("mma.sync m{m}n{n}k{k} of {bits}-bit elements") })
        }
    }

    /// The `wgmma` with `n` columns: m is 64, k is 32 bytes of contraction.
    ///
    /// # Errors
    /// `n` is not a multiple of 8 from 8 to 256, or elements are not 8, 16 or 32 bits wide.
    pub fn wgmma(n: u64, bits: u64) -> Result<MmaAtom, LayoutError> {
        if n == 0 || n > 256 || !n.is_multiple_of(8) || ![8, 16, 32].contains(&bits) {
            return Err(LayoutError::NoInstruction { what: format!("wgmma m64n{n} of {bits}-bit elements") });
        }
        Ok(MmaAtom { m: 64, n, k: 256 / bits, bits, warps: 4 })
    }

    /// What one instruction's threads hold of an operand. The number of columns of a `wgmma` accumulator may have an odd factor; the
    /// layout then covers the power of two in it and is repeated.
    ///
    /// # Errors
    /// B of `wgmma`, which lies in shared memory always.
    pub fn fragment(&self, operand: Operand) -> Result<LinearLayout, LayoutError> {
        let register = |size, dim| LinearLayout::identity(Axis::Register, size, dim, 2);
        let lane = |size, dim| LinearLayout::identity(Axis::Lane, size, dim, 2);
        let packed = (32 / self.bits).max(1);
        let (inner, across) = match operand {
            Operand::A | Operand::C => (1, 0),
            Operand::B => (0, 1),
        };
        let first = match operand {
            Operand::A | Operand::B => packed,
            Operand::C => 2,
        };
        let quads = register(first, inner).product(&lane(4, inner)).product(&lane(8, across));
        let rows = register((self.m / self.warps) / 8, 0);
        let steps = self.k / (4 * packed);
        let warp = match operand {
            Operand::A => quads.product(&rows).product(&register(steps, 1)),
            Operand::B if self.warps == 1 => quads.product(&register(steps, 0)),
            Operand::B => return Err(LayoutError::NoInstruction { what: "wgmma with B in registers".to_string() }),
            Operand::C => quads.product(&rows).product(&register(1 << (self.n / 8).trailing_zeros(), 1)),
        };
        Ok(warp.product(&LinearLayout::identity(Axis::Warp, self.warps, 0, 2)))
    }

    /// What one warp's or warpgroup's threads hold of the words that say where a left factor stored by half stands; of tiles with an odd number of
    /// words a row, all four lanes of a row hold the one word of an instruction.
    pub fn place_words(&self, words: u64) -> LinearLayout {
        let across = match words.is_multiple_of(2) {
            true => LinearLayout::identity(Axis::Lane, 2, 1, 2),
            false => LinearLayout::replicated(Axis::Lane, 2, 2),
        };
        LinearLayout::replicated(Axis::Lane, 2, 2)
            .product(&across)
            .product(&LinearLayout::identity(Axis::Lane, 8, 0, 2))
            .product(&LinearLayout::identity(Axis::Register, (self.m / self.warps) / 8, 0, 2))
            .product(&LinearLayout::identity(Axis::Warp, self.warps, 0, 2))
    }

    /// The layout of the words `[m, k / 32]` that say where the elements of a left factor stand that is stored by half: see the module's head.
    ///
    /// # Errors
    /// As [`operand`](Self::operand).
    pub fn places(&self, shape: [u64; 2], grid: WarpGrid) -> Result<Distribution, LayoutError> {
        self.check(grid)?;
        let core = self
            .place_words(shape[1])
            .product(&LinearLayout::identity(Axis::Warp, (grid.m / self.warps).next_power_of_two(), 0, 2))
            .product(&LinearLayout::replicated(Axis::Warp, grid.n.next_power_of_two(), 2));
        Distribution::new(&shape, core, grid.warps())
    }

    fn check(&self, grid: WarpGrid) -> Result<(), LayoutError> {
        if grid.m == 0 || grid.n == 0 || !grid.m.is_multiple_of(self.warps) || (grid.n > 1 && !grid.m.is_power_of_two()) {
            return Err(LayoutError::NoInstruction { what: format!("a grid of {} x {} warps", grid.m, grid.n) });
        }
        Ok(())
    }

    /// The layout of an operand's whole tile over a grid of warps: `[m, k]` for A, `[k, n]` for B, `[m, n]` for C. Warps that share
    /// an operand hold copies. Odd numbers of warps are possible along the last dimension of the grid that has more than one.
    ///
    /// # Errors
    /// As [`fragment`](Self::fragment); a grid whose m is no multiple of the instruction's warps; a tile that the grid cannot share.
    pub fn operand(&self, operand: Operand, shape: [u64; 2], grid: WarpGrid) -> Result<Distribution, LayoutError> {
        self.check(grid)?;
        let warps = |size: u64, dim| LinearLayout::identity(Axis::Warp, size, dim, 2);
        let copies = |size: u64| LinearLayout::replicated(Axis::Warp, size, 2);
        let (m, n) = ((grid.m / self.warps).next_power_of_two(), grid.n.next_power_of_two());
        let fragment = self.fragment(operand)?;
        let core = match operand {
            Operand::A => fragment.product(&warps(m, 0)).product(&copies(n)),
            Operand::B => fragment.product(&copies(m)).product(&warps(n, 1)),
            Operand::C => fragment.product(&warps(m, 0)).product(&warps(n, 1)),
        };
        debug_assert_eq!(core.size(Axis::Lane), WARP);
        Distribution::new(&shape, core, grid.warps())
    }
}
