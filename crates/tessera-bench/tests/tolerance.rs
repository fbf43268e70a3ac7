//! The error model's bounds hold for right results and reject wrong ones.

use tessera_bench::Random;
use tessera_types::{DType, ErrorModel, RowMoments, smallest_positive, unit_roundoff};

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

/// An offset that takes away what the gain made leaves the error of the statistics as it was.
#[test]
fn normalisation_bound_allows_an_offset_that_cancels() {
    let model = ErrorModel::nearest(DType::F32, DType::F32);
    let mut random = Random::new(3);
    let n = 4096usize;
    let mut worst = 0f64;
    for _ in 0..50 {
        let xs: Vec<f32> = (0..n).map(|_| normal(&mut random) as f32).collect();
        let m64 = xs.iter().map(|&x| f64::from(x)).sum::<f64>() / n as f64;
        let sd64 = (xs.iter().map(|&x| (f64::from(x) - m64).powi(2)).sum::<f64>() / n as f64).sqrt();
        let row = RowMoments { n, mean: m64, sd: sd64 };
        let m = xs.iter().sum::<f32>() / n as f32;
        let sd = (xs.iter().map(|&x| (x - m) * (x - m)).sum::<f32>() / n as f32).sqrt();
        for &x in &xs {
            let normalised = (f64::from(x) - m64) / sd64;
            let beta = -normalised as f32;
            let want = normalised + f64::from(beta);
            let got = f64::from((x - m) / sd + beta);
            worst = worst.max((got - want).abs() / model.normalisation(want, row, 1.0, f64::from(beta)));
        }
    }
    assert!(worst < 1.0, "{worst}");
}

#[test]
fn roundoff_is_half_an_ulp_of_one() {
    assert_eq!(unit_roundoff(DType::F32), f64::from(f32::EPSILON) / 2.0);
    assert_eq!(unit_roundoff(DType::F64), f64::EPSILON / 2.0);
    assert_eq!(smallest_positive(DType::F32), f64::from(f32::from_bits(1)));
    assert_eq!(smallest_positive(DType::F64), f64::from_bits(1));
}
