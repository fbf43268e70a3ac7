//! Statements: assignments, branches, calls for their effect.

use std::rc::Rc;

use indexmap::IndexMap;
use tessera_ir::{Block, Diagnostic, OpKind, ScheduleOp, Span};
use tessera_types::DType;

use super::{At, Data, Item, Missing, Res, Walk, data_type};
use crate::ast::{Expr, ExprKind, Stmt, StmtKind};
use crate::diagnostics::id;
use crate::fixed::Fixed;
use crate::lower::changed_list;
use crate::promote::{WithLiteral, promote_literal};
use crate::scopes::Scopes;

/// Names read in a body, with the offsets where; bodies have no loops, so what stands later runs later.
pub(super) fn reads(stmts: &[Stmt]) -> Vec<(String, u32)> {
    let mut found = Vec::new();
    stmts.iter().for_each(|stmt| read_stmt(stmt, &mut found));
    found
}

fn read_stmt(stmt: &Stmt, found: &mut Vec<(String, u32)>) {
    match &stmt.kind {
        StmtKind::Assign(targets, value) => {
            targets.iter().filter(|target| !matches!(target.kind, ExprKind::Name(_))).for_each(|target| read_expr(target, found));
            read_expr(value, found);
        }
        StmtKind::AugAssign(target, _, value) => {
            read_expr(target, found);
            read_expr(value, found);
        }
        StmtKind::AnnAssign(_, _, value) | StmtKind::Return(value) => value.iter().for_each(|value| read_expr(value, found)),
        StmtKind::Expr(value) => read_expr(value, found),
        StmtKind::If { test, body, orelse } => {
            read_expr(test, found);
            body.iter().chain(orelse).for_each(|stmt| read_stmt(stmt, found));
        }
        StmtKind::Assert(test, message) => {
            read_expr(test, found);
            message.iter().for_each(|message| read_expr(message, found));
        }
        StmtKind::For { .. }
        | StmtKind::While { .. }
        | StmtKind::Break
        | StmtKind::Continue
        | StmtKind::Pass
        | StmtKind::Raise(_)
        | StmtKind::With { .. }
        | StmtKind::Class(_)
        | StmtKind::Import(_)
        | StmtKind::Unsupported(_) => {}
        // A nested function reads when it is called, which may be anywhere behind its definition.
        StmtKind::Function(function) => {
            function.params.iter().filter_map(|param| param.default.as_ref()).for_each(|default| read_expr(default, found));
            let mut inside = reads(&function.body);
            inside.retain(|(name, _)| !function.names.own.contains(name));
            found.extend(inside.into_iter().map(|(name, _)| (name, u32::MAX)));
        }
    }
}

fn read_expr(expr: &Expr, found: &mut Vec<(String, u32)>) {
    let mut visit = |expr: &Expr| read_expr(expr, found);
    match &expr.kind {
        ExprKind::Name(name) => found.push((name.clone(), expr.span.start)),
        ExprKind::Tuple(items) | ExprKind::List(items) | ExprKind::BoolOp(_, items) => items.iter().for_each(visit),
        ExprKind::Unary(_, inner) | ExprKind::Attribute(inner, _) | ExprKind::Starred(inner) => visit(inner),
        ExprKind::Binary(_, a, b) | ExprKind::Subscript(a, b) => {
            visit(a);
            visit(b);
        }
        ExprKind::Compare(first, rest) => {
            visit(first);
            rest.iter().for_each(|(_, item)| visit(item));
        }
        ExprKind::Call(function, args) => {
            visit(function);
            args.iter().for_each(|arg| visit(&arg.value));
        }
        ExprKind::IfElse { test, body, orelse } => [test, body, orelse].into_iter().for_each(|part| visit(part)),
        ExprKind::Int(_)
        | ExprKind::Float(_)
        | ExprKind::Bool(_)
        | ExprKind::Str(_)
        | ExprKind::FString(_)
        | ExprKind::None
        | ExprKind::Ellipsis
        | ExprKind::DoubleStarred(_)
        | ExprKind::Yield(_)
        | ExprKind::Dict(_)
        | ExprKind::Slice(_)
        | ExprKind::Lambda(_)
        | ExprKind::Comprehension { .. }
        | ExprKind::Unsupported(_) => {}
    }
}

/// A construct that whole-operand kernels don't have.
pub(super) fn unsupported(span: Span, what: &str) -> Box<Diagnostic> {
    Box::new(
        Diagnostic::error(id::UNSUPPORTED, span, format!("a kernel over whole operands can't use {what}"))
            .help("write loops over tiles in the block style, with `import cuda.tile as ct`"),
    )
}

impl Walk<'_> {
    /// The statements of a function; yields what it returns.
    pub(super) fn body(&mut self, stmts: &[Stmt]) -> Res<Option<At>> {
        for (position, stmt) in stmts.iter().enumerate() {
            if let StmtKind::Return(value) = &stmt.kind {
                if position + 1 < stmts.len() {
                    return Err(misplaced_return(stmt.span));
                }
                return match value {
                    None => Ok(None),
                    Some(value) if self.frame().scope.is_kernel() && !matches!(value.kind, ExprKind::None) => Err(Box::new(
                        Diagnostic::error(id::RETURN_VALUE, value.span, "a kernel returns no value")
                            .help("write results with `tile.store`"),
                    )),
                    Some(value) => Ok(Some((self.expr(value)?, value.span))),
                };
            }
            self.stmt(stmt)?;
        }
        Ok(None)
    }

    fn stmts(&mut self, stmts: &[Stmt]) -> Res<()> {
        stmts.iter().try_for_each(|stmt| self.stmt(stmt))
    }

    fn stmt(&mut self, stmt: &Stmt) -> Res<()> {
        self.bounded(stmt.span)?;
        self.span = stmt.span;
        match &stmt.kind {
            StmtKind::Assign(targets, value) => {
                let item = self.expr(value)?;
                for target in targets {
                    self.assign(target, item.clone())?;
                }
                Ok(())
            }
            StmtKind::AnnAssign(target, _, Some(value)) => {
                let item = self.expr(value)?;
                self.assign(target, item)
            }
            StmtKind::AugAssign(target, op, value) => {
                let left = (self.expr(target)?, target.span);
                if let Item::Fixed(Fixed::List(_)) = &left.0 {
                    return Err(changed_list(*op, &left.0.describe(), stmt.span));
                }
                let right = (self.expr(value)?, value.span);
                self.span = stmt.span;
                let item = self.binary(*op, &left, &right, stmt.span)?;
                self.assign(target, item)
            }
            StmtKind::Expr(value) => match &value.kind {
                ExprKind::Str(_) | ExprKind::Ellipsis => Ok(()),
                _ => self.expr(value).map(drop),
            },
            StmtKind::If { test, body, orelse } => self.branch(test, body, orelse, stmt.span),
            StmtKind::Pass | StmtKind::AnnAssign(_, _, None) => Ok(()),
            StmtKind::Return(_) => Err(misplaced_return(stmt.span)),
            StmtKind::Assert(test, message) => self.assertion(test, message.as_ref()),
            StmtKind::Function(function) => {
                crate::written::undecorated(self.file, function, crate::file::Moment::end(stmt.span.source))?;
                let scope = Some(self.frame().scope.serial);
                let item = self.closure(function, scope, |walk, default| walk.expr(default))?;
                self.frame().locals.insert(function.name.name.clone(), item);
                Ok(())
            }
            StmtKind::For { .. } => Err(unsupported(stmt.span, "`for`")),
            StmtKind::While { .. } => Err(unsupported(stmt.span, "`while`")),
            StmtKind::Break | StmtKind::Continue => Err(unsupported(stmt.span, "jumps")),
            StmtKind::Raise(_) => Err(unsupported(stmt.span, "`raise`")),
            StmtKind::Import(_) => Err(unsupported(stmt.span, "`import`")),
            StmtKind::With { .. } => Err(unsupported(stmt.span, "`with`")),
            StmtKind::Class(_) => Err(unsupported(stmt.span, "`class`")),
            StmtKind::Unsupported(what) => Err(unsupported(stmt.span, what)),
        }
    }

    fn assertion(&mut self, test: &Expr, message: Option<&Expr>) -> Res<()> {
        match self.expr(test)? {
            Item::Fixed(value) if value.truth(test.span)? => Ok(()),
            Item::Fixed(_) => {
                let text = match message.map(|message| self.expr(message)).transpose()? {
                    Some(Item::Fixed(Fixed::Str(text))) => text.to_string(),
                    _ => "the condition does not hold".to_string(),
                };
                Err(Box::new(Diagnostic::error(id::STATIC_ASSERT, test.span, format!("assertion failed: {text}"))))
            }
            other => Err(Box::new(
                Diagnostic::error(
                    id::NOT_CONSTANT,
                    test.span,
                    "an assertion here needs a value known when the kernel is compiled",
                )
                .label(format!("this is {}", other.describe())),
            )),
        }
    }

    fn assign(&mut self, target: &Expr, item: Item) -> Res<()> {
        match &target.kind {
            ExprKind::Name(name) => {
                if let Item::Data(data) = &item {
                    let slot = &mut self.func.values[data.value].name;
                    slot.get_or_insert_with(|| name.clone());
                }
                self.frame().locals.insert(name.clone(), item);
                Ok(())
            }
            ExprKind::Tuple(targets) | ExprKind::List(targets) => match &item {
                Item::Fixed(Fixed::Tuple(items) | Fixed::List(items)) if items.len() == targets.len() => {
                    targets.iter().zip(items.iter()).try_for_each(|(target, item)| self.assign(target, Item::Fixed(item.clone())))
                }
                _ => Err(Box::new(
                    Diagnostic::error(
                        id::UNPACK,
                        target.span,
                        format!("{} names are assigned from something else", targets.len()),
                    )
                    .label(format!("the value is {}", item.describe())),
                )),
            },
            ExprKind::Subscript(..) => Err(Box::new(
                Diagnostic::error(id::IMMUTABLE, target.span, "whole operands are not assigned by element")
                    .help("write results with `tile.store(C, value)`"),
            )),
            _ => Err(Box::new(Diagnostic::error(id::IMMUTABLE, target.span, "only variables are assigned"))),
        }
    }

    /// An `if`: decided now where the condition is known, an operation where it is a run-time scalar.
    fn branch(&mut self, test: &Expr, body: &[Stmt], orelse: &[Stmt], whole: Span) -> Res<()> {
        let condition = self.test(test)?;
        let condition = match &condition.0 {
            Item::Fixed(value) => return self.stmts(if value.truth(test.span)? { body } else { orelse }),
            Item::Data(data) if data.axes.is_none() => self.truth(&condition)?,
            other => {
                return Err(Box::new(
                    Diagnostic::error(id::CONDITION, test.span, "a condition is a truth value or a scalar")
                        .label(format!("this is {}", other.describe()))
                        .help("choose by element with `tile.where(condition, x, y)`"),
                ));
            }
        };
        let before = self.frame().locals.clone();
        let blocks = [self.func.new_block(), self.func.new_block()];
        let outside = self.block;
        let mut after: Vec<IndexMap<String, Item>> = Vec::new();
        self.branches += 1;
        for (block, stmts) in blocks.into_iter().zip([body, orelse]) {
            self.block = block;
            let walked = self.stmts(stmts);
            let locals = std::mem::replace(&mut self.frame().locals, before.clone());
            walked?;
            after.push(locals);
        }
        self.branches -= 1;
        let names: Vec<String> =
            after[0].keys().chain(after[1].keys().filter(|name| !after[0].contains_key(*name))).cloned().collect();
        let is_kernel = self.frame().scope.is_kernel();
        let mut leaving: Vec<(String, Data, Data)> = Vec::new();
        for name in names {
            // A parameter that one branch assigns keeps its value in the other.
            let own = self.params.get(&name).filter(|_| is_kernel);
            let (a, b) = (after[0].get(&name).or(own).cloned(), after[1].get(&name).or(own).cloned());
            let (a, b) = (a.as_ref(), b.as_ref());
            if let (Some(a), Some(b)) = (a, b)
                && same(a, b)
            {
                self.frame().locals.insert(name, a.clone());
                continue;
            }
            let read_later = self.frame().reads.iter().any(|(read, at)| *read == name && *at >= whole.end);
            let item = match (a, b) {
                _ if !read_later => missing(id::MAYBE_UNDEFINED, &name, whole),
                (Some(a), Some(b)) => match self.join(a, b, blocks) {
                    Some((a, b)) => {
                        leaving.push((name, a, b));
                        continue;
                    }
                    None => Item::Missing(Rc::new(Missing {
                        id: id::PATH_TYPE,
                        message: format!("`{name}` is {} on one path and {} on the other", a.describe(), b.describe()),
                        place: whole,
                        help: format!("give `{name}` one type in both branches"),
                    })),
                },
                _ => missing(id::MAYBE_UNDEFINED, &name, whole),
            };
            self.frame().locals.insert(name, item);
        }
        let pairs: Vec<(Data, Data)> = leaving.iter().map(|(_, a, b)| (a.clone(), b.clone())).collect();
        self.block = outside;
        let results = self.emit_if(&condition, blocks, &pairs, whole);
        for ((name, ..), data) in leaving.into_iter().zip(results) {
            self.func.values[data.value].name = Some(name.clone());
            self.frame().locals.insert(name, Item::Data(data));
        }
        Ok(())
    }

    /// Ends two blocks with the values that they yield and emits the `if` over them.
    pub(super) fn emit_if(&mut self, condition: &Data, blocks: [Block; 2], pairs: &[(Data, Data)], span: Span) -> Vec<Data> {
        let outside = self.block;
        for (position, block) in blocks.into_iter().enumerate() {
            let values: Vec<_> = pairs.iter().map(|(a, b)| if position == 0 { a.value } else { b.value }).collect();
            self.block = block;
            self.emit(ScheduleOp::Yield {}, &[&values], []);
        }
        self.block = outside;
        self.span = span;
        let types: Vec<_> = pairs.iter().map(|(a, _)| data_type(a.axes.as_deref(), a.dtype)).collect();
        let mut builder = tessera_ir::Builder { func: &mut self.func, block: outside, span };
        let op = builder.op_with_regions(OpKind::Schedule(ScheduleOp::If {}), &[&[condition.value]], types, blocks);
        let results = self.func.ops[op].results.clone();
        pairs.iter().zip(results).map(|((a, _), value)| Data { value, ..a.clone() }).collect()
    }

    /// Both values of a variable as one type, where they have one; a number takes the other's type.
    pub(super) fn join(&mut self, a: &Item, b: &Item, blocks: [Block; 2]) -> Option<(Data, Data)> {
        match (a, b) {
            (Item::Data(a), Item::Data(b)) if a.dtype == b.dtype && a.axes == b.axes => Some((a.clone(), b.clone())),
            (Item::Fixed(number @ Fixed::Num(_)), Item::Data(data)) => {
                self.number_like(number, data, blocks[0]).map(|number| (number, data.clone()))
            }
            (Item::Data(data), Item::Fixed(number @ Fixed::Num(_))) => {
                self.number_like(number, data, blocks[1]).map(|number| (data.clone(), number))
            }
            (Item::Fixed(Fixed::Num(x)), Item::Fixed(Fixed::Num(y))) => {
                let dtype = |number| crate::promote::literal_dtype(number);
                let common = dtype(*x).filter(|own| dtype(*y) == Some(*own))?;
                let x = self.number_in(*x, common, blocks[0])?;
                let y = self.number_in(*y, common, blocks[1])?;
                Some((x, y))
            }
            _ => None,
        }
    }

    fn number_like(&mut self, number: &Fixed, like: &Data, block: Block) -> Option<Data> {
        let Fixed::Num(number) = number else { return None };
        match promote_literal(like.dtype, *number, false) {
            WithLiteral::Common(common) if common == like.dtype => {}
            WithLiteral::Common(_) | WithLiteral::OutOfRange => return None,
        }
        let outside = std::mem::replace(&mut self.block, block);
        let data = self.number(*number, like.dtype).map(|scalar| match &like.axes {
            Some(axes) => self.spread(&scalar, axes),
            None => scalar,
        });
        self.block = outside;
        data
    }

    fn number_in(&mut self, number: crate::number::Num, dtype: DType, block: Block) -> Option<Data> {
        let outside = std::mem::replace(&mut self.block, block);
        let data = self.number(number, dtype);
        self.block = outside;
        data
    }
}

fn misplaced_return(span: Span) -> Box<Diagnostic> {
    Box::new(
        Diagnostic::error(id::MISPLACED, span, "`return` stands before the end of the function")
            .help("a function over whole operands ends with its only `return`"),
    )
}

fn missing(id: &'static str, name: &str, place: Span) -> Item {
    Item::Missing(Rc::new(Missing {
        id,
        message: format!("`{name}` is not assigned on every path that leads here"),
        place,
        help: format!("assign `{name}` before the `if` or in both branches"),
    }))
}

/// True when both are one value.
fn same(a: &Item, b: &Item) -> bool {
    match (a, b) {
        (Item::Data(a), Item::Data(b)) => a.value == b.value,
        (Item::Fixed(a), Item::Fixed(b)) => a == b,
        (Item::Operand(a), Item::Operand(b)) | (Item::Shape(a), Item::Shape(b)) => a == b,
        (Item::Context, Item::Context) => true,
        (Item::Function(a), Item::Function(b)) => {
            let default = |pair: (&Option<Item>, &Option<Item>)| match pair {
                (Some(a), Some(b)) => same(a, b),
                (a, b) => a.is_none() && b.is_none(),
            };
            std::sync::Arc::ptr_eq(&a.function, &b.function)
                && a.scope == b.scope
                && a.defaults.iter().zip(&b.defaults).all(default)
        }
        (Item::Missing(a), Item::Missing(b)) => Rc::ptr_eq(a, b),
        _ => false,
    }
}
