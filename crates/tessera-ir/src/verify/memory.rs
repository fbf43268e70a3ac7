//! Views, loads, stores, atomic updates and tokens.
//!
//! An index of a view has one entry a tile axis, in the order of the tile's axes; with `dim_map`, entry `i` counts along array
//! axis `dim_map[i]`. The gathered axis of a gather view takes a tile of indices, one an element of that axis.

use tessera_types::DType;

use crate::attrs::{AtomicMode, MemoryOrder};
use crate::schedule::ScheduleOp;
use crate::types::{Elem, Extent, TileType, TileViewType, Type, ViewKind};
use crate::verify::tiles::indices;
use crate::verify::{Rule, Site, Wrong, ensure, one_of};

const LOADS: &[MemoryOrder] = &[MemoryOrder::Weak, MemoryOrder::Relaxed, MemoryOrder::Acquire];
const STORES: &[MemoryOrder] = &[MemoryOrder::Weak, MemoryOrder::Relaxed, MemoryOrder::Release];
const UPDATES: &[MemoryOrder] =
    &[MemoryOrder::Weak, MemoryOrder::Relaxed, MemoryOrder::Acquire, MemoryOrder::Release, MemoryOrder::AcqRel];

pub(super) fn check(site: &Site<'_>, kind: &ScheduleOp) -> Rule {
    match kind {
        ScheduleOp::Offset {} => {
            let (pointers, offsets) = (site.tile(0)?, site.tile(1)?);
            ensure!(matches!(pointers.elem, Elem::Ptr(_)), "ir-element-type", "moves pointers, not `{pointers}`");
            let counts = offsets.elem.num().is_some_and(|dtype| dtype.is_integer() && dtype.bits() >= 8);
            ensure!(counts, "ir-element-type", "offsets are integers, not `{offsets}`");
            ensure!(pointers.shape == offsets.shape, "ir-shape", "`{pointers}` and `{offsets}` differ in shape");
            site.result_is(0, site.operand(0))
        }
        ScheduleOp::MakeTensorView {} => tensor_view(site),
        ScheduleOp::MakePartitionView {} => tile_view(site, |kind| matches!(kind, ViewKind::Partition)),
        ScheduleOp::MakeStridedView {} => tile_view(site, |kind| matches!(kind, ViewKind::Strided(_))),
        ScheduleOp::MakeGatherScatterView {} => tile_view(site, |kind| matches!(kind, ViewKind::GatherScatter { .. })),
        ScheduleOp::GetTensorShape {} => match site.operand(0) {
            Type::TensorView(view) => sizes(site, view.shape.len()),
            Type::Operand(operand) => sizes(site, operand.axes.len()),
            ty => Err(site.wrong_operand(0, "an array", ty)),
        },
        ScheduleOp::GetIndexSpaceShape {} => {
            let view = view(site, 0)?;
            sizes(site, view.tile.len())
        }
        ScheduleOp::LoadViewTko { order, .. } => {
            one_of("the memory order of a load", *order, LOADS)?;
            let tile = access(site, 0, 1)?;
            site.result_tile_is(0, &tile)?;
            site.token(2)?;
            site.result_is(1, &Type::Token)
        }
        ScheduleOp::StoreViewTko { order, .. } => {
            one_of("the memory order of a store", *order, STORES)?;
            let tile = access(site, 1, 2)?;
            ensure!(*site.tile(0)? == tile, "ir-operand-type", "stores `{}` where the view holds `{tile}`", site.operand(0));
            site.token(3)?;
            site.result_is(0, &Type::Token)
        }
        ScheduleOp::AtomicRedViewTko { order, mode, .. } => {
            one_of("the memory order of an update", *order, UPDATES)?;
            let tile = access(site, 0, 1)?;
            ensure!(*site.tile(2)? == tile, "ir-operand-type", "combines `{}` into `{tile}`", site.operand(2));
            ensure!(*mode != AtomicMode::Xchg, "ir-attribute", "an update without a result cannot exchange");
            atomic(*mode, tile.elem)?;
            site.token(3)?;
            site.result_is(0, &Type::Token)
        }
        ScheduleOp::LoadPtrTko { order, .. } => {
            one_of("the memory order of a load", *order, LOADS)?;
            let tile = pointed(site, 0)?;
            mask(site, 1, &tile)?;
            if let Some(padding) = site.op.optional(2) {
                ensure!(site.op.optional(1).is_some(), "ir-structure", "padding needs a mask");
                let ty = site.ty(padding);
                ensure!(ty.as_tile() == Some(&tile), "ir-operand-type", "pads `{tile}` with `{ty}`");
            }
            site.token(3)?;
            site.result_tile_is(0, &tile)?;
            site.result_is(1, &Type::Token)
        }
        ScheduleOp::StorePtrTko { order, .. } => {
            one_of("the memory order of a store", *order, STORES)?;
            let tile = pointed(site, 0)?;
            ensure!(*site.tile(1)? == tile, "ir-operand-type", "stores `{}` through pointers to `{tile}`", site.operand(1));
            mask(site, 2, &tile)?;
            site.token(3)?;
            site.result_is(0, &Type::Token)
        }
        ScheduleOp::AtomicRmwTko { order, mode, .. } => {
            one_of("the memory order of an update", *order, UPDATES)?;
            let tile = pointed(site, 0)?;
            ensure!(*site.tile(1)? == tile, "ir-operand-type", "combines `{}` into `{tile}`", site.operand(1));
            atomic(*mode, tile.elem)?;
            mask(site, 2, &tile)?;
            updated(site, 3, tile)
        }
        ScheduleOp::AtomicCasTko { order, .. } => {
            one_of("the memory order of an update", *order, UPDATES)?;
            let tile = pointed(site, 0)?;
            let right = *site.tile(1)? == tile && *site.tile(2)? == tile;
            ensure!(right, "ir-operand-type", "`compare` and `value` must be `{tile}`");
            atomic(AtomicMode::Xchg, tile.elem)?;
            mask(site, 3, &tile)?;
            updated(site, 4, tile)
        }
        ScheduleOp::Alloca { count, align } => {
            ensure!((1..=1 << 26).contains(count), "ir-extent", "cannot hold {count} elements");
            ensure!(align.is_power_of_two(), "ir-attribute", "the alignment {align} is not a power of two");
            let tile = site.result_tile(0)?;
            let right = tile.shape.is_empty() && matches!(tile.elem, Elem::Ptr(_));
            ensure!(right, "ir-result-type", "the result must be one pointer, not `{tile}`");
            Ok(())
        }
        ScheduleOp::MakeToken {} => site.result_is(0, &Type::Token),
        ScheduleOp::JoinTokens {} => {
            let tokens = site.op.operands.iter().all(|&value| *site.ty(value) == Type::Token);
            ensure!(tokens, "ir-operand-type", "joins tokens only");
            site.result_is(0, &Type::Token)
        }
        _ => Ok(()),
    }
}

fn tensor_view(site: &Site<'_>) -> Rule {
    let Type::TensorView(view) = site.result(0) else {
        return Err(Wrong { id: "ir-result-type", message: format!("the result is an array, not `{}`", site.result(0)) });
    };
    let base = site.tile(0)?;
    let right = base.shape.is_empty() && base.elem == Elem::Ptr(view.elem);
    ensure!(right, "ir-operand-type", "`{view}` needs one pointer to its elements, not `{base}`");
    for (position, extents, what) in [(1, &view.shape, "sizes"), (2, &view.strides, "strides")] {
        let open = extents.iter().filter(|extent| **extent == Extent::Dynamic).count();
        let given = site.op.group(position).len();
        ensure!(open == given, "ir-shape", "`{view}` leaves {open} {what} open, but {given} are given");
        indices(site, position)?;
    }
    Ok(())
}

fn tile_view(site: &Site<'_>, fits: impl Fn(&ViewKind) -> bool) -> Rule {
    let (Type::TensorView(tensor), Type::TileView(view)) = (site.operand(0), site.result(0)) else {
        let message = format!("makes a view of tiles from an array, not `{}` from `{}`", site.result(0), site.operand(0));
        return Err(Wrong { id: "ir-operand-type", message });
    };
    ensure!(fits(&view.kind), "ir-result-type", "cannot make a `{view}`");
    ensure!(view.tensor == **tensor, "ir-operand-type", "`{view}` is not a view of `{tensor}`");
    Ok(())
}

fn sizes(site: &Site<'_>, rank: usize) -> Rule {
    ensure!(site.op.results.len() == rank, "ir-results", "has {rank} results");
    for position in 0..rank {
        let ty = site.result(position);
        let counts = ty.is_scalar() && matches!(ty.num(), Some(DType::I32 | DType::I64));
        ensure!(counts, "ir-result-type", "sizes are scalar `i32` or `i64`, not `{ty}`");
    }
    Ok(())
}

fn view<'m>(site: &Site<'m>, position: usize) -> Result<&'m TileViewType, Wrong> {
    match site.operand(position) {
        Type::TileView(view) => Ok(view),
        ty => Err(site.wrong_operand(position, "a view of tiles", ty)),
    }
}

/// Checks a view's index and yields the type of the tile there.
pub(super) fn access(site: &Site<'_>, at: usize, index: usize) -> Result<TileType, Wrong> {
    let view = view(site, at)?;
    let given = site.op.group(index);
    ensure!(given.len() == view.tile.len(), "ir-shape", "{} indices are given for {} axes", given.len(), view.tile.len());
    for (axis, &value) in given.iter().enumerate() {
        let ty = site.ty(value);
        let integer = ty.num().is_some_and(|dtype| dtype.is_integer() && dtype.bits() >= 8);
        let shape: &[u32] = match view.kind {
            ViewKind::GatherScatter { axis: gathered } if gathered as usize == axis => &view.tile[axis..=axis],
            _ => &[],
        };
        let right = integer && ty.as_tile().is_some_and(|tile| tile.shape.as_slice() == shape);
        ensure!(right, "ir-operand-type", "index {axis} of `{view}` is `{ty}`");
    }
    Ok(TileType { shape: view.tile.clone(), elem: Elem::Num(view.tensor.elem) })
}

/// The tile that a tile of pointers points to.
fn pointed(site: &Site<'_>, position: usize) -> Result<TileType, Wrong> {
    let tile = site.tile(position)?;
    match tile.elem {
        Elem::Ptr(to) => Ok(tile.with_elem(Elem::Num(to))),
        Elem::Num(_) => Err(site.wrong_operand(position, "pointers", tile)),
    }
}

fn mask(site: &Site<'_>, position: usize, tile: &TileType) -> Rule {
    let Some(value) = site.op.optional(position) else { return Ok(()) };
    let (ty, wanted) = (site.ty(value), tile.with_elem(Elem::Num(DType::B1)));
    ensure!(ty.as_tile() == Some(&wanted), "ir-operand-type", "the mask is `{ty}`, but must be `{wanted}`");
    Ok(())
}

fn updated(site: &Site<'_>, token: usize, tile: TileType) -> Rule {
    site.token(token)?;
    site.result_tile_is(0, &tile)?;
    site.result_is(1, &Type::Token)
}

pub(super) fn atomic(mode: AtomicMode, elem: Elem) -> Rule {
    let Some(dtype) = elem.num() else {
        return Err(Wrong { id: "ir-element-type", message: "pointers have no atomic updates".to_string() });
    };
    let right = match mode {
        AtomicMode::AddF | AtomicMode::MaxF | AtomicMode::MinF => {
            matches!(dtype, DType::F64 | DType::F32 | DType::F16 | DType::BF16 | DType::F8E4M3 | DType::F8E5M2)
        }
        AtomicMode::Xchg => dtype.bits() >= 8 && (dtype.is_integer() || dtype.is_float()),
        AtomicMode::And
        | AtomicMode::Or
        | AtomicMode::Xor
        | AtomicMode::Add
        | AtomicMode::Max
        | AtomicMode::Min
        | AtomicMode::UMax
        | AtomicMode::UMin => dtype.is_integer() && dtype.bits() >= 8,
    };
    ensure!(right, "ir-element-type", "`{elem}` has no atomic `{}`", mode.word());
    Ok(())
}
