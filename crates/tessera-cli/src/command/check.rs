//! `tessera check`: are results right? Operators against their f64 references here, one kernel of a file in `check_kernel.rs`.

use std::collections::BTreeMap;

use indicatif::{ProgressBar, ProgressStyle};
use serde_json::{Value, json};
use tessera::bench::{Exit, Fault, GateOptions, GateReport, Library, Sizes, Status, Suite, TESSERA, check as gate};
use tessera::runtime::{Device, DriverDevice};
use tessera::types::TimeLimit;

use crate::arguments::Check;
use crate::command::check_gradients::gradients;
use crate::command::check_kernel::check_kernel;
use crate::command::emulation::{Opened, is_emulator, open};
use crate::command::findings::findings as found_by;
use crate::command::launch::library_options;
use crate::command::locking;
use crate::command::sizes::{selection, sizes_named};
use crate::command::tolerance;
use crate::failure::{Failure, Outcome};
use crate::finding::{Class, Finding};

/// Seeds of the gate for a case at the edge of a kernel's tiles; cases of random sizes have one each.
const SEEDS: usize = 3;

pub(crate) fn check(arguments: Check) -> Outcome {
    match arguments.subjects.first().is_some_and(|subject| subject.contains("::")) {
        true => check_kernel(&arguments),
        false => check_operators(&arguments),
    }
}

/// Options that mean something for a kernel of a file alone.
fn refuse_kernels_options(arguments: &Check) -> Outcome {
    let given = [
        ("--grid", arguments.grid.is_some(), "operators have a grid of their own"),
        ("--block", arguments.block.is_some(), "operators choose their own threads"),
        ("--timeout", arguments.patience.timeout.is_some(), "operators end"),
        ("--against", !arguments.reference.against.is_empty(), "operators are compared with their f64 references"),
        ("--against-grid", arguments.reference.against_grid.is_some(), "operators are compared with their f64 references"),
        ("--trace", arguments.emulation.trace.is_some(), "a case launches its kernels several times"),
        ("--sizes", arguments.sizes.is_some() && arguments.cases.is_some(), "`--cases` draws sizes at random"),
        ("--cases", names_suite(arguments) && arguments.cases.is_some(), "a suite says which cases it has"),
    ];
    match given.into_iter().find(|(_, given, _)| *given) {
        Some((option, _, why)) => Err(Failure::usage(format!("{why}\nhelp: leave out `{option}`, or name a kernel of a file"))),
        None => Ok(()),
    }
}

fn names_suite(arguments: &Check) -> bool {
    arguments.subjects.iter().any(|subject| sizes_named(subject).is_some())
}

/// What became of an operator's cases in a precision.
#[derive(Clone, Copy, Debug, Default)]
struct Count {
    right: usize,
    wrong: usize,
    /// Not done: the operator does not offer the case there, or memory does not suffice.
    left_out: usize,
}

fn check_operators(arguments: &Check) -> Outcome {
    refuse_kernels_options(arguments)?;
    let tolerance = tolerance::asked([arguments.reference.rtol, arguments.reference.atol])?.given();
    let reopen = || open(arguments.device.as_deref(), (&arguments.emulation, TimeLimit::NONE), arguments.seed);
    let mut opened = reopen()?;
    let seed = arguments.seed.unwrap_or(1);
    let options = library_options(&arguments.optimise)?;
    let mut selection = selection(&arguments.subjects, &arguments.precision, arguments.sizes.as_deref())?;
    if arguments.sizes.is_none() && !names_suite(arguments) {
        selection.sizes = match arguments.cases {
            Some(count) => Sizes::Random { count: count.get(), seed },
            None => Sizes::Edges,
        };
    }
    let seeds = if arguments.cases.is_some() { 1 } else { SEEDS };
    let gate_options = GateOptions { suite_seed: seed, seeds, tolerance };
    let lock = locking::read(&arguments.optimise.locking, None)?;
    let select = |opened: &Opened| -> Result<Library, Failure> {
        let mut library = Library::select(&selection, options.clone(), opened.device.clone()).map_err(Failure::usage)?;
        if arguments.rungs {
            library.add_rungs();
        }
        Ok(library.with_lock(lock.clone()))
    };
    let mut library = select(&opened)?;
    let mut counts: BTreeMap<(String, String), Count> = BTreeMap::new();
    let (mut rows, mut findings, mut reasons) = (Vec::new(), Vec::new(), Vec::new());
    let checks: Vec<(usize, String)> = (library.cases().iter().enumerate())
        .flat_map(|(number, case)| case.implementations.iter().map(move |name| (number, name.clone())))
        .collect();
    let bar = progress_bar(checks.len(), arguments.json);
    let mut lost = None;
    for (done, (number, implementation)) in checks.iter().enumerate() {
        let case = &library.cases()[*number];
        let (operator, shown) = match implementation.as_str() {
            TESSERA => (case.key.operator.clone(), case.key.to_string()),
            rung => (format!("{} ({rung})", case.key.operator), format!("{} ({rung})", case.key)),
        };
        bar.set_message(shown.clone());
        let outcome = library.build(case, implementation).and_then(|mut subject| gate(&mut *subject, gate_options));
        let launches = opened.launches();
        let texts = opened.judge.failing(&launches);
        let mut found = found_by(&launches);
        let count = counts.entry((operator, case.key.precision.clone())).or_default();
        let why = match &outcome {
            _ if !texts.is_empty() => Some(texts.join("\n")),
            Ok(report) if report.passed() => None,
            Ok(report) => Some(report.reason.clone().unwrap_or_else(|| report.status.to_string())),
            Err(fault) => Some(fault.message.clone()),
        };
        let status = outcome.as_ref().map_or_else(|fault| fault.status, |report| report.status);
        match &why {
            None => {
                count.right += 1;
                findings.append(&mut found);
            }
            Some(why) if is_left_out(&outcome) && texts.is_empty() => {
                count.left_out += 1;
                reasons.push(format!("note: {shown}: {why}"));
            }
            Some(why) => {
                count.wrong += 1;
                reasons.push(format!("error: {shown}: {why}"));
                if texts.is_empty() {
                    found.push(Finding::new(class_of(status), status.name(), why));
                }
                for finding in &mut found {
                    finding.message = format!("{shown}: {}", finding.message);
                }
                findings.append(&mut found);
            }
        }
        if arguments.json {
            rows.push(case_json(&shown, status, &outcome, why.as_deref()));
        }
        bar.inc(1);
        // A fault takes an emulated device with it, and the next case gets another; a chip's can't be had again in this process.
        let is_lost = |device: &DriverDevice| device.stream().synchronize().is_err_and(|error| error.poisons_context());
        if matches!(&opened.device, Device::Driver(device) if is_lost(device)) {
            if !is_emulator(arguments.device.as_deref())? {
                lost = Some(checks.len() - done - 1);
                break;
            }
            opened = reopen()?;
            library = select(&opened)?;
        }
    }
    bar.finish_and_clear();
    for held in gradients(&library, (seed, seeds)) {
        let count = counts.entry((format!("{} (gradient)", held.operator), "f64".to_string())).or_default();
        count.right += held.right;
        match held.why {
            Some(why) if held.is_left_out => {
                count.left_out += 1;
                reasons.push(format!("note: {why}"));
            }
            Some(why) => {
                count.wrong += 1;
                reasons.push(format!("error: {why}"));
                findings.push(Finding::new(Class::Wrong, "gradient", why));
            }
            None => {}
        }
    }
    if let Some(open) = lost.filter(|&open| open > 0) {
        let message = format!("the device was lost to a fault, {open} cases were not checked");
        reasons.push(format!("error: {message}"));
        findings.push(Finding::new(Class::Error, "device-lost", message));
    }
    let sum = |of: fn(&Count) -> usize| counts.values().map(of).sum::<usize>();
    let (right, wrong, left_out) = (sum(|c| c.right), sum(|c| c.wrong), sum(|c| c.left_out));
    if right + wrong == 0 && findings.is_empty() {
        reasons.push("error: nothing was checked".to_string());
        findings.push(Finding::new(Class::Error, "nothing-checked", "nothing was checked"));
    }
    let is_wrong = findings.iter().any(|finding| finding.class == Class::Wrong);
    let mut failure = Failure::found(reasons.join("\n"), findings);
    if !is_wrong {
        failure.exit = Exit::Environment.code();
    }
    let failed = wrong > 0 || failure.findings.iter().any(|finding| finding.class == Class::Error);
    if arguments.json {
        let data = json!({
            "device": opened.device.to_string(), "right": right, "wrong": wrong, "left_out": left_out, "cases": rows,
            "seed": seed,
        });
        return failure.conclude(failed, Some(&data));
    }
    for ((operator, precision), count) in &counts {
        let more = if count.left_out > 0 { format!(", {} left out", count.left_out) } else { String::new() };
        println!("{operator} {precision}: {} right, {} wrong{more}", count.right, count.wrong);
    }
    let more = if left_out > 0 { format!(", {left_out} left out") } else { String::new() };
    println!("{right} cases right, {wrong} wrong{more}, on {} ({})", opened.device, opened.reason);
    failure.conclude(failed, None)
}

/// What a status that is not `ok` means: a wrong result, or a case that could not be judged.
fn class_of(status: Status) -> Class {
    if status.is_wrong() { Class::Wrong } else { Class::Error }
}

/// Cases that an operator does not offer on this machine, and those for which it has not the memory.
fn is_left_out(outcome: &Result<GateReport, Fault>) -> bool {
    outcome.as_ref().is_err_and(|fault| matches!(fault.status, Status::Unsupported | Status::Oom))
}

fn progress_bar(cases: usize, is_json: bool) -> ProgressBar {
    if is_json || !crate::is_live() {
        return ProgressBar::hidden();
    }
    let style = ProgressStyle::with_template("{bar:30} {pos}/{len} {eta} left, {msg}");
    ProgressBar::new(cases as u64).with_style(style.unwrap_or_else(|_| ProgressStyle::default_bar()))
}

fn case_json(case: &str, status: Status, outcome: &Result<GateReport, Fault>, why: Option<&str>) -> Value {
    json!({ "case": case, "status": status, "right": why.is_none(), "reason": why, "report": outcome.as_ref().ok() })
}
