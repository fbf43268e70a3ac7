//! Register names: `%p0`, `%h0`, `%r0`, `%d0` by width, numbered in the order in which the text mentions them.

use super::kernel::Class;
use crate::model::{Address, Base, Declaration, Name, Operand, RegId, Register, Statement};

fn prefix(class: Class) -> &'static str {
    match class {
        Class::Pred => "%p",
        Class::B16 => "%h",
        Class::B32 => "%r",
        Class::B64 => "%d",
    }
}

/// Numbers the registers that the statements mention, in order; those that none mentions disappear.
pub(crate) fn renumber(body: &mut [Statement], classes: &[Class]) -> Vec<Register> {
    let mut new: Vec<Option<RegId>> = vec![None; classes.len()];
    let mut counts = [0u32; Class::ALL.len()];
    let mut registers = Vec::new();
    let mut visit = |id: &mut RegId| {
        let class = classes[id.0 as usize];
        *id = *new[id.0 as usize].get_or_insert_with(|| {
            let count = &mut counts[class as usize];
            registers.push(Register { name: Name::from(format!("{}{count}", prefix(class)).as_str()), ty: class.ty() });
            *count += 1;
            RegId(registers.len() as u32 - 1)
        });
    };
    for statement in body {
        if let Statement::Instruction(instruction) = statement {
            if let Some(guard) = &mut instruction.guard {
                visit(&mut guard.register);
            }
            instruction.operands.iter_mut().for_each(|found| operand(found, &mut visit));
        }
    }
    registers
}

fn operand(found: &mut Operand, visit: &mut impl FnMut(&mut RegId)) {
    match found {
        Operand::Register(id) | Operand::Not(id) | Operand::Part { register: id, .. } => visit(id),
        Operand::Address(Address { base, coordinates, sampler, .. }) => {
            for base in std::iter::once(base).chain(sampler) {
                if let Base::Register(id) = base {
                    visit(id);
                }
            }
            coordinates.iter_mut().flatten().for_each(|part| operand(part, visit));
        }
        Operand::Vector(parts) | Operand::List(parts) => parts.iter_mut().for_each(|part| operand(part, visit)),
        Operand::Pair(pair) => {
            operand(&mut pair.0, visit);
            operand(&mut pair.1, visit);
        }
        Operand::Special(_) | Operand::Int(_) | Operand::F32(_) | Operand::F64(_) | Operand::Symbol(..) | Operand::Sink => {}
    }
}

/// One declaration a class.
pub(crate) fn declarations(registers: &[Register]) -> Vec<Statement> {
    let counted = Class::ALL.iter().map(|&class| (class, registers.iter().filter(|found| found.ty == class.ty()).count()));
    counted
        .filter(|(_, count)| *count > 0)
        .map(|(class, count)| {
            Statement::Registers(Declaration {
                ty: class.ty(),
                lanes: 1,
                names: vec![(Name::from(prefix(class)), Some(count as u32))],
            })
        })
        .collect()
}
