//! Formats of C's `printf`: taken apart, and applied to one number.
//!
//! A format is texts and conversions, `%[flags][width][.precision][length]letter`. What a kernel prints is formatted by the
//! CPU executor and the emulator here, and by the driver's own `printf` on a GPU; the three write the same.
//!
//! ```
//! use tessera_types::printf::{Number, Part, parts};
//! let format = parts("x=%5.2f%%\n");
//! let [Part::Text(before), Part::Value(conversion), Part::Text(after)] = &format[..] else { panic!() };
//! assert_eq!((&before[..], &after[..]), ("x=", "%\n"));
//! assert_eq!(conversion.show(Number::Real(1.5)), " 1.50");
//! ```

use std::fmt::Write;

/// A piece of a format.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Part {
    /// Text as it is printed.
    Text(String),
    /// A value.
    Value(Conversion),
}

/// How a value is printed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Conversion {
    /// Some of `-+ #0`.
    pub flags: String,
    /// The least number of characters.
    pub width: usize,
    /// Digits: behind the point, significant ones for `g`, at least for integers.
    pub precision: Option<usize>,
    /// `l`, `ll`, `h`, ...: the width of what is passed in C.
    pub length: String,
    /// `d`, `f`, ...
    pub letter: char,
}

/// A number to print.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Number {
    /// An integer.
    Signed(i64),
    /// An integer without sign.
    Unsigned(u64),
    /// A floating-point number.
    Real(f64),
}

/// A format's pieces. A conversion without a letter is text.
pub fn parts(format: &str) -> Vec<Part> {
    let (mut parts, mut text) = (Vec::new(), String::new());
    let mut chars = format.chars().peekable();
    while let Some(c) = chars.next() {
        if c != '%' {
            text.push(c);
            continue;
        }
        if chars.next_if_eq(&'%').is_some() {
            text.push('%');
            continue;
        }
        let mut take = |set: &str| {
            let mut taken = String::new();
            while let Some(c) = chars.next_if(|c| set.contains(*c)) {
                taken.push(c);
            }
            taken
        };
        let flags = take("-+ #0");
        let width = take("0123456789").parse().unwrap_or(0);
        let precision = (!take(".").is_empty()).then(|| take("0123456789").parse().unwrap_or(0));
        let length = take("hljztL");
        match chars.next() {
            Some(letter) => {
                if !text.is_empty() {
                    parts.push(Part::Text(std::mem::take(&mut text)));
                }
                parts.push(Part::Value(Conversion { flags, width, precision, length, letter }));
            }
            None => text.push('%'),
        }
    }
    if !text.is_empty() {
        parts.push(Part::Text(text));
    }
    parts
}

impl Conversion {
    /// Whether it prints floating-point numbers.
    pub fn is_real(&self) -> bool {
        matches!(self.letter, 'f' | 'F' | 'e' | 'E' | 'g' | 'G' | 'a' | 'A')
    }

    /// Whether it prints an integer without sign.
    pub fn is_unsigned(&self) -> bool {
        matches!(self.letter, 'u' | 'x' | 'X' | 'o' | 'p' | 'c')
    }

    /// As it is written, with another length: `%5.2f`, `%-4lld`.
    pub fn written(&self, length: &str) -> String {
        let mut out = format!("%{}", self.flags);
        if self.width > 0 {
            let _ = write!(out, "{}", self.width);
        }
        if let Some(precision) = self.precision {
            let _ = write!(out, ".{precision}");
        }
        format!("{out}{length}{}", self.letter)
    }

    /// A number in these digits. Integers are printed by the letters of integers, reals by those of reals; the other kind is converted.
    pub fn show(&self, number: Number) -> String {
        let real = match number {
            Number::Signed(value) => value as f64,
            Number::Unsigned(value) => value as f64,
            Number::Real(value) => value,
        };
        let bits = match number {
            Number::Signed(value) => value as u64,
            Number::Unsigned(value) => value,
            Number::Real(value) => value as i64 as u64,
        };
        let negative = if self.is_real() { real.is_sign_negative() && !real.is_nan() } else { (bits as i64) < 0 };
        let signed = self.is_real() || !self.is_unsigned();
        let alternative = self.flags.contains('#');
        let digits = match self.letter {
            _ if self.is_real() && real.is_nan() => "nan".to_owned(),
            _ if self.is_real() && real.is_infinite() => "inf".to_owned(),
            'f' | 'F' => format!("{:.*}", self.precision.unwrap_or(6), real.abs()),
            'e' | 'E' => scientific(real.abs(), self.precision.unwrap_or(6)),
            'g' | 'G' => shortest(real.abs(), self.precision.unwrap_or(6).max(1), alternative),
            'a' | 'A' => hexadecimal(real.abs(), self.precision),
            'c' => char::from(bits as u8).to_string(),
            'p' => format!("{bits:x}"),
            'x' | 'X' => self.at_least(format!("{bits:x}")),
            'o' => self.at_least(format!("{bits:o}")),
            'u' => self.at_least(bits.to_string()),
            _ => self.at_least((bits as i64).unsigned_abs().to_string()),
        };
        let mut sign = String::new();
        if signed {
            sign.push_str(match (negative, self.flags.contains('+'), self.flags.contains(' ')) {
                (true, _, _) => "-",
                (_, true, _) => "+",
                (_, _, true) => " ",
                _ => "",
            });
        }
        match self.letter {
            'p' => sign.push_str("0x"),
            'x' | 'X' if alternative && bits != 0 => sign.push_str("0x"),
            'a' | 'A' if real.is_finite() => sign.push_str("0x"),
            'o' if alternative && !digits.starts_with('0') => sign.push('0'),
            _ => {}
        }
        let missing = self.width.min(1 << 12).saturating_sub(sign.len() + digits.chars().count());
        let zeros = self.flags.contains('0') && if self.is_real() { real.is_finite() } else { self.precision.is_none() };
        let text = match (self.flags.contains('-'), zeros) {
            (true, _) => format!("{sign}{digits}{}", " ".repeat(missing)),
            (false, true) => format!("{sign}{}{digits}", "0".repeat(missing)),
            (false, false) => format!("{}{sign}{digits}", " ".repeat(missing)),
        };
        if self.letter.is_ascii_uppercase() { text.to_uppercase() } else { text }
    }

    /// An integer's digits, with zeros up to the precision.
    fn at_least(&self, digits: String) -> String {
        match self.precision {
            Some(0) if digits == "0" => String::new(),
            Some(precision) => format!("{digits:0>width$}", width = precision.min(1 << 12)),
            None => digits,
        }
    }
}

/// C writes at least two digits of exponent, and its sign.
fn scientific(value: f64, precision: usize) -> String {
    let text = format!("{value:.precision$e}");
    let (mantissa, exponent) = text.split_once('e').unwrap_or((&text, "0"));
    let exponent: i32 = exponent.parse().unwrap_or(0);
    format!("{mantissa}e{}{:02}", if exponent < 0 { '-' } else { '+' }, exponent.abs())
}

/// `g`: with an exponent where the number is small or beyond its digits, and no zeros at the end unless they are asked for.
fn shortest(value: f64, precision: usize, zeros: bool) -> String {
    let long = scientific(value, precision - 1);
    let (mantissa, exponent) = long.split_once('e').unwrap_or((&long, "+00"));
    let at: i32 = exponent.parse().unwrap_or(0);
    let trim = |text: &str| match text.contains('.') && !zeros {
        true => text.trim_end_matches('0').trim_end_matches('.').to_owned(),
        false => text.to_owned(),
    };
    if at < -4 || at >= precision as i32 {
        return format!("{}e{exponent}", trim(mantissa));
    }
    trim(&format!("{value:.*}", (precision as i32 - 1 - at) as usize))
}

/// `a`: the digits behind `0x`.
fn hexadecimal(value: f64, precision: Option<usize>) -> String {
    const FRACTION: u32 = 52;
    let bits = value.to_bits();
    let field = (bits >> FRACTION) as i32;
    let mut mantissa = bits & ((1 << FRACTION) - 1);
    let mut exponent = field - 1023;
    match (field, mantissa) {
        (0, 0) => exponent = 0,
        (0, _) => exponent = -1022,
        _ => mantissa |= 1 << FRACTION,
    }
    let mut kept = 13;
    if let Some(precision) = precision.filter(|&precision| precision < 13) {
        let cut = 4 * (13 - precision as u32);
        let half = 1u64 << (cut - 1);
        let odd = mantissa >> cut & 1;
        mantissa = (mantissa + half - 1 + odd) >> cut;
        kept = precision;
    }
    let fraction = mantissa & ((1u64 << (4 * kept)) - 1);
    let mut digits = if kept == 0 { String::new() } else { format!("{fraction:0kept$x}") };
    match precision {
        None => digits.truncate(digits.trim_end_matches('0').len()),
        Some(precision) => digits.push_str(&"0".repeat(precision.saturating_sub(13))),
    }
    let point = if digits.is_empty() { "" } else { "." };
    let sign = if exponent < 0 { '-' } else { '+' };
    format!("{:x}{point}{digits}p{sign}{}", mantissa >> (4 * kept), exponent.abs())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shown(format: &str, number: Number) -> String {
        let list = parts(format).into_iter().map(|part| match part {
            Part::Text(text) => text,
            Part::Value(conversion) => conversion.show(number),
        });
        list.collect()
    }

    /// What glibc writes.
    #[test]
    fn numbers_are_written_as_in_c() {
        let reals = [
            ("%f|%F", 2.5, "2.500000|2.500000"),
            ("%8.2f|%-8.2f|%08.2f|%+.0f", -1.005, "   -1.00|-1.00   |-0001.00|-1"),
            ("%e|%.2E", 12345.678, "1.234568e+04|1.23E+04"),
            ("%g|%g", 0.0001, "0.0001|0.0001"),
            ("%g|%#g|%G", 1e-10, "1e-10|1.00000e-10|1E-10"),
            ("%a|%.1a|%A", 3.0, "0x1.8p+1|0x1.8p+1|0X1.8P+1"),
            ("%a|%.3a|%.0a", 0.1, "0x1.999999999999ap-4|0x1.99ap-4|0x2p-4"),
            ("%a", 0.0, "0x0p+0"),
            ("%08.1f|%5e|%G", f64::INFINITY, "     inf|  inf|INF"),
            ("%f|%+f", f64::NAN, "nan|+nan"),
            ("%.1f|% f", -0.0, "-0.0|-0.000000"),
        ];
        for (format, value, text) in reals {
            assert_eq!(shown(format, Number::Real(value)), text, "{format}");
        }
        let integers = [
            ("%d|%5d|%-5d|%05d|%+d|% d", 42, "42|   42|42   |00042|+42| 42"),
            ("%.4d|%6.4d|%06.4d|%lld", -7, "-0007| -0007| -0007|-7"),
            ("%x|%#x|%X|%#o|%o", 255, "ff|0xff|FF|0377|377"),
            ("%c%%|%hhd", 65, "A%|65"),
        ];
        for (format, value, text) in integers {
            assert_eq!(shown(format, Number::Signed(value)), text, "{format}");
        }
        assert_eq!(shown("%u %llx", Number::Unsigned(u64::MAX)), "18446744073709551615 ffffffffffffffff");
    }

    #[test]
    fn a_conversion_is_written_with_another_length() {
        let written: Vec<String> = parts("%-08.3hhd%5lx%f")
            .iter()
            .filter_map(|part| match part {
                Part::Value(conversion) => Some(conversion.written(if conversion.is_real() { "" } else { "ll" })),
                Part::Text(_) => None,
            })
            .collect();
        assert_eq!(written, ["%-08.3lld", "%5llx", "%f"]);
    }
}
