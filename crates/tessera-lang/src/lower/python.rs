//! Python's built-ins and its `math` module.

use tessera_ir::{Diagnostic, Severity, Span};
use tessera_types::DType;

use super::arith::{Arith, FloatMode};
use super::control::Condition;
use super::operand::At;
use super::{Lowerer, Res};
use crate::ast::{BinaryOp, BoolOp, CompareOp, Expr, ExprKind, UnaryOp};
use crate::bind::{Args, Given};
use crate::builtins::Builtin;
use crate::class::ClassKind;
use crate::diagnostics::id;
use crate::fixed::{self, Fixed, fault};
use crate::number::Num;
use crate::value::{Range, Tile, Val};

impl Lowerer<'_> {
    /// One arm for each built-in of Python.
    pub(crate) fn python(&mut self, builtin: Builtin, args: &Args) -> Res<Val> {
        let (span, name) = (args.call, builtin.row().name);
        if builtin != Builtin::PyRange && fixed::BUILTINS.contains(&name) {
            let known: Option<Vec<Fixed>> = args.all().iter().map(|(value, _)| value.fixed()).collect();
            if let Some(known) = known {
                return fixed::builtin(name, &known, span).map(Val::from);
            }
        }
        match builtin {
            Builtin::PyLen => match args.val(0) {
                Val::Tuple(items) | Val::Sequence(items) => Ok(Val::int(items.len() as i64)),
                Val::Dict(items) => Ok(Val::int(items.len() as i64)),
                Val::SourceClass(class) if class.kind == ClassKind::Enumeration => Ok(Val::int(class.members.len() as i64)),
                Val::List(list) => {
                    Ok(Val::Tile(Tile { value: list.length, dtype: list.index.dtype(), shape: Default::default(), known: None }))
                }
                Val::Range(_) => Err(self.not_known(&args.at(0))),
                other => Err(Box::new(
                    Diagnostic::error(id::ARGUMENT_TYPE, args.span(0), format!("{} has no length", other.describe())).help(
                        match other {
                            Val::Tile(_) | Val::Array(_) => "use `.shape`",
                            _ => "`len` takes tuples, strings and lists",
                        },
                    ),
                )),
            },
            Builtin::PyRange => self.range(args),
            Builtin::PyMin => self.extreme(Arith::Min, args),
            Builtin::PyMax => self.extreme(Arith::Max, args),
            Builtin::PySum => {
                let mut total = args.at(1);
                for item in self.sequence(&args.at(0))? {
                    total = (self.binary_operator(BinaryOp::Add, &total, &(item, args.span(0)), span)?, span);
                }
                Ok(total.0)
            }
            Builtin::PyRound => Err(self.not_known(&args.at(0))),
            Builtin::PyInt => self.number_of(args, DType::I32),
            Builtin::PyFloat => self.number_of(args, DType::F32),
            Builtin::PyBool => self.condition(&args.at(0)).map(Val::from),
            Builtin::PyStr => {
                let shown = self.shown(&args.at(0))?;
                let known = self.require_fixed(&shown)?;
                fixed::str_of(&known, span).map(|text| Val::str(&text))
            }
            Builtin::PyTuple => Ok(Val::tuple(self.sequence(&args.at(0))?)),
            Builtin::PyList => Ok(Val::Sequence(self.sequence(&args.at(0))?.into())),
            Builtin::PyEnumerate => {
                let start = i128::from(self.require_int(&args.at(1))?);
                let items = self.sequence(&args.at(0))?;
                Ok(Val::Iterator(items.into_iter().zip(start..).map(|(item, i)| Val::tuple([Val::int(i), item])).collect()))
            }
            Builtin::PyZip => {
                let mut columns = Vec::new();
                for given in args.rest() {
                    columns.push(self.sequence(&(given.value.clone(), given.span))?);
                }
                let rows = columns.iter().map(Vec::len).min().unwrap_or(0);
                Ok(Val::Iterator((0..rows).map(|row| Val::tuple(columns.iter().map(|column| column[row].clone()))).collect()))
            }
            Builtin::PyReversed => match args.val(0) {
                Val::Tuple(items) | Val::Sequence(items) => Ok(Val::Iterator(items.iter().rev().cloned().collect())),
                Val::Instance(..) | Val::SourceClass(_) | Val::Dict(_) => {
                    Ok(Val::Iterator(self.sequence(&args.at(0))?.into_iter().rev().collect()))
                }
                other => Err(Box::new(
                    Diagnostic::error(id::ARGUMENT_TYPE, args.span(0), format!("{} is not reversed", other.describe()))
                        .help("`reversed` takes tuples, lists and ranges"),
                )),
            },
            Builtin::PyAll | Builtin::PyAny => {
                let op = if builtin == Builtin::PyAny { BoolOp::Or } else { BoolOp::And };
                let mut found = Condition::Known(op == BoolOp::And);
                for item in self.sequence(&args.at(0))? {
                    found = self.and_then(op, found, span, |lowerer| lowerer.condition(&(item, args.span(0))))?;
                }
                Ok(found.into())
            }
            Builtin::PyIsInstance => {
                let classes: Vec<Val> = match args.val(1) {
                    Val::Tuple(items) => items.to_vec(),
                    other => vec![other.clone()],
                };
                for class in &classes {
                    if !matches!(class, Val::Builtin(_) | Val::Class(_) | Val::SourceClass(_) | Val::None) {
                        return Err(Box::new(Diagnostic::error(
                            id::ARGUMENT_TYPE,
                            args.span(1),
                            format!("expected a class, found {}", class.describe()),
                        )));
                    }
                }
                let numbers = [Builtin::PyInt, Builtin::PyFloat, Builtin::PyBool];
                let is_number = |class: &Val| matches!(class, Val::Builtin(builtin) if numbers.contains(builtin));
                if matches!(args.val(0), Val::Tile(tile) if tile.shape.is_empty()) && classes.iter().any(is_number) {
                    return Err(Box::new(
                        Diagnostic::error(id::ARGUMENT_TYPE, span, "a run-time scalar is no number of Python's")
                            .also(args.span(0), format!("this is {}", args.val(0).describe()))
                            .help("ask for `ct.Scalar`, or for its `dtype`"),
                    ));
                }
                Ok(Val::bool(classes.iter().any(|class| is_instance(args.val(0), class))))
            }
            Builtin::PySlice => Ok(Val::Colon(std::rc::Rc::new([args.val(0).clone(), args.val(1).clone(), args.val(2).clone()]))),
            Builtin::PyGetAttr => self.attribute(args),
            Builtin::RevealType => {
                let text = args.val(0).reveal();
                self.notes.push(Diagnostic::error("revealed-type", args.span(0), text).severity(Severity::Note));
                Ok(args.val(0).clone())
            }
            other => {
                Err(Box::new(Diagnostic::error(id::NOT_CALLABLE, span, format!("`{}` can't be called here", other.row().name))))
            }
        }
    }

    /// `getattr(x, name)`.
    fn attribute(&mut self, args: &Args) -> Res<Val> {
        let name = self.require_str(&args.at(1))?;
        self.member(args.val(0), &name, args.span(1))
    }

    /// Functions of `operator` that are operators of kernels.
    pub(crate) fn operator(&mut self, builtin: Builtin, args: &Args) -> Res<Val> {
        let span = args.call;
        match builtin {
            Builtin::OperatorIs => self.compare(CompareOp::Is, &args.at(0), &args.at(1), span),
            Builtin::OperatorIsNot => self.compare(CompareOp::IsNot, &args.at(0), &args.at(1), span),
            Builtin::OperatorNot => self.unary_operator(UnaryOp::Not, &args.at(0), span),
            _ => self.subscript(&args.at(0), &args.at(1), span),
        }
    }

    fn not_known(&self, at: &At) -> Box<Diagnostic> {
        Box::new(
            Diagnostic::error(id::NOT_CONSTANT, at.1, "this must be a number known when the kernel is compiled")
                .label(format!("this is {}", at.0.describe())),
        )
    }

    /// `range(stop)`, `range(start, stop)`, `range(start, stop, step)`.
    fn range(&mut self, args: &Args) -> Res<Val> {
        let at: Vec<At> = args.rest().iter().map(|given| (given.value.clone(), given.span)).collect();
        for bound in &at {
            let integer = match &bound.0 {
                Val::Num(number) => number.as_int().is_some(),
                Val::Tile(tile) => tile.dtype.is_integer() && tile.shape.is_empty(),
                _ => false,
            };
            if !integer {
                return Err(Box::new(
                    Diagnostic::error(
                        id::ARGUMENT_TYPE,
                        bound.1,
                        format!("the bounds of `range` are integer scalars, not {}", bound.0.describe()),
                    )
                    .label("wrong kind of bound")
                    .help("round with `//` or cast with `ct.int32(x)`"),
                ));
            }
        }
        let (start, stop, step) = match at.as_slice() {
            [stop] => (Val::int(0), stop.0.clone(), Val::int(1)),
            [start, stop] => (start.0.clone(), stop.0.clone(), Val::int(1)),
            [start, stop, step] => (start.0.clone(), stop.0.clone(), step.0.clone()),
            _ => {
                return Err(Box::new(
                    Diagnostic::error(id::CALL, args.call, format!("`range` takes one to three bounds, not {}", at.len()))
                        .help("write `range(stop)`, `range(start, stop)` or `range(start, stop, step)`"),
                ));
            }
        };
        if step.number().and_then(Num::as_int) == Some(0) {
            return Err(Box::new(
                Diagnostic::error(id::VALUE_RANGE, at.get(2).map_or(args.call, |at| at.1), "a range can't have the step 0")
                    .label("the loop would never end"),
            ));
        }
        Ok(Val::Range(std::rc::Rc::new(Range { start, stop, step })))
    }

    /// `min` and `max` of several values, or of one compile-time sequence.
    fn extreme(&mut self, op: Arith, args: &Args) -> Res<Val> {
        let items: Vec<At> = match args.rest() {
            [only] => self.sequence(&(only.value.clone(), only.span))?.into_iter().map(|item| (item, only.span)).collect(),
            several => several.iter().map(|given| (given.value.clone(), given.span)).collect(),
        };
        let mut items = items.into_iter();
        let Some(mut best) = items.next() else {
            return Err(Box::new(Diagnostic::error(id::CALL, args.call, "`min` and `max` need at least one value")));
        };
        for item in items {
            best = (self.arith(op, &best, &item, FloatMode::default(), args.call)?, args.call);
        }
        Ok(best.0)
    }

    /// `int(x)`, `float(x)`, `bool(x)`.
    fn number_of(&mut self, args: &Args, dtype: DType) -> Res<Val> {
        let at = args.at(0);
        if !self.shape_of(&at)?.is_empty() {
            return Err(Box::new(
                Diagnostic::error(id::ARGUMENT_TYPE, at.1, "only scalars are converted by calling a type")
                    .label(format!("this is {}", at.0.describe()))
                    .help("write `.astype(...)`"),
            ));
        }
        let own = self.dtype_of(&at)?;
        // A scalar that has the kind already keeps its width.
        let keeps = match dtype {
            DType::I32 => own.is_integer(),
            DType::F32 => own.is_float(),
            _ => false,
        };
        if keeps { Ok(at.0) } else { self.tile_as(&at, dtype).map(Val::Tile) }
    }

    /// A function of all items of a generator expression, which are made here one after another: `any` and `all` stop where they can.
    pub(crate) fn over_generator(&mut self, builtin: Builtin, generator: &Expr, span: Span) -> Res<Option<Val>> {
        let ExprKind::Comprehension { element, clauses, names, lazy: true } = &generator.kind else { return Ok(None) };
        let op = match builtin {
            Builtin::PyAny => Some(BoolOp::Or),
            Builtin::PyAll => Some(BoolOp::And),
            Builtin::PyTuple | Builtin::PyList | Builtin::PySum | Builtin::PyMin | Builtin::PyMax | Builtin::MathProd => None,
            _ => return Ok(None),
        };
        let Some(op) = op else {
            let list =
                ExprKind::Comprehension { element: element.clone(), clauses: clauses.clone(), names: names.clone(), lazy: false };
            let value = self.expr(&Expr { kind: list, span: generator.span })?;
            let given = vec![Given { keyword: None, value, span: generator.span }];
            return self.call_value(&Val::Builtin(builtin), given, span).map(Some);
        };
        let mut found = Condition::Known(op == BoolOp::And);
        let mut made = self.func.blocks[self.block].ops.len();
        self.comprehension(element, clauses, names, &mut |lowerer, item| {
            let next = lowerer.condition(&(item, element.span))?;
            if matches!(found, Condition::AtRunTime(_)) && !lowerer.is_pure_from(made) {
                return Err(Box::new(
                    Diagnostic::error(id::UNSUPPORTED, element.span, format!("`{}` stops where it can", builtin.row().name))
                        .label("whether this is evaluated is known at run time only, and it reads or writes memory")
                        .help("write a list, whose items are made at once: `[... for ...]`"),
                ));
            }
            let before = std::mem::replace(&mut found, Condition::Known(false));
            found = lowerer.and_then(op, before, span, |_| Ok(next))?;
            made = lowerer.func.blocks[lowerer.block].ops.len();
            Ok(!matches!(found, Condition::Known(value) if value == (op == BoolOp::Or)))
        })?;
        Ok(Some(found.into()))
    }

    /// Functions of `math`, on compile-time numbers.
    pub(crate) fn math(&mut self, builtin: Builtin, args: &Args) -> Res<Val> {
        let span = args.call;
        let number = |at: usize| -> Res<Num> { args.val(at).number().ok_or_else(|| math_on_tile(builtin, &args.at(at))) };
        if builtin == Builtin::MathProd {
            let mut total = (Val::int(1), span);
            for item in self.sequence(&args.at(0))? {
                total = (self.arith(Arith::Mul, &total, &(item, args.span(0)), FloatMode::default(), span)?, span);
            }
            return Ok(total.0);
        }
        let x = number(0)?;
        let value = match builtin {
            Builtin::MathPow | Builtin::MathGcd => fixed::function_of_two(builtin, x, number(1)?),
            Builtin::MathLog if !matches!(args.val(1), Val::None) => fixed::function_of_two(builtin, x, number(1)?),
            _ => fixed::function(builtin, x),
        };
        value.map(Val::Num).map_err(|kind| fault(kind, builtin.row().name, span))
    }
}

fn math_on_tile(builtin: Builtin, at: &At) -> Box<Diagnostic> {
    let name = builtin.row().name;
    Box::new(
        Diagnostic::error(id::NOT_CONSTANT, at.1, format!("`math.{name}` works on numbers known when the kernel is compiled"))
            .label(format!("this is {}", at.0.describe()))
            .help(format!("tiles have functions of their own: `ct.{name}`")),
    )
}

/// `isinstance(value, class)`.
fn is_instance(value: &Val, class: &Val) -> bool {
    match class {
        Val::SourceClass(class) => {
            matches!(value, Val::Instance(own, _) | Val::Member(own, _) if own.is_a(class))
        }
        // Named tuples are tuples, members of some enumerations numbers or strings.
        Val::Builtin(_) if matches!(value, Val::Instance(..) | Val::Member(..)) => match value.plain() {
            Val::Instance(..) | Val::Member(..) => false,
            plain => is_instance(&plain, class),
        },
        Val::Builtin(Builtin::PyInt) => matches!(value, Val::Num(Num::Int(_) | Num::Bool(_))),
        Val::Builtin(Builtin::PyFloat) => matches!(value, Val::Num(Num::Float(_))),
        Val::Builtin(Builtin::PyBool) => matches!(value, Val::Num(Num::Bool(_))),
        Val::Builtin(Builtin::PyStr) => matches!(value, Val::Str(_)),
        Val::Builtin(Builtin::PyTuple) => matches!(value, Val::Tuple(_)),
        Val::Builtin(Builtin::PyList) => matches!(value, Val::Sequence(_) | Val::List(_)),
        Val::Class("Tile") => matches!(value, Val::Tile(_)),
        Val::Class("Scalar") => matches!(value, Val::Num(_)) || matches!(value, Val::Tile(tile) if tile.shape.is_empty()),
        Val::Class("Array") => matches!(value, Val::Array(_)),
        Val::Class("TiledView") => matches!(value, Val::View(_)),
        Val::Class("RawArrayMemory") => matches!(value, Val::RawMemory(_)),
        Val::Class("DType") => matches!(value, Val::DType(_)),
        Val::Class("object") => true,
        Val::None => matches!(value, Val::None),
        _ => false,
    }
}
