//! Floating-point formats: one row each, and the two functions that follow from a row, `encode` and `decode`.
//!
//! A code is `sign | exponent field | mantissa`. With `bias` b and `mantissa_bits` p,
//!
//! | exponent field | value |
//! |---|---|
//! | 0 | `mantissa * 2^(1 - b - p)`: zero and the subnormals |
//! | e > 0 | `(2^p + mantissa) * 2^(e - b - p)` |
//! | all ones | as [`Specials`] says |
//!
//! `e8m0` is the exception: no sign, no zero, no subnormals; code `c` is `2^(c - 127)`. `tf32` is the other one: its 19 bits
//! stand at the top of a 32-bit word and the low 13 are ignored when read and zero when written, as tensor cores treat them.
//! With one significant bit, `e8m0` has no even neighbour: as IEEE 754 prescribes for that, nearest-even takes the larger.
//!
//! # Special values
//! They follow the OCP formats ("OFP8", "Microscaling Formats") and PTX ISA, "Data Movement and Conversion Instructions: cvt":
//!
//! | from | [`Overflow::Saturate`] (`.satfinite`) | [`Overflow::Ieee`] |
//! |---|---|---|
//! | NaN | the quiet NaN; without one (6- and 4-bit formats) the positive largest finite number | the same |
//! | infinity, or beyond the largest finite | the largest finite number of that sign | infinity; without one NaN; without either the largest finite number |
//! | a negative number to `e8m0` | NaN | NaN |
//! | zero, or below the smallest scale, to `e8m0` | the smallest scale, 2^-127 | the same |
//!
//! NaNs are written in one form, positive and quiet: payloads are no part of a value.
//!
//! ```
//! use tessera_types::{DType, FloatFormat, Overflow, Rounding};
//! let e4m3 = FloatFormat::of(DType::F8E4M3).unwrap();
//! assert_eq!(e4m3.max_finite(), 448.0);
//! assert_eq!(e4m3.encode(1000.0, Rounding::NearestEven, Overflow::Saturate), 0x7e);
//! assert_eq!(e4m3.decode(0x7e), 448.0);
//! ```

use crate::dtype::DType;
use crate::rounding::{Exact, Overflow, Rounding, round_magnitude};

/// What the highest exponent field stands for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Specials {
    /// Infinity where the mantissa is zero, NaN elsewhere.
    Ieee,
    /// NaN where the mantissa is all ones too; finite numbers elsewhere. No infinity.
    NanOnly,
    /// Finite numbers only.
    None,
}

/// The shape of a binary floating-point format.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct FloatFormat {
    /// The element type stored in this format.
    pub dtype: DType,
    /// Width of the exponent field.
    pub exponent_bits: u32,
    /// Width of the mantissa field: the leading one is not stored.
    pub mantissa_bits: u32,
    /// What is subtracted from the exponent field.
    pub bias: i32,
    /// What the highest exponent field stands for.
    pub specials: Specials,
    /// Whether there is a sign bit; an unsigned format has neither zero nor subnormals.
    pub signed: bool,
    /// Unused low bits of the storage word.
    pub padding: u32,
}

const fn row(dtype: DType, exponent_bits: u32, mantissa_bits: u32, specials: Specials) -> FloatFormat {
    FloatFormat { dtype, exponent_bits, mantissa_bits, bias: (1 << (exponent_bits - 1)) - 1, specials, signed: true, padding: 0 }
}

impl FloatFormat {
    /// IEEE 754 binary64.
    pub const F64: FloatFormat = row(DType::F64, 11, 52, Specials::Ieee);
    /// IEEE 754 binary32.
    pub const F32: FloatFormat = row(DType::F32, 8, 23, Specials::Ieee);
    /// PTX `.tf32`.
    pub const TF32: FloatFormat = FloatFormat { padding: 13, ..row(DType::TF32, 8, 10, Specials::Ieee) };
    /// IEEE 754 binary16.
    pub const F16: FloatFormat = row(DType::F16, 5, 10, Specials::Ieee);
    /// The upper half of binary32.
    pub const BF16: FloatFormat = row(DType::BF16, 8, 7, Specials::Ieee);
    /// OCP OFP8 E4M3.
    pub const F8E4M3: FloatFormat = row(DType::F8E4M3, 4, 3, Specials::NanOnly);
    /// OCP OFP8 E5M2.
    pub const F8E5M2: FloatFormat = row(DType::F8E5M2, 5, 2, Specials::Ieee);
    /// OCP MX E8M0, the block scale.
    pub const E8M0: FloatFormat = FloatFormat { signed: false, ..row(DType::E8M0, 8, 0, Specials::NanOnly) };
    /// OCP MX FP6 E2M3.
    pub const F6E2M3: FloatFormat = row(DType::F6E2M3, 2, 3, Specials::None);
    /// OCP MX FP6 E3M2.
    pub const F6E3M2: FloatFormat = row(DType::F6E3M2, 3, 2, Specials::None);
    /// OCP MX FP4 E2M1.
    pub const F4E2M1: FloatFormat = row(DType::F4E2M1, 2, 1, Specials::None);

    /// Every format, widest first.
    pub const ALL: &'static [FloatFormat] = &[
        FloatFormat::F64,
        FloatFormat::F32,
        FloatFormat::TF32,
        FloatFormat::F16,
        FloatFormat::BF16,
        FloatFormat::F8E4M3,
        FloatFormat::F8E5M2,
        FloatFormat::E8M0,
        FloatFormat::F6E2M3,
        FloatFormat::F6E3M2,
        FloatFormat::F4E2M1,
    ];

    /// The format of an element type; `None` for integers and truth values.
    pub fn of(dtype: DType) -> Option<&'static FloatFormat> {
        FloatFormat::ALL.iter().find(|f| f.dtype == dtype)
    }

    /// Bits that carry information: the storage width without padding.
    pub const fn bits(&self) -> u32 {
        self.signed as u32 + self.exponent_bits + self.mantissa_bits
    }

    /// The sign bit's place in a code, or an empty mask.
    pub const fn sign_mask(&self) -> u64 {
        (self.signed as u64) << (self.exponent_bits + self.mantissa_bits) << self.padding
    }

    /// The exponent of the smallest normal number.
    pub const fn min_exponent(&self) -> i32 {
        self.signed as i32 - self.bias
    }

    /// The code of the largest finite number.
    pub const fn max_finite_code(&self) -> u64 {
        let all_ones = (1_u64 << (self.exponent_bits + self.mantissa_bits)) - 1;
        let top = match self.specials {
            Specials::Ieee => all_ones - (1 << self.mantissa_bits),
            Specials::NanOnly => all_ones - 1,
            Specials::None => all_ones,
        };
        top << self.padding
    }

    /// The code of positive infinity, where there is one.
    pub const fn infinity_code(&self) -> Option<u64> {
        match self.specials {
            Specials::Ieee => Some(self.max_finite_code() + (1 << self.padding)),
            Specials::NanOnly | Specials::None => None,
        }
    }

    /// The code that conversions write for NaN, where there is one.
    pub const fn nan_code(&self) -> Option<u64> {
        match self.specials {
            Specials::Ieee => {
                let quiet = 1 << (self.mantissa_bits - 1) << self.padding;
                Some(self.max_finite_code() + (1 << self.padding) + quiet)
            }
            Specials::NanOnly => Some(self.max_finite_code() + 1),
            Specials::None => None,
        }
    }

    /// The largest finite number.
    pub const fn max_finite(&self) -> f64 {
        self.decode(self.max_finite_code())
    }

    /// The smallest positive normal number.
    pub const fn min_positive_normal(&self) -> f64 {
        power_of_two(self.min_exponent())
    }

    /// What the language prescribes beyond the largest finite number: 8-bit and smaller formats saturate, wider ones are IEEE.
    pub const fn overflow(&self) -> Overflow {
        if self.bits() <= 8 { Overflow::Saturate } else { Overflow::Ieee }
    }

    /// The number that a code stands for, exactly; bits above the format's width and the padding are ignored.
    pub const fn decode(&self, bits: u64) -> f64 {
        if self.mantissa_bits == 52 {
            return f64::from_bits(bits);
        }
        let code = bits >> self.padding;
        let top_field = (1 << self.exponent_bits) - 1;
        let mantissa = code & ((1 << self.mantissa_bits) - 1);
        let field = (code >> self.mantissa_bits) & top_field;
        let magnitude = match self.specials {
            Specials::Ieee if field == top_field && mantissa == 0 => f64::INFINITY,
            Specials::Ieee if field == top_field => return f64::NAN,
            Specials::NanOnly if field == top_field && mantissa == (1 << self.mantissa_bits) - 1 => return f64::NAN,
            Specials::Ieee | Specials::NanOnly | Specials::None => {
                let subnormal = self.signed && field == 0;
                let significand = mantissa + if subnormal { 0 } else { 1 << self.mantissa_bits };
                let exponent = if subnormal { 1 } else { field as i32 };
                significand as f64 * power_of_two(exponent - self.bias - self.mantissa_bits as i32)
            }
        };
        if bits & self.sign_mask() != 0 { -magnitude } else { magnitude }
    }

    /// The code of `value`, rounded once. Where the largest finite number is passed, `overflow` decides; the head of this
    /// module lists what becomes of NaN, infinity and what `e8m0` cannot hold.
    pub fn encode(&self, value: impl Into<Exact>, rounding: Rounding, overflow: Overflow) -> u64 {
        let nan = self.nan_code().unwrap_or(self.max_finite_code());
        let (negative, significand, exponent) = match value.into() {
            Exact::Nan => return nan,
            Exact::Infinite { negative: true } if !self.signed => return nan,
            Exact::Infinite { negative } => return self.beyond(negative, overflow),
            Exact::Finite { negative: true, significand: 1.., .. } if !self.signed => return nan,
            Exact::Finite { negative, significand, exponent } => (negative, significand, exponent),
        };
        let sign = if negative { self.sign_mask() } else { 0 };
        if significand == 0 {
            return sign;
        }

        let leading = exponent + 63 - significand.leading_zeros() as i32;
        let magnitude = if leading < self.min_exponent() && !self.signed {
            0
        } else if leading >= (1 << self.exponent_bits) - self.bias {
            u64::MAX
        } else {
            let quantum = leading.max(self.min_exponent()) - self.mantissa_bits as i32;
            // At most 53 bits and a carry are kept: the quotient always fits.
            let kept = round_magnitude(negative, significand, exponent, quantum, rounding).unwrap_or(u64::MAX);
            // The leading one of a normal number adds 1 to the exponent field, and so does a carry out of the mantissa.
            let below = if self.signed { 1 } else { 0 };
            let field = (leading.max(self.min_exponent()) + self.bias - below) as u64;
            let implicit = if self.signed { 0 } else { 1 };
            (field << self.mantissa_bits) + kept - implicit
        };
        if magnitude <= self.max_finite_code() >> self.padding {
            sign | magnitude << self.padding
        } else if rounding.overflows_away(negative) {
            self.beyond(negative, overflow)
        } else {
            sign | self.max_finite_code()
        }
    }

    /// The code of `value` by the language's conversion: to nearest even, [`FloatFormat::overflow`] beyond the largest finite number.
    pub fn encode_nearest(&self, value: impl Into<Exact>) -> u64 {
        self.encode(value, Rounding::NearestEven, self.overflow())
    }

    /// The code of what lies beyond the largest finite number.
    fn beyond(&self, negative: bool, overflow: Overflow) -> u64 {
        let sign = if negative { self.sign_mask() } else { 0 };
        match (overflow, self.infinity_code(), self.nan_code()) {
            (Overflow::Ieee, Some(infinity), _) => sign | infinity,
            (Overflow::Ieee, None, Some(nan)) => nan,
            (Overflow::Saturate, _, _) | (Overflow::Ieee, None, None) => sign | self.max_finite_code(),
        }
    }
}

/// `2^exponent` for exponents of normal `f64` numbers.
const fn power_of_two(exponent: i32) -> f64 {
    f64::from_bits(((exponent + 1023) as u64) << 52)
}
