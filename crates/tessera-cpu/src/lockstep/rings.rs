//! Rings and named barriers: where roles wait for each other.

use std::rc::Rc;

use tessera_ir::attrs::RingProducer;
use tessera_ir::{Diagnostic, EntityId, Op, OpData, Span, TileOp, Type};

use super::copies::Copy;
use super::machine::{Machine, Step, fault};
use super::mask::Mask;
use super::value::{Data, SharedRef};
use crate::exec::Ran;

/// A queue of slots.
#[derive(Debug)]
pub(super) struct Ring {
    op: Op,
    producer: RingProducer,
    consumers: u64,
    bytes: u64,
    buffers: Vec<Rc<SharedRef>>,
    slots: Vec<Slot>,
}

/// One slot: how often it was filled and released, and what is on its way into it.
#[derive(Clone, Debug, Default)]
struct Slot {
    filled: u64,
    released: u64,
    arriving: Vec<Copy>,
    arriving_bytes: u64,
}

/// A barrier that some warps meet at.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct NamedBarrier {
    arrived: u32,
    /// How often it has opened.
    opened: u64,
}

/// What a role waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Wait {
    /// A slot to be released.
    Free { ring: usize, slot: usize },
    /// A slot to be filled.
    Full { ring: usize, slot: usize },
    /// A named barrier to open, which had opened so often.
    Barrier { id: u32, opened: u64 },
}

impl Machine<'_> {
    pub(super) fn make_ring(&mut self, op: Op, kind: &TileOp) -> Ran<()> {
        let TileOp::Ring { stages, producer, consumers, bytes, .. } = kind else { return Ok(()) };
        let data = &self.func.ops[op];
        let buffers = data.group(0).iter().map(|&value| self.shared(value, data.span)).collect::<Ran<_>>()?;
        let slots = vec![Slot::default(); *stages as usize];
        let (consumers, bytes) = (u64::from(*consumers), u64::from(*bytes));
        self.rings.push(Ring { op, producer: *producer, consumers, bytes, buffers, slots });
        let ring = self.rings.len() - 1;
        self.set(data.result(), Data::Ring(ring));
        Ok(())
    }

    /// The ring and position that an operation names, from an operand on: ring, slot, round.
    fn at(&self, data: &OpData, position: usize) -> Ran<(usize, usize, u64)> {
        match (self.data(data.one(position), data.span)?, self.data(data.one(position + 1), data.span)?) {
            (Data::Ring(ring), Data::Cursor(count)) => {
                let stages = self.rings[*ring].slots.len() as u64;
                Ok((*ring, (count % stages) as usize, count / stages))
            }
            _ => Err(fault("cpu-type", data.span, "a ring and a cursor were expected")),
        }
    }

    pub(super) fn advance_cursor(&mut self, data: &OpData, slots: u64) -> Ran<()> {
        let Data::Cursor(count) = self.data(data.one(1), data.span)? else {
            return Err(fault("cpu-type", data.span, "a cursor was expected"));
        };
        let next = Data::Cursor(count + slots);
        self.set(data.result(), next);
        Ok(())
    }

    pub(super) fn skip(&mut self, data: &OpData, active: &Mask) -> Ran<()> {
        let lanes = self.lanes(data.one(2), data.span)?;
        let slots = active.iter().next().map_or(0, |thread| lanes.get_signed(thread, size_of::<i32>()));
        let slots = u64::try_from(slots).map_err(|_| fault("cpu-ring", data.span, "a cursor moves backwards"))?;
        self.advance_cursor(data, slots)
    }

    pub(super) fn acquire(&mut self, role: usize, data: &OpData) -> Ran<Step> {
        let (ring, slot, round) = self.at(data, 0)?;
        let state = &self.rings[ring].slots[slot];
        if state.filled > round {
            return Err(fault(
                "cpu-ring",
                data.span,
                "the slot is acquired again after it was filled: the cursor did not advance",
            ));
        }
        if state.filled == round && state.released >= round * self.rings[ring].consumers {
            return Ok(Step::Done);
        }
        self.roles[role].wait = Some((Wait::Free { ring, slot }, data.span));
        Ok(Step::Waits)
    }

    pub(super) fn tma_load(&mut self, op: Op, active: &Mask) -> Ran<()> {
        let data = &self.func.ops[op];
        let copy = self.tile_copy(op, active)?;
        let (ring, slot, round) = self.at(data, 3)?;
        let bytes = match self.func.ty(data.one(2)) {
            Type::Shared(shared) => (shared.tile().len() * shared.elem.unpacked_bytes()) as u64,
            _ => 0,
        };
        let state = &mut self.rings[ring].slots[slot];
        if state.filled != round || state.released < round * self.rings[ring].consumers {
            return Err(fault("cpu-ring", data.span, "the slot is loaded before it is free: nobody has acquired it"));
        }
        let state = &mut self.rings[ring].slots[slot];
        state.arriving.push(copy);
        state.arriving_bytes += bytes;
        Ok(())
    }

    pub(super) fn commit(&mut self, role: usize, data: &OpData, bytes: Option<u32>) -> Ran<()> {
        let (ring, slot, round) = self.at(data, 0)?;
        let state = &self.rings[ring].slots[slot];
        if state.filled != round {
            return Err(fault("cpu-ring", data.span, "the slot is committed twice, or out of its turn"));
        }
        let wanted = bytes.map_or(self.rings[ring].bytes, u64::from);
        if self.rings[ring].producer == RingProducer::Tma && state.arriving_bytes != wanted {
            let message = format!(
                "{} bytes are loaded into the slot, but the ring expects {wanted}: it would never be full",
                state.arriving_bytes
            );
            let made = self.func.ops[self.rings[ring].op].span;
            return Err(Box::new(Diagnostic::error("cpu-ring", data.span, message).also(made, "the ring is made here")));
        }
        if self.rings[ring].producer == RingProducer::CopyAsync {
            let copies = self.open_copies(role);
            self.rings[ring].slots[slot].arriving.extend(copies);
        }
        self.rings[ring].slots[slot].filled += 1;
        Ok(())
    }

    /// # Safety
    /// As for `run`.
    pub(super) unsafe fn wait_full(&mut self, role: usize, data: &OpData) -> Ran<Step> {
        let (ring, slot, round) = self.at(data, 0)?;
        if self.rings[ring].slots[slot].filled <= round {
            self.roles[role].wait = Some((Wait::Full { ring, slot }, data.span));
            return Ok(Step::Waits);
        }
        if self.rings[ring].slots[slot].filled > round + 1 {
            return Err(fault("cpu-ring", data.span, "the slot was filled again before this consumer came"));
        }
        let state = &mut self.rings[ring].slots[slot];
        state.arriving_bytes = 0;
        for copy in std::mem::take(&mut state.arriving) {
            // SAFETY: passed on.
            unsafe { self.perform(&copy)? };
        }
        Ok(Step::Done)
    }

    pub(super) fn release(&mut self, data: &OpData) -> Ran<()> {
        let (ring, slot, round) = self.at(data, 0)?;
        let (consumers, state) = (self.rings[ring].consumers, &mut self.rings[ring].slots[slot]);
        state.released += 1;
        if state.filled <= round || state.released > (round + 1) * consumers {
            let message = format!("the slot is released more often than by its {consumers} consumers, or before it was filled");
            return Err(fault("cpu-ring", data.span, &message));
        }
        Ok(())
    }

    pub(super) fn slot(&mut self, data: &OpData, buffer: u32) -> Ran<()> {
        let (ring, slot, _) = self.at(data, 0)?;
        let whole = &self.rings[ring].buffers[buffer as usize];
        let moved = slot as i64 * whole.strides[0];
        let part = SharedRef {
            allocation: whole.allocation,
            first: whole.first.iter().map(|first| first + moved).collect(),
            shape: whole.shape[1..].into(),
            strides: whole.strides[1..].into(),
        };
        self.set(data.result(), Data::Shared(Rc::new(part)));
        Ok(())
    }

    /// Arrives at a named barrier; `waits` for it to open.
    pub(super) fn named_barrier(
        &mut self,
        role: usize,
        (id, threads): (u32, u32),
        waits: bool,
        active: &Mask,
        span: Span,
    ) -> Ran<Step> {
        let barrier = &mut self.barriers[id as usize];
        if let Some((Wait::Barrier { id: same, opened }, _)) = self.roles[role].wait
            && same == id
        {
            return Ok(if barrier.opened > opened { Step::Done } else { Step::Waits });
        }
        barrier.arrived += active.len() as u32;
        if barrier.arrived > threads {
            let message = format!("{} threads arrive at barrier {id}, which is one of {threads}", barrier.arrived);
            return Err(fault("cpu-barrier", span, &message));
        }
        let opened = barrier.opened;
        if barrier.arrived == threads {
            *barrier = NamedBarrier { arrived: 0, opened: opened + 1 };
            return Ok(Step::Done);
        }
        if !waits {
            return Ok(Step::Done);
        }
        self.roles[role].wait = Some((Wait::Barrier { id, opened }, span));
        Ok(Step::Waits)
    }

    /// Nobody can go on: who waits for what.
    pub(super) fn deadlock(&self, roles: std::ops::Range<usize>) -> Box<Diagnostic> {
        let waiting: Vec<(String, Span)> = roles
            .filter_map(|role| {
                let (wait, span) = self.roles[role].wait?;
                let who = match self.roles[role].op.map(|op| &self.func.ops[op].kind) {
                    Some(tessera_ir::OpKind::Tile(TileOp::Role { first_warp, warps, .. })) => {
                        format!("warps {first_warp} to {}", first_warp + warps - 1)
                    }
                    _ => "the block".to_string(),
                };
                let ring_name = |ring: usize| {
                    let result = self.func.ops[self.rings[ring].op].result();
                    self.func.values[result].name.as_deref().map_or("the ring".to_string(), |name| format!("`%{name}`"))
                };
                let what = match wait {
                    Wait::Free { ring, slot } => format!("wait for slot {slot} of {} to be released", ring_name(ring)),
                    Wait::Full { ring, slot } => format!("wait for slot {slot} of {} to be filled", ring_name(ring)),
                    Wait::Barrier { id, .. } => {
                        format!("wait at barrier {id}, where {} threads have arrived", self.barriers[id as usize].arrived)
                    }
                };
                Some((format!("{who} {what}"), span))
            })
            .collect();
        let span = waiting.first().map_or(self.func.span, |(_, span)| *span);
        let mut diagnostic = Diagnostic::error("cpu-deadlock", span, "every role waits for another, and none can go on");
        for (index, (text, span)) in waiting.into_iter().enumerate() {
            diagnostic = if index == 0 { diagnostic.label(text) } else { diagnostic.also(span, text) };
        }
        Box::new(diagnostic)
    }

    pub(super) fn ring_start(&mut self, data: &OpData) {
        self.values[data.result().index()] = Some(Data::Cursor(0));
    }
}
