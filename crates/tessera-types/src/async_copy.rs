//! Copies between the memory of the device and shared memory that go on by themselves, and what they ask for.
//!
//! ```
//! use tessera_types::{Arch, AsyncCopy};
//! assert_eq!(Arch::Sm80.async_copies(), [AsyncCopy::THREADS]);
//! assert!(Arch::Sm90a.async_copies().contains(&AsyncCopy::TENSOR));
//! assert_eq!(AsyncCopy::TENSOR.extent, 256);
//! ```

use crate::arch::Arch;

/// Who moves the bytes of an asynchronous copy.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Mover {
    /// Each thread issues accesses of its own.
    Threads,
    /// The copy engine, from an address and a size.
    EngineBytes,
    /// The copy engine, a box of a tensor that a map describes.
    EngineBox,
}

/// A kind of asynchronous copy with its limits. Bytes and elements.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AsyncCopy {
    /// Who moves the bytes.
    pub mover: Mover,
    /// Sizes of one access; where there are none, any multiple of `unit`.
    pub sizes: &'static [u32],
    /// What sizes, addresses of the device's memory and distances between lines are multiples of; of a copy by threads, its own size.
    pub unit: u32,
    /// What addresses of shared memory are multiples of, where nothing is swizzled.
    pub shared_align: u32,
    /// The most axes.
    pub axes: u32,
    /// The most elements of a box along an axis; 0 where nothing is a box.
    pub extent: u32,
}

impl AsyncCopy {
    /// `cp.async`: 4, 8 or 16 bytes a thread (PTX ISA, "cp.async"; those that pass by L1 have 16).
    pub const THREADS: AsyncCopy =
        AsyncCopy { mover: Mover::Threads, sizes: &[4, 8, 16], unit: 4, shared_align: 4, axes: 1, extent: 0 };

    /// `cp.async.bulk` (PTX ISA, "cp.async.bulk": sizes and addresses are multiples of 16).
    pub const BULK: AsyncCopy =
        AsyncCopy { mover: Mover::EngineBytes, sizes: &[], unit: 16, shared_align: 16, axes: 1, extent: 0 };

    /// `cp.async.bulk.tensor` (CUDA driver API, `cuTensorMapEncodeTiled`: 1 to 5 axes, boxes of 1 to 256 elements an axis, whose lines
    /// are multiples of 16 bytes, strides multiples of 16; PTX ISA, "Tensors": 128 bytes in shared memory).
    pub const TENSOR: AsyncCopy =
        AsyncCopy { mover: Mover::EngineBox, sizes: &[], unit: 16, shared_align: 128, axes: 5, extent: 256 };
}

impl Arch {
    /// The kinds of asynchronous copies that the instruction set has.
    pub const fn async_copies(self) -> &'static [AsyncCopy] {
        match (self.has_cp_async(), self.has_tma()) {
            (false, _) => &[],
            (true, false) => &[AsyncCopy::THREADS],
            (true, true) => &[AsyncCopy::THREADS, AsyncCopy::BULK, AsyncCopy::TENSOR],
        }
    }
}
