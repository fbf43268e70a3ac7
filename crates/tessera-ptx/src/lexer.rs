//! PTX text to tokens, each with its line and column. Never fails: what cannot be read becomes [`Token::Bad`], which the
//! parser reports where it meets it.

/// A piece of text.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Token<'a> {
    /// `add`, `%r1`, `$L_1`, `_`
    Ident(&'a str),
    /// `.sync`, `.shared::cta`, without the dot
    Dotted(&'a str),
    /// An integer, as the 64 bits it means, and whether it is unsigned: it says so, or is beyond `i64`.
    Int(i64, bool),
    /// `0f3F800000`
    F32(u32),
    /// `0d...` or a decimal fraction
    F64(u64),
    /// `"..."`
    Str(&'a str),
    /// A single character.
    Punct(char),
    /// Something that cannot be read, and why.
    Bad(&'static str),
    /// The end of the text.
    End,
}

#[derive(Clone, Copy, Debug)]
pub(crate) struct Spot {
    pub(crate) line: u32,
    pub(crate) column: u32,
}

pub(crate) struct Lexer<'a> {
    text: &'a str,
    at: usize,
    line: u32,
    line_start: usize,
    /// A place on the current line and its column: columns are counted on from there.
    counted: (usize, u32),
}

impl<'a> Lexer<'a> {
    pub(crate) fn new(text: &'a str) -> Lexer<'a> {
        Lexer { text, at: 0, line: 1, line_start: 0, counted: (0, 1) }
    }

    fn rest(&self) -> &'a [u8] {
        &self.text.as_bytes()[self.at..]
    }

    fn take(&mut self, wanted: impl Fn(u8) -> bool) -> &'a str {
        let length = self.rest().iter().take_while(|&&byte| wanted(byte)).count();
        let piece = &self.text[self.at..self.at + length];
        self.at += length;
        piece
    }

    fn newlines(&mut self, from: usize) {
        for (index, byte) in self.text.as_bytes()[from..self.at].iter().enumerate() {
            if *byte == b'\n' {
                self.line += 1;
                self.line_start = from + index + 1;
            }
        }
    }

    fn skip_blanks(&mut self) -> Result<(), &'static str> {
        loop {
            let from = self.at;
            self.at += self.rest().iter().take_while(|byte| byte.is_ascii_whitespace()).count();
            if self.rest().starts_with(b"//") {
                self.at += self.rest().iter().take_while(|&&byte| byte != b'\n').count();
            } else if self.rest().starts_with(b"/*") {
                match self.text[self.at + 2..].find("*/") {
                    Some(end) => self.at += end + 4,
                    None => {
                        self.at = self.text.len();
                        self.newlines(from);
                        return Err("a comment is not closed");
                    }
                }
            }
            self.newlines(from);
            if self.at == from {
                return Ok(());
            }
        }
    }

    /// The character right behind the last token.
    pub(crate) fn adjacent(&self) -> Option<char> {
        self.text[self.at..].chars().next()
    }

    pub(crate) fn next(&mut self) -> (Token<'a>, Spot) {
        let blanks = self.skip_blanks();
        let (from, column) = if self.counted.0 < self.line_start { (self.line_start, 1) } else { self.counted };
        let column = column + self.text[from..self.at].chars().count() as u32;
        self.counted = (self.at, column);
        let spot = Spot { line: self.line, column };
        let token = match blanks {
            Err(problem) => Token::Bad(problem),
            Ok(()) => self.token(),
        };
        (token, spot)
    }

    /// The text up to a closing brace, which is taken too; `None` where there is none.
    pub(crate) fn until_brace(&mut self) -> Option<&'a str> {
        let from = self.at;
        let length = self.text[from..].find('}')?;
        self.at = from + length + 1;
        self.newlines(from);
        Some(&self.text[from..from + length])
    }

    fn token(&mut self) -> Token<'a> {
        let name = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'$');
        let Some(&first) = self.rest().first() else { return Token::End };
        match first {
            b'0'..=b'9' => self.number(),
            b'.' => {
                self.at += 1;
                let piece = self.take(|byte| name(byte) || byte == b':');
                // A label's colon is no part of a modifier; `::` is.
                if piece.is_empty() { Token::Bad("a dot without a name behind it") } else { Token::Dotted(piece) }
            }
            b'%' | b'_' | b'$' => {
                let from = self.at;
                self.at += 1;
                let piece = self.take(name);
                // Alone it is the remainder.
                if first == b'%' && piece.is_empty() {
                    return Token::Punct('%');
                }
                Token::Ident(&self.text[from..self.at])
            }
            b'"' => {
                self.at += 1;
                let piece = self.take(|byte| byte != b'"' && byte != b'\n');
                if self.rest().first() == Some(&b'"') {
                    self.at += 1;
                    Token::Str(piece)
                } else {
                    Token::Bad("a string is not closed")
                }
            }
            _ if first.is_ascii_alphabetic() => Token::Ident(self.take(name)),
            _ => {
                let character = self.text[self.at..].chars().next().unwrap_or(' ');
                self.at += character.len_utf8();
                Token::Punct(character)
            }
        }
    }

    fn number(&mut self) -> Token<'a> {
        let rest = self.rest();
        let radix = match (rest[0], rest.get(1).map(u8::to_ascii_lowercase)) {
            (b'0', Some(b'f')) => return self.float_bits(8),
            (b'0', Some(b'd')) => return self.float_bits(16),
            (b'0', Some(b'x')) => 16,
            (b'0', Some(b'b')) => 2,
            _ => 10,
        };
        if radix == 10 {
            return self.decimal();
        }
        self.at += 2;
        let digits = self.take(|byte| byte.is_ascii_alphanumeric());
        let plain = digits.strip_suffix(['U', 'u']);
        Lexer::integer(plain.unwrap_or(digits), radix, plain.is_some())
    }

    fn integer(digits: &str, radix: u32, unsigned: bool) -> Token<'a> {
        match u64::from_str_radix(digits, radix) {
            // `+5` is legal Rust, but the sign is a token of its own here.
            Ok(value) if !digits.starts_with('+') => Token::Int(value.cast_signed(), unsigned || value > i64::MAX as u64),
            _ => Token::Bad("a number that no 64 bits hold"),
        }
    }

    fn float_bits(&mut self, digits: usize) -> Token<'a> {
        self.at += 2;
        let piece = self.take(|byte| byte.is_ascii_hexdigit());
        match u64::from_str_radix(piece, 16) {
            Ok(bits) if piece.len() == digits && digits == 8 => Token::F32(bits as u32),
            Ok(bits) if piece.len() == digits => Token::F64(bits),
            _ => Token::Bad("a floating-point number in hexadecimal has 8 digits behind `0f`, 16 behind `0d`"),
        }
    }

    fn decimal(&mut self) -> Token<'a> {
        let from = self.at;
        let digits = self.take(|byte| byte.is_ascii_digit());
        let mut float = false;
        if self.rest().first() == Some(&b'.') && self.rest().get(1).is_some_and(u8::is_ascii_digit) {
            float = true;
            self.at += 1;
            self.take(|byte| byte.is_ascii_digit());
        }
        if self.rest().first().is_some_and(|byte| byte.eq_ignore_ascii_case(&b'e')) {
            let sign = usize::from(self.rest().get(1).is_some_and(|byte| matches!(byte, b'+' | b'-')));
            if self.rest().get(1 + sign).is_some_and(u8::is_ascii_digit) {
                float = true;
                self.at += 1 + sign;
                self.take(|byte| byte.is_ascii_digit());
            }
        }
        if float {
            return match self.text[from..self.at].parse::<f64>() {
                Ok(value) => Token::F64(value.to_bits()),
                Err(_) => Token::Bad("a number that cannot be read"),
            };
        }
        let unsigned = self.rest().first().is_some_and(|byte| byte.eq_ignore_ascii_case(&b'u'));
        self.at += usize::from(unsigned);
        if self.rest().first().is_some_and(|&byte| byte.is_ascii_alphanumeric() || byte == b'_') {
            self.take(|byte| byte.is_ascii_alphanumeric() || byte == b'_');
            return Token::Bad("a number with letters behind it");
        }
        let octal = digits.len() > 1 && digits.starts_with('0');
        Lexer::integer(digits, if octal { 8 } else { 10 }, unsigned)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tokens(text: &str) -> Vec<Token<'_>> {
        let mut lexer = Lexer::new(text);
        std::iter::from_fn(|| Some(lexer.next().0)).take_while(|token| *token != Token::End).collect()
    }

    #[test]
    fn numbers_are_read_in_every_spelling() {
        let numbers = [(16, false), (8, false), (3, false), (7, true), (-1, true)];
        assert_eq!(tokens("0x10 010 0b11 7U 0xFFFFFFFFFFFFFFFF"), numbers.map(|(value, unsigned)| Token::Int(value, unsigned)));
        assert_eq!(tokens("0f3F800000 1.5"), [Token::F32(0x3f80_0000), Token::F64(1.5f64.to_bits())]);
        for bad in ["12ab", "0f12", "0x", "99999999999999999999", "\"open", "/* open", "."] {
            assert!(tokens(bad).iter().any(|token| matches!(token, Token::Bad(_))), "{bad}");
        }
    }

    #[test]
    fn columns_count_characters() {
        let mut lexer = Lexer::new("// é\n é add");
        lexer.next();
        let (token, spot) = lexer.next();
        assert_eq!((token, spot.line, spot.column), (Token::Ident("add"), 2, 4));
    }
}
