//! What is quickly made of a narrow tile again is not held in wide registers while the threads of a block meet.
//!
//! ```text
//! %v = ftof %x                                 %v = ftof %x
//! %m = reduce [%v]                             %m = reduce [%v]
//! %d = subf %v, %m       32 numbers held       %again = ftof %x        the 16 registers of %x held
//!                                              %d = subf %again, %m
//! ```
//!
//! A block that reduces a row waits for its threads, and others load meanwhile: as many as registers are left for. Elements of 16 bits take half of
//! what they take as numbers of 32, so twice as many bytes are on their way.
//!
//! Blocks of few threads have enough on their way as it is, and more instructions would hold them up.
//!
//! In a loop the next rows are on their way already, in tiles that it carries. There what a thread has registers for is what decides.
//!
//! **Predicate.** A tile of [`HELD`] numbers of 32 bits or more for each thread ([`HELD_IN_LOOP`]), which a reduction stands before a use of; [`STEPS`] operations at
//! most make it of tiles that were loaded in 16 bits or that the loop carries in them, and of what is held anyway: what is the same along rows, what
//! was there before the loop. Of the function's body, only where more blocks fit a multiprocessor then ([`residence`](super::residence)), of a block of
//! [`THREADS`] or more, or one of a cluster that shares a row. Of a loop, only where a thread holds more there than it has registers for.

use rustc_hash::FxHashMap;
use tessera_ir::{Block, Changed, Func, Op, OpKind, ScheduleOp, TileOp, Type, Value, bug};
use tessera_types::Arch;

use super::anchors::Units;
use super::{residence, threads};
use crate::rewrite::{copy, make, uses};

/// Numbers of a tile for each thread from which on registers are what a multiprocessor has too few of; and in a loop, which holds several tiles.
const HELD: u64 = 16;
const HELD_IN_LOOP: u64 = 4;
/// Threads of a block from which on too few of them are resident.
const THREADS: u32 = 512;
/// Operations that make a tile again.
const STEPS: usize = 4;
/// Bits of what is held instead.
const NARROW: u64 = 16;

/// Makes tiles again behind each reduction.
pub(super) fn make_again(func: &mut Func, units: &Units) -> Changed {
    let in_loops = in_loops(func, units);
    Changed(in_body(func, units) | in_loops)
}

/// Behind the reductions of the function's body.
fn in_body(func: &mut Func, units: &Units) -> bool {
    let warps = threads::warps(func);
    if func.hints.split.is_none() && warps * Arch::WARP < THREADS {
        return false;
    }
    let mut again = func.clone();
    let body = again.body;
    behind_each(&mut again, body, HELD, 0);
    let pays = residence::blocks(&again, units, warps) > residence::blocks(func, units, warps);
    if pays {
        *func = again;
    }
    pays
}

/// Behind those of loops that hold more than threads have registers for.
fn in_loops(func: &mut Func, units: &Units) -> bool {
    let registers = residence::registers(func, units);
    let bodies: Vec<Block> = func
        .linked_ops()
        .into_iter()
        .filter(|&op| matches!(func.ops[op].kind, OpKind::Schedule(ScheduleOp::For { .. })))
        .map(|op| func.ops[op].regions[0])
        .collect();
    let before = func.ops.len();
    let mut number = 0;
    for body in bodies {
        if residence::held_in_loop(func, body) > registers {
            number = behind_each(func, body, HELD_IN_LOOP, number);
        }
    }
    func.ops.len() > before
}

/// Behind each reduction among a block's own operations, which are counted from a number on; the next number.
fn behind_each(func: &mut Func, block: Block, least: u64, mut number: u32) -> u32 {
    let mut at = 0;
    while let Some(&op) = func.blocks[block].ops.get(at) {
        if matches!(func.ops[op].kind, OpKind::Schedule(ScheduleOp::Reduce { .. })) {
            behind(func, block, at, least, number);
            number += 1;
        }
        at += 1;
    }
    number
}

/// The same behind the reduction at one position of a block.
fn behind(func: &mut Func, block: Block, at: usize, least: u64, number: u32) {
    let (before, rest) = func.blocks[block].ops.split_at(at + 1);
    let (values, rest) = (before.iter().flat_map(|&op| func.ops[op].results.to_vec()).collect::<Vec<_>>(), rest.to_vec());
    for value in values {
        let Some(Again { steps, narrow }) = Again::of(func, block, value, least) else { continue };
        let ops = &func.blocks[block].ops;
        let Some(first) = ops.iter().position(|&op| rest.contains(&op) && uses(func, op, &[value])) else { continue };
        let (mut made, mut map) = (Vec::new(), FxHashMap::default());
        for value in narrow {
            let source = source(func, block, value).unwrap_or_else(|| bug!("a narrow tile that nobody loaded"));
            let (ty, user) = (func.ty(source).clone(), func.blocks[block].ops[first]);
            map.insert(value, make(func, user, TileOp::Renew { number }, &[source], ty, &mut made));
        }
        copy(func, &steps, &mut map, &mut made);
        func.blocks[block].ops.splice(first..first, made);
        replace(func, &rest, value, map[&value]);
    }
}

/// How a wide tile is made of narrow ones: operations in their order, and those tiles.
struct Again {
    steps: Vec<Op>,
    narrow: Vec<Value>,
}

impl Again {
    fn of(func: &Func, block: Block, value: Value, least: u64) -> Option<Again> {
        let Type::Distributed(ty) = func.ty(value) else { return None };
        if ty.tile.elem.bits() != 32 || ty.layout.registers() < least {
            return None;
        }
        let mut again = Again { steps: Vec::new(), narrow: Vec::new() };
        let mut open = vec![value];
        while let Some(value) = open.pop() {
            if source(func, block, value).is_some() {
                if !again.narrow.contains(&value) {
                    again.narrow.push(value);
                }
                continue;
            }
            // What was there before is held anyway.
            let own = |op: &Op| func.blocks[block].ops.contains(op);
            let Some(op) = func.defining_op(value).filter(own) else { continue };
            let OpKind::Schedule(kind) = &func.ops[op].kind else { return None };
            match kind {
                // What is the same along rows is one register.
                ScheduleOp::Constant { .. } | ScheduleOp::Broadcast {} => continue,
                ScheduleOp::FToF { .. }
                | ScheduleOp::AddF { .. }
                | ScheduleOp::SubF { .. }
                | ScheduleOp::MulF { .. }
                | ScheduleOp::Fma { .. }
                | ScheduleOp::Exp2 { .. }
                | ScheduleOp::Reshape {} => {}
                _ => return None,
            }
            if !again.steps.contains(&op) {
                again.steps.push(op);
                open.extend(&func.ops[op].operands);
            }
            if again.steps.len() > STEPS {
                return None;
            }
        }
        let order = &func.blocks[block].ops;
        again.steps.sort_by_key(|op| order.iter().position(|other| other == op));
        (!again.narrow.is_empty()).then_some(again)
    }
}

/// What is held of a narrow tile of a block: itself, where it was loaded there or its loop carries it; of one that was renewed, that one.
fn source(func: &Func, block: Block, value: Value) -> Option<Value> {
    let narrow = |value: &Value| matches!(func.ty(*value), Type::Distributed(ty) if ty.tile.elem.bits() == NARROW);
    let Some(op) = func.defining_op(value) else {
        return Some(value).filter(|value| func.blocks[block].args.contains(value)).filter(narrow);
    };
    match &func.ops[op].kind {
        OpKind::Tile(TileOp::Renew { .. }) => Some(func.ops[op].one(0)),
        OpKind::Schedule(ScheduleOp::LoadViewTko { .. }) if func.blocks[block].ops.contains(&op) => Some(value).filter(narrow),
        _ => None,
    }
}

/// Replaces a value in operations and in what their regions hold.
fn replace(func: &mut Func, ops: &[Op], value: Value, by: Value) {
    let mut open = ops.to_vec();
    while let Some(op) = open.pop() {
        open.extend(func.ops[op].regions.iter().flat_map(|&region| func.blocks[region].ops.iter().copied()));
        func.ops[op].operands.iter_mut().filter(|operand| **operand == value).for_each(|operand| *operand = by);
    }
}
