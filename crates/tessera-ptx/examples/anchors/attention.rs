//! Attention forward for heads of 128, bf16: one producer and two consumer warpgroups that take turns.
//!
//! A block works on 128 rows of Q (64 a warpgroup) against tiles of K and V that arrive in two rings of two stages. In the
//! loop a warpgroup issues the scores of the next tile and the product of the last tile's probabilities, which stay in
//! registers, and works on the softmax while the matrix unit runs; named barriers make one warpgroup's softmax lie under
//! the other's products. Tensors are `[batch, length, head, 128]`.

use crate::text::{Text, descriptor, vector};

/// A variant of the kernel.
pub(crate) struct Attention {
    pub(crate) name: &'static str,
    /// Keys of a tile: a multiple of 16.
    pub(crate) keys: u32,
    /// Whether results are staged where Q was, for tiles that leave no room.
    pub(crate) stage_in_q: bool,
    /// Whether the warpgroups take turns at the matrix unit.
    pub(crate) ping_pong: bool,
}

const SLOTS: u32 = 2;
const Q_BYTES: u32 = 128 * 128 * 2;

impl Attention {
    fn tile_bytes(&self) -> u32 {
        self.keys * 128 * 2
    }

    fn k_offset(&self) -> u32 {
        Q_BYTES
    }

    fn v_offset(&self) -> u32 {
        self.k_offset() + SLOTS * self.tile_bytes()
    }

    fn o_offset(&self) -> u32 {
        if self.stage_in_q { 0 } else { self.v_offset() + SLOTS * self.tile_bytes() }
    }

    /// Barriers: Q full, Q empty, then K full, K empty, V full, V empty with a pair of each.
    fn barriers(&self) -> u32 {
        self.v_offset() + SLOTS * self.tile_bytes() + if self.stage_in_q { 0 } else { Q_BYTES }
    }

    /// Dynamic shared memory of a block.
    pub(crate) fn shared_bytes(&self) -> u32 {
        self.barriers() + 80
    }

    fn scores(&self) -> u32 {
        self.keys / 2
    }
}

/// One of the two rings: its registers and where its barriers are.
struct Ring {
    stage: &'static str,
    phase: &'static str,
    full: u32,
    empty: u32,
}

fn rings(a: &Attention) -> (Ring, Ring) {
    let b = a.barriers();
    (
        Ring { stage: "%k_stage", phase: "%k_phase", full: b + 16, empty: b + 32 },
        Ring { stage: "%v_stage", phase: "%v_phase", full: b + 48, empty: b + 64 },
    )
}

fn advance(t: &mut Text, ring: &Ring) {
    t.op(format!("xor.b32 {0}, {0}, 1", ring.stage));
    t.op(format!("setp.eq.u32 %p, {}, 0", ring.stage));
    t.op(format!("@%p xor.b32 {0}, {0}, 1", ring.phase));
}

fn wait(t: &mut Text, ring: &Ring, at: u32) {
    t.op(format!("shl.b32 %x, {}, 3", ring.stage));
    t.op("add.u32 %x, %x, %base");
    t.wait(&format!("%x+{at}"), ring.phase);
}

fn release(t: &mut Text, ring: &Ring) {
    t.op(format!("shl.b32 %x, {}, 3", ring.stage));
    t.op("add.u32 %x, %x, %base");
    t.op(format!("@%leader mbarrier.arrive.shared::cta.b64 _, [%x+{}]", ring.empty));
}

/// From `%tile` to `%row0`, `%head` and `%batch`.
fn locate(t: &mut Text) {
    t.op("div.u32 %y, %tile, %row_blocks");
    t.op("mul.lo.u32 %x, %y, %row_blocks");
    t.op("sub.u32 %x, %tile, %x");
    t.op("shl.b32 %row0, %x, 7");
    t.op("div.u32 %batch, %y, %heads");
    t.op("mul.lo.u32 %x, %batch, %heads");
    t.op("sub.u32 %head, %y, %x");
}

pub(crate) fn attention(a: &Attention) -> String {
    let mut t = Text::default();
    let (k, v) = rings(a);
    t.raw(&format!("// Attention forward, bf16, heads of 128: 128 queries a block against tiles of {} keys.", a.keys));
    t.raw(&format!("// {} bytes of dynamic shared memory. Written by the generator `anchors` of tessera-ptx.", a.shared_bytes()));
    t.raw(".version 8.0\n.target sm_90a\n.address_size 64");
    t.raw(".extern .shared .align 1024 .b8 dynamic[];");
    t.raw(&format!(".visible .entry {}(", a.name));
    for map in ["map_q", "map_k", "map_v", "map_o"] {
        t.raw(&format!("    .param .align 64 .b8 {map}[128],"));
    }
    t.raw("    .param .u32 keys,\n    .param .u32 row_blocks,\n    .param .u32 heads,\n    .param .u32 tiles,\n    .param .f32 scale_log2\n)");
    t.raw(".reqntid 384, 1, 1\n.minnctapersm 1\n{");
    t.op(".reg .pred %p, %waited, %leader, %always, %started, %more");
    t.op(".reg .b32 %x, %y, %base, %thread, %role, %lane, %tile, %step, %tiles, %row_blocks, %heads, %keys, %row0, %head");
    t.op(".reg .b32 %batch, %n, %blocks, %key0, %k_stage, %k_phase, %v_stage, %v_phase, %q_phase, %slot, %own, %other");
    t.op(".reg .b32 %store<4>, %c<4>, %from, %row, %column");
    t.op(format!(".reg .b32 %pr<{}>", a.keys / 4));
    t.op(".reg .b64 %map_q, %map_k, %map_v, %map_o, %q, %k, %v, %qd, %kd, %vd, %wide");
    t.op(format!(".reg .f32 %o<64>, %s<{}>, %scale, %m<2>, %l<2>, %r<2>, %f<2>, %t<8>, %u", a.scores()));
    t.op("mov.u32 %base, dynamic");
    t.op("mov.u32 %thread, %tid.x");
    for map in ["map_q", "map_k", "map_v", "map_o"] {
        t.op(format!("cvta.param.u64 %{map}, {map}"));
    }
    t.op("ld.param.u32 %keys, [keys]");
    t.op("ld.param.u32 %row_blocks, [row_blocks]");
    t.op("ld.param.u32 %heads, [heads]");
    t.op("ld.param.u32 %tiles, [tiles]");
    t.op("mov.u32 %tile, %ctaid.x");
    t.op("mov.u32 %step, %nctaid.x");
    t.op(format!("add.u32 %blocks, %keys, {}", a.keys - 1));
    t.op(format!("div.u32 %blocks, %blocks, {}", a.keys));
    t.op("mov.u32 %k_stage, 0");
    t.op("mov.u32 %v_stage, 0");
    t.op("setp.eq.u32 %leader, %thread, 0");
    t.op("@!%leader bra ready");
    for map in ["map_q", "map_k", "map_v", "map_o"] {
        t.op(format!("prefetch.tensormap [%{map}]"));
    }
    let b = a.barriers();
    t.op(format!("mbarrier.init.shared::cta.b64 [%base+{b}], 1"));
    t.op(format!("mbarrier.init.shared::cta.b64 [%base+{}], 2", b + 8));
    for slot in 0..SLOTS {
        for ring in [&k, &v] {
            t.op(format!("mbarrier.init.shared::cta.b64 [%base+{}], 1", ring.full + slot * 8));
            t.op(format!("mbarrier.init.shared::cta.b64 [%base+{}], 2", ring.empty + slot * 8));
        }
    }
    t.op("fence.mbarrier_init.release.cluster");
    t.label("ready");
    t.op("bar.sync 0");
    t.op("shr.u32 %role, %thread, 7");
    t.op("shfl.sync.idx.b32 %role, %role, 0, 31, -1");
    t.op("setp.ne.u32 %p, %role, 0");
    t.op("@%p bra consumer");
    producer(&mut t, a);
    consumer(&mut t, a);
    t.label("done");
    t.op("ret");
    t.raw("}");
    t.finish()
}

fn producer(t: &mut Text, a: &Attention) {
    let (k, v) = rings(a);
    let load = "cp.async.bulk.tensor.5d.shared::cluster.global.tile.mbarrier::complete_tx::bytes";
    let tile = |t: &mut Text, ring: &Ring, map: &str, offset: u32, key: &str| {
        wait(t, ring, ring.empty);
        t.op(format!("mad.lo.u32 %slot, {}, {}, %base", ring.stage, a.tile_bytes()));
        t.op(format!("add.u32 %slot, %slot, {offset}"));
        t.op(format!("add.u32 %x, %x, {}", ring.full));
        t.op(format!("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%x], {}", a.tile_bytes()));
        t.op(format!("{load} [%slot], [{map}, {{0, {key}, 0, %head, %batch}}], [%x]"));
        advance(t, ring);
    };
    t.note("producer: one thread; scores run one tile ahead of the product with V");
    t.op("setmaxnreg.dec.sync.aligned.u32 24");
    t.op("@!%leader bra done");
    t.op("mov.u32 %k_phase, 1");
    t.op("mov.u32 %v_phase, 1");
    t.op("mov.u32 %q_phase, 1");
    t.label("producer_tile");
    t.op("setp.ge.u32 %p, %tile, %tiles");
    t.op("@%p bra done");
    locate(t);
    t.wait(&format!("%base+{}", a.barriers() + 8), "%q_phase");
    t.op("xor.b32 %q_phase, %q_phase, 1");
    t.op(format!("add.u32 %y, %base, {}", a.barriers()));
    t.op(format!("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%y], {Q_BYTES}"));
    t.op(format!("{load} [%base], [%map_q, {{0, %row0, 0, %head, %batch}}], [%y]"));
    t.op("sub.u32 %n, %blocks, 1");
    t.op(format!("mul.lo.u32 %key0, %n, {}", a.keys));
    tile(t, &k, "%map_k", a.k_offset(), "%key0");
    t.label("producer_block");
    t.op("setp.eq.u32 %p, %n, 0");
    t.op("@%p bra producer_last");
    t.op(format!("sub.u32 %y, %key0, {}", a.keys));
    tile(t, &k, "%map_k", a.k_offset(), "%y");
    tile(t, &v, "%map_v", a.v_offset(), "%key0");
    t.op("mov.u32 %key0, %y");
    t.op("sub.u32 %n, %n, 1");
    t.op("bra producer_block");
    t.label("producer_last");
    tile(t, &v, "%map_v", a.v_offset(), "%key0");
    t.op("add.u32 %tile, %tile, %step");
    t.op("bra producer_tile");
}

fn scores(t: &mut Text, a: &Attention) {
    t.op(format!("mul.wide.u32 %wide, %k_stage, {}", a.tile_bytes() / 16));
    t.op("add.u64 %kd, %k, %wide");
    t.op("mov.b64 %qd, %q");
    let s = vector("%s", 0..a.scores());
    for j in 0..8 {
        let adds = if j == 0 { "!%always" } else { "%always" };
        t.op(format!("wgmma.mma_async.sync.aligned.m64n{}k16.f32.bf16.bf16 {s}, %qd, %kd, {adds}, 1, 1, 0, 0", a.keys));
        if j < 7 {
            // 16 elements on inside a slab of 64, or to the next slab.
            let (q, k) = if j == 3 { (128 * 8 - 6, a.keys * 8 - 6) } else { (2, 2) };
            t.op(format!("add.u64 %qd, %qd, {q}"));
            t.op(format!("add.u64 %kd, %kd, {k}"));
        }
    }
    t.op("wgmma.commit_group.sync.aligned");
}

fn product(t: &mut Text, a: &Attention) {
    t.op(format!("mul.wide.u32 %wide, %v_stage, {}", a.tile_bytes() / 16));
    t.op("add.u64 %vd, %v, %wide");
    let o = vector("%o", 0..64);
    for j in 0..a.keys / 16 {
        let p = vector("%pr", 4 * j..4 * j + 4);
        let adds = if j == 0 { "%started" } else { "%always" };
        t.op(format!("wgmma.mma_async.sync.aligned.m64n128k16.f32.bf16.bf16 {o}, {p}, %vd, {adds}, 1, 1, 1"));
        if j + 1 < a.keys / 16 {
            t.op("add.u64 %vd, %vd, 128");
        }
    }
    t.op("wgmma.commit_group.sync.aligned");
}

/// Registers of the scores that belong to one of a thread's two rows.
fn of_row(a: &Attention, row: u32) -> impl Iterator<Item = u32> {
    (0..a.scores()).filter(move |index| (index / 2) % 2 == row)
}

/// Maximum, exponentials and sums; after the first tile also the factors `%f` that older results shrink by.
fn softmax(t: &mut Text, a: &Attention, first: bool) {
    for row in 0..2 {
        let mut parts: Vec<Option<String>> = vec![None; 4];
        for (count, index) in of_row(a, row).enumerate() {
            let lane = count % 4;
            parts[lane] = Some(match parts[lane].take() {
                None => format!("%s{index}"),
                Some(so_far) => {
                    let into = format!("%t{}", lane + 4 * row as usize);
                    t.op(format!("max.f32 {into}, {so_far}, %s{index}"));
                    into
                }
            });
        }
        let base = 4 * row;
        t.op(format!("max.f32 %t{0}, %t{0}, %t{1}", base, base + 1));
        t.op(format!("max.f32 %t{0}, %t{0}, %t{1}", base + 2, base + 3));
        t.op(format!("max.f32 %r{row}, %t{}, %t{}", base, base + 2));
        if !first {
            t.op(format!("max.f32 %r{row}, %r{row}, %m{row}"));
        }
    }
    for lane in [1, 2] {
        for row in 0..2 {
            t.op(format!("shfl.sync.bfly.b32 %u, %r{row}, {lane}, 31, -1"));
            t.op(format!("max.f32 %r{row}, %r{row}, %u"));
        }
    }
    for row in 0..2 {
        if !first {
            t.op(format!("sub.f32 %f{row}, %m{row}, %r{row}"));
            t.op(format!("mul.f32 %f{row}, %f{row}, %scale"));
            t.op(format!("ex2.approx.ftz.f32 %f{row}, %f{row}"));
            t.op(format!("mul.f32 %l{row}, %l{row}, %f{row}"));
        } else {
            t.op(format!("mov.f32 %l{row}, 0f00000000"));
        }
        t.op(format!("mov.f32 %m{row}, %r{row}"));
        t.op(format!("mul.f32 %r{row}, %r{row}, %scale"));
        t.op(format!("neg.f32 %r{row}, %r{row}"));
    }
    for row in 0..2 {
        for index in of_row(a, row) {
            t.op(format!("fma.rn.f32 %s{index}, %s{index}, %scale, %r{row}"));
            t.op(format!("ex2.approx.ftz.f32 %s{index}, %s{index}"));
        }
        for (count, index) in of_row(a, row).enumerate() {
            let into = 4 * row as usize + count % 4;
            if count < 4 {
                t.op(format!("mov.f32 %t{into}, %s{index}"));
            } else {
                t.op(format!("add.f32 %t{into}, %t{into}, %s{index}"));
            }
        }
        let base = 4 * row;
        t.op(format!("add.f32 %t{0}, %t{0}, %t{1}", base, base + 1));
        t.op(format!("add.f32 %t{0}, %t{0}, %t{1}", base + 2, base + 3));
        t.op(format!("add.f32 %t{0}, %t{0}, %t{1}", base, base + 2));
        t.op(format!("add.f32 %l{row}, %l{row}, %t{base}"));
    }
}

fn pack(t: &mut Text, a: &Attention) {
    for index in 0..a.keys / 4 {
        t.op(format!("cvt.rn.bf16x2.f32 %pr{index}, %s{}, %s{}", 2 * index + 1, 2 * index));
    }
}

/// A warpgroup that multiplies: tile by tile, block of keys by block.
fn consumer(t: &mut Text, a: &Attention) {
    consumer_start(t, a);
    t.label("consumer_tile");
    t.op("setp.ge.u32 %p, %tile, %tiles");
    t.op("@%p bra consumer_done");
    consumer_blocks(t, a);
    epilogue(t, a, if a.stage_in_q { 16384 } else { 8192 });
    t.op("add.u32 %tile, %tile, %step");
    t.op("bra consumer_tile");
    t.label("consumer_done");
    t.op("@%leader cp.async.bulk.wait_group 0");
}

/// What does not change from tile to tile: descriptors, and where results go.
fn consumer_start(t: &mut Text, a: &Attention) {
    t.label("consumer");
    t.op("setmaxnreg.inc.sync.aligned.u32 240");
    t.op("ld.param.f32 %scale, [scale_log2]");
    t.op("mov.u32 %k_phase, 0");
    t.op("mov.u32 %v_phase, 0");
    t.op("mov.u32 %q_phase, 0");
    t.op("sub.u32 %role, %role, 1");
    t.op("and.b32 %lane, %thread, 127");
    t.op("setp.eq.u32 %leader, %lane, 0");
    t.op("mov.pred %always, 1");
    t.note("descriptors: Q and K with the head dimension contiguous, V with its rows as the contracted dimension");
    t.op("mad.lo.u32 %x, %role, 8192, %base");
    t.op("shr.u32 %x, %x, 4");
    t.op("cvt.u64.u32 %q, %x");
    t.op(format!("or.b64 %q, %q, {:#x}", descriptor(16, 1024)));
    t.op(format!("add.u32 %x, %base, {}", a.k_offset()));
    t.op("shr.u32 %x, %x, 4");
    t.op("cvt.u64.u32 %k, %x");
    t.op(format!("or.b64 %k, %k, {:#x}", descriptor(16, 1024)));
    t.op(format!("add.u32 %x, %base, {}", a.v_offset()));
    t.op("shr.u32 %x, %x, 4");
    t.op("cvt.u64.u32 %v, %x");
    t.op(format!("or.b64 %v, %v, {:#x}", descriptor(u64::from(a.keys) * 128, 1024)));
    t.note("where this thread's results go: a row, then a 16-byte chunk under the 128-byte swizzle");
    let share = if a.stage_in_q { 8192 } else { 16384 };
    t.op(format!("mad.lo.u32 %from, %role, {share}, %base"));
    t.op(format!("add.u32 %from, %from, {}", a.o_offset()));
    t.op("and.b32 %x, %thread, 15");
    t.op("shr.u32 %y, %lane, 5");
    t.op("shl.b32 %y, %y, 4");
    t.op("add.u32 %x, %x, %y");
    t.op("shl.b32 %x, %x, 7");
    t.op("add.u32 %row, %x, %from");
    t.op("and.b32 %x, %thread, 7");
    t.op("shr.u32 %y, %thread, 4");
    t.op("and.b32 %y, %y, 1");
    for j in 0..4 {
        t.op(format!("add.u32 %c0, %y, {}", 2 * j));
        t.op("xor.b32 %c0, %c0, %x");
        t.op("shl.b32 %c0, %c0, 4");
        t.op(format!("add.u32 %store{j}, %row, %c0"));
    }
    t.op("add.u32 %own, %role, 1");
    t.op("sub.u32 %other, 2, %role");
    if a.ping_pong {
        t.note("the first warpgroup has the first turn");
        t.op("setp.eq.u32 %p, %role, 1");
        t.op("@!%p bra consumer_tile");
        t.op("bar.arrive 1, 256");
    }
}

/// One tile: products with each block of keys and values, the next scores under the softmax of the last ones.
fn consumer_blocks(t: &mut Text, a: &Attention) {
    let (k, v) = rings(a);
    locate(t);
    t.wait(&format!("%base+{}", a.barriers()), "%q_phase");
    t.op("xor.b32 %q_phase, %q_phase, 1");
    wait(t, &k, k.full);
    t.op("wgmma.fence.sync.aligned");
    scores(t, a);
    t.op("wgmma.wait_group.sync.aligned 0");
    release(t, &k);
    advance(t, &k);
    mask(t, a);
    softmax(t, a, true);
    pack(t, a);
    t.op("setp.ne.u32 %started, %thread, %thread");
    t.op("sub.u32 %n, %blocks, 1");
    t.op("setp.eq.u32 %p, %n, 0");
    t.op("@%p bra consumer_last");
    t.label("consumer_block");
    wait(t, &k, k.full);
    if a.ping_pong {
        t.op("bar.sync %own, 256");
    }
    t.op("wgmma.fence.sync.aligned");
    scores(t, a);
    wait(t, &v, v.full);
    product(t, a);
    if a.ping_pong {
        t.op("bar.arrive %other, 256");
    }
    t.op("wgmma.wait_group.sync.aligned 1");
    release(t, &k);
    advance(t, &k);
    softmax(t, a, false);
    t.op("wgmma.wait_group.sync.aligned 0");
    release(t, &v);
    advance(t, &v);
    for index in 0..64 {
        t.op(format!("mul.f32 %o{index}, %o{index}, %f{}", (index / 2) % 2));
    }
    pack(t, a);
    t.op("mov.pred %started, 1");
    t.op("sub.u32 %n, %n, 1");
    t.op("setp.ne.u32 %more, %n, 0");
    t.op("@%more bra consumer_block");
    t.label("consumer_last");
    if !a.stage_in_q {
        t.op(format!("@%leader mbarrier.arrive.shared::cta.b64 _, [%base+{}]", a.barriers() + 8));
    }
    wait(t, &v, v.full);
    t.op("wgmma.fence.sync.aligned");
    product(t, a);
    t.note("sums over the four threads of a row, under the last product");
    for lane in [1, 2] {
        for row in 0..2 {
            t.op(format!("shfl.sync.bfly.b32 %u, %l{row}, {lane}, 31, -1"));
            t.op(format!("add.f32 %l{row}, %l{row}, %u"));
        }
    }
    t.op("rcp.approx.ftz.f32 %f0, %l0");
    t.op("rcp.approx.ftz.f32 %f1, %l1");
    t.op("wgmma.wait_group.sync.aligned 0");
    release(t, &v);
    advance(t, &v);
}

/// Keys behind the end count as -inf; only the last tile, which comes first, has such.
fn mask(t: &mut Text, a: &Attention) {
    t.op("sub.u32 %key0, %blocks, 1");
    t.op(format!("mul.lo.u32 %key0, %key0, {}", a.keys));
    t.op("sub.u32 %y, %keys, %key0");
    t.op(format!("setp.ge.u32 %p, %y, {}", a.keys));
    t.op("@%p bra unmasked");
    t.op("and.b32 %x, %thread, 3");
    t.op("shl.b32 %x, %x, 1");
    t.op("sub.s32 %y, %y, %x");
    for index in 0..a.scores() {
        let column = 8 * (index / 4) + index % 2;
        t.op(format!("setp.le.s32 %p, %y, {column}"));
        t.op(format!("@%p mov.f32 %s{index}, 0fFF800000"));
    }
    t.label("unmasked");
}

fn epilogue(t: &mut Text, a: &Attention, slab: u32) {
    t.note("results leave through this warpgroup's own shared memory");
    if !a.stage_in_q {
        t.op("@%leader cp.async.bulk.wait_group.read 0");
    }
    t.op("add.u32 %own, %role, 3");
    t.op("bar.sync %own, 128");
    for index in 0..64 {
        t.op(format!("mul.f32 %o{index}, %o{index}, %f{}", (index / 2) % 2));
    }
    for half in 0..2 {
        for j in 0..4 {
            let at = half * 32 + j * 8;
            for c in 0..4 {
                let low = at + 2 * c;
                t.op(format!("cvt.rn.bf16x2.f32 %c{c}, %o{}, %o{low}", low + 1));
            }
            t.op(format!("stmatrix.sync.aligned.m8n8.x4.shared.b16 [%store{j}+{}], {{%c0, %c1, %c2, %c3}}", half * slab));
        }
    }
    t.op("fence.proxy.async.shared::cta");
    t.op("bar.sync %own, 128");
    t.op("add.u32 %own, %role, 1");
    t.op("shl.b32 %row, %role, 6");
    t.op("add.u32 %row, %row, %row0");
    let store = "cp.async.bulk.tensor.5d.global.shared::cta.tile.bulk_group";
    for half in 0..2 {
        t.op(format!("add.u32 %x, %from, {}", half * slab));
        t.op(format!("@%leader {store} [%map_o, {{0, %row, {half}, %head, %batch}}], [%x]"));
    }
    t.op("@%leader cp.async.bulk.commit_group");
    if a.stage_in_q {
        t.op("@%leader cp.async.bulk.wait_group.read 0");
        t.op(format!("@%leader mbarrier.arrive.shared::cta.b64 _, [%base+{}]", a.barriers() + 8));
    }
}
