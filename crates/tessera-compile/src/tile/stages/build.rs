//! The rewrite of a loop that is pipelined: slots, the copies of the first rounds, and rounds that copy ahead.

use rustc_hash::FxHashMap;
use tessera_ir::attrs::{CacheHint, Overflow, Predicate, Signedness};
use tessera_ir::{Builder, Const, Effects, Func, OpKind, ScheduleOp, Shape, SharedType, TileOp, Type, Value, bug};
use tessera_types::DType;

use super::super::queue::{copied, mapped};
use super::super::roles::signs;
use super::super::slots;
use super::Candidate;
use crate::rewrite::drop_dead;

pub(super) fn build(func: &mut Func, candidate: &Candidate, stages: u32) {
    let looped = func.ops[candidate.looped].clone();
    let span = looped.span;
    let (body, ahead) = (looped.regions[0], func.new_block());
    let round = func.blocks[body].ops.clone();
    let OpKind::Schedule(ScheduleOp::For { unsigned, .. }) = looped.kind else { bug!("rounds of what counts nothing") };
    let (lower, upper, step) = (looped.one(0), looped.one(1), looped.one(2));
    let counter = func.ty(lower).clone();
    let dtype = counter.num().unwrap_or_else(|| bug!("a loop that counts with `{counter}`"));

    // Before the loop: the slots, and the first rounds' copies.
    let mut b = Builder { func, block: ahead, span };
    let mut buffers = Vec::new();
    for copy in &candidate.copies {
        let ty = Type::Shared(Box::new(slots::staged(&copy.slot, stages)));
        buffers.push(b.value(TileOp::AllocShared { align: 128, offset: None }, &[], ty));
    }
    let index = |b: &mut Builder<'_>, value: u32| b.constant(Const::int(DType::I32, i64::from(value)), Shape::new());
    let (zero, one, last, count) = (index(&mut b, 0), index(&mut b, 1), index(&mut b, stages - 1), index(&mut b, stages));
    let nothing = b.constant(Const::int(dtype, 0), Shape::new());
    let rounds = b.constant(Const::int(dtype, i64::from(stages) - 1), Shape::new());
    let span_of_loop = minus(&mut b, upper, lower);
    let some = less(&mut b, lower, upper, if unsigned { Signedness::Unsigned } else { Signedness::Signed });
    let distance = b.value(ScheduleOp::Select {}, &[&[some], &[span_of_loop], &[nothing]], counter.clone());
    let lead = b.same(ScheduleOp::MulI { overflow: Overflow::Wraps }, &[rounds, step]);
    if candidate.repeats {
        // The slots may still be read from an earlier run of the loop.
        b.op(TileOp::Barrier {}, &[], []);
    }
    let first = b.func.new_block();
    let slot = b.func.add_arg(first, Type::scalar(DType::I32), None);
    let offset = b.func.add_arg(first, counter.clone(), None);
    b.within(first, |b| {
        let filled = less(b, offset, distance, Signedness::Unsigned);
        let at = plus(b, lower, offset);
        fill(b, candidate, filled, at, (&buffers, slot));
        let next = plus(b, offset, step);
        b.op(ScheduleOp::Continue {}, &[&[next]], []);
    });
    b.op_with_regions(
        ScheduleOp::For { unsigned: false, unroll: None },
        &[&[zero], &[last], &[one], &[nothing]],
        [counter],
        [first],
    );
    let ops = std::mem::take(&mut func.blocks[ahead].ops);
    let block = &mut func.blocks[candidate.block];
    let place = block.place_of(candidate.looped);
    block.ops.splice(place..place, ops);

    // The loop: the slot to read is carried, and the one read before, which is filled now. Where threads multiply, their sums and factors
    // take all registers: it is counted back.
    let at = func.blocks[body].args[0];
    let reading = func.carry(candidate.looped, zero);
    let before = (!candidate.by_threads).then(|| func.carry(candidate.looped, last));
    func.blocks[body].ops.clear();
    let mut b = Builder { func, block: body, span };
    let mut names: FxHashMap<Value, Value> = FxHashMap::default();
    b.op(TileOp::WaitGroup { pending: stages - 2 }, &[], []);
    b.op(TileOp::Barrier {}, &[], []);
    for &op in &round {
        if let Some(direct) = candidate.products.iter().find(|direct| direct.product == op) {
            let factors = direct.factors.map(|copy| {
                let whole = slot_of(&mut b, buffers[copy], reading);
                without_unit_axes(&mut b, whole, zero)
            });
            let (fast_acc, lhs_signedness, rhs_signedness) = signs(&b.func.ops[op].kind);
            let data = &mut b.func.ops[op];
            data.turn_into(TileOp::MmaShared { fast_acc, lhs_signedness, rhs_signedness });
            data.operands[..2].copy_from_slice(&factors);
            b.func.blocks[body].ops.push(op);
        } else if let Some(copy) = candidate.copies.iter().position(|copy| copy.load == op) {
            let (result, span) = (b.func.ops[op].results[0], b.func.ops[op].span);
            let slot = slot_of(&mut b, buffers[copy], reading);
            let ty = b.func.ty(result).clone();
            let read = b.func.make_op(TileOp::LoadShared {}.into(), &[&[slot]], [ty], [], span);
            names.insert(result, b.func.ops[read].result());
            b.func.blocks[body].ops.push(read);
        } else if matches!(b.func.ops[op].row().effects, Effects::Terminator) {
            // Behind the product, so that its first loads wait for nothing but the barrier.
            let left = minus(&mut b, upper, at);
            let more = less(&mut b, lead, left, Signedness::Unsigned);
            let far = plus(&mut b, at, lead);
            let filling = before.unwrap_or_else(|| {
                let back = minus(&mut b, reading, one);
                where_equal(&mut b, (reading, zero), [last, back])
            });
            fill(&mut b, candidate, more, far, (&buffers, filling));
            let next = plus(&mut b, reading, one);
            let next = where_equal(&mut b, (next, count), [zero, next]);
            b.func.append_operands(op, &[next]);
            if before.is_some() {
                b.func.append_operands(op, &[reading]);
            }
            b.func.blocks[body].ops.push(op);
        } else {
            b.func.blocks[body].ops.push(op);
        }
    }
    func.replace_uses(|value| names.get(&value).copied().unwrap_or(value));
    // What only products read that look into the slots themselves.
    drop_dead(func);
}

/// Copies of one round, where the condition holds, then the end of their group: what says where they load from again for the counter `at`, and
/// each load as a copy into a slot.
fn fill(b: &mut Builder<'_>, candidate: &Candidate, when: Value, at: Value, (buffers, slot): (&[Value], Value)) {
    let (then, otherwise) = (b.func.new_block(), b.func.new_block());
    let body = b.func.ops[candidate.looped].regions[0];
    let mut map: FxHashMap<Value, Value> = FxHashMap::default();
    map.insert(b.func.blocks[body].args[0], at);
    b.within(then, |b| {
        for &scalar in &candidate.scalars {
            let copy = copied(b.func, scalar, &mut map);
            b.func.blocks[then].ops.push(copy);
        }
        for (copy, &buffer) in candidate.copies.iter().zip(buffers) {
            let data = b.func.ops[copy.load].clone();
            let buffer = slot_of(b, buffer, slot);
            let kind = TileOp::CopyAsync { bypass_l1: true, cache: CacheHint::Normal, lines: false };
            // Its place is that of the load for which it stands.
            let groups = [&mapped(&map, data.group(0))[..], &mapped(&map, data.group(1)), &[buffer]];
            let copy = b.func.make_op(kind.into(), &groups, [], [], data.span);
            b.func.blocks[then].ops.push(copy);
        }
        b.op(ScheduleOp::Yield {}, &[&[]], []);
    });
    b.within(otherwise, |b| b.op(ScheduleOp::Yield {}, &[&[]], []));
    b.op_with_regions(ScheduleOp::If {}, &[&[when]], [], [then, otherwise]);
    b.op(TileOp::CommitGroup {}, &[], []);
}

/// One entry of a buffer's first axis.
fn slot_of(b: &mut Builder<'_>, buffer: Value, index: Value) -> Value {
    let ty = b.func.ty(buffer).as_shared().and_then(SharedType::slice).unwrap_or_else(|| bug!("a buffer without slots"));
    b.value(TileOp::SliceShared {}, &[&[buffer], &[index]], Type::Shared(Box::new(ty)))
}

/// A buffer without the axes of extent one in front of its last two.
fn without_unit_axes(b: &mut Builder<'_>, mut buffer: Value, zero: Value) -> Value {
    while b.func.ty(buffer).as_shared().is_some_and(|ty| ty.shape.len() > 2) {
        buffer = slot_of(b, buffer, zero);
    }
    buffer
}

fn plus(b: &mut Builder<'_>, lhs: Value, rhs: Value) -> Value {
    b.same(ScheduleOp::AddI { overflow: Overflow::Wraps }, &[lhs, rhs])
}

fn minus(b: &mut Builder<'_>, lhs: Value, rhs: Value) -> Value {
    b.same(ScheduleOp::SubI { overflow: Overflow::Wraps }, &[lhs, rhs])
}

/// The first of two values where two numbers are equal, else the second.
fn where_equal(b: &mut Builder<'_>, (lhs, rhs): (Value, Value), [then, otherwise]: [Value; 2]) -> Value {
    let kind = ScheduleOp::CmpI { predicate: Predicate::Eq, signedness: Signedness::Signed };
    let equal = b.value(kind, &[&[lhs], &[rhs]], Type::scalar(DType::B1));
    b.value(ScheduleOp::Select {}, &[&[equal], &[then], &[otherwise]], Type::scalar(DType::I32))
}

fn less(b: &mut Builder<'_>, lhs: Value, rhs: Value, signedness: Signedness) -> Value {
    let kind = ScheduleOp::CmpI { predicate: Predicate::Lt, signedness };
    b.value(kind, &[&[lhs], &[rhs]], Type::scalar(DType::B1))
}
