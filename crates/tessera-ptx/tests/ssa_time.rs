//! How long a kernel of a few thousand instructions takes from the builder to text.

use std::time::{Duration, Instant};

use tessera_ptx::ssa::{Builder, CacheOptions, Kernel, Level, module, optimize};
use tessera_ptx::{Special, Target, Type, print};

/// A matrix product of `mma.sync` from shared memory, its loop unrolled so often.
fn product(unrolled: i64) -> Kernel {
    let mut b = Builder::new("product");
    let (x, n) = (b.pointer_param("x", 16), b.scalar_param("n", Type::S32));
    let tile = b.dynamic_shared("dynamic", 1024);
    let thread = b.special(Special::TidX);
    let (zero, one, sixteen, size) = (b.u32(0), b.u32(1), b.u32(16), b.u32(32768));
    let row = b.mad(Type::U32, thread, sixteen, tile);
    let sums = b.for_(Type::S32, (zero, n, one), &[zero; 64], |b, i, sums| {
        let mut sums = sums.to_vec();
        for k in 0..unrolled {
            let stage = b.s32(k as i32);
            let stage = b.add(Type::S32, i, stage);
            let stage = b.rem(Type::S32, stage, sixteen);
            let at = b.mad(Type::U32, stage, size, row);
            let wide = b.cvt(Type::S64, Type::S32, i);
            let stride = b.s64(4096 + k);
            let offset = b.mul(Type::S64, wide, stride);
            let from = b.add(Type::S64, x, offset);
            b.cp_async((at, 16384), (from, 64 * k), 16, None, CacheOptions { bypass_l1: true, ..CacheOptions::default() });
            b.cp_async_commit();
            let a: Vec<_> = (0..2).map(|m| b.ldmatrix(4, false, (at, 512 * m + 16 * k))).collect();
            let right: Vec<_> = (0..4).map(|n| b.ldmatrix(4, true, (at, 8192 + 512 * n + 16 * k))).collect();
            for (m, a) in a.iter().enumerate() {
                for n in 0..8 {
                    let at = 4 * (8 * m + n);
                    let b2 = &right[n / 2][2 * (n % 2)..][..2];
                    let next = b.mma("m16n8k16.row.col.f32.bf16.bf16.f32", a, b2, &sums[at..at + 4]);
                    sums[at..at + 4].copy_from_slice(&next);
                }
            }
            b.cp_async_wait(2);
            b.bar_sync_all();
        }
        sums
    });
    let to = b.mad_wide(Type::U32, thread, sixteen, x);
    for (index, &sum) in sums.iter().enumerate() {
        let scaled = b.mul(Type::F32, sum, sum);
        b.st("global", Type::F32, (to, 4 * index as i64), scaled);
    }
    b.ret();
    b.finish().unwrap()
}

#[test]
fn three_thousand_instructions_are_a_matter_of_milliseconds() {
    let mut best = Duration::MAX;
    let mut size = 0;
    for _ in 0..5 {
        let start = Instant::now();
        let mut kernel = product(90);
        size = kernel.size();
        optimize(&mut kernel, Level::O2);
        let (module, reports) = module(&[kernel], Target::SM_90A, &[]);
        let text = print(&module);
        best = best.min(start.elapsed());
        assert_eq!(reports[0].moves_in_loops, 0, "{text}");
    }
    println!("{size} instructions: {best:?}");
    assert!(size > 3000, "{size}");
    // Without optimisation of this crate and on a shared machine; an optimised build takes a tenth.
    assert!(best < Duration::from_millis(500), "{best:?}");
}
