//! The emulator as a device of the command line: its options, and what its launches found.

use std::sync::Arc;

use tessera::emu::{Class, Console, EmuOptions, LaunchOptions, Launched, Schedule, Suppressions};
use tessera::runtime::{Device, DeviceName, DriverDevice, Knobs};
use tessera::types::{Device as Product, TimeLimit};

use crate::arguments::{Emulation, FailOn};
use crate::command::findings::Judge;
use crate::command::launch::{device, sanitize};
use crate::failure::{Failure, read_text};

/// A device, and the emulator's console where it is the emulator.
pub(crate) struct Opened {
    pub(crate) device: Device,
    /// A clause that says why this one.
    pub(crate) reason: String,
    /// Whether the CPU executor checks its run.
    pub(crate) checked: bool,
    /// What becomes of findings.
    pub(crate) judge: Judge,
    console: Option<Arc<Console>>,
}

/// Opens the device asked for; options of the emulator need the emulator.
pub(crate) fn open(
    asked: Option<&str>,
    (emulation, limit): (&Emulation, TimeLimit),
    seed: Option<u64>,
) -> Result<Opened, Failure> {
    if is_emulator(asked)? {
        return open_emulators(1, asked, (emulation, limit), seed).map(|(_, opened)| opened);
    }
    if let Some((name, _)) = emulation.given().find(|(_, given)| *given) {
        return Err(Failure::usage(format!("`{name}` is for the emulator\nhelp: add `--device emu`")));
    }
    let checked = sanitize(emulation.sanitize.as_deref())?;
    let (device, reason) = device(asked)?;
    if checked && !device.is_cpu() {
        let help = "help: `--device cpu` and `--device emu` look for mistakes";
        return Err(Failure::usage(format!("{device} cannot run checked\n{help}")));
    }
    Ok(Opened { device, reason, checked, judge: Judge::default(), console: None })
}

/// Opens so many emulated devices, which reach each other's memory; the first is the one that is opened, and one console keeps what is found on all.
pub(crate) fn open_emulators(
    count: usize,
    asked: Option<&str>,
    (emulation, limit): (&Emulation, TimeLimit),
    seed: Option<u64>,
) -> Result<(Vec<DriverDevice>, Opened), Failure> {
    let options = EmuOptions { devices: count as u32, ..options(emulation, limit, seed.unwrap_or_default())? };
    let judge = Judge::new(&options.launch, emulation);
    let (devices, console) = Device::watched_emulators(&options).map_err(Failure::environment)?;
    let reason = if asked.is_some() { "asked for" } else { "`TESSERA_DEVICE` asks for it" }.to_string();
    let opened = Opened { device: Device::Driver(devices[0].clone()), reason, checked: false, judge, console: Some(console) };
    Ok((devices, opened))
}

/// Whether the emulator is the device that the command line, or without it the environment, asks for.
pub(crate) fn is_emulator(asked: Option<&str>) -> Result<bool, Failure> {
    match asked {
        Some(name) => Ok(name == "emu"),
        None => Ok(Knobs::from_env().map_err(Failure::environment)?.device == Some(DeviceName::Emu)),
    }
}

impl Emulation {
    /// Options that mean something on the emulator alone, and whether each is given.
    pub(crate) fn given(&self) -> impl Iterator<Item = (&'static str, bool)> {
        let given = [
            ("--schedule", self.schedule.is_some()),
            ("--sms", self.sms.is_some()),
            ("--target", self.target.is_some()),
            ("--trace", self.trace.is_some()),
            ("--fail-on", self.fail_on.is_some()),
            ("--keep-going", self.keep_going),
            ("--suppress", self.suppress.is_some()),
        ];
        given.into_iter()
    }
}

/// The emulated machine and how its launches run.
pub(crate) fn options(emulation: &Emulation, limit: TimeLimit, seed: u64) -> Result<EmuOptions, Failure> {
    let mut launch = LaunchOptions { seed, limit, keep_going: emulation.keep_going, ..LaunchOptions::default() };
    launch.fail_on = match emulation.fail_on {
        None | Some(FailOn::Wrong) => Some(Class::Wrong),
        Some(FailOn::Formal) => Some(Class::Formal),
        Some(FailOn::Advice) => Some(Class::Advice),
        Some(FailOn::None) => None,
    };
    if let Some(path) = &emulation.suppress {
        let rules = Suppressions::parse(&read_text(path)?).map_err(|error| Failure::usage(format!("{path}:{error}")))?;
        launch.suppress = Arc::new(rules);
    }
    if let Some(checks) = &emulation.sanitize {
        launch.sanitize = checks.parse().map_err(Failure::usage)?;
    }
    if let Some(schedule) = &emulation.schedule {
        launch.schedule = schedule.parse().map_err(Failure::usage)?;
    }
    if let Some(trace) = &emulation.trace {
        let numbers = trace.split_once(',').and_then(|(block, warp)| Some((block.parse().ok()?, warp.parse().ok()?)));
        launch.trace = Some(numbers.ok_or_else(|| {
            Failure::usage(format!(
                "`--trace {trace}`\nhelp: write `BLOCK,WARP`: the block's number in the grid, the warp's in it"
            ))
        })?);
    }
    let mut options = EmuOptions { multiprocessors: emulation.sms, launch, ..EmuOptions::default() };
    if let Some(name) = &emulation.target {
        options.device = product(name)?.name.to_string();
    }
    Ok(options)
}

/// The product that a name means, or a target: `sm_90` and `sm_90a` are one chip, which runs what was made for it or for earlier ones.
fn product(name: &str) -> Result<&'static Product, Failure> {
    let chip = |product: &&Product| {
        let (major, minor) = product.arch.compute_capability();
        let digits = format!("{major}{minor}");
        name.strip_prefix("sm_").or_else(|| name.strip_prefix("compute_")).is_some_and(|asked| {
            asked == digits
                || asked.strip_suffix(['a', 'f']).is_some_and(|asked| asked == digits && product.arch.name().ends_with('a'))
        })
    };
    // Of several products of a chip the last is taken, as by default.
    Product::by_name(name).or_else(|| Product::ALL.iter().rfind(chip)).ok_or_else(|| {
        let mut targets: Vec<&str> = Product::ALL.iter().map(|product| product.arch.name()).collect();
        targets.dedup();
        Failure::usage(format!(
            "no chip `{name}` is emulated\nhelp: one of {}, or a product: `tessera list targets` lists them",
            targets.join(", ")
        ))
    })
}

impl Opened {
    /// What launches did since this was last asked.
    pub(crate) fn launches(&self) -> Vec<Launched> {
        self.console.as_ref().map_or_else(Vec::new, |console| console.take())
    }

    /// Makes an emulated device usable again that a fault has taken; false of other devices.
    pub(crate) fn recover(&self) -> bool {
        self.console.as_ref().is_some_and(|console| {
            console.recover();
            true
        })
    }

    /// Whether the emulator was asked to look for mistakes.
    pub(crate) fn sanitizes(&self) -> bool {
        self.console.as_ref().is_some_and(|console| console.options().sanitize != tessera::emu::Sanitize::NONE)
    }
}

/// Refuses a trace of a warp that launches do not have.
pub(crate) fn refuse_idle_trace(emulation: &Emulation, launches: &[Launched]) -> Result<(), Failure> {
    let Some(trace) = emulation.trace.as_ref().filter(|_| !launches.is_empty()) else { return Ok(()) };
    match launches.iter().all(|launched| launched.report.trace.is_empty()) {
        true => Err(Failure::usage(format!(
            "`--trace {trace}`: there is no such warp\nhelp: blocks of the grid and warps of a block count from 0"
        ))),
        false => Ok(()),
    }
}

/// Refuses a seed of the random schedule where that is not what is executed.
pub(crate) fn refuse_unused_seed(emulation: &Emulation, seed: Option<u64>) -> Result<(), Failure> {
    if seed.is_none() || emulation.schedule.as_deref() == Some("random") {
        return Ok(());
    }
    let help = "help: add `--device emu --schedule random`; an array's own seed is part of it: `x=randn:f32[64];seed=3`";
    Err(Failure::usage(format!("`--seed` fixes the emulator's random schedule, and another one is executed\n{help}")))
}

/// The schedule's name and seed, for a line that says how something was run.
pub(crate) fn how(options: &LaunchOptions) -> String {
    match options.schedule {
        Schedule::Random => format!("random schedule, seed {}", options.seed),
        other => format!("{} schedule", other.name()),
    }
}
