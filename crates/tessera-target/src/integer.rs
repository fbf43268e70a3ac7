//! Integer arithmetic. Narrow integers are computed in 32 bits whose upper part means nothing, and are extended where it would
//! be seen: by comparisons, divisions, shifts to the right, conversions. Truth values are predicates.

use tessera_ir::ScheduleOp;
use tessera_ir::attrs::{Predicate, Rounding, Signedness};
use tessera_ptx::ssa::{Class, Value as Reg};
use tessera_ptx::{Type as Ty, Word};
use tessera_types::DType;

use super::lowering::Lowering;
use super::operation::astray;

/// The comparison's word.
pub(super) fn compare_word(predicate: Predicate) -> Word {
    match predicate {
        Predicate::Eq => Word::Eq,
        Predicate::Ne => Word::Ne,
        Predicate::Lt => Word::Lt,
        Predicate::Le => Word::Le,
        Predicate::Gt => Word::Gt,
        Predicate::Ge => Word::Ge,
    }
}

/// The signed and the unsigned type of an integer's register.
pub(super) fn register_types(dtype: DType) -> (Ty, Ty) {
    if dtype.bits() == 64 { (Ty::S64, Ty::U64) } else { (Ty::S32, Ty::U32) }
}

impl Lowering<'_> {
    /// The integer, sign-extended to its register; a truth value is 0 or -1.
    pub(super) fn signed(&mut self, dtype: DType, reg: Reg) -> Reg {
        match dtype.bits() {
            1 => {
                let (yes, no) = (self.b.s32(-1), self.b.s32(0));
                self.b.select(reg, yes, no)
            }
            4 => {
                let count = self.b.u32(28);
                let high = self.b.shl(reg, count);
                self.b.shr(Ty::S32, high, count)
            }
            8 => self.b.cvt(Ty::S32, Ty::S8, reg),
            16 => self.b.cvt(Ty::S32, Ty::S16, reg),
            _ => reg,
        }
    }

    /// The integer, zero-extended to its register.
    pub(super) fn unsigned(&mut self, dtype: DType, reg: Reg) -> Reg {
        match dtype.bits() {
            1 => {
                let (yes, no) = (self.b.s32(1), self.b.s32(0));
                self.b.select(reg, yes, no)
            }
            bits @ (4 | 6 | 8 | 16) => {
                let mask = self.b.u32((1 << bits) - 1);
                self.b.and(reg, mask)
            }
            _ => reg,
        }
    }

    /// The integer as its signedness says.
    pub(super) fn extended(&mut self, dtype: DType, signed: bool, reg: Reg) -> Reg {
        if signed { self.signed(dtype, reg) } else { self.unsigned(dtype, reg) }
    }

    /// A shift count as 32 bits, the width of `dtype` where it is that or more.
    fn count(&mut self, dtype: DType, reg: Reg) -> Reg {
        let limit = u64::from(dtype.bits());
        if let Some(count) = self.b.kernel().constant(reg) {
            let count = if dtype.bits() == 64 { count } else { count & ((1u64 << dtype.bits()) - 1) };
            return self.b.u32(count.min(limit) as u32);
        }
        match self.class(reg) {
            Class::B64 => {
                let most = self.b.u64(limit);
                let count = self.b.min(Ty::U64, reg, most);
                self.b.cvt(Ty::U32, Ty::U64, count)
            }
            // Shifts of 32-bit registers stop at the width by themselves.
            _ if dtype.bits() == 32 => reg,
            _ => {
                let count = self.unsigned(dtype, reg);
                let most = self.b.u32(limit as u32);
                self.b.min(Ty::U32, count, most)
            }
        }
    }

    /// An operation of integer arithmetic.
    pub(super) fn integer(&mut self, kind: &ScheduleOp, dtype: DType, args: &[Reg]) -> Reg {
        if dtype == DType::B1 {
            return self.truth(kind, args);
        }
        let (flat, natural) = register_types(dtype);
        let a = args[0];
        // Operations of one operand look at no other.
        let b = args.get(1).copied().unwrap_or(a);
        let is_signed = |signedness: &Signedness| *signedness == Signedness::Signed;
        let typed = |signed: bool| if signed { flat } else { natural };
        let pair = |this: &mut Self, signed: bool| (this.extended(dtype, signed, a), this.extended(dtype, signed, b));
        match kind {
            ScheduleOp::AddI { .. } => self.b.add(flat, a, b),
            ScheduleOp::SubI { .. } => self.b.sub(flat, a, b),
            ScheduleOp::MulI { .. } => self.b.mul(flat, a, b),
            ScheduleOp::NegI { .. } => self.b.neg(flat, a),
            ScheduleOp::AndI {} => self.b.and(a, b),
            ScheduleOp::OrI {} => self.b.or(a, b),
            ScheduleOp::XorI {} => self.b.xor(a, b),
            ScheduleOp::AbsI {} => {
                let a = self.signed(dtype, a);
                self.b.abs(flat, a)
            }
            ScheduleOp::MulHiI {} => {
                let (a, b) = pair(self, false);
                match dtype.bits() {
                    32 | 64 => self.b.mul_hi(natural, a, b),
                    bits => {
                        let product = self.b.mul(Ty::U32, a, b);
                        let count = self.b.u32(bits);
                        self.b.shr(Ty::U32, product, count)
                    }
                }
            }
            ScheduleOp::MaxI { signedness } => {
                let (a, b) = pair(self, is_signed(signedness));
                self.b.max(typed(is_signed(signedness)), a, b)
            }
            ScheduleOp::MinI { signedness } => {
                let (a, b) = pair(self, is_signed(signedness));
                self.b.min(typed(is_signed(signedness)), a, b)
            }
            ScheduleOp::DivI { signedness, rounding } => {
                let signed = is_signed(signedness);
                let (a, b) = pair(self, signed);
                self.divide(typed(signed), *rounding, a, b)
            }
            ScheduleOp::RemI { signedness } => {
                let signed = is_signed(signedness);
                let (a, b) = pair(self, signed);
                self.b.rem(typed(signed), a, b)
            }
            ScheduleOp::ShlI { .. } => {
                let count = self.count(dtype, b);
                self.b.shl(a, count)
            }
            ScheduleOp::ShrI { signedness } => {
                let signed = is_signed(signedness);
                let count = self.count(dtype, b);
                let a = self.extended(dtype, signed, a);
                self.b.shr(typed(signed), a, count)
            }
            _ => astray(kind),
        }
    }

    /// A quotient rounded toward zero, down or up.
    pub(super) fn divide(&mut self, ty: Ty, rounding: Rounding, a: Reg, b: Reg) -> Reg {
        let quotient = self.b.div(ty, a, b);
        if !matches!(rounding, Rounding::NegativeInf | Rounding::PositiveInf) {
            return quotient;
        }
        let class = self.class(a);
        let (zero, one) = (self.b.constant(class, 0), self.b.constant(class, 1));
        let product = self.b.mul(ty, quotient, b);
        let rest = self.b.sub(ty, a, product);
        let inexact = self.b.setp(Word::Ne, ty, rest, zero);
        let moved = match (ty, rounding) {
            (Ty::U32 | Ty::U64, Rounding::NegativeInf) => return quotient,
            (Ty::U32 | Ty::U64, _) => inexact,
            _ => {
                // The signs of rest and divisor differ where the exact quotient is negative.
                let mixed = self.b.xor(rest, b);
                let compare = if rounding == Rounding::NegativeInf { Word::Lt } else { Word::Ge };
                let side = self.b.setp(compare, ty, mixed, zero);
                self.b.and(inexact, side)
            }
        };
        let next = if rounding == Rounding::NegativeInf { self.b.sub(ty, quotient, one) } else { self.b.add(ty, quotient, one) };
        self.b.select(moved, next, quotient)
    }

    /// Arithmetic modulo 2.
    fn truth(&mut self, kind: &ScheduleOp, args: &[Reg]) -> Reg {
        let a = args[0];
        let b = args.get(1).copied().unwrap_or(a);
        match kind {
            ScheduleOp::AddI { .. } | ScheduleOp::SubI { .. } | ScheduleOp::XorI {} => self.b.xor(a, b),
            ScheduleOp::MulI { .. } | ScheduleOp::AndI {} | ScheduleOp::MinI { .. } | ScheduleOp::DivI { .. } => self.b.and(a, b),
            ScheduleOp::OrI {} | ScheduleOp::MaxI { .. } => self.b.or(a, b),
            ScheduleOp::NegI { .. } | ScheduleOp::AbsI {} => a,
            ScheduleOp::MulHiI {} | ScheduleOp::RemI { .. } => self.b.bool(false),
            ScheduleOp::ShlI { .. } | ScheduleOp::ShrI { .. } => {
                let none = self.b.not(b);
                self.b.and(a, none)
            }
            _ => astray(kind),
        }
    }

    /// A comparison of integers.
    pub(super) fn compare_int(&mut self, predicate: Predicate, signedness: Signedness, dtype: DType, a: Reg, b: Reg) -> Reg {
        if dtype == DType::B1 {
            return match predicate {
                Predicate::Ne => self.b.xor(a, b),
                Predicate::Eq => {
                    let differ = self.b.xor(a, b);
                    self.b.not(differ)
                }
                Predicate::Lt | Predicate::Ge => {
                    let not_a = self.b.not(a);
                    let less = self.b.and(not_a, b);
                    if predicate == Predicate::Lt { less } else { self.b.not(less) }
                }
                Predicate::Gt | Predicate::Le => {
                    let not_b = self.b.not(b);
                    let more = self.b.and(a, not_b);
                    if predicate == Predicate::Gt { more } else { self.b.not(more) }
                }
            };
        }
        let signed = signedness == Signedness::Signed;
        let (flat, natural) = register_types(dtype);
        let (a, b) = (self.extended(dtype, signed, a), self.extended(dtype, signed, b));
        self.b.setp(compare_word(predicate), if signed { flat } else { natural }, a, b)
    }
}
