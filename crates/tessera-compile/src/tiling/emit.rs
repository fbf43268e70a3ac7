//! Emission of the block program: tiles of values on demand, remembered while they are in scope.

use rustc_hash::{FxHashMap, FxHashSet};
use smallvec::SmallVec;
use tessera_ir::attrs::{CacheHint, GridAxis, MemoryOrder, Overflow, Rounding, Signedness};
use tessera_ir::{
    Axis, Block, Builder, Const, Def, Func, GraphOp, Level, Op, OpKind, Padding, ScheduleOp, Shape, TileCount, TileViewType,
    Type, Value, ViewKind, bug,
};
use tessera_types::DType;

use crate::tiling::operand::{Signature, tile};
use crate::tiling::plan::{Plan, holds_store, yielded};
use crate::tiling::{Grid, OperandFacts};

/// Where along an axis a tile lies: the tile's index, and its extent.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub(super) struct Coord {
    pub(super) index: Value,
    pub(super) extent: u32,
}

pub(super) type Coords = SmallVec<[Coord; 4]>;

pub(super) struct Emitter<'g> {
    pub(super) source: &'g Func,
    pub(super) func: Func,
    /// Where operations go.
    pub(super) block: Block,
    /// What stands before everything else: views and counts.
    prelude: Block,
    pub(super) signature: Signature,
    pub(super) plan: Plan,
    /// Tiles that were emitted already, by scope.
    pub(super) known: Vec<FxHashMap<(Value, Coords), Value>>,
    views: FxHashMap<(Value, Shape, bool), Value>,
    counts: FxHashMap<(Axis, u32), Value>,
    zero: Value,
}

/// Emits the block program that the plan describes.
pub(super) fn emit(source: &Func, plan: Plan, facts: &[Option<OperandFacts>]) -> (Func, Grid) {
    let mut func = Func::new(source.name.clone(), Level::Schedule, source.span);
    func.hints = source.hints.clone();
    func.config = source.config.clone();
    for name in ["num_warps", "num_stages"] {
        if let Some(value) = source.config.get(name).and_then(|&value| u32::try_from(value).ok()) {
            func.hints.set(name, value);
        }
    }
    let signature = Signature::build(source, &mut func, facts);
    let zero = Builder::new(&mut func).constant(Const::int(DType::I32, 0), Shape::new());
    let known = signature.scalars.iter().map(|&(from, to)| ((from, Coords::new()), to)).collect();
    let (prelude, block) = (func.body, func.new_block());
    let mut emitter = Emitter {
        source,
        func,
        block,
        prelude,
        signature,
        plan,
        known: vec![known],
        views: FxHashMap::default(),
        counts: FxHashMap::default(),
        zero,
    };
    let (coords, grid) = emitter.grid();
    emitter.statements(source.body, &coords);
    emitter.op(ScheduleOp::Return {}, &[], []);
    let Emitter { mut func, block, prelude, .. } = emitter;
    let rest = std::mem::take(&mut func.blocks[block].ops);
    func.blocks[prelude].ops.extend(rest);
    (func, grid)
}

impl Emitter<'_> {
    pub(super) fn build(&mut self) -> Builder<'_> {
        let (block, span) = (self.block, self.func.span);
        Builder { func: &mut self.func, block, span }
    }

    pub(super) fn op(&mut self, kind: ScheduleOp, groups: &[&[Value]], results: impl IntoIterator<Item = Type>) -> Op {
        self.build().op(kind, groups, results)
    }

    pub(super) fn value(&mut self, kind: ScheduleOp, operands: &[Value], ty: Type) -> Value {
        let groups: SmallVec<[&[Value]; 4]> = operands.iter().map(std::slice::from_ref).collect();
        self.build().value(kind, &groups, ty)
    }

    pub(super) fn constant(&mut self, value: Const, shape: Shape) -> Value {
        self.build().constant(value, shape)
    }

    /// Works in a block of its own, with what is known now and nothing of what becomes known there.
    pub(super) fn within<T>(&mut self, block: Block, work: impl FnOnce(&mut Self) -> T) -> T {
        let outer = std::mem::replace(&mut self.block, block);
        self.known.push(FxHashMap::default());
        let result = work(self);
        self.known.pop();
        self.block = outer;
        result
    }

    /// Works before everything else.
    fn early<T>(&mut self, work: impl FnOnce(&mut Self) -> T) -> T {
        let outer = std::mem::replace(&mut self.block, self.prelude);
        let result = work(self);
        self.block = outer;
        result
    }

    /// The only tile along an axis of extent 1.
    pub(super) fn unit(&self) -> Coord {
        Coord { index: self.zero, extent: 1 }
    }

    /// How many tiles of an extent an axis has.
    pub(super) fn count(&mut self, axis: &Axis, extent: u32) -> Value {
        if let Some(&count) = self.counts.get(&(axis.clone(), extent)) {
            return count;
        }
        let size = self.signature.sizes[axis];
        let count = self.early(|this| {
            let extent = this.constant(Const::int(DType::I32, i64::from(extent)), Shape::new());
            let kind = ScheduleOp::DivI { signedness: Signedness::Signed, rounding: Rounding::PositiveInf };
            this.value(kind, &[size, extent], Type::scalar(DType::I32))
        });
        self.counts.insert((axis.clone(), extent), count);
        count
    }

    /// Cuts the block's number into tile indices of the axes that the grid runs over.
    fn grid(&mut self) -> (Vec<(usize, Coord)>, Grid) {
        let source = self.source;
        let Some(first) = self.plan.first else { return (Vec::new(), Grid::default()) };
        let operand = source.ops[first].one(1);
        let axes = &source.ty(source.ops[first].one(0)).the_tensor().axes;
        let parallel = self.plan.parallel.clone();
        let mut grid = Grid::default();
        let mut coords: Vec<(usize, Coord)> = Vec::new();
        let scalar = Type::scalar(DType::I32);
        let mut rest: Option<Value> = None;
        for (i, &position) in parallel.iter().enumerate().rev() {
            let extent = self.plan.blocks.extent(axes, position);
            let id = match rest {
                Some(id) => id,
                None => self.value(ScheduleOp::GetTileBlockId { axis: GridAxis::X }, &[], scalar.clone()),
            };
            let index = if i == 0 {
                id
            } else {
                let count = self.count(&axes[position], extent);
                let signedness = Signedness::Signed;
                let quotient = ScheduleOp::DivI { signedness, rounding: Rounding::Zero };
                rest = Some(self.value(quotient, &[id, count], scalar.clone()));
                self.value(ScheduleOp::RemI { signedness }, &[id, count], scalar.clone())
            };
            coords.push((position, Coord { index, extent }));
            grid.tiles.push(TileCount { param: self.signature.operands[&operand].param, axis: position, tile: extent });
        }
        grid.tiles.reverse();
        (coords, grid)
    }

    /// Stores, and conditions around stores; everything else is emitted where a store needs it.
    fn statements(&mut self, block: Block, coords: &[(usize, Coord)]) {
        let source = self.source;
        for &op in &source.blocks[block].ops {
            let data = &source.ops[op];
            self.func.span = data.span;
            match &data.kind {
                OpKind::Graph(GraphOp::Store {}) => self.store(op, coords),
                OpKind::Schedule(ScheduleOp::If {}) if holds_store(source, op) => {
                    let condition = self.eval(data.one(0), &Coords::new());
                    let regions: SmallVec<[Block; 2]> = data
                        .regions
                        .iter()
                        .map(|&region| {
                            let target = self.func.new_block();
                            self.within(target, |this| {
                                this.statements(region, coords);
                                this.op(ScheduleOp::Yield {}, &[&[]], []);
                            });
                            target
                        })
                        .collect();
                    self.build().op_with_regions(ScheduleOp::If {}, &[&[condition]], [], regions);
                }
                _ => {}
            }
        }
        self.func.span = source.span;
    }

    /// One tile of a store for each block; axes that the grid does not run over become loops.
    fn store(&mut self, op: Op, grid: &[(usize, Coord)]) {
        let source = self.source;
        let data = &source.ops[op];
        let (value, operand) = (data.one(0), data.one(1));
        let axes = source.ty(value).the_tensor().axes.clone();
        let first_axes = self.plan.first.map(|first| &source.ty(source.ops[first].one(0)).the_tensor().axes);
        let is_first = self.plan.first == Some(op);
        let mut coords: SmallVec<[Option<Coord>; 4]> = SmallVec::from_elem(None, axes.len());
        for &(position, coord) in grid {
            let here = if is_first {
                Some(position)
            } else {
                first_axes.and_then(|first| axes.iter().position(|axis| *axis == first[position]))
            };
            if let Some(here) = here {
                coords[here] = Some(coord);
            }
        }
        for (position, axis) in axes.iter().enumerate() {
            if *axis == Axis::Fixed(1) {
                coords[position] = Some(self.unit());
            }
        }
        self.store_at(value, operand, &axes, coords);
    }

    fn store_at(&mut self, value: Value, operand: Value, axes: &[Axis], mut coords: SmallVec<[Option<Coord>; 4]>) {
        let Some(open) = coords.iter().position(Option::is_none) else {
            let coords: Coords = coords.into_iter().flatten().collect();
            let result = self.eval(value, &coords);
            let view = self.view(operand, &coords, false);
            let index: SmallVec<[Value; 4]> = coords.iter().map(|coord| coord.index).collect();
            let kind = ScheduleOp::StoreViewTko {
                order: MemoryOrder::Weak,
                scope: None,
                latency: None,
                allow_tma: None,
                inbounds: false,
                cache: CacheHint::Normal,
            };
            self.op(kind, &[&[result], &[view], &index, &[]], [Type::Token]);
            return;
        };
        self.prefetch(value, &coords);
        let extent = self.plan.blocks.extent(axes, open);
        self.over_tiles(&axes[open], extent, &[], |this, index, _| {
            coords[open] = Some(Coord { index, extent });
            this.store_at(value, operand, axes, coords);
            SmallVec::new()
        });
    }

    /// A loop over the tiles of an axis; the body takes the index and the carried values and gives the new ones.
    pub(super) fn over_tiles(
        &mut self,
        axis: &Axis,
        extent: u32,
        init: &[Value],
        body: impl FnOnce(&mut Self, Value, &[Value]) -> SmallVec<[Value; 4]>,
    ) -> SmallVec<[Value; 2]> {
        let (scalar, count) = (Type::scalar(DType::I32), self.count(axis, extent));
        let one = self.constant(Const::int(DType::I32, 1), Shape::new());
        let region = self.func.new_block();
        let index = self.func.add_arg(region, scalar, None);
        let types: SmallVec<[Type; 4]> = init.iter().map(|&value| self.func.ty(value).clone()).collect();
        let carried: SmallVec<[Value; 4]> = types.iter().map(|ty| self.func.add_arg(region, ty.clone(), None)).collect();
        self.within(region, |this| {
            let next = body(this, index, &carried);
            this.op(ScheduleOp::Continue {}, &[&next], []);
        });
        let groups: [&[Value]; 4] = [&[self.zero], &[count], &[one], init];
        let op = self.build().op_with_regions(ScheduleOp::For { unsigned: false, unroll: None }, &groups, types, [region]);
        self.func.ops[op].results.clone()
    }

    /// The tile of a value at coordinates; a scalar has none.
    pub(super) fn eval(&mut self, value: Value, coords: &Coords) -> Value {
        let key = (value, coords.clone());
        if let Some(&known) = self.known.iter().rev().find_map(|scope| scope.get(&key)) {
            return known;
        }
        let Def::Result(op, position) = self.source.values[value].def else { bug!("a tile of an argument") };
        let span = std::mem::replace(&mut self.func.span, self.source.ops[op].span);
        let result = self.compute(op, position as usize, value, coords);
        if self.func.values[result].name.is_none() {
            self.func.values[result].name = self.source.values[value].name.clone();
        }
        self.func.span = span;
        if let Some(scope) = self.known.last_mut() {
            scope.insert(key, result);
        }
        result
    }

    fn compute(&mut self, op: Op, position: usize, value: Value, coords: &Coords) -> Value {
        let source = self.source;
        let data = &source.ops[op];
        let kind = match &data.kind {
            OpKind::Graph(GraphOp::Load { transpose }) => return self.load(data.one(0), coords, *transpose),
            OpKind::Graph(GraphOp::Contract {}) => return self.contract(op, coords),
            OpKind::Graph(GraphOp::Reduce { axis, combine }) => return self.reduce(op, *axis as usize, *combine, coords),
            OpKind::Graph(GraphOp::Broadcast {}) => return self.broadcast(op, coords),
            OpKind::Graph(_) | OpKind::Tile(_) => {
                bug!("exchanges between ranks are refused by the plan, and a store has no value")
            }
            OpKind::Schedule(kind) => kind,
        };
        match kind {
            ScheduleOp::If {} => self.choose(op, value, coords),
            ScheduleOp::GetTensorShape {} => self.axis_size(data.one(0), position, source.ty(value)),
            _ => {
                let operands: SmallVec<[Value; 4]> = data.operands.iter().map(|&operand| self.operand(operand, coords)).collect();
                let ty = match source.ty(value) {
                    Type::Tensor(tensor) => tile(shape_of(coords), tensor.elem),
                    ty => ty.clone(),
                };
                self.value(kind.clone(), &operands, ty)
            }
        }
    }

    /// An operand of an elementwise operation: at the same place, or a scalar.
    fn operand(&mut self, operand: Value, coords: &Coords) -> Value {
        match self.source.ty(operand) {
            Type::Tensor(_) => self.eval(operand, coords),
            _ => self.eval(operand, &Coords::new()),
        }
    }

    fn axis_size(&mut self, operand: Value, position: usize, ty: &Type) -> Value {
        let Type::Operand(tensor) = self.source.ty(operand) else { bug!("sizes of what is no operand") };
        let size = self.signature.sizes[&tensor.axes[position]];
        if self.func.ty(size) == ty {
            return size;
        }
        self.value(ScheduleOp::ExtI { signedness: Signedness::Signed }, &[size], ty.clone())
    }

    /// The operand as tiles of these extents.
    fn view(&mut self, operand: Value, coords: &Coords, transpose: bool) -> Value {
        let tile_shape = shape_of(coords);
        let key = (operand, tile_shape.clone(), transpose);
        if let Some(&view) = self.views.get(&key) {
            return view;
        }
        let (array, tensor) = (self.signature.operands[&operand].view, self.signature.operands[&operand].ty.clone());
        let rank = tile_shape.len();
        let mut dim_map: SmallVec<[u32; 4]> = (0..rank as u32).collect();
        if transpose {
            dim_map.swap(rank - 1, rank - 2);
        }
        let ty = TileViewType { kind: ViewKind::Partition, tile: tile_shape, dim_map, padding: Padding::Zero, tensor };
        let view = self.early(|this| this.value(ScheduleOp::MakePartitionView {}, &[array], Type::TileView(Box::new(ty))));
        self.views.insert(key, view);
        view
    }

    fn load(&mut self, operand: Value, coords: &Coords, transpose: bool) -> Value {
        let view = self.view(operand, coords, transpose);
        let elem = self.signature.operands[&operand].ty.elem;
        let index: SmallVec<[Value; 4]> = coords.iter().map(|coord| coord.index).collect();
        let kind = ScheduleOp::LoadViewTko {
            order: MemoryOrder::Weak,
            scope: None,
            latency: None,
            allow_tma: None,
            inbounds: false,
            cache: CacheHint::Normal,
        };
        let op = self.op(kind, &[&[view], &index, &[]], [tile(shape_of(coords), elem), Type::Token]);
        self.func.ops[op].results[0]
    }

    fn choose(&mut self, op: Op, value: Value, coords: &Coords) -> Value {
        let condition = self.eval(self.source.ops[op].one(0), &Coords::new());
        let mut inner = FxHashSet::default();
        self.source.ops[op].regions.iter().for_each(|&region| defined(self.source, region, &mut inner));
        for choice in yielded(self.source, op, value) {
            self.before_condition(choice, coords, &inner);
        }
        let choices: SmallVec<[Value; 2]> = yielded(self.source, op, value).collect();
        let mut ty = self.source.ty(value).clone();
        let regions: SmallVec<[Block; 2]> = choices
            .into_iter()
            .map(|choice| {
                let region = self.func.new_block();
                ty = self.within(region, |this| {
                    let result = this.operand(choice, coords);
                    this.op(ScheduleOp::Yield {}, &[&[result]], []);
                    this.func.ty(result).clone()
                });
                region
            })
            .collect();
        let op = self.build().op_with_regions(ScheduleOp::If {}, &[&[condition]], [ty], regions);
        self.func.ops[op].result()
    }

    /// Emits what the function computes before a condition and a region of it only uses at the same place.
    fn before_condition(&mut self, value: Value, coords: &Coords, inner: &FxHashSet<Value>) {
        if !inner.contains(&value) {
            self.operand(value, coords);
            return;
        }
        let source = self.source;
        let Some(op) = source.defining_op(value) else { return };
        let data = &source.ops[op];
        match &data.kind {
            OpKind::Graph(GraphOp::Broadcast {}) => {
                let coords = self.broadcast_coords(data.one(0), coords);
                self.before_condition(data.one(0), &coords, inner);
            }
            OpKind::Graph(_) | OpKind::Tile(_) => {}
            OpKind::Schedule(ScheduleOp::If {}) => {
                self.before_condition(data.one(0), &Coords::new(), inner);
                yielded(source, op, value).for_each(|choice| self.before_condition(choice, coords, inner));
            }
            OpKind::Schedule(_) => {
                for &operand in &data.operands {
                    self.before_condition(operand, coords, inner);
                }
            }
        }
    }

    /// A scalar or a smaller tile, repeated.
    fn broadcast(&mut self, op: Op, coords: &Coords) -> Value {
        let from = self.source.ops[op].one(0);
        let inner = self.broadcast_coords(from, coords);
        let source = self.eval(from, &inner);
        self.spread(source, &shape_of(coords))
    }

    /// The coordinates of a broadcast's source: axes of extent 1 have one tile.
    pub(super) fn broadcast_coords(&self, from: Value, coords: &Coords) -> Coords {
        let Some(tensor) = self.source.ty(from).as_tensor() else { return Coords::new() };
        let skipped = coords.len() - tensor.axes.len();
        let pick = |(axis, coord): (&Axis, &Coord)| match axis {
            Axis::Fixed(1) => self.unit(),
            _ => *coord,
        };
        tensor.axes.iter().zip(&coords[skipped..]).map(pick).collect()
    }

    /// A tile with leading axes added and axes of extent 1 repeated.
    pub(super) fn spread(&mut self, value: Value, shape: &Shape) -> Value {
        let mut ty = self.func.ty(value).the_tile().clone();
        let mut value = value;
        if ty.shape.len() < shape.len() {
            let mut longer = Shape::from_elem(1, shape.len() - ty.shape.len());
            longer.extend_from_slice(&ty.shape);
            ty.shape = longer;
            value = self.value(ScheduleOp::Reshape {}, &[value], Type::Tile(ty.clone()));
        }
        if ty.shape != *shape {
            ty.shape = shape.clone();
            value = self.value(ScheduleOp::Broadcast {}, &[value], Type::Tile(ty));
        }
        value
    }

    /// Emits now what a value needs and what does not depend on the coordinates that are still open.
    pub(super) fn prefetch(&mut self, value: Value, coords: &[Option<Coord>]) {
        let Some(op) = self.source.defining_op(value) else { return };
        if let Some(all) = coords.iter().copied().collect::<Option<Coords>>() {
            self.eval(value, &all);
            return;
        }
        let source = self.source;
        let data = &source.ops[op];
        match &data.kind {
            // What stands under a condition stays there; whole-operand operations depend on the open axes themselves.
            OpKind::Schedule(ScheduleOp::If {}) => self.prefetch(data.one(0), &[]),
            OpKind::Graph(GraphOp::Broadcast {}) => {
                let from = data.one(0);
                let axes = source.ty(from).as_tensor().map_or(&[][..], |tensor| &tensor.axes);
                let skipped = coords.len() - axes.len();
                let inner: SmallVec<[Option<Coord>; 4]> = axes
                    .iter()
                    .zip(&coords[skipped..])
                    .map(|(axis, coord)| if *axis == Axis::Fixed(1) { Some(self.unit()) } else { *coord })
                    .collect();
                self.prefetch(from, &inner);
            }
            OpKind::Graph(_) | OpKind::Tile(_) => {}
            OpKind::Schedule(_) => {
                for &operand in &data.operands {
                    let inner = if source.ty(operand).as_tensor().is_some() { coords } else { &[] };
                    self.prefetch(operand, inner);
                }
            }
        }
    }
}

/// Every value that a region defines.
fn defined(func: &Func, block: Block, found: &mut FxHashSet<Value>) {
    for &op in &func.blocks[block].ops {
        found.extend(&func.ops[op].results);
        func.ops[op].regions.iter().for_each(|&region| defined(func, region, found));
    }
}

/// The extents of a tile at coordinates.
pub(super) fn shape_of(coords: &[Coord]) -> Shape {
    coords.iter().map(|coord| coord.extent).collect()
}

/// A wrapping integer operation's attribute.
pub(super) const WRAPS: Overflow = Overflow::Wraps;
