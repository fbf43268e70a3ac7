//! Conversions of one element between number types.
//!
//! A conversion that would round twice rounds to odd the first time: the last bit of the intermediate result is one where
//! anything was cut off, so that the second rounding sees on which side of a midpoint the number lies.

use tessera_ir::ScheduleOp;
use tessera_ir::attrs::{Rounding, Signedness};
use tessera_ptx::ssa::{Class, Value as Reg};
use tessera_ptx::{Type as Ty, Word};
use tessera_types::DType;

use super::float::{is_narrow, rounding_word};
use super::integer::register_types;
use super::lowering::{Lowered, Lowering};
use super::operation::astray;

impl Lowering<'_> {
    /// A conversion of an element.
    pub(super) fn cast(&mut self, kind: &ScheduleOp, from: DType, to: DType, a: Reg) -> Lowered<Reg> {
        Ok(match kind {
            ScheduleOp::FToF { rounding } => self.float_to_float(from, to, *rounding, a)?,
            ScheduleOp::FToI { signedness, rounding } => {
                self.float_to_int(from, to, *signedness == Signedness::Signed, *rounding, a)?
            }
            ScheduleOp::IToF { signedness, rounding } => {
                self.int_to_float(from, to, *signedness == Signedness::Signed, *rounding, a)?
            }
            ScheduleOp::ExtI { signedness } => {
                let signed = *signedness == Signedness::Signed;
                let value = self.extended(from, signed, a);
                self.resized(to, signed, value)
            }
            ScheduleOp::TruncI { .. } => self.resized(to, false, a),
            ScheduleOp::Bitcast {} => self.same_bits(from, to, a),
            ScheduleOp::IntToPtr {} => {
                let value = self.unsigned(from, a);
                self.resized(DType::I64, false, value)
            }
            ScheduleOp::PtrToInt {} => self.resized(to, false, a),
            ScheduleOp::PtrToPtr {} => a,
            _ => astray(kind),
        })
    }

    /// An integer register in the register of another integer type.
    pub(super) fn resized(&mut self, to: DType, signed: bool, value: Reg) -> Reg {
        let class = self.class(value);
        if to == DType::B1 {
            let one = self.b.constant(class, 1);
            let bit = self.b.and(value, one);
            let zero = self.b.constant(class, 0);
            return self.b.setp(Word::Ne, if class == Class::B64 { Ty::U64 } else { Ty::U32 }, bit, zero);
        }
        match (class, to.bits()) {
            (Class::B64, 64) => value,
            (Class::B64, _) => self.b.cvt(Ty::U32, Ty::U64, value),
            (_, 64) if signed => self.b.cvt(Ty::S64, Ty::S32, value),
            (_, 64) => self.b.cvt(Ty::U64, Ty::U32, value),
            _ => value,
        }
    }

    /// The bits of an element as one of another type of its width.
    pub(super) fn same_bits(&mut self, from: DType, to: DType, a: Reg) -> Reg {
        let half = |dtype: DType| matches!(dtype, DType::F16 | DType::BF16);
        match (half(from), half(to)) {
            (true, false) => self.b.cvt(Ty::U32, Ty::U16, a),
            (false, true) => self.b.cvt(Ty::U16, Ty::U32, a),
            _ => a,
        }
    }

    /// The number as `f32`, or as `f64` where it is one.
    pub(super) fn wide_of(&mut self, dtype: DType, a: Reg) -> Lowered<Reg> {
        Ok(match dtype {
            DType::F64 | DType::F32 => a,
            DType::TF32 => {
                let mask = self.b.u32(0xffff_e000);
                self.b.and(a, mask)
            }
            DType::F16 => self.b.cvt(Ty::F32, Ty::F16, a),
            DType::BF16 => {
                let zero = self.b.b16(0);
                self.b.pack(&[zero, a])
            }
            _ => self.decode(dtype, a)?,
        })
    }

    /// An `f32` (an `f64` for `f64`) as a number of the type, rounded to nearest.
    pub(super) fn rounded(&mut self, dtype: DType, value: Reg) -> Lowered<Reg> {
        Ok(match dtype {
            DType::F64 | DType::F32 => value,
            DType::F16 => self.b.cvt(Ty::F16, Ty::F32, value),
            DType::BF16 if self.arch.has_bf16_fma() => self.op("cvt.rn.bf16.f32", &[value]),
            DType::BF16 | DType::TF32 => self.cut(dtype, value, Rounding::NearestEven)?,
            _ => self.encode(dtype, value)?,
        })
    }

    /// An `f32` as a number of a narrower type, rounded as asked for.
    pub(super) fn narrowed(&mut self, dtype: DType, value: Reg, rounding: Rounding) -> Lowered<Reg> {
        match (dtype, rounding) {
            (_, Rounding::NearestEven | Rounding::Full | Rounding::Approx) => self.rounded(dtype, value),
            (DType::F16, Rounding::Zero | Rounding::NegativeInf | Rounding::PositiveInf) => {
                Ok(self.op(&format!("cvt.{}.f16.f32", rounding_word(rounding)), &[value]))
            }
            (DType::BF16 | DType::TF32, _) => self.cut(dtype, value, rounding),
            (DType::E8M0, _) => Ok(self.encode_scale(value, rounding)),
            _ => Err(self.unsupported(format!("there is no rounding `{}` to `{dtype}`", rounding.word()))),
        }
    }

    /// The upper bits of an `f32`: `bf16` keeps 16, `tf32` 19.
    fn cut(&mut self, dtype: DType, value: Reg, rounding: Rounding) -> Lowered<Reg> {
        let dropped = if dtype == DType::BF16 { 16 } else { 13 };
        let rest = (1u32 << dropped) - 1;
        let half = self.b.u32(rest >> 1);
        let increment = match rounding {
            Rounding::NearestEven | Rounding::Full | Rounding::Approx => {
                let (count, one) = (self.b.u32(dropped), self.b.u32(1));
                let last = self.b.shr(Ty::U32, value, count);
                let odd = self.b.and(last, one);
                self.b.add(Ty::U32, odd, half)
            }
            Rounding::NearestAway => self.b.u32((rest >> 1) + 1),
            Rounding::Zero | Rounding::NearestIntToZero => self.b.u32(0),
            Rounding::NegativeInf | Rounding::PositiveInf => {
                let zero = self.b.s32(0);
                let compare = if rounding == Rounding::NegativeInf { Word::Lt } else { Word::Ge };
                let away = self.b.setp(compare, Ty::S32, value, zero);
                let all = self.b.u32(rest);
                self.b.select(away, all, zero)
            }
        };
        let sum = self.b.add(Ty::U32, value, increment);
        let number = self.op("setp.num.f32", &[value, value]);
        let nan = self.b.u32(0x7fc0_0000);
        let sum = self.b.select(number, sum, nan);
        if dtype == DType::BF16 {
            return Ok(self.b.unpack(sum, Class::B16)[1]);
        }
        let mask = self.b.u32(!rest);
        Ok(self.b.and(sum, mask))
    }

    /// The `f32` next to an `f64` whose last bit is one, unless it is an `f32` already.
    pub(super) fn odd_f32(&mut self, value: Reg) -> Reg {
        let cut = self.b.cvt_with("rz", Ty::F32, Ty::F64, value);
        let back = self.b.cvt(Ty::F64, Ty::F32, cut);
        // Unordered is equal: a NaN stays as it is.
        let inexact = self.b.setp(Word::Ne, Ty::F64, back, value);
        let one = self.b.u32(1);
        let odd = self.b.or(cut, one);
        self.b.select(inexact, odd, cut)
    }

    fn float_to_float(&mut self, from: DType, to: DType, rounding: Rounding, a: Reg) -> Lowered<Reg> {
        if from == to {
            return Ok(a);
        }
        if from != DType::F64 {
            let wide = self.wide_of(from, a)?;
            return match to {
                DType::F64 => Ok(self.b.cvt(Ty::F64, Ty::F32, wide)),
                DType::F32 => Ok(wide),
                _ => self.narrowed(to, wide, rounding),
            };
        }
        let word = rounding_word(rounding);
        if rounding == Rounding::NearestAway {
            return Err(self.unsupported(format!("there is no rounding `{}` from `f64`", rounding.word())));
        }
        if to == DType::F32 {
            return Ok(self.b.cvt_with(word, Ty::F32, Ty::F64, a));
        }
        let wide = if word == "rn" { self.odd_f32(a) } else { self.b.cvt_with(word, Ty::F32, Ty::F64, a) };
        self.narrowed(to, wide, rounding)
    }

    fn float_to_int(&mut self, from: DType, to: DType, signed: bool, rounding: Rounding, a: Reg) -> Lowered<Reg> {
        let wide = self.wide_of(from, a)?;
        let source = if from == DType::F64 { Ty::F64 } else { Ty::F32 };
        if to == DType::B1 {
            let one = if from == DType::F64 { self.b.f64(1.0) } else { self.b.f32(1.0) };
            return Ok(self.b.setp(Word::Ge, source, wide, one));
        }
        let (flat, natural) = register_types(to);
        let target = if signed { flat } else { natural };
        let mode = match rounding {
            Rounding::NegativeInf => "rmi",
            Rounding::PositiveInf => "rpi",
            _ => "rzi",
        };
        let value = self.b.cvt_with(mode, target, source, wide);
        // PTX makes NaN zero in the cases without 64 bits only.
        let number = self.op(&format!("setp.num.{source}"), &[wide, wide]);
        let zero = self.b.constant(self.class(value), 0);
        let value = if from == DType::F64 || to.bits() == 64 { self.b.select(number, value, zero) } else { value };
        if to.bits() >= 32 {
            return Ok(value);
        }
        let bits = to.bits();
        let (least, greatest) = if signed { (-(1 << (bits - 1)), (1 << (bits - 1)) - 1) } else { (0, (1 << bits) - 1) };
        let greatest = self.b.s32(greatest);
        let value = self.b.min(target, value, greatest);
        if !signed {
            return Ok(value);
        }
        let least = self.b.s32(least);
        Ok(self.b.max(target, value, least))
    }

    fn int_to_float(&mut self, from: DType, to: DType, signed: bool, rounding: Rounding, a: Reg) -> Lowered<Reg> {
        let value = self.extended(from, signed, a);
        let (flat, natural) = register_types(from);
        let source = if signed { flat } else { natural };
        let fits = from.bits() <= 16;
        let word = rounding_word(rounding);
        match to {
            DType::F64 | DType::F32 => {
                let ty = if to == DType::F64 { Ty::F64 } else { Ty::F32 };
                Ok(self.b.cvt_with(word, ty, source, value))
            }
            _ if fits => {
                let wide = self.b.cvt(Ty::F32, source, value);
                self.narrowed(to, wide, rounding)
            }
            _ if word != "rn" => {
                let wide = self.b.cvt_with(word, Ty::F32, source, value);
                self.narrowed(to, wide, rounding)
            }
            _ => {
                let exact = self.b.cvt_with("rz", Ty::F64, source, value);
                let exact = if from.bits() == 64 { self.odd_f64(source, value, exact) } else { exact };
                let odd = self.odd_f32(exact);
                debug_assert!(is_narrow(to));
                self.narrowed(to, odd, rounding)
            }
        }
    }

    /// An integer that was cut to `f64`, with the last bit one where anything was lost.
    fn odd_f64(&mut self, source: Ty, value: Reg, cut: Reg) -> Reg {
        let back = self.b.cvt_with("rzi", source, Ty::F64, cut);
        let lost = self.b.setp(Word::Ne, source, back, value);
        let one = self.b.u64(1);
        let odd = self.b.or(cut, one);
        self.b.select(lost, odd, cut)
    }
}
