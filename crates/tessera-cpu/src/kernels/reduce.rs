//! Reductions of contiguous elements and of columns.
//!
//! A contiguous reduction keeps 64 running values: element `i` goes to lane `i mod 64`, and at the end the upper half of the lanes
//! is folded onto the lower until one is left. That order is the same for every processor and however the row is cut into strips.
//! Columns are combined row by row.
//!
//! ```text
//! lane   0: x0 + x64 + x128 ...      1: x1 + x65 ...      63: x63 + x127 ...
//! fold   (0 + 32) (1 + 33) ... then (0 + 16) ... then (0 + 1)
//! ```
//!
//! Maximum and minimum hold +0 larger than -0 and either ignore NaN, unless there is nothing else, or return it.

use super::dispatch::simd;

/// Running values of a reduction.
pub(crate) const LANES: usize = 64;

/// An associative combination.
pub(crate) trait Combine<T>: Copy {
    /// What changes no element.
    const NEUTRAL: T;

    /// The running value with one more element.
    fn step(self, running: T, x: T) -> T;
}

/// Sum; integers wrap.
#[derive(Clone, Copy)]
pub(crate) struct Add;
/// Product; integers wrap.
#[derive(Clone, Copy)]
pub(crate) struct Mul;
/// Maximum, NaN ignored.
#[derive(Clone, Copy)]
pub(crate) struct Max;
/// Minimum, NaN ignored.
#[derive(Clone, Copy)]
pub(crate) struct Min;
/// Maximum, NaN kept.
#[derive(Clone, Copy)]
pub(crate) struct MaxNan;
/// Minimum, NaN kept.
#[derive(Clone, Copy)]
pub(crate) struct MinNan;

macro_rules! floats {
    ($($t:ident)*) => {$(
        impl Combine<$t> for Add {
            const NEUTRAL: $t = -0.0;
            #[inline(always)]
            fn step(self, running: $t, x: $t) -> $t { running + x }
        }
        impl Combine<$t> for Mul {
            const NEUTRAL: $t = 1.0;
            #[inline(always)]
            fn step(self, running: $t, x: $t) -> $t { running * x }
        }
        // NaN is what changes no element where NaN is ignored: a row that holds nothing else stays NaN.
        impl Combine<$t> for Max {
            const NEUTRAL: $t = $t::NAN;
            #[inline(always)]
            fn step(self, running: $t, x: $t) -> $t {
                let larger = if running > x { running } else { x };
                let number = if x == running { $t::from_bits(x.to_bits() & running.to_bits()) } else { larger };
                if x.is_nan() { running } else { number }
            }
        }
        impl Combine<$t> for Min {
            const NEUTRAL: $t = $t::NAN;
            #[inline(always)]
            fn step(self, running: $t, x: $t) -> $t {
                let smaller = if running < x { running } else { x };
                let number = if x == running { $t::from_bits(x.to_bits() | running.to_bits()) } else { smaller };
                if x.is_nan() { running } else { number }
            }
        }
        // Where it is kept, a running value that is NaN fails every comparison and stays.
        impl Combine<$t> for MaxNan {
            const NEUTRAL: $t = $t::NEG_INFINITY;
            #[inline(always)]
            fn step(self, running: $t, x: $t) -> $t {
                let larger = if x > running { x } else { running };
                let number = if x == running { $t::from_bits(x.to_bits() & running.to_bits()) } else { larger };
                if x.is_nan() { $t::NAN } else { number }
            }
        }
        impl Combine<$t> for MinNan {
            const NEUTRAL: $t = $t::INFINITY;
            #[inline(always)]
            fn step(self, running: $t, x: $t) -> $t {
                let smaller = if x < running { x } else { running };
                let number = if x == running { $t::from_bits(x.to_bits() | running.to_bits()) } else { smaller };
                if x.is_nan() { $t::NAN } else { number }
            }
        }
    )*};
}

macro_rules! integers {
    ($($t:ident)*) => {$(
        impl Combine<$t> for Add {
            const NEUTRAL: $t = 0;
            #[inline(always)]
            fn step(self, running: $t, x: $t) -> $t { running.wrapping_add(x) }
        }
        impl Combine<$t> for Mul {
            const NEUTRAL: $t = 1;
            #[inline(always)]
            fn step(self, running: $t, x: $t) -> $t { running.wrapping_mul(x) }
        }
        impl Combine<$t> for Max {
            const NEUTRAL: $t = $t::MIN;
            #[inline(always)]
            fn step(self, running: $t, x: $t) -> $t { running.max(x) }
        }
        impl Combine<$t> for Min {
            const NEUTRAL: $t = $t::MAX;
            #[inline(always)]
            fn step(self, running: $t, x: $t) -> $t { running.min(x) }
        }
    )*};
}

floats!(f32 f64);
integers!(i8 i16 i32 i64 u8 u16 u32 u64);

/// The running values of one reduction.
#[derive(Clone)]
#[repr(align(64))]
pub(crate) struct Lanes<T>([T; LANES]);

impl<T: Copy> Lanes<T> {
    /// No element yet.
    pub(crate) fn new<C: Combine<T>>(_: C) -> Lanes<T> {
        Lanes([C::NEUTRAL; LANES])
    }

    /// The result: all lanes combined.
    pub(crate) fn finish<C: Combine<T>>(mut self, combine: C) -> T {
        let mut width = LANES;
        while width > 1 {
            width /= 2;
            let (low, high) = self.0.split_at_mut(width);
            for (to, &x) in low.iter_mut().zip(&*high) {
                *to = combine.step(*to, x);
            }
        }
        self.0[0]
    }
}

simd! {
    /// Takes the next elements, of which `done` came before.
    pub(crate) fn accumulate[T: Copy, C: Combine<T>](combine: C, lanes: &mut Lanes<T>, done: usize, src: &[T]) {
        let mut running = lanes.0;
        let first = done % LANES;
        let (head, src) = src.split_at(((LANES - first) % LANES).min(src.len()));
        for (to, &x) in running[first..].iter_mut().zip(head) {
            *to = combine.step(*to, x);
        }
        let (whole, rest) = src.as_chunks::<LANES>();
        for chunk in whole {
            for (to, &x) in running.iter_mut().zip(chunk) {
                *to = combine.step(*to, x);
            }
        }
        for (to, &x) in running.iter_mut().zip(rest) {
            *to = combine.step(*to, x);
        }
        lanes.0 = running;
    }

    /// Combines rows, each as long as `running`, into the running values of the columns, in their order.
    pub(crate) fn columns[T: Copy, C: Combine<T>](combine: C, running: &mut [T], rows: &[T]) {
        let width = running.len().max(1);
        let mut quads = rows.chunks_exact(4 * width);
        for quad in &mut quads {
            let (a, rest) = quad.split_at(width);
            let (b, rest) = rest.split_at(width);
            let (c, d) = rest.split_at(width);
            for ((((to, &a), &b), &c), &d) in running.iter_mut().zip(a).zip(b).zip(c).zip(d) {
                *to = combine.step(combine.step(combine.step(combine.step(*to, a), b), c), d);
            }
        }
        for row in quads.remainder().chunks_exact(width) {
            for (to, &x) in running.iter_mut().zip(row) {
                *to = combine.step(*to, x);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn reduce<T: Copy, C: Combine<T>>(combine: C, src: &[T]) -> T {
        let mut lanes = Lanes::new(combine);
        accumulate(combine, &mut lanes, 0, src);
        lanes.finish(combine)
    }

    fn sample(len: usize) -> Vec<f32> {
        (0..len as u32).map(|i| ((i.wrapping_mul(2_654_435_761) >> 8) as f32 / 8_388_608.0) - 1.0).collect()
    }

    #[test]
    fn sums_follow_the_lanes_for_every_length() {
        for len in (0..200).chain([1000, 4097]) {
            let x = sample(len);
            let mut lanes = [-0.0f32; LANES];
            for (i, x) in x.iter().enumerate() {
                lanes[i % LANES] += x;
            }
            let mut width = LANES;
            while width > 1 {
                width /= 2;
                for i in 0..width {
                    lanes[i] += lanes[i + width];
                }
            }
            assert_eq!(reduce(Add, &x).to_bits(), lanes[0].to_bits(), "{len} elements");
        }
    }

    #[test]
    fn strips_give_what_the_whole_gives() {
        let x = sample(1000);
        for strip in [1, 5, 64, 100, 256, 999] {
            let mut lanes = Lanes::new(Add);
            for (i, part) in x.chunks(strip).enumerate() {
                accumulate(Add, &mut lanes, i * strip, part);
            }
            assert_eq!(lanes.finish(Add).to_bits(), reduce(Add, &x).to_bits(), "strips of {strip}");
        }
    }

    #[test]
    fn extremes_order_zeros_and_treat_nan_as_asked() {
        let x = [-0.0f32, f32::NAN, -1.0, 0.0, -0.0];
        assert_eq!(reduce(Max, &x).to_bits(), 0.0f32.to_bits());
        assert_eq!(reduce(Min, &x[..2]).to_bits(), (-0.0f32).to_bits());
        assert_eq!(reduce(Min, &x), -1.0);
        assert!(reduce(MaxNan, &x).is_nan());
        assert!(reduce(MinNan, &x).is_nan());
        assert_eq!(reduce(Max, &[f32::NEG_INFINITY, f32::NAN]), f32::NEG_INFINITY);
        assert_eq!(reduce(Max, &[3, 200, 7u8]), 200);
        assert_eq!(reduce(Max, &[3, -56, 7i8]), 7);
        for len in [1, 63, 64, 65, 1000] {
            assert!(reduce(Max, &vec![f32::NAN; len]).is_nan() && reduce(Min, &vec![f64::NAN; len]).is_nan(), "{len} NaN");
        }
        for at in 0..100 {
            let mut x = sample(100);
            x[at] = f32::NAN;
            assert!(reduce(MaxNan, &x).is_nan(), "NaN at {at}");
            x[at] = 7.0;
            assert_eq!(reduce(MaxNan, &x), 7.0, "largest at {at}");
            let mut alone = [f32::NAN; 100];
            alone[at] = -3.0;
            assert_eq!((reduce(Max, &alone), reduce(Min, &alone)), (-3.0, -3.0), "the only number at {at}");
        }
    }

    #[test]
    fn columns_combine_row_by_row() {
        for (rows, width) in [(0, 3), (1, 1), (7, 5), (9, 130)] {
            let x = sample(rows * width);
            let mut running = vec![0.5f32; width];
            columns(Add, &mut running, &x);
            let expected: Vec<f32> = (0..width).map(|j| (0..rows).fold(0.5, |sum, i| sum + x[i * width + j])).collect();
            assert_eq!(running, expected);
        }
        let mut product = [3i32, 1];
        columns(Mul, &mut product, &[i32::MAX, 2, 2, 2]);
        assert_eq!(product, [3i32.wrapping_mul(i32::MAX).wrapping_mul(2), 4]);
    }
}
