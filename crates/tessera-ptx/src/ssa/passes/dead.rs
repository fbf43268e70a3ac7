//! Drops what nobody needs: instructions without effects whose results are unused, and block parameters that only feed
//! themselves.

use super::super::cfg::Cfg;
use super::super::effects::Effects;
use super::super::inst::Terminator;
use super::super::kernel::{Block, Kernel, Origin, Value};

pub(super) fn run(kernel: &mut Kernel) -> usize {
    let cfg = Cfg::new(kernel);
    let mut needed = vec![false; kernel.values.len()];
    let mut work: Vec<Value> = Vec::new();
    let mut seen = vec![false; kernel.insts.len()];
    for &block in &cfg.order {
        let data = kernel.block(block);
        for &inst in &data.insts {
            let found = kernel.inst(inst);
            if kernel.effects(inst) == Effects::Effect {
                seen[inst.index()] = true;
                found.each_use(|value| work.push(value));
            }
        }
        if let Some(Terminator::Branch { condition, .. }) = &data.terminator {
            work.push(*condition);
        }
    }
    while let Some(value) = work.pop() {
        if std::mem::replace(&mut needed[value.index()], true) {
            continue;
        }
        match kernel.origin(value) {
            Origin::Result(inst) if !std::mem::replace(&mut seen[inst.index()], true) => {
                kernel.inst(inst).each_use(|value| work.push(value));
            }
            Origin::BlockParam(block, index) => {
                for &pred in &cfg.preds[block.index()] {
                    for target in kernel.block(pred).terminator.iter().flat_map(|end| end.targets()) {
                        if target.block == block {
                            work.push(target.args[index as usize]);
                        }
                    }
                }
            }
            _ => {}
        }
    }
    let mut dropped = 0;
    for block in kernel.layout.clone() {
        if !cfg.is_reachable(block) {
            continue;
        }
        let data = kernel.block_mut(block);
        let before = data.insts.len();
        data.insts.retain(|inst| seen[inst.index()]);
        dropped += before - data.insts.len();
        let keep: Vec<bool> = data.params.iter().map(|param| needed[param.index()]).collect();
        if keep.iter().all(|&keep| keep) {
            continue;
        }
        dropped += keep.iter().filter(|&&keep| !keep).count();
        remove_params(kernel, &cfg, block, &keep);
    }
    dropped
}

/// Removes the parameters of a block that are not kept, and what is passed to them.
pub(super) fn remove_params(kernel: &mut Kernel, cfg: &Cfg, block: Block, keep: &[bool]) {
    let mut at = 0;
    kernel.block_mut(block).params.retain(|_| {
        at += 1;
        keep[at - 1]
    });
    for (index, param) in kernel.block(block).params.clone().into_iter().enumerate() {
        kernel.values[param.index()].origin = Origin::BlockParam(block, index as u32);
    }
    let mut preds = cfg.preds[block.index()].clone();
    preds.dedup();
    for pred in preds {
        for target in kernel.block_mut(pred).terminator.iter_mut().flat_map(|end| end.targets_mut()) {
            if target.block == block && target.args.len() == keep.len() {
                let mut at = 0;
                target.args.retain(|_| {
                    at += 1;
                    keep[at - 1]
                });
            }
        }
    }
}
