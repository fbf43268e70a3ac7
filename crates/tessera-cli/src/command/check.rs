//! `tessera check`: are results right? Operators against their f64 references, or one kernel against another execution.

use serde_json::json;
use tessera::bench::{GateOptions, GateReport, Library, Sizes, Suite, TESSERA};
use tessera::compile::OptLevel;
use tessera::runtime::{Device, DriverDevice, KernelError, LaunchOptions, Tensor, npy};

use crate::arguments::Check;
use crate::command::bench::selection;
use crate::command::emulation::{Opened, open};
use crate::command::launch::{Subject, compile_options, device as launch_device, grid, kernel_failure};
use crate::failure::{Failure, Outcome};

/// Seeds of the gate for each operator case.
const SEEDS: usize = 3;

pub(crate) fn check(arguments: Check) -> Outcome {
    if arguments.subjects.first().is_some_and(|subject| subject.contains("::")) {
        return check_kernel(&arguments);
    }
    check_operators(&arguments)
}

fn check_operators(arguments: &Check) -> Outcome {
    if arguments.block.is_some() {
        return Err(Failure::usage("operators choose their own threads\nhelp: `--block` is for one kernel of a file"));
    }
    let mut opened = open(arguments.device.as_deref(), &arguments.emulation, arguments.seed)?;
    let options = compile_options(&arguments.optimise, None)?;
    let mut selection = selection(&arguments.subjects, &arguments.precision, None)?;
    if selection.sizes == Sizes::Quick {
        selection.sizes = Sizes::Edges;
    }
    let select = |opened: &Opened| {
        let mut library = Library::select(&selection, options.clone(), opened.device.clone()).map_err(Failure::usage)?;
        if let Some(most) = arguments.cases {
            library.limit(most, arguments.seed);
        }
        Ok(library)
    };
    let mut library = select(&opened)?;
    let (mut passed, mut failed) = (0usize, Vec::new());
    for number in 0..library.cases().len() {
        let case = &library.cases()[number];
        let outcome = library.build(case, TESSERA).and_then(|mut subject| {
            tessera::bench::check(&mut *subject, GateOptions { suite_seed: arguments.seed, seeds: SEEDS })
        });
        let why = match &outcome {
            Ok(report) if report.passed() => None,
            Ok(report) => Some(report.reason.clone().unwrap_or_else(|| report.status.to_string())),
            Err(fault) => Some(fault.to_string()),
        };
        let launches = opened.launches();
        let findings = opened.judge.failing(&launches);
        let why = if findings.is_empty() { why } else { Some(findings.join("\n")) };
        if arguments.json {
            println!("{}", case_json(&case.key.to_string(), &outcome.as_ref().ok(), why.as_deref()));
        }
        match why {
            None => passed += 1,
            Some(why) => failed.push(format!("{}: {why}", case.key)),
        }
        // A fault takes the emulated device with it; the next case gets another.
        let is_lost = |device: &DriverDevice| device.stream().synchronize().is_err_and(|error| error.poisons_context());
        if arguments.device.as_deref() == Some("emu") && matches!(&opened.device, Device::Driver(device) if is_lost(device)) {
            opened = open(arguments.device.as_deref(), &arguments.emulation, arguments.seed)?;
            library = select(&opened)?;
        }
    }
    if !arguments.json {
        println!("{passed} cases right, {} wrong, on {} ({})", failed.len(), opened.device, opened.reason);
    }
    if failed.is_empty() { Ok(()) } else { Err(Failure::incorrect(failed.join("\nerror: "))) }
}

fn case_json(case: &str, report: &Option<&GateReport>, why: Option<&str>) -> String {
    json!({ "case": case, "right": why.is_none(), "reason": why, "report": report }).to_string()
}

/// Runs a kernel and compares what it wrote with an unoptimised run (always), and with files (where given).
fn check_kernel(arguments: &Check) -> Outcome {
    let opened = open(arguments.device.as_deref(), &arguments.emulation, arguments.seed)?;
    let (device, checked) = (&opened.device, opened.checked);
    let options = compile_options(&arguments.optimise, arguments.block)?;
    let grid = grid(arguments.grid.as_deref())?;
    let (name, texts) = arguments.subjects.split_first().ok_or_else(|| Failure::usage("no kernel is named"))?;
    let subject = Subject::read(name, texts)?;
    let files: Vec<(Option<&str>, &str)> = against(arguments)?;
    let others = arguments.against.iter().filter(|text| is_device(text)).map(|name| {
        let other = launch_device(Some(name))?.0;
        let there = subject.copy()?.on(&other)?;
        Ok((name.as_str(), other, there))
    });
    let others = others.collect::<Result<Vec<_>, Failure>>()?;
    let plain = subject.copy()?.on(device)?;
    let subject = subject.on(device)?;

    let launch = subject.kernel.prepare(&subject.by_name(), grid, &options, device).map_err(kernel_failure)?;
    let ended = |outcome: Result<String, KernelError>| {
        let launches = opened.launches();
        // What the emulator found says more than the driver's error for it.
        opened.judge.tell(&launches)?;
        outcome.map_err(kernel_failure)
    };
    print!("{}", ended(launch.run_with(&LaunchOptions::default()))?);
    let written: Vec<String> = launch.written().flat_map(|name| subject.arrays(name)).map(|(name, _)| name).collect();

    let mut unoptimised = options.clone();
    unoptimised.level = OptLevel::O0;
    let reference = plain.kernel.prepare(&plain.by_name(), grid, &unoptimised, device).map_err(kernel_failure)?;
    ended(reference.run_with(&LaunchOptions { checked, threads: None }))?;
    let checked = checked || opened.sanitizes();
    let (subject, plain) = (subject.on(&Device::Cpu)?, plain.on(&Device::Cpu)?);
    for name in &written {
        compare(name, subject.tensor(name)?, plain.tensor(name)?, "an unoptimised run")?;
    }
    for (name, other, there) in others {
        let launch = there.kernel.prepare(&there.by_name(), grid, &options, &other).map_err(kernel_failure)?;
        launch.run_with(&LaunchOptions::default()).map_err(kernel_failure)?;
        let there = there.on(&Device::Cpu)?;
        for array in &written {
            compare(array, subject.tensor(array)?, there.tensor(array)?, name)?;
        }
    }
    for (wanted, path) in files {
        let want = npy::read(path).map_err(|error| Failure::environment(format!("`{path}`: {error}")))?;
        let name = match (wanted, written.as_slice()) {
            (Some(name), _) => name,
            (None, [only]) => only,
            (None, _) => {
                return Err(Failure::usage(format!("`--against {path}`: write NAME={path}, one of {}", written.join(", "))));
            }
        };
        let want = want.to_dtype(subject.tensor(name)?.dtype()).map_err(Failure::environment)?;
        compare(name, subject.tensor(name)?, &want, path)?;
    }
    if arguments.json {
        println!("{}", json!({ "kernel": subject.kernel.name(), "right": true, "compared": written, "checked": checked }));
    } else {
        println!(
            "{}: {} as in an unoptimised run{}{}",
            subject.kernel.name(),
            written.join(", "),
            if arguments.against.is_empty() { String::new() } else { format!(" and as by {}", arguments.against.join(", ")) },
            if checked { "; the checked run found nothing" } else { "" }
        );
    }
    Ok(())
}

/// Whether `--against` names a device and not a file.
fn is_device(text: &str) -> bool {
    text == "cpu" || text == "emu" || text.starts_with("cuda")
}

/// Files of `--against`, with the argument each is for.
fn against(arguments: &Check) -> Result<Vec<(Option<&str>, &str)>, Failure> {
    let mut files = Vec::new();
    for text in &arguments.against {
        match text.split_once('=') {
            _ if is_device(text) => {}
            Some((name, path)) => files.push((Some(name), path)),
            None => files.push((None, text.as_str())),
        }
    }
    Ok(files)
}

/// Relative and absolute distance that two executions of one kernel may have: their reductions may differ in order.
const TOLERANCE: (f64, f64) = (1e-4, 1e-6);

fn compare(name: &str, got: &Tensor, want: &Tensor, what: &str) -> Outcome {
    let (relative, absolute) = if got.dtype().is_float() && got.dtype().bits() >= 32 { TOLERANCE } else { (1e-2, 1e-2) };
    let (relative, absolute) = if got.dtype().is_float() { (relative, absolute) } else { (0.0, 0.0) };
    match got.difference(want, relative, absolute).map_err(Failure::usage)? {
        None => Ok(()),
        Some(difference) => Err(Failure::incorrect(format!(
            "`{name}` differs from {what} in {} of {} elements, most at {:?}: {} where {} is expected",
            difference.count,
            got.len(),
            difference.index,
            difference.left,
            difference.right
        ))),
    }
}
