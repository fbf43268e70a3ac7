//! Expressions.

use tessera_ir::{Diagnostic, Span};

use super::arith::{Arith, FloatMode};
use super::operand::At;
use super::{Lowerer, MAX_ITEMS, MAX_TEXT, MAX_UNROLL, Res};
use crate::ast::{BinaryOp, Clause, Expr, ExprKind, FPart};
use crate::diagnostics::id;
use crate::number::Num;
use crate::value::{Binding, Captured, Closure, Val};

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
                let mut left = self.at(first)?;
                let mut all: Option<Val> = None;
                for (op, right) in rest {
                    let right = self.at(right)?;
                    let result = self.compare(*op, &left, &right, span)?;
                    all = Some(match all {
                        None => result,
                        Some(all) => self.bitwise(BinaryOp::And, &(all, span), &(result, span), span)?,
                    });
                    left = right;
                }
                Ok(all.unwrap_or(Val::None))
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
                Ok(Val::Closure(std::rc::Rc::new(Closure { function: function.clone(), captured: Some(self.capture()) })))
            }
            ExprKind::Comprehension { element, clauses } => {
                let mut items = Vec::new();
                self.comprehension(element, clauses, &mut items)?;
                Ok(Val::Sequence(items.into()))
            }
            ExprKind::Starred(_) => Err(unsupported("`*` outside a tuple or call", span)),
            ExprKind::Dict(_) => Err(unsupported("a dictionary", span)),
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
                _ => values.push(self.expr(item)?),
            }
        }
        Ok(values)
    }

    /// The variables that a function defined here can see.
    pub(crate) fn capture(&mut self) -> std::rc::Rc<Captured> {
        let frame = self.frame();
        std::rc::Rc::new(Captured { locals: frame.locals.clone(), outer: frame.captured.clone() })
    }

    /// `a op b`.
    pub(crate) fn binary_operator(&mut self, op: BinaryOp, a: &At, b: &At, span: Span) -> Res<Val> {
        let plain = FloatMode::default();
        match (op, &a.0, &b.0) {
            (BinaryOp::Add, Val::Tuple(x), Val::Tuple(y)) => return Ok(Val::tuple(x.iter().chain(y.iter()).cloned())),
            (BinaryOp::Add, Val::Sequence(x), Val::Sequence(y)) => {
                return Ok(Val::Sequence(x.iter().chain(y.iter()).cloned().collect()));
            }
            (BinaryOp::Add, Val::Str(x), Val::Str(y)) => return Ok(Val::str(&format!("{x}{y}"))),
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
        self.arith(op, a, b, plain, span)
    }

    fn fstring(&mut self, parts: &[FPart]) -> Res<Val> {
        let mut text = String::new();
        for part in parts {
            match part {
                FPart::Text(part) => text.push_str(part),
                FPart::Value { value, .. } => {
                    let value = self.at(value)?;
                    text.push_str(&self.text_of(&value.0));
                }
            }
        }
        Ok(Val::str(&text))
    }

    /// The text of a value in a compile-time message.
    pub(crate) fn text_of(&self, value: &Val) -> String {
        match value {
            Val::Str(text) => text.to_string(),
            Val::Num(number) => number.to_string(),
            Val::None => "None".to_string(),
            Val::DType(dtype) => crate::promote::dtype_name(*dtype).to_string(),
            Val::Tuple(items) => {
                let items: Vec<String> = items.iter().map(|item| self.text_of(item)).collect();
                format!("({}{})", items.join(", "), if items.len() == 1 { "," } else { "" })
            }
            Val::Sequence(items) => {
                let items: Vec<String> = items.iter().map(|item| self.text_of(item)).collect();
                format!("[{}]", items.join(", "))
            }
            Val::Tile(_) => format!("<{}>", value.reveal()),
            Val::Exception(text) => text.to_string(),
            other => format!("<{}>", other.describe()),
        }
    }

    fn comprehension(&mut self, element: &Expr, clauses: &[Clause], items: &mut Vec<Val>) -> Res<()> {
        let Some((clause, rest)) = clauses.split_first() else {
            items.push(self.expr(element)?);
            return if items.len() > MAX_UNROLL { Err(too_long(element.span)) } else { Ok(()) };
        };
        let iterable = self.at(&clause.iterable)?;
        for item in self.sequence(&iterable)? {
            let shadowed = self.frame().locals.clone();
            self.assign(&clause.target, item, clause.target.span)?;
            let mut holds = true;
            for condition in &clause.conditions {
                let condition = self.at(condition)?;
                if !self.constant_truth(&condition)? {
                    holds = false;
                    break;
                }
            }
            if holds {
                self.comprehension(element, rest, items)?;
            }
            self.frame().locals = shadowed;
        }
        Ok(())
    }

    /// The items of something that can be iterated over when the kernel is compiled.
    pub(crate) fn sequence(&mut self, at: &At) -> Res<Vec<Val>> {
        match &at.0 {
            Val::Tuple(items) | Val::Sequence(items) => Ok(items.to_vec()),
            Val::Range(range) => {
                let mut bounds = [0i128; 3];
                for (bound, value) in bounds.iter_mut().zip([&range.start, &range.stop, &range.step]) {
                    *bound = value.number().and_then(Num::as_int).ok_or_else(|| {
                        Box::new(
                            Diagnostic::error(id::NOT_CONSTANT, at.1, "the bounds of this range are known at run time only")
                                .label("iterated when the kernel is compiled"),
                        )
                    })?;
                }
                let [start, stop, step] = bounds;
                let mut items = Vec::new();
                let mut i = start;
                while (step > 0 && i < stop) || (step < 0 && i > stop) {
                    items.push(Val::int(i));
                    if items.len() > MAX_UNROLL {
                        return Err(too_long(at.1));
                    }
                    i = i.saturating_add(step);
                }
                Ok(items)
            }
            Val::Str(text) => Ok(text.chars().take(MAX_UNROLL).map(|c| Val::str(&c.to_string())).collect()),
            other => Err(Box::new(
                Diagnostic::error(id::NOT_ITERABLE, at.1, format!("{} is not iterated over", other.describe()))
                    .label("expected a tuple, a list or a range"),
            )),
        }
    }

    /// A condition that must be known now.
    pub(crate) fn constant_truth(&self, at: &At) -> Res<bool> {
        if let Some(number) = at.0.number() {
            return Ok(number.truth());
        }
        match &at.0 {
            Val::None => Ok(false),
            Val::Str(text) => Ok(!text.is_empty()),
            Val::Tuple(items) | Val::Sequence(items) => Ok(!items.is_empty()),
            Val::Tile(_) => Err(Box::new(
                Diagnostic::error(id::NOT_CONSTANT, at.1, "this condition must be known when the kernel is compiled")
                    .label(format!("this is {}, known at run time", at.0.describe())),
            )),
            _ => Ok(true),
        }
    }

    /// `base[index]`.
    fn subscript(&mut self, base: &At, index: &At, span: Span) -> Res<Val> {
        match &base.0 {
            Val::Tuple(items) | Val::Sequence(items) => self.item(&base.0, items.len(), &items.clone(), index, span),
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
            Val::Str(text) => {
                let at = self.require_int(index)?;
                let count = text.chars().count();
                let position = self.axis(at, count, index.1)?;
                Ok(Val::str(&text.chars().nth(position).map_or(String::new(), |c| c.to_string())))
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
            let bound = |part: &Val| {
                if matches!(part, Val::None) { Ok(None) } else { self.require_int(&(part.clone(), index.1)).map(Some) }
            };
            let step = bound(&parts[2])?.unwrap_or(1);
            let count = count as i64;
            let clamp = |at: i64, low: i64, high: i64| (if at < 0 { at.saturating_add(count) } else { at }).clamp(low, high);
            let mut picked = Vec::new();
            match step {
                0 => return Err(Box::new(Diagnostic::error(id::VALUE_RANGE, span, "a slice step can't be 0"))),
                1.. => {
                    let mut at = bound(&parts[0])?.map_or(0, |at| clamp(at, 0, count));
                    let stop = bound(&parts[1])?.map_or(count, |at| clamp(at, 0, count));
                    while at < stop {
                        picked.push(items[at as usize].clone());
                        at = at.saturating_add(step);
                    }
                }
                _ => {
                    let mut at = bound(&parts[0])?.map_or(count - 1, |at| clamp(at, -1, count - 1));
                    let stop = bound(&parts[1])?.map_or(-1, |at| clamp(at, -1, count - 1));
                    while at > stop {
                        picked.push(items[at as usize].clone());
                        at = at.saturating_add(step);
                    }
                }
            }
            return Ok(if matches!(base, Val::Tuple(_)) { Val::tuple(picked) } else { Val::Sequence(picked.into()) });
        }
        let at = self.require_int(index)?;
        let counted = if at < 0 { at + count as i64 } else { at };
        match usize::try_from(counted).ok().and_then(|at| items.get(at)) {
            Some(item) => Ok(item.clone()),
            None => Err(Box::new(
                Diagnostic::error(id::AXIS, index.1, format!("there is no item {at} in {}", base.describe()))
                    .label("out of range"),
            )),
        }
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
        for item in value.items().into_iter().flat_map(|items| items.iter()) {
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
