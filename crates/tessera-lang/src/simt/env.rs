//! Names: what they stand for at one place of a kernel, and what is known after branches and loops.

use std::rc::Rc;
use std::sync::Arc;

use indexmap::{IndexMap, IndexSet};
use tessera_ir::{Diagnostic, Span};
use tessera_types::DType;

use super::program::{Expression, ExpressionKind, Memory, Statement};
use super::sequence::{Kind, has_number, in_ir, kept_iterator, part, sequence_of};
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
    /// A sequence of which a part is no compile-time value. What its values are does not change once it is made.
    Items(Kind, Rc<[Item]>),
}

/// The body of a loop that runs, as far as it has been walked.
#[derive(Clone, Debug)]
pub(super) struct Body {
    /// The first of its blocks of statements: what earlier ones bound comes from outside.
    pub(super) first: usize,
    /// Names that it has read and that come from outside, with the frame that they are of.
    pub(super) read: IndexSet<(usize, String)>,
}

/// What a name stands for.
#[derive(Clone, Debug)]
pub(super) enum Entry {
    /// Something that is known when the kernel is compiled, with the block of statements that bound it.
    Item(Item, usize),
    /// A variable.
    Local,
    /// A sequence of so many items, each of which is bound by itself, to `name[0]`, `name[1]`, ...; with the block that bound it.
    Parts(Kind, usize, usize),
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

/// How often statements assign each name: a loop's target counts twice, as what is changed does.
pub(super) fn count(stmts: &[Stmt], assigned: &mut IndexMap<String, u32>) {
    for stmt in stmts {
        match &stmt.kind {
            StmtKind::Assign(targets, _) => targets.iter().for_each(|one| count_target(one, 1, assigned)),
            // An augmented assignment and a loop change what is already there.
            StmtKind::AugAssign(one, ..) => count_target(one, 2, assigned),
            StmtKind::AnnAssign(one, _, Some(_)) => count_target(one, 1, assigned),
            StmtKind::For { target: one, body, .. } => {
                count_target(one, 2, assigned);
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

fn count_target(target: &Expr, times: u32, assigned: &mut IndexMap<String, u32>) {
    match &target.kind {
        ExprKind::Name(name) => *assigned.entry(name.clone()).or_insert(0) += times,
        ExprKind::Tuple(items) | ExprKind::List(items) => items.iter().for_each(|item| count_target(item, times, assigned)),
        ExprKind::Starred(inner) => count_target(inner, times, assigned),
        _ => {}
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
            Item::Items(kind, items) => kind.describe(items.len()),
        }
    }

    /// True where both are one value, whatever happens at run time.
    pub(super) fn same(&self, other: &Item) -> bool {
        match (self, other) {
            (Item::Fixed(a), Item::Fixed(b)) => a == b,
            (Item::Array(a), Item::Array(b)) | (Item::Shape(a), Item::Shape(b)) => a == b,
            (Item::Context, Item::Context) => true,
            (Item::Value(a), Item::Value(b)) => {
                matches!((&a.kind, &b.kind), (ExpressionKind::Local(x), ExpressionKind::Local(y)) if x == y)
            }
            (Item::Items(one, a), Item::Items(other, b)) => {
                one == other && a.len() == b.len() && a.iter().zip(b.iter()).all(|(a, b)| a.same(b))
            }
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
            Some(Entry::Item(item, block)) => {
                let outside = self.bodies.iter_mut().filter(|body| *block < body.first);
                for body in outside {
                    body.read.insert((at, name.to_string()));
                }
                Ok(Some(item.clone()))
            }
            Some(&Entry::Parts(kind, count, _)) => {
                let mut items = Vec::new();
                for position in 0..count {
                    items.extend(self.bound(at, &part(name, position), span)?);
                }
                Ok(Some(kind.of(items)))
            }
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
        // A part of a sequence is assigned as often as the name of the whole.
        let whole = name.split('[').next().unwrap_or(name);
        let once = self.frame().assigned.get(whole).copied().unwrap_or(0) <= 1;
        let value = match item {
            Item::Value(value) => value,
            Item::Fixed(Fixed::Num(number)) if !once => self.constant_of(number, span)?,
            Item::Items(Kind::Iterator, _) | Item::Fixed(Fixed::Iterator(_)) => return Err(kept_iterator(span)),
            Item::Items(kind, items) => return self.bind_parts(name, kind, &items, span),
            Item::Fixed(ref fixed @ (Fixed::Tuple(_) | Fixed::List(_))) if !once && has_number(fixed) => {
                let (kind, items) = sequence_of(&item).unwrap_or((Kind::Tuple, Vec::new()));
                return self.bind_parts(name, kind, &items, span);
            }
            item => {
                if let Item::Array(Memory::Allocation(at)) = item {
                    let own = &mut self.allocations[at].name;
                    if own.is_empty() {
                        *own = in_ir(name);
                    }
                }
                if matches!(self.frame().names.get(name), Some(Entry::Local)) || self.clashes(name, Some(&item)) {
                    return Err(was_else(name, &format!("now it is {}", item.describe()), span));
                }
                let entry = Entry::Item(item, self.block);
                self.frame().names.insert(name.to_string(), entry);
                return Ok(());
            }
        };
        if self.hides(name) {
            return Err(was_else(name, "now it is a number", span));
        }
        let (position, dtype) = self.variable(name, value.dtype, value.uniform, span)?;
        let value = super::value::convert(value, dtype);
        self.out.push(Statement::Assign(position, value));
        Ok(())
    }

    /// `name = (a, b)`: each item is bound by itself, so that branches and loops change it as they change any variable.
    fn bind_parts(&mut self, name: &str, kind: Kind, items: &[Item], span: Span) -> Res<()> {
        let before = self.frame().names.get(name).cloned();
        let is_alike = matches!(before, Some(Entry::Parts(own, count, _)) if own == kind && count == items.len());
        if !is_alike && (matches!(before, Some(Entry::Local)) || self.clashes(name, None)) {
            return Err(was_else(name, &format!("now it is {}", kind.describe(items.len())), span));
        }
        for (position, item) in items.iter().enumerate() {
            self.bind(&part(name, position), item.clone(), span)?;
        }
        if !is_alike {
            let entry = Entry::Parts(kind, items.len(), self.block);
            self.frame().names.insert(name.to_string(), entry);
        }
        Ok(())
    }

    /// True where a name stands for something else that another path or round may still see: what the same block of statements bound
    /// is over.
    pub(super) fn clashes(&mut self, name: &str, item: Option<&Item>) -> bool {
        let (inside, block) = (self.branches > 0 || self.loops > 0, self.block);
        match self.frame().names.get(name) {
            Some(Entry::Item(before, at)) => inside && *at != block && !item.is_some_and(|item| before.same(item)),
            Some(Entry::Parts(_, _, at)) => inside && *at != block,
            Some(Entry::Local | Entry::Maybe(_)) | None => false,
        }
    }

    /// True where a name stands for something else that a loop's body has read from outside of it: the next round would read what this one binds.
    pub(super) fn is_read_again(&mut self, name: &str, item: Option<&Item>) -> bool {
        let key = (self.frames.len() - 1, name.to_string());
        let Some(Entry::Item(before, block)) = self.frames[key.0].names.get(name) else { return false };
        let is_same = item.is_some_and(|item| before.same(item));
        !is_same && self.bodies.iter().any(|body| *block < body.first && body.read.contains(&key))
    }

    /// True where a variable of this name would hide what another path or round may still see: a number that is known, as that of a loop that was
    /// unrolled, if a round reads it before.
    pub(super) fn hides(&mut self, name: &str) -> bool {
        match self.frame().names.get(name) {
            Some(Entry::Item(Item::Fixed(Fixed::Num(_)), _)) => self.is_read_again(name, None),
            _ => self.clashes(name, None),
        }
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
                        (Some(Entry::Item(x, at)), Some(Entry::Item(y, _))) if x.same(y) => Entry::Item(x.clone(), *at),
                        (Some(&Entry::Parts(kind, count, at)), Some(&Entry::Parts(own, other, _)))
                            if kind == own && count == other =>
                        {
                            Entry::Parts(kind, count, at)
                        }
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

/// The refusal to give a name another meaning where an older one may still be seen.
pub(super) fn was_else(name: &str, now: &str, span: Span) -> Box<Diagnostic> {
    Box::new(
        Diagnostic::error(id::PATH_TYPE, span, format!("`{name}` was something else before"))
            .label(now)
            .help("only numbers, and tuples of as many items, change while a kernel runs: use another name"),
    )
}
