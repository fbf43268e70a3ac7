//! The gradients of attention in f64, with what a correct implementation may lose of them.
//!
//! With `u` the round-off of sums and `r` that of storage, for a query i and a key j:
//!
//! | | is | is off by |
//! |---|---|---|
//! | `s` | `scale * q k` | `4 u sqrt(dim) scale sum abs(q k)` |
//! | `P` | `exp(s - lse)` | `P` times that of `s` and `4 u (2 + abs(s) + abs(lse))` |
//! | `dP`, `delta` | `dO v`, `dO o - dlse` | `4 u sqrt(dim)` times the sums of magnitudes |
//! | `dS` | `P (dP - delta)` | `P` times both, `dS` times what `P` is off by relatively |
//! | `dV` | sum of `P dO` | the magnitudes of its terms times `r`, and times what `P` is off by; `8 u sqrt(terms)` of them |
//! | `dK`, `dQ` | `scale` times the sum of `dS q`, of `dS k` | the same of `dS` |
//!
//! Factors of products are rounded to the storage type, so what is smaller than its least number is lost: of each term half of that.

use std::ops::Range;

use rayon::prelude::*;
use tessera_types::{DType, ErrorModel, unit_roundoff};

use super::attention::Extents;
use crate::element::{storable, underflow};
use crate::operator::{Expected, Inputs};

/// What is judged.
pub(super) struct Gradients {
    pub(super) extents: Extents,
    pub(super) scale: f64,
    pub(super) storage: DType,
    pub(super) acc: DType,
}

/// The tensors in their places.
const Q: usize = 0;
const K: usize = 1;
const V: usize = 2;
const O: usize = 3;
const LSE: usize = 4;
const D_O: usize = 5;
const D_LSE: usize = 6;

/// A pair's weight and the gradient of its score, with what both may be off by.
struct Pair {
    weight: f64,
    weight_error: f64,
    score: f64,
    score_error: f64,
}

/// What is known of a query.
struct Query<'a> {
    q: &'a [f64],
    cotangent: &'a [f64],
    delta: f64,
    /// The sum of the magnitudes of delta's terms.
    magnitude: f64,
    lse: f64,
}

/// A sum that grows term by term: values, and for each what it may be off by and the magnitudes of its terms.
struct Sum {
    value: Vec<f64>,
    error: Vec<f64>,
    magnitude: Vec<f64>,
    terms: usize,
}

impl Sum {
    fn new(dim: usize) -> Sum {
        Sum { value: vec![0.0; dim], error: vec![0.0; dim], magnitude: vec![0.0; dim], terms: 0 }
    }

    fn add(&mut self, factor: f64, error: f64, others: &[f64]) {
        self.terms += 1;
        for (at, other) in others.iter().enumerate() {
            self.value[at] += factor * other;
            self.error[at] += error * other.abs();
            self.magnitude[at] += (factor * other).abs();
        }
    }
}

fn dot(a: &[f64], b: &[f64]) -> (f64, f64) {
    a.iter().zip(b).fold((0.0, 0.0), |(sum, magnitude), (a, b)| (sum + a * b, magnitude + (a * b).abs()))
}

/// All of some heads' rows.
fn read(inputs: &dyn Inputs, tensor: usize, start: usize, count: usize) -> Vec<f64> {
    let mut all = vec![0.0; count];
    inputs.numbers(tensor, start, &mut all);
    all
}

impl Gradients {
    /// A pair, of which factors are rounded to the storage type.
    fn pair(&self, query: &Query<'_>, k: &[f64], v: &[f64]) -> Pair {
        let (u, steps) = (unit_roundoff(self.acc), 4.0 * (self.extents.dim as f64).sqrt());
        let (r, least) = (unit_roundoff(self.storage), underflow(self.storage));
        let ((s, s_magnitude), (dp, dp_magnitude)) = (dot(query.q, k), dot(query.cotangent, v));
        let s = self.scale * s;
        let weight = (s - query.lse).exp();
        let off = u * (steps * self.scale * s_magnitude + 4.0 * (2.0 + s.abs() + query.lse.abs()));
        let difference = dp - query.delta;
        let difference_error = u * (steps * (dp_magnitude + query.magnitude) + 2.0 * (dp.abs() + query.delta.abs()));
        let score = weight * difference;
        Pair {
            weight,
            weight_error: weight * (off + r) + least,
            score,
            score_error: weight * difference_error + score.abs() * (off + 2.0 * u + r) + least,
        }
    }

    /// The queries of a head, with their delta.
    fn queries<'a>(&self, [lse, along]: [&[f64]; 2], [q, o, cotangent]: [&'a [f64]; 3]) -> Vec<Query<'a>> {
        let dim = self.extents.dim;
        let row = |row: usize| {
            let [q, o, cotangent] = [q, o, cotangent].map(|all| &all[row * dim..(row + 1) * dim]);
            let (sum, magnitude) = dot(o, cotangent);
            Query { q, cotangent, delta: sum - along[row], magnitude: magnitude + along[row].abs(), lse: lse[row] }
        };
        (0..lse.len()).map(row).collect()
    }

    /// A sum's value and bound, multiplied by the scale where it is one of scores' gradients.
    fn finish(&self, sum: &Sum, scale: f64, want: &mut [f64], bound: &mut [f64]) {
        let u = unit_roundoff(self.acc);
        let model = ErrorModel { floor: underflow(self.storage), ..ErrorModel::nearest(self.storage, self.acc) };
        let order = 8.0 * u * (sum.terms as f64).sqrt();
        for (at, (want, bound)) in want.iter_mut().zip(bound).enumerate() {
            let value = scale * sum.value[at];
            *bound = scale * (sum.error[at] + order * sum.magnitude[at]) + (model.u_out + 2.0 * u) * value.abs() + model.floor;
            *want = storable(self.storage, value);
        }
    }

    /// Rows of dQ, in rising order.
    fn of_queries(&self, inputs: &dyn Inputs, rows: &[usize], want: &mut [f64], bound: &mut [f64]) {
        let Extents { heads, group, queries, keys, dim, .. } = self.extents;
        let mut start = 0;
        for head in rows.chunk_by(|a, b| a / queries == b / queries) {
            let plane = head[0] / queries;
            let base = (plane / heads * (heads / group) + plane % heads / group) * keys * dim;
            let [k, v] = [K, V].map(|tensor| read(inputs, tensor, base, keys * dim));
            let part = start * dim..(start + head.len()) * dim;
            start += head.len();
            let out = want[part.clone()].par_chunks_mut(dim).zip(bound[part].par_chunks_mut(dim)).zip(head);
            out.for_each(|((want, bound), &row)| {
                let [q, o, cotangent] = [Q, O, D_O].map(|tensor| read(inputs, tensor, row * dim, dim));
                let [lse, along] = [LSE, D_LSE].map(|tensor| read(inputs, tensor, row, 1));
                let query = &self.queries([&lse, &along], [&q, &o, &cotangent])[0];
                let mut sum = Sum::new(dim);
                let seen = self.extents.seen(row % queries);
                for (k, v) in k.chunks_exact(dim).zip(v.chunks_exact(dim)).take(seen) {
                    let pair = self.pair(query, k, v);
                    sum.add(pair.score, pair.score_error, k);
                }
                self.finish(&sum, self.scale, want, bound);
            });
        }
    }

    /// Rows of dK, or of dV, in rising order.
    fn of_keys(&self, inputs: &dyn Inputs, values: bool, rows: &[usize], want: &mut [f64], bound: &mut [f64]) {
        let Extents { heads, group, queries, keys, dim, .. } = self.extents;
        let mut start = 0;
        for head in rows.chunk_by(|a, b| a / keys == b / keys) {
            let plane = head[0] / keys;
            let shared = heads / group;
            let first = (plane / shared * heads + plane % shared * group) * queries;
            let count = group * queries;
            let [q, o, cotangent] = [Q, O, D_O].map(|tensor| read(inputs, tensor, first * dim, count * dim));
            let [lse, along] = [LSE, D_LSE].map(|tensor| read(inputs, tensor, first, count));
            let of_group = self.queries([&lse, &along], [&q, &o, &cotangent]);
            let part = start * dim..(start + head.len()) * dim;
            start += head.len();
            let out = want[part.clone()].par_chunks_mut(dim).zip(bound[part].par_chunks_mut(dim)).zip(head);
            out.for_each(|((want, bound), &row)| {
                let [k, v] = [K, V].map(|tensor| read(inputs, tensor, row * dim, dim));
                let mut sum = Sum::new(dim);
                for (at, query) in of_group.iter().enumerate() {
                    if row % keys >= self.extents.seen(at % queries) {
                        continue;
                    }
                    let pair = self.pair(query, &k, &v);
                    match values {
                        true => sum.add(pair.weight, pair.weight_error, query.cotangent),
                        false => sum.add(pair.score, pair.score_error, query.q),
                    }
                }
                self.finish(&sum, if values { 1.0 } else { self.scale }, want, bound);
            });
        }
    }

    fn answer(&self, inputs: &dyn Inputs, output: usize, rows: &[usize], expected: Expected<'_>) {
        let Expected::Bounded { want, bound } = expected else { return };
        match output {
            0 => self.of_queries(inputs, rows, want, bound),
            _ => self.of_keys(inputs, output == 2, rows, want, bound),
        }
    }
}

impl crate::operator::Reference for Gradients {
    fn rows(&self, inputs: &dyn Inputs, output: usize, rows: Range<usize>, expected: Expected<'_>) {
        self.answer(inputs, output, &rows.collect::<Vec<_>>(), expected);
    }

    fn scattered(&self, inputs: &dyn Inputs, output: usize, _row_len: usize, rows: &[Range<usize>], expected: Expected<'_>) {
        self.answer(inputs, output, &rows.iter().cloned().flatten().collect::<Vec<_>>(), expected);
    }
}
