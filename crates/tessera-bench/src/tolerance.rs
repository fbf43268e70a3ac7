//! How far two results of one computation may lie apart where nothing but their type is known.

use rayon::prelude::*;
use tessera_types::{DType, FloatFormat, Overflow};

use crate::case::Lane;

/// Two units in the last place, one of 8 bits and less; of wide types what sums of some thousand terms differ by. Relative to
/// an element, and, for sums that cancel, to the magnitudes [in line with it](Allowed).
pub fn relative_tolerance(dtype: DType) -> f64 {
    match dtype {
        DType::F64 => 1e-10,
        DType::F32 => 1e-4,
        DType::TF32 => 2e-3,
        DType::F16 => 2e-3,
        DType::BF16 => 1.6e-2,
        DType::F8E4M3 | DType::F6E2M3 => 0.125,
        DType::F8E5M2 | DType::F6E3M2 => 0.25,
        DType::F4E2M1 => 0.5,
        _ => 0.0,
    }
}

/// What a reference says, as results of a type can be: in the exact lane the nearest number, and no error.
pub(crate) fn as_stored(dtype: DType, lane: Lane, want: &mut [f64], bound: &mut [f64]) {
    if lane != Lane::Exact {
        return;
    }
    bound.fill(0.0);
    if let Some(format) = FloatFormat::of(dtype) {
        want.iter_mut().for_each(|want| *want = format.decode(format.encode_nearest(*want)));
    }
}

/// The least number that a type with infinities rounds to infinity; none for `f64`, which the reference has itself, and types that saturate.
pub(crate) fn beyond(dtype: DType) -> Option<f64> {
    let format = FloatFormat::of(dtype).filter(|format| format.overflow() == Overflow::Ieee && dtype != DType::F64)?;
    let below = format.decode(format.max_finite_code() - (1 << format.padding));
    Some(format.max_finite() + (format.max_finite() - below) / 2.0)
}

/// How far an element may lie from what is wanted, whatever it was computed from.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Allowance {
    /// `absolute + relative * |want|`.
    Given {
        /// As a part of what is wanted.
        relative: f64,
        /// Of everything.
        absolute: f64,
    },
    /// The same with the numbers that tests of kernels commonly have for a type: tight for elementwise work, and too tight for long sums that cancel, whose
    /// error goes with the terms. Types of 8 bits and less have none there, and keep their bounds.
    Table,
}

impl Allowance {
    /// The distance for a result of a type; none where its own bound stands.
    pub fn of(self, dtype: DType, want: f64) -> Option<f64> {
        let (relative, absolute) = match (self, dtype) {
            (Allowance::Given { relative, absolute }, _) => (relative, absolute),
            (Allowance::Table, DType::F64) => (1e-12, 1e-15),
            (Allowance::Table, DType::F32) => (1e-5, 1e-8),
            (Allowance::Table, DType::F16) => (1e-3, 1e-3),
            (Allowance::Table, DType::BF16) => (5e-3, 5e-3),
            (Allowance::Table, _) => return None,
        };
        Some(absolute + relative * want.abs())
    }
}

/// The median magnitude of finite numbers that are not zero; 0 where there are none.
fn median_magnitude(numbers: impl Iterator<Item = f64>) -> f64 {
    let mut magnitudes: Vec<f64> = numbers.map(f64::abs).filter(|number| number.is_finite() && *number != 0.0).collect();
    let middle = magnitudes.len() / 2;
    if magnitudes.is_empty() { 0.0 } else { *magnitudes.select_nth_unstable_by(middle, f64::total_cmp).1 }
}

/// The allowed distance of a result from what it should be, `atol + rtol * |want|`, where somebody has said it.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Tolerance {
    /// As a part of what is wanted.
    pub rtol: Option<f64>,
    /// Of everything.
    pub atol: Option<f64>,
}

impl Tolerance {
    /// Both, where either was given: what is not is 0.
    pub fn given(self) -> Option<(f64, f64)> {
        (self.rtol.is_some() || self.atol.is_some()).then(|| (self.rtol.unwrap_or(0.0), self.atol.unwrap_or(0.0)))
    }

    /// What results of a type and a shape may be off by. An array of zeros is right for zeros alone.
    pub fn allowed(self, dtype: DType, shape: &[usize], wanted: &[f64]) -> Allowed {
        let own = relative_tolerance(dtype);
        let absolute = match self.atol {
            Some(absolute) => Absolute::Same(absolute),
            None if own == 0.0 => Absolute::Same(0.0),
            None => Absolute::of_lines(own, shape, wanted),
        };
        Allowed { relative: self.rtol.unwrap_or(own), absolute }
    }
}

/// How far each element may lie from what is wanted: `atol + rtol * |want|`.
///
/// Where nobody has given `atol` it is the type's [relative tolerance](relative_tolerance) of the median magnitude in the element's row or
/// column, whichever is larger: a sum that cancels is off by what its terms were rounded by, and the terms of its neighbours in line are
/// of their size. So rows of a thousandth of the others' size are held to their own, and a few huge elements excuse nothing.
#[derive(Clone, Debug)]
pub struct Allowed {
    relative: f64,
    absolute: Absolute,
}

#[derive(Clone, Debug)]
enum Absolute {
    Same(f64),
    /// Of planes of rows: one number a row, and one a column of each plane.
    Lines {
        rows: usize,
        columns: usize,
        of_rows: Vec<f64>,
        of_columns: Vec<f64>,
    },
}

/// Fewer elements make no line: their median says nothing.
const LINE: usize = 16;

/// The last axes that make a line together, as its length; they are taken off.
fn line(axes: &mut &[usize]) -> usize {
    let mut length = 1;
    while let Some((last, before)) = axes.split_last().filter(|_| length < LINE) {
        (length, *axes) = (length * last, before);
    }
    length
}

impl Absolute {
    fn of_lines(own: f64, mut shape: &[usize], wanted: &[f64]) -> Absolute {
        let columns = line(&mut shape).max(1);
        let rows = line(&mut shape).max(1);
        let of_row = |row: &[f64]| own * median_magnitude(row.iter().copied());
        let of_rows = wanted.par_chunks(columns).map(of_row).collect();
        let planes = if rows < LINE { [].par_chunks(1) } else { wanted.par_chunks(rows * columns) };
        let of_columns = planes.flat_map_iter(|plane| {
            (0..columns).map(move |column| own * median_magnitude(plane[column..].iter().step_by(columns).copied()))
        });
        Absolute::Lines { rows, columns, of_rows, of_columns: of_columns.collect() }
    }
}

impl Allowed {
    /// As a part of what is wanted.
    pub fn relative(&self) -> f64 {
        self.relative
    }

    /// Of everything, at an element's place in row-major order.
    pub fn absolute(&self, place: usize) -> f64 {
        match &self.absolute {
            Absolute::Same(absolute) => *absolute,
            Absolute::Lines { rows, columns, of_rows, of_columns } => {
                let row = of_rows[place / columns];
                let column = of_columns.get(place / (rows * columns) * columns + place % columns);
                column.map_or(row, |column| row.max(*column))
            }
        }
    }

    /// For an element, by its place in row-major order and what is wanted there.
    pub fn at(&self, place: usize, wanted: f64) -> f64 {
        self.absolute(place) + self.relative * wanted.abs()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn allowed(shape: &[usize], wanted: &[f64]) -> Allowed {
        Tolerance::default().allowed(DType::F32, shape, wanted)
    }

    #[test]
    fn an_element_is_held_to_the_magnitudes_in_line_with_it() {
        let (rows, columns) = (64, 32);
        let wanted: Vec<f64> = (0..rows * columns).map(|at| if at < columns { 1000.0 } else { 1.0 }).collect();
        let by_line = allowed(&[rows, columns], &wanted);
        assert_eq!([by_line.absolute(3), by_line.absolute(columns + 3)], [0.1, 1e-4]);
        assert_eq!(by_line.at(3, 1000.0), 0.1 + 1000.0 * 1e-4);
        let turned: Vec<f64> = (0..rows * columns).map(|at| if at % columns == 5 { 1000.0 } else { 1.0 }).collect();
        let by_line = allowed(&[rows, columns], &turned);
        assert_eq!([by_line.absolute(5), by_line.absolute(6)], [0.1, 1e-4]);
    }

    #[test]
    fn planes_have_columns_of_their_own() {
        let wanted: Vec<f64> = (0..2 * 16 * 4 * 4).map(|at| if at < 256 { 1.0 } else { 8.0 }).collect();
        let by_line = allowed(&[2, 16, 4, 4], &wanted);
        assert_eq!([by_line.absolute(255), by_line.absolute(256)], [1e-4, 8e-4]);
    }

    #[test]
    fn a_few_huge_elements_excuse_nothing() {
        let mut wanted = vec![1.0; 100 * 100];
        (0..10).for_each(|at| wanted[at * 101] = 1e9);
        let by_line = allowed(&[100, 100], &wanted);
        assert!((0..wanted.len()).all(|place| by_line.absolute(place) == 1e-4));
    }

    #[test]
    fn what_is_short_is_one_line() {
        let wanted = [1.0, 2.0, 3.0, 4.0, f64::NAN, 0.0];
        for shape in [&[6][..], &[3, 2], &[1, 6, 1], &[2, 3, 1]] {
            assert_eq!(allowed(shape, &wanted).absolute(5), 1e-4 * 3.0, "{shape:?}");
        }
        assert_eq!(allowed(&[], &[2.0]).absolute(0), 1e-4 * 2.0);
        assert_eq!(allowed(&[3], &[0.0; 3]).at(1, 0.0), 0.0);
    }

    #[test]
    fn what_is_given_is_taken() {
        let given = Tolerance { rtol: Some(0.5), atol: Some(2.0) };
        assert_eq!(given.allowed(DType::F32, &[2], &[1e6, 1.0]).at(1, 1.0), 2.5);
        assert_eq!(Tolerance::default().allowed(DType::I32, &[2], &[1e6, 1.0]).at(1, 1.0), 0.0);
    }

    #[test]
    fn what_is_beyond_a_type_has_a_least_number() {
        assert_eq!(beyond(DType::F16), Some(65_520.0));
        assert_eq!(beyond(DType::F32), Some(f64::from(f32::MAX) + 2f64.powi(103)));
        assert_eq!([beyond(DType::F64), beyond(DType::F8E4M3), beyond(DType::I8)], [None; 3]);
    }
}
