//! [`SharedLayout`]: where the elements of a tile lie in shared memory.
//!
//! Like a distribution it is a core, a bijective [`LinearLayout`] from [`Axis::Offset`] to coordinates, swizzle included, repeated
//! along each dimension: the offset of an element is that of its place within the core plus `pitch` for each core before it. Odd
//! extents, padding and the slabs of a swizzled operand are all pitches. Example: 128 x 96 bf16 behind the TMA's 64-byte swizzle is
//! three slabs of 32 columns, each 128 rows of 64 bytes: core 128 x 32, pitch 128 * 32 elements along dimension 1.
//!
//! Offsets count from the buffer's start, which has the [`alignment`](SharedLayout::alignment) that a swizzle asks for.

use smallvec::SmallVec;

use crate::LayoutError;
use crate::blocked::{Waste, may_double};
use crate::distribution::dims;
use crate::linear::{Axis, Dims, LinearLayout, log2};
use crate::swizzle::Swizzle;

/// A tile in shared memory; see the module's head.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct SharedLayout {
    shape: Dims,
    core: LinearLayout,
    inverse: LinearLayout,
    /// Elements from one core to the next along each dimension.
    pitch: Dims,
    element_bytes: u64,
    swizzle: Swizzle,
}

impl SharedLayout {
    /// A layout from its parts: `core` maps [`Axis::Offset`] (in elements) to coordinates one to one.
    ///
    /// # Errors
    /// A core that is not such a map, element sizes that are no power of two, ranks that differ.
    pub fn new(shape: &[u64], core: LinearLayout, pitch: &[u64], element_bytes: u64) -> Result<SharedLayout, LayoutError> {
        log2(element_bytes)?;
        if shape.len() != core.rank() || pitch.len() != shape.len() {
            return Err(LayoutError::Rank { expected: shape.len(), found: pitch.len().min(core.rank()) });
        }
        if core.bits(Axis::Offset) != core.in_bits() {
            return Err(LayoutError::Axes);
        }
        if shape.contains(&0) {
            return Err(LayoutError::Empty);
        }
        let inverse = core.invert().ok_or(LayoutError::NotCovered)?;
        let (shape, pitch) = (dims(shape.iter().copied()), dims(pitch.iter().copied()));
        Ok(SharedLayout { shape, core, inverse, pitch, element_bytes, swizzle: Swizzle::NONE })
    }

    /// Elements one after the other, the dimensions of `order` from the fastest on, without gaps.
    ///
    /// # Errors
    /// As [`new`](Self::new); an `order` that is no permutation.
    pub fn dense(shape: &[u64], order: &[usize], element_bytes: u64) -> Result<SharedLayout, LayoutError> {
        SharedLayout::padded(shape, order, 0, element_bytes)
    }

    /// As [`dense`](Self::dense) with `padding` elements after each run of the fastest dimension.
    ///
    /// # Errors
    /// As [`dense`](Self::dense).
    pub fn padded(shape: &[u64], order: &[usize], padding: u64, element_bytes: u64) -> Result<SharedLayout, LayoutError> {
        check_order(shape, order)?;
        let rank = shape.len();
        let mut core = LinearLayout::unit(rank);
        let mut pitch = Dims::from_elem(0, rank);
        let (mut next, mut linear) = (1, true);
        for (i, &dim) in order.iter().enumerate() {
            let inside = if linear && shape[dim] > 0 { 1 << shape[dim].trailing_zeros() } else { 1 };
            core = core.product(&LinearLayout::identity(Axis::Offset, inside, dim, rank));
            pitch[dim] = next * inside;
            next *= shape[dim];
            if i == 0 {
                next += padding;
            }
            linear &= inside == shape[dim] && (i > 0 || padding == 0);
        }
        SharedLayout::new(shape, core, &pitch, element_bytes)
    }

    /// A layout made to be swizzled: a power-of-two core that holds as much of each dimension as leaves at most an eighth of it
    /// unused, the cores one after the other.
    ///
    /// # Errors
    /// As [`dense`](Self::dense).
    pub fn boxed(shape: &[u64], order: &[usize], element_bytes: u64) -> Result<SharedLayout, LayoutError> {
        check_order(shape, order)?;
        let rank = shape.len();
        let mut core = LinearLayout::unit(rank);
        for &dim in order {
            while may_double(shape[dim], core.extent(dim), Waste::Eighth) {
                core = core.product(&LinearLayout::identity(Axis::Offset, 2, dim, rank));
            }
        }
        let mut next = 1 << core.out_bits();
        let mut pitch = Dims::from_elem(0, rank);
        for &dim in order {
            pitch[dim] = next;
            next *= shape[dim].div_ceil(core.extent(dim));
        }
        SharedLayout::new(shape, core, &pitch, element_bytes)
    }

    /// A matrix in slabs of `span` bytes along `contiguous`, each slab holding all rows (rounded up to 8), one row after the other:
    /// what the TMA writes, box by box, and `wgmma` reads. `swizzle` is one of the TMA's, whose span is `span`, or none; without a
    /// swizzle a span of 16 bytes gives the core matrices of `wgmma`.
    ///
    /// # Errors
    /// Another rank than 2; rows that are no multiple of the span; a swizzle of another span.
    pub fn slabs(
        shape: [u64; 2],
        contiguous: usize,
        span: u64,
        swizzle: Swizzle,
        element_bytes: u64,
    ) -> Result<SharedLayout, LayoutError> {
        if contiguous > 1 {
            return Err(LayoutError::Rank { expected: 2, found: contiguous });
        }
        let wide = 1 << log2(span)?.saturating_sub(log2(element_bytes)?);
        if swizzle.span().is_some_and(|swizzled| swizzled != span) || !shape[contiguous].is_multiple_of(wide) {
            return Err(LayoutError::NoInstruction {
                what: format!("slabs of {span} bytes of rows of {} bytes with {swizzle}", shape[contiguous] * element_bytes),
            });
        }
        let other = 1 - contiguous;
        let rows = shape[other].next_multiple_of(8);
        let inside = 1u64 << rows.trailing_zeros();
        let core = LinearLayout::identity(Axis::Offset, wide, contiguous, 2);
        let core = core.product(&LinearLayout::identity(Axis::Offset, inside, other, 2));
        let mut pitch = [0; 2];
        pitch[contiguous] = wide * rows;
        pitch[other] = wide * inside;
        let layout = SharedLayout::new(&shape, core, &pitch, element_bytes)?;
        layout.swizzled(swizzle).ok_or(LayoutError::NotCovered)
    }

    /// What a TMA box load leaves: with a swizzle, slabs of its span (one box each); without, the rows one after the other.
    ///
    /// # Errors
    /// As [`slabs`](Self::slabs).
    pub fn tma(shape: [u64; 2], contiguous: usize, swizzle: Swizzle, element_bytes: u64) -> Result<SharedLayout, LayoutError> {
        match swizzle.span() {
            Some(span) => SharedLayout::slabs(shape, contiguous, span, swizzle, element_bytes),
            None if contiguous == 1 => SharedLayout::dense(&shape, &[1, 0], element_bytes),
            None => SharedLayout::dense(&shape, &[0, 1], element_bytes),
        }
    }

    /// The layout with its offsets swizzled; `None` when the swizzle splits an element, reaches beyond the core, or pitches are not
    /// multiples of what it reaches, so that it would not be the same in each core.
    pub fn swizzled(&self, swizzle: Swizzle) -> Option<SharedLayout> {
        if swizzle.bits == 0 {
            return Some(self.clone());
        }
        let element = self.element_bytes.trailing_zeros();
        let reach = swizzle.reach().checked_sub(element)?;
        let repeated = |dim: &usize| self.shape[*dim] > self.core.extent(*dim);
        let fits = u32::from(swizzle.base) >= element
            && swizzle.shift >= swizzle.bits
            && reach as usize <= self.core.out_bits()
            && (0..self.rank()).filter(repeated).all(|dim| self.pitch[dim].is_multiple_of(1 << reach));
        if !fits || self.swizzle.bits != 0 {
            return None;
        }
        // The element at an offset is the one that lay at the swizzled offset: a swizzle undoes itself.
        let column = |bit: usize| self.core.apply_packed(swizzle.apply(1 << (bit + element as usize)) >> element);
        let columns = (0..self.core.in_bits()).map(column).collect();
        let dims: SmallVec<[u8; 4]> = self.core.extents().iter().map(|extent| extent.trailing_zeros() as u8).collect();
        let core = LinearLayout::from_packed(self.core.inputs(), dims, columns);
        let inverse = core.invert()?;
        Some(SharedLayout { core, inverse, swizzle, ..self.clone() })
    }

    /// Extents of the tile.
    pub fn shape(&self) -> &[u64] {
        &self.shape
    }

    /// Number of dimensions.
    pub fn rank(&self) -> usize {
        self.shape.len()
    }

    /// The linear part: offsets in elements to coordinates.
    pub fn core(&self) -> &LinearLayout {
        &self.core
    }

    /// Elements from one core to the next along each dimension.
    pub fn pitch(&self) -> &[u64] {
        &self.pitch
    }

    /// Bytes of an element.
    pub fn element_bytes(&self) -> u64 {
        self.element_bytes
    }

    /// The swizzle that the core contains.
    pub fn swizzle(&self) -> Swizzle {
        self.swizzle
    }

    /// Alignment of the buffer in bytes.
    pub fn alignment(&self) -> u64 {
        self.swizzle.alignment()
    }

    /// The offset, in elements, of a place within the core, and that of the core that holds it.
    pub(crate) fn split_offset(&self, coordinates: &[u64]) -> (u64, u64) {
        let (mut inner, mut outer) = (Dims::new(), 0);
        for (dim, &value) in coordinates.iter().enumerate() {
            inner.push(value % self.core.extent(dim));
            outer += value / self.core.extent(dim) * self.pitch[dim];
        }
        (self.inverse.apply_packed(self.core.pack(&inner)), outer)
    }

    /// Byte offset of an element.
    pub fn offset(&self, coordinates: &[u64]) -> u64 {
        let (inner, outer) = self.split_offset(coordinates);
        (inner + outer) * self.element_bytes
    }

    /// Bytes of the buffer.
    pub fn bytes(&self) -> u64 {
        let last: u64 = (0..self.rank()).map(|dim| (self.shape[dim].div_ceil(self.core.extent(dim)) - 1) * self.pitch[dim]).sum();
        (last + (1 << self.core.out_bits())) * self.element_bytes
    }

    /// Every core begins at bank 0 and fills whole rows of banks, so that shifting an access changes no conflict.
    pub(crate) fn is_aligned_to_banks(&self) -> bool {
        let row = 128;
        let repeated = (0..self.rank()).filter(|dim| self.shape[*dim] > self.core.extent(*dim));
        repeated.into_iter().all(|dim| (self.pitch[dim] * self.element_bytes).is_multiple_of(row))
    }
}

fn check_order(shape: &[u64], order: &[usize]) -> Result<(), LayoutError> {
    let mut sorted: Vec<usize> = order.to_vec();
    sorted.sort_unstable();
    if sorted.into_iter().eq(0..shape.len()) {
        Ok(())
    } else {
        Err(LayoutError::Rank { expected: shape.len(), found: order.len() })
    }
}
