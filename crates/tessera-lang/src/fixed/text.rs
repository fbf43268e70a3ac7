//! Strings: what values look like as text, formats, and the methods of strings.

use tessera_ir::{Diagnostic, Span};

use super::{Fixed, not_evaluated};
use crate::ast::Ident;
use crate::diagnostics::id;
use crate::lower::Res;
use crate::number::{Num, show_float};
use crate::promote::dtype_name;

/// `str(value)`.
pub(crate) fn str_of(value: &Fixed, span: Span) -> Res<String> {
    match value {
        Fixed::Str(text) => Ok(text.to_string()),
        other => repr(other, span),
    }
}

/// `repr(value)`.
pub(crate) fn repr(value: &Fixed, span: Span) -> Res<String> {
    let joined = |items: &[Fixed]| {
        Ok::<_, Box<Diagnostic>>(items.iter().map(|item| repr(item, span)).collect::<Res<Vec<_>>>()?.join(", "))
    };
    Ok(match value {
        Fixed::Num(number) => number.to_string(),
        Fixed::Str(text) => quoted(text),
        Fixed::None => "None".to_string(),
        Fixed::DType(dtype) => dtype_name(*dtype).to_string(),
        Fixed::Tuple(items) => format!("({}{})", joined(items)?, if items.len() == 1 { "," } else { "" }),
        Fixed::List(items) => format!("[{}]", joined(items)?),
        Fixed::Range([start, stop, 1]) => format!("range({start}, {stop})"),
        Fixed::Range([start, stop, step]) => format!("range({start}, {stop}, {step})"),
        Fixed::Path(path) => return Err(not_evaluated(path, span)),
        Fixed::Iterator(_) => {
            return Err(Box::new(
                Diagnostic::error(id::ARGUMENT_TYPE, span, "an iterator has no text").help("make a tuple of it: `tuple(...)`"),
            ));
        }
    })
}

/// A string in quotes as Python writes it.
fn quoted(text: &str) -> String {
    let quote = if text.contains('\'') && !text.contains('"') { '"' } else { '\'' };
    let mut out = String::from(quote);
    for c in text.chars() {
        match c {
            '\\' => out.push_str("\\\\"),
            '\n' => out.push_str("\\n"),
            '\r' => out.push_str("\\r"),
            '\t' => out.push_str("\\t"),
            c if c == quote => out.extend(['\\', c]),
            c if c.is_ascii_control() => out.push_str(&format!("\\x{:02x}", c as u32)),
            c => out.push(c),
        }
    }
    out.push(quote);
    out
}

/// A format of Python's: `[[fill]align][sign][#][0][width][.precision][type]`.
struct Spec {
    fill: char,
    align: Option<char>,
    sign: Option<char>,
    alternate: bool,
    width: usize,
    precision: Option<usize>,
    letter: Option<char>,
}

impl Spec {
    fn read(text: &str) -> Option<Spec> {
        let mut spec = Spec { fill: ' ', align: None, sign: None, alternate: false, width: 0, precision: None, letter: None };
        let is_align = |c: char| "<>^=".contains(c);
        let mut letters: Vec<char> = text.chars().collect();
        if letters.len() > 1 && is_align(letters[1]) {
            (spec.fill, spec.align) = (letters[0], Some(letters[1]));
            letters.drain(..2);
        } else if letters.first().is_some_and(|c| is_align(*c)) {
            spec.align = Some(letters.remove(0));
        }
        let rest: String = letters.into_iter().collect();
        let mut rest = rest.as_str();
        if let Some(sign) = rest.chars().next().filter(|c| "+- ".contains(*c)) {
            spec.sign = Some(sign);
            rest = &rest[1..];
        }
        if let Some(after) = rest.strip_prefix('#') {
            (spec.alternate, rest) = (true, after);
        }
        if rest.starts_with('0') && spec.align.is_none() {
            (spec.fill, spec.align) = ('0', Some('='));
        }
        let digits = |text: &str| text.bytes().take_while(u8::is_ascii_digit).count();
        let width = digits(rest);
        spec.width = if width == 0 { 0 } else { rest[..width].parse().ok().filter(|width| *width <= 1000)? };
        rest = &rest[width..];
        if let Some(after) = rest.strip_prefix('.') {
            let count = digits(after);
            spec.precision = Some(after[..count].parse().ok().filter(|precision| *precision <= 100)?);
            rest = &after[count..];
        }
        let mut last = rest.chars();
        spec.letter = last.next();
        last.next().is_none().then_some(spec)
    }

    /// The text with its sign at the width, `=` filling behind the sign.
    fn pad(&self, sign: &str, text: &str, align: char) -> String {
        let missing = self.width.saturating_sub(sign.chars().count() + text.chars().count());
        let fill = |count: usize| self.fill.to_string().repeat(count);
        match self.align.unwrap_or(align) {
            '<' => format!("{sign}{text}{}", fill(missing)),
            '^' => format!("{}{sign}{text}{}", fill(missing / 2), fill(missing - missing / 2)),
            '=' => format!("{sign}{}{text}", fill(missing)),
            _ => format!("{}{sign}{text}", fill(missing)),
        }
    }

    fn number(&self, number: Num) -> Option<String> {
        let sign = |negative: bool| match (negative, self.sign) {
            (true, _) => "-",
            (false, Some('+')) => "+",
            (false, Some(' ')) => " ",
            _ => "",
        };
        let whole = |value: i128, letter: char| {
            let (prefix, digits) = match letter {
                'x' => ("0x", format!("{:x}", value.unsigned_abs())),
                'X' => ("0X", format!("{:X}", value.unsigned_abs())),
                'o' => ("0o", format!("{:o}", value.unsigned_abs())),
                'b' => ("0b", format!("{:b}", value.unsigned_abs())),
                _ => ("", value.unsigned_abs().to_string()),
            };
            let sign = format!("{}{}", sign(value < 0), if self.alternate { prefix } else { "" });
            self.pad(&sign, &digits, '>')
        };
        let real = |value: f64, letter: char| {
            let precision = self.precision.unwrap_or(6);
            let text = if !value.is_finite() {
                show_float(value.abs())
            } else if letter == 'f' {
                format!("{:.precision$}", value.abs())
            } else {
                let text = format!("{:.precision$e}", value.abs());
                let (digits, exponent) = text.split_once('e').unwrap_or((&text, "0"));
                let exponent: i32 = exponent.parse().unwrap_or(0);
                format!("{digits}e{}{:02}", if exponent < 0 { '-' } else { '+' }, exponent.abs())
            };
            self.pad(sign(value.is_sign_negative() && !value.is_nan()), &text, '>')
        };
        match (number, self.letter, self.precision) {
            (Num::Int(value), None | Some('d'), None) => Some(whole(value, 'd')),
            (Num::Bool(value), Some('d'), None) => Some(whole(value.into(), 'd')),
            (Num::Int(value), Some(letter @ ('x' | 'X' | 'o' | 'b')), None) => Some(whole(value, letter)),
            (Num::Float(value), None, None) if !self.alternate => {
                let text = show_float(value.abs());
                Some(self.pad(sign(value.is_sign_negative() && !value.is_nan()), &text, '>'))
            }
            (_, Some(letter @ ('f' | 'e')), _) if !self.alternate => Some(real(number.as_f64(), letter)),
            _ => None,
        }
    }
}

/// `format(value, spec)`.
pub(crate) fn format(value: &Fixed, spec: &str, span: Span) -> Res<String> {
    if spec.is_empty() {
        return str_of(value, span);
    }
    let text = Spec::read(spec).and_then(|own| match value {
        Fixed::Num(number) => own.number(*number),
        Fixed::Str(text)
            if own.sign.is_none() && !own.alternate && matches!(own.letter, None | Some('s')) && own.align != Some('=') =>
        {
            let text: String = text.chars().take(own.precision.unwrap_or(usize::MAX)).collect();
            Some(own.pad("", &text, '<'))
        }
        _ => None,
    });
    text.ok_or_else(|| {
        Box::new(
            Diagnostic::error(id::FORMAT, span, format!("the format {spec:?} does not show {}", value.describe()))
                .help("formats are `[[fill]align][sign][#][0][width][.precision]` and one of `dxXobfes`"),
        )
    })
}

/// `text % value`, in the notation of C.
pub(crate) fn percent(text: &str, value: &Fixed, span: Span) -> Res<String> {
    let wrong = |what: &str| Box::new(Diagnostic::error(id::FORMAT, span, format!("{what} in the format {text:?}")));
    let mut values = match value {
        Fixed::Tuple(items) => items.iter(),
        one => std::slice::from_ref(one).iter(),
    };
    let mut out = String::new();
    let mut rest = text;
    while let Some((before, after)) = rest.split_once('%') {
        out.push_str(before);
        let letter = after.find(|c: char| c.is_alphabetic() || c == '%').ok_or_else(|| wrong("a `%` without a letter"))?;
        let (options, tail) = after.split_at(letter);
        let letter = tail.chars().next().unwrap_or('%');
        rest = &tail[letter.len_utf8()..];
        if letter == '%' {
            out.push('%');
            continue;
        }
        let value = values.next().ok_or_else(|| wrong("too few values"))?;
        let width = options.trim_start_matches(['-', '+', ' ', '#', '0']);
        let flags = &options[..options.len() - width.len()];
        let flag = |wanted: char, shown: &'static str| if flags.contains(wanted) { shown } else { "" };
        let (value, kind) = match (letter, value) {
            ('d' | 'i', Fixed::Num(number)) => {
                let whole = super::builtin("int", &[Fixed::Num(*number)], span)?;
                (whole, "d".to_string())
            }
            ('s', value) => (Fixed::str(&str_of(value, span)?), "s".to_string()),
            ('r', value) => (Fixed::str(&repr(value, span)?), "s".to_string()),
            ('x' | 'X' | 'o' | 'f' | 'e', value) => (value.clone(), letter.to_string()),
            _ => return Err(wrong(&format!("`%{letter}` for {}", value.describe()))),
        };
        let is_text = matches!(value, Fixed::Str(_));
        let sign = if is_text {
            ""
        } else if flags.contains('+') {
            "+"
        } else {
            flag(' ', " ")
        };
        let align = if flags.contains('-') {
            "<"
        } else if flags.contains('0') && !is_text {
            ""
        } else {
            ">"
        };
        let zero = if align.is_empty() { "0" } else { "" };
        out.push_str(&format(&value, &format!("{align}{sign}{}{zero}{width}{kind}", flag('#', "#")), span)?);
    }
    out.push_str(rest);
    if values.next().is_some() {
        return Err(wrong("too many values"));
    }
    Ok(out)
}

/// An attribute of a number, or what a method of it without arguments gives.
pub(crate) fn of_number(number: Num, name: &str, called: bool) -> Option<Num> {
    let whole = number.as_int();
    let count = |bits: u32| Some(Num::Int(bits.into()));
    match (name, called) {
        ("bit_length", true) => count(128 - whole?.unsigned_abs().leading_zeros()),
        ("bit_count", true) => count(whole?.unsigned_abs().count_ones()),
        ("is_integer", true) => Some(Num::Bool(whole.is_some() || number.as_f64().fract() == 0.0)),
        ("conjugate", true) | ("real", false) => Some(whole.map_or(number, Num::Int)),
        ("imag", false) => Some(whole.map_or(Num::Float(0.0), |_| Num::Int(0))),
        ("numerator", false) => whole.map(Num::Int),
        ("denominator", false) => whole.map(|_| Num::Int(1)),
        _ => None,
    }
}

const METHODS: &[&str] =
    &["startswith", "endswith", "split", "strip", "lower", "upper", "removeprefix", "removesuffix", "replace", "join"];

/// `receiver.name(args)`.
pub(crate) fn method(receiver: &Fixed, name: &Ident, args: &[Fixed], span: Span) -> Res<Fixed> {
    if let Fixed::Str(text) = receiver {
        let result = match (name.name.as_str(), args) {
            ("startswith", [Fixed::Str(part)]) => Some(Fixed::bool(text.starts_with(&**part))),
            ("endswith", [Fixed::Str(part)]) => Some(Fixed::bool(text.ends_with(&**part))),
            ("split", [Fixed::Str(separator)]) if !separator.is_empty() => {
                Some(Fixed::List(text.split(&**separator).map(Fixed::str).collect()))
            }
            ("split", []) => Some(Fixed::List(text.split_whitespace().map(Fixed::str).collect())),
            ("strip", []) => Some(Fixed::str(text.trim())),
            ("lower", []) => Some(Fixed::str(&text.to_lowercase())),
            ("upper", []) => Some(Fixed::str(&text.to_uppercase())),
            ("removeprefix", [Fixed::Str(part)]) => Some(Fixed::str(text.strip_prefix(&**part).unwrap_or(text))),
            ("removesuffix", [Fixed::Str(part)]) => Some(Fixed::str(text.strip_suffix(&**part).unwrap_or(text))),
            ("replace", [Fixed::Str(from), Fixed::Str(to)]) if text.len() * (to.len() + 1) < super::MAX_TEXT => {
                Some(Fixed::str(&text.replace(&**from, to)))
            }
            ("join", [items]) => {
                let items = items.iterate(span)?;
                let parts: Option<Vec<&str>> =
                    items.iter().map(|item| if let Fixed::Str(part) = item { Some(&**part) } else { None }).collect();
                parts.map(|parts| Fixed::str(&parts.join(text)))
            }
            _ => None,
        };
        if let Some(result) = result {
            return Ok(result);
        }
        if METHODS.contains(&name.name.as_str()) {
            return Err(Box::new(
                Diagnostic::error(id::CALL, span, format!("`{}` does not take these arguments", name.name))
                    .help("string methods take constant strings"),
            ));
        }
    }
    let known: Vec<String> = METHODS.iter().map(|name| format!("`{name}`")).collect();
    Err(Box::new(
        Diagnostic::error(id::UNKNOWN_ATTRIBUTE, name.span, format!("{} has no method `{}`", receiver.describe(), name.name))
            .help(format!("strings have {}", known.join(", "))),
    ))
}
