//! Arithmetic on run-time values: element types meet, axes broadcast, conversions are made.

use tessera_ir::attrs::{Overflow, Rounding};
use tessera_ir::{Axis, Const, Diagnostic, GraphOp, ScheduleOp, Span};
use tessera_types::DType;

use super::{At, Axes, Data, Item, Res, Walk, show};
use crate::ast::{BinaryOp, CompareOp};
use crate::diagnostics::id;
use crate::fixed::Fixed;
use crate::lower::{comparison, encode, signedness};
use crate::number::{self, Num};
use crate::promote::{WithLiteral, dtype_name, is_arithmetic, literal_dtype, promote, promote_literal};

/// An elementwise operation on two values of one type.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Pair {
    Add,
    Sub,
    Mul,
    Div,
    FloorDiv,
    Mod,
    Shl,
    Shr,
    Pow,
    Atan2,
    Max,
    Min,
    And,
    Or,
    Xor,
}

impl Pair {
    fn of(op: BinaryOp) -> Option<Pair> {
        Some(match op {
            BinaryOp::Add => Pair::Add,
            BinaryOp::Sub => Pair::Sub,
            BinaryOp::Mul => Pair::Mul,
            BinaryOp::Div => Pair::Div,
            BinaryOp::FloorDiv => Pair::FloorDiv,
            BinaryOp::Pow => Pair::Pow,
            BinaryOp::And => Pair::And,
            BinaryOp::Or => Pair::Or,
            BinaryOp::Xor => Pair::Xor,
            BinaryOp::Mod => Pair::Mod,
            BinaryOp::Shl => Pair::Shl,
            BinaryOp::Shr => Pair::Shr,
            BinaryOp::MatMul => return None,
        })
    }

    /// The operation on a type; `None` where there is none.
    fn kind(self, dtype: DType) -> Option<ScheduleOp> {
        let (rounding, flush_to_zero, propagate_nan) = (Rounding::NearestEven, false, false);
        let overflow = Overflow::Wraps;
        let signedness = signedness(dtype);
        Some(if dtype.is_float() {
            match self {
                Pair::Add => ScheduleOp::AddF { rounding, flush_to_zero },
                Pair::Sub => ScheduleOp::SubF { rounding, flush_to_zero },
                Pair::Mul => ScheduleOp::MulF { rounding, flush_to_zero },
                Pair::Div => ScheduleOp::DivF { rounding, flush_to_zero },
                Pair::Pow => ScheduleOp::Pow {},
                Pair::Atan2 => ScheduleOp::Atan2 {},
                Pair::Max => ScheduleOp::MaxF { propagate_nan, flush_to_zero },
                Pair::Min => ScheduleOp::MinF { propagate_nan, flush_to_zero },
                // C's remainder, which `with_sign_of_divisor` makes Python's.
                Pair::Mod => ScheduleOp::RemF {},
                Pair::FloorDiv | Pair::Shl | Pair::Shr | Pair::And | Pair::Or | Pair::Xor => return None,
            }
        } else if dtype == DType::B1 {
            match self {
                Pair::And => ScheduleOp::AndI {},
                Pair::Or => ScheduleOp::OrI {},
                Pair::Xor => ScheduleOp::XorI {},
                _ => return None,
            }
        } else {
            match self {
                Pair::Add => ScheduleOp::AddI { overflow },
                Pair::Sub => ScheduleOp::SubI { overflow },
                Pair::Mul => ScheduleOp::MulI { overflow },
                Pair::FloorDiv => ScheduleOp::DivI { signedness, rounding: Rounding::NegativeInf },
                Pair::Mod => ScheduleOp::RemI { signedness },
                Pair::Shl => ScheduleOp::ShlI { overflow },
                Pair::Shr => ScheduleOp::ShrI { signedness },
                Pair::Max => ScheduleOp::MaxI { signedness },
                Pair::Min => ScheduleOp::MinI { signedness },
                Pair::And => ScheduleOp::AndI {},
                Pair::Or => ScheduleOp::OrI {},
                Pair::Xor => ScheduleOp::XorI {},
                Pair::Div | Pair::Pow | Pair::Atan2 => return None,
            }
        })
    }
}

/// The axes that two values broadcast to, matched from the last.
fn common_axes(a: &[Axis], b: &[Axis]) -> Option<Axes> {
    let rank = a.len().max(b.len());
    let axis = |axes: &[Axis], i: usize| (i + axes.len()).checked_sub(rank).map_or(Axis::Fixed(1), |i| axes[i].clone());
    (0..rank)
        .map(|i| match (axis(a, i), axis(b, i)) {
            (x, y) if x == y || y == Axis::Fixed(1) => Some(x),
            (Axis::Fixed(1), y) => Some(y),
            _ => None,
        })
        .collect()
}

fn is_are(a: &At, b: &At, diagnostic: Diagnostic) -> Diagnostic {
    diagnostic.also(a.1, format!("this is {}", a.0.describe())).also(b.1, format!("this is {}", b.0.describe()))
}

impl Walk<'_> {
    /// A scalar with the number; `None` when the type does not hold it.
    pub(super) fn number(&mut self, number: Num, dtype: DType) -> Option<Data> {
        let value = Const::splat(dtype.signless(), encode(number, dtype)?);
        Some(self.data(ScheduleOp::Constant { value }, &[], dtype, None))
    }

    /// The value as run-time data; a number takes its own type.
    pub(super) fn concrete(&mut self, (item, span): &At) -> Res<Data> {
        match item {
            Item::Data(data) => Ok(data.clone()),
            Item::Fixed(Fixed::Num(number)) => {
                let number = *number;
                literal_dtype(number).and_then(|dtype| self.number(number, dtype)).ok_or_else(|| out_of_range(number, *span))
            }
            other => Err(not_a_value(other, *span)),
        }
    }

    /// The value repeated to the axes.
    pub(super) fn spread(&mut self, data: &Data, axes: &Axes) -> Data {
        if data.axes.as_ref() == Some(axes) {
            return data.clone();
        }
        self.data(GraphOp::Broadcast {}, &[data.value], data.dtype, Some(axes.clone()))
    }

    /// The value in another element type.
    pub(super) fn convert(&mut self, data: &Data, to: DType) -> Data {
        let from = data.dtype;
        let kind = if from == to {
            return data.clone();
        } else if to == DType::B1 {
            let zero = self.data(ScheduleOp::Constant { value: Const::splat(from.signless(), 0) }, &[], from, None);
            let zero = match &data.axes {
                Some(axes) => self.spread(&zero, axes),
                None => zero,
            };
            return self.compare_data(CompareOp::Ne, data, &zero);
        } else if from.is_float() && to.is_float() {
            // A scale has no fraction: it rounds toward zero.
            ScheduleOp::FToF { rounding: if to == DType::E8M0 { Rounding::Zero } else { Rounding::NearestEven } }
        } else if from.is_float() {
            ScheduleOp::FToI { signedness: signedness(to), rounding: Rounding::NearestIntToZero }
        } else if to.is_float() {
            ScheduleOp::IToF { signedness: signedness(from), rounding: Rounding::NearestEven }
        } else if from.bits() < to.bits() {
            ScheduleOp::ExtI { signedness: signedness(from) }
        } else if from.bits() > to.bits() {
            ScheduleOp::TruncI { overflow: Overflow::Wraps }
        } else {
            return Data { dtype: to, ..data.clone() };
        };
        self.data(kind, &[data.value], to, data.axes.clone())
    }

    /// The common element type of two values.
    fn common_dtype(&self, a: &At, b: &At, to_float: bool) -> Res<DType> {
        let dtype_of = |at: &At| match &at.0 {
            Item::Data(data) => Ok(data.dtype),
            Item::Fixed(Fixed::Num(number)) => literal_dtype(*number).ok_or_else(|| out_of_range(*number, at.1)),
            other => Err(not_a_value(other, at.1)),
        };
        let (x, y) = (dtype_of(a)?, dtype_of(b)?);
        let literal = |dtype: DType, number: Num, span: Span| match promote_literal(dtype, number, to_float) {
            WithLiteral::Common(dtype) => Ok(dtype),
            WithLiteral::OutOfRange => Err(Box::new(
                Diagnostic::error(id::CONSTANT_OVERFLOW, span, format!("{number} does not fit {}", dtype_name(dtype)))
                    .label("this constant"),
            )),
        };
        let common = match (&a.0, &b.0) {
            (Item::Data(_), Item::Fixed(Fixed::Num(number))) => literal(x, *number, b.1)?,
            (Item::Fixed(Fixed::Num(number)), Item::Data(_)) => literal(y, *number, a.1)?,
            _ => promote(x, y).ok_or_else(|| {
                let message = format!("{} and {} have no common type", dtype_name(x), dtype_name(y));
                let diagnostic = Diagnostic::error(id::PROMOTION, a.1.to(b.1), message);
                Box::new(is_are(a, b, diagnostic).help("convert one of them with `tile.cast(x, dtype)`"))
            })?,
        };
        Ok(if to_float && !common.is_float() { DType::F32 } else { common })
    }

    /// Both values with one element type and the same axes.
    pub(super) fn unify(&mut self, a: &At, b: &At, dtype: DType) -> Res<(Data, Data)> {
        let mut sides = Vec::new();
        for at in [a, b] {
            sides.push(match &at.0 {
                Item::Fixed(Fixed::Num(number)) => self.number(*number, dtype).ok_or_else(|| out_of_range(*number, at.1))?,
                _ => {
                    let data = self.concrete(at)?;
                    self.convert(&data, dtype)
                }
            });
        }
        if let Some(axes) = broadcast_axes(&sides[0], &sides[1], a, b)? {
            sides = sides.iter().map(|side| self.spread(side, &axes)).collect();
        }
        Ok((sides[0].clone(), sides[1].clone()))
    }

    /// Both values with their common type and axes.
    pub(super) fn meet(&mut self, a: &At, b: &At) -> Res<(Data, Data)> {
        let dtype = self.common_dtype(a, b, false)?;
        self.unify(a, b, dtype)
    }

    /// `a op b`.
    pub(super) fn binary(&mut self, op: BinaryOp, a: &At, b: &At, span: Span) -> Res<Item> {
        if let (Item::Fixed(x), Item::Fixed(y)) = (&a.0, &b.0) {
            return crate::fixed::binary(op, x, y, span).map(Item::Fixed);
        }
        match Pair::of(op) {
            Some(Pair::Pow) => self.power(op.symbol(), a, b, span),
            Some(pair) => self.pair(pair, op.symbol(), a, b, span),
            None => self.product(a, b, None, span),
        }
    }

    /// An elementwise operation with promotion and broadcasting.
    pub(super) fn pair(&mut self, pair: Pair, name: &str, a: &At, b: &At, span: Span) -> Res<Item> {
        let to_float = matches!(pair, Pair::Div | Pair::Pow | Pair::Atan2);
        for at in [a, b] {
            self.arithmetic(name, at)?;
        }
        let dtype = self.common_dtype(a, b, to_float)?;
        let Some(kind) = pair.kind(dtype) else {
            let diagnostic = Diagnostic::error(id::OPERAND_TYPE, span, format!("`{name}` does not take {}", dtype_name(dtype)));
            return Err(Box::new(is_are(a, b, diagnostic).help("convert the operands with `tile.cast(x, dtype)`")));
        };
        if let Item::Fixed(Fixed::Num(number)) = &b.0 {
            number::divides_or_shifts(name, *number, dtype, (span, b.1))?;
        }
        let (x, y) = self.unify(a, b, dtype)?;
        let result = self.data(kind, &[x.value, y.value], dtype, x.axes);
        Ok(Item::Data(match pair {
            Pair::Mod if dtype.is_float() || dtype.is_signed() => self.with_sign_of_divisor(result, &y),
            _ => result,
        }))
    }

    /// C's remainder to Python's: where the signs differ, the divisor is added.
    fn with_sign_of_divisor(&mut self, rest: Data, divisor: &Data) -> Data {
        let (dtype, axes) = (rest.dtype, rest.axes.clone());
        let zero = self.data(ScheduleOp::Constant { value: Const::splat(dtype.signless(), 0) }, &[], dtype, None);
        let zero = axes.as_ref().map_or(zero.clone(), |axes| self.spread(&zero, axes));
        let rest_negative = self.compare_data(CompareOp::Lt, &rest, &zero);
        let divisor_negative = self.compare_data(CompareOp::Lt, divisor, &zero);
        let differ = self.data(ScheduleOp::XorI {}, &[rest_negative.value, divisor_negative.value], DType::B1, axes.clone());
        let not_zero = self.compare_data(CompareOp::Ne, &rest, &zero);
        let fix = self.data(ScheduleOp::AndI {}, &[differ.value, not_zero.value], DType::B1, axes.clone());
        let kind = match dtype.is_float() {
            true => ScheduleOp::AddF { rounding: Rounding::NearestEven, flush_to_zero: false },
            false => ScheduleOp::AddI { overflow: Overflow::Wraps },
        };
        let moved = self.data(kind, &[rest.value, divisor.value], dtype, axes.clone());
        self.data(ScheduleOp::Select {}, &[fix.value, moved.value, rest.value], dtype, axes)
    }

    /// Refuses what arithmetic is not defined on.
    pub(super) fn arithmetic(&self, name: &str, at: &At) -> Res<()> {
        match &at.0 {
            Item::Data(data) if !is_arithmetic(data.dtype) => Err(Box::new(
                Diagnostic::error(id::OPERAND_TYPE, at.1, format!("`{name}` does not take {}", dtype_name(data.dtype)))
                    .label(format!("this is {}", at.0.describe()))
                    .help("convert it first: `tile.cast(x, fp32)`"),
            )),
            Item::Data(_) | Item::Fixed(Fixed::Num(_)) => Ok(()),
            other => Err(not_a_value(other, at.1)),
        }
    }

    /// `a op b` for comparisons.
    pub(super) fn compare(&mut self, op: CompareOp, a: &At, b: &At, span: Span) -> Res<Item> {
        match (&a.0, &b.0) {
            (Item::Fixed(x), Item::Fixed(y)) => {
                return crate::fixed::compare(op, x, y, span).map(|v| Item::Fixed(Fixed::bool(v)));
            }
            // A parameter that got an array or a scalar is not `None`.
            (Item::Fixed(Fixed::None), Item::Operand(_) | Item::Data(_))
            | (Item::Operand(_) | Item::Data(_), Item::Fixed(Fixed::None)) => match op {
                CompareOp::Is | CompareOp::Eq => return Ok(Item::Fixed(Fixed::bool(false))),
                CompareOp::IsNot | CompareOp::Ne => return Ok(Item::Fixed(Fixed::bool(true))),
                _ => {}
            },
            _ => {}
        }
        if matches!(op, CompareOp::Is | CompareOp::IsNot | CompareOp::In | CompareOp::NotIn) {
            let diagnostic =
                Diagnostic::error(id::OPERAND_TYPE, span, "run-time values are compared with `==`, `<` and their kin");
            return Err(Box::new(is_are(a, b, diagnostic)));
        }
        for at in [a, b] {
            self.arithmetic("comparison", at)?;
        }
        let dtype = self.common_dtype(a, b, false)?;
        let (x, y) = self.unify(a, b, dtype)?;
        Ok(Item::Data(self.compare_data(op, &x, &y)))
    }

    fn compare_data(&mut self, op: CompareOp, x: &Data, y: &Data) -> Data {
        let kind = comparison(op, x.dtype);
        self.data(kind, &[x.value, y.value], DType::B1, x.axes.clone())
    }

    /// The value as truth values: unequal to zero.
    pub(super) fn truth(&mut self, at: &At) -> Res<Data> {
        let data = self.concrete(at)?;
        if data.dtype != DType::B1 {
            self.arithmetic("a condition", at)?;
        }
        Ok(self.convert(&data, DType::B1))
    }

    /// The matrix product of two values.
    pub(super) fn product(&mut self, a: &At, b: &At, accum: Option<(DType, Span)>, span: Span) -> Res<Item> {
        let mut sides = Vec::new();
        for at in [a, b] {
            match &at.0 {
                Item::Data(Data { value, dtype, axes: Some(axes) }) => sides.push((*value, *dtype, axes.clone())),
                other => return Err(not_a_value(other, at.1)),
            }
        }
        let (x, y) = (&sides[0], &sides[1]);
        let rank = x.2.len();
        let fits = rank >= 2 && y.2.len() == rank && x.2[..rank - 2] == y.2[..rank - 2] && x.2[rank - 1] == y.2[rank - 2];
        if !fits {
            let message = format!("{} and {} don't form a matrix product", show(&x.2), show(&y.2));
            let help = "the last axis of the first is the last but one of the second: (M, K) and (K, N)";
            let mut error = is_are(a, b, Diagnostic::error(id::BROADCAST, span, message)).help(help);
            for (name, memory) in &self.memory {
                if let Some((true, at)) = memory.transposed {
                    error = error.also(at, format!("`{name}` is loaded turned: its annotation names the axes after that"));
                    let turned = "`B: Tensor[\"K\", \"N\", dtype]` with `transpose=True` takes an array of shape [N, K]";
                    error = error.help(turned);
                }
            }
            return Err(Box::new(error));
        }
        let mma_type = |message: String, at: Span, help: &str| {
            Err(Box::new(is_are(a, b, Diagnostic::error(id::MMA_TYPE, at, message)).help(help)))
        };
        if x.1 != y.1 && !(x.1.is_float() && y.1.is_float() && x.1.bits() == 8 && y.1.bits() == 8) {
            let message = format!("no matrix product takes {} and {}", dtype_name(x.1), dtype_name(y.1));
            return mma_type(message, span, "convert one of them with `tile.cast(x, dtype)`");
        }
        let (dtype, at) = accum.unwrap_or((tessera_types::Policy::of(x.1).accumulator(), span));
        let integers = x.1 == DType::I8 && dtype == DType::I32;
        let floats = x.1.is_float()
            && x.1 != DType::E8M0
            && tessera_types::Policy::with_accumulator(tessera_types::Storage::Plain(x.1), dtype).is_ok();
        if !integers && !floats {
            let message = format!("a matrix product of {} does not sum in {}", dtype_name(x.1), dtype_name(dtype));
            return mma_type(message, at, "floats sum in fp32 (fp64 in fp64), int8 in int32: write `accum=fp32`");
        }
        let mut axes = x.2.clone();
        axes[rank - 1] = y.2[rank - 1].clone();
        Ok(Item::Data(self.data(GraphOp::Contract {}, &[x.0, y.0], dtype, Some(axes))))
    }
}

/// The axes that both values are repeated to; none for two scalars.
pub(super) fn broadcast_axes(x: &Data, y: &Data, a: &At, b: &At) -> Res<Option<Axes>> {
    match (&x.axes, &y.axes) {
        (None, None) => Ok(None),
        (Some(axes), None) | (None, Some(axes)) => Ok(Some(axes.clone())),
        (Some(x), Some(y)) => match common_axes(x, y) {
            Some(axes) => Ok(Some(axes)),
            None => {
                let message = format!("the axes {} and {} don't broadcast", show(x), show(y));
                let diagnostic = Diagnostic::error(id::BROADCAST, a.1.to(b.1), message);
                Err(Box::new(is_are(a, b, diagnostic).help("axes must have one name or the extent 1, counted from the last")))
            }
        },
    }
}

fn out_of_range(number: Num, span: Span) -> Box<Diagnostic> {
    Box::new(
        Diagnostic::error(id::CONSTANT_OVERFLOW, span, format!("{number} does not fit its element type")).label("this constant"),
    )
}

pub(super) fn not_a_value(item: &Item, span: Span) -> Box<Diagnostic> {
    let help = match item {
        Item::Operand(name) => format!("operands lie in memory: write `tile.load({name})` first"),
        _ => "values come from `tile.load` and operations on them".to_string(),
    };
    Box::new(Diagnostic::error(id::ARGUMENT_TYPE, span, format!("expected a value, found {}", item.describe())).help(help))
}
