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
        spread(shape, order, warp_order, None, vector, threads)
    }

    /// A tile that is written in vectors along another dimension than the fastest: a thread has a block, `vector` elements along the fastest
    /// dimension and up to as many along `across`, and where it has fewer of these, the next lanes complete the vector.
    ///
    /// ```text
    /// 64 x 64, fastest dimension 1, across dimension 0, vectors of 8, 128 threads (32 elements each):
    /// <reg=[1..4@1, 1..2@0], lane=[4@0, 8..32@1, 8@0], warp=[16..32@0]>
    /// ```
    ///
    /// # Errors
    /// See [`Distribution::blocked`].
    pub fn turned(shape: &[u64], order: &[usize], across: usize, vector: u64, threads: u64) -> Result<Distribution, LayoutError> {
        spread(shape, order, order, Some(across), vector, threads)
    }
}

fn spread(
    shape: &[u64],
    order: &[usize],
    warp_order: &[usize],
    across: Option<usize>,
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
        if let Some(across) = across.filter(|&across| across < rank && across != fastest) {
            let whole = (1 << shape[across].trailing_zeros()).min(1 << vector.max(1).ilog2());
            let each = (shape.iter().product::<u64>() / threads.max(1) / size).max(1);
            let own = whole.min(1 << each.ilog2());
            let lanes = (whole / own).min(WARP);
            core = core.product(&LinearLayout::identity(Axis::Register, own, across, rank));
            core = core.product(&LinearLayout::identity(Axis::Lane, lanes, across, rank));
        }
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn turned_tiles_are_blocks_whose_lanes_complete_vectors() {
        let basis = |layout: &Distribution, axis, bit| layout.core().basis(axis, bit).to_vec();
        let whole = Distribution::turned(&[128, 128], &[1, 0], 0, 4, 512).expect("a layout");
        assert_eq!([basis(&whole, Axis::Register, 1), basis(&whole, Axis::Register, 3)], [[0, 2], [2, 0]]);
        assert_eq!([basis(&whole, Axis::Lane, 0), basis(&whole, Axis::Lane, 4)], [[0, 4], [0, 64]]);
        let part = Distribution::turned(&[64, 64], &[1, 0], 0, 8, 128).expect("a layout");
        assert_eq!([basis(&part, Axis::Register, 2), basis(&part, Axis::Register, 4)], [[0, 4], [2, 0]]);
        assert_eq!([basis(&part, Axis::Lane, 0), basis(&part, Axis::Lane, 1)], [[4, 0], [0, 8]]);
        for layout in [whole, part] {
            assert!(!layout.has_copies() && !layout.has_holes());
        }
    }
}
