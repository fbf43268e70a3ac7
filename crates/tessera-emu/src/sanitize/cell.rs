//! Who touched a word of memory last: the accesses that nothing has overwritten yet.

use std::collections::BTreeMap;

use smallvec::SmallVec;

use super::shadow::ClusterId;
use crate::program::Scope;

/// One access to a word.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Record {
    /// The cluster, for global memory.
    pub(super) cluster: ClusterId,
    /// When, counted over the node's launches.
    pub(super) time: u64,
    pub(super) actor: u32,
    pub(super) clock: u32,
    /// The turn of the warp between its own barriers, and the lane; [`ENGINE`] is no thread, [`SEVERAL`] more than one.
    pub(super) turn: u32,
    pub(super) lane: u8,
    /// Bytes of the word.
    pub(super) bytes: u8,
    pub(super) write: bool,
    /// A write after which the word held what it held before, whoever else wrote it meanwhile.
    pub(super) same: bool,
    /// Of strong accesses and read-modify-writes: who sees them as one step.
    pub(super) strong: Option<Strong>,
    /// Through the asynchronous proxy.
    pub(super) asynchronous: bool,
    pub(super) pc: u32,
    pub(super) rank: u16,
    pub(super) thread: u32,
}

/// What makes strong accesses one step each to one another ("Memory Consistency Model: Morally strong operations"): both reach the other's
/// thread, and they touch the same bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Strong {
    pub(super) scope: Scope,
    /// Bytes of an element. Elements lie at multiples of their size, so those of one size that overlap are the same bytes.
    pub(super) width: u8,
}

impl Record {
    fn reader(&self) -> Reader {
        (self.cluster, self.actor)
    }

    /// Whether what comes later need not be compared with this one, but only with a new write of the same bytes. A strong one leaves weak ones in
    /// place, and those that fewer threads see as one step: it is compared with those alone.
    fn gives_way(&self, new: &Record) -> bool {
        match (self.strong, new.strong) {
            (_, None) => true,
            (None, Some(_)) => false,
            (Some(old), Some(new)) => old.scope >= new.scope && old.width == new.width,
        }
    }
}

pub(super) const ENGINE: u8 = 0xff;
pub(super) const SEVERAL: u8 = 0xfe;

/// Reads that a word keeps in a list; beyond, it keeps them by their reader, since a word of a table is read by every warp of a grid.
const FEW: usize = 8;

/// A reader: its cluster, and the actor there.
type Reader = (ClusterId, u32);

/// The accesses to one word.
#[derive(Clone, Debug, Default)]
pub(super) struct Cell {
    writes: SmallVec<[Record; 1]>,
    reads: SmallVec<[Record; 1]>,
    many: BTreeMap<Reader, SmallVec<[Record; 1]>>,
}

impl Cell {
    /// Whether each of the bytes has a write that nothing has overwritten.
    pub(super) fn is_written(&self, bytes: u8) -> bool {
        self.writes.iter().fold(bytes, |rest, record| rest & !record.bytes) == 0
    }

    /// What an access may have to come after: what was written, and before a write what was read.
    pub(super) fn before(&self, new: &Record) -> impl Iterator<Item = &Record> {
        let reads = || self.reads.iter().chain(self.many.values().flatten());
        self.writes.iter().chain(new.write.then(reads).into_iter().flatten())
    }

    /// Adds an access: a write takes the place of what it overwrites, a read of earlier reads by the same actor.
    pub(super) fn add(&mut self, new: Record) {
        match new.write {
            true => self.write(new),
            false => self.read(new),
        }
    }

    fn write(&mut self, new: Record) {
        let stays = |old: &mut Record| {
            if old.gives_way(&new) {
                old.bytes &= !new.bytes;
            }
            old.bytes != 0
        };
        self.writes.retain(stays);
        self.reads.retain(stays);
        self.many.retain(|_, reads| {
            reads.retain(stays);
            !reads.is_empty()
        });
        self.writes.push(new);
    }

    fn read(&mut self, new: Record) {
        if self.reads.len() >= FEW {
            for read in self.reads.drain(..) {
                self.many.entry(read.reader()).or_default().push(read);
            }
        }
        let reads = match self.many.is_empty() {
            true => &mut self.reads,
            false => self.many.entry(new.reader()).or_default(),
        };
        let fellow = |old: &Record| old.reader() == new.reader() && old.strong == new.strong;
        // Lanes that read different bytes of the word stay apart: each may write its own.
        let same = |old: &&mut Record| fellow(old) && old.turn == new.turn && (old.lane == new.lane || old.bytes == new.bytes);
        if let Some(old) = reads.iter_mut().find(same) {
            let lane = if old.lane != new.lane { SEVERAL } else { new.lane };
            *old = Record { lane, bytes: old.bytes | new.bytes, ..new };
            return;
        }
        // An earlier turn's reads are stood for by those of the same bytes, whichever lanes they are of.
        reads.retain(|old| {
            if fellow(old) && old.turn != new.turn {
                old.bytes &= !new.bytes;
            }
            old.bytes != 0
        });
        reads.push(new);
    }
}
