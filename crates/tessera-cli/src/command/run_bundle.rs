//! `tessera run FILE.tbundle::KERNEL`: a kernel that was compiled beforehand. Nothing is compiled here.

use std::time::Instant;

use serde_json::json;
use tessera::ir::{Severity, SourceMap};
use tessera::runtime::{Device, KernelError, Ran, Tensor, captured, from_bundle};

use crate::arguments::Run;
use crate::command::bundle::{failure, open as open_bundle};
use crate::command::emulation::{open, refuse_idle_trace, refuse_unused_seed};
use crate::command::findings::findings;
use crate::command::launch::{Made, grid, load, parse, time_limit};
use crate::command::results::{Saves, ended, judged, looked_at, repeat, show};
use crate::command::unwritten;
use crate::failure::{Failure, Outcome};
use crate::finding::{Class, Finding};

/// The bundle and the kernel that a subject names; `None` where it names something else.
pub(crate) fn named(subject: &str) -> Option<(&str, &str)> {
    subject.rsplit_once("::").filter(|(file, _)| file.ends_with(".tbundle"))
}

pub(crate) fn run((path, kernel): (&str, &str), arguments: &Run) -> Outcome {
    refuse_compilers_options(arguments)?;
    refuse_unused_seed(&arguments.emulation, arguments.seed)?;
    let bundle = open_bundle(path)?;
    let made = Made(load(&parse(&arguments.launch.arguments)?)?);
    let saves = Saves::read(&arguments.save, |name| made.tensor(name).map(drop))?;
    let limit = time_limit(&arguments.patience)?;
    let opened = open(arguments.device.as_deref(), (&arguments.emulation, limit), arguments.seed)?;
    let Device::Driver(device) = &opened.device else {
        let help = "help: add `--device emu`, or `--device cuda` where there is a GPU";
        return Err(Failure::usage(format!(
            "a bundle holds kernels for GPUs, and no device of that kind was found or asked for\n{help}"
        )));
    };
    let there = made.on(&opened.device)?;
    let start = Instant::now();
    let grid = grid(arguments.launch.grid.as_deref())?;
    let launch = from_bundle(&bundle, kernel, &there.by_name(), grid, device).map_err(failure)?;
    let held_nothing = launch.poisoned();
    let loaded = start.elapsed().as_secs_f64();
    let start = Instant::now();
    let mut file = tempfile::tempfile().map_err(Failure::environment)?;
    let (done, printed) = captured(&mut file, || launch.run_within(limit.longest())).map_err(Failure::environment)?;
    let seconds = start.elapsed().as_secs_f64();
    let launches = opened.launches();
    let mut data = judged(&opened, &launches);
    data.insert("kernel".to_owned(), json!(kernel));
    let outcome = match done {
        Ok(true) => Ok(Ran { printed, unwritten: launch.unwritten(&held_nothing).map_err(Failure::environment)? }),
        Ok(false) => {
            device.leave_open();
            let seconds = limit.longest().unwrap_or_default().as_secs_f64();
            let message = format!("`{kernel}` has not ended after {seconds} s, and is left running on {}", device.name());
            Failure::found(format!("error[never-ends]: {message}"), vec![Finding::new(Class::Wrong, "never-ends", message)]).end()
        }
        Err(error) => match launch.failed_assertion() {
            Some((assertion, [x, y, z])) => {
                let message = format!("assertion failed: {} (in block {x}, {y}, {z})", assertion.message);
                let text = format!("error[device-assert]: {message}");
                return Err(Failure::found(text, vec![Finding::new(Class::Wrong, "device-assert", message)]));
            }
            None => Err(KernelError::Device(error.into())),
        },
    };
    let ran = match ended(outcome, (&opened, &launches), (&data, arguments.json)) {
        Ok(ran) => ran,
        Err(end) => return end,
    };
    repeat(&ran, arguments.json);
    refuse_idle_trace(&arguments.emulation, &launches)?;
    let results = there.on(&Device::Cpu)?;
    let checked = opened.sanitizes();
    let again = |otherwise: bool| {
        let other = Made(load(&parse(&arguments.launch.arguments)?)?);
        if otherwise {
            other.poison_again()?;
        }
        let other = other.on(&opened.device)?;
        let launch = from_bundle(&bundle, kernel, &other.by_name(), grid, device).map_err(failure)?;
        launch.run_within(limit.longest()).map_err(Failure::environment)?;
        opened.launches();
        Ok(other)
    };
    let written: Vec<&str> = launch.written().collect();
    let names = |arrays: Vec<(String, &Tensor)>| arrays.into_iter().map(|(name, _)| name).collect::<Vec<_>>();
    let (empty, results_of) = (names(made.empty()), written.iter().map(|name| name.to_string()).collect::<Vec<_>>());
    let left = unwritten::left((ran.unwritten, checked), (&empty, &results_of), &results, again)?;
    let asked = launch.grid();
    // What it reads is not in a bundle.
    let about = unwritten::Launch {
        parameters: Vec::new(),
        read: written.clone(),
        written,
        grid: Some([asked.x, asked.y, asked.z]),
        asked: grid,
    };
    let severity = if checked { Severity::Error } else { Severity::Warning };
    let diagnostics = unwritten::diagnostics(&left, severity, &about);
    let found = Failure::fault(&diagnostics, &SourceMap::default());
    saves.write(|name| results.tensor(name))?;
    let failed = checked && !diagnostics.is_empty() || !opened.judge.passed(&launches);
    if arguments.json {
        let own = json!({
            "device": device.name(), "bundle": path, "blocks": [asked.x, asked.y, asked.z], "checked": checked,
            "load_s": loaded, "run_s": seconds, "printed": ran.printed,
            "saved": saves.json(),
        });
        data.extend(own.as_object().cloned().unwrap_or_default());
        return found.and(findings(&launches)).conclude(failed, Some(&json!(data)));
    }
    println!(
        "{kernel} of {path} on {} ({}): {}x{}x{} blocks, loaded in {:.2} ms, ran in {:.3} ms{}",
        device.name(),
        opened.reason,
        asked.x,
        asked.y,
        asked.z,
        loaded * 1e3,
        seconds * 1e3,
        looked_at(checked, diagnostics.len() + findings(&launches).len(), "")
    );
    for name in launch.written() {
        show(name, results.tensor(name)?)?;
    }
    saves.tell();
    opened.judge.tell(&launches)?;
    found.conclude(failed, None)
}

/// Options of a compiler, which is not asked.
fn refuse_compilers_options(arguments: &Run) -> Outcome {
    let for_ranks = [("--ranks", arguments.ranks.is_some()), ("--check-calls", arguments.check_calls)];
    if let Some((option, _)) = for_ranks.into_iter().find(|(_, given)| *given) {
        return Err(Failure::usage(format!("the kernels of a bundle are for one device\nhelp: leave out `{option}`")));
    }
    let given = [
        ("--block", arguments.block.is_some()),
        ("--config", !arguments.optimise.config.is_empty()),
        ("--plan", arguments.optimise.plan.is_some()),
        ("--lock", arguments.optimise.locking.lock.is_some()),
        ("--frozen", arguments.optimise.locking.frozen),
        ("--path", !arguments.launch.project.path.is_empty()),
        ("--timeline", arguments.timeline.is_some()),
    ];
    match given.into_iter().find(|(_, given)| *given) {
        Some((option, _)) => {
            let help = format!("help: leave out `{option}`, or give it to `tessera bundle`");
            Err(Failure::usage(format!("the kernels of a bundle are compiled already\n{help}")))
        }
        None => Ok(()),
    }
}
