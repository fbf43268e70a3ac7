//! Packing: operands of a matrix product as panels, widened on the way.
//!
//! A panel holds `width` rows of A (or columns of B) step by step along K, as [`micro`](super::micro) reads them. Vectors that the
//! panel lacks at a ragged edge are zeros; so are the bytes after the last step in a word of integers.

use tessera_types::{DType, element};

use super::dispatch::simd;
use super::micro::Grouping;

/// Vectors along K side by side: rows of A or columns of B. Distances are in elements.
#[derive(Clone, Copy)]
pub(super) struct Vectors<S> {
    pub(super) base: *const S,
    /// From a vector to the next.
    pub(super) across: isize,
    /// From an element to the next along K.
    pub(super) along: isize,
}

impl<S: Copy> Vectors<S> {
    /// The element `p` of vector `i`.
    ///
    /// # Safety
    /// It must lie in the operand.
    #[inline(always)]
    unsafe fn at(&self, i: usize, p: usize) -> *const S {
        // SAFETY: the caller's promise.
        unsafe { self.base.offset(i as isize * self.across + p as isize * self.along) }
    }

    /// The same from another first element on.
    ///
    /// # Safety
    /// The element must lie in the operand.
    pub(super) unsafe fn from(&self, i: usize, p: usize) -> Vectors<S> {
        // SAFETY: the caller's promise.
        Vectors { base: unsafe { self.at(i, p) }, ..*self }
    }
}

/// Steps of K that are widened at a time where K is contiguous.
const RUN: usize = 16;

/// Writes element `q` of the runs side by side at `q * width`.
///
/// # Safety
/// The panel has room for them.
#[inline(always)]
unsafe fn weave<T: Copy>(runs: &[[T; RUN]; 4], panel: *mut T, width: usize) {
    #[cfg(target_arch = "x86_64")]
    if size_of::<T>() == 4 {
        use std::arch::x86_64::{_mm_loadu_ps, _mm_movehl_ps, _mm_movelh_ps, _mm_storeu_ps, _mm_unpackhi_ps, _mm_unpacklo_ps};
        for q in (0..RUN).step_by(4) {
            // SAFETY: words of 32 bits, whatever they are, within the runs and the panel.
            unsafe {
                let (a, b) = (_mm_loadu_ps(runs[0].as_ptr().add(q).cast()), _mm_loadu_ps(runs[1].as_ptr().add(q).cast()));
                let (c, d) = (_mm_loadu_ps(runs[2].as_ptr().add(q).cast()), _mm_loadu_ps(runs[3].as_ptr().add(q).cast()));
                let (low_ab, high_ab, low_cd, high_cd) =
                    (_mm_unpacklo_ps(a, b), _mm_unpackhi_ps(a, b), _mm_unpacklo_ps(c, d), _mm_unpackhi_ps(c, d));
                let woven = [
                    _mm_movelh_ps(low_ab, low_cd),
                    _mm_movehl_ps(low_cd, low_ab),
                    _mm_movelh_ps(high_ab, high_cd),
                    _mm_movehl_ps(high_cd, high_ab),
                ];
                for (r, words) in woven.into_iter().enumerate() {
                    _mm_storeu_ps(panel.add((q + r) * width).cast(), words);
                }
            }
        }
        return;
    }
    for q in 0..RUN {
        for (r, run) in runs.iter().enumerate() {
            // SAFETY: the caller's promise.
            unsafe { *panel.add(q * width + r) = run[q] };
        }
    }
}

simd! {
    /// Packs `count` vectors of `steps` elements into a panel, one word an element.
    ///
    /// Safety: the elements lie in the operand; the panel has `steps * width` words and `width >= count`.
    fn pack[S: Copy, T: Copy + Default, F: Widen<S, T>](widen: F, source: Vectors<S>, panel: &mut [T], width: usize, count: usize, steps: usize) {
        assert!(panel.len() >= steps * width && width >= count, "a panel of the right size");
        // SAFETY: `count` vectors of `steps` elements lie in the operand, as the callers of this module promise.
        unsafe {
            if source.across == 1 {
                for (p, row) in panel.chunks_exact_mut(width).take(steps).enumerate() {
                    let from = std::slice::from_raw_parts(source.at(0, p), count);
                    let (runs, rest) = row[..count].as_chunks_mut::<RUN>();
                    for (q, to) in runs.iter_mut().enumerate() {
                        *to = widen.run(from.as_ptr().add(q * RUN));
                    }
                    for (to, &from) in rest.iter_mut().zip(&from[count / RUN * RUN..]) {
                        *to = widen.widen(from);
                    }
                    row[count..].fill(T::default());
                }
                return;
            }
            if count < width {
                panel[..steps * width].fill(T::default());
            }
            let mut p = 0;
            while p + RUN <= steps && source.along == 1 {
                let mut i = 0;
                while i + 4 <= count {
                    // Not an array's `map`: that is a function of its own, without the wide vectors.
                    let runs = [
                        widen.run(source.at(i, p)),
                        widen.run(source.at(i + 1, p)),
                        widen.run(source.at(i + 2, p)),
                        widen.run(source.at(i + 3, p)),
                    ];
                    weave(&runs, panel.as_mut_ptr().add(p * width + i), width);
                    i += 4;
                }
                for i in i..count {
                    for (q, value) in widen.run(source.at(i, p)).into_iter().enumerate() {
                        *panel.get_unchecked_mut((p + q) * width + i) = value;
                    }
                }
                p += RUN;
            }
            for p in p..steps {
                for i in 0..count {
                    *panel.get_unchecked_mut(p * width + i) = widen.widen(*source.at(i, p));
                }
            }
        }
    }

    /// Rounds `f32` words to a narrower format.
    fn round_words(words: &mut [f32], to: DType) {
        #[inline(always)]
        fn each(words: &mut [f32], f: impl Fn(f32) -> f32) {
            for x in words {
                *x = f(*x);
            }
        }
        match to {
            DType::TF32 => each(words, element::f32_to_tf32),
            DType::F16 => each(words, |x| element::f16_to_f32(element::f32_to_f16(x))),
            DType::BF16 => each(words, |x| element::bf16_to_f32(element::f32_to_bf16(x))),
            DType::F8E4M3 => each(words, |x| element::f8e4m3_to_f32(element::f32_to_f8e4m3(x))),
            DType::F8E5M2 => each(words, |x| element::f8e5m2_to_f32(element::f32_to_f8e5m2(x))),
            _ => {}
        }
    }
}

/// How an element becomes a word.
trait Widen<S: Copy, T: Copy + Default>: Copy {
    fn widen(self, x: S) -> T;

    /// Neighbours along K.
    ///
    /// # Safety
    /// They lie in the operand.
    #[inline(always)]
    unsafe fn run(self, from: *const S) -> [T; RUN] {
        // SAFETY: the caller's promise.
        let from = unsafe { from.cast::<[S; RUN]>().read_unaligned() };
        let mut words = [T::default(); RUN];
        for (to, from) in words.iter_mut().zip(from) {
            *to = self.widen(from);
        }
        words
    }
}

/// `f16` by the processor's own instruction, where it has it.
#[cfg(target_arch = "x86_64")]
#[derive(Clone, Copy)]
struct HardwareHalf;

/// True where [`HardwareHalf`] may be used.
#[cfg(target_arch = "x86_64")]
fn has_half() -> bool {
    use super::dispatch::Level;
    Level::best() >= Level::Avx2
}

#[cfg(target_arch = "x86_64")]
impl Widen<u16, f32> for HardwareHalf {
    #[inline(always)]
    fn widen(self, x: u16) -> f32 {
        element::f16_to_f32(x)
    }

    #[inline(always)]
    unsafe fn run(self, from: *const u16) -> [f32; RUN] {
        use std::arch::x86_64::{_mm_loadu_si128, _mm256_cvtph_ps, _mm256_storeu_ps};
        let mut words = [0.0; RUN];
        // SAFETY: the elements are the caller's promise; only processors with F16C come here.
        unsafe {
            for q in [0, 8] {
                _mm256_storeu_ps(words.as_mut_ptr().add(q), _mm256_cvtph_ps(_mm_loadu_si128(from.add(q).cast())));
            }
        }
        words
    }
}

macro_rules! widenings {
    ($($name:ident: $from:ty => $to:ty = $function:expr;)*) => {$(
        #[derive(Clone, Copy)]
        struct $name;

        impl Widen<$from, $to> for $name {
            #[inline(always)]
            fn widen(self, x: $from) -> $to {
                $function(x)
            }
        }
    )*};
}

widenings! {
    Same32: f32 => f32 = |x| x;
    Same64: f64 => f64 = |x| x;
    Half: u16 => f32 = element::f16_to_f32;
    Brain: u16 => f32 = element::bf16_to_f32;
    E4M3: u8 => f32 = element::f8e4m3_to_f32;
    E5M2: u8 => f32 = element::f8e5m2_to_f32;
    E2M3: u8 => f32 = element::f6e2m3_to_f32;
    E3M2: u8 => f32 = element::f6e3m2_to_f32;
    E2M1: u8 => f32 = element::f4e2m1_to_f32;
}

/// Packs floats of a format as `f32`, rounded to `compute` where that is narrower.
///
/// # Safety
/// `count` vectors of `steps` elements of `dtype` lie at `source`.
pub(super) unsafe fn float32(
    dtype: DType,
    compute: DType,
    source: Vectors<u8>,
    panel: &mut [f32],
    width: usize,
    count: usize,
    steps: usize,
) {
    macro_rules! of {
        ($format:ident, $t:ty) => {
            pack(
                $format,
                Vectors { base: source.base.cast::<$t>(), across: source.across, along: source.along },
                panel,
                width,
                count,
                steps,
            )
        };
    }
    match dtype {
        #[cfg(target_arch = "x86_64")]
        DType::F16 if has_half() => of!(HardwareHalf, u16),
        DType::F16 => of!(Half, u16),
        DType::BF16 => of!(Brain, u16),
        DType::F8E4M3 => of!(E4M3, u8),
        DType::F8E5M2 => of!(E5M2, u8),
        DType::F6E2M3 => of!(E2M3, u8),
        DType::F6E3M2 => of!(E3M2, u8),
        DType::F4E2M1 => of!(E2M1, u8),
        _ => of!(Same32, f32),
    }
    if compute != dtype {
        round_words(&mut panel[..steps * width], compute);
    }
}

/// Packs `f64`.
///
/// # Safety
/// `count` vectors of `steps` elements lie at `source`.
pub(super) unsafe fn float64(source: Vectors<f64>, panel: &mut [f64], width: usize, count: usize, steps: usize) {
    pack(Same64, source, panel, width, count, steps);
}

/// What is done to a byte before it is multiplied.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Byte {
    /// 128 is added or subtracted: the highest bit is flipped.
    Flipped,
    /// As it is.
    Kept,
}

simd! {
    /// Packs bytes, four a word.
    fn pack_bytes(source: Vectors<u8>, flip: u8, panel: &mut [i32], width: usize, count: usize, steps: usize) {
        let words = steps.div_ceil(4);
        assert!(panel.len() >= words * width && width >= count, "a panel of the right size");
        if count < width {
            panel[..words * width].fill(0);
        }
        let whole = steps / 4;
        // SAFETY: `count` vectors of `steps` elements lie in the operand, as the callers of this module promise.
        unsafe {
            for (word, row) in panel.chunks_exact_mut(width).take(whole).enumerate() {
                let p = 4 * word;
                if source.along == 1 {
                    for (i, to) in row[..count].iter_mut().enumerate() {
                        let bytes = source.at(i, p).cast::<[u8; 4]>().read_unaligned();
                        *to = i32::from_le_bytes(bytes) ^ i32::from_le_bytes([flip; 4]);
                    }
                } else if source.across == 1 {
                    let lane = |q: usize| std::slice::from_raw_parts(source.at(0, p + q), count);
                    let lanes = [lane(0), lane(1), lane(2), lane(3)];
                    for (i, to) in row[..count].iter_mut().enumerate() {
                        let word = lanes.iter().rev().fold(0, |word, lane| (word << 8) | u32::from(lane[i]));
                        *to = word as i32 ^ i32::from_le_bytes([flip; 4]);
                    }
                } else {
                    for (i, to) in row[..count].iter_mut().enumerate() {
                        *to = i32::from_le_bytes([0, 1, 2, 3].map(|q| *source.at(i, p + q) ^ flip));
                    }
                }
            }
            if whole < words {
                for (i, to) in panel[whole * width..][..count].iter_mut().enumerate() {
                    let byte = |q: usize| if 4 * whole + q < steps { *source.at(i, 4 * whole + q) ^ flip } else { 0 };
                    *to = i32::from_le_bytes([0, 1, 2, 3].map(byte));
                }
            }
        }
    }

    /// Packs bytes, widened to 16 bits, two a word.
    fn pack_pairs(source: Vectors<u8>, signed: bool, panel: &mut [i32], width: usize, count: usize, steps: usize) {
        let words = steps.div_ceil(2);
        assert!(panel.len() >= words * width && width >= count, "a panel of the right size");
        if count < width {
            panel[..words * width].fill(0);
        }
        for (word, row) in panel.chunks_exact_mut(width).take(words).enumerate() {
            for (i, to) in row[..count].iter_mut().enumerate() {
                let half = |p: usize| {
                    if p >= steps {
                        return 0;
                    }
                    // SAFETY: `count` vectors of `steps` elements lie in the operand, as the callers of this module promise.
                    let byte = unsafe { *source.at(i, p) };
                    if signed { i32::from(byte as i8) } else { i32::from(byte) }
                };
                *to = (half(2 * word) & 0xffff) | (half(2 * word + 1) << 16);
            }
        }
    }
}

/// Packs 8-bit integers; bytes of a word are changed as `byte` says, pairs widened by their sign.
///
/// # Safety
/// `count` vectors of `steps` elements lie at `source`.
#[allow(clippy::too_many_arguments, reason = "a panel's shape and what it is made from")]
pub(super) unsafe fn int8(
    grouping: Grouping,
    byte: Byte,
    signed: bool,
    source: Vectors<u8>,
    panel: &mut [i32],
    width: usize,
    count: usize,
    steps: usize,
) {
    match grouping {
        Grouping::Bytes => pack_bytes(source, if byte == Byte::Flipped { 0x80 } else { 0 }, panel, width, count, steps),
        Grouping::Pairs => pack_pairs(source, signed, panel, width, count, steps),
    }
}

simd! {
    /// The sum of each vector.
    fn sums_of(vectors: Vectors<u8>, signed: bool, count: usize, steps: usize) -> Vec<i32> {
        let value = |byte: u8| if signed { i32::from(byte as i8) } else { i32::from(byte) };
        let mut sums = vec![0i32; count];
        // SAFETY: `count` vectors of `steps` elements lie in the operand, as the callers of this module promise.
        unsafe {
            if vectors.across == 1 {
                for p in 0..steps {
                    let row = std::slice::from_raw_parts(vectors.at(0, p), count);
                    for (sum, &byte) in sums.iter_mut().zip(row) {
                        *sum = sum.wrapping_add(value(byte));
                    }
                }
            } else if vectors.along == 1 {
                for (i, sum) in sums.iter_mut().enumerate() {
                    let vector = std::slice::from_raw_parts(vectors.at(i, 0), steps);
                    *sum = vector.iter().fold(0i32, |sum, &byte| sum.wrapping_add(value(byte)));
                }
            } else {
                for (i, sum) in sums.iter_mut().enumerate() {
                    *sum = (0..steps).fold(0i32, |sum, p| sum.wrapping_add(value(*vectors.at(i, p))));
                }
            }
        }
        sums
    }
}

/// The sum along K of each vector of bytes.
///
/// # Safety
/// `count` vectors of `steps` elements lie at `vectors`.
pub(super) unsafe fn sums(vectors: Vectors<u8>, signed: bool, count: usize, steps: usize) -> Vec<i32> {
    sums_of(vectors, signed, count, steps)
}
