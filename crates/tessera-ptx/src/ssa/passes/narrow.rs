//! Cheaper arithmetic where operands are known to be small, and sums of products as one instruction.
//!
//! ```text
//! mul.lo.s64 (cvt.s64.s32 i), 12             ->  mul.wide.s32 i, 12
//! add.s64 (mul.wide.s32 i, 12), base         ->  mad.wide.s32 i, 12, base
//! div.s64 x, y   with both below 2^32        ->  cvt.u64.u32 (div.u32 x, y)
//! rem.s32 x, 8   with x not negative         ->  rem.u32 x, 8, which is a mask
//! setp.lt.u32 x, 96   with x below 64        ->  true
//! ```

use super::super::code::{Code, Half};
use super::super::kernel::{Class, Inst, Kernel, Value};
use super::ranges::Ranges;
use crate::types::Type;
use crate::word::Word;

pub(super) fn run(kernel: &mut Kernel) -> usize {
    let mut pass = Narrow { ranges: Ranges::new(kernel), before: Vec::new() };
    let mut changes = 0;
    for block in kernel.layout.clone() {
        let mut kept = Vec::new();
        for inst in kernel.block(block).insts.clone() {
            changes += usize::from(pass.visit(kernel, inst));
            kept.append(&mut pass.before);
            kept.push(inst);
        }
        kernel.block_mut(block).insts = kept;
    }
    changes
}

struct Narrow {
    ranges: Ranges,
    /// Instructions to stand in front of the visited one.
    before: Vec<Inst>,
}

/// The 32-bit value that a 64-bit one extends, and how.
fn extended(kernel: &mut Kernel, value: Value, signed: bool) -> Option<Value> {
    if let Some(bits) = kernel.constant(value) {
        let fits = if signed { i64::from(bits as i32) as u64 == bits } else { bits <= 0xFFFF_FFFF };
        return fits.then(|| kernel.const_bits(Class::B32, bits));
    }
    let (code, sources) = kernel.expression(value)?;
    let from = if signed { Type::S32 } else { Type::U32 };
    matches!(code, Code::Cvt(Type::S64 | Type::U64, source) if source == from).then(|| sources[0])
}

impl Narrow {
    fn visit(&mut self, kernel: &mut Kernel, inst: Inst) -> bool {
        let Some(sources) = kernel.sources(inst) else { return false };
        let Some(code) = kernel.code(inst) else { return false };
        match (code, &sources[..]) {
            (Code::Cvt(Type::S64 | Type::U64, Type::S32), &[x]) if self.ranges.is_not_negative(kernel, x) => {
                kernel.rewrite(inst, Code::Cvt(Type::U64, Type::U32), &sources)
            }
            (Code::Mul(Half::Low, Type::S64 | Type::U64), &[a, b]) => wide_product(kernel, inst, a, b),
            (Code::Shl(Type::B64), &[x, amount]) => wide_shift(kernel, inst, x, amount),
            (Code::Add(_), &[a, b]) if code.is_integer_sum() => sum_of_product(kernel, inst, a, b),
            (Code::Div(ty) | Code::Rem(ty) | Code::Shr(ty), &[a, b]) if matches!(ty, Type::S32 | Type::S64) => {
                let (natural, counts) = (if ty == Type::S32 { Type::U32 } else { Type::U64 }, matches!(code, Code::Shr(_)));
                let positive = self.ranges.is_not_negative(kernel, a) && (counts || self.ranges.is_not_negative(kernel, b));
                positive && kernel.rewrite(inst, code.within(natural), &sources)
            }
            (Code::Div(Type::U64) | Code::Rem(Type::U64), &[a, b]) => self.short_division(kernel, inst, code, a, b),
            (Code::Setp(compare, ty), &[a, b]) if self.decided(kernel, (compare, ty), a, b).is_some() => {
                let holds = self.decided(kernel, (compare, ty), a, b) == Some(true);
                // Of constants, which the next pass folds.
                let class = kernel.class(a);
                let constants = kernel.constant(a).is_some() && kernel.constant(b).is_some();
                let [zero, other] = [0, u64::from(!holds)].map(|bits| kernel.const_bits(class, bits));
                !constants && kernel.rewrite(inst, Code::Setp(Word::Eq, ty), &[zero, other])
            }
            (Code::Setp(compare, ty), &[a, b]) if matches!(ty, Type::S64 | Type::U64 | Type::B64) => {
                short_comparison(kernel, inst, (compare, ty), a, b)
            }
            _ => false,
        }
    }

    /// What a comparison of integers comes to, where their ranges say so.
    fn decided(&mut self, kernel: &mut Kernel, (compare, ty): (Word, Type), a: Value, b: Value) -> Option<bool> {
        if !matches!(ty, Type::S32 | Type::U32 | Type::S64 | Type::U64) {
            return None;
        }
        let signed = matches!(ty, Type::S32 | Type::S64);
        if signed && !(self.ranges.is_not_negative(kernel, a) && self.ranges.is_not_negative(kernel, b)) {
            return None;
        }
        let (a, b) = (self.ranges.of(kernel, a), self.ranges.of(kernel, b));
        let (below, above) = (a.1 < b.0, a.0 > b.1);
        let (most, least) = (a.1 <= b.0, a.0 >= b.1);
        match compare {
            Word::Lt if below || least => Some(below),
            Word::Le if most || above => Some(most),
            Word::Gt if above || most => Some(above),
            Word::Ge if least || below => Some(least),
            Word::Eq if below || above => Some(false),
            Word::Ne if below || above => Some(true),
            _ => None,
        }
    }

    fn short_division(&mut self, kernel: &mut Kernel, inst: Inst, code: Code, a: Value, b: Value) -> bool {
        if [a, b].into_iter().any(|value| self.ranges.of(kernel, value).1 > 0xFFFF_FFFF) {
            return false;
        }
        let mut add = |kernel: &mut Kernel, code: Code, sources: &[Value]| {
            let (new, value) = kernel.pure(code, Class::B32, sources, inst)?;
            self.before.push(new);
            Some(value)
        };
        let mut quotient = |kernel: &mut Kernel| {
            let a = add(kernel, Code::Cvt(Type::U32, Type::U64), &[a])?;
            let b = match kernel.constant(b) {
                Some(bits) => kernel.const_bits(Class::B32, bits),
                None => add(kernel, Code::Cvt(Type::U32, Type::U64), &[b])?,
            };
            add(kernel, code.within(Type::U32), &[a, b])
        };
        quotient(kernel).is_some_and(|value| kernel.rewrite(inst, Code::Cvt(Type::U64, Type::U32), &[value]))
    }
}

fn wide_product(kernel: &mut Kernel, inst: Inst, a: Value, b: Value) -> bool {
    for (signed, ty) in [(true, Type::S32), (false, Type::U32)] {
        if let (Some(a), Some(b)) = (extended(kernel, a, signed), extended(kernel, b, signed)) {
            return kernel.rewrite(inst, Code::Mul(Half::Wide, ty), &[a, b]);
        }
    }
    false
}

fn wide_shift(kernel: &mut Kernel, inst: Inst, x: Value, amount: Value) -> bool {
    let Some(amount) = kernel.constant(amount) else { return false };
    for (signed, most, ty) in [(true, 30, Type::S32), (false, 31, Type::U32)] {
        if kernel.constant(x).is_none()
            && amount <= most
            && let Some(x) = extended(kernel, x, signed)
        {
            let factor = kernel.const_bits(Class::B32, 1 << amount);
            return kernel.rewrite(inst, Code::Mul(Half::Wide, ty), &[x, factor]);
        }
    }
    false
}

/// `a * b + c`: a 64-bit sum is two instructions, a wide product with a sum is one.
fn sum_of_product(kernel: &mut Kernel, inst: Inst, a: Value, b: Value) -> bool {
    for (product, other) in [(a, b), (b, a)] {
        let Some((Code::Mul(half @ (Half::Wide | Half::Low), ty), factors)) = kernel.expression(product) else { continue };
        if kernel.constant(other).is_some() {
            continue;
        }
        let sources: Vec<Value> = factors.into_iter().chain([other]).collect();
        if kernel.rewrite(inst, Code::Mad(half, ty), &sources) {
            return true;
        }
    }
    false
}

/// A comparison of extended values compares what they extend.
fn short_comparison(kernel: &mut Kernel, inst: Inst, (compare, ty): (Word, Type), a: Value, b: Value) -> bool {
    let signed = ty == Type::S64;
    // Equality does not ask for a sign.
    let any = matches!(compare, Word::Eq | Word::Ne);
    for extends in [true, false] {
        if extends != signed && !any {
            continue;
        }
        if let (Some(a), Some(b)) = (extended(kernel, a, extends), extended(kernel, b, extends)) {
            let short = if extends { Type::S32 } else { Type::U32 };
            return kernel.rewrite(inst, Code::Setp(compare, short), &[a, b]);
        }
    }
    // Zero-extended values keep their order under a signed comparison, as unsigned ones.
    if signed && let (Some(a), Some(b)) = (extended(kernel, a, false), extended(kernel, b, false)) {
        return kernel.rewrite(inst, Code::Setp(compare, Type::U32), &[a, b]);
    }
    false
}
