//! The recipe for a loop that is a matrix product, `acc = mma(load, load, acc)`, on a target without warpgroup instructions or where
//! those do not take the product: all warps copy factors ahead into a ring of slots in shared memory, by `cp.async`, and
//! multiply from the slot that has arrived.
//!
//! ```text
//! for %s in 0 .. stages - 1 { if %s rounds are left { copies into slot %s }; commit_group }
//! for %k ... {
//!   wait_group {pending = stages - 2}; barrier
//!   %acc = mma_shared %lhs[slot], %rhs[slot], %acc
//!   if stages - 1 rounds are left { copies into the slot that was read a round ago }; commit_group
//! }
//! ```
//!
//! One barrier a round does both: behind it every thread's copies of this round have arrived, and no thread reads the slot any
//! more that is filled next. A group is made in every round, empty ones too, so that the count of pending groups names a round.
//!
//! **Predicate.** The loop counts, carries the accumulator alone, and holds nothing but scalar arithmetic, one product and the two loads of
//! its factors (through reshapes that drop leading axes of extent one); a factor is a whole tile of a view, of elements of whole
//! bytes, padded with zero, with lines of 16 bytes; the target multiplies the types by a warp's instruction, or they are 32-bit
//! floats whose accumulator the threads can share as [`outer`] says; two slots fit into shared memory. Nothing else about the
//! kernel matters. A function may have several such loops.

use rustc_hash::FxHashMap;
use tessera_ir::attrs::{CacheHint, Overflow, Predicate, Signedness};
use tessera_ir::{Block, Builder, Const, Effects, Func, Op, OpKind, ScheduleOp, Shape, SharedType, TileOp, Type, Value};
use tessera_types::{Arch, DType};

use super::anchors::{Units, instruction};
use super::queue::{copied, mapped};
use super::relation::has_layout;
use super::roles::{is_free, signs};
use super::{order, outer, slots, threads};
use tessera_ir::Reason;

/// The most slots that were found useful.
const STAGES: u32 = 4;

/// Registers a thread needs beside its part of the accumulator: for a warp's instructions, and to multiply by itself.
const REGISTERS: [u64; 2] = [80, 128];

/// A loop that fits.
struct Candidate {
    /// The loop, and the block that it stands in.
    looped: Op,
    block: Block,
    product: Op,
    /// The loads of both factors, and what a slot holds of each.
    loads: [Op; 2],
    slots: [SharedType; 2],
    /// Threads multiply by themselves.
    by_threads: bool,
}

/// Pipelines every loop of the function that fits.
pub(super) fn pipeline(func: &mut Func, units: &Units) -> Result<(), Reason> {
    let arch = Some(units.arch).filter(|arch| arch.has_cp_async()).ok_or("the target has no asynchronous copies")?;
    let loops = innermost(func);
    let warps = warps(func, units, &loops);
    let mut candidates = Vec::new();
    let mut refusal = Reason::from("no counted loop holds a product");
    for &(block, looped) in &loops {
        match find(func, units, block, looped, u64::from(warps)) {
            Ok(candidate) => candidates.push(candidate),
            Err(Some(reason)) => refusal = reason,
            Err(None) => {}
        }
    }
    if candidates.is_empty() {
        return Err(refusal);
    }
    let mut rooms = Vec::new();
    for candidate in &candidates {
        let room = room(func, candidate, arch, units, warps, candidates.len() as u64);
        let at = func.ops[candidate.looped].span;
        rooms.push(room.ok_or_else(|| Reason::at("two slots do not fit into shared memory", at))?);
    }
    for (candidate, &(stages, _)) in candidates.iter().zip(&rooms) {
        build(func, candidate, stages);
    }
    order::by_groups(func);
    func.hints.num_warps = Some(warps);
    func.hints.num_stages = rooms.first().map(|&(stages, _)| stages);
    let resident = rooms.iter().map(|&(_, blocks)| blocks).min();
    func.hints.occupancy = func.hints.occupancy.or(resident.filter(|&blocks| blocks > 1));
    Ok(())
}

/// Counting loops without regions inside, with the block that each stands in.
fn innermost(func: &Func) -> Vec<(Block, Op)> {
    let counts = |op: Op| matches!(func.ops[op].kind, OpKind::Schedule(ScheduleOp::For { .. }));
    let leaf = |op: Op| func.blocks[func.ops[op].regions[0]].ops.iter().all(|&inner| func.ops[inner].regions.is_empty());
    let blocks = func.linked_blocks();
    let all = blocks.iter().flat_map(|&block| func.blocks[block].ops.iter().map(move |&op| (block, op)));
    all.filter(|&(_, op)| counts(op) && leaf(op)).collect()
}

/// Warps of the block: those that the author asks for, else what the largest accumulator needs. Threads that multiply by themselves
/// hold more of it each.
fn warps(func: &Func, units: &Units, loops: &[(Block, Op)]) -> u32 {
    let usual = threads::warps(func);
    if func.hints.num_warps.is_some() {
        return usual;
    }
    let few = |&(_, looped): &(Block, Op)| {
        let product = product_of(func, looped)?;
        let held = func.ty(func.ops[product].result()).as_tile()?.len() as u64;
        let few = (held / outer::MOST / 32).max(4) as u32;
        instruction(func, product, units, u64::from(few)).is_none().then_some(few)
    };
    let products = loops.iter().filter(|(_, looped)| product_of(func, *looped).is_some());
    products.map(|at| few(at).unwrap_or(usual)).max().unwrap_or(usual)
}

/// The product in a loop's body.
fn product_of(func: &Func, looped: Op) -> Option<Op> {
    let is_product = |op: &Op| matches!(func.ops[*op].kind, OpKind::Schedule(ScheduleOp::MmaF { .. } | ScheduleOp::MmaI { .. }));
    func.blocks[func.ops[looped].regions[0]].ops.iter().copied().find(is_product)
}

/// The loop's parts; no reason where it holds no product.
fn find(func: &Func, units: &Units, block: Block, looped: Op, warps: u64) -> Result<Candidate, Option<Reason>> {
    let body = func.ops[looped].regions[0];
    let product = product_of(func, looped).ok_or(None)?;
    let (mma, at) = (&func.ops[product], func.ops[product].span);
    let no = |text: &'static str| Some(Reason::at(text, at));
    let &[_, acc] = &func.blocks[body].args[..] else { return Err(no("the product's loop carries more than the accumulator")) };
    let (last, ops) = func.blocks[body].ops.split_last().ok_or(None)?;
    if mma.one(2) != acc || func.ops[*last].operands[..] != [mma.result()] {
        return Err(no("the loop does not hand the product on as its own accumulator"));
    }
    let factor = |position| loaded(func, mma.one(position)).ok_or_else(|| no("a factor is not what a load yields"));
    let (lhs, rhs) = (factor(0)?, factor(1)?);
    let loads = [lhs.0, rhs.0];
    let own = |op: Op| op == product || loads.contains(&op) || lhs.1.contains(&op) || rhs.1.contains(&op);
    let scalar = |op: Op| {
        let data = &func.ops[op];
        is_free(func, op) && data.regions.is_empty() && !data.results.iter().any(|&result| has_layout(func, result))
    };
    if loads[0] == loads[1] || !loads.iter().all(|load| ops.contains(load)) {
        return Err(no("the factors are not two loads in the loop"));
    }
    if let Some(&other) = ops.iter().find(|&&op| !own(op) && !scalar(op)) {
        let name = func.ops[other].row().mnemonic;
        return Err(Some(Reason::at(format!("the product's loop holds `{name}` too"), func.ops[other].span)));
    }
    // What is loaded goes into the product alone.
    let made: Vec<Value> =
        ops.iter().filter(|&&op| own(op) && op != product).flat_map(|&op| func.ops[op].results.clone()).collect();
    if func.linked_ops().iter().any(|&op| !own(op) && func.ops[op].operands.iter().any(|value| made.contains(value))) {
        return Err(no("a factor is used outside the product"));
    }
    let number = |value| func.ty(value).num().ok_or_else(|| no("an operand holds no numbers"));
    let (dtype, out) = (number(mma.one(0))?, number(acc)?);
    let by_threads = instruction(func, product, units, warps).is_none();
    if number(mma.one(1))? != dtype || by_threads && (dtype, out) != (DType::F32, DType::F32) {
        return Err(Some(Reason::at(format!("products of `{dtype}` into `{out}` of this size have no instruction"), at)));
    }
    let slots = [slots::padded(func, loads[0], 1, by_threads)?, slots::padded(func, loads[1], 0, by_threads)?];
    if let (true, Some([m, n])) = (by_threads, func.ty(acc).as_tile().map(|tile| &tile.shape[..])) {
        let shape = [u64::from(*m), u64::from(*n)];
        if outer::layout(shape, outer::deep(slots.each_ref()), warps).is_none() {
            return Err(no("the threads cannot share the accumulator evenly, or hold too much of it each"));
        }
    }
    Ok(Candidate { looped, block, product, loads, slots, by_threads })
}

/// The load that a factor comes from, and the reshapes between, which drop leading axes of extent one.
fn loaded(func: &Func, factor: Value) -> Option<(Op, Vec<Op>)> {
    let mut op = func.defining_op(factor)?;
    let mut reshapes = Vec::new();
    while matches!(func.ops[op].kind, OpKind::Schedule(ScheduleOp::Reshape {})) {
        let (from, to) = (func.ty(func.ops[op].one(0)).as_tile()?, func.ty(func.ops[op].result()).as_tile()?);
        let dropped = from.shape.len().checked_sub(to.shape.len())?;
        if from.shape[dropped..] != to.shape[..] || from.shape[..dropped].iter().any(|&extent| extent != 1) {
            return None;
        }
        reshapes.push(op);
        op = func.defining_op(func.ops[op].one(0))?;
    }
    matches!(func.ops[op].kind, OpKind::Schedule(ScheduleOp::LoadViewTko { .. })).then_some((op, reshapes))
}

/// How many slots the loop has, and how many blocks then share a multiprocessor: as many as registers allow while there are three
/// slots. `loops` loops share what a block may have; `None` where two slots do not fit.
fn room(func: &Func, candidate: &Candidate, arch: Arch, units: &Units, warps: u32, loops: u64) -> Option<(u32, u32)> {
    let acc = func.ty(func.ops[candidate.product].result()).as_tile()?;
    let held = acc.len() as u64;
    let bytes = candidate.slots.iter().map(SharedType::bytes).sum::<u64>().max(1) * loops;
    let (limits, threads) = (arch.limits(), u64::from(warps * Arch::WARP));
    let registers = held * u64::from(acc.elem.num()?.bits()) / 32 / threads + REGISTERS[usize::from(candidate.by_threads)];
    // The epilogue may put the result through shared memory.
    let most = u64::from(units.shared).saturating_sub(held) / bytes;
    let slots = |blocks: u32| {
        let share = u64::from((limits.shared_per_sm / blocks).saturating_sub(limits.shared_reserved_per_block));
        (share / bytes).min(most).min(u64::from(func.hints.num_stages.unwrap_or(STAGES))) as u32
    };
    let wanted = func.hints.num_stages.unwrap_or(3).min(3);
    let fits = |&blocks: &u32| u64::from(limits.registers_per_sm) >= u64::from(blocks) * threads * registers;
    let blocks = (2..=4).rev().filter(fits).find(|&blocks| slots(blocks) >= wanted).unwrap_or(1);
    (slots(blocks) >= 2).then(|| (slots(blocks), blocks))
}

// --- the rewrite

fn build(func: &mut Func, candidate: &Candidate, stages: u32) {
    let looped = func.ops[candidate.looped].clone();
    let span = looped.span;
    let (body, ahead) = (looped.regions[0], func.new_block());
    let round = func.blocks[body].ops.clone();
    let OpKind::Schedule(ScheduleOp::For { unsigned, .. }) = looped.kind else { return };
    let (lower, upper, step) = (looped.one(0), looped.one(1), looped.one(2));
    let counter = func.ty(lower).clone();
    let dtype = counter.num().unwrap_or(DType::I32);

    // Before the loop: the slots, and the first rounds' copies.
    let mut b = Builder { func, block: ahead, span };
    let buffers = candidate.slots.each_ref().map(|slot| {
        let ty = Type::Shared(Box::new(slots::staged(slot, stages)));
        b.value(TileOp::AllocShared { align: 128, offset: None }, &[], ty)
    });
    let index = |b: &mut Builder<'_>, value: u32| b.constant(Const::int(DType::I32, i64::from(value)), Shape::new());
    let (zero, one, last, count) = (index(&mut b, 0), index(&mut b, 1), index(&mut b, stages - 1), index(&mut b, stages));
    let nothing = b.constant(Const::int(dtype, 0), Shape::new());
    let rounds = b.constant(Const::int(dtype, i64::from(stages) - 1), Shape::new());
    let span_of_loop = minus(&mut b, upper, lower);
    let some = less(&mut b, lower, upper, if unsigned { Signedness::Unsigned } else { Signedness::Signed });
    let distance = b.value(ScheduleOp::Select {}, &[&[some], &[span_of_loop], &[nothing]], counter.clone());
    let lead = b.same(ScheduleOp::MulI { overflow: Overflow::Wraps }, &[rounds, step]);
    if candidate.block != b.func.body {
        // The slots may still be read from an earlier run of the loop.
        b.op(TileOp::Barrier {}, &[], []);
    }
    let first = b.func.new_block();
    let slot = b.func.add_arg(first, Type::scalar(DType::I32), None);
    let offset = b.func.add_arg(first, counter.clone(), None);
    b.within(first, |b| {
        let filled = less(b, offset, distance, Signedness::Unsigned);
        let at = plus(b, lower, offset);
        fill(b, candidate, &round, filled, at, (buffers, slot));
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
    let list = &mut func.blocks[candidate.block].ops;
    let place = list.iter().position(|&op| op == candidate.looped).unwrap_or(0);
    list.splice(place..place, ops);

    // The loop: the slot to read is carried, and the one read before, which is filled now. Where threads multiply, their sums and factors
    // take all registers: it is counted back.
    let at = func.blocks[body].args[0];
    let reading = func.carry(candidate.looped, zero);
    let before = (!candidate.by_threads).then(|| func.carry(candidate.looped, last));
    func.blocks[body].ops.clear();
    let mut b = Builder { func, block: body, span };
    b.op(TileOp::WaitGroup { pending: stages - 2 }, &[], []);
    b.op(TileOp::Barrier {}, &[], []);
    for &op in &round {
        if op == candidate.product {
            let factors = [0, 1].map(|side| {
                let whole = slot_of(&mut b, buffers[side], reading);
                without_unit_axes(&mut b, whole, zero)
            });
            let (fast_acc, lhs_signedness, rhs_signedness) = signs(&b.func.ops[op].kind);
            let data = &mut b.func.ops[op];
            data.kind = TileOp::MmaShared { fast_acc, lhs_signedness, rhs_signedness }.into();
            data.operands[..2].copy_from_slice(&factors);
            b.func.blocks[body].ops.push(op);
        } else if matches!(b.func.ops[op].row().effects, Effects::Terminator) {
            // Behind the product, so that its first loads wait for nothing but the barrier.
            let left = minus(&mut b, upper, at);
            let more = less(&mut b, lead, left, Signedness::Unsigned);
            let far = plus(&mut b, at, lead);
            let filling = before.unwrap_or_else(|| {
                let back = minus(&mut b, reading, one);
                where_equal(&mut b, (reading, zero), [last, back])
            });
            fill(&mut b, candidate, &round, more, far, (buffers, filling));
            let next = plus(&mut b, reading, one);
            let next = where_equal(&mut b, (next, count), [zero, next]);
            b.func.append_operands(op, &[next]);
            if before.is_some() {
                b.func.append_operands(op, &[reading]);
            }
            b.func.blocks[body].ops.push(op);
        } else if !b.func.ops[op].results.iter().any(|&result| has_layout(b.func, result)) {
            b.func.blocks[body].ops.push(op);
        }
    }
}

/// Copies of one round, where the condition holds, then the end of their group: the round's scalar arithmetic again for the
/// counter `at`, and each load as a copy into a slot.
fn fill(b: &mut Builder<'_>, candidate: &Candidate, round: &[Op], when: Value, at: Value, (buffers, slot): ([Value; 2], Value)) {
    let (then, otherwise) = (b.func.new_block(), b.func.new_block());
    let body = b.func.ops[candidate.looped].regions[0];
    let mut map: FxHashMap<Value, Value> = FxHashMap::default();
    map.insert(b.func.blocks[body].args[0], at);
    b.within(then, |b| {
        for &op in round {
            let data = b.func.ops[op].clone();
            if let Some(side) = candidate.loads.iter().position(|&load| load == op) {
                let buffer = slot_of(b, buffers[side], slot);
                let copy = TileOp::CopyAsync { bypass_l1: true, cache: CacheHint::Normal, lines: false };
                b.op(copy, &[&mapped(&map, data.group(0)), &mapped(&map, data.group(1)), &[buffer]], []);
            } else if !data.results.iter().any(|&result| has_layout(b.func, result)) && !data.results.is_empty() {
                let copy = copied(b.func, op, &mut map);
                b.func.blocks[then].ops.push(copy);
            }
        }
        b.op(ScheduleOp::Yield {}, &[&[]], []);
    });
    b.within(otherwise, |b| b.op(ScheduleOp::Yield {}, &[&[]], []));
    b.op_with_regions(ScheduleOp::If {}, &[&[when]], [], [then, otherwise]);
    b.op(TileOp::CommitGroup {}, &[], []);
}

/// One entry of a buffer's first axis.
fn slot_of(b: &mut Builder<'_>, buffer: Value, index: Value) -> Value {
    let Some(ty) = b.func.ty(buffer).as_shared().and_then(SharedType::slice) else { return buffer };
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
