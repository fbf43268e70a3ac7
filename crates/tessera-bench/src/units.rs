//! Numbers as people read them: three or four significant digits and a unit that fits.

use crate::stats::Interval;

/// `value` with `digits` significant digits, no exponent, no needless zeros before the point.
pub fn significant(value: f64, digits: i32) -> String {
    if value == 0.0 || !value.is_finite() {
        return format!("{value}");
    }
    // The exponent after rounding to that many digits: 999.96 has four digits before the point at four digits, not three.
    let rounded = format!("{value:.*e}", (digits - 1).max(0) as usize);
    let magnitude: i32 = rounded.rsplit('e').next().and_then(|e| e.parse().ok()).unwrap_or(0);
    let decimals = (digits - 1 - magnitude).max(0) as usize;
    format!("{value:.decimals$}")
}

/// A time: `812 ns`, `4.20 us`, `13.1 ms`, `2.05 s`.
pub fn time(ns: f64) -> String {
    let (factor, unit) = time_unit(ns);
    format!("{} {unit}", significant(ns / factor, 3))
}

fn time_unit(ns: f64) -> (f64, &'static str) {
    match ns {
        ns if ns < 999.5 => (1.0, "ns"),
        ns if ns < 999.5e3 => (1e3, "us"),
        ns if ns < 999.5e6 => (1e6, "ms"),
        _ => (1e9, "s"),
    }
}

/// An interval of times in one unit: `4.17 - 4.26 us`.
pub fn time_interval(interval: Interval) -> String {
    let (factor, unit) = time_unit(interval.hi);
    // Enough digits to tell the ends apart, at least three.
    let relative = (interval.hi - interval.lo) / interval.hi;
    let digits = if relative > 0.0 { (2 - relative.log10().floor() as i32).clamp(3, 5) } else { 3 };
    format!("{} - {} {unit}", significant(interval.lo / factor, digits), significant(interval.hi / factor, digits))
}

/// A rate: `51.2 GB/s`, `1.95 TFLOP/s`.
pub fn rate(per_second: f64, unit: &str) -> String {
    let (factor, prefix) = match per_second {
        x if x >= 999.5e9 => (1e12, "T"),
        x if x >= 999.5e6 => (1e9, "G"),
        _ => (1e6, "M"),
    };
    format!("{} {prefix}{unit}", significant(per_second / factor, 3))
}

/// A rate without needless zeros, for axes: `50 GB/s`.
pub fn round_rate(per_second: f64, unit: &str) -> String {
    let text = rate(per_second, unit);
    match text.split_once(' ') {
        Some((number, unit)) if number.contains('.') => format!("{} {unit}", number.trim_end_matches('0').trim_end_matches('.')),
        Some(_) | None => text,
    }
}

/// Bytes: `4 KiB`, `96 MiB`.
pub fn bytes(count: f64) -> String {
    let (factor, unit) = match count {
        x if x < 1024.0 => (1.0, "B"),
        x if x < 1048576.0 => (1024.0, "KiB"),
        x if x < 1073741824.0 => (1048576.0, "MiB"),
        _ => (1073741824.0, "GiB"),
    };
    let text = significant(count / factor, 3);
    let short = if text.contains('.') { text.trim_end_matches('0').trim_end_matches('.') } else { &text };
    format!("{short} {unit}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_fit_their_unit() {
        assert_eq!([time(812.4), time(4200.0), time(999_600.0), time(2.05e9)], ["812 ns", "4.20 us", "1.00 ms", "2.05 s"]);
        assert_eq!(time_interval(Interval { lo: 4171.0, hi: 4262.0 }), "4.171 - 4.262 us");
        assert_eq!(time_interval(Interval { lo: 100.0, hi: 200.0 }), "100 - 200 ns");
        assert_eq!(rate(51.23e9, "B/s"), "51.2 GB/s");
        assert_eq!(rate(1.95e12, "FLOP/s"), "1.95 TFLOP/s");
        assert_eq!(
            [round_rate(50e9, "B/s"), round_rate(1e12, "B/s"), round_rate(100e9, "B/s")],
            ["50 GB/s", "1 TB/s", "100 GB/s"]
        );
        assert_eq!(bytes(4096.0), "4 KiB");
        assert_eq!(significant(0.0, 3), "0");
    }
}
