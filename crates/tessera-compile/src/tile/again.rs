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
//! **Predicate.** More blocks fit a multiprocessor then ([`residence`](super::residence)). A block of [`THREADS`] or more, or one of a cluster that
//! shares a row; a tile of [`HELD`] numbers of 32 bits or more for each thread, which a reduction in the function's body stands before a use of;
//! [`STEPS`] operations at most make it of a tile that was loaded in 16 bits, and of what is the same along rows.

use rustc_hash::FxHashMap;
use tessera_ir::{Changed, Func, Op, OpKind, ScheduleOp, TileOp, Type, Value, bug};
use tessera_types::Arch;

use super::anchors::Units;
use super::{residence, threads};
use crate::rewrite::{copy, make, uses};

/// Numbers of a thread from which on registers are what a multiprocessor has too few of.
const HELD: u64 = 16;
/// Threads of a block from which on too few of them are resident.
const THREADS: u32 = 512;
/// Operations that make a tile again.
const STEPS: usize = 4;
/// Bits of what is held instead.
const NARROW: u64 = 16;

/// Makes tiles again behind each reduction.
pub(super) fn make_again(func: &mut Func, units: &Units) -> Changed {
    let warps = threads::warps(func);
    if func.hints.split.is_none() && warps * Arch::WARP < THREADS {
        return Changed(false);
    }
    let mut again = func.clone();
    let mut reductions = 0;
    let mut at = 0;
    while let Some(&op) = again.blocks[again.body].ops.get(at) {
        if matches!(again.ops[op].kind, OpKind::Schedule(ScheduleOp::Reduce { .. })) {
            behind(&mut again, at, reductions);
            reductions += 1;
        }
        at += 1;
    }
    let pays = residence::blocks(&again, units, warps) > residence::blocks(func, units, warps);
    if pays {
        *func = again;
    }
    Changed(pays)
}

/// The same behind the reduction at one position of the body.
fn behind(func: &mut Func, at: usize, number: u32) {
    let (before, rest) = func.blocks[func.body].ops.split_at(at + 1);
    let (values, rest) = (before.iter().flat_map(|&op| func.ops[op].results.to_vec()).collect::<Vec<_>>(), rest.to_vec());
    for value in values {
        let Some(Again { steps, narrow }) = Again::of(func, value) else { continue };
        let ops = &func.blocks[func.body].ops;
        let Some(first) = ops.iter().position(|&op| rest.contains(&op) && uses(func, op, &[value])) else { continue };
        let (mut made, mut map) = (Vec::new(), FxHashMap::default());
        for value in narrow {
            let loaded = loaded(func, value).unwrap_or_else(|| bug!("a narrow tile that nobody loaded"));
            let ty = func.ty(loaded).clone();
            map.insert(value, make(func, ops_at(func, first), TileOp::Renew { number }, &[loaded], ty, &mut made));
        }
        copy(func, &steps, &mut map, &mut made);
        func.blocks[func.body].ops.splice(first..first, made);
        replace(func, &rest, value, map[&value]);
    }
}

fn ops_at(func: &Func, at: usize) -> Op {
    func.blocks[func.body].ops[at]
}

/// How a wide tile is made of narrow ones: operations in their order, and those tiles.
struct Again {
    steps: Vec<Op>,
    narrow: Vec<Value>,
}

impl Again {
    fn of(func: &Func, value: Value) -> Option<Again> {
        let Type::Distributed(ty) = func.ty(value) else { return None };
        if ty.tile.elem.bits() != 32 || ty.layout.registers() < HELD {
            return None;
        }
        let mut again = Again { steps: Vec::new(), narrow: Vec::new() };
        let mut open = vec![value];
        while let Some(value) = open.pop() {
            if loaded(func, value).is_some() {
                if !again.narrow.contains(&value) {
                    again.narrow.push(value);
                }
                continue;
            }
            let Some(op) = func.defining_op(value) else { continue };
            let OpKind::Schedule(kind) = &func.ops[op].kind else { return None };
            match kind {
                // What is the same along rows is one register.
                ScheduleOp::Constant { .. } | ScheduleOp::Broadcast {} => continue,
                ScheduleOp::FToF { .. }
                | ScheduleOp::AddF { .. }
                | ScheduleOp::SubF { .. }
                | ScheduleOp::MulF { .. }
                | ScheduleOp::Fma { .. }
                | ScheduleOp::Exp2 { .. } => {}
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
        let order = &func.blocks[func.body].ops;
        again.steps.sort_by_key(|op| order.iter().position(|other| other == op));
        (!again.narrow.is_empty()).then_some(again)
    }
}

/// The tile of 16 bits that was loaded, of one or of one that was renewed.
fn loaded(func: &Func, value: Value) -> Option<Value> {
    let op = func.defining_op(value)?;
    match &func.ops[op].kind {
        OpKind::Tile(TileOp::Renew { .. }) => Some(func.ops[op].one(0)),
        OpKind::Schedule(ScheduleOp::LoadViewTko { .. }) => {
            let Type::Distributed(ty) = func.ty(value) else { return None };
            (ty.tile.elem.bits() == NARROW).then_some(value)
        }
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
