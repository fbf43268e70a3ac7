//! A launch: checks, then clusters over host threads.

use std::collections::VecDeque;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use tessera_types::Watch;

use crate::advice::{Count, Counts};
use crate::exec::{Cluster, Fault, Launch, Progress, Stopped, Warp};
use crate::finding::{Class, Finding, FindingKind, Place, Traffic};
use crate::findings::{Findings, Key};
use crate::lanes::LANES;
use crate::report::{EmuError, Report};
use crate::sanitize::Origin;

/// Operations after which a cluster lets the next one run.
const BUDGET: u64 = 1 << 20;
/// How long a launch waits for what another device may still write, and how often it looks.
const OTHERS: Duration = Duration::from_secs(20);
const LOOK_AGAIN: Duration = Duration::from_micros(200);

struct Outcome {
    instructions: u64,
    findings: Findings,
    advice: Counts,
    /// What ended a cluster's run, with its number.
    stopped: Option<(u64, Finding)>,
}

impl Outcome {
    /// Takes over what a cluster did that runs no more.
    fn add(&mut self, mut cluster: Cluster<'_>) {
        self.instructions += cluster.executed;
        self.findings.merge(std::mem::take(&mut cluster.findings));
        if let Some(counts) = cluster.advice.take() {
            self.advice.add(counts);
        }
    }
}

/// Runs all clusters. `resident` clusters may be live at once.
pub(crate) fn run(launch: &Launch<'_>, resident: u64) -> Result<Report, EmuError> {
    let clusters = launch.grid.count() / launch.cluster.count();
    let serial = launch.options.sanitize.any()
        || launch.options.schedule == crate::options::Schedule::Random
        || launch.program.blocks_meet();
    let available = std::thread::available_parallelism().map_or(1, usize::from);
    let wanted = if serial { 1 } else { launch.options.threads.unwrap_or(available) };
    // No more clusters are live than the device holds, one a thread at least.
    let threads = wanted.max(1).min(clusters.min(resident).min(1 << 16) as usize);
    let share = (resident / threads as u64).max(1);
    let shared = Shared {
        next: AtomicU64::new(0),
        stop: AtomicBool::new(false),
        moves: AtomicU64::new(0),
        ended: AtomicU64::new(0),
        alive: AtomicU64::new(threads as u64),
        waiting: AtomicU64::new(0),
    };
    let results = Mutex::new(Vec::new());
    let work = || {
        let outcome = worker(launch, clusters, share, &shared);
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
    let (mut findings, mut advice) = (Findings::default(), Counts::default());
    let mut stopped: Option<(u64, Finding)> = None;
    for outcome in results.into_inner().unwrap_or_default() {
        report.instructions += outcome.instructions;
        findings.merge(outcome.findings);
        advice.add(outcome.advice);
        if let Some(found) = outcome.stopped
            && stopped.as_ref().is_none_or(|first| found.0 < first.0)
        {
            stopped = Some(found);
        }
    }
    launch.advise(&advice, &mut findings);
    (report.findings, report.suppressed) = findings.told();
    report.take_lines(launch);
    match stopped {
        None => Ok(report),
        Some((_, finding)) => Err(EmuError::Fault { finding: Box::new(finding), report: Box::new(report) }),
    }
}

/// What the host threads of a launch share.
struct Shared {
    /// The next cluster to start.
    next: AtomicU64,
    stop: AtomicBool,
    /// Counts the progress of all clusters.
    moves: AtomicU64,
    /// Clusters that have ended.
    ended: AtomicU64,
    /// Threads that have not ended, and those of them that cannot go on by themselves.
    alive: AtomicU64,
    waiting: AtomicU64,
}

/// A cluster that was put aside.
struct Live<'a> {
    cluster: Cluster<'a>,
    progress: u64,
    /// Operations without progress.
    idle: u64,
    /// All clusters' moves when it was last seen to go round in loops alone.
    spun: Option<u64>,
}

/// The time that a launch may take, as a host thread sees it.
struct Timer {
    watch: Option<Watch>,
    /// Clusters that had ended when it was last asked.
    ended: u64,
}

impl Timer {
    /// The time that was given, where it has passed.
    fn is_up(&mut self, shared: &Shared, now: Instant) -> Option<Duration> {
        let watch = self.watch.as_mut()?;
        if std::mem::replace(&mut self.ended, shared.ended.load(Ordering::Relaxed)) != self.ended {
            watch.block(now);
        }
        watch.is_up(now)
    }
}

/// What a worker does next.
enum Next {
    Go,
    Stop,
    Stuck,
}

fn worker(launch: &Launch<'_>, clusters: u64, share: u64, shared: &Shared) -> Outcome {
    let mut outcome = Outcome { instructions: 0, findings: Findings::default(), advice: Counts::default(), stopped: None };
    let mut live: VecDeque<Live<'_>> = VecDeque::new();
    let (mut timer, mut turn) = (Timer { watch: Watch::start(launch.options.limit), ended: 0 }, Instant::now());
    // Since when, and at how many moves, nothing but another device could let a cluster go on.
    let mut stuck: Option<(u64, Instant)> = None;
    // A cluster that ran long goes to the back; a new one starts as long as there is room.
    loop {
        if shared.stop.load(Ordering::Relaxed) || outcome.findings.is_full(launch.options) {
            break;
        }
        let started = if (live.len() as u64) < share {
            Some(shared.next.fetch_add(1, Ordering::Relaxed)).filter(|&number| number < clusters)
        } else {
            None
        };
        let mut own = match started {
            Some(number) => Live { cluster: Cluster::new(launch, number), progress: 0, idle: 0, spun: None },
            None => match live.pop_front() {
                Some(entry) => entry,
                None => break,
            },
        };
        let before = shared.moves.load(Ordering::SeqCst);
        // Many blocks that are each short take long, too: none begins behind the end.
        let late = if own.cluster.executed == 0 { timer.is_up(shared, Instant::now()) } else { None };
        let result = match late {
            Some(given) => Err(own.cluster.endless(given)),
            None => own.cluster.run(BUDGET),
        };
        let moved = own.cluster.moved(own.progress);
        if moved {
            shared.moves.fetch_add(1, Ordering::SeqCst);
            (own.progress, own.idle) = (own.cluster.progress, 0);
        }
        let stopped = match result {
            Ok(Progress::Done) => {
                shared.moves.fetch_add(1, Ordering::SeqCst);
                shared.ended.fetch_add(1, Ordering::Relaxed);
                outcome.add(own.cluster);
                continue;
            }
            Ok(Progress::Paused) => {
                own.idle += BUDGET;
                own.spun = (own.idle > launch.options.patience).then_some(before);
                None
            }
            // It may have seen what others did since.
            Ok(Progress::Spinning) => {
                own.spun = (!moved).then_some(before);
                None
            }
            Err(stopped) => Some(stopped),
        };
        let now = Instant::now();
        let given = timer.is_up(shared, now);
        let endless = own.cluster.executed > launch.options.most_instructions;
        let stopped = stopped.or_else(|| given.map(|given| own.cluster.endless(given)));
        let stopped = match stopped.or_else(|| endless.then(|| own.cluster.livelock())) {
            Some(stopped) => stopped,
            None => {
                // One that has not begun may be waited for.
                let more = live.len() as u64 + 1 < share && shared.next.load(Ordering::Relaxed) < clusters;
                let all = !more && own.spun.is_some_and(|spun| live.iter().all(|other| other.spun.is_some_and(|at| at >= spun)));
                let moves = shared.moves.load(Ordering::SeqCst);
                let next = if all && own.spun == Some(moves) { await_others(shared, before) } else { Next::Go };
                let still = match next {
                    Next::Stuck if launch.shared => stuck.filter(|(at, _)| *at == moves).or(Some((moves, now))),
                    Next::Go | Next::Stop | Next::Stuck => None,
                };
                match next {
                    // What other devices write nobody counts here: the loops are gone round again for a while.
                    Next::Stuck if still.is_some_and(|(_, since)| now.duration_since(since) < OTHERS) => {
                        stuck = still;
                        shared.waiting.fetch_sub(1, Ordering::SeqCst);
                        std::thread::sleep(LOOK_AGAIN);
                        live.push_back(own);
                        continue;
                    }
                    Next::Go => {
                        // So many that each gets on slowly are no kernel that never ends: one at a time comes to its end.
                        let stays =
                            timer.watch.and_then(|watch| watch.turn(now)).is_some_and(|long| now.duration_since(turn) < long);
                        if stays && own.spun.is_none() {
                            live.push_front(own);
                        } else {
                            turn = now;
                            live.push_back(own);
                        }
                        continue;
                    }
                    Next::Stop => {
                        outcome.add(own.cluster);
                        break;
                    }
                    Next::Stuck => own.cluster.livelock(),
                }
            }
        };
        shared.stop.store(true, Ordering::Relaxed);
        outcome.stopped = Some((own.cluster.number, own.cluster.note_stop(&stopped)));
        outcome.add(own.cluster);
        break;
    }
    shared.alive.fetch_sub(1, Ordering::SeqCst);
    outcome
}

/// A thread whose clusters wait for others': until somebody moves, or all threads stand.
fn await_others(shared: &Shared, moves: u64) -> Next {
    shared.waiting.fetch_add(1, Ordering::SeqCst);
    loop {
        if shared.stop.load(Ordering::Relaxed) {
            return Next::Stop;
        }
        if shared.moves.load(Ordering::SeqCst) != moves {
            shared.waiting.fetch_sub(1, Ordering::SeqCst);
            return Next::Go;
        }
        if shared.waiting.load(Ordering::SeqCst) >= shared.alive.load(Ordering::SeqCst) {
            return Next::Stuck;
        }
        std::thread::yield_now();
    }
}

impl Launch<'_> {
    /// An operation's place, with the block and the thread that executed it.
    pub(crate) fn place(&self, block: [u32; 3], thread: Option<usize>, pc: u32) -> Place {
        Origin::of(self).place(block, thread, pc)
    }

    /// Notes what the counts of all clusters come to, behind everything else.
    pub(crate) fn advise(&self, counts: &Counts, findings: &mut Findings) {
        for (pc, kind, Count { accesses, transactions, needed, block, thread }) in
            counts.wasteful().into_iter().take(self.options.most_findings)
        {
            let unit = if kind == FindingKind::BankConflicts { "passes over the banks" } else { "sectors of 32 bytes" };
            let message = format!("{accesses} accesses take {transactions} {unit} where {needed} would do");
            findings.note(self.options, u64::MAX, ((kind, pc, None), kind.class()), || {
                let finding = Finding::new(kind, message, self.place(block, Some(thread as usize), pc), None);
                Finding { count: accesses, traffic: Some(Traffic { transactions, needed }), ..finding }
            });
        }
    }
}

impl Cluster<'_> {
    /// An operation's place, with the thread of a block of the cluster.
    pub(crate) fn place(&self, rank: usize, thread: Option<usize>, pc: u32) -> Place {
        self.launch.place(self.blocks[rank].index, thread, pc)
    }

    /// Notes a finding at an operation of a thread.
    pub(crate) fn note(&mut self, key: Key, class: Class, make: impl FnOnce(&Self) -> Finding) -> bool {
        let mut findings = std::mem::take(&mut self.findings);
        let passed = findings.note(self.launch.options, self.number, (key, class), || make(self));
        self.findings = findings;
        passed
    }

    /// Notes a fault that execution can go on behind, where that is asked for or a suppression lets it pass.
    pub(crate) fn pass(&mut self, warp: &Warp, pc: u32, fault: Fault) -> Result<(), Fault> {
        self.pass_at((warp.rank, warp.index), pc, fault)
    }

    /// The same for a warp of a block by its number.
    pub(crate) fn pass_at(&mut self, (rank, warp): (usize, u32), pc: u32, fault: Fault) -> Result<(), Fault> {
        let options = self.launch.options;
        if !options.keep_going && options.suppress.rules().is_empty() {
            return Err(fault);
        }
        let stopped = Stopped { fault, pc, rank, warp };
        let finding = self.finding(&stopped);
        if !options.keep_going && options.suppress.matching(&finding).is_none() {
            return Err(stopped.fault);
        }
        self.note((finding.kind, pc, stopped.fault.earlier), finding.class, |_| finding);
        Ok(())
    }

    /// A fault as a finding, with its place.
    fn finding(&self, stopped: &Stopped) -> Finding {
        let Stopped { fault, pc, rank, warp } = stopped;
        let thread = *warp as usize * LANES;
        let earlier = fault.earlier.map(|pc| self.place(*rank, Some(thread), pc));
        Finding::new(fault.kind, fault.message.clone(), self.place(*rank, Some(thread + fault.lane), *pc), earlier)
    }

    /// Notes what stops the cluster.
    pub(crate) fn note_stop(&mut self, stopped: &Stopped) -> Finding {
        let finding = self.finding(stopped);
        let kind = stopped.fault.kind;
        self.note((kind, stopped.pc, stopped.fault.earlier), kind.class(), |_| finding.clone());
        finding
    }
}
