//! What a Tile value is in a thread: the values of Target IR that stand for it.
//!
//! | Tile value | is |
//! |---|---|
//! | scalar, tile | one register an element that the thread holds, in the order of its distribution's registers |
//! | view | base address, then sizes and strides, those that the type states as constants |
//! | buffer in shared memory | a 32-bit address and how far neighbours are apart |
//! | token | nothing: memory operations keep their order |
//!
//! Registers by element type: truth values are predicates; `f16` and `bf16` take 16 bits; 64-bit numbers and pointers 64;
//! everything else 32, and there the bits above the element's width mean nothing.

use smallvec::SmallVec;
use tessera_ir::{Elem, Extent, SharedType, Swizzle, TensorViewType, Type};
use tessera_ptx::ssa::{Class, Value as Reg};
use tessera_types::DType;

/// The registers of a scalar or tile.
pub(super) type Regs = SmallVec<[Reg; 4]>;

/// An array in memory.
#[derive(Clone, Debug)]
pub(super) struct Tensor {
    /// Address of the element at index zero, 64 bits.
    pub(super) base: Reg,
    /// Sizes, 32 or 64 bits each.
    pub(super) sizes: SmallVec<[Reg; 4]>,
    /// Strides in elements, 32 or 64 bits each.
    pub(super) strides: SmallVec<[Reg; 4]>,
}

/// A buffer in shared memory, or a part of one.
#[derive(Clone, Debug)]
pub(super) struct Buffer {
    /// Address of the element at index zero before swizzling, 32 bits.
    pub(super) base: Reg,
    /// Distance of neighbours along each axis, in elements, before swizzling.
    pub(super) strides: SmallVec<[u64; 4]>,
    /// How addresses are mixed.
    pub(super) swizzle: Swizzle,
    /// Extents.
    pub(super) shape: SmallVec<[u32; 4]>,
    /// Element type.
    pub(super) elem: DType,
    /// Alignment of the element at index zero in bytes.
    pub(super) align: u64,
    /// How the fastest axis is cut where its lines are longer than what the swizzle mixes.
    pub(super) slabs: Option<Slabs>,
}

/// Lines longer than a swizzle's span lie in slabs, one behind the other, as the copy engine writes and the tensor cores read
/// them: a slab has the first elements of all lines, the next slab the next ones.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Slabs {
    /// The axis that is cut.
    pub(super) axis: usize,
    /// Elements of a line in one slab.
    pub(super) elements: u64,
    /// Bytes from a slab to the next.
    pub(super) stride: u64,
}

impl Buffer {
    /// A whole buffer at an address that is aligned to 16 bytes.
    pub(super) fn whole(base: Reg, ty: &SharedType) -> Buffer {
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
        Buffer { base, strides, swizzle: ty.swizzle, shape: ty.shape.clone(), elem: ty.elem, align: 16, slabs }
    }

    /// Bytes from the first element to the one at these coordinates, before swizzling.
    pub(super) fn offset(&self, coordinates: &[u64]) -> u64 {
        let bytes = self.elem.unpacked_bytes() as u64;
        let along = |(axis, (&coordinate, &stride)): (usize, (&u64, &u64))| match self.slabs {
            Some(slabs) if slabs.axis == axis => {
                coordinate / slabs.elements * slabs.stride + coordinate % slabs.elements * stride * bytes
            }
            _ => coordinate * stride * bytes,
        };
        coordinates.iter().zip(&self.strides).enumerate().map(along).sum()
    }
}

/// Bytes of a line that a swizzle of the copy engine mixes; `None` for other patterns.
pub(super) fn engine_span(swizzle: Swizzle) -> Option<u64> {
    [Swizzle::B32, Swizzle::B64, Swizzle::B128].contains(&swizzle).then_some(16 << swizzle.bits)
}

/// What a Tile value is bound to.
#[derive(Clone, Debug)]
pub(super) enum Bound {
    /// A scalar or tile.
    Regs(Regs),
    /// A view of an array, cut into tiles or not.
    Tensor(Tensor),
    /// A buffer.
    Buffer(Buffer),
    /// A queue, by its place in the list of rings.
    Ring(usize),
    /// A position in a queue: slot and phase.
    Cursor([Reg; 2]),
    /// An array of the thread's own, in memory that no other thread touches.
    Array(Buffer),
    /// An ordering edge.
    Token,
}

/// The class of an element's register.
pub(super) fn class_of(elem: Elem) -> Class {
    match elem {
        Elem::Ptr(_) => Class::B64,
        Elem::Num(DType::B1) => Class::Pred,
        Elem::Num(DType::F16 | DType::BF16) => Class::B16,
        Elem::Num(dtype) if dtype.bits() == 64 => Class::B64,
        Elem::Num(_) => Class::B32,
    }
}

/// How many registers a scalar or tile takes in a thread.
pub(super) fn register_count(ty: &Type) -> usize {
    ty.layout().map_or(1, |layout| layout.registers() as usize)
}

/// The width of a size or stride: what the type states decides where it states something.
pub(super) fn extent_class(extent: Extent) -> Class {
    match extent {
        Extent::Static(value) if i32::try_from(value).is_err() => Class::B64,
        _ => Class::B32,
    }
}

/// True where the elements of a view may be too far apart for 32-bit offsets, by its type alone.
pub(super) fn states_wide(view: &TensorViewType) -> bool {
    let mut reach = 1i128;
    for (size, stride) in view.shape.iter().zip(&view.strides) {
        let (Extent::Static(size), Extent::Static(stride)) = (size, stride) else { continue };
        reach += i128::from(size.max(&1) - 1) * i128::from(stride.abs());
    }
    reach > i128::from(i32::MAX) || view.shape.iter().chain(&view.strides).any(|&extent| extent_class(extent) == Class::B64)
}
