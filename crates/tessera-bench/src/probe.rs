//! The inner loops of the measured ceilings: copying, reading and multiply-adding as fast as the machine can.
//!
//! Each probe is picked at run time from what the CPU offers; without a vector unit that is known here, plain loops are
//! used and the ceiling is what the compiler makes of them. This is the only file of the crate with `unsafe`.
#![allow(unsafe_code, reason = "vector intrinsics and non-temporal stores have no safe form")]

use crate::case::FlopClass;

/// How bytes are copied.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum CopyLoop {
    /// The platform's `memcpy`.
    Memcpy,
    /// Vector stores that bypass the caches.
    NonTemporal,
}

/// Copies `src` over `dst`; both have the same length.
pub(crate) fn copy(method: CopyLoop, src: &[f32], dst: &mut [f32]) {
    match method {
        CopyLoop::Memcpy => dst.copy_from_slice(src),
        CopyLoop::NonTemporal => non_temporal_copy(src, dst),
    }
}

/// Reads everything once; the sum keeps the loads from being removed.
pub(crate) fn read(src: &[f32]) -> f32 {
    #[cfg(target_arch = "x86_64")]
    {
        if is_x86_feature_detected!("avx512f") {
            // SAFETY: AVX-512F was just detected.
            return unsafe { x86::read_avx512(src) };
        }
        if is_x86_feature_detected!("avx2") {
            // SAFETY: AVX2 was just detected.
            return unsafe { x86::read_avx2(src) };
        }
    }
    let mut sums = [0f32; 16];
    let chunks = src.chunks_exact(16);
    for chunk in chunks {
        sums.iter_mut().zip(chunk).for_each(|(s, x)| *s += x);
    }
    sums.iter().sum()
}

fn non_temporal_copy(src: &[f32], dst: &mut [f32]) {
    #[cfg(target_arch = "x86_64")]
    {
        if is_x86_feature_detected!("avx512f") {
            // SAFETY: AVX-512F was just detected.
            return unsafe { x86::copy_avx512(src, dst) };
        }
        if is_x86_feature_detected!("avx2") {
            // SAFETY: AVX2 was just detected.
            return unsafe { x86::copy_avx(src, dst) };
        }
    }
    dst.copy_from_slice(src);
}

/// Operations done by one call of [`multiply_add`] with the same class, and how: none where this CPU has no such unit.
pub(crate) fn operations(class: FlopClass, reps: usize) -> Option<u64> {
    let lanes: u64 = match class {
        FlopClass::F64 => f32_lanes() / 2,
        FlopClass::F32 => f32_lanes(),
        FlopClass::Bf16 => bf16_lanes()?,
        FlopClass::I8 => i8_lanes()?,
        // Formats that only the matrix units of devices multiply.
        FlopClass::Tf32 | FlopClass::F16 | FlopClass::F8 => return None,
    };
    Some(reps as u64 * CHAINS as u64 * lanes * 2)
}

/// Independent accumulators: enough to hide latency 4 on two ports, few enough for 16 registers with two operands.
const CHAINS: usize = 12;

fn f32_lanes() -> u64 {
    #[cfg(target_arch = "x86_64")]
    {
        if is_x86_feature_detected!("avx512f") {
            return 16;
        }
        if is_x86_feature_detected!("fma") {
            return 8;
        }
    }
    PORTABLE_LANES as u64
}

/// True when the vector units are known here, so that a multiply-add rate is the hardware's and not the compiler's.
pub(crate) fn knows_this_cpu() -> bool {
    f32_lanes() > PORTABLE_LANES as u64
}

const PORTABLE_LANES: usize = 4;

fn bf16_lanes() -> Option<u64> {
    #[cfg(target_arch = "x86_64")]
    if is_x86_feature_detected!("avx512bf16") {
        return Some(32);
    }
    None
}

fn i8_lanes() -> Option<u64> {
    #[cfg(target_arch = "x86_64")]
    {
        if is_x86_feature_detected!("avx512vnni") {
            return Some(64);
        }
        if is_x86_feature_detected!("avxvnni") {
            return Some(32);
        }
    }
    None
}

/// `reps` steps of [`CHAINS`] independent vector multiply-adds. The result only keeps them alive.
pub(crate) fn multiply_add(class: FlopClass, reps: usize) -> f64 {
    #[cfg(target_arch = "x86_64")]
    {
        let wide = is_x86_feature_detected!("avx512f");
        let narrow = is_x86_feature_detected!("fma");
        // SAFETY: each arm is reached only after its instruction set was detected.
        unsafe {
            match class {
                FlopClass::F64 if wide => return x86::fma_f64_avx512(reps),
                FlopClass::F64 if narrow => return x86::fma_f64_avx2(reps),
                FlopClass::F32 if wide => return x86::fma_f32_avx512(reps),
                FlopClass::F32 if narrow => return x86::fma_f32_avx2(reps),
                FlopClass::Bf16 if is_x86_feature_detected!("avx512bf16") => return x86::dot_bf16_avx512(reps),
                FlopClass::I8 if is_x86_feature_detected!("avx512vnni") => return x86::dot_i8_avx512(reps),
                FlopClass::I8 if is_x86_feature_detected!("avxvnni") => return x86::dot_i8_avx(reps),
                _ => {}
            }
        }
    }
    match class {
        FlopClass::F64 => portable::<f64, { PORTABLE_LANES / 2 }>(reps, 0.5, 0.25),
        _ => portable::<f32, PORTABLE_LANES>(reps, 0.5, 0.25),
    }
}

/// The same loop in plain Rust, for the compiler to vectorise.
fn portable<T, const LANES: usize>(reps: usize, scale: T, shift: T) -> f64
where
    T: Copy + std::ops::Mul<Output = T> + std::ops::Add<Output = T> + Into<f64>,
{
    let scale = std::hint::black_box(scale);
    let mut acc = [[shift; LANES]; CHAINS];
    for _ in 0..reps {
        for chain in &mut acc {
            for x in chain {
                *x = *x * scale + shift;
            }
        }
    }
    acc.iter().flatten().map(|&x| x.into()).sum()
}

#[cfg(target_arch = "x86_64")]
mod x86 {
    use std::arch::x86_64::*;
    use std::hint::black_box;

    /// A loop of twelve independent accumulators: `acc = step(a, b, acc)`, summed at the end by `finish`. They are named one by
    /// one so that they stay in registers in unoptimised builds too.
    macro_rules! chains {
        ($name:ident, $features:literal, $zero:expr, $operand:expr, $step:expr, $finish:expr) => {
            chains!(@ $name, $features, $zero, $operand, $step, $finish, c0 c1 c2 c3 c4 c5 c6 c7 c8 c9 c10 c11);
        };
        (@ $name:ident, $features:literal, $zero:expr, $operand:expr, $step:expr, $finish:expr, $($c:ident)*) => {
            #[target_feature(enable = $features)]
            pub(super) fn $name(reps: usize) -> f64 {
                let a = black_box($operand);
                let b = black_box($operand);
                $(let mut $c = $zero;)*
                for _ in 0..reps {
                    $($c = $step(a, b, $c);)*
                }
                0.0 $(+ $finish($c))*
            }
        };
    }

    chains!(fma_f32_avx512, "avx512f", _mm512_setzero_ps(), _mm512_set1_ps(1e-3), |a, b, c| _mm512_fmadd_ps(a, b, c), |x| {
        f64::from(_mm512_reduce_add_ps(x))
    });
    chains!(fma_f64_avx512, "avx512f", _mm512_setzero_pd(), _mm512_set1_pd(1e-3), |a, b, c| _mm512_fmadd_pd(a, b, c), |x| {
        _mm512_reduce_add_pd(x)
    });
    chains!(fma_f32_avx2, "avx2,fma", _mm256_setzero_ps(), _mm256_set1_ps(1e-3), |a, b, c| _mm256_fmadd_ps(a, b, c), |x| {
        f64::from(_mm256_cvtss_f32(x))
    });
    chains!(fma_f64_avx2, "avx2,fma", _mm256_setzero_pd(), _mm256_set1_pd(1e-3), |a, b, c| _mm256_fmadd_pd(a, b, c), |x| {
        _mm256_cvtsd_f64(x)
    });
    chains!(
        dot_bf16_avx512,
        "avx512f,avx512bf16",
        _mm512_setzero_ps(),
        _mm512_cvtne2ps_pbh(_mm512_set1_ps(1e-3), _mm512_set1_ps(1e-3)),
        |a, b, c| _mm512_dpbf16_ps(c, a, b),
        |x| f64::from(_mm512_reduce_add_ps(x))
    );
    chains!(
        dot_i8_avx512,
        "avx512f,avx512vnni",
        _mm512_setzero_si512(),
        _mm512_set1_epi8(1),
        |a, b, c| _mm512_dpbusd_epi32(c, a, b),
        |x| f64::from(_mm512_reduce_add_epi32(x))
    );
    chains!(
        dot_i8_avx,
        "avx2,avxvnni",
        _mm256_setzero_si256(),
        _mm256_set1_epi8(1),
        |a, b, c| _mm256_dpbusd_avx_epi32(c, a, b),
        |x| f64::from(_mm256_extract_epi32::<0>(x))
    );

    macro_rules! streams {
        ($copy:ident, $read:ident, $features:literal, $lanes:literal, $load:ident, $stream:ident, $add:ident, $zero:ident, $first:ident) => {
            /// Copies with stores that bypass the caches; ragged ends go the ordinary way.
            #[target_feature(enable = $features)]
            pub(super) fn $copy(src: &[f32], dst: &mut [f32]) {
                let n = src.len().min(dst.len());
                let head = dst.as_ptr().align_offset($lanes * 4).min(n);
                dst[..head].copy_from_slice(&src[..head]);
                let vectors = (n - head) / $lanes;
                for i in 0..vectors {
                    let at = head + i * $lanes;
                    // SAFETY: `at + lanes <= n`, within both slices, and `dst + at` is aligned by the choice of `head`.
                    unsafe { $stream(dst.as_mut_ptr().add(at), $load(src.as_ptr().add(at))) };
                }
                let done = head + vectors * $lanes;
                dst[done..n].copy_from_slice(&src[done..n]);
                _mm_sfence();
            }

            /// Adds everything up in four chains.
            #[target_feature(enable = $features)]
            pub(super) fn $read(src: &[f32]) -> f32 {
                let (mut a, mut b, mut c, mut d) = ($zero(), $zero(), $zero(), $zero());
                for i in 0..src.len() / (4 * $lanes) {
                    // SAFETY: the four vectors from here end at or before the slice's end.
                    unsafe {
                        let at = src.as_ptr().add(i * 4 * $lanes);
                        a = $add(a, $load(at));
                        b = $add(b, $load(at.add($lanes)));
                        c = $add(c, $load(at.add(2 * $lanes)));
                        d = $add(d, $load(at.add(3 * $lanes)));
                    }
                }
                $first($add($add(a, b), $add(c, d)))
            }
        };
    }

    streams!(
        copy_avx512,
        read_avx512,
        "avx512f",
        16,
        _mm512_loadu_ps,
        _mm512_stream_ps,
        _mm512_add_ps,
        _mm512_setzero_ps,
        _mm512_reduce_add_ps
    );
    streams!(
        copy_avx,
        read_avx2,
        "avx2",
        8,
        _mm256_loadu_ps,
        _mm256_stream_ps,
        _mm256_add_ps,
        _mm256_setzero_ps,
        _mm256_cvtss_f32
    );
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn copies_are_copies_at_every_length_and_alignment() {
        let src: Vec<f32> = (0..300).map(|i| i as f32 + 1.0).collect();
        for method in [CopyLoop::Memcpy, CopyLoop::NonTemporal] {
            for offset in 0..17 {
                for len in [0, 1, 15, 16, 17, 63, 200] {
                    let mut dst = vec![0f32; 300];
                    copy(method, &src[3..3 + len], &mut dst[offset..offset + len]);
                    assert_eq!(&dst[offset..offset + len], &src[3..3 + len]);
                    assert!(dst[..offset].iter().chain(&dst[offset + len..]).all(|&x| x == 0.0));
                }
            }
        }
    }

    #[test]
    fn every_class_that_counts_operations_computes_something() {
        for class in FlopClass::ALL {
            if operations(class, 10).is_some_and(|n| n > 0) {
                assert!(multiply_add(class, 10) > 0.0, "{class:?}");
            }
        }
        assert!(operations(FlopClass::F32, 1) > operations(FlopClass::F64, 1));
    }
}
