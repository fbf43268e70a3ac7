//! How far a correct result may be from the f64 reference: bounds from an error model, scaled by the data.
//!
//! For a contraction of `n` accumulation steps, with `S = sum |a||b|` computed beside the reference,
//!
//! ```text
//! bound = u_out |want| + 4 u_acc S max(sqrt n, beta n) + u_sum S + floor
//! ```
//!
//! `u` is a unit round-off (`u_sum` that of sums made with fewer bits before they are accumulated), `beta` is 0 for accumulation that rounds to nearest and 0.15 for one that truncates, and `floor`
//! is four times the smallest subnormal of the output. Worked, for f32 accumulation into f16 with `want = 1`:
//!
//! | K | S | u_out term | u_acc term | bound |
//! |---|---|---|---|---|
//! | 16 | 10 | 4.9e-4 | 9.5e-6 | 5.0e-4 |
//! | 16384 | 10000 | 4.9e-4 | 0.31 | 0.31 |
//!
//! A flat 1e-2 would be 20 times too loose for the first and 30 times too tight for the second.

use crate::dtype::DType;
use crate::format::FloatFormat;

/// Half the distance between 1 and the next number: the largest relative error of one rounding to nearest.
///
/// 0 for integers and truth values, which are exact.
pub fn unit_roundoff(dtype: DType) -> f64 {
    FloatFormat::of(dtype).map_or(0.0, |format| 0.5f64.powi(format.mantissa_bits as i32 + 1))
}

/// The smallest positive number of a float format; 0 for types without fractions.
pub fn smallest_positive(dtype: DType) -> f64 {
    FloatFormat::of(dtype).map_or(0.0, |format| format.decode(u64::from(format.signed) << format.padding))
}

/// The error model of one output: what its format and its accumulator lose.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct ErrorModel {
    /// Unit round-off of the output's format.
    pub u_out: f64,
    /// Unit round-off of the accumulator.
    pub u_acc: f64,
    /// 0 for accumulation that rounds to nearest, 0.15 for one that truncates.
    pub beta: f64,
    /// Largest error of the sums that tensor cores make with fewer bits than the accumulator has, as a share of the magnitudes
    /// that they sum up; 0 where they have none such.
    pub u_sum: f64,
    /// Absolute error that is always allowed: underflow.
    pub floor: f64,
}

impl ErrorModel {
    /// Accumulation in `acc` with rounding to nearest, result stored as `out`.
    pub fn nearest(out: DType, acc: DType) -> ErrorModel {
        ErrorModel {
            u_out: unit_roundoff(out),
            u_acc: unit_roundoff(acc),
            beta: 0.0,
            u_sum: 0.0,
            floor: 4.0 * smallest_positive(out),
        }
    }

    /// The same where the sums of up to 128 products are made with 14 bits before they are added to the accumulator, as tensor cores
    /// do with 8-bit floats: four additions of 32 products each, `4 * 2^-14 * sqrt 4`.
    pub fn with_coarse_sums(self) -> ErrorModel {
        ErrorModel { u_sum: 0.5f64.powi(11), ..self }
    }

    /// The bound of a sum of products: `magnitude` is the sum of their absolute values, `steps` how many additions deep it is.
    pub fn contraction(&self, want: f64, magnitude: f64, steps: usize) -> f64 {
        let n = steps.max(1) as f64;
        self.u_out * want.abs() + (4.0 * self.u_acc * n.sqrt().max(self.beta * n) + self.u_sum) * magnitude + self.floor
    }

    /// The bound of a function of one element: `ulps` of the computing format, amplified by the function's `condition` number.
    pub fn elementwise(&self, want: f64, ulps: f64, condition: f64) -> f64 {
        (self.u_out + ulps * self.u_acc * condition.max(1.0)) * want.abs() + self.floor
    }

    /// The bound of one softmax probability whose logit lies `distance` below the row's maximum.
    ///
    /// The floor is the smallest normal of the computing format, since implementations flush to zero.
    pub fn softmax(&self, want: f64, distance: f64) -> f64 {
        (self.u_out + 4.0 * self.u_acc * (2.0 + distance.abs())) * want.abs() + self.floor.max(f64::from(f32::MIN_POSITIVE))
    }

    /// The bound of a normalised element: row of `n` with the given mean and standard deviation, gain `gamma`, offset `beta`.
    ///
    /// What the statistics lose is relative to `want - beta`, before an offset that may cancel it is added.
    pub fn normalisation(&self, want: f64, row: RowMoments, gamma: f64, beta: f64) -> f64 {
        let n = (row.n.max(1) as f64).sqrt();
        let shift = 1.0 + if row.sd > 0.0 { row.mean.abs() / row.sd } else { 0.0 };
        self.u_out * want.abs()
            + 8.0 * self.u_acc * n * (want - beta).abs()
            + 8.0 * self.u_acc * gamma.abs() * shift
            + self.u_acc * beta.abs()
            + self.floor
    }
}

/// What the bound of a normalised row depends on.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct RowMoments {
    /// Elements in the row.
    pub n: usize,
    /// Their mean; 0 for a norm that does not subtract it.
    pub mean: f64,
    /// The divisor: standard deviation or root mean square.
    pub sd: f64,
}
