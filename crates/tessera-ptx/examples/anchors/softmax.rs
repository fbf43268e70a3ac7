//! Row softmax of bf16: persistent blocks, rows through a ring in shared memory, one exponential an element.
//!
//! One thread keeps the ring full by bulk copies, so that loads stay in flight while other rows are worked on. A row then
//! lives in registers: each warp takes the maximum of its elements, exponentiates against it and sums; the warps' pairs
//! (maximum, sum) meet once in shared memory, and every thread scales its elements by its warp's share. That is the
//! online-softmax rule, applied between warps instead of between tiles.

use crate::text::{Text, vector};

/// A variant of the kernel.
pub(crate) struct Softmax {
    pub(crate) name: &'static str,
    /// Threads of a block.
    pub(crate) threads: u32,
    /// 16-byte vectors a thread holds: the longest row is `threads * vectors * 8`.
    pub(crate) vectors: u32,
    /// Rows in the ring; 0 is a kernel without a ring, one block a row.
    pub(crate) stages: u32,
    /// Whether results leave by bulk copies from the slot they came in, instead of by stores of each thread.
    pub(crate) bulk_store: bool,
    pub(crate) copy_only: bool,
}

impl Softmax {
    fn row_bytes(&self) -> u32 {
        self.threads * self.vectors * 16
    }

    fn warps(&self) -> u32 {
        self.threads / 32
    }

    /// Barriers behind the ring's rows.
    fn barriers(&self) -> u32 {
        self.stages * self.row_bytes()
    }

    /// Pairs (maximum, sum) of the warps, for even and odd rows.
    fn pairs(&self) -> u32 {
        self.barriers() + (self.stages * 8).next_multiple_of(16)
    }

    /// Dynamic shared memory of a block.
    pub(crate) fn shared_bytes(&self) -> u32 {
        self.pairs() + 2 * self.warps() * 8
    }
}

pub(crate) fn softmax(s: &Softmax) -> String {
    let mut t = Text::default();
    let longest = s.threads * s.vectors * 8;
    t.raw("// Row softmax, bf16: y[row] = exp(x[row] - max) / sum. A row has a multiple of 8 elements,");
    t.raw(&format!("// at most {longest}; {} rows in the ring, {} bytes of dynamic shared memory.", s.stages, s.shared_bytes()));
    t.raw("// Written by the generator `anchors` of tessera-ptx.");
    t.raw(".version 8.0\n.target sm_90a\n.address_size 64");
    t.raw(".extern .shared .align 128 .b8 dynamic[];");
    t.raw(&format!(".visible .entry {}(.param .u64 x, .param .u64 y, .param .u32 columns, .param .u32 rows)", s.name));
    t.raw(&format!(".maxntid {}, 1, 1\n{{", s.threads));
    t.op(".reg .pred %in<16>, %p, %waited, %leader, %first_lane");
    t.op(".reg .b32 %w<64>, %x, %y, %base, %thread, %columns, %rows, %row, %step, %stage, %phase, %bytes, %slot, %full");
    t.op(".reg .b32 %next, %pairs, %mine, %element, %at, %first_row, %current");
    t.op(".reg .f32 %e<128>, %m, %s, %t, %u, %c, %scale, %pm<32>, %ps<32>");
    t.op(".reg .b64 %from, %to, %in_row, %out_row, %wide");
    t.op("ld.param.u64 %from, [x]");
    t.op("ld.param.u64 %to, [y]");
    t.op("ld.param.u32 %columns, [columns]");
    t.op("ld.param.u32 %rows, [rows]");
    t.op("mov.u32 %base, dynamic");
    t.op("mov.u32 %thread, %tid.x");
    t.op("mov.u32 %row, %ctaid.x");
    t.op("mov.u32 %step, %nctaid.x");
    t.op("shl.b32 %bytes, %columns, 1");
    t.op("shl.b32 %element, %thread, 3");
    t.op("setp.eq.u32 %leader, %thread, 0");
    for v in 0..s.vectors {
        t.op(format!("add.u32 %x, %element, {}", v * s.threads * 8));
        t.op(format!("setp.lt.u32 %in{v}, %x, %columns"));
    }
    t.op("and.b32 %x, %thread, 31");
    t.op("setp.eq.u32 %first_lane, %x, 0");
    t.op("shr.u32 %mine, %thread, 5");
    t.op("shl.b32 %mine, %mine, 3");
    t.op(format!("add.u32 %pairs, %base, {}", s.pairs()));
    t.op("shl.b32 %at, %thread, 4");
    t.op("mul.wide.u32 %wide, %thread, 16");
    if !s.bulk_store {
        t.note("this thread's place in a row of the output");
        t.op("add.u64 %to, %to, %wide");
    }
    t.op("mov.u32 %first_row, %row");
    t.op("mov.f32 %c, 0f3FB8AA3B");
    if s.stages > 0 {
        fill(&mut t, s);
    } else {
        t.op("add.u64 %from, %from, %wide");
    }
    t.label("next_row");
    t.op("setp.ge.u32 %p, %row, %rows");
    t.op("@%p bra done");
    load(&mut t, s);
    if s.copy_only {
        t.op("bar.sync 0");
        refill(&mut t, s);
        t.op("mul.wide.u32 %out_row, %row, %bytes");
        t.op("add.u64 %out_row, %out_row, %to");
        for v in 0..s.vectors {
            let regs = vector("%w", v * 4..v * 4 + 4);
            t.op(format!("@%in{v} st.global.L1::no_allocate.v4.b32 [%out_row+{}], {regs}", v * s.threads * 16));
        }
    } else {
        normalise(&mut t, s);
    }
    t.op("add.u32 %row, %row, %step");
    t.op("bra next_row");
    t.label("done");
    t.op("ret");
    t.raw("}");
    t.finish()
}

/// Starts the copy of row `%next` into the slot of `%stage`.
fn copy(t: &mut Text, s: &Softmax) {
    t.op("shl.b32 %full, %stage, 3");
    t.op("add.u32 %full, %full, %base");
    t.op(format!("add.u32 %full, %full, {}", s.barriers()));
    t.op(format!("mad.lo.u32 %slot, %stage, {}, %base", s.row_bytes()));
    t.op("mul.wide.u32 %in_row, %next, %bytes");
    t.op("add.u64 %in_row, %in_row, %from");
    t.op("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%full], %bytes");
    t.op("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%slot], [%in_row], %bytes, [%full]");
}

fn fill(t: &mut Text, s: &Softmax) {
    t.op("mov.u32 %phase, 0");
    t.op("mov.u32 %stage, 0");
    t.op("@!%leader bra filled");
    for stage in 0..s.stages {
        t.op(format!("mbarrier.init.shared::cta.b64 [%base+{}], 1", s.barriers() + stage * 8));
    }
    t.op("fence.mbarrier_init.release.cluster");
    t.op("mov.u32 %next, %row");
    t.label("fill");
    t.op("setp.ge.u32 %p, %next, %rows");
    t.op("@%p bra filled");
    copy(t, s);
    t.op("add.u32 %next, %next, %step");
    t.op("add.u32 %stage, %stage, 1");
    t.op(format!("setp.lt.u32 %p, %stage, {}", s.stages));
    t.op("@%p bra fill");
    t.label("filled");
    t.op("mov.u32 %stage, 0");
    t.op("bar.sync 0");
}

/// The row into registers: elements behind its end are -inf.
fn load(t: &mut Text, s: &Softmax) {
    if s.stages > 0 {
        t.op("shl.b32 %full, %stage, 3");
        t.op("add.u32 %full, %full, %base");
        t.op(format!("add.u32 %full, %full, {}", s.barriers()));
        t.op(format!("mad.lo.u32 %slot, %stage, {}, %base", s.row_bytes()));
        t.op("add.u32 %slot, %slot, %at");
        t.op("mov.u32 %current, %slot");
        t.wait("%full", "%phase");
    } else {
        t.op("mul.wide.u32 %in_row, %row, %bytes");
        t.op("add.u64 %in_row, %in_row, %from");
    }
    for v in 0..s.vectors {
        let regs = vector("%w", v * 4..v * 4 + 4);
        for w in v * 4..v * 4 + 4 {
            t.op(format!("mov.b32 %w{w}, 0xFF80FF80"));
        }
        let offset = v * s.threads * 16;
        if s.stages > 0 {
            t.op(format!("@%in{v} ld.shared.v4.b32 {regs}, [%slot+{offset}]"));
        } else {
            t.op(format!("@%in{v} ld.global.nc.L1::no_allocate.L2::256B.v4.b32 {regs}, [%in_row+{offset}]"));
        }
    }
    for w in 0..s.vectors * 4 {
        t.op(format!("shl.b32 %x, %w{w}, 16"));
        t.op(format!("mov.b32 %e{}, %x", 2 * w));
        t.op(format!("and.b32 %x, %w{w}, 0xFFFF0000"));
        t.op(format!("mov.b32 %e{}, %x", 2 * w + 1));
    }
}

fn normalise(t: &mut Text, s: &Softmax) {
    let elements = s.vectors * 8;
    let warps = s.warps();
    t.note("the warp's maximum; a row's first warp always has an element, others may hold -inf only");
    for e in 0..elements / 2 {
        let into = if e < 4 { "%pm" } else { "%ps" };
        t.op(format!("max.f32 {into}{}, %e{}, %e{}", e % 4, 2 * e, 2 * e + 1));
        if e >= 4 {
            t.op(format!("max.f32 %pm{0}, %pm{0}, %ps{0}", e % 4));
        }
    }
    t.op("max.f32 %m, %pm0, %pm1");
    t.op("max.f32 %t, %pm2, %pm3");
    t.op("max.f32 %m, %m, %t");
    for lane in [16, 8, 4, 2, 1] {
        t.op(format!("shfl.sync.bfly.b32 %t, %m, {lane}, 31, -1"));
        t.op("max.f32 %m, %m, %t");
    }
    t.note("exp(x - m) = 2^(x * log2(e) - m * log2(e)); a maximum of -inf counts as 0 here");
    t.op("setp.eq.f32 %p, %m, 0fFF800000");
    t.op("selp.f32 %u, 0f00000000, %m, %p");
    t.op("mul.f32 %u, %u, 0fBFB8AA3B");
    for e in 0..elements {
        t.op(format!("fma.rn.f32 %e{e}, %e{e}, %c, %u"));
        t.op(format!("ex2.approx.ftz.f32 %e{e}, %e{e}"));
    }
    t.note("four partial sums, then one");
    for e in 4..elements {
        let into = e % 4;
        let from = if e < 8 { format!("%e{into}") } else { format!("%ps{into}") };
        t.op(format!("add.f32 %ps{into}, {from}, %e{e}"));
    }
    t.op("add.f32 %s, %ps0, %ps1");
    t.op("add.f32 %t, %ps2, %ps3");
    t.op("add.f32 %s, %s, %t");
    for lane in [16, 8, 4, 2, 1] {
        t.op(format!("shfl.sync.bfly.b32 %t, %s, {lane}, 31, -1"));
        t.op("add.f32 %s, %s, %t");
    }
    t.note("one exchange of (maximum, sum) between the warps; rows take turns in two places");
    t.op("add.u32 %x, %pairs, %mine");
    t.op("@%first_lane st.shared.v2.f32 [%x], {%m, %s}");
    t.op("bar.sync 0");
    if s.stages > 0 && !s.bulk_store {
        refill(t, s);
    }
    for pair in 0..warps / 2 {
        let (a, b) = (2 * pair, 2 * pair + 1);
        t.op(format!("ld.shared.v4.f32 {{%pm{a}, %ps{a}, %pm{b}, %ps{b}}}, [%pairs+{}]", pair * 16));
    }
    t.op("max.f32 %t, %pm0, %pm1");
    for w in 2..warps {
        t.op(format!("max.f32 %t, %t, %pm{w}"));
    }
    t.op("mul.f32 %t, %t, 0fBFB8AA3B");
    t.op("mov.f32 %s, 0f00000000");
    for w in 0..warps {
        t.op(format!("fma.rn.f32 %pm{w}, %pm{w}, %c, %t"));
        t.op(format!("ex2.approx.ftz.f32 %pm{w}, %pm{w}"));
        t.op(format!("fma.rn.f32 %s, %pm{w}, %ps{w}, %s"));
    }
    t.note("this warp's share: its elements were exponentiated against its own maximum, -u");
    t.op("sub.f32 %t, %t, %u");
    t.op("ex2.approx.ftz.f32 %t, %t");
    t.op("rcp.approx.ftz.f32 %scale, %s");
    t.op("mul.f32 %scale, %scale, %t");
    t.op("sub.u32 %x, %pairs, %base");
    t.op(format!("xor.b32 %x, %x, {}", s.pairs() ^ (s.pairs() + warps * 8)));
    t.op("add.u32 %pairs, %base, %x");
    t.op("mul.wide.u32 %out_row, %row, %bytes");
    t.op("add.u64 %out_row, %out_row, %to");
    for v in 0..s.vectors {
        for w in v * 4..v * 4 + 4 {
            t.op(format!("mul.f32 %e{0}, %e{0}, %scale", 2 * w));
            t.op(format!("mul.f32 %e{0}, %e{0}, %scale", 2 * w + 1));
            t.op(format!("cvt.rn.bf16x2.f32 %w{w}, %e{}, %e{}", 2 * w + 1, 2 * w));
        }
        let regs = vector("%w", v * 4..v * 4 + 4);
        if s.bulk_store {
            t.op(format!("@%in{v} st.shared.v4.b32 [%current+{}], {regs}", v * s.threads * 16));
        } else {
            t.op(format!("@%in{v} st.global.L1::no_allocate.v4.b32 [%out_row+{}], {regs}", v * s.threads * 16));
        }
    }
    if s.bulk_store {
        send(t, s);
    }
}

/// Every thread has read the slot: the row after the ring's last goes there.
fn refill(t: &mut Text, s: &Softmax) {
    t.note("every thread has read the slot: the row after the ring's last goes there");
    t.op(format!("mad.lo.u32 %next, %step, {}, %row", s.stages));
    t.op("setp.lt.and.u32 %p, %next, %rows, %leader");
    t.op("@!%p bra copied");
    copy(t, s);
    t.label("copied");
    t.op("add.u32 %stage, %stage, 1");
    t.op(format!("setp.eq.u32 %p, %stage, {}", s.stages));
    t.op("@%p mov.u32 %stage, 0");
    t.op("@%p xor.b32 %phase, %phase, 1");
}

/// The slot leaves by a bulk copy; the slot before it has left and is filled again.
fn send(t: &mut Text, s: &Softmax) {
    t.op("fence.proxy.async.shared::cta");
    t.op("bar.sync 0");
    t.op("@!%leader bra sent");
    t.op("sub.u32 %current, %current, %at");
    t.op("cp.async.bulk.global.shared::cta.bulk_group [%out_row], [%current], %bytes");
    t.op("cp.async.bulk.commit_group");
    t.op("cp.async.bulk.wait_group.read 1");
    t.op(format!("mad.lo.u32 %next, %step, {}, %row", s.stages - 1));
    t.op("setp.ne.u32 %p, %row, %first_row");
    t.op("setp.lt.and.u32 %p, %next, %rows, %p");
    t.op("@!%p bra sent");
    t.op("mov.u32 %x, %stage");
    t.op("setp.eq.u32 %p, %stage, 0");
    t.op(format!("selp.b32 %stage, {}, %stage, %p", s.stages));
    t.op("sub.u32 %stage, %stage, 1");
    copy(t, s);
    t.op("mov.u32 %stage, %x");
    t.label("sent");
    t.op("add.u32 %stage, %stage, 1");
    t.op(format!("setp.eq.u32 %p, %stage, {}", s.stages));
    t.op("@%p mov.u32 %stage, 0");
    t.op("@%p xor.b32 %phase, %phase, 1");
}
