//! All rows as a table that is written once: with scripts off the browser shows it as it is, with scripts on they take it apart.
//!
//! End tags that HTML does not need are left out, and nothing but `<tr>` and `<td>` stands between cells: the script splits there.
//! So the seed suite's rows take some 130 bytes each.

use serde::Serialize;

use super::lines::{Class, File, Line, Tone, distinct};
use super::overview::speed_text;
use super::plot::escape;
use super::precision;
use crate::table::{efficiency, throughput};
use crate::units;

/// Bytes that a page has room for; of more rows, those that were only checked are left out first.
const MOST_BYTES: usize = 1_200_000;

/// A column: its name, and whether its cells are numbers.
#[derive(Clone, Copy, Serialize)]
pub(super) struct Column {
    name: &'static str,
    number: bool,
    /// What it says, for whoever points at it.
    about: &'static str,
}

const fn column(name: &'static str, number: bool, about: &'static str) -> Column {
    Column { name, number, about }
}

const COLUMNS: [Column; 15] = [
    column("file", false, "the file's letter"),
    column("operator", false, "operator and variant"),
    column("size", true, "extents in the operator's order"),
    column("precision", false, "what is stored, and what sums are kept in"),
    column("by", false, "implementation"),
    column("status", false, "the outcome"),
    column("time", true, "median time of a launch"),
    column("±", true, "half the 95 % interval of the time, relative to it"),
    column("rate", true, "useful bytes or operations a second"),
    column("ceiling", true, "share of the ceiling, and what the ceiling is"),
    column("speed", true, "speed against the fastest baseline; above 1 is faster"),
    column("interval", true, "95 % interval of the speed"),
    column("baseline", false, "the fastest baseline"),
    column("error", true, "worst error over its bound; above 1 is wrong"),
    column("remark", false, "why, and what to know"),
];

/// All rows of all files.
#[derive(Serialize)]
pub(super) struct Rows {
    columns: Vec<Column>,
    /// Table rows in HTML.
    body: String,
    count: usize,
    left_out: usize,
    operators: Vec<String>,
    precisions: Vec<String>,
    statuses: Vec<&'static str>,
}

/// The table of all files, by file, operator, precision and size.
pub(super) fn rows(files: &[File<'_>]) -> Rows {
    let several = files.len() > 1;
    let mut lines: Vec<(char, &Line<'_>)> =
        files.iter().flat_map(|file| file.lines.iter().map(|line| (file.letter, line))).collect();
    lines.sort_by_cached_key(|(letter, line)| {
        let key = &line.row.case.key;
        let case = (key.operator.clone(), key.variant.clone(), precision::order(&key.precision).0, key.precision.clone());
        (*letter, case, line.row.case.work.min_bytes(), key.size.to_string(), !line.own, line.row.case.implementation.clone())
    });
    let written: Vec<String> = lines.iter().map(|(letter, line)| table_row(*letter, line, several)).collect();
    let body = within(MOST_BYTES, &lines, written);
    let mut precisions = distinct(lines.iter().map(|(_, line)| line.precision()));
    precisions.sort_by(|a, b| precision::order(a).cmp(&precision::order(b)));
    Rows {
        columns: COLUMNS[usize::from(!several)..].to_vec(),
        count: lines.len(),
        left_out: lines.len() - body.len(),
        body: body.concat(),
        operators: distinct(lines.iter().map(|(_, line)| line.operator())).into_iter().map(String::from).collect(),
        precisions: precisions.into_iter().map(String::from).collect(),
        statuses: distinct(lines.iter().map(|(_, line)| status(line))),
    }
}

/// The rows that there is room for, in their order: those that were only checked go first, and then the last ones.
fn within(most: usize, lines: &[(char, &Line<'_>)], written: Vec<String>) -> Vec<String> {
    let mut order: Vec<usize> = (0..written.len()).collect();
    order.sort_by_key(|&at| lines[at].1.class == Class::Checked);
    let mut left = most;
    let mut kept = vec![false; written.len()];
    for at in order {
        let Some(rest) = left.checked_sub(written[at].len()) else { break };
        (left, kept[at]) = (rest, true);
    }
    written.into_iter().zip(kept).filter(|(_, kept)| *kept).map(|(row, _)| row).collect()
}

fn table_row(letter: char, line: &Line<'_>, several: bool) -> String {
    let cells = &cells(letter, line)[usize::from(!several)..];
    format!("<tr><td>{}\n", cells.join("<td>"))
}

fn status(line: &Line<'_>) -> &'static str {
    line.summary().map_or(Class::Begun.words().0, |summary| summary.status.name())
}

/// A row's cells in HTML.
fn cells(letter: char, line: &Line<'_>) -> [String; COLUMNS.len()] {
    let (key, summary, times) = (&line.row.case.key, line.summary(), line.times());
    let half = times.and_then(|t| Some(t.ci95_ns?.half_width() / t.median_ns));
    let speed = line.speed.map(|(_, estimate)| speed_text(estimate)).unwrap_or_default();
    let told = summary.filter(|_| times.is_some());
    let mark = match line.class.tone() {
        Tone::Good | Tone::Pale => status(line).to_string(),
        Tone::Warn => format!("<b class=warn>{}</b>", status(line)),
        Tone::Bad => format!("<b class=bad>{}</b>", status(line)),
        Tone::Mute => format!("<i>{}</i>", status(line)),
    };
    let flags = summary.map_or(&[][..], |s| &s.flags).iter().map(|flag| flag.name());
    let remark: Vec<&str> = line.reason().into_iter().chain(flags).collect();
    [
        letter.to_string(),
        escape(&key.title()),
        escape(&key.size.to_string()),
        escape(&key.precision),
        escape(&line.row.case.implementation),
        mark,
        times.map_or(String::new(), |t| units::time(t.median_ns)),
        half.map_or(String::new(), |half| format!("{} %", units::significant(half * 100.0, 2))),
        told.and_then(|s| throughput(line.row, s)).unwrap_or_default(),
        told.and_then(efficiency).unwrap_or_default(),
        speed.0,
        speed.1,
        line.speed.map_or(String::new(), |(baseline, _)| escape(baseline)),
        line.error.map_or(String::new(), |error| units::significant(error, 2)),
        escape(&remark.join("; ")),
    ]
}
