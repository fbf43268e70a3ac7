//! Versions and targets: which PTX version a module says, which chip it is for, and what a row needs of both.
//!
//! Targets with an `a` are for one chip only; targets with an `f` are for its family. A row that needs sm_90a is legal for
//! exactly that target.

use std::fmt;

/// A PTX ISA version.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PtxVersion {
    /// Before the point.
    pub major: u32,
    /// Behind the point.
    pub minor: u32,
}

impl PtxVersion {
    /// A version.
    pub const fn new(major: u32, minor: u32) -> PtxVersion {
        PtxVersion { major, minor }
    }

    /// The version that a module for a target says, unless its instructions need a later one: 7.8 has the optional modifiers
    /// of the rows for older chips, later chips need their own; 8.1 is the first whose conversions of 8-bit floats sm_89 has.
    pub const fn usual_for(target: Target) -> PtxVersion {
        match (target.sm, target.variant) {
            (..=88, _) => PtxVersion::new(7, 8),
            (89, _) => PtxVersion::new(8, 1),
            (90..=99, _) => PtxVersion::new(8, 0),
            (100..=119, Variant::Plain | Variant::Architecture) => PtxVersion::new(8, 6),
            (100..=119, Variant::Family) => PtxVersion::new(8, 8),
            (120.., Variant::Plain | Variant::Architecture) => PtxVersion::new(8, 7),
            (120.., Variant::Family) => PtxVersion::new(8, 8),
        }
    }
}

impl fmt::Display for PtxVersion {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}", self.major, self.minor)
    }
}

/// The suffix of a target.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Variant {
    /// `sm_90`: later chips run it too.
    Plain,
    /// `sm_90a`: this chip only.
    Architecture,
    /// `sm_100f`: this chip's family.
    Family,
}

/// A target chip.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Target {
    /// 90 for `sm_90`.
    pub sm: u32,
    /// The suffix.
    pub variant: Variant,
}

impl Target {
    /// Hopper with all of its own instructions.
    pub const SM_90A: Target = Target { sm: 90, variant: Variant::Architecture };

    /// Reads `sm_80`, `sm_90a`, `sm_100f`.
    pub fn parse(name: &str) -> Option<Target> {
        let digits = name.strip_prefix("sm_")?;
        let (digits, variant) = match digits.strip_suffix('a') {
            Some(rest) => (rest, Variant::Architecture),
            None => match digits.strip_suffix('f') {
                Some(rest) => (rest, Variant::Family),
                None => (digits, Variant::Plain),
            },
        };
        let sm = digits.parse().ok().filter(|_| digits.len() <= 3 && digits.bytes().all(|byte| byte.is_ascii_digit()))?;
        Some(Target { sm, variant })
    }
}

impl fmt::Display for Target {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let suffix = match self.variant {
            Variant::Plain => "",
            Variant::Architecture => "a",
            Variant::Family => "f",
        };
        write!(f, "sm_{}{suffix}", self.sm)
    }
}

/// What a row asks of the target.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Needs {
    /// This chip or a later one.
    Sm(u32),
    /// Exactly this chip, with the `a` suffix.
    Exactly(u32),
}

impl Needs {
    /// What meets both.
    pub(crate) fn with(self, other: Needs) -> Needs {
        match (self, other) {
            (Needs::Sm(a), Needs::Sm(b)) => Needs::Sm(a.max(b)),
            (Needs::Exactly(sm), _) | (_, Needs::Exactly(sm)) => Needs::Exactly(sm),
        }
    }

    /// Whether a target meets it.
    pub fn met_by(self, target: Target) -> bool {
        match self {
            Needs::Sm(sm) => target.sm >= sm,
            Needs::Exactly(sm) => target.sm == sm && target.variant == Variant::Architecture,
        }
    }
}

impl fmt::Display for Needs {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Needs::Sm(sm) => write!(f, "sm_{sm} or later"),
            Needs::Exactly(sm) => write!(f, "sm_{sm}a"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn targets_are_read_and_compared() {
        let target = |name| Target::parse(name).unwrap();
        assert_eq!(target("sm_90a"), Target::SM_90A);
        assert_eq!(target("sm_100f").to_string(), "sm_100f");
        assert!(Needs::Sm(80).met_by(target("sm_90")));
        assert!(!Needs::Exactly(90).met_by(target("sm_90")));
        assert!(!Needs::Exactly(90).met_by(target("sm_100a")));
        for wrong in ["sm_", "90a", "sm_9999", "sm_+90", "sm_aa"] {
            assert_eq!(Target::parse(wrong), None, "{wrong}");
        }
    }
}
