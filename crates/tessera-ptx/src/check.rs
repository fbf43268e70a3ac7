//! Legality of a module: every instruction against its row and the module's version and target.
//!
//! A module that was parsed already fits the table's operand patterns; one that was built is checked for them here too. What
//! remains is whether the version and the target have the instruction, whether a matrix instruction's shape exists and has
//! the right number of registers, and whether branch targets exist.

use std::collections::BTreeSet;

use crate::error::PtxError;
use crate::form::{form, types_of};
use crate::model::{Function, Instruction, Module, Name, Operand, Statement};
use crate::operand_rule::matches;
use crate::types::Type;
use crate::word::{Modifier, Word};

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
                let problems = [
                    operands(function, instruction),
                    legality(module, instruction),
                    shape(instruction),
                    branch(instruction, &labels),
                ];
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
        return Err(format!("the modifiers do not fill `{}`", row.form));
    }
    let type_of = |id: crate::model::RegId| function.registers.get(id.0 as usize).map_or(Type::Pred, |found| found.ty);
    matches(&form.operands, &instruction.modifiers, &instruction.operands, &type_of)
        .map_err(|(index, problem)| format!("operand {} of `{}` {problem}", index + 1, row.mnemonic()))
}

fn legality(module: &Module, instruction: &Instruction) -> Result<(), String> {
    let row = instruction.row.row();
    if !row.needs.met_by(module.target) {
        return Err(format!("`{}` needs {}: the target is {}", row.mnemonic(), row.needs, module.target));
    }
    if row.ptx > module.version {
        return Err(format!("`{}` needs PTX {}: the module says {}", row.mnemonic(), row.ptx, module.version));
    }
    Ok(())
}

fn branch(instruction: &Instruction, labels: &BTreeSet<Name>) -> Result<(), String> {
    match (instruction.row.row().mnemonic(), instruction.operands.first()) {
        ("bra", Some(Operand::Symbol(name, _))) if !labels.contains(name) => Err(format!("no label `{name}` exists")),
        _ => Ok(()),
    }
}

/// Registers a thread holds of `rows` x `columns` elements of a type, spread over `threads` threads.
fn registers_of(rows: u32, columns: u32, ty: Type, threads: u32) -> u32 {
    let per_register = (32 / ty.bits().max(1)).max(1);
    let registers_per_element = ty.bits().div_ceil(64).max(1);
    rows * columns * registers_per_element / (threads * per_register)
}

fn shape(instruction: &Instruction) -> Result<(), String> {
    let mnemonic = instruction.row.row().mnemonic();
    let found = instruction.modifiers.iter().find_map(|modifier| match modifier {
        Modifier::Shape { m, n, k } => Some((u32::from(*m), u32::from(*n), u32::from(*k))),
        Modifier::Type(_) | Modifier::Word(_) => None,
    });
    let (Some((m, n, k)), "wgmma" | "mma") = (found, mnemonic) else { return Ok(()) };
    let types: Vec<Type> = types_of(&instruction.modifiers).collect();
    let count = |index: usize| match instruction.operands.get(index) {
        Some(Operand::Vector(parts)) => Some(parts.len() as u32),
        _ => None,
    };
    let expect = |what: &str, found: Option<u32>, wanted: u32| match found {
        Some(found) if found != wanted => {
            Err(format!("{what} of `{mnemonic}.m{m}n{n}k{k}` has {found} registers: {wanted} are needed"))
        }
        _ => Ok(()),
    };
    if mnemonic == "wgmma" {
        let (accumulator, a) = (types[0], types[1]);
        let depth = match a {
            Type::Tf32 => 8,
            Type::F16 | Type::Bf16 => 16,
            Type::B1 => 256,
            _ => 32,
        };
        let integer = matches!(a, Type::S8 | Type::U8 | Type::B1);
        let width = n.is_multiple_of(8) && (8..=256).contains(&n) && (!integer || n <= 24 || n.is_multiple_of(16));
        if m != 64 || k != depth || !width {
            return Err(format!("`wgmma` has no shape m{m}n{n}k{k} for `.{a}`: m64, k{depth}, n up to 256"));
        }
        expect("the accumulator", count(0), registers_of(m, n, accumulator, 128))?;
        return expect("operand A", count(1), registers_of(m, k, if a == Type::Tf32 { Type::B32 } else { a }, 128));
    }
    let sparse = |modifier: &Modifier| matches!(modifier, Modifier::Word(Word::Sp | Word::SpOrdered));
    if instruction.modifiers.iter().any(sparse) || types.len() < 4 {
        return Ok(());
    }
    let known: &[(u32, u32, u32)] = match types[1] {
        Type::F16 => &[(16, 8, 8), (16, 8, 16), (8, 8, 4)],
        Type::Bf16 => &[(16, 8, 8), (16, 8, 16)],
        Type::Tf32 => &[(16, 8, 4), (16, 8, 8)],
        Type::F64 => &[(8, 8, 4), (16, 8, 4), (16, 8, 8), (16, 8, 16)],
        Type::E4m3 | Type::E5m2 => &[(16, 8, 16), (16, 8, 32)],
        Type::S8 | Type::U8 => &[(8, 8, 16), (16, 8, 16), (16, 8, 32)],
        Type::S4 | Type::U4 => &[(8, 8, 32), (16, 8, 32), (16, 8, 64)],
        _ => &[(8, 8, 128), (16, 8, 128), (16, 8, 256)],
    };
    if !known.contains(&(m, n, k)) {
        return Err(format!("`mma` has no shape m{m}n{n}k{k} for `.{}`", types[1]));
    }
    if (m, n, k) == (8, 8, 4) && types[1] == Type::F16 {
        return Ok(());
    }
    let wide = |ty: Type| if ty == Type::Tf32 { Type::B32 } else { ty };
    expect("the result", count(0), registers_of(m, n, types[0], 32))?;
    expect("operand A", count(1), registers_of(m, k, wide(types[1]), 32))?;
    expect("operand B", count(2), registers_of(k, n, wide(types[2]), 32))?;
    expect("operand C", count(3), registers_of(m, n, types[3], 32))
}
