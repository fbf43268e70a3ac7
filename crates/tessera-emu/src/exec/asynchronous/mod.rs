//! Asynchronous operations: `cp.async`, bulk copies and asynchronous stores, warpgroup products; their groups and waits.
//!
//! An operation is issued with what the instruction says (addresses, coordinates, descriptors) and touches memory and
//! registers when it runs. A warp's `cp.async` and products run in order; bulk copies run in any order.

mod bulk;
mod copies;
mod products;

use std::collections::VecDeque;
use std::time::Duration;

use super::access::Target;
use super::run::Outcome;
use super::schedule::Stopped;
use super::{Cluster, Fault, Fragment, Wait, Warp};
use crate::finding::{Finding, FindingKind};
use crate::lanes::{FULL, LANES, lanes};
use crate::options::Schedule;
use crate::program::Op;
use crate::sanitize::{JobAccess, JobPart, Ticket};

pub(crate) use bulk::Job;
use copies::Copy;
pub(super) use products::{Busy, Product};

/// A bulk store of a lane, and its group.
#[derive(Clone, Copy, Debug)]
struct Store {
    pc: u32,
    lane: usize,
    group: u32,
}

/// A warp's asynchronous operations.
#[derive(Clone, Debug, Default)]
pub(crate) struct WarpQueues {
    /// Generations of the cluster's barrier that each lane waited for.
    pub(crate) cluster_generations: [u64; LANES],
    copies: VecDeque<Copy>,
    /// Closed groups of each lane.
    copy_groups: [u32; LANES],
    bulk_groups: [u32; LANES],
    /// Bulk copies issued so far.
    bulk_issued: u32,
    /// Bulk stores that their threads have not waited for, where sanitizers look.
    stores: Vec<Store>,
    pub(in crate::exec) products: VecDeque<Product>,
    product_groups: u64,
    /// Products issued so far.
    pub(in crate::exec) issued: u64,
    /// By slot: what a product in flight does with it, where sanitizers look.
    pub(in crate::exec) busy: Vec<Busy>,
    /// By slot: the operation that used it last.
    pub(in crate::exec) used: Vec<u32>,
}

impl WarpQueues {
    /// Whether a `cp.async` is under way.
    pub(in crate::exec) fn has_copies(&self) -> bool {
        !self.copies.is_empty()
    }
}

impl Cluster<'_> {
    pub(in crate::exec) fn start(
        &mut self,
        warp: &mut Warp,
        fragment: usize,
        pc: u32,
        active: u32,
        op: &Op,
    ) -> Result<Outcome, Fault> {
        match op {
            Op::CpAsync { to, from, bytes, source, .. } => self.start_copy(warp, active, pc, *to, *from, (*bytes, *source))?,
            Op::CpCommit => {
                for lane in lanes(active) {
                    warp.asynchronous.copy_groups[lane] += 1;
                }
            }
            Op::CpWait { left } => {
                let all = self.launch.program.meta[pc as usize].mnemonic.ends_with("wait_all");
                self.wait_copies(warp, active, *left, all)?;
            }
            Op::CpArrive { addr, counted } => self.start_arrival(warp, active, pc, *addr, *counted)?,
            Op::Bulk(bulk) => {
                for lane in lanes(active) {
                    self.start_bulk(warp, lane, pc, bulk)?;
                }
            }
            Op::BulkCommit => {
                for lane in lanes(active) {
                    warp.asynchronous.bulk_groups[lane] += 1;
                }
            }
            Op::BulkWait { left, read } => self.wait_bulk(warp, active, *left, *read)?,
            Op::StoreAsync { from, bytes, addr, barrier, reduce } => {
                self.start_store(warp, active, pc, from, *bytes, *addr, *barrier, *reduce)?;
            }
            Op::TensorMapReplace { addr, field, index, value } => {
                self.replace_in_map(warp, active, *addr, *field, *index, *value)?;
            }
            Op::TensorMapCopy { to, from } => self.copy_map(warp, active, pc, *to, *from)?,
            Op::Wgmma(_) | Op::WgmmaFence | Op::WgmmaCommit | Op::WgmmaWait { .. } => {
                let Some(parts) = self.gather(warp, fragment, pc, active, FULL) else {
                    return Ok(Outcome::Park(Wait::Members { mask: active }));
                };
                if parts.iter().fold(0, |mask, part| mask | part.mask) != FULL {
                    let message = "a warpgroup instruction needs all 32 lanes of its warp".to_owned();
                    return Err(Fault::new(FindingKind::Matrix, active.trailing_zeros() as usize, message));
                }
                return self.warpgroup(warp, fragment, pc, op);
            }
            _ => {}
        }
        Ok(Outcome::Next)
    }

    fn ticket(&mut self, warp: &Warp, lane: usize, asynchronous: bool) -> Ticket {
        match &mut self.sanitizer {
            Some(sanitizer) => sanitizer.issue(warp.rank, warp.index as usize * LANES + lane, asynchronous),
            None => Ticket::default(),
        }
    }

    /// Tells the sanitizer what a job reads and writes, and how it writes.
    fn observe_job(&mut self, by: JobPart, read: &[(Target, u32)], write: &[(Target, u32)], how: JobAccess) {
        let Some(mut sanitizer) = self.sanitizer.take() else { return };
        for &(target, bytes) in read {
            sanitizer.job_access(self, by, target, bytes, JobAccess::Read);
        }
        for &(target, bytes) in write {
            sanitizer.job_access(self, by, target, bytes, how);
        }
        self.sanitizer = Some(sanitizer);
    }

    /// Runs a step of some job where the seed says so.
    pub(in crate::exec) fn perhaps_complete(&mut self) -> Result<(), Stopped> {
        if self.random.below(4) == 0 && !self.jobs.is_empty() {
            let index = self.random.below(self.jobs.len());
            self.step_stopping(index)?;
        }
        if self.random.below(4) == 0 {
            let (rank, index) = (self.random.below(self.blocks.len()), self.random.below(self.blocks[0].warps.len()));
            self.complete_copy(rank, index)?;
            self.complete_product(rank, index)?;
        }
        Ok(())
    }

    /// Runs the oldest copy of a warp, if there is one.
    pub(in crate::exec) fn complete_copy(&mut self, rank: usize, index: usize) -> Result<(), Stopped> {
        self.with_warp(rank, index, |cluster, warp| cluster.run_copies(warp, 1))
    }

    /// Runs the oldest product of a warp's warpgroup that all its warps have issued, if there is one.
    pub(in crate::exec) fn complete_product(&mut self, rank: usize, index: usize) -> Result<(), Stopped> {
        self.with_warp(rank, index, |cluster, warp| match cluster.next_product(warp) {
            Some(number) => cluster.run_products(warp, number + 1),
            None => Ok(()),
        })
    }

    fn with_warp(
        &mut self,
        rank: usize,
        index: usize,
        run: impl FnOnce(&mut Self, &mut Warp) -> Result<(), (Fault, u32)>,
    ) -> Result<(), Stopped> {
        let Some(mut warp) = self.blocks[rank].warps[index].take() else { return Ok(()) };
        let place = (warp.rank, warp.index);
        let result = run(self, &mut warp);
        self.blocks[rank].warps[index] = Some(warp);
        result.map_err(|(fault, pc)| Stopped { fault, pc, rank: place.0, warp: place.1 })
    }

    pub(in crate::exec) fn step_stopping(&mut self, index: usize) -> Result<(), Stopped> {
        let (rank, warp) = (self.jobs[index].rank, self.jobs[index].warp);
        self.step_job(index).map_err(|(fault, pc)| Stopped { fault, pc, rank, warp })
    }

    /// Completes something because nothing else can go on; whether there was anything.
    pub(in crate::exec) fn complete_one(&mut self) -> Result<bool, Stopped> {
        if !self.jobs.is_empty() {
            let index = if self.schedule() == Schedule::Random { self.random.below(self.jobs.len()) } else { 0 };
            self.step_stopping(index)?;
            return Ok(true);
        }
        for rank in 0..self.blocks.len() {
            for index in 0..self.blocks[rank].warps.len() {
                if self.warp(rank, index).is_some_and(|warp| warp.asynchronous.copies.iter().any(Copy::signals)) {
                    self.complete_copy(rank, index)?;
                    return Ok(true);
                }
            }
        }
        Ok(false)
    }

    /// Whether the next operation of some lanes would complete asynchronous operations that are still under way.
    pub(in crate::exec) fn completes_others(&self, warp: &Warp, part: &Fragment) -> bool {
        let queues = &warp.asynchronous;
        match &self.launch.program.code[part.pc as usize].op {
            Op::CpWait { left } => {
                let all = self.launch.program.meta[part.pc as usize].mnemonic.ends_with("wait_all");
                queues.copies.iter().any(|copy| copy.is_due(part.mask, *left, all, &queues.copy_groups))
            }
            Op::WgmmaWait { left } => {
                queues.products.iter().any(|product| !product.done && product.group + u64::from(*left) < queues.product_groups)
            }
            Op::BulkWait { left, read } => lanes(part.mask)
                .any(|lane| self.jobs.iter().any(|job| job.is_due(warp, lane, queues.bulk_groups[lane], *left, *read))),
            Op::Exit => queues.has_copies(),
            _ => false,
        }
    }

    /// All threads have ended: what is still under way completes.
    pub(in crate::exec) fn finish(&mut self) -> Result<(), Stopped> {
        while !self.jobs.is_empty() {
            self.step_stopping(0)?;
        }
        Ok(())
    }

    /// A warp has ended.
    pub(in crate::exec) fn end_warp(&mut self, warp: &mut Warp) -> Result<(), Fault> {
        if self.launch.options.sanitize.in_flight {
            let (lane, end) = (0, self.launch.program.code.len() as u32 - 1);
            if let Some(product) = warp.asynchronous.products.iter().find(|product| !product.done) {
                let message = "the warp ends while a warpgroup product is under way: no `wgmma.wait_group` follows it";
                let fault = Fault::new(FindingKind::InFlight, lane, message).after(Some(product.pc));
                self.pass(warp, end, fault)?;
            }
            if let Some(store) = warp.asynchronous.stores.first() {
                let message =
                    "the thread ends while a bulk store may still read shared memory: no `cp.async.bulk.wait_group` follows it";
                let fault = Fault::new(FindingKind::InFlight, store.lane, message).after(Some(store.pc));
                self.pass(warp, end, fault)?;
            }
            self.note_unawaited(warp);
        }
        self.run_copies(warp, usize::MAX).map_err(|(fault, _)| fault)
    }

    /// Shared memory ends with the block's last warp: a copy into it that nobody waited for may come later.
    fn note_unawaited(&mut self, warp: &Warp) {
        let block = &self.blocks[warp.rank];
        if block.live_warps > 1 {
            return;
        }
        let under_way = self.jobs.iter().find(|job| job.writes_to(warp.rank)).map(|job| job.pc);
        let arrived = || block.mbarriers.values().find_map(|barrier| barrier.unawaited);
        let Some(copy) = under_way.or_else(arrived) else { return };
        let (thread, end) = (warp.index as usize * LANES, self.launch.program.code.len() as u32 - 1);
        let kind = FindingKind::InFlight;
        self.note((kind, end, Some(copy)), kind.class(), |cluster| {
            let message = "the block ends, and nobody has waited for a bulk copy into its shared memory".to_owned();
            let (place, earlier) = (cluster.place(warp.rank, Some(thread), end), cluster.place(warp.rank, None, copy));
            Finding::new(kind, message, place, Some(earlier))
        });
    }

    /// No progress for a long time.
    pub(crate) fn livelock(&self) -> Stopped {
        self.deadlock()
    }

    /// What a cluster is stopped with that took longer than it was given.
    pub(crate) fn endless(&self, given: Duration) -> Stopped {
        self.stuck(Some(given))
    }
}
