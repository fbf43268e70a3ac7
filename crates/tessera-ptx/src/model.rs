//! The model: a module is variables and functions; a function is declarations and statements; a statement is mostly an
//! instruction, which is a row of the table with its modifiers and operands filled in.
//!
//! Names are kept as written. Registers are numbered in the order of their first mention, each with the type of the
//! declaration in scope, so passes and executors index by [`RegId`] and never look at text.

use std::fmt;
use std::sync::Arc;

use crate::form::RowId;
use crate::target::{PtxVersion, Target};
use crate::types::Type;
use crate::word::{Modifier, Special};

/// A name of a variable, label or function.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Name(
    /// The text.
    pub Arc<str>,
);

impl From<&str> for Name {
    fn from(text: &str) -> Name {
        Name(Arc::from(text))
    }
}

impl fmt::Display for Name {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// A module: one PTX file.
#[derive(Clone, Debug, PartialEq)]
pub struct Module {
    /// `.version`
    pub version: PtxVersion,
    /// `.target`
    pub target: Target,
    /// `texmode_independent`: textures and samplers are named apart. Otherwise a texture brings its sampler.
    pub independent_samplers: bool,
    /// `.address_size`; 64 everywhere today.
    pub address_size: u32,
    /// Variables, functions and source files in order.
    pub items: Vec<Item>,
}

impl Module {
    /// The functions that have a body.
    pub fn functions(&self) -> impl Iterator<Item = &Function> {
        self.items.iter().filter_map(|item| match item {
            Item::Function(function) if function.body.is_some() => Some(function),
            _ => None,
        })
    }

    /// The function of this name, or that the name is an alias of, if it has a body.
    pub fn function(&self, name: &Name) -> Option<&Function> {
        let alias = self.items.iter().find_map(|item| match item {
            Item::Alias { name: own, of } if own == name => Some(of),
            _ => None,
        });
        let wanted = alias.unwrap_or(name);
        self.functions().find(|function| function.name == *wanted)
    }
}

/// Something at the top of a module.
#[derive(Clone, Debug, PartialEq)]
pub enum Item {
    /// A variable.
    Variable(Variable),
    /// A kernel or a function, with or without a body.
    Function(Function),
    /// `.section`: debug data, kept as written.
    Section {
        /// The name with its dot.
        name: String,
        /// What stands between the braces.
        text: String,
    },
    /// `.file`: a source file that `.loc` names by its number.
    File {
        /// The number.
        index: u32,
        /// The path.
        path: String,
    },
    /// `.pragma`
    Pragma(String),
    /// `.alias`: another name of a function.
    Alias {
        /// The name that is declared.
        name: Name,
        /// The function that it means.
        of: Name,
    },
}

/// How a name is seen from outside.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Linkage {
    /// Not at all.
    Internal,
    /// `.visible`
    Visible,
    /// `.extern`
    Extern,
    /// `.weak`
    Weak,
    /// `.common`
    Common,
}

/// Where a variable lives.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Space {
    /// `.global`
    Global,
    /// `.shared`
    Shared,
    /// `.const`
    Const,
    /// `.local`
    Local,
    /// `.param`
    Param,
}

/// A variable or parameter.
#[derive(Clone, Debug, PartialEq)]
pub struct Variable {
    /// Visibility.
    pub linkage: Linkage,
    /// Where it lives.
    pub space: Space,
    /// `.align` in bytes.
    pub align: Option<u32>,
    /// The element type.
    pub ty: Type,
    /// How many of them are one element: 2 or 4 for `.v2` and `.v4`, otherwise 1.
    pub lanes: u32,
    /// For a pointer parameter: the space and alignment it promises (`.ptr .global .align 16`).
    pub pointee: Option<(Option<Space>, u32)>,
    /// The name.
    pub name: Name,
    /// Array extents, outermost first; `None` is `[]`.
    pub extents: Vec<Option<u64>>,
    /// Initial elements.
    pub initial: Vec<Initial>,
}

/// One initial element of a variable.
#[derive(Clone, Debug, PartialEq)]
pub enum Initial {
    /// An integer.
    Int(i64),
    /// The bits of an f32.
    F32(u32),
    /// The bits of an f64.
    F64(u64),
    /// The address of a variable or function, and bytes behind it.
    Address(Name, i64),
    /// One byte of it, from 0: `0xFF00(name)` is byte 1.
    AddressByte(Name, i64, u8),
    /// A property of a texture, sampler or surface: `filter_mode = linear`.
    Property(Name, Name),
}

/// Whether a function can be launched or called.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FunctionKind {
    /// `.entry`: a kernel.
    Entry,
    /// `.func`
    Device,
}

/// A limit or request of a kernel, printed between its parameters and its body.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Limit {
    /// `.maxntid`
    MaxThreads([u32; 3]),
    /// `.reqntid`
    RequiredThreads([u32; 3]),
    /// `.minnctapersm`
    MinBlocks(u32),
    /// `.maxnctapersm`
    MaxBlocks(u32),
    /// `.maxnreg`
    MaxRegisters(u32),
    /// `.reqnctapercluster`
    Cluster([u32; 3]),
    /// `.maxclusterrank`
    MaxClusterRank(u32),
    /// `.explicitcluster`
    ExplicitCluster,
    /// `.blocksareclusters`
    BlocksAreClusters,
    /// `.noreturn`
    NoReturn,
    /// `.abi_preserve`
    Preserve(u32),
    /// `.abi_preserve_control`
    PreserveControl(u32),
}

/// A kernel or function.
#[derive(Clone, Debug, PartialEq)]
pub struct Function {
    /// Kernel or function.
    pub kind: FunctionKind,
    /// Visibility.
    pub linkage: Linkage,
    /// The name.
    pub name: Name,
    /// What it gives back; kernels give nothing.
    pub results: Vec<Variable>,
    /// What it takes.
    pub params: Vec<Variable>,
    /// Limits and requests.
    pub limits: Vec<Limit>,
    /// The registers that the body mentions.
    pub registers: Vec<Register>,
    /// The statements, or `None` for a declaration.
    pub body: Option<Vec<Statement>>,
}

/// A register's index in its function.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct RegId(
    /// Into [`Function::registers`].
    pub u32,
);

/// A register that the body mentions.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Register {
    /// The name with its `%`.
    pub name: Name,
    /// The declared type.
    pub ty: Type,
}

/// A register declaration: one type, several names, each with an optional count (`%r<10>`).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Declaration {
    /// The type.
    pub ty: Type,
    /// 2 or 4 for registers that are vectors (`.v4`), otherwise 1.
    pub lanes: u32,
    /// Names and counts.
    pub names: Vec<(Name, Option<u32>)>,
}

/// A place in the source language.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Loc {
    /// The number of a `.file`.
    pub file: u32,
    /// The line, from 1.
    pub line: u32,
    /// The column, from 1; 0 is unknown.
    pub column: u32,
}

/// A source file's name as `.file` takes it, between quotes.
pub fn file_name(name: &str) -> String {
    name.replace(['"', '\\', '\n'], "_")
}

/// Which call a place was inlined from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Inlined {
    /// The label of the inlined function's name in the debug data.
    pub name: Name,
    /// Bytes behind that label.
    pub offset: i64,
    /// Where the call stood.
    pub at: Loc,
}

/// One statement of a body.
#[derive(Clone, Debug, PartialEq)]
pub enum Statement {
    /// `.reg`
    Registers(Declaration),
    /// A variable of the body's scope.
    Variable(Variable),
    /// `name:`
    Label(Name),
    /// `.loc`: holds for the statements behind it.
    Loc(Loc, Option<Inlined>),
    /// `.pragma`
    Pragma(String),
    /// An instruction.
    Instruction(Instruction),
    /// A nested scope.
    Block(Vec<Statement>),
    /// `name: .branchtargets a, b;` or `.calltargets`: where an indexed branch or an indirect call may go.
    Targets {
        /// What the branch or call says.
        name: Name,
        /// Functions rather than labels.
        functions: bool,
        /// The labels or functions.
        targets: Vec<Name>,
    },
    /// `name: .callprototype (results) _ (params);`: what an indirect call passes.
    Prototype {
        /// What the call says.
        name: Name,
        /// What the function gives back.
        results: Vec<Variable>,
        /// What it takes.
        params: Vec<Variable>,
        /// `.noreturn`
        noreturn: bool,
    },
}

/// A predicate in front of an instruction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Guard {
    /// The predicate.
    pub register: RegId,
    /// `@!p`
    pub negated: bool,
}

/// An instruction: a row with modifiers and operands filled in.
#[derive(Clone, Debug, PartialEq)]
pub struct Instruction {
    /// Where it stands in the text it was read from; 0 where it was built. Not compared, not printed.
    pub line: Line,
    /// The predicate that lets it run.
    pub guard: Option<Guard>,
    /// The row of the table.
    pub row: RowId,
    /// The dotted parts that are present, in order.
    pub modifiers: Vec<Modifier>,
    /// The operands, in order.
    pub operands: Vec<Operand>,
}

/// A line of PTX text that does not take part in comparisons.
#[derive(Clone, Copy, Debug, Default)]
pub struct Line(
    /// The line, from 1; 0 is none.
    pub u32,
);

impl PartialEq for Line {
    fn eq(&self, _: &Line) -> bool {
        true
    }
}

/// An operand.
#[derive(Clone, Debug, PartialEq)]
pub enum Operand {
    /// A register.
    Register(RegId),
    /// `!p`
    Not(RegId),
    /// A special register.
    Special(Special),
    /// An integer.
    Int(i64),
    /// The bits of an f32 literal (`0f3F800000`).
    F32(u32),
    /// The bits of an f64 literal (`0d3FF0000000000000`).
    F64(u64),
    /// A label, variable or function; with a byte offset for a variable's address.
    Symbol(Name, i64),
    /// `[base+offset]`, for tensors with coordinates behind a comma.
    Address(Address),
    /// `{a, b}`
    Vector(Vec<Operand>),
    /// `(a, b)` of a call.
    List(Vec<Operand>),
    /// `a|b`: two destinations.
    Pair(Box<(Operand, Operand)>),
    /// `-%r1.h0`: a register of a video instruction.
    Part {
        /// The register.
        register: RegId,
        /// Which bytes or halves; none is all.
        part: Option<Part>,
        /// A minus stands in front.
        negated: bool,
    },
    /// `_`: a result that is not wanted.
    Sink,
}

/// Bytes or halves that a video instruction selects: `.b0`, `.h1`, `.b3210`, `.h32`. Of two registers, the second's are counted on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Part {
    /// Bytes rather than halves.
    pub bytes: bool,
    digits: [u8; 4],
    count: u8,
}

impl Part {
    /// Reads `b3210` or `h1`.
    pub fn parse(text: &str) -> Option<Part> {
        let (bytes, rest) = match text.strip_prefix('b') {
            Some(rest) => (true, rest),
            None => (false, text.strip_prefix('h')?),
        };
        let (mut digits, count) = ([0; 4], rest.len() as u8);
        if !(1..=4).contains(&rest.len()) {
            return None;
        }
        for (digit, byte) in digits.iter_mut().zip(rest.bytes()) {
            *digit = byte.checked_sub(b'0').filter(|&digit| digit < if bytes { 8 } else { 4 })?;
        }
        Some(Part { bytes, digits, count })
    }

    /// The selected places, the lowest first.
    pub fn places(self) -> impl DoubleEndedIterator<Item = u8> {
        self.digits.into_iter().take(usize::from(self.count)).rev()
    }

    /// Whether an instruction on this many lanes takes it, as a source or as the mask of a destination.
    pub(crate) fn suits(self, lanes: u8, source: bool) -> Result<(), String> {
        let own = if self.bytes { 4 } else { 2 };
        let falling = self.digits[..usize::from(self.count)].is_sorted_by(|a, b| a > b);
        let inside = self.places().all(|place| place < own);
        let fits = match (lanes, source) {
            (0, _) => false,
            (1, _) => self.count == 1 && inside,
            (_, true) => self.bytes == (lanes == 4) && self.count == lanes,
            (_, false) => self.bytes == (lanes == 4) && inside && falling,
        };
        if fits { Ok(()) } else { Err(format!("cannot have `.{self}`")) }
    }
}

impl fmt::Display for Part {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(if self.bytes { "b" } else { "h" })?;
        self.digits[..usize::from(self.count)].iter().try_for_each(|digit| write!(f, "{digit}"))
    }
}

/// A memory operand.
#[derive(Clone, Debug, PartialEq)]
pub struct Address {
    /// What the offset counts from.
    pub base: Base,
    /// In bytes.
    pub offset: i64,
    /// Coordinates in a tensor, texture or surface.
    pub coordinates: Option<Vec<Operand>>,
    /// The sampler, where it is named apart from the texture.
    pub sampler: Option<Base>,
}

/// What an address counts from.
#[derive(Clone, Debug, PartialEq)]
pub enum Base {
    /// A register.
    Register(RegId),
    /// A variable.
    Symbol(Name),
    /// Nothing: the offset is the address.
    Zero,
}
