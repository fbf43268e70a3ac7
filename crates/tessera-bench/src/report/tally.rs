//! Counts of lines by class. Their sum is the number of lines, and with the lines that were never begun it is what was planned.

use std::collections::BTreeMap;

use serde::Serialize;

use super::lines::{Class, File, Line, Tone};

/// Lines by class.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Tally([usize; Class::ALL.len()]);

impl Tally {
    pub(super) fn of<'a, 'b: 'a>(lines: impl Iterator<Item = &'a Line<'b>>) -> Tally {
        let mut tally = Tally::default();
        lines.for_each(|line| tally.0[line.class as usize] += 1);
        tally
    }

    pub(super) fn count(&self, class: Class) -> usize {
        self.0[class as usize]
    }

    pub(super) fn where_(&self, test: impl Fn(Class) -> bool) -> usize {
        Class::ALL.into_iter().filter(|&class| test(class)).map(|class| self.count(class)).sum()
    }

    pub(super) fn all(&self) -> usize {
        self.0.iter().sum()
    }

    pub(super) fn passed(&self) -> usize {
        self.where_(Class::passed)
    }

    pub(super) fn timed(&self) -> usize {
        self.where_(Class::has_time)
    }

    /// Classes that occur, with their counts.
    pub(super) fn parts(&self) -> impl Iterator<Item = (Class, usize)> {
        Class::ALL.into_iter().map(|class| (class, self.count(class))).filter(|(_, n)| *n > 0)
    }
}

/// One line of the account of a file: a class, and how many rows of the product and of each baseline are in it.
#[derive(Serialize)]
pub(super) struct Entry {
    name: &'static str,
    meaning: &'static str,
    tone: Tone,
    counts: Vec<usize>,
    sum: usize,
}

/// All rows of a file, by class and implementation.
#[derive(Serialize)]
pub(super) struct Account {
    /// The product, then the baselines.
    implementations: Vec<String>,
    entries: Vec<Entry>,
    /// Rows in the file, by implementation.
    totals: Vec<usize>,
    /// Rows in the file.
    rows: usize,
    /// Rows that were planned and never begun.
    missing: usize,
    /// Rows that were planned.
    planned: usize,
    /// Rows beyond the plan: a file that was put together says so.
    surplus: usize,
}

/// The account of a file.
pub(super) fn account(file: &File<'_>) -> Account {
    let baselines = file.baselines();
    let implementations: Vec<&str> = (!file.lines.is_empty()).then_some(file.product).into_iter().chain(baselines).collect();
    let tallies: Vec<Tally> = implementations
        .iter()
        .map(|name| Tally::of(file.lines.iter().filter(|line| line.row.case.implementation == *name)))
        .collect();
    let all = Tally::of(file.lines.iter());
    let entries = all.parts().map(|(class, sum)| {
        let (name, meaning) = class.words();
        Entry { name, meaning, tone: class.tone(), counts: tallies.iter().map(|t| t.count(class)).collect(), sum }
    });
    let planned = file.results.planned();
    Account {
        entries: entries.collect(),
        totals: tallies.iter().map(Tally::all).collect(),
        implementations: implementations.into_iter().map(String::from).collect(),
        rows: all.all(),
        missing: planned.saturating_sub(all.all()),
        planned,
        surplus: all.all().saturating_sub(planned),
    }
}

/// Why rows are not `timed` or `checked`: reasons that differ in their numbers alone count as one.
#[derive(Serialize)]
pub(super) struct Reason {
    class: &'static str,
    tone: Tone,
    implementation: String,
    rows: usize,
    /// The reason of the first of them, and which row that is.
    reason: String,
    example: String,
}

/// The reasons of a file, by class and by how often they occur.
pub(super) fn reasons(file: &File<'_>) -> Vec<Reason> {
    let mut groups: BTreeMap<(Class, &str, String), Vec<&Line<'_>>> = BTreeMap::new();
    for line in file.lines.iter().filter(|line| !matches!(line.class, Class::Timed | Class::Checked)) {
        let pattern = line.reason().unwrap_or_default().replace(|c: char| c.is_ascii_digit() || c == '.', "");
        groups.entry((line.class, &line.row.case.implementation, pattern)).or_default().push(line);
    }
    let mut reasons: Vec<(Class, Reason)> = groups
        .into_iter()
        .map(|((class, implementation, _), lines)| {
            let reason = lines[0].reason().unwrap_or(class.words().1).to_string();
            let (name, tone) = (class.words().0, class.tone());
            let example = lines[0].row.case.key.to_string();
            (class, Reason { class: name, tone, implementation: implementation.into(), rows: lines.len(), reason, example })
        })
        .collect();
    reasons.sort_by_key(|(class, reason)| (*class, std::cmp::Reverse(reason.rows)));
    reasons.into_iter().map(|(_, reason)| reason).collect()
}
