//! Calls as written: which argument expression goes to which parameter, before anything is evaluated.
//!
//! A signature is text in Python's notation, as in [`crate::builtins`]: `"a, b, /, *, accum=None"`.

use tessera_ir::{Diagnostic, Span};

use crate::ast::{Arg, Expr, Function, Passing};
use crate::bind::{Given, Slot, bind};
use crate::diagnostics::id;
use crate::file::{Moment, ParsedFile};
use crate::lower::Res;
use crate::style;
use crate::value::Val;

/// Functions that walk their callees in place call each other at most this deep.
const MAX_CALLS: usize = 48;

/// The argument expressions of each parameter of a function of the file that is called at a depth; `unsupported` words the refusal of what
/// the caller's style does not take.
pub(crate) fn call<'a>(
    callee: &Function,
    args: &'a [Arg],
    at: Span,
    depth: usize,
    unsupported: fn(Span, &str) -> Box<Diagnostic>,
) -> Res<Vec<Vec<&'a Expr>>> {
    if let Some((what, place)) = callee.unsupported {
        return Err(unsupported(place, what));
    }
    if depth >= MAX_CALLS {
        return Err(Box::new(
            Diagnostic::error(id::RECURSION, at, "functions call each other too deeply")
                .label(format!("the limit of {MAX_CALLS} calls is passed here")),
        ));
    }
    let mut signature = Vec::new();
    for param in &callee.params {
        match param.passing {
            Passing::Variadic => return Err(unsupported(param.name.span, "`*` parameters in functions")),
            Passing::Keywords => return Err(unsupported(param.name.span, "`**` parameters in functions")),
            Passing::Positional | Passing::Either | Passing::Keyword => {}
        }
        signature.push(match &param.default {
            Some(_) => format!("{}=default", param.name.name),
            None => param.name.name.clone(),
        });
    }
    arguments(&callee.name.name, &signature.join(", "), args, at)
}

/// Refuses functions of the file that a kernel can't call: kernels, and those that a decorator changes.
pub(crate) fn callable(file: &ParsedFile, function: &Function, at: Moment, used: Span) -> Res<()> {
    not_a_kernel(file, function, at, used)?;
    undecorated(file, function, at)
}

/// Refuses a kernel where a function is used.
pub(crate) fn not_a_kernel(file: &ParsedFile, function: &Function, at: Moment, used: Span) -> Res<()> {
    match style::of(file, function, at) {
        None => Ok(()),
        Some(_) => Err(Box::new(
            Diagnostic::error(id::NOT_CALLABLE, used, format!("the kernel `{}` can't be used in a kernel", function.name.name))
                .label("kernels are launched, not called")
                .also(function.name.span, "the kernel")
                .help("write what both do as a function without a decorator"),
        )),
    }
}

/// Refuses functions that a decorator changes.
pub(crate) fn undecorated(file: &ParsedFile, function: &Function, at: Moment) -> Res<()> {
    for decorator in &function.decorators {
        let path = style::decorator_path(file, decorator, at);
        if !matches!(path.as_deref(), Some("cuda.tile.function" | "tessera.tile.function")) {
            return Err(Box::new(
                Diagnostic::error(id::UNSUPPORTED, decorator.span, "this decorator can't be applied here")
                    .also(function.name.span, "to this function")
                    .help("call the decorator's function in place of it, or write a block-style kernel with `cuda.tile`"),
            ));
        }
    }
    Ok(())
}

/// The argument expressions of each parameter of a signature, in its order: none where the default stands, any number for
/// a `*variadic` one.
pub(crate) fn arguments<'a>(function: &str, signature: &str, args: &'a [Arg], call: Span) -> Res<Vec<Vec<&'a Expr>>> {
    let parts: Vec<&str> = signature.split(", ").filter(|part| !part.is_empty()).collect();
    let positional_end = parts.iter().position(|part| *part == "/").unwrap_or(0);
    let mut slots = Vec::new();
    let mut keyword_only = false;
    for (i, part) in parts.iter().enumerate() {
        let (name, has_default) = part.split_once('=').map_or((*part, false), |(name, _)| (name, true));
        let (name, passing) = match name {
            "/" => continue,
            "*" => {
                keyword_only = true;
                continue;
            }
            name if name.starts_with('*') => {
                keyword_only = true;
                (&name[1..], Passing::Variadic)
            }
            name if keyword_only => (name, Passing::Keyword),
            name if i < positional_end => (name, Passing::Positional),
            name => (name, Passing::Either),
        };
        slots.push(Slot { name, passing, has_default });
    }
    // The binding carries positions in the call instead of values.
    let given: Vec<Given> = args
        .iter()
        .enumerate()
        .map(|(at, arg)| Given { keyword: arg.keyword.clone(), value: Val::int(at as i128), span: arg.value.span })
        .collect();
    let position = |given: Given| given.value.number().and_then(|at| at.as_int()).and_then(|at| args.get(at as usize));
    Ok(bind(function, &slots, &given, call)?
        .into_iter()
        .map(|group| group.into_iter().filter_map(position).map(|arg| &arg.value).collect())
        .collect())
}
