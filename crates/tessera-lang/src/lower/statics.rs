//! Compile-time evaluation: `static_eval`, `static_assert`, `ensure_constant`, `raise`.

use tessera_ir::{Diagnostic, Span};

use super::{Lowerer, Res};
use crate::ast::{Arg, Expr, ExprKind};
use crate::bind::Args;
use crate::builtins::Builtin;
use crate::diagnostics::id;
use crate::number::Num;
use crate::value::Val;

impl Lowerer<'_> {
    /// Evaluates with memory out of reach.
    pub(crate) fn statically(&mut self, expr: &Expr) -> Res<Val> {
        let outside = std::mem::replace(&mut self.is_static, true);
        let result = self.expr(expr);
        self.is_static = outside;
        result
    }

    /// The same where the value counts. An exception in its place says what Python raised when it evaluated the expression.
    pub(crate) fn evaluated(&mut self, expr: &Expr) -> Res<Val> {
        match self.statically(expr)? {
            Val::Exception(_, what) => Err(thrown(&what, expr.span)),
            value => Ok(value),
        }
    }

    /// Evaluates what a message is made of.
    fn told(&mut self, work: impl FnOnce(&mut Self) -> Res<Val>) -> Res<Val> {
        let outside = std::mem::replace(&mut self.telling, true);
        let result = work(self);
        self.telling = outside;
        result
    }

    pub(crate) fn static_eval(&mut self, args: &[Arg], span: Span) -> Res<Val> {
        match args {
            [Arg { keyword: None, value }] => self.evaluated(value),
            _ => Err(Box::new(Diagnostic::error(id::CALL, span, "`static_eval` takes one expression"))),
        }
    }

    pub(crate) fn static_assert(&mut self, args: &[Arg], span: Span) -> Res<Val> {
        let (condition, message) = match args {
            [Arg { keyword: None, value }] => (value, None),
            [Arg { keyword: None, value }, Arg { keyword: None, value: message }] => (value, Some(message)),
            _ => return Err(Box::new(Diagnostic::error(id::CALL, span, "`static_assert` takes a condition and a message"))),
        };
        let value = self.evaluated(condition)?;
        match value.number() {
            Some(Num::Bool(true)) => return Ok(Val::None),
            Some(Num::Bool(false)) => {}
            _ => {
                let error = match &value {
                    Val::Tile(tile) if tile.known.is_none() => Diagnostic::error(
                        id::NOT_CONSTANT,
                        condition.span,
                        "a compile-time assertion needs a condition known then",
                    ),
                    _ => Diagnostic::error(
                        id::ARGUMENT_TYPE,
                        condition.span,
                        "the condition of `static_assert` is `True` or `False`",
                    )
                    .help("compare it, for example with `!= 0` or `is not None`"),
                };
                return Err(Box::new(error.label(format!("this is {}", value.describe()))));
            }
        }
        let text = match message {
            Some(message) => match self.told(|lowerer| lowerer.statically(message))? {
                Val::None => String::new(),
                value => format!(": {}", self.text_of(&value)),
            },
            None => String::new(),
        };
        Err(Box::new(
            Diagnostic::error(id::STATIC_ASSERT, condition.span, format!("the compile-time assertion fails{text}"))
                .label("this does not hold"),
        ))
    }

    pub(crate) fn ensure_constant(&mut self, args: &Args) -> Res<Val> {
        let value = args.val(0);
        let is_constant = value.number().is_some()
            || value.fixed().is_some()
            || matches!(value, Val::Member(..) | Val::SourceClass(_))
            || matches!(value, Val::Instance(..) if !value.is_run_time())
            || matches!(value, Val::Enum(..) | Val::Builtin(_) | Val::Class(_) | Val::Ellipsis);
        if !is_constant {
            return Err(Box::new(
                Diagnostic::error(id::STATIC_ASSERT, args.span(0), "this is not known when the kernel is compiled")
                    .label(format!("this is {}", args.val(0).describe())),
            ));
        }
        Ok(args.val(0).clone())
    }

    /// An exception as Python names it.
    fn raised(&self, exception: &Val) -> String {
        match exception {
            Val::Exception(class, text) if text.is_empty() => (*class).to_owned(),
            Val::Exception(class, text) => format!("{class}: {text}"),
            Val::Class(class) => (*class).to_owned(),
            other => self.text_of(other),
        }
    }

    /// `raise ct.static_exception(...)`.
    pub(crate) fn raise(&mut self, exception: Option<&Expr>, span: Span) -> Res<()> {
        if let Some(Expr { kind: ExprKind::Call(function, args), .. }) = exception
            && matches!(self.expr(function)?, Val::Builtin(Builtin::StaticException))
        {
            let what = match args.as_slice() {
                [Arg { keyword: None, value }] => {
                    let value = self.told(|lowerer| lowerer.statically(value))?;
                    self.raised(&value)
                }
                _ => String::new(),
            };
            return Err(thrown(&what, span));
        }
        Err(Box::new(
            Diagnostic::error(id::UNSUPPORTED, span, "a kernel can't raise exceptions while it runs")
                .label("only compile-time exceptions are raised")
                .help("write `raise ct.static_exception(ValueError(\"...\"))`, or `ct.assert_(condition)` for run time"),
        ))
    }
}

/// The diagnostic for an exception of compile time.
fn thrown(what: &str, span: Span) -> Box<Diagnostic> {
    let message = format!("an exception was raised when the kernel was compiled ({what})");
    Box::new(Diagnostic::error(id::STATIC_EXCEPTION, span, message).label("raised here"))
}
