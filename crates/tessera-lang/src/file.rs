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
    /// What module level binds to each name, in the order of its statements.
    globals: IndexMap<String, Vec<Definition>>,
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
    /// When it is defined.
    pub(crate) at: Moment,
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

/// A place in the order of a module's statements. A name means what was bound to it last before that place; to a kernel, which
/// runs when the module is complete, what was bound to it last.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct Moment(usize);

impl Moment {
    /// Behind the last statement.
    pub(crate) const END: Moment = Moment(usize::MAX);
}

/// What a statement of module level binds to a name.
#[derive(Clone, Debug)]
pub(crate) struct Definition {
    pub(crate) at: Moment,
    pub(crate) what: Global,
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
    /// Bound by code that is not evaluated: what it is, and where.
    Unknown(&'static str, Span),
}

/// Reads a kernel file. A syntax error leaves no kernels and one error among the diagnostics.
pub fn parse_file(name: &str, text: &str) -> ParsedFile {
    let mut sources = SourceMap::default();
    let source = sources.add(name, text);
    let mut file = ParsedFile { sources, source, kernels: IndexMap::new(), diagnostics: Vec::new(), globals: IndexMap::new() };
    match python::parse(source, text) {
        Ok(module) => file.collect(&module),
        Err(error) => file.diagnostics.push(*error),
    }
    file
}

impl ParsedFile {
    /// True when the text could not be read.
    pub fn has_errors(&self) -> bool {
        self.diagnostics.iter().any(|diagnostic| diagnostic.severity == Severity::Error)
    }

    fn collect(&mut self, module: &python::Module) {
        let mut functions = Vec::new();
        let mut ignored: Option<(Span, &'static str, usize)> = None;
        for (at, (stmt, binds)) in module.stmts.iter().enumerate() {
            let at = Moment(at);
            let unused = self.define(stmt, at);
            if let StmtKind::Function(function) = &stmt.kind {
                functions.push((function.clone(), at));
            }
            // What a statement binds beside what was understood of it is not known.
            for name in binds {
                if self.globals.get(name).and_then(|list| list.last()).is_none_or(|last| last.at != at) {
                    self.bind(name, at, Global::Unknown(unused.unwrap_or("an expression"), first_line(&self.sources, stmt.span)));
                }
            }
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
        for (name, span) in &module.changed {
            self.bind(name, Moment(module.stmts.len()), Global::Unknown("`global`", *span));
        }
        for (function, at) in functions {
            let Some(style) = style::of(self, &function, at) else { continue };
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
            self.kernels.insert(name.clone(), Kernel { name, style, params, function, at });
        }
    }

    /// Takes up what a statement of module level binds; what it is called, where it means nothing to kernels.
    fn define(&mut self, stmt: &Stmt, at: Moment) -> Option<&'static str> {
        match &stmt.kind {
            StmtKind::Import(imports) => {
                imports.iter().for_each(|import| self.bind(&import.name, at, Global::Import(import.path.clone())));
            }
            StmtKind::Assign(targets, value) => {
                targets.iter().for_each(|target| self.assign(target, value, at, &mut Vec::new()));
            }
            StmtKind::AnnAssign(target, _, Some(value)) => self.assign(target, value, at, &mut Vec::new()),
            StmtKind::AugAssign(target, op, value) if matches!(target.kind, ExprKind::Name(_)) => {
                let kind = ExprKind::Binary(*op, Box::new(target.clone()), Box::new(value.clone()));
                self.assign(target, &Expr { kind, span: stmt.span }, at, &mut Vec::new());
            }
            StmtKind::Function(function) => self.bind(&function.name.name, at, Global::Function(function.clone())),
            StmtKind::Pass | StmtKind::AnnAssign(_, _, None) => {}
            StmtKind::Expr(expr) if matches!(expr.kind, ExprKind::Str(_) | ExprKind::Ellipsis) => {}
            StmtKind::Expr(_) => return Some("an expression"),
            StmtKind::AugAssign(..) => return Some("an augmented assignment"),
            StmtKind::For { .. } => return Some("`for`"),
            StmtKind::While { .. } => return Some("`while`"),
            StmtKind::If { .. } => return Some("`if`"),
            StmtKind::Raise(_) => return Some("`raise`"),
            StmtKind::Assert(..) => return Some("`assert`"),
            StmtKind::Break | StmtKind::Continue | StmtKind::Return(_) => return Some("a jump"),
            StmtKind::Unsupported(what) => return Some(what),
        }
        None
    }

    fn bind(&mut self, name: &str, at: Moment, what: Global) {
        self.globals.entry(name.to_string()).or_default().push(Definition { at, what });
    }

    /// Binds the names of an assignment target to a value, or to an item of it.
    fn assign(&mut self, target: &Expr, value: &Expr, at: Moment, path: &mut Vec<usize>) {
        match &target.kind {
            ExprKind::Name(name) => self.bind(name, at, Global::Value(value.clone(), path.clone())),
            ExprKind::Tuple(items) | ExprKind::List(items)
                if !items.iter().any(|item| matches!(item.kind, ExprKind::Starred(_))) =>
            {
                for (i, item) in items.iter().enumerate() {
                    path.push(i);
                    self.assign(item, value, at, path);
                    path.pop();
                }
            }
            _ => {}
        }
    }

    /// What a name of module level means at a moment.
    pub(crate) fn global(&self, name: &str, moment: Moment) -> Option<&Definition> {
        self.globals.get(name)?.iter().rev().find(|definition| definition.at < moment)
    }

    /// The names of module level, for messages.
    pub(crate) fn global_names(&self) -> impl Iterator<Item = &str> {
        self.globals.keys().map(String::as_str)
    }

    fn note_ignored(&mut self, (span, what, count): (Span, &'static str, usize)) {
        let more = if count > 1 { format!(" and {} more", count - 1) } else { String::new() };
        self.diagnostics.push(
            Diagnostic::error(id::IGNORED, first_line(&self.sources, span), format!("{what}{more} at module level is ignored"))
                .severity(Severity::Note)
                .label("kernels use imports, constants and functions only"),
        );
    }

    /// The dotted path that an expression names in a kernel, with imports resolved: `ct.kernel` is `cuda.tile.kernel`.
    pub(crate) fn path_of(&self, expr: &Expr) -> Option<String> {
        self.path_at(expr, Moment::END)
    }

    /// The same at a moment.
    pub(crate) fn path_at(&self, expr: &Expr, moment: Moment) -> Option<String> {
        self.path_through(expr, moment, MAX_ALIASES)
    }

    /// The same, following at most `aliases` names that stand for other paths.
    fn path_through(&self, expr: &Expr, moment: Moment, aliases: u32) -> Option<String> {
        match &expr.kind {
            ExprKind::Name(name) => match self.global(name, moment) {
                Some(Definition { what: Global::Import(path), .. }) => Some(path.clone()),
                Some(Definition { what: Global::Value(value, position), at }) if position.is_empty() => match &value.kind {
                    ExprKind::Attribute(..) | ExprKind::Name(_) => self.path_through(value, *at, aliases.checked_sub(1)?),
                    _ => None,
                },
                Some(_) => None,
                None => Some(match name.as_str() {
                    "tile" => "tessera.tile".to_string(),
                    _ => name.clone(),
                }),
            },
            ExprKind::Attribute(base, member) => Some(format!("{}.{}", self.path_through(base, moment, aliases)?, member.name)),
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
