//! Tuples and lists of values that are made at run time: structures of values, which exist only while the kernel is compiled.
//!
//! A name that stands for one is as many variables, so branches and loops change them as any others, as long as the items are as many:
//!
//! ```text
//! t = (x[i], 0)                       t[0] = x[i]; t[1] = 0
//! for k in range(n):                  for k in range(n):
//!     t = (t[1], t[0] + t[1])             #1 = t[1]; #2 = t[0] + t[1]; t[0] = #1; t[1] = #2
//! ```

use std::rc::Rc;

use tessera_ir::{Diagnostic, Span};

use super::env::Item;
use super::program::{Expression, ExpressionKind, Statement};
use super::value::{At, unify};
use super::{Check, Held, Res};
use crate::ast::{CompareOp, Expr, ExprKind};
use crate::diagnostics::id;
use crate::fixed::{self, Fixed};

/// What a sequence is in Python.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    Tuple,
    List,
    /// What `zip`, `enumerate` and `reversed` make.
    Iterator,
}

impl Kind {
    /// A sequence of this kind; a compile-time value where all items are.
    pub(super) fn of(self, items: Vec<Item>) -> Item {
        let known = |item: &Item| if let Item::Fixed(value) = item { Some(value.clone()) } else { None };
        match items.iter().map(known).collect::<Option<Rc<[Fixed]>>>() {
            Some(items) => Item::Fixed(match self {
                Kind::Tuple => Fixed::Tuple(items),
                Kind::List => Fixed::List(items),
                Kind::Iterator => Fixed::Iterator(items),
            }),
            None => Item::Items(self, items.into()),
        }
    }

    pub(super) fn describe(self, count: usize) -> String {
        let items = if count == 1 { "item" } else { "items" };
        match self {
            Kind::Tuple => format!("a tuple of {count} {items}"),
            Kind::List => format!("a list of {count} {items}"),
            Kind::Iterator => "an iterator".to_string(),
        }
    }
}

/// The name of an item of what a name stands for.
pub(super) fn part(name: &str, position: usize) -> String {
    format!("{name}[{position}]")
}

/// The name in the IR, whose names have no brackets.
pub(super) fn in_ir(name: &str) -> String {
    name.replace('[', "_").replace(']', "")
}

/// True where a number stands in it, at any depth.
pub(super) fn has_number(value: &Fixed) -> bool {
    match value {
        Fixed::Num(_) => true,
        other => other.items().is_some_and(|items| items.iter().any(has_number)),
    }
}

/// The items of a tuple or list.
pub(super) fn sequence_of(item: &Item) -> Option<(Kind, Vec<Item>)> {
    let fixed = |items: &[Fixed]| items.iter().cloned().map(Item::Fixed).collect();
    match item {
        Item::Items(kind @ (Kind::Tuple | Kind::List), items) => Some((*kind, items.to_vec())),
        Item::Fixed(Fixed::Tuple(items)) => Some((Kind::Tuple, fixed(items))),
        Item::Fixed(Fixed::List(items)) => Some((Kind::List, fixed(items))),
        _ => None,
    }
}

/// The refusal to keep what gives its items once.
pub(super) fn kept_iterator(span: Span) -> Box<Diagnostic> {
    Box::new(
        Diagnostic::error(id::ARGUMENT_TYPE, span, "an iterator is used where it is made, and not kept")
            .label("its items could be taken only once")
            .help("make a tuple of it: `tuple(...)`"),
    )
}

impl Check<'_> {
    /// The item with its values as they are now: a variable may be assigned again later.
    pub(super) fn held(&mut self, item: Item) -> Item {
        match item {
            Item::Value(value) => {
                let stays = match &value.kind {
                    ExpressionKind::Constant(_)
                    | ExpressionKind::Scalar(_)
                    | ExpressionKind::Size(..)
                    | ExpressionKind::Identity(_) => true,
                    ExpressionKind::Local(at) => matches!(self.locals.get_index(*at), Some((_, Held::Once { .. }))),
                    _ => false,
                };
                Item::Value(if stays { value } else { self.now(value) })
            }
            Item::Items(kind, items) => Item::Items(kind, items.iter().map(|item| self.held(item.clone())).collect()),
            item => item,
        }
    }

    /// The items of a display, with `*x` spread.
    pub(super) fn display(&mut self, exprs: &[Expr]) -> Res<Vec<Item>> {
        let mut items = Vec::new();
        for expr in exprs {
            if let ExprKind::Starred(inner) = &expr.kind {
                let inner = self.at(inner)?;
                for item in self.iterate(&inner)? {
                    items.push(self.held(item));
                }
                continue;
            }
            match self.expr(expr)? {
                Item::Items(Kind::Iterator, _) | Item::Fixed(Fixed::Iterator(_)) => return Err(kept_iterator(expr.span)),
                item => items.push(self.held(item)),
            }
        }
        Ok(items)
    }

    /// What iterating over it yields.
    pub(super) fn iterate(&mut self, at: &At) -> Res<Vec<Item>> {
        match &at.0 {
            Item::Items(_, items) => Ok(items.to_vec()),
            Item::Fixed(value) => Ok(value.iterate(at.1)?.iter().cloned().map(Item::Fixed).collect()),
            Item::Shape(memory) => Ok((0..self.shape(*memory).len()).map(|axis| self.size(*memory, axis, at.1)).collect()),
            other => Err(Box::new(
                Diagnostic::error(id::NOT_ITERABLE, at.1, format!("{} is not iterated over", other.describe()))
                    .label("expected a `range`, a tuple or a list")
                    .help("write `for i in range(start, stop, step)`"),
            )),
        }
    }

    /// Assigns the items of a value to targets, of which one with a `*` takes what the others leave.
    pub(super) fn unpack(&mut self, targets: &[Expr], at: &At, span: Span) -> Res<Vec<Item>> {
        let refuse = |found: String| {
            let message = format!("{} names are assigned from something else", targets.len());
            Err(Box::new(Diagnostic::error(id::UNPACK, span, message).also(at.1, format!("this is {found}"))))
        };
        let is_sequence = matches!(&at.0, Item::Items(..) | Item::Shape(_))
            || matches!(&at.0, Item::Fixed(value) if !matches!(value, Fixed::Num(_) | Fixed::None | Fixed::DType(_) | Fixed::Path(_)));
        if !is_sequence {
            return refuse(at.0.describe());
        }
        let mut items = self.iterate(at)?;
        match targets.iter().position(|target| matches!(target.kind, ExprKind::Starred(_))) {
            None if items.len() == targets.len() => Ok(items),
            Some(star) if items.len() + 1 >= targets.len() => {
                let behind = items.split_off(items.len() - (targets.len() - star - 1));
                let rest = items.split_off(star);
                items.push(Kind::List.of(rest));
                items.extend(behind);
                Ok(items)
            }
            _ => refuse(format!("{}, with {} items", at.0.describe(), items.len())),
        }
    }

    /// `base[index]` of a sequence.
    pub(super) fn item_at(&mut self, kind: Kind, items: &[Item], index: &Expr, span: Span) -> Res<Item> {
        if let ExprKind::Slice(parts) = &index.kind {
            let bounds = self.slice_bounds(parts, index.span)?;
            let picked = fixed::slice_positions(items.len(), bounds, span)?.into_iter().map(|at| items[at].clone());
            return Ok(kind.of(picked.collect()));
        }
        let number = self.fixed(index, "the index of a tuple")?;
        let found = number.as_int().and_then(|number| fixed::position(number, items.len()));
        found.map(|at| items[at].clone()).ok_or_else(|| {
            let message = format!("there is no such item in {}", kind.describe(items.len()));
            Box::new(Diagnostic::error(id::AXIS, index.span, message).label(format!("this is {}", number.describe())))
        })
    }

    /// `a == b` and `a in b` of sequences; `None` where neither is one.
    pub(super) fn compare_items(&mut self, op: CompareOp, a: &At, b: &At, span: Span) -> Res<Option<Item>> {
        let (any, pairs) = match op {
            CompareOp::Eq | CompareOp::Ne => match (sequence_of(&a.0), sequence_of(&b.0)) {
                (None, None) => return Ok(None),
                (Some((one, x)), Some((other, y))) if one == other && x.len() == y.len() => {
                    (false, x.into_iter().zip(y).collect())
                }
                _ => return Ok(Some(Item::Fixed(Fixed::bool(op == CompareOp::Ne)))),
            },
            CompareOp::In | CompareOp::NotIn => match &b.0 {
                Item::Items(..) | Item::Fixed(Fixed::Tuple(_) | Fixed::List(_) | Fixed::Range(_)) => {
                    let pairs: Vec<(Item, Item)> = self.iterate(b)?.into_iter().map(|item| (a.0.clone(), item)).collect();
                    (true, pairs)
                }
                _ => return Ok(None),
            },
            _ => return Ok(None),
        };
        let mut found = Item::Fixed(Fixed::bool(!any));
        for (x, y) in pairs {
            let one = self.compare(CompareOp::Eq, &(x, a.1), &(y, b.1), span)?;
            found = match (&found, one) {
                (_, Item::Fixed(value)) if value.truth(span)? == any => {
                    found = Item::Fixed(Fixed::bool(any));
                    break;
                }
                (_, Item::Fixed(_)) => found,
                (Item::Fixed(_), one) => self.then(any, None, &(one, span), Vec::new())?,
                (_, one) => self.then(any, Some(&(found, span)), &(one, span), Vec::new())?,
            };
        }
        match op {
            CompareOp::Ne | CompareOp::NotIn => self.opposite(&(found, span)).map(Some),
            _ => Ok(Some(found)),
        }
    }

    /// The chosen of two items, whose statements stand in the blocks; nothing is left to be evaluated where both blocks are empty.
    pub(super) fn chosen(
        &mut self,
        condition: &Expression,
        [a, b]: [&At; 2],
        blocks: &mut Option<[Vec<Statement>; 2]>,
        span: Span,
    ) -> Res<Item> {
        if let (Some((kind, x)), Some((other, y))) = (sequence_of(&a.0), sequence_of(&b.0))
            && kind == other
            && x.len() == y.len()
        {
            let mut items = Vec::new();
            for (x, y) in x.into_iter().zip(y) {
                items.push(self.chosen(condition, [&(x, a.1), &(y, b.1)], blocks, span)?);
            }
            return Ok(kind.of(items));
        }
        if !matches!(a.0, Item::Value(_)) && a.0.same(&b.0) {
            return Ok(a.0.clone());
        }
        let (x, y) = unify(a, b, false)?;
        let (dtype, uniform) = (x.dtype, condition.uniform && x.uniform && y.uniform);
        let Some([first, second]) = blocks else {
            let kind = ExpressionKind::Select(Box::new([condition.clone(), x, y]));
            return Ok(Item::Value(Expression { kind, dtype, uniform, span }));
        };
        let (position, chosen) = self.unnamed(dtype, uniform, span);
        first.push(Statement::Assign(position, x));
        second.push(Statement::Assign(position, y));
        Ok(Item::Value(chosen))
    }

    /// The expressions of an index, one an axis: `x[i, j]`, and `x[at]` where `at` is a tuple.
    pub(super) fn indices(&mut self, index: &Expr) -> Res<Vec<At>> {
        if let ExprKind::Tuple(items) = &index.kind {
            return items.iter().map(|item| self.at(item)).collect();
        }
        let at = self.at(index)?;
        Ok(match sequence_of(&at.0) {
            Some((_, items)) => items.into_iter().map(|item| (item, at.1)).collect(),
            None => vec![at],
        })
    }
}
