//! Float lanes: IEEE arithmetic to nearest, comparisons, elementary functions.

use tessera_ir::attrs::{NanOrder, Predicate};
use tessera_types::{DType, element};

use super::{Float, Int, Strips, map, map2, map3};

macro_rules! float_ops {
    ($name:ident, $ty:ident, $($op:ident => $function:expr,)*) => {
        #[inline(always)]
        pub(in crate::lanes) unsafe fn $name(op: crate::lanes::FloatOp, s: crate::lanes::Strips) {
            use crate::lanes::{FloatOp, map, map2, map3};
            #[inline(always)]
            fn max(a: $ty, b: $ty) -> $ty {
                let larger = if a > b || b.is_nan() { a } else { b };
                // Equal numbers are equal bits, or the two zeros: the positive one is larger.
                if a == b { $ty::from_bits(a.to_bits() & b.to_bits()) } else { larger }
            }
            #[inline(always)]
            fn min(a: $ty, b: $ty) -> $ty {
                let smaller = if a < b || b.is_nan() { a } else { b };
                if a == b { $ty::from_bits(a.to_bits() | b.to_bits()) } else { smaller }
            }
            #[inline(always)]
            fn or_nan(a: $ty, b: $ty, value: $ty) -> $ty {
                if a.is_nan() || b.is_nan() { $ty::NAN } else { value }
            }
            // SAFETY: `Float` operations read and write lanes of this type; unary ones read the first operand only.
            unsafe {
                let (d, a) = (s.dst::<$ty>(), s.src::<$ty>(0));
                match op {
                    FloatOp::Add => map2(d, a, s.src::<$ty>(1), |a, b| a + b),
                    FloatOp::Sub => map2(d, a, s.src::<$ty>(1), |a, b| a - b),
                    FloatOp::Mul => map2(d, a, s.src::<$ty>(1), |a, b| a * b),
                    FloatOp::Div => map2(d, a, s.src::<$ty>(1), |a, b| a / b),
                    FloatOp::Fma => map3(d, a, s.src::<$ty>(1), s.src::<$ty>(2), |a, b, c| a.mul_add(b, c)),
                    FloatOp::Max => map2(d, a, s.src::<$ty>(1), max),
                    FloatOp::Min => map2(d, a, s.src::<$ty>(1), min),
                    FloatOp::MaxNan => map2(d, a, s.src::<$ty>(1), |a, b| or_nan(a, b, max(a, b))),
                    FloatOp::MinNan => map2(d, a, s.src::<$ty>(1), |a, b| or_nan(a, b, min(a, b))),
                    FloatOp::Abs => map(d, a, $ty::abs),
                    FloatOp::Neg => map(d, a, |a| -a),
                    FloatOp::Ceil => map(d, a, $ty::ceil),
                    FloatOp::Floor => map(d, a, $ty::floor),
                    FloatOp::Sqrt => map(d, a, $ty::sqrt),
                    FloatOp::Rem => map2(d, a, s.src::<$ty>(1), |a, b| a % b),
                    FloatOp::Sin => sin(d, a),
                    FloatOp::Cos => cos(d, a),
                    FloatOp::Tan => tan(d, a),
                    FloatOp::Pow => map2(d, a, s.src::<$ty>(1), pow),
                    FloatOp::Atan2 => map2(d, a, s.src::<$ty>(1), atan2),
                    $(FloatOp::$op => map(d, a, $function),)*
                    FloatOp::Flush => map(d, a, |a| if a.abs() < $ty::MIN_POSITIVE { a * 0.0 } else { a }),
                }
            }
        }
    };
}

mod single {
    use crate::kernels::math;
    pub(super) use crate::kernels::math::{atan2, cos, pow, sin, tan};

    float_ops! {
        float32, f32,
        Rsqrt => math::rsqrt,
        Exp => math::exp,
        Exp2 => math::exp2,
        Log => math::log,
        Log2 => math::log2,
        Sinh => math::sinh,
        Cosh => math::cosh,
        Tanh => math::tanh,
    }
}

mod double {
    use super::map;

    fn sin(dst: &mut [f64], src: &[f64]) {
        map(dst, src, f64::sin);
    }

    fn cos(dst: &mut [f64], src: &[f64]) {
        map(dst, src, f64::cos);
    }

    fn tan(dst: &mut [f64], src: &[f64]) {
        map(dst, src, f64::tan);
    }

    fn pow(base: f64, exponent: f64) -> f64 {
        base.powf(exponent)
    }

    fn atan2(y: f64, x: f64) -> f64 {
        y.atan2(x)
    }

    float_ops! {
        float64, f64,
        Rsqrt => |x: f64| 1.0 / x.sqrt(),
        Exp => f64::exp,
        Exp2 => f64::exp2,
        Log => f64::ln,
        Log2 => f64::log2,
        Sinh => f64::sinh,
        Cosh => f64::cosh,
        Tanh => f64::tanh,
    }
}

pub(super) use double::float64;
pub(super) use single::float32;

/// `f16` or `bf16` numbers in `f32` lanes: the product is exact in `f64`, and the sum is rounded to odd there, since it may lie as near as one
/// likes to a midpoint of the narrow format, as a small number added to one does.
#[inline(always)]
pub(super) unsafe fn narrow_fma(dtype: DType, s: Strips) {
    #[inline(always)]
    fn exact(a: f32, b: f32, c: f32) -> f32 {
        let (product, c) = (f64::from(a) * f64::from(b), f64::from(c));
        let sum = product + c;
        // What the sum has lost (Knuth); NaN where there is no number.
        let other = sum - product;
        let lost = (product - (sum - other)) + (c - other);
        let odd = match lost.abs() > 0.0 && sum.to_bits() & 1 == 0 {
            true if (lost > 0.0) == (sum > 0.0) => f64::from_bits(sum.to_bits() + 1),
            true => f64::from_bits(sum.to_bits() - 1),
            false => sum,
        };
        element::f64_to_f32_odd(odd)
    }
    // SAFETY: four strips of `f32`.
    unsafe {
        let (d, a, b, c) = (s.dst::<f32>(), s.src::<f32>(0), s.src::<f32>(1), s.src::<f32>(2));
        match dtype {
            DType::F16 => map3(d, a, b, c, |a, b, c| element::f16_to_f32(element::f32_to_f16(exact(a, b, c)))),
            _ => map3(d, a, b, c, |a, b, c| element::bf16_to_f32(element::f32_to_bf16(exact(a, b, c)))),
        }
    }
}

#[inline(always)]
pub(super) unsafe fn pow_int(width: Float, exponent: Int, s: Strips) {
    // SAFETY: floats and integers of the widths stated.
    unsafe {
        let exponent = |i: usize| match exponent {
            Int::B8 => i64::from(s.src::<i8>(1)[i]),
            Int::B16 => i64::from(s.src::<i16>(1)[i]),
            Int::B32 => i64::from(s.src::<i32>(1)[i]),
            Int::B64 => s.src::<i64>(1)[i],
        };
        match width {
            Float::F32 => {
                let (d, a) = (s.dst::<f32>(), s.src::<f32>(0));
                for i in 0..s.len {
                    d[i] = power(f64::from(a[i]), exponent(i)) as f32;
                }
            }
            Float::F64 => {
                let (d, a) = (s.dst::<f64>(), s.src::<f64>(0));
                for i in 0..s.len {
                    d[i] = power(a[i], exponent(i));
                }
            }
        }
    }
}

/// By squaring.
fn power(base: f64, exponent: i64) -> f64 {
    let mut left = exponent.unsigned_abs();
    let (mut square, mut result) = (base, 1.0);
    while left > 0 {
        if left & 1 == 1 {
            result *= square;
        }
        square *= square;
        left >>= 1;
    }
    if exponent < 0 { 1.0 / result } else { result }
}

#[inline(always)]
pub(super) unsafe fn compare<T: Copy + PartialOrd>(predicate: Predicate, nan: NanOrder, s: Strips) {
    // SAFETY: two strips of `T` and one of bytes.
    unsafe {
        let (d, a, b) = (s.dst::<u8>(), s.src::<T>(0), s.src::<T>(1));
        // A negated comparison is true for NaN.
        #[allow(clippy::neg_cmp_op_on_partial_ord, clippy::double_comparisons, reason = "NaN must come out as asked")]
        match (predicate, nan) {
            (Predicate::Eq, NanOrder::Ordered) => map2(d, a, b, |a, b| u8::from(a == b)),
            (Predicate::Ne, NanOrder::Ordered) => map2(d, a, b, |a, b| u8::from(a < b || a > b)),
            (Predicate::Lt, NanOrder::Ordered) => map2(d, a, b, |a, b| u8::from(a < b)),
            (Predicate::Le, NanOrder::Ordered) => map2(d, a, b, |a, b| u8::from(a <= b)),
            (Predicate::Gt, NanOrder::Ordered) => map2(d, a, b, |a, b| u8::from(a > b)),
            (Predicate::Ge, NanOrder::Ordered) => map2(d, a, b, |a, b| u8::from(a >= b)),
            (Predicate::Eq, NanOrder::Unordered) => map2(d, a, b, |a, b| u8::from(!(a < b || a > b))),
            (Predicate::Ne, NanOrder::Unordered) => map2(d, a, b, |a, b| u8::from(a != b)),
            (Predicate::Lt, NanOrder::Unordered) => map2(d, a, b, |a, b| u8::from(!(a >= b))),
            (Predicate::Le, NanOrder::Unordered) => map2(d, a, b, |a, b| u8::from(!(a > b))),
            (Predicate::Gt, NanOrder::Unordered) => map2(d, a, b, |a, b| u8::from(!(a <= b))),
            (Predicate::Ge, NanOrder::Unordered) => map2(d, a, b, |a, b| u8::from(!(a < b))),
        }
    }
}
