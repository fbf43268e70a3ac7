//! `cvt`: common conversions as vector code, every other one by the book of `tessera-types`.

use tessera_ptx::{Type, Word};
use tessera_types::{DType, Exact, FloatFormat, IntFormat, Overflow, Rounding, element};

use super::float::flush;
use super::half::{to_bf16, to_f16};
use super::round::{NAN_F32, NAN_F64};
use super::{Map, Spread, map};
use crate::lanes::{Slot, lanes};

/// A conversion of one element.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Conversion {
    pub(crate) to: Type,
    pub(crate) from: Type,
    pub(crate) rounding: Rounding,
    /// To an integral value, for conversions between floats.
    pub(crate) integral: bool,
    pub(crate) ftz: bool,
    pub(crate) sat: bool,
    pub(crate) satfinite: bool,
    pub(crate) relu: bool,
}

enum Format {
    Float(&'static FloatFormat),
    Int(IntFormat),
}

fn format(ty: Type) -> Option<Format> {
    let dtype = match ty {
        Type::F64 => DType::F64,
        Type::F32 => DType::F32,
        Type::Tf32 => DType::TF32,
        Type::F16 | Type::F16x2 => DType::F16,
        Type::Bf16 | Type::Bf16x2 => DType::BF16,
        Type::E4m3 | Type::E4m3x2 => DType::F8E4M3,
        Type::E5m2 | Type::E5m2x2 => DType::F8E5M2,
        Type::U8 => DType::U8,
        Type::S8 => DType::I8,
        Type::U16 => DType::U16,
        Type::S16 => DType::I16,
        Type::U32 => DType::U32,
        Type::S32 => DType::I32,
        Type::U64 => DType::U64,
        Type::S64 => DType::I64,
        _ => return None,
    };
    match (FloatFormat::of(dtype), IntFormat::of(dtype)) {
        (Some(float), _) => Some(Format::Float(float)),
        (None, Some(int)) => Some(Format::Int(int)),
        (None, None) => None,
    }
}

/// Whether a type is a floating-point one.
pub(crate) fn is_float(ty: Type) -> bool {
    matches!(format(ty), Some(Format::Float(_)))
}

fn nan(ty: Type) -> u64 {
    match ty {
        Type::F64 => NAN_F64 & !(1 << 63),
        Type::F32 => u64::from(NAN_F32),
        Type::Tf32 => u64::from(NAN_F32),
        Type::E4m3x2 | Type::E5m2x2 | Type::E4m3 | Type::E5m2 => 0x7f,
        _ => 0x7fff,
    }
}

/// The rounding that a modifier names.
pub(crate) fn rounding(word: Word) -> Option<(Rounding, bool)> {
    Some(match word {
        Word::Rn => (Rounding::NearestEven, false),
        Word::Rz => (Rounding::TowardZero, false),
        Word::Rm => (Rounding::Down, false),
        Word::Rp => (Rounding::Up, false),
        Word::Rna => (Rounding::NearestAway, false),
        Word::Rni => (Rounding::NearestEven, true),
        Word::Rzi => (Rounding::TowardZero, true),
        Word::Rmi => (Rounding::Down, true),
        Word::Rpi => (Rounding::Up, true),
        _ => return None,
    })
}

impl Conversion {
    /// Converts one code.
    pub(crate) fn apply(&self, code: u64) -> u64 {
        let (Some(from), Some(to)) = (format(self.from), format(self.to)) else { return 0 };
        match (from, to) {
            (Format::Float(from), Format::Float(to)) => {
                let mut value = from.decode(code);
                if value.is_nan() && !self.sat {
                    // The chip rounds what is finite and cuts the rest.
                    let cut = self.to == Type::Tf32 && self.rounding == Rounding::NearestAway;
                    return if cut { code & 0xffff_e000 } else { nan(self.to) };
                }
                if self.ftz && self.from == Type::F32 {
                    value = f64::from(flush(value as f32));
                }
                if self.integral {
                    value = integral(value, self.rounding);
                }
                if self.sat {
                    value = if value > 0.0 { value.min(1.0) } else { 0.0 };
                }
                if self.relu && value <= 0.0 {
                    value = 0.0;
                }
                let overflow = if self.satfinite { Overflow::Saturate } else { Overflow::Ieee };
                let code = to.encode(value, self.rounding, overflow);
                if self.ftz && self.to == Type::F32 { u64::from(flush(f32::from_bits(code as u32)).to_bits()) } else { code }
            }
            (Format::Float(from), Format::Int(to)) => {
                let mut value = from.decode(code);
                if self.ftz && self.from == Type::F32 {
                    value = f64::from(flush(value as f32));
                }
                if value.is_nan() {
                    // PTX ISA, "cvt": zero, but the top bit where either side has 64 bits.
                    return if to.bits == 64 || self.from == Type::F64 { 1 << (to.bits - 1) } else { 0 };
                }
                to.from_float(value, self.rounding)
            }
            (Format::Int(from), Format::Float(to)) => {
                let value = from.value(code);
                let exact = match u64::try_from(value) {
                    Ok(value) => Exact::from(value),
                    Err(_) => Exact::from(value as i64),
                };
                let overflow = if self.satfinite { Overflow::Saturate } else { Overflow::Ieee };
                let code = to.encode(exact, self.rounding, overflow);
                if self.sat && value > 0 {
                    FloatFormat::encode_nearest(to, 1.0)
                } else if self.sat {
                    0
                } else {
                    code
                }
            }
            (Format::Int(from), Format::Int(to)) => {
                let value = from.value(code);
                if self.sat { to.saturate(value) } else { to.wrap(value) }
            }
        }
    }

    /// Converts all lanes: `wide` says which view each register has.
    pub(crate) fn run(&self, to: &mut Slot, to_wide: bool, from: &Slot, from_wide: bool, mask: u32) {
        // Integers that land in a wider register keep their sign.
        let extend = match self.to {
            Type::S8 => 56,
            Type::S16 => 48,
            Type::S32 => 32,
            _ => 0,
        };
        for lane in lanes(mask) {
            let code = self.apply(from.get(from_wide, lane));
            to.set(to_wide, lane, ((code << extend) as i64 >> extend) as u64);
        }
    }

    /// The same as vector code, where it exists.
    pub(crate) fn vector(&self) -> Option<Map> {
        if self.sat || self.satfinite || self.relu {
            return None;
        }
        let nearest = self.rounding == Rounding::NearestEven && !self.integral;
        let truncating = self.rounding == Rounding::TowardZero;
        match (self.from, self.to) {
            (Type::F32, Type::F16) if nearest && !self.ftz => Some(map!(|a: f32| -> u16 { to_f16(a) })),
            (Type::F32, Type::Bf16) if nearest && !self.ftz => Some(map!(|a: f32| -> u16 { to_bf16(a) })),
            (Type::F16, Type::F32) if !self.integral => Some(map!(|a: u16| -> f32 { quiet(element::f16_to_f32(a)) })),
            // The bits move up, those of a NaN too.
            (Type::Bf16, Type::F32) if !self.integral => {
                Some(map!(|a: u16| -> u32 { u32::from(a) << 16 }).spreads(Spread::Bits(0b1)))
            }
            (Type::S32, Type::F32) if nearest => Some(map!(|a: i32| -> f32 { a as f32 })),
            (Type::U32, Type::F32) if nearest => Some(map!(|a: u32| -> f32 { a as f32 })),
            (Type::S32, Type::F64) if nearest => Some(map!(|a: i32| -> f64 { f64::from(a) })),
            (Type::U32, Type::F64) if nearest => Some(map!(|a: u32| -> f64 { f64::from(a) })),
            (Type::F32, Type::S32) if truncating && !self.ftz => Some(map!(|a: f32| -> i32 { a as i32 })),
            (Type::F32, Type::U32) if truncating && !self.ftz => Some(map!(|a: f32| -> u32 { a as u32 })),
            (Type::F32, Type::F64) if !self.ftz && !self.integral => Some(map!(|a: f32| -> f64 { f64::from(a) })),
            (Type::F64, Type::F32) if nearest && !self.ftz => Some(map!(|a: f64| -> f32 { quiet(a as f32) })),
            _ => None,
        }
    }
}

#[inline(always)]
fn quiet(x: f32) -> f32 {
    if x.is_nan() { f32::from_bits(NAN_F32) } else { x }
}

fn integral(value: f64, rounding: Rounding) -> f64 {
    match rounding {
        Rounding::NearestEven => value.round_ties_even(),
        Rounding::TowardZero => value.trunc(),
        Rounding::Down => value.floor(),
        Rounding::Up => value.ceil(),
        Rounding::NearestAway => value.round(),
    }
}

/// Two `f32` in one register of two halves: the first operand is the high one.
pub(crate) fn pack(to: Type) -> Option<Map> {
    match to {
        Type::F16x2 => Some(
            map!(|high: f32, low: f32| -> u32 { u32::from(to_f16(high)) << 16 | u32::from(to_f16(low)) }).spreads(Spread::Halves),
        ),
        Type::Bf16x2 => Some(
            map!(|high: f32, low: f32| -> u32 { u32::from(to_bf16(high)) << 16 | u32::from(to_bf16(low)) })
                .spreads(Spread::Halves),
        ),
        _ => None,
    }
}
