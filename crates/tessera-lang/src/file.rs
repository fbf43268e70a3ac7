//! A parsed kernel file: its kernels, their parameters, and what module level defines.
//!
//! Nothing is evaluated here: module-level names are kept as expressions and evaluated when a kernel uses them, so host code
//! in the same file (launches, tensors, tests) never has to make sense to us. What no kernel can use is noted once.

use std::sync::Arc;

use indexmap::IndexMap;
use tessera_ir::{Diagnostic, IndexType, Severity, SourceId, SourceMap, Span};

use crate::annotation::{self, Annotation};
use crate::args::ConstValue;
use crate::ast::{Class, Expr, ExprKind, Function, Import, Parameter, Stmt, StmtKind, UnaryOp};
use crate::class;
use crate::diagnostics::id;
use crate::modules::{Alone, ModuleText, Modules, Scope, Target};
use crate::python;
use crate::signature;
use crate::style::{self, Style};

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
    /// The file and the modules that it imports, by their texts.
    pub(crate) scopes: IndexMap<SourceId, Scope>,
    /// What imports inside functions stand for, by their places.
    pub(crate) inner_imports: IndexMap<Span, Target>,
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
pub(crate) struct Moment {
    source: SourceId,
    at: usize,
}

impl Moment {
    /// Before the statements of a module that is given names.
    pub(crate) const fn first(source: SourceId) -> Moment {
        Moment { source, at: 0 }
    }

    /// Behind the last statement of a module.
    pub(crate) const fn end(source: SourceId) -> Moment {
        Moment { source, at: usize::MAX }
    }

    /// The module's text.
    pub(crate) const fn source(self) -> SourceId {
        self.source
    }
}

/// What a statement of module level binds to a name.
#[derive(Clone, Debug)]
pub(crate) struct Definition {
    /// The name in its own module.
    pub(crate) name: String,
    pub(crate) at: Moment,
    pub(crate) what: Global,
}

/// What a module-level name stands for.
#[derive(Clone, Debug)]
pub(crate) enum Global {
    /// An imported module or member, and where it is imported.
    Import(Target, Span),
    /// The value of an expression; the positions lead into a tuple that was unpacked.
    Value(Expr, Vec<usize>),
    /// A function.
    Function(Arc<Function>),
    /// A class that kernels can use.
    Class(Arc<Class>),
    /// A class of the host's, from which kernels' classes may be made.
    Plain(Arc<Class>),
    /// Bound by code that is not evaluated: what it is, and where.
    Unknown(&'static str, Span),
}

/// Reads a kernel file that imports no other module of its project.
pub fn parse_file(name: &str, text: &str) -> ParsedFile {
    parse_project(name, text, &Alone)
}

/// Reads a kernel file and the modules that it imports. A syntax error in the file leaves no kernels and one error among the diagnostics;
/// one in a module is told where something of the module is needed.
pub fn parse_project(name: &str, text: &str, modules: &dyn Modules) -> ParsedFile {
    let mut file = read(ModuleText::of_file(name, text), modules);
    file.find_kernels();
    file
}

/// The name under which a module that is [given](ModuleText::before) names has the decorator that counts for the kernel.
pub const DECORATOR: &str = "__kernel__";

/// Reads a kernel of a running program: the text of its function alone, with the names that the program has for it. Where [`DECORATOR`] is
/// among them, it stands for the decorators of the text.
pub fn parse_live(root: ModuleText, kernel: &str, modules: &dyn Modules) -> ParsedFile {
    let mut file = read(root, modules);
    let end = Moment::end(file.source);
    let decorator = match file.global(DECORATOR, end).map(|given| &given.what) {
        Some(Global::Value(value, _)) => Some(value.clone()),
        _ => None,
    };
    if let Some(decorator) = decorator
        && let Some(own) = file.scopes[&file.source].globals.get(kernel).and_then(|list| list.last())
        && let Global::Function(function) = &own.what
    {
        let own = Definition {
            name: own.name.clone(),
            at: own.at,
            what: Global::Function(Arc::new(Function { decorators: vec![decorator], ..(**function).clone() })),
        };
        file.scopes[&file.source].globals[kernel] = vec![own];
    }
    file.find_kernels();
    file
}

/// A module and those that it imports.
fn read(root: ModuleText, modules: &dyn Modules) -> ParsedFile {
    let mut sources = SourceMap::default();
    let source = sources.add(root.file, root.shown.as_deref().unwrap_or(&root.text));
    let scopes = IndexMap::from([(source, Scope::of(root.name))]);
    let mut file =
        ParsedFile { sources, source, kernels: IndexMap::new(), diagnostics: Vec::new(), scopes, inner_imports: IndexMap::new() };
    match python::parse(source, &root.text) {
        Ok(module) => {
            let first = file.given(modules, source, root.before.as_deref());
            file.collect(modules, source, &module, first);
        }
        Err(error) => file.diagnostics.push(*error),
    }
    file
}

impl ParsedFile {
    /// True when the text could not be read.
    pub fn has_errors(&self) -> bool {
        self.diagnostics.iter().any(|diagnostic| diagnostic.severity == Severity::Error)
    }

    /// Takes up what a module binds; `first` is the moment of its first statement.
    pub(crate) fn collect(&mut self, modules: &dyn Modules, source: SourceId, module: &python::Module, first: usize) {
        let mut ignored: Option<(Span, &'static str, usize)> = None;
        for (at, (stmt, binds)) in module.stmts.iter().enumerate() {
            let at = Moment { source, at: first + at };
            let unused = self.define(modules, stmt, at);
            // What a statement binds beside what was understood of it is not known.
            for name in binds.iter().filter(|name| *name != "*") {
                let last = self.scopes[&source].globals.get(name).and_then(|list| list.last());
                if last.is_none_or(|last| last.at != at) {
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
            self.bind(name, Moment { source, at: first + module.stmts.len() }, Global::Unknown("`global`", *span));
        }
        for (stmt, _) in &module.stmts {
            self.inner_imports(modules, std::slice::from_ref(stmt), false);
        }
    }

    /// Looks up what functions of the module import.
    fn inner_imports(&mut self, modules: &dyn Modules, stmts: &[Stmt], is_inside: bool) {
        for stmt in stmts {
            match &stmt.kind {
                StmtKind::Import(imports) if is_inside => {
                    for import @ Import { span, .. } in imports {
                        let target = self.target(modules, span.source, import);
                        self.inner_imports.insert(*span, target);
                    }
                }
                StmtKind::Function(function) => self.inner_imports(modules, &function.body, true),
                StmtKind::Class(class) => self.inner_imports(modules, &class.body, is_inside),
                StmtKind::For { body, .. } | StmtKind::While { body, .. } | StmtKind::With { body, .. } => {
                    self.inner_imports(modules, body, is_inside);
                }
                StmtKind::If { body, orelse, .. } => {
                    self.inner_imports(modules, body, is_inside);
                    self.inner_imports(modules, orelse, is_inside);
                }
                _ => {}
            }
        }
    }

    /// Takes up the kernels that the file defines or imports, in its order.
    fn find_kernels(&mut self) {
        let moment = Moment::end(self.source);
        let mut found: Vec<(Moment, Kernel)> = Vec::new();
        for (name, own) in &self.scopes[&self.source].globals {
            // A kernel stays one where host code binds its name again, to a launcher around it for instance.
            for definition in own {
                let place = definition.at;
                let meant = match definition.what {
                    Global::Import(..) => self.global(name, moment).filter(|_| own.last().is_some_and(|last| last.at == place)),
                    _ => Some(definition),
                };
                let Some(Definition { what: Global::Function(function), at, .. }) = meant else { continue };
                let Some(style) = style::of(self, function, *at) else { continue };
                let params = function.params.iter().map(|param| self.parameter(param, style)).collect();
                found.push((place, Kernel { name: name.clone(), style, params, function: function.clone(), at: *at }));
            }
        }
        found.sort_by_key(|(place, _)| *place);
        self.kernels = found.into_iter().map(|(_, kernel)| (kernel.name.clone(), kernel)).collect();
    }

    fn parameter(&self, param: &Parameter, style: Style) -> Param {
        Param {
            name: param.name.name.clone(),
            annotation: param.annotation.as_ref().map_or(Annotation::None, |expr| match style {
                Style::Block { .. } => annotation::read(self, expr),
                Style::Declarative | Style::Simt => signature::annotation(self, expr),
            }),
            default: param.default.as_ref().and_then(literal),
            span: param.name.span,
        }
    }

    /// Takes up what a statement of module level binds; what it is called, where it means nothing to kernels.
    fn define(&mut self, modules: &dyn Modules, stmt: &Stmt, at: Moment) -> Option<&'static str> {
        match &stmt.kind {
            StmtKind::Import(imports) => imports.iter().for_each(|import| self.import(modules, at.source, import, at)),
            StmtKind::Assign(targets, value) => {
                targets.iter().for_each(|target| self.assign(target, value, at, &mut Vec::new()));
            }
            StmtKind::AnnAssign(target, _, Some(value)) => self.assign(target, value, at, &mut Vec::new()),
            StmtKind::AugAssign(target, op, value) if matches!(target.kind, ExprKind::Name(_)) => {
                let kind = ExprKind::Binary(*op, Box::new(target.clone()), Box::new(value.clone()));
                self.assign(target, &Expr { kind, span: stmt.span }, at, &mut Vec::new());
            }
            StmtKind::Function(function) => self.bind(&function.name.name, at, Global::Function(function.clone())),
            StmtKind::Class(class) if class::kind_of(self, class, at).is_some() => {
                self.bind(&class.name.name, at, Global::Class(class.clone()));
            }
            StmtKind::Pass | StmtKind::AnnAssign(_, _, None) => {}
            StmtKind::Expr(expr) if matches!(expr.kind, ExprKind::Str(_) | ExprKind::Ellipsis) => {}
            StmtKind::Expr(_) => return Some("an expression"),
            StmtKind::AugAssign(..) => return Some("an augmented assignment"),
            StmtKind::For { .. } => return Some("`for`"),
            StmtKind::While { .. } => return Some("`while`"),
            StmtKind::If { .. } => return Some("`if`"),
            StmtKind::With { .. } => return Some("`with`"),
            StmtKind::Class(class) => {
                self.bind(&class.name.name, at, Global::Plain(class.clone()));
                return Some("`class`");
            }
            StmtKind::Raise(_) => return Some("`raise`"),
            StmtKind::Assert(..) => return Some("`assert`"),
            StmtKind::Break | StmtKind::Continue | StmtKind::Return(_) => return Some("a jump"),
            StmtKind::Unsupported(what) => return Some(what),
        }
        None
    }

    pub(crate) fn bind(&mut self, name: &str, at: Moment, what: Global) {
        let scope = self.scopes.entry(at.source).or_default();
        scope.globals.entry(name.to_string()).or_default().push(Definition { name: name.to_string(), at, what });
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

    /// The names of module level, for messages.
    pub(crate) fn global_names(&self, source: SourceId) -> impl Iterator<Item = &str> {
        self.scopes.get(&source).into_iter().flat_map(|scope| scope.globals.keys().map(String::as_str))
    }

    /// Notes code of the file that means nothing to kernels; in other modules it is their own affair.
    fn note_ignored(&mut self, (span, what, count): (Span, &'static str, usize)) {
        if span.source != self.source {
            return;
        }
        let more = if count > 1 { format!(" and {} more", count - 1) } else { String::new() };
        self.diagnostics.push(
            Diagnostic::error(id::IGNORED, first_line(&self.sources, span), format!("{what}{more} at module level is ignored"))
                .severity(Severity::Note)
                .label("kernels use imports, constants and functions only"),
        );
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
