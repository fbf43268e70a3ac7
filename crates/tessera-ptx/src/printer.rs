//! A [`Module`] as PTX text. The text is a function of the module alone, and reading it back gives the module again.

use std::fmt::Write;

use crate::model::{
    Address, Base, Function, FunctionKind, Initial, Inlined, Instruction, Item, Limit, Linkage, Module, Operand, Register, Space,
    Statement, Variable,
};

/// Prints a module as PTX.
pub fn print(module: &Module) -> String {
    let mut out = String::new();
    let _ = writeln!(out, ".version {}", module.version);
    let samplers = if module.independent_samplers { ", texmode_independent" } else { "" };
    let _ = writeln!(out, ".target {}{samplers}", module.target);
    let _ = writeln!(out, ".address_size {}", module.address_size);
    for item in &module.items {
        match item {
            Item::File { index, path } => {
                let _ = writeln!(out, ".file {index} \"{path}\"");
            }
            Item::Section { name, text } => {
                let _ = writeln!(out, ".section {name} {{{text}}}");
            }
            Item::Variable(found) => {
                variable(&mut out, found);
                out.push_str(";\n");
            }
            Item::Function(found) => function(&mut out, found),
            Item::Pragma(text) => {
                let _ = writeln!(out, ".pragma \"{text}\";");
            }
            Item::Alias { name, of } => {
                let _ = writeln!(out, ".alias {name}, {of};");
            }
        }
    }
    out
}

fn linkage(linkage: Linkage) -> &'static str {
    match linkage {
        Linkage::Internal => "",
        Linkage::Visible => ".visible ",
        Linkage::Extern => ".extern ",
        Linkage::Weak => ".weak ",
        Linkage::Common => ".common ",
    }
}

fn space(space: Space) -> &'static str {
    match space {
        Space::Global => "global",
        Space::Shared => "shared",
        Space::Const => "const",
        Space::Local => "local",
        Space::Param => "param",
    }
}

fn variable(out: &mut String, variable: &Variable) {
    let _ = write!(out, "{}.{}", linkage(variable.linkage), space(variable.space));
    if let Some(align) = variable.align {
        let _ = write!(out, " .align {align}");
    }
    let _ = write!(out, "{} .{}", lanes(variable.lanes), variable.ty);
    if let Some((pointee, align)) = variable.pointee {
        out.push_str(" .ptr");
        if let Some(pointee) = pointee {
            let _ = write!(out, " .{}", space(pointee));
        }
        let _ = write!(out, " .align {align}");
    }
    let _ = write!(out, " {}", variable.name);
    for extent in &variable.extents {
        match extent {
            Some(extent) => {
                let _ = write!(out, "[{extent}]");
            }
            None => out.push_str("[]"),
        }
    }
    if variable.initial.is_empty() {
        return;
    }
    let values: Vec<String> = variable.initial.iter().map(initial).collect();
    let properties = matches!(variable.initial[0], Initial::Property(..));
    let _ = if variable.extents.is_empty() && variable.lanes == 1 && !properties {
        write!(out, " = {}", values.join(", "))
    } else {
        write!(out, " = {{{}}}", values.join(", "))
    };
}

fn initial(value: &Initial) -> String {
    match value {
        Initial::Int(value) => value.to_string(),
        Initial::F32(bits) => format!("0f{bits:08X}"),
        Initial::F64(bits) => format!("0d{bits:016X}"),
        Initial::Address(name, 0) => name.to_string(),
        Initial::Address(name, offset) => format!("{name}+{offset}"),
        Initial::AddressByte(name, offset, byte) => {
            let mask = 0xffu64 << (8 * u32::from(*byte));
            let address = if *offset == 0 { name.to_string() } else { format!("{name}+{offset}") };
            format!("{mask:#x}({address})")
        }
        Initial::Property(name, value) => format!("{name} = {value}"),
    }
}

/// ` .v4` in front of the type of a vector's elements.
fn lanes(lanes: u32) -> &'static str {
    match lanes {
        2 => " .v2",
        4 => " .v4",
        _ => "",
    }
}

/// A parameter in parentheses: those without memory are registers.
fn parameters(out: &mut String, list: &[Variable]) {
    out.push('(');
    for (index, parameter) in list.iter().enumerate() {
        out.push_str(if index == 0 { "" } else { ", " });
        if parameter.space == Space::Local {
            let align = parameter.align.map_or(String::new(), |align| format!(" .align {align}"));
            let _ = write!(out, ".reg{align} .{} {}", parameter.ty, parameter.name);
        } else {
            variable(out, parameter);
        }
    }
    out.push(')');
}

fn function(out: &mut String, function: &Function) {
    out.push_str(linkage(function.linkage));
    match function.kind {
        FunctionKind::Entry => out.push_str(".entry "),
        FunctionKind::Device => {
            out.push_str(".func ");
            if !function.results.is_empty() {
                parameters(out, &function.results);
                out.push(' ');
            }
        }
    }
    let _ = write!(out, "{}", function.name);
    parameters(out, &function.params);
    out.push('\n');
    for found in &function.limits {
        let _ = writeln!(out, "{}", limit(*found));
    }
    match &function.body {
        None => out.push_str(";\n"),
        Some(body) => {
            out.push_str("{\n");
            statements(out, body, &function.registers, 1);
            out.push_str("}\n");
        }
    }
}

fn limit(limit: Limit) -> String {
    match limit {
        Limit::MaxThreads([x, y, z]) => format!(".maxntid {x}, {y}, {z}"),
        Limit::RequiredThreads([x, y, z]) => format!(".reqntid {x}, {y}, {z}"),
        Limit::MinBlocks(n) => format!(".minnctapersm {n}"),
        Limit::MaxBlocks(n) => format!(".maxnctapersm {n}"),
        Limit::MaxRegisters(n) => format!(".maxnreg {n}"),
        Limit::Cluster([x, y, z]) => format!(".reqnctapercluster {x}, {y}, {z}"),
        Limit::MaxClusterRank(n) => format!(".maxclusterrank {n}"),
        Limit::ExplicitCluster => ".explicitcluster".to_owned(),
        Limit::BlocksAreClusters => ".blocksareclusters".to_owned(),
        Limit::NoReturn => ".noreturn".to_owned(),
        Limit::Preserve(n) => format!(".abi_preserve {n}"),
        Limit::PreserveControl(n) => format!(".abi_preserve_control {n}"),
    }
}

fn statements(out: &mut String, list: &[Statement], registers: &[Register], depth: usize) {
    let indent = "    ".repeat(depth);
    for statement in list {
        if let Statement::Label(name) = statement {
            let _ = writeln!(out, "{name}:");
            continue;
        }
        out.push_str(&indent);
        match statement {
            Statement::Label(_) => {}
            Statement::Registers(declaration) => {
                let names: Vec<String> = declaration
                    .names
                    .iter()
                    .map(|(name, count)| match count {
                        Some(count) => format!("{name}<{count}>"),
                        None => name.to_string(),
                    })
                    .collect();
                let _ = writeln!(out, ".reg{} .{} {};", lanes(declaration.lanes), declaration.ty, names.join(", "));
            }
            Statement::Variable(found) => {
                variable(out, found);
                out.push_str(";\n");
            }
            Statement::Loc(loc, inlined) => {
                let _ = write!(out, ".loc {} {} {}", loc.file, loc.line, loc.column);
                if let Some(Inlined { name, offset, at }) = inlined {
                    let _ = write!(out, ", function_name {name}+{offset}");
                    let _ = write!(out, ", inlined_at {} {} {}", at.file, at.line, at.column);
                }
                out.push('\n');
            }
            Statement::Pragma(text) => {
                let _ = writeln!(out, ".pragma \"{text}\";");
            }
            Statement::Instruction(found) => {
                instruction(out, found, registers);
                out.push_str(";\n");
            }
            Statement::Block(inner) => {
                out.push_str("{\n");
                statements(out, inner, registers, depth + 1);
                let _ = writeln!(out, "{indent}}}");
            }
            Statement::Targets { name, functions, targets } => {
                let what = if *functions { "calltargets" } else { "branchtargets" };
                let names: Vec<String> = targets.iter().map(ToString::to_string).collect();
                let _ = writeln!(out, "{name}: .{what} {};", names.join(", "));
            }
            Statement::Prototype { name, results, params, noreturn } => {
                let _ = write!(out, "{name}: .callprototype ");
                if !results.is_empty() {
                    parameters(out, results);
                    out.push(' ');
                }
                out.push_str("_ ");
                parameters(out, params);
                out.push_str(if *noreturn { " .noreturn;\n" } else { ";\n" });
            }
        }
    }
}

fn instruction(out: &mut String, instruction: &Instruction, registers: &[Register]) {
    if let Some(guard) = instruction.guard {
        let not = if guard.negated { "!" } else { "" };
        let _ = write!(out, "@{not}{} ", registers[guard.register.0 as usize].name);
    }
    out.push_str(instruction.row.mnemonic().text());
    for modifier in &instruction.modifiers {
        let _ = write!(out, ".{modifier}");
    }
    for (index, found) in instruction.operands.iter().enumerate() {
        out.push_str(if index == 0 { " " } else { ", " });
        operand(out, found, registers);
    }
}

fn operand(out: &mut String, found: &Operand, registers: &[Register]) {
    let list = |out: &mut String, open: char, parts: &[Operand], close: char| {
        out.push(open);
        for (index, part) in parts.iter().enumerate() {
            out.push_str(if index == 0 { "" } else { ", " });
            operand(out, part, registers);
        }
        out.push(close);
    };
    let _ = match found {
        Operand::Register(id) => write!(out, "{}", registers[id.0 as usize].name),
        Operand::Not(id) => write!(out, "!{}", registers[id.0 as usize].name),
        Operand::Special(special) => write!(out, "{special}"),
        Operand::Int(value) => write!(out, "{value}"),
        Operand::F32(bits) => write!(out, "0f{bits:08X}"),
        Operand::F64(bits) => write!(out, "0d{bits:016X}"),
        Operand::Symbol(name, 0) => write!(out, "{name}"),
        Operand::Symbol(name, offset) => write!(out, "{name}+{offset}"),
        Operand::Sink => write!(out, "_"),
        Operand::Vector(parts) => {
            list(out, '{', parts, '}');
            Ok(())
        }
        Operand::List(parts) => {
            list(out, '(', parts, ')');
            Ok(())
        }
        Operand::Pair(pair) => {
            operand(out, &pair.0, registers);
            out.push('|');
            operand(out, &pair.1, registers);
            Ok(())
        }
        Operand::Part { register, part, negated } => {
            let sign = if *negated { "-" } else { "" };
            let part = part.map_or(String::new(), |part| format!(".{part}"));
            write!(out, "{sign}{}{part}", registers[register.0 as usize].name)
        }
        Operand::Address(found) => {
            address(out, found, registers);
            Ok(())
        }
    };
}

fn address(out: &mut String, address: &Address, registers: &[Register]) {
    let base = |base: &Base| match base {
        Base::Register(id) => registers[id.0 as usize].name.to_string(),
        Base::Symbol(name) => name.to_string(),
        Base::Zero => address.offset.to_string(),
    };
    let _ = write!(out, "[{}", base(&address.base));
    if address.offset != 0 && address.base != Base::Zero {
        let _ = write!(out, "+{}", address.offset);
    }
    if let Some(sampler) = &address.sampler {
        let _ = write!(out, ", {}", base(sampler));
    }
    if let Some(coordinates) = &address.coordinates {
        out.push_str(", {");
        for (index, coordinate) in coordinates.iter().enumerate() {
            out.push_str(if index == 0 { "" } else { ", " });
            operand(out, coordinate, registers);
        }
        out.push('}');
    }
    out.push(']');
}
