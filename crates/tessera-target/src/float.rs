//! Float arithmetic as IEEE 754 has it. Formats narrower than `f32` are computed in `f32` and rounded, which gives what one
//! rounding would: `f32` has more than twice their bits. A fused product of `f16` or `bf16` goes through `f64`.

use tessera_ir::ScheduleOp;
use tessera_ir::attrs::{NanOrder, Predicate, Rounding};
use tessera_ptx::ssa::{Class, Value as Reg};
use tessera_ptx::{Type as Ty, Word};
use tessera_types::DType;

use super::lowering::{Lowered, Lowering};
use super::operation::astray;

/// The format that a narrow one is computed in.
pub(super) fn computed_in(dtype: DType) -> Ty {
    if dtype == DType::F64 { Ty::F64 } else { Ty::F32 }
}

/// True for floats that are computed in `f32` and rounded.
pub(super) fn is_narrow(dtype: DType) -> bool {
    dtype.is_float() && !matches!(dtype, DType::F64 | DType::F32)
}

/// PTX's word for a rounding of arithmetic; approximations are computed to nearest.
pub(super) fn rounding_word(rounding: Rounding) -> &'static str {
    match rounding {
        Rounding::Zero => "rz",
        Rounding::NegativeInf => "rm",
        Rounding::PositiveInf => "rp",
        Rounding::NearestEven | Rounding::NearestAway | Rounding::Full | Rounding::Approx | Rounding::NearestIntToZero => "rn",
    }
}

fn is_directed(rounding: Rounding) -> bool {
    rounding_word(rounding) != "rn"
}

impl Lowering<'_> {
    /// An operation of float arithmetic.
    pub(super) fn float(&mut self, kind: &ScheduleOp, dtype: DType, args: &[Reg]) -> Lowered<Reg> {
        let rounded = |name: &'static str, rounding: &Rounding, flush: &bool| (name, *rounding, *flush);
        let (name, rounding, flush) = match kind {
            ScheduleOp::AddF { rounding, flush_to_zero } => rounded("add", rounding, flush_to_zero),
            ScheduleOp::SubF { rounding, flush_to_zero } => rounded("sub", rounding, flush_to_zero),
            ScheduleOp::MulF { rounding, flush_to_zero } => rounded("mul", rounding, flush_to_zero),
            ScheduleOp::DivF { rounding, flush_to_zero } => rounded("div", rounding, flush_to_zero),
            ScheduleOp::Fma { rounding, flush_to_zero } => rounded("fma", rounding, flush_to_zero),
            ScheduleOp::Sqrt { rounding, flush_to_zero } => rounded("sqrt", rounding, flush_to_zero),
            ScheduleOp::AbsF {} | ScheduleOp::NegF {} => return self.sign(kind, dtype, args[0]),
            ScheduleOp::MaxF { propagate_nan, flush_to_zero } => {
                return self.extreme(true, *propagate_nan, *flush_to_zero, dtype, args);
            }
            ScheduleOp::MinF { propagate_nan, flush_to_zero } => {
                return self.extreme(false, *propagate_nan, *flush_to_zero, dtype, args);
            }
            ScheduleOp::Ceil {} | ScheduleOp::Floor {} => {
                let mode = if matches!(kind, ScheduleOp::Ceil {}) { "rpi" } else { "rmi" };
                let wide = self.wide_of(dtype, args[0])?;
                let ty = computed_in(dtype);
                let value = self.b.cvt_with(mode, ty, ty, wide);
                return self.rounded(dtype, value);
            }
            _ => astray(kind),
        };
        let ty = computed_in(dtype);
        if is_narrow(dtype) && is_directed(rounding) {
            return self.directed(name, rounding, flush, dtype, args);
        }
        if name == "fma" && matches!(dtype, DType::F16 | DType::BF16) && !flush {
            return self.narrow_fma(dtype, args);
        }
        let mut wide = Vec::new();
        for &arg in args {
            let arg = self.wide_of(dtype, arg)?;
            wide.push(self.flushed(flush && is_narrow(dtype), ty, arg));
        }
        if name == "div" && rounding == Rounding::NearestEven && !flush && ty == Ty::F32 {
            let value = self.exact_quotient(wide[0], wide[1]);
            return self.rounded(dtype, value);
        }
        let approximate = ty == Ty::F32 && matches!(rounding, Rounding::Approx | Rounding::Full);
        let ftz = if flush && ty == Ty::F32 { ".ftz" } else { "" };
        // One instruction; of a quotient of 1 `ptxas` makes two.
        let inverse = name == "div" && rounding == Rounding::Approx && approximate && flush && self.is_one(wide[0]);
        let text = match (name, rounding) {
            _ if inverse => "rcp.approx.ftz.f32".to_string(),
            ("div", Rounding::Approx) if approximate => format!("div.approx{ftz}.f32"),
            ("div", _) if approximate => format!("div.full{ftz}.f32"),
            ("sqrt", _) if approximate => format!("sqrt.approx{ftz}.f32"),
            _ => format!("{name}.{}{ftz}.{ty}", rounding_word(rounding)),
        };
        let mut value = self.op(&text, if inverse { &wide[1..] } else { &wide });
        if flush && is_narrow(dtype) {
            value = self.flushed(true, ty, value);
        }
        self.rounded(dtype, value)
    }

    /// A quotient of `f32`, rounded to nearest. A power of two divides by a product, which is exact; 1 is divided by an instruction
    /// of its own.
    fn exact_quotient(&mut self, a: Reg, b: Reg) -> Reg {
        if let Some(bits) = self.b.kernel().constant(b).map(|bits| bits as u32) {
            let exponent = bits >> 23 & 0xff;
            if bits & 0x7f_ffff == 0 && (1..=253).contains(&exponent) {
                let inverse = self.b.u32(bits & 0x8000_0000 | (254 - exponent) << 23);
                return self.b.mul(Ty::F32, a, inverse);
            }
        }
        if self.is_one(a) { self.op("rcp.rn.f32", &[b]) } else { self.b.div(Ty::F32, a, b) }
    }

    /// Whether a register holds 1 of 32 bits.
    fn is_one(&self, reg: Reg) -> bool {
        self.b.kernel().constant(reg).is_some_and(|bits| bits as u32 == 1f32.to_bits())
    }

    /// Whether one of two numbers is NaN.
    pub(super) fn unordered(&mut self, ty: Ty, a: Reg, b: Reg) -> Reg {
        let ordered = self.op(&format!("setp.num.{ty}"), &[a, b]);
        self.b.not(ordered)
    }

    /// Subnormal numbers as zeros of their sign.
    pub(super) fn flushed(&mut self, flush: bool, ty: Ty, value: Reg) -> Reg {
        if !flush || ty != Ty::F32 {
            return value;
        }
        let one = self.b.f32(1.0);
        self.op("mul.rn.ftz.f32", &[value, one])
    }

    /// Absolute value and negation: the sign bit alone changes.
    fn sign(&mut self, kind: &ScheduleOp, dtype: DType, a: Reg) -> Lowered<Reg> {
        let negate = matches!(kind, ScheduleOp::NegF {});
        match dtype {
            DType::F64 | DType::F32 | DType::TF32 => {
                let ty = computed_in(dtype);
                Ok(if negate { self.b.neg(ty, a) } else { self.b.abs(ty, a) })
            }
            DType::F16 | DType::BF16 => {
                let mask = self.b.b16(if negate { 0x8000 } else { 0x7fff });
                Ok(if negate { self.b.xor(a, mask) } else { self.b.and(a, mask) })
            }
            _ => {
                let wide = self.wide_of(dtype, a)?;
                let value = if negate { self.b.neg(Ty::F32, wide) } else { self.b.abs(Ty::F32, wide) };
                self.rounded(dtype, value)
            }
        }
    }

    /// The larger or smaller of two; of zeros of both signs, the positive one is larger.
    fn extreme(&mut self, larger: bool, keep_nan: bool, flush: bool, dtype: DType, args: &[Reg]) -> Lowered<Reg> {
        let ty = computed_in(dtype);
        let name = if larger { "max" } else { "min" };
        let (a, b) = (self.wide_of(dtype, args[0])?, self.wide_of(dtype, args[1])?);
        let ftz = if flush && ty == Ty::F32 { ".ftz" } else { "" };
        let value = if keep_nan && ty == Ty::F32 && self.arch.has_bf16_fma() {
            self.op(&format!("{name}{ftz}.NaN.f32"), &[a, b])
        } else {
            let value = self.op(&format!("{name}{ftz}.{ty}"), &[a, b]);
            if keep_nan {
                let any = self.unordered(ty, a, b);
                let nan = if ty == Ty::F64 { self.b.f64(f64::NAN) } else { self.b.u32(0x7fff_ffff) };
                self.b.select(any, nan, value)
            } else {
                value
            }
        };
        self.rounded(dtype, value)
    }

    /// A comparison; NaN compares as `nan` says.
    pub(super) fn compare_float(&mut self, predicate: Predicate, nan: NanOrder, dtype: DType, a: Reg, b: Reg) -> Lowered<Reg> {
        let (a, b) = (self.wide_of(dtype, a)?, self.wide_of(dtype, b)?);
        let word = match (predicate, nan) {
            (Predicate::Eq, NanOrder::Ordered) => Word::Eq,
            (Predicate::Ne, NanOrder::Ordered) => Word::Ne,
            (Predicate::Lt, NanOrder::Ordered) => Word::Lt,
            (Predicate::Le, NanOrder::Ordered) => Word::Le,
            (Predicate::Gt, NanOrder::Ordered) => Word::Gt,
            (Predicate::Ge, NanOrder::Ordered) => Word::Ge,
            (Predicate::Eq, NanOrder::Unordered) => Word::Equ,
            (Predicate::Ne, NanOrder::Unordered) => Word::Neu,
            (Predicate::Lt, NanOrder::Unordered) => Word::Ltu,
            (Predicate::Le, NanOrder::Unordered) => Word::Leu,
            (Predicate::Gt, NanOrder::Unordered) => Word::Gtu,
            (Predicate::Ge, NanOrder::Unordered) => Word::Geu,
        };
        Ok(self.b.setp(word, computed_in(dtype), a, b))
    }

    /// `a * b + c` of `f16` or `bf16`, rounded once: the product is exact in `f64`, and the sum is rounded to odd on its way.
    fn narrow_fma(&mut self, dtype: DType, args: &[Reg]) -> Lowered<Reg> {
        if dtype == DType::F16 {
            return Ok(self.op("fma.rn.f16", args));
        }
        if self.arch.has_bf16_fma() {
            return Ok(self.op("fma.rn.bf16", args));
        }
        let mut wide = Vec::new();
        for &arg in args {
            let arg = self.wide_of(dtype, arg)?;
            wide.push(self.b.cvt(Ty::F64, Ty::F32, arg));
        }
        // Where rounding down and up differ something is lost, and the last bit of what is cut says so. NaN keeps being NaN.
        let [down, up, cut] = ["fma.rm.f64", "fma.rp.f64", "fma.rz.f64"].map(|text| self.op(text, &wide));
        let exact = self.b.setp(Word::Eq, Ty::F64, down, up);
        let [nothing, last] = [0, 1].map(|bits| self.b.constant(Class::B64, bits));
        let lost = self.b.select(exact, nothing, last);
        let odd = self.b.or(cut, lost);
        let odd = self.odd_f32(odd);
        self.rounded(dtype, odd)
    }

    /// A result of narrow operands rounded in a direction: computed exactly enough in `f64`, cut to `f32` in that direction,
    /// then cut again; two roundings in one direction are one.
    fn directed(&mut self, name: &str, rounding: Rounding, flush: bool, dtype: DType, args: &[Reg]) -> Lowered<Reg> {
        let word = rounding_word(rounding);
        let mut wide = Vec::new();
        for &arg in args {
            let arg = self.wide_of(dtype, arg)?;
            wide.push(self.flushed(flush, Ty::F32, arg));
        }
        let value = self.op(&format!("{name}.{word}.f32"), &wide);
        let value = self.narrowed(dtype, value, rounding)?;
        if !flush {
            return Ok(value);
        }
        let wide = self.wide_of(dtype, value)?;
        let wide = self.flushed(true, Ty::F32, wide);
        self.rounded(dtype, wide)
    }
}
