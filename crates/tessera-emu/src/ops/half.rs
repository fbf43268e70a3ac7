//! Arithmetic of `f16` and `bf16`, one or two in a register.
//!
//! Sums, differences and products of two such numbers are rounded once by way of `f32`, whose 24 bits are more than twice
//! theirs plus two; fused ones go through `f64` rounded to odd.

use tessera_ptx::{Type, Word};
use tessera_types::element as convert;

use super::float::{Flags, comparisons, exp2, flush, least, most, or_nan};
use super::round::fma_odd;
use super::{Element, Map, Spread, Test, map, test};
use crate::lanes::Slot;

/// An `f16` in the low half of a lane.
#[derive(Clone, Copy)]
struct F16(f32);
/// A `bf16` in the low half of a lane.
#[derive(Clone, Copy)]
struct Bf16(f32);
/// Two `f16`.
#[derive(Clone, Copy)]
struct F16x2(f32, f32);
/// Two `bf16`.
#[derive(Clone, Copy)]
struct Bf16x2(f32, f32);

/// The chip's NaN of both formats.
const NAN: u16 = 0x7fff;

#[inline(always)]
pub(crate) fn to_f16(x: f32) -> u16 {
    if x.is_nan() { NAN } else { convert::f32_to_f16(x) }
}

#[inline(always)]
pub(crate) fn to_bf16(x: f32) -> u16 {
    if x.is_nan() { NAN } else { convert::f32_to_bf16(x) }
}

macro_rules! halves {
    ($one:ident, $two:ident, $from:path, $to:path) => {
        impl Element for $one {
            const WIDE: bool = false;
            const BITS: u8 = 16;
            #[inline(always)]
            fn get(slot: &Slot, lane: usize) -> Self {
                $one($from(slot.n()[lane] as u16))
            }
            #[inline(always)]
            fn put(self, slot: &mut Slot, lane: usize) {
                slot.n_mut()[lane] = u32::from($to(self.0));
            }
        }
        impl Element for $two {
            const WIDE: bool = false;
            const BITS: u8 = 32;
            const SPREAD: Spread = Spread::Pieces(16);
            #[inline(always)]
            fn get(slot: &Slot, lane: usize) -> Self {
                let bits = slot.n()[lane];
                $two($from(bits as u16), $from((bits >> 16) as u16))
            }
            #[inline(always)]
            fn put(self, slot: &mut Slot, lane: usize) {
                slot.n_mut()[lane] = u32::from($to(self.0)) | u32::from($to(self.1)) << 16;
            }
        }
    };
}

halves!(F16, F16x2, convert::f16_to_f32, to_f16);
halves!(Bf16, Bf16x2, convert::bf16_to_f32, to_bf16);

/// The expression for each of the four types of operand.
macro_rules! by_half {
    ($ty:expr, |$($a:ident),+| $body:expr) => {
        match $ty {
            Type::F16 => Some(map!(|$($a: F16),+| -> F16 { $(let $a = $a.0;)+ F16($body) })),
            Type::Bf16 => Some(map!(|$($a: Bf16),+| -> Bf16 { $(let $a = $a.0;)+ Bf16($body) })),
            Type::F16x2 => Some(map!(|$($a: F16x2),+| -> F16x2 {
                let low = { $(let $a = $a.0;)+ $body };
                let high = { $(let $a = $a.1;)+ $body };
                F16x2(low, high)
            })),
            Type::Bf16x2 => Some(map!(|$($a: Bf16x2),+| -> Bf16x2 {
                let low = { $(let $a = $a.0;)+ $body };
                let high = { $(let $a = $a.1;)+ $body };
                Bf16x2(low, high)
            })),
            _ => None,
        }
    };
}

/// Clamps to 0..1; NaN becomes zero.
#[inline(always)]
fn saturate(x: f32) -> f32 {
    if x > 0.0 { x.min(1.0) } else { 0.0 }
}

/// Negative numbers become zero; NaN stays.
#[inline(always)]
fn relu(x: f32) -> f32 {
    if x <= 0.0 { 0.0 } else { x }
}

#[inline(always)]
fn fused_odd(a: f32, b: f32, c: f32) -> f32 {
    convert::f64_to_f32_odd(fma_odd(a, b, c))
}

/// `f16` subnormals are numbers below 2^-14; what rounds up to that (from 2^-14 - 2^-25 on) is none.
#[inline(always)]
fn flush_f16(x: f32) -> f32 {
    if x.abs() < 6.100_535_4e-5 { 0.0f32.copysign(x) } else { x }
}

/// An instruction of one to three operands.
pub(crate) fn arithmetic(mnemonic: &str, ty: Type, flags: Flags) -> Option<Map> {
    let (sat, ftz) = (flags.sat, flags.ftz);
    match mnemonic {
        "abs" if ftz => by_half!(ty, |a| flush_f16(a.abs())),
        "neg" if ftz => by_half!(ty, |a| flush_f16(-a)),
        "add" if sat && ftz => by_half!(ty, |a, b| saturate(flush_f16(flush_f16(a) + flush_f16(b)))),
        "sub" if sat && ftz => by_half!(ty, |a, b| saturate(flush_f16(flush_f16(a) - flush_f16(b)))),
        "mul" if sat && ftz => by_half!(ty, |a, b| saturate(flush_f16(flush_f16(a) * flush_f16(b)))),
        "fma" if sat && ftz => {
            by_half!(ty, |a, b, c| saturate(flush_f16(fused_odd(flush_f16(a), flush_f16(b), flush_f16(c)))))
        }
        "fma" if flags.relu && ftz => {
            by_half!(ty, |a, b, c| relu(flush_f16(fused_odd(flush_f16(a), flush_f16(b), flush_f16(c)))))
        }
        "min" if flags.nan && ftz => by_half!(ty, |a, b| or_nan(flush_f16(a), flush_f16(b), least)),
        "max" if flags.nan && ftz => by_half!(ty, |a, b| or_nan(flush_f16(a), flush_f16(b), most)),
        "min" if ftz => by_half!(ty, |a, b| least(flush_f16(a), flush_f16(b))),
        "max" if ftz => by_half!(ty, |a, b| most(flush_f16(a), flush_f16(b))),
        "add" if sat => by_half!(ty, |a, b| saturate(a + b)),
        "sub" if sat => by_half!(ty, |a, b| saturate(a - b)),
        "mul" if sat => by_half!(ty, |a, b| saturate(a * b)),
        "fma" if sat => by_half!(ty, |a, b, c| saturate(fused_odd(a, b, c))),
        "fma" if flags.relu => by_half!(ty, |a, b, c| relu(fused_odd(a, b, c))),
        "add" if ftz => by_half!(ty, |a, b| flush_f16(flush_f16(a) + flush_f16(b))),
        "sub" if ftz => by_half!(ty, |a, b| flush_f16(flush_f16(a) - flush_f16(b))),
        "mul" if ftz => by_half!(ty, |a, b| flush_f16(flush_f16(a) * flush_f16(b))),
        "fma" if ftz => by_half!(ty, |a, b, c| flush_f16(fused_odd(flush_f16(a), flush_f16(b), flush_f16(c)))),
        "add" => by_half!(ty, |a, b| a + b),
        "sub" => by_half!(ty, |a, b| a - b),
        "mul" => by_half!(ty, |a, b| a * b),
        "fma" => by_half!(ty, |a, b, c| fused_odd(a, b, c)),
        "min" if flags.nan => by_half!(ty, |a, b| or_nan(a, b, least)),
        "max" if flags.nan => by_half!(ty, |a, b| or_nan(a, b, most)),
        "min" => by_half!(ty, |a, b| least(a, b)),
        "max" => by_half!(ty, |a, b| most(a, b)),
        "ex2" if ftz => by_half!(ty, |a| exp2(flush(a)) as f32),
        "ex2" => by_half!(ty, |a| exp2(a) as f32),
        "tanh" => by_half!(ty, |a| f64::from(a).tanh() as f32),
        _ => sign(mnemonic, ty),
    }
}

/// `.xorsign.abs`: the smaller or larger magnitude, with the product of the signs.
pub(crate) fn extreme_magnitude(max: bool, ty: Type, flags: Flags) -> Option<Map> {
    #[inline(always)]
    fn sign(a: f32, b: f32, magnitude: f32) -> f32 {
        f32::from_bits(magnitude.to_bits() | ((a.to_bits() ^ b.to_bits()) & 0x8000_0000))
    }
    macro_rules! each {
        (|$a:ident, $b:ident| $magnitude:expr) => {
            if flags.ftz {
                by_half!(ty, |x, y| {
                    let ($a, $b) = (flush_f16(x).abs(), flush_f16(y).abs());
                    sign(x, y, $magnitude)
                })
            } else {
                by_half!(ty, |x, y| {
                    let ($a, $b) = (x.abs(), y.abs());
                    sign(x, y, $magnitude)
                })
            }
        };
    }
    match (max, flags.nan) {
        (false, false) => each!(|a, b| least(a, b)),
        (false, true) => each!(|a, b| or_nan(a, b, least)),
        (true, false) => each!(|a, b| most(a, b)),
        (true, true) => each!(|a, b| or_nan(a, b, most)),
    }
}

/// The NaN that copies leave where they read outside of a tensor.
const OUT_OF_BOUNDS: u32 = 0x7fff;

/// `fma.rn.oob`: as `fma.rn`, but zero where an operand is the NaN that stands for what is outside of a tensor.
pub(crate) fn fused_in_bounds(ty: Type, flags: Flags) -> Option<Map> {
    #[inline(always)]
    fn outside(a: u32, b: u32) -> bool {
        a & 0xffff == OUT_OF_BOUNDS || b & 0xffff == OUT_OF_BOUNDS
    }
    macro_rules! fused {
        ($from:path, $to:path, $relu:literal) => {{
            #[inline(always)]
            fn one(a: u32, b: u32, c: u32) -> u32 {
                if outside(a, b) {
                    return 0;
                }
                let sum = fused_odd($from(a as u16), $from(b as u16), $from(c as u16));
                u32::from($to(if $relu { relu(sum) } else { sum }))
            }
            match matches!(ty, Type::F16x2 | Type::Bf16x2) {
                false => Some(map!(|a: u32, b: u32, c: u32| -> u32 { one(a, b, c) })),
                true => Some(map!(|a: u32, b: u32, c: u32| -> u32 { one(a, b, c) | one(a >> 16, b >> 16, c >> 16) << 16 })),
            }
        }};
    }
    match (matches!(ty, Type::F16 | Type::F16x2), flags.relu) {
        (true, false) => fused!(convert::f16_to_f32, to_f16, false),
        (true, true) => fused!(convert::f16_to_f32, to_f16, true),
        (false, false) => fused!(convert::bf16_to_f32, to_bf16, false),
        (false, true) => fused!(convert::bf16_to_f32, to_bf16, true),
    }
}

/// `abs` and `neg` touch the sign bits alone.
fn sign(mnemonic: &str, ty: Type) -> Option<Map> {
    let two = matches!(ty, Type::F16x2 | Type::Bf16x2);
    let map = match (mnemonic, two) {
        ("abs", false) => Some(map!(|a: u32| -> u32 { a & 0x7fff })),
        ("abs", true) => Some(map!(|a: u32| -> u32 { a & 0x7fff_7fff })),
        ("neg", false) => Some(map!(|a: u32| -> u32 { (a ^ 0x8000) & 0xffff })),
        ("neg", true) => Some(map!(|a: u32| -> u32 { a ^ 0x8000_8000 })),
        ("mov", _) => Some(map!(|a: u32| -> u32 { a })),
        _ => None,
    };
    map.map(|map| map.spreads(Spread::Bits(0b1)))
}

/// A comparison; of packed operands the halves' results are the low and the high one. `.ftz` is of `f16` alone.
pub(crate) fn compare(how: Word, ty: Type, high: bool, ftz: bool) -> Option<Test> {
    match (ty, high) {
        (Type::F16, _) if ftz => comparisons!(how, |a: F16, b| (flush_f16(a.0), flush_f16(b.0))),
        (Type::F16x2, false) if ftz => comparisons!(how, |a: F16x2, b| (flush_f16(a.0), flush_f16(b.0))),
        (Type::F16x2, true) if ftz => comparisons!(how, |a: F16x2, b| (flush_f16(a.1), flush_f16(b.1))),
        (Type::F16, _) => comparisons!(how, |a: F16, b| (a.0, b.0)),
        (Type::Bf16, _) => comparisons!(how, |a: Bf16, b| (a.0, b.0)),
        (Type::F16x2, false) => comparisons!(how, |a: F16x2, b| (a.0, b.0)),
        (Type::F16x2, true) => comparisons!(how, |a: F16x2, b| (a.1, b.1)),
        (Type::Bf16x2, false) => comparisons!(how, |a: Bf16x2, b| (a.0, b.0)),
        (Type::Bf16x2, true) => comparisons!(how, |a: Bf16x2, b| (a.1, b.1)),
        _ => None,
    }
}
