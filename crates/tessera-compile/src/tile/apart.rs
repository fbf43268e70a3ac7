//! Scalars that follow from a function's arguments, as the number of a loop's rounds does, in each role on its own.
//!
//! What is computed before roles and used in two of them keeps one register through both. Assemblers take that from those that the role with
//! fewest has, and there the sums of the other role lie, too: where sums fill the file, such a scalar is spilled, although registers
//! further up are free. To compute it once more costs a few instructions a block.
//!
//! ```text
//! %n = divi %K, 64; role { for 0 .. %n }; role { for 0 .. %n }    role { %n = divi %K, 64; for 0 .. %n }; role { %n = .. }
//! ```
//!
//! Invariant: what is repeated has no effect but an error for some inputs, reads no memory, and is the same in every block.

use rustc_hash::{FxHashMap, FxHashSet};
use tessera_ir::{Effects, Func, Op, OpKind, ScheduleOp, Value};

use super::queue::copied;

/// Repeats in each role, at its start, those scalars of the operations before all roles that it needs. What nobody needs before roles
/// any more goes.
pub(super) fn repeat(func: &mut Func, before: &mut Vec<Op>, roles: &mut [Vec<Op>]) {
    let follow = from_arguments(func, before);
    for ops in roles {
        let within = all_within(func, ops);
        let needed = needed_by(func, &follow, &within);
        let mut names: FxHashMap<Value, Value> = FxHashMap::default();
        let copies: Vec<Op> = needed.into_iter().map(|op| copied(func, op, &mut names)).collect();
        for op in within {
            let data = &mut func.ops[op];
            for used in data.operands.iter_mut().chain(&mut data.through) {
                *used = names.get(used).copied().unwrap_or(*used);
            }
        }
        ops.splice(0..0, copies);
    }
    let rest: Vec<Op> = before.iter().copied().filter(|op| !follow.contains(op)).collect();
    let still = needed_by(func, &follow, &rest);
    before.retain(|op| !follow.contains(op) || still.contains(op));
}

/// Operations that yield scalars and follow from nothing but the function's arguments, in order.
fn from_arguments(func: &Func, ops: &[Op]) -> Vec<Op> {
    let mut known: FxHashSet<Value> = func.blocks[func.body].args.iter().copied().collect();
    let mut found = Vec::new();
    for &op in ops {
        let data = &func.ops[op];
        let scalar = matches!(data.row().effects, Effects::Pure | Effects::MayTrap)
            && data.regions.is_empty()
            && data.results.iter().all(|&result| func.ty(result).is_scalar());
        let from_something = !data.operands.is_empty() || matches!(data.kind, OpKind::Schedule(ScheduleOp::Constant { .. }));
        if scalar && from_something && data.used().all(|used| known.contains(&used)) {
            known.extend(&data.results);
            found.push(op);
        }
    }
    found
}

/// Those of some operations, in order, whose results others use, directly or through each other.
fn needed_by(func: &Func, ops: &[Op], users: &[Op]) -> Vec<Op> {
    let mut wanted: FxHashSet<Value> = users.iter().flat_map(|&op| func.ops[op].used()).collect();
    let mut needed: Vec<Op> = Vec::new();
    for &op in ops.iter().rev() {
        let data = &func.ops[op];
        if data.results.iter().any(|result| wanted.contains(result)) {
            wanted.extend(data.used());
            needed.push(op);
        }
    }
    needed.reverse();
    needed
}

/// Operations, each followed by what stands in its regions.
fn all_within(func: &Func, ops: &[Op]) -> Vec<Op> {
    let mut all = Vec::new();
    for &op in ops {
        all.push(op);
        let regions = &func.ops[op].regions;
        all.extend(regions.iter().flat_map(|&region| all_within(func, &func.blocks[region].ops)));
    }
    all
}
