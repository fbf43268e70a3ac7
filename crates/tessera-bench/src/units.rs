//! Numbers as people read them: three or four significant digits and a unit that fits.

use crate::stats::Interval;

/// `value` with `digits` significant digits; from a million on and below a ten-thousandth with an exponent.
pub fn significant(value: f64, digits: i32) -> String {
    if value == 0.0 || !value.is_finite() {
        return format!("{value}");
    }
    // The exponent after rounding to that many digits: 999.96 has four digits before the point at four digits, not three.
    let rounded = format!("{value:.*e}", (digits - 1).max(0) as usize);
    let magnitude: i32 = rounded.rsplit('e').next().and_then(|e| e.parse().ok()).unwrap_or(0);
    if !(-4..6).contains(&magnitude) {
        return rounded;
    }
    let decimals = (digits - 1 - magnitude).max(0) as usize;
    format!("{value:.decimals$}")
}

/// The same without zeros that say nothing: `0.5`, `16`, `1e300`.
pub fn plain(value: f64, digits: i32) -> String {
    let text = significant(value, digits);
    let (number, exponent) = text.split_at(text.find('e').unwrap_or(text.len()));
    let short = if number.contains('.') { number.trim_end_matches('0').trim_end_matches('.') } else { number };
    format!("{short}{exponent}")
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
    let (factor, prefix) = prefix(per_second);
    format!("{} {prefix}{unit}", significant(per_second / factor, 3))
}

fn prefix(per_second: f64) -> (f64, &'static str) {
    match per_second {
        x if x >= 999.5e15 => (1e18, "E"),
        x if x >= 9995e12 => (1e15, "P"),
        x if x >= 999.5e9 => (1e12, "T"),
        x if x >= 999.5e6 => (1e9, "G"),
        _ => (1e6, "M"),
    }
}

/// A rate without needless zeros, for axes: `50 GB/s`.
pub fn round_rate(per_second: f64, unit: &str) -> String {
    let (factor, prefix) = prefix(per_second);
    format!("{} {prefix}{unit}", plain(per_second / factor, 3))
}

/// Bytes: `4 KiB`, `96 MiB`.
pub fn bytes(count: f64) -> String {
    let (factor, unit) = match count {
        x if x < 1024.0 => (1.0, "B"),
        x if x < 1048576.0 => (1024.0, "KiB"),
        x if x < 1073741824.0 => (1048576.0, "MiB"),
        x if x < 1099511627776.0 => (1073741824.0, "GiB"),
        x if x < 1125899906842624.0 => (1099511627776.0, "TiB"),
        _ => (1125899906842624.0, "PiB"),
    };
    format!("{} {unit}", plain(count / factor, if count / factor >= 1000.0 { 4 } else { 3 }))
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
        assert_eq!(["4 KiB", "1023 KiB", "1 TiB"], [4096.0, 1047552.0, 1099511627776.0].map(bytes));
        assert_eq!(rate(2.5e15, "FLOP/s"), "2500 TFLOP/s");
        assert_eq!([significant(0.0, 3), significant(1e300, 2), significant(3e-9, 2)], ["0", "1.0e300", "3.0e-9"]);
        assert_eq!([0.5, 16.0, 0.25, 1e-106].map(|value| plain(value, 2)), ["0.5", "16", "0.25", "1e-106"]);
    }
}
