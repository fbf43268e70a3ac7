//! Calls: functions of `tile`, Python's built-ins, functions of the file.

use tessera_ir::{Diagnostic, Span};
use tessera_types::{Arch, DType};

use super::env::{Entry, Frame, Item};
use super::functions::{self, Function};
use super::memory::dtype_of;
use super::program::{Binary, Expression, ExpressionKind, Identity, Role, Shuffle, Space, Statement};
use super::sequence::has_number;
use super::stmts::unsupported;
use super::value::{self, At, convert, unify};
use super::{Check, Res};
use crate::ast::{self, Arg, Expr, ExprKind, StmtKind};
use crate::diagnostics::id;
use crate::file::Moment;
use crate::fixed::{self, Fixed};
use crate::scopes::{Closure, Scope, Scopes};
use crate::written;

pub(super) fn unknown_function(name: &str, span: Span) -> Box<Diagnostic> {
    Box::new(
        Diagnostic::error(id::UNKNOWN_ATTRIBUTE, span, format!("`tile` has no `{name}`"))
            .label("not a function of per-thread kernels")
            .help(format!("there are {}", functions::names())),
    )
}

/// Functions that make something of elements are given their type in brackets, no others are.
fn element_type_fits(function: Function, name: &str, subscript: Option<&Expr>, span: Span) -> Res<()> {
    let allocates = matches!(function, Function::AllocShared | Function::AllocRegister | Function::Fragment | Function::ArrayAt);
    match subscript {
        Some(index) if !allocates => {
            Err(Box::new(Diagnostic::error(id::CALL, index.span, format!("`tile.{name}` takes no element type"))))
        }
        None if allocates => Err(Box::new(
            Diagnostic::error(id::CALL, span, format!("`tile.{name}` needs an element type"))
                .help(format!("write `tile.{name}[fp32](...)`")),
        )),
        _ => Ok(()),
    }
}

/// `x * y + z`, rounded once.
fn fma([a, b, c]: &[At; 3], span: Span) -> Res<Item> {
    let (x, y) = unify(a, b, true)?;
    let (x, z) = unify(&(Item::Value(x), a.1), c, true)?;
    let y = convert(y, x.dtype);
    let (dtype, uniform) = (x.dtype, x.uniform && y.uniform && z.uniform);
    Ok(Item::Value(Expression { kind: ExpressionKind::Fma(Box::new([x, y, z])), dtype, uniform, span }))
}

impl Check<'_> {
    pub(super) fn call(&mut self, expr: &Expr, function: &Expr, args: &[Arg]) -> Res<Item> {
        let span = expr.span;
        // `tile.alloc_shared[dtype](n)`
        let (named, subscript) = match &function.kind {
            ExprKind::Subscript(base, index) => (&**base, Some(&**index)),
            _ => (function, None),
        };
        if let ExprKind::Attribute(base, member) = &named.kind
            && (self.is_local(base) || self.file.elsewhere(named).is_none())
        {
            if !self.is_local(base)
                && let Some(path) = self.file.path_of(named)
            {
                if let Some(name) = path.strip_prefix("math.") {
                    return self.math(name, args, span);
                }
                let Some(name) = path.strip_prefix("tessera.tile.") else {
                    return Err(Box::new(
                        Diagnostic::error(id::UNKNOWN_NAME, named.span, format!("`{path}` is not available here"))
                            .help("functions of per-thread kernels are members of `tile`"),
                    ));
                };
                let Some((signature, function)) = functions::find(name) else {
                    return Err(unknown_function(name, member.span));
                };
                let bound = written::arguments(&format!("tile.{name}"), signature, args, span)?;
                return self.call_tile(function, name, subscript, &bound, span);
            }
            if subscript.is_none() {
                let receiver = self.at(base)?;
                let Item::Fixed(value) = &receiver.0 else {
                    return Err(Box::new(
                        Diagnostic::error(id::UNKNOWN_ATTRIBUTE, member.span, format!("there is no method `{}`", member.name))
                            .also(receiver.1, format!("this is {}", receiver.0.describe())),
                    ));
                };
                let mut given = Vec::new();
                for arg in args {
                    given.push(self.fixed(&arg.value, "an argument of this method")?);
                }
                return fixed::method(value, member, &given, span).map(Item::Fixed);
            }
        }
        if let ExprKind::Name(name) = &function.kind
            && self.is_python(name, function)
            && let Some(result) = self.builtin(name, args, span)?
        {
            return Ok(result);
        }
        match self.expr(function)? {
            Item::Function(closure) => self.inline(&closure, args, span),
            // `from math import sqrt`
            Item::Fixed(Fixed::Path(path)) if path.starts_with("math.") => self.math(&path["math.".len()..], args, span),
            other => Err(Box::new(
                Diagnostic::error(id::NOT_CALLABLE, function.span, "this is not a function")
                    .label(format!("it is {}", other.describe())),
            )),
        }
    }

    /// True for a name that neither a variable nor the module has, and so is Python's.
    pub(super) fn is_python(&mut self, name: &str, at: &Expr) -> bool {
        !self.is_local(at) && self.file.global(name, Moment::end(at.span.source)).is_none()
    }

    /// Calls a function of `tile`, its arguments bound to its parameters.
    fn call_tile(
        &mut self,
        function: Function,
        name: &str,
        subscript: Option<&Expr>,
        bound: &[Vec<&Expr>],
        span: Span,
    ) -> Res<Item> {
        element_type_fits(function, name, subscript, span)?;
        let first = bound.first().and_then(|group| group.first().copied());
        let identity = |kind: Identity, dtype: DType, uniform: bool| {
            Ok(Item::Value(Expression { kind: ExpressionKind::Identity(kind), dtype, uniform, span }))
        };
        match function {
            Function::Context => Ok(Item::Context),
            Function::LaneId => identity(Identity::Lane, DType::I32, false),
            Function::WarpId => identity(Identity::Warp, DType::I32, false),
            // A position in the whole grid passes 2^31 where arrays do.
            Function::LinearId => identity(Identity::Linear, DType::I64, false),
            Function::ThreadId => identity(Identity::Thread(self.axis(first)?), DType::I32, false),
            Function::BlockId => identity(Identity::Block(self.axis(first)?), DType::I32, true),
            Function::NumBlocks => identity(Identity::Blocks(self.axis(first)?), DType::I32, true),
            Function::BlockSize => {
                let axis = self.axis(first)?;
                Ok(Item::Fixed(Fixed::int(i128::from(if axis == 0 { self.threads } else { 1 }))))
            }
            Function::AllocShared => self.allocate(Space::Shared, subscript, &bound[0], span),
            Function::AllocRegister => self.allocate(Space::Register, subscript, &bound[0], span),
            Function::Fragment => {
                let role = self.role(first, span)?;
                self.allocate(Space::Fragment(role), subscript, &[], span)
            }
            Function::ArrayAt => self.array_at(subscript, bound, span),
            Function::Load => self.load_ordered(bound, span),
            Function::Store => self.store_ordered(bound, span),
            Function::Barrier => self.barrier(span),
            Function::CommitGroup => {
                self.out.push(Statement::CommitGroup);
                Ok(Item::Fixed(Fixed::None))
            }
            Function::WaitGroup => {
                let pending = first.map_or(Ok(0), |expr| self.count_of(expr, "the number of groups", 0..=7))?;
                self.out.push(Statement::WaitGroup(pending));
                Ok(Item::Fixed(Fixed::None))
            }
            Function::CopyAsync => self.copy_async(bound, span),
            Function::AtomicAdd
            | Function::AtomicMax
            | Function::AtomicMin
            | Function::AtomicAnd
            | Function::AtomicOr
            | Function::AtomicXor
            | Function::AtomicExchange
            | Function::AtomicCas => self.atomic(function, name, bound, span),
            Function::FragmentFill
            | Function::FragmentLoad
            | Function::FragmentStore
            | Function::FragmentMma
            | Function::FragmentMmaSparse => self.fragment(function, bound, span),
            Function::WarpReduce(combine) => {
                self.whole_warps(name, span)?;
                let [at] = self.operands(bound, span)?;
                let value = self.scalar(&at)?;
                let dtype = value.dtype;
                let kind = ExpressionKind::WarpReduce(combine, Box::new(value));
                Ok(Item::Value(self.now(Expression { kind, dtype, uniform: false, span })))
            }
            Function::Shuffle(kind) => {
                self.whole_warps(name, span)?;
                let [at, lane] = self.operands(bound, span)?;
                self.exchange(kind, &at, &lane, span)
            }
            Function::MatchAny => {
                self.whole_warps(name, span)?;
                let [at] = self.operands(&bound[..1], span)?;
                let bits = bound[1].first().map_or(Ok(32), |expr| self.count_of(expr, "the number of bits", 1..=32))?;
                let kind = ExpressionKind::MatchAny(bits, Box::new(self.int32(name, &at)?));
                Ok(Item::Value(self.now(Expression { kind, dtype: DType::I32, uniform: false, span })))
            }
            Function::Popcount => {
                let [at] = self.operands(bound, span)?;
                let value = self.int32(name, &at)?;
                let (uniform, kind) = (value.uniform, ExpressionKind::Popcount(Box::new(value)));
                Ok(Item::Value(Expression { kind, dtype: DType::I32, uniform, span }))
            }
            Function::Unary(unary) => self.operands(bound, span).and_then(|[at]| value::unary(unary, name, &at, span)),
            Function::Max => self.operands(bound, span).and_then(|[a, b]| value::binary(Binary::Max, name, &a, &b, span)),
            Function::Min => self.operands(bound, span).and_then(|[a, b]| value::binary(Binary::Min, name, &a, &b, span)),
            Function::Pow => self.operands(bound, span).and_then(|[a, b]| self.power(name, &a, &b, span)),
            Function::Fma => self.operands(bound, span).and_then(|factors| fma(&factors, span)),
            Function::Where => {
                let written = |position: usize| bound.get(position).and_then(|group| group.first().copied());
                let (Some(condition), Some(x), Some(y)) = (written(0), written(1), written(2)) else {
                    return Ok(Item::Fixed(Fixed::None));
                };
                let at = self.at(condition)?;
                self.choose(&at, x, y, span)
            }
            Function::Cast => {
                let [at, dtype] = self.operands(bound, span)?;
                self.cast(&at, dtype_of(&dtype)?)
            }
            Function::Bitcast => {
                let [at, dtype] = self.operands(bound, span)?;
                self.bitcast(&at, dtype_of(&dtype)?)
            }
        }
    }

    /// The first arguments of a call, evaluated in order; what was not given is Python's `None`.
    fn operands<const N: usize>(&mut self, bound: &[Vec<&Expr>], span: Span) -> Res<[At; N]> {
        let mut items = std::array::from_fn(|_| (Item::Fixed(Fixed::None), span));
        for (item, group) in items.iter_mut().zip(bound) {
            if let Some(expr) = group.first() {
                *item = self.at(expr)?;
            }
        }
        Ok(items)
    }

    /// Lanes exchange values within their warps: each must be there.
    fn whole_warps(&self, name: &str, span: Span) -> Res<()> {
        if self.threads.is_multiple_of(Arch::WARP) {
            return Ok(());
        }
        Err(Box::new(
            Diagnostic::error(id::BLOCK_SIZE, span, format!("`tile.{name}` needs whole warps"))
                .label(format!("a block has {} threads", self.threads))
                .help("choose a multiple of 32 threads a block"),
        ))
    }

    /// What a fragment is in a product.
    fn role(&mut self, written: Option<&Expr>, span: Span) -> Res<Role> {
        match written.map(|expr| self.fixed(expr, "the role of a fragment")).transpose()? {
            Some(Fixed::Str(text)) if &*text == "a" => Ok(Role::A),
            Some(Fixed::Str(text)) if &*text == "b" => Ok(Role::B),
            Some(Fixed::Str(text)) if &*text == "accumulator" => Ok(Role::Accumulator),
            Some(Fixed::Str(text)) if &*text == "places" => Ok(Role::Places),
            _ => Err(Box::new(
                Diagnostic::error(id::VALUE_RANGE, span, "a fragment is `\"a\"`, `\"b\"`, `\"accumulator\"` or `\"places\"`")
                    .help("write `tile.fragment[fp16](\"a\")`"),
            )),
        }
    }

    fn barrier(&mut self, span: Span) -> Res<Item> {
        if let Some(place) = self.divergent {
            return Err(Box::new(
                Diagnostic::error(id::DIVERGENT, span, "not every thread of the block may reach this barrier")
                    .label("threads would wait for ever")
                    .also(place, "threads of one block can disagree here")
                    .help("move the barrier out of the branch or loop"),
            ));
        }
        self.out.push(Statement::Barrier(span));
        Ok(Item::Fixed(Fixed::None))
    }

    /// A value of another lane of the warp.
    fn exchange(&mut self, kind: Shuffle, at: &At, lane: &At, span: Span) -> Res<Item> {
        let value = self.scalar(at)?;
        let from = match &lane.0 {
            Item::Value(from) if from.dtype.is_integer() => convert(from.clone(), DType::I32),
            Item::Fixed(Fixed::Num(number)) if number.as_int().is_some_and(|lane| (0..32).contains(&lane)) => {
                value::constant(*number, DType::I32, lane.1)?
            }
            other => {
                return Err(Box::new(
                    Diagnostic::error(id::ARGUMENT_TYPE, lane.1, "a lane is an integer from 0 to 31")
                        .label(format!("this is {}", other.describe())),
                ));
            }
        };
        let dtype = value.dtype;
        let kind = ExpressionKind::Shuffle(kind, Box::new([value, from]));
        Ok(Item::Value(self.now(Expression { kind, dtype, uniform: false, span })))
    }

    /// An integer of 32 bits.
    fn int32(&self, name: &str, at: &At) -> Res<Expression> {
        let value = self.scalar(at)?;
        if value.dtype.is_integer() && value.dtype.bits() == 32 {
            return Ok(value);
        }
        Err(Box::new(
            Diagnostic::error(id::ARGUMENT_TYPE, at.1, format!("`tile.{name}` takes an integer of 32 bits"))
                .label(format!("this is {}", at.0.describe())),
        ))
    }

    /// A number or run-time value as a value.
    fn scalar(&self, at: &At) -> Res<Expression> {
        match &at.0 {
            Item::Value(value) => Ok(value.clone()),
            Item::Fixed(Fixed::Num(number)) => self.constant_of(*number, at.1),
            _ => Err(value::not_a_value(at)),
        }
    }

    fn axis(&mut self, expr: Option<&Expr>) -> Res<u32> {
        expr.map_or(Ok(0), |expr| self.count_of(expr, "an axis", 0..=2))
    }

    /// A small integer known when the kernel is compiled.
    pub(super) fn count_of(&mut self, expr: &Expr, what: &str, range: std::ops::RangeInclusive<u32>) -> Res<u32> {
        let value = self.fixed(expr, what)?;
        match value.as_int().and_then(|value| u32::try_from(value).ok()).filter(|value| range.contains(value)) {
            Some(value) => Ok(value),
            None => Err(Box::new(
                Diagnostic::error(
                    id::VALUE_RANGE,
                    expr.span,
                    format!("{what} is an integer from {} to {}", range.start(), range.end()),
                )
                .label(format!("this is {}", value.describe())),
            )),
        }
    }

    /// Calls a function of the file: its body is walked in place.
    fn inline(&mut self, closure: &Closure<Item>, args: &[Arg], call: Span) -> Res<Item> {
        self.step(call)?;
        let callee = &closure.function;
        let bound = written::call(callee, args, call, self.frames.len(), unsupported)?;
        let prefix = format!("{}/{}@{}", self.frame().prefix, callee.name.name, call.start);
        self.calls += 1;
        let mut frame = Frame::new(Scope::new(self.calls, callee, closure.scope), prefix, callee);
        let mut values = Vec::new();
        for ((param, given), default) in callee.params.iter().zip(bound).zip(&closure.defaults) {
            let item = match (given.first(), default) {
                (Some(expr), _) => self.expr(expr)?,
                (None, Some(default)) => default.clone(),
                (None, None) => continue,
            };
            let assigned = frame.parameter(&param.name.name);
            match item {
                // What is made at run time is evaluated once, and what the function changes is a variable.
                Item::Value(_) | Item::Items(..) => values.push((param.name.name.clone(), item, param.name.span)),
                Item::Fixed(ref fixed) if assigned && has_number(fixed) => {
                    values.push((param.name.name.clone(), item, param.name.span));
                }
                item => {
                    frame.names.insert(param.name.name.clone(), Entry::Item(item, self.block));
                }
            }
        }
        let round = self.round.take();
        self.frames.push(frame);
        let result = self.inlined(&callee.body, values);
        self.frames.pop();
        self.round = round;
        result
    }

    fn inlined(&mut self, body: &[ast::Stmt], values: Vec<(String, Item, Span)>) -> Res<Item> {
        for (name, item, span) in values {
            self.bind(&name, item, span)?;
        }
        let (last, before) = match body.split_last() {
            Some((last, before)) if matches!(last.kind, StmtKind::Return(_)) => (Some(last), before),
            _ => (None, body),
        };
        self.stmts(before)?;
        match last.map(|stmt| &stmt.kind) {
            Some(StmtKind::Return(Some(value))) => self.expr(value),
            _ => Ok(Item::Fixed(Fixed::None)),
        }
    }
}
