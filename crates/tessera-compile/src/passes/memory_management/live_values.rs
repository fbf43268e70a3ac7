//! Which values are still wanted behind each operation of a Tile function: liveness backwards over its structure, loops until nothing
//! changes.
//!
//! Invariant: a value is held over an operation when some way from there leads to a use of it without coming through its definition.

use rustc_hash::FxHashMap;
use tessera_ir::{Block, EntityId, Func, Op, OpKind, ScheduleOp, Value};

use tessera_analysis::set::Set;

/// Wanted values by operation.
pub(super) struct LiveValues {
    behind: Vec<Set>,
    /// What each loop's rounds start with, besides what they hand to each other.
    heads: FxHashMap<Op, Set>,
}

/// Which of the values that are held over an operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Held {
    /// All.
    All,
    /// Those that it does not use.
    Bystanders,
}

/// What is wanted where control leaves a region.
#[derive(Clone, Default)]
struct Exits {
    next: Set,
    out: Set,
}

impl LiveValues {
    /// Analyses a function.
    pub(super) fn of(func: &Func) -> LiveValues {
        let mut live = LiveValues { behind: vec![Set::default(); func.ops.len()], heads: FxHashMap::default() };
        live.block(func, func.body, &Exits::default(), Set::default());
        live
    }

    /// A value is there when an operation runs, and still wanted behind it.
    pub(super) fn is_held(&self, op: Op, value: Value) -> bool {
        self.behind[op.index()].contains(value.index())
    }

    /// The values that are held over an operation: all of them, or those which it has nothing to do with.
    pub(super) fn held_over(&self, func: &Func, op: Op, which: Held) -> Vec<Value> {
        let data = &func.ops[op];
        let is_meant =
            |value: &Value| !data.results.contains(value) && (which == Held::All || !data.used().any(|used| used == *value));
        self.behind[op.index()].iter().map(Value::new).filter(is_meant).collect()
    }

    /// The values that stay while a loop runs: what its rounds and what is behind it want from before.
    pub(super) fn around(&self, op: Op) -> Vec<Value> {
        self.heads.get(&op).map_or(Vec::new(), |head| head.iter().map(Value::new).collect())
    }

    fn block(&mut self, func: &Func, block: Block, exits: &Exits, end: Set) -> Set {
        let mut live = end;
        for &op in func.blocks[block].ops.iter().rev() {
            live = self.before(func, op, exits, live);
        }
        for &arg in &func.blocks[block].args {
            live.remove(arg.index());
        }
        live
    }

    fn before(&mut self, func: &Func, op: Op, exits: &Exits, mut live: Set) -> Set {
        let data = &func.ops[op];
        let end = match &data.kind {
            OpKind::Schedule(ScheduleOp::Continue {}) => Some(exits.next.clone()),
            OpKind::Schedule(ScheduleOp::Break {}) => Some(exits.out.clone()),
            OpKind::Schedule(ScheduleOp::Return {}) => Some(Set::default()),
            _ => None,
        };
        if let Some(end) = end {
            live = end;
        }
        self.behind[op.index()].extend(&live);
        for result in &data.results {
            live.remove(result.index());
        }
        match &data.kind {
            OpKind::Schedule(ScheduleOp::For { .. } | ScheduleOp::Loop {}) => {
                let mut head = live.clone();
                loop {
                    let inner = Exits { next: head.clone(), out: live.clone() };
                    let inside = self.block(func, data.regions[0], &inner, head.clone());
                    if !head.extend(&inside) {
                        break;
                    }
                }
                self.heads.insert(op, head.clone());
                live = head;
                // What goes round stays.
                self.behind[op.index()].extend(&live);
            }
            _ => {
                let behind = live.clone();
                for &region in &data.regions {
                    let inside = self.block(func, region, exits, behind.clone());
                    live.extend(&inside);
                }
            }
        }
        for used in data.used() {
            live.insert(used.index());
        }
        live
    }
}
