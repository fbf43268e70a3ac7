//! Random functions of scalars, well-typed, in the Python that kernels may be written in.
//!
//! A program is a module: constants and helper functions, and a function `case(a, b, x, p, K, S, T)` of two integers, a float, a truth
//! value, and three arguments that are always known when a kernel is compiled. What it computes stays small enough that 32-bit
//! integers don't wrap and floats of 24 bits are exact, so that every executor has to give what Python gives.

use std::fmt::Write;
use std::rc::Rc;

use super::choices::Choices;

/// The type of an expression.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Ty {
    Int,
    Bool,
    Float,
    /// Always known when a kernel is compiled.
    Str,
    Tuple(Vec<Ty>),
    Function(Rc<Signature>),
}

/// A function that can be called.
#[derive(Debug, PartialEq)]
pub(super) struct Signature {
    pub(super) params: Vec<Param>,
    pub(super) result: Ty,
}

#[derive(Debug, PartialEq)]
pub(super) struct Param {
    pub(super) name: String,
    pub(super) ty: Ty,
    pub(super) passing: Passing,
    pub(super) has_default: bool,
}

#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Passing {
    Either,
    Keyword,
    /// Any number of integers.
    Variadic,
}

/// What is known of a number: its largest magnitude, and for floats how many bits follow the point.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Size {
    pub(super) bound: f64,
    pub(super) bits: u32,
}

impl Size {
    pub(super) const SMALL: Size = Size { bound: 10.0, bits: 2 };
    /// What every number of a loop's variables stays below.
    pub(super) const LOOP: Size = Size { bound: 100.0, bits: 2 };

    pub(super) fn max(self, other: Size) -> Size {
        Size { bound: self.bound.max(other.bound), bits: self.bits.max(other.bits) }
    }
}

/// An expression.
#[derive(Clone, Debug)]
pub(super) struct Written {
    pub(super) text: String,
    pub(super) size: Size,
}

pub(super) fn written(text: impl Into<String>, size: Size) -> Written {
    Written { text: text.into(), size }
}

#[derive(Clone, Debug)]
pub(super) struct Variable {
    pub(super) name: String,
    pub(super) ty: Ty,
    pub(super) size: Size,
}

/// What the functions are written for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Dialect {
    /// Block style: everything.
    Block,
    /// Per-thread style: no tuples made at run time, no lambdas, one `return` a function.
    Threads,
}

/// A random program.
#[derive(Clone, Debug)]
pub(crate) struct Program {
    /// Constants and helper functions.
    pub(crate) prelude: String,
    /// The statements of the function.
    pub(crate) body: String,
    /// The results: an expression each, and whether it is a float.
    pub(crate) results: Vec<(String, bool)>,
    /// True when the body returns early and so is a function of its own.
    pub(crate) returns: bool,
}

pub(crate) const PARAMETERS: &str = "a, b, x, p, K, S, T";

impl Program {
    /// The function, as a helper of a kernel and for Python.
    pub(crate) fn source(&self) -> String {
        let results: Vec<&str> = self.results.iter().map(|(text, _)| text.as_str()).collect();
        format!("{}\ndef case({PARAMETERS}):\n{}    return ({},)\n", self.prelude, self.body, results.join(", "))
    }
}

pub(super) struct Generator<'c> {
    pub(super) choices: &'c mut Choices,
    pub(super) dialect: Dialect,
    /// Variables of the functions around this place, innermost last.
    pub(super) frames: Vec<Vec<Variable>>,
    pub(super) out: String,
    pub(super) indent: usize,
    /// Loops around this place in its function; what they change stays small.
    pub(super) loops: u32,
    /// True where a `return` may stand.
    pub(super) may_return: bool,
    pub(super) returned: bool,
    /// The types of what the function yields.
    pub(super) results: Vec<Ty>,
    /// Statements left.
    pub(super) budget: u32,
    pub(super) counter: u32,
}

/// A random program for a dialect.
pub(crate) fn program(choices: &mut Choices, dialect: Dialect) -> Program {
    let budget = 1 + choices.below(12);
    let may_return = dialect == Dialect::Block && choices.chance(40);
    let mut results = vec![Ty::Int];
    // The first result is a number made of everything.
    for _ in 0..choices.below(3) {
        results.push(match choices.below(4) {
            0 | 1 => Ty::Int,
            2 => Ty::Bool,
            _ => Ty::Float,
        });
    }
    let mut generator = Generator {
        choices,
        dialect,
        frames: vec![Vec::new()],
        out: String::new(),
        indent: 0,
        loops: 0,
        may_return: false,
        returned: false,
        results: results.clone(),
        budget: 4,
        counter: 0,
    };
    generator.module();
    let prelude = std::mem::take(&mut generator.out);
    generator.indent = 1;
    generator.budget = budget;
    generator.may_return = may_return;
    generator.frames.push(Vec::new());
    for (name, ty) in [("a", Ty::Int), ("b", Ty::Int), ("x", Ty::Float), ("p", Ty::Bool), ("K", Ty::Int), ("S", Ty::Str)] {
        generator.bind(name, ty, Size::SMALL);
    }
    if dialect == Dialect::Block {
        generator.bind("T", Ty::Tuple(vec![Ty::Int, Ty::Int, Ty::Int]), Size::SMALL);
    }
    generator.statements();
    generator.digest();
    let mut finals = vec![("digest".to_string(), false)];
    for ty in &results[1..] {
        let value = generator.expression(ty, 2);
        finals.push((generator.wrapped(value, ty).text, *ty == Ty::Float));
    }
    let returns = generator.returned;
    Program { prelude, body: std::mem::take(&mut generator.out), results: finals, returns }
}

impl Generator<'_> {
    pub(super) fn line(&mut self, text: impl AsRef<str>) {
        let _ = writeln!(self.out, "{}{}", "    ".repeat(self.indent), text.as_ref());
    }

    pub(super) fn fresh(&mut self, letter: char) -> String {
        self.counter += 1;
        format!("{letter}{}", self.counter)
    }

    /// Makes a variable of the function at hand known.
    pub(super) fn bind(&mut self, name: &str, ty: Ty, size: Size) {
        let frame = self.frames.last_mut().expect("a frame");
        frame.retain(|variable| variable.name != name);
        frame.push(Variable { name: name.to_string(), ty, size });
    }

    /// The variables that can be read here.
    pub(super) fn visible(&self) -> Vec<Variable> {
        let mut found: Vec<Variable> = Vec::new();
        for variable in self.frames.iter().rev().flatten() {
            if !found.iter().any(|own| own.name == variable.name) {
                found.push(variable.clone());
            }
        }
        found
    }

    /// True when a name can be read here.
    pub(super) fn sees(&self, name: &str) -> bool {
        self.frames.iter().flatten().any(|own| own.name == name)
    }

    pub(super) fn visible_of(&self, ty: &Ty) -> Vec<Variable> {
        self.visible().into_iter().filter(|own| own.ty == *ty).collect()
    }

    /// Makes one number of all that was computed.
    fn digest(&mut self) {
        self.line("digest = 0");
        for own in self.frames.last().cloned().unwrap_or_default() {
            let parts: Vec<(String, Ty)> = match own.ty {
                Ty::Tuple(types) => types.into_iter().enumerate().map(|(at, ty)| (format!("{}[{at}]", own.name), ty)).collect(),
                ty => vec![(own.name, ty)],
            };
            for (text, ty) in parts {
                match ty {
                    Ty::Int => self.line(format!("digest = (digest * 3 + {text}) % 9973")),
                    Ty::Bool => self.line(format!("digest = digest * 2 % 9973 + int({text})")),
                    Ty::Float => self.line(format!("digest = (digest * 3 + int({text} * 4)) % 9973")),
                    Ty::Str | Ty::Tuple(_) | Ty::Function(_) => {}
                }
            }
        }
        self.bind("digest", Ty::Int, Size { bound: 9974.0, bits: 0 });
    }

    /// Constants, some of them bound again, and helper functions.
    fn module(&mut self) {
        let first = self.choices.below(7) as i64;
        self.line(format!("G = {first}"));
        self.line("H = G + 1");
        self.bind("G", Ty::Int, Size::SMALL);
        self.bind("H", Ty::Int, Size::SMALL);
        if self.choices.chance(50) {
            let again = 1 + self.choices.below(7);
            self.line(format!("G = {again}"));
        }
        if self.choices.chance(20) {
            self.line("H += 2");
        }
        for _ in 0..1 + self.choices.below(3) {
            self.define(true);
            if self.choices.chance(30) {
                let again = self.choices.below(9);
                self.line(format!("G = {again}"));
            }
        }
        if self.dialect == Dialect::Block && self.choices.chance(25) {
            self.decorated();
        }
    }
}
