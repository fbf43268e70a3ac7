//! `tessera bench all_reduce` and the other collectives: which cases, and whose ranks do them.

use std::io::{self, BufWriter};
use std::path::Path;
use std::process::Command;
use std::sync::Arc;
use std::time::Duration;

use tessera::bench::collectives::{
    Collective, CollectiveError, CollectiveSelection, CollectiveSuite, Member, Team, Way, Wired, serve_member, serve_wired,
};
use tessera::bench::device::{DeviceTimer, Supervisor, Timing};
use tessera::bench::{EndRecord, Mode, Results, Sizes};
use tessera::runtime::ranks::nvlink::NvlinkCommunicator;
use tessera::runtime::ranks::{Communicator, ExchangeError, Meeting, Nccl, NcclRank, Placement, World};
use tessera::runtime::{Device, DeviceName, Knobs};
use tessera::types::{DType, Policy};

use crate::arguments::Bench;
use crate::command::bench::{ELSEWHERE, further_processes, measure, watched};
use crate::command::ranks::placement;
use crate::command::sizes::{given as sizes_given, sizes_named};
use crate::failure::{Failure, Outcome};
use crate::invocation::given;

/// The name of all of them.
const SUITE: &str = "collectives";
/// Messages when no sizes are named.
const QUICK: [u64; 4] = [4 << 10, 64 << 10, 1 << 20, 16 << 20];
/// Ranks on the CPU when none are named.
const RANKS: usize = 2;
/// The way that has kernels of its own, and how long one of them waits for another rank.
const NVLINK: &str = "nvlink";
const NVLINK_LIMIT: Duration = Duration::from_secs(20);

/// Whether the subjects are collectives.
///
/// # Errors
/// Where some are and some are not.
pub(crate) fn are_meant(subjects: &[String]) -> Result<bool, Failure> {
    let is_one = |subject: &&String| *subject == SUITE || Collective::parse(subject).is_some();
    match (subjects.iter().find(is_one), subjects.iter().find(|subject| !is_one(subject))) {
        (Some(one), Some(other)) => Err(Failure::usage(format!(
            "`{one}` is done by several ranks, `{other}` by one device\nhelp: measure them in two runs"
        ))),
        (one, _) => Ok(one.is_some()),
    }
}

/// Options that say nothing to ranks.
fn refuse_without_effect(arguments: &Bench) -> Outcome {
    let given = [
        ("--grid", arguments.grid.is_some()),
        ("--block", arguments.block.is_some()),
        ("--against", !arguments.reference.against.is_empty()),
        ("--against-grid", arguments.reference.against_grid.is_some()),
        ("--rtol", arguments.reference.rtol.is_some()),
        ("--atol", arguments.reference.atol.is_some()),
        ("--baseline-grid", arguments.baseline_grid.is_some()),
        ("--cublaslt", arguments.cublaslt.is_some()),
        ("--ways", arguments.ways > 0),
        ("--rungs", arguments.rungs),
        ("--serve", arguments.serve),
        ("--lock", arguments.optimise.locking.lock.is_some()),
    ];
    match given.into_iter().chain(arguments.emulation.given()).find(|(_, given)| *given) {
        Some((option, _)) => Err(Failure::usage(format!("`{option}` has no meaning for collectives\nhelp: leave it out"))),
        None => Ok(()),
    }
}

/// One rank that is asked over its standard input.
pub(crate) fn be_member() -> Outcome {
    let placement = Knobs::placement().map_err(Failure::environment)?;
    let placement = placement.ok_or_else(|| Failure::usage("`--member` is for ranks that `tessera bench` starts"))?;
    let limits = Knobs::from_env().map_err(Failure::environment)?.limits;
    let world = World::join(&placement, limits).map_err(Failure::environment)?;
    let communicator = world.tcp().map_err(Failure::environment)?;
    let mut member = Member::new(Box::new(communicator), "tcp");
    serve_member(&mut member, io::stdin().lock(), BufWriter::new(io::stdout().lock())).map_err(Failure::environment)
}

/// Where ranks are.
#[derive(Clone, Debug)]
enum Place {
    /// On the CPU of this host.
    Cpu,
    /// On the GPUs of this host, from number 0 on.
    Devices,
    /// Where a launcher started them; this process is one.
    Launched(Placement, Device),
}

fn place(arguments: &Bench) -> Result<Place, Failure> {
    let name = match arguments.device.as_deref() {
        Some(name) => Some(DeviceName::parse(name).ok_or_else(|| Failure::usage(format!("there is no device `{name}`")))?),
        None => Knobs::from_env().map_err(Failure::environment)?.device,
    };
    let launched = placement(arguments.ranks)?;
    match (name, launched) {
        (Some(DeviceName::Emu), _) => Err(Failure::usage(
            "the emulator's times say nothing of a GPU's, and collectives are there to be timed\nhelp: write `--device cpu` or `--device cuda`",
        )),
        (Some(DeviceName::Cuda(_)), Some(placement)) => {
            let device = placement.device().map_err(Failure::environment)?;
            Ok(Place::Launched(placement, device))
        }
        (_, Some(placement)) => Ok(Place::Launched(placement, Device::Cpu)),
        (Some(DeviceName::Cuda(0)), None) => Ok(Place::Devices),
        (Some(DeviceName::Cuda(_)), None) => Err(Failure::usage(
            "ranks are on the GPUs of this host from number 0 on\nhelp: write `--device cuda`, and `--ranks N` for as many as are wanted",
        )),
        (None | Some(DeviceName::Cpu), None) => Ok(Place::Cpu),
    }
}

impl Place {
    /// How many ranks there are when nobody says it.
    fn ranks(&self) -> Result<usize, Failure> {
        match self {
            Place::Cpu => Ok(RANKS),
            Place::Devices => Ok(Device::all_cuda().map_err(Failure::environment)?.len()),
            Place::Launched(placement, _) => Ok(placement.ranks),
        }
    }

    /// The names of the ways between ranks there.
    fn ways(&self) -> &'static [&'static str] {
        match self {
            Place::Cpu => &["threads", "tcp"],
            Place::Devices => &[NVLINK, "nccl"],
            Place::Launched(_, device) if device.is_cpu() => &["tcp"],
            Place::Launched(..) => &["nccl", NVLINK],
        }
    }
}

fn selection(arguments: &Bench, place: &Place) -> Result<CollectiveSelection, Failure> {
    let all = arguments.subjects.iter().any(|subject| subject == SUITE);
    let named = arguments.subjects.iter().filter_map(|subject| Collective::parse(subject));
    let collectives = if all { Collective::ALL.to_vec() } else { named.collect() };
    let dtypes = match arguments.precision.is_empty() {
        true => vec![DType::F32, DType::F16, DType::BF16],
        false => arguments.precision.iter().map(|name| precision(name)).collect::<Result<_, _>>()?,
    };
    let bytes = messages(arguments.sizes.as_deref())?;
    let ranks = arguments.ranks.map_or_else(|| place.ranks(), Ok)?;
    Ok(CollectiveSelection { collectives, dtypes, bytes, ranks })
}

fn precision(name: &str) -> Result<DType, Failure> {
    let known = [DType::F32, DType::F16, DType::BF16];
    let plain = |dtype: &DType| name.parse::<Policy>() == Ok(Policy::of(*dtype));
    known.into_iter().find(plain).ok_or_else(|| Failure::usage(CollectiveError::Precision(name.to_string())))
}

/// The messages that `--sizes` names.
fn messages(sizes: Option<&str>) -> Result<Vec<u64>, Failure> {
    let Some(text) = sizes else { return Ok(QUICK.to_vec()) };
    match sizes_named(text) {
        Some(Sizes::Quick) => return Ok(QUICK.to_vec()),
        // 4 KiB to 1 GiB.
        Some(Sizes::Seed | Sizes::All) => return Ok((12..=30).step_by(2).map(|power| 1u64 << power).collect()),
        Some(_) => {
            return Err(Failure::usage(format!(
                "collectives have no sizes `{text}`\nhelp: write quick, all or bytes=4096..1073741824*4"
            )));
        }
        None => {}
    }
    let mut bytes = Vec::new();
    for shapes in sizes_given(text, &[])? {
        if let Some(variant) = shapes.variant {
            let message = format!("`variant={variant}`: collectives have no variants");
            return Err(Failure::usage(format!("{message}\nhelp: write bytes=4096..1073741824*4")));
        }
        for (name, values) in shapes.extents {
            if name != "bytes" {
                let help = if name == "ranks" { "`--ranks N` says how many there are" } else { "write bytes=4096..1073741824*4" };
                return Err(Failure::usage(format!("`{name}` is no size of a collective\nhelp: {help}")));
            }
            bytes.extend(values);
        }
    }
    Ok(bytes)
}

/// The teams on the CPU: threads of this process, and processes that exchange over TCP.
fn ways_on_cpu(arguments: &Bench, ranks: usize) -> Result<Vec<Way>, Failure> {
    let (program, before) = given().program().map_err(Failure::environment)?;
    let member = move || {
        let mut command = Command::new(&program);
        command.args(&before).args(["bench", "--member"]);
        command
    };
    chosen(arguments, &Place::Cpu)?
        .into_iter()
        .map(|name| match name {
            "threads" => Ok(Way::threads(ranks)),
            _ => Ok(Way::processes("tcp", ranks, member.clone())),
        })
        .collect()
}

/// Those of the ways that `--over` names, all when it names none.
fn chosen(arguments: &Bench, place: &Place) -> Result<Vec<&'static str>, Failure> {
    let known = place.ways();
    if arguments.over.is_empty() {
        return Ok(known.to_vec());
    }
    CollectiveError::refuse_twice(arguments.over.iter().map(String::as_str)).map_err(Failure::usage)?;
    let find = |name: &String| {
        known.iter().copied().find(|known| known == name).ok_or_else(|| {
            Failure::usage(format!("`--over {name}`: there is no such way between ranks here\nhelp: write {}", known.join(", ")))
        })
    };
    arguments.over.iter().map(find).collect()
}

/// Baseline processes, a way each.
fn baselines(arguments: &Bench, ranks: usize, device: &'static str) -> Result<Vec<Way>, Failure> {
    let way = |text: &String| {
        let (name, command) =
            text.split_once('=').ok_or_else(|| Failure::usage(format!("`{text}` is no baseline\nhelp: write NAME=COMMAND")))?;
        let words: Vec<String> = command.split_whitespace().map(str::to_string).collect();
        let [program, rest @ ..] = words.as_slice() else {
            return Err(Failure::usage(format!("`{text}` names no command\nhelp: write NAME=COMMAND")));
        };
        let (program, rest) = (program.clone(), rest.to_vec());
        Ok(Way::processes(name, ranks, move || {
            let mut command = Command::new(&program);
            command.args(&rest).arg(device);
            command
        }))
    };
    arguments.baseline.iter().map(way).collect()
}

/// How launches on devices are timed.
fn timing(arguments: &Bench, place: &Place) -> Result<Timing, Failure> {
    let on_devices = !matches!(place, Place::Cpu) && !matches!(place, Place::Launched(_, Device::Cpu));
    match arguments.timing.as_deref() {
        Some(_) if !on_devices => {
            Err(Failure::usage("launches are timed in several ways on CUDA devices alone\nhelp: leave out `--timing`"))
        }
        None | Some("graph") => Ok(Timing::GRAPH),
        Some("warm") => Ok(Timing::WARM),
        Some(other) => Err(Failure::usage(format!("collectives are not timed `{other}`\nhelp: write graph or warm"))),
    }
}

/// Measures collectives; nothing comes of ranks other than 0 of a launcher. On one host a child does it, which a rank that hangs may end.
pub(crate) fn bench(
    arguments: &Bench,
    mode: Mode,
    path: &Path,
    previous: Option<&Results>,
) -> Result<Option<EndRecord>, Failure> {
    // What is wrong is told before ranks are started.
    refuse_without_effect(arguments)?;
    let place = place(arguments)?;
    timing(arguments, &place)?;
    let selection = selection(arguments, &place)?;
    selection.check().map_err(Failure::usage)?;
    chosen(arguments, &place)?;
    if let Place::Launched(own, device) = &place {
        return launched(arguments, &selection, (own, device), (mode, path, previous));
    }
    if !arguments.unwatched {
        if !arguments.json {
            let on = if matches!(place, Place::Cpu) { "the CPU" } else { "the GPUs" };
            println!("{} ranks on {on} of this host", selection.ranks);
        }
        let supervisor = Supervisor { silence: ELSEWHERE, ..Supervisor::default() };
        let end = watched((path, supervisor), previous.is_some(), None)?;
        return further_processes(arguments, mode, (path, supervisor), end).map(Some);
    }
    let end = match place {
        Place::Devices => on_devices(arguments, &selection, mode, path, previous),
        Place::Cpu | Place::Launched(..) => on_cpu(arguments, &selection, mode, path, previous),
    };
    end.map(Some)
}

/// Ranks that do not start are the machine's matter, all else the command line's.
fn not_selected(error: CollectiveError) -> Failure {
    match error {
        CollectiveError::Team { .. } => Failure::environment(error),
        other => Failure::usage(other),
    }
}

/// Measures on the CPU in this process.
fn on_cpu(
    arguments: &Bench,
    selection: &CollectiveSelection,
    mode: Mode,
    path: &Path,
    previous: Option<&Results>,
) -> Result<EndRecord, Failure> {
    let mut ways = ways_on_cpu(arguments, selection.ranks)?;
    ways.extend(baselines(arguments, selection.ranks, "cpu")?);
    let suite = CollectiveSuite::select(selection, ways).map_err(not_selected)?;
    measure(&suite, arguments, "cpu", mode, path, previous)
}

/// Measures on the GPUs of this host, a thread each.
fn on_devices(
    arguments: &Bench,
    selection: &CollectiveSelection,
    mode: Mode,
    path: &Path,
    previous: Option<&Results>,
) -> Result<EndRecord, Failure> {
    let ranks = selection.ranks;
    let found = Device::all_cuda().map_err(Failure::environment)?;
    if found.len() < ranks {
        return Err(Failure::environment(format!(
            "{ranks} ranks need {ranks} GPUs, and this host has {}\nhelp: ask for fewer with `--ranks`, or write `--device cpu`",
            found.len()
        )));
    }
    let devices: Vec<Device> = found.into_iter().take(ranks).collect::<Result<_, _>>().map_err(Failure::environment)?;
    let timing = timing(arguments, &Place::Devices)?;
    let (mut accelerator, mut available) = (None, u64::MAX);
    for driver in devices.iter().filter_map(Device::driver) {
        let (free, _) = driver.context().memory().map_err(Failure::environment)?;
        available = available.min(free);
        if accelerator.is_none() {
            accelerator = Some(DeviceTimer::new(driver).map_err(Failure::environment)?.accelerator(timing));
        }
    }
    let Some(accelerator) = accelerator else { return Err(Failure::environment("there is no CUDA device")) };
    let nccl = Knobs::nccl().map_err(Failure::environment)?;
    let mut ways = Vec::new();
    for name in chosen(arguments, &Place::Devices)? {
        let (meeting, nccl, devices) = (Meeting::new(ranks), nccl.clone(), devices.clone());
        ways.push(Way::devices(name, ranks, move |rank| {
            let own = by_nccl(&nccl, &meeting, &devices[rank], rank)?;
            if name == NVLINK {
                by_nvlink(own).map_err(|error| error.to_string())
            } else {
                Ok(Box::new(own) as Box<dyn Communicator>)
            }
        }));
    }
    ways.extend(baselines(arguments, ranks, "cuda")?);
    let name = format!("{ranks} x {}", accelerator.name);
    let suite = CollectiveSuite::select(selection, ways).map_err(not_selected)?;
    let suite = suite.on_devices(accelerator, available, timing == Timing::GRAPH);
    measure(&suite, arguments, &name, mode, path, previous)
}

/// Own kernels where they are the faster, and NCCL for the rest.
fn by_nvlink(own: NcclRank) -> Result<Box<dyn Communicator>, ExchangeError> {
    Ok(Box::new(NvlinkCommunicator::over(Box::new(own), NVLINK_LIMIT)?))
}

fn by_nccl(nccl: &Nccl, meeting: &Meeting, device: &Device, rank: usize) -> Result<NcclRank, String> {
    NcclRank::join(nccl, Arc::new(meeting.seat(rank)), device).map_err(|error| error.to_string())
}

/// One of the processes that a launcher started: rank 0 measures, the others do what it asks.
fn launched(
    arguments: &Bench,
    selection: &CollectiveSelection,
    (own, device): (&Placement, &Device),
    (mode, path, previous): (Mode, &Path, Option<&Results>),
) -> Result<Option<EndRecord>, Failure> {
    if !arguments.baseline.is_empty() {
        return Err(Failure::usage("baselines start ranks of their own\nhelp: leave out `--baseline` under a launcher"));
    }
    if arguments.over.len() > 1 {
        return Err(Failure::usage("ranks that a launcher started exchange in one way\nhelp: write `--over` once"));
    }
    if arguments.processes.is_some_and(|count| count.get() > 1) {
        let message = "processes of a launcher are measured once\nhelp: leave out `--processes`, or start the launcher again";
        return Err(Failure::usage(message));
    }
    let limits = Knobs::from_env().map_err(Failure::environment)?.limits;
    let world = World::join(own, limits).map_err(Failure::environment)?;
    let mut words = world.tcp().map_err(Failure::environment)?;
    let (name, exchanges): (&str, Box<dyn Communicator>) = match device {
        Device::Cpu => ("tcp", Box::new(world.tcp().map_err(Failure::environment)?)),
        Device::Driver(_) => {
            let nccl = Knobs::nccl().map_err(Failure::environment)?;
            let own = NcclRank::join(&nccl, Arc::new(world.clone()), device).map_err(Failure::environment)?;
            match arguments.over.as_slice() {
                [name] if name == NVLINK => (NVLINK, by_nvlink(own).map_err(Failure::environment)?),
                _ => ("nccl", Box::new(own)),
            }
        }
    };
    let mut member = Member::new(exchanges, name);
    if own.rank != 0 {
        return serve_wired(&mut words, &mut member).map(|()| None).map_err(Failure::environment);
    }
    let way = Way::new(name, move || Ok(Box::new(Wired::new(Box::new(words), member)) as Box<dyn Team>));
    let mut suite = CollectiveSuite::select(selection, vec![way]).map_err(not_selected)?;
    if let Some(driver) = device.driver() {
        let timing = timing(arguments, &Place::Launched(own.clone(), device.clone()))?;
        let (free, _) = driver.context().memory().map_err(Failure::environment)?;
        let accelerator = DeviceTimer::new(driver).map_err(Failure::environment)?.accelerator(timing);
        suite = suite.on_devices(accelerator, free, timing == Timing::GRAPH);
    }
    if !arguments.json {
        println!("{} ranks, started by {}", own.ranks, own.launcher);
    }
    measure(&suite, arguments, &device.to_string(), mode, path, previous).map(Some)
}
