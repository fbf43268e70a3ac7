//! Arrays as a launch sees them: an element type, an address, sizes and strides.

use std::ops::Range;

use tessera_ir::bug;
use tessera_types::DType;

use crate::layout::{Layout, row_major, storage_bits, storage_bytes};

/// No address space is as large; what counts bits can count this far.
const BEYOND: u64 = 1 << 60;

/// Something that lies in memory as an array.
pub trait Placed: Clone {
    /// The element type.
    fn dtype(&self) -> DType;

    /// Where elements lie in the memory.
    fn layout(&self) -> &Layout;

    /// The address of the memory, in the address space of its device.
    fn base(&self) -> u64;

    /// Sizes, outermost first.
    fn sizes(&self) -> &[usize] {
        &self.layout().shape
    }

    /// Distances between neighbours along each axis, in elements.
    fn steps(&self) -> &[usize] {
        &self.layout().strides
    }

    /// True without elements.
    fn has_none(&self) -> bool {
        self.layout().is_empty()
    }

    /// Address of the first element; `None` when it does not begin a byte.
    fn address(&self) -> Option<u64> {
        let bits = self.layout().offset * storage_bits(self.dtype());
        bits.is_multiple_of(8).then(|| self.base() + (bits / 8) as u64)
    }

    /// The address that a kernel is given: of the first element or, of an array without elements, where nothing is accessed.
    fn start(&self) -> u64 {
        match self.address() {
            Some(address) => address,
            None if self.has_none() => self.base(),
            None => bug!("an array that begins within a byte was let through"),
        }
    }

    /// Addresses from the first byte of an element to one past the last.
    fn address_range(&self) -> Range<u64> {
        let span = self.layout().span().unwrap_or(0..0);
        let bits = storage_bits(self.dtype());
        self.base() + (span.start * bits / 8) as u64..self.base() + (span.end * bits).div_ceil(8) as u64
    }

    /// True when a size, a stride or an element's position needs more than 31 bits.
    fn needs_wide_index(&self) -> bool {
        const MOST: usize = i32::MAX as usize;
        let span = self.layout().span().map_or(usize::MAX, |span| span.len());
        span > MOST || self.sizes().iter().chain(self.steps()).any(|&extent| extent > MOST)
    }
}

/// An array by its address alone: whoever made it keeps the memory alive.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Array {
    dtype: DType,
    address: u64,
    layout: Layout,
}

impl Array {
    /// The array of a type at an address; row-major where no strides are given.
    ///
    /// # Errors
    /// Sizes and strides of different number, and arrays beyond the address space, in words.
    pub fn new(dtype: DType, address: u64, shape: &[usize], strides: Option<&[usize]>) -> Result<Array, String> {
        let strides = strides.map_or_else(|| row_major(shape), <[usize]>::to_vec);
        if strides.len() != shape.len() {
            return Err(format!("{} sizes and {} strides", shape.len(), strides.len()));
        }
        let layout = Layout { shape: shape.to_vec(), strides, offset: 0 };
        let bytes = layout.span().and_then(|span| storage_bytes(dtype, span.end));
        match bytes.and_then(|bytes| address.checked_add(bytes as u64)) {
            Some(end) if end < BEYOND => Ok(Array { dtype, address, layout }),
            _ => {
                let Layout { shape, strides, .. } = layout;
                Err(format!("shape {shape:?} with strides {strides:?} is beyond any memory"))
            }
        }
    }
}

impl Array {
    /// An array of the same form at another address.
    pub(crate) fn at(&self, address: u64) -> Array {
        Array { address, ..self.clone() }
    }
}

impl Placed for Array {
    fn dtype(&self) -> DType {
        self.dtype
    }

    fn layout(&self) -> &Layout {
        &self.layout
    }

    fn base(&self) -> u64 {
        self.address
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_array_fits_the_address_space() {
        let array = Array::new(DType::F32, 64, &[3, 4], None).expect("array");
        assert_eq!((array.steps(), array.address(), array.address_range()), (&[4, 1][..], Some(64), 64..112));
        assert!(!array.needs_wide_index());
        assert!(Array::new(DType::F32, 64, &[usize::MAX, 4], None).expect_err("too large").contains("beyond any memory"));
        assert!(Array::new(DType::F32, BEYOND - 3, &[1], None).is_err());
        assert_eq!(Array::new(DType::F32, 64, &[2], Some(&[])), Err("1 sizes and 0 strides".to_string()));
    }
}
