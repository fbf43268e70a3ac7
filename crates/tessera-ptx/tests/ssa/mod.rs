//! The kernels that the SSA tests build.

pub(crate) mod interpret;

use tessera_ptx::ssa::{Builder, CacheOptions, Class, CopyOptions, Kernel, WgmmaA, WgmmaOptions};
use tessera_ptx::{Limit, Loc, Special, Type, Word};

/// Every kernel.
pub(crate) fn kernels() -> Vec<Kernel> {
    vec![loop_(), nested_ifs(), vectors(), mma_loop(), wgmma_loop(), wgmma_registers(), tensor_ring(), swap(), families()]
}

fn finish(b: Builder) -> Kernel {
    b.finish().unwrap()
}

/// A sum of an array by one thread.
pub(crate) fn loop_() -> Kernel {
    let mut b = Builder::new("loop");
    let (x, n) = (b.pointer_param("x", 4), b.scalar_param("n", Type::S32));
    let (zero, one, four) = (b.u32(0), b.u32(1), b.u32(4));
    b.set_loc(Some(Loc { file: 1, line: 3, column: 5 }));
    let sums = b.for_(Type::S32, (zero, n, one), &[zero], |b, i, carried| {
        let at = b.mad_wide(Type::S32, i, four, x);
        let element = b.ld("global", Type::F32, at);
        vec![b.add(Type::F32, carried[0], element)]
    });
    b.set_loc(Some(Loc { file: 1, line: 4, column: 5 }));
    b.st("global", Type::F32, x, sums[0]);
    b.ret();
    finish(b)
}

/// Two ifs, one inside the other, with values.
pub(crate) fn nested_ifs() -> Kernel {
    let mut b = Builder::new("nested_ifs");
    let x = b.pointer_param("x", 4);
    let thread = b.special(Special::TidX);
    let (eight, three) = (b.u32(8), b.u32(3));
    let low = b.setp(Word::Lt, Type::U32, thread, eight);
    let value = b.if_(
        low,
        |b| {
            let odd = b.and(thread, three);
            let some = b.setp(Word::Ne, Type::U32, odd, eight);
            b.if_(some, |b| vec![b.add(Type::U32, odd, eight)], |_| vec![three])
        },
        |b| vec![b.mul(Type::U32, thread, three)],
    );
    let to = b.mad_wide(Type::U32, thread, eight, x);
    b.guarded(low, |b| b.st("global", Type::U32, (to, 4), value[0]));
    b.ret();
    finish(b)
}

/// Guarded vector loads with defaults, packed halves.
pub(crate) fn vectors() -> Kernel {
    let mut b = Builder::new("vectors");
    let (x, n) = (b.pointer_param("x", 16), b.scalar_param("n", Type::U32));
    let thread = b.special(Special::TidX);
    let inside = b.setp(Word::Lt, Type::U32, thread, n);
    let (sixteen, zero) = (b.u32(16), b.u32(0));
    let at = b.mad_wide(Type::U32, thread, sixteen, x);
    let loaded = b.ld_vector_if(inside, "global", Type::B32, at, &[zero; 4]);
    let halves = b.unpack(loaded[0], Class::B16);
    let wide: Vec<_> = halves.iter().map(|&half| b.cvt(Type::F32, Type::F16, half)).collect();
    let packed = b.cvt_pack(Type::F16x2, wide[0], wide[1]);
    b.guarded(inside, |b| b.st_vector("global", Type::B32, at, &[packed, loaded[1], loaded[2], loaded[3]]));
    b.ret();
    finish(b)
}

/// `mma.sync` with accumulators around a loop.
pub(crate) fn mma_loop() -> Kernel {
    let mut b = Builder::new("mma_loop");
    let (x, n) = (b.pointer_param("x", 16), b.scalar_param("n", Type::S32));
    let tile = b.shared_variable("tile", 4096, 128);
    let lane = b.special(Special::Laneid);
    let (zero, one, sixteen) = (b.u32(0), b.u32(1), b.u32(16));
    let row = b.mad(Type::U32, lane, sixteen, tile);
    let sums = b.for_(Type::S32, (zero, n, one), &[zero; 8], |b, _, sums| {
        let a = b.ldmatrix(4, false, row);
        let c = b.ldmatrix(4, true, (row, 2048));
        let shape = "m16n8k16.row.col.f32.bf16.bf16.f32";
        let mut next = b.mma(shape, &a, &c[..2], &sums[..4]);
        next.extend(b.mma(shape, &a, &c[2..], &sums[4..]));
        b.bar_sync_all();
        next
    });
    b.st_vector("global", Type::F32, x, &sums[..4]);
    b.st_vector("global", Type::F32, (x, 16), &sums[4..]);
    b.ret();
    finish(b)
}

/// `wgmma` from shared memory with accumulators around a loop, the last product of an iteration left running.
pub(crate) fn wgmma_loop() -> Kernel {
    let mut b = Builder::new("wgmma_loop");
    let (x, n) = (b.pointer_param("x", 16), b.scalar_param("n", Type::S32));
    b.limit(Limit::RequiredThreads([128, 1, 1]));
    let tile = b.dynamic_shared("dynamic", 1024);
    let (zero, one, four) = (b.u32(0), b.u32(1), b.u32(4));
    let start = b.shr(Type::U32, tile, four);
    let start = b.cvt(Type::U64, Type::U32, start);
    let flags = b.u64(0x4000_0040_0001_0000);
    let descriptor = b.or(start, flags);
    let undef = b.undef(Class::B32);
    let accumulators = b.for_(Type::S32, (zero, n, one), &[undef; 32], |b, i, sums| {
        let later = b.setp(Word::Ne, Type::S32, i, zero);
        let yes = b.bool(true);
        let mut sums = b.wgmma_fence(sums);
        for k in 0..4u64 {
            let step = b.u64(2 * k);
            let at = b.add(Type::U64, descriptor, step);
            let accumulate = if k == 0 { later } else { yes };
            let options = WgmmaOptions { accumulate: Some(accumulate), ..WgmmaOptions::default() };
            sums = b.wgmma("m64n64k16.f32.bf16.bf16", &sums, WgmmaA::Shared(at), at, options);
        }
        b.wgmma_commit();
        b.wgmma_wait(0, &sums, &[])
    });
    for (index, four) in accumulators.chunks(4).enumerate() {
        b.st_vector("global", Type::F32, (x, 16 * index as i64), four);
    }
    b.ret();
    finish(b)
}

/// `wgmma` with A in registers, converted from the accumulators of another product.
pub(crate) fn wgmma_registers() -> Kernel {
    let mut b = Builder::new("wgmma_registers");
    let (x, n) = (b.pointer_param("x", 16), b.scalar_param("n", Type::S32));
    b.limit(Limit::RequiredThreads([128, 1, 1]));
    let descriptor = b.u64(0x4000_0040_0001_0000);
    let (zero, one, undef) = (b.u32(0), b.u32(1), b.undef(Class::B32));
    let no = b.bool(false);
    let sums = b.for_(Type::S32, (zero, n, one), &[zero; 4], |b, _, sums| {
        let fresh = b.wgmma_fence(&[undef; 8]);
        let options = WgmmaOptions { accumulate: Some(no), ..WgmmaOptions::default() };
        let scores = b.wgmma("m64n16k16.f32.bf16.bf16", &fresh, WgmmaA::Shared(descriptor), descriptor, options);
        b.wgmma_commit();
        let scores = b.wgmma_wait(0, &scores, &[]);
        let weights: Vec<_> = scores.iter().map(|&score| b.approx("ex2", Type::F32, score)).collect();
        let a: Vec<_> = weights.chunks(2).map(|pair| b.cvt_pack(Type::Bf16x2, pair[1], pair[0])).collect();
        let sums = b.wgmma_fence(sums);
        let options = WgmmaOptions { transpose_b: true, ..WgmmaOptions::default() };
        let sums = b.wgmma("m64n8k16.f32.bf16.bf16", &sums, WgmmaA::Registers(&a), descriptor, options);
        b.wgmma_commit();
        b.wgmma_wait(0, &sums, &a)
    });
    b.st_vector("global", Type::F32, x, &sums);
    b.ret();
    finish(b)
}

/// One warp fills a ring of two stages by tensor copies, the others take it.
pub(crate) fn tensor_ring() -> Kernel {
    let mut b = Builder::new("tensor_ring");
    let (map, y, n) = (b.tensor_map_param("map"), b.pointer_param("y", 4), b.scalar_param("n", Type::S32));
    b.limit(Limit::RequiredThreads([64, 1, 1]));
    let ring = b.dynamic_shared("dynamic", 1024);
    let barriers = b.shared_variable("barriers", 32, 8);
    let thread = b.special(Special::TidX);
    let (zero, one, two, five) = (b.u32(0), b.u32(1), b.u32(2), b.u32(5));
    let first = b.setp(Word::Eq, Type::U32, thread, zero);
    b.when(first, |b| {
        for stage in 0..2 {
            b.mbarrier_init((barriers, 8 * stage), 1);
            b.mbarrier_init((barriers, 8 * stage + 16), 32);
        }
        b.fence("mbarrier_init.release.cluster");
        b.prefetch_tensor_map(map);
    });
    b.bar_sync_all();
    let warp = b.shr(Type::U32, thread, five);
    let produces = b.setp(Word::Eq, Type::U32, warp, zero);
    b.if_(
        produces,
        |b| {
            b.when(first, |b| {
                b.for_(Type::S32, (zero, n, one), &[zero, one], |b, i, state| {
                    let (stage, phase) = (state[0], state[1]);
                    let (eight, size) = (b.u32(8), b.u32(4096));
                    let at = b.mad(Type::U32, stage, eight, barriers);
                    b.mbarrier_wait((at, 16), phase);
                    b.mbarrier_arrive_expect(at, size);
                    let to = b.mad(Type::U32, stage, size, ring);
                    b.tensor_load(to, map, &[zero, i], at, CopyOptions::default());
                    let next = b.add(Type::U32, stage, one);
                    let wraps = b.setp(Word::Eq, Type::U32, next, two);
                    let turned = b.xor(phase, one);
                    vec![b.select(wraps, zero, next), b.select(wraps, turned, phase)]
                });
            });
            Vec::new()
        },
        |b| {
            let sums = b.for_(Type::S32, (zero, n, one), &[zero, zero, zero], |b, _, state| {
                let (stage, phase) = (state[0], state[1]);
                let (eight, size, four) = (b.u32(8), b.u32(4096), b.u32(4));
                let at = b.mad(Type::U32, stage, eight, barriers);
                b.mbarrier_wait(at, phase);
                let from = b.mad(Type::U32, stage, size, ring);
                let from = b.mad(Type::U32, thread, four, from);
                let element = b.ld("shared", Type::F32, from);
                b.mbarrier_arrive((at, 16));
                let sum = b.add(Type::F32, state[2], element);
                let next = b.add(Type::U32, stage, one);
                let wraps = b.setp(Word::Eq, Type::U32, next, two);
                let turned = b.xor(phase, one);
                vec![b.select(wraps, zero, next), b.select(wraps, turned, phase), sum]
            });
            b.st("global", Type::F32, y, sums[2]);
            Vec::new()
        },
    );
    b.ret();
    finish(b)
}

/// Two values that change places in every iteration, and one that is needed behind the loop.
pub(crate) fn swap() -> Kernel {
    let mut b = Builder::new("swap");
    let (x, n) = (b.pointer_param("x", 8), b.scalar_param("n", Type::S32));
    let (zero, one) = (b.u32(0), b.u32(1));
    let first = b.ld("global", Type::U32, x);
    let second = b.ld("global", Type::U32, (x, 4));
    let last = b.for_(Type::S32, (zero, n, one), &[first, second], |_, _, pair| vec![pair[1], pair[0]]);
    let sum = b.add(Type::U32, last[0], first);
    b.st_vector("global", Type::U32, x, &[sum, last[1]]);
    b.ret();
    finish(b)
}

/// One of many methods each, for the assembler's opinion of their text.
pub(crate) fn families() -> Kernel {
    let mut b = Builder::new("families");
    let x = b.pointer_param("x", 16);
    let bar = b.shared_variable("bar", 8, 8);
    let tile = b.shared_variable("tile", 1024, 16);
    let (c, k) = (b.u32(5), b.s32(-7));
    let v = b.ld("global.nc", Type::U32, x);
    let w = b.ld("global.L1::no_allocate", Type::U8, (x, 4));
    let h = b.ld("global", Type::F16, (x, 6));
    let d = b.ld("global", Type::F64, (x, 8));
    let mut out = vec![v, w];
    for ty in [Type::U32, Type::S32] {
        let lo = b.mul(ty, v, w);
        let hi = b.mul_hi(ty, v, c);
        let q = b.div(ty, lo, w);
        let r = b.rem(ty, hi, w);
        let (min, max) = (b.min(ty, q, r), b.max(ty, q, k));
        let wide = b.mul_wide(ty, min, max);
        out.push(b.cvt(Type::U32, Type::U64, wide));
        out.push(b.shr(ty, lo, c));
    }
    let float = b.cvt(Type::F32, Type::S32, v);
    for name in ["ex2", "lg2", "rcp", "rsqrt", "sqrt", "sin", "cos", "tanh"] {
        out.push(b.approx(name, Type::F32, float));
    }
    let two = b.f32(2.0);
    out.push(b.fma(Type::F32, float, two, two));
    out.push(b.div(Type::F32, float, two));
    out.push(b.max_nan(Type::F32, float, two));
    let half = b.add(Type::F16, h, h);
    out.push(b.cvt(Type::F32, Type::F16, half));
    let (third, wide) = (b.f64(1.0 / 3.0), b.cvt(Type::F64, Type::F32, float));
    let wide = b.fma(Type::F64, wide, third, d);
    out.push(b.cvt(Type::F32, Type::F64, wide));
    out.push(b.lop3(v, w, c, 0x96));
    let selector = b.u32(0x5410);
    out.push(b.prmt(v, w, selector));
    out.push(b.shf_left(v, w, c));
    out.push(b.popc(v));
    out.push(b.clz(w));
    out.push(b.shfl_xor(v, 16));
    out.push(b.redux(Word::Add, Type::S32, v));
    let p = b.setp(Word::Gt, Type::F32, float, two);
    let any = b.vote(Word::Any, p);
    out.push(b.ballot(any));
    out.push(b.select(any, v, w));
    out.push(b.value("bfe.u32", &[v.into(), c.into(), c.into()]));
    let bypasses = CacheOptions { bypass_l1: true, ..CacheOptions::default() };
    b.cp_async(tile, x, 16, Some(v), bypasses);
    b.cp_async((tile, 16), (x, 16), 4, None, bypasses);
    let policy = Some(b.cache_policy("evict_first"));
    b.cp_async((tile, 32), (x, 32), 16, None, CacheOptions { bypass_l1: true, lines: true, policy });
    b.cp_async_commit();
    b.cp_async_wait(0);
    b.mbarrier_init(bar, 32);
    b.mbarrier_arrive(bar);
    b.mbarrier_wait_by_test(bar, w);
    let id = b.u32(1);
    b.bar_sync(id, 64);
    b.bar_arrive(id, 64);
    b.warp_sync();
    b.fence("acq_rel.gpu");
    out.push(b.atom("global.add", Type::U32, x, v));
    out.push(b.atom_cas("global", Type::B32, x, v, c));
    b.red("global.add", Type::F32, (x, 16), float);
    out.push(b.special(Special::Clock));
    let generic = b.cvta("global", x);
    out.push(b.cvt(Type::U32, Type::U64, generic));
    for (index, value) in out.into_iter().enumerate() {
        b.st("global", Type::B32, (x, 32 + 4 * index as i64), value);
    }
    b.st("global", Type::B16, (x, 28), h);
    b.st("global", Type::U8, (x, 30), v);
    b.ret();
    finish(b)
}
