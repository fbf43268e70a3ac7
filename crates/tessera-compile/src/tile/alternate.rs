//! Warpgroups of a role that start their products in turn: one works on its sums while the other's products run.
//!
//! ```text
//! group 0   products   work       products   work
//! group 1              products   work       products
//! ```
//!
//! Groups that start together finish together, and leave the tensor cores idle while all of them work. Nothing brings them out of step by
//! itself: whether they are depends on which one the scheduler prefers. FlashAttention-3 calls this ping-pong scheduling (Shah et al. 2024, 3.1).
//!
//! ```text
//! for { start first; start second; s = wait; p = work(s); wait }
//!
//! open
//! for { take; start first; start second; give; s = wait; p = work(s); wait }
//! ```
//!
//! Applies to loops that have two products in flight at a time, as [`super::overlap`] leaves them: where one alone is in flight, the next
//! cannot start before the work behind it is done, and turns would only add to the way that a round takes.

use tessera_analysis::barriers::NamedBarriers;
use tessera_ir::attrs::TurnStep;
use tessera_ir::{Block, Changed, Func, Op, OpKind, ScheduleOp, TileOp};
use tessera_types::Arch;

/// Has the groups of every role take turns in the loops that allow it.
pub(super) fn alternate(func: &mut Func, arch: Arch) -> Changed {
    let mut barriers = NamedBarriers::left_by(func, arch);
    let mut changed = false;
    for role in func.blocks[func.body].ops.clone() {
        let OpKind::Tile(TileOp::Role { warps, .. }) = func.ops[role].kind else { continue };
        let groups = warps * Arch::WARP / Arch::WARPGROUP;
        if groups < 2 {
            continue;
        }
        let body = func.ops[role].regions[0];
        let loops: Vec<Products> = func.blocks_within(body).into_iter().flat_map(|block| overlapped(func, block)).collect();
        // Turns make a loop faster, not right: without barriers there are none.
        let Some(id) = (!loops.is_empty()).then(|| barriers.last_row(groups)).flatten() else { continue };
        for Products { block, first, last } in loops {
            let [take, give] =
                [(TurnStep::Take, first), (TurnStep::Give, last)].map(|(step, op)| turn(func, (id, groups, step), op));
            let ops = &func.blocks[block].ops;
            let [start, end] = [first, last].map(|op| func.blocks[block].place_of(op));
            func.blocks[block].ops = [&ops[..start], &[take], &ops[start..=end], &[give], &ops[end + 1..]].concat();
        }
        let open = turn(func, (id, groups, TurnStep::Open), role);
        func.blocks[body].ops.insert(0, open);
        changed = true;
    }
    Changed(changed)
}

/// What a round starts together.
struct Products {
    block: Block,
    first: Op,
    last: Op,
}

fn turn(func: &mut Func, (id, groups, step): (u32, u32, TurnStep), at: Op) -> Op {
    let span = func.ops[at].span;
    func.make_op(TileOp::GroupTurn { id, groups, step }.into(), &[], [], [], span)
}

/// Loops of a block that wait for some products while others go on.
fn overlapped(func: &Func, block: Block) -> Vec<Products> {
    let is_loop = |op: &&Op| matches!(func.ops[**op].kind, OpKind::Schedule(ScheduleOp::For { .. } | ScheduleOp::Loop {}));
    func.blocks[block].ops.iter().filter(is_loop).filter_map(|&op| in_flight(func, func.ops[op].regions[0])).collect()
}

/// The products of a round of which some go on behind the first wait.
fn in_flight(func: &Func, block: Block) -> Option<Products> {
    let ops = &func.blocks[block].ops;
    let waits = |op: &Op| match func.ops[*op].kind {
        OpKind::Tile(TileOp::WgmmaWait { pending }) => Some(pending),
        _ => None,
    };
    // A turn that went on behind a wait would hold the other groups up while this one works.
    let wait = ops.iter().position(|op| waits(op).is_some())?;
    waits(&ops[wait]).filter(|&pending| pending > 0)?;
    let is_product = |op: &&Op| matches!(func.ops[**op].kind, OpKind::Tile(TileOp::Wgmma { .. }));
    let (first, last) = (ops[..wait].iter().find(is_product)?, ops[..wait].iter().rev().find(is_product)?);
    Some(Products { block, first: *first, last: *last })
}
