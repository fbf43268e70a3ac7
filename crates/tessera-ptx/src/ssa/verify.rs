//! The verifier of the SSA form. What it accepts, [`emit`](super::emit()) turns into legal PTX.
//!
//! - Every block of the layout has an end; jumps go to blocks of the layout and pass one value of the right class for each
//!   parameter. The entry has no parameters.
//! - Every value has one definition, which dominates its uses; in a block that can't be reached nothing is asked.
//! - Each instruction's arguments fit its row. A tied pair has one class; a definition under a guard is tied.
//! - Guards and branch conditions are predicates.

use super::builder::as_operand;
use super::cfg::Cfg;
use super::inst::{Arg, Terminator};
use super::kernel::{Block, Class, Inst, Kernel, Origin, Value};
use super::liveness::Place;
use crate::form::form;
use crate::model::RegId;
use crate::operand_rule::matches;

/// Everything that is wrong with a kernel.
pub fn verify(kernel: &Kernel) -> Vec<String> {
    let mut verifier = Verifier { kernel, places: vec![None; kernel.values.len()], problems: Vec::new() };
    verifier.blocks();
    if verifier.problems.is_empty() {
        verifier.definitions();
        verifier.uses();
    }
    verifier.problems
}

struct Verifier<'a> {
    kernel: &'a Kernel,
    places: Vec<Option<Place>>,
    problems: Vec<String>,
}

impl Verifier<'_> {
    fn blocks(&mut self) {
        let kernel = self.kernel;
        if !kernel.block(kernel.entry()).params.is_empty() {
            self.problems.push("the entry has parameters".to_owned());
        }
        let mut placed = vec![false; kernel.blocks.len()];
        for block in &kernel.layout {
            if std::mem::replace(&mut placed[block.index()], true) {
                self.problems.push(format!("block {} is placed twice", block.0));
            }
        }
        for &block in &kernel.layout {
            let Some(end) = &kernel.block(block).terminator else {
                self.problems.push(format!("block {} has no end", block.0));
                continue;
            };
            for target in end.targets() {
                let params = &kernel.block(target.block).params;
                if !placed[target.block.index()] {
                    self.problems.push(format!("block {} jumps to block {}, which is not placed", block.0, target.block.0));
                }
                let fits = params.len() == target.args.len()
                    && params.iter().zip(&target.args).all(|(&param, &arg)| kernel.class(param) == kernel.class(arg));
                if !fits {
                    self.problems.push(format!("block {} passes wrong values to block {}", block.0, target.block.0));
                }
            }
            if let Terminator::Branch { condition, .. } = end
                && kernel.class(*condition) != Class::Pred
            {
                self.problems.push(format!("block {} branches on no predicate", block.0));
            }
        }
    }

    fn define(&mut self, value: Value, place: Place, origin: Origin) {
        if self.places[value.index()].replace(place).is_some() {
            self.problems.push(format!("value {} is defined twice", value.0));
        }
        if self.kernel.origin(value) != origin {
            self.problems.push(format!("value {} is defined by something else than it says", value.0));
        }
    }

    fn definitions(&mut self) {
        let kernel = self.kernel;
        for &block in &kernel.layout {
            let data = kernel.block(block);
            for (index, &param) in data.params.iter().enumerate() {
                self.define(param, (block, 0), Origin::BlockParam(block, index as u32));
            }
            for (index, &inst) in data.insts.iter().enumerate() {
                kernel.inst(inst).each_def(|value| self.define(value, (block, index as u32 + 1), Origin::Result(inst)));
            }
        }
    }

    fn uses(&mut self) {
        let kernel = self.kernel;
        let cfg = Cfg::new(kernel);
        for &block in &cfg.order {
            let data = kernel.block(block);
            for (index, &inst) in data.insts.iter().enumerate() {
                kernel.inst(inst).each_use(|value| self.read(&cfg, value, (block, index as u32 + 1)));
                self.instruction(block, inst);
            }
            let end = (block, data.insts.len() as u32 + 1);
            data.terminator.iter().for_each(|terminator| terminator.each_use(|value| self.read(&cfg, value, end)));
        }
    }

    fn read(&mut self, cfg: &Cfg, value: Value, (block, position): Place) {
        if self.kernel.origin(value).is_leaf() {
            return;
        }
        let defined = self.places[value.index()].is_some_and(|(home, at)| {
            if home == block { at < position } else { cfg.is_reachable(home) && cfg.dominates(home, block) }
        });
        if !defined {
            self.problems.push(format!("value {} is read in block {} before it is defined", value.0, block.0));
        }
    }

    fn instruction(&mut self, block: Block, inst: Inst) {
        let kernel = self.kernel;
        let data = kernel.inst(inst);
        let op = kernel.ops.get(data.op);
        let operands: Vec<_> = data.args.iter().map(as_operand).collect();
        let class = |id: RegId| kernel.values[id.0 as usize].class.ty();
        let mut wrong = |problem: &str| self.problems.push(format!("`{}` in block {}: {problem}", op.text, block.0));
        if let Err((index, problem)) = matches(&form(op.row).operands, &op.modifiers, &operands, &class) {
            wrong(&format!("operand {} {problem}", index + 1));
        }
        data.each_tied(|input, output| {
            if kernel.class(input) != kernel.class(output) {
                wrong("a tied pair has two classes");
            }
        });
        if let Some(guard) = data.guard {
            if kernel.class(guard.value) != Class::Pred {
                wrong("the guard is no predicate");
            }
            let defines = |arg: &Arg| match arg {
                Arg::Def(_) | Arg::Pair(..) => true,
                Arg::Vector(parts) | Arg::List(parts) => parts.iter().any(|part| matches!(part, Arg::Def(_))),
                Arg::Function(_)
                | Arg::Sink
                | Arg::Tied { .. }
                | Arg::Use(_)
                | Arg::Not(_)
                | Arg::Int(_)
                | Arg::Special(_)
                | Arg::Address(_) => false,
            };
            if data.args.iter().any(defines) {
                wrong("a value is defined under a guard");
            }
        }
    }
}
