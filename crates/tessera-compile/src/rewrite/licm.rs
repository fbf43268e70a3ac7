//! `licm`: what is the same in every round of a loop is computed before it. Pure operations always, out of conditions too; operations
//! that may be an error, and loads from memory that the loop does not write, only where every execution of the loop would
//! have come to them: in a `for` that has a first round, before anything that could leave it.

use rustc_hash::FxHashSet;
use smallvec::SmallVec;
use tessera_ir::{Block, Changed, Effects, Func, Op, OpKind, Pass, PassCx, ScheduleOp, Value};

use tessera_analysis::exits::can_leave;
use tessera_analysis::facts::Facts;
use tessera_analysis::memory::{Access, access, accesses};

/// Loop-invariant code motion.
pub(crate) const PASS: Pass = Pass { name: "licm", doc: "Computes what every round of a loop repeats once, before it.", run };

fn run(func: &mut Func, _: &mut PassCx<'_>) -> Changed {
    let body = func.body;
    Changed(out_of_loops(func, body))
}

/// Moves what every round repeats out of the loops that stand in a block; whether there was any.
pub(crate) fn out_of_loops(func: &mut Func, at: Block) -> bool {
    let facts = Facts::of(func);
    let mut changed = false;
    block(func, at, &facts, &mut changed);
    changed
}

/// Inner loops first, so that what leaves one can leave the next.
fn block(func: &mut Func, at: Block, facts: &Facts, changed: &mut bool) {
    let mut out: Vec<Op> = Vec::new();
    for op in std::mem::take(&mut func.blocks[at].ops) {
        for region in func.ops[op].regions.clone() {
            block(func, region, facts, changed);
        }
        let is_loop = matches!(func.ops[op].kind, OpKind::Schedule(ScheduleOp::For { .. } | ScheduleOp::Loop {}));
        if is_loop {
            let hoisted = hoist(func, op, facts);
            *changed |= !hoisted.is_empty();
            out.extend(hoisted);
        }
        out.push(op);
    }
    func.blocks[at].ops = out;
}

struct Loop<'a> {
    /// Values that are not the same in every round.
    inside: FxHashSet<Value>,
    accesses: &'a [Access],
    hoisted: Vec<Op>,
}

fn hoist(func: &mut Func, op: Op, facts: &Facts) -> Vec<Op> {
    let mut inside = FxHashSet::default();
    for &region in &func.ops[op].regions {
        defined(func, region, &mut inside);
    }
    let mut found: SmallVec<[Access; 8]> = SmallVec::new();
    accesses(func, op, &mut found);
    let mut state = Loop { inside, accesses: &found, hoisted: Vec::new() };
    let certain = runs(func, op, facts);
    for region in func.ops[op].regions.clone() {
        hoist_block(func, region, certain, &mut state);
    }
    state.hoisted
}

fn defined(func: &Func, block: Block, found: &mut FxHashSet<Value>) {
    found.extend(&func.blocks[block].args);
    for &op in &func.blocks[block].ops {
        found.extend(&func.ops[op].results);
        for &region in &func.ops[op].regions {
            defined(func, region, found);
        }
    }
}

/// True when the loop has a first round for certain.
fn runs(func: &Func, op: Op, facts: &Facts) -> bool {
    let data = &func.ops[op];
    match data.kind {
        OpKind::Schedule(ScheduleOp::For { .. }) => {
            let (lower, upper) = (facts.fact(data.one(0)), facts.fact(data.one(1)));
            lower.is_non_negative() && lower.greatest < upper.least
        }
        _ => true,
    }
}

/// Moves what can move out of a block of the loop; `certain` while every execution of the loop comes this far.
fn hoist_block(func: &mut Func, at: Block, mut certain: bool, state: &mut Loop<'_>) {
    let mut kept: Vec<Op> = Vec::new();
    for op in std::mem::take(&mut func.blocks[at].ops) {
        if can_move(func, op, certain, state) {
            for &result in &func.ops[op].results {
                state.inside.remove(&result);
            }
            for &region in &func.ops[op].regions {
                let mut own = FxHashSet::default();
                defined(func, region, &mut own);
                state.inside.retain(|value| !own.contains(value));
            }
            state.hoisted.push(op);
            continue;
        }
        let data = &func.ops[op];
        if matches!(data.kind, OpKind::Schedule(ScheduleOp::If {})) {
            for region in data.regions.clone() {
                hoist_block(func, region, false, state);
            }
        }
        certain &= !can_leave(func, op) && !matches!(func.ops[op].kind, OpKind::Schedule(ScheduleOp::Loop {}));
        kept.push(op);
    }
    func.blocks[at].ops = kept;
}

fn can_move(func: &Func, op: Op, certain: bool, state: &Loop<'_>) -> bool {
    let data = &func.ops[op];
    let free = match data.row().effects {
        Effects::Pure => !matches!(data.kind, OpKind::Schedule(ScheduleOp::MakeToken {})),
        Effects::MayTrap => certain,
        Effects::Read => {
            certain && data.kind.schedule().is_some_and(ScheduleOp::is_weak_load) && {
                access(func, op)
                    .is_some_and(|load| state.accesses.iter().all(|other| !other.writes || !other.root.meets(load.root)))
            }
        }
        Effects::Write | Effects::Observable | Effects::Terminator | Effects::Regions => false,
    };
    free && invariant(func, op, state)
}

/// No operand, its own regions' included, changes from round to round.
fn invariant(func: &Func, op: Op, state: &Loop<'_>) -> bool {
    fn visit(func: &Func, op: Op, own: &FxHashSet<Value>, state: &Loop<'_>) -> bool {
        let data = &func.ops[op];
        data.operands.iter().all(|value| !state.inside.contains(value) || own.contains(value))
            && data.regions.iter().all(|&region| func.blocks[region].ops.iter().all(|&inner| visit(func, inner, own, state)))
    }
    let mut own = FxHashSet::default();
    for &region in &func.ops[op].regions {
        defined(func, region, &mut own);
    }
    visit(func, op, &own, state)
}
