//! Integer formats, and what becomes of a number that one of them cannot hold.
//!
//! From integers they wrap, from floats they saturate, and NaN becomes zero: PTX ISA, "Data Movement and Conversion
//! Instructions: cvt". For the native widths that is Rust's `as`, which hot loops use; this module also has `i4` and every
//! rounding mode (`.rzi` is [`Rounding::TowardZero`], `.rni` [`Rounding::NearestEven`], `.rmi` [`Rounding::Down`], `.rpi`
//! [`Rounding::Up`]).
//!
//! ```
//! use tessera_types::{DType, IntFormat, Rounding};
//! let i4 = IntFormat::of(DType::I4).unwrap();
//! assert_eq!(i4.from_float(-2.5, Rounding::Down), 0b1101);
//! assert_eq!(i4.value(0b1101), -3);
//! assert_eq!(i4.value(i4.wrap(9)), -7);
//! ```

use crate::dtype::{DType, NumberClass};
use crate::rounding::{Exact, Rounding, round_magnitude};

/// The shape of an integer format. Codes are two's complement, in the low bits of a `u64`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct IntFormat {
    /// Width of a code.
    pub bits: u32,
    /// Whether the top bit counts negatively.
    pub signed: bool,
}

impl IntFormat {
    /// The format of an element type; `None` for floats and truth values.
    pub const fn of(dtype: DType) -> Option<IntFormat> {
        let signed = match dtype.class() {
            NumberClass::Signed => true,
            NumberClass::Unsigned => false,
            NumberClass::Float | NumberClass::Bool => return None,
        };
        Some(IntFormat { bits: dtype.bits(), signed })
    }

    /// The smallest number.
    pub const fn min(self) -> i128 {
        if self.signed { -(1 << (self.bits - 1)) } else { 0 }
    }

    /// The largest number.
    pub const fn max(self) -> i128 {
        (1 << (self.bits - self.signed as u32)) - 1
    }

    /// The number that a code stands for; bits above the width are ignored.
    pub const fn value(self, code: u64) -> i128 {
        let unused = 128 - self.bits;
        let top = (code as i128) << unused;
        if self.signed { top >> unused } else { (top as u128 >> unused) as i128 }
    }

    /// The code of the number that equals `value` modulo 2^bits.
    pub const fn wrap(self, value: i128) -> u64 {
        value as u64 & (u64::MAX >> (64 - self.bits))
    }

    /// The code of the number nearest to `value`.
    pub fn saturate(self, value: i128) -> u64 {
        self.wrap(value.clamp(self.min(), self.max()))
    }

    /// The code of `value` rounded to an integer, saturating; zero for NaN.
    pub fn from_float(self, value: impl Into<Exact>, rounding: Rounding) -> u64 {
        let (negative, magnitude) = match value.into() {
            Exact::Nan => return 0,
            Exact::Infinite { negative } => (negative, None),
            Exact::Finite { negative, significand, exponent } => {
                (negative, round_magnitude(negative, significand, exponent, 0, rounding))
            }
        };
        // Whatever exceeds 64 bits exceeds every format.
        let magnitude = magnitude.map_or(i128::MAX, i128::from);
        self.saturate(if negative { -magnitude } else { magnitude })
    }

    /// The number that a code stands for, ready for a conversion to a float.
    pub fn exact(self, code: u64) -> Exact {
        let value = self.value(code);
        Exact::Finite { negative: value < 0, significand: value.unsigned_abs() as u64, exponent: 0 }
    }
}
