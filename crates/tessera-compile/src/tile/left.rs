//! Sums that a block leaves for another one, in the order in which threads hold them.
//!
//! Fragments of a product give a thread two neighbours in each of two rows of eight: stored as a matrix lies, an instruction of a warp touches a
//! sector of each of eight lines, and as many lines of the cache are kept for it until they come. Nobody but the threads of another block reads
//! what is left, by the same layout. So it lies as it is held: four numbers a thread, threads beside each other.
//!
//! ```text
//! 128x256 -> 8x2x8 x 32x4x2   groups of 16 rows, halves, rows; groups of 8 columns, pairs, columns
//!         -> 8x32 x 8x4 x 2x2  groups of rows and columns; rows and pairs: the lanes; halves and columns: a thread's numbers
//!         -> 8x32x32x4
//! ```

use std::sync::Arc;

use tessera_ir::{Builder, Func, Op, OpKind, ScheduleOp, Shape, TileType, Type, Value};
use tessera_layout::Distribution;

use super::relation::Layout;
use tessera_analysis::memory;

/// Rows and columns of a fragment.
const FRAGMENT: [u32; 2] = [16, 8];
/// Where axes of the parts of a matrix go.
const ORDER: [usize; 6] = [0, 3, 2, 4, 1, 5];
/// The same back.
const BACK: [usize; 6] = [0, 4, 2, 1, 3, 5];

/// A matrix of whole fragments as it is left.
pub(super) struct Left {
    /// Axes of its parts.
    parts: [u32; 6],
    /// Axes that it has in memory.
    shape: [u32; 4],
}

impl Left {
    /// How sums of a shape are left; other sums lie as they are.
    pub(super) fn of(shape: &[u32]) -> Option<Left> {
        let &[rows, columns] = shape else { return None };
        let whole = |(extent, part): (u32, u32)| extent.is_power_of_two() && extent >= part;
        [(rows, FRAGMENT[0]), (columns, FRAGMENT[1])].into_iter().all(whole).then(|| {
            let [down, across] = [rows / FRAGMENT[0], columns / FRAGMENT[1]];
            Left { parts: [down, 2, 8, across, 4, 2], shape: [down, across, 32, 4] }
        })
    }

    /// The shape in memory of sums of a shape.
    pub(super) fn shape_of(shape: &[u32]) -> Shape {
        Left::of(shape).map_or_else(|| shape.into(), |left| left.shape.as_slice().into())
    }

    /// Sums in the shape that they have in memory.
    pub(super) fn leave(b: &mut Builder<'_>, sum: Value) -> Value {
        let tile = b.func.ty(sum).the_tile().clone();
        let Some(left) = Left::of(&tile.shape) else { return sum };
        let parts = shown(b, sum, &left.parts);
        let parts = turned(b, parts, ORDER);
        shown(b, parts, &left.shape)
    }

    /// Sums like others, from what was left of them.
    pub(super) fn take(b: &mut Builder<'_>, loaded: Value, like: Value) -> Value {
        let tile = b.func.ty(like).the_tile().clone();
        let Some(left) = Left::of(&tile.shape) else { return loaded };
        let turned_parts = ORDER.map(|axis| left.parts[axis]);
        let parts = shown(b, loaded, &turned_parts);
        let parts = turned(b, parts, BACK);
        shown(b, parts, &tile.shape)
    }

    /// The layout in which sums are loaded that have one.
    pub(super) fn layout(sums: &Layout) -> Option<Layout> {
        let shape: Vec<u32> = sums.shape().iter().map(|&extent| u32::try_from(extent).ok()).collect::<Option<_>>()?;
        let Some(left) = Left::of(&shape) else { return Some(sums.clone()) };
        let reshaped = |layout: &Distribution, shape: &[u32]| {
            let shape: Vec<u64> = shape.iter().map(|&extent| u64::from(extent)).collect();
            layout.reshape(&shape).ok()
        };
        let parts = reshaped(sums, &left.parts)?.permute(&ORDER).ok()?;
        reshaped(&parts, &left.shape).map(Arc::new)
    }
}

/// The operation reads or writes what blocks leave for each other.
pub(super) fn leads_to_workspace(func: &Func, op: Op) -> bool {
    let view = func.ops[op].operands.iter().copied().find(|&value| matches!(func.ty(value), Type::TileView(_)));
    view.is_some_and(|view| matches!(memory::root(func, view), memory::Root::Workspace(_)))
}

/// The axes that a permutation turns are parts of sums that are left or were: each thread keeps what it holds.
pub(super) fn turns(func: &Func, permute: Op) -> bool {
    let reshapes = |op: Op| matches!(func.ops[op].kind, OpKind::Schedule(ScheduleOp::Reshape {}));
    let before = |value: Value| func.defining_op(value);
    let (from, to) = (func.ops[permute].one(0), func.ops[permute].result());
    let loaded = before(from).filter(|&op| reshapes(op)).and_then(|op| before(func.ops[op].one(0)));
    if loaded.is_some_and(|op| leads_to_workspace(func, op)) {
        return true;
    }
    let stores = |op: Op| {
        let stored = func.ops[op].operands.iter().filter_map(|&value| before(value)).find(|&op| reshapes(op));
        stored.is_some_and(|op| func.ops[op].one(0) == to) && leads_to_workspace(func, op)
    };
    func.linked_ops().into_iter().any(stores)
}

fn shown(b: &mut Builder<'_>, value: Value, shape: &[u32]) -> Value {
    let tile = TileType { shape: shape.into(), elem: b.func.ty(value).the_tile().elem };
    b.value(ScheduleOp::Reshape {}, &[&[value]], Type::Tile(tile))
}

fn turned(b: &mut Builder<'_>, value: Value, order: [usize; 6]) -> Value {
    let tile = b.func.ty(value).the_tile();
    let tile = TileType { shape: order.iter().map(|&axis| tile.shape[axis]).collect(), elem: tile.elem };
    let permutation = order.map(|axis| axis as u32).into_iter().collect();
    b.value(ScheduleOp::Permute { permutation }, &[&[value]], Type::Tile(tile))
}
