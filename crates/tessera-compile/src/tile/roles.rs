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
use tessera_ir::{
    Block, Effects, Extent, Func, Op, OpKind, Padding, ParamKind, RingType, ScheduleOp, Shape, SharedType, Swizzle, TileOp,
    TileViewType, Type, Value, ViewKind,
};
use tessera_types::DType;

use super::anchors::Units;
use super::order;

/// Warps of the role that feeds the ring: a warpgroup, so that registers can be moved from it.
const FEEDERS: u32 = 4;
/// Bytes of shared memory that ring and epilogue share.
const SHARED_BYTES: u32 = 226 << 10;
/// The most slots that were found useful.
const STAGES: u32 = 6;
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
pub(super) fn separate(func: &mut Func, units: &Units) -> Option<u32> {
    let candidate = find(func, units)?;
    let (shared, moved) = partition(func, &candidate)?;
    let warps = candidate.warps;
    build(func, &candidate, shared, moved);
    order::by_groups(func);
    Some(warps)
}

fn find(func: &Func, units: &Units) -> Option<Candidate> {
    if !units.warpgroups {
        return None;
    }
    let is_product = |op: &Op| matches!(func.ops[*op].kind, OpKind::Schedule(ScheduleOp::MmaF { .. } | ScheduleOp::MmaI { .. }));
    let mut products = func.linked_ops().into_iter().filter(is_product);
    let (Some(product), None) = (products.next(), products.next()) else { return None };
    let in_body = |op: &&Op| {
        let data = &func.ops[**op];
        matches!(data.kind, OpKind::Schedule(ScheduleOp::For { .. })) && func.blocks[data.regions[0]].ops.contains(&product)
    };
    let looped = *func.blocks[func.body].ops.iter().find(in_body)?;
    let body = func.ops[looped].regions[0];
    let (&[_, acc], mma) = (&func.blocks[body].args[..], &func.ops[product]) else { return None };
    let (last, ops) = func.blocks[body].ops.split_last()?;
    if mma.one(2) != acc || func.ops[*last].operands[..] != [mma.result()] {
        return None;
    }
    let loads = [func.defining_op(mma.one(0))?, func.defining_op(mma.one(1))?];
    let is_load = |op: Op| matches!(func.ops[op].kind, OpKind::Schedule(ScheduleOp::LoadViewTko { .. }));
    if !loads.iter().all(|&load| is_load(load) && ops.contains(&load)) || loads[0] == loads[1] {
        return None;
    }
    let scalar = |op: &Op| {
        let data = &func.ops[*op];
        data.regions.is_empty() && is_free(func, *op) && data.results.iter().all(|&result| func.ty(result).is_scalar())
    };
    if !ops.iter().all(|op| *op == product || loads.contains(op) || scalar(op)) {
        return None;
    }
    // What a load yields goes into the product alone.
    let used_elsewhere = |load: Op| {
        func.linked_ops()
            .iter()
            .any(|&op| op != product && func.ops[op].operands.iter().any(|v| func.ops[load].results.contains(v)))
    };
    if loads.iter().any(|&load| used_elsewhere(load)) {
        return None;
    }
    let (lhs, rhs) = (func.ty(mma.one(0)).as_tile()?, func.ty(mma.one(1)).as_tile()?);
    let out = func.ty(mma.result()).as_tile()?;
    let (&[m, n], &[_, k]) = (&out.shape[..], &lhs.shape[..]) else { return None };
    let dtype = lhs.elem.num()?;
    let fits = matches!(
        (dtype, out.elem.num()?),
        (DType::F16 | DType::BF16 | DType::F8E4M3 | DType::F8E5M2 | DType::TF32, DType::F32) | (DType::I8, DType::I32)
    );
    // Warpgroups add products of 8-bit floats with about 14 bits, which only a fast accumulator allows.
    let coarse = matches!(dtype, DType::F8E4M3 | DType::F8E5M2) && !signs(&mma.kind).0;
    let fits = fits && !coarse;
    let line = k * dtype.bits() / 8;
    if !fits || rhs.elem.num() != Some(dtype) || !m.is_multiple_of(64) || !n.is_multiple_of(16) || !line.is_multiple_of(32) {
        return None;
    }
    let slots = [slot(func, loads[0], 1)?, slot(func, loads[1], 0)?];
    Some(Candidate { looped, product, loads, slots, warps: if m.is_multiple_of(128) { 8 } else { 4 } })
}

/// The buffer that a load's tile takes in a slot, where the copy engine can fill it and the tensor cores can read it; `inner` is the
/// tile's axis of contraction.
fn slot(func: &Func, load: Op, inner: usize) -> Option<SharedType> {
    let data = &func.ops[load];
    let Type::TileView(view) = func.ty(data.one(0)) else { return None };
    let padded = matches!(view.padding, Padding::Zero | Padding::Undetermined);
    if view.kind != ViewKind::Partition || !padded || view.tile.len() != 2 || !addressable(func, data.one(0), view) {
        return None;
    }
    let fastest = (0..2).find(|&axis| view.tensor.strides[view.dim_map[axis] as usize] == Extent::Static(1))?;
    let elem = view.tensor.elem;
    if elem.bits() != 16 && fastest != inner {
        return None;
    }
    let line = view.tile[fastest] * elem.bits() / 8;
    let swizzle = match line {
        line if line.is_multiple_of(128) => Swizzle::B128,
        64 => Swizzle::B64,
        32 => Swizzle::B32,
        _ => return None,
    };
    if view.tile[1 - fastest] > 256 {
        return None;
    }
    let order = if fastest == 1 { [0, 1] } else { [1, 0] };
    Some(SharedType { swizzle, order: order.into_iter().collect(), ..SharedType::new(view.tile.clone(), elem) })
}

/// The view is of an array argument as it was passed, with lines at multiples of 16 bytes.
fn addressable(func: &Func, view: Value, ty: &TileViewType) -> bool {
    let behind = |mut value: Value| {
        while let Some(op) = func.defining_op(value)
            && matches!(func.ops[op].kind, OpKind::Schedule(ScheduleOp::Assume { .. }))
        {
            value = func.ops[op].one(0);
        }
        value
    };
    let array = || {
        let tensor = func.ops[func.defining_op(view)?].operands.first().copied()?;
        let made = &func.ops[func.defining_op(tensor)?];
        let OpKind::Schedule(ScheduleOp::MakeTensorView {}) = made.kind else { return None };
        let base = behind(made.one(0));
        let first = func.args().iter().position(|&arg| arg == base)?;
        let position = (0..func.abi.params.len()).find(|&position| func.abi.first_argument(position) == first)?;
        let param = &func.abi.params[position].kind;
        let own = &func.args()[first..first + param.argument_count()];
        let foreign = made.group(1).iter().chain(made.group(2)).any(|&value| !own.contains(&behind(value)));
        (!foreign).then_some(param)
    };
    let aligned = |strides: &[Extent], bits: u32| {
        strides.iter().all(|stride| match stride {
            Extent::Static(1) | Extent::Dynamic => true,
            Extent::Static(stride) => (stride * i64::from(bits)).rem_euclid(128) == 0,
        })
    };
    matches!(array(), Some(ParamKind::Array { align, .. }) if *align >= 16) && aligned(&ty.tensor.strides, ty.tensor.elem.bits())
}

/// Pure, or at most an error for some inputs.
fn is_free(func: &Func, op: Op) -> bool {
    matches!(func.ops[op].row().effects, Effects::Pure | Effects::MayTrap)
}

/// The function's operations in order: what stays before the roles, and what the computing role does. `None` where the feeding role
/// would need what only the other computes.
fn partition(func: &Func, candidate: &Candidate) -> Option<(Vec<Op>, Vec<Op>)> {
    let (mut shared, mut moved) = (Vec::new(), Vec::new());
    let mut inside: FxHashSet<Value> = FxHashSet::default();
    let (last, ops) = func.blocks[func.body].ops.split_last()?;
    if !matches!(func.ops[*last].kind, OpKind::Schedule(ScheduleOp::Return {})) {
        return None;
    }
    let leaves = |op: &Op| matches!(func.ops[*op].kind, OpKind::Schedule(ScheduleOp::Return {}));
    if func.linked_ops().iter().filter(|op| leaves(op)).count() != 1 {
        return None;
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
    (!needed.iter().any(|value| *value != carried && inside.contains(value))).then_some((shared, moved))
}

fn build(func: &mut Func, candidate: &Candidate, mut shared: Vec<Op>, mut moved: Vec<Op>) {
    let span = func.ops[candidate.looped].span;
    let out = func.ty(func.ops[candidate.product].result()).as_tile().map_or(0, |tile| tile.len() as u32);
    let bytes: u32 = candidate.slots.iter().map(|slot| slot.bytes() as u32).sum();
    // The epilogue may put the result, in two bytes an element, through shared memory.
    let room = SHARED_BYTES.saturating_sub(2 * out) / bytes.max(1);
    let stages = func.hints.num_stages.unwrap_or(STAGES).min(room).max(1);

    let mut buffers = Vec::new();
    for slot in &candidate.slots {
        let mut shape: Shape = slot.shape.clone();
        shape.insert(0, stages);
        let order = std::iter::once(0).chain(slot.order.iter().map(|&axis| axis + 1)).collect();
        let ty = Type::Shared(Box::new(SharedType { shape, order, ..slot.clone() }));
        let alloc = func.make_op(TileOp::AllocShared { align: 1024 }.into(), &[], [ty], [], span);
        buffers.push(func.ops[alloc].result());
        shared.push(alloc);
    }
    let ring_type = Type::Ring(Box::new(RingType { stages, slots: candidate.slots.to_vec() }));
    let kind = TileOp::Ring { stages, producer: RingProducer::Tma, consumers: 1, bytes };
    let ring_op = func.make_op(kind.into(), &[&buffers], [ring_type], [], span);
    let ring = func.ops[ring_op].result();
    let start_op = func.make_op(TileOp::RingStart {}.into(), &[&[ring]], [Type::Cursor], [], span);
    let start = func.ops[start_op].result();
    shared.extend([ring_op, start_op]);

    let feed = feeder(func, candidate, ring, start);
    computer(func, candidate, ring, start);
    let end = func.make_op(ScheduleOp::Yield {}.into(), &[&[]], [], [], span);
    moved.push(end);
    let compute = func.new_block();
    func.blocks[compute].ops = moved;

    let total = FEEDERS + candidate.warps;
    let registers = |count| (candidate.warps == 8).then_some(count);
    let role = |first_warp, warps, registers| TileOp::Role { first_warp, warps, registers };
    let feeding = func.make_op(role(0, FEEDERS, registers(REGISTERS.0)).into(), &[], [], [feed], span);
    let computing = func.make_op(role(FEEDERS, candidate.warps, registers(REGISTERS.1)).into(), &[], [], [compute], span);
    shared.extend([feeding, computing]);
    let last = func.blocks[func.body].ops.last().copied();
    shared.extend(last);
    func.blocks[func.body].ops = shared;
    func.hints.num_warps = Some(total);
    func.hints.num_stages = Some(stages);
}

/// The region that fills slots: the loop again, with the loads as copies.
fn feeder(func: &mut Func, candidate: &Candidate, ring: Value, start: Value) -> Block {
    let looped = func.ops[candidate.looped].clone();
    let (old, region, body) = (looped.regions[0], func.new_block(), func.new_block());
    let counter = func.blocks[old].args[0];
    let mut map: FxHashMap<Value, Value> = FxHashMap::default();
    let ty = func.ty(counter).clone();
    let own_counter = func.add_arg(body, ty, None);
    map.insert(counter, own_counter);
    let cursor = func.add_arg(body, Type::Cursor, None);
    let span = looped.span;
    let mut ops = Vec::new();
    let note = |func: &mut Func, ops: &mut Vec<Op>, kind: TileOp| {
        let op = func.make_op(kind.into(), &[&[ring], &[cursor]], [], [], span);
        ops.push(op);
    };
    note(func, &mut ops, TileOp::Acquire {});
    for op in func.blocks[old].ops.clone() {
        let data = func.ops[op].clone();
        let mapped = |values: &[Value]| values.iter().map(|value| *map.get(value).unwrap_or(value)).collect::<Vec<_>>();
        if let Some(position) = candidate.loads.iter().position(|&load| load == op) {
            let (view, index) = (data.one(0), mapped(data.group(1)));
            let kind = TileOp::Slot { buffer: position as u32 };
            let ty = Type::Shared(Box::new(candidate.slots[position].clone()));
            let slot = func.make_op(kind.into(), &[&[ring], &[cursor]], [ty], [], data.span);
            let buffer = func.ops[slot].result();
            let groups: [&[Value]; 5] = [&[view], &index, &[buffer], &[ring], &[cursor]];
            let load = func.make_op(TileOp::TmaLoad {}.into(), &groups, [], [], data.span);
            ops.extend([slot, load]);
        } else if op != candidate.product && !matches!(data.row().effects, Effects::Terminator) {
            let groups: Vec<Vec<Value>> = (0..data.segments.len()).map(|at| mapped(data.group(at))).collect();
            let groups: Vec<&[Value]> = groups.iter().map(Vec::as_slice).collect();
            let types: Vec<Type> = data.results.iter().map(|&result| func.ty(result).clone()).collect();
            let copy = func.make_op(data.kind.clone(), &groups, types, [], data.span);
            for (&from, &to) in data.results.iter().zip(&func.ops[copy].results) {
                map.insert(from, to);
            }
            ops.push(copy);
        }
    }
    note(func, &mut ops, TileOp::Commit {});
    let advance = func.make_op(TileOp::Advance {}.into(), &[&[ring], &[cursor]], [Type::Cursor], [], span);
    let next = func.ops[advance].result();
    let end = func.make_op(ScheduleOp::Continue {}.into(), &[&[next]], [], [], span);
    ops.extend([advance, end]);
    func.blocks[body].ops = ops;
    let groups: [&[Value]; 4] = [&[looped.one(0)], &[looped.one(1)], &[looped.one(2)], &[start]];
    let all = func.make_op(looped.kind.clone(), &groups, [Type::Cursor], [body], span);
    let end = func.make_op(ScheduleOp::Yield {}.into(), &[&[]], [], [], span);
    func.blocks[region].ops = vec![all, end];
    region
}

/// The loop with slots in place of the loads.
fn computer(func: &mut Func, candidate: &Candidate, ring: Value, start: Value) {
    let looped = candidate.looped;
    let (body, span) = (func.ops[looped].regions[0], func.ops[looped].span);
    let cursor = func.add_arg(body, Type::Cursor, None);
    let position = func.ops[looped].results.len();
    let result = func.values.push(tessera_ir::ValueData {
        ty: Type::Cursor,
        def: tessera_ir::Def::Result(looped, position as u32),
        name: None,
    });
    let data = &mut func.ops[looped];
    data.results.push(result);
    data.operands.push(start);
    data.segments[3] += 1;

    let mut ops = Vec::new();
    let wait = func.make_op(TileOp::Wait {}.into(), &[&[ring], &[cursor]], [], [], span);
    ops.push(wait);
    for op in func.blocks[body].ops.clone() {
        if candidate.loads.contains(&op) {
            continue;
        }
        if op == candidate.product {
            let mut factors = Vec::new();
            for (position, slot) in candidate.slots.iter().enumerate() {
                let ty = Type::Shared(Box::new(slot.clone()));
                let kind = TileOp::Slot { buffer: position as u32 };
                let slot = func.make_op(kind.into(), &[&[ring], &[cursor]], [ty], [], span);
                factors.push(func.ops[slot].result());
                ops.push(slot);
            }
            let (fast_acc, lhs_signedness, rhs_signedness) = signs(&func.ops[op].kind);
            let data = &mut func.ops[op];
            data.kind = TileOp::MmaShared { fast_acc, lhs_signedness, rhs_signedness }.into();
            data.operands[..2].copy_from_slice(&factors);
            ops.push(op);
            let release = func.make_op(TileOp::Release {}.into(), &[&[ring], &[cursor]], [], [], span);
            ops.push(release);
        } else if matches!(func.ops[op].row().effects, Effects::Terminator) {
            let advance = func.make_op(TileOp::Advance {}.into(), &[&[ring], &[cursor]], [Type::Cursor], [], span);
            let next = func.ops[advance].result();
            func.ops[op].operands.push(next);
            func.ops[op].segments[0] += 1;
            ops.extend([advance, op]);
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
