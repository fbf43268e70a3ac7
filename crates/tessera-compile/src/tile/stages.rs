//! The multistage pipeline: in a counted loop, all warps copy what the loop loads some rounds ahead into slots in shared memory, by
//! `cp.async`, and work on the slot that has arrived.
//!
//! ```text
//! for %s in 0 .. stages - 1 { if %s rounds are left { copies into slot %s }; commit_group }
//! for %k ... {
//!   wait_group {pending = stages - 2}; barrier
//!   %acc = mma_shared %lhs[slot], %rhs[slot], %acc          a product reads its factors where they lie
//!   %t = load_shared %x[slot]                               everything else reads its tile
//!   if stages - 1 rounds are left { copies into the slot that was read a round ago }; commit_group
//! }
//! ```
//!
//! One barrier a round does both: behind it every thread's copies of this round have arrived, and no thread reads the slot any
//! more that is filled next. A group is made in every round, empty ones too, so that the count of pending groups names a round.
//!
//! **What is copied** ([`copyable`]): a load of a whole tile of a view that is ordered with no write, at a place that follows from the
//! counter and from what is known before the loop, of elements of whole bytes, padded with zero, with lines of 16 bytes.
//!
//! **What a product reads where it lies** ([`direct`]): both factors are such loads (through reshapes that drop leading axes of extent
//! one); the target multiplies the types by a warp's instruction, or they are 32-bit floats whose accumulator the
//! threads can share as [`outer`] says. Any other product takes tiles, which may have been computed from what was copied.
//!
//! **Which loops**: those without loops inside that hold a product, whose rounds all end in one place, and that copy something; at least two slots
//! fit into shared memory. Products that threads do by themselves all read slots, and a thread can hold all their sums. A function may have
//! several such loops. No plan is proposed for a loop without a product, since other blocks of the multiprocessor work while it waits; one by
//! hand is carried out.

use rustc_hash::FxHashSet;
use tessera_ir::attrs::RingProducer;
use tessera_ir::{Block, Func, Op, OpKind, Partition, Plan, Reason, RingPlan, ScheduleOp, SharedType, Value};
use tessera_types::{Arch, DType};

use super::anchors::{Units, instruction};
use super::feed::{fastest_axis, looked_at};
use super::relation::{has_layout, shape};
use super::roles::is_free;
use super::{order, slots, threads};
use tessera_analysis::exits::loop_exits;
use tessera_analysis::outer;

mod build;

/// The most slots that were found useful.
const STAGES: u32 = 4;

/// Registers a thread needs beside its part of the accumulator: for a warp's instructions, and to multiply by itself.
const REGISTERS: [u64; 2] = [80, 128];

/// A loop that is pipelined.
struct Candidate {
    /// The loop, and the block that it stands in.
    looped: Op,
    block: Block,
    /// What is copied ahead, and what says where from: scalars of a round, in order.
    copies: Vec<Copied>,
    scalars: Vec<Op>,
    /// Products that read their factors where they lie.
    products: Vec<Direct>,
    /// Threads multiply by themselves.
    by_threads: bool,
    /// The loop stands in another, so that its slots may still be read from an earlier run.
    repeats: bool,
}

/// A load that becomes a copy.
struct Copied {
    load: Op,
    /// What a slot holds of it.
    slot: SharedType,
}

/// A product of two copies.
struct Direct {
    product: Op,
    /// Which copies its factors are.
    factors: [usize; 2],
}

/// The plan in which every loop that fits is pipelined.
pub(super) fn propose(func: &Func, units: &Units) -> Result<Plan, Reason> {
    let arch = Some(units.arch).filter(|arch| arch.has_cp_async()).ok_or("the target has no asynchronous copies")?;
    let loops = innermost(func);
    let warps = warps(func, units, &loops);
    let mut candidates = Vec::new();
    let mut refusal = Reason::from("no counted loop holds a product");
    for &place in &loops {
        match find(func, units, place, (u64::from(warps), None)) {
            Ok(candidate) => candidates.push(candidate),
            Err(Some(reason)) => refusal = reason,
            Err(None) => {}
        }
    }
    let Some(first) = candidates.first() else { return Err(refusal) };
    let span = func.ops[first.looped].span;
    let all = Partition { name: "all".to_string(), warps, registers: None, turns: None, span };
    let mut plan = Plan { partitions: vec![all], ..Plan::new(span) };
    let mut resident = u32::MAX;
    for candidate in &candidates {
        let span = func.ops[candidate.looped].span;
        let (slots, blocks) = room(func, candidate, arch, units, warps, candidates.len() as u64)
            .ok_or_else(|| Reason::at("two slots do not fit into shared memory", span))?;
        let fill = candidate.copies.iter().map(|copy| func.ops[copy.load].results[0]).collect();
        plan.rings.push(RingPlan { from: 0, to: 0, by: RingProducer::CopyAsync, slots, fills: vec![fill], span });
        resident = resident.min(blocks);
    }
    plan.resident = Some(resident).filter(|&blocks| blocks > 1);
    Ok(plan)
}

/// Carries a plan of one partition out.
///
/// # Errors
/// What cannot be done; the function is as it was.
pub(super) fn carry_out(func: &mut Func, units: &Units, plan: &Plan) -> Result<(), Reason> {
    let arch = Some(units.arch).filter(|arch| arch.has_cp_async()).ok_or("the target has no asynchronous copies")?;
    let [all] = &plan.partitions[..] else { return Err(Reason::at("a plan without roles has one partition", plan.span)) };
    if all.warps == 0 || !all.warps.is_power_of_two() || all.warps * Arch::WARP > arch.limits().threads_per_block {
        return Err(Reason::at(format!("a block has 1, 2, 4, ... warps of all its threads, not {}", all.warps), all.span));
    }
    if all.registers.is_some() {
        return Err(Reason::at("one partition has nobody to move registers from", all.span));
    }
    let loops = innermost(func);
    let mut candidates = Vec::new();
    for ring in &plan.rings {
        let no = |text: &'static str| Reason::at(text, ring.span);
        let ([fill], RingProducer::CopyAsync) = (&ring.fills[..], ring.by) else {
            return Err(no("all warps fill a ring by `copy_async`, in one loop"));
        };
        if !(2..=slots::MOST_SLOTS).contains(&ring.slots) {
            return Err(no("a ring by `copy_async` has 2 to 16 slots: one is read while others are filled"));
        }
        let is_load = |op: Op| matches!(func.ops[op].kind, OpKind::Schedule(ScheduleOp::LoadViewTko { .. }));
        let load = |&value: &Value| func.defining_op(value).filter(|&op| is_load(op) && func.ops[op].results[0] == value);
        let loads: Option<Vec<Op>> = fill.iter().map(load).collect();
        let loads = loads.ok_or_else(|| no("all warps copy tiles that `load` yields, and nothing else"))?;
        let holds = |&&(_, looped): &&(Block, Op)| {
            let ops = &func.blocks[func.ops[looped].regions[0]].ops;
            loads.iter().all(|load| ops.contains(load))
        };
        let &place =
            loops.iter().find(holds).ok_or_else(|| no("what a ring holds is loaded in one counted loop without loops inside"))?;
        if candidates.iter().any(|(other, _): &(Candidate, u32)| other.looped == place.1) {
            return Err(no("a loop has one ring by `copy_async`"));
        }
        let candidate = find(func, units, place, (u64::from(all.warps), Some(&loads)))
            .map_err(|reason| reason.unwrap_or_else(|| no("nothing is copied")))?;
        candidates.push((candidate, ring.slots));
    }
    let bytes = |(candidate, slots): &(Candidate, u32)| {
        u64::from(*slots) * candidate.copies.iter().map(|copy| copy.slot.bytes()).sum::<u64>()
    };
    let (rings, room) = (candidates.iter().map(bytes).sum::<u64>(), u64::from(units.shared));
    if rings > room {
        return Err(Reason::at(format!("the rings take {rings} bytes of shared memory, a block has {room}"), plan.span));
    }
    for (candidate, slots) in &candidates {
        build::build(func, candidate, *slots);
    }
    if plan.persistent.is_none() {
        order::by_groups(func);
    }
    func.hints.num_warps = Some(all.warps);
    func.hints.num_stages = plan.rings.first().map(|ring| ring.slots);
    func.hints.occupancy = func.hints.occupancy.or(plan.resident);
    Ok(())
}

/// Counting loops without loops inside, with the block that each stands in.
fn innermost(func: &Func) -> Vec<(Block, Op)> {
    let counts = |op: Op| matches!(func.ops[op].kind, OpKind::Schedule(ScheduleOp::For { .. }));
    let leaf = |op: Op| !has_loops(func, func.ops[op].regions[0]);
    let blocks = func.linked_blocks();
    let all = blocks.iter().flat_map(|&block| func.blocks[block].ops.iter().map(move |&op| (block, op)));
    all.filter(|&(_, op)| counts(op) && leaf(op)).collect()
}

/// A loop holds the operation, in a branch or by itself.
fn is_in_loop(func: &Func, op: Op) -> bool {
    let is_loop = |op: &Op| matches!(func.ops[*op].kind, OpKind::Schedule(ScheduleOp::For { .. } | ScheduleOp::Loop {}));
    func.linked_ops().iter().any(|outer| is_loop(outer) && func.ops[*outer].regions.iter().any(|&region| holds(func, region, op)))
}

/// A block holds an operation, in a branch or loop or by itself.
fn holds(func: &Func, block: Block, op: Op) -> bool {
    func.blocks[block]
        .ops
        .iter()
        .any(|&inner| inner == op || func.ops[inner].regions.iter().any(|&region| holds(func, region, op)))
}

/// A block holds a loop, or a branch that does.
fn has_loops(func: &Func, block: Block) -> bool {
    func.blocks[block].ops.iter().any(|&op| match func.ops[op].kind {
        OpKind::Schedule(ScheduleOp::For { .. } | ScheduleOp::Loop {}) => true,
        _ => func.ops[op].regions.iter().any(|&region| has_loops(func, region)),
    })
}

/// Warps of the block: those that the author asks for, else what the largest accumulator needs. Threads that multiply by themselves
/// hold more of it each.
fn warps(func: &Func, units: &Units, loops: &[(Block, Op)]) -> u32 {
    let usual = threads::warps(func);
    if func.hints.num_warps.is_some() {
        return usual;
    }
    let few = |products: Vec<Op>| {
        let few = (sums(func, &products) / outer::MOST / 32).max(4) as u32;
        products.into_iter().any(|product| instruction(func, product, units, u64::from(few)).is_none()).then_some(few)
    };
    let products = loops.iter().map(|&(_, looped)| products_of(func, looped)).filter(|products| !products.is_empty());
    products.map(|products| few(products).unwrap_or(usual)).max().unwrap_or(usual)
}

/// Elements of the accumulators of products.
fn sums(func: &Func, products: &[Op]) -> u64 {
    products.iter().filter_map(|&product| func.ty(func.ops[product].result()).as_tile()).map(|tile| tile.len() as u64).sum()
}

/// The products in a loop's body.
fn products_of(func: &Func, looped: Op) -> Vec<Op> {
    let is_product = |op: &Op| matches!(func.ops[*op].kind, OpKind::Schedule(ScheduleOp::MmaF { .. } | ScheduleOp::MmaI { .. }));
    func.blocks[func.ops[looped].regions[0]].ops.iter().copied().filter(is_product).collect()
}

/// The loop's parts, where `wanted` loads are copied, or all that can be; no reason where it holds no product and nobody asks.
fn find(
    func: &Func,
    units: &Units,
    (block, looped): (Block, Op),
    (warps, wanted): (u64, Option<&[Op]>),
) -> Result<Candidate, Option<Reason>> {
    let body = func.ops[looped].regions[0];
    let ops = &func.blocks[body].ops;
    let products = products_of(func, looped);
    // Other blocks of the multiprocessor work while a loop without a product waits: nobody copies for it, unless somebody asks.
    if products.is_empty() && wanted.is_none() {
        return Err(None);
    }
    // What comes next is copied where a round ends.
    if let &[early, _, ..] = &loop_exits(func, looped)[..] {
        return Err(Some(Reason::at("a round of the loop may end early", func.ops[early].span)));
    }
    let at = func.ops[products.first().copied().unwrap_or(looped)].span;
    let held = sums(func, &products);
    let loads = ops.iter().copied().filter(|&op| matches!(func.ops[op].kind, OpKind::Schedule(ScheduleOp::LoadViewTko { .. })));
    let mut scalars = FxHashSet::default();
    let mut loaded: Vec<Op> = Vec::new();
    // The first thing in the way is told.
    let mut refusal: Option<Reason> = None;
    for load in loads.filter(|load| wanted.is_none_or(|wanted| wanted.contains(load))) {
        match copyable(func, body, load) {
            Ok(behind) => {
                scalars.extend(behind);
                loaded.push(load);
            }
            Err(reason) => refusal = refusal.or(Some(reason)),
        }
    }
    let mut candidate = Candidate {
        looped,
        block,
        copies: Vec::new(),
        scalars: ops.iter().copied().filter(|op| scalars.contains(op)).collect(),
        products: Vec::new(),
        by_threads: false,
        repeats: is_in_loop(func, looped),
    };
    for product in products {
        match direct(func, units, &loaded, product, warps) {
            Ok((factors, by_threads)) => {
                let factors = factors.map(|factor| candidate.copied(factor));
                candidate.by_threads |= by_threads;
                candidate.products.push(Direct { product, factors });
            }
            // Threads that multiply by themselves put their factors into shared memory, so that these would go there twice.
            Err(reason) if instruction(func, product, units, warps).is_none() => return Err(refusal.or(Some(reason))),
            Err(reason) => refusal = refusal.or(Some(reason)),
        }
    }
    if candidate.by_threads && held > outer::MOST * 32 * warps {
        return Err(Some(Reason::at("a thread would hold too much of the accumulators", at)));
    }
    for load in loaded {
        if candidate.copies.iter().all(|copy| copy.load != load) {
            let slot = match contraction(func, &products_of(func, looped), load) {
                Some(axis) => slots::padded(func, load, axis, false),
                None => slots::of_tile(func, load),
            };
            match slot {
                Ok(slot) => candidate.copies.push(Copied { load, slot }),
                Err(reason) => refusal = refusal.or(Some(reason)),
            }
        }
    }
    // What a plan asks for is done whole or not at all.
    if wanted.is_some_and(|wanted| wanted.len() != candidate.copies.len()) {
        return Err(refusal.or_else(|| Some(Reason::at("a ring holds each of its loop's loads once", at))));
    }
    if candidate.copies.is_empty() {
        return Err(refusal.or_else(|| Some(Reason::at("the product's loop loads nothing", at))));
    }
    Ok(candidate)
}

impl Candidate {
    /// The number of a factor among the copies.
    fn copied(&mut self, copy: Copied) -> usize {
        let known = self.copies.iter().position(|known| known.load == copy.load);
        known.unwrap_or_else(|| {
            self.copies.push(copy);
            self.copies.len() - 1
        })
    }
}

/// The scalars of a round that say where a load loads, if it can be done some rounds earlier.
fn copyable(func: &Func, body: Block, load: Op) -> Result<Vec<Op>, Reason> {
    let data = &func.ops[load];
    let no = |text: &'static str| Reason::at(text, data.span);
    let used = |value: Value| func.linked_ops().into_iter().any(|op| func.ops[op].used().any(|used| used == value));
    if !data.group(2).is_empty() || used(data.results[1]) {
        return Err(no("a load of the loop is ordered with a write"));
    }
    let inside = &func.blocks[body];
    let mut behind = Vec::new();
    let mut next: Vec<Value> = data.operands.to_vec();
    while let Some(value) = next.pop() {
        if inside.args[1..].contains(&value) {
            return Err(no("where a load loads follows from what the loop carries"));
        }
        let Some(op) = func.defining_op(value).filter(|op| inside.ops.contains(op)) else { continue };
        let scalar = func.ops[op].regions.is_empty() && !func.ops[op].results.iter().any(|&result| has_layout(func, result));
        if !scalar || !is_free(func, op) {
            return Err(no("where a load loads does not follow from scalars"));
        }
        if !behind.contains(&op) {
            behind.push(op);
            next.extend(&func.ops[op].operands);
        }
    }
    Ok(behind)
}

/// A product whose factors are among what is loaded: both, and whether threads multiply by themselves.
fn direct(func: &Func, units: &Units, loaded: &[Op], product: Op, warps: u64) -> Result<([Copied; 2], bool), Reason> {
    let (mma, at) = (&func.ops[product], func.ops[product].span);
    let no = |text: &'static str| Reason::at(text, at);
    if func.ty(mma.one(2)).as_tile().is_none_or(|tile| tile.shape.len() != 2) {
        return Err(no("a product of several matrices has more than two axes"));
    }
    let factor = |position| source(func, mma.one(position)).filter(|load| loaded.contains(load));
    let missing = || no("a factor is not what a load yields");
    let (lhs, rhs) = (factor(0).ok_or_else(missing)?, factor(1).ok_or_else(missing)?);
    let number = |value| func.ty(value).num().ok_or_else(|| no("an operand holds no numbers"));
    let (dtype, out) = (number(mma.one(0))?, number(mma.one(2))?);
    let by_threads = instruction(func, product, units, warps).is_none();
    if number(mma.one(1))? != dtype || by_threads && (dtype, out) != (DType::F32, DType::F32) {
        return Err(Reason::at(format!("products of `{dtype}` into `{out}` of this size have no instruction"), at));
    }
    let slots = [slots::padded(func, lhs, 1, by_threads)?, slots::padded(func, rhs, 0, by_threads)?];
    if let (true, Some([m, n])) = (by_threads, func.ty(mma.one(2)).as_tile().map(|tile| &tile.shape[..])) {
        let shape = [u64::from(*m), u64::from(*n)];
        if outer::layout(shape, outer::deep(slots.each_ref()), warps).is_none() {
            return Err(no("the threads cannot share the accumulator evenly, or hold too much of it each"));
        }
    }
    let [left, right] = slots;
    Ok(([Copied { load: lhs, slot: left }, Copied { load: rhs, slot: right }], by_threads))
}

/// The axis of contraction, of its tile's last two, of a load that is a factor as it lies: fragments are read from it though the product's other
/// factor is computed.
fn contraction(func: &Func, products: &[Op], load: Op) -> Option<usize> {
    let rank = shape(func, func.ops[load].results[0]).len();
    let fastest = slots::contiguous_axis(func, load)?.checked_sub(rank.checked_sub(2)?)?;
    products.iter().flat_map(|&product| [(product, 0), (product, 1)]).find_map(|(product, side)| {
        let factor = func.ops[product].one(side);
        let (_, axis) = fastest_axis(func, factor).filter(|_| looked_at(func, factor) == Some(load))?;
        // Fragments are read along two axes.
        let many = |value: Value| shape(func, value).into_iter().filter(|&extent| extent != 1).count() > 2;
        (!many(func.ops[load].results[0])).then_some(())?;
        Some(if axis == 1 - side { fastest } else { 1 - fastest })
    })
}

/// The load that a factor comes from through reshapes that drop leading axes of extent one.
fn source(func: &Func, factor: Value) -> Option<Op> {
    let mut op = func.defining_op(factor)?;
    while matches!(func.ops[op].kind, OpKind::Schedule(ScheduleOp::Reshape {})) {
        let (from, to) = (func.ty(func.ops[op].one(0)).as_tile()?, func.ty(func.ops[op].result()).as_tile()?);
        let dropped = from.shape.len().checked_sub(to.shape.len())?;
        if from.shape[dropped..] != to.shape[..] || from.shape[..dropped].iter().any(|&extent| extent != 1) {
            return None;
        }
        op = func.defining_op(func.ops[op].one(0))?;
    }
    matches!(func.ops[op].kind, OpKind::Schedule(ScheduleOp::LoadViewTko { .. })).then_some(op)
}

/// How many slots the loop has, and how many blocks then share a multiprocessor: as many as registers allow while there are three
/// slots. `loops` loops share what a block may have; `None` where two slots do not fit.
fn room(func: &Func, candidate: &Candidate, arch: Arch, units: &Units, warps: u32, loops: u64) -> Option<(u32, u32)> {
    let sums =
        products_of(func, candidate.looped).into_iter().filter_map(|product| func.ty(func.ops[product].result()).as_tile());
    let (mut held, mut bits) = (0, 0);
    for acc in sums {
        held += acc.len() as u64;
        bits += acc.len() as u64 * u64::from(acc.elem.num()?.bits());
    }
    let bytes = candidate.copies.iter().map(|copy| copy.slot.bytes()).sum::<u64>().max(1) * loops;
    let (limits, threads) = (arch.limits(), u64::from(warps * Arch::WARP));
    let registers = bits / 32 / threads + REGISTERS[usize::from(candidate.by_threads)];
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
