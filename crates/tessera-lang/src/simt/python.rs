//! Python's built-in functions: of compile-time values as everywhere, and of values that are made at run time.

use tessera_ir::{Diagnostic, Span};
use tessera_types::DType;

use super::env::Item;
use super::program::{Binary, Memory, Unary};
use super::sequence::Kind;
use super::value::{self, At, truth};
use super::{Check, Res};
use crate::ast::{Arg, BinaryOp};
use crate::builtins::{Builtin, Space};
use crate::diagnostics::id;
use crate::fixed::{self, Fixed};
use crate::written;

impl Check<'_> {
    /// A Python built-in; `None` when the name is none.
    pub(super) fn builtin(&mut self, name: &str, args: &[Arg], span: Span) -> Res<Option<Item>> {
        let Some(builtin) = Builtin::find(Space::Python, name).filter(|_| fixed::BUILTINS.contains(&name)) else {
            return Ok(None);
        };
        let bound = written::arguments(name, builtin.row().signature, args, span)?;
        let mut items = Vec::new();
        for expr in bound.into_iter().flatten() {
            items.push(self.at(expr)?);
        }
        let known = |(item, _): &At| if let Item::Fixed(value) = item { Some(value.clone()) } else { None };
        if let Some(known) = items.iter().map(known).collect::<Option<Vec<Fixed>>>() {
            return fixed::builtin(name, &known, span).map(|value| Some(Item::Fixed(value)));
        }
        self.at_run_time(name, &items, span).map(Some)
    }

    /// A built-in of which an argument is made at run time.
    fn at_run_time(&mut self, name: &str, items: &[At], span: Span) -> Res<Item> {
        Ok(match (name, items) {
            ("int", [at]) => match &at.0 {
                Item::Value(value) if value.dtype.is_integer() => at.0.clone(),
                _ => self.cast(at, DType::I32)?,
            },
            ("float", [at]) => match &at.0 {
                Item::Value(value) if value.dtype.is_float() => at.0.clone(),
                _ => self.cast(at, DType::F32)?,
            },
            ("bool", [(Item::Items(kind, items), _)]) => Item::Fixed(Fixed::bool(*kind == Kind::Iterator || !items.is_empty())),
            ("bool", [at]) => Item::Value(truth(at)?),
            ("abs", [at]) => value::unary(Unary::Abs, "abs", at, span)?,
            ("pow", [a, b]) => self.power("pow", a, b, span)?,
            ("divmod", [a, b]) => {
                let (a, b) = ((self.held(a.0.clone()), a.1), (self.held(b.0.clone()), b.1));
                let quotient = value::binary(Binary::FloorDiv, "divmod", &a, &b, span)?;
                let rest = value::binary(Binary::Mod, "divmod", &a, &b, span)?;
                Kind::Tuple.of(vec![self.held(quotient), self.held(rest)])
            }
            ("min", [_, ..]) => self.extreme(Binary::Min, "min", items, span)?,
            ("max", [_, ..]) => self.extreme(Binary::Max, "max", items, span)?,
            ("sum", [items, start @ ..]) => {
                let mut total = (start.first().map_or(Item::Fixed(Fixed::int(0)), |(start, _)| start.clone()), span);
                for item in self.iterate(items)? {
                    total.0 = self.operate(BinaryOp::Add, &total, &(item, items.1), span)?;
                }
                total.0
            }
            ("all" | "any", [items]) => {
                let any = name == "any";
                let mut found = (Item::Fixed(Fixed::bool(!any)), span);
                for item in self.iterate(items)? {
                    let before = Some(&found).filter(|(item, _)| !matches!(item, Item::Fixed(_)));
                    let next = (item, items.1);
                    found.0 = match &next.0 {
                        Item::Fixed(value) if value.truth(next.1)? == any => return Ok(Item::Fixed(Fixed::bool(any))),
                        Item::Fixed(_) => continue,
                        _ => self.then(any, before, &next, Vec::new())?,
                    };
                }
                found.0
            }
            ("len", [(Item::Array(memory), _)]) if !matches!(memory, Memory::Addressed(_)) && !self.shape(*memory).is_empty() => {
                self.size(*memory, 0, span)
            }
            ("len", [(Item::Items(Kind::Tuple | Kind::List, items), _)]) => Item::Fixed(Fixed::int(items.len() as i128)),
            ("len", [(Item::Shape(memory), _)]) => Item::Fixed(Fixed::int(self.shape(*memory).len() as i128)),
            ("tuple", [items]) => Kind::Tuple.of(self.iterate(items)?),
            ("list", [items]) => Kind::List.of(self.iterate(items)?),
            ("reversed", [items]) => Kind::Iterator.of(self.iterate(items)?.into_iter().rev().collect()),
            ("enumerate", [items, start @ ..]) => {
                let first = match start {
                    [] => Some(0),
                    [(Item::Fixed(start), _), ..] => start.as_int(),
                    _ => None,
                };
                let Some(first) = first else { return Err(not_taken(name, items.1)) };
                let numbered = self.iterate(items)?.into_iter().zip(first..);
                Kind::Iterator.of(numbered.map(|(item, at)| Kind::Tuple.of(vec![Item::Fixed(Fixed::int(at)), item])).collect())
            }
            ("zip", columns) => {
                let columns = columns.iter().map(|column| self.iterate(column)).collect::<Res<Vec<_>>>()?;
                let rows = columns.iter().map(Vec::len).min().unwrap_or(0);
                let row = |row: usize| Kind::Tuple.of(columns.iter().map(|column| column[row].clone()).collect());
                Kind::Iterator.of((0..rows).map(row).collect())
            }
            _ => return Err(not_taken(name, span)),
        })
    }

    /// `min` and `max` of several values, or of the items of one.
    fn extreme(&mut self, op: Binary, name: &str, given: &[At], span: Span) -> Res<Item> {
        let items: Vec<At> = match given {
            [only] => self.iterate(only)?.into_iter().map(|item| (item, only.1)).collect(),
            several => several.to_vec(),
        };
        let mut items = items.into_iter();
        let Some(mut best) = items.next() else { return Err(not_taken(name, span)) };
        for item in items {
            best = match (&best.0, &item.0) {
                (Item::Fixed(a), Item::Fixed(b)) => (Item::Fixed(fixed::builtin(name, &[a.clone(), b.clone()], span)?), span),
                _ => (value::binary(op, name, &best, &item, span)?, span),
            };
        }
        Ok(best.0)
    }
}

fn not_taken(name: &str, span: Span) -> Box<Diagnostic> {
    Box::new(
        Diagnostic::error(id::CALL, span, format!("`{name}` does not take these arguments"))
            .label("some of them are made at run time")
            .help("of such values there are `int`, `float`, `bool`, `abs`, `min`, `max`, `sum`, `all`, `any`, `pow` and `divmod`, and the functions of `tile`"),
    )
}
