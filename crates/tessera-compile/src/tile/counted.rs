//! Loops that count: `loop` with a test of a counter in front and one step at the end becomes `for`, which recipes know.
//!
//! ```text
//! loop [%a, %zero] (%x, %j) { %c = cmpi %j, %n {lt}; if %c () { yield } () { break [%x] } ...; %k = addi %j, %one; continue [%y, %k] }
//! for %zero, %n, %one, [%a] (%j, %x) { ...; continue [%y] }
//! ```
//!
//! The counter goes up by one, so that it cannot pass the end; what leaves the loop is carried or comes from outside.

use tessera_ir::attrs::{Predicate, Signedness};
use tessera_ir::{Block, Const, Def, Func, Op, OpKind, ScheduleOp, Type, Value, ValueData};
use tessera_types::DType;

use super::roles::is_free;

/// A loop that counts.
struct Counted {
    body: Block,
    /// The counter's position among what is carried.
    counter: usize,
    end: Value,
    step: Value,
    /// The test, which goes.
    test: Op,
    /// What leaves the loop.
    left: Vec<Value>,
}

/// Replaces every loop that counts.
pub(super) fn count(func: &mut Func) {
    for block in func.linked_blocks() {
        for at in 0..func.blocks[block].ops.len() {
            let op = func.blocks[block].ops[at];
            if let Some(counted) = find(func, op) {
                func.blocks[block].ops[at] = replace(func, op, &counted);
            }
        }
    }
}

fn find(func: &Func, op: Op) -> Option<Counted> {
    let OpKind::Schedule(ScheduleOp::Loop {}) = func.ops[op].kind else { return None };
    let body = func.ops[op].regions[0];
    let ops = &func.blocks[body].ops;
    let test = *ops.iter().find(|&&op| !is_free(func, op))?;
    let data = &func.ops[test];
    let (OpKind::Schedule(ScheduleOp::If {}), &[stay, leave]) = (&data.kind, &data.regions[..]) else { return None };
    let only = |block: Block| match func.blocks[block].ops[..] {
        [op] => Some(&func.ops[op]),
        _ => None,
    };
    let leaves = only(leave)?;
    let stays = matches!(only(stay)?.kind, OpKind::Schedule(ScheduleOp::Yield {}));
    if !stays || !matches!(leaves.kind, OpKind::Schedule(ScheduleOp::Break {})) || exits(func, body) != 2 {
        return None;
    }
    let compare = &func.ops[func.defining_op(data.one(0))?];
    let OpKind::Schedule(ScheduleOp::CmpI { predicate, signedness: Signedness::Signed }) = compare.kind else { return None };
    let (counter, end) = match predicate {
        Predicate::Lt => (compare.one(0), compare.one(1)),
        Predicate::Gt => (compare.one(1), compare.one(0)),
        _ => return None,
    };
    let args = &func.blocks[body].args;
    let position = args.iter().position(|&arg| arg == counter)?;
    let inside = |value: Value| match func.values[value].def {
        Def::Result(op, _) => ops.contains(&op),
        Def::Argument(block, _) => block == body,
    };
    let last = &func.ops[*ops.last()?];
    let next = &func.ops[func.defining_op(*last.group(0).get(position)?)?];
    let OpKind::Schedule(ScheduleOp::AddI { .. }) = next.kind else { return None };
    let step = match (next.one(0) == counter, next.one(1) == counter) {
        (true, false) => next.one(1),
        (false, true) => next.one(0),
        _ => return None,
    };
    let by_one = func.constant(step).and_then(Const::as_int) == Some(1);
    let left = leaves.group(0).to_vec();
    let carried = |value: &Value| !inside(*value) || (args.contains(value) && *value != counter);
    let fits = by_one && !inside(step) && !inside(end) && left.iter().all(carried) && func.ty(counter).num() == Some(DType::I32);
    fits.then_some(Counted { body, counter: position, end, step, test, left })
}

/// Operations that leave a loop's round or the loop, those of inner loops aside.
fn exits(func: &Func, block: Block) -> usize {
    let count = |&op: &Op| match &func.ops[op].kind {
        OpKind::Schedule(ScheduleOp::Continue {} | ScheduleOp::Break {}) => 1,
        OpKind::Schedule(ScheduleOp::Return {}) => 3,
        OpKind::Schedule(ScheduleOp::If {}) => func.ops[op].regions.iter().map(|&region| exits(func, region)).sum(),
        _ => 0,
    };
    func.blocks[block].ops.iter().map(count).sum()
}

/// Makes the `for`; the body's block becomes its own.
fn replace(func: &mut Func, op: Op, counted: &Counted) -> Op {
    let (body, at) = (counted.body, counted.counter);
    let data = func.ops[op].clone();
    let mut init = data.group(0).to_vec();
    let start = init.remove(at);
    let mut args = func.blocks[body].args.clone();
    let counter = args.remove(at);
    args.insert(0, counter);
    for (position, &arg) in args.iter().enumerate() {
        func.values[arg].def = Def::Argument(body, position as u32);
    }
    func.blocks[body].args = args.clone();
    func.blocks[body].ops.retain(|&op| op != counted.test);
    if let Some(&last) = func.blocks[body].ops.last() {
        func.ops[last].operands.remove(at);
        func.ops[last].segments[0] -= 1;
    }
    let types: Vec<Type> = init.iter().map(|&value| func.ty(value).clone()).collect();
    let kind = ScheduleOp::For { unsigned: false };
    let made = func.make_op(kind.into(), &[&[start], &[counted.end], &[counted.step], &init], types, [body], data.span);
    let results = func.ops[made].results.clone();
    let mut replaced: Vec<(Value, Value)> = Vec::new();
    for (&old, left) in data.results.iter().zip(&counted.left) {
        let new = args[1..].iter().position(|arg| arg == left).map_or(*left, |position| results[position]);
        let name = func.values[old].name.clone();
        let ValueData { name: slot, .. } = &mut func.values[new];
        if slot.is_none() {
            *slot = name;
        }
        replaced.push((old, new));
    }
    func.replace_uses(|value| replaced.iter().find(|(old, _)| *old == value).map_or(value, |(_, new)| *new));
    made
}
