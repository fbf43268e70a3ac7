//! `barrier-optimization`: threads meet where memory that they share asks for it, and nowhere else.
//!
//! What a Tile program means is told without barriers: one operation after another over all threads. This pass makes it true on a machine. It finds
//! the accesses of different threads that have no order although they need one ([`flow`], on the [`program`]; [`place`] says which pairs those are and
//! [`index`] which elements threads choose), puts barriers between them, takes out barriers and waits that nothing needs, and lets copies run on
//! where a wait would stop them too early.
//!
//! ```text
//! tile.store_shared %a, %buffer          tile.store_shared %a, %buffer
//!                                        tile.barrier
//! %b = tile.load_shared %buffer     ->   %b = tile.load_shared %buffer
//! tile.barrier
//! return                                 return
//! ```
//!
//! 1. **Barriers that are missing**, those deep in loops first. One stands directly before the second access; where the first one came
//!    before a loop, before that loop; where not all threads come to the place, before the branch or role that they divide in.
//! 2. **Waits**: one that nothing needs goes, one that waits for more than anything needs waits for less, and at last it moves down to
//!    where it is needed ([`waits`]).
//! 3. **Barriers that are not needed**: each is taken out on trial ([`trials`]). It stays out where no pair of accesses loses its order, or where the pairs that
//!    do are put right by barriers that run less often. One in a branch goes before it where that saves another one.
//!
//! What no barrier puts right is reported before anything is changed: memory used while work goes on there ([`check`]), slots and barriers that
//! are used in a wrong order or by too few ([`slots`]), roles that wait for each other ([`deadlock`]).
//!
//! A pair that cannot be put right (its threads have parted) stays as it is, with every barrier that may order it. Barriers inside operations that
//! exchange elements are theirs; this pass counts on them.

mod check;
mod deadlock;
mod entries;
mod flow;
mod index;
mod operands;
mod place;
mod program;
mod read;
mod slots;
mod trials;
mod waits;

use rustc_hash::FxHashMap;
use tessera_ir::{Block, Changed, Diagnostic, Func, Level, Op, Pass, PassCx, TileOp};

use self::program::{NodeId, Program};
use self::trials::{Changes, completed, improve};

/// Barrier optimization.
pub(super) const PASS: Pass = Pass {
    name: "barrier-optimization",
    doc: "Puts barriers where threads share memory, takes out those that nothing needs, and lets waits come late.",
    run,
};

fn run(func: &mut Func, cx: &mut PassCx<'_>) -> Changed {
    if func.level != Level::Tile {
        return Changed(false);
    }
    let mut program = Program::of(func);
    let mistakes = mistakes(func, &program);
    if !mistakes.is_empty() {
        cx.diagnostics.extend(mistakes);
        return Changed(false);
    }
    let Changes { inserted, removed, waits } = improve(&mut program);
    let mut changed = !inserted.is_empty() || !removed.is_empty();
    for &(node, pending) in &waits {
        func.ops[program.nodes[node].op].kind = TileOp::WaitGroup { pending }.into();
        changed = true;
    }
    let place = places(func);
    insert(func, &program, &place, &inserted);
    for &node in &removed {
        let op = program.nodes[node].op;
        func.blocks[place[&op]].ops.retain(|&other| other != op);
    }
    changed |= waits::relax(func) | waits::sink(func);
    Changed(changed)
}

/// Puts in the barriers that are missing, and takes none out: for who looks at what is not ordered.
pub(crate) fn complete(func: &mut Func) {
    let mut program = Program::of(func);
    let inserted = completed(&mut program);
    insert(func, &program, &places(func), &inserted);
}

/// Puts barriers before operations, as nodes say.
fn insert(func: &mut Func, program: &Program, place: &FxHashMap<Op, Block>, nodes: &[NodeId]) {
    for &node in nodes {
        let at = program.nodes[node].op;
        let barrier = func.make_op(TileOp::Barrier {}.into(), &[], [], [], func.ops[at].span);
        let block = &mut func.blocks[place[&at]];
        let position = block.place_of(at);
        block.ops.insert(position, barrier);
    }
}

/// What no barrier puts right.
fn mistakes(func: &Func, program: &Program) -> Vec<Diagnostic> {
    let mut found = check::mistakes(func, program);
    found.extend(slots::mistakes(func));
    // Who waits for too many waits for ever.
    if found.is_empty() {
        found.extend(deadlock::mistake(func));
    }
    found
}

/// The block that each operation stands in.
fn places(func: &Func) -> FxHashMap<Op, Block> {
    let blocks = func.linked_blocks();
    blocks.iter().flat_map(|&block| func.blocks[block].ops.iter().map(move |&op| (op, block))).collect()
}
