//! Which names a body binds and which it only reads. Python decides that for a whole function at once: a name that is bound
//! anywhere in it is its own everywhere in it.
//!
//! ```text
//! def outer(a):             own: a, b, f     shared: b
//!     b = a + 1
//!     def f(c):             own: c           free: b
//!         return b + c
//!     return f
//! ```

use indexmap::{IndexMap, IndexSet};
use ruff_python_ast as py;
use ruff_python_ast::visitor::{self, Visitor};
use ruff_text_size::{Ranged, TextRange};

use crate::ast::Names;

/// What a body binds and reads.
#[derive(Default)]
pub(super) struct Scope {
    own: IndexSet<String>,
    read: IndexSet<String>,
    /// What functions defined in the body look up outside themselves.
    free_inside: IndexSet<String>,
    /// The first `global` or `nonlocal` statement.
    pub(super) declared: Option<(&'static str, TextRange)>,
}

/// The names that a statement may bind where it stands.
pub(super) fn bound(stmt: &py::Stmt) -> Vec<String> {
    let mut scope = Scope::default();
    scope.visit_stmt(stmt);
    scope.own.into_iter().collect()
}

/// The names that functions of a module declare `global`, and so may change, with one place each.
pub(super) fn globals(stmts: &[py::Stmt]) -> IndexMap<String, TextRange> {
    struct Globals(IndexMap<String, TextRange>);
    impl<'a> Visitor<'a> for Globals {
        fn visit_stmt(&mut self, stmt: &'a py::Stmt) {
            if let py::Stmt::Global(global) = stmt {
                self.0.extend(global.names.iter().map(|name| (name.id.to_string(), global.range())));
            }
            visitor::walk_stmt(self, stmt);
        }

        fn visit_expr(&mut self, _: &'a py::Expr) {}
    }
    let mut found = Globals(IndexMap::new());
    found.visit_body(stmts);
    found.0
}

/// True when a `break` of the loop with this body stands in it.
pub(super) fn breaks(body: &[py::Stmt]) -> bool {
    body.iter().any(|stmt| match stmt {
        py::Stmt::Break(_) => true,
        py::Stmt::If(s) => breaks(&s.body) || s.elif_else_clauses.iter().any(|clause| breaks(&clause.body)),
        py::Stmt::With(s) => breaks(&s.body),
        py::Stmt::Match(s) => s.cases.iter().any(|case| breaks(&case.body)),
        py::Stmt::For(s) => breaks(&s.orelse),
        py::Stmt::While(s) => breaks(&s.orelse),
        py::Stmt::Try(s) => {
            let handlers = s.handlers.iter().any(|py::ExceptHandler::ExceptHandler(handler)| breaks(&handler.body));
            breaks(&s.body) || breaks(&s.orelse) || breaks(&s.finalbody) || handlers
        }
        _ => false,
    })
}

impl Scope {
    /// Of a function.
    pub(super) fn of(parameters: &py::Parameters, body: &[py::Stmt]) -> Scope {
        let mut scope = Scope::default();
        scope.parameters(parameters);
        scope.visit_body(body);
        scope
    }

    /// Of a lambda.
    pub(super) fn of_lambda(lambda: &py::ExprLambda) -> Scope {
        let mut scope = Scope::default();
        lambda.parameters.iter().for_each(|parameters| scope.parameters(parameters));
        scope.visit_expr(&lambda.body);
        scope
    }

    /// Of a comprehension with its elements, without the first iterable, which is evaluated outside.
    pub(super) fn of_comprehension(elements: &[&py::Expr], clauses: &[py::Comprehension]) -> Scope {
        let mut scope = Scope::default();
        for (at, clause) in clauses.iter().enumerate() {
            if at > 0 {
                scope.visit_expr(&clause.iter);
            }
            scope.visit_expr(&clause.target);
            clause.ifs.iter().for_each(|condition| scope.visit_expr(condition));
        }
        elements.iter().for_each(|element| scope.visit_expr(element));
        scope
    }

    /// What the body binds, and what of that its functions read.
    pub(super) fn names(self) -> Names {
        let shared = self.own.intersection(&self.free_inside).cloned().collect();
        Names { own: self.own, shared }
    }

    fn parameters(&mut self, parameters: &py::Parameters) {
        self.own.extend(parameters.iter().map(|parameter| parameter.name().id.to_string()));
    }

    /// Takes what a function defined here looks up outside itself.
    fn inner(&mut self, inner: Scope) {
        let Scope { own, read, free_inside, .. } = inner;
        self.free_inside.extend(read.into_iter().chain(free_inside).filter(|name| !own.contains(name)));
    }

    fn defaults(&mut self, parameters: &py::Parameters) {
        parameters.iter_non_variadic_params().filter_map(|p| p.default.as_deref()).for_each(|default| self.visit_expr(default));
    }

    fn comprehension(&mut self, elements: &[&py::Expr], clauses: &[py::Comprehension]) {
        clauses.iter().take(1).for_each(|first| self.visit_expr(&first.iter));
        self.inner(Scope::of_comprehension(elements, clauses));
    }

    fn bind(&mut self, name: &py::Identifier) {
        self.own.insert(name.id.to_string());
    }
}

impl<'a> Visitor<'a> for Scope {
    fn visit_stmt(&mut self, stmt: &'a py::Stmt) {
        match stmt {
            py::Stmt::FunctionDef(s) => {
                self.bind(&s.name);
                s.decorator_list.iter().for_each(|decorator| self.visit_decorator(decorator));
                self.defaults(&s.parameters);
                self.inner(Scope::of(&s.parameters, &s.body));
            }
            py::Stmt::ClassDef(s) => {
                self.bind(&s.name);
                let mut body = Scope::default();
                body.visit_body(&s.body);
                self.inner(body);
            }
            py::Stmt::Import(s) => {
                let top = |alias: &py::Alias| alias.name.id.split('.').next().unwrap_or_default().to_string();
                self.own.extend(s.names.iter().map(|a| a.asname.as_ref().map_or_else(|| top(a), |name| name.id.to_string())));
            }
            py::Stmt::ImportFrom(s) => s.names.iter().for_each(|alias| self.bind(alias.asname.as_ref().unwrap_or(&alias.name))),
            py::Stmt::Global(s) => _ = self.declared.get_or_insert(("`global`", s.range())),
            py::Stmt::Nonlocal(s) => _ = self.declared.get_or_insert(("`nonlocal`", s.range())),
            _ => {
                if let py::Stmt::For(py::StmtFor { body, orelse, .. }) | py::Stmt::While(py::StmtWhile { body, orelse, .. }) =
                    stmt
                    && !orelse.is_empty()
                    && breaks(body)
                {
                    self.own.insert(super::broke(stmt));
                }
                visitor::walk_stmt(self, stmt);
            }
        }
    }

    /// Annotations are no code of the body.
    fn visit_annotation(&mut self, _: &'a py::Expr) {}

    fn visit_expr(&mut self, expr: &'a py::Expr) {
        match expr {
            py::Expr::Name(name) => {
                let names = if name.ctx.is_load() { &mut self.read } else { &mut self.own };
                names.insert(name.id.to_string());
            }
            py::Expr::Lambda(lambda) => {
                lambda.parameters.iter().for_each(|parameters| self.defaults(parameters));
                self.inner(Scope::of_lambda(lambda));
            }
            py::Expr::ListComp(e) => self.comprehension(&[&e.elt], &e.generators),
            py::Expr::SetComp(e) => self.comprehension(&[&e.elt], &e.generators),
            py::Expr::Generator(e) => self.comprehension(&[&e.elt], &e.generators),
            py::Expr::DictComp(e) => {
                let elements: Vec<&py::Expr> = e.key.as_deref().into_iter().chain([&*e.value]).collect();
                self.comprehension(&elements, &e.generators);
            }
            _ => visitor::walk_expr(self, expr),
        }
    }

    fn visit_except_handler(&mut self, handler: &'a py::ExceptHandler) {
        let py::ExceptHandler::ExceptHandler(own) = handler;
        own.name.iter().for_each(|name| self.bind(name));
        visitor::walk_except_handler(self, handler);
    }

    fn visit_pattern(&mut self, pattern: &'a py::Pattern) {
        match pattern {
            py::Pattern::MatchAs(own) => own.name.iter().for_each(|name| self.bind(name)),
            py::Pattern::MatchStar(own) => own.name.iter().for_each(|name| self.bind(name)),
            py::Pattern::MatchMapping(own) => own.rest.iter().for_each(|name| self.bind(name)),
            _ => {}
        }
        visitor::walk_pattern(self, pattern);
    }
}
