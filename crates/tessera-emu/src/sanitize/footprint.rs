//! What one step of a systematic schedule touched: two steps that touch different things, or only read the same, may be
//! swapped.
//!
//! At a barrier of a block or a cluster threads come in any order, so arrivals for one completion may be swapped. Who waits there cannot pass before all
//! have come: it follows them, and no other order has to be tried.

use std::collections::BTreeMap;

use super::SyncObject;
use crate::exec::Target;

/// The memory and the barriers that a step touched.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Footprint {
    memory: Vec<Range>,
    objects: Vec<(u64, SyncObject, Touch)>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Range {
    /// Shared memory of a block of a cluster; global memory is everybody's.
    owner: Option<(u64, usize)>,
    start: u64,
    end: u64,
    write: bool,
}

/// How a barrier is touched.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Touch {
    /// An mbarrier: arrivals may be swapped, and so may looks.
    Arrives,
    Looks,
    Changes,
    /// A barrier of a block or a cluster, with how often it had completed: somebody comes,
    Comes(u64),
    /// is the last to come,
    Completes(u64),
    /// goes on behind it; `by_all` where it waits for all threads that live.
    Passes {
        from: u64,
        by_all: bool,
    },
    /// or ends, and is not waited for any more.
    Ends(u64),
}

impl Touch {
    /// Whether two touches of one barrier may not be swapped.
    fn conflicts(self, other: Touch) -> bool {
        match (self, other) {
            (Touch::Arrives, Touch::Arrives) | (Touch::Looks, Touch::Looks) => false,
            (Touch::Arrives | Touch::Looks | Touch::Changes, _) | (_, Touch::Arrives | Touch::Looks | Touch::Changes) => true,
            // Where fewer are waited for than come, the order says who meets whom.
            (Touch::Comes(a), Touch::Comes(b)) => a != b,
            (Touch::Completes(a), Touch::Completes(b)) => a == b,
            (Touch::Comes(_) | Touch::Completes(_) | Touch::Passes { .. } | Touch::Ends(_), _) => false,
        }
    }

    /// Whether a later touch of the same barrier could not have come before this one.
    fn allows(self, later: Touch) -> bool {
        match (self, later) {
            (Touch::Comes(a), Touch::Passes { from, .. }) => a == from,
            (Touch::Ends(a), Touch::Passes { from, by_all }) => by_all && a <= from,
            _ => false,
        }
    }
}

/// Notes what steps touch, and how often barriers of blocks and clusters have completed.
#[derive(Debug, Default)]
pub(super) struct Trail {
    pub(super) footprint: Footprint,
    /// For each completion, whether it waited for all threads.
    completed: BTreeMap<SyncObject, Vec<bool>>,
    /// How often the barrier had completed when an actor last came.
    came: BTreeMap<(usize, SyncObject), u64>,
}

impl Trail {
    pub(super) fn touch(&mut self, cluster: u64, object: SyncObject, touch: Touch) {
        let entry = (cluster, object, touch);
        if !self.footprint.objects.contains(&entry) {
            self.footprint.objects.push(entry);
        }
    }

    fn completions(&self, object: SyncObject) -> u64 {
        self.completed.get(&object).map_or(0, |completed| completed.len() as u64)
    }

    /// An actor comes to a barrier.
    pub(super) fn comes(&mut self, cluster: u64, actor: usize, object: SyncObject) {
        let now = self.completions(object);
        self.came.insert((actor, object), now);
        self.touch(cluster, object, if object.is_mbarrier() { Touch::Arrives } else { Touch::Comes(now) });
    }

    /// An actor goes on behind a barrier.
    pub(super) fn passes(&mut self, cluster: u64, actor: usize, object: SyncObject) {
        let completion = || {
            let from = *self.came.get(&(actor, object))?;
            let by_all = *self.completed.get(&object)?.get(from as usize)?;
            Some(Touch::Passes { from, by_all })
        };
        let touch = match object.is_mbarrier() {
            true => Touch::Looks,
            // Nothing is known of who passes a barrier that it did not come to: it may be swapped with nothing there.
            false => completion().unwrap_or(Touch::Changes),
        };
        self.touch(cluster, object, touch);
    }

    /// A barrier of a block or a cluster completes.
    pub(super) fn completes(&mut self, cluster: u64, object: SyncObject, by_all: bool) {
        self.touch(cluster, object, Touch::Completes(self.completions(object)));
        self.completed.entry(object).or_default().push(by_all);
    }

    /// Somebody ends who might have come to a barrier.
    pub(super) fn ends(&mut self, cluster: u64, object: SyncObject) {
        self.touch(cluster, object, Touch::Ends(self.completions(object)));
    }
}

impl Footprint {
    pub(super) fn memory(&mut self, cluster: u64, target: Target, bytes: u32, write: bool) {
        let (owner, start) = match target {
            Target::Global { address, .. } => (None, address),
            Target::Shared { rank, offset } => (Some((cluster, rank)), u64::from(offset)),
            Target::Local { .. } | Target::Param { .. } => return,
        };
        let range = Range { owner, start, end: start + u64::from(bytes), write };
        // Lanes side by side are one range.
        match self.memory.last_mut() {
            Some(last) if last.owner == owner && last.write == write && last.end == start => last.end = range.end,
            Some(last) if *last == range => {}
            _ => self.memory.push(range),
        }
    }

    /// Whether the two may not be swapped.
    pub(crate) fn conflicts(&self, other: &Footprint) -> bool {
        let overlap = |a: &Range, b: &Range| (a.write || b.write) && a.owner == b.owner && a.start < b.end && b.start < a.end;
        self.memory.iter().any(|a| other.memory.iter().any(|b| overlap(a, b))) || self.meets(other, Touch::conflicts)
    }

    /// Whether a later step has this one behind it: they may not be swapped, or it could not have come before.
    pub(crate) fn precedes(&self, later: &Footprint) -> bool {
        self.conflicts(later) || self.meets(later, Touch::allows)
    }

    fn meets(&self, other: &Footprint, how: impl Fn(Touch, Touch) -> bool) -> bool {
        let meet = |a: &(u64, SyncObject, Touch), b: &(u64, SyncObject, Touch)| (a.0, a.1) == (b.0, b.1) && how(a.2, b.2);
        self.objects.iter().any(|a| other.objects.iter().any(|b| meet(a, b)))
    }

    /// Whether nobody can notice that it was there.
    pub(crate) fn is_silent(&self) -> bool {
        self.memory.iter().all(|range| !range.write)
            && self.objects.iter().all(|(.., touch)| matches!(touch, Touch::Looks | Touch::Passes { .. }))
    }
}
