//! Statements.

use tessera_ir::attrs::MemoryOrder;
use tessera_ir::{Diagnostic, Span};
use tessera_types::DType;

use super::Check;
use super::env::Item;
use super::program::{Expression, Memory, Place, Statement};
use super::sequence::{Kind, sequence_of};
use super::value::{At, convert, not_a_value, truth, typed};
use crate::ast::{BinaryOp, Expr, ExprKind, Stmt, StmtKind};
use crate::diagnostics::id;
use crate::fixed::Fixed;
use crate::lower::{Res, changed_list};
use crate::promote::{dtype_name, promote};
use crate::written;

/// Statements that inlining may make of one kernel.
const MAX_STEPS: u32 = 100_000;

/// How control leaves a list of statements.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Flow {
    Falls,
    /// Ended in a jump on every path.
    Jumps,
    /// Ended in a return on every path, or in returns and jumps.
    Returns,
    /// Leaves the loop around it, which is walked round by round.
    Breaks,
    /// Goes on with the next round of such a loop.
    Continues,
}

/// A construct that per-thread kernels don't have.
pub(super) fn unsupported(span: Span, what: &str) -> Box<Diagnostic> {
    Box::new(Diagnostic::error(id::UNSUPPORTED, span, format!("a per-thread kernel can't use {what}")))
}

impl Check<'_> {
    /// Counts work, so that hostile inlining ends.
    pub(super) fn step(&mut self, span: Span) -> Res<()> {
        self.steps += 1;
        if self.steps <= MAX_STEPS {
            return Ok(());
        }
        Err(Box::new(
            Diagnostic::error(id::TOO_LARGE, span, "the kernel becomes too large")
                .label("checking stopped here")
                .note(format!("the limit is {MAX_STEPS} statements after inlining")),
        ))
    }

    pub(super) fn stmts(&mut self, stmts: &[Stmt]) -> Res<Flow> {
        let mut flow = Flow::Falls;
        for stmt in stmts {
            if flow != Flow::Falls {
                break;
            }
            flow = self.stmt(stmt)?;
        }
        Ok(flow)
    }

    /// The statements as a block of their own.
    pub(super) fn walk_block(&mut self, stmts: &[Stmt]) -> Res<(Vec<Statement>, Flow)> {
        let outside = std::mem::take(&mut self.out);
        self.blocks += 1;
        let around = std::mem::replace(&mut self.block, self.blocks);
        let flow = self.stmts(stmts);
        self.block = around;
        let body = std::mem::replace(&mut self.out, outside);
        Ok((body, flow?))
    }

    fn stmt(&mut self, stmt: &Stmt) -> Res<Flow> {
        self.step(stmt.span)?;
        match &stmt.kind {
            StmtKind::Assign(targets, value) => {
                let item = self.expr(value)?;
                for target in targets {
                    self.assign(target, &(item.clone(), value.span))?;
                }
            }
            StmtKind::AnnAssign(target, _, Some(value)) => {
                let item = self.expr(value)?;
                self.assign(target, &(item, value.span))?;
            }
            StmtKind::AugAssign(target, op, value) => self.update(target, *op, value, stmt.span)?,
            StmtKind::Expr(value) => match &value.kind {
                ExprKind::Str(_) | ExprKind::Ellipsis => {}
                _ => {
                    if let Item::Value(value) = self.expr(value)? {
                        self.out.push(Statement::Evaluate(value));
                    }
                }
            },
            StmtKind::If { test, body, orelse } => return self.branch(test, body, orelse, stmt.span),
            StmtKind::For { target, iterable, body, .. } => return self.for_each(target, iterable, body, stmt.span),
            StmtKind::While { test, body, .. } => self.repeat(test, body, stmt.span)?,
            StmtKind::Break | StmtKind::Continue if self.loops == 0 && self.round.is_none() => {
                return Err(Box::new(Diagnostic::error(id::MISPLACED, stmt.span, "a jump stands outside any loop")));
            }
            StmtKind::Break | StmtKind::Continue => {
                if let Some(branches) = self.round {
                    let is_break = matches!(stmt.kind, StmtKind::Break);
                    return self.leave_round(branches, if is_break { Flow::Breaks } else { Flow::Continues }, stmt.span);
                }
                self.strayed = self.strayed.or(self.divergent);
                self.out.push(if matches!(stmt.kind, StmtKind::Break) { Statement::Break } else { Statement::Continue });
                return Ok(Flow::Jumps);
            }
            StmtKind::Return(value) => {
                if !self.frame().scope.is_kernel() {
                    return Err(Box::new(
                        Diagnostic::error(id::MISPLACED, stmt.span, "`return` stands before the end of the function")
                            .help("a function that is called ends with its only `return`"),
                    ));
                }
                if let Some(value) = value.as_ref().filter(|value| !matches!(value.kind, ExprKind::None)) {
                    return Err(Box::new(
                        Diagnostic::error(id::RETURN_VALUE, value.span, "a kernel returns no value")
                            .help("write results to an array"),
                    ));
                }
                self.ended = self.ended.or(self.divergent);
                self.out.push(Statement::Return);
                return Ok(Flow::Returns);
            }
            StmtKind::Pass | StmtKind::AnnAssign(_, _, None) => {}
            StmtKind::Assert(test, _) => match self.expr(test)? {
                Item::Fixed(value) if value.truth(test.span)? => {}
                Item::Fixed(_) => {
                    return Err(Box::new(Diagnostic::error(id::STATIC_ASSERT, test.span, "the assertion does not hold")));
                }
                other => {
                    return Err(Box::new(
                        Diagnostic::error(
                            id::NOT_CONSTANT,
                            test.span,
                            "an assertion needs a value known when the kernel is compiled",
                        )
                        .label(format!("this is {}", other.describe())),
                    ));
                }
            },
            StmtKind::Function(function) => {
                written::undecorated(self.file, function, crate::file::Moment::end(stmt.span.source))?;
                let item = self.define(function)?;
                self.bind(&function.name.name, item, function.name.span)?;
            }
            StmtKind::Raise(_) => return Err(unsupported(stmt.span, "`raise`")),
            StmtKind::Import(_) => return Err(unsupported(stmt.span, "`import`")),
            StmtKind::With { .. } => return Err(unsupported(stmt.span, "`with`")),
            StmtKind::Class(_) => return Err(unsupported(stmt.span, "`class`")),
            StmtKind::Unsupported(what) => return Err(unsupported(stmt.span, what)),
        }
        Ok(Flow::Falls)
    }

    pub(super) fn assign(&mut self, target: &Expr, at: &At) -> Res<()> {
        match &target.kind {
            ExprKind::Name(name) => self.bind(name, at.0.clone(), target.span),
            ExprKind::Subscript(base, index) => {
                let place = self.place(base, index, target.span)?;
                self.store(place, at)
            }
            ExprKind::Tuple(targets) | ExprKind::List(targets) => {
                let items = self.unpack(targets, at, target.span)?;
                targets.iter().zip(items).try_for_each(|(target, item)| self.assign(target, &(item, at.1)))
            }
            // It has its items already.
            ExprKind::Starred(inner) => self.assign(inner, at),
            _ => {
                Err(Box::new(Diagnostic::error(id::IMMUTABLE, target.span, "only variables and elements of arrays are assigned")))
            }
        }
    }

    /// Writes an element; the value takes the element's type.
    pub(super) fn store(&mut self, place: Place, at: &At) -> Res<()> {
        let value = self.element(at, place.dtype)?;
        self.out.push(Statement::Store(place, value));
        Ok(())
    }

    /// A value on its way into memory: it takes the element's type, but floats don't become integers unasked.
    pub(super) fn element(&self, at: &At, dtype: DType) -> Res<Expression> {
        match &at.0 {
            Item::Value(value) => {
                let fits = promote(value.dtype, dtype).is_some_and(|common| common == dtype)
                    || value.dtype.is_float() == dtype.is_float() && dtype != DType::B1;
                if !fits {
                    let message = format!("{} is not stored as {} implicitly", dtype_name(value.dtype), dtype_name(dtype));
                    return Err(Box::new(
                        Diagnostic::error(id::PROMOTION, at.1, message)
                            .label(format!("this is {}", at.0.describe()))
                            .help("convert it with `tile.cast(x, dtype)`"),
                    ));
                }
                Ok(convert(value.clone(), dtype))
            }
            Item::Fixed(Fixed::Num(number)) => {
                if matches!(number, crate::number::Num::Float(value) if value.fract() != 0.0 || !value.is_finite())
                    && !dtype.is_float()
                {
                    return Err(Box::new(
                        Diagnostic::error(
                            id::PROMOTION,
                            at.1,
                            format!("{number} is not stored as {} implicitly", dtype_name(dtype)),
                        )
                        .label("this constant"),
                    ));
                }
                typed(at, dtype)
            }
            _ => Err(not_a_value(at)),
        }
    }

    /// `target op= value`.
    fn update(&mut self, target: &Expr, op: BinaryOp, value: &Expr, span: Span) -> Res<()> {
        if let ExprKind::Subscript(base, index) = &target.kind {
            let place = self.place(base, index, target.span)?;
            let left = (self.load(place.clone(), target.span), target.span);
            let right = (self.expr(value)?, value.span);
            let result = (self.operate(op, &left, &right, span)?, span);
            return self.store(place, &result);
        }
        let left = (self.expr(target)?, target.span);
        if let Some((Kind::List, _)) = sequence_of(&left.0) {
            return Err(changed_list(op, &left.0.describe(), span));
        }
        let right = (self.expr(value)?, value.span);
        let result = (self.operate(op, &left, &right, span)?, span);
        self.assign(target, &result)
    }

    fn branch(&mut self, test: &Expr, body: &[Stmt], orelse: &[Stmt], span: Span) -> Res<Flow> {
        let condition = self.test(test)?;
        if let Item::Fixed(value) = &condition.0 {
            return self.stmts(if value.truth(test.span)? { body } else { orelse });
        }
        let condition = truth(&condition)?;
        let outside = self.divergent;
        if !condition.uniform {
            self.divergent.get_or_insert(test.span);
        }
        self.branches += 1;
        let before = self.frame().names.clone();
        let (then, then_flow) = self.walk_block(body)?;
        let after_then = std::mem::replace(&mut self.frame().names, before);
        let (other, other_flow) = self.walk_block(orelse)?;
        let after_other = std::mem::take(&mut self.frame().names);
        self.branches -= 1;
        let falls = |flow| flow == Flow::Falls;
        self.meet([falls(then_flow).then_some(after_then), falls(other_flow).then_some(after_other)], span);
        // Threads that ended, or left a round of a loop, are not at what follows.
        self.divergent = outside.or(self.ended).or(self.strayed);
        self.out.push(Statement::If { test: condition, body: then, orelse: other });
        Ok(match (then_flow, other_flow) {
            (Flow::Falls, _) | (_, Flow::Falls) => Flow::Falls,
            (Flow::Jumps, Flow::Jumps) => Flow::Jumps,
            _ => Flow::Returns,
        })
    }

    /// `base[index]` as a place in memory.
    pub(super) fn place(&mut self, base: &Expr, index: &Expr, span: Span) -> Res<Place> {
        let at = (self.expr(base)?, base.span);
        let Item::Array(memory) = at.0 else {
            return Err(match &at.0 {
                Item::Shape(_) => Box::new(Diagnostic::error(id::IMMUTABLE, span, "the sizes of an array don't change")),
                other => Box::new(
                    Diagnostic::error(id::OPERAND_TYPE, base.span, "only arrays are indexed")
                        .label(format!("this is {}", other.describe())),
                ),
            });
        };
        let items = self.indices(index)?;
        self.element_at(memory, &items, span)
    }

    /// The element at an index, one entry an axis.
    pub(super) fn element_at(&mut self, memory: Memory, items: &[At], span: Span) -> Res<Place> {
        let shape = self.shape(memory);
        let (dtype, name) = self.array(memory);
        if items.len() != shape.len() {
            return Err(Box::new(
                Diagnostic::error(id::RANK, span, format!("`{name}` has {} axes and is indexed by {}", shape.len(), items.len()))
                    .label("one index an axis"),
            ));
        }
        let mut index = Vec::new();
        for (at, extent) in items.iter().zip(shape) {
            let value = match &at.0 {
                Item::Value(value) if value.dtype.is_integer() => value.clone(),
                Item::Fixed(value) if value.as_int().is_some() => {
                    let number = value.as_int().unwrap_or(0);
                    if number < 0 || extent.is_some_and(|extent| number >= i128::from(extent)) {
                        let size = extent.map_or("the array".to_string(), |extent| format!("an axis of {extent}"));
                        return Err(Box::new(
                            Diagnostic::error(id::VALUE_RANGE, at.1, format!("the index {number} is outside {size}"))
                                .label(format!("index of `{name}`")),
                        ));
                    }
                    self.constant_of(crate::number::Num::Int(number), at.1)?
                }
                other => {
                    return Err(Box::new(
                        Diagnostic::error(id::ARGUMENT_TYPE, at.1, "an index is an integer")
                            .label(format!("this is {}", other.describe())),
                    ));
                }
            };
            index.push(value);
        }
        Ok(Place { memory, dtype, index, order: MemoryOrder::Weak, scope: None, span })
    }
}
