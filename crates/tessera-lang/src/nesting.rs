//! Bounds on how deep a source text can nest, checked before anything recursive reads it.
//!
//! The check counts open brackets, indentation and the operators of one logical line; strings and comments are skipped. A
//! text that passes can't overflow the stack of the parser or of anything that walks the tree.

use tessera_ir::{Diagnostic, SourceId, Span};

use crate::diagnostics::id;

/// Largest accepted source text.
const MAX_BYTES: usize = 4 << 20;
/// Open brackets at one place.
const MAX_BRACKETS: usize = 64;
/// Leading blanks of one line.
const MAX_INDENT: usize = 400;
/// Operators and words that can nest an expression, in one logical line, commas resetting the count.
const MAX_OPERATORS: usize = 256;

/// Refuses texts that nest too deeply.
pub(crate) fn check(source: SourceId, text: &str) -> Result<(), Box<Diagnostic>> {
    let fail = |at: usize, what: &str, limit: usize| {
        let span = Span { source, start: at as u32, end: (at + 1).min(text.len()) as u32 };
        Err(Box::new(
            Diagnostic::error(id::TOO_DEEP, span, format!("the source is nested too deeply: {what}"))
                .label(format!("the limit of {limit} is passed here"))
                .help("split the expression into several statements"),
        ))
    };
    if text.len() > MAX_BYTES {
        return fail(0, "the file is too large", MAX_BYTES);
    }
    let bytes = text.as_bytes();
    let (mut at, mut brackets, mut operators) = (0, 0usize, 0);
    let mut line_start = true;
    while at < bytes.len() {
        if line_start {
            let blanks = bytes[at..].iter().take_while(|b| matches!(b, b' ' | b'\t' | b'\x0c')).count();
            if blanks > MAX_INDENT && brackets == 0 {
                return fail(at, "too much indentation", MAX_INDENT);
            }
            at += blanks;
            line_start = false;
            continue;
        }
        let byte = bytes[at];
        match byte {
            b'\n' | b'\r' => {
                line_start = true;
                if brackets == 0 && at > 0 && bytes[at - 1] != b'\\' {
                    operators = 0;
                }
            }
            b'#' => {
                at += bytes[at..].iter().take_while(|&&b| b != b'\n' && b != b'\r').count();
                continue;
            }
            b'"' | b'\'' => {
                // The holes of an f-string nest too, so its quotes are skipped and its text is read as code.
                let prefix = bytes[..at].iter().rev().take(2).any(|b| matches!(b, b'f' | b'F'));
                if !prefix {
                    at = skip_string(bytes, at);
                    continue;
                }
            }
            b'(' | b'[' | b'{' => {
                brackets += 1;
                if brackets > MAX_BRACKETS {
                    return fail(at, "too many open brackets", MAX_BRACKETS);
                }
            }
            b')' | b']' | b'}' => brackets = brackets.saturating_sub(1),
            b',' => operators = 0,
            b'+' | b'-' | b'*' | b'/' | b'%' | b'~' | b'@' | b'&' | b'|' | b'^' | b'<' | b'>' | b'=' | b'!' | b'.' | b':' => {
                operators += 1
            }
            b if b.is_ascii_alphabetic() || b == b'_' => {
                let word = bytes[at..].iter().take_while(|b| b.is_ascii_alphanumeric() || **b == b'_').count();
                if matches!(
                    &bytes[at..at + word],
                    b"not" | b"lambda" | b"if" | b"else" | b"await" | b"yield" | b"and" | b"or" | b"in" | b"is"
                ) {
                    operators += 1;
                }
                // A prefix letter must stay visible to the string check above, so the word's end is where reading goes on.
                at += word;
                if operators > MAX_OPERATORS {
                    return fail(at.min(bytes.len()) - 1, "too many operators in one line", MAX_OPERATORS);
                }
                continue;
            }
            _ => {}
        }
        if operators > MAX_OPERATORS {
            return fail(at, "too many operators in one line", MAX_OPERATORS);
        }
        at += 1;
    }
    Ok(())
}

/// The offset behind a string literal that starts with the quote at `at`.
fn skip_string(bytes: &[u8], at: usize) -> usize {
    let quote = bytes[at];
    let triple = bytes[at..].starts_with(&[quote; 3]);
    let mut at = at + if triple { 3 } else { 1 };
    while at < bytes.len() {
        match bytes[at] {
            b'\\' => at += 1,
            b'\n' if !triple => return at,
            b if b == quote && !triple => return at + 1,
            b if b == quote && bytes[at..].starts_with(&[quote; 3]) => return at + 3,
            _ => {}
        }
        at += 1;
    }
    bytes.len()
}

#[cfg(test)]
mod tests {
    use tessera_ir::{EntityId, SourceId};

    use super::check;

    #[test]
    fn deep_texts_are_refused_and_plain_ones_pass() {
        let source = SourceId::new(0);
        for text in ["(".repeat(5000), "-".repeat(5000), "not ".repeat(5000), format!("x = {}", "a if b else ".repeat(5000))] {
            assert!(check(source, &text).is_err(), "{} bytes pass", text.len());
        }
        let table = format!("x = ({})", "-1, ".repeat(5000));
        assert!(check(source, &table).is_ok());
        assert!(check(source, "s = '((((' # ((((\n\"\"\"\n((((\n\"\"\"\n").is_ok());
    }
}
