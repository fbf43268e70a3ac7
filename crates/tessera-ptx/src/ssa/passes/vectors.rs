//! Neighbouring loads and stores become one access of two or four elements.
//!
//! Accesses belong together when they are the same operation on the same base in one stretch of a block without other
//! effects, their offsets follow each other, and the first address is a multiple of the whole: proven from the alignment of
//! pointers and variables and the factors of what is added to them.

use super::super::code::{Code, Half};
use super::super::effects::Effects;
use super::super::inst::{Arg, InstData};
use super::super::kernel::{Block, Class, Inst, Kernel, Origin, ParamKind, Value};
use crate::mnemonic::Mnemonic;
use crate::types::Type;
use crate::word::{Modifier, Word};

/// How far a definition is followed.
const DEEPEST: u32 = 12;

/// Bytes of the widest access.
const WIDEST: u64 = 16;

/// Where and how what becomes wider is accessed, and what its elements are.
const SPACES: [Word; 3] = [Word::Global, Word::Shared, Word::SharedCta];
const CACHES: [Word; 7] = [Word::Nc, Word::Ca, Word::Cg, Word::Cs, Word::L1NoAllocate, Word::L1EvictFirst, Word::L1EvictLast];
const ELEMENTS: [Type; 11] =
    [Type::B32, Type::U32, Type::S32, Type::F32, Type::B64, Type::U64, Type::S64, Type::F64, Type::B16, Type::U16, Type::S16];

pub(super) fn run(kernel: &mut Kernel) -> usize {
    let mut changes = 0;
    for block in kernel.layout.clone() {
        changes += visit(kernel, block);
    }
    changes
}

/// An access that could be part of a wider one.
#[derive(Clone)]
struct Access {
    inst: Inst,
    at: usize,
    base: Value,
    offset: i64,
    bytes: u64,
    store: bool,
}

fn access(kernel: &Kernel, inst: Inst, at: usize) -> Option<Access> {
    let data = kernel.inst(inst);
    let op = kernel.ops.get(data.op);
    let (store, address) = match (op.mnemonic(), &data.args[..]) {
        (Mnemonic::Ld, [Arg::Def(_), Arg::Address(address)]) => (false, address),
        (Mnemonic::St, [Arg::Address(address), Arg::Use(_)]) => (true, address),
        _ => return None,
    };
    // Ordered accesses stay as they are, and so do those with a width already.
    let plain = op.modifiers.iter().all(|modifier| match modifier {
        Modifier::Word(word) => SPACES.contains(word) || CACHES.contains(word),
        Modifier::Type(ty) => ELEMENTS.contains(ty),
        Modifier::Shape { .. } => false,
    });
    let bytes = u64::from(op.element()?.bits()) / 8;
    let spaced = SPACES.into_iter().any(|space| op.has(space));
    (plain && spaced).then_some(Access { inst, at, base: address.base, offset: address.offset, bytes, store })
}

fn visit(kernel: &mut Kernel, block: Block) -> usize {
    let insts = kernel.block(block).insts.clone();
    let mut changes = 0;
    let mut open: Vec<Vec<Access>> = Vec::new();
    for (at, &inst) in insts.iter().enumerate() {
        let found = access(kernel, inst, at);
        let effects = kernel.effects(inst);
        match found {
            Some(new) => {
                // A store ends all stretches of loads and the other way round; stores to another base end stretches of stores.
                let same = |group: &Vec<Access>| together(kernel, &group[0], &new);
                let at = open.iter().position(same);
                let constant = effects == Effects::ReadConstant;
                let ends = |group: &Vec<Access>| !constant && (group[0].store || new.store) && !together(kernel, &group[0], &new);
                let keep = at.map(|index| open.remove(index));
                let (closed, rest): (Vec<_>, Vec<_>) = std::mem::take(&mut open).into_iter().partition(ends);
                open = rest;
                for group in closed {
                    changes += close(kernel, block, group);
                }
                let mut group = keep.unwrap_or_default();
                // Two stores to one place keep their order.
                if new.store && group.iter().any(|old| overlap(old, &new)) {
                    changes += close(kernel, block, std::mem::take(&mut group));
                }
                group.push(new);
                open.push(group);
            }
            None if matches!(effects, Effects::Effect) => {
                for group in std::mem::take(&mut open) {
                    changes += close(kernel, block, group);
                }
            }
            None if matches!(effects, Effects::Read | Effects::Warp) => {
                let (closed, rest): (Vec<_>, Vec<_>) = std::mem::take(&mut open).into_iter().partition(|group| group[0].store);
                open = rest;
                for group in closed {
                    changes += close(kernel, block, group);
                }
            }
            None => {}
        }
    }
    for group in open {
        changes += close(kernel, block, group);
    }
    changes
}

fn together(kernel: &Kernel, a: &Access, b: &Access) -> bool {
    let (first, second) = (kernel.inst(a.inst), kernel.inst(b.inst));
    a.store == b.store && a.base == b.base && first.op == second.op && first.guard == second.guard
}

fn overlap(a: &Access, b: &Access) -> bool {
    a.offset < b.offset.wrapping_add(b.bytes as i64) && b.offset < a.offset.wrapping_add(a.bytes as i64)
}

/// Makes wide accesses of a stretch.
fn close(kernel: &mut Kernel, block: Block, mut group: Vec<Access>) -> usize {
    group.sort_by_key(|access| (access.offset, access.at));
    group.dedup_by_key(|access| access.offset);
    let mut changes = 0;
    let mut from = 0;
    while from < group.len() {
        let first = group[from].clone();
        let run = group[from..]
            .iter()
            .zip(0..)
            .take_while(|(access, index)| access.offset == first.offset.wrapping_add(first.bytes as i64 * index))
            .count();
        let aligned = alignment(kernel, first.base, 0);
        let fits = |count: usize| {
            let bytes = first.bytes * count as u64;
            count <= run && bytes <= WIDEST && aligned.is_multiple_of(bytes) && first.offset.unsigned_abs().is_multiple_of(bytes)
        };
        let count = [4, 2].into_iter().find(|&count| fits(count)).unwrap_or(1);
        if count > 1 && widen(kernel, block, &group[from..from + count]) {
            changes += 1;
        }
        from += count;
    }
    changes
}

/// Replaces accesses by one: loads by one at the place of the first, stores by one at the place of the last.
fn widen(kernel: &mut Kernel, block: Block, parts: &[Access]) -> bool {
    let first = kernel.inst(parts[0].inst).clone();
    let op = kernel.ops.get(first.op);
    let Some((ty, stem)) = op.modifiers.split_last() else { return false };
    let count = if parts.len() == 2 { Word::V2 } else { Word::V4 };
    let modifiers = stem.iter().copied().chain([Modifier::Word(count), *ty]).map(|modifier| format!(".{modifier}"));
    let text = op.mnemonic().to_string() + &modifiers.collect::<String>();
    let values: Vec<Arg> = parts
        .iter()
        .filter_map(|part| kernel.inst(part.inst).args.iter().find(|arg| matches!(arg, Arg::Def(_) | Arg::Use(_))).cloned())
        .collect();
    let address = first.args.iter().find(|arg| matches!(arg, Arg::Address(_))).cloned();
    let Some(address) = address else { return false };
    let args = if parts[0].store { vec![address, Arg::Vector(values)] } else { vec![Arg::Vector(values), address] };
    let guarded_load = first.guard.is_some() && !parts[0].store;
    let Some(op) = kernel.resolve(&text, &args).filter(|_| !guarded_load) else { return false };
    let (early, late) = (parts.iter().map(|part| part.at).min(), parts.iter().map(|part| part.at).max());
    let at = if parts[0].store { late } else { early };
    let home = parts.iter().find(|part| Some(part.at) == at).map(|part| part.inst);
    let new = kernel.new_inst(InstData { op, args, ..first });
    let data = kernel.block_mut(block);
    data.insts.iter_mut().filter(|inst| Some(**inst) == home).for_each(|inst| *inst = new);
    data.insts.retain(|inst| parts.iter().all(|part| part.inst != *inst));
    true
}

/// A power of two that the value is a multiple of.
fn alignment(kernel: &Kernel, value: Value, depth: u32) -> u64 {
    const MOST: u64 = 1 << 20;
    if depth > DEEPEST {
        return 1;
    }
    let of = |value: Value| alignment(kernel, value, depth + 1);
    let low_bit = |bits: u64| if bits == 0 { MOST } else { (bits & bits.wrapping_neg()).min(MOST) };
    match kernel.origin(value) {
        Origin::Const(bits) => low_bit(bits),
        Origin::Param(index) => match kernel.params[index as usize].kind {
            ParamKind::Pointer(align) => low_bit(align.into()),
            ParamKind::Scalar(_) | ParamKind::TensorMap => 1,
        },
        Origin::Shared(index, offset) => low_bit(kernel.shared[index as usize].align.into()).min(low_bit(offset.unsigned_abs())),
        Origin::Data(index) => low_bit(kernel.data[index as usize].align.into()),
        Origin::Frame => 8,
        Origin::Undef | Origin::Special(_) | Origin::ParamAddress(_) | Origin::BlockParam(..) => 1,
        Origin::Result(inst) => {
            let sources = kernel.sources(inst).filter(|_| kernel.class(value) != Class::Pred);
            let Some(sources) = sources else { return 1 };
            if kernel.op(inst).mnemonic() == Mnemonic::Cvta {
                return of(sources[0]);
            }
            let Some(code) = kernel.code(inst).filter(|code| code.is_whole()) else { return 1 };
            let product = |a: Value, b: Value| of(a).saturating_mul(of(b)).min(MOST);
            match (code, &sources[..]) {
                (Code::Add(_) | Code::Sub(_) | Code::Or(_) | Code::Xor(_), &[a, b]) => of(a).min(of(b)),
                (Code::Mul(Half::Low | Half::Wide, _), &[a, b]) => product(a, b),
                (Code::Mad(Half::Low | Half::Wide, _), &[a, b, c]) => product(a, b).min(of(c)),
                (Code::And(_), &[a, b]) => of(a).max(of(b)),
                (Code::Shl(_), &[a, amount]) => match kernel.constant(amount) {
                    Some(amount) if amount < 20 => (of(a) << amount).min(MOST),
                    _ => of(a),
                },
                (
                    Code::Cvt(Type::U64 | Type::S64, Type::U32)
                    | Code::Cvt(Type::S64, Type::S32)
                    | Code::Cvt(Type::U32, Type::U64),
                    &[a],
                ) => of(a),
                (Code::Selp(_), &[a, b, _]) => of(a).min(of(b)),
                _ => 1,
            }
        }
    }
}
