//! Printing with C's conversions.

use tessera_types::{DType, FloatFormat};

use super::{Machine, sign_extend};
use crate::plan::{Piece, Printed};

impl Machine<'_> {
    pub(super) fn print(&mut self, pieces: &[Piece]) {
        let mut line = String::new();
        for piece in pieces {
            match piece {
                Piece::Text(text) => line.push_str(text),
                Piece::Value { conversion, place: Printed::Scalar(reg), dtype } => {
                    line.push_str(&number(conversion, *dtype, self.get(*reg)));
                }
                Piece::Value { conversion, place: Printed::Tile(place, shape), dtype } => {
                    let from = self.place(*place);
                    let bytes = dtype.unpacked_bytes();
                    let element = |index: usize| {
                        let mut bits = [0; 8];
                        // SAFETY: indices stay below the tile's number of elements.
                        unsafe { std::ptr::copy_nonoverlapping(from.add(index * bytes), bits.as_mut_ptr(), bytes) };
                        number(conversion, *dtype, u64::from_le_bytes(bits))
                    };
                    nested(&mut line, shape, 0, &element);
                }
            }
        }
        self.text.push_str(&line);
    }
}

/// `[[1, 2], [3, 4]]`
fn nested(out: &mut String, shape: &[u32], first: usize, element: &dyn Fn(usize) -> String) {
    let Some((&extent, rest)) = shape.split_first() else {
        out.push_str(&element(first));
        return;
    };
    let step: usize = rest.iter().map(|&extent| extent as usize).product();
    out.push('[');
    for i in 0..extent as usize {
        if i > 0 {
            out.push_str(", ");
        }
        nested(out, rest, first + i * step, element);
    }
    out.push(']');
}

/// One value by a conversion such as `5.2f`, `d`, `lu` or `x`.
fn number(conversion: &str, dtype: DType, bits: u64) -> String {
    let letter = conversion.chars().last().unwrap_or('d');
    let flags: String = conversion.chars().take_while(|c| matches!(c, '-' | '+' | '0' | ' ' | '#')).collect();
    let digits = conversion[flags.len()..].trim_end_matches(|c: char| c.is_ascii_alphabetic());
    let (width, precision) = digits.split_once('.').map_or((digits, None), |(width, precision)| (width, Some(precision)));
    let precision = precision.map(|precision| precision.parse::<usize>().unwrap_or(0));
    let width: usize = width.parse().unwrap_or(0);
    let bytes = dtype.unpacked_bytes() as u8;
    let float = FloatFormat::of(dtype).map(|format| format.decode(bits));
    let integer = || match float {
        Some(value) => value as i64,
        None if dtype == DType::B1 => (bits & 1) as i64,
        None => sign_extend(bits, bytes),
    };
    let real = || float.unwrap_or_else(|| integer() as f64);
    let mut text = match letter {
        'f' | 'F' => fixed(real(), precision.unwrap_or(6)),
        'e' | 'E' => exponent(real(), precision.unwrap_or(6)),
        'g' | 'G' => shortest(real(), precision.unwrap_or(6).max(1)),
        'u' => match float {
            Some(value) => format!("{}", value as u64),
            None => format!("{}", super::mask(bits, bytes)),
        },
        'x' => format!("{:x}", super::mask(bits, bytes)),
        'X' => format!("{:X}", super::mask(bits, bytes)),
        'o' => format!("{:o}", super::mask(bits, bytes)),
        'p' => format!("0x{bits:x}"),
        'c' => char::from(bits as u8).to_string(),
        _ => integer().to_string(),
    };
    if letter.is_ascii_uppercase() {
        text = text.to_uppercase();
    }
    if matches!(letter, 'd' | 'i' | 'f' | 'F' | 'e' | 'E' | 'g' | 'G') && !text.starts_with('-') {
        if flags.contains('+') {
            text.insert(0, '+');
        } else if flags.contains(' ') {
            text.insert(0, ' ');
        }
    }
    if flags.contains('#') && matches!(letter, 'x' | 'X') && bits != 0 {
        text.insert_str(0, if letter == 'x' { "0x" } else { "0X" });
    }
    let missing = width.saturating_sub(text.chars().count());
    if flags.contains('-') {
        text.push_str(&" ".repeat(missing));
    } else if flags.contains('0') && real().is_finite() {
        let sign = text.find(|c: char| c.is_ascii_alphanumeric()).unwrap_or(0);
        text.insert_str(sign, &"0".repeat(missing));
    } else {
        text.insert_str(0, &" ".repeat(missing));
    }
    text
}

fn special(value: f64) -> Option<String> {
    match value {
        value if value.is_nan() => Some("nan".to_string()),
        f64::INFINITY => Some("inf".to_string()),
        f64::NEG_INFINITY => Some("-inf".to_string()),
        _ => None,
    }
}

fn fixed(value: f64, precision: usize) -> String {
    special(value).unwrap_or_else(|| format!("{value:.precision$}"))
}

/// C writes at least two digits of exponent, and its sign.
fn exponent(value: f64, precision: usize) -> String {
    special(value).unwrap_or_else(|| {
        let text = format!("{value:.precision$e}");
        let (mantissa, exponent) = text.split_once('e').unwrap_or((&text, "0"));
        let exponent: i32 = exponent.parse().unwrap_or(0);
        format!("{mantissa}e{}{:02}", if exponent < 0 { '-' } else { '+' }, exponent.abs())
    })
}

fn shortest(value: f64, precision: usize) -> String {
    if let Some(text) = special(value) {
        return text;
    }
    let scientific = format!("{value:.*e}", precision - 1);
    let at: i32 = scientific.split_once('e').and_then(|(_, exponent)| exponent.parse().ok()).unwrap_or(0);
    let trim = |text: String| {
        if text.contains('.') { text.trim_end_matches('0').trim_end_matches('.').to_string() } else { text }
    };
    if at < -4 || at >= precision as i32 {
        let text = exponent(value, precision - 1);
        let (mantissa, power) = text.split_once('e').unwrap_or((&text, "+00"));
        return format!("{}e{power}", trim(mantissa.to_string()));
    }
    trim(fixed(value, (precision as i32 - 1 - at) as usize))
}
