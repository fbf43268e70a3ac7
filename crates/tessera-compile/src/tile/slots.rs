//! What a ring's slot holds, and how many slots there is room for.
//!
//! ```text
//! load of a 128 x 64 tile of bf16, contiguous along axis 1      shared<128x64xbf16, swizzle=<3,4,3>>
//! ```
//!
//! A slot that threads fill themselves is padded instead ([`padded`]): every address in it is a thread's corner plus a constant.
//!
//! Invariant: the copy engine can fill a buffer that [`brought`] yields from the load's view, and the tensor cores of a warpgroup can
//! read its matrix, where its elements have 16 bits or are contracted along the contiguous axis.

use tessera_ir::{
    Extent, Func, Op, OpKind, Padding, ParamKind, ScheduleOp, SharedType, Sharing, Swizzle, TileViewType, Type, Value, ViewKind,
};
use tessera_types::AsyncCopy;
use tessera_types::room::{USEFUL_SLOTS, slots_that_fit};

use super::anchors::Units;
use tessera_analysis::arrangement::{MIXED_LINES, engine_span, engine_swizzle};
use tessera_analysis::arrays::own_array;
use tessera_ir::Reason;

/// Slots from which on more are not worth the first-level cache, but where blocks of clusters wait for each other, or while results of 32 bits
/// leave. Other products with short contractions or shared rounds were up to 9 in 100 slower with more (`results/plans`).
const ENOUGH: u32 = 4;

/// The most slots that a ring may have.
pub(super) const MOST_SLOTS: u32 = 16;

/// Dimensions that a map of the copy engine has at most.
const DIMENSIONS: usize = AsyncCopy::TENSOR.axes as usize;

/// The most elements of a box of the copy engine along one dimension, but for the contiguous one.
const BOX: u32 = AsyncCopy::TENSOR.extent;
/// What addresses of boxes in shared memory are multiples of.
const BOX_ALIGN: u64 = 128;

/// The buffer that the copy engine fills with a load's tile: lines along the axis `fastest`, which is contiguous in memory. Lines along several axes
/// lie one behind the other as those of one axis do, where a swizzle mixes whole lines.
pub(super) fn brought(func: &Func, load: Op, fastest: usize) -> Result<SharedType, Reason> {
    let data = &func.ops[load];
    let no = |text: &'static str| Reason::at(text, data.span);
    let Type::TileView(view) = func.ty(data.one(0)) else { return Err(no("a factor is loaded from no view")) };
    let elem = view.tensor.elem;
    let axes = 2..=DIMENSIONS;
    // A box begins anywhere.
    if !matches!(view.kind, ViewKind::Partition | ViewKind::Strided(_)) || !axes.contains(&view.tile.len()) || elem.bits() < 8 {
        return Err(no("a factor is no block of two to five axes of an array of whole bytes"));
    }
    if !matches!(view.padding, Padding::Zero | Padding::Undetermined) {
        return Err(no("a factor is padded with something other than zero"));
    }
    if !addressable(func, data.one(0), view) {
        return Err(no("a factor's array is no argument whose lines are known to lie at multiples of 16 bytes"));
    }
    let line = view.tile[fastest] * elem.bits() / 8;
    let mixed = engine_swizzle(line).ok_or_else(|| no("a line of a factor's tile is not of whole 32 bytes"))?;
    let others = || (0..view.tile.len()).filter(|&axis| axis != fastest);
    let along: Vec<usize> = others().filter(|&axis| view.tile[axis] != 1).collect();
    if along.len() > 1 && engine_span(mixed).is_some_and(|span| u64::from(line) > span) {
        return Err(no(
            "a factor's tile has lines along several axes, and these are longer than the 128 bytes that a swizzle mixes",
        ));
    }
    // A few lines are no whole pattern, at which the next slot would have to begin.
    let lines: u32 = along.iter().map(|&axis| view.tile[axis]).product();
    let few = (2..MIXED_LINES).contains(&lines) && view.tile[fastest] <= BOX;
    let swizzle = if few { Swizzle::NONE } else { mixed };
    if along.iter().any(|&axis| view.tile[axis] > BOX) {
        return Err(no("a factor's tile has more lines than the copy engine brings at once"));
    }
    // Where there is one line, the last other axis is that of lines.
    let lines = along.last().copied().or(others().next_back());
    let (slow, fast): (Vec<usize>, Vec<usize>) = others().partition(|axis| !along.contains(axis) && Some(*axis) != lines);
    let order = slow.into_iter().chain(fast).chain([fastest]).map(|axis| axis as u32).collect();
    let slot = SharedType { swizzle, order, ..SharedType::new(view.tile.clone(), elem) };
    // The next slot begins behind it, and a box where the engine can put one (PTX ISA, "Tensor alignment").
    if !slot.bytes().is_multiple_of(BOX_ALIGN) {
        return Err(no("a factor's tile is of no whole 128 bytes, at which the copy engine puts each"));
    }
    Ok(slot)
}

/// The axis of a load's tile along which its array is contiguous.
pub(super) fn contiguous_axis(func: &Func, load: Op) -> Option<usize> {
    let Type::TileView(view) = func.ty(func.ops[load].one(0)) else { return None };
    (0..view.tile.len()).find(|&axis| view.tensor.strides[view.dim_map[axis] as usize] == Extent::Static(1))
}

/// The buffer that a load's tile takes in a slot that threads fill, and that warps or threads read without warpgroups; `contraction` is
/// the axis, of the tile's last two, that is summed over. Lines are padded so that what a warp reads at once lies in different
/// banks: 16 bytes where it reads rows of 16 bytes, by `ldmatrix` or each thread by itself; 32 where eight of its lanes read
/// neighbours of one line in each of four lines.
pub(super) fn padded(func: &Func, load: Op, contraction: usize, by_threads: bool) -> Result<SharedType, Reason> {
    let data = &func.ops[load];
    let no = |text: &'static str| Reason::at(text, data.span);
    let Type::TileView(view) = func.ty(data.one(0)) else { return Err(no("a factor is loaded from no view")) };
    let (rank, elem) = (view.tile.len(), view.tensor.elem);
    if !matches!(view.kind, ViewKind::Partition | ViewKind::Strided(_)) || rank < 2 || elem.bits() < 8 {
        return Err(no("a factor is no block of an array of whole bytes"));
    }
    if !matches!(view.padding, Padding::Zero | Padding::Undetermined) {
        return Err(no("a factor is padded with something other than zero"));
    }
    let unit = |axis: &usize| view.tensor.strides[view.dim_map[*axis] as usize] == Extent::Static(1);
    let fastest = (rank - 2..rank).find(unit).ok_or_else(|| no("neither axis of a factor is known to have unit stride"))?;
    let bytes = elem.unpacked_bytes() as u32;
    if !(view.tile[fastest] * bytes).is_multiple_of(16) {
        return Err(no("a line of a factor's tile is not of whole 16 bytes"));
    }
    let deep = fastest == rank - 2 + contraction;
    let pad = match (by_threads, deep) {
        (true, true) => 16,
        (true, false) => 0,
        (false, _) if bytes == 2 || bytes < 8 && deep => 16,
        (false, _) => 32,
    };
    let mut order: Vec<u32> = (0..rank as u32).filter(|&axis| axis as usize != fastest).collect();
    order.push(fastest as u32);
    Ok(SharedType { order: order.into_iter().collect(), pad: pad / bytes, ..SharedType::new(view.tile.clone(), elem) })
}

/// The buffer that a load's tile takes in a slot that threads fill and read again as a tile: lines run as they do in memory.
pub(super) fn of_tile(func: &Func, load: Op) -> Result<SharedType, Reason> {
    let data = &func.ops[load];
    let no = |text: &'static str| Reason::at(text, data.span);
    let Type::TileView(view) = func.ty(data.one(0)) else { return Err(no("what is loaded is no block of an array")) };
    let elem = view.tensor.elem;
    if !matches!(view.kind, ViewKind::Partition | ViewKind::Strided(_)) || elem.bits() < 8 {
        return Err(no("what is loaded is no block of an array of whole bytes"));
    }
    if !matches!(view.padding, Padding::Zero | Padding::Undetermined) {
        return Err(no("what is loaded is padded with something other than zero"));
    }
    let fastest = contiguous_axis(func, load).ok_or_else(|| no("no axis of what is loaded is known to have unit stride"))?;
    if !(view.tile[fastest] * elem.unpacked_bytes() as u32).is_multiple_of(16) {
        return Err(no("a line of what is loaded is not of whole 16 bytes"));
    }
    let mut order: Vec<u32> = (0..view.tile.len() as u32).filter(|&axis| axis as usize != fastest).collect();
    order.push(fastest as u32);
    Ok(SharedType { order: order.into_iter().collect(), ..SharedType::new(view.tile.clone(), elem) })
}

/// The view is of an array argument as it was passed, with lines at multiples of 16 bytes.
pub(super) fn addressable(func: &Func, view: Value, ty: &TileViewType) -> bool {
    let aligned = |strides: &[Extent], bits: u32| {
        strides.iter().all(|stride| match stride {
            Extent::Static(1) | Extent::Dynamic => true,
            Extent::Static(stride) => (stride * i64::from(bits)).rem_euclid(128) == 0,
        })
    };
    let array = own_array(func, view).map(|position| &func.abi.params[position].kind);
    matches!(array, Some(ParamKind::Array { align, lines, .. }) if *align >= 16 && *lines >= 16)
        && aligned(&ty.tensor.strides, ty.tensor.elem.bits())
}

/// Slots of `bytes` each that fit beside `others` bytes of shared memory, at most as many as the kernel's hints ask for.
pub(super) fn stages(func: &Func, units: &Units, bytes: u32, others: u32) -> u32 {
    let fit = |shared: u32| slots_that_fit(shared, bytes, others);
    let limits = units.arch.limits();
    let beside_cache = limits.shared_beside_cache - limits.shared_reserved_per_block;
    let in_clusters = func.hints.num_ctas.is_some_and(|blocks| blocks > 1);
    let waits = in_clusters || func.hints.shares() != Sharing::Rounds && stores_wide(func);
    let most = if waits { USEFUL_SLOTS } else { fit(beside_cache).clamp(ENOUGH, USEFUL_SLOTS) };
    func.hints.num_stages.unwrap_or(most).min(fit(units.shared)).max(1)
}

/// The function stores elements of 32 bits or more.
fn stores_wide(func: &Func) -> bool {
    func.linked_ops().into_iter().any(|op| {
        let stored = matches!(func.ops[op].kind, OpKind::Schedule(ScheduleOp::StoreViewTko { .. }));
        let wide = |&value: &Value| matches!(func.ty(value), Type::TileView(view) if view.tensor.elem.bits() >= 32);
        stored && func.ops[op].operands.iter().any(wide)
    })
}

/// The buffer of all slots: a slot with an axis of stages in front.
pub(super) fn staged(slot: &SharedType, stages: u32) -> SharedType {
    let shape = std::iter::once(stages).chain(slot.shape.iter().copied()).collect();
    let order = std::iter::once(0).chain(slot.order.iter().map(|&axis| axis + 1)).collect();
    SharedType { shape, order, ..slot.clone() }
}
