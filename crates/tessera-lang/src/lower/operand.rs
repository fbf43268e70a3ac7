//! Tiles from values: literals take an element type, shapes broadcast, constants are made.

use tessera_ir::{Const, Diagnostic, Shape, Span};
use tessera_types::{DType, FloatFormat};

use super::{Lowerer, Res};
use crate::diagnostics::id;
use crate::number::Num;
use crate::promote::{WithLiteral, dtype_name, int_range, literal_dtype, promote, promote_literal};
use crate::value::{Tile, Val, show_shape};

/// A value with the place it was written.
pub(crate) type At = (Val, Span);

/// The bits of a number in an element type; `None` when an integer does not fit.
pub(crate) fn encode(value: Num, dtype: DType) -> Option<u64> {
    if let Some(format) = FloatFormat::of(dtype) {
        return Some(format.encode_nearest(value.as_f64()));
    }
    if dtype == DType::B1 {
        return Some(u64::from(value.truth()));
    }
    let value = match value {
        Num::Float(value) if value.is_finite() => value.trunc() as i128,
        Num::Float(_) => return None,
        Num::Int(value) => value,
        Num::Bool(value) => i128::from(value),
    };
    let (least, greatest) = int_range(dtype);
    (least <= value && value <= greatest).then_some(value as u64 & (u64::MAX >> (64 - dtype.bits())))
}

/// The number that an element type makes of another number; `None` when an integer does not fit.
pub(crate) fn settle(value: Num, dtype: DType) -> Option<Num> {
    let bits = encode(value, dtype)?;
    Some(if let Some(format) = FloatFormat::of(dtype) {
        Num::Float(format.decode(bits))
    } else if dtype == DType::B1 {
        Num::Bool(bits != 0)
    } else {
        match value {
            Num::Float(value) => Num::Int(value.trunc() as i128),
            Num::Int(_) | Num::Bool(_) => Num::Int(value.as_int().unwrap_or(0)),
        }
    })
}

/// The shape that two shapes broadcast to.
pub(crate) fn broadcast_shape(a: &[u32], b: &[u32]) -> Option<Shape> {
    let rank = a.len().max(b.len());
    let extent = |shape: &[u32], i: usize| (i + shape.len()).checked_sub(rank).map_or(1, |i| shape[i]);
    (0..rank)
        .map(|i| match (extent(a, i), extent(b, i)) {
            (x, y) if x == y || y == 1 => Some(x),
            (1, y) => Some(y),
            _ => None,
        })
        .collect()
}

impl Lowerer<'_> {
    /// A tile with one number in every element.
    pub(crate) fn constant(&mut self, value: Num, dtype: DType, shape: Shape, span: Span) -> Res<Tile> {
        let Some((bits, known)) = encode(value, dtype).zip(settle(value, dtype)) else {
            let (least, greatest) = int_range(dtype);
            return Err(Box::new(
                Diagnostic::error(id::CONSTANT_OVERFLOW, span, format!("{value} does not fit {}", dtype_name(dtype)))
                    .label(format!("{} holds {least} to {greatest}", dtype_name(dtype))),
            ));
        };
        let value = self.emit_constant(Const::splat(dtype.signless(), bits), dtype, shape.clone());
        Ok(Tile { value, dtype, shape, known: Some(known) })
    }

    /// The element type that a value has or would take.
    pub(crate) fn dtype_of(&self, (value, span): &At) -> Res<DType> {
        match value {
            Val::Tile(tile) => Ok(tile.dtype),
            Val::Num(number) => literal_dtype(*number).ok_or_else(|| too_big(*number, *span)),
            _ => Err(not_a_tile(value, *span)),
        }
    }

    /// The shape of a tile; a number's is empty.
    pub(crate) fn shape_of(&self, (value, span): &At) -> Res<Shape> {
        match value {
            Val::Tile(tile) => Ok(tile.shape.clone()),
            Val::Num(_) => Ok(Shape::new()),
            _ => Err(not_a_tile(value, *span)),
        }
    }

    /// The value as a tile; a number takes its own element type.
    pub(crate) fn tile(&mut self, (value, span): &At) -> Res<Tile> {
        match value {
            Val::Tile(tile) => Ok(tile.clone()),
            Val::Num(number) => {
                let dtype = literal_dtype(*number).ok_or_else(|| too_big(*number, *span))?;
                self.constant(*number, dtype, Shape::new(), *span)
            }
            _ => Err(not_a_tile(value, *span)),
        }
    }

    /// The value as a tile of an element type, converted if it has another.
    pub(crate) fn tile_as(&mut self, at: &At, dtype: DType) -> Res<Tile> {
        match &at.0 {
            Val::Num(number) => self.constant(*number, dtype, Shape::new(), at.1),
            _ => {
                let tile = self.tile(at)?;
                self.convert(tile, dtype, None, at.1)
            }
        }
    }

    /// The common element type of two operands.
    pub(crate) fn common_dtype(&self, a: &At, b: &At, to_float: bool) -> Res<DType> {
        let (x, y) = (self.dtype_of(a)?, self.dtype_of(b)?);
        let literal = |dtype: DType, number: Num, span: Span| match promote_literal(dtype, number, to_float) {
            WithLiteral::Common(dtype) => Ok(dtype),
            WithLiteral::OutOfRange => Err(Box::new(
                Diagnostic::error(id::CONSTANT_OVERFLOW, span, format!("{number} does not fit {}", dtype_name(dtype)))
                    .label("this constant")
                    .help("cast the other operand to a wider type"),
            )),
        };
        let common = match (&a.0, &b.0) {
            (Val::Tile(_), Val::Num(number)) => literal(x, *number, b.1)?,
            (Val::Num(number), Val::Tile(_)) => literal(y, *number, a.1)?,
            _ => promote(x, y).ok_or_else(|| {
                let place = a.1.to(b.1);
                Box::new(
                    Diagnostic::error(
                        id::PROMOTION,
                        place,
                        format!("{} and {} have no common type", dtype_name(x), dtype_name(y)),
                    )
                    .also(a.1, format!("this is {}", a.0.describe()))
                    .also(b.1, format!("this is {}", b.0.describe()))
                    .help(format!("cast one of them, for example with `.astype(ct.{})`", dtype_name(x))),
                )
            })?,
        };
        Ok(if to_float && !common.is_float() { DType::F32 } else { common })
    }

    /// The shape that two operands broadcast to.
    pub(crate) fn common_shape(&self, a: &At, b: &At) -> Res<Shape> {
        let (x, y) = (self.shape_of(a)?, self.shape_of(b)?);
        broadcast_shape(&x, &y).ok_or_else(|| {
            Box::new(
                Diagnostic::error(
                    id::BROADCAST,
                    a.1.to(b.1),
                    format!("the shapes {} and {} don't broadcast", show_shape(&x), show_shape(&y)),
                )
                .also(a.1, format!("this is {}", a.0.describe()))
                .also(b.1, format!("this is {}", b.0.describe()))
                .help("extents must be equal or 1, counted from the last axis"),
            )
        })
    }

    /// Both operands with one element type and shape.
    pub(crate) fn unify(&mut self, a: &At, b: &At, dtype: DType) -> Res<(Tile, Tile)> {
        let shape = self.common_shape(a, b)?;
        let x = self.tile_as(a, dtype)?;
        let y = self.tile_as(b, dtype)?;
        Ok((self.broadcast(x, &shape), self.broadcast(y, &shape)))
    }

    /// An operand of a memory operation, cast without being told to where the type allows it.
    pub(crate) fn implicit(&mut self, at: &At, dtype: DType, what: &str) -> Res<Tile> {
        let from = self.dtype_of(at)?;
        let fits = match &at.0 {
            Val::Num(number) => matches!(promote_literal(dtype, *number, false), WithLiteral::Common(common) if common == dtype),
            _ => promote(from, dtype) == Some(dtype),
        };
        if !fits {
            return Err(Box::new(
                Diagnostic::error(
                    id::PROMOTION,
                    at.1,
                    format!("{what} has type {} and is not cast to {} implicitly", dtype_name(from), dtype_name(dtype)),
                )
                .label(format!("this is {}", at.0.describe()))
                .help(format!("write the cast: `.astype(ct.{})`", dtype_name(dtype))),
            ));
        }
        self.tile_as(at, dtype)
    }
}

fn too_big(number: Num, span: Span) -> Box<Diagnostic> {
    Box::new(
        Diagnostic::error(id::CONSTANT_OVERFLOW, span, format!("{number} does not fit any integer type"))
            .label("the widest types have 64 bits"),
    )
}

pub(crate) fn not_a_tile(value: &Val, span: Span) -> Box<Diagnostic> {
    Box::new(Diagnostic::error(id::ARGUMENT_TYPE, span, format!("expected a tile or a scalar, found {}", value.describe())).help(
        match value {
            Val::Array(_) => "arrays are in memory: use `ct.load` or `ct.gather` first",
            _ => "tiles come from `ct.load`, `ct.full` and operations on them",
        },
    ))
}
