//! Expressions.

use std::rc::Rc;

use indexmap::IndexMap;
use tessera_ir::{Axis, Block, Diagnostic, Effects, ScheduleOp, Span, Type};
use tessera_types::DType;

use super::data::{Pair, broadcast_axes, not_a_value};
use super::functions::Function as TileFunction;
use super::stmts::unsupported;
use super::{At, Data, Frame, Item, Res, Walk};
use crate::ast::{Arg, BoolOp, CompareOp, Expr, ExprKind, UnaryOp};
use crate::builtins::{Builtin, Space};
use crate::diagnostics::id;
use crate::file::{Moment, ParsedFile};
use crate::fixed::{self, Fixed};
use crate::number::Num;
use crate::promote::int_range;
use crate::scopes::{Closure, Scope, Scopes};
use crate::written;

impl Scopes for Walk<'_> {
    type Item = Item;

    const KERNEL: &'static str = "a kernel over whole operands";

    fn file(&self) -> &ParsedFile {
        self.file
    }

    fn named(&self) -> &IndexMap<String, Fixed> {
        &self.named
    }

    fn scopes(&self) -> impl ExactSizeIterator<Item = &Scope> {
        self.frames.iter().map(|frame| &frame.scope)
    }

    fn parameter(&self, name: &str) -> Option<&Item> {
        self.params.get(name)
    }

    fn is_bound(&self, at: usize, name: &str) -> bool {
        self.frames[at].locals.contains_key(name)
    }

    fn bound(&mut self, at: usize, name: &str, span: Span) -> Res<Option<Item>> {
        match self.frames[at].locals.get(name) {
            Some(Item::Missing(missing)) => Err(Box::new(
                Diagnostic::error(missing.id, span, missing.message.clone())
                    .label("used here")
                    .also(missing.place, "decided here")
                    .help(missing.help.clone()),
            )),
            item => Ok(item.cloned()),
        }
    }

    fn of_fixed(value: Fixed) -> Item {
        Item::Fixed(value)
    }

    fn of_function(closure: Rc<Closure<Item>>) -> Item {
        Item::Function(closure)
    }
}

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
                let is_tuple = matches!(expr.kind, ExprKind::Tuple(_));
                Ok(Item::Fixed(if is_tuple { Fixed::Tuple(fixed.into()) } else { Fixed::List(fixed.into()) }))
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
            ExprKind::IfElse { test, body, orelse } => match self.test(test)? {
                (Item::Fixed(value), at) => self.expr(if value.truth(at)? { body } else { orelse }),
                condition => {
                    let (a, first) = self.apart(|walk| walk.at(body))?;
                    let (b, second) = self.apart(|walk| walk.at(orelse))?;
                    self.either(&condition, [first, second], &a, &b, expr.span)
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

    /// Evaluates something into a block of its own.
    fn apart<T>(&mut self, work: impl FnOnce(&mut Self) -> Res<T>) -> Res<(T, Block)> {
        let block = self.func.new_block();
        let outside = std::mem::replace(&mut self.block, block);
        let result = work(self);
        self.block = outside;
        Ok((result?, block))
    }

    /// True when nothing in the block can fail, reads memory or is seen from outside.
    fn is_pure(&self, block: Block) -> bool {
        self.func.blocks[block].ops.iter().all(|&op| {
            let data = &self.func.ops[op];
            data.regions.is_empty() && data.row().effects == Effects::Pure
        })
    }

    /// One of two values that stand in blocks of their own: by a selection where computing both has no effect, else by a branch.
    fn either(&mut self, condition: &At, blocks: [Block; 2], a: &At, b: &At, span: Span) -> Res<Item> {
        self.span = span;
        if self.is_pure(blocks[0]) && self.is_pure(blocks[1]) {
            for block in blocks {
                let ops = std::mem::take(&mut self.func.blocks[block].ops);
                self.func.blocks[self.block].ops.extend(ops);
            }
            return self.choose(condition, a, b);
        }
        if matches!(&condition.0, Item::Data(data) if data.axes.is_some()) {
            return Err(elementwise_condition(condition));
        }
        let truth = self.truth(condition)?;
        match self.join(&a.0, &b.0, blocks) {
            Some(pair) => Ok(Item::Data(self.emit_if(&truth, blocks, &[pair], span).remove(0))),
            None => Err(Box::new(
                Diagnostic::error(id::PATH_TYPE, span, "this value has different types on the two paths")
                    .also(a.1, format!("this is {}", a.0.describe()))
                    .also(b.1, format!("this is {}", b.0.describe()))
                    .help("make both of one type"),
            )),
        }
    }

    fn attribute(&mut self, expr: &Expr, base: &Expr, member: &str, at: Span) -> Res<Item> {
        if let Some(definition) = self.file.elsewhere(expr).filter(|_| !self.is_local(base)) {
            return self.defined(definition, at);
        }
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

    fn unary(&mut self, op: UnaryOp, value: &Expr, span: Span) -> Res<Item> {
        let at = if op == UnaryOp::Not { self.test(value)? } else { self.at(value)? };
        self.span = span;
        match (&at.0, op) {
            (Item::Fixed(value), _) => fixed::unary(op, value, span).map(Item::Fixed),
            (Item::Data(_), UnaryOp::Neg) => {
                self.arithmetic("-", &at)?;
                self.call_unary(TileFunction::Neg, &at)
            }
            (Item::Data(_), UnaryOp::Pos) => Ok(at.0),
            (Item::Data(data), UnaryOp::Invert) if data.dtype.is_integer() => {
                let all = if data.dtype.is_signed() { -1 } else { int_range(data.dtype).1 };
                self.pair(Pair::Xor, "~", &at, &(Item::Fixed(Fixed::int(all)), span), span)
            }
            (Item::Data(_), UnaryOp::Not | UnaryOp::Invert) => {
                let truth = match (&at.0, op) {
                    (Item::Data(data), UnaryOp::Not) if data.axes.is_some() => return Err(elementwise_condition(&at)),
                    (Item::Data(data), UnaryOp::Invert) if data.dtype != tessera_types::DType::B1 => {
                        return Err(Box::new(
                            Diagnostic::error(id::OPERAND_TYPE, span, "`~` takes integers and truth values")
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

    /// The truth of an expression where nothing else of it is asked for, as behind `if`: a compile-time value, or data.
    pub(super) fn test(&mut self, expr: &Expr) -> Res<At> {
        match &expr.kind {
            ExprKind::BoolOp(op, items) => Ok((self.bool_test(*op, items)?, expr.span)),
            _ => self.at(expr),
        }
    }

    fn bool_test(&mut self, op: BoolOp, items: &[Expr]) -> Res<Item> {
        let Some((first, rest)) = items.split_first() else { return Ok(Item::Fixed(Fixed::bool(op == BoolOp::And))) };
        let left = self.test(first)?;
        if rest.is_empty() {
            return Ok(left.0);
        }
        self.and_then(op, &left, |walk| Ok((walk.bool_test(op, rest)?, rest[0].span)))
    }

    /// `left and right`, `left or right` as truth values: the right one is computed only where it matters, unless that has no effect.
    fn and_then(&mut self, op: BoolOp, left: &At, right: impl FnOnce(&mut Self) -> Res<At>) -> Res<Item> {
        let stops = op == BoolOp::Or;
        match &left.0 {
            Item::Fixed(value) if value.truth(left.1)? == stops => return Ok(left.0.clone()),
            Item::Fixed(_) => return right(self).map(|(item, _)| item),
            Item::Data(data) if data.axes.is_some() => return Err(elementwise_condition(left)),
            Item::Data(_) => {}
            other => return Err(not_a_value(other, left.1)),
        }
        let condition = self.truth(left)?;
        let (right, block) = self.apart(|walk| {
            let right = right(walk)?;
            match &right.0 {
                Item::Fixed(value) => Ok((Item::Fixed(Fixed::bool(value.truth(right.1)?)), right.1)),
                Item::Data(data) if data.axes.is_some() => Err(elementwise_condition(&right)),
                Item::Data(_) => Ok((Item::Data(walk.truth(&right)?), right.1)),
                other => Err(not_a_value(other, right.1)),
            }
        })?;
        let span = left.1.to(right.1);
        let condition = (Item::Data(condition), left.1);
        if self.is_pure(block) {
            let ops = std::mem::take(&mut self.func.blocks[block].ops);
            self.func.blocks[self.block].ops.extend(ops);
            let (pair, word) = if stops { (Pair::Or, "or") } else { (Pair::And, "and") };
            return self.pair(pair, word, &condition, &right, span);
        }
        let decided = (Item::Fixed(Fixed::bool(stops)), left.1);
        let other = self.func.new_block();
        let (blocks, [a, b]) = if stops { ([other, block], [&decided, &right]) } else { ([block, other], [&right, &decided]) };
        self.either(&condition, blocks, a, b, span)
    }

    /// `a and b`, `a or b`, which yield one of their operands.
    fn bool_op(&mut self, op: BoolOp, items: &[Expr]) -> Res<Item> {
        let Some((first, rest)) = items.split_first() else { return Ok(Item::Fixed(Fixed::None)) };
        let left = self.at(first)?;
        if rest.is_empty() {
            return Ok(left.0);
        }
        let stops = op == BoolOp::Or;
        let data = match &left.0 {
            Item::Fixed(value) if value.truth(left.1)? == stops => return Ok(left.0),
            Item::Fixed(_) => return self.bool_op(op, rest),
            Item::Data(data) if data.axes.is_some() => return Err(elementwise_condition(&left)),
            Item::Data(data) => data.clone(),
            other => return Err(not_a_value(other, left.1)),
        };
        if data.dtype == DType::B1 {
            return self.and_then(op, &left, |walk| {
                let right = (walk.bool_op(op, rest)?, rest[0].span);
                match &right.0 {
                    Item::Data(data) if data.dtype == DType::B1 => Ok(right),
                    Item::Fixed(Fixed::Num(Num::Bool(_))) => Ok(right),
                    _ => Err(different_operands(&left, &right)),
                }
            });
        }
        let (right, block) = self.apart(|walk| Ok((walk.bool_op(op, rest)?, rest[0].span)))?;
        let fits = match &right.0 {
            Item::Data(own) => own.dtype == data.dtype,
            Item::Fixed(Fixed::Num(Num::Int(_))) => true,
            Item::Fixed(Fixed::Num(Num::Float(_))) => data.dtype.is_float(),
            _ => false,
        };
        if !fits {
            return Err(different_operands(&left, &right));
        }
        let other = self.func.new_block();
        let (blocks, [a, b]) = if stops { ([other, block], [&left, &right]) } else { ([block, other], [&right, &left]) };
        self.either(&left, blocks, a, b, left.1.to(right.1))
    }

    /// `a < b <= c`: each comparison is made where those before it hold.
    fn comparison(&mut self, first: &Expr, rest: &[(CompareOp, Expr)], span: Span) -> Res<Item> {
        let left = self.at(first)?;
        self.comparisons(&left, rest, span)
    }

    fn comparisons(&mut self, left: &At, rest: &[(CompareOp, Expr)], span: Span) -> Res<Item> {
        let Some(((op, right), rest)) = rest.split_first() else { return Ok(Item::Fixed(Fixed::bool(true))) };
        let right = self.at(right)?;
        self.span = span;
        let one = self.compare(*op, left, &right, span)?;
        if rest.is_empty() {
            return Ok(one);
        }
        self.and_then(BoolOp::And, &(one, span), |walk| Ok((walk.comparisons(&right, rest, span)?, span)))
    }

    fn call(&mut self, expr: &Expr, function: &Expr, args: &[Arg]) -> Res<Item> {
        if let ExprKind::Attribute(base, member) = &function.kind
            && (self.is_local(base) || self.file.elsewhere(function).is_none())
        {
            if !self.is_local(base)
                && let Some(path) = self.file.path_of(function)
            {
                if let Some(builtin) = path.strip_prefix("math.").and_then(|name| Builtin::find(Space::Math, name)) {
                    return fixed::math(builtin, &self.fixed_args(args)?, expr.span).map(Item::Fixed);
                }
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
            let is_builtin = !self.is_local(function) && self.file.global(name, Moment::end(function.span.source)).is_none();
            if is_builtin && fixed::BUILTINS.contains(&name.as_str()) {
                let fixed = self.fixed_args(args)?;
                return fixed::builtin(name, &fixed, expr.span).map(Item::Fixed);
            }
        }
        match self.expr(function)? {
            Item::Function(closure) => self.inline(&closure, args, expr.span),
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
    fn inline(&mut self, closure: &Closure<Item>, args: &[Arg], call: Span) -> Res<Item> {
        self.bounded(call)?;
        let callee = &closure.function;
        let bound = written::call(callee, args, call, self.frames.len(), unsupported)?;
        let mut locals = IndexMap::new();
        for ((param, given), default) in callee.params.iter().zip(bound).zip(&closure.defaults) {
            let item = match (given.first(), default) {
                (Some(expr), _) => self.expr(expr)?,
                (None, Some(default)) => default.clone(),
                (None, None) => continue,
            };
            locals.insert(param.name.name.clone(), item);
        }
        self.calls += 1;
        self.frames.push(Frame::new(self.calls, callee, closure.scope, locals));
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

fn different_operands(left: &At, right: &At) -> Box<Diagnostic> {
    Box::new(
        Diagnostic::error(
            id::PATH_TYPE,
            left.1.to(right.1),
            "`and` and `or` yield one of their operands, which have different types",
        )
        .also(left.1, format!("this is {}", left.0.describe()))
        .also(right.1, format!("this is {}", right.0.describe()))
        .help("compare what is no truth value, as in `n != 0`"),
    )
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
