//! The instruction table against NVIDIA's assemblers: every instruction that `examples` writes is given to ptxas 13.0.88 and 13.5.37 for `sm_80`
//! and `sm_90a`. What they said is kept in `ptx/acceptance.txt`, so that a machine without them knows it too.
//!
//! A line a row: how many instructions there are, a fingerprint of their texts, and how many of them the assemblers take. They take those
//! that [`tessera_ptx::check`] finds legal for the target; indented lines name the exceptions:
//! `-` is refused although the table has it, `+` is taken although the table's row is for later targets.
//!
//! `cargo xtask nightly` asks the assemblers again; `UPDATE_EXPECT=1 TESSERA_TEST_ALL=1` writes the file.

use std::collections::BTreeMap;
use std::fmt::Write;
use std::path::{Path, PathBuf};
use std::sync::Mutex;

use tessera_ptx::examples::{self, Example, FIRST_LINE};
use tessera_ptx::{AssembleError, Assembler, AssemblyReport, Optimize, PtxVersion, RowId, Severity, Target, check, parse, rows};

const VERSION: PtxVersion = PtxVersion::new(8, 7);
const TARGETS: [&str; 2] = ["sm_80", "sm_90a"];
/// Instructions of one run of an assembler.
const BATCH: usize = 1500;

fn all() -> Vec<Example> {
    (0..rows().len() as u16).map(RowId).flat_map(examples::examples).collect()
}

fn file() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/ptx/acceptance.txt")
}

/// 64 bits of FNV-1a, as text.
fn fingerprint<'a>(texts: impl Iterator<Item = &'a str>) -> String {
    let bytes = texts.flat_map(|text| text.bytes().chain([b'\n']));
    let hash = bytes.fold(0xcbf2_9ce4_8422_2325u64, |hash, byte| (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3));
    format!("{hash:016x}")
}

/// Whether the table has the instruction for the target.
fn legal(text: &str, target: Target) -> bool {
    let text = examples::kernel(VERSION, target, [text]);
    check(&parse(&text).unwrap_or_else(|error| panic!("{}", error.render(&text)))).is_empty()
}

/// Which of the instructions the assembler takes. What it says of no line is found by halving.
fn taken(assembler: &Assembler, target: Target, texts: &[&str]) -> Vec<bool> {
    let mut answer = vec![true; texts.len()];
    let mut left: Vec<usize> = (0..texts.len()).collect();
    while !left.is_empty() {
        let text = examples::kernel(VERSION, target, left.iter().map(|&index| texts[index]));
        let report: AssemblyReport = match assembler.assemble(&text, target, Optimize::Quick) {
            Ok(_) => break,
            Err(AssembleError::Refused { report }) => report,
            Err(error) => panic!("{error}"),
        };
        let errors = report.messages.iter().filter(|message| message.severity == Severity::Error);
        let lines = errors.filter_map(|message| message.line?.checked_sub(FIRST_LINE));
        let named: Vec<usize> = lines.filter_map(|line| left.get(line as usize).copied()).collect();
        if named.is_empty() {
            if let [only] = left[..] {
                answer[only] = false;
                break;
            }
            for half in left.chunks(left.len().div_ceil(2)) {
                let own: Vec<&str> = half.iter().map(|&index| texts[index]).collect();
                for (&index, taken) in half.iter().zip(taken(assembler, target, &own)) {
                    answer[index] = taken;
                }
            }
            break;
        }
        named.iter().for_each(|&index| answer[index] = false);
        left.retain(|index| answer[*index]);
    }
    answer
}

/// What each assembler says of each instruction, by its name and the target.
fn ask(assemblers: &[(&str, Assembler)], all: &[Example]) -> BTreeMap<(String, String), Vec<bool>> {
    let texts: Vec<&str> = all.iter().map(|example| example.text.as_str()).collect();
    let mut jobs = Vec::new();
    for (name, assembler) in assemblers {
        for target in TARGETS {
            jobs.extend((0..texts.len()).step_by(BATCH).map(|start| (name.to_string(), assembler, target, start)));
        }
    }
    let answers = Mutex::new(BTreeMap::new());
    let next = Mutex::new(jobs.into_iter());
    std::thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| {
                loop {
                    let job = next.lock().unwrap().next();
                    let Some((name, assembler, target, start)) = job else { break };
                    let part = &texts[start..texts.len().min(start + BATCH)];
                    let answer = taken(assembler, Target::parse(target).unwrap(), part);
                    let mut answers = answers.lock().unwrap();
                    let own: &mut Vec<bool> =
                        answers.entry((name, target.to_owned())).or_insert_with(|| vec![false; texts.len()]);
                    own[start..start + part.len()].copy_from_slice(&answer);
                }
            });
        }
    });
    answers.into_inner().unwrap()
}

/// The file's text.
fn table(all: &[Example], answers: &BTreeMap<(String, String), Vec<bool>>) -> String {
    let mut text = format!(
        "# Of the instructions of each row, PTX {VERSION}: how many, a fingerprint, how many ptxas takes for {}.\n# Exceptions: - refused \
         although the table has it, + taken although it has it for later targets.\n",
        TARGETS.join(" and ")
    );
    let mut start = 0;
    for (index, row) in rows().iter().enumerate() {
        let own: Vec<&Example> = all[start..].iter().take_while(|example| usize::from(example.row.0) == index).collect();
        let range = start..start + own.len();
        start = range.end;
        let mut exceptions: BTreeMap<&str, Vec<String>> = BTreeMap::new();
        let mut counts = Vec::new();
        for target in TARGETS {
            let parsed = Target::parse(target).unwrap();
            let said: Vec<(&String, &[bool])> = answers
                .iter()
                .filter(|((_, of), _)| of == target)
                .map(|((name, _), answer)| (name, &answer[range.clone()]))
                .collect();
            let mut count = 0;
            for (at, example) in own.iter().enumerate() {
                let by: Vec<&str> = said.iter().filter(|(_, answer)| answer[at]).map(|(name, _)| name.as_str()).collect();
                count += usize::from(by.len() == said.len());
                let wanted = legal(&example.text, parsed);
                let note = match (wanted, by.len() == said.len(), by.is_empty()) {
                    (true, true, _) | (false, _, true) => continue,
                    (true, false, true) => format!("- {target}"),
                    (true, false, false) => format!("- {target} but for {}", by.join(" ")),
                    (false, true, false) => format!("+ {target}"),
                    (false, false, false) => format!("+ {target} by {}", by.join(" ")),
                };
                exceptions.entry(&example.text).or_default().push(note);
            }
            counts.push(count.to_string());
        }
        let print = fingerprint(own.iter().map(|example| example.text.as_str()));
        let _ = writeln!(text, "{} `{}`: {} {print} {}", row.form, row.operands, own.len(), counts.join(" "));
        for (example, notes) in exceptions {
            let _ = writeln!(text, "  {}: {example}", notes.join(", "));
        }
    }
    text
}

#[test]
fn the_kept_answers_are_about_this_table() {
    let kept = std::fs::read_to_string(file()).unwrap();
    let mut lines = kept.lines().filter(|line| !line.starts_with([' ', '#']));
    for (index, row) in rows().iter().enumerate() {
        let own = examples::examples(RowId(index as u16));
        let print = fingerprint(own.iter().map(|example| example.text.as_str()));
        let start = format!("{} `{}`: {} {print} ", row.form, row.operands, own.len());
        let line = lines.next().unwrap_or_default();
        assert!(
            line.starts_with(&start),
            "{line:?} is not about\n{start}\nhelp: UPDATE_EXPECT=1 TESSERA_TEST_ALL=1 cargo xtask test acceptance"
        );
    }
    assert_eq!(lines.next(), None);
}

/// The first instruction of each row, for the one assembler that is there.
#[test]
fn a_sample_is_taken() {
    let Some(assembler) = std::env::var_os("TESSERA_PTXAS").and_then(|path| Assembler::at(path.into())) else {
        println!("skipped: no assembler (TESSERA_PTXAS)");
        return;
    };
    let sample: Vec<Example> = (0..rows().len() as u16).map(|row| examples::examples(RowId(row)).swap_remove(0)).collect();
    let texts: Vec<&str> = sample.iter().map(|example| example.text.as_str()).collect();
    let kept = std::fs::read_to_string(file()).unwrap();
    let answer = taken(&assembler, Target::SM_90A, &texts);
    let wrong = texts.iter().zip(answer).filter(|(text, taken)| !taken && !kept.contains(&format!(": {text}\n")));
    assert_eq!(wrong.map(|(text, _)| *text).collect::<Vec<_>>(), [""; 0]);
}

#[test]
fn assemblers_take_what_the_table_has() {
    if std::env::var_os("TESSERA_TEST_ALL").is_none() {
        println!("skipped: `cargo xtask nightly` asks the assemblers");
        return;
    }
    let path = |name: &str| Assembler::at(std::env::var_os(name)?.into());
    let (Some(newer), Some(older)) = (path("TESSERA_PTXAS"), path("TESSERA_PTXAS_13_0")) else {
        println!("skipped: two assemblers are needed (TESSERA_PTXAS, TESSERA_PTXAS_13_0)");
        return;
    };
    let assemblers = [("13.0", older), ("13.5", newer)];
    let all = all();
    let found = table(&all, &ask(&assemblers, &all));
    println!("{} instructions of {} rows", all.len(), rows().len());
    if std::env::var_os("UPDATE_EXPECT").is_some() {
        std::fs::write(file(), &found).unwrap();
        return;
    }
    assert_eq!(found, std::fs::read_to_string(file()).unwrap());
}
