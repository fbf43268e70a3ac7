//! `tessera run` of a function with a mesh: all its ranks on this machine, or this process as one of them.

use std::time::Instant;

use serde_json::json;
use tessera::compile::{CompileOptions, RankStep};
use tessera::runtime::ranks::{Placement, RankedKernel, World};
use tessera::runtime::{Device, DeviceName, Knobs, LaunchOptions};

use crate::arguments::Run;
use crate::command::launch::{Subject, kernel_failure, sanitize, time_limit};
use crate::command::results::{Saves, show};
use crate::failure::{Failure, Outcome};
use crate::finding::report;

/// Where the ranks run.
enum Where {
    /// As threads, on the CPU.
    Simulated,
    /// As threads, with a CUDA device each.
    Devices(Vec<Device>),
    /// This process is one of them.
    Process(Placement, Device),
}

/// Which rank a launcher has made this process, if it has; `asked` is what `--ranks` says.
pub(crate) fn placement(asked: Option<usize>) -> Result<Option<Placement>, Failure> {
    let placement = Knobs::placement().map_err(Failure::environment)?.filter(|placement| placement.ranks > 1);
    match (&placement, asked) {
        (Some(placement), Some(asked)) if placement.ranks != asked => Err(Failure::usage(format!(
            "`--ranks {asked}` is asked for, and {} started {} processes\nhelp: leave out `--ranks`, or start {asked}",
            placement.launcher, placement.ranks
        ))),
        _ => Ok(placement),
    }
}

/// Chooses where the ranks run.
fn place(asked: Option<&str>, placement: Option<Placement>, ranks: usize) -> Result<Where, Failure> {
    let name = match asked {
        Some(name) => Some(DeviceName::parse(name).ok_or_else(|| Failure::usage(format!("there is no device `{name}`")))?),
        None => Knobs::from_env().map_err(Failure::environment)?.device,
    };
    match (name, placement) {
        (None | Some(DeviceName::Cpu), None) => Ok(Where::Simulated),
        (None | Some(DeviceName::Cpu), Some(placement)) => Ok(Where::Process(placement, Device::Cpu)),
        (Some(DeviceName::Emu), _) => {
            Err(Failure::usage("ranks run on the CPU or on CUDA devices\nhelp: leave out `--device`, or write `--device cuda`"))
        }
        (Some(DeviceName::Cuda(_)), Some(placement)) => {
            let device = placement.device().map_err(Failure::environment)?;
            Ok(Where::Process(placement, device))
        }
        (Some(DeviceName::Cuda(first)), None) => {
            let found = Device::all_cuda().map_err(Failure::environment)?;
            let count = found.len();
            let devices = found
                .into_iter()
                .skip(first as usize)
                .take(ranks)
                .collect::<Result<Vec<_>, _>>()
                .map_err(Failure::environment)?;
            if devices.len() < ranks {
                return Err(Failure::environment(format!(
                    "{ranks} ranks need {ranks} CUDA devices from number {first} on, and this machine has {count}\nhelp: ask for fewer with `--ranks`, or simulate them with `--device cpu`"
                )));
            }
            Ok(Where::Devices(devices))
        }
    }
}

pub(crate) fn run(
    ranked: RankedKernel,
    arguments: &Run,
    subject: &Subject,
    options: &CompileOptions,
    (saves, placement): (&Saves, Option<Placement>),
) -> Outcome {
    refuse_without_effect(arguments)?;
    let ranks = ranked.mesh().ranks();
    let place = place(arguments.device.as_deref(), placement, ranks)?;
    let start = Instant::now();
    let checked = sanitize(arguments.emulation.sanitize.as_deref())?;
    if checked && !matches!(place, Where::Simulated | Where::Process(_, Device::Cpu)) {
        return Err(Failure::usage("a CUDA device cannot run checked\nhelp: `--device cpu` looks for mistakes"));
    }
    let launch = LaunchOptions { checked, limit: time_limit(&arguments.patience)?, ..LaunchOptions::default() };
    let ranked = ranked.checking_calls(arguments.check_calls);
    let how = (options, &launch);
    let args = subject.by_name();
    let (device, told) = match &place {
        Where::Simulated => {
            ranked.run(&args, &Device::Cpu, how).map_err(kernel_failure)?;
            ("cpu".to_string(), format!("{ranks} simulated ranks"))
        }
        Where::Devices(devices) => {
            let nccl = Knobs::nccl().map_err(Failure::environment)?;
            ranked.run_on(&args, devices, &nccl, how).map_err(kernel_failure)?;
            ("cuda".to_string(), format!("{ranks} ranks on {} each, by {nccl}", devices[0]))
        }
        Where::Process(placement, device) => {
            let limits = Knobs::from_env().map_err(Failure::environment)?.limits;
            let nccl = (!device.is_cpu()).then(Knobs::nccl).transpose().map_err(Failure::environment)?;
            let world = World::join(placement, limits).map_err(Failure::environment)?;
            let outcome = ranked.run_as_rank(&world, &args, device, nccl.as_ref(), how);
            outcome.inspect_err(|error| world.fail(&error.to_string())).map_err(kernel_failure)?;
            if placement.rank != 0 {
                return Ok(());
            }
            let by = nccl.map_or_else(|| "TCP".to_string(), |nccl| nccl.to_string());
            (device.to_string(), format!("{ranks} processes on {device}, by {by}"))
        }
    };
    tell(&ranked, arguments, subject, saves, (&device, &told, checked, start.elapsed().as_secs_f64()))
}

fn tell(
    ranked: &RankedKernel,
    arguments: &Run,
    subject: &Subject,
    saves: &Saves,
    (device, told, checked, seconds): (&str, &str, bool, f64),
) -> Outcome {
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
            "kernel": subject.kernel.name(), "device": device, "ranks": ranked.mesh().ranks(), "mesh": ranked.mesh().to_string(),
            "kernels": kernels, "exchanges": exchanges, "checked": checked, "run_s": seconds,
            "saved": saves.json(),
        });
        println!("{}", report(0, &[], &object));
        return Ok(());
    }
    println!(
        "{} on {told}, {}: {kernels} kernels a rank, exchanges: {}; compiled and ran in {:.3} ms",
        subject.kernel.name(),
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
            "`{option}` is for a kernel of one device\nhelp: leave it out: the function runs on several ranks"
        )));
    }
    Ok(())
}
