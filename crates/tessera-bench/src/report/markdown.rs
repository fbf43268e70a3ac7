//! The report as Markdown: the answers, a table by operator, all rows.

use std::fmt::Write;

use super::lines::{File, Source};
use super::overview::{Answers, OperatorRow, Scales, answers, operators};
use super::text::piped;
use crate::table::{COLUMNS, footer, table};

/// One chapter a file.
pub fn markdown(sources: &[Source]) -> String {
    let files: Vec<File<'_>> = sources.iter().enumerate().map(|(index, source)| File::of(source, index)).collect();
    let scales = Scales::of(&files);
    let mut out = String::new();
    files.iter().for_each(|file| chapter(&mut out, file, scales));
    out
}

fn chapter(out: &mut String, file: &File<'_>, scales: Scales) {
    let answers = answers(file, scales);
    let Some(session) = file.session() else {
        let _ = writeln!(out, "## {}\n\n**{}**\n", piped(file.name), answers.verdict);
        return;
    };
    let e = &session.environment;
    let _ = writeln!(out, "## {} on {} ({}, {} threads)\n", session.suite, session.device, piped(&e.cpu), e.threads);
    let (start, mode, seed) = (&session.start, session.mode.name(), session.seed);
    let _ = writeln!(out, "{}: {start}, mode {mode}, seed {seed}, tessera {}\n", piped(file.name), session.tool.version);
    tell(out, &answers);
    let (operators, left_out) = operators(file, scales);
    by_operator(out, &operators);
    if left_out > 0 {
        let _ = writeln!(out, "{left_out} more operators are not in this table.\n");
    }
    let _ = writeln!(out, "| {} |\n|{}", COLUMNS.join(" | "), "---|".repeat(COLUMNS.len()));
    for row in table(file.results) {
        let cells: Vec<String> = row.cells.iter().map(|cell| piped(cell)).collect();
        let _ = writeln!(out, "| {} |", cells.join(" | "));
    }
    let footer = footer(file.results);
    let _ = writeln!(out, "\n{}\n", piped(&footer.counts));
    for reason in footer.reasons.iter().chain(&footer.definitions) {
        let _ = writeln!(out, "- {}", piped(reason));
    }
    out.push('\n');
}

/// How right, how fast, against whom: a sentence each.
fn tell(out: &mut String, answers: &Answers) {
    let _ = writeln!(out, "**{}**\n", piped(&answers.verdict));
    let parts: Vec<String> = answers.right.parts.iter().map(|part| format!("{} {}", part.count, part.name)).collect();
    let _ = writeln!(out, "- {} of {} results are right: {}.", answers.right.passed, answers.right.of, parts.join(", "));
    for text in &answers.right.baselines {
        let _ = writeln!(out, "- {}.", piped(text));
    }
    match &answers.fast {
        Some(fast) => {
            let spread = if fast.spread.is_empty() { String::new() } else { format!("; the middle half: {}", fast.spread) };
            let _ = writeln!(out, "- {} of the ceiling: median of {}{spread}. {}", fast.median, fast.rows, fast.short);
        }
        None => {
            let _ = writeln!(out, "- {}", answers.untimed);
        }
    }
    for against in &answers.against {
        let interval = if against.interval.is_empty() { String::new() } else { format!(" ({})", against.interval) };
        let _ = writeln!(
            out,
            "- {} the speed of {}{interval}: geometric mean of {}; faster in {}, slower in {}, undecided in {}.",
            against.mean,
            piped(&against.baseline),
            against.rows,
            against.faster,
            against.slower,
            against.level
        );
    }
    if !answers.compared.is_empty() {
        let _ = writeln!(out, "- {}", answers.compared);
    }
    out.push('\n');
}

fn by_operator(out: &mut String, operators: &[OperatorRow]) {
    if operators.is_empty() {
        return;
    }
    out.push_str(
        "| operator | right | of the ceiling | middle half | speed | furthest from the ceiling |\n|---|---|---|---|---|---|\n",
    );
    for row in operators {
        let speeds: Vec<String> = row.against.iter().map(|against| format!("{} {}", against.mean, against.baseline)).collect();
        let furthest = format!("{} {}", row.worst_share, row.worst);
        let right = format!("{} of {}", row.passed, row.of);
        let cells = [&row.operator, &right, &row.share, &row.spread, &speeds.join(", "), furthest.trim()].map(piped);
        let _ = writeln!(out, "| {} |", cells.join(" | "));
    }
    out.push('\n');
}
