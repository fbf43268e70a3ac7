//! Powers: of floats one operation, of integers multiplications, since a float would round what does not fit it.
//!
//! ```text
//! y[i] = x[i] ** 5          #1 = x[i]; #2 = #1 * #1; #3 = #2 * #2; #4 = #1 * #3
//! ```

use tessera_ir::{Diagnostic, Span};

use super::env::Item;
use super::program::{Binary, Expression, ExpressionKind};
use super::value::{self, At};
use super::{Check, Res};
use crate::ast::BinaryOp;
use crate::fixed::{self, Fixed};
use crate::number::{self, Num};

impl Check<'_> {
    /// `a ** b`, which a function of this name asks for.
    pub(super) fn power(&mut self, name: &str, a: &At, b: &At, span: Span) -> Res<Item> {
        if let (Item::Fixed(x), Item::Fixed(y)) = (&a.0, &b.0) {
            return fixed::binary(BinaryOp::Pow, x, y, span).map(Item::Fixed);
        }
        let is_whole = |at: &At| match &at.0 {
            Item::Value(value) => !value.dtype.is_float(),
            Item::Fixed(value) => value.as_int().is_some(),
            _ => false,
        };
        if !is_whole(a) || !is_whole(b) {
            return value::binary(Binary::Pow, name, a, b, span);
        }
        let exponent = match &b.0 {
            Item::Fixed(value) => value.as_int().and_then(|exponent| u128::try_from(exponent).ok()),
            _ => None,
        };
        let (Item::Value(base), Some(exponent)) = (&a.0, exponent) else { return Err(not_whole(name, a, b, span)) };
        if !base.dtype.is_integer() {
            return Err(not_whole(name, a, b, span));
        }
        let (dtype, base) = (base.dtype, self.now(base.clone()));
        let product = number::power(base, exponent, |x, y| {
            let uniform = x.uniform && y.uniform;
            let kind = ExpressionKind::Binary(Binary::Mul, Box::new(x), Box::new(y));
            self.now(Expression { kind, dtype, uniform, span })
        });
        product.map_or_else(|| value::constant(Num::Int(1), dtype, span), Ok).map(Item::Value)
    }
}

fn not_whole(name: &str, a: &At, b: &At, span: Span) -> Box<Diagnostic> {
    let base = if let Item::Fixed(Fixed::Num(base)) = &a.0 { Some(*base) } else { None };
    let told = number::power_of_integers(name, base, span).also(a.1, format!("this is {}", a.0.describe()));
    Box::new(told.also(b.1, format!("this is {}", b.0.describe())))
}
