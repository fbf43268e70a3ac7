//! Systematic schedules: every interleaving that can differ from the others, one execution each.
//!
//! A launch is executed again and again, each time from the same memory and along another path through its choices. At every
//! choice one actor makes a step ([`crate::exec::Actor`]): lanes, a bulk copy, a `cp.async`, a product. Steps that touch
//! different memory may be swapped without a difference ([`Footprint`]), so of all paths that differ by such swaps one is
//! enough. It is found as in dynamic partial-order reduction (Flanagan and Godefroid, POPL 2005): where a step conflicts with
//! an earlier one that it did not have to follow, the earlier choice is made the other way too; and sleep sets (Godefroid)
//! give up paths all of whose next steps were already taken first.
//!
//! ```text
//! thread a: st x          a, b     the two touch x: both orders are executed
//! thread b: ld x; st y    b, a     `st y` conflicts with nothing: no third
//! ```
//!
//! An actor that polls is not asked again until somebody has written: rounds of a loop that change nothing are one. If only
//! such actors are left, the launch is stuck. Reports are those of all executions, each finding once. Where executions end
//! with different memory and no race explains it, the launch is nondeterministic: only atomic operations can have done it.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::hash::{DefaultHasher, Hasher};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::time::Instant;

use tessera_types::Watch;

use crate::advice::Counts;
use crate::exec::{Actor, Cluster, Launch};
use crate::finding::{Finding, FindingKind};
use crate::findings::Findings;
use crate::report::{EmuError, Explored, Report};
use crate::sanitize::Footprint;

/// An actor of one of the clusters.
type Who = (u64, Actor);

/// Steps of an execution at most.
const LONGEST: usize = 1 << 20;

/// A choice that was made.
struct Choice {
    /// Everybody who could have been chosen.
    enabled: Vec<Who>,
    chosen: Who,
    footprint: Footprint,
    /// For each actor, how many of its steps happened before this one, and itself.
    clock: BTreeMap<Who, usize>,
    /// Who must be tried here too.
    backtrack: BTreeSet<Who>,
    /// Whose step here leads to what was seen before, with what it touches.
    sleep: Vec<(Who, Footprint)>,
}

/// How an execution ended.
enum End {
    Done,
    /// All that it could still do was seen before.
    Seen,
    Stopped(Box<Finding>),
}

/// Memory before the launch.
struct Saved(Vec<Option<Vec<u8>>>);

impl Saved {
    fn of(launch: &Launch<'_>) -> Saved {
        Saved(launch.heap.live().map(|allocation| allocation.map(|found| found.save())).collect())
    }

    fn restore(&self, launch: &Launch<'_>) {
        for (allocation, bytes) in launch.heap.live().zip(&self.0) {
            if let (Some(found), Some(bytes)) = (allocation, bytes) {
                found.restore(bytes);
            }
        }
    }
}

/// Runs all schedules of a launch. `resident` clusters may be live at once.
pub(crate) fn run(mut launch: Launch<'_>, resident: u64) -> Result<Report, EmuError> {
    let saved = Saved::of(&launch);
    let mut path: Vec<Choice> = Vec::new();
    let mut explored = Explored::default();
    let mut outcomes: BTreeMap<u64, u64> = BTreeMap::new();
    let mut report = Report::default();
    let mut advice = Counts::default();
    let mut findings = Findings::default();
    let mut stopped: Option<Box<Finding>> = None;
    // Memory is left as the first execution that ran to its end leaves it.
    let mut result: Option<Saved> = None;
    let watch = Watch::start(launch.options.limit);
    loop {
        saved.restore(&launch);
        reset(&mut launch);
        let mut execution = Execution { launch: &launch, resident, live: VecDeque::new(), next: 0, spins: BTreeMap::new() };
        let (end, done) = execution.run(&mut path, watch.as_ref());
        report.instructions += done.instructions;
        findings.merge(done.findings);
        match end {
            End::Done => {
                explored.executions += 1;
                let next = outcomes.len() as u64;
                outcomes.entry(digest(&launch)).or_insert(next);
                if result.is_none() {
                    result = Some(Saved::of(&launch));
                    advice.add(done.advice);
                    let output = launch.output.get_mut().unwrap_or_else(PoisonError::into_inner);
                    report.output = std::mem::take(output).into_values().collect();
                    report.trace = std::mem::take(launch.trace.get_mut().unwrap_or_else(PoisonError::into_inner));
                }
            }
            End::Seen => explored.pruned += 1,
            End::Stopped(found) => {
                explored.executions += 1;
                stopped.get_or_insert(found);
            }
        }
        if !back_up(&mut path) {
            explored.complete = true;
            break;
        }
        if explored.executions + explored.pruned >= launch.options.most_schedules || findings.is_full(launch.options) {
            break;
        }
    }
    if let Some(result) = result {
        result.restore(&launch);
    }
    explored.outcomes = outcomes.len() as u64;
    if explored.outcomes > 1 && !findings.any(&[FindingKind::Race, FindingKind::ProxyFence]) {
        note_nondeterministic(&launch, &explored, &mut findings);
    }
    launch.advise(&advice, &mut findings);
    (report.findings, report.suppressed) = findings.told();
    report.explored = Some(explored);
    match stopped {
        None => Ok(report),
        Some(finding) => Err(EmuError::Fault { finding, report: Box::new(report) }),
    }
}

/// Forgets what an execution left beside memory.
fn reset(launch: &mut Launch<'_>) {
    launch.shadow = Arc::default();
    launch.run = OnceLock::new();
    launch.begin();
    launch.output = Mutex::default();
    launch.trace = Mutex::default();
}

/// What global memory holds.
fn digest(launch: &Launch<'_>) -> u64 {
    let mut hasher = DefaultHasher::new();
    for allocation in launch.heap.live().flatten() {
        hasher.write(&allocation.save());
    }
    hasher.finish()
}

fn note_nondeterministic(launch: &Launch<'_>, explored: &Explored, findings: &mut Findings) {
    let atomics = launch.program.code.iter().position(|inst| matches!(inst.op, crate::program::Op::Atomic { .. }));
    let message = format!(
        "{} schedules end with {} different results, and no race among them: the order of atomic operations decides",
        explored.executions, explored.outcomes
    );
    let (kind, pc) = (FindingKind::Nondeterministic, atomics.unwrap_or(0) as u32);
    findings.note(launch.options, u64::MAX, ((kind, pc, None), kind.class()), || {
        Finding::new(kind, message, launch.place([0; 3], None, pc), None)
    });
}

/// Leaves the path at the last choice that has to be made another way too; whether there is one.
fn back_up(path: &mut Vec<Choice>) -> bool {
    while let Some(choice) = path.last_mut() {
        let footprint = std::mem::take(&mut choice.footprint);
        choice.sleep.push((choice.chosen, footprint));
        let sleeps = |who: &Who| choice.sleep.iter().any(|(other, _)| other == who);
        if let Some(&next) = choice.backtrack.iter().find(|who| !sleeps(who)) {
            choice.chosen = next;
            return true;
        }
        path.pop();
    }
    false
}

/// What an execution did.
#[derive(Default)]
struct Done {
    instructions: u64,
    findings: Findings,
    advice: Counts,
}

impl Done {
    fn add(&mut self, mut cluster: Cluster<'_>) {
        self.instructions += cluster.executed;
        self.findings.merge(std::mem::take(&mut cluster.findings));
        if let Some(counts) = cluster.advice.take() {
            self.advice.add(counts);
        }
    }
}

struct Execution<'a> {
    launch: &'a Launch<'a>,
    resident: u64,
    live: VecDeque<Cluster<'a>>,
    next: u64,
    /// What polling actors knew at the end of their steps since somebody last wrote.
    spins: BTreeMap<Who, Vec<u64>>,
}

impl<'a> Execution<'a> {
    /// Executes along the path and on from its end, where each choice is the first that is allowed.
    fn run(&mut self, path: &mut Vec<Choice>, watch: Option<&Watch>) -> (End, Done) {
        let mut done = Done::default();
        // The steps of each actor so far, by their place in the path.
        let mut steps: BTreeMap<Who, Vec<usize>> = BTreeMap::new();
        let end = loop {
            self.start();
            let depth = steps.values().map(Vec::len).sum::<usize>();
            let all = self.enabled();
            let enabled: Vec<Who> = all.iter().copied().filter(|who| !self.polls(*who)).collect();
            if all.is_empty() && self.live.iter().all(Cluster::is_over) {
                let ended = self.live.drain(..).collect::<Vec<_>>();
                ended.into_iter().for_each(|cluster| done.add(cluster));
                if self.next >= self.clusters() {
                    break End::Done;
                }
                continue;
            }
            if let Some(given) = watch.and_then(|watch| watch.is_up(Instant::now()))
                && let Some(cluster) = self.live.iter_mut().find(|cluster| !cluster.is_over())
            {
                let stopped = cluster.endless(given);
                break End::Stopped(Box::new(cluster.note_stop(&stopped)));
            }
            if enabled.is_empty() || depth >= LONGEST {
                let stuck = self.live.iter_mut().find(|cluster| !cluster.is_over());
                let found = stuck.map(|cluster| {
                    let stopped = cluster.livelock();
                    cluster.note_stop(&stopped)
                });
                break found.map_or(End::Seen, |found| End::Stopped(Box::new(found)));
            }
            if depth == path.len() {
                let Some(choice) = self.choose(path.last(), enabled) else { break End::Seen };
                path.push(choice);
            }
            let who = path[depth].chosen;
            let (footprint, stopped) = self.step(who);
            remember(path, depth, &mut steps, footprint);
            if let Some(found) = stopped {
                path.truncate(depth + 1);
                break End::Stopped(Box::new(found));
            }
        };
        self.live.drain(..).for_each(|cluster| done.add(cluster));
        (end, done)
    }

    fn clusters(&self) -> u64 {
        self.launch.grid.count() / self.launch.cluster.count()
    }

    /// Starts clusters as long as there is room; those that are over make room.
    fn start(&mut self) {
        while self.next < self.clusters()
            && (self.live.iter().filter(|cluster| !cluster.is_over()).count() as u64) < self.resident
        {
            let mut cluster = Cluster::new(self.launch, self.next);
            cluster.follow();
            self.live.push_back(cluster);
            self.next += 1;
        }
    }

    fn enabled(&self) -> Vec<Who> {
        let of = |cluster: &Cluster<'_>| {
            let number = cluster.number;
            cluster.actors().into_iter().map(move |actor| (number, actor)).collect::<Vec<_>>()
        };
        self.live.iter().flat_map(of).collect()
    }

    fn polls(&self, who: Who) -> bool {
        let Some(seen) = self.spins.get(&who) else { return false };
        seen.last().is_some_and(|last| seen[..seen.len() - 1].contains(last))
    }

    /// A new choice behind an earlier one: the first actor that does not sleep, the last one's if possible.
    fn choose(&self, before: Option<&Choice>, enabled: Vec<Who>) -> Option<Choice> {
        let awake = |(who, footprint): &&(Who, Footprint)| {
            before.is_some_and(|before| before.chosen != *who && !footprint.conflicts(&before.footprint))
        };
        let sleep: Vec<(Who, Footprint)> =
            before.map_or_else(Vec::new, |before| before.sleep.iter().filter(awake).cloned().collect());
        let sleeps = |who: &Who| sleep.iter().any(|(other, _)| other == who);
        let last = before.map(|before| before.chosen).filter(|who| enabled.contains(who) && !sleeps(who));
        let chosen = last.or_else(|| enabled.iter().copied().find(|who| !sleeps(who)))?;
        let backtrack = BTreeSet::from([chosen]);
        Some(Choice { enabled, chosen, footprint: Footprint::default(), clock: BTreeMap::new(), backtrack, sleep })
    }

    /// One step: what it touched, and what stopped it.
    fn step(&mut self, (number, actor): Who) -> (Footprint, Option<Finding>) {
        let Some(cluster) = self.live.iter_mut().find(|cluster| cluster.number == number) else {
            return (Footprint::default(), None);
        };
        let stopped = cluster.step(actor).err().map(|stopped| cluster.note_stop(&stopped));
        let footprint = cluster.footprint();
        let digest = cluster.digest_of(actor);
        if footprint.is_silent() {
            self.spins.entry((number, actor)).or_default().extend(digest);
        } else {
            self.spins.clear();
        }
        (footprint, stopped)
    }
}

/// Notes what a step touched, and which earlier choices must be made another way because of it.
fn remember(path: &mut [Choice], depth: usize, steps: &mut BTreeMap<Who, Vec<usize>>, footprint: Footprint) {
    let who = path[depth].chosen;
    let own = steps.entry(who).or_default();
    let mut clock = own.last().map_or_else(BTreeMap::new, |&last| path[last].clock.clone());
    own.push(depth);
    let count = own.len();
    // The latest conflicting step that this one did not have to follow.
    let mut reversible = None;
    for (earlier, choice) in path[..depth].iter().enumerate().rev() {
        if choice.chosen == who || !choice.footprint.precedes(&footprint) {
            continue;
        }
        let position = steps.get(&choice.chosen).map_or(0, |list| list.partition_point(|&at| at <= earlier));
        // What a step has made possible follows it too.
        let made_possible = !choice.enabled.contains(&who) && path[earlier + 1].enabled.contains(&who);
        let follows = made_possible || clock.get(&choice.chosen).is_some_and(|&known| known >= position);
        if !follows && reversible.is_none() && choice.footprint.conflicts(&footprint) {
            reversible = Some(earlier);
        }
        for (&other, &known) in &choice.clock {
            let entry = clock.entry(other).or_insert(0);
            *entry = (*entry).max(known);
        }
    }
    if let Some(earlier) = reversible {
        let choice = &mut path[earlier];
        if choice.enabled.contains(&who) {
            choice.backtrack.insert(who);
        } else {
            choice.backtrack.extend(choice.enabled.iter().copied());
        }
    }
    clock.insert(who, count);
    let choice = &mut path[depth];
    (choice.footprint, choice.clock) = (footprint, clock);
}
