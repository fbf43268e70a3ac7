//! What of Python an expression may use that is evaluated when the kernel is compiled (`static_eval`, module level), and a kernel may not:
//! functions that call what they are given, and those of [`crate::fixed`]'s host table.

use tessera_ir::{Diagnostic, Span};

use super::operand::At;
use super::{Lowerer, Res};
use crate::ast::CompareOp;
use crate::bind::Given;
use crate::builtins::Builtin;
use crate::diagnostics::id;
use crate::fixed::{self, Fixed};
use crate::value::Val;

/// Functions of Python that call what they are given, or take what is no constant.
const CALLING: &[&str] = &[
    "builtins.dict",
    "builtins.filter",
    "builtins.map",
    "builtins.max",
    "builtins.min",
    "builtins.next",
    "builtins.sorted",
    "functools.reduce",
];

impl Lowerer<'_> {
    /// A function by its path, where it is one that expressions of compile time have beyond kernels.
    pub(crate) fn host_function(&self, path: &str) -> Option<Val> {
        let known = self.is_static && (CALLING.contains(&path) || fixed::HOST.contains(&path));
        known.then(|| Val::Module(path.into()))
    }

    /// The path of what is called with arguments that only expressions of compile time may give it: `max(..., key=f)`, `pow(a, b, m)`.
    pub(crate) fn host_call(&self, callee: &Val, given: &[Given]) -> Option<std::rc::Rc<str>> {
        let by_keyword = |name: &str| given.iter().any(|given| given.keyword.as_ref().is_some_and(|own| own.name == name));
        let path = match callee {
            Val::Module(path) => path.clone(),
            Val::Builtin(Builtin::PyMax) if by_keyword("key") => "builtins.max".into(),
            Val::Builtin(Builtin::PyMin) if by_keyword("key") => "builtins.min".into(),
            Val::Builtin(Builtin::PyPow) if given.len() == 3 => "builtins.pow".into(),
            _ => return None,
        };
        self.host_function(&path).map(|_| path)
    }

    /// Calls a function of [`Lowerer::host_function`].
    pub(crate) fn call_host(&mut self, path: &str, given: Vec<Given>, span: Span) -> Res<Val> {
        let (named, placed): (Vec<Given>, Vec<Given>) = given.into_iter().partition(|given| given.keyword.is_some());
        let option = |name: &str| {
            named.iter().find(|given| given.keyword.as_ref().is_some_and(|own| own.name == name)).map(|given| given.value.clone())
        };
        let names: &[&str] = match path {
            "builtins.sorted" => &["key", "reverse"],
            "builtins.max" | "builtins.min" => &["key"],
            _ => &[],
        };
        let keyword = named.iter().filter_map(|given| given.keyword.as_ref());
        if let Some(unknown) = keyword.clone().find(|keyword| path != "builtins.dict" && !names.contains(&&*keyword.name)) {
            let message = format!("`{}` has no keyword parameter `{}`", last(path), unknown.name);
            return Err(Box::new(Diagnostic::error(id::CALL, unknown.span, message)));
        }
        let at: Vec<At> = placed.iter().map(|given| (given.value.clone(), given.span)).collect();
        match (path, at.as_slice()) {
            ("builtins.dict", []) => {
                let item = |given: &Given| Some((Val::str(&given.keyword.as_ref()?.name), given.value.clone()));
                Ok(Val::Dict(named.iter().filter_map(item).collect()))
            }
            ("builtins.map", [(function, _), items]) => {
                let items = self.sequence(items)?;
                let called = items.into_iter().map(|item| self.call_with(function, [item], span));
                Ok(Val::Iterator(called.collect::<Res<Vec<_>>>()?.into()))
            }
            ("builtins.filter", [(function, _), items]) => {
                let mut kept = Vec::new();
                for item in self.sequence(items)? {
                    let holds = match function {
                        Val::None => item.clone(),
                        _ => self.call_with(function, [item.clone()], span)?,
                    };
                    if self.constant_truth(&(holds, span))? {
                        kept.push(item);
                    }
                }
                Ok(Val::Iterator(kept.into()))
            }
            ("builtins.next", [items @ (Val::Iterator(_), _), rest @ ..]) if rest.len() < 2 => {
                let first = self.sequence(items)?.into_iter().next().or(rest.first().map(|(default, _)| default.clone()));
                first.ok_or_else(|| Box::new(Diagnostic::error(id::VALUE_RANGE, span, "`next` finds no item")))
            }
            ("builtins.sorted", [items]) => {
                let backwards = match option("reverse") {
                    Some(value) => self.constant_truth(&(value, span))?,
                    None => false,
                };
                let op = if backwards { CompareOp::Gt } else { CompareOp::Lt };
                let mut sorted: Vec<(Fixed, Val)> = Vec::new();
                for item in self.sequence(items)? {
                    let key = self.key_of(option("key"), &item, span)?;
                    // Behind all that it does not come before: equal ones keep their order.
                    let mut place = sorted.len();
                    while place > 0 && fixed::compare(op, &key, &sorted[place - 1].0, span)? {
                        place -= 1;
                    }
                    sorted.insert(place, (key, item));
                }
                Ok(Val::Sequence(sorted.into_iter().map(|(_, item)| item).collect()))
            }
            ("builtins.max" | "builtins.min", [_, ..]) => {
                let op = if path == "builtins.max" { CompareOp::Gt } else { CompareOp::Lt };
                let items = match at.as_slice() {
                    [only] => self.sequence(only)?,
                    several => several.iter().map(|(item, _)| item.clone()).collect(),
                };
                let mut best: Option<(Fixed, Val)> = None;
                for item in items {
                    let key = self.key_of(option("key"), &item, span)?;
                    let is_better = match &best {
                        Some((other, _)) => fixed::compare(op, &key, other, span)?,
                        None => true,
                    };
                    if is_better {
                        best = Some((key, item));
                    }
                }
                let none = || Box::new(Diagnostic::error(id::CALL, span, "`min` and `max` need at least one value"));
                best.map(|(_, item)| item).ok_or_else(none)
            }
            ("functools.reduce", [(function, _), items, start @ ..]) if start.len() < 2 => {
                let mut items = start.iter().map(|(start, _)| start.clone()).chain(self.sequence(items)?);
                let none = || Box::new(Diagnostic::error(id::CALL, span, "`reduce` needs at least one value"));
                let mut total = items.next().ok_or_else(none)?;
                for item in items {
                    total = self.call_with(function, [total, item], span)?;
                }
                Ok(total)
            }
            _ if fixed::HOST.contains(&path) => {
                let known = at.iter().map(|at| self.require_fixed(at)).collect::<Res<Vec<_>>>()?;
                fixed::host(path, &known, span).map(Val::from)
            }
            _ => {
                let message = format!("`{}` does not take these arguments", last(path));
                Err(Box::new(Diagnostic::error(id::CALL, span, message).label(format!("{} given", at.len()))))
            }
        }
    }

    fn call_with<const N: usize>(&mut self, function: &Val, values: [Val; N], span: Span) -> Res<Val> {
        let given = values.into_iter().map(|value| Given { keyword: None, value, span });
        self.call_value(function, given.collect(), span)
    }

    /// What an item is compared by.
    fn key_of(&mut self, key: Option<Val>, item: &Val, span: Span) -> Res<Fixed> {
        let key = match key {
            None | Some(Val::None) => item.clone(),
            Some(function) => self.call_with(&function, [item.clone()], span)?,
        };
        self.require_fixed(&(key, span))
    }
}

fn last(path: &str) -> &str {
    path.rsplit('.').next().unwrap_or(path)
}
