//! The layout of global memory accesses: neighbouring threads read neighbouring vectors.
//!
//! Bits are handed out in order: the vector along the fastest dimension, then lanes, then warps, each along the dimensions from the
//! fastest on, then registers for what is left. A dimension with an odd factor takes lanes beyond its power-of-two part only while
//! at most an eighth of the covered elements would be holes (7 vectors get 8 lanes; 3 get 1 and stay a repeat of 3). Lanes and
//! warps that find no place then take the odd parts after all, with holes, and what is still left holds copies.
//!
//! ```text
//! 128 x 64, fastest dimension 1, vectors of 8, 128 threads:
//! <reg=[1..4@1, 16..64@0], lane=[8..32@1, 1..2@0], warp=[4..8@0]>
//! ```

use crate::LayoutError;
use crate::distribution::{Distribution, WARP, warps_of};
use crate::linear::{Axis, LinearLayout};

impl Distribution {
    /// A tile over `threads` threads for accesses of `vector` elements along the fastest dimension. `order` lists all dimensions,
    /// fastest first. A vector that does not divide the extent is narrowed to one that does.
    ///
    /// # Errors
    /// An extent of zero, threads not a positive multiple of 32, an `order` that is no permutation of the dimensions.
    pub fn blocked(shape: &[u64], order: &[usize], vector: u64, threads: u64) -> Result<Distribution, LayoutError> {
        Distribution::blocked_warps(shape, order, order, vector, threads)
    }

    /// The same with an order of dimensions of its own for the warps.
    ///
    /// # Errors
    /// See [`Distribution::blocked`].
    pub fn blocked_warps(
        shape: &[u64],
        order: &[usize],
        warp_order: &[usize],
        vector: u64,
        threads: u64,
    ) -> Result<Distribution, LayoutError> {
        let rank = shape.len();
        let mut seen = 0u64;
        for &dim in order {
            seen |= 1u64.checked_shl(dim as u32).unwrap_or(0);
        }
        if order.len() != rank || warp_order.len() != rank || seen != (1 << rank) - 1 {
            return Err(LayoutError::Rank { expected: rank, found: order.len() });
        }
        if shape.contains(&0) {
            return Err(LayoutError::Empty);
        }
        let warps = warps_of(threads)?;
        let mut core = LinearLayout::unit(rank);
        if let Some(&fastest) = order.first() {
            let size = (1 << shape[fastest].trailing_zeros()).min(1 << vector.max(1).ilog2());
            core = LinearLayout::identity(Axis::Register, size, fastest, rank);
        }
        // A number of warps that is no power of two cannot be spread: the largest power of two within it is, the rest are copies.
        let axes = [(Axis::Lane, WARP.ilog2() as usize, order), (Axis::Warp, warps.ilog2() as usize, warp_order)];
        for limit in [Waste::Eighth, Waste::Any] {
            for (axis, bits, order) in axes {
                for &dim in order {
                    while core.bits(axis) < bits && may_double(shape[dim], core.extent(dim), limit) {
                        core = core.product(&LinearLayout::identity(axis, 2, dim, rank));
                    }
                }
            }
        }
        core = core.product(&LinearLayout::replicated(Axis::Lane, WARP >> core.bits(Axis::Lane), rank));
        let copies = warps.next_power_of_two() >> core.bits(Axis::Warp);
        core = core.product(&LinearLayout::replicated(Axis::Warp, copies, rank));
        for &dim in order {
            while shape[dim].div_ceil(core.extent(dim)).is_multiple_of(2) {
                core = core.product(&LinearLayout::identity(Axis::Register, 2, dim, rank));
            }
        }
        Distribution::new(shape, core, warps)
    }
}

/// How much of what a dimension covers may be holes.
#[derive(Clone, Copy)]
pub(crate) enum Waste {
    /// At most an eighth.
    Eighth,
    /// Whatever it takes.
    Any,
}

/// Doubling what the core covers of a dimension leaves something useful for every index.
pub(crate) fn may_double(extent: u64, covered: u64, limit: Waste) -> bool {
    let all = extent.div_ceil(2 * covered) * 2 * covered;
    extent > covered
        && match limit {
            Waste::Eighth => 7 * all <= 8 * extent,
            Waste::Any => true,
        }
}
