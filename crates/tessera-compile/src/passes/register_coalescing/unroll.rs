//! Short loops are written out where their counter chooses among registers, or walks over elements that one access could move.
//!
//! ```text
//! for 0, 4, 1 (%j) { %p = offset %x, 4 %t + %j ; load_ptr_tko %p ... }      four loads of neighbours, aligned to 16 bytes
//! ```

use rustc_hash::{FxHashMap, FxHashSet};
use tessera_ir::{Block, Const, Func, Op, OpData, OpKind, ScheduleOp, TileOp, Type, Value, bug};

use super::accesses::Context;
use crate::rewrite::copy;
use tessera_analysis::exits::loop_exits;
use tessera_analysis::facts::Facts;
use tessera_analysis::linear::{Linear, Wraps};

/// The most rounds of a loop over registers, and of one over neighbours.
const OVER_REGISTERS: u64 = 64;
const OVER_NEIGHBOURS: u64 = 16;

/// The most operations that a loop becomes.
const MOST_OPS: usize = 2048;

/// Writes loops out; true if there were any.
pub(super) fn unroll(func: &mut Func, per_thread: bool) -> bool {
    let chosen = chosen(func, per_thread);
    if !chosen.is_empty() {
        block(func, func.body, &chosen);
    }
    !chosen.is_empty()
}

/// Rounds of a loop that can be written out: known, and left at the end of the body alone.
fn rounds(func: &Func, op: Op) -> Option<u64> {
    let rounds = func.known_rounds(&func.ops[op])?;
    let ends = func.blocks[func.ops[op].regions[0]].ops.last();
    let plain = ends.is_some_and(|&last| matches!(func.ops[last].kind, OpKind::Schedule(ScheduleOp::Continue {})));
    (rounds > 0 && plain && loop_exits(func, op).len() == 1 && !returns(func, func.ops[op].regions[0])).then_some(rounds)
}

fn returns(func: &Func, block: Block) -> bool {
    func.blocks[block].ops.iter().any(|&op| {
        matches!(func.ops[op].kind, OpKind::Schedule(ScheduleOp::Return {}))
            || func.ops[op].regions.iter().any(|&region| returns(func, region))
    })
}

/// The loops that are written out.
fn chosen(func: &Func, per_thread: bool) -> FxHashSet<Op> {
    let ops = func.linked_ops();
    let mut counters: FxHashMap<Value, (Op, u64)> = FxHashMap::default();
    for &op in ops.iter().filter(|&&op| matches!(func.ops[op].kind, OpKind::Schedule(ScheduleOp::For { .. }))) {
        if let Some(rounds) = rounds(func, op).filter(|&rounds| rounds <= OVER_REGISTERS) {
            counters.insert(func.blocks[func.ops[op].regions[0]].args[0], (op, rounds));
        }
    }
    let mut found = FxHashSet::default();
    if counters.is_empty() {
        return found;
    }
    over_registers(func, &ops, &counters, &mut found);
    if per_thread {
        over_neighbours(func, &ops, &counters, &mut found);
    }
    found.retain(|&op| {
        let rounds = func.known_rounds(&func.ops[op]).unwrap_or(u64::MAX);
        (size(func, op) as u64).saturating_mul(rounds) <= MOST_OPS as u64
    });
    found
}

fn size(func: &Func, op: Op) -> usize {
    let inner = func.ops[op].regions.iter().flat_map(|&region| &func.blocks[region].ops);
    1 + inner.map(|&op| size(func, op)).sum::<usize>()
}

/// Loops whose counters are all that indices into an array of registers consist of.
fn over_registers(func: &Func, ops: &[Op], counters: &FxHashMap<Value, (Op, u64)>, found: &mut FxHashSet<Op>) {
    let facts = Facts::of(func);
    let mut loops: FxHashMap<Value, Option<FxHashSet<Op>>> = FxHashMap::default();
    for &op in ops {
        let data = &func.ops[op];
        let (array, indices) = match &data.kind {
            OpKind::Tile(TileOp::LoadElement {}) => (data.one(0), data.group(1)),
            OpKind::Tile(TileOp::StoreElement { .. }) => (data.one(1), data.group(2)),
            _ => continue,
        };
        if !matches!(func.ty(array), Type::Registers(_)) {
            continue;
        }
        let entry = loops.entry(array).or_insert_with(|| Some(FxHashSet::default()));
        for &index in indices {
            for (term, _) in Linear::of(func, &facts, index, Wraps::Ignored).terms {
                match (counters.get(&term), entry.as_mut()) {
                    (Some(&(looped, _)), Some(all)) => {
                        all.insert(looped);
                    }
                    _ => *entry = None,
                }
            }
        }
    }
    found.extend(loops.into_values().flatten().flatten());
}

/// Loops whose counters walk over elements, from an aligned one on.
fn over_neighbours(func: &Func, ops: &[Op], counters: &FxHashMap<Value, (Op, u64)>, found: &mut FxHashSet<Op>) {
    let cx = Context::new(func);
    for &op in ops {
        let Some(access) = cx.access(op) else { continue };
        for &(counter, factor) in access.terms() {
            let Some(&(looped, rounds)) = counters.get(&counter) else { continue };
            let data = &func.ops[looped];
            let (first, step) = (number(func, data, 0), number(func, data, 2));
            let walks = factor.wrapping_mul(step).abs() == 1 && (2..=OVER_NEIGHBOURS).contains(&rounds);
            if walks && cx.aligned_without(access, counter, first.wrapping_mul(factor)) >= 2 * access.bytes() {
                found.insert(looped);
            }
        }
    }
}

/// Inner loops first, so that what they become is copied.
fn block(func: &mut Func, at: Block, chosen: &FxHashSet<Op>) {
    let mut out = Vec::new();
    for op in func.blocks[at].ops.clone() {
        for region in func.ops[op].regions.clone() {
            block(func, region, chosen);
        }
        if chosen.contains(&op) {
            written_out(func, op, &mut out);
        } else {
            out.push(op);
        }
    }
    func.blocks[at].ops = out;
}

/// A bound or the step of a loop whose rounds are known.
fn number(func: &Func, data: &OpData, at: usize) -> i64 {
    func.constant(data.one(at)).and_then(Const::as_int).unwrap_or_else(|| bug!("an unknown bound of a loop of known rounds"))
}

fn written_out(func: &mut Func, op: Op, out: &mut Vec<Op>) {
    let data = func.ops[op].clone();
    let rounds = func.known_rounds(&data).unwrap_or_else(|| bug!("a loop of unknown rounds written out"));
    let (first, step) = (number(func, &data, 0), number(func, &data, 2));
    let body = data.regions[0];
    let args = func.blocks[body].args.clone();
    let ops = func.blocks[body].ops.clone();
    let Some((&last, ops)) = ops.split_last() else { bug!("a loop's body without an end") };
    let ty = func.ty(args[0]).clone();
    let dtype = ty.num().unwrap_or_else(|| bug!("a loop that counts with `{ty}`"));
    let mut values = data.group(3).to_vec();
    for round in 0..rounds {
        let value = Const::int(dtype, first + round as i64 * step);
        let counter = func.make_op(ScheduleOp::Constant { value }.into(), &[], [ty.clone()], [], data.span);
        out.push(counter);
        let mut map: FxHashMap<Value, Value> = args[1..].iter().copied().zip(values).collect();
        map.insert(args[0], func.ops[counter].result());
        copy(func, ops, &mut map, out);
        values = func.ops[last].group(0).iter().map(|value| map.get(value).copied().unwrap_or(*value)).collect();
    }
    let map: FxHashMap<Value, Value> = data.results.iter().copied().zip(values).collect();
    func.replace_uses(|value| map.get(&value).copied().unwrap_or(value));
}
