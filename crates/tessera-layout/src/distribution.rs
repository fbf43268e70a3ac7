//! [`Distribution`]: how a tile lies over the threads of a block or role, what the types of Tile IR carry.
//!
//! A distribution is a *core*, a [`LinearLayout`] over registers, lanes and warps, plus a repeat count for each dimension. The core
//! covers a power-of-two box; the tile is covered by as many boxes as it takes, `ceil(shape / core extent)` along each dimension.
//! An odd factor lives only there: 96 columns are three cores of 32. A thread's registers enumerate the repeats outermost
//! (row-major over dimensions), the core's registers innermost.
//!
//! **Holes.** Extents need not be multiples of the core: what a register stands for outside the tile is a *hole*. It exists in the
//! register file, its value means nothing, and [`element`](Distribution::element) gives `None` for it. Readers of memory mask holes
//! off, elementwise operations compute on them, reductions replace them by the neutral element, nothing else looks at them.
//!
//! **Copies.** An element may have several owners: where a basis is zero, or depends on others, all of them hold the same value.
//! [`primary_masks`](Distribution::primary_masks) picks one owner each, for stores and atomics. The number of warps may be any; when it is not a
//! power of two the core has bits for the next one, and what only missing warps would own has to be holes or copies.
//!
//! Invariants: `lane` has 32 indices; every element of the tile has an owner; a repeat count is even only where an odd one of a
//! later dimension lies inside it (`new` folds the others into the core, which changes no register's meaning), so that equal maps
//! are equal values.
//!
//! Text form (without the shape, which the tile's type states): `<reg=[1..4@1, 16@0], lane=[8@1, 1..8@0], warp=[32..64@0]>`.

use std::sync::Arc;

use smallvec::SmallVec;

use crate::LayoutError;
use crate::linear::{Axis, Dims, LinearLayout};
use crate::matrix::{Columns, apply};

/// Threads of a warp.
pub const WARP: u64 = 32;

/// The most elements a tile may have: 2^MOST_BITS.
const MOST_BITS: usize = 24;

/// A tile's layout over threads and registers; see the module's head. Cheap to clone.
#[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Distribution(Arc<Inner>);

#[derive(PartialEq, Eq, Hash, PartialOrd, Ord)]
struct Inner {
    shape: Dims,
    core: LinearLayout,
    warps: u64,
}

/// One owner of an element.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Owner {
    /// Thread of the block or role: `32 * warp + lane`.
    pub thread: u64,
    /// Register of that thread, counted in elements.
    pub register: u64,
}

impl Distribution {
    /// A tile of `shape` covered by repetitions of `core` on `warps` warps.
    ///
    /// # Errors
    /// A core that uses other axes than registers, 32 lanes and (the next power of two of) `warps` warps, that leaves elements
    /// without an owner, or whose rank differs; an extent of zero; more than 2^24 elements.
    pub fn new(shape: &[u64], core: LinearLayout, warps: u64) -> Result<Distribution, LayoutError> {
        if shape.len() != core.rank() {
            return Err(LayoutError::Rank { expected: shape.len(), found: core.rank() });
        }
        if shape.contains(&0) || warps == 0 {
            return Err(LayoutError::Empty);
        }
        let warp_bits = warps.checked_next_power_of_two().map_or(64, u64::trailing_zeros) as usize;
        let only_threads = core.size(Axis::Block) == 1 && core.size(Axis::Offset) == 1;
        if !only_threads || core.size(Axis::Lane) != WARP || core.bits(Axis::Warp) != warp_bits || warp_bits > 10 {
            return Err(LayoutError::Axes);
        }
        let rounded = shape.iter().map(|extent| extent.checked_next_power_of_two().map_or(64, u64::trailing_zeros) as usize);
        if rounded.sum::<usize>() > MOST_BITS || core.out_bits() > MOST_BITS || core.in_bits() > MOST_BITS + 15 {
            return Err(LayoutError::TooLarge);
        }
        let core = fold_repeats(shape, core);
        let echelon = core.echelon();
        if echelon.rank() != core.out_bits() {
            return Err(LayoutError::NotCovered);
        }
        if !warps.is_power_of_two() && !owned_by(&core, shape, warps) {
            return Err(LayoutError::NotCovered);
        }
        Ok(Distribution(Arc::new(Inner { shape: shape.into(), core, warps })))
    }

    /// Every thread holds the whole tile, in row-major order: scalars and small uniform tiles.
    ///
    /// # Errors
    /// An extent of zero, threads not a positive multiple of 32.
    pub fn replicated(shape: &[u64], threads: u64) -> Result<Distribution, LayoutError> {
        let rank = shape.len();
        let mut core = LinearLayout::unit(rank);
        for dim in (0..rank).rev() {
            let size = if shape[dim].is_multiple_of(2) { 1 << shape[dim].trailing_zeros() } else { 1 };
            core = core.product(&LinearLayout::identity(Axis::Register, size, dim, rank));
        }
        let warps = warps_of(threads)?;
        core = core.product(&LinearLayout::replicated(Axis::Lane, WARP, rank));
        Distribution::new(shape, core.product(&LinearLayout::replicated(Axis::Warp, warps, rank)), warps)
    }

    /// Extents of the tile.
    pub fn shape(&self) -> &[u64] {
        &self.0.shape
    }

    /// Number of dimensions.
    pub fn rank(&self) -> usize {
        self.0.shape.len()
    }

    /// The layout of one core box.
    pub fn core(&self) -> &LinearLayout {
        &self.0.core
    }

    /// How many cores cover a dimension.
    pub fn repeat(&self, dim: usize) -> u64 {
        self.0.shape[dim].div_ceil(self.0.core.extent(dim))
    }

    /// How many cores cover each dimension.
    pub fn repeats(&self) -> Dims {
        (0..self.rank()).map(|dim| self.repeat(dim)).collect()
    }

    /// Elements that each thread holds, holes and copies among them.
    pub fn registers(&self) -> u64 {
        self.0.core.size(Axis::Register) * self.repeats().iter().product::<u64>()
    }

    /// Warps of the block or role.
    pub fn warps(&self) -> u64 {
        self.0.warps
    }

    /// Threads of the block or role.
    pub fn threads(&self) -> u64 {
        self.0.warps * WARP
    }

    /// Elements of the tile.
    pub fn elements(&self) -> u64 {
        self.0.shape.iter().product()
    }

    /// The register of the core, and the first coordinate of the repetition, of a register.
    fn locate(&self, register: u64) -> (u64, Dims) {
        let size = self.0.core.size(Axis::Register);
        let (mut repetition, mut origin) = (register / size, Dims::from_elem(0, self.rank()));
        for dim in (0..self.rank()).rev() {
            let count = self.repeat(dim);
            origin[dim] = repetition % count * self.0.core.extent(dim);
            repetition /= count;
        }
        (register % size, origin)
    }

    /// Where a register of a thread points, holes included (`None` only outside of [`registers`](Self::registers) and
    /// [`threads`](Self::threads)).
    pub fn position(&self, register: u64, thread: u64) -> Option<Dims> {
        if register >= self.registers() || thread >= self.threads() {
            return None;
        }
        let (register, mut position) = self.locate(register);
        let index = [(Axis::Register, register), (Axis::Lane, thread % WARP), (Axis::Warp, thread / WARP)];
        for (value, inner) in position.iter_mut().zip(self.0.core.apply(&index)) {
            *value += inner;
        }
        Some(position)
    }

    /// Where each register of a thread points, in order, holes included; none outside of [`threads`](Self::threads).
    pub fn positions(&self, thread: u64) -> Vec<Dims> {
        if thread >= self.threads() {
            return Vec::new();
        }
        let core = &self.0.core;
        let own = core.apply_packed(core.pack_input(&[(Axis::Lane, thread % WARP), (Axis::Warp, thread / WARP)]));
        let bases = core.packed_bases(Axis::Register);
        let inner: Vec<Dims> = (0..core.size(Axis::Register)).map(|register| core.unpack(own ^ apply(bases, register))).collect();
        let mut positions = Vec::with_capacity(self.registers() as usize);
        for repetition in 0..self.registers() / inner.len() as u64 {
            let (_, origin) = self.locate(repetition * inner.len() as u64);
            positions.extend(
                inner.iter().map(|inner| inner.iter().zip(&origin).map(|(inner, origin)| inner + origin).collect::<Dims>()),
            );
        }
        positions
    }

    /// Whether a position is an element of the tile, not a hole.
    pub fn holds(&self, position: &[u64]) -> bool {
        position.iter().zip(&self.0.shape).all(|(value, extent)| value < extent)
    }

    /// The element in a register of a thread; `None` for a hole.
    pub fn element(&self, register: u64, thread: u64) -> Option<Dims> {
        self.position(register, thread).filter(|position| self.holds(position))
    }

    /// Every register that holds an element, in order of threads; empty outside the tile.
    pub fn owners(&self, coordinates: &[u64]) -> Vec<Owner> {
        let core = &self.0.core;
        if coordinates.len() != self.rank() || !self.holds(coordinates) {
            return Vec::new();
        }
        let repetition = (0..self.rank()).fold(0, |all, dim| all * self.repeat(dim) + coordinates[dim] / core.extent(dim));
        let inner: Dims = (0..self.rank()).map(|dim| coordinates[dim] % core.extent(dim)).collect();
        let echelon = core.echelon();
        let Some(first) = echelon.solve(core.pack(&inner)) else { return Vec::new() };
        let mut owners = Vec::new();
        for choice in 0..1u64 << echelon.kernel().len() {
            let index = first ^ apply(echelon.kernel(), choice);
            let warp = core.unpack_input(index, Axis::Warp);
            if warp < self.0.warps {
                let register = repetition * core.size(Axis::Register) + core.unpack_input(index, Axis::Register);
                owners.push(Owner { thread: warp * WARP + core.unpack_input(index, Axis::Lane), register });
            }
        }
        owners.sort_unstable();
        owners
    }

    /// Bits of the core's register index and of the thread index that are zero in exactly one owner of each element:
    /// a store predicated by `register & .0 == 0 && thread & .1 == 0` writes every element once.
    pub fn primary_masks(&self) -> (u64, u64) {
        let core = &self.0.core;
        let dependent = core.echelon().dependent();
        let thread = core.unpack_input(dependent, Axis::Lane) + core.unpack_input(dependent, Axis::Warp) * WARP;
        (core.unpack_input(dependent, Axis::Register), thread)
    }

    /// The register and thread is the one owner that stores the element (holes are nobody's).
    pub fn is_primary(&self, register: u64, thread: u64) -> bool {
        let (registers, threads) = self.primary_masks();
        (register % self.0.core.size(Axis::Register)) & registers == 0 && thread & threads == 0
    }

    /// Some element has more than one owner.
    pub fn has_copies(&self) -> bool {
        !self.0.core.is_injective()
    }

    /// Some register of some thread is a hole.
    pub fn has_holes(&self) -> bool {
        (0..self.rank()).any(|dim| self.repeat(dim) * self.0.core.extent(dim) != self.0.shape[dim])
    }

    /// Which bits of registers (of the core), lanes and warps move along a dimension, as masks. A reduction along it combines the
    /// registers first, then shuffles over the lane bits, then goes through shared memory for the warp bits.
    pub fn along(&self, dim: usize) -> Along {
        let core = &self.0.core;
        let within = (core.extent(dim) - 1) << core.shift(dim);
        let mask = |axis| {
            let bases = core.packed_bases(axis).iter().enumerate();
            bases.filter(|(_, basis)| **basis & within != 0).fold(0, |mask, (bit, _)| mask | 1 << bit)
        };
        let pure = core.columns().iter().all(|basis| basis & within == 0 || basis & !within == 0);
        Along {
            registers: mask(Axis::Register),
            lanes: mask(Axis::Lane),
            warps: mask(Axis::Warp),
            repeat: self.repeat(dim),
            pure,
        }
    }
}

/// How a dimension lies over the hardware; see [`Distribution::along`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Along {
    /// Bits of the core's register index.
    pub registers: u64,
    /// Bits of the lane.
    pub lanes: u64,
    /// Bits of the warp.
    pub warps: u64,
    /// Repetitions of the core.
    pub repeat: u64,
    /// No basis moves along this dimension and another at once.
    pub pure: bool,
}

/// Warps of a thread count.
pub(crate) fn warps_of(threads: u64) -> Result<u64, LayoutError> {
    if threads == 0 || !threads.is_multiple_of(WARP) { Err(LayoutError::Empty) } else { Ok(threads / WARP) }
}

/// Every element of the tile has an owner among the first `warps` warps.
fn owned_by(core: &LinearLayout, shape: &[u64], warps: u64) -> bool {
    let echelon = core.echelon();
    // The lowest warp that owns a coordinate is linear in it.
    let owner = |bit: usize| echelon.solve(1 << bit).map(|index| core.unpack_input(index, Axis::Warp));
    let Some(owners) = (0..core.out_bits()).map(owner).collect::<Option<Columns>>() else { return false };
    if owners.iter().fold(0, |all, warp| all | warp) < warps {
        return true;
    }
    (0..1u64 << core.out_bits()).all(|packed| {
        let outside = || core.unpack(packed).iter().zip(shape).any(|(value, extent)| value >= extent);
        apply(&owners, packed) < warps || outside()
    })
}

/// The power-of-two parts of the innermost repeats, as register bits of the core.
fn fold_repeats(shape: &[u64], mut core: LinearLayout) -> LinearLayout {
    for dim in (0..shape.len()).rev() {
        while shape[dim].div_ceil(core.extent(dim)).is_multiple_of(2) {
            core = core.product(&LinearLayout::identity(Axis::Register, 2, dim, shape.len()));
        }
        if shape[dim] > core.extent(dim) {
            break;
        }
    }
    core
}

/// Extents as the small vector that layouts use.
pub(crate) fn dims(extents: impl IntoIterator<Item = u64>) -> Dims {
    SmallVec::from_iter(extents)
}
