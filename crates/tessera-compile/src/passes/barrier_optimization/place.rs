//! Which memory an access touches, and which thread touches which element of it.
//!
//! Two accesses need no barrier where their memory is apart, or where each element that both touch is touched by one thread alone:
//!
//! | accesses | are one thread's where |
//! |---|---|
//! | tiles to a buffer, or to two of one type in one place | both have one layout, in which nobody holds copies |
//! | elements | no two threads that can be active have the same indices, as numbers of threads and common values say |
//! | what a team does once | always: its first thread does it, whatever the memory |
//!
//! Invariant: what is not understood touches everything, by any thread.

use std::rc::Rc;

use rustc_hash::FxHashMap;
use smallvec::SmallVec;
use tessera_ir::{Op, SharedType, TileViewType, Value, ViewKind};
use tessera_layout::Distribution;

use super::index::{Index, Turn};
use tessera_analysis::memory::Root;

/// Memory that is shared by the threads of a block.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Memory {
    /// A part of what an operation allocates; everything in shared memory where the allocation is not known.
    Buffer(Option<Box<Part>>),
    /// The barriers of a ring.
    Ring(Op),
    /// Global memory.
    Global(Root),
    /// All global memory up to here: what a release orders. What comes later does not wait for it.
    Released,
    /// All global memory from here on: what an acquire orders. It waits for nothing that comes earlier.
    Acquired,
}

/// A part of a buffer.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Part {
    pub(super) alloc: Op,
    /// How elements lie in the buffer.
    pub(super) ty: Rc<SharedType>,
    /// Where the buffer lies in the block's shared memory, if it has a place: first byte and the one behind the last.
    pub(super) bytes: Option<(u64, u64)>,
    /// What it takes of each axis of the buffer.
    pub(super) axes: SmallVec<[Extent; 4]>,
    /// The buffer's axis that each axis of the part is; none where several are one axis.
    pub(super) own: SmallVec<[Option<usize>; 4]>,
    /// A slot of a ring, whose protocol orders its accesses among each other.
    pub(super) slot: bool,
}

/// What a part takes of an axis.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Extent {
    /// Entries from the first on.
    Range(u64, u64),
    /// One entry.
    One(i64),
    /// The entry that a value names; which slot that is in a round, where a loop counts them.
    Named(Value, Option<Turn>),
}

impl Part {
    /// The whole of a buffer.
    pub(super) fn whole(alloc: Op, ty: &SharedType, bytes: Option<(u64, u64)>) -> Part {
        let axes = ty.shape.iter().map(|&extent| Extent::Range(0, u64::from(extent))).collect();
        Part { alloc, ty: Rc::new(ty.clone()), bytes, axes, own: (0..ty.shape.len()).map(Some).collect(), slot: false }
    }

    /// Whether elements of equal coordinates in both buffers are the same bytes: one buffer, or two of a kind that have one place.
    fn same_bytes(&self, other: &Part) -> bool {
        self.alloc == other.alloc || self.bytes.is_some() && self.bytes == other.bytes && self.ty == other.ty
    }

    /// Whether it and another part, which is touched at the end of a way, may have an element in common.
    fn meets(&self, other: &Part, way: Way) -> bool {
        if !self.same_bytes(other) {
            return match (self.bytes, other.bytes) {
                (Some(a), Some(b)) => a.0 < b.1 && b.0 < a.1,
                _ => false,
            };
        }
        let apart = |(a, b): (&Extent, &Extent)| match (a, b) {
            (Extent::Range(a, m), Extent::Range(b, n)) => a + m <= *b || b + n <= *a,
            (Extent::Range(first, count), Extent::One(at)) | (Extent::One(at), Extent::Range(first, count)) => {
                *at < *first as i64 || *at >= (first + count) as i64
            }
            (Extent::One(a), Extent::One(b)) => a != b,
            (Extent::Named(_, Some(a)), Extent::Named(_, Some(b))) => {
                way.rounds_of(b.looped).is_some_and(|rounds| a.same_ring(*b) && !b.meets(rounds, *a))
            }
            _ => false,
        };
        !self.axes.iter().zip(&other.axes).any(apart)
    }

    /// Whether it and another part have an element in common for sure, at the same time.
    pub(super) fn overlaps(&self, other: &Part) -> bool {
        let meet = |(a, b): (&Extent, &Extent)| match (a, b) {
            (Extent::Range(a, m), Extent::Range(b, n)) => a + m > *b && b + n > *a,
            (Extent::Range(first, count), Extent::One(at)) | (Extent::One(at), Extent::Range(first, count)) => {
                *at >= *first as i64 && *at < (first + count) as i64
            }
            (Extent::One(a), Extent::One(b)) => a == b,
            (Extent::Named(a, _), Extent::Named(b, _)) => a == b,
            _ => false,
        };
        self.alloc == other.alloc && self.axes.iter().zip(&other.axes).all(meet)
    }

    /// Whether elements have the same coordinates in both, one-entry axes aside.
    fn same_window(&self, other: &Part) -> bool {
        // Where several axes are one, parts of it are not told apart.
        let single = self.own.iter().all(Option::is_some);
        let window =
            |part: &Part| -> SmallVec<[Extent; 4]> { part.own.iter().flatten().map(|&axis| part.axes[axis].clone()).collect() };
        single && self.same_bytes(other) && self.own == other.own && window(self) == window(other)
    }
}

/// Which thread touches which element.
#[derive(Clone, Debug)]
pub(super) enum Who {
    /// Any thread any element.
    Anyone,
    /// The first thread of the team.
    First,
    /// The thread that a layout gives the element to; of a tile in global memory, where one is named.
    Spread(Distribution, Option<Box<Seen>>),
    /// Each thread elements of its own choice.
    Each(Rc<Choice>),
}

/// A tile of an array in global memory.
#[derive(Clone, Debug)]
pub(super) struct Seen {
    /// The array, or the view of it where that is all that is known.
    pub(super) array: Value,
    /// How the view cuts it; what lies outside does not matter.
    pub(super) cut: TileViewType,
    /// The tile's index.
    pub(super) index: SmallVec<[Value; 4]>,
}

/// The elements that threads choose.
#[derive(Debug)]
pub(super) struct Choice {
    /// The pointer that indices count from.
    pub(super) base: Option<Value>,
    /// The index along each axis.
    pub(super) indices: Vec<Option<Index>>,
    /// Neighbours along the last axis.
    pub(super) width: i64,
    /// Threads that may be active.
    pub(super) active: Option<Rc<[bool]>>,
    pub(super) threads: usize,
}

impl Choice {
    /// Whether some thread chooses the same element in both for sure.
    pub(super) fn same(&self, other: &Choice) -> bool {
        let known = self.indices.iter().all(Option::is_some) && self.base.is_none();
        known
            && self.indices == other.indices
            && (0..self.threads).any(|thread| self.is_active(thread) && other.is_active(thread))
    }

    fn is_active(&self, thread: usize) -> bool {
        self.active.as_ref().is_none_or(|active| active[thread])
    }
}

/// One access of an operation.
#[derive(Clone, Debug)]
pub(super) struct Access {
    pub(super) memory: Memory,
    pub(super) writes: bool,
    /// Atomic, and in which way: those of one kind may change places.
    pub(super) atomic: Option<u32>,
    pub(super) who: Who,
    /// The innermost loop around it.
    pub(super) looped: Option<Op>,
    /// The first warp of the team that makes it.
    pub(super) team: u32,
}

/// The way from an access to a later one.
#[derive(Clone, Copy, Debug)]
pub(super) struct Way {
    /// Rounds of the first one's innermost loop between them, where both run in it.
    pub(super) rounds: Option<i64>,
    /// That loop.
    pub(super) looped: Option<Op>,
    /// Values defined in loops of this depth and deeper have changed between them.
    pub(super) crossed: u8,
}

impl Way {
    /// Rounds of a loop between both ends.
    fn rounds_of(self, looped: Op) -> Option<i64> {
        match self.crossed {
            u8::MAX => Some(0),
            _ => self.rounds.filter(|_| self.looped == Some(looped)),
        }
    }
}

/// How much two accesses need an order.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) enum Need {
    /// One that is there stays; none is made.
    Keep,
    /// There must be one.
    Order,
}

/// What deciding about pairs of accesses takes.
pub(super) struct Pairs<'p> {
    /// Threads run programs of their own: what they do to global memory is ordered by barriers that the program has.
    pub(super) per_thread: bool,
    /// How many loops are around the definition of each value.
    pub(super) depth: &'p FxHashMap<Value, u8>,
}

impl Pairs<'_> {
    /// Whether a later access must wait for other threads' part in an earlier one.
    pub(super) fn need(&self, first: &Access, then: &Access, way: Way) -> Option<Need> {
        self.clash(first, then, way).filter(|_| !self.is_own(first, then, way))
    }

    /// The same where the first access is still under way: its own thread must wait too.
    pub(super) fn need_apart(&self, first: &Access, then: &Access, way: Way) -> Option<Need> {
        self.clash(first, then, way)
    }

    /// Whether two accesses need an order if different threads make them.
    fn clash(&self, first: &Access, then: &Access, way: Way) -> Option<Need> {
        if !first.writes && !then.writes {
            return None;
        }
        if first.atomic.is_some() && first.atomic == then.atomic {
            return None;
        }
        let global = if self.per_thread { Need::Keep } else { Need::Order };
        match (&first.memory, &then.memory) {
            (Memory::Buffer(None), Memory::Buffer(_)) | (Memory::Buffer(_), Memory::Buffer(None)) => Some(Need::Order),
            (Memory::Buffer(Some(a)), Memory::Buffer(Some(b))) => {
                let ordered = a.alloc == b.alloc && a.slot && b.slot;
                (!ordered && a.meets(b, way)).then_some(Need::Order)
            }
            (Memory::Ring(a), Memory::Ring(b)) if a == b => Some(Need::Order),
            (Memory::Acquired | Memory::Global(_), Memory::Released) | (Memory::Acquired, Memory::Global(_)) => Some(global),
            (Memory::Global(a), Memory::Global(b)) if a.meets(*b) => Some(global),
            _ => None,
        }
    }

    /// Whether elements that both touch are one thread's. An element that several hold is written by one of them.
    fn is_own(&self, first: &Access, then: &Access, way: Way) -> bool {
        // Elements of their own choice are told by threads' numbers in the block.
        if first.team != then.team && !matches!(first.who, Who::Each(_)) {
            return false;
        }
        if matches!((&first.who, &then.who), (Who::First, Who::First)) {
            return true;
        }
        let same_elements = match (&first.memory, &then.memory) {
            (Memory::Buffer(Some(a)), Memory::Buffer(Some(b))) => {
                // Threads choose elements by indices into the whole.
                let chosen = matches!((&first.who, &then.who), (Who::Each(_), Who::Each(_)));
                a.same_bytes(b) && (chosen || a.same_window(b))
            }
            (Memory::Global(_), Memory::Global(_)) => true,
            _ => false,
        };
        if !same_elements {
            return false;
        }
        let single = |layout: &Distribution| first.writes && then.writes || !layout.has_copies();
        match (&first.who, &then.who) {
            (Who::Spread(a, None), Who::Spread(b, None)) => a == b && single(a),
            (Who::Spread(a, Some(seen)), Who::Spread(b, Some(other))) => {
                // Tiles that the array is cut into are one tile, or apart.
                let same_tile = matches!(seen.cut.kind, ViewKind::Partition)
                    || seen.index.iter().zip(&other.index).all(|(a, b)| a == b && self.still(*a, way));
                let same_view = seen.array == other.array && seen.cut == other.cut && self.still(seen.array, way);
                a == b && single(a) && same_view && same_tile
            }
            (Who::Each(a), Who::Each(b)) => a.base.is_none_or(|base| self.still(base, way)) && self.are_own(a, b, way),
            _ => false,
        }
    }

    /// Whether a value is the same at both ends of a way.
    fn still(&self, value: Value, way: Way) -> bool {
        // Values outside of loops have no entry.
        self.depth.get(&value).copied().unwrap_or(0) < way.crossed
    }

    /// Whether no two threads choose one element.
    fn are_own(&self, a: &Choice, b: &Choice, way: Way) -> bool {
        if a.base != b.base || a.indices.len() != b.indices.len() {
            return false;
        }
        // What is known of each axis: indices are equal only if these numbers are, modulo the number behind them.
        let mut axes: Vec<(&[i64], &[i64], i64)> = Vec::new();
        for (a, b) in a.indices.iter().zip(&b.indices) {
            let (Some(a), Some(b)) = (a, b) else {
                axes.push((&[], &[], 1));
                continue;
            };
            let mut modulus = 0;
            for &(value, count) in &a.common {
                let other = b.common.iter().find(|(known, _)| *known == value).map_or(0, |&(_, count)| count);
                let left = if self.still(value, way) { count - other } else { gcd(count, other) };
                modulus = gcd(modulus, left);
            }
            for &(value, count) in &b.common {
                if a.common.iter().all(|(known, _)| *known != value) {
                    modulus = gcd(modulus, count);
                }
            }
            axes.push((&a.lanes, &b.lanes, modulus));
        }
        let key = |lanes: &[i64], modulus: i64, thread: usize, ahead: i64| match modulus {
            1 => 0,
            0 => lanes[thread] + ahead,
            modulus => (lanes[thread] + ahead).rem_euclid(modulus),
        };
        let last = axes.len().saturating_sub(1);
        let keys = |thread: usize, ahead: i64, first: bool| -> SmallVec<[i64; 4]> {
            let of = |(at, (a, b, modulus)): (usize, &(&[i64], &[i64], i64))| {
                key(if first { a } else { b }, *modulus, thread, if at == last { ahead } else { 0 })
            };
            axes.iter().enumerate().map(of).collect()
        };
        let mut touched: FxHashMap<SmallVec<[i64; 4]>, usize> = FxHashMap::default();
        for thread in (0..a.threads).filter(|&thread| a.is_active(thread)) {
            for ahead in 0..a.width {
                let holder = *touched.entry(keys(thread, ahead, true)).or_insert(thread);
                if holder != thread {
                    // Two threads of the first access share the element: the second one's thread is another for one of them.
                    touched.insert(keys(thread, ahead, true), usize::MAX);
                }
            }
        }
        (0..b.threads).filter(|&thread| b.is_active(thread)).all(|thread| {
            (0..b.width).all(|ahead| touched.get(&keys(thread, ahead, false)).is_none_or(|&holder| holder == thread))
        })
    }
}

fn gcd(a: i64, b: i64) -> i64 {
    if b == 0 { a.abs() } else { gcd(b, a % b) }
}
