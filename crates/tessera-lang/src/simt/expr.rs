//! Expressions.

use std::sync::Arc;

use tessera_ir::attrs::MemoryOrder;
use tessera_ir::{Diagnostic, Extent, IndexType, Span};
use tessera_types::DType;

use super::Check;
use super::env::Item;
use super::program::{Binary, Expression, ExpressionKind, Memory, Place, Statement, Unary};
use super::sequence::{Kind, sequence_of};
use super::stmts::unsupported;
use super::value::{self, At, comparison, convert, operator, readable, truth, unify};
use crate::ast::{BinaryOp, BoolOp, CompareOp, Expr, ExprKind, Function, UnaryOp};
use crate::diagnostics::id;
use crate::fixed::{self, Fixed};
use crate::lower::Res;
use crate::number::Num;
use crate::promote::{dtype_name, is_restricted};
use crate::scopes::Scopes;

impl Check<'_> {
    pub(super) fn at(&mut self, expr: &Expr) -> Res<At> {
        Ok((self.expr(expr)?, expr.span))
    }

    /// The value of an expression.
    pub(super) fn expr(&mut self, expr: &Expr) -> Res<Item> {
        match &expr.kind {
            ExprKind::Name(name) => self.name(name, expr.span),
            ExprKind::Tuple(items) | ExprKind::List(items) => {
                let kind = if matches!(expr.kind, ExprKind::Tuple(_)) { Kind::Tuple } else { Kind::List };
                Ok(kind.of(self.display(items)?))
            }
            ExprKind::Attribute(base, member) => self.attribute(expr, base, &member.name, member.span),
            ExprKind::Unary(UnaryOp::Not, value) => {
                let at = self.test(value)?;
                self.opposite(&(at.0, expr.span))
            }
            ExprKind::Unary(op, value) => {
                let at = self.at(value)?;
                match (&at.0, op) {
                    (Item::Fixed(value), _) => fixed::unary(*op, value, expr.span).map(Item::Fixed),
                    (Item::Value(_), UnaryOp::Neg) => value::unary(Unary::Neg, "-", &at, expr.span),
                    (Item::Value(_), UnaryOp::Pos) => Ok(at.0),
                    (Item::Value(value), UnaryOp::Invert) if !value.dtype.is_float() => {
                        value::unary(Unary::Not, "~", &at, expr.span)
                    }
                    (other, _) => Err(Box::new(
                        Diagnostic::error(id::OPERAND_TYPE, expr.span, "the operator does not take this value")
                            .also(at.1, format!("this is {}", other.describe())),
                    )),
                }
            }
            ExprKind::Binary(op, a, b) => {
                let (a, b) = (self.at(a)?, self.at(b)?);
                self.operate(*op, &a, &b, expr.span)
            }
            ExprKind::BoolOp(op, items) => self.bool_value(*op, items),
            ExprKind::Compare(first, rest) => self.comparison(first, rest, expr.span),
            ExprKind::IfElse { test, body, orelse } => {
                let condition = self.test(test)?;
                if let Item::Fixed(value) = &condition.0 {
                    return self.expr(if value.truth(test.span)? { body } else { orelse });
                }
                self.choose(&condition, body, orelse, expr.span)
            }
            ExprKind::Subscript(base, index) => self.subscript(base, index, expr.span),
            ExprKind::Call(function, args) => self.call(expr, function, args),
            ExprKind::Lambda(function) => match function.unsupported {
                Some((what, place)) => Err(unsupported(place, what)),
                None => self.define(function),
            },
            other => fixed::literal(other).map(Item::Fixed).map_err(|what| unsupported(expr.span, what)),
        }
    }

    /// What the definition of a nested function makes.
    pub(super) fn define(&mut self, function: &Arc<Function>) -> Res<Item> {
        let scope = Some(self.frame().scope.serial);
        self.closure(function, scope, |check, default| {
            let item = check.expr(default)?;
            Ok(check.held(item))
        })
    }

    /// `not x` of what is a truth value, or known.
    pub(super) fn opposite(&mut self, at: &At) -> Res<Item> {
        match &at.0 {
            Item::Fixed(value) => fixed::unary(UnaryOp::Not, value, at.1).map(Item::Fixed),
            _ => value::unary(Unary::Not, "not", at, at.1),
        }
    }

    /// A compile-time value.
    pub(super) fn fixed(&mut self, expr: &Expr, what: &str) -> Res<Fixed> {
        match self.expr(expr)? {
            Item::Fixed(value) => Ok(value),
            other => Err(Box::new(
                Diagnostic::error(id::NOT_CONSTANT, expr.span, format!("{what} must be known when the kernel is compiled"))
                    .label(format!("this is {}", other.describe())),
            )),
        }
    }

    /// `a op b`.
    pub(super) fn operate(&mut self, op: BinaryOp, a: &At, b: &At, span: Span) -> Res<Item> {
        if let (Item::Fixed(x), Item::Fixed(y)) = (&a.0, &b.0) {
            return fixed::binary(op, x, y, span).map(Item::Fixed);
        }
        match (op, sequence_of(&a.0), sequence_of(&b.0), &a.0, &b.0) {
            (BinaryOp::Add, Some((kind, x)), Some((other, y)), ..) if kind == other => {
                return Ok(kind.of(x.into_iter().chain(y).collect()));
            }
            (BinaryOp::Mul, Some((kind, items)), None, _, Item::Fixed(times))
            | (BinaryOp::Mul, None, Some((kind, items)), Item::Fixed(times), _)
                if times.as_int().is_some() =>
            {
                // As many as a repeated tuple of constants has.
                let places = fixed::repeated(items.len(), times, span)?;
                return Ok(kind.of(places.into_iter().map(|at| items[at].clone()).collect()));
            }
            _ => {}
        }
        match operator(op) {
            Some(Binary::Pow) => self.power(op.symbol(), a, b, span),
            Some(own) => value::binary(own, op.symbol(), a, b, span),
            None => Err(unsupported(span, "`@`")),
        }
    }

    /// The chosen of two expressions, the only one that is evaluated.
    pub(super) fn choose(&mut self, condition: &At, a: &Expr, b: &Expr, span: Span) -> Res<Item> {
        let condition = truth(condition)?;
        let (a, first) = self.apart(&condition, |check| check.at(a))?;
        let (b, second) = self.apart(&condition, |check| check.at(b))?;
        let mut blocks = (!first.is_empty() || !second.is_empty()).then_some([first, second]);
        let chosen = self.chosen(&condition, [&a, &b], &mut blocks, span)?;
        if let Some([body, orelse]) = blocks {
            self.out.push(Statement::If { test: condition, body, orelse });
        }
        Ok(chosen)
    }

    /// An expression that is evaluated only where those before it leave the outcome open.
    fn next(&mut self, before: Option<&At>, expr: &Expr) -> Res<(At, Vec<Statement>)> {
        match before {
            Some(before) => {
                let condition = truth(before)?;
                self.apart(&condition, |check| check.test(expr))
            }
            None => Ok((self.test(expr)?, Vec::new())),
        }
    }

    /// The truth of an expression where nothing else of it is asked for, as behind `if`: a compile-time value or a truth value.
    pub(super) fn test(&mut self, expr: &Expr) -> Res<At> {
        match &expr.kind {
            ExprKind::BoolOp(op, items) => Ok((self.bool_test(*op, items)?, expr.span)),
            _ => match self.at(expr)? {
                at @ (Item::Fixed(_), _) => Ok(at),
                (Item::Items(kind, items), span) => {
                    Ok((Item::Fixed(Fixed::bool(kind == Kind::Iterator || !items.is_empty())), span))
                }
                at => Ok((Item::Value(truth(&at)?), at.1)),
            },
        }
    }

    /// `a and b`, `a or b`, which yield one of their operands.
    fn bool_value(&mut self, op: BoolOp, items: &[Expr]) -> Res<Item> {
        let Some((first, rest)) = items.split_first() else { return Ok(Item::Fixed(Fixed::None)) };
        let left = self.at(first)?;
        if rest.is_empty() {
            return Ok(left.0);
        }
        let or = op == BoolOp::Or;
        let value = match &left.0 {
            Item::Fixed(value) if value.truth(left.1)? == or => return Ok(left.0),
            Item::Fixed(_) => return self.bool_value(op, rest),
            Item::Items(kind, items) if (*kind == Kind::Iterator || !items.is_empty()) == or => return Ok(left.0),
            Item::Items(..) => return self.bool_value(op, rest),
            Item::Value(value) => value.clone(),
            _ => return Err(value::not_a_value(&left)),
        };
        let condition = truth(&left)?;
        let place = rest.last().map_or(left.1, |last| rest[0].span.to(last.span));
        let (right, mut apart) = self.apart(&condition, |check| Ok((check.bool_value(op, rest)?, place)))?;
        let is_truth = matches!(&right.0, Item::Value(right) if right.dtype == DType::B1)
            || matches!(&right.0, Item::Fixed(Fixed::Num(Num::Bool(_))));
        if value.dtype == DType::B1 && is_truth {
            return self.then(or, Some(&left), &right, apart);
        }
        let (x, y) = unify(&left, &right, false)?;
        let keeps = match &right.0 {
            Item::Value(right) => right.dtype == y.dtype,
            other => matches!(other, Item::Fixed(Fixed::Num(Num::Int(_) | Num::Float(_)))),
        };
        if !keeps || x.dtype != value.dtype || value.dtype == DType::B1 {
            return Err(Box::new(
                Diagnostic::error(
                    id::PATH_TYPE,
                    left.1.to(place),
                    "`and` and `or` yield one of their operands, which have different types",
                )
                .also(left.1, format!("this is {}", left.0.describe()))
                .also(place, format!("this is {}", right.0.describe()))
                .help("write `bool(x)` for its truth"),
            ));
        }
        let (dtype, uniform, span) = (x.dtype, x.uniform && y.uniform && condition.uniform, left.1.to(place));
        if apart.is_empty() {
            let chosen = if or { [condition, x, y] } else { [condition, y, x] };
            return Ok(Item::Value(Expression { kind: ExpressionKind::Select(Box::new(chosen)), dtype, uniform, span }));
        }
        let (position, chosen) = self.unnamed(dtype, uniform, span);
        self.out.push(Statement::Assign(position, x));
        apart.push(Statement::Assign(position, y));
        let (body, orelse) = if or { (Vec::new(), apart) } else { (apart, Vec::new()) };
        self.out.push(Statement::If { test: condition, body, orelse });
        Ok(Item::Value(chosen))
    }

    /// `a and b`, `a or b` as truth values.
    fn bool_test(&mut self, op: BoolOp, items: &[Expr]) -> Res<Item> {
        let stops = op == BoolOp::Or;
        let mut left: Option<At> = None;
        let mut last = Item::Fixed(Fixed::bool(!stops));
        for item in items {
            let (at, apart) = self.next(left.as_ref(), item)?;
            if let Item::Fixed(value) = &at.0 {
                let decides = value.truth(at.1)? == stops;
                match &left {
                    None if decides => return Ok(at.0),
                    None => last = at.0.clone(),
                    // What was evaluated before stays, the rest is never reached.
                    Some(_) if !decides => {}
                    Some(_) => {
                        let end = (Item::Value(value::constant(Num::Bool(stops), DType::B1, at.1)?), at.1);
                        left = Some((self.then(stops, left.as_ref(), &end, apart)?, at.1));
                        break;
                    }
                }
                continue;
            }
            left = Some((self.then(stops, left.as_ref(), &at, apart)?, at.1));
        }
        Ok(left.map_or(last, |(item, _)| item))
    }

    /// `before and at`, or `before or at`, where `at` takes statements of its own.
    pub(super) fn then(&mut self, or: bool, before: Option<&At>, at: &At, mut apart: Vec<Statement>) -> Res<Item> {
        let right = truth(at)?;
        let Some(before) = before else { return Ok(Item::Value(right)) };
        let left = truth(before)?;
        let uniform = left.uniform && right.uniform;
        if !apart.is_empty() {
            let (position, result) = self.unnamed(DType::B1, uniform, before.1.to(at.1));
            self.out.push(Statement::Assign(position, left));
            apart.push(Statement::Assign(position, right));
            let (body, orelse) = if or { (Vec::new(), apart) } else { (apart, Vec::new()) };
            self.out.push(Statement::If { test: result.clone(), body, orelse });
            return Ok(Item::Value(result));
        }
        let op = if or { Binary::OrElse } else { Binary::AndThen };
        let span = before.1.to(at.1);
        Ok(Item::Value(Expression {
            kind: ExpressionKind::Binary(op, Box::new(left), Box::new(right)),
            dtype: DType::B1,
            uniform,
            span,
        }))
    }

    fn comparison(&mut self, first: &Expr, rest: &[(CompareOp, Expr)], span: Span) -> Res<Item> {
        let mut left = self.at(first)?;
        let mut all: Option<At> = None;
        for (op, right) in rest {
            let (right, apart) = match all.as_ref().filter(|(item, _)| !matches!(item, Item::Fixed(_))) {
                Some(before) => {
                    let condition = truth(before)?;
                    self.apart(&condition, |check| check.at(right))?
                }
                None => (self.at(right)?, Vec::new()),
            };
            let one = self.compare(*op, &left, &right, span)?;
            let one = match (&all, one) {
                (None, one) => one,
                (Some((Item::Fixed(_), _)), one) => one,
                (Some(before), one) => self.then(false, Some(before), &(one, span), apart)?,
            };
            if let Item::Fixed(value) = &one
                && !value.truth(span)?
            {
                return Ok(one);
            }
            all = Some((one, span));
            left = right;
        }
        Ok(all.map_or(Item::Fixed(Fixed::bool(true)), |(item, _)| item))
    }

    pub(super) fn compare(&mut self, op: CompareOp, a: &At, b: &At, span: Span) -> Res<Item> {
        if let (Item::Items(..), _) | (_, Item::Items(..)) | (Item::Value(_), Item::Fixed(_)) = (&a.0, &b.0)
            && let Some(found) = self.compare_items(op, a, b, span)?
        {
            return Ok(found);
        }
        match (&a.0, &b.0) {
            (Item::Fixed(x), Item::Fixed(y)) => {
                return fixed::compare(op, x, y, span).map(|value| Item::Fixed(Fixed::bool(value)));
            }
            // A parameter that got an array or a scalar is not `None`.
            (Item::Fixed(Fixed::None), _) | (_, Item::Fixed(Fixed::None)) => match op {
                CompareOp::Is | CompareOp::Eq => return Ok(Item::Fixed(Fixed::bool(false))),
                CompareOp::IsNot | CompareOp::Ne => return Ok(Item::Fixed(Fixed::bool(true))),
                _ => {}
            },
            _ => {}
        }
        match comparison(op) {
            Some(own) => value::binary(own, "comparison", a, b, span),
            None => Err(Box::new(
                Diagnostic::error(id::OPERAND_TYPE, span, "run-time values are compared with `==`, `<` and their kin")
                    .also(a.1, format!("this is {}", a.0.describe()))
                    .also(b.1, format!("this is {}", b.0.describe())),
            )),
        }
    }

    fn subscript(&mut self, base: &Expr, index: &Expr, span: Span) -> Res<Item> {
        let at = self.at(base)?;
        match &at.0 {
            Item::Array(_) => {
                let place = self.place(base, index, span)?;
                Ok(self.load(place, span))
            }
            Item::Shape(memory) => {
                let rank = self.shape(*memory).len() as i128;
                let number = self.fixed(index, "the axis of a size")?.as_int();
                let axis = number.map(|axis| if axis < 0 { axis + rank } else { axis });
                match axis.filter(|axis| (0..rank).contains(axis)) {
                    Some(axis) => Ok(self.size(*memory, axis as usize, span)),
                    None => Err(Box::new(
                        Diagnostic::error(id::AXIS, index.span, format!("the axis is outside an array with {rank} axes"))
                            .also(at.1, "sizes of this array"),
                    )),
                }
            }
            Item::Fixed(value @ (Fixed::Str(_) | Fixed::Tuple(_) | Fixed::List(_) | Fixed::Range(_) | Fixed::Path(_))) => {
                let value = value.clone();
                if let ExprKind::Slice(parts) = &index.kind {
                    let bounds = self.slice_bounds(parts, index.span)?;
                    return fixed::slice(&value, bounds, span).map(Item::Fixed);
                }
                let index = self.fixed(index, "the index of a tuple or string")?;
                fixed::item(&value, &index, span).map(Item::Fixed)
            }
            Item::Items(kind @ (Kind::Tuple | Kind::List), items) => self.item_at(*kind, &items.clone(), index, span),
            other => Err(Box::new(
                Diagnostic::error(id::OPERAND_TYPE, base.span, "only arrays, tuples and strings are indexed")
                    .label(format!("this is {}", other.describe())),
            )),
        }
    }

    /// The bounds of `[start:stop:step]`.
    pub(super) fn slice_bounds(&mut self, parts: &[Option<Box<Expr>>; 3], span: Span) -> Res<[Option<i128>; 3]> {
        let mut bounds = [None; 3];
        for (bound, part) in bounds.iter_mut().zip(parts) {
            let part = part.as_ref().map(|part| self.fixed(part, "the bound of a slice")).transpose()?;
            *bound = part.filter(|part| *part != Fixed::None).map(|part| self.whole(&part, span)).transpose()?;
        }
        Ok(bounds)
    }

    fn whole(&self, value: &Fixed, span: Span) -> Res<i128> {
        value.as_int().ok_or_else(|| {
            Box::new(
                Diagnostic::error(id::ARGUMENT_TYPE, span, "an index is an integer")
                    .label(format!("this is {}", value.describe())),
            )
        })
    }

    /// The value of an element.
    pub(super) fn load(&mut self, place: Place, span: Span) -> Item {
        // What others write meanwhile, threads of a block may find different.
        let same = self.is_shared(place.memory) && place.order == MemoryOrder::Weak;
        let uniform = same && place.index.iter().all(|index| index.uniform);
        let dtype = place.dtype;
        let loaded = readable(Expression { kind: ExpressionKind::Load(Box::new(place)), dtype, uniform, span });
        Item::Value(self.now(loaded))
    }

    fn is_shared(&self, memory: Memory) -> bool {
        match memory {
            Memory::Param(_) => true,
            Memory::Allocation(at) => self.allocations[at].space == super::Space::Shared,
            // The address may be a thread's own.
            Memory::Addressed(_) => false,
        }
    }

    /// Element type and name of an array.
    pub(super) fn array(&self, memory: Memory) -> (DType, String) {
        match memory {
            Memory::Param(at) => {
                let is_this = |item: &Item| matches!(item, Item::Array(Memory::Param(own)) if *own == at);
                let name = self.params.iter().find(|(_, item)| is_this(item)).map_or(String::new(), |(name, _)| name.clone());
                (self.arrays.get(&at).map_or(DType::F32, |operand| operand.dtype), name)
            }
            Memory::Allocation(at) => {
                let own = &self.allocations[at];
                (own.dtype, if own.name.is_empty() { "the allocation".to_string() } else { own.name.clone() })
            }
            Memory::Addressed(at) => (self.addressed[at].dtype, "the array at this address".to_string()),
        }
    }

    /// Extents of an array, where they are known.
    pub(super) fn shape(&self, memory: Memory) -> Vec<Option<i64>> {
        match memory {
            Memory::Param(at) => self.arrays.get(&at).map_or(Vec::new(), |operand| {
                let known = |extent: &Extent| match extent {
                    Extent::Static(size) => Some(*size),
                    Extent::Dynamic => None,
                };
                operand.shape.iter().map(known).collect()
            }),
            Memory::Allocation(at) => self.allocations[at].shape.iter().map(|&extent| Some(i64::from(extent))).collect(),
            // An address says nothing of a length.
            Memory::Addressed(_) => vec![None],
        }
    }

    /// The size of an array along an axis.
    pub(super) fn size(&self, memory: Memory, axis: usize, span: Span) -> Item {
        match (self.shape(memory)[axis], memory) {
            (Some(size), _) => Item::Fixed(Fixed::int(i128::from(size))),
            (None, Memory::Param(at)) => {
                let dtype = self.arrays.get(&at).map_or(IndexType::I32, |operand| operand.index).dtype();
                Item::Value(Expression { kind: ExpressionKind::Size(at, axis as u32), dtype, uniform: true, span })
            }
            (None, Memory::Allocation(_) | Memory::Addressed(_)) => Item::Fixed(Fixed::int(1)),
        }
    }

    fn attribute(&mut self, expr: &Expr, base: &Expr, member: &str, span: Span) -> Res<Item> {
        if let Some(definition) = self.file.elsewhere(expr).filter(|_| !self.is_local(base)) {
            return self.defined(definition, span);
        }
        if let Some(path) = self.file.path_of(expr).filter(|_| !self.is_local(base)) {
            if path.starts_with("tessera.tile.") {
                return Err(super::calls::unknown_function(member, span));
            }
            return Ok(Item::Fixed(fixed::of_path(&path)));
        }
        let at = self.at(base)?;
        match (&at.0, member) {
            (Item::Array(memory), "shape") if !matches!(memory, Memory::Addressed(_)) => Ok(Item::Shape(*memory)),
            (Item::Array(memory), "dtype") => Ok(Item::Fixed(Fixed::DType(self.array(*memory).0))),
            (Item::Array(memory), "ndim") => Ok(Item::Fixed(Fixed::int(self.shape(*memory).len() as i128))),
            (Item::Value(value), "dtype") => Ok(Item::Fixed(Fixed::DType(value.dtype))),
            (item, _) => Err(Box::new(
                Diagnostic::error(id::UNKNOWN_ATTRIBUTE, span, format!("there is no attribute `{member}`"))
                    .also(at.1, format!("this is {}", item.describe()))
                    .help("arrays have `shape`, `dtype` and `ndim`"),
            )),
        }
    }

    /// The bits of a value as another type of the same width.
    pub(super) fn bitcast(&mut self, at: &At, dtype: DType) -> Res<Item> {
        let Item::Value(value) = &at.0 else { return Err(value::not_a_value(at)) };
        let whole = |dtype: DType| matches!(dtype.bits(), 16 | 32 | 64) && !is_restricted(dtype);
        if value.dtype.bits() != dtype.bits() || !whole(value.dtype) || !whole(dtype) {
            let (from, to) = (dtype_name(value.dtype), dtype_name(dtype));
            return Err(Box::new(
                Diagnostic::error(id::PROMOTION, at.1, format!("the bits of {from} are none of {to}"))
                    .label(format!("this is {}", at.0.describe()))
                    .help("types of one width, 16, 32 or 64 bits, exchange bits; `tile.cast` converts values"),
            ));
        }
        let (uniform, span) = (value.uniform, value.span);
        Ok(Item::Value(Expression { kind: ExpressionKind::Bits(Box::new(value.clone())), dtype, uniform, span }))
    }

    /// The value in a type that the source names.
    pub(super) fn cast(&mut self, at: &At, dtype: DType) -> Res<Item> {
        match &at.0 {
            Item::Value(value) => Ok(Item::Value(readable(convert(value.clone(), dtype)))),
            Item::Fixed(Fixed::Num(number)) => value::constant(*number, dtype, at.1).map(readable).map(Item::Value),
            _ => Err(value::not_a_value(at)),
        }
    }
}
