//! Constant parts of addresses go into the address operand, and constants in sums go outwards so that they get there.
//!
//! ```text
//! add.s64 p, (add.s64 q, 16)            ->  add.s64 (add.s64 p, q), 16
//! mad.lo.u32 (add.u32 i, 1), 64, base   ->  add.u32 (mad.lo.u32 i, 64, base), 64
//! ld.global.f32 [add.s64 p, 16]         ->  ld.global.f32 [p+16]
//! ```
//! All of it is arithmetic modulo 2^n, so nothing has to be known of the values. Accesses of an unrolled loop then share one
//! base, and neighbours can be found.

use super::super::code::{Code, Half};
use super::super::inst::Arg;
use super::super::kernel::{Class, Inst, Kernel, Origin, Value};
use crate::types::Type;

/// An instruction's immediate offset has 24 bits.
const FARTHEST: i64 = 1 << 23;

pub(super) fn run(kernel: &mut Kernel) -> usize {
    let mut changes = 0;
    for block in super::super::cfg::Cfg::new(kernel).order {
        let mut kept = Vec::new();
        for inst in kernel.block(block).insts.clone() {
            if let Some(inner) = outwards(kernel, inst) {
                kept.push(inner);
                changes += 1;
            }
            changes += fold(kernel, inst);
            kept.push(inst);
        }
        kernel.block_mut(block).insts = kept;
    }
    changes
}

/// A sum with a constant: the rest and the constant.
fn split(kernel: &Kernel, value: Value) -> Option<(Value, u64)> {
    let (code, sources) = kernel.expression(value)?;
    if !code.is_integer_sum() {
        return None;
    }
    match (kernel.constant(sources[0]), kernel.constant(sources[1])) {
        (None, Some(constant)) => Some((sources[0], constant)),
        (Some(constant), None) => Some((sources[1], constant)),
        _ => None,
    }
}

/// Makes the instruction `new + constant`, where `new` is an instruction like it without the constant.
fn outwards(kernel: &mut Kernel, inst: Inst) -> Option<Inst> {
    let sources = kernel.sources(inst)?;
    let class = kernel.class(kernel.inst(inst).single_def()?);
    let code = kernel.code(inst)?;
    let exact = kernel.inst(inst).exact;
    let (new, constant) = match (code, &sources[..]) {
        (Code::Add(_), &[a, b]) if code.is_integer_sum() && !exact => {
            if kernel.constant(a).is_some() || kernel.constant(b).is_some() {
                return None;
            }
            match (split(kernel, a), split(kernel, b)) {
                (Some((a, first)), Some((b, second))) => (vec![a, b], first.wrapping_add(second)),
                (Some((a, constant)), None) => (vec![a, b], constant),
                (None, Some((b, constant))) => (vec![a, b], constant),
                (None, None) => return None,
            }
        }
        (Code::Shl(Type::B32 | Type::B64), &[a, amount]) => {
            let (rest, constant) = split(kernel, a)?;
            let amount_bits = kernel.constant(amount).filter(|&bits| bits < class.bits().into())?;
            (vec![rest, amount], constant << amount_bits)
        }
        (Code::Mul(Half::Low, Type::U32 | Type::S32 | Type::U64 | Type::S64), &[a, b]) => {
            let (rest, constant) = split(kernel, a)?;
            (vec![rest, b], constant.wrapping_mul(kernel.constant(b)?))
        }
        (Code::Mad(Half::Low, Type::U32 | Type::S32 | Type::U64 | Type::S64), &[a, b, c]) => {
            let first = split(kernel, a).and_then(|(rest, constant)| Some((rest, constant.wrapping_mul(kernel.constant(b)?))));
            match (first, split(kernel, c)) {
                (Some((a, first)), Some((c, second))) => (vec![a, b, c], first.wrapping_add(second)),
                (Some((a, constant)), None) => (vec![a, b, c], constant),
                (None, Some((c, constant))) => (vec![a, b, c], constant),
                (None, None) => return None,
            }
        }
        (Code::Mad(Half::Wide, Type::U32 | Type::S32), &[a, b, c]) => {
            let (rest, constant) = split(kernel, c)?;
            (vec![a, b, rest], constant)
        }
        _ => return None,
    };
    let (inner, rest) = kernel.pure(code, class, &new, inst)?;
    let constant = kernel.const_bits(class, constant);
    kernel.rewrite(inst, Code::Add(class.index()?), &[rest, constant]).then_some(inner)
}

/// Takes constants out of the bases of an instruction's addresses.
fn fold(kernel: &mut Kernel, inst: Inst) -> usize {
    let mut changes = 0;
    for index in 0..kernel.inst(inst).args.len() {
        while let Arg::Address(address) = &kernel.inst(inst).args[index] {
            let (base, offset) = (address.base, address.offset);
            if address.coordinates.is_some() {
                break;
            }
            let Some((rest, constant)) = split(kernel, base) else { break };
            let constant = match kernel.class(base) {
                Class::B32 => i64::from(constant as u32 as i32),
                Class::Pred | Class::B16 | Class::B64 => constant as i64,
            };
            let total = offset.wrapping_add(constant);
            // A symbol and an absolute address take any offset; a register takes what the instruction can hold.
            let leaf = matches!(kernel.origin(rest), Origin::Shared(..));
            if !leaf && !(-FARTHEST..FARTHEST).contains(&total) {
                break;
            }
            if let Arg::Address(address) = &mut kernel.inst_mut(inst).args[index] {
                address.base = rest;
                address.offset = total;
            }
            changes += 1;
        }
    }
    changes
}
