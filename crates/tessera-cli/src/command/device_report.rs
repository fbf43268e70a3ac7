//! The report of a kernel for a GPU: `tessera compile --target sm_90a --emit report`, as text or as one JSON object.

use std::fmt::Write as _;

use serde_json::{Value, json};
use tessera::compile::ptx::{Assembly, FunctionUsage};
use tessera::compile::report::DeviceReport;
use tessera::compile::target::Access;
use tessera::compile::{Attempt, Compiled, DeviceCompiled, OptLevel, Stage};
use tessera::ir::{Diagnostic, Fallback, SourceMap, Span};

use crate::command::compile::usage_of;
use crate::failure::Failure;

/// Everything that the report tells.
pub(crate) struct Report<'c> {
    entry: &'c str,
    target: &'c str,
    level: OptLevel,
    stages: Vec<&'c Stage>,
    facts: DeviceReport,
    /// What the kernel takes, and the rest of what was assembled.
    assembly: Result<(FunctionUsage, Assembly), Failure>,
    sources: &'c SourceMap,
}

impl<'c> Report<'c> {
    pub(crate) fn new(compiled: &'c Compiled, device: &'c DeviceCompiled, assembly: Result<Assembly, Failure>) -> Report<'c> {
        let image = &device.kernel.image;
        Report {
            entry: &image.entry,
            target: &image.target,
            level: compiled.level,
            stages: compiled.stages.iter().chain(&device.stages).collect(),
            facts: DeviceReport::new(compiled, device),
            assembly: assembly.and_then(|assembly| Ok((usage_of(&assembly)?.clone(), assembly))),
            sources: &compiled.module.sources,
        }
    }

    fn place(&self, span: Span) -> String {
        self.sources.locate(span)
    }

    /// For people.
    pub(crate) fn text(&self) -> String {
        let facts = &self.facts;
        let mut out = format!("kernel {}, {}, {}\n\nrecipe\n  {}\n", self.entry, self.level, self.target, facts.recipe());
        for remark in &facts.recipes {
            if let Some(reason) = &remark.refusal {
                let place = reason.span.map_or(String::new(), |span| format!("{}: ", self.place(span)));
                let how = if remark.taken { "left out by" } else { "not" };
                let _ = writeln!(out, "  {how} `{}`: {place}{}", remark.recipe, reason.text);
            }
        }
        self.partition(&mut out);
        self.plan(&mut out);
        out.push_str("\nstages\n");
        for stage in &self.stages {
            let unchanged = if stage.changed { "" } else { " (no change)" };
            let _ = writeln!(out, "  {:>9.1} us  {}{unchanged}", stage.time.as_secs_f64() * 1e6, stage.name);
        }
        let _ = writeln!(out, "  {:>9.1} us  in all", self.total() * 1e6);
        out.push_str("\nlaunch\n");
        let _ = writeln!(out, "  {:>9} threads a block", facts.threads);
        let _ = writeln!(out, "  {:>9} bytes of shared memory", facts.shared_bytes);
        let _ = writeln!(out, "  {:>9} stages", facts.stages);
        self.machine_code(&mut out);
        let inside = facts.conversions.iter().filter(|conversion| conversion.in_loop).count();
        let _ = writeln!(out, "\nconversions: {}, {inside} of them in loops", facts.conversions.len());
        for found in &facts.conversions {
            let looped = if found.in_loop { ", in a loop" } else { "" };
            let _ =
                writeln!(out, "  {:>9} bytes  {} by {}{looped}, {}", found.bytes, found.tile, found.way, self.place(found.span));
        }
        let _ = writeln!(
            out,
            "\ninstructions on shared memory: {}, conflicts of degree {}, in loops {}",
            facts.accesses.iter().map(|access| access.instructions).sum::<u32>(),
            facts.worst_degree(0),
            facts.worst_degree(1)
        );
        for found in &facts.accesses {
            let degree = found.cost.degree.map_or("  ?".to_string(), |degree| format!("{degree:>3}"));
            let behind = standing(found);
            let _ = writeln!(out, "  degree {degree}  {:>4} {}{behind}", found.instructions, found.operation);
        }
        let count = |scattered: bool| {
            let all = facts.global.iter().filter(|access| !scattered || access.cost.is_scattered());
            all.map(|access| access.instructions).sum::<u32>()
        };
        let _ = writeln!(out, "\ninstructions on device memory: {}, scattered {}", count(false), count(true));
        for found in &facts.global {
            let behind = standing(found);
            let cost = match found.cost.sectors {
                Some((moved, needed)) => format!("{:>4} bytes in {moved:>2} sectors, {needed:>2} needed", found.cost.requested),
                None => "   ? bytes where data says".to_string(),
            };
            let advice = match found.cost.stride {
                Some(stride) if found.cost.is_scattered() => {
                    format!("; lanes are {stride} bytes apart: give neighbouring lanes neighbours")
                }
                _ if found.cost.is_scattered() => "; give neighbouring lanes neighbours".to_string(),
                _ => String::new(),
            };
            let _ = writeln!(out, "  {cost}  {:>4} {}{behind}{advice}", found.instructions, found.operation);
        }
        let _ = writeln!(out, "\ninstructions of PTX: {}", facts.mix.values().sum::<usize>());
        let mut mix: Vec<_> = facts.mix.iter().collect();
        mix.sort_by_key(|(name, count)| (std::cmp::Reverse(**count), **name));
        for (name, count) in mix {
            let _ = writeln!(out, "  {count:>9} {name}");
        }
        let round = &facts.round;
        let of = if round.is_loop { "a round of the inner loop" } else { "a block" };
        let _ = writeln!(out, "\nroofline, {of}\n  {:>9} operations\n  {:>9} bytes", round.operations, round.bytes);
        if let Some(bound) = &facts.bound {
            let _ = writeln!(
                out,
                "  bound by {}: {:.1} operations a byte, the limits of {} meet at {:.1}",
                bound.limit(),
                bound.intensity,
                bound.device,
                bound.ridge
            );
        }
        out
    }

    /// How the block's work is shared out, what that costs, and what was tried before.
    fn partition(&self, out: &mut String) {
        let facts = &self.facts;
        let taken = &facts.attempts[facts.taken];
        let _ = writeln!(out, "\npartition\n  {}", taken.partition.text());
        for fallback in taken.outcome.iter().flatten() {
            self.note(out, "  ", &fallback.note);
        }
        for (_, other) in facts.attempts.iter().enumerate().filter(|(at, _)| *at != facts.taken) {
            let text = other.partition.text();
            match &other.outcome {
                Ok(_) => {
                    let _ = writeln!(out, "  not {text}: costs {} instructions a thread", other.cost().unwrap_or(0));
                    other.dearest().into_iter().for_each(|fallback| self.note(out, "    ", &fallback.note));
                }
                Err(error) => {
                    let _ = writeln!(out, "  not {text}");
                    self.note(out, "    ", error);
                }
            }
        }
        if let Some(reason) = &facts.whole {
            let place = reason.span.map_or(String::new(), |span| format!("{}: ", self.place(span)));
            let _ = writeln!(out, "  no more strips: {place}{}", reason.text);
        }
    }

    fn note(&self, out: &mut String, indent: &str, note: &Diagnostic) {
        let place = note.primary.as_ref().map_or(String::new(), |label| format!("{}: ", self.place(label.span)));
        let _ = writeln!(out, "{indent}{place}{}", note.message);
        for text in &note.notes {
            let _ = writeln!(out, "{indent}  {text}");
        }
        for text in &note.help {
            let _ = writeln!(out, "{indent}  instead: {text}");
        }
    }

    /// A partition that was tried, as data.
    fn attempt(&self, attempt: &Attempt) -> Value {
        let told = |note: &Diagnostic| {
            let place = note.primary.as_ref().map(|label| self.place(label.span));
            json!({ "message": note.message, "notes": note.notes, "help": note.help, "place": place })
        };
        let fallback = |found: &Fallback| json!({ "cost": found.cost, "what": told(&found.note) });
        json!({
            "partition": attempt.partition.text(),
            "recipe": attempt.recipe,
            "threads": attempt.threads,
            "cost": attempt.cost(),
            "fallbacks": attempt.outcome.as_ref().map_or(Vec::new(), |found| found.iter().map(fallback).collect()),
            "error": attempt.outcome.as_ref().err().map(told),
        })
    }

    /// The plan, and what its rounds should take: a bar for each part, as long as the share of the round for which it is busy.
    fn plan(&self, out: &mut String) {
        let Some(plan) = &self.facts.plan else { return };
        out.push_str("\nplan\n");
        for line in plan.lines() {
            let _ = writeln!(out, "  {line}");
        }
        for forecast in &self.facts.forecasts {
            let Some((bound, most)) = forecast.bound() else { continue };
            let _ = writeln!(out, "  a round of {} takes {most:.0} clocks or more, bound by: {bound}", self.place(forecast.span));
            for (part, clocks) in &forecast.parts {
                let bar = "#".repeat((clocks / most * 40.0).round() as usize);
                let _ = writeln!(out, "    {part:<18} {clocks:>6.0} {bar}");
            }
        }
    }

    fn total(&self) -> f64 {
        self.stages.iter().map(|stage| stage.time.as_secs_f64()).sum()
    }

    fn machine_code(&self, out: &mut String) {
        let (usage, assembly) = match &self.assembly {
            Ok(assembled) => assembled,
            Err(failure) => {
                let _ = writeln!(out, "\nnot assembled: {}", failure.text);
                return;
            }
        };
        let _ = writeln!(out, "\nassembler, {:.1} ms", assembly.time.as_secs_f64() * 1e3);
        let _ = writeln!(out, "  {:>9} registers\n  {:>9} bytes of stack", usage.registers, usage.stack_bytes);
        let _ = writeln!(out, "  {:>9} bytes spilled", assembly.report.spilled_bytes());
        if assembly.report.serialises_wgmma() {
            out.push_str("  products of warpgroups wait for each other\n");
        }
        if assembly.report.ignores_setmaxnreg() {
            out.push_str("  the assembler ignored how many registers roles have\n");
        }
    }

    /// For programs.
    pub(crate) fn json(&self) -> Value {
        let facts = &self.facts;
        let refused = facts.recipes.iter().filter_map(|remark| {
            let reason = remark.refusal.as_ref()?;
            Some(json!({ "recipe": remark.recipe, "taken": remark.taken, "reason": reason.text, "place": reason.span.map(|span| self.place(span)) }))
        });
        let conversion = |found: &tessera::compile::report::Conversion| {
            let place = self.place(found.span);
            json!({ "tile": found.tile, "bytes": found.bytes, "way": found.way, "in_loop": found.in_loop, "place": place })
        };
        let accesses = facts.accesses.iter().map(|found| {
            let cost = &found.cost;
            shown(found, json!({ "degree": cost.degree, "wavefronts": cost.wavefronts, "ideal": cost.ideal }))
        });
        let global = facts.global.iter().map(|found| {
            let (cost, sectors) = (&found.cost, found.cost.sectors.unzip());
            let own = json!({
                "requested_bytes": cost.requested,
                "sectors": sectors.0,
                "sectors_needed": sectors.1,
                "lane_stride": cost.stride,
                "scattered": cost.is_scattered(),
            });
            shown(found, own)
        });
        let stages: Vec<Value> =
            self.stages.iter().map(|stage| json!({ "name": stage.name, "seconds": stage.time.as_secs_f64() })).collect();
        let assembly = match &self.assembly {
            Err(failure) => json!({ "error": failure.text }),
            Ok((usage, assembly)) => json!({
                "seconds": assembly.time.as_secs_f64(),
                "registers": usage.registers,
                "stack_bytes": usage.stack_bytes,
                "spilled_bytes": assembly.report.spilled_bytes(),
                "serialises_wgmma": assembly.report.serialises_wgmma(),
            }),
        };
        let bound = facts.bound.as_ref().map(
            |bound| json!({ "limit": bound.limit(), "device": bound.device, "intensity": bound.intensity, "ridge": bound.ridge }),
        );
        json!({
            "kernel": self.entry,
            "target": self.target,
            "level": self.level.to_string(),
            "plan": facts.plan,
            "forecasts": facts.forecasts.iter().map(|forecast| json!({
                "place": self.place(forecast.span),
                "clocks": forecast.bound().map(|bound| bound.1),
                "bound": forecast.bound().map(|bound| bound.0),
                "parts": forecast.parts.iter().map(|(part, clocks)| (part.to_string(), json!(clocks))).collect::<serde_json::Map<_, _>>(),
            })).collect::<Vec<_>>(),
            "recipe": facts.recipe(),
            "refused": refused.collect::<Vec<_>>(),
            "partition": facts.attempts[facts.taken].partition.text(),
            "attempts": facts.attempts.iter().map(|attempt| self.attempt(attempt)).collect::<Vec<_>>(),
            "stages": stages,
            "threads": facts.threads,
            "shared_bytes": facts.shared_bytes,
            "ring_stages": facts.stages,
            "assembler": assembly,
            "conversions": facts.conversions.iter().map(conversion).collect::<Vec<_>>(),
            "shared_accesses": accesses.collect::<Vec<_>>(),
            "global_accesses": global.collect::<Vec<_>>(),
            "worst_degree": facts.worst_degree(0),
            "worst_degree_in_loops": facts.worst_degree(1),
            "instructions": facts.mix,
            "round": { "loop": facts.round.is_loop, "operations": facts.round.operations, "bytes": facts.round.bytes },
            "bound": bound,
        })
    }
}

/// Where instructions stand, behind what they are.
fn standing<C>(found: &Access<C>) -> String {
    let looped = if found.loops > 0 { ", in a loop" } else { "" };
    let place = found.place.map_or(String::new(), |(_, line, column)| format!(", line {line}:{column}"));
    looped.to_string() + &place
}

/// Accesses of one kind as data, with what they cost.
fn shown<C>(found: &Access<C>, cost: Value) -> Value {
    let place = found.place.map(|(_, line, column)| json!({ "line": line, "column": column }));
    let mut all = json!({
        "operation": found.operation,
        "stores": found.stores,
        "bytes": found.bytes,
        "instructions": found.instructions,
        "loops": found.loops,
        "place": place,
    });
    if let (Value::Object(all), Value::Object(cost)) = (&mut all, cost) {
        all.extend(cost);
    }
    all
}
