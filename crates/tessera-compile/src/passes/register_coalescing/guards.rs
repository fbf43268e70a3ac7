//! Conditions that neighbours share, and branches that follow each other on one condition.
//!
//! Where `x` and `n` are multiples of `g`, `x + r < n` is `x < n` for every `r` below `g`: a row of aligned neighbours lies in an array as a
//! whole or not at all. The accesses that such conditions guard then stand in one branch, and can become one.
//!
//! ```text
//! if 4 %t < %n { store 4 %t } ; if 4 %t + 1 < %n { store 4 %t + 1 }  =>  if 4 %t < %n { store 4 %t ; store 4 %t + 1 }    4 divides %n
//! ```

use rustc_hash::{FxHashMap, FxHashSet};
use tessera_ir::attrs::{Overflow, Predicate};
use tessera_ir::{Block, Const, Effects, Func, Op, OpKind, ScheduleOp, Type, Value, bug};

use tessera_analysis::facts::{Facts, power};
use tessera_analysis::linear::{Linear, Wraps};

/// Compares the first of a row of aligned neighbours where another one was compared; true if there was any.
pub(super) fn unify(func: &mut Func) -> bool {
    let facts = Facts::of(func);
    let mut scopes = Vec::new();
    let mut changed = false;
    unify_block(func, func.body, &facts, &mut scopes, &mut changed);
    changed
}

type Known = FxHashMap<Linear, Value>;

fn unify_block(func: &mut Func, block: Block, facts: &Facts, scopes: &mut Vec<Known>, changed: &mut bool) {
    scopes.push(Known::default());
    let mut out = Vec::new();
    for op in func.blocks[block].ops.clone() {
        if let Some((value, sum)) = first_of_row(func, op, facts) {
            let least = scopes.iter().find_map(|known| known.get(&sum).copied());
            let least = least.unwrap_or_else(|| {
                let (made, ops) = lowered(func, op, value, sum.constant, facts);
                out.extend(ops);
                made
            });
            if func.ops[op].operands[0] != least {
                func.ops[op].operands[0] = least;
                *changed = true;
            }
            if let Some(known) = scopes.last_mut() {
                known.insert(sum, least);
            }
        }
        out.push(op);
        for region in func.ops[op].regions.clone() {
            unify_block(func, region, facts, scopes, changed);
        }
    }
    func.blocks[block].ops = out;
    scopes.pop();
}

/// What a comparison compares, and the first of its row of aligned neighbours.
fn first_of_row(func: &Func, op: Op, facts: &Facts) -> Option<(Value, Linear)> {
    let data = &func.ops[op];
    let OpKind::Schedule(ScheduleOp::CmpI { predicate: Predicate::Lt | Predicate::Ge, .. }) = data.kind else { return None };
    let (value, limit) = (data.one(0), data.one(1));
    // Numbers of another width wrap at other multiples; these are the ones that indices have.
    if !func.ty(value).is_scalar() || !matches!(func.ty(value).num()?.bits(), 32 | 64) {
        return None;
    }
    let mut sum = Linear::of(func, facts, value, Wraps::Ignored);
    let row = sum.terms_divisor(facts).min(power(facts.fact(limit).divisor)) as i64;
    if row < 2 || sum.terms.is_empty() {
        return None;
    }
    sum.constant -= sum.constant.rem_euclid(row);
    Some((value, sum))
}

/// The value with another constant part: what a constant is added to where that fits, else a new difference.
fn lowered(func: &mut Func, at: Op, value: Value, constant: i64, facts: &Facts) -> (Value, Vec<Op>) {
    let own = Linear::of(func, facts, value, Wraps::Ignored).constant;
    if own == constant {
        return (value, Vec::new());
    }
    if let Some(op) = func.defining_op(value)
        && matches!(func.ops[op].kind, OpKind::Schedule(ScheduleOp::AddI { .. }))
    {
        let (other, added) = (func.ops[op].one(0), func.constant(func.ops[op].one(1)).and_then(Const::as_int));
        if added == Some(own - constant) {
            return (other, Vec::new());
        }
    }
    let (ty, span) = (func.ty(value).clone(), func.ops[at].span);
    let dtype = ty.num().unwrap_or_else(|| bug!("a limit that is `{ty}`"));
    let kind = ScheduleOp::Constant { value: Const::int(dtype, constant - own) };
    let number = func.make_op(kind.into(), &[], [ty.clone()], [], span);
    let added = func.ops[number].result();
    let kind = ScheduleOp::AddI { overflow: Overflow::Wraps };
    let sum = func.make_op(kind.into(), &[&[value], &[added]], [ty], [], span);
    (func.ops[sum].result(), vec![number, sum])
}

/// Merges branches on one condition between which nothing happens; true if there were any.
pub(super) fn merge(func: &mut Func) -> bool {
    let mut changed = false;
    let mut map = FxHashMap::default();
    merge_block(func, func.body, &mut map, &mut changed);
    changed
}

fn merge_block(func: &mut Func, block: Block, map: &mut FxHashMap<Value, Value>, changed: &mut bool) {
    let mut out: Vec<Op> = Vec::new();
    // The last branch, where it stands in `out`, and what depends on it since.
    let mut open: Option<(Op, usize, FxHashSet<Value>)> = None;
    for op in func.blocks[block].ops.clone() {
        replace_deep(func, op, map);
        let data = &func.ops[op];
        if let Some((first, at, after)) = &mut open {
            if data.row().effects == Effects::Pure && data.regions.is_empty() {
                if data.used().any(|used| after.contains(&used)) {
                    after.extend(&data.results);
                    out.push(op);
                } else {
                    out.insert(*at, op);
                    *at += 1;
                }
                continue;
            }
            if is_branch(func, op) && func.ops[op].one(0) == func.ops[*first].one(0) {
                // What depends on the first branch stays behind both.
                if !uses_any(func, op, &later(func, *first, after)) {
                    join(func, *first, op, map);
                    after.extend(func.ops[*first].results.iter().copied());
                    *changed = true;
                    continue;
                }
            }
        }
        open = is_branch(func, op).then(|| (op, out.len(), func.ops[op].results.iter().copied().collect()));
        out.push(op);
    }
    func.blocks[block].ops = out;
    for op in func.blocks[block].ops.clone() {
        for region in func.ops[op].regions.clone() {
            merge_block(func, region, map, changed);
        }
    }
}

/// What stands behind a branch and depends on it, its results aside, which its regions know.
fn later(func: &Func, branch: Op, after: &FxHashSet<Value>) -> FxHashSet<Value> {
    after.iter().copied().filter(|value| !func.ops[branch].results.contains(value)).collect()
}

fn replace(func: &mut Func, op: Op, map: &FxHashMap<Value, Value>) {
    let data = &mut func.ops[op];
    for used in data.operands.iter_mut().chain(&mut data.through) {
        *used = map.get(used).copied().unwrap_or(*used);
    }
}

/// A branch whose regions both go on behind it.
fn is_branch(func: &Func, op: Op) -> bool {
    let data = &func.ops[op];
    let goes_on = |&region: &Block| {
        let last = func.blocks[region].ops.last();
        last.is_some_and(|&last| matches!(func.ops[last].kind, OpKind::Schedule(ScheduleOp::Yield {})))
    };
    matches!(data.kind, OpKind::Schedule(ScheduleOp::If {}))
        && data.regions.iter().all(goes_on)
        && !tessera_analysis::exits::can_leave(func, op)
}

fn uses_any(func: &Func, op: Op, values: &FxHashSet<Value>) -> bool {
    let data = &func.ops[op];
    data.used().any(|used| values.contains(&used))
        || data.regions.iter().flat_map(|&region| &func.blocks[region].ops).any(|&inner| uses_any(func, inner, values))
}

/// Appends the second branch's regions to the first's.
fn join(func: &mut Func, first: Op, second: Op, map: &mut FxHashMap<Value, Value>) {
    let regions = func.ops[first].regions.clone().into_iter().zip(func.ops[second].regions.clone());
    for (to, from) in regions {
        let (Some(end), Some(last)) = (func.blocks[to].ops.pop(), func.blocks[from].ops.last().copied()) else {
            bug!("a branch without an end");
        };
        let yielded = func.ops[end].operands.clone();
        let results = func.ops[first].results.clone();
        let known: FxHashMap<Value, Value> = results.into_iter().zip(yielded.iter().copied()).collect();
        let moved = func.blocks[from].ops.clone();
        moved.iter().for_each(|&op| replace_deep(func, op, &known));
        func.blocks[to].ops.extend(moved);
        let data = &mut func.ops[last];
        data.operands.insert_many(0, yielded.iter().copied());
        data.segments[0] += yielded.len() as u16;
    }
    for old in func.ops[second].results.clone() {
        let ty: Type = func.ty(old).clone();
        let new = func.add_result(first, ty);
        func.values[new].name = func.values[old].name.clone();
        map.insert(old, new);
    }
}

fn replace_deep(func: &mut Func, op: Op, map: &FxHashMap<Value, Value>) {
    replace(func, op, map);
    for region in func.ops[op].regions.clone() {
        for inner in func.blocks[region].ops.clone() {
            replace_deep(func, inner, map);
        }
    }
}
