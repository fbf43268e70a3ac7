//! Parts of tensors: cutting, joining, combining.

use tessera_ir::attrs::Combine;
use tessera_types::DType;

use crate::numbers::bytes_of_codes;
use crate::ranks::communicator::ExchangeError;
use crate::tensor::Tensor;

/// The part at a position of `count` equal parts along an axis: a view.
pub(super) fn part(tensor: &Tensor, axis: usize, count: usize, position: usize) -> Result<Tensor, ExchangeError> {
    let extent = tensor.shape().get(axis).copied().unwrap_or(0);
    if count == 0 || !extent.is_multiple_of(count) {
        let reason = format!("axis {axis} of {:?} does not divide by {count} ranks", tensor.shape());
        return Err(ExchangeError::Mismatch { reason });
    }
    let size = extent / count;
    Ok(tensor.slice(axis, position * size..(position + 1) * size, 1)?)
}

/// The parts one after another along an axis, in new memory.
pub(super) fn joined(parts: &[Tensor], axis: usize) -> Result<Tensor, ExchangeError> {
    let Some(first) = parts.first() else {
        return Err(ExchangeError::Mismatch { reason: "there is no part".to_string() });
    };
    same(parts)?;
    let mut shape = first.shape().to_vec();
    let size = shape.get(axis).copied().unwrap_or(0);
    if let Some(extent) = shape.get_mut(axis) {
        *extent *= parts.len();
    }
    let whole = Tensor::zeros(first.dtype(), &shape)?;
    for (position, part) in parts.iter().enumerate() {
        whole.slice(axis, position * size..(position + 1) * size, 1)?.copy_from(part)?;
    }
    Ok(whole)
}

/// The tensors combined element by element, from the first to the last, in new memory. Narrow floats are summed up in `f32` and
/// rounded once, integers wrap, a not-a-number is ignored by extremes.
pub(super) fn combined(tensors: &[Tensor], combine: Combine) -> Result<Tensor, ExchangeError> {
    let Some((first, rest)) = tensors.split_first() else {
        return Err(ExchangeError::Mismatch { reason: "there is nothing to combine".to_string() });
    };
    same(tensors)?;
    let dtype = first.dtype();
    if dtype.is_float() {
        let mut sum = first.to_f64()?;
        for tensor in rest {
            for (a, b) in sum.iter_mut().zip(tensor.to_f64()?) {
                let value = match combine {
                    Combine::Sum => *a + b,
                    Combine::Prod => *a * b,
                    Combine::Max => a.max(b),
                    Combine::Min => a.min(b),
                };
                *a = if dtype == DType::F64 { value } else { f64::from(value as f32) };
            }
        }
        return Ok(Tensor::from_f64(dtype, first.shape(), &sum)?);
    }
    let bits = dtype.bits();
    let read = |code: u64| -> i128 {
        let (shift, signed) = (64 - bits, dtype.is_signed());
        if signed { i128::from(((code << shift) as i64) >> shift) } else { i128::from(code) }
    };
    let mut codes = first.to_codes()?;
    for tensor in rest {
        for (a, b) in codes.iter_mut().zip(tensor.to_codes()?) {
            let (x, y) = (read(*a), read(b));
            let value = match combine {
                Combine::Sum => x.wrapping_add(y),
                Combine::Prod => x.wrapping_mul(y),
                Combine::Max => x.max(y),
                Combine::Min => x.min(y),
            };
            *a = value as u64 & (u64::MAX >> (64 - bits));
        }
    }
    Ok(Tensor::from_bytes(dtype, first.shape(), &bytes_of_codes(dtype, &codes))?)
}

fn same(tensors: &[Tensor]) -> Result<(), ExchangeError> {
    let Some(first) = tensors.first() else { return Ok(()) };
    match tensors.iter().find(|other| other.shape() != first.shape() || other.dtype() != first.dtype()) {
        None => Ok(()),
        Some(other) => {
            let describe = |tensor: &Tensor| format!("{}{:?}", tensor.dtype(), tensor.shape());
            Err(ExchangeError::Mismatch { reason: format!("{} and {}", describe(first), describe(other)) })
        }
    }
}
