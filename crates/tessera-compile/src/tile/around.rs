//! The loop around a product's loop: a round for each tile of the result, which every role goes through.
//!
//! Roles share what follows from scalars: the counter or other carried scalars, tests that leave the loop, where a tile lies. The role that
//! feeds goes through a copy of the loop with these alone and its own cursors, so that slots go on in order from one tile to the next.
//!
//! ```text
//! for %t in (%bid, %total, %blocks) { %i, %j = ... %t ...; %acc = for ... { product }; store }             the computing role
//! for %t in (%bid, %total, %blocks) iter(%cursor) { %i, %j = ... %t ...; for ... iter { load }; continue }    the feeding role
//! ```
//!
//! Invariant: whether another round comes is known to all roles alike.

use rustc_hash::{FxHashMap, FxHashSet};
use tessera_ir::{Func, Op, OpKind, ScheduleOp, Type, Value};

use super::queue::{copied, mapped};
use super::relation::has_layout;
use super::roles::is_free;
use crate::analysis::exits::{can_leave, loop_exits};
use tessera_ir::Reason;

/// A loop around a product's.
pub(super) struct Around {
    pub(super) op: Op,
    /// What every role does in a round, in order: scalar arithmetic, and tests that leave the loop.
    shared: Vec<Op>,
    /// Positions, among what is carried, of the scalars that every role carries.
    scalars: Vec<usize>,
}

impl Around {
    /// The loop, where all roles can know its rounds; `inside` is what one role alone computes before it.
    pub(super) fn of(func: &Func, op: Op, inside: &FxHashSet<Value>) -> Result<Around, Reason> {
        let at = func.ops[op].span;
        let body = func.ops[op].regions[0];
        let counts = matches!(func.ops[op].kind, OpKind::Schedule(ScheduleOp::For { .. }));
        let (last, ops) = func.blocks[body].ops.split_last().ok_or("the loop around the product has no end")?;
        let tests: Vec<Op> = ops.iter().copied().filter(|&op| is_test(func, op)).collect();
        if loop_exits(func, op).len() != tests.len() + 1 || can_leave(func, op) || counts && !tests.is_empty() {
            return Err(Reason::at("the loop around the product's loop is left from within a round", at));
        }
        if counts && func.ops[op].operands[..3].iter().any(|value| inside.contains(value)) {
            return Err(Reason::at("the outer loop's range is what only the computing role knows", at));
        }
        // Carried scalars are shared as long as nothing shows that one follows from what only one role knows.
        let args = func.blocks[body].args[usize::from(counts)..].to_vec();
        let init = func.ops[op].group(if counts { 3 } else { 0 });
        let mut scalars: Vec<usize> =
            (0..args.len()).filter(|&at| func.ty(args[at]).is_scalar() && !inside.contains(&init[at])).collect();
        loop {
            let own = (0..args.len()).filter(|at| !scalars.contains(at)).map(|at| args[at]);
            let mut unknown: FxHashSet<Value> = own.collect();
            let mut shared = Vec::new();
            for &op in ops {
                let data = &func.ops[op];
                let known = !data.operands.iter().any(|value| unknown.contains(value) || inside.contains(value));
                let scalar = data.regions.is_empty() && is_free(func, op) && !data.results.iter().any(|&v| has_layout(func, v));
                let test = tests.contains(&op);
                if test && !known {
                    return Err(Reason::at("whether another tile comes is what only the computing role knows", data.span));
                }
                if known && (scalar || test) {
                    shared.push(op);
                } else {
                    unknown.extend(&data.results);
                }
            }
            let next = func.ops[*last].group(0);
            let still = |at: &usize| !unknown.contains(&next[*at]) && !inside.contains(&next[*at]);
            if scalars.iter().all(still) {
                return Ok(Around { op, shared, scalars });
            }
            scalars.retain(still);
        }
    }

    /// What only the computing role knows of a round.
    pub(super) fn own(&self, func: &Func) -> Vec<Value> {
        let body = func.ops[self.op].regions[0];
        let (scalars, first) = (&self.scalars, usize::from(self.counts(func)));
        let carried = func.blocks[body].args.iter().skip(first).enumerate().filter(|(at, _)| !scalars.contains(at));
        let others = func.blocks[body].ops.iter().filter(|op| !self.shared.contains(op));
        let results = others.flat_map(|&op| func.ops[op].results.iter().copied());
        carried.map(|(_, &arg)| arg).chain(results).collect()
    }

    fn counts(&self, func: &Func) -> bool {
        matches!(func.ops[self.op].kind, OpKind::Schedule(ScheduleOp::For { .. }))
    }

    /// The loop again for a role that carries values of its own from `starts` on; `work` gets what stands for the round's scalars, and what
    /// is carried, and yields the operations of a round and what it hands to the next.
    pub(super) fn again(
        &self,
        func: &mut Func,
        starts: &[Value],
        work: impl FnOnce(&mut Func, &FxHashMap<Value, Value>, &[Value]) -> (Vec<Op>, Vec<Value>),
    ) -> Op {
        let (data, counts) = (func.ops[self.op].clone(), self.counts(func));
        let (old, body) = (data.regions[0], func.new_block());
        let mut names: FxHashMap<Value, Value> = FxHashMap::default();
        let first = usize::from(counts);
        let repeated = (0..first).chain(self.scalars.iter().map(|at| at + first));
        for arg in repeated.map(|at| func.blocks[old].args[at]).collect::<Vec<_>>() {
            let ty = func.ty(arg).clone();
            names.insert(arg, func.add_arg(body, ty, None));
        }
        let types: Vec<Type> = starts.iter().map(|&start| func.ty(start).clone()).collect();
        let carried: Vec<Value> = types.iter().map(|ty| func.add_arg(body, ty.clone(), None)).collect();
        let mut ops = Vec::new();
        for &op in &self.shared {
            let copy = if is_test(func, op) { left_alone(func, op, &names) } else { copied(func, op, &mut names) };
            ops.push(copy);
        }
        let (work, mut behind) = work(func, &names, &carried);
        ops.extend(work);
        if let Some(&end) = func.blocks[old].ops.last() {
            let next: Vec<Value> = self.scalars.iter().map(|&at| func.ops[end].group(0)[at]).collect();
            behind.splice(0..0, mapped(&names, &next));
        }
        ops.push(func.make_op(ScheduleOp::Continue {}.into(), &[&behind], [], [], data.span));
        func.blocks[body].ops = ops;
        let init: Vec<Value> = self.scalars.iter().map(|&at| data.group(data.segments.len() - 1)[at]).collect();
        let init = [&init[..], starts].concat();
        if counts {
            let groups: [&[Value]; 4] = [&[data.one(0)], &[data.one(1)], &[data.one(2)], &init];
            let types: Vec<Type> = init.iter().map(|&value| func.ty(value).clone()).collect();
            return func.make_op(data.kind, &groups, types, [body], data.span);
        }
        func.make_op(data.kind, &[&init], [], [body], data.span)
    }

    /// What a round of the computing role hands on for what its loop was made to carry, in the same order.
    pub(super) fn hand_on(&self, func: &mut Func, values: &[Value]) {
        if let Some(&end) = func.blocks[func.ops[self.op].regions[0]].ops.last() {
            func.append_operands(end, values);
        }
    }
}

/// An `if` that does nothing but leave the loop on one side.
fn is_test(func: &Func, op: Op) -> bool {
    let data = &func.ops[op];
    let only = |kind: fn(&ScheduleOp) -> bool| {
        let alone = |region: &&tessera_ir::Block| match func.blocks[**region].ops[..] {
            [op] => func.ops[op].kind.schedule().is_some_and(kind),
            _ => false,
        };
        data.regions.iter().filter(alone).count() == 1
    };
    let ifs = matches!(data.kind, OpKind::Schedule(ScheduleOp::If {})) && data.results.is_empty();
    ifs && only(|kind| matches!(kind, ScheduleOp::Break {})) && only(|kind| matches!(kind, ScheduleOp::Yield {}))
}

/// A test that leaves the loop, with no results.
fn left_alone(func: &mut Func, op: Op, names: &FxHashMap<Value, Value>) -> Op {
    let data = func.ops[op].clone();
    let mut regions = Vec::new();
    for &region in &data.regions {
        let block = func.new_block();
        let kinds: Vec<OpKind> = func.blocks[region].ops.iter().map(|&inner| func.ops[inner].kind.clone()).collect();
        for kind in kinds {
            let ends = func.make_op(kind, &[&[]], [], [], data.span);
            func.blocks[block].ops.push(ends);
        }
        regions.push(block);
    }
    let condition = mapped(names, data.group(0));
    func.make_op(data.kind, &[&condition], [], regions, data.span)
}
