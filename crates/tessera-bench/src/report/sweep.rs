//! Throughput over size: one panel an operator, one line a precision, with the interval of each point.

use std::collections::BTreeMap;

use super::plot::{Anchor, Drawing, Frame, LogScale, legend, linear_ticks, series};
use super::{distinct, timed};
use crate::case::Metric;
use crate::record::SummaryRecord;
use crate::stats::Interval;
use crate::store::{Results, Row};
use crate::units;

const FRAME: Frame = Frame { width: 430.0, height: 270.0, left: 64.0, right: 18.0, top: 46.0, bottom: 48.0 };

/// All panels; empty when nothing was timed.
pub(super) fn panels(results: &Results) -> Vec<String> {
    let mut by_title: BTreeMap<String, Vec<(&Row, &SummaryRecord)>> = BTreeMap::new();
    for (row, summary) in timed(results) {
        by_title.entry(row.case.key.title()).or_default().push((row, summary));
    }
    let precisions = precisions(results);
    by_title.into_iter().map(|(title, rows)| panel(results, &title, &rows, &precisions)).collect()
}

/// The legend that all panels share.
pub(super) fn panel_legend(results: &Results) -> String {
    legend(&precisions(results), |_| true)
}

fn precisions(results: &Results) -> Vec<&str> {
    distinct(timed(results).map(|(row, _)| row.case.key.precision.as_str()))
}

/// One point: position, throughput, its interval, what it is.
struct Point<'a> {
    bytes: f64,
    rate: f64,
    interval: Option<Interval>,
    row: &'a Row,
}

fn point<'a>(row: &'a Row, summary: &SummaryRecord) -> Option<Point<'a>> {
    let times = summary.times.as_ref()?;
    let (amount, rate) = match row.case.work.metric {
        Metric::Bandwidth => (row.case.work.min_bytes() as f64, summary.bytes_s?),
        Metric::Compute => (row.case.work.flops as f64, summary.flops_s?),
    };
    let interval = times.ci95_ns.map(|ci| ci.invert(|ns| amount / ns * 1e9));
    Some(Point { bytes: row.case.work.min_bytes().max(1) as f64, rate, interval, row })
}

fn panel(results: &Results, title: &str, rows: &[(&Row, &SummaryRecord)], precisions: &[&str]) -> String {
    let mut lines: BTreeMap<(usize, &str), Vec<Point<'_>>> = BTreeMap::new();
    for (row, summary) in rows {
        let color = precisions.iter().position(|p| *p == row.case.key.precision).unwrap_or(0);
        lines.entry((color, row.case.implementation.as_str())).or_default().extend(point(row, summary));
    }
    let all = || lines.values().flatten();
    let top = all().map(|p| p.interval.map_or(p.rate, |i| i.hi.min(1.5 * p.rate))).fold(0.0, f64::max) * 1.05;
    let top = if top > 0.0 { top } else { 1.0 };
    let x = LogScale::covering(all().map(|p| p.bytes), 16.0, FRAME.left, FRAME.x1());
    let y = |rate: f64| FRAME.y1() - (rate.min(top) / top) * (FRAME.y1() - FRAME.top);

    let unit = match rows.first().map(|(row, _)| row.case.work.metric) {
        Some(Metric::Compute) => "FLOP/s",
        Some(Metric::Bandwidth) | None => "B/s",
    };
    let mut drawing = Drawing::new(FRAME, &format!("{title}: throughput over size"));
    drawing.text("title", (FRAME.left - 48.0, 16.0), Anchor::Start, title);
    let y_ticks: Vec<_> =
        linear_ticks(top, 4).into_iter().map(|v| (y(v), if v > 0.0 { units::round_rate(v, unit) } else { "0".into() })).collect();
    drawing
        .y_axis(&shortened(y_ticks), &format!("useful {}", if unit == "B/s" { "bytes a second" } else { "operations a second" }));
    let x_ticks: Vec<_> = x.ticks(4.0, 5).into_iter().map(|v| (x.at(v), units::bytes(v))).collect();
    drawing.x_axis(&x_ticks, "compulsory bytes");
    for cache in &results.session().environment.caches {
        let Some((name, bytes)) = cache_size(cache) else { continue };
        if x.range().0 < bytes && bytes < x.range().1 {
            drawing.line("mark", (x.at(bytes), FRAME.top), (x.at(bytes), FRAME.y1()));
            drawing.text("note", (x.at(bytes) + 3.0, FRAME.top + 8.0), Anchor::Start, name);
        }
    }
    let product = rows.first().map_or("", |(row, _)| row.case.implementation.as_str());
    for ((color, implementation), points) in &mut lines {
        points.sort_by(|a, b| a.bytes.total_cmp(&b.bytes));
        let class = series(*color);
        let dashed = if *implementation == product { "" } else { " dashed" };
        let through: Vec<_> = points.iter().map(|p| (x.at(p.bytes), y(p.rate))).collect();
        drawing.path(&format!("line {class}{dashed}"), &through);
        for p in points {
            let at = x.at(p.bytes);
            if let Some(i) = p.interval {
                drawing.line(&format!("whisker {class}"), (at, y(i.lo)), (at, y(i.hi)));
            }
            let hover = format!("{} ({implementation}): {}", p.row.case.key, units::rate(p.rate, unit));
            drawing.dot(&class, (at, y(p.rate)), 3.5, &hover);
        }
    }
    drawing.finish()
}

/// Labels without the unit's second half, which the axis label tells.
fn shortened(ticks: Vec<(f64, String)>) -> Vec<(f64, String)> {
    ticks.into_iter().map(|(at, text)| (at, text.replace("FLOP/s", "").replace("B/s", "").trim_end().to_string())).collect()
}

/// `L2 1024K` as its name and bytes.
fn cache_size(text: &str) -> Option<(&str, f64)> {
    let (name, size) = text.split_once(' ')?;
    size.strip_suffix('K')?.parse::<f64>().ok().map(|k| (name, k * 1024.0))
}
