//! Loads of several rounds of a loop before the first of them is used.
//!
//! ```text
//! for %k in 0..%n (%sum) { %x = load [%k]; %sum = %sum + %x }
//!
//! for %k in 0..%n & -4 by 4 (%sum) { %a = load [%k]; %b = load [%k + 1]; ...; %sum = %sum + %a; %sum = %sum + %b; ... }
//! for %k in %n & -4..%n (%sum) { %x = load [%k]; %sum = %sum + %x }
//! ```
//!
//! A round that uses what it loads waits for memory. Where other blocks of the multiprocessor work meanwhile, that is nothing; a grid of few blocks, as one
//! that sums the columns of a matrix, has none: of 64 blocks with rounds of 8 KiB each took 590 ns. Holding what comes next from round to round does not help
//! (the copy at a round's end waits for it), so the rounds stand side by side.
//!
//! **Predicate.** The place of what is loaded follows from the counter and from what is the same in all rounds, nobody writes the array, and the loop writes
//! nothing, since one that does walks over work that a grid shares, in blocks enough; some tile has
//! several lines (blocks that walk along a row each are many, and their rounds few: rows of 768 by 1024 took 1.46 times as long); the rounds hold
//! no loop and no product, and are not so few that all of them stand side by side anyway; a thread has a whole vector of each load, and no more than [`REGISTERS`] of what is carried and of what is loaded together.

use rustc_hash::{FxHashMap, FxHashSet};
use smallvec::SmallVec;
use tessera_analysis::exits::loop_exits;
use tessera_analysis::memory::{accesses, is_written};
use tessera_ir::attrs::Predicate;
use tessera_ir::{Block, Builder, Changed, Const, Func, Op, OpKind, ScheduleOp, Shape, TileOp, Type, Value, bug};
use tessera_types::Arch;

use super::early::{Loads, from_the_counter};
use super::numbers::{Numbers, apart};
use super::peel::counts;
use super::queue::range;
use super::threads;
use crate::rewrite::{copy, deep, drop_dead};

/// Registers of a thread for what a loop carries and loads.
const REGISTERS: u64 = 64;

/// Registers of the widest access.
const VECTOR: u64 = 4;

/// Rounds whose loads stand together, at most and at least.
const ROUNDS: (u64, u64) = (4, 2);

/// Operations of a round: several of more are no small loop any more.
const OPERATIONS: usize = 64;

/// Rearranges every loop that allows it.
pub(super) fn batch(func: &mut Func) -> Changed {
    if func.plan.is_some() || func.hints.occupancy.is_some() || func.linked_ops().into_iter().any(|op| is_planned(func, op)) {
        return Changed(false);
    }
    let threads = u64::from(Arch::WARP * threads::warps(func));
    let mut changed = false;
    for block in func.linked_blocks() {
        for op in func.blocks[block].ops.clone() {
            if let Some((loads, rounds)) = find(func, op, threads) {
                rearrange(func, block, op, &loads, rounds);
                changed = true;
            }
        }
    }
    if changed {
        drop_dead(func);
    }
    Changed(changed)
}

/// Whether an operation belongs to a product of matrices or to a plan, which have pipelines of their own.
fn is_planned(func: &Func, op: Op) -> bool {
    match &func.ops[op].kind {
        OpKind::Tile(kind) => !matches!(kind, TileOp::Vary {}),
        OpKind::Schedule(kind) => matches!(
            kind,
            ScheduleOp::MmaF { .. } | ScheduleOp::MmaI { .. } | ScheduleOp::MmaFSparse {} | ScheduleOp::MmaFScaled {}
        ),
        OpKind::Graph(_) => true,
    }
}

/// The loads of a loop, and of how many rounds there are registers for.
fn find(func: &Func, looped: Op, threads: u64) -> Option<(Loads, u64)> {
    if !counts(func, looped) || func.constant(func.ops[looped].one(2))?.as_int() != Some(1) {
        return None;
    }
    let bound = |at: usize| func.constant(func.ops[looped].one(at)).and_then(Const::as_int);
    if let (Some(lower), Some(upper)) = (bound(0), bound(1))
        && upper.saturating_sub(lower) <= ROUNDS.0 as i64
    {
        return None;
    }
    let body = func.ops[looped].regions[0];
    let ops = &func.blocks[body].ops;
    let loops = |op: &Op| {
        let kind = &func.ops[*op].kind;
        matches!(kind, OpKind::Schedule(ScheduleOp::For { .. } | ScheduleOp::Loop {} | ScheduleOp::If {}))
    };
    let mut touched = SmallVec::new();
    accesses(func, looped, &mut touched);
    if touched.iter().any(|access| access.writes)
        || loop_exits(func, looped).len() != 1
        || ops.len() > OPERATIONS
        || ops.iter().any(loops)
    {
        return None;
    }
    let loads = from_the_counter(func, looped);
    if loads.iter().any(|&load| is_written(func, load)) {
        return None;
    }
    let registers = |ty: &Type| match ty.as_tile() {
        Some(tile) => (tile.len() as u64 * tile.elem.bits()).div_ceil(32 * threads),
        None => 0,
    };
    // Of a row at a time there are blocks enough, and few rounds.
    let wide = |load: &Op| {
        func.ty(func.ops[*load].results[0])
            .as_tile()
            .is_some_and(|tile| tile.shape.iter().filter(|&&extent| extent > 1).count() > 1)
    };
    if !loads.iter().any(wide) {
        return None;
    }
    let each: Vec<u64> = loads.iter().map(|&load| registers(func.ty(func.ops[load].results[0]))).collect();
    if each.is_empty() || each.iter().any(|&registers| registers < VECTOR) {
        return None;
    }
    let carried: u64 = func.blocks[body].args[1..].iter().map(|&value| registers(func.ty(value))).sum();
    let rounds = (REGISTERS.saturating_sub(carried) / each.iter().sum::<u64>()).min(ROUNDS.0);
    (rounds >= ROUNDS.1).then(|| (Loads::of(func, ops, loads), 1 << rounds.ilog2()))
}

/// Makes a loop of as many whole groups of rounds as there are, in front of one for the others.
fn rearrange(func: &mut Func, block: Block, looped: Op, loads: &Loads, rounds: u64) {
    let (span, [lower, upper, _]) = (func.ops[looped].span, range(func, looped));
    let mut map = FxHashMap::default();
    let first = deep(func, looped, &mut map);
    let own: Vec<Op> = loads.ops().iter().map(|&op| made(func, &map, op)).collect();
    let (mut ahead, [end, step]) = apart(func, span, |b| {
        let like = |b: &mut Builder<'_>, number: i64| {
            let dtype = b.func.ty(lower).num().unwrap_or_else(|| bug!("a counter that is no number"));
            b.constant(Const::int(dtype, number), Shape::new())
        };
        // None where there are no rounds, or more than can be counted.
        let zero = like(b, 0);
        let (any, left) = (b.is(lower, Predicate::Lt, upper), b.minus(upper, lower));
        let left = b.most(left, zero);
        let count = b.choose(any, left, zero);
        let groups = like(b, -(rounds as i64));
        let whole = b.same(ScheduleOp::AndI {}, &[count, groups]);
        let end = b.plus(lower, whole);
        [end, like(b, rounds as i64)]
    });
    (func.ops[first].operands[1], func.ops[first].operands[2]) = (end, step);
    several(func, func.ops[first].regions[0], &own, rounds);
    let results = func.ops[first].results.clone();
    let begins = func.ops[looped].operands.len() - results.len();
    func.ops[looped].operands[0] = end;
    func.ops[looped].operands[begins..].copy_from_slice(&results);
    let at = func.blocks[block].place_of(looped);
    ahead.push(first);
    func.blocks[block].ops.splice(at..at, ahead);
}

/// The copy of an operation with results.
fn made(func: &Func, map: &FxHashMap<Value, Value>, op: Op) -> Op {
    let copy = func.ops[op].results.first().and_then(|result| func.defining_op(*map.get(result)?));
    copy.unwrap_or_else(|| bug!("a load that was not copied"))
}

/// Has a loop's body do several rounds, after the loads of all.
fn several(func: &mut Func, body: Block, loads: &[Op], rounds: u64) {
    let loading: FxHashSet<Op> = loads.iter().copied().collect();
    let mut rest: Vec<Op> = func.blocks[body].ops.iter().copied().filter(|op| !loading.contains(op)).collect();
    let Some(end) = rest.pop() else { bug!("a body without an end") };
    let args = func.blocks[body].args.clone();
    let span = func.ops[end].span;
    let mut ops = loads.to_vec();
    let mut maps: Vec<FxHashMap<Value, Value>> = Vec::new();
    for round in 1..rounds {
        let (made, counter) = apart(func, span, |b| {
            let dtype = b.func.ty(args[0]).num().unwrap_or_else(|| bug!("a counter that is no number"));
            let number = b.constant(Const::int(dtype, round as i64), Shape::new());
            b.plus(args[0], number)
        });
        ops.extend(made);
        let mut map = FxHashMap::from_iter([(args[0], counter)]);
        copy(func, loads, &mut map, &mut ops);
        maps.push(map);
    }
    ops.extend(&rest);
    let mut carried = func.ops[end].operands.clone();
    for mut map in maps {
        map.extend(args[1..].iter().copied().zip(carried.iter().copied()));
        copy(func, &rest, &mut map, &mut ops);
        carried = func.ops[end].operands.iter().map(|value| map.get(value).copied().unwrap_or(*value)).collect();
    }
    func.ops[end].operands = carried;
    ops.push(end);
    func.blocks[body].ops = ops;
}
