//! Three or more chained products of a round, as a backward pass has them: each is waited for where something needs its sums, and
//! slots are given back when the last one has started.
//!
//! ```text
//! %s = first; wait %s; %p = second; wait %p; x = work(s); %u = third x; wait %u; release; y = work(x, p); %v = fourth y; wait %v; release
//! %s = first; %p = second; wait %s {1}; x = work(s); %u = third x; wait %p {1}; y = work(x, p); %v = fourth y; wait %u {1}; release; wait %v; release
//! ```
//!
//! So the tensor cores have the next product while threads work on what one has yielded, and warpgroups can take turns
//! ([`alternate`](super::alternate)). Two chained products go over into the next round instead ([`overlap`](super::overlap)).
//!
//! Invariant: nothing but waits for products and what gives slots back changes its place, both to later ones; a slot is given back behind the waits
//! that it was given back behind.

use rustc_hash::FxHashMap;
use tessera_ir::{Block, Changed, Func, Op, OpKind, ScheduleOp, TileOp, Value};

use super::overlap::used;

/// The fewest products of a round that are moved apart from their waits here.
const PRODUCTS: usize = 3;

/// Rearranges every loop of a role that allows it.
pub(super) fn overlap(func: &mut Func) -> Changed {
    let mut changed = false;
    for role in func.blocks[func.body].ops.clone() {
        let OpKind::Tile(TileOp::Role { .. }) = func.ops[role].kind else { continue };
        for block in func.blocks_within(func.ops[role].regions[0]) {
            for op in func.blocks[block].ops.clone() {
                if matches!(func.ops[op].kind, OpKind::Schedule(ScheduleOp::For { .. })) {
                    let body = func.ops[op].regions[0];
                    changed |= round(func, body);
                }
            }
        }
    }
    Changed(changed)
}

fn round(func: &mut Func, body: Block) -> bool {
    let ops = func.blocks[body].ops.clone();
    let products: Vec<Op> = ops.iter().copied().filter(|&op| is_product(func, op)).collect();
    let waits: Vec<Op> = ops.iter().copied().filter(|&op| is_wait(func, op)).collect();
    let (Some(&last), true) = (products.last(), products.len() >= PRODUCTS) else { return false };
    // Each wait is for one product of this round, and nothing is in flight when it ends.
    let own = |wait: Op| products.iter().position(|&product| func.ops[wait].operands[..] == func.ops[product].results[..]);
    let alone = waits.len() == products.len() && waits.iter().all(|&wait| own(wait).is_some() && is_whole(func, wait));
    // A branch may work on sums, and leaves rings and products alone.
    let quiet = |op: Op| {
        func.ops[op].regions.iter().flat_map(|&region| func.blocks_within(region)).all(|block| {
            let ops = &func.blocks[block].ops;
            !ops.iter().any(|&op| is_product(func, op) || is_wait(func, op) || touches_ring(func, op))
        })
    };
    if !alone || !ops.iter().all(|&op| quiet(op)) {
        return false;
    }
    let made: FxHashMap<Value, usize> =
        waits.iter().enumerate().flat_map(|(at, &wait)| func.ops[wait].results.iter().map(move |&sums| (sums, at))).collect();

    let mut out: Vec<Op> = Vec::new();
    let mut open: Vec<Option<Op>> = vec![None; waits.len()];
    let mut held: Vec<(Op, usize)> = Vec::new();
    let mut started: Vec<Op> = Vec::new();
    let mut passed = 0;
    for &op in &ops {
        if is_wait(func, op) {
            open[passed] = Some(op);
            passed += 1;
            continue;
        }
        if is_release(func, op) && started.last() != Some(&last) {
            held.push((op, passed));
            continue;
        }
        let needed: Vec<usize> = used(func, op).iter().filter_map(|used| made.get(used).copied()).collect();
        // What gives a slot back comes behind all waits before it.
        let needed = if is_release(func, op) { (0..passed).collect() } else { needed };
        for at in needed {
            settle(func, &mut open[at], &started, &mut out);
        }
        out.push(op);
        if is_product(func, op) {
            started.push(op);
        }
        if op == last {
            for (release, before) in held.drain(..) {
                for wait in &mut open[..before] {
                    settle(func, wait, &started, &mut out);
                }
                out.push(release);
            }
        }
    }
    let changed = out != ops;
    func.blocks[body].ops = out;
    changed
}

/// Puts a wait here, if that was not done yet: products that were started behind its own stay in flight.
fn settle(func: &mut Func, wait: &mut Option<Op>, started: &[Op], out: &mut Vec<Op>) {
    let Some(wait) = wait.take() else { return };
    let own = |&&product: &&Op| func.ops[product].results[..] != func.ops[wait].operands[..];
    let pending = started.iter().rev().take_while(own).count() as u32;
    func.ops[wait].kind = TileOp::WgmmaWait { pending }.into();
    out.push(wait);
}

fn is_product(func: &Func, op: Op) -> bool {
    matches!(func.ops[op].kind, OpKind::Tile(TileOp::Wgmma { .. }))
}

fn is_wait(func: &Func, op: Op) -> bool {
    matches!(func.ops[op].kind, OpKind::Tile(TileOp::WgmmaWait { .. }))
}

/// A wait that leaves nothing in flight.
fn is_whole(func: &Func, op: Op) -> bool {
    matches!(func.ops[op].kind, OpKind::Tile(TileOp::WgmmaWait { pending: 0 }))
}

fn touches_ring(func: &Func, op: Op) -> bool {
    matches!(func.ops[op].kind, OpKind::Tile(TileOp::Wait {} | TileOp::Release {} | TileOp::Commit { .. } | TileOp::Acquire {}))
}

fn is_release(func: &Func, op: Op) -> bool {
    matches!(func.ops[op].kind, OpKind::Tile(TileOp::Release {}))
}
