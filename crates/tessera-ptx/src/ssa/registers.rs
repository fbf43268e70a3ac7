//! Which values share a register: out of SSA by coalescing.
//!
//! Values are put into one class when they are tied, when one is passed to the other as a block's argument, or when a matrix
//! product adds to one and gives the other, as long as no two of a class are alive at once. Deep loops choose first, so that what remains as
//! a copy stands outside of them. Two values of a class are compared along the dominator tree only: a value that meets any
//! other of its class meets the nearest one that dominates it.

use super::cfg::Cfg;
use super::inst::Arg;
use super::kernel::{Kernel, Value};
use super::liveness::{Liveness, Place};
use crate::mnemonic::Mnemonic;

#[derive(Clone, Debug)]
pub(crate) struct Registers {
    class_of: Vec<u32>,
    /// The values of each class, in the order of their definitions in a preorder walk of the dominator tree.
    members: Vec<Vec<Member>>,
}

/// A value of a class and where it is defined.
#[derive(Clone, Copy, Debug)]
struct Member {
    /// The block's number in the preorder walk and the position in it.
    key: (u32, u32),
    place: Place,
    value: Value,
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
                .map(|value| {
                    let member = |place: Place| Member { key: (cfg.preorder(place.0), place.1), place, value };
                    liveness.definition(value).map(member).into_iter().collect()
                })
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
                && kernel.ops.get(inst.op).mnemonic() == Mnemonic::Mma
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
    fn join(&mut self, a: Value, b: Value) {
        let (a, b) = (self.registers.of(a), self.registers.of(b));
        if a == b {
            return;
        }
        let members = &self.registers.members;
        let (small, large) = if members[a].len() < members[b].len() { (a, b) } else { (b, a) };
        if members[small].is_empty() || members[small].iter().any(|&member| self.meets(member, &members[large])) {
            return;
        }
        for member in std::mem::take(&mut self.registers.members[small]) {
            self.registers.class_of[member.value.index()] = large as u32;
            let class = &mut self.registers.members[large];
            class.insert(class.partition_point(|other| other.key < member.key), member);
        }
    }

    /// Whether a value is alive together with one of a class. It is enough to look at the nearest value above it in the
    /// dominator tree and at the nearest ones below: who meets one further away meets those as well.
    fn meets(&self, member: Member, class: &[Member]) -> bool {
        let dominates = |a: &Member, b: &Member| self.cfg.dominates(a.place.0, b.place.0);
        let at = class.partition_point(|other| other.key < member.key);
        if class.get(at).is_some_and(|other| other.key == member.key) {
            return true;
        }
        let above = class[..at].iter().rev().find(|other| dominates(other, &member));
        if above.is_some_and(|above| self.liveness.is_live_behind(above.value, member.place)) {
            return true;
        }
        let mut nearest: Option<&Member> = None;
        for below in class[at..].iter().take_while(|other| dominates(&member, other)) {
            if nearest.is_some_and(|nearest| dominates(nearest, below)) {
                continue;
            }
            if self.liveness.is_live_behind(member.value, below.place) {
                return true;
            }
            if below.place.0 == member.place.0 {
                // It stands in the same block and dominates all that follows.
                return false;
            }
            nearest = Some(below);
        }
        false
    }
}
