//! Small plots by operator: size against share of the ceiling, and against the best baseline; a line a precision.
//!
//! One panel an operator with its variant and a file. All panels of a report share their scales. Every row is a dot. The line of a
//! precision goes through one row in each octave of size, the one in the middle of the rows there, and has that row's interval.

use std::collections::BTreeMap;

use serde::Serialize;

use super::colour::colour;
use super::lines::{Estimate, File, Line, distinct};
use super::overview::{Scales, percent, speed_text};
use super::plot::{Anchor, Drawing, Frame, LINE, LogScale, spread, width};
use super::precision::{self, Style};
use super::strip::{ShareScale, SpeedScale};
use crate::case::Metric;
use crate::stats::median;
use crate::units;

/// Panels that a page has room for.
const MOST: usize = 64;
/// What lies between the two areas of a panel.
const BETWEEN: f64 = 12.0;

/// A panel's measures: a panel of many rows is drawn larger, and both fit a telephone.
#[derive(Clone, Copy)]
struct Form {
    frame: Frame,
    /// Heights of the two areas.
    share: f64,
    speed: f64,
    /// Labels below.
    ticks: usize,
}

const SMALL: Form = Form {
    frame: Frame { width: 238.0, height: 0.0, left: 42.0, right: 70.0, top: 8.0, bottom: 24.0 },
    share: 76.0,
    speed: 54.0,
    ticks: 2,
};
const LARGE: Form = Form {
    frame: Frame { width: 372.0, height: 0.0, left: 42.0, right: 70.0, top: 8.0, bottom: 24.0 },
    share: 132.0,
    speed: 96.0,
    ticks: 5,
};
/// Rows from which on a panel is large.
const MANY: usize = 20;

/// All panels.
#[derive(Serialize)]
pub(super) struct Plots {
    groups: Vec<Group>,
    legend: Vec<Key>,
    /// Panels there was no room for.
    left_out: usize,
}

/// The panels of an operator.
#[derive(Serialize)]
struct Group {
    operator: String,
    colour: usize,
    panels: Vec<Panel>,
}

#[derive(Serialize)]
struct Panel {
    variant: String,
    /// The file's letter, where there are several.
    letter: Option<char>,
    rows: usize,
    svg: String,
}

/// A precision in the legend.
#[derive(Serialize)]
struct Key {
    name: String,
    style: Style,
}

/// What a panel shows.
struct Content<'a> {
    file: &'a File<'a>,
    operator: &'a str,
    variant: &'a str,
    lines: Vec<&'a Line<'a>>,
}

/// What all panels share.
struct Shared<'a> {
    /// Of bytes, and of operations.
    sizes: [LogScale; 2],
    scales: Scales,
    /// Of all files, in order.
    precisions: Vec<&'a str>,
    several: bool,
}

/// Draws the panels of all files.
pub(super) fn plots(files: &[File<'_>], scales: Scales) -> Plots {
    let mut contents: Vec<Content<'_>> = files.iter().flat_map(contents).collect();
    let left_out = contents.len().saturating_sub(MOST);
    if left_out > 0 {
        contents.sort_by(|a, b| middle(a).total_cmp(&middle(b)));
        contents.truncate(MOST);
    }
    contents.sort_by_key(|c| (c.operator, c.variant, c.file.letter));
    let lines = || contents.iter().flat_map(|content| &content.lines);
    let mut precisions = distinct(lines().map(|line| line.precision()));
    precisions.sort_by(|a, b| precision::order(a).cmp(&precision::order(b)));
    let sizes = [Metric::Bandwidth, Metric::Compute].map(|metric| {
        let sizes = lines().filter(|line| line.metric() == metric).map(|line| line.size());
        LogScale::covering(sizes, 64.0, 0.0, 1.0)
    });
    let shared = Shared { sizes, scales, precisions, several: files.len() > 1 };
    let mut groups: Vec<Group> = Vec::new();
    for content in &contents {
        if groups.last().is_none_or(|group| group.operator != content.operator) {
            let (operator, colour) = (content.operator.to_string(), colour(content.operator));
            groups.push(Group { operator, colour, panels: Vec::new() });
        }
        if let Some(group) = groups.last_mut() {
            group.panels.push(Panel {
                variant: content.variant.into(),
                letter: shared.several.then_some(content.file.letter),
                rows: content.lines.len(),
                svg: draw(content, &shared),
            });
        }
    }
    let legend = shared.precisions.iter().map(|name| Key { name: (*name).into(), style: precision::style(name) });
    Plots { groups, legend: legend.collect(), left_out }
}

fn contents<'a>(file: &'a File<'a>) -> impl Iterator<Item = Content<'a>> {
    let mut by_title: BTreeMap<(&str, &str), Vec<&Line<'_>>> = BTreeMap::new();
    for line in file.timed().filter(|line| line.share.is_some() || line.speed.is_some()) {
        by_title.entry((line.operator(), &line.row.case.key.variant)).or_default().push(line);
    }
    by_title.into_iter().map(move |((operator, variant), lines)| Content { file, operator, variant, lines })
}

fn middle(content: &Content<'_>) -> f64 {
    median(&content.lines.iter().filter_map(|line| Some(line.share?.value)).collect::<Vec<_>>())
}

/// A row in the middle of its octave, and how many rows are there.
struct Stop<'a> {
    line: &'a Line<'a>,
    value: Estimate,
    rows: usize,
}

/// One stop an octave of size, by rising size.
fn stops<'a>(lines: &[&'a Line<'a>], value: impl Fn(&Line<'_>) -> Option<Estimate>) -> Vec<Stop<'a>> {
    let mut octaves: BTreeMap<i32, Vec<(&Line<'_>, Estimate)>> = BTreeMap::new();
    for line in lines {
        let Some(estimate) = value(line) else { continue };
        octaves.entry(line.size().log2().floor() as i32).or_default().push((line, estimate));
    }
    let stop = |mut rows: Vec<(&'a Line<'a>, Estimate)>| {
        rows.sort_by(|a, b| a.1.value.total_cmp(&b.1.value));
        let (line, value) = rows[(rows.len() - 1) / 2];
        Stop { line, value, rows: rows.len() }
    };
    octaves.into_values().map(stop).collect()
}

fn draw(content: &Content<'_>, shared: &Shared<'_>) -> String {
    let here: Vec<&str> =
        shared.precisions.iter().copied().filter(|p| content.lines.iter().any(|l| l.precision() == *p)).collect();
    let form = if content.lines.len() >= MANY { LARGE } else { SMALL };
    let has_speed = content.lines.iter().any(|line| line.speed.is_some());
    // As many labels as there are lines must fit beside them.
    let (left, right) = (form.frame.left, form.frame.x1());
    let share = Area { left, right, top: form.frame.top, bottom: form.frame.top + form.share.max(here.len() as f64 * LINE) };
    let top = share.bottom + BETWEEN;
    let speed = Area { top, bottom: top + form.speed, ..share };
    let last = if has_speed { speed.bottom } else { share.bottom };
    let frame = Frame { height: last + form.frame.bottom, ..form.frame };
    let name = format!("{} {}", content.operator, content.variant);
    let mut drawing = Drawing::new(frame, &format!("{}: share of the ceiling over size", name.trim()));
    share.shares(&mut drawing, shared.scales.share);
    if has_speed {
        speed.speeds(&mut drawing, shared.scales.speed);
    }
    let metric = content.lines[0].metric();
    let size = shared.sizes[metric as usize].onto(left, right);
    size_axis(&mut drawing, size, metric, form.ticks, frame.width);
    let (mut ends, mut taken) = (Vec::new(), Taken::default());
    for name in &here {
        let lines: Vec<&Line<'_>> = content.lines.iter().copied().filter(|line| line.precision() == *name).collect();
        let drawn = Drawn { style: precision::style(name), colour: colour(content.operator), size };
        let y = |value: f64| share.share(value, shared.scales.share);
        let words = |value: Estimate| format!("{} of the ceiling", percent(value.value));
        let end = drawn.series(&mut drawing, &mut taken, &lines, |line| line.share, y, words);
        ends.extend(end.map(|(x, y)| End { name: precision::short(name, &shared.precisions).into_owned(), x, y }));
        if has_speed {
            let y = |value: f64| speed.speed(value, shared.scales.speed);
            let words = |value: Estimate| {
                let (mean, interval) = speed_text(value);
                format!("{mean} the speed of the baseline {interval}")
            };
            drawn.series(&mut drawing, &mut taken, &lines, |line| line.speed.map(|(_, speed)| speed), y, words);
        }
    }
    label_ends(&mut drawing, ends, taken, share);
    drawing.finish()
}

/// The part of a panel that one quantity has.
#[derive(Clone, Copy)]
struct Area {
    left: f64,
    right: f64,
    top: f64,
    bottom: f64,
}

impl Area {
    fn share(self, value: f64, scale: ShareScale) -> f64 {
        self.bottom - (value / scale.top()).clamp(0.0, 1.0) * (self.bottom - self.top)
    }

    fn speed(self, value: f64, scale: SpeedScale) -> f64 {
        scale.scale().onto(self.bottom, self.top).at(value)
    }

    fn shares(self, drawing: &mut Drawing, scale: ShareScale) {
        for share in [0.0, 0.5, 1.0] {
            self.level(drawing, self.share(share, scale), share == 1.0, &format!("{:.0} %", share * 100.0));
        }
    }

    fn speeds(self, drawing: &mut Drawing, scale: SpeedScale) {
        let mut ticks: Vec<(f64, bool, String)> =
            scale.ticks(4).into_iter().map(|(speed, text)| (self.speed(speed, scale), speed == 1.0, text)).collect();
        if ticks.iter().all(|(_, goal, _)| !goal) {
            ticks.push((self.speed(1.0, scale), true, "1x".into()));
        }
        // 1 is told before all others, which are told where they do not meet it.
        ticks.sort_by_key(|(_, goal, _)| !goal);
        let mut free: Vec<f64> = Vec::new();
        for (y, goal, text) in &ticks {
            let room = free.iter().all(|other| (other - y).abs() >= LINE);
            self.level(drawing, *y, *goal, if room { text } else { "" });
            free.push(*y);
        }
        drawing.text("note", (self.right + 7.0, self.speed(1.0, scale) + 4.0), Anchor::Start, "baseline");
    }

    /// A line across, with its label.
    fn level(self, drawing: &mut Drawing, y: f64, goal: bool, text: &str) {
        drawing.line(if goal { "goal" } else { "grid" }, (self.left, y), (self.right, y));
        if !text.is_empty() {
            drawing.text("tick", (self.left - 6.0, y + 4.0), Anchor::End, text);
        }
    }
}

/// How a precision is drawn in a panel.
struct Drawn {
    style: Style,
    colour: usize,
    size: LogScale,
}

impl Drawn {
    /// Dots, line, marks and intervals of one precision; where its line ends.
    fn series(
        &self,
        drawing: &mut Drawing,
        taken: &mut Taken,
        lines: &[&Line<'_>],
        value: impl Fn(&Line<'_>) -> Option<Estimate>,
        y: impl Fn(f64) -> f64,
        words: impl Fn(Estimate) -> String,
    ) -> Option<(f64, f64)> {
        let class = format!("{} o{}", self.style.class, self.colour);
        let stops = stops(lines, &value);
        let at = |stop: &Stop<'_>| (self.size.at(stop.line.size()), y(stop.value.value));
        if stops.iter().any(|stop| stop.rows > 1) {
            let dots = lines.iter().filter_map(|line| Some((self.size.at(line.size()), y(value(line)?.value))));
            drawing.points(&format!("dots o{}", self.colour), "h0", dots);
        }
        let through: Vec<(f64, f64)> = stops.iter().map(at).collect();
        taken.line(&through, Taken::MARK);
        if through.len() > 1 {
            drawing.path(&format!("line {class}"), &through);
        }
        for stop in &stops {
            let (x, middle) = at(stop);
            if let Some(ci) = stop.value.ci.filter(|ci| (y(ci.lo) - y(ci.hi)).abs() > 1.0) {
                drawing.line(&format!("whisker {class}"), (x, y(ci.lo)), (x, y(ci.hi)));
            }
            let among = if stop.rows > 1 { format!(", in the middle of {} rows", stop.rows) } else { String::new() };
            let time = stop.line.times().map_or(String::new(), |times| format!(", {}", units::time(times.median_ns)));
            let key = &stop.line.row.case.key;
            drawing.mark(&class, (x, middle), self.style.mark, &format!("{key}: {}{time}{among}", words(stop.value)));
        }
        through.last().copied()
    }
}

/// Where the line of a precision ends.
struct End {
    name: String,
    x: f64,
    y: f64,
}

/// Places where no label may stand: points along lines and labels, with the half height of what is there.
#[derive(Default)]
struct Taken(Vec<(f64, f64, f64)>);

impl Taken {
    /// Half the height of a line with its marks.
    const MARK: f64 = 3.0;

    fn line(&mut self, through: &[(f64, f64)], half: f64) {
        /// Distance of the points.
        const STEP: f64 = 4.0;
        self.0.extend(through.first().map(|(x, y)| (*x, *y, half)));
        for pair in through.windows(2) {
            let ((x0, y0), (x1, y1)) = (pair[0], pair[1]);
            let steps = ((x1 - x0).hypot(y1 - y0) / STEP).ceil().max(1.0);
            let along = (1..=steps as usize).map(|i| i as f64 / steps);
            self.0.extend(along.map(|t| (x0 + t * (x1 - x0), y0 + t * (y1 - y0), half)));
        }
    }

    /// Whether a label that begins at `x`, in the middle of `y`, meets nothing.
    fn is_free(&self, x: f64, y: f64, text: &str) -> bool {
        let end = x + width(text);
        self.0.iter().all(|(px, py, half)| *px < x - 2.0 || *px > end + 2.0 || (py - y).abs() >= LINE / 2.0 + half)
    }

    /// The same; then its place is taken.
    fn take(&mut self, x: f64, y: f64, text: &str) -> bool {
        let free = self.is_free(x, y, text);
        if free {
            self.line(&[(x, y), (x + width(text), y)], LINE / 2.0);
        }
        free
    }
}

/// Labels at the ends of lines: beside the end where that is free, else in the margin, at its own height and with a leader.
fn label_ends(drawing: &mut Drawing, ends: Vec<End>, mut taken: Taken, area: Area) {
    /// From a mark's centre to its label.
    const OFF: f64 = 7.0;
    let mut fits = |end: &End| {
        let inside = end.x + OFF + width(&end.name) <= area.right && end.y + LINE / 2.0 <= area.bottom;
        inside && taken.take(end.x + OFF, end.y, &end.name)
    };
    let (mut beside, mut margin): (Vec<End>, Vec<End>) = ends.into_iter().partition(|end| fits(end));
    let half = LINE / 2.0 - 1.0;
    let leaders = |margin: &[End]| -> Vec<[(f64, f64); 2]> {
        let wanted: Vec<f64> = margin.iter().map(|end| end.y).collect();
        let placed = spread(&wanted, LINE, area.top + half, area.bottom - half);
        margin.iter().zip(placed).map(|(end, at)| [(end.x + 4.0, end.y), (area.right + 4.0, at)]).collect()
    };
    // A leader that would cross a label sends it to the margin, too.
    loop {
        let mut crossed = Taken::default();
        leaders(&margin).iter().for_each(|leader| crossed.line(leader, 0.0));
        let (free, moved): (Vec<End>, Vec<End>) =
            beside.into_iter().partition(|end| crossed.is_free(end.x + OFF, end.y, &end.name));
        beside = free;
        if moved.is_empty() {
            break;
        }
        margin.extend(moved);
    }
    for end in beside {
        drawing.text("end", (end.x + OFF, end.y + 4.0), Anchor::Start, &end.name);
    }
    for ([from, to], end) in leaders(&margin).into_iter().zip(&margin) {
        drawing.line("leader", from, to);
        drawing.text("end", (area.right + 7.0, to.1 + 4.0), Anchor::Start, &end.name);
    }
}

fn size_axis(drawing: &mut Drawing, size: LogScale, metric: Metric, most: usize, edge: f64) {
    let (base, name): (f64, fn(f64) -> String) = match metric {
        Metric::Bandwidth => (2.0, units::bytes),
        Metric::Compute => (10.0, |operations| units::round_rate(operations, "FLOP")),
    };
    let ticks = size.ticks(base, most).into_iter().map(|value| (size.at(value), name(value)));
    // Labels that would meet their neighbour, or be cut at an edge, are left out.
    let mut free = 0.0;
    let room = |(x, text): &(f64, String)| {
        let half = width(text) / 2.0;
        let fits = x - half >= free && x + half <= edge;
        if fits {
            free = x + half + 4.0;
        }
        fits
    };
    drawing.x_axis(&ticks.filter(room).collect::<Vec<_>>(), "");
}
