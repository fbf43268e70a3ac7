//! The round trip of a tile through shared memory: layout, vectors and swizzle that cost the fewest wavefronts.
//!
//! For each choice of the contiguous dimension and of the two vector widths the best swizzle is sought; where no swizzle is free of
//! conflicts, padding is tried too. The cheapest wins, then the smallest buffer, then the first in order. Example: a 64 x 64 f32 tile
//! that 128 threads hold along rows and want along columns, one element at a time, goes behind `Swizzle<5,2,6>` without a
//! conflict; with vectors of four on both sides it goes behind `Swizzle<3,4,6>`, stored in 16 bytes and loaded in 4 with degree 2.

use crate::LayoutError;
use crate::banks::{Access, BANK_BYTES, BANKS, Conflicts, accesses, bank_conflicts, sum};
use crate::conversion::keeps_warps;
use crate::distribution::Distribution;
use crate::matrix_access::{MatrixAccess, matrix_access, matrix_conflicts};
use crate::shared::SharedLayout;
use crate::swizzle::Swizzle;
use crate::vector::{Vector, widest_shared_vector};

/// How a tile goes through shared memory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RoundTrip {
    /// Where the elements lie in between.
    pub layout: SharedLayout,
    /// The registers of one store, of the source.
    pub store: Vector,
    /// The registers of one load, of the result.
    pub load: Vector,
    /// What a warp's stores cost.
    pub store_conflicts: Conflicts,
    /// What a warp's loads cost.
    pub load_conflicts: Conflicts,
    /// No element changes its warp: the warp's barrier suffices.
    pub within_warps: bool,
    /// `stmatrix` can store the source, without conflicts and with fewer instructions than `store`.
    pub store_matrices: Option<MatrixAccess>,
    /// `ldmatrix` can load the result, likewise.
    pub load_matrices: Option<MatrixAccess>,
}

impl RoundTrip {
    /// Wavefronts of a warp.
    pub fn wavefronts(&self) -> u64 {
        self.store_conflicts.wavefronts + self.load_conflicts.wavefronts
    }

    /// What decides between two round trips, most important first.
    fn cost(&self) -> (u64, u64, u64, u8) {
        let instructions = self.store_conflicts.instructions + self.load_conflicts.instructions;
        (self.wavefronts(), instructions, self.layout.bytes(), self.layout.swizzle().bits)
    }
}

/// The cheapest round trip.
///
/// # Errors
/// Shapes that differ; an element size that is no power of two.
pub fn round_trip(from: &Distribution, to: &Distribution, element_bytes: u64) -> Result<RoundTrip, LayoutError> {
    if from.shape() != to.shape() {
        return Err(LayoutError::Reshape);
    }
    let rank = from.rank();
    // A wavefront moves 128 bytes at most.
    let least = (from.registers() + to.registers()) * element_bytes.max(1) * crate::WARP / (BANKS * BANK_BYTES);
    let mut best: Option<RoundTrip> = None;
    for contiguous in (0..rank.max(1)).rev() {
        let mut order: Vec<usize> = (0..rank).rev().filter(|dim| *dim != contiguous).collect();
        if rank > 0 {
            order.insert(0, contiguous);
        }
        let plain = SharedLayout::boxed(from.shape(), &order, element_bytes)?;
        let widths = |registers: &Distribution| {
            let widest = widest_shared_vector(registers, &plain, 16);
            (0..=widest.bits.len())
                .rev()
                .map(|bits| widest.narrowed(1 << bits))
                .filter(|v| v.bits.is_empty() || v.elements() * element_bytes >= 4)
                .collect::<Vec<_>>()
        };
        let (stores, loads) = (widths(from), widths(to));
        'widths: for store in &stores {
            for load in &loads {
                for layout in candidates(&plain, &order, &[(from, store), (to, load)]) {
                    let found = measure(from, to, layout, store, load);
                    let done = found.wavefronts() <= least;
                    if best.as_ref().is_none_or(|best| found.cost() < best.cost()) {
                        best = Some(found);
                    }
                    if done {
                        break 'widths;
                    }
                }
            }
        }
    }
    let mut best = best.ok_or(LayoutError::NotCovered)?;
    best.store_conflicts = bank_conflicts(from, &best.layout, &best.store);
    best.load_conflicts = bank_conflicts(to, &best.layout, &best.load);
    best.within_warps = keeps_warps(from, to);
    best.store_matrices = matrices(from, &best.layout, best.store_conflicts);
    best.load_matrices = matrices(to, &best.layout, best.load_conflicts);
    Ok(best)
}

/// The layout of a buffer with several users, each moving the tile between these registers and shared memory in at most these vectors:
/// the swizzle with the fewest wavefronts, or rows padded by one vector where that has fewer. `order` lists the dimensions, fastest first.
///
/// # Errors
/// As [`SharedLayout::boxed`].
pub fn shared_for(
    shape: &[u64],
    order: &[usize],
    element_bytes: u64,
    users: &[(&Distribution, &Vector)],
) -> Result<SharedLayout, LayoutError> {
    let plain = SharedLayout::boxed(shape, order, element_bytes)?;
    let cost = |layout: &SharedLayout| {
        let one = |&(registers, vector): &(&Distribution, &Vector)| {
            let vector = widest_shared_vector(registers, layout, vector.elements() * element_bytes);
            bank_conflicts(registers, layout, &vector).wavefronts
        };
        (users.iter().map(one).sum::<u64>(), layout.bytes())
    };
    let best = candidates(&plain, order, users).min_by_key(cost);
    Ok(best.unwrap_or(plain))
}

/// The layout behind the best swizzle, and the one with its rows apart by one vector more.
fn candidates(plain: &SharedLayout, order: &[usize], users: &[(&Distribution, &Vector)]) -> impl Iterator<Item = SharedLayout> {
    let all: Vec<Access> = users.iter().flat_map(|(registers, vector)| accesses(registers, plain, vector, Some(1))).collect();
    let limit = plain.core().out_bits() as u32 + plain.element_bytes().trailing_zeros();
    let swizzled = plain.swizzled(Swizzle::search(&all, 1, limit).0);
    let widest = users.iter().map(|(_, vector)| vector.elements()).max().unwrap_or(1);
    let padding = widest.max(BANK_BYTES / plain.element_bytes());
    let padded = SharedLayout::padded(plain.shape(), order, padding, plain.element_bytes()).ok();
    swizzled.into_iter().chain(padded.filter(|_| order.len() > 1))
}

/// What a layout costs, judged by the first instruction of each side.
fn measure(from: &Distribution, to: &Distribution, layout: SharedLayout, store: &Vector, load: &Vector) -> RoundTrip {
    let vector =
        |registers, wanted: &Vector| widest_shared_vector(registers, &layout, wanted.elements() * layout.element_bytes());
    let (store, load) = (vector(from, store), vector(to, load));
    let estimate = |registers, vector| sum(&accesses(registers, &layout, vector, Some(1)));
    let (store_conflicts, load_conflicts) = (estimate(from, &store), estimate(to, &load));
    RoundTrip {
        layout,
        store,
        load,
        store_conflicts,
        load_conflicts,
        within_warps: false,
        store_matrices: None,
        load_matrices: None,
    }
}

/// Matrix moves where they beat the vectors.
fn matrices(registers: &Distribution, layout: &SharedLayout, vectors: Conflicts) -> Option<MatrixAccess> {
    let access = matrix_access(registers, layout)?;
    let conflicts = matrix_conflicts(registers, layout, &access);
    (conflicts.degree <= 1 && conflicts.instructions < vectors.instructions).then_some(access)
}
