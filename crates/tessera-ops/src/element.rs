//! What a stored number can be: reference results are clamped as a saturating store clamps them.

use tessera_types::{DType, FloatFormat, IntFormat, Overflow};

/// The value that a correctly rounded store of `want` would be near to: formats that saturate hold nothing beyond their largest number.
pub(crate) fn storable(dtype: DType, want: f64) -> f64 {
    match FloatFormat::of(dtype) {
        Some(format) if format.overflow() == Overflow::Saturate => want.clamp(-format.max_finite(), format.max_finite()),
        _ => want,
    }
}

/// Half the distance between the smallest positive number and zero: what rounding a tiny result can lose.
pub(crate) fn underflow(dtype: DType) -> f64 {
    FloatFormat::of(dtype).map_or(0.0, |format| format.decode(1).abs() * 0.5)
}

/// The bits of an integer in a type, wrapped.
pub(crate) fn wrap(dtype: DType, value: i64) -> u64 {
    let bits = dtype.bits();
    debug_assert!(IntFormat::of(dtype).is_some());
    value as u64 & (u64::MAX >> (64 - bits))
}
