//! Statements.

use tessera_ir::{Diagnostic, ScheduleOp, Span};

use super::expr::unsupported;
use super::{Flow, Lowerer, Res};
use crate::ast::{Expr, ExprKind, Stmt, StmtKind};
use crate::diagnostics::id;
use crate::value::Val;

/// What runs after a list of statements inside an inlined function: the rest of the lists around it.
#[derive(Clone, Copy)]
pub(crate) struct Rest<'a> {
    pub(crate) stmts: &'a [Stmt],
    pub(crate) next: Option<&'a Rest<'a>>,
}

impl Lowerer<'_> {
    /// Lowers statements in order; what follows a jump is not reached.
    pub(crate) fn stmts(&mut self, stmts: &[Stmt]) -> Res<Flow> {
        self.run(stmts, None)
    }

    /// Lowers statements and then what comes after them.
    ///
    /// In an inlined function, a `return` under a run-time condition splits everything that follows into the two branches,
    /// so that both end with a value: early returns need no jumps.
    pub(crate) fn run(&mut self, stmts: &[Stmt], rest: Option<&Rest<'_>>) -> Res<Flow> {
        for (i, stmt) in stmts.iter().enumerate() {
            let after = Rest { stmts: &stmts[i + 1..], next: rest };
            let inlined = !self.frame().is_kernel && self.frame().loops.is_empty();
            if inlined && has_return(std::slice::from_ref(stmt)) {
                match &stmt.kind {
                    StmtKind::If { test, body, orelse } => return self.returning_if(test, body, orelse, &after),
                    StmtKind::For { .. } | StmtKind::While { .. } => {
                        return match self.deeper(stmt.span, |lowerer| lowerer.stmt(stmt))? {
                            Flow::Falls => self.after_returning_loop(never_falls(&stmt.kind), &after, stmt.span),
                            flow => Ok(flow),
                        };
                    }
                    _ => {}
                }
            }
            match self.deeper(stmt.span, |lowerer| lowerer.stmt(stmt))? {
                Flow::Falls => {}
                flow => return Ok(flow),
            }
        }
        match rest {
            Some(rest) => self.run(rest.stmts, rest.next),
            None => Ok(Flow::Falls),
        }
    }

    fn stmt(&mut self, stmt: &Stmt) -> Res<Flow> {
        self.span = stmt.span;
        match &stmt.kind {
            StmtKind::Assign(targets, value) => {
                let from = value.span;
                let value = self.expr(value)?;
                for target in targets {
                    self.assign(target, value.clone(), from)?;
                }
            }
            StmtKind::AugAssign(target, op, value) => self.aug_assign(target, *op, value, stmt.span)?,
            StmtKind::AnnAssign(target, _, value) => {
                if let Some(value) = value {
                    let from = value.span;
                    let value = self.expr(value)?;
                    self.assign(target, value, from)?;
                }
            }
            StmtKind::Expr(value) => {
                if !matches!(value.kind, ExprKind::Str(_)) {
                    self.expr(value)?;
                }
            }
            StmtKind::For { target, iterable, body } => return self.for_loop(target, iterable, body, stmt.span),
            StmtKind::While { test, body } => return self.while_loop(test, body, stmt.span),
            StmtKind::If { test, body, orelse } => return self.if_stmt(test, body, orelse, stmt.span),
            StmtKind::Break => return self.break_(stmt.span),
            StmtKind::Continue => return self.continue_(stmt.span),
            StmtKind::Return(value) => return self.return_(value.as_ref(), stmt.span),
            StmtKind::Pass => {}
            StmtKind::Raise(exception) => self.raise(exception.as_ref(), stmt.span)?,
            StmtKind::Assert(..) => {
                return Err(Box::new(
                    Diagnostic::error(id::UNSUPPORTED, stmt.span, "`assert` can't be used in a kernel")
                        .label("not part of the kernel language")
                        .help("write `ct.static_assert(condition)` for compile time or `ct.assert_(condition)` for run time"),
                ));
            }
            StmtKind::Function(function) => {
                if let Some((what, place)) = function.unsupported {
                    return Err(unsupported(what, place));
                }
                let value = self.define(function)?;
                self.bind(&function.name.name, value, function.name.span);
            }
            StmtKind::Import(imports) => self.import(imports)?,
            StmtKind::With { items, body } => return self.with(items, body, stmt.span),
            StmtKind::Class(_) => return Err(unsupported("`class`", stmt.span)),
            StmtKind::Unsupported(what) => return Err(unsupported(what, stmt.span)),
        }
        Ok(Flow::Falls)
    }

    fn return_(&mut self, value: Option<&Expr>, span: Span) -> Res<Flow> {
        let result = match value {
            Some(value) => self.at(value)?,
            None => (Val::None, span),
        };
        self.check_kept(&result.0, result.1)?;
        if self.frame().is_kernel {
            if !matches!(result.0, Val::None) {
                return Err(Box::new(
                    Diagnostic::error(id::RETURN_VALUE, result.1, "a kernel returns nothing")
                        .label(format!("this is {}", result.0.describe()))
                        .help("store results with `ct.store`"),
                ));
            }
            self.emit(ScheduleOp::Return {}, &[], []);
            return Ok(Flow::Exits);
        }
        if self.loops_are_unrolled() {
            self.frame().returned = Some(result);
            return Ok(Flow::Exits);
        }
        self.return_from_loop(result, span)
    }
}

/// True when a `return` stands in the statements, nested functions aside.
pub(crate) fn has_return(stmts: &[Stmt]) -> bool {
    stmts.iter().any(|stmt| match &stmt.kind {
        StmtKind::Return(_) => true,
        StmtKind::If { body, orelse, .. } => has_return(body) || has_return(orelse),
        StmtKind::For { body, .. } | StmtKind::While { body, .. } | StmtKind::With { body, .. } => has_return(body),
        _ => false,
    })
}

/// True for a loop that no condition and no `break` ends.
fn never_falls(loop_: &StmtKind) -> bool {
    matches!(loop_, StmtKind::While { test: Expr { kind: ExprKind::Bool(true), .. }, body } if !has_break(body))
}

/// True when a `break` of this loop stands in its body.
pub(crate) fn has_break(stmts: &[Stmt]) -> bool {
    stmts.iter().any(|stmt| match &stmt.kind {
        StmtKind::Break => true,
        StmtKind::If { body, orelse, .. } => has_break(body) || has_break(orelse),
        StmtKind::With { body, .. } => has_break(body),
        _ => false,
    })
}

/// Names that statements assign, in order of appearance.
pub(crate) fn assigned(stmts: &[Stmt], names: &mut Vec<String>) {
    fn target(expr: &Expr, names: &mut Vec<String>) {
        match &expr.kind {
            ExprKind::Name(name) if !names.contains(name) => names.push(name.clone()),
            ExprKind::Tuple(items) | ExprKind::List(items) => items.iter().for_each(|item| target(item, names)),
            ExprKind::Starred(inner) => target(inner, names),
            _ => {}
        }
    }
    for stmt in stmts {
        match &stmt.kind {
            StmtKind::Assign(targets, _) => targets.iter().for_each(|expr| target(expr, names)),
            StmtKind::AugAssign(expr, ..) | StmtKind::AnnAssign(expr, _, Some(_)) => target(expr, names),
            StmtKind::For { target: expr, body, .. } => {
                target(expr, names);
                assigned(body, names);
            }
            StmtKind::While { body, .. } => assigned(body, names),
            StmtKind::With { items, body } => {
                items.iter().filter_map(|(_, bound)| bound.as_ref()).for_each(|bound| target(bound, names));
                assigned(body, names);
            }
            StmtKind::Import(imports) => {
                names.extend(
                    imports.iter().map(|import| import.name.clone()).filter(|name| !names.contains(name)).collect::<Vec<_>>(),
                );
            }
            StmtKind::If { body, orelse, .. } => {
                assigned(body, names);
                assigned(orelse, names);
            }
            StmtKind::Function(function) if !names.contains(&function.name.name) => names.push(function.name.name.clone()),
            _ => {}
        }
    }
}
