//! Sanitizers: races by happens-before, missing proxy fences, reads of memory that nobody wrote.
//!
//! Every word of shared and global memory remembers who touched it last ([`shadow`]); every actor knows what happened before it
//! ([`clock`]). An access that conflicts with an earlier one (same byte, one of them a write, not morally strong) must come after
//! it. Actors are warps and asynchronous operations; lanes of one warp, and what they copy by `cp.async`, are told apart by the warp's own
//! barriers.
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
//! - An mbarrier's initialisation is seen by the asynchronous proxy after `fence.mbarrier_init` or `fence.proxy.async`. Behind a
//!   `fence.mbarrier_init`, relaxed arrivals order it too ("membar, fence": `.mbarrier_init`).
//!
//! Between clusters the order is coarser: what a strong write hands on is all that its cluster had done, until then where it
//! releases, until the cluster's last fence of `.gpu` or wider where it is relaxed. So a race may be missed but none is invented.
//!
//! Two accesses are morally strong where both are strong, or read-modify-writes, the scope of each reaches the other's thread, and they touch
//! the same bytes ("Memory Consistency Model: Morally strong operations").
//!
//! Between devices only `.sys` orders: a release of `.gpu` is one for threads of its own device, and strong accesses of two
//! devices to one word are no race where both say `.sys` ("Memory Consistency Model: Morally strong operations"). A launch comes
//! after those that had ended when it began.

mod access;
mod cell;
mod clock;
mod footprint;
mod operations;
mod shadow;

use std::collections::BTreeMap;

use rustc_hash::FxHashMap;

use crate::exec::{Cluster, Launch};
use crate::finding::{Class, FindingKind};
use crate::lanes::LANES;
use crate::options::{Sanitize, Schedule};
use crate::program::{Order, Scope};
pub(crate) use access::{JobAccess, JobPart};
use cell::{Cell, Record};
use clock::{Clock, Pair};
use footprint::Trail;
pub(crate) use footprint::{Footprint, Touch};
use shadow::{ClusterId, Seen};
pub(crate) use shadow::{GlobalShadow, Origin, RunId};

/// An access by a thread.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Access {
    pub(crate) rank: usize,
    pub(crate) thread: usize,
    pub(crate) pc: u32,
    pub(crate) write: bool,
    /// A write of what the memory holds already.
    pub(crate) same: bool,
    pub(crate) atomic: bool,
    /// Whether it reads too: `atom`.
    pub(crate) updates: bool,
    /// Bytes of each of its elements.
    pub(crate) width: u32,
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

impl SyncObject {
    fn is_mbarrier(self) -> bool {
        matches!(self, SyncObject::Mbarrier { .. })
    }
}

/// An asynchronous operation.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Ticket(u32);

/// What lanes of a warp have copied by one `cp.async`.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Copies {
    pub(crate) ticket: Ticket,
    pub(crate) lanes: u32,
    /// The group of the first lane.
    pub(crate) group: u32,
}

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
    waited: Waited,
}

/// Copies by `cp.async` that lanes of a warp have waited for since its last barrier of its own: each lane for those it started.
#[derive(Clone, Debug, Default)]
struct Waited {
    turn: u32,
    /// Of each operation's number, the clock of the first.
    first: BTreeMap<usize, u32>,
}

#[derive(Clone, Debug, Default)]
struct Operation {
    /// What happened before it was issued.
    before: Pair,
    clock: u32,
    /// The turn of its warp in which it was issued.
    turn: u32,
    asynchronous: bool,
    rank: usize,
    thread: usize,
    free: bool,
}

/// The sanitizers' state of a cluster.
pub(crate) struct Sanitizer {
    options: Sanitize,
    cluster: ClusterId,
    device: u32,
    warps: usize,
    actors: Vec<Actor>,
    operations: Vec<Operation>,
    objects: BTreeMap<SyncObject, Object>,
    /// What releases at a word have published, within the cluster; with the block for `.cta`.
    published: FxHashMap<(usize, u64), (Clock, Option<usize>)>,
    shared: Vec<Vec<Cell>>,
    /// Up to when other clusters' accesses are visible here.
    visible: Seen,
    /// The same by relaxed reads, of the device's own threads and of all devices': a fence that reaches them makes it visible.
    noticed: [Seen; 2],
    /// When the cluster had its last fence that reaches the device, and all devices, and what was visible then: what relaxed
    /// writes hand on.
    fenced: [(u64, Seen); 2],
    /// Products of a warpgroup (block, warpgroup, number) with the count of warps that have waited.
    products: BTreeMap<(usize, usize, u64), (Ticket, u32)>,
    /// `cp.async` of a warp, and bulk stores of a thread with their group, that nobody has waited for.
    copies: BTreeMap<usize, Vec<Copies>>,
    stores: BTreeMap<(usize, usize), Vec<(Ticket, u32)>>,
    made: BTreeMap<(usize, u32), Made>,
    /// What was touched since somebody asked, for systematic schedules.
    trail: Option<Trail>,
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
        let cluster = ClusterId { run: launch.run(), number: cluster };
        let visible = launch.shadow.lock().map_or_else(|_| Seen::default(), |shadow| shadow.known(launch.device));
        Sanitizer {
            // Systematic schedules tell races from atomics that meet in another order.
            options: Sanitize {
                races: launch.options.sanitize.races || launch.options.schedule == Schedule::Systematic,
                ..launch.options.sanitize
            },
            cluster,
            device: launch.device,
            warps,
            actors,
            operations: Vec::new(),
            objects: BTreeMap::new(),
            published: FxHashMap::default(),
            shared: vec![vec![Cell::default(); shared.div_ceil(4)]; blocks],
            // What ran on the device before is known to all who look there.
            fenced: [(0, visible.clone()), (0, visible.clone())],
            visible,
            noticed: [Seen::default(), Seen::default()],
            products: BTreeMap::new(),
            copies: BTreeMap::new(),
            stores: BTreeMap::new(),
            made: BTreeMap::new(),
            trail: None,
        }
    }

    /// From now on notes what is touched.
    pub(crate) fn follow(&mut self) {
        self.trail = Some(Trail::default());
    }

    /// What was touched since this was last asked.
    pub(crate) fn take_footprint(&mut self) -> Footprint {
        self.trail.as_mut().map_or_else(Footprint::default, |trail| std::mem::take(&mut trail.footprint))
    }

    /// Somebody touches a barrier.
    pub(crate) fn touch_object(&mut self, object: SyncObject, touch: Touch) {
        if let Some(trail) = &mut self.trail {
            trail.touch(self.cluster.number, object, touch);
        }
    }

    /// A warp ends, which barriers that all come to do not wait for any more.
    pub(crate) fn warp_ends(&mut self, rank: usize) {
        if let Some(trail) = &mut self.trail {
            let of_block = (0..16).map(|id| SyncObject::Block { rank, id });
            of_block.chain([SyncObject::Cluster]).for_each(|object| trail.ends(self.cluster.number, object));
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
        if let Some(trail) = &mut self.trail {
            trail.comes(self.cluster.number, actor, object);
        }
        let state = &self.actors[actor];
        let object = self.objects.entry(object).or_default();
        match orders {
            true => object.coming.join(&state.clock),
            false => object.coming.made.join(&state.clock.made),
        }
        self.tick(actor);
    }

    pub(crate) fn acquire(&mut self, rank: usize, thread: usize, object: SyncObject) {
        let actor = self.actor(rank, thread);
        if let Some(trail) = &mut self.trail {
            trail.passes(self.cluster.number, actor, object);
        }
        if let Some(found) = self.objects.get(&object) {
            let state = &mut self.actors[actor];
            state.clock.join(&found.complete);
            // A fence before a barrier counts for those behind it.
            state.fenced.join(&found.complete.seen);
        }
        self.actors[actor].turn += 1;
    }

    /// A barrier of a block or a cluster completes; `by_all` where it has waited for all threads that live.
    pub(crate) fn complete_meeting(&mut self, object: SyncObject, by_all: bool) {
        if let Some(trail) = &mut self.trail {
            trail.completes(self.cluster.number, object, by_all);
        }
        self.complete(object);
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

    pub(crate) fn fence(&mut self, launch: &Launch<'_>, rank: usize, thread: usize, scope: Scope) {
        let reached = match scope {
            Scope::Cta | Scope::Cluster => 0,
            Scope::Gpu => 1,
            Scope::System => 2,
        };
        for noticed in &mut self.noticed[..reached] {
            later(&mut self.visible, &std::mem::take(noticed));
        }
        if reached > 0 {
            let now = launch.shadow.lock().map_or(0, |shadow| shadow.time);
            self.fenced[..reached].fill((now, self.visible.clone()));
        }
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
        let clock = &mut self.actors[actor].clock;
        clock.made.set(actor, clock.seen.get(actor));
        // What is made from here on comes later.
        self.tick(actor);
    }

    /// A bulk copy will signal an mbarrier: its initialisation must be visible to the asynchronous proxy.
    pub(crate) fn will_signal(&mut self, cluster: &mut Cluster<'_>, ticket: Ticket, pc: u32, owner: usize, offset: u32) {
        let (Some(made), true) = (self.made.get(&(owner, offset)).copied(), self.options.races) else { return };
        let operation = &self.operations[ticket.0 as usize];
        if made.fenced || operation.before.fenced.get(made.actor) >= made.clock {
            return;
        }
        // Behind a barrier the engine finds the mbarrier made, whatever the manual asks for.
        let class = if operation.before.seen.get(made.actor) >= made.clock { Class::Formal } else { Class::Wrong };
        let (new, old) = (self.bare(pc, operation.rank, operation.thread), self.bare(made.pc, made.rank, made.thread));
        self.report(cluster, (FindingKind::ProxyFence, class), &new, Some((&old, None)), || {
            format!(
                "a bulk copy signals the mbarrier at shared {offset:#x}, whose initialisation no `fence.mbarrier_init` or `fence.proxy.async` follows"
            )
        });
    }

    /// A thread uses an mbarrier: its initialisation must have happened before.
    pub(crate) fn uses_mbarrier(&mut self, cluster: &mut Cluster<'_>, rank: usize, thread: usize, pc: u32, at: (usize, u32)) {
        let (Some(made), true) = (self.made.get(&at).copied(), self.options.races) else { return };
        let actor = self.actor(rank, thread);
        let clock = &self.actors[actor].clock;
        if made.actor == actor || clock.seen.get(made.actor).max(clock.made.get(made.actor)) >= made.clock {
            return;
        }
        let (new, old) = (self.bare(pc, rank, thread), self.bare(made.pc, made.rank, made.thread));
        self.report(cluster, (FindingKind::Race, Class::Wrong), &new, Some((&old, None)), || {
            format!("the mbarrier at shared {:#x} is used, and nothing orders that behind its initialisation", at.1)
        });
    }

    /// The cluster has ended: what it saw is known to what comes next on its device.
    pub(crate) fn ended(&self, launch: &Launch<'_>) {
        if let (true, Ok(mut shadow)) = (launch.shared, launch.shadow.lock()) {
            shadow.keep(self.device, &self.visible);
            self.noticed.iter().for_each(|noticed| shadow.keep(self.device, noticed));
        }
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
            same: false,
            strong: None,
            asynchronous: false,
            pc,
            rank: rank as u16,
            thread: thread as u32,
        }
    }

    /// An mbarrier was initialised.
    pub(crate) fn mbarrier_made(&mut self, rank: usize, thread: usize, pc: u32, owner: usize, offset: u32) {
        let actor = self.actor(rank, thread);
        let clock = self.actors[actor].clock.seen.get(actor);
        self.made.insert((owner, offset), Made { actor, clock, rank, thread, pc, fenced: false });
    }
}

/// Takes over the later of two times for each cluster.
#[allow(clippy::iter_over_hash_type, reason = "the order of maxima does not matter")]
fn later(own: &mut Seen, other: &Seen) {
    for (&cluster, &time) in other {
        let own = own.entry(cluster).or_insert(0);
        *own = (*own).max(time);
    }
}
