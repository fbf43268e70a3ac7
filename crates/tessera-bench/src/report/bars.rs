//! Charts with one line a row: share of the ceiling, time against the baseline, worst error against its bound.

use super::plot::{Anchor, Drawing, Frame, LogScale, series};
use super::{distinct, operators, timed};
use crate::record::SummaryRecord;
use crate::status::Status;
use crate::store::{Results, Row};
use crate::units;

/// Rows a chart shows; of more, those furthest down are taken.
const MOST: usize = 100;
const LINE: f64 = 17.0;

fn frame(lines: usize) -> Frame {
    Frame { width: 860.0, height: 68.0 + LINE * lines as f64, left: 290.0, right: 185.0, top: 14.0, bottom: 50.0 }
}

/// A chart and how many rows it leaves out.
pub(super) struct Chart {
    pub(super) svg: String,
    pub(super) left_out: usize,
}

/// Takes the `MOST` rows with the least `score`, in the order of the table.
fn worst<'a, T: Clone>(
    mut rows: Vec<(&'a Row, &'a SummaryRecord, T)>,
    score: impl Fn(&T) -> f64,
) -> (Vec<(&'a Row, &'a SummaryRecord, T)>, usize) {
    let left_out = rows.len().saturating_sub(MOST);
    rows.sort_by(|a, b| score(&a.2).total_cmp(&score(&b.2)));
    rows.truncate(MOST);
    rows.sort_by_cached_key(|(row, _, _)| {
        let key = &row.case.key;
        (
            key.operator.clone(),
            key.variant.clone(),
            key.precision.clone(),
            row.case.work.tensor_bytes,
            row.case.implementation.clone(),
        )
    });
    (rows, left_out)
}

fn name(row: &Row, results: &Results) -> String {
    let several = results.rows.iter().any(|r| r.case.implementation != row.case.implementation);
    if several { format!("{} · {}", row.case.key, row.case.implementation) } else { row.case.key.to_string() }
}

/// The share of the measured ceiling that each row reaches, with the interval that the time's interval gives.
pub(super) fn efficiency(results: &Results) -> Option<Chart> {
    let rows: Vec<_> = timed(results).filter_map(|(row, s)| s.efficiency.map(|e| (row, s, e))).collect();
    if rows.is_empty() {
        return None;
    }
    let operators = operators(results);
    let (rows, left_out) = worst(rows, |e| *e);
    let f = frame(rows.len());
    let most = rows.iter().map(|r| r.2).fold(1.0, f64::max).min(1.5);
    let x = |share: f64| f.left + share.clamp(0.0, most) / most * (f.x1() - f.left);
    let mut drawing = Drawing::new(f, "Share of the measured ceiling by row, with 95 % intervals");
    let ticks: Vec<f64> = (0..=(most * 4.0) as usize).map(|i| i as f64 * 0.25).collect();
    for &tick in &ticks {
        drawing.line(if tick == 1.0 { "mark" } else { "grid" }, (x(tick), f.top), (x(tick), f.y1()));
    }
    let labels: Vec<_> = ticks.iter().map(|&t| (x(t), format!("{:.0} %", t * 100.0))).collect();
    for (i, (row, summary, share)) in rows.iter().enumerate() {
        let y = f.top + LINE * i as f64 + 4.0;
        let color = series(operators.iter().position(|o| *o == row.case.key.operator).unwrap_or(0));
        let title = name(row, results);
        drawing.text("row", (f.left - 8.0, y + 9.0), Anchor::End, &title);
        drawing.bar(
            &color,
            (f.left, x(*share)),
            (y + 1.0, LINE - 8.0),
            &format!("{title}: {:.1} % of the ceiling", share * 100.0),
        );
        let Some(times) = &summary.times else { continue };
        if let Some(ci) = times.ci95_ns {
            let middle = y + 1.0 + (LINE - 8.0) / 2.0;
            let of = |ns: f64| x(share * times.median_ns / ns);
            drawing.line("interval", (of(ci.hi), middle), (of(ci.lo), middle));
        }
        let doubt = if summary.status == Status::Ok { "" } else { " (not converged)" };
        let value = format!("{:.0} %  {}{doubt}", share * 100.0, units::time(times.median_ns));
        drawing.text("note", (f.x1() + 8.0, y + 9.0), Anchor::Start, &value);
    }
    drawing.x_axis(&labels, "least possible time on this machine / median time");
    Some(Chart { svg: drawing.finish(), left_out })
}

/// The speed-up over the fastest baseline, with its interval, on a logarithmic axis around 1.
pub(super) fn speed_up(results: &Results) -> Option<Chart> {
    let rows: Vec<_> = timed(results).filter_map(|(row, s)| s.versus.clone().map(|v| (row, s, v))).collect();
    if rows.is_empty() {
        return None;
    }
    let (rows, left_out) = worst(rows, |v| 1.0 / v.ratio.ratio);
    let f = frame(rows.len());
    let ends = rows.iter().flat_map(|(_, _, v)| {
        let ci = v.ratio.ci95;
        [1.0, 1.0 / v.ratio.ratio, ci.map_or(1.0, |i| 1.0 / i.lo), ci.map_or(1.0, |i| 1.0 / i.hi)]
    });
    let x = LogScale::covering(ends, 4.0, f.left, f.x1());
    let mut drawing = Drawing::new(f, "Speed-up over the fastest baseline, with 95 % intervals");
    let ticks: Vec<_> = x.ticks(2.0, 8).into_iter().map(|v| (x.at(v), format!("{}x", units::significant(v, 2)))).collect();
    ticks.iter().for_each(|(at, _)| drawing.line("grid", (*at, f.top), (*at, f.y1())));
    drawing.line("mark", (x.at(1.0), f.top), (x.at(1.0), f.y1()));
    for (i, (row, _, versus)) in rows.iter().enumerate() {
        let y = f.top + LINE * i as f64 + LINE / 2.0 + 1.0;
        let faster = 1.0 / versus.ratio.ratio;
        let title = row.case.key.to_string();
        drawing.text("row", (f.left - 8.0, y + 4.0), Anchor::End, &title);
        if let Some(ci) = versus.ratio.ci95 {
            drawing.line("interval", (x.at(1.0 / ci.hi), y), (x.at(1.0 / ci.lo), y));
        }
        let value = format!("{faster:.2}x {}", versus.baseline);
        drawing.dot(if faster >= 1.0 { "s0" } else { "s1" }, (x.at(faster), y), 4.5, &format!("{title}: {value}"));
        drawing.text("note", (f.x1() + 8.0, y + 4.0), Anchor::Start, &value);
    }
    drawing.x_axis(&ticks, "times faster than the fastest baseline (right of 1 is faster)");
    Some(Chart { svg: drawing.finish(), left_out })
}

/// Worst error over its bound for every checked row, one lane an operator: left of 1 passes.
pub(super) fn gate(results: &Results) -> Option<Chart> {
    let ratio = |row: &Row| row.gate.as_ref().and_then(|g| g.worst.as_ref()).map(|w| w.ratio.0);
    let rows: Vec<(&Row, f64)> = results.rows.iter().filter_map(|row| ratio(row).map(|r| (row, r))).collect();
    if rows.is_empty() {
        return None;
    }
    let operators = distinct(rows.iter().map(|(row, _)| row.case.key.operator.as_str()));
    let f = Frame { height: 90.0 + 26.0 * operators.len() as f64, left: 150.0, right: 40.0, top: 34.0, ..frame(0) };
    const LEAST: f64 = 1e-3;
    const MOST: f64 = 1e3;
    let x = LogScale::covering([LEAST, MOST].into_iter(), 10.0, f.left, f.x1());
    let mut drawing = Drawing::new(f, "Worst error over its bound, by operator");
    let ticks: Vec<_> = x.ticks(10.0, 7).into_iter().map(|v| (x.at(v), units::significant(v, 1))).collect();
    ticks.iter().for_each(|(at, _)| drawing.line("grid", (*at, f.top), (*at, f.y1())));
    drawing.line("mark", (x.at(1.0), f.top), (x.at(1.0), f.y1()));
    drawing.text("note", (x.at(1.0) + 5.0, f.top - 8.0), Anchor::Start, "the bound: beyond it a result is wrong");
    for (lane, operator) in operators.iter().enumerate() {
        let y = f.top + 26.0 * lane as f64 + 15.0;
        drawing.text("row", (f.left - 10.0, y + 4.0), Anchor::End, operator);
        for (row, ratio) in rows.iter().filter(|(row, _)| row.case.key.operator == *operator) {
            let hover = format!("{}: worst error {ratio:.3} times its bound", name(row, results));
            let class = if *ratio <= 1.0 { series(lane) } else { "bad".into() };
            drawing.dot(&class, (x.at(ratio.clamp(LEAST, MOST)), y), 4.0, &hover);
        }
    }
    drawing.x_axis(&ticks, "worst error / bound (0.001 or less at the left edge)");
    Some(Chart { svg: drawing.finish(), left_out: 0 })
}
