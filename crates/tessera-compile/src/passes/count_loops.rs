//! `count-loops`: a `loop` that counts becomes a `for`, so that how a count was written decides nothing.
//!
//! A loop counts when it is left at one place, before anything of a round is done, as soon as a carried integer has come up to a value
//! from before the loop, and each round adds a positive constant to that integer. Where a multiple of the integer is compared, the value
//! is divided. An integer that comes down to zero by a constant is what it started as, less a counter that goes up.
//!
//! ```text
//! %r = loop [%init, %zero] (%acc, %k) {          %r, %last = for %zero, %n, %one, [%init, %zero] (%i, %acc, %k) {
//!   %c = cmpi %k, %n {predicate=lt}
//!   if %c { yield } { break [%acc] }
//!   %next = ... %k ...                             %next = ... %i ...
//!   %more = addi %k, %one                          %more = addi %i, %one
//!   continue [%next, %more]                        continue [%next, %more]
//! }                                              }
//! ```
//!
//! Requires: nothing. Preserves: every bit; what a round did before the test is pure, and is not done for the round that does not
//! come. What the integer was carried for is for `dce` to find out.

use rustc_hash::{FxHashMap, FxHashSet};
use tessera_ir::attrs::{Overflow, Predicate, Rounding, Signedness};
use tessera_ir::{Block, Changed, Const, Effects, Func, Op, OpData, OpKind, Pass, PassCx, ScheduleOp, Type, Value, bug};

use tessera_analysis::exits::{can_leave, loop_exits};

/// Loops that count.
pub(super) const PASS: Pass = Pass { name: "count-loops", doc: "Makes a `for` of a loop that counts.", run };

fn run(func: &mut Func, _: &mut PassCx<'_>) -> Changed {
    let is_loop = |op: &Op| matches!(func.ops[*op].kind, OpKind::Schedule(ScheduleOp::Loop {}));
    let loops: Vec<Op> = func.linked_ops().into_iter().filter(is_loop).collect();
    let mut changed = false;
    for op in loops {
        if let Some(counting) = counting(func, op) {
            convert(func, op, &counting);
            changed = true;
        }
    }
    Changed(changed)
}

/// How a loop counts.
struct Counting {
    /// Position of the integer among what is carried.
    counter: usize,
    /// What a round adds to it.
    step: i64,
    /// What it is multiplied by where it is compared.
    scale: Option<i64>,
    upper: Value,
    unsigned: bool,
    /// The integer comes down to zero from what it starts as, which is `upper`.
    down: bool,
    /// The condition that leaves the loop.
    exit: Op,
    /// What the loop yields.
    yields: Vec<Value>,
}

fn counting(func: &Func, op: Op) -> Option<Counting> {
    let body = func.ops[op].regions[0];
    let (&last, ops) = func.blocks[body].ops.split_last()?;
    let [left, again] = loop_exits(func, op)[..] else { return None };
    // A loop that a second `break` ends goes round at most once.
    let goes_round = again == last && matches!(func.ops[last].kind, OpKind::Schedule(ScheduleOp::Continue {}));
    if !goes_round || !matches!(func.ops[left].kind, OpKind::Schedule(ScheduleOp::Break {})) || can_leave(func, op) {
        return None;
    }
    let leaves = |region: &Block| func.blocks[*region].ops == [left];
    let at = ops.iter().position(|&inner| func.ops[inner].regions.iter().any(leaves))?;
    let exit = &func.ops[ops[at]];
    let before = ops[..at].iter().all(|&inner| func.ops[inner].row().effects == Effects::Pure);
    let nothing_else = exit.regions.iter().all(|region| func.blocks[*region].ops.len() == 1);
    if !before || !nothing_else || !exit.results.is_empty() {
        return None;
    }
    let mut inside = FxHashSet::default();
    defined(func, body, &mut inside);
    let test = func.defining_op(exit.one(0))?;
    let OpKind::Schedule(ScheduleOp::CmpI { predicate, signedness }) = func.ops[test].kind else { return None };
    // Which comparison keeps the loop going: `counter < upper`, however it is turned.
    let (lhs, rhs) = (func.ops[test].one(0), func.ops[test].one(1));
    let goes_on_when_true = leaves(&exit.regions[1]);
    let yields = func.ops[left].operands.to_vec();
    let known = |value: &Value| func.blocks[body].args.contains(value) || !inside.contains(value);
    if !yields.iter().all(known) {
        return None;
    }
    if signedness == Signedness::Signed
        && let Some((counter, step)) = down(func, op, last, [lhs, rhs], (predicate, goes_on_when_true))
    {
        let upper = func.ops[op].group(0)[counter];
        return Some(Counting { counter, step, scale: None, upper, unsigned: false, down: true, exit: ops[at], yields });
    }
    let (counted, upper) = match (predicate, goes_on_when_true) {
        (Predicate::Lt, true) | (Predicate::Ge, false) => (lhs, rhs),
        (Predicate::Gt, true) | (Predicate::Le, false) => (rhs, lhs),
        _ => return None,
    };
    let args = &func.blocks[body].args;
    let positive = |value| func.constant(value).and_then(Const::as_int).filter(|&number| number > 0);
    // The constant that an operation combines a value with.
    let combined = |data: &OpData, value: Value| match (data.one(0), data.one(1)) {
        (lhs, rhs) if lhs == value => positive(rhs),
        (lhs, rhs) if rhs == value => positive(lhs),
        _ => None,
    };
    let product = func.defining_op(counted).filter(|_| !args.contains(&counted)).map(|op| &func.ops[op]);
    let (counted, scale) = match product {
        None => (counted, None),
        Some(product) if matches!(product.kind, OpKind::Schedule(ScheduleOp::MulI { .. })) => {
            let counted = *product.operands.iter().find(|value| args.contains(value))?;
            (counted, Some(combined(product, counted).filter(|_| signedness == Signedness::Signed)?))
        }
        Some(_) => return None,
    };
    let counter = args.iter().position(|&arg| arg == counted)?;
    let sum = &func.ops[func.defining_op(func.ops[last].operands[counter])?];
    let adds = matches!(sum.kind, OpKind::Schedule(ScheduleOp::AddI { .. }));
    if inside.contains(&upper) || !adds || !func.ty(counted).is_scalar() {
        return None;
    }
    let step = combined(sum, counted)?;
    let unsigned = signedness == Signedness::Unsigned;
    Some(Counting { counter, step, scale, upper, unsigned, down: false, exit: ops[at], yields })
}

/// The position of a carried integer that keeps the loop going while it is above zero, and what a round takes from it.
fn down(
    func: &Func,
    looped: Op,
    last: Op,
    [lhs, rhs]: [Value; 2],
    (predicate, goes_on): (Predicate, bool),
) -> Option<(usize, i64)> {
    let (counted, bound) = match (predicate, goes_on) {
        (Predicate::Gt, true) | (Predicate::Le, false) => (lhs, rhs),
        (Predicate::Lt, true) | (Predicate::Ge, false) => (rhs, lhs),
        _ => return None,
    };
    let number = |value| func.constant(value).and_then(Const::as_int);
    let counter = func.blocks[func.ops[looped].regions[0]].args.iter().position(|&arg| arg == counted)?;
    let next = &func.ops[func.defining_op(func.ops[last].operands[counter])?];
    let step = match next.kind {
        OpKind::Schedule(ScheduleOp::SubI { .. }) if next.one(0) == counted => number(next.one(1))?,
        OpKind::Schedule(ScheduleOp::AddI { .. }) if next.one(0) == counted => number(next.one(1))?.checked_neg()?,
        _ => return None,
    };
    (number(bound) == Some(0) && step > 0 && func.ty(counted).is_scalar()).then_some((counter, step))
}

fn defined(func: &Func, block: Block, found: &mut FxHashSet<Value>) {
    found.extend(&func.blocks[block].args);
    for &op in &func.blocks[block].ops {
        found.extend(&func.ops[op].results);
        func.ops[op].regions.iter().for_each(|&region| defined(func, region, found));
    }
}

fn convert(func: &mut Func, op: Op, counting: &Counting) {
    let data = func.ops[op].clone();
    let (old, body) = (data.regions[0], func.new_block());
    let args = func.blocks[old].args.clone();
    let mut map: FxHashMap<Value, Value> = FxHashMap::default();
    let counter_type = func.ty(args[counting.counter]).clone();
    let counter = func.add_arg(body, counter_type.clone(), None);
    for &arg in &args {
        let (ty, name) = (func.ty(arg).clone(), func.values[arg].name.take());
        let own = func.add_arg(body, ty, None);
        func.values[own].name = name;
        map.insert(arg, own);
    }
    let init = data.group(0);
    if counting.down {
        let kind = ScheduleOp::SubI { overflow: Overflow::Wraps };
        let left = func.make_op(kind.into(), &[&[init[counting.counter]], &[counter]], [counter_type.clone()], [], data.span);
        map.insert(args[counting.counter], func.ops[left].result());
        func.blocks[body].ops.push(left);
    } else if let Some(carried) = map.insert(args[counting.counter], counter) {
        func.values[counter].name = func.values[carried].name.take();
    }
    let kept = func.blocks[old].ops.clone().into_iter().filter(|&inner| inner != counting.exit);
    func.blocks[body].ops.extend(kept);

    let constant = |func: &mut Func, number: i64| {
        let value = Const::int(counter_type.num().unwrap_or_else(|| bug!("a counter that is no number")), number);
        func.make_op(ScheduleOp::Constant { value }.into(), &[], [counter_type.clone()], [], data.span)
    };
    let step = constant(func, counting.step);
    let mut before = vec![step];
    let mut upper = counting.upper;
    if let Some(scale) = counting.scale {
        let scale = constant(func, scale);
        let kind = ScheduleOp::DivI { signedness: Signedness::Signed, rounding: Rounding::PositiveInf };
        let divided = func.make_op(kind.into(), &[&[upper], &[func.ops[scale].result()]], [counter_type.clone()], [], data.span);
        upper = func.ops[divided].result();
        before.extend([scale, divided]);
    }
    let types: Vec<Type> = args.iter().map(|&arg| func.ty(arg).clone()).collect();
    let mut lower = init[counting.counter];
    if counting.down {
        let zero = constant(func, 0);
        before.push(zero);
        lower = func.ops[zero].result();
    }
    let groups: [&[Value]; 4] = [&[lower], &[upper], &[func.ops[step].result()], init];
    let kind = ScheduleOp::For { unsigned: counting.unsigned, unroll: None };
    let counted = func.make_op(kind.into(), &groups, types, [body], data.span);
    for (&result, &value) in data.results.iter().zip(&counting.yields) {
        let value = match args.iter().position(|&arg| arg == value) {
            Some(position) => func.ops[counted].results[position],
            None => value,
        };
        func.values[value].name = func.values[value].name.take().or_else(|| func.values[result].name.take());
        map.insert(result, value);
    }
    let parent = func.block_of(op);
    let at = func.blocks[parent].place_of(op);
    before.push(counted);
    func.blocks[parent].ops.splice(at..=at, before);
    func.replace_uses(|value| map.get(&value).copied().unwrap_or(value));
}
