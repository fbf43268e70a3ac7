//! Results files as the report reads them: the one place that knows records.
//!
//! A line is one implementation of one case. Lines of the **product** (what the file is about) are told from those of
//! **baselines**, and each line is in exactly one [`Class`], so that counts add up.

use std::collections::BTreeSet;

use serde::Serialize;

use crate::case::Metric;
use crate::ceiling::Bound;
use crate::library::TESSERA;
use crate::record::{SessionRecord, SummaryRecord};
use crate::stats::{Interval, Summary};
use crate::status::{Flag, Status};
use crate::store::{Results, Row};

/// A results file with the name that the reader knows it by.
#[derive(Clone, Debug)]
pub struct Source {
    /// The file's name.
    pub name: String,
    /// What is in it; without a session it is an empty file.
    pub results: Results,
}

/// What can be said of a line: exactly one of these.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Class {
    Timed,
    Wide,
    Disturbed,
    Refused,
    Checked,
    Wrong,
    Failed,
    Unsupported,
    Skipped,
    Begun,
}

/// How a class is coloured.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum Tone {
    Good,
    Pale,
    Warn,
    Bad,
    Mute,
}

impl Class {
    /// Every class, in the order in which counts are told.
    pub(super) const ALL: [Class; 10] = [
        Class::Timed,
        Class::Wide,
        Class::Disturbed,
        Class::Refused,
        Class::Checked,
        Class::Wrong,
        Class::Failed,
        Class::Unsupported,
        Class::Skipped,
        Class::Begun,
    ];

    /// The class of a status; none stands for a row that was begun and has no outcome.
    pub(super) fn of(status: Option<Status>) -> Class {
        let Some(status) = status else { return Class::Begun };
        match status {
            Status::Ok => Class::Timed,
            Status::NotConverged => Class::Wide,
            Status::Throttled | Status::NoisyHost => Class::Disturbed,
            Status::OverPeak => Class::Refused,
            Status::Checked => Class::Checked,
            Status::Incorrect | Status::NotWritten | Status::Nondeterministic => Class::Wrong,
            Status::Oom | Status::Timeout | Status::CompileError | Status::RuntimeError | Status::HarnessError => Class::Failed,
            Status::Unsupported => Class::Unsupported,
            Status::Skipped => Class::Skipped,
        }
    }

    /// The class in a few words, and in a sentence.
    pub(super) fn words(self) -> (&'static str, &'static str) {
        match self {
            Class::Timed => ("timed", "right, and timed to the precision that was asked for"),
            Class::Wide => {
                ("timed, not precise", "right, and timed; the interval was still wider than asked for when time was up")
            }
            Class::Disturbed => ("timed, disturbed", "right, and timed while heat, power or other work held the device back"),
            Class::Refused => ("time refused", "right, but the time is below what the machine can do, so it is not told"),
            Class::Checked => ("checked only", "right; no time was taken"),
            Class::Wrong => ("wrong", "a result outside its bound, not written, or not the same twice"),
            Class::Failed => ("failed", "did not compile, did not run, or could not be checked"),
            Class::Unsupported => ("not offered", "the implementation does not offer the case"),
            Class::Skipped => ("skipped", "not attempted, for the reason given"),
            Class::Begun => ("unfinished", "begun, without an outcome: the run ended there"),
        }
    }

    pub(super) fn tone(self) -> Tone {
        match self {
            Class::Timed => Tone::Good,
            Class::Checked | Class::Wide => Tone::Pale,
            Class::Disturbed | Class::Refused | Class::Begun => Tone::Warn,
            Class::Wrong | Class::Failed => Tone::Bad,
            Class::Unsupported | Class::Skipped => Tone::Mute,
        }
    }

    /// The result was compared with the reference and is right.
    pub(super) fn passed(self) -> bool {
        match self {
            Class::Timed | Class::Wide | Class::Disturbed | Class::Refused | Class::Checked => true,
            Class::Wrong | Class::Failed | Class::Unsupported | Class::Skipped | Class::Begun => false,
        }
    }

    /// There is a time to show.
    pub(super) fn has_time(self) -> bool {
        matches!(self, Class::Timed | Class::Wide | Class::Disturbed)
    }
}

/// A value with its 95 % interval, where there is one.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Estimate {
    pub(super) value: f64,
    pub(super) ci: Option<Interval>,
}

/// One implementation of one case.
pub(super) struct Line<'a> {
    pub(super) row: &'a Row,
    pub(super) class: Class,
    /// Whether it is the product's.
    pub(super) own: bool,
    /// Least possible time over time.
    pub(super) share: Option<Estimate>,
    /// The best baseline and its time over this line's: above 1 this line is faster.
    pub(super) speed: Option<(&'a str, Estimate)>,
    /// Worst error over its bound; above 1 is wrong.
    pub(super) error: Option<f64>,
}

impl<'a> Line<'a> {
    fn of(row: &'a Row, own: bool) -> Line<'a> {
        let summary = row.summary.as_ref();
        let class = Class::of(summary.map(|s| s.status));
        let timed = summary.filter(|_| class.has_time());
        let share = timed.and_then(|s| {
            let (value, times) = (usable(s.efficiency?)?, s.times.as_ref()?);
            let of_time = |ns: f64| value * times.median_ns / ns;
            Some(Estimate { value, ci: times.ci95_ns.map(|ci| ci.invert(of_time)) })
        });
        let speed = timed.and_then(|s| s.versus.as_ref()).and_then(|versus| {
            let value = usable(1.0 / versus.ratio.ratio)?;
            let ci = versus.ratio.ci95.map(|ci| ci.invert(|ratio| 1.0 / ratio));
            Some((versus.baseline.as_str(), Estimate { value, ci }))
        });
        let error = row.gate.as_ref().and_then(|gate| gate.worst.as_ref()).map(|worst| worst.ratio.0);
        Line { row, class, own, share, speed, error }
    }

    pub(super) fn summary(&self) -> Option<&'a SummaryRecord> {
        self.row.summary.as_ref()
    }

    /// Times that may be shown.
    pub(super) fn times(&self) -> Option<&'a Summary> {
        self.summary().filter(|_| self.class.has_time()).and_then(|s| s.times.as_ref())
    }

    pub(super) fn operator(&self) -> &'a str {
        &self.row.case.key.operator
    }

    pub(super) fn precision(&self) -> &'a str {
        &self.row.case.key.precision
    }

    /// What its rate counts: bytes or operations.
    pub(super) fn metric(&self) -> Metric {
        self.row.case.work.metric
    }

    /// Bytes that have to be moved at least.
    pub(super) fn bytes(&self) -> f64 {
        self.row.case.work.min_bytes().max(1) as f64
    }

    /// The size of the case in every plot: the amount that its rate counts.
    pub(super) fn size(&self) -> f64 {
        match self.metric() {
            Metric::Bandwidth => self.bytes(),
            Metric::Compute => self.row.case.work.flops.max(1) as f64,
        }
    }

    pub(super) fn reason(&self) -> Option<&'a str> {
        self.summary().and_then(|s| s.reason.as_deref())
    }

    /// Its time is less than three empty launches: it tells of the launch, not of the kernel.
    pub(super) fn is_short(&self) -> bool {
        self.summary().is_some_and(|s| s.flags.contains(&Flag::LatencyBound))
    }

    pub(super) fn bound(&self) -> Option<&'static str> {
        self.summary()?.bound.map(|bound| match bound {
            Bound::Memory => "memory",
            Bound::Compute => "compute",
            Bound::Floor => "launch",
        })
    }
}

fn usable(value: f64) -> Option<f64> {
    (value.is_finite() && value > 0.0).then_some(value)
}

/// A results file.
pub(super) struct File<'a> {
    pub(super) name: &'a str,
    /// `A` for the first.
    pub(super) letter: char,
    pub(super) results: &'a Results,
    /// The implementation that the file is about.
    pub(super) product: &'a str,
    pub(super) lines: Vec<Line<'a>>,
}

impl<'a> File<'a> {
    /// Reads `source`, the file number `index` of the report.
    pub(super) fn of(source: &'a Source, index: usize) -> File<'a> {
        let results = &source.results;
        let product = product(&results.rows);
        let lines = results.rows.iter().map(|row| Line::of(row, row.case.implementation == product)).collect();
        File { name: &source.name, letter: (b'A' + (index % 26) as u8) as char, results, product, lines }
    }

    /// The first session, unless the file is empty.
    pub(super) fn session(&self) -> Option<&'a SessionRecord> {
        self.results.sessions.first()
    }

    pub(super) fn own(&self) -> impl Iterator<Item = &Line<'a>> {
        self.lines.iter().filter(|line| line.own)
    }

    /// The product's lines with a time.
    pub(super) fn timed(&self) -> impl Iterator<Item = &Line<'a>> {
        self.own().filter(|line| line.times().is_some())
    }

    /// Implementations besides the product, by name.
    pub(super) fn baselines(&self) -> BTreeSet<&'a str> {
        self.lines.iter().filter(|line| !line.own).map(|line| line.row.case.implementation.as_str()).collect()
    }
}

/// Tessera where it is in the file; else what was compared with something; else what comes first.
fn product(rows: &[Row]) -> &str {
    let named = rows.iter().find(|row| row.case.implementation == TESSERA);
    let compared = || rows.iter().find(|row| row.summary.as_ref().is_some_and(|s| s.versus.is_some()));
    named.or_else(compared).or(rows.first()).map_or("", |row| row.case.implementation.as_str())
}

/// Names in alphabetical order, each once.
pub(super) fn distinct<'a>(names: impl Iterator<Item = &'a str>) -> Vec<&'a str> {
    names.collect::<BTreeSet<_>>().into_iter().collect()
}
