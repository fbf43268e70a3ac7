//! Views of a tensor's layout, and elements copied from one layout to another.

use std::ops::Range;

use tessera_types::DType;
use tessera_types::packed::Packing;

use crate::error::TensorError;

pub(crate) use tessera_launch::{Layout, row_major, storage_bits, storage_bytes};

/// The packing of an array's elements; `None` where they take whole bytes.
pub(crate) fn packing(dtype: DType) -> Option<Packing> {
    if dtype.is_byte_bool() { None } else { Packing::of(dtype) }
}

/// Other layouts of the same memory.
pub(crate) trait Views: Sized {
    /// A range of an axis, every `step`-th element of it.
    fn slice(&self, axis: usize, range: Range<usize>, step: usize) -> Result<Self, TensorError>;

    /// The axes in another order.
    fn permute(&self, axes: &[usize]) -> Result<Self, TensorError>;

    /// What is said of a view that does not fit.
    fn view_error(&self, what: String) -> TensorError;
}

impl Views for Layout {
    fn slice(&self, axis: usize, range: Range<usize>, step: usize) -> Result<Layout, TensorError> {
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

    fn permute(&self, axes: &[usize]) -> Result<Layout, TensorError> {
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

    fn view_error(&self, what: String) -> TensorError {
        TensorError::View { what, shape: self.shape.clone() }
    }
}

/// Calls `run(first, count)` for every run along the last axis, in row-major order; `first` is a position in each layout.
/// Both layouts have one shape.
pub(crate) fn for_each_row(left: &Layout, right: &Layout, mut row: impl FnMut(usize, usize)) {
    let outer = left.shape.len().saturating_sub(1);
    if left.is_empty() {
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
    // A view without elements may begin anywhere, also behind the memory's end.
    if len == 0 {
        return;
    }
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
