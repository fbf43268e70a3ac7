//! Loops of products whose first rounds need no test: these rounds get a loop of their own, without the branch. It is what index-set splitting
//! does (Wolfe 1996, "High performance compilers for parallel computing", 9.7).
//!
//! ```text
//! for %j in 0..%n { ...; %s = if 127 < %seen - 128 * %j { yield [%x] } else { ... }; ... }
//!
//! %t = min(%n, ceil((%seen - 127) / 128))
//! for %j in 0..%t { ...; %x; ... }
//! for %j in %t..%n { ...; %s = if ...; ... }
//! ```
//!
//! A branch in a round keeps the assembler from mixing what stands before it with what stands behind it, though nearly all rounds go the same
//! way. What the loop carries goes from the first one to the second, so that a pipeline stays filled.
//!
//! Applies where a test is made of comparisons that hold up to some round and fail from there on, or are the same in all rounds. The second loop
//! keeps the test: where less is known than there is to know, the first one is only shorter.

use rustc_hash::{FxHashMap, FxHashSet};
use tessera_analysis::facts::Facts;
use tessera_analysis::linear::{Linear, Wraps};
use tessera_ir::attrs::{Predicate, Rounding, Signedness};
use tessera_ir::{Block, Builder, Changed, Func, Op, OpKind, ScheduleOp, TileOp, Value, bug};

use super::numbers::{Numbers, apart};
use super::peel::counts;
use super::roles::is_free;
use crate::rewrite::{copy, deep};

/// Splits every loop of products that allows it.
pub(super) fn split(func: &mut Func) -> Changed {
    let mut changed = false;
    for block in func.linked_blocks() {
        for looped in func.blocks[block].ops.clone() {
            let Some(branch) = branch_of(func, looped) else { continue };
            let facts = Facts::of(func);
            let Some(rule) = Rule::of(func, &facts, looped, func.ops[branch].one(0)) else { continue };
            rule.carry_out(func, block, looped, branch);
            changed = true;
        }
    }
    Changed(changed)
}

/// The branch of a counted loop of products.
fn branch_of(func: &Func, looped: Op) -> Option<Op> {
    if !counts(func, looped) {
        return None;
    }
    let ops = &func.blocks[func.ops[looped].regions[0]].ops;
    let is_product = |op: &Op| matches!(func.ops[*op].kind, OpKind::Tile(TileOp::Wgmma { .. }));
    let is_branch = |op: &&Op| matches!(func.ops[**op].kind, OpKind::Schedule(ScheduleOp::If {}));
    if !ops.iter().any(is_product) {
        return None;
    }
    ops.iter().find(is_branch).copied()
}

/// A comparison `low < high` (`low <= high`) of a test.
struct Comparison {
    low: Value,
    high: Value,
    or_equal: bool,
    /// What `high - low` loses from round to round.
    loses: i64,
}

/// For which rounds a test holds.
struct Rule {
    /// Operations of a round that the test is made of, in order.
    ops: Vec<Op>,
    /// What holds in all rounds if it does in the first one.
    lasting: Vec<Value>,
    /// What holds up to some round.
    passing: Vec<Comparison>,
}

impl Rule {
    /// The rule of a test in a loop; `None` where no comparison holds up to some round, or more is not known.
    fn of(func: &Func, facts: &Facts, looped: Op, test: Value) -> Option<Rule> {
        let body = func.ops[looped].regions[0];
        let (counter, step) = (func.blocks[body].args[0], func.constant(func.ops[looped].one(2))?.as_int()?);
        let mut rule = Rule { ops: tested_by(func, body, counter, test)?, lasting: Vec::new(), passing: Vec::new() };
        let moving = moving(func, &rule.ops, counter);
        let mut conditions = vec![test];
        while let Some(condition) = conditions.pop() {
            let made = func.defining_op(condition).filter(|op| rule.ops.contains(op)).map(|op| &func.ops[op]);
            match made.map(|data| (&data.kind, data)) {
                // The same in all rounds.
                None => rule.lasting.push(condition),
                Some((OpKind::Schedule(ScheduleOp::AndI {}), data)) => conditions.extend(&data.operands),
                Some((OpKind::Schedule(ScheduleOp::CmpI { predicate, signedness: Signedness::Signed }), data)) => {
                    let (low, high) = match predicate {
                        Predicate::Lt | Predicate::Le => (data.one(0), data.one(1)),
                        Predicate::Gt | Predicate::Ge => (data.one(1), data.one(0)),
                        Predicate::Eq | Predicate::Ne => return None,
                    };
                    let grows = |value| grows_by(func, facts, (counter, &moving), value);
                    let loses = (grows(low)?.checked_sub(grows(high)?)?).checked_mul(step)?;
                    let or_equal = matches!(predicate, Predicate::Le | Predicate::Ge);
                    if loses > 0 {
                        rule.passing.push(Comparison { low, high, or_equal, loses });
                    } else {
                        rule.lasting.push(condition);
                    }
                }
                Some(_) => return None,
            }
        }
        (!rule.passing.is_empty()).then_some(rule)
    }

    /// Makes a loop of the rounds for which the test holds, in front of the one of a block, which begins where the new one ends.
    fn carry_out(&self, func: &mut Func, block: Block, looped: Op, branch: Op) {
        let data = func.ops[looped].clone();
        let body = data.regions[0];
        let place = func.blocks[body].place_of(branch);
        let (mut ops, bound) = apart(func, data.span, |b| self.bound(b, &data.operands, body));
        let first = deep(func, looped, &mut FxHashMap::default());
        ops.push(first);
        let at = func.blocks[block].place_of(looped);
        func.blocks[block].ops.splice(at..at, ops);
        func.ops[first].operands[1] = bound;
        func.ops[looped].operands[0] = bound;
        let results = func.ops[first].results.clone();
        let begins = func.ops[looped].operands.len() - results.len();
        func.ops[looped].operands[begins..].copy_from_slice(&results);
        take_first(func, func.ops[first].regions[0], place);
    }

    /// The counter of the first round that the test need not hold for, the loop's upper bound at most: of each comparison
    /// `lower + step * max(0, ceil((high - low) / loses))` with the first round's sides.
    fn bound(&self, b: &mut Builder<'_>, operands: &[Value], body: Block) -> Value {
        let (lower, upper, step) = (operands[0], operands[1], operands[2]);
        let counter = b.func.blocks[body].args[0];
        let mut map: FxHashMap<Value, Value> = std::iter::once((counter, lower)).collect();
        let mut tested = Vec::new();
        copy(b.func, &self.ops, &mut map, &mut tested);
        b.func.blocks[b.block].ops.append(&mut tested);
        let mapped = |value: &Value| map.get(value).copied().unwrap_or(*value);
        let (wide_lower, wide_step) = (b.wide(lower), b.wide(step));
        let mut bound = b.wide(upper);
        for Comparison { low, high, or_equal, loses } in &self.passing {
            let (low, high) = (b.wide(mapped(low)), b.wide(mapped(high)));
            let mut left = b.minus(high, low);
            if *or_equal {
                let one = b.wide_number(1);
                left = b.plus(left, one);
            }
            let by = b.wide_number(*loses);
            let kind = ScheduleOp::DivI { signedness: Signedness::Signed, rounding: Rounding::PositiveInf };
            let rounds = b.same(kind, &[left, by]);
            let none = b.wide_number(0);
            let rounds = b.most(rounds, none);
            let passed = b.times(rounds, wide_step);
            let end = b.plus(wide_lower, passed);
            bound = b.least(bound, end);
        }
        let mut bound = b.narrow(bound, upper);
        for condition in &self.lasting {
            bound = b.choose(mapped(condition), bound, lower);
        }
        bound
    }
}

/// The operations of a loop's body that make a test of scalars out of its counter and of what is known before it.
fn tested_by(func: &Func, body: Block, counter: Value, test: Value) -> Option<Vec<Op>> {
    let ops = &func.blocks[body].ops;
    let carried = &func.blocks[body].args[1..];
    let (mut needed, mut next) = (Vec::new(), vec![test]);
    while let Some(value) = next.pop() {
        if carried.contains(&value) {
            return None;
        }
        let Some(op) = func.defining_op(value).filter(|op| value != counter && ops.contains(op)) else { continue };
        if !needed.contains(&op) {
            let scalar = func.ty(value).as_tile().is_some_and(|tile| tile.shape.is_empty());
            if !scalar || !func.ops[op].regions.is_empty() || !is_free(func, op) {
                return None;
            }
            needed.push(op);
            next.extend(&func.ops[op].operands);
        }
    }
    Some(ops.iter().copied().filter(|op| needed.contains(op)).collect())
}

/// What a test's operations make of the counter, and the counter.
fn moving(func: &Func, ops: &[Op], counter: Value) -> FxHashSet<Value> {
    let mut moving: FxHashSet<Value> = std::iter::once(counter).collect();
    for &op in ops {
        if func.ops[op].operands.iter().any(|value| moving.contains(value)) {
            moving.extend(&func.ops[op].results);
        }
    }
    moving
}

/// What an integer grows by where the counter grows by one; `None` where that is not the same everywhere.
fn grows_by(func: &Func, facts: &Facts, (counter, moving): (Value, &FxHashSet<Value>), value: Value) -> Option<i64> {
    let mut factor = 0;
    for (term, times) in Linear::of(func, facts, value, Wraps::Kept).terms {
        if term == counter {
            factor = times;
        } else if moving.contains(&term) {
            return None;
        }
    }
    Some(factor)
}

/// Puts what the first region of a branch does in its place.
fn take_first(func: &mut Func, body: Block, place: usize) {
    let branch = func.ops[func.blocks[body].ops[place]].clone();
    let mut then = func.blocks[branch.regions[0]].ops.clone();
    let Some(end) = then.pop() else { bug!("a branch without an end") };
    let yielded = func.ops[end].operands.to_vec();
    func.blocks[body].ops.splice(place..=place, then);
    let replaced: FxHashMap<Value, Value> = branch.results.iter().copied().zip(yielded).collect();
    func.replace_uses(|value| *replaced.get(&value).unwrap_or(&value));
}
