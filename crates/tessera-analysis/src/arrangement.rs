//! How the elements of a buffer in shared memory, or of a part of one, lie from its first byte on: what the lowering makes addresses of,
//! and what bank conflicts are computed from.
//!
//! ```text
//! shared<64x32xf32, pad=4>                 strides 36, 1
//! entry 2 of shared<4x64x32xf32>           strides 32, 1, beginning 16384 bytes in
//! shared<64x128xbf16, swizzle=<3,4,3>>     two slabs of 64 columns; addresses mixed
//! ```

use smallvec::SmallVec;
use tessera_ir::{Shape, SharedType, Swizzle, bug, collapsed_axes};
use tessera_layout::{Axis, Distribution, LinearLayout, MatrixAccess, SharedLayout, matrix_access, wavefronts};
use tessera_types::DType;

/// Bytes that the device's memory moves at least.
const SECTOR: u64 = 32;

/// A buffer's elements in memory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Arrangement {
    /// Distance of neighbours along each axis, in elements, before swizzling.
    pub strides: SmallVec<[u64; 4]>,
    /// How addresses are mixed.
    pub swizzle: Swizzle,
    /// Extents.
    pub shape: Shape,
    /// Element type.
    pub elem: DType,
    /// Alignment of the element at index zero in bytes.
    pub align: u64,
    /// How the fastest axis is cut where its lines are longer than what the swizzle mixes.
    pub slabs: Option<Slabs>,
}

/// Lines longer than a swizzle's span lie in slabs, one behind the other, as the copy engine writes and the tensor cores read
/// them: a slab has the first elements of all lines, the next slab the next ones.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Slabs {
    /// The axis that is cut.
    pub axis: usize,
    /// Elements of a line in one slab.
    pub elements: u64,
    /// Bytes from a slab to the next.
    pub stride: u64,
}

impl Slabs {
    /// A block of elements begins within a slab and leaves it.
    fn are_crossed(self, offsets: &[u32], shape: &[u32]) -> bool {
        let (first, extent) = (u64::from(offsets[self.axis]), u64::from(shape[self.axis]));
        !first.is_multiple_of(self.elements) && first % self.elements + extent > self.elements
    }
}

impl Arrangement {
    /// That of a whole buffer, which is aligned to 16 bytes at least.
    pub fn of(ty: &SharedType) -> Arrangement {
        let mut strides = ty.strides();
        let mut slabs = None;
        let bytes = ty.elem.unpacked_bytes() as u64;
        if let (Some(span), [.., lines, fastest]) = (engine_span(ty.swizzle), ty.order.as_slice()) {
            let (lines, fastest) = (*lines as usize, *fastest as usize);
            let line = u64::from(ty.shape[fastest]) * bytes;
            if line > span && line.is_multiple_of(span) && ty.pad == 0 {
                strides[lines] = span / bytes;
                slabs = Some(Slabs { axis: fastest, elements: span / bytes, stride: span * u64::from(ty.shape[lines]) });
            }
        }
        Arrangement { strides, swizzle: ty.swizzle, shape: ty.shape.clone(), elem: ty.elem, align: 16, slabs }
    }

    /// Bytes of an element.
    pub fn element_bytes(&self) -> u64 {
        self.elem.unpacked_bytes() as u64
    }

    /// Bytes from the first element to the one at these coordinates, before swizzling.
    pub fn offset(&self, coordinates: &[u64]) -> u64 {
        let bytes = self.element_bytes();
        let along = |(axis, (&coordinate, &stride)): (usize, (&u64, &u64))| match self.slabs {
            Some(slabs) if slabs.axis == axis => {
                coordinate / slabs.elements * slabs.stride + coordinate % slabs.elements * stride * bytes
            }
            _ => coordinate * stride * bytes,
        };
        coordinates.iter().zip(&self.strides).enumerate().map(along).sum()
    }

    /// Bytes between entries of the first axis.
    pub fn entry_bytes(&self) -> u64 {
        self.strides[0] * self.element_bytes()
    }

    /// An entry of the first axis.
    pub fn entry(mut self) -> Arrangement {
        self.align = self.align.min(1 << self.entry_bytes().trailing_zeros());
        self.strides.remove(0);
        self.shape.remove(0);
        self.slabs = self.slabs.map(|slabs| Slabs { axis: slabs.axis.saturating_sub(1), ..slabs });
        self
    }

    /// A block at some offsets, and the bytes before it; `None` where it begins within a line's slab and leaves that.
    pub fn block(mut self, offsets: &[u32], shape: &[u32]) -> Option<(Arrangement, u64)> {
        if self.slabs.is_some_and(|slabs| slabs.are_crossed(offsets, shape)) {
            return None;
        }
        let corner: SmallVec<[u64; 4]> = offsets.iter().map(|&offset| u64::from(offset)).collect();
        let start = self.offset(&corner);
        self.align = if start == 0 { self.align } else { self.align.min(1 << start.trailing_zeros()) };
        self.shape = shape.into();
        Some((self, start))
    }

    /// The same memory under reordered axes.
    pub fn permuted(mut self, permutation: &[u32]) -> Arrangement {
        self.strides = permutation.iter().map(|&axis| self.strides[axis as usize]).collect();
        self.shape = permutation.iter().map(|&axis| self.shape[axis as usize]).collect();
        let axis_of = |old: usize| {
            let place = permutation.iter().position(|&axis| axis as usize == old);
            place.unwrap_or_else(|| bug!("a permutation without axis {old}"))
        };
        self.slabs = self.slabs.map(|slabs| Slabs { axis: axis_of(slabs.axis), ..slabs });
        self
    }

    /// The same memory with neighbouring axes as one; `None` where they do not lie one behind the other, as in slabs of lines.
    pub fn collapsed(mut self, shape: &[u32]) -> Option<Arrangement> {
        let dense = |axis: usize| self.strides[axis - 1] == self.strides[axis] * u64::from(self.shape[axis]);
        let groups = collapsed_axes(&self.shape, shape).filter(|_| self.slabs.is_none())?;
        groups.iter().all(|axes| axes.clone().skip(1).all(dense)).then_some(())?;
        self.strides = groups.iter().map(|axes| self.strides[axes.end - 1]).collect();
        self.shape = shape.into();
        Some(self)
    }

    /// How a tile comes out of it by `ldmatrix`, or gets there by `stmatrix`, where its lines are made of whole rows of matrices.
    pub fn matrix_access(&self, layout: &Distribution) -> Option<MatrixAccess> {
        let bytes = self.element_bytes();
        if self.strides.len() != 2 || bytes > 4 || self.align < 16 {
            return None;
        }
        let fastest = self.fastest()?;
        let lines_fit =
            self.strides.iter().enumerate().all(|(axis, stride)| axis == fastest || (stride * bytes).is_multiple_of(16));
        let shape: SmallVec<[u64; 4]> = self.shape.iter().map(|&extent| u64::from(extent)).collect();
        let granule = self.swizzle.bits == 0 || self.swizzle.base >= 4;
        if !lines_fit || !granule || !(shape[fastest] * bytes).is_multiple_of(16) {
            return None;
        }
        let dense = SharedLayout::dense(&shape, &[fastest, 1 - fastest], bytes).ok()?;
        matrix_access(layout, &dense)
    }

    /// How a tile comes out of it by `ldmatrix` where that takes fewer instructions than vectors do.
    pub fn matrix_load(&self, layout: &Distribution) -> Option<MatrixAccess> {
        let vector = self.element_bytes() << self.vector_bits(layout, 16).len();
        self.matrix_access(layout).filter(|access| 4 * access.matrices > vector)
    }

    /// How a tile gets here by `stmatrix`: where one thread alone holds each element, in fewer instructions than by vectors, and the rows of a
    /// matrix lie in different banks.
    pub fn matrix_store(&self, layout: &Distribution) -> Option<MatrixAccess> {
        let access = self.matrix_access(layout).filter(|_| !layout.has_copies())?;
        let vector = self.element_bytes() << self.vector_bits(layout, 16).len();
        let row = |lane: usize| {
            let taken = (lane as u64) < 8 * access.matrices;
            let row = taken.then(|| access.row(layout, 0, 0, lane as u64)).flatten()?;
            Some(self.swizzle.apply(self.offset(&row)))
        };
        let apart = wavefronts(&std::array::from_fn(row), 16).iter().all(|&degree| degree <= 1);
        (apart && 4 * access.matrices > vector).then_some(access)
    }

    /// Whether threads write a tile to here without conflicts, by vectors, and side by side so few bytes that they do not fill a sector of the
    /// device's memory.
    pub fn gathers_parts_of_sectors(&self, layout: &Distribution) -> bool {
        let Some(dim) = self.fastest().filter(|_| !layout.has_copies() && !layout.has_holes()) else { return false };
        let core = layout.core();
        let mut run = 1u64 << self.vector_bits(layout, 16).len();
        let vector = run * self.element_bytes();
        let goes_on = |run: u64| {
            (0..core.bits(Axis::Lane)).any(|bit| {
                let basis = core.basis(Axis::Lane, bit);
                basis.iter().enumerate().all(|(axis, &value)| value == if axis == dim { run } else { 0 })
            })
        };
        while goes_on(run) {
            run *= 2;
        }
        let address = |lane: usize| Some(self.swizzle.apply(self.offset(&layout.element(0, lane as u64)?)));
        let apart = || wavefronts(&std::array::from_fn(address), vector).iter().all(|&degree| degree <= 1);
        run * self.element_bytes() < SECTOR && apart()
    }

    /// A layout for moves to here, with two bits of the lane exchanged where the lanes of a phase then meet in fewer banks: the lines that
    /// they write at the same time are others, and what each line gets is the same.
    pub fn without_conflicts(&self, layout: Distribution) -> Distribution {
        let bytes = self.element_bytes() << self.vector_bits(&layout, 16).len();
        let passes = |layout: &Distribution| {
            let address = |lane: usize| Some(self.swizzle.apply(self.offset(&layout.element(0, lane as u64)?)));
            wavefronts(&std::array::from_fn(address), bytes).iter().sum::<u32>()
        };
        let exchanged = |low: usize, high: usize| {
            let core = layout.core();
            let bases = |axis: Axis| {
                let mut bases: Vec<_> = (0..core.bits(axis)).map(|bit| core.basis(axis, bit)).collect();
                if axis == Axis::Lane {
                    bases.swap(low, high);
                }
                (axis, bases)
            };
            let core = LinearLayout::from_bases(&core.extents(), &[Axis::Register, Axis::Lane, Axis::Warp].map(bases)).ok()?;
            Distribution::new(layout.shape(), core, layout.warps()).ok()
        };
        let others = (1..5).flat_map(|high| (0..high).map(move |low| (low, high))).filter_map(|(low, high)| exchanged(low, high));
        let best = others.map(|other| (passes(&other), other)).min_by_key(|(passes, _)| *passes);
        best.filter(|(found, _)| *found < passes(&layout)).map_or(layout.clone(), |(_, other)| other)
    }

    /// The axis whose neighbours are neighbours in memory.
    pub fn fastest(&self) -> Option<usize> {
        self.strides.iter().position(|&stride| stride == 1)
    }

    /// The register bits of a layout that count along the axis whose neighbours are neighbours here, lowest first: what one instruction of
    /// at most so many bytes moves.
    pub fn vector_bits(&self, layout: &Distribution, most_bytes: u64) -> Vec<usize> {
        let bytes = self.element_bytes();
        let Some(dim) = self.fastest() else { return Vec::new() };
        let core = layout.core();
        let thread_bits = [Axis::Lane, Axis::Warp]
            .into_iter()
            .flat_map(|axis| (0..core.bits(axis)).map(move |bit| core.basis(axis, bit)[dim]))
            .fold(0, |all, basis| all | basis);
        let granule = if self.swizzle.bits == 0 { most_bytes } else { most_bytes.min(1 << self.swizzle.base) };
        let mut bits = Vec::new();
        loop {
            let width = 2u64 << bits.len();
            let moved = width * bytes;
            let others =
                self.strides.iter().enumerate().all(|(other, stride)| other == dim || (stride * bytes).is_multiple_of(moved));
            let fits = moved <= granule
                && others
                && self.align.is_multiple_of(moved)
                && layout.shape()[dim].is_multiple_of(width)
                && core.extent(dim).is_multiple_of(width)
                && thread_bits & (width - 1) == 0;
            let found = (0..core.bits(Axis::Register)).find(|&bit| {
                let basis = core.basis(Axis::Register, bit);
                basis.iter().enumerate().all(|(axis, &value)| value == if axis == dim { width / 2 } else { 0 })
            });
            match found {
                Some(bit) if fits => bits.push(1 << bit),
                _ => return bits,
            }
        }
    }
}

/// Lines whose parts a swizzle mixes: boxes and slabs begin where a pattern of so many does (PTX ISA, "Swizzling Modes").
pub const MIXED_LINES: u32 = 8;

/// How lines of so many bytes are mixed, for the copy engine and the tensor cores: in the longest slabs that lines are made of; `None` where they are
/// made of none.
pub fn engine_swizzle(line: u32) -> Option<Swizzle> {
    let slabs = [(128, Swizzle::B128), (64, Swizzle::B64), (32, Swizzle::B32)];
    slabs.into_iter().find(|&(slab, _)| line.is_multiple_of(slab)).map(|(_, swizzle)| swizzle)
}

/// Bytes of a line that a swizzle of the copy engine mixes; `None` for other patterns.
pub fn engine_span(swizzle: Swizzle) -> Option<u64> {
    [Swizzle::B32, Swizzle::B64, Swizzle::B128].contains(&swizzle).then_some(16 << swizzle.bits)
}
