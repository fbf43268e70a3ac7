//! Operands of `wgmma` in shared memory: layouts and descriptors.
//!
//! An operand is a matrix `[mn, k]` (its logical shape, whatever lies contiguous) in slabs along the contiguous dimension: of the
//! swizzle's span, or of 16 bytes without a swizzle. The descriptor says how far apart the pieces of a slab are:
//!
//! | contiguous | swizzle | leading (LBO)                  | stride (SBO)                  |
//! |------------|---------|--------------------------------|-------------------------------|
//! | k          | 128/64/32 B | not read (1)               | 8 rows of mn: 8 * span        |
//! | k          | none    | next 16 bytes of k: one slab   | 8 rows of mn: 128 bytes       |
//! | mn         | 128/64/32 B | next span of mn: one slab  | 8 rows of k: 8 * span         |
//! | mn         | none    | 8 rows of k: 128 bytes         | next 16 bytes of mn: one slab |
//!
//! The start address of an instruction's part is the offset of its first element: at rows that are multiples of 8 no swizzle moves
//! it, so stepping k by one instruction adds 32 bytes within a slab (k contiguous) or 16 rows (mn contiguous, 16 bits).

use crate::LayoutError;
use crate::shared::SharedLayout;
use crate::swizzle::Swizzle;

/// A matrix that `wgmma` reads from shared memory; see the module's head.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct WgmmaOperand {
    /// Rows of A or columns of B.
    pub mn: u64,
    /// Length of the contraction held.
    pub k: u64,
    /// Bytes of an element.
    pub element_bytes: u64,
    /// The contraction is contiguous; otherwise m or n is, which 16-bit elements allow only.
    pub k_major: bool,
    /// One of the TMA's swizzles, or none.
    pub swizzle: Swizzle,
}

/// The part of a matrix descriptor that does not depend on the address.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct MatrixDescriptor {
    /// Leading dimension's byte offset.
    pub leading: u64,
    /// Stride dimension's byte offset.
    pub stride: u64,
    /// The descriptor's code of the swizzle: 0 none, 1 128 B, 2 64 B, 3 32 B.
    pub swizzle_code: u64,
}

impl MatrixDescriptor {
    /// The descriptor of a part that begins at a shared-memory address (a multiple of 16) of a buffer aligned as its swizzle asks.
    pub fn encode(&self, address: u64) -> u64 {
        let field = |bytes: u64| bytes >> 4 & 0x3fff;
        field(address) | field(self.leading) << 16 | field(self.stride) << 32 | self.swizzle_code << 62
    }
}

impl WgmmaOperand {
    /// Bytes of a slab's row.
    fn span(&self) -> u64 {
        self.swizzle.span().unwrap_or(16)
    }

    /// Where the elements `[mn, k]` lie.
    ///
    /// # Errors
    /// Extents that the span does not divide, rows that are no multiple of 8, mn contiguous for elements that are not 16 bits wide.
    pub fn layout(&self) -> Result<SharedLayout, LayoutError> {
        let rows = if self.k_major { self.mn } else { self.k };
        if !rows.is_multiple_of(8) || (!self.k_major && self.element_bytes != 2) {
            let major = if self.k_major { "k" } else { "mn" };
            let what = format!(
                "a wgmma operand of {} x {} with {major} contiguous, {} bytes an element",
                self.mn, self.k, self.element_bytes
            );
            return Err(LayoutError::NoInstruction { what });
        }
        let contiguous = if self.k_major { 1 } else { 0 };
        SharedLayout::slabs([self.mn, self.k], contiguous, self.span(), self.swizzle, self.element_bytes)
    }

    /// The descriptor without an address.
    pub fn descriptor(&self) -> MatrixDescriptor {
        let rows = if self.k_major { self.mn } else { self.k };
        let (slab, group) = (rows * self.span(), 8 * self.span());
        let (leading, stride) = match (self.swizzle.span(), self.k_major) {
            (Some(_), true) => (16, group),
            (Some(_), false) | (None, true) => (slab, group),
            (None, false) => (group, slab),
        };
        let swizzle_code = match self.swizzle.span() {
            Some(128) => 1,
            Some(64) => 2,
            Some(_) => 3,
            None => 0,
        };
        MatrixDescriptor { leading, stride, swizzle_code }
    }
}
