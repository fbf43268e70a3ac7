//! `tessera bench`: check, then time, then a table.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{Read, Seek};
use std::num::NonZeroUsize;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitStatus, Stdio};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use tessera::bench::device::{DeviceLibrary, DeviceOptions, Supervised, Supervisor, Timing, supervise};
use tessera::bench::duel::{LocalSitting, serve};
use tessera::bench::{
    COLUMNS, EndRecord, Exit, Mode, Monotonic, Progress, Record, Results, RunOptions, Selection, StoreError, Suite, Writer,
    footer, run, table,
};
use tessera::compile::CompileOptions;
use tessera::runtime::{Device, DriverDevice, Knobs};
use tessera::types::TimeLimit;

use crate::arguments::{Bench, Mode as ModeName};
use crate::command::collectives;
use crate::command::compare::plain_table;
use crate::command::emulation::{Opened, is_emulator, open};
use crate::command::launch::library_options;
use crate::command::locking;
use crate::command::progress::Telling;
use crate::command::sizes::{refuse_untimed, selection};
use crate::command::subjects::{is_kernel, kernels, suite};
use crate::failure::{Failure, Outcome, read_text};
use crate::invocation::given;

/// From which inputs are derived.
const SEED: u64 = 1;
/// How long nothing may be heard of a row. On a chip its reference takes most of that; elsewhere its launches do.
const ON_CHIP: Duration = Duration::from_secs(90);
pub(crate) const ELSEWHERE: Duration = Duration::from_secs(600);

pub(crate) fn bench(arguments: Bench) -> Outcome {
    if arguments.member {
        return collectives::be_member();
    }
    if arguments.tethered {
        end_with_the_watcher();
    }
    let is_of_ranks = collectives::are_meant(&arguments.subjects)?;
    let folder = tempfile::tempdir().map_err(Failure::environment)?;
    let (path, previous) = destination(&arguments, folder.path())?;
    let mode = match arguments.mode {
        ModeName::Quick => Mode::Quick,
        ModeName::Ci => Mode::Ci,
        ModeName::Publish => Mode::Publish,
        ModeName::Inference => Mode::Inference,
        ModeName::Training => Mode::Training,
    };
    // What is wrong with the arguments is told here, and not by a child.
    time_limit(&arguments)?;
    if is_of_ranks {
        return match collectives::bench(&arguments, mode, &path, previous.as_ref())? {
            Some(end) => conclude(&arguments, mode, &path, &end),
            None => Ok(()),
        };
    }
    let for_ranks = [("--ranks", arguments.ranks.is_some()), ("--over", !arguments.over.is_empty())];
    if let Some((option, _)) = for_ranks.into_iter().find(|(_, given)| *given) {
        let help = "name one, such as `tessera bench all_reduce`, or all: `tessera bench collectives`";
        return Err(Failure::usage(format!("`{option}` is for collectives\nhelp: {help}")));
    }
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
    let chip = opened.device.driver().filter(|device| !device.is_emulated());
    let supervisor = Supervisor { silence: if chip.is_some() { ON_CHIP } else { ELSEWHERE }, ..Supervisor::default() };
    let end = match chip {
        _ if !arguments.unwatched => {
            // The child opens the device again.
            drop((suite, opened));
            watched((&path, supervisor), previous.is_some(), None)?
        }
        // An emulator's time says nothing of a GPU's: its rows end at the gate, and no baseline stands beside them.
        None => measure(suite.as_ref(), &arguments, &opened.device.to_string(), mode, &path, previous.as_ref())?,
        Some(device) => on_device(&arguments, device, mode, &path, previous.as_ref())?,
    };
    let end = further_processes(&arguments, mode, (&path, supervisor), end)?;
    conclude(&arguments, mode, &path, &end)
}

/// Shows what the results file says, and how the run ended.
fn conclude(arguments: &Bench, mode: Mode, path: &Path, end: &EndRecord) -> Outcome {
    let results = Results::load(path).map_err(Failure::environment)?;
    if arguments.json {
        print!("{}", read_text(&path.to_string_lossy())?);
    } else {
        print_table(&results);
        if arguments.out.is_some() || arguments.resume.is_some() {
            println!("wrote {}", path.display());
        }
    }
    match Exit::of_run(end, mode) {
        // What was not measured for want of a process has no verdict; a wrong result is one all the same.
        Exit::Ok | Exit::Invalid if results.end.is_none() => {
            Err(Failure::environment(end.reason.as_deref().unwrap_or("the run was interrupted")))
        }
        Exit::Ok => Ok(()),
        exit => Err(Failure::silent(exit)),
    }
}

fn time_limit(arguments: &Bench) -> Result<Option<Duration>, Failure> {
    arguments.time_limit.map(Duration::try_from_secs_f64).transpose().map_err(Failure::usage)
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
        ("--ways", arguments.ways > 0 && opened.device.is_cpu(), "on the CPU a problem is cut into blocks in one way alone"),
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
pub(crate) fn further_processes(
    arguments: &Bench,
    mode: Mode,
    (path, supervisor): (&Path, Supervisor),
    end: EndRecord,
) -> Result<EndRecord, Failure> {
    let wanted = arguments.processes.map_or(mode.plan().processes, NonZeroUsize::get);
    let is_child = arguments.process.is_some() || arguments.unwatched;
    if is_child || end.run < end.planned || end.by_status.keys().all(|status| !status.has_time()) {
        return Ok(end);
    }
    let mut last = end;
    for process in 1..wanted {
        last = watched((path, supervisor), true, Some(process))?;
        let results = Results::load(path).map_err(Failure::environment)?;
        if results.sessions.last().is_none_or(|session| session.process != process) {
            return Err(Failure::environment(format!("process {} of {wanted} did not start", process + 1)));
        }
        if results.end.is_none() {
            break;
        }
    }
    Ok(last)
}

/// Runs the same command in a child that a fault or a hang may end, and gives what the results file says at last.
pub(crate) fn watched(
    (path, supervisor): (&Path, Supervisor),
    resume: bool,
    process: Option<usize>,
) -> Result<EndRecord, Failure> {
    if !resume {
        // A file of an earlier run must not be taken for one of ours.
        Writer::create(path).map_err(Failure::environment)?;
    }
    let (program, before) = given().program().map_err(Failure::environment)?;
    // For programs; people are told on the standard error stream, which is ours.
    let mut said = tempfile::tempfile().map_err(Failure::environment)?;
    let mut child = |resume: bool| {
        let mut command = Command::new(&program);
        command.args(&before);
        let mut given = given().texts();
        while let Some(argument) = given.next() {
            if argument == "--out" || argument == "--resume" {
                given.next();
            } else if !argument.starts_with("--out=") && !argument.starts_with("--resume=") && argument != "--json" {
                command.arg(argument);
            }
        }
        command.args(process.map(|number| format!("--process={number}")));
        // What is open as long as this process lives.
        command.stdin(Stdio::piped()).arg("--tethered");
        command.arg("--unwatched").arg(if resume { "--resume" } else { "--out" }).arg(path);
        command.stdout(said.try_clone().map_or_else(|_| Stdio::null(), Stdio::from));
        command
    };
    match supervise(supervisor, path, &mut child).map_err(Failure::environment)? {
        Supervised::NotBegun(how) => Err(not_begun(how, &mut said)),
        Supervised::Ended(end) => Ok(end),
        Supervised::GivenUp(lost) => {
            let results = Results::load(path).map_err(Failure::environment)?;
            let mut end = EndRecord { planned: results.planned(), run: results.finished().len(), ..EndRecord::default() };
            for summary in results.rows.iter().filter_map(|row| row.summary.as_ref()) {
                *end.by_status.entry(summary.status).or_default() += 1;
            }
            let plural = if lost == 1 { "process was" } else { "processes were" };
            end.reason = Some(format!("{lost} measuring {plural} lost, and another one would not come further"));
            Ok(end)
        }
    }
}

/// Ends this process as soon as the one that watches it has gone, however that ended: it holds the other end of the standard input.
fn end_with_the_watcher() {
    std::thread::spawn(|| {
        let _ = std::io::copy(&mut std::io::stdin(), &mut std::io::sink());
        tessera::runtime::exit_at_once(Exit::Environment.code())
    });
}

/// Why a child measured nothing. One that ended by itself has told people why; what it told programs is the last line of `said`.
fn not_begun(how: Option<ExitStatus>, said: &mut File) -> Failure {
    let Some(how) = how else {
        return Failure::environment("nothing was heard of the process that measures; it was ended");
    };
    let Some(exit) = how.code().and_then(|code| u8::try_from(code).ok()).filter(|&code| code != 0) else {
        return Failure::environment(format!("the process that measures ended before it wrote anything ({how})"));
    };
    let mut text = String::new();
    let read = said.rewind().and_then(|()| said.read_to_string(&mut text));
    if crate::is_data() && read.is_ok() {
        text.lines().last().into_iter().for_each(|line| println!("{line}"));
    }
    Failure { exit, ..Failure::silent(Exit::Environment) }
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
        ways: arguments.ways,
        rungs: arguments.rungs,
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
    refuse_untimed(&selection.sizes, &selection.operators)?;
    Ok((options, selection))
}

pub(crate) fn measure(
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
        time_limit: time_limit(arguments)?,
        memory_limit: None,
        device: device.to_string(),
        argv: std::iter::once("tessera".to_owned()).chain(given().texts()).collect(),
        knobs,
        now: now.as_secs(),
    };
    let mut telling = Telling::new(!arguments.json);
    let mut write = |record: Record| writer.write(&record);
    let mut observe = |progress: Progress<'_>| telling.tell(progress);
    let end = run(suite, &run_options, &Monotonic::default(), previous, &mut write, &mut observe);
    telling.finish();
    end.map_err(|error| match error {
        StoreError::NotResumable(_) => {
            Failure::usage(format!("{error}\nhelp: ask for what the file was written for, or write a new one with `--out FILE`"))
        }
        error => Failure::environment(error),
    })
}

/// Where results go, and what an earlier run left there.
fn destination(arguments: &Bench, scratch: &Path) -> Result<(PathBuf, Option<Results>), Failure> {
    for path in arguments.resume.iter().chain(&arguments.out) {
        Writer::accepts(Path::new(path)).map_err(|error| match error {
            StoreError::NotAFile { .. } => Failure::environment(format!("{error}\nhelp: `--json` prints results")),
            error => Failure::environment(error),
        })?;
    }
    match (&arguments.resume, &arguments.out) {
        (Some(resume), Some(out)) if resume != out => {
            Err(Failure::usage(format!("`--resume {resume}` appends to that file; `--out {out}` names another")))
        }
        (Some(resume), _) => Ok((PathBuf::from(resume), Some(super::compare::load(resume)?))),
        (None, Some(out)) => Ok((PathBuf::from(out), None)),
        (None, None) => Ok((scratch.join("results.jsonl"), None)),
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
