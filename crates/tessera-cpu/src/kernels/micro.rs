//! Register tiles of a matrix product: `rows x nr` elements of C, kept in registers over a run of K.
//!
//! Operands are packed panels: word `p * mr + i` of A belongs to row `i`, word `p * nr + j` of B to column `j`. A float word is
//! an element; a word of 8-bit integers holds four neighbours along K (dot products of unsigned by signed bytes) or two, widened
//! to 16 bits. Every element of C is one chain of fused multiply-adds in the order of K that starts from C's old value, so its bits
//! are the same for all tiles and all processors.

use super::dispatch::Level;

/// A register tile for words of type `T`.
pub(super) struct Micro<T> {
    /// Rows of the tile, and words of A for each step of K.
    pub(super) mr: usize,
    /// Columns of the tile, and words of B for each step of K.
    pub(super) nr: usize,
    /// `(rows, k, a, b, c, stride, accumulate)`: the first `rows` rows of the tile at `c`; old values count if `accumulate`.
    ///
    /// Safety: panels of `k` steps, `rows` rows of `nr` words at `c`, a processor with the instructions.
    pub(super) run: unsafe fn(usize, usize, *const T, *const T, *mut T, usize, bool),
}

/// Elements of 8-bit integers that share a word.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Grouping {
    /// Four bytes, those of A unsigned and those of B signed.
    Bytes,
    /// Two 16-bit integers.
    Pairs,
}

/// Calls `$tile::<ROWS>` for a number of rows known at run time.
macro_rules! by_rows {
    ($tile:ident, $rows:expr, $arguments:tt, [$($n:literal)*]) => {
        match $rows {
            $($n => $tile::<$n> $arguments,)*
            _ => unreachable!("more rows than the tile has"),
        }
    };
}

macro_rules! vector_tile {
    ($name:ident, $features:literal, $t:ty, $mr:literal, $lanes:literal, [$($n:literal)*], $zero:expr, $load:expr, $store:expr, $splat:expr, $fma:expr) => {
        #[cfg(target_arch = "x86_64")]
        mod $name {
            #[allow(clippy::wildcard_imports, reason = "the intrinsics")]
            use std::arch::x86_64::*;

            #[target_feature(enable = $features)]
            unsafe fn tile<const ROWS: usize>(k: usize, a: *const $t, b: *const $t, c: *mut $t, stride: usize, accumulate: bool) {
                const NR: usize = 2 * $lanes;
                // SAFETY: panels and tile are as large as `Micro::run` demands.
                unsafe {
                    let mut acc = [[$zero; 2]; ROWS];
                    if accumulate {
                        for (i, row) in acc.iter_mut().enumerate() {
                            for (v, x) in row.iter_mut().enumerate() {
                                *x = $load(c.add(i * stride + v * $lanes).cast());
                            }
                        }
                    }
                    for p in 0..k {
                        let columns = [$load(b.add(p * NR).cast()), $load(b.add(p * NR + $lanes).cast())];
                        for (i, row) in acc.iter_mut().enumerate() {
                            let x = $splat(*a.add(p * $mr + i));
                            for (x_column, column) in row.iter_mut().zip(columns) {
                                *x_column = $fma(x, column, *x_column);
                            }
                        }
                    }
                    for (i, row) in acc.iter().enumerate() {
                        for (v, x) in row.iter().enumerate() {
                            $store(c.add(i * stride + v * $lanes).cast(), *x);
                        }
                    }
                }
            }

            #[target_feature(enable = $features)]
            unsafe fn run(rows: usize, k: usize, a: *const $t, b: *const $t, c: *mut $t, stride: usize, accumulate: bool) {
                // SAFETY: passed on.
                unsafe { by_rows!(tile, rows, (k, a, b, c, stride, accumulate), [$($n)*]) }
            }

            pub(super) const MICRO: super::Micro<$t> = super::Micro { mr: $mr, nr: 2 * $lanes, run };
        }
    };
}

vector_tile!(f32_avx512, "avx512f,fma", f32, 12, 16, [1 2 3 4 5 6 7 8 9 10 11 12],
    _mm512_setzero_ps(), _mm512_loadu_ps, _mm512_storeu_ps, _mm512_set1_ps, _mm512_fmadd_ps);
vector_tile!(f32_avx2, "avx2,fma", f32, 6, 8, [1 2 3 4 5 6],
    _mm256_setzero_ps(), _mm256_loadu_ps, _mm256_storeu_ps, _mm256_set1_ps, _mm256_fmadd_ps);
vector_tile!(f64_avx512, "avx512f,fma", f64, 12, 8, [1 2 3 4 5 6 7 8 9 10 11 12],
    _mm512_setzero_pd(), _mm512_loadu_pd, _mm512_storeu_pd, _mm512_set1_pd, _mm512_fmadd_pd);
vector_tile!(f64_avx2, "avx2,fma", f64, 6, 4, [1 2 3 4 5 6],
    _mm256_setzero_pd(), _mm256_loadu_pd, _mm256_storeu_pd, _mm256_set1_pd, _mm256_fmadd_pd);
vector_tile!(bytes_avx512, "avx512f,avx512bw,avx512vnni", i32, 12, 16, [1 2 3 4 5 6 7 8 9 10 11 12],
    _mm512_setzero_si512(), _mm512_loadu_si512, _mm512_storeu_si512, _mm512_set1_epi32, |a, b, c| _mm512_dpbusd_epi32(c, a, b));
vector_tile!(pairs_avx512, "avx512f,avx512bw", i32, 12, 16, [1 2 3 4 5 6 7 8 9 10 11 12],
    _mm512_setzero_si512(), _mm512_loadu_si512, _mm512_storeu_si512, _mm512_set1_epi32,
    |a, b, c| _mm512_add_epi32(c, _mm512_madd_epi16(a, b)));
vector_tile!(bytes_avx2, "avx2,avxvnni", i32, 6, 8, [1 2 3 4 5 6],
    _mm256_setzero_si256(), _mm256_loadu_si256, _mm256_storeu_si256, _mm256_set1_epi32, |a, b, c| _mm256_dpbusd_avx_epi32(c, a, b));
vector_tile!(pairs_avx2, "avx2", i32, 6, 8, [1 2 3 4 5 6],
    _mm256_setzero_si256(), _mm256_loadu_si256, _mm256_storeu_si256, _mm256_set1_epi32,
    |a, b, c| _mm256_add_epi32(c, _mm256_madd_epi16(a, b)));

macro_rules! portable_tile {
    ($name:ident, $t:ty, $fma:expr) => {
        mod $name {
            const MR: usize = 4;
            const NR: usize = 8;

            unsafe fn tile<const ROWS: usize>(k: usize, a: *const $t, b: *const $t, c: *mut $t, stride: usize, accumulate: bool) {
                // SAFETY: panels and tile are as large as `Micro::run` demands.
                unsafe {
                    let mut acc = [[<$t>::default(); NR]; ROWS];
                    if accumulate {
                        for (i, row) in acc.iter_mut().enumerate() {
                            *row = c.add(i * stride).cast::<[$t; NR]>().read_unaligned();
                        }
                    }
                    for p in 0..k {
                        let columns = b.add(p * NR).cast::<[$t; NR]>().read_unaligned();
                        for (i, row) in acc.iter_mut().enumerate() {
                            let x = *a.add(p * MR + i);
                            for (sum, column) in row.iter_mut().zip(columns) {
                                *sum = $fma(x, column, *sum);
                            }
                        }
                    }
                    for (i, row) in acc.iter().enumerate() {
                        c.add(i * stride).cast::<[$t; NR]>().write_unaligned(*row);
                    }
                }
            }

            unsafe fn run(rows: usize, k: usize, a: *const $t, b: *const $t, c: *mut $t, stride: usize, accumulate: bool) {
                // SAFETY: passed on.
                unsafe { by_rows!(tile, rows, (k, a, b, c, stride, accumulate), [1 2 3 4]) }
            }

            pub(super) const MICRO: super::Micro<$t> = super::Micro { mr: MR, nr: NR, run };
        }
    };
}

portable_tile!(f32_portable, f32, f32::mul_add);
portable_tile!(f64_portable, f64, f64::mul_add);
portable_tile!(pairs_portable, i32, |a: i32, b: i32, c: i32| {
    let low = i32::from(a as i16) * i32::from(b as i16);
    c.wrapping_add(low).wrapping_add((a >> 16) * (b >> 16))
});

/// The tile of a level for `f32`.
pub(super) fn float32(level: Level) -> &'static Micro<f32> {
    match level {
        #[cfg(target_arch = "x86_64")]
        Level::Avx512 | Level::Avx512Vnni => &f32_avx512::MICRO,
        #[cfg(target_arch = "x86_64")]
        Level::Avx2 | Level::Avx2Vnni => &f32_avx2::MICRO,
        _ => &f32_portable::MICRO,
    }
}

/// The tile of a level for `f64`.
pub(super) fn float64(level: Level) -> &'static Micro<f64> {
    match level {
        #[cfg(target_arch = "x86_64")]
        Level::Avx512 | Level::Avx512Vnni => &f64_avx512::MICRO,
        #[cfg(target_arch = "x86_64")]
        Level::Avx2 | Level::Avx2Vnni => &f64_avx2::MICRO,
        _ => &f64_portable::MICRO,
    }
}

/// The tile of a level for 8-bit integers, and how their words are made.
pub(super) fn int8(level: Level) -> (&'static Micro<i32>, Grouping) {
    match level {
        #[cfg(target_arch = "x86_64")]
        Level::Avx512Vnni => (&bytes_avx512::MICRO, Grouping::Bytes),
        #[cfg(target_arch = "x86_64")]
        Level::Avx512 => (&pairs_avx512::MICRO, Grouping::Pairs),
        #[cfg(target_arch = "x86_64")]
        Level::Avx2Vnni => (&bytes_avx2::MICRO, Grouping::Bytes),
        #[cfg(target_arch = "x86_64")]
        Level::Avx2 => (&pairs_avx2::MICRO, Grouping::Pairs),
        _ => (&pairs_portable::MICRO, Grouping::Pairs),
    }
}
