//! Launches of several devices at the same time, in one order that a schedule and a seed fix.
//!
//! Each device has a list of launches and makes them one behind the other, as a stream does. One host thread goes from device to
//! device and lets one of its clusters run for a while, so kernels that wait for each other's flags get on, and a run can be
//! repeated. Under [`Schedule::Random`] the seed says how long a turn lasts, whose it is, and how much slower than the others each
//! device is; under [`Schedule::Lazy`] a device goes on until nothing moves there; else they take turns.

use std::collections::VecDeque;
use std::time::Instant;

use tessera_driver::{Dim3, Params};
use tessera_types::Watch;

use crate::emulator::Emulator;
use crate::exec::{Cluster, Launch, Progress, Random};
use crate::findings::Findings;
use crate::memory::Heap;
use crate::module::Module;
use crate::options::{LaunchOptions, Schedule};
use crate::report::{EmuError, Report};

/// A launch that waits for its turn.
pub struct Queued<'a> {
    /// The kernel's module, loaded on the device.
    pub module: &'a Module,
    /// Its name.
    pub kernel: &'a str,
    /// Blocks.
    pub grid: Dim3,
    /// Threads of a block.
    pub block: Dim3,
    /// What it is given.
    pub args: &'a Params,
}

/// Operations of a turn where the order does not matter.
const TURN: u64 = 1 << 12;

/// A cluster between its turns.
struct Aside<'a> {
    cluster: Cluster<'a>,
    /// How often anything had moved anywhere when its loops were last looked at.
    moves: u64,
    /// Whether it only went round in loops in which nothing changed.
    spun: bool,
}

/// A device with what it still has to do.
struct Lane<'a, 'e> {
    emulator: &'e Emulator,
    launches: &'a [Launch<'a>],
    /// The launch that runs.
    at: usize,
    resident: u64,
    next: u64,
    live: VecDeque<Aside<'a>>,
    /// Chances of a turn.
    weight: usize,
    /// The device's last cluster moved nothing in its turn.
    still: bool,
}

impl Lane<'_, '_> {
    fn is_over(&self) -> bool {
        self.at >= self.launches.len()
    }

    /// Begins the launch that is next.
    fn begin(&mut self) {
        let launch = &self.launches[self.at];
        launch.begin();
        (self.resident, self.next) = (self.emulator.resident(launch), 0);
    }
}

/// Runs the launches of several devices of one [`Emulator::group`]; `options` say how. One report comes back for all of them, without advice.
///
/// # Errors
/// A launch that cannot be, a fault, or that no device can go on. [`Schedule::Systematic`] is refused: it is for one launch.
pub fn run_together(streams: &[(&Emulator, Vec<Queued<'_>>)], options: &LaunchOptions) -> Result<Report, EmuError> {
    let Some((first, _)) = streams.first() else { return Ok(Report::default()) };
    if options.schedule == Schedule::Systematic {
        return Err(EmuError::Launch("launches of several devices run in `eager`, `lazy` or `random` order".to_owned()));
    }
    let heap: Heap = first.node().heap().clone();
    let mut launches = Vec::new();
    for (emulator, queue) in streams {
        let mut own = Vec::new();
        for queued in queue {
            let shape = (queued.grid, queued.block);
            own.push(emulator.prepare(&heap, queued.module, queued.kernel, shape, queued.args, options)?);
        }
        launches.push(own);
    }
    let result = execute(streams, &launches, options);
    if !options.sanitize.uninitialized {
        heap.assume_written();
    }
    result
}

fn execute(
    streams: &[(&Emulator, Vec<Queued<'_>>)],
    launches: &[Vec<Launch<'_>>],
    options: &LaunchOptions,
) -> Result<Report, EmuError> {
    let mut random = Random::new(options.seed);
    let mut lanes: Vec<Lane<'_, '_>> = Vec::new();
    for ((emulator, _), own) in streams.iter().zip(launches.iter()) {
        let weight = 1 << random.below(5);
        let (resident, live) = (0, VecDeque::new());
        lanes.push(Lane { emulator, launches: own, at: 0, resident, next: 0, live, weight, still: false });
    }
    let (mut report, mut findings) = (Report::default(), Findings::default());
    let (mut moves, mut idle, mut turn, mut watch) = (0u64, 0u64, 0, Watch::start(options.limit));
    // Every device's first launch begins before any moves: none of them comes after another.
    for lane in lanes.iter_mut().filter(|lane| !lane.is_over()) {
        lane.begin();
    }
    while lanes.iter().any(|lane| !lane.is_over()) && !findings.is_full(options) {
        let at = pick(&lanes, &mut random, options.schedule, &mut turn);
        let lane = &mut lanes[at];
        let launch = &lane.launches[lane.at];
        let clusters = launch.grid.count() / launch.cluster.count();
        while lane.next < clusters && (lane.live.len() as u64) < lane.resident {
            lane.live.push_back(Aside { cluster: Cluster::new(launch, lane.next), moves, spun: false });
            lane.next += 1;
        }
        if options.schedule == Schedule::Random {
            let by = random.below(lane.live.len());
            lane.live.rotate_left(by);
        }
        let Some(mut own) = lane.live.pop_front() else {
            lane.emulator.node().end(launch.run());
            lane.at += 1;
            moves += 1;
            if !lane.is_over() {
                lane.begin();
            }
            continue;
        };
        let budget = if options.schedule == Schedule::Random { 1 + random.below(TURN as usize) as u64 } else { TURN };
        // What others wrote may end its loops: they are looked at anew.
        if own.moves != moves {
            own.cluster.moved(own.cluster.progress);
            (own.moves, own.spun) = (moves, false);
        }
        let before = own.cluster.progress;
        // Many blocks that are each short take long, too: none begins behind the end.
        let late = watch.as_ref().filter(|_| own.cluster.executed == 0).and_then(|watch| watch.is_up(Instant::now()));
        let result = match late {
            Some(given) => Err(own.cluster.endless(given)),
            None => own.cluster.run(budget),
        };
        lane.still = own.cluster.progress == before;
        (moves, idle) = if lane.still { (moves, idle + budget) } else { (moves + 1, 0) };
        let mut stopped = None;
        match result {
            Ok(Progress::Done) => {
                (moves, idle, lane.still) = (moves + 1, 0, false);
                if let Some(watch) = &mut watch {
                    watch.block(Instant::now());
                }
                finish(own.cluster, &mut report, &mut findings);
                continue;
            }
            Ok(Progress::Paused) => {}
            Ok(Progress::Spinning) => own.spun = own.moves == moves,
            Err(found) => stopped = Some(found),
        }
        let given = watch.as_ref().and_then(|watch| watch.is_up(Instant::now()));
        let stopped = stopped.or_else(|| given.map(|given| own.cluster.endless(given)));
        let stuck = own.spun && all_spin(&lanes, at, moves)
            || idle > options.patience
            || own.cluster.executed > options.most_instructions;
        let Some(stopped) = stopped.or_else(|| stuck.then(|| own.cluster.livelock())) else {
            lanes[at].live.push_back(own);
            continue;
        };
        let finding = own.cluster.note_stop(&stopped);
        finish(own.cluster, &mut report, &mut findings);
        close(lanes, &mut report, &mut findings);
        return Err(EmuError::Fault { finding: Box::new(finding), report: Box::new(report) });
    }
    close(lanes, &mut report, &mut findings);
    Ok(report)
}

/// Whether every cluster beside the one whose turn it was only goes round in loops, and no device has others to start.
fn all_spin(lanes: &[Lane<'_, '_>], turn: usize, moves: u64) -> bool {
    lanes.iter().enumerate().filter(|(_, lane)| !lane.is_over()).all(|(at, lane)| {
        let spins = lane.live.iter().all(|aside| aside.spun && aside.moves == moves);
        spins && (at == turn || !lane.live.is_empty())
    })
}

/// Ends what still runs.
fn close(lanes: Vec<Lane<'_, '_>>, report: &mut Report, findings: &mut Findings) {
    for lane in lanes {
        lane.launches.iter().for_each(|launch| report.take_lines(launch));
        if let Some(launch) = lane.launches.get(lane.at) {
            lane.emulator.node().end(launch.run());
        }
        lane.live.into_iter().for_each(|aside| finish(aside.cluster, report, findings));
    }
    let findings = std::mem::take(findings);
    (report.findings, report.suppressed) = findings.told();
}

fn finish(mut cluster: Cluster<'_>, report: &mut Report, findings: &mut Findings) {
    report.instructions += cluster.executed;
    findings.merge(std::mem::take(&mut cluster.findings));
}

/// Whose turn it is.
fn pick(lanes: &[Lane<'_, '_>], random: &mut Random, schedule: Schedule, turn: &mut usize) -> usize {
    let open: Vec<usize> = (0..lanes.len()).filter(|&at| !lanes[at].is_over()).collect();
    match schedule {
        Schedule::Random => {
            let all: usize = open.iter().map(|&at| lanes[at].weight).sum();
            let mut chance = random.below(all);
            for &at in &open {
                match chance.checked_sub(lanes[at].weight) {
                    Some(rest) => chance = rest,
                    None => return at,
                }
            }
            open[0]
        }
        Schedule::Lazy => {
            // The same device again while it moves.
            if !open.contains(turn) || lanes[*turn].still {
                *turn = open.iter().copied().find(|at| at > turn).unwrap_or(open[0]);
            }
            *turn
        }
        Schedule::Eager | Schedule::Systematic => {
            *turn = open.iter().copied().find(|at| at > turn).unwrap_or(open[0]);
            *turn
        }
    }
}
