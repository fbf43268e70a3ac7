//! Parameters of declarative and per-thread kernels: `Tensor["M", "K", dtype]` and annotated scalars.
//!
//! A string names an axis, an integer fixes its extent, a free name in place of the axes stands for any number of them. A free
//! name in the last place is a dtype variable: the first argument that uses it binds it, the others must agree, and an argument
//! of the variable's own name (`accum_dtype=fp32`) settles it instead.
//!
//! ```text
//! def f(A: Tensor["M", "K", dtype], B: Tensor["K", "N", dtype], C: Tensor["M", "N", accum_dtype], alpha: float = 1.0)
//! ```

use indexmap::IndexMap;
use smallvec::SmallVec;
use tessera_ir::{Axis, Diagnostic, Extent, IndexType, Span};
use tessera_types::DType;

use crate::annotation::{Annotation, ConstKind};
use crate::args::{ArgType, ConstValue};
use crate::ast::{Expr, ExprKind};
use crate::diagnostics::id;
use crate::file::{Definition, Global, Kernel, Moment, ParsedFile};
use crate::fixed::{Fixed, evaluate};
use crate::lower::Res;
use crate::number::Num;
use crate::promote::dtype_name;

/// An element type in an annotation.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Element {
    Known(DType),
    Variable(String),
}

/// An axis in an annotation.
#[derive(Clone, Debug, PartialEq)]
enum AxisSpec {
    Named(String),
    Extent(u32),
    /// Any number of axes.
    Rest(String),
}

/// What an annotation asks for.
#[derive(Clone, Debug, PartialEq)]
enum Spec {
    Tensor { axes: Vec<AxisSpec>, element: Element },
    Scalar(Element),
    Float,
    Int,
    Bool,
    Str,
    Any,
}

/// An array argument under its annotation.
#[derive(Clone, Debug)]
pub(crate) struct Operand {
    pub(crate) dtype: DType,
    /// Axes as annotated; axes without a name get one of their own.
    pub(crate) axes: SmallVec<[Axis; 4]>,
    /// Sizes in memory order, as far as they are known.
    pub(crate) shape: SmallVec<[Extent; 4]>,
    pub(crate) index: IndexType,
}

/// What a parameter is in one compilation.
#[derive(Clone, Debug)]
pub(crate) enum Bound {
    Tensor(Operand),
    /// A scalar passed at launch.
    Scalar(DType),
    Fixed(Fixed),
}

/// A kernel's parameters in one compilation.
#[derive(Clone, Debug)]
pub(crate) struct Signature {
    /// Parameters in order, with their places.
    pub(crate) params: IndexMap<String, (Bound, Span)>,
    /// Dtype variables.
    pub(crate) dtypes: IndexMap<String, DType>,
}

/// What the annotation of a scalar says to a caller that has to choose between a compile-time value and a run-time one.
pub(crate) fn annotation(file: &ParsedFile, expr: &Expr) -> Annotation {
    let marked = match &expr.kind {
        ExprKind::Subscript(base, _) => base,
        _ => expr,
    };
    let kind = match read(file, expr) {
        Ok(Spec::Bool) => ConstKind::Bool,
        Ok(Spec::Str) => ConstKind::Str,
        Ok(Spec::Int) => ConstKind::Int,
        Ok(Spec::Float) => ConstKind::Float,
        _ => ConstKind::Any,
    };
    match kind {
        ConstKind::Bool | ConstKind::Str => Annotation::Constant(kind),
        _ if path(file, marked).as_deref() == Some("Constant") => Annotation::Constant(kind),
        _ => Annotation::None,
    }
}

/// Reads an annotation.
fn read(file: &ParsedFile, expr: &Expr) -> Res<Spec> {
    match &expr.kind {
        ExprKind::Subscript(base, index) if path(file, base).as_deref() == Some("Tensor") => tensor(file, expr, index),
        ExprKind::Subscript(base, kind) if path(file, base).as_deref() == Some("Constant") => read(file, kind),
        ExprKind::Name(name) if file.global(name, Moment::end(expr.span.source)).is_none() => Ok(match name.as_str() {
            "float" => Spec::Float,
            "int" => Spec::Int,
            "bool" => Spec::Bool,
            "str" => Spec::Str,
            "Tensor" => return Err(tensor_form(expr.span)),
            _ => Spec::Scalar(element(file, expr)?),
        }),
        ExprKind::Attribute(..) | ExprKind::Name(_) => match element(file, expr) {
            Ok(element @ Element::Known(_)) => Ok(Spec::Scalar(element)),
            _ => Ok(Spec::Any),
        },
        _ => Ok(Spec::Any),
    }
}

fn path(file: &ParsedFile, expr: &Expr) -> Option<String> {
    file.path_of(expr).and_then(|path| path.rsplit('.').next().map(str::to_string))
}

fn tensor_form(span: Span) -> Box<Diagnostic> {
    Box::new(
        Diagnostic::error(id::TENSOR, span, "a `Tensor` annotation names its axes and, last, its element type")
            .help("write `Tensor[\"M\", \"K\", dtype]`"),
    )
}

fn element(file: &ParsedFile, expr: &Expr) -> Res<Element> {
    let known = evaluate(file, expr, Moment::end(expr.span.source));
    match (known, &expr.kind) {
        (Ok(Fixed::DType(dtype)), _) => Ok(Element::Known(dtype)),
        (Err(_), ExprKind::Name(name)) if file.global(name, Moment::end(expr.span.source)).is_none() => {
            Ok(Element::Variable(name.clone()))
        }
        _ => Err(tensor_form(expr.span)),
    }
}

fn tensor(file: &ParsedFile, whole: &Expr, index: &Expr) -> Res<Spec> {
    let items = match &index.kind {
        ExprKind::Tuple(items) => items.as_slice(),
        _ => std::slice::from_ref(index),
    };
    let Some((last, axes)) = items.split_last() else { return Err(tensor_form(whole.span)) };
    let element = element(file, last)?;
    let axis = |expr: &Expr| match &expr.kind {
        ExprKind::Str(name) if is_identifier(name) => Ok(AxisSpec::Named(name.clone())),
        ExprKind::Name(name)
            if matches!(
                file.global(name, Moment::end(expr.span.source)),
                None | Some(Definition { what: Global::Import(..), .. })
            ) && axes.len() == 1 =>
        {
            Ok(AxisSpec::Rest(name.clone()))
        }
        _ => match evaluate(file, expr, Moment::end(expr.span.source))
            .ok()
            .and_then(|value| value.as_int())
            .and_then(|n| u32::try_from(n).ok())
        {
            Some(extent) if extent > 0 => Ok(AxisSpec::Extent(extent)),
            _ => Err(Box::new(
                Diagnostic::error(id::TENSOR, expr.span, "an axis is a name in quotes or a positive size")
                    .help("write `Tensor[\"M\", 64, dtype]`"),
            )),
        },
    };
    Ok(Spec::Tensor { axes: axes.iter().map(axis).collect::<Res<_>>()?, element })
}

fn is_identifier(name: &str) -> bool {
    name.starts_with(|c: char| c.is_ascii_alphabetic() || c == '_') && name.chars().all(|c| c.is_ascii_alphanumeric() || c == '_')
}

/// Binds a kernel's parameters to what the caller gives.
pub(crate) fn bind(file: &ParsedFile, kernel: &Kernel, args: &[(String, ArgType)]) -> Res<Signature> {
    let mut specs = Vec::new();
    for param in &kernel.function.params {
        specs.push(match &param.annotation {
            Some(expr) => read(file, expr)?,
            None => Spec::Any,
        });
    }
    let mut binder = Binder { dtypes: IndexMap::new(), settled: Vec::new() };
    let variables: Vec<&String> = specs
        .iter()
        .filter_map(|spec| match spec {
            Spec::Tensor { element: Element::Variable(name), .. } | Spec::Scalar(Element::Variable(name)) => Some(name),
            _ => None,
        })
        .collect();
    for (name, arg) in args {
        if kernel.function.params.iter().any(|param| param.name.name == *name) {
            continue;
        }
        let at = kernel.function.name.span;
        if !variables.contains(&name) {
            let names: Vec<String> = kernel.function.params.iter().map(|param| format!("`{}`", param.name.name)).collect();
            return Err(Box::new(
                Diagnostic::error(id::UNKNOWN_ARGUMENT, at, format!("`{}` has no parameter `{name}`", kernel.name))
                    .help(format!("parameters: {}", names.join(", "))),
            ));
        }
        let dtype = match arg {
            ArgType::Const(ConstValue::DType(dtype)) => Some(*dtype),
            ArgType::Const(ConstValue::Str(text)) => DType::parse(text),
            _ => None,
        };
        let Some(dtype) = dtype else {
            return Err(Box::new(
                Diagnostic::error(id::ARGUMENT_KIND, at, format!("`{name}` is a dtype variable and takes a dtype"))
                    .help(format!("write `{name}=fp32`")),
            ));
        };
        binder.dtypes.insert(name.clone(), (dtype, at, None));
        binder.settled.push(name.clone());
    }
    let mut params: IndexMap<String, (Bound, Span)> = IndexMap::new();
    for (param, spec) in kernel.function.params.iter().zip(&specs) {
        let (name, span) = (&param.name.name, param.name.span);
        let bound = match (args.iter().find(|(given, _)| given == name), &param.default) {
            (Some((_, arg)), _) => binder.argument(name, spec, arg, span)?,
            (None, Some(default)) => Bound::Fixed(evaluate(file, default, kernel.at)?),
            (None, None) => {
                return Err(Box::new(
                    Diagnostic::error(id::MISSING_ARGUMENT, span, format!("`{}` misses the argument `{name}`", kernel.name))
                        .label("this parameter has no default"),
                ));
            }
        };
        params.insert(name.clone(), (bound, span));
    }
    // A scalar of a variable's type that came before the array that binds the variable.
    for ((bound, _), spec) in params.values_mut().zip(&specs) {
        if let (Bound::Scalar(dtype), Spec::Scalar(Element::Variable(name))) = (bound, spec)
            && let Some((settled, _, _)) = binder.dtypes.get(name)
        {
            *dtype = *settled;
        }
    }
    let dtypes = binder.dtypes.into_iter().map(|(name, (dtype, _, _))| (name, dtype)).collect();
    Ok(Signature { params, dtypes })
}

struct Binder {
    /// What each dtype variable is, where that was said, and by which parameter.
    dtypes: IndexMap<String, (DType, Span, Option<String>)>,
    /// Variables that the caller settled.
    settled: Vec<String>,
}

impl Binder {
    fn argument(&mut self, name: &str, spec: &Spec, arg: &ArgType, span: Span) -> Res<Bound> {
        let refuse = |wanted: &str, found: &str| {
            let refusal = Diagnostic::error(id::ARGUMENT_KIND, span, format!("`{name}` takes {wanted}, not {found}"))
                .label("by this parameter's annotation");
            Err(Box::new(if matches!(spec, Spec::Bool) { refusal.help(crate::lower::truth_values(name)) } else { refusal }))
        };
        match (spec, arg) {
            (Spec::Tensor { axes, element }, ArgType::Array { dtype, shape, index, .. }) => {
                self.element(name, element, *dtype, span)?;
                let axes = place(name, axes, shape, span)?;
                Ok(Bound::Tensor(Operand { dtype: *dtype, axes, shape: shape.clone(), index: *index }))
            }
            (Spec::Tensor { .. }, ArgType::Const(ConstValue::None)) => Ok(Bound::Fixed(Fixed::None)),
            (Spec::Tensor { .. }, ArgType::Const(value)) => refuse("an array", &Fixed::of(value).describe()),
            (Spec::Tensor { .. }, ArgType::Scalar(_)) => refuse("an array", "a scalar"),
            (_, ArgType::List { .. }) => refuse("an array or a scalar", "a list of arrays"),
            (_, ArgType::Stated { .. }) => refuse("an array or a scalar", "one of which more is stated, as block programs use"),
            (_, ArgType::Tuple(_)) => refuse("an array or a scalar", "a tuple of arrays"),
            (Spec::Any, ArgType::Array { .. }) => Err(Box::new(
                Diagnostic::error(id::ARGUMENT_KIND, span, format!("`{name}` takes a scalar, not an array"))
                    .label("no annotation says that it is an array")
                    .help(format!("annotate it, as in `{name}: Tensor[\"M\", \"N\", dtype]`")),
            )),
            (_, ArgType::Array { .. }) => refuse("a scalar", "an array"),
            (Spec::Str, ArgType::Scalar(_)) => refuse("a constant string", "a run-time scalar"),
            (Spec::Bool, ArgType::Scalar(dtype)) if *dtype != DType::B1 => refuse("a truth value", dtype_name(*dtype)),
            (Spec::Int, ArgType::Scalar(dtype)) if dtype.is_float() => refuse("an integer", dtype_name(*dtype)),
            (Spec::Scalar(element), ArgType::Scalar(dtype)) => {
                let own = match element {
                    Element::Known(own) => *own,
                    Element::Variable(variable) => match self.dtypes.get(variable) {
                        Some((own, _, _)) => *own,
                        None => {
                            self.dtypes.insert(variable.clone(), (*dtype, span, Some(name.to_string())));
                            *dtype
                        }
                    },
                };
                if dtype.is_float() && !own.is_float() {
                    return refuse(dtype_name(own), dtype_name(*dtype));
                }
                Ok(Bound::Scalar(own))
            }
            (_, ArgType::Scalar(dtype)) => Ok(Bound::Scalar(*dtype)),
            (_, ArgType::Const(value)) => {
                let fixed = Fixed::of(value);
                let fits = matches!(
                    (spec, &fixed),
                    (Spec::Str, Fixed::Str(_))
                        | (Spec::Bool, Fixed::Num(Num::Bool(_)))
                        | (Spec::Int, Fixed::Num(Num::Int(_)))
                        | (Spec::Float, Fixed::Num(Num::Float(_) | Num::Int(_)))
                        | (Spec::Scalar(_), Fixed::Num(_))
                        | (Spec::Any, _)
                );
                if !fits {
                    let wanted = match spec {
                        Spec::Str => "a string",
                        Spec::Bool => "a truth value",
                        Spec::Int => "an integer",
                        _ => "a number",
                    };
                    return refuse(wanted, &fixed.describe());
                }
                Ok(Bound::Fixed(match (spec, fixed) {
                    (Spec::Float, Fixed::Num(value)) => Fixed::Num(Num::Float(value.as_f64())),
                    (_, fixed) => fixed,
                }))
            }
        }
    }

    /// An array's element type against its annotation.
    fn element(&mut self, name: &str, element: &Element, dtype: DType, span: Span) -> Res<()> {
        match element {
            Element::Known(own) if *own == dtype => Ok(()),
            Element::Known(own) => Err(Box::new(
                Diagnostic::error(
                    id::PROMOTION,
                    span,
                    format!("`{name}` is an array of {}, and its annotation says {}", dtype_name(dtype), dtype_name(*own)),
                )
                .label("by this parameter's annotation"),
            )),
            Element::Variable(variable) => match self.dtypes.get(variable) {
                None => {
                    self.dtypes.insert(variable.clone(), (dtype, span, Some(name.to_string())));
                    Ok(())
                }
                Some((own, _, _)) if *own == dtype || self.settled.contains(variable) => Ok(()),
                Some((own, first, by)) => {
                    let mut diagnostic = Diagnostic::error(
                        id::PROMOTION,
                        span,
                        format!("`{name}` is an array of {}, but `{variable}` is {}", dtype_name(dtype), dtype_name(*own)),
                    )
                    .label(format!("annotated with `{variable}`"))
                    .help(format!("pass arrays of one dtype, or annotate `{name}` with a variable of its own"));
                    if let Some(by) = by {
                        diagnostic = diagnostic.also(*first, format!("`{by}` makes `{variable}` {}", dtype_name(*own)));
                    }
                    Err(Box::new(diagnostic))
                }
            },
        }
    }
}

/// The axes of an array of this rank.
fn place(name: &str, specs: &[AxisSpec], shape: &[Extent], span: Span) -> Res<SmallVec<[Axis; 4]>> {
    if let [AxisSpec::Rest(rest)] = specs {
        return Ok((0..shape.len()).map(|axis| Axis::Symbol(format!("{rest}_{axis}"))).collect());
    }
    if specs.len() != shape.len() {
        return Err(Box::new(
            Diagnostic::error(
                id::RANK,
                span,
                format!("`{name}` is an array with {} axes, and its annotation names {}", shape.len(), specs.len()),
            )
            .label("by this parameter's annotation"),
        ));
    }
    Ok(specs
        .iter()
        .map(|spec| match spec {
            AxisSpec::Named(name) | AxisSpec::Rest(name) => Axis::Symbol(name.clone()),
            AxisSpec::Extent(extent) => Axis::Fixed(*extent),
        })
        .collect())
}

/// Refuses arrays whose known sizes give one axis two extents. `memory` lists each array's axes in memory order.
pub(crate) fn check_extents<'a>(memory: impl IntoIterator<Item = (&'a str, &'a [Axis], &'a [Extent], Span)>) -> Res<()> {
    let mut sizes: IndexMap<String, (i64, String, Span)> = IndexMap::new();
    for (name, axes, shape, span) in memory {
        for (position, (axis, extent)) in axes.iter().zip(shape).enumerate() {
            let Extent::Static(size) = *extent else { continue };
            let clash = match axis {
                Axis::Fixed(own) => (i64::from(*own) != size).then(|| (format!("its annotation says {own}"), None)),
                Axis::Symbol(symbol) => match sizes.get(symbol) {
                    None => {
                        sizes.insert(symbol.clone(), (size, name.to_string(), span));
                        None
                    }
                    Some((own, first, at)) => {
                        (*own != size).then(|| (format!("`{symbol}` is {own} in `{first}`"), Some((*at, first.clone(), *own))))
                    }
                },
            };
            if let Some((why, other)) = clash {
                let mut diagnostic =
                    Diagnostic::error(id::SYMBOL, span, format!("axis {position} of `{name}` has the size {size}, but {why}"))
                        .label(format!("{size} here"));
                if let Some((at, _, own)) = other {
                    diagnostic = diagnostic.also(at, format!("{own} here"));
                }
                return Err(Box::new(diagnostic));
            }
        }
    }
    Ok(())
}
