//! `tessera bench all_reduce` and the other collectives: which cases, and whose ranks do them.

use std::io::{self, BufWriter};
use std::path::Path;
use std::process::Command;

use tessera::bench::collectives::{Collective, CollectiveSelection, CollectiveSuite, Member, Way, serve_member};
use tessera::bench::device::Supervisor;
use tessera::bench::{EndRecord, Exit, Mode, Results, Sizes};
use tessera::runtime::Knobs;
use tessera::runtime::ranks::{Limits, World};
use tessera::types::{DType, Policy};

use crate::arguments::Bench;
use crate::command::bench::{ELSEWHERE, further_processes, measure, watched};
use crate::command::sizes::{given as sizes_given, sizes_named};
use crate::failure::{Failure, Outcome};
use crate::invocation::given;

/// The name of all of them.
const SUITE: &str = "collectives";
/// Messages when no sizes are named.
const QUICK: [u64; 4] = [4 << 10, 64 << 10, 1 << 20, 16 << 20];
/// Ranks on the CPU when none are named.
const RANKS: usize = 2;

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
    let world = World::join(&placement, Limits::default()).map_err(Failure::environment)?;
    let communicator = world.tcp().map_err(Failure::environment)?;
    let mut member = Member::new(Box::new(communicator), "tcp");
    serve_member(&mut member, io::stdin().lock(), BufWriter::new(io::stdout().lock())).map_err(Failure::environment)
}

fn selection(arguments: &Bench) -> Result<CollectiveSelection, Failure> {
    let all = arguments.subjects.iter().any(|subject| subject == SUITE);
    let named = arguments.subjects.iter().filter_map(|subject| Collective::parse(subject));
    let collectives = if all { Collective::ALL.to_vec() } else { named.collect() };
    let dtypes = match arguments.precision.is_empty() {
        true => vec![DType::F32, DType::F16, DType::BF16],
        false => arguments.precision.iter().map(|name| precision(name)).collect::<Result<_, _>>()?,
    };
    Ok(CollectiveSelection {
        collectives,
        dtypes,
        bytes: messages(arguments.sizes.as_deref())?,
        ranks: arguments.ranks.unwrap_or(RANKS),
    })
}

fn precision(name: &str) -> Result<DType, Failure> {
    let plain = name.parse::<Policy>().ok().map(Policy::element);
    plain.filter(|dtype| matches!(dtype, DType::F32 | DType::F16 | DType::BF16)).ok_or_else(|| {
        Failure::usage(format!("`{name}` is no precision of the collectives\nhelp: they have fp32, fp16 and bf16"))
    })
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

/// What names the ways on the CPU.
const ON_CPU: [&str; 2] = ["threads", "tcp"];

/// The teams on the CPU: threads of this process, and processes that exchange over TCP.
fn ways_on_cpu(arguments: &Bench, ranks: usize) -> Result<Vec<Way>, Failure> {
    let (program, before) = given().program().map_err(Failure::environment)?;
    let member = move || {
        let mut command = Command::new(&program);
        command.args(&before).args(["bench", "--member"]);
        command
    };
    chosen(arguments, &ON_CPU)?
        .into_iter()
        .map(|name| match name {
            "threads" => Ok(Way::threads(ranks)),
            _ => Ok(Way::processes("tcp", ranks, member.clone())),
        })
        .collect()
}

/// Those of the ways that `--over` names, all when it names none.
fn chosen<'n>(arguments: &Bench, known: &[&'n str]) -> Result<Vec<&'n str>, Failure> {
    if arguments.over.is_empty() {
        return Ok(known.to_vec());
    }
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

/// Measures collectives, in a child that a rank which hangs may end.
pub(crate) fn bench(arguments: &Bench, mode: Mode, path: &Path, previous: Option<&Results>) -> Result<EndRecord, Failure> {
    // What is wrong is told before ranks are started.
    refuse_without_effect(arguments)?;
    let selection = selection(arguments)?;
    selection.check().map_err(Failure::usage)?;
    chosen(arguments, &ON_CPU)?;
    if !arguments.unwatched {
        if !arguments.json {
            println!("{} ranks on the CPU of this host", selection.ranks);
        }
        let supervisor = Supervisor { silence: ELSEWHERE, ..Supervisor::default() };
        let ended = watched((path, supervisor), previous.is_some(), None);
        // A child that could not begin has said why.
        let end = ended.map_err(|failure| if path.exists() { failure } else { Failure::silent(Exit::Environment) })?;
        return further_processes(arguments, mode, (path, supervisor), end);
    }
    on_cpu(arguments, &selection, mode, path, previous)
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
    let suite = CollectiveSuite::select(selection, ways).map_err(Failure::usage)?;
    measure(&suite, arguments, "cpu", mode, path, previous)
}
