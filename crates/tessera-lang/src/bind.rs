//! Arguments of a call to the parameters of a function, by Python's rules.

use tessera_ir::{Diagnostic, Span};

use crate::ast::{Ident, Passing};
use crate::builtins::{BuiltinRow, enum_member};
use crate::diagnostics::id;
use crate::number::Num;
use crate::value::Val;

/// An argument that was evaluated.
#[derive(Clone, Debug)]
pub(crate) struct Given {
    pub(crate) keyword: Option<Ident>,
    pub(crate) value: Val,
    pub(crate) span: Span,
}

/// What binding needs to know about a parameter.
pub(crate) struct Slot<'a> {
    pub(crate) name: &'a str,
    pub(crate) passing: Passing,
    pub(crate) has_default: bool,
}

/// The arguments of each slot: none where the default stands, any number for a variadic one.
pub(crate) fn bind(function: &str, slots: &[Slot<'_>], given: &[Given], call: Span) -> Result<Vec<Vec<Given>>, Box<Diagnostic>> {
    let mut bound: Vec<Vec<Given>> = slots.iter().map(|_| Vec::new()).collect();
    let positional: Vec<usize> =
        (0..slots.len()).filter(|&i| matches!(slots[i].passing, Passing::Positional | Passing::Either)).collect();
    let variadic = slots.iter().position(|slot| slot.passing == Passing::Variadic);
    let keywords = slots.iter().position(|slot| slot.passing == Passing::Keywords);
    let mut next = 0;
    for arg in given {
        let slot = match &arg.keyword {
            None => match (positional.get(next), variadic) {
                (Some(&slot), _) => {
                    next += 1;
                    slot
                }
                (None, Some(slot)) => {
                    bound[slot].push(arg.clone());
                    continue;
                }
                (None, None) => {
                    let takes = positional.len();
                    return Err(Box::new(
                        Diagnostic::error(id::CALL, arg.span, format!("`{function}` got too many positional arguments"))
                            .label(format!("it takes {takes} by position"))
                            .help(format!("parameters: {}", describe(slots))),
                    ));
                }
            },
            Some(name) => {
                let found = slots
                    .iter()
                    .position(|slot| slot.name == name.name && matches!(slot.passing, Passing::Either | Passing::Keyword));
                match (found, keywords) {
                    (Some(slot), _) => slot,
                    (None, Some(slot)) => slot,
                    (None, None) => {
                        return Err(Box::new(
                            Diagnostic::error(
                                id::CALL,
                                name.span,
                                format!("`{function}` has no keyword parameter `{}`", name.name),
                            )
                            .label("unexpected keyword")
                            .help(format!("parameters: {}", describe(slots))),
                        ));
                    }
                }
            }
        };
        let of_one_name = |given: &&Given| match (slots[slot].passing, &given.keyword, &arg.keyword) {
            (Passing::Keywords, Some(first), Some(second)) => first.name == second.name,
            _ => true,
        };
        if let Some(first) = bound[slot].iter().find(of_one_name) {
            let name = match (slots[slot].passing, &arg.keyword) {
                (Passing::Keywords, Some(keyword)) => &keyword.name,
                _ => slots[slot].name,
            };
            return Err(Box::new(
                Diagnostic::error(id::CALL, arg.span, format!("`{function}` got two values for `{name}`"))
                    .label("second value")
                    .also(first.span, "first value"),
            ));
        }
        bound[slot].push(arg.clone());
    }
    for (slot, args) in slots.iter().zip(&bound) {
        if args.is_empty() && !slot.has_default && !matches!(slot.passing, Passing::Variadic | Passing::Keywords) {
            return Err(Box::new(
                Diagnostic::error(id::CALL, call, format!("`{function}` misses the argument `{}`", slot.name))
                    .label("in this call")
                    .help(format!("parameters: {}", describe(slots))),
            ));
        }
    }
    Ok(bound)
}

fn describe(slots: &[Slot<'_>]) -> String {
    let names: Vec<String> = slots
        .iter()
        .map(|slot| match slot.passing {
            Passing::Variadic => format!("*{}", slot.name),
            Passing::Keywords => format!("**{}", slot.name),
            _ if slot.has_default => format!("{}=...", slot.name),
            _ => slot.name.to_string(),
        })
        .collect();
    if names.is_empty() { "none".to_string() } else { names.join(", ") }
}

/// The arguments of a built-in call, in the order of its signature.
pub(crate) struct Args {
    values: Vec<(Val, Span)>,
    rest: Vec<Given>,
    /// The whole call.
    pub(crate) call: Span,
}

impl Args {
    /// The argument at a position of the signature (variadic parameters aside), or its default.
    pub(crate) fn val(&self, at: usize) -> &Val {
        &self.values[at].0
    }

    /// Where it was written; the call, for a default.
    pub(crate) fn span(&self, at: usize) -> Span {
        self.values[at].1
    }

    /// The argument with its place.
    pub(crate) fn at(&self, at: usize) -> (Val, Span) {
        self.values[at].clone()
    }

    /// Every argument in the order of the signature, with what a variadic parameter collected.
    pub(crate) fn all(&self) -> Vec<(Val, Span)> {
        self.values.iter().cloned().chain(self.rest.iter().map(|given| (given.value.clone(), given.span))).collect()
    }

    /// What a variadic parameter collected.
    pub(crate) fn rest(&self) -> &[Given] {
        &self.rest
    }
}

/// Binds a call to a row's signature.
pub(crate) fn bind_row(row: &BuiltinRow, given: &[Given], call: Span) -> Result<Args, Box<Diagnostic>> {
    let parts: Vec<&str> = split(row.signature);
    let positional_end = parts.iter().position(|part| *part == "/").unwrap_or(0);
    let mut slots = Vec::new();
    let mut defaults = Vec::new();
    let mut keyword_only = false;
    for (i, part) in parts.iter().enumerate() {
        match *part {
            "/" => {}
            "*" => keyword_only = true,
            part => {
                let (name, default) = part.split_once('=').map_or((part, None), |(name, default)| (name, Some(default)));
                let (name, passing) = match name.strip_prefix('*') {
                    Some(name) => {
                        keyword_only = true;
                        (name, Passing::Variadic)
                    }
                    None if keyword_only => (name, Passing::Keyword),
                    None if i < positional_end => (name, Passing::Positional),
                    None => (name, Passing::Either),
                };
                slots.push(Slot { name, passing, has_default: default.is_some() });
                defaults.push(default);
            }
        }
    }
    let bound = bind(row.name, &slots, given, call)?;
    let mut args = Args { values: Vec::new(), rest: Vec::new(), call };
    for ((slot, default), mut values) in slots.iter().zip(defaults).zip(bound) {
        if slot.passing == Passing::Variadic {
            args.rest = values;
        } else {
            args.values.push(match values.pop() {
                Some(given) => (given.value, given.span),
                None => (default_value(default.unwrap_or("None")), call),
            });
        }
    }
    Ok(args)
}

/// The parameters of a signature; no default holds a comma except the separator of `print`.
fn split(signature: &str) -> Vec<&str> {
    signature.split(", ").filter(|part| !part.is_empty()).collect()
}

fn default_value(text: &str) -> Val {
    match text {
        "None" => Val::None,
        "True" => Val::bool(true),
        "False" => Val::bool(false),
        "()" => Val::tuple([]),
        _ => {
            if let Ok(value) = text.parse::<i64>() {
                return Val::Num(Num::Int(value.into()));
            }
            if let Some((kind, member)) = text.split_once('.').and_then(|(kind, member)| enum_member(kind, member)) {
                return Val::Enum(kind, member);
            }
            Val::str(&text.trim_matches('\'').replace("\\n", "\n"))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::builtins::Builtin;

    #[test]
    fn every_default_in_the_table_is_readable() {
        for builtin in Builtin::ALL {
            for part in split(builtin.row().signature) {
                if let Some((_, text)) = part.split_once('=') {
                    let quoted = text.starts_with('\'') && text.ends_with('\'') && text.len() >= 2;
                    assert_eq!(matches!(default_value(text), Val::Str(_)), quoted, "{}: `{part}`", builtin.row().name);
                }
            }
        }
    }
}
