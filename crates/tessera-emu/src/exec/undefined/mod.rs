//! What nobody wrote: undefined bits of registers, predicates and memory, and where they come from.
//!
//! Every bit of a register or of shared, local and global memory is defined once something was written to it. Undefined bits
//! spread with what is computed of them ([`spread`]), moved ([`memory`]) or multiplied ([`products`]), bit by bit where that
//! can be said: `mov.b32 %r, {lo, hi}` keeps the halves apart, `and` with zeros defines. Compilers let undefined values through
//! where nothing depends on them, so that is no mistake; it is one where the value matters: as an address, in a branch or a
//! guard of an access, as an operand of a barrier, in global memory, or in what is printed. The finding stands there, and says
//! where the value came from.
//!
//! ```text
//! mov.b32 %r1, {%lo, %hi}      nothing was written to %hi: the upper half of %r1 is undefined
//! cvt.u16.u32 %lo, %r1         defined
//! st.shared.b32 [%at], %r1     no mistake: two bytes of shared memory are undefined
//! ld.shared.b32 %r2, [%at]     the upper half of %r2 is undefined
//! st.global.b32 [%out], %r2    the finding: `%r2` is stored, and comes from `%hi`
//! ```

mod arithmetic;
mod memory;
mod products;
mod spread;

use std::collections::BTreeMap;

use super::{Cluster, Warp};
use crate::finding::{Class, Finding, FindingKind};
use crate::lanes::{FULL, LANES, Slot, lanes};
use crate::program::{Fill, Op, Program};

pub(super) use memory::Lacking;
pub(crate) use memory::Shadow;
pub(super) use products::{Element, Lack};

/// A place where undefined bits were first read, by its number in [`Origins`].
pub(crate) type Origin = u32;

/// Where the undefined bits of each byte of a value come from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Sources([Origin; 8]);

impl From<Origin> for Sources {
    fn from(origin: Origin) -> Sources {
        Sources([origin; 8])
    }
}

impl Sources {
    /// Nothing was read yet.
    pub(super) const NONE: Sources = Sources([NOWHERE_YET; 8]);

    /// Where the first of some undefined bits come from.
    pub(super) fn first(&self, bits: u64) -> Origin {
        self.0[(bits.trailing_zeros() / 8).min(7) as usize]
    }

    /// Of the value moved down by some bytes.
    fn down(self, bytes: u32) -> Sources {
        Sources(std::array::from_fn(|at| self.0[(at + bytes as usize).min(7)]))
    }

    /// Takes over the bytes from a place on.
    fn above(self, upper: Sources, bytes: u32) -> Sources {
        Sources(std::array::from_fn(|at| match at.checked_sub(bytes as usize) {
            Some(above) => upper.0[above],
            None => self.0[at],
        }))
    }
}

/// Bits of a register that is undefined in part, and where they come from.
#[derive(Clone, Debug)]
struct Detail {
    bits: Slot,
    sources: [Sources; LANES],
}

/// What of a register is undefined.
#[derive(Clone, Debug, Default)]
pub(super) struct Saved {
    lanes: u32,
    detail: Option<Box<Detail>>,
}

/// What of a warp's registers, predicates and local memory is undefined.
#[derive(Debug)]
pub(crate) struct Undefined {
    /// By slot: the lanes with an undefined bit.
    lanes: Vec<u32>,
    /// By slot: which bits; none: all bits of those lanes, because nothing was ever written there.
    details: Vec<Option<Box<Detail>>>,
    predicates: Vec<u32>,
    /// By predicate; none: nothing was ever written there.
    predicate_origins: Vec<Option<Box<[Origin; LANES]>>>,
    /// Lanes whose carry is undefined, and of the last of them where that comes from.
    carry: (u32, Origin),
    local: Shadow,
}

impl Undefined {
    pub(super) fn new(program: &Program) -> Undefined {
        let count = program.slots.len();
        let unwritten = |fill: &Fill| if *fill == Fill::Register { FULL } else { 0 };
        // The predicate that always holds, and those that instructions need for themselves.
        let own = |name: &String| if name == "true" || name == "scratch" { 0 } else { FULL };
        Undefined {
            lanes: program.slots.iter().map(unwritten).collect(),
            details: vec![None; count],
            predicates: program.predicate_names.iter().map(own).collect(),
            predicate_origins: vec![None; program.predicate_names.len()],
            carry: (0, 0),
            local: Shadow::new(program.local_bytes as usize * LANES),
        }
    }

    /// The lanes of a slot that have an undefined bit.
    pub(super) fn lanes(&self, slot: u32) -> u32 {
        self.lanes[slot as usize]
    }

    pub(super) fn predicate(&self, index: u32) -> u32 {
        self.predicates[index as usize]
    }

    /// The undefined bits of a lane.
    pub(super) fn bits(&self, slot: u32, wide: bool, lane: usize) -> u64 {
        match (self.lanes[slot as usize] >> lane & 1, &self.details[slot as usize]) {
            (0, _) => 0,
            (_, None) => u64::MAX >> if wide { 0 } else { 32 },
            (_, Some(detail)) => detail.bits.get(wide, lane),
        }
    }

    /// The undefined bits of all lanes.
    pub(super) fn slot(&self, slot: u32, wide: bool) -> Slot {
        let mut bits = Slot::ZERO;
        for lane in lanes(self.lanes[slot as usize]) {
            bits.set(wide, lane, self.bits(slot, wide, lane));
        }
        bits
    }

    /// Where a lane's undefined bits come from.
    pub(super) fn sources(&self, slot: u32, lane: usize) -> Sources {
        self.details[slot as usize].as_ref().map_or(Sources::NONE, |detail| detail.sources[lane])
    }

    /// Says which bits of a lane are undefined.
    pub(super) fn set(&mut self, slot: u32, wide: bool, lane: usize, bits: u64, sources: impl Into<Sources>) {
        let flags = &mut self.lanes[slot as usize];
        if bits == 0 {
            *flags &= !(1 << lane);
            return;
        }
        let unwritten = *flags;
        *flags |= 1 << lane;
        let detail = self.details[slot as usize].get_or_insert_with(|| {
            // The other lanes that were undefined stay so, with no origin of their own.
            let mut detail = Box::new(Detail { bits: Slot::ZERO, sources: [Sources::NONE; LANES] });
            lanes(unwritten).for_each(|lane| detail.bits.set(wide, lane, u64::MAX >> if wide { 0 } else { 32 }));
            detail
        });
        detail.bits.set(wide, lane, bits);
        detail.sources[lane] = sources.into();
    }

    /// Lanes are defined.
    pub(super) fn clear(&mut self, slot: u32, mask: u32) {
        self.lanes[slot as usize] &= !mask;
    }

    pub(super) fn set_predicate(&mut self, index: u32, mask: u32, undefined: u32, origin: impl Fn(usize) -> Origin) {
        let at = index as usize;
        let before = self.predicates[at];
        self.predicates[at] = (before & !mask) | (undefined & mask);
        if undefined & mask != 0 {
            let origins = self.predicate_origins[at].get_or_insert_with(|| Box::new([NOWHERE_YET; LANES]));
            lanes(undefined & mask).for_each(|lane| origins[lane] = origin(lane));
        }
    }

    pub(super) fn save(&self, slot: u32) -> Saved {
        Saved { lanes: self.lanes[slot as usize], detail: self.details[slot as usize].clone() }
    }

    /// Some lanes are as they were.
    pub(super) fn restore(&mut self, slot: u32, wide: bool, mask: u32, saved: &Saved) {
        for lane in lanes(mask) {
            let (bits, sources) = match &saved.detail {
                _ if saved.lanes >> lane & 1 == 0 => (0, Sources::NONE),
                None => (u64::MAX >> if wide { 0 } else { 32 }, Sources::NONE),
                Some(detail) => (detail.bits.get(wide, lane), detail.sources[lane]),
            };
            self.set(slot, wide, lane, bits, sources);
        }
    }
}

/// An undefined bit that was never read.
const NOWHERE_YET: Origin = Origin::MAX;

/// What nobody has written.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Unwritten {
    Register(u32),
    Predicate(u32),
    Shared {
        rank: usize,
        offset: u32,
    },
    Global(u64),
    Local(u32),
    /// The value of a lane in a shuffle in which it does not take part.
    Absent(usize),
}

#[derive(Clone, Copy, Debug)]
struct FirstRead {
    what: Unwritten,
    pc: u32,
    rank: usize,
    thread: usize,
}

/// Where undefined bits were first read: one place for each register and each instruction that reads memory.
#[derive(Debug, Default)]
pub(crate) struct Origins {
    list: Vec<FirstRead>,
    known: BTreeMap<(u32, u32, u32), Origin>,
    /// Of registers that were asked for, and so many bytes: whether loads of as many alone write them.
    loaded: BTreeMap<(u32, u32), bool>,
}

impl Origins {
    fn number(&mut self, read: FirstRead) -> Origin {
        let (kind, which) = match read.what {
            Unwritten::Register(slot) => (0, slot),
            Unwritten::Predicate(index) => (1, index),
            // Of memory, the first place that an instruction read stands for all.
            Unwritten::Shared { .. } => (3, 0),
            Unwritten::Global(_) => (4, 0),
            Unwritten::Local(_) => (5, 0),
            Unwritten::Absent(_) => (6, 0),
        };
        *self.known.entry((kind, which, read.pc)).or_insert_with(|| {
            self.list.push(read);
            self.list.len() as Origin - 1
        })
    }
}

/// How a value matters.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Use {
    Address,
    Stored,
    /// Stored as a structure's padding is.
    Padding,
    Branch,
    Guard,
    Operand,
    Printed,
}

/// Who executes what.
#[derive(Clone, Copy, Debug)]
pub(super) struct Who {
    pub(super) rank: usize,
    pub(super) thread: usize,
    pub(super) pc: u32,
}

impl Who {
    pub(super) fn lane(warp: &Warp, lane: usize, pc: u32) -> Who {
        Who { rank: warp.rank, thread: warp.index as usize * LANES + lane, pc }
    }
}

impl Cluster<'_> {
    /// Whether undefined bits are followed.
    pub(super) fn follows_undefined(&self) -> bool {
        self.launch.options.sanitize.uninitialized
    }

    /// The number of a place where undefined bits are read.
    pub(super) fn origin(&mut self, who: Who, what: Unwritten) -> Origin {
        self.origins.number(FirstRead { what, pc: who.pc, rank: who.rank, thread: who.thread })
    }

    /// Where a lane's undefined bits come from: read here for the first time, unless they were before.
    pub(super) fn sources_of(&mut self, undefined: &Undefined, who: Who, slot: u32, lane: usize) -> Sources {
        let mut sources = undefined.sources(slot, lane);
        if sources.0.contains(&NOWHERE_YET) {
            let own = self.origin(who, Unwritten::Register(slot));
            sources.0.iter_mut().filter(|origin| **origin == NOWHERE_YET).for_each(|origin| *origin = own);
        }
        sources
    }

    /// Where the first of a lane's undefined bits come from.
    pub(super) fn origin_of(&mut self, undefined: &Undefined, who: Who, slot: u32, lane: usize) -> Origin {
        self.sources_of(undefined, who, slot, lane).first(undefined.bits(slot, self.launch.program.is_wide(slot), lane))
    }

    pub(super) fn origin_of_predicate(&mut self, undefined: &Undefined, who: Who, index: u32, lane: usize) -> Origin {
        match &undefined.predicate_origins[index as usize] {
            Some(origins) if origins[lane] != NOWHERE_YET => origins[lane],
            _ => self.origin(who, Unwritten::Predicate(index)),
        }
    }

    /// Whether a register holds so many loaded bytes and nothing else.
    fn is_loaded(&mut self, slot: u32, count: u32) -> bool {
        let program = self.launch.program;
        *self.origins.loaded.entry((slot, count)).or_insert_with(|| {
            let mut writers = program.code.iter().zip(program.meta.iter()).filter(|(_, meta)| meta.writes.contains(&slot));
            writers.all(|(inst, _)| matches!(inst.op, Op::Load { bytes, .. } if bytes == count))
        })
    }

    /// A value with undefined bits matters; `name` is what holds it.
    pub(super) fn use_undefined(&mut self, who: Who, name: &str, origin: Origin, how: Use) {
        let program = self.launch.program;
        let read = self.origins.list[origin as usize];
        let held = |what: &Unwritten| match *what {
            Unwritten::Register(slot) => format!("`{}`", program.names[slot as usize]),
            Unwritten::Predicate(index) => format!("`{}`", program.predicate_names[index as usize]),
            Unwritten::Shared { rank, offset } => format!("shared memory at {offset:#x} of block rank {rank}"),
            Unwritten::Global(address) => format!("global memory at {address:#x}"),
            Unwritten::Local(offset) => format!("local memory at {offset:#x}"),
            Unwritten::Absent(lane) => format!("the value of lane {lane} in a shuffle in which it does not take part"),
        };
        let direct = read.pc == who.pc;
        let key = (FindingKind::Uninitialized, who.pc, (!direct).then_some(read.pc));
        let class = if how == Use::Padding { Class::Formal } else { FindingKind::Uninitialized.class() };
        self.note(key, class, |cluster| {
            let from = held(&read.what);
            let message = match (direct, how, read.what) {
                (true, _, Unwritten::Register(_) | Unwritten::Predicate(_)) => {
                    format!("{from} is read before anything was written to it")
                }
                (_, _, Unwritten::Absent(_)) => format!("{name} {}, and comes from {from}", role(how)),
                _ => format!("{name} {}, and comes from {from}, to which nothing was written", role(how)),
            };
            let place = cluster.place(who.rank, Some(who.thread), who.pc);
            let earlier = (!direct).then(|| cluster.place(read.rank, Some(read.thread), read.pc));
            Finding::new(FindingKind::Uninitialized, message, place, earlier)
        });
    }
}

fn role(how: Use) -> &'static str {
    match how {
        Use::Address => "is an address",
        Use::Stored => "is stored in global memory",
        Use::Padding => "is stored in global memory with bytes that look like padding",
        Use::Branch => "decides a branch",
        Use::Guard => "decides whether this is executed",
        Use::Operand => "is used",
        Use::Printed => "is printed",
    }
}
