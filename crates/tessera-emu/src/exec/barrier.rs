//! Barriers: of a block, of a cluster, and mbarriers in shared memory; and fences.
//!
//! An mbarrier's 64 bits in shared memory are a stamp; its state stands beside it, so that a kernel that overwrites the
//! barrier, or uses memory that was never made one, is told so.

use std::collections::BTreeMap;

use super::access::{Target, addresses};
use super::run::Outcome;
use super::{Cluster, Fault, Wait, Warp};
use crate::finding::FindingKind;
use crate::lanes::{FULL, LANES, lanes};
use crate::options::Schedule;
use crate::program::{Addr, BarrierKind, MbarrierOp, Op, Scope, Space};
use crate::sanitize::{SyncObject, Touch};

/// One of a block's 16 barriers.
#[derive(Clone, Debug, Default)]
pub(crate) struct BlockBarrier {
    /// Threads that have come, counted by whole warps where all of a warp came.
    pub(crate) arrived: u32,
    /// How many it takes; the first to come says it. None: the whole block.
    pub(crate) expected: Option<u32>,
    pub(crate) generation: u64,
    votes: Votes,
    /// Of the last generation.
    result: Votes,
    /// The lanes of each warp that came.
    pub(crate) lanes: BTreeMap<u32, u32>,
}

#[derive(Clone, Copy, Debug, Default)]
struct Votes {
    count: u32,
    of: u32,
}

/// The barrier of a cluster.
#[derive(Clone, Debug, Default)]
pub(crate) struct ClusterBarrier {
    /// The living lanes of each warp that came, by block and warp.
    lanes: BTreeMap<(usize, u32), u32>,
    pub(crate) generation: u64,
}

impl ClusterBarrier {
    pub(crate) fn arrived(&self) -> u32 {
        self.lanes.values().map(|lanes| lanes.count_ones()).sum()
    }
}

/// For how many threads the lanes of a warp that came to a block's barrier count: all of those that live for the whole warp.
fn weight(came: u32, live: u32) -> u32 {
    if came & live == live { LANES as u32 } else { came.count_ones() }
}

/// An mbarrier's state.
#[derive(Clone, Debug)]
pub(crate) struct Mbarrier {
    /// Arrivals of a phase.
    pub(crate) count: u32,
    /// Arrivals that the current phase still needs.
    pub(crate) pending: u32,
    /// Bytes that the current phase still needs.
    pub(crate) bytes: i64,
    /// Completed phases.
    pub(crate) generation: u64,
    /// What was promised and what came, in this phase, for reports.
    pub(crate) expected_bytes: i64,
    /// The bulk copy that brought bytes since somebody last saw a phase end.
    pub(crate) unawaited: Option<u32>,
    stamp: u64,
}

/// Most arrivals or bytes that an mbarrier counts.
const MOST_PENDING: u32 = (1 << 20) - 1;

impl Mbarrier {
    fn settle(&mut self) -> bool {
        if self.pending == 0 && self.bytes == 0 {
            self.pending = self.count;
            self.generation += 1;
            self.expected_bytes = 0;
            return true;
        }
        false
    }

    /// The state word that `arrive` gives and `test_wait` takes: the phase and the pending count.
    fn state(&self) -> u64 {
        self.generation << 24 | u64::from(self.pending)
    }
}

fn stamp(offset: u32) -> u64 {
    0x6d62_6172_0000_0000 | u64::from(offset)
}

impl Cluster<'_> {
    pub(super) fn synchronize(
        &mut self,
        warp: &mut Warp,
        fragment: usize,
        pc: u32,
        active: u32,
        op: &Op,
    ) -> Result<Outcome, Fault> {
        match op {
            Op::Barrier { kind, id, count, aligned, by } => {
                return self.block_barrier(warp, fragment, active, *kind, (*id, *count), *aligned, warp.predicate(*by));
            }
            Op::ClusterArrive { relaxed } => {
                self.progress += 1;
                *self.cluster_barrier.lanes.entry((warp.rank, warp.index)).or_default() |= active;
                self.sync_release(warp, active, SyncObject::Cluster, !*relaxed);
                self.settle_cluster_barrier(warp.live.count_ones());
            }
            Op::ClusterWait => {
                let state = &mut warp.fragments[fragment];
                if state.woken {
                    state.woken = false;
                } else {
                    let generation = warp.asynchronous.cluster_generations[active.trailing_zeros() as usize];
                    if self.cluster_barrier.generation <= generation {
                        return Ok(Outcome::Park(Wait::Cluster { generation }));
                    }
                }
                for lane in lanes(active) {
                    warp.asynchronous.cluster_generations[lane] += 1;
                }
                self.sync_acquire(warp, active, SyncObject::Cluster);
            }
            Op::Fence { scope } => self.fence(warp, active, *scope),
            Op::FenceProxy => self.fence_proxy(warp, active),
            Op::FenceMbarrierInit => {
                if let Some(sanitizer) = &mut self.sanitizer {
                    sanitizer.fence_mbarrier_init(warp.rank, Self::thread(warp, active));
                }
            }
            Op::FenceTensorMap => {}
            Op::Mbarrier { addr, op, scope, relaxed } => {
                return self.mbarrier(warp, fragment, pc, active, *addr, *op, *scope, *relaxed);
            }
            Op::PendingCount { to, from } => {
                for lane in lanes(active) {
                    let pending = warp.value(*from, lane) & u64::from(MOST_PENDING);
                    warp.set(*to, lane, pending);
                }
            }
            _ => {}
        }
        Ok(Outcome::Next)
    }

    #[allow(clippy::too_many_arguments, reason = "the operands of one instruction")]
    fn block_barrier(
        &mut self,
        warp: &mut Warp,
        fragment: usize,
        active: u32,
        kind: BarrierKind,
        (id, count): (u32, Option<u32>),
        aligned: bool,
        votes: u32,
    ) -> Result<Outcome, Fault> {
        let first = active.trailing_zeros() as usize;
        let id = warp.narrow(id, first);
        if id >= 16 {
            return Err(Fault::new(FindingKind::Barrier, first, format!("there is no barrier {id}: a block has 16")));
        }
        if warp.fragments[fragment].woken {
            warp.fragments[fragment].woken = false;
            self.finish_barrier(warp, active, kind, id);
            return Ok(Outcome::Next);
        }
        // `.aligned` asks for all lanes of the warp at this very instruction; they come to the barrier as one.
        if aligned && self.launch.options.sanitize.barriers && active != warp.live {
            return Ok(if warp.meet(fragment, active) { Outcome::Parted } else { Outcome::Park(Wait::Members { mask: active }) });
        }
        let mask = active;
        let expected = match count {
            None => None,
            Some(slot) => {
                let count = warp.narrow(slot, first);
                if count == 0 || !count.is_multiple_of(LANES as u32) {
                    let message = format!("a barrier for {count} threads: a multiple of 32 is needed");
                    return Err(Fault::new(FindingKind::Barrier, first, message));
                }
                Some(count)
            }
        };
        self.progress += 1;
        let barrier = &mut self.blocks[warp.rank].barriers[id as usize];
        if barrier.arrived != 0 && barrier.expected != expected {
            let say = |count: Option<u32>| count.map_or("the whole block".to_owned(), |count| format!("{count} threads"));
            let message =
                format!("barrier {id} is for {} here, and for {} where others wait", say(expected), say(barrier.expected));
            return Err(Fault::new(FindingKind::Barrier, first, message));
        }
        barrier.expected = expected;
        let before = barrier.lanes.get(&warp.index).copied().unwrap_or(0);
        let weight = |came: u32| weight(came, warp.live);
        let now = if before | mask == before { mask } else { before | mask };
        barrier.arrived += if before | mask == before { weight(mask) } else { weight(now) - weight(before) };
        barrier.lanes.insert(warp.index, now);
        barrier.votes.count += (votes & mask).count_ones();
        barrier.votes.of += mask.count_ones();
        let generation = barrier.generation;
        if let Some(expected) = expected
            && barrier.arrived > expected
        {
            let message = format!("{} threads come to barrier {id}, which is for {expected}", barrier.arrived);
            return Err(Fault::new(FindingKind::Barrier, first, message));
        }
        self.sync_release(warp, mask, SyncObject::Block { rank: warp.rank, id }, true);
        self.settle_block_barrier(warp.rank, id);
        if kind == BarrierKind::Arrive {
            return Ok(Outcome::Next);
        }
        if self.blocks[warp.rank].barriers[id as usize].generation > generation {
            self.finish_barrier(warp, mask, kind, id);
            return Ok(Outcome::Next);
        }
        Ok(Outcome::Park(Wait::Barrier { id, generation }))
    }

    fn finish_barrier(&mut self, warp: &mut Warp, mask: u32, kind: BarrierKind, id: u32) {
        let Votes { count, of } = self.blocks[warp.rank].barriers[id as usize].result;
        match kind {
            BarrierKind::Sync | BarrierKind::Arrive => {}
            BarrierKind::Popc(to) => {
                for lane in lanes(mask) {
                    warp.set(to, lane, u64::from(count));
                }
            }
            BarrierKind::And(to) => warp.set_predicate(to, mask, if count == of { FULL } else { 0 }),
            BarrierKind::Or(to) => warp.set_predicate(to, mask, if count != 0 { FULL } else { 0 }),
        }
        self.sync_acquire(warp, mask, SyncObject::Block { rank: warp.rank, id });
    }

    /// Completes a barrier to which all have come. A block's own barrier does not wait for warps that have ended.
    pub(super) fn settle_block_barrier(&mut self, rank: usize, id: u32) {
        let block = &mut self.blocks[rank];
        let barrier = &mut block.barriers[id as usize];
        let by_all = barrier.expected.is_none();
        let expected = barrier.expected.unwrap_or(block.live_warps * LANES as u32);
        if barrier.arrived >= expected && barrier.arrived > 0 {
            barrier.arrived = 0;
            barrier.expected = None;
            barrier.generation += 1;
            barrier.lanes.clear();
            barrier.result = std::mem::take(&mut barrier.votes);
            if let Some(sanitizer) = &mut self.sanitizer {
                sanitizer.complete_meeting(SyncObject::Block { rank, id }, by_all);
            }
        }
    }

    /// Lanes of a warp have ended: those that wait at barriers may now be all that are waited for.
    pub(super) fn leave_barriers(&mut self, warp: &Warp, live_before: u32) {
        // Lanes that have ended are neither waited for nor counted.
        if let Some(came) = self.cluster_barrier.lanes.get_mut(&(warp.rank, warp.index)) {
            *came &= warp.live;
        }
        // What follows a warp's end completes the barriers that then wait for nobody.
        if warp.live == 0 {
            return;
        }
        for id in 0..self.blocks[warp.rank].barriers.len() {
            let barrier = &mut self.blocks[warp.rank].barriers[id];
            if let Some(&came) = barrier.lanes.get(&warp.index) {
                barrier.arrived += weight(came, warp.live) - weight(came, live_before);
                self.settle_block_barrier(warp.rank, id as u32);
            }
        }
        self.settle_cluster_barrier(warp.live.count_ones());
    }

    /// Completes the cluster's barrier when every living thread has arrived.
    pub(super) fn settle_cluster_barrier(&mut self, running: u32) {
        let waiting: u32 = self
            .blocks
            .iter()
            .flat_map(|block| &block.warps)
            .map(|warp| warp.as_ref().map_or(0, |warp| warp.live.count_ones()))
            .sum();
        let arrived = self.cluster_barrier.arrived();
        if arrived > 0 && arrived >= waiting + running {
            self.cluster_barrier.lanes.clear();
            self.cluster_barrier.generation += 1;
            if let Some(sanitizer) = &mut self.sanitizer {
                sanitizer.complete_meeting(SyncObject::Cluster, true);
            }
        }
    }

    /// The mbarrier at a shared address.
    fn find_mbarrier(&mut self, warp: &mut Warp, space: Space, address: u64, lane: usize) -> Result<(usize, u32), Fault> {
        match self.resolve(warp, space, address, 8, 8, lane)? {
            Target::Shared { rank, offset } => Ok((rank, offset)),
            _ => {
                Err(Fault::new(FindingKind::Mbarrier, lane, format!("{address:#x} is not in shared memory, where mbarriers are")))
            }
        }
    }

    /// Tells the sanitizer that a thread uses an mbarrier.
    fn uses_mbarrier(&mut self, warp: &Warp, lane: usize, pc: u32, at: (usize, u32)) {
        let Some(mut sanitizer) = self.sanitizer.take() else { return };
        sanitizer.uses_mbarrier(self, warp.rank, warp.index as usize * LANES + lane, pc, at);
        self.sanitizer = Some(sanitizer);
    }

    /// Tells systematic schedules that an mbarrier is touched.
    fn touch_mbarrier(&mut self, rank: usize, offset: u32, touch: Touch) {
        if let Some(sanitizer) = &mut self.sanitizer {
            sanitizer.touch_object(SyncObject::Mbarrier { rank, offset }, touch);
        }
    }

    fn known_mbarrier(&mut self, rank: usize, offset: u32, lane: usize) -> Result<&mut Mbarrier, Fault> {
        let block = &mut self.blocks[rank];
        let at = offset as usize;
        let word = block.shared[at..].first_chunk::<8>().map_or(0, |bytes| u64::from_le_bytes(*bytes));
        match block.mbarriers.get_mut(&offset) {
            Some(found) if found.stamp == word => Ok(found),
            Some(_) => Err(Fault::new(
                FindingKind::Mbarrier,
                lane,
                format!("the mbarrier at shared {offset:#x} was overwritten by ordinary stores"),
            )),
            None => Err(Fault::new(
                FindingKind::Mbarrier,
                lane,
                format!("there is no mbarrier at shared {offset:#x}: it was not initialised"),
            )),
        }
    }

    /// Counts bytes that have come.
    pub(super) fn complete_bytes(
        &mut self,
        rank: usize,
        offset: u32,
        bytes: u32,
        (lane, copy): (usize, Option<u32>),
    ) -> Result<(), Fault> {
        self.progress += 1;
        self.touch_mbarrier(rank, offset, Touch::Arrives);
        let barrier = self.known_mbarrier(rank, offset, lane)?;
        barrier.bytes -= i64::from(bytes);
        barrier.unawaited = copy.or(barrier.unawaited);
        if barrier.bytes < -i64::from(MOST_PENDING) {
            return Err(Fault::new(
                FindingKind::Mbarrier,
                lane,
                format!("more than {MOST_PENDING} bytes come to the mbarrier at shared {offset:#x} than it expects"),
            ));
        }
        if barrier.settle()
            && let Some(sanitizer) = &mut self.sanitizer
        {
            sanitizer.complete(SyncObject::Mbarrier { rank, offset });
        }
        Ok(())
    }

    /// Counts arrivals; gives the state before.
    pub(super) fn arrive(&mut self, rank: usize, offset: u32, count: u32, drop: bool, lane: usize) -> Result<u64, Fault> {
        self.progress += 1;
        self.touch_mbarrier(rank, offset, Touch::Arrives);
        let barrier = self.known_mbarrier(rank, offset, lane)?;
        let state = barrier.state();
        if count > barrier.pending {
            let message = format!(
                "{count} more arrival(s) at the mbarrier at shared {offset:#x}, whose phase {} expects {} in all and has {} left",
                barrier.generation, barrier.count, barrier.pending
            );
            return Err(Fault::new(FindingKind::Mbarrier, lane, message));
        }
        barrier.pending -= count;
        if drop {
            barrier.count = barrier.count.saturating_sub(count);
        }
        if barrier.settle()
            && let Some(sanitizer) = &mut self.sanitizer
        {
            sanitizer.complete(SyncObject::Mbarrier { rank, offset });
        }
        Ok(state)
    }

    #[allow(clippy::too_many_arguments, reason = "the operands of one instruction")]
    fn mbarrier(
        &mut self,
        warp: &mut Warp,
        fragment: usize,
        pc: u32,
        active: u32,
        addr: Addr,
        op: MbarrierOp,
        scope: Scope,
        relaxed: bool,
    ) -> Result<Outcome, Fault> {
        let at = addresses(warp, addr);
        if let MbarrierOp::Test { to, state, parity, blocking } = op {
            return self.mbarrier_test(warp, fragment, (pc, active), (addr.space, &at), to, (state, parity), blocking, relaxed);
        }
        let _ = scope;
        for lane in lanes(active) {
            let (rank, offset) = self.find_mbarrier(warp, addr.space, at[lane], lane)?;
            let object = SyncObject::Mbarrier { rank, offset };
            if !matches!(op, MbarrierOp::Init { .. }) {
                self.uses_mbarrier(warp, lane, pc, (rank, offset));
            }
            match op {
                MbarrierOp::Init { count } => {
                    let count = warp.value(count, lane) as u32;
                    if count == 0 || count > MOST_PENDING {
                        let message = format!("an mbarrier for {count} arrivals: 1 to {MOST_PENDING} are possible");
                        return Err(Fault::new(FindingKind::Mbarrier, lane, message));
                    }
                    self.touch_mbarrier(rank, offset, Touch::Changes);
                    let word = stamp(offset);
                    let block = &mut self.blocks[rank];
                    let state = Mbarrier {
                        count,
                        pending: count,
                        bytes: 0,
                        generation: 0,
                        expected_bytes: 0,
                        unawaited: None,
                        stamp: word,
                    };
                    block.mbarriers.insert(offset, state);
                    block.shared[offset as usize..offset as usize + 8].copy_from_slice(&word.to_le_bytes());
                    block.undefined.define(offset as usize, 8);
                    self.progress += 1;
                    if let Some(sanitizer) = &mut self.sanitizer {
                        sanitizer.mbarrier_made(warp.rank, warp.index as usize * LANES + lane, pc, rank, offset);
                    }
                }
                MbarrierOp::Invalidate => {
                    self.touch_mbarrier(rank, offset, Touch::Changes);
                    self.known_mbarrier(rank, offset, lane)?;
                    if let Some(waiter) = self.waiter(warp, rank, offset) {
                        let message = format!("the mbarrier at shared {offset:#x} is destroyed while {waiter} waits for it");
                        return Err(Fault::new(FindingKind::Mbarrier, lane, message));
                    }
                    self.blocks[rank].mbarriers.remove(&offset);
                }
                MbarrierOp::ExpectTx { bytes } => {
                    let bytes = warp.value(bytes, lane) as u32;
                    self.expect_bytes(rank, offset, bytes, lane)?;
                }
                MbarrierOp::CompleteTx { bytes } => {
                    let bytes = warp.value(bytes, lane) as u32;
                    self.complete_bytes(rank, offset, bytes, (lane, None))?;
                }
                MbarrierOp::Arrive { count, expect, drop, state } => {
                    let count = count.map_or(1, |reg| warp.value(reg, lane) as u32);
                    if let Some(bytes) = expect {
                        let bytes = warp.value(bytes, lane) as u32;
                        self.expect_bytes(rank, offset, bytes, lane)?;
                    }
                    self.sync_release(warp, 1 << lane, object, !relaxed);
                    let before = self.arrive(rank, offset, count, drop, lane)?;
                    if let Some(state) = state {
                        warp.set(state, lane, before);
                    }
                }
                MbarrierOp::Test { .. } => {}
            }
        }
        Ok(Outcome::Next)
    }

    fn expect_bytes(&mut self, rank: usize, offset: u32, bytes: u32, lane: usize) -> Result<(), Fault> {
        self.progress += 1;
        self.touch_mbarrier(rank, offset, Touch::Arrives);
        let barrier = self.known_mbarrier(rank, offset, lane)?;
        barrier.bytes += i64::from(bytes);
        barrier.expected_bytes += i64::from(bytes);
        if barrier.bytes > i64::from(MOST_PENDING) {
            let message =
                format!("the mbarrier at shared {offset:#x} would expect {} bytes: {MOST_PENDING} are possible", barrier.bytes);
            return Err(Fault::new(FindingKind::Mbarrier, lane, message));
        }
        Ok(())
    }

    fn waiter(&self, own: &Warp, rank: usize, offset: u32) -> Option<String> {
        let others = self.blocks.iter().flat_map(|block| &block.warps).flatten().map(|warp| &**warp);
        others.chain(std::iter::once(own)).find_map(|warp| {
            let waits = warp
                .fragments
                .iter()
                .any(|part| matches!(part.wait, Wait::Mbarrier { rank: r, offset: o, .. } if (r, o) == (rank, offset)));
            waits.then(|| format!("warp {} of block {}", warp.index, self.block_number(warp.rank)))
        })
    }

    #[allow(clippy::too_many_arguments, reason = "the operands of one instruction")]
    fn mbarrier_test(
        &mut self,
        warp: &mut Warp,
        fragment: usize,
        (pc, active): (u32, u32),
        (space, at): (Space, &[u64; LANES]),
        to: u32,
        (state, parity): (crate::program::Reg, bool),
        blocking: bool,
        relaxed: bool,
    ) -> Result<Outcome, Fault> {
        let timed_out = std::mem::take(&mut warp.fragments[fragment].timed_out);
        warp.fragments[fragment].woken = false;
        let mut wait = None;
        let mut passed = 0;
        for lane in lanes(active) {
            let (rank, offset) = self.find_mbarrier(warp, space, at[lane], lane)?;
            if rank != warp.rank {
                return Err(Fault::new(FindingKind::Mbarrier, lane, "only the own block's mbarriers can be waited for"));
            }
            self.uses_mbarrier(warp, lane, pc, (rank, offset));
            let value = warp.value(state, lane);
            self.touch_mbarrier(rank, offset, Touch::Looks);
            let barrier = self.known_mbarrier(rank, offset, lane)?;
            let generation = barrier.generation;
            let complete = if parity { generation & 1 != value & 1 } else { generation != value >> 24 };
            if complete {
                barrier.unawaited = None;
                passed |= 1 << lane;
            } else {
                wait = Some(Wait::Mbarrier { rank, offset, generation });
            }
        }
        // The time limit of a wait may be short. A lazy one ends once before it lasts, so that a loop around it is gone through.
        let asked = std::mem::replace(&mut warp.fragments[fragment].asked, pc);
        let timed_out = timed_out
            || match self.schedule() {
                Schedule::Random => self.random.below(8) == 0,
                Schedule::Lazy => blocking && asked != pc,
                Schedule::Eager | Schedule::Systematic => false,
            };
        // A fragment waits only where no lane has passed: lanes that have could be what the others wait for.
        if let (Some(wait), true, 0, false) = (wait, blocking, passed, timed_out) {
            return Ok(Outcome::Park(wait));
        }
        warp.set_predicate(to, active, passed);
        if !relaxed {
            for lane in lanes(passed) {
                let (rank, offset) = self.find_mbarrier(warp, space, at[lane], lane)?;
                self.sync_acquire(warp, 1 << lane, SyncObject::Mbarrier { rank, offset });
            }
        }
        // A spinning loop lets others run.
        Ok(if passed == active { Outcome::Next } else { Outcome::Yield })
    }

    // What the sanitizer is told: once for a warp, whose lanes it takes as one.

    fn thread(warp: &Warp, mask: u32) -> usize {
        warp.index as usize * LANES + mask.trailing_zeros() as usize
    }

    pub(super) fn sync_release(&mut self, warp: &Warp, mask: u32, object: SyncObject, orders: bool) {
        if let Some(sanitizer) = &mut self.sanitizer {
            sanitizer.release(warp.rank, Self::thread(warp, mask), object, orders);
        }
    }

    pub(super) fn sync_acquire(&mut self, warp: &Warp, mask: u32, object: SyncObject) {
        if let Some(sanitizer) = &mut self.sanitizer {
            sanitizer.acquire(warp.rank, Self::thread(warp, mask), object);
        }
    }

    pub(super) fn join_lanes(&mut self, warp: &Warp, mask: u32) {
        if let Some(sanitizer) = &mut self.sanitizer {
            sanitizer.warp_barrier(warp.rank, Self::thread(warp, mask));
        }
    }

    fn fence(&mut self, warp: &Warp, mask: u32, scope: Scope) {
        if let Some(sanitizer) = &mut self.sanitizer {
            sanitizer.fence(self.launch, warp.rank, Self::thread(warp, mask), scope);
        }
    }

    fn fence_proxy(&mut self, warp: &Warp, mask: u32) {
        if let Some(sanitizer) = &mut self.sanitizer {
            sanitizer.fence_proxy(warp.rank, Self::thread(warp, mask));
        }
    }
}
