//! The text as it is written: functions, statements, operands, types, nothing of what they mean.
//!
//! Every statement but `scf.for`, `scf.if`, `return` and `scf.yield` has one form, of which each operation uses a part:
//!
//! ```text
//! %r, %s = name %value[%i, 0], 1.5, word, other(%x) {key = "text", flag} : type, type -> type
//! ```

use crate::memref::{Ty, ty};
use tessera_ir::text::cursor::{Cursor, Parsed};
use tessera_ir::{Diagnostic, Span};

/// Regions and calls nested deeper than this are refused: the parser is recursive.
const MAX_DEPTH: usize = 64;

/// A word or number and where it stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Word<'a> {
    pub(super) text: &'a str,
    pub(super) span: Span,
}

/// One entry of a bracketed list.
#[derive(Clone, Copy, Debug)]
pub(super) enum Index<'a> {
    Value(Word<'a>),
    Number(i64, Span),
}

/// What stands between an operation's name and its attributes.
#[derive(Clone, Debug)]
pub(super) enum Operand<'a> {
    /// `%x`, `%x[%i, 0]`, `%x[...] [...] [...]`.
    Value { name: Word<'a>, lists: Vec<Vec<Index<'a>>> },
    /// A literal.
    Number(Word<'a>),
    /// A bare word such as `slt`.
    Word(Word<'a>),
    /// An operation written where its result is used.
    Call(Statement<'a>),
}

/// The value of an attribute.
#[derive(Clone, Debug)]
pub(super) enum Attribute<'a> {
    Flag,
    Text(String),
    Word(&'a str),
    Number(i64),
}

/// `{key = value}` entries with their places.
pub(super) type Attributes<'a> = Vec<(Word<'a>, Attribute<'a>)>;

/// What an operation encloses.
#[derive(Clone, Debug)]
pub(super) enum Body<'a> {
    None,
    For { counter: Word<'a>, bounds: Box<[Operand<'a>; 3]>, carried: Vec<(Word<'a>, Operand<'a>)>, body: Vec<Statement<'a>> },
    If { then: Vec<Statement<'a>>, orelse: Vec<Statement<'a>> },
}

/// An operation.
#[derive(Clone, Debug)]
pub(super) struct Statement<'a> {
    pub(super) results: Vec<Word<'a>>,
    pub(super) name: Word<'a>,
    pub(super) operands: Vec<Operand<'a>>,
    pub(super) attributes: Attributes<'a>,
    /// The types of operands, and behind `->` or `to` those of results.
    pub(super) types: Vec<(Ty, Span)>,
    pub(super) result_types: Vec<(Ty, Span)>,
    pub(super) body: Box<Body<'a>>,
    pub(super) span: Span,
}

/// A parameter.
#[derive(Clone, Debug)]
pub(super) struct Parameter<'a> {
    pub(super) name: Word<'a>,
    pub(super) ty: Ty,
    pub(super) attributes: Attributes<'a>,
}

/// `func @name(parameters) -> results attributes {...} { body }`.
#[derive(Clone, Debug)]
pub(super) struct Function<'a> {
    pub(super) name: Word<'a>,
    pub(super) parameters: Vec<Parameter<'a>>,
    pub(super) results: Vec<(Ty, Span)>,
    pub(super) attributes: Attributes<'a>,
    pub(super) body: Vec<Statement<'a>>,
}

/// Reads a function behind the word `func`.
pub(super) fn function<'a>(cursor: &mut Cursor<'a>) -> Parsed<Function<'a>> {
    let name = sigil(cursor, '@')?;
    let parameters = cursor.list("(", ")", parameter)?;
    let results = if cursor.eat("->") { types_in_brackets(cursor)? } else { Vec::new() };
    let attributes = if cursor.eat_word("attributes") { attributes(cursor)? } else { Vec::new() };
    let body = block(cursor, 0)?;
    Ok(Function { name, parameters, results, attributes, body })
}

fn parameter<'a>(cursor: &mut Cursor<'a>) -> Parsed<Parameter<'a>> {
    let name = sigil(cursor, '%')?;
    cursor.expect(":")?;
    let ty = ty(cursor)?;
    let attributes = if cursor.peek("{") { attributes(cursor)? } else { Vec::new() };
    Ok(Parameter { name, ty, attributes })
}

fn typed(cursor: &mut Cursor<'_>) -> Parsed<(Ty, Span)> {
    let start = cursor.offset();
    let ty = ty(cursor)?;
    Ok((ty, cursor.span_from(start)))
}

fn types_in_brackets(cursor: &mut Cursor<'_>) -> Parsed<Vec<(Ty, Span)>> {
    if cursor.peek("(") { cursor.list("(", ")", typed) } else { types(cursor) }
}

fn types(cursor: &mut Cursor<'_>) -> Parsed<Vec<(Ty, Span)>> {
    let mut types = vec![typed(cursor)?];
    while cursor.eat(",") {
        types.push(typed(cursor)?);
    }
    Ok(types)
}

fn sigil<'a>(cursor: &mut Cursor<'a>, sigil: char) -> Parsed<Word<'a>> {
    let start = cursor.offset();
    let text = cursor.sigil(sigil)?;
    Ok(Word { text, span: cursor.span_from(start) })
}

fn word<'a>(cursor: &mut Cursor<'a>, wanted: &str) -> Parsed<Word<'a>> {
    let start = cursor.offset();
    let text = cursor.expect_word(wanted)?;
    Ok(Word { text, span: cursor.span_from(start) })
}

fn block<'a>(cursor: &mut Cursor<'a>, depth: usize) -> Parsed<Vec<Statement<'a>>> {
    if depth > MAX_DEPTH {
        return Err(too_deep(cursor));
    }
    cursor.expect("{")?;
    let mut statements = Vec::new();
    while !cursor.eat("}") {
        statements.push(statement(cursor, depth)?);
    }
    Ok(statements)
}

fn too_deep(cursor: &mut Cursor<'_>) -> Box<Diagnostic> {
    let start = cursor.offset();
    Box::new(Diagnostic::error("ir-depth", cursor.span_from(start), "regions or calls are nested too deeply"))
}

fn statement<'a>(cursor: &mut Cursor<'a>, depth: usize) -> Parsed<Statement<'a>> {
    let start = cursor.offset();
    let mut results = Vec::new();
    if cursor.peek("%") {
        loop {
            results.push(sigil(cursor, '%')?);
            if !cursor.eat(",") {
                break;
            }
        }
        cursor.expect("=")?;
        if cursor.peek("%") {
            let found = cursor.unexpected("an operation");
            return Err(Box::new((*found).help(
                "a name is defined once and is no variable: write `tile.copy %new, %old` to change what a register memref holds",
            )));
        }
    }
    let name = word(cursor, "an operation")?;
    let mut made = Statement {
        results,
        name,
        operands: Vec::new(),
        attributes: Vec::new(),
        types: Vec::new(),
        result_types: Vec::new(),
        body: Box::new(Body::None),
        span: name.span,
    };
    match name.text {
        "scf.for" => count(cursor, &mut made, depth)?,
        "scf.if" => {
            made.operands.push(operand(cursor, depth)?);
            if cursor.eat("->") {
                made.result_types = types_in_brackets(cursor)?;
            }
            let then = block(cursor, depth + 1)?;
            let orelse = if cursor.eat_word("else") { block(cursor, depth + 1)? } else { Vec::new() };
            *made.body = Body::If { then, orelse };
        }
        _ => {
            made.operands = operands(cursor, depth)?;
            if cursor.peek("{") {
                made.attributes = attributes(cursor)?;
            }
            if cursor.eat(":") {
                made.types = if cursor.peek("(") { types_in_brackets(cursor)? } else { types(cursor)? };
                if cursor.eat("->") || cursor.eat_word("to") {
                    made.result_types = types_in_brackets(cursor)?;
                }
            }
        }
    }
    made.span = cursor.span_from(start);
    if !matches!(*made.body, Body::None) {
        made.span = name.span;
    }
    Ok(made)
}

fn count<'a>(cursor: &mut Cursor<'a>, made: &mut Statement<'a>, depth: usize) -> Parsed<()> {
    let counter = sigil(cursor, '%')?;
    cursor.expect("=")?;
    let first = operand(cursor, depth)?;
    keyword(cursor, "to")?;
    let last = operand(cursor, depth)?;
    keyword(cursor, "step")?;
    let step = operand(cursor, depth)?;
    let mut carried = Vec::new();
    if cursor.eat_word("iter_args") {
        carried = cursor.list("(", ")", |cursor| {
            let name = sigil(cursor, '%')?;
            cursor.expect("=")?;
            Ok((name, operand(cursor, depth)?))
        })?;
        if cursor.eat("->") {
            made.result_types = types_in_brackets(cursor)?;
        }
    }
    if cursor.eat(":") {
        made.types = types(cursor)?;
    }
    let body = block(cursor, depth + 1)?;
    *made.body = Body::For { counter, bounds: Box::new([first, last, step]), carried, body };
    Ok(())
}

fn keyword(cursor: &mut Cursor<'_>, word: &str) -> Parsed<()> {
    if cursor.eat_word(word) { Ok(()) } else { Err(cursor.unexpected(&format!("`{word}`"))) }
}

/// Operands up to the attributes, the types or the end of the statement.
fn operands<'a>(cursor: &mut Cursor<'a>, depth: usize) -> Parsed<Vec<Operand<'a>>> {
    let mut operands = Vec::new();
    if begins_operand(cursor) {
        operands.push(operand(cursor, depth)?);
        while cursor.eat(",") {
            operands.push(operand(cursor, depth)?);
        }
    }
    Ok(operands)
}

/// Whether an operand is next. A name may also begin the next statement, `%x = ...`, and a word the next operation, `tile.barrier`.
fn begins_operand(cursor: &mut Cursor<'_>) -> bool {
    let mut ahead = cursor.clone();
    if ahead.peek("%") {
        return ahead.sigil('%').is_ok() && !ahead.peek("=") && !continues_names(&mut ahead);
    }
    if let Some(word) = ahead.word() {
        return !word.contains('.') && word != "return" && word != "else" || ahead.peek("(");
    }
    ahead.rest().starts_with(|c: char| c.is_ascii_digit() || c == '-' || c == '+')
}

/// `, %y = ...` behind a name: several results of the next statement.
fn continues_names(ahead: &mut Cursor<'_>) -> bool {
    while ahead.eat(",") {
        if !ahead.peek("%") || ahead.sigil('%').is_err() {
            return false;
        }
        if ahead.peek("=") {
            return true;
        }
    }
    false
}

fn operand<'a>(cursor: &mut Cursor<'a>, depth: usize) -> Parsed<Operand<'a>> {
    if cursor.peek("%") {
        let name = sigil(cursor, '%')?;
        let mut lists = Vec::new();
        while cursor.peek("[") {
            lists.push(cursor.list("[", "]", index)?);
        }
        return Ok(Operand::Value { name, lists });
    }
    let start = cursor.offset();
    let mut ahead = cursor.clone();
    if let Some(text) = ahead.word() {
        *cursor = ahead;
        let name = Word { text, span: cursor.span_from(start) };
        if !cursor.peek("(") {
            return Ok(Operand::Word(name));
        }
        if depth >= MAX_DEPTH {
            return Err(too_deep(cursor));
        }
        let operands = cursor.list("(", ")", |cursor| operand(cursor, depth + 1))?;
        let span = cursor.span_from(start);
        return Ok(Operand::Call(Statement {
            results: Vec::new(),
            name,
            operands,
            attributes: Vec::new(),
            types: Vec::new(),
            result_types: Vec::new(),
            body: Box::new(Body::None),
            span,
        }));
    }
    if cursor.rest().starts_with(|c: char| c.is_ascii_digit() || c == '-' || c == '+') {
        let text = cursor.number()?;
        return Ok(Operand::Number(Word { text, span: cursor.span_from(start) }));
    }
    Err(cursor.unexpected("an operand such as `%x`"))
}

fn index<'a>(cursor: &mut Cursor<'a>) -> Parsed<Index<'a>> {
    if cursor.peek("%") {
        return sigil(cursor, '%').map(Index::Value);
    }
    let start = cursor.offset();
    let value = cursor.integer()?;
    Ok(Index::Number(value, cursor.span_from(start)))
}

fn attributes<'a>(cursor: &mut Cursor<'a>) -> Parsed<Attributes<'a>> {
    let entries = cursor.list("{", "}", |cursor| {
        let key = word(cursor, "an attribute")?;
        if !cursor.eat("=") {
            return Ok((key, Attribute::Flag));
        }
        let value = if cursor.peek("\"") {
            Attribute::Text(cursor.string()?)
        } else if cursor.rest().starts_with(|c: char| c.is_ascii_digit() || c == '-') {
            Attribute::Number(cursor.integer()?)
        } else {
            Attribute::Word(cursor.expect_word("a value such as `true`, `4` or `\"xor\"`")?)
        };
        // The type of a number means nothing here.
        if matches!(value, Attribute::Number(_)) && cursor.eat(":") {
            cursor.expect_word("a type")?;
        }
        Ok((key, value))
    })?;
    for (position, (key, _)) in entries.iter().enumerate() {
        if entries[..position].iter().any(|(earlier, _)| earlier.text == key.text) {
            return Err(Box::new(Diagnostic::error("ir-duplicate", key.span, format!("`{}` is given twice", key.text))));
        }
    }
    Ok(entries)
}
