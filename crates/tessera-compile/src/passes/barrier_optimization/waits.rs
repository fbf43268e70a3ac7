//! Waits in the order of operations: what stands between a wait and the first use of what it waits for may go before it.
//!
//! ```text
//! %x = tile.wgmma %a, %b, %acc                     %x = tile.wgmma %a, %b, %acc
//! %y = tile.wgmma %c, %d, %acc                     %y = tile.wgmma %c, %d, %acc
//! %v = tile.wgmma_wait [%x] {pending=0}     ->     %e = exp2 %s
//! %e = exp2 %s                                     %v = tile.wgmma_wait [%x] {pending=1}
//! %w = tile.wgmma_wait [%y] {pending=0}            %w = tile.wgmma_wait [%y] {pending=0}
//! ```
//!
//! Invariant: operations that change memory, let others go on or meet them keep their place among the waits.

use tessera_ir::{Effects, Func, Op, OpKind, TileOp};

/// Lets a wait for products leave those in flight that it does not name, where nothing but arithmetic and products comes before the next wait.
pub(super) fn relax(func: &mut Func) -> bool {
    let mut relaxed: Vec<(Op, u32)> = Vec::new();
    for block in func.linked_blocks() {
        let ops = &func.blocks[block].ops;
        for (at, &op) in ops.iter().enumerate() {
            let OpKind::Tile(TileOp::WgmmaWait { pending }) = func.ops[op].kind else { continue };
            let is_product = |&op: &Op| matches!(func.ops[op].kind, OpKind::Tile(TileOp::Wgmma { .. }));
            let quiet = |&&op: &&Op| is_product(&op) || is_arithmetic(func, op);
            let behind = at + 1 + ops[at + 1..].iter().take_while(quiet).count();
            // The next wait leaves no more in flight than there were before.
            let started = ops[at + 1..behind].iter().filter(|op| is_product(op)).count() as u32;
            match ops.get(behind).map(|&next| &func.ops[next].kind) {
                Some(OpKind::Tile(TileOp::WgmmaWait { pending: next })) if *next <= pending + started => {}
                _ => continue,
            }
            // What follows a product directly, up to the wait: how many are newer. Where that is not known, none is: all are waited for.
            let newer = |value| {
                let started = func.defining_op(value)?;
                let first = ops[..at].iter().position(|&op| op == started)?;
                let between = &ops[first + 1..at];
                let plain = between.iter().all(|&op| func.ops[op].regions.is_empty());
                plain.then(|| between.iter().filter(|op| is_product(op)).count() as u32)
            };
            let least = func.ops[op].group(0).iter().map(|&value| newer(value).unwrap_or(0)).min();
            if let Some(least) = least.filter(|&least| least > pending) {
                relaxed.push((op, least));
            }
        }
    }
    for &(op, pending) in &relaxed {
        func.ops[op].kind = TileOp::WgmmaWait { pending }.into();
    }
    !relaxed.is_empty()
}

/// Moves waits down behind what has nothing to do with copies, products or shared memory. A wait for products passes arithmetic on tiles, which
/// is work for the time until they are done; it does not change places with mere indices.
pub(super) fn sink(func: &mut Func) -> bool {
    let mut changed = false;
    for block in func.linked_blocks() {
        for at in (0..func.blocks[block].ops.len()).rev() {
            let ops = &func.blocks[block].ops;
            let wait = &func.ops[ops[at]];
            let count = match wait.kind {
                OpKind::Tile(TileOp::WaitGroup { .. }) => {
                    let free = |&&op: &&Op| {
                        let data = &func.ops[op];
                        let global = matches!(&data.kind, OpKind::Schedule(_)) && data.row().effects == Effects::Read;
                        is_arithmetic(func, op) || global && data.through.is_none() && data.regions.is_empty()
                    };
                    ops[at + 1..].iter().take_while(free).count()
                }
                OpKind::Tile(TileOp::WgmmaWait { .. }) => {
                    let free =
                        |&&op: &&Op| is_arithmetic(func, op) && !func.ops[op].used().any(|used| wait.results.contains(&used));
                    let free: Vec<Op> = ops[at + 1..].iter().take_while(free).copied().collect();
                    let works = |&op: &Op| func.ops[op].operands.iter().any(|&operand| func.ty(operand).layout().is_some());
                    free.iter().rposition(works).map_or(0, |last| last + 1)
                }
                _ => continue,
            };
            if count > 0 {
                func.blocks[block].ops[at..=at + count].rotate_left(1);
                changed = true;
            }
        }
    }
    changed
}

/// Whether an operation touches no memory, and its threads nothing of each other.
fn is_arithmetic(func: &Func, op: Op) -> bool {
    let data = &func.ops[op];
    data.row().effects == Effects::Pure && data.through.is_none() && data.regions.is_empty()
}
