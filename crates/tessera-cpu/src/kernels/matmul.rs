//! Matrix products of operands in memory: `C (+)= A x B` over a whole K range.
//!
//! Operands are read where they are, with any strides and formats; blocks of them are packed into panels that stay in the caches
//! (A in the second level, a panel of B in the first) while [`micro`](super::micro) runs over them. Each element of C is one chain
//! of fused multiply-adds along K, in `f32`, `f64` or wrapping `i32`: no blocking, thread count or processor changes a bit.
//!
//! # 8-bit integers
//! The dot-product instruction multiplies unsigned by signed bytes. With `a' = a + da` unsigned and `b' = b - db` signed, where
//! da is 128 for a signed A and db 128 for an unsigned B,
//!
//! ```text
//! sum(a b) = sum(a' b') + db sum(a) - da sum(b')
//!          = sum(a' b') + db sum(a) - da sum(b) + K da db
//! ```
//!
//! so sums along K of the operands as they are correct every row and column of C.

use std::cell::RefCell;

use tessera_types::DType;

use super::dispatch::Level;
use super::micro::{self, Grouping, Micro};
use super::pack::{self, Byte, Vectors};

/// A matrix in memory.
#[derive(Clone, Copy)]
pub(crate) struct Operand {
    /// The first element. Elements are unpacked: a sub-byte one takes a byte.
    pub(crate) base: *const u8,
    /// Elements from a row to the next.
    pub(crate) row_stride: isize,
    /// Elements from a column to the next.
    pub(crate) column_stride: isize,
    /// What is stored.
    pub(crate) dtype: DType,
    /// What it is rounded to before it is multiplied; `dtype` where nothing is.
    pub(crate) compute: DType,
}

/// Where a product goes.
#[derive(Clone, Copy)]
pub(crate) struct Destination<T> {
    /// The first element; rows are contiguous.
    pub(crate) base: *mut T,
    /// Elements from a row to the next.
    pub(crate) row_stride: usize,
    /// What becomes of the elements that are there.
    pub(crate) start: Start,
}

/// What a product starts from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Start {
    /// Zero: old elements are not read.
    Zero,
    /// The old elements.
    Accumulate,
}

/// Extents of a product.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Extents {
    /// Rows of A and C.
    pub(crate) m: usize,
    /// Columns of B and C.
    pub(crate) n: usize,
    /// Columns of A, rows of B.
    pub(crate) k: usize,
}

/// Words of K in a panel.
const DEPTH: usize = 256;
/// Rows of A packed at a time.
const ROWS: usize = 240;
/// Columns of B packed at a time.
const COLUMNS: usize = 2048;

impl Operand {
    fn rows<S>(&self) -> Vectors<S> {
        Vectors { base: self.base.cast(), across: self.row_stride, along: self.column_stride }
    }

    fn columns<S>(&self) -> Vectors<S> {
        Vectors { base: self.base.cast(), across: self.column_stride, along: self.row_stride }
    }
}

/// A float product accumulated in `f32`: operands of any float format up to 32 bits.
///
/// # Safety
/// The operands' elements may be read, C's written; C overlaps neither.
pub(crate) unsafe fn float32(extents: Extents, a: Operand, b: Operand, c: Destination<f32>) {
    // SAFETY: passed on.
    unsafe { float32_at(Level::best(), extents, a, b, c) }
}

unsafe fn float32_at(level: Level, extents: Extents, a: Operand, b: Operand, c: Destination<f32>) {
    let (size_a, size_b) = (a.dtype.unpacked_bytes() as isize, b.dtype.unpacked_bytes() as isize);
    let pack_a = |i: usize, p: usize, count: usize, steps: usize, panel: &mut [f32], width: usize| {
        let offset = (i as isize * a.row_stride + p as isize * a.column_stride) * size_a;
        // SAFETY: rows and steps lie in the operand.
        unsafe {
            pack::float32(a.dtype, a.compute, Vectors { base: a.base.offset(offset), ..a.rows() }, panel, width, count, steps)
        }
    };
    let pack_b = |j: usize, p: usize, count: usize, steps: usize, panel: &mut [f32], width: usize| {
        let offset = (j as isize * b.column_stride + p as isize * b.row_stride) * size_b;
        // SAFETY: columns and steps lie in the operand.
        unsafe {
            pack::float32(b.dtype, b.compute, Vectors { base: b.base.offset(offset), ..b.columns() }, panel, width, count, steps)
        }
    };
    // SAFETY: C is the caller's to write.
    unsafe { blocks(micro::float32(level), extents, 1, &F32_PANELS, pack_a, pack_b, c) }
}

/// A product of `f64`.
///
/// # Safety
/// As for [`float32`].
pub(crate) unsafe fn float64(extents: Extents, a: Operand, b: Operand, c: Destination<f64>) {
    // SAFETY: passed on.
    unsafe { float64_at(Level::best(), extents, a, b, c) }
}

unsafe fn float64_at(level: Level, extents: Extents, a: Operand, b: Operand, c: Destination<f64>) {
    let pack_a = |i: usize, p: usize, count: usize, steps: usize, panel: &mut [f64], width: usize| {
        // SAFETY: rows and steps lie in the operand.
        unsafe { pack::float64(a.rows().from(i, p), panel, width, count, steps) }
    };
    let pack_b = |j: usize, p: usize, count: usize, steps: usize, panel: &mut [f64], width: usize| {
        // SAFETY: columns and steps lie in the operand.
        unsafe { pack::float64(b.columns().from(j, p), panel, width, count, steps) }
    };
    // SAFETY: C is the caller's to write.
    unsafe { blocks(micro::float64(level), extents, 1, &F64_PANELS, pack_a, pack_b, c) }
}

/// A product of 8-bit integers, each operand signed or not by its type, accumulated in wrapping `i32`.
///
/// # Safety
/// As for [`float32`].
pub(crate) unsafe fn int8(extents: Extents, a: Operand, b: Operand, c: Destination<i32>) {
    // SAFETY: passed on.
    unsafe { int8_at(Level::best(), extents, a, b, c) }
}

unsafe fn int8_at(level: Level, extents: Extents, a: Operand, b: Operand, c: Destination<i32>) {
    let (micro, grouping) = micro::int8(level);
    let group = match grouping {
        Grouping::Bytes => 4,
        Grouping::Pairs => 2,
    };
    let flip = |flipped: bool| if flipped { Byte::Flipped } else { Byte::Kept };
    let (byte_a, byte_b) = (flip(a.dtype.is_signed()), flip(!b.dtype.is_signed()));
    let pack_a = |i: usize, p: usize, count: usize, steps: usize, panel: &mut [i32], width: usize| {
        // SAFETY: rows and steps lie in the operand.
        unsafe { pack::int8(grouping, byte_a, a.dtype.is_signed(), a.rows().from(i, p), panel, width, count, steps) }
    };
    let pack_b = |j: usize, p: usize, count: usize, steps: usize, panel: &mut [i32], width: usize| {
        // SAFETY: columns and steps lie in the operand.
        unsafe { pack::int8(grouping, byte_b, b.dtype.is_signed(), b.columns().from(j, p), panel, width, count, steps) }
    };
    // SAFETY: C is the caller's to write, the operands to read.
    unsafe {
        blocks(micro, extents, group, &I32_PANELS, pack_a, pack_b, c);
        if grouping == Grouping::Bytes {
            correct(extents, a, b, c);
        }
    }
}

/// Adds what the shifted operands left out.
unsafe fn correct(extents: Extents, a: Operand, b: Operand, c: Destination<i32>) {
    let Extents { m, n, k } = extents;
    let shift = |shifted: bool| if shifted { 128 } else { 0 };
    let (da, db) = (shift(a.dtype.is_signed()), shift(!b.dtype.is_signed()));
    // SAFETY: vectors of `k` elements lie in the operands.
    let sums = |times: i32, vectors: Vectors<u8>, count: usize, signed: bool| unsafe {
        if times == 0 { vec![0; count] } else { pack::sums(vectors, signed, count, k) }
    };
    let rows = sums(db, a.rows(), m, a.dtype.is_signed());
    let columns = sums(da, b.columns(), n, b.dtype.is_signed());
    let constant = (k as i32).wrapping_mul(da * db);
    let columns: Vec<i32> = columns.iter().map(|sum| constant.wrapping_sub(sum.wrapping_mul(da))).collect();
    for (i, sum) in rows.iter().enumerate() {
        // SAFETY: a row of C.
        let row = unsafe { std::slice::from_raw_parts_mut(c.base.add(i * c.row_stride), n) };
        let term = sum.wrapping_mul(db);
        for (to, column) in row.iter_mut().zip(&columns) {
            *to = to.wrapping_add(term).wrapping_add(*column);
        }
    }
}

/// A line of the cache.
#[derive(Clone, Copy)]
#[repr(align(64))]
struct Line(#[allow(dead_code, reason = "only its size and alignment count")] [u8; 64]);

/// Panels of a thread, kept between products.
type Panels = RefCell<Vec<Line>>;

thread_local! {
    static F32_PANELS: Panels = const { RefCell::new(Vec::new()) };
    static F64_PANELS: Panels = const { RefCell::new(Vec::new()) };
    static I32_PANELS: Panels = const { RefCell::new(Vec::new()) };
}

/// Runs the product block by block. `group` elements along K share a word.
unsafe fn blocks<T: Copy + Default>(
    micro: &Micro<T>,
    extents: Extents,
    group: usize,
    panels: &'static std::thread::LocalKey<Panels>,
    pack_a: impl Fn(usize, usize, usize, usize, &mut [T], usize),
    pack_b: impl Fn(usize, usize, usize, usize, &mut [T], usize),
    c: Destination<T>,
) {
    let Extents { m, n, k } = extents;
    let (mr, nr) = (micro.mr, micro.nr);
    if k == 0 && c.start == Start::Zero {
        for i in 0..m {
            // SAFETY: a row of C.
            unsafe { std::slice::from_raw_parts_mut(c.base.add(i * c.row_stride), n).fill(T::default()) };
        }
    }
    let depth = k.div_ceil(group).min(DEPTH);
    let rows = m.min(ROWS / mr * mr).next_multiple_of(mr);
    let columns = n.min(COLUMNS).next_multiple_of(nr);
    let words = (rows + columns) * depth;
    let mut lines = panels.take();
    let needed = (words * size_of::<T>()).div_ceil(64);
    if lines.len() < needed {
        lines.resize(needed, Line([0; 64]));
    }
    // SAFETY: the lines hold that many words, any bits of which are a `T`.
    let memory = unsafe { std::slice::from_raw_parts_mut(lines.as_mut_ptr().cast::<T>(), words) };
    let (panels_a, panels_b) = memory.split_at_mut(rows * depth);

    for j in (0..n).step_by(COLUMNS) {
        let columns = (n - j).min(COLUMNS);
        for p in (0..k).step_by(DEPTH * group) {
            let steps = (k - p).min(DEPTH * group);
            let words = steps.div_ceil(group);
            for (panel, column) in panels_b.chunks_exact_mut(words * nr).zip((0..columns).step_by(nr)) {
                pack_b(j + column, p, (columns - column).min(nr), steps, panel, nr);
            }
            for i in (0..m).step_by(ROWS / mr * mr) {
                let rows = (m - i).min(ROWS / mr * mr);
                for (panel, row) in panels_a.chunks_exact_mut(words * mr).zip((0..rows).step_by(mr)) {
                    pack_a(i + row, p, (rows - row).min(mr), steps, panel, mr);
                }
                let accumulate = p > 0 || c.start == Start::Accumulate;
                // SAFETY: the block lies in C.
                unsafe {
                    let corner = c.base.add(i * c.row_stride + j);
                    block(micro, rows, columns, words, panels_a, panels_b, corner, c.row_stride, accumulate);
                }
            }
        }
    }
    panels.set(lines);
}

/// A block of C from packed panels.
#[allow(clippy::too_many_arguments, reason = "the block's shape and places")]
unsafe fn block<T: Copy + Default>(
    micro: &Micro<T>,
    rows: usize,
    columns: usize,
    words: usize,
    panels_a: &[T],
    panels_b: &[T],
    c: *mut T,
    stride: usize,
    accumulate: bool,
) {
    let (mr, nr) = (micro.mr, micro.nr);
    for (b, j) in panels_b.chunks_exact(words * nr).zip((0..columns).step_by(nr)) {
        let width = (columns - j).min(nr);
        for (a, i) in panels_a.chunks_exact(words * mr).zip((0..rows).step_by(mr)) {
            let height = (rows - i).min(mr);
            // SAFETY: panels of `words` steps; the tile lies in C, or in a whole tile of its own where C's is narrower.
            unsafe {
                let tile = c.add(i * stride + j);
                if width == nr {
                    (micro.run)(height, words, a.as_ptr(), b.as_ptr(), tile, stride, accumulate);
                    continue;
                }
                let mut whole = [T::default(); LARGEST_TILE];
                if accumulate {
                    for r in 0..height {
                        tile.add(r * stride).copy_to_nonoverlapping(whole.as_mut_ptr().add(r * nr), width);
                    }
                }
                (micro.run)(height, words, a.as_ptr(), b.as_ptr(), whole.as_mut_ptr(), nr, accumulate);
                for r in 0..height {
                    whole.as_ptr().add(r * nr).copy_to_nonoverlapping(tile.add(r * stride), width);
                }
            }
        }
    }
}

/// Words of the largest register tile.
const LARGEST_TILE: usize = 12 * 32;

#[cfg(test)]
mod tests;
