//! How far apart two results of one computation may be, and how far apart they are.
//!
//! `|got - want| <= atol + rtol * |want|`. What is not given on the command line comes from the element type
//! ([`tessera::bench::relative_tolerance`]): `rtol` is what sums differ by that are added up in another order, and `atol` is as large a part of the
//! median magnitude in an element's row or column ([`tessera::bench::Allowed`]), so that sums which cancel may be off by what their terms were rounded by, an array of zeros is right for
//! zeros alone, and a few huge elements excuse nothing.

use serde_json::{Value, json};
use tessera::bench::{Allowed, Tolerance};
use tessera::runtime::{Difference, Tensor};

use crate::failure::Failure;
use crate::finding::{Class, Finding};

/// What `--rtol` and `--atol` allow.
pub(crate) fn asked([rtol, atol]: [Option<f64>; 2]) -> Result<Tolerance, Failure> {
    for (name, value) in [("--rtol", rtol), ("--atol", atol)] {
        if let Some(value) = value.filter(|value| !(value.is_finite() && *value >= 0.0)) {
            return Err(Failure::usage(format!("`{name} {value}`: a tolerance is a number from 0 on")));
        }
    }
    Ok(Tolerance { rtol, atol })
}

/// What became of a comparison.
#[derive(Clone, Debug)]
pub(crate) struct Compared {
    /// The array.
    pub(crate) array: String,
    /// What it was compared with.
    pub(crate) with: String,
    elements: usize,
    allowed: Allowed,
    difference: Option<Difference>,
}

/// Compares an array with what it should be. NaN is as good as NaN here, and an infinity as itself: whether they may be there at all
/// is asked elsewhere.
pub(crate) fn compare(
    (array, got): (&str, &Tensor),
    (with, want): (&str, &Tensor),
    tolerance: Tolerance,
) -> Result<Compared, Failure> {
    let allowed = tolerance.allowed(got.dtype(), want.shape(), &want.to_f64().map_err(Failure::environment)?);
    let difference = got
        .difference(want, |place, want| allowed.at(place, want))
        .map_err(|error| Failure::usage(format!("`{array}` and {with}: {error}")))?;
    Ok(Compared { array: array.into(), with: with.into(), elements: got.len(), allowed, difference })
}

impl Compared {
    /// The comparison as a mistake, where it is one.
    pub(crate) fn finding(&self) -> Option<Finding> {
        let Difference { count, place, index, left, right } = self.difference.as_ref()?;
        let Compared { array, with, elements, allowed, .. } = self;
        let allowed = allowed.at(*place, right.to_f64());
        let message = format!(
            "`{array}` differs from {with} in {count} of {elements} elements, most at {index:?}: {left} where {right} is expected, \
             {allowed:.3e} allowed"
        );
        Some(Finding::new(Class::Wrong, "difference", message))
    }

    /// The comparison as a program reads it.
    pub(crate) fn to_json(&self) -> Value {
        let worst = self.difference.as_ref().map(|Difference { place, index, left, right, .. }| {
            // JSON has no infinities.
            json!({ "index": index, "got": left.to_string(), "want": right.to_string(), "atol": self.allowed.absolute(*place) })
        });
        json!({
            "array": self.array, "with": self.with, "elements": self.elements, "rtol": self.allowed.relative(),
            "failed": self.difference.as_ref().map_or(0, |difference| difference.count), "worst": worst,
        })
    }
}
