//! Loops, conditions, and the values that they carry.

use smallvec::SmallVec;
use tessera_ir::{EntityId, Op, OpKind, ScheduleOp, Type, Value};

use super::expr::{ExprKind, Wanted};
use super::order::{is_fence, touched};
use super::{Builder, Built, Val, element_bytes};
use crate::plan::{Fetch, Inst, Place, Reg};

/// Where a carried value stands.
#[derive(Clone, Debug)]
pub(super) enum Dest {
    Reg(Reg),
    Tile { place: Place, len: usize, bytes: u8 },
    View(SmallVec<[Reg; 9]>),
    Token,
}

/// Targets of the exits of a region.
#[derive(Clone, Debug)]
pub(super) struct LoopFrame {
    /// Where the next round's values go; `None` for the regions of `if`.
    carried: Option<Vec<Dest>>,
    results: Vec<Dest>,
    is_if: bool,
}

impl Builder<'_> {
    fn dest(&mut self, ty: &Type) -> Built<Dest> {
        Ok(match ty {
            Type::Tile(tile) if tile.shape.is_empty() => Dest::Reg(self.register()),
            Type::Tile(tile) => {
                let bytes = element_bytes(tile.elem);
                Dest::Tile { place: self.buffer(tile.len(), bytes as usize), len: tile.len(), bytes }
            }
            Type::TensorView(view) => Dest::View((0..1 + 2 * view.shape.len()).map(|_| self.register()).collect()),
            Type::TileView(view) => Dest::View((0..1 + 2 * view.tensor.shape.len()).map(|_| self.register()).collect()),
            Type::Token => Dest::Token,
            Type::Tensor(_) | Type::Operand(_) => return Err(self.refuse("cpu-type", "whole operands can't be carried")),
            Type::Distributed(_) | Type::InFlight(_) | Type::Shared(_) | Type::Registers(_) | Type::Ring(_) | Type::Cursor => {
                return Err(self.refuse("cpu-type", "tiles with layouts are executed in lock-step"));
            }
        })
    }

    fn bind_dest(&mut self, value: Value, dest: &Dest) {
        let val = match dest {
            Dest::Reg(reg) => Val::Reg(*reg),
            Dest::Tile { place, len, bytes } => Val::Tile { expr: self.place_expr(*place, *len, *bytes), wide: false },
            Dest::View(registers) => Val::View(registers.clone()),
            Dest::Token => Val::Token,
        };
        self.bind(value, val);
    }

    /// Copies values to where they are carried, all at once: no copy sees the result of another.
    fn carry(&mut self, values: &[Value], dests: &[Dest]) -> Built<()> {
        if values.len() != dests.len() {
            return Err(self.refuse("cpu-carried", "a region ends with another number of values than its operation carries"));
        }
        let mut moves: Vec<(Reg, Reg)> = Vec::new();
        let mut tiles = Vec::new();
        for (&value, dest) in values.iter().zip(dests) {
            match dest {
                Dest::Reg(dst) => moves.push((*dst, self.reg(value)?)),
                Dest::View(registers) => {
                    let src = self.view(value)?;
                    moves.extend(registers.iter().copied().zip(src));
                }
                Dest::Tile { place, len, bytes } => {
                    let lane = self.raw(value)?;
                    tiles.push((self.lane_expr(lane, *len, *bytes), *place, *len * *bytes as usize));
                }
                Dest::Token => {}
            }
        }
        // A value that reads the place of another is evaluated before that is overwritten.
        for i in 0..tiles.len() {
            let (expr, own, _) = tiles[i];
            let clash = tiles.iter().enumerate().any(|(j, &(_, place, _))| {
                let (reads, flat) = self.reads_place(expr, place);
                reads && (i != j || !flat) && !(place == own && self.is_place(expr, own))
            });
            if clash {
                let place = match self.exprs[expr.index()].kind {
                    ExprKind::Fetch(Fetch::Place(source)) => {
                        let copy = self.buffer(self.exprs[expr.index()].len, self.exprs[expr.index()].bytes as usize);
                        self.copy(copy, source, tiles[i].2);
                        copy
                    }
                    _ => self.evaluated_here(expr),
                };
                let (len, bytes) = (self.exprs[expr.index()].len, self.exprs[expr.index()].bytes);
                tiles[i].0 = self.place_expr(place, len, bytes);
            }
        }
        for (expr, place, bytes) in tiles {
            match self.exprs[expr.index()].kind {
                ExprKind::Fetch(Fetch::Place(source)) if source == place => {}
                ExprKind::Fetch(Fetch::Place(source)) => self.copy(place, source, bytes),
                _ => self.run_into(expr, place),
            }
        }
        let clash = moves.iter().any(|&(_, src)| moves.iter().any(|&(dst, _)| dst == src));
        if clash {
            for (_, src) in &mut moves {
                let copy = self.register();
                self.emit(Inst::Move { dst: copy, src: *src });
                *src = copy;
            }
        }
        for (dst, src) in moves {
            if dst != src {
                self.emit(Inst::Move { dst, src });
            }
        }
        Ok(())
    }

    fn is_place(&self, expr: super::expr::ExprId, place: Place) -> bool {
        matches!(self.exprs[expr.index()].kind, ExprKind::Fetch(Fetch::Place(p)) if p == place)
    }

    /// Evaluates into a new place, whatever the expression is.
    fn evaluated_here(&mut self, expr: super::expr::ExprId) -> Place {
        let (len, bytes) = (self.exprs[expr.index()].len, self.exprs[expr.index()].bytes);
        let place = self.buffer(len, bytes as usize);
        self.run(vec![Wanted::Place(expr, place)]);
        place
    }

    pub(super) fn copy(&mut self, dst: Place, src: Place, bytes: usize) {
        self.touch(dst);
        self.touch(src);
        self.emit(Inst::Copy { dst, src, bytes });
    }

    /// Evaluates what the regions of an operation use, and what their writes may disturb.
    fn before_regions(&mut self, op: Op) -> Built<()> {
        let func = self.func;
        let mut stack: Vec<_> = func.ops[op].regions.to_vec();
        let mut used: Vec<Value> = Vec::new();
        let (mut writes, mut fenced) = (Vec::new(), false);
        while let Some(block) = stack.pop() {
            for &inner in &func.blocks[block].ops {
                let data = &func.ops[inner];
                used.extend_from_slice(&data.operands);
                stack.extend_from_slice(&data.regions);
                if let Some((place, order, is_write)) = touched(func, inner) {
                    fenced |= is_fence(order);
                    writes.extend(is_write.then(|| self.origin_ahead(place)));
                }
            }
        }
        for value in used {
            let Some(Val::Tile { expr, .. }) = self.values[value.index()] else { continue };
            if !self.is_free(expr) {
                self.evaluated(expr);
            }
        }
        writes.into_iter().for_each(|written| self.before_write(written));
        if fenced {
            self.before_fence();
        }
        Ok(())
    }

    /// The argument that a pointer or view comes from, before the operations between were visited.
    fn origin_ahead(&self, value: Value) -> Option<u16> {
        let mut value = value;
        loop {
            if let Some(origin) = self.origins[value.index()] {
                return Some(origin);
            }
            let op = self.func.defining_op(value)?;
            let data = &self.func.ops[op];
            let OpKind::Schedule(kind) = &data.kind else { return None };
            value = match kind {
                ScheduleOp::Offset {}
                | ScheduleOp::Broadcast {}
                | ScheduleOp::Reshape {}
                | ScheduleOp::Permute { .. }
                | ScheduleOp::PtrToPtr {}
                | ScheduleOp::Assume { .. }
                | ScheduleOp::MakeTensorView {}
                | ScheduleOp::MakePartitionView {}
                | ScheduleOp::MakeStridedView {}
                | ScheduleOp::MakeGatherScatterView {} => data.operands[0],
                _ => return None,
            };
        }
    }

    /// Visits a block's operations, as a region of its own.
    fn region(&mut self, block: tessera_ir::Block) -> Built<Vec<Inst>> {
        let outer = self.region;
        self.regions += 1;
        self.region = self.regions;
        self.code.push(Vec::new());
        let result = self.block(block);
        self.region = outer;
        let code = self.code.pop().unwrap_or_default();
        result.map(|()| code)
    }

    /// Visits a block's operations.
    pub(super) fn block(&mut self, block: tessera_ir::Block) -> Built<()> {
        let func = self.func;
        for &op in &func.blocks[block].ops {
            self.visit(op)?;
        }
        Ok(())
    }

    /// Visits a loop or a condition.
    pub(super) fn visit_control(&mut self, op: Op) -> Built<()> {
        let func = self.func;
        let data = &func.ops[op];
        if self.strips {
            return Err(self.refuse("cpu-region", "a loop or condition can't stand in the region of a reduction or scan"));
        }
        if self.options.fuse && self.visit_product(op)? {
            return Ok(());
        }
        self.span = data.span;
        self.before_regions(op)?;
        let OpKind::Schedule(kind) = &data.kind else { return Ok(()) };
        let span = data.span;
        match kind {
            ScheduleOp::If {} => {
                let condition = self.reg(data.one(0))?;
                let mut results = Vec::new();
                for &result in &data.results {
                    results.push(self.dest(func.ty(result))?);
                }
                self.frames.push(LoopFrame { carried: None, results: results.clone(), is_if: true });
                // The instruction's own number comes before those of its regions.
                self.position += 1;
                let then = self.region(data.regions[0])?;
                let other = self.region(data.regions[1])?;
                self.frames.pop();
                self.span = span;
                self.emit(Inst::If { op, condition, then, other, span });
                for (&result, dest) in data.results.iter().zip(&results) {
                    self.bind_dest(result, dest);
                }
            }
            ScheduleOp::For { unsigned, .. } => {
                let region = data.regions[0];
                let args = &func.blocks[region].args;
                if args.len() != data.group(3).len() + 1 {
                    return Err(self.refuse("cpu-carried", "the loop's region takes another number of values than it carries"));
                }
                let (lower, upper, step) = (self.reg(data.one(0))?, self.reg(data.one(1))?, self.reg(data.one(2))?);
                let bytes = element_bytes(self.tile_type(data.one(0))?.elem);
                let counter = self.register();
                let mut carried = Vec::new();
                for &arg in &args[1..] {
                    carried.push(self.dest(func.ty(arg))?);
                }
                self.carry(data.group(3), &carried)?;
                self.position += 1;
                let start = self.position;
                self.values[args[0].index()] = Some(Val::Reg(counter));
                self.frames.push(LoopFrame { carried: Some(carried.clone()), results: carried.clone(), is_if: false });
                let region_before = self.regions + 1;
                for (&arg, dest) in args[1..].iter().zip(&carried) {
                    self.bind_in(region_before, arg, dest);
                }
                let body = self.region(region)?;
                self.frames.pop();
                self.span = span;
                self.position += 1;
                self.loops.push((start, self.position));
                self.emit(Inst::For { counter, lower, upper, step, bytes, unsigned: *unsigned, body, op, span });
                for (&result, dest) in data.results.iter().zip(&carried) {
                    self.bind_dest(result, dest);
                    self.touch_dest(dest);
                }
            }
            _ => {
                let region = data.regions[0];
                let args = &func.blocks[region].args;
                let mut carried = Vec::new();
                for &arg in args {
                    carried.push(self.dest(func.ty(arg))?);
                }
                let mut results = Vec::new();
                for &result in &data.results {
                    results.push(self.dest(func.ty(result))?);
                }
                self.carry(data.group(0), &carried)?;
                self.position += 1;
                let start = self.position;
                self.frames.push(LoopFrame { carried: Some(carried.clone()), results: results.clone(), is_if: false });
                let region_before = self.regions + 1;
                for (&arg, dest) in args.iter().zip(&carried) {
                    self.bind_in(region_before, arg, dest);
                }
                let body = self.region(region)?;
                self.frames.pop();
                self.span = span;
                self.position += 1;
                self.loops.push((start, self.position));
                self.emit(Inst::Loop { body, op, span });
                for (&result, dest) in data.results.iter().zip(&results) {
                    self.bind_dest(result, dest);
                    self.touch_dest(dest);
                }
            }
        }
        Ok(())
    }

    fn touch_dest(&mut self, dest: &Dest) {
        if let Dest::Tile { place, .. } = dest {
            self.touch(*place);
        }
    }

    /// Binds a region's argument so that its expression belongs to that region.
    fn bind_in(&mut self, region: u32, value: Value, dest: &Dest) {
        let outer = self.region;
        self.region = region;
        self.bind_dest(value, dest);
        self.region = outer;
    }

    /// Visits an operation that ends a region.
    pub(super) fn visit_exit(&mut self, op: Op) -> Built<()> {
        let func = self.func;
        let data = &func.ops[op];
        let OpKind::Schedule(kind) = &data.kind else { return Ok(()) };
        match kind {
            ScheduleOp::Return {} => self.emit(Inst::Return),
            ScheduleOp::Yield {} => {
                let Some(frame) = self.frames.last() else {
                    return Err(self.refuse("cpu-exit", "`yield` stands outside a region"));
                };
                let results = frame.results.clone();
                self.carry(data.group(0), &results)?;
            }
            ScheduleOp::Continue {} => {
                let nested = self.frames.last().is_some_and(|frame| frame.is_if);
                let Some(carried) = self.frames.iter().rev().find_map(|frame| frame.carried.clone()) else {
                    return Err(self.refuse("cpu-exit", "`continue` stands outside a loop"));
                };
                self.carry(data.group(0), &carried)?;
                if nested {
                    self.emit(Inst::Continue);
                }
            }
            _ => {
                let Some(results) = self.frames.iter().rev().find(|f| f.carried.is_some()).map(|f| f.results.clone()) else {
                    return Err(self.refuse("cpu-exit", "`break` stands outside a loop"));
                };
                self.carry(data.group(0), &results)?;
                self.emit(Inst::Break);
            }
        }
        Ok(())
    }
}
