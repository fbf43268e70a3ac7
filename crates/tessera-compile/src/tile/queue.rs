//! Rings and roles as operations: what recipes put around the loops of those who fill slots and those who use them.
//!
//! ```text
//! %ring = tile.ring [%buffer, ...] {stages=4, producer=tma, consumers=1, bytes=32768}
//! %start = tile.ring_start %ring
//! ... for ... iter(%cursor = %start) { tile.wait %ring, %cursor ... %next = tile.advance %ring, %cursor ... }
//! ```
//!
//! Invariant: who goes through a queue carries a cursor around the loop and advances it once a round: its own, or that of a ring with as
//! many slots.

use rustc_hash::FxHashMap;
use tessera_ir::attrs::RingProducer;
use tessera_ir::{Block, Func, Op, RingType, ScheduleOp, SharedType, Span, TileOp, Type, Value};

use super::slots::staged;

/// A ring with the types of a slot's buffers.
pub(super) struct Queue {
    ring: Value,
    /// The cursor before the first slot.
    pub(super) start: Value,
    /// The buffers of all slots.
    pub(super) buffers: Vec<Value>,
    slots: Vec<SharedType>,
    span: Span,
}

impl Queue {
    /// Makes a ring, which so many blocks of a cluster fill; its operations go to `out`, which stands before all roles.
    pub(super) fn new(
        func: &mut Func,
        slots: &[SharedType],
        (stages, producer, blocks): (u32, RingProducer, Option<u32>),
        span: Span,
        out: &mut Vec<Op>,
    ) -> Queue {
        let mut buffers = Vec::new();
        for slot in slots {
            let ty = Type::Shared(Box::new(staged(slot, stages)));
            let alloc = func.make_op(TileOp::AllocShared { align: 1024, offset: None }.into(), &[], [ty], [], span);
            buffers.push(func.ops[alloc].result());
            out.push(alloc);
        }
        let bytes = match producer {
            RingProducer::Tma => slots.iter().map(|slot| slot.bytes() as u32).sum(),
            RingProducer::CopyAsync | RingProducer::Threads => 0,
        };
        let ty = Type::Ring(Box::new(RingType { stages, slots: slots.to_vec() }));
        let kind = TileOp::Ring { stages, producer, consumers: 1, bytes, blocks };
        let made = func.make_op(kind.into(), &[&buffers], [ty], [], span);
        let ring = func.ops[made].result();
        let started = func.make_op(TileOp::RingStart {}.into(), &[&[ring]], [Type::Cursor], [], span);
        out.extend([made, started]);
        Queue { ring, start: func.ops[started].result(), buffers, slots: slots.to_vec(), span }
    }

    /// An operation on the slot at a cursor that yields nothing: acquire, commit, wait, release.
    pub(super) fn at(&self, func: &mut Func, kind: TileOp, cursor: Value, out: &mut Vec<Op>) {
        out.push(func.make_op(kind.into(), &[&[self.ring], &[cursor]], [], [], self.span));
    }

    /// A buffer of the slot at a cursor.
    pub(super) fn slot(&self, func: &mut Func, cursor: Value, buffer: usize, out: &mut Vec<Op>) -> Value {
        let ty = Type::Shared(Box::new(self.slots[buffer].clone()));
        let kind = TileOp::Slot { buffer: buffer as u32 };
        let slot = func.make_op(kind.into(), &[&[self.ring], &[cursor]], [ty], [], self.span);
        out.push(slot);
        func.ops[slot].result()
    }

    /// A copy by the engine of a tile of a view into a buffer of the slot at a cursor, by so many blocks of a cluster together. Its place is
    /// that of the load for which it stands.
    pub(super) fn load(
        &self,
        func: &mut Func,
        (view, index, span): (Value, &[Value], Span),
        (cursor, buffer, blocks): (Value, usize, Option<u32>),
        out: &mut Vec<Op>,
    ) {
        let slot = self.slot(func, cursor, buffer, out);
        let groups: [&[Value]; 5] = [&[view], index, &[slot], &[self.ring], &[cursor]];
        out.push(func.make_op(TileOp::TmaLoad { blocks }.into(), &groups, [], [], span));
    }

    /// The bytes of a slot's first buffers, where it has more.
    pub(super) fn part(&self, buffers: usize) -> Option<u32> {
        (buffers < self.slots.len()).then(|| self.slots[..buffers].iter().map(|slot| slot.bytes() as u32).sum())
    }

    /// The cursor behind a cursor.
    pub(super) fn next(&self, func: &mut Func, cursor: Value, out: &mut Vec<Op>) -> Value {
        let advance = func.make_op(TileOp::Advance {}.into(), &[&[self.ring], &[cursor]], [Type::Cursor], [], self.span);
        out.push(advance);
        func.ops[advance].result()
    }

    /// The cursor so many slots behind a cursor.
    pub(super) fn skip(&self, func: &mut Func, (cursor, slots): (Value, Value), out: &mut Vec<Op>) -> Value {
        let skip = func.make_op(TileOp::Skip {}.into(), &[&[self.ring], &[cursor], &[slots]], [Type::Cursor], [], self.span);
        out.push(skip);
        func.ops[skip].result()
    }
}

/// A role that runs operations on warps from `first` on.
pub(super) fn role(func: &mut Func, (first_warp, warps): (u32, u32), registers: Option<u32>, mut ops: Vec<Op>, span: Span) -> Op {
    ops.push(func.make_op(ScheduleOp::Yield {}.into(), &[&[]], [], [], span));
    let region = func.new_block();
    func.blocks[region].ops = ops;
    func.make_op(TileOp::Role { first_warp, warps, registers }.into(), &[], [], [region], span)
}

/// Lower and upper bound and step of a counted loop.
pub(super) fn range(func: &Func, looped: Op) -> [Value; 3] {
    let data = &func.ops[looped];
    [data.one(0), data.one(1), data.one(2)]
}

/// A loop that counts as another does, over a range of its own, and carries values from `starts` on. `work` gets the counter and what
/// is carried, and yields the operations of a round and what it hands to the next.
pub(super) fn over(
    func: &mut Func,
    looped: Op,
    range: [Value; 3],
    starts: &[Value],
    work: impl FnOnce(&mut Func, Value, &[Value]) -> (Vec<Op>, Vec<Value>),
) -> Op {
    let data = func.ops[looped].clone();
    let body: Block = func.new_block();
    let counter = func.ty(func.blocks[data.regions[0]].args[0]).clone();
    let counter = func.add_arg(body, counter, None);
    let types: Vec<Type> = starts.iter().map(|&start| func.ty(start).clone()).collect();
    let carried: Vec<Value> = types.iter().map(|ty| func.add_arg(body, ty.clone(), None)).collect();
    let (mut ops, next) = work(func, counter, &carried);
    ops.push(func.make_op(ScheduleOp::Continue {}.into(), &[&next], [], [], data.span));
    func.blocks[body].ops = ops;
    let [lower, upper, step] = range;
    let groups: [&[Value]; 4] = [&[lower], &[upper], &[step], starts];
    func.make_op(data.kind, &groups, types, [body], data.span)
}

/// A copy of an operation without regions; `map` says what stands for its operands and learns what stands for its results.
pub(super) fn copied(func: &mut Func, op: Op, map: &mut FxHashMap<Value, Value>) -> Op {
    let data = func.ops[op].clone();
    let groups: Vec<Vec<Value>> = (0..data.segments.len()).map(|at| mapped(map, data.group(at))).collect();
    let groups: Vec<&[Value]> = groups.iter().map(Vec::as_slice).collect();
    let types: Vec<Type> = data.results.iter().map(|&result| func.ty(result).clone()).collect();
    let copy = func.make_op(data.kind, &groups, types, [], data.span);
    map.extend(data.results.iter().copied().zip(func.ops[copy].results.iter().copied()));
    copy
}

/// What stands for values.
pub(super) fn mapped(map: &FxHashMap<Value, Value>, values: &[Value]) -> Vec<Value> {
    values.iter().map(|value| *map.get(value).unwrap_or(value)).collect()
}
