//! Sanitizers: races by happens-before, missing proxy fences, reads of memory that nobody wrote.
//!
//! Every word of shared and global memory remembers who touched it last ([`shadow`]); every actor knows what happened before it
//! ([`clock`]). An access that conflicts with an earlier one (same byte, one of them a write, not both atomic) must come after
//! it. Actors are warps and asynchronous operations; lanes of one warp are told apart by the warp's own barriers.
//!
//! The rules, with their PTX ISA sections:
//! - `bar`, `barrier.cluster` and `bar.warp.sync` order what their threads did ("Parallel Synchronization: bar, barrier").
//! - An arrival on an mbarrier releases, a wait that succeeds acquires, unless `.relaxed` ("mbarrier").
//! - `atom`, `red`, strong `ld` and `st` order as their `.release` and `.acquire` say; relaxed ones with a `fence` before the
//!   write and behind the read ("Memory Consistency Model: Release and Acquire Patterns"). `.cta` reaches the own block only.
//! - An asynchronous operation comes after what its thread did before; what comes after it is what waits for it: the
//!   mbarrier it signals, `cp.async.wait_group`, `cp.async.bulk.wait_group` (`.read`: its reads alone), `wgmma.wait_group`.
//! - Bulk copies and `wgmma` use the asynchronous proxy. They see generic writes only across `fence.proxy.async`, by the
//!   writer or by a thread that came after it; `cp.async` is a generic write ("Async proxy"). A bulk copy may overwrite what
//!   generic reads have read without one. A completed operation needs none.
//! - An mbarrier's initialisation is seen by the asynchronous proxy after `fence.mbarrier_init` or `fence.proxy.async`.
//!
//! Between clusters the order is coarser: a strong read takes over all that the writing cluster had done, so a race may be
//! missed but none is invented. Boxes of tensor maps are not followed on their global side.

mod clock;
mod footprint;
mod shadow;

use std::collections::{BTreeMap, BTreeSet, HashMap};

use crate::exec::{Cluster, Launch, Target};
use crate::lanes::LANES;
use crate::options::{Sanitize, Schedule};
use crate::program::{Order, SHARED_START, Scope};
use crate::report::{Finding, FindingKind};
use clock::{Clock, Pair};
pub(crate) use footprint::{Footprint, Touch};
pub(crate) use shadow::GlobalShadow;
use shadow::{Cell, ENGINE, Record, SEVERAL};

/// An access by a thread.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Access {
    pub(crate) rank: usize,
    pub(crate) thread: usize,
    pub(crate) pc: u32,
    pub(crate) write: bool,
    pub(crate) atomic: bool,
    /// Whether it reads too: `atom`.
    pub(crate) updates: bool,
    pub(crate) order: Order,
    pub(crate) scope: Scope,
}

/// Something that threads synchronise through.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum SyncObject {
    Block { rank: usize, id: u32 },
    Cluster,
    Mbarrier { rank: usize, offset: u32 },
}

/// An asynchronous operation.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Ticket(u32);

#[derive(Clone, Debug, Default)]
struct Object {
    /// Of the phase that is filling.
    coming: Pair,
    /// Of the phases that are complete.
    complete: Pair,
}

#[derive(Clone, Debug, Default)]
struct Actor {
    clock: Pair,
    /// What was known at the last fence: a relaxed write publishes that.
    fenced: Clock,
    /// What relaxed reads have seen: a fence takes it over.
    noticed: Clock,
    /// Counts the warp's own barriers.
    turn: u32,
}

#[derive(Clone, Debug, Default)]
struct Operation {
    /// What happened before it was issued.
    before: Pair,
    clock: u32,
    asynchronous: bool,
    rank: usize,
    thread: usize,
    free: bool,
}

/// The sanitizers' state of a cluster.
pub(crate) struct Sanitizer {
    options: Sanitize,
    cluster: u64,
    warps: usize,
    actors: Vec<Actor>,
    operations: Vec<Operation>,
    objects: BTreeMap<SyncObject, Object>,
    /// What releases at a word have published, within the cluster; with the block for `.cta`.
    published: HashMap<(usize, u64), (Clock, Option<usize>)>,
    shared: Vec<Vec<Cell>>,
    written: Vec<Vec<bool>>,
    /// Up to when other clusters' accesses are visible here.
    visible: HashMap<u64, u64>,
    /// `cp.async` operations of a warp with their group, and bulk stores of a thread.
    /// Products of a warpgroup (block, warpgroup, number) with the count of warps that have waited.
    products: BTreeMap<(usize, usize, u64), (Ticket, u32)>,
    copies: BTreeMap<usize, Vec<(Ticket, u32)>>,
    stores: BTreeMap<(usize, usize), Vec<(Ticket, u32)>>,
    made: BTreeMap<(usize, u32), Made>,
    reported: BTreeSet<(FindingKind, u32, u32)>,
    /// What was touched since somebody asked, for systematic schedules.
    footprint: Option<Footprint>,
}

/// Who initialised an mbarrier.
#[derive(Clone, Copy, Debug)]
struct Made {
    actor: usize,
    clock: u32,
    rank: usize,
    thread: usize,
    pc: u32,
    fenced: bool,
}

impl Sanitizer {
    pub(crate) fn new(launch: &Launch<'_>, cluster: u64, blocks: usize, warps: usize, shared: usize) -> Sanitizer {
        let mut actors = vec![Actor::default(); blocks * warps];
        for (index, actor) in actors.iter_mut().enumerate() {
            actor.clock.seen.set(index, 1);
        }
        Sanitizer {
            // Systematic schedules tell races from atomics that meet in another order.
            options: Sanitize {
                races: launch.options.sanitize.races || launch.options.schedule == Schedule::Systematic,
                ..launch.options.sanitize
            },
            cluster,
            warps,
            actors,
            operations: Vec::new(),
            objects: BTreeMap::new(),
            published: HashMap::new(),
            shared: vec![vec![Cell::default(); shared.div_ceil(4)]; blocks],
            written: vec![vec![false; shared]; blocks],
            visible: HashMap::new(),
            products: BTreeMap::new(),
            copies: BTreeMap::new(),
            stores: BTreeMap::new(),
            made: BTreeMap::new(),
            reported: BTreeSet::new(),
            footprint: None,
        }
    }

    /// From now on notes what is touched.
    pub(crate) fn follow(&mut self) {
        self.footprint = Some(Footprint::default());
    }

    /// What was touched since this was last asked.
    pub(crate) fn take_footprint(&mut self) -> Footprint {
        self.footprint.replace(Footprint::default()).unwrap_or_default()
    }

    /// Somebody touches a barrier.
    pub(crate) fn touch_object(&mut self, object: SyncObject, touch: Touch) {
        if let Some(footprint) = &mut self.footprint {
            footprint.object(self.cluster, object, touch);
        }
    }

    fn actor(&self, rank: usize, thread: usize) -> usize {
        rank * self.warps + thread / LANES
    }

    /// The actor number of an operation.
    fn number(&self, ticket: Ticket) -> usize {
        self.actors.len() + ticket.0 as usize
    }

    /// What an actor does from now on comes after what it has published.
    fn tick(&mut self, actor: usize) {
        let next = self.actors[actor].clock.seen.get(actor) + 1;
        self.actors[actor].clock.seen.set(actor, next);
    }

    // Synchronisation.

    pub(crate) fn release(&mut self, rank: usize, thread: usize, object: SyncObject, orders: bool) {
        let actor = self.actor(rank, thread);
        self.touch_object(object, Touch::Arrives);
        if orders {
            let state = &self.actors[actor];
            let object = self.objects.entry(object).or_default();
            object.coming.join(&state.clock);
        }
        self.tick(actor);
    }

    pub(crate) fn acquire(&mut self, rank: usize, thread: usize, object: SyncObject) {
        let actor = self.actor(rank, thread);
        self.touch_object(object, Touch::Looks);
        if let Some(found) = self.objects.get(&object) {
            let state = &mut self.actors[actor];
            state.clock.join(&found.complete);
            // A fence before a barrier counts for those behind it.
            state.fenced.join(&found.complete.seen);
        }
        self.actors[actor].turn += 1;
    }

    pub(crate) fn complete(&mut self, object: SyncObject) {
        let object = self.objects.entry(object).or_default();
        let coming = std::mem::take(&mut object.coming);
        object.complete.join(&coming);
    }

    /// `bar.warp.sync`
    pub(crate) fn warp_barrier(&mut self, rank: usize, thread: usize) {
        let actor = self.actor(rank, thread);
        self.actors[actor].turn += 1;
    }

    pub(crate) fn fence(&mut self, rank: usize, thread: usize, order: Order, scope: Scope) {
        let _ = (order, scope);
        let actor = self.actor(rank, thread);
        let state = &mut self.actors[actor];
        let noticed = std::mem::take(&mut state.noticed);
        state.clock.seen.join(&noticed);
        state.fenced = state.clock.seen.clone();
        state.turn += 1;
        self.tick(actor);
    }

    pub(crate) fn fence_proxy(&mut self, rank: usize, thread: usize) {
        let actor = self.actor(rank, thread);
        let state = &mut self.actors[actor];
        let seen = state.clock.seen.clone();
        state.clock.fenced.join(&seen);
        self.tick(actor);
    }

    /// `fence.mbarrier_init`: what its thread initialised is seen by the asynchronous proxy.
    pub(crate) fn fence_mbarrier_init(&mut self, rank: usize, thread: usize) {
        let actor = self.actor(rank, thread);
        for made in self.made.values_mut().filter(|made| made.actor == actor) {
            made.fenced = true;
        }
    }

    /// A bulk copy will signal an mbarrier: its initialisation must be visible to the asynchronous proxy.
    pub(crate) fn will_signal(&mut self, cluster: &mut Cluster<'_>, ticket: Ticket, pc: u32, owner: usize, offset: u32) {
        let (Some(made), true) = (self.made.get(&(owner, offset)).copied(), self.options.races) else { return };
        let operation = &self.operations[ticket.0 as usize];
        if made.fenced || operation.before.fenced.get(made.actor) >= made.clock {
            return;
        }
        let (new, old) = (self.bare(pc, operation.rank, operation.thread), self.bare(made.pc, made.rank, made.thread));
        let message = format!(
            "a bulk copy signals the mbarrier at shared {offset:#x}, whose initialisation no `fence.mbarrier_init` or `fence.proxy.async` follows"
        );
        self.report(cluster, FindingKind::ProxyFence, message, &new, Some(&old));
    }

    /// A thread uses an mbarrier: its initialisation must have happened before.
    pub(crate) fn uses_mbarrier(&mut self, cluster: &mut Cluster<'_>, rank: usize, thread: usize, pc: u32, at: (usize, u32)) {
        let (Some(made), true) = (self.made.get(&at).copied(), self.options.races) else { return };
        let actor = self.actor(rank, thread);
        if made.actor == actor || self.actors[actor].clock.seen.get(made.actor) >= made.clock {
            return;
        }
        let message = format!("the mbarrier at shared {:#x} is used, and nothing orders that behind its initialisation", at.1);
        let (new, old) = (self.bare(pc, rank, thread), self.bare(made.pc, made.rank, made.thread));
        self.report(cluster, FindingKind::Race, message, &new, Some(&old));
    }

    /// A place without an access.
    fn bare(&self, pc: u32, rank: usize, thread: usize) -> Record {
        Record {
            cluster: self.cluster,
            time: 0,
            actor: 0,
            clock: 0,
            turn: 0,
            lane: 0,
            bytes: 0,
            write: true,
            atomic: false,
            asynchronous: false,
            pc,
            rank: rank as u16,
            thread: thread as u32,
        }
    }

    // Asynchronous operations.

    pub(crate) fn issue(&mut self, rank: usize, thread: usize, asynchronous: bool) -> Ticket {
        let actor = self.actor(rank, thread);
        let before = self.actors[actor].clock.clone();
        let index = match self.operations.iter().position(|operation| operation.free) {
            Some(index) => index,
            None => {
                self.operations.push(Operation::default());
                self.operations.len() - 1
            }
        };
        let clock = self.operations[index].clock + 1;
        self.operations[index] = Operation { before, clock, asynchronous, rank, thread, free: false };
        self.tick(actor);
        Ticket(index as u32)
    }

    /// A warp issues a product of its warpgroup: one operation, which comes after what all four warps did before.
    pub(crate) fn product_issued(&mut self, rank: usize, thread: usize, number: u64) -> Ticket {
        let key = (rank, thread / LANES / 4, number);
        match self.products.get(&key) {
            Some(&(ticket, _)) => {
                let actor = self.actor(rank, thread);
                self.operations[ticket.0 as usize].before.join(&self.actors[actor].clock);
                self.tick(actor);
                ticket
            }
            None => {
                let ticket = self.issue(rank, thread, true);
                self.products.insert(key, (ticket, 0));
                ticket
            }
        }
    }

    /// A warp has waited for a product.
    pub(crate) fn product_waited(&mut self, rank: usize, thread: usize, number: u64) {
        let key = (rank, thread / LANES / 4, number);
        let Some((ticket, count)) = self.products.get_mut(&key) else { return };
        *count += 1;
        let (ticket, last) = (*ticket, *count == 4);
        self.waited(rank, thread, ticket);
        self.operations[ticket.0 as usize].free = last;
        if last {
            self.products.remove(&key);
        }
    }

    /// A thread has waited for an operation.
    pub(crate) fn waited(&mut self, rank: usize, thread: usize, ticket: Ticket) {
        let (actor, number) = (self.actor(rank, thread), self.number(ticket));
        let operation = &mut self.operations[ticket.0 as usize];
        let state = &mut self.actors[actor].clock;
        state.seen.set(number, operation.clock);
        if operation.asynchronous {
            state.fenced.set(number, operation.clock);
        }
        operation.free = true;
    }

    pub(crate) fn copy_issued(&mut self, rank: usize, thread: usize, ticket: Ticket, group: u32) {
        let actor = self.actor(rank, thread);
        self.copies.entry(actor).or_default().push((ticket, group));
    }

    /// `cp.async.wait_group`: groups before `end` are complete; none: all.
    pub(crate) fn copies_waited(&mut self, rank: usize, thread: usize, end: Option<u32>) {
        let list = self.copies.remove(&self.actor(rank, thread)).unwrap_or_default();
        let (due, left): (Vec<_>, Vec<_>) = list.into_iter().partition(|(_, group)| end.is_none_or(|end| *group < end));
        for (ticket, _) in due {
            self.waited(rank, thread, ticket);
        }
        let actor = self.actor(rank, thread);
        self.copies.insert(actor, left);
    }

    /// The arrival that follows a thread's copies carries them.
    pub(crate) fn copies_signal(&mut self, rank: usize, thread: usize, owner: usize, offset: u32) {
        let actor = self.actor(rank, thread);
        let tickets: Vec<Ticket> = self.copies.get(&actor).into_iter().flatten().map(|(ticket, _)| *ticket).collect();
        for ticket in tickets {
            self.publish(ticket, owner, offset);
        }
    }

    fn publish(&mut self, ticket: Ticket, rank: usize, offset: u32) {
        let number = self.number(ticket);
        let operation = &self.operations[ticket.0 as usize];
        let object = self.objects.entry(SyncObject::Mbarrier { rank, offset }).or_default();
        object.coming.join(&operation.before);
        object.coming.seen.set(number, operation.clock);
        if operation.asynchronous {
            object.coming.fenced.set(number, operation.clock);
        }
    }

    /// An operation signals an mbarrier.
    pub(crate) fn signal(&mut self, ticket: Ticket, rank: usize, offset: u32) {
        self.publish(ticket, rank, offset);
    }

    /// An operation that signalled is over.
    pub(crate) fn retire(&mut self, ticket: Ticket) {
        self.operations[ticket.0 as usize].free = true;
    }

    pub(crate) fn bulk_issued(&mut self, rank: usize, thread: usize, ticket: Ticket, group: u32) {
        self.stores.entry((rank, thread)).or_default().push((ticket, group));
    }

    /// `cp.async.bulk.wait_group`: groups before `end` have read, or are complete.
    pub(crate) fn bulk_waited(&mut self, rank: usize, thread: usize, end: u32, read: bool) {
        let list = self.stores.remove(&(rank, thread)).unwrap_or_default();
        let mut left = Vec::new();
        for (ticket, group) in list {
            if group < end {
                // What was written is not visible after `.read`, but nobody else can have waited for it either.
                self.waited(rank, thread, ticket);
                self.operations[ticket.0 as usize].free = !read;
            }
            if group >= end || read {
                left.push((ticket, group));
            }
        }
        self.stores.insert((rank, thread), left);
    }

    // Accesses.

    /// A thread's access.
    pub(crate) fn access(&mut self, cluster: &mut Cluster<'_>, target: Target, bytes: u32, access: &Access) {
        let actor = self.actor(access.rank, access.thread);
        let state = &self.actors[actor];
        let record = Record {
            cluster: self.cluster,
            time: 0,
            actor: actor as u32,
            clock: state.clock.seen.get(actor),
            turn: state.turn,
            lane: (access.thread % LANES) as u8,
            bytes: 0,
            write: access.write,
            atomic: access.atomic,
            asynchronous: false,
            pc: access.pc,
            rank: access.rank as u16,
            thread: access.thread as u32,
        };
        if access.atomic {
            self.take_over(cluster, target, access, actor);
        }
        let reads = !access.write || access.updates;
        self.touch(cluster, target, bytes, record, reads);
        if access.atomic && access.write {
            self.give(cluster, target, access, actor);
        }
    }

    /// An asynchronous operation's access.
    pub(crate) fn job_access(
        &mut self,
        cluster: &mut Cluster<'_>,
        ticket: Ticket,
        pc: u32,
        target: Target,
        bytes: u32,
        write: bool,
    ) {
        let number = self.number(ticket);
        let operation = &self.operations[ticket.0 as usize];
        let record = Record {
            cluster: self.cluster,
            time: 0,
            actor: number as u32,
            clock: operation.clock,
            turn: 0,
            lane: ENGINE,
            bytes: 0,
            write,
            atomic: false,
            asynchronous: operation.asynchronous,
            pc,
            rank: operation.rank as u16,
            thread: operation.thread as u32,
        };
        self.touch(cluster, target, bytes, record, !write);
    }

    /// A word that strong accesses synchronise through.
    fn key(target: Target) -> Option<(usize, u64)> {
        match target {
            Target::Global { address, .. } => Some((usize::MAX, address)),
            Target::Shared { rank, offset } => Some((rank, u64::from(offset))),
            Target::Local { .. } | Target::Param { .. } => None,
        }
    }

    /// A strong read sees what was published at the word.
    fn take_over(&mut self, cluster: &Cluster<'_>, target: Target, access: &Access, actor: usize) {
        let Some(key) = Self::key(target) else { return };
        if access.write && !access.updates {
            return;
        }
        if let Some((clock, only)) = self.published.get(&key)
            && only.is_none_or(|block| block == access.rank)
        {
            let state = &mut self.actors[actor];
            match access.order {
                Order::Acquire | Order::AcqRel | Order::Sc => state.clock.seen.join(clock),
                Order::Weak | Order::Relaxed | Order::Release => state.noticed.join(clock),
            }
        }
        if let (Target::Global { address, .. }, Ok(shadow)) = (target, cluster.launch.shadow.lock())
            && let Some(published) = shadow.published.get(&address)
        {
            let mut other: Vec<(u64, u64)> = published.iter().map(|(cluster, time)| (*cluster, *time)).collect();
            other.sort_unstable();
            for (cluster, time) in other {
                let own = self.visible.entry(cluster).or_insert(0);
                *own = (*own).max(time);
            }
        }
    }

    /// A strong write publishes what its thread knows, or what it knew at its last fence.
    fn give(&mut self, cluster: &Cluster<'_>, target: Target, access: &Access, actor: usize) {
        let Some(key) = Self::key(target) else { return };
        let state = &self.actors[actor];
        let releases = matches!(access.order, Order::Release | Order::AcqRel | Order::Sc);
        let clock = if releases { &state.clock.seen } else { &state.fenced };
        let turn = u32::from(releases);
        let only = (access.scope == Scope::Cta).then_some(access.rank);
        let (published, block) = self.published.entry(key).or_insert_with(|| (Clock::default(), only));
        published.join(clock);
        *block = if *block == only { only } else { None };
        if let (Target::Global { address, .. }, Ok(mut shadow)) = (target, cluster.launch.shadow.lock())
            && access.scope >= Scope::Gpu
        {
            let now = shadow.time;
            let own = self.cluster;
            let published = shadow.published.entry(address).or_default();
            published.insert(own, now);
            let mut seen: Vec<(u64, u64)> = self.visible.iter().map(|(cluster, time)| (*cluster, *time)).collect();
            seen.sort_unstable();
            for (cluster, time) in seen {
                let entry = published.entry(cluster).or_insert(0);
                *entry = (*entry).max(time);
            }
        }
        // Lanes that meet at the word are ordered by it.
        self.actors[actor].turn += turn;
        self.tick(actor);
    }

    fn touch(&mut self, cluster: &mut Cluster<'_>, target: Target, bytes: u32, record: Record, reads: bool) {
        if let Some(footprint) = &mut self.footprint {
            footprint.memory(self.cluster, target, bytes, record.write);
        }
        match target {
            Target::Shared { rank, offset } => {
                if self.options.uninitialized {
                    let memory = &mut self.written[rank][offset as usize..(offset + bytes) as usize];
                    if reads && let Some(at) = memory.iter().position(|written| !written) {
                        let message = format!(
                            "shared memory at {:#x} of block rank {rank} is read before anything was written to it",
                            offset + at as u32
                        );
                        self.report(cluster, FindingKind::Uninitialized, message, &record, None);
                    }
                    let memory = &mut self.written[rank][offset as usize..(offset + bytes) as usize];
                    if record.write {
                        memory.fill(true);
                    }
                }
                if !self.options.races {
                    return;
                }
                for (at, mask) in words(u64::from(offset), bytes) {
                    let mut cell = std::mem::take(&mut self.shared[rank][(at / 4) as usize]);
                    let new = Record { bytes: mask, ..record };
                    self.check(cluster, &cell, &new, || format!("shared {at:#x} of block rank {rank}"));
                    cell.add(new);
                    self.shared[rank][(at / 4) as usize] = cell;
                }
            }
            Target::Global { allocation, address } => {
                if self.options.uninitialized
                    && let Some(found) = cluster.launch.heap.get(allocation)
                {
                    let unwritten = if reads { found.unwritten(address, u64::from(bytes)) } else { None };
                    if record.write {
                        found.mark(address, u64::from(bytes));
                    }
                    if let Some(at) = unwritten {
                        let message = format!("global memory at {at:#x} is read before anything was written to it");
                        self.report(cluster, FindingKind::Uninitialized, message, &record, None);
                    }
                }
                if !self.options.races {
                    return;
                }
                for (at, mask) in words(address, bytes) {
                    let launch = cluster.launch;
                    let Ok(mut shadow) = launch.shadow.lock() else { return };
                    shadow.time += 1;
                    let new = Record { bytes: mask, time: shadow.time, ..record };
                    let mut cell = std::mem::take(shadow.cell(at));
                    drop(shadow);
                    self.check(cluster, &cell, &new, || format!("global {at:#x}"));
                    cell.add(new);
                    if let Ok(mut shadow) = launch.shadow.lock() {
                        *shadow.cell(at) = cell;
                    }
                }
            }
            Target::Local { .. } | Target::Param { .. } => {}
        }
    }

    fn check(&mut self, cluster: &mut Cluster<'_>, cell: &Cell, new: &Record, place: impl Fn() -> String) {
        for old in &cell.records {
            if old.bytes & new.bytes == 0 || !(old.write || new.write) || (old.atomic && new.atomic) {
                continue;
            }
            let kind = match self.ordered(old, new) {
                Relation::Before => continue,
                Relation::Race => FindingKind::Race,
                Relation::NoProxyFence => FindingKind::ProxyFence,
            };
            let what = |record: &Record| match (record.write, record.lane == ENGINE) {
                (true, false) => "a write",
                (false, false) => "a read",
                (true, true) => "an asynchronous write",
                (false, true) => "an asynchronous read",
            };
            let message = match kind {
                FindingKind::ProxyFence => {
                    format!("{} of {} comes after {} without `fence.proxy.async`", what(new), place(), what(old))
                }
                _ => format!("{} of {} and {} are not ordered", what(new), place(), what(old)),
            };
            self.report(cluster, kind, message, new, Some(old));
            return;
        }
    }

    fn ordered(&self, old: &Record, new: &Record) -> Relation {
        if old.cluster != new.cluster {
            let visible = self.visible.get(&old.cluster).copied().unwrap_or(0);
            return if old.time <= visible { Relation::Before } else { Relation::Race };
        }
        if old.actor == new.actor {
            // Lanes of a warp are ordered by the warp's own barriers; lanes that write at one instruction are allowed to.
            let apart = old.turn == new.turn && old.lane != new.lane && old.lane != ENGINE;
            let together = old.pc == new.pc && old.write && new.write;
            return if apart && !together && !(old.lane == SEVERAL && !old.write && !new.write) {
                Relation::Race
            } else {
                Relation::Before
            };
        }
        let clock = match (new.actor as usize).checked_sub(self.actors.len()) {
            None => &self.actors[new.actor as usize].clock,
            Some(operation) => &self.operations[operation].before,
        };
        let (actor, needed) = (old.actor as usize, old.clock);
        // A bulk copy sees generic writes across a fence alone.
        if new.asynchronous && !old.asynchronous && old.write {
            if clock.fenced.get(actor) >= needed {
                return Relation::Before;
            }
            return if clock.seen.get(actor) >= needed { Relation::NoProxyFence } else { Relation::Race };
        }
        if clock.seen.get(actor) >= needed { Relation::Before } else { Relation::Race }
    }

    /// Reports once for each pair of instructions.
    fn report(&mut self, cluster: &mut Cluster<'_>, kind: FindingKind, message: String, new: &Record, old: Option<&Record>) {
        let pair = (kind, new.pc, old.map_or(0, |old| old.pc));
        if cluster.findings.len() >= cluster.launch.options.most_findings || !self.reported.insert(pair) {
            return;
        }
        let place = |record: &Record| {
            let mut place =
                cluster.place(usize::from(record.rank).min(cluster.blocks.len() - 1), Some(record.thread as usize), record.pc);
            if record.cluster != self.cluster {
                // A block of another cluster: only its number is known here.
                let shape = cluster.launch.grid;
                let number = record.cluster * cluster.blocks.len() as u64 + u64::from(record.rank);
                let (x, y) = (u64::from(shape.x), u64::from(shape.y));
                place.block = [(number % x) as u32, (number / x % y) as u32, (number / x / y) as u32];
            }
            place
        };
        let finding = Finding { kind, message, place: place(new), earlier: old.map(place) };
        cluster.findings.push(finding);
    }

    /// An mbarrier was initialised.
    pub(crate) fn mbarrier_made(&mut self, rank: usize, thread: usize, pc: u32, owner: usize, offset: u32) {
        let actor = self.actor(rank, thread);
        let clock = self.actors[actor].clock.seen.get(actor);
        self.made.insert((owner, offset), Made { actor, clock, rank, thread, pc, fenced: false });
        let at = offset as usize;
        if at >= SHARED_START as usize
            && let Some(memory) = self.written[owner].get_mut(at..at + 8)
        {
            memory.fill(true);
        }
    }
}

enum Relation {
    Before,
    Race,
    NoProxyFence,
}

/// The words of a range, with the bytes of each that belong to it.
fn words(start: u64, bytes: u32) -> impl Iterator<Item = (u64, u8)> {
    let end = start + u64::from(bytes);
    (start / 4..end.div_ceil(4)).map(move |word| {
        let mask = (0..4).filter(|byte| (start..end).contains(&(word * 4 + byte))).fold(0, |mask, byte| mask | 1 << byte);
        (word * 4, mask)
    })
}
