//! How lines of one operator are told apart: each precision has one shape and one dash in all reports, and a short name.

use serde::Serialize;
use tessera_types::{DType, Policy};

/// A mark as an SVG path that starts at its centre.
const CIRCLE: &str = "m-3 0a3 3 0 1 0 6 0a3 3 0 1 0-6 0z";
const SQUARE: &str = "m-2.7-2.7h5.4v5.4h-5.4z";
const DIAMOND: &str = "m0-3.9l3.9 3.9-3.9 3.9-3.9-3.9z";
const UP: &str = "m0-3.7l3.6 6.2h-7.2z";
const DOWN: &str = "m0 3.7l3.6-6.2h-7.2z";
const PLUS: &str = "m-3.6 0h7.2m-3.6-3.6v7.2";
const CROSS: &str = "m-2.7-2.7l5.4 5.4m0-5.4l-5.4 5.4";
const BAR: &str = "m-3.6 0h7.2";

/// How a precision is drawn.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub(super) struct Style {
    /// Path of the mark from its centre.
    pub(super) mark: &'static str,
    /// CSS class of mark and line: `w` (wide), `m`, `n` (narrow), each filled, or hollow with `h`.
    pub(super) class: &'static str,
}

/// The style of a precision: widths and integers differ in their strokes, formats of one width in their shapes.
pub(super) fn style(precision: &str) -> Style {
    let (mark, class) = match element(precision) {
        Some(DType::F64) => (SQUARE, "w h"),
        Some(DType::F32) => (CIRCLE, "w"),
        Some(DType::TF32) => (CIRCLE, "w h"),
        Some(DType::F16) => (DIAMOND, "m"),
        Some(DType::BF16) => (SQUARE, "m"),
        Some(DType::F8E4M3 | DType::E8M0) => (UP, "n"),
        Some(DType::F8E5M2) => (DOWN, "n"),
        Some(DType::F6E2M3 | DType::F6E3M2) => (DOWN, "n h"),
        Some(DType::F4E2M1) => (UP, "n h"),
        Some(DType::I8 | DType::U8 | DType::I4 | DType::B1) => (PLUS, "i"),
        Some(DType::I64 | DType::I32 | DType::I16 | DType::U64 | DType::U32 | DType::U16) => (CROSS, "i"),
        None => (BAR, "i"),
    };
    Style { mark, class }
}

fn element(precision: &str) -> Option<DType> {
    precision.parse().ok().map(Policy::element)
}

/// Floats before integers and wide before narrow, then by name.
pub(super) fn order(precision: &str) -> (Option<DType>, &str) {
    (element(precision), precision)
}

/// The name without its accumulator where no other of `all` is left with the same, cut to what a plot has room for.
pub(super) fn short<'a>(precision: &'a str, all: &[&str]) -> std::borrow::Cow<'a, str> {
    const MOST: usize = 12;
    let stem = |name: &'a str| name.split('@').next().unwrap_or(name);
    let own = stem(precision);
    let unique = all.iter().filter(|other| other.split('@').next() == Some(own)).count() <= 1;
    let name = if unique { own } else { precision };
    match name.char_indices().nth(MOST) {
        Some((at, _)) => format!("{}…", &name[..at]).into(),
        None => name.into(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn precisions_of_the_library_differ() {
        let names = ["fp64", "fp32", "tf32", "bf16", "fp16", "fp8_e4m3", "fp8_e5m2", "fp6", "fp4", "int8", "int32"];
        for (i, a) in names.iter().enumerate() {
            for b in &names[..i] {
                assert_ne!(style(a), style(b), "{a} and {b} look the same");
            }
        }
        assert_eq!(style("fp8_e4m3@accum(fp32)"), style("fp8_e4m3"));
        assert_eq!(style("what is this").mark, BAR);
        let mut sorted = names;
        sorted.sort_by(|a, b| order(a).cmp(&order(b)));
        assert_eq!((sorted[0], sorted[9], sorted[10]), ("fp64", "int32", "int8"));
    }

    #[test]
    fn short_names_stay_apart() {
        let all = ["fp8_e4m3@accum(fp32)", "bf16", "bf16@accum(bf16)"];
        assert_eq!(all.map(|name| short(name, &all).into_owned()), ["fp8_e4m3", "bf16", "bf16@accum(b…"]);
    }
}
