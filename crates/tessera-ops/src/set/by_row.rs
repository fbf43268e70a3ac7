//! References that answer a row at a time, of one output or of several.

use std::ops::Range;

use rayon::prelude::*;

use crate::operator::{Expected, Inputs, Reference};

/// Where a row's answer goes.
pub(crate) enum Line<'a> {
    /// The bits of each element.
    Codes(&'a mut [u64]),
    /// The f64 result, and the largest error.
    Bounded(&'a mut [f64], &'a mut [f64]),
}

/// A reference by what one row of an output is; outputs have these elements in a row.
pub(crate) struct ByRow<F> {
    pub(crate) row_lens: Vec<usize>,
    pub(crate) row: F,
}

impl<F: Fn(&dyn Inputs, usize, usize, Line<'_>) + Sync + Send> Reference for ByRow<F> {
    fn rows(&self, inputs: &dyn Inputs, output: usize, rows: Range<usize>, expected: Expected<'_>) {
        let len = self.row_lens[output].max(1);
        match expected {
            Expected::Codes(codes) => codes.par_chunks_mut(len).zip(rows).for_each(|(codes, row)| {
                (self.row)(inputs, output, row, Line::Codes(codes));
            }),
            Expected::Bounded { want, bound } => {
                want.par_chunks_mut(len).zip(bound.par_chunks_mut(len)).zip(rows).for_each(|((want, bound), row)| {
                    (self.row)(inputs, output, row, Line::Bounded(want, bound));
                });
            }
        }
    }
}

/// Elements of a tensor from a place on.
pub(crate) fn numbers(inputs: &dyn Inputs, tensor: usize, start: usize, count: usize) -> Vec<f64> {
    let mut numbers = vec![0.0; count];
    inputs.numbers(tensor, start, &mut numbers);
    numbers
}

/// One of them, an integer.
pub(crate) fn integer(inputs: &dyn Inputs, tensor: usize, place: usize) -> usize {
    numbers(inputs, tensor, place, 1)[0] as usize
}
