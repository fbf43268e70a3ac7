//! Rounds whose last product is waited for in the next round, behind the start of that one's first product, where threads make the left factors in
//! registers: they make the next round's first factor while the tensor cores have the last one.
//!
//! ```text
//! for (acc) { f = wgmma first; g = wgmma second; x = wait [f] {pending=1}; sum = fma x, acc; y = wait [g]; release slot; acc = fma y, sum }
//!
//! if there is a round {
//!   f = wgmma first; g = wgmma second; x = wait [f] {pending=1}; sum = fma x, acc
//!   for the other rounds (g, sum, last) {
//!     f = wgmma first; y = wait [g] {pending=1}; release the last round's slot; acc = fma y, sum
//!     g = wgmma second; x = wait [f] {pending=1}; sum = fma x, acc
//!   }
//!   y = wait [g]; release the last slot; acc = fma y, sum
//! }
//! ```
//!
//! A round falls into the *start*, up to its first product, the *end*, from its last wait on, and the *rest* between; what the end needs of its
//! round is carried.
//!
//! **Predicate.** A round does nothing but wait, read, compute, multiply and give slots back; the start needs nothing of the last round's end; the
//! round has a second product, so that the one in flight has its registers to itself; rings have [`SLOTS`] slots or more, one of which is held
//! longer; what is in flight fits the registers of the role.

use rustc_hash::{FxHashMap, FxHashSet};
use tessera_ir::{Changed, Effects, Func, Op, OpData, OpKind, TileOp, Value, bug};
use tessera_types::Limits;

use super::carry::{SLOTS, uses};
use super::peel::{self, Peeled};
use super::queue::mapped;
use crate::rewrite::copy;

/// Registers of a thread beside sums and factors.
const OTHERS: u64 = 40;

/// A round in parts.
struct Round {
    looped: Op,
    start: Vec<Op>,
    rest: Vec<Op>,
    /// The last wait comes first.
    end: Vec<Op>,
    /// What the end needs of its round.
    needed: Vec<Value>,
    /// Positions, among what is carried, of what the end computes.
    late: Vec<usize>,
}

/// Rearranges every loop of a role that allows it.
pub(super) fn straddle(func: &mut Func) -> Changed {
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
    let (carried, handed) = (&func.blocks[body].args[1..], func.ops[last].group(0));
    let is_product = |op: &Op| matches!(func.ops[*op].kind, OpKind::Tile(TileOp::Wgmma { .. }));
    let first = ops.iter().position(is_product)?;
    let wait = ops.iter().rposition(|&op| matches!(func.ops[op].kind, OpKind::Tile(TileOp::WgmmaWait { pending: 0 })))?;
    let products: Vec<Op> = ops[..wait].iter().copied().filter(is_product).collect();
    let (&[flying], &[.., second]) = (&func.ops[ops[wait]].operands[..], &products[..]) else { return None };
    let held = |value: Value| func.ty(value).layout().map(tessera_layout::Distribution::registers);
    let (sums, factor) = (held(flying)?, held(func.ops[second].one(0))?);
    // Sums of two products and the round's own; a factor in flight, 16 bits each, and one that is made.
    let fits = 3 * sums + factor + OTHERS <= registers;
    if products.len() < 2 || func.ops[second].result() != flying || !fits || !ops[..wait].iter().all(|&op| is_early(func, op)) {
        return None;
    }

    let (mut end, mut rest) = (vec![ops[wait]], ops[first + 1..wait].to_vec());
    let mut computed: FxHashSet<Value> = func.ops[ops[wait]].results.iter().copied().collect();
    for &op in &ops[wait + 1..] {
        let data = &func.ops[op];
        let needs = data.used().any(|used| computed.contains(&used));
        match data.kind {
            OpKind::Tile(TileOp::Release {}) if has_slots(func, data.one(0)) => end.push(op),
            _ if is_plain(data) && needs => {
                computed.extend(&data.results);
                end.push(op);
            }
            _ if is_plain(data) => rest.push(op),
            _ => return None,
        }
    }
    let late: Vec<usize> = (0..handed.len()).filter(|&at| computed.contains(&handed[at])).collect();
    // What a round needs of the last one's end is there behind its start alone.
    let hidden = |value: Value| late.iter().any(|&at| carried[at] == value);
    if ops[..=first].iter().any(|&op| func.ops[op].used().any(hidden)) {
        return None;
    }
    sink(func, &mut rest, &mut end);

    let inside: FxHashSet<Value> = ops.iter().flat_map(|&op| func.ops[op].results.iter().copied()).chain(carried.iter().copied()).collect();
    let own: FxHashSet<Value> = end.iter().flat_map(|&op| func.ops[op].results.iter().copied()).collect();
    let mut needed: Vec<Value> = Vec::new();
    for used in end.iter().flat_map(|&op| func.ops[op].used()) {
        if inside.contains(&used) && !own.contains(&used) && !needed.contains(&used) {
            needed.push(used);
        }
    }
    Some(Round { looped, start: ops[..=first].to_vec(), rest, end, needed, late })
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

/// What makes one value of another for the end alone is done there: fewer registers are carried before a scale is broadcast.
fn sink(func: &Func, rest: &mut Vec<Op>, end: &mut Vec<Op>) {
    let uses = uses(func);
    for at in (0..rest.len()).rev() {
        let data = &func.ops[rest[at]];
        let (&[_], &[result]) = (&data.operands[..], &data.results[..]) else { continue };
        let there = end.iter().flat_map(|&op| func.ops[op].used()).filter(|&used| used == result).count();
        if is_plain(data) && uses.get(&result) == Some(&there) {
            end.insert(1, rest.remove(at));
        }
    }
}

/// The loop in its new form.
fn rearrange(func: &mut Func, round: &Round) -> Vec<Op> {
    let data = func.ops[round.looped].clone();
    let body = data.regions[0];
    let (args, initial) = (func.blocks[body].args.clone(), data.group(3).to_vec());
    let &last = func.blocks[body].ops.last().unwrap_or_else(|| bug!("a loop's body without an end"));
    let handed = func.ops[last].group(0).to_vec();
    // What a round hands on: what it is to carry, with what the loop began with for what is not known yet, and then what its end needs.
    let next = |map: &FxHashMap<Value, Value>| {
        let mut next = mapped(map, &handed);
        round.late.iter().for_each(|&at| next[at] = initial[at]);
        next.extend(mapped(map, &round.needed));
        next
    };
    // The end of the round that these are needed of.
    let finish = |func: &mut Func, needed: &[Value], pending: u32, out: &mut Vec<Op>| {
        let mut map = round.needed.iter().copied().zip(needed.iter().copied()).collect();
        let wait = out.len();
        copy(func, &round.end, &mut map, out);
        func.ops[out[wait]].kind = TileOp::WgmmaWait { pending }.into();
        map
    };

    let (mut peeled, mut map) = Peeled::of(func, round.looped);
    copy(func, &round.start, &mut map, peeled.ops());
    copy(func, &round.rest, &mut map, peeled.ops());

    let mut others = peeled.others(func, next(&map));
    let mut inner = Vec::new();
    copy(func, &round.start, &mut others.map, &mut inner);
    let done = finish(func, &others.carried[initial.len()..].to_vec(), 1, &mut inner);
    for &at in &round.late {
        others.map.insert(args[at + 1], mapped(&done, &[handed[at]])[0]);
    }
    copy(func, &round.rest, &mut others.map, &mut inner);
    let goes_on = next(&others.map);
    let results = peeled.rest(func, others, inner, &goes_on);

    let done = finish(func, &results[initial.len()..], 0, peeled.ops());
    let mut yielded = results[..initial.len()].to_vec();
    for &at in &round.late {
        yielded[at] = mapped(&done, &[handed[at]])[0];
    }
    peeled.done(func, &yielded)
}
