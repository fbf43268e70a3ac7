//! Conversions of slices, for hot paths: the loops vectorise, and `f16` uses the processor's own instructions where present.
//!
//! `a_to_b(src, dst)` converts each element as [`element`]'s function of the same name. Both slices must have one length.
//! Sub-byte codes take a byte each; [`packed`](mod@crate::packed) packs them. All but the `f16` ones are inlined: a caller
//! compiled for wider vectors gets them.
//!
//! ```
//! let mut codes = [0; 3];
//! tessera_types::convert::f32_to_bf16(&[1.0, -2.0, 3.0], &mut codes);
//! assert_eq!(codes, [0x3f80, 0xc000, 0x4040]);
//! ```

use half::f16;
use half::slice::{HalfBitsSliceExt, HalfFloatSliceExt};

use crate::element;

/// Elements converted before their NaNs are rewritten, while they are still in the first-level cache.
const STRIP: usize = 4096;

macro_rules! slices {
    ($($(#[$doc:meta])* $name:ident: $from:ty => $to:ty;)*) => {$(
        $(#[$doc])*
        ///
        /// # Panics
        /// If the slices differ in length.
        #[inline(always)]
        pub fn $name(src: &[$from], dst: &mut [$to]) {
            assert_eq!(src.len(), dst.len(), "slices of one length");
            for (to, &from) in dst.iter_mut().zip(src) {
                *to = element::$name(from);
            }
        }
    )*};
}

slices! {
    /// `f32` to `bf16`.
    f32_to_bf16: f32 => u16;
    /// `bf16` to `f32`.
    bf16_to_f32: u16 => f32;
    /// `f64` to `f16`, rounded once.
    f64_to_f16: f64 => u16;
    /// `f64` to `bf16`, rounded once.
    f64_to_bf16: f64 => u16;
    /// `f32` to `tf32`, to nearest even.
    f32_to_tf32: f32 => f32;
    /// `f32` to `tf32`, ties away from zero.
    f32_to_tf32_away: f32 => f32;
    /// `f32` to `f8e4m3`, saturating.
    f32_to_f8e4m3: f32 => u8;
    /// `f8e4m3` to `f32`.
    f8e4m3_to_f32: u8 => f32;
    /// `f32` to `f8e5m2`, saturating.
    f32_to_f8e5m2: f32 => u8;
    /// `f8e5m2` to `f32`.
    f8e5m2_to_f32: u8 => f32;
    /// `f32` to `f6e2m3`, saturating.
    f32_to_f6e2m3: f32 => u8;
    /// `f6e2m3` to `f32`.
    f6e2m3_to_f32: u8 => f32;
    /// `f32` to `f6e3m2`, saturating.
    f32_to_f6e3m2: f32 => u8;
    /// `f6e3m2` to `f32`.
    f6e3m2_to_f32: u8 => f32;
    /// `f32` to `f4e2m1`, saturating.
    f32_to_f4e2m1: f32 => u8;
    /// `f4e2m1` to `f32`.
    f4e2m1_to_f32: u8 => f32;
    /// `f32` to the nearest `e8m0` scale, saturating.
    f32_to_e8m0: f32 => u8;
    /// `f32` to the smallest `e8m0` scale that is no less, saturating.
    f32_to_e8m0_up: f32 => u8;
    /// `e8m0` to `f32`.
    e8m0_to_f32: u8 => f32;
    /// `i4` codes to their numbers.
    i4_to_i8: u8 => i8;
    /// Numbers to `i4` codes, wrapping.
    i8_to_i4: i8 => u8;
}

/// `f32` to `f16`.
///
/// # Panics
/// If the slices differ in length.
pub fn f32_to_f16(src: &[f32], dst: &mut [u16]) {
    assert_eq!(src.len(), dst.len(), "slices of one length");
    for (to, from) in dst.chunks_mut(STRIP).zip(src.chunks(STRIP)) {
        to.reinterpret_cast_mut::<f16>().convert_from_f32_slice(from);
        for code in to {
            *code = if *code & 0x7fff > 0x7c00 { 0x7e00 } else { *code };
        }
    }
}

/// `f16` to `f32`.
///
/// # Panics
/// If the slices differ in length.
pub fn f16_to_f32(src: &[u16], dst: &mut [f32]) {
    assert_eq!(src.len(), dst.len(), "slices of one length");
    src.reinterpret_cast::<f16>().convert_to_f32_slice(dst);
}
