//! Drawings of one line's height that stand in tables: distributions of shares and of speed-ups, single intervals, histograms.
//!
//! All strips of a kind share one scale, which is drawn once above them.

use super::lines::{Estimate, Line};
use super::plot::{Anchor, Drawing, Frame, LogScale};
use crate::stats::median;
use crate::units;

const WIDTH: f64 = 232.0;
const HEIGHT: f64 = 22.0;
/// A row in a distribution.
const STROKE: &str = "v16";
/// Room left and right, so that labels of the scale are not cut.
const SIDE: f64 = 16.0;

fn frame(height: f64) -> Frame {
    Frame { width: WIDTH, height, left: SIDE, right: SIDE, top: 0.0, bottom: 0.0 }
}

/// Shares of the ceiling from 0 to `top`, which is 1 unless rows are above it.
#[derive(Clone, Copy)]
pub(super) struct ShareScale {
    top: f64,
}

impl ShareScale {
    pub(super) fn covering(shares: impl Iterator<Item = f64>) -> ShareScale {
        ShareScale { top: shares.fold(1.0, f64::max).min(1.5) }
    }

    pub(super) fn top(self) -> f64 {
        self.top
    }

    fn at(self, share: f64) -> f64 {
        SIDE + (share / self.top).clamp(0.0, 1.0) * (WIDTH - 2.0 * SIDE)
    }

    /// The labels above a column of strips.
    pub(super) fn axis(self) -> String {
        let mut drawing = Drawing::new(frame(14.0), "share of the ceiling");
        for share in [0.0, 0.5, 1.0] {
            drawing.text("tick", (self.at(share), 11.0), Anchor::Middle, &format!("{:.0} %", share * 100.0));
        }
        drawing.finish()
    }

    fn grid(self, drawing: &mut Drawing, height: f64) {
        for share in [0.0, 0.25, 0.5, 0.75, 1.0] {
            drawing.line(if share == 1.0 { "goal" } else { "grid" }, (self.at(share), 0.0), (self.at(share), height));
        }
    }

    /// Every row as a stroke, the middle half as a bar, the median as a thick stroke; rows that are too short are faint.
    pub(super) fn strip(self, lines: &[&Line<'_>], colour: usize, title: &str) -> String {
        let mut drawing = Drawing::new(frame(HEIGHT), title);
        self.grid(&mut drawing, HEIGHT);
        let shares = |short: bool| -> Vec<f64> {
            lines.iter().filter(|line| line.is_short() == short).filter_map(|line| Some(line.share?.value)).collect()
        };
        let mut long = shares(false);
        for (class, shares) in [("rug faint", &shares(true)), ("rug", &long)] {
            drawing.points(&format!("{class} o{colour}"), STROKE, shares.iter().map(|share| (self.at(*share), 3.0)));
        }
        long.sort_by(f64::total_cmp);
        if let Some(Quartiles { low, middle, high }) = quartiles(&long) {
            drawing.area(&format!("half o{colour}"), (self.at(low), self.at(high).max(self.at(low) + 1.0)), (8.0, 14.0));
            drawing.line("median", (self.at(middle), 4.0), (self.at(middle), HEIGHT - 4.0));
        }
        drawing.finish()
    }

    /// One row: a bar to its share, and the interval over its end.
    pub(super) fn bar(self, share: Estimate, colour: usize, title: &str) -> String {
        let mut drawing = Drawing::new(frame(16.0), title);
        self.grid(&mut drawing, 16.0);
        drawing.area(&format!("fill o{colour}"), (self.at(0.0), self.at(share.value)), (4.0, 12.0));
        if let Some(ci) = share.ci {
            drawing.line("interval", (self.at(ci.lo), 8.0), (self.at(ci.hi), 8.0));
        }
        drawing.finish()
    }

    /// How many rows reach which share, in steps of 5 %.
    pub(super) fn histogram(self, shares: &[f64]) -> String {
        const STEP: f64 = 0.05;
        let (width, height, base) = (264.0, 78.0, 58.0);
        let f = Frame { width, height, left: 14.0, right: 22.0, top: 4.0, bottom: height - base };
        let mut drawing = Drawing::new(f, "how many rows reach which share of the ceiling");
        let bins = (self.top / STEP - 1e-9).ceil() as usize;
        let mut counts = vec![0usize; bins];
        // A share at a step belongs to the step below, so that 100 % does not begin a bar of its own.
        shares.iter().for_each(|share| counts[((share / STEP - 1e-9).max(0.0) as usize).min(bins - 1)] += 1);
        let most = counts.iter().copied().max().unwrap_or(0).max(1) as f64;
        let x = |share: f64| f.left + share / (bins as f64 * STEP) * (f.x1() - f.left);
        for (bin, &count) in counts.iter().enumerate().filter(|(_, count)| **count > 0) {
            let from = bin as f64 * STEP;
            let top = base - (count as f64 / most * (base - f.top)).max(1.5);
            let hover = format!("{:.0} to {:.0} %: {count} rows", from * 100.0, (from + STEP) * 100.0);
            drawing.bar("neutral", (x(from) + 0.5, x(from + STEP) - 0.5), (top, base - top), &hover);
        }
        let ticks: Vec<_> = [0.0, 0.5, 1.0].map(|share| (x(share), format!("{:.0} %", share * 100.0))).into();
        drawing.x_axis(&ticks, "");
        drawing.finish()
    }
}

/// Speed against a baseline, on a logarithmic scale around 1.
#[derive(Clone, Copy)]
pub(super) struct SpeedScale(LogScale);

impl SpeedScale {
    pub(super) fn covering(speeds: impl Iterator<Item = Estimate>) -> SpeedScale {
        let ends = speeds.flat_map(|s| [s.value, s.ci.map_or(s.value, |ci| ci.lo), s.ci.map_or(s.value, |ci| ci.hi)]);
        // What is further away than a factor of 64 is drawn at the edge.
        let ends = ends.map(|speed| speed.clamp(1.0 / 64.0, 64.0)).chain([1.0]);
        SpeedScale(LogScale::covering(ends, 3.0, SIDE, WIDTH - SIDE))
    }

    pub(super) fn scale(self) -> LogScale {
        self.0
    }

    /// Powers of two in the range, and their names.
    pub(super) fn ticks(self, most: usize) -> Vec<(f64, String)> {
        let name = |speed: f64| if speed < 0.2 { format!("1/{}x", 1.0 / speed) } else { format!("{}x", units::plain(speed, 2)) };
        self.0.ticks(2.0, most).into_iter().map(|speed| (speed, name(speed))).collect()
    }

    pub(super) fn axis(self) -> String {
        let mut drawing = Drawing::new(frame(14.0), "speed against the baseline");
        for (speed, text) in self.ticks(5) {
            drawing.text("tick", (self.0.at(speed), 11.0), Anchor::Middle, &text);
        }
        drawing.finish()
    }

    fn grid(self, drawing: &mut Drawing, height: f64) {
        for (speed, _) in self.ticks(5) {
            drawing.line("grid", (self.0.at(speed), 0.0), (self.0.at(speed), height));
        }
        drawing.line("goal", (self.0.at(1.0), 0.0), (self.0.at(1.0), height));
    }

    /// Every row with its interval, and the geometric mean as a thick stroke.
    pub(super) fn strip(self, speeds: &[Estimate], mean: f64, class: &str, title: &str) -> String {
        let mut drawing = Drawing::new(frame(HEIGHT), title);
        self.grid(&mut drawing, HEIGHT);
        let middle = HEIGHT / 2.0;
        for ci in speeds.iter().filter_map(|speed| speed.ci).take(200) {
            drawing.line(&format!("whisker {class}"), (self.0.at(ci.lo), middle), (self.0.at(ci.hi), middle));
        }
        drawing.points(&format!("rug {class}"), STROKE, speeds.iter().map(|speed| (self.0.at(speed.value), 3.0)));
        drawing.line("median", (self.0.at(mean), 4.0), (self.0.at(mean), HEIGHT - 4.0));
        drawing.finish()
    }

    /// One row with its interval.
    pub(super) fn point(self, speed: Estimate, colour: usize, title: &str) -> String {
        let mut drawing = Drawing::new(frame(16.0), title);
        self.grid(&mut drawing, 16.0);
        if let Some(ci) = speed.ci {
            drawing.line("interval", (self.0.at(ci.lo), 8.0), (self.0.at(ci.hi), 8.0));
        }
        drawing.mark(&format!("o{colour}"), (self.0.at(speed.value), 8.0), "m-3.5 0a3.5 3.5 0 1 0 7 0a3.5 3.5 0 1 0-7 0z", title);
        drawing.finish()
    }
}

/// Where a quarter, half and three quarters of values lie below.
pub(super) struct Quartiles {
    pub(super) low: f64,
    pub(super) middle: f64,
    pub(super) high: f64,
}

/// Of sorted values; none of none.
pub(super) fn quartiles(sorted: &[f64]) -> Option<Quartiles> {
    let n = sorted.len();
    let half = n.div_ceil(2);
    (n > 0).then(|| Quartiles { low: median(&sorted[..half]), middle: median(sorted), high: median(&sorted[n - half..]) })
}
