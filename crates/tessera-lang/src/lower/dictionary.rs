//! Dictionaries: what a `**` parameter collects, and displays where an expression is evaluated when the kernel is compiled.

use tessera_ir::{Diagnostic, Span};

use super::expr::unsupported;
use super::operand::At;
use super::{Lowerer, Res};
use crate::ast::{Arg, CompareOp, Expr, Ident};
use crate::bind::Given;
use crate::diagnostics::id;
use crate::fixed::{self, Fixed};
use crate::lower::names::closest;
use crate::value::Val;

/// The items of a dictionary.
type Items = [(Val, Val)];

impl Lowerer<'_> {
    /// `{key: value, ...}`: of keys that are equal the last one's value stands in the place of the first.
    pub(crate) fn dictionary(&mut self, pairs: &[(Expr, Expr)], span: Span) -> Res<Val> {
        if !self.is_static {
            return Err(unsupported("a dictionary", span));
        }
        let mut items: Vec<(Val, Val)> = Vec::new();
        for (key, value) in pairs {
            let key = self.at(key)?;
            let value = self.expr(value)?;
            match self.find_key(&items, &key)? {
                Some(at) => items[at].1 = value,
                None => items.push((key.0, value)),
            }
        }
        Ok(Val::Dict(items.into()))
    }

    /// Where a key stands.
    pub(crate) fn find_key(&self, items: &Items, key: &At) -> Res<Option<usize>> {
        let wanted = self.require_fixed(key)?;
        if matches!(wanted, Fixed::List(_)) {
            return Err(Box::new(Diagnostic::error(id::ARGUMENT_TYPE, key.1, "a list is no key of a dictionary")));
        }
        for (at, (own, _)) in items.iter().enumerate() {
            if fixed::compare(CompareOp::Eq, &self.require_fixed(&(own.clone(), key.1))?, &wanted, key.1)? {
                return Ok(Some(at));
            }
        }
        Ok(None)
    }

    /// `dictionary[key]`.
    pub(crate) fn dictionary_item(&mut self, items: &Items, key: &At) -> Res<Val> {
        if let Some(at) = self.find_key(items, key)? {
            return Ok(items[at].1.clone());
        }
        let Val::Str(name) = &key.0 else {
            let message = format!("the dictionary has no item for {}", key.0.describe());
            return Err(Box::new(Diagnostic::error(id::UNKNOWN_ATTRIBUTE, key.1, message).label("not found")));
        };
        let error = Diagnostic::error(id::UNKNOWN_ATTRIBUTE, key.1, format!("the dictionary has no item `{name}`"));
        let names = items.iter().filter_map(|(own, _)| if let Val::Str(own) = own { Some(&**own) } else { None });
        Err(Box::new(match closest(name, names) {
            Some(near) => error.help(format!("did you mean `{near}`?")),
            None => error.label("not found").help("ask with `in`, or write `.get(name, default)`"),
        }))
    }

    /// `dictionary.method(...)`.
    pub(crate) fn dictionary_method(&mut self, items: &Items, name: &Ident, args: &[Arg], span: Span) -> Res<Val> {
        let given = self.arguments(args)?;
        let at = |given: &Given| (given.value.clone(), given.span);
        match (name.name.as_str(), given.as_slice()) {
            ("get", [key]) | ("get", [key, _]) if given.iter().all(|given| given.keyword.is_none()) => {
                let found = self.find_key(items, &at(key))?.map(|at| items[at].1.clone());
                Ok(found.unwrap_or_else(|| given.get(1).map_or(Val::None, |default| default.value.clone())))
            }
            ("keys", []) => Ok(Val::tuple(items.iter().map(|(key, _)| key.clone()))),
            ("values", []) => Ok(Val::tuple(items.iter().map(|(_, value)| value.clone()))),
            ("items", []) => Ok(Val::tuple(items.iter().map(|(key, value)| Val::tuple([key.clone(), value.clone()])))),
            _ => Err(Box::new(
                Diagnostic::error(
                    id::CALL,
                    span,
                    format!("`{}` of a dictionary can't be called like this in a kernel", name.name),
                )
                .help("dictionaries have `get(name, default)`, `keys()`, `values()` and `items()`"),
            )),
        }
    }
}
