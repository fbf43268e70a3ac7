//! What one step of a systematic schedule touched: two steps that touch different things, or only read the same, may be
//! swapped.

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

/// How a barrier is touched. Arrivals may be swapped, and so may looks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Touch {
    Arrives,
    Looks,
    Changes,
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

    pub(super) fn object(&mut self, cluster: u64, object: SyncObject, touch: Touch) {
        let entry = (cluster, object, touch);
        if !self.objects.contains(&entry) {
            self.objects.push(entry);
        }
    }

    /// Whether the two may not be swapped.
    pub(crate) fn conflicts(&self, other: &Footprint) -> bool {
        let overlap = |a: &Range, b: &Range| (a.write || b.write) && a.owner == b.owner && a.start < b.end && b.start < a.end;
        let meet = |a: &(u64, SyncObject, Touch), b: &(u64, SyncObject, Touch)| {
            (a.0, a.1) == (b.0, b.1) && (a.2 != b.2 || a.2 == Touch::Changes)
        };
        self.memory.iter().any(|a| other.memory.iter().any(|b| overlap(a, b)))
            || self.objects.iter().any(|a| other.objects.iter().any(|b| meet(a, b)))
    }

    /// Whether nobody can notice that it was there.
    pub(crate) fn is_silent(&self) -> bool {
        self.memory.iter().all(|range| !range.write) && self.objects.iter().all(|(.., touch)| *touch == Touch::Looks)
    }
}
