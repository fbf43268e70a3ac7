//! What every partition can know, and who stands where.
//!
//! A scalar is known to all where it follows from the function's arguments, block numbers, counters and memory that nobody writes: each
//! partition may compute it for itself. What follows from a tile is known to the one that holds the tile.

use rustc_hash::{FxHashMap, FxHashSet};
use tessera_ir::{Block, Func, Op, OpKind, Reason, ScheduleOp, Value};

use super::is_free;
use crate::tile::relation::has_layout;
use tessera_analysis::exits::{can_leave, loop_exits};

/// Values that only one partition knows.
pub(super) struct Known {
    unknown: FxHashSet<Value>,
}

impl Known {
    /// The greatest set of values that all can know.
    pub(super) fn of(func: &Func) -> Known {
        let mut unknown = FxHashSet::default();
        loop {
            let before = unknown.len();
            visit(func, func.body, &mut unknown);
            if unknown.len() == before {
                return Known { unknown };
            }
        }
    }

    pub(super) fn holds(&self, value: Value) -> bool {
        !self.unknown.contains(&value)
    }
}

fn visit(func: &Func, block: Block, unknown: &mut FxHashSet<Value>) {
    for &op in &func.blocks[block].ops {
        let data = &func.ops[op];
        let follows = data.operands.iter().any(|value| unknown.contains(value));
        if data.regions.is_empty() {
            if follows || !is_free(func, op) || data.results.iter().any(|&result| has_layout(func, result)) {
                unknown.extend(&data.results);
            }
            continue;
        }
        unknown.extend(&data.results);
        let counts = is_counted(func, op);
        if counts || matches!(data.kind, OpKind::Schedule(ScheduleOp::Loop {})) {
            let args = &func.blocks[data.regions[0]].args;
            if counts && data.operands[..3].iter().any(|value| unknown.contains(value)) {
                unknown.insert(args[0]);
            }
            let next: Vec<Op> = loop_exits(func, op).into_iter().filter(|&exit| is_continue(func, exit)).collect();
            for (position, (&arg, start)) in args[usize::from(counts)..].iter().zip(starts(func, op)).enumerate() {
                let handed = next.iter().any(|&exit| unknown.contains(&func.ops[exit].group(0)[position]));
                if handed || unknown.contains(start) || !func.ty(arg).is_scalar() {
                    unknown.insert(arg);
                }
            }
        }
        for &region in &data.regions {
            visit(func, region, unknown);
        }
    }
}

fn is_continue(func: &Func, op: Op) -> bool {
    matches!(func.ops[op].kind, OpKind::Schedule(ScheduleOp::Continue {}))
}

/// A loop that counts.
pub(super) fn is_counted(func: &Func, op: Op) -> bool {
    matches!(func.ops[op].kind, OpKind::Schedule(ScheduleOp::For { .. }))
}

/// What a loop carries when it starts.
pub(super) fn starts(func: &Func, looped: Op) -> &[Value] {
    func.ops[looped].group(if is_counted(func, looped) { 3 } else { 0 })
}

/// An `if` that does nothing but leave the loop on one side.
pub(super) fn is_test(func: &Func, op: Op) -> bool {
    let data = &func.ops[op];
    let only = |kind: fn(&ScheduleOp) -> bool| {
        let alone = |region: &&Block| match func.blocks[**region].ops[..] {
            [op] => func.ops[op].kind.schedule().is_some_and(kind),
            _ => false,
        };
        data.regions.iter().filter(alone).count() == 1
    };
    let ifs = matches!(data.kind, OpKind::Schedule(ScheduleOp::If {})) && data.results.is_empty();
    ifs && only(|kind| matches!(kind, ScheduleOp::Break {})) && only(|kind| matches!(kind, ScheduleOp::Yield {}))
}

/// Where each operation and block stands.
pub(super) struct Places {
    blocks: FxHashMap<Op, Block>,
    holders: FxHashMap<Block, Op>,
}

impl Places {
    pub(super) fn of(func: &Func) -> Places {
        let (mut blocks, mut holders) = (FxHashMap::default(), FxHashMap::default());
        for block in func.linked_blocks() {
            for &op in &func.blocks[block].ops {
                blocks.insert(op, block);
                holders.extend(func.ops[op].regions.iter().map(|&region| (region, op)));
            }
        }
        Places { blocks, holders }
    }

    /// The block that an operation stands in; none where nothing links it.
    pub(super) fn block(&self, op: Op) -> Option<Block> {
        self.blocks.get(&op).copied()
    }

    /// The operation whose region a block is; none for a function's body.
    pub(super) fn holder(&self, block: Block) -> Option<Op> {
        self.holders.get(&block).copied()
    }

    /// The operation of `block` that holds another one, or is it.
    pub(super) fn within(&self, block: Block, op: Op) -> Option<Op> {
        let mut op = op;
        loop {
            let home = self.block(op)?;
            if home == block {
                return Some(op);
            }
            op = self.holder(home)?;
        }
    }

    /// The loops around a block, the innermost first.
    ///
    /// # Errors
    /// A branch around it, and a loop that is left in a way that not all partitions can follow.
    pub(super) fn loops(&self, func: &Func, block: Block) -> Result<Vec<Op>, Reason> {
        let mut found = Vec::new();
        let mut block = block;
        while let Some(holder) = self.holder(block) {
            let at = func.ops[holder].span;
            let exits = loop_exits(func, holder).len();
            let (left, whole) = match func.ops[holder].kind {
                OpKind::Schedule(ScheduleOp::For { .. }) => (can_leave(func, holder), exits == 1),
                OpKind::Schedule(ScheduleOp::Loop {}) => {
                    let tests = func.blocks[block].ops.iter().filter(|&&op| is_test(func, op)).count();
                    (can_leave(func, holder), exits == tests + 1)
                }
                _ => return Err(Reason::at("what a ring holds is loaded in a branch", at)),
            };
            if left || !whole {
                let which = if found.is_empty() { "the product's loop" } else { "the loop around the product's loop" };
                return Err(Reason::at(format!("{which} is left from within a round"), at));
            }
            found.push(holder);
            block = self.blocks[&holder];
        }
        Ok(found)
    }
}
