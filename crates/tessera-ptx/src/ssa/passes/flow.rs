//! Control flow: known branches, empty blocks, blocks in a row, parameters that are always the same, and small choices as
//! `selp`.
//!
//! ```text
//! A: branch p, B, C        B: jump D(x)        C: jump D(y)        becomes        A: v = selp x, y, p; jump D(v)
//! ```

use super::super::cfg::Cfg;
use super::super::code::Code;
use super::super::inst::{Arg, InstData, Target, Terminator};
use super::super::kernel::{Block, BlockData, Class, Kernel, Origin, Value};
use super::Replacements;
use super::dead::remove_params;

/// At most so many values are chosen by `selp` instead of by a branch.
const MOST_CHOICES: usize = 4;

/// Empty blocks that jump in a circle would be followed for ever.
const MOST_ROUNDS: usize = 16;

pub(super) fn run(kernel: &mut Kernel) -> usize {
    let mut all = 0;
    for _ in 0..MOST_ROUNDS {
        let changes = branches(kernel) + thread(kernel) + prune(kernel) + same_params(kernel) + merge(kernel);
        if changes == 0 {
            break;
        }
        all += changes;
    }
    all
}

/// Takes blocks that can't be reached out of the layout.
fn prune(kernel: &mut Kernel) -> usize {
    let cfg = Cfg::new(kernel);
    let before = kernel.layout.len();
    kernel.layout.retain(|&block| cfg.is_reachable(block));
    before - kernel.layout.len()
}

/// Branches whose way is known, or whose ways differ only in what they pass.
fn branches(kernel: &mut Kernel) -> usize {
    let mut changes = 0;
    for block in kernel.layout.clone() {
        let Some(Terminator::Branch { condition, then, otherwise }) = kernel.block(block).terminator.clone() else { continue };
        let end = if let Some(known) = kernel.constant(condition) {
            Some(Terminator::Jump(if known == 1 { then } else { otherwise }))
        } else if let Some(inverse) = kernel.negated(condition) {
            Some(Terminator::Branch { condition: inverse, then: otherwise, otherwise: then })
        } else if then.block == otherwise.block {
            choose(kernel, block, condition, &then, &otherwise)
        } else {
            None
        };
        if end.is_some() {
            kernel.block_mut(block).terminator = end;
            changes += 1;
        }
    }
    changes
}

fn choose(kernel: &mut Kernel, block: Block, condition: Value, then: &Target, otherwise: &Target) -> Option<Terminator> {
    let pairs: Vec<(Value, Value)> = then.args.iter().copied().zip(otherwise.args.iter().copied()).collect();
    let differ = pairs.iter().filter(|(a, b)| a != b);
    if differ.clone().count() > MOST_CHOICES || differ.clone().any(|(a, _)| kernel.class(*a) == Class::Pred) {
        return None;
    }
    let args = pairs
        .into_iter()
        .map(|(yes, no)| {
            if yes == no {
                return Some(yes);
            }
            let class = kernel.class(yes);
            let result = kernel.new_value(class, Origin::Undef);
            let args = vec![Arg::Def(result), yes.into(), no.into(), condition.into()];
            let op = kernel.resolve(&Code::Selp(class.ty()).text(), &args)?;
            let inst = kernel.new_inst(InstData { op, guard: None, args, hidden: Vec::new(), loc: None, exact: false });
            kernel.block_mut(block).insts.push(inst);
            Some(result)
        })
        .collect::<Option<Vec<Value>>>()?;
    Some(Terminator::Jump(Target { block: then.block, args }))
}

/// Jumps to blocks that only jump on go where those go.
fn thread(kernel: &mut Kernel) -> usize {
    let mut used_elsewhere = vec![false; kernel.values.len()];
    for &block in &kernel.layout {
        let mut mark = |value: Value| match kernel.origin(value) {
            Origin::BlockParam(home, _) if home == block => {}
            _ => used_elsewhere[value.index()] = true,
        };
        for &inst in &kernel.block(block).insts {
            kernel.inst(inst).each_use(&mut mark);
        }
        kernel.block(block).terminator.iter().for_each(|end| end.each_use(&mut mark));
    }
    let mut changes = 0;
    for block in kernel.layout.clone() {
        let Some(mut end) = kernel.block(block).terminator.clone() else { continue };
        let mut changed = false;
        for target in end.targets_mut() {
            let empty = kernel.block(target.block);
            let Some(Terminator::Jump(on)) = &empty.terminator else { continue };
            let passes_through = empty.insts.is_empty()
                && target.block != block
                && on.block != target.block
                && target.block != kernel.entry()
                && empty.params.iter().all(|param| !used_elsewhere[param.index()]);
            if !passes_through {
                continue;
            }
            let args = on.args.iter().map(|&arg| match empty.params.iter().position(|&param| param == arg) {
                Some(index) => target.args[index],
                None => arg,
            });
            *target = Target { block: on.block, args: args.collect() };
            changed = true;
        }
        if changed {
            kernel.block_mut(block).terminator = Some(end);
            changes += 1;
        }
    }
    changes
}

/// Parameters that every jump passes the same value.
fn same_params(kernel: &mut Kernel) -> usize {
    let cfg = Cfg::new(kernel);
    let mut replacements = Replacements::new(kernel);
    let mut changes = 0;
    for &block in &cfg.order {
        let params = kernel.block(block).params.clone();
        if params.is_empty() {
            continue;
        }
        let keep: Vec<bool> = params
            .iter()
            .enumerate()
            .map(|(index, &param)| {
                let mut only = None;
                for &pred in &cfg.preds[block.index()] {
                    for target in kernel.block(pred).terminator.iter().flat_map(|end| end.targets()) {
                        if target.block != block {
                            continue;
                        }
                        let arg = replacements.find(target.args[index]);
                        if arg == param || only == Some(arg) {
                            continue;
                        }
                        if only.replace(arg).is_some() {
                            return true;
                        }
                    }
                }
                match only {
                    Some(value) => {
                        replacements.replace(param, value);
                        false
                    }
                    None => true,
                }
            })
            .collect();
        if keep.iter().any(|&keep| !keep) {
            changes += keep.iter().filter(|&&keep| !keep).count();
            remove_params(kernel, &cfg, block, &keep);
        }
    }
    replacements.apply(kernel);
    changes
}

/// A block that one jump enters, and nothing else, is part of the block that jumps.
fn merge(kernel: &mut Kernel) -> usize {
    let cfg = Cfg::new(kernel);
    let mut replacements = Replacements::new(kernel);
    let mut gone = vec![false; kernel.blocks.len()];
    let mut changes = 0;
    for &block in &cfg.order {
        if gone[block.index()] {
            continue;
        }
        while let Some(Terminator::Jump(target)) = kernel.block(block).terminator.clone() {
            let next = target.block;
            if next == block || next == kernel.entry() || cfg.preds[next.index()].len() != 1 || gone[next.index()] {
                break;
            }
            let taken = std::mem::replace(kernel.block_mut(next), empty());
            taken.params.iter().zip(&target.args).for_each(|(&param, &arg)| replacements.replace(param, arg));
            let data = kernel.block_mut(block);
            data.insts.extend(taken.insts);
            data.terminator = taken.terminator;
            gone[next.index()] = true;
            changes += 1;
        }
    }
    kernel.layout.retain(|block| !gone[block.index()]);
    replacements.apply(kernel);
    changes
}

fn empty() -> BlockData {
    BlockData { params: Vec::new(), insts: Vec::new(), terminator: Some(Terminator::Trap) }
}
