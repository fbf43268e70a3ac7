//! Printing. Values are numbered in text order, so the same module always gives the same bytes.
//!
//! ```text
//! schedule @k(%0: tile<ptr<f32>>, %1: tile<i32>, %2: tile<i32>) abi(x: array<f32, [?], [1], i32, align=16>) {
//!   %3 = get_tile_block_id {axis=x} : tile<i32>
//!   return
//! }
//! ```

use std::fmt::Write;

use indexmap::IndexSet;
use rustc_hash::FxHashMap;
use tessera_layout::Distribution;

use crate::abi::{AbiParam, IndexType, ParamKind};
use crate::dialect::OperandKind;
use crate::func::{Block, Func, Module, Op, Value};
use crate::text::plan;
use crate::types::{Body, Extent, Type, elem_name};

/// The whole module.
pub fn print_module(module: &Module) -> String {
    let mut out = String::new();
    for global in &module.globals {
        let shape: Vec<String> = global.shape.iter().map(u32::to_string).collect();
        let _ = writeln!(out, "global @{} [{}] = {}\n", global.name, shape.join(", "), global.value);
    }
    for (i, func) in module.funcs.iter().enumerate() {
        if i > 0 {
            out.push('\n');
        }
        out.push_str(&print_func(func));
    }
    out
}

/// One function, and its plan.
pub fn print_func(func: &Func) -> String {
    let mut printer = Printer::of(func);
    if let Some(plan) = &func.plan {
        printer.out.push('\n');
        printer.out.push_str(&plan::print(plan, &func.name, |value| printer.names.get(&value).map_or("%?", String::as_str)));
    }
    printer.out
}

/// The function's plan, if it has one.
pub fn print_plan(func: &Func) -> Option<String> {
    let printer = Printer::of(func);
    let plan = func.plan.as_ref()?;
    Some(plan::print(plan, &func.name, |value| printer.used(value)))
}

/// What the values of a function are called in its text, without `%`.
pub(super) fn names(func: &Func) -> FxHashMap<String, Value> {
    Printer::of(func).names.into_iter().map(|(value, name)| (name[1..].to_string(), value)).collect()
}

struct Printer<'f> {
    func: &'f Func,
    names: FxHashMap<Value, String>,
    taken: FxHashMap<String, u32>,
    layouts: IndexSet<String>,
    out: String,
}

/// The text of every layout of a function once, in the order of the text. The same text at two shapes is one entry.
fn layouts(func: &Func) -> IndexSet<String> {
    let mut found = IndexSet::new();
    for op in func.linked_ops() {
        let data = &func.ops[op];
        let args = data.regions.iter().flat_map(|&region| &func.blocks[region].args);
        for &value in data.results.iter().chain(args) {
            if let Some(layout) = func.ty(value).layout() {
                found.insert(layout.to_string());
            }
        }
    }
    found
}

impl<'f> Printer<'f> {
    /// The printer behind the function's text.
    fn of(func: &'f Func) -> Printer<'f> {
        let mut printer = Printer {
            func,
            names: FxHashMap::default(),
            taken: FxHashMap::default(),
            layouts: layouts(func),
            out: String::new(),
        };
        printer.func();
        printer
    }

    fn func(&mut self) {
        let func = self.func;
        let _ = write!(self.out, "{} @{}", func.level.word(), func.name);
        self.block_args(func.body);
        self.out.push_str(" abi(");
        for (i, param) in func.abi.params.iter().enumerate() {
            if i > 0 {
                self.out.push_str(", ");
            }
            self.out.push_str(&abi_text(param));
        }
        self.out.push(')');
        if !func.abi.stated.is_empty() {
            let stated: Vec<String> = func.abi.stated.iter().map(ToString::to_string).collect();
            self.out.push_str(&format!(" stated({})", stated.join(", ")));
        }
        let hints: Vec<String> =
            func.hints.entries().iter().filter_map(|(name, value)| value.map(|value| format!("{name}={value}"))).collect();
        if !hints.is_empty() {
            let _ = write!(self.out, " hints({})", hints.join(", "));
        }
        if !func.config.is_empty() {
            let config: Vec<String> = func.config.iter().map(|(name, value)| format!("{name}={value}")).collect();
            let _ = write!(self.out, " config({})", config.join(", "));
        }
        if let Some(mesh) = &func.mesh {
            let _ = write!(self.out, " {mesh}");
        }
        if !self.layouts.is_empty() {
            let layouts: Vec<String> = self.layouts.iter().enumerate().map(|(i, layout)| format!("#{i} = {layout}")).collect();
            let _ = write!(self.out, " layouts({})", layouts.join(", "));
        }
        self.out.push_str(" {\n");
        self.ops(func.body, 1);
        self.out.push_str("}\n");
    }

    /// Gives a value its text name: what the source calls it where that is free, else a number.
    fn name(&mut self, value: Value) -> String {
        let wanted = match &self.func.values[value].name {
            Some(name) if name.starts_with(|c: char| c.is_ascii_alphabetic() || c == '_') => name.clone(),
            _ => String::new(),
        };
        let count = self.taken.entry(wanted.clone()).or_insert(0);
        let name = match (wanted.as_str(), *count) {
            ("", n) => format!("%{n}"),
            (wanted, 0) => format!("%{wanted}"),
            (wanted, n) => format!("%{wanted}.{n}"),
        };
        *count += 1;
        self.names.insert(value, name.clone());
        name
    }

    /// The name of a value that was defined before; a dangling one prints as `%?`, which does not parse.
    fn used(&self, value: Value) -> &str {
        self.names.get(&value).map_or("%?", String::as_str)
    }

    /// A value's type, with the layout's name for the layout.
    fn ty(&self, value: Value) -> String {
        let number = |layout: &Distribution| self.layouts.get_index_of(&layout.to_string()).unwrap_or(self.layouts.len());
        match self.func.ty(value) {
            Type::Distributed(ty) => format!("tile<{}, #{}>", Body(&ty.tile), number(&ty.layout)),
            Type::InFlight(ty) => format!("inflight<{}, #{}>", Body(&ty.tile), number(&ty.layout)),
            ty => ty.to_string(),
        }
    }

    fn block_args(&mut self, block: Block) {
        self.out.push('(');
        for (i, &arg) in self.func.blocks[block].args.iter().enumerate() {
            if i > 0 {
                self.out.push_str(", ");
            }
            let name = self.name(arg);
            let _ = write!(self.out, "{name}: {}", self.ty(arg));
            if let Some(stated) = self.func.shardings.get(&arg) {
                let _ = write!(self.out, " {{sharding = \"{}\"}}", stated.sharding);
            }
        }
        self.out.push(')');
    }

    fn ops(&mut self, block: Block, depth: usize) {
        for &op in &self.func.blocks[block].ops {
            self.op(op, depth);
        }
    }

    fn op(&mut self, op: Op, depth: usize) {
        let data = &self.func.ops[op];
        let row = data.row();
        let mut line = "  ".repeat(depth);
        line.push_str(row.mnemonic);
        let mut first = true;
        for (position, spec) in row.operands.iter().enumerate() {
            let group = data.group(position);
            if spec.kind == OperandKind::Optional && group.is_empty() {
                continue;
            }
            line.push_str(if first { " " } else { ", " });
            first = false;
            let names: Vec<&str> = group.iter().map(|&value| self.used(value)).collect();
            let _ = match spec.kind {
                OperandKind::One => write!(line, "{}", names.join("")),
                OperandKind::Many => write!(line, "[{}]", names.join(", ")),
                OperandKind::Optional => write!(line, "{}={}", spec.name, names.join("")),
            };
        }
        if let Some(through) = data.through {
            let _ = write!(line, " through {}", self.used(through));
        }
        let mut attrs = String::new();
        data.kind.print_attrs(&mut attrs);
        if !attrs.is_empty() {
            let _ = write!(line, " {{{attrs}}}");
        }
        if !data.results.is_empty() {
            let types: Vec<String> = data.results.iter().map(|&value| self.ty(value)).collect();
            let _ = write!(line, " : {}", types.join(", "));
        }
        // Results are named before the regions are printed, so that numbers rise down the page.
        if !data.results.is_empty() {
            let names: Vec<String> = data.results.iter().map(|&value| self.name(value)).collect();
            line.insert_str(2 * depth, &format!("{} = ", names.join(", ")));
        }
        self.out.push_str(&line);
        for &region in &data.regions {
            self.out.push(' ');
            self.block_args(region);
            self.out.push_str(" {\n");
            self.ops(region, depth + 1);
            self.out.push_str(&"  ".repeat(depth));
            self.out.push('}');
        }
        self.out.push('\n');
    }
}

fn extents(items: &[Extent]) -> String {
    let items: Vec<String> = items.iter().map(Extent::to_string).collect();
    format!("[{}]", items.join(", "))
}

fn index_word(index: IndexType) -> &'static str {
    elem_name(index.dtype())
}

fn abi_text(param: &AbiParam) -> String {
    let name = &param.name;
    match &param.kind {
        ParamKind::Array { dtype, shape, strides, index, align, lines, disjoint } => {
            let lines = if lines == align { String::new() } else { format!(", lines={lines}") };
            let disjoint = if *disjoint { ", disjoint" } else { "" };
            format!(
                "{name}: array<{}, {}, {}, {}, align={align}{lines}{disjoint}>",
                elem_name(*dtype),
                extents(shape),
                extents(strides),
                index_word(*index)
            )
        }
        ParamKind::List { dtype, rank, index } => format!("{name}: list<{}, {rank}, {}>", elem_name(*dtype), index_word(*index)),
        ParamKind::Scalar { dtype } => format!("{name}: scalar<{}>", elem_name(*dtype)),
        ParamKind::Operand { dtype, axes } => {
            let axes: Vec<String> = axes.iter().map(|axis| format!("\"{axis}\"")).collect();
            format!("{name}: operand<{}, [{}]>", elem_name(*dtype), axes.join(", "))
        }
    }
}
