//! Cheaper arithmetic where operands are known to be small, and sums of products as one instruction.
//!
//! ```text
//! mul.lo.s64 (cvt.s64.s32 i), 12             ->  mul.wide.s32 i, 12
//! add.s64 (mul.wide.s32 i, 12), base         ->  mad.wide.s32 i, 12, base
//! div.s64 x, y   with both below 2^32        ->  cvt.u64.u32 (div.u32 x, y)
//! rem.s32 x, 8   with x not negative         ->  rem.u32 x, 8, which is a mask
//! ```

use super::super::kernel::{Class, Inst, Kernel, Value};
use super::ranges::Ranges;

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
    let (text, sources) = kernel.expression(value)?;
    let wanted: &[&str] = if signed { &["cvt.s64.s32", "cvt.u64.s32"] } else { &["cvt.u64.u32", "cvt.s64.u32"] };
    wanted.contains(&text).then(|| sources[0])
}

impl Narrow {
    fn visit(&mut self, kernel: &mut Kernel, inst: Inst) -> bool {
        let Some(sources) = kernel.sources(inst) else { return false };
        let text = kernel.text(inst).to_owned();
        match (&*text, &sources[..]) {
            ("cvt.s64.s32" | "cvt.u64.s32", &[x]) if self.ranges.is_not_negative(kernel, x) => {
                kernel.rewrite(inst, "cvt.u64.u32", &sources)
            }
            ("mul.lo.s64" | "mul.lo.u64", &[a, b]) => wide_product(kernel, inst, a, b),
            ("shl.b64", &[x, amount]) => wide_shift(kernel, inst, x, amount),
            ("add.s64" | "add.u64" | "add.s32" | "add.u32", &[a, b]) => sum_of_product(kernel, inst, a, b),
            ("div.s32" | "rem.s32" | "shr.s32" | "div.s64" | "rem.s64" | "shr.s64", &[a, b]) => {
                let positive =
                    self.ranges.is_not_negative(kernel, a) && (text.starts_with("shr") || self.ranges.is_not_negative(kernel, b));
                positive && kernel.rewrite(inst, &text.replace(".s", ".u"), &sources)
            }
            ("div.u64" | "rem.u64", &[a, b]) => self.short_division(kernel, inst, &text, a, b),
            (compare, &[a, b]) if compare.starts_with("setp.") && compare.ends_with("64") && !compare.ends_with("f64") => {
                short_comparison(kernel, inst, compare, a, b)
            }
            _ => false,
        }
    }

    fn short_division(&mut self, kernel: &mut Kernel, inst: Inst, text: &str, a: Value, b: Value) -> bool {
        if [a, b].into_iter().any(|value| self.ranges.of(kernel, value).1 > 0xFFFF_FFFF) {
            return false;
        }
        let mut add = |kernel: &mut Kernel, text: &str, sources: &[Value]| {
            let (new, value) = kernel.pure(text, Class::B32, sources, inst)?;
            self.before.push(new);
            Some(value)
        };
        let mut quotient = |kernel: &mut Kernel| {
            let a = add(kernel, "cvt.u32.u64", &[a])?;
            let b = match kernel.constant(b) {
                Some(bits) => kernel.const_bits(Class::B32, bits),
                None => add(kernel, "cvt.u32.u64", &[b])?,
            };
            add(kernel, &text.replace("u64", "u32"), &[a, b])
        };
        quotient(kernel).is_some_and(|value| kernel.rewrite(inst, "cvt.u64.u32", &[value]))
    }
}

fn wide_product(kernel: &mut Kernel, inst: Inst, a: Value, b: Value) -> bool {
    for (signed, text) in [(true, "mul.wide.s32"), (false, "mul.wide.u32")] {
        if let (Some(a), Some(b)) = (extended(kernel, a, signed), extended(kernel, b, signed)) {
            return kernel.rewrite(inst, text, &[a, b]);
        }
    }
    false
}

fn wide_shift(kernel: &mut Kernel, inst: Inst, x: Value, amount: Value) -> bool {
    let Some(amount) = kernel.constant(amount) else { return false };
    for (signed, most, text) in [(true, 30, "mul.wide.s32"), (false, 31, "mul.wide.u32")] {
        if kernel.constant(x).is_none()
            && amount <= most
            && let Some(x) = extended(kernel, x, signed)
        {
            let factor = kernel.const_bits(Class::B32, 1 << amount);
            return kernel.rewrite(inst, text, &[x, factor]);
        }
    }
    false
}

/// `a * b + c`: a 64-bit sum is two instructions, a wide product with a sum is one.
fn sum_of_product(kernel: &mut Kernel, inst: Inst, a: Value, b: Value) -> bool {
    for (product, other) in [(a, b), (b, a)] {
        let Some((text, factors)) = kernel.expression(product) else { continue };
        if !text.starts_with("mul.wide.") && !text.starts_with("mul.lo.") || kernel.constant(other).is_some() {
            continue;
        }
        let text = text.replacen("mul", "mad", 1);
        let sources: Vec<Value> = factors.into_iter().chain([other]).collect();
        if kernel.rewrite(inst, &text, &sources) {
            return true;
        }
    }
    false
}

/// A comparison of extended values compares what they extend.
fn short_comparison(kernel: &mut Kernel, inst: Inst, text: &str, a: Value, b: Value) -> bool {
    let signed = text.ends_with("s64");
    // Equality does not ask for a sign.
    let any = text.starts_with("setp.eq.") || text.starts_with("setp.ne.");
    for extends in [true, false] {
        if extends != signed && !any {
            continue;
        }
        if let (Some(a), Some(b)) = (extended(kernel, a, extends), extended(kernel, b, extends)) {
            let stem = &text[..text.len() - 3];
            return kernel.rewrite(inst, &format!("{stem}{}32", if extends { 's' } else { 'u' }), &[a, b]);
        }
    }
    // Zero-extended values keep their order under a signed comparison, as unsigned ones.
    if signed && let (Some(a), Some(b)) = (extended(kernel, a, false), extended(kernel, b, false)) {
        let stem = &text[..text.len() - 3];
        return kernel.rewrite(inst, &format!("{stem}u32"), &[a, b]);
    }
    false
}
