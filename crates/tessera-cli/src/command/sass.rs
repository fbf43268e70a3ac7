//! Machine code by the source lines that it came from: `tessera compile --target sm_90a --emit sass`, as text or as one JSON object.

use std::fmt::Write as _;

use serde_json::{Map, Value, json};
use tessera::compile::DeviceCompiled;
use tessera::compile::ptx::sass::{Counts, Line, Listing, Loop};
use tessera::compile::ptx::{Assembler, Disassembler, FunctionUsage, file_name};
use tessera::ir::SourceMap;

use crate::command::compile::{assembled_for, tools, usage_of};
use crate::failure::Failure;

/// A kernel's machine code with the texts that it came from.
pub(crate) struct Sass<'c> {
    entry: &'c str,
    target: &'c str,
    usage: FunctionUsage,
    listing: Listing,
    sources: &'c SourceMap,
}

impl<'c> Sass<'c> {
    /// Assembles a kernel and takes it apart again.
    pub(crate) fn new(device: &'c DeviceCompiled, sources: &'c SourceMap) -> Result<Sass<'c>, Failure> {
        let image = &device.kernel.image;
        let tools = tools();
        // That a tool is missing is told before the other one is run.
        let disassembler = Disassembler::find(&tools).map_err(Failure::environment)?;
        let assembler = Assembler::find(&tools).map_err(Failure::environment)?;
        let ptx = device.kernel.ptx();
        let assembly = assembler.assemble_with_lines(&ptx, assembled_for(&image.target)).map_err(Failure::environment)?;
        let listing = disassembler.disassemble(&assembly.cubin, &image.entry).map_err(Failure::environment)?;
        let usage = usage_of(&assembly)?.clone();
        Ok(Sass { entry: &image.entry, target: &image.target, usage, listing, sources })
    }

    /// A line's text, where the file is at hand.
    fn source(&self, line: &Line) -> Option<&str> {
        let source = self.sources.iter().find(|source| file_name(&source.name) == line.file)?;
        Some(source.text.lines().nth(line.number.checked_sub(1)? as usize)?.trim())
    }

    /// `k.py:7: acc = ct.mma(a, b, acc)`.
    fn shown(&self, line: Option<&Line>) -> String {
        let Some(line) = line else { return "of no line".to_owned() };
        let text = self.source(line).map_or(String::new(), |text| format!(": {text}"));
        format!("{}{text}", place(line))
    }

    /// Positions of all instructions by their line, in the order of the text.
    fn by_line(&self) -> Vec<(Option<&Line>, Vec<usize>)> {
        let mut groups = self.listing.by_line(0..self.listing.instructions.len());
        groups.sort_by_key(|(line, _)| *line);
        groups
    }

    /// For people.
    pub(crate) fn text(&self) -> String {
        let Sass { listing, usage, .. } = self;
        let spilled = usage.spill_stores + usage.spill_loads;
        let mut out = format!(
            "{} for {}: {} instructions, {}, {} registers, {spilled} bytes spilled\n\nlines\n",
            self.entry,
            self.target,
            listing.instructions.len(),
            many(listing.loops.len(), "loop"),
            usage.registers
        );
        for (line, members) in self.by_line() {
            let _ = writeln!(out, "  {}\n    {}", self.shown(line), told(&listing.count(members)));
        }
        out.push_str("\nloops\n");
        for (number, one) in listing.loops.iter().enumerate() {
            let indent = "  ".repeat(one.depth as usize);
            let lines: Vec<String> = self.lines(one).into_iter().map(place).collect();
            let (from, to) = self.extent(one);
            let _ = writeln!(out, "{indent}loop {}, 0x{from:x} to 0x{to:x}, of {}", number + 1, lines.join(", "));
            let _ = writeln!(out, "{indent}  {}", told(&listing.count(one.members.iter().copied())));
        }
        out.push_str("\ncode\n");
        for block in &listing.blocks {
            let around = self.loop_of(block.start).map_or(String::new(), |number| format!(", in loop {number}"));
            let _ = writeln!(out, "0x{:x}{around}", listing.instructions[block.start].address);
            for (line, members) in listing.by_line(block.clone()) {
                let _ = writeln!(out, "  {}", self.shown(line));
                for instruction in members.into_iter().map(|at| &listing.instructions[at]) {
                    let _ = writeln!(out, "    {:04x}  {}", instruction.address, instruction.text);
                }
            }
        }
        out
    }

    /// The number of the innermost loop around an instruction.
    fn loop_of(&self, at: usize) -> Option<usize> {
        self.listing.loops.iter().position(|one| one.members.binary_search(&at).is_ok()).map(|position| position + 1)
    }

    /// The lines of a loop's own instructions, in the order of the text.
    fn lines(&self, one: &Loop) -> Vec<&Line> {
        let mut lines: Vec<&Line> = one.members.iter().filter_map(|&at| self.listing.instructions[at].line.as_ref()).collect();
        lines.sort_unstable();
        lines.dedup();
        lines
    }

    /// Addresses of a loop's first and last instruction.
    fn extent(&self, one: &Loop) -> (u32, u32) {
        let address = |at: Option<&usize>| at.map_or(0, |&at| self.listing.instructions[at].address);
        (address(one.members.first()), address(one.members.last()))
    }

    /// For programs.
    pub(crate) fn json(&self) -> Value {
        let Sass { listing, usage, .. } = self;
        let lines = self.by_line().into_iter().map(|(line, members)| {
            let (place, text) = (line.map(place), line.and_then(|line| self.source(line)));
            json!({ "place": place, "text": text, "instructions": data(&listing.count(members)) })
        });
        let loops = listing.loops.iter().map(|one| {
            let ((from, to), lines) = (self.extent(one), self.lines(one).into_iter().map(place).collect::<Vec<_>>());
            let counts = data(&listing.count(one.members.iter().copied()));
            json!({ "depth": one.depth, "from": from, "to": to, "lines": lines, "instructions": counts })
        });
        let code = listing.instructions.iter().enumerate().map(|(at, one)| {
            let place = one.line.as_ref().map(place);
            json!({ "address": one.address, "text": one.text, "kind": one.kind.to_string(), "place": place, "loop": self.loop_of(at) })
        });
        json!({
            "kernel": self.entry,
            "target": self.target,
            "registers": usage.registers,
            "spilled_bytes": usage.spill_stores + usage.spill_loads,
            "lines": lines.collect::<Vec<_>>(),
            "loops": loops.collect::<Vec<_>>(),
            "code": code.collect::<Vec<_>>(),
        })
    }
}

/// `k.py:7`.
fn place(line: &Line) -> String {
    format!("{}:{}", line.file, line.number)
}

/// `1 loop`, `2 loops`.
fn many(count: usize, what: &str) -> String {
    format!("{count} {what}{}", if count == 1 { "" } else { "s" })
}

/// `24 instructions: 4 tensor, 20 integer`.
fn told(counts: &Counts) -> String {
    let kinds: Vec<String> = counts.iter().map(|(kind, count)| format!("{count} {kind}")).collect();
    format!("{}: {}", many(counts.values().sum(), "instruction"), kinds.join(", "))
}

fn data(counts: &Counts) -> Map<String, Value> {
    counts.iter().map(|(kind, count)| (kind.to_string(), json!(count))).collect()
}
