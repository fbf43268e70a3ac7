//! Powers: of floats one operation, of integers multiplications, since a float would round what does not fit it.

use tessera_ir::{Diagnostic, ScheduleOp, Span};

use super::data::Pair;
use super::{At, Data, Item, Res, Walk};
use crate::fixed::Fixed;
use crate::number::{self, Num};

impl Walk<'_> {
    /// `a ** b`, which a function of this name asks for.
    pub(super) fn power(&mut self, name: &str, a: &At, b: &At, span: Span) -> Res<Item> {
        let is_whole = |at: &At| match &at.0 {
            Item::Data(data) => !data.dtype.is_float(),
            Item::Fixed(value) => value.as_int().is_some(),
            _ => false,
        };
        if !is_whole(a) || !is_whole(b) {
            return self.pair(Pair::Pow, name, a, b, span);
        }
        let exponent = match &b.0 {
            Item::Fixed(value) => value.as_int().and_then(|exponent| u128::try_from(exponent).ok()),
            _ => None,
        };
        let (Item::Data(base), Some(exponent)) = (&a.0, exponent) else { return Err(not_whole(name, a, b, span)) };
        if !base.dtype.is_integer() {
            return Err(not_whole(name, a, b, span));
        }
        let base = base.clone();
        let (dtype, axes) = (base.dtype, base.axes.clone());
        let product = number::power(base, exponent, |x: Data, y: Data| {
            let kind = ScheduleOp::MulI { overflow: tessera_ir::attrs::Overflow::Wraps };
            self.data(kind, &[x.value, y.value], dtype, x.axes)
        });
        let product = match (product, axes) {
            (Some(product), _) => product,
            (None, axes) => {
                let one = self.number(Num::Int(1), dtype).ok_or_else(|| not_whole(name, a, b, span))?;
                axes.map_or(one.clone(), |axes| self.spread(&one, &axes))
            }
        };
        Ok(Item::Data(product))
    }
}

fn not_whole(name: &str, a: &At, b: &At, span: Span) -> Box<Diagnostic> {
    let base = if let Item::Fixed(Fixed::Num(base)) = &a.0 { Some(*base) } else { None };
    let told = number::power_of_integers(name, base, span).also(a.1, format!("this is {}", a.0.describe()));
    Box::new(told.also(b.1, format!("this is {}", b.0.describe())))
}
