//! Directed rounding: the nearest result and the exact sign of its error give the neighbour on the wanted side.
//!
//! Sums, products and fused products of two `f32` (or narrower) numbers are taken as `high + low`, two `f64` numbers that hold
//! the value exactly; for quotients, roots and `f64` itself the error's sign comes from a fused multiply-add. Results below the
//! smallest normal `f64` may be off by one place in `f64`.

use tessera_ir::attrs::Rounding;
use tessera_types::{DType, FloatFormat};

use super::convert::rounding_of;
use super::{DirectedOp, Strips};

/// `a + b` exactly, as the nearest number and what it misses.
fn two_sum(a: f64, b: f64) -> (f64, f64) {
    let sum = a + b;
    let of_b = sum - a;
    (sum, (a - (sum - of_b)) + (b - of_b))
}

/// The nearest result and a number with the sign of what it misses.
fn nearest(op: DirectedOp, a: f64, b: f64, c: f64) -> (f64, f64) {
    match op {
        DirectedOp::Add => two_sum(a, b),
        DirectedOp::Sub => two_sum(a, -b),
        DirectedOp::Mul => {
            let product = a * b;
            (product, a.mul_add(b, -product))
        }
        DirectedOp::Div => {
            let quotient = a / b;
            let rest = (-quotient).mul_add(b, a);
            (quotient, if b < 0.0 { -rest } else { rest })
        }
        DirectedOp::Sqrt => {
            let root = a.sqrt();
            (root, (-root).mul_add(root, a))
        }
        DirectedOp::Fma => {
            let result = a.mul_add(b, c);
            let product = a * b;
            let product_low = a.mul_add(b, -product);
            let (sum, sum_low) = two_sum(product, c);
            let (rest, rest_low) = two_sum(sum - result, sum_low);
            let (total, total_low) = two_sum(rest, product_low);
            (result, total + (total_low + rest_low))
        }
    }
}

/// The neighbour of `value + error` in `f64` in the direction asked for, `f64::MAX` standing for what overflows toward zero.
fn adjust(value: f64, error: f64, rounding: tessera_types::Rounding) -> f64 {
    use tessera_types::Rounding;
    if value.is_nan() {
        return value;
    }
    if value.is_infinite() {
        // Only an overflow misses something; the operands' own infinities give a NaN error.
        let back = match rounding {
            Rounding::TowardZero => true,
            Rounding::Down => value > 0.0,
            Rounding::Up => value < 0.0,
            Rounding::NearestEven | Rounding::NearestAway => false,
        };
        return if back && error.is_infinite() { f64::MAX.copysign(value) } else { value };
    }
    let down = match rounding {
        Rounding::TowardZero => value > 0.0,
        Rounding::Down => true,
        Rounding::Up => false,
        Rounding::NearestEven | Rounding::NearestAway => return value,
    };
    match (down, error) {
        (true, e) if e < 0.0 => value.next_down(),
        (false, e) if e > 0.0 => value.next_up(),
        _ => value,
    }
}

fn one(op: DirectedOp, format: &FloatFormat, rounding: tessera_types::Rounding, a: f64, b: f64, c: f64) -> u64 {
    let (value, error) = nearest(op, a, b, c);
    if a.is_infinite() || b.is_infinite() || c.is_infinite() || value.is_nan() || (op == DirectedOp::Div && b == 0.0) {
        return format.encode(value, rounding, tessera_types::Overflow::Ieee);
    }
    if value == 0.0 && error == 0.0 && matches!(op, DirectedOp::Add | DirectedOp::Sub | DirectedOp::Fma) {
        // An exact zero from cancelling operands is negative only when rounding down.
        let (left, right) = match op {
            DirectedOp::Fma => (a * b, c),
            DirectedOp::Sub => (a, -b),
            _ => (a, b),
        };
        let positive = left.to_bits() == 0 && right.to_bits() == 0;
        let zero = if !positive && rounding == tessera_types::Rounding::Down { -0.0 } else { value };
        return format.encode(zero, rounding, tessera_types::Overflow::Ieee);
    }
    let toward_error = if format.mantissa_bits == 52 {
        let error = if value.is_infinite() { f64::INFINITY } else { error };
        adjust(value, error, rounding)
    } else {
        // Round to odd: a second rounding, to far fewer bits, then sees on which side the exact value lies.
        let odd = if error == 0.0 || value.to_bits() & 1 == 1 {
            value
        } else if (error > 0.0) == (value > 0.0) {
            f64::from_bits(value.to_bits() | 1)
        } else {
            f64::from_bits(value.to_bits() - 1)
        };
        if value == 0.0 { value } else { odd }
    };
    format.encode(toward_error, rounding, tessera_types::Overflow::Ieee)
}

pub(super) unsafe fn apply(op: DirectedOp, dtype: DType, rounding: Rounding, s: Strips) {
    let Some(format) = FloatFormat::of(dtype) else { return };
    let rounding = rounding_of(rounding);
    let binary = op != DirectedOp::Sqrt;
    for i in 0..s.len {
        // SAFETY: lanes are `f64` for `f64` and `f32` for every other format; operands that the operation lacks are not read.
        unsafe {
            if dtype == DType::F64 {
                let b = if binary { s.src::<f64>(1)[i] } else { 0.0 };
                let c = if op == DirectedOp::Fma { s.src::<f64>(2)[i] } else { 0.0 };
                s.dst::<f64>()[i] = f64::from_bits(one(op, format, rounding, s.src::<f64>(0)[i], b, c));
            } else {
                let b = if binary { f64::from(s.src::<f32>(1)[i]) } else { 0.0 };
                let c = if op == DirectedOp::Fma { f64::from(s.src::<f32>(2)[i]) } else { 0.0 };
                let code = one(op, format, rounding, f64::from(s.src::<f32>(0)[i]), b, c);
                s.dst::<f32>()[i] = format.decode(code) as f32;
            }
        }
    }
}
