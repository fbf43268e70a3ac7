//! Every instruction of the table is executed or refused with a reason, and `docs/ptx-coverage.md` says which.
//!
//! The instructions are those that `tessera_ptx::examples` writes: each modifier of each row, as ptxas takes them
//! (`crates/tessera-ptx/tests/ptx/acceptance.txt`). `cargo xtask bless coverage` writes the page's tables.

use std::collections::BTreeSet;
use std::fmt::Write;
use std::path::Path;

use tessera_emu::{EmuError, EmuOptions, Emulator};
use tessera_ptx::examples::{self, Example};
use tessera_ptx::{PtxVersion, Row, RowId, Target, rows};

const VERSION: PtxVersion = PtxVersion::new(8, 7);
/// What stands between these lines of the page is written by the test.
const BEGIN: &str = "<!-- from here on the tables are generated: cargo xtask bless coverage -->\n";
const END: &str = "<!-- up to here -->\n";

/// Why the emulator refuses a kernel of these instructions, if it does.
fn refusal(emulator: &Emulator, list: &[&Example]) -> Option<String> {
    let text = examples::kernel(VERSION, Target::SM_90A, list.iter().map(|example| example.text.as_str()));
    let module = emulator.load(&text).unwrap_or_else(|error| panic!("{error}\n{text}"));
    let refused = match module.parameters("k") {
        Ok(_) => None,
        Err(EmuError::Unsupported { message, .. }) => Some(message),
        Err(error) => panic!("{error}\n{text}"),
    };
    emulator.unload(&module);
    refused
}

/// The reasons for which instructions of a row are refused, and how many are; one without a reason is a failure.
fn reasons(emulator: &Emulator, row: &Row, own: &[Example], unexplained: &mut Vec<String>) -> (BTreeSet<String>, usize) {
    let (mut found, mut count) = (BTreeSet::new(), 0);
    if refusal(emulator, &own.iter().collect::<Vec<_>>()).is_none() {
        return (found, count);
    }
    for example in own {
        match refusal(emulator, &[example]) {
            None => {}
            Some(message) => match message.split_once(" is not executed: ") {
                Some((_, reason)) => {
                    found.insert(reason.to_owned());
                    count += 1;
                }
                None => unexplained.push(format!("{}: {message}", example.text)),
            },
        }
    }
    if unexplained.is_empty() && found.is_empty() {
        unexplained.push(format!("{}: refused together, not alone", row.form));
    }
    (found, count)
}

/// How many instructions of each row ptxas takes for the two targets.
fn taken() -> Vec<String> {
    let kept = include_str!("../../tessera-ptx/tests/ptx/acceptance.txt");
    let lines = kept.lines().filter(|line| !line.starts_with([' ', '#']));
    let counts = lines.map(|line| {
        let words: Vec<&str> = line.rsplitn(5, ' ').collect();
        format!("{}, {} of {}", words[1], words[0], words[3])
    });
    counts.collect()
}

fn cell(text: &str) -> String {
    text.replace('|', "\\|")
}

#[test]
fn every_instruction_is_executed_or_refused_with_a_reason() {
    let emulator = Emulator::new(&EmuOptions::default()).unwrap();
    let (mut tables, mut section, mut unexplained) = (String::new(), "", Vec::new());
    let (mut instructions, mut refused) = (0, 0);
    for (index, (row, taken)) in rows().iter().zip(taken()).enumerate() {
        let own = examples::examples(RowId(index as u16));
        instructions += own.len();
        let (reasons, count) = reasons(&emulator, row, &own, &mut unexplained);
        if row.section != section {
            section = row.section;
            let _ = write!(tables, "\n### {section}\n| form | PTX | needs | taken | |\n|---|---|---|---|---|\n");
        }
        refused += usize::from(count == own.len());
        let why = reasons.into_iter().collect::<Vec<_>>().join("; ");
        let status = match count {
            0 => "executed".to_owned(),
            _ if count == own.len() => format!("refused: {why}"),
            _ => format!("executed but for {count} of {}: {why}", own.len()),
        };
        let form = cell(&row.shown());
        let _ = writeln!(tables, "| `{form}` | {} | {} | {taken} | {status} |", row.ptx, row.needs);
    }
    assert!(unexplained.is_empty(), "{} without a reason:\n{}", unexplained.len(), unexplained.join("\n"));
    let head = format!("{} forms, {instructions} instructions of them assembled; {refused} forms are refused.\n", rows().len());
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/ptx-coverage.md");
    let page = std::fs::read_to_string(&path).unwrap();
    let (before, rest) = page.split_once(BEGIN).expect("the page has a place for the tables");
    let (_, after) = rest.split_once(END).expect("the tables have an end");
    let wanted = format!("{before}{BEGIN}{head}{tables}{END}{after}");
    if std::env::var_os("UPDATE_EXPECT").is_some() {
        std::fs::write(path, wanted).unwrap();
        return;
    }
    assert!(page == wanted, "docs/ptx-coverage.md is not what the tables say\nhelp: `cargo xtask bless coverage`");
}
