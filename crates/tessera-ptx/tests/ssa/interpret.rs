//! Two interpreters for one thread of integer and f32 code: of kernels in SSA form and of functions of the PTX model. What an
//! instruction computes is written here a second time, from the PTX manual, so that it can contradict the optimiser.

use std::collections::BTreeMap;

use tessera_ptx::ssa::{Arg, Class, Kernel, Origin, Terminator, Value};
use tessera_ptx::{Base, Function, Mnemonic, Operand, Statement};

/// Where the memory of a test starts, as the program sees it.
pub(crate) const MEMORY: u64 = 0x10_0000;

/// A run ends with an error behind so many steps.
const MOST_STEPS: usize = 200_000;

/// Memory of a run, and the values of the parameters.
#[derive(Clone, Debug)]
pub(crate) struct Machine {
    pub(crate) memory: Vec<u8>,
    pub(crate) params: BTreeMap<String, u64>,
    pub(crate) thread: u64,
}

fn mask(bits: u32) -> u64 {
    if bits == 64 { u64::MAX } else { (1 << bits) - 1 }
}

/// Width and signedness of a type's name; floats count as unsigned.
fn width(ty: &str) -> (u32, bool) {
    let bits = if ty == "pred" { 1 } else { ty[1..].parse().unwrap() };
    (bits, ty.starts_with('s'))
}

fn extend(value: u64, (bits, signed): (u32, bool)) -> i128 {
    let value = value & mask(bits);
    if signed && value >> (bits - 1) & 1 == 1 { i128::from(value) - (1i128 << bits) } else { value.into() }
}

/// What an instruction computes from its sources.
fn compute(text: &str, args: &[u64]) -> u64 {
    let parts: Vec<&str> = text.split('.').collect();
    let ty = *parts.last().unwrap();
    let of = |index: usize| extend(args[index], width(ty));
    let bits = width(ty).0;
    let float = |index: usize| f32::from_bits(args[index] as u32);
    let canonical = |value: f32| u64::from(if value.is_nan() { 0x7FFF_FFFF } else { value.to_bits() });
    let narrow = |value: i128| value as u64 & mask(bits);
    match (parts[0], ty) {
        ("add", "f32") => canonical(float(0) + float(1)),
        ("sub", "f32") => canonical(float(0) - float(1)),
        ("mul", "f32") => canonical(float(0) * float(1)),
        ("fma", "f32") => canonical(float(0).mul_add(float(1), float(2))),
        ("mov", _) => args[0],
        ("activemask", _) => 1,
        ("add", _) => narrow(of(0) + of(1)),
        ("sub", _) => narrow(of(0) - of(1)),
        ("mul", _) if parts[1] == "wide" => (of(0) * of(1)) as u64 & mask(2 * bits),
        ("mad", _) if parts[1] == "wide" => (of(0) * of(1)).wrapping_add(args[2].into()) as u64 & mask(2 * bits),
        ("mul", _) if parts[1] == "hi" => narrow(of(0).wrapping_mul(of(1)) >> bits),
        ("mul", _) => narrow(of(0).wrapping_mul(of(1))),
        ("mad", _) => narrow(of(0).wrapping_mul(of(1)).wrapping_add(of(2))),
        // What a device gives for a division by zero is not stated; programs don't do it.
        ("div", _) => narrow(of(0) / of(1)),
        ("rem", _) => narrow(of(0) % of(1)),
        ("min", _) => narrow(of(0).min(of(1))),
        ("max", _) => narrow(of(0).max(of(1))),
        ("neg", _) => narrow(-of(0)),
        ("abs", _) => narrow(of(0).abs()),
        ("and", _) => args[0] & args[1],
        ("or", _) => args[0] | args[1],
        ("xor", _) => args[0] ^ args[1],
        ("not", _) => !args[0] & mask(bits),
        ("shl", _) => {
            if args[1] >= bits.into() {
                0
            } else {
                narrow(of(0) << args[1])
            }
        }
        ("shr", _) => narrow(of(0) >> args[1].min(bits.into())),
        ("selp", _) => {
            if args[2] == 1 {
                args[0]
            } else {
                args[1]
            }
        }
        ("setp", _) => {
            let order = if ty == "f32" { float(0).partial_cmp(&float(1)) } else { Some(of(0).cmp(&of(1))) };
            u64::from(match parts[1] {
                "eq" => order.is_some_and(|order| order.is_eq()),
                "ne" => order.is_some_and(|order| order.is_ne()),
                "lt" => order.is_some_and(|order| order.is_lt()),
                "le" => order.is_some_and(|order| order.is_le()),
                "gt" => order.is_some_and(|order| order.is_gt()),
                "ge" => order.is_some_and(|order| order.is_ge()),
                "neu" => order.is_none_or(|order| order.is_ne()),
                "ltu" => order.is_none_or(|order| order.is_lt()),
                "leu" => order.is_none_or(|order| order.is_le()),
                "gtu" => order.is_none_or(|order| order.is_gt()),
                "geu" => order.is_none_or(|order| order.is_ge()),
                other => panic!("{other}"),
            })
        }
        ("cvt", _) => {
            let (to, value) = (width(parts[1]), extend(args[0], width(ty)));
            value as u64 & mask(to.0.max(32))
        }
        _ => panic!("`{text}` is not known here"),
    }
}

impl Machine {
    fn read(&self, address: u64, bytes: usize) -> u64 {
        assert_eq!(address % bytes as u64, 0, "a load at {address:#x} is not aligned");
        let at = (address - MEMORY) as usize;
        (0..bytes).fold(0, |value, index| value | u64::from(self.memory[at + index]) << (8 * index))
    }

    fn write(&mut self, address: u64, bytes: usize, value: u64) {
        assert_eq!(address % bytes as u64, 0, "a store at {address:#x} is not aligned");
        let at = (address - MEMORY) as usize;
        (0..bytes).for_each(|index| self.memory[at + index] = (value >> (8 * index)) as u8);
    }

    /// A load or store of `count` elements of the text's type: what was loaded.
    fn access(&mut self, text: &str, address: u64, count: usize, stored: &[u64]) -> Vec<u64> {
        let bytes = (width(text.rsplit('.').next().unwrap()).0 / 8) as usize;
        assert_eq!(address % (bytes * count) as u64, 0, "`{text}` at {address:#x} is not aligned");
        if text.starts_with("st") {
            stored.iter().zip(0..).for_each(|(&value, index)| self.write(address + index * bytes as u64, bytes, value));
            return Vec::new();
        }
        (0..count as u64).map(|index| self.read(address + index * bytes as u64, bytes)).collect()
    }

    /// Runs a kernel in SSA form.
    pub(crate) fn run_ssa(&mut self, kernel: &Kernel) {
        let mut values: BTreeMap<Value, u64> = BTreeMap::new();
        let mut block = kernel.entry();
        for _ in 0..MOST_STEPS {
            for &inst in &kernel.block(block).insts {
                self.step_ssa(kernel, inst, &mut values);
            }
            let read = |value: Value, values: &BTreeMap<Value, u64>| self.leaf(kernel, value).unwrap_or_else(|| values[&value]);
            let target = match kernel.block(block).terminator.as_ref().unwrap() {
                Terminator::Jump(target) => target,
                Terminator::Branch { condition, then, otherwise } => {
                    if read(*condition, &values) == 1 {
                        then
                    } else {
                        otherwise
                    }
                }
                Terminator::Return | Terminator::Exit | Terminator::Trap => return,
            };
            let args: Vec<u64> = target.args.iter().map(|&arg| read(arg, &values)).collect();
            kernel.block(target.block).params.iter().zip(args).for_each(|(&param, arg)| {
                values.insert(param, arg);
            });
            block = target.block;
        }
        panic!("the kernel does not end");
    }

    fn leaf(&self, kernel: &Kernel, value: Value) -> Option<u64> {
        match kernel.origin(value) {
            Origin::Const(bits) => Some(bits),
            Origin::Undef => Some(0),
            Origin::Special(_) => Some(self.thread),
            Origin::Param(index) => Some(self.params[&kernel.params[index as usize].name]),
            Origin::ParamAddress(_) | Origin::Shared(..) | Origin::Data(_) | Origin::Frame => panic!("not known here"),
            Origin::BlockParam(..) | Origin::Result(_) => None,
        }
    }

    fn step_ssa(&mut self, kernel: &Kernel, inst: tessera_ptx::ssa::Inst, values: &mut BTreeMap<Value, u64>) {
        let data = kernel.inst(inst);
        let text = kernel.op(inst).text.to_string();
        let read = |machine: &Machine, value: Value| machine.leaf(kernel, value).unwrap_or_else(|| values[&value]);
        let runs = data.guard.is_none_or(|guard| (read(self, guard.value) == 1) != guard.negated);
        let flat: Vec<Arg> = data
            .args
            .iter()
            .flat_map(|arg| match arg {
                Arg::Vector(parts) => parts.clone(),
                other => vec![other.clone()],
            })
            .collect();
        let mut sources = Vec::new();
        let mut results: Vec<(Value, Option<u64>)> = Vec::new();
        let mut address = None;
        for arg in &flat {
            match arg {
                Arg::Def(value) => results.push((*value, None)),
                Arg::Tied { input, output } => results.push((*output, Some(read(self, *input)))),
                Arg::Use(value) => sources.push(read(self, *value)),
                Arg::Address(found) => address = Some(read(self, found.base).wrapping_add(found.offset as u64)),
                other => panic!("{other:?}"),
            }
        }
        let computed = match address {
            _ if !runs => results.iter().map(|(_, before)| before.unwrap_or(0)).collect(),
            Some(address) => self.access(&text, address, results.len().max(sources.len()), &sources),
            None => vec![compute(&text, &sources)],
        };
        results.iter().zip(computed).for_each(|((value, _), new)| {
            values.insert(*value, new & Class::mask(kernel.class(*value)));
        });
    }

    /// Runs a function of the model.
    pub(crate) fn run_ptx(&mut self, function: &Function) {
        let body = function.body.as_ref().unwrap();
        let mut registers = vec![0u64; function.registers.len()];
        let mut at = 0;
        for _ in 0..MOST_STEPS {
            let Some(statement) = body.get(at) else { return };
            at += 1;
            let Statement::Instruction(instruction) = statement else { continue };
            if instruction.guard.is_some_and(|guard| (registers[guard.register.0 as usize] == 1) == guard.negated) {
                continue;
            }
            let mnemonic = instruction.row.mnemonic();
            let text = instruction.modifiers.iter().fold(mnemonic.to_string(), |text, modifier| format!("{text}.{modifier}"));
            match mnemonic {
                Mnemonic::Ret | Mnemonic::Exit => return,
                Mnemonic::Bar => continue,
                Mnemonic::Bra => {
                    let Operand::Symbol(label, _) = &instruction.operands[0] else { panic!() };
                    let found = |statement: &Statement| matches!(statement, Statement::Label(name) if name == label);
                    at = body.iter().position(found).unwrap();
                    continue;
                }
                _ => {}
            }
            let flat: Vec<&Operand> = instruction
                .operands
                .iter()
                .flat_map(|operand| match operand {
                    Operand::Vector(parts) => parts.iter().collect::<Vec<_>>(),
                    other => vec![other],
                })
                .collect();
            let mut address = None;
            let mut others = Vec::new();
            for operand in flat {
                match operand {
                    Operand::Address(found) => match &found.base {
                        Base::Register(id) => address = Some(registers[id.0 as usize].wrapping_add(found.offset as u64)),
                        Base::Symbol(name) => {
                            let Operand::Register(to) = instruction.operands[0] else { panic!() };
                            registers[to.0 as usize] = self.params[&*name.0];
                        }
                        Base::Zero => panic!("an absolute address"),
                    },
                    other => others.push(other),
                }
            }
            if text.starts_with("ld.param") {
                continue;
            }
            let read = |operand: &Operand| match operand {
                Operand::Register(id) => registers[id.0 as usize],
                Operand::Not(id) => registers[id.0 as usize] ^ 1,
                Operand::Int(value) => *value as u64,
                Operand::F32(bits) => u64::from(*bits),
                Operand::Special(_) => self.thread,
                other => panic!("{other:?}"),
            };
            let stores = mnemonic == Mnemonic::St;
            let vector = instruction.operands.iter().any(|operand| matches!(operand, Operand::Vector(_)));
            let defined = if stores {
                0
            } else if vector {
                others.len()
            } else {
                1
            };
            let sources: Vec<u64> = others[defined..].iter().map(|operand| read(operand)).collect();
            let computed = match address {
                Some(address) => self.access(&text, address, others.len(), &sources),
                None => vec![compute(&text, &sources)],
            };
            for (operand, value) in others[..defined].iter().zip(computed) {
                let Operand::Register(to) = operand else { panic!() };
                registers[to.0 as usize] = value & mask(function.registers[to.0 as usize].ty.bits());
            }
        }
        panic!("the function does not end");
    }
}
