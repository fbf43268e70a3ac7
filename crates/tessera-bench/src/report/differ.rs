//! Several files side by side: what differs between them, and what changed from the first to each other one.

use std::slice::from_ref;

use serde::Serialize;

use super::facts::{Fact, facts};
use super::lines::File;
use crate::compare::{Change, CompareOptions, Verdict, compare};
use crate::units;

/// Changed rows that are listed.
const MOST: usize = 20;

/// What is said of several files together.
#[derive(Serialize)]
pub(super) struct Difference {
    /// Whether times may be compared.
    verdict: String,
    comparable: bool,
    /// Facts that are not the same in all files: the name, and each file's value.
    differs: Vec<(&'static str, Vec<String>)>,
    /// Names of the facts that are.
    same: Vec<&'static str>,
    comparisons: Vec<Compared>,
}

/// The first file against another.
#[derive(Serialize)]
struct Compared {
    letter: char,
    /// Why they cannot be compared.
    refused: Option<String>,
    counts: Vec<(String, usize)>,
    mean: Option<String>,
    notes: Vec<String>,
    changes: Vec<Changed>,
    left_out: usize,
}

#[derive(Serialize)]
struct Changed {
    verdict: String,
    title: String,
    implementation: String,
    base: String,
    new: String,
    change: String,
    interval: String,
}

/// The difference of two files or more; none of one.
pub(super) fn difference(files: &[File<'_>]) -> Option<Difference> {
    let [first, others @ ..] = files else { return None };
    if others.is_empty() {
        return None;
    }
    let all: Vec<Vec<Fact>> = files.iter().map(told).collect();
    let mut names: Vec<&'static str> = Vec::new();
    for (name, _) in all.iter().flatten() {
        if !names.contains(name) {
            names.push(name);
        }
    }
    let (mut differs, mut same) = (Vec::new(), Vec::new());
    for name in names {
        let value = |facts: &Vec<Fact>| facts.iter().find(|(n, _)| *n == name).map_or(String::new(), |(_, value)| value.clone());
        let values: Vec<String> = all.iter().map(value).collect();
        if values.iter().all(|value| *value == values[0]) { same.push(name) } else { differs.push((name, values)) }
    }
    let fingerprints: Vec<Option<&String>> = files.iter().map(|file| file.session().map(|s| &s.fingerprint)).collect();
    let comparable = fingerprints.iter().all(|fingerprint| fingerprint.is_some() && *fingerprint == fingerprints[0]);
    let verdict = if comparable {
        "The machines have one fingerprint. The files were measured one after the other all the same: what the machine did between them \
         is in the changes, and is estimated from the ceilings that both measured."
    } else {
        "The machines differ: times of one file say nothing about those of another. Shares of the ceiling are each machine's own."
    };
    Some(Difference {
        verdict: verdict.into(),
        comparable,
        differs,
        same,
        comparisons: others.iter().map(|other| compared(first, other)).collect(),
    })
}

fn told(file: &File<'_>) -> Vec<Fact> {
    let mut told = facts(file);
    let Some(session) = file.session() else { return told };
    let ceilings = &file.results.ceilings;
    told.extend(ceilings.copy.last().map(|rate| ("copy at the largest footprint", units::rate(rate.best, "B/s"))));
    told.push(("rows", format!("{} of {}", file.lines.len(), file.results.planned())));
    told.push(("started", session.start.clone()));
    told.push(("command", session.argv.join(" ")));
    told
}

fn compared(first: &File<'_>, other: &File<'_>) -> Compared {
    let none = Compared {
        letter: other.letter,
        refused: None,
        counts: Vec::new(),
        mean: None,
        notes: Vec::new(),
        changes: Vec::new(),
        left_out: 0,
    };
    if first.session().is_none() || other.session().is_none() {
        return Compared { refused: Some("one of the files is empty".into()), ..none };
    }
    let comparison = match compare(from_ref(first.results), from_ref(other.results), CompareOptions::default()) {
        Ok(comparison) => comparison,
        Err(why) => return Compared { refused: Some(why.to_string()), ..none },
    };
    let told = |change: &&Change| {
        matches!(change.verdict, Verdict::Broken | Verdict::Slower | Verdict::Missing | Verdict::Faster | Verdict::Fixed)
    };
    let changes: Vec<&Change> = comparison.changes.iter().filter(told).collect();
    Compared {
        counts: comparison.counts.iter().map(|(verdict, n)| (verdict.to_string(), *n)).collect(),
        mean: comparison.geomean.map(|(ratio, ci)| format!("{ratio:.3} of the time (95 % interval {:.3} – {:.3})", ci.lo, ci.hi)),
        notes: comparison.notes.clone(),
        left_out: changes.len().saturating_sub(MOST),
        changes: changes.into_iter().take(MOST).map(changed).collect(),
        ..none
    }
}

fn changed(change: &Change) -> Changed {
    let time = |ns: Option<f64>| ns.map_or(String::new(), units::time);
    Changed {
        verdict: change.verdict.to_string(),
        title: change.title.clone(),
        implementation: change.implementation.clone(),
        base: time(change.median_ns.0),
        new: time(change.median_ns.1),
        change: change.estimate_pct.map_or_else(|| change.note.clone().unwrap_or_default(), |pct| format!("{pct:+.1} %")),
        interval: change.ci95_pct.map_or(String::new(), |ci| format!("{:+.1} to {:+.1} %", ci.lo, ci.hi)),
    }
}
