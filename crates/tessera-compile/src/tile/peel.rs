//! Counted loops whose first round stands before them, and whose last one's end stands behind: what software pipelines are rearranged into.
//!
//! ```text
//! if lower < upper { first round; for from lower + step { the others }; the end; yield } else { yield what the loop began with }
//! ```

use rustc_hash::FxHashMap;
use tessera_ir::attrs::{Overflow, Predicate, Signedness};
use tessera_ir::{Block, Const, Func, Op, OpData, OpKind, ScheduleOp, Type, Value};
use tessera_types::DType;

/// A loop that is taken apart.
pub(super) struct Peeled {
    looped: OpData,
    /// What stands in the loop's place where there is a round.
    ops: Vec<Op>,
    /// What stands there where there is none.
    pub(super) otherwise: Vec<Op>,
}

/// The rounds behind the first one.
pub(super) struct Others {
    body: Block,
    starts: Vec<Value>,
    /// What they carry.
    pub(super) carried: Vec<Value>,
    /// What the old loop's arguments are in them.
    pub(super) map: FxHashMap<Value, Value>,
}

/// A loop that counts up by a constant: one whose second round is known.
pub(super) fn counts(func: &Func, looped: Op) -> bool {
    let data = &func.ops[looped];
    matches!(data.kind, OpKind::Schedule(ScheduleOp::For { unsigned: false, .. }))
        && func.constant(data.one(2)).and_then(Const::as_int).is_some_and(|step| step > 0)
}

impl Peeled {
    /// Takes a loop that [`counts`] apart; also what its arguments are in the first round.
    pub(super) fn of(func: &Func, looped: Op) -> (Peeled, FxHashMap<Value, Value>) {
        let looped = func.ops[looped].clone();
        let args = &func.blocks[looped.regions[0]].args;
        let map = args.iter().copied().zip(std::iter::once(looped.one(0)).chain(looped.group(3).iter().copied())).collect();
        (Peeled { looped, ops: Vec::new(), otherwise: Vec::new() }, map)
    }

    /// The operations so far, to which others may be added.
    pub(super) fn ops(&mut self) -> &mut Vec<Op> {
        &mut self.ops
    }

    /// Begins the other rounds, with what the first one hands on.
    pub(super) fn others(&mut self, func: &mut Func, starts: Vec<Value>) -> Others {
        let args = func.blocks[self.looped.regions[0]].args.clone();
        let body = func.new_block();
        let counter = func.ty(args[0]).clone();
        let counter = func.add_arg(body, counter, None);
        let carried: Vec<Value> = starts
            .iter()
            .map(|&start| {
                let ty = func.ty(start).clone();
                func.add_arg(body, ty, None)
            })
            .collect();
        let map = args.iter().copied().zip(std::iter::once(counter).chain(carried.iter().copied())).collect();
        Others { body, starts, carried, map }
    }

    /// The loop over the other rounds: what each of them does and hands on. What the last one hands on.
    pub(super) fn rest(&mut self, func: &mut Func, others: Others, mut ops: Vec<Op>, next: &[Value]) -> Vec<Value> {
        let (lower, upper, step) = (self.looped.one(0), self.looped.one(1), self.looped.one(2));
        let span = self.looped.span;
        ops.push(func.make_op(ScheduleOp::Continue {}.into(), &[next], [], [], span));
        func.blocks[others.body].ops = ops;
        let kind = ScheduleOp::AddI { overflow: Overflow::Wraps };
        let second = func.make_op(kind.into(), &[&[lower], &[step]], [func.ty(lower).clone()], [], span);
        let from = func.ops[second].result();
        let types: Vec<Type> = others.starts.iter().map(|&start| func.ty(start).clone()).collect();
        let groups: [&[Value]; 4] = [&[from], &[upper], &[step], &others.starts];
        let rest = func.make_op(self.looped.kind.clone(), &groups, types, [others.body], span);
        self.ops.extend([second, rest]);
        func.ops[rest].results.to_vec()
    }

    /// Puts all of it under the condition that there is a round; what stands in the loop's place.
    pub(super) fn done(mut self, func: &mut Func, yielded: &[Value]) -> Vec<Op> {
        let looped = self.looped;
        let span = looped.span;
        self.ops.push(func.make_op(ScheduleOp::Yield {}.into(), &[yielded], [], [], span));
        let (then, otherwise) = (func.new_block(), func.new_block());
        func.blocks[then].ops = self.ops;
        let end = func.make_op(ScheduleOp::Yield {}.into(), &[looped.group(3)], [], [], span);
        self.otherwise.push(end);
        func.blocks[otherwise].ops = self.otherwise;
        let kind = ScheduleOp::CmpI { predicate: Predicate::Lt, signedness: Signedness::Signed };
        let bounds: [&[Value]; 2] = [&[looped.one(0)], &[looped.one(1)]];
        let any = func.make_op(kind.into(), &bounds, [Type::scalar(DType::B1)], [], span);
        let condition = func.ops[any].result();
        let types: Vec<Type> = looped.results.iter().map(|&result| func.ty(result).clone()).collect();
        let made = func.make_op(ScheduleOp::If {}.into(), &[&[condition]], types, [then, otherwise], span);
        let new = func.ops[made].results.iter().copied();
        let replaced: FxHashMap<Value, Value> = looped.results.iter().copied().zip(new).collect();
        func.replace_uses(|value| *replaced.get(&value).unwrap_or(&value));
        vec![any, made]
    }
}
