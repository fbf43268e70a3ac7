//! Tiles from and to memory by tile index: `load`, `store`, and the views they go through.

use smallvec::SmallVec;
use tessera_ir::attrs::{CacheHint, MemoryOrder, MemoryScope};
use tessera_ir::{Diagnostic, IndexType, Padding, ScheduleOp, Shape, TileViewType, Type, Value, ViewKind};
use tessera_types::DType;

use super::operand::At;
use super::{Lowerer, Res, tile_type};
use crate::bind::Args;
use crate::diagnostics::id;
use crate::value::{Array, Tile, Val, show_shape};

/// Options of a load or store.
pub(crate) struct Access {
    pub(crate) order: MemoryOrder,
    pub(crate) scope: Option<MemoryScope>,
    pub(crate) latency: Option<u32>,
    pub(crate) allow_tma: Option<bool>,
    /// `check_bounds=False`: the author promises that the tile lies inside the array.
    pub(crate) inbounds: bool,
}

impl Lowerer<'_> {
    pub(crate) fn require_array(&self, at: &At, what: &str) -> Res<std::rc::Rc<Array>> {
        match &at.0 {
            Val::Array(array) => Ok(array.clone()),
            other => Err(Box::new(
                Diagnostic::error(id::ARGUMENT_TYPE, at.1, format!("`{what}` works on an array, not {}", other.describe()))
                    .label("wrong kind of argument")
                    .help("arrays are parameters of the kernel"),
            )),
        }
    }

    /// A tile shape for an array: an integer for one axis, `()` for one element.
    pub(crate) fn array_tile_shape(&mut self, shape: &At, rank: usize) -> Res<(Shape, bool)> {
        let tile = self.require_shape(shape)?;
        if tile.is_empty() {
            return Ok((Shape::from_elem(1, rank), true));
        }
        if tile.len() != rank {
            return Err(Box::new(
                Diagnostic::error(
                    id::RANK,
                    shape.1,
                    format!("a tile of shape {} does not fit an array of rank {rank}", show_shape(&tile)),
                )
                .label(format!("this shape has {} ax{}", tile.len(), if tile.len() == 1 { "is" } else { "es" }))
                .help("give one extent for each axis of the array; use 1 where the tile is flat"),
            ));
        }
        Ok((tile, false))
    }

    /// A view of tiles over an array.
    pub(crate) fn make_view(
        &mut self,
        array: &Array,
        kind: ViewKind,
        tile: &Shape,
        dim_map: SmallVec<[u32; 4]>,
        padding: Padding,
    ) -> Value {
        let op = match kind {
            ViewKind::Partition => ScheduleOp::MakePartitionView {},
            ViewKind::Strided(_) => ScheduleOp::MakeStridedView {},
            ViewKind::GatherScatter { .. } => ScheduleOp::MakeGatherScatterView {},
        };
        let ty = TileViewType { kind, tile: tile.clone(), dim_map, padding, tensor: array.tensor_ty.clone() };
        self.emit_value(op, &[&[array.tensor]], Type::TileView(Box::new(ty)))
    }

    /// Tile indices as scalars of 32 bits, or 64 where the array counts so.
    pub(crate) fn tile_index(&mut self, index: &At, rank: usize, of: IndexType) -> Res<Vec<Value>> {
        let items = self.index_items(index, rank, "the array")?;
        let mut values = Vec::new();
        for item in &items {
            let dtype = self.dtype_of(item)?;
            let wide = of == IndexType::I64 || dtype.bits() == 64;
            values.push(self.tile_index_scalar(item, if wide { DType::I64 } else { DType::I32 })?.value);
        }
        // One operation's indices are of one type.
        if let Some(ty) = values.iter().map(|&value| self.func.ty(value).clone()).find(|ty| ty.num() == Some(DType::I64)) {
            for value in &mut values {
                if *self.func.ty(*value) != ty {
                    let signed = tessera_ir::attrs::Signedness::Signed;
                    *value = self.emit_value(ScheduleOp::ExtI { signedness: signed }, &[&[*value]], ty.clone());
                }
            }
        }
        Ok(values)
    }

    /// Emits a load and yields its tile.
    pub(crate) fn load_view(&mut self, view: Value, index: &[Value], dtype: DType, shape: Shape, access: &Access) -> Tile {
        let kind = ScheduleOp::LoadViewTko {
            order: access.order,
            scope: access.scope,
            latency: access.latency,
            allow_tma: access.allow_tma,
            inbounds: access.inbounds,
            cache: CacheHint::Normal,
        };
        let op = self.emit(kind, &[&[view], index, &[]], [tile_type(dtype, &shape), Type::Token]);
        Tile { value: self.func.ops[op].results[0], dtype, shape, known: None }
    }

    /// Emits a store.
    pub(crate) fn store_view(&mut self, tile: Value, view: Value, index: &[Value], access: &Access) {
        let kind = ScheduleOp::StoreViewTko {
            order: access.order,
            scope: access.scope,
            latency: access.latency,
            allow_tma: access.allow_tma,
            inbounds: access.inbounds,
            cache: CacheHint::Normal,
        };
        self.emit(kind, &[&[tile], &[view], index, &[]], [Type::Token]);
    }

    /// Refuses memory effects in the function of a reduction.
    pub(crate) fn check_effects(&self, what: &str, span: tessera_ir::Span) -> Res<()> {
        match self.combining {
            Some(kind) => Err(Box::new(
                Diagnostic::error(id::REDUCE_BODY, span, format!("`{what}` can't stand in the function of a {kind}"))
                    .help("the function combines two scalars and does nothing else"),
            )),
            None if self.is_static => Err(Box::new(
                Diagnostic::error(id::NOT_CONSTANT, span, format!("`{what}` can't run while the kernel is compiled"))
                    .help("move it out of the compile-time expression"),
            )),
            None => Ok(()),
        }
    }

    /// `ct.load`.
    pub(crate) fn load(&mut self, args: &Args) -> Res<Val> {
        self.check_effects("load", args.call)?;
        let array = self.require_array(&args.at(0), "load")?;
        let rank = array.shape.len();
        let of = |error: Box<Diagnostic>| Box::new(error.also(args.span(0), format!("this is {}", args.val(0).describe())));
        let index = self.tile_index(&args.at(1), rank, array.index).map_err(of)?;
        let (tile, scalar) = self.array_tile_shape(&args.at(2), rank)?;
        let dim_map = self.require_order(&args.at(3), rank)?;
        let padding = self.padding_mode(&args.at(4), array.dtype)?;
        let inbounds = !self.require_bool(&args.at(5))?;
        let latency = self.latency(&args.at(6))?;
        let allow_tma = self.optional_bool(&args.at(7))?;
        let orders = [MemoryOrder::Weak, MemoryOrder::Relaxed, MemoryOrder::Acquire];
        let (order, scope) = self.memory_order(&args.at(8), &args.at(9), &orders)?;
        let view = self.make_view(&array, ViewKind::Partition, &tile, dim_map, padding);
        let loaded = self.load_view(view, &index, array.dtype, tile, &Access { order, scope, latency, allow_tma, inbounds });
        Ok(Val::Tile(if scalar { self.reshape_to(loaded, Shape::new()) } else { loaded }))
    }

    /// `ct.store`.
    pub(crate) fn store(&mut self, args: &Args) -> Res<Val> {
        self.check_effects("store", args.call)?;
        let array = self.require_array(&args.at(0), "store")?;
        let rank = array.shape.len();
        let index = self.tile_index(&args.at(1), rank, array.index)?;
        let into = format!("this is {}", args.val(0).describe());
        let tile = self
            .implicit(&args.at(2), array.dtype, "the stored tile")
            .map_err(|error| Box::new(error.also(args.span(0), into)))?;
        if !tile.shape.is_empty() && tile.shape.len() != rank {
            return Err(Box::new(
                Diagnostic::error(
                    id::RANK,
                    args.span(2),
                    format!("a tile of shape {} does not fit an array of rank {rank}", show_shape(&tile.shape)),
                )
                .label(format!("this is {}", args.val(2).describe()))
                .also(args.span(0), format!("this is {}", args.val(0).describe()))
                .help("reshape the tile to one extent for each axis of the array"),
            ));
        }
        let tile = if tile.shape.is_empty() { self.reshape_to(tile, Shape::from_elem(1, rank)) } else { tile };
        let dim_map = self.require_order(&args.at(3), rank)?;
        let inbounds = !self.require_bool(&args.at(4))?;
        let latency = self.latency(&args.at(5))?;
        let allow_tma = self.optional_bool(&args.at(6))?;
        let orders = [MemoryOrder::Weak, MemoryOrder::Relaxed, MemoryOrder::Release];
        let (order, scope) = self.memory_order(&args.at(7), &args.at(8), &orders)?;
        let view = self.make_view(&array, ViewKind::Partition, &tile.shape, dim_map, Padding::Undetermined);
        self.store_view(tile.value, view, &index, &Access { order, scope, latency, allow_tma, inbounds });
        Ok(Val::None)
    }
}
