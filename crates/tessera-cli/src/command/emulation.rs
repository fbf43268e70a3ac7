//! The emulator as a device of the command line: its options, and what its launches found.

use std::sync::Arc;

use serde_json::{Value, json};
use tessera::emu::{Console, EmuOptions, Finding, LaunchOptions, Launched, Place, Schedule};
use tessera::runtime::Device;
use tessera::types::Device as Product;

use crate::arguments::Emulation;
use crate::command::launch::{device, sanitize};
use crate::failure::{Failure, Outcome};

/// A device, and the emulator's console where it is the emulator.
pub(crate) struct Opened {
    pub(crate) device: Device,
    /// A clause that says why this one.
    pub(crate) reason: String,
    /// Whether the CPU executor checks its run.
    pub(crate) checked: bool,
    console: Option<Arc<Console>>,
}

/// Opens the device asked for; options of the emulator need the emulator.
pub(crate) fn open(asked: Option<&str>, emulation: &Emulation, seed: u64) -> Result<Opened, Failure> {
    if asked == Some("emu") {
        let (device, console) = Device::watched_emulator(&options(emulation, seed)?).map_err(Failure::environment)?;
        return Ok(Opened { device, reason: "asked for".to_string(), checked: false, console: Some(console) });
    }
    let given = [
        ("--schedule", emulation.schedule.is_some()),
        ("--sms", emulation.sms.is_some()),
        ("--target", emulation.target.is_some()),
        ("--trace", emulation.trace.is_some()),
    ];
    if let Some((name, _)) = given.into_iter().find(|(_, given)| *given) {
        return Err(Failure::usage(format!("`{name}` is for the emulator\nhelp: add `--device emu`")));
    }
    let checked = sanitize(emulation.sanitize.as_deref())?;
    let (device, reason) = device(asked)?;
    Ok(Opened { device, reason, checked, console: None })
}

/// The emulated machine and how its launches run.
pub(crate) fn options(emulation: &Emulation, seed: u64) -> Result<EmuOptions, Failure> {
    let mut launch = LaunchOptions { seed, ..LaunchOptions::default() };
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
        // Of several products of an architecture the last is taken, as by default.
        let product = Product::by_name(name).or_else(|| Product::ALL.iter().rfind(|product| product.arch.name() == name));
        let product = product.ok_or_else(|| {
            Failure::usage(format!("`{name}` is neither a target nor a product\nhelp: `tessera list targets` lists them"))
        })?;
        options.device = product.name.to_string();
    }
    Ok(options)
}

impl Opened {
    /// What launches did since this was last asked.
    pub(crate) fn launches(&self) -> Vec<Launched> {
        self.console.as_ref().map_or_else(Vec::new, |console| console.take())
    }

    /// Whether the emulator was asked to look for mistakes.
    pub(crate) fn sanitizes(&self) -> bool {
        self.console.as_ref().is_some_and(|console| console.options().sanitize != tessera::emu::Sanitize::NONE)
    }
}

/// Prints what launches did: traces, advice, schedules; findings end the command.
pub(crate) fn tell(launches: &[Launched]) -> Outcome {
    for launched in launches {
        launched.report.trace.iter().for_each(|line| println!("{line}"));
        launched.report.advice.iter().for_each(|advice| println!("advice: {advice}"));
        if let Some(explored) = launched.report.explored {
            println!(
                "{}: {} schedules executed, {} given up as seen, {} different results{}",
                launched.kernel,
                explored.executions,
                explored.pruned,
                explored.outcomes,
                if explored.complete { "; there are no others" } else { "; there are more" }
            );
        }
    }
    verdict(launches)
}

/// The findings of launches as the command's end.
pub(crate) fn verdict(launches: &[Launched]) -> Outcome {
    let findings: Vec<String> = launches.iter().flat_map(|launched| &launched.report.findings).map(shown).collect();
    if findings.is_empty() { Ok(()) } else { Err(Failure::incorrect(findings.join("\nerror: "))) }
}

/// Reports as a program reads them.
pub(crate) fn to_json(launches: &[Launched]) -> Value {
    json!(launches)
}

/// A finding with the lines of source that it names.
pub(crate) fn shown(finding: &Finding) -> String {
    let mut text = finding.to_string();
    let mut told = Vec::new();
    for place in std::iter::once(&finding.place).chain(&finding.earlier) {
        if let Some(line) = source_line(place)
            && !told.contains(&line)
        {
            text.push_str(&format!("\n  {line}"));
            told.push(line);
        }
    }
    text
}

fn source_line(place: &Place) -> Option<String> {
    let (file, number, _) = place.source.as_ref()?;
    let text = std::fs::read_to_string(file).ok()?;
    let line = text.lines().nth((*number as usize).checked_sub(1)?)?;
    Some(format!("{number} | {}", line.trim_end()))
}

/// The schedule's name and seed, for a line that says how something was run.
pub(crate) fn how(options: &LaunchOptions) -> String {
    match options.schedule {
        Schedule::Random => format!("random schedule, seed {}", options.seed),
        other => format!("{} schedule", other.name()),
    }
}
