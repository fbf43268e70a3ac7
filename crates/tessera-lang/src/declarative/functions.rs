//! The functions of `tile` over whole operands, one row each.

use tessera_ir::attrs::{Combine, Overflow, Rounding};
use tessera_ir::{Diagnostic, GraphOp, ScheduleOp, Span};
use tessera_types::DType;

use super::data::{Pair, not_a_value};
use super::{At, Axes, Data, Item, Res, Walk, show, swap_last};
use crate::ast::{Arg, Expr};
use crate::diagnostics::id;
use crate::fixed::Fixed;
use crate::promote::{dtype_name, literal_dtype};
use crate::written;

macro_rules! functions {
    ($($variant:ident = $name:literal $signature:literal $doc:literal;)*) => {
        /// A function of `tile`.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub(super) enum Function { $( #[doc = $doc] $variant, )* }

        impl Function {
            const ROWS: &'static [(Function, &'static str, &'static str)] = &[$( (Function::$variant, $name, $signature) ),*];
        }
    };
}

functions! {
    Context = "context" "" "the kernel's context";
    Load = "load" "operand, /, layout=None, *, transpose=False" "a whole operand's value";
    Store = "store" "operand, value, /" "writes a whole operand";
    Mma = "mma" "a, b, /, *, accum=None" "matrix product, summed in a dtype";
    Cast = "cast" "x, dtype, /" "converts elements";
    Where = "where" "condition, x, y, /" "elements of one value or the other";
    ReduceSum = "reduce_sum" "x, /, axis=-1" "sum along an axis, which stays with the extent 1";
    ReduceProd = "reduce_prod" "x, /, axis=-1" "product along an axis, which stays with the extent 1";
    ReduceMax = "reduce_max" "x, /, axis=-1" "maximum along an axis, which stays with the extent 1";
    ReduceMin = "reduce_min" "x, /, axis=-1" "minimum along an axis, which stays with the extent 1";
    Maximum = "maximum" "x, y, /" "larger of two";
    Minimum = "minimum" "x, y, /" "smaller of two";
    Max = "max" "x, y, /" "larger of two";
    Min = "min" "x, y, /" "smaller of two";
    Pow = "pow" "x, y, /" "power";
    Atan2 = "atan2" "y, x, /" "angle of the point (x, y)";
    Neg = "neg" "x, /" "negation";
    Abs = "abs" "x, /" "absolute value";
    Exp = "exp" "x, /" "e to a power";
    Exp2 = "exp2" "x, /" "2 to a power";
    Log = "log" "x, /" "natural logarithm";
    Log2 = "log2" "x, /" "logarithm to base 2";
    Sqrt = "sqrt" "x, /" "square root";
    Rsqrt = "rsqrt" "x, /" "reciprocal square root";
    Sin = "sin" "x, /" "sine";
    Cos = "cos" "x, /" "cosine";
    Tan = "tan" "x, /" "tangent";
    Sinh = "sinh" "x, /" "hyperbolic sine";
    Cosh = "cosh" "x, /" "hyperbolic cosine";
    Tanh = "tanh" "x, /" "hyperbolic tangent";
    Floor = "floor" "x, /" "round down";
    Ceil = "ceil" "x, /" "round up";
}

/// Layouts that `tile.load` takes: wishes, which the schedule follows where it can.
const LAYOUTS: &[&str] = &["tensor_core_compatible", "row_major"];

impl Function {
    /// The function of a name.
    pub(super) fn find(name: &str) -> Option<Function> {
        Function::ROWS.iter().find(|(_, own, _)| *own == name).map(|(function, ..)| *function)
    }

    /// Every name, for help.
    pub(super) fn names() -> String {
        Function::ROWS.iter().map(|(_, name, _)| format!("`{name}`")).collect::<Vec<_>>().join(", ")
    }

    fn row(self) -> &'static (Function, &'static str, &'static str) {
        &Function::ROWS[self as usize]
    }

    /// The operation on floats, for functions of one value.
    fn float_kind(self) -> Option<ScheduleOp> {
        let (rounding, flush_to_zero) = (Rounding::NearestEven, false);
        Some(match self {
            Function::Neg => ScheduleOp::NegF {},
            Function::Abs => ScheduleOp::AbsF {},
            Function::Exp => ScheduleOp::Exp { rounding, flush_to_zero },
            Function::Exp2 => ScheduleOp::Exp2 { flush_to_zero },
            Function::Log => ScheduleOp::Log {},
            Function::Log2 => ScheduleOp::Log2 {},
            Function::Sqrt => ScheduleOp::Sqrt { rounding, flush_to_zero },
            Function::Rsqrt => ScheduleOp::Rsqrt { flush_to_zero },
            Function::Sin => ScheduleOp::Sin {},
            Function::Cos => ScheduleOp::Cos {},
            Function::Tan => ScheduleOp::Tan {},
            Function::Sinh => ScheduleOp::SinH {},
            Function::Cosh => ScheduleOp::CosH {},
            Function::Tanh => ScheduleOp::TanH { rounding },
            Function::Floor => ScheduleOp::Floor {},
            Function::Ceil => ScheduleOp::Ceil {},
            _ => return None,
        })
    }
}

impl Walk<'_> {
    /// A call of a function of `tile`.
    pub(super) fn call_tile(&mut self, function: Function, args: &[Arg], span: Span) -> Res<Item> {
        let (_, name, signature) = function.row();
        let bound = written::arguments(&format!("tile.{name}"), signature, args, span)?;
        let written = |at: usize| -> Option<&Expr> { bound.get(at).and_then(|group| group.first().copied()) };
        match function {
            Function::Context => return Ok(Item::Context),
            Function::Load => return self.load(written(0), written(1), written(2), span),
            Function::ReduceSum => return self.reduce(Combine::Sum, written(0), written(1), span),
            Function::ReduceProd => return self.reduce(Combine::Prod, written(0), written(1), span),
            Function::ReduceMax => return self.reduce(Combine::Max, written(0), written(1), span),
            Function::ReduceMin => return self.reduce(Combine::Min, written(0), written(1), span),
            _ => {}
        }
        let mut items: Vec<At> = Vec::new();
        for group in &bound {
            if let Some(expr) = group.first() {
                items.push((self.expr(expr)?, expr.span));
            }
        }
        self.span = span;
        match (function, items.as_slice()) {
            (Function::Store, [operand, value]) => self.store(operand, value, span),
            (Function::Mma, [a, b]) => self.product(a, b, None, span),
            (Function::Mma, [a, b, accum]) => {
                let dtype = dtype_of(accum)?;
                self.product(a, b, Some((dtype, accum.1)), span)
            }
            (Function::Cast, [x, dtype]) => {
                let dtype = dtype_of(dtype)?;
                self.cast(x, dtype)
            }
            (Function::Where, [condition, x, y]) => self.choose(condition, x, y),
            (Function::Maximum | Function::Max, [x, y]) => self.pair(Pair::Max, name, x, y, span),
            (Function::Minimum | Function::Min, [x, y]) => self.pair(Pair::Min, name, x, y, span),
            (Function::Pow, [x, y]) => self.power(name, x, y, span),
            (Function::Atan2, [x, y]) => self.pair(Pair::Atan2, name, x, y, span),
            (_, [x]) => self.call_unary(function, x),
            _ => Ok(Item::Context),
        }
    }

    /// A function of one value; integers become floats where it has no form for them.
    pub(super) fn call_unary(&mut self, function: Function, x: &At) -> Res<Item> {
        let (_, name, _) = function.row();
        self.arithmetic(name, x)?;
        let data = self.concrete(x)?;
        let signed = data.dtype.is_integer() && data.dtype.is_signed();
        let kind = match function {
            Function::Neg if data.dtype.is_integer() => Some(ScheduleOp::NegI { overflow: Overflow::Wraps }),
            Function::Abs if signed => Some(ScheduleOp::AbsI {}),
            _ => None,
        };
        let (kind, data) = match (kind, function.float_kind()) {
            (Some(kind), _) => (kind, data),
            (None, Some(kind)) if data.dtype.is_float() => (kind, data),
            (None, Some(kind)) if data.dtype.is_integer() => (kind, self.convert(&data, DType::F32)),
            _ => {
                return Err(Box::new(
                    Diagnostic::error(id::OPERAND_TYPE, x.1, format!("`{name}` does not take {}", dtype_name(data.dtype)))
                        .label(format!("this is {}", x.0.describe())),
                ));
            }
        };
        Ok(Item::Data(self.data(kind, &[data.value], data.dtype, data.axes)))
    }

    fn load(&mut self, operand: Option<&Expr>, layout: Option<&Expr>, transpose: Option<&Expr>, span: Span) -> Res<Item> {
        let Some(operand) = operand else { return Ok(Item::Context) };
        let item = self.expr(operand)?;
        if let Some(layout) = layout {
            match self.expr(layout)? {
                Item::Fixed(Fixed::None) => {}
                Item::Fixed(Fixed::Str(text)) if LAYOUTS.contains(&&*text) => {}
                other => {
                    return Err(Box::new(
                        Diagnostic::error(id::VALUE_RANGE, layout.span, "`layout` is the name of a layout")
                            .label(format!("this is {}", other.describe()))
                            .help(format!("layouts: {}", LAYOUTS.join(", "))),
                    ));
                }
            }
        }
        let transposed = match transpose {
            None => false,
            Some(transpose) => match self.expr(transpose)? {
                Item::Fixed(Fixed::Num(number)) => number.truth(),
                other => {
                    return Err(Box::new(
                        Diagnostic::error(
                            id::NOT_CONSTANT,
                            transpose.span,
                            "`transpose` must be known when the kernel is compiled",
                        )
                        .label(format!("this is {}", other.describe()))
                        .help("pass it as a constant: the axes of the operand in memory depend on it"),
                    ));
                }
            },
        };
        let Item::Operand(name) = &item else {
            return Err(Box::new(
                Diagnostic::error(
                    id::ARGUMENT_TYPE,
                    operand.span,
                    format!("`tile.load` takes an operand, not {}", item.describe()),
                )
                .help("operands are parameters annotated with `Tensor[...]`"),
            ));
        };
        self.lies(name, transposed, span, operand.span)?;
        let memory = &self.memory[name.as_str()];
        let (argument, dtype, axes) = (memory.argument, memory.operand.dtype, memory.operand.axes.clone());
        self.span = span;
        Ok(Item::Data(self.data(GraphOp::Load { transpose: transposed }, &[argument], dtype, Some(axes))))
    }

    /// Records how an operand lies in memory and refuses a second opinion.
    fn lies(&mut self, name: &str, transposed: bool, span: Span, operand: Span) -> Res<()> {
        let memory = &mut self.memory[name];
        if transposed && memory.operand.axes.len() < 2 {
            let mut axes: Axes = memory.operand.axes.clone();
            swap_last(&mut axes);
            return Err(Box::new(
                Diagnostic::error(id::RANK, span, format!("`{name}` has {} axis and can't be transposed", axes.len()))
                    .also(memory.span, "annotated here"),
            ));
        }
        match memory.transposed {
            Some((before, at)) if before != transposed => Err(Box::new(
                Diagnostic::error(id::TRANSPOSE, operand, format!("`{name}` is used both as it is and transposed"))
                    .label(if transposed { "transposed here" } else { "as it is here" })
                    .also(at, if before { "transposed here" } else { "as it is here" })
                    .help(
                        "the annotation names the axes after `transpose`, so an operand has one order: take a second parameter",
                    ),
            )),
            Some(_) => Ok(()),
            None => {
                memory.transposed = Some((transposed, operand));
                Ok(())
            }
        }
    }

    fn store(&mut self, operand: &At, value: &At, span: Span) -> Res<Item> {
        let Item::Operand(name) = &operand.0 else {
            return Err(Box::new(
                Diagnostic::error(
                    id::ARGUMENT_TYPE,
                    operand.1,
                    format!("`tile.store` takes an operand, not {}", operand.0.describe()),
                )
                .help("operands are parameters annotated with `Tensor[...]`: write `tile.store(C, value)`"),
            ));
        };
        self.lies(name, false, span, operand.1)?;
        let memory = &self.memory[name.as_str()];
        let (argument, dtype, axes) = (memory.argument, memory.operand.dtype, memory.operand.axes.clone());
        let data = match &value.0 {
            Item::Fixed(Fixed::Num(number)) => {
                let number = *number;
                let kind = literal_dtype(number).filter(|own| dtype.is_float() || !own.is_float());
                kind.and_then(|_| self.number(number, dtype)).ok_or_else(|| {
                    Box::new(
                        Diagnostic::error(id::CONSTANT_OVERFLOW, value.1, format!("{number} does not fit {}", dtype_name(dtype)))
                            .also(operand.1, format!("`{name}` holds {}", dtype_name(dtype))),
                    )
                })?
            }
            _ => self.concrete(value)?,
        };
        let lossless = crate::promote::promote(data.dtype, dtype) == Some(dtype);
        if !(lossless || data.dtype.is_float() && dtype.is_float()) {
            return Err(Box::new(
                Diagnostic::error(
                    id::PROMOTION,
                    span,
                    format!("{} is not stored as {} implicitly", dtype_name(data.dtype), dtype_name(dtype)),
                )
                .also(value.1, format!("this is {}", value.0.describe()))
                .also(operand.1, format!("`{name}` holds {}", dtype_name(dtype)))
                .help(format!("convert it: `tile.cast(value, {name}.dtype)`")),
            ));
        }
        let fits = data.axes.as_ref().is_none_or(|own| {
            let aligned =
                own.iter().rev().zip(axes.iter().rev()).all(|(own, axis)| own == axis || *own == tessera_ir::Axis::Fixed(1));
            own.len() <= axes.len() && aligned
        });
        if !fits {
            let own = data.axes.as_deref().unwrap_or(&[]);
            return Err(Box::new(
                Diagnostic::error(
                    id::BROADCAST,
                    span,
                    format!("a value with the axes {} is not stored in `{name}`, which has {}", show(own), show(&axes)),
                )
                .also(value.1, format!("this is {}", value.0.describe()))
                .also(self.memory[name.as_str()].span, format!("`{name}` is annotated here")),
            ));
        }
        let data = self.convert(&data, dtype);
        let data = self.spread(&data, &axes);
        self.emit(GraphOp::Store {}, &[&[data.value], &[argument]], []);
        Ok(Item::Fixed(Fixed::None))
    }

    fn reduce(&mut self, combine: Combine, x: Option<&Expr>, axis: Option<&Expr>, span: Span) -> Res<Item> {
        let Some(x) = x else { return Ok(Item::Context) };
        let at: At = (self.expr(x)?, x.span);
        self.arithmetic("a reduction", &at)?;
        let Item::Data(Data { value, dtype, axes: Some(axes) }) = &at.0 else { return Err(not_a_value(&at.0, at.1)) };
        let (place, number) = match axis {
            None => (span, -1),
            Some(axis) => match self.expr(axis)? {
                Item::Fixed(value) if value.as_int().is_some() => (axis.span, value.as_int().unwrap_or(-1)),
                other => {
                    return Err(Box::new(
                        Diagnostic::error(id::NOT_CONSTANT, axis.span, "`axis` is an integer known when the kernel is compiled")
                            .label(format!("this is {}", other.describe())),
                    ));
                }
            },
        };
        let rank = axes.len() as i128;
        let index = if number < 0 { number + rank } else { number };
        if !(0..rank).contains(&index) {
            return Err(Box::new(
                Diagnostic::error(id::AXIS, place, format!("axis {number} is outside a value with {rank} axes"))
                    .also(at.1, format!("this is {}", at.0.describe())),
            ));
        }
        if *dtype == DType::B1 {
            return Err(Box::new(
                Diagnostic::error(id::OPERAND_TYPE, at.1, "truth values are not reduced")
                    .help("convert them with `tile.cast(x, int32)`"),
            ));
        }
        let mut reduced = axes.clone();
        reduced[index as usize] = tessera_ir::Axis::Fixed(1);
        self.span = span;
        Ok(Item::Data(self.data(GraphOp::Reduce { axis: index as u32, combine }, &[*value], *dtype, Some(reduced))))
    }

    /// `tile.cast` and the method `astype`.
    pub(super) fn cast(&mut self, x: &At, dtype: DType) -> Res<Item> {
        let data = self.concrete(x)?;
        Ok(Item::Data(self.convert(&data, dtype)))
    }

    /// The dtype that an expression is.
    pub(super) fn dtype(&mut self, expr: &Expr) -> Res<DType> {
        let item = self.expr(expr)?;
        dtype_of(&(item, expr.span))
    }
}

fn dtype_of(at: &At) -> Res<DType> {
    match &at.0 {
        Item::Fixed(Fixed::DType(dtype)) => Ok(*dtype),
        Item::Fixed(Fixed::Str(text)) if DType::parse(text).is_some() => Ok(DType::parse(text).unwrap_or(DType::F32)),
        other => Err(Box::new(
            Diagnostic::error(id::ARGUMENT_TYPE, at.1, "a dtype is wanted here")
                .label(format!("this is {}", other.describe()))
                .help("write a dtype such as `fp32`, or a dtype variable of the kernel's annotations"),
        )),
    }
}
