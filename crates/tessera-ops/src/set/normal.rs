//! The normal distribution in 64 bits, for references.

use std::f64::consts::{FRAC_1_SQRT_2, PI};

/// `1 - erf(z)` for z >= 0, of which `power` is `e^(-z^2)`, within some ten units in the last place: where a difference from 1 loses little, by a series
/// whose terms are all positive; else by a continued fraction (Abramowitz and Stegun, 7.1.6 and 7.1.14).
fn complement(z: f64, power: f64) -> f64 {
    if z < 0.85 {
        let (mut term, mut sum, mut n) = (z, z, 0.0);
        while term > 1e-18 * sum {
            n += 1.0;
            term *= 2.0 * z * z / (2.0 * n + 1.0);
            sum += term;
        }
        return 1.0 - 2.0 / PI.sqrt() * power * sum;
    }
    let terms = if z < 1.5 { 300 } else { 100 };
    let tail = (1..=terms).rev().fold(0.0, |tail, k| f64::from(k) / 2.0 / (z + tail));
    power / PI.sqrt() / (z + tail)
}

/// How likely a normal number is below `t`, and how likely it is beyond `|t|` on one side.
pub(crate) fn below(t: f64) -> (f64, f64) {
    let tail = 0.5 * complement(t.abs() * FRAC_1_SQRT_2, bell(t));
    (if t < 0.0 { tail } else { 1.0 - tail }, tail)
}

/// `e^(-t^2 / 2)`, with what the square loses; nothing where that is infinite.
fn bell(t: f64) -> f64 {
    let square = t * t;
    let power = (-0.5 * square).exp();
    if power == 0.0 { 0.0 } else { power * (1.0 - 0.5 * t.mul_add(t, -square)) }
}

/// The density at `t`.
pub(crate) fn density(t: f64) -> f64 {
    bell(t) / (2.0 * PI).sqrt()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_are_those_of_tables() {
        // Abramowitz and Stegun, table 26.1 and 26.2, and mpmath.
        let known = [
            (0.0, 0.5),
            (-0.5, 0.308_537_538_725_986_9),
            (-1.0, 0.158_655_253_931_457_05),
            (-1.75, 0.040_059_156_863_817_09),
            (-2.0, 0.022_750_131_948_179_21),
            (-3.0, 0.001_349_898_031_630_094_5),
            (-8.0, 6.220_960_574_271_784e-16),
            (-30.0, 4.906_713_927_148_187e-198),
        ];
        for (t, wanted) in known {
            let (got, tail) = below(t);
            assert!((got / wanted - 1.0).abs() < 4e-15 && got == tail, "{t}: {got}");
            assert!((below(-t).0 - (1.0 - wanted)).abs() < 2e-16);
        }
        assert_eq!(density(0.0), 0.398_942_280_401_432_7);
        assert_eq!((below(f64::INFINITY), below(f64::NEG_INFINITY), density(f64::INFINITY)), ((1.0, 0.0), (0.0, 0.0), 0.0));
    }
}
