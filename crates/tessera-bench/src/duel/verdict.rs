//! What is said of a row of a duel, and of all of them.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::evidence::Bound;
use crate::case::Pace;
use crate::compare::{Change, Verdict};
use crate::exit::Exit;
use crate::library::TESSERA;
use crate::stats::Interval;

/// One row of a duel.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct RowOutcome {
    /// Hash of the case.
    pub case: String,
    /// The case in words.
    pub title: String,
    /// What is said.
    pub verdict: Verdict,
    /// Estimate of `ln(b / a)`, also where nothing is sure yet.
    pub estimate: Option<f64>,
    /// The estimate with its interval; none where pairs were too few for one.
    pub bound: Option<Bound>,
    /// The smallest change that matters in this row, as a share.
    pub least: f64,
    /// Pairs that have a time of the row.
    pub pairs: usize,
    /// Median time on either side.
    pub median_ns: [Option<f64>; 2],
    /// How its launches were timed.
    pub pace: Option<Pace>,
    /// Why there is no verdict on speed.
    pub note: Option<String>,
}

impl RowOutcome {
    /// Change of the time in per cent.
    pub fn change_pct(&self) -> Option<f64> {
        self.estimate.map(|log| log.exp_m1() * 100.0)
    }

    /// Its interval.
    pub fn interval_pct(&self) -> Option<Interval> {
        let pct = |log: f64| log.exp_m1() * 100.0;
        self.bound.map(|bound| Interval { lo: pct(bound.log - bound.half), hi: pct(bound.log + bound.half) })
    }
}

/// The verdict that a bound gives.
///
/// A change counts when the interval leaves zero out and the estimate is nearer to the smallest change that matters than to
/// none; sameness, when the interval lies within that change on either side.
pub(crate) fn of(bound: Bound, least: f64) -> Verdict {
    let least = least.ln_1p();
    let far = bound.log.abs() >= least / 2.0;
    if bound.log.abs() > bound.half && far {
        if bound.log > 0.0 { Verdict::Slower } else { Verdict::Faster }
    } else if bound.log.abs() + bound.half <= least {
        Verdict::Same
    } else {
        Verdict::Undecided
    }
}

/// Rows to look at first come first.
pub(crate) fn sort(rows: &mut [RowOutcome]) {
    let size = |row: &RowOutcome| row.estimate.map_or(0.0, f64::abs);
    rows.sort_by(|a, b| a.verdict.cmp(&b.verdict).then(size(b).total_cmp(&size(a))).then(a.title.cmp(&b.title)));
}

/// How a duel ended.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct DuelOutcome {
    /// The sides: what is compared with, and what is judged.
    pub names: [String; 2],
    /// How sure all verdicts together are.
    pub sure: f64,
    /// The smallest change that matters, as a share.
    pub least: f64,
    /// What decided who began, the order of rows and where memory lay.
    pub seed: u64,
    /// Rows, those to look at first.
    pub rows: Vec<RowOutcome>,
    /// Pairs that counted.
    pub pairs: usize,
    /// How often all rows were looked at.
    pub looks: usize,
    /// What it took.
    pub seconds: f64,
    /// What else must be known.
    pub notes: Vec<String>,
}

impl DuelOutcome {
    /// How many rows have each verdict.
    pub fn counts(&self) -> BTreeMap<Verdict, usize> {
        let mut counts = BTreeMap::new();
        self.rows.iter().for_each(|row| *counts.entry(row.verdict).or_default() += 1);
        counts
    }

    /// The rows as a comparison of files tells them.
    pub fn changes(&self) -> Vec<Change> {
        let change = |row: &RowOutcome| Change {
            case: row.case.clone(),
            implementation: TESSERA.into(),
            title: row.title.clone(),
            verdict: row.verdict,
            status: (None, None),
            median_ns: (row.median_ns[0], row.median_ns[1]),
            estimate_pct: row.change_pct(),
            ci95_pct: row.interval_pct(),
            note: row.note.clone(),
        };
        self.rows.iter().map(change).collect()
    }

    /// What the command ends with. A row that stays undecided is listed and fails nothing; a duel that ended before any row
    /// could have been decided is no measurement.
    pub fn exit(&self) -> Exit {
        let counts = self.counts();
        let has = |verdict| counts.contains_key(&verdict);
        if has(Verdict::Broken) {
            Exit::Incorrect
        } else if has(Verdict::Slower) {
            Exit::Regression
        } else if has(Verdict::Missing) || has(Verdict::Undecided) && self.rows.iter().all(|row| row.bound.is_none()) {
            Exit::Invalid
        } else {
            Exit::Ok
        }
    }
}
