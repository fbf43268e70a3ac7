//! `tessera run` of a function with a mesh: all its ranks on this machine.

use std::time::Instant;

use serde_json::json;
use tessera::compile::{CompileOptions, RankStep};
use tessera::runtime::ranks::RankedKernel;
use tessera::runtime::{Device, LaunchOptions};

use crate::arguments::Run;
use crate::command::launch::{Subject, kernel_failure, sanitize, time_limit};
use crate::command::results::{Saves, show};
use crate::failure::{Failure, Outcome};
use crate::finding::report;

pub(crate) fn run(ranked: &RankedKernel, arguments: &Run, subject: &Subject, options: &CompileOptions, saves: &Saves) -> Outcome {
    if arguments.device.as_deref().is_some_and(|device| device != "cpu") {
        return Err(Failure::usage(format!(
            "`{}` is for {} ranks, which are simulated on the CPU\nhelp: leave out `--device`, or write `--device cpu`",
            subject.kernel.name(),
            ranked.mesh().ranks()
        )));
    }
    refuse_without_effect(arguments)?;
    let start = Instant::now();
    let checked = sanitize(arguments.emulation.sanitize.as_deref())?;
    let launch = LaunchOptions { checked, limit: time_limit(&arguments.patience)?, ..LaunchOptions::default() };
    ranked.run(&subject.by_name(), &Device::Cpu, (options, &launch)).map_err(kernel_failure)?;
    let seconds = start.elapsed().as_secs_f64();
    saves.write(|name| subject.tensor(name))?;
    let program = ranked.program();
    let kernels = program.steps.iter().filter(|step| matches!(step, RankStep::Kernel(_))).count();
    let exchanges: Vec<&str> = program
        .steps
        .iter()
        .filter_map(|step| match step {
            RankStep::Exchange { kind, .. } => Some(kind.row().mnemonic),
            RankStep::Kernel(_) => None,
        })
        .collect();
    if arguments.json {
        let object = json!({
            "kernel": subject.kernel.name(), "device": "cpu", "ranks": ranked.mesh().ranks(), "mesh": ranked.mesh().to_string(),
            "kernels": kernels, "exchanges": exchanges, "checked": checked, "run_s": seconds,
            "saved": saves.json(),
        });
        println!("{}", report(0, &[], &object));
        return Ok(());
    }
    println!(
        "{} on {} simulated ranks, {}: {kernels} kernels a rank, exchanges: {}; compiled and ran in {:.3} ms",
        subject.kernel.name(),
        ranked.mesh().ranks(),
        ranked.mesh(),
        if exchanges.is_empty() { "none".to_string() } else { exchanges.join(", ") },
        seconds * 1e3
    );
    let written = program.params.iter().zip(&program.written).filter(|(_, written)| **written);
    for (name, tensor) in written.flat_map(|(param, _)| subject.arrays(&param.name)) {
        show(&name, tensor)?;
    }
    saves.tell();
    Ok(())
}

/// Options that mean something for one kernel on one device alone.
fn refuse_without_effect(arguments: &Run) -> Outcome {
    let given = [
        ("--grid", arguments.launch.grid.as_deref().is_some_and(|grid| grid != "auto")),
        ("--block", arguments.block.is_some()),
        ("--timeline", arguments.timeline.is_some()),
        ("--seed", arguments.seed.is_some()),
        ("--lock", arguments.optimise.locking.lock.is_some()),
        ("--frozen", arguments.optimise.locking.frozen),
    ];
    if let Some((option, _)) = given.into_iter().chain(arguments.emulation.given()).find(|(_, given)| *given) {
        return Err(Failure::usage(format!(
            "`{option}` is for a kernel of one device\nhelp: leave it out: the ranks are simulated on the CPU"
        )));
    }
    Ok(())
}
