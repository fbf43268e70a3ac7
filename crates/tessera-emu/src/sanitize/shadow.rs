//! Who touched a word of memory last: the accesses that nothing has overwritten yet.

use std::collections::HashMap;

use smallvec::SmallVec;

/// One access to a word.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Record {
    /// The cluster, for global memory.
    pub(super) cluster: u64,
    /// When, counted over the launch.
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
    pub(super) atomic: bool,
    /// Through the asynchronous proxy.
    pub(super) asynchronous: bool,
    pub(super) pc: u32,
    pub(super) rank: u16,
    pub(super) thread: u32,
}

pub(super) const ENGINE: u8 = 0xff;
pub(super) const SEVERAL: u8 = 0xfe;

/// The accesses to one word.
#[derive(Clone, Debug, Default)]
pub(super) struct Cell {
    pub(super) records: SmallVec<[Record; 2]>,
}

impl Cell {
    /// Whether each of the bytes has a write that nothing has overwritten.
    pub(super) fn is_written(&self, bytes: u8) -> bool {
        self.records.iter().filter(|record| record.write).fold(bytes, |rest, record| rest & !record.bytes) == 0
    }

    /// Adds an access: a write takes the place of what it overwrites, a read of earlier reads by the same actor. An atomic
    /// one leaves plain ones in place: later atomic accesses are compared with those alone.
    pub(super) fn add(&mut self, new: Record) {
        if new.write {
            // Mostly one access that all of it overwrites.
            if let [old] = &mut self.records[..]
                && old.bytes & !new.bytes == 0
                && (old.atomic || !new.atomic)
            {
                *old = new;
                return;
            }
            self.records.retain(|old| {
                if old.atomic || !new.atomic {
                    old.bytes &= !new.bytes;
                }
                old.bytes != 0
            });
            self.records.push(new);
            return;
        }
        let fellow =
            |old: &Record| !old.write && old.actor == new.actor && old.cluster == new.cluster && old.atomic == new.atomic;
        // Lanes that read different bytes of the word stay apart: each may write its own.
        let same = |old: &&mut Record| fellow(old) && old.turn == new.turn && (old.lane == new.lane || old.bytes == new.bytes);
        if let Some(old) = self.records.iter_mut().find(same) {
            let lane = if old.lane != new.lane { SEVERAL } else { new.lane };
            *old = Record { lane, bytes: old.bytes | new.bytes, ..new };
            return;
        }
        // An earlier turn's reads are stood for by those of the same bytes, whichever lanes they are of.
        self.records.retain(|old| {
            if fellow(old) && old.turn != new.turn {
                old.bytes &= !new.bytes;
            }
            old.bytes != 0
        });
        self.records.push(new);
    }
}

const PAGE: u64 = 1024;

/// The words of global memory that were touched.
#[derive(Default)]
pub(crate) struct GlobalShadow {
    pages: HashMap<u64, Vec<Cell>>,
    pub(super) time: u64,
    /// What releases at a word have published: up to when each cluster's accesses are visible.
    pub(super) published: HashMap<u64, HashMap<u64, u64>>,
}

impl GlobalShadow {
    pub(super) fn cell(&mut self, address: u64) -> &mut Cell {
        let word = address / 4;
        let page = self.pages.entry(word / PAGE).or_insert_with(|| vec![Cell::default(); PAGE as usize]);
        &mut page[(word % PAGE) as usize]
    }
}
