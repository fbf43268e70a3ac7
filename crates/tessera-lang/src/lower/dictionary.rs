//! Dictionaries: what a `**` parameter collects.

use tessera_ir::{Diagnostic, Span};

use super::operand::At;
use super::{Lowerer, Res};
use crate::ast::{Arg, Ident};
use crate::bind::Given;
use crate::diagnostics::id;
use crate::lower::names::closest;
use crate::value::Val;

/// The items of a dictionary.
type Items = [(std::rc::Rc<str>, Val)];

impl Lowerer<'_> {
    /// `dictionary[key]`.
    pub(crate) fn dictionary_item(&mut self, items: &Items, key: &At) -> Res<Val> {
        let name = self.require_str(key)?;
        match items.iter().find(|(own, _)| **own == *name) {
            Some((_, value)) => Ok(value.clone()),
            None => {
                let error = Diagnostic::error(id::UNKNOWN_ATTRIBUTE, key.1, format!("the dictionary has no item `{name}`"));
                Err(Box::new(match closest(&name, items.iter().map(|(own, _)| &**own)) {
                    Some(near) => error.help(format!("did you mean `{near}`?")),
                    None => error.label("not found").help("ask with `in`, or write `.get(name, default)`"),
                }))
            }
        }
    }

    /// `dictionary.method(...)`.
    pub(crate) fn dictionary_method(&mut self, items: &Items, name: &Ident, args: &[Arg], span: Span) -> Res<Val> {
        let given = self.arguments(args)?;
        let at = |given: &Given| (given.value.clone(), given.span);
        match (name.name.as_str(), given.as_slice()) {
            ("get", [key]) | ("get", [key, _]) if given.iter().all(|given| given.keyword.is_none()) => {
                let wanted = self.require_str(&at(key))?;
                let found = items.iter().find(|(own, _)| **own == *wanted).map(|(_, value)| value.clone());
                Ok(found.unwrap_or_else(|| given.get(1).map_or(Val::None, |default| default.value.clone())))
            }
            ("keys", []) => Ok(Val::tuple(items.iter().map(|(name, _)| Val::Str(name.clone())))),
            ("values", []) => Ok(Val::tuple(items.iter().map(|(_, value)| value.clone()))),
            ("items", []) => {
                Ok(Val::tuple(items.iter().map(|(name, value)| Val::tuple([Val::Str(name.clone()), value.clone()]))))
            }
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
