//! What only the regions of one `if` use is computed there: on the way that needs it, and in no registers before.
//!
//! ```text
//! %s = muli %acc, %a                                   if %c : tile { %s = muli %acc, %a; %r = addi %s, %t; yield [%r] }
//! if %c : tile { %r = addi %s, %t; yield [%r] }              () { %s.1 = muli %acc, %a; yield [%s.1] }
//!        () { yield [%s] }
//! ```
//!
//! With both `%acc` and `%s` alive in front of the branch, an accumulator would take its registers twice. Products stay: a recipe looks for
//! them in the loop's own body.

use rustc_hash::{FxHashMap, FxHashSet};
use tessera_ir::{Block, Changed, Effects, Func, Op, OpKind, ScheduleOp, Value};

use super::queue::copied;
use super::roles::is_product;

/// Moves operations into the regions that use them, in every block.
pub(super) fn into_branches(func: &mut Func) -> Changed {
    let mut changed = false;
    for block in func.linked_blocks() {
        let branches = |op: &Op| matches!(func.ops[*op].kind, OpKind::Schedule(ScheduleOp::If {}));
        let branches: Vec<Op> = func.blocks[block].ops.iter().copied().filter(branches).collect();
        for branch in branches {
            changed |= sink(func, block, branch);
        }
    }
    Changed(changed)
}

fn sink(func: &mut Func, block: Block, branch: Op) -> bool {
    let Some(end) = func.blocks[block].ops.iter().position(|&op| op == branch) else { return false };
    let regions = func.ops[branch].regions.to_vec();
    let inside: Vec<FxHashSet<Value>> = regions.iter().map(|&region| used_in(func, region)).collect();
    // What anything but the regions uses stays, and with it what that is computed by.
    let own: FxHashSet<Op> = regions.iter().flat_map(|&region| ops_in(func, region)).collect();
    let others = func.linked_ops().into_iter().filter(|op| !own.contains(op));
    let mut kept: FxHashSet<Value> = FxHashSet::default();
    let mut users: FxHashMap<Value, Vec<Op>> = FxHashMap::default();
    for op in others {
        for value in func.ops[op].used() {
            users.entry(value).or_default().push(op);
        }
    }
    kept.extend(func.ops[branch].operands.iter().copied());
    let (mut moved, mut wanted) = (Vec::new(), inside);
    for at in (0..end).rev() {
        let op = func.blocks[block].ops[at];
        let data = &func.ops[op];
        let pure =
            data.row().effects == Effects::Pure && data.regions.is_empty() && data.results.len() == 1 && !is_product(func, op);
        let Some(&result) = data.results.first().filter(|_| pure) else { continue };
        let stays = users.get(&result).is_some_and(|users| users.iter().any(|user| !moved.contains(user)));
        if kept.contains(&result) || stays || !wanted.iter().any(|wanted| wanted.contains(&result)) {
            continue;
        }
        for wanted in wanted.iter_mut().filter(|wanted| wanted.contains(&result)) {
            wanted.extend(data.used());
        }
        moved.push(op);
    }
    moved.reverse();
    func.blocks[block].ops.retain(|op| !moved.contains(op));
    for (&region, wanted) in regions.iter().zip(&wanted) {
        let (mut names, mut ops) = (FxHashMap::default(), Vec::new());
        for &op in moved.iter().filter(|&&op| wanted.contains(&func.ops[op].results[0])).collect::<Vec<_>>() {
            ops.push(copied(func, op, &mut names));
        }
        rename(func, region, &names);
        func.blocks[region].ops.splice(0..0, ops);
    }
    !moved.is_empty()
}

fn ops_in(func: &Func, block: Block) -> Vec<Op> {
    let mut found = Vec::new();
    for &op in &func.blocks[block].ops {
        found.push(op);
        found.extend(func.ops[op].regions.iter().flat_map(|&region| ops_in(func, region)));
    }
    found
}

fn used_in(func: &Func, block: Block) -> FxHashSet<Value> {
    ops_in(func, block).into_iter().flat_map(|op| func.ops[op].used().collect::<Vec<_>>()).collect()
}

fn rename(func: &mut Func, block: Block, names: &FxHashMap<Value, Value>) {
    for op in ops_in(func, block) {
        for operand in &mut func.ops[op].operands {
            *operand = names.get(operand).copied().unwrap_or(*operand);
        }
    }
}
