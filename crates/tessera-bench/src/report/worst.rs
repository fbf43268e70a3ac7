//! The rows to look at first: those that went wrong, those furthest from their ceiling, those furthest behind a baseline.

use std::collections::BTreeMap;

use serde::Serialize;

use super::colour::colour;
use super::lines::{File, Line, Tone};
use super::overview::{Scales, percent, speed_text};
use crate::table::throughput;
use crate::units;

/// Rows of each list.
const MOST: usize = 15;
/// Rows of one operator among those furthest from the ceiling, so that one does not hide the others.
const MOST_OF_ONE: usize = 3;
/// Rows that went wrong are listed further.
const MOST_WRONG: usize = 50;

/// The lists of a file.
#[derive(Serialize)]
pub(super) struct Worst {
    pub(super) wrong: Vec<WrongRow>,
    /// Rows that went wrong and are not listed.
    pub(super) wrong_left_out: usize,
    /// One row of each kind (operator, variant and precision).
    pub(super) far: Vec<FarRow>,
    /// Kinds that are not listed.
    far_left_out: usize,
    pub(super) behind: Vec<BehindRow>,
    behind_left_out: usize,
}

/// What names a row in a list.
#[derive(Serialize)]
pub(super) struct Named {
    pub(super) operator: String,
    variant: String,
    pub(super) size: String,
    pub(super) precision: String,
    implementation: String,
    colour: usize,
}

#[derive(Serialize)]
pub(super) struct WrongRow {
    #[serde(flatten)]
    pub(super) row: Named,
    pub(super) status: String,
    tone: Tone,
    pub(super) reason: String,
}

#[derive(Serialize)]
pub(super) struct FarRow {
    #[serde(flatten)]
    pub(super) row: Named,
    pub(super) share: String,
    pub(super) bound: &'static str,
    time: String,
    rate: String,
    bar: String,
    /// How many rows there are of the kind, and how many of them reach less than half.
    rows: usize,
    low: usize,
}

#[derive(Serialize)]
pub(super) struct BehindRow {
    #[serde(flatten)]
    pub(super) row: Named,
    pub(super) baseline: String,
    pub(super) speed: String,
    pub(super) interval: String,
    time: String,
    share: String,
    point: String,
}

fn named(line: &Line<'_>) -> Named {
    let key = &line.row.case.key;
    Named {
        operator: key.operator.clone(),
        variant: key.variant.clone(),
        size: key.size.to_string(),
        precision: key.precision.clone(),
        implementation: line.row.case.implementation.clone(),
        colour: colour(&key.operator),
    }
}

fn time(line: &Line<'_>) -> String {
    line.times().map_or(String::new(), |times| units::time(times.median_ns))
}

/// Collects the lists of a file.
pub(super) fn worst(file: &File<'_>, scales: Scales) -> Worst {
    let mut wrong: Vec<&Line<'_>> = file.lines.iter().filter(|line| line.class.tone() == Tone::Bad).collect();
    wrong.sort_by_key(|line| (!line.own, line.class));
    let wrong_left_out = wrong.len().saturating_sub(MOST_WRONG);
    wrong.truncate(MOST_WRONG);
    let (far, far_left_out) = far(file, scales);
    let mut behind: Vec<&Line<'_>> = file.timed().filter(|line| line.speed.is_some_and(|(_, speed)| speed.value < 1.0)).collect();
    behind.sort_by(|a, b| speed(a).total_cmp(&speed(b)));
    let behind_left_out = behind.len().saturating_sub(MOST);
    behind.truncate(MOST);
    Worst {
        wrong: wrong.into_iter().map(wrong_row).collect(),
        wrong_left_out,
        far,
        far_left_out,
        behind: behind.into_iter().filter_map(|line| behind_row(line, scales)).collect(),
        behind_left_out,
    }
}

fn speed(line: &Line<'_>) -> f64 {
    line.speed.map_or(f64::INFINITY, |(_, speed)| speed.value)
}

fn wrong_row(line: &Line<'_>) -> WrongRow {
    WrongRow {
        row: named(line),
        status: line.summary().map_or(String::new(), |summary| summary.status.to_string()),
        tone: line.class.tone(),
        reason: line.reason().unwrap_or("no reason was recorded").into(),
    }
}

/// A row and its share of the ceiling.
type Shared<'a> = (&'a Line<'a>, f64);

/// The row with the least share of each kind, rows that are too short left out.
fn far(file: &File<'_>, scales: Scales) -> (Vec<FarRow>, usize) {
    let mut kinds: BTreeMap<(&str, &str, &str), Vec<Shared<'_>>> = BTreeMap::new();
    for line in file.timed().filter(|line| !line.is_short()) {
        let Some(share) = line.share else { continue };
        let kind = (line.operator(), line.row.case.key.variant.as_str(), line.precision());
        kinds.entry(kind).or_default().push((line, share.value));
    }
    let mut far: Vec<(f64, &Line<'_>, usize, usize)> = kinds
        .into_values()
        .filter_map(|rows| {
            let (line, share) = rows.iter().copied().min_by(|a, b| a.1.total_cmp(&b.1))?;
            Some((share, line, rows.len(), rows.iter().filter(|(_, share)| *share < 0.5).count()))
        })
        .collect();
    far.sort_by(|a, b| a.0.total_cmp(&b.0));
    let kinds = far.len();
    let mut taken: BTreeMap<&str, usize> = BTreeMap::new();
    far.retain(|(_, line, ..)| {
        let taken = taken.entry(line.operator()).or_default();
        *taken += 1;
        *taken <= MOST_OF_ONE
    });
    far.truncate(MOST);
    let left_out = kinds - far.len();
    let row = |(value, line, rows, low): (f64, &Line<'_>, usize, usize)| {
        let share = line.share?;
        Some(FarRow {
            row: named(line),
            share: percent(value),
            bound: line.bound().unwrap_or(""),
            time: time(line),
            rate: line.summary().and_then(|summary| throughput(line.row, summary)).unwrap_or_default(),
            bar: scales.share.bar(share, colour(line.operator()), &format!("{} of the ceiling", percent(value))),
            rows,
            low,
        })
    };
    (far.into_iter().filter_map(row).collect(), left_out)
}

fn behind_row(line: &Line<'_>, scales: Scales) -> Option<BehindRow> {
    let (baseline, estimate) = line.speed?;
    let (speed, interval) = speed_text(estimate);
    Some(BehindRow {
        point: scales.speed.point(estimate, colour(line.operator()), &format!("{speed} the speed of {baseline}")),
        row: named(line),
        baseline: baseline.into(),
        speed,
        interval,
        time: time(line),
        share: line.share.map_or(String::new(), |share| percent(share.value)),
    })
}
