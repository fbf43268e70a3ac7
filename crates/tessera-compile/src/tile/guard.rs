//! Masks that most rounds of a loop do not need: where a test of scalars shows that every element passes, nothing is selected.
//!
//! ```text
//! %keep = cmpi %position, %limit {lt}                 %all = cmpi (greatest position), (least limit) {lt}
//! %y = select %keep, %x, %other                       %y = if %all () { yield [%x] } () { ...; yield [select %keep, %x, %other] }
//! ```
//!
//! The extremes of a tile of integers follow from scalars, counts, constants, sums, differences, minima, maxima and products with a constant. They are
//! taken in 64 bits: where both sides of a comparison lie within 32, arithmetic that wraps gives the same numbers.

use rustc_hash::{FxHashMap, FxHashSet};
use tessera_ir::attrs::{Predicate, Signedness};
use tessera_ir::{Block, Builder, Const, Func, Op, OpKind, ScheduleOp, Shape, Value};
use tessera_types::DType;

use super::numbers::{Numbers, apart};
use super::roles::{is_chain, is_free};
use crate::rewrite::copy;

/// Guards the loops in which a product takes what became of another one's sums, where warps have roles; true where there is one.
pub(super) fn chains(func: &mut Func) -> bool {
    if func.plan.as_ref().is_none_or(|plan| plan.partitions.len() < 2) {
        return false;
    }
    let mut blocks: Vec<Block> = Vec::new();
    for block in func.linked_blocks() {
        if is_chain(func, block) {
            blocks.push(block);
        }
    }
    for &block in &blocks {
        guard(func, block);
    }
    !blocks.is_empty()
}

/// Puts a test before every selection of a block that has one.
fn guard(func: &mut Func, body: Block) {
    for op in func.blocks[body].ops.clone() {
        if matches!(func.ops[op].kind, OpKind::Schedule(ScheduleOp::Select {})) && spread(func, func.ops[op].one(0)) {
            let (mask, span) = (func.ops[op].one(0), func.ops[op].span);
            if let (ops, Some(all)) = apart(func, span, |b| holds(b, mask)) {
                select_unless(func, body, op, all, ops);
            }
        }
    }
}

fn spread(func: &Func, value: Value) -> bool {
    func.ty(value).as_tile().is_some_and(|tile| !tile.shape.is_empty())
}

/// A scalar that is true only if a tile of truth values is true everywhere.
fn holds(b: &mut Builder<'_>, mask: Value) -> Option<Value> {
    if !spread(b.func, mask) {
        return Some(mask);
    }
    let data = b.func.ops[b.func.defining_op(mask)?].clone();
    let OpKind::Schedule(kind) = &data.kind else { return None };
    match kind {
        ScheduleOp::Broadcast {} | ScheduleOp::Reshape {} => holds(b, data.one(0)),
        ScheduleOp::AndI {} => {
            let (left, right) = (holds(b, data.one(0))?, holds(b, data.one(1))?);
            Some(b.both(left, right))
        }
        ScheduleOp::CmpI { predicate, signedness: Signedness::Signed } => {
            let (low, high, predicate) = match predicate {
                Predicate::Lt | Predicate::Le => (data.one(0), data.one(1), *predicate),
                Predicate::Gt => (data.one(1), data.one(0), Predicate::Lt),
                Predicate::Ge => (data.one(1), data.one(0), Predicate::Le),
                Predicate::Eq | Predicate::Ne => return None,
            };
            let ([least, low], [high, greatest]) = (extremes(b, low)?.0, extremes(b, high)?.0);
            let (first, last) = (b.wide_number(i64::from(i32::MIN)), b.wide_number(i64::from(i32::MAX)));
            let below = b.is(low, predicate, high);
            let inside = (b.is(first, Predicate::Le, least), b.is(greatest, Predicate::Le, last));
            let inside = b.both(inside.0, inside.1);
            Some(b.both(below, inside))
        }
        _ => None,
    }
}

/// The least and the greatest element of a tile of 32-bit integers, in 64 bits and without wrapping, and what neither exceeds in
/// magnitude: where that is more than 64 bits hold, nothing is known.
fn extremes(b: &mut Builder<'_>, value: Value) -> Option<([Value; 2], i128)> {
    if b.func.ty(value).num() != Some(DType::I32) {
        return None;
    }
    if !spread(b.func, value) {
        let wide = b.wide(value);
        return Some(([wide, wide], 1 << 31));
    }
    let data = b.func.ops[b.func.defining_op(value)?].clone();
    let OpKind::Schedule(kind) = &data.kind else { return None };
    let (ends, most) = match kind {
        ScheduleOp::Broadcast {} | ScheduleOp::Reshape {} => extremes(b, data.one(0))?,
        ScheduleOp::Iota {} => {
            let count: &Shape = &b.func.ty(value).as_tile()?.shape;
            let last = count.iter().map(|&extent| i64::from(extent)).product::<i64>() - 1;
            ([b.wide_number(0), b.wide_number(last)], i128::from(last))
        }
        ScheduleOp::Constant { value } => {
            let value = value.as_int()?;
            let number = b.wide_number(value);
            ([number, number], i128::from(value).abs())
        }
        ScheduleOp::AddI { .. } => {
            let ((x, of_x), (y, of_y)) = (extremes(b, data.one(0))?, extremes(b, data.one(1))?);
            ([b.plus(x[0], y[0]), b.plus(x[1], y[1])], of_x + of_y)
        }
        ScheduleOp::SubI { .. } => {
            let ((x, of_x), (y, of_y)) = (extremes(b, data.one(0))?, extremes(b, data.one(1))?);
            ([b.minus(x[0], y[1]), b.minus(x[1], y[0])], of_x + of_y)
        }
        ScheduleOp::MinI { signedness: Signedness::Signed } | ScheduleOp::MaxI { signedness: Signedness::Signed } => {
            let ((x, of_x), (y, of_y)) = (extremes(b, data.one(0))?, extremes(b, data.one(1))?);
            let ends = [0, 1].map(|end| b.same(kind.clone(), &[x[end], y[end]]));
            (ends, of_x.max(of_y))
        }
        ScheduleOp::MulI { .. } => {
            let constant = |func: &Func, value| func.constant(value).and_then(Const::as_int).filter(|&number| number >= 0);
            let (by, other) = match (constant(b.func, data.one(0)), constant(b.func, data.one(1))) {
                (_, Some(number)) => (number, data.one(0)),
                (Some(number), None) => (number, data.one(1)),
                (None, None) => return None,
            };
            let (factor, (ends, most)) = (b.wide_number(by), extremes(b, other)?);
            (ends.map(|end| b.times(end, factor)), most * i128::from(by))
        }
        _ => return None,
    };
    (most <= i128::from(i64::MAX)).then_some((ends, most))
}

/// Selects only where the test fails; what is computed for the mask alone goes there too.
fn select_unless(func: &mut Func, body: Block, select: Op, all: Value, test: Vec<Op>) {
    let data = func.ops[select].clone();
    let ops = func.blocks[body].ops.clone();
    let mut moved: FxHashSet<Op> = std::iter::once(select).collect();
    let users = |func: &Func, op: Op| -> Vec<Op> {
        let uses = |user: &Op| func.ops[*user].operands.iter().any(|value| func.ops[op].results.contains(value));
        func.linked_ops().into_iter().chain(test.iter().copied()).filter(uses).collect()
    };
    for &op in ops.iter().rev() {
        let alone = func.ops[op].regions.is_empty() && is_free(func, op) && func.ops[op].results.iter().all(|&v| spread(func, v));
        let users = users(func, op);
        if op != select
            && alone
            && !users.is_empty()
            && users.iter().all(|user| moved.contains(user))
            && data.one(1) != func.ops[op].result()
        {
            moved.insert(op);
        }
    }
    let (then, otherwise) = (func.new_block(), func.new_block());
    let end = |func: &mut Func, value: Value| func.make_op(ScheduleOp::Yield {}.into(), &[&[value]], [], [], data.span);
    let kept = end(func, data.one(1));
    func.blocks[then].ops.push(kept);
    let chosen = end(func, data.result());
    let moving: Vec<Op> = ops.iter().copied().filter(|op| moved.contains(op)).collect();
    let mut within = from_before(func, &ops, &moving);
    within.extend(moving.into_iter().chain([chosen]));
    func.blocks[otherwise].ops = within;
    let ty = func.ty(data.result()).clone();
    let made = func.make_op(ScheduleOp::If {}.into(), &[&[all]], [ty], [then, otherwise], data.span);
    let result = func.ops[made].result();
    func.replace_uses(|value| if value == data.result() { result } else { value });
    let mut rest = Vec::with_capacity(ops.len());
    for op in ops {
        if op == select {
            rest.extend(test.iter().copied());
            rest.push(made);
        } else if !moved.contains(&op) {
            rest.push(op);
        }
    }
    func.blocks[body].ops = rest;
}

/// Computes again what operations need of tiles of whole numbers from before their block: there these take no registers in the rounds that do
/// not need them.
fn from_before(func: &mut Func, body: &[Op], ops: &[Op]) -> Vec<Op> {
    let mut needed: Vec<Op> = Vec::new();
    let mut next: Vec<Value> = ops.iter().flat_map(|&op| func.ops[op].operands.clone()).collect();
    while let Some(value) = next.pop() {
        let whole = matches!(func.ty(value).num(), Some(DType::I32 | DType::B1));
        let Some(op) = func.defining_op(value).filter(|op| whole && spread(func, value) && !body.contains(op)) else { continue };
        if func.ops[op].regions.is_empty() && is_free(func, op) && !needed.contains(&op) {
            needed.push(op);
            next.extend(func.ops[op].operands.iter().copied());
        }
    }
    let in_order: Vec<Op> = func.linked_ops().into_iter().filter(|op| needed.contains(op)).collect();
    let (mut made, mut map) = (Vec::new(), FxHashMap::default());
    copy(func, &in_order, &mut map, &mut made);
    for &op in ops {
        func.ops[op].operands.iter_mut().for_each(|operand| *operand = map.get(operand).copied().unwrap_or(*operand));
    }
    made
}
