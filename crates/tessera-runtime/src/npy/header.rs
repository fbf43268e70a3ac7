//! The header of a `.npy` file: a Python dict with three keys, read by a parser that knows nothing else.
//!
//! `{'descr': '<f4', 'fortran_order': False, 'shape': (3, 4), }`, padded with spaces to a multiple of 64 bytes.

use crate::error::FormatError;

/// Axes beyond this are refused: NumPy stops at 64.
const MOST_AXES: usize = 64;

/// The byte order of elements.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ByteOrder {
    Little,
    Big,
}

/// What elements are.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    Bool,
    Signed,
    Unsigned,
    Float,
    /// Bytes without a meaning (`V`).
    Opaque,
    /// A record of one opaque field, by the field's name.
    Record(String),
}

/// What a header says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Header {
    pub(crate) kind: Kind,
    /// Bytes of an element.
    pub(crate) width: usize,
    pub(crate) order: ByteOrder,
    pub(crate) fortran: bool,
    pub(crate) shape: Vec<usize>,
    /// The element type as the file names it.
    pub(crate) descr: String,
}

/// The bytes up to the elements, for an element type's text and a shape.
pub(crate) fn encode(descr: &str, shape: &[usize]) -> Vec<u8> {
    let mut sizes = String::new();
    for (axis, size) in shape.iter().enumerate() {
        sizes.push_str(&if axis == 0 { size.to_string() } else { format!(", {size}") });
    }
    if shape.len() == 1 {
        sizes.push(',');
    }
    let mut text = format!("{{'descr': {descr}, 'fortran_order': False, 'shape': ({sizes}), }}");
    // Version 1.0 counts the header in 16 bits: only shapes of thousands of axes would not fit.
    let start = super::MAGIC.len() + 4;
    let padded = (start + text.len() + 1).next_multiple_of(64) - start;
    text.extend(std::iter::repeat_n(' ', padded - 1 - text.len()));
    text.push('\n');
    let mut bytes = super::MAGIC.to_vec();
    bytes.extend([1, 0]);
    bytes.extend((text.len() as u16).to_le_bytes());
    bytes.extend(text.as_bytes());
    bytes
}

impl Header {
    pub(crate) fn parse(text: &str) -> Result<Header, FormatError> {
        Parser { rest: text }.header()
    }
}

struct Parser<'a> {
    rest: &'a str,
}

type Parsed<T> = Result<T, FormatError>;

fn wrong<T>(what: impl Into<String>) -> Parsed<T> {
    Err(FormatError::Header(what.into()))
}

impl<'a> Parser<'a> {
    fn header(mut self) -> Parsed<Header> {
        let (mut descr, mut fortran, mut shape) = (None, None, None);
        self.expect('{')?;
        while !self.take('}') {
            let key = self.string()?;
            self.expect(':')?;
            let repeated = match key {
                "descr" => descr.replace(self.descr()?).is_some(),
                "fortran_order" => fortran.replace(self.boolean()?).is_some(),
                "shape" => shape.replace(self.shape()?).is_some(),
                other => return wrong(format!("the key `{}` is unknown", other.escape_debug())),
            };
            if repeated {
                return wrong(format!("the key `{key}` comes twice"));
            }
            if !self.take(',') {
                self.expect('}')?;
                break;
            }
        }
        self.skip_spaces();
        if !self.rest.is_empty() {
            return wrong("text follows the dict");
        }
        let missing = |key: &str| FormatError::Header(format!("the key `{key}` is missing"));
        let (descr, kind, width, order) = descr.ok_or_else(|| missing("descr"))?;
        Ok(Header {
            kind,
            width,
            order,
            fortran: fortran.ok_or_else(|| missing("fortran_order"))?,
            shape: shape.ok_or_else(|| missing("shape"))?,
            descr,
        })
    }

    fn skip_spaces(&mut self) {
        self.rest = self.rest.trim_start_matches([' ', '\n', '\t', '\r']);
    }

    fn take(&mut self, mark: char) -> bool {
        self.skip_spaces();
        match self.rest.strip_prefix(mark) {
            Some(rest) => {
                self.rest = rest;
                true
            }
            None => false,
        }
    }

    fn expect(&mut self, mark: char) -> Parsed<()> {
        if self.take(mark) {
            return Ok(());
        }
        match self.rest.chars().next() {
            Some(found) => wrong(format!("expected `{mark}`, found `{}`", found.escape_debug())),
            None => wrong(format!("expected `{mark}`, found the end")),
        }
    }

    fn string(&mut self) -> Parsed<&'a str> {
        self.skip_spaces();
        let Some(quote) = self.rest.chars().next().filter(|c| matches!(c, '\'' | '"')) else {
            return wrong("expected a string");
        };
        let body = &self.rest[1..];
        let Some(end) = body.find(quote) else {
            return wrong("a string does not end");
        };
        self.rest = &body[end + 1..];
        Ok(&body[..end])
    }

    fn boolean(&mut self) -> Parsed<bool> {
        self.skip_spaces();
        for (word, value) in [("True", true), ("False", false)] {
            if let Some(rest) = self.rest.strip_prefix(word) {
                self.rest = rest;
                return Ok(value);
            }
        }
        wrong("`fortran_order` is neither `True` nor `False`")
    }

    fn shape(&mut self) -> Parsed<Vec<usize>> {
        self.expect('(')?;
        let mut shape = Vec::new();
        while !self.take(')') {
            let digits = self.rest.len() - self.rest.trim_start_matches(|c: char| c.is_ascii_digit()).len();
            let (number, rest) = self.rest.split_at(digits);
            let Ok(size) = number.parse() else {
                return wrong("a size of `shape` is no number, or too large");
            };
            self.rest = rest.strip_prefix('L').unwrap_or(rest);
            shape.push(size);
            if shape.len() > MOST_AXES {
                return wrong(format!("`shape` has more than {MOST_AXES} axes"));
            }
            if !self.take(',') {
                self.expect(')')?;
                break;
            }
        }
        Ok(shape)
    }

    fn descr(&mut self) -> Parsed<(String, Kind, usize, ByteOrder)> {
        if !self.take('[') {
            let descr = self.string()?;
            let (kind, width, order) = simple(descr)?;
            return Ok((descr.escape_debug().to_string(), kind, width, order));
        }
        let fields = self.rest;
        match self.opaque_field() {
            Ok((name, field, width, order)) => {
                let shown = format!("[('{}', '{}')]", name.escape_debug(), field.escape_debug());
                Ok((shown, Kind::Record(name.to_owned()), width, order))
            }
            // The brackets of its fields' shapes are round.
            Err(_) if fields.trim_start().starts_with('(') && fields.contains(']') => {
                let end = fields.find(']').unwrap_or(fields.len());
                let descr = format!("[{}]", fields[..end].escape_debug());
                Err(FormatError::DType {
                    descr,
                    hint: "; structured types are not taken: save each field as an array of its own",
                })
            }
            Err(error) => Err(error),
        }
    }

    /// A record of one field of bytes without a meaning, behind its `[`.
    fn opaque_field(&mut self) -> Parsed<(&'a str, &'a str, usize, ByteOrder)> {
        self.expect('(')?;
        let name = self.string()?;
        self.expect(',')?;
        let field = self.string()?;
        self.expect(')')?;
        self.take(',');
        self.expect(']')?;
        match simple(field)? {
            (Kind::Opaque, width, order) => Ok((name, field, width, order)),
            _ => wrong("a field has elements of its own"),
        }
    }
}

/// `<f4` and the like.
fn simple(descr: &str) -> Parsed<(Kind, usize, ByteOrder)> {
    let unknown = || FormatError::DType { descr: descr.escape_debug().to_string(), hint: "" };
    let mut chars = descr.chars();
    let order = match chars.next() {
        Some('<' | '|' | '=') => ByteOrder::Little,
        Some('>') => ByteOrder::Big,
        _ => return Err(unknown()),
    };
    let kind = match chars.next() {
        Some('b') => Kind::Bool,
        Some('i') => Kind::Signed,
        Some('u') => Kind::Unsigned,
        Some('f') => Kind::Float,
        Some('V') => Kind::Opaque,
        _ => return Err(unknown()),
    };
    match chars.as_str() {
        "1" => Ok((kind, 1, order)),
        "2" => Ok((kind, 2, order)),
        "4" => Ok((kind, 4, order)),
        "8" => Ok((kind, 8, order)),
        _ => Err(unknown()),
    }
}
