//! Two chained products of a loop, each under the other's work: a round starts its first product together with the last round's second
//! one, and works on what the first one yields while the second one runs.
//!
//! ```text
//! for { s = first; p, scaled = work(s, acc); acc = second(p, scaled) }
//!
//! if there is a round {
//!   s = first; p, scaled = work(s, acc)
//!   for the other rounds { start first; start second(p, scaled); s = wait; p = work(s); acc = wait; scaled = rescale(acc) }
//!   acc = second(p, scaled)
//! }
//! ```
//!
//! A round's operations fall into four parts: what leads to the first product's start, the second product with its slot of the ring,
//! what depends on the accumulator (*late*), and everything else. Every ring keeps its order, since each is used by one part alone.
//! Applies where the accumulator is only rescaled on its way to the second product and the loop counts by a constant; values in flight
//! have to fit the registers of the role.

use rustc_hash::{FxHashMap, FxHashSet};
use tessera_ir::{Changed, Func, Op, OpKind, ScheduleOp, TileOp, Value};
use tessera_types::Limits;

use super::peel::{self, Peeled};
use super::queue::mapped;
use crate::rewrite::{copy, deep};

/// Registers of a thread beside sums and factors.
const OTHERS: usize = 40;

/// A round in parts, each in the order of the loop's body.
struct Round {
    looped: Op,
    /// Up to the start of the first product.
    start: Vec<Op>,
    /// The second product with what it reads from its ring.
    second: Vec<Op>,
    /// The wait for the first product.
    first_done: Op,
    middle: Vec<Op>,
    /// The wait for the second product, and what gives its slot back.
    second_done: Vec<Op>,
    /// What depends on the accumulator, and the last conversions of the second product's left factor.
    late: Vec<Op>,
    /// The second product's left factor and accumulator.
    factor: Value,
    scaled: Value,
    /// What the second product yields.
    sums: Value,
    /// Positions of the accumulator and of the second ring's cursor among what is carried.
    accumulator: usize,
    cursor: usize,
    /// What the body hands on.
    handed: Vec<Value>,
}

/// Rearranges every loop of a role that allows it.
pub(super) fn overlap(func: &mut Func) -> Changed {
    let mut changed = false;
    for role in func.blocks[func.body].ops.clone() {
        let OpKind::Tile(TileOp::Role { registers, .. }) = func.ops[role].kind else { continue };
        for block in func.blocks_within(func.ops[role].regions[0]) {
            for op in func.blocks[block].ops.clone() {
                if let Some(round) = find(func, op, registers.unwrap_or(Limits::THREAD_REGISTERS) as usize) {
                    let new = rearrange(func, &round);
                    let at = func.blocks[block].place_of(op);
                    func.blocks[block].ops.splice(at..=at, new);
                    changed = true;
                }
            }
        }
    }
    Changed(changed)
}

fn is(func: &Func, op: Op, what: impl Fn(&TileOp) -> bool) -> bool {
    matches!(&func.ops[op].kind, OpKind::Tile(kind) if what(kind))
}

fn find(func: &Func, looped: Op, registers: usize) -> Option<Round> {
    let data = &func.ops[looped];
    if !peel::counts(func, looped) {
        return None;
    }
    let body = data.regions[0];
    let (&end, ops) = func.blocks[body].ops.split_last()?;
    let products: Vec<Op> = ops.iter().copied().filter(|&op| is(func, op, |kind| matches!(kind, TileOp::Wgmma { .. }))).collect();
    let &[first, second] = &products[..] else { return None };
    let done = |product: Op| {
        let waits = |op: &Op| is(func, *op, |kind| matches!(kind, TileOp::WgmmaWait { .. }));
        ops.iter().copied().find(|op| waits(op) && func.ops[*op].operands[..] == func.ops[product].results[..])
    };
    let (first_done, wait) = (done(first)?, done(second)?);
    let (factor, right, scaled) = (func.ops[second].one(0), func.ops[second].one(1), func.ops[second].one(2));
    let sums = func.ops[wait].result();
    let handed = func.ops[end].group(0).to_vec();
    let accumulator = handed.iter().position(|&value| value == sums)?;
    let carried = &func.blocks[body].args[1..];
    let acc = carried[accumulator];
    let held = |value: Value| func.ty(value).layout().map(|layout| layout.registers() as usize);
    let in_flight = held(sums)? + held(func.ops[first_done].result())? + held(factor)? / 2;
    if in_flight + OTHERS > registers {
        return None;
    }

    // The second product's slot: its ring is used by nothing else.
    let mut slots: FxHashSet<Op> = FxHashSet::default();
    let mut next = vec![right];
    let mut queue = None;
    while let Some(value) = next.pop() {
        let Some(op) = func.defining_op(value) else { continue };
        if ops.contains(&op) && slots.insert(op) {
            if is(func, op, |kind| matches!(kind, TileOp::Slot { .. })) {
                queue = Some((func.ops[op].one(0), func.ops[op].one(1)));
            } else {
                next.extend(&func.ops[op].operands);
            }
        }
    }
    let (ring, at) = queue?;
    let cursor = carried.iter().position(|&value| value == at)?;
    let of_ring = |op: &Op| !slots.contains(op) && func.ops[*op].operands.first() == Some(&ring);
    let reads = |op: Op, values: &dyn Fn(Value) -> bool| used(func, op).into_iter().any(values);

    let mut behind: FxHashSet<Op> = FxHashSet::default();
    let mut tainted: FxHashSet<Value> = std::iter::once(acc).collect();
    for &op in ops {
        if op != second && reads(op, &|value| tainted.contains(&value)) {
            behind.insert(op);
            tainted.extend(&func.ops[op].results);
        }
    }
    // A first product that needs the last round's sums starts behind them.
    if behind.contains(&first) {
        return None;
    }
    let mut value = factor;
    while let Some(op) = func.defining_op(value) {
        let converts =
            matches!(func.ops[op].kind, OpKind::Schedule(ScheduleOp::FToF { .. }) | OpKind::Tile(TileOp::ConvertLayout {}));
        let only = func
            .linked_ops()
            .iter()
            .map(|&user| used(func, user).into_iter().filter(|&used| used == value).count())
            .sum::<usize>();
        if !ops.contains(&op) || !converts || only != 1 {
            break;
        }
        behind.insert(op);
        value = func.ops[op].one(0);
    }

    let mut round = Round {
        looped,
        start: Vec::new(),
        second: Vec::new(),
        first_done,
        middle: Vec::new(),
        second_done: Vec::new(),
        late: Vec::new(),
        factor,
        scaled,
        sums,
        accumulator,
        cursor,
        handed,
    };
    let mut started = false;
    for &op in ops {
        let part =
            if op == second || slots.contains(&op) || (of_ring(&op) && is(func, op, |kind| matches!(kind, TileOp::Wait {}))) {
                &mut round.second
            } else if op == wait || of_ring(&op) {
                &mut round.second_done
            } else if behind.contains(&op) {
                &mut round.late
            } else if op == first_done {
                continue;
            } else if started {
                &mut round.middle
            } else {
                &mut round.start
            };
        part.push(op);
        started |= op == first;
    }
    legal(func, &round, acc).then_some(round)
}

/// Values that an operation and its regions read.
pub(super) fn used(func: &Func, op: Op) -> Vec<Value> {
    let mut values = func.ops[op].operands.to_vec();
    for &region in &func.ops[op].regions {
        values.extend(func.blocks[region].ops.iter().flat_map(|&op| used(func, op)));
    }
    values
}

/// No part reads what a later one computes.
fn legal(func: &Func, round: &Round, acc: Value) -> bool {
    let results = |ops: &[Op]| ops.iter().flat_map(|&op| func.ops[op].results.clone()).collect::<FxHashSet<Value>>();
    let (second, done, late) = (results(&round.second), results(&round.second_done), results(&round.late));
    let early = |value: Value| second.contains(&value) || done.contains(&value) || late.contains(&value) || value == acc;
    let reads = |ops: &[Op], bad: &dyn Fn(Value) -> bool| ops.iter().any(|&op| used(func, op).into_iter().any(bad));
    let middle = results(&round.middle);
    let own = |value: Value| value == round.factor || value == round.scaled;
    let in_order = !reads(&round.start, &early)
        && !reads(&round.start, &|value| middle.contains(&value))
        && !reads(&round.middle, &early)
        && !reads(&round.late, &|value| second.contains(&value) || done.contains(&value))
        && !reads(&round.second, &|value| (middle.contains(&value) || late.contains(&value) || value == acc) && !own(value))
        && !reads(&round.second_done, &|value| middle.contains(&value) || late.contains(&value));
    // What is handed on besides is known when the round's middle is.
    let plain = round.handed.iter().enumerate().all(|(position, &value)| {
        let own = position == round.accumulator || position == round.cursor;
        own || !(early(value))
    });
    let moves = |ops: &[Op]| ops.iter().all(|&op| func.ops[op].regions.is_empty());
    in_order && plain && moves(&round.second) && moves(&round.second_done)
}

/// Copies a wait for products, so many of which may go on.
fn copy_wait(func: &mut Func, op: Op, pending: u32, map: &mut FxHashMap<Value, Value>, out: &mut Vec<Op>) {
    let made = deep(func, op, map);
    func.ops[made].kind = TileOp::WgmmaWait { pending }.into();
    out.push(made);
}

/// The loop in its new form.
fn rearrange(func: &mut Func, round: &Round) -> Vec<Op> {
    let data = func.ops[round.looped].clone();
    let (init, args) = (data.group(3), func.blocks[data.regions[0]].args.clone());
    let acc = args[round.accumulator + 1];

    // The first round, without its second product.
    let (mut peeled, mut map) = Peeled::of(func, round.looped);
    copy(func, &round.start, &mut map, peeled.ops());
    copy_wait(func, round.first_done, 0, &mut map, peeled.ops());
    copy(func, &round.middle, &mut map, peeled.ops());
    copy(func, &round.late, &mut map, peeled.ops());
    let mut starts = mapped(&map, &round.handed);
    starts[round.accumulator] = mapped(&map, &[round.scaled])[0];
    starts[round.cursor] = init[round.cursor];
    starts.extend(mapped(&map, &[round.factor]));

    // The others.
    let mut others = peeled.others(func, starts);
    let mut inner = Vec::new();
    let (scaled, factor) = (others.carried[round.accumulator], others.carried[others.carried.len() - 1]);
    let map = &mut others.map;
    copy(func, &round.start, map, &mut inner);
    map.insert(round.factor, factor);
    map.insert(round.scaled, scaled);
    copy(func, &round.second, map, &mut inner);
    copy_wait(func, round.first_done, 1, map, &mut inner);
    copy(func, &round.middle, map, &mut inner);
    copy(func, &round.second_done, map, &mut inner);
    let sums = mapped(map, &[round.sums])[0];
    map.insert(acc, sums);
    copy(func, &round.late, map, &mut inner);
    let mut next = mapped(map, &round.handed);
    next[round.accumulator] = mapped(map, &[round.scaled])[0];
    next.extend(mapped(map, &[round.factor]));
    let results = peeled.rest(func, others, inner, &next);

    // The last round's second product.
    let mut map: FxHashMap<Value, Value> = FxHashMap::default();
    map.insert(args[round.cursor + 1], results[round.cursor]);
    map.insert(round.factor, results[results.len() - 1]);
    map.insert(round.scaled, results[round.accumulator]);
    copy(func, &round.second, &mut map, peeled.ops());
    copy(func, &round.second_done, &mut map, peeled.ops());
    let mut yielded = results[..init.len()].to_vec();
    yielded[round.accumulator] = mapped(&map, &[round.sums])[0];
    yielded[round.cursor] = mapped(&map, &[round.handed[round.cursor]])[0];
    peeled.done(func, &yielded)
}
