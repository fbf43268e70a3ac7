//! Products that go on while the next round's start: a round waits for the last round's product, not for its own, so that the tensor cores never
//! wait for the threads between two rounds.
//!
//! ```text
//! for (acc) { wait slot; f = wgmma slot, acc; acc = wait [f]; release slot }
//!
//! if there is a round {
//!   wait slot; f = wgmma slot, acc
//!   for the other rounds (f) { wait slot; f = wgmma slot, f; wait {pending=1}; release the last round's slot }
//!   acc = wait [f]; release the last slot
//! }
//! ```
//!
//! A turn that is handed on behind the loop ([`roles`](super::roles)) is handed on before the last wait: who takes it starts its products meanwhile.
//!
//! **Predicate.** Beside products whose factors, all of them, lie in slots of rings, a round does nothing but wait, compute addresses and give slots
//! back; what products yield is only added to by the next round; every ring has [`SLOTS`] slots or more, one of which is held longer.

use rustc_hash::{FxHashMap, FxHashSet};
use tessera_ir::{Block, Changed, Effects, Func, Op, OpData, OpKind, TileOp, Type, Value, bug};

use super::peel::{self, Peeled};
use super::queue::mapped;
use crate::rewrite::copy;

/// The fewest slots of a ring: one that is read, one that is held, one that is filled.
const SLOTS: u32 = 3;

/// A loop whose products can go on.
struct Carried {
    looped: Op,
    /// What every round does, without waits for products and without what gives their slots back.
    round: Vec<Op>,
    /// How many of that come before the first wait for products.
    until: usize,
    /// What gives slots back, with the position of the cursor among what is carried.
    releases: Vec<(Op, usize)>,
    /// Products of a round.
    products: u32,
    /// Of each accumulator the position among what is carried, the product in flight and what the round hands on of it.
    sums: Vec<Sum>,
    /// What hands a turn on behind the loop.
    turns: Vec<Op>,
}

struct Sum {
    position: usize,
    flying: Value,
    done: Value,
}

/// Rearranges every loop that allows it.
pub(super) fn carry(func: &mut Func) -> Changed {
    let mut changed = false;
    for block in func.linked_blocks() {
        for op in func.blocks[block].ops.clone() {
            if let Some(mut found) = find(func, op) {
                found.turns = turns(func, block, op);
                func.blocks[block].ops.retain(|op| !found.turns.contains(op));
                let new = rearrange(func, &found);
                let at = func.blocks[block].place_of(op);
                func.blocks[block].ops.splice(at..=at, new);
                changed = true;
            }
        }
    }
    Changed(changed)
}

fn find(func: &Func, looped: Op) -> Option<Carried> {
    if !peel::counts(func, looped) {
        return None;
    }
    let body = func.ops[looped].regions[0];
    let (&end, ops) = func.blocks[body].ops.split_last()?;
    let carried = &func.blocks[body].args[1..];
    let handed = func.ops[end].group(0);
    let uses = uses(func);
    let once = |value: &Value| uses.get(value) == Some(&1);

    let mut found =
        Carried { looped, round: Vec::new(), until: 0, releases: Vec::new(), products: 0, sums: Vec::new(), turns: Vec::new() };
    let mut rings: FxHashSet<(Value, Value)> = FxHashSet::default();
    let mut waited = false;
    for &op in ops {
        let data = &func.ops[op];
        match &data.kind {
            OpKind::Tile(TileOp::Wgmma { .. }) => {
                let acc = data.one(2);
                let goes_on = carried.contains(&acc) || matches!(func.ty(acc), Type::InFlight(_));
                // The next round's words would be written where this one's are read: what says where a factor stands, which is stored by half, is
                // an operand in registers.
                let held = data.places().is_some();
                if waited || held || !goes_on || !once(&acc) || !once(&data.result()) {
                    return None;
                }
                found.products += 1;
                rings.extend([slot(func, data.one(0))?, slot(func, data.one(1))?]);
                found.round.push(op);
            }
            OpKind::Tile(TileOp::WgmmaWait { .. }) => {
                for (&flying, &done) in data.group(0).iter().zip(&data.results) {
                    let position = handed.iter().position(|&value| value == done).filter(|_| once(&done))?;
                    if first(func, flying)? != carried[position] {
                        return None;
                    }
                    found.sums.push(Sum { position, flying, done });
                }
                found.until = if waited { found.until } else { found.round.len() };
                waited = true;
            }
            OpKind::Tile(TileOp::Release {}) if waited && rings.contains(&(data.one(0), data.one(1))) => {
                let cursor = carried.iter().position(|&value| value == data.one(1))?;
                found.releases.push((op, cursor));
            }
            _ if is_plain(data) => found.round.push(op),
            _ => return None,
        }
    }
    let long = |ring: Value| {
        let made = func.defining_op(ring).map(|op| &func.ops[op].kind);
        matches!(made, Some(OpKind::Tile(TileOp::Ring { stages, .. })) if *stages >= SLOTS)
    };
    let given_back = |&(ring, cursor): &(Value, Value)| {
        let of = |&&(op, _): &&(Op, usize)| func.ops[op].one(0) == ring && func.ops[op].one(1) == cursor;
        found.releases.iter().filter(of).count() == 1
    };
    let right = waited && found.products > 0 && rings.iter().all(|at| long(at.0) && given_back(at));
    right.then_some(found)
}

/// What hands a turn on behind a loop: operations on rings whose slots hold nothing, for which products need not have ended. Nothing but
/// arithmetic comes before them.
fn turns(func: &Func, block: Block, looped: Op) -> Vec<Op> {
    let ops = &func.blocks[block].ops;
    let behind = &ops[func.blocks[block].place_of(looped) + 1..];
    let mut later: FxHashSet<Value> = func.ops[looped].results.iter().copied().collect();
    let mut found = Vec::new();
    for &op in behind {
        let data = &func.ops[op];
        let known = !data.used().any(|used| later.contains(&used));
        match data.kind {
            OpKind::Tile(TileOp::Commit { .. } | TileOp::Release {}) if known && holds_nothing(func, data.one(0)) => {
                found.push(op)
            }
            _ if data.row().effects == Effects::Pure && data.regions.is_empty() => later.extend(&data.results),
            _ => break,
        }
    }
    found
}

fn holds_nothing(func: &Func, ring: Value) -> bool {
    matches!(func.ty(ring), Type::Ring(ring) if ring.slots.is_empty())
}

/// How often each value is used.
pub(super) fn uses(func: &Func) -> FxHashMap<Value, usize> {
    let mut uses = FxHashMap::default();
    for value in func.linked_ops().into_iter().flat_map(|op| func.ops[op].used().collect::<Vec<_>>()) {
        *uses.entry(value).or_default() += 1;
    }
    uses
}

/// What the first of the products that add up to one in flight begins with.
fn first(func: &Func, mut flying: Value) -> Option<Value> {
    while let Type::InFlight(_) = func.ty(flying) {
        let data = &func.ops[func.defining_op(flying)?];
        matches!(data.kind, OpKind::Tile(TileOp::Wgmma { .. })).then_some(())?;
        flying = data.one(2);
    }
    Some(flying)
}

/// The ring and the position whose slot a buffer is, or is a part of.
fn slot(func: &Func, buffer: Value) -> Option<(Value, Value)> {
    let data = &func.ops[func.defining_op(buffer)?];
    match data.kind {
        OpKind::Tile(TileOp::Slot { .. }) => Some((data.one(0), data.one(1))),
        OpKind::Tile(
            TileOp::SliceShared {} | TileOp::SubviewShared { .. } | TileOp::TransposeShared { .. } | TileOp::CollapseShared {},
        ) => slot(func, data.one(0)),
        _ => None,
    }
}

/// Computes or waits for slots, and nothing else.
fn is_plain(data: &OpData) -> bool {
    let computes = data.row().effects == Effects::Pure && data.regions.is_empty() && data.through.is_none();
    computes || matches!(data.kind, OpKind::Tile(TileOp::Wait {}))
}

/// The loop in its new form.
fn rearrange(func: &mut Func, found: &Carried) -> Vec<Op> {
    let data = func.ops[found.looped].clone();
    let span = data.span;
    let old = data.regions[0];
    let (args, carries) = (func.blocks[old].args.clone(), data.group(3).len());
    let &end = func.blocks[old].ops.last().unwrap_or_else(|| bug!("a loop's body without an end"));
    let handed = func.ops[end].group(0).to_vec();
    // What a round hands on, its products in flight, and then the slots that these read.
    let next = |map: &FxHashMap<Value, Value>| {
        let mut next = mapped(map, &handed);
        for sum in &found.sums {
            next[sum.position] = mapped(map, &[sum.flying])[0];
        }
        next.extend(found.releases.iter().map(|&(_, cursor)| mapped(map, &[args[cursor + 1]])[0]));
        next
    };
    let release = |func: &mut Func, cursors: &[Value], out: &mut Vec<Op>| {
        for (&(op, cursor), &at) in found.releases.iter().zip(cursors) {
            let mut map = std::iter::once((args[cursor + 1], at)).collect();
            copy(func, &[op], &mut map, out);
        }
    };

    let (mut peeled, mut map) = Peeled::of(func, found.looped);
    copy(func, &found.round, &mut map, peeled.ops());

    let mut others = peeled.others(func, next(&map));
    let mut inner = Vec::new();
    copy(func, &found.round[..found.until], &mut others.map, &mut inner);
    inner.push(func.make_op(TileOp::WgmmaWait { pending: found.products }.into(), &[&[]], [], [], span));
    release(func, &others.carried[carries..], &mut inner);
    copy(func, &found.round[found.until..], &mut others.map, &mut inner);
    let goes_on = next(&others.map);
    let results = peeled.rest(func, others, inner, &goes_on);

    peeled.ops().extend(&found.turns);
    copy(func, &found.turns, &mut FxHashMap::default(), &mut peeled.otherwise);

    // The last round's products.
    let flying: Vec<Value> = found.sums.iter().map(|sum| results[sum.position]).collect();
    let types: Vec<Type> = found.sums.iter().map(|sum| func.ty(sum.done).clone()).collect();
    let wait = func.make_op(TileOp::WgmmaWait { pending: 0 }.into(), &[&flying], types, [], span);
    peeled.ops().push(wait);
    release(func, &results[carries..], peeled.ops());
    let mut yielded = results[..carries].to_vec();
    for (sum, &done) in found.sums.iter().zip(&func.ops[wait].results) {
        yielded[sum.position] = done;
    }
    peeled.done(func, &yielded)
}
