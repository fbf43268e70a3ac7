//! Checks and measures the anchor kernels on an H200.
//!
//! ```text
//! time_anchors --kernels FOLDER [--peer "python3 peer.py"] [--out results.json] [--only launch,softmax,gemm,attention]
//!         [--quick | --check]
//! ```
//! `--quick` takes fewer rounds; `--check` runs the smallest case of each kernel and times nothing. `FOLDER` holds `<kernel>.ptx` or `<kernel>.cubin`; the cubin is taken where both exist. Every kernel is checked before it
//! is timed. Candidate and baseline take turns in rounds, in alternating order; a number is the median of all repetitions.

mod attention;
mod data;
mod gemm;
mod launch;
mod measure;
mod peer;
mod report;
mod softmax;

use std::path::PathBuf;
use std::sync::Arc;

use tessera_driver::{Context, DeviceAttribute, DeviceOrdinal, DriverError, Kernel, Stream};

use crate::measure::Timer;
use crate::peer::Peer;
use crate::report::Report;

pub(crate) type Outcome<T> = Result<T, Box<dyn std::error::Error>>;

/// How much is run.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Effort {
    Full,
    Quick,
    Check,
}

impl Effort {
    /// The first case is the check; the others are timed.
    pub(crate) fn cases<T>(self, all: &[T]) -> &[T] {
        if self == Effort::Check { &all[..1] } else { all }
    }

    /// Rounds in which candidate and baseline take turns.
    pub(crate) const fn rounds(self) -> u32 {
        match self {
            Effort::Full => 10,
            Effort::Quick => 3,
            Effort::Check => 0,
        }
    }
}

/// What every section needs.
pub(crate) struct Bench {
    pub(crate) context: Context,
    pub(crate) stream: Arc<Stream>,
    pub(crate) timer: Timer,
    pub(crate) peer: Option<Peer>,
    pub(crate) report: Report,
    pub(crate) multiprocessors: u32,
    pub(crate) effort: Effort,
    kernels: PathBuf,
}

impl Bench {
    /// Loads a kernel whose file and entry have the same name; `None` where there is no such file.
    pub(crate) fn kernel(&self, name: &str) -> Outcome<Option<Kernel>> {
        let image = ["cubin", "ptx"].iter().find_map(|kind| std::fs::read(self.kernels.join(format!("{name}.{kind}"))).ok());
        let Some(image) = image else { return Ok(None) };
        Ok(Some(self.context.module(&image)?.kernel(name)?))
    }
}

struct Arguments {
    kernels: PathBuf,
    peer: Option<String>,
    out: Option<PathBuf>,
    only: Vec<String>,
    effort: Effort,
}

fn arguments() -> Outcome<Arguments> {
    let mut found =
        Arguments { kernels: "kernels/anchors".into(), peer: None, out: None, only: Vec::new(), effort: Effort::Full };
    let mut list = std::env::args().skip(1);
    while let Some(flag) = list.next() {
        let mut value = || list.next().ok_or(format!("`{flag}` needs a value"));
        match flag.as_str() {
            "--kernels" => found.kernels = value()?.into(),
            "--peer" => found.peer = Some(value()?),
            "--out" => found.out = Some(value()?.into()),
            "--only" => found.only = value()?.split(',').map(str::to_owned).collect(),
            "--quick" => found.effort = Effort::Quick,
            "--check" => found.effort = Effort::Check,
            _ => return Err(format!("unknown argument `{flag}`").into()),
        }
    }
    Ok(found)
}

fn main() -> Outcome<()> {
    let arguments = arguments()?;
    let table = match tessera_cuda::driver() {
        Ok(table) => Arc::new(table),
        Err(error @ DriverError::NoDriver { .. }) => {
            println!("{error}");
            return Ok(());
        }
        Err(error) => return Err(error.into()),
    };
    let context = Context::open(table, DeviceOrdinal(0))?;
    let stream = Arc::new(context.stream()?);
    let multiprocessors = context.attribute(DeviceAttribute::Multiprocessors)?.unsigned_abs();
    let peer = arguments.peer.as_deref().map(Peer::start).transpose()?;
    let mut report = Report::default();
    report.fact("device", &context.device_name()?);
    report.fact("multiprocessors", &multiprocessors.to_string());
    for (name, attribute) in [
        ("clock_khz", DeviceAttribute::ClockKhz),
        ("memory_clock_khz", DeviceAttribute::MemoryClockKhz),
        ("l2_bytes", DeviceAttribute::L2Bytes),
    ] {
        report.fact(name, &context.attribute(attribute)?.to_string());
    }
    report.fact("memory_bytes", &context.memory()?.1.to_string());
    report.fact("driver", &context.table()?.driver_version()?.to_string());
    if let Some(peer) = &peer {
        report.fact("peer", &peer.hello);
    }
    let timer = Timer::new(&context, &stream)?;
    let effort = arguments.effort;
    let mut bench = Bench { context, stream, timer, peer, report, multiprocessors, effort, kernels: arguments.kernels };
    let wanted = |name: &str| arguments.only.is_empty() || arguments.only.iter().any(|only| only == name);
    type Section = fn(&mut Bench) -> Outcome<()>;
    let sections: [(&str, Section); 4] =
        [("launch", launch::run), ("softmax", softmax::run), ("gemm", gemm::run), ("attention", attention::run)];
    for (name, section) in sections {
        if wanted(name)
            && let Err(error) = section(&mut bench)
        {
            println!("{name}: {error}");
            bench.report.failure(name, &error.to_string());
        }
    }
    println!("{}", bench.report.table());
    if let Some(path) = arguments.out {
        std::fs::write(path, bench.report.json())?;
    }
    Ok(())
}
