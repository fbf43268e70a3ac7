//! Products of a round that have nothing to do with each other are started one behind the other, and waited for afterwards.
//!
//! ```text
//! %x = wgmma %a, %b, %p; %v = wait [%x]; %y = wgmma %a, %c, %q; %w = wait [%y]
//! %x = wgmma %a, %b, %p; %y = wgmma %a, %c, %q; %v = wait [%x] {pending=1}; %w = wait [%y]
//! ```
//!
//! Invariant: a wait waits for what it waited for before; products that start meanwhile are left in flight.

use tessera_ir::{Changed, Effects, Func, Op, OpKind, TileOp, Value};

/// Moves waits behind products that follow them.
pub(super) fn start_together(func: &mut Func) -> Changed {
    let mut changed = false;
    for block in func.linked_blocks() {
        for at in (0..func.blocks[block].ops.len()).rev() {
            let mut place = at;
            while let Some(product) = next_product(func, &func.blocks[block].ops[place..]) {
                func.blocks[block].ops[place..=place + product].rotate_left(1);
                place += product;
                changed = true;
                let wait = func.blocks[block].ops[place];
                if let OpKind::Tile(TileOp::WgmmaWait { pending }) = &mut func.ops[wait].kind {
                    *pending += 1;
                }
            }
        }
    }
    Changed(changed)
}

/// How far behind a wait, the first operation, the next product stands, where neither that nor what is between needs what is waited for.
fn next_product(func: &Func, ops: &[Op]) -> Option<usize> {
    let wait = &func.ops[*ops.first()?];
    if !matches!(wait.kind, OpKind::Tile(TileOp::WgmmaWait { .. })) {
        return None;
    }
    let is_product = |op: Op| matches!(func.ops[op].kind, OpKind::Tile(TileOp::Wgmma { .. }));
    let free = |op: Op| {
        let data = &func.ops[op];
        let plain = data.row().effects == Effects::Pure && data.through.is_none() && data.regions.is_empty();
        // What adds up in the registers that are waited for changes them.
        let waited_for = |used: Value| wait.results.contains(&used) || wait.operands.contains(&used);
        (plain || is_product(op)) && !data.used().any(waited_for)
    };
    let product = ops[1..].iter().position(|&op| is_product(op))? + 1;
    ops[1..=product].iter().all(|&op| free(op)).then_some(product)
}
