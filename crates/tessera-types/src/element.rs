//! Conversions of one element, without branches: inlined into a loop they become vector code.
//!
//! They round to nearest even and treat overflow as the language does (8-bit and smaller formats saturate), so each equals
//! [`FloatFormat::encode_nearest`](crate::FloatFormat::encode_nearest) or [`FloatFormat::decode`](crate::FloatFormat::decode)
//! of its format, NaN payloads of widening conversions aside. Slices: [`convert`](crate::convert).
//!
//! # Narrowing with integers
//! Write `a` for the bits of |x| and p, b for the target's mantissa bits and bias. A normal result is `a` with `23 - p` bits
//! rounded away and the exponent's bias changed: adding `half - 1 + (last kept bit)` before the shift rounds to nearest
//! even, and a carry out of the mantissa is the next exponent, as it should be. For a subnormal result the processor rounds:
//! |x| + M, with M the power of two whose last place is the target's smallest subnormal, holds the code in its low bits.
//!
//! # From `f64`
//! [`f64_to_f32_odd`] keeps the fact that something was cut off in the last bit, so that a second rounding, to at most 22
//! bits, gives what one rounding would have.

use crate::format::FloatFormat;
use crate::rounding::Overflow;

/// The bits that conversions need of a target narrower than `f32`.
struct Narrow {
    mantissa_bits: u32,
    bias: u32,
    /// The bits of the `f32` beyond which every number gives the same code.
    clamp: u32,
    nan: u32,
    sign_shift: u32,
}

impl Narrow {
    const fn new(format: &FloatFormat) -> Narrow {
        let nan = match format.nan_code() {
            Some(code) => code as u32,
            None => format.max_finite_code() as u32,
        };
        let largest = (format.max_finite() as f32).to_bits();
        Narrow {
            mantissa_bits: format.mantissa_bits,
            bias: format.bias as u32,
            clamp: match format.overflow() {
                Overflow::Saturate => largest,
                // The next power of two rounds to infinity.
                Overflow::Ieee => (largest | 0x007f_ffff) + 1,
            },
            nan,
            sign_shift: 32 - format.bits(),
        }
    }
}

#[inline(always)]
fn narrow(x: f32, to: &Narrow) -> u32 {
    let bits = x.to_bits();
    let sign = (bits & 0x8000_0000) >> to.sign_shift;
    let magnitude = bits & 0x7fff_ffff;
    let clamped = magnitude.min(to.clamp);

    let cut = 23 - to.mantissa_bits;
    let half = (1 << (cut - 1)) - 1;
    let rounded = clamped + half + ((clamped >> cut) & 1);
    let normal = (rounded >> cut).wrapping_sub((127 - to.bias) << to.mantissa_bits);

    let smallest_normal = (128 - to.bias) << 23;
    let magic = (128 - to.bias + cut) << 23;
    let subnormal = (f32::from_bits(clamped) + f32::from_bits(magic)).to_bits().wrapping_sub(magic);

    let code = if clamped < smallest_normal { subnormal } else { normal } | sign;
    if magnitude > 0x7f80_0000 { to.nan } else { code }
}

const F16: Narrow = Narrow::new(&FloatFormat::F16);
const F8E4M3: Narrow = Narrow::new(&FloatFormat::F8E4M3);
const F8E5M2: Narrow = Narrow::new(&FloatFormat::F8E5M2);
const F6E2M3: Narrow = Narrow::new(&FloatFormat::F6E2M3);
const F6E3M2: Narrow = Narrow::new(&FloatFormat::F6E3M2);
const F4E2M1: Narrow = Narrow::new(&FloatFormat::F4E2M1);

/// `f32` to `f16`.
#[inline(always)]
pub fn f32_to_f16(x: f32) -> u16 {
    narrow(x, &F16) as u16
}

/// `f32` to `f8e4m3`, saturating.
#[inline(always)]
pub fn f32_to_f8e4m3(x: f32) -> u8 {
    narrow(x, &F8E4M3) as u8
}

/// `f32` to `f8e5m2`, saturating.
#[inline(always)]
pub fn f32_to_f8e5m2(x: f32) -> u8 {
    narrow(x, &F8E5M2) as u8
}

/// `f32` to `f6e2m3`, saturating; the code stands in the low six bits.
#[inline(always)]
pub fn f32_to_f6e2m3(x: f32) -> u8 {
    narrow(x, &F6E2M3) as u8
}

/// `f32` to `f6e3m2`, saturating; the code stands in the low six bits.
#[inline(always)]
pub fn f32_to_f6e3m2(x: f32) -> u8 {
    narrow(x, &F6E3M2) as u8
}

/// `f32` to `f4e2m1`, saturating; the code stands in the low four bits.
#[inline(always)]
pub fn f32_to_f4e2m1(x: f32) -> u8 {
    narrow(x, &F4E2M1) as u8
}

/// `f32` to `bf16`.
#[inline(always)]
pub fn f32_to_bf16(x: f32) -> u16 {
    let bits = x.to_bits();
    let rounded = bits.wrapping_add(0x7fff + ((bits >> 16) & 1)) >> 16;
    if x.is_nan() { 0x7fc0 } else { rounded as u16 }
}

/// `f32` to `tf32`, to nearest even: `cvt.rn.tf32.f32`.
#[inline(always)]
pub fn f32_to_tf32(x: f32) -> f32 {
    let bits = x.to_bits();
    let rounded = bits.wrapping_add(0x0fff + ((bits >> 13) & 1)) & 0xffff_e000;
    f32::from_bits(if x.is_nan() { 0x7fc0_0000 } else { rounded })
}

/// `f32` to `tf32`, to nearest with ties away from zero: `cvt.rna.tf32.f32`.
#[inline(always)]
pub fn f32_to_tf32_away(x: f32) -> f32 {
    let rounded = x.to_bits().wrapping_add(0x1000) & 0xffff_e000;
    f32::from_bits(if x.is_nan() { 0x7fc0_0000 } else { rounded })
}

/// `f32` to the `e8m0` scale nearest to it, the larger of two equally near, saturating; NaN for negative numbers.
#[inline(always)]
pub fn f32_to_e8m0(x: f32) -> u8 {
    scale(x, 0x0040_0000, 0x0060_0000)
}

/// `f32` to the smallest `e8m0` scale that is no less, saturating: `cvt.rp.satfinite.ue8m0x2.f32`; NaN for negative numbers.
#[inline(always)]
pub fn f32_to_e8m0_up(x: f32) -> u8 {
    scale(x, 0x007f_ffff, 0x0040_0001)
}

/// `increment` rounds the exponent of a normal `f32`; below those the scales are 2^-127 and 2^-126, the upper one from the
/// bits `upper` on.
#[inline(always)]
fn scale(x: f32, increment: u32, upper: u32) -> u8 {
    let bits = x.to_bits() & 0x7fff_ffff;
    let normal = ((bits + increment) >> 23).min(0xfe);
    let subnormal = u32::from(bits >= upper);
    let code = if bits < 0x0080_0000 { subnormal } else { normal };
    if x.is_nan() || x < 0.0 { 0xff } else { code as u8 }
}

/// `f16` to `f32`, exactly.
#[inline(always)]
pub fn f16_to_f32(bits: u16) -> f32 {
    const REBIAS: u32 = (127 - 15) << 23;
    const SMALLEST_NORMAL: u32 = (128 - 15) << 23;
    let magnitude = u32::from(bits & 0x7fff);
    let shifted = magnitude << 13;
    let subnormal = f32::from_bits(shifted + SMALLEST_NORMAL) - f32::from_bits(SMALLEST_NORMAL);
    let special = if magnitude >= 0x7c00 { REBIAS } else { 0 };
    let normal = shifted + REBIAS + special;
    let value = if magnitude < 0x0400 { subnormal.to_bits() } else { normal };
    f32::from_bits(value | u32::from(bits & 0x8000) << 16)
}

/// `bf16` to `f32`, exactly.
#[inline(always)]
pub fn bf16_to_f32(bits: u16) -> f32 {
    f32::from_bits(u32::from(bits) << 16)
}

/// `e8m0` to `f32`, exactly: the smallest scale is a subnormal number there.
#[inline(always)]
pub fn e8m0_to_f32(code: u8) -> f32 {
    let bits = match code {
        0 => 0x0040_0000,
        0xff => 0x7fc0_0000,
        _ => u32::from(code) << 23,
    };
    f32::from_bits(bits)
}

/// `f64` to the `f32` next to it whose last bit is one, unless it is an `f32` already.
#[inline(always)]
pub fn f64_to_f32_odd(x: f64) -> f32 {
    let nearest = x as f32;
    let widened = f64::from(nearest);
    let truncated = nearest.to_bits().wrapping_sub(u32::from(widened.abs() > x.abs()));
    if widened == x || x.is_nan() { nearest } else { f32::from_bits(truncated | 1) }
}

/// `f64` to `f16`, rounded once.
#[inline(always)]
pub fn f64_to_f16(x: f64) -> u16 {
    f32_to_f16(f64_to_f32_odd(x))
}

/// `f64` to `bf16`, rounded once.
#[inline(always)]
pub fn f64_to_bf16(x: f64) -> u16 {
    f32_to_bf16(f64_to_f32_odd(x))
}

/// The number of an `i4` code; the four high bits are ignored.
#[inline(always)]
pub fn i4_to_i8(code: u8) -> i8 {
    (code << 4) as i8 >> 4
}

/// The `i4` code of a number, which wraps.
#[inline(always)]
pub fn i8_to_i4(x: i8) -> u8 {
    x as u8 & 0xf
}

macro_rules! tables {
    ($($(#[$doc:meta])* $function:ident $table:ident $format:ident $entries:literal)*) => {$(
        static $table: [f32; $entries] = {
            let mut table = [0.0; $entries];
            let mut code = 0;
            while code < $entries {
                table[code] = FloatFormat::$format.decode(code as u64) as f32;
                code += 1;
            }
            table
        };

        $(#[$doc])*
        #[inline(always)]
        pub fn $function(code: u8) -> f32 {
            $table[code as usize & ($entries - 1)]
        }
    )*};
}

tables! {
    /// `f8e4m3` to `f32`, exactly.
    f8e4m3_to_f32 F8E4M3_VALUES F8E4M3 256
    /// `f8e5m2` to `f32`, exactly.
    f8e5m2_to_f32 F8E5M2_VALUES F8E5M2 256
    /// `f6e2m3` to `f32`, exactly; the two high bits are ignored.
    f6e2m3_to_f32 F6E2M3_VALUES F6E2M3 64
    /// `f6e3m2` to `f32`, exactly; the two high bits are ignored.
    f6e3m2_to_f32 F6E3M2_VALUES F6E3M2 64
    /// `f4e2m1` to `f32`, exactly; the four high bits are ignored.
    f4e2m1_to_f32 F4E2M1_VALUES F4E2M1 16
}
