//! Elementary functions of `f32`, without branches: inlined into a loop they become vector code.
//!
//! Each is within 1.5 units in the last place over all of `f32`, subnormal numbers included, and gives IEEE's values for
//! infinities and NaN. `exp`, `exp2` and `tanh` are computed in `f32`; the others in `f64` with polynomials good for some 34 bits,
//! so they round almost always correctly. Coefficients are fits at Chebyshev nodes to the quotient that the code forms.
//!
//! # How a range is reduced
//! | function | argument | left for the polynomial |
//! |---|---|---|
//! | exp | x = n ln 2 + r | r in [-ln 2 / 2, ln 2 / 2]; the result is scaled by two powers of two, so that subnormals round once |
//! | log | x = 2^e m, m in [sqrt 1/2, sqrt 2) | s = (m - 1) / (m + 1); log m = 2 atanh s |
//! | sin | x = n pi/2 + r, pi/2 in two parts | r in [-pi/4, pi/4]; n mod 4 picks sine or cosine and the sign |
//! | atan | the smaller of y/x and x/y | [0, 1] |
//!
//! [`sin`], [`cos`] and [`tan`] take slices: arguments beyond 2^30 are done again one by one.

#![allow(clippy::excessive_precision, reason = "coefficients carry a digit more than the format")]

/// Adding it to a smaller number leaves the nearest integer in the low bits.
const ROUND32: f32 = 12_582_912.0;
const ROUND64: f64 = 6_755_399_441_055_744.0;

const LN_2_HIGH: f32 = 0.693_145_75;
const LN_2_LOW: f32 = 1.428_606_8e-6;

/// `2^n` for n in -126..=127.
#[inline(always)]
fn power_of_two(n: i32) -> f32 {
    f32::from_bits((n.wrapping_add(127) as u32) << 23)
}

/// The nearest integer, as both types.
#[inline(always)]
fn nearest32(x: f32) -> (f32, i32) {
    let shifted = x + ROUND32;
    (shifted - ROUND32, shifted.to_bits().wrapping_sub(ROUND32.to_bits()) as i32)
}

#[inline(always)]
fn nearest64(x: f64) -> (f64, i64) {
    let shifted = x + ROUND64;
    (shifted - ROUND64, shifted.to_bits().wrapping_sub(ROUND64.to_bits()) as i64)
}

/// `value * 2^n` for n in -252..=254, rounded once; NaN stays NaN for any n.
#[inline(always)]
fn scale(value: f32, n: i32) -> f32 {
    let half = n >> 1;
    value * power_of_two(half) * power_of_two(n.wrapping_sub(half))
}

macro_rules! horner {
    ($t:ident, $x:expr; $last:expr) => { $last };
    ($t:ident, $x:expr; $first:expr, $($rest:expr),+) => { $t::mul_add(horner!($t, $x; $($rest),+), $x, $first) };
}

/// `e^x`.
#[inline(always)]
pub(crate) fn exp(x: f32) -> f32 {
    // Beyond these the result is infinity or zero whatever the argument; comparisons keep NaN.
    let x = if x > 89.0 { 89.0 } else { x };
    let x = if x < -104.5 { -104.5 } else { x };
    let (n, power) = nearest32(x * std::f32::consts::LOG2_E);
    let r = n.mul_add(-LN_2_LOW, n.mul_add(-LN_2_HIGH, x));
    let tail = horner!(f32, r; 5.000_000_000e-1, 1.666_657_703e-1, 4.166_655_466e-2, 8.363_173_075e-3, 1.392_617_612e-3);
    let value = (r * r).mul_add(tail, r) + 1.0;
    scale(value, power)
}

/// `2^x`.
#[inline(always)]
pub(crate) fn exp2(x: f32) -> f32 {
    let x = if x > 129.0 { 129.0 } else { x };
    let x = if x < -151.0 { -151.0 } else { x };
    let (n, power) = nearest32(x);
    let r = x - n;
    let tail = horner!(f32, r; 6.931_471_880e-1, 2.402_265_076e-1, 5.550_357_114e-2, 9.618_082_557e-3, 1.339_086_336e-3, 1.545_316_295e-4);
    let value = r.mul_add(tail, 1.0);
    scale(value, power)
}

/// Hyperbolic tangent.
#[inline(always)]
pub(crate) fn tanh(x: f32) -> f32 {
    let magnitude = x.abs();
    let square = x * x;
    let tail = horner!(f32, square; -3.333_333_315e-1, 1.333_330_015e-1, -5.395_846_163e-2, 2.176_250_291e-2, -8.323_187_058e-3, 2.269_501_684e-3);
    let small = (x * square).mul_add(tail, x);
    let large = 1.0 - 2.0 / (exp(magnitude + magnitude) + 1.0);
    (if magnitude < 0.6 { small } else { large }).copysign(x)
}

/// `e^x` to some 40 bits for |x| < 700.
#[inline(always)]
fn exp_wide(x: f64) -> f64 {
    let (n, power) = nearest64(x * std::f64::consts::LOG2_E);
    let r = n.mul_add(-std::f64::consts::LN_2, x);
    let tail = horner!(f64, r; 4.999_999_999_995_510_8e-1, 1.666_666_666_666_258_6e-1, 4.166_666_678_626_573_1e-2, 8.333_333_344_202_980_4e-3,
        1.388_883_911_057_200_9e-3, 1.984_122_459_965_601_1e-4, 2.486_787_017_968_772_7e-5, 2.761_756_478_587_608_6e-6);
    let value = (r * r).mul_add(tail, r) + 1.0;
    value * f64::from_bits((power.wrapping_add(1023) as u64) << 52)
}

/// The natural logarithm's exponent and logarithm of the fraction, of a positive finite number that came from an `f32`.
#[inline(always)]
fn log_parts(x: f64) -> (f64, f64) {
    const HALF_ROOT: u64 = 0x3fe6_a09e_667f_3bcd;
    let bits = x.to_bits().wrapping_sub(HALF_ROOT);
    let exponent = ((bits as i64) >> 52) as i32;
    let fraction = f64::from_bits((bits & 0x000f_ffff_ffff_ffff).wrapping_add(HALF_ROOT));
    let s = (fraction - 1.0) / (fraction + 1.0);
    let z = s * s;
    let tail = horner!(f64, z; 6.666_666_666_666_206_7e-1, 4.000_000_001_123_117_9e-1, 2.857_142_413_049_097_4e-1, 2.222_286_313_243_770_9e-1,
        1.814_015_655_016_282_8e-1, 1.662_237_988_556_163_9e-1);
    (f64::from(exponent), (s * z).mul_add(tail, s + s))
}

/// A logarithm's values outside the positive finite numbers.
#[inline(always)]
fn log_special(x: f32, finite: f32) -> f32 {
    let zero = if x == 0.0 { f32::NEG_INFINITY } else { finite };
    let negative = if x < 0.0 { f32::NAN } else { zero };
    if x == f32::INFINITY || x.is_nan() { x } else { negative }
}

/// Natural logarithm.
#[inline(always)]
pub(crate) fn log(x: f32) -> f32 {
    let (exponent, fraction) = log_parts(f64::from(x));
    log_special(x, exponent.mul_add(std::f64::consts::LN_2, fraction) as f32)
}

/// Logarithm to base 2.
#[inline(always)]
pub(crate) fn log2(x: f32) -> f32 {
    let (exponent, fraction) = log_parts(f64::from(x));
    log_special(x, fraction.mul_add(std::f64::consts::LOG2_E, exponent) as f32)
}

/// `base` to a power, as IEEE's `pow`.
#[inline(always)]
pub(crate) fn pow(base: f32, exponent: f32) -> f32 {
    let magnitude = base.abs();
    let wide = f64::from(exponent);
    let (whole, fraction) = log_parts(f64::from(magnitude));
    let logarithm = whole.mul_add(std::f64::consts::LN_2, fraction) * wide;
    let logarithm = if logarithm > 200.0 { 200.0 } else { logarithm };
    let logarithm = if logarithm < -200.0 { -200.0 } else { logarithm };
    let finite = exp_wide(logarithm) as f32;

    // Bases 0 and infinity, and exponents infinity: the limit that the signs of log |base| and exponent point to.
    let grows = (magnitude > 1.0) == (exponent > 0.0);
    let limit = if grows { f32::INFINITY } else { 0.0 };
    let limit = if magnitude == 1.0 { 1.0 } else { limit };
    let extreme = magnitude == 0.0 || magnitude == f32::INFINITY || exponent.abs() == f32::INFINITY;
    let value = if extreme { limit } else { finite };

    // A negative base: odd exponents keep the sign, fractions have no result.
    let size = exponent.abs();
    let integral = size.floor() == size;
    let odd = integral && size < 16_777_216.0 && (size * 0.5).floor() * 2.0 != size;
    let negative = base.is_sign_negative();
    let value = if negative && odd { -value } else { value };
    let value = if base < 0.0 && base != f32::NEG_INFINITY && !integral { f32::NAN } else { value };
    let value = if base.is_nan() || exponent.is_nan() { f32::NAN } else { value };
    if exponent == 0.0 || base == 1.0 { 1.0 } else { value }
}

/// Hyperbolic sine.
#[inline(always)]
pub(crate) fn sinh(x: f32) -> f32 {
    let wide = f64::from(x);
    let bounded = wide.clamp(-100.0, 100.0);
    let power = exp_wide(bounded);
    let large = 0.5 * (power - 1.0 / power);
    let z = wide * wide;
    let tail = horner!(f64, z; 1.666_666_666_670_003_1e-1, 8.333_333_331_681_806_8e-3, 1.984_128_291_607_978_8e-4, 2.755_369_855_979_642_7e-6,
        2.546_078_424_446_115_9e-8);
    let small = (wide * z).mul_add(tail, wide);
    if wide.abs() < 1.0 { small as f32 } else { large as f32 }
}

/// Hyperbolic cosine.
#[inline(always)]
pub(crate) fn cosh(x: f32) -> f32 {
    let power = exp_wide(f64::from(x).clamp(-100.0, 100.0));
    (0.5 * (power + 1.0 / power)) as f32
}

/// Angle of the point (x, y).
#[inline(always)]
pub(crate) fn atan2(y: f32, x: f32) -> f32 {
    let (height, width) = (f64::from(y).abs(), f64::from(x).abs());
    let steep = height > width;
    let (small, large) = if steep { (width, height) } else { (height, width) };
    let quotient = small / large;
    let quotient = if large == 0.0 { 0.0 } else { quotient };
    let quotient = if small == f64::INFINITY { 1.0 } else { quotient };
    let z = quotient * quotient;
    let ratio = horner!(f64, z; 9.999_999_999_981_966_7e-1, -3.333_333_326_247_969_7e-1, 1.999_999_534_038_506_3e-1, -1.428_559_239_428_252_9e-1,
        1.110_942_836_433_050_6e-1, -9.076_798_876_650_477e-2, 7.614_250_199_003_121_1e-2, -6.366_092_236_096_826_4e-2,
        5.045_557_752_841_614_6e-2, -3.526_772_086_942_243_9e-2, 1.993_744_283_625_617_2e-2, -8.241_899_893_996_812_8e-3,
        2.162_794_422_156_479_1e-3, -2.666_019_671_926_742_5e-4);
    let angle = quotient * ratio;
    let angle = if steep { std::f64::consts::FRAC_PI_2 - angle } else { angle };
    let angle = if x.is_sign_negative() { std::f64::consts::PI - angle } else { angle };
    let angle = if x.is_nan() || y.is_nan() { f64::NAN } else { angle };
    (angle as f32).copysign(y)
}

/// Reciprocal of the square root.
#[inline(always)]
pub(crate) fn rsqrt(x: f32) -> f32 {
    1.0 / x.sqrt()
}

/// Beyond this the reduction by pi/2 in two parts loses its precision.
const LARGEST_ANGLE: f32 = 1_073_741_824.0;

/// Sine and cosine of what is left of an angle, and the quarter turns taken off.
#[inline(always)]
fn quarter(x: f32) -> (f64, f64, i64) {
    const FRAC_PI_2_LOW: f64 = 6.123_233_995_736_766e-17;
    let x = f64::from(x);
    let (n, turns) = nearest64(x * std::f64::consts::FRAC_2_PI);
    let r = n.mul_add(-FRAC_PI_2_LOW, n.mul_add(-std::f64::consts::FRAC_PI_2, x));
    let z = r * r;
    let sine = horner!(f64, z; -1.666_666_666_362_283_1e-1, 8.333_331_785_217_695_8e-3, -1.984_003_887_255_674_7e-4, 2.724_378_140_946_123_1e-6);
    let cosine = horner!(f64, z; 4.166_666_664_127_209_6e-2, -1.388_888_759_732_781e-3, 2.480_056_042_991_450_5e-5, -2.729_583_082_761_461_7e-7);
    ((r * z).mul_add(sine, r), (z * z).mul_add(cosine, z.mul_add(-0.5, 1.0)), turns)
}

#[inline(always)]
fn turned(sine: f64, cosine: f64, turns: i64) -> f32 {
    let value = if turns & 1 == 0 { sine } else { cosine };
    let sign = ((turns as u64) & 2) << 62;
    f64::from_bits(value.to_bits() ^ sign) as f32
}

/// Applies `fast` everywhere, then `exact` where the angle is too large for it.
#[inline(always)]
fn angles(dst: &mut [f32], src: &[f32], fast: impl Fn(f32) -> f32, exact: fn(f64) -> f64) {
    let mut large = false;
    for (to, &x) in dst.iter_mut().zip(src) {
        *to = fast(x);
        large |= x.abs() > LARGEST_ANGLE;
    }
    if large {
        for (to, &x) in dst.iter_mut().zip(src).filter(|(_, x)| x.abs() > LARGEST_ANGLE) {
            *to = exact(f64::from(x)) as f32;
        }
    }
}

/// Sine of every element.
#[inline(always)]
pub(crate) fn sin(dst: &mut [f32], src: &[f32]) {
    let fast = |x| {
        let (sine, cosine, turns) = quarter(x);
        // Minus zero loses its sign in the reduction.
        if x == 0.0 { x } else { turned(sine, cosine, turns) }
    };
    angles(dst, src, fast, f64::sin);
}

/// Cosine of every element.
#[inline(always)]
pub(crate) fn cos(dst: &mut [f32], src: &[f32]) {
    let fast = |x| {
        let (sine, cosine, turns) = quarter(x);
        turned(sine, cosine, turns.wrapping_add(1))
    };
    angles(dst, src, fast, f64::cos);
}

/// Tangent of every element.
#[inline(always)]
pub(crate) fn tan(dst: &mut [f32], src: &[f32]) {
    let fast = |x| {
        let (sine, cosine, turns) = quarter(x);
        let (over, under) = if turns & 1 == 0 { (sine, cosine) } else { (-cosine, sine) };
        if x == 0.0 { x } else { (over / under) as f32 }
    };
    angles(dst, src, fast, f64::tan);
}

#[cfg(test)]
mod tests;
