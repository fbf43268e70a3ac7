//! Integer lanes: wrapping arithmetic, comparisons, widths.

use tessera_ir::attrs::Predicate;

use super::{Int, IntOp, Strips, map, map2};

macro_rules! by_type {
    ($width:expr, $signed:expr, $call:ident, $($arg:expr),*) => {
        match ($width, $signed) {
            (Int::B8, true) => $call::<i8>($($arg),*),
            (Int::B8, false) => $call::<u8>($($arg),*),
            (Int::B16, true) => $call::<i16>($($arg),*),
            (Int::B16, false) => $call::<u16>($($arg),*),
            (Int::B32, true) => $call::<i32>($($arg),*),
            (Int::B32, false) => $call::<u32>($($arg),*),
            (Int::B64, true) => $call::<i64>($($arg),*),
            (Int::B64, false) => $call::<u64>($($arg),*),
        }
    };
}

/// The operations that the loops need of a primitive integer.
trait Lane: Copy + Ord {
    const ZERO: Self;
    fn add(self, other: Self) -> Self;
    fn sub(self, other: Self) -> Self;
    fn mul(self, other: Self) -> Self;
    fn mul_high(self, other: Self) -> Self;
    fn div(self, other: Self) -> Self;
    fn rem(self, other: Self) -> Self;
    fn div_floor(self, other: Self) -> Self;
    fn div_ceil(self, other: Self) -> Self;
    fn shl(self, count: Self) -> Self;
    fn shr(self, count: Self) -> Self;
    fn and(self, other: Self) -> Self;
    fn or(self, other: Self) -> Self;
    fn xor(self, other: Self) -> Self;
    fn abs(self) -> Self;
    fn to_u64(self) -> u64;
}

macro_rules! lane {
    ($($ty:ident $unsigned:ident $wide:ident $signed:literal;)*) => {$(
        impl Lane for $ty {
            const ZERO: Self = 0;
            #[inline(always)] fn add(self, other: Self) -> Self { self.wrapping_add(other) }
            #[inline(always)] fn sub(self, other: Self) -> Self { self.wrapping_sub(other) }
            #[inline(always)] fn mul(self, other: Self) -> Self { self.wrapping_mul(other) }
            #[inline(always)] fn mul_high(self, other: Self) -> Self {
                ((self as $unsigned as $wide * other as $unsigned as $wide) >> $ty::BITS) as Self
            }
            // By zero: all ones, as GPUs have it.
            #[inline(always)] fn div(self, other: Self) -> Self { if other == 0 { !0 } else { self.wrapping_div(other) } }
            #[inline(always)] fn rem(self, other: Self) -> Self { if other == 0 { !0 } else { self.wrapping_rem(other) } }
            #[inline(always)] fn div_floor(self, other: Self) -> Self {
                let quotient = self.div(other);
                let rest = self.wrapping_sub(quotient.wrapping_mul(other));
                #[allow(unused_comparisons, reason = "never true for unsigned lanes")]
                let down = rest != 0 && ((rest < 0) != (other < 0));
                if down { quotient.wrapping_sub(1) } else { quotient }
            }
            #[inline(always)] fn div_ceil(self, other: Self) -> Self {
                let quotient = self.div(other);
                let rest = self.wrapping_sub(quotient.wrapping_mul(other));
                #[allow(unused_comparisons, reason = "never true for unsigned lanes")]
                let up = rest != 0 && ((rest < 0) == (other < 0));
                if up { quotient.wrapping_add(1) } else { quotient }
            }
            // Counts of the width or more: all bits leave, as in PTX.
            #[inline(always)] fn shl(self, count: Self) -> Self {
                if (count as $unsigned as u64) < u64::from($ty::BITS) { self.wrapping_shl(count as u32) } else { 0 }
            }
            #[inline(always)] fn shr(self, count: Self) -> Self {
                self.wrapping_shr((count as $unsigned as u64).min(u64::from($ty::BITS) - 1) as u32)
                    * if $signed || (count as $unsigned as u64) < u64::from($ty::BITS) { 1 } else { 0 }
            }
            #[inline(always)] fn and(self, other: Self) -> Self { self & other }
            #[inline(always)] fn or(self, other: Self) -> Self { self | other }
            #[inline(always)] fn xor(self, other: Self) -> Self { self ^ other }
            #[allow(unused_comparisons, reason = "never true for unsigned lanes")]
            #[inline(always)] fn abs(self) -> Self { if self < 0 { (0 as $ty).wrapping_sub(self) } else { self } }
            #[inline(always)] fn to_u64(self) -> u64 { self as u64 }
        }
    )*};
}

lane! {
    i8 u8 u16 true;
    u8 u8 u16 false;
    i16 u16 u32 true;
    u16 u16 u32 false;
    i32 u32 u64 true;
    u32 u32 u64 false;
    i64 u64 u128 true;
    u64 u64 u128 false;
}

#[inline(always)]
pub(super) unsafe fn arithmetic(op: IntOp, width: Int, signed: bool, s: Strips) {
    // SAFETY: the lanes have the width stated.
    unsafe { by_type!(width, signed, of_type, op, s) }
}

#[inline(always)]
unsafe fn of_type<T: Lane>(op: IntOp, s: Strips) {
    // SAFETY: passed on from `arithmetic`; unary operations read the first operand only.
    unsafe {
        let (d, a) = (s.dst::<T>(), s.src::<T>(0));
        match op {
            IntOp::Add => map2(d, a, s.src::<T>(1), T::add),
            IntOp::Sub => map2(d, a, s.src::<T>(1), T::sub),
            IntOp::Mul => map2(d, a, s.src::<T>(1), T::mul),
            IntOp::MulHi => map2(d, a, s.src::<T>(1), T::mul_high),
            IntOp::Max => map2(d, a, s.src::<T>(1), T::max),
            IntOp::Min => map2(d, a, s.src::<T>(1), T::min),
            IntOp::Shl => map2(d, a, s.src::<T>(1), T::shl),
            IntOp::Shr => map2(d, a, s.src::<T>(1), T::shr),
            IntOp::And => map2(d, a, s.src::<T>(1), T::and),
            IntOp::Or => map2(d, a, s.src::<T>(1), T::or),
            IntOp::Xor => map2(d, a, s.src::<T>(1), T::xor),
            IntOp::Abs => map(d, a, T::abs),
            IntOp::Neg => map(d, a, |a| T::ZERO.sub(a)),
            IntOp::Div => map2(d, a, s.src::<T>(1), T::div),
            IntOp::DivFloor => map2(d, a, s.src::<T>(1), T::div_floor),
            IntOp::DivCeil => map2(d, a, s.src::<T>(1), T::div_ceil),
            IntOp::Rem => map2(d, a, s.src::<T>(1), T::rem),
        }
    }
}

#[inline(always)]
pub(super) unsafe fn compare(predicate: Predicate, width: Int, signed: bool, s: Strips) {
    #[inline(always)]
    unsafe fn of_type<T: Lane>(predicate: Predicate, s: Strips) {
        // SAFETY: passed on from `compare`.
        unsafe {
            let (d, a, b) = (s.dst::<u8>(), s.src::<T>(0), s.src::<T>(1));
            match predicate {
                Predicate::Eq => map2(d, a, b, |a, b| u8::from(a == b)),
                Predicate::Ne => map2(d, a, b, |a, b| u8::from(a != b)),
                Predicate::Lt => map2(d, a, b, |a, b| u8::from(a < b)),
                Predicate::Le => map2(d, a, b, |a, b| u8::from(a <= b)),
                Predicate::Gt => map2(d, a, b, |a, b| u8::from(a > b)),
                Predicate::Ge => map2(d, a, b, |a, b| u8::from(a >= b)),
            }
        }
    }
    // SAFETY: the lanes have the width stated.
    unsafe { by_type!(width, signed, of_type, predicate, s) }
}

#[inline(always)]
pub(super) unsafe fn resize(from: Int, signed: bool, to: Int, s: Strips) {
    #[inline(always)]
    unsafe fn from_type<T: Lane>(to: Int, s: Strips) {
        // SAFETY: passed on from `resize`.
        unsafe {
            let a = s.src::<T>(0);
            match to {
                Int::B8 => map(s.dst::<u8>(), a, |a| a.to_u64() as u8),
                Int::B16 => map(s.dst::<u16>(), a, |a| a.to_u64() as u16),
                Int::B32 => map(s.dst::<u32>(), a, |a| a.to_u64() as u32),
                Int::B64 => map(s.dst::<u64>(), a, |a| a.to_u64()),
            }
        }
    }
    // SAFETY: the lanes have the widths stated.
    unsafe { by_type!(from, signed, from_type, to, s) }
}

#[inline(always)]
pub(super) unsafe fn offset(width: Int, bytes: u8, s: Strips) {
    #[inline(always)]
    unsafe fn by<T: Lane>(bytes: u8, s: Strips) {
        // SAFETY: passed on from `offset`.
        unsafe {
            let (d, a, b) = (s.dst::<u64>(), s.src::<u64>(0), s.src::<T>(1));
            map2(d, a, b, |a, b| a.wrapping_add(b.to_u64().wrapping_mul(u64::from(bytes))));
        }
    }
    // SAFETY: addresses, and counts of the width stated.
    unsafe { by_type!(width, true, by, bytes, s) }
}
