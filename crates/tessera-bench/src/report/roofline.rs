//! The roofline: operations a second over operations per byte, under the measured ceilings.

use super::plot::{Anchor, Drawing, Frame, LogScale, legend, series};
use super::{operators, timed};
use crate::store::Results;
use crate::units;

const FRAME: Frame = Frame { width: 860.0, height: 440.0, left: 78.0, right: 130.0, top: 34.0, bottom: 48.0 };

/// The chart; none when no row has operations or no ceiling was measured.
pub(super) fn chart(results: &Results) -> Option<String> {
    let ceilings = &results.ceilings;
    let memory = ceilings.copy.last()?;
    let cache = ceilings.copy.iter().max_by(|a, b| a.best.total_cmp(&b.best))?;
    let rows: Vec<_> = timed(results).filter(|(row, s)| row.case.work.flops > 0 && s.flops_s.is_some_and(|f| f > 0.0)).collect();
    if rows.is_empty() {
        return None;
    }
    let intensity = |row: &crate::store::Row| row.case.work.flops as f64 / row.case.work.min_bytes().max(1) as f64;
    let roofs: Vec<(&str, f64)> = ceilings
        .compute
        .iter()
        .filter(|(class, _)| rows.iter().any(|(row, _)| row.case.work.class == Some(*class)))
        .map(|(class, rate)| (class.name(), rate.best))
        .collect();
    let highest = roofs.iter().map(|r| r.1).fold(0.0, f64::max);
    let ridge = highest / memory.best;
    let x = LogScale::covering(rows.iter().map(|(r, _)| intensity(r)).chain([ridge]), 100.0, FRAME.left, FRAME.x1());
    let speeds = rows.iter().filter_map(|(_, s)| s.flops_s).chain(roofs.iter().map(|r| r.1));
    let y = LogScale::covering(speeds, 100.0, FRAME.y1(), FRAME.top);

    let mut drawing = Drawing::new(FRAME, "Roofline: operations a second over operations per byte");
    let y_ticks: Vec<_> = y.ticks(10.0, 7).into_iter().map(|v| (y.at(v), units::round_rate(v, "FLOP/s"))).collect();
    drawing.y_axis(&y_ticks, "useful operations a second");
    let x_ticks: Vec<_> = x.ticks(10.0, 8).into_iter().map(|v| (x.at(v), plain(v))).collect();
    drawing.x_axis(&x_ticks, "useful operations per compulsory byte");
    for (bandwidth, name, class) in [(memory.best, "memory copy", "roof"), (cache.best, "cache copy", "roof faint")] {
        let top = if highest > 0.0 { highest } else { y.range().1 };
        slope(&mut drawing, &x, &y, bandwidth, top, class);
        label_slope(&mut drawing, &x, &y, bandwidth, top, name);
    }
    for (name, rate) in &roofs {
        let from = (rate / cache.best).clamp(x.range().0, x.range().1);
        drawing.line("roof", (x.at(from), y.at(*rate)), (FRAME.x1(), y.at(*rate)));
        let text = format!("{name} {}", units::rate(*rate, "FLOP/s"));
        drawing.text("note", (FRAME.x1() + 6.0, y.at(*rate) + 4.0), Anchor::Start, &text);
    }
    let operators = operators(results);
    for (row, summary) in &rows {
        let color = operators.iter().position(|o| *o == row.case.key.operator).unwrap_or(0);
        let speed = summary.flops_s.unwrap_or_default();
        let hover = format!("{} ({}): {}", row.case.key, row.case.implementation, units::rate(speed, "FLOP/s"));
        drawing.dot(&series(color), (x.at(intensity(row)), y.at(speed)), 4.5, &hover);
    }
    Some(legend(&operators, |name| rows.iter().any(|(row, _)| row.case.key.operator == name)) + &drawing.finish())
}

/// A bandwidth's diagonal, cut to the plotting area.
fn slope(drawing: &mut Drawing, x: &LogScale, y: &LogScale, bandwidth: f64, top: f64, class: &str) {
    let ((x_lo, x_hi), (y_lo, y_hi)) = (x.range(), y.range());
    let from = x_lo.max(y_lo / bandwidth);
    let to = x_hi.min(top.min(y_hi) / bandwidth);
    if from < to {
        drawing.line(class, (x.at(from), y.at(from * bandwidth)), (x.at(to), y.at(to * bandwidth)));
    }
}

/// The bandwidth's name, left of the line near its upper end, where rows are rare.
fn label_slope(drawing: &mut Drawing, x: &LogScale, y: &LogScale, bandwidth: f64, top: f64, name: &str) {
    let end = x.range().1.min(top / bandwidth) / 1.5;
    let position = (x.at(end) - 8.0, y.at(end * bandwidth));
    let anchor = if end < 3.0 * x.range().0 { Anchor::Start } else { Anchor::End };
    drawing.text("note", position, anchor, &format!("{name} {}", units::rate(bandwidth, "B/s")));
}

fn plain(value: f64) -> String {
    if value >= 1.0 { format!("{value:.0}") } else { units::significant(value, 1) }
}
