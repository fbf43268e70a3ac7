//! Copies of whole tiles by the copy engine.
//!
//! A group of `tile.copy_async` that is committed and waited for before anything else happens becomes a load into a ring of one slot:
//! the buffers get an axis of one stage in front, and every round of the loops around takes the cursor on.
//!
//! ```text
//! tile.copy_async %view, [%i, %j], %b          tile.acquire %ring, %at
//! tile.commit_group                            tile.tma_load %view, [%i, %j], %slot, %ring, %at
//! tile.wait_group {pending=0}                  tile.commit %ring, %at
//! ...                                          tile.wait %ring, %at
//! continue                                     ...
//!                                              tile.release %ring, %at
//!                                              continue
//! ```
//!
//! That needs every group of the function to be of this kind, buffers that nobody else writes, and views that the engine can address:
//! an array argument with its own sizes and strides, lines at multiples of 16 bytes, boxes of at most 256 elements an axis and whole
//! multiples of 16 bytes along the contiguous one, which a swizzle's span divides or holds. Whoever reads a
//! buffer does so in the block where its group stands: the slot is released at that block's end.

use std::collections::BTreeMap;

use tessera_ir::attrs::RingProducer;
use tessera_ir::{
    Block, Def, Effects, Extent, Func, Op, OpData, OpKind, Padding, ParamKind, RingType, ScheduleOp, SharedType, Swizzle, TileOp,
    Touch, Type, Value, ValueData, ViewKind, bug,
};
use tessera_types::AsyncCopy;

use tessera_analysis::arrays::own_array;

/// Elements of a box along one axis.
const BOX: u32 = AsyncCopy::TENSOR.extent;

/// Axes of an array that the engine addresses.
const AXES: usize = AsyncCopy::TENSOR.axes as usize;

/// Bytes that a line of a box and the distance between lines are multiples of.
const GRANULE: u32 = AsyncCopy::TENSOR.unit;

/// Whether the copy engine can move a tile from a view to a buffer of a type, or back; if not, why.
pub(super) fn addressable(func: &Func, view: Value, shared: &SharedType) -> Result<(), String> {
    let Type::TileView(ty) = func.ty(view) else {
        return Err("the copy engine moves tiles of views from and to buffers".to_string());
    };
    let bits = ty.tensor.elem.bits();
    if matches!(ty.kind, ViewKind::GatherScatter { .. }) {
        return Err("the copy engine does not gather".to_string());
    }
    if ty.tile.len() > AXES {
        return Err(format!("the copy engine addresses {AXES} axes, not {}", ty.tile.len()));
    }
    let Some(param) = own_array(func, view) else {
        return Err("the view is not of an array argument with its own sizes and strides".to_string());
    };
    let ParamKind::Array { align, lines, .. } = &func.abi.params[param].kind else {
        return Err("the view is not of an array argument".to_string());
    };
    let known = |stride: &Extent| match stride {
        Extent::Static(1) | Extent::Dynamic => true,
        Extent::Static(stride) => (stride * i64::from(bits)).rem_euclid(128) == 0,
    };
    if *align < GRANULE || *lines < GRANULE || !ty.tensor.strides.iter().all(known) {
        return Err(format!(
            "lines of the array are not known to lie at multiples of {GRANULE} bytes: `{{align = {GRANULE}}}` says so"
        ));
    }
    if !matches!(ty.padding, Padding::Zero | Padding::Undetermined) {
        return Err("the copy engine writes zero outside the array, and the view asks for another number".to_string());
    }
    let Some(fastest) = shared.order.last().map(|&axis| axis as usize) else {
        return Err("a tile without axes has no lines".to_string());
    };
    let contiguous = ty.dim_map.get(fastest).and_then(|&axis| ty.tensor.strides.get(axis as usize)) == Some(&Extent::Static(1));
    if !contiguous {
        return Err("the array's contiguous axis is not the buffer's".to_string());
    }
    if shared.pad != 0 {
        return Err("the copy engine does not leave padding between lines".to_string());
    }
    let line = shared.shape[fastest] * bits / 8;
    if !line.is_multiple_of(GRANULE) {
        return Err(format!("a line of {line} bytes is no multiple of {GRANULE}"));
    }
    let span = match shared.swizzle {
        Swizzle::NONE => None,
        Swizzle::B32 => Some(32),
        Swizzle::B64 => Some(64),
        Swizzle::B128 => Some(128),
        _ => return Err("the copy engine does not know the buffer's swizzle".to_string()),
    };
    if span.is_some_and(|span| !line.is_multiple_of(span)) {
        return Err(format!("a line of {line} bytes does not fill its swizzle"));
    }
    let lines = ty.tile.iter().enumerate().filter(|&(axis, &extent)| axis != fastest && extent > 1).count();
    if lines > 1 && span.is_some_and(|span| line > span) {
        return Err(format!("lines of {line} bytes along several axes do not lie in slabs of their swizzle"));
    }
    let along =
        |(axis, &extent): (usize, &u32)| if axis == fastest { span.map_or(extent, |span| span * 8 / bits) } else { extent };
    if ty.tile.iter().enumerate().map(along).any(|extent| extent > BOX) {
        return Err(format!("a box has at most {BOX} elements along an axis"));
    }
    Ok(())
}

/// A group of copies that is waited for at once.
struct Group {
    block: Block,
    copies: Vec<Op>,
    commit: Op,
    wait: Op,
    /// The operations that allocate its buffers, each once.
    allocs: Vec<Op>,
}

/// Turns groups into loads by the engine; true where it did.
pub(super) fn lower(func: &mut Func) -> bool {
    let Some(groups) = groups(func) else { return false };
    for group in &groups {
        engage(func, group);
    }
    !groups.is_empty()
}

/// The function's groups, if all of them can be loads.
fn groups(func: &Func) -> Option<Vec<Group>> {
    let mut groups = Vec::new();
    let mut asynchronous = 0;
    for block in func.linked_blocks() {
        let mut copies: Vec<Op> = Vec::new();
        let mut commit = None;
        for &op in &func.blocks[block].ops {
            let data = &func.ops[op];
            match &data.kind {
                OpKind::Tile(TileOp::CopyAsyncElement { .. } | TileOp::Role { .. }) => return None,
                OpKind::Tile(TileOp::CopyAsync { .. }) if commit.is_none() => copies.push(op),
                OpKind::Tile(TileOp::CommitGroup {}) if commit.is_none() && !copies.is_empty() => commit = Some(op),
                OpKind::Tile(TileOp::WaitGroup { pending: 0 }) if commit.is_some() => {
                    let copies = std::mem::take(&mut copies);
                    let allocs = allocations(func, &copies)?;
                    groups.push(Group { block, copies, commit: commit.take()?, wait: op, allocs });
                }
                OpKind::Tile(TileOp::CopyAsync { .. } | TileOp::CommitGroup {} | TileOp::WaitGroup { .. }) => return None,
                _ if copies.is_empty() || data.row().effects == Effects::Pure => {}
                // A buffer may be allocated between copies to others.
                OpKind::Tile(TileOp::AllocShared { .. }) => {}
                _ => return None,
            }
            asynchronous += usize::from(matches!(data.kind, OpKind::Tile(TileOp::CommitGroup {})));
        }
        if !copies.is_empty() {
            return None;
        }
    }
    let mut taken: Vec<Op> = groups.iter().flat_map(|group| group.allocs.iter().copied()).collect();
    let all = taken.len();
    taken.sort_unstable();
    taken.dedup();
    let own = taken.len() == all && asynchronous == groups.len() && groups.iter().all(|group| is_read_inside(func, group));
    let reached = groups.iter().all(|group| loops_around(func, group.block).is_some());
    (own && reached && !groups.is_empty()).then_some(groups)
}

/// What allocates the buffers of copies; `None` where the engine cannot fill one.
fn allocations(func: &Func, copies: &[Op]) -> Option<Vec<Op>> {
    let mut allocs = Vec::new();
    for &copy in copies {
        let data = &func.ops[copy];
        let buffer = data.one(2);
        addressable(func, data.one(0), func.ty(buffer).as_shared()?).ok()?;
        let alloc = func.defining_op(buffer)?;
        let makes = matches!(func.ops[alloc].kind, OpKind::Tile(TileOp::AllocShared { .. }));
        let outermost = func.blocks[func.body].ops.contains(&alloc);
        if !makes || !outermost || allocs.contains(&alloc) || written(func, buffer, copy) {
            return None;
        }
        allocs.push(alloc);
    }
    Some(allocs)
}

/// Something else than the copy writes to the buffer or a part of it.
fn written(func: &Func, buffer: Value, copy: Op) -> bool {
    let mut parts = vec![buffer];
    for op in func.linked_ops() {
        let data = &func.ops[op];
        if op == copy || !data.operands.iter().any(|operand| parts.contains(operand)) {
            continue;
        }
        match &data.kind {
            OpKind::Tile(
                TileOp::SliceShared {}
                | TileOp::SubviewShared { .. }
                | TileOp::TransposeShared { .. }
                | TileOp::CollapseShared {},
            ) => parts.push(data.result()),
            _ if matches!(data.row().effects, Effects::Pure | Effects::Read | Effects::Write) => {
                let writes = |touch: &Touch| touch.effect.writes() && parts.contains(&touch.value);
                if func.touches(data).iter().any(writes) {
                    return true;
                }
            }
            _ => return true,
        }
    }
    false
}

/// Everything that reads a group's buffers stands behind its wait in its block, or in regions there.
fn is_read_inside(func: &Func, group: &Group) -> bool {
    let behind: Vec<Op> = func.blocks[group.block].ops.iter().copied().skip_while(|&op| op != group.wait).collect();
    let mut inside: Vec<Block> = behind.iter().flat_map(|&op| func.ops[op].regions.iter().copied()).collect();
    let mut next = 0;
    while next < inside.len() {
        let regions = func.blocks[inside[next]].ops.iter().flat_map(|&op| func.ops[op].regions.iter().copied());
        inside.extend(regions.collect::<Vec<_>>());
        next += 1;
    }
    let mut parts: Vec<Value> = group.allocs.iter().map(|&alloc| func.ops[alloc].result()).collect();
    func.linked_blocks().into_iter().all(|block| {
        func.blocks[block].ops.iter().all(|&op| {
            let data = &func.ops[op];
            let names = data.operands.iter().any(|operand| parts.contains(operand));
            if names && data.results.iter().any(|&result| func.ty(result).as_shared().is_some()) {
                parts.extend(data.results.iter().copied());
                return true;
            }
            !names || inside.contains(&block) || behind.contains(&op) || group.copies.contains(&op)
        })
    })
}

/// The counting loops around a block, from the outermost on; `None` where something else is around it, or where a round of one of
/// them may end early.
fn loops_around(func: &Func, block: Block) -> Option<Vec<Op>> {
    let parents: BTreeMap<Block, (Op, Block)> = func
        .linked_blocks()
        .into_iter()
        .flat_map(|outer| func.blocks[outer].ops.iter().map(move |&op| (op, outer)).collect::<Vec<_>>())
        .flat_map(|(op, outer)| func.ops[op].regions.iter().map(move |&region| (region, (op, outer))).collect::<Vec<_>>())
        .collect();
    let mut loops = Vec::new();
    let mut at = block;
    while at != func.body {
        let &(op, outer) = parents.get(&at)?;
        let counts = matches!(func.ops[op].kind, OpKind::Schedule(ScheduleOp::For { .. }));
        let leaves = |inner: &Op| func.ops[*inner].kind.schedule().is_some_and(|kind| matches!(kind, ScheduleOp::If {}));
        if !counts || func.blocks[at].ops.iter().any(|inner| leaves(inner) && exits_early(func, *inner)) {
            return None;
        }
        loops.push(op);
        at = outer;
    }
    loops.reverse();
    Some(loops)
}

/// A condition's regions jump out of the loop around it.
fn exits_early(func: &Func, op: Op) -> bool {
    func.ops[op].regions.iter().flat_map(|&region| &func.blocks[region].ops).any(|&inner| {
        let jumps = |kind: &ScheduleOp| matches!(kind, ScheduleOp::Continue {} | ScheduleOp::Break {} | ScheduleOp::Return {});
        func.ops[inner].kind.schedule().is_some_and(jumps)
            || (matches!(func.ops[inner].kind, OpKind::Schedule(ScheduleOp::If {})) && exits_early(func, inner))
    })
}

fn engage(func: &mut Func, group: &Group) {
    let span = func.ops[group.commit].span;
    let buffers: Vec<SharedType> =
        group.allocs.iter().filter_map(|&alloc| func.ty(func.ops[alloc].result()).as_shared().cloned()).collect();
    // The buffers with a stage in front; what they were is the only stage's part.
    let mut behind = Vec::new();
    let mut staged = Vec::new();
    for (&alloc, buffer) in group.allocs.iter().zip(&buffers) {
        let old = func.ops[alloc].result();
        let shape = std::iter::once(1).chain(buffer.shape.iter().copied()).collect();
        let order = std::iter::once(0).chain(buffer.order.iter().map(|&axis| axis + 1)).collect();
        let ty = Type::Shared(Box::new(SharedType { shape, order, ..buffer.clone() }));
        let whole = func.values.push(ValueData { ty, def: Def::Result(alloc, 0), name: func.values[old].name.clone() });
        func.ops[alloc].results = [whole].into_iter().collect();
        let zero = constant(func, span);
        let part = func.make_op(TileOp::SliceShared {}.into(), &[&[whole], &[func.ops[zero].result()]], [], [], span);
        func.values[old].def = Def::Result(part, 0);
        func.ops[part].results = [old].into_iter().collect();
        staged.push(whole);
        behind.push((alloc, vec![zero, part]));
    }
    let bytes: u64 = group
        .copies
        .iter()
        .filter_map(|&copy| func.ty(func.ops[copy].one(2)).as_shared())
        .map(|buffer| (buffer.tile().len() * buffer.elem.unpacked_bytes()) as u64)
        .sum();
    let ring_type = Type::Ring(Box::new(RingType { stages: 1, slots: buffers.clone() }));
    let kind = TileOp::Ring { stages: 1, producer: RingProducer::Tma, consumers: 1, bytes: bytes as u32, blocks: None };
    let ring_op = func.make_op(kind.into(), &[&staged], [ring_type], [], span);
    let ring = func.ops[ring_op].result();
    let start_op = func.make_op(TileOp::RingStart {}.into(), &[&[ring]], [Type::Cursor], [], span);
    let start = func.ops[start_op].result();
    // Behind the last allocation.
    let body = func.body;
    let last = group.allocs.iter().copied().max_by_key(|&alloc| func.blocks[body].place_of(alloc));
    for (alloc, mut ops) in behind {
        if Some(alloc) == last {
            ops.extend([ring_op, start_op]);
        }
        let at = func.blocks[body].place_of(alloc) + 1;
        func.blocks[body].ops.splice(at..at, ops);
    }
    let cursor = carried(func, group, start);
    let at: [&[Value]; 2] = [&[ring], &[cursor]];
    let acquire = func.make_op(TileOp::Acquire {}.into(), &at, [], [], span);
    let mut replaced: BTreeMap<Op, Vec<Op>> = BTreeMap::new();
    for (number, &copy) in group.copies.iter().enumerate() {
        let data = func.ops[copy].clone();
        let buffer = func.ty(data.one(2)).clone();
        let slot = func.make_op(TileOp::Slot { buffer: number as u32 }.into(), &at, [buffer], [], data.span);
        let slot_value = func.ops[slot].result();
        let groups: [&[Value]; 5] = [&[data.one(0)], data.group(1), &[slot_value], &[ring], &[cursor]];
        let load = func.make_op(TileOp::TmaLoad { blocks: None }.into(), &groups, [], [], data.span);
        let mut ops = if number == 0 { vec![acquire] } else { Vec::new() };
        ops.extend([slot, load]);
        replaced.insert(copy, ops);
    }
    let commit = func.make_op(TileOp::Commit { bytes: None }.into(), &at, [], [], span);
    replaced.insert(group.commit, vec![commit]);
    let span = func.ops[group.wait].span;
    let wait = func.make_op(TileOp::Wait {}.into(), &at, [], [], span);
    let release = func.make_op(TileOp::Release {}.into(), &at, [], [], span);
    replaced.insert(group.wait, vec![wait]);
    let mut last = vec![release];
    last.extend(advanced(func, group, ring, cursor));
    if let Some(&end) = func.blocks[group.block].ops.last() {
        last.push(end);
        replaced.insert(end, last);
    }
    let old = std::mem::take(&mut func.blocks[group.block].ops);
    func.blocks[group.block].ops = old.into_iter().flat_map(|op| replaced.remove(&op).unwrap_or_else(|| vec![op])).collect();
}

/// The number zero.
pub(super) fn constant(func: &mut Func, span: tessera_ir::Span) -> Op {
    let value = tessera_ir::Const::int(tessera_types::DType::I32, 0);
    func.make_op(ScheduleOp::Constant { value }.into(), &[], [Type::scalar(tessera_types::DType::I32)], [], span)
}

/// Carries the cursor through the loops around a group; its value where the group stands.
fn carried(func: &mut Func, group: &Group, start: Value) -> Value {
    let mut cursor = start;
    let loops = loops_around(func, group.block);
    for op in loops.unwrap_or_else(|| bug!("copies in a branch or in a loop that is left early")) {
        let region = func.ops[op].regions[0];
        let OpData { operands, segments, .. } = &mut func.ops[op];
        operands.push(cursor);
        segments[3] += 1;
        let position = func.ops[op].results.len() as u32;
        let result = func.values.push(ValueData { ty: Type::Cursor, def: Def::Result(op, position), name: None });
        func.ops[op].results.push(result);
        cursor = func.add_arg(region, Type::Cursor, None);
    }
    cursor
}

/// The cursor behind the group, handed on to the next round of each loop around it; `None` outside of loops.
fn advanced(func: &mut Func, group: &Group, ring: Value, cursor: Value) -> Option<Op> {
    let loops = loops_around(func, group.block)?;
    let span = func.ops[group.wait].span;
    if loops.is_empty() {
        return None;
    }
    let next = func.make_op(TileOp::Advance {}.into(), &[&[ring], &[cursor]], [Type::Cursor], [], span);
    let mut value = func.ops[next].result();
    for op in loops.into_iter().rev() {
        let region = func.ops[op].regions[0];
        if let Some(&last) = func.blocks[region].ops.last() {
            func.ops[last].operands.push(value);
            func.ops[last].segments[0] += 1;
        }
        value = *func.ops[op].results.last()?;
    }
    Some(next)
}
