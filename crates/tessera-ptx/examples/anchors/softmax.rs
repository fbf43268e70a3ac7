//! Row softmax of bf16: one block a row, the row in registers, one exponential an element, one exchange.
//!
//! Each warp takes the maximum of its elements, exponentiates against it and sums; the warps' pairs (maximum, sum) meet once
//! in shared memory, and every thread scales its elements by its warp's share. That is the online-softmax rule, applied
//! between warps instead of between tiles. Few registers a thread matter more than anything else: the chip is kept busy by
//! the loads of the other blocks that fit beside.

use crate::text::{Text, vector};

/// A variant of the kernel.
pub(crate) struct Softmax {
    pub(crate) name: &'static str,
    /// Threads of a block; a power of two.
    pub(crate) threads: u32,
    /// 16-byte vectors a thread holds: the longest row is `threads * vectors * 8`.
    pub(crate) vectors: u32,
    /// Blocks that must fit a multiprocessor together: it bounds the registers.
    pub(crate) resident: u32,
    /// Whether loads and stores ask the first-level cache not to keep what they touch.
    pub(crate) hints: bool,
}

pub(crate) fn softmax(s: &Softmax) -> String {
    let mut t = Text::default();
    let longest = s.threads * s.vectors * 8;
    t.raw("// Row softmax, bf16, one block a row: y[row] = exp(x[row] - max) / sum.");
    t.raw(&format!(
        "// A row has a multiple of 8 elements, at most {longest}. Written by the generator `anchors` of tessera-ptx."
    ));
    t.raw(".version 8.0\n.target sm_90a\n.address_size 64");
    t.raw(&format!(".visible .entry {}(.param .u64 x, .param .u64 y, .param .u32 columns)", s.name));
    t.raw(&format!(".maxntid {}, 1, 1\n.minnctapersm {}\n{{", s.threads, s.resident));
    t.op(".reg .pred %in<16>, %p");
    t.op(".reg .b32 %w<64>, %x, %thread, %columns, %row, %pairs");
    t.op(".reg .f32 %e<128>, %m, %s, %t, %u, %c, %c0, %scale, %pm<4>, %ps<4>");
    t.op(".reg .b64 %from, %to, %wide, %offset");
    t.op(format!(".shared .align 16 .b8 pairs[{}]", s.threads / 32 * 8));
    t.op("ld.param.u64 %from, [x]");
    t.op("ld.param.u64 %to, [y]");
    t.op("ld.param.u32 %columns, [columns]");
    t.op("mov.u32 %thread, %tid.x");
    t.op("mov.u32 %row, %ctaid.x");
    t.op("mul.wide.u32 %offset, %row, %columns");
    t.op("shl.b64 %offset, %offset, 1");
    t.op("mul.wide.u32 %wide, %thread, 16");
    t.op("add.u64 %offset, %offset, %wide");
    t.op("add.u64 %from, %from, %offset");
    t.op("add.u64 %to, %to, %offset");
    t.op("shl.b32 %x, %thread, 3");
    let load = if s.hints { "ld.global.nc.L1::no_allocate.L2::256B.v4.b32" } else { "ld.global.nc.v4.b32" };
    t.note("all loads are in flight before the first use; elements behind the row's end are -inf");
    for v in 0..s.vectors {
        let regs = vector("%w", v * 4..v * 4 + 4);
        for w in v * 4..v * 4 + 4 {
            t.op(format!("mov.b32 %w{w}, 0xFF80FF80"));
        }
        t.op(format!("setp.lt.u32 %in{v}, %x, %columns"));
        t.op(format!("add.u32 %x, %x, {}", s.threads * 8));
        t.op(format!("@%in{v} {load} {regs}, [%from+{}]", v * s.threads * 16));
    }
    for w in 0..s.vectors * 4 {
        t.op(format!("shl.b32 %x, %w{w}, 16"));
        t.op(format!("mov.b32 %e{}, %x", 2 * w));
        t.op(format!("and.b32 %x, %w{w}, 0xFFFF0000"));
        t.op(format!("mov.b32 %e{}, %x", 2 * w + 1));
    }
    normalise(&mut t, s);
    t.op("ret");
    t.raw("}");
    t.finish()
}

fn normalise(t: &mut Text, s: &Softmax) {
    let elements = s.vectors * 8;
    let warps = s.threads / 32;
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
    t.op("mov.f32 %c, 0f3FB8AA3B");
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
    t.note("one exchange of (maximum, sum) between the warps");
    t.op("mov.u32 %pairs, pairs");
    t.op("and.b32 %x, %thread, 31");
    t.op("setp.eq.u32 %p, %x, 0");
    t.op("shr.u32 %x, %thread, 5");
    t.op("shl.b32 %x, %x, 3");
    t.op("add.u32 %x, %x, %pairs");
    t.op("@%p st.shared.v2.f32 [%x], {%m, %s}");
    t.op("bar.sync 0");
    t.note("each lane takes one warp's pair; a butterfly over as many lanes as there are warps meets them");
    t.op(format!("and.b32 %x, %thread, {}", warps - 1));
    t.op("shl.b32 %x, %x, 3");
    t.op("add.u32 %x, %x, %pairs");
    t.op("ld.shared.v2.f32 {%m, %s}, [%x]");
    let steps: Vec<u32> = (0..warps.ilog2()).map(|step| 1 << step).collect();
    t.op("mov.f32 %c0, %m");
    for lane in &steps {
        t.op(format!("shfl.sync.bfly.b32 %t, %c0, {lane}, 31, -1"));
        t.op("max.f32 %c0, %c0, %t");
    }
    t.op("mul.f32 %c0, %c0, 0fBFB8AA3B");
    t.op("fma.rn.f32 %m, %m, %c, %c0");
    t.op("ex2.approx.ftz.f32 %m, %m");
    t.op("mul.f32 %s, %s, %m");
    for lane in &steps {
        t.op(format!("shfl.sync.bfly.b32 %t, %s, {lane}, 31, -1"));
        t.op("add.f32 %s, %s, %t");
    }
    t.note("this warp's share: its elements were exponentiated against its own maximum, -u");
    t.op("sub.f32 %t, %c0, %u");
    t.op("ex2.approx.ftz.f32 %t, %t");
    t.op("rcp.approx.ftz.f32 %scale, %s");
    t.op("mul.f32 %scale, %scale, %t");
    let store = if s.hints { "st.global.L1::no_allocate.v4.b32" } else { "st.global.v4.b32" };
    for v in 0..s.vectors {
        for w in v * 4..v * 4 + 4 {
            t.op(format!("mul.f32 %e{0}, %e{0}, %scale", 2 * w));
            t.op(format!("mul.f32 %e{0}, %e{0}, %scale", 2 * w + 1));
            t.op(format!("cvt.rn.bf16x2.f32 %w{w}, %e{}, %e{}", 2 * w + 1, 2 * w));
        }
        let regs = vector("%w", v * 4..v * 4 + 4);
        t.op(format!("@%in{v} {store} [%to+{}], {regs}", v * s.threads * 16));
    }
}
