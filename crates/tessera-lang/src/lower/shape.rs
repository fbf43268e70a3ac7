//! Shapes: reshape, permute, broadcast, join, take apart.

use tessera_ir::{Diagnostic, ScheduleOp, Shape, Span};
use tessera_types::DType;

use super::operand::At;
use super::{Lowerer, Res};
use crate::bind::Args;
use crate::diagnostics::id;
use crate::number::Num;
use crate::promote::dtype_name;
use crate::value::{Tile, Val, show_shape};

impl Lowerer<'_> {
    /// The same elements under a shape of as many; nothing is emitted when it is the tile's own.
    pub(crate) fn reshape_to(&mut self, tile: Tile, shape: Shape) -> Tile {
        if tile.shape == shape {
            return tile;
        }
        Tile { known: tile.known, ..self.emit_tile(ScheduleOp::Reshape {}, &[tile.value], tile.dtype, shape) }
    }

    /// Repeats axes of extent 1; the shapes were checked.
    pub(crate) fn broadcast(&mut self, tile: Tile, shape: &Shape) -> Tile {
        if tile.shape == *shape {
            return tile;
        }
        if let Some(bits) = tile.known.and_then(|known| super::operand::encode(known, tile.dtype)) {
            let value = tessera_ir::Const::splat(tile.dtype.signless(), bits);
            let value = self.emit_constant(value, tile.dtype, shape.clone());
            return Tile { value, shape: shape.clone(), ..tile };
        }
        let mut padded: Shape = Shape::from_elem(1, shape.len() - tile.shape.len());
        padded.extend_from_slice(&tile.shape);
        let tile = self.reshape_to(tile, padded);
        if tile.shape == *shape {
            return tile;
        }
        Tile { known: tile.known, ..self.emit_tile(ScheduleOp::Broadcast {}, &[tile.value], tile.dtype, shape.clone()) }
    }

    /// Broadcasts to exactly a shape, or says why not.
    pub(crate) fn broadcast_exactly(&mut self, tile: Tile, shape: &Shape, span: Span, what: &str) -> Res<Tile> {
        let fits = tile.shape.len() <= shape.len()
            && tile.shape.iter().rev().zip(shape.iter().rev()).all(|(&from, &to)| from == to || from == 1);
        if !fits {
            return Err(Box::new(
                Diagnostic::error(
                    id::BROADCAST,
                    span,
                    format!("{what} of shape {} does not broadcast to {}", show_shape(&tile.shape), show_shape(shape)),
                )
                .label(format!("this has shape {}", show_shape(&tile.shape)))
                .help("extents must be equal or 1, counted from the last axis"),
            ));
        }
        Ok(self.broadcast(tile, shape))
    }

    pub(crate) fn broadcast_to(&mut self, args: &Args) -> Res<Val> {
        let tile = self.tile(&args.at(0))?;
        let shape = self.require_shape(&args.at(1))?;
        self.broadcast_exactly(tile, &shape, args.span(0), "a tile").map(Val::Tile)
    }

    /// `reshape`; one extent may be -1.
    pub(crate) fn reshape(&mut self, x: &At, shape: &At) -> Res<Val> {
        let tile = self.tile(x)?;
        let wanted = self.require_ints(shape)?;
        let count: i64 = tile.shape.iter().map(|&extent| i64::from(extent)).product();
        let mismatch = || {
            let wanted: Vec<String> = wanted.iter().map(i64::to_string).collect();
            Box::new(
                Diagnostic::error(
                    id::SHAPE,
                    shape.1,
                    format!("a tile of shape {} can't be reshaped to ({})", show_shape(&tile.shape), wanted.join(", ")),
                )
                .label("another number of elements")
                .also(x.1, format!("this is {}, {count} elements", x.0.describe()))
                .help("the product of the extents stays the same; one may be -1, which is worked out"),
            )
        };
        let mut known: i64 = 1;
        for &extent in wanted.iter().filter(|&&extent| extent != -1) {
            if extent <= 0 {
                return Err(Box::new(
                    Diagnostic::error(id::SHAPE, shape.1, format!("a tile can't have the extent {extent}"))
                        .help("extents are positive; one may be -1, which is worked out"),
                ));
            }
            known = known.checked_mul(extent).ok_or_else(mismatch)?;
        }
        let open = wanted.iter().filter(|&&extent| extent == -1).count();
        if open > 1 {
            return Err(Box::new(Diagnostic::error(id::SHAPE, shape.1, "only one extent can be -1").label("here are several")));
        }
        if (open == 0 && known != count) || count % known != 0 {
            return Err(mismatch());
        }
        let shape_out: Shape =
            wanted.iter().map(|&extent| if extent == -1 { (count / known) as u32 } else { extent as u32 }).collect();
        self.check_extents(&shape_out, shape.1)?;
        Ok(Val::Tile(self.reshape_to(tile, shape_out)))
    }

    pub(crate) fn permute(&mut self, x: &At, axes: &At) -> Res<Val> {
        let tile = self.tile(x)?;
        let axes_given = self.require_ints(axes)?;
        let order = self.permutation(&axes_given, tile.shape.len(), axes.1)?;
        Ok(Val::Tile(self.permute_to(tile, &order)))
    }

    pub(crate) fn permute_to(&mut self, tile: Tile, order: &[u32]) -> Tile {
        if order.iter().enumerate().all(|(i, &axis)| i == axis as usize) {
            return tile;
        }
        let shape: Shape = order.iter().map(|&axis| tile.shape[axis as usize]).collect();
        let kind = ScheduleOp::Permute { permutation: Shape::from_slice(order) };
        Tile { known: tile.known, ..self.emit_tile(kind, &[tile.value], tile.dtype, shape) }
    }

    pub(crate) fn transpose(&mut self, x: &At, first: &At, second: &At) -> Res<Val> {
        let tile = self.tile(x)?;
        let rank = tile.shape.len();
        if rank < 2 {
            return Err(Box::new(
                Diagnostic::error(id::RANK, x.1, "a tile with fewer than two axes has no transpose")
                    .label(format!("this is {}", x.0.describe())),
            ));
        }
        let (a, b) = match (&first.0, &second.0) {
            (Val::None, Val::None) if rank == 2 => (0, 1),
            (Val::None, _) | (_, Val::None) => {
                return Err(Box::new(
                    Diagnostic::error(id::CALL, x.1, "both axes must be named to transpose this tile")
                        .label(format!("this is {}", x.0.describe()))
                        .help("write `ct.transpose(x, 0, 1)`"),
                ));
            }
            _ => (self.require_axis(first, rank)?, self.require_axis(second, rank)?),
        };
        let mut order: Vec<u32> = (0..rank as u32).collect();
        order.swap(a, b);
        Ok(Val::Tile(self.permute_to(tile, &order)))
    }

    pub(crate) fn expand_dims(&mut self, args: &Args) -> Res<Val> {
        let tile = self.tile(&args.at(0))?;
        let axis = self.require_axis(&args.at(1), tile.shape.len() + 1)?;
        let mut shape = tile.shape.clone();
        shape.insert(axis, 1);
        Ok(Val::Tile(self.reshape_to(tile, shape)))
    }

    pub(crate) fn cat(&mut self, args: &Args) -> Res<Val> {
        let pair = match args.val(0).items() {
            Some(items) if items.len() == 1 => return self.tile(&(items[0].clone(), args.span(0))).map(Val::Tile),
            Some(items) if items.len() == 2 => items.clone(),
            _ => {
                return Err(Box::new(
                    Diagnostic::error(
                        id::ARGUMENT_TYPE,
                        args.span(0),
                        format!("`cat` joins a pair of tiles, not {}", args.val(0).describe()),
                    )
                    .help("write `ct.cat((a, b), axis)`; join more by calling it again"),
                ));
            }
        };
        let (a, b) = ((pair[0].clone(), args.span(0)), (pair[1].clone(), args.span(0)));
        let dtype = self.common_dtype(&a, &b, false)?;
        let (x, y) = (self.tile_as(&a, dtype)?, self.tile_as(&b, dtype)?);
        let axis = self.require_axis(&args.at(1), x.shape.len())?;
        let same = x.shape.len() == y.shape.len()
            && x.shape.iter().zip(&y.shape).enumerate().all(|(i, (a, b))| a == b || (i == axis && !self.cutile));
        if !same {
            return Err(Box::new(
                Diagnostic::error(
                    id::BROADCAST,
                    args.span(0),
                    format!(
                        "tiles of shape {} and {} can't be joined along axis {axis}",
                        show_shape(&x.shape),
                        show_shape(&y.shape)
                    ),
                )
                .help("all other extents must be equal; under `cuda.tile` this one too"),
            ));
        }
        let mut shape = x.shape.clone();
        shape[axis] += y.shape[axis];
        self.check_extents(&shape, args.call)?;
        let tile = self.emit_tile(ScheduleOp::Cat { dim: axis as u32 }, &[x.value, y.value], dtype, shape);
        Ok(Val::Tile(tile))
    }

    /// Index operands of a subtile, as 32-bit scalars.
    fn subtile_index(&mut self, source: &Shape, part: &Shape, index: &At, place: Span) -> Res<Vec<tessera_ir::Value>> {
        if part.len() != source.len() || source.iter().zip(part).any(|(whole, part)| whole % part != 0) {
            return Err(Box::new(
                Diagnostic::error(
                    id::SHAPE,
                    place,
                    format!("subtiles of shape {} don't divide a tile of shape {}", show_shape(part), show_shape(source)),
                )
                .help("the ranks must be equal and each extent must divide the tile's"),
            ));
        }
        let items = self.index_items(index, source.len(), "the tile")?;
        for (i, item) in items.iter().enumerate() {
            let count = i128::from(source[i] / part[i]);
            if let Some(Num::Int(at)) = item.0.number()
                && (at < 0 || at >= count)
            {
                return Err(Box::new(
                    Diagnostic::error(id::VALUE_RANGE, index.1, format!("the subtile index {at} is outside 0 to {}", count - 1))
                        .label(format!("for axis {i}")),
                ));
            }
        }
        items.iter().map(|item| Ok(self.tile_index_scalar(item, DType::I32)?.value)).collect()
    }

    pub(crate) fn extract(&mut self, x: &At, index: &At, shape: &At) -> Res<Val> {
        let tile = self.tile(x)?;
        let part = self.require_shape(shape)?;
        let indices = self.subtile_index(&tile.shape, &part, index, shape.1)?;
        let ty = super::tile_type(tile.dtype, &part);
        let value = self.emit_value(ScheduleOp::Extract {}, &[&[tile.value], &indices], ty);
        Ok(Val::Tile(Tile { value, dtype: tile.dtype, shape: part, known: tile.known }))
    }

    pub(crate) fn insert(&mut self, x: &At, index: &At, value: &At) -> Res<Val> {
        let tile = self.tile(x)?;
        let mut part = self.tile(value)?;
        if part.dtype != tile.dtype {
            if !matches!(value.0, Val::Num(_)) {
                return Err(Box::new(
                    Diagnostic::error(
                        id::PROMOTION,
                        value.1,
                        format!("a subtile of {} can't be inserted into {}", dtype_name(part.dtype), dtype_name(tile.dtype)),
                    )
                    .label(format!("this is {}", value.0.describe()))
                    .also(x.1, format!("this is {}", x.0.describe())),
                ));
            }
            part = self.implicit(value, tile.dtype, "the inserted value")?;
        }
        if part.shape.is_empty() {
            part = self.reshape_to(part, Shape::from_elem(1, tile.shape.len()));
        }
        let indices = self.subtile_index(&tile.shape, &part.shape, index, value.1)?;
        let ty = super::tile_type(tile.dtype, &tile.shape);
        let result = self.emit_value(ScheduleOp::Insert {}, &[&[part.value], &[tile.value], &indices], ty);
        Ok(Val::Tile(Tile { value: result, known: None, ..tile }))
    }
}
