//! Aligned memory that grows and is never zeroed again.

use std::alloc::{Layout, alloc_zeroed, dealloc, handle_alloc_error};
use std::ptr::NonNull;

/// Bytes aligned to a cache line.
pub(crate) struct Bytes {
    start: NonNull<u8>,
    len: usize,
}

// SAFETY: the memory is owned.
unsafe impl Send for Bytes {}

const ALIGN: usize = 64;

impl Default for Bytes {
    fn default() -> Self {
        Bytes { start: NonNull::dangling(), len: 0 }
    }
}

impl Bytes {
    fn layout(len: usize) -> Layout {
        // Lengths come from tile sizes, whose product was allocated before it could pass `isize::MAX`.
        Layout::from_size_align(len, ALIGN).unwrap_or(Layout::new::<u64>())
    }

    /// Makes room for so many bytes; what was there is lost when it has to grow.
    pub(crate) fn reserve(&mut self, len: usize) -> *mut u8 {
        if len > self.len {
            self.free();
            let len = len.next_multiple_of(4096);
            // SAFETY: the length is not zero. Zeroed pages come from the system for free and make every read defined.
            let start = unsafe { alloc_zeroed(Self::layout(len)) };
            match NonNull::new(start) {
                Some(start) => *self = Bytes { start, len },
                None => handle_alloc_error(Self::layout(len)),
            }
        }
        self.start.as_ptr()
    }

    /// A byte inside.
    pub(crate) fn at(&self, offset: usize) -> *mut u8 {
        debug_assert!(offset <= self.len);
        // SAFETY: offsets come from the plan that the length was taken from.
        unsafe { self.start.as_ptr().add(offset) }
    }

    fn free(&mut self) {
        if self.len > 0 {
            // SAFETY: allocated in `reserve` with this layout.
            unsafe { dealloc(self.start.as_ptr(), Self::layout(self.len)) };
            self.len = 0;
        }
    }
}

impl Drop for Bytes {
    fn drop(&mut self) {
        self.free();
    }
}
