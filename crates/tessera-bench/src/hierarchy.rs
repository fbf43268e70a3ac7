//! What a figure says beyond the process that measured it: blocks within places, places within processes.
//!
//! Blocks of one process agree with each other better than with those of the next process, so an interval from blocks alone
//! promises too much. With few processes their own differences say little, so what such machines usually do counts as well: a
//! stated standard deviation ([`between_processes`]) stands for as many degrees of freedom as [`WEIGHT`] says, and is
//! outvoted as processes come in.
//!
//! ```text
//! x_p = ln(median of process p's block medians),   w = their own standard error, from the blocks
//! V   = (WEIGHT (s^2 + w^2) + sum (x_p - mean)^2) / (WEIGHT + P - 1)        s: stated, relative
//! interval: exp(mean +- t sqrt(V / P)),  t of Student's distribution with WEIGHT + P - 1 degrees of freedom
//! ```

use crate::stats::{Confidence, Interval, TimedBlock, median, median_interval};

/// For how many degrees of freedom the stated standard deviation stands.
pub const WEIGHT: f64 = 6.0;

/// The relative standard deviation of figures of one program's processes, by the time of a launch. Measured by
/// `examples/causes` and `examples/trials`; see `docs/measuring.md`.
pub fn between_processes(on_device: bool, launch_ns: f64) -> f64 {
    // Points of (time, deviation), straight between them in logarithms of time.
    let points: &[(f64, f64)] = if on_device {
        &[(5e3, 0.03), (2e4, 0.012), (1e5, 0.006), (1e6, 0.005)]
    } else {
        &[(5e4, 0.08), (1e6, 0.08), (1e8, 0.05)]
    };
    let x = launch_ns.max(1.0).ln();
    let above = points.iter().position(|(time, _)| time.ln() >= x);
    match above {
        Some(0) => points[0].1,
        None => points[points.len() - 1].1,
        Some(above) => {
            let ((x0, y0), (x1, y1)) = (points[above - 1], points[above]);
            y0 + (y1 - y0) * (x - x0.ln()) / (x1.ln() - x0.ln())
        }
    }
}

/// One process's figure.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct ProcessFigure {
    /// Logarithm of the time in nanoseconds.
    pub log: f64,
    /// Its standard error within the process.
    pub error: f64,
}

impl ProcessFigure {
    /// From one number a block; none of no blocks.
    pub fn of(blocks: &[f64]) -> Option<ProcessFigure> {
        let logs: Vec<f64> = blocks.iter().map(|block| block.ln()).filter(|log| log.is_finite()).collect();
        if logs.is_empty() {
            return None;
        }
        let log = median(&logs);
        let error = match median_interval(&logs, Confidence::P95) {
            Some(interval) => interval.half_width() / 1.96,
            // Too few for an interval: their mean distance from the middle, as if it were a standard deviation.
            None => logs.iter().map(|own| (own - log).abs()).sum::<f64>() / logs.len() as f64,
        };
        Some(ProcessFigure { log, error })
    }
}

/// The figures of all processes that measured a row, by the median of each block.
pub fn process_figures(blocks: &[TimedBlock]) -> Vec<ProcessFigure> {
    let mut numbers: Vec<usize> = blocks.iter().map(|block| block.process).collect();
    numbers.sort_unstable();
    numbers.dedup();
    let of = |number: usize| {
        let own = blocks.iter().filter(|block| block.process == number && !block.samples_ns.is_empty());
        ProcessFigure::of(&own.map(|block| median(&block.samples_ns)).collect::<Vec<_>>())
    };
    numbers.into_iter().filter_map(of).collect()
}

/// What is known of the logarithm that processes of one program have in common.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Common {
    /// The estimate.
    pub log: f64,
    /// Its variance.
    pub variance: f64,
    /// Degrees of freedom of that variance.
    pub freedom: f64,
}

impl Common {
    /// From the figures of some processes and the stated deviation between them; none of none.
    pub fn of(figures: &[ProcessFigure], stated: f64) -> Option<Common> {
        let n = figures.len() as f64;
        if figures.is_empty() {
            return None;
        }
        let log = figures.iter().map(|figure| figure.log).sum::<f64>() / n;
        let squares: f64 = figures.iter().map(|figure| (figure.log - log).powi(2)).sum();
        let own = figures.iter().map(|figure| figure.error * figure.error).sum::<f64>() / n;
        let freedom = WEIGHT + n - 1.0;
        Some(Common { log, variance: (WEIGHT * (stated * stated + own) + squares) / freedom / n, freedom })
    }

    /// By how much the logarithms of two programs' processes differ, `b - a`; what both say of the spread counts for either.
    pub fn difference(a: &[ProcessFigure], b: &[ProcessFigure], stated: f64) -> Option<Common> {
        let (of_a, of_b) = (Common::of(a, stated)?, Common::of(b, stated)?);
        let (n_a, n_b) = (a.len() as f64, b.len() as f64);
        let own = (a.iter().chain(b).map(|figure| figure.error * figure.error)).sum::<f64>() / (n_a + n_b);
        let squares =
            [(a, of_a.log), (b, of_b.log)].map(|(figures, log)| figures.iter().map(|f| (f.log - log).powi(2)).sum::<f64>());
        let freedom = WEIGHT + n_a + n_b - 2.0;
        let each = (WEIGHT * (stated * stated + own) + squares[0] + squares[1]) / freedom;
        Some(Common { log: of_b.log - of_a.log, variance: each * (1.0 / n_a + 1.0 / n_b), freedom })
    }

    /// Half the width of the interval that holds with probability `1 - p`.
    pub fn half(&self, p: f64) -> f64 {
        student_quantile(p, self.freedom) * self.variance.sqrt()
    }

    /// Two-sided p-value of the logarithm being zero.
    pub fn p(&self) -> f64 {
        if self.variance > 0.0 {
            student_p(self.log / self.variance.sqrt(), self.freedom)
        } else {
            f64::from(u8::from(self.log == 0.0))
        }
    }

    /// The 95 % interval of the time.
    pub fn interval(&self) -> Interval {
        let half = self.half(0.05);
        Interval { lo: (self.log - half).exp(), hi: (self.log + half).exp() }
    }
}

/// What Student's distribution exceeds in magnitude with probability `p`.
pub fn student_quantile(p: f64, freedom: f64) -> f64 {
    let (mut low, mut high) = (0.0, 1.0);
    while student_p(high, freedom) > p && high < 1e12 {
        high *= 2.0;
    }
    for _ in 0..80 {
        let middle = (low + high) / 2.0;
        if student_p(middle, freedom) > p { low = middle } else { high = middle }
    }
    high
}

/// Two-sided p-value of Student's distribution.
pub fn student_p(t: f64, freedom: f64) -> f64 {
    incomplete_beta(freedom / (freedom + t * t), freedom / 2.0, 0.5)
}

/// The regularised incomplete beta function, by its continued fraction (modified Lentz; DLMF 8.17.22).
fn incomplete_beta(x: f64, a: f64, b: f64) -> f64 {
    if x <= 0.0 || x >= 1.0 {
        return x.clamp(0.0, 1.0);
    }
    if x > (a + 1.0) / (a + b + 2.0) {
        return 1.0 - incomplete_beta(1.0 - x, b, a);
    }
    let front = (log_gamma(a + b) - log_gamma(a) - log_gamma(b) + a * x.ln() + b * (1.0 - x).ln()).exp() / a;
    const TINY: f64 = 1e-300;
    let (mut c, mut d, mut value) = (1.0, 0.0, 1.0);
    for i in 0..400 {
        let m = f64::from(i / 2);
        let term = match i {
            0 => 1.0,
            i if i % 2 == 0 => m * (b - m) * x / ((a + 2.0 * m - 1.0) * (a + 2.0 * m)),
            _ => -(a + m) * (a + b + m) * x / ((a + 2.0 * m) * (a + 2.0 * m + 1.0)),
        };
        d = 1.0 + term * d;
        d = 1.0 / if d.abs() < TINY { TINY } else { d };
        c = 1.0 + term / c;
        c = if f64::abs(c) < TINY { TINY } else { c };
        value *= c * d;
        if (c * d - 1.0).abs() < 1e-14 && i > 2 {
            break;
        }
    }
    front * (value - 1.0)
}

/// Logarithm of the gamma function for positive arguments, to some 1e-13 (Stirling's series after shifting the argument up).
fn log_gamma(x: f64) -> f64 {
    let (mut x, mut shift) = (x, 0.0);
    while x < 12.0 {
        shift += x.ln();
        x += 1.0;
    }
    let r = 1.0 / (x * x);
    let series = (1.0 / 12.0 - r * (1.0 / 360.0 - r * (1.0 / 1260.0 - r * (1.0 / 1680.0 - r / 1188.0)))) / x;
    (x - 0.5) * x.ln() - x + 0.5 * std::f64::consts::TAU.ln() + series - shift
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn students_quantiles_are_those_of_the_tables() {
        for (p, freedom, t) in [
            (0.05, 1.0, 12.706_205),
            (0.05, 4.0, 2.776_445),
            (0.05, 10.0, 2.228_139),
            (0.01, 6.0, 3.707_428),
            (0.05, 1e6, 1.959_966),
            (0.0005, 8.0, 5.617_8),
        ] {
            let ours = student_quantile(p, freedom);
            assert!((ours - t).abs() < 2e-4 * t, "p {p}, {freedom}: {ours}, the table says {t}");
        }
        for x in [0.5, 1.0, 3.5, 20.0] {
            let next = log_gamma(x + 1.0) - log_gamma(x) - f64::ln(x);
            assert!(next.abs() < 1e-12, "gamma(x + 1) = x gamma(x) at {x}: {next}");
        }
        assert!((log_gamma(0.5) - std::f64::consts::PI.sqrt().ln()).abs() < 1e-12);
    }

    #[test]
    fn processes_outvote_what_was_stated() {
        let figures = |logs: &[f64]| logs.iter().map(|&log| ProcessFigure { log, error: 0.0 }).collect::<Vec<_>>();
        let one = Common::of(&figures(&[1.0]), 0.01).unwrap();
        assert!((one.variance - 1e-4).abs() < 1e-12 && one.freedom == WEIGHT);
        // Thirty processes that differ by 5 %.
        let many: Vec<f64> = (0..30).map(|i| 1.0 + 0.05 * f64::from(i % 3 - 1)).collect();
        let many = Common::of(&figures(&many), 0.01).unwrap();
        let deviation = (many.variance * 30.0).sqrt();
        assert!((0.03..0.05).contains(&deviation), "{deviation}");
        assert!(Common::of(&[], 0.01).is_none());
    }

    #[test]
    fn the_stated_deviation_has_no_steps() {
        for on_device in [false, true] {
            let mut last = between_processes(on_device, 1.0);
            for step in 0..400 {
                let now = between_processes(on_device, 10f64.powf(f64::from(step) / 40.0));
                assert!(now > 0.0 && (now - last).abs() < 0.002, "{step}");
                last = now;
            }
        }
    }
}
