//! The reference of products: rows of a result that is made of matrices, each the product of two.
//!
//! A batch is made of as many matrices as it has entries, a grouped product of one a group. Which rows belong to which factors is asked
//! for with the inputs at hand, since a grouped product's rows are shared out by one of them.

use std::ops::Range;

use rayon::prelude::*;
use tessera_types::{DType, ErrorModel, Policy, unit_roundoff};

use crate::element::{storable, wrap};
use crate::matrix::{self, Matrix};
use crate::operator::{Expected, Inputs, Machine, Reference, RowIdentity};

/// Rows of the result that one product gives.
pub(super) struct Part {
    /// The first of them among all rows of the result; there are as many as the left factor has.
    pub(super) first: usize,
    /// The stored factors and the result.
    pub(super) matrices: [Matrix; 3],
}

impl Part {
    fn rows(&self) -> Range<usize> {
        self.first..self.first + self.matrices[0].rows
    }
}

/// The parts of a result, in the order of their rows.
pub(super) type Parts = Box<dyn Fn(&dyn Inputs) -> Vec<Part> + Send + Sync>;

/// What becomes of a sum: `alpha` times that, and `beta` times what the result's tensor held before.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Blend {
    pub(super) alpha: f64,
    pub(super) beta: f64,
}

impl Blend {
    /// The sum itself.
    pub(super) const NOTHING: Blend = Blend { alpha: 1.0, beta: 0.0 };

    /// Whether the old values are read.
    pub(super) fn reads(&self) -> bool {
        self.beta != 0.0
    }

    /// Whether both have so few bits that with small integers for numbers nothing is rounded.
    pub(super) fn is_short(&self) -> bool {
        [self.alpha, self.beta].iter().all(|number| (number * 16.0).fract() == 0.0 && number.abs() <= 8.0)
    }

    /// The result of a sum and an old value.
    fn of(&self, sum: f64, old: f64) -> f64 {
        self.alpha * sum + if self.reads() { self.beta * old } else { 0.0 }
    }
}

/// Products, a block of the contraction at a time so that decoded rows of the right factor stay in cache.
pub(super) struct Product {
    pub(super) parts: Parts,
    /// Rows of all parts, columns, and products that are added up in a sum.
    pub(super) sizes: [usize; 3],
    /// The type of the result.
    pub(super) result: DType,
    /// What becomes of the sums.
    pub(super) blend: Blend,
    /// What sums lose.
    pub(super) model: ErrorModel,
    /// What the product of two elements loses beside that, as a share of it: by rounding the elements first.
    pub(super) rounding: f64,
}

/// The tensor cores of a GPU sum up products of 8-bit floats with fewer bits than those of other formats.
pub(super) fn error_model([storage, result, acc]: [DType; 3], machine: Machine) -> ErrorModel {
    let model = ErrorModel::nearest(result, acc);
    match (machine, storage) {
        (Machine::Gpu(_), DType::F8E4M3 | DType::F8E5M2) => model.with_coarse_sums(),
        _ => model,
    }
}

/// TF32 operands are rounded from their 32-bit storage by the product itself. Where factors are taken apart, each low part is rounded, and the
/// product of two low parts is left out: three times a unit of a unit.
pub(super) fn rounding(policy: Policy) -> f64 {
    match (policy.parts(), policy.element()) {
        (Some(parts), _) => 3.0 * unit_roundoff(parts).powi(2),
        (None, DType::TF32) => 2.0 * unit_roundoff(DType::TF32),
        (None, _) => 0.0,
    }
}

impl Product {
    /// The largest error of a sum whose terms' magnitudes add up to `magnitude`.
    fn sum_bound(&self, sum: f64, magnitude: f64) -> f64 {
        self.model.contraction(sum, magnitude, self.sizes[2]) + self.rounding * magnitude
    }

    /// The largest error of what becomes of it and of an old value: the factor, the product with it and the last addition round once each.
    fn bound(&self, sum: f64, magnitude: f64, old: f64) -> f64 {
        if self.blend == Blend::NOTHING {
            return self.sum_bound(sum, magnitude);
        }
        let Blend { alpha, beta } = self.blend;
        let parts = (alpha * sum).abs() + if self.blend.reads() { (beta * old).abs() } else { 0.0 };
        let before = alpha.abs() * self.sum_bound(0.0, magnitude) + 3.0 * self.model.u_acc * parts;
        before + self.model.u_out * self.blend.of(sum, old).abs() + self.model.floor
    }

    /// What rows of the result held before, where that is read; zeros elsewhere.
    fn old(&self, inputs: &dyn Inputs, c: &Matrix, rows: &[usize], out: &mut [f64]) {
        if self.blend.reads() {
            out.chunks_mut(c.columns).zip(rows).for_each(|(out, &row)| c.read_row(inputs, row, 0, out));
        }
    }

    /// Rows in rising order; a right factor is decoded once for all of its own.
    fn answer(&self, inputs: &dyn Inputs, rows: &[usize], expected: Expected<'_>) {
        let n = self.sizes[1];
        let [mut sums, mut magnitudes, mut olds] = [(); 3].map(|()| vec![0.0; rows.len() * n]);
        for part in (self.parts)(inputs) {
            let [start, end] = [part.rows().start, part.rows().end].map(|row| rows.partition_point(|&own| own < row));
            if start == end {
                continue;
            }
            let own: Vec<usize> = rows[start..end].iter().map(|row| row - part.first).collect();
            let [a, b, c] = &part.matrices;
            let places = start * n..end * n;
            self.old(inputs, c, &own, &mut olds[places.clone()]);
            matrix::product(inputs, (a, &own, b), &mut sums[places.clone()], &mut magnitudes[places]);
        }
        match expected {
            Expected::Codes(codes) => {
                let [alpha, beta] = [self.blend.alpha, self.blend.beta].map(|number| number as i64);
                for ((code, sum), old) in codes.iter_mut().zip(&sums).zip(&olds) {
                    *code = wrap(self.result, alpha.wrapping_mul(*sum as i64).wrapping_add(beta.wrapping_mul(*old as i64)));
                }
            }
            Expected::Bounded { want, bound } => {
                let terms = sums.iter().zip(&magnitudes).zip(&olds);
                for ((want, bound), ((sum, magnitude), old)) in want.iter_mut().zip(bound).zip(terms) {
                    *want = storable(self.result, self.blend.of(*sum, *old));
                    *bound = self.bound(*sum, *magnitude, *old);
                }
            }
        }
    }
}

impl Reference for Product {
    fn rows(&self, inputs: &dyn Inputs, _output: usize, rows: Range<usize>, expected: Expected<'_>) {
        self.answer(inputs, &rows.collect::<Vec<_>>(), expected);
    }

    /// Freivalds' check: `C v = alpha A (B v) + beta C0 v` for a vector of random signs, `C0` being what C held before. An error `e` of a row contributes `sum e_j v_j`, which by
    /// Hoeffding's inequality exceeds `t |e|` with probability below `2 exp(-t^2 / 2)`: 3e-14 for `t = 8`. The norm of a row's
    /// allowed errors is at most `tau |a_i| |B|`, `tau` being the bound of a sum whose terms' magnitudes add up to one, and as much for each
    /// old value of one, times the norm of the row's.
    fn identity(
        &self,
        inputs: &dyn Inputs,
        _output: usize,
        v: &[f64],
        read: &(dyn Fn(Range<usize>, &mut [f64]) -> bool + Sync),
    ) -> Option<Vec<RowIdentity>> {
        if self.result.is_integer() {
            return None;
        }
        const DEVIATIONS: f64 = 8.0;
        let [all, n, _] = self.sizes;
        let [tau, tau_old] = [self.bound(1.0, 1.0, 0.0), self.bound(0.0, 0.0, 1.0)];
        let mut rows = Vec::with_capacity(all);
        for part in (self.parts)(inputs) {
            let [a, b, c] = &part.matrices;
            let (bv, squares) = b.times(inputs, v);
            let (abv, norms) = a.times(inputs, &bv);
            let norm_b = squares.iter().sum::<f64>().sqrt();
            let before = self.blend.reads().then(|| c.read_times(inputs, v));
            let side = |i: usize, got: f64| {
                let (old, old_squares) = before.as_ref().map_or((0.0, 0.0), |(sums, squares)| (sums[i], squares[i]));
                let bound = DEVIATIONS * (tau * norms[i].sqrt() * norm_b + tau_old * old_squares.sqrt());
                RowIdentity { got, want: self.blend.of(abv[i], old), bound }
            };
            if let Some((cv, _)) = inputs.matrices().and_then(|matrices| matrices.matrix_vector(c, v)) {
                rows.extend(cv.into_iter().enumerate().map(|(i, got)| side(i, got)));
                continue;
            }
            let sides: Option<Vec<RowIdentity>> = part
                .rows()
                .into_par_iter()
                .map(|place| {
                    let mut row = vec![0.0; n];
                    let read = read(place..place + 1, &mut row);
                    read.then(|| side(place - part.first, row.iter().zip(v).map(|(c, v)| c * v).sum()))
                })
                .collect();
            rows.extend(sides?);
        }
        Some(rows)
    }

    fn scattered(&self, inputs: &dyn Inputs, _output: usize, _row_len: usize, rows: &[Range<usize>], expected: Expected<'_>) {
        self.answer(inputs, &rows.iter().cloned().flatten().collect::<Vec<_>>(), expected);
    }
}
