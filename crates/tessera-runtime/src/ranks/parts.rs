//! Parts of tensors: cutting, joining, combining.

use tessera_types::DType;

use crate::numbers::bytes_of_codes;
use crate::ranks::call::Reduction;
use crate::ranks::error::ExchangeError;
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

/// The parts one after another along an axis, in new memory on the same device.
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
    Ok(whole.to_device(&first.device())?)
}

/// The tensors combined element by element, from the first to the last, in new memory. Narrow floats are combined in `f32` and
/// rounded once, integers wrap, a not-a-number is ignored by extremes, and of zeros +0 is the larger, as in kernels.
pub(super) fn combined(tensors: &[Tensor], reduction: Reduction) -> Result<Tensor, ExchangeError> {
    let Some((first, rest)) = tensors.split_first() else {
        return Err(ExchangeError::Mismatch { reason: "there is nothing to combine".to_string() });
    };
    same(tensors)?;
    let (dtype, count) = (first.dtype(), tensors.len());
    if dtype.is_float() {
        let rounded = |value: f64| if dtype == DType::F64 { value } else { f64::from(value as f32) };
        let mut sum = first.to_f64()?;
        for tensor in rest {
            for (a, b) in sum.iter_mut().zip(tensor.to_f64()?) {
                *a = rounded(match reduction {
                    Reduction::Sum | Reduction::Avg => *a + b,
                    Reduction::Prod => *a * b,
                    Reduction::Max => larger(*a, b),
                    Reduction::Min => -larger(-*a, -b),
                });
            }
        }
        if reduction == Reduction::Avg {
            sum.iter_mut().for_each(|value| *value = rounded(*value / count as f64));
        }
        return Ok(Tensor::from_f64(dtype, first.shape(), &sum)?);
    }
    let bits = dtype.bits();
    let read = |code: u64| -> i128 {
        let (shift, signed) = (64 - bits, dtype.is_signed());
        if signed { i128::from(((code << shift) as i64) >> shift) } else { i128::from(code) }
    };
    let code = |value: i128| value as u64 & (u64::MAX >> (64 - bits));
    let mut codes = first.to_codes()?;
    for tensor in rest {
        for (a, b) in codes.iter_mut().zip(tensor.to_codes()?) {
            let (x, y) = (read(*a), read(b));
            *a = code(match reduction {
                Reduction::Sum | Reduction::Avg => x.wrapping_add(y),
                Reduction::Prod => x.wrapping_mul(y),
                Reduction::Max => x.max(y),
                Reduction::Min => x.min(y),
            });
        }
    }
    if reduction == Reduction::Avg {
        codes.iter_mut().for_each(|value| *value = code(read(*value) / count as i128));
    }
    Ok(Tensor::from_bytes(dtype, first.shape(), &bytes_of_codes(dtype, &codes))?)
}

/// The larger of two numbers, of which -0 is smaller than +0.
fn larger(a: f64, b: f64) -> f64 {
    if a == b && a.is_sign_negative() { b } else { a.max(b) }
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
