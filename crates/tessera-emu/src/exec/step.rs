//! A cluster in single steps, for systematic schedules: who could go on, and one step of one of them.
//!
//! A step of lanes is one operation that others can notice (memory, barriers, fences, asynchronous operations) and the
//! operations behind it that nobody can, up to the next noticeable one.

use std::hash::{DefaultHasher, Hash, Hasher};

use super::schedule::Stopped;
use super::{Cluster, Fragment, Wait};
use crate::program::{Op, Space};
use crate::sanitize::Footprint;

/// Something that can make a step.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) enum Actor {
    /// Lanes of a warp that run together, by the first of them.
    Lanes { rank: usize, warp: usize, lane: u32 },
    /// A bulk copy, by the warp that issued it and its number there.
    Job { rank: usize, warp: u32, number: u32 },
    /// The oldest `cp.async` of a warp.
    Copy { rank: usize, warp: usize },
    /// The oldest product of a warpgroup.
    Product { rank: usize, group: usize },
}

/// Operations that a step makes at most.
const LONGEST: u32 = 1 << 20;

/// Whether other actors can notice an operation, or it them.
fn is_visible(op: &Op) -> bool {
    match op {
        Op::Load { addr, .. } | Op::Store { addr, .. } => !matches!(addr.space, Space::Local | Space::Param),
        Op::StoreAsync { .. }
        | Op::Atomic { .. }
        | Op::Sample(_)
        | Op::Surface(_)
        | Op::Barrier { .. }
        | Op::ClusterArrive { .. }
        | Op::ClusterWait
        | Op::Mbarrier { .. }
        | Op::CpAsync { .. }
        | Op::CpWait { .. }
        | Op::CpArrive { .. }
        | Op::Bulk(_)
        | Op::BulkWait { .. }
        | Op::TensorMapReplace { .. }
        | Op::TensorMapCopy { .. }
        | Op::LoadMatrix { .. }
        | Op::WmmaLoad { .. }
        | Op::WmmaStore { .. }
        | Op::StoreMatrix { .. }
        | Op::Wgmma(_)
        | Op::WgmmaWait { .. }
        | Op::SetMaxRegisters { .. }
        | Op::Print { .. }
        | Op::Clock { .. }
        | Op::Exit => true,
        _ => false,
    }
}

impl Cluster<'_> {
    /// Everybody who could make a step now.
    pub(crate) fn actors(&self) -> Vec<Actor> {
        let mut actors = Vec::new();
        for (rank, block) in self.blocks.iter().enumerate() {
            for (index, warp) in block.warps.iter().enumerate() {
                let Some(warp) = warp.as_deref() else { continue };
                // What a wait asks for makes its own steps before it.
                let goes_on = |part: &&Fragment| self.may_run(warp, part) && !self.completes_others(warp, part);
                for part in warp.fragments.iter().filter(goes_on) {
                    actors.push(Actor::Lanes { rank, warp: index, lane: part.mask.trailing_zeros() });
                }
                if warp.asynchronous.has_copies() {
                    actors.push(Actor::Copy { rank, warp: index });
                }
                if index % 4 == 0 && self.next_product(warp).is_some() {
                    actors.push(Actor::Product { rank, group: index / 4 });
                }
            }
        }
        actors.extend(self.jobs.iter().map(|job| Actor::Job { rank: job.rank, warp: job.warp, number: job.number }));
        actors.sort_unstable();
        actors
    }

    /// Makes one step.
    pub(crate) fn step(&mut self, actor: Actor) -> Result<(), Stopped> {
        match actor {
            Actor::Lanes { rank, warp, lane } => self.step_lanes(rank, warp, lane),
            Actor::Job { rank, warp, number } => {
                let same = |job: &super::asynchronous::Job| (job.rank, job.warp, job.number) == (rank, warp, number);
                self.jobs.iter().position(same).map_or(Ok(()), |index| self.step_stopping(index))
            }
            Actor::Copy { rank, warp } => self.complete_copy(rank, warp),
            Actor::Product { rank, group } => self.complete_product(rank, 4 * group),
        }
    }

    fn step_lanes(&mut self, rank: usize, index: usize, lane: u32) -> Result<(), Stopped> {
        for operation in 0..LONGEST {
            let Some(warp) = self.blocks[rank].warps[index].take() else { return Ok(()) };
            let found = warp.fragments.iter().position(|part| part.mask >> lane & 1 == 1);
            let goes_on = found.is_some_and(|at| {
                let part = &warp.fragments[at];
                let op = &self.launch.program.code[part.pc as usize].op;
                operation == 0 || (part.wait == Wait::Ready && !is_visible(op))
            });
            match found {
                Some(at) if goes_on => self.run_part(warp, at, 1)?,
                _ => {
                    self.blocks[rank].warps[index] = Some(warp);
                    return Ok(());
                }
            }
        }
        Ok(())
    }

    /// From now on notes what steps touch.
    pub(crate) fn follow(&mut self) {
        if let Some(sanitizer) = &mut self.sanitizer {
            sanitizer.follow();
        }
    }

    /// What was touched since the last step.
    pub(crate) fn footprint(&mut self) -> Footprint {
        self.sanitizer.as_mut().map(|sanitizer| sanitizer.take_footprint()).unwrap_or_default()
    }

    /// Whether all threads have ended and nothing is under way.
    pub(crate) fn is_over(&self) -> bool {
        self.jobs.is_empty() && self.blocks.iter().all(|block| block.live_warps == 0)
    }

    /// What the warp of an actor knows.
    pub(crate) fn digest_of(&self, actor: Actor) -> Option<u64> {
        let Actor::Lanes { rank, warp, .. } = actor else { return None };
        self.digest(rank, warp)
    }

    /// What a warp knows: equal after operations that changed nothing, as a round of a loop that polls.
    pub(super) fn digest(&self, rank: usize, warp: usize) -> Option<u64> {
        let warp = self.warp(rank, warp)?;
        let mut hasher = DefaultHasher::new();
        for slot in &warp.regs {
            slot.w().hash(&mut hasher);
        }
        warp.predicates.hash(&mut hasher);
        for part in &warp.fragments {
            (part.pc, part.mask).hash(&mut hasher);
        }
        warp.local.hash(&mut hasher);
        Some(hasher.finish())
    }
}
