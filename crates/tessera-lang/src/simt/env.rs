//! Names: what they stand for at one place of a kernel, and what is known after branches and loops.

use std::rc::Rc;
use std::sync::Arc;

use indexmap::IndexMap;
use tessera_ir::{Diagnostic, Span};
use tessera_types::DType;

use super::program::{Expression, ExpressionKind, Memory, Statement};
use super::{Check, Held, Settled};
use crate::ast::{Expr, ExprKind, Function, Stmt, StmtKind};
use crate::diagnostics::id;
use crate::file::ParsedFile;
use crate::fixed::Fixed;
use crate::lower::Res;
use crate::number::Num;
use crate::promote::{dtype_name, promote};
use crate::scopes::{Closure, Scope, Scopes};

/// What an expression is.
#[derive(Clone, Debug)]
pub(super) enum Item {
    Fixed(Fixed),
    Value(Expression),
    Array(Memory),
    /// Sizes of an array.
    Shape(Memory),
    Context,
    Function(Rc<Closure<Item>>),
}

/// What a name stands for.
#[derive(Clone, Debug)]
pub(super) enum Entry {
    /// Something that is known when the kernel is compiled.
    Item(Item),
    /// A variable.
    Local,
    /// Not on every path.
    Maybe(Span),
}

/// Names of one function.
pub(super) struct Frame {
    pub(super) scope: Scope,
    /// What distinguishes its variables from those of other calls.
    pub(super) prefix: String,
    pub(super) names: IndexMap<String, Entry>,
    /// How often each name is assigned in the text.
    assigned: IndexMap<String, u32>,
}

impl Frame {
    /// A call of a function.
    pub(super) fn new(scope: Scope, prefix: String, function: &Function) -> Frame {
        let mut assigned = IndexMap::new();
        count(&function.body, &mut assigned);
        Frame { scope, prefix, names: IndexMap::new(), assigned }
    }

    /// Counts a parameter's argument as an assignment; true when the function assigns to it too.
    pub(super) fn parameter(&mut self, name: &str) -> bool {
        match self.assigned.get_mut(name) {
            Some(times) => {
                *times += 1;
                true
            }
            None => false,
        }
    }
}

fn count(stmts: &[Stmt], assigned: &mut IndexMap<String, u32>) {
    let target = |target: &Expr, times: u32, assigned: &mut IndexMap<String, u32>| match &target.kind {
        ExprKind::Name(name) => *assigned.entry(name.clone()).or_insert(0) += times,
        ExprKind::Tuple(items) | ExprKind::List(items) => {
            for item in items {
                if let ExprKind::Name(name) = &item.kind {
                    *assigned.entry(name.clone()).or_insert(0) += times;
                }
            }
        }
        _ => {}
    };
    for stmt in stmts {
        match &stmt.kind {
            StmtKind::Assign(targets, _) => targets.iter().for_each(|one| target(one, 1, assigned)),
            // An augmented assignment and a loop change what is already there.
            StmtKind::AugAssign(one, ..) => target(one, 2, assigned),
            StmtKind::AnnAssign(one, _, Some(_)) => target(one, 1, assigned),
            StmtKind::For { target: one, body, .. } => {
                target(one, 2, assigned);
                count(body, assigned);
            }
            StmtKind::While { body, .. } => count(body, assigned),
            StmtKind::If { body, orelse, .. } => {
                count(body, assigned);
                count(orelse, assigned);
            }
            _ => {}
        }
    }
}

impl Item {
    /// What it is, for messages.
    pub(super) fn describe(&self) -> String {
        match self {
            Item::Fixed(value) => value.describe(),
            Item::Value(value) => format!("a {} value", dtype_name(value.dtype)),
            Item::Array(_) => "an array".to_string(),
            Item::Shape(_) => "the sizes of an array".to_string(),
            Item::Context => "a context".to_string(),
            Item::Function(closure) => format!("the function `{}`", closure.function.name.name),
        }
    }

    fn same(&self, other: &Item) -> bool {
        match (self, other) {
            (Item::Fixed(a), Item::Fixed(b)) => a == b,
            (Item::Array(a), Item::Array(b)) | (Item::Shape(a), Item::Shape(b)) => a == b,
            (Item::Context, Item::Context) => true,
            (Item::Function(a), Item::Function(b)) => {
                let default = |pair: (&Option<Item>, &Option<Item>)| match pair {
                    (Some(a), Some(b)) => a.same(b),
                    (a, b) => a.is_none() && b.is_none(),
                };
                Arc::ptr_eq(&a.function, &b.function) && a.scope == b.scope && a.defaults.iter().zip(&b.defaults).all(default)
            }
            _ => false,
        }
    }
}

impl Scopes for Check<'_> {
    type Item = Item;

    const KERNEL: &'static str = "a per-thread kernel";

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
        self.frames[at].names.contains_key(name)
    }

    fn bound(&mut self, at: usize, name: &str, span: Span) -> Res<Option<Item>> {
        let frame = &self.frames[at];
        match frame.names.get(name) {
            Some(Entry::Item(item)) => Ok(Some(item.clone())),
            Some(Entry::Local) => {
                let key = format!("{}/{name}", frame.prefix);
                Ok(Some(self.local(&key, span)))
            }
            Some(Entry::Maybe(place)) => Err(Box::new(
                Diagnostic::error(id::MAYBE_UNDEFINED, span, format!("`{name}` is not assigned on every path that leads here"))
                    .label("used here")
                    .also(*place, "assigned on some path")
                    .help(format!("assign `{name}` before the branch or loop")),
            )),
            None => Ok(None),
        }
    }

    fn of_fixed(value: Fixed) -> Item {
        Item::Fixed(value)
    }

    fn of_function(closure: Rc<Closure<Item>>) -> Item {
        Item::Function(closure)
    }
}

impl Check<'_> {
    pub(super) fn frame(&mut self) -> &mut Frame {
        self.frames.last_mut().expect("a frame exists while a function is checked")
    }

    /// A variable's value.
    fn local(&mut self, key: &str, span: Span) -> Item {
        let (dtype, uniform) = self.settled.get(key).map_or((DType::F32, true), |own| (own.dtype, own.uniform));
        let position = self.position(key);
        Item::Value(Expression { kind: ExpressionKind::Local(position), dtype, uniform, span })
    }

    /// A variable without a name.
    pub(super) fn unnamed(&mut self, dtype: DType, uniform: bool, span: Span) -> (usize, Expression) {
        let position = self.locals.len();
        self.locals.insert(format!("#{position}"), Held::Once { dtype, uniform });
        (position, Expression { kind: ExpressionKind::Local(position), dtype, uniform, span })
    }

    /// The value, computed here and now: what touches memory or other threads is done once, in the order of the text.
    pub(super) fn now(&mut self, value: Expression) -> Expression {
        let (position, local) = self.unnamed(value.dtype, value.uniform, value.span);
        self.out.push(Statement::Assign(position, value));
        local
    }

    /// Walks something that only some threads may come to; yields it with its statements.
    pub(super) fn apart<T>(
        &mut self,
        condition: &Expression,
        work: impl FnOnce(&mut Self) -> Res<T>,
    ) -> Res<(T, Vec<Statement>)> {
        let (outside, divergent) = (std::mem::take(&mut self.out), self.divergent);
        if !condition.uniform {
            self.divergent.get_or_insert(condition.span);
        }
        self.branches += 1;
        let result = work(self);
        self.branches -= 1;
        self.divergent = divergent.or(self.ended).or(self.strayed);
        let statements = std::mem::replace(&mut self.out, outside);
        Ok((result?, statements))
    }

    fn key(&mut self, name: &str) -> String {
        format!("{}/{name}", self.frame().prefix)
    }

    fn position(&mut self, key: &str) -> usize {
        let entry = self.locals.entry(key.to_string());
        let position = entry.index();
        entry.or_insert(Held::Named);
        position
    }

    /// Makes a name a variable of at least this type; yields its position and its type.
    pub(super) fn variable(&mut self, name: &str, dtype: DType, uniform: bool, span: Span) -> Res<(usize, DType)> {
        let uniform = uniform && self.divergent.is_none();
        let key = self.key(name);
        let settled = match self.settled.get(&key) {
            None => Settled { dtype, uniform, span },
            Some(own) => match promote(own.dtype, dtype) {
                Some(common) => Settled { dtype: common, uniform: uniform && own.uniform, span: own.span },
                None => {
                    let message = format!("`{name}` is {} here and {} elsewhere", dtype_name(dtype), dtype_name(own.dtype));
                    return Err(Box::new(
                        Diagnostic::error(id::PATH_TYPE, span, message)
                            .also(own.span, format!("{} here", dtype_name(own.dtype)))
                            .help("a variable has one type: convert with `tile.cast(x, dtype)`"),
                    ));
                }
            },
        };
        let dtype = settled.dtype;
        self.settled.insert(key.clone(), settled);
        self.frame().names.insert(name.to_string(), Entry::Local);
        Ok((self.position(&key), dtype))
    }

    /// `name = item`.
    pub(super) fn bind(&mut self, name: &str, item: Item, span: Span) -> Res<()> {
        let inside = self.branches > 0 || self.loops > 0;
        let once = self.frame().assigned.get(name).copied().unwrap_or(0) <= 1;
        let value = match item {
            Item::Value(value) => value,
            Item::Fixed(Fixed::Num(number)) if !once => self.constant_of(number, span)?,
            item => {
                if let Item::Array(Memory::Allocation(at)) = item {
                    let own = &mut self.allocations[at].name;
                    if own.is_empty() {
                        *own = name.to_string();
                    }
                }
                let clash = match self.frame().names.get(name) {
                    Some(Entry::Local) => true,
                    Some(Entry::Item(before)) => !before.same(&item) && inside,
                    Some(Entry::Maybe(_)) | None => false,
                };
                if clash {
                    return Err(Box::new(
                        Diagnostic::error(id::PATH_TYPE, span, format!("`{name}` was something else before"))
                            .label(format!("now it is {}", item.describe()))
                            .help("only numbers change while a kernel runs: use another name"),
                    ));
                }
                self.frame().names.insert(name.to_string(), Entry::Item(item));
                return Ok(());
            }
        };
        if let Some(Entry::Item(before)) = self.frame().names.get(name)
            && !matches!(before, Item::Fixed(Fixed::Num(_)))
            && inside
        {
            let before = before.describe();
            return Err(Box::new(
                Diagnostic::error(id::PATH_TYPE, span, format!("`{name}` was something else before"))
                    .label(format!("now a number; before, {before}"))
                    .help("use another name"),
            ));
        }
        let (position, dtype) = self.variable(name, value.dtype, value.uniform, span)?;
        let value = super::value::convert(value, dtype);
        self.out.push(Statement::Assign(position, value));
        Ok(())
    }

    /// Makes variables of the parameters that the kernel assigns to.
    pub(super) fn reassigned_parameters(&mut self) -> Res<()> {
        let params: Vec<(String, Item)> = self.params.iter().map(|(name, item)| (name.clone(), item.clone())).collect();
        let at = Span { source: self.file.source, start: 0, end: 0 };
        for (name, item) in params {
            if self.frame().parameter(&name) {
                let span = if let Item::Value(value) = &item { value.span } else { at };
                self.bind(&name, item, span)?;
            }
        }
        Ok(())
    }

    /// A number as a value of its own type.
    pub(super) fn constant_of(&self, number: Num, span: Span) -> Res<Expression> {
        let dtype =
            crate::promote::literal_dtype(number).ok_or_else(|| super::value::out_of_range(number, "any integer type", span))?;
        super::value::constant(number, dtype, span)
    }

    /// Names after two paths meet; `None` for a path that ends before.
    pub(super) fn meet(&mut self, paths: [Option<IndexMap<String, Entry>>; 2], place: Span) {
        let merged = match paths {
            [None, None] => return,
            [Some(one), None] | [None, Some(one)] => one,
            [Some(a), Some(b)] => {
                let mut merged = IndexMap::new();
                for name in a.keys().chain(b.keys().filter(|name| !a.contains_key(*name))) {
                    let entry = match (a.get(name), b.get(name)) {
                        (Some(Entry::Local), Some(Entry::Local)) => Entry::Local,
                        (Some(Entry::Item(x)), Some(Entry::Item(y))) if x.same(y) => Entry::Item(x.clone()),
                        (Some(Entry::Maybe(place)), _) | (_, Some(Entry::Maybe(place))) => Entry::Maybe(*place),
                        _ => Entry::Maybe(place),
                    };
                    merged.insert(name.clone(), entry);
                }
                merged
            }
        };
        self.frame().names = merged;
    }
}
