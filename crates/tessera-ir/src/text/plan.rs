//! The text of plans: see [`crate::plan`].

use std::fmt::Write;

use crate::attrs::{Attr, RingProducer};
use crate::diag::{Diagnostic, Span};
use crate::func::Value;
use crate::plan::{Partition, Plan, RingPlan};
use crate::text::cursor::{Cursor, Parsed};

/// Prints a plan; `name` says what a value is called, `%` included.
pub(super) fn print<'n>(plan: &Plan, function: &str, name: impl Fn(Value) -> &'n str) -> String {
    let mut out = format!("plan @{function} {{\n");
    for partition in &plan.partitions {
        let registers = partition.registers.map_or(String::new(), |registers| format!(", registers={registers}"));
        let turns = partition.turns.map_or(String::new(), |turns| format!(", turns={turns}"));
        let _ = writeln!(out, "  partition {} {{warps={}{registers}{turns}}}", partition.name, partition.warps);
    }
    if let Some(blocks) = plan.resident {
        let _ = writeln!(out, "  resident {blocks}");
    }
    if let Some(blocks) = plan.persistent {
        let _ = writeln!(out, "  persistent {blocks}");
    }
    if let Some(rounds) = plan.stream_k {
        let _ = writeln!(out, "  stream_k {rounds}");
    }
    if let Some(blocks) = plan.cluster {
        let _ = writeln!(out, "  cluster {blocks}");
    }
    if let Some(blocks) = plan.split {
        let _ = writeln!(out, "  split {blocks}");
    }
    if let Some(clusters) = plan.among {
        let _ = writeln!(out, "  among {clusters}");
    }
    let partition = |at: usize| plan.partitions.get(at).map_or("?", |partition| &partition.name);
    for ring in &plan.rings {
        let (from, to) = (partition(ring.from), partition(ring.to));
        let _ = write!(out, "  ring {from} -> {to} {{by={}, slots={}}}", ring.by.word(), ring.slots);
        for fill in &ring.fills {
            let names: Vec<&str> = fill.iter().map(|&value| name(value)).collect();
            let _ = write!(out, " [{}]", names.join(", "));
        }
        out.push('\n');
    }
    out.push_str("}\n");
    out
}

/// Reads a plan behind its word: `@function { ... }`. Gives the function's name too.
pub(super) fn parse<'a>(cursor: &mut Cursor<'a>, value: impl Fn(&str) -> Option<Value>) -> Parsed<(&'a str, Plan)> {
    let start = cursor.offset();
    let function = cursor.sigil('@')?;
    let mut plan = Plan::new(cursor.span_from(start));
    cursor.expect("{")?;
    while !cursor.eat("}") {
        let at = cursor.offset();
        match cursor.expect_word("`partition`, `ring`, `resident`, `persistent`, `stream_k`, `cluster`, `split` or `among`")? {
            "partition" => {
                let partition = partition(cursor, at)?;
                if plan.partitions.iter().any(|other| other.name == partition.name) {
                    return Err(wrong(partition.span, format!("there are two partitions `{}`", partition.name)));
                }
                plan.partitions.push(partition);
            }
            "ring" => {
                let ring = ring(cursor, at, &plan.partitions, &value)?;
                plan.rings.push(ring);
            }
            "resident" => plan.resident = Some(cursor.integer()?),
            "persistent" => plan.persistent = Some(cursor.integer()?),
            "stream_k" => plan.stream_k = Some(cursor.integer()?),
            "cluster" => plan.cluster = Some(cursor.integer()?),
            "split" => plan.split = Some(cursor.integer()?),
            "among" => plan.among = Some(cursor.integer()?),
            word => {
                let text = format!(
                    "`{word}` is no part of a plan: `partition`, `ring`, `resident`, `persistent`, `stream_k`, `cluster`, `split` and `among` are"
                );
                return Err(wrong(cursor.span_from(at), text));
            }
        }
    }
    if plan.partitions.is_empty() {
        return Err(wrong(cursor.span_from(start), "the plan does not say who works: `partition all {warps=4}`".to_string()));
    }
    Ok((function, plan))
}

fn wrong(span: Span, text: String) -> Box<Diagnostic> {
    Box::new(Diagnostic::error("plan", span, text))
}

/// `name=value, ...` in braces, each given to `take`, which says whether there is such a name.
fn settings<'a>(cursor: &mut Cursor<'a>, mut take: impl FnMut(&mut Cursor<'a>, &'a str) -> Parsed<bool>) -> Parsed<()> {
    cursor.expect("{")?;
    while !cursor.eat("}") {
        let at = cursor.offset();
        let name = cursor.expect_word("a setting")?;
        cursor.expect("=")?;
        if !take(cursor, name)? {
            return Err(wrong(cursor.span_from(at), format!("there is no setting `{name}` here")));
        }
        if !cursor.peek("}") {
            cursor.expect(",")?;
        }
    }
    Ok(())
}

fn partition(cursor: &mut Cursor<'_>, start: usize) -> Parsed<Partition> {
    let name = cursor.expect_word("a partition's name")?.to_string();
    let (mut warps, mut registers, mut turns) = (None, None, None);
    settings(cursor, |cursor, name| {
        match name {
            "warps" => warps = Some(cursor.integer()?),
            "registers" => registers = Some(cursor.integer()?),
            "turns" => turns = Some(cursor.integer()?),
            _ => return Ok(false),
        }
        Ok(true)
    })?;
    let span = cursor.span_from(start);
    let warps = warps.ok_or_else(|| wrong(span, format!("partition `{name}` does not say its `warps`")))?;
    Ok(Partition { name, warps, registers, turns, span })
}

fn ring(
    cursor: &mut Cursor<'_>,
    start: usize,
    partitions: &[Partition],
    value: &impl Fn(&str) -> Option<Value>,
) -> Parsed<RingPlan> {
    let known = |cursor: &mut Cursor<'_>| -> Parsed<usize> {
        let at = cursor.offset();
        let name = cursor.expect_word("a partition's name")?;
        let found = partitions.iter().position(|partition| partition.name == name);
        found.ok_or_else(|| wrong(cursor.span_from(at), format!("no partition `{name}` stands before this")))
    };
    let from = known(cursor)?;
    cursor.expect("->")?;
    let to = known(cursor)?;
    let (mut by, mut slots) = (None, None);
    settings(cursor, |cursor, name| {
        match name {
            "by" => by = Some(RingProducer::parse(cursor)?),
            "slots" => slots = Some(cursor.integer()?),
            _ => return Ok(false),
        }
        Ok(true)
    })?;
    let mut fills = Vec::new();
    while cursor.peek("[") {
        fills.push(cursor.list("[", "]", |cursor| {
            let at = cursor.offset();
            let name = cursor.sigil('%')?;
            value(name).ok_or_else(|| {
                wrong(cursor.span_from(at), format!("the function has no value `%{name}` before the plan is carried out"))
            })
        })?);
    }
    let span = cursor.span_from(start);
    let missing = |what: &str| wrong(span, format!("the ring does not say its `{what}`"));
    let (by, slots) = (by.ok_or_else(|| missing("by"))?, slots.ok_or_else(|| missing("slots"))?);
    if fills.is_empty() || fills.iter().any(Vec::is_empty) {
        return Err(wrong(span, "the ring does not say which values it holds: `[%a, %b]`".to_string()));
    }
    Ok(RingPlan { from, to, by, slots, fills, span })
}

#[cfg(test)]
mod tests {
    use crate::text::parse_module;

    #[test]
    fn a_plan_says_who_works() {
        let text = "schedule @k() abi() {\n  return\n}\nplan @k {\n  persistent 1\n}\n";
        let (_, wrong) = parse_module("k.tir", text).expect_err("a plan without partitions");
        assert_eq!((wrong.id, &wrong.message[..31]), ("plan", "the plan does not say who works"));
    }
}
