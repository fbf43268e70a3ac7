//! Changes of layout that undo each other, or that nobody needs, go.
//!
//! | from | to |
//! |---|---|
//! | to the layout that the tile has | the tile |
//! | two in a row | one |
//! | elementwise work between a change and the change back | the work in the first layout |
//! | a loop that carries a tile in another layout than it comes in, goes round in and is used in | the loop carries it as it comes |

use rustc_hash::FxHashMap;
use smallvec::SmallVec;
use tessera_ir::{Effects, Func, Op, OpKind, ScheduleOp, TileOp, Trait, Type, Value};

use crate::rewrite::{Step, make, rewrite};
use tessera_analysis::exits::loop_exits;
use tessera_analysis::uses::Uses;

/// How much work is done again in another layout, in operations that follow each other.
const DEEPEST: u32 = 6;

/// Removes changes of layout; true if there were any to remove.
pub(super) fn remove(func: &mut Func) -> bool {
    let has = func.linked_ops().into_iter().any(|op| matches!(func.ops[op].kind, OpKind::Tile(TileOp::ConvertLayout {})));
    if !has {
        return false;
    }
    let mut changed = false;
    // Each step leaves fewer changes of layout, or work that one of them waits for.
    for _ in 0..4 {
        let again = carried(func) | undone(func);
        changed |= again;
        if !again {
            break;
        }
    }
    changed
}

/// The tile that a change of layout is made of.
fn source(func: &Func, value: Value) -> Option<Value> {
    let data = &func.ops[func.defining_op(value)?];
    matches!(data.kind, OpKind::Tile(TileOp::ConvertLayout {})).then(|| data.one(0))
}

fn undone(func: &mut Func) -> bool {
    let uses = Uses::of(func);
    rewrite(func, |func, op, out| {
        if !matches!(func.ops[op].kind, OpKind::Tile(TileOp::ConvertLayout {})) {
            return Step::Keep;
        }
        let (from, ty) = (func.ops[op].one(0), func.ty(func.ops[op].result()).clone());
        if *func.ty(from) == ty {
            return Step::value(from);
        }
        if let Some(before) = source(func, from) {
            if *func.ty(before) == ty {
                return Step::value(before);
            }
            let through = func.ops[op].through;
            let value = make(func, op, TileOp::ConvertLayout {}, &[before], ty, out);
            if let Some(made) = func.defining_op(value) {
                func.ops[made].through = through;
            }
            return Step::value(value);
        }
        if uses.count(from) == 1 && saves(func, &uses, from, &ty, 0).is_some_and(|saved| saved > 0) {
            return Step::value(again(func, op, from, &ty, out));
        }
        Step::Keep
    })
    .0
}

/// How many changes of layout computing a value in another layout saves; `None` where it takes one.
fn saves(func: &Func, uses: &Uses, value: Value, like: &Type, depth: u32) -> Option<u32> {
    if func.ty(value).layout() == like.layout() || func.ty(value).is_scalar() {
        return Some(0);
    }
    let data = &func.ops[func.defining_op(value)?];
    match &data.kind {
        OpKind::Tile(TileOp::ConvertLayout {}) => (func.ty(data.one(0)).layout() == like.layout()).then_some(1),
        OpKind::Schedule(ScheduleOp::Constant { value }) => value.splat_bits().map(|_| 0),
        _ => {
            let plain = data.row().effects == Effects::Pure && data.row().has(Trait::Elementwise) && data.results.len() == 1;
            if !plain || depth == DEEPEST || uses.count(value) != 1 {
                return None;
            }
            data.operands.iter().map(|&operand| saves(func, uses, operand, like, depth + 1)).sum()
        }
    }
}

/// The value in the layout of a type.
fn again(func: &mut Func, at: Op, value: Value, like: &Type, out: &mut Vec<Op>) -> Value {
    if func.ty(value).layout() == like.layout() || func.ty(value).is_scalar() {
        return value;
    }
    if let Some(before) = source(func, value) {
        return before;
    }
    let Some(op) = func.defining_op(value) else { return value };
    let data = func.ops[op].clone();
    let operands: SmallVec<[Value; 4]> = data.operands.iter().map(|&operand| again(func, at, operand, like, out)).collect();
    let ty = match (func.ty(value).as_tile(), like.layout()) {
        (Some(tile), Some(layout)) => Type::distributed(tile.clone(), layout),
        _ => like.clone(),
    };
    make(func, at, data.kind, &operands, ty, out)
}

/// Loops carry a tile in the layout that it comes in, goes round in and is asked for in.
fn carried(func: &mut Func) -> bool {
    let mut changed = false;
    for op in func.linked_ops() {
        if !matches!(func.ops[op].kind, OpKind::Schedule(ScheduleOp::For { .. })) {
            continue;
        }
        let uses = Uses::of(func);
        for position in 0..func.ops[op].results.len() {
            changed |= carries(func, &uses, op, position);
        }
    }
    changed
}

fn carries(func: &mut Func, uses: &Uses, looped: Op, position: usize) -> bool {
    let body = func.ops[looped].regions[0];
    let (arg, result) = (func.blocks[body].args[1 + position], func.ops[looped].results[position]);
    let init = func.ops[looped].group(3)[position];
    let Some(before) = source(func, init) else { return false };
    let ty = func.ty(before).clone();
    let exits = loop_exits(func, looped);
    let mut handed: Vec<(Op, Value)> = Vec::new();
    for &exit in &exits {
        let value = func.ops[exit].operands[position];
        match source(func, value) {
            Some(before) if *func.ty(before) == ty => handed.push((exit, before)),
            _ if value == arg => handed.push((exit, arg)),
            _ => return false,
        }
    }
    // Whoever uses it must ask for the layout that it came in.
    let own = |func: &Func, value: Value| -> Option<Vec<Op>> {
        let users: Vec<Op> =
            func.linked_ops().into_iter().filter(|&user| func.ops[user].used().any(|used| used == value)).collect();
        let asks = |&user: &Op| {
            let data = &func.ops[user];
            matches!(data.kind, OpKind::Tile(TileOp::ConvertLayout {})) && *func.ty(data.result()) == ty
        };
        let others: Vec<Op> = users.into_iter().filter(|user| !exits.contains(user)).collect();
        others.iter().all(asks).then_some(others)
    };
    let (Some(inside), Some(outside)) = (own(func, arg), own(func, result)) else { return false };
    if uses.count(arg) + uses.count(result) == 0 {
        return false;
    }
    let first = func.ops[looped].operands.len() - func.ops[looped].results.len();
    func.ops[looped].operands[first + position] = before;
    for (exit, value) in handed {
        func.ops[exit].operands[position] = value;
    }
    func.values[arg].ty = ty.clone();
    func.values[result].ty = ty;
    let mut map: FxHashMap<Value, Value> = FxHashMap::default();
    map.extend(inside.iter().map(|&user| (func.ops[user].result(), arg)));
    map.extend(outside.iter().map(|&user| (func.ops[user].result(), result)));
    func.replace_uses(|value| map.get(&value).copied().unwrap_or(value));
    true
}
