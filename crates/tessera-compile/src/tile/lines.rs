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
//! A loop over rows may take those that begin alike, as one whose counter goes up by a multiple of the elements of a vector: a column is then the same
//! thread's in all rounds, and what is held of columns meanwhile, as a weight or sums over rows, lies as they do.
//!
//! Lines of no whole vectors are otherwise read and written element by element, by neighbouring threads: eight instructions for one. Which thread has which
//! column then depends on the row, which nobody can tell where nothing but reductions sees several columns at once ([`strips::of_rows`]). Arrays with other
//! lines, as one weight for all rows, are then read by two vectors each, and shifted: the pass wants no more of these than of the others (with a weight and a
//! bias, rows of 1001 to 8191 take 0.9 to 0.64 of the time). Places of maxima, where a mask chooses between pairs of numbers, took 1.6 times as long.

use rustc_hash::FxHashSet;
use tessera_ir::attrs::Overflow;
use tessera_ir::{Builder, Def, Extent, Func, Op, Reason, ScheduleOp, Sharing, Type, Value, bug};
use tessera_types::DType;
use tessera_types::room::row_part;

use super::numbers::{Numbers, apart};
use super::{narrow, strips};
use crate::facts::Facts;
use crate::rewrite::drop_dead;
use tessera_analysis::memory::is_written;
use tessera_analysis::modulo::{MODULUS, Residue};
use tessera_analysis::views::ViewFacts;

/// Bytes of the widest access.
const VECTOR_BYTES: u64 = 16;

/// An access to whole rows.
struct Access {
    /// Where a row begins, from its array's base on.
    corner: Residue,
    /// Bytes of an element.
    bytes: u64,
    /// How often it is done: once, or in the rounds of loops.
    weight: i32,
}

impl Access {
    /// Whether rows that begin here begin at whole vectors.
    fn is_aligned(&self, corner: &Residue, facts: &Facts) -> bool {
        (corner.divisor(facts) * self.bytes).is_multiple_of(VECTOR_BYTES)
    }
}

/// Columns of single rows that begin at vectors: what each row costs at its ends is more than shorter ones save, which single elements of neighbouring threads
/// take (rows of 131 to 601 in 16 bits: 2.5 to 1.17 times as long, of 1001 0.95; `results/users/odd-h200.txt`).
const LEAST: u64 = 768;

/// Columns of which threads have room for both vectors that have what begins elsewhere: of longer rows fewer arrays may. (A weight and a bias of 50,257
/// columns: 2.8 times as long, as registers are spilled.)
const ROOM: u64 = 16 * 1024;

/// Rounds that a loop over rows is taken to have.
const ROUNDS: i32 = 8;

/// Has the tiles of rows begin at whole vectors.
///
/// # Errors
/// Why they do not; what the function is then is of no use.
pub(super) fn align(func: &mut Func) -> Result<(), Reason> {
    let mut columns = strips::of_rows(func)?;
    if columns.count == 1 {
        return Err("rows of one column are no part of a vector".into());
    }
    let facts = Facts::of(func);
    let ops = columns.accesses(func);
    let once = &func.blocks[func.body].ops;
    let mut accesses = Vec::new();
    for &(op, view, axis) in &ops {
        let weight = if once.contains(&op) { 1 } else { ROUNDS };
        accesses.extend(row_access(func, &facts, op, view, (axis, weight))?);
    }
    if columns.count < LEAST && accesses.iter().all(|access| access.weight == 1) {
        return Err("rows are too short for what each costs at its ends".into());
    }
    let unaligned = accesses.iter().filter(|access| !access.is_aligned(&access.corner, &facts));
    // Of the first ones, of those that are done as often.
    let Some(often) = unaligned.rev().max_by_key(|access| access.weight) else {
        return Err("lines begin at whole vectors".into());
    };
    let narrowest = accesses.iter().map(|access| access.bytes).fold(often.bytes, u64::min);
    let (shift, modulus) = (often.corner.clone(), often.corner.modulus());
    if !(modulus * narrowest).is_multiple_of(VECTOR_BYTES) {
        return Err("the rows of a loop begin at different places".into());
    }
    let score = |access: &Access| {
        let after = access.is_aligned(&access.corner.clone().minus(&shift), &facts);
        let before = access.is_aligned(&access.corner, &facts);
        access.weight * (i32::from(after && !before) - i32::from(before && !after))
    };
    let least = if columns.count > ROOM { 1 } else { 0 };
    if accesses.iter().map(score).sum::<i32>() < least {
        return Err("more lines would no longer begin at whole vectors than would then".into());
    }
    let pairs = |op: &&Op| func.ops[**op].results.len() > 1 && once.contains(*op);
    if let Some(&op) = columns.reductions.iter().find(pairs) {
        return Err(Reason::at(
            "a reduction of several numbers an element is masked for longer than vectors save",
            func.ops[op].span,
        ));
    }
    let count = (columns.count + modulus - 1).next_multiple_of(modulus);
    let count = match func.hints.num_ctas.filter(|_| func.hints.shares() == Sharing::Cluster).map(u64::from) {
        Some(blocks) => blocks * row_part(count, blocks).ok_or("so many blocks do not share rows that are a vector longer")?,
        None => count,
    };
    let own = columns.count as i64;
    let beside: Vec<Op> =
        ops.iter().filter(|&&(op, view, axis)| lies_beside(func, op, view, axis, own)).map(|&(op, _, _)| op).collect();
    // What is read beside rows takes part in reductions, unless these are masked.
    let neutral = if beside.is_empty() { narrow::neutral(func, &columns) } else { Vec::new() };
    let shift = begin(func, &shift, columns.first(func))?;
    columns.pad(func, count, Some(shift), &neutral)?;
    beside.into_iter().for_each(|op| read_beside(func, op, own));
    drop_dead(func);
    Ok(())
}

/// Whether other rows of its array, which nobody writes, lie beside a row that is loaded, and how long these are is known.
fn lies_beside(func: &Func, op: Op, view: Value, axis: usize, columns: i64) -> bool {
    if !matches!(func.ops[op].kind.schedule(), Some(ScheduleOp::LoadViewTko { .. })) {
        return false;
    }
    let Type::TileView(ty) = func.ty(view) else { bug!("tiles of what is no view") };
    if axis != 1 || ty.tile.len() != 2 || ty.tensor.strides.len() != 2 || is_written(func, op) {
        return false;
    }
    let [row, column] = [0, 1].map(|axis| ty.dim_map[axis] as usize);
    ty.tensor.strides[row] == Extent::Static(columns) && ty.tensor.shape[column] == Extent::Static(columns)
}

/// Has a load of a whole row read what [`lies_beside`] it, too, in whole vectors: nothing is done with what comes from there, and only at the array's ends
/// elements are read one by one.
fn read_beside(func: &mut Func, op: Op, columns: i64) {
    let data = func.ops[op].clone();
    let Type::TileView(ty) = func.ty(data.one(0)).clone() else { bug!("tiles of what is no view") };
    let tensor = func.defining_op(data.one(0)).and_then(|maker| func.defining_op(func.ops[maker].one(0)));
    let made = tensor.map(|op| func.ops[op].clone()).unwrap_or_else(|| bug!("an array that is handed in"));
    let [row, column] = [0, 1].map(|axis| ty.dim_map[axis] as usize);
    let mut flat = (*ty).clone();
    flat.tensor.shape[row] = Extent::Static(1);
    flat.tensor.shape[column] = Extent::Dynamic;
    flat.tensor.strides[row] = Extent::Static(MODULUS as i64);
    let (ops, [view, zero, start]) = apart(func, data.span, |b| {
        let rows = match ty.tensor.shape[row] {
            Extent::Static(rows) => b.number(rows),
            Extent::Dynamic => made.group(1)[0],
        };
        let like = |b: &mut Builder<'_>, value: Value| match b.func.ty(rows).num() {
            Some(DType::I64) => b.wide(value),
            _ => short(b, value),
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
    let block = func.block_of(op);
    let place = func.blocks[block].place_of(op);
    func.blocks[block].ops.splice(place..place, ops);
    let operands = &mut func.ops[op].operands;
    let index = data.segments[0] as usize;
    (operands[0], operands[index], operands[index + 1]) = (view, zero, start);
}

/// What is known of an access to rows; `None` where columns are no neighbours in memory.
fn row_access(func: &Func, facts: &Facts, op: Op, view: Value, (axis, weight): (usize, i32)) -> Result<Option<Access>, Reason> {
    let Type::TileView(ty) = func.ty(view) else { bug!("tiles of what is no view") };
    let dim = ty.dim_map[axis] as usize;
    if ty.tensor.strides[dim] != Extent::Static(1) || ty.tensor.elem.bits() < 8 {
        return Ok(None);
    }
    if (0..ty.tile.len()).any(|other| other != axis && ty.tile[other] != 1) {
        return Err(Reason::at("several rows that lie side by side begin at different places", func.ops[op].span));
    }
    let known = ViewFacts::of(func, facts, view, ty);
    let corner = known.corner(func, facts, ty, index(func, op)).filter(|_| known.align.is_multiple_of(VECTOR_BYTES));
    let corner = corner.ok_or_else(|| Reason::at("it is not known where an array begins", func.ops[op].span))?;
    Ok(Some(Access { corner, bytes: u64::from(ty.tensor.elem.bits()) / 8, weight }))
}

/// The index of an access through a view.
fn index(func: &Func, op: Op) -> &[Value] {
    let stores = matches!(func.ops[op].kind.schedule(), Some(ScheduleOp::StoreViewTko { .. }));
    func.ops[op].group(if stores { 2 } else { 1 })
}

/// Elements between the last whole vector before a row and the row, computed in front of an operation of the function's body.
fn begin(func: &mut Func, corner: &Residue, before: Op) -> Result<Value, Reason> {
    let (body, span) = (func.body, func.ops[before].span);
    let place = func.blocks[body].place_of(before);
    let early: FxHashSet<Op> = func.blocks[body].ops[..place].iter().copied().collect();
    let is_known = |value: &Value| match func.values[*value].def {
        Def::Result(op, _) => early.contains(&op),
        Def::Argument(block, _) => block == body,
    };
    // What only asks which block this is may do so earlier.
    let asks = |op: &Op| matches!(func.ops[*op].kind.schedule(), Some(ScheduleOp::GetTileBlockId { .. }));
    let mut asked: Vec<Op> = Vec::new();
    for value in corner.terms().flat_map(|(factors, _)| factors).filter(|value| !is_known(value)) {
        let op = func.defining_op(*value).filter(|op| asks(op) && func.blocks[body].ops.contains(op));
        let op = op.ok_or_else(|| Reason::at("where rows begin is found out behind their first use", span))?;
        if !asked.contains(&op) {
            asked.push(op);
        }
    }
    let (ops, shift) = apart(func, span, |b| {
        let mut all = b.number(0);
        for (factors, times) in corner.terms() {
            let times = (times > 1 || factors.is_empty()).then(|| b.number(times as i64));
            let factors: Vec<Value> = factors.iter().map(|&factor| short(b, factor)).collect();
            let product = times.into_iter().chain(factors).reduce(|l, r| b.times(l, r));
            all = product.map_or(all, |product| b.plus(all, product));
        }
        let most = b.number(corner.modulus() as i64);
        b.modulo(all, most)
    });
    let own = &mut func.blocks[body].ops;
    own.retain(|op| !asked.contains(op));
    own.splice(place..place, asked.into_iter().chain(ops));
    Ok(shift)
}

/// The low bits of an integer, of which the last ones count.
fn short(b: &mut Builder<'_>, value: Value) -> Value {
    match b.func.ty(value).num() {
        Some(DType::I32) => value,
        _ => b.value(ScheduleOp::TruncI { overflow: Overflow::Wraps }, &[&[value]], Type::scalar(DType::I32)),
    }
}
