//! `tessera tune`: finds the choices of a kernel, or of an operator and its kernels, that take least, and writes them to a lockfile.

use std::num::NonZeroUsize;
use std::path::Path;
use std::sync::Arc;

use tessera::bench::{
    Candidate, KernelCase, KernelSuite, KernelSuiteError, Library, Monotonic, Outcome as Became, RaceOptions, Selection, Status,
    Tunable, TuneError, TuneOptions, Tuning, Yardstick,
};
use tessera::compile::CompileOptions;
use tessera::runtime::lock::{Bits, Lockfile};
use tessera::runtime::{Device, Kernel, Lock};
use tessera::types::Device as Product;

use crate::arguments::{Bits as BitsName, Tune};
use crate::command::emulation::{Opened, open};
use crate::command::launch::{grid, kernel, kernel_failure, parse, time_limit};
use crate::command::run_operator::named;
use crate::command::sizes::{refuse_untimed, selection};
use crate::command::subjects::combinations;
use crate::command::tuned::{Table, told};
use crate::command::{locking, predict, tolerance};
use crate::failure::{Failure, Outcome, write_text};

/// From which inputs and the order of measurements are derived.
const SEED: u64 = 1;

pub(crate) fn tune(arguments: &Tune) -> Outcome {
    let options =
        CompileOptions { level: format!("O{}", arguments.level).parse().map_err(Failure::usage)?, ..CompileOptions::default() };
    if let Some(name) = &arguments.predict {
        let product = Product::by_name(name).ok_or_else(|| {
            Failure::usage(format!("`{name}` is no product\nhelp: `tessera list devices` names those that are known"))
        })?;
        return predict::predict(arguments, &options, product);
    }
    let seed = arguments.seed.unwrap_or(SEED);
    let opened = open(arguments.device.as_deref(), (&arguments.emulation, time_limit(&arguments.patience)?), Some(seed))?;
    let has_effect = [("--sanitize", opened.checked), ("--trace", arguments.emulation.trace.is_some())];
    if let Some((name, _)) = has_effect.into_iter().find(|(_, given)| *given) {
        return Err(Failure::usage(format!(
            "a tuner runs a kernel many times\nhelp: leave out `{name}`; `tessera run` takes it"
        )));
    }
    let own = if named(&arguments.launch.subject)?.is_none() { Some(kernel(&arguments.launch.subject)?) } else { None };
    let path = locking::path(arguments.lock.as_deref(), own.as_ref())?;
    // Before anything is measured: what cannot be read or written later is told now.
    Lock::accepts(&path).map_err(kernel_failure)?;
    let lock = Arc::new(Lock::read(&path).map_err(kernel_failure)?);
    let known = lock.entries().clone();
    let cases = cases(arguments, (own.as_ref(), &lock), &options, &opened.device)?;
    let tune_options = TuneOptions {
        most: arguments.most.map_or(TuneOptions::default().most, NonZeroUsize::get),
        bits: if arguments.bits == BitsName::Stable { Bits::Stable } else { Bits::Any },
        race: RaceOptions { seed, ..RaceOptions::default() },
        seed,
    };
    let (mut written, mut without) = (0, None);
    for case in cases.cases() {
        let tuning = Tuning {
            suite: &*cases,
            case,
            lock: Arc::clone(&lock),
            known: &known,
            device: &opened.device,
            options: tune_options,
            recover: &|| opened.recover(),
        };
        match tuning_of(arguments, &tuning, &opened, &path) {
            Ok(count) => written += count,
            Err(Stopped::NoChoice(failure)) => without = Some(failure),
            Err(Stopped::Failed(failure)) => return Err(failure),
        }
    }
    if let (0, Some(failure)) = (written, without) {
        return Err(failure);
    }
    if !arguments.json {
        println!("wrote {written} {} to {}", if written == 1 { "choice" } else { "choices" }, path.display());
    }
    Ok(())
}

/// Why a case has no choice.
enum Stopped {
    /// There is but one way; other cases may have more.
    NoChoice(Failure),
    /// Nothing else is tried.
    Failed(Failure),
}

impl From<Failure> for Stopped {
    fn from(failure: Failure) -> Stopped {
        Stopped::Failed(failure)
    }
}

/// Tunes a case, shows what was tried, and writes what was chosen; gives how many choices that are.
fn tuning_of(arguments: &Tune, tuning: &Tuning<'_>, opened: &Opened, path: &Path) -> Result<usize, Stopped> {
    let clock = Monotonic::default();
    let mut count = || opened.launches().iter().map(|launched| launched.report.instructions).sum::<u64>();
    let mut yardstick = if tuning.suite.has_time() { Yardstick::Time(&clock) } else { Yardstick::Count(&mut count) };
    let live = !arguments.json && crate::is_live();
    let mut tell = |at: usize, of: usize, outcome: &Became| {
        if live {
            eprint!("\r{} of {of} candidates: {:<40}", at + 1, told(outcome).chars().take(40).collect::<String>());
        }
    };
    let tried = match tuning.run(&mut yardstick, &mut tell) {
        Err(error @ TuneError::NoChoice { .. }) => return Err(Stopped::NoChoice(failure(error, tuning))),
        tried => tried.map_err(|error| failure(error, tuning))?,
    };
    if live {
        eprintln!();
    }
    let mut entries = Lockfile::default();
    for tried in &tried {
        let table = Table {
            tried,
            case: &tuning.case.key,
            device: &opened.device.to_string(),
            arguments: &arguments.launch.arguments,
            has_time: tuning.suite.has_time(),
        };
        table.print(arguments.json);
        entries.insert(tried.key.clone(), tried.entry.clone());
    }
    Lock::record(path, entries).map_err(kernel_failure)?;
    if let Some(out) = &arguments.out {
        let plans = tried.iter().filter_map(|tried| tried.candidates[tried.winner].0.plan.as_ref());
        match plans.collect::<Vec<_>>().as_slice() {
            [plan] => write_text(out, &plan.text)?,
            plans => return Err(Failure::usage(format!("`-o {out}` takes one plan, and {} were chosen", plans.len())).into()),
        }
    }
    let bad: Vec<String> = tried.iter().flat_map(|tried| &tried.candidates).filter_map(complaint).collect();
    match bad.is_empty() {
        true => Ok(tried.len()),
        false => Err(Failure::found(bad.join("\n"), Vec::new()).into()),
    }
}

/// What is wrong with a candidate, if anything is.
fn complaint((candidate, outcome): &(Candidate, Became)) -> Option<String> {
    let summary = candidate.summary();
    match outcome {
        Became::Wrong(why) => {
            Some(format!("error: a candidate gives wrong results ({summary}): {why}\nhelp: `--rtol` and `--atol` allow more"))
        }
        Became::Failed(why) => Some(format!("error: a candidate does not run to its end ({summary}): {why}")),
        Became::Time(_) | Became::Counted(_) | Became::Refused(_) | Became::Same(_) | Became::OtherOrder(_) | Became::LeftOut => {
            None
        }
    }
}

/// The cases of an operator that the command line asks for.
pub(crate) fn asked(arguments: &Tune) -> Result<Selection, Failure> {
    refuse_kernels_options(arguments)?;
    if let Some(text) = arguments.launch.arguments.first() {
        let help = "say its sizes: `--sizes m=1024,n=1024,k=1024`";
        return Err(Failure::usage(format!("`{text}`: an operator is tuned for sizes, on arrays of its own\nhelp: {help}")));
    }
    let subject = std::slice::from_ref(&arguments.launch.subject);
    let selection = selection(subject, &arguments.precision, arguments.sizes.as_deref())?;
    refuse_untimed(&selection.sizes, &selection.operators)?;
    Ok(selection)
}

/// The cases of the command line, on a device.
fn cases(
    arguments: &Tune,
    (own, lock): (Option<&Kernel>, &Arc<Lock>),
    options: &CompileOptions,
    device: &Device,
) -> Result<Box<dyn Tunable>, Failure> {
    let Some(own) = own else {
        let library = Library::select(&asked(arguments)?, options.clone(), device.clone()).map_err(Failure::usage)?;
        return Ok(Box::new(library.with_lock(Some(Arc::clone(lock)))));
    };
    Ok(Box::new(kernel_cases(arguments, (own, lock), options, device)?))
}

/// The cases of a kernel of a file.
pub(crate) fn kernel_cases(
    arguments: &Tune,
    (own, lock): (&Kernel, &Arc<Lock>),
    options: &CompileOptions,
    device: &Device,
) -> Result<KernelSuite, Failure> {
    if !arguments.precision.is_empty() {
        return Err(Failure::usage("`--precision` is for operators; a kernel's arguments say what it works on"));
    }
    let tolerance = tolerance::asked([arguments.rtol, arguments.atol])?;
    let limit = time_limit(&arguments.patience)?;
    let texts = &arguments.launch.arguments;
    let rows = combinations(arguments.sizes.as_deref(), texts, &[&arguments.launch.grid])?;
    let case = |row: &crate::command::extents::Extents| -> Result<KernelCase, Failure> {
        let filled = texts.iter().map(|text| row.argument(text)).collect::<Result<Vec<_>, _>>()?;
        let blocks = arguments.launch.grid.as_deref().map(|text| row.grid(text)).transpose()?;
        Ok(KernelCase {
            kernel: own.clone().with_lock(Arc::clone(lock)),
            arguments: parse(&filled)?,
            texts: filled,
            sizes: row.named().to_vec(),
            grid: grid(blocks.as_deref())?,
            options: options.clone(),
            against: Vec::new(),
            tolerance,
            baselines: Vec::new(),
            limit,
        })
    };
    let cases = rows.iter().map(case).collect::<Result<Vec<_>, _>>()?;
    KernelSuite::new(cases, device.clone()).map_err(|error| match error {
        KernelSuiteError::Kernel(error) => kernel_failure(error),
        other => Failure::environment(other),
    })
}

/// Options that mean something for a kernel of a file alone.
fn refuse_kernels_options(arguments: &Tune) -> Outcome {
    let given = [
        ("--grid", arguments.launch.grid.is_some(), "operators have a grid of their own"),
        ("--path", !arguments.launch.project.path.is_empty(), "operators import nothing"),
        ("--rtol", arguments.rtol.is_some(), "operators are judged by their f64 references"),
        ("--atol", arguments.atol.is_some(), "operators are judged by their f64 references"),
    ];
    match given.into_iter().find(|(_, given, _)| *given) {
        Some((option, _, why)) => Err(Failure::usage(format!("{why}\nhelp: leave out `{option}`, or name a kernel of a file"))),
        None => Ok(()),
    }
}

fn failure(error: TuneError, tuning: &Tuning<'_>) -> Failure {
    match error {
        TuneError::Kernel(error) => kernel_failure(error),
        TuneError::NoChoice { .. } => {
            let help = match tuning.device {
                Device::Cpu => {
                    "on the CPU a kernel with `@tessera.kernel.autotune(space=...)` has choices; plans are a GPU's: `--predict h200`"
                }
                Device::Driver(_) => "`@tessera.kernel.autotune(space=...)` gives it a space",
            };
            Failure::usage(format!("{error}\nhelp: {help}"))
        }
        TuneError::NoOrder { .. } => Failure::usage(format!("{error}\nhelp: leave out `--bits stable`")),
        TuneError::Wrong { .. } => Failure::found(format!("error: {error}"), Vec::new()),
        // Whatever is torn down now would wait for the kernel.
        TuneError::Fault(fault) if fault.status == Status::Timeout => {
            Failure::found(format!("error: a candidate does not end: {}", fault.message), Vec::new()).end()
        }
        TuneError::Fault(fault) if fault.status.is_wrong() => Failure::found(format!("error: {}", fault.message), Vec::new()),
        other @ (TuneError::Memory(_) | TuneError::Device(_) | TuneError::Fault(_)) => Failure::environment(other),
    }
}
