//! Strip mining: a block's tiles are cut along some of their axes, and its work is done strip by strip.
//!
//! ```text
//! %acc = for %k ... { %a = load %va, [%i, %k] : tile<256x64xbf16>; .. }          for %p in 0 .. 2 {
//! store %acc, %vc, [%i, %j] : tile<256x256xf32>                                    %i2 = %i * 2 + %p
//!                                                                                  %acc = for %k ... { %a = load %va2, [%i2, %k] : tile<128x64xbf16>; .. }
//!                                                                                  store %acc, %vc2, [%i2, %j] : tile<128x256xf32>
//!                                                                                }
//! ```
//!
//! A strip holds a part of every tile that has the axis, so that threads hold less at once; what does not have it is read and computed again in each
//! strip. [`axes`] says which axes are cut together, [`plan`] where the loop goes and whether it may.
//!
//! Invariant: every element is computed by the same operations in the same order as before.

mod axes;
mod columns;
mod plan;

use rustc_hash::FxHashMap;
use smallvec::SmallVec;
use tessera_ir::attrs::{Overflow, Rounding, Signedness};
use tessera_ir::{Block, Builder, Const, Func, Op, OpKind, ScheduleOp, Shape, TileViewType, Type, Value, ViewKind, bug};
use tessera_types::DType;

use self::axes::{Axes, Class, rank};
pub(super) use self::columns::{Columns, of_rows};
use self::plan::{Plan, repeated, view_and_tile};
use super::relation::shape;
use crate::rewrite::{drop_dead, out_of_loops};
use tessera_ir::Reason;

/// Strips of a block at most.
const MOST: u64 = 32;
/// What an axis of a product's accumulator has at least: a row of tensor instructions.
const LEAST: u64 = 16;

/// How a function's tiles are cut.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Strips {
    /// The axes that are cut, by their class, and into how many parts.
    cuts: Vec<(Class, u64)>,
    /// The largest tile that is cut, before and behind.
    pub tiles: Option<[String; 2]>,
}

impl Strips {
    /// Nothing is cut.
    pub const NONE: Strips = Strips { cuts: Vec::new(), tiles: None };

    /// How many strips there are.
    pub fn count(&self) -> u64 {
        self.cuts.iter().map(|&(_, parts)| parts).product()
    }

    /// The ways to cut a function, each into twice as many strips as the one before, along the axis that costs least of those that the largest
    /// tiles have; why there are no more.
    pub fn ways(func: &Func) -> (Vec<Strips>, Reason) {
        let axes = Axes::of(func);
        let mut ways: Vec<Strips> = Vec::new();
        let mut last = Strips::default();
        loop {
            match last.halved(func, &axes) {
                Ok(next) if next.count() <= MOST => last = next,
                Ok(_) => return (ways, "more strips are no use".into()),
                Err(reason) => return (ways, reason),
            }
            ways.push(last.clone());
        }
    }

    /// Twice as many strips.
    fn halved(&self, func: &Func, axes: &Axes) -> Result<Strips, Reason> {
        let mut best: Option<((bool, u64), Strips)> = None;
        let mut refusal = Reason::from("no axis of a tile can be cut");
        let size = |value: Value| func.ty(value).the_tile().len() as u64 * func.ty(value).the_tile().elem.bits();
        let tiles: Vec<Value> = values(func).into_iter().filter(|&value| rank(func, value) > 0).collect();
        let largest = tiles.iter().map(|&value| size(value)).max().unwrap_or(0);
        let mut seen: Vec<Class> = Vec::new();
        for &value in &tiles {
            for axis in 0..rank(func, value) {
                let class = axes.class(value, axis);
                if seen.contains(&class) || axes.is_whole(class) {
                    continue;
                }
                seen.push(class);
                let Some(more) = self.with(func, axes, class, &tiles) else { continue };
                let classes: Vec<Class> = more.cuts.iter().map(|&(class, _)| class).collect();
                let plan = match Plan::of(func, axes, &classes) {
                    Ok(plan) => plan,
                    Err(reason) => {
                        refusal = reason;
                        continue;
                    }
                };
                let has = |value: &Value| (0..rank(func, *value)).any(|axis| axes.class(*value, axis) == class);
                let helps = tiles.iter().any(|value| size(*value) == largest && has(value));
                let key = (!helps, repeated(func, axes, &classes, &plan));
                if best.as_ref().is_none_or(|(known, _)| key < *known) {
                    best = Some((key, more));
                }
            }
        }
        best.map(|(_, strips)| strips).ok_or(refusal)
    }

    /// One class in twice as many parts, where its axes have so many.
    fn with(&self, func: &Func, axes: &Axes, class: Class, tiles: &[Value]) -> Option<Strips> {
        let mut cuts = self.cuts.clone();
        match cuts.iter_mut().find(|(known, _)| *known == class) {
            Some((_, parts)) => *parts *= 2,
            None => cuts.push((class, 2)),
        }
        let parts = cuts.iter().find(|(known, _)| *known == class).map_or(1, |&(_, parts)| parts);
        let multiplied = |value: Value| {
            func.defining_op(value).is_some_and(|op| {
                matches!(func.ops[op].kind, OpKind::Schedule(ScheduleOp::MmaF { .. } | ScheduleOp::MmaI { .. }))
            })
        };
        let mut largest: Option<(u64, Value)> = None;
        for &value in tiles {
            let extents = shape(func, value);
            let of_class = |axis: &usize| axes.class(value, *axis) == class;
            for axis in (0..extents.len()).filter(of_class) {
                let least = if multiplied(value) && axis + 2 >= extents.len() { LEAST } else { 1 };
                if !extents[axis].is_multiple_of(parts) || extents[axis] / parts < least {
                    return None;
                }
                let size = extents.iter().product();
                if largest.is_none_or(|(known, _)| size > known) {
                    largest = Some((size, value));
                }
            }
        }
        let mut strips = Strips { cuts, tiles: None };
        let (_, value) = largest?;
        // Axes of extent 1 say nothing.
        let whole = shape(func, value);
        let text = |strip: &[u64]| {
            let wide = strip.iter().zip(&whole).filter(|&(_, whole)| *whole > 1).map(|(extent, _)| extent.to_string());
            wide.collect::<Vec<_>>().join("x")
        };
        strips.tiles = Some([text(&whole), text(&strips.extents(func, axes, value))]);
        Some(strips)
    }

    fn parts(&self, axes: &Axes, value: Value, axis: usize) -> u64 {
        let class = axes.class(value, axis);
        self.cuts.iter().find(|(known, _)| *known == class).map_or(1, |&(_, parts)| parts)
    }

    /// Extents of a strip of a tile.
    fn extents(&self, func: &Func, axes: &Axes, value: Value) -> Vec<u64> {
        shape(func, value).iter().enumerate().map(|(axis, extent)| extent / self.parts(axes, value, axis)).collect()
    }

    /// Cuts the tiles of the function that this is a way for.
    ///
    /// # Errors
    /// What strips would get in each other's way by, in another function.
    pub fn cut(&self, func: &mut Func) -> Result<(), Reason> {
        if self.cuts.is_empty() {
            return Ok(());
        }
        let axes = Axes::of(func);
        let classes: Vec<Class> = self.cuts.iter().map(|&(class, _)| class).collect();
        let plan = Plan::of(func, &axes, &classes)?;
        let body = Cutter { strips: self, axes, positions: Vec::new(), ahead: FxHashMap::default() }.run(func, &plan);
        // Views and places are the same in every round of a loop within.
        out_of_loops(func, body);
        drop_dead(func);
        Ok(())
    }
}

/// Leaves of what becomes of some values, which one operation yields, one of so many parts along their last axis, that with a number: those who have
/// other numbers do the others.
///
/// # Errors
/// Something needs all parts, or is done once.
pub(super) fn part(func: &mut Func, values: &[Value], parts: u64, number: Value) -> Result<(), Reason> {
    let mut axes = Axes::of(func);
    let last = |value: Value| (value, rank(func, value) - 1);
    values[1..].iter().for_each(|&other| axes.join(last(values[0]), last(other)));
    let (first, axis) = last(values[0]);
    let class = axes.class(first, axis);
    let strips = Strips { cuts: vec![(class, parts)], tiles: None };
    let place = |op: Op| Reason::at("what stands behind the loop needs whole lines of sums", func.ops[op].span);
    for op in func.linked_ops() {
        for &value in &func.ops[op].results {
            let own = (0..rank(func, value)).filter(|&axis| axes.class(value, axis) == class);
            if own.map(|axis| shape(func, value)[axis]).any(|extent| axes.is_whole(class) || !extent.is_multiple_of(parts)) {
                return Err(place(op));
            }
        }
    }
    let sum = func.defining_op(first).unwrap_or_else(|| bug!("a part of an argument"));
    let whole = |&value: &Value| (0..rank(func, value)).any(|axis| axes.class(value, axis) == class);
    if func.ops[sum].operands.iter().any(whole) {
        return Err(Reason::at("what stands behind the loop uses a tile that the loop needs whole", func.ops[sum].span));
    }
    let plan = Plan::of(func, &axes, &[class])?;
    if let Some(&op) = plan::done_once(func, &axes, class).first() {
        return Err(Reason::at("what stands behind the loop is done once, and no part of it is each block's", func.ops[op].span));
    }
    let body = func.body;
    Cutter { strips: &strips, axes, positions: vec![number], ahead: FxHashMap::default() }.one(func, &plan, body);
    drop_dead(func);
    Ok(())
}

fn values(func: &Func) -> Vec<Value> {
    func.linked_ops().into_iter().flat_map(|op| func.ops[op].results.to_vec()).collect()
}

/// The rewrite.
struct Cutter<'s> {
    strips: &'s Strips,
    axes: Axes,
    /// The number of the strip along each class that is cut.
    positions: Vec<Value>,
    /// New operations in front of an operation.
    ahead: FxHashMap<Op, Vec<Op>>,
}

impl Cutter<'_> {
    /// Cuts what a plan would have in its loop, in a function's body.
    fn one(&mut self, func: &mut Func, plan: &Plan, body: Block) {
        let mut inside = Vec::new();
        plan.inside.iter().for_each(|&op| all_ops(func, op, &mut inside));
        inside.iter().for_each(|&op| self.access(func, op));
        self.retype(func, &inside);
        put_ahead(func, body, &mut self.ahead);
    }

    /// Makes the loop; its body.
    fn run(&mut self, func: &mut Func, plan: &Plan) -> Block {
        let span = func.ops[plan.inside[0]].span;
        let (ahead, body) = (func.new_block(), func.new_block());
        let mut b = Builder { func, block: ahead, span };
        let number = |b: &mut Builder<'_>, value: u64| b.constant(Const::int(DType::I32, value as i64), Shape::new());
        let (zero, count, one) = (number(&mut b, 0), number(&mut b, self.strips.count()), number(&mut b, 1));
        let starts: Vec<Value> = plan.tokens.iter().map(|_| b.value(ScheduleOp::MakeToken {}, &[], Type::Token)).collect();
        let strip = b.func.add_arg(body, Type::scalar(DType::I32), None);
        for _ in &plan.tokens {
            b.func.add_arg(body, Type::Token, None);
        }
        b.within(body, |b| {
            let mut rest = strip;
            for (at, &(_, parts)) in self.strips.cuts.iter().enumerate() {
                if at + 1 == self.strips.cuts.len() {
                    self.positions.push(rest);
                    break;
                }
                let parts = number(b, parts);
                self.positions.push(b.same(ScheduleOp::RemI { signedness: Signedness::Unsigned }, &[rest, parts]));
                let kind = ScheduleOp::DivI { signedness: Signedness::Unsigned, rounding: Rounding::Zero };
                rest = b.same(kind, &[rest, parts]);
            }
        });
        let mut inside = Vec::new();
        for &op in &plan.inside {
            all_ops(func, op, &mut inside);
        }
        for &op in &inside {
            self.access(func, op);
        }
        let mut b = Builder { func, block: body, span };
        b.func.blocks[body].ops.extend(&plan.inside);
        b.op(ScheduleOp::Continue {}, &[&plan.tokens], []);
        b.block = ahead;
        let groups: [&[Value]; 4] = [&[zero], &[count], &[one], &starts];
        let types = plan.tokens.iter().map(|_| Type::Token);
        let looped = b.op_with_regions(ScheduleOp::For { unsigned: false, unroll: None }, &groups, types, [body]);
        self.retype(func, &inside);
        put_ahead(func, body, &mut self.ahead);

        let named: FxHashMap<Value, Value> = plan.tokens.iter().copied().zip(func.ops[looped].results.iter().copied()).collect();
        let old = std::mem::take(&mut func.blocks[plan.block].ops);
        let mut new = Vec::with_capacity(old.len());
        for op in old {
            if plan.inside.first() == Some(&op) {
                new.extend(&plan.before);
                new.append(&mut func.blocks[ahead].ops.clone());
            }
            if !plan.inside.contains(&op) && !plan.before.contains(&op) {
                new.push(op);
            }
        }
        func.blocks[plan.block].ops = new;
        let own: Vec<Op> = inside;
        for op in func.linked_ops().into_iter().filter(|op| !own.contains(op)) {
            let ends = func.blocks[body].ops.last() == Some(&op);
            for operand in func.ops[op].operands.iter_mut().filter(|_| !ends) {
                *operand = named.get(operand).copied().unwrap_or(*operand);
            }
        }
        body
    }

    /// The part that an operation's own place in its tile starts at: `parts * index + position` where indices count tiles, which become
    /// smaller; `index + extent * position` where they count elements.
    fn access(&mut self, func: &mut Func, op: Op) {
        if matches!(func.ops[op].kind, OpKind::Schedule(ScheduleOp::Iota {})) {
            self.count(func, op);
            return;
        }
        let Some((view, tile)) = view_and_tile(func, op) else { return };
        let Type::TileView(ty) = func.ty(view).clone() else { bug!("tiles of what is no view") };
        let cut: Vec<(usize, u64)> = (0..rank(func, tile))
            .map(|axis| (axis, self.strips.parts(&self.axes, tile, axis)))
            .filter(|&(_, parts)| parts > 1)
            .collect();
        if cut.is_empty() {
            return;
        }
        let (new, kind) = self.narrower(&ty, &cut);
        let maker = func.defining_op(view).unwrap_or_else(|| bug!("a view that is handed in"));
        let tensor = func.ops[maker].one(0);
        let scratch = func.new_block();
        let span = func.ops[op].span;
        let mut b = Builder { func, block: scratch, span };
        let smaller = b.value(kind, &[&[tensor]], Type::TileView(Box::new(new.clone())));
        let first = if matches!(b.func.ops[op].kind, OpKind::Schedule(ScheduleOp::StoreViewTko { .. })) { 2 } else { 1 };
        for &(axis, parts) in &cut {
            let index = b.func.ops[op].group(first)[axis];
            if rank(b.func, index) > 0 {
                continue;
            }
            let position = self.position(&mut b, tile, axis, index);
            let overflow = Overflow::Wraps;
            let counts = match &ty.kind {
                ViewKind::Partition => false,
                ViewKind::Strided(steps) => steps[axis] == 1,
                ViewKind::GatherScatter { .. } => true,
            };
            let moved = if counts {
                let extent = self.number_like(&mut b, u64::from(new.tile[axis]), index);
                let far = b.same(ScheduleOp::MulI { overflow }, &[position, extent]);
                b.same(ScheduleOp::AddI { overflow }, &[index, far])
            } else {
                let parts = self.number_like(&mut b, parts, index);
                let first = b.same(ScheduleOp::MulI { overflow }, &[index, parts]);
                b.same(ScheduleOp::AddI { overflow }, &[first, position])
            };
            let data = &mut b.func.ops[op];
            let start: usize = data.segments[..first].iter().map(|&n| n as usize).sum();
            data.operands[start + axis] = moved;
        }
        for operand in func.ops[op].operands.iter_mut().filter(|operand| **operand == view) {
            *operand = smaller;
        }
        self.ahead.insert(op, std::mem::take(&mut func.blocks[scratch].ops));
    }

    /// The view of strips of a view's tiles, and what makes it.
    fn narrower(&self, ty: &TileViewType, cut: &[(usize, u64)]) -> (TileViewType, ScheduleOp) {
        let mut new = ty.clone();
        for &(axis, parts) in cut {
            new.tile[axis] /= parts as u32;
            if let ViewKind::Strided(steps) = &mut new.kind
                && steps[axis] > 1
            {
                steps[axis] /= parts as u32;
            }
        }
        let kind = match &new.kind {
            ViewKind::Partition => ScheduleOp::MakePartitionView {},
            ViewKind::Strided(_) => ScheduleOp::MakeStridedView {},
            ViewKind::GatherScatter { .. } => ScheduleOp::MakeGatherScatterView {},
        };
        (new, kind)
    }

    /// The number of the strip along an axis, as an integer of a value's type.
    fn position(&self, b: &mut Builder<'_>, tile: Value, axis: usize, like: Value) -> Value {
        let class = self.axes.class(tile, axis);
        let at = self.strips.cuts.iter().position(|(known, _)| *known == class);
        let at = at.unwrap_or_else(|| bug!("an axis that is not cut"));
        let (position, dtype) = (self.positions[at], integer(b, like));
        let ty = Type::scalar(dtype);
        match dtype.bits() {
            32 => position,
            33.. => b.value(ScheduleOp::ExtI { signedness: Signedness::Unsigned }, &[&[position]], ty),
            _ => b.value(ScheduleOp::TruncI { overflow: Overflow::Wraps }, &[&[position]], ty),
        }
    }

    fn number_like(&self, b: &mut Builder<'_>, value: u64, like: Value) -> Value {
        let dtype = integer(b, like);
        b.constant(Const::int(dtype, value as i64), Shape::new())
    }

    /// A strip of numbers counts from its start.
    fn count(&mut self, func: &mut Func, op: Op) {
        let (result, span) = (func.ops[op].result(), func.ops[op].span);
        if self.strips.parts(&self.axes, result, 0) == 1 {
            return;
        }
        let extent = self.strips.extents(func, &self.axes, result)[0];
        let tile = func.ty(result).the_tile().clone();
        let scratch = func.new_block();
        let mut b = Builder { func, block: scratch, span };
        let overflow = Overflow::Wraps;
        let position = self.position(&mut b, result, 0, result);
        let step = self.number_like(&mut b, extent, result);
        let start = b.same(ScheduleOp::MulI { overflow }, &[position, step]);
        let with = |extent: u32| Type::Tile(tessera_ir::TileType { shape: Shape::from_slice(&[extent]), elem: tile.elem });
        let one = b.value(ScheduleOp::Reshape {}, &[&[start]], with(1));
        let all = b.value(ScheduleOp::Broadcast {}, &[&[one]], with(extent as u32));
        let own = b.value(ScheduleOp::Iota {}, &[], with(extent as u32));
        self.ahead.insert(op, std::mem::take(&mut b.func.blocks[scratch].ops));
        // The operation becomes the sum.
        let data = &mut func.ops[op];
        data.kind = ScheduleOp::AddI { overflow }.into();
        data.operands = SmallVec::from_slice(&[own, all]);
        data.segments = SmallVec::from_slice(&[1, 1]);
    }

    /// Values inside are strips.
    fn retype(&self, func: &mut Func, inside: &[Op]) {
        let mut values: Vec<Value> = Vec::new();
        for &op in inside {
            values.extend(&func.ops[op].results);
            for &region in &func.ops[op].regions {
                values.extend(&func.blocks[region].args);
            }
        }
        for value in values {
            let extents = self.strips.extents(func, &self.axes, value);
            if let Type::Tile(tile) = &mut func.values[value].ty {
                tile.shape = extents.iter().map(|&extent| extent as u32).collect();
            }
        }
    }
}

/// Puts operations before others, in a block and its regions.
fn put_ahead(func: &mut Func, block: Block, ahead: &mut FxHashMap<Op, Vec<Op>>) {
    for op in std::mem::take(&mut func.blocks[block].ops) {
        if let Some(made) = ahead.remove(&op) {
            func.blocks[block].ops.extend(made);
        }
        func.blocks[block].ops.push(op);
        for region in func.ops[op].regions.clone() {
            put_ahead(func, region, ahead);
        }
    }
}

/// An operation and those in its regions.
fn all_ops(func: &Func, op: Op, found: &mut Vec<Op>) {
    found.push(op);
    for &region in &func.ops[op].regions {
        func.blocks[region].ops.iter().for_each(|&inner| all_ops(func, inner, found));
    }
}

/// The type of a number of the kernel's.
fn integer(b: &Builder<'_>, value: Value) -> DType {
    b.func.ty(value).num().unwrap_or_else(|| bug!("an index that is no number"))
}
