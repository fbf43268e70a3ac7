//! Tiles that are made: `full`, `arange`, `astile`.

use tessera_ir::{Const, ConstData, Diagnostic, ScheduleOp, Shape, Span};
use tessera_types::DType;

use super::arith::{Arith, FloatMode};
use super::operand::{At, encode};
use super::{Lowerer, Res};
use crate::bind::Args;
use crate::diagnostics::id;
use crate::number::Num;
use crate::value::{Tile, Val};

impl Lowerer<'_> {
    pub(crate) fn full(&mut self, args: &Args) -> Res<Val> {
        let shape = self.require_shape(&args.at(0))?;
        let dtype = self.require_dtype(&args.at(2))?;
        let value = args.at(1);
        if !self.shape_of(&value)?.is_empty() {
            return Err(Box::new(
                Diagnostic::error(id::ARGUMENT_TYPE, value.1, "`full` is filled with a scalar")
                    .label(format!("this is {}", value.0.describe()))
                    .help("use `ct.broadcast_to` for tiles"),
            ));
        }
        if let Val::Num(number) = value.0 {
            return self.constant(number, dtype, shape, value.1).map(Val::Tile);
        }
        let tile = self.tile_as(&value, dtype)?;
        Ok(Val::Tile(self.broadcast(tile, &shape)))
    }

    pub(crate) fn filled(&mut self, args: &Args, value: i128) -> Res<Val> {
        let shape = self.require_shape(&args.at(0))?;
        let dtype = self.require_dtype(&args.at(1))?;
        self.constant(Num::Int(value), dtype, shape, args.call).map(Val::Tile)
    }

    pub(crate) fn arange(&mut self, args: &Args) -> Res<Val> {
        let size = self.require_int(&args.at(0))?;
        let shape = self.require_shape(&(Val::int(size), args.span(0)))?;
        let dtype = self.require_dtype(&args.at(1))?;
        if dtype.bits() < 8 || (dtype.is_float() && crate::promote::is_restricted(dtype)) {
            return Err(Box::new(
                Diagnostic::error(
                    id::ARGUMENT_TYPE,
                    args.span(1),
                    format!("`arange` has no form for {}", crate::promote::dtype_name(dtype)),
                )
                .help("make it in int32 and cast"),
            ));
        }
        let counter = if dtype.is_float() { DType::I32 } else { dtype };
        let iota = self.emit_tile(ScheduleOp::Iota {}, &[], counter, shape.clone());
        let mut tile = self.convert(iota, dtype, None, args.call)?;
        let is = |value: &Val, number: i128| matches!(value, Val::Num(Num::Int(found)) if *found == number);
        for (at, op, neutral) in [(3, Arith::Mul, 1), (2, Arith::Add, 0)] {
            if is(args.val(at), neutral) {
                continue;
            }
            let operand = self.tile_as(&args.at(at), dtype)?;
            if !operand.shape.is_empty() {
                return Err(Box::new(
                    Diagnostic::error(id::ARGUMENT_TYPE, args.span(at), "start and step of `arange` are scalars")
                        .label(format!("this is {}", args.val(at).describe())),
                ));
            }
            let operand = self.broadcast(operand, &shape);
            tile = self.arith_tiles(op, &tile, &operand, FloatMode::default(), args.call)?;
        }
        Ok(Val::Tile(tile))
    }

    /// `ct.astile`: nested tuples of scalars, all lengths equal at each level.
    pub(crate) fn astile(&mut self, args: &Args) -> Res<Val> {
        let dtype = self.require_dtype(&args.at(1))?;
        let mut leaves = Vec::new();
        let shape = self.nested_shape(args.val(0), args.span(0), &mut leaves)?;
        if shape.is_empty() {
            return self.tile_as(&args.at(0), dtype).map(Val::Tile);
        }
        self.check_extents(&shape, args.span(0))?;
        let numbers: Option<Vec<u64>> =
            leaves.iter().map(|leaf| leaf.0.number().and_then(|number| encode(number, dtype))).collect();
        if let Some(bits) = numbers {
            let value = Const { dtype: dtype.signless(), data: ConstData::Dense(bits.into()) };
            let value = self.emit_constant(value, dtype, shape.clone());
            return Ok(Val::Tile(Tile { value, dtype, shape, known: None }));
        }
        let mut tiles = Vec::new();
        for leaf in &leaves {
            let tile = self.tile_as(leaf, dtype)?;
            tiles.push(self.reshape_to(tile, Shape::from_slice(&[1])));
        }
        // Neighbours are joined, so extents stay powers of two where they were.
        while tiles.len() > 1 {
            let mut joined = Vec::new();
            for pair in tiles.chunks(2) {
                joined.push(match pair {
                    [a, b] => {
                        let shape = Shape::from_slice(&[a.shape[0] + b.shape[0]]);
                        self.emit_tile(ScheduleOp::Cat { dim: 0 }, &[a.value, b.value], dtype, shape)
                    }
                    _ => pair[0].clone(),
                });
            }
            tiles = joined;
        }
        match tiles.pop() {
            Some(flat) => Ok(Val::Tile(self.reshape_to(flat, shape))),
            None => Err(Box::new(Diagnostic::error(id::SHAPE, args.span(0), "a tile can't be made of an empty tuple"))),
        }
    }

    fn nested_shape(&self, value: &Val, span: Span, leaves: &mut Vec<At>) -> Res<Shape> {
        match value {
            Val::Tuple(items) | Val::Sequence(items) => {
                if items.is_empty() {
                    return Err(Box::new(Diagnostic::error(id::SHAPE, span, "a tile can't be made of an empty tuple")));
                }
                let mut inner: Option<Shape> = None;
                for item in items.iter() {
                    let shape = self.nested_shape(item, span, leaves)?;
                    if inner.as_ref().is_some_and(|inner| *inner != shape) {
                        return Err(Box::new(
                            Diagnostic::error(id::SHAPE, span, "the nested tuples are of different lengths")
                                .help("tuples at one level have one length"),
                        ));
                    }
                    inner = Some(shape);
                }
                let mut shape = Shape::from_slice(&[items.len() as u32]);
                shape.extend(inner.into_iter().flatten());
                Ok(shape)
            }
            _ => {
                let at = (value.clone(), span);
                if !self.shape_of(&at)?.is_empty() {
                    return Err(Box::new(
                        Diagnostic::error(id::ARGUMENT_TYPE, span, "`astile` is made of scalars")
                            .label(format!("an item is {}", value.describe())),
                    ));
                }
                leaves.push(at);
                Ok(Shape::new())
            }
        }
    }
}
