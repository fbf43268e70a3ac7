//! Binary arithmetic, bit operations and selection.

use tessera_ir::attrs::{Overflow, Rounding};
use tessera_ir::{Diagnostic, ScheduleOp, Span};
use tessera_types::DType;

use super::operand::At;
use super::{Lowerer, Res, signedness};
use crate::ast::{BinaryOp, CompareOp};
use crate::diagnostics::id;
use crate::fixed::fault;
use crate::number::{Fault, Num, floor_div};
use crate::promote::{dtype_name, int_range, is_arithmetic, is_restricted};
use crate::value::{Tile, Val};

/// A binary operation on numbers and tiles.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Arith {
    Add,
    Sub,
    Mul,
    TrueDiv,
    FloorDiv,
    CDiv,
    Mod,
    Pow,
    Atan2,
    Min,
    Max,
}

impl Arith {
    const fn symbol(self) -> &'static str {
        match self {
            Arith::Add => "+",
            Arith::Sub => "-",
            Arith::Mul => "*",
            Arith::TrueDiv => "/",
            Arith::FloorDiv => "//",
            Arith::CDiv => "cdiv",
            Arith::Mod => "%",
            Arith::Pow => "**",
            Arith::Atan2 => "atan2",
            Arith::Min => "minimum",
            Arith::Max => "maximum",
        }
    }
}

/// How a float operation is done.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct FloatMode {
    pub(crate) rounding: Option<Rounding>,
    pub(crate) flush_to_zero: bool,
    pub(crate) propagate_nan: bool,
}

/// The value of an operation on two compile-time numbers.
fn fold(op: Arith, x: Num, y: Num) -> Result<Num, Fault> {
    match op {
        Arith::Add => x.binary(BinaryOp::Add, y),
        Arith::Sub => x.binary(BinaryOp::Sub, y),
        Arith::Mul => x.binary(BinaryOp::Mul, y),
        Arith::TrueDiv => x.binary(BinaryOp::Div, y),
        Arith::FloorDiv => x.binary(BinaryOp::FloorDiv, y),
        Arith::CDiv => x.neg()?.binary(BinaryOp::FloorDiv, y)?.neg(),
        Arith::Mod => x.binary(BinaryOp::Mod, y),
        Arith::Pow => x.binary(BinaryOp::Pow, y),
        Arith::Atan2 => Ok(Num::Float(x.as_f64().atan2(y.as_f64()))),
        Arith::Min => Ok(if x.test(CompareOp::Gt, y) == Some(true) { y } else { x }),
        Arith::Max => Ok(if x.test(CompareOp::Lt, y) == Some(true) { y } else { x }),
    }
}

impl Lowerer<'_> {
    /// An arithmetic operation with promotion and broadcasting.
    pub(crate) fn arith(&mut self, op: Arith, a: &At, b: &At, mode: FloatMode, span: Span) -> Res<Val> {
        for at in [a, b] {
            let dtype = self.dtype_of(at).map_err(|error| self.operand_error(op.symbol(), a, b, span).unwrap_or(error))?;
            if !is_arithmetic(dtype) {
                return Err(Box::new(
                    Diagnostic::error(id::OPERAND_TYPE, at.1, format!("`{}` does not take {}", op.symbol(), dtype_name(dtype)))
                        .label(format!("this is {}", at.0.describe()))
                        .help("cast it first: `.astype(ct.float32)`"),
                ));
            }
        }
        if let (Val::Num(x), Val::Num(y)) = (&a.0, &b.0) {
            return fold(op, *x, *y).map(Val::Num).map_err(|kind| fault(kind, op.symbol(), span));
        }
        if op == Arith::Pow
            && let Some(power) = self.integer_power(a, b)?
        {
            return Ok(Val::Tile(power));
        }
        let dtype = self.common_dtype(a, b, op == Arith::TrueDiv)?;
        if dtype == DType::B1 {
            return Err(Box::new(
                Diagnostic::error(id::OPERAND_TYPE, span, format!("`{}` does not take truth values", op.symbol()))
                    .also(a.1, format!("this is {}", a.0.describe()))
                    .also(b.1, format!("this is {}", b.0.describe()))
                    .help("cast to an integer: `.astype(ct.int32)`"),
            ));
        }
        let (x, y) = self.unify(a, b, dtype)?;
        self.arith_tiles(op, &x, &y, mode, span).map(Val::Tile)
    }

    fn operand_error(&self, symbol: &str, a: &At, b: &At, span: Span) -> Option<Box<Diagnostic>> {
        (!a.0.is_numeric() || !b.0.is_numeric()).then(|| {
            Box::new(
                Diagnostic::error(
                    id::OPERAND_TYPE,
                    span,
                    format!("`{symbol}` does not take {} and {}", a.0.describe(), b.0.describe()),
                )
                .also(a.1, format!("this is {}", a.0.describe()))
                .also(b.1, format!("this is {}", b.0.describe()))
                .help(if matches!(a.0, Val::Array(_)) || matches!(b.0, Val::Array(_)) {
                    "arrays are in memory: load a tile with `ct.load` or `ct.gather` first"
                } else {
                    "operators take tiles and numbers"
                }),
            )
        })
    }

    /// A float to an integer power, where the exponent is a run-time or literal integer of at most 32 bits.
    fn integer_power(&mut self, a: &At, b: &At) -> Res<Option<Tile>> {
        let (base, exponent) = (self.dtype_of(a)?, self.dtype_of(b)?);
        let small = match exponent {
            DType::I8 => DType::I8,
            DType::I16 | DType::U8 => DType::I16,
            DType::I32 | DType::U16 => DType::I32,
            _ => return Ok(None),
        };
        if !base.is_float() || is_restricted(base) {
            return Ok(None);
        }
        let shape = self.common_shape(a, b)?;
        let x = self.tile_as(a, base)?;
        let x = self.broadcast(x, &shape);
        let n = self.tile_as(b, small)?;
        let n = self.broadcast(n, &shape);
        Ok(Some(self.emit_tile(ScheduleOp::FPowI {}, &[x.value, n.value], base, shape)))
    }

    /// Refuses rounding modes that an operation or type does not have.
    pub(crate) fn check_mode(
        &self,
        what: &str,
        allowed: &[Rounding],
        flushes: bool,
        mode: FloatMode,
        dtype: DType,
        span: Span,
    ) -> Res<()> {
        let refuse = |message: String| Err(Box::new(Diagnostic::error(id::ROUNDING, span, message).label("in this operation")));
        if let Some(rounding) = mode.rounding {
            if !allowed.contains(&rounding) {
                let words: Vec<&str> = allowed.iter().map(|rounding| rounding.word()).collect();
                let words = if words.is_empty() { "none".to_string() } else { words.join(", ") };
                return refuse(format!("`{what}` does not round by `{}`; it has {words}", rounding.word()));
            }
            if !dtype.is_float() || is_restricted(dtype) {
                return refuse(format!("rounding modes are for float types, not {}", dtype_name(dtype)));
            }
            if matches!(rounding, Rounding::Approx | Rounding::Full) && dtype != DType::F32 {
                return refuse(format!("the rounding mode `{}` is for float32, not {}", rounding.word(), dtype_name(dtype)));
            }
        }
        if mode.flush_to_zero && !flushes {
            return refuse(format!("`{what}` can't flush to zero"));
        }
        if mode.flush_to_zero && dtype != DType::F32 {
            return refuse(format!("`flush_to_zero` is for float32, not {}", dtype_name(dtype)));
        }
        Ok(())
    }

    /// An operation on two tiles of one type.
    pub(crate) fn arith_tiles(&mut self, op: Arith, x: &Tile, y: &Tile, mode: FloatMode, span: Span) -> Res<Tile> {
        const BASIC: &[Rounding] = &[Rounding::NearestEven, Rounding::Zero, Rounding::NegativeInf, Rounding::PositiveInf];
        const DIVISION: &[Rounding] = &[
            Rounding::NearestEven,
            Rounding::Zero,
            Rounding::NegativeInf,
            Rounding::PositiveInf,
            Rounding::Full,
            Rounding::Approx,
        ];
        let dtype = x.dtype;
        let (allowed, flushes): (&[Rounding], bool) = match op {
            Arith::Add | Arith::Sub | Arith::Mul => (BASIC, true),
            Arith::TrueDiv => (DIVISION, true),
            Arith::Min | Arith::Max => (&[], true),
            Arith::FloorDiv | Arith::CDiv | Arith::Mod | Arith::Pow | Arith::Atan2 => (&[], false),
        };
        self.check_mode(op.symbol(), allowed, flushes, mode, dtype, span)?;
        if let Some(known) = self.fold_integers(op, x, y, span)? {
            return self.constant(known, dtype, x.shape.clone(), span);
        }
        let rounding = mode.rounding.unwrap_or(Rounding::NearestEven);
        let flush_to_zero = mode.flush_to_zero;
        let propagate_nan = mode.propagate_nan;
        let signedness = signedness(dtype);
        let refuse = |kind: &str| {
            Err(Box::new(
                Diagnostic::error(id::OPERAND_TYPE, span, format!("`{}` does not take {kind}", op.symbol()))
                    .label(format!("the operands are {}", dtype_name(dtype))),
            ))
        };
        let kind = match (op, dtype.is_float()) {
            (Arith::Add, true) => ScheduleOp::AddF { rounding, flush_to_zero },
            (Arith::Sub, true) => ScheduleOp::SubF { rounding, flush_to_zero },
            (Arith::Mul, true) => ScheduleOp::MulF { rounding, flush_to_zero },
            (Arith::TrueDiv | Arith::FloorDiv, true) => ScheduleOp::DivF { rounding, flush_to_zero },
            (Arith::Mod, true) => ScheduleOp::RemF {},
            (Arith::Pow, true) => ScheduleOp::Pow {},
            (Arith::Atan2, true) => ScheduleOp::Atan2 {},
            (Arith::Min, true) => ScheduleOp::MinF { propagate_nan, flush_to_zero },
            (Arith::Max, true) => ScheduleOp::MaxF { propagate_nan, flush_to_zero },
            (Arith::CDiv, true) => return refuse("floats"),
            (Arith::Add, false) => ScheduleOp::AddI { overflow: Overflow::Wraps },
            (Arith::Sub, false) => ScheduleOp::SubI { overflow: Overflow::Wraps },
            (Arith::Mul, false) => ScheduleOp::MulI { overflow: Overflow::Wraps },
            (Arith::FloorDiv, false) => ScheduleOp::DivI { signedness, rounding: Rounding::NegativeInf },
            (Arith::CDiv, false) => ScheduleOp::DivI { signedness, rounding: Rounding::PositiveInf },
            (Arith::Mod, false) => ScheduleOp::RemI { signedness },
            (Arith::Min, false) => ScheduleOp::MinI { signedness },
            (Arith::Max, false) => ScheduleOp::MaxI { signedness },
            (Arith::Pow | Arith::Atan2 | Arith::TrueDiv, false) => return refuse("integers; cast to a float type"),
        };
        let result = self.emit_tile(kind, &[x.value, y.value], dtype, x.shape.clone());
        match op {
            Arith::FloorDiv if dtype.is_float() => Ok(self.emit_tile(ScheduleOp::Floor {}, &[result.value], dtype, result.shape)),
            Arith::Mod if dtype.is_float() || dtype.is_signed() => self.with_sign_of_divisor(&result, y, span),
            _ => Ok(result),
        }
    }

    /// C's remainder to Python's: where the signs differ, the divisor is added.
    fn with_sign_of_divisor(&mut self, rest: &Tile, divisor: &Tile, span: Span) -> Res<Tile> {
        let zero = self.constant(Num::Int(0), rest.dtype, rest.shape.clone(), span)?;
        let rest_negative = self.compare_tiles(CompareOp::Lt, rest, &zero);
        let divisor_negative = self.compare_tiles(CompareOp::Lt, divisor, &zero);
        let shape = rest.shape.clone();
        let differ =
            self.emit_tile(ScheduleOp::XorI {}, &[rest_negative.value, divisor_negative.value], DType::B1, shape.clone());
        let not_zero = self.compare_tiles(CompareOp::Ne, rest, &zero);
        let fix = self.emit_tile(ScheduleOp::AndI {}, &[differ.value, not_zero.value], DType::B1, shape.clone());
        let moved = self.arith_tiles(Arith::Add, rest, divisor, FloatMode::default(), span)?;
        Ok(self.emit_tile(ScheduleOp::Select {}, &[fix.value, moved.value, rest.value], rest.dtype, shape))
    }

    /// The known integer that two known integers come to, when the type holds it.
    fn fold_integers(&self, op: Arith, x: &Tile, y: &Tile, span: Span) -> Res<Option<Num>> {
        let (Some(Num::Int(a)), Some(Num::Int(b))) = (x.known, y.known) else { return Ok(None) };
        let value = match op {
            Arith::TrueDiv | Arith::Pow | Arith::Atan2 => return Ok(None),
            Arith::FloorDiv | Arith::CDiv | Arith::Mod if b == 0 => return Err(fault(Fault::ZeroDivision, op.symbol(), span)),
            Arith::FloorDiv => floor_div(a, b).map(Num::Int),
            _ => fold(op, Num::Int(a), Num::Int(b)).ok(),
        };
        let (least, greatest) = int_range(x.dtype);
        Ok(value.filter(|value| value.as_int().is_some_and(|value| least <= value && value <= greatest)))
    }

    /// `&`, `|`, `^`.
    pub(crate) fn bitwise(&mut self, op: BinaryOp, a: &At, b: &At, span: Span) -> Res<Val> {
        if let (Val::Num(x), Val::Num(y)) = (&a.0, &b.0) {
            return x.binary(op, *y).map(Val::Num).map_err(|kind| fault(kind, op.symbol(), span));
        }
        let (x, y) = match (self.dtype_of(a), self.dtype_of(b)) {
            (Ok(x), Ok(y)) => (x, y),
            (Err(error), _) | (_, Err(error)) => return Err(self.operand_error(op.symbol(), a, b, span).unwrap_or(error)),
        };
        for (at, dtype) in [(a, x), (b, y)] {
            if dtype.is_float() {
                return Err(Box::new(
                    Diagnostic::error(id::OPERAND_TYPE, at.1, format!("`{}` takes integers and truth values", op.symbol()))
                        .label(format!("this is {}", at.0.describe()))
                        .help("read the bits with `ct.bitcast` first"),
                ));
            }
        }
        let both_typed = !matches!(a.0, Val::Num(_)) && !matches!(b.0, Val::Num(_));
        if both_typed && x != y {
            return Err(Box::new(
                Diagnostic::error(
                    id::PROMOTION,
                    a.1.to(b.1),
                    format!("`{}` needs operands of one type, not {} and {}", op.symbol(), dtype_name(x), dtype_name(y)),
                )
                .also(a.1, format!("this is {}", a.0.describe()))
                .also(b.1, format!("this is {}", b.0.describe()))
                .help("cast one of them with `.astype`"),
            ));
        }
        let dtype = self.common_dtype(a, b, false)?;
        let (x, y) = self.unify(a, b, dtype)?;
        Ok(Val::Tile(self.bitwise_tiles(op, &x, &y)))
    }

    /// A bit operation on two tiles of one type.
    pub(crate) fn bitwise_tiles(&mut self, op: BinaryOp, x: &Tile, y: &Tile) -> Tile {
        let kind = match op {
            BinaryOp::And => ScheduleOp::AndI {},
            BinaryOp::Or => ScheduleOp::OrI {},
            _ => ScheduleOp::XorI {},
        };
        let known = x.known.zip(y.known).and_then(|(x, y)| x.binary(op, y).ok());
        Tile { known, ..self.emit_tile(kind, &[x.value, y.value], x.dtype, x.shape.clone()) }
    }

    /// `<<` and `>>`.
    pub(crate) fn shift(&mut self, op: BinaryOp, a: &At, b: &At, span: Span) -> Res<Val> {
        if let (Val::Num(x), Val::Num(y)) = (&a.0, &b.0) {
            return x.binary(op, *y).map(Val::Num).map_err(|kind| fault(kind, op.symbol(), span));
        }
        for at in [a, b] {
            let dtype = self.dtype_of(at).map_err(|error| self.operand_error(op.symbol(), a, b, span).unwrap_or(error))?;
            if !dtype.is_integer() {
                return Err(Box::new(
                    Diagnostic::error(id::OPERAND_TYPE, at.1, format!("`{}` takes integers", op.symbol()))
                        .label(format!("this is {}", at.0.describe())),
                ));
            }
        }
        let dtype = self.common_dtype(a, b, false)?;
        let (x, y) = self.unify(a, b, dtype)?;
        let kind = match op {
            BinaryOp::Shl => ScheduleOp::ShlI { overflow: Overflow::Wraps },
            _ => ScheduleOp::ShrI { signedness: signedness(dtype) },
        };
        Ok(Val::Tile(self.emit_tile(kind, &[x.value, y.value], dtype, x.shape)))
    }

    /// `ct.where`.
    pub(crate) fn where_(&mut self, condition: &At, x: &At, y: &At) -> Res<Val> {
        let dtype = self.common_dtype(x, y, false)?;
        let (x, y) = self.unify(x, y, dtype)?;
        let condition_shape = self.shape_of(condition)?;
        let Some(shape) = super::operand::broadcast_shape(&condition_shape, &x.shape) else {
            return Err(Box::new(
                Diagnostic::error(
                    id::BROADCAST,
                    condition.1,
                    format!(
                        "the condition of shape {} and values of shape {} don't broadcast",
                        crate::value::show_shape(&condition_shape),
                        crate::value::show_shape(&x.shape)
                    ),
                )
                .label(format!("this is {}", condition.0.describe()))
                .help("extents must be equal or 1, counted from the last axis"),
            ));
        };
        let place = condition.1;
        let condition = self.tile(condition)?;
        let condition = self.convert(condition, DType::B1, None, place)?;
        let condition = self.broadcast(condition, &shape);
        let (x, y) = (self.broadcast(x, &shape), self.broadcast(y, &shape));
        Ok(Val::Tile(self.emit_tile(ScheduleOp::Select {}, &[condition.value, x.value, y.value], dtype, shape)))
    }
}
