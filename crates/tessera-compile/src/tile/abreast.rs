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
//! A factor that threads make in registers is made while the product before runs; what is done with that one's sums comes behind the start:
//!
//! ```text
//! %x = wgmma %f, %b, %p; %v = wait [%x]; %s = fma %v, ...; %g = load_shared ...; %y = wgmma %g, %c, %q; %w = wait [%y]
//! %x = wgmma %f, %b, %p; %g = load_shared ...; %y = wgmma %g, %c, %q; %v = wait [%x] {pending=1}; %s = fma %v, ...; %w = wait [%y]
//! ```
//!
//! So one product is in flight while a thread makes the next one's factor, and two where sums are few ([`MOST_SUMS`]): both hold registers, and
//! those that they are added to do.
//!
//! Invariant: a wait waits for what it waited for before; products that start meanwhile are left in flight. One that yields nothing goes where
//! the next one waits for as much.

use rustc_hash::FxHashSet;
use tessera_ir::{Changed, Effects, Func, Op, OpKind, TileOp, Value};

use super::carry::uses;

/// Registers for sums of a product that is in flight while another one's factor is made.
const MOST_SUMS: u64 = 32;

/// Moves waits behind products that follow them.
pub(super) fn start_together(func: &mut Func) -> Changed {
    let mut changed = false;
    for block in func.linked_blocks() {
        for at in (0..func.blocks[block].ops.len()).rev() {
            if let Some((start, rest)) = made_meanwhile(func, &func.blocks[block].ops[at..]) {
                let wait = func.blocks[block].ops[at];
                let end = at + start.len() + rest.len();
                func.blocks[block].ops.splice(at..end, start.into_iter().chain(rest));
                if let OpKind::Tile(TileOp::WgmmaWait { pending }) = &mut func.ops[wait].kind {
                    *pending += 1;
                }
                changed = true;
                continue;
            }
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

/// The operations from a wait, the first one, up to the next product, in two parts: what leads to that product's start, as its factor is made in
/// registers, and then the wait with what needs it.
fn made_meanwhile(func: &Func, ops: &[Op]) -> Option<(Vec<Op>, Vec<Op>)> {
    let (&wait, behind) = ops.split_first()?;
    let few = |value: &Value| func.ty(*value).layout().is_some_and(|layout| layout.registers() <= MOST_SUMS);
    if pending(func, wait)? != 0 || !func.ops[wait].results.iter().all(few) {
        return None;
    }
    let product = behind.iter().position(|&op| is_product(func, op))?;
    let in_registers = func.ty(func.ops[behind[product]].one(0)).layout().is_some();
    let reads = |op: Op| matches!(func.ops[op].kind, OpKind::Tile(TileOp::LoadShared {})) && func.ops[op].through.is_none();
    if !in_registers || !behind[..product].iter().any(|&op| reads(op)) {
        return None;
    }
    let (mut start, mut rest) = (Vec::new(), vec![wait]);
    let mut late: FxHashSet<Value> = func.ops[wait].results.iter().chain(&func.ops[wait].operands).copied().collect();
    for &op in &behind[..=product] {
        let needs = func.ops[op].used().any(|used| late.contains(&used));
        match (is_plain(func, op), needs) {
            (true, true) => {
                late.extend(&func.ops[op].results);
                rest.push(op);
            }
            (_, false) if is_plain(func, op) || reads(op) || is_product(func, op) => start.push(op),
            _ => return None,
        }
    }
    Some((start, rest))
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
