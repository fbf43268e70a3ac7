//! Values that declarative and per-thread kernels know when they are compiled: numbers with Python's arithmetic, strings,
//! element types, tuples.
//!
//! [`evaluate`] reads annotations, decorators and module-level constants, where nothing else can stand. The two styles' own
//! walks call the operations below it for the parts of a kernel that are fixed:
//!
//! ```text
//! stride = int(pattern.split('_')[1])        # pattern == "strided_4": 4, at compile time
//! ```

use std::rc::Rc;
use std::sync::Arc;

use indexmap::IndexMap;
use tessera_ir::{Diagnostic, Span};
use tessera_types::DType;

use crate::args::ConstValue;
use crate::ast::{BinaryOp, BoolOp, CompareOp, Expr, ExprKind, Function, Ident, UnaryOp};
use crate::diagnostics::id;
use crate::file::{Global, ParsedFile};
use crate::lower::Res;
use crate::number::{Fault, Num};
use crate::promote::dtype_name;

/// Module-level constants refer to each other at most this deep.
const MAX_DEPTH: u32 = 64;
/// Strings and tuples grow at most this long.
const MAX_LENGTH: usize = 1 << 16;

/// A compile-time value.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Fixed {
    Num(Num),
    Str(Rc<str>),
    None,
    DType(DType),
    Tuple(Rc<[Fixed]>),
    /// A module or a member of one that is no value.
    Path(Rc<str>),
}

impl Fixed {
    pub(crate) fn of(value: &ConstValue) -> Fixed {
        match value {
            ConstValue::None => Fixed::None,
            ConstValue::Bool(value) => Fixed::Num(Num::Bool(*value)),
            ConstValue::Int(value) => Fixed::Num(Num::Int((*value).into())),
            ConstValue::Float(value) => Fixed::Num(Num::Float(*value)),
            ConstValue::Str(text) => Fixed::Str(text.as_str().into()),
            ConstValue::DType(dtype) => Fixed::DType(*dtype),
            ConstValue::Tuple(items) => Fixed::Tuple(items.iter().map(Fixed::of).collect()),
        }
    }

    pub(crate) fn int(value: impl Into<i128>) -> Fixed {
        Fixed::Num(Num::Int(value.into()))
    }

    pub(crate) fn bool(value: bool) -> Fixed {
        Fixed::Num(Num::Bool(value))
    }

    /// The integer, for integers and truth values.
    pub(crate) fn as_int(&self) -> Option<i128> {
        match self {
            Fixed::Num(number) => number.as_int(),
            _ => None,
        }
    }

    /// What Python's `bool` makes of it.
    pub(crate) fn truth(&self) -> bool {
        match self {
            Fixed::Num(number) => number.truth(),
            Fixed::Str(text) => !text.is_empty(),
            Fixed::Tuple(items) => !items.is_empty(),
            Fixed::None => false,
            Fixed::DType(_) | Fixed::Path(_) => true,
        }
    }

    /// What it is, for messages.
    pub(crate) fn describe(&self) -> String {
        match self {
            Fixed::Num(value) => format!("the constant {value}"),
            Fixed::Str(text) => format!("the string {text:?}"),
            Fixed::None => "`None`".to_string(),
            Fixed::DType(dtype) => format!("the dtype `{}`", dtype_name(*dtype)),
            Fixed::Tuple(items) => format!("a tuple of {} items", items.len()),
            Fixed::Path(path) => format!("the module `{path}`"),
        }
    }
}

/// What a number operation that has no value is told the user as.
fn fault(fault: Fault, what: &str, span: Span) -> Box<Diagnostic> {
    let (id, message) = match fault {
        Fault::ZeroDivision => (id::DIVISION_BY_ZERO, format!("`{what}` divides by zero")),
        Fault::Overflow => (id::CONSTANT_OVERFLOW, format!("the result of `{what}` is too large")),
        Fault::Kind => (id::OPERAND_TYPE, format!("`{what}` does not take these constants")),
        Fault::Domain => (id::VALUE_RANGE, format!("`{what}` is not defined for these constants")),
    };
    Box::new(Diagnostic::error(id, span, message).label("known when the kernel is compiled"))
}

/// `a op b`.
pub(crate) fn binary(op: BinaryOp, a: &Fixed, b: &Fixed, span: Span) -> Res<Fixed> {
    match (op, a, b) {
        (_, Fixed::Num(a), Fixed::Num(b)) => a.binary(op, *b).map(Fixed::Num).map_err(|kind| fault(kind, op.symbol(), span)),
        (BinaryOp::Add, Fixed::Str(a), Fixed::Str(b)) if a.len() + b.len() <= MAX_LENGTH => {
            Ok(Fixed::Str(format!("{a}{b}").into()))
        }
        (BinaryOp::Add, Fixed::Tuple(a), Fixed::Tuple(b)) if a.len() + b.len() <= MAX_LENGTH => {
            Ok(Fixed::Tuple(a.iter().chain(b.iter()).cloned().collect()))
        }
        _ => {
            Err(Box::new(
                Diagnostic::error(id::OPERAND_TYPE, span, format!("`{}` does not take these values", op.symbol()))
                    .label(format!("{} and {}", a.describe(), b.describe())),
            ))
        }
    }
}

/// A unary operation.
pub(crate) fn unary(op: UnaryOp, a: &Fixed, span: Span) -> Res<Fixed> {
    let symbol = match op {
        UnaryOp::Not => return Ok(Fixed::bool(!a.truth())),
        UnaryOp::Neg => "-",
        UnaryOp::Pos => "+",
        UnaryOp::Invert => "~",
    };
    match (op, a) {
        (UnaryOp::Neg, Fixed::Num(value)) => value.neg().map(Fixed::Num).map_err(|kind| fault(kind, symbol, span)),
        (UnaryOp::Pos, Fixed::Num(Num::Bool(value))) => Ok(Fixed::int(i128::from(*value))),
        (UnaryOp::Pos, Fixed::Num(_)) => Ok(a.clone()),
        (UnaryOp::Invert, Fixed::Num(value)) if value.as_int().is_some() => Ok(Fixed::int(!value.as_int().unwrap_or(0))),
        _ => Err(Box::new(
            Diagnostic::error(id::OPERAND_TYPE, span, format!("`{symbol}` does not take this value")).label(a.describe()),
        )),
    }
}

/// `a op b` for comparisons.
pub(crate) fn compare(op: CompareOp, a: &Fixed, b: &Fixed, span: Span) -> Res<bool> {
    let equal = match (a, b) {
        (Fixed::Num(a), Fixed::Num(b)) => a.test(CompareOp::Eq, *b) == Some(true),
        _ => a == b,
    };
    let order = match op {
        CompareOp::Eq | CompareOp::Is => return Ok(equal),
        CompareOp::Ne | CompareOp::IsNot => return Ok(!equal),
        CompareOp::In | CompareOp::NotIn => {
            let found = match (a, b) {
                (_, Fixed::Tuple(items)) => Some(items.contains(a)),
                (Fixed::Str(part), Fixed::Str(text)) => Some(text.contains(&**part)),
                _ => None,
            };
            if let Some(found) = found {
                return Ok(found == (op == CompareOp::In));
            }
            None
        }
        CompareOp::Lt | CompareOp::Le | CompareOp::Gt | CompareOp::Ge => match (a, b) {
            (Fixed::Num(a), Fixed::Num(b)) => a.test(op, *b),
            (Fixed::Str(a), Fixed::Str(b)) => Some(match op {
                CompareOp::Lt => a < b,
                CompareOp::Le => a <= b,
                CompareOp::Gt => a > b,
                _ => a >= b,
            }),
            _ => None,
        },
    };
    order.ok_or_else(|| {
        Box::new(Diagnostic::error(id::OPERAND_TYPE, span, "these values are not compared").label(format!(
            "{} and {}",
            a.describe(),
            b.describe()
        )))
    })
}

/// `base[index]`.
pub(crate) fn item(base: &Fixed, index: &Fixed, span: Span) -> Res<Fixed> {
    let length = match base {
        Fixed::Tuple(items) => items.len(),
        Fixed::Str(text) => text.chars().count(),
        _ => {
            return Err(Box::new(
                Diagnostic::error(id::OPERAND_TYPE, span, "only arrays, tuples and strings are indexed").label(base.describe()),
            ));
        }
    };
    let at = index.as_int().map(|at| if at < 0 { at + length as i128 } else { at });
    match at.and_then(|at| usize::try_from(at).ok()).filter(|&at| at < length) {
        Some(at) => Ok(match base {
            Fixed::Tuple(items) => items[at].clone(),
            Fixed::Str(text) => Fixed::Str(text.chars().skip(at).take(1).collect::<String>().into()),
            _ => base.clone(),
        }),
        None => Err(Box::new(
            Diagnostic::error(id::VALUE_RANGE, span, "the index is outside the sequence")
                .label(format!("{} of {length} items", index.describe())),
        )),
    }
}

/// `receiver.name(args)`.
pub(crate) fn method(receiver: &Fixed, name: &Ident, args: &[Fixed], span: Span) -> Res<Fixed> {
    if let Fixed::Str(text) = receiver {
        let result = match (name.name.as_str(), args) {
            ("startswith", [Fixed::Str(part)]) => Some(Fixed::bool(text.starts_with(&**part))),
            ("endswith", [Fixed::Str(part)]) => Some(Fixed::bool(text.ends_with(&**part))),
            ("split", [Fixed::Str(separator)]) if !separator.is_empty() => {
                Some(Fixed::Tuple(text.split(&**separator).map(|part| Fixed::Str(part.into())).collect()))
            }
            ("split", []) => Some(Fixed::Tuple(text.split_whitespace().map(|part| Fixed::Str(part.into())).collect())),
            ("strip", []) => Some(Fixed::Str(text.trim().into())),
            ("lower", []) => Some(Fixed::Str(text.to_lowercase().into())),
            ("upper", []) => Some(Fixed::Str(text.to_uppercase().into())),
            ("removeprefix", [Fixed::Str(part)]) => Some(Fixed::Str(text.strip_prefix(&**part).unwrap_or(text).into())),
            _ => None,
        };
        if let Some(result) = result {
            return Ok(result);
        }
        let known = ["startswith", "endswith", "split", "strip", "lower", "upper", "removeprefix"];
        if known.contains(&name.name.as_str()) {
            return Err(Box::new(
                Diagnostic::error(id::CALL, span, format!("`{}` does not take these arguments", name.name))
                    .help("string methods take constant strings"),
            ));
        }
    }
    Err(Box::new(
        Diagnostic::error(id::UNKNOWN_ATTRIBUTE, name.span, format!("{} has no method `{}`", receiver.describe(), name.name))
            .help("strings have `startswith`, `endswith`, `split`, `strip`, `lower`, `upper` and `removeprefix`"),
    ))
}

/// A Python built-in on compile-time values; `None` when the name is not one of them.
pub(crate) fn builtin(name: &str, args: &[Fixed], span: Span) -> Option<Res<Fixed>> {
    let wrong = |message: String| Some(Err(Box::new(Diagnostic::error(id::CALL, span, message))));
    let result = match (name, args) {
        ("int", [Fixed::Num(value)]) => match value {
            Num::Float(value) if !value.is_finite() || value.abs() > 1e36 => {
                return wrong(format!("`int` does not take {value}"));
            }
            Num::Float(value) => Fixed::int(value.trunc() as i128),
            Num::Int(_) | Num::Bool(_) => Fixed::int(value.as_int().unwrap_or(0)),
        },
        ("int", [Fixed::Str(text)]) => match text.trim().parse::<i128>() {
            Ok(value) => Fixed::int(value),
            Err(_) => return wrong(format!("`int` can't read {text:?}")),
        },
        ("float", [Fixed::Num(value)]) => Fixed::Num(Num::Float(value.as_f64())),
        ("float", [Fixed::Str(text)]) => match text.trim().to_ascii_lowercase().parse::<f64>() {
            Ok(value) => Fixed::Num(Num::Float(value)),
            Err(_) => return wrong(format!("`float` can't read {text:?}")),
        },
        ("bool", [value]) => Fixed::bool(value.truth()),
        ("str", [Fixed::Str(text)]) => Fixed::Str(text.clone()),
        ("str", [Fixed::Num(value)]) => Fixed::Str(value.to_string().into()),
        ("len", [Fixed::Str(text)]) => Fixed::int(text.chars().count() as i128),
        ("len", [Fixed::Tuple(items)]) => Fixed::int(items.len() as i128),
        ("abs", [Fixed::Num(value)]) if !value.as_f64().is_sign_negative() => Fixed::Num(*value),
        ("abs", [value @ Fixed::Num(_)]) => return Some(unary(UnaryOp::Neg, value, span)),
        ("min" | "max", [Fixed::Num(a), Fixed::Num(b)]) => {
            let second = a.test(if name == "min" { CompareOp::Gt } else { CompareOp::Lt }, *b) == Some(true);
            Fixed::Num(if second { *b } else { *a })
        }
        ("int" | "float" | "bool" | "str" | "len" | "abs" | "min" | "max", _) => {
            return wrong(format!("`{name}` does not take these arguments"));
        }
        _ => return None,
    };
    Some(Ok(result))
}

/// What a dotted path stands for: a dtype, a constant of `math`, or a module.
pub(crate) fn of_path(path: &str) -> Fixed {
    match path {
        "math.pi" => return Fixed::Num(Num::Float(std::f64::consts::PI)),
        "math.e" => return Fixed::Num(Num::Float(std::f64::consts::E)),
        "math.inf" => return Fixed::Num(Num::Float(f64::INFINITY)),
        "math.nan" => return Fixed::Num(Num::Float(f64::NAN)),
        _ => {}
    }
    let member = path.rsplit('.').next().unwrap_or(path);
    match DType::parse(member) {
        Some(dtype) => Fixed::DType(dtype),
        None => Fixed::Path(path.into()),
    }
}

/// Evaluates an expression in which only compile-time values can stand; `names` comes before module level.
pub(crate) fn evaluate(file: &ParsedFile, names: &dyn Fn(&str) -> Option<Fixed>, expr: &Expr) -> Res<Fixed> {
    Evaluation { file, names }.expr(expr, 0)
}

/// The value of a literal; for every other expression, what a message calls it.
pub(crate) fn literal(expr: &ExprKind) -> Result<Fixed, &str> {
    match expr {
        ExprKind::Int(value) => Ok(Fixed::int(*value)),
        ExprKind::Float(value) => Ok(Fixed::Num(Num::Float(*value))),
        ExprKind::Bool(value) => Ok(Fixed::bool(*value)),
        ExprKind::Str(text) => Ok(Fixed::Str(text.as_str().into())),
        ExprKind::None => Ok(Fixed::None),
        ExprKind::FString(_) => Err("f-strings"),
        ExprKind::Ellipsis => Err("`...`"),
        ExprKind::Starred(_) => Err("`*`"),
        ExprKind::Dict(_) => Err("dictionaries"),
        ExprKind::Slice(_) => Err("slices"),
        ExprKind::Lambda(_) => Err("`lambda`"),
        ExprKind::Comprehension { .. } => Err("comprehensions"),
        ExprKind::Unsupported(what) => Err(what),
        ExprKind::Name(_)
        | ExprKind::Tuple(_)
        | ExprKind::List(_)
        | ExprKind::Attribute(..)
        | ExprKind::Unary(..)
        | ExprKind::Binary(..)
        | ExprKind::BoolOp(..)
        | ExprKind::Compare(..)
        | ExprKind::IfElse { .. }
        | ExprKind::Subscript(..)
        | ExprKind::Call(..) => Err("this expression"),
    }
}

/// What a name stands for outside a kernel.
pub(crate) enum Outer {
    Fixed(Fixed),
    Function(Arc<Function>),
}

/// A name that a kernel does not bind itself: a value that the launch fixed, or what the file or the language has under it.
pub(crate) fn outer(file: &ParsedFile, named: &IndexMap<String, Fixed>, name: &str) -> Option<Res<Outer>> {
    if let Some(value) = named.get(name) {
        return Some(Ok(Outer::Fixed(value.clone())));
    }
    if let Some(Global::Function(function)) = file.globals.get(name) {
        return Some(Ok(Outer::Function(function.clone())));
    }
    if let Some(value) = global(file, name) {
        return Some(value.map(Outer::Fixed));
    }
    let value = match DType::parse(name) {
        Some(dtype) => Fixed::DType(dtype),
        None if matches!(name, "tile" | "tessera") => Fixed::Path(name.into()),
        None => return None,
    };
    Some(Ok(Outer::Fixed(value)))
}

/// The compile-time value of a name at module level; `None` when nothing of that name is there.
pub(crate) fn global(file: &ParsedFile, name: &str) -> Option<Res<Fixed>> {
    Evaluation { file, names: &|_| None }.global(name, 0)
}

struct Evaluation<'a> {
    file: &'a ParsedFile,
    names: &'a dyn Fn(&str) -> Option<Fixed>,
}

impl Evaluation<'_> {
    fn expr(&self, expr: &Expr, depth: u32) -> Res<Fixed> {
        if depth > MAX_DEPTH {
            return Err(Box::new(Diagnostic::error(id::TOO_DEEP, expr.span, "constants refer to each other too deeply")));
        }
        let depth = depth + 1;
        match &expr.kind {
            ExprKind::Int(_) | ExprKind::Float(_) | ExprKind::Bool(_) | ExprKind::Str(_) | ExprKind::None => {
                literal(&expr.kind).or_else(|_| self.refuse(expr))
            }
            ExprKind::Tuple(items) | ExprKind::List(items) => {
                items.iter().map(|item| self.expr(item, depth)).collect::<Res<Rc<[Fixed]>>>().map(Fixed::Tuple)
            }
            ExprKind::Name(name) => match (self.names)(name).map(Ok).or_else(|| self.global(name, depth)) {
                Some(value) => value,
                None => match DType::parse(name) {
                    Some(dtype) => Ok(Fixed::DType(dtype)),
                    None => Err(Box::new(
                        Diagnostic::error(id::UNKNOWN_NAME, expr.span, format!("`{name}` is not defined"))
                            .label("needed when the kernel is compiled"),
                    )),
                },
            },
            ExprKind::Attribute(..) => match self.file.path_of(expr) {
                Some(path) => Ok(of_path(&path)),
                None => self.refuse(expr),
            },
            ExprKind::Unary(op, value) => unary(*op, &self.expr(value, depth)?, expr.span),
            ExprKind::Binary(op, a, b) => binary(*op, &self.expr(a, depth)?, &self.expr(b, depth)?, expr.span),
            ExprKind::BoolOp(op, items) => {
                let mut last = Fixed::None;
                for item in items {
                    last = self.expr(item, depth)?;
                    if last.truth() == (*op == BoolOp::Or) {
                        break;
                    }
                }
                Ok(last)
            }
            ExprKind::Compare(first, rest) => {
                let mut left = self.expr(first, depth)?;
                for (op, right) in rest {
                    let right = self.expr(right, depth)?;
                    if !compare(*op, &left, &right, expr.span)? {
                        return Ok(Fixed::bool(false));
                    }
                    left = right;
                }
                Ok(Fixed::bool(true))
            }
            ExprKind::IfElse { test, body, orelse } => {
                let taken = if self.expr(test, depth)?.truth() { body } else { orelse };
                self.expr(taken, depth)
            }
            ExprKind::Subscript(base, index) => item(&self.expr(base, depth)?, &self.expr(index, depth)?, expr.span),
            ExprKind::Call(function, args) if args.iter().all(|arg| arg.keyword.is_none()) => {
                let args = args.iter().map(|arg| self.expr(&arg.value, depth)).collect::<Res<Vec<_>>>()?;
                match &function.kind {
                    ExprKind::Name(name) => builtin(name, &args, expr.span).unwrap_or_else(|| self.refuse(expr)),
                    ExprKind::Attribute(receiver, name) => method(&self.expr(receiver, depth)?, name, &args, expr.span),
                    _ => self.refuse(expr),
                }
            }
            _ => self.refuse(expr),
        }
    }

    fn global(&self, name: &str, depth: u32) -> Option<Res<Fixed>> {
        Some(match self.file.globals.get(name)? {
            Global::Import(path) => Ok(of_path(path)),
            Global::Value(value, positions) => self.expr(value, depth).and_then(|whole| {
                positions.iter().try_fold(whole, |value, &at| item(&value, &Fixed::int(at as i128), self.start()))
            }),
            Global::Function(_) => return None,
        })
    }

    fn start(&self) -> Span {
        Span { source: self.file.source, start: 0, end: 0 }
    }

    fn refuse(&self, expr: &Expr) -> Res<Fixed> {
        Err(Box::new(
            Diagnostic::error(id::NOT_CONSTANT, expr.span, "this is not known when the kernel is compiled")
                .help("use numbers, strings, dtypes, tuples and arithmetic on them"),
        ))
    }
}
