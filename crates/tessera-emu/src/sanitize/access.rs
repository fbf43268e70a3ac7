//! Accesses: what one must come after, and what is reported where it does not.

use super::cell::{Cell, ENGINE, Record, SEVERAL, Strong};
use super::clock::Clock;
use super::shadow::{Origin, Runs};
use super::{Access, Sanitizer, Ticket, later};
use crate::exec::{Cluster, Target};
use crate::finding::{Class, Finding, FindingKind};
use crate::lanes::LANES;
use crate::program::{Order, Scope};

impl Sanitizer {
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
            same: access.same,
            strong: access.atomic.then_some(Strong { scope: access.scope, width: access.width as u8 }),
            asynchronous: false,
            pc: access.pc,
            rank: access.rank as u16,
            thread: access.thread as u32,
        };
        if access.atomic {
            self.take_over(cluster, target, access, actor);
        }
        self.touch(cluster, target, bytes, record);
        if access.atomic && access.write {
            self.give(cluster, target, access, actor);
        }
    }

    /// What a read-modify-write has found was published.
    pub(crate) fn found(&mut self, cluster: &Cluster<'_>, target: Target, access: &Access) {
        if access.atomic {
            self.take_over(cluster, target, access, self.actor(access.rank, access.thread));
        }
    }

    /// An asynchronous operation's access.
    pub(crate) fn job_access(
        &mut self,
        cluster: &mut Cluster<'_>,
        JobPart { ticket, pc, lane }: JobPart,
        target: Target,
        bytes: u32,
        how: JobAccess,
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
            write: how != JobAccess::Read,
            same: how == JobAccess::SameWrite,
            strong: match how {
                JobAccess::Update { width } => Some(Strong { scope: Scope::Gpu, width: width as u8 }),
                JobAccess::Read | JobAccess::Write | JobAccess::SameWrite => None,
            },
            asynchronous: operation.asynchronous,
            pc,
            rank: operation.rank as u16,
            thread: lane.map_or(operation.thread, |lane| operation.thread / LANES * LANES + lane) as u32,
        };
        self.touch(cluster, target, bytes, record);
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
            && access.scope >= Scope::Gpu
        {
            let acquires = matches!(access.order, Order::Acquire | Order::AcqRel | Order::Sc);
            let reached = [Some(self.device), None];
            let reached = if access.scope == Scope::System { &reached[..] } else { &reached[..1] };
            for (at, &who) in reached.iter().enumerate() {
                if let Some(published) = shadow.published.get(&(who, address)) {
                    later(if acquires { &mut self.visible } else { &mut self.noticed[at] }, published);
                }
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
            let reached = [Some(self.device), None];
            let reached = if access.scope == Scope::System { &reached[..] } else { &reached[..1] };
            for (fenced, &who) in self.fenced.iter().zip(reached) {
                let (time, seen) = if releases { (shadow.time, &self.visible) } else { (fenced.0, &fenced.1) };
                let published = shadow.published.entry((who, address)).or_default();
                later(published, seen);
                let own = published.entry(self.cluster).or_insert(0);
                *own = (*own).max(time);
            }
        }
        // Lanes that meet at the word are ordered by it.
        self.actors[actor].turn += turn;
        self.tick(actor);
    }

    fn touch(&mut self, cluster: &mut Cluster<'_>, target: Target, bytes: u32, record: Record) {
        if let Some(trail) = &mut self.trail {
            trail.footprint.memory(self.cluster.number, target, bytes, record.write);
        }
        match target {
            Target::Shared { rank, offset } => {
                if !self.options.races {
                    return;
                }
                let mut cells = std::mem::take(&mut self.shared[rank]);
                for (at, mask) in words(u64::from(offset), bytes) {
                    let cell = &mut cells[(at / 4) as usize];
                    let same = record.same && cell.is_written(mask);
                    let mut new = Record { bytes: mask, same, ..record };
                    if let Some(found) = self.conflict(cell, &mut new, None) {
                        let place = || format!("shared {at:#x} of block rank {rank}");
                        self.report_conflict(cluster, &found, &new, None, place);
                    }
                    cell.add(new);
                }
                self.shared[rank] = cells;
            }
            Target::Global { allocation, address } => {
                let launch = cluster.launch;
                let found = launch.heap.get(allocation);
                if !self.options.races {
                    return;
                }
                let Ok(mut shadow) = launch.shadow.lock() else { return };
                for (at, mask) in words(address, bytes) {
                    shadow.time += 1;
                    let time = shadow.time;
                    let (cell, runs) = shadow.cell(at);
                    let known = || found.is_none_or(|found| found.unwritten(address, u64::from(bytes)).is_none());
                    let same = record.same && (cell.is_written(mask) || known());
                    let mut new = Record { bytes: mask, time, same, ..record };
                    if let Some(found) = self.conflict(cell, &mut new, Some(runs)) {
                        let run = found.old.cluster.run;
                        let origin = runs.origin(run).filter(|_| run != new.cluster.run);
                        self.report_conflict(cluster, &found, &new, origin, || format!("global {at:#x}"));
                    }
                    cell.add(new);
                }
            }
            Target::Local { .. } | Target::Param { .. } => {}
        }
    }

    /// The first access to a word that a new one must come after and does not, of those that weigh most. Where a write leaves
    /// the word as it was, nobody can tell who came first.
    fn conflict(&self, cell: &Cell, new: &mut Record, runs: Option<&Runs>) -> Option<Conflict> {
        let mut found: Option<Conflict> = None;
        for old in cell.before(new) {
            if old.bytes & new.bytes == 0 {
                continue;
            }
            let strength = strength(old, new, runs);
            if strength == Strength::Morally {
                continue;
            }
            let (kind, class) = match self.ordered(old, new, runs) {
                Relation::Before => continue,
                Relation::Race if new.same || (old.same && !new.write) => (FindingKind::Race, Class::Formal),
                // The chip does strong accesses of any size one by one.
                Relation::Race if matches!(strength, Strength::Sizes(..)) => (FindingKind::Race, Class::Formal),
                Relation::Race => (FindingKind::Race, Class::Wrong),
                Relation::NoProxyFence => (FindingKind::ProxyFence, Class::Wrong),
            };
            if found.as_ref().is_none_or(|found| class > found.class) {
                found = Some(Conflict { kind, class, old: *old, strength });
            }
        }
        // Of two writers of one value, the one that comes first does change the word.
        if let Some(Conflict { old, .. }) = &found
            && old.write
            && !old.same
        {
            new.same = false;
        }
        found
    }

    #[cold]
    fn report_conflict(
        &self,
        cluster: &mut Cluster<'_>,
        Conflict { kind, class, old, strength }: &Conflict,
        new: &Record,
        origin: Option<&Origin>,
        place: impl FnOnce() -> String,
    ) {
        let what = |record: &Record| match (record.write, record.lane == ENGINE) {
            (true, false) => "a write",
            (false, false) => "a read",
            (true, true) => "an asynchronous write",
            (false, true) => "an asynchronous read",
        };
        self.report(cluster, (*kind, *class), new, Some((old, origin)), || match (kind, strength) {
            (FindingKind::ProxyFence, _) => {
                format!("{} of {} comes after {} without `fence.proxy.async`", what(new), place(), what(old))
            }
            (_, Strength::Weak | Strength::Morally) => format!("{} of {} and {} are not ordered", what(new), place(), what(old)),
            (_, Strength::Narrow(scope)) => format!(
                "{} of {} and {} are not ordered: both are strong, and the scope `{}` does not reach the other's thread",
                what(new),
                place(),
                what(old),
                scope.name()
            ),
            (_, Strength::Sizes(one, other)) => format!(
                "{} of {} and {} are not ordered: both are strong, and one is of {one} bytes, the other of {other}",
                what(new),
                place(),
                what(old)
            ),
        });
    }

    fn ordered(&self, old: &Record, new: &Record, runs: Option<&Runs>) -> Relation {
        if old.cluster != new.cluster {
            if runs.is_some_and(|runs| runs.is_over(old.cluster.run, new.cluster.run)) {
                return Relation::Before;
            }
            let visible = self.visible.get(&old.cluster).copied().unwrap_or(0);
            return if old.time <= visible { Relation::Before } else { Relation::Race };
        }
        let issued = (new.actor as usize).checked_sub(self.actors.len());
        if old.actor == new.actor && issued.is_none() {
            // Lanes of a warp are ordered by the warp's own barriers; lanes that write at one instruction are allowed to.
            let apart = old.turn == new.turn && old.lane != new.lane && old.lane != ENGINE;
            let together = old.pc == new.pc && old.write && new.write;
            return if apart && !together && !(old.lane == SEVERAL && !old.write && !new.write) {
                Relation::Race
            } else {
                Relation::Before
            };
        }
        // An operation's number is given again: another clock is another operation.
        if old.actor == new.actor && old.clock == new.clock {
            return Relation::Before;
        }
        if self.are_apart(old, new) {
            return Relation::Race;
        }
        let clock = match issued {
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

    /// Whether a `cp.async` is one of the two, and lanes of its warp did them between which stands no barrier of the warp's own: what a
    /// lane has copied is its own until then, also where it has waited for it.
    fn are_apart(&self, old: &Record, new: &Record) -> bool {
        let warp = |record: &Record| self.actor(usize::from(record.rank), record.thread as usize);
        let is_copy = |record: &Record| record.actor as usize >= self.actors.len() && !record.asynchronous;
        let alone = old.thread == new.thread && old.lane != SEVERAL;
        if alone || new.asynchronous || warp(old) != warp(new) || !(is_copy(old) || is_copy(new)) {
            return false;
        }
        let turn = match (new.actor as usize).checked_sub(self.actors.len()) {
            None => new.turn,
            Some(operation) => self.operations[operation].turn,
        };
        match is_copy(old) {
            true => {
                let waited = &self.actors[warp(old)].waited;
                waited.turn == turn && waited.first.get(&(old.actor as usize)).is_some_and(|&first| old.clock >= first)
            }
            false => old.lane != ENGINE && old.turn == turn,
        }
    }

    /// Notes a finding; `message` is asked the first time for each pair of instructions.
    pub(super) fn report(
        &self,
        cluster: &mut Cluster<'_>,
        (kind, class): (FindingKind, Class),
        new: &Record,
        old: Option<(&Record, Option<&Origin>)>,
        message: impl FnOnce() -> String,
    ) {
        let place = |cluster: &Cluster<'_>, record: &Record| {
            let mut place =
                cluster.place(usize::from(record.rank).min(cluster.blocks.len() - 1), Some(record.thread as usize), record.pc);
            if record.cluster != self.cluster {
                // A block of another cluster: only its number is known here.
                let number = record.cluster.number * cluster.blocks.len() as u64 + u64::from(record.rank);
                place.block = Origin::of(cluster.launch).block(number);
            }
            place
        };
        let earlier = |cluster: &Cluster<'_>, (record, origin): (&Record, Option<&Origin>)| match origin {
            None => place(cluster, record),
            Some(origin) => {
                let number = record.cluster.number * cluster.blocks.len() as u64 + u64::from(record.rank);
                origin.place(origin.block(number), Some(record.thread as usize), record.pc)
            }
        };
        cluster.note((kind, new.pc, old.map(|(old, _)| old.pc)), class, |cluster| {
            Finding::new(kind, message(), place(cluster, new), old.map(|old| earlier(cluster, old)))
        });
    }
}

/// An asynchronous operation, or what a lane does of a warp's.
#[derive(Clone, Copy, Debug)]
pub(crate) struct JobPart {
    pub(crate) ticket: Ticket,
    pub(crate) pc: u32,
    pub(crate) lane: Option<usize>,
}

/// What an asynchronous operation does at a place.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum JobAccess {
    Read,
    Write,
    /// A write of what the memory holds already.
    SameWrite,
    /// A reduction: one step for each element of so many bytes, in any order among its kind.
    Update {
        width: u32,
    },
}

impl JobAccess {
    /// A write; `same` where it changes nothing.
    pub(crate) fn writing(same: bool) -> JobAccess {
        if same { JobAccess::SameWrite } else { JobAccess::Write }
    }
}

/// An access that a new one must come after and does not.
struct Conflict {
    kind: FindingKind,
    class: Class,
    old: Record,
    strength: Strength,
}

/// What two accesses are to one another, whatever orders them ("Memory Consistency Model: Morally strong operations").
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Strength {
    /// One of them is weak.
    Weak,
    /// Each sees the other as one step.
    Morally,
    /// The scope of one does not reach the other's thread.
    Narrow(Scope),
    /// They touch different bytes, in elements of these sizes.
    Sizes(u8, u8),
}

fn strength(old: &Record, new: &Record, runs: Option<&Runs>) -> Strength {
    let (Some(a), Some(b)) = (old.strong, new.strong) else { return Strength::Weak };
    let needed = match (old.cluster == new.cluster, old.rank == new.rank) {
        (true, true) => Scope::Cta,
        (true, false) => Scope::Cluster,
        _ if runs.is_none_or(|runs| runs.share_device(old.cluster.run, new.cluster.run)) => Scope::Gpu,
        _ => Scope::System,
    };
    match a.scope.min(b.scope) {
        least if least < needed => Strength::Narrow(least),
        _ if a.width == b.width => Strength::Morally,
        _ => Strength::Sizes(b.width, a.width),
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
    let whole = start.is_multiple_of(4) && bytes.is_multiple_of(4);
    (start / 4..end.div_ceil(4)).map(move |word| {
        if whole {
            return (word * 4, 0b1111);
        }
        let mask = (0..4).filter(|byte| (start..end).contains(&(word * 4 + byte))).fold(0, |mask, byte| mask | 1 << byte);
        (word * 4, mask)
    })
}
