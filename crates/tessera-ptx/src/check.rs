//! Legality of a module: every instruction against its row and the module's version and target.
//!
//! A module that was parsed already fits the table's operand patterns; one that was built is checked for them here too. What
//! remains is whether the version and the target have the instruction, and whether branch targets exist.

use std::collections::BTreeSet;

use crate::error::PtxError;
use crate::form::{RowId, form};
use crate::mnemonic::Mnemonic;
use crate::model::{Function, Instruction, Module, Name, Operand, Statement};
use crate::operand_rule::matches;
use crate::target::{Needs, PtxVersion};
use crate::types::Type;
use crate::word::Modifier;

/// Checks a module. Each finding carries the line of the text that the module was read from, or 0.
pub fn check(module: &Module) -> Vec<PtxError> {
    let mut findings = Vec::new();
    for function in module.functions() {
        let mut labels = BTreeSet::new();
        visit(function.body.as_deref().unwrap_or_default(), &mut |statement| {
            if let Statement::Label(name) = statement {
                labels.insert(name.clone());
            }
        });
        visit(function.body.as_deref().unwrap_or_default(), &mut |statement| {
            if let Statement::Instruction(instruction) = statement {
                let problems = [operands(function, instruction), legality(module, instruction), branch(instruction, &labels)];
                for message in problems.into_iter().filter_map(Result::err) {
                    findings.push(PtxError { line: instruction.line.0, column: 1, message });
                }
            }
        });
    }
    findings
}

fn visit(statements: &[Statement], each: &mut dyn FnMut(&Statement)) {
    for statement in statements {
        each(statement);
        if let Statement::Block(inner) = statement {
            visit(inner, each);
        }
    }
}

fn operands(function: &Function, instruction: &Instruction) -> Result<(), String> {
    let row = instruction.row.row();
    let form = form(instruction.row);
    if !form.takes(&instruction.modifiers) {
        return Err(format!("the modifiers do not fill `{}`", row.shown()));
    }
    let type_of = |id: crate::model::RegId| function.registers.get(id.0 as usize).map_or(Type::Pred, |found| found.ty);
    matches(&form.operands, &instruction.modifiers, &instruction.operands, &type_of)
        .map_err(|(index, problem)| format!("operand {} of `{}` {problem}", index + 1, instruction.row.mnemonic()))
}

/// The PTX version and target that an instruction needs: its row's, its modifiers' and its special registers'.
pub(crate) fn needs(row: RowId, modifiers: &[Modifier], operands: &[Operand]) -> (PtxVersion, Needs) {
    fn join(a: (PtxVersion, Needs), b: (PtxVersion, Needs)) -> (PtxVersion, Needs) {
        (a.0.max(b.0), a.1.with(b.1))
    }
    fn specials(operands: &[Operand], found: (PtxVersion, Needs)) -> (PtxVersion, Needs) {
        operands.iter().fold(found, |found, operand| match operand {
            Operand::Special(special) => join(found, special.needs()),
            Operand::Vector(parts) => specials(parts, found),
            _ => found,
        })
    }
    let own = modifiers.iter().fold((row.row().ptx, row.row().needs), |found, modifier| join(found, modifier.needs()));
    specials(operands, own)
}

fn legality(module: &Module, instruction: &Instruction) -> Result<(), String> {
    let mnemonic = instruction.row.mnemonic();
    let (version, target) = needs(instruction.row, &instruction.modifiers, &instruction.operands);
    if !target.met_by(module.target) {
        return Err(format!("`{mnemonic}` needs {target}: the target is {}", module.target));
    }
    if version > module.version {
        return Err(format!("`{mnemonic}` needs PTX {version}: the module says {}", module.version));
    }
    Ok(())
}

fn branch(instruction: &Instruction, labels: &BTreeSet<Name>) -> Result<(), String> {
    match (instruction.row.mnemonic(), instruction.operands.first()) {
        (Mnemonic::Bra, Some(Operand::Symbol(name, _))) if !labels.contains(name) => Err(format!("no label `{name}` exists")),
        _ => Ok(()),
    }
}
