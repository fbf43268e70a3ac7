//! The reference of attention whose queries see keys in a window, with capped scores and biases.
//!
//! A query at place `p` among the keys of its sequence sees those from `p - left` to `p + right` that there are:
//!
//! ```text
//! 3 queries, 5 keys, left 1, right 0      places 2 3 4      keys   0 1 [2] 3 4 of the first: 1 2,   of the second: 2 3,   of the last: 3 4
//! ```

use std::ops::Range;

use rayon::prelude::*;
use tessera_types::{DType, ErrorModel, unit_roundoff};

use crate::element::{storable, underflow};
use crate::operator::{Argument, Expected, Inputs, Reference, Unsupported};
use crate::problem::Problem;
use crate::set::rows;

/// Keys before a query's own place and behind it; all that there are where it is -1.
pub(super) const LEFT: (&str, f64) = ("left", -1.0);
pub(super) const RIGHT: (&str, f64) = ("right", -1.0);
/// What scores are capped at; 0: they are as they are.
pub(super) const SOFTCAP: (&str, f64) = ("softcap", 0.0);

/// What a problem's scores are capped at. Arguments of launches have 32 bits, in which a cap is neither 0 nor without end.
pub(super) fn softcap(problem: &Problem) -> Result<f64, Unsupported> {
    let softcap = problem.number(SOFTCAP.0).unwrap_or(SOFTCAP.1);
    let passed = softcap as f32;
    match softcap == 0.0 || passed > 0.0 && passed.is_finite() {
        true => Ok(softcap),
        false => Err(Unsupported(format!("scores that are capped at {softcap}"))),
    }
}

/// The numbers of a problem.
#[derive(Clone, Copy, Debug)]
pub(super) struct Numbers {
    pub(super) left: Option<u64>,
    pub(super) right: Option<u64>,
    pub(super) softcap: f64,
}

impl Numbers {
    pub(super) fn of(problem: &Problem) -> Result<Numbers, Unsupported> {
        let side = |number| {
            let keys = problem.whole(number, -1..=i64::from(i32::MAX))?;
            Ok::<_, Unsupported>(u64::try_from(keys).ok())
        };
        Ok(Numbers { left: side(LEFT)?, right: side(RIGHT)?, softcap: softcap(problem)? })
    }

    /// What kernels of windows are given of a problem: heads that share keys, a tile's queries and keys, elements of a head; and how many keys there are
    /// at most before a query and behind it.
    pub(super) fn arguments(
        &self,
        scale: f64,
        [group, tm, tn, dim]: [usize; 4],
        [left, right]: [usize; 2],
        acc: DType,
    ) -> [(&'static str, Argument); 10] {
        [
            ("scale", Argument::Float(scale)),
            ("cap", Argument::Float(self.softcap)),
            ("GROUP", rows::int(group)),
            ("TM", rows::int(tm)),
            ("TN", rows::int(tn)),
            ("D", rows::int(dim)),
            ("LEFT", Argument::Int(Numbers::passed(self.left, left as u64))),
            ("RIGHT", Argument::Int(Numbers::passed(self.right, right as u64))),
            ("CAPPED", Argument::Bool(self.softcap > 0.0)),
            ("ACC", Argument::Type(acc)),
        ]
    }

    /// What kernels are given for a side, where there are no more than so many keys: one that ends no sooner than they do is none.
    fn passed(side: Option<u64>, most: u64) -> i64 {
        side.filter(|&side| side < most).map_or(-1, |side| side as i64)
    }

    /// The keys of `keys` that a query at a place sees.
    pub(super) fn seen(&self, place: i64, keys: usize) -> Range<usize> {
        let within = |key: i64| key.clamp(0, keys as i64) as usize;
        let first = self.left.map_or(0, |left| within(place - left as i64));
        first..self.right.map_or(keys, |right| within(place + right as i64 + 1)).max(first)
    }

    /// Pairs of a query and a key that it sees.
    pub(super) fn pairs(&self, queries: usize, keys: usize) -> u64 {
        (0..queries).map(|query| self.seen((query + keys) as i64 - queries as i64, keys).len() as u64).sum()
    }
}

/// Where the keys of a sequence's head, and values as well, begin, how far apart two of them are, and how many there are.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Keys {
    pub(super) base: usize,
    pub(super) step: usize,
    pub(super) count: usize,
}

/// What one row of a result is made of.
#[derive(Clone, Copy, Debug)]
pub(super) struct Row {
    /// The first element of its query.
    pub(super) query: usize,
    pub(super) keys: Keys,
    /// Where the query stands among them.
    pub(super) place: i64,
    pub(super) slope: f64,
    /// The tensor of biases and the first one of the row.
    pub(super) bias: Option<(usize, usize)>,
}

/// The rows of an output.
pub(super) type RowsOf = Box<dyn Fn(&dyn Inputs, usize, &[usize]) -> Vec<Row> + Send + Sync>;

/// Results and logarithms, of tensors 0, 1 and 2 for Q, K and V.
pub(super) struct Scored {
    pub(super) numbers: Numbers,
    pub(super) dim: usize,
    pub(super) scale: f64,
    pub(super) storage: DType,
    pub(super) acc: DType,
    pub(super) rows: RowsOf,
}

/// One row's answer: its elements with the largest error of each.
type Answer = Vec<(f64, f64)>;

impl Scored {
    /// The scores of the keys that a row sees, and the largest error of one in units of the accumulator.
    fn scores(&self, inputs: &dyn Inputs, row: &Row, seen: Range<usize>, k: &[f64]) -> (Vec<f64>, f64) {
        let mut q = vec![0.0; self.dim];
        inputs.numbers(0, row.query, &mut q);
        let mut biases = vec![0.0; seen.len()];
        if let Some((tensor, start)) = row.bias {
            inputs.numbers(tensor, start + seen.start, &mut biases);
        }
        let cap = self.numbers.softcap;
        let (mut scores, mut error) = (Vec::new(), 0.0f64);
        for (key, bias) in seen.zip(biases) {
            let k = &k[key * self.dim..][..self.dim];
            let (sum, magnitude) = q.iter().zip(k).fold((0.0, 0.0), |(sum, all), (q, k)| (sum + q * k, all + (q * k).abs()));
            let capped = if cap > 0.0 { cap * (self.scale * sum / cap).tanh() } else { self.scale * sum };
            let slope = row.slope * (row.place - key as i64).abs() as f64;
            scores.push(capped - slope + bias);
            if bias > f64::NEG_INFINITY {
                // The hyperbolic tangent is off by some units in the last place of the cap; a bias by those of its own.
                let beside = cap + slope.abs() + bias.abs();
                error = error.max(4.0 * (self.dim as f64).sqrt() * self.scale * magnitude + 8.0 * beside);
            }
        }
        (scores, error)
    }

    fn row(&self, inputs: &dyn Inputs, output: usize, row: &Row, [k, v]: &[Vec<f64>; 2]) -> Answer {
        let u = unit_roundoff(self.acc);
        let seen = self.numbers.seen(row.place, row.keys.count);
        let (scores, error) = self.scores(inputs, row, seen.clone(), k);
        let largest = scores.iter().copied().fold(f64::NEG_INFINITY, f64::max);
        if largest == f64::NEG_INFINITY {
            return if output == 1 { vec![(largest, 0.0)] } else { vec![(0.0, 0.0); self.dim] };
        }
        let total: f64 = scores.iter().map(|score| (score - largest).exp()).sum();
        let order = 8.0 * (scores.len() as f64).sqrt();
        if output == 1 {
            // A score's error is one of the logarithm. Exponentials are off relatively by what they are taken of, and their sum by its order.
            return vec![(largest + total.ln(), u * (error + 4.0 * (2.0 + largest.abs() + total.ln().abs()) + order))];
        }
        let mut answer = vec![(0.0, 0.0); self.dim];
        for (key, score) in seen.zip(&scores) {
            let weight = (score - largest).exp() / total;
            for ((want, magnitude), v) in answer.iter_mut().zip(&v[key * self.dim..]) {
                *want += weight * v;
                *magnitude += weight * v.abs();
            }
        }
        // What is farther below weighs nothing.
        let distance = scores.iter().map(|score| (largest - score).min(30.0)).fold(0.0, f64::max);
        let weight = u * (error + 4.0 * (2.0 + distance + largest.abs().min(1e3)));
        // Weights are rounded to the storage type before the second product; both it and their sum add them up.
        let relative = unit_roundoff(self.storage) + 2.0 * weight + u * order;
        let model = ErrorModel { floor: underflow(self.storage), ..ErrorModel::nearest(self.storage, self.acc) };
        for (want, bound) in &mut answer {
            *bound = relative * *bound + model.u_out * want.abs() + model.floor;
            *want = storable(self.storage, *want);
        }
        answer
    }

    /// Rows in any order; a head's K and V are decoded once for all of its rows.
    fn answer(&self, inputs: &dyn Inputs, output: usize, rows: &[usize], expected: Expected<'_>) {
        let Expected::Bounded { want, bound } = expected else { return };
        let width = if output == 1 { 1 } else { self.dim };
        let mut rows: Vec<(usize, Row)> = (self.rows)(inputs, output, rows).into_iter().enumerate().collect();
        rows.sort_by_key(|(_, row)| row.keys);
        for of_head in rows.chunk_by(|(_, a), (_, b)| a.keys == b.keys) {
            let Keys { base, step, count } = of_head[0].1.keys;
            let decoded = [1, 2].map(|tensor| {
                let mut all = vec![0.0; count * self.dim];
                for (key, line) in all.chunks_exact_mut(self.dim).enumerate() {
                    inputs.numbers(tensor, base + key * step, line);
                }
                all
            });
            let answers: Vec<(usize, Answer)> =
                of_head.par_iter().map(|(at, row)| (*at, self.row(inputs, output, row, &decoded))).collect();
            for (at, answer) in answers {
                let places = want[at * width..].iter_mut().zip(&mut bound[at * width..]);
                places.zip(answer).for_each(|((want, bound), one)| (*want, *bound) = one);
            }
        }
    }
}

impl Reference for Scored {
    fn rows(&self, inputs: &dyn Inputs, output: usize, rows: Range<usize>, expected: Expected<'_>) {
        self.answer(inputs, output, &rows.collect::<Vec<_>>(), expected);
    }

    fn scattered(&self, inputs: &dyn Inputs, output: usize, _row_len: usize, rows: &[Range<usize>], expected: Expected<'_>) {
        self.answer(inputs, output, &rows.iter().cloned().flatten().collect::<Vec<_>>(), expected);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn windows_end_with_the_keys() {
        let of = |left, right| Numbers { left, right, softcap: 0.0 };
        let seen = |numbers: Numbers| [2, 3, 4].map(|place| numbers.seen(place, 5));
        assert_eq!(seen(of(Some(1), Some(0))), [1..3, 2..4, 3..5]);
        assert_eq!(seen(of(None, Some(0))), [0..3, 0..4, 0..5]);
        assert_eq!(seen(of(Some(3), None)), [0..5, 0..5, 1..5]);
        assert_eq!(of(None, Some(0)).seen(-1, 5), 0..0);
        assert_eq!(of(Some(0), Some(0)).seen(-3, 0), 0..0);
        assert_eq!((of(None, Some(0)).pairs(3, 5), of(None, None).pairs(3, 5), of(None, Some(0)).pairs(5, 3)), (12, 15, 6));
        assert_eq!([Numbers::passed(Some(5), 5), Numbers::passed(Some(4), 5), Numbers::passed(None, 5)], [-1, 4, -1]);
    }
}
