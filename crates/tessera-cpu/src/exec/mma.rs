//! Matrix products of tiles, and of whole K ranges straight from memory.
//!
//! Floats are multiplied in `f32` (`f64` for `f64`): narrow operands widen exactly, `tf32` operands are rounded to nearest even
//! first. An accumulator narrower than `f32` is rounded once, at the end.

use tessera_types::{DType, convert};

use super::view::Window;
use super::{Machine, Ran};
use crate::kernels::matmul::{self, Destination, Extents, Operand, Start};
use crate::lanes::{self, LaneOp, Strips};
use crate::plan::{Access, Mma, Place, Product};
use crate::touched::Kind;

/// Where the operands of a loop's product stand.
pub(crate) struct Request {
    pub(crate) lhs: Operand,
    pub(crate) rhs: Operand,
    /// The part of the tile that is inside both arrays: rows, columns.
    pub(crate) rows: std::ops::Range<usize>,
    pub(crate) columns: std::ops::Range<usize>,
    pub(crate) depth: usize,
}

/// The type by which a product's operand is read.
pub(crate) fn operand_type(dtype: DType, signed: bool) -> (DType, DType) {
    match dtype {
        DType::TF32 => (DType::F32, DType::TF32),
        DType::I8 | DType::I4 if !signed => (DType::U8, DType::U8),
        DType::I8 | DType::I4 => (DType::I8, DType::I8),
        other => (other, other),
    }
}

impl Machine<'_> {
    pub(super) fn mma(&mut self, mma: &Mma) {
        let Mma { batch, m, n, k, .. } = *mma;
        let (lhs_type, lhs_compute) = operand_type(mma.lhs_type, mma.signed[0]);
        let (rhs_type, rhs_compute) = operand_type(mma.rhs_type, mma.signed[1]);
        let bytes = mma.acc_type.unpacked_bytes();
        let (mut lhs, mut rhs) = (self.place(mma.lhs).cast_const(), self.place(mma.rhs).cast_const());
        let (mut lhs_type, mut rhs_type) = (lhs_type, rhs_type);
        let (mut lhs_compute, mut rhs_compute) = (lhs_compute, rhs_compute);
        if let Some(scales) = &mma.scales {
            lhs = self.scaled(0, lhs, mma.lhs_type, batch * m, k, (scales[0].0, scales[0].1), |row, k| {
                row * (mma.k / scales[0].2) + k / scales[0].2
            });
            rhs = self.scaled(1, rhs, mma.rhs_type, batch * k, n, (scales[1].0, scales[1].1), |row, column| {
                (row / mma.k * (mma.k / scales[1].2) + row % mma.k / scales[1].2) * mma.n + column
            });
            (lhs_type, lhs_compute, rhs_type, rhs_compute) = (DType::F32, DType::F32, DType::F32, DType::F32);
        }
        let extents = Extents { m, n, k };
        let (size_l, size_r) = (lhs_type.unpacked_bytes(), rhs_type.unpacked_bytes());
        let (acc, dst) = (self.place(mma.acc), self.place(mma.dst));
        let narrow = matches!(mma.acc_type, DType::F16 | DType::BF16);
        let wide = if narrow { self.memory.temporary[2].reserve(m * n * 4) } else { dst };
        for b in 0..batch {
            // SAFETY: tiles hold `batch` matrices of these extents; the result overlaps no operand.
            unsafe {
                let a = Operand {
                    base: lhs.add(b * m * k * size_l),
                    row_stride: k as isize,
                    column_stride: 1,
                    dtype: lhs_type,
                    compute: lhs_compute,
                };
                let c = Operand {
                    base: rhs.add(b * k * n * size_r),
                    row_stride: n as isize,
                    column_stride: 1,
                    dtype: rhs_type,
                    compute: rhs_compute,
                };
                let offset = b * m * n * bytes;
                if narrow {
                    let codes = std::slice::from_raw_parts(acc.add(offset).cast::<u16>(), m * n);
                    let floats = std::slice::from_raw_parts_mut(wide.cast::<f32>(), m * n);
                    if mma.acc_type == DType::F16 {
                        convert::f16_to_f32(codes, floats)
                    } else {
                        convert::bf16_to_f32(codes, floats)
                    }
                    multiply(DType::F32, extents, a, c, wide, n, Start::Accumulate);
                    let codes = std::slice::from_raw_parts_mut(dst.add(offset).cast::<u16>(), m * n);
                    if mma.acc_type == DType::F16 {
                        convert::f32_to_f16(floats, codes)
                    } else {
                        convert::f32_to_bf16(floats, codes)
                    }
                } else {
                    std::ptr::copy_nonoverlapping(acc.add(offset), dst.add(offset), m * n * bytes);
                    multiply(mma.acc_type, extents, a, c, dst.add(offset), n, Start::Accumulate);
                }
            }
        }
        self.mma_marks(mma);
    }

    /// An operand times its scales, as `f32`.
    #[allow(clippy::too_many_arguments, reason = "an operand, its shape and its scales")]
    fn scaled(
        &mut self,
        side: usize,
        from: *const u8,
        dtype: DType,
        rows: usize,
        columns: usize,
        (scales, scale_type): (Place, DType),
        scale_of: impl Fn(usize, usize) -> usize,
    ) -> *const u8 {
        let scales = self.place(scales);
        let to = self.memory.temporary[side].reserve(rows * columns * 4);
        let strips = Strips { dst: to, src: [from, std::ptr::null(), std::ptr::null()], len: rows * columns };
        // SAFETY: the operand holds so many codes, the scales one for every group.
        unsafe {
            lanes::apply(self.launch.isa, LaneOp::Widen(dtype), strips);
            let values = std::slice::from_raw_parts_mut(to.cast::<f32>(), rows * columns);
            for row in 0..rows {
                for column in 0..columns {
                    let mut scale = 0.0_f32;
                    let code = scales.add(scale_of(row, column) * scale_type.unpacked_bytes());
                    let strips = Strips { dst: (&raw mut scale).cast(), src: [code, std::ptr::null(), std::ptr::null()], len: 1 };
                    lanes::apply(crate::lanes::Isa::Baseline, LaneOp::Widen(scale_type), strips);
                    values[row * columns + column] *= scale;
                }
            }
        }
        to
    }

    fn mma_marks(&mut self, mma: &Mma) {
        let Some(check) = self.check.as_mut() else { return };
        let Mma { batch, m, n, k, .. } = *mma;
        check.copy(mma.dst, mma.acc);
        if let Some(marks) = check.marks(mma.lhs, 0, batch * m * k) {
            for (row, marks) in marks.chunks(k).enumerate() {
                if let Some(&mark) = marks.iter().max().filter(|mark| **mark != 0) {
                    (0..n).for_each(|j| check.raise(mma.dst, row * n + j, mark));
                }
            }
        }
        if let Some(marks) = check.marks(mma.rhs, 0, batch * k * n) {
            for (index, &mark) in marks.iter().enumerate().filter(|(_, mark)| **mark != 0) {
                let (b, column) = (index / (k * n), index % n);
                (0..m).for_each(|i| check.raise(mma.dst, (b * m + i) * n + column, mark));
            }
        }
        for (place, _, _) in mma.scales.iter().flatten() {
            if check.marks(*place, 0, usize::MAX).is_some() {
                check.spread(mma.dst, &[*place]);
            }
        }
    }

    /// The K range's length in tiles.
    fn rounds(&self, product: &Product) -> i64 {
        (self.get(product.upper) as i64).saturating_sub(self.get(product.lower) as i64).max(0)
    }

    /// Where the operands of a product stand; `None` when there is nothing to add.
    pub(crate) fn request(&mut self, product: &Product) -> Ran<Option<Request>> {
        let depth = self.rounds(product) as usize * product.k;
        if depth == 0 {
            return Ok(None);
        }
        let whole = |access: &Access, axis: usize| {
            let mut access = access.clone();
            access.axes[axis].extent = depth;
            access
        };
        let lhs = whole(&product.lhs, product.lhs_axes[1]);
        let rhs = whole(&product.rhs, product.rhs_axes[0]);
        let a = self.window(&lhs, Kind::Read)?;
        let b = self.window(&rhs, Kind::Read)?;
        if a.empty || b.empty {
            return Ok(None);
        }
        let (rows, deep_a) = (&a.sides[product.lhs_axes[0]].inside, &a.sides[product.lhs_axes[1]].inside);
        let (deep_b, columns) = (&b.sides[product.rhs_axes[0]].inside, &b.sides[product.rhs_axes[1]].inside);
        // What lies outside is zero: only what both have counts.
        let deep = deep_a.start.max(deep_b.start)..deep_a.end.min(deep_b.end);
        if deep.is_empty() {
            return Ok(None);
        }
        let operand = |window: &Window, axes: [usize; 2], first: [usize; 2], (dtype, compute): (DType, DType)| {
            let strides = [window.sides[axes[0]].stride, window.sides[axes[1]].stride];
            let offset = first[0] as i64 * strides[0] + first[1] as i64 * strides[1];
            Operand {
                base: (window.base as i64 + offset * window.bytes as i64) as usize as *const u8,
                row_stride: strides[0] as isize,
                column_stride: strides[1] as isize,
                dtype,
                compute,
            }
        };
        Ok(Some(Request {
            lhs: operand(&a, product.lhs_axes, [rows.start, deep.start], product.types[0]),
            rhs: operand(&b, product.rhs_axes, [deep.start, columns.start], product.types[1]),
            rows: rows.clone(),
            columns: columns.clone(),
            depth: deep.len(),
        }))
    }

    /// Runs a loop's product for this block alone.
    ///
    /// # Safety
    /// As for [`Machine::run`].
    pub(super) unsafe fn product(&mut self, product: &Product) -> Ran<()> {
        let request = self.request(product)?;
        let acc = self.place(product.acc);
        let bytes = product.acc_type.unpacked_bytes();
        let whole = request.as_ref().is_some_and(|r| r.rows == (0..product.m) && r.columns == (0..product.n));
        if product.zero && !whole {
            // SAFETY: the accumulator's tile; all types have zero bits for zero.
            unsafe { std::ptr::write_bytes(acc, 0, product.m * product.n * bytes) };
        }
        let Some(request) = request else { return Ok(()) };
        let start = if product.zero && whole { Start::Zero } else { Start::Accumulate };
        // SAFETY: the request's operands were checked; its part of the tile lies in the accumulator.
        unsafe {
            let to = acc.add((request.rows.start * product.n + request.columns.start) * bytes);
            multiply(product.acc_type, request.extents(), request.lhs, request.rhs, to, product.n, start);
        }
        Ok(())
    }
}

impl Request {
    pub(crate) fn extents(&self) -> Extents {
        Extents { m: self.rows.len(), n: self.columns.len(), k: self.depth }
    }
}

/// One product of the accumulator's type.
///
/// # Safety
/// As for [`matmul::float32`].
pub(crate) unsafe fn multiply(
    acc: DType,
    extents: Extents,
    a: Operand,
    b: Operand,
    to: *mut u8,
    row_stride: usize,
    start: Start,
) {
    // SAFETY: passed on.
    unsafe {
        match acc {
            DType::F64 => matmul::float64(extents, a, b, Destination { base: to.cast(), row_stride, start }),
            DType::I32 => matmul::int8(extents, a, b, Destination { base: to.cast(), row_stride, start }),
            _ => matmul::float32(extents, a, b, Destination { base: to.cast(), row_stride, start }),
        }
    }
}
