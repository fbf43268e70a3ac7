//! Names of front ends that walk functions in place: what a call binds, what the calls around its function bind, then what the file
//! and the language have.
//!
//! Invariant: a name that a function assigns is its own in all of it, as in Python.

use std::rc::Rc;
use std::sync::Arc;

use indexmap::IndexMap;
use tessera_ir::{Diagnostic, Span};

use crate::ast::{Expr, ExprKind, Function, Names};
use crate::diagnostics::id;
use crate::file::{Definition, ParsedFile};
use crate::fixed::{self, Fixed, Outer};
use crate::lower::Res;
use crate::written;

/// A function of the file, as a value.
#[derive(Debug)]
pub(crate) struct Closure<Item> {
    pub(crate) function: Arc<Function>,
    /// The call whose variables it sees from outside; none for a function of module level.
    pub(crate) scope: Option<usize>,
    /// The values of its parameters' defaults.
    pub(crate) defaults: Vec<Option<Item>>,
}

/// A call under way.
pub(crate) struct Scope {
    /// What no other call of the walk has; the kernel's is 0.
    pub(crate) serial: usize,
    /// The call that its function sees from outside.
    outer: Option<usize>,
    /// The names that its function binds.
    own: Arc<Names>,
}

impl Scope {
    /// A call of a function; without one that it sees from outside, of a function of module level.
    pub(crate) fn new(serial: usize, function: &Function, outer: Option<usize>) -> Scope {
        Scope { serial, outer, own: function.names.clone() }
    }

    /// Whether it is the kernel itself.
    pub(crate) fn is_kernel(&self) -> bool {
        self.serial == 0
    }
}

/// A front end that looks names up.
pub(crate) trait Scopes: Sized {
    /// What an expression is.
    type Item: Clone;

    /// What it walks, for messages.
    const KERNEL: &'static str;

    fn file(&self) -> &ParsedFile;

    /// Compile-time names of the configuration and of dtype variables.
    fn named(&self) -> &IndexMap<String, Fixed>;

    /// The calls under way, the innermost last.
    fn scopes(&self) -> impl ExactSizeIterator<Item = &Scope>;

    /// A parameter of the kernel.
    fn parameter(&self, name: &str) -> Option<&Self::Item>;

    /// Whether a call has bound a name so far.
    fn is_bound(&self, at: usize, name: &str) -> bool;

    /// What a call has bound a name to so far.
    fn bound(&mut self, at: usize, name: &str, span: Span) -> Res<Option<Self::Item>>;

    fn of_fixed(value: Fixed) -> Self::Item;

    fn of_function(closure: Rc<Closure<Self::Item>>) -> Self::Item;

    /// What a name stands for.
    fn name(&mut self, name: &str, span: Span) -> Res<Self::Item> {
        let mut at = self.scopes().len().checked_sub(1);
        while let Some(call) = at {
            if let Some(item) = self.own_name(call, name, span)? {
                return Ok(item);
            }
            let outer = self.scopes().nth(call).and_then(|scope| scope.outer);
            at = outer.map(|outer| self.call_of(outer).ok_or_else(|| outlived::<Self>(name, span))).transpose()?;
        }
        match fixed::outer(self.file(), self.named(), name, span).transpose()? {
            Some(outer) => self.outer(outer, span),
            None => Err(Box::new(
                Diagnostic::error(id::UNKNOWN_NAME, span, format!("`{name}` is not defined"))
                    .label("not found in this kernel or file"),
            )),
        }
    }

    /// Where a call stands among those under way.
    fn call_of(&self, serial: usize) -> Option<usize> {
        self.scopes().position(|scope| scope.serial == serial)
    }

    /// What a name stands for in one of the calls under way; `None` where it is none of its names.
    fn own_name(&mut self, at: usize, name: &str, span: Span) -> Res<Option<Self::Item>> {
        if let Some(item) = self.bound(at, name, span)? {
            return Ok(Some(item));
        }
        let Some(scope) = self.scopes().nth(at) else { return Ok(None) };
        match self.parameter(name).filter(|_| scope.is_kernel()) {
            Some(item) => Ok(Some(item.clone())),
            None if scope.own.own.contains(name) => Err(Box::new(
                Diagnostic::error(id::MAYBE_UNDEFINED, span, format!("`{name}` is used before it is assigned"))
                    .help(format!("a name that a function assigns is its own in all of it: assign `{name}` first")),
            )),
            None => Ok(None),
        }
    }

    /// True when the leftmost name of a path is a variable or parameter of a function here or around it.
    fn is_local(&self, expr: &Expr) -> bool {
        match &expr.kind {
            ExprKind::Name(name) => {
                let mut at = self.scopes().len().checked_sub(1);
                while let Some((call, scope)) = at.and_then(|call| Some((call, self.scopes().nth(call)?))) {
                    if self.is_bound(call, name) || scope.own.own.contains(name) {
                        return true;
                    }
                    at = scope.outer.and_then(|outer| self.call_of(outer));
                }
                false
            }
            ExprKind::Attribute(base, _) => self.is_local(base),
            _ => false,
        }
    }

    /// What module level of a file defines.
    fn defined(&mut self, definition: &Definition, span: Span) -> Res<Self::Item> {
        let outer = fixed::defined(self.file(), definition)?;
        self.outer(outer, span)
    }

    /// What a name outside the kernel stands for.
    fn outer(&mut self, outer: Outer, span: Span) -> Res<Self::Item> {
        match outer {
            Outer::Fixed(value) => Ok(Self::of_fixed(value)),
            Outer::Function(function, moment) => {
                written::callable(self.file(), &function, moment, span)?;
                self.closure(&function, None, |walk, default| fixed::evaluate(walk.file(), default, moment).map(Self::of_fixed))
            }
        }
    }

    /// A function with its defaults evaluated.
    fn closure(
        &mut self,
        function: &Arc<Function>,
        scope: Option<usize>,
        mut evaluate: impl FnMut(&mut Self, &Expr) -> Res<Self::Item>,
    ) -> Res<Self::Item> {
        let mut defaults = Vec::new();
        for param in &function.params {
            defaults.push(param.default.as_ref().map(|default| evaluate(self, default)).transpose()?);
        }
        Ok(Self::of_function(Rc::new(Closure { function: function.clone(), scope, defaults })))
    }
}

fn outlived<S: Scopes>(name: &str, span: Span) -> Box<Diagnostic> {
    let message = format!("a function can't outlive the call that defined it in {}", S::KERNEL);
    Box::new(Diagnostic::error(id::UNSUPPORTED, span, message).label(format!("`{name}` may belong to a call that is over")))
}
