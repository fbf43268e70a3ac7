//! `vprintf`: what a kernel prints.

use super::{Cluster, Fault, Warp};
use crate::lanes::lanes;
use crate::program::{Space, StackPlace};

impl Cluster<'_> {
    /// `vprintf`: the format and the arguments lie where the two local variables point.
    pub(super) fn print(&mut self, warp: &mut Warp, active: u32, format: StackPlace, arguments: StackPlace) -> Result<(), Fault> {
        for lane in lanes(active) {
            let pointer = |place: StackPlace| {
                let found = self.local(warp, place, 8, lane);
                found.and_then(|at| warp.local[at..].first_chunk::<8>()).map_or(0, |bytes| u64::from_le_bytes(*bytes))
            };
            let (format, mut from) = (pointer(format), pointer(arguments));
            let mut text = Vec::new();
            loop {
                let mut byte = [0];
                self.read_bytes(warp, Space::Generic, format + text.len() as u64, &mut byte, lane)?;
                if byte[0] == 0 || text.len() >= 4096 {
                    break;
                }
                text.push(byte[0]);
            }
            let mut next = |bytes: u64, warp: &mut Warp| {
                from = from.next_multiple_of(bytes);
                let mut word = [0; 8];
                self.read_bytes(warp, Space::Generic, from, &mut word[..bytes as usize], lane)?;
                from += bytes;
                Ok(u64::from_le_bytes(word))
            };
            let line = printed(&String::from_utf8_lossy(&text), |bytes| next(bytes, warp))?;
            let mut resolved = String::new();
            for piece in line {
                match piece {
                    Piece::Text(text) => resolved.push_str(&text),
                    Piece::Pointer(mut address) => loop {
                        let mut byte = [0];
                        self.read_bytes(warp, Space::Generic, address, &mut byte, lane)?;
                        if byte[0] == 0 || resolved.len() > 1 << 16 {
                            break;
                        }
                        resolved.push(char::from(byte[0]));
                        address += 1;
                    },
                }
            }
            let block = self.block_number(warp.rank);
            if let Ok(mut output) = self.launch.output.lock() {
                output.entry(block).or_default().push_str(&resolved);
            }
        }
        Ok(())
    }
}

/// A part of a printed line.
enum Piece {
    Text(String),
    /// A string in memory.
    Pointer(u64),
}

/// Formats as `printf` does, with the arguments that `next` gives: 4 bytes for `int`, 8 for `long`, pointers and `double`.
fn printed(format: &str, mut next: impl FnMut(u64) -> Result<u64, Fault>) -> Result<Vec<Piece>, Fault> {
    let mut out = vec![Piece::Text(String::new())];
    let mut chars = format.chars().peekable();
    while let Some(c) = chars.next() {
        let mut text = String::new();
        if c != '%' {
            text.push(c);
        } else if chars.peek() == Some(&'%') {
            chars.next();
            text.push('%');
        } else {
            let mut flags = String::new();
            while let Some(&c) = chars.peek().filter(|c| "-+ #0123456789.hlz".contains(**c)) {
                flags.push(c);
                chars.next();
            }
            let long = flags.contains('l') || flags.contains('z');
            let width: usize = flags
                .trim_start_matches(['-', '+', ' ', '#'])
                .split('.')
                .next()
                .and_then(|w| w.trim_end_matches(['h', 'l', 'z']).parse().ok())
                .unwrap_or(0);
            let precision = flags.split('.').nth(1).and_then(|p| p.trim_end_matches(['h', 'l', 'z']).parse::<usize>().ok());
            let bytes = if long { 8 } else { 4 };
            let body = match chars.next() {
                Some('d' | 'i') => {
                    let value = next(bytes)?;
                    if long { (value as i64).to_string() } else { (value as i32).to_string() }
                }
                Some('u') => next(bytes)?.to_string(),
                Some('x') => format!("{:x}", next(bytes)?),
                Some('X') => format!("{:X}", next(bytes)?),
                Some('o') => format!("{:o}", next(bytes)?),
                Some('c') => char::from(next(4)? as u8).to_string(),
                Some('p') => format!("{:#x}", next(8)?),
                Some('f' | 'F') => format!("{:.*}", precision.unwrap_or(6), f64::from_bits(next(8)?)),
                Some('e' | 'E') => scientific(f64::from_bits(next(8)?), precision.unwrap_or(6)),
                Some('g' | 'G') => shortest(f64::from_bits(next(8)?), precision.unwrap_or(6).max(1)),
                Some('s') => {
                    out.push(Piece::Pointer(next(8)?));
                    out.push(Piece::Text(String::new()));
                    continue;
                }
                Some(other) => format!("%{other}"),
                None => "%".to_owned(),
            };
            let missing = width.min(256).saturating_sub(body.chars().count());
            let zeros = flags.starts_with('0') && !body.starts_with('-');
            let pad: String = std::iter::repeat_n(if zeros { '0' } else { ' ' }, missing).collect();
            if flags.starts_with('-') {
                text.push_str(&body);
                text.push_str(&pad);
            } else {
                text.push_str(&pad);
                text.push_str(&body);
            }
        }
        if let Some(Piece::Text(last)) = out.last_mut() {
            last.push_str(&text);
        }
    }
    Ok(out)
}

/// `%e`: an exponent of at least two digits.
fn scientific(value: f64, digits: usize) -> String {
    let text = format!("{value:.digits$e}");
    match text.split_once('e').map(|(mantissa, exponent)| (mantissa, exponent.parse::<i32>())) {
        Some((mantissa, Ok(exponent))) => {
            let sign = if exponent < 0 { '-' } else { '+' };
            format!("{mantissa}e{sign}{:02}", exponent.abs())
        }
        _ => text,
    }
}

/// `%g`: with an exponent where it is small or beyond the digits; no zeros at the end.
fn shortest(value: f64, digits: usize) -> String {
    let long = scientific(value, digits - 1);
    let exponent = long.split_once('e').and_then(|(_, exponent)| exponent.parse::<i32>().ok());
    let Some(exponent) = exponent else { return long };
    let bare = |text: &str| match text.contains('.') {
        true => text.trim_end_matches('0').trim_end_matches('.').to_owned(),
        false => text.to_owned(),
    };
    if (-4..digits as i32).contains(&exponent) {
        return bare(&format!("{value:.*}", (digits as i32 - 1 - exponent) as usize));
    }
    match long.split_once('e') {
        Some((mantissa, exponent)) => format!("{}e{exponent}", bare(mantissa)),
        None => long,
    }
}
