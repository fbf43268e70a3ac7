//! Reading an argument's text from left to right, with positions.

use tessera_ir::{Diagnostic, Extent, SourceId, SourceMap, Span};
use tessera_lang::ConstValue;
use tessera_types::DType;

pub(crate) type Parsed<T> = Result<T, Box<Diagnostic>>;

/// Tuples nest at most this deep.
const MAX_DEPTH: usize = 16;

/// A cursor in an argument's text.
pub(crate) struct Scanner {
    source: SourceId,
    text: String,
    at: usize,
}

impl Scanner {
    pub(crate) fn new(sources: &mut SourceMap, text: &str) -> Scanner {
        Scanner { source: sources.add("<argument>", text), text: text.to_owned(), at: 0 }
    }

    pub(crate) fn mark(&self) -> usize {
        self.at
    }

    fn left(&self) -> &str {
        &self.text[self.at..]
    }

    /// A mistake from `start` to here, or at the next character where nothing was read.
    pub(crate) fn error(&self, start: usize, message: impl Into<String>) -> Diagnostic {
        let next = self.text[start..].chars().next().map_or(0, char::len_utf8);
        self.error_at(start, (self.at - start).max(next), message)
    }

    pub(crate) fn error_at(&self, start: usize, len: usize, message: impl Into<String>) -> Diagnostic {
        Diagnostic::error("argument", Span { source: self.source, start: start as u32, end: (start + len) as u32 }, message)
    }

    fn skip_spaces(&mut self) {
        self.at = self.text.len() - self.left().trim_start().len();
    }

    pub(crate) fn at(&self, mark: &str) -> bool {
        self.left().trim_start().starts_with(mark)
    }

    pub(crate) fn take(&mut self, mark: &str) -> bool {
        let found = self.at(mark);
        if found {
            self.skip_spaces();
            self.at += mark.len();
        }
        found
    }

    pub(crate) fn expect(&mut self, mark: &str) -> Parsed<()> {
        if self.take(mark) {
            return Ok(());
        }
        self.skip_spaces();
        Err(self.error(self.at, format!("expected `{mark}`")).into())
    }

    pub(crate) fn finish(&mut self) -> Parsed<()> {
        self.skip_spaces();
        if self.left().is_empty() {
            return Ok(());
        }
        let start = self.at;
        self.at = self.text.len();
        Err(self.error(start, "unexpected text after the argument").into())
    }

    /// Everything up to one of `ends`, or to the end.
    pub(crate) fn until(&mut self, ends: &[char]) -> String {
        let text = self.left().split(ends).next().unwrap_or_default().to_owned();
        self.at += text.len();
        text
    }

    /// Letters, digits, underscores and dots.
    pub(crate) fn peek_word(&self) -> String {
        self.left().trim_start().chars().take_while(|c| c.is_alphanumeric() || matches!(c, '_' | '.')).collect()
    }

    pub(crate) fn word(&mut self) -> String {
        let word = self.peek_word();
        self.skip_spaces();
        self.at += word.len();
        word
    }

    /// True when a word that begins with a letter comes next, and then `mark`.
    pub(crate) fn word_then(&self, mark: &str) -> bool {
        let word = self.peek_word();
        word.starts_with(char::is_alphabetic) && self.left().trim_start()[word.len()..].trim_start().starts_with(mark)
    }

    /// `NAME=`.
    pub(crate) fn name(&mut self) -> Parsed<String> {
        let start = self.at;
        let word = self.word();
        let valid = !word.contains('.') && word.starts_with(|c: char| c.is_alphabetic() || c == '_');
        if !valid {
            return Err(self.error(start, "expected an argument's name").help("write `NAME=VALUE`, such as `n=4096`").into());
        }
        if !self.take("=") {
            return Err(self
                .error(self.at, "expected `=` after the argument's name")
                .help(format!("write `{word}=VALUE`"))
                .into());
        }
        Ok(word)
    }

    /// An element type's name, in any of its spellings; a module before it (`ct.float32`) is ignored.
    pub(crate) fn dtype_word(&mut self) -> Option<DType> {
        let word = self.peek_word();
        let dtype = DType::parse(word.rsplit('.').next()?)?;
        self.word();
        Some(dtype)
    }

    pub(crate) fn unsigned(&mut self) -> Parsed<u64> {
        self.skip_spaces();
        let start = self.at;
        let word = self.word();
        word.replace('_', "").parse().map_err(|_| self.error(start, "expected a whole number").into())
    }

    /// `[D0,D1,...]`, each with its position.
    pub(crate) fn extents(&mut self) -> Parsed<Vec<(usize, Extent)>> {
        self.expect("[")?;
        self.items("]", |scanner| {
            scanner.skip_spaces();
            let start = scanner.at;
            let extent = if scanner.take("?") {
                Extent::Dynamic
            } else {
                let word = scanner.word().replace('_', "");
                let is_number = !word.is_empty() && word.bytes().all(|byte| byte.is_ascii_digit());
                Extent::Static(word.parse::<u32>().map(i64::from).map_err(|_| {
                    match is_number {
                        true => scanner
                            .error(start, format!("{word} elements along one axis are too many"))
                            .help(format!("{} is the most", u32::MAX)),
                        false => scanner.error(start, "a size is a number or `?`"),
                    }
                })?)
            };
            Ok((start, extent))
        })
    }

    /// What stands between a bracket that was taken and its `end`, with commas between.
    pub(crate) fn items<T>(&mut self, end: &str, mut item: impl FnMut(&mut Scanner) -> Parsed<T>) -> Parsed<Vec<T>> {
        let mut items = Vec::new();
        while !self.take(end) {
            items.push(item(self)?);
            if !self.take(",") && !self.at(end) {
                self.skip_spaces();
                return Err(self.error(self.at, format!("expected `,` or `{end}`")).into());
            }
        }
        Ok(items)
    }

    /// The items of a tuple, if one begins here, `depth` tuples deep; each is read one deeper.
    pub(crate) fn tuple<T>(
        &mut self,
        depth: usize,
        mut item: impl FnMut(&mut Scanner, usize) -> Parsed<T>,
    ) -> Parsed<Option<Vec<T>>> {
        self.skip_spaces();
        if depth > MAX_DEPTH {
            return Err(self.error(self.at, "the tuples nest too deeply").into());
        }
        if !self.take("(") {
            return Ok(None);
        }
        self.items(")", |scanner| item(scanner, depth + 1)).map(Some)
    }

    /// A literal, an element type's name, or a bare string.
    pub(crate) fn value(&mut self) -> Parsed<ConstValue> {
        self.skip_spaces();
        let start = self.at;
        for quote in ["'", "\""] {
            if self.take(quote) {
                let Some(len) = self.left().find(quote) else {
                    self.at = self.text.len();
                    return Err(self.error(start, "the string does not end").into());
                };
                let string = self.left()[..len].to_owned();
                self.at += len + 1;
                return Ok(ConstValue::Str(string));
            }
        }
        let word: String =
            self.left().chars().take_while(|c| c.is_alphanumeric() || matches!(c, '_' | '.' | '-' | '+')).collect();
        if word.is_empty() {
            return Err(self.error(start, "expected a value").help("quote a string that has spaces or signs in it").into());
        }
        self.at += word.len();
        match word.as_str() {
            "None" => return Ok(ConstValue::None),
            "True" => return Ok(ConstValue::Bool(true)),
            "False" => return Ok(ConstValue::Bool(false)),
            _ => {}
        }
        let digits = word.trim_start_matches(['-', '+']);
        if word.len() - digits.len() <= 1 && digits.starts_with(|c: char| c.is_ascii_digit() || c == '.') {
            return self.number(start, &word);
        }
        match digits {
            "inf" | "nan" => Ok(ConstValue::Float(word.parse().unwrap_or(f64::NAN))),
            _ => match word.rsplit('.').next().and_then(DType::parse) {
                Some(dtype) => Ok(ConstValue::DType(dtype)),
                None => Ok(ConstValue::Str(word)),
            },
        }
    }

    fn number(&self, start: usize, word: &str) -> Parsed<ConstValue> {
        let plain = word.replace('_', "");
        let (sign, digits) = match plain.strip_prefix('-') {
            Some(digits) => (-1, digits),
            None => (1, plain.strip_prefix('+').unwrap_or(&plain)),
        };
        let radix = match digits.get(..2) {
            Some("0x" | "0X") => Some(16),
            Some("0b" | "0B") => Some(2),
            Some("0o" | "0O") => Some(8),
            _ => None,
        };
        let integer = match radix {
            Some(radix) => i128::from_str_radix(&digits[2..], radix).ok(),
            None => digits.parse::<i128>().ok(),
        };
        if let Some(magnitude) = integer {
            return match i64::try_from(magnitude.saturating_mul(sign)) {
                Ok(value) => Ok(ConstValue::Int(value)),
                Err(_) => Err(self.error(start, "the integer does not fit 64 bits").into()),
            };
        }
        match plain.parse::<f64>() {
            Ok(value) => Ok(ConstValue::Float(value)),
            Err(_) => Err(self.error(start, format!("`{word}` is not a number")).help("quote it if it is a string").into()),
        }
    }
}
