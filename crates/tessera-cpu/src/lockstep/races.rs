//! Races of per-thread programs: between blocks on the launch's memory, and between threads of a block on that and on shared memory.
//!
//! Blocks are compared as those of tiles are (`touched`): a thread that synchronises with other blocks is ordered after them from there on,
//! and a barrier hands that on to all threads. Threads of a block are compared between two barriers. Nothing is said of
//!
//! - shared memory, where barriers are missing that the compiler puts there ([`Program::with_all_barriers`](super::Program));
//! - a thread that has released or acquired something: it counts as ordered until the next barrier;
//! - lanes on both sides of what their warp does together (shuffles, products): it counts as a barrier of theirs;
//! - lanes of a warp that one instruction has write to one place: one of them stays, as the hardware has it;
//! - threads of a program in which none can tell which it is: all do the same, and what must be done once one does for all.
//!
//! Programs of tiles and roles, which passes make, are not looked at: which thread has which element is not known here, nor what orders roles.

use rustc_hash::FxHashMap;
use tessera_ir::{Diagnostic, Func, OpData, OpKind, ScheduleOp, Span, TileOp, Type, Value};

use super::machine::Machine;
use super::mask::{MOST, Mask};
use super::micro::scalar_bytes;
use crate::build::Ordered;
use crate::exec::{Ran, Range};
use crate::launch::RunOptions;
use crate::touched::{ByteTouch, Cell, Clash, Kind, Spans, Touch, Touched, conflict};

/// What the threads of a launch did to its memory.
pub(super) struct Races {
    blocks: Touched,
    /// Threads that come after what other blocks did.
    after_others: Mask,
    all: Mask,
    threads: Option<Threads>,
}

/// What the threads of a block did since its last barrier.
#[derive(Default)]
struct Threads {
    cells: FxHashMap<u64, Cell>,
    spans: Spans,
    /// How often each warp has met since.
    met: [u32; MOST / 32],
    /// Threads that have released or acquired something since.
    ordered: Mask,
}

/// One thread's part in an access.
#[derive(Clone, Copy, Debug)]
pub(super) struct Part {
    pub(super) thread: usize,
    pub(super) address: u64,
    /// What it writes, where that is known.
    pub(super) value: Option<u64>,
}

/// An access of several threads.
#[derive(Clone, Copy, Debug)]
pub(super) struct Common {
    pub(super) kind: Kind,
    /// Its order holds among the threads of all blocks.
    pub(super) reaches_blocks: bool,
    pub(super) bytes: usize,
    pub(super) span: Span,
}

impl Threads {
    /// The number of a thread that has met with its warp as often as now.
    fn number(&self, thread: usize) -> u32 {
        1 + thread as u32 + MOST as u32 * self.met[thread / 32]
    }

    fn note(&mut self, common: Common, part: Part, quiet: impl Fn(usize) -> bool) -> Option<Clash> {
        let (by, span) = (self.number(part.thread), self.spans.number(common.span));
        let warp = part.thread / 32;
        let now = self.met[warp];
        let apart = |other: u32| {
            let (thread, met) = thread_of(other);
            thread != part.thread && (thread / 32 != warp || met == now)
        };
        let mut clash = None;
        for i in 0..common.bytes {
            let cell = self.cells.entry(part.address + i as u64).or_default();
            clash = cell.note(ByteTouch { by, kind: common.kind, quiet: quiet(i), span }, apart).or(clash);
        }
        clash
    }
}

/// A thread by its number, and how often it had met with its warp.
fn thread_of(number: u32) -> (usize, u32) {
    ((number - 1) as usize % MOST, (number - 1) / MOST as u32)
}

impl Races {
    /// What is to be remembered of a checked launch; nothing for programs of tiles and roles.
    pub(super) fn new(
        func: &Func,
        per_thread: bool,
        ranges: &[Range],
        grid: [u32; 3],
        options: &RunOptions<'_>,
    ) -> Option<Races> {
        let is_tile = |ty: &Type| ty.as_tile().is_some_and(|tile| !tile.shape.is_empty());
        let unknown = |data: &OpData| {
            let moves =
                matches!(data.kind, OpKind::Tile(TileOp::Role { .. } | TileOp::LoadVector { .. } | TileOp::StoreVector { .. }));
            moves || data.results.iter().any(|&result| is_tile(func.ty(result)))
        };
        let is_known = !func.linked_ops().into_iter().any(|op| unknown(&func.ops[op]));
        (options.checked && is_known).then(|| Races {
            blocks: Touched::new(ranges, options.uninitialised, grid),
            after_others: Mask::NONE,
            all: Mask::range(0, func.hints.threads() as usize),
            threads: per_thread.then(Threads::default),
        })
    }

    pub(super) fn start_block(&mut self, block: [u32; 3]) {
        self.blocks.start_block(block);
        self.after_others = Mask::NONE;
        self.barrier();
    }

    /// All threads of the block have met.
    pub(super) fn barrier(&mut self) {
        if !self.after_others.is_empty() {
            self.after_others = self.all;
        }
        if let Some(threads) = &mut self.threads {
            threads.cells.clear();
            threads.met = [0; MOST / 32];
            threads.ordered = Mask::NONE;
        }
    }

    /// All lanes of these threads' warps have met.
    pub(super) fn warps_met(&mut self, active: &Mask) {
        for warp in 0..MOST / 32 {
            let lanes = Mask::range(32 * warp, 32 * warp + 32);
            if lanes.and(active).is_empty() {
                continue;
            }
            if !lanes.and(&self.after_others).is_empty() {
                self.after_others = self.after_others.or(&lanes);
            }
            if let Some(threads) = &mut self.threads {
                threads.met[warp] += 1;
            }
        }
    }

    /// These threads have released or acquired something.
    fn ordered(&mut self, active: &Mask, ordered: Ordered) {
        if ordered.tells_blocks() {
            self.after_others = self.after_others.or(active);
        }
        if let Some(threads) = &mut self.threads
            && ordered.is_fence()
        {
            threads.ordered = threads.ordered.or(active);
        }
    }

    /// Notes what threads do with one operation, in their order, and reports a race.
    pub(super) fn touch(&mut self, common: Common, parts: &[Part]) -> Ran<()> {
        let Common { kind, reaches_blocks, bytes, span } = common;
        let kind = if reaches_blocks { kind } else { kind.unordered() };
        for &Part { thread, address, value } in parts {
            self.blocks.touch(Touch { kind, address, bytes, value, span }, self.after_others.contains(thread))?;
        }
        let held: Vec<Part> = parts.iter().copied().filter(|part| self.blocks.holds(part.address, bytes)).collect();
        self.between_threads(common, &held)
    }

    /// The same of memory that one block alone touches.
    pub(super) fn between_threads(&mut self, common: Common, parts: &[Part]) -> Ran<()> {
        let Common { kind, bytes, .. } = common;
        // What this operation has written so far.
        let mut written: FxHashMap<u64, u8> = FxHashMap::default();
        for (index, &part) in parts.iter().enumerate() {
            let Part { thread, address, value } = part;
            let Some(threads) = &mut self.threads else { return Ok(()) };
            let mut later = parts[index + 1..].iter().take_while(|later| later.thread / 32 == thread / 32);
            let overwritten = kind == Kind::Write && later.any(|later| later.address == address);
            if overwritten || threads.ordered.contains(thread) {
                continue;
            }
            let quiet = |i: usize| {
                let at = address + i as u64;
                // SAFETY: the byte lies in memory that the launch was promised to be valid, or in an allocation of the block.
                let now = written.get(&at).copied().unwrap_or_else(|| unsafe { *(at as usize as *const u8) });
                value.is_some_and(|value| value.to_le_bytes()[i] == now)
            };
            if let Some(clash) = threads.note(common, part, quiet) {
                return Err(self.race(common, thread, clash));
            }
            if let Some(value) = value {
                written.extend((0..bytes).map(|i| (address + i as u64, value.to_le_bytes()[i])));
            }
        }
        Ok(())
    }

    fn race(&self, common: Common, thread: usize, clash: Clash) -> Box<Diagnostic> {
        let earlier = self.threads.as_ref().map_or(common.span, |threads| threads.spans.of(clash.span));
        let names = [format!("thread {thread}"), format!("thread {}", thread_of(clash.by).0)];
        let help = "put `tile.barrier()` between the two, give each thread bytes of its own, or use atomics";
        conflict("thread", common.kind, [common.span, earlier], names, clash.what).help(help).into()
    }
}

impl Machine<'_> {
    /// Notes what an operation on scalars does to the launch's memory.
    pub(super) fn watch(&mut self, data: &OpData, kind: &ScheduleOp, active: &Mask) -> Ran<()> {
        if self.races.is_none() {
            return Ok(());
        }
        let read = |ordered: Ordered| if ordered.is_weak() { Kind::Read } else { Kind::Look };
        let write = |ordered: Ordered| if ordered.is_weak() { Kind::Write } else { Kind::Atomic };
        let ((kind, ordered), bytes, (value, mask)) = match kind {
            ScheduleOp::LoadPtrTko { order, scope, .. } => {
                let ordered = Ordered::of(*order, *scope);
                ((read(ordered), ordered), data.results[0], (None, data.optional(1)))
            }
            ScheduleOp::StorePtrTko { order, scope, .. } => {
                let ordered = Ordered::of(*order, *scope);
                ((write(ordered), ordered), data.one(1), (Some(data.one(1)), data.optional(2)))
            }
            ScheduleOp::AtomicRmwTko { order, scope, .. } => {
                ((Kind::Atomic, Ordered::of(*order, *scope)), data.results[0], (None, data.optional(2)))
            }
            ScheduleOp::AtomicCasTko { order, scope } => {
                ((Kind::Atomic, Ordered::of(*order, *scope)), data.results[0], (None, data.optional(3)))
            }
            _ => return Ok(()),
        };
        let bytes = scalar_bytes(self.func.ty(bytes));
        let common = Common { kind, reaches_blocks: ordered.reaches_blocks(), bytes, span: data.span };
        let parts = self.parts(data, (value, mask), common.bytes, active)?;
        let Some(races) = &mut self.races else { return Ok(()) };
        // A store releases what came before it, others acquire for what comes behind them.
        if kind == Kind::Atomic && value.is_some() {
            races.ordered(active, ordered);
        }
        races.touch(common, &parts)?;
        races.ordered(active, ordered);
        Ok(())
    }

    /// Notes what threads do with elements of a shared allocation.
    pub(super) fn watch_shared(
        &mut self,
        allocation: usize,
        (kind, span): (Kind, Span),
        elements: &[(usize, usize)],
        value: impl Fn(usize) -> Option<u64>,
    ) -> Ran<()> {
        let Some(races) = self.races.as_mut().filter(|_| self.program.all_barriers) else { return Ok(()) };
        let allocation = &self.allocations[allocation];
        let part = |&(thread, at): &(usize, usize)| Part { thread, address: allocation.address(at), value: value(thread) };
        let parts: Vec<Part> = elements.iter().map(part).collect();
        races.between_threads(Common { kind, reaches_blocks: false, bytes: allocation.size(), span }, &parts)
    }

    /// What each thread that takes part has.
    fn parts(&self, data: &OpData, (value, mask): (Option<Value>, Option<Value>), bytes: usize, active: &Mask) -> Ran<Vec<Part>> {
        let addresses = self.lanes(data.one(0), data.span)?;
        let value = value.map(|value| self.lanes(value, data.span)).transpose()?;
        let mask = mask.map(|mask| self.lanes(mask, data.span)).transpose()?;
        let takes_part = |&thread: &usize| mask.is_none_or(|mask| mask.get(thread, 1) & 1 != 0);
        let part = |thread: usize| Part {
            thread,
            address: addresses.get(thread, 8),
            value: value.map(|value| value.get(thread, bytes)),
        };
        Ok(active.iter().filter(takes_part).map(part).collect())
    }
}
