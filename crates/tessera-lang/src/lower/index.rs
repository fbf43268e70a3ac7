//! Indices of tiles and elements.

use tessera_ir::{Diagnostic, ScheduleOp, Shape};
use tessera_types::DType;

use super::operand::At;
use super::{Lowerer, Res};
use crate::diagnostics::id;
use crate::value::{Tile, Val};

impl Lowerer<'_> {
    /// One index an axis: a tuple, or a single index where there is one axis.
    pub(crate) fn index_items(&mut self, index: &At, rank: usize, what: &str) -> Res<Vec<At>> {
        let items: Vec<At> = match &index.0 {
            Val::Tuple(items) | Val::Sequence(items) => items.iter().map(|item| (item.clone(), index.1)).collect(),
            _ => vec![index.clone()],
        };
        if items.len() != rank {
            return Err(Box::new(
                Diagnostic::error(
                    id::RANK,
                    index.1,
                    format!(
                        "{} ind{} given, but {what} has rank {rank}",
                        items.len(),
                        if items.len() == 1 { "ex is" } else { "ices are" }
                    ),
                )
                .label(format!("this is {}", index.0.describe()))
                .help("give one index for each axis"),
            ));
        }
        Ok(items)
    }

    /// An index as a scalar of an integer type.
    pub(crate) fn index_scalar(&mut self, item: &At, dtype: DType) -> Res<Tile> {
        let found = self.dtype_of(item)?;
        let tile = self.shape_of(item)?;
        if !found.is_integer() || !tile.is_empty() {
            return Err(Box::new(
                Diagnostic::error(
                    id::ARGUMENT_TYPE,
                    item.1,
                    format!("an index must be an integer scalar, not {}", item.0.describe()),
                )
                .label("used as an index here"),
            ));
        }
        self.tile_as(item, dtype)
    }

    /// An index of a tile, which is signed.
    pub(crate) fn tile_index_scalar(&mut self, item: &At, dtype: DType) -> Res<Tile> {
        self.check_signed(item, "the index of a tile")?;
        self.index_scalar(item, dtype)
    }

    /// Refuses an integer type without a sign where cuTile asks for one.
    pub(crate) fn check_signed(&self, bound: &At, what: &str) -> Res<()> {
        match &bound.0 {
            Val::Tile(tile) if self.cutile && tile.dtype.is_integer() && !tile.dtype.is_signed() => Err(Box::new(
                Diagnostic::error(id::ARGUMENT_TYPE, bound.1, format!("{what} is a signed integer, not {}", bound.0.describe()))
                    .label("a type without a sign")
                    .help("cast it: `.astype(ct.int32)`, or `ct.int64` where it may be larger"),
            )),
            _ => Ok(()),
        }
    }

    /// The index tiles of a gather or scatter, as 64-bit integers of their common shape.
    pub(crate) fn gather_indices(&mut self, indices: &At, rank: usize) -> Res<(Vec<Tile>, Shape)> {
        let items = self.index_items(indices, rank, "the array")?;
        let mut shape = Shape::new();
        for (axis, item) in items.iter().enumerate() {
            let dtype = self.dtype_of(item)?;
            if !dtype.is_integer() {
                return Err(Box::new(
                    Diagnostic::error(id::ARGUMENT_TYPE, item.1, format!("the index for axis {axis} is {}", item.0.describe()))
                        .label("indices are integers"),
                ));
            }
            let own = self.shape_of(item)?;
            shape = super::operand::broadcast_shape(&shape, &own).ok_or_else(|| {
                Box::new(
                    Diagnostic::error(id::BROADCAST, indices.1, "the index tiles don't broadcast to a common shape")
                        .label(format!("the one for axis {axis} is {}", item.0.describe())),
                )
            })?;
        }
        let mut tiles = Vec::new();
        for item in &items {
            let tile = self.tile_as(item, DType::I64)?;
            tiles.push(self.broadcast(tile, &shape));
        }
        Ok((tiles, shape))
    }

    /// Pointers at element offsets from a base.
    pub(crate) fn pointers(&mut self, base: tessera_ir::Value, elem: DType, offset: &Tile) -> tessera_ir::Value {
        let elem = elem.signless();
        let mut base = base;
        if !offset.shape.is_empty() {
            let ones: Shape = Shape::from_elem(1, offset.shape.len());
            let ty = tessera_ir::Type::pointers(ones.clone(), elem);
            base = self.emit_value(ScheduleOp::Reshape {}, &[&[base]], ty);
            if ones != offset.shape {
                let ty = tessera_ir::Type::pointers(offset.shape.clone(), elem);
                base = self.emit_value(ScheduleOp::Broadcast {}, &[&[base]], ty);
            }
        }
        let ty = tessera_ir::Type::pointers(offset.shape.clone(), elem);
        self.emit_value(ScheduleOp::Offset {}, &[&[base], &[offset.value]], ty)
    }
}
