//! The pieces that every chart is made of: scales, ticks, axes, legend, and SVG text with everything escaped.
//!
//! Colours are CSS classes (`s0` to `s7`, `axis`, `grid`, `mark`), so that one drawing reads in light and dark.

use std::fmt::Write;

/// Series colours there are; further series share the last class, which is grey.
pub(super) const SERIES: usize = 8;

/// The CSS class of series `index`.
pub(super) fn series(index: usize) -> String {
    if index < SERIES { format!("s{index}") } else { "s-other".into() }
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
        let widen = (span / (hi / lo)).max(1.0).sqrt() * 1.15;
        LogScale { lo: lo / widen, hi: hi * widen, from, to }
    }

    /// The pixel of a value.
    pub(super) fn at(&self, value: f64) -> f64 {
        self.from + (value / self.lo).ln() / (self.hi / self.lo).ln() * (self.to - self.from)
    }

    /// The ends of the range.
    pub(super) fn range(&self) -> (f64, f64) {
        (self.lo, self.hi)
    }

    /// Powers of `base` inside the range, thinned to at most `most`.
    pub(super) fn ticks(&self, base: f64, most: usize) -> Vec<f64> {
        let first = (self.lo.ln() / base.ln()).ceil() as i32;
        let last = (self.hi.ln() / base.ln()).floor() as i32;
        let step = ((last - first).max(0) as usize / most.max(1) + 1) as i32;
        (first..=last).filter(|e| e.rem_euclid(step) == 0).map(|e| base.powi(e)).collect()
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

    /// A dot with the text that shows under the pointer.
    pub(super) fn dot(&mut self, class: &str, (x, y): (f64, f64), radius: f64, hover: &str) {
        let hover = escape(hover);
        let _ = writeln!(
            self.body,
            r#"<circle class="dot {class}" cx="{x:.1}" cy="{y:.1}" r="{radius}"><title>{hover}</title></circle>"#
        );
    }

    /// A horizontal bar from `x0` to `x1` with its hover text.
    pub(super) fn bar(&mut self, class: &str, (x0, x1): (f64, f64), (y, height): (f64, f64), hover: &str) {
        let (width, hover) = ((x1 - x0).max(0.5), escape(hover));
        let _ = writeln!(
            self.body,
            r#"<rect class="bar {class}" x="{x0:.1}" y="{y:.1}" width="{width:.1}" height="{height:.1}" rx="2"><title>{hover}</title></rect>"#
        );
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

    /// Horizontal grid lines with labels left of the area, and what they measure above it.
    pub(super) fn y_axis(&mut self, ticks: &[(f64, String)], label: &str) {
        let f = self.frame;
        for (y, text) in ticks {
            self.line("grid", (f.left, *y), (f.x1(), *y));
            self.text("tick", (f.left - 8.0, y + 4.0), Anchor::End, text);
        }
        self.text("label", (f.left - 8.0, f.top - 12.0), Anchor::Start, label);
    }

    /// The base line with ticks and labels below it, and what they measure.
    pub(super) fn x_axis(&mut self, ticks: &[(f64, String)], label: &str) {
        let f = self.frame;
        self.line("axis", (f.left, f.y1()), (f.x1(), f.y1()));
        for (x, text) in ticks {
            self.line("axis", (*x, f.y1()), (*x, f.y1() + 4.0));
            self.text("tick", (*x, f.y1() + 17.0), Anchor::Middle, text);
        }
        self.text("label", ((f.left + f.x1()) / 2.0, f.y1() + 36.0), Anchor::Middle, label);
    }

    /// The finished element.
    pub(super) fn finish(self) -> String {
        let Frame { width, height, .. } = self.frame;
        let title = escape(&self.title);
        format!(
            "<svg viewBox=\"0 0 {width} {height}\" role=\"img\" aria-label=\"{title}\" xmlns=\"http://www.w3.org/2000/svg\">\n\
             <title>{title}</title>\n{}</svg>",
            self.body
        )
    }
}

/// A legend in HTML: one swatch and name for each series that is `shown`.
pub(super) fn legend(names: &[&str], shown: impl Fn(&str) -> bool) -> String {
    let mut out = String::from("<div class=\"legend\">");
    for (index, name) in names.iter().enumerate().filter(|(_, name)| shown(name)) {
        let _ = write!(out, "<span><i class=\"{}\"></i>{}</span>", series(index), escape(name));
    }
    out.push_str("</div>");
    out
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
        assert_eq!(scale.ticks(10.0, 5).iter().map(|t| t.round()).collect::<Vec<_>>(), [10.0, 100.0, 1000.0]);
        assert_eq!(linear_ticks(95.0, 5), [0.0, 20.0, 40.0, 60.0, 80.0]);
        assert_eq!(linear_ticks(0.0, 5), [0.0]);
        let none = LogScale::covering(std::iter::empty(), 10.0, 0.0, 1.0);
        assert!(none.at(3.0).is_finite());
    }

    #[test]
    fn text_cannot_break_out() {
        assert_eq!(escape("<a href=\"x\">&'"), "&lt;a href=&quot;x&quot;&gt;&amp;&#39;");
    }
}
