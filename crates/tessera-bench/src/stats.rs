//! The statistics of timings: medians with order-statistic intervals, ratios of interleaved pairs, and what goes with them.
//!
//! The interval of a median is a pair of order statistics: of `n` independent values, the `r`-th smallest and the `r`-th
//! largest enclose the median with probability `1 - 2 P(Bin(n, 1/2) < r)`, whatever the distribution. The largest `r` that
//! keeps the asked confidence is used:
//!
//! | n | 6 | 12 | 24 | 100 | 1000 |
//! |---|---|---|---|---|---|
//! | ranks at 95 % | 1-6 | 3-10 | 7-18 | 40-61 | 469-532 |
//!
//! Below 6 values there is no 95 % interval, and none is made up. The values must be independent: successive timings are
//! not, so everything here is fed with the medians of *blocks* that lie apart in time (`sample.rs`).

use std::collections::BTreeSet;

use serde::{Deserialize, Serialize};

use crate::case::DeviceState;
use crate::hierarchy::{Common, process_figures};

/// A closed interval.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(from = "[f64; 2]", into = "[f64; 2]")]
pub struct Interval {
    /// Lower end.
    pub lo: f64,
    /// Upper end.
    pub hi: f64,
}

impl From<[f64; 2]> for Interval {
    fn from([lo, hi]: [f64; 2]) -> Interval {
        Interval { lo, hi }
    }
}

impl From<Interval> for [f64; 2] {
    fn from(i: Interval) -> [f64; 2] {
        [i.lo, i.hi]
    }
}

impl Interval {
    /// Half its width.
    pub fn half_width(self) -> f64 {
        (self.hi - self.lo) / 2.0
    }

    /// True when `x` lies in it.
    pub fn contains(self, x: f64) -> bool {
        self.lo <= x && x <= self.hi
    }

    /// The interval of a decreasing function of the value: `f(hi)` to `f(lo)`.
    pub fn invert(self, f: impl Fn(f64) -> f64) -> Interval {
        Interval { lo: f(self.hi), hi: f(self.lo) }
    }
}

/// How sure an interval must be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Confidence {
    /// Reported intervals.
    P95,
    /// The interval that decides when to stop, stricter because it is looked at several times.
    P99,
}

impl Confidence {
    const fn miss(self) -> f64 {
        match self {
            Confidence::P95 => 0.05,
            Confidence::P99 => 0.01,
        }
    }
}

/// One-based ranks of the order statistics that enclose the median of `n` values; none when `n` is too small.
pub fn median_ranks(n: usize, confidence: Confidence) -> Option<(usize, usize)> {
    // Walk the binomial from its centre outwards, in logarithms relative to P(0) = 2^-n.
    let log_half_n = -(n as f64) * std::f64::consts::LN_2;
    let (mut log_term, mut below, mut rank) = (log_half_n, 0.0, 0);
    for k in 0..n / 2 {
        below += f64::exp(log_term);
        if 2.0 * below > confidence.miss() {
            break;
        }
        rank = k + 1;
        log_term += ((n - k) as f64 / (k + 1) as f64).ln();
    }
    (rank > 0).then_some((rank, n + 1 - rank))
}

/// The median of sorted values; the mean of the middle two when their number is even.
fn median_sorted(sorted: &[f64]) -> f64 {
    let n = sorted.len();
    if n == 0 { f64::NAN } else { (sorted[(n - 1) / 2] + sorted[n / 2]) / 2.0 }
}

fn sorted(values: &[f64]) -> Vec<f64> {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    sorted
}

/// The median of any values; NaN of none.
pub fn median(values: &[f64]) -> f64 {
    median_sorted(&sorted(values))
}

/// The value a quarter of the way up; NaN of none.
pub fn lower_quartile(values: &[f64]) -> f64 {
    if values.is_empty() { f64::NAN } else { quantile_sorted(&sorted(values), 0.25) }
}

/// The order-statistic interval of the median; none when there are too few values.
pub fn median_interval(values: &[f64], confidence: Confidence) -> Option<Interval> {
    let (lo, hi) = median_ranks(values.len(), confidence)?;
    let sorted = sorted(values);
    Some(Interval { lo: sorted[lo - 1], hi: sorted[hi - 1] })
}

/// The `q`-quantile of sorted values, linear between neighbours.
fn quantile_sorted(sorted: &[f64], q: f64) -> f64 {
    let position = q * (sorted.len() - 1) as f64;
    let below = position.floor() as usize;
    let above = (below + 1).min(sorted.len() - 1);
    sorted[below] + (sorted[above] - sorted[below]) * (position - below as f64)
}

/// An upper quantile, only where the sample can bound it: with `n >= ln 0.05 / ln q` the largest value lies above it surely enough.
fn tail_quantile(sorted: &[f64], q: f64) -> Option<f64> {
    let needed = (0.05f64.ln() / q.ln()).ceil() as usize;
    (sorted.len() >= needed).then(|| quantile_sorted(sorted, q))
}

/// One block: consecutive timings of one subject and when they began.
#[derive(Clone, Debug, PartialEq)]
pub struct TimedBlock {
    /// Start, nanoseconds since the session began.
    pub start_ns: f64,
    /// Time of one launch, for each sample.
    pub samples_ns: Vec<f64>,
    /// What the device said of itself, where there is one.
    pub device: Option<DeviceState>,
    /// Which place in memory the tensors had, counted from 0 in each process.
    pub place: usize,
    /// Which process measured it, counted from 0.
    pub process: usize,
}

/// What is stored of a measurement. Times are of one launch.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Summary {
    /// Samples.
    pub n: usize,
    /// Blocks; also the effective sample size, since intervals use one value a block.
    pub n_blocks: usize,
    /// Median of the block medians.
    pub median_ns: f64,
    /// Its 95 % interval from these blocks alone; absent below six blocks.
    pub ci95_ns: Option<Interval>,
    /// Processes that measured them.
    #[serde(default = "one")]
    pub processes: usize,
    /// Places in memory that the tensors had, over all processes.
    #[serde(default = "one")]
    pub places: usize,
    /// The 95 % interval of what another process of the same program would measure; absent in files of version 1.0.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ci95_processes_ns: Option<Interval>,
    /// Smallest sample.
    pub min_ns: f64,
    /// 5 % quantile of the samples.
    pub p5_ns: f64,
    /// 20 % quantile.
    pub p20_ns: f64,
    /// 80 % quantile.
    pub p80_ns: f64,
    /// 95 % quantile; absent below 59 samples.
    pub p95_ns: Option<f64>,
    /// 99 % quantile; absent below 299 samples.
    pub p99_ns: Option<f64>,
    /// Median absolute deviation of the samples.
    pub mad_ns: f64,
    /// Mean of the samples.
    pub mean_ns: f64,
    /// Standard deviation of the samples.
    pub sd_ns: f64,
    /// Correlation of each block median with the next.
    pub rho1: Option<f64>,
    /// Theil-Sen slope of the block medians, per cent a second.
    pub drift_pct_s: Option<f64>,
    /// Samples with a modified Z beyond 3.5: counted, never dropped.
    pub outliers: usize,
    /// True when the samples fall into two groups.
    pub bimodal: bool,
}

fn one() -> usize {
    1
}

impl Summary {
    /// Summarises blocks; none when there is no sample. `spread` says how much processes differ by the time of a launch.
    pub fn of(blocks: &[TimedBlock], tick_ns: f64, spread: &dyn Fn(f64) -> f64) -> Option<Summary> {
        let medians: Vec<f64> = blocks.iter().filter(|b| !b.samples_ns.is_empty()).map(|b| median(&b.samples_ns)).collect();
        let all = sorted(&blocks.iter().flat_map(|b| b.samples_ns.iter().copied()).collect::<Vec<_>>());
        let n = all.len();
        if n == 0 {
            return None;
        }
        let mean = all.iter().sum::<f64>() / n as f64;
        let variance = all.iter().map(|x| (x - mean).powi(2)).sum::<f64>() / (n.max(2) - 1) as f64;
        let centre = median_sorted(&all);
        let mad = median(&all.iter().map(|x| (x - centre).abs()).collect::<Vec<_>>());
        let outliers = all.iter().filter(|&&x| mad > 0.0 && 0.6745 * (x - centre).abs() / mad > 3.5).count();
        let starts: Vec<f64> = blocks.iter().filter(|b| !b.samples_ns.is_empty()).map(|b| b.start_ns).collect();
        let median_ns = median(&medians);
        Some(Summary {
            n,
            n_blocks: medians.len(),
            median_ns,
            ci95_ns: median_interval(&medians, Confidence::P95),
            processes: distinct(blocks.iter().map(|block| (block.process, 0))),
            places: distinct(blocks.iter().map(|block| (block.process, block.place))),
            ci95_processes_ns: Common::of(&process_figures(blocks), spread(median_ns)).map(|common| common.interval()),
            min_ns: all[0],
            p5_ns: quantile_sorted(&all, 0.05),
            p20_ns: quantile_sorted(&all, 0.20),
            p80_ns: quantile_sorted(&all, 0.80),
            p95_ns: tail_quantile(&all, 0.95),
            p99_ns: tail_quantile(&all, 0.99),
            mad_ns: mad,
            mean_ns: mean,
            sd_ns: variance.sqrt(),
            rho1: lag1(&medians),
            drift_pct_s: theil_sen(&starts, &medians).map(|slope| slope * 1e9 / median_ns * 100.0),
            outliers,
            bimodal: is_bimodal(&all, tick_ns),
        })
    }
}

/// How many different ones there are.
fn distinct(items: impl Iterator<Item = (usize, usize)>) -> usize {
    items.collect::<BTreeSet<_>>().len()
}

/// Correlation of each value with the next; none below four values or without variation.
pub fn lag1(values: &[f64]) -> Option<f64> {
    if values.len() < 4 {
        return None;
    }
    let mean = values.iter().sum::<f64>() / values.len() as f64;
    let total: f64 = values.iter().map(|x| (x - mean).powi(2)).sum();
    let shared: f64 = values.windows(2).map(|w| (w[0] - mean) * (w[1] - mean)).sum();
    (total > 0.0).then(|| shared / total)
}

/// The median of the slopes through all pairs of points; none without two different abscissae.
pub fn theil_sen(x: &[f64], y: &[f64]) -> Option<f64> {
    let mut slopes = Vec::new();
    for i in 0..x.len().min(y.len()) {
        for j in 0..i {
            if x[i] != x[j] {
                slopes.push((y[i] - y[j]) / (x[i] - x[j]));
            }
        }
    }
    (!slopes.is_empty()).then(|| median(&slopes))
}

/// Two groups: the widest gap between neighbours exceeds 3 ticks and 2 %, with a tenth of the samples on each side of it.
fn is_bimodal(sorted: &[f64], tick_ns: f64) -> bool {
    let n = sorted.len();
    let margin = n.div_ceil(10);
    (margin.max(1)..n.saturating_sub(margin).max(1))
        .any(|i| n >= 20 && sorted[i] - sorted[i - 1] > 3.0 * tick_ns && sorted[i] > 1.02 * sorted[i - 1])
}

/// The ratio of two subjects measured in turns: median and interval of `ln(b/a)` over pairs, as ratios `b/a`.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct PairedRatio {
    /// Median of `b/a`.
    pub ratio: f64,
    /// Its 95 % interval; absent below six pairs.
    pub ci95: Option<Interval>,
    /// Pairs used.
    pub pairs: usize,
}

/// Compares block medians pair by pair, so that whatever moves both sides cancels. None without a pair.
pub fn paired_ratio(a: &[f64], b: &[f64]) -> Option<PairedRatio> {
    let logs: Vec<f64> = a.iter().zip(b).map(|(a, b)| (b / a).ln()).filter(|d| d.is_finite()).collect();
    (!logs.is_empty()).then(|| PairedRatio {
        ratio: median(&logs).exp(),
        ci95: median_interval(&logs, Confidence::P95).map(|i| Interval { lo: i.lo.exp(), hi: i.hi.exp() }),
        pairs: logs.len(),
    })
}

/// Which of a family of p-values are below chance when at most a share `alpha` of families without any effect may have one
/// that is: Holm's step-down test, whatever the dependence between them.
pub fn holm(p: &[f64], alpha: f64) -> Vec<bool> {
    let ranked = sorted(p);
    let m = ranked.len();
    let rejected = (0..m).take_while(|&i| ranked[i] <= alpha / (m - i) as f64).count();
    let limit = rejected.checked_sub(1).map(|last| ranked[last]);
    p.iter().map(|&p| limit.is_some_and(|limit| p <= limit)).collect()
}

/// Two-sided p-value of a standard normal deviate.
pub fn normal_p(z: f64) -> f64 {
    erfc(z.abs() / std::f64::consts::SQRT_2)
}

/// The complementary error function for `x >= 0`, to a relative error of 1.2e-7 (a Chebyshev fit of `erfc(x) e^(x^2)`).
fn erfc(x: f64) -> f64 {
    let t = 1.0 / (1.0 + 0.5 * x);
    const FIT: [f64; 10] = [
        -1.265_512_23,
        1.000_023_68,
        0.374_091_96,
        0.096_784_18,
        -0.186_288_06,
        0.278_868_07,
        -1.135_203_98,
        1.488_515_87,
        -0.822_152_23,
        0.170_872_77,
    ];
    t * (FIT.iter().rev().fold(0.0, |sum, c| sum * t + c) - x * x).exp()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranks_match_the_published_table() {
        let table = [
            (6, 1, 6),
            (10, 2, 9),
            (12, 3, 10),
            (20, 6, 15),
            (24, 7, 18),
            (30, 10, 21),
            (50, 18, 33),
            (64, 24, 41),
            (100, 40, 61),
            (200, 86, 115),
            (500, 228, 273),
            (1000, 469, 532),
        ];
        for (n, lo, hi) in table {
            assert_eq!(median_ranks(n, Confidence::P95), Some((lo, hi)), "n = {n}");
        }
        for (n, lo, hi) in [(8, 1, 8), (12, 2, 11), (30, 8, 23), (100, 37, 64), (1000, 459, 542)] {
            assert_eq!(median_ranks(n, Confidence::P99), Some((lo, hi)), "n = {n}");
        }
        assert_eq!(median_ranks(5, Confidence::P95), None);
        assert_eq!(median_ranks(7, Confidence::P99), None);
        assert_eq!(median_ranks(0, Confidence::P95), None);
        assert!(median_ranks(5000, Confidence::P95).is_some(), "2^-n underflows, its logarithm does not");
    }

    /// Against Pascal's triangle in integers, for every n up to 120.
    #[test]
    fn ranks_are_the_largest_that_keep_the_confidence() {
        for n in 1..=120u32 {
            let mut row = vec![1u128];
            for _ in 0..n {
                let mut next = vec![1u128; row.len() + 1];
                for i in 1..row.len() {
                    next[i] = row[i - 1] + row[i];
                }
                row = next;
            }
            for (confidence, denominator) in [(Confidence::P95, 40u128), (Confidence::P99, 200)] {
                // 2 P(X < r) <= 1/20  <=>  40 sum <= 2^n
                let holds = |r: u32| row[..r as usize].iter().sum::<u128>() * denominator <= 1u128 << n;
                let largest = (1..=n / 2).take_while(|&r| holds(r)).last();
                let ours = median_ranks(n as usize, confidence).map(|(lo, _)| lo as u32);
                assert_eq!(ours, largest, "n = {n}, {confidence:?}");
            }
        }
    }

    #[test]
    fn medians_and_quantiles_of_known_data() {
        assert_eq!(median(&[3.0, 1.0, 2.0]), 2.0);
        assert_eq!(median(&[4.0, 1.0, 2.0, 3.0]), 2.5);
        assert!(median(&[]).is_nan());
        let ten: Vec<f64> = (1..=10).map(f64::from).collect();
        assert_eq!(median_interval(&ten, Confidence::P95), Some(Interval { lo: 2.0, hi: 9.0 }));
        assert_eq!(quantile_sorted(&ten, 0.2), 2.8);
        assert_eq!(tail_quantile(&ten, 0.95), None);
        assert!(tail_quantile(&[1.0; 59], 0.95).is_some() && tail_quantile(&[1.0; 58], 0.95).is_none());
        assert!(tail_quantile(&[1.0; 299], 0.99).is_some() && tail_quantile(&[1.0; 298], 0.99).is_none());
    }

    #[test]
    fn summary_of_known_blocks() {
        let block =
            |start: f64, v: [f64; 3]| TimedBlock { start_ns: start, samples_ns: v.to_vec(), device: None, place: 0, process: 0 };
        let blocks: Vec<TimedBlock> = (0..6).map(|i| block(f64::from(i) * 1e9, [100.0 + f64::from(i), 99.0, 200.0])).collect();
        let s = Summary::of(&blocks, 1.0, &|_| 0.01).unwrap();
        assert_eq!((s.n, s.n_blocks, s.median_ns, s.min_ns), (18, 6, 102.5, 99.0));
        assert_eq!(s.ci95_ns, Some(Interval { lo: 100.0, hi: 105.0 }));
        assert!((s.drift_pct_s.unwrap() - 100.0 / 102.5).abs() < 1e-9);
        assert_eq!(s.outliers, 6);
        assert_eq!(Summary::of(&[], 1.0, &|_| 0.01), None);
    }

    #[test]
    fn two_groups_are_seen() {
        let mixed: Vec<f64> = (0..40).map(|i| if i < 30 { 100.0 + 0.01 * f64::from(i) } else { 110.0 }).collect();
        assert!(is_bimodal(&mixed, 0.1));
        assert!(!is_bimodal(&mixed[..30], 0.1));
        assert!(!is_bimodal(&mixed, 5.0), "a gap of two ticks is quantisation");
    }

    #[test]
    fn holm_steps_down() {
        let p = [0.01, 0.04, 0.03, 0.005, 0.5];
        assert_eq!(holm(&p, 0.05), [true, false, false, true, false], "0.01 is held against 0.05 / 4, 0.03 against 0.05 / 3");
        assert_eq!(holm(&[0.04, 0.5, 0.6, 0.7, 0.8], 0.05), [false; 5]);
        assert_eq!(holm(&[], 0.05), [false; 0]);
    }

    #[test]
    fn normal_tail_at_known_points() {
        for (z, p) in [(0.0, 1.0), (1.0, 0.317_310_508), (1.959_964, 0.05), (3.290_527, 0.001)] {
            assert!((normal_p(z) - p).abs() < 1e-6, "{z}: {}", normal_p(z));
        }
    }
}
