//! bf16 GEMM: tiles of 128x256x64, one producer and two consumer warpgroups, persistent.
//!
//! The producer's one thread fills a ring of stages by bulk tensor copies; each consumer warpgroup multiplies 64 rows with
//! `wgmma m64n256k16`, keeps one group in flight and releases the stage before; the tile leaves through shared memory by
//! bulk tensor stores.

use crate::text::{Text, descriptor, vector};

/// How B lies in memory.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum OperandB {
    /// `B[N, K]`, K contiguous.
    KMajor,
    /// `B[K, N]`, N contiguous.
    NMajor,
}

/// A variant of the kernel.
pub(crate) struct Gemm {
    pub(crate) name: &'static str,
    pub(crate) b: OperandB,
    /// Stages of the ring.
    pub(crate) stages: u32,
    /// Boxes of 64x64 results that a warpgroup stages at once.
    pub(crate) boxes: u32,
    /// Tiles along M that are worked on together.
    pub(crate) group: u32,
    /// Whether a group of products stays in flight while the next is issued.
    pub(crate) in_flight: bool,
}

impl Gemm {
    const A_BYTES: u32 = 128 * 64 * 2;
    const B_BYTES: u32 = 256 * 64 * 2;
    const BOX_BYTES: u32 = 64 * 64 * 2;

    fn b_offset(&self) -> u32 {
        self.stages * Gemm::A_BYTES
    }

    fn c_offset(&self) -> u32 {
        self.b_offset() + self.stages * Gemm::B_BYTES
    }

    fn full_offset(&self) -> u32 {
        self.c_offset() + 2 * self.boxes * Gemm::BOX_BYTES
    }

    fn empty_offset(&self) -> u32 {
        self.full_offset() + self.stages * 8
    }

    /// Dynamic shared memory of a block.
    pub(crate) fn shared_bytes(&self) -> u32 {
        self.empty_offset() + self.stages * 8
    }
}

/// From `%tile` to `%m0` and `%n0`, the tile's first row and column.
fn locate(t: &mut Text, g: &Gemm) {
    t.op("div.u32 %q0, %tile, %per_group");
    t.op("mul.lo.u32 %q1, %q0, %per_group");
    t.op("sub.u32 %q1, %tile, %q1");
    t.op(format!("mul.lo.u32 %q0, %q0, {}", g.group));
    t.op("sub.u32 %q2, %rows_of_tiles, %q0");
    t.op(format!("min.u32 %q2, %q2, {}", g.group));
    t.op("div.u32 %q3, %q1, %q2");
    t.op("mul.lo.u32 %q4, %q3, %q2");
    t.op("sub.u32 %q4, %q1, %q4");
    t.op("add.u32 %q4, %q4, %q0");
    t.op("shl.b32 %m0, %q4, 7");
    t.op("shl.b32 %n0, %q3, 8");
}

/// `%stage` and `%phase` to the next slot of the ring.
fn advance(t: &mut Text, g: &Gemm) {
    t.op("add.u32 %stage, %stage, 1");
    t.op(format!("setp.eq.u32 %p, %stage, {}", g.stages));
    t.op("@%p mov.u32 %stage, 0");
    t.op("@%p xor.b32 %phase, %phase, 1");
}

pub(crate) fn gemm(g: &Gemm) -> String {
    let mut t = Text::default();
    let form = if g.b == OperandB::KMajor { "B[N, K]" } else { "B[K, N]" };
    t.raw(&format!("// C[M, N] = A[M, K] {form} in bf16 with f32 sums; tiles of 128x256x64, {} stages.", g.stages));
    t.raw(&format!("// {} bytes of dynamic shared memory. Written by the generator `anchors` of tessera-ptx.", g.shared_bytes()));
    t.raw(".version 8.0\n.target sm_90a\n.address_size 64");
    t.raw(".extern .shared .align 1024 .b8 dynamic[];");
    t.raw(&format!(".visible .entry {}(", g.name));
    t.raw("    .param .align 64 .b8 map_a[128],\n    .param .align 64 .b8 map_b[128],\n    .param .align 64 .b8 map_c[128],");
    t.raw("    .param .u32 tiles_m,\n    .param .u32 tiles_n,\n    .param .u32 blocks_k\n)");
    t.raw(".reqntid 384, 1, 1\n.minnctapersm 1");
    t.raw("{");
    t.op(".reg .pred %p, %waited, %first, %later, %always, %leader, %releases");
    t.op(".reg .b32 %q<8>, %thread, %role, %base, %stage, %phase, %tile, %step, %tiles, %per_group, %rows_of_tiles");
    t.op(".reg .b32 %columns_of_tiles, %blocks, %m0, %n0, %k0, %k, %full, %empty, %released, %last, %to_a, %to_b, %lane, %x");
    t.op(".reg .b32 %store<4>, %c<4>, %from, %row, %column");
    t.op(".reg .b64 %map_a, %map_b, %map_c, %a, %b, %a0, %b0, %a<4>, %b<4>, %wide");
    t.op(".reg .f32 %f<128>");
    t.op("mov.u32 %base, dynamic");
    t.op("mov.u32 %thread, %tid.x");
    t.op("cvta.param.u64 %map_a, map_a");
    t.op("cvta.param.u64 %map_b, map_b");
    t.op("cvta.param.u64 %map_c, map_c");
    t.op("ld.param.u32 %rows_of_tiles, [tiles_m]");
    t.op("ld.param.u32 %columns_of_tiles, [tiles_n]");
    t.op("ld.param.u32 %blocks, [blocks_k]");
    t.op("mov.u32 %tile, %ctaid.x");
    t.op("mov.u32 %step, %nctaid.x");
    t.op("mul.lo.u32 %tiles, %rows_of_tiles, %columns_of_tiles");
    t.op(format!("mul.lo.u32 %per_group, %columns_of_tiles, {}", g.group));
    t.op("setp.eq.u32 %leader, %thread, 0");
    t.op("@!%leader bra ready");
    t.op("prefetch.tensormap [%map_a]");
    t.op("prefetch.tensormap [%map_b]");
    t.op("prefetch.tensormap [%map_c]");
    for s in 0..g.stages {
        t.op(format!("mbarrier.init.shared::cta.b64 [%base+{}], 1", g.full_offset() + s * 8));
        t.op(format!("mbarrier.init.shared::cta.b64 [%base+{}], 2", g.empty_offset() + s * 8));
    }
    t.op("fence.mbarrier_init.release.cluster");
    t.label("ready");
    t.op("bar.sync 0");
    t.op("mov.u32 %stage, 0");
    t.op("shr.u32 %role, %thread, 7");
    t.op("shfl.sync.idx.b32 %role, %role, 0, 31, -1");
    t.op("setp.ne.u32 %p, %role, 0");
    t.op("@%p bra consumer");

    producer(&mut t, g);
    consumer(&mut t, g);

    t.label("done");
    t.op("ret");
    t.raw("}");
    t.finish()
}

fn producer(t: &mut Text, g: &Gemm) {
    t.note("producer: one thread fills the ring");
    t.op("setmaxnreg.dec.sync.aligned.u32 40");
    t.op("@!%leader bra done");
    t.op("mov.u32 %phase, 1");
    t.label("producer_tile");
    t.op("setp.ge.u32 %p, %tile, %tiles");
    t.op("@%p bra done");
    locate(t, g);
    match g.b {
        OperandB::KMajor => t.op("mov.u32 %column, %n0"),
        OperandB::NMajor => t.op("shr.u32 %column, %n0, 6"),
    }
    t.op("mov.u32 %k0, 0");
    t.op("mov.u32 %k, %blocks");
    t.label("producer_block");
    t.op("shl.b32 %x, %stage, 3");
    t.op("add.u32 %x, %x, %base");
    t.op(format!("add.u32 %full, %x, {}", g.full_offset()));
    t.op(format!("add.u32 %empty, %x, {}", g.empty_offset()));
    t.wait("%empty", "%phase");
    t.op(format!("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%full], {}", Gemm::A_BYTES + Gemm::B_BYTES));
    t.op(format!("mad.lo.u32 %to_a, %stage, {}, %base", Gemm::A_BYTES));
    t.op(format!("mad.lo.u32 %to_b, %stage, {}, %base", Gemm::B_BYTES));
    t.op(format!("add.u32 %to_b, %to_b, {}", g.b_offset()));
    let load = "cp.async.bulk.tensor";
    let tail = "shared::cluster.global.tile.mbarrier::complete_tx::bytes";
    t.op(format!("{load}.2d.{tail} [%to_a], [%map_a, {{%k0, %m0}}], [%full]"));
    let coordinates = match g.b {
        OperandB::KMajor => "{%k0, %column}",
        OperandB::NMajor => "{0, %k0, %column}",
    };
    let dims = if g.b == OperandB::KMajor { 2 } else { 3 };
    t.op(format!("{load}.{dims}d.{tail} [%to_b], [%map_b, {coordinates}], [%full]"));
    advance(t, g);
    t.op("add.u32 %k0, %k0, 64");
    t.op("sub.u32 %k, %k, 1");
    t.op("setp.ne.u32 %p, %k, 0");
    t.op("@%p bra producer_block");
    t.op("add.u32 %tile, %tile, %step");
    t.op("bra producer_tile");
}

fn consumer(t: &mut Text, g: &Gemm) {
    let accumulators = vector("%f", 0..128);
    t.label("consumer");
    t.op("setmaxnreg.inc.sync.aligned.u32 232");
    t.op("mov.u32 %phase, 0");
    t.op("sub.u32 %role, %role, 1");
    t.op("and.b32 %lane, %thread, 127");
    t.op("setp.eq.u32 %leader, %lane, 0");
    t.op("mov.pred %always, 1");
    t.note("descriptors of this warpgroup's rows of A and of B at stage 0");
    t.op("mad.lo.u32 %x, %role, 8192, %base");
    t.op("shr.u32 %x, %x, 4");
    t.op("cvt.u64.u32 %a, %x");
    t.op(format!("or.b64 %a, %a, {:#x}", descriptor(16, 1024)));
    t.op(format!("add.u32 %x, %base, {}", g.b_offset()));
    t.op("shr.u32 %x, %x, 4");
    t.op("cvt.u64.u32 %b, %x");
    let (leading, b_step, transposed) = match g.b {
        OperandB::KMajor => (16, 2, 0),
        OperandB::NMajor => (8192, 128, 1),
    };
    t.op(format!("or.b64 %b, %b, {:#x}", descriptor(leading, 1024)));
    t.note("where this thread's rows go: box row, then a 16-byte chunk under the 128-byte swizzle");
    t.op("and.b32 %q0, %thread, 15");
    t.op("shr.u32 %q1, %lane, 5");
    t.op("shl.b32 %q1, %q1, 4");
    t.op("add.u32 %q0, %q0, %q1");
    t.op("shl.b32 %q0, %q0, 7");
    t.op(format!("mad.lo.u32 %from, %role, {}, %base", g.boxes * Gemm::BOX_BYTES));
    t.op(format!("add.u32 %from, %from, {}", g.c_offset()));
    t.op("add.u32 %q0, %q0, %from");
    t.op("and.b32 %q1, %thread, 7");
    t.op("shr.u32 %q2, %thread, 4");
    t.op("and.b32 %q2, %q2, 1");
    for j in 0..4 {
        t.op(format!("add.u32 %q3, %q2, {}", 2 * j));
        t.op("xor.b32 %q3, %q3, %q1");
        t.op("shl.b32 %q3, %q3, 4");
        t.op(format!("add.u32 %store{j}, %q0, %q3"));
    }
    t.op(format!("add.u32 %released, %base, {}", g.empty_offset()));
    t.label("consumer_tile");
    t.op("setp.ge.u32 %p, %tile, %tiles");
    t.op("@%p bra consumer_done");
    locate(t, g);
    t.op("mov.u32 %k, 0");
    t.op("mov.u32 %last, 0");
    t.label("consumer_block");
    t.op("shl.b32 %x, %stage, 3");
    t.op("add.u32 %full, %x, %base");
    t.op(format!("add.u32 %full, %full, {}", g.full_offset()));
    t.op(format!("mul.wide.u32 %wide, %stage, {}", Gemm::A_BYTES / 16));
    t.op("add.u64 %a0, %a, %wide");
    t.op(format!("mul.wide.u32 %wide, %stage, {}", Gemm::B_BYTES / 16));
    t.op("add.u64 %b0, %b, %wide");
    for j in 1..4 {
        t.op(format!("add.u64 %a{j}, %a0, {}", 2 * j));
        t.op(format!("add.u64 %b{j}, %b0, {}", b_step * j));
    }
    t.op("setp.ne.u32 %later, %k, 0");
    t.wait("%full", "%phase");
    t.op("wgmma.fence.sync.aligned");
    for j in 0..4 {
        let adds = if j == 0 { "%later" } else { "%always" };
        t.op(format!(
            "wgmma.mma_async.sync.aligned.m64n256k16.f32.bf16.bf16 {accumulators}, %a{j}, %b{j}, {adds}, 1, 1, 0, {transposed}"
        ));
    }
    t.op("wgmma.commit_group.sync.aligned");
    if g.in_flight {
        t.note("the group before is done: its stage may be filled again");
        t.op("wgmma.wait_group.sync.aligned 1");
        t.op("and.pred %releases, %leader, %later");
        t.op("@%releases mbarrier.arrive.shared::cta.b64 _, [%last]");
        t.op("add.u32 %last, %released, %x");
    } else {
        t.op("wgmma.wait_group.sync.aligned 0");
        t.op("add.u32 %last, %released, %x");
        t.op("@%leader mbarrier.arrive.shared::cta.b64 _, [%last]");
    }
    advance(t, g);
    t.op("add.u32 %k, %k, 1");
    t.op("setp.lt.u32 %p, %k, %blocks");
    t.op("@%p bra consumer_block");
    if g.in_flight {
        t.op("wgmma.wait_group.sync.aligned 0");
        t.op("@%leader mbarrier.arrive.shared::cta.b64 _, [%last]");
    }
    epilogue(t, g);
    t.op("add.u32 %tile, %tile, %step");
    t.op("bra consumer_tile");
    t.label("consumer_done");
    t.op("@%leader cp.async.bulk.wait_group 0");
}

fn epilogue(t: &mut Text, g: &Gemm) {
    t.note("the tile leaves in boxes of 64x64 through this warpgroup's own shared memory");
    t.op("shl.b32 %row, %role, 6");
    t.op("add.u32 %row, %row, %m0");
    t.op("add.u32 %x, %role, 1");
    for first in (0..4).step_by(g.boxes as usize) {
        t.op("@%leader cp.async.bulk.wait_group.read 0");
        t.op("bar.sync %x, 128");
        for box_index in 0..g.boxes {
            for j in 0..4 {
                let at = (first + box_index) * 32 + j * 8;
                for c in 0..4 {
                    let low = at + 2 * c;
                    t.op(format!("cvt.rn.bf16x2.f32 %c{c}, %f{}, %f{low}", low + 1));
                }
                t.op(format!(
                    "stmatrix.sync.aligned.m8n8.x4.shared.b16 [%store{j}+{}], {{%c0, %c1, %c2, %c3}}",
                    box_index * Gemm::BOX_BYTES
                ));
            }
        }
        t.op("fence.proxy.async.shared::cta");
        t.op("bar.sync %x, 128");
        for box_index in 0..g.boxes {
            let store = "cp.async.bulk.tensor.2d.global.shared::cta.tile.bulk_group";
            t.op(format!("add.u32 %column, %n0, {}", (first + box_index) * 64));
            t.op(format!("add.u32 %q0, %from, {}", box_index * Gemm::BOX_BYTES));
            t.op(format!("@%leader {store} [%map_c, {{%column, %row}}], [%q0]"));
        }
        t.op("@%leader cp.async.bulk.commit_group");
    }
}
