//! Which code runs on which device.

/// A target's name in parts: `sm_90a` is 9, 0 and `a`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct TargetName {
    pub(crate) major: u32,
    pub(crate) minor: u32,
    pub(crate) reach: Reach,
}

/// The devices beyond its own that a target's code runs on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Reach {
    /// Every later one.
    Later,
    /// Later ones of the same family (`f`).
    Family,
    /// None (`a`).
    Alone,
}

impl TargetName {
    pub(crate) fn parse(name: &str) -> Option<TargetName> {
        let digits = name.strip_prefix("sm_")?;
        let (digits, reach) = match digits.strip_suffix(['a', 'f']) {
            Some(own) => (own, if digits.ends_with('a') { Reach::Alone } else { Reach::Family }),
            None => (digits, Reach::Later),
        };
        let is_number = (2..=4).contains(&digits.len()) && digits.bytes().all(|byte| byte.is_ascii_digit());
        let number: u32 = digits.parse().ok().filter(|_| is_number)?;
        Some(TargetName { major: number / 10, minor: number % 10, reach })
    }

    /// Whether text for the target runs on a device of a compute capability.
    pub(crate) fn runs_on(self, capability: (u32, u32)) -> bool {
        let own = (self.major, self.minor);
        match self.reach {
            Reach::Later => own <= capability,
            Reach::Family => self.major == capability.0 && own <= capability,
            Reach::Alone => own == capability,
        }
    }

    /// Whether machine code for it does.
    pub(crate) fn code_runs_on(self, capability: (u32, u32)) -> bool {
        self.runs_on(capability) && self.major == capability.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_runs_on_later_devices_and_machine_code_on_those_of_its_generation() {
        let name = |text: &str| TargetName::parse(text).expect(text);
        assert!(name("sm_80").runs_on((8, 0)) && name("sm_80").runs_on((9, 0)) && !name("sm_80").runs_on((7, 5)));
        assert!(name("sm_80").code_runs_on((8, 6)) && !name("sm_80").code_runs_on((9, 0)) && !name("sm_86").code_runs_on((8, 0)));
        assert!(name("sm_90a").runs_on((9, 0)) && !name("sm_90a").runs_on((10, 0)) && !name("sm_100a").runs_on((10, 3)));
        assert!(name("sm_100f").runs_on((10, 3)) && !name("sm_100f").runs_on((12, 0)));
        assert!(name("sm_90a") > name("sm_90") && name("sm_90") > name("sm_80"));
        assert!(
            ["", "sm_", "sm_a", "sm_9", "90a", "sm_90b", "sm_+90", "sm_99999"]
                .iter()
                .all(|text| TargetName::parse(text).is_none())
        );
    }
}
