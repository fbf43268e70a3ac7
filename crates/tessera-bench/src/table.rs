//! The rows of the terminal table as data; the command line only draws them.

use std::collections::BTreeMap;

use crate::case::Metric;
use crate::ceiling::Bound;
use crate::record::{SummaryRecord, Versus};
use crate::stats::median;
use crate::status::{Flag, Status};
use crate::store::{Results, Row};
use crate::units;

/// The columns, in order.
pub const COLUMNS: [&str; 11] = [
    "operator",
    "size",
    "precision",
    "impl",
    "status",
    "median",
    "95 % interval",
    "throughput",
    "of ceiling",
    "vs baseline",
    "compile",
];

/// One row; a cell without a value is empty.
#[derive(Clone, Debug, PartialEq)]
pub struct TableRow {
    /// The outcome, for colour.
    pub status: Status,
    /// One cell a column.
    pub cells: [String; 11],
    /// Why, for a row that is not `ok`.
    pub reason: Option<String>,
}

/// Everything below the table.
#[derive(Clone, Debug, PartialEq)]
pub struct Footer {
    /// Rows by status: `48 ok, 2 not_converged`.
    pub counts: String,
    /// Why rows are not `ok`: a line for each that is wrong, a few for the others, one for all whose times are uncertain.
    pub reasons: Vec<String>,
    /// The ceilings and what the words mean, a line each.
    pub definitions: Vec<String>,
}

/// The table of a results file, sorted by operator, precision and size.
pub fn table(results: &Results) -> Vec<TableRow> {
    let mut rows: Vec<&Row> = results.rows.iter().filter(|row| row.summary.is_some()).collect();
    let order = |row: &Row| {
        let key = &row.case.key;
        (key.operator.clone(), key.variant.clone(), key.precision.clone(), row.case.work.tensor_bytes, key.to_string())
    };
    rows.sort_by_cached_key(|row| order(row));
    rows.into_iter().filter_map(|row| row.summary.as_ref().map(|summary| table_row(row, summary))).collect()
}

/// One row of the table.
pub fn table_row(row: &Row, summary: &SummaryRecord) -> TableRow {
    let key = &row.case.key;
    let times = summary.times.as_ref();
    let flagged = if summary.flags.contains(&Flag::LatencyBound) { " (latency)" } else { "" };
    let cells = [
        key.title(),
        key.size.to_string(),
        key.precision.clone(),
        row.case.implementation.clone(),
        format!("{}{flagged}", summary.status),
        times.map_or(String::new(), |t| units::time(t.median_ns)),
        times.map_or(String::new(), |t| t.ci95_ns.map_or("n/a".into(), units::time_interval)),
        throughput(row, summary).unwrap_or_default(),
        efficiency(summary).unwrap_or_default(),
        summary.versus.as_ref().map_or(String::new(), versus),
        compile(row),
    ];
    TableRow { status: summary.status, cells, reason: summary.reason.clone() }
}

/// How many times faster than the baseline, with its interval where there are blocks enough: `1.23x numpy (1.18 - 1.29)`.
fn versus(versus: &Versus) -> String {
    let interval = versus.ratio.ci95.map_or(String::new(), |ci| format!(" ({:.2} - {:.2})", 1.0 / ci.hi, 1.0 / ci.lo));
    format!("{:.2}x {}{interval}", 1.0 / versus.ratio.ratio, versus.baseline)
}

/// Useful bytes or operations a second in the case's own unit.
pub fn throughput(row: &Row, summary: &SummaryRecord) -> Option<String> {
    match row.case.work.metric {
        Metric::Bandwidth => summary.bytes_s.map(|r| {
            let bus = summary.bus_bytes_s.map_or(String::new(), |bus| format!(", bus {}", units::rate(bus, "B/s")));
            format!("{}{bus}", units::rate(r, "B/s"))
        }),
        Metric::Compute => summary.flops_s.map(|r| units::rate(r, "FLOP/s")),
    }
}

/// The share of the measured ceiling and which one: `87 % memory`.
pub fn efficiency(summary: &SummaryRecord) -> Option<String> {
    let bound = match summary.bound? {
        Bound::Memory => "memory",
        Bound::Compute => "compute",
        Bound::Floor => "launch",
    };
    summary.efficiency.map(|e| format!("{:.0} % {bound}", e * 100.0))
}

/// Stages before the first launch, a sum where there are several: `1.9 ms (parse 0.2, optimise 1.7)`.
fn compile(row: &Row) -> String {
    let phases = &row.case.phases;
    let total: f64 = phases.iter().map(|p| p.ns).sum();
    if phases.is_empty() {
        return String::new();
    }
    let stages: Vec<String> = phases.iter().map(|p| format!("{} {}", p.name, units::significant(p.ns / 1e6, 2))).collect();
    format!("{} ms ({})", units::significant(total / 1e6, 2), stages.join(", "))
}

/// Counts, reasons and definitions.
pub fn footer(results: &Results) -> Footer {
    let mut by_status: BTreeMap<Status, Vec<&Row>> = BTreeMap::new();
    for row in &results.rows {
        if let Some(summary) = &row.summary {
            by_status.entry(summary.status).or_default().push(row);
        }
    }
    let session = results.session();
    let counts: Vec<String> = by_status.iter().map(|(status, rows)| format!("{} {status}", rows.len())).collect();
    let reasons = by_status.iter().flat_map(|(&status, rows)| reasons(status, rows)).collect();
    let mut definitions = vec![
        format!("empty launch {}, clock step {}", units::time(session.floor_ns), units::time(session.tick_ns)),
        "median: of block medians; interval: order statistics of them, 95 %".to_string(),
        "throughput: compulsory bytes (each input and output once) or useful operations over the median".to_string(),
        "of ceiling: least possible time on this machine, from its measured copy, read and multiply-add rates, over the median"
            .to_string(),
        "vs baseline: time of the fastest valid baseline over this row's with its 95 % interval, from blocks that took turns"
            .to_string(),
    ];
    if results.rows.iter().any(|row| row.case.key.bus_factor().is_some()) {
        let text = "collectives: times are the slowest rank's; throughput is the message over the time (algorithm bandwidth), bus what a rank's link carries at least";
        definitions.push(text.to_string());
    }
    definitions.extend(ceiling_line(results));
    let mut counts = counts.join(", ");
    if !results.complete() {
        let why = results.end.as_ref().and_then(|e| e.reason.clone()).unwrap_or_else(|| "the run was interrupted".into());
        counts.push_str(&format!("; {} of {} rows: {why}", results.finished().len(), results.planned()));
    }
    Footer { counts, reasons, definitions }
}

/// Rows of a status that is no error are told one by one up to so many.
const FEW: usize = 3;

/// Why rows have a status.
fn reasons(status: Status, rows: &[&Row]) -> Vec<String> {
    if matches!(status, Status::Ok | Status::Checked) {
        return Vec::new();
    }
    let line = |row: &&Row| {
        let why = row.summary.as_ref().and_then(|summary| summary.reason.as_deref()).unwrap_or("no reason was recorded");
        format!("{} ({}): {status}: {why}", row.case.key, row.case.implementation)
    };
    if status == Status::NotConverged && rows.len() > 1 {
        return uncertain(rows).into_iter().collect();
    }
    if status.is_wrong() || rows.len() <= FEW + 1 {
        return rows.iter().map(line).collect();
    }
    let rest = format!("and {} more {status}; the results file (`--out`, `--json`) has every reason", rows.len() - FEW);
    rows[..FEW].iter().map(line).chain([rest]).collect()
}

/// One line for all rows whose times are known less well than they should be.
fn uncertain(rows: &[&Row]) -> Option<String> {
    let half = |row: &&Row| {
        let interval = row.summary.as_ref()?.times.as_ref()?.ci95_ns?;
        Some(((interval.hi / interval.lo).sqrt() - 1.0) * 100.0)
    };
    let halves: Vec<f64> = rows.iter().filter_map(half).collect();
    let worst = rows.iter().max_by(|a, b| half(a).unwrap_or(0.0).total_cmp(&half(b).unwrap_or(0.0)))?;
    let known = match halves.is_empty() {
        true => "too few blocks for an interval".to_string(),
        false => format!(
            "half of them are known to +-{} %, the worst to +-{} % ({})",
            units::significant(median(&halves), 2),
            units::significant(halves.iter().copied().fold(0.0, f64::max), 2),
            worst.case.key
        ),
    };
    let what = "the machine was too busy for better times: the intervals say how well each is known, ratios to a baseline have their own";
    Some(format!("{} not_converged: {known}; {what}", rows.len()))
}

/// `ceilings: copy 46.1 GB/s, read 40.2 GB/s (256 MiB), f32 1.95 TFLOP/s, …`.
fn ceiling_line(results: &Results) -> Option<String> {
    let ceilings = &results.ceilings;
    let (copy, read) = (ceilings.copy.last()?, ceilings.read.last()?);
    let mut parts = vec![format!(
        "ceilings: copy {}, read {} (at {})",
        units::rate(copy.best, "B/s"),
        units::rate(read.best, "B/s"),
        units::bytes(copy.footprint_bytes as f64)
    )];
    parts.extend(ceilings.compute.iter().map(|(class, rate)| format!("{} {}", class.name(), units::rate(rate.best, "FLOP/s"))));
    Some(parts.join(", "))
}
