//! What pairs of processes say of all rows at once.
//!
//! A pair gives each row one number, `d = ln(time of b / time of a)`. Which side began was decided by a coin, so if both sides
//! are the same program, every pair could as well have come out with all its signs turned: that, and nothing about how times
//! are distributed, is what the test rests on. It turns the signs of whole pairs in all possible ways (or in thousands of
//! random ones) and looks how large the largest statistic of any row gets:
//!
//! ```text
//! pair        1     2     3   ...      x = d, no further from 0 than 1.5 times the row's median |d|
//! row 1     +.02  -.01  +.01           T = mean(x) / se(x)
//! row 2     -.03  +.02  -.01           max |T| over rows, for each way to turn pairs:  T of a row counts
//! signs       +     -     +            when it is beyond all but a share `level` of these maxima
//! ```
//!
//! A row's interval is `mean(x) +- c se(x)` with `c` that bound, so the intervals of all rows hold together with probability
//! `1 - level` (Westfall and Young's max-T; sign changes as in Fisher's test). What hits all rows of a process alike, two
//! speeds of a process, heavy tails and drift make `c` or `se` larger, not the verdicts wrong. Where thousands of random ways
//! are too few for a level, a bound on the tail of such sums stands in (`P(sum >= z sqrt(sum x^2)) <= 3.18 P(N > z)`, Bentkus and
//! Dzindzalieta 2015), for each row by itself.
//!
//! Several looks share the error: look `k` (after 8, 12, 16, 24, 32, 48, ... pairs) may spend `alpha / (k (k + 1))` of it; these
//! add up to `alpha`, however long one goes on. Rows that are decided leave the family with their share of what is left.

use serde::{Deserialize, Serialize};

use crate::random::Random;
use crate::stats::{median, normal_p};

/// Magnitudes beyond so many times their median are cut down to it: one pair that somebody disturbed decides nothing.
const CUT: f64 = 1.5;
/// Ways to turn signs that are tried where all are too many: at least, at most, and so many as take this many additions.
const FLIPS: (usize, usize) = (8192, 1 << 18);
const ADDITIONS: usize = 400_000_000;
/// Ways that must lie beyond a bound for it to be read off them.
const BEYOND: f64 = 4.0;
/// Pairs up to which all ways are tried: half of `2^13`, since turning all signs changes no magnitude.
const EXHAUSTIVE: usize = 13;

/// What pairs said of one row.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct RowEvidence {
    /// The pair's number and `ln(b / a)`, in rising order of pairs; a pair that has no time of the row is left out.
    pub logs: Vec<(usize, f64)>,
    /// Below this a mean of such values means nothing, as a share: what the clock's step leaves open.
    pub resolution: f64,
}

/// What is known of one row: the change of its time as a logarithm.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Bound {
    /// Estimate of `ln(b / a)`.
    pub log: f64,
    /// Half the width of its interval, which holds for all rows together.
    pub half: f64,
}

/// After how many pairs the `k`-th look is taken, from 1 on; the first needs so many that `level` can be reached at all.
pub fn pairs_at(look: usize, first_level: f64) -> usize {
    // Of n pairs, all turned one way are one in 2^(n-1).
    let least = (1.0 - first_level.log2()).ceil().max(8.0) as usize;
    let least = least.next_multiple_of(4);
    let (octave, half) = ((look - 1) / 2, (look - 1) % 2);
    (least << octave) + half * (least << octave) / 2
}

/// The share of false alarms that the `k`-th look may cause, from 1 on.
pub fn level_at(look: usize, alpha: f64) -> f64 {
    alpha / (look * (look + 1)) as f64
}

/// Intervals of all rows that hold together with probability `1 - level`; none for a row of fewer than four pairs.
pub fn bounds(rows: &[RowEvidence], level: f64, seed: u64) -> Vec<Option<Bound>> {
    let rows: Vec<Option<Cut>> = rows.iter().map(Cut::of).collect();
    let present = rows.iter().flatten().count();
    let pairs = rows.iter().flatten().map(|row| row.last + 1).max().unwrap_or(0);
    let flips = Flips::new(pairs, level, present, seed);
    if !flips.all && level * (flips.count as f64) < BEYOND {
        let each = level / present as f64;
        let bound = |row: &Option<Cut>| row.as_ref().map(|row| row.bound(row.tail_bound(each)));
        return rows.iter().map(bound).collect();
    }
    let mut maxima = vec![0.0f64; flips.count];
    for row in rows.iter().flatten() {
        let sums = SignedSums::of(row);
        for (most, turned) in maxima.iter_mut().zip(flips.bits.chunks_exact(flips.words)) {
            *most = most.max(row.statistic(sums.sum(turned)));
        }
    }
    maxima.sort_by(|a, b| b.total_cmp(a));
    let beyond = (level * flips.count as f64 + 1e-9).floor() as usize;
    // A statistic that is as large as the bound is not beyond it, however it was rounded.
    let bound = maxima.get(beyond).map_or(f64::INFINITY, |&bound| bound * (1.0 + 1e-9));
    let critical = if beyond == 0 { f64::INFINITY } else { bound };
    rows.iter().map(|row| row.as_ref().map(|row| row.bound(critical))).collect()
}

/// A row's values, cut, with what does not change when signs are turned.
struct Cut {
    values: Vec<(usize, f64)>,
    squares: f64,
    resolution: f64,
    last: usize,
}

impl Cut {
    fn of(row: &RowEvidence) -> Option<Cut> {
        let finite: Vec<(usize, f64)> = row.logs.iter().copied().filter(|(_, d)| d.is_finite()).collect();
        if finite.len() < 4 {
            return None;
        }
        let magnitudes: Vec<f64> = finite.iter().map(|(_, d)| d.abs()).collect();
        let most = CUT * median(&magnitudes).max(row.resolution);
        let values: Vec<(usize, f64)> = finite.into_iter().map(|(pair, d)| (pair, d.clamp(-most, most))).collect();
        let squares = values.iter().map(|(_, x)| x * x).sum();
        let last = values.last().map_or(0, |(pair, _)| *pair);
        Some(Cut { values, squares, resolution: row.resolution, last })
    }

    /// The mean and its standard error where the values, some with their signs turned, have this sum.
    fn mean_and_error(&self, sum: f64) -> (f64, f64) {
        let n = self.values.len() as f64;
        let mean = sum / n;
        let variance = (self.squares / n - mean * mean).max(0.0) / (n - 1.0);
        (mean, (variance + self.resolution * self.resolution).sqrt())
    }

    fn statistic(&self, sum: f64) -> f64 {
        let (mean, error) = self.mean_and_error(sum);
        if mean == 0.0 { 0.0 } else { mean.abs() / error }
    }

    /// The statistic that random signs exceed with probability `level` at most, by the bound on their sums.
    fn tail_bound(&self, level: f64) -> f64 {
        const EXCESS: f64 = 3.178;
        // Two sides; halved between 0 and what no sum of normal numbers of interest exceeds.
        let (mut low, mut high) = (0.0, 40.0);
        for _ in 0..60 {
            let z = (low + high) / 2.0;
            if EXCESS * normal_p(z) > level { low = z } else { high = z }
        }
        let (n, z2) = (self.values.len() as f64, high * high);
        if z2 >= n { f64::INFINITY } else { (z2 * (n - 1.0) / (n - z2)).sqrt() }
    }

    fn bound(&self, critical: f64) -> Bound {
        let (log, error) = self.mean_and_error(self.values.iter().map(|(_, x)| x).sum());
        // Values that are all the same leave no error; with a critical value of infinity nothing is known yet.
        Bound { log, half: if critical.is_finite() { critical * error } else { f64::INFINITY } }
    }
}

/// A row's sums for all ways to turn eight neighbouring pairs: thousands of ways are looked up by their bytes, and not added up again.
struct SignedSums(Vec<[f64; 256]>);

impl SignedSums {
    fn of(row: &Cut) -> SignedSums {
        let mut tables = vec![[0.0; 256]; row.last / 8 + 1];
        for &(pair, x) in &row.values {
            for (turned, sum) in tables[pair / 8].iter_mut().enumerate() {
                *sum += if turned >> (pair % 8) & 1 == 1 { -x } else { x };
            }
        }
        SignedSums(tables)
    }

    /// The sum where the pairs of these bits are turned.
    fn sum(&self, turned: &[u64]) -> f64 {
        let byte = |at: usize| (turned[at / 8] >> (at % 8 * 8) & 0xff) as usize;
        self.0.iter().enumerate().map(|(at, table)| table[byte(at)]).sum()
    }
}

/// Ways to turn the signs of pairs; the first turns none.
struct Flips {
    count: usize,
    /// Whether these are all ways there are.
    all: bool,
    words: usize,
    bits: Vec<u64>,
}

impl Flips {
    fn new(pairs: usize, level: f64, rows: usize, seed: u64) -> Flips {
        let words = pairs.div_ceil(64).max(1);
        if pairs <= EXHAUSTIVE {
            // The first pair keeps its sign.
            let count = 1 << pairs.saturating_sub(1);
            return Flips { count, all: true, words, bits: (0..count as u64).map(|bits| bits << 1).collect() };
        }
        let (least, most) = FLIPS;
        let wanted = (4.0 * BEYOND / level).ceil() as usize;
        let count = wanted.min(most).min(ADDITIONS / (rows * pairs).max(1)).max(least);
        let mut random = Random::new(seed ^ pairs as u64);
        let mut bits = vec![0; words];
        bits.extend((words..count * words).map(|_| random.next_u64()));
        Flips { count, all: false, words, bits }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(values: &[f64]) -> RowEvidence {
        RowEvidence { logs: values.iter().copied().enumerate().collect(), resolution: 0.0 }
    }

    #[test]
    fn looks_come_at_growing_distances_and_spend_no_more_than_there_is() {
        let looks: Vec<usize> = (1..=8).map(|look| pairs_at(look, level_at(1, 0.05))).collect();
        assert_eq!(looks, [8, 12, 16, 24, 32, 48, 64, 96]);
        assert_eq!(pairs_at(1, level_at(1, 0.001)), 12, "one in 2^11 is the first that is rarer than one in 2000");
        assert!((1..1000).map(|look| level_at(look, 0.05)).sum::<f64>() < 0.05);
    }

    /// One row, all signs equal: of 2^7 ways to turn eight pairs only its own is as extreme.
    #[test]
    fn one_row_is_beyond_zero_exactly_when_its_share_is_below_the_level() {
        let same_sign = [row(&[0.011, 0.012, 0.010, 0.009, 0.013, 0.011, 0.010, 0.012])];
        let at = |level: f64| bounds(&same_sign, level, 1)[0].unwrap();
        assert!(at(1.01 / 128.0).half < at(1.01 / 128.0).log);
        assert!(at(0.99 / 128.0).half.is_infinite());
        let one_against = [row(&[0.011, 0.012, 0.010, 0.009, 0.013, 0.011, 0.010, -0.001])];
        let bound = bounds(&one_against, 1.01 / 128.0, 1)[0].unwrap();
        assert!(bound.half >= bound.log, "turning the small one alone is more extreme: {bound:?}");
    }

    /// The bound that stands in for too few ways is wider than what many ways give, by little.
    #[test]
    fn the_tail_bound_is_on_the_safe_side() {
        let mut random = Random::new(5);
        let values: Vec<f64> = (0..24).map(|_| 0.002 + 0.01 * (random.unit() - 0.5)).collect();
        let rows = [row(&values)];
        let cut = Cut::of(&rows[0]).unwrap();
        for level in [0.01, 0.001, 0.0002] {
            let (read, bounded) = (bounds(&rows, level, 3)[0].unwrap(), cut.bound(cut.tail_bound(level)));
            assert!(bounded.half > read.half && bounded.half < 2.0 * read.half, "{level}: {read:?} {bounded:?}");
        }
        let rare = bounds(&rows, 1e-6, 3)[0].unwrap();
        assert_eq!(rare, cut.bound(cut.tail_bound(1e-6)));
        assert!(bounds(&[row(&values[..16])], 1e-9, 3)[0].unwrap().half.is_infinite());
    }

    #[test]
    fn what_cannot_be_seen_has_no_bound_and_one_outlier_moves_little() {
        assert_eq!(bounds(&[row(&[0.1, 0.1, 0.1])], 0.05, 1), [None]);
        assert_eq!(bounds(&[row(&[f64::NAN; 12])], 0.05, 1), [None]);
        assert_eq!(bounds(&[], 0.05, 1), []);
        let mut values = vec![0.01, 0.012, 0.011, 0.009, 0.01, 0.011, 0.012, 0.01];
        let quiet = bounds(&[row(&values)], 0.025, 1)[0].unwrap();
        values[3] = 3.0;
        let disturbed = bounds(&[row(&values)], 0.025, 1)[0].unwrap();
        assert!(disturbed.log < 1.3 * quiet.log && disturbed.half < disturbed.log, "{disturbed:?}");
    }

    #[test]
    fn equal_readings_of_a_coarse_clock_are_bounded_by_its_step() {
        let coarse = RowEvidence { logs: (0..8).map(|pair| (pair, 0.0)).collect(), resolution: 0.004 };
        let bound = bounds(&[coarse], 0.025, 1)[0].unwrap();
        assert_eq!(bound.log, 0.0);
        let other: Vec<f64> = (0..8).map(|i| if i % 2 == 0 { 0.003 } else { -0.002 }).collect();
        let steps = RowEvidence { logs: other.into_iter().enumerate().collect(), resolution: 0.004 };
        assert!(bounds(&[steps], 0.025, 1)[0].unwrap().half > 0.0005);
    }
}
