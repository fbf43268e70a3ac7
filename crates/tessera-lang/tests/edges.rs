//! Calls near the edge of every rule, judged by this front end and by NVIDIA's: what one takes, the other takes, with a result of one
//! type, or the difference is listed with its reason in `edges/differences.md`. What NVIDIA's front end says is kept in
//! `edges/verdicts.txt`; a share of it is asked again in everyday runs, all of it at night.

mod calls;
mod front_end;
mod operators;
mod record;

use std::collections::BTreeMap;
use std::fmt::Write;

use tessera_lang::{LowerOptions, lower_with_notes, parse_file};

use crate::support;
use calls::Group;
use front_end::{arguments_text, has_result, verdicts};
use record::Record;

/// Parameters of the kernels, with the arguments that they are compiled for.
const KERNEL_PARAMETERS: &[(&str, &str)] = &[
    ("x", "x: f32[?]"),
    ("y", "y: f32[?]"),
    ("m", "m: f32[?,?]"),
    ("c", "c: f32[?,?,?]"),
    ("q", "q: i32[?]"),
    ("qq", "qq: i32[?,?]"),
    ("h", "h: f16[?,?]"),
    ("e", "e: f8e4m3[?,?]"),
    ("l", "l: list f32[2]"),
    ("n", "n: i32"),
    ("w", "w: i64"),
    ("u", "u: u32"),
    ("f", "f: f32"),
    ("p", "p: b1"),
    ("N", "N = 16"),
];

/// The parameters that a statement names.
fn parameters_of(statement: &str) -> Vec<String> {
    let word = |c: char| c.is_alphanumeric() || c == '_';
    let names = |name: &str| {
        statement.match_indices(name).any(|(at, _)| {
            let before = statement[..at].chars().next_back();
            !before.is_some_and(|c| word(c) || c == '.' || c == '"')
                && !statement[at + name.len()..].chars().next().is_some_and(word)
        })
    };
    KERNEL_PARAMETERS.iter().map(|(name, _)| name.to_string()).filter(|name| names(name)).collect()
}

fn groups() -> Vec<Group> {
    calls::groups().into_iter().chain(operators::groups()).collect()
}

/// What this front end says of a statement: a type as the record writes it, or `-` with the diagnostic.
fn own_verdict(statement: &str) -> String {
    let params = parameters_of(statement);
    let annotated: Vec<String> =
        params.iter().map(|name| if name == "N" { "N: ct.Constant[int]".to_string() } else { name.clone() }).collect();
    let body: String = statement.lines().map(|line| format!("    {line}\n")).collect();
    let result = if has_result(statement) { "    reveal_type(r)\n" } else { "" };
    let text = format!(
        "import cuda.tile as ct\nimport math\nimport operator\n\n@ct.kernel\ndef kernel({}):\n{body}{result}",
        annotated.join(", ")
    );
    let file = parse_file("edge.py", &text);
    if let Some(error) = file.diagnostics.iter().find(|found| found.severity == tessera_ir::Severity::Error) {
        return format!("- {}: {}", error.id, error.message);
    }
    let args = support::arguments(&arguments_text(&params));
    let options = LowerOptions { reveal: true, ..LowerOptions::default() };
    match lower_with_notes(&file, "kernel", &args, &options) {
        Err(found) => format!("- {}: {}", found[0].id, found[0].message),
        Ok(lowered) => {
            let problems = tessera_ir::verify(&lowered.module);
            assert!(problems.is_empty(), "invalid IR for\n{statement}\n{}", problems[0].message);
            let revealed = lowered.notes.iter().rev().find(|note| note.id == "revealed-type");
            revealed.map_or("ok".to_string(), |note| short(&note.message))
        }
    }
}

/// A revealed type in the record's words: `tile[float32, (4, 8)]` is `float32[4,8]`.
fn short(revealed: &str) -> String {
    if let Some(rest) = revealed.strip_prefix("tile[") {
        let Some((dtype, rest)) = rest.split_once(", (") else { return "ok".to_string() };
        let Some((dims, known)) = rest.split_once(")]") else { return "ok".to_string() };
        if known.starts_with(" =") {
            return "const".to_string();
        }
        return format!("{dtype}[{}]", dims.trim_end_matches(',').replace(' ', ""));
    }
    if let Some(inner) = revealed.strip_prefix('(').and_then(|rest| rest.strip_suffix(')')) {
        let mut items = Vec::new();
        let (mut depth, mut from) = (0, 0);
        for (at, c) in inner.char_indices() {
            match c {
                '(' | '[' => depth += 1,
                ')' | ']' => depth -= 1,
                ',' if depth == 0 => {
                    items.push(short(inner[from..at].trim()));
                    from = at + 1;
                }
                _ => {}
            }
        }
        if !inner[from..].trim().is_empty() {
            items.push(short(inner[from..].trim()));
        }
        return format!("({})", items.join(", "));
    }
    if let Some(rest) = revealed.strip_prefix("array[") {
        let dtype = rest.split(',').next().unwrap_or("");
        let rank = rest
            .split_once('(')
            .map_or(0, |(_, dims)| dims.split(',').filter(|dim| !dim.trim_matches([')', ']', ' ']).is_empty()).count());
        return format!("array {dtype} {rank}");
    }
    match revealed.split_whitespace().next() {
        Some("const" | "dtype" | "None") => "const".to_string(),
        _ => "ok".to_string(),
    }
}

/// True when two verdicts say the same; without a type on one side, being taken is all that is compared.
fn agree(own: &str, other: &str) -> bool {
    let refused = |verdict: &str| verdict.starts_with('-');
    match (refused(own), refused(other)) {
        (true, true) => true,
        (false, false) => own == other || own.contains("ok") || other.contains("ok"),
        _ => false,
    }
}

#[test]
fn both_front_ends_say_the_same_or_the_difference_is_listed() {
    let groups = groups();
    let mut record = Record::read();
    if std::env::var_os("UPDATE_EXPECT").is_some() {
        record.bring_up_to_date(&groups);
    }
    let listed = record::differences();
    let mut unlisted: BTreeMap<String, Vec<String>> = BTreeMap::new();
    let (mut found, mut calls, mut taken) = (Vec::new(), 0, 0);
    for group in &groups {
        let Some(said) = record.verdicts(group) else {
            panic!("what NVIDIA's front end says of `{}` is out of date: run the test with UPDATE_EXPECT=1", group.name)
        };
        for (statement, other) in group.statements.iter().zip(said) {
            let own = own_verdict(statement);
            calls += 1;
            taken += u32::from(!other.starts_with('-'));
            if agree(&own, &other) {
                continue;
            }
            match listed.iter().find(|difference| difference.covers(&group.name, statement, &own, &other)) {
                Some(difference) => found.push(difference.number),
                None => unlisted
                    .entry(group.name.clone())
                    .or_default()
                    .push(format!("{statement}\n    here: {own}\n    there: {other}")),
            }
        }
    }
    println!(
        "{} groups, {calls} statements, of which NVIDIA's front end takes {taken}; {} listed differences",
        groups.len(),
        found.len()
    );
    let gone: Vec<&str> = listed
        .iter()
        .filter(|difference| !found.contains(&difference.number))
        .map(|difference| difference.text.as_str())
        .collect();
    let mut text = String::new();
    for (group, statements) in &unlisted {
        let _ = writeln!(text, "{group}: {} differences\n  {}", statements.len(), statements.join("\n  "));
    }
    if let Some(path) = std::env::var_os("TESSERA_EDGES_OUT") {
        std::fs::write(path, &text).expect("the file can be written");
    }
    let count: usize = unlisted.values().map(Vec::len).sum();
    assert!(unlisted.is_empty(), "{count} differences are not listed:\n{text}");
    assert!(gone.is_empty(), "listed differences that are none any more: {gone:#?}");
    assert!(calls > 20_000, "{calls} statements are too few");
}

#[test]
fn the_record_is_what_the_front_end_says() {
    let all = std::env::var_os("TESSERA_TEST_ALL").is_some();
    let record = Record::read();
    let mut asked = Vec::new();
    for (number, group) in groups().iter().enumerate() {
        let Some(said) = record.verdicts(group) else { continue };
        for (at, (statement, verdict)) in group.statements.iter().zip(said).enumerate() {
            if all || (at * 7 + number) % 100 == 0 {
                asked.push((statement.clone(), verdict));
            }
        }
    }
    let statements: Vec<String> = asked.iter().map(|(statement, _)| statement.clone()).collect();
    let Some(answers) = verdicts(&statements) else {
        println!("skipped: TESSERA_PYTHON names no interpreter with cuda-tile");
        return;
    };
    for ((statement, recorded), answer) in asked.iter().zip(&answers) {
        let answer = if answer.starts_with('-') { "-" } else { answer.as_str() };
        assert_eq!(recorded, answer, "{statement}");
    }
    println!("{} statements asked again", asked.len());
}

#[test]
fn rows_that_are_not_tried_have_a_reason() {
    for (name, reason) in calls::ELSEWHERE {
        assert!(tessera_lang::Builtin::ALL.iter().any(|builtin| builtin.row().name == *name), "{name}: {reason}");
    }
}
