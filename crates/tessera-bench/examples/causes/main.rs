//! Why do processes of one binary differ? Each experiment changes one thing and leaves the rest alone.
//!
//! ```text
//! causes [--device cpu|cuda] [--seconds 200] [--out causes.jsonl]
//! ```
//! | cause | what is changed between figures |
//! |---|---|
//! | again | nothing: blocks of one row in one memory, one after the other |
//! | apart | nothing but time: the same, with all other rows in between |
//! | offset | where in its memory a tensor begins |
//! | memory | the memory: fresh pages, tensors at its beginning |
//! | both | fresh pages and another beginning |
//! | code | a device's modules are loaded again, to another place; fresh pages too |
//! | process | everything: a fresh process, blocks apart as in `apart` |
//! | first touch | the first block in fresh memory, against the blocks after it |
//! | idle | a block after a pause, without launches before it, against blocks in a hot machine |
//! | order | the row that ran before |
//! | clock | the multiprocessors' clock during the block, where a device tells |
//!
//! Of the first seven the table gives the standard deviation of figures (medians of blocks) in per cent, less what the blocks of
//! one figure differ by; of the others the change in per cent.

mod rows;
mod spread;

use std::io::Write;
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::time::Instant;

use serde_json::{Value, json};
use tessera_bench::{Monotonic, Place, Random};
use tessera_runtime::Device;

use rows::{Bench, Block};
use spread::{between, centre, slope};

type Outcome<T> = Result<T, Box<dyn std::error::Error>>;

struct Arguments {
    device: String,
    seconds: f64,
    out: Option<PathBuf>,
    /// Be a child that measures every row a few times and prints one line.
    child: bool,
}

fn arguments() -> Outcome<Arguments> {
    let mut found = Arguments { device: "cpu".into(), seconds: 200.0, out: None, child: false };
    let mut list = std::env::args().skip(1);
    while let Some(flag) = list.next() {
        let mut value = || list.next().ok_or(format!("`{flag}` needs a value"));
        match flag.as_str() {
            "--device" => found.device = value()?,
            "--seconds" => found.seconds = value()?.parse()?,
            "--out" => found.out = Some(value()?.into()),
            "--child" => found.child = true,
            _ => return Err(format!("unknown argument `{flag}`").into()),
        }
    }
    Ok(found)
}

/// What was found of one cause: for every row a number in per cent.
struct Found {
    cause: &'static str,
    percent: Vec<Option<f64>>,
}

struct Laboratory {
    bench: Bench,
    random: Random,
    log: Option<std::fs::File>,
    begin: Instant,
    seconds: f64,
    found: Vec<Found>,
    /// Every block with its clock, for the last experiment.
    clocks: Vec<Vec<(f64, f64)>>,
}

impl Laboratory {
    fn note(&mut self, line: Value) -> Outcome<()> {
        if let Some(log) = &mut self.log {
            writeln!(log, "{line}")?;
        }
        Ok(())
    }

    /// A block of a row, written down.
    fn block(&mut self, cause: &str, group: usize, row: usize) -> Outcome<f64> {
        let block = self.bench.block(row, true)?;
        self.keep(cause, group, row, &block)
    }

    fn keep(&mut self, cause: &str, group: usize, row: usize, block: &Block) -> Outcome<f64> {
        if let Some(mhz) = block.mhz {
            self.clocks[row].push((mhz, block.figure()));
        }
        let rounded: Vec<f64> = block.samples_ns.iter().map(|ns| (ns * 10.0).round() / 10.0).collect();
        self.note(json!({
            "cause": cause, "row": self.bench.names[row], "group": group, "ns": rounded, "mhz": block.mhz,
            "at_s": (self.begin.elapsed().as_secs_f64() * 1e3).round() / 1e3,
        }))?;
        Ok(block.figure())
    }

    /// `groups` figures a row, each of two blocks; `change` is made before each figure.
    fn spread(
        &mut self,
        cause: &'static str,
        groups: usize,
        mut change: impl FnMut(&mut Laboratory) -> Outcome<()>,
    ) -> Outcome<()> {
        let rows = self.bench.names.len();
        let mut figures: Vec<Vec<Vec<f64>>> = vec![Vec::new(); rows];
        for group in 0..groups {
            change(self)?;
            let mut own: Vec<Vec<f64>> = vec![Vec::new(); rows];
            for _ in 0..2 {
                let mut order: Vec<usize> = (0..rows).collect();
                self.random.shuffle(&mut order);
                for row in order {
                    own[row].push(self.block(cause, group, row)?);
                }
            }
            figures.iter_mut().zip(own).for_each(|(groups, own)| groups.push(own));
        }
        self.conclude(cause, &figures);
        Ok(())
    }

    fn conclude(&mut self, cause: &'static str, figures: &[Vec<Vec<f64>>]) {
        self.found.push(Found { cause, percent: figures.iter().map(|groups| between(groups)).collect() });
        println!("{:7.1} s  {cause}", self.begin.elapsed().as_secs_f64());
    }

    fn effect(&mut self, cause: &'static str, percent: Vec<Option<f64>>) {
        self.found.push(Found { cause, percent });
        println!("{:7.1} s  {cause}", self.begin.elapsed().as_secs_f64());
    }
}

fn main() -> Outcome<()> {
    let arguments = arguments()?;
    let clock = Monotonic::default();
    let bench = Bench::build(&arguments.device, clock)?;
    if arguments.child {
        return child(bench);
    }
    let rows = bench.names.len();
    let log = arguments.out.as_ref().map(std::fs::File::create).transpose()?;
    let mut laboratory = Laboratory {
        bench,
        random: Random::new(std::process::id().into()),
        log,
        begin: Instant::now(),
        seconds: arguments.seconds,
        found: Vec::new(),
        clocks: vec![Vec::new(); rows],
    };
    println!("{}; {} rows; load {}", laboratory.bench.machine, rows, load());
    let names = laboratory.bench.names.clone();
    laboratory.note(json!({"machine": laboratory.bench.machine, "rows": names, "load": load()}))?;
    experiments(&mut laboratory, &arguments)?;
    table(&laboratory);
    println!("load {}; {:.0} s", load(), laboratory.begin.elapsed().as_secs_f64());
    Ok(())
}

fn load() -> String {
    std::fs::read_to_string("/proc/loadavg").map_or_else(|_| "?".into(), |text| text.trim().to_string())
}

fn experiments(laboratory: &mut Laboratory, arguments: &Arguments) -> Outcome<()> {
    let rows = laboratory.bench.names.len();
    // Everything is warm before anything counts.
    for _ in 0..3 {
        (0..rows).try_for_each(|row| laboratory.bench.block(row, true).map(drop))?;
    }
    let mut again = vec![Vec::new(); rows];
    for (row, groups) in again.iter_mut().enumerate() {
        for group in 0..10 {
            groups.push(vec![laboratory.block("again", group, row)?, laboratory.block("again", group, row)?]);
        }
    }
    laboratory.conclude("again", &again);
    laboratory.spread("apart", 10, |_| Ok(()))?;
    for (cause, fresh, moves) in [("offset", false, true), ("memory", true, false), ("both", true, true)] {
        laboratory.spread(cause, 10, |laboratory| {
            let key = if moves { laboratory.random.next_u64() | 1 } else { 0 };
            laboratory.bench.relocate(Place { fresh, key })
        })?;
    }
    first_touch(laboratory)?;
    idle(laboratory)?;
    order(laboratory)?;
    clock_effect(laboratory);
    if laboratory.bench.on_device()
        && let Err(error) = laboratory.spread("code", 8, |laboratory| laboratory.bench.rebuild())
    {
        println!("code: {error}");
    }
    processes(laboratory, arguments)
}

/// The first block in fresh memory against three later ones.
fn first_touch(laboratory: &mut Laboratory) -> Outcome<()> {
    let rows = laboratory.bench.names.len();
    let mut percent = vec![Vec::new(); rows];
    for group in 0..6 {
        for (row, own) in percent.iter_mut().enumerate() {
            let key = laboratory.random.next_u64() | 1;
            laboratory.bench.relocate_row(row, Place { fresh: true, key })?;
            let cold = laboratory.bench.block(row, false)?;
            let first = laboratory.keep("first touch", group, row, &cold)?;
            let later: Vec<f64> = (0..3).map(|_| laboratory.block("second touch", group, row)).collect::<Outcome<_>>()?;
            own.push((first / centre(&later)).ln() * 100.0);
        }
    }
    laboratory.effect("first touch", percent.iter().map(|values| Some(centre(values))).collect());
    Ok(())
}

/// The first block after a pause, without launches before it.
fn idle(laboratory: &mut Laboratory) -> Outcome<()> {
    let rows = laboratory.bench.names.len();
    for (cause, pause_ms) in [("idle 10 ms", 10), ("idle 200 ms", 200)] {
        let mut percent = vec![Vec::new(); rows];
        for group in 0..4 {
            for (row, own) in percent.iter_mut().enumerate() {
                let hot = laboratory.block("hot", group, row)?;
                std::thread::sleep(std::time::Duration::from_millis(pause_ms));
                let cold = laboratory.bench.block(row, false)?;
                let cold = laboratory.keep(cause, group, row, &cold)?;
                own.push((cold / hot).ln() * 100.0);
            }
        }
        laboratory.effect(cause, percent.iter().map(|values| Some(centre(values))).collect());
    }
    Ok(())
}

/// Each row after each other one: the largest effect of any predecessor, beyond what chance gives.
fn order(laboratory: &mut Laboratory) -> Outcome<()> {
    let rows = laboratory.bench.names.len();
    let mut after: Vec<Vec<Vec<f64>>> = vec![vec![Vec::new(); rows]; rows];
    for round in 0..4 {
        let mut pairs: Vec<(usize, usize)> = (0..rows).flat_map(|a| (0..rows).map(move |b| (a, b))).collect();
        laboratory.random.shuffle(&mut pairs);
        for (before, row) in pairs {
            laboratory.bench.block(before, true)?;
            let block = laboratory.bench.block(row, false)?;
            after[row][before].push(laboratory.keep("order", before * 10 + round, row, &block)?);
        }
    }
    laboratory.conclude("order", &after);
    Ok(())
}

/// Change of the time with one per cent more clock, where the clock moved.
fn clock_effect(laboratory: &mut Laboratory) {
    let percent: Vec<Option<f64>> = laboratory.clocks.iter().map(|points| slope(points)).collect();
    laboratory.effect("clock", percent);
    let moved = laboratory.clocks.iter().map(|points| {
        let mhz: Vec<f64> = points.iter().map(|(mhz, _)| *mhz).collect();
        (!mhz.is_empty()).then(|| spread::deviation(&mhz.iter().map(|mhz| mhz.ln()).collect::<Vec<_>>()) * 100.0)
    });
    let moved = moved.collect();
    laboratory.effect("clock moves", moved);
}

/// Fresh processes for the rest of the time.
fn processes(laboratory: &mut Laboratory, arguments: &Arguments) -> Outcome<()> {
    let rows = laboratory.bench.names.len();
    let program = std::env::current_exe()?;
    let mut figures: Vec<Vec<Vec<f64>>> = vec![Vec::new(); rows];
    let (mut number, mut longest) = (0, 0.0f64);
    while number < 6 || number < 40 && laboratory.begin.elapsed().as_secs_f64() + longest < laboratory.seconds {
        let begin = Instant::now();
        let output = Command::new(&program)
            .args(["--child", "--device", &arguments.device])
            .stdin(Stdio::null())
            .stderr(Stdio::inherit())
            .output()?;
        let line = String::from_utf8(output.stdout)?;
        let blocks: Vec<Vec<f64>> = serde_json::from_str(line.trim())?;
        laboratory.note(json!({"cause": "process", "group": number, "figures_ns": blocks}))?;
        for (row, blocks) in blocks.into_iter().enumerate() {
            figures[row].push(blocks);
        }
        longest = longest.max(begin.elapsed().as_secs_f64());
        number += 1;
    }
    println!("{number} processes of {longest:.1} s at most");
    laboratory.conclude("process", &figures);
    Ok(())
}

/// Two blocks of every row in each of two places, in random order.
fn child(mut bench: Bench) -> Outcome<()> {
    let rows = bench.names.len();
    let mut random = Random::new(std::process::id().into());
    let mut figures = vec![Vec::new(); rows];
    (0..rows).try_for_each(|row| bench.block(row, true).map(drop))?;
    for _ in 0..4 {
        let mut order: Vec<usize> = (0..rows).collect();
        random.shuffle(&mut order);
        for row in order {
            figures[row].push(bench.block(row, true)?.figure());
        }
    }
    println!("{}", serde_json::to_string(&figures)?);
    Ok(())
}

fn table(laboratory: &Laboratory) {
    let width = laboratory.bench.names.iter().map(String::len).max().unwrap_or(0);
    let heads: Vec<String> = laboratory.found.iter().map(|found| format!("{:>11}", found.cause)).collect();
    println!("\n{:width$} {:>9} {}", "per cent", "time", heads.join(" "));
    for (row, name) in laboratory.bench.names.iter().enumerate() {
        let time = tessera_bench::units::time(laboratory.bench.estimate_ns[row]);
        let cell = |found: &Found| found.percent[row].map_or(format!("{:>11}", "-"), |percent| format!("{percent:>11.2}"));
        let cells: Vec<String> = laboratory.found.iter().map(cell).collect();
        println!("{name:width$} {time:>9} {}", cells.join(" "));
    }
}

/// The device of a name.
fn device(name: &str) -> Outcome<Device> {
    match name {
        "cpu" => Ok(Device::Cpu),
        "cuda" => Ok(Device::cuda(0)?),
        other => Err(format!("`{other}` is neither cpu nor cuda").into()),
    }
}
