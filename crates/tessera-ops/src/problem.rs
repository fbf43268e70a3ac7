//! A problem: named extents and what else distinguishes a case of an operator.

use std::fmt;
use std::ops::RangeInclusive;

use crate::operator::Unsupported;

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

    /// The whole number that the variant gives a name, or its usual value. Kernels count in integers: what a cast would make of another number is
    /// not what was asked for.
    ///
    /// # Errors
    /// Where it is no whole number of the range.
    pub(crate) fn whole(&self, (name, usual): (&str, f64), range: RangeInclusive<i64>) -> Result<i64, Unsupported> {
        let value = self.number(name).unwrap_or(usual);
        if value.fract() != 0.0 || !(*range.start() as f64..=*range.end() as f64).contains(&value) {
            let (least, most) = range.into_inner();
            return Err(Unsupported(format!("`{name}` is {value}, and is a whole number from {least} to {most}")));
        }
        Ok(value as i64)
    }

    /// The variant without its numbers.
    pub fn kind(&self) -> String {
        self.variant.split(' ').filter(|word| !word.contains('=')).collect::<Vec<_>>().join(" ")
    }

    /// The same problem with a number in its variant, where that is not its usual value, in place of one that it has.
    #[must_use]
    pub(crate) fn with_number(mut self, (name, usual): (&str, f64), value: f64) -> Problem {
        let own = |word: &&str| word.strip_prefix(name).is_some_and(|rest| rest.starts_with('='));
        self.variant = self.variant.split(' ').filter(|word| !own(word)).collect::<Vec<_>>().join(" ");
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_number_takes_the_place_of_another() {
        let problem = Problem::new(&[], "nn left=100 right=0 leftmost=3");
        assert_eq!(problem.clone().with_number(("left", -1.0), 7.0).variant, "nn right=0 leftmost=3 left=7");
        assert_eq!(problem.with_number(("right", 0.0), 0.0).variant, "nn left=100 leftmost=3");
    }

    #[test]
    fn numbers_that_count_are_whole() {
        let of = |variant: &str| Problem::new(&[], variant).whole(("start", 7.0), -100..=1 << 20).map_err(|why| why.0);
        assert_eq!([of(""), of("start=-100"), of("start=1048576")], [Ok(7), Ok(-100), Ok(1 << 20)]);
        for wrong in ["0.5", "-101", "1e20", "NaN", "inf"] {
            let why = of(&format!("start={wrong}")).expect_err("no whole number of the range");
            assert!(why.ends_with(", and is a whole number from -100 to 1048576"), "{why}");
        }
    }
}
