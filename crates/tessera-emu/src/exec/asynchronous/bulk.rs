//! Bulk copies and asynchronous stores.
//!
//! They run in any order. A bulk store runs in two steps, reading shared memory and writing global memory, because
//! `wait_group.read` waits for the first alone.

use smallvec::SmallVec;
use tessera_ptx::{Type, Word};

use super::Store;
use crate::exec::access::{Target, addresses, shifted};
use crate::exec::tensor::Far;
use crate::exec::undefined::{Lacking, Use, Who};
use crate::exec::{Cluster, Fault, Warp, atomic};
use crate::finding::FindingKind;
use crate::lanes::{LANES, lanes};
use crate::options::Schedule;
use crate::program::{Addr, Bulk, BulkEnd, Change, Reg, Signal, Space, Window};
use crate::sanitize::{JobAccess, JobPart, Ticket};
use crate::tensor_map;

/// A bulk copy or an asynchronous store.
#[derive(Clone, Debug)]
pub(crate) struct Job {
    pub(super) pc: u32,
    pub(in crate::exec) rank: usize,
    pub(in crate::exec) warp: u32,
    pub(super) lane: usize,
    /// Which of the warp's bulk copies it is.
    pub(in crate::exec) number: u32,
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
    Word {
        to: Target,
        values: SmallVec<[u64; 4]>,
        bytes: u32,
        reduce: Option<(Change, Type)>,
        signal: (usize, u32),
        /// Of each value: its undefined bits, where they are followed.
        undefined: Vec<Lacking>,
    },
}

#[derive(Clone, Debug)]
enum Source {
    Far(Far),
    Near { rank: usize, offset: u32, bytes: u32, reduce: Option<(Change, Option<Type>)> },
}

impl Job {
    /// Whether it is a store of a thread's group.
    fn is_store(&self) -> bool {
        matches!(self.what, JobKind::Store { .. })
    }

    fn was_read(&self) -> bool {
        matches!(self.what, JobKind::Store { read: Some(_), .. })
    }

    fn part(&self) -> JobPart {
        JobPart { ticket: self.ticket, pc: self.pc, lane: None }
    }

    fn who(&self) -> Who {
        Who { rank: self.rank, thread: self.warp as usize * LANES + self.lane, pc: self.pc }
    }

    /// Whether a thread's wait that leaves so many of its closed groups asks for it.
    pub(super) fn is_due(&self, warp: &Warp, lane: usize, closed: u32, left: u32, read: bool) -> bool {
        (self.rank, self.warp, self.lane) == (warp.rank, warp.index, lane)
            && self.is_store()
            && self.group + left < closed
            && !(read && self.was_read())
    }

    /// Whether it will write to the shared memory of a block.
    pub(super) fn writes_to(&self, rank: usize) -> bool {
        matches!(&self.what, JobKind::Load { to, .. } if to.contains(&rank))
    }
}

/// Bytes of an element that a bulk copy reduces.
fn width_of(ty: Option<Type>) -> u32 {
    ty.map_or(4, |ty| ty.bits() / 8)
}

/// Places without where they stand in a box.
fn places(list: &[(Target, u32, u32)]) -> Vec<(Target, u32)> {
    list.iter().map(|&(target, bytes, _)| (target, bytes)).collect()
}

impl Cluster<'_> {
    fn map_at(
        &mut self,
        warp: &mut Warp,
        (map, at, window): (Addr, &[Reg], &Window),
        lane: usize,
        pc: u32,
    ) -> Result<Far, Fault> {
        let address = addresses(warp, map)[lane];
        if !address.is_multiple_of(64) {
            let message = format!("a tensor map at {address:#x}: a multiple of 64 is needed");
            return Err(Fault::new(FindingKind::Misaligned, lane, message));
        }
        let mut bytes = [0; 128];
        self.read_bytes(warp, map.space, address, &mut bytes, lane)?;
        let source = self.resolve(warp, map.space, address, 128, 1, lane)?;
        self.need_bytes(warp, source, tensor_map::SAID as u32, Who::lane(warp, lane, pc), "the tensor map", Use::Operand);
        let map = tensor_map::decode(&bytes).map_err(|message| Fault::new(FindingKind::BulkCopy, lane, message))?;
        if map.rank != at.len() {
            let message = format!("{} coordinates for a tensor map of {} dimensions", at.len(), map.rank);
            return Err(Fault::new(FindingKind::BulkCopy, lane, message));
        }
        let mut offsets = [0; 3];
        match (window, &map.pixels) {
            (Window::Tiled, None) => {}
            (Window::Im2col { offsets: regs }, Some(_)) => {
                for (offset, reg) in offsets.iter_mut().zip(regs) {
                    *offset = warp.value(*reg, lane) as u16;
                }
            }
            (Window::Tiled, Some(_)) => {
                return Err(Fault::new(FindingKind::BulkCopy, lane, "a tiled copy with a tensor map of the im2col mode"));
            }
            (Window::Im2col { .. }, None) => {
                return Err(Fault::new(FindingKind::BulkCopy, lane, "an im2col copy with a tiled tensor map"));
            }
        }
        let mut place = [0; 5];
        for (place, reg) in place.iter_mut().zip(at) {
            *place = warp.value(*reg, lane) as u32 as i32;
        }
        Ok(Far::Box { map: Box::new(map), at: place, offsets })
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

    fn far_side(&mut self, warp: &mut Warp, end: &BulkEnd, bytes: Option<u32>, (lane, pc): (usize, u32)) -> Result<Far, Fault> {
        match end {
            BulkEnd::Tensor { map, at, window } => self.map_at(warp, (*map, at, window), lane, pc),
            BulkEnd::Line(addr) => Ok(Far::Line { address: addresses(warp, *addr)[lane], bytes: bytes.unwrap_or(0) }),
        }
    }

    pub(super) fn start_bulk(&mut self, warp: &mut Warp, lane: usize, pc: u32, bulk: &Bulk) -> Result<(), Fault> {
        let bytes = bulk.bytes.map(|reg| warp.value(reg, lane) as u32);
        let is_shared =
            |end: &BulkEnd| matches!(end, BulkEnd::Line(addr) if matches!(addr.space, Space::Shared | Space::Cluster));
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
                    let far = self.far_side(warp, &bulk.from, bytes, (lane, pc))?;
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
                let to = self.far_side(warp, &bulk.to, bytes, (lane, pc))?;
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
        if matches!(what, JobKind::Store { .. }) && self.launch.options.sanitize.in_flight {
            warp.asynchronous.stores.push(Store { pc, lane, group });
        }
        let number = warp.asynchronous.bulk_issued;
        warp.asynchronous.bulk_issued += 1;
        self.jobs.push(Job { pc, rank: warp.rank, warp: warp.index, lane, number, group, what, ticket });
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
    pub(super) fn step_job(&mut self, index: usize) -> Result<(), (Fault, u32)> {
        self.progress += 1;
        let job = self.jobs.swap_remove(index);
        let pc = job.pc;
        let done = match &job.what {
            JobKind::Load { .. } => self.bring(job),
            JobKind::Store { read: None, .. } => {
                self.read_stored(job);
                Ok(())
            }
            JobKind::Store { read: Some(_), .. } => self.write_stored(job),
            JobKind::Word { .. } => self.send(job),
        };
        done.map_err(|fault| (fault, pc))
    }

    /// Brings bytes to shared memory and signals that they are there.
    fn bring(&mut self, job: Job) -> Result<(), Fault> {
        let JobKind::Load { from, to, offset, signal } = &job.what else { return Ok(()) };
        let (who, pc) = (job.who(), job.pc);
        let (data, mode) = match from {
            Source::Far(far) => match self.fetch(far, job.lane) {
                Ok(data) => (data, far.swizzle()),
                Err(fault) => {
                    self.pass_at((job.rank, job.warp), pc, fault)?;
                    (vec![0; far.bytes() as usize], far.swizzle())
                }
            },
            Source::Near { rank, offset, bytes, .. } => (self.read_near(*rank, *offset, *bytes, 0), 0),
        };
        let (mut source, lacking) = match from {
            Source::Far(far) => (places(&self.far_places(far)), self.undefined_far(far, who)),
            Source::Near { rank, offset, bytes, .. } => {
                let target = Target::Shared { rank: *rank, offset: *offset };
                (vec![(target, *bytes)], self.undefined_bytes(None, target, *bytes, who))
            }
        };
        let reduce = match from {
            Source::Near { reduce, .. } => *reduce,
            Source::Far(_) => None,
        };
        let (to, offset, signal) = (to.clone(), *offset, *signal);
        for rank in to {
            let how = match reduce {
                Some((_, ty)) => JobAccess::Update { width: width_of(ty) },
                None => {
                    JobAccess::writing(self.sanitizer.is_some() && self.read_near(rank, offset, data.len() as u32, mode) == data)
                }
            };
            match reduce {
                None => self.write_near(rank, offset, &data, mode),
                Some((how, ty)) => {
                    let width = width_of(ty) as usize;
                    for (index, cell) in data.chunks_exact(width).enumerate() {
                        let mut word = [0; 8];
                        word[..width].copy_from_slice(cell);
                        let operand = u64::from_le_bytes(word);
                        let target = Target::Shared { rank, offset: offset + (index * width) as u32 };
                        self.update(target, width as u32, &mut |old| {
                            atomic::apply(how, ty.unwrap_or(Type::U32), old, operand, 0)
                        });
                    }
                }
            }
            if self.follows_undefined() && (reduce.is_none() || lacking.first().is_some()) {
                self.bring_undefined(rank, offset, (data.len() as u32, mode), &lacking);
            }
            let written = (Target::Shared { rank, offset }, data.len() as u32);
            self.observe_job(job.part(), &source, &[written], how);
            // A multicast reads once.
            source.clear();
            if let Some(sanitizer) = &mut self.sanitizer {
                sanitizer.signal(job.ticket, rank, signal);
            }
            self.complete_bytes(rank, signal, data.len() as u32, (job.lane, Some(job.pc)))?;
        }
        if let Some(sanitizer) = &mut self.sanitizer {
            sanitizer.retire(job.ticket);
        }
        Ok(())
    }

    /// Reads what a store takes from shared memory; its write is another step.
    fn read_stored(&mut self, mut job: Job) {
        let who = job.who();
        let JobKind::Store { to, offset, read, .. } = &mut job.what else { return };
        let bytes = to.bytes();
        self.need_near(*offset, to, who);
        *read = Some(self.read_near(job.rank, *offset, bytes, to.swizzle()));
        let source = (Target::Shared { rank: job.rank, offset: *offset }, bytes);
        self.observe_job(job.part(), &[source], &[], JobAccess::Read);
        self.jobs.push(job);
    }

    /// Writes what a store has read.
    fn write_stored(&mut self, job: Job) -> Result<(), Fault> {
        let JobKind::Store { to, reduce, read: Some(data), .. } = &job.what else { return Ok(()) };
        let (who, pc) = (job.who(), job.pc);
        let written = self.far_places(to);
        let before = if self.sanitizer.is_some() { self.fetch(to, job.lane).ok() } else { None };
        if let Err(fault) = self.deliver(to, data, *reduce, job.lane) {
            self.pass_at((job.rank, job.warp), pc, fault)?;
        }
        let how = match reduce {
            Some((_, ty)) => JobAccess::Update { width: width_of(*ty) },
            None => JobAccess::writing(before.is_some() && self.fetch(to, job.lane).ok() == before),
        };
        let reduces = reduce.is_some();
        self.written_far(&written, reduces, who);
        self.observe_job(job.part(), &[], &places(&written), how);
        Ok(())
    }

    /// Writes the registers of one thread to shared memory and signals that they are there.
    fn send(&mut self, job: Job) -> Result<(), Fault> {
        let JobKind::Word { to, values, bytes, reduce, signal, undefined } = &job.what else { return Ok(()) };
        let who = job.who();
        let (to, bytes, reduce, signal) = (*to, *bytes, *reduce, *signal);
        let (mut same, undefined) = (true, undefined.clone());
        for (index, value) in values.iter().copied().enumerate() {
            let cell = shifted(to, index as u32 * bytes);
            let old = self.update(cell, bytes, &mut |old| match reduce {
                Some((how, ty)) => atomic::apply(how, ty, old, value, 0),
                None => value,
            });
            same &= (old ^ value) << (64 - 8 * bytes) == 0;
            if let Some(lacking) = undefined.get(index)
                && (reduce.is_none() || lacking.first().is_some())
            {
                self.store_undefined(None, cell, (bytes, lacking), who, "what is sent");
            }
        }
        let total = bytes * values.len() as u32;
        let how = if reduce.is_some() { JobAccess::Update { width: bytes } } else { JobAccess::writing(same) };
        self.observe_job(job.part(), &[], &[(to, total)], how);
        if let Some(sanitizer) = &mut self.sanitizer {
            sanitizer.signal(job.ticket, signal.0, signal.1);
        }
        self.complete_bytes(signal.0, signal.1, total, (job.lane, Some(job.pc)))?;
        if let Some(sanitizer) = &mut self.sanitizer {
            sanitizer.retire(job.ticket);
        }
        Ok(())
    }

    /// `cp.async.bulk.wait_group`
    pub(super) fn wait_bulk(&mut self, warp: &mut Warp, active: u32, left: u32, read: bool) -> Result<(), Fault> {
        for lane in lanes(active) {
            let closed = warp.asynchronous.bulk_groups[lane];
            while let Some(index) = self.jobs.iter().position(|job| job.is_due(warp, lane, closed, left, read)) {
                self.step_job(index).map_err(|(fault, _)| fault)?;
            }
            warp.asynchronous.stores.retain(|store| store.lane != lane || store.group + left >= closed);
            if let Some(sanitizer) = &mut self.sanitizer {
                sanitizer.bulk_waited(warp.rank, warp.index as usize * LANES + lane, closed.saturating_sub(left), read);
            }
        }
        Ok(())
    }

    /// `st.async` and `red.async`
    #[allow(clippy::too_many_arguments, reason = "the operands of one instruction")]
    pub(super) fn start_store(
        &mut self,
        warp: &mut Warp,
        active: u32,
        pc: u32,
        from: &[Reg],
        bytes: u32,
        addr: Addr,
        barrier: Addr,
        reduce: Option<(Change, Type)>,
    ) -> Result<(), Fault> {
        let (to_at, barrier_at) = (addresses(warp, addr), addresses(warp, barrier));
        for lane in lanes(active) {
            let total = bytes * from.len() as u32;
            let to = self.resolve(warp, addr.space, to_at[lane], total, total, lane)?;
            let signal = match self.resolve(warp, barrier.space, barrier_at[lane], 8, 8, lane)? {
                Target::Shared { rank, offset } => (rank, offset),
                _ => continue,
            };
            let values = from.iter().map(|reg| warp.value(*reg, lane)).collect();
            let lacking = |reg: &Reg| self.lacking_of(warp, *reg, bytes, Who::lane(warp, lane, pc)).0;
            let undefined = if warp.undefined.is_some() { from.iter().map(lacking).collect() } else { Vec::new() };
            let what = JobKind::Word { to, values, bytes, reduce, signal, undefined };
            self.submit(warp, lane, pc, what)?;
        }
        Ok(())
    }

    pub(super) fn replace_in_map(
        &mut self,
        warp: &mut Warp,
        active: u32,
        addr: Addr,
        field: Word,
        index: u32,
        value: Reg,
    ) -> Result<(), Fault> {
        let at = addresses(warp, addr);
        for lane in lanes(active) {
            let mut bytes = [0; 128];
            self.read_bytes(warp, addr.space, at[lane], &mut bytes, lane)?;
            let value = warp.value(value, lane);
            let words = tensor_map::replace(&mut bytes, field, index, value)
                .map_err(|message| Fault::new(FindingKind::BulkCopy, lane, message))?;
            self.write_bytes(warp, addr.space, at[lane], &bytes, lane)?;
            if let Ok(Target::Shared { rank, offset }) = self.resolve(warp, addr.space, at[lane], 128, 1, lane) {
                self.blocks[rank].undefined.define(offset as usize + 4 * words.start, 4 * words.len());
            }
        }
        Ok(())
    }

    pub(super) fn copy_map(&mut self, warp: &mut Warp, active: u32, pc: u32, to: Addr, from: Addr) -> Result<(), Fault> {
        let (to_at, from_at) = (addresses(warp, to), addresses(warp, from));
        // All lanes name the same map.
        let lane = active.trailing_zeros() as usize;
        let mut bytes = [0; 128];
        self.read_bytes(warp, from.space, from_at[lane], &mut bytes, lane)?;
        let source = self.resolve(warp, from.space, from_at[lane], 128, 1, lane)?;
        self.need_bytes(warp, source, tensor_map::SAID as u32, Who::lane(warp, lane, pc), "the tensor map", Use::Stored);
        self.write_bytes(warp, to.space, to_at[lane], &bytes, lane)?;
        Ok(())
    }

    fn write_bytes(&mut self, warp: &mut Warp, space: Space, address: u64, bytes: &[u8], lane: usize) -> Result<(), Fault> {
        self.progress += 1;
        for (index, byte) in bytes.iter().enumerate() {
            let target = self.resolve(warp, space, address.wrapping_add(index as u64), 1, 1, lane)?;
            self.write(warp, target, 1, lane, u64::from(*byte))?;
        }
        Ok(())
    }
}
