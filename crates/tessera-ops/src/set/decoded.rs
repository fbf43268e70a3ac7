//! The reference of products whose factors are stored with scales: `C = A x B^T`, where rows of both are decoded to f64 before they are multiplied.

use std::ops::Range;

use rayon::prelude::*;
use tessera_types::{DType, ErrorModel};

use crate::element::storable;
use crate::operator::{Expected, Inputs, Reference, RowIdentity};

/// Decodes a row of a factor.
pub(super) type Row = Box<dyn Fn(&dyn Inputs, usize, &mut [f64]) + Send + Sync>;

/// A product of decoded rows.
pub(super) struct Decoded {
    /// Rows of A, rows of B, and their columns.
    pub(super) sizes: [usize; 3],
    /// Rows of A and of B.
    pub(super) factors: [Row; 2],
    /// The type of the result.
    pub(super) result: DType,
    /// What sums lose.
    pub(super) model: ErrorModel,
    /// Roundings of sums in the accumulator's type beside those of the additions: by scales.
    pub(super) roundings: f64,
}

impl Decoded {
    fn row(&self, inputs: &dyn Inputs, factor: usize, row: usize) -> Vec<f64> {
        let mut numbers = vec![0.0; self.sizes[2]];
        self.factors[factor](inputs, row, &mut numbers);
        numbers
    }

    /// The largest error of a sum whose terms' magnitudes add up to `magnitude`.
    fn bound(&self, want: f64, magnitude: f64) -> f64 {
        self.model.contraction(want, magnitude, self.sizes[2]) + self.roundings * self.model.u_acc * magnitude
    }

    /// Some rows; each row of B is decoded once for all of them.
    fn answer(&self, inputs: &dyn Inputs, rows: &[usize], expected: Expected<'_>) {
        let Expected::Bounded { want, bound } = expected else { return };
        let [_, n, _] = self.sizes;
        let left: Vec<Vec<f64>> = rows.par_iter().map(|&row| self.row(inputs, 0, row)).collect();
        let column = |j: usize| {
            let right = self.row(inputs, 1, j);
            let sums = left.iter().map(|left| {
                left.iter().zip(&right).fold((0.0, 0.0), |(sum, magnitude), (a, b)| (sum + a * b, magnitude + (a * b).abs()))
            });
            sums.collect::<Vec<(f64, f64)>>()
        };
        let columns: Vec<Vec<(f64, f64)>> = (0..n).into_par_iter().map(column).collect();
        for (place, (want, bound)) in want.iter_mut().zip(bound).enumerate() {
            let (sum, magnitude) = columns[place % n][place / n];
            *want = storable(self.result, sum);
            *bound = self.bound(sum, magnitude);
        }
    }
}

impl Reference for Decoded {
    fn rows(&self, inputs: &dyn Inputs, _output: usize, rows: Range<usize>, expected: Expected<'_>) {
        self.answer(inputs, &rows.collect::<Vec<_>>(), expected);
    }

    /// Freivalds' check, as `gemm` does it: `C v = A (B^T v)` for random signs `v`, within eight deviations of what rounding may do.
    fn identity(
        &self,
        inputs: &dyn Inputs,
        _output: usize,
        v: &[f64],
        read: &(dyn Fn(Range<usize>, &mut [f64]) -> bool + Sync),
    ) -> Option<Vec<RowIdentity>> {
        const DEVIATIONS: f64 = 8.0;
        let [m, n, k] = self.sizes;
        let nothing = || (vec![0.0; k], 0.0);
        let add = |(mut sums, mut squares): (Vec<f64>, f64), j: usize| {
            for (sum, b) in sums.iter_mut().zip(self.row(inputs, 1, j)) {
                *sum += b * v[j];
                squares += b * b;
            }
            (sums, squares)
        };
        let join = |(mut left, squares): (Vec<f64>, f64), (right, more): (Vec<f64>, f64)| {
            left.iter_mut().zip(right).for_each(|(a, b)| *a += b);
            (left, squares + more)
        };
        let (bv, squares) = (0..n).into_par_iter().fold(nothing, add).reduce(nothing, join);
        let tau = self.bound(1.0, 1.0);
        let side = |i: usize| {
            let (left, mut row) = (self.row(inputs, 0, i), vec![0.0; n]);
            let norm = left.iter().map(|a| a * a).sum::<f64>().sqrt();
            read(i..i + 1, &mut row).then(|| RowIdentity {
                got: row.iter().zip(v).map(|(c, v)| c * v).sum(),
                want: left.iter().zip(&bv).map(|(a, b)| a * b).sum(),
                bound: DEVIATIONS * tau * norm * squares.sqrt(),
            })
        };
        (0..m).into_par_iter().map(side).collect()
    }

    fn scattered(&self, inputs: &dyn Inputs, _output: usize, _row_len: usize, rows: &[Range<usize>], expected: Expected<'_>) {
        self.answer(inputs, &rows.iter().cloned().flatten().collect::<Vec<_>>(), expected);
    }
}
