//! `with`: a generator that `contextlib.contextmanager` made a context manager runs up to its `yield`, then the body, then the rest of the
//! generator. Its frame stays below the one of the body, so that functions defined in it see its variables.
//!
//! ```text
//! @contextmanager
//! def exclusive(lock):
//!     while ct.atomic_cas(lock, 0, 0, 1) == 1: pass      before the body
//!     yield
//!     ct.atomic_xchg(lock, 0, 0)                         behind it
//! ```

use std::rc::Rc;

use tessera_ir::{Diagnostic, Span};

use super::functions::called_from;
use super::{Flow, Lowerer, Res};
use crate::ast::{Expr, ExprKind, Function, Stmt, StmtKind};
use crate::diagnostics::id;
use crate::value::{Closure, Val};

impl Lowerer<'_> {
    pub(crate) fn with(&mut self, items: &[(Expr, Option<Expr>)], body: &[Stmt], span: Span) -> Res<Flow> {
        let Some(((manager, target), rest)) = items.split_first() else { return self.stmts(body) };
        if let Some(place) = jump_out(body, false) {
            return Err(Box::new(
                Diagnostic::error(id::MISPLACED, place, "a jump can't leave the body of a `with`")
                    .label("the rest of the context manager would not run")
                    .also(manager.span, "this one")
                    .help("keep the result in a variable, and jump behind the body"),
            ));
        }
        let ExprKind::Call(callee, args) = &manager.kind else { return Err(self.no_manager(manager)) };
        let (closure, mut given) = match self.expr(callee)? {
            Val::Closure(closure) if closure.is_context => (closure, Vec::new()),
            Val::Bound(receiver, function) => match &*function {
                Val::Closure(closure) if closure.is_context => {
                    let value = Val::clone(&receiver);
                    (closure.clone(), vec![crate::bind::Given { keyword: None, value, span: callee.span }])
                }
                _ => return Err(self.no_manager(manager)),
            },
            _ => return Err(self.no_manager(manager)),
        };
        given.extend(self.arguments(args)?);
        let function = closure.function.clone();
        let (before, yielded, behind) = parts(&function)?;

        let moment = self.enter_call(&closure, &given, manager.span)?;
        let entered = self.deeper(manager.span, |lowerer| lowerer.manager_half(&closure, before, yielded));
        let value = entered.map_err(|error| called_from(error, &function, manager.span))?;
        let inner = std::mem::replace(&mut self.moment, moment);
        let position = self.frames.len() - 2;
        let frame = self.frames.remove(position + 1);
        self.frames.insert(position, frame);
        if let Some(target) = target {
            self.assign(target, value, manager.span)?;
        }
        let flow = if rest.is_empty() { self.stmts(body)? } else { self.with(rest, body, span)? };
        if flow != Flow::Falls {
            return Err(Box::new(Diagnostic::error(id::MISPLACED, span, "a jump can't leave the body of a `with`")));
        }
        let frame = self.frames.remove(position);
        self.frames.push(frame);
        self.moment = inner;
        let left = self.deeper(manager.span, |lowerer| lowerer.manager_half(&closure, behind, None));
        self.leave();
        self.moment = moment;
        left.map_err(|error| called_from(error, &function, manager.span))?;
        Ok(Flow::Falls)
    }

    /// The statements before or behind the `yield`, and what it yields.
    fn manager_half(&mut self, closure: &Rc<Closure>, stmts: &[Stmt], yielded: Option<&Expr>) -> Res<Val> {
        if let Some(place) = jump_out(stmts, true) {
            return Err(Box::new(
                Diagnostic::error(id::MISPLACED, place, "a context manager can't return before its end")
                    .also(closure.function.name.span, "the context manager"),
            ));
        }
        self.stmts(stmts)?;
        match yielded {
            Some(value) => {
                let at = self.at(value)?;
                self.check_kept(&at.0, at.1)?;
                Ok(at.0)
            }
            None => Ok(Val::None),
        }
    }

    fn no_manager(&mut self, manager: &Expr) -> Box<Diagnostic> {
        Box::new(
            Diagnostic::error(id::UNSUPPORTED, manager.span, "this can't stand behind `with` in a kernel")
                .label("no call of a context manager")
                .help("call a generator that has the decorator `@contextlib.contextmanager`"),
        )
    }
}

/// A generator's statements before its `yield`, what it yields, and its statements behind it.
fn parts(function: &Function) -> Res<(&[Stmt], Option<&Expr>, &[Stmt])> {
    let yielded = |stmt: &Stmt| match &stmt.kind {
        StmtKind::Expr(value) | StmtKind::Assign(_, value) => matches!(value.kind, ExprKind::Yield(_)),
        _ => false,
    };
    let Some(at) = function.body.iter().position(yielded) else {
        return Err(Box::new(
            Diagnostic::error(id::UNSUPPORTED, function.name.span, "this context manager has no `yield` among its statements")
                .label("it yields once")
                .help("write one `yield`, outside of loops, branches and `try`"),
        ));
    };
    let value = match &function.body[at].kind {
        StmtKind::Expr(Expr { kind: ExprKind::Yield(value), .. }) => value.as_deref(),
        _ => {
            return Err(Box::new(
                Diagnostic::error(id::UNSUPPORTED, function.body[at].span, "nothing is sent to a context manager")
                    .help("write `yield` as a statement"),
            ));
        }
    };
    Ok((&function.body[..at], value, &function.body[at + 1..]))
}

/// The first jump out of the statements.
fn jump_out(stmts: &[Stmt], in_loop: bool) -> Option<Span> {
    stmts.iter().find_map(|stmt| match &stmt.kind {
        StmtKind::Return(_) => Some(stmt.span),
        StmtKind::Break | StmtKind::Continue if !in_loop => Some(stmt.span),
        StmtKind::If { body, orelse, .. } => jump_out(body, in_loop).or_else(|| jump_out(orelse, in_loop)),
        StmtKind::For { body, .. } | StmtKind::While { body, .. } => jump_out(body, true),
        StmtKind::With { body, .. } => jump_out(body, in_loop),
        _ => None,
    })
}
