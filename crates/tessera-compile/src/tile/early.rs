//! Small loads beside a round's products of warpgroups: each round loads what the next one needs, so that no product waits for memory.
//!
//! ```text
//! for %k in 0..%n { %s = load [%k]; %p = wgmma; %acc = %acc + %p * %s }
//!
//! %first = if 0 < %n { load [0] } else { 0 }
//! for %k in 0..%n (%s = %first) { %next = load [%k + 1]; %p = wgmma; %acc = %acc + %p * %s; continue %next }
//! ```
//!
//! What comes through rings is there in time. What threads load themselves, such as the scales of a round's sums, is asked for in the round that needs
//! it, and the assembler puts what waits for it before the products. The last round asks for its own again, so that nothing is read that was not.
//! A number that all threads load would be waited for behind its load all the same, so its place is varied ([`TileOp::Vary`]).
//!
//! **Predicate.** The place of what is loaded follows from the counter and from what is the same in all rounds, the loop writes no array, and a
//! thread holds no more than [`REGISTERS`] of it, and [`PLACES`] of what says where left factors stand.

use rustc_hash::{FxHashMap, FxHashSet};
use smallvec::SmallVec;
use tessera_analysis::memory::accesses;
use tessera_ir::attrs::{Overflow, Predicate, Signedness};
use tessera_ir::{Block, Changed, Const, Func, Op, OpKind, ScheduleOp, TileOp, Type, Value};
use tessera_types::DType;

use super::peel::counts;
use super::queue::range;
use super::roles::is_free;
use crate::rewrite::{copy, drop_dead};

/// Registers of a thread for what is loaded a round ahead: scales, not factors; and for where a factor stands that is stored by half.
const REGISTERS: u64 = 3;
const PLACES: u64 = 8;

/// Loads of a loop that are made a round ahead.
struct Early {
    looped: Op,
    /// Of numbers that all threads load, and of tiles.
    kinds: [Loads; 2],
}

/// Loads of one kind.
pub(super) struct Loads {
    loads: Vec<Op>,
    /// What says where they load, and they, in their order.
    slice: Vec<Op>,
}

impl Loads {
    pub(super) fn of(func: &Func, ops: &[Op], loads: Vec<Op>) -> Loads {
        let mut needed: FxHashSet<Value> = loads.iter().flat_map(|&load| func.ops[load].operands.iter().copied()).collect();
        let mut slice: Vec<Op> = Vec::new();
        for &op in ops.iter().rev() {
            let data = &func.ops[op];
            if loads.contains(&op) || data.results.iter().any(|result| needed.contains(result)) {
                needed.extend(&data.operands);
                slice.push(op);
            }
        }
        slice.reverse();
        Loads { loads, slice }
    }

    /// What says where they load, and they, in their order.
    pub(super) fn ops(&self) -> &[Op] {
        &self.slice
    }

    fn results(&self, func: &Func) -> Vec<Value> {
        self.loads.iter().map(|&load| func.ops[load].results[0]).collect()
    }

    /// Loads as another round does; what is loaded.
    fn at(&self, func: &mut Func, counter: Value, round: Value, ops: &mut Vec<Op>) -> Vec<Value> {
        let mut map: FxHashMap<Value, Value> = FxHashMap::from_iter([(counter, round)]);
        copy(func, &self.slice, &mut map, ops);
        self.results(func).iter().map(|result| map[result]).collect()
    }
}

/// Rearranges every loop of products that allows it.
pub(super) fn load_ahead(func: &mut Func) -> Changed {
    let mut changed = false;
    for block in func.linked_blocks() {
        for op in func.blocks[block].ops.clone() {
            if let Some(found) = find(func, op) {
                rearrange(func, block, &found);
                changed = true;
            }
        }
    }
    if changed {
        drop_dead(func);
    }
    Changed(changed)
}

fn find(func: &Func, looped: Op) -> Option<Early> {
    if !counts(func, looped) {
        return None;
    }
    let body = func.ops[looped].regions[0];
    let ops = &func.blocks[body].ops;
    let is_product = |op: &Op| matches!(func.ops[*op].kind, OpKind::Tile(TileOp::Wgmma { .. } | TileOp::WgmmaPromoted { .. }));
    if !ops.iter().any(is_product) {
        return None;
    }
    let mut touched = SmallVec::new();
    accesses(func, looped, &mut touched);
    if touched.iter().any(|access| access.writes) {
        return None;
    }
    let loads = from_the_counter(func, looped);
    let stand = places(func, ops);
    let held = |places: bool| -> u64 {
        let own = loads.iter().map(|&load| func.ops[load].results[0]).filter(|result| stand.contains(result) == places);
        own.map(|result| registers(func.ty(result))).sum()
    };
    if loads.is_empty() || held(false) > REGISTERS || held(true) > PLACES {
        return None;
    }
    let (numbers, tiles) = loads.into_iter().partition(|&load| func.ty(func.ops[load].results[0]).is_scalar());
    Some(Early { looped, kinds: [numbers, tiles].map(|loads| Loads::of(func, ops, loads)) })
}

/// Loads of a loop's rounds whose place follows from the counter and from what is the same in all rounds.
pub(super) fn from_the_counter(func: &Func, looped: Op) -> Vec<Op> {
    let body = func.ops[looped].regions[0];
    let ops = &func.blocks[body].ops;
    let (known, carried) = (func.blocks[body].args[0], &func.blocks[body].args[1..]);
    let inside: FxHashSet<Value> = ops.iter().flat_map(|&op| func.ops[op].results.iter().copied()).collect();
    // What follows from the counter.
    let mut follows: FxHashSet<Value> = FxHashSet::from_iter([known]);
    let mut loads = Vec::new();
    for &op in ops {
        let data = &func.ops[op];
        let is_known = |value: &Value| follows.contains(value) || !inside.contains(value) && !carried.contains(value);
        if !data.regions.is_empty() || !data.operands.iter().all(is_known) {
            continue;
        }
        let is_load = data.kind.schedule().is_some_and(ScheduleOp::is_weak_load) && zero(func, data.results[0]).is_some();
        // One that is the same in all rounds is the business of others.
        if is_load && !is_used(func, data.results[1]) && data.operands.iter().any(|value| follows.contains(value)) {
            loads.push(op);
        } else if is_free(func, op) {
            follows.extend(&data.results);
        }
    }
    loads
}

/// What says where left factors stand that are stored by half, and what that is computed from.
fn places(func: &Func, ops: &[Op]) -> FxHashSet<Value> {
    let mut found: FxHashSet<Value> = ops.iter().filter_map(|&op| func.ops[op].places()).collect();
    for &op in ops.iter().rev() {
        let data = &func.ops[op];
        if data.results.iter().any(|result| found.contains(result)) {
            found.extend(&data.operands);
        }
    }
    found
}

fn is_used(func: &Func, value: Value) -> bool {
    func.linked_ops().into_iter().any(|op| func.ops[op].used().any(|used| used == value))
}

/// Registers of a thread that hold a value.
fn registers(ty: &Type) -> u64 {
    match ty {
        Type::Distributed(ty) => (ty.layout.registers() * ty.tile.elem.bits()).div_ceil(32),
        ty => ty.as_tile().map_or(u64::MAX, |tile| tile.elem.bits().div_ceil(32)),
    }
}

/// What stands for a value that nobody reads.
fn zero(func: &Func, value: Value) -> Option<Const> {
    Some(Const::splat(func.ty(value).as_tile()?.elem.num()?, 0))
}

fn rearrange(func: &mut Func, block: Block, found: &Early) {
    let Early { looped, kinds: [numbers, tiles] } = found;
    let old = func.ops[*looped].clone();
    let (body, span, [lower, upper, step]) = (old.regions[0], old.span, range(func, *looped));
    let counter = func.blocks[body].args[0];
    let results = [numbers.results(func), tiles.results(func)].concat();
    let types: Vec<Type> = results.iter().map(|&result| func.ty(result).clone()).collect();
    let index = func.ty(counter).clone();
    let make = |func: &mut Func, kind: OpKind, operands: &[Value], ty: Type, ops: &mut Vec<Op>| {
        let groups: SmallVec<[&[Value]; 4]> = operands.iter().map(std::slice::from_ref).collect();
        let op = func.make_op(kind, &groups, [ty], [], span);
        ops.push(op);
        func.ops[op].result()
    };
    let below = || OpKind::from(ScheduleOp::CmpI { predicate: Predicate::Lt, signedness: Signedness::Signed });
    // Those of the first round, where there is one.
    let mut before = Vec::new();
    let any = make(func, below(), &[lower, upper], Type::scalar(DType::B1), &mut before);
    let mut loaded = Vec::new();
    let first = [numbers.at(func, counter, lower, &mut loaded), tiles.at(func, counter, lower, &mut loaded)].concat();
    let mut nothing = Vec::new();
    let zeros: Vec<Value> = results
        .iter()
        .filter_map(|&result| Some((zero(func, result)?, func.ty(result).clone())))
        .collect::<Vec<_>>()
        .into_iter()
        .map(|(value, ty)| make(func, ScheduleOp::Constant { value }.into(), &[], ty, &mut nothing))
        .collect();
    let ways = [(loaded, first), (nothing, zeros)].map(|(mut ops, values)| {
        ops.push(func.make_op(ScheduleOp::Yield {}.into(), &[&values], [], [], span));
        let way = func.new_block();
        func.blocks[way].ops = ops;
        way
    });
    let branch = func.make_op(ScheduleOp::If {}.into(), &[&[any]], types.clone(), ways, span);
    before.push(branch);
    let starts = func.ops[branch].results.to_vec();
    // Each round begins with those of the next one.
    let mut ops = Vec::new();
    let next = make(func, ScheduleOp::AddI { overflow: Overflow::Wraps }.into(), &[counter, step], index.clone(), &mut ops);
    let more = make(func, below(), &[next, upper], Type::scalar(DType::B1), &mut ops);
    let next = make(func, ScheduleOp::Select {}.into(), &[more, next, counter], index.clone(), &mut ops);
    let varied = make(func, TileOp::Vary {}.into(), &[next], index, &mut ops);
    let loaded = [numbers.at(func, counter, varied, &mut ops), tiles.at(func, counter, next, &mut ops)].concat();
    let own: FxHashMap<Value, Value> =
        results.iter().zip(&types).map(|(&result, ty)| (result, func.add_arg(body, ty.clone(), None))).collect();
    let rest: Vec<Op> =
        func.blocks[body].ops.iter().copied().filter(|op| !numbers.loads.contains(op) && !tiles.loads.contains(op)).collect();
    ops.extend(rest);
    func.blocks[body].ops = ops;
    func.replace_uses(|value| own.get(&value).copied().unwrap_or(value));
    let end = func.blocks[body].ops.pop().map(|end| func.ops[end].clone());
    let handed: Vec<Value> = end.iter().flat_map(|end| end.group(0).to_vec()).chain(loaded).collect();
    let end = func.make_op(ScheduleOp::Continue {}.into(), &[&handed], [], [], span);
    func.blocks[body].ops.push(end);
    let starts: Vec<Value> = old.group(3).iter().copied().chain(starts).collect();
    let types = old.results.iter().map(|&result| func.ty(result).clone()).chain(types).collect::<Vec<_>>();
    let made = func.make_op(old.kind, &[&[lower], &[upper], &[step], &starts], types, [body], span);
    let replaced: FxHashMap<Value, Value> = old.results.iter().copied().zip(func.ops[made].results.iter().copied()).collect();
    func.replace_uses(|value| replaced.get(&value).copied().unwrap_or(value));
    before.push(made);
    let at = func.blocks[block].place_of(*looped);
    func.blocks[block].ops.splice(at..=at, before);
}
