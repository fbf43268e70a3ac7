//! The pieces that every chart is made of: scales, ticks, axes, labels, and SVG text with everything escaped.
//!
//! Colours are CSS classes, so that one drawing reads in light and dark. Text is drawn at its own size, never scaled down: a
//! drawing is made as wide as it is shown, and its labels are laid out with the widths below.

use std::fmt::Write;

/// How wide a character of a label may be, in pixels, at the 11 pixels of a label: the widest of the usual system fonts.
const CHARACTER: f64 = 6.9;
/// Distance of the base lines of two labels that stand below each other.
pub(super) const LINE: f64 = 12.5;

/// The room that a label may take.
pub(super) fn width(text: &str) -> f64 {
    CHARACTER * text.chars().count() as f64
}

/// Text made safe for element content and quoted attributes.
pub(super) fn escape(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '&' => out.push_str("&amp;"),
            '<' => out.push_str("&lt;"),
            '>' => out.push_str("&gt;"),
            '"' => out.push_str("&quot;"),
            '\'' => out.push_str("&#39;"),
            c => out.push(c),
        }
    }
    out
}

/// A logarithmic map from values to pixels.
#[derive(Clone, Copy, Debug)]
pub(super) struct LogScale {
    lo: f64,
    hi: f64,
    from: f64,
    to: f64,
}

impl LogScale {
    /// Covers `values` (positive ones) and at least a factor of `span`, mapped to `from..to`.
    pub(super) fn covering(values: impl Iterator<Item = f64>, span: f64, from: f64, to: f64) -> LogScale {
        let (lo, hi) =
            values.filter(|v| v.is_finite() && *v > 0.0).fold((f64::INFINITY, 0f64), |(lo, hi), v| (lo.min(v), hi.max(v)));
        let (lo, hi) = if lo <= hi { (lo, hi) } else { (1.0, 10.0) };
        let widen = (span.ln() - (hi.ln() - lo.ln())).max(0.0).exp().sqrt() * 1.15;
        LogScale { lo: (lo / widen).max(f64::MIN_POSITIVE), hi: (hi * widen).min(f64::MAX), from, to }
    }

    /// The same values on other pixels.
    pub(super) fn onto(self, from: f64, to: f64) -> LogScale {
        LogScale { from, to, ..self }
    }

    /// The pixel of a value; values beyond the ends stop there.
    pub(super) fn at(&self, value: f64) -> f64 {
        let share = (value.clamp(self.lo, self.hi).ln() - self.lo.ln()) / (self.hi.ln() - self.lo.ln());
        self.from + share * (self.to - self.from)
    }

    /// The ends of the range.
    pub(super) fn range(&self) -> (f64, f64) {
        (self.lo, self.hi)
    }

    /// Powers of `base` inside the range, thinned to at most `most`: every second, fifth or tenth, and so on.
    pub(super) fn ticks(&self, base: f64, most: usize) -> Vec<f64> {
        let first = (self.lo.ln() / base.ln()).ceil() as i32;
        let last = (self.hi.ln() / base.ln()).floor() as i32;
        let steps = (0..).flat_map(|decade| [1, 2, 5].map(|m| m * 10i32.pow(decade))).take(9);
        let of = |step: i32| (first..=last).filter(move |e| e.rem_euclid(step) == 0);
        let step = steps.into_iter().find(|&step| of(step).count() <= most.max(1));
        step.map_or(Vec::new(), |step| of(step).map(|e| base.powi(e)).collect())
    }
}

/// Round steps from 0 to `max`, about `count` of them.
pub(super) fn linear_ticks(max: f64, count: usize) -> Vec<f64> {
    if !(max > 0.0 && max.is_finite()) {
        return vec![0.0];
    }
    let raw = max / count.max(1) as f64;
    let power = 10f64.powf(raw.log10().floor());
    let step = [1.0, 2.0, 5.0, 10.0].into_iter().map(|m| m * power).find(|s| *s >= raw * 0.999).unwrap_or(raw);
    (0..=(max / step + 1e-9) as usize).map(|i| i as f64 * step).collect()
}

/// Positions as close to `wanted` as can be while neighbours lie `gap` apart, between `lo` and `hi` where there is room.
///
/// Wanted positions that are too close are merged into blocks around their mean, until no two blocks touch (isotonic regression by
/// pooling adjacent violators, after taking `i * gap` off the `i`-th position).
pub(super) fn spread(wanted: &[f64], gap: f64, lo: f64, hi: f64) -> Vec<f64> {
    let mut order: Vec<usize> = (0..wanted.len()).collect();
    order.sort_by(|&a, &b| wanted[a].total_cmp(&wanted[b]));
    let mut blocks: Vec<(f64, usize)> = Vec::new();
    for (rank, &index) in order.iter().enumerate() {
        blocks.push((wanted[index] - rank as f64 * gap, 1));
        while let [.., (a, n), (b, m)] = blocks[..]
            && b < a
        {
            blocks.truncate(blocks.len() - 2);
            blocks.push(((a * n as f64 + b * m as f64) / (n + m) as f64, n + m));
        }
    }
    let top = (hi - (wanted.len().max(1) - 1) as f64 * gap).max(lo);
    let mut placed = vec![0.0; wanted.len()];
    let bases = blocks.iter().flat_map(|&(at, n)| std::iter::repeat_n(at.clamp(lo, top), n));
    for (rank, (base, &index)) in bases.zip(&order).enumerate() {
        placed[index] = base + rank as f64 * gap;
    }
    placed
}

/// Where the plotting area lies within a drawing.
#[derive(Clone, Copy, Debug)]
pub(super) struct Frame {
    pub(super) width: f64,
    pub(super) height: f64,
    pub(super) left: f64,
    pub(super) right: f64,
    pub(super) top: f64,
    pub(super) bottom: f64,
}

impl Frame {
    /// Right edge of the plotting area.
    pub(super) fn x1(&self) -> f64 {
        self.width - self.right
    }

    /// Lower edge of the plotting area.
    pub(super) fn y1(&self) -> f64 {
        self.height - self.bottom
    }
}

/// How text is placed against its point.
#[derive(Clone, Copy, Debug)]
pub(super) enum Anchor {
    Start,
    Middle,
    End,
}

/// An SVG drawing in progress.
pub(super) struct Drawing {
    body: String,
    frame: Frame,
    title: String,
}

impl Drawing {
    /// An empty drawing; `title` is what a screen reader says.
    pub(super) fn new(frame: Frame, title: &str) -> Drawing {
        Drawing { body: String::new(), frame, title: title.into() }
    }

    /// A straight line.
    pub(super) fn line(&mut self, class: &str, (x1, y1): (f64, f64), (x2, y2): (f64, f64)) {
        let _ = writeln!(self.body, r#"<line class="{class}" x1="{x1:.1}" y1="{y1:.1}" x2="{x2:.1}" y2="{y2:.1}"/>"#);
    }

    /// A line through points.
    pub(super) fn path(&mut self, class: &str, points: &[(f64, f64)]) {
        let list: Vec<String> = points.iter().map(|(x, y)| format!("{x:.1},{y:.1}")).collect();
        let _ = writeln!(self.body, r#"<polyline class="{class}" points="{}"/>"#, list.join(" "));
    }

    /// Many points of one kind in one element, each the path `shape`: `h0` for a dot.
    pub(super) fn points(&mut self, class: &str, shape: &str, points: impl Iterator<Item = (f64, f64)>) {
        let mut distinct: Vec<String> = points.map(|(x, y)| format!("M{x:.1} {y:.1}{shape}")).collect();
        distinct.sort_unstable();
        distinct.dedup();
        if !distinct.is_empty() {
            let _ = writeln!(self.body, r#"<path class="{class}" d="{}"/>"#, distinct.concat());
        }
    }

    /// A mark whose shape is a path from its centre, with the text that shows under the pointer.
    pub(super) fn mark(&mut self, class: &str, (x, y): (f64, f64), shape: &str, hover: &str) {
        let hover = escape(hover);
        let _ = writeln!(self.body, r#"<path class="mark {class}" d="M{x:.1} {y:.1}{shape}"><title>{hover}</title></path>"#);
    }

    /// A horizontal bar from `x0` to `x1` with its hover text.
    pub(super) fn bar(&mut self, class: &str, (x0, x1): (f64, f64), (y, height): (f64, f64), hover: &str) {
        let (width, hover) = ((x1 - x0).max(0.5), escape(hover));
        let _ = writeln!(
            self.body,
            r#"<rect class="bar {class}" x="{x0:.1}" y="{y:.1}" width="{width:.1}" height="{height:.1}" rx="2"><title>{hover}</title></rect>"#
        );
    }

    /// A rectangle without a text of its own.
    pub(super) fn area(&mut self, class: &str, (x0, x1): (f64, f64), (y0, y1): (f64, f64)) {
        let (width, height) = ((x1 - x0).max(0.0), (y1 - y0).max(0.0));
        let _ = writeln!(self.body, r#"<rect class="{class}" x="{x0:.1}" y="{y0:.1}" width="{width:.1}" height="{height:.1}"/>"#);
    }

    /// Text at a point.
    pub(super) fn text(&mut self, class: &str, (x, y): (f64, f64), anchor: Anchor, text: &str) {
        let anchor = match anchor {
            Anchor::Start => "start",
            Anchor::Middle => "middle",
            Anchor::End => "end",
        };
        let text = escape(text);
        let _ = writeln!(self.body, r#"<text class="{class}" x="{x:.1}" y="{y:.1}" text-anchor="{anchor}">{text}</text>"#);
    }

    /// Horizontal grid lines between `top` and `bottom` edges of the frame, with labels left of the area.
    pub(super) fn y_axis(&mut self, ticks: &[(f64, String)]) {
        let f = self.frame;
        for (y, text) in ticks {
            self.line("grid", (f.left, *y), (f.x1(), *y));
            self.text("tick", (f.left - 6.0, y + 4.0), Anchor::End, text);
        }
    }

    /// The base line with ticks and labels below it; with `label`, what they measure.
    pub(super) fn x_axis(&mut self, ticks: &[(f64, String)], label: &str) {
        let f = self.frame;
        self.line("axis", (f.left, f.y1()), (f.x1(), f.y1()));
        for (x, text) in ticks {
            self.line("axis", (*x, f.y1()), (*x, f.y1() + 4.0));
            self.text("tick", (*x, f.y1() + 16.0), Anchor::Middle, text);
        }
        if !label.is_empty() {
            self.text("label", ((f.left + f.x1()) / 2.0, f.y1() + 33.0), Anchor::Middle, label);
        }
    }

    /// The finished element, as wide as its frame where there is room.
    pub(super) fn finish(self) -> String {
        let Frame { width, height, .. } = self.frame;
        let title = escape(&self.title);
        format!(
            "<svg viewBox=\"0 0 {width} {height}\" width=\"{width}\" height=\"{height}\" role=\"img\" aria-label=\"{title}\" xmlns=\"http://www.w3.org/2000/svg\">\n\
             <title>{title}</title>\n{}</svg>",
            self.body
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn scales_map_ends_and_ticks_are_round() {
        let scale = LogScale::covering([10.0, 1000.0].into_iter(), 10.0, 0.0, 100.0);
        let (lo, hi) = scale.range();
        assert!((scale.at(lo)).abs() < 1e-9 && (scale.at(hi) - 100.0).abs() < 1e-9);
        assert!((scale.at(100.0) - 50.0).abs() < 1e-9);
        assert_eq!((scale.at(1e-300), scale.at(1e300)), (0.0, 100.0));
        assert_eq!(scale.ticks(10.0, 5).iter().map(|t| t.round()).collect::<Vec<_>>(), [10.0, 100.0, 1000.0]);
        assert_eq!(linear_ticks(95.0, 5), [0.0, 20.0, 40.0, 60.0, 80.0]);
        assert_eq!(linear_ticks(0.0, 5), [0.0]);
        let none = LogScale::covering(std::iter::empty(), 10.0, 0.0, 1.0);
        assert!(none.at(3.0).is_finite());
        let wide = LogScale::covering([1e-300, 1e300].into_iter(), 10.0, 0.0, 1.0);
        assert!((1..=4).contains(&wide.ticks(10.0, 4).len()), "{:?}", wide.ticks(10.0, 4));
        assert!(wide.at(1.0).is_finite());
    }

    #[test]
    fn labels_keep_their_distance() {
        assert_eq!(spread(&[10.0, 50.0], 12.0, 0.0, 100.0), [10.0, 50.0]);
        assert_eq!(spread(&[20.0, 20.0, 20.0], 10.0, 0.0, 100.0), [10.0, 20.0, 30.0]);
        assert_eq!(spread(&[30.0, 20.0], 20.0, 0.0, 100.0), [35.0, 15.0]);
        for (lo, hi) in [(0.0, 100.0), (0.0, 45.0)] {
            let placed = spread(&[3.0, 99.0, 98.0, 2.0, 50.0], 11.0, lo, hi);
            let mut sorted = placed.clone();
            sorted.sort_by(f64::total_cmp);
            assert!(sorted.windows(2).all(|w| w[1] - w[0] >= 11.0 - 1e-9), "{placed:?}");
            assert!(sorted[0] >= lo && sorted[4] <= hi + 1e-9, "{placed:?}");
        }
        assert!(spread(&[], 10.0, 0.0, 1.0).is_empty());
    }

    #[test]
    fn text_cannot_break_out() {
        assert_eq!(escape("<a href=\"x\">&'"), "&lt;a href=&quot;x&quot;&gt;&amp;&#39;");
    }
}
