//! Numbers that the blocks of a cluster give each other: each sends its own to all of them.
//!
//! ```text
//! at the kernel's start                 one thread: mbarrier.init; expect_tx of all blocks' bytes; fence.mbarrier_init; then barrier.cluster.arrive.relaxed
//! before the first number is sent       barrier.cluster.wait        every block runs, and its mbarriers are there
//! thread t, below the number of blocks  st.async [block t: slots of this block's rank], numbers, [block t: mbarrier]
//! every thread                          mbarrier.try_wait; ld.shared.v4 of all slots
//! ```
//!
//! The memory of a gather is its own, an mbarrier and slots for each block's numbers, and is used once: nobody waits before who sends, and a block that has
//! what all others sent for its last gather may end. A cluster's barrier in the place of the mbarrier would cost each gather a fence of the whole
//! device (`MEMBAR.ALL.GPU`) and what the first-level cache holds (`CCTL.IVALL`): the first arrival, which orders nothing, has no fence.

use tessera_ir::{Op, OpData, OpKind, TileOp, TileType, bug};
use tessera_ptx::{Special, Type as Ty, Word};

use super::lowering::{Lowered, Lowering};
use tessera_analysis::room::GATHER_SLOTS;

impl Lowering<'_> {
    /// Makes the function's gathers ready for what other blocks send, and tells these.
    pub(super) fn open_gathers(&mut self) -> Lowered<()> {
        let ops = gathers(self);
        if ops.is_empty() {
            return Ok(());
        }
        if !self.arch.has_clusters() {
            return Err(self.unsupported("there are no clusters"));
        }
        let mut barriers = Vec::new();
        for op in ops {
            let tile = self.func.ty(self.data(op).result()).the_tile();
            barriers.push((self.reserved(op)?, self.b.u32((tile.len() as u64 * tile.elem.bytes()) as u32)));
        }
        let first = self.is_first_thread();
        self.b.when(first, |b| {
            for &(barrier, bytes) in &barriers {
                b.mbarrier_init(barrier, 1);
                b.mbarrier_arrive_expect(barrier, bytes);
            }
            b.fence("mbarrier_init.release.cluster");
        });
        self.b.warp_sync();
        self.b.cluster_arrive(true);
        Ok(())
    }

    pub(super) fn cluster_gather(&mut self, op: Op, data: &OpData) -> Lowered<()> {
        let tile: &TileType = self.func.ty(data.result()).the_tile();
        let (blocks, bytes) = (tile.shape[0], tile.elem.bytes());
        let ty = if bytes == 4 { Ty::B32 } else { Ty::B64 };
        let own = self.regs(data.one(0))?;
        if gathers(self).first() == Some(&op) {
            self.b.warp_sync();
            self.b.cluster_wait();
        }
        let base = self.reserved(op)?;
        let (thread, rank) = (self.thread(), self.b.special(Special::ClusterCtarank));
        let line = own.len() as u64 * bytes;
        let (last, count, line) = (self.b.u32(blocks - 1), self.b.u32(blocks), self.b.u32(line as u32));
        let sends = self.b.setp(Word::Lt, Ty::U32, thread, count);
        // A block that there is in every thread, since the address may be found before it is known who sends.
        let to = self.b.and(thread, last);
        let slot = self.b.mad(Ty::U32, rank, line, base);
        let (slot, barrier) = (self.b.mapa(slot, to), self.b.mapa(base, to));
        let most = (16 / bytes) as usize;
        self.b.when(sends, |b| {
            for (at, numbers) in own.chunks(most).enumerate() {
                b.store_async(ty, (slot, (GATHER_SLOTS + 16 * at as u64) as i64), numbers, barrier);
            }
        });
        let zero = self.b.u32(0);
        self.b.mbarrier_wait(base, zero);
        let vector = most.min(tile.len());
        let mut numbers = Vec::new();
        for at in (0..tile.len() as u64 * bytes).step_by(vector * bytes as usize) {
            numbers.extend(self.b.ld_vector("shared", ty, vector, (base, (GATHER_SLOTS + at) as i64)));
        }
        self.bind_regs(data.result(), numbers);
        Ok(())
    }
}

/// The operations that gather, in order.
fn gathers(lowering: &Lowering<'_>) -> Vec<Op> {
    let func = lowering.func;
    let gathers = |op: &Op| matches!(func.ops[*op].kind, OpKind::Tile(TileOp::ClusterGather {}));
    if let Some(op) = func.linked_ops().into_iter().filter(gathers).find(|op| !func.blocks[func.body].ops.contains(op)) {
        bug!("a gather in a loop or a branch: {:?}", func.ops[op].span);
    }
    func.blocks[func.body].ops.iter().copied().filter(gathers).collect()
}
