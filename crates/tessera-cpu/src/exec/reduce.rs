//! Reductions with kernels of their own, fed strip by strip.
//!
//! Along the last axis, each stretch of a row is reduced by itself and combined with the row's running value; along another axis,
//! whole stretches are combined element by element. The order depends on the tile's shape alone.

use crate::kernels::reduce::{self as kernels, Add, Combine as Kernel, Max, MaxNan, Min, MinNan, Mul};
use crate::plan::{Combine, ReduceLane};

/// A stretch of a reduction's source: where it stands and how the source is shaped.
#[derive(Clone, Copy)]
pub(super) struct Stretch {
    /// The extents before, along and after the axis.
    pub(super) extents: [usize; 3],
    pub(super) start: usize,
    pub(super) count: usize,
}

/// Combines a strip into the running results.
///
/// # Safety
/// `to` holds an aligned element for each pair of outer and inner indices, `from` the strip's elements.
pub(super) unsafe fn combine_strip(kind: (Combine, ReduceLane), to: *mut u8, from: *const u8, stretch: Stretch) {
    macro_rules! ints {
        ($ty:ty) => {
            match kind.0 {
                Combine::Add => run::<$ty, _>(Add, to, from, stretch),
                Combine::Mul => run::<$ty, _>(Mul, to, from, stretch),
                Combine::Max | Combine::MaxNan => run::<$ty, _>(Max, to, from, stretch),
                Combine::Min | Combine::MinNan => run::<$ty, _>(Min, to, from, stretch),
            }
        };
    }
    macro_rules! floats {
        ($ty:ty) => {
            match kind.0 {
                Combine::Add => run::<$ty, _>(Add, to, from, stretch),
                Combine::Mul => run::<$ty, _>(Mul, to, from, stretch),
                Combine::Max => run::<$ty, _>(Max, to, from, stretch),
                Combine::Min => run::<$ty, _>(Min, to, from, stretch),
                Combine::MaxNan => run::<$ty, _>(MaxNan, to, from, stretch),
                Combine::MinNan => run::<$ty, _>(MinNan, to, from, stretch),
            }
        };
    }
    // SAFETY: the lane says what the elements are.
    unsafe {
        match kind.1 {
            ReduceLane::F32 => floats!(f32),
            ReduceLane::F64 => floats!(f64),
            ReduceLane::I8(true) => ints!(i8),
            ReduceLane::I8(false) => ints!(u8),
            ReduceLane::I16(true) => ints!(i16),
            ReduceLane::I16(false) => ints!(u16),
            ReduceLane::I32(true) => ints!(i32),
            ReduceLane::I32(false) => ints!(u32),
            ReduceLane::I64(true) => ints!(i64),
            ReduceLane::I64(false) => ints!(u64),
        }
    }
}

unsafe fn run<T: Copy, K: Kernel<T>>(kernel: K, to: *mut u8, from: *const u8, stretch: Stretch) {
    let Stretch { extents: [outer, middle, inner], start, count } = stretch;
    // SAFETY: passed on from `combine_strip`.
    let (to, from) = unsafe {
        (std::slice::from_raw_parts_mut(to.cast::<T>(), outer * inner), std::slice::from_raw_parts(from.cast::<T>(), count))
    };
    let row = if inner == 1 { middle } else { inner };
    let mut at = 0;
    while at < count {
        let (index, column) = ((start + at) / row, (start + at) % row);
        let part = (row - column).min(count - at);
        if inner == 1 {
            to[index] = kernels::reduce(kernel, to[index], &from[at..at + part]);
            at += part;
            continue;
        }
        // Whole rows of one outer index go together.
        let rows = if column == 0 { ((count - at) / inner).min(middle - index % middle) } else { 0 };
        let taken = if rows > 0 { rows * inner } else { part };
        let width = if rows > 0 { inner } else { part };
        let running = &mut to[index / middle * inner + column..][..width];
        kernels::columns(kernel, running, &from[at..at + taken]);
        at += taken;
    }
}
