//! How well what candidates should take orders what they take.

/// How well one list orders another: Spearman's coefficient, equal numbers sharing their places (1 the same order, 0 none, -1 the
/// opposite). Nothing for fewer than two numbers, or where one list is constant.
pub fn rank_correlation(a: &[f64], b: &[f64]) -> Option<f64> {
    let (a, b) = (ranks(a), ranks(b));
    let mean = (a.len() as f64 - 1.0) / 2.0;
    let product = |x: &[f64], y: &[f64]| x.iter().zip(y).map(|(x, y)| (x - mean) * (y - mean)).sum::<f64>();
    let spread = (product(&a, &a) * product(&b, &b)).sqrt();
    (spread > 0.0).then(|| product(&a, &b) / spread)
}

/// The place of each number in their order, from 0 on; of equal ones the middle of theirs.
fn ranks(numbers: &[f64]) -> Vec<f64> {
    let place = |number: &f64| {
        let less = numbers.iter().filter(|other| *other < number).count();
        let same = numbers.iter().filter(|other| *other == number).count();
        less as f64 + (same as f64 - 1.0) / 2.0
    };
    numbers.iter().map(place).collect()
}

#[cfg(test)]
mod tests {
    use super::rank_correlation;

    #[test]
    fn an_order_is_compared_by_places() {
        assert_eq!(rank_correlation(&[1.0, 2.0, 3.0], &[10.0, 200.0, 3000.0]), Some(1.0));
        assert_eq!(rank_correlation(&[1.0, 2.0, 3.0], &[3.0, 2.0, 1.0]), Some(-1.0));
        // Two of three pairs of places agree: 1 - 6 * (0 + 1 + 1) / (3 * 8).
        assert_eq!(rank_correlation(&[1.0, 2.0, 3.0], &[1.0, 3.0, 2.0]), Some(0.5));
        assert_eq!(rank_correlation(&[1.0, 1.0, 2.0], &[5.0, 5.0, 9.0]), Some(1.0));
        assert_eq!(rank_correlation(&[1.0, 1.0], &[1.0, 2.0]), None);
        assert_eq!(rank_correlation(&[], &[]), None);
    }
}
