//! `tessera bench`: check, then time, then a table.

use std::collections::BTreeMap;
use std::num::NonZeroUsize;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use tessera::bench::device::{DeviceLibrary, DeviceOptions, Supervisor, Timing, supervise};
use tessera::bench::duel::{LocalSitting, serve};
use tessera::bench::{
    COLUMNS, EndRecord, Exit, Mode, Monotonic, Progress, Record, Results, RunOptions, Selection, Sizes, Suite, Writer, footer,
    run, table,
};
use tessera::compile::CompileOptions;
use tessera::runtime::{Device, DriverDevice, Knobs};
use tessera::types::TimeLimit;

use crate::arguments::{Bench, Mode as ModeName};
use crate::command::compare::plain_table;
use crate::command::emulation::{Opened, is_emulator, open};
use crate::command::launch::library_options;
use crate::command::locking;
use crate::command::progress::Telling;
use crate::command::subjects::{is_kernel, kernels, suite};
use crate::failure::{Failure, Outcome, read_text};

/// From which inputs are derived.
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
    let suite = suite(&arguments, opened.device.clone())?;
    if !arguments.json {
        println!("device: {} ({})", opened.device, opened.reason);
    }
    let end = match opened.device.driver().filter(|device| !device.is_emulated()) {
        // An emulator's time says nothing of a GPU's: its rows end at the gate, and no baseline stands beside them.
        None => measure(suite.as_ref(), &arguments, &opened.device.to_string(), mode, &path, previous.as_ref())?,
        Some(device) if arguments.unwatched => on_device(&arguments, device, mode, &path, previous.as_ref())?,
        Some(_) => {
            // The child opens the device again.
            drop((suite, opened));
            watched(&path, previous.is_some(), None)?
        }
    };
    let end = further_processes(&arguments, mode, &path, end)?;
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
    let is_emulated = is_emulator(arguments.device.as_deref())?;
    let is_chip = !is_emulated && !opened.device.is_cpu();
    let has_processes = !arguments.baseline.is_empty() && !is_kernel(&arguments.subjects);
    let given = [
        ("--timing", arguments.timing.is_some() && !is_chip, "launches are timed in several ways on a CUDA device alone"),
        ("--baseline", has_processes && !is_chip, "baseline processes work on a CUDA device alone"),
        ("--cublaslt", arguments.cublaslt.is_some() && !is_chip, "cublasLt works on a CUDA device alone"),
        ("--sanitize", opened.checked, "times of checked runs say nothing: `tessera run` and `tessera check` run checked"),
        ("--trace", arguments.emulation.trace.is_some(), "`tessera run` shows what a warp does"),
        ("--timed", arguments.timed.is_some() && is_emulated, "the emulator checks and times nothing"),
        ("--baseline", !arguments.baseline.is_empty() && is_emulated, "the emulator checks and times nothing"),
    ];
    match given.into_iter().find(|(_, given, _)| *given) {
        Some((option, _, why)) => Err(Failure::usage(format!("{why}\nhelp: leave out `{option}`"))),
        None => Ok(()),
    }
}

/// One process of a side of `compare --run`: does what its standard input asks.
fn sit(arguments: &Bench, device: Device) -> Outcome {
    let name = device.to_string();
    let suite = suite(arguments, device)?;
    if !suite.has_time() {
        let help = "help: `--device cpu` or `--device cuda` do";
        return Err(Failure::usage(format!("the emulator's launches do not take the time of any machine\n{help}")));
    }
    let clock = Monotonic::default();
    let mut sitting = LocalSitting::new(suite.as_ref(), &name, &clock, SEED);
    serve(&mut sitting, std::io::stdin().lock(), std::io::stdout().lock()).map_err(Failure::environment)
}

/// Measures everything again in further processes, as many as were asked for: what differs from process to process is part of
/// every figure then.
fn further_processes(arguments: &Bench, mode: Mode, path: &Path, end: EndRecord) -> Result<EndRecord, Failure> {
    let wanted = arguments.processes.map_or(mode.plan().processes, NonZeroUsize::get);
    let is_child = arguments.process.is_some() || arguments.unwatched;
    if is_child || end.run < end.planned || end.by_status.keys().all(|status| !status.has_time()) {
        return Ok(end);
    }
    let mut last = end;
    for process in 1..wanted {
        last = watched(path, true, Some(process))?;
        let results = Results::load(path).map_err(Failure::environment)?;
        if results.sessions.last().is_none_or(|session| session.process != process) {
            return Err(Failure::environment(format!("process {} of {wanted} did not start", process + 1)));
        }
    }
    Ok(last)
}

/// Runs the same command in a child that a fault or a hang may end, and gives what the results file says at last.
fn watched(path: &Path, resume: bool, process: Option<usize>) -> Result<EndRecord, Failure> {
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
        command.args(process.map(|number| format!("--process={number}")));
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
    if is_kernel(&arguments.subjects) {
        let suite = kernels(arguments, Device::Driver(device.clone()))?;
        return measure(&suite, arguments, device.name(), mode, path, previous);
    }
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
        lock: locking::read(&arguments.optimise.locking, None)?,
        ..DeviceOptions::default()
    };
    let (compile, selection) = asked(arguments)?;
    let (suite, absent) = DeviceLibrary::select(&selection, compile, device, options).map_err(Failure::usage)?;
    if previous.is_none() {
        absent.iter().for_each(|line| eprintln!("note: {line}"));
    }
    measure(&suite, arguments, device.name(), mode, path, previous)
}

/// How to compile and which operators to run, as the command line says.
pub(crate) fn asked(arguments: &Bench) -> Result<(CompileOptions, Selection), Failure> {
    let options = library_options(&arguments.optimise)?;
    let selection = selection(&arguments.subjects, &arguments.precision, arguments.sizes.as_deref())?;
    if let Sizes::Given(extents, _) = &selection.sizes {
        refuse_nought(extents)?;
    }
    Ok((options, selection))
}

/// Refuses extents that take no time.
pub(crate) fn refuse_nought(extents: &[(String, Vec<u64>)]) -> Outcome {
    match extents.iter().find(|(_, values)| values.contains(&0)) {
        Some((name, _)) => {
            Err(Failure::usage(format!("`{name}=0` in `--sizes`: an extent of 0 takes no time\nhelp: `tessera check` takes it")))
        }
        None => Ok(()),
    }
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
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    let run_options = RunOptions {
        mode,
        seed: SEED,
        order: now.as_micros() as u64,
        process: arguments.process.unwrap_or(0),
        timed: if suite.has_time() { arguments.timed } else { Some(0) },
        time_limit: arguments.time_limit.map(Duration::try_from_secs_f64).transpose().map_err(Failure::usage)?,
        memory_limit: None,
        device: device.to_string(),
        argv: std::env::args().collect(),
        knobs,
        now: now.as_secs(),
    };
    let mut telling = Telling::new(!arguments.json);
    let mut write = |record: Record| writer.write(&record);
    let mut observe = |progress: Progress<'_>| telling.tell(progress);
    let end = run(suite, &run_options, &Monotonic::default(), previous, &mut write, &mut observe);
    telling.finish();
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
        match sizes_named(subject) {
            Some(_) if chosen.is_some() || sizes.is_some() => {
                let other = sizes.map_or("another suite".to_string(), |sizes| format!("`--sizes {sizes}`"));
                return Err(Failure::usage(format!("the suite `{subject}` and {other} are both given\nhelp: name one")));
            }
            Some(sizes) => chosen = Some(sizes),
            None => operators.push(subject.clone()),
        }
    }
    let sizes = match sizes {
        None => chosen.unwrap_or(Sizes::Quick),
        Some(text) => match sizes_named(text) {
            Some(sizes) => sizes,
            None => given(text)?,
        },
    };
    Ok(Selection { operators, precisions: precisions.to_vec(), sizes })
}

/// The sizes that a suite's name means.
pub(crate) fn sizes_named(name: &str) -> Option<Sizes> {
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
    let number = |text: &str| text.parse::<u64>().ok().ok_or("an extent is a number".to_string());
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
    if first == 0 && distance == 0 {
        return Err("0 times a factor stays 0\nhelp: begin with 1, or take steps: `0..8+2`".to_string());
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

/// `m=1024,n=64..1024*2,k=1,2,8,variant=nt`.
pub(crate) fn given(text: &str) -> Result<Sizes, Failure> {
    let mut extents: Vec<(String, Vec<u64>)> = Vec::new();
    let mut variant = None;
    // Behind the values of an extent there may be more of them.
    let mut is_list = false;
    for part in text.split(',') {
        let more = if part.contains('=') { None } else { values(part).ok() };
        if let (Some(more), true, Some((_, known))) = (more, is_list, extents.last_mut()) {
            known.extend(more);
            continue;
        }
        is_list = !part.starts_with("variant=");
        match part.split_once('=') {
            Some(("variant", word)) => variant = Some(word.to_string()),
            Some((name, _)) if extents.iter().any(|(known, _)| known == name) => {
                return Err(Failure::usage(format!("`{name}` is given twice in `--sizes {text}`")));
            }
            Some((name, value)) => {
                let values = values(value).map_err(|why| Failure::usage(format!("`{part}`: {why}")))?;
                extents.push((name.to_string(), values));
            }
            None => {
                return Err(Failure::usage(format!(
                    "`{part}` is not a size\nhelp: write quick, seed, all, or NAME=NUMBER,... or NAME=A..B*2,... or NAME=1,2,8,..."
                )));
            }
        }
    }
    Ok(Sizes::Given(extents, variant))
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
