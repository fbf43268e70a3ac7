//! Lanes of one type to lanes of another.

use tessera_ir::attrs::Rounding;
use tessera_types::{DType, Exact, FloatFormat, convert, element};

use super::{Float, Int, Strips, map};

macro_rules! from_int {
    ($from:ident, $signed:ident, $s:ident, $to:ty) => {
        match ($from, $signed) {
            (Int::B8, true) => map($s.dst::<$to>(), $s.src::<i8>(0), |a| a as $to),
            (Int::B8, false) => map($s.dst::<$to>(), $s.src::<u8>(0), |a| a as $to),
            (Int::B16, true) => map($s.dst::<$to>(), $s.src::<i16>(0), |a| a as $to),
            (Int::B16, false) => map($s.dst::<$to>(), $s.src::<u16>(0), |a| a as $to),
            (Int::B32, true) => map($s.dst::<$to>(), $s.src::<i32>(0), |a| a as $to),
            (Int::B32, false) => map($s.dst::<$to>(), $s.src::<u32>(0), |a| a as $to),
            (Int::B64, true) => map($s.dst::<$to>(), $s.src::<i64>(0), |a| a as $to),
            (Int::B64, false) => map($s.dst::<$to>(), $s.src::<u64>(0), |a| a as $to),
        }
    };
}

macro_rules! to_int {
    ($from:ty, $to:ident, $signed:ident, $s:ident) => {
        match ($to, $signed) {
            (Int::B8, true) => map($s.dst::<i8>(), $s.src::<$from>(0), |a| a as i8),
            (Int::B8, false) => map($s.dst::<u8>(), $s.src::<$from>(0), |a| a as u8),
            (Int::B16, true) => map($s.dst::<i16>(), $s.src::<$from>(0), |a| a as i16),
            (Int::B16, false) => map($s.dst::<u16>(), $s.src::<$from>(0), |a| a as u16),
            (Int::B32, true) => map($s.dst::<i32>(), $s.src::<$from>(0), |a| a as i32),
            (Int::B32, false) => map($s.dst::<u32>(), $s.src::<$from>(0), |a| a as u32),
            (Int::B64, true) => map($s.dst::<i64>(), $s.src::<$from>(0), |a| a as i64),
            (Int::B64, false) => map($s.dst::<u64>(), $s.src::<$from>(0), |a| a as u64),
        }
    };
}

#[inline(always)]
pub(super) unsafe fn int_to_float(from: Int, signed: bool, to: Float, s: Strips) {
    // SAFETY: lanes of the types stated.
    unsafe {
        match to {
            Float::F32 => from_int!(from, signed, s, f32),
            Float::F64 => from_int!(from, signed, s, f64),
        }
    }
}

#[inline(always)]
pub(super) unsafe fn float_to_int(from: Float, to: Int, signed: bool, s: Strips) {
    // SAFETY: lanes of the types stated.
    unsafe {
        match from {
            Float::F32 => to_int!(f32, to, signed, s),
            Float::F64 => to_int!(f64, to, signed, s),
        }
    }
}

#[inline(always)]
pub(super) unsafe fn widen(dtype: DType, s: Strips) {
    // SAFETY: codes of the format's width to `f32`.
    unsafe {
        let d = s.dst::<f32>();
        match dtype {
            DType::F16 => convert::f16_to_f32(s.src::<u16>(0), d),
            DType::BF16 => map(d, s.src::<u16>(0), element::bf16_to_f32),
            DType::F8E4M3 => map(d, s.src::<u8>(0), element::f8e4m3_to_f32),
            DType::F8E5M2 => map(d, s.src::<u8>(0), element::f8e5m2_to_f32),
            DType::E8M0 => map(d, s.src::<u8>(0), element::e8m0_to_f32),
            DType::F6E2M3 => map(d, s.src::<u8>(0), element::f6e2m3_to_f32),
            DType::F6E3M2 => map(d, s.src::<u8>(0), element::f6e3m2_to_f32),
            DType::F4E2M1 => map(d, s.src::<u8>(0), element::f4e2m1_to_f32),
            DType::TF32 => map(d, s.src::<u32>(0), |a| f32::from_bits(a & 0xffff_e000)),
            _ => d.copy_from_slice(s.src::<f32>(0)),
        }
    }
}

#[inline(always)]
pub(super) unsafe fn narrow(dtype: DType, s: Strips) {
    // SAFETY: `f32` to codes of the format's width.
    unsafe {
        let a = s.src::<f32>(0);
        match dtype {
            DType::F16 => convert::f32_to_f16(a, s.dst::<u16>()),
            DType::BF16 => map(s.dst::<u16>(), a, element::f32_to_bf16),
            DType::F8E4M3 => map(s.dst::<u8>(), a, element::f32_to_f8e4m3),
            DType::F8E5M2 => map(s.dst::<u8>(), a, element::f32_to_f8e5m2),
            DType::E8M0 => map(s.dst::<u8>(), a, element::f32_to_e8m0),
            DType::F6E2M3 => map(s.dst::<u8>(), a, element::f32_to_f6e2m3),
            DType::F6E3M2 => map(s.dst::<u8>(), a, element::f32_to_f6e3m2),
            DType::F4E2M1 => map(s.dst::<u8>(), a, element::f32_to_f4e2m1),
            DType::TF32 => map(s.dst::<f32>(), a, element::f32_to_tf32),
            _ => s.dst::<f32>().copy_from_slice(a),
        }
    }
}

/// Elements rounded at a time: the codes between stay in the first-level cache.
const ROUND: usize = 256;

#[inline(always)]
pub(super) unsafe fn round(dtype: DType, s: Strips) {
    // SAFETY: two strips of `f32`.
    unsafe {
        let (d, a) = (s.dst::<f32>(), s.src::<f32>(0));
        match dtype {
            DType::BF16 => map(d, a, |a| element::bf16_to_f32(element::f32_to_bf16(a))),
            DType::TF32 => map(d, a, element::f32_to_tf32),
            DType::F16 => {
                let mut codes = [0_u16; ROUND];
                for (d, a) in d.chunks_mut(ROUND).zip(a.chunks(ROUND)) {
                    let codes = &mut codes[..a.len()];
                    convert::f32_to_f16(a, codes);
                    convert::f16_to_f32(codes, d);
                }
            }
            _ => {
                let Some(format) = FloatFormat::of(dtype) else { return };
                map(d, a, |a| format.decode(format.encode_nearest(a)) as f32);
            }
        }
    }
}

/// The rounding of the number formats that an attribute names; hardware approximations are computed to nearest.
pub(super) fn rounding_of(rounding: Rounding) -> tessera_types::Rounding {
    match rounding {
        Rounding::NearestEven | Rounding::Full | Rounding::Approx => tessera_types::Rounding::NearestEven,
        Rounding::Zero | Rounding::NearestIntToZero => tessera_types::Rounding::TowardZero,
        Rounding::NegativeInf => tessera_types::Rounding::Down,
        Rounding::PositiveInf => tessera_types::Rounding::Up,
        Rounding::NearestAway => tessera_types::Rounding::NearestAway,
    }
}

#[inline(always)]
unsafe fn code(dtype: DType, s: &Strips, position: usize, i: usize) -> u64 {
    // SAFETY: the strip holds codes of the type.
    unsafe {
        match dtype.unpacked_bytes() {
            1 => u64::from(s.src::<u8>(position)[i]),
            2 => u64::from(s.src::<u16>(position)[i]),
            4 => u64::from(s.src::<u32>(position)[i]),
            _ => s.src::<u64>(position)[i],
        }
    }
}

#[inline(always)]
unsafe fn put(dtype: DType, s: &Strips, i: usize, code: u64) {
    // SAFETY: the destination holds codes of the type.
    unsafe {
        match dtype.unpacked_bytes() {
            1 => s.dst::<u8>()[i] = code as u8,
            2 => s.dst::<u16>()[i] = code as u16,
            4 => s.dst::<u32>()[i] = code as u32,
            _ => s.dst::<u64>()[i] = code,
        }
    }
}

pub(super) unsafe fn recode(from: DType, to: DType, rounding: Rounding, s: Strips) {
    let (Some(source), Some(target)) = (FloatFormat::of(from), FloatFormat::of(to)) else { return };
    let rounding = rounding_of(rounding);
    for i in 0..s.len {
        // SAFETY: codes of the formats stated.
        unsafe { put(to, &s, i, target.encode(source.decode(code(from, &s, 0, i)), rounding, target.overflow())) };
    }
}

pub(super) unsafe fn encode(from: DType, signed: bool, to: DType, rounding: Rounding, s: Strips) {
    let Some(target) = FloatFormat::of(to) else { return };
    let rounding = rounding_of(rounding);
    let shift = 64 - if from == DType::I4 { 8 } else { 8 * from.unpacked_bytes() as u32 };
    for i in 0..s.len {
        // SAFETY: integers and codes of the types stated.
        unsafe {
            let bits = code(from, &s, 0, i);
            let exact = if signed { Exact::from(((bits << shift) as i64) >> shift) } else { Exact::from(bits) };
            put(to, &s, i, target.encode(exact, rounding, target.overflow()));
        }
    }
}
