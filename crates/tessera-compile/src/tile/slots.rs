//! What a ring's slot holds, and how many slots there is room for.
//!
//! ```text
//! load of a 128 x 64 tile of bf16, contiguous along axis 1      shared<128x64xbf16, swizzle=<3,4,3>>
//! ```
//!
//! Invariant: the copy engine can fill a buffer that [`of_load`] yields from the load's view, and the tensor cores of a warpgroup can
//! read it.

use tessera_ir::{Extent, Func, Op, Padding, ParamKind, SharedType, Swizzle, TileViewType, Type, Value, ViewKind};

use super::anchors::Units;
use super::remark::Reason;
use crate::analysis::arrays::own_array;

/// The most slots that were found useful.
const MOST: u32 = 6;

/// Bytes of shared memory for barriers and for aligning buffers.
const FRAME: u32 = 1 << 10;

/// The most elements of a box of the copy engine along one dimension, but for the contiguous one.
const BOX: u32 = 256;

/// The buffer that a load's tile takes in a slot, where the copy engine can fill it and the tensor cores can read it; `inner` is the
/// tile's axis of contraction.
pub(super) fn of_load(func: &Func, load: Op, inner: usize) -> Result<SharedType, Reason> {
    let data = &func.ops[load];
    let no = |text: &'static str| Reason::at(text, data.span);
    let Type::TileView(view) = func.ty(data.one(0)) else { return Err(no("a factor is loaded from no view")) };
    if view.kind != ViewKind::Partition || view.tile.len() != 2 {
        return Err(no("a factor is no two-dimensional block of an array"));
    }
    if !matches!(view.padding, Padding::Zero | Padding::Undetermined) {
        return Err(no("a factor is padded with something other than zero"));
    }
    if !addressable(func, data.one(0), view) {
        return Err(no("a factor's array is no argument whose lines are known to lie at multiples of 16 bytes"));
    }
    let unit = |axis: &usize| view.tensor.strides[view.dim_map[*axis] as usize] == Extent::Static(1);
    let fastest = (0..2).find(unit).ok_or_else(|| no("neither axis of a factor is known to have unit stride"))?;
    let elem = view.tensor.elem;
    if elem.bits() != 16 && fastest != inner {
        return Err(no("a factor of other than 16 bits does not lie along the contraction in memory"));
    }
    let line = view.tile[fastest] * elem.bits() / 8;
    let swizzle = match line {
        line if line.is_multiple_of(128) => Swizzle::B128,
        64 => Swizzle::B64,
        32 => Swizzle::B32,
        _ => return Err(no("a line of a factor's tile has no swizzle: 32, 64 or a multiple of 128 bytes")),
    };
    if view.tile[1 - fastest] > BOX {
        return Err(no("a factor's tile has more lines than the copy engine brings at once"));
    }
    let order = if fastest == 1 { [0, 1] } else { [1, 0] };
    Ok(SharedType { swizzle, order: order.into_iter().collect(), ..SharedType::new(view.tile.clone(), elem) })
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
    matches!(array, Some(ParamKind::Array { align, .. }) if *align >= 16) && aligned(&ty.tensor.strides, ty.tensor.elem.bits())
}

/// Slots of `bytes` each that fit beside `others` bytes of shared memory, at most as many as the kernel's hints ask for.
pub(super) fn stages(func: &Func, units: &Units, bytes: u32, others: u32) -> u32 {
    let room = units.shared.saturating_sub(FRAME + others) / bytes.max(1);
    func.hints.num_stages.unwrap_or(MOST).min(room).max(1)
}

/// The buffer of all slots: a slot with an axis of stages in front.
pub(super) fn staged(slot: &SharedType, stages: u32) -> SharedType {
    let shape = std::iter::once(stages).chain(slot.shape.iter().copied()).collect();
    let order = std::iter::once(0).chain(slot.order.iter().map(|&axis| axis + 1)).collect();
    SharedType { shape, order, ..slot.clone() }
}
