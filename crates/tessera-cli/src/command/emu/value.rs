//! What `tessera emu` takes as arguments of a kernel, fields of structs and contents of variables, as text.
//!
//! | text | is |
//! |---|---|
//! | `7`, `0.5`, `True` | a number of the parameter's type; in a struct `i32` (`i64` where it does not fit), `f32`, one byte |
//! | `f16(1, 2.5)` | numbers of a type, one behind the other |
//! | `randn:f32[4,8]`, `@x.npy` | an array in device memory of its own; its address |
//! | `x`, `x[2,3]`, `x+64` | the address of an array or variable that is named elsewhere, of an element, of a byte in it |
//! | `[A, B, ...]` | memory of its own that holds the values as a struct does; its address |
//! | `{A, B, ...}` | the values themselves, each at the next multiple of its alignment |
//! | `bytes(00ff12)`, `bytes(@x.bin)`, `pad(4)` | bytes, a file's bytes, zeros |
//! | `map(A;...)`, `tex(A;...)`, `surf(A;...)` | a tensor map, the handle of a texture or surface over an array |
//!
//! `NAME=` in front of any of them names what it makes.

use tessera::lang::ConstValue;
use tessera::types::DType;

/// A value with its own name, if it has one.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Named {
    pub(super) name: Option<String>,
    pub(super) value: Value,
}

#[derive(Clone, Debug, PartialEq)]
pub(super) enum Value {
    Number(ConstValue),
    Typed(DType, Vec<ConstValue>),
    /// As `argspec` reads it.
    Array(String),
    Place(Place),
    Pointer(Vec<Named>),
    Struct(Vec<Named>),
    Bytes(Vec<u8>),
    File(String),
    Over(Over),
}

/// A place in an array or a variable.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Place {
    pub(super) name: String,
    /// Of an element.
    pub(super) index: Option<Vec<u64>>,
    pub(super) bytes: u64,
}

/// What is made over an array.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Over {
    pub(super) kind: Kind,
    pub(super) source: Box<Named>,
    /// Keys and values; a key alone has none.
    pub(super) options: Vec<(String, String)>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    Map,
    Texture,
    Surface,
}

/// Brackets nested deeper than this are refused.
const DEEPEST: usize = 32;

/// Reads a value.
pub(super) fn parse(text: &str) -> Result<Named, String> {
    let text = text.trim();
    let (name, rest) = match text.split_once('=') {
        Some((name, rest)) if is_name(name) => (Some(name.to_owned()), rest.trim()),
        _ => (None, text),
    };
    Ok(Named { name, value: value(rest)? })
}

fn is_name(text: &str) -> bool {
    let mut characters = text.chars();
    characters.next().is_some_and(|first| first.is_ascii_alphabetic() || matches!(first, '_' | '$'))
        && characters.all(|c| c.is_ascii_alphanumeric() || matches!(c, '_' | '$'))
}

fn value(text: &str) -> Result<Value, String> {
    let inside = |open: char, close: char| text.strip_prefix(open).and_then(|rest| rest.strip_suffix(close));
    if let Some(list) = inside('{', '}') {
        return Ok(Value::Struct(each(list)?));
    }
    if let Some(list) = inside('[', ']') {
        return Ok(Value::Pointer(each(list)?));
    }
    if text.starts_with('@') || is_made(text) {
        return Ok(Value::Array(text.to_owned()));
    }
    if let Some((word, list)) = text.strip_suffix(')').and_then(|rest| rest.split_once('(')) {
        return called(word, list);
    }
    match text {
        "" => Err("a value is missing".to_owned()),
        "True" => Ok(Value::Number(ConstValue::Bool(true))),
        "False" => Ok(Value::Number(ConstValue::Bool(false))),
        "null" | "None" => Ok(Value::Number(ConstValue::Int(0))),
        _ => match number(text) {
            Some(number) => Ok(Value::Number(number)),
            None => place(text).map(Value::Place),
        },
    }
}

/// `DIST:DTYPE[...]`, with what a distribution has in parentheses.
fn is_made(text: &str) -> bool {
    let word = text.chars().take_while(|c| c.is_ascii_alphabetic()).count();
    let rest = &text[word..];
    let rest = match rest.strip_prefix('(').and_then(|rest| rest.split_once(')')) {
        Some((_, rest)) => rest,
        None => rest,
    };
    word > 0 && rest.starts_with(':')
}

/// An integer in any of Python's bases, or a float.
fn number(text: &str) -> Option<ConstValue> {
    let (negative, digits) = match text.strip_prefix('-') {
        Some(rest) => (true, rest),
        None => (false, text),
    };
    let plain = digits.replace('_', "");
    let based =
        [("0x", 16), ("0b", 2), ("0o", 8)].into_iter().find_map(|(prefix, base)| Some((plain.strip_prefix(prefix)?, base)));
    let (digits, base) = based.unwrap_or((&plain, 10));
    if digits.starts_with(|c: char| c.is_ascii_alphanumeric())
        && let Ok(value) = u64::from_str_radix(digits, base)
    {
        let value = value.cast_signed();
        return Some(ConstValue::Int(if negative { value.wrapping_neg() } else { value }));
    }
    let is_float = plain.starts_with(|c: char| c.is_ascii_digit() || c == '.') || matches!(&*plain, "inf" | "nan");
    let value: f64 = plain.parse().ok().filter(|_| is_float)?;
    Some(ConstValue::Float(if negative { -value } else { value }))
}

fn called(word: &str, list: &str) -> Result<Value, String> {
    let kind = match word {
        "map" => Some(Kind::Map),
        "tex" => Some(Kind::Texture),
        "surf" => Some(Kind::Surface),
        _ => None,
    };
    if let Some(kind) = kind {
        let parts = split(list, ';')?;
        // An array's own options (`seed=3`) stand behind it as well.
        let own = parts[1..].iter().take_while(|part| part.starts_with("seed=") || part.starts_with("dtype=")).count();
        let source = Box::new(parse(&parts[..=own].join(";"))?);
        let option = |part: &&str| match part.split_once('=') {
            Some((key, value)) => (key.trim().to_owned(), value.trim().to_owned()),
            None => (part.trim().to_owned(), String::new()),
        };
        return Ok(Value::Over(Over { kind, source, options: parts[own + 1..].iter().map(option).collect() }));
    }
    if word == "pad" {
        let count: usize = list.trim().parse().map_err(|_| format!("`pad({list})`: a number of bytes is needed"))?;
        return if count <= 1 << 20 { Ok(Value::Bytes(vec![0; count])) } else { Err(format!("`pad({list})` is too much")) };
    }
    if word == "bytes" {
        if let Some(path) = list.strip_prefix('@') {
            return Ok(Value::File(path.to_owned()));
        }
        let digits: String = list.chars().filter(|c| !c.is_whitespace() && *c != '_').collect();
        let pairs = digits.as_bytes().chunks(2).map(|pair| {
            let pair = std::str::from_utf8(pair).ok().filter(|pair| pair.len() == 2)?;
            u8::from_str_radix(pair, 16).ok()
        });
        let bytes: Option<Vec<u8>> = pairs.collect();
        return bytes
            .map(Value::Bytes)
            .ok_or_else(|| format!("`bytes({list})`: two hexadecimal digits a byte, in order of address"));
    }
    let Some(dtype) = DType::parse(word) else {
        return Err(format!(
            "`{word}(...)` is nothing that is known\nhelp: `map(...)`, `tex(...)`, `surf(...)`, `bytes(...)`, `pad(...)`, or an element type such as `f32(1, 2)`"
        ));
    };
    let numbers = split(list, ',')?.into_iter().map(|text| {
        let text = text.trim();
        let truth = || match text {
            "True" => Some(ConstValue::Bool(true)),
            "False" => Some(ConstValue::Bool(false)),
            _ => None,
        };
        number(text).or_else(truth).ok_or_else(|| format!("`{text}` in `{word}(...)` is no number"))
    });
    Ok(Value::Typed(dtype, numbers.collect::<Result<_, _>>()?))
}

fn place(text: &str) -> Result<Place, String> {
    let wrong = || {
        format!(
            "`{text}` is neither a number, an array nor the name of one\nhelp: arrays are written `zeros:f32[64]` or `@file.npy`"
        )
    };
    let (rest, bytes) = match text.split_once('+') {
        Some((rest, offset)) => (rest, offset.parse().map_err(|_| wrong())?),
        None => (text, 0),
    };
    let (name, index) = match rest.strip_suffix(']').and_then(|rest| rest.split_once('[')) {
        Some((name, list)) => {
            let index: Option<Vec<u64>> = list.split(',').map(|part| part.trim().parse().ok()).collect();
            (name, Some(index.ok_or_else(wrong)?))
        }
        None => (rest, None),
    };
    if !is_name(name) {
        return Err(wrong());
    }
    if DType::parse(name).is_some() && index.is_some() {
        return Err(format!(
            "`{text}`: an array needs a distribution before its type\nhelp: write `zeros:{text}`, or `empty:`, `randn:`, `arange:`"
        ));
    }
    Ok(Place { name: name.to_owned(), index, bytes })
}

fn each(list: &str) -> Result<Vec<Named>, String> {
    if list.trim().is_empty() {
        return Ok(Vec::new());
    }
    split(list, ',')?.into_iter().map(parse).collect()
}

/// The parts of a text between separators that stand in no brackets.
fn split(text: &str, separator: char) -> Result<Vec<&str>, String> {
    let (mut parts, mut start, mut open) = (Vec::new(), 0, Vec::new());
    for (at, c) in text.char_indices() {
        match c {
            '(' => open.push(')'),
            '[' => open.push(']'),
            '{' => open.push('}'),
            ')' | ']' | '}' if open.pop() != Some(c) => return Err(format!("`{c}` in `{text}` closes nothing")),
            _ if c == separator && open.is_empty() => {
                parts.push(&text[start..at]);
                start = at + 1;
            }
            _ if open.len() > DEEPEST => return Err(format!("brackets are nested more than {DEEPEST} deep")),
            _ => {}
        }
    }
    match open.pop() {
        Some(close) => Err(format!("`{close}` is missing in `{text}`")),
        None => {
            parts.push(&text[start..]);
            Ok(parts)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(text: &str) -> Value {
        parse(text).unwrap().value
    }

    #[test]
    fn every_form_is_read() {
        assert_eq!(of("-7"), Value::Number(ConstValue::Int(-7)));
        assert_eq!(of("0xffff_ffff_ffff_ffff"), Value::Number(ConstValue::Int(-1)));
        assert_eq!(of("1e-3"), Value::Number(ConstValue::Float(1e-3)));
        assert_eq!(of("const(2):f32[4];seed=1"), Value::Array("const(2):f32[4];seed=1".to_owned()));
        assert_eq!(of("x[2, 3]+4"), Value::Place(Place { name: "x".to_owned(), index: Some(vec![2, 3]), bytes: 4 }));
        assert_eq!(of("bytes(00 ff)"), Value::Bytes(vec![0, 255]));
        let Value::Struct(fields) = of("{a=randn:f32[2,2], [x, y], i32(1, 2), {pad(4)}}") else { panic!() };
        assert_eq!(fields.len(), 4);
        assert_eq!(fields[0].name.as_deref(), Some("a"));
        assert_eq!(fields[2].value, Value::Typed(DType::I32, vec![ConstValue::Int(1), ConstValue::Int(2)]));
        let Value::Over(map) = of("map(x=randn:f32[4,4];seed=2;tile=4,4;fill=nan)") else { panic!() };
        assert_eq!(map.source.value, Value::Array("randn:f32[4,4];seed=2".to_owned()));
        assert_eq!(map.options, [("tile".to_owned(), "4,4".to_owned()), ("fill".to_owned(), "nan".to_owned())]);
    }

    #[test]
    fn mistakes_are_named() {
        let (open, deep) = ("[".repeat(99), format!("{}{}", "[".repeat(99), "]".repeat(99)));
        for (text, part) in [
            ("{1, 2", "neither a number"),
            ("{[1}", "`]` is missing"),
            ("f33(1)", "nothing that is known"),
            ("f32(a)", "is no number"),
            ("bytes(0)", "two hexadecimal digits"),
            (&open[..], "neither a number"),
            (&deep[..], "nested"),
            ("f32[4]", "needs a distribution"),
            ("x+y", "neither a number"),
            ("", "missing"),
        ] {
            let error = parse(text).unwrap_err();
            assert!(error.contains(part), "{text}: {error}");
        }
    }
}
