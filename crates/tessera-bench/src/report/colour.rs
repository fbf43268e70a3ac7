//! Colours of operators: the same operator has the same colour in every report.
//!
//! The operators that reports have most often, matrix products, rows and the benchmark suite's, have colours of their own, chosen so that any two differ for readers with protanopia, deuteranopia or
//! tritanopia too (at least 0.08 apart in OKLab under the simulation of Machado et al. 2009 at full severity), with a contrast of at least 3 against
//! the page. Other kernels share the rest by a hash of their names. A colour never stands alone: names stand beside it.

use serde::Serialize;

use crate::random::Digest;
use crate::selection::FOREMOST;

/// A colour on a light and on a dark page.
#[derive(Clone, Copy, Debug, Serialize)]
pub(super) struct Colour {
    pub(super) light: &'static str,
    pub(super) dark: &'static str,
}

/// The foremost operators', in the order of `FOREMOST`, then those that are shared.
pub(super) const COLOURS: [Colour; 18] = [
    Colour { light: "#3e3fbc", dark: "#5881fd" },
    Colour { light: "#7b1f06", dark: "#df9793" },
    Colour { light: "#2da082", dark: "#289227" },
    Colour { light: "#b96dd8", dark: "#ab5d9e" },
    Colour { light: "#b9740e", dark: "#dbc809" },
    Colour { light: "#00485b", dark: "#13c2ee" },
    Colour { light: "#6b665b", dark: "#dfdfd6" },
    Colour { light: "#1e4dfe", dark: "#9fab03" },
    Colour { light: "#4c038a", dark: "#8248c7" },
    Colour { light: "#c2185b", dark: "#ff7fae" },
    Colour { light: "#5d7a00", dark: "#a8cf3a" },
    Colour { light: "#0277bd", dark: "#7cc4ff" },
    Colour { light: "#8d5a3b", dark: "#d3a384" },
    Colour { light: "#5e35b1", dark: "#b79cff" },
    Colour { light: "#00796b", dark: "#5fd3c0" },
    Colour { light: "#d84315", dark: "#ff9f7a" },
    Colour { light: "#827717", dark: "#d4cc5c" },
    Colour { light: "#455a64", dark: "#a7bcc6" },
];

/// The index of an operator's colour; its CSS class is `o` with this number.
pub(super) fn colour(operator: &str) -> usize {
    FOREMOST.iter().position(|name| *name == operator).unwrap_or_else(|| {
        let mut digest = Digest::default();
        digest.bytes(operator.as_bytes());
        FOREMOST.len() + (digest.finish() % (COLOURS.len() - FOREMOST.len()) as u64) as usize
    })
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn operators_of_the_benchmark_suite_have_their_own() {
        assert!(FOREMOST.iter().all(|name| tessera_ops::find(name).is_some()), "a colour of no operator");
        let own: BTreeSet<usize> = FOREMOST.iter().map(|name| colour(name)).collect();
        assert_eq!(own.len(), FOREMOST.len(), "two operators have one colour");
        for of in [|colour: &Colour| colour.light, |colour: &Colour| colour.dark] {
            assert_eq!(COLOURS.iter().map(of).collect::<BTreeSet<&str>>().len(), COLOURS.len(), "a colour stands twice");
        }
        let suite = tessera_ops::OPERATORS.iter().filter(|operator| !(operator.suite)().is_empty());
        let taken: BTreeSet<usize> = suite.clone().map(|operator| colour(operator.name)).collect();
        assert!(taken.iter().all(|&at| at < FOREMOST.len()), "{taken:?}");
        assert_eq!(taken.len(), suite.count());
        assert!((FOREMOST.len()..COLOURS.len()).contains(&colour("my_kernel")));
        assert_eq!(colour("my_kernel"), colour("my_kernel"));
    }

    /// WCAG's contrast of a colour against a background.
    fn contrast(a: &str, b: &str) -> f64 {
        let luminance = |hex: &str| {
            let channel = |at: usize| {
                let value = f64::from(u8::from_str_radix(&hex[at..at + 2], 16).unwrap()) / 255.0;
                if value <= 0.040_45 { value / 12.92 } else { ((value + 0.055) / 1.055).powf(2.4) }
            };
            0.2126 * channel(1) + 0.7152 * channel(3) + 0.0722 * channel(5)
        };
        let (a, b) = (luminance(a), luminance(b));
        (a.max(b) + 0.05) / (a.min(b) + 0.05)
    }

    #[test]
    fn colours_stand_out_from_the_page() {
        for Colour { light, dark } in COLOURS {
            assert!(contrast(light, "#ffffff") >= 3.0, "{light}");
            assert!(contrast(dark, "#191a19") >= 3.0, "{dark}");
        }
    }
}
