//! `cp.async`: a warp's copies from global to shared memory, in order; their groups, and the arrivals that follow them.

use crate::exec::access::{Target, addresses, shifted};
use crate::exec::undefined::{Lacking, Who};
use crate::exec::{Cluster, Fault, Warp};
use crate::finding::FindingKind;
use crate::lanes::{LANES, lanes};
use crate::options::Schedule;
use crate::program::{Addr, Reg, Space};
use crate::sanitize::{Copies, JobAccess, JobPart, Ticket};

/// A `cp.async`, or the arrival that follows earlier ones.
#[derive(Clone, Debug)]
pub(super) struct Copy {
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

impl Copy {
    /// Whether a wait of some lanes that leaves so many groups asks for it.
    pub(super) fn is_due(&self, active: u32, left: u32, all: bool, groups: &[u32; LANES]) -> bool {
        self.lanes.iter().any(|part| active >> part.lane & 1 == 1 && (all || part.group + left < groups[part.lane]))
    }

    /// Whether an mbarrier waits for it.
    pub(super) fn signals(&self) -> bool {
        self.lanes.iter().any(|part| matches!(part.what, CopyKind::Arrive { .. }))
    }
}

impl Cluster<'_> {
    pub(super) fn start_copy(
        &mut self,
        warp: &mut Warp,
        active: u32,
        pc: u32,
        to: Addr,
        from: Addr,
        (bytes, source): (u32, Option<Reg>),
    ) -> Result<(), Fault> {
        let (to_at, from_at) = (addresses(warp, to), addresses(warp, from));
        let mut list = Vec::new();
        let first = active.trailing_zeros() as usize;
        let ticket = self.ticket(warp, first, false);
        if let Some(sanitizer) = &mut self.sanitizer {
            let group = warp.asynchronous.copy_groups[first];
            sanitizer.copy_issued((warp.rank, warp.index), Copies { ticket, lanes: active, group });
        }
        for lane in lanes(active) {
            let taken = source.map_or(bytes, |reg| (warp.value(reg, lane) as u32).min(bytes));
            let target = match self.resolve(warp, Space::Shared, to_at[lane], bytes, bytes, lane) {
                Ok(target) => target,
                Err(fault) => {
                    self.pass(warp, pc, fault)?;
                    continue;
                }
            };
            let align = if taken == bytes { bytes } else { 1 };
            let from = match taken {
                0 => None,
                _ => match self.resolve(warp, from.space, from_at[lane], taken, align, lane) {
                    Ok(from) => Some(from),
                    Err(fault) => self.pass(warp, pc, fault).map(|()| None)?,
                },
            };
            let what = CopyKind::Copy { from, to: target, bytes, taken };
            list.push(CopyLane { lane, group: warp.asynchronous.copy_groups[lane], what, ticket });
        }
        warp.asynchronous.copies.push_back(Copy { pc, lanes: list });
        if self.schedule() == Schedule::Eager {
            self.run_copies(warp, usize::MAX).map_err(|(fault, _)| fault)?;
        }
        Ok(())
    }

    /// `cp.async.wait_group`, and `wait_all`, which also waits for copies whose group is not closed.
    pub(super) fn wait_copies(&mut self, warp: &mut Warp, active: u32, left: u32, all: bool) -> Result<(), Fault> {
        let groups = warp.asynchronous.copy_groups;
        let last = warp.asynchronous.copies.iter().rposition(|copy| copy.is_due(active, left, all, &groups));
        if let Some(last) = last {
            self.run_copies(warp, last + 1).map_err(|(fault, _)| fault)?;
        }
        if let Some(sanitizer) = &mut self.sanitizer {
            sanitizer.copies_waited((warp.rank, warp.index), |copies| {
                copies.lanes & active != 0 && (all || copies.group + left < groups[copies.lanes.trailing_zeros() as usize])
            });
        }
        Ok(())
    }

    /// `cp.async.mbarrier.arrive`
    pub(super) fn start_arrival(
        &mut self,
        warp: &mut Warp,
        active: u32,
        pc: u32,
        addr: Addr,
        counted: bool,
    ) -> Result<(), Fault> {
        let at = addresses(warp, addr);
        let mut list = Vec::new();
        for lane in lanes(active) {
            let Target::Shared { rank, offset } = self.resolve(warp, addr.space, at[lane], 8, 8, lane)? else { continue };
            if counted {
                self.add_pending(rank, offset, lane)?;
            }
            let (group, what) = (warp.asynchronous.copy_groups[lane], CopyKind::Arrive { rank, offset });
            list.push(CopyLane { lane, group, what, ticket: Ticket::default() });
        }
        warp.asynchronous.copies.push_back(Copy { pc, lanes: list });
        if self.schedule() == Schedule::Eager {
            self.run_copies(warp, usize::MAX).map_err(|(fault, _)| fault)?;
        }
        Ok(())
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
    pub(super) fn run_copies(&mut self, warp: &mut Warp, count: usize) -> Result<(), (Fault, u32)> {
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
                let mut same = true;
                for at in 0..bytes {
                    let byte = match from {
                        Some(from) if at < taken => self.read(warp, shifted(from, at), 1, part.lane),
                        _ => 0,
                    };
                    same = same && self.sanitizer.is_some() && self.read(warp, shifted(to, at), 1, part.lane) == byte;
                    self.write(warp, shifted(to, at), 1, part.lane, byte)?;
                }
                if self.follows_undefined() {
                    let who = Who::lane(warp, part.lane, pc);
                    self.store_undefined(Some(warp), to, (bytes, &Lacking::default()), who, "what is copied");
                    if let Some(from) = from {
                        let lacking = self.undefined_bytes(Some(warp), from, taken, who);
                        self.store_undefined(Some(warp), to, (taken, &lacking), who, "what is copied");
                    }
                }
                let read = from.map(|from| (from, taken));
                self.observe_job(
                    JobPart { ticket: part.ticket, pc, lane: Some(part.lane) },
                    read.as_slice(),
                    &[(to, bytes)],
                    JobAccess::writing(same),
                );
                Ok(())
            }
            CopyKind::Arrive { rank, offset } => {
                if let Some(sanitizer) = &mut self.sanitizer {
                    sanitizer.copies_signal((warp.rank, warp.index), part.lane, (rank, offset));
                }
                self.arrive(rank, offset, 1, false, part.lane).map(drop)
            }
        }
    }
}
