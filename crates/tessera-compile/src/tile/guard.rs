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
use tessera_ir::attrs::{Overflow, Predicate, Signedness};
use tessera_ir::{Block, Const, Func, Op, OpKind, ScheduleOp, Shape, Span, Type, Value};
use tessera_types::DType;

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
            let mut test = Test { func, span, ops: Vec::new() };
            if let Some(all) = test.holds(mask) {
                let ops = test.ops;
                select_unless(func, body, op, all, ops);
            }
        }
    }
}

fn spread(func: &Func, value: Value) -> bool {
    func.ty(value).as_tile().is_some_and(|tile| !tile.shape.is_empty())
}

/// Scalar operations under construction.
struct Test<'f> {
    func: &'f mut Func,
    span: Span,
    ops: Vec<Op>,
}

impl Test<'_> {
    fn make(&mut self, kind: ScheduleOp, operands: &[Value], dtype: DType) -> Value {
        let groups: Vec<&[Value]> = operands.iter().map(std::slice::from_ref).collect();
        let op = self.func.make_op(kind.into(), &groups, [Type::scalar(dtype)], [], self.span);
        self.ops.push(op);
        self.func.ops[op].result()
    }

    fn number(&mut self, value: i64) -> Value {
        self.make(ScheduleOp::Constant { value: Const::int(DType::I64, value) }, &[], DType::I64)
    }

    fn sum(&mut self, a: Value, b: Value) -> Value {
        self.make(ScheduleOp::AddI { overflow: Overflow::Wraps }, &[a, b], DType::I64)
    }

    fn less(&mut self, predicate: Predicate, a: Value, b: Value) -> Value {
        self.make(ScheduleOp::CmpI { predicate, signedness: Signedness::Signed }, &[a, b], DType::B1)
    }

    fn both(&mut self, a: Value, b: Value) -> Value {
        self.make(ScheduleOp::AndI {}, &[a, b], DType::B1)
    }

    /// A scalar that is true only if a tile of truth values is true everywhere.
    fn holds(&mut self, mask: Value) -> Option<Value> {
        if !spread(self.func, mask) {
            return Some(mask);
        }
        let data = self.func.ops[self.func.defining_op(mask)?].clone();
        let OpKind::Schedule(kind) = &data.kind else { return None };
        match kind {
            ScheduleOp::Broadcast {} | ScheduleOp::Reshape {} => self.holds(data.one(0)),
            ScheduleOp::AndI {} => {
                let (a, b) = (self.holds(data.one(0))?, self.holds(data.one(1))?);
                Some(self.both(a, b))
            }
            ScheduleOp::CmpI { predicate, signedness: Signedness::Signed } => {
                let (low, high, predicate) = match predicate {
                    Predicate::Lt | Predicate::Le => (data.one(0), data.one(1), *predicate),
                    Predicate::Gt => (data.one(1), data.one(0), Predicate::Lt),
                    Predicate::Ge => (data.one(1), data.one(0), Predicate::Le),
                    Predicate::Eq | Predicate::Ne => return None,
                };
                let ([least, low], [high, greatest]) = (self.extremes(low)?.0, self.extremes(high)?.0);
                let (first, last) = (self.number(i64::from(i32::MIN)), self.number(i64::from(i32::MAX)));
                let apart = self.less(predicate, low, high);
                let inside = (self.less(Predicate::Le, first, least), self.less(Predicate::Le, greatest, last));
                let inside = self.both(inside.0, inside.1);
                Some(self.both(apart, inside))
            }
            _ => None,
        }
    }

    /// The least and the greatest element of a tile of 32-bit integers, in 64 bits and without wrapping, and what neither exceeds in
    /// magnitude: where that is more than 64 bits hold, nothing is known.
    fn extremes(&mut self, value: Value) -> Option<([Value; 2], i128)> {
        if self.func.ty(value).num() != Some(DType::I32) {
            return None;
        }
        if !spread(self.func, value) {
            let wide = self.make(ScheduleOp::ExtI { signedness: Signedness::Signed }, &[value], DType::I64);
            return Some(([wide, wide], 1 << 31));
        }
        let data = self.func.ops[self.func.defining_op(value)?].clone();
        let OpKind::Schedule(kind) = &data.kind else { return None };
        let (ends, most) = match kind {
            ScheduleOp::Broadcast {} | ScheduleOp::Reshape {} => self.extremes(data.one(0))?,
            ScheduleOp::Iota {} => {
                let count: &Shape = &self.func.ty(value).as_tile()?.shape;
                let last = count.iter().map(|&extent| i64::from(extent)).product::<i64>() - 1;
                ([self.number(0), self.number(last)], i128::from(last))
            }
            ScheduleOp::Constant { value } => {
                let value = value.as_int()?;
                let number = self.number(value);
                ([number, number], i128::from(value).abs())
            }
            ScheduleOp::AddI { .. } => {
                let ((a, of_a), (b, of_b)) = (self.extremes(data.one(0))?, self.extremes(data.one(1))?);
                ([self.sum(a[0], b[0]), self.sum(a[1], b[1])], of_a + of_b)
            }
            ScheduleOp::SubI { .. } => {
                let ((a, of_a), (b, of_b)) = (self.extremes(data.one(0))?, self.extremes(data.one(1))?);
                let kind = ScheduleOp::SubI { overflow: Overflow::Wraps };
                let ends = [self.make(kind.clone(), &[a[0], b[1]], DType::I64), self.make(kind, &[a[1], b[0]], DType::I64)];
                (ends, of_a + of_b)
            }
            ScheduleOp::MinI { signedness: Signedness::Signed } | ScheduleOp::MaxI { signedness: Signedness::Signed } => {
                let ((a, of_a), (b, of_b)) = (self.extremes(data.one(0))?, self.extremes(data.one(1))?);
                let ends = [0, 1].map(|end| self.make(kind.clone(), &[a[end], b[end]], DType::I64));
                (ends, of_a.max(of_b))
            }
            ScheduleOp::MulI { .. } => {
                let constant = |func: &Func, value| func.constant(value).and_then(Const::as_int).filter(|&number| number >= 0);
                let (by, other) = match (constant(self.func, data.one(0)), constant(self.func, data.one(1))) {
                    (_, Some(number)) => (number, data.one(0)),
                    (Some(number), None) => (number, data.one(1)),
                    (None, None) => return None,
                };
                let (factor, (ends, most)) = (self.number(by), self.extremes(other)?);
                let kind = ScheduleOp::MulI { overflow: Overflow::Wraps };
                (ends.map(|end| self.make(kind.clone(), &[end, factor], DType::I64)), most * i128::from(by))
            }
            _ => return None,
        };
        (most <= i128::from(i64::MAX)).then_some((ends, most))
    }
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
