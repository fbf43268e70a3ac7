//! Tiled views with their methods, slices of arrays, advanced indexing and lists of arrays.

use smallvec::SmallVec;
use tessera_ir::attrs::{AtomicMode, CacheHint, MemoryOrder, MemoryScope, Overflow};
use tessera_ir::{Diagnostic, Extent, IndexType, Padding, ScheduleOp, Shape, Type, Value, ViewKind};
use tessera_types::DType;

use super::arith::{Arith, FloatMode};
use super::memory::Access;
use super::operand::At;
use super::{Lowerer, Res, tile_type};
use crate::bind::Args;
use crate::diagnostics::id;
use crate::number::Num;
use crate::value::{Array, Dim, List, Tile, TiledView, Val, show_shape};

impl Lowerer<'_> {
    /// `array.tiled_view(...)`.
    pub(crate) fn tiled_view(&mut self, array: &std::rc::Rc<Array>, args: &Args) -> Res<Val> {
        let rank = array.shape.len();
        let (tile, scalar) = self.array_tile_shape(&args.at(0), rank)?;
        let padding = self.padding_mode(&args.at(1), array.dtype)?;
        let mut steps: SmallVec<[u32; 4]> = tile.iter().copied().collect();
        if !matches!(args.val(2), Val::None) {
            let given = self.require_ints(&args.at(2))?;
            if given.len() != rank {
                return Err(Box::new(Diagnostic::error(
                    id::RANK,
                    args.span(2),
                    format!("{} traversal steps are given for an array of rank {rank}", given.len()),
                )));
            }
            for (step, &value) in steps.iter_mut().zip(&given) {
                *step = u32::try_from(value).ok().filter(|&value| value > 0).ok_or_else(|| {
                    Box::new(Diagnostic::error(id::VALUE_RANGE, args.span(2), format!("a traversal step can't be {value}")))
                })?;
            }
        }
        Ok(Val::View(std::rc::Rc::new(TiledView { array: array.clone(), tile, steps, padding, scalar })))
    }

    fn view_value(&mut self, view: &TiledView, padding: Padding) -> Value {
        let kind =
            if view.steps.iter().eq(view.tile.iter()) { ViewKind::Partition } else { ViewKind::Strided(view.steps.clone()) };
        let axes = (0..view.tile.len() as u32).collect();
        self.make_view(&view.array, kind, &view.tile, axes, padding)
    }

    pub(crate) fn view_load(&mut self, view: &TiledView, args: &Args) -> Res<Val> {
        self.check_effects("load", args.call)?;
        let index = self.tile_index(&args.at(0), view.tile.len(), view.array.index)?;
        let inbounds = !self.require_bool(&args.at(1))?;
        let access = Access {
            order: MemoryOrder::Weak,
            scope: None,
            latency: self.latency(&args.at(2))?,
            allow_tma: self.optional_bool(&args.at(3))?,
            inbounds,
        };
        let value = self.view_value(view, view.padding);
        let loaded = self.load_view(value, &index, view.array.dtype, view.tile.clone(), &access);
        Ok(Val::Tile(if view.scalar { self.reshape_to(loaded, Shape::new()) } else { loaded }))
    }

    pub(crate) fn view_store(&mut self, view: &TiledView, args: &Args) -> Res<Val> {
        self.check_effects("store", args.call)?;
        let index = self.tile_index(&args.at(0), view.tile.len(), view.array.index)?;
        let tile = self.implicit(&args.at(1), view.array.dtype, "the stored tile")?;
        let tile = self.broadcast_exactly(tile, &view.tile, args.span(1), "a tile")?;
        let inbounds = !self.require_bool(&args.at(2))?;
        let access = Access {
            order: MemoryOrder::Weak,
            scope: None,
            latency: self.latency(&args.at(3))?,
            allow_tma: self.optional_bool(&args.at(4))?,
            inbounds,
        };
        let value = self.view_value(view, view.padding);
        self.store_view(tile.value, value, &index, &access);
        Ok(Val::None)
    }

    /// `view.atomic_store_*`.
    pub(crate) fn view_atomic(&mut self, view: &TiledView, update: super::atomics::Update, args: &Args) -> Res<Val> {
        self.check_effects("atomic_store", args.call)?;
        let index = self.tile_index(&args.at(0), view.tile.len(), view.array.index)?;
        let (tile, mode): (Tile, AtomicMode) = self.atomic_update(&args.at(1), view.array.dtype, update, args.call)?;
        let tile = self.broadcast_exactly(tile, &view.tile, args.span(1), "the update")?;
        let value = self.view_value(view, view.padding);
        let kind = ScheduleOp::AtomicRedViewTko { order: MemoryOrder::Relaxed, scope: MemoryScope::Device, mode };
        self.emit(kind, &[&[value], &index, &[tile.value], &[]], [Type::Token]);
        Ok(Val::None)
    }

    pub(crate) fn view_num_tiles(&mut self, view: &TiledView, args: &Args) -> Res<Val> {
        let axis = self.require_axis(&args.at(0), view.tile.len())?;
        let value = self.view_value(view, Padding::Undetermined);
        Ok(self.index_space(value, axis, view.tile.len()))
    }

    /// The number of tiles along an axis of a view.
    pub(crate) fn index_space(&mut self, view: Value, axis: usize, rank: usize) -> Val {
        let op = self.emit(ScheduleOp::GetIndexSpaceShape {}, &[&[view]], vec![tile_type(DType::I32, &[]); rank]);
        let value = self.func.ops[op].results[axis];
        Val::Tile(Tile { value, dtype: DType::I32, shape: Shape::new(), known: None })
    }

    /// `ct.num_tiles`.
    pub(crate) fn num_tiles(&mut self, args: &Args) -> Res<Val> {
        let array = self.require_array(&args.at(0), "num_tiles")?;
        let rank = array.shape.len();
        let axis = self.require_axis(&args.at(1), rank)?;
        let (tile, _) = self.array_tile_shape(&args.at(2), rank)?;
        let dim_map = self.require_order(&args.at(3), rank)?;
        let view = self.make_view(&array, ViewKind::Partition, &tile, dim_map, Padding::Undetermined);
        Ok(self.index_space(view, axis, rank))
    }

    /// `array.slice(axis, start, stop)`.
    pub(crate) fn array_slice(&mut self, array: &Array, args: &Args) -> Res<Val> {
        let axis = self.require_axis(&args.at(0), array.shape.len())?;
        let known = |at: usize| args.val(at).number().and_then(Num::as_int);
        for at in [1, 2] {
            self.check_signed(&args.at(at), "a slice bound")?;
            if known(at).is_some_and(|value| value < 0) {
                return Err(Box::new(
                    Diagnostic::error(id::VALUE_RANGE, args.span(at), "a slice bound can't be negative")
                        .help("bounds count from the start of the axis"),
                ));
            }
        }
        if let (Some(start), Some(stop)) = (known(1), known(2))
            && stop < start
        {
            return Err(Box::new(
                Diagnostic::error(id::VALUE_RANGE, args.span(2), format!("the slice stops at {stop}, before its start {start}"))
                    .also(args.span(1), "the start"),
            ));
        }
        let index = array.index.dtype();
        let start = self.index_scalar(&args.at(1), DType::I64)?;
        let stride = Tile { value: array.strides[axis].value, dtype: index, shape: Shape::new(), known: None };
        let stride = self.convert(stride, DType::I64, None, args.call)?;
        let offset = self.arith_tiles(Arith::Mul, &start, &stride, FloatMode::default(), args.call)?;
        let base = self.pointers(array.base, array.dtype, &offset);
        let first = self.index_scalar(&args.at(1), index)?;
        let last = self.index_scalar(&args.at(2), index)?;
        let size = self.arith_tiles(Arith::Sub, &last, &first, FloatMode::default(), args.call)?;
        let mut shape = array.shape.clone();
        let extent = known(1).zip(known(2)).map_or(Extent::Dynamic, |(start, stop)| Extent::Static((stop - start) as i64));
        shape[axis] = Dim { extent, value: size.value };
        let part = self.make_array(array.dtype, base, shape, array.strides.clone(), array.index);
        Ok(Val::Array(std::rc::Rc::new(part)))
    }

    /// The index tuple of advanced indexing: the sparse axis, the tile shape, and one index an axis.
    fn advanced_index(&mut self, indices: &At, rank: usize) -> Res<(u32, Shape, Vec<Value>)> {
        let items = self.index_items(indices, rank, "the array")?;
        let wrong = |message: String| {
            Box::new(
                Diagnostic::error(id::ARGUMENT_TYPE, indices.1, message)
                    .help("one entry is a one-dimensional tile of integers, every other a `ct.Slice(start, length)`"),
            )
        };
        if rank < 2 {
            return Err(Box::new(
                Diagnostic::error(
                    id::RANK,
                    indices.1,
                    format!("advanced indexing needs an array of rank 2 or more, this has rank {rank}"),
                )
                .help("use `ct.gather` and `ct.scatter`"),
            ));
        }
        let mut sparse = None;
        let (mut shape, mut values) = (Shape::new(), Vec::new());
        for (axis, item) in items.iter().enumerate() {
            match &item.0 {
                Val::Span(span) => {
                    shape.push(span.1);
                    values.push(self.tile_index_scalar(&(span.0.clone(), item.1), DType::I32)?.value);
                }
                Val::Tile(tile) if tile.shape.len() == 1 && tile.dtype.is_integer() => {
                    if sparse.replace(axis as u32).is_some() {
                        return Err(wrong("two entries are tiles of indices".to_string()));
                    }
                    shape.push(tile.shape[0]);
                    values.push(self.tile_as(item, DType::I32)?.value);
                }
                other => return Err(wrong(format!("the entry for axis {axis} is {}", other.describe()))),
            }
        }
        let sparse = sparse.ok_or_else(|| wrong("no entry is a tile of indices".to_string()))?;
        self.check_extents(&shape, indices.1)?;
        Ok((sparse, shape, values))
    }

    pub(crate) fn load_advanced(&mut self, args: &Args) -> Res<Val> {
        self.check_effects("load_advanced_indexing", args.call)?;
        let array = self.require_array(&args.at(0), "load_advanced_indexing")?;
        let rank = array.shape.len();
        let (axis, shape, index) = self.advanced_index(&args.at(1), rank)?;
        let padding = self.padding_mode(&args.at(2), array.dtype)?;
        let access = Access {
            order: MemoryOrder::Weak,
            scope: None,
            latency: self.latency(&args.at(3))?,
            allow_tma: self.optional_bool(&args.at(4))?,
            inbounds: false,
        };
        let view = self.make_view(&array, ViewKind::GatherScatter { axis }, &shape, (0..rank as u32).collect(), padding);
        Ok(Val::Tile(self.load_view(view, &index, array.dtype, shape, &access)))
    }

    pub(crate) fn store_advanced(&mut self, args: &Args) -> Res<Val> {
        self.check_effects("store_advanced_indexing", args.call)?;
        let array = self.require_array(&args.at(0), "store_advanced_indexing")?;
        let rank = array.shape.len();
        let (axis, shape, index) = self.advanced_index(&args.at(1), rank)?;
        let mut tile = self.implicit(&args.at(2), array.dtype, "the stored tile")?;
        if tile.shape.is_empty() {
            tile = self.broadcast(tile, &shape);
        }
        if tile.shape != shape {
            return Err(Box::new(
                Diagnostic::error(
                    id::BROADCAST,
                    args.span(2),
                    format!(
                        "a tile of shape {} is stored where the indices make {}",
                        show_shape(&tile.shape),
                        show_shape(&shape)
                    ),
                )
                .label(format!("this is {}", args.val(2).describe())),
            ));
        }
        let access = Access {
            order: MemoryOrder::Weak,
            scope: None,
            latency: self.latency(&args.at(3))?,
            allow_tma: self.optional_bool(&args.at(4))?,
            inbounds: false,
        };
        let axes = (0..rank as u32).collect();
        let view = self.make_view(&array, ViewKind::GatherScatter { axis }, &shape, axes, Padding::Undetermined);
        self.store_view(tile.value, view, &index, &access);
        Ok(Val::None)
    }

    /// `list[i]`: a record of 64-bit words in the table, the address first, then sizes, then strides.
    pub(crate) fn list_item(&mut self, list: &List, index: &At) -> Res<Val> {
        self.check_effects("indexing a list", index.1)?;
        let words = 1 + 2 * i128::from(list.rank);
        let index = self.index_scalar(index, DType::I64)?;
        let words_tile = self.constant(Num::Int(words), DType::I64, Shape::new(), self.span)?;
        let start = self.arith_tiles(Arith::Mul, &index, &words_tile, FloatMode::default(), self.span)?;
        let word = |lowerer: &mut Self, at: i128| -> Res<Value> {
            let step = lowerer.constant(Num::Int(at), DType::I64, Shape::new(), lowerer.span)?;
            let offset = lowerer.arith_tiles(Arith::Add, &start, &step, FloatMode::default(), lowerer.span)?;
            let pointer = lowerer.pointers(list.table, DType::I64, &offset);
            let kind = ScheduleOp::LoadPtrTko { order: MemoryOrder::Weak, scope: None, latency: None, cache: CacheHint::Normal };
            let op = lowerer.emit(kind, &[&[pointer], &[], &[], &[]], [tile_type(DType::I64, &[]), Type::Token]);
            Ok(lowerer.func.ops[op].results[0])
        };
        let address = word(self, 0)?;
        let mut dims = Vec::new();
        for at in 1..words {
            let mut value = word(self, at)?;
            if list.index == IndexType::I32 {
                value =
                    self.emit_value(ScheduleOp::TruncI { overflow: Overflow::Wraps }, &[&[value]], tile_type(DType::I32, &[]));
            }
            dims.push(Dim { extent: Extent::Dynamic, value });
        }
        let base = self.emit_value(ScheduleOp::IntToPtr {}, &[&[address]], Type::pointers(Shape::new(), list.dtype.signless()));
        let strides = dims.split_off(list.rank as usize);
        let array = self.make_array(list.dtype, base, dims, strides, list.index);
        Ok(Val::Array(std::rc::Rc::new(array)))
    }
}
