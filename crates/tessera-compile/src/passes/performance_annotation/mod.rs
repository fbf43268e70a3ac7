//! `performance-annotation`: hints that change no meaning, each of which the lowering reads.
//!
//! | hint | where | what the lowering does |
//! |---|---|---|
//! | `unroll=N` ([`loops`]) | innermost loops of few, known rounds | puts `N` bodies behind each other; all of them where `N` is the rounds |
//! | `cache=...` ([`reuse`]) | loads, stores and copies whose reuse is known | adds PTX's cache operators and policies, where the target gains by them |
//! | `lines` ([`reuse`]) | copies of parts of lines that a later round reads on in | has L2 fetch whole lines |
//! | `tile.prefetch` ([`prefetch`]) | loads that a barrier keeps in their round | asks for the next round's line |
//! | `tile.mark` ([`marks`]) | functions that ask for a timeline | records times |
//!
//! Marks that the author has set must pair up, or no timeline could show them.
//!
//! Everything is decided about the function as it came, and written afterwards.

mod loops;
mod marks;
mod prefetch;
mod reuse;

use tessera_ir::attrs::CacheHint;
use tessera_ir::{Changed, Func, Level, Op, OpKind, Pass, PassCx, ScheduleOp, TileOp};

/// The pass.
pub(super) const PASS: Pass = Pass {
    name: "performance-annotation",
    doc: "Adds hints: unrolling by trip counts, cache operators by reuse, prefetches where latency is exposed, marks where asked.",
    run,
};

fn run(func: &mut Func, cx: &mut PassCx<'_>) -> Changed {
    if func.level != Level::Tile {
        return Changed(false);
    }
    let Some(arch) = cx.needs_target(PASS.name, func) else { return Changed(false) };
    let wrong = marks::check(func);
    if !wrong.is_empty() {
        cx.diagnostics.extend(wrong);
        return Changed(false);
    }
    let (unrolled, cached) = (loops::unrolled(func), reuse::hints(func, arch));
    let (prefetched, lines) = (prefetch::wanted(func), reuse::whole_lines(func));
    let mut changed = !(unrolled.is_empty() && cached.is_empty() && prefetched.is_empty() && lines.is_empty());
    for (op, copies) in unrolled {
        if let OpKind::Schedule(ScheduleOp::For { unroll, .. }) = &mut func.ops[op].kind {
            *unroll = Some(copies);
        }
    }
    for (op, hint) in cached {
        if let Some(cache) = cache_of(&mut func.ops[op].kind) {
            *cache = hint;
        }
    }
    for op in lines {
        if let OpKind::Tile(TileOp::CopyAsync { lines, .. }) = &mut func.ops[op].kind {
            *lines = true;
        }
    }
    prefetch::insert(func, &prefetched);
    changed |= marks::insert(func);
    Changed(changed)
}

/// The hint of an operation that has one.
fn cache_of(kind: &mut OpKind) -> Option<&mut CacheHint> {
    match kind {
        OpKind::Schedule(
            ScheduleOp::LoadViewTko { cache, .. }
            | ScheduleOp::StoreViewTko { cache, .. }
            | ScheduleOp::LoadPtrTko { cache, .. }
            | ScheduleOp::StorePtrTko { cache, .. },
        )
        | OpKind::Tile(TileOp::LoadVector { cache, .. } | TileOp::StoreVector { cache, .. } | TileOp::CopyAsync { cache, .. }) => {
            Some(cache)
        }
        _ => None,
    }
}

/// Calls with every operation and the loops around it, outermost first.
fn visit(func: &Func, see: &mut impl FnMut(Op, &[Op])) {
    fn block(func: &Func, at: tessera_ir::Block, around: &mut Vec<Op>, see: &mut impl FnMut(Op, &[Op])) {
        for &op in &func.blocks[at].ops {
            see(op, around);
            let is_loop = matches!(func.ops[op].kind, OpKind::Schedule(ScheduleOp::For { .. } | ScheduleOp::Loop {}));
            if is_loop {
                around.push(op);
            }
            for &region in &func.ops[op].regions {
                block(func, region, around, see);
            }
            if is_loop {
                around.pop();
            }
        }
    }
    block(func, func.body, &mut Vec::new(), see);
}
