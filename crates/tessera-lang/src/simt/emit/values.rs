//! Expressions: the arithmetic of block programs, on one value a thread.

use tessera_ir::attrs::{self, GridAxis, Overflow, Rounding, ShuffleMode};
use tessera_ir::{ScheduleOp, Shape, TileOp, Value};
use tessera_types::DType;

use super::Emit;
use crate::ast::{BinaryOp, CompareOp};
use crate::builtins::Builtin;
use crate::lower::{Arith, FloatMode, Res, signedness, tile_type};
use crate::number::Num;
use crate::simt::program::{Binary, Combine, Expression, ExpressionKind, Identity, Shuffle, Unary};
use crate::value::Tile;

/// The small non-negative number that an expression is known to be.
pub(super) fn known(value: &Expression) -> Option<u32> {
    match &value.kind {
        ExpressionKind::Constant(constant) => constant.as_int().and_then(|number| u32::try_from(number).ok()),
        ExpressionKind::Convert(inner) if value.dtype.is_integer() && inner.dtype.is_integer() => known(inner),
        _ => None,
    }
}

/// True when an expression can be an error, so that only who needs it may compute it.
fn traps(value: &Expression) -> bool {
    match &value.kind {
        ExpressionKind::Binary(op, a, b) => {
            let divides =
                matches!(op, Binary::FloorDiv | Binary::Mod) && value.dtype.is_integer() && known(b).is_none_or(|n| n == 0);
            // Checked execution reports counts beyond the width.
            let shifts = matches!(op, Binary::Shl | Binary::Shr) && known(b).is_none();
            divides || shifts || traps(a) || traps(b)
        }
        ExpressionKind::Unary(_, a) | ExpressionKind::Convert(a) | ExpressionKind::Bits(a) | ExpressionKind::Popcount(a) => {
            traps(a)
        }
        ExpressionKind::Fma(parts) | ExpressionKind::Select(parts) => parts.iter().any(traps),
        ExpressionKind::Constant(_)
        | ExpressionKind::Local(_)
        | ExpressionKind::Scalar(_)
        | ExpressionKind::Size(..)
        | ExpressionKind::Identity(_) => false,
        ExpressionKind::Load(_)
        | ExpressionKind::WarpReduce(..)
        | ExpressionKind::Shuffle(..)
        | ExpressionKind::MatchAny(..)
        | ExpressionKind::Atomic(..)
        | ExpressionKind::CompareSwap(..) => true,
    }
}

impl Emit<'_> {
    fn tile(&self, value: Value, dtype: DType) -> Tile {
        Tile { value, dtype, shape: Shape::new(), known: None }
    }

    /// Computes an expression.
    pub(super) fn value(&mut self, expression: &Expression) -> Res<Tile> {
        let (dtype, span) = (expression.dtype, expression.span);
        self.walk.span = span;
        let scalar = tile_type(dtype, &[]);
        let value = match &expression.kind {
            ExpressionKind::Constant(constant) => {
                let known = match dtype {
                    DType::B1 => constant.splat_bits().map(|bits| Num::Bool(bits & 1 != 0)),
                    _ if dtype.is_integer() && dtype.is_signed() => constant.as_int().map(|number| Num::Int(number.into())),
                    _ => None,
                };
                let value = self.walk.emit_constant(constant.clone(), dtype, Shape::new());
                return Ok(Tile { known, ..self.tile(value, dtype) });
            }
            ExpressionKind::Local(local) => self.locals[*local].ok_or_else(|| self.broken("a variable without a value", span))?,
            ExpressionKind::Scalar(param) => self.argument(*param, 0),
            ExpressionKind::Size(param, axis) => self.argument(*param, 1 + *axis as usize),
            ExpressionKind::Identity(who) => return self.identity(*who, dtype),
            ExpressionKind::Load(place) => self.load(place)?,
            ExpressionKind::Unary(function, x) => return self.unary(*function, x, expression),
            ExpressionKind::Binary(op, a, b) => return self.binary(*op, a, b, expression),
            ExpressionKind::Fma(parts) => {
                let [x, y, z] = [self.value(&parts[0])?, self.value(&parts[1])?, self.value(&parts[2])?];
                self.walk.span = span;
                let kind = ScheduleOp::Fma { rounding: Rounding::NearestEven, flush_to_zero: false };
                self.walk.emit_value(kind, &[&[x.value], &[y.value], &[z.value]], scalar)
            }
            ExpressionKind::Select(parts) => {
                let [condition, x, y] = &**parts;
                let condition = self.value(condition)?.value;
                if traps(x) || traps(y) {
                    self.either(condition, dtype, |emit| emit.value(x).map(|x| x.value), |emit| emit.value(y).map(|y| y.value))?
                } else {
                    let (x, y) = (self.value(x)?.value, self.value(y)?.value);
                    self.walk.span = span;
                    self.walk.emit_value(ScheduleOp::Select {}, &[&[condition], &[x], &[y]], scalar)
                }
            }
            ExpressionKind::Convert(x) => {
                let x = self.value(x)?;
                self.walk.span = span;
                return self.walk.convert(x, dtype, None, span);
            }
            ExpressionKind::Bits(x) => {
                let x = self.value(x)?;
                self.walk.span = span;
                if x.dtype.signless() == dtype.signless() {
                    return Ok(self.tile(x.value, dtype));
                }
                self.walk.emit_value(ScheduleOp::Bitcast {}, &[&[x.value]], scalar)
            }
            ExpressionKind::WarpReduce(combine, x) => {
                let x = self.value(x)?;
                let combine = match combine {
                    Combine::Sum => attrs::Combine::Sum,
                    Combine::Max => attrs::Combine::Max,
                    Combine::Min => attrs::Combine::Min,
                };
                self.walk.span = span;
                self.tile_value(
                    TileOp::WarpReduce { combine, signedness: signedness(dtype), redux: false },
                    &[&[x.value]],
                    scalar,
                )
            }
            ExpressionKind::Shuffle(kind, parts) => {
                let (x, lane) = (self.value(&parts[0])?, self.value(&parts[1])?);
                let mode = match kind {
                    Shuffle::Index => ShuffleMode::Index,
                    Shuffle::Xor => ShuffleMode::Xor,
                    Shuffle::Up => ShuffleMode::Up,
                    Shuffle::Down => ShuffleMode::Down,
                };
                self.walk.span = span;
                self.tile_value(TileOp::Shuffle { mode }, &[&[x.value], &[lane.value]], scalar)
            }
            ExpressionKind::MatchAny(bits, x) => {
                let x = self.value(x)?;
                self.walk.span = span;
                self.tile_value(TileOp::MatchAny { bits: *bits }, &[&[x.value]], scalar)
            }
            ExpressionKind::Popcount(x) => {
                let x = self.value(x)?;
                self.walk.span = span;
                self.tile_value(TileOp::Popcount {}, &[&[x.value]], scalar)
            }
            ExpressionKind::Atomic(mode, place, x) => {
                let x = self.value(x)?.value;
                self.update(*mode, place, x)?
            }
            ExpressionKind::CompareSwap(place, parts) => {
                let (expected, desired) = (self.value(&parts[0])?.value, self.value(&parts[1])?.value);
                self.compare_swap(place, expected, desired)?
            }
        };
        Ok(self.tile(value, dtype))
    }

    fn identity(&mut self, who: Identity, dtype: DType) -> Res<Tile> {
        let int = tile_type(DType::I32, &[]);
        let axis = |axis: u32| GridAxis::from_index(axis as usize).unwrap_or(GridAxis::X);
        let value = match who {
            Identity::Thread(0) => self.tile_value(TileOp::ThreadId {}, &[], int),
            // A block has one row of threads.
            Identity::Thread(_) => self.zero(dtype),
            Identity::Block(number) => self.walk.emit_value(ScheduleOp::GetTileBlockId { axis: axis(number) }, &[], int),
            Identity::Blocks(number) => self.walk.emit_value(ScheduleOp::GetNumTileBlocks { axis: axis(number) }, &[], int),
            Identity::Lane => self.tile_value(TileOp::LaneId {}, &[], int),
            Identity::Warp => self.tile_value(TileOp::WarpId {}, &[], int),
            Identity::Linear => {
                let span = self.walk.span;
                let block = self.identity(Identity::Block(0), DType::I32)?;
                let thread = self.identity(Identity::Thread(0), DType::I32)?;
                let block = self.walk.convert(block, dtype, None, span)?;
                let thread = self.walk.convert(thread, dtype, None, span)?;
                let threads = self.walk.constant(Num::Int(self.kernel.threads.into()), dtype, Shape::new(), span)?;
                let first = self.walk.arith_tiles(Arith::Mul, &block, &threads, FloatMode::default(), span)?;
                return self.walk.arith_tiles(Arith::Add, &first, &thread, FloatMode::default(), span);
            }
        };
        Ok(self.tile(value, dtype))
    }

    fn unary(&mut self, function: Unary, x: &Expression, whole: &Expression) -> Res<Tile> {
        let x = self.value(x)?;
        self.walk.span = whole.span;
        let builtin = match function {
            Unary::Neg => Builtin::Negative,
            Unary::Not => Builtin::BitNot,
            Unary::Abs => Builtin::Abs,
            Unary::Exp => Builtin::Exp,
            Unary::Exp2 => Builtin::Exp2,
            Unary::Log => Builtin::Log,
            Unary::Log2 => Builtin::Log2,
            Unary::Sqrt => Builtin::Sqrt,
            Unary::Rsqrt => Builtin::Rsqrt,
            Unary::Sin => Builtin::Sin,
            Unary::Cos => Builtin::Cos,
            Unary::Tanh => Builtin::Tanh,
            Unary::Floor => Builtin::Floor,
            Unary::Ceil => Builtin::Ceil,
        };
        self.walk.unary_tile(builtin, x, FloatMode::default(), whole.span)
    }

    fn binary(&mut self, op: Binary, a: &Expression, b: &Expression, whole: &Expression) -> Res<Tile> {
        let span = whole.span;
        if let Binary::AndThen | Binary::OrElse = op {
            return self.both(op == Binary::OrElse, a, b);
        }
        let (x, y) = (self.value(a)?, self.value(b)?);
        self.walk.span = span;
        let mut arith = |op: Arith| self.walk.arith_tiles(op, &x, &y, FloatMode::default(), span);
        match op {
            Binary::Add => arith(Arith::Add),
            Binary::Sub => arith(Arith::Sub),
            Binary::Mul => arith(Arith::Mul),
            Binary::Div => arith(Arith::TrueDiv),
            Binary::FloorDiv => arith(Arith::FloorDiv),
            Binary::Mod => arith(Arith::Mod),
            Binary::Pow => arith(Arith::Pow),
            Binary::Max => arith(Arith::Max),
            Binary::Min => arith(Arith::Min),
            Binary::And => Ok(self.walk.bitwise_tiles(BinaryOp::And, &x, &y)),
            Binary::Or => Ok(self.walk.bitwise_tiles(BinaryOp::Or, &x, &y)),
            Binary::Xor => Ok(self.walk.bitwise_tiles(BinaryOp::Xor, &x, &y)),
            Binary::Shl => Ok(self.walk.emit_tile(
                ScheduleOp::ShlI { overflow: Overflow::Wraps },
                &[x.value, y.value],
                x.dtype,
                Shape::new(),
            )),
            Binary::Shr => {
                let kind = ScheduleOp::ShrI { signedness: signedness(x.dtype) };
                Ok(self.walk.emit_tile(kind, &[x.value, y.value], x.dtype, Shape::new()))
            }
            Binary::Eq => Ok(self.walk.compare_tiles(CompareOp::Eq, &x, &y)),
            Binary::Ne => Ok(self.walk.compare_tiles(CompareOp::Ne, &x, &y)),
            Binary::Lt => Ok(self.walk.compare_tiles(CompareOp::Lt, &x, &y)),
            Binary::Le => Ok(self.walk.compare_tiles(CompareOp::Le, &x, &y)),
            Binary::Gt => Ok(self.walk.compare_tiles(CompareOp::Gt, &x, &y)),
            Binary::Ge => Ok(self.walk.compare_tiles(CompareOp::Ge, &x, &y)),
            Binary::AndThen | Binary::OrElse => Err(self.broken("a comparison out of place", span)),
        }
    }

    /// `a and b`, or `a or b`: both sides where computing the second harms nobody.
    fn both(&mut self, or: bool, a: &Expression, b: &Expression) -> Res<Tile> {
        let x = self.value(a)?;
        if !traps(b) {
            let y = self.value(b)?;
            let op = if or { BinaryOp::Or } else { BinaryOp::And };
            return Ok(self.walk.bitwise_tiles(op, &x, &y));
        }
        let second = |emit: &mut Self| emit.value(b).map(|y| y.value);
        let first = |emit: &mut Self| Ok(emit.walk.emit_constant(tessera_ir::Const::bool(or), DType::B1, Shape::new()));
        let value = match or {
            true => self.either(x.value, DType::B1, first, second)?,
            false => self.either(x.value, DType::B1, second, first)?,
        };
        Ok(self.tile(value, DType::B1))
    }

    /// One of two values, the other of which is not computed.
    fn either(
        &mut self,
        condition: Value,
        dtype: DType,
        then: impl FnOnce(&mut Self) -> Res<Value>,
        otherwise: impl FnOnce(&mut Self) -> Res<Value>,
    ) -> Res<Value> {
        let blocks = [self.walk.func.new_block(), self.walk.func.new_block()];
        let values = [self.inside(blocks[0], then)?, self.inside(blocks[1], otherwise)?];
        for (block, value) in blocks.into_iter().zip(values) {
            self.walk.within(block, |walk| walk.emit(ScheduleOp::Yield {}, &[&[value]], []));
        }
        let op = self.walk.emit_with_regions(ScheduleOp::If {}, &[&[condition]], [tile_type(dtype, &[])], blocks);
        Ok(self.walk.func.ops[op].result())
    }
}
