//! Where a tensor's elements lie: sizes, strides and a first element, counted in elements of one memory.
//!
//! Element `(i, j)` lies `offset + i * strides[0] + j * strides[1]` elements from the start of the memory. Strides are never
//! negative; a stride of zero repeats an element. `[2, 3]` in row-major order has strides `[3, 1]`, its transpose `[1, 3]`.

use std::ops::Range;

use tessera_types::DType;

/// Bits an element takes in an array: truth values take a byte.
pub fn storage_bits(dtype: DType) -> usize {
    if dtype.is_byte_bool() { 8 } else { dtype.bits() as usize }
}

/// Bytes of `elements` elements that follow each other; `None` beyond the address space.
pub fn storage_bytes(dtype: DType, elements: usize) -> Option<usize> {
    let bits = storage_bits(dtype);
    (elements / 8).checked_mul(bits)?.checked_add((elements % 8 * bits).div_ceil(8)).filter(|&n| n <= isize::MAX as usize)
}

/// Sizes, strides and the first element's position.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Layout {
    /// Elements along each axis, outermost first.
    pub shape: Vec<usize>,
    /// Elements from one to its neighbour along each axis.
    pub strides: Vec<usize>,
    /// The first element's position.
    pub offset: usize,
}

/// Row-major strides of a shape.
pub fn row_major(shape: &[usize]) -> Vec<usize> {
    let mut strides = vec![1_usize; shape.len()];
    for axis in (1..shape.len()).rev() {
        strides[axis - 1] = strides[axis].saturating_mul(shape[axis].max(1));
    }
    strides
}

impl Layout {
    /// The elements of a shape in row-major order, from the memory's first on.
    pub fn contiguous(shape: &[usize]) -> Layout {
        Layout { shape: shape.to_vec(), strides: row_major(shape), offset: 0 }
    }

    /// Number of elements.
    pub fn len(&self) -> usize {
        // The product of the other sizes may overflow where one is zero.
        if self.shape.contains(&0) { 0 } else { self.shape.iter().product() }
    }

    /// True without elements.
    pub fn is_empty(&self) -> bool {
        self.shape.contains(&0)
    }

    /// Positions from the first element to one past the last; empty without elements, `None` beyond the address space.
    pub fn span(&self) -> Option<Range<usize>> {
        if self.shape.contains(&0) {
            return Some(self.offset..self.offset);
        }
        let mut last = self.offset;
        for (&size, &stride) in self.shape.iter().zip(&self.strides) {
            last = last.checked_add((size - 1).checked_mul(stride)?)?;
        }
        Some(self.offset..last.checked_add(1)?)
    }

    /// True when the elements follow each other in row-major order.
    pub fn is_contiguous(&self) -> bool {
        if self.shape.contains(&0) {
            return true;
        }
        let mut expected = 1;
        for (&size, &stride) in self.shape.iter().zip(&self.strides).rev() {
            if size != 1 && stride != expected {
                return false;
            }
            expected *= size;
        }
        true
    }

    /// True when it is certain that no two indices name one element: strides grow faster than the sizes below them.
    pub fn is_injective(&self) -> bool {
        if self.shape.contains(&0) {
            return true;
        }
        let mut axes: Vec<(usize, usize)> =
            self.strides.iter().copied().zip(self.shape.iter().copied()).filter(|&(_, size)| size > 1).collect();
        axes.sort_unstable();
        let mut reach = 0_usize;
        for (stride, size) in axes {
            if stride <= reach {
                return false;
            }
            reach = reach.saturating_add(stride.saturating_mul(size - 1));
        }
        true
    }

    /// Where the element at a place of the row-major order lies, in elements from the memory's first.
    pub fn offset_of(&self, place: usize) -> usize {
        let mut rest = place;
        let mut offset = self.offset;
        for (&size, &stride) in self.shape.iter().zip(&self.strides).rev() {
            offset += rest % size * stride;
            rest /= size;
        }
        offset
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn contiguity_ignores_axes_of_one() {
        let layout = |shape: &[usize], strides: &[usize]| Layout { shape: shape.into(), strides: strides.into(), offset: 0 };
        assert!(layout(&[2, 1, 3], &[3, 77, 1]).is_contiguous());
        assert!(!layout(&[3, 2], &[1, 3]).is_contiguous());
        assert!(layout(&[0, 5], &[9, 9]).is_contiguous());
        assert!(layout(&[], &[]).is_contiguous());
    }

    #[test]
    fn overlapping_strides_are_seen() {
        let layout = |shape: &[usize], strides: &[usize]| Layout { shape: shape.into(), strides: strides.into(), offset: 0 };
        assert!(layout(&[3, 2], &[1, 3]).is_injective());
        assert!(!layout(&[3, 2], &[1, 2]).is_injective());
        assert!(!layout(&[4], &[0]).is_injective());
        assert!(layout(&[1], &[0]).is_injective());
    }

    #[test]
    fn bytes_of_packed_elements_round_up() {
        assert_eq!(storage_bytes(DType::F4E2M1, 3), Some(2));
        assert_eq!(storage_bytes(DType::F6E2M3, 4), Some(3));
        assert_eq!(storage_bytes(DType::B1, 3), Some(3));
        assert_eq!(storage_bytes(DType::F64, usize::MAX), None);
    }
}
