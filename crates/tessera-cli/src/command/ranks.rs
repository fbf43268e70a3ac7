//! `tessera run` of a function with a mesh: all its ranks on this machine, or this process as one of them.

use std::time::Instant;

use serde_json::{Map, json};
use tessera::compile::{CompileOptions, RankStep};
use tessera::emu::Launched;
use tessera::runtime::ranks::{Placement, RankedKernel, World};
use tessera::runtime::{Device, DeviceName, DriverDevice, Knobs, LaunchOptions, Ran};

use crate::arguments::Run;
use crate::command::emulation::{Opened, is_emulator, open_emulators, refuse_idle_trace, refuse_unused_seed};
use crate::command::findings::findings;
use crate::command::launch::{Subject, kernel_failure, sanitize, time_limit};
use crate::command::results::{Saves, ended, judged, repeat, show};
use crate::failure::{Failure, Outcome};
use crate::finding::report;

/// Where the ranks run.
enum Where {
    /// As threads, on the CPU.
    Simulated,
    /// As threads, with a CUDA device each.
    Devices(Vec<Device>),
    /// As threads, with an emulated device each.
    Emulated(Vec<DriverDevice>, Box<Opened>),
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
fn place(arguments: &Run, placement: Option<Placement>, ranks: usize) -> Result<Where, Failure> {
    let name = match arguments.device.as_deref() {
        Some(name) => Some(DeviceName::parse(name).ok_or_else(|| Failure::usage(format!("there is no device `{name}`")))?),
        None => Knobs::from_env().map_err(Failure::environment)?.device,
    };
    match (name, placement) {
        (None | Some(DeviceName::Cpu), None) => Ok(Where::Simulated),
        (None | Some(DeviceName::Cpu), Some(placement)) => Ok(Where::Process(placement, Device::Cpu)),
        (Some(DeviceName::Emu), None) => {
            refuse_unused_seed(&arguments.emulation, arguments.seed)?;
            let limit = time_limit(&arguments.patience)?;
            let asked = arguments.device.as_deref();
            let (devices, opened) = open_emulators(ranks, asked, (&arguments.emulation, limit), arguments.seed)?;
            Ok(Where::Emulated(devices, Box::new(opened)))
        }
        (Some(DeviceName::Emu), Some(_)) => Err(Failure::usage(
            "processes have no emulated devices that reach each other's memory\nhelp: start one process with `--ranks N`, whose ranks are threads",
        )),
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
    let place = place(arguments, placement, ranks)?;
    let start = Instant::now();
    let checked = match &place {
        Where::Emulated(_, opened) => opened.sanitizes(),
        Where::Simulated | Where::Process(_, Device::Cpu) => sanitize(arguments.emulation.sanitize.as_deref())?,
        Where::Devices(_) | Where::Process(_, Device::Driver(_)) if sanitize(arguments.emulation.sanitize.as_deref())? => {
            return Err(Failure::usage(
                "a CUDA device cannot run checked\nhelp: `--device cpu` and `--device emu` look for mistakes",
            ));
        }
        Where::Devices(_) | Where::Process(_, Device::Driver(_)) => false,
    };
    // The emulator checks by itself.
    let by_us = checked && !matches!(place, Where::Emulated(..));
    let launch = LaunchOptions { checked: by_us, limit: time_limit(&arguments.patience)?, ..LaunchOptions::default() };
    let ranked = ranked.checking_calls(arguments.check_calls);
    let how = (options, &launch);
    let args = subject.by_name();
    let mut found = None;
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
        Where::Emulated(devices, opened) => {
            let limits = Knobs::from_env().map_err(Failure::environment)?.limits;
            let outcome = ranked.run_on_peers(&args, devices, limits.call, how);
            let launches = opened.launches();
            let data = judged(opened, &launches);
            let ran = outcome.map(|()| Ran::default());
            let ran = match ended(ran, (opened, &launches), (&data, arguments.json)) {
                Ok(ran) => ran,
                Err(end) => return end,
            };
            repeat(&ran, arguments.json);
            refuse_idle_trace(&arguments.emulation, &launches)?;
            found = Some((opened, launches));
            ("emu".to_string(), format!("{ranks} emulated devices"))
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
    let seconds = start.elapsed().as_secs_f64();
    let found = found.as_ref().map(|(opened, launches)| (&***opened, launches.as_slice()));
    tell(&ranked, arguments, subject, saves, (&device, &told, checked, seconds), found)
}

fn tell(
    ranked: &RankedKernel,
    arguments: &Run,
    subject: &Subject,
    saves: &Saves,
    (device, told, checked, seconds): (&str, &str, bool, f64),
    found: Option<(&Opened, &[Launched])>,
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
        let mut object = found.map_or_else(Map::new, |(opened, launches)| judged(opened, launches));
        let own = [
            ("kernel", json!(subject.kernel.name())),
            ("device", json!(device)),
            ("ranks", json!(ranked.mesh().ranks())),
            ("mesh", json!(ranked.mesh().to_string())),
            ("kernels", json!(kernels)),
            ("exchanges", json!(exchanges)),
            ("checked", json!(checked)),
            ("run_s", json!(seconds)),
            ("saved", saves.json()),
        ];
        object.extend(own.map(|(name, value)| (name.to_string(), value)));
        if let Some((opened, launches)) = found.filter(|(opened, launches)| !opened.judge.passed(launches)) {
            return opened.judge.verdict(launches).map_err(|failure| failure.with(&json!(object)));
        }
        let findings = found.map_or_else(Vec::new, |(_, launches)| findings(launches));
        println!("{}", report(0, &findings, &json!(object)));
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
    found.map_or(Ok(()), |(opened, launches)| opened.judge.tell(launches))
}

/// Refuses options that mean something for one kernel on one device alone, or for emulated ones where there are none.
fn refuse_without_effect(arguments: &Run) -> Outcome {
    let is_emulated = is_emulator(arguments.device.as_deref())?;
    let given = [
        ("--grid", arguments.launch.grid.as_deref().is_some_and(|grid| grid != "auto")),
        ("--block", arguments.block.is_some()),
        ("--timeline", arguments.timeline.is_some()),
        ("--seed", arguments.seed.is_some() && !is_emulated),
        ("--lock", arguments.optimise.locking.lock.is_some()),
        ("--frozen", arguments.optimise.locking.frozen),
    ];
    let emulation = arguments.emulation.given().map(|(option, given)| (option, given && !is_emulated));
    if let Some((option, _)) = given.into_iter().chain(emulation).find(|(_, given)| *given) {
        return Err(Failure::usage(format!(
            "`{option}` is for a kernel of one device\nhelp: leave it out: the function runs on several ranks"
        )));
    }
    Ok(())
}
