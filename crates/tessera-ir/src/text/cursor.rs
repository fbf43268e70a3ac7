//! The scanner under every text form: a position in a text, with whitespace and `//` comments skipped before each token.

use tessera_types::DType;

use crate::diag::{Diagnostic, SourceId, Span};

/// A syntax error is a diagnostic; boxed, since the good path is the common one.
pub type Parsed<T> = Result<T, Box<Diagnostic>>;

/// A position in a source text.
#[derive(Clone)]
pub struct Cursor<'a> {
    text: &'a str,
    source: SourceId,
    position: usize,
}

impl<'a> Cursor<'a> {
    /// The start of a text.
    pub fn new(source: SourceId, text: &'a str) -> Self {
        Cursor { text, source, position: 0 }
    }

    /// The byte offset of the next token.
    pub fn offset(&mut self) -> usize {
        loop {
            let rest = &self.text[self.position..];
            let trimmed = rest.trim_start();
            self.position += rest.len() - trimmed.len();
            if !trimmed.starts_with("//") {
                return self.position;
            }
            self.position += trimmed.find('\n').unwrap_or(trimmed.len());
        }
    }

    /// The span from an offset to the end of the last token.
    pub fn span_from(&self, start: usize) -> Span {
        Span { source: self.source, start: start as u32, end: self.position.max(start) as u32 }
    }

    /// The byte offset just after the last token taken.
    pub fn position(&self) -> usize {
        self.position
    }

    /// What is left, from the next token on.
    pub fn rest(&mut self) -> &'a str {
        let start = self.offset();
        &self.text[start..]
    }

    /// Moves past `bytes` bytes of [`Cursor::rest`].
    pub fn skip(&mut self, bytes: usize) {
        self.position += bytes;
    }

    /// True at the end of the text.
    pub fn at_end(&mut self) -> bool {
        self.rest().is_empty()
    }

    /// Takes the punctuation if it is next.
    pub fn eat(&mut self, punctuation: &str) -> bool {
        let found = self.rest().starts_with(punctuation);
        if found {
            self.position += punctuation.len();
        }
        found
    }

    /// Takes the punctuation, or says what was found instead.
    pub fn expect(&mut self, punctuation: &str) -> Parsed<()> {
        if self.eat(punctuation) { Ok(()) } else { Err(self.unexpected(&format!("`{punctuation}`"))) }
    }

    /// True when the text goes on with this punctuation.
    pub fn peek(&mut self, punctuation: &str) -> bool {
        self.rest().starts_with(punctuation)
    }

    /// A word of letters, digits, `_` and `.` that starts with a letter or `_`.
    pub fn word(&mut self) -> Option<&'a str> {
        let rest = self.rest();
        if !rest.starts_with(|c: char| c.is_ascii_alphabetic() || c == '_') {
            return None;
        }
        let end = rest.find(|c: char| !(c.is_ascii_alphanumeric() || c == '_' || c == '.')).unwrap_or(rest.len());
        self.position += end;
        Some(&rest[..end])
    }

    /// A word, or a complaint that names what was wanted.
    pub fn expect_word(&mut self, wanted: &str) -> Parsed<&'a str> {
        match self.word() {
            Some(word) => Ok(word),
            None => Err(self.unexpected(wanted)),
        }
    }

    /// Takes the word if it is next, as a whole.
    pub fn eat_word(&mut self, word: &str) -> bool {
        let before = self.position;
        if self.word() == Some(word) {
            return true;
        }
        self.position = before;
        false
    }

    /// A name after a sigil: `%x`, `@kernel`. Letters, digits, `_`, `.` and `$`.
    pub fn sigil(&mut self, sigil: char) -> Parsed<&'a str> {
        let rest = self.rest();
        let Some(name) = rest.strip_prefix(sigil) else {
            return Err(self.unexpected(&format!("a name that starts with `{sigil}`")));
        };
        let end = name.find(|c: char| !(c.is_ascii_alphanumeric() || matches!(c, '_' | '.' | '$'))).unwrap_or(name.len());
        if end == 0 {
            return Err(self.unexpected(&format!("a name after `{sigil}`")));
        }
        self.position += sigil.len_utf8() + end;
        Ok(&name[..end])
    }

    /// The characters of a number: sign, digits, letters, point; whatever a number of any kind is made of.
    pub fn number(&mut self) -> Parsed<&'a str> {
        let rest = self.rest();
        let mut end = 0;
        let mut previous = '(';
        for c in rest.chars() {
            let sign = matches!(c, '+' | '-') && (end == 0 || matches!(previous, 'e' | 'E'));
            if !(sign || c.is_ascii_alphanumeric() || c == '.') {
                break;
            }
            end += c.len_utf8();
            previous = c;
        }
        if end == 0 {
            return Err(self.unexpected("a number"));
        }
        self.position += end;
        Ok(&rest[..end])
    }

    /// A decimal integer in the range of `T`.
    pub fn integer<T: std::str::FromStr>(&mut self) -> Parsed<T> {
        let start = self.offset();
        let rest = self.rest();
        let digits = rest.strip_prefix('-').unwrap_or(rest);
        let sign = rest.len() - digits.len();
        let end = sign + digits.find(|c: char| !c.is_ascii_digit()).unwrap_or(digits.len());
        if end == sign {
            return Err(self.unexpected("an integer"));
        }
        self.position += end;
        rest[..end].parse().map_err(|_| {
            Box::new(Diagnostic::error(
                "ir-integer-range",
                self.span_from(start),
                format!("`{}` is out of range here", &rest[..end]),
            ))
        })
    }

    /// A string in double quotes with `\"`, `\\` and `\n` escapes.
    pub fn string(&mut self) -> Parsed<String> {
        let start = self.offset();
        self.expect("\"")?;
        let mut value = String::new();
        let mut chars = self.text[self.position..].char_indices();
        while let Some((i, c)) = chars.next() {
            match c {
                '"' => {
                    self.position += i + 1;
                    return Ok(value);
                }
                '\\' => match chars.next() {
                    Some((_, 'n')) => value.push('\n'),
                    Some((_, escaped)) => value.push(escaped),
                    None => break,
                },
                c => value.push(c),
            }
        }
        self.position = self.text.len();
        Err(Box::new(Diagnostic::error("ir-syntax", self.span_from(start), "this string has no closing quote")))
    }

    /// An element type in the IR's spelling (`i1` for truth values).
    pub fn dtype(&mut self) -> Parsed<DType> {
        let start = self.offset();
        let word = self.expect_word("an element type")?;
        let found = if word == "i1" { Some(DType::B1) } else { DType::ALL.iter().copied().find(|t| t.name() == word) };
        found.ok_or_else(|| {
            Box::new(Diagnostic::error("ir-type", self.span_from(start), format!("`{word}` is not an element type")))
        })
    }

    /// A list `open item, item close`.
    pub fn list<T>(&mut self, open: &str, close: &str, mut item: impl FnMut(&mut Self) -> Parsed<T>) -> Parsed<Vec<T>> {
        self.expect(open)?;
        let mut items = Vec::new();
        if self.eat(close) {
            return Ok(items);
        }
        loop {
            items.push(item(self)?);
            if self.eat(close) {
                return Ok(items);
            }
            self.expect(",")?;
        }
    }

    /// An error at the next token that says what was wanted.
    pub fn unexpected(&mut self, wanted: &str) -> Box<Diagnostic> {
        let start = self.offset();
        let found: String = self.rest().chars().take_while(|c| !c.is_whitespace()).take(24).collect();
        let shown = if found.is_empty() { "the end of the text".to_string() } else { format!("`{found}`") };
        let span = Span { source: self.source, start: start as u32, end: (start + found.len().max(1)) as u32 };
        Box::new(Diagnostic::error("ir-syntax", span, format!("expected {wanted}, found {shown}")))
    }
}
