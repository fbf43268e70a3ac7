//! [`LinearLayout`]: a linear map over F2 from hardware indices to the coordinates of a tensor.
//!
//! An input is an [`Axis`] with a power-of-two size; an output is a dimension with a power-of-two extent. Each input bit has a
//! *basis*, the coordinates it stands for; the coordinates of an index are the XOR of the bases of its set bits. Example: the
//! accumulator of `mma.sync.m16n8` gives lane 5 (bits 0 and 2), register 2 (bit 1) the coordinates (0,2) ^ (1,0) ^ (8,0) = (9,2):
//!
//! | bit   | reg 0 | reg 1 | lane 0 | lane 1 | lane 2 | lane 3 | lane 4 |
//! |-------|-------|-------|--------|--------|--------|--------|--------|
//! | basis | (0,1) | (8,0) | (0,2)  | (0,4)  | (1,0)  | (2,0)  | (4,0)  |
//!
//! Such a layout is a [product](LinearLayout::product) of identities, inner first:
//! `id(reg,2,dim 1) x id(lane,4,dim 1) x id(lane,8,dim 0) x id(reg,2,dim 0)`.
//!
//! Coordinates are kept packed into a `u64`, the last dimension in the lowest bits, so that a packed coordinate is the row-major
//! index of the element and [`reshape`](LinearLayout::reshape) changes labels only. Inputs are packed likewise in the order of
//! [`Axis`], registers lowest. A basis of zero is *free*: the elements are replicated along it.

use std::fmt;

use smallvec::SmallVec;

use crate::LayoutError;
use crate::matrix::{Columns, Echelon, apply};

/// Coordinates or extents, one number a dimension.
pub type Dims = SmallVec<[u64; 4]>;

/// What an input index counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Axis {
    /// An element held by one thread.
    Register,
    /// A thread of a warp.
    Lane,
    /// A warp of the block or role.
    Warp,
    /// A block of the cluster.
    Block,
    /// An element of shared memory.
    Offset,
}

impl Axis {
    /// Every axis, in packing order (the first in the lowest bits).
    pub const ALL: [Axis; 5] = [Axis::Register, Axis::Lane, Axis::Warp, Axis::Block, Axis::Offset];

    /// The name used in text.
    pub fn name(self) -> &'static str {
        match self {
            Axis::Register => "reg",
            Axis::Lane => "lane",
            Axis::Warp => "warp",
            Axis::Block => "block",
            Axis::Offset => "offset",
        }
    }
}

/// A linear map over F2 from input axes to coordinates; see the module's head.
#[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct LinearLayout {
    /// log2 of each axis' size, in [`Axis`] order.
    inputs: [u8; 5],
    /// log2 of each dimension's extent.
    dims: SmallVec<[u8; 4]>,
    /// Packed coordinates of each input bit, axes one after the other.
    bases: Columns,
}

/// The exponent of a power of two.
pub(crate) fn log2(size: u64) -> Result<u8, LayoutError> {
    if size.is_power_of_two() { Ok(size.trailing_zeros() as u8) } else { Err(LayoutError::NotPowerOfTwo { size }) }
}

impl LinearLayout {
    /// The layout of one element: no inputs, every extent 1.
    pub fn unit(rank: usize) -> LinearLayout {
        LinearLayout { inputs: [0; 5], dims: SmallVec::from_elem(0, rank), bases: Columns::new() }
    }

    /// `axis` counts along `dim`. `size` is a power of two (the next one is taken otherwise).
    pub fn identity(axis: Axis, size: u64, dim: usize, rank: usize) -> LinearLayout {
        LinearLayout::strided(axis, size, 1, dim, rank)
    }

    /// `axis` counts along `dim` in steps of `stride`; both are powers of two. The extent is `size * stride`: for a stride above
    /// one the coordinates in between are not reached.
    pub fn strided(axis: Axis, size: u64, stride: u64, dim: usize, rank: usize) -> LinearLayout {
        let (bits, shift) = (size.next_power_of_two().trailing_zeros(), stride.next_power_of_two().trailing_zeros());
        let mut layout = LinearLayout::unit(rank);
        layout.inputs[axis as usize] = bits as u8;
        layout.dims[dim] = (bits + shift) as u8;
        layout.bases = (shift..shift + bits).map(|bit| 1 << bit).collect();
        layout
    }

    /// `axis` counts copies of one element: `size` (a power of two) free indices.
    pub fn replicated(axis: Axis, size: u64, rank: usize) -> LinearLayout {
        let mut layout = LinearLayout::unit(rank);
        let bits = size.next_power_of_two().trailing_zeros();
        layout.inputs[axis as usize] = bits as u8;
        layout.bases = SmallVec::from_elem(0, bits as usize);
        layout
    }

    /// A layout from the coordinates of each input bit.
    ///
    /// # Errors
    /// Extents that are not powers of two, coordinates outside them or of another rank, an axis named twice, more than 64 bits.
    pub fn from_bases(extents: &[u64], bases: &[(Axis, Vec<Dims>)]) -> Result<LinearLayout, LayoutError> {
        let mut layout = LinearLayout::unit(extents.len());
        for (dim, &extent) in extents.iter().enumerate() {
            layout.dims[dim] = log2(extent)?;
        }
        if layout.out_bits() > 63 || bases.iter().map(|(_, list)| list.len()).sum::<usize>() > 63 {
            return Err(LayoutError::TooLarge);
        }
        for axis in Axis::ALL {
            let mut lists = bases.iter().filter(|(named, _)| *named == axis);
            let Some((_, list)) = lists.next() else { continue };
            if lists.next().is_some() {
                return Err(LayoutError::AxisTwice { axis: axis.name() });
            }
            layout.inputs[axis as usize] = list.len() as u8;
            for coordinates in list {
                if coordinates.len() != extents.len() {
                    return Err(LayoutError::Rank { expected: extents.len(), found: coordinates.len() });
                }
                if let Some((&value, &extent)) = coordinates.iter().zip(extents).find(|(value, extent)| value >= extent) {
                    return Err(LayoutError::OutOfRange { value, extent });
                }
                let packed = layout.pack(coordinates);
                layout.bases.push(packed);
            }
        }
        Ok(layout)
    }

    /// A layout of the same inputs' kind from packed parts; the caller keeps the invariants.
    pub(crate) fn from_packed(inputs: [u8; 5], dims: SmallVec<[u8; 4]>, bases: Columns) -> LinearLayout {
        debug_assert_eq!(inputs.iter().map(|&bits| usize::from(bits)).sum::<usize>(), bases.len());
        LinearLayout { inputs, dims, bases }
    }

    /// Number of dimensions.
    pub fn rank(&self) -> usize {
        self.dims.len()
    }

    /// Extent of a dimension.
    pub fn extent(&self, dim: usize) -> u64 {
        1 << self.dims[dim]
    }

    /// Extents of all dimensions.
    pub fn extents(&self) -> Dims {
        self.dims.iter().map(|&bits| 1 << bits).collect()
    }

    /// Size of an input axis (1 when the layout lacks it).
    pub fn size(&self, axis: Axis) -> u64 {
        1 << self.bits(axis)
    }

    /// log2 of an axis' size.
    pub fn bits(&self, axis: Axis) -> usize {
        usize::from(self.inputs[axis as usize])
    }

    /// Number of input bits.
    pub fn in_bits(&self) -> usize {
        self.bases.len()
    }

    /// Number of output bits.
    pub fn out_bits(&self) -> usize {
        self.dims.iter().map(|&bits| usize::from(bits)).sum()
    }

    /// Position of an axis' first bit in a packed input.
    pub fn start(&self, axis: Axis) -> usize {
        self.inputs[..axis as usize].iter().map(|&bits| usize::from(bits)).sum()
    }

    /// Position of a dimension's first bit in packed coordinates.
    pub fn shift(&self, dim: usize) -> usize {
        self.dims[dim + 1..].iter().map(|&bits| usize::from(bits)).sum()
    }

    pub(crate) fn inputs(&self) -> [u8; 5] {
        self.inputs
    }

    /// Coordinates packed into one number, the row-major index.
    pub fn pack(&self, coordinates: &[u64]) -> u64 {
        coordinates.iter().zip(&self.dims).fold(0, |packed, (&value, &bits)| packed << bits | (value & ((1 << bits) - 1)))
    }

    /// The inverse of [`pack`](Self::pack).
    pub fn unpack(&self, mut packed: u64) -> Dims {
        let mut coordinates: Dims = SmallVec::from_elem(0, self.rank());
        for (value, &bits) in coordinates.iter_mut().zip(&self.dims).rev() {
            *value = packed & ((1 << bits) - 1);
            packed >>= bits;
        }
        coordinates
    }

    /// Packed coordinates of every bit of an axis.
    pub fn packed_bases(&self, axis: Axis) -> &[u64] {
        &self.bases[self.start(axis)..self.start(axis) + self.bits(axis)]
    }

    /// Packed coordinates of every input bit, in packing order.
    pub fn columns(&self) -> &[u64] {
        &self.bases
    }

    /// Coordinates of one bit of an axis.
    pub fn basis(&self, axis: Axis, bit: usize) -> Dims {
        self.unpack(self.packed_bases(axis)[bit])
    }

    /// Coordinates of an index; axes not named are at 0.
    pub fn apply(&self, index: &[(Axis, u64)]) -> Dims {
        self.unpack(self.apply_packed(self.pack_input(index)))
    }

    /// Packed coordinates of a packed index.
    pub fn apply_packed(&self, index: u64) -> u64 {
        apply(&self.bases, index)
    }

    /// An index packed into one number; axes not named are at 0.
    pub fn pack_input(&self, index: &[(Axis, u64)]) -> u64 {
        index.iter().fold(0, |packed, &(axis, value)| packed | (value & (self.size(axis) - 1)) << self.start(axis))
    }

    /// The part of a packed index that belongs to an axis.
    pub fn unpack_input(&self, packed: u64, axis: Axis) -> u64 {
        packed >> self.start(axis) & (self.size(axis) - 1)
    }

    pub(crate) fn echelon(&self) -> Echelon {
        Echelon::new(&self.bases)
    }

    /// Every coordinate is reached.
    pub fn is_surjective(&self) -> bool {
        self.echelon().rank() == self.out_bits()
    }

    /// No two indices have the same coordinates.
    pub fn is_injective(&self) -> bool {
        self.echelon().rank() == self.in_bits()
    }

    /// The bits of an axis whose basis is zero, as a mask.
    pub fn free(&self, axis: Axis) -> u64 {
        self.packed_bases(axis).iter().enumerate().filter(|(_, basis)| **basis == 0).fold(0, |mask, (bit, _)| mask | 1 << bit)
    }

    /// The direct product: `self` repeated in the pattern of `outer`. Where both have an axis, `self` has its low bits; where both
    /// extend along a dimension, `outer` counts in multiples of `self`'s extent. The product is associative, and its unit is
    /// [`unit`](Self::unit).
    pub fn product(&self, outer: &LinearLayout) -> LinearLayout {
        assert_eq!(self.rank(), outer.rank(), "a product of layouts of one rank");
        let dims: SmallVec<[u8; 4]> = self.dims.iter().zip(&outer.dims).map(|(inner, outer)| inner + outer).collect();
        let target = LinearLayout { inputs: [0; 5], dims: dims.clone(), bases: Columns::new() };
        let mut inputs = [0; 5];
        let mut bases = Columns::new();
        for axis in Axis::ALL {
            inputs[axis as usize] = self.inputs[axis as usize] + outer.inputs[axis as usize];
            bases.extend(self.packed_bases(axis).iter().map(|&basis| target.pack(&self.unpack(basis))));
            bases.extend(outer.packed_bases(axis).iter().map(|&basis| {
                let mut coordinates = outer.unpack(basis);
                for (value, &bits) in coordinates.iter_mut().zip(&self.dims) {
                    *value <<= bits;
                }
                target.pack(&coordinates)
            }));
        }
        LinearLayout { inputs, dims, bases }
    }

    /// `self` first, `after` second: the packed coordinates of `self` are the packed input of `after`.
    ///
    /// # Errors
    /// `after` has fewer input bits than `self` has output bits.
    pub fn compose(&self, after: &LinearLayout) -> Result<LinearLayout, LayoutError> {
        if after.in_bits() < self.out_bits() {
            return Err(LayoutError::Compose { outputs: self.out_bits(), inputs: after.in_bits() });
        }
        let bases = self.bases.iter().map(|&basis| after.apply_packed(basis)).collect();
        Ok(LinearLayout { inputs: self.inputs, dims: after.dims.clone(), bases })
    }

    /// The inverse of a bijective layout: [`Axis::Offset`] is the packed coordinate, the dimensions are the axes, from
    /// [`Axis::Offset`] down to [`Axis::Register`], so that `layout.compose(&inverse)` maps every packed index to itself.
    pub fn invert(&self) -> Option<LinearLayout> {
        if self.in_bits() != self.out_bits() { None } else { self.right_inverse() }
    }

    /// For each coordinate one index that maps to it (the smallest, free bits at 0), in the form of [`invert`](Self::invert);
    /// `None` when some coordinate is not reached.
    pub fn right_inverse(&self) -> Option<LinearLayout> {
        let echelon = self.echelon();
        let bases: Option<Columns> = (0..self.out_bits()).map(|bit| echelon.solve(1 << bit)).collect();
        let mut inputs = [0; 5];
        inputs[Axis::Offset as usize] = self.out_bits() as u8;
        Some(LinearLayout { inputs, dims: self.inputs.iter().rev().copied().collect(), bases: bases? })
    }

    /// The outer factor: `tile.product(&factor) == self`.
    pub fn divide_left(&self, tile: &LinearLayout) -> Option<LinearLayout> {
        if self.rank() != tile.rank() || self.dims.iter().zip(&tile.dims).any(|(all, inner)| all < inner) {
            return None;
        }
        let dims: SmallVec<[u8; 4]> = self.dims.iter().zip(&tile.dims).map(|(all, inner)| all - inner).collect();
        let target = LinearLayout { inputs: [0; 5], dims: dims.clone(), bases: Columns::new() };
        let mut inputs = [0; 5];
        let mut bases = Columns::new();
        for axis in Axis::ALL {
            let (all, inner) = (self.packed_bases(axis), tile.packed_bases(axis));
            if all.len() < inner.len() || all.iter().zip(inner).any(|(a, b)| self.unpack(*a) != tile.unpack(*b)) {
                return None;
            }
            inputs[axis as usize] = (all.len() - inner.len()) as u8;
            for &basis in &all[inner.len()..] {
                let mut coordinates = self.unpack(basis);
                for (value, &bits) in coordinates.iter_mut().zip(&tile.dims) {
                    if *value & ((1 << bits) - 1) != 0 {
                        return None;
                    }
                    *value >>= bits;
                }
                bases.push(target.pack(&coordinates));
            }
        }
        Some(LinearLayout { inputs, dims, bases })
    }

    /// The layout without `axis` and without the coordinate bits that `axis` alone decides; `None` unless each bit of `axis` stands
    /// for one coordinate bit that no other input touches. The quotient by warps is what one warp sees.
    pub fn quotient(&self, axis: Axis) -> Option<LinearLayout> {
        let taken = self.packed_bases(axis).iter().fold(0, |mask, basis| mask | basis);
        if taken.count_ones() as usize != self.bits(axis) || self.packed_bases(axis).iter().any(|basis| !basis.is_power_of_two())
        {
            return None;
        }
        let keep: SmallVec<[usize; 16]> = (0..self.out_bits()).filter(|bit| taken & 1 << bit == 0).collect();
        let mut dims = self.dims.clone();
        for (dim, bits) in dims.iter_mut().enumerate() {
            let mask = ((1u64 << *bits) - 1) << self.shift(dim);
            *bits -= (taken & mask).count_ones() as u8;
        }
        let mut inputs = self.inputs;
        inputs[axis as usize] = 0;
        let mut bases = Columns::new();
        for other in Axis::ALL.into_iter().filter(|other| *other != axis) {
            for &basis in self.packed_bases(other) {
                if basis & taken != 0 {
                    return None;
                }
                bases.push(keep.iter().enumerate().fold(0, |packed, (to, from)| packed | (basis >> from & 1) << to));
            }
        }
        Some(LinearLayout { inputs, dims, bases })
    }

    /// Dimension `d` of the result is dimension `order[d]` of `self`.
    pub fn permute(&self, order: &[usize]) -> LinearLayout {
        self.map_dims(order.iter().map(|&dim| self.dims[dim]).collect(), |coordinates| {
            order.iter().map(|&dim| coordinates[dim]).collect()
        })
    }

    /// The same elements in row-major order under other extents of the same product.
    ///
    /// # Errors
    /// Extents that are not powers of two or whose product differs.
    pub fn reshape(&self, extents: &[u64]) -> Result<LinearLayout, LayoutError> {
        let dims = extents.iter().map(|&extent| log2(extent)).collect::<Result<SmallVec<[u8; 4]>, _>>()?;
        let out = dims.iter().map(|&bits| usize::from(bits)).sum::<usize>();
        if out != self.out_bits() {
            return Err(LayoutError::Reshape);
        }
        Ok(LinearLayout { inputs: self.inputs, dims, bases: self.bases.clone() })
    }

    /// A dimension of extent 1 put in before dimension `dim`.
    pub fn expand(&self, dim: usize) -> LinearLayout {
        let mut layout = self.clone();
        layout.dims.insert(dim, 0);
        layout
    }

    /// The layout without a dimension: indices that differed in it only become copies of one another.
    pub fn slice(&self, dim: usize) -> LinearLayout {
        let mut dims = self.dims.clone();
        dims.remove(dim);
        self.map_dims(dims, |coordinates| {
            let mut coordinates: Dims = coordinates.into();
            coordinates.remove(dim);
            coordinates
        })
    }

    /// The layout with some bits of an axis only (those set in `mask`), the others at 0.
    pub fn restrict(&self, axis: Axis, mask: u64) -> LinearLayout {
        let mut inputs = self.inputs;
        let mut bases = Columns::new();
        for other in Axis::ALL {
            let kept = self.packed_bases(other).iter().enumerate().filter(|(bit, _)| other != axis || mask & 1 << bit != 0);
            let before = bases.len();
            bases.extend(kept.map(|(_, basis)| *basis));
            inputs[other as usize] = (bases.len() - before) as u8;
        }
        LinearLayout { inputs, dims: self.dims.clone(), bases }
    }

    /// The layout under other extents, coordinates mapped by a linear function.
    fn map_dims(&self, dims: SmallVec<[u8; 4]>, map: impl Fn(&[u64]) -> Dims) -> LinearLayout {
        let target = LinearLayout { inputs: [0; 5], dims, bases: Columns::new() };
        let bases = self.bases.iter().map(|&basis| target.pack(&map(&self.unpack(basis)))).collect();
        LinearLayout { inputs: self.inputs, dims: target.dims, bases }
    }
}

impl fmt::Debug for LinearLayout {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{self}")
    }
}
