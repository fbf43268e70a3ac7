//! Which axes of a function's tiles are one axis: those that operations carry over to each other.
//!
//! Axes of one class are cut together. A class whose elements meet is whole: what combines along an axis, sums up over it or moves elements
//! along it needs all of it at once.
//!
//! | operation | carries over | keeps whole |
//! |---|---|---|
//! | elementwise, accesses by pointers | every axis | |
//! | `mmaf %a, %b, %c` | rows of `%a` and `%c`, columns of `%b` and `%c`, batches | the contraction |
//! | `reduce`, `scan` | the other axes | the one that they run along |
//! | `reshape` | axes that stay, and the slowest one of those that are joined or parted | the others of those |
//! | `cat`, `extract`, `insert` | axes of equal extents | the others |
//! | loops, branches | what is handed on | |

use tessera_ir::{Const, Func, Op, OpKind, ScheduleOp, Trait, Type, Value, ViewKind, bug};

use crate::tile::infer::carried;
use crate::tile::relation::{Relation, shape};
use tessera_analysis::exits::loop_exits;

/// A class of axes, by one of them.
pub(super) type Class = u32;

/// The classes of a function's axes.
#[derive(Clone, Debug)]
pub(super) struct Axes {
    /// The number of each value's first axis, by the value.
    first: Vec<u32>,
    /// For each axis another of its class, itself for the one that names it.
    parent: Vec<u32>,
    /// For each axis that names a class: the class is whole.
    whole: Vec<bool>,
    /// What reductions ask of the axis that they run along.
    reductions: Reductions,
}

/// What becomes of an axis that is reduced.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Reductions {
    /// All of it is needed at once.
    Whole,
    /// Its parts are reduced by themselves, and then their results.
    InParts,
}

impl Axes {
    /// The classes of a Schedule function.
    pub(super) fn of(func: &Func) -> Axes {
        Axes::under(func, Reductions::Whole)
    }

    /// The same where reductions are done so.
    pub(super) fn under(func: &Func, reductions: Reductions) -> Axes {
        let mut first = Vec::with_capacity(func.values.len());
        let mut count = 0;
        for value in func.values.ids() {
            first.push(count);
            count += rank(func, value) as u32;
        }
        let mut axes = Axes { first, parent: (0..count).collect(), whole: vec![false; count as usize], reductions };
        for op in func.linked_ops() {
            axes.operation(func, op);
        }
        // Cutting both axes of one tile would leave its diagonal.
        for value in func.values.ids() {
            for axis in 0..rank(func, value) {
                if (0..axis).any(|other| axes.class(value, other) == axes.class(value, axis)) {
                    axes.keep(value, axis);
                }
            }
        }
        axes
    }

    /// The class of a value's axis.
    pub(super) fn class(&self, value: Value, axis: usize) -> Class {
        let mut at = self.number(value, axis);
        while self.parent[at as usize] != at {
            at = self.parent[at as usize];
        }
        at
    }

    /// The class is needed whole.
    pub(super) fn is_whole(&self, class: Class) -> bool {
        self.whole[class as usize]
    }

    fn number(&self, value: Value, axis: usize) -> u32 {
        self.first[tessera_ir::EntityId::index(value)] + axis as u32
    }

    pub(super) fn join(&mut self, (a, of_a): (Value, usize), (b, of_b): (Value, usize)) {
        let (a, b) = (self.class(a, of_a), self.class(b, of_b));
        let (low, high) = (a.min(b), a.max(b));
        self.parent[high as usize] = low;
        self.whole[low as usize] |= self.whole[high as usize];
    }

    fn keep(&mut self, value: Value, axis: usize) {
        let class = self.class(value, axis);
        self.whole[class as usize] = true;
    }

    fn keep_all(&mut self, func: &Func, value: Value) {
        (0..rank(func, value)).for_each(|axis| self.keep(value, axis));
    }

    /// Two tiles have the same axes.
    fn same(&mut self, func: &Func, a: Value, b: Value) {
        if shape(func, a) == shape(func, b) {
            (0..rank(func, a)).for_each(|axis| self.join((a, axis), (b, axis)));
        } else {
            self.keep_all(func, a);
            self.keep_all(func, b);
        }
    }

    /// Two tiles have the same axes where their extents are equal; `apart` says whether the others are needed whole.
    fn where_equal(&mut self, func: &Func, a: Value, b: Value, apart: bool) {
        for axis in 0..rank(func, a).min(rank(func, b)) {
            if shape(func, a)[axis] == shape(func, b)[axis] {
                self.join((a, axis), (b, axis));
            } else if apart {
                self.keep(a, axis);
                self.keep(b, axis);
            }
        }
    }

    fn operation(&mut self, func: &Func, op: Op) {
        let data = &func.ops[op];
        let OpKind::Schedule(kind) = &data.kind else { return };
        match kind {
            ScheduleOp::Constant { value } => {
                if Const::splat_bits(value).is_none() {
                    self.keep_all(func, data.result());
                }
            }
            ScheduleOp::Iota {} => {}
            ScheduleOp::Broadcast {} => self.where_equal(func, data.one(0), data.result(), false),
            ScheduleOp::Reshape {} => self.reshape(func, data.one(0), data.result()),
            ScheduleOp::Permute { permutation } => {
                for (to, &from) in permutation.iter().enumerate() {
                    self.join((data.one(0), from as usize), (data.result(), to));
                }
            }
            ScheduleOp::Cat { dim } => {
                for side in [data.one(0), data.one(1)] {
                    self.where_equal(func, side, data.result(), true);
                    self.keep(side, *dim as usize);
                }
                self.keep(data.result(), *dim as usize);
            }
            ScheduleOp::Extract {} => self.where_equal(func, data.one(0), data.result(), true),
            ScheduleOp::Insert {} => {
                self.same(func, data.one(1), data.result());
                self.where_equal(func, data.one(0), data.result(), true);
            }
            ScheduleOp::MmaF { .. } | ScheduleOp::MmaI { .. } | ScheduleOp::MmaFScaled {} => self.product(func, op),
            ScheduleOp::Reduce { dim, .. } | ScheduleOp::Scan { dim, .. } => self.combined(func, op, *dim as usize),
            ScheduleOp::LoadViewTko { .. } => self.view(func, data.one(0), data.results[0], data.group(1)),
            ScheduleOp::StoreViewTko { .. } => self.view(func, data.one(1), data.one(0), data.group(2)),
            ScheduleOp::AtomicRedViewTko { .. } => self.view(func, data.one(0), data.one(2), data.group(1)),
            ScheduleOp::If {} => {
                for &region in &data.regions {
                    if let Some(&end) = func.blocks[region].ops.last()
                        && matches!(func.ops[end].kind, OpKind::Schedule(ScheduleOp::Yield {}))
                    {
                        self.handed(func, &func.ops[end].operands, &data.results);
                    }
                }
            }
            ScheduleOp::For { .. } | ScheduleOp::Loop {} => {
                let carried = carried(func, op);
                self.handed(func, data.group(data.segments.len() - 1), &carried);
                if matches!(kind, ScheduleOp::For { .. }) {
                    self.handed(func, &carried, &data.results);
                }
                for exit in loop_exits(func, op) {
                    let leaves = matches!(func.ops[exit].kind, OpKind::Schedule(ScheduleOp::Break {}));
                    self.handed(func, &func.ops[exit].operands, if leaves { &data.results } else { &carried });
                }
            }
            // Their operands are those of the operation that they end a region of.
            ScheduleOp::Yield {} | ScheduleOp::Continue {} | ScheduleOp::Break {} => {}
            _ if data.row().has(Trait::Elementwise) || Relation::of(func, op) == Relation::Same => {
                let mut tiles = data.operands.iter().chain(&data.results).copied().filter(|&value| rank(func, value) > 0);
                if let Some(first) = tiles.next() {
                    tiles.for_each(|other| self.same(func, first, other));
                }
            }
            ScheduleOp::Assert { .. } => {}
            _ => data.operands.iter().chain(&data.results).for_each(|&value| self.keep_all(func, value)),
        }
    }

    fn handed(&mut self, func: &Func, from: &[Value], to: &[Value]) {
        for (&from, &to) in from.iter().zip(to) {
            self.same(func, from, to);
        }
    }

    /// Axes of equal extents stay; of a group that is joined or parted the slowest on both sides are cut alike.
    fn reshape(&mut self, func: &Func, from: Value, to: Value) {
        let real = |value: Value| -> Vec<(usize, u64)> {
            shape(func, value).into_iter().enumerate().filter(|&(_, extent)| extent != 1).collect()
        };
        let (source, target) = (real(from), real(to));
        let (mut left, mut right) = (source.iter(), target.iter());
        while let (Some(&a), Some(&b)) = (left.next(), right.next()) {
            self.join((from, a.0), (to, b.0));
            let (mut of_a, mut of_b) = (a.1, b.1);
            while of_a != of_b {
                let shorter = if of_a < of_b { (&mut left, from, &mut of_a) } else { (&mut right, to, &mut of_b) };
                let Some(&(axis, extent)) = shorter.0.next() else { return };
                *shorter.2 *= extent;
                self.keep(shorter.1, axis);
            }
        }
    }

    fn product(&mut self, func: &Func, op: Op) {
        let data = &func.ops[op];
        let (lhs, rhs, acc) = (data.one(0), data.one(1), data.one(2));
        self.same(func, acc, data.result());
        let rank = rank(func, acc);
        for axis in 0..rank - 1 {
            self.join((lhs, axis), (acc, axis));
        }
        for axis in (0..rank).filter(|&axis| axis != rank - 2) {
            self.join((rhs, axis), (acc, axis));
        }
        self.keep(lhs, rank - 1);
        self.keep(rhs, rank - 2);
        if matches!(data.kind, OpKind::Schedule(ScheduleOp::MmaFScaled {})) {
            for (scale, factor) in [(data.one(3), lhs), (data.one(4), rhs)] {
                self.where_equal(func, scale, factor, true);
            }
        }
    }

    fn combined(&mut self, func: &Func, op: Op, dim: usize) {
        let data = &func.ops[op];
        let first = data.operands[0];
        data.operands[1..].iter().for_each(|&other| self.same(func, first, other));
        let stays = matches!(data.kind, OpKind::Schedule(ScheduleOp::Scan { .. }));
        for &result in &data.results {
            for axis in (0..rank(func, first)).filter(|&axis| axis != dim || stays) {
                let to = if axis > dim && !stays { axis - 1 } else { axis };
                self.join((first, axis), (result, to));
            }
        }
        if stays || self.reductions == Reductions::Whole {
            self.keep(first, dim);
        }
    }

    /// An access by a view: tiles that overlap are whole, unless they may begin anywhere.
    fn view(&mut self, func: &Func, view: Value, tile: Value, index: &[Value]) {
        let Type::TileView(ty) = func.ty(view) else { bug!("tiles of what is no view") };
        for axis in 0..rank(func, tile) {
            match &ty.kind {
                ViewKind::Partition => {}
                // A part of a tile begins at a whole number of steps, too.
                ViewKind::Strided(steps) if steps.get(axis) == ty.tile.get(axis) || steps.get(axis) == Some(&1) => {}
                ViewKind::Strided(_) => self.keep(tile, axis),
                ViewKind::GatherScatter { .. } => {
                    let index = index[axis];
                    if rank(func, index) > 0 {
                        self.join((index, 0), (tile, axis));
                    }
                }
            }
        }
    }
}

/// Axes of a tile; 0 for everything else.
pub(super) fn rank(func: &Func, value: Value) -> usize {
    func.ty(value).as_tile().map_or(0, |tile| tile.shape.len())
}
