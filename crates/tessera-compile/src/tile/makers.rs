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
use tessera_ir::{Block, Effects, Func, Op, OpKind, ScheduleOp, TileOp, Type, Value};
use tessera_types::{Arch, DType};

use super::feed::Way;
use super::queue::{Queue, copied, mapped, over, over_same_range, range};
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

/// The loop that has the copy engine fill slots: the loop again, with loads as copies.
pub(super) fn feeder(func: &mut Func, candidate: &Candidate, rings: &Rings) -> Op {
    let starts: Vec<Value> = rings.fed().map(|(queue, _)| queue.start).collect();
    let body = func.ops[candidate.looped].regions[0];
    over_same_range(func, candidate.looped, &starts, |func, counter, cursors| {
        let mut ops = Vec::new();
        let map = scalars(func, candidate, body, counter, &mut ops);
        let mut next = Vec::new();
        for (fed, &cursor) in rings.fed().zip(cursors) {
            next.push(feed(func, candidate, fed, (&map, cursor), &mut ops));
        }
        (ops, next)
    })
}

/// A round's copies into a ring; the cursor behind it.
fn feed(
    func: &mut Func,
    candidate: &Candidate,
    (queue, direct): (&Queue, bool),
    (map, cursor): (&FxHashMap<Value, Value>, Value),
    ops: &mut Vec<Op>,
) -> Value {
    queue.at(func, TileOp::Acquire {}, cursor, ops);
    let factors = candidate.factors.iter().filter(|factor| (factor.way == Way::Brought) == direct);
    let loads = factors.flat_map(|factor| factor.loads.iter().filter(|(_, buffer)| buffer.is_some()));
    for (position, &(load, _)) in loads.enumerate() {
        let data = func.ops[load].clone();
        let index = mapped(map, data.group(1));
        queue.load(func, (data.one(0), &index), (cursor, position), ops);
    }
    queue.at(func, TileOp::Commit {}, cursor, ops);
    queue.next(func, cursor, ops)
}

/// The scalar arithmetic of the loop's body again; what stands for its values.
fn scalars(func: &mut Func, candidate: &Candidate, body: Block, counter: Value, out: &mut Vec<Op>) -> FxHashMap<Value, Value> {
    let mut map = FxHashMap::default();
    map.insert(func.blocks[body].args[0], counter);
    for op in func.blocks[body].ops.clone() {
        let ends = matches!(func.ops[op].row().effects, Effects::Terminator);
        if op != candidate.product && !ends && !candidate.computes(op) {
            let copy = copied(func, op, &mut map);
            out.push(copy);
        }
    }
    map
}

/// The loop that fills slots from what the copy engine has brought, or from memory. The copies run ahead: some rounds before the loop,
/// then one a round. What threads wait for comes as early as its ring allows; what the tensor cores wait for one round early, since
/// to bring it earlier would be to wait for them.
pub(super) fn maker(func: &mut Func, candidate: &Candidate, rings: &Rings, made: &Queue, before_turn: &[Value]) -> Vec<Op> {
    let (looped, span) = (candidate.looped, func.ops[candidate.looped].span);
    let body = func.ops[looped].regions[0];
    let [lower, upper, step] = range(func, looped);
    let OpKind::Schedule(ScheduleOp::For { unsigned }) = func.ops[looped].kind else { return Vec::new() };
    let signedness = if unsigned { Signedness::Unsigned } else { Signedness::Signed };
    let overflow = Overflow::Wraps;
    let ty = func.ty(step).clone();
    let pair = |func: &mut Func, kind: ScheduleOp, ty: &Type, a: Value, b: Value, ops: &mut Vec<Op>| {
        let op = func.make_op(kind.into(), &[&[a], &[b]], [ty.clone()], [], span);
        ops.push(op);
        func.ops[op].result()
    };
    let mut ops = Vec::new();
    let mut starts: Vec<Value> = std::iter::once(made.start).chain(rings.raw.as_ref().map(|raw| raw.start)).collect();
    let own = starts.len();
    let mut distances = Vec::new();
    for (queue, direct) in rings.fed() {
        let ahead = if direct { 1 } else { RAW_STAGES };
        let mut distance = step;
        for _ in 1..ahead {
            distance = pair(func, ScheduleOp::AddI { overflow }, &ty, distance, step, &mut ops);
        }
        let end = pair(func, ScheduleOp::AddI { overflow }, &ty, lower, distance, &mut ops);
        let end = pair(func, ScheduleOp::MinI { signedness }, &ty, end, upper, &mut ops);
        let first = over(func, looped, [lower, end, step], &[queue.start], |func, counter, cursors| {
            let mut ops = Vec::new();
            let map = scalars(func, candidate, body, counter, &mut ops);
            let next = feed(func, candidate, (queue, direct), (&map, cursors[0]), &mut ops);
            (ops, vec![next])
        });
        ops.push(first);
        starts.push(func.ops[first].result());
        distances.push(distance);
    }
    let all = over(func, looped, [lower, upper, step], &starts, |func, counter, cursors| {
        let mut ops = Vec::new();
        let raw = rings.raw.as_ref().zip(cursors.get(1).copied());
        made_round(func, candidate, (made, raw), (counter, cursors[0]), before_turn, &mut ops);
        let mut next = vec![made.next(func, cursors[0], &mut ops)];
        if let Some((raw, cursor)) = raw {
            raw.at(func, TileOp::Release {}, cursor, &mut ops);
            next.push(raw.next(func, cursor, &mut ops));
        }
        for ((fed, &cursor), &distance) in rings.fed().zip(&cursors[own..]).zip(&distances) {
            let later = pair(func, ScheduleOp::AddI { overflow }, &ty, counter, distance, &mut ops);
            let kind = ScheduleOp::CmpI { predicate: Predicate::Lt, signedness };
            let more = pair(func, kind, &Type::scalar(DType::B1), later, upper, &mut ops);
            let mut inside = Vec::new();
            let map = scalars(func, candidate, body, later, &mut inside);
            let behind = feed(func, candidate, fed, (&map, cursor), &mut inside);
            let regions = [(inside, behind), (Vec::new(), cursor)].map(|(mut ops, value)| {
                ops.push(func.make_op(ScheduleOp::Yield {}.into(), &[&[value]], [], [], span));
                let block = func.new_block();
                func.blocks[block].ops = ops;
                block
            });
            let branch = func.make_op(ScheduleOp::If {}.into(), &[&[more]], [Type::Cursor], regions, span);
            ops.push(branch);
            next.push(func.ops[branch].result());
        }
        (ops, next)
    });
    ops.push(all);
    ops
}

/// A round of the threads that fill slots.
fn made_round(
    func: &mut Func,
    candidate: &Candidate,
    (made, raw): (&Queue, Option<(&Queue, Value)>),
    (counter, cursor): (Value, Value),
    before_turn: &[Value],
    ops: &mut Vec<Op>,
) {
    let span = func.ops[candidate.looped].span;
    let body = func.ops[candidate.looped].regions[0];
    let threads = Arch::WARP * candidate.feeders(func);
    let mut map = scalars(func, candidate, body, counter, ops);
    if let Some((raw, cursor)) = raw {
        raw.at(func, TileOp::Wait {}, cursor, ops);
    }
    made.at(func, TileOp::Acquire {}, cursor, ops);
    let (mut brought, mut waiting) = (0, before_turn.iter());
    for (position, factor) in candidate.made().enumerate() {
        let mut buffers = Vec::new();
        for (_, buffer) in &factor.loads {
            let filled = raw.filter(|_| buffer.is_some());
            buffers.push(filled.map(|(raw, cursor)| raw.slot(func, cursor, brought, ops)));
            brought += usize::from(buffer.is_some());
        }
        let target = made.slot(func, cursor, position, ops);
        let copy = |func: &mut Func, from: Value| func.make_op(TileOp::CopyShared {}.into(), &[&[from], &[target]], [], [], span);
        if let (Way::Turned, Some(&Some(buffer))) = (factor.way, buffers.first()) {
            let source = factor.looked_at(func, buffer, span, ops);
            ops.push(copy(func, source));
            continue;
        }
        let value = factor.computed(func, &buffers, &mut map, ops);
        let between = factor.before_turn().and_then(|_| waiting.next().copied());
        ops.push(func.make_op(TileOp::StoreShared {}.into(), &[&[value], &[between.unwrap_or(target)]], [], [], span));
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
