//! `register-coalescing`: what a thread holds is kept in registers, and moves in as few accesses as it can.
//!
//! 0. [`range`] refuses accesses that are wrong whatever the kernel is given.
//! 1. [`unroll`] writes short loops out whose counter chooses registers or walks over neighbours.
//! 2. [`arrays`] makes values of arrays of registers that only constants index, through loops and branches.
//! 3. [`copies`] makes one array of two where one is a copy of the other and they are not needed at the same time.
//! 4. [`guards`] finds conditions that mean the same for aligned neighbours, and merges branches that follow each other on one.
//! 5. [`vectors`] merges accesses to neighbours where their alignment is proven.
//! 6. [`conversions`] drops changes of layout that undo each other or that nobody needs.
//!
//! Invariant: every value and every byte of memory is what it was before; operations on memory keep their order where they may meet
//! ([`accesses`]).
//!
//! ```text
//! %a = load_ptr_tko (offset %x, 4 %t) ; %b = load_ptr_tko (offset %x, 4 %t + 1) ; ...
//! %a, %b, %c, %d = tile.load_vector (offset %x, 4 %t)                         where %x is aligned to 16 bytes
//! ```

mod accesses;
mod arrays;
mod conversions;
mod copies;
mod guards;
mod range;
mod unroll;
mod vectors;

use tessera_ir::uniformity::is_per_thread;
use tessera_ir::{Changed, Func, Level, Pass, PassCx};

use super::{canonicalise, constant_fold, cse};
use crate::rewrite::dce;

/// The pass.
pub(super) const PASS: Pass = Pass {
    name: "register-coalescing",
    doc: "Keeps arrays in registers, removes copies and changes of layout, and merges accesses to neighbours.",
    run,
};

fn run(func: &mut Func, cx: &mut PassCx<'_>) -> Changed {
    if func.level != Level::Tile {
        return Changed(false);
    }
    let wrong = range::check(func);
    if !wrong.is_empty() {
        cx.diagnostics.extend(wrong);
        return Changed(false);
    }
    let mut changed = conversions::remove(func);
    let per_thread = is_per_thread(func);
    let unrolled = unroll::unroll(func, per_thread);
    if unrolled {
        tidy(func, cx);
    }
    let mut moved = arrays::promote(func);
    moved |= copies::merge(func);
    if per_thread {
        if guards::unify(func) {
            moved = true;
            (cse::PASS.run)(func, cx);
        }
        if guards::merge(func) {
            // Branches that have become one compute the same things.
            moved = true;
            (cse::PASS.run)(func, cx);
        }
        moved |= vectors::widen(func);
    }
    changed |= unrolled | moved;
    if changed {
        (dce::PASS.run)(func, cx);
    }
    if per_thread && !is_per_thread(func) {
        // Nobody asks for its number any more, but scalars stay each thread's own.
        func.hints.num_threads = Some(func.hints.threads());
    }
    Changed(changed)
}

/// What constants made simpler.
fn tidy(func: &mut Func, cx: &mut PassCx<'_>) {
    for pass in [&constant_fold::PASS, &canonicalise::PASS, &cse::PASS] {
        (pass.run)(func, cx);
    }
}
