//! The round trip of a tile through shared memory: layout, vectors and swizzle that cost the fewest wavefronts.
//!
//! For each choice of the contiguous dimension and of the two vector widths the best swizzle is sought; where no swizzle is free of
//! conflicts, padding is tried too. The cheapest wins, then the smallest buffer, then the first in order. Example: a 64 x 64 f32 tile
//! transposed by 128 threads moves in 4-byte accesses behind `Swizzle<5,2,6>`, because 16-byte stores would force loads of degree 4.

use crate::LayoutError;
use crate::banks::{BANK_BYTES, BANKS, Conflicts, accesses, bank_conflicts, sum};
use crate::conversion::keeps_warps;
use crate::distribution::Distribution;
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
                let mut all = accesses(from, &plain, store, Some(1));
                all.extend(accesses(to, &plain, load, Some(1)));
                let limit = (plain.core().out_bits() as u32) + element_bytes.trailing_zeros();
                let (swizzle, _) = Swizzle::search(&all, limit);
                for layout in plain.swizzled(swizzle).into_iter().chain(padded(&plain, &order, store, load)) {
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
    Ok(best)
}

/// The layout with its rows apart by one vector more, where the core is all there is.
fn padded(plain: &SharedLayout, order: &[usize], store: &Vector, load: &Vector) -> Option<SharedLayout> {
    let elements = store.elements().max(load.elements()).max(4 / plain.element_bytes());
    if order.len() < 2 {
        return None;
    }
    SharedLayout::padded(plain.shape(), order, elements, plain.element_bytes()).ok()
}

/// What a layout costs, judged by the first instruction of each side.
fn measure(from: &Distribution, to: &Distribution, layout: SharedLayout, store: &Vector, load: &Vector) -> RoundTrip {
    let vector =
        |registers, wanted: &Vector| widest_shared_vector(registers, &layout, wanted.elements() * layout.element_bytes());
    let (store, load) = (vector(from, store), vector(to, load));
    let estimate = |registers, vector| sum(&accesses(registers, &layout, vector, Some(1)));
    let (store_conflicts, load_conflicts) = (estimate(from, &store), estimate(to, &load));
    RoundTrip { layout, store, load, store_conflicts, load_conflicts, within_warps: false }
}
