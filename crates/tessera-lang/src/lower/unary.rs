//! Unary operators and functions.

use tessera_ir::attrs::{NanOrder, Overflow, Predicate, Rounding};
use tessera_ir::{Diagnostic, ScheduleOp, Span};
use tessera_types::DType;

use super::arith::FloatMode;
use super::control::Condition;
use super::operand::At;
use super::{Lowerer, Res};
use crate::ast::UnaryOp;
use crate::bind::Args;
use crate::builtins::Builtin;
use crate::diagnostics::id;
use crate::fixed::{fault, function};
use crate::number::{Fault, Num};
use crate::promote::{dtype_name, is_restricted};
use crate::value::{Tile, Val};

/// What a function does with integers.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Integers {
    /// They become `float32`.
    BecomeFloat,
    /// They are refused.
    Refused,
    /// They are taken as they are; truth values become `int32`.
    Taken,
}

impl Lowerer<'_> {
    /// A function of one number or tile; its options are arguments by name.
    pub(crate) fn unary(&mut self, builtin: Builtin, args: &Args) -> Res<Val> {
        let mode = match builtin {
            Builtin::Sqrt => FloatMode {
                rounding: self.rounding_mode(&args.at(1))?,
                flush_to_zero: self.require_bool(&args.at(2))?,
                propagate_nan: false,
            },
            Builtin::Rsqrt | Builtin::Exp2 => {
                FloatMode { flush_to_zero: self.require_bool(&args.at(1))?, ..FloatMode::default() }
            }
            Builtin::Exp | Builtin::Tanh => FloatMode { rounding: self.rounding_mode(&args.at(1))?, ..FloatMode::default() },
            _ => FloatMode::default(),
        };
        self.unary_with(builtin, &args.at(0), mode, args.call)
    }

    pub(crate) fn unary_with(&mut self, builtin: Builtin, x: &At, mode: FloatMode, span: Span) -> Res<Val> {
        let name = builtin.row().name;
        if let Val::Num(value) = x.0 {
            return function(builtin, value).map(Val::Num).map_err(|kind| fault(kind, name, span));
        }
        let tile = self.tile(x)?;
        let dtype = tile.dtype;
        if is_restricted(dtype) {
            return Err(Box::new(
                Diagnostic::error(id::OPERAND_TYPE, x.1, format!("`{name}` does not take {}", dtype_name(dtype)))
                    .label(format!("this is {}", x.0.describe()))
                    .help("cast it first: `.astype(ct.float32)`"),
            ));
        }
        let integers = match builtin {
            Builtin::Negative | Builtin::Abs | Builtin::PyAbs | Builtin::BitNot | Builtin::IsNan => Integers::Taken,
            Builtin::Floor | Builtin::Ceil => Integers::Refused,
            _ => Integers::BecomeFloat,
        };
        if builtin == Builtin::BitNot && dtype.is_float() || integers == Integers::Refused && !dtype.is_float() {
            return Err(Box::new(
                Diagnostic::error(id::OPERAND_TYPE, x.1, format!("`{name}` does not take {}", dtype_name(dtype)))
                    .label(format!("this is {}", x.0.describe())),
            ));
        }
        let tile = if integers == Integers::BecomeFloat && !dtype.is_float() {
            self.convert(tile, DType::F32, None, x.1)?
        } else if builtin == Builtin::Negative && dtype == DType::B1 {
            self.convert(tile, DType::I32, None, x.1)?
        } else {
            tile
        };
        const NONE: &[Rounding] = &[];
        const FULL: &[Rounding] = &[Rounding::Full, Rounding::Approx];
        const ROOT: &[Rounding] =
            &[Rounding::NearestEven, Rounding::Zero, Rounding::NegativeInf, Rounding::PositiveInf, Rounding::Approx];
        let (allowed, flushes) = match builtin {
            Builtin::Sqrt => (ROOT, true),
            Builtin::Rsqrt | Builtin::Exp2 => (NONE, true),
            Builtin::Exp | Builtin::Tanh => (FULL, false),
            _ => (NONE, false),
        };
        self.check_mode(name, allowed, flushes, mode, tile.dtype, span)?;
        self.unary_tile(builtin, tile, mode, span).map(Val::Tile)
    }

    /// A function of one run-time tile.
    pub(crate) fn unary_tile(&mut self, builtin: Builtin, tile: Tile, mode: FloatMode, span: Span) -> Res<Tile> {
        let dtype = tile.dtype;
        let flush_to_zero = mode.flush_to_zero;
        // `full` is a mode of float32 alone; the other floats have the exact result, rounded.
        let default = if dtype == DType::F32 { Rounding::Full } else { Rounding::NearestEven };
        let rounding = mode.rounding.unwrap_or(default);
        let kind = match builtin {
            Builtin::Negative if dtype.is_float() => ScheduleOp::NegF {},
            Builtin::Negative => {
                if let Some(value) = tile.known.and_then(|value| value.neg().ok())
                    && super::operand::encode(value, dtype).is_some()
                {
                    return self.constant(value, dtype, tile.shape, span);
                }
                ScheduleOp::NegI { overflow: Overflow::Wraps }
            }
            Builtin::Abs | Builtin::PyAbs if dtype.is_float() => ScheduleOp::AbsF {},
            Builtin::Abs | Builtin::PyAbs if !dtype.is_signed() => return Ok(tile),
            Builtin::Abs | Builtin::PyAbs => ScheduleOp::AbsI {},
            Builtin::BitNot => {
                let ones = if dtype.is_signed() { Num::Int(-1) } else { Num::Int(crate::promote::int_range(dtype).1) };
                let ones =
                    self.constant(if dtype == DType::B1 { Num::Bool(true) } else { ones }, dtype, tile.shape.clone(), span)?;
                return Ok(self.bitwise_tiles(crate::ast::BinaryOp::Xor, &tile, &ones));
            }
            Builtin::IsNan => {
                if !dtype.is_float() {
                    return self.constant(Num::Bool(false), DType::B1, tile.shape, span);
                }
                let kind = ScheduleOp::CmpF { predicate: Predicate::Ne, nan: NanOrder::Unordered };
                return Ok(self.emit_tile(kind, &[tile.value, tile.value], DType::B1, tile.shape));
            }
            Builtin::Exp => ScheduleOp::Exp { rounding, flush_to_zero: false },
            Builtin::Tanh => ScheduleOp::TanH { rounding },
            Builtin::Exp2 => ScheduleOp::Exp2 { flush_to_zero },
            Builtin::Rsqrt => ScheduleOp::Rsqrt { flush_to_zero },
            Builtin::Sqrt => ScheduleOp::Sqrt { rounding: mode.rounding.unwrap_or(Rounding::NearestEven), flush_to_zero },
            Builtin::Log => ScheduleOp::Log {},
            Builtin::Log2 => ScheduleOp::Log2 {},
            Builtin::Sin => ScheduleOp::Sin {},
            Builtin::Cos => ScheduleOp::Cos {},
            Builtin::Tan => ScheduleOp::Tan {},
            Builtin::Sinh => ScheduleOp::SinH {},
            Builtin::Cosh => ScheduleOp::CosH {},
            Builtin::Floor => ScheduleOp::Floor {},
            Builtin::Ceil => ScheduleOp::Ceil {},
            _ => return Err(fault(Fault::Kind, builtin.row().name, span)),
        };
        Ok(self.emit_tile(kind, &[tile.value], dtype, tile.shape))
    }

    /// `-x`, `+x`, `~x`, `not x`.
    pub(crate) fn unary_operator(&mut self, op: UnaryOp, x: &At, span: Span) -> Res<Val> {
        let special = match op {
            UnaryOp::Neg => Some("__neg__"),
            UnaryOp::Pos => Some("__pos__"),
            UnaryOp::Invert => Some("__invert__"),
            UnaryOp::Not => None,
        };
        if let Some(name) = special
            && let Some(value) = self.special(&x.0, name, &[], span)?
        {
            return Ok(value);
        }
        let x = &(x.0.plain(), x.1);
        match op {
            UnaryOp::Neg => self.unary_with(Builtin::Negative, x, FloatMode::default(), span),
            UnaryOp::Invert => match x.0 {
                Val::Num(Num::Bool(_)) => Err(Box::new(
                    Diagnostic::error(id::OPERAND_TYPE, span, "`~` on a constant truth value gives an integer in Python")
                        .help("write `not x` or `ct.bitwise_not(x)`"),
                )),
                _ => self.unary_with(Builtin::BitNot, x, FloatMode::default(), span),
            },
            UnaryOp::Pos => match &x.0 {
                Val::Num(Num::Bool(value)) => Ok(Val::int(*value)),
                Val::Num(_) => Ok(x.0.clone()),
                _ => {
                    let tile = self.tile(x)?;
                    if tile.dtype == DType::B1 {
                        self.convert(tile, DType::I32, None, span).map(Val::Tile)
                    } else {
                        Ok(x.0.clone())
                    }
                }
            },
            UnaryOp::Not if matches!(&x.0, Val::Tile(tile) if !tile.shape.is_empty()) => {
                let tile = self.tile_as(x, DType::B1)?;
                self.complement(&tile, span).map(Val::Tile)
            }
            UnaryOp::Not => match self.condition(x)? {
                Condition::Known(value) => Ok(Val::bool(!value)),
                Condition::AtRunTime(tile) => self.complement(&tile, span).map(Val::Tile),
            },
        }
    }
}
