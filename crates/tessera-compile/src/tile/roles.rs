//! The recipe for a loop that is a matrix product: `acc = mma(load, load, acc)` on a target with warpgroup instructions.
//!
//! One role of four warps has the copy engine fill a ring of slots; a second role of one or two warpgroups multiplies from the slots
//! and does everything else the kernel does. What both need (sizes, views, block numbers) is computed before the roles.
//!
//! ```text
//! %ring = tile.ring [%lhs, %rhs] {stages=4, producer=tma, ...}
//! tile.role {first_warp=0, warps=4} { for ... { acquire; tma_load; tma_load; commit } }
//! tile.role {first_warp=4, warps=8} { for ... { wait; mma_shared; release }  ... the rest ... }
//! ```
//!
//! **Predicate.** The function has one product; its loop counts, stands at the top of the function, carries the accumulator alone, and
//! holds nothing but scalar arithmetic, the product and the two loads of its factors; a factor is a whole tile of an array
//! argument that the copy engine can address, padded with zero; the accumulator is `f32`, or `i32` of `i8`, with whole warpgroups of
//! rows; factors of other than 16 bits lie along the contraction in memory, and 8-bit floats have a fast
//! accumulator. Nothing else about the kernel matters.
//! Blocks of a plane are taken in the order of [`order`].

use rustc_hash::{FxHashMap, FxHashSet};
use tessera_ir::attrs::{RingProducer, Signedness};
use tessera_ir::{Effects, Elem, Func, Op, OpKind, ScheduleOp, SharedType, TileOp, Type, Value};
use tessera_types::DType;

use super::anchors::Units;
use super::queue::{Queue, copied, mapped, over_same_range, role};
use super::remark::Reason;
use super::{order, slots};

/// Warps of the role that feeds the ring: a warpgroup, so that registers can be moved from it.
const FEEDERS: u32 = 4;
/// Registers a thread of the feeding role and of two multiplying warpgroups: 128 x 40 + 256 x 232 fit a multiprocessor.
const REGISTERS: (u32, u32) = (40, 232);

/// A loop that fits.
struct Candidate {
    looped: Op,
    product: Op,
    /// The loads of both factors.
    loads: [Op; 2],
    /// Buffers of one slot.
    slots: [SharedType; 2],
    /// Warps that multiply.
    warps: u32,
}

/// Splits the function into roles where its product allows; the warps of the role that computes.
pub(super) fn separate(func: &mut Func, units: &Units) -> Result<u32, Reason> {
    let candidate = find(func, units)?;
    let (shared, moved) = partition(func, &candidate)?;
    let warps = candidate.warps;
    build(func, units, &candidate, shared, moved);
    order::by_groups(func);
    Ok(warps)
}

fn find(func: &Func, units: &Units) -> Result<Candidate, Reason> {
    if !units.warpgroups {
        return Err("the target has no products of warpgroups".into());
    }
    let is_product = |op: &Op| matches!(func.ops[*op].kind, OpKind::Schedule(ScheduleOp::MmaF { .. } | ScheduleOp::MmaI { .. }));
    let mut products = func.linked_ops().into_iter().filter(is_product);
    let product = products.next().ok_or("there is no product")?;
    let at = func.ops[product].span;
    if let Some(second) = products.next() {
        return Err(Reason::at("there is a second product", func.ops[second].span));
    }
    let in_body = |op: &&Op| {
        let data = &func.ops[**op];
        matches!(data.kind, OpKind::Schedule(ScheduleOp::For { .. })) && func.blocks[data.regions[0]].ops.contains(&product)
    };
    let looped = func.blocks[func.body].ops.iter().find(in_body);
    let looped = *looped.ok_or_else(|| Reason::at("the product stands in no counted loop of the function's own body", at))?;
    let body = func.ops[looped].regions[0];
    let (&[_, acc], mma) = (&func.blocks[body].args[..], &func.ops[product]) else {
        return Err(Reason::at("the product's loop carries more than the accumulator", func.ops[looped].span));
    };
    let (last, ops) = func.blocks[body].ops.split_last().ok_or("the product's loop has no end")?;
    if mma.one(2) != acc || func.ops[*last].operands[..] != [mma.result()] {
        return Err(Reason::at("the loop does not hand the product on as its own accumulator", at));
    }
    let factor =
        |position| func.defining_op(mma.one(position)).ok_or_else(|| Reason::at("a factor comes from outside the loop", at));
    let loads = [factor(0)?, factor(1)?];
    let is_load = |op: Op| matches!(func.ops[op].kind, OpKind::Schedule(ScheduleOp::LoadViewTko { .. }));
    if !loads.iter().all(|&load| is_load(load) && ops.contains(&load)) || loads[0] == loads[1] {
        return Err(Reason::at("a factor is not what a load in the loop yields", at));
    }
    let scalar = |op: &Op| {
        let data = &func.ops[*op];
        data.regions.is_empty() && is_free(func, *op) && data.results.iter().all(|&result| func.ty(result).is_scalar())
    };
    if let Some(&other) = ops.iter().find(|op| **op != product && !loads.contains(op) && !scalar(op)) {
        let name = func.ops[other].row().mnemonic;
        return Err(Reason::at(format!("the product's loop holds `{name}` too"), func.ops[other].span));
    }
    // What a load yields goes into the product alone.
    let used_elsewhere = |load: Op| {
        func.linked_ops()
            .iter()
            .any(|&op| op != product && func.ops[op].operands.iter().any(|v| func.ops[load].results.contains(v)))
    };
    if let Some(&load) = loads.iter().find(|load| used_elsewhere(**load)) {
        return Err(Reason::at("a factor is used outside the product", func.ops[load].span));
    }
    let tile = |value| func.ty(value).as_tile().ok_or_else(|| Reason::at("an operand is no tile", at));
    let (lhs, rhs, out) = (tile(mma.one(0))?, tile(mma.one(1))?, tile(mma.result())?);
    let (&[m, n], &[_, k]) = (&out.shape[..], &lhs.shape[..]) else {
        return Err(Reason::at("the product has a batch axis", at));
    };
    let number = |elem: &Elem| elem.num().ok_or_else(|| Reason::at("an operand holds no numbers", at));
    let dtype = number(&lhs.elem)?;
    let fits = matches!(
        (dtype, number(&out.elem)?),
        (DType::F16 | DType::BF16 | DType::F8E4M3 | DType::F8E5M2 | DType::TF32, DType::F32) | (DType::I8, DType::I32)
    );
    // Warpgroups add products of 8-bit floats with about 14 bits, which only a fast accumulator allows.
    let coarse = matches!(dtype, DType::F8E4M3 | DType::F8E5M2) && !signs(&mma.kind).0;
    if !fits || rhs.elem.num() != Some(dtype) {
        return Err(Reason::at(format!("products of `{dtype}` into `{}` have no instruction for warpgroups", out.elem), at));
    }
    if coarse {
        return Err(Reason::at("warpgroups add 8-bit floats with about 14 bits, which needs `fast_acc=True`", at));
    }
    if !m.is_multiple_of(64) || !n.is_multiple_of(16) || !(k * dtype.bits() / 8).is_multiple_of(32) {
        let text =
            format!("a {m}x{n}x{k} product is not of whole instructions: 64 rows, 16 columns, 32 bytes of a factor's line");
        return Err(Reason::at(text, at));
    }
    let slots = [slots::of_load(func, loads[0], 1)?, slots::of_load(func, loads[1], 0)?];
    Ok(Candidate { looped, product, loads, slots, warps: if m.is_multiple_of(128) { 8 } else { 4 } })
}

/// Pure, or at most an error for some inputs.
fn is_free(func: &Func, op: Op) -> bool {
    matches!(func.ops[op].row().effects, Effects::Pure | Effects::MayTrap)
}

/// The function's operations in order: what stays before the roles, and what the computing role does.
fn partition(func: &Func, candidate: &Candidate) -> Result<(Vec<Op>, Vec<Op>), Reason> {
    let (mut shared, mut moved) = (Vec::new(), Vec::new());
    let mut inside: FxHashSet<Value> = FxHashSet::default();
    let leaves = |op: &Op| matches!(func.ops[*op].kind, OpKind::Schedule(ScheduleOp::Return {}));
    let (last, ops) = func.blocks[func.body].ops.split_last().ok_or("the function is empty")?;
    if !leaves(last) || func.linked_ops().iter().filter(|op| leaves(op)).count() != 1 {
        return Err("some blocks return before the end".into());
    }
    for &op in ops {
        let data = &func.ops[op];
        let tiles = data.results.iter().any(|&result| func.ty(result).as_tile().is_some_and(|tile| !tile.shape.is_empty()));
        let stays = data.regions.is_empty() && is_free(func, op) && !tiles && !data.operands.iter().any(|v| inside.contains(v));
        if stays {
            shared.push(op);
        } else {
            inside.extend(&data.results);
            moved.push(op);
        }
    }
    let looped = &func.ops[candidate.looped];
    let mut needed: Vec<Value> = looped.operands[..3].to_vec();
    for load in candidate.loads {
        needed.extend(&func.ops[load].operands);
    }
    for &op in &func.blocks[looped.regions[0]].ops {
        if op != candidate.product {
            needed.extend(&func.ops[op].operands);
        }
    }
    let carried = func.ops[candidate.product].result();
    if needed.iter().any(|value| *value != carried && inside.contains(value)) {
        return Err(Reason::at("where to load from is computed from what the computing role holds", looped.span));
    }
    Ok((shared, moved))
}

fn build(func: &mut Func, units: &Units, candidate: &Candidate, mut shared: Vec<Op>, moved: Vec<Op>) {
    let span = func.ops[candidate.looped].span;
    let out = func.ty(func.ops[candidate.product].result()).as_tile().map_or(0, |tile| tile.len() as u32);
    let bytes: u32 = candidate.slots.iter().map(|slot| slot.bytes() as u32).sum();
    // The epilogue may put the result, in two bytes an element, through shared memory.
    let stages = slots::stages(func, units, bytes, 2 * out);
    let queue = Queue::new(func, &candidate.slots, (stages, RingProducer::Tma), span, &mut shared);
    let feed = feeder(func, candidate, &queue);
    computer(func, candidate, &queue);

    let registers = |count| (candidate.warps == 8).then_some(count);
    let feeding = role(func, (0, FEEDERS), registers(REGISTERS.0), vec![feed], span);
    let computing = role(func, (FEEDERS, candidate.warps), registers(REGISTERS.1), moved, span);
    shared.extend([feeding, computing]);
    let last = func.blocks[func.body].ops.last().copied();
    shared.extend(last);
    func.blocks[func.body].ops = shared;
    func.hints.num_warps = Some(FEEDERS + candidate.warps);
    func.hints.num_stages = Some(stages);
}

/// The loop that fills slots: the loop again, with the loads as copies.
fn feeder(func: &mut Func, candidate: &Candidate, queue: &Queue) -> Op {
    let body = func.ops[candidate.looped].regions[0];
    over_same_range(func, candidate.looped, &[queue.start], |func, counter, carried| {
        let (mut ops, cursor) = (Vec::new(), carried[0]);
        let mut map: FxHashMap<Value, Value> = FxHashMap::default();
        map.insert(func.blocks[body].args[0], counter);
        queue.at(func, TileOp::Acquire {}, cursor, &mut ops);
        for op in func.blocks[body].ops.clone() {
            let data = func.ops[op].clone();
            if let Some(position) = candidate.loads.iter().position(|&load| load == op) {
                let index = mapped(&map, data.group(1));
                queue.load(func, (data.one(0), &index), (cursor, position), &mut ops);
            } else if op != candidate.product && !matches!(data.row().effects, Effects::Terminator) {
                ops.push(copied(func, op, &mut map));
            }
        }
        queue.at(func, TileOp::Commit {}, cursor, &mut ops);
        let next = queue.next(func, cursor, &mut ops);
        (ops, vec![next])
    })
}

/// The loop with slots in place of the loads.
fn computer(func: &mut Func, candidate: &Candidate, queue: &Queue) {
    let looped = candidate.looped;
    let body = func.ops[looped].regions[0];
    let cursor = func.add_arg(body, Type::Cursor, None);
    let position = func.ops[looped].results.len();
    let result = func.values.push(tessera_ir::ValueData {
        ty: Type::Cursor,
        def: tessera_ir::Def::Result(looped, position as u32),
        name: None,
    });
    let data = &mut func.ops[looped];
    data.results.push(result);
    data.operands.push(queue.start);
    data.segments[3] += 1;

    let mut ops = Vec::new();
    queue.at(func, TileOp::Wait {}, cursor, &mut ops);
    for op in func.blocks[body].ops.clone() {
        if candidate.loads.contains(&op) {
            continue;
        }
        if op == candidate.product {
            let factors = [0, 1].map(|buffer| queue.slot(func, cursor, buffer, &mut ops));
            let (fast_acc, lhs_signedness, rhs_signedness) = signs(&func.ops[op].kind);
            let data = &mut func.ops[op];
            data.kind = TileOp::MmaShared { fast_acc, lhs_signedness, rhs_signedness }.into();
            data.operands[..2].copy_from_slice(&factors);
            ops.push(op);
            queue.at(func, TileOp::Release {}, cursor, &mut ops);
        } else if matches!(func.ops[op].row().effects, Effects::Terminator) {
            let next = queue.next(func, cursor, &mut ops);
            func.ops[op].operands.push(next);
            func.ops[op].segments[0] += 1;
            ops.push(op);
        } else {
            ops.push(op);
        }
    }
    func.blocks[body].ops = ops;
}

/// Attributes of a product, in the order of [`TileOp::MmaShared`].
pub(super) fn signs(kind: &OpKind) -> (bool, Signedness, Signedness) {
    match kind {
        OpKind::Schedule(ScheduleOp::MmaF { fast_acc }) => (*fast_acc, Signedness::Signed, Signedness::Signed),
        OpKind::Schedule(ScheduleOp::MmaI { lhs_signedness, rhs_signedness }) => (false, *lhs_signedness, *rhs_signedness),
        _ => (false, Signedness::Signed, Signedness::Signed),
    }
}
