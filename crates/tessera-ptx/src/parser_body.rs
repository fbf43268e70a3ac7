//! Function bodies: scopes, register names, instructions and operands.
//!
//! A register's type is that of the innermost declaration that covers its name, either exactly or as `prefix<count>`; a name
//! that nothing declares is an error here, so that everything behind the parser can index registers.

use std::collections::BTreeMap;

use crate::constant::Constant;
use crate::error::PtxError;
use crate::form::{form, rows_of};
use crate::lexer::{Spot, Token};
use crate::mnemonic::Mnemonic;
use crate::model::{
    Address, Base, Declaration, Function, Guard, Inlined, Instruction, Line, Loc, Name, Operand, Part, RegId, Register, Space,
    Statement, Variable,
};
use crate::operand_rule::matches;
use crate::parser::{Parsed, Parser};
use crate::table::later;
use crate::types::Type;
use crate::word::{Modifier, Special};

/// Scopes nested deeper than this are refused.
const MAX_DEPTH: usize = 64;

#[derive(Default)]
struct Scope<'a> {
    exact: BTreeMap<&'a str, Shape>,
    ranges: BTreeMap<&'a str, (u32, Shape)>,
    used: BTreeMap<(&'a str, u32), RegId>,
    /// Bytes of an element of each variable.
    variables: BTreeMap<Name, i64>,
    /// Variables of global memory that stand here, by the names that they have in the module.
    moved: BTreeMap<Name, Name>,
}

/// A register's type, and how many elements it has.
#[derive(Clone, Copy)]
struct Shape {
    ty: Type,
    lanes: u32,
}

/// What a name stands for.
enum Found {
    Register(RegId),
    /// A vector's elements, first to last.
    Vector(Vec<RegId>),
}

/// The names of a vector's elements: `.x` or `.r` is the first.
const ELEMENTS: [&str; 2] = ["xyzw", "rgba"];

struct Body<'p, 'a> {
    parser: &'p mut Parser<'a>,
    scopes: Vec<Scope<'a>>,
    registers: Vec<Register>,
    /// How many of the registers are parameters.
    passed: usize,
    function: Name,
}

pub(crate) fn body(parser: &mut Parser<'_>, function: &mut Function) -> Parsed<()> {
    let mut body = Body { parser, scopes: Vec::new(), registers: Vec::new(), passed: 0, function: function.name.clone() };
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
                for variable in self.parser.declared(linkage)? {
                    if let Some(scope) = self.scopes.last_mut() {
                        scope.variables.insert(variable.name.clone(), element(&variable));
                    }
                    match variable.space {
                        Space::Global | Space::Const => self.move_out(variable),
                        Space::Shared | Space::Local | Space::Param => out.push(Statement::Variable(variable)),
                    }
                }
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

    /// A variable of global memory exists once, whichever scope knows its name: it becomes one of the module.
    fn move_out(&mut self, mut variable: Variable) {
        let taken = |parser: &Parser<'_>, name: &Name| {
            parser.variables.contains_key(name) || parser.moved.iter().any(|other| other.name == *name)
        };
        // A name has `%` in front or not at all.
        let plain = variable.name.0.trim_start_matches('%');
        let numbered = (0u32..).map(|number| Name::from(format!("{}${plain}${number}", self.function).as_str()));
        let free = numbered.into_iter().find(|name| !taken(self.parser, name));
        let (Some(free), Some(scope)) = (free, self.scopes.last_mut()) else { return };
        scope.moved.insert(std::mem::replace(&mut variable.name, free.clone()), free);
        self.parser.moved.push(variable);
    }

    /// The variable that a name stands for.
    fn variable(&self, name: &str) -> Name {
        let name = Name::from(name);
        for scope in self.scopes.iter().rev() {
            if let Some(moved) = scope.moved.get(&name) {
                return moved.clone();
            }
            if scope.variables.contains_key(&name) {
                break;
            }
        }
        name
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
        self.parser.align()?;
        let lanes = self.parser.lanes();
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
                let shape = Shape { ty, lanes };
                let is_twice = match count {
                    Some(count) => scope.ranges.insert(name, (count, shape)).is_some(),
                    None => scope.exact.insert(name, shape).is_some(),
                };
                if is_twice {
                    return Err(self.parser.error(format!("`{name}` is declared twice")));
                }
            }
            names.push((Name::from(name), count));
            if !self.parser.eat(',') {
                break;
            }
        }
        self.parser.expect(';')?;
        Ok(Declaration { ty, lanes, names })
    }

    fn type_of(&self, register: RegId) -> Type {
        self.registers[register.0 as usize].ty
    }

    /// A register, or an element of a vector register.
    fn register(&mut self, name: &'a str, spot: Spot) -> Parsed<RegId> {
        match self.find(name) {
            Some(Found::Register(id)) => Ok(id),
            Some(Found::Vector(elements)) => self.element_of(&elements, name, spot),
            None => Err(at(spot, format!("no register `{name}` is declared"))),
        }
    }

    /// `.x` behind a vector register's name.
    fn element_of(&mut self, elements: &[RegId], name: &str, spot: Spot) -> Parsed<RegId> {
        let Token::Dotted(part) = self.parser.token else {
            return Err(at(spot, format!("`{name}` is a vector: one of its elements is needed")));
        };
        let index = ELEMENTS.iter().find_map(|names| if part.len() == 1 { names.find(part) } else { None });
        let id = index.and_then(|index| elements.get(index)).ok_or_else(|| self.parser.expected("an element such as `.x`"))?;
        self.parser.advance();
        Ok(*id)
    }

    fn find(&mut self, name: &'a str) -> Option<Found> {
        let stem = name.trim_end_matches(|digit: char| digit.is_ascii_digit());
        let digits = &name[stem.len()..];
        let number: Option<u32> = if digits.len() > 1 && digits.starts_with('0') { None } else { digits.parse().ok() };
        for scope in self.scopes.iter_mut().rev() {
            if let Some(&id) = scope.used.get(&(name, 0))
                && !scope.used.contains_key(&(name, 1))
            {
                return Some(Found::Register(id));
            }
            let ranged = || {
                let (count, shape) = *scope.ranges.get(stem)?;
                (number? < count).then_some(shape)
            };
            // A prefix may itself end in digits (`.reg .b32 %f2_<4>` is not one, `%v1<4>` is).
            let longer = || {
                (stem.len() + 1..name.len()).find_map(|cut| {
                    let (count, shape) = *scope.ranges.get(&name[..cut])?;
                    let digits = &name[cut..];
                    let plain = digits.len() == 1 || !digits.starts_with('0');
                    digits.parse::<u32>().ok().filter(|number| plain && *number < count).map(|_| shape)
                })
            };
            if let Some(Shape { ty, lanes }) = scope.exact.get(name).copied().or_else(ranged).or_else(longer) {
                let registers = &mut self.registers;
                let ids = (0..lanes).map(|lane| {
                    *scope.used.entry((name, lane)).or_insert_with(|| {
                        let own = match lanes {
                            1 => Name::from(name),
                            _ => Name::from(format!("{name}.{}", &ELEMENTS[0][lane as usize..][..1]).as_str()),
                        };
                        registers.push(Register { name: own, ty });
                        RegId(registers.len() as u32 - 1)
                    })
                });
                let ids: Vec<RegId> = ids.collect();
                return Some(if lanes == 1 { Found::Register(ids[0]) } else { Found::Vector(ids) });
            }
        }
        let passed = self.registers[..self.passed].iter().position(|register| &*register.name.0 == name);
        passed.map(|index| Found::Register(RegId(index as u32)))
    }

    fn instruction(&mut self, name: &str, spot: Spot, guard: Option<Guard>) -> Parsed<Instruction> {
        let mnemonic = Mnemonic::parse(name).ok_or_else(|| {
            let message = match later(name) {
                Some(target) => format!("`{name}` needs {target}: instructions of later chips are not read"),
                None => format!("`{name}` is no instruction of the table"),
            };
            at(spot, message)
        })?;
        let candidates = rows_of(mnemonic);
        let mut modifiers = Vec::new();
        while let Token::Dotted(word) = self.parser.token {
            let modifier = Modifier::parse(word).ok_or_else(|| {
                self.parser.error(match later(&format!(".{word}")) {
                    Some(target) => format!("`.{word}` of `{mnemonic}` needs {target}: instructions of later chips are not read"),
                    None => format!("`.{word}` is no modifier of `{mnemonic}`"),
                })
            })?;
            modifiers.push(modifier);
            self.parser.advance();
        }
        let mut operands = Vec::new();
        let mut spots = Vec::new();
        while self.parser.token != Token::Punct(';') {
            spots.push(self.parser.spot);
            operands.push(self.operand(Some(mnemonic))?);
            if !self.parser.eat(',') && self.parser.token != Token::Punct(';') {
                return Err(self.parser.expected("`,` or `;`"));
            }
        }
        let end = self.parser.spot;
        self.parser.expect(';')?;

        let shaped: Vec<_> = candidates.iter().filter_map(|&row| Some((row, form(row).arrange(&modifiers)?))).collect();
        if shaped.is_empty() {
            let known: Vec<_> = candidates.iter().take(4).map(|row| format!("`{}`", row.row().shown())).collect();
            let more = if candidates.len() > known.len() { ", ..." } else { "" };
            let written: String = modifiers.iter().map(|modifier| format!(".{modifier}")).collect();
            let message = format!("`{mnemonic}{written}` is no form of `{mnemonic}`: {}{more}", known.join(", "));
            return Err(at(spot, message));
        }
        let type_of = |id: RegId| self.type_of(id);
        let mut nearest: Option<(usize, String)> = None;
        for (row, modifiers) in shaped {
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

    /// One operand of an instruction, or of nothing inside braces and parentheses, where no further nesting is legal. Only a call's operands
    /// are lists.
    fn operand(&mut self, of: Option<Mnemonic>) -> Parsed<Operand> {
        let (spot, outer) = (self.parser.spot, of.is_some());
        match self.parser.token {
            Token::Punct('{') if outer => {
                self.parser.advance();
                let elements = self.operands_until('}').map(Operand::Vector)?;
                self.second(elements)
            }
            Token::Punct('(') if of == Some(Mnemonic::Call) => {
                self.parser.advance();
                self.operands_until(')').map(Operand::List)
            }
            Token::Punct('[') if outer => {
                self.parser.advance();
                self.address().map(Operand::Address)
            }
            Token::Punct('!') => {
                self.parser.advance();
                let spot = self.parser.spot;
                match self.parser.token {
                    Token::Ident(name) if name != "WARP_SZ" => {
                        self.parser.advance();
                        self.register(name, spot).map(Operand::Not)
                    }
                    _ => Ok(Operand::Int(i64::from(self.parser.integer("a number")? == 0))),
                }
            }
            Token::Punct('-')
                if self.parser.adjacent().is_some_and(|next| matches!(next, '%' | '_' | '$') || next.is_alphabetic()) =>
            {
                self.parser.advance();
                let name = self.parser.ident("a register")?;
                let register = self.register(name, spot)?;
                Ok(Operand::Part { register, part: self.part()?, negated: true })
            }
            _ if self.parser.at_constant() => Ok(match self.parser.constant("a number")? {
                Constant::Int(value) => Operand::Int(value),
                Constant::Uint(value) => Operand::Int(value.cast_signed()),
                Constant::F32(bits) => Operand::F32(bits),
                Constant::F64(value) => Operand::F64(value.to_bits()),
            }),
            Token::Ident(name) => {
                self.parser.advance();
                let first = match self.subscript(name, of)? {
                    Some(element) => element,
                    None => self.named(name, spot)?,
                };
                if outer { self.second(first) } else { Ok(first) }
            }
            _ => Err(self.parser.expected("an operand")),
        }
    }

    /// `|p` behind a destination.
    fn second(&mut self, first: Operand) -> Parsed<Operand> {
        if !self.parser.eat('|') {
            return Ok(first);
        }
        let spot = self.parser.spot;
        let name = self.parser.ident("a register")?;
        let second = self.named(name, spot)?;
        Ok(Operand::Pair(Box::new((first, second))))
    }

    /// `.b3210` behind a register's name.
    fn part(&mut self) -> Parsed<Option<Part>> {
        let Token::Dotted(text) = self.parser.token else { return Ok(None) };
        let part = Part::parse(text).ok_or_else(|| self.parser.expected("selected bytes or halves"))?;
        self.parser.advance();
        Ok(Some(part))
    }

    fn named(&mut self, name: &'a str, spot: Spot) -> Parsed<Operand> {
        if name == "_" {
            return Ok(Operand::Sink);
        }
        match self.find(name) {
            Some(Found::Register(register)) => {
                let part = self.part()?;
                return Ok(match part {
                    None => Operand::Register(register),
                    part => Operand::Part { register, part, negated: false },
                });
            }
            Some(Found::Vector(elements)) => {
                return match self.parser.token {
                    Token::Dotted(_) => self.element_of(&elements, name, spot).map(Operand::Register),
                    _ => Ok(Operand::Vector(elements.into_iter().map(Operand::Register).collect())),
                };
            }
            None => {}
        }
        if let Some(special) = name.strip_prefix('%') {
            return self.special(special, name, spot);
        }
        let mut offset = 0i64;
        if self.parser.eat('+') {
            offset = self.parser.integer("an offset")?;
        }
        Ok(Operand::Symbol(self.variable(name), offset))
    }

    /// `name[3]`, an element of an array: memory where memory is accessed, elsewhere its address.
    fn subscript(&mut self, name: &'a str, of: Option<Mnemonic>) -> Parsed<Option<Operand>> {
        let spot = self.parser.spot;
        if !self.parser.eat('[') {
            return Ok(None);
        }
        let index = self.parser.integer("an index")?;
        self.parser.expect(']')?;
        let name = Name::from(name);
        let bytes = self.element_bytes(&name).ok_or_else(|| at(spot, format!("no array `{name}` is declared")))?;
        let offset = index.wrapping_mul(bytes);
        let name = self.variable(&name.0);
        Ok(Some(match of {
            Some(Mnemonic::Mov | Mnemonic::Cvta | Mnemonic::Mapa | Mnemonic::Getctarank) => Operand::Symbol(name, offset),
            _ => Operand::Address(Address { base: Base::Symbol(name), offset, coordinates: None, sampler: None }),
        }))
    }

    /// A special register; `%tid` alone is the vector of its elements, of which the fourth is zero.
    fn special(&mut self, special: &str, name: &str, spot: Spot) -> Parsed<Operand> {
        let unknown = || at(spot, format!("no register `{name}` is declared"));
        let element = |part: &str| match part {
            "w" | "a" => Special::parse(&format!("{special}.x")).map(|_| Operand::Int(0)),
            part => Special::parse(&format!("{special}.{part}")).map(Operand::Special),
        };
        if let Some(found) = Special::parse(special) {
            return Ok(Operand::Special(found));
        }
        let Token::Dotted(part) = self.parser.token else {
            let all: Option<Vec<Operand>> = ["x", "y", "z", "w"].into_iter().map(element).collect();
            return all.map(Operand::Vector).ok_or_else(unknown);
        };
        let found = element(part).ok_or_else(unknown)?;
        self.parser.advance();
        Ok(found)
    }

    fn element_bytes(&self, name: &Name) -> Option<i64> {
        let own = self.scopes.iter().rev().find_map(|scope| scope.variables.get(name).copied());
        own.or_else(|| self.parser.variables.get(name).copied())
    }

    fn operands_until(&mut self, close: char) -> Parsed<Vec<Operand>> {
        let mut list = Vec::new();
        while !self.parser.eat(close) {
            list.push(self.operand(None)?);
            if !self.parser.eat(',') && self.parser.token != Token::Punct(close) {
                return Err(self.parser.expected(&format!("`,` or `{close}`")));
            }
        }
        Ok(list)
    }

    fn address(&mut self) -> Parsed<Address> {
        let mut offset = 0i64;
        let base = match self.parser.token {
            Token::Ident(name) if name != "WARP_SZ" => self.base()?,
            _ => {
                offset = self.parser.integer("an address")?;
                Base::Zero
            }
        };
        if self.parser.eat('+') || self.parser.token == Token::Punct('-') {
            offset = offset.wrapping_add(self.parser.integer("an offset")?);
        }
        let (mut coordinates, mut sampler) = (None, None);
        while self.parser.eat(',') {
            if self.parser.eat('{') {
                coordinates = Some(self.operands_until('}')?);
                break;
            }
            let spot = self.parser.spot;
            match self.parser.token {
                Token::Ident(name) if sampler.is_none() => {
                    // A sampler if coordinates follow, otherwise the one coordinate.
                    let first = self.base()?;
                    if self.parser.token == Token::Punct(',') {
                        sampler = Some(first);
                        continue;
                    }
                    coordinates = Some(match first {
                        Base::Register(id) => vec![Operand::Register(id)],
                        Base::Symbol(_) | Base::Zero => return Err(at(spot, format!("`{name}` is no coordinate"))),
                    });
                }
                _ => coordinates = Some(vec![self.operand(None)?]),
            }
            break;
        }
        self.parser.expect(']')?;
        // Whether memory is unified changes no value.
        self.parser.eat_dotted("unified");
        Ok(Address { base, offset, coordinates, sampler })
    }

    /// What an address counts from: a register or a variable.
    fn base(&mut self) -> Parsed<Base> {
        let spot = self.parser.spot;
        let name = self.parser.ident("a register or a variable")?;
        match self.find(name) {
            Some(Found::Register(id)) => Ok(Base::Register(id)),
            Some(Found::Vector(elements)) => self.element_of(&elements, name, spot).map(Base::Register),
            None if name.starts_with('%') => Err(at(spot, format!("no register `{name}` is declared"))),
            None => Ok(Base::Symbol(self.variable(name))),
        }
    }
}

/// Bytes of a variable's element.
pub(crate) fn element(variable: &Variable) -> i64 {
    i64::from(variable.ty.bits().div_ceil(8) * variable.lanes)
}

fn at(spot: Spot, message: String) -> PtxError {
    PtxError { line: spot.line, column: spot.column, message }
}
