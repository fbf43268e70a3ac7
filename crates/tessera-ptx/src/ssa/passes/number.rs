//! Value numbering: folds every pure instruction, and computes nothing twice.
//!
//! One walk over the blocks in dominator order. Two instructions are the same when operation and operands are; which one is
//! kept is the first that dominates the other. Integer sums and products don't depend on signedness and are one operation here. Reads
//! of changing memory are the same up to the next effect in their block.

use rustc_hash::{FxHashMap, FxHashSet};

use super::super::cfg::Cfg;
use super::super::code::{Code, Half};
use super::super::effects::Effects;
use super::super::fold::{Folded, fold};
use super::super::inst::Arg;
use super::super::kernel::{Block, Class, Inst, Kernel, Value};
use super::super::op::Op;
use super::Replacements;
use crate::mnemonic::Mnemonic;
use crate::types::Type;

/// An instruction may fold this often before it is left as it is.
const MOST_FOLDS: usize = 6;

#[derive(PartialEq, Eq, Hash)]
struct Key {
    op: Op,
    sources: Vec<Arg>,
    /// Which stretch of a block a read belongs to; none for what depends on operands alone.
    stretch: Option<(Block, u32)>,
}

pub(super) fn run(kernel: &mut Kernel) -> usize {
    let cfg = Cfg::new(kernel);
    let mut replacements = Replacements::new(kernel);
    let mut known: FxHashMap<Key, (Block, Vec<Value>)> = FxHashMap::default();
    let steps = steps(kernel, &cfg);
    let mut changes = 0;
    for &block in &cfg.order {
        let mut stretch = 0;
        let mut kept = Vec::new();
        for inst in kernel.block(block).insts.clone() {
            kernel.inst_mut(inst).each_use_mut(|value| *value = replacements.find(*value));
            if never(kernel, inst) {
                let mut tied = Vec::new();
                kernel.inst(inst).each_tied(|input, output| tied.push((input, output)));
                for (input, output) in tied {
                    let input = replacements.find(input);
                    replacements.replace(output, input);
                }
                changes += 1;
                continue;
            }
            if let Some(parts) = parts_of_constant(kernel, inst) {
                for (part, class, bits) in parts {
                    let bits = kernel.const_bits(class, bits);
                    replacements.replace(part, bits);
                }
                changes += 1;
                continue;
            }
            let effects = kernel.effects(inst);
            if effects == Effects::Effect {
                stretch += 1;
            }
            if matches!(effects, Effects::Effect | Effects::Warp) || !plain(kernel, inst) {
                kept.push(inst);
                continue;
            }
            if effects == Effects::Pure
                && let Some(value) = folded(kernel, inst, &mut changes)
                && let Some(result) = kernel.inst(inst).single_def()
            {
                replacements.replace(result, value);
                changes += 1;
                continue;
            }
            if steps.contains(&inst) {
                kept.push(inst);
                continue;
            }
            let stretch = (effects == Effects::Read).then_some((block, stretch));
            let key = key(kernel, inst, stretch);
            let mut results = Vec::new();
            kernel.inst(inst).each_def(|value| results.push(value));
            if let Some((home, earlier)) = known.get(&key)
                && cfg.dominates(*home, block)
            {
                results.iter().zip(earlier).for_each(|(&old, &new)| replacements.replace(old, new));
                changes += 1;
                continue;
            }
            known.insert(key, (block, results));
            kept.push(inst);
        }
        kernel.block_mut(block).insts = kept;
    }
    replacements.apply(kernel);
    changes
}

/// The sums that make a loop's next index out of this one. They stand at its end; merged with the same sum further up, index
/// and next index would be alive at once and take a copy.
fn steps(kernel: &Kernel, cfg: &Cfg) -> FxHashSet<Inst> {
    let mut found = FxHashSet::default();
    for &block in &cfg.order {
        for target in kernel.block(block).terminator.iter().flat_map(|end| end.targets()) {
            for (&param, &arg) in kernel.block(target.block).params.iter().zip(&target.args) {
                if let Some(inst) = kernel.definition(arg)
                    && matches!(kernel.op(inst).mnemonic(), Mnemonic::Add | Mnemonic::Sub)
                    && kernel.sources(inst).is_some_and(|sources| sources.contains(&param))
                {
                    found.insert(inst);
                }
            }
        }
    }
    found
}

/// What a constant is taken apart into. No assembler shall see it: ptxas 13.0 and 13.5 convert a pair of 8-bit floats that is the high half of a
/// constant as if that were 8.
fn parts_of_constant(kernel: &Kernel, inst: Inst) -> Option<Vec<(Value, Class, u64)>> {
    if kernel.op(inst).mnemonic() != Mnemonic::Mov || kernel.inst(inst).guard.is_some() {
        return None;
    }
    let mut parts = Vec::new();
    kernel.inst(inst).each_def(|part| parts.push(part));
    let mut sources = Vec::new();
    kernel.inst(inst).each_use(|value| sources.push(value));
    let [whole] = sources[..] else { return None };
    let bits = kernel.constant(whole).filter(|_| parts.len() > 1)?;
    let mut shift = 0;
    let part = |part: Value| {
        let (class, from) = (kernel.class(part), shift);
        shift += class.mask().count_ones();
        (part, class, bits >> from & class.mask())
    };
    Some(parts.into_iter().map(part).collect())
}

/// Whether the instruction's guard is known to keep it from running: its results are what they are tied to.
fn never(kernel: &Kernel, inst: Inst) -> bool {
    let guard = kernel.inst(inst).guard;
    guard.is_some_and(|guard| kernel.constant(guard.value).is_some_and(|bits| (bits & 1 == 1) == guard.negated))
}

/// Whether the instruction only defines new values: no guard, nothing tied.
fn plain(kernel: &Kernel, inst: Inst) -> bool {
    let data = kernel.inst(inst);
    let mut tied = false;
    data.each_tied(|_, _| tied = true);
    data.guard.is_none() && !tied && data.hidden.is_empty()
}

/// Folds an instruction as far as it goes; a value when nothing is left of it.
fn folded(kernel: &mut Kernel, inst: Inst, changes: &mut usize) -> Option<Value> {
    for _ in 0..MOST_FOLDS {
        let data = kernel.inst(inst).clone();
        match fold(kernel, data.op, &data.args)? {
            Folded::Value(value) => return Some(value),
            Folded::Instruction(code, sources) => {
                let args: Vec<Arg> = data.args[..1].iter().cloned().chain(sources).collect();
                let op = kernel.resolve(&code.text(), &args)?;
                let data = kernel.inst_mut(inst);
                data.op = op;
                data.args = args;
                data.exact = false;
                *changes += 1;
            }
        }
    }
    None
}

fn key(kernel: &mut Kernel, inst: Inst, stretch: Option<(Block, u32)>) -> Key {
    let data = kernel.inst(inst);
    let mut sources: Vec<Arg> = data
        .args
        .iter()
        .filter_map(|arg| match arg {
            // How many results there are matters, which ones does not.
            Arg::Def(_) | Arg::Pair(..) | Arg::Sink => None,
            Arg::Vector(parts) if parts.iter().any(|part| matches!(part, Arg::Def(_))) => Some(Arg::Int(parts.len() as i64)),
            _ => Some(arg.clone()),
        })
        .collect();
    let op = data.op;
    let found = kernel.ops.get(op);
    if commutes(found.mnemonic())
        && let [Arg::Use(a), Arg::Use(b), ..] = &mut sources[..]
        && a > b
    {
        std::mem::swap(a, b);
    }
    let signless =
        found.code.filter(|code| matches!(code, Code::Add(_) | Code::Sub(_) | Code::Mul(Half::Low, _) | Code::Mad(Half::Low, _)));
    let unsigned = signless.and_then(|code| match code.ty() {
        Type::S32 => Some(code.within(Type::U32)),
        Type::S64 => Some(code.within(Type::U64)),
        _ => None,
    });
    let op = unsigned.and_then(|code| kernel.ops.find(&code.text()).ok()).and_then(|ops| ops.first().copied()).unwrap_or(op);
    Key { op, sources, stretch }
}

fn commutes(mnemonic: Mnemonic) -> bool {
    use Mnemonic as M;
    matches!(mnemonic, M::Add | M::Mul | M::Mad | M::And | M::Or | M::Xor | M::Min | M::Max | M::Fma)
}
