//! Reductions with kernels of their own, fed strip by strip.
//!
//! Along the last axis, a row has running values of its own until it ends; along another axis, whole stretches are combined
//! element by element. The order depends on the tile's shape alone.

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

/// Running values of the row that a strip ends in, of any type.
#[derive(Clone)]
#[repr(align(64))]
pub(super) struct Lanes([u64; kernels::LANES]);

impl Default for Lanes {
    fn default() -> Lanes {
        Lanes([0; kernels::LANES])
    }
}

impl Lanes {
    pub(super) fn start(&mut self) -> *mut u8 {
        self.0.as_mut_ptr().cast()
    }
}

/// What is done for the elements' type and combination.
trait Task {
    unsafe fn run<T: Copy, K: Kernel<T>>(self, kernel: K);
}

/// Runs a task with the types that the kind names.
///
/// # Safety
/// The task's memory holds elements of the lane's type.
unsafe fn with_types(kind: (Combine, ReduceLane), task: impl Task) {
    macro_rules! ints {
        ($ty:ty) => {
            match kind.0 {
                Combine::Add => task.run::<$ty, _>(Add),
                Combine::Mul => task.run::<$ty, _>(Mul),
                Combine::Max | Combine::MaxNan => task.run::<$ty, _>(Max),
                Combine::Min | Combine::MinNan => task.run::<$ty, _>(Min),
            }
        };
    }
    macro_rules! floats {
        ($ty:ty) => {
            match kind.0 {
                Combine::Add => task.run::<$ty, _>(Add),
                Combine::Mul => task.run::<$ty, _>(Mul),
                Combine::Max => task.run::<$ty, _>(Max),
                Combine::Min => task.run::<$ty, _>(Min),
                Combine::MaxNan => task.run::<$ty, _>(MaxNan),
                Combine::MinNan => task.run::<$ty, _>(MinNan),
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

/// Running values of a row that has no element yet.
///
/// # Safety
/// `lanes` has room for them, aligned to 64 bytes.
pub(super) unsafe fn begin(kind: (Combine, ReduceLane), lanes: *mut u8) {
    struct Begin(*mut u8);
    impl Task for Begin {
        unsafe fn run<T: Copy, K: Kernel<T>>(self, kernel: K) {
            // SAFETY: passed on.
            unsafe { self.0.cast::<kernels::Lanes<T>>().write(kernels::Lanes::new(kernel)) };
        }
    }
    // SAFETY: passed on.
    unsafe { with_types(kind, Begin(lanes)) };
}

/// The running values of a finished row, combined, as `to`.
///
/// # Safety
/// `lanes` are those of [`begin`], `to` an element.
pub(super) unsafe fn end(kind: (Combine, ReduceLane), lanes: *mut u8, to: *mut u8) {
    struct End(*mut u8, *mut u8);
    impl Task for End {
        unsafe fn run<T: Copy, K: Kernel<T>>(self, kernel: K) {
            // SAFETY: passed on.
            unsafe {
                let (lanes, to) = (self.0.cast::<kernels::Lanes<T>>().read(), self.1.cast::<T>());
                to.write(lanes.finish(kernel));
            }
        }
    }
    // SAFETY: passed on.
    unsafe { with_types(kind, End(lanes, to)) };
}

/// Results that have no element yet.
///
/// # Safety
/// `to` has room for `count` elements.
pub(super) unsafe fn clear(kind: (Combine, ReduceLane), to: *mut u8, count: usize) {
    struct Clear(*mut u8, usize);
    impl Task for Clear {
        unsafe fn run<T: Copy, K: Kernel<T>>(self, _: K) {
            // SAFETY: passed on.
            (0..self.1).for_each(|i| unsafe { self.0.cast::<T>().add(i).write(K::NEUTRAL) });
        }
    }
    // SAFETY: passed on.
    unsafe { with_types(kind, Clear(to, count)) };
}

/// Combines a strip into the running results.
///
/// # Safety
/// `to` holds an aligned element for each pair of outer and inner indices, `from` the strip's elements; `lanes` has room for the
/// running values of a row, which strips leave to the next.
pub(super) unsafe fn combine_strip(kind: (Combine, ReduceLane), to: *mut u8, from: *const u8, stretch: Stretch, lanes: *mut u8) {
    // SAFETY: passed on.
    unsafe { with_types(kind, Strip { to, from, stretch, lanes }) };
}

struct Strip {
    to: *mut u8,
    from: *const u8,
    stretch: Stretch,
    lanes: *mut u8,
}

impl Task for Strip {
    unsafe fn run<T: Copy, K: Kernel<T>>(self, kernel: K) {
        let Stretch { extents: [outer, middle, inner], start, count } = self.stretch;
        // SAFETY: passed on from `combine_strip`.
        let (to, from) = unsafe {
            let to = std::slice::from_raw_parts_mut(self.to.cast::<T>(), outer * inner);
            (to, std::slice::from_raw_parts(self.from.cast::<T>(), count))
        };
        let row = if inner == 1 { middle } else { inner };
        let mut at = 0;
        while at < count {
            let (index, column) = ((start + at) / row, (start + at) % row);
            let part = (row - column).min(count - at);
            if inner == 1 {
                let lanes = self.lanes.cast::<kernels::Lanes<T>>();
                // SAFETY: as above; a row's first part comes first.
                let lanes = unsafe {
                    if column == 0 {
                        lanes.write(kernels::Lanes::new(kernel));
                    }
                    &mut *lanes
                };
                kernels::accumulate(kernel, lanes, column, &from[at..at + part]);
                if column + part == row {
                    to[index] = lanes.clone().finish(kernel);
                }
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
}
