//! The roofline: operations a second over operations per byte, under the measured ceilings.

use serde::Serialize;

use super::colour::colour;
use super::lines::{File, Line, distinct};
use super::plot::{Anchor, Drawing, Frame, LINE, LogScale, spread};
use crate::units;

const FRAME: Frame = Frame { width: 760.0, height: 400.0, left: 106.0, right: 150.0, top: 14.0, bottom: 46.0 };

/// The chart and its legend: operators with their colours.
#[derive(Serialize)]
pub(super) struct Roofline {
    svg: String,
    operators: Vec<(String, usize)>,
}

/// The chart; none when no row has operations or no ceiling was measured.
pub(super) fn roofline(file: &File<'_>) -> Option<Roofline> {
    let ceilings = &file.results.ceilings;
    let memory = ceilings.copy.last()?;
    let rate = |line: &Line<'_>| line.summary()?.flops_s.filter(|rate| *rate > 0.0 && line.row.case.work.flops > 0);
    let rows: Vec<(&Line<'_>, f64)> = file.timed().filter_map(|line| Some((line, rate(line)?))).collect();
    if rows.is_empty() {
        return None;
    }
    let intensity = |line: &Line<'_>| line.row.case.work.flops as f64 / line.bytes();
    let roofs: Vec<(&str, f64)> = ceilings
        .compute
        .iter()
        .filter(|(class, _)| rows.iter().any(|(line, _)| line.row.case.work.class == Some(*class)))
        .map(|(class, rate)| (class.name(), rate.best))
        .collect();
    let highest = roofs.iter().map(|roof| roof.1).fold(0.0, f64::max);
    let ridge = (highest > 0.0).then_some(highest / memory.best);
    let x = LogScale::covering(rows.iter().map(|(line, _)| intensity(line)).chain(ridge), 100.0, FRAME.left, FRAME.x1());
    let y = LogScale::covering(rows.iter().map(|row| row.1).chain(roofs.iter().map(|roof| roof.1)), 100.0, FRAME.y1(), FRAME.top);

    let mut drawing = Drawing::new(FRAME, "Roofline: operations a second over operations per byte");
    let y_ticks: Vec<_> = y.ticks(10.0, 7).into_iter().map(|v| (y.at(v), units::round_rate(v, "FLOP/s"))).collect();
    drawing.y_axis(&y_ticks);
    let x_ticks: Vec<_> = x.ticks(10.0, 8).into_iter().map(|v| (x.at(v), units::plain(v, 1))).collect();
    drawing.x_axis(&x_ticks, "useful operations for each byte that must be moved");
    slope(&mut drawing, &x, &y, memory.best, if highest > 0.0 { highest } else { y.range().1 });
    let wanted: Vec<f64> = roofs.iter().map(|(_, rate)| y.at(*rate)).collect();
    for ((name, rate), at) in roofs.iter().zip(spread(&wanted, LINE, FRAME.top, FRAME.y1())) {
        let from = (rate / memory.best).clamp(x.range().0, x.range().1);
        drawing.line("roof", (x.at(from), y.at(*rate)), (FRAME.x1(), y.at(*rate)));
        drawing.line("leader", (FRAME.x1(), y.at(*rate)), (FRAME.x1() + 10.0, at));
        let text = format!("{name} {}", units::rate(*rate, "FLOP/s"));
        drawing.text("note", (FRAME.x1() + 14.0, at + 4.0), Anchor::Start, &text);
    }
    let operators = distinct(rows.iter().map(|(line, _)| line.operator()));
    for operator in &operators {
        let here = rows.iter().filter(|(line, _)| line.operator() == *operator);
        let points = here.map(|(line, rate)| (x.at(intensity(line)), y.at(*rate)));
        drawing.points(&format!("dots big o{}", colour(operator)), "h0", points);
    }
    let operators = operators.into_iter().map(|name| (name.to_string(), colour(name))).collect();
    Some(Roofline { svg: drawing.finish(), operators })
}

/// What copying allows, cut to the plotting area, with its rate in the corner that no row can reach.
fn slope(drawing: &mut Drawing, x: &LogScale, y: &LogScale, bandwidth: f64, top: f64) {
    let ((x_lo, x_hi), (y_lo, y_hi)) = (x.range(), y.range());
    let from = x_lo.max(y_lo / bandwidth);
    let to = x_hi.min(top.min(y_hi) / bandwidth);
    if from < to {
        drawing.line("roof", (x.at(from), y.at(from * bandwidth)), (x.at(to), y.at(to * bandwidth)));
    }
    let text = format!("slope: copy of {}", units::rate(bandwidth, "B/s"));
    drawing.text("note", (FRAME.left + 10.0, FRAME.top + 12.0), Anchor::Start, &text);
}
