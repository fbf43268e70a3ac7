//! Function bodies: scopes, register names, instructions and operands.
//!
//! A register's type is that of the innermost declaration that covers its name, either exactly or as `prefix<count>`; a name
//! that nothing declares is an error here, so that everything behind the parser can index registers.

use std::collections::BTreeMap;

use crate::error::PtxError;
use crate::form::{form, rows_of};
use crate::lexer::{Spot, Token};
use crate::model::{
    Address, Base, Declaration, Function, Guard, Inlined, Instruction, Line, Loc, Name, Operand, RegId, Register, Space,
    Statement,
};
use crate::operand_rule::matches;
use crate::parser::{Parsed, Parser};
use crate::types::Type;
use crate::word::{Modifier, Special};

/// Scopes nested deeper than this are refused.
const MAX_DEPTH: usize = 64;

#[derive(Default)]
struct Scope<'a> {
    exact: BTreeMap<&'a str, Type>,
    ranges: BTreeMap<&'a str, (u32, Type)>,
    used: BTreeMap<&'a str, RegId>,
}

struct Body<'p, 'a> {
    parser: &'p mut Parser<'a>,
    scopes: Vec<Scope<'a>>,
    registers: Vec<Register>,
    /// How many of the registers are parameters.
    passed: usize,
}

pub(crate) fn body(parser: &mut Parser<'_>, function: &mut Function) -> Parsed<()> {
    let mut body = Body { parser, scopes: Vec::new(), registers: Vec::new(), passed: 0 };
    // Parameters that are registers come first among the function's, in their order.
    let passed = function.results.iter().chain(&function.params).filter(|variable| variable.space == Space::Local);
    body.registers = passed.map(|variable| Register { name: variable.name.clone(), ty: variable.ty }).collect();
    body.passed = body.registers.len();
    let statements = body.block()?;
    function.registers = body.registers;
    function.body = Some(statements);
    Ok(())
}

impl<'a> Body<'_, 'a> {
    fn block(&mut self) -> Parsed<Vec<Statement>> {
        if self.scopes.len() >= MAX_DEPTH {
            return Err(self.parser.error(format!("scopes are nested more than {MAX_DEPTH} deep")));
        }
        self.parser.expect('{')?;
        self.scopes.push(Scope::default());
        let mut statements = Vec::new();
        while !self.parser.eat('}') {
            self.statement(&mut statements)?;
        }
        self.scopes.pop();
        Ok(statements)
    }

    fn statement(&mut self, out: &mut Vec<Statement>) -> Parsed<()> {
        match self.parser.token {
            Token::Punct('{') => out.push(Statement::Block(self.block()?)),
            Token::Punct('@') => {
                self.parser.advance();
                let negated = self.parser.eat('!');
                let spot = self.parser.spot;
                let name = self.parser.ident("a predicate")?;
                let register = self.register(name, spot)?;
                if self.type_of(register) != Type::Pred {
                    return Err(at(spot, format!("`{name}` is no predicate")));
                }
                let spot = self.parser.spot;
                let mnemonic = self.parser.ident("an instruction")?;
                let guard = Some(Guard { register, negated });
                out.push(Statement::Instruction(self.instruction(mnemonic, spot, guard)?));
            }
            Token::Dotted("reg") => {
                self.parser.advance();
                out.push(Statement::Registers(self.declaration()?));
            }
            Token::Dotted("loc") => {
                self.parser.advance();
                let loc = self.loc()?;
                let mut inlined = None;
                if self.parser.eat(',') {
                    inlined = Some(self.inlined()?);
                }
                out.push(Statement::Loc(loc, inlined));
            }
            Token::Dotted("pragma") => {
                self.parser.advance();
                out.push(Statement::Pragma(self.parser.string("a pragma in quotes")?));
                self.parser.expect(';')?;
            }
            Token::Dotted(_) => {
                let linkage = self.parser.linkage();
                out.push(Statement::Variable(self.parser.variable(linkage)?));
                self.parser.expect(';')?;
            }
            Token::Ident(name) => {
                let spot = self.parser.spot;
                self.parser.advance();
                if self.parser.eat(':') {
                    out.push(self.labelled(Name::from(name))?);
                } else {
                    out.push(Statement::Instruction(self.instruction(name, spot, None)?));
                }
            }
            _ => return Err(self.parser.expected("a statement")),
        }
        Ok(())
    }

    /// What a name and a colon stand before: a list of targets, a prototype, or any statement.
    fn labelled(&mut self, name: Name) -> Parsed<Statement> {
        let Token::Dotted(word @ ("branchtargets" | "calltargets" | "callprototype")) = self.parser.token else {
            return Ok(Statement::Label(name));
        };
        self.parser.advance();
        if word == "callprototype" {
            let list = |parser: &mut Parser<'a>| match parser.token {
                Token::Punct('(') => parser.variables_in_parentheses(),
                _ => Ok(Vec::new()),
            };
            let results = list(self.parser)?;
            self.parser.ident("`_`")?;
            let params = list(self.parser)?;
            let noreturn = self.parser.eat_dotted("noreturn");
            self.parser.expect(';')?;
            return Ok(Statement::Prototype { name, results, params, noreturn });
        }
        let mut targets = Vec::new();
        loop {
            targets.push(Name::from(self.parser.ident("a target")?));
            if !self.parser.eat(',') {
                break;
            }
        }
        self.parser.expect(';')?;
        Ok(Statement::Targets { name, functions: word == "calltargets", targets })
    }

    fn loc(&mut self) -> Parsed<Loc> {
        let file = self.parser.u32("a file number")?;
        let line = self.parser.u32("a line")?;
        let column = self.parser.u32("a column")?;
        Ok(Loc { file, line, column })
    }

    /// `function_name label+4, inlined_at 1 2 3`
    fn inlined(&mut self) -> Parsed<Inlined> {
        if self.parser.ident("`function_name`")? != "function_name" {
            return Err(self.parser.expected("`function_name`"));
        }
        let name = Name::from(self.parser.ident("a label")?);
        let offset = if self.parser.eat('+') { self.parser.int("an offset")? } else { 0 };
        self.parser.expect(',')?;
        if self.parser.ident("`inlined_at`")? != "inlined_at" {
            return Err(self.parser.expected("`inlined_at`"));
        }
        Ok(Inlined { name, offset, at: self.loc()? })
    }

    fn declaration(&mut self) -> Parsed<Declaration> {
        let ty = self.parser.ty()?;
        if !ty.declares_register() {
            return Err(self.parser.error(format!("no register can be declared as `.{ty}`: use `.b{}`", ty.bits())));
        }
        let mut names = Vec::new();
        loop {
            let name = self.parser.ident("a register's name")?;
            let mut count = None;
            let scope = self.scopes.last_mut();
            if self.parser.eat('<') {
                count = Some(self.parser.u32("a count")?);
                self.parser.expect('>')?;
            }
            if let Some(scope) = scope {
                match count {
                    Some(count) => drop(scope.ranges.insert(name, (count, ty))),
                    None => drop(scope.exact.insert(name, ty)),
                }
            }
            names.push((Name::from(name), count));
            if !self.parser.eat(',') {
                break;
            }
        }
        self.parser.expect(';')?;
        Ok(Declaration { ty, names })
    }

    fn type_of(&self, register: RegId) -> Type {
        self.registers[register.0 as usize].ty
    }

    fn register(&mut self, name: &'a str, spot: Spot) -> Parsed<RegId> {
        self.find(name).ok_or_else(|| at(spot, format!("no register `{name}` is declared")))
    }

    fn find(&mut self, name: &'a str) -> Option<RegId> {
        let stem = name.trim_end_matches(|digit: char| digit.is_ascii_digit());
        let digits = &name[stem.len()..];
        let number: Option<u32> = if digits.len() > 1 && digits.starts_with('0') { None } else { digits.parse().ok() };
        for scope in self.scopes.iter_mut().rev() {
            if let Some(&id) = scope.used.get(name) {
                return Some(id);
            }
            let ranged = || {
                let (count, ty) = *scope.ranges.get(stem)?;
                (number? < count).then_some(ty)
            };
            // A prefix may itself end in digits (`.reg .b32 %f2_<4>` is not one, `%v1<4>` is).
            let longer = || {
                (stem.len() + 1..name.len()).find_map(|cut| {
                    let (count, ty) = *scope.ranges.get(&name[..cut])?;
                    let digits = &name[cut..];
                    let plain = digits.len() == 1 || !digits.starts_with('0');
                    digits.parse::<u32>().ok().filter(|number| plain && *number < count).map(|_| ty)
                })
            };
            if let Some(ty) = scope.exact.get(name).copied().or_else(ranged).or_else(longer) {
                let id = RegId(self.registers.len() as u32);
                self.registers.push(Register { name: Name::from(name), ty });
                scope.used.insert(name, id);
                return Some(id);
            }
        }
        self.registers[..self.passed].iter().position(|register| &*register.name.0 == name).map(|index| RegId(index as u32))
    }

    fn instruction(&mut self, mnemonic: &'a str, spot: Spot, guard: Option<Guard>) -> Parsed<Instruction> {
        let candidates = rows_of(mnemonic);
        if candidates.is_empty() {
            return Err(at(spot, format!("`{mnemonic}` is no instruction of the table")));
        }
        let mut modifiers = Vec::new();
        while let Token::Dotted(word) = self.parser.token {
            let modifier =
                Modifier::parse(word).ok_or_else(|| self.parser.error(format!("`.{word}` is no modifier of `{mnemonic}`")))?;
            modifiers.push(modifier);
            self.parser.advance();
        }
        let mut operands = Vec::new();
        let mut spots = Vec::new();
        while self.parser.token != Token::Punct(';') {
            spots.push(self.parser.spot);
            operands.push(self.operand(true)?);
            if !self.parser.eat(',') && self.parser.token != Token::Punct(';') {
                return Err(self.parser.expected("`,` or `;`"));
            }
        }
        let end = self.parser.spot;
        self.parser.expect(';')?;

        let mut shaped: Vec<_> = candidates.iter().copied().filter(|&row| form(row).takes(&modifiers)).collect();
        if shaped.is_empty()
            && matches!(mnemonic, "atom" | "red" | "min" | "max")
            && let Some((row, ordered)) = candidates.iter().find_map(|&row| Some((row, form(row).arranged(&modifiers)?)))
        {
            shaped.push(row);
            modifiers = ordered;
        }
        if shaped.is_empty() {
            let known: Vec<_> = candidates.iter().take(4).map(|row| format!("`{}`", row.row().form)).collect();
            let more = if candidates.len() > known.len() { ", ..." } else { "" };
            let written: String = modifiers.iter().map(|modifier| format!(".{modifier}")).collect();
            let message = format!("`{mnemonic}{written}` is no form of `{mnemonic}`: {}{more}", known.join(", "));
            return Err(at(spot, message));
        }
        let type_of = |id: RegId| self.type_of(id);
        let mut nearest: Option<(usize, String)> = None;
        for &row in &shaped {
            match matches(&form(row).operands, &modifiers, &operands, &type_of) {
                Ok(()) => return Ok(Instruction { line: Line(spot.line), guard, row, modifiers, operands }),
                Err(problem) if nearest.as_ref().is_none_or(|best| problem.0 > best.0) => nearest = Some(problem),
                Err(_) => {}
            }
        }
        let (index, problem) = nearest.unwrap_or_default();
        let place = spots.get(index).copied().unwrap_or(end);
        Err(at(place, format!("operand {} of `{mnemonic}` {problem}", index + 1)))
    }

    /// One operand; `outer` is false inside braces and parentheses, where no further nesting is legal.
    fn operand(&mut self, outer: bool) -> Parsed<Operand> {
        let spot = self.parser.spot;
        match self.parser.token {
            Token::Punct('{') if outer => {
                self.parser.advance();
                self.operands_until('}').map(Operand::Vector)
            }
            Token::Punct('(') if outer => {
                self.parser.advance();
                self.operands_until(')').map(Operand::List)
            }
            Token::Punct('[') if outer => {
                self.parser.advance();
                self.address().map(Operand::Address)
            }
            Token::Punct('!') => {
                self.parser.advance();
                let name = self.parser.ident("a predicate")?;
                self.register(name, spot).map(Operand::Not)
            }
            Token::F32(bits) => {
                self.parser.advance();
                Ok(Operand::F32(bits))
            }
            Token::F64(bits) => {
                self.parser.advance();
                Ok(Operand::F64(bits))
            }
            Token::Int(_) | Token::Punct('-') => self.negatable(),
            Token::Ident(name) => {
                self.parser.advance();
                let first = self.named(name, spot)?;
                if outer && self.parser.eat('|') {
                    let spot = self.parser.spot;
                    let name = self.parser.ident("a register")?;
                    let second = self.named(name, spot)?;
                    return Ok(Operand::Pair(Box::new((first, second))));
                }
                Ok(first)
            }
            _ => Err(self.parser.expected("an operand")),
        }
    }

    fn negatable(&mut self) -> Parsed<Operand> {
        if self.parser.token == Token::Punct('-') {
            self.parser.advance();
            if let Token::F64(bits) = self.parser.token {
                self.parser.advance();
                return Ok(Operand::F64((-f64::from_bits(bits)).to_bits()));
            }
            return self.parser.int("a number").map(|value| Operand::Int(value.wrapping_neg()));
        }
        self.parser.int("a number").map(Operand::Int)
    }

    fn named(&mut self, name: &'a str, spot: Spot) -> Parsed<Operand> {
        if name == "_" {
            return Ok(Operand::Sink);
        }
        if let Some(id) = self.find(name) {
            return Ok(Operand::Register(id));
        }
        if name == "WARP_SZ" {
            return Ok(Operand::Int(32));
        }
        if let Some(special) = name.strip_prefix('%') {
            let mut full = special.to_owned();
            if let Token::Dotted(part @ ("x" | "y" | "z")) = self.parser.token {
                self.parser.advance();
                full = format!("{special}.{part}");
            }
            return Special::parse(&full)
                .map(Operand::Special)
                .ok_or_else(|| at(spot, format!("no register `{name}` is declared")));
        }
        let mut offset = 0i64;
        if self.parser.eat('+') {
            offset = self.parser.int("an offset")?;
        }
        Ok(Operand::Symbol(Name::from(name), offset))
    }

    fn operands_until(&mut self, close: char) -> Parsed<Vec<Operand>> {
        let mut list = Vec::new();
        while !self.parser.eat(close) {
            list.push(self.operand(false)?);
            if !self.parser.eat(',') && self.parser.token != Token::Punct(close) {
                return Err(self.parser.expected(&format!("`,` or `{close}`")));
            }
        }
        Ok(list)
    }

    fn address(&mut self) -> Parsed<Address> {
        let spot = self.parser.spot;
        let mut offset = 0i64;
        let base = match self.parser.token {
            Token::Ident(name) => {
                self.parser.advance();
                if name.starts_with('%') {
                    Base::Register(self.register(name, spot)?)
                } else {
                    match self.find(name) {
                        Some(id) => Base::Register(id),
                        None => Base::Symbol(Name::from(name)),
                    }
                }
            }
            _ => {
                offset = self.parser.int("an address")?;
                Base::Zero
            }
        };
        if self.parser.eat('+') || self.parser.token == Token::Punct('-') {
            offset = offset.wrapping_add(self.parser.int("an offset")?);
        }
        let mut coordinates = None;
        if self.parser.eat(',') {
            self.parser.expect('{')?;
            coordinates = Some(self.operands_until('}')?);
        }
        self.parser.expect(']')?;
        Ok(Address { base, offset, coordinates })
    }
}

fn at(spot: Spot, message: String) -> PtxError {
    PtxError { line: spot.line, column: spot.column, message }
}
