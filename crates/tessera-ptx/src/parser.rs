//! PTX text to a [`Module`]: directives, variables and functions. Bodies are read in `parser_body`.

use std::collections::BTreeMap;

use crate::error::PtxError;
use crate::lexer::{Lexer, Spot, Token};
use crate::model::{Function, FunctionKind, Item, Limit, Linkage, Module, Name, Space, Statement, Variable};
use crate::parser_body::{body, element};
use crate::target::{PtxVersion, Target};
use crate::types::Type;

/// Reads PTX text.
///
/// The text may be hostile: every failure is a [`PtxError`] with its line and column.
pub fn parse(text: &str) -> Result<Module, PtxError> {
    let mut parser = Parser::new(text);
    parser.module()
}

/// An array with more extents than this is refused.
const MOST_EXTENTS: usize = 16;

pub(crate) type Parsed<T> = Result<T, PtxError>;

/// A cursor over the tokens: the current one is always read.
pub(crate) struct Parser<'a> {
    lexer: Lexer<'a>,
    pub(crate) token: Token<'a>,
    pub(crate) spot: Spot,
    /// Bytes of an element of each of the module's variables.
    pub(crate) variables: BTreeMap<Name, i64>,
    /// Variables of global memory that stand in the function that is read.
    pub(crate) moved: Vec<Variable>,
}

impl<'a> Parser<'a> {
    fn new(text: &'a str) -> Parser<'a> {
        let mut lexer = Lexer::new(text);
        let (token, spot) = lexer.next();
        Parser { lexer, token, spot, variables: BTreeMap::new(), moved: Vec::new() }
    }

    pub(crate) fn advance(&mut self) -> Token<'a> {
        let token = self.token;
        (self.token, self.spot) = self.lexer.next();
        token
    }

    /// The character right behind the current token.
    pub(crate) fn adjacent(&self) -> Option<char> {
        self.lexer.adjacent()
    }

    pub(crate) fn error(&self, message: impl Into<String>) -> PtxError {
        PtxError { line: self.spot.line, column: self.spot.column, message: message.into() }
    }

    /// An error that says what was expected and what stands there instead.
    pub(crate) fn expected(&self, what: &str) -> PtxError {
        let found = match self.token {
            Token::Ident(name) => format!("`{name}`"),
            Token::Dotted(name) => format!("`.{name}`"),
            Token::Int(value, _) => format!("`{value}`"),
            Token::F32(_) | Token::F64(_) => "a floating-point number".to_owned(),
            Token::Str(_) => "a string".to_owned(),
            Token::Punct(character) => format!("`{character}`"),
            Token::Bad(problem) => return self.error(problem),
            Token::End => "the end of the text".to_owned(),
        };
        self.error(format!("expected {what}, found {found}"))
    }

    pub(crate) fn eat(&mut self, character: char) -> bool {
        let found = self.token == Token::Punct(character);
        if found {
            self.advance();
        }
        found
    }

    pub(crate) fn expect(&mut self, character: char) -> Parsed<()> {
        if self.eat(character) { Ok(()) } else { Err(self.expected(&format!("`{character}`"))) }
    }

    pub(crate) fn eat_dotted(&mut self, name: &str) -> bool {
        let found = self.token == Token::Dotted(name);
        if found {
            self.advance();
        }
        found
    }

    pub(crate) fn ident(&mut self, what: &str) -> Parsed<&'a str> {
        match self.token {
            Token::Ident(name) => {
                self.advance();
                Ok(name)
            }
            _ => Err(self.expected(what)),
        }
    }

    pub(crate) fn int(&mut self, what: &str) -> Parsed<i64> {
        let negative = self.eat('-');
        match self.token {
            Token::Int(value, _) => {
                self.advance();
                Ok(if negative { value.wrapping_neg() } else { value })
            }
            _ => Err(self.expected(what)),
        }
    }

    pub(crate) fn u32(&mut self, what: &str) -> Parsed<u32> {
        let spot = self.spot;
        let value = self.int(what)?;
        u32::try_from(value).map_err(|_| PtxError {
            line: spot.line,
            column: spot.column,
            message: format!("{what} of {value} is out of range"),
        })
    }

    pub(crate) fn string(&mut self, what: &str) -> Parsed<String> {
        match self.token {
            Token::Str(text) => {
                self.advance();
                Ok(text.to_owned())
            }
            _ => Err(self.expected(what)),
        }
    }

    fn module(&mut self) -> Parsed<Module> {
        if !self.eat_dotted("version") {
            return Err(self.expected("`.version`"));
        }
        let version = self.version()?;
        if !self.eat_dotted("target") {
            return Err(self.expected("`.target`"));
        }
        let spot = self.spot;
        let name = self.ident("a target such as `sm_90a`")?;
        // Assemblers and drivers of today know no older ones.
        let target = Target::parse(name).filter(|target| target.sm >= 50).ok_or_else(|| PtxError {
            line: spot.line,
            column: spot.column,
            message: format!("`{name}` is no target"),
        })?;
        let mut independent_samplers = false;
        while self.eat(',') {
            // Further targets and `debug` change nothing that the model holds.
            independent_samplers |= self.ident("a target option")? == "texmode_independent";
        }
        let mut address_size = 64;
        if self.eat_dotted("address_size") {
            address_size = self.u32("an address size")?;
            if address_size != 64 {
                return Err(self.error("an address size is 64"));
            }
        }
        let mut items = Vec::new();
        while self.token != Token::End {
            self.item(&mut items)?;
        }
        Ok(Module { version, target, independent_samplers, address_size, items })
    }

    /// `8.0` is a decimal fraction to the lexer; its digits are what counts.
    fn version(&mut self) -> Parsed<PtxVersion> {
        match self.token {
            Token::F64(bits) => {
                let value = f64::from_bits(bits);
                let tenths = (value * 10.0).round();
                if !(10.0..100.0).contains(&tenths) || (tenths / 10.0 - value).abs() > 1e-9 {
                    return Err(self.error(format!("{value} is no PTX version")));
                }
                self.advance();
                Ok(PtxVersion::new(tenths as u32 / 10, tenths as u32 % 10))
            }
            _ => Err(self.expected("a version such as `8.0`")),
        }
    }

    fn item(&mut self, items: &mut Vec<Item>) -> Parsed<()> {
        match self.token {
            Token::Dotted("file") => {
                self.advance();
                let index = self.u32("a file number")?;
                let path = self.string("a path in quotes")?;
                while self.eat(',') {
                    self.int("a time or size")?;
                }
                items.push(Item::File { index, path });
                return Ok(());
            }
            Token::Dotted("section") => {
                self.advance();
                items.push(self.section()?);
                return Ok(());
            }
            Token::Dotted("pragma") => {
                self.advance();
                items.push(Item::Pragma(self.string("a pragma in quotes")?));
                return self.expect(';');
            }
            Token::Dotted("alias") => {
                self.advance();
                let name = Name::from(self.ident("a function's other name")?);
                self.expect(',')?;
                let of = Name::from(self.ident("a function's name")?);
                items.push(Item::Alias { name, of });
                return self.expect(';');
            }
            _ => {}
        }
        let linkage = self.linkage();
        match self.token {
            Token::Dotted(word @ ("entry" | "func")) => {
                let kind = if word == "entry" { FunctionKind::Entry } else { FunctionKind::Device };
                let spot = self.spot;
                let function = self.function(kind, linkage)?;
                let is_other =
                    |item: &Item| matches!(item, Item::Function(other) if other.name == function.name && other.body.is_some());
                if function.body.is_some() && items.iter().any(is_other) {
                    let message = format!("`{}` is defined twice", function.name.0);
                    return Err(PtxError { line: spot.line, column: spot.column, message });
                }
                for variable in std::mem::take(&mut self.moved) {
                    self.variables.insert(variable.name.clone(), element(&variable));
                    items.push(Item::Variable(variable));
                }
                items.push(Item::Function(function));
            }
            _ => {
                for variable in self.declared(linkage)? {
                    self.variables.insert(variable.name.clone(), element(&variable));
                    items.push(Item::Variable(variable));
                }
            }
        }
        Ok(())
    }

    fn section(&mut self) -> Parsed<Item> {
        let name = match self.token {
            Token::Dotted(name) => format!(".{name}"),
            _ => return Err(self.expected("a section's name")),
        };
        self.advance();
        if self.token != Token::Punct('{') {
            return Err(self.expected("`{`"));
        }
        let text = self.lexer.until_brace().ok_or_else(|| self.error("a section is not closed"))?.to_owned();
        self.advance();
        Ok(Item::Section { name, text })
    }

    pub(crate) fn linkage(&mut self) -> Linkage {
        let linkage = match self.token {
            Token::Dotted("visible") => Linkage::Visible,
            Token::Dotted("extern") => Linkage::Extern,
            Token::Dotted("weak") => Linkage::Weak,
            Token::Dotted("common") => Linkage::Common,
            _ => return Linkage::Internal,
        };
        self.advance();
        linkage
    }

    fn space(&mut self) -> Option<Space> {
        let space = match self.token {
            Token::Dotted("global") => Space::Global,
            Token::Dotted("shared") => Space::Shared,
            Token::Dotted("const") => Space::Const,
            Token::Dotted("local") => Space::Local,
            Token::Dotted("param") => Space::Param,
            _ => return None,
        };
        self.advance();
        Some(space)
    }

    pub(crate) fn align(&mut self) -> Parsed<Option<u32>> {
        if !self.eat_dotted("align") {
            return Ok(None);
        }
        let align = self.u32("an alignment")?;
        if !align.is_power_of_two() {
            return Err(self.error(format!("an alignment is a power of two, not {align}")));
        }
        Ok(Some(align))
    }

    pub(crate) fn ty(&mut self) -> Parsed<Type> {
        let found = match self.token {
            Token::Dotted(name) => Type::parse(name),
            _ => None,
        };
        let ty = found.ok_or_else(|| self.expected("a type"))?;
        self.advance();
        Ok(ty)
    }

    /// `.shared .align 16 .b8 tile[1024], more[4];`
    pub(crate) fn declared(&mut self, linkage: Linkage) -> Parsed<Vec<Variable>> {
        let mut list = vec![self.variable(linkage)?];
        while self.eat(',') {
            let mut next = list[0].clone();
            (next.extents, next.initial) = (Vec::new(), Vec::new());
            list.push(self.named_variable(next)?);
        }
        self.expect(';')?;
        Ok(list)
    }

    /// `.shared .align 16 .b8 tile[1024]`, up to but not including what ends it.
    pub(crate) fn variable(&mut self, linkage: Linkage) -> Parsed<Variable> {
        let space = self.space().ok_or_else(|| self.expected("a variable, `.entry` or `.func`"))?;
        self.attribute()?;
        let align = self.align()?;
        let lanes = self.lanes();
        let ty = self.ty()?;
        let pointee = if self.eat_dotted("ptr") {
            let space = self.space();
            Some((space, self.align()?.unwrap_or(1)))
        } else {
            None
        };
        let name = Name::from("");
        self.named_variable(Variable {
            linkage,
            space,
            align,
            ty,
            lanes,
            pointee,
            name,
            extents: Vec::new(),
            initial: Vec::new(),
        })
    }

    /// `.v2` or `.v4` in front of a type.
    pub(crate) fn lanes(&mut self) -> u32 {
        let lanes = match self.token {
            Token::Dotted("v2") => 2,
            Token::Dotted("v4") => 4,
            _ => return 1,
        };
        self.advance();
        lanes
    }

    /// A variable's name, extents and initial values.
    fn named_variable(&mut self, mut variable: Variable) -> Parsed<Variable> {
        variable.name = Name::from(self.ident("a variable's name")?);
        while self.eat('[') {
            if variable.extents.len() == MOST_EXTENTS {
                return Err(self.error(format!("an array has at most {MOST_EXTENTS} extents")));
            }
            if self.eat(']') {
                variable.extents.push(None);
                continue;
            }
            let extent = self.integer("an extent")?;
            variable.extents.push(Some(u64::try_from(extent).map_err(|_| self.error("an extent is not negative"))?));
            self.expect(']')?;
        }
        if self.eat('=') {
            self.initial(&mut variable)?;
        }
        Ok(variable)
    }

    /// `.attribute(.managed)`, `.attribute(.unified(1, 2))`: where the driver keeps a variable, which nothing here asks for.
    fn attribute(&mut self) -> Parsed<()> {
        if !self.eat_dotted("attribute") {
            return Ok(());
        }
        self.expect('(')?;
        if self.eat_dotted("unified") {
            self.expect('(')?;
            self.int("a number")?;
            self.expect(',')?;
            self.int("a number")?;
            self.expect(')')?;
        } else if !self.eat_dotted("managed") {
            return Err(self.expected("`.managed` or `.unified`"));
        }
        self.expect(')')
    }

    pub(crate) fn variables_in_parentheses(&mut self) -> Parsed<Vec<Variable>> {
        let mut list = Vec::new();
        self.expect('(')?;
        while !self.eat(')') {
            // A function may take and give registers; in the model they are parameters without memory.
            if self.eat_dotted("reg") {
                let (align, ty) = (self.align()?, self.ty()?);
                let name = Name::from(self.ident("a register's name")?);
                list.push(Variable {
                    linkage: Linkage::Internal,
                    space: Space::Local,
                    align,
                    ty,
                    lanes: 1,
                    pointee: None,
                    name,
                    extents: Vec::new(),
                    initial: Vec::new(),
                });
            } else {
                list.push(self.variable(Linkage::Internal)?);
            }
            if !self.eat(',') && self.token != Token::Punct(')') {
                return Err(self.expected("`,` or `)`"));
            }
        }
        Ok(list)
    }

    fn function(&mut self, kind: FunctionKind, linkage: Linkage) -> Parsed<Function> {
        self.advance();
        self.attribute()?;
        let results = match (kind, self.token) {
            (FunctionKind::Device, Token::Punct('(')) => self.variables_in_parentheses()?,
            _ => Vec::new(),
        };
        let name = Name::from(self.ident("a function's name")?);
        let params = if self.token == Token::Punct('(') { self.variables_in_parentheses()? } else { Vec::new() };
        let (mut limits, mut pragmas) = (Vec::new(), Vec::new());
        while let Token::Dotted(word) = self.token {
            if self.eat_dotted("pragma") {
                pragmas.push(Statement::Pragma(self.string("a pragma in quotes")?));
                self.expect(';')?;
            } else {
                limits.push(self.limit(word)?);
            }
        }
        let mut function = Function { kind, linkage, name, results, params, limits, registers: Vec::new(), body: None };
        if !self.eat(';') {
            body(self, &mut function)?;
        }
        // A pragma of the function is one at the start of its body.
        if let Some(statements) = &mut function.body {
            statements.splice(0..0, pragmas);
        }
        Ok(function)
    }

    fn limit(&mut self, word: &str) -> Parsed<Limit> {
        let make: fn([u32; 3]) -> Limit = match word {
            "maxntid" => Limit::MaxThreads,
            "reqntid" => Limit::RequiredThreads,
            "reqnctapercluster" => Limit::Cluster,
            "minnctapersm" => |[n, ..]| Limit::MinBlocks(n),
            "maxnctapersm" => |[n, ..]| Limit::MaxBlocks(n),
            "maxnreg" => |[n, ..]| Limit::MaxRegisters(n),
            "maxclusterrank" => |[n, ..]| Limit::MaxClusterRank(n),
            "abi_preserve" => |[n, ..]| Limit::Preserve(n),
            "abi_preserve_control" => |[n, ..]| Limit::PreserveControl(n),
            "explicitcluster" => {
                self.advance();
                return Ok(Limit::ExplicitCluster);
            }
            "blocksareclusters" => {
                self.advance();
                return Ok(Limit::BlocksAreClusters);
            }
            "noreturn" => {
                self.advance();
                return Ok(Limit::NoReturn);
            }
            _ => return Err(self.expected("a limit such as `.maxntid`, or `{`")),
        };
        self.advance();
        let mut numbers = [1; 3];
        numbers[0] = self.u32("a number")?;
        let most = if matches!(word, "maxntid" | "reqntid" | "reqnctapercluster") { 3 } else { 1 };
        for number in numbers.iter_mut().take(most).skip(1) {
            if !self.eat(',') {
                break;
            }
            *number = self.u32("a number")?;
        }
        Ok(make(numbers))
    }
}
