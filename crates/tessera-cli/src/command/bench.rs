//! `tessera bench`: check, then time, then a table.

use std::collections::BTreeMap;
use std::io::IsTerminal;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use indicatif::{ProgressBar, ProgressStyle};
use tessera::bench::device::{DeviceLibrary, DeviceOptions, Supervisor, Timing, supervise};
use tessera::bench::duel::{LocalSitting, serve};
use tessera::bench::{
    COLUMNS, EndRecord, Exit, Library, Mode, Monotonic, Progress, Record, Results, RunOptions, Selection, Sizes, Suite, Writer,
    footer, run, table,
};
use tessera::compile::CompileOptions;
use tessera::runtime::{Device, DriverDevice, Knobs};
use tessera::types::TimeLimit;

use crate::arguments::{Bench, Mode as ModeName};
use crate::command::compare::plain_table;
use crate::command::emulation::{Opened, open};
use crate::command::launch::library_options;
use crate::failure::{Failure, Outcome, read_text};

/// From which inputs and the order of cases are derived.
const SEED: u64 = 1;

pub(crate) fn bench(arguments: Bench) -> Outcome {
    let folder = tempfile::tempdir().map_err(Failure::environment)?;
    let (path, previous) = destination(&arguments, folder.path())?;
    let mode = match arguments.mode {
        ModeName::Quick => Mode::Quick,
        ModeName::Ci => Mode::Ci,
        ModeName::Publish => Mode::Publish,
    };
    let opened = open(arguments.device.as_deref(), (&arguments.emulation, TimeLimit::NONE), Some(SEED))?;
    refuse_without_effect(&arguments, &opened)?;
    if arguments.serve {
        return sit(&arguments, opened.device);
    }
    // What is wrong with the selection is told before anything else is.
    let (options, selection) = asked(&arguments)?;
    if let Device::Cpu = opened.device {
        Library::select(&selection, options, Device::Cpu).map_err(Failure::usage)?;
    }
    if !arguments.json {
        println!("device: {} ({})", opened.device, opened.reason);
    }
    let end = match opened.device {
        Device::Cpu => {
            let (options, selection) = asked(&arguments)?;
            let library = Library::select(&selection, options, Device::Cpu).map_err(Failure::usage)?;
            measure(&library, &arguments, "cpu", mode, &path, previous.as_ref())?
        }
        // An emulator's time says nothing of a GPU's: its rows end at the gate, and no baseline stands beside them.
        Device::Driver(device) if device.context().table().is_ok_and(|table| table.backend == "emulator") => {
            let (options, selection) = asked(&arguments)?;
            let name = device.name().to_string();
            let library = Library::select(&selection, options, Device::Driver(device)).map_err(Failure::usage)?;
            measure(&library, &arguments, &name, mode, &path, previous.as_ref())?
        }
        Device::Driver(device) => {
            if arguments.unwatched {
                on_device(&arguments, &device, mode, &path, previous.as_ref())?
            } else {
                // What is wrong with the command or the device was told once; the children read and open it again.
                asked(&arguments)?;
                drop(device);
                watched(&path, previous.is_some())?
            }
        }
    };
    if arguments.json {
        print!("{}", read_text(&path.to_string_lossy())?);
    } else {
        print_table(&Results::load(&path).map_err(Failure::environment)?);
        if arguments.out.is_some() || arguments.resume.is_some() {
            println!("wrote {}", path.display());
        }
    }
    match Exit::of_run(&end, mode) {
        Exit::Ok => Ok(()),
        exit => Err(Failure::silent(exit)),
    }
}

/// Options that mean something elsewhere alone.
fn refuse_without_effect(arguments: &Bench, opened: &Opened) -> Outcome {
    let is_emulated = arguments.device.as_deref() == Some("emu");
    let is_chip = !is_emulated && !opened.device.is_cpu();
    let given = [
        ("--timing", arguments.timing.is_some() && !is_chip, "launches are timed in several ways on a CUDA device alone"),
        ("--baseline", !arguments.baseline.is_empty() && !is_chip, "baseline processes work on a CUDA device alone"),
        ("--cublaslt", arguments.cublaslt.is_some() && !is_chip, "cublasLt works on a CUDA device alone"),
        ("--sanitize", opened.checked, "times of checked runs say nothing: `tessera run` and `tessera check` run checked"),
        ("--trace", arguments.emulation.trace.is_some(), "`tessera run` shows what a warp does"),
        ("--timed", arguments.timed.is_some() && is_emulated, "the emulator checks and times nothing"),
    ];
    match given.into_iter().find(|(_, given, _)| *given) {
        Some((option, _, why)) => Err(Failure::usage(format!("{why}\nhelp: leave out `{option}`"))),
        None => Ok(()),
    }
}

/// One process of a side of `compare --run`: does what its standard input asks.
fn sit(arguments: &Bench, device: Device) -> Outcome {
    let (options, selection) = asked(arguments)?;
    let name = device.to_string();
    let library = Library::select(&selection, options, device).map_err(Failure::usage)?;
    if !library.has_time() {
        let help = "help: `--device cpu` or `--device cuda` do";
        return Err(Failure::usage(format!("the emulator's launches do not take the time of any machine\n{help}")));
    }
    let clock = Monotonic::default();
    let mut sitting = LocalSitting::new(&library, &name, &clock, SEED);
    serve(&mut sitting, std::io::stdin().lock(), std::io::stdout().lock()).map_err(Failure::environment)
}

/// Runs the same command in a child that a fault or a hang may end, and gives what the results file says at last.
fn watched(path: &Path, resume: bool) -> Result<EndRecord, Failure> {
    let program = std::env::current_exe().map_err(Failure::environment)?;
    if !resume {
        // A file of an earlier run must not be taken for one of ours.
        let _ = std::fs::remove_file(path);
    }
    let mut child = |resume: bool| {
        let mut command = Command::new(&program);
        let mut given = std::env::args().skip(1);
        while let Some(argument) = given.next() {
            if argument == "--out" || argument == "--resume" {
                given.next();
            } else if !argument.starts_with("--out=") && !argument.starts_with("--resume=") && argument != "--json" {
                command.arg(argument);
            }
        }
        command.arg("--unwatched").arg(if resume { "--resume" } else { "--out" }).arg(path).stdout(Stdio::null());
        command
    };
    let lost = supervise(Supervisor::default(), path, &mut child).map_err(Failure::environment)?;
    let results = Results::load(path).map_err(Failure::environment)?;
    let mut end = results.end.unwrap_or_default();
    if lost > 0 && end.reason.is_none() && end.planned == 0 {
        end.reason = Some(format!("{lost} measuring processes were lost"));
    }
    Ok(end)
}

/// Measures on a device in this process.
fn on_device(
    arguments: &Bench,
    device: &DriverDevice,
    mode: Mode,
    path: &Path,
    previous: Option<&Results>,
) -> Result<EndRecord, Failure> {
    let timing = arguments.timing.as_deref().unwrap_or("cold");
    let timing = Timing::parse(timing)
        .ok_or_else(|| Failure::usage(format!("`{timing}` is no timing\nhelp: write cold, warm or graph")))?;
    let workers = arguments.baseline.iter().map(|text| match text.split_once('=') {
        Some((name, command)) => Ok((name.to_string(), command.to_string())),
        None => Err(Failure::usage(format!("`{text}` is no baseline\nhelp: write NAME=COMMAND"))),
    });
    let options = DeviceOptions {
        timing,
        cublaslt: arguments.cublaslt.as_ref().map(PathBuf::from),
        workers: workers.collect::<Result<_, Failure>>()?,
        ..DeviceOptions::default()
    };
    let (compile, selection) = asked(arguments)?;
    let (suite, absent) = DeviceLibrary::select(&selection, compile, device, options).map_err(Failure::usage)?;
    if previous.is_none() {
        absent.iter().for_each(|line| eprintln!("note: {line}"));
    }
    measure(&suite, arguments, device.name(), mode, path, previous)
}

/// How to compile and what to run, as the command line says.
fn asked(arguments: &Bench) -> Result<(CompileOptions, Selection), Failure> {
    let options = library_options(&arguments.optimise)?;
    Ok((options, selection(&arguments.subjects, &arguments.precision, arguments.sizes.as_deref())?))
}

fn measure(
    suite: &dyn Suite,
    arguments: &Bench,
    device: &str,
    mode: Mode,
    path: &Path,
    previous: Option<&Results>,
) -> Result<EndRecord, Failure> {
    let mut writer = match previous {
        Some(results) => Writer::resume(path, results),
        None => Writer::create(path),
    }
    .map_err(Failure::environment)?;
    let knobs: BTreeMap<String, String> =
        Knobs::rows().into_iter().filter_map(|row| Some((row.name.to_string(), row.value?))).collect();
    let run_options = RunOptions {
        mode,
        seed: SEED,
        timed: if suite.has_time() { arguments.timed } else { Some(0) },
        time_limit: arguments.time_limit.map(Duration::try_from_secs_f64).transpose().map_err(Failure::usage)?,
        memory_limit: None,
        device: device.to_string(),
        argv: std::env::args().collect(),
        knobs,
        now: SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs()),
    };
    let bar = progress_bar(!arguments.json);
    let mut write = |record: Record| writer.write(&record);
    let mut observe = |progress: Progress<'_>| show(&bar, progress);
    let end = run(suite, &run_options, &Monotonic::default(), previous, &mut write, &mut observe);
    bar.finish_and_clear();
    end.map_err(Failure::environment)
}

/// Where results go, and what an earlier run left there.
fn destination(arguments: &Bench, scratch: &Path) -> Result<(PathBuf, Option<Results>), Failure> {
    match (&arguments.resume, &arguments.out) {
        (Some(resume), Some(out)) if resume != out => {
            Err(Failure::usage(format!("`--resume {resume}` appends to that file; `--out {out}` names another")))
        }
        (Some(resume), _) => Ok((PathBuf::from(resume), Some(super::compare::load(resume)?))),
        (None, Some(out)) => Ok((PathBuf::from(out), None)),
        (None, None) => Ok((scratch.join("results.jsonl"), None)),
    }
}

/// Operators, a suite, sizes and precisions as the command line names them.
pub(crate) fn selection(subjects: &[String], precisions: &[String], sizes: Option<&str>) -> Result<Selection, Failure> {
    let mut chosen: Option<Sizes> = None;
    let mut operators = Vec::new();
    let twice =
        |names: &[String]| names.iter().enumerate().find(|(at, name)| names[..*at].contains(name)).map(|(_, name)| name.clone());
    if let Some(name) = twice(subjects).or_else(|| twice(precisions)) {
        return Err(Failure::usage(format!("`{name}` is given twice")));
    }
    for subject in subjects {
        match suite(subject) {
            Some(_) if chosen.is_some() || sizes.is_some() => {
                let other = sizes.map_or("another suite".to_string(), |sizes| format!("`--sizes {sizes}`"));
                return Err(Failure::usage(format!("the suite `{subject}` and {other} are both given\nhelp: name one")));
            }
            Some(suite) => chosen = Some(suite),
            None => operators.push(subject.clone()),
        }
    }
    let sizes = match sizes {
        None => chosen.unwrap_or(Sizes::Quick),
        Some(text) => match suite(text) {
            Some(suite) => suite,
            None => given(text)?,
        },
    };
    Ok(Selection { operators, precisions: precisions.to_vec(), sizes })
}

/// The sizes that a suite's name means.
pub(crate) fn suite(name: &str) -> Option<Sizes> {
    match name {
        "quick" => Some(Sizes::Quick),
        "seed" => Some(Sizes::Seed),
        "all" => Some(Sizes::All),
        "edges" => Some(Sizes::Edges),
        _ => None,
    }
}

/// Values of an extent at most.
const MOST_VALUES: usize = 1000;

/// `1024`, `64..1024*2` or `1000..1010+5`; a range without a step has all its values, the last one included.
fn values(text: &str) -> Result<Vec<u64>, String> {
    let number =
        |text: &str| text.parse().ok().filter(|&value: &u64| value > 0).ok_or("an extent is a positive number".to_string());
    let Some((first, rest)) = text.split_once("..") else { return Ok(vec![number(text)?]) };
    let (last, factor, distance) = match (rest.split_once('*'), rest.split_once('+')) {
        (Some((last, factor)), _) => (last, number(factor)?, 0),
        (None, Some((last, distance))) => (last, 1, number(distance)?),
        (None, None) => (rest, 1, 1),
    };
    if factor == 1 && distance == 0 {
        return Err("the factor of a range is 2 at least".to_string());
    }
    let step = |value: u64| value.checked_mul(factor)?.checked_add(distance);
    let (first, last) = (number(first)?, number(last)?);
    if first > last {
        return Err(format!("{first} is more than {last}"));
    }
    let values: Vec<u64> = std::iter::successors(Some(first), |&value| step(value))
        .take_while(|&value| value <= last)
        .take(MOST_VALUES + 1)
        .collect();
    if values.len() > MOST_VALUES {
        return Err(format!("more than {MOST_VALUES} values\nhelp: take larger steps: `{text}*2` or `{text}+64`"));
    }
    Ok(values)
}

/// `m=1024,n=64..1024*2,variant=nt`.
fn given(text: &str) -> Result<Sizes, Failure> {
    let mut extents = Vec::new();
    let mut variant = None;
    for part in text.split(',') {
        match part.split_once('=') {
            Some(("variant", word)) => variant = Some(word.to_string()),
            Some((name, _)) if extents.iter().any(|(known, _): &(String, _)| known == name) => {
                return Err(Failure::usage(format!("`{name}` is given twice in `--sizes {text}`")));
            }
            Some((name, value)) => {
                let values = values(value).map_err(|why| Failure::usage(format!("`{part}`: {why}")))?;
                extents.push((name.to_string(), values));
            }
            None => {
                return Err(Failure::usage(format!(
                    "`{part}` is not a size\nhelp: write quick, seed, all, or NAME=NUMBER,... or NAME=A..B*2,..."
                )));
            }
        }
    }
    Ok(Sizes::Given(extents, variant))
}

fn progress_bar(wanted: bool) -> ProgressBar {
    if !wanted || !std::io::stderr().is_terminal() {
        return ProgressBar::hidden();
    }
    let style = ProgressStyle::with_template("{bar:30} {pos}/{len} {msg}").unwrap_or_else(|_| ProgressStyle::default_bar());
    ProgressBar::new(1).with_style(style)
}

fn show(bar: &ProgressBar, progress: Progress<'_>) {
    match progress {
        Progress::Ceilings => bar.set_message("measuring the machine's ceilings"),
        Progress::Checking(row, rows, case, _) => {
            bar.set_length(rows as u64);
            bar.set_position(row.saturating_sub(1) as u64);
            bar.set_message(format!("checking {}", case.key));
        }
        Progress::Timing(rows) => bar.set_message(format!("timing {rows} cases in turn")),
        Progress::Finished(..) => bar.inc(1),
    }
}

fn print_table(results: &Results) {
    let rows = table(results);
    // A column that is empty throughout says nothing.
    let kept: Vec<usize> = (0..COLUMNS.len()).filter(|&column| rows.iter().any(|row| !row.cells[column].is_empty())).collect();
    let header: Vec<&str> = kept.iter().map(|&column| COLUMNS[column]).collect();
    let mut shown = plain_table(&header);
    shown.add_rows(rows.iter().map(|row| kept.iter().map(|&column| row.cells[column].clone()).collect::<Vec<_>>()));
    println!("{shown}");
    let footer = footer(results);
    println!("{}", footer.counts);
    for line in footer.reasons.iter().chain(&footer.definitions) {
        println!("{line}");
    }
}
