//! Elementwise operations over strips: contiguous runs of elements in scratch memory or borrowed from arrays.
//!
//! A strip holds *lanes*. Integers, truth values (one byte, 0 or 1) and floats of 32 and 64 bits are lanes as they are stored;
//! narrower floats are computed as `f32` lanes that hold numbers of the narrow format, with [`LaneOp::Round`] after every
//! operation. `i4` is a sign-extended `i8` lane. Every operation is one loop over whole strips; the loops are compiled three times
//! and the widest version that the processor has is taken.
//!
//! ```text
//! Float(Add, F32)   dst[i] = a[i] + b[i]
//! Round(bf16)       dst[i] = the bf16 number nearest to a[i], as f32
//! ```

mod convert;
mod directed;
mod float;
mod integer;

use tessera_ir::attrs::{NanOrder, Predicate, Rounding};
use tessera_types::DType;

use crate::kernels::dispatch::Level;

/// Width of an integer lane.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Int {
    /// 8 bits; truth values and `i4` too.
    B8,
    /// 16 bits.
    B16,
    /// 32 bits.
    B32,
    /// 64 bits; addresses too.
    B64,
}

impl Int {
    /// The lane of an integer type.
    pub(crate) fn of(dtype: DType) -> Int {
        match dtype.unpacked_bytes() {
            1 => Int::B8,
            2 => Int::B16,
            4 => Int::B32,
            _ => Int::B64,
        }
    }

    /// The bits of the lane.
    pub(crate) fn mask(self) -> u64 {
        u64::MAX >> (64 - 8 * self.bytes())
    }

    /// Bytes of the lane.
    pub(crate) fn bytes(self) -> usize {
        match self {
            Int::B8 => 1,
            Int::B16 => 2,
            Int::B32 => 4,
            Int::B64 => 8,
        }
    }
}

/// Width of a float lane.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Float {
    /// `f32`.
    F32,
    /// `f64`.
    F64,
}

/// An operation on float lanes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs, reason = "named as the operations of the dialect")]
pub(crate) enum FloatOp {
    Add,
    Sub,
    Mul,
    Div,
    Rem,
    Fma,
    Max,
    Min,
    MaxNan,
    MinNan,
    Abs,
    Neg,
    Ceil,
    Floor,
    Sqrt,
    Rsqrt,
    Exp,
    Exp2,
    Log,
    Log2,
    Pow,
    Sin,
    Cos,
    Tan,
    Sinh,
    Cosh,
    Tanh,
    Atan2,
    /// Subnormal numbers become zeros of their sign.
    Flush,
}

impl FloatOp {
    /// How many operands it takes.
    pub(crate) fn operands(self) -> usize {
        use FloatOp as F;
        match self {
            F::Add | F::Sub | F::Mul | F::Div | F::Rem | F::Max | F::Min | F::MaxNan | F::MinNan | F::Pow | F::Atan2 => 2,
            F::Fma => 3,
            F::Abs | F::Neg | F::Ceil | F::Floor | F::Sqrt | F::Rsqrt | F::Exp | F::Exp2 | F::Log | F::Log2 => 1,
            F::Sin | F::Cos | F::Tan | F::Sinh | F::Cosh | F::Tanh | F::Flush => 1,
        }
    }
}

/// An operation with a directed rounding.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum DirectedOp {
    /// Sum.
    Add,
    /// Difference.
    Sub,
    /// Product.
    Mul,
    /// Quotient.
    Div,
    /// Square root.
    Sqrt,
    /// Product and sum.
    Fma,
}

/// An operation on integer lanes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs, reason = "named as the operations of the dialect")]
pub(crate) enum IntOp {
    Add,
    Sub,
    Mul,
    MulHi,
    /// Toward zero.
    Div,
    DivFloor,
    DivCeil,
    Rem,
    Max,
    Min,
    Shl,
    Shr,
    And,
    Or,
    Xor,
    Abs,
    Neg,
}

/// What is done to every lane of a strip.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum LaneOp {
    /// Arithmetic on floats, to nearest.
    Float(FloatOp, Float),
    /// Arithmetic on floats with a directed rounding into a format.
    Directed(DirectedOp, DType, Rounding),
    /// `f16` or `bf16` product and sum in `f32` lanes, rounded once.
    NarrowFma(DType),
    /// Float to a signed 8..64-bit integer power.
    PowInt(Float, Int),
    /// Comparison of floats.
    FloatCmp(Predicate, NanOrder, Float),
    /// Arithmetic on integers, signed or not.
    Int(IntOp, Int, bool),
    /// Comparison of integers, signed or not.
    IntCmp(Predicate, Int, bool),
    /// Condition, then two sources of this many bytes an element.
    Select(u8),
    /// The low bits, sign- or zero-extended.
    Resize(Int, bool, Int),
    /// Sign-extends the low four bits of a byte.
    Wrap4,
    /// Keeps some low bits of a byte.
    MaskByte(u8),
    /// Integer to float lanes, signed or not.
    IntToFloat(Int, bool, Float),
    /// Float lanes to an integer: toward zero, saturating to this many bits, NaN gives zero.
    FloatToInt(Float, Int, bool),
    /// Stored codes of a narrow float to `f32` lanes.
    Widen(DType),
    /// `f32` lanes to stored codes.
    Narrow(DType),
    /// `f32` lanes to the nearest numbers of a narrow format.
    Round(DType),
    /// `f64` to `f32`.
    F64ToF32,
    /// `f32` to `f64`.
    F32ToF64,
    /// Stored codes from any float format to another, with any rounding.
    Recode(DType, DType, Rounding),
    /// Stored integers to codes of a float format, with any rounding.
    Encode(DType, bool, DType, Rounding),
    /// Addresses moved by signed counts of elements of this many bytes.
    Offset(Int, u8),
}

/// The widest instruction set that the loops may use.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Isa {
    /// What the build assumes.
    Baseline,
    /// AVX2 and FMA.
    #[cfg(target_arch = "x86_64")]
    Avx2,
    /// AVX-512 F, BW, DQ and VL.
    #[cfg(target_arch = "x86_64")]
    Avx512,
}

impl LaneOp {
    /// The width of an integer divisor, which is the second operand.
    pub(crate) fn divisor(self) -> Option<Int> {
        match self {
            LaneOp::Int(IntOp::Div | IntOp::DivFloor | IntOp::DivCeil | IntOp::Rem, width, _) => Some(width),
            _ => None,
        }
    }
}

impl Isa {
    /// The loops that go with the level in use.
    pub(crate) fn detect() -> Isa {
        match Level::best() {
            #[cfg(target_arch = "x86_64")]
            Level::Avx512 | Level::Avx512Vnni => Isa::Avx512,
            #[cfg(target_arch = "x86_64")]
            Level::Avx2 | Level::Avx2Vnni => Isa::Avx2,
            _ => Isa::Baseline,
        }
    }
}

/// Pointers to the strips of one operation.
#[derive(Clone, Copy)]
pub(crate) struct Strips {
    /// Where the result goes.
    pub dst: *mut u8,
    /// The operands; unused ones dangle.
    pub src: [*const u8; 3],
    /// Lanes.
    pub len: usize,
}

impl Strips {
    #[inline(always)]
    unsafe fn src<'a, T>(&self, position: usize) -> &'a [T] {
        // SAFETY: the caller of `apply` vouches for `len` lanes of the operation's types, aligned.
        unsafe { std::slice::from_raw_parts(self.src[position].cast::<T>(), self.len) }
    }

    #[inline(always)]
    #[allow(clippy::mut_from_ref, reason = "the destination is the caller's alone")]
    unsafe fn dst<'a, T>(&self) -> &'a mut [T] {
        // SAFETY: as in `src`; the destination overlaps no operand.
        unsafe { std::slice::from_raw_parts_mut(self.dst.cast::<T>(), self.len) }
    }
}

/// Applies the operation to every lane.
///
/// # Safety
/// Operands and destination hold `len` aligned lanes of the operation's types, and the destination overlaps no operand.
pub(crate) unsafe fn apply(isa: Isa, op: LaneOp, strips: Strips) {
    // SAFETY: the features were detected; the rest is the caller's promise.
    unsafe {
        match isa {
            Isa::Baseline => body(op, strips),
            #[cfg(target_arch = "x86_64")]
            Isa::Avx2 => avx2(op, strips),
            #[cfg(target_arch = "x86_64")]
            Isa::Avx512 => avx512(op, strips),
        }
    }
}

#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx2,fma,bmi1,bmi2,f16c")]
unsafe fn avx2(op: LaneOp, strips: Strips) {
    // SAFETY: passed on.
    unsafe { body(op, strips) }
}

#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx2,fma,bmi1,bmi2,f16c")]
unsafe fn avx512(op: LaneOp, strips: Strips) {
    // SAFETY: passed on.
    unsafe { body(op, strips) }
}

#[inline(always)]
unsafe fn body(op: LaneOp, s: Strips) {
    // SAFETY: each arm reads the lane types that its operation states.
    unsafe {
        match op {
            LaneOp::Float(op, Float::F32) => float::float32(op, s),
            LaneOp::Float(op, Float::F64) => float::float64(op, s),
            LaneOp::Directed(op, dtype, rounding) => directed::apply(op, dtype, rounding, s),
            LaneOp::NarrowFma(dtype) => float::narrow_fma(dtype, s),
            LaneOp::PowInt(width, exponent) => float::pow_int(width, exponent, s),
            LaneOp::FloatCmp(predicate, nan, Float::F32) => float::compare::<f32>(predicate, nan, s),
            LaneOp::FloatCmp(predicate, nan, Float::F64) => float::compare::<f64>(predicate, nan, s),
            LaneOp::Int(op, width, signed) => integer::arithmetic(op, width, signed, s),
            LaneOp::IntCmp(predicate, width, signed) => integer::compare(predicate, width, signed, s),
            LaneOp::Select(1) => select::<u8>(s),
            LaneOp::Select(2) => select::<u16>(s),
            LaneOp::Select(4) => select::<u32>(s),
            LaneOp::Select(_) => select::<u64>(s),
            LaneOp::Resize(from, signed, to) => integer::resize(from, signed, to, s),
            LaneOp::Wrap4 => map(s.dst::<i8>(), s.src::<i8>(0), |a| (a << 4) >> 4),
            LaneOp::MaskByte(mask) => map(s.dst::<u8>(), s.src::<u8>(0), |a| a & mask),
            LaneOp::IntToFloat(from, signed, to) => convert::int_to_float(from, signed, to, s),
            LaneOp::FloatToInt(from, to, signed) => convert::float_to_int(from, to, signed, s),
            LaneOp::Widen(dtype) => convert::widen(dtype, s),
            LaneOp::Narrow(dtype) => convert::narrow(dtype, s),
            LaneOp::Round(dtype) => convert::round(dtype, s),
            LaneOp::F64ToF32 => map(s.dst::<f32>(), s.src::<f64>(0), |a| a as f32),
            LaneOp::F32ToF64 => map(s.dst::<f64>(), s.src::<f32>(0), f64::from),
            LaneOp::Recode(from, to, rounding) => convert::recode(from, to, rounding, s),
            LaneOp::Encode(from, signed, to, rounding) => convert::encode(from, signed, to, rounding, s),
            LaneOp::Offset(width, bytes) => integer::offset(width, bytes, s),
        }
    }
}

#[inline(always)]
fn map<A: Copy, D>(dst: &mut [D], a: &[A], f: impl Fn(A) -> D) {
    for (d, &a) in dst.iter_mut().zip(a) {
        *d = f(a);
    }
}

#[inline(always)]
fn map2<A: Copy, B: Copy, D>(dst: &mut [D], a: &[A], b: &[B], f: impl Fn(A, B) -> D) {
    for ((d, &a), &b) in dst.iter_mut().zip(a).zip(b) {
        *d = f(a, b);
    }
}

#[inline(always)]
fn map3<A: Copy, B: Copy, C: Copy, D>(dst: &mut [D], a: &[A], b: &[B], c: &[C], f: impl Fn(A, B, C) -> D) {
    for (((d, &a), &b), &c) in dst.iter_mut().zip(a).zip(b).zip(c) {
        *d = f(a, b, c);
    }
}

#[inline(always)]
unsafe fn select<T: Copy>(s: Strips) {
    // SAFETY: a byte and two lanes of `T` are what `Select` states.
    unsafe { map3(s.dst::<T>(), s.src::<u8>(0), s.src::<T>(1), s.src::<T>(2), |c, a, b| if c != 0 { a } else { b }) }
}
