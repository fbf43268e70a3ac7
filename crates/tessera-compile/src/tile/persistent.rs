//! A program whose blocks each take several of the blocks that a launch asks for, one after the other.
//!
//! ```text
//! %i = block id; work(%i)     for %t in worker .. all step workers { %i = ... %t ...; work(%i) }
//! ```
//!
//! What does not follow from the block's place stays before the loop. Who fills rings goes on to the next block's tiles while this one's
//! result is stored. A program may not depend on when a block runs, so the result is the same.

use rustc_hash::{FxHashMap, FxHashSet};
use tessera_ir::attrs::{GridAxis, Overflow, Rounding, Signedness};
use tessera_ir::{Builder, Func, Op, OpKind, Reason, ScheduleOp, TileOp, Type, Value};
use tessera_types::DType;

use super::relation::has_layout;
use super::roles::is_free;

/// The function has a use of the block's place, and of nothing that a loop over places would change.
pub(super) fn can(func: &Func) -> Result<(), Reason> {
    if func.hints.num_ctas.is_some_and(|blocks| blocks > 1) {
        return Err("blocks of clusters do not share work one by one".into());
    }
    if places(func).is_empty() {
        return Err("the program does not say which block it is".into());
    }
    Ok(())
}

/// Where the program asks for the block's place.
fn places(func: &Func) -> Vec<(Op, GridAxis)> {
    let place = |op: Op| match func.ops[op].kind {
        OpKind::Schedule(ScheduleOp::GetTileBlockId { axis }) => Some((op, axis)),
        _ => None,
    };
    func.linked_ops().into_iter().filter_map(place).collect()
}

/// Wraps the function's body; `blocks` of it run on a multiprocessor.
pub(super) fn over_blocks(func: &mut Func, blocks: u32) {
    let places = places(func);
    let (before, inside) = split(func);
    let Some((&last, inside)) = inside.split_last() else { return };
    let span = func.span;
    func.blocks[func.body].ops = before;
    let index = Type::scalar(DType::I32);
    let mut b = Builder { block: func.body, span, func };
    let number = |b: &mut Builder<'_>, kind: TileOp| b.value(kind, &[], Type::scalar(DType::I32));
    let (worker, workers) = (number(&mut b, TileOp::Worker {}), number(&mut b, TileOp::Workers {}));
    let counts = [GridAxis::X, GridAxis::Y, GridAxis::Z]
        .map(|axis| b.value(ScheduleOp::GetNumTileBlocks { axis }, &[], Type::scalar(DType::I32)));
    let times = |b: &mut Builder<'_>, l: Value, r: Value| b.same(ScheduleOp::MulI { overflow: Overflow::Wraps }, &[l, r]);
    let plane = times(&mut b, counts[0], counts[1]);
    let all = times(&mut b, plane, counts[2]);
    let body = b.func.new_block();
    let place = b.func.add_arg(body, index, None);
    let mut found: FxHashMap<Value, Value> = FxHashMap::default();
    b.within(body, |b| {
        let over = |b: &mut Builder<'_>, l: Value, r: Value| {
            b.same(ScheduleOp::DivI { signedness: Signedness::Unsigned, rounding: Rounding::Zero }, &[l, r])
        };
        let modulo =
            |b: &mut Builder<'_>, l: Value, r: Value| b.same(ScheduleOp::RemI { signedness: Signedness::Unsigned }, &[l, r]);
        let of = |b: &mut Builder<'_>, axis: GridAxis| match axis {
            GridAxis::X => modulo(b, place, counts[0]),
            GridAxis::Y => {
                let rows = over(b, place, counts[0]);
                modulo(b, rows, counts[1])
            }
            GridAxis::Z => over(b, place, plane),
        };
        let mut known: FxHashMap<GridAxis, Value> = FxHashMap::default();
        for (op, axis) in places {
            let value = match known.get(&axis) {
                Some(&value) => value,
                None => of(b, axis),
            };
            known.insert(axis, value);
            found.insert(b.func.ops[op].result(), value);
        }
    });
    let is_place = |op: &Op| b.func.ops[*op].results.first().is_some_and(|result| found.contains_key(result));
    let inside: Vec<Op> = inside.iter().copied().filter(|op| !is_place(op)).collect();
    b.func.blocks[body].ops.extend(inside);
    b.within(body, |b| b.op(ScheduleOp::Continue {}, &[&[]], []));
    b.op_with_regions(ScheduleOp::For { unsigned: false, unroll: None }, &[&[worker], &[all], &[workers], &[]], [], [body]);
    func.blocks[func.body].ops.push(last);
    func.replace_uses(|value| found.get(&value).copied().unwrap_or(value));
    func.hints.persistent = Some(blocks);
}

/// The body's operations: scalars and views that are the same in every block, and all others.
fn split(func: &Func) -> (Vec<Op>, Vec<Op>) {
    let mut same: FxHashSet<Value> = func.args().iter().copied().collect();
    let (mut before, mut inside) = (Vec::new(), Vec::new());
    for &op in &func.blocks[func.body].ops {
        let data = &func.ops[op];
        let place = matches!(data.kind, OpKind::Schedule(ScheduleOp::GetTileBlockId { .. }));
        let plain = data.regions.is_empty() && is_free(func, op) && !place && !data.results.is_empty();
        let known = plain && data.operands.iter().all(|value| same.contains(value));
        if known && !data.results.iter().any(|&result| has_layout(func, result)) {
            same.extend(&data.results);
            before.push(op);
        } else {
            inside.push(op);
        }
    }
    (before, inside)
}
