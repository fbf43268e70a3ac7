//! Left factors that threads make in registers: the next round's first one is begun while the tensor cores have this round's last product.
//!
//! ```text
//! for (acc) { wait slot; a = load; f = wgmma a; b = load; g = wgmma b; x = wait [f] {pending=1}; s = fma x, acc; y = wait [g]; release; acc = fma y, s }
//!
//! if there is a round {
//!   wait slot; a = load
//!   for the other rounds (a, acc) {
//!     f = wgmma a; b = load; g = wgmma b; x = wait [f] {pending=1}; s = fma x, acc
//!     wait next slot; a = load
//!     y = wait [g]; release; acc = fma y, s
//!   }
//!   f = wgmma a; ...; acc = fma y, s
//! }
//! ```
//!
//! A round falls into its *start*, which waits for slots and makes the first product's left factor, its *end*, from the last wait for a product
//! on, and what is between. No product is in flight where a round ends: of sums in flight that a next round reads, the assembler makes products one
//! by one (C7514). It may put the factor's arithmetic behind the last wait; the wait for the slot and the reads stay before it.
//!
//! **Predicate.** A round does nothing but wait, read, compute, multiply and give slots back, and has two products or more, since a carried
//! factor costs moves: 28 instructions beside 191 in a round of one. Its start needs nothing of the last round's end; rings have [`SLOTS`] slots or
//! more, since two are held at a time; sums and factors fit the registers of the role.

use rustc_hash::{FxHashMap, FxHashSet};
use tessera_ir::{Changed, Effects, Func, Op, OpData, OpKind, TileOp, Type, Value, bug};
use tessera_types::Limits;

use super::peel::{self, Peeled};
use super::queue::mapped;
use crate::rewrite::copy;

/// The fewest slots of a ring: two that are read, one that is filled.
const SLOTS: u32 = 3;

/// Registers of a thread beside sums and factors.
const OTHERS: u64 = 40;

/// A round in parts, each in the order of the loop's body.
struct Round {
    looped: Op,
    start: Vec<Op>,
    /// Up to the last wait for a product, and views of slots once more that the start has, too.
    middle: Vec<Op>,
    end: Vec<Op>,
    /// What the middle and the end need of the start, and of what the loop carries and counts.
    needed: Vec<Value>,
}

/// Rearranges every loop of a role that allows it.
pub(super) fn make_ahead(func: &mut Func) -> Changed {
    let mut changed = false;
    for role in func.blocks[func.body].ops.clone() {
        let OpKind::Tile(TileOp::Role { registers, .. }) = func.ops[role].kind else { continue };
        for block in func.blocks_within(func.ops[role].regions[0]) {
            for op in func.blocks[block].ops.clone() {
                if let Some(round) = find(func, op, u64::from(registers.unwrap_or(Limits::THREAD_REGISTERS))) {
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

fn find(func: &Func, looped: Op, registers: u64) -> Option<Round> {
    if !peel::counts(func, looped) {
        return None;
    }
    let body = func.ops[looped].regions[0];
    let (&last, ops) = func.blocks[body].ops.split_last()?;
    let (args, handed) = (&func.blocks[body].args, func.ops[last].group(0));
    let products = || ops.iter().copied().filter(|&op| matches!(func.ops[op].kind, OpKind::Tile(TileOp::Wgmma { .. })));
    let waits = |op: &Op| matches!(func.ops[*op].kind, OpKind::Tile(TileOp::WgmmaWait { pending: 0 }));
    let (first, wait) = (products().next()?, ops.iter().rposition(waits)?);
    let held = |value: Value| func.ty(value).layout().map(tessera_layout::Distribution::registers);
    let (factor, sums) = (func.ops[first].one(0), held(func.ops[first].result())?);
    // Sums of two products and the loop's own; two factors of 16 bits.
    let fits = 3 * sums + held(factor)? + OTHERS <= registers;
    if !fits || products().count() < 2 || !ops[..wait].iter().all(|&op| is_early(func, op)) {
        return None;
    }

    let makes = slice(func, ops, factor);
    let (mut start, mut middle) = (Vec::new(), Vec::new());
    for &op in &ops[..wait] {
        let starts = makes.contains(&op) || is_wait(func, op);
        if starts { start.push(op) } else { middle.push(op) }
    }
    let mut end = vec![ops[wait]];
    let mut computed: FxHashSet<Value> = func.ops[ops[wait]].results.iter().copied().collect();
    for &op in &ops[wait + 1..] {
        let data = &func.ops[op];
        match data.kind {
            OpKind::Tile(TileOp::Release {}) if has_slots(func, data.one(0)) => end.push(op),
            _ if !is_plain(data) => return None,
            _ if data.used().any(|used| computed.contains(&used)) => {
                computed.extend(&data.results);
                end.push(op);
            }
            _ => middle.push(op),
        }
    }
    let hidden = |value: Value| args[1..].iter().zip(handed).any(|(&arg, next)| arg == value && computed.contains(next));
    if start.iter().any(|&op| func.ops[op].used().any(hidden)) {
        return None;
    }

    // Views of slots are made again of what is carried.
    let views = |op: Op| func.ops[op].results.iter().any(|&result| matches!(func.ty(result), Type::Shared(_)));
    let again: Vec<Op> = start.iter().copied().filter(|&op| views(op)).collect();
    middle.splice(0..0, again);
    let behind = || middle.iter().chain(&end);
    let made: FxHashSet<Value> = behind().flat_map(|&op| func.ops[op].results.iter().copied()).collect();
    let outer: FxHashSet<Value> =
        start.iter().flat_map(|&op| func.ops[op].results.iter().copied()).chain(args.iter().copied()).collect();
    let mut needed: Vec<Value> = Vec::new();
    for used in behind().flat_map(|&op| func.ops[op].used()).chain(handed.iter().copied()) {
        if outer.contains(&used) && !made.contains(&used) && !needed.contains(&used) {
            needed.push(used);
        }
    }
    Some(Round { looped, start, middle, end, needed })
}

fn is_wait(func: &Func, op: Op) -> bool {
    matches!(func.ops[op].kind, OpKind::Tile(TileOp::Wait {}))
}

fn is_plain(data: &OpData) -> bool {
    data.row().effects == Effects::Pure && data.regions.is_empty() && data.through.is_none()
}

/// What may stand before the last wait.
fn is_early(func: &Func, op: Op) -> bool {
    let data = &func.ops[op];
    match &data.kind {
        OpKind::Tile(TileOp::Wgmma { .. }) => func.ty(data.one(0)).layout().is_some(),
        OpKind::Tile(TileOp::Wait {} | TileOp::WgmmaWait { .. }) => true,
        OpKind::Tile(TileOp::LoadShared {}) => data.through.is_none(),
        _ => is_plain(data),
    }
}

fn has_slots(func: &Func, ring: Value) -> bool {
    let made = func.defining_op(ring).map(|op| &func.ops[op].kind);
    matches!(made, Some(OpKind::Tile(TileOp::Ring { stages, .. })) if *stages >= SLOTS)
}

/// Those of some operations that a value is computed by.
fn slice(func: &Func, ops: &[Op], value: Value) -> FxHashSet<Op> {
    let (mut found, mut next) = (FxHashSet::default(), vec![value]);
    while let Some(value) = next.pop() {
        if let Some(op) = func.defining_op(value).filter(|op| ops.contains(op) && !found.contains(op)) {
            found.insert(op);
            next.extend(func.ops[op].used());
        }
    }
    found
}

/// The loop in its new form.
fn rearrange(func: &mut Func, round: &Round) -> Vec<Op> {
    let body = func.ops[round.looped].regions[0];
    let args = func.blocks[body].args.clone();
    let &last = func.blocks[body].ops.last().unwrap_or_else(|| bug!("a loop's body without an end"));
    let handed = func.ops[last].group(0).to_vec();
    let of_round =
        |needed: &[Value]| round.needed.iter().copied().zip(needed.iter().copied()).collect::<FxHashMap<Value, Value>>();

    let (mut peeled, mut map) = Peeled::of(func, round.looped);
    copy(func, &round.start, &mut map, peeled.ops());

    let mut others = peeled.others(func, mapped(&map, &round.needed));
    let counter = others.map[&args[0]];
    let (mut inner, mut before) = (Vec::new(), of_round(&others.carried));
    copy(func, &round.middle, &mut before, &mut inner);
    others.map = args[1..].iter().copied().zip(mapped(&before, &handed)).chain([(args[0], counter)]).collect();
    copy(func, &round.start, &mut others.map, &mut inner);
    copy(func, &round.end, &mut before, &mut inner);
    others.map.extend(args[1..].iter().copied().zip(mapped(&before, &handed)));
    let next = mapped(&others.map, &round.needed);
    let results = peeled.rest(func, others, inner, &next);

    let mut before = of_round(&results);
    copy(func, &round.middle, &mut before, peeled.ops());
    copy(func, &round.end, &mut before, peeled.ops());
    peeled.done(func, &mapped(&before, &handed))
}
