//! How a factor of a matrix product comes into a buffer that the tensor cores read.
//!
//! | the loop computes it by | and it lies | it comes |
//! |---|---|---|
//! | a load | as the tensor cores read it | by the copy engine |
//! | a load | with another axis fastest than the contraction, of 8 or 32 bits | by the copy engine, then turned by threads |
//! | loads and arithmetic of elements | | computed by threads, from what the copy engine brings where that can |
//! | the same, a left factor of 16 bits from less than half as many | | computed in registers by those who multiply |
//! | loads by pointers | | gathered by threads |
//!
//! Reshapes that drop axes of extent 1, or make the axes of a box's lines one axis, and permutations only change how a buffer is looked at: a box
//! of 2 x 8 x 8 x 64 elements lies there as 128 lines of 64 do.
//!
//! ```text
//! %t, %k = load_view_tko %view, [%i, %n] : tile<128x256xf8e4m3>     contiguous along axis 1, contracted along axis 0: turned
//! ```

use rustc_hash::{FxHashMap, FxHashSet};
use tessera_ir::attrs::MemoryOrder;
use tessera_ir::{Const, Func, Op, OpKind, ScheduleOp, Shape, SharedType, Span, TileOp, Type, Value, bug, collapsed_axes};
use tessera_types::DType;

use super::queue::copied;
use super::relation::{Relation, has_layout, shape};
use super::slots;
use tessera_analysis::arrangement::engine_swizzle;
use tessera_analysis::facts::Facts;
use tessera_analysis::neighbours::vectors;
use tessera_ir::Reason;

/// A factor and its way.
pub(super) struct Factor {
    /// The value that the product takes.
    pub(super) value: Value,
    /// Its axis of contraction.
    pub(super) inner: usize,
    /// What computes it, in order, of the loop's body and of what stands before the loop.
    pub(super) ops: Vec<Op>,
    /// Loads among those, each with the buffer that the copy engine fills for it, where it can.
    pub(super) loads: Vec<(Op, Option<SharedType>)>,
    /// The buffer that the tensor cores read.
    pub(super) slot: SharedType,
    /// Who fills that.
    pub(super) way: Way,
}

/// How a factor comes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Way {
    /// The copy engine fills the tensor cores' buffer.
    Brought,
    /// Threads turn what the copy engine has brought.
    Turned,
    /// Threads compute it; `turned` where it has to be turned as well.
    Computed { turned: bool },
}

impl Factor {
    /// The way of a value that the loop's body computes; `inner` is its axis of contraction.
    pub(super) fn of(func: &Func, body: &[Op], value: Value, inner: usize) -> Result<Factor, Reason> {
        let mut found = Found { body: body.iter().copied().collect(), ..Found::default() };
        found.collect(func, value)?;
        let Found { ops, loads, .. } = found;
        // What becomes of several axes as one is not made by threads, who would exchange elements on the way.
        let collapse = ops.iter().copied().find(|&op| is_collapse(func, op));
        let made =
            ops.iter().any(|&op| !is_look(func, op) && !loads.contains(&op)) || loads.iter().any(|&load| is_gather(func, load));
        if let Some(op) = collapse.filter(|_| made) {
            return Err(computed_by(func, op));
        }
        let at = func.defining_op(value).map(|op| func.ops[op].span);
        let no = |text: &'static str| Reason::at(text, at);
        let tile = func.ty(value).as_tile().ok_or_else(|| no("a factor is no tile"))?;
        let elem = tile.elem.num().ok_or_else(|| no("a factor holds no numbers"))?;
        let (load, fastest) = match fastest_axis(func, value) {
            Some(found) => found,
            // Elements from everywhere lie as well one way as the other.
            None => match loads.first() {
                Some(&load) if is_gather(func, load) => (load, 1),
                _ => return Err(no("neither axis of a factor is known to have unit stride")),
            },
        };
        let contiguous = fastest == inner;
        let turned = elem.bits() != 16 && !contiguous;
        let order: [u32; 2] = if fastest == 1 { [0, 1] } else { [1, 0] };
        let plain = |order: [u32; 2]| -> Result<SharedType, Reason> {
            let line = tile.shape[order[1] as usize] * elem.bits() / 8;
            let swizzle = engine_swizzle(line).ok_or_else(|| no("a line of a factor is not of whole 32 bytes"))?;
            Ok(SharedType { swizzle, order: order.into_iter().collect(), ..SharedType::new(tile.shape.clone(), elem) })
        };
        let only_looked_at = ops.iter().all(|op| *op == load || is_look(func, *op));
        let loads: Vec<(Op, Option<SharedType>)> = loads.into_iter().map(|load| (load, brought(func, load).ok())).collect();
        let k_major: [u32; 2] = if inner == 1 { [0, 1] } else { [1, 0] };
        let dense = |buffer: &SharedType| looked_through(func, &ops, buffer).is_some();
        let (slot, way) = match (loads.first(), collapse) {
            (Some((_, Some(brought))), _) if only_looked_at && !turned && dense(brought) => (brought.clone(), Way::Brought),
            (_, Some(op)) => return Err(computed_by(func, op)),
            (Some((_, Some(_))), None) if only_looked_at => (plain(k_major)?, Way::Turned),
            _ => (plain(if turned { k_major } else { order })?, Way::Computed { turned }),
        };
        Ok(Factor { value, inner, ops, loads, slot, way })
    }

    /// The buffer in which a factor lies before it is turned, where threads compute it.
    pub(super) fn before_turn(&self) -> Option<SharedType> {
        let Way::Computed { turned: true } = self.way else { return None };
        let order: [u32; 2] = [self.slot.order[1], self.slot.order[0]];
        let line = self.slot.shape[order[1] as usize] * self.slot.elem.bits() / 8;
        Some(SharedType { swizzle: engine_swizzle(line)?, order: order.into_iter().collect(), ..self.slot.clone() })
    }

    /// The factor's matrix in a buffer that was filled by the load.
    pub(super) fn looked_at(&self, func: &mut Func, mut buffer: Value, span: Span, out: &mut Vec<Op>) -> Value {
        for &op in &self.ops {
            match func.ops[op].kind.clone() {
                OpKind::Schedule(ScheduleOp::Permute { permutation }) => {
                    buffer = permuted(func, buffer, permutation, span, out);
                }
                OpKind::Schedule(ScheduleOp::Reshape {}) => {
                    let unit = |&axis: &u32, func: &Func| func.ty(buffer).the_shared().shape[axis as usize] == 1;
                    let axes: Vec<u32> = (0..func.ty(buffer).the_shared().shape.len() as u32).collect();
                    let (ones, rest): (Vec<u32>, Vec<u32>) = axes.iter().partition(|axis| unit(axis, func));
                    if ones.iter().enumerate().any(|(at, &axis)| at as u32 != axis) {
                        buffer = permuted(func, buffer, ones.iter().chain(&rest).copied().collect(), span, out);
                    }
                    for _ in ones {
                        buffer = entry(func, buffer, span, out);
                    }
                    let wanted = func.ty(func.ops[op].result()).the_tile().shape.clone();
                    if func.ty(buffer).the_shared().shape != wanted {
                        buffer = collapsed(func, buffer, &wanted, span, out);
                    }
                }
                _ if self.loads.iter().any(|(load, _)| *load == op) => {}
                _ => bug!("a factor in memory that is computed"),
            }
        }
        buffer
    }

    /// Computes the factor from what lies in the buffers of its loads, or in memory where there is no buffer.
    pub(super) fn computed(
        &self,
        func: &mut Func,
        buffers: &[Option<Value>],
        map: &mut FxHashMap<Value, Value>,
        out: &mut Vec<Op>,
    ) -> Value {
        for &op in &self.ops {
            let buffer = self.loads.iter().zip(buffers).find_map(|((load, _), buffer)| buffer.filter(|_| *load == op));
            match buffer {
                Some(buffer) => {
                    let (result, span) = (func.ops[op].results[0], func.ops[op].span);
                    let ty = func.ty(result).clone();
                    let read = func.make_op(TileOp::LoadShared {}.into(), &[&[buffer]], [ty], [], span);
                    map.insert(result, func.ops[read].result());
                    out.push(read);
                }
                None => {
                    let copy = copied(func, op, map);
                    out.push(copy);
                }
            }
        }
        map.get(&self.value).copied().unwrap_or(self.value)
    }
}

/// The first entry of a buffer's first axis.
pub(super) fn entry(func: &mut Func, buffer: Value, span: Span, out: &mut Vec<Op>) -> Value {
    let part = func.ty(buffer).as_shared().and_then(SharedType::slice).unwrap_or_else(|| bug!("a buffer without entries"));
    let kind = ScheduleOp::Constant { value: Const::int(DType::I32, 0) };
    let zero = func.make_op(kind.into(), &[], [Type::scalar(DType::I32)], [], span);
    let index = func.ops[zero].result();
    let ty = Type::Shared(Box::new(part));
    let slice = func.make_op(TileOp::SliceShared {}.into(), &[&[buffer], &[index]], [ty], [], span);
    out.extend([zero, slice]);
    func.ops[slice].result()
}

/// A buffer under reordered axes.
pub(super) fn permuted(func: &mut Func, buffer: Value, permutation: Shape, span: Span, out: &mut Vec<Op>) -> Value {
    let ty = func.ty(buffer).the_shared().permuted(&permutation);
    let ty = ty.unwrap_or_else(|| bug!("a permutation that does not name each axis once"));
    let kind = TileOp::TransposeShared { permutation };
    let turned = func.make_op(kind.into(), &[&[buffer]], [Type::Shared(Box::new(ty))], [], span);
    out.push(turned);
    func.ops[turned].result()
}

/// A buffer whose neighbouring axes are one.
fn collapsed(func: &mut Func, buffer: Value, shape: &[u32], span: Span, out: &mut Vec<Op>) -> Value {
    let ty = func.ty(buffer).the_shared().collapsed(shape);
    let ty = ty.unwrap_or_else(|| bug!("axes that do not lie one behind the other"));
    let one = func.make_op(TileOp::CollapseShared {}.into(), &[&[buffer]], [Type::Shared(Box::new(ty))], [], span);
    out.push(one);
    func.ops[one].result()
}

/// Extents of a value's tile but those of 1.
fn significant(func: &Func, value: Value) -> Shape {
    func.ty(value).as_tile().map_or_else(Shape::new, |tile| tile.shape.iter().copied().filter(|&extent| extent != 1).collect())
}

/// An operation that makes neighbouring axes of a tile one axis, and with that more than drops axes of extent 1.
fn is_collapse(func: &Func, op: Op) -> bool {
    let data = &func.ops[op];
    let OpKind::Schedule(ScheduleOp::Reshape {}) = data.kind else { return false };
    let (from, to) = (significant(func, data.one(0)), significant(func, data.result()));
    from != to && collapsed_axes(&from, &to).is_some()
}

/// An operation that only changes how a tile is looked at: it drops axes of extent 1, makes neighbouring axes one, or reorders axes.
pub(super) fn is_look(func: &Func, op: Op) -> bool {
    let data = &func.ops[op];
    match &data.kind {
        OpKind::Schedule(ScheduleOp::Permute { .. }) => true,
        OpKind::Schedule(ScheduleOp::Reshape {}) => {
            let to = &func.ty(data.result()).the_tile().shape;
            !to.contains(&1) && (significant(func, data.one(0)) == *to || is_collapse(func, op))
        }
        _ => false,
    }
}

/// The buffer of a load's tile as the operations behind that look at it; `None` where axes that these make one do not lie one behind the other.
fn looked_through(func: &Func, ops: &[Op], buffer: &SharedType) -> Option<SharedType> {
    let mut ty = buffer.clone();
    for &op in ops.iter().filter(|op| is_look(func, **op)) {
        ty = match &func.ops[op].kind {
            OpKind::Schedule(ScheduleOp::Permute { permutation }) => ty.permuted(permutation)?,
            _ => without_units(&ty).collapsed(&func.ty(func.ops[op].result()).the_tile().shape)?,
        };
    }
    Some(ty)
}

/// A buffer without its axes of extent 1.
fn without_units(ty: &SharedType) -> SharedType {
    let kept: Vec<u32> = (0..ty.shape.len() as u32).filter(|&axis| ty.shape[axis as usize] != 1).collect();
    let order = ty.order.iter().filter_map(|axis| kept.iter().position(|kept| kept == axis)).map(|axis| axis as u32).collect();
    SharedType { shape: kept.iter().map(|&axis| ty.shape[axis as usize]).collect(), order, ..ty.clone() }
}

/// The load that a value is a view of.
pub(super) fn looked_at(func: &Func, value: Value) -> Option<Op> {
    let mut op = func.defining_op(value)?;
    while is_look(func, op) {
        op = func.defining_op(func.ops[op].one(0))?;
    }
    matches!(func.ops[op].kind, OpKind::Schedule(ScheduleOp::LoadViewTko { .. })).then_some(op)
}

/// The loads behind a factor of 16 bits that is computed from less than half as many bits: those who multiply compute it in their registers,
/// since shared memory would move it twice.
pub(super) fn packed(func: &Func, body: &[Op], value: Value) -> Option<Vec<Op>> {
    let mut found = Found { body: body.iter().copied().collect(), in_registers: true, ..Found::default() };
    found.collect(func, value).ok()?;
    let bits = |value: Value| func.ty(value).as_tile().map_or(0, |tile| tile.len() as u64 * tile.elem.bits());
    let loaded: u64 = found.loads.iter().map(|&load| bits(func.ops[load].results[0])).sum();
    let halves = matches!(func.ty(value).num(), Some(DType::F16 | DType::BF16));
    (halves && !found.loads.is_empty() && 2 * loaded < bits(value)).then_some(found.loads)
}

/// What a factor is computed by.
#[derive(Default)]
struct Found {
    body: FxHashSet<Op>,
    seen: FxHashSet<Op>,
    ops: Vec<Op>,
    loads: Vec<Op>,
    /// What is collected says where to load from: what was loaded before the loop is loaded again.
    places: bool,
    /// What is collected stays in the registers of those who multiply, who may put any elements beside each other.
    in_registers: bool,
}

impl Found {
    /// Notes the operations behind a value, which must be loads and arithmetic of elements.
    fn collect(&mut self, func: &Func, value: Value) -> Result<(), Reason> {
        if !has_layout(func, value) {
            return Ok(());
        }
        let op = func.defining_op(value).ok_or("a factor is carried around the loop")?;
        if !self.seen.insert(op) {
            return Ok(());
        }
        let data = &func.ops[op];
        if let OpKind::Schedule(ScheduleOp::LoadViewTko { .. }) = data.kind {
            let inside = self.body.contains(&op);
            if !inside && !self.places {
                return Err(Reason::at("a factor comes from outside the loop", data.span));
            }
            if !data.group(2).is_empty() {
                return Err(Reason::at("a factor's load is ordered behind a store", data.span));
            }
            if inside {
                self.loads.push(op);
            }
        } else if is_gather(func, op) {
            let around = std::mem::replace(&mut self.places, true);
            for &operand in &data.operands {
                self.collect(func, operand)?;
            }
            self.places = around;
            if self.body.contains(&op) {
                self.loads.push(op);
            }
        } else {
            let relation = Relation::of(func, op);
            let elements = matches!(
                relation,
                Relation::Same | Relation::Permute(_) | Relation::Reshape | Relation::Broadcast | Relation::Free
            );
            let again = self.in_registers && matches!(relation, Relation::Reshape) || relation.repeats(func, op);
            let again = again || is_collapse(func, op);
            if !elements || !again {
                return Err(computed_by(func, op));
            }
            for &operand in &data.operands {
                self.collect(func, operand)?;
            }
        }
        self.ops.push(op);
        Ok(())
    }
}

/// Why threads do not make a factor.
fn computed_by(func: &Func, op: Op) -> Reason {
    Reason::at(format!("a factor is computed by `{}`", func.ops[op].row().mnemonic), func.ops[op].span)
}

/// A load by pointers that waits for no write.
fn is_gather(func: &Func, op: Op) -> bool {
    let data = &func.ops[op];
    matches!(data.kind, OpKind::Schedule(ScheduleOp::LoadPtrTko { order: MemoryOrder::Weak, .. })) && data.optional(3).is_none()
}

/// The buffer that the copy engine fills with a load's tile: lines along the contiguous axis.
pub(super) fn brought(func: &Func, load: Op) -> Result<SharedType, Reason> {
    let at = func.ops[load].span;
    let no = |text: &'static str| Reason::at(text, at);
    if is_gather(func, load)
        || matches!(func.ops[load].kind, OpKind::Schedule(ScheduleOp::LoadViewTko { allow_tma: Some(false), .. }))
    {
        return Err(no("a factor's load is by pointers, or may not use the copy engine"));
    }
    let fastest =
        slots::contiguous_axis(func, load).ok_or_else(|| no("neither axis of a factor is known to have unit stride"))?;
    if shape(func, func.ops[load].results[0]).len() < 2 {
        return Err(no("the copy engine brings blocks of two axes"));
    }
    slots::brought(func, load, fastest)
}

/// The load that a value comes from, and the value's axis along which the load's memory is contiguous.
pub(super) fn fastest_axis(func: &Func, value: Value) -> Option<(Op, usize)> {
    axis_behind(func, value, &mut FxHashSet::default())
}

/// The same; values that were `seen` led nowhere.
fn axis_behind(func: &Func, value: Value, seen: &mut FxHashSet<Value>) -> Option<(Op, usize)> {
    let op = func.defining_op(value)?;
    let data = &func.ops[op];
    if let OpKind::Schedule(ScheduleOp::LoadViewTko { .. }) = data.kind {
        return Some((op, slots::contiguous_axis(func, op)?));
    }
    if is_gather(func, op) {
        let vector = vectors(func, &Facts::of(func)).get(&op).copied();
        return vector.map(|vector| (op, vector.axis));
    }
    if let OpKind::Tile(TileOp::LoadShared {}) = data.kind {
        let buffer = func.ty(data.one(0)).as_shared()?;
        return Some((op, *buffer.order.last()? as usize));
    }
    if !seen.insert(value) {
        return None;
    }
    match Relation::of(func, op) {
        Relation::Same => {
            let mut tiles = data.operands.iter().filter(|&&operand| has_layout(func, operand));
            tiles.find_map(|&operand| axis_behind(func, operand, seen))
        }
        Relation::Permute(permutation) => {
            let (load, axis) = axis_behind(func, data.one(0), seen)?;
            Some((load, permutation.iter().position(|&from| from == axis)?))
        }
        Relation::Reshape => {
            let (load, axis) = axis_behind(func, data.one(0), seen)?;
            let (from, to) = (shape(func, data.one(0)), shape(func, data.result()));
            let before = from[..axis].iter().filter(|&&extent| extent != 1).count();
            let groups = collapsed_axes(&significant(func, data.one(0)), &significant(func, data.result()))?;
            let group = groups.iter().position(|group| group.contains(&before))?;
            let kept = to.iter().enumerate().filter(|(_, extent)| **extent != 1).nth(group)?;
            (groups[group].len() == 1).then_some((load, kept.0))
        }
        _ => None,
    }
}
