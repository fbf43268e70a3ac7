//! Asynchronous operations: `cp.async`, bulk copies and asynchronous stores, warpgroup products; their groups and waits.
//!
//! An operation is issued with what the instruction says (addresses, coordinates, descriptors) and touches memory and
//! registers when it runs. A warp's `cp.async` and products run in order; bulk copies run in any order. Bulk stores run in
//! two steps, reading shared memory and writing global memory, because `wait_group.read` waits for the first alone.

use std::collections::VecDeque;

use smallvec::SmallVec;
use tessera_ptx::Type;

use super::access::{Target, addresses};
use super::run::Outcome;
use super::schedule::Stopped;
use super::tensor::Far;
use super::{Cluster, Fault, Warp};
use crate::lanes::{FULL, LANES, lanes};
use crate::options::Schedule;
use crate::program::{Addr, Bulk, BulkEnd, Change, Op, Signal, Space};
use crate::report::FindingKind;
use crate::sanitize::Ticket;
use crate::tensor_map;

/// A warp's asynchronous operations.
#[derive(Clone, Debug, Default)]
pub(crate) struct WarpQueues {
    /// Generations of the cluster's barrier that this warp waited for.
    pub(crate) cluster_generation: u64,
    copies: VecDeque<Copy>,
    /// Closed groups of each lane.
    copy_groups: [u32; LANES],
    bulk_groups: [u32; LANES],
    pub(super) products: VecDeque<Product>,
    product_groups: u64,
    /// Products issued so far.
    pub(super) issued: u64,
    /// By slot: what a product in flight does with it, where sanitizers look.
    pub(super) busy: Vec<Busy>,
}

/// What products in flight do with a register.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Busy {
    Free,
    /// Read since the last `wgmma.fence`: no product may write it.
    Read,
    /// Written since the last `wgmma.fence`, or before the first.
    #[default]
    Dirty,
    /// An operand: it may be read.
    Operand,
    /// An accumulator.
    Accumulator,
}

/// A `cp.async`, or the arrival that follows earlier ones.
#[derive(Clone, Debug)]
struct Copy {
    pc: u32,
    lanes: Vec<CopyLane>,
}

#[derive(Clone, Copy, Debug)]
struct CopyLane {
    lane: usize,
    group: u32,
    what: CopyKind,
    ticket: Ticket,
}

#[derive(Clone, Copy, Debug)]
enum CopyKind {
    Copy { from: Option<Target>, to: Target, bytes: u32, taken: u32 },
    Arrive { rank: usize, offset: u32 },
}

/// A product in flight.
#[derive(Clone, Debug)]
pub(super) struct Product {
    pub(super) pc: u32,
    /// Which of the warp's products it is: the warps of a warpgroup issue the same ones.
    number: u64,
    group: u64,
    pub(super) a: u64,
    pub(super) b: u64,
    pub(super) accumulate: bool,
    pub(super) done: bool,
    pub(super) ticket: Ticket,
}

/// A bulk copy or an asynchronous store.
#[derive(Clone, Debug)]
pub(crate) struct Job {
    pc: u32,
    rank: usize,
    warp: u32,
    lane: usize,
    group: u32,
    what: JobKind,
    ticket: Ticket,
}

#[derive(Clone, Debug)]
enum JobKind {
    /// Into shared memory of the blocks in the list.
    Load { from: Source, to: SmallVec<[usize; 4]>, offset: u32, signal: u32 },
    /// From shared memory; the bytes once they have been read.
    Store { to: Far, offset: u32, reduce: Option<(Change, Option<Type>)>, read: Option<Vec<u8>> },
    /// One thread's registers.
    Word { to: Target, values: SmallVec<[u64; 4]>, bytes: u32, reduce: Option<(Change, Type)>, signal: (usize, u32) },
}

#[derive(Clone, Debug)]
enum Source {
    Far(Far),
    Near { rank: usize, offset: u32, bytes: u32, reduce: Option<(Change, Option<Type>)> },
}

impl Cluster<'_> {
    pub(super) fn start(&mut self, warp: &mut Warp, fragment: usize, pc: u32, active: u32, op: &Op) -> Result<Outcome, Fault> {
        match op {
            Op::CpAsync { to, from, bytes, source, .. } => {
                let (to_at, from_at) = (addresses(warp, *to), addresses(warp, *from));
                let mut list = Vec::new();
                let first = active.trailing_zeros() as usize;
                let ticket = self.ticket(warp, first, false);
                if let Some(sanitizer) = &mut self.sanitizer {
                    let group = warp.asynchronous.copy_groups[first];
                    sanitizer.copy_issued(warp.rank, warp.index as usize * LANES + first, ticket, group);
                }
                for lane in lanes(active) {
                    let taken = source.map_or(*bytes, |reg| (warp.value(reg, lane) as u32).min(*bytes));
                    let target = self.resolve(warp, Space::Shared, to_at[lane], *bytes, *bytes, lane)?;
                    let from = match taken {
                        0 => None,
                        _ => Some(self.resolve(
                            warp,
                            from.space,
                            from_at[lane],
                            taken,
                            if taken == *bytes { *bytes } else { 1 },
                            lane,
                        )?),
                    };
                    let what = CopyKind::Copy { from, to: target, bytes: *bytes, taken };
                    list.push(CopyLane { lane, group: warp.asynchronous.copy_groups[lane], what, ticket });
                }
                warp.asynchronous.copies.push_back(Copy { pc, lanes: list });
                if self.schedule() == Schedule::Eager {
                    self.run_copies(warp, usize::MAX).map_err(|(fault, _)| fault)?;
                }
            }
            Op::CpCommit => {
                for lane in lanes(active) {
                    warp.asynchronous.copy_groups[lane] += 1;
                }
            }
            Op::CpWait { left } => {
                let groups = warp.asynchronous.copy_groups;
                // `wait_all` also waits for copies whose group is not closed.
                let all = self.launch.program.meta[pc as usize].mnemonic.ends_with("wait_all");
                let due = |part: &CopyLane| active >> part.lane & 1 == 1 && (all || part.group + left < groups[part.lane]);
                let last = warp.asynchronous.copies.iter().rposition(|copy| copy.lanes.iter().any(due));
                if let Some(last) = last {
                    self.run_copies(warp, last + 1).map_err(|(fault, _)| fault)?;
                }
                if let Some(sanitizer) = &mut self.sanitizer {
                    let first = active.trailing_zeros() as usize;
                    let end = if all { None } else { Some(groups[first].saturating_sub(*left)) };
                    sanitizer.copies_waited(warp.rank, warp.index as usize * LANES + first, end);
                }
            }
            Op::CpArrive { addr, counted } => {
                let at = addresses(warp, *addr);
                let mut list = Vec::new();
                for lane in lanes(active) {
                    let Target::Shared { rank, offset } = self.resolve(warp, addr.space, at[lane], 8, 8, lane)? else { continue };
                    if *counted {
                        self.add_pending(rank, offset, lane)?;
                    }
                    let (group, what) = (warp.asynchronous.copy_groups[lane], CopyKind::Arrive { rank, offset });
                    list.push(CopyLane { lane, group, what, ticket: Ticket::default() });
                }
                warp.asynchronous.copies.push_back(Copy { pc, lanes: list });
                if self.schedule() == Schedule::Eager {
                    self.run_copies(warp, usize::MAX).map_err(|(fault, _)| fault)?;
                }
            }
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
            Op::BulkWait { left, read } => {
                for lane in lanes(active) {
                    let closed = warp.asynchronous.bulk_groups[lane];
                    let mine = |job: &Job| {
                        let stored = matches!(job.what, JobKind::Store { .. });
                        (job.rank, job.warp, job.lane) == (warp.rank, warp.index, lane) && stored && job.group + left < closed
                    };
                    while let Some(index) = self.jobs.iter().position(|job| mine(job) && !(*read && was_read(job))) {
                        self.step_job(index).map_err(|(fault, _)| fault)?;
                    }
                    if let Some(sanitizer) = &mut self.sanitizer {
                        sanitizer.bulk_waited(warp.rank, warp.index as usize * LANES + lane, closed.saturating_sub(*left), *read);
                    }
                }
            }
            Op::StoreAsync { from, bytes, addr, barrier, reduce } => {
                let (to_at, barrier_at) = (addresses(warp, *addr), addresses(warp, *barrier));
                for lane in lanes(active) {
                    let total = bytes * from.len() as u32;
                    let to = self.resolve(warp, addr.space, to_at[lane], total, total, lane)?;
                    let signal = match self.resolve(warp, barrier.space, barrier_at[lane], 8, 8, lane)? {
                        Target::Shared { rank, offset } => (rank, offset),
                        _ => continue,
                    };
                    let values = from.iter().map(|reg| warp.value(*reg, lane)).collect();
                    let what = JobKind::Word { to, values, bytes: *bytes, reduce: *reduce, signal };
                    self.submit(warp, lane, pc, what)?;
                }
            }
            Op::TensorMapReplace { addr, field, index, value } => {
                let at = addresses(warp, *addr);
                for lane in lanes(active) {
                    let mut bytes = [0; 128];
                    self.read_bytes(warp, addr.space, at[lane], &mut bytes, lane)?;
                    let value = warp.value(*value, lane);
                    tensor_map::replace(&mut bytes, *field, *index, value)
                        .map_err(|message| Fault::new(FindingKind::BulkCopy, lane, message))?;
                    self.write_bytes(warp, addr.space, at[lane], &bytes, lane)?;
                }
            }
            Op::TensorMapCopy { to, from } => {
                let (to_at, from_at) = (addresses(warp, *to), addresses(warp, *from));
                // All lanes name the same map.
                let lane = active.trailing_zeros() as usize;
                let mut bytes = [0; 128];
                self.read_bytes(warp, from.space, from_at[lane], &mut bytes, lane)?;
                self.write_bytes(warp, to.space, to_at[lane], &bytes, lane)?;
            }
            Op::Wgmma(_) | Op::WgmmaFence | Op::WgmmaCommit | Op::WgmmaWait { .. } => {
                let Some(mask) = self.gather(warp, fragment, pc, active, FULL) else {
                    return Ok(Outcome::Park(super::Wait::Members { mask: active }));
                };
                if mask != FULL {
                    let message = "a warpgroup instruction needs all 32 lanes of its warp".to_owned();
                    return Err(Fault::new(FindingKind::Matrix, active.trailing_zeros() as usize, message));
                }
                return self.warpgroup(warp, fragment, pc, op);
            }
            _ => {}
        }
        Ok(Outcome::Next)
    }

    fn write_bytes(&mut self, warp: &mut Warp, space: Space, address: u64, bytes: &[u8], lane: usize) -> Result<(), Fault> {
        self.progress += 1;
        for (index, byte) in bytes.iter().enumerate() {
            let target = self.resolve(warp, space, address.wrapping_add(index as u64), 1, 1, lane)?;
            self.write(warp, target, 1, lane, u64::from(*byte))?;
        }
        Ok(())
    }

    fn ticket(&mut self, warp: &Warp, lane: usize, asynchronous: bool) -> Ticket {
        match &mut self.sanitizer {
            Some(sanitizer) => sanitizer.issue(warp.rank, warp.index as usize * LANES + lane, asynchronous),
            None => Ticket::default(),
        }
    }

    fn add_pending(&mut self, rank: usize, offset: u32, lane: usize) -> Result<(), Fault> {
        match self.blocks[rank].mbarriers.get_mut(&offset) {
            Some(barrier) => {
                barrier.pending += 1;
                Ok(())
            }
            None => Err(Fault::new(
                FindingKind::Mbarrier,
                lane,
                format!("there is no mbarrier at shared {offset:#x}: it was not initialised"),
            )),
        }
    }

    /// Runs the oldest copies of a warp, so many of them.
    fn run_copies(&mut self, warp: &mut Warp, count: usize) -> Result<(), (Fault, u32)> {
        for _ in 0..count {
            let Some(copy) = warp.asynchronous.copies.pop_front() else { break };
            self.progress += 1;
            for part in &copy.lanes {
                self.run_copy(warp, part, copy.pc).map_err(|fault| (fault, copy.pc))?;
            }
        }
        Ok(())
    }

    fn run_copy(&mut self, warp: &mut Warp, part: &CopyLane, pc: u32) -> Result<(), Fault> {
        match part.what {
            CopyKind::Copy { from, to, bytes, taken } => {
                for at in 0..bytes {
                    let byte = match from {
                        Some(from) if at < taken => self.read(warp, super::access::shifted(from, at), 1, part.lane),
                        _ => 0,
                    };
                    self.write(warp, super::access::shifted(to, at), 1, part.lane, byte)?;
                }
                self.observe_job(pc, part.ticket, from.map(|from| (from, taken)), Some((to, bytes)));
                Ok(())
            }
            CopyKind::Arrive { rank, offset } => {
                if let Some(sanitizer) = &mut self.sanitizer {
                    let thread = warp.index as usize * LANES + part.lane;
                    sanitizer.copies_signal(warp.rank, thread, rank, offset);
                }
                self.arrive(rank, offset, 1, false, part.lane).map(drop)
            }
        }
    }

    fn map_at(&mut self, warp: &mut Warp, map: Addr, at: &[crate::program::Reg], lane: usize) -> Result<Far, Fault> {
        let address = addresses(warp, map)[lane];
        if !address.is_multiple_of(64) {
            let message = format!("a tensor map at {address:#x}: a multiple of 64 is needed");
            return Err(Fault::new(FindingKind::Misaligned, lane, message));
        }
        let mut bytes = [0; 128];
        self.read_bytes(warp, map.space, address, &mut bytes, lane)?;
        let map = tensor_map::decode(&bytes).map_err(|message| Fault::new(FindingKind::BulkCopy, lane, message))?;
        if map.rank != at.len() {
            let message = format!("{} coordinates for a tensor map of {} dimensions", at.len(), map.rank);
            return Err(Fault::new(FindingKind::BulkCopy, lane, message));
        }
        let mut place = [0; 5];
        for (place, reg) in place.iter_mut().zip(at) {
            *place = warp.value(*reg, lane) as u32 as i32;
        }
        Ok(Far::Box { map: Box::new(map), at: place })
    }

    fn shared_line(&mut self, warp: &mut Warp, end: &BulkEnd, lane: usize) -> Result<(usize, u32), Fault> {
        let BulkEnd::Line(addr) = end else {
            return Err(Fault::new(FindingKind::BulkCopy, lane, "a tensor on the shared side of a bulk copy"));
        };
        let address = addresses(warp, *addr)[lane];
        match self.resolve(warp, addr.space, address, 1, 1, lane)? {
            Target::Shared { rank, offset } => Ok((rank, offset)),
            _ => Err(Fault::new(FindingKind::BulkCopy, lane, "this side of a bulk copy must be shared memory")),
        }
    }

    fn far_side(&mut self, warp: &mut Warp, end: &BulkEnd, bytes: Option<u32>, lane: usize) -> Result<Far, Fault> {
        match end {
            BulkEnd::Tensor { map, at } => self.map_at(warp, *map, at, lane),
            BulkEnd::Line(addr) => Ok(Far::Line { address: addresses(warp, *addr)[lane], bytes: bytes.unwrap_or(0) }),
        }
    }

    fn start_bulk(&mut self, warp: &mut Warp, lane: usize, pc: u32, bulk: &Bulk) -> Result<(), Fault> {
        let bytes = bulk.bytes.map(|reg| warp.value(reg, lane) as u32);
        let is_shared = |end: &BulkEnd| matches!(end, BulkEnd::Line(addr) if addr.space == Space::Shared);
        let what = match (is_shared(&bulk.to), bulk.signal) {
            (true, Signal::Mbarrier(signal)) => {
                let (to, offset) = self.shared_line(warp, &bulk.to, lane)?;
                let signal_at = addresses(warp, signal)[lane];
                let Target::Shared { rank: signal_rank, offset: signal } =
                    self.resolve(warp, signal.space, signal_at, 8, 8, lane)?
                else {
                    return Err(Fault::new(FindingKind::BulkCopy, lane, "a bulk copy signals mbarriers in shared memory"));
                };
                if signal_rank != to && bulk.multicast.is_none() {
                    let message = "a bulk copy signals an mbarrier of another block than the one it writes to";
                    return Err(Fault::new(FindingKind::BulkCopy, lane, message));
                }
                let mut targets = SmallVec::new();
                match bulk.multicast {
                    None => targets.push(to),
                    Some(mask) => {
                        let mask = warp.value(mask, lane) as u32 & 0xffff;
                        if mask == 0 || mask >> self.blocks.len() != 0 {
                            let message = format!("a multicast to the blocks {mask:#b} of a cluster of {}", self.blocks.len());
                            return Err(Fault::new(FindingKind::BulkCopy, lane, message));
                        }
                        targets.extend(lanes(mask));
                    }
                }
                let from = if is_shared(&bulk.from) {
                    let (rank, from) = self.shared_line(warp, &bulk.from, lane)?;
                    let bytes = bytes.unwrap_or(0);
                    self.check_near(rank, from, bytes, lane)?;
                    self.check_copy(&Far::Line { address: u64::from(from), bytes }, offset, lane)?;
                    Source::Near { rank, offset: from, bytes, reduce: bulk.reduce }
                } else {
                    let far = self.far_side(warp, &bulk.from, bytes, lane)?;
                    self.check_copy(&far, offset, lane)?;
                    Source::Far(far)
                };
                let size = match &from {
                    Source::Far(far) => far.bytes(),
                    Source::Near { bytes, .. } => *bytes,
                };
                for &rank in &targets {
                    self.check_near(rank, offset, size, lane)?;
                }
                JobKind::Load { from, to: targets, offset, signal }
            }
            _ => {
                let (rank, offset) = self.shared_line(warp, &bulk.from, lane)?;
                if rank != warp.rank {
                    return Err(Fault::new(FindingKind::BulkCopy, lane, "a bulk store reads the own block's shared memory"));
                }
                let to = self.far_side(warp, &bulk.to, bytes, lane)?;
                self.check_copy(&to, offset, lane)?;
                self.check_near(rank, offset, to.bytes(), lane)?;
                JobKind::Store { to, offset, reduce: bulk.reduce, read: None }
            }
        };
        self.submit(warp, lane, pc, what)
    }

    fn submit(&mut self, warp: &mut Warp, lane: usize, pc: u32, what: JobKind) -> Result<(), Fault> {
        let ticket = self.ticket(warp, lane, true);
        let group = warp.asynchronous.bulk_groups[lane];
        if let (JobKind::Store { .. }, Some(sanitizer)) = (&what, &mut self.sanitizer) {
            sanitizer.bulk_issued(warp.rank, warp.index as usize * LANES + lane, ticket, group);
        }
        if let JobKind::Load { to, signal, .. } = &what
            && let Some(mut sanitizer) = self.sanitizer.take()
        {
            for &rank in to {
                sanitizer.will_signal(self, ticket, pc, rank, *signal);
            }
            self.sanitizer = Some(sanitizer);
        }
        self.jobs.push(Job { pc, rank: warp.rank, warp: warp.index, lane, group, what, ticket });
        if self.schedule() == Schedule::Eager {
            let count = self.jobs.len();
            // The read and the write of a store are two steps.
            while self.jobs.len() == count {
                self.step_job(count - 1).map_err(|(fault, _)| fault)?;
            }
        }
        Ok(())
    }

    /// Runs a job's next step.
    fn step_job(&mut self, index: usize) -> Result<(), (Fault, u32)> {
        self.progress += 1;
        let mut job = self.jobs.swap_remove(index);
        let failed = |fault| (fault, job.pc);
        match &mut job.what {
            JobKind::Load { from, to, offset, signal } => {
                let (data, mode) = match from {
                    Source::Far(far) => (self.fetch(far, job.lane).map_err(failed)?, far.swizzle()),
                    Source::Near { rank, offset, bytes, .. } => (self.read_near(*rank, *offset, *bytes, 0), 0),
                };
                let source = match from {
                    Source::Far(Far::Line { address, bytes }) => self
                        .launch
                        .heap
                        .find(*address, u64::from(*bytes))
                        .map(|allocation| (Target::Global { allocation, address: *address }, *bytes)),
                    Source::Far(Far::Box { .. }) => None,
                    Source::Near { rank, offset, bytes, .. } => Some((Target::Shared { rank: *rank, offset: *offset }, *bytes)),
                };
                let reduce = match from {
                    Source::Near { reduce, .. } => *reduce,
                    Source::Far(_) => None,
                };
                let (to, offset, signal) = (to.clone(), *offset, *signal);
                for rank in to {
                    match reduce {
                        None => self.write_near(rank, offset, &data, mode),
                        Some((how, ty)) => {
                            let width = ty.map_or(4, |ty| ty.bits() / 8) as usize;
                            for (index, cell) in data.chunks_exact(width).enumerate() {
                                let mut word = [0; 8];
                                word[..width].copy_from_slice(cell);
                                let operand = u64::from_le_bytes(word);
                                let target = Target::Shared { rank, offset: offset + (index * width) as u32 };
                                self.update(target, width as u32, &mut |old| {
                                    super::atomic::apply(how, ty.unwrap_or(Type::U32), old, operand, 0)
                                });
                            }
                        }
                    }
                    let written = (Target::Shared { rank, offset }, data.len() as u32);
                    self.observe_job(job.pc, job.ticket, source, Some(written));
                    if let Some(sanitizer) = &mut self.sanitizer {
                        sanitizer.signal(job.ticket, rank, signal);
                    }
                    self.complete_bytes(rank, signal, data.len() as u32, job.lane).map_err(failed)?;
                }
                if let Some(sanitizer) = &mut self.sanitizer {
                    sanitizer.retire(job.ticket);
                }
            }
            JobKind::Store { to, offset, reduce, read } => match read {
                None => {
                    let bytes = to.bytes();
                    *read = Some(self.read_near(job.rank, *offset, bytes, to.swizzle()));
                    let source = (Target::Shared { rank: job.rank, offset: *offset }, bytes);
                    self.observe_job(job.pc, job.ticket, Some(source), None);
                    self.jobs.push(job);
                    return Ok(());
                }
                Some(data) => {
                    let written = match to {
                        Far::Line { address, bytes } => self
                            .launch
                            .heap
                            .find(*address, u64::from(*bytes))
                            .map(|allocation| (Target::Global { allocation, address: *address }, *bytes)),
                        Far::Box { .. } => None,
                    };
                    self.deliver(to, data, *reduce, job.lane).map_err(failed)?;
                    if reduce.is_none() {
                        self.observe_job(job.pc, job.ticket, None, written);
                    }
                }
            },
            JobKind::Word { to, values, bytes, reduce, signal } => {
                let (to, bytes, reduce, signal) = (*to, *bytes, *reduce, *signal);
                for (index, value) in values.iter().copied().enumerate() {
                    let cell = super::access::shifted(to, index as u32 * bytes);
                    self.update(cell, bytes, &mut |old| match reduce {
                        Some((how, ty)) => super::atomic::apply(how, ty, old, value, 0),
                        None => value,
                    });
                }
                let total = bytes * values.len() as u32;
                if reduce.is_none() {
                    self.observe_job(job.pc, job.ticket, None, Some((to, total)));
                }
                if let Some(sanitizer) = &mut self.sanitizer {
                    sanitizer.signal(job.ticket, signal.0, signal.1);
                }
                self.complete_bytes(signal.0, signal.1, total, job.lane).map_err(failed)?;
                if let Some(sanitizer) = &mut self.sanitizer {
                    sanitizer.retire(job.ticket);
                }
            }
        }
        Ok(())
    }

    /// Tells the sanitizer what a job reads and writes.
    fn observe_job(&mut self, pc: u32, ticket: Ticket, read: Option<(Target, u32)>, write: Option<(Target, u32)>) {
        let Some(mut sanitizer) = self.sanitizer.take() else { return };
        if let Some((target, bytes)) = read {
            sanitizer.job_access(self, ticket, pc, target, bytes, false);
        }
        if let Some((target, bytes)) = write {
            sanitizer.job_access(self, ticket, pc, target, bytes, true);
        }
        self.sanitizer = Some(sanitizer);
    }

    /// Runs a step of some job where the seed says so.
    pub(super) fn perhaps_complete(&mut self) -> Result<(), Stopped> {
        if self.random.below(4) == 0 && !self.jobs.is_empty() {
            let index = self.random.below(self.jobs.len());
            self.step_stopping(index)?;
        }
        if self.random.below(4) == 0 {
            let (rank, index) = (self.random.below(self.blocks.len()), self.random.below(self.blocks[0].warps.len()));
            let Some(mut warp) = self.blocks[rank].warps[index].take() else { return Ok(()) };
            let place = (warp.rank, warp.index);
            let mut result = Ok(());
            if !warp.asynchronous.copies.is_empty() {
                result = self.run_copies(&mut warp, 1);
            }
            if result.is_ok() {
                let next =
                    warp.asynchronous.products.iter().find(|product| !product.done).map_or(0, |product| product.number + 1);
                result = if next <= self.issued_by_all(&warp) { self.run_products(&mut warp, next) } else { Ok(()) };
            }
            self.blocks[rank].warps[index] = Some(warp);
            result.map_err(|(fault, pc)| Stopped { fault, pc, rank: place.0, warp: place.1 })?;
        }
        Ok(())
    }

    fn step_stopping(&mut self, index: usize) -> Result<(), Stopped> {
        let (rank, warp) = (self.jobs[index].rank, self.jobs[index].warp);
        self.step_job(index).map_err(|(fault, pc)| Stopped { fault, pc, rank, warp })
    }

    /// Completes something because nothing else can go on; whether there was anything.
    pub(super) fn complete_one(&mut self) -> Result<bool, Stopped> {
        if !self.jobs.is_empty() {
            let index = if self.schedule() == Schedule::Random { self.random.below(self.jobs.len()) } else { 0 };
            self.step_stopping(index)?;
            return Ok(true);
        }
        for rank in 0..self.blocks.len() {
            for index in 0..self.blocks[rank].warps.len() {
                let waits = |copy: &Copy| copy.lanes.iter().any(|part| matches!(part.what, CopyKind::Arrive { .. }));
                if self.warp(rank, index).is_some_and(|warp| warp.asynchronous.copies.iter().any(waits)) {
                    let Some(mut warp) = self.blocks[rank].warps[index].take() else { continue };
                    let place = (warp.rank, warp.index);
                    let result = self.run_copies(&mut warp, 1);
                    self.blocks[rank].warps[index] = Some(warp);
                    result.map_err(|(fault, pc)| Stopped { fault, pc, rank: place.0, warp: place.1 })?;
                    return Ok(true);
                }
            }
        }
        Ok(false)
    }

    /// All threads have ended: what is still under way completes.
    pub(super) fn finish(&mut self) -> Result<(), Stopped> {
        while !self.jobs.is_empty() {
            self.step_stopping(0)?;
        }
        Ok(())
    }

    /// A warp has ended.
    pub(super) fn end_warp(&mut self, warp: &mut Warp) -> Result<(), Fault> {
        if self.launch.options.sanitize.in_flight {
            let lane = 0;
            if warp.asynchronous.products.iter().any(|product| !product.done) {
                let message = "the warp ends while a warpgroup product is under way: no `wgmma.wait_group` follows it";
                return Err(Fault::new(FindingKind::InFlight, lane, message));
            }
            let reads = |job: &Job| {
                (job.rank, job.warp) == (warp.rank, warp.index) && matches!(job.what, JobKind::Store { .. }) && !was_read(job)
            };
            if let Some(job) = self.jobs.iter().find(|job| reads(job)) {
                let message =
                    "the thread ends while a bulk store may still read shared memory: no `cp.async.bulk.wait_group` follows it";
                return Err(Fault::new(FindingKind::InFlight, job.lane, message));
            }
        }
        self.run_copies(warp, usize::MAX).map_err(|(fault, _)| fault)
    }

    /// No progress for a long time.
    pub(crate) fn livelock(&self) -> Stopped {
        self.deadlock()
    }

    // Warpgroup products.

    fn warpgroup(&mut self, warp: &mut Warp, fragment: usize, pc: u32, op: &Op) -> Result<Outcome, Fault> {
        match op {
            Op::Wgmma(wgmma) => {
                if self.blocks[warp.rank].warps.len() < (warp.index as usize / 4 + 1) * 4 {
                    let message = "a warpgroup product needs a warpgroup: four warps, of which the first has a number that is a multiple of 4";
                    return Err(Fault::new(FindingKind::Matrix, 0, message));
                }
                let (a, b) = super::wgmma::descriptors(warp, wgmma)?;
                self.check_registers(warp, wgmma)?;
                let accumulate = warp.predicate(wgmma.accumulate) & 1 == 1;
                if !warp.written.is_empty() {
                    for reg in &wgmma.d {
                        let written = &mut warp.written[reg.slot as usize];
                        if accumulate && *written != FULL {
                            let name = &self.launch.program.names[reg.slot as usize];
                            let message = format!("the product adds to `{name}`, to which nothing was written");
                            return Err(Fault::new(FindingKind::Uninitialized, written.trailing_ones() as usize, message));
                        }
                        *written = FULL;
                    }
                }
                let (group, number) = (warp.asynchronous.product_groups, warp.asynchronous.issued);
                let thread = warp.index as usize * LANES;
                let ticket = self.sanitizer.as_mut().map(|sanitizer| sanitizer.product_issued(warp.rank, thread, number));
                let ticket = ticket.unwrap_or_default();
                warp.asynchronous.products.push_back(Product { pc, number, group, a, b, accumulate, done: false, ticket });
                warp.asynchronous.issued += 1;
                self.progress += 1;
                super::wgmma::mark(warp, wgmma);
                if self.schedule() == Schedule::Eager {
                    let number = self.issued_by_all(warp);
                    self.run_products(warp, number).map_err(|(fault, _)| fault)?;
                }
            }
            Op::WgmmaFence => {
                for busy in &mut warp.asynchronous.busy {
                    if matches!(busy, Busy::Dirty | Busy::Read) {
                        *busy = Busy::Free;
                    }
                }
            }
            Op::WgmmaCommit => warp.asynchronous.product_groups += 1,
            Op::WgmmaWait { left } => {
                warp.fragments[fragment].woken = false;
                let closed = warp.asynchronous.product_groups;
                let due = |product: &&Product| product.group + u64::from(*left) < closed;
                let Some(last) = warp.asynchronous.products.iter().rev().find(due).map(|product| product.number) else {
                    return Ok(Outcome::Next);
                };
                // A product is the whole warpgroup's: it ends after all four warps have issued it.
                if self.issued_by_all(warp) <= last {
                    return Ok(Outcome::Park(super::Wait::Products { issued: last + 1 }));
                }
                self.run_products(warp, last + 1).map_err(|(fault, _)| fault)?;
                while let Some(product) = warp.asynchronous.products.pop_front_if(|product| product.number <= last) {
                    if let Some(sanitizer) = &mut self.sanitizer {
                        sanitizer.product_waited(warp.rank, warp.index as usize * LANES, product.number);
                    }
                }
                super::wgmma::remark(warp, self.launch.program);
            }
            _ => {}
        }
        Ok(Outcome::Next)
    }

    /// The other warps of a warp's warpgroup.
    fn siblings(warp: &Warp) -> impl Iterator<Item = usize> + use<> {
        let own = warp.index as usize;
        (own / 4 * 4..own / 4 * 4 + 4).filter(move |&index| index != own)
    }

    /// Products that every warp of the warpgroup has issued.
    pub(super) fn issued_by_all(&self, warp: &Warp) -> u64 {
        let others = Self::siblings(warp).filter_map(|index| self.warp(warp.rank, index)).map(|other| other.asynchronous.issued);
        others.fold(warp.asynchronous.issued, u64::min)
    }

    /// Runs a warpgroup's products before number `end` that have not run yet.
    fn run_products(&mut self, warp: &mut Warp, end: u64) -> Result<(), (Fault, u32)> {
        self.run_own_products(warp, end)?;
        for index in Self::siblings(warp) {
            let Some(mut other) = self.blocks[warp.rank].warps.get_mut(index).and_then(Option::take) else { continue };
            let result = self.run_own_products(&mut other, end);
            self.blocks[warp.rank].warps[index] = Some(other);
            result?;
        }
        Ok(())
    }

    fn run_own_products(&mut self, warp: &mut Warp, end: u64) -> Result<(), (Fault, u32)> {
        for index in 0..warp.asynchronous.products.len() {
            let product = &warp.asynchronous.products[index];
            if product.done || product.number >= end {
                continue;
            }
            let product = product.clone();
            let Op::Wgmma(wgmma) = &self.launch.program.code[product.pc as usize].op else { continue };
            self.multiply(warp, wgmma, &product).map_err(|fault| (fault, product.pc))?;
            warp.asynchronous.products[index].done = true;
        }
        Ok(())
    }

    /// Accumulators and register operands must not have been written since the last fence.
    fn check_registers(&mut self, warp: &Warp, wgmma: &crate::program::Wgmma) -> Result<(), Fault> {
        if !self.launch.options.sanitize.in_flight || warp.asynchronous.busy.is_empty() {
            return Ok(());
        }
        let operands: &[crate::program::Reg] = match &wgmma.a {
            crate::program::WgmmaA::Registers(regs) => regs,
            crate::program::WgmmaA::Descriptor(_) => &[],
        };
        let touched = |reg: &&crate::program::Reg| match warp.asynchronous.busy[reg.slot as usize] {
            Busy::Dirty => true,
            Busy::Read => !operands.contains(reg),
            Busy::Free | Busy::Operand | Busy::Accumulator => false,
        };
        if let Some(reg) = wgmma.d.iter().chain(operands).find(touched) {
            let name = &self.launch.program.names[reg.slot as usize];
            let message = format!("no `wgmma.fence` stands between the last use of `{name}` and the product");
            return Err(Fault::new(FindingKind::InFlight, 0, message));
        }
        Ok(())
    }

    /// Ordinary instructions must leave alone what products in flight use.
    pub(super) fn check_in_flight(&mut self, warp: &mut Warp, pc: u32) -> Result<(), Fault> {
        if !self.launch.options.sanitize.in_flight || matches!(self.launch.program.code[pc as usize].op, Op::Wgmma(_)) {
            return Ok(());
        }
        let program = self.launch.program;
        let meta = &program.meta[pc as usize];
        if warp.asynchronous.busy.is_empty() {
            warp.asynchronous.busy = vec![Busy::default(); program.slots.len()];
        }
        for &slot in &meta.reads {
            let busy = &mut warp.asynchronous.busy[slot as usize];
            if *busy == Busy::Free {
                *busy = Busy::Read;
            }
            if *busy == Busy::Accumulator {
                let message = format!("`{}` is read while a product that writes it is under way", program.names[slot as usize]);
                return Err(Fault::new(FindingKind::InFlight, 0, message));
            }
        }
        for &slot in &meta.writes {
            let busy = &mut warp.asynchronous.busy[slot as usize];
            match busy {
                Busy::Accumulator | Busy::Operand => {
                    let message =
                        format!("`{}` is written while a product that uses it is under way", program.names[slot as usize]);
                    return Err(Fault::new(FindingKind::InFlight, 0, message));
                }
                Busy::Free | Busy::Read | Busy::Dirty => *busy = Busy::Dirty,
            }
        }
        Ok(())
    }
}

fn was_read(job: &Job) -> bool {
    matches!(job.what, JobKind::Store { read: Some(_), .. })
}
