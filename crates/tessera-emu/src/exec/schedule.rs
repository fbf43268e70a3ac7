//! Which warp runs next, and when copies under way complete.
//!
//! The schedule decides. Eager: warps in turn, copies complete where they start. Lazy: copies complete only when a wait asks
//! for them or nothing else can go on. Random: the seed picks warps, short turns, and copies at any time. All three are
//! interleavings that the chip may show, so a kernel that is right gives the same results under each.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use super::run::Failed;
use super::{Cluster, Fault, Wait, Warp};
use crate::finding::FindingKind;
use crate::options::Schedule;
use crate::program::Op;

/// How far a cluster came.
pub(crate) enum Progress {
    Done,
    /// The budget is used up.
    Paused,
    /// Every warp that can run goes round a loop in which nothing changes: only another cluster could end that.
    Spinning,
}

/// What warps were seen to repeat since the cluster last made progress.
#[derive(Debug, Default)]
pub(super) struct Spins {
    progress: u64,
    /// The clock when progress was made.
    since: u64,
    /// Digests of each warp at the ends of its turns; none once one came twice.
    seen: BTreeMap<(usize, usize), Option<BTreeSet<u64>>>,
}

/// Operations without progress after which loops are looked for.
const QUIET: u64 = 1 << 18;

/// A fault with its place.
pub(crate) struct Stopped {
    pub(crate) fault: Fault,
    pub(crate) pc: u32,
    pub(crate) rank: usize,
    pub(crate) warp: u32,
}

/// Operations of a turn where the order does not matter.
const TURN: u64 = 2048;
/// Operations without progress after which a copy or product completes.
const POLLS: u64 = 1 << 14;

impl Cluster<'_> {
    /// Runs for about `budget` operations.
    pub(crate) fn run(&mut self, budget: u64) -> Result<Progress, Stopped> {
        let end = self.clock.saturating_add(budget);
        let mut silent = None;
        loop {
            if self.clock >= end {
                return Ok(Progress::Paused);
            }
            if self.schedule() == Schedule::Random {
                self.perhaps_complete()?;
            }
            if self.idle.0 != self.progress {
                self.idle = (self.progress, self.clock);
            } else if self.clock - self.idle.1 > POLLS {
                // Threads that only ask again and again wait, too.
                self.complete_one()?;
                self.idle = (self.progress, self.clock);
            }
            match self.pick() {
                Some((rank, index)) => {
                    self.turn(rank, index)?;
                    // What is under way may end the loops.
                    if self.spins_after(rank, index) && !self.complete_one()? {
                        return Ok(Progress::Spinning);
                    }
                }
                None if self.complete_one()? => {}
                None => {
                    if self.blocks.iter().all(|block| block.live_warps == 0) {
                        self.finish()?;
                        if let Some(sanitizer) = &self.sanitizer {
                            sanitizer.ended(self.launch);
                        }
                        return Ok(Progress::Done);
                    }
                    // Nothing can go on: waits with a time limit end, once for each state of the cluster.
                    if silent == Some(self.progress) || !self.time_out() {
                        return Err(self.deadlock());
                    }
                    silent = Some(self.progress);
                }
            }
        }
    }

    /// Notes a turn of a warp; whether now every warp that can run is known to repeat itself.
    fn spins_after(&mut self, rank: usize, index: usize) -> bool {
        if self.progress != self.spins.progress {
            self.spins = Spins { progress: self.progress, since: self.clock, seen: BTreeMap::new() };
            return false;
        }
        if self.clock - self.spins.since < QUIET {
            return false;
        }
        let Some(digest) = self.digest(rank, index) else { return false };
        let seen = self.spins.seen.entry((rank, index)).or_insert_with(|| Some(BTreeSet::new()));
        if seen.as_mut().is_some_and(|digests| !digests.insert(digest)) {
            *seen = None;
        }
        let repeats = |rank: usize, index: usize| matches!(self.spins.seen.get(&(rank, index)), Some(None));
        let runs = |rank: usize, index: usize| {
            self.warp(rank, index).is_some_and(|warp| warp.fragments.iter().any(|part| self.may_run(warp, part)))
        };
        (0..self.blocks.len()).all(|rank| (0..self.warps()).all(|index| repeats(rank, index) || !runs(rank, index)))
    }

    /// Whether the cluster has made progress since it was last asked; its loops are looked at anew.
    pub(crate) fn moved(&mut self, before: u64) -> bool {
        self.spins = Spins { progress: self.progress, since: self.clock, seen: BTreeMap::new() };
        self.progress != before
    }

    fn warps(&self) -> usize {
        self.blocks[0].warps.len()
    }

    /// A warp that can run.
    fn pick(&mut self) -> Option<(usize, usize)> {
        let (warps, count) = (self.warps(), self.warps() * self.blocks.len());
        let start = match self.schedule() {
            Schedule::Random => self.random.below(count),
            Schedule::Eager | Schedule::Lazy | Schedule::Systematic => self.next_warp,
        };
        for step in 0..count {
            let at = (start + step) % count;
            let (rank, index) = (at / warps, at % warps);
            let runs = self.warp(rank, index).is_some_and(|warp| warp.fragments.iter().any(|part| self.may_run(warp, part)));
            if runs {
                self.next_warp = (at + 1) % count;
                return Some((rank, index));
            }
        }
        None
    }

    pub(super) fn may_run(&self, warp: &Warp, part: &super::Fragment) -> bool {
        match part.wait {
            Wait::Ready => true,
            Wait::Members { .. } => false,
            Wait::Barrier { id, generation } => self.blocks[warp.rank].barriers[id as usize].generation > generation,
            Wait::Mbarrier { rank, offset, generation } => {
                self.blocks[rank].mbarriers.get(&offset).is_none_or(|found| found.generation != generation)
            }
            Wait::Cluster { generation } => self.cluster_barrier.generation > generation,
            Wait::Registers { count } => self.blocks[warp.rank].free_registers >= count,
            Wait::Products { issued } => self.issued_by_all(warp) >= issued,
        }
    }

    fn turn(&mut self, rank: usize, index: usize) -> Result<(), Stopped> {
        let Some(warp) = self.blocks[rank].warps[index].take() else { return Ok(()) };
        let random = self.schedule() == Schedule::Random;
        let quantum = if random { 1 + self.random.below(64) as u64 } else { TURN };
        let ready = |part: &usize| self.may_run(&warp, &warp.fragments[*part]);
        let chosen = match random {
            false => (0..warp.fragments.len()).find(ready),
            true => {
                let all: Vec<usize> = (0..warp.fragments.len()).filter(ready).collect();
                let pick = self.random.below(all.len());
                all.get(pick).copied()
            }
        };
        self.run_part(warp, chosen.unwrap_or(0), quantum)
    }

    /// Runs a fragment of a warp, which was taken out of its block and is put back.
    pub(super) fn run_part(&mut self, mut warp: Box<Warp>, chosen: usize, quantum: u64) -> Result<(), Stopped> {
        let (rank, index) = (warp.rank, warp.index as usize);
        let part = &mut warp.fragments[chosen];
        if part.wait != Wait::Ready {
            part.wait = Wait::Ready;
            part.woken = true;
        }
        let mask = part.mask;
        let ran = self.run_fragment(&mut warp, chosen, quantum);
        warp.leave_joins(*ran.as_ref().unwrap_or(&0));
        // The next turn goes to another fragment.
        if let Some(at) = warp.fragments.iter().position(|part| part.mask & mask != 0)
            && warp.fragments.len() > 1
        {
            let part = warp.fragments.remove(at);
            warp.fragments.push(part);
        }
        let ended = warp.live == 0;
        let place = (warp.rank, warp.index);
        if ended && let Err(fault) = self.end_warp(&mut warp) {
            return Err(Stopped { fault, pc: self.launch.program.code.len() as u32 - 1, rank: place.0, warp: place.1 });
        }
        self.blocks[rank].warps[index] = if ended { None } else { Some(warp) };
        if ended {
            self.blocks[rank].live_warps -= 1;
            if let Some(sanitizer) = &mut self.sanitizer {
                sanitizer.warp_ends(rank);
            }
            for id in 0..16 {
                self.settle_block_barrier(rank, id);
            }
            self.settle_cluster_barrier(0);
        }
        ran.map(drop).map_err(|Failed { fault, pc }| Stopped { fault, pc, rank: place.0, warp: place.1 })
    }

    /// Ends waits that have a time limit; whether there were any.
    fn time_out(&mut self) -> bool {
        let mut any = false;
        for warp in self.blocks.iter_mut().flat_map(|block| &mut block.warps).flatten() {
            for part in &mut warp.fragments {
                if matches!(part.wait, Wait::Mbarrier { .. }) {
                    part.wait = Wait::Ready;
                    part.timed_out = true;
                    any = true;
                }
            }
        }
        any
    }

    /// Who waits for what.
    pub(super) fn deadlock(&self) -> Stopped {
        self.stuck(None)
    }

    /// Who waits for what, or is where when the time that was given has passed.
    pub(super) fn stuck(&self, given: Option<Duration>) -> Stopped {
        let mut lines = Vec::new();
        let mut first = None;
        for (rank, block) in self.blocks.iter().enumerate() {
            for warp in block.warps.iter().flatten() {
                for part in &warp.fragments {
                    let line = self.launch.program.meta.get(part.pc as usize).map_or(0, |meta| meta.line);
                    let what = match part.wait {
                        Wait::Ready if warp.executed == 0 => "has not begun".to_owned(),
                        Wait::Ready => self.repeats(part.pc),
                        Wait::Members { .. } => {
                            let absent = warp.live & !part.mask;
                            format!("waits for the lanes {absent:#010x} of its warp")
                        }
                        Wait::Barrier { id, .. } => {
                            let barrier = &block.barriers[id as usize];
                            let expected = barrier.expected.unwrap_or(block.live_warps * 32);
                            format!("waits at barrier {id}, to which {} of {expected} threads came", barrier.arrived)
                        }
                        Wait::Mbarrier { rank, offset, generation } => self.describe_mbarrier(rank, offset, generation),
                        Wait::Registers { count } => {
                            format!("waits for {count} more registers a thread: the pool has {}", block.free_registers)
                        }
                        Wait::Products { .. } => "waits for the other warps of its warpgroup to issue its products".to_owned(),
                        Wait::Cluster { .. } => {
                            format!("waits at the cluster's barrier, to which {} threads came", self.cluster_barrier.arrived())
                        }
                    };
                    first.get_or_insert((rank, warp.index, part.pc, part.mask.trailing_zeros() as usize));
                    lines.push(format!(
                        "block {}, warp {}, lanes {:#010x}, line {line}: {what}",
                        self.block_number(rank),
                        warp.index,
                        part.mask
                    ));
                }
            }
        }
        let more = lines.len().saturating_sub(16);
        lines.truncate(16);
        if more > 0 {
            lines.push(format!("and {more} more"));
        }
        let (rank, warp, pc, lane) = first.unwrap_or((0, 0, 0, 0));
        // A loop's place is its first line of source.
        let pc = match self.loop_around(pc) {
            Some((first, last)) => (first..=last).min_by_key(|&pc| (self.source_line(pc), pc)).unwrap_or(pc),
            None => pc,
        };
        let divergent = self.blocks.iter().flat_map(|block| block.warps.iter().flatten()).any(|warp| {
            let waits = |part: &super::Fragment| {
                matches!(part.wait, Wait::Members { .. })
                    && matches!(
                        self.launch.program.code[part.pc as usize].op,
                        Op::Barrier { .. } | Op::ClusterArrive { .. } | Op::ClusterWait
                    )
            };
            warp.fragments.iter().any(waits)
        });
        let kind = if divergent { FindingKind::DivergentBarrier } else { FindingKind::Deadlock };
        let (kind, what) = match given {
            Some(given) => {
                let seconds = given.as_secs_f64();
                (FindingKind::NeverEnds, format!("the kernel has not ended after {seconds} s; a longer `timeout` gives it more"))
            }
            None => (kind, "no thread can go on".to_owned()),
        };
        let message = format!("{what}:\n  {}", lines.join("\n  "));
        Stopped { fault: Fault::new(kind, lane, message), pc, rank, warp }
    }

    /// The innermost loop that an operation stands in: its first operation, and the one that leads back there.
    fn loop_around(&self, pc: u32) -> Option<(u32, u32)> {
        let code = self.launch.program.code.iter().zip(0..);
        let back = code.filter_map(|(inst, at)| match inst.op {
            Op::Branch { target, .. } if target <= pc && pc <= at => Some((target, at)),
            _ => None,
        });
        back.min_by_key(|&(first, last)| last - first)
    }

    fn source_line(&self, pc: u32) -> u32 {
        self.launch.program.meta.get(pc as usize).and_then(|meta| meta.loc).map_or(u32::MAX, |loc| loc.line)
    }

    fn repeats(&self, pc: u32) -> String {
        let line = |pc: u32| self.launch.program.meta.get(pc as usize).map_or(0, |meta| meta.line);
        // A wait that timed out stands behind its instruction; the loop leads back to it.
        match self.loop_around(pc).or(self.loop_around(pc.saturating_sub(1))) {
            Some((first, last)) => format!("repeats the lines {} to {}", line(first), line(last)),
            None => "goes on".to_owned(),
        }
    }

    fn describe_mbarrier(&self, rank: usize, offset: u32, generation: u64) -> String {
        let Some(found) = self.blocks[rank].mbarriers.get(&offset) else {
            return format!("waits for an mbarrier at shared {offset:#x} that was destroyed");
        };
        format!(
            "waits for phase {generation} of the mbarrier at shared {offset:#x}, which lacks {} of {} arrivals and {} of {} bytes",
            found.pending, found.count, found.bytes, found.expected_bytes
        )
    }
}
