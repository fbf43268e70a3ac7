//! The columns of rows that a block reduces: the axis that all its reductions run along, of which each of several blocks can have a part.
//!
//! ```text
//! %v = load %x, [%i, %zero] : tile<1x8192xf32>           %v = load %x, [%i, %rank] : tile<1x2048xf32>
//! %s = reduce [%v] {dim=1} : tile<1xf32>                 %s = reduce [%v] {dim=1} : tile<1xf32>     of a part
//! %d = subf %v, broadcast %s                             %d = subf %v, broadcast %s
//! ```
//!
//! What becomes of the results of parts is the caller's. Where columns do not divide into parts, all tiles are made wider first ([`Columns::pad`]):
//! what lies behind a row is read as padding, takes no part in a reduction but where that changes nothing, and is not stored, whatever the array has there.
//!
//! Several rows may lie side by side, whose reductions leave several numbers. Columns may be joined or parted, as vectors are and their elements: what is
//! cut then is the slowest axis of these. What a function stores of all columns together, as a row's sum, is no part of it, and is the caller's, too.
//!
//! Invariant: a function that has columns goes one way, in loops that count, and nothing in it needs all of them at once but reductions.

use rustc_hash::{FxHashMap, FxHashSet};
use smallvec::SmallVec;
use tessera_ir::attrs::{Overflow, Predicate, ReduceOrder, Signedness};
use tessera_ir::{
    Builder, Const, Extent, Func, Op, OpKind, Padding, Reason, ScheduleOp, Shape, TileType, TileViewType, Type, Value, ViewKind,
    bug,
};
use tessera_types::DType;
use tessera_types::room::ROW_COLUMNS;

use super::axes::{Axes, Class, Reductions, rank};
use super::plan::{Plan, done_once, view_and_tile};
use super::{Cutter, Strips, all_ops, put_ahead};
use crate::tile::numbers::{Numbers, apart};
use crate::tile::relation::shape;
use tessera_analysis::memory::access;

/// The most numbers that a reduction leaves, which blocks give each other.
const NUMBERS: usize = 16;

/// The columns of a function.
pub(in crate::tile) struct Columns {
    /// How many a row has.
    pub(in crate::tile) count: u64,
    /// What reduces them, in order.
    pub(in crate::tile) reductions: Vec<Op>,
    /// What is stored of all columns together, in order: no part of a row.
    pub(in crate::tile) once: Vec<Op>,
}

/// The columns of the rows that a function reduces.
///
/// # Errors
/// Why they have no parts.
pub(in crate::tile) fn of_rows(func: &Func) -> Result<Columns, Reason> {
    let combines = |op: Op| matches!(func.ops[op].kind, OpKind::Schedule(ScheduleOp::Reduce { .. } | ScheduleOp::Scan { .. }));
    let counts = |op: Op| matches!(func.ops[op].kind, OpKind::Schedule(ScheduleOp::For { .. }));
    let ops = func.linked_ops();
    if let Some(&op) = ops.iter().find(|&&op| !func.ops[op].regions.is_empty() && !combines(op) && !counts(op)) {
        let text = "a block takes rows where it goes one way, without branches and loops that do not count";
        return Err(Reason::at(text, func.ops[op].span));
    }
    let is_reduction = |op: &Op| matches!(func.ops[*op].kind, OpKind::Schedule(ScheduleOp::Reduce { .. }));
    let reductions: Vec<Op> = ops.into_iter().filter(is_reduction).collect();
    let axes = Axes::under(func, Reductions::InParts);
    let mut classes: Vec<Class> = Vec::new();
    let mut refusal = Reason::from("the function reduces no rows");
    for &op in &reductions {
        let class = class_of(func, &axes, op);
        if classes.contains(&class) {
            continue;
        }
        match along(func, &axes, class, &reductions) {
            Ok(columns) => return Ok(columns),
            Err(reason) if classes.is_empty() => refusal = reason,
            Err(_) => {}
        }
        classes.push(class);
    }
    Err(refusal)
}

/// The class of the axis that an operation reduces.
fn class_of(func: &Func, axes: &Axes, op: Op) -> Class {
    let (operand, dim) = reduced(func, op);
    axes.class(operand, dim)
}

/// Columns along the axes of a class.
fn along(func: &Func, axes: &Axes, class: Class, reductions: &[Op]) -> Result<Columns, Reason> {
    let place = |text: &'static str, op: Op| Reason::at(text, func.ops[op].span);
    let own: Vec<Op> = reductions.iter().copied().filter(|&op| class_of(func, axes, op) == class).collect();
    for &op in &own {
        for &result in &func.ops[op].results {
            let tile = func.ty(result).the_tile();
            if tile.len() > NUMBERS || !tile.len().is_power_of_two() {
                return Err(place(
                    "the blocks of a cluster give each other up to 16 numbers at a time, a power of two of them",
                    op,
                ));
            }
            if !matches!(tile.elem.bits(), 32 | 64) {
                return Err(place("the blocks of a cluster give each other numbers of 32 and 64 bits", op));
            }
        }
        if matches!(func.ops[op].kind, OpKind::Schedule(ScheduleOp::Reduce { order: ReduceOrder::Tree, .. })) {
            return Err(place("a reduction in the order of a tree needs the whole row", op));
        }
    }
    let ops = func.linked_ops();
    let extents = |op: Op| -> Vec<u64> { extents_of(func, axes, class, op).collect() };
    let count = ops.iter().flat_map(|&op| extents(op)).max().unwrap_or(1);
    for &op in &ops {
        if extents(op).into_iter().any(|extent| axes.is_whole(class) || !count.is_multiple_of(extent)) {
            return Err(place("something needs all columns of a row at once", op));
        }
    }
    Ok(Columns { count, reductions: own, once: done_once(func, axes, class) })
}

/// Extents of an operation's results along the axes of a class.
fn extents_of<'f>(func: &'f Func, axes: &'f Axes, class: Class, op: Op) -> impl Iterator<Item = u64> + 'f {
    func.ops[op].results.iter().flat_map(move |&value| {
        let extents = shape(func, value);
        (0..extents.len()).filter(move |&axis| axes.class(value, axis) == class).map(move |axis| extents[axis])
    })
}

/// What a reduction takes first, and along which axis.
fn reduced(func: &Func, op: Op) -> (Value, usize) {
    let data = &func.ops[op];
    let OpKind::Schedule(ScheduleOp::Reduce { dim, .. }) = data.kind else { bug!("a reduction without an axis") };
    (data.operands[0], dim as usize)
}

impl Columns {
    /// Whether the first of several blocks can do what is done once.
    ///
    /// # Errors
    /// What others would wait for.
    pub(in crate::tile) fn once_by_one(&self, func: &Func) -> Result<(), Reason> {
        let stores = |op: &Op| {
            matches!(func.ops[*op].kind, OpKind::Schedule(ScheduleOp::StoreViewTko { .. } | ScheduleOp::StorePtrTko { .. }))
        };
        // Stores that others wait for would have to be waited for by all blocks.
        let waited = |op: &Op| {
            let results = &func.ops[*op].results;
            let waits =
                |other: &Op| !self.once.contains(other) && func.ops[*other].operands.iter().any(|value| results.contains(value));
            func.linked_ops().iter().any(waits)
        };
        let Some(&op) = self.once.iter().find(|op| !stores(op) || waited(op)) else { return Ok(()) };
        let text = "what is done once for a row, but for a store that nobody waits for, is no part of it";
        Err(Reason::at(text, func.ops[op].span))
    }

    /// Whether columns divide into so many parts as they are: all tiles do, and a part of neighbours in memory is so many of them as threads load best.
    pub(in crate::tile) fn divides(&self, func: &Func, parts: u64) -> bool {
        let (axes, class) = self.axes(func);
        let ops = &func.blocks[func.body].ops;
        let alike = ops.iter().flat_map(|&op| extents_of(func, &axes, class, op)).all(|extent| extent.is_multiple_of(parts));
        let neighbours = |op: &Op| {
            let Some((view, tile)) = view_and_tile(func, *op) else { return false };
            let Type::TileView(ty) = func.ty(view) else { bug!("tiles of what is no view") };
            let mut own = (0..rank(func, tile)).filter(|&axis| axes.class(tile, axis) == class);
            own.any(|axis| ty.tensor.strides[ty.dim_map[axis] as usize] == Extent::Static(1))
        };
        alike && ((self.count / parts).is_multiple_of(ROW_COLUMNS) || !ops.iter().any(neighbours))
    }

    /// Accesses to columns through views, in order: with the view, and the axis of its tiles that columns run along.
    pub(in crate::tile) fn accesses(&self, func: &Func) -> Vec<(Op, Value, usize)> {
        let (axes, class) = self.axes(func);
        let of = |&op: &Op| {
            let (view, tile) = view_and_tile(func, op)?;
            let axis = (0..rank(func, tile)).find(|&axis| axes.class(tile, axis) == class)?;
            Some((op, view, axis))
        };
        func.linked_ops().iter().filter_map(of).collect()
    }

    /// What has columns: a tile of a number for each of them.
    pub(in crate::tile) fn values(&self, func: &Func) -> FxHashSet<Value> {
        let (axes, class) = self.axes(func);
        let has = |value: &Value| (0..rank(func, *value)).any(|axis| axes.class(*value, axis) == class);
        values_of(func, &func.linked_ops()).into_iter().filter(has).collect()
    }

    /// The first operation of the function's body that columns come from, or that has such a one within: nothing before it has any.
    pub(in crate::tile) fn first(&self, func: &Func) -> Op {
        let (axes, class) = self.axes(func);
        let has = |op: &Op| {
            let mut own = Vec::new();
            all_ops(func, *op, &mut own);
            own.into_iter().any(|op| extents_of(func, &axes, class, op).next().is_some())
        };
        let found = func.blocks[func.body].ops.iter().copied().find(has);
        found.unwrap_or_else(|| bug!("columns that come from nowhere"))
    }

    /// Makes rows wider, or narrower where nobody asks for the columns that go; where there is a shift, which the function has before its first access, columns begin as many elements later in their tiles.
    /// Neutral reductions find numbers outside of rows that change nothing, whatever they are computed from.
    ///
    /// # Errors
    /// What they are accessed by does not say where they lie, or something would see what lies beside a row.
    pub(in crate::tile) fn pad(
        &mut self,
        func: &mut Func,
        count: u64,
        shift: Option<Value>,
        neutral: &[Op],
    ) -> Result<(), Reason> {
        let (axes, class) = self.axes(func);
        let in_vectors = |op: &Op| extents_of(func, &axes, class, *op).any(|extent| extent != self.count);
        let ops = func.linked_ops();
        if let Some(&op) = ops.iter().find(|op| in_vectors(op)) {
            return Err(Reason::at("columns that do not divide are joined or parted", func.ops[op].span));
        }
        let wide = |value: Value, func: &Func| (0..rank(func, value)).find(|&axis| axes.class(value, axis) == class);
        let mut ahead: FxHashMap<Op, Vec<Op>> = FxHashMap::default();
        for &op in &ops {
            let Some((view, tile)) = view_and_tile(func, op) else {
                let tiles = func.ops[op].operands.iter().any(|&value| wide(value, func).is_some());
                let kind = &func.ops[op].kind;
                if tiles && matches!(kind, OpKind::Schedule(ScheduleOp::Assert { .. } | ScheduleOp::PrintTko { .. })) {
                    let text = "columns that do not divide are seen one by one, by an assertion or a print";
                    return Err(Reason::at(text, func.ops[op].span));
                }
                if tiles && access(func, op).is_some() {
                    return Err(Reason::at("columns that do not divide are reached through pointers", func.ops[op].span));
                }
                continue;
            };
            if let Some(axis) = wide(tile, func) {
                ahead.insert(op, self.widen(func, op, view, axis, count, shift)?);
            }
        }
        let counts = |op: &Op| matches!(func.ops[*op].kind, OpKind::Schedule(ScheduleOp::Iota {}));
        let counted: Vec<Op> =
            ops.iter().copied().filter(|op| counts(op) && wide(func.ops[*op].result(), func).is_some()).collect();
        for value in values_of(func, &ops) {
            let of_class: Vec<usize> = (0..rank(func, value)).filter(|&axis| axes.class(value, axis) == class).collect();
            if let Type::Tile(tile) = &mut func.values[value].ty {
                of_class.into_iter().for_each(|axis| tile.shape[axis] = count as u32);
            }
        }
        if let Some(shift) = shift {
            for op in counted {
                let made = later(func, op, shift)?;
                ahead.insert(op, made);
            }
        }
        if count > self.count || shift.is_some() {
            for &op in self.reductions.iter().filter(|op| !neutral.contains(op)) {
                ahead.insert(op, self.mask(func, op, count, shift));
            }
        }
        let body = func.body;
        put_ahead(func, body, &mut ahead);
        if let Some((&op, _)) = ahead.iter().next() {
            bug!("`{}` stands nowhere", func.ops[op].row().mnemonic);
        }
        self.count = count;
        Ok(())
    }

    /// Gives an access wider tiles of its array, as if that ended where the row does.
    fn widen(
        &self,
        func: &mut Func,
        op: Op,
        view: Value,
        axis: usize,
        count: u64,
        shift: Option<Value>,
    ) -> Result<Vec<Op>, Reason> {
        if matches!(func.ops[op].kind, OpKind::Schedule(ScheduleOp::AtomicRedViewTko { .. })) {
            return Err(Reason::at("columns that do not divide are combined with memory", func.ops[op].span));
        }
        let Type::TileView(ty) = func.ty(view).clone() else { bug!("tiles of what is no view") };
        let first = if matches!(func.ops[op].kind, OpKind::Schedule(ScheduleOp::StoreViewTko { .. })) { 2 } else { 1 };
        let index = func.ops[op].group(first)[axis];
        let array = func.defining_op(view).map(|maker| func.ops[maker].one(0)).and_then(|array| func.defining_op(array));
        let array = array.filter(|&op| matches!(func.ops[op].kind, OpKind::Schedule(ScheduleOp::MakeTensorView {})));
        let (Some(array), ViewKind::Partition, Some(0)) = (array, &ty.kind, func.constant(index).and_then(Const::as_int)) else {
            return Err(Reason::at("columns that do not divide are those of whole rows", func.ops[op].span));
        };
        if shift.is_some_and(|shift| func.ty(shift) != func.ty(index)) {
            return Err(Reason::at("columns are counted in other than 32 bits", func.ops[op].span));
        }
        let (made, span, dim) = (func.ops[array].clone(), func.ops[op].span, ty.dim_map[axis] as usize);
        let mut wider: TileViewType = (*ty).clone();
        wider.tile[axis] = count as u32;
        if wider.padding == Padding::Undetermined && matches!(func.ops[op].kind, OpKind::Schedule(ScheduleOp::LoadViewTko { .. }))
        {
            wider.padding = Padding::Zero;
        }
        let (ops, (wider, begin)) = apart(func, span, |b| {
            let mut sizes = made.group(1).to_vec();
            match &mut wider.tensor.shape[dim] {
                Extent::Static(size) => *size = (*size).min(self.count as i64),
                Extent::Dynamic => {
                    let at = ty.tensor.shape[..dim].iter().filter(|size| **size == Extent::Dynamic).count();
                    let own = b.func.ty(sizes[at]).num().unwrap_or_else(|| bug!("a size that is no number"));
                    let end = b.constant(Const::int(own, self.count as i64), Shape::new());
                    sizes[at] = b.least(sizes[at], end);
                }
            }
            let narrower = Type::TensorView(Box::new(wider.tensor.clone()));
            let array = b.value(ScheduleOp::MakeTensorView {}, &[&[made.one(0)], &sizes, made.group(2)], narrower);
            let Some(shift) = shift else {
                let kind = ScheduleOp::MakePartitionView {};
                return (b.value(kind, &[&[array]], Type::TileView(Box::new(wider.clone()))), index);
            };
            let mut steps = wider.tile.clone();
            steps[axis] = 1;
            wider.kind = ViewKind::Strided(steps);
            let begin = b.minus(index, shift);
            (b.value(ScheduleOp::MakeStridedView {}, &[&[array]], Type::TileView(Box::new(wider.clone()))), begin)
        });
        let data = &mut func.ops[op];
        data.operands.iter_mut().filter(|operand| **operand == view).for_each(|operand| *operand = wider);
        let start: usize = data.segments[..first].iter().map(|&operands| operands as usize).sum();
        data.operands[start + axis] = begin;
        match &mut data.kind {
            OpKind::Schedule(ScheduleOp::LoadViewTko { inbounds, .. } | ScheduleOp::StoreViewTko { inbounds, .. }) => {
                *inbounds = false
            }
            _ => bug!("an access to a view that neither loads nor stores"),
        }
        Ok(ops)
    }

    /// Has a reduction see nothing of what lies beside a row: what is done before it.
    fn mask(&self, func: &mut Func, op: Op, count: u64, shift: Option<Value>) -> Vec<Op> {
        let data = func.ops[op].clone();
        let &OpKind::Schedule(ScheduleOp::Reduce { dim, ref identities, .. }) = &data.kind else {
            bug!("a reduction without identities")
        };
        let (ops, masked) = apart(func, data.span, |b| {
            let line = Shape::from_slice(&[count as u32]);
            let mut column = b.value(ScheduleOp::Iota {}, &[], Type::tile(line.clone(), DType::I32));
            if let Some(shift) = shift {
                let shift = spread(b, shift, &line);
                column = b.minus(column, shift);
            }
            let end = b.constant(Const::int(DType::I32, self.count as i64), line.clone());
            let kind = ScheduleOp::CmpI { predicate: Predicate::Lt, signedness: Signedness::Unsigned };
            let inside = b.value(kind, &[&[column], &[end]], Type::tile(line, DType::B1));
            let mask = |(identity, &value): (&Const, &Value)| {
                let TileType { shape, .. } = b.func.ty(value).the_tile().clone();
                let beside: Shape =
                    shape.iter().enumerate().map(|(axis, &extent)| if axis == dim as usize { extent } else { 1 }).collect();
                let own = b.value(ScheduleOp::Reshape {}, &[&[inside]], Type::tile(beside, DType::B1));
                let own = b.value(ScheduleOp::Broadcast {}, &[&[own]], Type::tile(shape.clone(), DType::B1));
                let nothing = b.constant(identity.clone(), shape);
                let ty = b.func.ty(value).clone();
                b.value(ScheduleOp::Select {}, &[&[own], &[value], &[nothing]], ty)
            };
            identities.iter().zip(&data.operands).map(mask).collect::<Vec<_>>()
        });
        func.ops[op].operands[..masked.len()].copy_from_slice(&masked);
        ops
    }

    /// Leaves of a row one of so many parts, that with a number; what nobody needs any more is left as it is.
    ///
    /// # Errors
    /// What one part writes another one needs.
    pub(in crate::tile) fn part(&self, func: &mut Func, parts: u64, number: Value) -> Result<(), Reason> {
        let (axes, class) = self.axes(func);
        let plan = Plan::of(func, &axes, &[class])?;
        let strips = Strips { cuts: vec![(class, parts)], tiles: None };
        let body = func.body;
        Cutter { strips: &strips, axes, positions: vec![number], ahead: FxHashMap::default() }.one(func, &plan, body);
        Ok(())
    }

    fn axes(&self, func: &Func) -> (Axes, Class) {
        let axes = Axes::under(func, Reductions::InParts);
        let class = class_of(func, &axes, self.reductions[0]);
        (axes, class)
    }
}

/// Has numbers that count columns begin as many later; what is done before them.
fn later(func: &mut Func, op: Op, shift: Value) -> Result<Vec<Op>, Reason> {
    let (result, span) = (func.ops[op].result(), func.ops[op].span);
    let ty = func.ty(result).clone();
    if ty.num() != Some(DType::I32) {
        return Err(Reason::at("columns are counted in other than 32 bits", span));
    }
    let (ops, [own, all]) = apart(func, span, |b| {
        let all = spread(b, shift, &ty.the_tile().shape);
        [b.value(ScheduleOp::Iota {}, &[], ty.clone()), all]
    });
    // The operation becomes the difference.
    let data = &mut func.ops[op];
    data.kind = ScheduleOp::SubI { overflow: Overflow::Wraps }.into();
    data.operands = SmallVec::from_slice(&[own, all]);
    data.segments = SmallVec::from_slice(&[1, 1]);
    Ok(ops)
}

/// A number in each place of a line.
fn spread(b: &mut Builder<'_>, number: Value, line: &Shape) -> Value {
    let dtype = b.func.ty(number).num().unwrap_or_else(|| bug!("a shift that is no number"));
    let one = b.value(ScheduleOp::Reshape {}, &[&[number]], Type::tile(Shape::from_slice(&[1]), dtype));
    b.value(ScheduleOp::Broadcast {}, &[&[one]], Type::tile(line.clone(), dtype))
}

/// What operations make, and what their regions are given.
fn values_of(func: &Func, ops: &[Op]) -> Vec<Value> {
    let of = |op: &Op| {
        let data = &func.ops[*op];
        let given = data.regions.iter().flat_map(|&region| func.blocks[region].args.iter());
        data.results.iter().chain(given).copied().collect::<Vec<_>>()
    };
    ops.iter().flat_map(of).collect()
}
