//! `dce`: removes what nobody can see: operations without live results and without effects, and values that loops and
//! conditions carry for nobody.
//!
//! Liveness is found over the whole function first, so that a value that a loop only hands to itself is dead. A load whose tile is
//! dead goes too; who waited for it waits for what it waited for.

use rustc_hash::FxHashMap;
use smallvec::SmallVec;
use tessera_ir::{Block, Changed, Def, Effects, EntityId, Func, Op, OpKind, Pass, PassCx, ScheduleOp, Type, Value};

use super::{Step, make, rewrite};
use tessera_analysis::exits::{can_leave, loop_exits};
use tessera_analysis::uses::Uses;

/// Dead-code elimination.
pub(crate) const PASS: Pass =
    Pass { name: "dce", doc: "Removes operations whose results nobody uses, and values that loops carry for nobody.", run };

fn run(func: &mut Func, _: &mut PassCx<'_>) -> Changed {
    drop_dead(func)
}

/// Removes what nobody can see.
pub(crate) fn drop_dead(func: &mut Func) -> Changed {
    let bypassed = bypass_dead_loads(func);
    let ops = func.linked_ops();
    let mut owners: FxHashMap<Block, Op> = FxHashMap::default();
    let mut parents: Vec<Option<Op>> = vec![None; func.ops.len()];
    for &owner in &ops {
        for &region in &func.ops[owner].regions {
            owners.insert(region, owner);
            for &op in &func.blocks[region].ops {
                parents[op.index()] = Some(owner);
            }
        }
    }
    let (values, live) = (vec![false; func.values.len()], vec![false; func.ops.len()]);
    let mut liveness = Liveness { func, owners, parents, values, ops: live, work: Vec::new() };
    for op in ops {
        if is_root(liveness.func, op) {
            liveness.op(op);
        }
    }
    liveness.solve();
    let Liveness { values, ops, .. } = liveness;
    let mut changed = bypassed.0;
    sweep(func, func.body, &values, &ops, &mut changed);
    Changed(changed)
}

/// What is seen whoever uses its results.
fn is_root(func: &Func, op: Op) -> bool {
    let data = &func.ops[op];
    match data.row().effects {
        Effects::Write => !matches!(data.kind, OpKind::Schedule(ScheduleOp::Alloca { .. })),
        Effects::Observable => true,
        Effects::Regions => matches!(data.kind, OpKind::Schedule(ScheduleOp::Loop {})) || can_leave(func, op),
        Effects::Pure | Effects::MayTrap | Effects::Read | Effects::Terminator => false,
    }
}

/// A load with a dead tile only passes its token on.
fn bypass_dead_loads(func: &mut Func) -> Changed {
    let uses = Uses::of(func);
    rewrite(func, |func, op, out| {
        let data = &func.ops[op];
        let waits = match &data.kind {
            OpKind::Schedule(ScheduleOp::LoadViewTko { .. }) => data.optional(2),
            OpKind::Schedule(ScheduleOp::LoadPtrTko { .. }) => data.optional(3),
            _ => return Step::Keep,
        };
        let (tile, token) = (data.results[0], data.results[1]);
        if uses.count(tile) > 0 || uses.count(token) == 0 {
            return Step::Keep;
        }
        let token = match waits {
            Some(token) => token,
            None => make(func, op, ScheduleOp::MakeToken {}, &[], Type::Token, out),
        };
        Step::Replace(SmallVec::from_slice(&[tile, token]))
    })
}

struct Liveness<'f> {
    func: &'f Func,
    owners: FxHashMap<Block, Op>,
    parents: Vec<Option<Op>>,
    values: Vec<bool>,
    ops: Vec<bool>,
    work: Vec<Value>,
}

impl Liveness<'_> {
    fn value(&mut self, value: Value) {
        if !std::mem::replace(&mut self.values[value.index()], true) {
            self.work.push(value);
        }
    }

    /// The operation runs: what decides how is live, and so is what it stands in. What loops and conditions pass on is live
    /// only where somebody looks at it.
    fn op(&mut self, op: Op) {
        if std::mem::replace(&mut self.ops[op.index()], true) {
            return;
        }
        let data = &self.func.ops[op];
        let decisive = match &data.kind {
            OpKind::Schedule(ScheduleOp::For { .. }) => 3,
            OpKind::Schedule(ScheduleOp::If {}) => 1,
            OpKind::Schedule(ScheduleOp::Loop {}) => 0,
            _ => data.operands.len(),
        };
        data.operands[..decisive].iter().chain(&data.through).for_each(|&used| self.value(used));
        if data.row().effects != Effects::Regions {
            // The region of a reduction is part of what it computes.
            for &inner in data.regions.iter().flat_map(|&region| &self.func.blocks[region].ops) {
                self.op(inner);
            }
        }
        if let Some(parent) = self.parents[op.index()] {
            self.op(parent);
        }
    }

    fn solve(&mut self) {
        while let Some(value) = self.work.pop() {
            match self.func.values[value].def {
                Def::Result(op, position) => self.result(op, position as usize),
                Def::Argument(block, position) => {
                    if let Some(&owner) = self.owners.get(&block) {
                        self.argument(owner, position as usize);
                    }
                }
            }
        }
    }

    fn result(&mut self, op: Op, position: usize) {
        self.op(op);
        let data = &self.func.ops[op];
        match &data.kind {
            OpKind::Schedule(ScheduleOp::For { .. }) => self.carried(op, 3, position),
            OpKind::Schedule(ScheduleOp::Loop {}) => self.passed(op, position, |kind| matches!(kind, ScheduleOp::Break {})),
            OpKind::Schedule(ScheduleOp::If {}) => {
                for &region in &data.regions {
                    if let Some(&last) = self.func.blocks[region].ops.last()
                        && matches!(self.func.ops[last].kind, OpKind::Schedule(ScheduleOp::Yield {}))
                    {
                        self.value(self.func.ops[last].operands[position]);
                    }
                }
            }
            _ => {}
        }
    }

    fn argument(&mut self, owner: Op, position: usize) {
        self.op(owner);
        match &self.func.ops[owner].kind {
            OpKind::Schedule(ScheduleOp::For { .. }) if position > 0 => self.carried(owner, 3, position - 1),
            OpKind::Schedule(ScheduleOp::Loop {}) => self.carried(owner, 0, position),
            _ => {}
        }
    }

    /// The value that a loop carries at a position: where it starts and what every round passes on.
    fn carried(&mut self, op: Op, group: usize, position: usize) {
        self.value(self.func.ops[op].group(group)[position]);
        self.passed(op, position, |kind| matches!(kind, ScheduleOp::Continue {}));
    }

    fn passed(&mut self, op: Op, position: usize, wanted: impl Fn(&ScheduleOp) -> bool) {
        for exit in loop_exits(self.func, op) {
            if self.func.ops[exit].kind.schedule().is_some_and(&wanted) {
                self.value(self.func.ops[exit].operands[position]);
            }
        }
    }
}

fn sweep(func: &mut Func, block: Block, values: &[bool], live: &[bool], changed: &mut bool) {
    let ops = std::mem::take(&mut func.blocks[block].ops);
    let kept: Vec<Op> =
        ops.iter().copied().filter(|op| live[op.index()] || func.ops[*op].row().effects == Effects::Terminator).collect();
    *changed |= kept.len() != ops.len();
    for &op in &kept {
        let is_live = |value: &Value| values[value.index()];
        match &func.ops[op].kind {
            OpKind::Schedule(ScheduleOp::For { .. }) => {
                let args = &func.blocks[func.ops[op].regions[0]].args[1..];
                let keep: Vec<bool> = func.ops[op].results.iter().zip(args).map(|(a, b)| is_live(a) || is_live(b)).collect();
                *changed |= keep.contains(&false);
                retain_exits(func, op, |_| &keep);
                retain_operands(func, op, 3, &keep);
                retain_results(func, op, &keep);
                retain_args(func, op, &keep, 1);
            }
            OpKind::Schedule(ScheduleOp::Loop {}) => {
                let results: Vec<bool> = func.ops[op].results.iter().map(is_live).collect();
                let args: Vec<bool> = func.blocks[func.ops[op].regions[0]].args.iter().map(is_live).collect();
                *changed |= results.contains(&false) || args.contains(&false);
                retain_exits(func, op, |kind| if matches!(kind, ScheduleOp::Break {}) { &results } else { &args });
                retain_operands(func, op, 0, &args);
                retain_results(func, op, &results);
                retain_args(func, op, &args, 0);
            }
            OpKind::Schedule(ScheduleOp::If {}) => {
                let keep: Vec<bool> = func.ops[op].results.iter().map(is_live).collect();
                *changed |= keep.contains(&false);
                for region in func.ops[op].regions.clone() {
                    if let Some(&last) = func.blocks[region].ops.last()
                        && matches!(func.ops[last].kind, OpKind::Schedule(ScheduleOp::Yield {}))
                    {
                        retain_operands(func, last, 0, &keep);
                    }
                }
                retain_results(func, op, &keep);
            }
            _ => {}
        }
        for region in func.ops[op].regions.clone() {
            sweep(func, region, values, live, changed);
        }
    }
    func.blocks[block].ops = kept;
}

fn retain_exits<'k>(func: &mut Func, op: Op, keep: impl Fn(&ScheduleOp) -> &'k [bool]) {
    for exit in loop_exits(func, op) {
        if let Some(keep) = func.ops[exit].kind.schedule().map(&keep) {
            retain_operands(func, exit, 0, keep);
        }
    }
}

/// Keeps the marked values of the last declared operand, which is variadic and starts after `before` single ones.
fn retain_operands(func: &mut Func, op: Op, before: usize, keep: &[bool]) {
    let data = &mut func.ops[op];
    let mut position = 0;
    data.operands.retain(|_| {
        let kept = position < before || keep[position - before];
        position += 1;
        kept
    });
    if let Some(last) = data.segments.last_mut() {
        *last = (data.operands.len() - before) as u16;
    }
}

fn retain_results(func: &mut Func, op: Op, keep: &[bool]) {
    let results = std::mem::take(&mut func.ops[op].results);
    let kept: SmallVec<[Value; 2]> = results.iter().zip(keep).filter(|(_, keep)| **keep).map(|(&value, _)| value).collect();
    for (position, &value) in kept.iter().enumerate() {
        func.values[value].def = Def::Result(op, position as u32);
    }
    func.ops[op].results = kept;
}

fn retain_args(func: &mut Func, op: Op, keep: &[bool], before: usize) {
    let block = func.ops[op].regions[0];
    let args = std::mem::take(&mut func.blocks[block].args);
    let kept: SmallVec<[Value; 4]> =
        args.iter().enumerate().filter(|(i, _)| *i < before || keep[i - before]).map(|(_, &value)| value).collect();
    for (position, &value) in kept.iter().enumerate() {
        func.values[value].def = Def::Argument(block, position as u32);
    }
    func.blocks[block].args = kept;
}
