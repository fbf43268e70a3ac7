//! Where a tensor's elements lie: sizes, strides and a first element, counted in elements of one memory.
//!
//! Element `(i, j)` lies `offset + i * strides[0] + j * strides[1]` elements from the start of the memory. Strides are never
//! negative; a stride of zero repeats an element. `[2, 3]` in row-major order has strides `[3, 1]`, its transpose `[1, 3]`.

use std::ops::Range;

use tessera_types::DType;
use tessera_types::packed::Packing;

use crate::error::TensorError;

/// Bits an element takes in an array: truth values take a byte.
pub(crate) fn storage_bits(dtype: DType) -> usize {
    if dtype.is_byte_bool() { 8 } else { dtype.bits() as usize }
}

/// The packing of an array's elements; `None` where they take whole bytes.
pub(crate) fn packing(dtype: DType) -> Option<Packing> {
    if dtype.is_byte_bool() { None } else { Packing::of(dtype) }
}

/// Bytes of `elements` elements that follow each other; `None` beyond the address space.
pub(crate) fn storage_bytes(dtype: DType, elements: usize) -> Option<usize> {
    let bits = storage_bits(dtype);
    (elements / 8).checked_mul(bits)?.checked_add((elements % 8 * bits).div_ceil(8)).filter(|&n| n <= isize::MAX as usize)
}

/// Sizes, strides and the first element's position.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Layout {
    pub(crate) shape: Vec<usize>,
    pub(crate) strides: Vec<usize>,
    pub(crate) offset: usize,
}

/// Row-major strides of a shape.
pub(crate) fn row_major(shape: &[usize]) -> Vec<usize> {
    let mut strides = vec![1_usize; shape.len()];
    for axis in (1..shape.len()).rev() {
        strides[axis - 1] = strides[axis].saturating_mul(shape[axis].max(1));
    }
    strides
}

impl Layout {
    pub(crate) fn contiguous(shape: &[usize]) -> Layout {
        Layout { shape: shape.to_vec(), strides: row_major(shape), offset: 0 }
    }

    pub(crate) fn len(&self) -> usize {
        // The product of the other sizes may overflow where one is zero.
        if self.shape.contains(&0) { 0 } else { self.shape.iter().product() }
    }

    /// Positions from the first element to one past the last; empty without elements, `None` beyond the address space.
    pub(crate) fn span(&self) -> Option<Range<usize>> {
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
    pub(crate) fn is_contiguous(&self) -> bool {
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
    pub(crate) fn is_injective(&self) -> bool {
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

    /// A range of an axis, every `step`-th element of it.
    pub(crate) fn slice(&self, axis: usize, range: Range<usize>, step: usize) -> Result<Layout, TensorError> {
        let fits = self.shape.get(axis).is_some_and(|&size| range.start <= range.end && range.end <= size);
        if !fits || step == 0 {
            return Err(self.view_error(format!("the range {}..{} by {step} of axis {axis}", range.start, range.end)));
        }
        let mut layout = self.clone();
        layout.shape[axis] = range.len().div_ceil(step);
        // A view without elements starts nowhere: keep it inside the memory.
        if !range.is_empty() {
            layout.offset += range.start * self.strides[axis];
        }
        layout.strides[axis] = self.strides[axis].saturating_mul(step);
        Ok(layout)
    }

    /// The axes in another order.
    pub(crate) fn permute(&self, axes: &[usize]) -> Result<Layout, TensorError> {
        let mut seen = vec![false; self.shape.len()];
        let valid = axes.len() == seen.len()
            && axes.iter().all(|&axis| seen.get_mut(axis).is_some_and(|seen| !std::mem::replace(seen, true)));
        if !valid {
            return Err(self.view_error(format!("the order of axes {axes:?}")));
        }
        Ok(Layout {
            shape: axes.iter().map(|&axis| self.shape[axis]).collect(),
            strides: axes.iter().map(|&axis| self.strides[axis]).collect(),
            offset: self.offset,
        })
    }

    /// Where the element at a place of the row-major order lies, in elements from the memory's first.
    pub(crate) fn offset_of(&self, place: usize) -> usize {
        let mut rest = place;
        let mut offset = self.offset;
        for (&size, &stride) in self.shape.iter().zip(&self.strides).rev() {
            offset += rest % size * stride;
            rest /= size;
        }
        offset
    }

    pub(crate) fn view_error(&self, what: String) -> TensorError {
        TensorError::View { what, shape: self.shape.clone() }
    }
}

/// Calls `run(first, count)` for every run along the last axis, in row-major order; `first` is a position in each layout.
/// Both layouts have one shape.
pub(crate) fn for_each_row(left: &Layout, right: &Layout, mut row: impl FnMut(usize, usize)) {
    let outer = left.shape.len().saturating_sub(1);
    if left.len() == 0 {
        return;
    }
    let mut index = vec![0; outer];
    let (mut at_left, mut at_right) = (left.offset, right.offset);
    loop {
        row(at_left, at_right);
        let mut axis = outer;
        loop {
            if axis == 0 {
                return;
            }
            axis -= 1;
            index[axis] += 1;
            at_left += left.strides[axis];
            at_right += right.strides[axis];
            if index[axis] < left.shape[axis] {
                break;
            }
            at_left -= left.strides[axis] * left.shape[axis];
            at_right -= right.strides[axis] * left.shape[axis];
            index[axis] = 0;
        }
    }
}

/// Copies every element of `from` to its place in `to`. Both layouts have one shape and lie inside their bytes.
pub(crate) fn copy_elements(dtype: DType, from: (&[u8], &Layout), to: (&mut [u8], &Layout)) {
    let ((source, from), (target, to)) = (from, to);
    let bits = storage_bits(dtype);
    let len = from.len();
    if from.is_contiguous()
        && to.is_contiguous()
        && (from.offset * bits).is_multiple_of(8)
        && (to.offset * bits).is_multiple_of(8)
        && (len * bits).is_multiple_of(8)
    {
        let (start, end, bytes) = (from.offset * bits / 8, to.offset * bits / 8, len * bits / 8);
        target[end..end + bytes].copy_from_slice(&source[start..start + bytes]);
        return;
    }
    let (count, by_from, by_to) = match from.shape.last() {
        Some(&count) => (count, from.strides[from.strides.len() - 1], to.strides[to.strides.len() - 1]),
        None => (1, 1, 1),
    };
    if let Some(packing) = packing(dtype) {
        for_each_row(from, to, |a, b| {
            (0..count).for_each(|i| packing.set(target, b + i * by_to, packing.get(source, a + i * by_from)));
        });
        return;
    }
    match bits {
        8 => copy_rows::<1>(source, target, (from, to), (count, by_from, by_to)),
        16 => copy_rows::<2>(source, target, (from, to), (count, by_from, by_to)),
        32 => copy_rows::<4>(source, target, (from, to), (count, by_from, by_to)),
        _ => copy_rows::<8>(source, target, (from, to), (count, by_from, by_to)),
    }
}

fn copy_rows<const BYTES: usize>(
    source: &[u8],
    target: &mut [u8],
    layouts: (&Layout, &Layout),
    (count, by_from, by_to): (usize, usize, usize),
) {
    for_each_row(layouts.0, layouts.1, |a, b| {
        if by_from == 1 && by_to == 1 {
            target[b * BYTES..(b + count) * BYTES].copy_from_slice(&source[a * BYTES..(a + count) * BYTES]);
            return;
        }
        for i in 0..count {
            let (a, b) = ((a + i * by_from) * BYTES, (b + i * by_to) * BYTES);
            target[b..b + BYTES].copy_from_slice(&source[a..a + BYTES]);
        }
    });
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
