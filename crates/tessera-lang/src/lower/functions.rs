//! Functions of the source: what a definition makes, decorators, and calls, which are inlined.
//!
//! A definition evaluates the defaults of its parameters and keeps the scope that it stands in, not the values in it: a variable that is
//! assigned again after the definition is seen by later calls, as in Python.
//!
//! ```text
//! k = 1
//! def f(x, by=k):        by is 1, whatever k becomes
//!     return x * by + k
//! k = 10
//! f(n)                   n * 1 + 10
//! ```

use std::rc::Rc;
use std::sync::Arc;

use tessera_ir::{Diagnostic, Span};

use super::expr::unsupported;
use super::{Locals, Lowerer, MAX_CALLS, Res};
use crate::ast::{Expr, ExprKind, Function, Passing};
use crate::bind::{Given, Slot, bind};
use crate::diagnostics::id;
use crate::file::Moment;
use crate::style;
use crate::value::{Binding, Closure, ScopeId, Val};
use crate::written;

/// What a decorator does to a function.
enum Decorator {
    /// Nothing that means something here.
    Nothing,
    /// It makes a context manager of a generator.
    Context,
    /// It is called with the function.
    Function(Val),
}

impl Lowerer<'_> {
    /// What the definition of a nested function or a lambda makes.
    pub(crate) fn define(&mut self, function: &Arc<Function>) -> Res<Val> {
        let scope = self.frame().scope;
        self.scopes[scope.0].captured = true;
        self.closure(function, Some(scope))
    }

    /// What the definition of a function of module level makes.
    pub(crate) fn module_function(&mut self, function: &Arc<Function>, at: Moment, used: Span) -> Res<Val> {
        written::not_a_kernel(self.file, function, at, used)?;
        self.at_module(at, |lowerer| lowerer.closure(function, None))
            .map_err(|error| Box::new(error.also(used, format!("`{}` is used here", function.name.name))))
    }

    /// What the definition of a method makes: its defaults see the names of the class, its body does not.
    pub(crate) fn method_function(&mut self, function: &Arc<Function>) -> Res<Val> {
        self.closure(function, None)
    }

    fn closure(&mut self, function: &Arc<Function>, scope: Option<ScopeId>) -> Res<Val> {
        // Decorators are evaluated before the function is made, and applied to it from the last to the first.
        let mut decorators = Vec::new();
        let mut is_context = false;
        for decorator in &function.decorators {
            match self.decorator(decorator)? {
                Decorator::Nothing => {}
                Decorator::Context => is_context = true,
                Decorator::Function(value) => decorators.push((value, decorator.span)),
            }
        }
        let mut defaults = Vec::new();
        for param in &function.params {
            defaults.push(match &param.default {
                Some(default) => {
                    let value = self.expr(default)?;
                    self.check_kept(&value, default.span)?;
                    Some(value)
                }
                None => None,
            });
        }
        let mut value = Val::Closure(Rc::new(Closure { function: function.clone(), scope, defaults, is_context }));
        for (decorator, span) in decorators.iter().rev() {
            let given = Given { keyword: None, value, span: function.name.span };
            value = self.call_value(decorator, vec![given], *span)?;
        }
        Ok(value)
    }

    /// What a decorator does.
    fn decorator(&mut self, decorator: &Expr) -> Res<Decorator> {
        let mut named = decorator;
        while let ExprKind::Call(inner, _) | ExprKind::Attribute(inner, _) = &named.kind {
            named = inner;
        }
        let is_outer = !matches!(&named.kind, ExprKind::Name(name) if self.is_variable(name));
        let path = style::decorator_path(self.file, decorator, self.moment).filter(|_| is_outer);
        match path.as_deref() {
            Some("cuda.tile.function" | "tessera.tile.function") => {
                for arg in style::decorator_args(decorator) {
                    let is_tile = arg.keyword.as_ref().is_some_and(|keyword| keyword.name == "tile");
                    let at = self.at(&arg.value)?;
                    if is_tile && !self.constant_truth(&at)? {
                        return Err(Box::new(
                            Diagnostic::error(id::NOT_CALLABLE, decorator.span, "this function is for the host only")
                                .label("`tile=False` keeps it out of kernels"),
                        ));
                    }
                }
                return Ok(Decorator::Nothing);
            }
            // One copies names and documentation, one says something of a class's objects, of which there are none then.
            Some("functools.wraps" | "abc.abstractmethod") => return Ok(Decorator::Nothing),
            Some("contextlib.contextmanager") => return Ok(Decorator::Context),
            _ => {}
        }
        match self.expr(decorator)? {
            value @ Val::Closure(_) => Ok(Decorator::Function(value)),
            other => Err(Box::new(
                Diagnostic::error(id::UNSUPPORTED, decorator.span, "this decorator can't be applied in a kernel")
                    .label(format!("this is {}", other.describe()))
                    .help("decorators are functions of this file, `ct.function` and `functools.wraps`"),
            )),
        }
    }

    /// Lowers a function's body in place of a call.
    pub(crate) fn inline(&mut self, closure: &Closure, given: &[Given], span: Span) -> Res<Val> {
        let function = &closure.function;
        if closure.is_context {
            return Err(Box::new(
                Diagnostic::error(id::NOT_CALLABLE, span, "a context manager is called behind `with` only")
                    .also(function.name.span, "the context manager")
                    .help(format!("write `with {}(...):`", function.name.name)),
            ));
        }
        let moment = self.enter_call(closure, given, span)?;
        let result = self.deeper(span, |lowerer| lowerer.stmts(&function.body));
        let frame = self.leave();
        self.moment = moment;
        result.map_err(|error| called_from(error, function, span))?;
        Ok(frame.and_then(|frame| frame.returned).map_or(Val::None, |(value, _)| value))
    }

    /// Opens the frame of a call, with the parameters bound; yields the moment to go back to.
    pub(crate) fn enter_call(&mut self, closure: &Closure, given: &[Given], span: Span) -> Res<Moment> {
        let function = &closure.function;
        if let Some((what, place)) = function.unsupported {
            return Err(unsupported(what, place));
        }
        if self.frames.len() >= MAX_CALLS {
            return Err(Box::new(
                Diagnostic::error(
                    id::RECURSION,
                    span,
                    format!("`{}` is called more than {MAX_CALLS} levels deep", function.name.name),
                )
                .label("functions are inlined, so they can't call themselves without end")
                .also(function.name.span, "the function"),
            ));
        }
        let slots: Vec<Slot<'_>> = function
            .params
            .iter()
            .map(|param| Slot { name: &param.name.name, passing: param.passing, has_default: param.default.is_some() })
            .collect();
        let bound = bind(&function.name.name, &slots, given, span)?;
        let mut locals = Locals::new();
        for ((param, mut values), default) in function.params.iter().zip(bound).zip(&closure.defaults) {
            for given in &values {
                self.check_kept(&given.value, given.span)?;
            }
            let place = param.name.span;
            let binding = match (param.passing, values.pop()) {
                (Passing::Variadic, last) => {
                    let items = values.into_iter().chain(last).map(|given| given.value);
                    Binding { value: Val::tuple(items.collect::<Vec<_>>()), span: place }
                }
                (Passing::Keywords, last) => {
                    let item = |given: Given| Some((Val::str(&given.keyword?.name), given.value));
                    Binding { value: Val::Dict(values.into_iter().chain(last).filter_map(item).collect()), span: place }
                }
                (_, Some(given)) => Binding { value: given.value, span: given.span },
                (_, None) => Binding { value: default.clone().unwrap_or(Val::None), span: place },
            };
            locals.insert(param.name.name.clone(), binding);
        }
        // A function of another module sees that module's names, all of them.
        let moment = self.moment;
        if moment.source() != function.span.source {
            self.moment = Moment::end(function.span.source);
        }
        self.enter(function.names.clone(), closure.scope, locals, false);
        Ok(moment)
    }

    /// Refuses to keep an iterator: it could be taken from twice.
    pub(crate) fn check_kept(&self, value: &Val, span: Span) -> Res<()> {
        match value {
            Val::Iterator(_) => Err(Box::new(
                Diagnostic::error(id::ARGUMENT_TYPE, span, "an iterator is used where it is made, and not kept")
                    .label("its items could be taken only once")
                    .help("make a tuple of it: `tuple(...)`"),
            )),
            _ => Ok(()),
        }
    }
}

/// Tells where the function that a mistake lies in was called, once.
pub(crate) fn called_from(error: Box<Diagnostic>, function: &Function, span: Span) -> Box<Diagnostic> {
    let told = error.secondary.iter().any(|label| label.text.starts_with("called from"));
    if told || function.name.name == "<lambda>" { error } else { Box::new(error.also(span, "called from here")) }
}
