//! How far a correct result may be from the f64 reference: bounds from an error model, scaled by the data.
//!
//! For a contraction of `n` accumulation steps, with `S = sum |a||b|` computed beside the reference,
//!
//! ```text
//! bound = u_out |want| + 4 u_acc S max(sqrt n, beta n) + floor
//! ```
//!
//! `u` is a unit round-off, `beta` is 0 for accumulation that rounds to nearest and 0.15 for one that truncates, and `floor`
//! is four times the smallest subnormal of the output. Worked, for f32 accumulation into f16 with `want = 1`:
//!
//! | K | S | u_out term | u_acc term | bound |
//! |---|---|---|---|---|
//! | 16 | 10 | 4.9e-4 | 9.5e-6 | 5.0e-4 |
//! | 16384 | 10000 | 4.9e-4 | 0.31 | 0.31 |
//!
//! A flat 1e-2 would be 20 times too loose for the first and 30 times too tight for the second.

use tessera_types::DType;

/// Half the distance between 1 and the next number: the largest relative error of one rounding to nearest.
///
/// 0 for integers and truth values, which are exact.
pub const fn unit_roundoff(dtype: DType) -> f64 {
    match dtype {
        DType::F64 => 1.0 / (1u64 << 53) as f64,
        DType::F32 => 1.0 / (1u64 << 24) as f64,
        DType::TF32 | DType::F16 => 1.0 / 2048.0,
        DType::BF16 => 1.0 / 256.0,
        DType::F8E4M3 | DType::F6E2M3 => 1.0 / 16.0,
        DType::F8E5M2 | DType::F6E3M2 => 1.0 / 8.0,
        DType::F4E2M1 => 1.0 / 4.0,
        DType::E8M0 => 1.0 / 2.0,
        DType::I64
        | DType::I32
        | DType::I16
        | DType::I8
        | DType::I4
        | DType::U64
        | DType::U32
        | DType::U16
        | DType::U8
        | DType::B1 => 0.0,
    }
}

/// The smallest positive number of a float format; 0 for types without fractions.
pub fn smallest_positive(dtype: DType) -> f64 {
    let exponent = match dtype {
        DType::F64 => -1074,
        DType::F32 => -149,
        DType::TF32 => -136,
        DType::F16 => -24,
        DType::BF16 => -133,
        DType::F8E4M3 => -9,
        DType::F8E5M2 => -16,
        DType::F6E2M3 => -3,
        DType::F6E3M2 => -4,
        DType::F4E2M1 => -1,
        DType::E8M0 => -127,
        DType::I64
        | DType::I32
        | DType::I16
        | DType::I8
        | DType::I4
        | DType::U64
        | DType::U32
        | DType::U16
        | DType::U8
        | DType::B1 => return 0.0,
    };
    2f64.powi(exponent)
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
    /// Absolute error that is always allowed: underflow.
    pub floor: f64,
}

impl ErrorModel {
    /// Accumulation in `acc` with rounding to nearest, result stored as `out`.
    pub fn nearest(out: DType, acc: DType) -> ErrorModel {
        ErrorModel { u_out: unit_roundoff(out), u_acc: unit_roundoff(acc), beta: 0.0, floor: 4.0 * smallest_positive(out) }
    }

    /// The bound of a sum of products: `magnitude` is the sum of their absolute values, `steps` how many additions deep it is.
    pub fn contraction(&self, want: f64, magnitude: f64, steps: usize) -> f64 {
        let n = steps.max(1) as f64;
        self.u_out * want.abs() + 4.0 * self.u_acc * magnitude * n.sqrt().max(self.beta * n) + self.floor
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
    pub fn normalisation(&self, want: f64, row: RowMoments, gamma: f64, beta: f64) -> f64 {
        let n = (row.n.max(1) as f64).sqrt();
        let shift = 1.0 + if row.sd > 0.0 { row.mean.abs() / row.sd } else { 0.0 };
        (self.u_out + 8.0 * self.u_acc * n) * want.abs()
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::random::Random;

    fn normal(random: &mut Random) -> f64 {
        (-2.0 * (1.0 - random.unit()).ln()).sqrt() * (std::f64::consts::TAU * random.unit()).cos()
    }

    /// f32 accumulation stays inside, dropping a K tile of 16 falls outside, for K from 64 to 8192 and for positive data too.
    #[test]
    fn contraction_bound_separates_right_from_wrong() {
        let model = ErrorModel::nearest(DType::F32, DType::F32);
        let mut random = Random::new(1);
        for k in [64usize, 512, 4096, 8192] {
            for positive in [false, true] {
                let (mut worst, mut dropped_caught) = (0f64, 0);
                for _ in 0..40 {
                    let (mut acc, mut short, mut want, mut magnitude) = (0f32, 0f32, 0f64, 0f64);
                    for i in 0..k {
                        let draw = |random: &mut Random| {
                            let x = normal(random);
                            (if positive { x.abs() } else { x }) as f32
                        };
                        let (a, b) = (draw(&mut random), draw(&mut random));
                        acc = a.mul_add(b, acc);
                        if i < k - 16 {
                            short = a.mul_add(b, short);
                        }
                        want += f64::from(a) * f64::from(b);
                        magnitude += (f64::from(a) * f64::from(b)).abs();
                    }
                    let bound = model.contraction(want, magnitude, k);
                    worst = worst.max((f64::from(acc) - want).abs() / bound);
                    dropped_caught += usize::from((f64::from(short) - want).abs() > bound);
                }
                assert!(worst < 1.0, "k={k} positive={positive}: {worst}");
                assert!(dropped_caught >= 34, "k={k} positive={positive}: {dropped_caught}/40");
            }
        }
    }

    /// Two-pass variance passes for means up to 1e4; `E[x^2] - m^2` does not.
    #[test]
    fn normalisation_bound_rejects_cancelling_variance() {
        let model = ErrorModel::nearest(DType::F32, DType::F32);
        let mut random = Random::new(2);
        for (mean, caught) in [(0.0, false), (100.0, true), (1e4, true)] {
            let n = 1024usize;
            let xs: Vec<f32> = (0..n).map(|_| (mean + normal(&mut random)) as f32).collect();
            let m64 = xs.iter().map(|&x| f64::from(x)).sum::<f64>() / n as f64;
            let sd64 = (xs.iter().map(|&x| (f64::from(x) - m64).powi(2)).sum::<f64>() / n as f64).sqrt();
            let row = RowMoments { n, mean: m64, sd: sd64 };
            let chunked = |f: &dyn Fn(f32) -> f32| -> f32 {
                xs.chunks(32).map(|c| c.iter().map(|&x| f(x)).sum::<f32>()).sum::<f32>() / n as f32
            };
            let m = chunked(&|x| x);
            let two_pass = chunked(&|x| (x - m) * (x - m)).sqrt();
            let one_pass = (chunked(&|x| x * x) - m * m).max(0.0).sqrt();
            let worst = |sd: f32| {
                xs.iter().fold(0f64, |worst, &x| {
                    let want = (f64::from(x) - m64) / sd64;
                    let got = f64::from((x - m) / sd);
                    let ratio = (got - want).abs() / model.normalisation(want, row, 1.0, 0.0);
                    if ratio.is_nan() { f64::INFINITY } else { worst.max(ratio) }
                })
            };
            assert!(worst(two_pass) < 1.0, "mean {mean}: {}", worst(two_pass));
            assert_eq!(worst(one_pass) > 1.0, caught, "mean {mean}: {}", worst(one_pass));
        }
    }

    #[test]
    fn roundoff_is_half_an_ulp_of_one() {
        assert_eq!(unit_roundoff(DType::F32), f64::from(f32::EPSILON) / 2.0);
        assert_eq!(unit_roundoff(DType::F64), f64::EPSILON / 2.0);
        assert_eq!(smallest_positive(DType::F32), f64::from(f32::from_bits(1)));
        assert_eq!(smallest_positive(DType::F64), f64::from_bits(1));
    }
}
