//! Expressions.

use std::sync::Arc;

use tessera_ir::{Diagnostic, Span};

use super::arith::{Arith, FloatMode};
use super::control::Condition;
use super::operand::At;
use super::{Locals, Lowerer, MAX_ITEMS, MAX_TEXT, MAX_UNROLL, Res};
use crate::ast::{BinaryOp, Clause, Expr, ExprKind, FPart, Names};
use crate::class::ClassKind;
use crate::diagnostics::id;
use crate::fixed::{self, Fixed};
use crate::number::Num;
use crate::value::{Binding, Val};

impl Lowerer<'_> {
    /// The value of an expression.
    pub(crate) fn expr(&mut self, expr: &Expr) -> Res<Val> {
        self.deeper(expr.span, |lowerer| {
            let outside = std::mem::replace(&mut lowerer.span, expr.span);
            let result = lowerer.expr_kind(expr);
            lowerer.span = outside;
            match &result {
                Ok(value) if !matches!(expr.kind, ExprKind::Name(_)) => check_size(value, expr.span)?,
                _ => {}
            }
            result
        })
    }

    /// The value with its place.
    pub(crate) fn at(&mut self, expr: &Expr) -> Res<At> {
        Ok((self.expr(expr)?, expr.span))
    }

    fn expr_kind(&mut self, expr: &Expr) -> Res<Val> {
        let span = expr.span;
        match &expr.kind {
            ExprKind::Name(name) => self.name(name, span),
            ExprKind::Int(value) => Ok(Val::Num(Num::Int(*value))),
            ExprKind::Float(value) => Ok(Val::Num(Num::Float(*value))),
            ExprKind::Bool(value) => Ok(Val::bool(*value)),
            ExprKind::Str(text) => Ok(Val::str(text)),
            ExprKind::FString(parts) => self.fstring(parts),
            ExprKind::None => Ok(Val::None),
            ExprKind::Ellipsis => Ok(Val::Ellipsis),
            ExprKind::Tuple(items) => Ok(Val::tuple(self.items(items)?)),
            ExprKind::List(items) => Ok(Val::Sequence(self.items(items)?.into())),
            ExprKind::Unary(op, operand) => {
                let operand = self.at(operand)?;
                self.unary_operator(*op, &operand, span)
            }
            ExprKind::Binary(op, a, b) => {
                let (a, b) = (self.at(a)?, self.at(b)?);
                self.binary_operator(*op, &a, &b, span)
            }
            ExprKind::BoolOp(op, items) => self.bool_op(*op, items, span),
            ExprKind::Compare(first, rest) => {
                let first = self.at(first)?;
                self.comparisons(&first, rest, span)
            }
            ExprKind::Call(function, args) => self.call(function, args, span),
            ExprKind::Attribute(base, name) => {
                let base = self.expr(base)?;
                self.member(&base, &name.name, name.span)
            }
            ExprKind::Subscript(base, index) => {
                let base = self.at(base)?;
                let index = self.at(index)?;
                self.subscript(&base, &index, span)
            }
            ExprKind::Slice(parts) => {
                let mut values = [Val::None, Val::None, Val::None];
                for (value, part) in values.iter_mut().zip(parts) {
                    if let Some(part) = part {
                        *value = self.expr(part)?;
                    }
                }
                Ok(Val::Colon(std::rc::Rc::new(values)))
            }
            ExprKind::IfElse { test, body, orelse } => self.if_expr(test, body, orelse, span),
            ExprKind::Lambda(function) => {
                if let Some((what, place)) = function.unsupported {
                    return Err(unsupported(what, place));
                }
                self.define(function)
            }
            ExprKind::Comprehension { element, clauses, names, lazy } => {
                let before = self.func.blocks[self.block].ops.len();
                let mut items = Vec::new();
                self.comprehension(element, clauses, names, &mut |_, item| {
                    items.push(item);
                    if items.len() > MAX_UNROLL { Err(too_long(element.span)) } else { Ok(true) }
                })?;
                if !lazy {
                    return Ok(Val::Sequence(items.into()));
                }
                if !self.is_pure_from(before) {
                    return Err(Box::new(
                        Diagnostic::error(id::UNSUPPORTED, span, "the items of this generator are made when they are asked for")
                            .label("making one reads or writes memory")
                            .help("write a list, whose items are made at once: `[... for ...]`"),
                    ));
                }
                Ok(Val::Iterator(items.into()))
            }
            ExprKind::Starred(_) => Err(unsupported("`*` outside a tuple or call", span)),
            ExprKind::DoubleStarred(_) => Err(unsupported("`**` outside a call", span)),
            ExprKind::Yield(_) => Err(unsupported("`yield`", span)),
            ExprKind::Dict(pairs) => self.dictionary(pairs, span),
            ExprKind::Unsupported(what) => Err(unsupported(what, span)),
        }
    }

    /// Items of a display, with `*x` spread.
    pub(crate) fn items(&mut self, items: &[Expr]) -> Res<Vec<Val>> {
        let mut values = Vec::new();
        for item in items {
            match &item.kind {
                ExprKind::Starred(inner) => {
                    let inner = self.at(inner)?;
                    values.extend(self.sequence(&inner)?);
                }
                _ => {
                    let value = self.expr(item)?;
                    self.check_kept(&value, item.span)?;
                    values.push(value);
                }
            }
        }
        Ok(values)
    }

    /// `a op b`.
    pub(crate) fn binary_operator(&mut self, op: BinaryOp, a: &At, b: &At, span: Span) -> Res<Val> {
        if let Some(value) = self.object_operator(op, a, b, span)? {
            return Ok(value);
        }
        let (a, b) = (&(a.0.plain(), a.1), &(b.0.plain(), b.1));
        if let (BinaryOp::Mod, Val::Str(text), true) = (op, &a.0, self.is_static) {
            return fixed::percent(text, &self.require_fixed(b)?, span).map(|text| Val::str(&text));
        }
        if !matches!((&a.0, &b.0), (Val::Num(_), Val::Num(_)))
            && let (Some(x), Some(y)) = (a.0.fixed(), b.0.fixed())
        {
            return fixed::binary(op, &x, &y, span).map(Val::from);
        }
        match (op, &a.0, &b.0) {
            (BinaryOp::Add, Val::Tuple(x), Val::Tuple(y)) => return Ok(Val::tuple(x.iter().chain(y.iter()).cloned())),
            (BinaryOp::Add, Val::Sequence(x), Val::Sequence(y)) => {
                return Ok(Val::Sequence(x.iter().chain(y.iter()).cloned().collect()));
            }
            (BinaryOp::Mul, Val::Tuple(items) | Val::Sequence(items), Val::Num(Num::Int(times)))
            | (BinaryOp::Mul, Val::Num(Num::Int(times)), Val::Tuple(items) | Val::Sequence(items)) => {
                let count = usize::try_from((*times).max(0)).unwrap_or(usize::MAX).saturating_mul(items.len());
                if count > MAX_UNROLL {
                    return Err(too_long(span));
                }
                let repeated: Vec<Val> = items.iter().cycle().take(count).cloned().collect();
                let is_tuple = matches!(a.0, Val::Tuple(_)) || matches!(b.0, Val::Tuple(_));
                return Ok(if is_tuple { Val::tuple(repeated) } else { Val::Sequence(repeated.into()) });
            }
            _ => {}
        }
        let op = match op {
            BinaryOp::Add => Arith::Add,
            BinaryOp::Sub => Arith::Sub,
            BinaryOp::Mul => Arith::Mul,
            BinaryOp::Div => Arith::TrueDiv,
            BinaryOp::FloorDiv => Arith::FloorDiv,
            BinaryOp::Mod => Arith::Mod,
            BinaryOp::Pow => Arith::Pow,
            BinaryOp::MatMul => return self.matmul(a, b, span),
            BinaryOp::Shl | BinaryOp::Shr => return self.shift(op, a, b, span),
            BinaryOp::And | BinaryOp::Or | BinaryOp::Xor => return self.bitwise(op, a, b, span),
        };
        self.arith(op, a, b, FloatMode::default(), span)
    }

    fn fstring(&mut self, parts: &[FPart]) -> Res<Val> {
        let mut text = String::new();
        for part in parts {
            match part {
                FPart::Text(part) => text.push_str(part),
                FPart::Value { value, conversion, format } => {
                    let mut at = self.at(value)?;
                    if !self.telling && matches!(conversion, None | Some('s')) {
                        at = self.shown(&at)?;
                    }
                    if self.telling && at.0.fixed().is_none() {
                        text.push_str(&self.text_of(&at.0));
                        continue;
                    }
                    let shown = self.require_fixed(&at)?;
                    let shown = match conversion {
                        None => shown,
                        Some('s') => Fixed::str(&fixed::str_of(&shown, at.1)?),
                        Some('r') => Fixed::str(&fixed::repr(&shown, at.1)?),
                        Some(_) => return Err(unsupported("`!a` in an f-string", at.1)),
                    };
                    text.push_str(&fixed::format(&shown, format, at.1)?);
                }
            }
        }
        Ok(Val::str(&text))
    }

    /// The value as one that is known now.
    pub(crate) fn require_fixed(&self, at: &At) -> Res<Fixed> {
        at.0.fixed().ok_or_else(|| {
            Box::new(
                Diagnostic::error(id::NOT_CONSTANT, at.1, "this is not known when the kernel is compiled")
                    .label(format!("this is {}", at.0.describe())),
            )
        })
    }

    /// The text of a value in a message: run-time values are shown by their types.
    pub(crate) fn text_of(&self, value: &Val) -> String {
        let joined = |items: &[Val]| items.iter().map(|item| self.text_of(item)).collect::<Vec<_>>().join(", ");
        if let Some(text) = value.fixed().and_then(|value| fixed::str_of(&value, self.span).ok()) {
            return text;
        }
        match value {
            Val::Tuple(items) => format!("({}{})", joined(items), if items.len() == 1 { "," } else { "" }),
            Val::Sequence(items) => format!("[{}]", joined(items)),
            Val::Instance(class, items) => {
                let fields = class.fields.iter().zip(items.iter());
                let items: Vec<String> = fields.map(|(field, item)| format!("{}={}", field.name, self.text_of(item))).collect();
                format!("{}({})", class.name(), items.join(", "))
            }
            Val::Member(class, at) => format!("{}.{}", class.name(), class.members[*at].0),
            Val::Tile(_) => format!("<{}>", value.reveal()),
            Val::Exception(_, text) => text.to_string(),
            other => format!("<{}>", other.describe()),
        }
    }

    /// Hands the items of a comprehension to `each` as they are made, until it says to stop.
    pub(crate) fn comprehension(
        &mut self,
        element: &Expr,
        clauses: &[Clause],
        names: &Arc<Names>,
        each: &mut dyn FnMut(&mut Self, Val) -> Res<bool>,
    ) -> Res<()> {
        let Some((first, _)) = clauses.split_first() else { return Ok(()) };
        // The first iterable stands outside, everything else in a scope of its own.
        let items = self.iterated(&first.iterable)?;
        let outer = self.frame().scope;
        self.enter(names.clone(), Some(outer), Locals::new(), false);
        let result = self.clauses(element, clauses, items, each);
        self.leave();
        result.map(|_| ())
    }

    /// The items that a clause of a comprehension runs over.
    fn iterated(&mut self, iterable: &Expr) -> Res<Vec<Val>> {
        match self.static_items(iterable)? {
            Some(items) => Ok(items),
            None => {
                let iterable = self.at(iterable)?;
                self.sequence(&iterable)
            }
        }
    }

    fn clauses(
        &mut self,
        element: &Expr,
        clauses: &[Clause],
        items: Vec<Val>,
        each: &mut dyn FnMut(&mut Self, Val) -> Res<bool>,
    ) -> Res<bool> {
        let Some((clause, rest)) = clauses.split_first() else { return Ok(true) };
        for item in items {
            self.deeper(element.span, |_| Ok(()))?;
            self.assign(&clause.target, item, clause.target.span)?;
            let mut holds = true;
            for condition in &clause.conditions {
                holds = match self.test(condition)? {
                    Condition::Known(holds) => holds,
                    Condition::AtRunTime(tile) => self.constant_truth(&(Val::Tile(tile), condition.span))?,
                };
                if !holds {
                    break;
                }
            }
            if !holds {
                continue;
            }
            let goes_on = match rest.first() {
                None => {
                    let value = self.expr(element)?;
                    self.check_kept(&value, element.span)?;
                    each(self, value)?
                }
                Some(next) => {
                    let items = self.iterated(&next.iterable)?;
                    self.clauses(element, rest, items, each)?
                }
            };
            if !goes_on {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// The items of something that can be iterated over when the kernel is compiled.
    pub(crate) fn sequence(&mut self, at: &At) -> Res<Vec<Val>> {
        match &at.0 {
            Val::Tuple(items) | Val::Sequence(items) | Val::Iterator(items) => Ok(items.to_vec()),
            Val::Instance(class, items) if class.is_tuple() => Ok(items.to_vec()),
            Val::SourceClass(class) if class.kind == ClassKind::Enumeration => Ok(Self::members(class)),
            Val::Dict(items) => Ok(items.iter().map(|(key, _)| key.clone()).collect()),
            value => {
                if let (Val::Range(_), None) = (value, value.fixed()) {
                    return Err(Box::new(
                        Diagnostic::error(id::NOT_CONSTANT, at.1, "the bounds of this range are known at run time only")
                            .label("iterated when the kernel is compiled"),
                    ));
                }
                let Some(known) = value.fixed() else {
                    return Err(Box::new(
                        Diagnostic::error(id::NOT_ITERABLE, at.1, format!("{} is not iterated over", value.describe()))
                            .label("expected a tuple, a list or a range"),
                    ));
                };
                let items = known.iterate(at.1)?;
                if items.len() > MAX_UNROLL {
                    return Err(too_long(at.1));
                }
                Ok(items.iter().cloned().map(Val::from).collect())
            }
        }
    }

    /// A condition that must be known now.
    pub(crate) fn constant_truth(&self, at: &At) -> Res<bool> {
        if let Some(number) = at.0.number() {
            return Ok(number.truth());
        }
        match &at.0 {
            Val::Tuple(items) | Val::Sequence(items) => Ok(!items.is_empty()),
            Val::Dict(items) => Ok(!items.is_empty()),
            Val::Instance(class, items) if class.is_tuple() => Ok(!items.is_empty()),
            Val::Member(class, _) if class.is_plain => self.constant_truth(&(at.0.plain(), at.1)),
            Val::Tile(_) => Err(Box::new(
                Diagnostic::error(id::NOT_CONSTANT, at.1, "this condition must be known when the kernel is compiled")
                    .label(format!("this is {}, known at run time", at.0.describe())),
            )),
            value => match (value.fixed(), value) {
                (Some(value), _) => value.truth(at.1),
                (None, Val::Range(_)) => Err(self.require_fixed(at).err().unwrap_or_else(|| too_long(at.1))),
                (None, _) => Ok(true),
            },
        }
    }

    /// `base[index]`.
    pub(crate) fn subscript(&mut self, base: &At, index: &At, span: Span) -> Res<Val> {
        if let Some(value) = self.special(&base.0, "__getitem__", std::slice::from_ref(index), span)? {
            return Ok(value);
        }
        let (base, index) = (&(base.0.plain(), base.1), &(index.0.plain(), index.1));
        match &base.0 {
            Val::Tuple(items) | Val::Sequence(items) => self.item(&base.0, items.len(), &items.clone(), index, span),
            Val::Dict(items) => self.dictionary_item(&items.clone(), index),
            Val::SourceClass(class) => self.member_by_name(&class.clone(), index),
            Val::List(list) => {
                let list = list.clone();
                self.list_item(&list, index)
            }
            Val::Tile(tile) => {
                let parts: Vec<Val> = match &index.0 {
                    Val::Tuple(parts) => parts.to_vec(),
                    other => vec![other.clone()],
                };
                let full = |part: &Val| matches!(part, Val::Colon(parts) if parts.iter().all(|part| matches!(part, Val::None)));
                if let Some(part) = parts.iter().find(|part| !matches!(part, Val::None | Val::Ellipsis) && !full(part)) {
                    return Err(Box::new(
                        Diagnostic::error(id::DIRECT_INDEX, index.1, format!("a tile is not indexed by {}", part.describe()))
                            .label("only `None`, `:` and `...` stand in a tile's subscript")
                            .also(base.1, format!("this is {}", base.0.describe()))
                            .help("take a part with `ct.extract(tile, index, shape)`, one scalar with `.item()`"),
                    ));
                }
                let colons = parts.iter().filter(|part| full(part)).count();
                let dots = parts.iter().filter(|part| matches!(part, Val::Ellipsis)).count();
                if colons > tile.shape.len() || dots > 1 {
                    return Err(Box::new(
                        Diagnostic::error(
                            id::RANK,
                            index.1,
                            format!("this subscript has more entries than a tile of rank {} has axes", tile.shape.len()),
                        )
                        .also(base.1, format!("this is {}", base.0.describe())),
                    ));
                }
                let mut shape = tessera_ir::Shape::new();
                let mut rest = tile.shape.iter().copied();
                let after_dots = parts.iter().skip_while(|part| !matches!(part, Val::Ellipsis)).filter(|part| full(part)).count();
                for part in &parts {
                    match part {
                        Val::None => shape.push(1),
                        Val::Ellipsis => {
                            let skipped = rest.len() - after_dots.min(rest.len());
                            shape.extend(rest.by_ref().take(skipped));
                        }
                        _ => shape.extend(rest.next()),
                    }
                }
                shape.extend(rest);
                let tile = tile.clone();
                Ok(Val::Tile(self.reshape_to(tile, shape)))
            }
            Val::Array(_) => Err(Box::new(
                Diagnostic::error(id::DIRECT_INDEX, span, "an array is not indexed directly")
                    .also(base.1, format!("this is {}", base.0.describe()))
                    .help("use `ct.load(x, index, shape)` for tiles or `ct.gather(x, indices)` for elements"),
            )),
            Val::Str(_) | Val::Range(_) => {
                let whole = self.require_fixed(base)?;
                match &index.0 {
                    Val::Colon(parts) => fixed::slice(&whole, self.slice_bounds(parts, index.1)?, span).map(Val::from),
                    _ => fixed::item(&whole, &self.require_fixed(index)?, span).map(Val::from),
                }
            }
            // Annotations such as `ct.Constant[int]` in module-level aliases.
            Val::Module(_) => Ok(base.0.clone()),
            other => Err(Box::new(
                Diagnostic::error(id::OPERAND_TYPE, span, format!("{} is not indexed", other.describe()))
                    .also(base.1, format!("this is {}", base.0.describe())),
            )),
        }
    }

    fn item(&mut self, base: &Val, count: usize, items: &[Val], index: &At, span: Span) -> Res<Val> {
        if let Val::Colon(parts) = &index.0 {
            let bounds = self.slice_bounds(parts, index.1)?;
            let picked = fixed::slice_positions(count, bounds, span)?.into_iter().map(|at| items[at].clone());
            return Ok(if matches!(base, Val::Tuple(_)) { Val::tuple(picked) } else { Val::Sequence(picked.collect()) });
        }
        let Some(number) = index.0.number().and_then(Num::as_int) else { return Err(self.not_an_integer(index)) };
        match fixed::position(number, count) {
            Some(at) => Ok(items[at].clone()),
            None => Err(Box::new(
                Diagnostic::error(id::AXIS, index.1, format!("there is no item {number} in {}", base.describe()))
                    .label("out of range"),
            )),
        }
    }

    /// The bounds of `[start:stop:step]`.
    fn slice_bounds(&self, parts: &[Val; 3], span: Span) -> Res<[Option<i128>; 3]> {
        let mut bounds = [None; 3];
        for (bound, part) in bounds.iter_mut().zip(parts) {
            if !matches!(part, Val::None) {
                let number = part.number().and_then(Num::as_int);
                *bound = Some(number.ok_or_else(|| self.not_an_integer(&(part.clone(), span)))?);
            }
        }
        Ok(bounds)
    }

    /// Binds a name in the current function.
    pub(crate) fn bind(&mut self, name: &str, value: Val, span: Span) {
        if let Val::Tile(tile) = &value {
            self.name_value(tile.value, name);
        }
        self.frame().locals.insert(name.to_string(), Binding { value, span });
    }
}

/// Refuses compile-time values that grow without bound; items of shared tuples count each time they occur.
fn check_size(value: &Val, span: Span) -> Res<()> {
    fn count(value: &Val, left: &mut usize) {
        *left = left.saturating_sub(1);
        let items: Vec<&Val> = match value {
            Val::Tuple(items) | Val::Sequence(items) | Val::Instance(_, items) => items.iter().collect(),
            Val::Dict(items) => items.iter().map(|(_, item)| item).collect(),
            Val::Bound(receiver, _) => vec![&**receiver],
            _ => Vec::new(),
        };
        for item in items {
            if *left == 0 {
                return;
            }
            count(item, left);
        }
    }
    let mut left = MAX_ITEMS;
    count(value, &mut left);
    if left == 0 || matches!(value, Val::Str(text) if text.len() > MAX_TEXT) {
        return Err(Box::new(
            Diagnostic::error(id::TOO_LARGE, span, "a compile-time value grows too large")
                .label(format!("it has {MAX_ITEMS} items or more, or is a text of more than {MAX_TEXT} bytes")),
        ));
    }
    Ok(())
}

/// The diagnostic for Python that kernels can't use.
pub(crate) fn unsupported(what: &str, span: Span) -> Box<Diagnostic> {
    Box::new(
        Diagnostic::error(id::UNSUPPORTED, span, format!("{what} can't be used in a kernel"))
            .label("not part of the kernel language")
            .help("kernels use assignments, `for`, `while`, `if`, functions, tuples and arithmetic"),
    )
}

fn too_long(span: Span) -> Box<Diagnostic> {
    Box::new(
        Diagnostic::error(id::TOO_LARGE, span, format!("a compile-time sequence has more than {MAX_UNROLL} items"))
            .help("use a run-time loop over `range`"),
    )
}
