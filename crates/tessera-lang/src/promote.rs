//! Which element type two operands share, by the rules that cuTile documents.
//!
//! | operands | common type |
//! |---|---|
//! | equal types | that type |
//! | truth value and anything arithmetic | the other |
//! | integers of one signedness | the wider |
//! | signed and unsigned integers | none: a cast must be written |
//! | integer and float | the float |
//! | floats | the wider; `float16` with `bfloat16` has none |
//! | `tfloat32`, 8-bit and smaller floats with another type | none |
//! | a number literal and a type of the same kind or a stronger one | the type |
//! | a float literal and an integer type | `float32` |

use tessera_types::{DType, NumberClass};

use crate::number::Num;

/// The name that the language's messages give an element type.
pub(crate) fn dtype_name(dtype: DType) -> &'static str {
    match dtype {
        DType::B1 => "bool_",
        DType::F64 => "float64",
        DType::F32 => "float32",
        DType::TF32 => "tfloat32",
        DType::F16 => "float16",
        DType::BF16 => "bfloat16",
        DType::F8E4M3 => "float8_e4m3fn",
        DType::F8E5M2 => "float8_e5m2",
        DType::E8M0 => "float8_e8m0fnu",
        DType::F6E2M3 => "float6_e2m3fn",
        DType::F6E3M2 => "float6_e3m2fn",
        DType::F4E2M1 => "float4_e2m1fn",
        DType::I64 => "int64",
        DType::I32 => "int32",
        DType::I16 => "int16",
        DType::I8 => "int8",
        DType::I4 => "int4",
        DType::U64 => "uint64",
        DType::U32 => "uint32",
        DType::U16 => "uint16",
        DType::U8 => "uint8",
    }
}

/// Floats that arithmetic does not take: they are stored, converted and multiplied as matrices only.
pub(crate) fn is_restricted(dtype: DType) -> bool {
    dtype.is_float() && !matches!(dtype, DType::F64 | DType::F32 | DType::F16 | DType::BF16)
}

/// Types that `+`, `*` and the functions take.
pub(crate) fn is_arithmetic(dtype: DType) -> bool {
    !is_restricted(dtype)
}

/// The type that a literal has on its own; `None` when no integer type holds it.
pub(crate) fn literal_dtype(value: Num) -> Option<DType> {
    match value {
        Num::Bool(_) => Some(DType::B1),
        Num::Float(_) => Some(DType::F32),
        Num::Int(value) if i32::try_from(value).is_ok() => Some(DType::I32),
        Num::Int(value) if i64::try_from(value).is_ok() => Some(DType::I64),
        Num::Int(value) if u64::try_from(value).is_ok() => Some(DType::U64),
        Num::Int(_) => None,
    }
}

/// The smallest and the largest value of an integer type.
pub(crate) fn int_range(dtype: DType) -> (i128, i128) {
    let bits = dtype.bits();
    if dtype.is_signed() { (-(1i128 << (bits - 1)), (1i128 << (bits - 1)) - 1) } else { (0, (1i128 << bits) - 1) }
}

/// The common type of two concrete types.
pub(crate) fn promote(a: DType, b: DType) -> Option<DType> {
    use NumberClass::{Bool, Float, Signed, Unsigned};
    if a == b {
        return Some(a);
    }
    if is_restricted(a) || is_restricted(b) {
        return None;
    }
    match (a.class(), b.class()) {
        (Bool, _) => Some(b),
        (_, Bool) => Some(a),
        (Float, Float) if a.bits() == b.bits() => None,
        (Float, Float) | (Signed, Signed) | (Unsigned, Unsigned) => Some(if a.bits() >= b.bits() { a } else { b }),
        (Float, _) => Some(a),
        (_, Float) => Some(b),
        (Signed, Unsigned) | (Unsigned, Signed) => None,
    }
}

fn strength(class: NumberClass) -> u32 {
    match class {
        NumberClass::Bool => 0,
        NumberClass::Signed | NumberClass::Unsigned => 1,
        NumberClass::Float => 2,
    }
}

/// What a literal and a concrete type come to.
pub(crate) enum WithLiteral {
    /// The common type.
    Common(DType),
    /// The literal is outside the integer type.
    OutOfRange,
}

/// The common type of a concrete type and a literal; `to_float` when integers become floats anyway.
pub(crate) fn promote_literal(dtype: DType, value: Num, to_float: bool) -> WithLiteral {
    let Some(own) = literal_dtype(value) else { return WithLiteral::OutOfRange };
    let (of_type, of_literal) = (strength(dtype.class()), strength(own.class()));
    if of_literal > of_type {
        return WithLiteral::Common(own);
    }
    if of_literal == of_type && dtype.is_integer() && !to_float {
        let (least, greatest) = int_range(dtype);
        if value.as_int().is_some_and(|value| value < least || value > greatest) {
            return WithLiteral::OutOfRange;
        }
    }
    WithLiteral::Common(dtype)
}

#[cfg(test)]
mod tests {
    use tessera_types::DType::{self, *};

    use super::promote;

    #[test]
    fn promotion_is_symmetric_and_signedness_never_mixes() {
        for &a in DType::ALL {
            for &b in DType::ALL {
                assert_eq!(promote(a, b), promote(b, a), "{a} {b}");
            }
        }
        assert_eq!(promote(I32, U8), None);
        assert_eq!(promote(F16, BF16), None);
        assert_eq!(promote(F16, I64), Some(F16));
        assert_eq!(promote(BF16, F32), Some(F32));
        assert_eq!(promote(B1, U16), Some(U16));
        assert_eq!(promote(TF32, F32), None);
    }
}
