//! A product of warpgroups that stands in no loop, since one round is all there is, becomes the only round of one: so it is planned as others are, and
//! blocks that stay bring the next tile's factors while this one's results leave.
//!
//! ```text
//! %a = load; %b = load; %p = mma %a, %b, %c        %p = for 0..1 (%acc = %c) { %a = load; %b = load; continue [mma %a, %b, %acc] }
//! ```
//!
//! **Predicate.** The function has one product, in its body, and a plan of several partitions, or it would have one with that loop.

use rustc_hash::FxHashSet;
use tessera_ir::{Builder, Func, Op, ScheduleOp, Type, Value};
use tessera_types::DType;

use super::anchors::Units;
use super::numbers::Numbers;
use super::relation::has_layout;
use super::roles::{self, is_free, is_product};
use crate::rewrite::uses;

/// Gives the product its loop.
pub(super) fn of_one(func: &mut Func, units: &Units) -> bool {
    if !units.arch.has_wgmma() {
        return false;
    }
    let mut products = func.linked_ops().into_iter().filter(|&op| is_product(func, op));
    let (Some(product), None) = (products.next(), products.next()) else { return false };
    if !func.blocks[func.body].ops.contains(&product) {
        return false;
    }
    let mut looped = func.clone();
    wrap(&mut looped, product);
    let is_planned = match &looped.plan {
        Some(plan) => plan.partitions.len() > 1,
        None => roles::propose(&looped, units).is_ok(),
    };
    if is_planned {
        *func = looped;
    }
    is_planned
}

/// Puts the product, with what makes its factors and nothing else, into a loop of one round.
fn wrap(func: &mut Func, product: Op) {
    let body = func.blocks[func.body].ops.clone();
    let at = func.blocks[func.body].place_of(product);
    let mut inside: FxHashSet<Op> = FxHashSet::from_iter([product]);
    let mut needed: FxHashSet<Value> = FxHashSet::from_iter([func.ops[product].one(0), func.ops[product].one(1)]);
    for &op in body[..at].iter().rev() {
        let data = &func.ops[op];
        let is_load = data.kind.schedule().is_some_and(ScheduleOp::is_weak_load);
        let makes = data.results.iter().any(|result| needed.contains(result) && has_layout(func, *result));
        let is_alone = || body.iter().all(|user| inside.contains(user) || !uses(func, *user, &data.results));
        if makes && data.regions.is_empty() && (is_load || is_free(func, op)) && is_alone() {
            needed.extend(&data.operands);
            inside.insert(op);
        }
    }
    let data = func.ops[product].clone();
    let (sums, result) = (data.one(2), data.result());
    let round: Vec<Op> = body.iter().copied().filter(|op| inside.contains(op)).collect();
    let rest: Vec<Op> = body[at + 1..].to_vec();
    func.blocks[func.body].ops = body[..at].iter().copied().filter(|op| !inside.contains(op)).collect();
    let ty = func.ty(sums).clone();
    let mut b = Builder { block: func.body, span: data.span, func };
    let [first, end] = [b.number(0), b.number(1)];
    let block = b.func.new_block();
    b.func.add_arg(block, Type::scalar(DType::I32), None);
    let acc = b.func.add_arg(block, ty.clone(), None);
    b.func.blocks[block].ops = round;
    b.func.ops[product].operands.iter_mut().filter(|operand| **operand == sums).for_each(|operand| *operand = acc);
    let next = b.within(block, |b| b.op(ScheduleOp::Continue {}, &[&[result]], []));
    let kind = ScheduleOp::For { unsigned: false, unroll: None };
    let made = b.op_with_regions(kind, &[&[first], &[end], &[end], &[sums]], [ty], [block]);
    let made = func.ops[made].result();
    func.blocks[func.body].ops.extend(rest);
    func.replace_uses(|value| if value == result { made } else { value });
    func.ops[next].operands[0] = result;
}
