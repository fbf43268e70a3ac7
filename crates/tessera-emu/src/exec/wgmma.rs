//! Warpgroup products: `wgmma.mma_async`.
//!
//! Each warp of a warpgroup computes its own 16 of the 64 rows, so a product is one job of each warp. It reads shared memory
//! and registers when it runs. Where an operand's element lies follows from its descriptor (start s, leading offset L, stride
//! offset S, swizzle of span W bytes; 16-byte chunks, addresses swizzled as in bulk copies):
//!
//! | operand | byte address of element (i, k) |
//! |---|---|
//! | K-major, no swizzle | s + (i / 8) S + (kb / 16) L + (i mod 8) 16 + kb mod 16, with kb the byte of k |
//! | K-major, swizzled | s + (i / 8) S + (i mod 8) W + kb |
//! | MN-major, no swizzle | s + (ib / 16) S + (k / 8) L + (k mod 8) 16 + ib mod 16, with ib the byte of i |
//! | MN-major, swizzled | s + (ib / W) L + (k / 8) S + (k mod 8) W + ib mod W |
//!
//! Products are exact and summed over K in `f32`, in order; integers in 32 bits.

use std::rc::Rc;

use tessera_ptx::Type;

use super::access::Target;
use super::asynchronous::{Busy, Product};
use super::matrix::{decode, finished, integer};
use super::undefined::{Element, Lack};
use super::{Cluster, Fault, Warp};
use crate::finding::FindingKind;
use crate::lanes::{FULL, LANES};
use crate::ops::half::to_f16;
use crate::program::{Program, Reg, SHARED_START, Wgmma, WgmmaA};
use crate::sanitize::{JobAccess, JobPart};
use crate::tensor_map::swizzle;
use tessera_types::element;

/// Refuses what is not executed.
pub(crate) fn supported(wgmma: &Wgmma) -> Result<(), String> {
    let [_, a, _] = wgmma.types;
    if (wgmma.transpose_a || wgmma.transpose_b) && !matches!(a, Type::F16 | Type::Bf16) {
        return Err("only 16-bit operands of `wgmma` can be transposed".to_owned());
    }
    Ok(())
}

/// A product's number and the descriptor of its operand.
type OperandKey = (u64, u64);

/// Operands B that a warpgroup's warps have read: all four multiply with the same.
#[derive(Debug, Default)]
pub(super) struct Operands {
    /// K rows of N.
    floats: Vec<(OperandKey, Rc<Vec<f32>>, Lack)>,
    /// N rows of K.
    integers: Vec<(OperandKey, Rc<Vec<i32>>, Lack)>,
}

/// Where the stored elements of a sparse A stand along K, row by row, and the rows of which that is not known.
pub(super) struct Places {
    of_rows: Vec<usize>,
    lack: Lack,
}

/// Rows of a warp.
const ROWS: usize = 16;

/// A shared-memory descriptor.
#[derive(Clone, Copy, Debug)]
struct Matrix {
    start: u32,
    leading: u32,
    stride: u32,
    /// As tensor maps count: 0 none, 1 to 3 for 32, 64 and 128 bytes.
    mode: u8,
    span: u32,
    mn_major: bool,
    bits: u32,
}

impl Matrix {
    fn new(word: u64, mn_major: bool, bits: u32) -> Result<Matrix, String> {
        let field = |at: u32| ((word >> at & 0x3fff) as u32) << 4;
        let (mode, span) = match word >> 62 {
            0 => (0, 16),
            1 => (3, 128),
            2 => (2, 64),
            _ => (1, 32),
        };
        if word >> 49 & 7 != 0 {
            return Err("descriptors with a base offset are not executed by this emulator".to_owned());
        }
        Ok(Matrix { start: field(0), leading: field(16), stride: field(32), mode, span, mn_major, bits })
    }

    /// The byte address of an element, and for single bits the bit.
    fn address(self, i: u32, k: u32) -> u32 {
        let linear = match (self.mn_major, self.mode) {
            (false, 0) => {
                let kb = k * self.bits / 8;
                self.start + i / 8 * self.stride + kb / 16 * self.leading + i % 8 * 16 + kb % 16
            }
            (false, _) => self.start + i / 8 * self.stride + i % 8 * self.span + k * self.bits / 8,
            (true, 0) => {
                let ib = i * self.bits / 8;
                self.start + ib / 16 * self.stride + k / 8 * self.leading + k % 8 * 16 + ib % 16
            }
            (true, _) => {
                let ib = i * self.bits / 8;
                self.start + ib / self.span * self.leading + k / 8 * self.stride + k % 8 * self.span + ib % self.span
            }
        };
        swizzle(linear, self.mode)
    }
}

/// The descriptors that a warp gives; all lanes must give the same.
pub(super) fn descriptors(warp: &Warp, wgmma: &Wgmma) -> Result<(u64, u64), Fault> {
    let uniform = |reg: Reg| {
        let first = warp.value(reg, 0);
        match (1..LANES).find(|&lane| warp.value(reg, lane) != first) {
            None => Ok(first),
            Some(lane) => Err(Fault::new(FindingKind::Matrix, lane, "the lanes of a warp give different descriptors")),
        }
    };
    let a = match wgmma.a {
        WgmmaA::Descriptor(reg) => uniform(reg)?,
        WgmmaA::Registers(_) => 0,
    };
    Ok((a, uniform(wgmma.b)?))
}

/// Notes which registers a product uses.
pub(super) fn mark(warp: &mut Warp, wgmma: &Wgmma) {
    let busy = &mut warp.asynchronous.busy;
    if busy.is_empty() {
        return;
    }
    for reg in wgmma.operands() {
        busy[reg.slot as usize] = Busy::Operand;
    }
    if let Some(reg) = wgmma.metadata() {
        busy[reg.slot as usize] = Busy::Metadata;
    }
    for reg in &wgmma.d {
        busy[reg.slot as usize] = Busy::Accumulator;
    }
}

/// Notes anew which registers are in use, after products were waited for.
pub(super) fn remark(warp: &mut Warp, program: &Program) {
    for busy in &mut warp.asynchronous.busy {
        if matches!(busy, Busy::Operand | Busy::Metadata | Busy::Accumulator) {
            *busy = Busy::Free;
        }
    }
    let left: Vec<u32> = warp.asynchronous.products.iter().map(|product| product.pc).collect();
    for pc in left {
        if let crate::program::Op::Wgmma(wgmma) = &program.code[pc as usize].op {
            mark(warp, wgmma);
        }
    }
}

impl Matrix {
    /// The elements in shared memory as `rows` rows of `k`, each by `decode`; `visit` is told of each run of bytes.
    fn gather<T: Copy + Default>(
        self,
        memory: &[u8],
        (first, rows, k): (u32, u32, u32),
        decode: impl Fn(u64) -> T,
        mut visit: impl FnMut(u32, u32),
    ) -> Result<Vec<T>, Fault> {
        let mut out = vec![T::default(); (rows * k) as usize];
        let bytes = (self.bits / 8).max(1) as usize;
        // A run of 16 bytes stays together under every layout.
        let (outer, inner) = if self.mn_major { (k, rows) } else { (rows, k) };
        let per_chunk = 128 / self.bits;
        for major in 0..outer {
            let mut minor = 0;
            while minor < inner {
                let (i, at_k) = if self.mn_major { (first + minor, major) } else { (first + major, minor) };
                let start = self.address(i, at_k);
                // MN-major runs may begin inside a chunk only where `first` does.
                let count = (per_chunk - (if self.mn_major { i % per_chunk } else { at_k % per_chunk })).min(inner - minor);
                let end = start as usize + (count * self.bits / 8) as usize;
                if start < SHARED_START || end > memory.len() {
                    let message = format!(
                        "a matrix descriptor leads to shared {start:#x}: the block's memory is {SHARED_START:#x} to {:#x}",
                        memory.len()
                    );
                    return Err(Fault::new(FindingKind::OutOfBounds, 0, message));
                }
                visit(start, end as u32 - start);
                for element in 0..count {
                    let at = start as usize + (element * self.bits / 8) as usize;
                    let mut word = [0; 8];
                    word[..bytes].copy_from_slice(&memory[at..at + bytes]);
                    let code = u64::from_le_bytes(word) >> if self.bits < 8 { element * self.bits % 8 } else { 0 };
                    let (row, column) = if self.mn_major { (minor + element, major) } else { (major, minor + element) };
                    out[(row * k + column) as usize] = decode(code);
                }
                minor += count;
            }
        }
        Ok(out)
    }
}

impl Cluster<'_> {
    /// The elements of a shared operand as `rows` rows of `k`, each by `decode`, and the rows that lack something.
    fn gather_matrix<T: Copy + Default>(
        &mut self,
        warp: &Warp,
        product: &Product,
        matrix: Matrix,
        range: (u32, u32, u32),
        decode: impl Fn(u64) -> T,
    ) -> Result<(Vec<T>, Lack), Fault> {
        let mut chunks = Vec::new();
        let watched = self.sanitizer.is_some();
        let visit = |start: u32, bytes: u32| {
            if watched {
                chunks.push((start, bytes));
            }
        };
        let elements = match matrix.gather(&self.blocks[warp.rank].shared, range, decode, visit) {
            Ok(elements) => elements,
            Err(fault) => {
                self.pass(warp, product.pc, fault)?;
                return Ok((vec![T::default(); (range.1 * range.2) as usize], Lack::default()));
            }
        };
        let mask = if matrix.bits < 8 { (1 << matrix.bits) - 1 } else { u64::MAX };
        let lack = self.lack_of_memory(warp, product.pc, &chunks, range.2 as usize, |memory| {
            matrix.gather(memory, range, |code| code & mask != 0, |_, _| ()).unwrap_or_default()
        });
        if let Some(mut sanitizer) = self.sanitizer.take() {
            let by = JobPart { ticket: product.ticket, pc: product.pc, lane: None };
            for (offset, bytes) in chunks {
                let target = Target::Shared { rank: warp.rank, offset };
                sanitizer.job_access(self, by, target, bytes, JobAccess::Read);
            }
            self.sanitizer = Some(sanitizer);
        }
        Ok((elements, lack))
    }

    /// Which elements of a warp's part of D are undefined.
    fn follow_product(&mut self, warp: &mut Warp, wgmma: &Wgmma, product: &Product, (a, b): (&Lack, &Lack)) {
        let Some(undefined) = &warp.undefined else { return };
        let adds = product.accumulate;
        if a.is_none() && b.is_none() && (!adds || wgmma.d.iter().all(|reg| undefined.lanes(reg.slot) == 0)) {
            let Some(undefined) = &mut warp.undefined else { return };
            wgmma.d.iter().for_each(|reg| undefined.clear(reg.slot, FULL));
            return;
        }
        let packed = wgmma.types[0] == Type::F16;
        let mut elements = Vec::with_capacity(ROWS * usize::from(wgmma.n));
        each_place(usize::from(wgmma.n), packed, |row, column, reg, lane, shift| {
            let reg = wgmma.d[reg];
            let before = if adds { undefined.bits(reg.slot, reg.wide, lane) >> shift } else { 0 };
            elements.push((Element { row, column, reg, lane, shift, bits: if packed { 16 } else { 32 } }, before));
        });
        let summand = if adds { self.origin_of_any(warp, product.pc, &wgmma.d) } else { None };
        self.spread_product(warp, (a, b), elements.into_iter(), summand);
    }

    /// The places that a warp gives to a product of a sparse A.
    fn places_of(&mut self, warp: &Warp, pc: u32, wgmma: &Wgmma) -> Result<Option<Places>, Fault> {
        let Some(metadata) = wgmma.sparse else { return Ok(None) };
        let ([_, ty, _], k) = (wgmma.types, usize::from(wgmma.k));
        let of_rows = super::sparse::places(&|reg, lane| warp.value(reg, lane), metadata, ty, k)?;
        Ok(Some(Places { of_rows, lack: self.lack_of_places(warp, pc, wgmma.sparse, ty, k) }))
    }

    pub(super) fn multiply(
        &mut self,
        warp: &mut Warp,
        wgmma: &Wgmma,
        product: &Product,
        shared: &mut Operands,
    ) -> Result<(), Fault> {
        let key = (product.number, product.b);
        let [d_ty, a_ty, b_ty] = wgmma.types;
        let width = |ty: Type| if ty == Type::Tf32 { 32 } else { ty.bits() };
        let (n, k) = (usize::from(wgmma.n), usize::from(wgmma.k));
        // What is stored of A, and where along K it stands.
        let read = |reg: Reg, lane: usize| warp.value(reg, lane);
        let places = self.places_of(warp, product.pc, wgmma)?;
        let places = places.as_ref();
        let stored = if places.is_some() { k / 2 } else { k };
        let place = |row: usize, at: usize| places.map_or(at, |places| places.of_rows[row * stored + at]);
        let shape = |message: String| Fault::new(FindingKind::Matrix, 0, message);
        let b = Matrix::new(product.b, wgmma.transpose_b, width(b_ty)).map_err(shape)?;
        let row = (warp.index % 4) * ROWS as u32;
        let integers = matches!(a_ty, Type::S8 | Type::U8 | Type::B1);
        let a = match &wgmma.a {
            WgmmaA::Descriptor(_) => Some(Matrix::new(product.a, wgmma.transpose_a, width(a_ty)).map_err(shape)?),
            WgmmaA::Registers(_) => None,
        };
        let registers = match &wgmma.a {
            WgmmaA::Registers(regs) => register_operand(&read, regs, width(a_ty), stored),
            WgmmaA::Descriptor(_) => Vec::new(),
        };
        let lack = match &wgmma.a {
            WgmmaA::Registers(regs) => {
                self.lack_of_registers(warp, product.pc, regs, stored, |read| register_operand(read, regs, width(a_ty), stored))
            }
            WgmmaA::Descriptor(_) => Lack::default(),
        };
        let lack_places = places.map_or_else(Lack::default, |places| places.lack);
        let (a_range, b_range) = ((row, ROWS as u32, stored as u32), (0, n as u32, k as u32));
        if integers {
            let read = |ty: Type| move |code: u64| if ty == Type::B1 { (code & 1) as i32 } else { integer(ty, code) };
            let (a, lack_a) = match a {
                Some(matrix) => self.gather_matrix(warp, product, matrix, a_range, read(a_ty))?,
                None => (registers.into_iter().map(read(a_ty)).collect(), lack),
            };
            let known = shared.integers.iter().find(|(own, ..)| *own == key).map(|(_, b, lack)| (Rc::clone(b), *lack));
            let (b, lack_b) = match known {
                Some(known) => known,
                None => {
                    let (b, lack) = self.gather_matrix(warp, product, b, b_range, read(b_ty))?;
                    let b = Rc::new(b);
                    shared.integers.push((key, Rc::clone(&b), lack));
                    (b, lack)
                }
            };
            self.follow_product(warp, wgmma, product, (&lack_a.or(&lack_places), &lack_b));
            integer_product(warp, wgmma, product, (&a, stored, &place), &b, (n, k));
            return Ok(());
        }
        let sign = |negate: bool| if negate { -1.0f32 } else { 1.0 };
        let (sign_a, sign_b) = (sign(wgmma.negate_a), sign(wgmma.negate_b));
        let (a, lack_a) = match a {
            Some(matrix) => self.gather_matrix(warp, product, matrix, a_range, |code| sign_a * decode(a_ty, code))?,
            None => (registers.into_iter().map(|code| sign_a * decode(a_ty, code)).collect(), lack),
        };
        let known = shared.floats.iter().find(|(own, ..)| *own == key).map(|(_, across, lack)| (Rc::clone(across), *lack));
        let (across, lack_b) = match known {
            Some(known) => known,
            None => {
                let (b, lack) = self.gather_matrix(warp, product, b, b_range, |code| sign_b * decode(b_ty, code))?;
                // B with N contiguous, so that the sums of a row are vector code.
                let mut across = vec![0.0f32; n * k];
                for (column, values) in b.chunks_exact(k).enumerate() {
                    for (at, value) in values.iter().enumerate() {
                        across[at * n + column] = *value;
                    }
                }
                let across = Rc::new(across);
                shared.floats.push((key, Rc::clone(&across), lack));
                (across, lack)
            }
        };
        self.follow_product(warp, wgmma, product, (&lack_a.or(&lack_places), &lack_b));
        let packed = d_ty == Type::F16;
        let mut sums = vec![0.0f32; ROWS * n];
        if product.accumulate {
            each_place(n, packed, |row, column, reg, lane, shift| {
                let code = warp.value(wgmma.d[reg], lane) >> shift;
                sums[row * n + column] = if packed { element::f16_to_f32(code as u16) } else { f32::from_bits(code as u32) };
            });
        }
        for (row, sums) in sums.chunks_exact_mut(n).enumerate() {
            for at in 0..stored {
                let (a, b) = (a[row * stored + at], &across[place(row, at) * n..][..n]);
                for (sum, b) in sums.iter_mut().zip(b) {
                    *sum += a * b;
                }
            }
        }
        if packed {
            each_place(n, true, |row, column, reg, lane, shift| {
                if shift == 0 {
                    let pair = u64::from(to_f16(sums[row * n + column])) | u64::from(to_f16(sums[row * n + column + 1])) << 16;
                    warp.set(wgmma.d[reg], lane, pair);
                }
            });
        } else {
            each_place(n, false, |row, column, reg, lane, _| {
                warp.set(wgmma.d[reg], lane, u64::from(finished(sums[row * n + column]).to_bits()));
            });
        }
        Ok(())
    }
}

/// A's rows come with how many elements of each are stored, and where along K they stand.
fn integer_product(
    warp: &mut Warp,
    wgmma: &Wgmma,
    product: &Product,
    (a, stored, place): (&[i32], usize, &dyn Fn(usize, usize) -> usize),
    b: &[i32],
    (n, k): (usize, usize),
) {
    let mut results = vec![0i64; ROWS * n];
    for row in 0..ROWS {
        for column in 0..n {
            let products = (0..stored).map(|at| i64::from(a[row * stored + at] * b[column * k + place(row, at)]));
            results[row * n + column] = products.sum();
        }
    }
    each_place(n, false, |row, column, reg, lane, _| {
        let before = if product.accumulate { warp.value(wgmma.d[reg], lane) as i32 } else { 0 };
        let sum = results[row * n + column] + i64::from(before);
        let sum = if wgmma.saturate { sum.clamp(i64::from(i32::MIN), i64::from(i32::MAX)) } else { sum };
        warp.set(wgmma.d[reg], lane, u64::from(sum as u32));
    });
}

/// Every element of a warp's part of D: row, column, register, lane, and the shift of a packed half.
#[inline(always)]
fn each_place(n: usize, packed: bool, mut visit: impl FnMut(usize, usize, usize, usize, u32)) {
    for value in 0..n / 2 {
        let (reg, shift) = if packed { (value / 2, 16 * (value as u32 % 2)) } else { (value, 0) };
        for lane in 0..LANES {
            let row = lane / 4 + 8 * (value / 2 % 2);
            let column = 8 * (value / 4) + 2 * (lane % 4) + value % 2;
            visit(row, column, reg, lane, shift);
        }
    }
}

/// Operand A in four registers: the codes of 16 rows of K.
fn register_operand(read: &dyn Fn(Reg, usize) -> u64, regs: &[Reg], bits: u32, k: usize) -> Vec<u64> {
    let each = (32 / bits) as usize;
    let mut codes = vec![0; ROWS * k];
    for (index, reg) in regs.iter().enumerate() {
        for lane in 0..LANES {
            let (row, chunk) = (lane / 4 + 8 * (index % 2), index / 2);
            let value = read(*reg, lane);
            for element in 0..each {
                let at = chunk * 4 * each + lane % 4 * each + element;
                codes[row * k + at] = value >> (element as u32 * bits) & ((1 << bits) - 1);
            }
        }
    }
    codes
}
