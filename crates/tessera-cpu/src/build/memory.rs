//! Views, loads, stores and atomics.

use smallvec::{SmallVec, smallvec};
use tessera_ir::attrs::{AtomicMode, MemoryOrder};
use tessera_ir::{Elem, EntityId, Extent, OpData, Padding, TileViewType, Type, Value, ViewKind};
use tessera_types::DType;

use super::expr::{ExprId, Wanted};
use super::order::{Ordered, is_fence};
use super::{Builder, Built, Lane, Val, element_bytes};
use crate::plan::{Access, Axis, Fetch, Inst, Reg, Sink};

/// Whether an atomic update only happens where memory holds an expected value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Compares {
    No,
    Yes,
}

/// The bits of a padding value; `None` where they are open.
fn padding_bits(padding: Padding, dtype: DType) -> Option<u64> {
    (padding != Padding::Undetermined).then(|| padding.bits(dtype))
}

impl Builder<'_> {
    fn view_type(&self, value: Value) -> Built<&TileViewType> {
        match self.func.ty(value) {
            Type::TileView(view) => Ok(view),
            _ => Err(self.refuse("cpu-type", "a view of tiles was expected")),
        }
    }

    /// The memory of a view's tile at an index.
    pub(super) fn access(&mut self, view: Value, index: &[Value]) -> Built<Access> {
        let registers = self.view(view)?;
        let ty = self.view_type(view)?.clone();
        let rank = ty.tensor.shape.len();
        if index.len() != ty.tile.len()
            || ty.dim_map.len() != ty.tile.len()
            || ty.dim_map.iter().any(|&axis| axis as usize >= rank)
        {
            return Err(self.refuse("cpu-type", "the index has another rank than the view's tiles"));
        }
        let mut axes: SmallVec<[Axis; 4]> = SmallVec::new();
        for (position, &value) in index.iter().enumerate() {
            let dim = ty.dim_map[position] as usize;
            let extent = ty.tile[position] as usize;
            let step = match &ty.kind {
                ViewKind::Partition => i64::from(ty.tile[position]),
                ViewKind::Strided(steps) => steps.get(position).map_or(1, |&step| i64::from(step)),
                ViewKind::GatherScatter { .. } => 1,
            };
            let (size, stride) = (registers[1 + dim], registers[1 + rank + dim]);
            let is_scalar = self.func.ty(value).is_scalar();
            let axis = if is_scalar {
                Axis { extent, size, stride, index: self.extended(value)?, step, gather: None }
            } else {
                let bytes = element_bytes(self.tile_type(value)?.elem);
                let place = self.stored(value)?;
                if self.tile_type(value)?.len() != extent {
                    return Err(self.refuse("cpu-type", "the index tile has another length than the view's tile"));
                }
                let index = self.constant(0);
                Axis { extent, size, stride, index, step: 1, gather: Some((place, bytes)) }
            };
            axes.push(axis);
        }
        let dtype = ty.tensor.elem;
        Ok(Access {
            base: registers[0],
            axes,
            dtype,
            bytes: dtype.unpacked_bytes() as u8,
            padding: padding_bits(ty.padding, dtype),
            inbounds: false,
            strong: false,
            origin: self.origin(view),
            op: self.op,
            span: self.span,
        })
    }

    fn size_register(&mut self, extent: Extent, dynamic: &mut std::slice::Iter<'_, Value>) -> Built<Reg> {
        match extent {
            Extent::Static(value) => Ok(self.constant(value as u64)),
            Extent::Dynamic => match dynamic.next() {
                Some(&value) => self.extended(value),
                None => Err(self.refuse("cpu-type", "the view's type leaves more open than its operands say")),
            },
        }
    }

    /// So many elements of a value, as they are stored.
    fn stored_expr(&mut self, value: Value, len: usize) -> Built<ExprId> {
        let bytes = element_bytes(self.tile_type(value)?.elem);
        let lane = self.raw(value)?;
        Ok(self.lane_expr(lane, len, bytes))
    }

    fn optional_expr(&mut self, value: Option<Value>, len: usize) -> Built<Option<ExprId>> {
        value.map(|value| self.stored_expr(value, len)).transpose()
    }

    fn pointee(&self, value: Value) -> Built<DType> {
        match self.tile_type(value)?.elem {
            Elem::Ptr(to) if to.bits() >= 8 || to.is_byte_bool() => Ok(to),
            Elem::Ptr(to) => {
                let message = format!("memory of `{to}` can't be reached by pointers: its elements share bytes; use a view");
                Err(self.refuse("cpu-packed-pointer", message))
            }
            Elem::Num(_) => Err(self.refuse("cpu-type", "a pointer was expected")),
        }
    }

    pub(super) fn tensor_view(&mut self, data: &OpData) -> Built<()> {
        let Type::TensorView(ty) = self.func.ty(data.result()) else {
            return Err(self.refuse("cpu-type", "a view of an array was expected"));
        };
        let mut registers: SmallVec<[Reg; 9]> = smallvec![self.reg(data.one(0))?];
        let mut sizes = data.group(1).iter();
        for &extent in &ty.shape {
            registers.push(self.size_register(extent, &mut sizes)?);
        }
        let mut strides = data.group(2).iter();
        for &extent in &ty.strides {
            registers.push(self.size_register(extent, &mut strides)?);
        }
        self.origins[data.result().index()] = self.origin(data.one(0));
        self.bind(data.result(), Val::View(registers));
        Ok(())
    }

    pub(super) fn tile_view(&mut self, data: &OpData) -> Built<()> {
        let registers = self.view(data.one(0))?;
        self.origins[data.result().index()] = self.origin(data.one(0));
        self.bind(data.result(), Val::View(registers));
        Ok(())
    }

    pub(super) fn tensor_shape(&mut self, data: &OpData) -> Built<()> {
        let registers = self.view(data.one(0))?;
        for (position, &result) in data.results.iter().enumerate() {
            self.bind_index(result, registers[1 + position])?;
        }
        Ok(())
    }

    pub(super) fn index_space_shape(&mut self, data: &OpData) -> Built<()> {
        let registers = self.view(data.one(0))?;
        let ty = self.view_type(data.one(0))?.clone();
        for (position, &result) in data.results.iter().enumerate() {
            let dim = *ty.dim_map.get(position).unwrap_or(&0) as usize;
            let step = match &ty.kind {
                ViewKind::Partition => i64::from(ty.tile[position]),
                ViewKind::Strided(steps) => i64::from(steps[position]),
                ViewKind::GatherScatter { .. } => 1,
            };
            let bytes = element_bytes(self.tile_type(result)?.elem);
            let dst = self.register();
            self.emit(Inst::CeilDiv { dst, size: registers[1 + dim], step, bytes });
            self.bind(result, Val::Reg(dst));
        }
        Ok(())
    }

    pub(super) fn load_view(&mut self, data: &OpData, inbounds: bool, ordered: Ordered) -> Built<()> {
        let mut access = self.access(data.one(0), data.group(1))?;
        (access.inbounds, access.strong) = (inbounds, ordered.is_strong());
        let len = access.axes.iter().map(|axis| axis.extent).product();
        let bytes = access.bytes;
        if ordered.is_fence() {
            self.before_fence();
        }
        let expr = self.fetch(Fetch::View(Box::new(access)), len, bytes);
        if !self.options.fuse || ordered.order != MemoryOrder::Weak {
            self.evaluated(expr);
        }
        self.fence(ordered);
        self.bind_raw(data.results[0], Lane::Expr(expr))?;
        self.bind_tokens(&data.results[1..]);
        Ok(())
    }

    pub(super) fn store_view(&mut self, data: &OpData, inbounds: bool, ordered: Ordered) -> Built<()> {
        let mut access = self.access(data.one(1), data.group(2))?;
        (access.inbounds, access.strong) = (inbounds, ordered.is_strong());
        let len = access.axes.iter().map(|axis| axis.extent).product();
        let lane = self.raw(data.one(0))?;
        let expr = self.lane_expr(lane, len, access.bytes);
        self.before_store(access.origin, ordered.order, &[expr]);
        self.fence(ordered);
        let make = move |nodes: &[u16]| Sink::View { node: nodes[0], access: Box::new(access) };
        self.run(vec![Wanted::Sink(smallvec![expr], Box::new(make))]);
        self.bind_tokens(&data.results);
        Ok(())
    }

    pub(super) fn load_pointers(&mut self, data: &OpData, ordered: Ordered) -> Built<()> {
        let to = self.pointee(data.one(0))?;
        let len = self.tile_type(data.one(0))?.len();
        let addresses = self.stored_expr(data.one(0), len)?;
        let mask = self.optional_expr(data.optional(1), len)?;
        let padding = self.optional_expr(data.optional(2), len)?;
        let origin = self.origin(data.one(0));
        if ordered.is_fence() {
            let operands: SmallVec<[ExprId; 3]> = [Some(addresses), mask, padding].into_iter().flatten().collect();
            self.before_fenced(&operands);
        }
        let expr = self.load(addresses, [mask, padding], (origin, ordered.is_strong()), to.unpacked_bytes() as u8);
        if !self.options.fuse || ordered.order != MemoryOrder::Weak {
            self.evaluated(expr);
        }
        self.fence(ordered);
        self.bind_raw(data.results[0], Lane::Expr(expr))?;
        self.bind_tokens(&data.results[1..]);
        Ok(())
    }

    pub(super) fn store_pointers(&mut self, data: &OpData, ordered: Ordered) -> Built<()> {
        self.pointee(data.one(0))?;
        let len = self.tile_type(data.one(0))?.len();
        let origin = self.origin(data.one(0));
        let addresses = self.stored_expr(data.one(0), len)?;
        let value = self.stored_expr(data.one(1), len)?;
        let mask = self.optional_expr(data.optional(2), len)?;
        let mut exprs: SmallVec<[ExprId; 3]> = smallvec![addresses, value];
        exprs.extend(mask);
        self.before_store(origin, ordered.order, &exprs);
        self.fence(ordered);
        let (op, span, strong) = (self.op, self.span, ordered.is_strong());
        let make = move |nodes: &[u16]| Sink::Scatter {
            addresses: nodes[0],
            value: nodes[1],
            mask: nodes.get(2).copied(),
            origin,
            strong,
            op,
            span,
        };
        self.run(vec![Wanted::Sink(exprs, Box::new(make))]);
        self.bind_tokens(&data.results);
        Ok(())
    }

    pub(super) fn reduce_view(&mut self, data: &OpData, mode: AtomicMode, ordered: Ordered) -> Built<()> {
        let mut access = self.access(data.one(0), data.group(1))?;
        access.strong = ordered.reaches_blocks();
        if access.dtype.bits() < 8 && !access.dtype.is_byte_bool() {
            return Err(self.refuse("cpu-packed-pointer", "elements that share bytes can't be updated atomically"));
        }
        let value = self.stored(data.one(2))?;
        self.before_store(access.origin, ordered.order, &[]);
        self.touch(value);
        for axis in &access.axes {
            if let Some((place, _)) = axis.gather {
                self.touch(place);
            }
        }
        self.emit(Inst::AtomicView { access: Box::new(access), value, mode, ordered: ordered.tells_blocks() });
        self.bind_tokens(&data.results);
        Ok(())
    }

    pub(super) fn alloca(&mut self, data: &OpData, count: u32) -> Built<()> {
        let to = self.pointee(data.result())?;
        let bytes = count as usize * to.unpacked_bytes();
        let place = self.buffer(count as usize, to.unpacked_bytes());
        // It lives as long as the block.
        if let crate::plan::Place::Buffer(index) = place {
            self.buffers[index as usize].first = 0;
            self.buffers[index as usize].last = u32::MAX;
        }
        let dst = self.register();
        self.origins[data.result().index()] = Some(self.next_origin);
        self.next_origin += 1;
        self.emit(Inst::Alloca { dst, place, bytes });
        self.bind(data.result(), Val::Reg(dst));
        Ok(())
    }

    pub(super) fn global(&mut self, data: &OpData, name: &str) -> Built<()> {
        let Some(global) = self.module.globals.iter().find(|global| global.name == name) else {
            return Err(self.refuse("cpu-global", format!("there is no constant `@{name}`")));
        };
        let len: usize = global.shape.iter().map(|&extent| extent as usize).product();
        let bytes = global.value.dtype.unpacked_bytes() as u8;
        let items: Vec<u64> = match &global.value.data {
            tessera_ir::ConstData::Splat(bits) => vec![*bits; len],
            tessera_ir::ConstData::Dense(items) => items.to_vec(),
        };
        let len = items.len();
        let place = self.pool_entry(items.into_iter(), bytes, len);
        let dst = self.register();
        if let crate::plan::Place::Pool(index) = place {
            self.globals.push((dst, index, len * bytes as usize));
        }
        self.origins[data.result().index()] = Some(self.next_origin);
        self.next_origin += 1;
        self.bind(data.result(), Val::Reg(dst));
        Ok(())
    }

    /// Other blocks are told how far this one has come, or it has learned how far they have. Atomic updates are fences of their own.
    fn fence(&mut self, ordered: Ordered) {
        if ordered.tells_blocks() {
            self.emit(Inst::Fence);
        }
    }

    /// Evaluates what must be read before a write through the origin: loads that are needed after it, and of what is stored all that reads
    /// the same memory.
    fn before_store(&mut self, origin: Option<u16>, order: MemoryOrder, stored: &[ExprId]) {
        self.before_write(origin);
        if is_fence(order) {
            self.before_fenced(stored);
        }
        for &expr in stored {
            if self.reads_memory(expr, origin) {
                self.evaluated(expr);
            }
        }
    }

    /// Evaluates what must be read before an access in an order that other blocks see: loads that are needed after it, and its operands,
    /// none of which may be read while it is under way.
    fn before_fenced(&mut self, operands: &[ExprId]) {
        self.before_fence();
        for &expr in operands {
            if !self.is_free(expr) {
                self.evaluated(expr);
            }
        }
    }

    fn bind_index(&mut self, result: Value, reg: Reg) -> Built<()> {
        let bytes = element_bytes(self.tile_type(result)?.elem);
        let dst = self.register();
        self.emit(Inst::CeilDiv { dst, size: reg, step: 1, bytes });
        self.bind(result, Val::Reg(dst));
        Ok(())
    }

    /// Updates what pointers point to: operands are pointers, what is compared with where `compares`, a value and a mask.
    pub(super) fn atomic(&mut self, data: &OpData, mode: AtomicMode, ordered: Ordered, compares: Compares) -> Built<()> {
        let (compare, next) = match compares {
            Compares::No => (None, 1),
            Compares::Yes => (Some(data.one(1)), 2),
        };
        let (value, mask) = (data.one(next), data.optional(next + 1));
        let dtype = self.pointee(data.one(0))?;
        let len = self.tile_type(data.one(0))?.len();
        let origin = self.origin(data.one(0));
        let addresses = self.stored(data.one(0))?;
        let value = self.stored(value)?;
        let compare = compare.map(|value| self.stored(value)).transpose()?;
        let mask = mask.map(|value| self.stored(value)).transpose()?;
        self.before_store(origin, ordered.order, &[]);
        let result = data.results[0];
        let ty = self.tile_type(result)?;
        let bytes = element_bytes(ty.elem);
        let wanted = self.counts[result.index()] > 0;
        let old = wanted.then(|| self.buffer(ty.len(), bytes as usize));
        for place in [Some(addresses), Some(value), compare, mask, old].into_iter().flatten() {
            self.touch(place);
        }
        let span = self.span;
        self.emit(Inst::Atomic {
            addresses,
            value,
            compare,
            mask,
            old,
            mode,
            dtype,
            len,
            origin,
            strong: ordered.reaches_blocks(),
            ordered: ordered.tells_blocks(),
            op: self.op,
            span,
        });
        if let Some(old) = old {
            let expr = self.place_expr(old, len, bytes);
            self.bind_raw(result, Lane::Expr(expr))?;
        }
        self.bind_tokens(&data.results[1..]);
        Ok(())
    }
}
