//! The scalar optimiser: passes over a kernel in SSA form. Each keeps what the kernel computes, bit for bit.

mod addresses;
mod dead;
mod divide;
mod flow;
mod hoist;
mod induct;
mod narrow;
mod number;
mod pieces;
mod ranges;
mod vectors;

use super::code::Code;
use super::inst::{Arg, InstData};
use super::kernel::{Class, Inst, Kernel, Origin, Value};
use super::op::Op;
use super::verify::verify;
use crate::types::Type;

/// How much is done.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub enum Level {
    /// Nothing.
    O0,
    /// What makes the text smaller: folding, merging, dropping.
    O1,
    /// Everything.
    #[default]
    O2,
}

/// A pass: its name, the level it starts at, and what it does; it gives back how many things it changed.
struct Pass {
    name: &'static str,
    level: Level,
    run: fn(&mut Kernel) -> usize,
}

const fn pass(name: &'static str, level: Level, run: fn(&mut Kernel) -> usize) -> Pass {
    Pass { name, level, run }
}

/// The pipeline, in order.
const PIPELINE: &[Pass] = &[
    pass("flow", Level::O1, flow::run),
    pass("number", Level::O1, number::run),
    pass("narrow", Level::O2, narrow::run),
    pass("divide", Level::O2, divide::run),
    pass("addresses", Level::O2, addresses::run),
    pass("number", Level::O2, number::run),
    pass("dead", Level::O1, dead::run),
    pass("hoist", Level::O2, hoist::run),
    pass("induct", Level::O2, induct::run),
    pass("addresses", Level::O2, addresses::run),
    pass("number", Level::O2, number::run),
    pass("dead", Level::O2, dead::run),
    pass("vectors", Level::O2, vectors::run),
    pass("flow", Level::O1, flow::run),
    pass("dead", Level::O1, dead::run),
    pass("pieces", Level::O2, pieces::run),
];

/// What one pass did.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PassReport {
    /// The pass.
    pub name: &'static str,
    /// How many things it changed.
    pub changes: usize,
    /// Instructions behind it.
    pub instructions: usize,
}

/// Runs the pipeline of a level.
pub fn optimize(kernel: &mut Kernel, level: Level) -> Vec<PassReport> {
    let mut reports = Vec::new();
    for pass in PIPELINE.iter().filter(|pass| pass.level <= level) {
        let changes = (pass.run)(kernel);
        debug_assert_eq!(verify(kernel), Vec::<String>::new(), "behind `{}`", pass.name);
        reports.push(PassReport { name: pass.name, changes, instructions: kernel.size() });
    }
    reports
}

/// 32-bit registers of a value; predicates have their own.
fn words(class: Class) -> u32 {
    match class {
        Class::Pred => 0,
        Class::B16 | Class::B32 => 1,
        Class::B64 => 2,
    }
}

/// Values that stand for others.
#[derive(Clone, Debug)]
struct Replacements(Vec<Option<Value>>);

impl Replacements {
    fn new(kernel: &Kernel) -> Replacements {
        Replacements(vec![None; kernel.values.len()])
    }

    fn replace(&mut self, old: Value, new: Value) {
        let new = self.find(new);
        if old != new {
            self.0.resize(self.0.len().max(old.index() + 1), None);
            self.0[old.index()] = Some(new);
        }
    }

    fn find(&self, value: Value) -> Value {
        let mut value = value;
        while let Some(next) = self.0.get(value.index()).copied().flatten() {
            value = next;
        }
        value
    }

    /// Puts the replacements into every use.
    fn apply(&self, kernel: &mut Kernel) {
        if self.0.iter().all(Option::is_none) {
            return;
        }
        for block in kernel.layout.clone() {
            for inst in kernel.block(block).insts.clone() {
                kernel.inst_mut(inst).each_use_mut(|value| *value = self.find(*value));
            }
            if let Some(end) = &mut kernel.block_mut(block).terminator {
                end.each_use_mut(|value| *value = self.find(*value));
            }
        }
    }
}

impl Kernel {
    /// The operation of this text whose row takes the arguments; for texts that the passes write themselves.
    pub(crate) fn resolve(&mut self, text: &str, args: &[Arg]) -> Option<Op> {
        let ops = self.ops.find(text).ok()?;
        let operands: Vec<_> = args.iter().map(super::builder::as_operand).collect();
        let class = |id: crate::model::RegId| self.values[id.0 as usize].class.ty();
        ops.iter().copied().find(|&op| {
            let data = self.ops.get(op);
            let rules = &crate::form::form(data.row).operands;
            crate::operand_rule::matches(rules, &data.modifiers, &operands, &class).is_ok()
        })
    }

    /// A new pure instruction in no block yet, with one result, from its code and sources; `like` gives its place in the
    /// source.
    fn pure(&mut self, code: Code, class: Class, sources: &[Value], like: Inst) -> Option<(Inst, Value)> {
        let result = self.new_value(class, Origin::Undef);
        let args: Vec<Arg> = std::iter::once(Arg::Def(result)).chain(sources.iter().copied().map(Arg::Use)).collect();
        let op = self.resolve(&code.text(), &args)?;
        let loc = self.inst(like).loc;
        let inst = self.new_inst(InstData { op, guard: None, args, hidden: Vec::new(), loc, exact: false });
        Some((inst, result))
    }

    /// The sources of an instruction that reads values alone and defines one.
    fn sources(&self, inst: Inst) -> Option<Vec<Value>> {
        let data = self.inst(inst);
        let [Arg::Def(_), sources @ ..] = &data.args[..] else { return None };
        if data.guard.is_some() {
            return None;
        }
        sources
            .iter()
            .map(|arg| match arg {
                Arg::Use(value) => Some(*value),
                _ => None,
            })
            .collect()
    }

    /// The code and the sources of the instruction that defines a value, when it is of that kind.
    pub(crate) fn expression(&self, value: Value) -> Option<(Code, Vec<Value>)> {
        let inst = self.definition(value)?;
        Some((self.code(inst)?, self.sources(inst)?))
    }

    /// The predicate that a value is the opposite of.
    pub(crate) fn negated(&self, predicate: Value) -> Option<Value> {
        match self.expression(predicate)? {
            (Code::Not(Type::Pred), sources) => sources.first().copied(),
            _ => None,
        }
    }

    /// Makes an instruction compute its result in another way.
    fn rewrite(&mut self, inst: Inst, code: Code, sources: &[Value]) -> bool {
        let Some(result) = self.inst(inst).single_def() else { return false };
        let args: Vec<Arg> = std::iter::once(Arg::Def(result)).chain(sources.iter().copied().map(Arg::Use)).collect();
        let Some(op) = self.resolve(&code.text(), &args) else { return false };
        let data = self.inst_mut(inst);
        data.op = op;
        data.args = args;
        data.exact = false;
        true
    }
}
