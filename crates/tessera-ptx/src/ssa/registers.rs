//! Which values share a register: out of SSA by coalescing.
//!
//! Values are put into one class when they are tied, when one is passed to the other as a block's argument, or when a matrix
//! product adds to one and gives the other, as long as no two of a class are alive at once. Deep loops choose first, so that what remains as
//! a copy stands outside of them. Two values of a class are compared along the dominator tree only: a value that meets any
//! other of its class meets the nearest one that dominates it.

use super::cfg::Cfg;
use super::kernel::{Arg, Kernel, Value};
use super::liveness::{Liveness, Place};

#[derive(Clone, Debug)]
pub(crate) struct Registers {
    class_of: Vec<u32>,
    /// The values of each class, in the order of their definitions in a preorder walk.
    members: Vec<Vec<Value>>,
}

struct Coalescer<'a> {
    cfg: &'a Cfg,
    liveness: &'a Liveness,
    registers: Registers,
}

impl Registers {
    pub(crate) fn new(kernel: &Kernel, cfg: &Cfg, liveness: &Liveness) -> Registers {
        let count = kernel.values.len();
        let registers = Registers {
            class_of: (0..count as u32).collect(),
            members: (0..count as u32)
                .map(Value)
                .map(|value| if liveness.definition(value).is_some() { vec![value] } else { Vec::new() })
                .collect(),
        };
        let mut coalescer = Coalescer { cfg, liveness, registers };
        for (_, a, b) in affinities(kernel, cfg) {
            coalescer.join(a, b);
        }
        coalescer.registers
    }

    /// The class of a value: the same number for those that share a register.
    pub(crate) fn of(&self, value: Value) -> usize {
        self.class_of[value.index()] as usize
    }
}

/// Pairs that should share, the most urgent first; ties keep program order.
fn affinities(kernel: &Kernel, cfg: &Cfg) -> Vec<((u32, u32), Value, Value)> {
    let mut pairs = Vec::new();
    for &block in &cfg.order {
        let data = kernel.block(block);
        let depth = u32::MAX - cfg.depth[block.index()];
        for &inst in &data.insts {
            let inst = kernel.inst(inst);
            inst.each_tied(|input, output| pairs.push(((0, depth), input, output)));
            if let (Some(Arg::Vector(results)), Some(Arg::Vector(sums))) = (inst.args.first(), inst.args.last())
                && kernel.ops.get(inst.op).mnemonic() == "mma"
            {
                for pair in results.iter().zip(sums) {
                    if let (Arg::Def(result), Arg::Use(sum)) = pair {
                        pairs.push(((2, depth), *sum, *result));
                    }
                }
            }
        }
        for target in data.terminator.iter().flat_map(|end| end.targets()) {
            let depth = u32::MAX - cfg.depth[block.index()].min(cfg.depth[target.block.index()]);
            let params = &kernel.block(target.block).params;
            pairs.extend(target.args.iter().zip(params).map(|(&arg, &param)| ((1, depth), arg, param)));
        }
    }
    pairs.retain(|(_, a, b)| !kernel.origin(*a).is_leaf() && !kernel.origin(*b).is_leaf());
    pairs.sort_by_key(|(urgency, ..)| *urgency);
    pairs
}

impl Coalescer<'_> {
    fn place(&self, value: Value) -> Place {
        self.liveness.definition(value).unwrap_or((self.cfg.order[0], 0))
    }

    fn key(&self, value: Value) -> (u32, u32) {
        let (block, position) = self.place(value);
        (self.cfg.preorder(block), position)
    }

    fn join(&mut self, a: Value, b: Value) {
        let (a, b) = (self.registers.of(a), self.registers.of(b));
        if a == b {
            return;
        }
        let Some(merged) = self.merge(a, b) else { return };
        let (keep, drop) = (a.min(b), a.max(b));
        for value in std::mem::take(&mut self.registers.members[drop]) {
            self.registers.class_of[value.index()] = keep as u32;
        }
        self.registers.members[keep] = merged;
    }

    /// The values of both classes in order, unless two of them are alive at once.
    fn merge(&self, a: usize, b: usize) -> Option<Vec<Value>> {
        let (left, right) = (&self.registers.members[a], &self.registers.members[b]);
        if left.is_empty() || right.is_empty() {
            return None;
        }
        let mut merged: Vec<Value> = Vec::with_capacity(left.len() + right.len());
        let (mut i, mut j) = (0, 0);
        let mut dominating: Vec<Value> = Vec::new();
        while i < left.len() || j < right.len() {
            let from_left = j == right.len() || (i < left.len() && self.key(left[i]) <= self.key(right[j]));
            let value = if from_left { left[i] } else { right[j] };
            if from_left {
                i += 1
            } else {
                j += 1
            }
            let place = self.place(value);
            while let Some(&above) = dominating.last() {
                if self.cfg.dominates(self.place(above).0, place.0) {
                    break;
                }
                dominating.pop();
            }
            if let Some(&above) = dominating.last()
                && (self.place(above) == place || self.liveness.is_live_behind(above, place))
            {
                return None;
            }
            dominating.push(value);
            merged.push(value);
        }
        Some(merged)
    }
}
