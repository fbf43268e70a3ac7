//! Element types: one row each, from which names, widths and classes follow.
//!
//! A [`DType`] says how one element is stored and what numbers it can be. Its short name (`f32`, `bf16`, `f8e4m3`) is the
//! one used by the command line and by every text form; the policy grammar (`fp32`, `fp8_e4m3`) and cuTile's names
//! (`ct.float32`) are read by [`DType::parse`] as aliases.

use std::fmt;
use std::str::FromStr;

/// What kind of numbers a type holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum NumberClass {
    /// A binary floating-point format.
    Float,
    /// A two's-complement integer.
    Signed,
    /// An unsigned integer.
    Unsigned,
    /// A truth value.
    Bool,
}

macro_rules! dtypes {
    ($($(#[$doc:meta])* $variant:ident { $name:literal, $bits:literal, $class:ident, [$($alias:literal),*] })*) => {
        /// The type of one element.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, serde::Serialize, serde::Deserialize)]
        pub enum DType { $($(#[$doc])* #[serde(rename = $name)] $variant,)* }

        impl DType {
            /// Every element type, in declaration order.
            pub const ALL: &'static [DType] = &[$(DType::$variant),*];

            /// The short name used by the command line and every text form.
            pub const fn name(self) -> &'static str { match self { $(DType::$variant => $name,)* } }

            /// Bits one element occupies in packed storage (`b1` arrays use one byte an element: see [`DType::is_byte_bool`]).
            pub const fn bits(self) -> u32 { match self { $(DType::$variant => $bits,)* } }

            /// What kind of numbers the type holds.
            pub const fn class(self) -> NumberClass { match self { $(DType::$variant => NumberClass::$class,)* } }

            /// Other accepted spellings: the policy grammar's and cuTile's.
            pub const fn aliases(self) -> &'static [&'static str] { match self { $(DType::$variant => &[$($alias),*],)* } }
        }
    };
}

dtypes! {
    /// IEEE 754 binary64.
    F64 { "f64", 64, Float, ["fp64", "float64"] }
    /// IEEE 754 binary32.
    F32 { "f32", 32, Float, ["fp32", "float32"] }
    /// 8 exponent and 10 fraction bits, stored in 32 bits (PTX `.tf32`).
    TF32 { "tf32", 32, Float, ["tfloat32"] }
    /// IEEE 754 binary16.
    F16 { "f16", 16, Float, ["fp16", "float16", "half"] }
    /// The upper half of binary32.
    BF16 { "bf16", 16, Float, ["bfloat16"] }
    /// OCP 8-bit float, 4 exponent and 3 fraction bits, no infinity.
    F8E4M3 { "f8e4m3", 8, Float, ["fp8_e4m3", "float8_e4m3fn", "f8e4m3fn"] }
    /// OCP 8-bit float, 5 exponent and 2 fraction bits, with infinities.
    F8E5M2 { "f8e5m2", 8, Float, ["fp8_e5m2", "float8_e5m2"] }
    /// OCP power-of-two scale: 8 exponent bits, no sign, one NaN.
    E8M0 { "e8m0", 8, Float, ["float8_e8m0fnu", "f8e8m0"] }
    /// OCP 6-bit float, 2 exponent and 3 fraction bits, finite only.
    F6E2M3 { "f6e2m3", 6, Float, ["fp6", "fp6_e2m3", "float6_e2m3fn"] }
    /// OCP 6-bit float, 3 exponent and 2 fraction bits, finite only.
    F6E3M2 { "f6e3m2", 6, Float, ["fp6_e3m2", "float6_e3m2fn"] }
    /// OCP 4-bit float, 2 exponent and 1 fraction bit, finite only.
    F4E2M1 { "f4e2m1", 4, Float, ["fp4", "fp4_e2m1", "float4_e2m1fn"] }
    /// 64-bit signed integer.
    I64 { "i64", 64, Signed, ["int64"] }
    /// 32-bit signed integer.
    I32 { "i32", 32, Signed, ["int32"] }
    /// 16-bit signed integer.
    I16 { "i16", 16, Signed, ["int16"] }
    /// 8-bit signed integer.
    I8 { "i8", 8, Signed, ["int8"] }
    /// 4-bit signed integer.
    I4 { "i4", 4, Signed, ["int4"] }
    /// 64-bit unsigned integer.
    U64 { "u64", 64, Unsigned, ["uint64"] }
    /// 32-bit unsigned integer.
    U32 { "u32", 32, Unsigned, ["uint32"] }
    /// 16-bit unsigned integer.
    U16 { "u16", 16, Unsigned, ["uint16"] }
    /// 8-bit unsigned integer.
    U8 { "u8", 8, Unsigned, ["uint8"] }
    /// A truth value.
    B1 { "b1", 1, Bool, ["bool", "bool_"] }
}

impl DType {
    /// The type that a name of any of the three grammars stands for.
    pub fn parse(name: &str) -> Option<DType> {
        DType::ALL.iter().copied().find(|t| t.name() == name || t.aliases().contains(&name))
    }

    /// True for floating-point formats, scales included.
    pub const fn is_float(self) -> bool {
        matches!(self.class(), NumberClass::Float)
    }

    /// True for signed and unsigned integers; a truth value is not one.
    pub const fn is_integer(self) -> bool {
        matches!(self.class(), NumberClass::Signed | NumberClass::Unsigned)
    }

    /// True for signed integers.
    pub const fn is_signed(self) -> bool {
        matches!(self.class(), NumberClass::Signed)
    }

    /// True where an array stores one element in a whole byte although one bit would do (NumPy's and cuTile's `bool`).
    pub const fn is_byte_bool(self) -> bool {
        matches!(self, DType::B1)
    }

    /// Bytes one element takes in an array of unpacked elements: sub-byte types take one.
    pub const fn unpacked_bytes(self) -> usize {
        self.bits().div_ceil(8) as usize
    }

    /// The type that the IR has for it: integers lose their sign.
    pub const fn signless(self) -> DType {
        match self {
            DType::U64 => DType::I64,
            DType::U32 => DType::I32,
            DType::U16 => DType::I16,
            DType::U8 => DType::I8,
            other => other,
        }
    }
}

impl fmt::Display for DType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// A name that is no element type's.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UnknownDType(pub String);

impl fmt::Display for UnknownDType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "`{}` is not an element type", self.0)
    }
}

impl std::error::Error for UnknownDType {}

impl FromStr for DType {
    type Err = UnknownDType;
    fn from_str(s: &str) -> Result<Self, Self::Err> {
        DType::parse(s).ok_or_else(|| UnknownDType(s.to_string()))
    }
}
