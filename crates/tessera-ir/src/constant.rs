//! Compile-time tiles: an element type and raw element bits.
//!
//! Text form: `f32(1.5)` for a value that every element has, `i32[1, 2, 3]` for one value an element. Floats that
//! decimal digits don't name (NaN payloads, 8-bit and smaller formats) are written as bits: `f32(0x7fc00001)`.

use std::fmt;

use half::{bf16, f16};
use tessera_types::{DType, FloatFormat, IntFormat};

use crate::attrs::Combine;
use crate::diag::Diagnostic;
use crate::text::cursor::{Cursor, Parsed};
use crate::types::elem_name;

/// Element bits of a [`Const`], zero-extended to 64.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum ConstData {
    /// Every element has these bits.
    Splat(u64),
    /// One entry an element, in row-major order.
    Dense(Box<[u64]>),
}

/// A compile-time tile.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Const {
    /// Element type (signless).
    pub dtype: DType,
    /// Element bits.
    pub data: ConstData,
}

impl Const {
    /// Every element has these bits; bits above the element's width are dropped.
    pub fn splat(dtype: DType, bits: u64) -> Const {
        Const { dtype, data: ConstData::Splat(bits & mask(dtype)) }
    }

    /// An integer, wrapped to the type's width.
    pub fn int(dtype: DType, value: i64) -> Const {
        Const::splat(dtype, value as u64)
    }

    /// A truth value.
    pub fn bool(value: bool) -> Const {
        Const::splat(DType::B1, u64::from(value))
    }

    /// What changes no element that it is combined with. Maximum and minimum ignore NaN, so that is theirs where the format has it; a sum
    /// starts from +0.
    pub fn neutral(combine: Combine, dtype: DType) -> Const {
        let bits = match (FloatFormat::of(dtype), IntFormat::of(dtype)) {
            (Some(format), _) => match combine {
                Combine::Sum => 0,
                Combine::Prod => format.encode_nearest(1.0),
                Combine::Max => format.nan_code().unwrap_or(format.encode_nearest(f64::NEG_INFINITY)),
                Combine::Min => format.nan_code().unwrap_or(format.encode_nearest(f64::INFINITY)),
            },
            (None, Some(format)) => format.wrap(match combine {
                Combine::Sum => 0,
                Combine::Prod => 1,
                Combine::Max => format.min(),
                Combine::Min => format.max(),
            }),
            (None, None) => u64::from(matches!(combine, Combine::Prod | Combine::Min)),
        };
        Const::splat(dtype, bits)
    }

    /// The bits that every element has.
    pub fn splat_bits(&self) -> Option<u64> {
        match self.data {
            ConstData::Splat(bits) => Some(bits),
            ConstData::Dense(_) => None,
        }
    }

    /// The integer that every element is, read as signed (truth values as 0 and 1).
    pub fn as_int(&self) -> Option<i64> {
        let bits = self.splat_bits()?;
        match self.dtype {
            DType::B1 => Some(bits as i64),
            dtype if dtype.is_integer() => Some(sign_extend(dtype, bits)),
            _ => None,
        }
    }

    pub(crate) fn parse(cursor: &mut Cursor<'_>) -> Parsed<Const> {
        let dtype = cursor.dtype()?;
        if cursor.peek("[") {
            let items = cursor.list("[", "]", |c| element(c, dtype))?;
            return Ok(Const { dtype, data: ConstData::Dense(items.into()) });
        }
        cursor.expect("(")?;
        let bits = element(cursor, dtype)?;
        cursor.expect(")")?;
        Ok(Const::splat(dtype, bits))
    }
}

/// The bits an element of this type can have.
fn mask(dtype: DType) -> u64 {
    u64::MAX >> (64 - dtype.bits())
}

fn sign_extend(dtype: DType, bits: u64) -> i64 {
    let shift = 64 - dtype.bits();
    ((bits << shift) as i64) >> shift
}

/// Writes one element so that [`element`] reads the same bits back.
fn write_element(f: &mut fmt::Formatter<'_>, dtype: DType, bits: u64) -> fmt::Result {
    let decimal = match dtype {
        DType::F64 => Some(f64::from_bits(bits)),
        DType::F32 | DType::TF32 => Some(f64::from(f32::from_bits(bits as u32))),
        DType::F16 => Some(f16::from_bits(bits as u16).to_f64()),
        DType::BF16 => Some(bf16::from_bits(bits as u16).to_f64()),
        _ => None,
    };
    match decimal {
        Some(value) if value.is_finite() && dtype == DType::F32 => write!(f, "{:?}", value as f32),
        Some(value) if value.is_finite() => write!(f, "{value:?}"),
        Some(value) if value.is_infinite() => f.write_str(if value > 0.0 { "inf" } else { "-inf" }),
        _ if dtype.is_float() => write!(f, "0x{bits:x}"),
        _ if dtype == DType::B1 => f.write_str(if bits != 0 { "true" } else { "false" }),
        _ => write!(f, "{}", sign_extend(dtype, bits)),
    }
}

/// Reads one number of an element type, as its bits.
pub fn element(cursor: &mut Cursor<'_>, dtype: DType) -> Parsed<u64> {
    let start = cursor.offset();
    let text = cursor.number()?;
    let float = || text.parse::<f64>().ok().filter(|_| !text.contains("nan"));
    let bits = if let Some(hex) = text.strip_prefix("0x") {
        u64::from_str_radix(hex, 16).ok()
    } else {
        match dtype {
            DType::F64 => float().map(f64::to_bits),
            DType::F32 | DType::TF32 => text.parse::<f32>().ok().filter(|v| !v.is_nan()).map(|v| u64::from(v.to_bits())),
            DType::F16 => float().map(|v| u64::from(f16::from_f64(v).to_bits())),
            DType::BF16 => float().map(|v| u64::from(bf16::from_f64(v).to_bits())),
            DType::B1 => match text {
                "true" => Some(1),
                "false" => Some(0),
                _ => None,
            },
            _ if dtype.is_integer() => text
                .parse::<i64>()
                .ok()
                .filter(|v| sign_extend(dtype, *v as u64) == *v || (*v as u64) & !mask(dtype) == 0)
                .map(|v| v as u64 & mask(dtype)),
            _ => None,
        }
    };
    bits.filter(|bits| bits & !mask(dtype) == 0).ok_or_else(|| {
        let message = format!("`{text}` is not a constant of type `{}`", elem_name(dtype));
        Box::new(Diagnostic::error("ir-constant", cursor.span_from(start), message))
    })
}

impl fmt::Display for Const {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(elem_name(self.dtype))?;
        match &self.data {
            ConstData::Splat(bits) => {
                f.write_str("(")?;
                write_element(f, self.dtype, *bits)?;
                f.write_str(")")
            }
            ConstData::Dense(items) => {
                f.write_str("[")?;
                for (i, bits) in items.iter().enumerate() {
                    if i > 0 {
                        f.write_str(", ")?;
                    }
                    write_element(f, self.dtype, *bits)?;
                }
                f.write_str("]")
            }
        }
    }
}
