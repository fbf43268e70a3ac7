//! A launch: checks, then clusters over host threads.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use crate::advice::{Count, Counts};
use crate::exec::{Cluster, Launch, Progress, Stopped};
use crate::report::{Advice, EmuError, Finding, Place, Report};

/// Operations after which a cluster lets the next one run.
const BUDGET: u64 = 1 << 20;

struct Outcome {
    instructions: u64,
    findings: Vec<Finding>,
    advice: Counts,
    stopped: Option<(u64, Finding)>,
}

impl Outcome {
    /// Takes over what a cluster did that runs no more.
    fn add(&mut self, mut cluster: Cluster<'_>) {
        self.instructions += cluster.executed;
        self.findings.append(&mut cluster.findings);
        if let Some(counts) = cluster.advice.take() {
            self.advice.add(counts);
        }
    }
}

/// Runs all clusters. `resident` clusters may be live at once.
pub(crate) fn run(launch: &Launch<'_>, resident: u64) -> Result<Report, EmuError> {
    let clusters = launch.grid.count() / launch.cluster.count();
    let serial = launch.options.sanitize.any() || launch.options.schedule == crate::options::Schedule::Random;
    let available = std::thread::available_parallelism().map_or(1, usize::from);
    let wanted = if serial { 1 } else { launch.options.threads.unwrap_or(available) };
    let threads = wanted.max(1).min(clusters.min(1 << 16) as usize);
    let share = (resident / threads as u64).max(1);
    let next = AtomicU64::new(0);
    let stop = AtomicBool::new(false);
    let moves = AtomicU64::new(0);
    let results = Mutex::new(Vec::new());
    let work = || {
        let outcome = worker(launch, clusters, share, &next, &stop, &moves);
        if let Ok(mut results) = results.lock() {
            results.push(outcome);
        }
    };
    if threads == 1 {
        work();
    } else {
        std::thread::scope(|scope| {
            for _ in 0..threads {
                scope.spawn(work);
            }
        });
    }
    let mut report = Report::default();
    let mut advice = Counts::default();
    let mut stopped: Option<(u64, Finding)> = None;
    for outcome in results.into_inner().unwrap_or_default() {
        report.instructions += outcome.instructions;
        report.findings.extend(outcome.findings);
        advice.add(outcome.advice);
        if let Some(found) = outcome.stopped
            && stopped.as_ref().is_none_or(|first| found.0 < first.0)
        {
            stopped = Some(found);
        }
    }
    report.findings.truncate(launch.options.most_findings);
    report.advice = launch.advice(&advice);
    let output: BTreeMap<u64, String> = launch.output.lock().map(|output| output.clone()).unwrap_or_default();
    report.output = output.into_values().collect();
    report.trace = launch.trace.lock().map(|mut lines| std::mem::take(&mut *lines)).unwrap_or_default();
    match stopped {
        None => Ok(report),
        Some((_, finding)) => {
            report.findings.push(finding.clone());
            Err(EmuError::Fault { finding: Box::new(finding), report: Box::new(report) })
        }
    }
}

fn worker(launch: &Launch<'_>, clusters: u64, share: u64, next: &AtomicU64, stop: &AtomicBool, moves: &AtomicU64) -> Outcome {
    let mut outcome = Outcome { instructions: 0, findings: Vec::new(), advice: Counts::default(), stopped: None };
    let mut live: VecDeque<(Cluster<'_>, u64, u64)> = VecDeque::new();
    // A cluster that ran long goes to the back; a new one starts as long as there is room.
    loop {
        if stop.load(Ordering::Relaxed) || outcome.findings.len() >= launch.options.most_findings {
            return outcome;
        }
        let started = if (live.len() as u64) < share {
            Some(next.fetch_add(1, Ordering::Relaxed)).filter(|&number| number < clusters)
        } else {
            None
        };
        let (mut cluster, mut seen, mut idle) = match started {
            Some(number) => (Cluster::new(launch, number), 0, 0),
            None => match live.pop_front() {
                Some(entry) => entry,
                None => return outcome,
            },
        };
        let result = cluster.run(BUDGET);
        match result {
            Ok(Progress::Done) => {
                moves.fetch_add(1, Ordering::Relaxed);
                outcome.add(cluster);
            }
            Ok(Progress::Paused) => {
                // Others' progress counts too: a block may wait for one that computes long.
                let all = moves.load(Ordering::Relaxed);
                if cluster.progress != seen {
                    moves.fetch_add(1, Ordering::Relaxed);
                    idle = 0;
                    seen = cluster.progress;
                } else {
                    idle += BUDGET;
                }
                if idle > launch.options.patience && stuck(&live, launch.options.patience, moves, all) {
                    stop.store(true, Ordering::Relaxed);
                    let stopped = cluster.livelock();
                    outcome.stopped = Some((cluster.number, finding(&cluster, &stopped)));
                    outcome.add(cluster);
                    return outcome;
                }
                live.push_back((cluster, seen, idle));
            }
            Err(stopped) => {
                stop.store(true, Ordering::Relaxed);
                outcome.stopped = Some((cluster.number, finding(&cluster, &stopped)));
                outcome.add(cluster);
                return outcome;
            }
        }
    }
}

fn stuck(live: &VecDeque<(Cluster<'_>, u64, u64)>, patience: u64, moves: &AtomicU64, before: u64) -> bool {
    live.iter().all(|(_, _, idle)| *idle + BUDGET > patience) && moves.load(Ordering::Relaxed) == before
}

/// What stopped a cluster, with its place.
pub(crate) fn finding(cluster: &Cluster<'_>, stopped: &Stopped) -> Finding {
    Finding {
        kind: stopped.fault.kind,
        message: stopped.fault.message.clone(),
        place: cluster.place(stopped.rank, Some(stopped.warp as usize * 32 + stopped.fault.lane), stopped.pc),
        earlier: stopped.fault.earlier.map(|pc| cluster.place(stopped.rank, Some(stopped.warp as usize * 32), pc)),
    }
}

impl Launch<'_> {
    /// An operation's place, with the block and the thread that executed it.
    pub(crate) fn place(&self, block: [u32; 3], thread: Option<usize>, pc: u32) -> Place {
        let meta = self.program.meta.get(pc as usize);
        let shape = self.block;
        Place {
            kernel: self.program.name.clone(),
            line: meta.map_or(0, |meta| meta.line),
            instruction: meta.map_or(String::new(), |meta| meta.mnemonic.clone()),
            source: meta.and_then(|meta| meta.loc).map(|loc| {
                (self.files.get(&loc.file).cloned().unwrap_or_else(|| format!("file {}", loc.file)), loc.line, loc.column)
            }),
            block,
            thread: thread.map(|thread| {
                let thread = thread as u32;
                [thread % shape.x, thread / shape.x % shape.y, thread / shape.x / shape.y]
            }),
        }
    }

    /// What the counts of all clusters come to.
    pub(crate) fn advice(&self, counts: &Counts) -> Vec<Advice> {
        let rows = counts.wasteful().into_iter().take(self.options.most_findings);
        rows.map(|(pc, kind, Count { accesses, transactions, needed, block, thread })| {
            let place = self.place(block, Some(thread as usize), pc);
            Advice { kind, place, accesses, transactions, needed }
        })
        .collect()
    }
}

impl Cluster<'_> {
    /// An operation's place, with the thread of a block of the cluster.
    pub(crate) fn place(&self, rank: usize, thread: Option<usize>, pc: u32) -> Place {
        self.launch.place(self.blocks[rank].index, thread, pc)
    }
}
