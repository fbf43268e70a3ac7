//! Expressions.

use std::sync::Arc;

use indexmap::IndexMap;
use tessera_ir::{Axis, Diagnostic, ScheduleOp, Span, Type};

use super::data::{Pair, broadcast_axes, not_a_value};
use super::functions::Function as TileFunction;
use super::stmts::{reads, unsupported};
use super::{At, Data, Frame, Item, Res, Walk};
use crate::ast::{Arg, BoolOp, CompareOp, Expr, ExprKind, Function, UnaryOp};
use crate::diagnostics::id;
use crate::fixed::{self, Fixed, Outer};
use crate::written;

impl Walk<'_> {
    /// The value of an expression.
    pub(super) fn expr(&mut self, expr: &Expr) -> Res<Item> {
        let item = self.expr_kind(expr)?;
        self.span = expr.span;
        Ok(item)
    }

    fn at(&mut self, expr: &Expr) -> Res<At> {
        Ok((self.expr(expr)?, expr.span))
    }

    fn expr_kind(&mut self, expr: &Expr) -> Res<Item> {
        match &expr.kind {
            ExprKind::Name(name) => self.name(name, expr.span),
            ExprKind::Tuple(items) | ExprKind::List(items) => {
                let mut fixed = Vec::new();
                for item in items {
                    match self.expr(item)? {
                        Item::Fixed(value) => fixed.push(value),
                        other => {
                            return Err(Box::new(
                                Diagnostic::error(id::NOT_CONSTANT, item.span, "tuples hold values known when the kernel is compiled")
                                    .label(format!("this is {}", other.describe())),
                            ));
                        }
                    }
                }
                Ok(Item::Fixed(Fixed::Tuple(fixed.into())))
            }
            ExprKind::Attribute(base, member) => self.attribute(expr, base, &member.name, member.span),
            ExprKind::Unary(op, value) => self.unary(*op, value, expr.span),
            ExprKind::Binary(op, a, b) => {
                let (a, b) = (self.at(a)?, self.at(b)?);
                self.span = expr.span;
                self.binary(*op, &a, &b, expr.span)
            }
            ExprKind::BoolOp(op, items) => self.bool_op(*op, items),
            ExprKind::Compare(first, rest) => self.comparison(first, rest, expr.span),
            ExprKind::IfElse { test, body, orelse } => match self.at(test)? {
                (Item::Fixed(value), _) => self.expr(if value.truth() { body } else { orelse }),
                condition => {
                    let (a, b) = (self.at(body)?, self.at(orelse)?);
                    self.span = expr.span;
                    self.choose(&condition, &a, &b)
                }
            },
            ExprKind::Subscript(base, index) => match (self.at(base)?, self.expr(index)?) {
                ((Item::Shape(name), at), Item::Fixed(axis)) => self.size(&name, &axis, index.span, at),
                ((Item::Fixed(base), _), Item::Fixed(index)) => fixed::item(&base, &index, expr.span).map(Item::Fixed),
                ((base, at), _) => Err(Box::new(
                    Diagnostic::error(id::DIRECT_INDEX, expr.span, "whole operands are not indexed")
                        .also(at, format!("this is {}", base.describe()))
                        .help("a kernel that works by element or tile is written in another style, with `tile.thread_id()` or `cuda.tile`"),
                )),
            },
            ExprKind::Call(function, args) => self.call(expr, function, args),
            other => fixed::literal(other).map(Item::Fixed).map_err(|what| unsupported(expr.span, what)),
        }
    }

    fn name(&mut self, name: &str, span: Span) -> Res<Item> {
        if let Some(item) = self.frame().locals.get(name).cloned() {
            return match item {
                Item::Missing(missing) => Err(Box::new(
                    Diagnostic::error(missing.id, span, missing.message.clone())
                        .label("used here")
                        .also(missing.place, "decided here")
                        .help(missing.help.clone()),
                )),
                item => Ok(item),
            };
        }
        if self.frame().is_kernel
            && let Some(item) = self.params.get(name)
        {
            return Ok(item.clone());
        }
        match fixed::outer(self.file, &self.named, name).transpose()? {
            Some(Outer::Fixed(value)) => Ok(Item::Fixed(value)),
            Some(Outer::Function(function)) => Ok(Item::Function(function)),
            None => Err(Box::new(
                Diagnostic::error(id::UNKNOWN_NAME, span, format!("`{name}` is not defined"))
                    .label("not found in this kernel or file"),
            )),
        }
    }

    fn attribute(&mut self, expr: &Expr, base: &Expr, member: &str, at: Span) -> Res<Item> {
        if let Some(path) = self.file.path_of(expr).filter(|_| !self.is_local(base)) {
            if path.starts_with("tessera.tile.") {
                return Err(unknown_function(member, at));
            }
            return Ok(Item::Fixed(fixed::of_path(&path)));
        }
        match (self.at(base)?, member) {
            ((Item::Operand(name), _), "dtype") => Ok(Item::Fixed(Fixed::DType(self.memory[name.as_str()].operand.dtype))),
            ((Item::Data(data), _), "dtype") => Ok(Item::Fixed(Fixed::DType(data.dtype))),
            ((Item::Operand(name), _), "shape") => Ok(Item::Shape(name)),
            ((item, span), _) => Err(Box::new(
                Diagnostic::error(id::UNKNOWN_ATTRIBUTE, at, format!("there is no attribute `{member}`"))
                    .also(span, format!("this is {}", item.describe())),
            )),
        }
    }

    /// The size of an operand along an axis, counted as annotated.
    fn size(&mut self, name: &str, axis: &Fixed, span: Span, at: Span) -> Res<Item> {
        let memory = &self.memory[name];
        let (argument, axes) = (memory.argument, memory.operand.axes.clone());
        let dtype = memory.operand.index.dtype();
        let rank = axes.len() as i128;
        let position = axis.as_int().map(|axis| if axis < 0 { axis + rank } else { axis });
        let Some(position) = position.filter(|axis| (0..rank).contains(axis)) else {
            return Err(Box::new(
                Diagnostic::error(id::AXIS, span, format!("the axis is outside an operand with {rank} axes"))
                    .also(at, format!("the sizes of `{name}`")),
            ));
        };
        if let Axis::Fixed(extent) = axes[position as usize] {
            return Ok(Item::Fixed(Fixed::int(i128::from(extent))));
        }
        let types: Vec<Type> = axes.iter().map(|_| Type::scalar(dtype)).collect();
        let op = self.emit(ScheduleOp::GetTensorShape {}, &[&[argument]], types);
        self.sizes.push((name.to_string(), op));
        Ok(Item::Data(Data { value: self.func.ops[op].results[position as usize], dtype, axes: None }))
    }

    /// True when the leftmost name of a path is a variable or parameter.
    fn is_local(&mut self, expr: &Expr) -> bool {
        match &expr.kind {
            ExprKind::Name(name) => {
                let is_param = self.frame().is_kernel && self.params.contains_key(name);
                is_param || self.frame().locals.contains_key(name)
            }
            ExprKind::Attribute(base, _) => self.is_local(base),
            _ => false,
        }
    }

    fn unary(&mut self, op: UnaryOp, value: &Expr, span: Span) -> Res<Item> {
        let at = self.at(value)?;
        self.span = span;
        match (&at.0, op) {
            (Item::Fixed(value), _) => fixed::unary(op, value, span).map(Item::Fixed),
            (Item::Data(_), UnaryOp::Neg) => {
                self.arithmetic("-", &at)?;
                self.call_unary(TileFunction::Neg, &at)
            }
            (Item::Data(_), UnaryOp::Pos) => Ok(at.0),
            (Item::Data(_), UnaryOp::Not | UnaryOp::Invert) => {
                let truth = match (&at.0, op) {
                    (Item::Data(data), UnaryOp::Not) if data.axes.is_some() => return Err(elementwise_condition(&at)),
                    (Item::Data(data), UnaryOp::Invert) if data.dtype != tessera_types::DType::B1 => {
                        return Err(Box::new(
                            Diagnostic::error(id::OPERAND_TYPE, span, "`~` takes truth values here")
                                .also(at.1, format!("this is {}", at.0.describe())),
                        ));
                    }
                    _ => self.truth(&at)?,
                };
                self.pair(Pair::Xor, "not", &(Item::Data(truth), at.1), &(Item::Fixed(Fixed::bool(true)), span), span)
            }
            (other, _) => Err(not_a_value(other, at.1)),
        }
    }

    fn bool_op(&mut self, op: BoolOp, items: &[Expr]) -> Res<Item> {
        let stops = op == BoolOp::Or;
        let mut run_time: Option<At> = None;
        let mut last = Item::Fixed(Fixed::bool(!stops));
        for item in items {
            let at = self.at(item)?;
            match &at.0 {
                Item::Fixed(value) => {
                    let truth = value.truth();
                    if run_time.is_none() {
                        last = at.0.clone();
                    }
                    if truth == stops {
                        // Nothing evaluated so far has an effect, so the known value decides.
                        return Ok(if run_time.is_some() { Item::Fixed(Fixed::bool(stops)) } else { last });
                    }
                }
                Item::Data(data) if data.axes.is_some() => return Err(elementwise_condition(&at)),
                Item::Data(_) => {
                    let truth = (Item::Data(self.truth(&at)?), at.1);
                    run_time = Some(match run_time {
                        None => truth,
                        Some(before) => {
                            let pair = if stops { Pair::Or } else { Pair::And };
                            let span = before.1.to(at.1);
                            (self.pair(pair, if stops { "or" } else { "and" }, &before, &truth, span)?, span)
                        }
                    });
                }
                other => return Err(not_a_value(other, at.1)),
            }
        }
        Ok(run_time.map_or(last, |(item, _)| item))
    }

    fn comparison(&mut self, first: &Expr, rest: &[(CompareOp, Expr)], span: Span) -> Res<Item> {
        let mut left = self.at(first)?;
        let mut all: Option<Item> = None;
        for (op, right) in rest {
            let right = self.at(right)?;
            self.span = span;
            let one = self.compare(*op, &left, &right, span)?;
            all = Some(match all {
                None => one,
                Some(before) => match (&before, &one) {
                    (Item::Fixed(a), Item::Fixed(b)) => Item::Fixed(Fixed::bool(a.truth() && b.truth())),
                    _ => self.pair(Pair::And, "and", &(before, span), &(one, span), span)?,
                },
            });
            left = right;
        }
        Ok(all.unwrap_or(Item::Fixed(Fixed::bool(true))))
    }

    fn call(&mut self, expr: &Expr, function: &Expr, args: &[Arg]) -> Res<Item> {
        if let ExprKind::Attribute(base, member) = &function.kind {
            if !self.is_local(base)
                && let Some(path) = self.file.path_of(function)
            {
                if let Some(name) = path.strip_prefix("tessera.tile.") {
                    let Some(function) = TileFunction::find(name) else { return Err(unknown_function(name, member.span)) };
                    return self.call_tile(function, args, expr.span);
                }
                return Err(Box::new(
                    Diagnostic::error(id::UNKNOWN_NAME, function.span, format!("`{path}` is not available here"))
                        .help("functions over whole operands are members of `tile`"),
                ));
            }
            let receiver = self.at(base)?;
            return match &receiver.0 {
                Item::Fixed(value) => {
                    let args = self.fixed_args(args)?;
                    fixed::method(value, member, &args, expr.span).map(Item::Fixed)
                }
                Item::Data(_) if member.name == "astype" => {
                    let bound = written::arguments("astype", "dtype, /", args, expr.span)?;
                    let dtype = self.dtype(bound[0][0])?;
                    self.cast(&receiver, dtype)
                }
                other => Err(Box::new(
                    Diagnostic::error(id::UNKNOWN_ATTRIBUTE, member.span, format!("there is no method `{}`", member.name))
                        .also(receiver.1, format!("this is {}", other.describe())),
                )),
            };
        }
        if let ExprKind::Name(name) = &function.kind {
            let is_builtin = !self.is_local(function) && !self.file.globals.contains_key(name);
            if is_builtin && matches!(name.as_str(), "int" | "float" | "bool" | "str" | "len" | "abs" | "min" | "max") {
                let fixed = self.fixed_args(args)?;
                return fixed::builtin(name, &fixed, expr.span)
                    .unwrap_or_else(|| Err(unsupported(expr.span, "this function")))
                    .map(Item::Fixed);
            }
        }
        match self.expr(function)? {
            Item::Function(callee) => self.inline(&callee, args, expr.span),
            other => Err(Box::new(
                Diagnostic::error(id::NOT_CALLABLE, function.span, "this is not a function")
                    .label(format!("it is {}", other.describe())),
            )),
        }
    }

    fn fixed_args(&mut self, args: &[Arg]) -> Res<Vec<Fixed>> {
        let mut fixed = Vec::new();
        for arg in args {
            match self.expr(&arg.value)? {
                Item::Fixed(value) if arg.keyword.is_none() => fixed.push(value),
                other => {
                    return Err(Box::new(
                        Diagnostic::error(id::NOT_CONSTANT, arg.value.span, "this must be known when the kernel is compiled")
                            .label(format!("this is {}", other.describe())),
                    ));
                }
            }
        }
        Ok(fixed)
    }

    /// Calls a function of the file: its body is walked in place.
    fn inline(&mut self, callee: &Arc<Function>, args: &[Arg], call: Span) -> Res<Item> {
        self.bounded(call)?;
        let bound = written::call(callee, args, call, self.frames.len(), unsupported)?;
        let mut locals = IndexMap::new();
        for (param, given) in callee.params.iter().zip(bound) {
            let item = match (given.first(), &param.default) {
                (Some(expr), _) => self.expr(expr)?,
                (None, Some(default)) => Item::Fixed(fixed::evaluate(self.file, &|_| None, default)?),
                (None, None) => continue,
            };
            locals.insert(param.name.name.clone(), item);
        }
        self.frames.push(Frame { locals, reads: reads(&callee.body), is_kernel: false });
        let returned = self.body(&callee.body);
        self.frames.pop();
        Ok(returned?.map_or(Item::Fixed(Fixed::None), |(item, _)| item))
    }

    /// `tile.where` and the conditional expression.
    pub(super) fn choose(&mut self, condition: &At, a: &At, b: &At) -> Res<Item> {
        let chosen = self.truth(condition)?;
        for at in [a, b] {
            self.arithmetic("where", at)?;
        }
        let (x, y) = self.meet(a, b)?;
        let axes = broadcast_axes(&chosen, &x, condition, a)?;
        let (chosen, x, y) = match axes {
            Some(axes) => (self.spread(&chosen, &axes), self.spread(&x, &axes), self.spread(&y, &axes)),
            None => (chosen, x, y),
        };
        Ok(Item::Data(self.data(ScheduleOp::Select {}, &[chosen.value, x.value, y.value], x.dtype, x.axes)))
    }
}

fn elementwise_condition(at: &At) -> Box<Diagnostic> {
    Box::new(
        Diagnostic::error(id::CONDITION, at.1, "`and`, `or` and `not` take truth values and scalars")
            .label(format!("this is {}", at.0.describe()))
            .help("combine by element with `&`, `|` and `~`"),
    )
}

fn unknown_function(name: &str, span: Span) -> Box<Diagnostic> {
    Box::new(
        Diagnostic::error(id::UNKNOWN_ATTRIBUTE, span, format!("`tile` has no `{name}`"))
            .label("not a function over whole operands")
            .help(format!("there are {}", TileFunction::names())),
    )
}
