//! The control-flow graph of a kernel, or of other code in blocks: reachable blocks, predecessors, dominators, loop depth.
//!
//! Dominators by the iteration of Cooper, Harvey and Kennedy over reverse postorder; loops are the natural loops of back
//! edges (to a block that dominates the jump).

use super::kernel::{Block, Kernel};

/// Facts about the blocks that can be reached. They hold until blocks or terminators change.
#[derive(Clone, Debug)]
pub(crate) struct Cfg {
    /// Reachable blocks, each before those that it dominates.
    pub(crate) order: Vec<Block>,
    /// Jumps into each block, one entry a jump.
    pub(crate) preds: Vec<Vec<Block>>,
    /// The block that each is immediately dominated by; the entry by itself.
    pub(crate) idom: Vec<Option<Block>>,
    /// How many loops a block lies in.
    pub(crate) depth: Vec<u32>,
    /// The header of the innermost loop of each block.
    pub(crate) header: Vec<Option<Block>>,
    /// First and last number of each block's subtree in a preorder walk of the dominator tree.
    interval: Vec<(u32, u32)>,
}

impl Cfg {
    pub(crate) fn new(kernel: &Kernel) -> Cfg {
        let end = |block: Block| kernel.block(block).terminator.as_ref();
        let targets = |block| end(block).into_iter().flat_map(|end| end.targets()).map(|target| target.block);
        Cfg::over(kernel.blocks.len(), kernel.entry(), targets)
    }

    /// The graph of `count` blocks, from where each goes.
    pub(crate) fn over<T: Iterator<Item = Block>>(count: usize, entry: Block, targets: impl Fn(Block) -> T) -> Cfg {
        let order = reverse_postorder(count, entry, &targets);
        let mut number = vec![usize::MAX; count];
        order.iter().enumerate().for_each(|(index, block)| number[block.index()] = index);
        let mut preds = vec![Vec::new(); count];
        for &block in &order {
            for target in targets(block) {
                preds[target.index()].push(block);
            }
        }
        let idom = dominators(&order, &number, &preds);
        let mut cfg = Cfg { order, preds, idom, depth: vec![0; count], header: vec![None; count], interval: vec![(0, 0); count] };
        cfg.number_tree();
        cfg.find_loops(&number);
        cfg
    }

    pub(crate) fn is_reachable(&self, block: Block) -> bool {
        self.idom[block.index()].is_some()
    }

    /// Whether every way to `b` leads through `a`.
    pub(crate) fn dominates(&self, a: Block, b: Block) -> bool {
        let ((first, last), (at, _)) = (self.interval[a.index()], self.interval[b.index()]);
        first <= at && at <= last
    }

    /// The block's place in a preorder walk of the dominator tree.
    pub(crate) fn preorder(&self, block: Block) -> u32 {
        self.interval[block.index()].0
    }

    fn number_tree(&mut self) {
        let mut children: Vec<Vec<Block>> = vec![Vec::new(); self.preds.len()];
        for &block in self.order.iter().skip(1) {
            if let Some(parent) = self.idom[block.index()] {
                children[parent.index()].push(block);
            }
        }
        let mut next = 0;
        let mut stack = vec![(self.order[0], 0)];
        self.interval[self.order[0].index()].0 = next;
        while let Some((block, done)) = stack.pop() {
            match children[block.index()].get(done) {
                Some(&child) => {
                    next += 1;
                    self.interval[child.index()].0 = next;
                    stack.push((block, done + 1));
                    stack.push((child, 0));
                }
                None => self.interval[block.index()].1 = next,
            }
        }
    }

    /// Headers from the innermost outwards: a later, larger loop does not overwrite an inner block's header.
    fn find_loops(&mut self, number: &[usize]) {
        let headers: Vec<Block> = self
            .order
            .iter()
            .copied()
            .filter(|&block| self.preds[block.index()].iter().any(|&pred| self.dominates(block, pred)))
            .collect();
        for &header in headers.iter().rev() {
            for member in self.loop_blocks(header) {
                self.depth[member.index()] += 1;
                self.header[member.index()].get_or_insert(header);
            }
        }
        debug_assert!(self.order.iter().all(|block| number[block.index()] != usize::MAX));
    }

    /// The blocks of the loop with this header, the header first.
    pub(crate) fn loop_blocks(&self, header: Block) -> Vec<Block> {
        let mut inside = vec![false; self.preds.len()];
        inside[header.index()] = true;
        let mut members = vec![header];
        let back = self.preds[header.index()].iter().copied().filter(|&pred| self.dominates(header, pred));
        let mut work: Vec<Block> = back.collect();
        while let Some(block) = work.pop() {
            if !std::mem::replace(&mut inside[block.index()], true) {
                members.push(block);
                work.extend(self.preds[block.index()].iter().copied().filter(|&pred| self.is_reachable(pred)));
            }
        }
        members
    }
}

fn reverse_postorder<T: Iterator<Item = Block>>(count: usize, entry: Block, targets: impl Fn(Block) -> T) -> Vec<Block> {
    let mut seen = vec![false; count];
    let mut order = Vec::new();
    let mut stack = vec![(entry, 0)];
    seen[entry.index()] = true;
    while let Some((block, done)) = stack.pop() {
        // The second target first, so that the first one comes first in the reversed order.
        let targets: Vec<Block> = targets(block).collect();
        match targets.len().checked_sub(done + 1).map(|index| targets[index]) {
            Some(next) => {
                stack.push((block, done + 1));
                if !std::mem::replace(&mut seen[next.index()], true) {
                    stack.push((next, 0));
                }
            }
            None => order.push(block),
        }
    }
    order.reverse();
    order
}

fn dominators(order: &[Block], number: &[usize], preds: &[Vec<Block>]) -> Vec<Option<Block>> {
    let mut idom: Vec<Option<Block>> = vec![None; preds.len()];
    idom[order[0].index()] = Some(order[0]);
    let meet = |idom: &[Option<Block>], mut a: Block, mut b: Block| {
        while a != b {
            while number[a.index()] > number[b.index()] {
                a = idom[a.index()].unwrap_or(order[0]);
            }
            while number[b.index()] > number[a.index()] {
                b = idom[b.index()].unwrap_or(order[0]);
            }
        }
        a
    };
    let mut changed = true;
    while changed {
        changed = false;
        for &block in &order[1..] {
            let known = preds[block.index()].iter().copied().filter(|pred| idom[pred.index()].is_some());
            let new = known.reduce(|a, b| meet(&idom, a, b));
            if new.is_some() && idom[block.index()] != new {
                idom[block.index()] = new;
                changed = true;
            }
        }
    }
    idom
}
