//! One element from any type to any other: the language's conversion, by the book rather than fast.
//!
//! | from | to | result |
//! |---|---|---|
//! | float | float | rounded once; beyond the largest finite number as [`FloatFormat::overflow`] says |
//! | float | integer | rounded, saturating; zero for NaN |
//! | integer | float | rounded once |
//! | integer | integer | the low bits: wraps |
//! | any | truth value | whether it differs from zero, as NaN does |
//! | truth value | any | zero or one |
//!
//! ```
//! use tessera_types::{DType, cast, default_rounding};
//! let (from, to) = (DType::F32, DType::I8);
//! let code = cast(u64::from((-3.7_f32).to_bits()), from, to, default_rounding(from, to));
//! assert_eq!(code as u8 as i8, -3);
//! ```

use crate::dtype::{DType, NumberClass};
use crate::format::FloatFormat;
use crate::integer::IntFormat;
use crate::rounding::{Exact, Rounding};

/// An element type's meaning.
enum Format {
    Float(&'static FloatFormat),
    Int(IntFormat),
    Bool,
}

fn format(dtype: DType) -> Format {
    match (FloatFormat::of(dtype), IntFormat::of(dtype)) {
        (Some(float), _) => Format::Float(float),
        (None, Some(int)) => Format::Int(int),
        (None, None) => Format::Bool,
    }
}

/// The rounding of a conversion that names none: toward zero from float to integer, to nearest even elsewhere.
pub const fn default_rounding(from: DType, to: DType) -> Rounding {
    match (from.class(), to.class()) {
        (NumberClass::Float, NumberClass::Signed | NumberClass::Unsigned) => Rounding::TowardZero,
        _ => Rounding::NearestEven,
    }
}

/// The code in `to` of the number that `bits` stands for in `from`.
pub fn cast(bits: u64, from: DType, to: DType, rounding: Rounding) -> u64 {
    match (format(from), format(to)) {
        (Format::Float(from), Format::Float(to)) => to.encode(from.decode(bits), rounding, to.overflow()),
        (Format::Float(from), Format::Int(to)) => to.from_float(from.decode(bits), rounding),
        (Format::Float(from), Format::Bool) => u64::from(from.decode(bits) != 0.0),
        (Format::Int(from), Format::Float(to)) => to.encode(from.exact(bits), rounding, to.overflow()),
        (Format::Int(from), Format::Int(to)) => to.wrap(from.value(bits)),
        (Format::Int(from), Format::Bool) => u64::from(from.value(bits) != 0),
        (Format::Bool, Format::Float(to)) => to.encode(Exact::from(bits & 1), rounding, to.overflow()),
        (Format::Bool, Format::Int(to)) => to.wrap((bits & 1) as i128),
        (Format::Bool, Format::Bool) => bits & 1,
    }
}
