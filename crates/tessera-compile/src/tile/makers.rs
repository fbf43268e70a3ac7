//! Those who fill the slots that a product is multiplied from: the copy engine alone, or the copy engine and threads behind it.
//!
//! ```text
//! for the first rounds { acquire %raw; tma_load; commit %raw }
//! for ... { wait %raw; acquire %made; copy_shared; fence_async; commit %made; release %raw; if another round { acquire %raw; ... } }
//! ```
//!
//! Invariant: who waits for the tensor cores to release a slot has filled all slots before it, so that none waits for itself.

use rustc_hash::FxHashMap;
use tessera_ir::attrs::{Overflow, Predicate, Signedness};
use tessera_ir::{Func, Op, OpKind, ScheduleOp, TileOp, Type, Value};
use tessera_types::{Arch, DType};

use super::around::Around;
use super::feed::Way;
use super::queue::{Queue, copied, mapped, over, range};
use super::roles::{Candidate, RAW_STAGES};

/// The barrier of the threads that compute factors: the last one, since roles take theirs from the first on.
const MAKERS_BARRIER: u32 = 15;

/// The rings of a recipe. A factor's slot is a buffer of one of the first two, a load's of the first or the last.
pub(super) struct Rings {
    /// From the copy engine to the tensor cores.
    pub(super) brought: Option<Queue>,
    /// From threads to the tensor cores.
    pub(super) made: Option<Queue>,
    /// From the copy engine to threads.
    pub(super) raw: Option<Queue>,
}

impl Rings {
    /// The rings that the copy engine feeds, the one first that is never waited for long, and whether the tensor cores read them.
    fn fed(&self) -> impl Iterator<Item = (&Queue, bool)> {
        let all = [(&self.raw, false), (&self.brought, true)];
        all.into_iter().filter_map(|(queue, direct)| queue.as_ref().map(|queue| (queue, direct)))
    }
}

/// How many rounds the copies for a ring run ahead. What threads wait for comes as early as its ring allows; what the tensor cores wait
/// for (`direct`) one round early, since to bring it earlier would be to wait for them.
fn rounds_ahead(direct: bool) -> u32 {
    if direct { 1 } else { RAW_STAGES }
}

/// What stands for values of the original function.
type Names = FxHashMap<Value, Value>;

/// The work of the role.
pub(super) struct Feeding<'a> {
    pub(super) candidate: &'a Candidate,
    pub(super) around: Option<&'a Around>,
    pub(super) rings: &'a Rings,
    /// Buffers for factors before they are turned.
    pub(super) before_turn: &'a [Value],
}

impl Feeding<'_> {
    /// The role's operations.
    pub(super) fn role(&self, func: &mut Func) -> Vec<Op> {
        let starts: Vec<Value> = match self.rings.made {
            Some(_) => self.waiting().collect(),
            None => self.rings.fed().map(|(queue, _)| queue.start).collect(),
        };
        match self.around {
            None => self.loops(func, &Names::default(), &starts).0,
            Some(around) => vec![around.again(func, &starts, |func, names, cursors| self.loops(func, names, cursors))],
        }
    }

    /// The first cursors of the threads that fill slots: of the ring that they fill, and of the one that they read.
    fn waiting(&self) -> impl Iterator<Item = Value> {
        let made = self.rings.made.as_ref();
        made.into_iter().chain(made.and(self.rings.raw.as_ref())).map(|queue| queue.start)
    }

    /// The loops over the product's rounds from cursors on, and the cursors behind them.
    fn loops(&self, func: &mut Func, names: &Names, cursors: &[Value]) -> (Vec<Op>, Vec<Value>) {
        let rounds = range(func, self.candidate.looped).map(|value| names.get(&value).copied().unwrap_or(value));
        if let Some(made) = &self.rings.made {
            return self.maker(func, made, (names, rounds), cursors);
        }
        let looped = over(func, self.candidate.looped, rounds, cursors, |func, counter, cursors| {
            let mut ops = Vec::new();
            let names = self.scalars(func, names, counter, &mut ops);
            let mut next = Vec::new();
            for (fed, &cursor) in self.rings.fed().zip(cursors) {
                next.push(self.feed(func, fed, (&names, cursor), &mut ops));
            }
            (ops, next)
        });
        (vec![looped], func.ops[looped].results.to_vec())
    }

    /// A round's copies into a ring; the cursor behind it.
    fn feed(
        &self,
        func: &mut Func,
        (queue, direct): (&Queue, bool),
        (names, cursor): (&Names, Value),
        ops: &mut Vec<Op>,
    ) -> Value {
        queue.at(func, TileOp::Acquire {}, cursor, ops);
        let factors = self.candidate.factors.iter().filter(|factor| (factor.way == Way::Brought) == direct);
        let loads = factors.flat_map(|factor| factor.loads.iter().filter(|(_, buffer)| buffer.is_some()));
        for (position, &(load, _)) in loads.enumerate() {
            let data = func.ops[load].clone();
            let (view, index) = (mapped(names, data.group(0))[0], mapped(names, data.group(1)));
            queue.load(func, (view, &index), (cursor, position), ops);
        }
        queue.at(func, TileOp::Commit {}, cursor, ops);
        queue.next(func, cursor, ops)
    }

    /// The scalar arithmetic of the loop's body that says where to load, again; what stands for its values.
    fn scalars(&self, func: &mut Func, names: &Names, counter: Value, out: &mut Vec<Op>) -> Names {
        let body = func.ops[self.candidate.looped].regions[0];
        let mut names = names.clone();
        names.insert(func.blocks[body].args[0], counter);
        for &op in &self.candidate.scalars {
            let copy = copied(func, op, &mut names);
            out.push(copy);
        }
        names
    }

    /// The loop that fills slots from what the copy engine has brought, or from memory. The copies run ahead: some rounds before the loop,
    /// then one a round. The rings that are filled together have equally many slots, so that a cursor some rounds further is a copy's own.
    fn maker(
        &self,
        func: &mut Func,
        made: &Queue,
        (names, [lower, upper, step]): (&Names, [Value; 3]),
        starts: &[Value],
    ) -> (Vec<Op>, Vec<Value>) {
        let (looped, span) = (self.candidate.looped, func.ops[self.candidate.looped].span);
        let unsigned = matches!(func.ops[looped].kind, OpKind::Schedule(ScheduleOp::For { unsigned: true, .. }));
        let signedness = if unsigned { Signedness::Unsigned } else { Signedness::Signed };
        let overflow = Overflow::Wraps;
        let ty = func.ty(step).clone();
        let pair = |func: &mut Func, kind: ScheduleOp, ty: &Type, a: Value, b: Value, ops: &mut Vec<Op>| {
            let op = func.make_op(kind.into(), &[&[a], &[b]], [ty.clone()], [], span);
            ops.push(op);
            func.ops[op].result()
        };
        let mut ops = Vec::new();
        let mut distances = Vec::new();
        for (queue, direct) in self.rings.fed() {
            let mut distance = step;
            for _ in 1..rounds_ahead(direct) {
                distance = pair(func, ScheduleOp::AddI { overflow }, &ty, distance, step, &mut ops);
            }
            let end = pair(func, ScheduleOp::AddI { overflow }, &ty, lower, distance, &mut ops);
            let end = pair(func, ScheduleOp::MinI { signedness }, &ty, end, upper, &mut ops);
            let first = over(func, looped, [lower, end, step], &[starts[usize::from(!direct)]], |func, counter, cursors| {
                let mut ops = Vec::new();
                let names = self.scalars(func, names, counter, &mut ops);
                let next = self.feed(func, (queue, direct), (&names, cursors[0]), &mut ops);
                (ops, vec![next])
            });
            ops.push(first);
            distances.push(distance);
        }
        let all = over(func, looped, [lower, upper, step], starts, |func, counter, cursors| {
            let mut ops = Vec::new();
            let raw = self.rings.raw.as_ref().zip(cursors.get(1).copied());
            self.made_round(func, (made, raw), names, (counter, cursors[0]), &mut ops);
            let mut next = vec![made.next(func, cursors[0], &mut ops)];
            if let Some((raw, cursor)) = raw {
                raw.at(func, TileOp::Release {}, cursor, &mut ops);
                next.push(raw.next(func, cursor, &mut ops));
            }
            for ((queue, direct), &distance) in self.rings.fed().zip(&distances) {
                let later = pair(func, ScheduleOp::AddI { overflow }, &ty, counter, distance, &mut ops);
                let kind = ScheduleOp::CmpI { predicate: Predicate::Lt, signedness };
                let more = pair(func, kind, &Type::scalar(DType::B1), later, upper, &mut ops);
                let mut inside = Vec::new();
                let names = self.scalars(func, names, later, &mut inside);
                let mut cursor = cursors[usize::from(!direct)];
                for _ in 0..rounds_ahead(direct) {
                    cursor = queue.next(func, cursor, &mut inside);
                }
                self.feed(func, (queue, direct), (&names, cursor), &mut inside);
                let regions = [inside, Vec::new()].map(|mut ops| {
                    ops.push(func.make_op(ScheduleOp::Yield {}.into(), &[&[]], [], [], span));
                    let block = func.new_block();
                    func.blocks[block].ops = ops;
                    block
                });
                ops.push(func.make_op(ScheduleOp::If {}.into(), &[&[more]], [], regions, span));
            }
            (ops, next)
        });
        ops.push(all);
        (ops, func.ops[all].results.to_vec())
    }

    /// A round of the threads that fill slots.
    fn made_round(
        &self,
        func: &mut Func,
        (made, raw): (&Queue, Option<(&Queue, Value)>),
        names: &Names,
        (counter, cursor): (Value, Value),
        ops: &mut Vec<Op>,
    ) {
        let span = func.ops[self.candidate.looped].span;
        let threads = Arch::WARP * self.candidate.feeders(func);
        let mut names = self.scalars(func, names, counter, ops);
        if let Some((raw, cursor)) = raw {
            raw.at(func, TileOp::Wait {}, cursor, ops);
        }
        made.at(func, TileOp::Acquire {}, cursor, ops);
        let (mut brought, mut waiting) = (0, self.before_turn.iter());
        for (position, factor) in self.candidate.made().enumerate() {
            let mut buffers = Vec::new();
            for (_, buffer) in &factor.loads {
                let filled = raw.filter(|_| buffer.is_some());
                buffers.push(filled.map(|(raw, cursor)| raw.slot(func, cursor, brought, ops)));
                brought += usize::from(buffer.is_some());
            }
            let target = made.slot(func, cursor, position, ops);
            let copy =
                |func: &mut Func, from: Value| func.make_op(TileOp::CopyShared {}.into(), &[&[from], &[target]], [], [], span);
            if let (Way::Turned, Some(&Some(buffer))) = (factor.way, buffers.first()) {
                let source = factor.looked_at(func, buffer, span, ops);
                ops.push(copy(func, source));
                continue;
            }
            let value = factor.computed(func, &buffers, &mut names, ops);
            let between = factor.before_turn().and_then(|_| waiting.next().copied());
            ops.push(func.make_op(
                TileOp::StoreShared { matrices: false }.into(),
                &[&[value], &[between.unwrap_or(target)]],
                [],
                [],
                span,
            ));
            if let Some(between) = between {
                let kind = TileOp::NamedBarrier { id: MAKERS_BARRIER, threads };
                ops.push(func.make_op(kind.clone().into(), &[], [], [], span));
                ops.push(copy(func, between));
                ops.push(func.make_op(kind.into(), &[], [], [], span));
            }
        }
        ops.push(func.make_op(TileOp::FenceAsync {}.into(), &[], [], [], span));
        made.at(func, TileOp::Commit {}, cursor, ops);
    }
}
