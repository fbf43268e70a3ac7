//! Builder methods: integers, bits, floating point, comparison, conversion.
//!
//! A type says what the bits mean: `add(Type::F32, a, b)`. Floating-point results are rounded to nearest; nothing is
//! contracted that the caller did not ask to be.

use super::builder::{Builder, Results};
use super::inst::Arg;
use super::kernel::{Class, Value};
use crate::types::{Kind, Type};
use crate::word::Word;

/// `.rn` where the table has it for the type.
fn rounded(name: &str, ty: Type) -> String {
    match ty {
        Type::F32 | Type::F64 => format!("{name}.rn.{ty}"),
        _ => format!("{name}.{ty}"),
    }
}

impl Builder {
    /// A sum.
    pub fn add(&mut self, ty: Type, a: Value, b: Value) -> Value {
        self.value(&rounded("add", ty), &[a.into(), b.into()])
    }

    /// A difference.
    pub fn sub(&mut self, ty: Type, a: Value, b: Value) -> Value {
        self.value(&rounded("sub", ty), &[a.into(), b.into()])
    }

    /// A product; of integers, the low half.
    pub fn mul(&mut self, ty: Type, a: Value, b: Value) -> Value {
        let text = if ty.kind() == Kind::Int { format!("mul.lo.{ty}") } else { rounded("mul", ty) };
        self.value(&text, &[a.into(), b.into()])
    }

    /// The high half of an integer product.
    pub fn mul_hi(&mut self, ty: Type, a: Value, b: Value) -> Value {
        self.value(&format!("mul.hi.{ty}"), &[a.into(), b.into()])
    }

    /// The whole product of 16- or 32-bit integers, twice as wide.
    pub fn mul_wide(&mut self, ty: Type, a: Value, b: Value) -> Value {
        self.value(&format!("mul.wide.{ty}"), &[a.into(), b.into()])
    }

    /// `a * b + c` of integers, the low half.
    pub fn mad(&mut self, ty: Type, a: Value, b: Value, c: Value) -> Value {
        self.value(&format!("mad.lo.{ty}"), &[a.into(), b.into(), c.into()])
    }

    /// `a * b + c` with a whole product and a sum twice as wide.
    pub fn mad_wide(&mut self, ty: Type, a: Value, b: Value, c: Value) -> Value {
        self.value(&format!("mad.wide.{ty}"), &[a.into(), b.into(), c.into()])
    }

    /// `a * b + c` rounded once.
    pub fn fma(&mut self, ty: Type, a: Value, b: Value, c: Value) -> Value {
        self.value(&format!("fma.rn.{ty}"), &[a.into(), b.into(), c.into()])
    }

    /// A quotient: integers towards zero, f32 and f64 rounded to nearest.
    pub fn div(&mut self, ty: Type, a: Value, b: Value) -> Value {
        self.value(&rounded("div", ty), &[a.into(), b.into()])
    }

    /// The remainder of an integer division.
    pub fn rem(&mut self, ty: Type, a: Value, b: Value) -> Value {
        self.value(&format!("rem.{ty}"), &[a.into(), b.into()])
    }

    /// The smaller one; of floats, the one that is a number.
    pub fn min(&mut self, ty: Type, a: Value, b: Value) -> Value {
        self.value(&format!("min.{ty}"), &[a.into(), b.into()])
    }

    /// The larger one; of floats, the one that is a number.
    pub fn max(&mut self, ty: Type, a: Value, b: Value) -> Value {
        self.value(&format!("max.{ty}"), &[a.into(), b.into()])
    }

    /// The smaller one, NaN where either is (f32 and 16-bit floats).
    pub fn min_nan(&mut self, ty: Type, a: Value, b: Value) -> Value {
        self.value(&format!("min.NaN.{ty}"), &[a.into(), b.into()])
    }

    /// The larger one, NaN where either is (f32 and 16-bit floats).
    pub fn max_nan(&mut self, ty: Type, a: Value, b: Value) -> Value {
        self.value(&format!("max.NaN.{ty}"), &[a.into(), b.into()])
    }

    /// `-a`
    pub fn neg(&mut self, ty: Type, a: Value) -> Value {
        self.value(&format!("neg.{ty}"), &[a.into()])
    }

    /// `|a|`
    pub fn abs(&mut self, ty: Type, a: Value) -> Value {
        self.value(&format!("abs.{ty}"), &[a.into()])
    }

    /// An approximation: `ex2`, `lg2`, `rcp`, `rsqrt`, `sqrt`, `sin`, `cos`, `tanh`.
    pub fn approx(&mut self, name: &str, ty: Type, a: Value) -> Value {
        self.value(&format!("{name}.approx.{ty}"), &[a.into()])
    }

    /// A square root, rounded to nearest.
    pub fn sqrt(&mut self, ty: Type, a: Value) -> Value {
        self.value(&format!("sqrt.rn.{ty}"), &[a.into()])
    }

    /// `1 / a`, rounded to nearest.
    pub fn rcp(&mut self, ty: Type, a: Value) -> Value {
        self.value(&format!("rcp.rn.{ty}"), &[a.into()])
    }

    // --- bits; the width is that of the operands

    fn bits(&mut self, name: &str, args: &[Value]) -> Value {
        let class = args.first().map_or(Class::B32, |&value| self.kernel.class(value));
        let args: Vec<Arg> = args.iter().map(|&value| value.into()).collect();
        self.value(&format!("{name}.{}", class.ty()), &args)
    }

    /// Both, bit by bit; also of predicates.
    pub fn and(&mut self, a: Value, b: Value) -> Value {
        self.bits("and", &[a, b])
    }

    /// Either, bit by bit; also of predicates.
    pub fn or(&mut self, a: Value, b: Value) -> Value {
        self.bits("or", &[a, b])
    }

    /// Exactly one, bit by bit; also of predicates.
    pub fn xor(&mut self, a: Value, b: Value) -> Value {
        self.bits("xor", &[a, b])
    }

    /// The opposite, bit by bit; also of predicates.
    pub fn not(&mut self, a: Value) -> Value {
        self.bits("not", &[a])
    }

    /// To the left by a 32-bit amount; zero from the width on.
    pub fn shl(&mut self, a: Value, amount: Value) -> Value {
        self.bits("shl", &[a, amount])
    }

    /// To the right by a 32-bit amount; the type says whether the sign is kept.
    pub fn shr(&mut self, ty: Type, a: Value, amount: Value) -> Value {
        self.value(&format!("shr.{ty}"), &[a.into(), amount.into()])
    }

    /// The low half of `high:low` shifted left; the amount counts modulo 32.
    pub fn shf_left(&mut self, low: Value, high: Value, amount: Value) -> Value {
        self.value("shf.l.wrap.b32", &[low.into(), high.into(), amount.into()])
    }

    /// The low half of `high:low` shifted right; the amount counts modulo 32.
    pub fn shf_right(&mut self, low: Value, high: Value, amount: Value) -> Value {
        self.value("shf.r.wrap.b32", &[low.into(), high.into(), amount.into()])
    }

    /// Any function of three bits; `table` is its value for `a = 0xF0, b = 0xCC, c = 0xAA`.
    pub fn lop3(&mut self, a: Value, b: Value, c: Value, table: u8) -> Value {
        self.value("lop3.b32", &[a.into(), b.into(), c.into(), i64::from(table).into()])
    }

    /// Four bytes picked out of eight: nibble `i` of the selector names byte `i` of the result, 0 to 3 in `a`.
    pub fn prmt(&mut self, a: Value, b: Value, selector: Value) -> Value {
        self.value("prmt.b32", &[a.into(), b.into(), selector.into()])
    }

    /// How many bits are set.
    pub fn popc(&mut self, a: Value) -> Value {
        self.bits("popc", &[a])
    }

    /// How many zeros lead.
    pub fn clz(&mut self, a: Value) -> Value {
        self.bits("clz", &[a])
    }

    // --- comparison and choice

    /// A comparison: `setp(Word::Lt, Type::S32, a, b)`.
    pub fn setp(&mut self, compare: Word, ty: Type, a: Value, b: Value) -> Value {
        self.value(&format!("setp.{compare}.{ty}"), &[a.into(), b.into()])
    }

    /// `yes` where the predicate is true, else `no`; any class.
    pub fn select(&mut self, predicate: Value, yes: Value, no: Value) -> Value {
        if self.kernel.class(yes) == Class::Pred {
            let (yes, inverse) = (self.and(predicate, yes), self.not(predicate));
            let no = self.and(inverse, no);
            return self.or(yes, no);
        }
        let ty = self.kernel.class(yes).ty();
        self.value(&format!("selp.{ty}"), &[yes.into(), no.into(), predicate.into()])
    }

    // --- conversion

    /// A conversion with the usual rounding: to nearest, towards zero from floats to integers.
    pub fn cvt(&mut self, to: Type, from: Type, a: Value) -> Value {
        let float = |ty: Type| ty.kind() == Kind::Float;
        let mode = match (float(from), float(to)) {
            (true, false) => "rzi.",
            (false, true) => "rn.",
            (true, true) if to.bits() < from.bits() => "rn.",
            _ => "",
        };
        self.value(&format!("cvt.{mode}{to}.{from}"), &[a.into()])
    }

    /// A conversion with its modifiers: `cvt_with("rn.satfinite", ...)`.
    pub fn cvt_with(&mut self, modifiers: &str, to: Type, from: Type, a: Value) -> Value {
        self.value(&format!("cvt.{modifiers}.{to}.{from}"), &[a.into()])
    }

    /// Two f32 to a packed pair (`f16x2`, `bf16x2`, and with `satfinite` the fp8 pairs), rounded to nearest.
    pub fn cvt_pack(&mut self, to: Type, high: Value, low: Value) -> Value {
        let finite = if to.bits() == 16 { ".satfinite" } else { "" };
        self.value(&format!("cvt.rn{finite}.{to}.f32"), &[high.into(), low.into()])
    }

    /// Values side by side in a wider one, lowest first: two of 16 bits in 32, two of 32 or four of 16 in 64.
    pub fn pack(&mut self, parts: &[Value]) -> Value {
        let bits: u32 = parts.iter().map(|&part| self.kernel.class(part).bits()).sum();
        self.value(&format!("mov.b{bits}"), &[Arg::sources(parts)])
    }

    /// The parts of a value, lowest first: the reverse of [`Builder::pack`].
    pub fn unpack(&mut self, value: Value, part: Class) -> Vec<Value> {
        let bits = self.kernel.class(value).bits();
        let count = (bits / part.bits()).max(1) as usize;
        self.instruction(&format!("mov.b{bits}"), Results::Vector(part, count), &[value.into()])
    }
}
