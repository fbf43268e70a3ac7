//! Elements by index tiles: `gather`, `scatter`, and raw memory by offset.

use tessera_ir::attrs::{CacheHint, MemoryOrder};
use tessera_ir::{Diagnostic, ScheduleOp, Shape, Type, Value};
use tessera_types::DType;

use super::arith::{Arith, FloatMode};
use super::operand::At;
use super::{Lowerer, Res, tile_type};
use crate::ast::{BinaryOp, CompareOp};
use crate::bind::Args;
use crate::diagnostics::id;
use crate::number::Num;
use crate::promote::dtype_name;
use crate::value::{Array, Tile, Val, show_shape};

/// Pointers to elements, with the mask of those that are touched.
pub(crate) struct Elements {
    pub(crate) pointers: Value,
    pub(crate) shape: Shape,
    pub(crate) mask: Option<Tile>,
    pub(crate) dtype: DType,
}

impl Elements {
    pub(crate) fn mask_group(&self) -> Vec<Value> {
        self.mask.iter().map(|mask| mask.value).collect()
    }
}

impl Lowerer<'_> {
    /// Pointers to the elements that index tiles name; out-of-bounds ones are masked when `check` holds.
    pub(crate) fn elements(&mut self, array: &Array, indices: &At, check: &At, mask: &At) -> Res<Elements> {
        let check = self.require_bool(check)?;
        let (tiles, shape) = self.gather_indices(indices, array.shape.len())?;
        let plain = FloatMode::default();
        let mut offset: Option<Tile> = None;
        let mut bounds: Option<Tile> = None;
        for (axis, tile) in tiles.iter().enumerate() {
            let dim = |lowerer: &mut Self, value: Value| -> Res<Tile> {
                let scalar = Tile { value, dtype: array.index.dtype(), shape: Shape::new(), known: None };
                let wide = lowerer.convert(scalar, DType::I64, None, indices.1)?;
                Ok(lowerer.broadcast(wide, &shape))
            };
            if check {
                let size = dim(self, array.shape[axis].value)?;
                // Unsigned: a negative index is out of bounds too.
                let unsigned = |tile: &Tile| Tile { dtype: DType::U64, known: None, ..tile.clone() };
                let inside = self.compare_tiles(CompareOp::Lt, &unsigned(tile), &unsigned(&size));
                bounds = Some(match bounds {
                    Some(bounds) => self.bitwise_tiles(BinaryOp::And, &bounds, &inside),
                    None => inside,
                });
            }
            let stride = dim(self, array.strides[axis].value)?;
            let unit = array.strides[axis].extent == tessera_ir::Extent::Static(1);
            let step = if unit { tile.clone() } else { self.arith_tiles(Arith::Mul, tile, &stride, plain, indices.1)? };
            offset = Some(match offset {
                Some(offset) => self.arith_tiles(Arith::Add, &offset, &step, plain, indices.1)?,
                None => step,
            });
        }
        let pointers = match &offset {
            Some(offset) => self.pointers(array.base, array.dtype, offset),
            None => array.base,
        };
        let mask = self.custom_mask(mask, bounds, &shape)?;
        Ok(Elements { pointers, shape, mask, dtype: array.dtype })
    }

    /// The user's mask and the bounds together.
    fn custom_mask(&mut self, mask: &At, bounds: Option<Tile>, shape: &Shape) -> Res<Option<Tile>> {
        if matches!(mask.0, Val::None) {
            return Ok(bounds);
        }
        let tile = self.tile(mask)?;
        if tile.dtype != DType::B1 {
            return Err(Box::new(
                Diagnostic::error(id::CONDITION, mask.1, format!("a mask is a tile of bool_, not {}", dtype_name(tile.dtype)))
                    .label(format!("this is {}", mask.0.describe())),
            ));
        }
        let tile = self.broadcast_exactly(tile, shape, mask.1, "the mask")?;
        Ok(Some(match bounds {
            Some(bounds) => self.bitwise_tiles(BinaryOp::And, &bounds, &tile),
            None => tile,
        }))
    }

    /// Pointers at offsets into raw memory.
    pub(crate) fn raw_elements(&mut self, array: &Array, offset: &At, mask: &At) -> Res<Elements> {
        let dtype = self.dtype_of(offset)?;
        if !dtype.is_integer() {
            return Err(Box::new(
                Diagnostic::error(id::ARGUMENT_TYPE, offset.1, format!("an offset is an integer, not {}", offset.0.describe()))
                    .label("offsets count elements"),
            ));
        }
        let offset = self.tile_as(offset, DType::I64)?;
        let pointers = self.pointers(array.base, array.dtype, &offset);
        let shape = offset.shape.clone();
        let mask = self.custom_mask(mask, None, &shape)?;
        Ok(Elements { pointers, shape, mask, dtype: array.dtype })
    }

    pub(crate) fn load_elements(&mut self, elements: &Elements, padding: &At, latency: &At) -> Res<Val> {
        let padding_shape = self.shape_of(padding)?;
        // What stands behind where nothing is said is 0, which is false among truth values.
        let nothing = elements.dtype == DType::B1 && matches!(padding.0, Val::Num(Num::Int(0)));
        let padding = &if nothing { (Val::bool(false), padding.1) } else { padding.clone() };
        let padding_tile = self.implicit(padding, elements.dtype, "the padding value")?;
        if super::operand::broadcast_shape(&padding_shape, &elements.shape).as_ref() != Some(&elements.shape) {
            return Err(Box::new(
                Diagnostic::error(
                    id::BROADCAST,
                    padding.1,
                    format!(
                        "padding of shape {} does not broadcast to {}",
                        show_shape(&padding_shape),
                        show_shape(&elements.shape)
                    ),
                )
                .label(format!("this is {}", padding.0.describe())),
            ));
        }
        let latency = self.latency(latency)?;
        // Padding means something only where something is masked.
        let padding: Vec<Value> =
            if elements.mask.is_some() { vec![self.broadcast(padding_tile, &elements.shape).value] } else { Vec::new() };
        let kind = ScheduleOp::LoadPtrTko { order: MemoryOrder::Weak, scope: None, latency, cache: CacheHint::Normal };
        let groups: [&[Value]; 4] = [&[elements.pointers], &elements.mask_group(), &padding, &[]];
        let op = self.emit(kind, &groups, [tile_type(elements.dtype, &elements.shape), Type::Token]);
        let value = self.func.ops[op].results[0];
        Ok(Val::Tile(Tile { value, dtype: elements.dtype, shape: elements.shape.clone(), known: None }))
    }

    pub(crate) fn store_elements(&mut self, elements: &Elements, value: &At, latency: &At) -> Res<Val> {
        let tile = self.implicit(value, elements.dtype, "the stored value")?;
        let tile = self.broadcast_exactly(tile, &elements.shape, value.1, "the stored value")?;
        let latency = self.latency(latency)?;
        let kind = ScheduleOp::StorePtrTko { order: MemoryOrder::Weak, scope: None, latency, cache: CacheHint::Normal };
        self.emit(kind, &[&[elements.pointers], &[tile.value], &elements.mask_group(), &[]], [Type::Token]);
        Ok(Val::None)
    }

    pub(crate) fn gather(&mut self, args: &Args) -> Res<Val> {
        self.check_effects("gather", args.call)?;
        let array = self.require_array(&args.at(0), "gather")?;
        let elements = self.elements(&array, &args.at(1), &args.at(4), &args.at(2))?;
        self.load_elements(&elements, &args.at(3), &args.at(5))
    }

    pub(crate) fn scatter(&mut self, args: &Args) -> Res<Val> {
        self.check_effects("scatter", args.call)?;
        let array = self.require_array(&args.at(0), "scatter")?;
        let elements = self.elements(&array, &args.at(1), &args.at(4), &args.at(3))?;
        self.store_elements(&elements, &args.at(2), &args.at(5))
    }
}
