//! Products of a round are started one behind the other, and waited for afterwards: those that have nothing to do with each other, and those that
//! add to what another one yields.
//!
//! ```text
//! %x = wgmma %a, %b, %p; %v = wait [%x]; %y = wgmma %a, %c, %q; %w = wait [%y]
//! %x = wgmma %a, %b, %p; %y = wgmma %a, %c, %q; %v = wait [%x] {pending=1}; %w = wait [%y]
//!
//! %x = wgmma %a, %b, %p; %v = wait [%x]; %y = wgmma %a, %c, %v; %w = wait [%y]
//! %x = wgmma %a, %b, %p; %y = wgmma %a, %c, %x; %w = wait [%y]
//! ```
//!
//! Invariant: a wait waits for what it waited for before; products that start meanwhile are left in flight. One that yields nothing goes where
//! the next one waits for as much.

use tessera_ir::{Changed, Effects, Func, Op, OpKind, TileOp, Value};

use super::carry::uses;

/// Moves waits behind products that follow them.
pub(super) fn start_together(func: &mut Func) -> Changed {
    let mut changed = false;
    for block in func.linked_blocks() {
        for at in (0..func.blocks[block].ops.len()).rev() {
            let mut place = at;
            while let Some(distance) = next_product(func, &func.blocks[block].ops[place..]) {
                let wait = add_in_flight(func, func.blocks[block].ops[place], func.blocks[block].ops[place + distance]);
                let ops = &mut func.blocks[block].ops;
                ops[place] = wait;
                ops[place..=place + distance].rotate_left(1);
                place += distance;
                changed = true;
                if let OpKind::Tile(TileOp::WgmmaWait { pending }) = &mut func.ops[wait].kind {
                    *pending += 1;
                }
            }
            if is_needless(func, &func.blocks[block].ops[place..]) {
                func.blocks[block].ops.remove(place);
                changed = true;
            }
        }
    }
    Changed(changed)
}

fn is_product(func: &Func, op: Op) -> bool {
    matches!(func.ops[op].kind, OpKind::Tile(TileOp::Wgmma { .. }))
}

fn is_plain(func: &Func, op: Op) -> bool {
    let data = &func.ops[op];
    data.row().effects == Effects::Pure && data.through.is_none() && data.regions.is_empty()
}

/// For how many products a wait leaves in flight.
fn pending(func: &Func, op: Op) -> Option<u32> {
    match func.ops[op].kind {
        OpKind::Tile(TileOp::WgmmaWait { pending }) => Some(pending),
        _ => None,
    }
}

/// How far behind a wait, the first operation, the next product stands, where that may start before the wait and nothing between needs it.
fn next_product(func: &Func, ops: &[Op]) -> Option<usize> {
    let (&wait, behind) = ops.split_first()?;
    pending(func, wait)?;
    let product = behind.iter().position(|&op| is_product(func, op))?;
    // What adds up in the registers that are waited for changes them.
    let waited_for = |used: Value| func.ops[wait].results.contains(&used) || func.ops[wait].operands.contains(&used);
    let free = |op: Op| !func.ops[op].used().any(waited_for);
    let between = behind[..product].iter().all(|&op| is_plain(func, op) && free(op));
    (between && (free(behind[product]) || adds(func, wait, behind[product]))).then_some(product + 1)
}

/// Whether a product adds to the one that a wait is for, by the same instruction: the tensor cores keep their order themselves. Nobody else may
/// ask for its value.
fn adds(func: &Func, wait: Op, product: Op) -> bool {
    let (&[flying], &[sum]) = (&func.ops[wait].operands[..], &func.ops[wait].results[..]) else { return false };
    let first = func.defining_op(flying).filter(|&op| is_product(func, op));
    let left = |op: Op| func.ty(func.ops[op].one(0));
    let element = |op: Op| left(op).as_shared().map_or_else(|| left(op).num(), |buffer| Some(buffer.elem));
    let instruction = |op: Op| (&func.ops[op].kind, element(op), func.ty(func.ops[op].one(1)));
    let uses = uses(func);
    func.ops[product].one(2) == sum
        && first.is_some_and(|first| instruction(first) == instruction(product))
        && [flying, sum].iter().all(|value| uses.get(value) == Some(&1))
}

/// Has a product that adds to what a wait yields add to it in flight; the wait, which yields nothing then.
fn add_in_flight(func: &mut Func, wait: Op, product: Op) -> Op {
    let &[flying] = &func.ops[wait].operands[..] else { return wait };
    if !adds(func, wait, product) {
        return wait;
    }
    func.ops[product].operands[2] = flying;
    let (kind, span) = (func.ops[wait].kind.clone(), func.ops[wait].span);
    func.make_op(kind, &[&[]], [], [], span)
}

/// Whether a wait, the first operation, yields nothing and the next one waits for as much.
fn is_needless(func: &Func, ops: &[Op]) -> bool {
    let Some((&wait, behind)) = ops.split_first() else { return false };
    let Some(own) = pending(func, wait).filter(|_| func.ops[wait].results.is_empty()) else { return false };
    let next = behind.iter().find(|&&op| !is_plain(func, op)).and_then(|&op| pending(func, op));
    next.is_some_and(|next| next <= own)
}
