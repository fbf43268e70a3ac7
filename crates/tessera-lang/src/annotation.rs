//! What a parameter's annotation says: `ct.Constant[int]`, `ct.IndexedWithInt64`, `Annotated[ct.Array, ...]` and aliases of
//! them at module level. Annotations that mean nothing to kernels (`torch.Tensor`) are taken as none.

use tessera_ir::{IndexType, SourceId};
use tessera_types::DType;

use crate::ast::{Arg, Expr, ExprKind, StmtKind, UnaryOp};
use crate::file::{Definition, Global, Moment, ParsedFile};
use crate::python;

/// What a compile-time parameter may be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ConstKind {
    /// Anything.
    Any,
    /// `int`
    Int,
    /// `float`; an integer is taken too.
    Float,
    /// `bool`
    Bool,
    /// `str`
    Str,
}

/// What an annotation says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Annotation {
    /// Nothing.
    None,
    /// The value is known when the kernel is compiled.
    Constant(ConstKind),
    /// Python's `int`, `float`, `bool` or `str`: run-time scalars are taken as they come, and of constants those of this kind.
    Plain(ConstKind),
    /// An array.
    Array {
        /// Type of sizes and strides.
        index: IndexType,
        /// Axes whose sizes are taken as known; negative ones count from the end.
        static_shape: Vec<i64>,
        /// Axes whose strides are taken as known; empty means the usual rule.
        static_strides: Vec<i64>,
    },
    /// A list of arrays.
    List {
        /// Type of sizes and strides.
        index: IndexType,
    },
    /// A scalar of this type.
    Scalar(DType),
}

/// Aliases are followed this far.
const MAX_ALIASES: u32 = 16;

/// Reads an annotation.
pub(crate) fn read(file: &ParsedFile, expr: &Expr) -> Annotation {
    annotation(file, expr, 0)
}

fn annotation(file: &ParsedFile, expr: &Expr, depth: u32) -> Annotation {
    if depth > MAX_ALIASES {
        return Annotation::None;
    }
    let alias = match &expr.kind {
        ExprKind::Name(name) => file.global(name, Moment::end(expr.span.source)),
        ExprKind::Attribute(..) => file.elsewhere(expr),
        _ => None,
    };
    if let Some(Definition { what: Global::Value(value, position), .. }) = alias {
        return if position.is_empty() { annotation(file, value, depth + 1) } else { Annotation::None };
    }
    match &expr.kind {
        ExprKind::Str(text) => {
            written(expr.span.source, text).map_or(Annotation::None, |said| annotation(file, &said, depth + 1))
        }
        ExprKind::Name(_) if const_kind(expr) != ConstKind::Any => Annotation::Plain(const_kind(expr)),
        ExprKind::Name(_) | ExprKind::Attribute(..) => match last(file, expr).as_deref() {
            Some("Constant") => Annotation::Constant(ConstKind::Any),
            Some("Array") => array(IndexType::I32),
            Some("IndexedWithInt64") => array(IndexType::I64),
            Some("ScalarInt64") => Annotation::Scalar(DType::I64),
            _ => Annotation::None,
        },
        ExprKind::Subscript(base, index) => match last(file, base).as_deref() {
            Some("Constant") => Annotation::Constant(const_kind(index)),
            Some("IndexedWithInt64") => array(IndexType::I64),
            Some("ScalarInt64") => Annotation::Scalar(DType::I64),
            Some("Annotated") => annotated(file, index, depth),
            Some("list" | "List") => match annotation(file, index, depth + 1) {
                Annotation::Array { index, .. } => Annotation::List { index },
                _ => Annotation::List { index: IndexType::I32 },
            },
            _ => Annotation::None,
        },
        _ => Annotation::None,
    }
}

/// The expression that a text is: annotations may be written as strings.
fn written(source: SourceId, text: &str) -> Option<Expr> {
    let module = python::parse(source, text).ok()?;
    match module.stmts.into_iter().next()?.0.kind {
        StmtKind::Expr(expr) => Some(expr),
        _ => None,
    }
}

fn array(index: IndexType) -> Annotation {
    Annotation::Array { index, static_shape: Vec::new(), static_strides: Vec::new() }
}

fn last(file: &ParsedFile, expr: &Expr) -> Option<String> {
    file.path_of(expr).and_then(|path| path.rsplit('.').next().map(str::to_string))
}

fn const_kind(expr: &Expr) -> ConstKind {
    match &expr.kind {
        ExprKind::Name(name) => match name.as_str() {
            "int" => ConstKind::Int,
            "float" => ConstKind::Float,
            "bool" => ConstKind::Bool,
            "str" => ConstKind::Str,
            _ => ConstKind::Any,
        },
        _ => ConstKind::Any,
    }
}

/// `Annotated[T, metadata...]`.
fn annotated(file: &ParsedFile, index: &Expr, depth: u32) -> Annotation {
    let ExprKind::Tuple(items) = &index.kind else { return Annotation::None };
    let Some((base, metadata)) = items.split_first() else { return Annotation::None };
    let mut result = annotation(file, base, depth + 1);
    for item in metadata {
        let ExprKind::Call(function, args) = &item.kind else { continue };
        match last(file, function).as_deref() {
            Some("ConstantAnnotation") => result = Annotation::Constant(const_kind(base)),
            Some("ScalarAnnotation") => {
                if let Some(dtype) = keyword(args, "dtype").and_then(|expr| last(file, expr)).and_then(|name| DType::parse(&name))
                {
                    result = Annotation::Scalar(dtype);
                }
            }
            Some("ArrayAnnotation") => result = array_annotation(file, args),
            Some("ListAnnotation") => {
                let index = match keyword(args, "element").map(|element| element_index(file, element, depth)) {
                    Some(index) => index,
                    None => IndexType::I32,
                };
                result = Annotation::List { index };
            }
            _ => {}
        }
    }
    result
}

fn element_index(file: &ParsedFile, element: &Expr, depth: u32) -> IndexType {
    let read = match &element.kind {
        ExprKind::Call(function, args) if last(file, function).as_deref() == Some("ArrayAnnotation") => {
            array_annotation(file, args)
        }
        _ => annotation(file, element, depth + 1),
    };
    match read {
        Annotation::Array { index, .. } => index,
        _ => IndexType::I32,
    }
}

fn array_annotation(file: &ParsedFile, args: &[Arg]) -> Annotation {
    let wide = keyword(args, "index_dtype").and_then(|expr| last(file, expr)).as_deref() == Some("int64");
    let dims = |name| keyword(args, name).map_or(Vec::new(), integers);
    Annotation::Array {
        index: if wide { IndexType::I64 } else { IndexType::I32 },
        static_shape: dims("static_shape_dims"),
        static_strides: dims("static_stride_dims"),
    }
}

fn keyword<'a>(args: &'a [Arg], name: &str) -> Option<&'a Expr> {
    args.iter().find(|arg| arg.keyword.as_ref().is_some_and(|keyword| keyword.name == name)).map(|arg| &arg.value)
}

fn integers(expr: &Expr) -> Vec<i64> {
    let ExprKind::Tuple(items) = &expr.kind else { return Vec::new() };
    let integer = |item: &Expr| match &item.kind {
        ExprKind::Int(value) => i64::try_from(*value).ok(),
        ExprKind::Unary(UnaryOp::Neg, inner) => match inner.kind {
            ExprKind::Int(value) => i64::try_from(-value).ok(),
            _ => None,
        },
        _ => None,
    };
    items.iter().filter_map(integer).collect()
}
