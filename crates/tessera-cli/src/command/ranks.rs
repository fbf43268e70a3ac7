//! `tessera run` of a function with a mesh: all its ranks on this machine, or this process as one of them.

use std::cell::Cell;
use std::time::Instant;

use serde_json::{Map, json};
use tessera::compile::{CompileOptions, RankStep};
use tessera::emu::Launched;
use tessera::ir::Severity;
use tessera::runtime::ranks::{Limits, Placement, RankedKernel, World};
use tessera::runtime::{Device, DeviceName, DriverDevice, KernelError, Knobs, LaunchGrid, LaunchOptions, Ran};

use crate::arguments::Run;
use crate::command::emulation::{Opened, is_emulator, open_emulators, refuse_idle_trace, refuse_unused_seed};
use crate::command::findings::findings;
use crate::command::launch::{Made, Subject, kernel_failure, sanitize, time_limit};
use crate::command::results::{Saves, ended, judged, looked_at, repeat, show};
use crate::command::unwritten;
use crate::failure::{Failure, Outcome};

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
    let place = place(arguments, placement, ranked.mesh().ranks())?;
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
    let limits = Knobs::from_env().map_err(Failure::environment)?.limits;
    let world = match &place {
        Where::Process(placement, _) => Some(World::join(placement, limits).map_err(Failure::environment)?),
        Where::Simulated | Where::Devices(_) | Where::Emulated(..) => None,
    };
    let ranked = &ranked.checking_calls(arguments.check_calls);
    let all = Ranks { ranked, place: &place, world: world.as_ref(), limits, options, launch: &launch };
    let empty: Vec<String> = subject.empty().into_iter().map(|(name, _)| name).collect();
    let outcome = all.run(&subject.arguments)?;
    let seconds = start.elapsed().as_secs_f64();
    let mut found = None;
    if let Where::Emulated(_, opened) = &place {
        let launches = opened.launches();
        let data = judged(opened, &launches);
        let ran = match ended(outcome.map(|()| Ran::default()), (opened, &launches), (&data, arguments.json)) {
            Ok(ran) => ran,
            Err(end) => return end,
        };
        repeat(&ran, arguments.json);
        refuse_idle_trace(&arguments.emulation, &launches)?;
        found = Some((&**opened, launches));
    } else {
        outcome.map_err(kernel_failure)?;
    }
    let again = |otherwise: bool| {
        let other = Subject::read(&arguments.launch.subject, &arguments.launch.arguments)?.arguments;
        if otherwise {
            other.poison_again()?;
        }
        // The emulator has checked the first run, and the CPU need not do so twice.
        let launch = LaunchOptions { checked: false, ..launch };
        Ranks { launch: &launch, ..all }.run(&other)?.map_err(kernel_failure)?;
        if let Where::Emulated(_, opened) = &place {
            opened.launches();
        }
        Ok(other)
    };
    if let Some(world) = world.as_ref().filter(|world| world.rank() != 0) {
        return follow(world, limits, again);
    }
    let asked = Cell::new(0);
    let again = |otherwise: bool| {
        tell_others(world.as_ref(), &asked, if otherwise { OTHERWISE } else { ALIKE })?;
        again(otherwise)
    };
    let written: Vec<String> = ranked.written().flat_map(|name| subject.arrays(name)).map(|(name, _)| name).collect();
    let left = unwritten::left((None, checked), (&empty, &written), &subject.arguments, again)?;
    tell_others(world.as_ref(), &asked, END)?;
    let about = unwritten::Launch {
        parameters: subject.kernel.parameters(),
        written: ranked.written().collect(),
        read: ranked.read().into_iter().collect(),
        grid: None,
        asked: LaunchGrid::Auto,
    };
    let severity = if checked { Severity::Error } else { Severity::Warning };
    let diagnostics = unwritten::diagnostics(&left, severity, &about);
    let text = Failure::fault(&diagnostics, subject.kernel.sources());
    saves.write(|name| subject.tensor(name))?;
    let told = Told { ranked, device: all.device(), place: all.told()?, checked, seconds, found: &found };
    told.conclude(arguments, (subject, saves), text)
}

/// What rank 0, which has the results, says to other processes of how it goes on: once more with another poison, or the same, or no more.
const OTHERWISE: &[u8] = b"otherwise";
const ALIKE: &[u8] = b"alike";
const END: &[u8] = b"end";

/// Tells the other processes, if there are any, what comes next.
fn tell_others(world: Option<&World>, asked: &Cell<usize>, what: &[u8]) -> Outcome {
    let Some(world) = world else { return Ok(()) };
    let number = asked.replace(asked.get() + 1);
    world.set(&format!("again/{number}"), what).map_err(Failure::environment)
}

/// Does what rank 0 says until it says that nothing comes any more.
fn follow(world: &World, limits: Limits, again: impl Fn(bool) -> Result<Made, Failure>) -> Outcome {
    for number in 0.. {
        match world.get(&format!("again/{number}"), limits.call).map_err(Failure::environment)?.as_deref() {
            Some(END) => break,
            Some(what) => again(what == OTHERWISE).map(drop)?,
            None => return Err(Failure::environment("rank 0 did not say in time how it goes on")),
        }
    }
    Ok(())
}

/// All ranks, or this process as one of them, with how they run.
#[derive(Clone, Copy)]
struct Ranks<'a> {
    ranked: &'a RankedKernel,
    place: &'a Where,
    /// Of processes.
    world: Option<&'a World>,
    limits: Limits,
    options: &'a CompileOptions,
    launch: &'a LaunchOptions,
}

impl Ranks<'_> {
    /// Runs the program once; an emulator's launches are its caller's to look at.
    fn run(&self, arguments: &Made) -> Result<Result<(), KernelError>, Failure> {
        let (args, how) = (arguments.by_name(), (self.options, self.launch));
        Ok(match (self.place, self.world) {
            (Where::Devices(devices), _) => {
                let nccl = Knobs::nccl().map_err(Failure::environment)?;
                self.ranked.run_on(&args, devices, &nccl, how)
            }
            (Where::Emulated(devices, _), _) => self.ranked.run_on_peers(&args, devices, self.limits.call, how),
            (Where::Process(_, device), Some(world)) => {
                let nccl = (!device.is_cpu()).then(Knobs::nccl).transpose().map_err(Failure::environment)?;
                let outcome = self.ranked.run_as_rank(world, &args, device, nccl.as_ref(), how);
                outcome.inspect_err(|error| world.fail(&error.to_string()))
            }
            (Where::Simulated | Where::Process(..), _) => self.ranked.run(&args, &Device::Cpu, how),
        })
    }

    /// What the ranks run on.
    fn device(&self) -> String {
        match self.place {
            Where::Simulated => "cpu".to_string(),
            Where::Devices(_) => "cuda".to_string(),
            Where::Emulated(..) => "emu".to_string(),
            Where::Process(_, device) => device.to_string(),
        }
    }

    /// The same with how many there are and how they exchange.
    fn told(&self) -> Result<String, Failure> {
        let ranks = self.ranked.mesh().ranks();
        let nccl = || Knobs::nccl().map(|nccl| nccl.to_string()).map_err(Failure::environment);
        Ok(match self.place {
            Where::Simulated => format!("{ranks} simulated ranks"),
            Where::Devices(devices) => format!("{ranks} ranks on {} each, by {}", devices[0], nccl()?),
            Where::Emulated(..) => format!("{ranks} emulated devices"),
            Where::Process(_, device) => {
                let by = if device.is_cpu() { "TCP".to_string() } else { nccl()? };
                format!("{ranks} processes on {device}, by {by}")
            }
        })
    }
}

/// What is told of a run.
struct Told<'a> {
    ranked: &'a RankedKernel,
    device: String,
    place: String,
    checked: bool,
    seconds: f64,
    /// What an emulator saw.
    found: &'a Option<(&'a Opened, Vec<Launched>)>,
}

impl Told<'_> {
    /// Ends the command; `text` is what is said of memory that held nothing.
    fn conclude(self, arguments: &Run, (subject, saves): (&Subject, &Saves), text: Failure) -> Outcome {
        let Told { ranked, device, place, checked, seconds, found } = self;
        let steps = &ranked.program().steps;
        let kernels = steps.iter().filter(|step| matches!(step, RankStep::Kernel(_))).count();
        let exchanges = steps.iter().filter_map(|step| match step {
            RankStep::Exchange { kind, .. } => Some(kind.row().mnemonic),
            RankStep::Kernel(_) => None,
        });
        let exchanges: Vec<&str> = exchanges.collect();
        let by_emulator = found.as_ref().map_or_else(Vec::new, |(_, launches)| findings(launches));
        let passed = found.as_ref().is_none_or(|(opened, launches)| opened.judge.passed(launches));
        let failed = checked && !text.findings.is_empty() || !passed;
        if arguments.json {
            let mut object = found.as_ref().map_or_else(Map::new, |(opened, launches)| judged(opened, launches));
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
            return text.and(by_emulator).conclude(failed, Some(&json!(object)));
        }
        println!(
            "{} on {place}, {}: {kernels} kernels a rank, exchanges: {}; compiled and ran in {:.3} ms{}",
            subject.kernel.name(),
            ranked.mesh(),
            if exchanges.is_empty() { "none".to_string() } else { exchanges.join(", ") },
            seconds * 1e3,
            looked_at(checked, text.findings.len() + by_emulator.len(), "")
        );
        for (name, tensor) in ranked.written().flat_map(|name| subject.arrays(name)) {
            show(&name, tensor)?;
        }
        saves.tell();
        found.iter().try_for_each(|(opened, launches)| opened.judge.tell(launches))?;
        text.conclude(failed, None)
    }
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
