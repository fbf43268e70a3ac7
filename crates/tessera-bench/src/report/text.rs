//! CSV of results, and Markdown of a comparison.

use std::fmt::Write;

use super::lines::Source;
use crate::compare::{Change, Comparison, Verdict};
use crate::duel::DuelOutcome;
use crate::record::SummaryRecord;
use crate::store::{Results, Row};
use crate::units;

/// Columns of the CSV; new ones come last.
const COLUMNS: usize = 29;

/// One line a row, units in the header, empty where there is no value.
pub fn csv(files: &[Source]) -> String {
    const HEADER: [&str; COLUMNS] = [
        "session",
        "start",
        "device",
        "case",
        "operator",
        "variant",
        "size",
        "precision",
        "impl",
        "status",
        "reason",
        "flags",
        "n",
        "n_blocks",
        "median_ns",
        "ci95_lo_ns",
        "ci95_hi_ns",
        "min_ns",
        "p20_ns",
        "p80_ns",
        "bytes_per_s",
        "flop_per_s",
        "efficiency",
        "bound",
        "versus",
        "time_ratio",
        "worst_error_ratio",
        "time_ratio_lo",
        "time_ratio_hi",
    ];
    let mut out = HEADER.join(",") + "\n";
    for Source { results, .. } in files {
        for row in &results.rows {
            if let Some(summary) = &row.summary {
                let cells: Vec<String> = cells(results, row, summary).iter().map(|cell| quoted(cell)).collect();
                out.push_str(&cells.join(","));
                out.push('\n');
            }
        }
    }
    out
}

fn cells(file: &Results, row: &Row, summary: &SummaryRecord) -> [String; COLUMNS] {
    let (key, session, times) = (&row.case.key, file.session(), summary.times.as_ref());
    let number = |value: Option<f64>| value.map_or(String::new(), |v| v.to_string());
    let flags: Vec<&str> = summary.flags.iter().map(|f| f.name()).collect();
    [
        session.id.clone(),
        session.start.clone(),
        session.device.clone(),
        row.case.case.clone(),
        key.operator.clone(),
        key.variant.clone(),
        key.size.to_string(),
        key.precision.clone(),
        row.case.implementation.clone(),
        summary.status.to_string(),
        summary.reason.clone().unwrap_or_default(),
        flags.join(" "),
        times.map_or(String::new(), |t| t.n.to_string()),
        times.map_or(String::new(), |t| t.n_blocks.to_string()),
        number(times.map(|t| t.median_ns)),
        number(times.and_then(|t| t.ci95_ns).map(|ci| ci.lo)),
        number(times.and_then(|t| t.ci95_ns).map(|ci| ci.hi)),
        number(times.map(|t| t.min_ns)),
        number(times.map(|t| t.p20_ns)),
        number(times.map(|t| t.p80_ns)),
        number(summary.bytes_s),
        number(summary.flops_s),
        number(summary.efficiency),
        summary.bound.map_or(String::new(), |b| format!("{b:?}").to_lowercase()),
        summary.versus.as_ref().map_or(String::new(), |v| v.baseline.clone()),
        number(summary.versus.as_ref().map(|v| v.ratio.ratio)),
        number(row.gate.as_ref().and_then(|g| g.worst.as_ref()).map(|w| w.ratio.0)),
        number(summary.versus.as_ref().and_then(|v| v.ratio.ci95).map(|ci| ci.lo)),
        number(summary.versus.as_ref().and_then(|v| v.ratio.ci95).map(|ci| ci.hi)),
    ]
}

/// A CSV field by RFC 4180.
fn quoted(cell: &str) -> String {
    if cell.contains([',', '"', '\n', '\r']) { format!("\"{}\"", cell.replace('"', "\"\"")) } else { cell.to_string() }
}

/// A comparison for a pull request: the verdict, the rows that changed (at most twenty), the rest folded.
pub fn comparison_markdown(comparison: &Comparison) -> String {
    let mut out = String::new();
    let counts: Vec<String> = comparison.counts.iter().map(|(verdict, n)| format!("{n} {verdict}")).collect();
    let _ = writeln!(out, "**{}** (margin {:.1} %)\n", counts.join(", "), comparison.margin_pct);
    if let Some((ratio, ci)) = comparison.geomean {
        let _ = writeln!(out, "Time, new over base, geometric mean: {ratio:.3} (95 % interval {:.3} to {:.3}).\n", ci.lo, ci.hi);
    }
    for note in comparison.notes.iter().chain(&reach(comparison)) {
        let _ = writeln!(out, "- {}", piped(note));
    }
    changes_markdown(&mut out, &comparison.changes);
    out
}

/// How small a change these sessions could have shown.
fn reach(comparison: &Comparison) -> Option<String> {
    let (base, new) = comparison.processes;
    let visible = units::significant(comparison.visible_pct?, 2);
    Some(format!(
        "{base} and {new} processes: in half of the rows, changes from {visible} % on can be told from what processes of one \
         program differ by; more sessions (`A1.jsonl,A2.jsonl`) or `compare --run` find smaller ones"
    ))
}

/// The same for a duel.
pub fn duel_markdown(outcome: &DuelOutcome) -> String {
    let mut out = String::new();
    let counts: Vec<String> = outcome.counts().iter().map(|(verdict, n)| format!("{n} {verdict}")).collect();
    let [a, b] = &outcome.names;
    let _ = writeln!(
        out,
        "**{}**: {b} against {a}, {} pairs of processes in {:.0} s, all verdicts together {} % sure, changes from {} % on\n",
        counts.join(", "),
        outcome.pairs,
        outcome.seconds,
        units::significant(outcome.sure * 100.0, 3),
        units::significant(outcome.least * 100.0, 2),
    );
    for note in &outcome.notes {
        let _ = writeln!(out, "- {}", piped(note));
    }
    changes_markdown(&mut out, &outcome.changes());
    out
}

/// Tables of what changed (at most twenty rows) and, folded, of the rest.
fn changes_markdown(out: &mut String, changes: &[Change]) {
    let quiet = |v: Verdict| matches!(v, Verdict::Same | Verdict::Undecided | Verdict::New);
    let header = "\n| case | impl | verdict | base | new | change of time | 95 % interval |\n|---|---|---|---|---|---|---|\n";
    let line = |c: &Change| {
        let time = |ns: Option<f64>| ns.map_or(String::new(), units::time);
        let change = c.estimate_pct.map_or_else(|| c.note.clone().unwrap_or_default(), |p| format!("{p:+.1} %"));
        let ci = c.ci95_pct.map_or(String::new(), |i| format!("{:+.1} to {:+.1} %", i.lo, i.hi));
        let cells =
            [&c.title, &c.implementation, &c.verdict.to_string(), &time(c.median_ns.0), &time(c.median_ns.1), &change, &ci];
        format!("| {} |\n", cells.map(|cell| piped(cell)).join(" | "))
    };
    let changed: Vec<_> = changes.iter().filter(|c| !quiet(c.verdict)).collect();
    if !changed.is_empty() {
        out.push_str(header);
        changed.iter().take(20).for_each(|c| out.push_str(&line(c)));
    }
    if changed.len() > 20 {
        let _ = writeln!(out, "\nand {} more.", changed.len() - 20);
    }
    let rest: Vec<_> = changes.iter().filter(|c| quiet(c.verdict)).collect();
    if !rest.is_empty() {
        let _ = write!(out, "\n<details><summary>{} other rows</summary>\n{header}", rest.len());
        rest.iter().for_each(|c| out.push_str(&line(c)));
        out.push_str("\n</details>\n");
    }
}

/// Text that cannot end a table cell or begin markup.
pub(super) fn piped(cell: &str) -> String {
    cell.replace('|', "\\|").replace('<', "&lt;").replace('\n', " ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cells_are_quoted_where_needed() {
        assert_eq!(quoted("a,b"), "\"a,b\"");
        assert_eq!(quoted("say \"x\""), "\"say \"\"x\"\"\"");
        assert_eq!(quoted("plain"), "plain");
        assert_eq!(piped("a|b<c"), "a\\|b&lt;c");
    }
}
