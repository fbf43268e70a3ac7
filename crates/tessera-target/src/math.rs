//! Elementary functions of `f32`, and of narrower formats through it. None takes a branch.
//!
//! `exp` takes the power of two below off the argument and leaves the rest to the hardware's `ex2`; `exp2` is that
//! instruction. `tanh` is a polynomial near zero. The others are computed in `f64` with polynomials good for some 34 bits, so
//! that they round almost always correctly; coefficients are fits at Chebyshev nodes to the quotient that the code forms.
//!
//! | function | argument | left for the polynomial |
//! |---|---|---|
//! | log | x = 2^e m, m in [sqrt 1/2, sqrt 2) | s = (m - 1) / (m + 1); log m = 2 atanh s |
//! | sin | x = n pi/2 + r | r in [-pi/4, pi/4]; n mod 4 picks sine or cosine and the sign |
//! | atan | the smaller of y/x and x/y | [0, 1] |

#![allow(clippy::excessive_precision, reason = "coefficients carry a digit more than the format")]

use tessera_ir::attrs::Rounding;
use tessera_ir::{ScheduleOp, bug};
use tessera_ptx::ssa::{Class, Value as Reg};
use tessera_ptx::{Type as Ty, Word};
use tessera_types::DType;

use super::lowering::{Lowered, Lowering};
use super::operation::astray;

/// Adding it to a smaller number leaves the nearest integer in the low bits.
const ROUND32: f32 = 12_582_912.0;
pub(super) const ROUND64: f64 = 6_755_399_441_055_744.0;

const EXP_WIDE: [f64; 8] = [
    4.999_999_999_995_510_8e-1,
    1.666_666_666_666_258_6e-1,
    4.166_666_678_626_573_1e-2,
    8.333_333_344_202_980_4e-3,
    1.388_883_911_057_200_9e-3,
    1.984_122_459_965_601_1e-4,
    2.486_787_017_968_772_7e-5,
    2.761_756_478_587_608_6e-6,
];
const LOG: [f64; 6] = [
    6.666_666_666_666_206_7e-1,
    4.000_000_001_123_117_9e-1,
    2.857_142_413_049_097_4e-1,
    2.222_286_313_243_770_9e-1,
    1.814_015_655_016_282_8e-1,
    1.662_237_988_556_163_9e-1,
];
const SINH: [f64; 5] = [
    1.666_666_666_670_003_1e-1,
    8.333_333_331_681_806_8e-3,
    1.984_128_291_607_978_8e-4,
    2.755_369_855_979_642_7e-6,
    2.546_078_424_446_115_9e-8,
];
const ATAN: [f64; 14] = [
    9.999_999_999_981_966_7e-1,
    -3.333_333_326_247_969_7e-1,
    1.999_999_534_038_506_3e-1,
    -1.428_559_239_428_252_9e-1,
    1.110_942_836_433_050_6e-1,
    -9.076_798_876_650_477e-2,
    7.614_250_199_003_121_1e-2,
    -6.366_092_236_096_826_4e-2,
    5.045_557_752_841_614_6e-2,
    -3.526_772_086_942_243_9e-2,
    1.993_744_283_625_617_2e-2,
    -8.241_899_893_996_812_8e-3,
    2.162_794_422_156_479_1e-3,
    -2.666_019_671_926_742_5e-4,
];
const SINE: [f64; 4] =
    [-1.666_666_666_362_283_1e-1, 8.333_331_785_217_695_8e-3, -1.984_003_887_255_674_7e-4, 2.724_378_140_946_123_1e-6];
const COSINE: [f64; 4] =
    [4.166_666_664_127_209_6e-2, -1.388_888_759_732_781e-3, 2.480_056_042_991_450_5e-5, -2.729_583_082_761_461_7e-7];
const TANH: [f32; 6] = [-3.333_333_3e-1, 1.333_33e-1, -5.395_846e-2, 2.176_250_3e-2, -8.323_187e-3, 2.269_501_7e-3];

impl Lowering<'_> {
    /// A function of floats.
    pub(super) fn function(&mut self, kind: &ScheduleOp, dtype: DType, args: &[Reg]) -> Lowered<Reg> {
        if dtype == DType::F64 {
            return Ok(self.function64(kind, args));
        }
        let mut wide = Vec::new();
        for &arg in args {
            wide.push(self.wide_of(dtype, arg)?);
        }
        let a = wide[0];
        let b = wide.get(1).copied().unwrap_or(a);
        let flush = match kind {
            ScheduleOp::Rsqrt { flush_to_zero } | ScheduleOp::Exp { flush_to_zero, .. } | ScheduleOp::Exp2 { flush_to_zero } => {
                *flush_to_zero
            }
            _ => false,
        };
        let value = match kind {
            ScheduleOp::Exp { rounding, .. } => self.exp(a, flush || *rounding == Rounding::Approx),
            ScheduleOp::Exp2 { .. } => self.op(if flush { "ex2.approx.ftz.f32" } else { "ex2.approx.f32" }, &[a]),
            ScheduleOp::Rsqrt { .. } => {
                if flush {
                    self.op("rsqrt.approx.ftz.f32", &[a])
                } else {
                    self.inverse_root(a)
                }
            }
            ScheduleOp::TanH { rounding: Rounding::Approx } if self.arch.has_fast_tanh() => self.op("tanh.approx.f32", &[a]),
            ScheduleOp::TanH { .. } => self.tanh(a),
            ScheduleOp::Log {} | ScheduleOp::Log2 {} => self.log(a, matches!(kind, ScheduleOp::Log2 {})),
            ScheduleOp::Pow {} => self.pow(a, b),
            ScheduleOp::Sin {} | ScheduleOp::Cos {} | ScheduleOp::Tan {} => self.angle(kind, a),
            ScheduleOp::SinH {} => self.sinh(a),
            ScheduleOp::CosH {} => self.cosh(a),
            ScheduleOp::Atan2 {} => self.atan2(a, b),
            ScheduleOp::RemF {} => {
                let (a, b) = (self.b.cvt(Ty::F64, Ty::F32, a), self.b.cvt(Ty::F64, Ty::F32, b));
                let rest = self.fmod(a, b);
                self.b.cvt(Ty::F32, Ty::F64, rest)
            }
            _ => astray(kind),
        };
        self.rounded(dtype, value)
    }

    // --- pieces

    /// `first + x * (second + ...)` by fused steps.
    pub(super) fn horner64(&mut self, x: Reg, coefficients: &[f64]) -> Reg {
        let [rest @ .., last] = coefficients else { bug!("a polynomial without coefficients") };
        let mut value = self.b.f64(*last);
        for &coefficient in rest.iter().rev() {
            let coefficient = self.b.f64(coefficient);
            value = self.b.fma(Ty::F64, value, x, coefficient);
        }
        value
    }

    /// The nearest integer, as a float and in the low half of an integer.
    pub(super) fn nearest64(&mut self, x: Reg) -> (Reg, Reg) {
        let magic = self.b.f64(ROUND64);
        let shifted = self.b.add(Ty::F64, x, magic);
        let whole = self.b.sub(Ty::F64, shifted, magic);
        let low = self.b.unpack(shifted, Class::B32)[0];
        (whole, low)
    }

    /// A number whose value is the first where the predicate holds, the second elsewhere.
    fn pick(&mut self, compare: Word, ty: Ty, a: Reg, b: Reg, yes: Reg, no: Reg) -> Reg {
        let holds = self.b.setp(compare, ty, a, b);
        self.b.select(holds, yes, no)
    }

    fn single(&mut self, wide: Reg) -> Reg {
        self.b.cvt(Ty::F32, Ty::F64, wide)
    }

    fn double(&mut self, x: Reg) -> Reg {
        self.b.cvt(Ty::F64, Ty::F32, x)
    }

    /// `magnitude` with the sign of `sign`.
    fn with_sign(&mut self, magnitude: Reg, sign: Reg) -> Reg {
        self.op("copysign.f32", &[sign, magnitude])
    }

    /// `1 / sqrt(x)`: the hardware's to 22 bits, and a step of Newton's. Of 0 and infinity it is the hardware's.
    fn inverse_root(&mut self, x: Reg) -> Reg {
        let rough = self.op("rsqrt.approx.f32", &[x]);
        let (one, half) = (self.b.f32(1.0), self.b.f32(0.5));
        let root = self.b.mul(Ty::F32, x, rough);
        let minus_root = self.b.neg(Ty::F32, root);
        let error = self.b.fma(Ty::F32, minus_root, rough, one);
        let part = self.b.mul(Ty::F32, rough, half);
        let refined = self.b.fma(Ty::F32, part, error, rough);
        // The product of 0 and infinity is none.
        let number = self.op("setp.num.f32", &[refined, refined]);
        self.b.select(number, refined, rough)
    }

    // --- exponentials

    /// `e^x` = 2^n 2^f with n the integer below x / ln 2, kept within the exponents of `f32`, so that overflow, underflow, infinity
    /// and NaN all come out of `ex2` of what n leaves and one product.
    fn exp(&mut self, x: Reg, fast: bool) -> Reg {
        let log2e = self.b.f32(std::f32::consts::LOG2_E);
        if fast {
            let scaled = self.b.mul(Ty::F32, x, log2e);
            return self.op("ex2.approx.ftz.f32", &[scaled]);
        }
        // A saturating sum clamps: 0 to 1 stands for n from -126 to 126. The sum rounded down has n's biased exponent lowest.
        let (span, half) = (self.b.f32(252.0), self.b.f32(0.5));
        let (per_span, magic) = (self.b.f32(std::f32::consts::LOG2_E / 252.0), self.b.f32(ROUND32 + 1.0));
        let part = self.op("fma.rn.sat.f32", &[x, per_span, half]);
        let shifted = self.op("fma.rm.f32", &[part, span, magic]);
        let biased = self.b.f32(-(ROUND32 + 127.0));
        let minus_n = self.b.add(Ty::F32, shifted, biased);
        let minus_n = self.b.neg(Ty::F32, minus_n);
        let rest = self.b.fma(Ty::F32, x, log2e, minus_n);
        let low = self.b.f32(1.925_963_1e-8);
        let rest = self.b.fma(Ty::F32, x, low, rest);
        let value = self.op("ex2.approx.ftz.f32", &[rest]);
        let count = self.b.u32(23);
        let power = self.b.shl(shifted, count);
        self.b.mul(Ty::F32, value, power)
    }

    fn tanh(&mut self, x: Reg) -> Reg {
        let magnitude = self.b.abs(Ty::F32, x);
        let square = self.b.mul(Ty::F32, x, x);
        let mut tail = self.b.f32(TANH[5]);
        for &coefficient in TANH[..5].iter().rev() {
            let coefficient = self.b.f32(coefficient);
            tail = self.b.fma(Ty::F32, tail, square, coefficient);
        }
        let cube = self.b.mul(Ty::F32, x, square);
        let small = self.b.fma(Ty::F32, cube, tail, x);
        // Errors of a power of e are halved at 0.6, and fade beyond: the hardware's is exact enough.
        let doubled_log2e = self.b.f32(2.0 * std::f32::consts::LOG2_E);
        let scaled = self.b.mul(Ty::F32, magnitude, doubled_log2e);
        let power = self.op("ex2.approx.ftz.f32", &[scaled]);
        let (one, minus_two, bound) = (self.b.f32(1.0), self.b.f32(-2.0), self.b.f32(0.6));
        let sum = self.b.add(Ty::F32, power, one);
        let part = self.op("rcp.approx.ftz.f32", &[sum]);
        let large = self.b.fma(Ty::F32, part, minus_two, one);
        let value = self.pick(Word::Ltu, Ty::F32, magnitude, bound, small, large);
        self.with_sign(value, x)
    }

    /// `e^x` in `f64` to some 40 bits for |x| < 700.
    fn exp_wide(&mut self, x: Reg) -> Reg {
        let log2e = self.b.f64(std::f64::consts::LOG2_E);
        let scaled = self.b.mul(Ty::F64, x, log2e);
        let (n, power) = self.nearest64(scaled);
        let minus_ln2 = self.b.f64(-std::f64::consts::LN_2);
        let r = self.b.fma(Ty::F64, n, minus_ln2, x);
        let tail = self.horner64(r, &EXP_WIDE);
        let square = self.b.mul(Ty::F64, r, r);
        let value = self.b.fma(Ty::F64, square, tail, r);
        let one = self.b.f64(1.0);
        let value = self.b.add(Ty::F64, value, one);
        self.scaled64(value, power)
    }

    /// `value * 2^power` where that is a normal number.
    pub(super) fn scaled64(&mut self, value: Reg, power: Reg) -> Reg {
        let (bias, count) = (self.b.s32(1023), self.b.u32(20));
        let exponent = self.b.add(Ty::S32, power, bias);
        let high = self.b.shl(exponent, count);
        let zero = self.b.u32(0);
        let factor = self.b.pack(&[zero, high]);
        self.b.mul(Ty::F64, value, factor)
    }

    fn sinh(&mut self, x: Reg) -> Reg {
        let wide = self.double(x);
        let bounded = self.clamped64(wide, 100.0);
        let power = self.exp_wide(bounded);
        let (one, half) = (self.b.f64(1.0), self.b.f64(0.5));
        let inverse = self.b.div(Ty::F64, one, power);
        let difference = self.b.sub(Ty::F64, power, inverse);
        let large = self.b.mul(Ty::F64, difference, half);
        let z = self.b.mul(Ty::F64, wide, wide);
        let tail = self.horner64(z, &SINH);
        let cube = self.b.mul(Ty::F64, wide, z);
        let small = self.b.fma(Ty::F64, cube, tail, wide);
        let magnitude = self.b.abs(Ty::F64, wide);
        let value = self.pick(Word::Ltu, Ty::F64, magnitude, one, small, large);
        self.single(value)
    }

    fn cosh(&mut self, x: Reg) -> Reg {
        let wide = self.double(x);
        let bounded = self.clamped64(wide, 100.0);
        let power = self.exp_wide(bounded);
        let (one, half) = (self.b.f64(1.0), self.b.f64(0.5));
        let inverse = self.b.div(Ty::F64, one, power);
        let sum = self.b.add(Ty::F64, power, inverse);
        let value = self.b.mul(Ty::F64, sum, half);
        let value = self.single(value);
        let unordered = self.unordered(Ty::F32, x, x);
        self.b.select(unordered, x, value)
    }

    fn clamped64(&mut self, x: Reg, limit: f64) -> Reg {
        let (least, greatest) = (self.b.f64(-limit), self.b.f64(limit));
        let x = self.b.max(Ty::F64, x, least);
        self.b.min(Ty::F64, x, greatest)
    }

    // --- logarithms

    /// The exponent of a positive finite number and the logarithm of its fraction.
    fn log_parts(&mut self, x: Reg) -> (Reg, Reg) {
        const HALF_ROOT: u64 = 0x3fe6_a09e_667f_3bcd;
        let half_root = self.b.u64(HALF_ROOT);
        let bits = self.b.sub(Ty::U64, x, half_root);
        let high = self.b.unpack(bits, Class::B32)[1];
        let count = self.b.u32(20);
        let exponent = self.b.shr(Ty::S32, high, count);
        let mask = self.b.u64(0x000f_ffff_ffff_ffff);
        let fraction = self.b.and(bits, mask);
        let fraction = self.b.add(Ty::U64, fraction, half_root);
        let one = self.b.f64(1.0);
        let (over, under) = (self.b.sub(Ty::F64, fraction, one), self.b.add(Ty::F64, fraction, one));
        let s = self.b.div(Ty::F64, over, under);
        let z = self.b.mul(Ty::F64, s, s);
        let tail = self.horner64(z, &LOG);
        let cube = self.b.mul(Ty::F64, s, z);
        let twice = self.b.add(Ty::F64, s, s);
        let logarithm = self.b.fma(Ty::F64, cube, tail, twice);
        (self.b.cvt(Ty::F64, Ty::S32, exponent), logarithm)
    }

    fn log(&mut self, x: Reg, binary: bool) -> Reg {
        let wide = self.double(x);
        let (exponent, fraction) = self.log_parts(wide);
        let finite = if binary {
            let log2e = self.b.f64(std::f64::consts::LOG2_E);
            self.b.fma(Ty::F64, fraction, log2e, exponent)
        } else {
            let ln2 = self.b.f64(std::f64::consts::LN_2);
            self.b.fma(Ty::F64, exponent, ln2, fraction)
        };
        let finite = self.single(finite);
        let (zero, infinity) = (self.b.f32(0.0), self.b.f32(f32::INFINITY));
        let (low, nan) = (self.b.f32(f32::NEG_INFINITY), self.b.f32(f32::NAN));
        let value = self.pick(Word::Eq, Ty::F32, x, zero, low, finite);
        let value = self.pick(Word::Lt, Ty::F32, x, zero, nan, value);
        // Infinity and NaN are not below infinity.
        self.pick(Word::Lt, Ty::F32, x, infinity, value, x)
    }

    fn pow(&mut self, base: Reg, exponent: Reg) -> Reg {
        let magnitude = self.b.abs(Ty::F32, base);
        let wide = self.double(exponent);
        let wide_base = self.double(magnitude);
        let (whole, fraction) = self.log_parts(wide_base);
        let ln2 = self.b.f64(std::f64::consts::LN_2);
        let logarithm = self.b.fma(Ty::F64, whole, ln2, fraction);
        let logarithm = self.b.mul(Ty::F64, logarithm, wide);
        let logarithm = self.clamped64(logarithm, 200.0);
        let finite = self.exp_wide(logarithm);
        let finite = self.single(finite);

        // Bases 0 and infinity, and exponents infinity: the limit that the signs of log |base| and exponent point to.
        let (zero, one, infinity) = (self.b.f32(0.0), self.b.f32(1.0), self.b.f32(f32::INFINITY));
        let above = self.b.setp(Word::Gt, Ty::F32, magnitude, one);
        let positive = self.b.setp(Word::Gt, Ty::F32, exponent, zero);
        let differ = self.b.xor(above, positive);
        let limit = self.b.select(differ, zero, infinity);
        let limit = self.pick(Word::Eq, Ty::F32, magnitude, one, one, limit);
        let size = self.b.abs(Ty::F32, exponent);
        let is_zero = self.b.setp(Word::Eq, Ty::F32, magnitude, zero);
        let is_infinite = self.b.setp(Word::Eq, Ty::F32, magnitude, infinity);
        let endless = self.b.setp(Word::Eq, Ty::F32, size, infinity);
        let extreme = self.b.or(is_zero, is_infinite);
        let extreme = self.b.or(extreme, endless);
        let value = self.b.select(extreme, limit, finite);

        // A negative base: odd exponents keep the sign, fractions have no result.
        let floor = self.b.cvt_with("rmi", Ty::F32, Ty::F32, size);
        let integral = self.b.setp(Word::Eq, Ty::F32, floor, size);
        let half = self.b.f32(0.5);
        let halved = self.b.mul(Ty::F32, size, half);
        let floor = self.b.cvt_with("rmi", Ty::F32, Ty::F32, halved);
        let even = self.b.setp(Word::Eq, Ty::F32, floor, halved);
        let odd = self.b.not(even);
        let odd = self.b.and(odd, integral);
        let zero_bits = self.b.u32(0);
        let negative = self.b.setp(Word::Lt, Ty::S32, base, zero_bits);
        let turned = self.b.and(negative, odd);
        let opposite = self.b.neg(Ty::F32, value);
        let value = self.b.select(turned, opposite, value);
        let below = self.b.setp(Word::Lt, Ty::F32, base, zero);
        let bounded = self.b.setp(Word::Lt, Ty::F32, magnitude, infinity);
        let broken = self.b.not(integral);
        let wrong = self.b.and(below, bounded);
        let wrong = self.b.and(wrong, broken);
        let unordered = self.unordered(Ty::F32, base, exponent);
        let wrong = self.b.or(wrong, unordered);
        let nan = self.b.f32(f32::NAN);
        let value = self.b.select(wrong, nan, value);
        let nothing = self.b.setp(Word::Eq, Ty::F32, exponent, zero);
        let unit = self.b.setp(Word::Eq, Ty::F32, base, one);
        let trivial = self.b.or(nothing, unit);
        self.b.select(trivial, one, value)
    }

    // --- angles

    /// Sine, cosine or tangent.
    fn angle(&mut self, kind: &ScheduleOp, x: Reg) -> Reg {
        let wide = self.double(x);
        let (r, turns) = self.quarter_turns(x, wide);
        let z = self.b.mul(Ty::F64, r, r);
        let sine = self.horner64(z, &SINE);
        let cube = self.b.mul(Ty::F64, r, z);
        let sine = self.b.fma(Ty::F64, cube, sine, r);
        let cosine = self.horner64(z, &COSINE);
        let fourth = self.b.mul(Ty::F64, z, z);
        let (minus_half, one) = (self.b.f64(-0.5), self.b.f64(1.0));
        let start = self.b.fma(Ty::F64, z, minus_half, one);
        let cosine = self.b.fma(Ty::F64, fourth, cosine, start);
        self.turned(kind, x, sine, cosine, turns)
    }

    /// What is left of an angle, in `f64`, and the quarter turns taken off.
    fn quarter_turns(&mut self, x: Reg, wide: Reg) -> (Reg, Reg) {
        let two_over_pi = self.b.f64(std::f64::consts::FRAC_2_PI);
        let scaled = self.b.mul(Ty::F64, wide, two_over_pi);
        let (n, turns) = self.nearest64(scaled);
        let (high, low) = (self.b.f64(-std::f64::consts::FRAC_PI_2), self.b.f64(-6.123_233_995_736_766e-17));
        let r = self.b.fma(Ty::F64, n, high, wide);
        let r = self.b.fma(Ty::F64, n, low, r);
        // Beyond 2^30 this loses its precision: there the bits of 2/pi are multiplied as integers.
        let limit = self.b.f32(1_073_741_824.0);
        let magnitude = self.b.abs(Ty::F32, x);
        let (infinity, small) = (self.b.f32(f32::INFINITY), self.b.setp(Word::Leu, Ty::F32, magnitude, limit));
        let endless = self.b.setp(Word::Eq, Ty::F32, magnitude, infinity);
        let near = self.b.or(small, endless);
        let joined = self.b.if_(near, |_| vec![r, turns], |b| huge_angle(b, x));
        (joined[0], joined[1])
    }

    fn turned(&mut self, kind: &ScheduleOp, x: Reg, sine: Reg, cosine: Reg, turns: Reg) -> Reg {
        let (one, two, zero_bits, thirty) = (self.b.u32(1), self.b.u32(2), self.b.u32(0), self.b.u32(30));
        let turns = if matches!(kind, ScheduleOp::Cos {}) { self.b.add(Ty::U32, turns, one) } else { turns };
        let bit = self.b.and(turns, one);
        let odd = self.b.setp(Word::Ne, Ty::U32, bit, zero_bits);
        let value = if matches!(kind, ScheduleOp::Tan {}) {
            let opposite = self.b.neg(Ty::F64, cosine);
            let (over, under) = (self.b.select(odd, opposite, sine), self.b.select(odd, sine, cosine));
            let value = self.b.div(Ty::F64, over, under);
            self.single(value)
        } else {
            let value = self.b.select(odd, cosine, sine);
            let value = self.single(value);
            let sign = self.b.and(turns, two);
            let sign = self.b.shl(sign, thirty);
            self.b.xor(value, sign)
        };
        if matches!(kind, ScheduleOp::Cos {}) {
            return value;
        }
        // Minus zero loses its sign on the way.
        let zero = self.b.f32(0.0);
        self.pick(Word::Eq, Ty::F32, x, zero, x, value)
    }

    fn atan2(&mut self, y: Reg, x: Reg) -> Reg {
        let (wide_y, wide_x) = (self.double(y), self.double(x));
        let (height, width) = (self.b.abs(Ty::F64, wide_y), self.b.abs(Ty::F64, wide_x));
        let steep = self.b.setp(Word::Gt, Ty::F64, height, width);
        let (small, large) = (self.b.select(steep, width, height), self.b.select(steep, height, width));
        let (zero, one, infinity) = (self.b.f64(0.0), self.b.f64(1.0), self.b.f64(f64::INFINITY));
        let quotient = self.b.div(Ty::F64, small, large);
        let quotient = self.pick(Word::Eq, Ty::F64, large, zero, zero, quotient);
        let quotient = self.pick(Word::Eq, Ty::F64, small, infinity, one, quotient);
        let z = self.b.mul(Ty::F64, quotient, quotient);
        let ratio = self.horner64(z, &ATAN);
        let angle = self.b.mul(Ty::F64, quotient, ratio);
        let (right, straight) = (self.b.f64(std::f64::consts::FRAC_PI_2), self.b.f64(std::f64::consts::PI));
        let other = self.b.sub(Ty::F64, right, angle);
        let angle = self.b.select(steep, other, angle);
        let back = self.b.sub(Ty::F64, straight, angle);
        let zero_bits = self.b.u32(0);
        let angle = self.pick(Word::Lt, Ty::S32, x, zero_bits, back, angle);
        let angle = self.single(angle);
        let angle = self.with_sign(angle, y);
        let unordered = self.unordered(Ty::F32, x, y);
        let nan = self.b.f32(f32::NAN);
        self.b.select(unordered, nan, angle)
    }
}

/// The first 224 bits of 2/pi behind the point, 32 at a time.
const TWO_OVER_PI: [u32; 7] = [0xa2f9_836e, 0x4e44_1529, 0xfc27_57d1, 0xf534_ddc0, 0xdb62_9599, 0x3c43_9041, 0xfe51_63ab];

/// What is left of an `f32` beyond 2^30, and its quarter turns: x = m 2^e with a whole m of 24 bits, and the bits of `m 2^e * 2/pi`
/// that matter come from 96 bits of 2/pi around its point.
fn huge_angle(b: &mut tessera_ptx::ssa::Builder, x: Reg) -> Vec<Reg> {
    let (mantissa_mask, one_bit, count23, mask8) = (b.u32(0x007f_ffff), b.u32(0x0080_0000), b.u32(23), b.u32(0xff));
    let mantissa = b.and(x, mantissa_mask);
    let mantissa = b.or(mantissa, one_bit);
    let exponent = b.shr(Ty::U32, x, count23);
    let exponent = b.and(exponent, mask8);
    // e counts from 2^30 = 2^23 * 2^7 on: the bits of 2/pi before position e - 2 only add multiples of four quarter turns.
    let first = b.s32(150 + 2);
    let position = b.sub(Ty::S32, exponent, first);
    let zero = b.u32(0);
    let five = b.u32(5);
    let word = b.shr(Ty::S32, position, five);
    let shift_mask = b.u32(31);
    let shift = b.and(position, shift_mask);
    let mut window = Vec::new();
    for i in 0..4usize {
        // The exponent is at most 254: the position at most 102, the word at most 3.
        let mut found = b.u32(TWO_OVER_PI[i]);
        for start in 1..4usize {
            let number = b.s32(start as i32);
            let here = b.setp(Word::Eq, Ty::S32, word, number);
            let bits = b.u32(TWO_OVER_PI[i + start]);
            found = b.select(here, bits, found);
        }
        window.push(found);
    }
    let bits: Vec<Reg> = (0..3).map(|i| b.shf_left(window[i + 1], window[i], shift)).collect();
    // The product's 96 bits behind (and two before) the point; what overflows them is whole turns.
    let low = b.mul_hi(Ty::U32, mantissa, bits[2]);
    let middle_low = b.mul(Ty::U32, mantissa, bits[1]);
    let middle_high = b.mul_hi(Ty::U32, mantissa, bits[1]);
    let high_low = b.mul(Ty::U32, mantissa, bits[0]);
    let second = b.add(Ty::U32, middle_low, low);
    let carry = b.setp(Word::Lt, Ty::U32, second, low);
    let one = b.u32(1);
    let carry = b.select(carry, one, zero);
    let top = b.add(Ty::U32, high_low, middle_high);
    let top = b.add(Ty::U32, top, carry);
    let product = b.pack(&[second, top]);
    // Two bits of turns, 62 of a fraction: to the nearest turn, the rest is signed.
    let (half, count62, two) = (b.u64(1 << 61), b.u32(62), b.u32(2));
    let rounded = b.add(Ty::U64, product, half);
    let turns = b.shr(Ty::U64, rounded, count62);
    let turns = b.cvt(Ty::U32, Ty::U64, turns);
    let rest = b.shl(product, two);
    let rest = b.cvt(Ty::F64, Ty::S64, rest);
    let unit = b.f64(std::f64::consts::FRAC_PI_2 / 18_446_744_073_709_551_616.0);
    let rest = b.mul(Ty::F64, rest, unit);
    let negative = b.setp(Word::Lt, Ty::S32, x, zero);
    let (other_rest, other_turns) = (b.neg(Ty::F64, rest), b.neg(Ty::S32, turns));
    vec![b.select(negative, other_rest, rest), b.select(negative, other_turns, turns)]
}
