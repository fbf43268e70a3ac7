//! Arithmetic on compile-time elements, with the executors' meaning bit for bit.
//!
//! Integers wrap at their width. `f16` and `bf16` are computed in `f32` and rounded; for the operations here that equals
//! rounding once. What an executor may approximate, what depends on NaN payloads or on flushing, and what is an error (a zero
//! divisor, a shift by the width) is left alone: the answer is `None`.

use tessera_ir::attrs::{NanOrder, Predicate, Rounding, Signedness};
use tessera_ir::{Const, ConstData, ScheduleOp};
use tessera_types::{DType, FloatFormat, IntFormat};

/// Tiles with more elements than this are not folded unless every element is the same.
const MAX_DENSE: usize = 4096;

/// The result of an elementwise operation on constants, with elements of type `result`.
pub(crate) fn elementwise(kind: &ScheduleOp, operands: &[&Const], result: DType) -> Option<Const> {
    let lengths = operands.iter().filter_map(|operand| match &operand.data {
        ConstData::Dense(items) => Some(items.len()),
        ConstData::Splat(_) => None,
    });
    let length = lengths.max();
    if length.is_some_and(|length| length > MAX_DENSE) {
        return None;
    }
    let element = |i: usize| {
        let inputs: smallvec::SmallVec<[(DType, u64); 3]> = operands
            .iter()
            .map(|operand| {
                let bits = match &operand.data {
                    ConstData::Splat(bits) => *bits,
                    ConstData::Dense(items) => items[i],
                };
                (operand.dtype, bits)
            })
            .collect();
        scalar(kind, &inputs, result)
    };
    match length {
        None => Some(Const::splat(result, element(0)?)),
        Some(length) => {
            let items: Option<Vec<u64>> = (0..length).map(element).collect();
            Some(Const { dtype: result, data: ConstData::Dense(items?.into()) })
        }
    }
}

/// The result of an elementwise operation on single elements.
fn scalar(kind: &ScheduleOp, inputs: &[(DType, u64)], result: DType) -> Option<u64> {
    let (dtype, bits) = *inputs.first()?;
    match kind {
        ScheduleOp::Select {} => return Some(if bits != 0 { inputs[1].1 } else { inputs[2].1 }),
        ScheduleOp::Bitcast {} => return (dtype != DType::TF32 && result != DType::TF32).then_some(bits),
        ScheduleOp::FToF { rounding } => {
            let value = number(dtype, bits)?;
            let format = FloatFormat::of(result)?;
            return Some(format.encode(value, ieee(*rounding)?, format.overflow()));
        }
        ScheduleOp::FToI { signedness, rounding } => {
            let value = number(dtype, bits)?;
            return Some(int_format(result, *signedness)?.from_float(value, ieee(*rounding)?));
        }
        ScheduleOp::IToF { signedness, rounding } => {
            let format = FloatFormat::of(result)?;
            let value = int_format(dtype, *signedness)?.exact(bits);
            return Some(format.encode(value, ieee(*rounding)?, format.overflow()));
        }
        _ => {}
    }
    if dtype.is_float() {
        let values: Option<smallvec::SmallVec<[f64; 3]>> = inputs.iter().map(|&(dtype, bits)| number(dtype, bits)).collect();
        return float(kind, dtype, &values?, inputs, result);
    }
    integer(kind, dtype, inputs, result)
}

/// The number that the bits stand for, unless it is NaN.
fn number(dtype: DType, bits: u64) -> Option<f64> {
    Some(FloatFormat::of(dtype)?.decode(bits)).filter(|value| !value.is_nan())
}

fn ieee(rounding: Rounding) -> Option<tessera_types::Rounding> {
    match rounding {
        Rounding::NearestEven => Some(tessera_types::Rounding::NearestEven),
        Rounding::Zero | Rounding::NearestIntToZero => Some(tessera_types::Rounding::TowardZero),
        Rounding::NegativeInf => Some(tessera_types::Rounding::Down),
        Rounding::PositiveInf => Some(tessera_types::Rounding::Up),
        Rounding::NearestAway => Some(tessera_types::Rounding::NearestAway),
        Rounding::Full | Rounding::Approx => None,
    }
}

fn int_format(dtype: DType, signedness: Signedness) -> Option<IntFormat> {
    let signed = signedness == Signedness::Signed;
    match dtype {
        DType::B1 if signed => None,
        DType::B1 => Some(IntFormat { bits: 1, signed: false }),
        _ => dtype.is_integer().then_some(IntFormat { bits: dtype.bits(), signed }),
    }
}

fn float(kind: &ScheduleOp, dtype: DType, v: &[f64], inputs: &[(DType, u64)], result: DType) -> Option<u64> {
    let format = FloatFormat::of(dtype)?;
    let sign = format.sign_mask();
    match kind {
        ScheduleOp::CmpF { predicate, nan: NanOrder::Ordered | NanOrder::Unordered } => {
            return Some(u64::from(compare(*predicate, v[0].partial_cmp(&v[1])?)));
        }
        ScheduleOp::AbsF {} => return Some(inputs[0].1 & !sign),
        ScheduleOp::NegF {} => return Some(inputs[0].1 ^ sign),
        _ => {}
    }
    if result != dtype {
        return None;
    }
    // Every operand is exact in `f32` unless the type is `f64`; one operation in `f32` is what executors do.
    let round = |double: fn(&[f64]) -> f64, single: fn(&[f32]) -> f32| -> f64 {
        if dtype == DType::F64 {
            return double(v);
        }
        let narrow: smallvec::SmallVec<[f32; 3]> = v.iter().map(|&value| value as f32).collect();
        f64::from(single(&narrow))
    };
    let (value, rounding, flushes) = match kind {
        ScheduleOp::AddF { rounding, flush_to_zero } => (round(|v| v[0] + v[1], |v| v[0] + v[1]), *rounding, *flush_to_zero),
        ScheduleOp::SubF { rounding, flush_to_zero } => (round(|v| v[0] - v[1], |v| v[0] - v[1]), *rounding, *flush_to_zero),
        ScheduleOp::MulF { rounding, flush_to_zero } => (round(|v| v[0] * v[1], |v| v[0] * v[1]), *rounding, *flush_to_zero),
        ScheduleOp::DivF { rounding, flush_to_zero } if v[1] != 0.0 => {
            (round(|v| v[0] / v[1], |v| v[0] / v[1]), *rounding, *flush_to_zero)
        }
        ScheduleOp::Sqrt { rounding, flush_to_zero } => (round(|v| v[0].sqrt(), |v| v[0].sqrt()), *rounding, *flush_to_zero),
        ScheduleOp::Fma { rounding, flush_to_zero } if matches!(dtype, DType::F32 | DType::F64) => {
            (round(|v| v[0].mul_add(v[1], v[2]), |v| v[0].mul_add(v[1], v[2])), *rounding, *flush_to_zero)
        }
        ScheduleOp::Ceil {} => (v[0].ceil(), Rounding::NearestEven, false),
        ScheduleOp::Floor {} => (v[0].floor(), Rounding::NearestEven, false),
        // Which of two zeros of different sign is larger is nobody's promise.
        ScheduleOp::MaxF { flush_to_zero, .. } if v[0] != v[1] => (v[0].max(v[1]), Rounding::NearestEven, *flush_to_zero),
        ScheduleOp::MinF { flush_to_zero, .. } if v[0] != v[1] => (v[0].min(v[1]), Rounding::NearestEven, *flush_to_zero),
        _ => return None,
    };
    let exact = rounding == Rounding::NearestEven && !value.is_nan();
    let small = |value: f64| value != 0.0 && value.abs() < format.min_positive_normal();
    let flushed = flushes && (small(value) || v.iter().any(|&value| small(value)));
    (exact && !flushed).then(|| format.encode(value, tessera_types::Rounding::NearestEven, format.overflow()))
}

/// Whether an ordering satisfies a predicate.
fn compare(predicate: Predicate, ordering: std::cmp::Ordering) -> bool {
    match predicate {
        Predicate::Eq => ordering.is_eq(),
        Predicate::Ne => ordering.is_ne(),
        Predicate::Lt => ordering.is_lt(),
        Predicate::Le => ordering.is_le(),
        Predicate::Gt => ordering.is_gt(),
        Predicate::Ge => ordering.is_ge(),
    }
}

fn integer(kind: &ScheduleOp, dtype: DType, inputs: &[(DType, u64)], result: DType) -> Option<u64> {
    let bits = |position: usize| inputs[position].1;
    match kind {
        ScheduleOp::AndI {} => return Some(bits(0) & bits(1)),
        ScheduleOp::OrI {} => return Some(bits(0) | bits(1)),
        ScheduleOp::XorI {} => return Some(bits(0) ^ bits(1)),
        ScheduleOp::CmpI { predicate: Predicate::Eq, .. } => return Some(u64::from(bits(0) == bits(1))),
        ScheduleOp::CmpI { predicate: Predicate::Ne, .. } => return Some(u64::from(bits(0) != bits(1))),
        ScheduleOp::ExtI { signedness } => {
            return Some(int_format(result, Signedness::Signed)?.wrap(int_format(dtype, *signedness)?.value(bits(0))));
        }
        ScheduleOp::TruncI { .. } if result == DType::B1 => return Some(bits(0) & 1),
        ScheduleOp::TruncI { .. } => return Some(int_format(result, Signedness::Signed)?.wrap(i128::from(bits(0)))),
        _ => {}
    }
    // Arithmetic on truth values is left to the executors.
    let (signed, unsigned) = (int_format(dtype, Signedness::Signed)?, int_format(dtype, Signedness::Unsigned)?);
    let s = |position: usize| signed.value(bits(position));
    let read = |signedness: Signedness, position: usize| match signedness {
        Signedness::Signed => signed.value(bits(position)),
        Signedness::Unsigned => unsigned.value(bits(position)),
    };
    let width = i128::from(dtype.bits());
    let value = match kind {
        ScheduleOp::AbsI {} => s(0).abs(),
        ScheduleOp::NegI { .. } => -s(0),
        ScheduleOp::AddI { .. } => s(0) + s(1),
        ScheduleOp::SubI { .. } => s(0) - s(1),
        ScheduleOp::MulI { .. } => s(0) * s(1),
        ScheduleOp::MulHiI {} => ((unsigned.value(bits(0)) as u128 * unsigned.value(bits(1)) as u128) >> width) as i128,
        ScheduleOp::DivI { signedness, rounding } => {
            let (a, b) = (read(*signedness, 0), read(*signedness, 1));
            if b == 0 || (b == -1 && a == signed.min()) {
                return None;
            }
            divide(a, b, *rounding)?
        }
        ScheduleOp::RemI { signedness } => {
            let (a, b) = (read(*signedness, 0), read(*signedness, 1));
            if b == 0 || (b == -1 && a == signed.min()) {
                return None;
            }
            a % b
        }
        ScheduleOp::MaxI { signedness } => read(*signedness, 0).max(read(*signedness, 1)),
        ScheduleOp::MinI { signedness } => read(*signedness, 0).min(read(*signedness, 1)),
        ScheduleOp::ShlI { .. } if unsigned.value(bits(1)) < width => s(0) << unsigned.value(bits(1)),
        ScheduleOp::ShrI { signedness } if unsigned.value(bits(1)) < width => read(*signedness, 0) >> unsigned.value(bits(1)),
        ScheduleOp::CmpI { predicate, signedness } => {
            return Some(u64::from(compare(*predicate, read(*signedness, 0).cmp(&read(*signedness, 1)))));
        }
        _ => return None,
    };
    Some(signed.wrap(value))
}

/// The quotient, rounded as asked; the divisor is not zero.
fn divide(a: i128, b: i128, rounding: Rounding) -> Option<i128> {
    let (quotient, rest) = (a / b, a % b);
    let negative = (rest < 0) != (b < 0);
    match rounding {
        Rounding::Zero => Some(quotient),
        Rounding::NegativeInf => Some(quotient - i128::from(rest != 0 && negative)),
        Rounding::PositiveInf => Some(quotient + i128::from(rest != 0 && !negative)),
        _ => None,
    }
}
