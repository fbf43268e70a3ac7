//! Functions of `math`: of numbers that are known when the kernel is compiled, and of those that are made at run time, which have 32 bits
//! unless they say otherwise.

use tessera_ir::{Diagnostic, Span};
use tessera_types::DType;

use super::env::Item;
use super::program::{Binary, Unary};
use super::value::{self, At, convert};
use super::{Check, Res};
use crate::ast::Arg;
use crate::builtins::{Builtin, Space};
use crate::diagnostics::id;
use crate::fixed::{self, Fixed};
use crate::lower::names::missing_member;
use crate::number::Num;
use crate::written;

impl Check<'_> {
    /// `math.name(...)`.
    pub(super) fn math(&mut self, name: &str, args: &[Arg], span: Span) -> Res<Item> {
        let Some(builtin) = Builtin::find(Space::Math, name) else {
            let known =
                Builtin::ALL.iter().filter(|builtin| builtin.row().space == Space::Math).map(|builtin| builtin.row().name);
            return Err(missing_member("math", name, known, span));
        };
        let bound = written::arguments(&format!("math.{name}"), builtin.row().signature, args, span)?;
        let mut items: Vec<At> = Vec::new();
        for expr in bound.into_iter().flatten() {
            items.push(self.at(expr)?);
        }
        let known = |(item, _): &At| if let Item::Fixed(value) = item { Some(value.clone()) } else { None };
        if let Some(known) = items.iter().map(known).collect::<Option<Vec<Fixed>>>() {
            return fixed::math(builtin, &known, span).map(Item::Fixed);
        }
        let unary = |function: Unary, at: &At| value::unary(function, name, at, span);
        match (builtin, items.as_slice()) {
            (Builtin::MathSqrt, [x]) => unary(Unary::Sqrt, x),
            (Builtin::MathExp, [x]) => unary(Unary::Exp, x),
            (Builtin::MathLog, [x]) => unary(Unary::Log, x),
            (Builtin::MathLog, [x, base]) => {
                let base = match &base.0 {
                    Item::Fixed(base) => Item::Fixed(fixed::math(Builtin::MathLog, std::slice::from_ref(base), span)?),
                    _ => unary(Unary::Log, base)?,
                };
                value::binary(Binary::Div, name, &(unary(Unary::Log, x)?, span), &(base, span), span)
            }
            (Builtin::MathLog2, [x]) => unary(Unary::Log2, x),
            (Builtin::MathSin, [x]) => unary(Unary::Sin, x),
            (Builtin::MathCos, [x]) => unary(Unary::Cos, x),
            (Builtin::MathTanh, [x]) => unary(Unary::Tanh, x),
            (Builtin::MathPow, [x, y]) => value::binary(Binary::Pow, name, x, y, span),
            (Builtin::MathFabs, [(Item::Value(x), at)]) if x.dtype.is_integer() => {
                unary(Unary::Abs, &(Item::Value(convert(x.clone(), DType::F32)), *at))
            }
            (Builtin::MathFabs, [x]) => unary(Unary::Abs, x),
            // Python has integers of them.
            (Builtin::MathFloor | Builtin::MathCeil, [(Item::Value(x), _)]) if x.dtype.is_integer() => Ok(items[0].0.clone()),
            (Builtin::MathFloor, [x]) => self.cast(&(unary(Unary::Floor, x)?, span), DType::I32),
            (Builtin::MathCeil, [x]) => self.cast(&(unary(Unary::Ceil, x)?, span), DType::I32),
            (Builtin::MathIsNan, [x]) => {
                let x = (self.held(x.0.clone()), x.1);
                value::binary(Binary::Ne, name, &x, &x, span)
            }
            (Builtin::MathIsInf, [x]) => {
                let most = Item::Fixed(Fixed::Num(Num::Float(f64::INFINITY)));
                value::binary(Binary::Eq, name, &(unary(Unary::Abs, x)?, span), &(most, span), span)
            }
            _ => Err(Box::new(
                Diagnostic::error(
                    id::NOT_CONSTANT,
                    span,
                    format!("`math.{name}` works on numbers known when the kernel is compiled"),
                )
                .label("an argument is made at run time")
                .help("of such values there are `sqrt`, `exp`, `log`, `log2`, `sin`, `cos`, `tanh`, `pow`, `fabs`, `floor`, `ceil`, `isnan` and `isinf`"),
            )),
        }
    }
}
