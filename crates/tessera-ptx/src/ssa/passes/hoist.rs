//! Moves pure instructions out of loops whose operands don't change in them, innermost loops first.
//!
//! What is moved lives through the whole loop, so a loop takes only as much as its registers allow: beside what is alive at
//! the end of one of its blocks, up to [`WORDS`] in all.

use super::super::cfg::Cfg;
use super::super::effects::Effects;
use super::super::inst::{Target, Terminator};
use super::super::kernel::{Block, Inst, Kernel, Value};
use super::super::liveness::Liveness;
use super::words;

/// 32-bit registers that a loop may occupy before nothing more is moved in front of it.
const WORDS: u32 = 160;

/// What is moved into a loop of accumulators at least: descriptors and addresses are worth it.
const AT_LEAST: u32 = 24;

pub(super) fn run(kernel: &mut Kernel) -> usize {
    let mut cfg = Cfg::new(kernel);
    let mut headers: Vec<Block> = cfg.order.iter().copied().filter(|&block| cfg.header[block.index()] == Some(block)).collect();
    headers.sort_by_key(|header| std::cmp::Reverse(cfg.depth[header.index()]));
    let mut moved = 0;
    for header in headers {
        let found = invariant(kernel, &cfg, header);
        if found.is_empty() {
            continue;
        }
        let front = preheader(kernel, &cfg, header);
        for block in cfg.loop_blocks(header) {
            kernel.block_mut(block).insts.retain(|inst| found.binary_search_by_key(inst, |(inst, _)| *inst).is_err());
        }
        let mut order = found;
        order.sort_by_key(|(_, at)| *at);
        moved += order.len();
        kernel.block_mut(front).insts.extend(order.into_iter().map(|(inst, _)| inst));
        cfg = Cfg::new(kernel);
    }
    moved
}

/// The instructions to move, sorted by number, each with its place among them.
fn invariant(kernel: &Kernel, cfg: &Cfg, header: Block) -> Vec<(Inst, usize)> {
    let blocks = cfg.loop_blocks(header);
    let mut inside = vec![false; kernel.blocks.len()];
    blocks.iter().for_each(|block| inside[block.index()] = true);
    let mut variant = vec![false; kernel.values.len()];
    for &block in &blocks {
        let data = kernel.block(block);
        data.params.iter().for_each(|param| variant[param.index()] = true);
        data.insts.iter().for_each(|&inst| kernel.inst(inst).each_def(|value| variant[value.index()] = true));
    }
    let left = WORDS.saturating_sub(pressure(kernel, cfg, header));
    let mut room = left.max(AT_LEAST);
    let latches: Vec<Block> = cfg.preds[header.index()].iter().copied().filter(|pred| inside[pred.index()]).collect();
    // Where registers are scarce, what some rounds go without keeps none of them.
    let taken = |block: Block| left >= AT_LEAST || latches.iter().all(|&latch| cfg.dominates(block, latch));
    let mut found = Vec::new();
    for &block in cfg.order.iter().filter(|&&block| inside[block.index()] && taken(block)) {
        for &inst in &kernel.block(block).insts {
            // A read of constant memory moves only from where every iteration comes by.
            let movable = match kernel.effects(inst) {
                Effects::Pure => true,
                Effects::ReadConstant => block == header && kernel.inst(inst).guard.is_none(),
                Effects::Read | Effects::Warp | Effects::Effect => false,
            };
            let mut fixed = movable;
            kernel.inst(inst).each_use(|value| fixed &= !variant[value.index()]);
            kernel.inst(inst).each_tied(|_, _| fixed = false);
            if !fixed {
                continue;
            }
            let mut size = 0;
            kernel.inst(inst).each_def(|value| size += words(kernel.class(value)));
            if size > room {
                continue;
            }
            room -= size;
            kernel.inst(inst).each_def(|value| variant[value.index()] = false);
            found.push((inst, found.len()));
        }
    }
    found.sort_unstable();
    found
}

/// Registers that are occupied where most are: what is alive at the end of one of a loop's blocks.
fn pressure(kernel: &Kernel, cfg: &Cfg, header: Block) -> u32 {
    let liveness = Liveness::new(kernel, cfg);
    let sizes: Vec<u32> = (0..kernel.values.len() as u32).map(|value| words(kernel.class(Value(value)))).collect();
    let alive = |block: Block| liveness.live_out(block).map(|value| sizes[value.index()]).sum::<u32>();
    cfg.loop_blocks(header).into_iter().map(alive).fold(0, u32::max)
}

/// The block in front of a loop, which jumps to it and nowhere else. It is made where there is none.
pub(super) fn preheader(kernel: &mut Kernel, cfg: &Cfg, header: Block) -> Block {
    let outside: Vec<Block> = cfg.preds[header.index()].iter().copied().filter(|&pred| !cfg.dominates(header, pred)).collect();
    if let [only] = outside[..]
        && matches!(kernel.block(only).terminator, Some(Terminator::Jump(_)))
    {
        return only;
    }
    let front = kernel.new_block();
    let args: Vec<Value> =
        kernel.block(header).params.clone().into_iter().map(|param| kernel.new_block_param(front, kernel.class(param))).collect();
    kernel.block_mut(front).terminator = Some(Terminator::Jump(Target { block: header, args }));
    for pred in outside {
        for target in kernel.block_mut(pred).terminator.iter_mut().flat_map(|end| end.targets_mut()) {
            if target.block == header {
                target.block = front;
            }
        }
    }
    let at = kernel.layout.iter().position(|&block| block == header).unwrap_or(kernel.layout.len());
    kernel.layout.insert(at, front);
    front
}
