//! Rows whose lines begin anywhere, taken from where a whole vector begins.
//!
//! ```text
//! memory     |.......|.......|.......|.......|      vectors
//! row i         |-- 5121 columns --|                begins %s elements behind one
//! tile       |--|------------------|-----|          of 5136: what lies beside the row is not read, not reduced and not stored
//!
//! %o = muli %i, 5121 ; %s = remi %o, 16
//! %v = load %x, [%i, 0 - %s] : tile<1x5136xbf16>    at a multiple of 16 elements, whatever %i is
//! ```
//!
//! Lines of no whole vectors are otherwise read and written element by element: eight instructions for one. Which thread has which column then depends on
//! the row, which nobody can tell where nothing but reductions sees several columns at once ([`strips::of_rows`]). Arrays with other lines, as one weight
//! for all rows, are then read by two vectors each, and shifted: the pass wants fewer of these than of the others (with a weight and a bias, rows of 8191
//! took 1.3 times as long). Places of maxima, where a mask chooses between pairs of numbers, took 1.6 times as long.

use tessera_ir::attrs::Overflow;
use tessera_ir::{Extent, Func, Op, Reason, ScheduleOp, Sharing, TileViewType, Type, Value, bug};
use tessera_types::DType;
use tessera_types::room::row_part;

use super::numbers::{Numbers, apart};
use super::strips;
use crate::facts::Facts;
use crate::rewrite::drop_dead;
use tessera_analysis::memory::is_written;
use tessera_analysis::modulo::{MODULUS, Residue};
use tessera_analysis::views::ViewFacts;

/// Bytes of the widest access.
const VECTOR_BYTES: u64 = 16;

/// An access to whole rows.
struct Access {
    view: Value,
    /// Where a row begins, from its array's base on.
    corner: Residue,
    /// Bytes of an element.
    bytes: u64,
    /// What is beside the row's index: the axis of its columns.
    axis: usize,
    index: Vec<Value>,
    /// Strides of the array that are known at launch.
    strides: Vec<Option<Value>>,
}

impl Access {
    /// Whether rows that begin here begin at whole vectors.
    fn is_aligned(&self, corner: &Residue, facts: &Facts) -> bool {
        (corner.divisor(facts) * self.bytes).is_multiple_of(VECTOR_BYTES)
    }
}

/// Has the tiles of rows begin at whole vectors.
///
/// # Errors
/// Why they do not; what the function is then is of no use.
pub(super) fn align(func: &mut Func) -> Result<(), Reason> {
    let mut columns = strips::of_rows(func)?;
    let facts = Facts::of(func);
    let ops = columns.accesses(func);
    let mut accesses = Vec::new();
    for &(op, view, axis) in &ops {
        accesses.extend(row_access(func, &facts, op, view, axis)?);
    }
    let Some(first) = accesses.iter().position(|access| !access.is_aligned(&access.corner, &facts)) else {
        return Err("lines begin at whole vectors".into());
    };
    let shift = accesses[first].corner.clone();
    let score = |access: &Access| {
        let after = access.is_aligned(&access.corner.clone().minus(&shift), &facts);
        i32::from(after) - i32::from(access.is_aligned(&access.corner, &facts))
    };
    if accesses.iter().map(score).sum::<i32>() <= 0 {
        return Err("as many lines would no longer begin at whole vectors as would then".into());
    }
    if let Some(&op) = columns.reductions.iter().find(|op| func.ops[**op].results.len() > 1) {
        return Err(Reason::at(
            "a reduction of several numbers an element is masked for longer than vectors save",
            func.ops[op].span,
        ));
    }
    let count = (columns.count + MODULUS - 1).next_multiple_of(MODULUS);
    let count = match func.hints.num_ctas.filter(|_| func.hints.shares() == Sharing::Cluster).map(u64::from) {
        Some(blocks) => blocks * row_part(count, blocks).ok_or("so many blocks do not share rows that are a vector longer")?,
        None => count,
    };
    let shift = begin(func, &accesses[first], columns.first(func))?;
    let own = columns.count;
    columns.pad(func, count, Some(shift))?;
    for (op, _, axis) in ops {
        read_beside(func, op, axis, own as i64);
    }
    drop_dead(func);
    Ok(())
}

/// Has a load of a whole row read what lies beside it in whole vectors, where those are of other rows of an array that nobody writes: nothing is done with
/// what comes from there, and only at the array's ends elements are read one by one.
fn read_beside(func: &mut Func, op: Op, axis: usize, columns: i64) {
    let data = func.ops[op].clone();
    let Some(ScheduleOp::LoadViewTko { .. }) = data.kind.schedule() else { return };
    let Type::TileView(ty) = func.ty(data.one(0)).clone() else { bug!("tiles of what is no view") };
    let tensor = func.defining_op(data.one(0)).and_then(|maker| func.defining_op(func.ops[maker].one(0)));
    let Some(made) = tensor.map(|op| func.ops[op].clone()) else { return };
    let [row, column] = match axis {
        1 if ty.tile.len() == 2 && ty.tensor.strides.len() == 2 => [0, 1].map(|axis| ty.dim_map[axis] as usize),
        _ => return,
    };
    let contiguous = ty.tensor.strides[row] == Extent::Static(columns) && ty.tensor.shape[column] == Extent::Static(columns);
    if !contiguous || is_written(func, op) {
        return;
    }
    let mut flat = (*ty).clone();
    flat.tensor.shape[row] = Extent::Static(1);
    flat.tensor.shape[column] = Extent::Dynamic;
    flat.tensor.strides[row] = Extent::Static(MODULUS as i64);
    let (ops, [view, zero, start]) = apart(func, data.span, |b| {
        let rows = match ty.tensor.shape[row] {
            Extent::Static(rows) => b.number(rows),
            Extent::Dynamic => made.group(1)[0],
        };
        let like = |b: &mut tessera_ir::Builder<'_>, value: Value| match b.func.ty(rows).num() {
            Some(DType::I64) => b.wide(value),
            _ => narrow(b, value),
        };
        let index = [data.group(1)[0], data.group(1)[1]].map(|value| like(b, value));
        let columns = b.number(columns);
        let columns = like(b, columns);
        let total = b.times(rows, columns);
        let first = b.times(index[0], columns);
        let start = b.plus(first, index[1]);
        let array = Type::TensorView(Box::new(flat.tensor.clone()));
        let array = b.value(ScheduleOp::MakeTensorView {}, &[&[made.one(0)], &[total], &[]], array);
        let view = b.value(ScheduleOp::MakeStridedView {}, &[&[array]], Type::TileView(Box::new(flat.clone())));
        [view, b.number(0), start]
    });
    let body = func.body;
    let place =
        func.blocks[body].ops.iter().position(|&other| other == op).unwrap_or_else(|| bug!("a load that stands elsewhere"));
    func.blocks[body].ops.splice(place..place, ops);
    let operands = &mut func.ops[op].operands;
    let index = data.segments[0] as usize;
    (operands[0], operands[index], operands[index + 1]) = (view, zero, start);
}

/// What is known of an access to rows; `None` where columns are no neighbours in memory.
fn row_access(func: &Func, facts: &Facts, op: Op, view: Value, axis: usize) -> Result<Option<Access>, Reason> {
    let Type::TileView(ty) = func.ty(view) else { bug!("tiles of what is no view") };
    let dim = ty.dim_map[axis] as usize;
    if ty.tensor.strides[dim] != Extent::Static(1) || ty.tensor.elem.bits() < 8 {
        return Ok(None);
    }
    if (0..ty.tile.len()).any(|other| other != axis && ty.tile[other] != 1) {
        return Err(Reason::at("several rows that lie side by side begin at different places", func.ops[op].span));
    }
    let known = ViewFacts::of(func, facts, view, ty);
    let (index, strides) = (index(func, op), strides(func, view, ty));
    let corner = known.corner(func, ty, &index).filter(|_| known.align.is_multiple_of(VECTOR_BYTES));
    let found = corner.zip(strides).ok_or_else(|| Reason::at("it is not known where an array begins", func.ops[op].span));
    let (corner, strides) = found?;
    Ok(Some(Access { view, corner, bytes: u64::from(ty.tensor.elem.bits()) / 8, axis, index, strides }))
}

/// The index of an access through a view.
fn index(func: &Func, op: Op) -> Vec<Value> {
    let stores = matches!(func.ops[op].kind.schedule(), Some(ScheduleOp::StoreViewTko { .. }));
    func.ops[op].group(if stores { 2 } else { 1 }).to_vec()
}

/// Elements between the last whole vector before a row and the row, computed in front of an operation.
fn begin(func: &mut Func, access: &Access, before: Op) -> Result<Value, Reason> {
    let Type::TileView(ty) = func.ty(access.view).clone() else { bug!("tiles of what is no view") };
    let strides = &access.strides;
    let body = func.body;
    let place =
        func.blocks[body].ops.iter().position(|&op| op == before).unwrap_or_else(|| bug!("an access that stands elsewhere"));
    let behind = func.blocks[body].ops.split_off(place);
    let needed = access.index.iter().chain(strides.iter().flatten());
    let late = needed.filter_map(|&value| func.defining_op(value)).any(|op| behind.contains(&op));
    let (ops, shift) = apart(func, func.ops[before].span, |b| {
        let mut all = b.number(0);
        for (position, &index) in access.index.iter().enumerate().filter(|&(position, _)| position != access.axis) {
            let dim = ty.dim_map[position] as usize;
            let stride = match (strides[dim], ty.tensor.strides[dim]) {
                (Some(stride), _) => narrow(b, stride),
                (None, Extent::Static(stride)) => b.number(stride.rem_euclid(MODULUS as i64)),
                (None, Extent::Dynamic) => bug!("a stride that nobody gives"),
            };
            let index = narrow(b, index);
            let part = b.times(index, stride);
            all = b.plus(all, part);
        }
        let most = b.number(MODULUS as i64);
        b.modulo(all, most)
    });
    func.blocks[body].ops.extend(ops);
    func.blocks[body].ops.extend(behind);
    if late { Err(Reason::at("where rows begin is found out behind their first use", func.ops[before].span)) } else { Ok(shift) }
}

/// The strides of a view's array that are known at launch; `None` where nothing says how it lies.
fn strides(func: &Func, view: Value, ty: &TileViewType) -> Option<Vec<Option<Value>>> {
    let tensor = func.defining_op(func.ops[func.defining_op(view)?].one(0))?;
    let Some(ScheduleOp::MakeTensorView {}) = func.ops[tensor].kind.schedule() else { return None };
    let mut given = func.ops[tensor].group(2).iter().copied();
    Some(ty.tensor.strides.iter().map(|stride| if *stride == Extent::Dynamic { given.next() } else { None }).collect())
}

/// The low bits of an integer, of which the last ones count.
fn narrow(b: &mut tessera_ir::Builder<'_>, value: Value) -> Value {
    match b.func.ty(value).num() {
        Some(DType::I32) => value,
        _ => b.value(ScheduleOp::TruncI { overflow: Overflow::Wraps }, &[&[value]], Type::scalar(DType::I32)),
    }
}
