//! Assignment to names and tuples of names.

use std::rc::Rc;

use tessera_ir::{Diagnostic, Span};

use super::expr::unsupported;
use super::{Lowerer, Res};
use crate::ast::{BinaryOp, Expr, ExprKind};
use crate::diagnostics::id;
use crate::value::Val;

impl Lowerer<'_> {
    /// Binds a target to a value.
    pub(crate) fn assign(&mut self, target: &Expr, value: Val, from: Span) -> Res<()> {
        match &target.kind {
            ExprKind::Name(name) => {
                self.check_kept(&value, from)?;
                self.bind(name, value, target.span);
                Ok(())
            }
            ExprKind::Tuple(targets) | ExprKind::List(targets) => {
                let items: Rc<[Val]> = match (&value, value.fixed()) {
                    (Val::Instance(class, items), _) if class.is_tuple() => items.clone(),
                    (Val::SourceClass(_) | Val::Dict(_), _) => self.sequence(&(value.clone(), from))?.into(),
                    (Val::Tuple(items) | Val::Sequence(items) | Val::Iterator(items), _) => items.clone(),
                    (Val::Str(_) | Val::Range(_), Some(_)) => self.sequence(&(value.clone(), from))?.into(),
                    _ => {
                        return Err(Box::new(
                            Diagnostic::error(id::UNPACK, from, format!("{} can't be unpacked", value.describe()))
                                .label("expected a tuple")
                                .also(target.span, format!("unpacked into {} names", targets.len())),
                        ));
                    }
                };
                let star = targets.iter().position(|target| matches!(target.kind, ExprKind::Starred(_)));
                let fits = match star {
                    Some(_) => items.len() + 1 >= targets.len(),
                    None => items.len() == targets.len(),
                };
                if !fits {
                    return Err(Box::new(
                        Diagnostic::error(
                            id::UNPACK,
                            target.span,
                            format!("{} items are unpacked into {} names", items.len(), targets.len()),
                        )
                        .label(format!("{} names", targets.len()))
                        .also(from, format!("this is {}", value.describe())),
                    ));
                }
                let spread = items.len() + 1 - targets.len().min(items.len() + 1);
                let mut at = 0;
                for target in targets {
                    match &target.kind {
                        ExprKind::Starred(inner) => {
                            let part = Val::Sequence(items[at..at + spread].to_vec().into());
                            self.assign(inner, part, from)?;
                            at += spread;
                        }
                        _ => {
                            self.assign(target, items[at].clone(), from)?;
                            at += 1;
                        }
                    }
                }
                Ok(())
            }
            ExprKind::Subscript(base, _) => {
                let base = self.at(base)?;
                let (what, help) = match &base.0 {
                    Val::Array(_) => {
                        ("an array's elements are not assigned", "use `ct.store` for tiles or `ct.scatter` for elements")
                    }
                    Val::Tile(_) => ("tiles are immutable", "make a new tile with `ct.where` or `ct.insert`"),
                    _ => ("items are not assigned", "build a new tuple instead"),
                };
                Err(Box::new(
                    Diagnostic::error(id::IMMUTABLE, target.span, what)
                        .also(base.1, format!("this is {}", base.0.describe()))
                        .help(help),
                ))
            }
            ExprKind::Attribute(base, _) => {
                let base = self.at(base)?;
                let error = Diagnostic::error(id::IMMUTABLE, target.span, "attributes are not assigned")
                    .also(base.1, format!("this is {}", base.0.describe()));
                Err(Box::new(match base.0 {
                    Val::Instance(..) => error.help("make a new object: `dataclasses.replace(object, field=value)`"),
                    _ => error,
                }))
            }
            _ => Err(unsupported("this assignment target", target.span)),
        }
    }

    /// `target op= value`.
    pub(crate) fn aug_assign(&mut self, target: &Expr, op: BinaryOp, value: &Expr, span: Span) -> Res<()> {
        match &target.kind {
            ExprKind::Name(_) => {
                let old = self.at(target)?;
                if let Val::Sequence(_) = old.0 {
                    return Err(changed_list(op, &old.0.describe(), span));
                }
                let value = self.at(value)?;
                let new = self.binary_operator(op, &old, &value, span)?;
                self.assign(target, new, span)
            }
            _ => self.assign(target, Val::None, span),
        }
    }
}

/// The refusal to change a list, since other names would keep what it was.
pub(crate) fn changed_list(op: BinaryOp, list: &str, span: Span) -> Box<Diagnostic> {
    let message = format!("`{}=` changes a list, which may have other names", op.symbol());
    Box::new(
        Diagnostic::error(id::IMMUTABLE, span, message)
            .label(format!("this is {list}"))
            .help(format!("make a new list, as in `a = a {} [...]`, or use a tuple", op.symbol())),
    )
}
