//! Which types can exist, what a function's arguments must be for its ABI, and what a global is.

use tessera_types::{DType, NumberClass};

use crate::abi::ParamKind;
use crate::constant::{Const, ConstData};
use crate::diag::Diagnostic;
use crate::func::{Func, Level, Module, Sharing};
use crate::types::{
    Axis, Elem, Extent, Padding, Shape, SharedType, Swizzle, TensorType, TensorViewType, TileType, TileViewType, Type, ViewKind,
};
use crate::verify::{Rule, ensure};

/// More elements than this are no tile.
const MAX_ELEMENTS: u64 = 1 << 26;
/// More axes than this are no shape.
const MAX_RANK: usize = 12;
/// Static sizes and strides beyond this could overflow address arithmetic.
const MAX_EXTENT: i64 = 1 << 40;

/// Whether a value of this type can exist in a function of this level.
pub(crate) fn check(ty: &Type, level: Level) -> Rule {
    let fits = match ty {
        Type::Tile(tile) => matches!(level, Level::Schedule | Level::Staged) || tile.shape.is_empty(),
        Type::TensorView(_) | Type::TileView(_) | Type::Token => level != Level::Graph,
        Type::Tensor(_) | Type::Operand(_) => level == Level::Graph,
        Type::Distributed(_) | Type::InFlight(_) | Type::Registers(_) => level == Level::Tile,
        Type::Shared(_) | Type::Ring(_) | Type::Cursor => matches!(level, Level::Staged | Level::Tile),
    };
    ensure!(fits, "ir-level", "`{ty}` cannot stand in a {} function", level.word());
    match ty {
        Type::Tile(tile) => whole_tile(ty, tile),
        Type::TensorView(view) => tensor_view(view),
        Type::TileView(view) => tile_view(ty, view),
        Type::Token | Type::Cursor => Ok(()),
        Type::Tensor(tensor) | Type::Operand(tensor) => whole(tensor),
        Type::Distributed(distributed) | Type::InFlight(distributed) => {
            let (tile, layout) = (&distributed.tile, &distributed.layout);
            whole_tile(ty, tile)?;
            ensure!(!tile.shape.is_empty(), "ir-layout", "a scalar has no layout");
            let same = tile.shape.iter().map(|&extent| u64::from(extent)).eq(layout.shape().iter().copied());
            ensure!(same, "ir-layout", "the layout of `{ty}` is one for extents {:?}", layout.shape());
            Ok(())
        }
        Type::Shared(shared) => shared_buffer(ty, shared),
        Type::Registers(tile) => {
            whole_tile(ty, tile)?;
            ensure!(!tile.shape.is_empty(), "ir-shape", "an array of registers has at least one axis");
            ensure!(tile.elem.num().is_some(), "ir-element-type", "`{ty}` must hold numbers");
            Ok(())
        }
        Type::Ring(ring) => {
            // Slots that hold nothing say who may go on.
            ensure!(ring.stages > 0, "ir-extent", "`{ty}` needs a slot");
            ring.slots.iter().try_for_each(|slot| shared_buffer(ty, slot))
        }
    }
}

fn whole_tile(ty: &Type, tile: &TileType) -> Rule {
    extents(ty, &tile.shape)?;
    match tile.elem {
        Elem::Num(dtype) | Elem::Ptr(dtype) => signless(dtype),
    }
}

fn shared_buffer(ty: &Type, shared: &SharedType) -> Rule {
    extents(ty, &shared.shape)?;
    signless(shared.elem)?;
    ensure!(shared.elem.bits() >= 8, "ir-element-type", "`{ty}`: a shared element takes at least a byte");
    let mut seen = [false; MAX_RANK];
    let rank = shared.shape.len();
    let permutes = shared.order.len() == rank
        && shared.order.iter().all(|&axis| (axis as usize) < rank && !std::mem::replace(&mut seen[axis as usize], true));
    ensure!(permutes, "ir-shape", "`{ty}`: `order` does not name each axis once");
    let Swizzle { bits, base, shift } = shared.swizzle;
    let right = bits == 0 || (shift >= bits && [bits, base, shift].iter().all(|&part| part <= 10));
    ensure!(right, "ir-attribute", "`{ty}`: the swizzle's shift must be at least its bits, and none of the three more than 10");
    ensure!(shared.pad <= 1 << 16, "ir-extent", "`{ty}` has too much padding");
    Ok(())
}

fn signless(dtype: DType) -> Rule {
    let unsigned = dtype.class() == NumberClass::Unsigned;
    ensure!(!unsigned, "ir-element-type", "integers are signless here: `{}` can only stand in an ABI", dtype.name());
    Ok(())
}

fn extents(ty: &Type, shape: &[u32]) -> Rule {
    ensure!(shape.len() <= MAX_RANK, "ir-extent", "`{ty}` has more than {MAX_RANK} axes");
    ensure!(shape.iter().all(|&extent| extent > 0), "ir-extent", "`{ty}` has an extent of zero");
    let count = shape.iter().try_fold(1u64, |count, &extent| count.checked_mul(u64::from(extent)));
    ensure!(count.is_some_and(|count| count <= MAX_ELEMENTS), "ir-extent", "`{ty}` has more than {MAX_ELEMENTS} elements");
    Ok(())
}

fn tensor_view(view: &TensorViewType) -> Rule {
    signless(view.elem)?;
    ensure!(view.shape.len() == view.strides.len(), "ir-extent", "`{view}` needs one stride an axis");
    ensure!(view.shape.len() <= MAX_RANK, "ir-extent", "`{view}` has more than {MAX_RANK} axes");
    let fits = |extent: &Extent, least: i64| match extent {
        Extent::Static(value) => (least..=MAX_EXTENT).contains(value),
        Extent::Dynamic => true,
    };
    ensure!(view.shape.iter().all(|e| fits(e, 0)), "ir-extent", "`{view}` has a size out of range");
    ensure!(view.strides.iter().all(|e| fits(e, -MAX_EXTENT)), "ir-extent", "`{view}` has a stride out of range");
    Ok(())
}

fn tile_view(ty: &Type, view: &TileViewType) -> Rule {
    tensor_view(&view.tensor)?;
    extents(ty, &view.tile)?;
    let rank = view.tensor.shape.len();
    ensure!(view.tile.len() == rank, "ir-shape", "`{ty}`: the tile has {} axes, the array {rank}", view.tile.len());
    let mut seen = [false; MAX_RANK];
    let permutes = view.dim_map.len() == rank
        && view.dim_map.iter().all(|&axis| (axis as usize) < rank && !std::mem::replace(&mut seen[axis as usize], true));
    ensure!(permutes, "ir-shape", "`{ty}`: `dim_map` does not name each array axis once");
    match &view.kind {
        ViewKind::Partition => {}
        ViewKind::Strided(steps) => {
            let right = steps.len() == rank && steps.iter().all(|&step| step > 0);
            ensure!(right, "ir-shape", "`{ty}`: one positive step an axis is needed");
        }
        ViewKind::GatherScatter { axis } => {
            ensure!((*axis as usize) < rank, "ir-shape", "`{ty}`: there is no axis {axis}");
            let identity = view.dim_map.iter().enumerate().all(|(i, &axis)| i == axis as usize);
            ensure!(identity, "ir-shape", "`{ty}`: a gather view cannot permute axes");
        }
    }
    let float_only = !matches!(view.padding, Padding::Undetermined | Padding::Zero);
    ensure!(
        !float_only || view.tensor.elem.is_float(),
        "ir-attribute",
        "`{ty}`: padding `{}` needs a float element type",
        view.padding.word()
    );
    Ok(())
}

fn whole(tensor: &TensorType) -> Rule {
    signless(tensor.elem)?;
    ensure!(tensor.axes.len() <= MAX_RANK, "ir-extent", "`{tensor}` has more than {MAX_RANK} axes");
    ensure!(!tensor.axes.contains(&Axis::Fixed(0)), "ir-extent", "`{tensor}` has an extent of zero");
    Ok(())
}

/// A constant fits `count` elements.
pub(crate) fn constant(value: &Const, count: usize) -> Rule {
    signless(value.dtype)?;
    if let ConstData::Dense(items) = &value.data {
        ensure!(items.len() == count, "ir-shape", "{} elements are given where {count} are needed", items.len());
    }
    Ok(())
}

/// Checks the module's constants.
pub(crate) fn globals(module: &Module) -> Vec<Diagnostic> {
    let mut found = Vec::new();
    for (i, global) in module.globals.iter().enumerate() {
        let ty = Type::tile(global.shape.clone(), global.value.dtype);
        let result = check(&ty, Level::Schedule).and_then(|()| constant(&global.value, ty.as_tile().map_or(0, |t| t.len())));
        if let Err(wrong) = result {
            found.push(Diagnostic::bare(wrong.id, format!("`@{}`: {}", global.name, wrong.message)));
        }
        if module.globals[..i].iter().any(|earlier| earlier.name == global.name) {
            found.push(Diagnostic::bare("ir-duplicate", format!("`@{}` is defined twice", global.name)));
        }
    }
    found
}

/// Checks a function's arguments against its ABI.
pub(crate) fn signature(func: &Func) -> Vec<Diagnostic> {
    match arguments(func).and_then(|()| threads(func)).and_then(|()| sharing(func)) {
        Ok(()) => Vec::new(),
        Err(wrong) => vec![Diagnostic::error(wrong.id, func.span, format!("`@{}`: {}", func.name, wrong.message))],
    }
}

/// A Tile function states how many warps run it.
fn threads(func: &Func) -> Rule {
    let right =
        !matches!(func.level, Level::Staged | Level::Tile) || func.hints.num_warps.is_some_and(|warps| (1..=32).contains(&warps));
    ensure!(right, "ir-hint", "a tile function needs `hints(num_warps=...)` of 1 to 32");
    let Some(threads) = func.hints.num_threads else { return Ok(()) };
    let warps = func.hints.num_warps.unwrap_or(0);
    let right = func.level == Level::Tile && threads.div_ceil(32) == warps;
    ensure!(right, "ir-hint", "`num_threads` is for tile functions, and {threads} threads are not {warps} warps");
    Ok(())
}

/// What blocks are asked to share is one of the things that there are.
fn sharing(func: &Func) -> Rule {
    let Some(number) = func.hints.sharing else { return Ok(()) };
    ensure!(
        (number as usize) < Sharing::ALL.len(),
        "ir-hint",
        "`sharing` is one of 0 to {}, not {number}",
        Sharing::ALL.len() - 1
    );
    Ok(())
}

fn arguments(func: &Func) -> Rule {
    let mut args = func.args().iter();
    for &arg in func.args() {
        check(func.ty(arg), func.level)?;
    }
    for param in &func.abi.params {
        let name = &param.name;
        let mut wanted: Vec<Type> = Vec::new();
        match &param.kind {
            ParamKind::Array { dtype, shape, strides, index, align, lines, .. } => {
                ensure!(shape.len() == strides.len(), "ir-abi", "`{name}` needs one stride an axis");
                ensure!(align.is_power_of_two(), "ir-abi", "`{name}`: the alignment {align} is not a power of two");
                ensure!(
                    lines.is_power_of_two(),
                    "ir-abi",
                    "`{name}`: {lines}, which lines are multiples of, is not a power of two"
                );
                wanted.push(Type::pointers(Shape::new(), dtype.signless()));
                wanted.extend(std::iter::repeat_n(Type::scalar(index.dtype()), 2 * shape.len()));
            }
            ParamKind::List { index, rank, .. } => {
                ensure!(*rank as usize <= MAX_RANK, "ir-abi", "`{name}` has more than {MAX_RANK} axes");
                wanted.push(Type::pointers(Shape::new(), DType::I64));
                wanted.push(Type::scalar(index.dtype()));
            }
            ParamKind::Scalar { dtype } => wanted.push(Type::scalar(dtype.signless())),
            ParamKind::Operand { dtype, axes } => {
                ensure!(func.level == Level::Graph, "ir-abi", "`{name}`: an operand needs a graph function");
                let axes = axes.iter().map(|axis| match axis.parse() {
                    Ok(extent) => Axis::Fixed(extent),
                    Err(_) => Axis::Symbol(axis.clone()),
                });
                wanted.push(Type::Operand(Box::new(TensorType { axes: axes.collect(), elem: dtype.signless() })));
            }
        }
        for wanted in wanted {
            let Some(&arg) = args.next() else {
                ensure!(false, "ir-abi", "there is no argument for `{name}`");
                return Ok(());
            };
            let found = func.ty(arg);
            ensure!(*found == wanted, "ir-abi", "an argument of `{name}` is `{found}`, but `{wanted}` is wanted");
        }
    }
    ensure!(args.len() == 0, "ir-abi", "{} arguments belong to no parameter", args.len());
    Ok(())
}
