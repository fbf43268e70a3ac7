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

use std::ops::Deref;

use smallvec::SmallVec;
use tessera_ir::{Elem, Extent, SharedType, TensorViewType, Type};
use tessera_ptx::ssa::{Class, Value as Reg};
use tessera_types::DType;

use tessera_analysis::arrangement::Arrangement;

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
    /// How elements lie from there on.
    pub(super) lies: Arrangement,
    /// The entry of a larger buffer that it is, where that is known.
    pub(super) entry: Option<Entry>,
}

/// One of a buffer's entries, such as a slot: what follows from the first one's address need not be made anew for each.
#[derive(Clone, Copy, Debug)]
pub(super) struct Entry {
    /// The base that it would have as the first entry.
    pub(super) first: Reg,
    /// Its number.
    pub(super) index: Reg,
    /// Bytes from one entry to the next.
    pub(super) bytes: u32,
}

impl Deref for Buffer {
    type Target = Arrangement;

    fn deref(&self) -> &Arrangement {
        &self.lies
    }
}

impl Buffer {
    /// A whole buffer at an address that is aligned to 16 bytes.
    pub(super) fn whole(base: Reg, ty: &SharedType) -> Buffer {
        Buffer { base, lies: Arrangement::of(ty), entry: None }
    }
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
