//! The findings of a launch while it runs: each pair of instructions once, with a count, and what suppressions let pass.

use std::collections::BTreeMap;

use crate::finding::{Class, Finding, FindingKind};
use crate::options::LaunchOptions;
use crate::report::Suppressed;

/// What makes two findings one: the kind, the operation, and the earlier one.
pub(crate) type Key = (FindingKind, u32, Option<u32>);

struct Entry {
    finding: Finding,
    /// The suppression that lets it pass.
    rule: Option<usize>,
    /// The cluster that came first, and its how manieth finding it was.
    order: (u64, usize),
}

/// See the module's head.
#[derive(Default)]
pub(crate) struct Findings {
    entries: BTreeMap<Key, Entry>,
    /// Entries that no suppression lets pass.
    open: usize,
}

impl Findings {
    /// Notes a finding of a cluster; `make` is asked where it is new, or weighs more than before. Whether it is one that a
    /// suppression lets pass.
    pub(crate) fn note(
        &mut self,
        options: &LaunchOptions,
        cluster: u64,
        (key, class): (Key, Class),
        make: impl FnOnce() -> Finding,
    ) -> bool {
        let next = self.entries.len();
        if let Some(entry) = self.entries.get_mut(&key) {
            entry.finding.count += 1;
            if class > entry.finding.class {
                let count = entry.finding.count;
                entry.finding = Finding { class, count, ..make() };
            }
            return entry.rule.is_some();
        }
        let finding = Finding { class, ..make() };
        let rule = options.suppress.matching(&finding);
        self.open += usize::from(rule.is_none());
        self.entries.insert(key, Entry { finding, rule, order: (cluster, next) });
        rule.is_some()
    }

    /// Whether so many were found that the launch is stopped.
    pub(crate) fn is_full(&self, options: &LaunchOptions) -> bool {
        !options.keep_going && self.open >= options.most_findings
    }

    /// Takes over what another cluster or execution found.
    pub(crate) fn merge(&mut self, other: Findings) {
        for (key, entry) in other.entries {
            match self.entries.get_mut(&key) {
                None => {
                    self.open += usize::from(entry.rule.is_none());
                    self.entries.insert(key, entry);
                }
                Some(known) => {
                    let count = known.finding.count + entry.finding.count;
                    let weighs = (std::cmp::Reverse(entry.finding.class), entry.order);
                    if weighs < (std::cmp::Reverse(known.finding.class), known.order) {
                        *known = entry;
                    }
                    known.finding.count = count;
                }
            }
        }
    }

    /// Whether one of the kinds is among them.
    pub(crate) fn any(&self, kinds: &[FindingKind]) -> bool {
        self.entries.keys().any(|(kind, ..)| kinds.contains(kind))
    }

    /// The findings in the order in which they were noticed, and those that were let pass.
    pub(crate) fn told(self) -> (Vec<Finding>, Vec<Suppressed>) {
        let mut entries: Vec<Entry> = self.entries.into_values().collect();
        entries.sort_by_key(|entry| entry.order);
        let (mut open, mut passed) = (Vec::new(), Vec::new());
        for Entry { finding, rule, .. } in entries {
            match rule {
                None => open.push(finding),
                Some(rule) => passed.push(Suppressed { rule, finding }),
            }
        }
        (open, passed)
    }
}
