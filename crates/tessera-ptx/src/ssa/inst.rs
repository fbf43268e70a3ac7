//! Instructions and block ends of the SSA form: what they read, what they define, and in whose registers.
//!
//! An instruction's arguments stand in the order of its row's operands, results included. A *tied* result takes over the
//! register of another value: the accumulators of `wgmma`, and what a guarded load leaves where it does not run. *Hidden*
//! arguments concern registers that the text does not name.

use super::kernel::{Block, Value};
use super::op::Op;
use crate::model::Loc;
use crate::word::Special;

/// An address operand: a value and an offset, perhaps with a tensor's coordinates.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Address {
    /// What the offset counts from: 32 bits in shared memory, 64 elsewhere.
    pub base: Value,
    /// In bytes.
    pub offset: i64,
    /// Coordinates in a tensor, innermost first; the base is then the tensor map's address.
    pub coordinates: Option<Vec<Value>>,
}

impl From<Value> for Address {
    fn from(base: Value) -> Address {
        Address { base, offset: 0, coordinates: None }
    }
}

impl From<(Value, i64)> for Address {
    fn from((base, offset): (Value, i64)) -> Address {
        Address { base, offset, coordinates: None }
    }
}

/// An argument of an instruction, in the place that the row's pattern gives it.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Arg {
    /// A result.
    Def(Value),
    /// Two results: `a|b`.
    Pair(Value, Value),
    /// A result that is not wanted.
    Sink,
    /// A result that starts as another value, in the same register.
    Tied {
        /// What the register holds before.
        input: Value,
        /// What it holds behind.
        output: Value,
    },
    /// A source.
    Use(Value),
    /// A predicate, negated.
    Not(Value),
    /// An integer that the row wants as an immediate.
    Int(i64),
    /// A special register that is read here.
    Special(Special),
    /// Memory.
    Address(Address),
    /// `{a, b}`
    Vector(Vec<Arg>),
    /// `(a, b)` of a call.
    List(Vec<Arg>),
    /// A function's name.
    Function(&'static str),
}

impl From<Value> for Arg {
    fn from(value: Value) -> Arg {
        Arg::Use(value)
    }
}

impl From<i64> for Arg {
    fn from(value: i64) -> Arg {
        Arg::Int(value)
    }
}

impl From<Address> for Arg {
    fn from(address: Address) -> Arg {
        Arg::Address(address)
    }
}

impl Arg {
    /// A vector of sources.
    pub fn sources(values: &[Value]) -> Arg {
        Arg::Vector(values.iter().copied().map(Arg::Use).collect())
    }

    pub(crate) fn each_use(&self, each: &mut dyn FnMut(Value)) {
        match self {
            Arg::Def(_) | Arg::Pair(..) | Arg::Sink | Arg::Int(_) | Arg::Special(_) | Arg::Function(_) => {}
            Arg::Tied { input, .. } => each(*input),
            Arg::Use(value) | Arg::Not(value) => each(*value),
            Arg::Address(address) => {
                each(address.base);
                address.coordinates.iter().flatten().for_each(|value| each(*value));
            }
            Arg::Vector(parts) | Arg::List(parts) => parts.iter().for_each(|part| part.each_use(each)),
        }
    }

    fn each_use_mut(&mut self, each: &mut dyn FnMut(&mut Value)) {
        match self {
            Arg::Def(_) | Arg::Pair(..) | Arg::Sink | Arg::Int(_) | Arg::Special(_) | Arg::Function(_) => {}
            Arg::Tied { input, .. } => each(input),
            Arg::Use(value) | Arg::Not(value) => each(value),
            Arg::Address(address) => {
                each(&mut address.base);
                address.coordinates.iter_mut().flatten().for_each(each);
            }
            Arg::Vector(parts) | Arg::List(parts) => parts.iter_mut().for_each(|part| part.each_use_mut(each)),
        }
    }

    fn each_def(&self, each: &mut dyn FnMut(Value)) {
        match self {
            Arg::Def(value) => each(*value),
            Arg::Pair(first, second) => {
                each(*first);
                each(*second);
            }
            Arg::Tied { output, .. } => each(*output),
            Arg::Vector(parts) | Arg::List(parts) => parts.iter().for_each(|part| part.each_def(each)),
            Arg::Function(_) | Arg::Sink | Arg::Use(_) | Arg::Not(_) | Arg::Int(_) | Arg::Special(_) | Arg::Address(_) => {}
        }
    }

    fn each_tied(&self, each: &mut dyn FnMut(Value, Value)) {
        match self {
            Arg::Tied { input, output } => each(*input, *output),
            Arg::Vector(parts) | Arg::List(parts) => parts.iter().for_each(|part| part.each_tied(each)),
            Arg::Function(_)
            | Arg::Def(_)
            | Arg::Pair(..)
            | Arg::Sink
            | Arg::Use(_)
            | Arg::Not(_)
            | Arg::Int(_)
            | Arg::Special(_)
            | Arg::Address(_) => {}
        }
    }
}

/// The predicate under which an instruction runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Guard {
    /// The predicate.
    pub value: Value,
    /// Runs where it is false.
    pub negated: bool,
}

/// An instruction.
#[derive(Clone, Debug, PartialEq)]
pub struct InstData {
    /// Row and modifiers.
    pub op: Op,
    /// Runs only under this.
    pub guard: Option<Guard>,
    /// In the row's order.
    pub args: Vec<Arg>,
    /// Registers that the instruction concerns without naming them: accumulators that a wait makes readable (tied), operands
    /// that must stay as they are until it (used). Not printed.
    pub hidden: Vec<Arg>,
    /// The place in the source.
    pub loc: Option<Loc>,
    /// An integer sum that stays inside its type, as the builder knows of a loop's index.
    pub exact: bool,
}

impl InstData {
    /// Every value that is read, the guard's included.
    pub fn each_use(&self, mut each: impl FnMut(Value)) {
        if let Some(guard) = self.guard {
            each(guard.value);
        }
        self.args.iter().chain(&self.hidden).for_each(|arg| arg.each_use(&mut each));
    }

    /// Every value that is read, to be replaced.
    pub fn each_use_mut(&mut self, mut each: impl FnMut(&mut Value)) {
        if let Some(guard) = &mut self.guard {
            each(&mut guard.value);
        }
        self.args.iter_mut().chain(&mut self.hidden).for_each(|arg| arg.each_use_mut(&mut each));
    }

    /// Every result.
    pub fn each_def(&self, mut each: impl FnMut(Value)) {
        self.args.iter().chain(&self.hidden).for_each(|arg| arg.each_def(&mut each));
    }

    /// Every pair of a value and the result that takes over its register.
    pub fn each_tied(&self, mut each: impl FnMut(Value, Value)) {
        self.args.iter().chain(&self.hidden).for_each(|arg| arg.each_tied(&mut each));
    }

    /// The only result, where there is exactly one and it is no tied one.
    pub fn single_def(&self) -> Option<Value> {
        let mut found = None;
        let mut count = 0;
        self.each_def(|value| {
            count += 1;
            found = Some(value);
        });
        match self.args.first() {
            Some(Arg::Def(_)) if count == 1 => found,
            _ => None,
        }
    }
}

/// Where a jump goes and what it passes to the block's parameters.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Target {
    /// The block.
    pub block: Block,
    /// One value for each of its parameters.
    pub args: Vec<Value>,
}

/// How a block ends.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Terminator {
    /// Goes on elsewhere.
    Jump(Target),
    /// Goes to one of two places.
    Branch {
        /// Decides.
        condition: Value,
        /// Where it is true.
        then: Target,
        /// Where it is false.
        otherwise: Target,
    },
    /// `ret`
    Return,
    /// `exit`
    Exit,
    /// `trap`
    Trap,
}

impl Terminator {
    /// The jumps, in order.
    pub fn targets(&self) -> impl Iterator<Item = &Target> {
        let (first, second) = match self {
            Terminator::Jump(target) => (Some(target), None),
            Terminator::Branch { then, otherwise, .. } => (Some(then), Some(otherwise)),
            Terminator::Return | Terminator::Exit | Terminator::Trap => (None, None),
        };
        first.into_iter().chain(second)
    }

    /// The jumps, in order, to be changed.
    pub fn targets_mut(&mut self) -> impl Iterator<Item = &mut Target> {
        let (first, second) = match self {
            Terminator::Jump(target) => (Some(target), None),
            Terminator::Branch { then, otherwise, .. } => (Some(then), Some(otherwise)),
            Terminator::Return | Terminator::Exit | Terminator::Trap => (None, None),
        };
        first.into_iter().chain(second)
    }

    /// Every value that is read.
    pub fn each_use(&self, mut each: impl FnMut(Value)) {
        if let Terminator::Branch { condition, .. } = self {
            each(*condition);
        }
        self.targets().flat_map(|target| &target.args).for_each(|value| each(*value));
    }

    /// Every value that is read, to be replaced.
    pub fn each_use_mut(&mut self, mut each: impl FnMut(&mut Value)) {
        if let Terminator::Branch { condition, .. } = self {
            each(condition);
        }
        self.targets_mut().flat_map(|target| &mut target.args).for_each(each);
    }
}
