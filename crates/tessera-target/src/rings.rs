//! Queues of slots between roles.
//!
//! A ring of `n` slots has two mbarriers a slot: a full one and an empty one. A cursor is the slot and the parity of its round.
//! The producer waits for the parity before its own on the empty barrier, which is true at once in the first round; the
//! consumer for its own on the full one.
//!
//! | producer | arrivals that fill a slot | commit |
//! |---|---|---|
//! | copy engine | one, with the bytes that the copies will write | one thread arrives and announces the bytes |
//! | `cp.async` | one a thread | each thread's arrival follows its copies |
//! | threads | one a thread | each thread arrives |
//!
//! A slot is free when one lane of every consuming warp has arrived: of one role, where roles take slots in turn; of every block, where blocks of a
//! cluster fill each other's slots.

use tessera_ir::attrs::RingProducer;
use tessera_ir::{Op, OpData, OpKind, TileOp, Type, Value};
use tessera_ptx::ssa::{Address, Value as Reg};
use tessera_ptx::{Type as Ty, Word};
use tessera_types::Arch;

use super::bound::{Bound, Buffer, Entry};
use super::lowering::{Lowered, Lowering};
use super::operation::astray;

/// A queue of slots.
#[derive(Clone, Debug)]
pub(super) struct Ring {
    pub(super) stages: u32,
    producer: RingProducer,
    /// Blocks of a cluster that fill each other's slots.
    blocks: Option<u32>,
    /// Bytes that the copy engine writes into a slot.
    bytes: u32,
    /// Its buffers, with the axis of slots in front.
    buffers: Vec<Buffer>,
    /// Address of the first full barrier; the empty ones follow.
    barriers: Reg,
}

impl Ring {
    fn empty(&self) -> i64 {
        8 * i64::from(self.stages)
    }
}

impl Lowering<'_> {
    /// Lowers an operation on rings.
    pub(super) fn queues(&mut self, op: Op, data: &OpData, kind: &TileOp) -> Lowered<()> {
        match kind {
            TileOp::Ring { stages, producer, consumers, bytes, blocks } => {
                self.make_ring(op, data, (*stages, *producer, *bytes), (*consumers, *blocks))?;
            }
            TileOp::RingStart {} => {
                let zero = self.b.u32(0);
                self.bind(data.result(), Bound::Cursor([zero, zero]));
            }
            TileOp::Advance {} => {
                let (ring, [slot, phase]) = self.ring_at(data, 0)?;
                let (one, zero, count) = (self.b.u32(1), self.b.u32(0), self.b.u32(ring.stages));
                let next = self.b.add(Ty::U32, slot, one);
                let wraps = self.b.setp(Word::Eq, Ty::U32, next, count);
                let slot = self.b.select(wraps, zero, next);
                let turned = self.b.xor(phase, one);
                let phase = self.b.select(wraps, turned, phase);
                self.bind(data.result(), Bound::Cursor([slot, phase]));
            }
            TileOp::Skip {} => {
                let (ring, [slot, phase]) = self.ring_at(data, 0)?;
                let slots = self.index_in_shared(data.one(2))?;
                let count = self.b.u32(ring.stages);
                let next = self.b.add(Ty::U32, slot, slots);
                let (slot, rounds) = (self.b.rem(Ty::U32, next, count), self.b.div(Ty::U32, next, count));
                let one = self.b.u32(1);
                let odd = self.b.and(rounds, one);
                let phase = self.b.xor(phase, odd);
                self.bind(data.result(), Bound::Cursor([slot, phase]));
            }
            TileOp::Acquire {} => {
                let (ring, [slot, phase]) = self.ring_at(data, 0)?;
                let one = self.b.u32(1);
                let parity = self.b.xor(phase, one);
                let barrier = self.barrier_of(&ring, slot, ring.empty());
                if ring.producer == RingProducer::Tma {
                    // A wait by parity must not fall two rounds behind, and nobody waits for threads that start no copy.
                    let first = self.is_first_thread();
                    self.b.when(first, |b| b.mbarrier_wait(barrier, parity));
                } else {
                    self.wait_for(barrier, parity);
                }
            }
            TileOp::Wait {} => {
                let (ring, [slot, phase]) = self.ring_at(data, 0)?;
                let barrier = self.barrier_of(&ring, slot, 0);
                self.wait_for(barrier, phase);
            }
            &TileOp::Commit { bytes } => {
                let (ring, [slot, _]) = self.ring_at(data, 0)?;
                let barrier = self.barrier_of(&ring, slot, 0);
                match ring.producer {
                    RingProducer::Tma => {
                        let first = self.is_first_thread();
                        let bytes = self.b.u32(bytes.unwrap_or(ring.bytes));
                        self.b.guarded(first, |b| b.mbarrier_arrive_expect(barrier, bytes));
                    }
                    RingProducer::CopyAsync => self.b.cp_async_arrive(barrier),
                    RingProducer::Threads => self.b.mbarrier_arrive(barrier),
                }
            }
            TileOp::Release {} => {
                let (ring, [slot, _]) = self.ring_at(data, 0)?;
                let barrier = self.barrier_of(&ring, slot, ring.empty());
                self.b.warp_sync();
                match ring.blocks {
                    Some(blocks) => self.arrive_at_all(&barrier, blocks),
                    None => {
                        let lane = self.lane();
                        let zero = self.b.u32(0);
                        let first = self.b.setp(Word::Eq, Ty::U32, lane, zero);
                        self.b.guarded(first, |b| b.mbarrier_arrive(barrier));
                    }
                }
            }
            TileOp::Slot { buffer } => {
                let (ring, [slot, _]) = self.ring_at(data, 0)?;
                let Some(whole) = ring.buffers.get(*buffer as usize) else { return Err(self.broken("a slot without buffers")) };
                let part = self.slice(whole, slot);
                self.bind(data.result(), Bound::Buffer(part));
            }
            _ => astray(kind),
        }
        Ok(())
    }

    fn ring_of(&self, value: Value) -> Lowered<Ring> {
        match self.get(value)? {
            Bound::Ring(position) => Ok(self.rings[*position].clone()),
            _ => Err(self.broken("something else where a ring is needed")),
        }
    }

    /// The ring and the cursor behind it.
    fn ring_at(&self, data: &OpData, position: usize) -> Lowered<(Ring, [Reg; 2])> {
        let ring = self.ring_of(data.one(position))?;
        match self.get(data.one(position + 1))? {
            Bound::Cursor(cursor) => Ok((ring, *cursor)),
            _ => Err(self.broken("something else where a cursor is needed")),
        }
    }

    /// The full barrier of the slot at a cursor.
    pub(super) fn full_barrier(&mut self, ring: Value, cursor: Value) -> Lowered<Address> {
        let ring = self.ring_of(ring)?;
        let Bound::Cursor([slot, _]) = *self.get(cursor)? else { return Err(self.broken("no cursor")) };
        Ok(self.barrier_of(&ring, slot, 0))
    }

    fn barrier_of(&mut self, ring: &Ring, slot: Reg, offset: i64) -> Address {
        let eight = self.b.u32(8);
        let address = self.b.mad(Ty::U32, slot, eight, ring.barriers);
        self.b.at(address, offset)
    }

    /// Arrives at the same barrier of every block of a cluster: a lane for each of them.
    pub(super) fn arrive_at_all(&mut self, barrier: &Address, blocks: u32) {
        let lane = self.lane();
        let (last, blocks) = (self.b.u32(blocks - 1), self.b.u32(blocks));
        let arrives = self.b.setp(Word::Lt, Ty::U32, lane, blocks);
        // A block that there is in every lane, since the address may be found before it is known who arrives.
        let block = self.b.and(lane, last);
        self.b.when(arrives, |b| {
            let there = b.mapa(barrier.base, block);
            b.mbarrier_arrive_remote((there, barrier.offset));
        });
    }

    fn wait_for(&mut self, barrier: Address, parity: Reg) {
        if self.arch.has_tma() {
            self.b.mbarrier_wait(barrier, parity);
        } else {
            self.b.mbarrier_wait_by_test(barrier, parity);
        }
    }

    /// True in one thread of the team.
    pub(super) fn is_first_thread(&mut self) -> Reg {
        if self.team.alone {
            return self.b.bool(true);
        }
        let (thread, zero) = (self.thread(), self.b.u32(0));
        self.b.setp(Word::Eq, Ty::U32, thread, zero)
    }

    fn make_ring(
        &mut self,
        op: Op,
        data: &OpData,
        (stages, producer, bytes): (u32, RingProducer, u32),
        (consumers, blocks): (u32, Option<u32>),
    ) -> Lowered<()> {
        if !self.arch.has_mbarrier() || (producer == RingProducer::Tma && !self.arch.has_tma()) {
            return Err(self.unsupported("there are no barriers for queues of this kind"));
        }
        let barriers = self.reserved(op)?;
        let mut buffers = Vec::new();
        for &value in data.group(0) {
            buffers.push(self.buffer(value)?);
        }
        let ring = Ring { stages, producer, blocks, bytes, buffers, barriers };
        let fillers = match producer {
            RingProducer::Tma => 1,
            RingProducer::CopyAsync | RingProducer::Threads => {
                let commits = |kind: &TileOp| matches!(kind, TileOp::Commit { .. });
                Arch::WARP * self.teams_using(data.result(), commits).iter().sum::<u32>()
            }
        };
        let readers = self.readers(data.result(), consumers)? * blocks.unwrap_or(1);
        let first = self.is_first_thread();
        let empty = ring.empty();
        self.b.when(first, |b| {
            for stage in 0..i64::from(stages) {
                b.mbarrier_init((barriers, 8 * stage), fillers.max(1));
                b.mbarrier_init((barriers, empty + 8 * stage), readers.max(1));
            }
            b.fence("mbarrier_init.release.cluster");
        });
        self.rings.push(ring);
        self.bind(data.result(), Bound::Ring(self.rings.len() - 1));
        Ok(())
    }

    /// Warps that free a slot: those of all teams that give slots back, or, where these are more than a slot has consumers, of so many of them,
    /// since they take slots in turn.
    fn readers(&self, ring: Value, consumers: u32) -> Lowered<u32> {
        let teams = self.teams_using(ring, |kind| matches!(kind, TileOp::Release {}));
        match teams[..] {
            [first, ..] if teams.len() > consumers as usize => match teams.iter().all(|&warps| warps == first) {
                true => Ok(consumers * first),
                false => Err(self.unsupported("teams of different sizes take slots in turn")),
            },
            _ => Ok(teams.iter().sum()),
        }
    }

    /// Warps of each team, a role or the block outside of roles, in which an operation of a kind is applied to a ring.
    fn teams_using(&self, ring: Value, is: impl Fn(&TileOp) -> bool + Copy) -> Vec<u32> {
        fn uses(
            this: &Lowering<'_>,
            block: tessera_ir::Block,
            ring: Value,
            is: impl Fn(&TileOp) -> bool + Copy,
        ) -> (bool, Vec<u32>) {
            let (mut here, mut in_roles) = (false, Vec::new());
            for &op in &this.func.blocks[block].ops {
                let data = this.data(op);
                match &data.kind {
                    OpKind::Tile(TileOp::Role { warps, .. }) => {
                        let (inside, _) = uses(this, data.regions[0], ring, is);
                        in_roles.extend(inside.then_some(*warps));
                    }
                    OpKind::Tile(kind) if is(kind) => here |= data.operands.first() == Some(&ring),
                    _ => {
                        for &region in &data.regions {
                            let (inside, roles) = uses(this, region, ring, is);
                            here |= inside;
                            in_roles.extend(roles);
                        }
                    }
                }
            }
            (here, in_roles)
        }
        let (whole, mut teams) = uses(self, self.func.body, ring, is);
        teams.extend(whole.then_some(self.team.warps));
        teams
    }

    /// One entry of a buffer's first axis.
    pub(super) fn slice(&mut self, buffer: &Buffer, index: Reg) -> Buffer {
        let bytes = buffer.entry_bytes() as u32;
        let size = self.b.u32(bytes);
        let base = self.b.mad(Ty::U32, index, size, buffer.base);
        Buffer { base, lies: buffer.lies.clone().entry(), entry: Some(Entry { first: buffer.base, index, bytes }) }
    }

    /// The type of a view of tiles.
    pub(super) fn tile_view(&self, view: Value) -> Lowered<&tessera_ir::TileViewType> {
        match self.func.ty(view) {
            Type::TileView(view) => Ok(view),
            _ => Err(self.broken("something else where a view is needed")),
        }
    }
}
