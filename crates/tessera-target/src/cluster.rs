//! Sums that the blocks of a cluster add up among themselves: each sends the others what they add up, and waits until it has all of its own.
//!
//! ```text
//! mbarrier.init free, landed            `tile.cluster_arrive`: before the roles, with the bytes that will land
//! barrier.cluster.arrive.relaxed        orders those alone (`fence.mbarrier_init`)
//!   ... the loop ...
//! barrier.cluster.wait                  all blocks have barriers: long since true
//! mbarrier.arrive [free of all blocks]  each warp: what it read from the buffer has been read
//! mbarrier.try_wait [free]              so it is in all blocks
//! st.async.v4 [there], sums, [landed]   to each rank its part: vector v of thread t of rank r at (r * vectors + v) * threads + t
//! st.shared.v4 [here], sums             the own part
//! mbarrier.try_wait [landed]
//! ld.shared.v4                          the same thread's vectors of each rank: added in the order of ranks
//! ```
//!
//! A part lies as its sums do ([`Distribution::part`]), so no element changes its thread, and the threads of a warp touch neighbours. A
//! barrier of the cluster that released and acquired would put a fence of the device before and drop the first-level cache behind, twice a
//! kernel: some 2000 clocks (`results/split-h200.txt`). An mbarrier orders what is counted at it, and no block reads another one's memory, so
//! each may end when it has its own.
//!
//! Vectors go to one rank after the other: were parts sent whole, all blocks would write to the first one, then all to the next.
//!
//! Every thread waits at the cluster's barrier for its end (`tile.cluster_wait`), since a phase counts the threads that have not ended: those that
//! came to a sum have waited once, and come again.

use tessera_ir::attrs::{Overflow, Rounding};
use tessera_ir::{Op, OpData, OpKind, ScheduleOp, TileOp};
use tessera_layout::Distribution;
use tessera_ptx::ssa::Value as Reg;
use tessera_ptx::{Special, Type as Ty, Word};
use tessera_types::{Arch, DType};

use super::bound::Regs;
use super::lowering::{Lowered, Lowering};

/// Elements that a thread moves at a time, of 4 bytes each.
const VECTOR: usize = 4;
const BYTES: u32 = 4;
/// Where the mbarrier of what has landed lies, behind that of the free buffers.
const LANDED: i64 = 8;

impl Lowering<'_> {
    /// Readies the barriers of sums, and says so to the other blocks.
    pub(super) fn cluster_arrive(&mut self) -> Lowered<()> {
        let blocks = self.blocks_that_split()?;
        let is_sum = |&op: &Op| matches!(self.data(op).kind, OpKind::Tile(TileOp::ClusterSum { .. }));
        let sums: Vec<Op> = self.func.linked_ops().into_iter().filter(is_sum).collect();
        let rank = self.b.special(Special::ClusterCtarank);
        for op in sums {
            let data = self.data(op);
            let &OpKind::Tile(TileOp::ClusterSum { parts }) = &data.kind else { return Err(self.broken("a sum that is none")) };
            let whole = self.layout(data.one(0))?;
            let held = whole.registers() * whole.threads() * data.group(0).len() as u64;
            let lands = (held / u64::from(parts)) as u32 * BYTES * (blocks - 1);
            let barriers = self.reserved(op)?;
            let (first, none) = (self.is_first_thread(), self.b.u32(0));
            let (parts, lands) = (self.b.u32(parts), self.b.u32(lands));
            let has_part = self.b.setp(Word::Lt, Ty::U32, rank, parts);
            let lands = self.b.select(has_part, lands, none);
            self.b.when(first, |b| {
                b.mbarrier_init(barriers, blocks * whole.warps() as u32);
                b.mbarrier_init((barriers, LANDED), 1);
                b.fence("mbarrier_init.release.cluster");
                b.mbarrier_arrive_expect((barriers, LANDED), lands);
            });
        }
        self.b.warp_sync();
        self.b.cluster_arrive(true);
        Ok(())
    }

    fn blocks_that_split(&self) -> Lowered<u32> {
        if !self.arch.has_clusters() {
            return Err(self.unsupported("there are no clusters"));
        }
        self.func.hints.split.ok_or_else(|| self.broken("no blocks share the work of one"))
    }

    pub(super) fn cluster_sum(&mut self, op: Op, data: &OpData, parts: u32) -> Lowered<()> {
        let blocks = self.blocks_that_split()?;
        let (whole, dtype) = (self.layout(data.one(0))?, self.dtype(data.one(0))?);
        let dim = whole.rank() - 1;
        let part = whole.part(dim, u64::from(parts)).ok_or_else(|| self.broken("a part that threads would have to exchange"))?;
        if whole.threads() != u64::from(self.team.warps * Arch::WARP) {
            return Err(self.broken("sums of other threads than those of the role"));
        }
        let held: Vec<Regs> = data.group(0).iter().map(|&value| self.regs(value)).collect::<Lowered<_>>()?;
        let own = held.len() * part.registers() as usize;
        let vector = if own.is_multiple_of(VECTOR) { VECTOR } else { 1 };
        let threads = self.team.warps * Arch::WARP;
        let step = i64::from(threads * BYTES * vector as u32);
        let far = (own / vector) as u32 * step as u32;
        let base = self.buffer(data.one(1))?.base;
        let barriers = self.reserved(op)?;
        let (thread, bytes) = (self.thread(), self.b.u32(BYTES * vector as u32));
        let base = self.b.mad(Ty::U32, thread, bytes, base);
        let rank = self.b.special(Special::ClusterCtarank);
        let distance = self.b.u32(far);
        let slot = self.b.mad(Ty::U32, rank, distance, base);

        self.b.warp_sync();
        self.b.cluster_wait();
        // For the wait at the function's end.
        self.b.cluster_arrive(true);
        let free = self.b.at(barriers, 0);
        self.arrive_at_all(&free, blocks);
        let first = self.b.u32(0);
        self.b.mbarrier_wait(barriers, first);
        self.send_parts(&self.by_parts(&held, (&whole, &part), dim, parts)?, vector, (slot, step), barriers, rank);
        self.b.mbarrier_wait((barriers, LANDED), first);

        let mut sums: Regs = Regs::new();
        for nth in 0..own / vector {
            let mut total: Vec<Reg> = Vec::new();
            for block in 0..blocks {
                let place = i64::from(block * far) + nth as i64 * step;
                let read = self.b.ld_vector("shared", Ty::B32, vector, (base, place));
                total = match total.is_empty() {
                    true => read,
                    false => total.into_iter().zip(read).map(|(sum, more)| self.sum(dtype, sum, more)).collect::<Lowered<_>>()?,
                };
            }
            sums.extend(total);
        }
        for (&result, sums) in data.results.iter().zip(sums.chunks(part.registers() as usize)) {
            self.bind_regs(result, sums.iter().copied());
        }
        Ok(())
    }

    /// Sends each rank its part, vector by vector to one rank after the other, and keeps this one's.
    fn send_parts(&mut self, parts: &[Vec<Reg>], vector: usize, (slot, step): (Reg, i64), barriers: Reg, rank: Reg) {
        let ranks: Vec<[Reg; 4]> = (0..parts.len() as u32)
            .map(|number| {
                let number = self.b.u32(number);
                let [slot, barriers] = [slot, barriers].map(|address| self.b.mapa(address, number));
                let [is_own, is_other] = [Word::Eq, Word::Ne].map(|test| self.b.setp(test, Ty::U32, rank, number));
                [slot, barriers, is_own, is_other]
            })
            .collect();
        for nth in 0..parts.first().map_or(0, Vec::len) / vector {
            let place = nth as i64 * step;
            for (values, &[there, landed, is_own, is_other]) in parts.iter().zip(&ranks) {
                let values = &values[nth * vector..(nth + 1) * vector];
                self.b.guarded(is_other, |b| b.store_async(Ty::B32, (there, place), values, (landed, LANDED)));
                self.b.guarded(is_own, |b| b.st_vector("shared", Ty::B32, (slot, place), values));
            }
        }
    }

    /// The registers of each part, of one value after the other.
    fn by_parts(
        &self,
        held: &[Regs],
        (whole, part): (&Distribution, &Distribution),
        dim: usize,
        parts: u32,
    ) -> Lowered<Vec<Vec<Reg>>> {
        let of = |number: u64| {
            let registers = whole.registers_of_part(part, dim, number).ok_or_else(|| self.broken("a part in other threads"))?;
            Ok(held.iter().flat_map(|regs| registers.iter().map(|&register| regs[register])).collect())
        };
        (0..u64::from(parts)).map(of).collect()
    }

    fn sum(&mut self, dtype: DType, sum: Reg, more: Reg) -> Lowered<Reg> {
        if !dtype.is_float() {
            return Ok(self.integer(&ScheduleOp::AddI { overflow: Overflow::Wraps }, dtype, &[sum, more]));
        }
        self.float(&ScheduleOp::AddF { rounding: Rounding::NearestEven, flush_to_zero: false }, dtype, &[sum, more])
    }
}
