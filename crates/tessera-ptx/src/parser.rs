//! PTX text to a [`Module`]: directives, variables and functions. Bodies are read in `parser_body`.

use crate::error::PtxError;
use crate::lexer::{Lexer, Spot, Token};
use crate::model::{Function, FunctionKind, Initial, Item, Limit, Linkage, Module, Name, Space, Variable};
use crate::parser_body::body;
use crate::target::{PtxVersion, Target};
use crate::types::Type;

/// Reads PTX text.
///
/// The text may be hostile: every failure is a [`PtxError`] with its line and column.
pub fn parse(text: &str) -> Result<Module, PtxError> {
    let mut parser = Parser::new(text);
    parser.module()
}

pub(crate) type Parsed<T> = Result<T, PtxError>;

/// A cursor over the tokens: the current one is always read.
pub(crate) struct Parser<'a> {
    lexer: Lexer<'a>,
    pub(crate) token: Token<'a>,
    pub(crate) spot: Spot,
}

impl<'a> Parser<'a> {
    fn new(text: &'a str) -> Parser<'a> {
        let mut lexer = Lexer::new(text);
        let (token, spot) = lexer.next();
        Parser { lexer, token, spot }
    }

    pub(crate) fn advance(&mut self) -> Token<'a> {
        let token = self.token;
        (self.token, self.spot) = self.lexer.next();
        token
    }

    pub(crate) fn error(&self, message: impl Into<String>) -> PtxError {
        PtxError { line: self.spot.line, column: self.spot.column, message: message.into() }
    }

    /// An error that says what was expected and what stands there instead.
    pub(crate) fn expected(&self, what: &str) -> PtxError {
        let found = match self.token {
            Token::Ident(name) => format!("`{name}`"),
            Token::Dotted(name) => format!("`.{name}`"),
            Token::Int(value) => format!("`{value}`"),
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
            Token::Int(value) => {
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
        let target = Target::parse(name).ok_or_else(|| PtxError {
            line: spot.line,
            column: spot.column,
            message: format!("`{name}` is no target"),
        })?;
        while self.eat(',') {
            // `debug` and texture modes change nothing that the model holds.
            self.ident("a target option")?;
        }
        let mut address_size = 64;
        if self.eat_dotted("address_size") {
            address_size = self.u32("an address size")?;
            if address_size != 64 && address_size != 32 {
                return Err(self.error("an address size is 32 or 64"));
            }
        }
        let mut items = Vec::new();
        while self.token != Token::End {
            items.push(self.item()?);
        }
        Ok(Module { version, target, address_size, items })
    }

    /// `8.0` is a decimal fraction to the lexer; its digits are what counts.
    fn version(&mut self) -> Parsed<PtxVersion> {
        match self.token {
            Token::F64(bits) => {
                let value = f64::from_bits(bits);
                let tenths = (value * 10.0).round();
                if !(10.0..1000.0).contains(&tenths) || (tenths / 10.0 - value).abs() > 1e-9 {
                    return Err(self.error(format!("{value} is no PTX version")));
                }
                self.advance();
                Ok(PtxVersion::new(tenths as u32 / 10, tenths as u32 % 10))
            }
            _ => Err(self.expected("a version such as `8.0`")),
        }
    }

    fn item(&mut self) -> Parsed<Item> {
        if self.eat_dotted("file") {
            let index = self.u32("a file number")?;
            let path = self.string("a path in quotes")?;
            while self.eat(',') {
                self.int("a time or size")?;
            }
            return Ok(Item::File { index, path });
        }
        if self.eat_dotted("section") {
            return self.section();
        }
        let linkage = self.linkage();
        match self.token {
            Token::Dotted("entry") => self.function(FunctionKind::Entry, linkage).map(Item::Function),
            Token::Dotted("func") => self.function(FunctionKind::Device, linkage).map(Item::Function),
            _ => {
                let variable = self.variable(linkage)?;
                self.expect(';')?;
                Ok(Item::Variable(variable))
            }
        }
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

    fn align(&mut self) -> Parsed<Option<u32>> {
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

    /// `.shared .align 16 .b8 tile[1024]`, up to but not including what ends it.
    pub(crate) fn variable(&mut self, linkage: Linkage) -> Parsed<Variable> {
        let space = self.space().ok_or_else(|| self.expected("a variable, `.entry` or `.func`"))?;
        self.attribute()?;
        let align = self.align()?;
        let ty = self.ty()?;
        let pointee = if self.eat_dotted("ptr") {
            let space = self.space();
            Some((space, self.align()?.unwrap_or(1)))
        } else {
            None
        };
        let name = Name::from(self.ident("a variable's name")?);
        let mut extents = Vec::new();
        while self.eat('[') {
            if self.eat(']') {
                extents.push(None);
                continue;
            }
            let extent = self.int("an extent")?;
            extents.push(Some(u64::try_from(extent).map_err(|_| self.error("an extent is not negative"))?));
            self.expect(']')?;
        }
        let mut initial = Vec::new();
        if self.eat('=') {
            if self.token == Token::Punct('{') && extents.is_empty() {
                return Err(self.error(format!("`{name}` is no array and takes one initial value")));
            }
            if self.eat('{') {
                while !self.eat('}') {
                    initial.push(self.initial()?);
                    if !self.eat(',') && self.token != Token::Punct('}') {
                        return Err(self.expected("`,` or `}`"));
                    }
                }
            } else {
                initial.push(self.initial()?);
            }
        }
        Ok(Variable { linkage, space, align, ty, pointee, name, extents, initial })
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

    fn initial(&mut self) -> Parsed<Initial> {
        let initial = match self.token {
            Token::F32(bits) => Initial::F32(bits),
            Token::F64(bits) => Initial::F64(bits),
            Token::Ident("generic") => {
                self.advance();
                self.expect('(')?;
                let inner = self.address_initial()?;
                self.expect(')')?;
                let Initial::Address(name, offset) = inner else { return Ok(inner) };
                let behind = if self.eat('+') { self.int("an offset")? } else { 0 };
                return Ok(Initial::Address(name, offset.wrapping_add(behind)));
            }
            Token::Ident(_) => return self.address_initial(),
            _ => return self.int("an initial value").map(Initial::Int),
        };
        self.advance();
        Ok(initial)
    }

    /// A variable's or function's address, perhaps some bytes further. Global addresses are generic ones.
    fn address_initial(&mut self) -> Parsed<Initial> {
        let name = Name::from(self.ident("a name")?);
        let offset = if self.eat('+') { self.int("an offset")? } else { 0 };
        Ok(Initial::Address(name, offset))
    }

    pub(crate) fn variables_in_parentheses(&mut self) -> Parsed<Vec<Variable>> {
        let mut list = Vec::new();
        self.expect('(')?;
        while !self.eat(')') {
            // A function may take and give registers; in the model they are parameters without memory.
            if self.eat_dotted("reg") {
                let ty = self.ty()?;
                let name = Name::from(self.ident("a register's name")?);
                list.push(Variable {
                    linkage: Linkage::Internal,
                    space: Space::Local,
                    align: None,
                    ty,
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
        let results = match (kind, self.token) {
            (FunctionKind::Device, Token::Punct('(')) => self.variables_in_parentheses()?,
            _ => Vec::new(),
        };
        let name = Name::from(self.ident("a function's name")?);
        let params = if self.token == Token::Punct('(') { self.variables_in_parentheses()? } else { Vec::new() };
        let mut limits = Vec::new();
        while let Token::Dotted(word) = self.token {
            limits.push(self.limit(word)?);
        }
        let mut function = Function { kind, linkage, name, results, params, limits, registers: Vec::new(), body: None };
        if !self.eat(';') {
            body(self, &mut function)?;
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
            "explicitcluster" => {
                self.advance();
                return Ok(Limit::ExplicitCluster);
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
