//! A parsed kernel file: its kernels, their parameters, and what module level defines.
//!
//! Nothing is evaluated here: module-level names are kept as expressions and evaluated when a kernel uses them, so host code
//! in the same file (launches, tensors, tests) never has to make sense to us. What no kernel can use is noted once.

use std::sync::Arc;

use indexmap::IndexMap;
use tessera_ir::{Diagnostic, IndexType, Severity, SourceId, SourceMap, Span};

use crate::annotation::{self, Annotation};
use crate::args::ConstValue;
use crate::ast::{Expr, ExprKind, Function, Stmt, StmtKind, UnaryOp};
use crate::diagnostics::id;
use crate::python;
use crate::signature;
use crate::style::{self, Style};

/// Aliases of dotted paths are followed this far.
const MAX_ALIASES: u32 = 16;

/// A kernel file after parsing.
#[derive(Clone, Debug)]
pub struct ParsedFile {
    /// The text, for rendering diagnostics.
    pub sources: SourceMap,
    /// The text's id.
    pub source: SourceId,
    /// Kernels in the order of the file.
    pub kernels: IndexMap<String, Kernel>,
    /// A syntax error, or notes.
    pub diagnostics: Vec<Diagnostic>,
    pub(crate) globals: IndexMap<String, Global>,
}

/// A kernel as its definition shows it.
#[derive(Clone, Debug)]
pub struct Kernel {
    /// Its name.
    pub name: String,
    /// The style it is written in.
    pub style: Style,
    /// Its parameters in order.
    pub params: Vec<Param>,
    /// The definition.
    pub function: Arc<Function>,
}

/// A parameter of a kernel.
#[derive(Clone, Debug)]
pub struct Param {
    /// Its name.
    pub name: String,
    /// What its annotation says.
    pub annotation: Annotation,
    /// Its default, where that is a plain literal.
    pub default: Option<ConstValue>,
    /// Where.
    pub span: Span,
}

impl Param {
    /// True when the value must be known when the kernel is compiled.
    pub fn is_constant(&self) -> bool {
        matches!(self.annotation, Annotation::Constant(_))
    }

    /// The integer type of sizes and strides that the annotation asks for.
    pub fn index_type(&self) -> IndexType {
        match self.annotation {
            Annotation::Array { index, .. } | Annotation::List { index } => index,
            _ => IndexType::I32,
        }
    }
}

/// What a module-level name stands for.
#[derive(Clone, Debug)]
pub(crate) enum Global {
    /// An imported module or member, as a dotted path.
    Import(String),
    /// The value of an expression; the positions lead into a tuple that was unpacked.
    Value(Expr, Vec<usize>),
    /// A function.
    Function(Arc<Function>),
}

/// Reads a kernel file. A syntax error leaves no kernels and one error among the diagnostics.
pub fn parse_file(name: &str, text: &str) -> ParsedFile {
    let mut sources = SourceMap::default();
    let source = sources.add(name, text);
    let mut file = ParsedFile { sources, source, kernels: IndexMap::new(), diagnostics: Vec::new(), globals: IndexMap::new() };
    match python::parse(source, text) {
        Ok(stmts) => file.collect(&stmts),
        Err(error) => file.diagnostics.push(*error),
    }
    file
}

impl ParsedFile {
    /// True when the text could not be read.
    pub fn has_errors(&self) -> bool {
        self.diagnostics.iter().any(|diagnostic| diagnostic.severity == Severity::Error)
    }

    fn collect(&mut self, stmts: &[Stmt]) {
        let mut functions = Vec::new();
        let mut ignored: Option<(Span, &'static str, usize)> = None;
        for stmt in stmts {
            let unused = match &stmt.kind {
                StmtKind::Import(imports) => {
                    for import in imports {
                        self.globals.insert(import.name.clone(), Global::Import(import.path.clone()));
                    }
                    None
                }
                StmtKind::Assign(targets, value) => {
                    for target in targets {
                        self.define(target, value, &mut Vec::new());
                    }
                    None
                }
                StmtKind::AnnAssign(target, _, Some(value)) => {
                    self.define(target, value, &mut Vec::new());
                    None
                }
                StmtKind::Function(function) => {
                    self.globals.insert(function.name.name.clone(), Global::Function(function.clone()));
                    functions.push(function.clone());
                    None
                }
                StmtKind::Pass | StmtKind::AnnAssign(_, _, None) => None,
                StmtKind::Expr(expr) if matches!(expr.kind, ExprKind::Str(_) | ExprKind::Ellipsis) => None,
                StmtKind::Expr(_) => Some("an expression"),
                StmtKind::AugAssign(..) => Some("an augmented assignment"),
                StmtKind::For { .. } => Some("`for`"),
                StmtKind::While { .. } => Some("`while`"),
                StmtKind::If { .. } => Some("`if`"),
                StmtKind::Raise(_) => Some("`raise`"),
                StmtKind::Assert(..) => Some("`assert`"),
                StmtKind::Break | StmtKind::Continue | StmtKind::Return(_) => Some("a jump"),
                StmtKind::Unsupported(what) => Some(*what),
            };
            match (unused, &mut ignored) {
                (Some(_), Some((_, _, count))) => *count += 1,
                (Some(what), None) => ignored = Some((stmt.span, what, 1)),
                (None, _) => {
                    if let Some(run) = ignored.take() {
                        self.note_ignored(run);
                    }
                }
            }
        }
        if let Some(run) = ignored.take() {
            self.note_ignored(run);
        }
        for function in functions {
            let Some(style) = style::of(self, &function) else { continue };
            let params = function
                .params
                .iter()
                .map(|param| Param {
                    name: param.name.name.clone(),
                    annotation: param.annotation.as_ref().map_or(Annotation::None, |expr| match style {
                        Style::Block { .. } => annotation::read(self, expr),
                        Style::Declarative | Style::Simt => signature::annotation(self, expr),
                    }),
                    default: param.default.as_ref().and_then(literal),
                    span: param.name.span,
                })
                .collect();
            let name = function.name.name.clone();
            self.kernels.insert(name.clone(), Kernel { name, style, params, function });
        }
    }

    /// Binds the names of an assignment target to a value, or to an item of it.
    fn define(&mut self, target: &Expr, value: &Expr, path: &mut Vec<usize>) {
        match &target.kind {
            ExprKind::Name(name) => {
                self.globals.insert(name.clone(), Global::Value(value.clone(), path.clone()));
            }
            ExprKind::Tuple(items) | ExprKind::List(items) => {
                for (i, item) in items.iter().enumerate() {
                    path.push(i);
                    self.define(item, value, path);
                    path.pop();
                }
            }
            _ => {}
        }
    }

    fn note_ignored(&mut self, (span, what, count): (Span, &'static str, usize)) {
        let more = if count > 1 { format!(" and {} more", count - 1) } else { String::new() };
        self.diagnostics.push(
            Diagnostic::error(id::IGNORED, first_line(&self.sources, span), format!("{what}{more} at module level is ignored"))
                .severity(Severity::Note)
                .label("kernels use imports, constants and functions only"),
        );
    }

    /// The dotted path that an expression names, with imports resolved: `ct.kernel` is `cuda.tile.kernel`.
    pub(crate) fn path_of(&self, expr: &Expr) -> Option<String> {
        self.path_through(expr, MAX_ALIASES)
    }

    /// The same, following at most `aliases` names that stand for other paths: a name can be defined by itself.
    fn path_through(&self, expr: &Expr, aliases: u32) -> Option<String> {
        match &expr.kind {
            ExprKind::Name(name) => match self.globals.get(name) {
                Some(Global::Import(path)) => Some(path.clone()),
                Some(Global::Value(value, position)) if position.is_empty() => match &value.kind {
                    ExprKind::Attribute(..) => self.path_through(value, aliases.checked_sub(1)?),
                    _ => None,
                },
                Some(_) => None,
                None => Some(match name.as_str() {
                    "tile" => "tessera.tile".to_string(),
                    _ => name.clone(),
                }),
            },
            ExprKind::Attribute(base, member) => Some(format!("{}.{}", self.path_through(base, aliases)?, member.name)),
            _ => None,
        }
    }
}

/// The span's first line.
fn first_line(sources: &SourceMap, span: Span) -> Span {
    let text = &sources.get(span.source).text;
    let line = text.get(span.start as usize..span.end as usize).and_then(|text| text.lines().next()).unwrap_or("");
    Span { end: span.start + line.len() as u32, ..span }
}

/// The value of a literal default.
fn literal(expr: &Expr) -> Option<ConstValue> {
    Some(match &expr.kind {
        ExprKind::None => ConstValue::None,
        ExprKind::Bool(value) => ConstValue::Bool(*value),
        ExprKind::Int(value) => ConstValue::Int(i64::try_from(*value).ok()?),
        ExprKind::Float(value) => ConstValue::Float(*value),
        ExprKind::Str(text) => ConstValue::Str(text.clone()),
        ExprKind::Tuple(items) => ConstValue::Tuple(items.iter().map(literal).collect::<Option<_>>()?),
        ExprKind::Unary(UnaryOp::Neg, inner) => match literal(inner)? {
            ConstValue::Int(value) => ConstValue::Int(value.checked_neg()?),
            ConstValue::Float(value) => ConstValue::Float(-value),
            _ => return None,
        },
        _ => return None,
    })
}
