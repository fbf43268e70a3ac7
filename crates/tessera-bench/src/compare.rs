//! Comparing two results files: which rows became faster or slower, beyond noise and beyond a margin.
//!
//! The files were measured one after the other, so each row's change is `d = ln(new / base)` with an interval from both
//! medians' intervals, added in quadrature. What the machine itself did between the sessions is estimated by the ceilings
//! that both measured: their shift is the noise floor `f`, and the margin is `m = max(2 %, 3 f)`.
//!
//! | verdict | when |
//! |---|---|
//! | `FASTER`, `SLOWER` | the interval excludes 0, `\|d\| >= m`, and it is a discovery at a false-discovery rate of 5 % over all rows |
//! | `SAME` | the interval lies within `+-m/2` |
//! | `UNDECIDED` | neither |
//! | `BROKEN`, `FIXED` | a right row became wrong, a wrong one right |
//! | `INVALID` | one side has no time that may be compared |
//! | `MISSING`, `NEW` | in one file only |
//!
//! The base is the denominator: -3 % is three per cent less time. Files of different machines are refused.

use std::collections::BTreeMap;
use std::fmt;

use serde::{Deserialize, Serialize};

use crate::ceiling::{Ceilings, Rate};
use crate::exit::Exit;
use crate::record::SummaryRecord;
use crate::sample::Mode;
use crate::stats::{Interval, discoveries, normal_p};
use crate::status::Status;
use crate::store::{Results, Row};

/// What is said of one row.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "UPPERCASE")]
pub enum Verdict {
    /// A right row became wrong.
    Broken,
    /// More time, surely and by more than the margin.
    Slower,
    /// In the base only.
    Missing,
    /// No time that may be compared.
    Invalid,
    /// Neither changed nor surely the same.
    Undecided,
    /// Less time, surely and by more than the margin.
    Faster,
    /// A wrong row became right.
    Fixed,
    /// In the new file only.
    New,
    /// Surely within half the margin.
    Same,
}

impl Verdict {
    /// Every verdict, those to look at first.
    pub const ALL: [Verdict; 9] = [
        Verdict::Broken,
        Verdict::Slower,
        Verdict::Missing,
        Verdict::Invalid,
        Verdict::Undecided,
        Verdict::Faster,
        Verdict::Fixed,
        Verdict::New,
        Verdict::Same,
    ];

    /// The name in tables.
    pub const fn name(self) -> &'static str {
        match self {
            Verdict::Broken => "BROKEN",
            Verdict::Slower => "SLOWER",
            Verdict::Missing => "MISSING",
            Verdict::Invalid => "INVALID",
            Verdict::Undecided => "UNDECIDED",
            Verdict::Faster => "FASTER",
            Verdict::Fixed => "FIXED",
            Verdict::New => "NEW",
            Verdict::Same => "SAME",
        }
    }
}

impl fmt::Display for Verdict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

/// How to compare.
#[derive(Clone, Copy, Debug)]
pub struct CompareOptions {
    /// Smallest change that counts, as a share.
    pub margin: f64,
    /// Shift of the machine's own ceilings beyond which the comparison is invalid.
    pub anchor_limit: f64,
}

impl Default for CompareOptions {
    fn default() -> CompareOptions {
        CompareOptions { margin: 0.02, anchor_limit: 0.10 }
    }
}

/// One row of a comparison.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Change {
    /// Hash of the case.
    pub case: String,
    /// Which implementation.
    #[serde(rename = "impl")]
    pub implementation: String,
    /// The case in words.
    pub title: String,
    /// What is said.
    pub verdict: Verdict,
    /// Status in the base and in the new file.
    pub status: (Option<Status>, Option<Status>),
    /// Median in the base and in the new file.
    pub median_ns: (Option<f64>, Option<f64>),
    /// Change of the time in per cent.
    pub estimate_pct: Option<f64>,
    /// Its 95 % interval.
    pub ci95_pct: Option<Interval>,
    /// Why there is no verdict on speed.
    pub note: Option<String>,
}

/// The outcome of comparing two files.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Comparison {
    /// Rows, those to look at first.
    pub changes: Vec<Change>,
    /// How many of each verdict.
    pub counts: BTreeMap<Verdict, usize>,
    /// The margin used.
    pub margin_pct: f64,
    /// Shift of the machine's ceilings: the noise floor.
    pub anchor_pct: f64,
    /// Geometric mean of new over base time with its interval, over rows that have both times.
    pub geomean: Option<(f64, Interval)>,
    /// What else must be known: an unfinished file, another commit, a moved machine.
    pub notes: Vec<String>,
    /// True when no verdict on speed may be trusted.
    pub invalid: bool,
}

/// Why two files cannot be compared at all.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum CompareError {
    /// Another machine.
    #[error("the files are of different machines: {base} and {new}")]
    Machines {
        /// The base's processor and threads.
        base: String,
        /// The new file's.
        new: String,
    },
    /// Another device.
    #[error("the files are of different devices: {base} and {new}")]
    Devices {
        /// The base's.
        base: String,
        /// The new file's.
        new: String,
    },
    /// No case occurs in both.
    #[error("the files have no case in common")]
    Disjoint,
}

impl Comparison {
    /// What the command ends with.
    pub fn exit(&self) -> Exit {
        let has = |verdict| self.counts.contains_key(&verdict);
        if has(Verdict::Broken) {
            Exit::Incorrect
        } else if self.invalid {
            Exit::Invalid
        } else if has(Verdict::Slower) {
            Exit::Regression
        } else if has(Verdict::Missing) {
            Exit::Invalid
        } else {
            Exit::Ok
        }
    }
}

/// Compares `new` against `base`.
pub fn compare(base: &Results, new: &Results, options: CompareOptions) -> Result<Comparison, CompareError> {
    refuse_strangers(base, new)?;
    let by_key = |results: &'_ Results| -> BTreeMap<(String, String), Row> {
        let key = |row: &Row| (row.case.case.clone(), row.case.implementation.clone());
        results.rows.iter().map(|row| (key(row), row.clone())).collect()
    };
    let (olds, news) = (by_key(base), by_key(new));
    if !olds.keys().any(|key| news.contains_key(key)) {
        return Err(CompareError::Disjoint);
    }
    let anchor = anchor_shift(&base.ceilings, &new.ceilings);
    let margin = options.margin.max(3.0 * anchor);
    let keys: std::collections::BTreeSet<_> = olds.keys().chain(news.keys()).collect();
    let mut measured: Vec<(Change, Option<Shift>)> = keys.into_iter().map(|k| change(olds.get(k), news.get(k))).collect();
    let p: Vec<f64> = measured.iter().filter_map(|(_, s)| s.as_ref().map(Shift::p)).collect();
    let mut discovered = discoveries(&p, 0.05).into_iter();
    for (change, shift) in &mut measured {
        if let Some(shift) = shift {
            change.verdict = shift.verdict(margin, discovered.next().unwrap_or(false));
        }
    }
    let shifts: Vec<Shift> = measured.iter().filter_map(|(_, s)| *s).collect();
    let mut changes: Vec<Change> = measured.into_iter().map(|(change, _)| change).collect();
    let size = |c: &Change| c.estimate_pct.map_or(0.0, f64::abs);
    changes.sort_by(|a, b| a.verdict.cmp(&b.verdict).then(size(b).total_cmp(&size(a))).then(a.title.cmp(&b.title)));
    let mut counts = BTreeMap::new();
    changes.iter().for_each(|c| *counts.entry(c.verdict).or_default() += 1);
    let mut notes = notes(base, new);
    let moved = anchor > options.anchor_limit;
    if moved {
        notes.push(format!(
            "the machine's own ceilings moved by {:.1} % between the files (limit {:.0} %): speeds cannot be compared",
            anchor * 100.0,
            options.anchor_limit * 100.0
        ));
    }
    let strict = new.session().mode != Mode::Quick;
    Ok(Comparison {
        changes,
        counts,
        margin_pct: margin * 100.0,
        anchor_pct: anchor * 100.0,
        geomean: geomean(&shifts),
        invalid: moved || strict && !(base.complete() && new.complete()),
        notes,
    })
}

fn refuse_strangers(base: &Results, new: &Results) -> Result<(), CompareError> {
    let (a, b) = (base.session(), new.session());
    if a.fingerprint != b.fingerprint {
        let told = |s: &crate::record::SessionRecord| format!("{}, {} threads", s.environment.cpu, s.environment.threads);
        return Err(CompareError::Machines { base: told(a), new: told(b) });
    }
    if a.device != b.device {
        return Err(CompareError::Devices { base: a.device.clone(), new: b.device.clone() });
    }
    Ok(())
}

fn notes(base: &Results, new: &Results) -> Vec<String> {
    let mut notes = Vec::new();
    for (name, results) in [("base", base), ("new", new)] {
        if !results.complete() {
            let (done, planned) = (results.finished().len(), results.planned());
            notes.push(format!("the {name} file is incomplete: {done} of {planned} rows"));
        }
    }
    let (a, b) = (base.session(), new.session());
    if a.knobs != b.knobs {
        notes.push(format!("settings differ: {:?} and {:?}", a.knobs, b.knobs));
    }
    if a.mode != b.mode {
        notes.push(format!("modes differ: {} and {}", a.mode.name(), b.mode.name()));
    }
    notes
}

/// A change of log time with half its 95 % interval.
#[derive(Clone, Copy, Debug)]
struct Shift {
    log: f64,
    half: f64,
}

impl Shift {
    fn p(&self) -> f64 {
        if self.half > 0.0 { normal_p(self.log / (self.half / 1.959_964)) } else { f64::from(u8::from(self.log == 0.0)) }
    }

    fn verdict(&self, margin: f64, discovery: bool) -> Verdict {
        let margin = margin.ln_1p();
        if discovery && self.log.abs() > self.half && self.log.abs() >= margin {
            if self.log > 0.0 { Verdict::Slower } else { Verdict::Faster }
        } else if self.log.abs() + self.half <= margin / 2.0 {
            Verdict::Same
        } else {
            Verdict::Undecided
        }
    }

    fn interval_pct(&self) -> Interval {
        Interval { lo: (self.log - self.half).exp_m1() * 100.0, hi: (self.log + self.half).exp_m1() * 100.0 }
    }
}

fn change(base: Option<&Row>, new: Option<&Row>) -> (Change, Option<Shift>) {
    let summary = |row: Option<&Row>| row.and_then(|r| r.summary.clone());
    let (old, now) = (summary(base), summary(new));
    let named = new.or(base).map(|row| &row.case);
    let mut change = Change {
        case: named.map_or(String::new(), |c| c.case.clone()),
        implementation: named.map_or(String::new(), |c| c.implementation.clone()),
        title: named.map_or(String::new(), |c| c.key.to_string()),
        verdict: Verdict::Invalid,
        status: (old.as_ref().map(|s| s.status), now.as_ref().map(|s| s.status)),
        median_ns: (median(&old), median(&now)),
        estimate_pct: None,
        ci95_pct: None,
        note: None,
    };
    let (Some(old), Some(now)) = (old, now) else {
        change.verdict = if change.status.0.is_some() { Verdict::Missing } else { Verdict::New };
        return (change, None);
    };
    if old.status.is_wrong() != now.status.is_wrong() {
        change.verdict = if now.status.is_wrong() { Verdict::Broken } else { Verdict::Fixed };
        change.note = now.reason.or(old.reason);
        return (change, None);
    }
    let shift = shift(&old, &now);
    match &shift {
        Some(shift) => {
            change.estimate_pct = Some(shift.log.exp_m1() * 100.0);
            change.ci95_pct = Some(shift.interval_pct());
        }
        None => {
            let why =
                |s: &SummaryRecord| format!("{}{}", s.status, s.reason.as_ref().map_or(String::new(), |r| format!(": {r}")));
            change.note = Some(format!("base {}; new {}", why(&old), why(&now)));
        }
    }
    (change, shift)
}

fn median(summary: &Option<SummaryRecord>) -> Option<f64> {
    summary.as_ref()?.times.as_ref().map(|t| t.median_ns)
}

fn shift(old: &SummaryRecord, now: &SummaryRecord) -> Option<Shift> {
    let half = |summary: &SummaryRecord| {
        let ci = summary.times.as_ref()?.ci95_ns?;
        (summary.status.has_time()).then(|| (ci.hi / ci.lo).ln() / 2.0)
    };
    let (a, b) = (old.times.as_ref()?, now.times.as_ref()?);
    Some(Shift { log: (b.median_ns / a.median_ns).ln(), half: half(old)?.hypot(half(now)?) })
}

/// How far the machine moved: the median absolute shift of the ceilings that both files measured, as a share.
fn anchor_shift(base: &Ceilings, new: &Ceilings) -> f64 {
    let compute = |c: &Ceilings| -> Vec<Rate> { c.compute.iter().map(|(_, rate)| rate.clone()).collect() };
    let mut shifts = Vec::new();
    for (olds, news) in
        [(base.copy.clone(), new.copy.clone()), (base.read.clone(), new.read.clone()), (compute(base), compute(new))]
    {
        let pairs = olds.iter().zip(&news).filter(|(a, b)| a.footprint_bytes == b.footprint_bytes);
        shifts.extend(pairs.map(|(a, b)| (b.best / a.best).ln().abs()));
    }
    if shifts.is_empty() { 0.0 } else { crate::stats::median(&shifts).exp_m1() }
}

/// The geometric mean over a fixed set of rows; its interval adds the rows' in quadrature.
fn geomean(shifts: &[Shift]) -> Option<(f64, Interval)> {
    let n = shifts.len() as f64;
    let log = shifts.iter().map(|s| s.log).sum::<f64>() / n;
    let half = shifts.iter().map(|s| s.half * s.half).sum::<f64>().sqrt() / n;
    (n > 0.0).then(|| (log.exp(), Interval { lo: (log - half).exp(), hi: (log + half).exp() }))
}
