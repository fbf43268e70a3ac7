//! Sums that the blocks of a cluster add up among themselves: each puts its own into its shared memory and reads the others' from theirs.
//!
//! ```text
//! the team meets                        what lay in the buffer has been read
//! st.shared.v4 [buffer], sums           vector v of thread t at v * threads + t, part after part
//! barrier.cluster.arrive; .wait
//! ld.shared::cluster.v4                 of each block the part of this one's rank, and the same thread's vectors: added in the order of ranks
//! barrier.cluster.arrive                tile.cluster_wait waits: no block ends before the others have read
//! ```
//!
//! A part lies as its sums do ([`Distribution::part`]), so no element changes its thread, and the threads of a warp touch neighbours.
//! Threads that have ended are not waited for at a cluster's barrier (PTX ISA, `barrier.cluster`): a role that copied does not come.

use tessera_ir::attrs::{Overflow, Rounding};
use tessera_ir::{OpData, ScheduleOp};
use tessera_layout::Distribution;
use tessera_ptx::ssa::Value as Reg;
use tessera_ptx::{Special, Type as Ty};
use tessera_types::{Arch, DType};

use super::bound::Regs;
use super::lowering::{Lowered, Lowering};

/// Elements that a thread moves at a time, of 4 bytes each.
const VECTOR: usize = 4;
const BYTES: u32 = 4;

impl Lowering<'_> {
    pub(super) fn cluster_sum(&mut self, data: &OpData, parts: u32) -> Lowered<()> {
        let blocks = self.func.hints.split.ok_or_else(|| self.broken("no blocks share the work of one"))?;
        if !self.arch.has_clusters() {
            return Err(self.unsupported("there are no clusters"));
        }
        let (whole, dtype) = (self.layout(data.one(0))?, self.dtype(data.one(0))?);
        let dim = whole.rank() - 1;
        let part = whole.part(dim, u64::from(parts)).ok_or_else(|| self.broken("a part that threads would have to exchange"))?;
        let held: Vec<Regs> = data.group(0).iter().map(|&value| self.regs(value)).collect::<Lowered<_>>()?;
        let own = held.len() * part.registers() as usize;
        let vector = if own.is_multiple_of(VECTOR) { VECTOR } else { 1 };
        let threads = self.team.warps * Arch::WARP;
        let step = i64::from(threads * BYTES * vector as u32);
        let base = self.buffer(data.one(1))?.base;
        let (thread, bytes) = (self.thread(), self.b.u32(BYTES * vector as u32));
        let base = self.b.mad(Ty::U32, thread, bytes, base);

        self.meet();
        for (number, values) in self.by_parts(&held, (&whole, &part), dim, parts)?.into_iter().enumerate() {
            for (nth, values) in values.chunks(vector).enumerate() {
                let place = (number * own / vector + nth) as i64 * step;
                self.b.st_vector("shared", Ty::B32, (base, place), values);
            }
        }
        self.b.warp_sync();
        self.b.cluster_arrive(false);
        self.b.cluster_wait();
        let rank = self.b.special(Special::ClusterCtarank);
        let (last, far) = (self.b.u32(parts - 1), self.b.u32((own / vector) as u32 * step as u32));
        let number = self.b.and(rank, last);
        let first = self.b.mad(Ty::U32, number, far, base);
        let there: Vec<Reg> = (0..blocks)
            .map(|block| {
                let block = self.b.u32(block);
                self.b.mapa(first, block)
            })
            .collect();
        let mut sums: Regs = Regs::new();
        for nth in 0..own / vector {
            let mut total: Vec<Reg> = Vec::new();
            for &block in &there {
                let read = self.b.ld_vector("shared::cluster", Ty::B32, vector, (block, nth as i64 * step));
                total = match total.is_empty() {
                    true => read,
                    false => total.into_iter().zip(read).map(|(sum, more)| self.sum(dtype, sum, more)).collect::<Lowered<_>>()?,
                };
            }
            sums.extend(total);
        }
        self.b.warp_sync();
        self.b.cluster_arrive(false);
        for (&result, sums) in data.results.iter().zip(sums.chunks(part.registers() as usize)) {
            self.bind_regs(result, sums.iter().copied());
        }
        Ok(())
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
