//! What a stored number can be: reference results are clamped as a saturating store clamps them.

use tessera_types::{DType, FloatFormat, IntFormat, Overflow};

/// The value that a correctly rounded store of `want` would be near to: formats that saturate hold nothing beyond their largest number.
pub(crate) fn storable(dtype: DType, want: f64) -> f64 {
    match FloatFormat::of(dtype) {
        Some(format) if format.overflow() == Overflow::Saturate => want.clamp(-format.max_finite(), format.max_finite()),
        _ => want,
    }
}

/// Half the distance between the smallest positive number and zero: what rounding a tiny result can lose.
pub(crate) fn underflow(dtype: DType) -> f64 {
    FloatFormat::of(dtype).map_or(0.0, |format| format.decode(1).abs() * 0.5)
}

/// A sum that keeps apart what it loses (Neumaier, 1974): what judges sums in 64 bits is righter than these. Infinities are the sum, or make it NaN.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct RunningSum {
    total: f64,
    lost: f64,
}

impl RunningSum {
    pub(crate) fn add(&mut self, term: f64) {
        let next = self.total + term;
        self.lost += if self.total.abs() >= term.abs() { (self.total - next) + term } else { (term - next) + self.total };
        self.total = next;
    }

    pub(crate) fn value(self) -> f64 {
        if self.total.is_finite() { self.total + self.lost } else { self.total }
    }
}

/// The sum of numbers.
pub(crate) fn sum(terms: impl IntoIterator<Item = f64>) -> f64 {
    let mut sum = RunningSum::default();
    terms.into_iter().for_each(|term| sum.add(term));
    sum.value()
}

/// The bits of an integer in a type, wrapped.
pub(crate) fn wrap(dtype: DType, value: i64) -> u64 {
    let bits = dtype.bits();
    debug_assert!(IntFormat::of(dtype).is_some());
    value as u64 & (u64::MAX >> (64 - bits))
}

#[cfg(test)]
mod tests {
    use super::sum;

    #[test]
    fn sums_lose_nothing_on_the_way() {
        assert_eq!(sum([1e16, 1.0, 1.0, -1e16]), 2.0);
        assert_eq!(sum([1.0, 1e100, 1.0, -1e100]), 2.0);
        let terms: Vec<f64> = (0..100_000).map(|i| 1.0 + f64::from(i % 7) * 2.0_f64.powi(-40)).collect();
        let exact = 100_000.0 + (0..100_000).map(|i| f64::from(i % 7)).sum::<f64>() * 2.0_f64.powi(-40);
        assert_eq!(sum(terms.iter().copied()), exact);
        assert_ne!(terms.iter().sum::<f64>(), exact);
        assert_eq!((sum([1.0, f64::INFINITY, 2.0]), sum([f64::NEG_INFINITY])), (f64::INFINITY, f64::NEG_INFINITY));
        assert!(sum([f64::INFINITY, 1.0, f64::NEG_INFINITY]).is_nan() && sum([1.0, f64::NAN]).is_nan());
    }
}
