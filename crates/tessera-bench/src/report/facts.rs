//! What a reader needs who has to trust the numbers: machine, build, sessions, ceilings, and how it was measured.

use serde::Serialize;

use super::lines::File;
use crate::ceiling::Rate;
use crate::record::SessionRecord;
use crate::sample::Mode;
use crate::stats::median;
use crate::units;

/// A name and a value.
pub(super) type Fact = (&'static str, String);

/// A session that wrote a part of a file.
#[derive(Serialize)]
pub(super) struct SessionFacts {
    start: String,
    tool: String,
    chip: String,
    floor: String,
    planned: usize,
    command: String,
}

/// A measured ceiling.
#[derive(Serialize)]
pub(super) struct CeilingFacts {
    what: String,
    footprint: String,
    best: String,
    median: String,
    interval: String,
    trials: usize,
    how: String,
}

/// Facts about machine and build, by the file's first session; empty for an empty file.
pub(super) fn facts(file: &File<'_>) -> Vec<Fact> {
    let Some(session) = file.session() else { return Vec::new() };
    let mut facts = device(file, session);
    let e = &session.environment;
    let known = |value: &Option<String>| value.clone().unwrap_or_else(|| "unknown".into());
    facts.extend([
        ("processor", format!("{}, {} of {} processors used", e.cpu, e.threads, e.processors)),
        ("caches", e.caches.join(", ")),
        ("vector extensions", e.features.join(", ")),
        ("memory of the host", units::bytes(e.memory_bytes as f64)),
        ("system", format!("{} {}", e.os, e.kernel.clone().unwrap_or_default())),
        ("virtual machine", if e.virtual_machine { "yes" } else { "no" }.into()),
        ("governor", known(&e.governor)),
        ("load at the start", e.load.map_or("unknown".into(), |load| load.to_string())),
        ("fingerprint of the machine", session.fingerprint.clone()),
        ("suite", format!("{}, case list {}", session.suite, session.suite_hash)),
        ("effort", mode(session.mode)),
        ("seed", session.seed.to_string()),
        ("program", tool(session)),
        ("compiler", known(&session.tool.rustc)),
        ("settings", settings(session)),
        ("clock", format!("step {}, empty launch {}", units::time(session.tick_ns), units::time(session.floor_ns))),
        ("format of the file", session.schema.clone()),
    ]);
    facts
}

fn device(file: &File<'_>, session: &SessionRecord) -> Vec<Fact> {
    let mut facts = vec![("device", session.device.clone())];
    let Some(a) = &session.accelerator else { return facts };
    facts.extend([
        ("chip", format!("{}, compute capability {}, {} multiprocessors", a.name, a.capability, a.multiprocessors)),
        ("number of the chip", a.uuid.clone().unwrap_or_else(|| "unknown".into())),
        (
            "memory of the device",
            format!("{}, {} of cache", units::bytes(a.memory_bytes as f64), units::bytes(a.l2_bytes as f64)),
        ),
        ("driver", a.driver.clone()),
        ("clock limit", a.max_mhz.map_or("unknown".into(), |mhz| format!("{mhz} MHz"))),
        ("power limit", a.power_limit_w.map_or("unknown".into(), |watts| format!("{watts} W"))),
        ("how launches are timed", a.timing.clone()),
    ]);
    let states = || file.lines.iter().flat_map(|line| &line.row.blocks).filter_map(|block| block.device);
    let range = |values: Vec<f64>, unit: &str| {
        let (low, high) = values.iter().fold((f64::INFINITY, 0f64), |(low, high), v| (low.min(*v), high.max(*v)));
        (!values.is_empty()).then(|| format!("{:.0} {unit} in the middle, {low:.0} to {high:.0}", median(&values)))
    };
    let clock = range(states().filter_map(|s| s.mhz.or(s.stated_mhz.map(f64::from))).collect(), "MHz");
    facts.push(("clock while timing", clock.unwrap_or_else(|| "not in the file (it has no blocks of samples)".into())));
    facts.extend(range(states().filter_map(|s| s.power_w).collect(), "W").map(|text| ("power while timing", text)));
    facts
}

fn tool(session: &SessionRecord) -> String {
    let commit = session.tool.git.as_ref().map_or(String::new(), |git| format!(", commit {git}"));
    format!("tessera {}{commit}", session.tool.version)
}

fn settings(session: &SessionRecord) -> String {
    let settings: Vec<String> = session.knobs.iter().map(|(name, value)| format!("{name}={value}")).collect();
    if settings.is_empty() { "none".into() } else { settings.join(", ") }
}

/// The sessions that wrote a file, in order.
pub(super) fn sessions(file: &File<'_>) -> Vec<SessionFacts> {
    let of = |session: &SessionRecord| SessionFacts {
        start: session.start.clone(),
        tool: tool(session),
        chip: session.accelerator.as_ref().and_then(|a| a.uuid.clone()).unwrap_or_default(),
        floor: units::time(session.floor_ns),
        planned: session.planned,
        command: session.argv.join(" "),
    };
    file.results.sessions.iter().map(of).collect()
}

/// Ceilings in the order in which they were measured.
pub(super) fn ceilings(file: &File<'_>) -> Vec<CeilingFacts> {
    let ceilings = &file.results.ceilings;
    let memory = |what: &'static str| move |rate: &Rate| ceiling(what.to_string(), rate, "B/s");
    let copy = ceilings.copy.iter().map(memory("copy"));
    let read = ceilings.read.iter().map(memory("read"));
    let compute =
        ceilings.compute.iter().map(|(class, rate)| ceiling(format!("multiply-adds in {}", class.name()), rate, "FLOP/s"));
    copy.chain(read).chain(compute).collect()
}

fn ceiling(what: String, rate: &Rate, unit: &str) -> CeilingFacts {
    CeilingFacts {
        what,
        footprint: if rate.footprint_bytes > 0 { units::bytes(rate.footprint_bytes as f64) } else { String::new() },
        best: units::rate(rate.best, unit),
        median: units::rate(rate.median, unit),
        interval: rate.ci95.map_or(String::new(), |ci| format!("{} – {}", units::rate(ci.lo, unit), units::rate(ci.hi, unit))),
        trials: rate.n,
        how: rate.how.clone(),
    }
}

fn mode(mode: Mode) -> String {
    let plan = mode.plan();
    format!(
        "{}: blocks of up to {} samples, looked at after {} blocks, half-width of the 99 % interval at most {} %, {} s a row, {} seeds in the check",
        mode.name(),
        plan.samples,
        plan.checkpoints.iter().map(|c| c.to_string()).collect::<Vec<_>>().join(", "),
        plan.precision * 100.0,
        plan.max_time.as_secs(),
        plan.seeds
    )
}

/// How it was measured.
pub(super) const METHOD: [&str; 7] = [
    "No row is timed before its result was checked: outputs are poisoned with two patterns, every element is compared with a reference \
     in f64 under a bound scaled by the data, inputs and guard zones must be intact.",
    "A row's time is the median of the medians of its blocks; its interval are order statistics of them, at 95 %.",
    "Blocks of all rows of a group are visited in random order, round after round. Speed against a baseline is the ratio of blocks of \
     the same rounds, so that what moves both sides cancels.",
    "Around one random block of each stage, outputs are poisoned before and compared after.",
    "The ceiling of a row is the least time that the measured rates of copying, reading and multiplying allow at its own footprint, \
     and no less than an empty launch; its share is that time over the row's.",
    "A time below the ceiling's is refused.",
    "Bytes are those that must be moved: each input and each output once.",
];
