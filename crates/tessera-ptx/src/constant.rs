//! Constant expressions ("Constants: Constant Expressions"): numbers with C's operators, worked out where they are read.
//!
//! Integers have 64 bits; one is unsigned where a literal says so (`5U`), does not fit otherwise, or an operand is. Comparisons give 0 or 1.
//! With a floating-point number on either side both are f64.

use crate::error::PtxError;
use crate::lexer::Token;
use crate::parser::{Parsed, Parser};

/// Expressions nested deeper than this are refused.
const MAX_DEPTH: u32 = 64;

/// A constant.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Constant {
    Int(i64),
    Uint(u64),
    /// The bits of an f32 literal, as long as nothing is done with it.
    F32(u32),
    F64(f64),
}

impl Constant {
    /// The 64 bits of an integer.
    pub(crate) fn bits(self) -> Option<i64> {
        match self {
            Constant::Int(value) => Some(value),
            Constant::Uint(value) => Some(value.cast_signed()),
            Constant::F32(_) | Constant::F64(_) => None,
        }
    }

    fn double(self) -> f64 {
        match self {
            Constant::Int(value) => value as f64,
            Constant::Uint(value) => value as f64,
            Constant::F32(bits) => f64::from(f32::from_bits(bits)),
            Constant::F64(value) => value,
        }
    }

    fn holds(self) -> bool {
        self.bits().map_or(self.double() != 0.0, |bits| bits != 0)
    }
}

/// An operator between two numbers.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Infix {
    Or,
    And,
    BitOr,
    BitXor,
    BitAnd,
    Equal,
    Unequal,
    Less,
    LessEqual,
    Greater,
    GreaterEqual,
    ShiftLeft,
    ShiftRight,
    Add,
    Subtract,
    Multiply,
    Divide,
    Remainder,
}

/// Spelling, precedence and meaning; the longer spelling first.
const INFIX: [(&str, u32, Infix); 18] = [
    ("||", 1, Infix::Or),
    ("&&", 2, Infix::And),
    ("==", 6, Infix::Equal),
    ("!=", 6, Infix::Unequal),
    ("<<", 8, Infix::ShiftLeft),
    (">>", 8, Infix::ShiftRight),
    ("<=", 7, Infix::LessEqual),
    (">=", 7, Infix::GreaterEqual),
    ("|", 3, Infix::BitOr),
    ("^", 4, Infix::BitXor),
    ("&", 5, Infix::BitAnd),
    ("<", 7, Infix::Less),
    (">", 7, Infix::Greater),
    ("+", 9, Infix::Add),
    ("-", 9, Infix::Subtract),
    ("*", 10, Infix::Multiply),
    ("/", 10, Infix::Divide),
    ("%", 10, Infix::Remainder),
];

impl Parser<'_> {
    /// Whether the current token can begin a constant expression.
    pub(crate) fn at_constant(&self) -> bool {
        matches!(
            self.token,
            Token::Int(..) | Token::F32(_) | Token::F64(_) | Token::Punct('-' | '+' | '~' | '(') | Token::Ident("WARP_SZ")
        )
    }

    /// A constant expression.
    pub(crate) fn constant(&mut self, what: &str) -> Parsed<Constant> {
        self.conditional(what, 0)
    }

    /// A constant expression that is an integer.
    pub(crate) fn integer(&mut self, what: &str) -> Parsed<i64> {
        let spot = self.spot;
        let value = self.constant(what)?;
        value.bits().ok_or_else(|| PtxError { line: spot.line, column: spot.column, message: format!("{what} is an integer") })
    }

    fn conditional(&mut self, what: &str, depth: u32) -> Parsed<Constant> {
        let condition = self.operators(what, 0, depth)?;
        if !self.eat('?') {
            return Ok(condition);
        }
        let yes = self.conditional(what, self.deeper(depth)?)?;
        self.expect(':')?;
        let no = self.conditional(what, self.deeper(depth)?)?;
        Ok(if condition.holds() { yes } else { no })
    }

    fn deeper(&self, depth: u32) -> Parsed<u32> {
        if depth < MAX_DEPTH { Ok(depth + 1) } else { Err(self.error("an expression is nested too deeply")) }
    }

    fn operators(&mut self, what: &str, least: u32, depth: u32) -> Parsed<Constant> {
        let mut left = self.prefix(what, depth)?;
        while let Some((_, precedence, operator)) = self.infix(least) {
            let right = self.operators(what, precedence + 1, self.deeper(depth)?)?;
            left = apply(operator, left, right).map_err(|problem| self.error(problem))?;
        }
        Ok(left)
    }

    /// Takes the operator that stands here, if it binds at least this tightly.
    fn infix(&mut self, least: u32) -> Option<(&'static str, u32, Infix)> {
        let Token::Punct(first) = self.token else { return None };
        let second = self.adjacent();
        let found = INFIX.into_iter().find(|(text, ..)| {
            let mut characters = text.chars();
            characters.next() == Some(first) && characters.next().is_none_or(|next| Some(next) == second)
        })?;
        if found.1 < least {
            return None;
        }
        for _ in 0..found.0.len() {
            self.advance();
        }
        Some(found)
    }

    fn prefix(&mut self, what: &str, depth: u32) -> Parsed<Constant> {
        let depth = self.deeper(depth)?;
        match self.token {
            Token::Int(value, unsigned) => {
                self.advance();
                Ok(if unsigned { Constant::Uint(value.cast_unsigned()) } else { Constant::Int(value) })
            }
            Token::F32(bits) => {
                self.advance();
                Ok(Constant::F32(bits))
            }
            Token::F64(bits) => {
                self.advance();
                Ok(Constant::F64(f64::from_bits(bits)))
            }
            Token::Ident("WARP_SZ") => {
                self.advance();
                Ok(Constant::Int(32))
            }
            Token::Punct('(') => {
                self.advance();
                let cast = match self.token {
                    Token::Dotted(name @ ("s64" | "u64")) => {
                        self.advance();
                        Some(name)
                    }
                    _ => None,
                };
                if let Some(name) = cast {
                    self.expect(')')?;
                    let value = self.prefix(what, depth)?;
                    let bits = value.bits().ok_or_else(|| self.error("only an integer is cast"))?;
                    return Ok(if name == "u64" { Constant::Uint(bits.cast_unsigned()) } else { Constant::Int(bits) });
                }
                let value = self.conditional(what, depth)?;
                self.expect(')')?;
                Ok(value)
            }
            Token::Punct(sign @ ('-' | '+' | '!' | '~')) => {
                self.advance();
                let value = self.prefix(what, depth)?;
                Ok(match (sign, value) {
                    ('+', value) => value,
                    ('-', Constant::Int(value)) => Constant::Int(value.wrapping_neg()),
                    ('-', Constant::Uint(value)) => Constant::Uint(value.wrapping_neg()),
                    ('-', Constant::F32(bits)) => Constant::F32(bits ^ 1 << 31),
                    ('-', Constant::F64(value)) => Constant::F64(-value),
                    ('~', Constant::Int(value)) => Constant::Int(!value),
                    ('~', Constant::Uint(value)) => Constant::Uint(!value),
                    ('~', _) => return Err(self.error("`~` is for integers")),
                    (_, value) => Constant::Int(i64::from(!value.holds())),
                })
            }
            _ => Err(self.expected(what)),
        }
    }
}

fn apply(operator: Infix, left: Constant, right: Constant) -> Result<Constant, &'static str> {
    let truth = |holds: bool| Ok(Constant::Int(i64::from(holds)));
    match operator {
        Infix::Or => return truth(left.holds() || right.holds()),
        Infix::And => return truth(left.holds() && right.holds()),
        _ => {}
    }
    match (left, right) {
        (Constant::Int(a), Constant::Int(b)) => signed(operator, a, b),
        (_, _) => match (left.bits(), right.bits()) {
            (Some(a), Some(b)) if matches!(operator, Infix::ShiftLeft | Infix::ShiftRight) => match left {
                Constant::Int(_) => signed(operator, a, b),
                _ => unsigned(operator, a.cast_unsigned(), b.cast_unsigned()),
            },
            (Some(a), Some(b)) => unsigned(operator, a.cast_unsigned(), b.cast_unsigned()),
            _ => double(operator, left.double(), right.double()),
        },
    }
}

fn signed(operator: Infix, a: i64, b: i64) -> Result<Constant, &'static str> {
    let shift = u32::try_from(b).ok().filter(|&by| by < 64);
    Ok(Constant::Int(match operator {
        Infix::BitOr => a | b,
        Infix::BitXor => a ^ b,
        Infix::BitAnd => a & b,
        Infix::Equal => i64::from(a == b),
        Infix::Unequal => i64::from(a != b),
        Infix::Less => i64::from(a < b),
        Infix::LessEqual => i64::from(a <= b),
        Infix::Greater => i64::from(a > b),
        Infix::GreaterEqual => i64::from(a >= b),
        Infix::ShiftLeft => shift.map_or(0, |by| a << by),
        Infix::ShiftRight => a >> shift.unwrap_or(63),
        Infix::Add => a.wrapping_add(b),
        Infix::Subtract => a.wrapping_sub(b),
        Infix::Multiply => a.wrapping_mul(b),
        Infix::Divide | Infix::Remainder if b == 0 => return Err("a constant is divided by zero"),
        Infix::Divide => a.wrapping_div(b),
        Infix::Remainder => a.wrapping_rem(b),
        Infix::Or | Infix::And => return Err("an operator is missing"),
    }))
}

fn unsigned(operator: Infix, a: u64, b: u64) -> Result<Constant, &'static str> {
    let truth = |holds: bool| Ok(Constant::Int(i64::from(holds)));
    let shift = u32::try_from(b).ok().filter(|&by| by < 64);
    Ok(Constant::Uint(match operator {
        Infix::Less => return truth(a < b),
        Infix::LessEqual => return truth(a <= b),
        Infix::Greater => return truth(a > b),
        Infix::GreaterEqual => return truth(a >= b),
        Infix::Equal => return truth(a == b),
        Infix::Unequal => return truth(a != b),
        Infix::ShiftRight => shift.map_or(0, |by| a >> by),
        Infix::Divide | Infix::Remainder if b == 0 => return Err("a constant is divided by zero"),
        Infix::Divide => a / b,
        Infix::Remainder => a % b,
        // The rest has the same bits with a sign.
        _ => {
            return signed(operator, a.cast_signed(), b.cast_signed()).map(|value| match value {
                Constant::Int(bits) => Constant::Uint(bits.cast_unsigned()),
                other => other,
            });
        }
    }))
}

fn double(operator: Infix, a: f64, b: f64) -> Result<Constant, &'static str> {
    let truth = |holds: bool| Ok(Constant::Int(i64::from(holds)));
    Ok(Constant::F64(match operator {
        Infix::Add => a + b,
        Infix::Subtract => a - b,
        Infix::Multiply => a * b,
        Infix::Divide => a / b,
        Infix::Equal => return truth(a == b),
        Infix::Unequal => return truth(a != b),
        Infix::Less => return truth(a < b),
        Infix::LessEqual => return truth(a <= b),
        Infix::Greater => return truth(a > b),
        Infix::GreaterEqual => return truth(a >= b),
        _ => return Err("this operator is for integers"),
    }))
}
