//! Matrices in stored tensors, and the sums over them that a product's reference needs.

use rayon::prelude::*;

use crate::operator::Inputs;

/// `op(X)`: a matrix in a tensor, which stores it row by row, or column by column.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Matrix {
    /// The tensor's position in the plan.
    pub tensor: usize,
    /// Where the matrix starts in it, in elements.
    pub base: usize,
    /// Rows of `op(X)`.
    pub rows: usize,
    /// Columns of `op(X)`.
    pub columns: usize,
    /// Columns of `op(X)` are what lies together.
    pub transposed: bool,
}

impl Matrix {
    /// Distance between neighbours in a column and in a row, in elements.
    pub fn strides(&self) -> (u64, u64) {
        if self.transposed { (1, self.rows as u64) } else { (self.columns as u64, 1) }
    }

    /// Elements of row `row` from column `first` on.
    pub(crate) fn read_row(&self, inputs: &dyn Inputs, row: usize, first: usize, out: &mut [f64]) {
        if self.transposed {
            for (step, value) in out.iter_mut().enumerate() {
                inputs.numbers(self.tensor, self.base + (first + step) * self.rows + row, std::slice::from_mut(value));
            }
        } else {
            inputs.numbers(self.tensor, self.base + row * self.columns + first, out);
        }
    }

    /// Rows `first..last`, one after another.
    fn read_rows(&self, inputs: &dyn Inputs, first: usize, last: usize) -> Vec<f64> {
        let depth = last - first;
        let mut rows = vec![0.0; depth * self.columns];
        if self.transposed {
            let mut columns = vec![0.0; depth * self.columns];
            let read = |(j, column): (usize, &mut [f64])| inputs.numbers(self.tensor, self.base + j * self.rows + first, column);
            columns.par_chunks_mut(depth).enumerate().for_each(read);
            let turn =
                |(step, row): (usize, &mut [f64])| row.iter_mut().enumerate().for_each(|(j, x)| *x = columns[j * depth + step]);
            rows.par_chunks_mut(self.columns).enumerate().for_each(turn);
        } else {
            let read = |(step, row): (usize, &mut [f64])| self.read_row(inputs, first + step, 0, row);
            rows.par_chunks_mut(self.columns).enumerate().for_each(read);
        }
        rows
    }

    /// The matrix times `v`, and the squares of each of its rows added up.
    pub(crate) fn times(&self, inputs: &dyn Inputs, v: &[f64]) -> (Vec<f64>, Vec<f64>) {
        match inputs.matrices().and_then(|matrices| matrices.matrix_vector(self, v)) {
            Some(answer) => answer,
            None => self.read_times(inputs, v),
        }
    }

    /// The same from the elements that inputs hand out: what a tensor that is written held before.
    pub(crate) fn read_times(&self, inputs: &dyn Inputs, v: &[f64]) -> (Vec<f64>, Vec<f64>) {
        if !self.transposed {
            let row = |i: usize| {
                let mut row = vec![0.0; self.columns];
                self.read_row(inputs, i, 0, &mut row);
                (row.iter().zip(v).map(|(x, v)| x * v).sum::<f64>(), row.iter().map(|x| x * x).sum::<f64>())
            };
            return (0..self.rows).into_par_iter().map(row).unzip();
        }
        // What lies together are columns: each adds to every sum.
        let nothing = || (vec![0.0; self.rows], vec![0.0; self.rows]);
        let add = |(mut sums, mut squares): (Vec<f64>, Vec<f64>), j: usize| {
            let mut column = vec![0.0; self.rows];
            inputs.numbers(self.tensor, self.base + j * self.rows, &mut column);
            for ((sum, square), x) in sums.iter_mut().zip(&mut squares).zip(&column) {
                *sum += x * v[j];
                *square += x * x;
            }
            (sums, squares)
        };
        let join = |mut left: (Vec<f64>, Vec<f64>), right: (Vec<f64>, Vec<f64>)| {
            left.0.iter_mut().zip(right.0).for_each(|(a, b)| *a += b);
            left.1.iter_mut().zip(right.1).for_each(|(a, b)| *a += b);
            left
        };
        (0..self.columns).into_par_iter().fold(nothing, add).reduce(nothing, join)
    }
}

/// Sums over matrices by whoever holds the tensors, as these are now, where that is faster than to read them here; `None` where it cannot.
pub trait Matrices {
    /// A matrix times `v`, and the squares of each of its rows added up.
    fn matrix_vector(&self, matrix: &Matrix, v: &[f64]) -> Option<(Vec<f64>, Vec<f64>)>;

    /// Rows of `left` times `right`: the sums of products and of their magnitudes, row after row. False where it cannot.
    fn product(&self, left: &Matrix, rows: &[usize], right: &Matrix, sums: &mut [f64], magnitudes: &mut [f64]) -> bool;
}

/// The right matrix is walked in blocks of so many rows.
const DEPTH_BLOCK: usize = 128;

/// Rows of `left` times `right`: the sums of products and of their magnitudes, row after row.
pub(crate) fn product(
    inputs: &dyn Inputs,
    (left, rows, right): (&Matrix, &[usize], &Matrix),
    sums: &mut [f64],
    magnitudes: &mut [f64],
) {
    if inputs.matrices().is_some_and(|matrices| matrices.product(left, rows, right, sums, magnitudes)) {
        return;
    }
    let columns = right.columns;
    for first in (0..right.rows).step_by(DEPTH_BLOCK) {
        let last = (first + DEPTH_BLOCK).min(right.rows);
        let b = right.read_rows(inputs, first, last);
        sums.par_chunks_mut(columns).zip(magnitudes.par_chunks_mut(columns)).enumerate().for_each(|(r, (sum, magnitude))| {
            let mut a = vec![0.0; last - first];
            left.read_row(inputs, rows[r], first, &mut a);
            for (a, b) in a.iter().zip(b.chunks_exact(columns)) {
                for ((sum, magnitude), b) in sum.iter_mut().zip(magnitude.iter_mut()).zip(b) {
                    let product = a * b;
                    *sum += product;
                    *magnitude += product.abs();
                }
            }
        });
    }
}
