//! A problem: named extents and what else distinguishes a case of an operator.

use std::fmt;

/// Extents in the operator's order, and a variant such as `nt`, `triad strided_4` or `nn alpha=0.5`; the variant is empty for the plain case.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Problem {
    /// Names and values.
    pub extents: Vec<(&'static str, u64)>,
    /// What else distinguishes the case.
    pub variant: String,
}

impl Problem {
    /// A problem from its extents and variant.
    pub fn new(extents: &[(&'static str, u64)], variant: impl Into<String>) -> Problem {
        Problem { extents: extents.to_vec(), variant: variant.into() }
    }

    /// The extent of a name, 0 when there is none: a plan asks for its own operator's names only.
    pub fn get(&self, name: &str) -> u64 {
        self.extents.iter().find(|(n, _)| *n == name).map_or(0, |(_, value)| *value)
    }

    /// True when the variant has this word.
    pub fn has(&self, word: &str) -> bool {
        self.variant.split(' ').any(|part| part == word)
    }

    /// The number that the variant gives a name: 0.5 for `alpha` in `nn alpha=0.5`.
    pub fn number(&self, name: &str) -> Option<f64> {
        self.variant.split(' ').find_map(|word| word.strip_prefix(name)?.strip_prefix('=')?.parse().ok())
    }

    /// The variant without its numbers.
    pub fn kind(&self) -> String {
        self.variant.split(' ').filter(|word| !word.contains('=')).collect::<Vec<_>>().join(" ")
    }

    /// The same problem with a number in its variant, where that is not its usual value.
    #[must_use]
    pub(crate) fn with_number(mut self, (name, usual): (&str, f64), value: f64) -> Problem {
        if value == usual {
            return self;
        }
        if !self.variant.is_empty() {
            self.variant.push(' ');
        }
        self.variant.push_str(&format!("{name}={value}"));
        self
    }

    /// The same operator's problem with an extent replaced; `None` when there is no such extent.
    pub fn with(&self, name: &str, value: u64) -> Option<Problem> {
        let mut changed = self.clone();
        let slot = changed.extents.iter_mut().find(|(n, _)| *n == name)?;
        slot.1 = value;
        Some(changed)
    }
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if !self.variant.is_empty() {
            write!(f, "{} ", self.variant)?;
        }
        let extents: Vec<String> = self.extents.iter().map(|(name, value)| format!("{name}={value}")).collect();
        f.write_str(&extents.join(","))
    }
}
