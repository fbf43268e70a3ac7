//! Those who fill the slots that a product is multiplied from: the copy engine alone, or the copy engine and threads behind it.
//!
//! ```text
//! for the first rounds { acquire %raw; tma_load; commit %raw }
//! for ... { wait %raw; acquire %made; copy_shared; fence_async; commit %made; release %raw; if another round { acquire %raw; ... } }
//! ```
//!
//! Invariant: who waits for the tensor cores to release a slot has filled all slots before it, so that none waits for itself.

use tessera_ir::attrs::{Overflow, Predicate, Signedness};
use tessera_ir::{Func, Op, OpKind, ScheduleOp, TileOp, Type, Value};
use tessera_types::{Arch, DType};

use super::feeder::{Names, Rings};
use super::supply::{Site, Supply};
use crate::tile::feed::Way;
use crate::tile::queue::{Queue, copied, over, range};

/// A ring with its site in the loop, and the number of its cursor.
pub(super) type Fed<'a> = (&'a Queue, &'a Site, usize);

/// The threads that make the factors of one loop.
pub(super) struct Maker<'a> {
    pub(super) supply: &'a Supply,
    pub(super) rings: &'a Rings,
    /// From threads to the tensor cores.
    pub(super) made: Fed<'a>,
    /// From the copy engine to the tensor cores; its cursor is that of the ring before.
    pub(super) direct: Option<Fed<'a>>,
    /// From the copy engine to threads.
    pub(super) raw: Option<Fed<'a>>,
    /// Buffers for factors before they are turned.
    pub(super) before_turn: &'a [Value],
    /// The barrier at which these threads meet.
    pub(super) barrier: u32,
}

impl Maker<'_> {
    /// The rings that the copy engine feeds, the one first that is never waited for long, and how many rounds their copies run ahead: what
    /// threads wait for comes as early as its ring allows; what the tensor cores wait for one round early, since to bring it earlier would
    /// be to wait for them.
    fn fed(&self) -> impl Iterator<Item = (Fed<'_>, u32)> {
        let raw = self.raw.map(|raw| (raw, self.supply.rings[raw.1.ring].stages));
        raw.into_iter().chain(self.direct.map(|direct| (direct, 1)))
    }

    /// The loops over the product's rounds from cursors on; the numbers of the cursors, and what is behind them.
    pub(super) fn work(
        &self,
        func: &mut Func,
        looped: Op,
        names: &Names,
        cursors: &[Value],
        out: &mut Vec<Op>,
    ) -> Vec<(usize, Value)> {
        let rounds = range(func, looped).map(|value| names.get(&value).copied().unwrap_or(value));
        let numbers: Vec<usize> = std::iter::once(&self.made).chain(&self.raw).map(|fed| fed.2).collect();
        let starts: Vec<Value> = numbers.iter().map(|&number| cursors[number]).collect();
        let (ops, behind) = self.rounds(func, looped, (names, rounds), &starts);
        out.extend(ops);
        numbers.into_iter().zip(behind).collect()
    }

    /// The scalar arithmetic of the loop's body that says where to load, again; what stands for its values.
    fn scalars(&self, func: &mut Func, names: &Names, counter: Value, out: &mut Vec<Op>) -> Names {
        let body = self.made.1.block;
        let mut names = names.clone();
        names.insert(func.blocks[body].args[0], counter);
        for op in func.blocks[body].ops.clone().into_iter().filter(|op| self.supply.needed.ops.contains(op)) {
            let copy = copied(func, op, &mut names);
            out.push(copy);
        }
        names
    }

    /// The loop that fills slots from what the copy engine has brought, or from memory. The copies run ahead: some rounds before the loop,
    /// then one a round. The rings that are filled together have equally many slots, so that a cursor some rounds further is a copy's own.
    fn rounds(
        &self,
        func: &mut Func,
        looped: Op,
        (names, [lower, upper, step]): (&Names, [Value; 3]),
        starts: &[Value],
    ) -> (Vec<Op>, Vec<Value>) {
        let (made, span) = (self.made.0, func.ops[looped].span);
        let is_raw = |fed: Fed<'_>| self.raw.is_some_and(|raw| raw.1.ring == fed.1.ring);
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
        for (fed, ahead) in self.fed() {
            let mut distance = step;
            for _ in 1..ahead {
                distance = pair(func, ScheduleOp::AddI { overflow }, &ty, distance, step, &mut ops);
            }
            let end = pair(func, ScheduleOp::AddI { overflow }, &ty, lower, distance, &mut ops);
            let end = pair(func, ScheduleOp::MinI { signedness }, &ty, end, upper, &mut ops);
            let first = over(func, looped, [lower, end, step], &[starts[usize::from(is_raw(fed))]], |func, counter, cursors| {
                let mut ops = Vec::new();
                let names = self.scalars(func, names, counter, &mut ops);
                let next = self.rings.fill(func, fed.0, &fed.1.loads, (&names, cursors[0]), &mut ops);
                (ops, vec![next])
            });
            ops.push(first);
            distances.push(distance);
        }
        let all = over(func, looped, [lower, upper, step], starts, |func, counter, cursors| {
            let mut ops = Vec::new();
            let raw = self.raw.map(|raw| raw.0).zip(cursors.get(1).copied());
            self.made_round(func, (made, raw), names, (counter, cursors[0]), &mut ops);
            let mut next = vec![made.next(func, cursors[0], &mut ops)];
            if let Some((raw, cursor)) = raw {
                raw.at(func, TileOp::Release {}, cursor, &mut ops);
                next.push(raw.next(func, cursor, &mut ops));
            }
            for ((fed, ahead), &distance) in self.fed().zip(&distances) {
                let later = pair(func, ScheduleOp::AddI { overflow }, &ty, counter, distance, &mut ops);
                let kind = ScheduleOp::CmpI { predicate: Predicate::Lt, signedness };
                let more = pair(func, kind, &Type::scalar(DType::B1), later, upper, &mut ops);
                let mut inside = Vec::new();
                let names = self.scalars(func, names, later, &mut inside);
                let mut cursor = cursors[usize::from(is_raw(fed))];
                for _ in 0..ahead {
                    cursor = fed.0.next(func, cursor, &mut inside);
                }
                self.rings.fill(func, fed.0, &fed.1.loads, (&names, cursor), &mut inside);
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
        let span = self.supply.at(func);
        let threads = Arch::WARP * self.supply.copy.warps;
        let mut names = self.scalars(func, names, counter, ops);
        if let Some((raw, cursor)) = raw {
            raw.at(func, TileOp::Wait {}, cursor, ops);
        }
        made.at(func, TileOp::Acquire {}, cursor, ops);
        let mut waiting = self.before_turn.iter();
        for (position, factor) in self.made.1.factors.iter().enumerate() {
            let mut buffers = Vec::new();
            for (load, _) in &factor.loads {
                // Where in a slot the copy engine has put it; what it cannot bring is gathered.
                let place = self.raw.and_then(|(_, site, _)| site.loads.iter().position(|other| other == load));
                let filled = raw.zip(place);
                buffers.push(filled.map(|((raw, cursor), place)| raw.slot(func, cursor, place, ops)));
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
                let kind = TileOp::NamedBarrier { id: self.barrier, threads };
                ops.push(func.make_op(kind.clone().into(), &[], [], [], span));
                ops.push(copy(func, between));
                ops.push(func.make_op(kind.into(), &[], [], [], span));
            }
        }
        ops.push(func.make_op(TileOp::FenceAsync {}.into(), &[], [], [], span));
        made.at(func, TileOp::Commit { bytes: None }, cursor, ops);
    }
}
