//! What groups of figures differ by, beyond what figures of one group do.

use tessera_bench::stats::median;

/// The middle of some values.
pub(crate) fn centre(values: &[f64]) -> f64 {
    median(values)
}

/// Standard deviation, from the median absolute deviation: an outlier is somebody else's.
pub(crate) fn deviation(values: &[f64]) -> f64 {
    let middle = median(values);
    1.4826 * median(&values.iter().map(|value| (value - middle).abs()).collect::<Vec<_>>())
}

/// Standard deviation between groups in per cent: that of the groups' medians, less what it would be if all groups were one.
pub(crate) fn between(groups: &[Vec<f64>]) -> Option<f64> {
    let logs: Vec<Vec<f64>> =
        groups.iter().filter(|group| !group.is_empty()).map(|group| group.iter().map(|x| x.ln()).collect()).collect();
    if logs.len() < 3 {
        return None;
    }
    let medians: Vec<f64> = logs.iter().map(|group| median(group)).collect();
    let within: Vec<f64> = logs.iter().flat_map(|group| group.iter().map(|x| x - median(group))).collect();
    let members = logs.iter().map(Vec::len).sum::<usize>() as f64 / logs.len() as f64;
    // Residuals about a mean of few are too small by this factor.
    let noise = deviation(&within) * (members / (members - 1.0).max(0.5)).sqrt() / members.sqrt();
    Some((deviation(&medians).powi(2) - noise.powi(2)).max(0.0).sqrt() * 100.0)
}

/// Change of the time in per cent with one per cent more clock; none where the clock hardly moved.
pub(crate) fn slope(points: &[(f64, f64)]) -> Option<f64> {
    let n = points.len() as f64;
    let logs: Vec<(f64, f64)> = points.iter().map(|(mhz, ns)| (mhz.ln(), ns.ln())).collect();
    let mean = |pick: &dyn Fn(&(f64, f64)) -> f64| logs.iter().map(pick).sum::<f64>() / n;
    let (x, y) = (mean(&|p| p.0), mean(&|p| p.1));
    let (xx, xy) = logs.iter().fold((0.0, 0.0), |(xx, xy), p| (xx + (p.0 - x).powi(2), xy + (p.0 - x) * (p.1 - y)));
    (n > 8.0 && (xx / n).sqrt() > 1e-3).then(|| xy / xx)
}
