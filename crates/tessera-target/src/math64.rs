//! Elementary functions of `f64`, within a few units in the last place; remainders and integer powers.
//!
//! Coefficients are Chebyshev fits to what the code leaves to a polynomial. Angles are reduced by pi/2 in three parts, which
//! holds up to 2^48.

#![allow(clippy::excessive_precision, reason = "coefficients carry a digit more than the format")]

use tessera_ir::ScheduleOp;
use tessera_ptx::ssa::{Class, Value as Reg};
use tessera_ptx::{Type as Ty, Word};
use tessera_types::DType;

use super::float::computed_in;
use super::lowering::{Lowered, Lowering};
use super::operation::astray;

const LN_2_LOW: f64 = 2.319_046_813_846_299_6e-17;
const LOG2_E_LOW: f64 = 2.035_527_374_093_103e-17;
const HALF_PI_MIDDLE: f64 = 6.123_233_995_736_766e-17;
const HALF_PI_LOW: f64 = -1.497_384_904_859_169_8e-33;

/// `(e^r - 1 - r) / r^2` for |r| <= ln 2 / 2.
const EXP: [f64; 12] = [
    0.499_999_999_999_999_999_98,
    0.166_666_666_666_666_666_67,
    0.041_666_666_666_666_676_793,
    0.008_333_333_333_333_334_008_3,
    0.001_388_888_888_887_905_917_6,
    0.000_198_412_698_412_632_892_53,
    0.000_024_801_587_336_481_699_811,
    2.755_731_924_724_503_303e-6,
    2.755_726_323_686_337_666_9e-7,
    2.505_207_106_614_963_665_4e-8,
    2.091_815_335_597_856_528_3e-9,
    1.608_663_836_670_503_428_9e-10,
];
/// `(2^r - 1) / r` for |r| <= 1/2.
const EXP2: [f64; 14] = [
    std::f64::consts::LN_2,
    0.240_226_506_959_100_712_33,
    0.055_504_108_664_821_579_944,
    0.009_618_129_107_628_477_161_6,
    0.001_333_355_814_642_844_929_9,
    0.000_154_035_303_933_816_125,
    0.000_015_252_733_804_045_744_665,
    1.321_548_679_013_820_402_8e-6,
    1.017_808_602_534_122_832_4e-7,
    7.054_911_627_775_500_650_8e-9,
    4.445_528_830_981_470_607_8e-10,
    2.567_839_509_883_053_174_3e-11,
    1.371_893_439_548_737_385_5e-12,
    6.790_614_989_333_105_610_9e-14,
];
/// `(2 atanh s - 2 s) / s^3` in `s^2`.
const LOG: [f64; 9] = [
    0.666_666_666_666_666_666_68,
    0.399_999_999_999_999_924_4,
    0.285_714_285_714_354_075_99,
    0.222_222_222_198_442_311_03,
    0.181_818_185_957_690_646_54,
    0.153_845_749_664_609_068_23,
    0.133_356_458_419_493_771_14,
    0.116_879_629_975_421_556_8,
    0.118_834_523_941_078_597_27,
];
const SINE: [f64; 8] = [
    -0.166_666_666_666_666_666_67,
    0.008_333_333_333_333_333_332_2,
    -0.000_198_412_698_412_698_375_32,
    2.755_731_922_398_105_187_7e-6,
    -2.505_210_838_236_558_272e-8,
    1.605_904_277_474_997_995_1e-10,
    -7.646_960_543_647_498_327_1e-13,
    2.791_203_958_476_476_881_5e-15,
];
const COSINE: [f64; 8] = [
    0.041_666_666_666_666_666_667,
    -0.001_388_888_888_888_888_888_8,
    0.000_024_801_587_301_587_299_717,
    -2.755_731_922_398_347_001e-7,
    2.087_675_698_632_925_992_6e-9,
    -1.147_074_506_644_296_060_5e-11,
    4.779_375_695_434_359_976_3e-14,
    -1.551_790_833_333_555_446_9e-16,
];
/// `(atan t - t) / t^3` in `t^2` for t up to tan(pi/8).
const ATAN: [f64; 13] = [
    -0.333_333_333_333_333_333_29,
    0.199_999_999_999_999_913_53,
    -0.142_857_142_857_114_623_45,
    0.111_111_111_107_482_065_97,
    -0.090_909_090_666_208_141_2,
    0.076_923_067_223_488_389_619,
    -0.066_666_417_174_547_936_572,
    0.058_819_208_502_921_486_932,
    -0.052_579_989_277_089_063_51,
    0.047_191_230_786_765_397_544,
    -0.041_033_382_962_583_301_604,
    0.030_610_287_402_309_498_221,
    -0.013_892_533_041_866_742_814,
];
const SINH: [f64; 9] = [
    0.166_666_666_666_666_666_67,
    0.008_333_333_333_333_333_333_3,
    0.000_198_412_698_412_698_413_36,
    2.755_731_922_398_582_303_6e-6,
    2.505_210_838_547_641_683_5e-8,
    1.605_904_382_682_073_909_7e-10,
    7.647_165_424_736_503_866_2e-13,
    2.811_290_296_549_423_103_1e-15,
    8.309_349_937_097_670_036_2e-18,
];
const TANH: [f64; 14] = [
    -0.333_333_333_333_333_333_33,
    0.133_333_333_333_333_327_93,
    -0.053_968_253_968_253_068_477,
    0.021_869_488_536_096_055_177,
    -0.008_863_235_527_869_597_035_5,
    0.003_592_127_994_640_940_009_8,
    -0.001_455_833_825_126_820_778_4,
    0.000_590_022_311_094_572_763_45,
    -0.000_239_096_310_777_293_920_3,
    0.000_096_766_462_726_161_525_898,
    -0.000_038_797_980_086_236_982_98,
    0.000_014_831_206_142_699_788_073,
    -4.769_268_857_089_386_085e-6,
    9.165_147_584_774_175_586_5e-7,
];

impl Lowering<'_> {
    /// A function of `f64`.
    pub(super) fn function64(&mut self, kind: &ScheduleOp, args: &[Reg]) -> Reg {
        let a = args[0];
        match kind {
            ScheduleOp::Rsqrt { .. } => {
                let root = self.b.sqrt(Ty::F64, a);
                let one = self.b.f64(1.0);
                self.b.div(Ty::F64, one, root)
            }
            ScheduleOp::Exp { .. } => self.exp64(a, 0),
            ScheduleOp::Exp2 { .. } => self.exp2_64(a),
            ScheduleOp::Log {} => self.log64(a, false),
            ScheduleOp::Log2 {} => self.log64(a, true),
            ScheduleOp::Sin {} | ScheduleOp::Cos {} | ScheduleOp::Tan {} => self.angle64(kind, a),
            ScheduleOp::SinH {} => {
                let power = self.half_power(a);
                let (quarter, one) = (self.b.f64(0.25), self.b.f64(1.0));
                let inverse = self.b.div(Ty::F64, quarter, power);
                let large = self.b.sub(Ty::F64, power, inverse);
                self.odd64(a, &SINH, one, large)
            }
            ScheduleOp::CosH {} => {
                let power = self.half_power(a);
                let quarter = self.b.f64(0.25);
                let inverse = self.b.div(Ty::F64, quarter, power);
                self.b.add(Ty::F64, power, inverse)
            }
            ScheduleOp::TanH { .. } => {
                let magnitude = self.b.abs(Ty::F64, a);
                let twice = self.b.add(Ty::F64, magnitude, magnitude);
                let power = self.exp64(twice, 0);
                let (one, two, bound) = (self.b.f64(1.0), self.b.f64(2.0), self.b.f64(0.625));
                let sum = self.b.add(Ty::F64, power, one);
                let part = self.b.div(Ty::F64, two, sum);
                let large = self.b.sub(Ty::F64, one, part);
                self.odd64(a, &TANH, bound, large)
            }
            ScheduleOp::Pow {} => self.pow64(a, args[1]),
            ScheduleOp::Atan2 {} => self.atan2_64(a, args[1]),
            ScheduleOp::RemF {} => self.fmod(a, args[1]),
            _ => astray(kind),
        }
    }

    fn choose64(&mut self, compare: Word, a: Reg, b: Reg, yes: Reg, no: Reg) -> Reg {
        let holds = self.b.setp(compare, Ty::F64, a, b);
        self.b.select(holds, yes, no)
    }

    /// `x` itself where it is NaN.
    fn unless_nan(&mut self, x: Reg, value: Reg) -> Reg {
        let unordered = self.unordered(Ty::F64, x, x);
        self.b.select(unordered, x, value)
    }

    /// An odd function: its polynomial below a bound, a given magnitude above.
    fn odd64(&mut self, x: Reg, polynomial: &[f64], bound: Reg, large: Reg) -> Reg {
        let magnitude = self.b.abs(Ty::F64, x);
        let z = self.b.mul(Ty::F64, x, x);
        let tail = self.horner64(z, polynomial);
        let cube = self.b.mul(Ty::F64, z, x);
        let small = self.b.fma(Ty::F64, cube, tail, x);
        let large = self.op("copysign.f64", &[x, large]);
        let value = self.choose64(Word::Lt, magnitude, bound, small, large);
        self.unless_nan(x, value)
    }

    /// `value * 2^power` for any power that a result can need, rounded once.
    fn scaled_twice(&mut self, value: Reg, power: Reg) -> Reg {
        let one = self.b.u32(1);
        let half = self.b.shr(Ty::S32, power, one);
        let rest = self.b.sub(Ty::S32, power, half);
        let value = self.scaled64(value, half);
        self.scaled64(value, rest)
    }

    /// `e^x * 2^shift`.
    fn exp64(&mut self, x: Reg, shift: i32) -> Reg {
        let (least, greatest) = (self.b.f64(-760.0), self.b.f64(720.0));
        let bounded = self.b.max(Ty::F64, x, least);
        let bounded = self.b.min(Ty::F64, bounded, greatest);
        let log2e = self.b.f64(std::f64::consts::LOG2_E);
        let scaled = self.b.mul(Ty::F64, bounded, log2e);
        let (n, power) = self.nearest64(scaled);
        let (high, low) = (self.b.f64(-std::f64::consts::LN_2), self.b.f64(-LN_2_LOW));
        let r = self.b.fma(Ty::F64, n, high, bounded);
        let r = self.b.fma(Ty::F64, n, low, r);
        let tail = self.horner64(r, &EXP);
        let square = self.b.mul(Ty::F64, r, r);
        let value = self.b.fma(Ty::F64, square, tail, r);
        let one = self.b.f64(1.0);
        let value = self.b.add(Ty::F64, value, one);
        let shift = self.b.s32(shift);
        let power = self.b.add(Ty::S32, power, shift);
        let value = self.scaled_twice(value, power);
        self.unless_nan(x, value)
    }

    /// Half of `e^|x|`, which does not overflow before hyperbolic functions do.
    fn half_power(&mut self, x: Reg) -> Reg {
        let magnitude = self.b.abs(Ty::F64, x);
        self.exp64(magnitude, -1)
    }

    fn exp2_64(&mut self, x: Reg) -> Reg {
        let (least, greatest) = (self.b.f64(-1080.0), self.b.f64(1030.0));
        let bounded = self.b.max(Ty::F64, x, least);
        let bounded = self.b.min(Ty::F64, bounded, greatest);
        let (n, power) = self.nearest64(bounded);
        let r = self.b.sub(Ty::F64, bounded, n);
        let tail = self.horner64(r, &EXP2);
        let one = self.b.f64(1.0);
        let value = self.b.fma(Ty::F64, r, tail, one);
        let value = self.scaled_twice(value, power);
        self.unless_nan(x, value)
    }

    /// Exponent and fraction minus one of a positive finite number, the fraction from sqrt 1/2 to sqrt 2.
    fn split64(&mut self, x: Reg) -> (Reg, Reg) {
        const HALF_ROOT: u64 = 0x3fe6_a09e_667f_3bcd;
        let (tiny, lift) = (self.b.f64(f64::MIN_POSITIVE), self.b.f64(18_014_398_509_481_984.0));
        let small = self.b.setp(Word::Lt, Ty::F64, x, tiny);
        let lifted = self.b.mul(Ty::F64, x, lift);
        let x = self.b.select(small, lifted, x);
        let (down, zero) = (self.b.s32(-54), self.b.s32(0));
        let start = self.b.select(small, down, zero);
        let half_root = self.b.u64(HALF_ROOT);
        let bits = self.b.sub(Ty::U64, x, half_root);
        let high = self.b.unpack(bits, Class::B32)[1];
        let count = self.b.u32(20);
        let exponent = self.b.shr(Ty::S32, high, count);
        let exponent = self.b.add(Ty::S32, exponent, start);
        let mask = self.b.u64(0x000f_ffff_ffff_ffff);
        let fraction = self.b.and(bits, mask);
        let fraction = self.b.add(Ty::U64, fraction, half_root);
        let one = self.b.f64(1.0);
        let over = self.b.sub(Ty::F64, fraction, one);
        (self.b.cvt(Ty::F64, Ty::S32, exponent), over)
    }

    /// What a logarithm is outside of the positive finite numbers.
    fn log_edges(&mut self, x: Reg, finite: Reg) -> Reg {
        let (zero, infinity) = (self.b.f64(0.0), self.b.f64(f64::INFINITY));
        let (low, nan) = (self.b.f64(f64::NEG_INFINITY), self.b.f64(f64::NAN));
        let value = self.choose64(Word::Eq, x, zero, low, finite);
        let value = self.choose64(Word::Lt, x, zero, nan, value);
        self.choose64(Word::Lt, x, infinity, value, x)
    }

    /// With f the fraction minus one and s = f / (f + 2): log(1 + f) = f - (f^2/2 - s (f^2/2 + R)), whose first term is exact.
    fn log64(&mut self, x: Reg, binary: bool) -> Reg {
        let (exponent, f) = self.split64(x);
        let (two, half) = (self.b.f64(2.0), self.b.f64(0.5));
        let under = self.b.add(Ty::F64, f, two);
        let s = self.b.div(Ty::F64, f, under);
        let z = self.b.mul(Ty::F64, s, s);
        let tail = self.horner64(z, &LOG);
        let tail = self.b.mul(Ty::F64, tail, z);
        let half_square = self.b.mul(Ty::F64, f, half);
        let half_square = self.b.mul(Ty::F64, half_square, f);
        let sum = self.b.add(Ty::F64, half_square, tail);
        let correction = self.b.mul(Ty::F64, s, sum);
        let finite = if binary {
            let rest = self.b.sub(Ty::F64, half_square, correction);
            let logarithm = self.b.sub(Ty::F64, f, rest);
            let (high, low) = (self.b.f64(std::f64::consts::LOG2_E), self.b.f64(LOG2_E_LOW));
            let small = self.b.mul(Ty::F64, logarithm, low);
            let scaled = self.b.fma(Ty::F64, logarithm, high, small);
            self.b.add(Ty::F64, exponent, scaled)
        } else {
            let (high, low) = (self.b.f64(std::f64::consts::LN_2), self.b.f64(LN_2_LOW));
            let correction = self.b.fma(Ty::F64, exponent, low, correction);
            let rest = self.b.sub(Ty::F64, half_square, correction);
            let logarithm = self.b.sub(Ty::F64, f, rest);
            self.b.fma(Ty::F64, exponent, high, logarithm)
        };
        self.log_edges(x, finite)
    }

    /// The logarithm of |base| as a sum of two numbers, times the exponent, through `e^x`.
    fn pow64(&mut self, base: Reg, exponent: Reg) -> Reg {
        let magnitude = self.b.abs(Ty::F64, base);
        let (n, f) = self.split64(magnitude);
        let two = self.b.f64(2.0);
        let under = self.b.add(Ty::F64, f, two);
        let lost = self.b.sub(Ty::F64, under, two);
        let lost = self.b.sub(Ty::F64, f, lost);
        let s = self.b.div(Ty::F64, f, under);
        let minus = self.b.neg(Ty::F64, s);
        let rest = self.b.fma(Ty::F64, minus, under, f);
        let rest = self.b.fma(Ty::F64, minus, lost, rest);
        let s_low = self.b.div(Ty::F64, rest, under);
        let z = self.b.mul(Ty::F64, s, s);
        let tail = self.horner64(z, &LOG);
        let cube = self.b.mul(Ty::F64, z, s);
        let third = self.b.mul(Ty::F64, cube, tail);
        let low = self.b.fma(Ty::F64, s_low, two, third);
        let (ln2, ln2_low) = (self.b.f64(std::f64::consts::LN_2), self.b.f64(LN_2_LOW));
        let twice = self.b.add(Ty::F64, s, s);
        let whole = self.b.mul(Ty::F64, n, ln2);
        let minus_whole = self.b.neg(Ty::F64, whole);
        let whole_low = self.b.fma(Ty::F64, n, ln2, minus_whole);
        let whole_low = self.b.fma(Ty::F64, n, ln2_low, whole_low);
        // The sum of both, with what rounding loses; the whole part is the larger unless it is zero.
        let sum = self.b.add(Ty::F64, whole, twice);
        let back = self.b.sub(Ty::F64, sum, whole);
        let missed = self.b.sub(Ty::F64, twice, back);
        let low = self.b.add(Ty::F64, low, whole_low);
        let low = self.b.add(Ty::F64, low, missed);
        let high = self.b.add(Ty::F64, sum, low);
        let back = self.b.sub(Ty::F64, high, sum);
        let low = self.b.sub(Ty::F64, low, back);
        let product = self.b.mul(Ty::F64, exponent, high);
        let minus_product = self.b.neg(Ty::F64, product);
        let product_low = self.b.fma(Ty::F64, exponent, high, minus_product);
        let product_low = self.b.fma(Ty::F64, exponent, low, product_low);
        let power = self.exp64(product, 0);
        let infinity = self.b.f64(f64::INFINITY);
        let corrected = self.b.fma(Ty::F64, power, product_low, power);
        let finite = self.choose64(Word::Lt, power, infinity, corrected, power);

        let (zero, one) = (self.b.f64(0.0), self.b.f64(1.0));
        let above = self.b.setp(Word::Gt, Ty::F64, magnitude, one);
        let positive = self.b.setp(Word::Gt, Ty::F64, exponent, zero);
        let differ = self.b.xor(above, positive);
        let limit = self.b.select(differ, zero, infinity);
        let limit = self.choose64(Word::Eq, magnitude, one, one, limit);
        let size = self.b.abs(Ty::F64, exponent);
        // Beyond this the logarithm of anything but 1 leads out of the range; the product may be no number.
        let huge = self.b.f64(1e20);
        let is_zero = self.b.setp(Word::Eq, Ty::F64, magnitude, zero);
        let is_infinite = self.b.setp(Word::Eq, Ty::F64, magnitude, infinity);
        let endless = self.b.setp(Word::Ge, Ty::F64, size, huge);
        let extreme = self.b.or(is_zero, is_infinite);
        let extreme = self.b.or(extreme, endless);
        let value = self.b.select(extreme, limit, finite);

        let floor = self.b.cvt_with("rmi", Ty::F64, Ty::F64, size);
        let integral = self.b.setp(Word::Eq, Ty::F64, floor, size);
        let half = self.b.f64(0.5);
        let halved = self.b.mul(Ty::F64, size, half);
        let floor = self.b.cvt_with("rmi", Ty::F64, Ty::F64, halved);
        let even = self.b.setp(Word::Eq, Ty::F64, floor, halved);
        let odd = self.b.not(even);
        let odd = self.b.and(odd, integral);
        let zero_bits = self.b.s64(0);
        let negative = self.b.setp(Word::Lt, Ty::S64, base, zero_bits);
        let turned = self.b.and(negative, odd);
        let opposite = self.b.neg(Ty::F64, value);
        let value = self.b.select(turned, opposite, value);
        let below = self.b.setp(Word::Lt, Ty::F64, base, zero);
        let bounded = self.b.setp(Word::Lt, Ty::F64, magnitude, infinity);
        let broken = self.b.not(integral);
        let wrong = self.b.and(below, bounded);
        let wrong = self.b.and(wrong, broken);
        let unordered = self.unordered(Ty::F64, base, exponent);
        let wrong = self.b.or(wrong, unordered);
        let nan = self.b.f64(f64::NAN);
        let value = self.b.select(wrong, nan, value);
        let nothing = self.b.setp(Word::Eq, Ty::F64, exponent, zero);
        let unit = self.b.setp(Word::Eq, Ty::F64, base, one);
        let trivial = self.b.or(nothing, unit);
        self.b.select(trivial, one, value)
    }

    /// Sine, cosine or tangent.
    fn angle64(&mut self, kind: &ScheduleOp, x: Reg) -> Reg {
        let two_over_pi = self.b.f64(std::f64::consts::FRAC_2_PI);
        let scaled = self.b.mul(Ty::F64, x, two_over_pi);
        let (n, turns) = self.nearest64(scaled);
        let parts = [-std::f64::consts::FRAC_PI_2, -HALF_PI_MIDDLE, -HALF_PI_LOW];
        let [high, middle, low] = parts.map(|part| self.b.f64(part));
        let first = self.b.fma(Ty::F64, n, high, x);
        let r = self.b.fma(Ty::F64, n, middle, first);
        let rest = self.b.sub(Ty::F64, first, r);
        let rest = self.b.fma(Ty::F64, n, middle, rest);
        let rest = self.b.fma(Ty::F64, n, low, rest);
        let z = self.b.mul(Ty::F64, r, r);
        let tail = self.horner64(z, &SINE);
        let cube = self.b.mul(Ty::F64, z, r);
        // The rest of the angle changes sine by itself and cosine by its product with the angle.
        let small = self.b.fma(Ty::F64, cube, tail, rest);
        let sine = self.b.add(Ty::F64, r, small);
        let tail = self.horner64(z, &COSINE);
        let (minus_half, one) = (self.b.f64(-0.5), self.b.f64(1.0));
        let start = self.b.fma(Ty::F64, z, minus_half, one);
        let fourth = self.b.mul(Ty::F64, z, z);
        let half_z = self.b.mul(Ty::F64, z, minus_half);
        let lost = self.b.sub(Ty::F64, one, start);
        let lost = self.b.add(Ty::F64, lost, half_z);
        let minus_r = self.b.neg(Ty::F64, r);
        let lost = self.b.fma(Ty::F64, minus_r, rest, lost);
        let tail = self.b.fma(Ty::F64, fourth, tail, lost);
        let cosine = self.b.add(Ty::F64, start, tail);
        let (one_bit, two_bits, zero_bits) = (self.b.u32(1), self.b.u32(2), self.b.u32(0));
        let turns = if matches!(kind, ScheduleOp::Cos {}) { self.b.add(Ty::U32, turns, one_bit) } else { turns };
        let bit = self.b.and(turns, one_bit);
        let odd = self.b.setp(Word::Ne, Ty::U32, bit, zero_bits);
        let value = if matches!(kind, ScheduleOp::Tan {}) {
            let opposite = self.b.neg(Ty::F64, cosine);
            let (over, under) = (self.b.select(odd, opposite, sine), self.b.select(odd, sine, cosine));
            self.b.div(Ty::F64, over, under)
        } else {
            let value = self.b.select(odd, cosine, sine);
            let bit = self.b.and(turns, two_bits);
            let back = self.b.setp(Word::Ne, Ty::U32, bit, zero_bits);
            let opposite = self.b.neg(Ty::F64, value);
            self.b.select(back, opposite, value)
        };
        if matches!(kind, ScheduleOp::Cos {}) {
            return value;
        }
        let zero = self.b.f64(0.0);
        self.choose64(Word::Eq, x, zero, x, value)
    }

    fn atan2_64(&mut self, y: Reg, x: Reg) -> Reg {
        let (height, width) = (self.b.abs(Ty::F64, y), self.b.abs(Ty::F64, x));
        let steep = self.b.setp(Word::Gt, Ty::F64, height, width);
        let (small, large) = (self.b.select(steep, width, height), self.b.select(steep, height, width));
        let (zero, one, infinity) = (self.b.f64(0.0), self.b.f64(1.0), self.b.f64(f64::INFINITY));
        let quotient = self.b.div(Ty::F64, small, large);
        let quotient = self.choose64(Word::Eq, large, zero, zero, quotient);
        let quotient = self.choose64(Word::Eq, small, infinity, one, quotient);
        // Above tan(pi/8) the angle to the diagonal is taken.
        let bound = self.b.f64(0.414_213_562_373_095_05);
        let far = self.b.setp(Word::Gt, Ty::F64, quotient, bound);
        let (over, under) = (self.b.sub(Ty::F64, quotient, one), self.b.add(Ty::F64, quotient, one));
        let turned = self.b.div(Ty::F64, over, under);
        let t = self.b.select(far, turned, quotient);
        let z = self.b.mul(Ty::F64, t, t);
        let tail = self.horner64(z, &ATAN);
        let cube = self.b.mul(Ty::F64, z, t);
        let near = self.b.fma(Ty::F64, cube, tail, t);
        let eighth = self.b.f64(std::f64::consts::FRAC_PI_4);
        let moved = self.b.add(Ty::F64, near, eighth);
        let angle = self.b.select(far, moved, near);
        let (right, straight) = (self.b.f64(std::f64::consts::FRAC_PI_2), self.b.f64(std::f64::consts::PI));
        let (right_low, straight_low) = (self.b.f64(HALF_PI_MIDDLE), self.b.f64(2.0 * HALF_PI_MIDDLE));
        let other = self.b.sub(Ty::F64, right_low, angle);
        let other = self.b.add(Ty::F64, right, other);
        let angle = self.b.select(steep, other, angle);
        let back = self.b.sub(Ty::F64, straight_low, angle);
        let back = self.b.add(Ty::F64, straight, back);
        let zero_bits = self.b.s64(0);
        let negative = self.b.setp(Word::Lt, Ty::S64, x, zero_bits);
        let angle = self.b.select(negative, back, angle);
        let angle = self.op("copysign.f64", &[y, angle]);
        let unordered = self.unordered(Ty::F64, x, y);
        let nan = self.b.f64(f64::NAN);
        self.b.select(unordered, nan, angle)
    }

    /// The remainder with the dividend's sign, exactly: multiples of the divisor, moved up by whole powers of two, are taken off
    /// until less than one is left.
    pub(super) fn fmod(&mut self, a: Reg, b: Reg) -> Reg {
        let (dividend, divisor) = (self.b.abs(Ty::F64, a), self.b.abs(Ty::F64, b));
        let (infinity, zero) = (self.b.f64(f64::INFINITY), self.b.f64(0.0));
        let bounded = self.b.setp(Word::Lt, Ty::F64, dividend, infinity);
        let positive = self.b.setp(Word::Gt, Ty::F64, divisor, zero);
        let regular = self.b.and(bounded, positive);
        let count = self.b.u32(20);
        let high = self.b.unpack(divisor, Class::B32)[1];
        let least = self.b.shr(Ty::U32, high, count);
        let left = self.b.while_(
            &[dividend],
            |b, carried| {
                let more = b.setp(Word::Ge, Ty::F64, carried[0], divisor);
                b.and(more, regular)
            },
            |b, carried| {
                let high = b.unpack(carried[0], Class::B32)[1];
                let exponent = b.shr(Ty::U32, high, count);
                let distance = b.sub(Ty::S32, exponent, least);
                let (fifty_one, none) = (b.s32(51), b.s32(0));
                let distance = b.sub(Ty::S32, distance, fifty_one);
                let distance = b.max(Ty::S32, distance, none);
                let one = b.u32(1);
                let half = b.shr(Ty::S32, distance, one);
                let rest = b.sub(Ty::S32, distance, half);
                let mut multiple = divisor;
                for power in [half, rest] {
                    let bias = b.s32(1023);
                    let exponent = b.add(Ty::S32, power, bias);
                    let high = b.shl(exponent, count);
                    let factor = b.pack(&[none, high]);
                    multiple = b.mul(Ty::F64, multiple, factor);
                }
                let quotient = b.value("div.rz.f64", &[carried[0].into(), multiple.into()]);
                let quotient = b.cvt_with("rzi", Ty::F64, Ty::F64, quotient);
                let minus = b.neg(Ty::F64, quotient);
                vec![b.fma(Ty::F64, minus, multiple, carried[0])]
            },
        );
        let nan = self.b.f64(f64::NAN);
        let value = self.b.select(regular, left[0], nan);
        let value = self.op("copysign.f64", &[a, value]);
        let unordered = self.unordered(Ty::F64, a, b);
        self.b.select(unordered, nan, value)
    }

    /// A float to an integer power, by squaring in `f64`.
    pub(super) fn power_of_int(&mut self, dtype: DType, base: Reg, exponent: DType, power: Reg) -> Lowered<Reg> {
        let wide = self.wide_of(dtype, base)?;
        let wide = if computed_in(dtype) == Ty::F64 { wide } else { self.b.cvt(Ty::F64, Ty::F32, wide) };
        let power = self.signed(exponent, power);
        let power = self.widen(power);
        let one = self.b.f64(1.0);
        let zero = self.b.s64(0);
        let negative = self.b.setp(Word::Lt, Ty::S64, power, zero);
        let left = self.b.abs(Ty::S64, power);
        let result = match self.b.kernel().constant(power) {
            Some(bits) => {
                let mut left = (bits as i64).unsigned_abs();
                let (mut square, mut result) = (wide, one);
                while left > 0 {
                    if left & 1 == 1 {
                        result = self.b.mul(Ty::F64, result, square);
                    }
                    square = self.b.mul(Ty::F64, square, square);
                    left >>= 1;
                }
                result
            }
            None => {
                let results = self.b.while_(
                    &[left, wide, one],
                    |b, carried| b.setp(Word::Ne, Ty::U64, carried[0], zero),
                    |b, carried| {
                        let (bit, shift) = (b.u64(1), b.u32(1));
                        let bit = b.and(carried[0], bit);
                        let odd = b.setp(Word::Ne, Ty::U64, bit, zero);
                        let product = b.mul(Ty::F64, carried[2], carried[1]);
                        let result = b.select(odd, product, carried[2]);
                        let square = b.mul(Ty::F64, carried[1], carried[1]);
                        vec![b.shr(Ty::U64, carried[0], shift), square, result]
                    },
                );
                results[2]
            }
        };
        let inverse = self.b.div(Ty::F64, one, result);
        let result = self.b.select(negative, inverse, result);
        if computed_in(dtype) == Ty::F64 {
            return Ok(result);
        }
        let single = self.b.cvt(Ty::F32, Ty::F64, result);
        self.rounded(dtype, single)
    }
}
