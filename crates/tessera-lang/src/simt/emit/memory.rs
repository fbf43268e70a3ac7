//! Elements of arrays: addresses, loads, stores, atomic updates, asynchronous copies.

use smallvec::SmallVec;
use tessera_ir::attrs::{Assumption, AtomicMode, CacheHint, MemoryOrder, MemoryScope};
use tessera_ir::{IndexType, ParamKind, ScheduleOp, Shape, TileOp, Type, Value};
use tessera_types::DType;

use super::{Emit, Home};
use crate::lower::{Arith, FloatMode, Res, tile_type};
use crate::simt::program::{Expression, ExpressionKind, Memory, Place, Statement};
use crate::value::Tile;

/// Calls with every place that statements name.
pub(super) fn each_place(list: &[Statement], visit: &mut impl FnMut(&Place)) {
    fn value(expression: &Expression, visit: &mut impl FnMut(&Place)) {
        match &expression.kind {
            ExpressionKind::Load(place) => at(place, visit),
            ExpressionKind::Unary(_, x)
            | ExpressionKind::Convert(x)
            | ExpressionKind::Bits(x)
            | ExpressionKind::WarpReduce(_, x)
            | ExpressionKind::MatchAny(_, x)
            | ExpressionKind::Popcount(x) => value(x, visit),
            ExpressionKind::Binary(_, a, b) => {
                value(a, visit);
                value(b, visit);
            }
            ExpressionKind::Fma(parts) | ExpressionKind::Select(parts) => parts.iter().for_each(|part| value(part, visit)),
            ExpressionKind::Shuffle(_, parts) => parts.iter().for_each(|part| value(part, visit)),
            ExpressionKind::Atomic(_, place, x) => {
                at(place, visit);
                value(x, visit);
            }
            ExpressionKind::CompareSwap(place, parts) => {
                at(place, visit);
                parts.iter().for_each(|part| value(part, visit));
            }
            ExpressionKind::Constant(_)
            | ExpressionKind::Local(_)
            | ExpressionKind::Scalar(_)
            | ExpressionKind::Size(..)
            | ExpressionKind::Identity(_) => {}
        }
    }
    fn at(place: &Place, visit: &mut impl FnMut(&Place)) {
        visit(place);
        place.index.iter().for_each(|index| value(index, visit));
    }
    for statement in list {
        match statement {
            Statement::Assign(_, x) | Statement::Evaluate(x) | Statement::FragmentFill(_, x) => value(x, visit),
            Statement::Store(place, x) => {
                at(place, visit);
                value(x, visit);
            }
            Statement::If { test, body, orelse } => {
                value(test, visit);
                each_place(body, visit);
                each_place(orelse, visit);
            }
            Statement::For { start, stop, step, body, .. } => {
                [start, stop, step].into_iter().for_each(|bound| value(bound, visit));
                each_place(body, visit);
            }
            Statement::While { before, test, body } => {
                each_place(before, visit);
                value(test, visit);
                each_place(body, visit);
            }
            Statement::CopyAsync { destination, source, .. } => {
                at(destination, visit);
                at(source, visit);
            }
            Statement::FragmentLoad(_, place) | Statement::FragmentStore(place, _) => at(place, visit),
            Statement::Break
            | Statement::Continue
            | Statement::Return
            | Statement::Barrier(_)
            | Statement::CommitGroup
            | Statement::WaitGroup(_)
            | Statement::FragmentMma(..)
            | Statement::FragmentMmaSparse { .. } => {}
        }
    }
}

impl Emit<'_> {
    /// The pointer to an element of an array in global memory.
    fn pointer(&mut self, place: &Place) -> Res<Value> {
        let index = place.index.iter().map(|index| self.value(index)).collect::<Res<SmallVec<[Tile; 4]>>>()?;
        self.pointer_at(place, &index)
    }

    /// The pointer to the element at an index that was computed.
    pub(super) fn pointer_at(&mut self, place: &Place, index: &[Tile]) -> Res<Value> {
        match place.memory {
            Memory::Param(param) => self.pointer_into(param, place, index),
            Memory::Addressed(position) => self.pointer_behind(position, place, index),
            Memory::Allocation(_) => Err(self.broken("an address of memory that has none", place.span)),
        }
    }

    /// Makes pointers of an address that a variable was just set to.
    pub(super) fn addressed(&mut self, local: usize, address: Value) {
        for (position, own) in self.kernel.addressed.iter().enumerate().filter(|(_, own)| own.local == local) {
            let ty = Type::pointers(Shape::new(), own.dtype.signless());
            let base = self.walk.emit_value(ScheduleOp::IntToPtr {}, &[&[address]], ty.clone());
            let predicate = Assumption::DivisibleBy(u64::from(own.align));
            self.addresses[position] = Some(self.walk.emit_value(ScheduleOp::Assume { predicate }, &[&[base]], ty));
        }
    }

    /// The pointer to an element behind an address.
    fn pointer_behind(&mut self, position: usize, place: &Place, index: &[Tile]) -> Res<Value> {
        let base = self.addresses[position].ok_or_else(|| self.broken("an address that is not known", place.span))?;
        let [at] = index else { return Err(self.broken("an index of several axes", place.span)) };
        self.walk.span = place.span;
        let ty = self.walk.func.ty(base).clone();
        let dtype = if at.dtype.bits() > 32 { DType::I64 } else { DType::I32 };
        let at = self.walk.convert(at.clone(), dtype, None, place.span)?;
        Ok(self.walk.emit_value(ScheduleOp::Offset {}, &[&[base], &[at.value]], ty))
    }

    fn pointer_into(&mut self, param: usize, place: &Place, index: &[Tile]) -> Res<Value> {
        let ParamKind::Array { index: own, shape, .. } = &self.kernel.abi.params[param].kind else {
            return Err(self.broken("an array without an interface", place.span));
        };
        let (own, rank, span) = (*own, shape.len(), place.span);
        let Some(base) = self.bases[param] else { return Err(self.broken("an array without an address", span)) };
        self.walk.span = span;
        let wide = own == IndexType::I64 || index.iter().any(|tile| tile.dtype.bits() > 32);
        let dtype = if wide { DType::I64 } else { DType::I32 };
        let plain = FloatMode::default();
        let mut offset: Option<Tile> = None;
        for (axis, tile) in index.iter().enumerate() {
            let mut part = self.walk.convert(tile.clone(), dtype, None, span)?;
            if !self.unit_stride(param, axis) {
                let stride =
                    Tile { value: self.argument(param, 1 + rank + axis), dtype: own.dtype(), shape: Shape::new(), known: None };
                let stride = self.walk.convert(stride, dtype, None, span)?;
                part = self.walk.arith_tiles(Arith::Mul, &part, &stride, plain, span)?;
            }
            offset = Some(match offset {
                Some(sum) => self.walk.arith_tiles(Arith::Add, &sum, &part, plain, span)?,
                None => part,
            });
        }
        let Some(offset) = offset else { return Ok(base) };
        let ty = self.walk.func.ty(base).clone();
        Ok(self.walk.emit_value(ScheduleOp::Offset {}, &[&[base], &[offset.value]], ty))
    }

    /// The buffer that an allocation is, and the index of an element.
    fn element(&mut self, position: usize, place: &Place) -> Res<(Value, Vec<Value>)> {
        let index = place.index.iter().map(|index| self.value(index)).collect::<Res<Vec<Tile>>>()?;
        self.element_at(position, place, &index)
    }

    /// The same for an index that was computed.
    pub(super) fn element_at(&mut self, position: usize, place: &Place, tiles: &[Tile]) -> Res<(Value, Vec<Value>)> {
        let mut index = Vec::new();
        for tile in tiles {
            let dtype = if tile.dtype.bits() > 32 { DType::I64 } else { DType::I32 };
            index.push(self.walk.convert(tile.clone(), dtype, None, place.span)?.value);
        }
        self.walk.span = place.span;
        match &self.homes[position] {
            Home::Memory(buffer) => Ok((*buffer, index)),
            Home::Apart(_) => Err(self.broken("an element that is a variable", place.span)),
        }
    }

    /// An element's value.
    pub(super) fn load(&mut self, place: &Place) -> Res<Value> {
        if let Some(local) = self.variable_at(place) {
            return self.locals[local].ok_or_else(|| self.broken("an element without a value", place.span));
        }
        let ty = tile_type(place.dtype, &[]);
        match place.memory {
            Memory::Param(_) | Memory::Addressed(_) => {
                let pointer = self.pointer(place)?;
                Ok(self.load_from(pointer, place))
            }
            Memory::Allocation(position) => {
                let (buffer, index) = self.element(position, place)?;
                Ok(self.tile_value(TileOp::LoadElement {}, &[&[buffer], &index], ty))
            }
        }
    }

    /// What a pointer points to.
    pub(super) fn load_from(&mut self, pointer: Value, place: &Place) -> Value {
        let kind = ScheduleOp::LoadPtrTko { order: place.order, scope: place.scope, latency: None, cache: CacheHint::Normal };
        let op = self.walk.emit(kind, &[&[pointer], &[], &[], &[]], [tile_type(place.dtype, &[]), Type::Token]);
        self.walk.func.ops[op].results[0]
    }

    pub(super) fn store_to_memory(&mut self, place: &Place, value: Value) -> Res<()> {
        match place.memory {
            Memory::Param(_) | Memory::Addressed(_) => {
                let pointer = self.pointer(place)?;
                self.store_through(pointer, place, value);
            }
            Memory::Allocation(position) => {
                let (buffer, index) = self.element(position, place)?;
                let relaxed = place.order == MemoryOrder::Relaxed;
                self.tile_op(TileOp::StoreElement { relaxed }, &[&[value], &[buffer], &index], []);
            }
        }
        Ok(())
    }

    pub(super) fn store_through(&mut self, pointer: Value, place: &Place, value: Value) {
        let kind = ScheduleOp::StorePtrTko { order: place.order, scope: place.scope, latency: None, cache: CacheHint::Normal };
        self.walk.emit(kind, &[&[pointer], &[value], &[], &[]], [Type::Token]);
    }

    /// An atomic update; the old element.
    pub(super) fn update(&mut self, mode: AtomicMode, place: &Place, value: Value) -> Res<Value> {
        let ty = tile_type(place.dtype, &[]);
        match place.memory {
            Memory::Param(_) | Memory::Addressed(_) => {
                let pointer = self.pointer(place)?;
                let scope = place.scope.unwrap_or(MemoryScope::Device);
                let kind = ScheduleOp::AtomicRmwTko { order: place.order, scope, mode };
                let op = self.walk.emit(kind, &[&[pointer], &[value], &[], &[]], [ty, Type::Token]);
                Ok(self.walk.func.ops[op].results[0])
            }
            Memory::Allocation(position) => {
                let (buffer, index) = self.element(position, place)?;
                Ok(self.tile_value(TileOp::AtomicElement { mode }, &[&[value], &[buffer], &index], ty))
            }
        }
    }

    /// An atomic compare and swap; the old element.
    pub(super) fn compare_swap(&mut self, place: &Place, expected: Value, desired: Value) -> Res<Value> {
        let ty = tile_type(place.dtype, &[]);
        match place.memory {
            Memory::Param(_) | Memory::Addressed(_) => {
                let pointer = self.pointer(place)?;
                let scope = place.scope.unwrap_or(MemoryScope::Device);
                let kind = ScheduleOp::AtomicCasTko { order: place.order, scope };
                let op = self.walk.emit(kind, &[&[pointer], &[expected], &[desired], &[], &[]], [ty, Type::Token]);
                Ok(self.walk.func.ops[op].results[0])
            }
            Memory::Allocation(position) => {
                let (buffer, index) = self.element(position, place)?;
                Ok(self.tile_value(TileOp::AtomicCasElement {}, &[&[expected], &[desired], &[buffer], &index], ty))
            }
        }
    }

    /// Begins a copy of `count` elements that lie in a row.
    pub(super) fn copy_async(&mut self, destination: &Place, source: &Place, count: u32) -> Res<()> {
        let Memory::Allocation(position) = destination.memory else {
            return Err(self.broken("a copy between other places", source.span));
        };
        let pointer = self.pointer(source)?;
        let (buffer, index) = self.element(position, destination)?;
        let bytes = count * source.dtype.signless().bits() / 8;
        self.tile_op(TileOp::CopyAsyncElement { bytes }, &[&[pointer], &[buffer], &index], []);
        Ok(())
    }
}
