//! Asynchronous work of a role: copies into shared memory in groups, stores of the accelerator, products in flight.
//!
//! All of it is done as late as the program allows. A copy's address and index are those of its start; the memory that it reads
//! is read, and the buffer written, when somebody waits for it.

use std::collections::VecDeque;
use std::rc::Rc;

use tessera_ir::{Diagnostic, EntityId, Op, OpData, Span, Type};

use super::machine::{Machine, fault};
use super::mask::Mask;
use super::micro::{Feed, scalar_bytes};
use super::races::{Common, Part};
use super::value::{Buffer, Data, Factor, Flight, SharedRef};
use crate::exec::Ran;
use crate::touched::Kind;

/// A copy into shared memory that has been started.
#[derive(Clone, Debug)]
pub(super) enum Copy {
    /// A tile of a view, by the operation's own program.
    Tile { op: Op, feeds: Vec<Feed>, to: Rc<SharedRef>, thread: usize },
    /// A few bytes of each thread: thread, address, element.
    Elements { allocation: usize, parts: Vec<(usize, u64, usize)>, bytes: usize, span: Span },
}

/// Copies that some threads have made a group of.
#[derive(Debug)]
struct Group {
    threads: Mask,
    copies: Vec<Copy>,
}

/// A store of the accelerator that has been started.
#[derive(Debug)]
struct Store {
    op: Op,
    from: Rc<SharedRef>,
    thread: usize,
    feeds: Vec<Feed>,
}

/// What a role has started and not yet waited for.
#[derive(Debug, Default)]
pub(super) struct Copies {
    open: Vec<Copy>,
    groups: VecDeque<Group>,
    stores: VecDeque<Store>,
    flights: VecDeque<Rc<Flight>>,
}

impl Machine<'_> {
    // Copies

    /// A tile of a view to be copied into a buffer: operands are view, index, buffer.
    pub(super) fn tile_copy(&self, op: Op, active: &Mask) -> Ran<Copy> {
        let data = &self.func.ops[op];
        let to = self.shared(data.one(2), data.span)?;
        let thread = self.common(&to, active, data.span)?;
        let sources = data.group(0).iter().chain(data.group(1));
        let feeds = sources.map(|&value| self.feed(value, active, data.span)).collect::<Ran<_>>()?;
        Ok(Copy::Tile { op, feeds, to, thread })
    }

    pub(super) fn start_copy(&mut self, role: usize, op: Op, active: &Mask) -> Ran<()> {
        let copy = self.tile_copy(op, active)?;
        self.roles[role].copies.open.push(copy);
        Ok(())
    }

    pub(super) fn start_elements(&mut self, role: usize, data: &OpData, bytes: u32, active: &Mask) -> Ran<()> {
        let shared = self.shared(data.one(1), data.span)?;
        let size = match self.func.ty(data.one(1)) {
            Type::Shared(shared) => shared.elem.unpacked_bytes(),
            _ => 1,
        };
        let (bytes, count) = (bytes as usize, bytes as usize / size);
        let mut parts = Vec::new();
        for (thread, element) in self.elements(&shared, data.group(2), active, data.span)? {
            let address = self.address(data.one(0), thread, data.span)?;
            if !address.is_multiple_of(bytes as u64) {
                let message = format!("thread {thread} copies {bytes} bytes from an address that is not a multiple of {bytes}");
                return Err(fault("cpu-copy-align", data.span, &message));
            }
            parts.push((thread, address, element));
        }
        // The elements follow each other along the fastest axis, and must all be in the buffer.
        let last = shared.strides.iter().zip(&shared.shape).zip(data.group(2)).find(|((stride, _), _)| **stride == 1);
        if let Some(((_, &extent), &value)) = last {
            let lanes = self.lanes(value, data.span)?;
            let size = scalar_bytes(self.func.ty(value));
            let over = active.iter().find(|&thread| lanes.get_signed(thread, size) + count as i64 > i64::from(extent));
            if let Some(thread) = over {
                return Err(fault(
                    "cpu-bounds",
                    data.span,
                    &format!("thread {thread} copies beyond the end of the buffer's row"),
                ));
            }
        } else if count > 1 {
            return Err(fault("cpu-bounds", data.span, "the buffer's fastest axis is none of its own"));
        }
        if let Some(races) = &mut self.races {
            let read: Vec<Part> = parts.iter().map(|&(thread, address, _)| Part { thread, address, value: None }).collect();
            races.touch(Common { kind: Kind::Read, reaches_blocks: false, bytes, span: data.span }, &read)?;
        }
        let copy = Copy::Elements { allocation: shared.allocation, parts, bytes, span: data.span };
        self.roles[role].copies.open.push(copy);
        Ok(())
    }

    /// Everything that the role has started and not made a group of.
    pub(super) fn open_copies(&mut self, role: usize) -> Vec<Copy> {
        std::mem::take(&mut self.roles[role].copies.open)
    }

    pub(super) fn commit_group(&mut self, role: usize, active: &Mask) {
        let mut copies = Vec::new();
        let open = self.open_copies(role);
        for copy in open {
            match copy {
                Copy::Tile { .. } => copies.push(copy),
                Copy::Elements { allocation, parts, bytes, span } => {
                    let (here, others): (Vec<_>, Vec<_>) = parts.into_iter().partition(|part| active.contains(part.0));
                    copies.push(Copy::Elements { allocation, parts: here, bytes, span });
                    if !others.is_empty() {
                        let copy = Copy::Elements { allocation, parts: others, bytes, span };
                        self.roles[role].copies.open.push(copy);
                    }
                }
            }
        }
        self.roles[role].copies.groups.push_back(Group { threads: *active, copies });
    }

    /// Finishes all but the newest `pending` groups of each of these threads.
    ///
    /// # Safety
    /// As for `run`.
    pub(super) unsafe fn wait_group(&mut self, role: usize, pending: u32, active: &Mask) -> Ran<()> {
        let mut newer = vec![0; self.program.threads];
        let mut finished = Vec::new();
        let mut groups = std::mem::take(&mut self.roles[role].copies.groups);
        for group in groups.iter_mut().rev() {
            let mut done = Mask::NONE;
            for thread in group.threads.and(active).iter() {
                newer[thread] += 1;
                if newer[thread] > pending {
                    done = done.or(&Mask::of([thread]));
                }
            }
            if done.is_empty() {
                continue;
            }
            group.threads = group.threads.without(&done);
            for copy in &mut group.copies {
                match copy {
                    Copy::Tile { .. } => finished.push(copy.clone()),
                    Copy::Elements { allocation, parts, bytes, span } => {
                        let (allocation, bytes, span) = (*allocation, *bytes, *span);
                        let here = parts.iter().copied().filter(|part| done.contains(part.0)).collect();
                        finished.push(Copy::Elements { allocation, parts: here, bytes, span });
                    }
                }
            }
            group.copies.retain(|copy| matches!(copy, Copy::Elements { .. }));
        }
        groups.retain(|group| !group.threads.is_empty());
        self.roles[role].copies.groups = groups;
        for copy in finished.iter().rev() {
            // SAFETY: passed on.
            unsafe { self.perform(copy)? };
        }
        Ok(())
    }

    /// Does a copy.
    ///
    /// # Safety
    /// As for `run`.
    pub(super) unsafe fn perform(&mut self, copy: &Copy) -> Ran<()> {
        match copy {
            Copy::Tile { op, feeds, to, thread } => {
                // SAFETY: passed on.
                let outputs = unsafe { self.delegate(*op, feeds.iter().cloned())? };
                if let Some(tile) = outputs.first() {
                    self.scatter(to, *thread, tile);
                }
            }
            Copy::Elements { allocation, parts, bytes, span } => {
                let count = bytes / self.allocations[*allocation].size();
                let each = |&(thread, _, element): &(usize, u64, usize)| (0..count).map(move |i| (thread, element + i));
                let elements: Vec<(usize, usize)> = parts.iter().flat_map(each).collect();
                self.watch_shared(*allocation, (Kind::Write, *span), &elements, |_| None)?;
                for &(_, address, element) in parts {
                    let from = self.global(address, *bytes, *span)?.to_vec();
                    self.allocations[*allocation].store(element, &from);
                }
            }
        }
        Ok(())
    }

    // Stores of the accelerator

    pub(super) fn start_store(&mut self, role: usize, op: Op, active: &Mask) -> Ran<()> {
        let data = &self.func.ops[op];
        let from = self.shared(data.one(0), data.span)?;
        let thread = self.common(&from, active, data.span)?;
        let targets = data.group(1).iter().chain(data.group(2));
        let feeds = targets.map(|&value| self.feed(value, active, data.span)).collect::<Ran<_>>()?;
        self.roles[role].copies.stores.push_back(Store { op, from, thread, feeds });
        Ok(())
    }

    /// # Safety
    /// As for `run`.
    pub(super) unsafe fn wait_stores(&mut self, role: usize, pending: u32) -> Ran<()> {
        while self.roles[role].copies.stores.len() > pending as usize {
            let Some(store) = self.roles[role].copies.stores.pop_front() else { break };
            let tile = self.gather(&store.from, store.thread, self.func.ops[store.op].span)?;
            // SAFETY: passed on.
            unsafe { self.delegate(store.op, std::iter::once(Feed::Tile(tile)).chain(store.feeds))? };
        }
        Ok(())
    }

    /// What may not be left open when a role ends.
    pub(super) fn finish(&mut self, role: usize) -> Ran<()> {
        let Some(store) = self.roles[role].copies.stores.front() else { return Ok(()) };
        let diagnostic = Diagnostic::error("cpu-unwaited", self.func.ops[store.op].span, "nobody waits for this store");
        Err(Box::new(diagnostic.help("`tile.tma_store_wait` before the end keeps its buffer alive")))
    }

    // Products

    fn factor(&self, op: Op, position: usize) -> Ran<Factor> {
        let data = &self.func.ops[op];
        Ok(match self.data(data.one(position), data.span)? {
            Data::Shared(shared) => Factor::Shared(shared.clone()),
            _ => Factor::Tile(self.whole(data.one(position), data.span)?.clone()),
        })
    }

    fn factor_value(&self, factor: &Factor, active: &Mask, span: Span) -> Ran<Buffer> {
        match factor {
            Factor::Tile(tile) => Ok(tile.clone()),
            Factor::Shared(shared) => self.gather(shared, self.common(shared, active, span)?, span),
        }
    }

    /// A product of buffers, done at once.
    ///
    /// # Safety
    /// As for `run`.
    pub(super) unsafe fn product(&mut self, op: Op, active: &Mask) -> Ran<()> {
        let data = &self.func.ops[op];
        let mut feeds = Vec::new();
        for position in 0..2 {
            feeds.push(Feed::Tile(self.factor_value(&self.factor(op, position)?, active, data.span)?));
        }
        feeds.push(Feed::Tile(self.whole(data.one(2), data.span)?.clone()));
        feeds.extend(self.places(op)?.map(Feed::Tile));
        // SAFETY: passed on.
        let outputs = unsafe { self.delegate(op, feeds)? };
        self.bind(op, outputs, false);
        Ok(())
    }

    /// The words that say where a product's left factor stands, where that is stored by half.
    fn places(&self, op: Op) -> Ran<Option<Buffer>> {
        let data = &self.func.ops[op];
        data.places().map(|places| self.whole(places, data.span).cloned()).transpose()
    }

    /// Starts a product.
    pub(super) fn start_product(&mut self, role: usize, op: Op) -> Ran<()> {
        let data = &self.func.ops[op];
        let acc = self.data(data.one(2), data.span)?.clone();
        let (lhs, rhs) = (self.factor(op, 0)?, self.factor(op, 1)?);
        let flight = Rc::new(Flight { op, lhs, rhs, acc, places: self.places(op)?, value: std::cell::OnceCell::new() });
        self.roles[role].copies.flights.push_back(flight.clone());
        self.set(data.result(), Data::Flying(flight));
        Ok(())
    }

    /// Finishes all but the newest `pending` products, and yields the values of those named.
    ///
    /// # Safety
    /// As for `run`.
    pub(super) unsafe fn wait_products(&mut self, role: usize, data: &OpData, pending: u32, active: &Mask) -> Ran<()> {
        while self.roles[role].copies.flights.len() > pending as usize {
            let Some(flight) = self.roles[role].copies.flights.pop_front() else { break };
            let span = self.func.ops[flight.op].span;
            let acc = match &flight.acc {
                Data::Flying(before) => before.value.get().cloned(),
                Data::Tile(tile) => Some(tile.clone()),
                _ => None,
            };
            let Some(acc) = acc else { return Err(fault("cpu-type", span, "a product's accumulator was expected")) };
            let lhs = self.factor_value(&flight.lhs, active, span)?;
            let rhs = self.factor_value(&flight.rhs, active, span)?;
            // SAFETY: passed on.
            let outputs =
                unsafe { self.delegate(flight.op, [lhs, rhs, acc].into_iter().chain(flight.places.clone()).map(Feed::Tile))? };
            for output in outputs {
                let _ = flight.value.set(output);
            }
        }
        for (&value, &result) in data.group(0).iter().zip(&data.results) {
            let done = match self.data(value, data.span)? {
                Data::Flying(flight) => flight.value.get().cloned(),
                _ => None,
            };
            let Some(done) = done else {
                let message = format!("a product is asked for that is still among the {pending} that may be unfinished");
                return Err(fault("cpu-inflight", data.span, &message));
            };
            self.values[result.index()] = Some(Data::Tile(done));
        }
        Ok(())
    }
}
