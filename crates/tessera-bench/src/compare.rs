//! Comparing results files: which rows became faster or slower, beyond noise and beyond a margin.
//!
//! The sides were measured one after the other, in processes of their own, and processes of one program differ
//! (`hierarchy.rs`). A side may be several files, each a session or more: a row's change is the difference of the means of its
//! processes' logarithms, with an interval from how much they differ, and, where they are few, from how much such processes
//! usually do. So one session a side finds large changes only; more sessions, or `compare --run`, find smaller ones. What the
//! machine itself did between the sessions is estimated by the ceilings that all measured: their shift is the noise floor
//! `f`, and the margin is `m = max(2 %, 3 f)`.
//!
//! | verdict | when |
//! |---|---|
//! | `FASTER`, `SLOWER` | `\|d\| >= m`, and the change is beyond chance by Holm's test: at most one comparison of equal programs in twenty has any such row |
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
use crate::hierarchy::{Common, ProcessFigure, between_processes, process_figures};
use crate::record::{BlockRecord, SummaryRecord};
use crate::sample::Mode;
use crate::stats::{Interval, TimedBlock, holm, median};
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

    /// Whether both sides had a part in it.
    pub const fn is_compared(self) -> bool {
        match self {
            Verdict::Missing | Verdict::Invalid | Verdict::New => false,
            Verdict::Broken | Verdict::Slower | Verdict::Undecided | Verdict::Faster | Verdict::Fixed | Verdict::Same => true,
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
    /// Median time in the base and in the new side's sessions.
    pub median_ns: (Option<f64>, Option<f64>),
    /// Change of the time in per cent.
    pub estimate_pct: Option<f64>,
    /// Its 95 % interval.
    pub ci95_pct: Option<Interval>,
    /// Why there is no verdict on speed.
    pub note: Option<String>,
}

/// The outcome of comparing files.
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
    /// Processes that measured the base and the new side: the most that any row has.
    pub processes: (usize, usize),
    /// The change in per cent that could have been told from chance in half of the rows; none where no row has times.
    pub visible_pct: Option<f64>,
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
    /// What the command ends with. A result that is wrong is wrong, whatever the base says; where nothing could be compared, nothing was found.
    pub fn exit(&self) -> Exit {
        let has = |verdict| self.counts.contains_key(&verdict);
        if self.changes.iter().any(|change| change.status.1.is_some_and(Status::is_wrong)) {
            Exit::Incorrect
        } else if self.invalid {
            Exit::Invalid
        } else if has(Verdict::Slower) {
            Exit::Regression
        } else if has(Verdict::Missing) || !self.counts.keys().any(|verdict| verdict.is_compared()) {
            Exit::Invalid
        } else {
            Exit::Ok
        }
    }
}

/// Compares the sessions of `new` against those of `base`.
pub fn compare(base: &[Results], new: &[Results], options: CompareOptions) -> Result<Comparison, CompareError> {
    let [first, ..] = base else { return Err(CompareError::Disjoint) };
    base.iter().chain(new).try_for_each(|results| refuse_strangers(first, results))?;
    let on_device = first.session().accelerator.is_some();
    let (olds, news) = (side(base), side(new));
    if !olds.keys().any(|key| news.contains_key(key)) {
        return Err(CompareError::Disjoint);
    }
    let anchor = anchor_shift(base, new);
    let margin = options.margin.max(3.0 * anchor);
    let keys: std::collections::BTreeSet<_> = olds.keys().chain(news.keys()).collect();
    let spread = |ns: f64| between_processes(on_device, ns);
    let mut measured: Vec<(Change, Option<Common>)> =
        keys.into_iter().map(|k| change(olds.get(k), news.get(k), &spread)).collect();
    let p: Vec<f64> = measured.iter().filter_map(|(_, s)| s.as_ref().map(Common::p)).collect();
    let mut discovered = holm(&p, ALARMS).into_iter();
    for (change, shift) in &mut measured {
        if let Some(shift) = shift {
            change.verdict = verdict(shift, margin, discovered.next().unwrap_or(false));
        }
    }
    let shifts: Vec<Common> = measured.iter().filter_map(|(_, s)| *s).collect();
    let mut changes: Vec<Change> = measured.into_iter().map(|(change, _)| change).collect();
    let size = |c: &Change| c.estimate_pct.map_or(0.0, f64::abs);
    changes.sort_by(|a, b| a.verdict.cmp(&b.verdict).then(size(b).total_cmp(&size(a))).then(a.title.cmp(&b.title)));
    let mut counts = BTreeMap::new();
    changes.iter().for_each(|c| *counts.entry(c.verdict).or_default() += 1);
    let mut notes = notes(base, new);
    let most = |rows: &BTreeMap<RowKey, SideRow>| rows.values().map(|row| row.figures.len()).max().unwrap_or(0);
    let each = ALARMS / shifts.len().max(1) as f64;
    let visible: Vec<f64> = shifts.iter().map(|shift| shift.half(each).exp_m1().max(margin) * 100.0).collect();
    let moved = anchor > options.anchor_limit;
    if moved {
        notes.push(format!(
            "the machine's own ceilings moved by {:.1} % between the files (limit {:.0} %): speeds cannot be compared",
            anchor * 100.0,
            options.anchor_limit * 100.0
        ));
    }
    if !counts.keys().any(|verdict: &Verdict| verdict.is_compared()) {
        notes.push("no row has an outcome on both sides that may be compared".into());
    }
    let strict = new.iter().any(|results| matches!(results.session().mode, Mode::Ci | Mode::Publish));
    let complete = base.iter().chain(new).all(Results::complete);
    Ok(Comparison {
        changes,
        counts,
        margin_pct: margin * 100.0,
        anchor_pct: anchor * 100.0,
        geomean: geomean(&shifts),
        processes: (most(&olds), most(&news)),
        visible_pct: (!visible.is_empty()).then(|| median(&visible)),
        invalid: moved || strict && !complete,
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

fn notes(base: &[Results], new: &[Results]) -> Vec<String> {
    let mut notes = Vec::new();
    for (name, files) in [("base", base), ("new", new)] {
        for results in files.iter().filter(|results| !results.complete()) {
            let (done, planned) = (results.finished().len(), results.planned());
            notes.push(format!("the {name} file is incomplete: {done} of {planned} rows"));
        }
    }
    let a = base[0].session();
    for b in base.iter().chain(new).map(Results::session) {
        if a.knobs != b.knobs {
            notes.push(format!("settings differ: {:?} and {:?}", a.knobs, b.knobs));
        }
        if a.mode != b.mode {
            notes.push(format!("modes differ: {} and {}", a.mode.name(), b.mode.name()));
        }
    }
    notes.dedup();
    notes
}

/// Of so many comparisons of equal programs, one may have an alarm.
const ALARMS: f64 = 0.05;

type RowKey = (String, String);

/// What all files of a side say of a row.
struct SideRow {
    row: Row,
    summary: Option<SummaryRecord>,
    figures: Vec<ProcessFigure>,
    times_ns: Vec<f64>,
}

/// The rows of a side. A row that is wrong in one session is wrong; without a time in one, it has those of the others.
fn side(files: &[Results]) -> BTreeMap<RowKey, SideRow> {
    let mut rows: BTreeMap<RowKey, SideRow> = BTreeMap::new();
    for row in files.iter().flat_map(|results| &results.rows) {
        let key = (row.case.case.clone(), row.case.implementation.clone());
        let side = rows.entry(key).or_insert_with(|| SideRow {
            row: row.clone(),
            summary: None,
            figures: Vec::new(),
            times_ns: Vec::new(),
        });
        let Some(summary) = &row.summary else { continue };
        let says_more = |known: &SummaryRecord| {
            summary.status.is_wrong() && !known.status.is_wrong()
                || summary.status.has_time() && !known.status.has_time() && !known.status.is_wrong()
        };
        if side.summary.as_ref().is_none_or(says_more) {
            side.summary = Some(summary.clone());
        }
        if let Some(times) = summary.times.as_ref().filter(|_| summary.status.has_time()) {
            side.times_ns.push(times.median_ns);
            let blocks: Vec<TimedBlock> = row.blocks.iter().map(BlockRecord::timed).collect();
            side.figures.extend(process_figures(&blocks));
        }
    }
    rows
}

/// The verdict on a change of log time.
fn verdict(shift: &Common, margin: f64, discovery: bool) -> Verdict {
    let margin = margin.ln_1p();
    if discovery && shift.log.abs() >= margin {
        if shift.log > 0.0 { Verdict::Slower } else { Verdict::Faster }
    } else if shift.log.abs() + shift.half(0.05) <= margin / 2.0 {
        Verdict::Same
    } else {
        Verdict::Undecided
    }
}

fn change(base: Option<&SideRow>, new: Option<&SideRow>, spread: &dyn Fn(f64) -> f64) -> (Change, Option<Common>) {
    let summary = |row: Option<&SideRow>| row.and_then(|r| r.summary.clone());
    let time = |row: Option<&SideRow>| row.map(|row| median(&row.times_ns)).filter(|ns| ns.is_finite());
    let (old, now) = (summary(base), summary(new));
    let named = new.or(base).map(|side| &side.row.case);
    let mut change = Change {
        case: named.map_or(String::new(), |c| c.case.clone()),
        implementation: named.map_or(String::new(), |c| c.implementation.clone()),
        title: named.map_or(String::new(), |c| c.key.to_string()),
        verdict: Verdict::Invalid,
        status: (old.as_ref().map(|s| s.status), now.as_ref().map(|s| s.status)),
        median_ns: (time(base), time(new)),
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
    let shift = base
        .zip(new)
        .filter(|_| !old.status.is_wrong())
        .and_then(|(base, new)| Common::difference(&base.figures, &new.figures, spread(change.median_ns.0?)));
    match &shift {
        Some(shift) => {
            let pct = |log: f64| log.exp_m1() * 100.0;
            let half = shift.half(0.05);
            change.estimate_pct = Some(pct(shift.log));
            change.ci95_pct = Some(Interval { lo: pct(shift.log - half), hi: pct(shift.log + half) });
        }
        None => {
            let why =
                |s: &SummaryRecord| format!("{}{}", s.status, s.reason.as_ref().map_or(String::new(), |r| format!(": {r}")));
            change.note = Some(format!("base {}; new {}", why(&old), why(&now)));
        }
    }
    (change, shift)
}

/// How far the machine moved: the median absolute shift of the ceilings that both sides measured, as a share.
fn anchor_shift(base: &[Results], new: &[Results]) -> f64 {
    let rates = |files: &[Results]| -> BTreeMap<(String, u64), Vec<f64>> {
        let mut best: BTreeMap<(String, u64), Vec<f64>> = BTreeMap::new();
        for ceilings in files.iter().map(|results| &results.ceilings) {
            let Ceilings { copy, read, compute, .. } = ceilings;
            let named = |name: &'static str| move |rate: &Rate| (name.to_string(), rate.footprint_bytes, rate.best);
            let all = copy.iter().map(named("copy")).chain(read.iter().map(named("read")));
            let all = all.chain(compute.iter().map(|(class, rate)| (class.name().to_string(), 0, rate.best)));
            all.for_each(|(name, bytes, rate)| best.entry((name, bytes)).or_default().push(rate.ln()));
        }
        best
    };
    let (olds, news) = (rates(base), rates(new));
    let shifts: Vec<f64> = olds.iter().filter_map(|(key, old)| Some((median(news.get(key)?) - median(old)).abs())).collect();
    if shifts.is_empty() { 0.0 } else { median(&shifts).exp_m1() }
}

/// The geometric mean over a fixed set of rows. What rows of one process have in common does not average out: the interval is
/// as wide as that of a row.
fn geomean(shifts: &[Common]) -> Option<(f64, Interval)> {
    let n = shifts.len() as f64;
    let log = shifts.iter().map(|s| s.log).sum::<f64>() / n;
    let half = shifts.iter().map(|s| s.half(0.05)).sum::<f64>() / n;
    (n > 0.0).then(|| (log.exp(), Interval { lo: (log - half).exp(), hi: (log + half).exp() }))
}
