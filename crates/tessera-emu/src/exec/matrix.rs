//! Warp-level matrix instructions: `ldmatrix`, `stmatrix`, `movmatrix` and `mma.sync`.
//!
//! With g = lane / 4 and c = lane % 4, one register of A or B holds the elements `c * e .. c * e + e` of a chunk of 4e along K
//! (e elements a register): register i of A has row g + 8 (i mod 2) and chunk i / 2 (with 8 rows: row g, chunk i), register i
//! of B has column g and chunk i. Value i of C and D has row g + 8 (i / 2) and column 2c + i mod 2 (PTX ISA, "Matrix Fragments
//! for mma"). Products are exact and summed over K in `f32` (f64 for `f64`), in order.

use tessera_ptx::Type;
use tessera_types::element;

use super::access::{Kind, Target, addresses};
use super::{Cluster, Fault, Warp, quad_pairs, sparse};
use crate::finding::FindingKind;
use crate::lanes::{FULL, LANES, Slot};
use crate::ops::half::to_f16;
use crate::ops::round::{self, NAN_F32, Operation};
use crate::program::{Addr, Mma, Op, Order, Reg, Scope};

/// The number that a floating-point code stands for.
pub(super) fn decode(ty: Type, code: u64) -> f32 {
    match ty {
        Type::F16 => element::f16_to_f32(code as u16),
        Type::Bf16 => element::bf16_to_f32(code as u16),
        Type::Tf32 => f32::from_bits(code as u32 & 0xffff_e000),
        Type::E4m3 => element::f8e4m3_to_f32(code as u8),
        Type::E5m2 => element::f8e5m2_to_f32(code as u8),
        _ => f32::from_bits(code as u32),
    }
}

/// The number that an integer code stands for.
pub(super) fn integer(ty: Type, code: u64) -> i32 {
    match ty {
        Type::S8 => i32::from(code as i8),
        Type::U8 => i32::from(code as u8),
        Type::S4 => i32::from((code as u8) << 4) << 24 >> 28,
        _ => (code & 0xf) as i32,
    }
}

/// Bits of an operand's element in a register.
pub(super) fn width(ty: Type) -> u32 {
    if ty == Type::Tf32 { 32 } else { ty.bits() }
}

/// An f32 result as the chip writes it.
pub(super) fn finished(value: f32) -> f32 {
    if value.is_nan() { f32::from_bits(NAN_F32) } else { value }
}

impl Cluster<'_> {
    /// Counts the passes of a warp's rows of 16 bytes, eight a matrix.
    fn advise_rows(&mut self, warp: &Warp, addr: Addr, matrices: usize, pc: u32) {
        if self.advice.is_some() {
            let at = addresses(warp, addr);
            let rows = if matrices >= 4 { FULL } else { (1 << (8 * matrices)) - 1 };
            self.advise(warp, rows, pc, addr.space, &at, 16);
        }
    }

    pub(super) fn matrix(&mut self, warp: &mut Warp, mask: u32, pc: u32, op: &Op) -> Result<(), Fault> {
        if mask != FULL {
            let message = "a matrix instruction needs all 32 lanes of its warp";
            return Err(Fault::new(FindingKind::Matrix, mask.trailing_zeros() as usize, message));
        }
        match op {
            Op::LoadMatrix { to, addr, transpose } => {
                self.advise_rows(warp, *addr, to.len(), pc);
                let Some(rows) = self.matrix_rows(warp, *addr, to.len(), pc, None)? else {
                    to.iter().for_each(|to| (0..LANES).for_each(|lane| warp.set(*to, lane, 0)));
                    return Ok(());
                };
                for (matrix, to) in to.iter().enumerate() {
                    let rows = &rows[8 * matrix..8 * matrix + 8];
                    for lane in 0..LANES {
                        let word = fragment(rows, *transpose, lane, |(rank, at)| &self.blocks[rank].shared[at..]);
                        warp.set(*to, lane, u64::from(word));
                    }
                    self.follow_fragments(warp, pc, rows, *transpose, *to);
                }
            }
            Op::StoreMatrix { from, addr, transpose } => {
                self.progress += 1;
                self.advise_rows(warp, *addr, from.len(), pc);
                let content = rows_of(warp, from, *transpose);
                let Some(rows) = self.matrix_rows(warp, *addr, from.len(), pc, Some(&content))? else { return Ok(()) };
                for (&(rank, offset), content) in rows.iter().zip(&content) {
                    self.blocks[rank].shared[offset as usize..][..16].copy_from_slice(content);
                }
                for (matrix, from) in from.iter().enumerate() {
                    let origin = self.origin_of_any(warp, pc, &[*from]);
                    for lane in 0..LANES {
                        let undefined = warp.undefined.as_ref().map_or(0, |undefined| undefined.bits(from.slot, false, lane));
                        for half in 0..2 {
                            let (row, column) = element(*transpose, lane, half);
                            let (rank, offset) = rows[8 * matrix + row];
                            let bits = ((undefined >> (16 * half)) as u16).to_le_bytes();
                            self.blocks[rank].undefined.store(offset as usize + 2 * column, &bits, |_| origin);
                        }
                    }
                }
            }
            Op::MoveMatrix { to, from } => {
                // Element (row, column) stands in lane 4 row + column / 2.
                let turned = |source: &Slot, lane: usize| {
                    let (g, c) = (lane / 4, lane % 4);
                    let half = |row: usize, column: usize| source.n()[4 * row + column / 2] >> (16 * (column % 2)) & 0xffff;
                    u64::from(half(2 * c, g) | half(2 * c + 1, g) << 16)
                };
                let origin = self.origin_of_any(warp, pc, &[*from]);
                if let Some(undefined) = &mut warp.undefined {
                    let source = undefined.slot(from.slot, false);
                    for lane in 0..LANES {
                        undefined.set(to.slot, false, lane, turned(&source, lane), origin.unwrap_or_default());
                    }
                }
                let source = warp.regs[from.slot as usize];
                (0..LANES).for_each(|lane| warp.set(*to, lane, turned(&source, lane)));
            }
            Op::Mma(mma) => {
                self.follow_mma(warp, pc, mma);
                multiply(warp, mma)?;
            }
            Op::WmmaLoad { to, addr, stride, piece } => self.load_piece(warp, pc, to, *addr, *stride, *piece)?,
            Op::WmmaStore { from, addr, stride, piece } => self.store_piece(warp, pc, from, *addr, *stride, *piece)?,
            Op::Wmma(mma) => self.multiply_pieces(warp, pc, mma),
            _ => {}
        }
        Ok(())
    }

    /// The row addresses of a matrix access: lane 8i + r has row r of matrix i; of a store with what it writes there. None where one lies
    /// outside and is let pass.
    fn matrix_rows(
        &mut self,
        warp: &mut Warp,
        addr: Addr,
        matrices: usize,
        pc: u32,
        content: Option<&[[u8; 16]]>,
    ) -> Result<Option<Vec<(usize, u32)>>, Fault> {
        let at = addresses(warp, addr);
        let mut rows = Vec::with_capacity(8 * matrices);
        for (lane, address) in at.iter().enumerate().take(8 * matrices) {
            let target = match self.resolve(warp, addr.space, *address, 16, 16, lane) {
                Ok(target) => target,
                Err(fault) => {
                    self.pass(warp, pc, fault)?;
                    continue;
                }
            };
            match target {
                Target::Shared { rank, offset } => {
                    if self.sanitizer.is_some() {
                        let held = &self.blocks[rank].shared[offset as usize..][..16];
                        let same = content.is_some_and(|content| content[lane] == held);
                        let kind = Kind { same, ..Kind::plain(content.is_some(), 4, Order::Weak, Scope::Cta) };
                        self.observe(warp, Target::Shared { rank, offset }, 16, lane, kind, pc);
                    }
                    rows.push((rank, offset));
                }
                _ => return Err(Fault::new(FindingKind::Matrix, lane, format!("{address:#x} is not in shared memory"))),
            }
        }
        Ok(Some(rows).filter(|rows| rows.len() == 8 * matrices))
    }
}

/// The rows that a store of 8 x 8 matrices writes, eight a register.
fn rows_of(warp: &Warp, from: &[Reg], transpose: bool) -> Vec<[u8; 16]> {
    let mut rows = vec![[0; 16]; 8 * from.len()];
    for (matrix, from) in from.iter().enumerate() {
        for lane in 0..LANES {
            let value = warp.value(*from, lane);
            for half in 0..2 {
                let (row, column) = element(transpose, lane, half);
                let bytes = ((value >> (16 * half)) as u16).to_le_bytes();
                rows[8 * matrix + row][2 * column..2 * column + 2].copy_from_slice(&bytes);
            }
        }
    }
    rows
}

/// Row and column of one of a lane's two elements of an 8 x 8 matrix.
fn element(transpose: bool, lane: usize, half: usize) -> (usize, usize) {
    let (g, c) = (lane / 4, lane % 4);
    if transpose { (2 * c + half, g) } else { (g, 2 * c + half) }
}

/// A lane's two elements of an 8 x 8 matrix whose rows lie at eight places; `memory` gives the bytes from a place on.
pub(super) fn fragment<'m>(
    rows: &[(usize, u32)],
    transpose: bool,
    lane: usize,
    memory: impl Fn((usize, usize)) -> &'m [u8],
) -> u32 {
    let half = |half: usize| {
        let (row, column) = element(transpose, lane, half);
        let (rank, offset) = rows[row];
        let bytes = memory((rank, offset as usize + 2 * column));
        u32::from(bytes[0]) | u32::from(bytes[1]) << 8
    };
    half(0) | half(1) << 16
}

/// The codes of an operand, which `read` takes from registers, as rows of K: `rows` rows, or the columns of B.
pub(super) fn operand(read: &dyn Fn(Reg, usize) -> u64, regs: &[Reg], ty: Type, rows: usize, k: usize, is_a: bool) -> Vec<u64> {
    let bits = width(ty);
    let each = if ty == Type::F64 { 1 } else { 32 / bits as usize };
    let mask = if bits == 64 { u64::MAX } else { (1 << bits) - 1 };
    let mut codes = vec![0; rows * k];
    for (index, reg) in regs.iter().enumerate() {
        for lane in 0..LANES {
            let (g, c) = (lane / 4, lane % 4);
            let (row, chunk) = if is_a && rows == 16 { (g + 8 * (index % 2), index / 2) } else { (g, index) };
            let value = read(*reg, lane);
            for element in 0..each {
                let at = chunk * 4 * each + c * each + element;
                if at < k && row < rows {
                    codes[row * k + at] = value >> (element as u32 * bits) & mask;
                }
            }
        }
    }
    codes
}

/// Element `(row, column)` of C or D: which register, which lane, which half of a packed one.
pub(super) fn place(row: usize, column: usize, packed: bool) -> (usize, usize, u32) {
    let lane = 4 * (row % 8) + column / 2;
    let value = 2 * (row / 8) + column % 2;
    if packed { (value / 2, lane, 16 * (value as u32 % 2)) } else { (value, lane, 0) }
}

/// One element of D: the products of codes of A and B, and the code of C.
pub(super) fn dot<'a>(mma: &Mma, pairs: impl Iterator<Item = (&'a u64, &'a u64)>, c: u64) -> u64 {
    let [d_ty, a_ty, b_ty, c_ty] = mma.types;
    match a_ty {
        Type::F64 => {
            let fused = |a: f64, b: f64, sum: f64| match mma.directed {
                None => a.mul_add(b, sum),
                Some(mode) => round::double(Operation::Fma, mode, a, b, sum),
            };
            let sum = pairs.fold(f64::from_bits(c), |sum, (a, b)| fused(f64::from_bits(*a), f64::from_bits(*b), sum));
            sum.to_bits()
        }
        Type::S8 | Type::U8 | Type::S4 | Type::U4 => {
            let sum =
                pairs.fold(i64::from(c as i32), |sum, (a, b)| sum + i64::from(integer(a_ty, *a)) * i64::from(integer(b_ty, *b)));
            let sum = if mma.saturate { sum.clamp(i64::from(i32::MIN), i64::from(i32::MAX)) } else { sum };
            u64::from(sum as u32)
        }
        Type::B1 => {
            let count = pairs.filter(|(a, b)| if mma.xor { a != b } else { **a & **b == 1 }).count();
            u64::from((c as u32).wrapping_add(count as u32))
        }
        _ => encode_sum(d_ty, pairs.fold(decode_sum(c_ty, c), |sum, (a, b)| decode(a_ty, *a) * decode(b_ty, *b) + sum)),
    }
}

/// What a floating-point code of C adds.
fn decode_sum(c_ty: Type, c: u64) -> f32 {
    if c_ty == Type::F16 { element::f16_to_f32(c as u16) } else { f32::from_bits(c as u32) }
}

/// A floating-point element of D.
fn encode_sum(d_ty: Type, sum: f32) -> u64 {
    if d_ty == Type::F16 { u64::from(to_f16(sum)) } else { u64::from(finished(sum).to_bits()) }
}

/// All elements of D as [`dot`] gives them, where factors are floats of 32 bits at most: each is decoded once, and the sums of a row
/// stand side by side. `along` says where along K an element of A stands, by its row and its place in it.
fn float_results(
    [d_ty, a_ty, b_ty, c_ty]: [Type; 4],
    (a, b): (&[u64], &[u64]),
    (m, n, k): (usize, usize, usize),
    along: impl Fn(usize, usize) -> usize,
    c: impl Fn(usize, usize) -> u64,
) -> Vec<u64> {
    let stored = a.len() / m;
    let mut across = vec![0.0; k * n];
    for (at, code) in b.iter().enumerate() {
        across[at % k * n + at / k] = decode(b_ty, *code);
    }
    let mut results = Vec::with_capacity(m * n);
    for (row, a) in a.chunks_exact(stored).enumerate() {
        let mut sums: Vec<f32> = (0..n).map(|column| decode_sum(c_ty, c(row, column))).collect();
        for (at, a) in a.iter().enumerate() {
            let a = decode(a_ty, *a);
            for (sum, b) in sums.iter_mut().zip(&across[along(row, at) * n..]) {
                *sum += a * b;
            }
        }
        results.extend(sums.into_iter().map(|sum| encode_sum(d_ty, sum)));
    }
    results
}

fn multiply(warp: &mut Warp, mma: &Mma) -> Result<(), Fault> {
    let (m, n, k) = (usize::from(mma.shape.0), usize::from(mma.shape.1), usize::from(mma.shape.2));
    let [d_ty, a_ty, b_ty, c_ty] = mma.types;
    if quad_pairs::is_one(mma) {
        quad_pairs::multiply(warp, mma);
        return Ok(());
    }
    let read = |reg: Reg, lane: usize| warp.value(reg, lane);
    let places = mma.sparse.map(|metadata| sparse::places(&read, metadata, a_ty, k)).transpose()?;
    let stored = if places.is_some() { k / 2 } else { k };
    let a = operand(&read, &mma.a, a_ty, m, stored, true);
    let b = operand(&read, &mma.b, b_ty, n, k, false);
    let along = |row: usize, at: usize| places.as_ref().map_or(at, |places| places[row * stored + at]);
    let c = |row: usize, column: usize| {
        let (reg, lane, shift) = place(row, column, c_ty == Type::F16);
        warp.value(mma.c[reg], lane) >> shift
    };
    let results = match a_ty {
        Type::F16 | Type::Bf16 | Type::Tf32 | Type::E4m3 | Type::E5m2 => float_results(mma.types, (&a, &b), (m, n, k), along, c),
        _ => {
            let factors = |row: usize, column: usize| {
                let (a, b) = (&a[row * stored..][..stored], &b[column * k..][..k]);
                a.iter().enumerate().map(move |(at, a)| (a, &b[along(row, at)]))
            };
            let element = |at: usize| dot(mma, factors(at / n, at % n), c(at / n, at % n));
            (0..m * n).map(element).collect()
        }
    };
    if d_ty == Type::F16 {
        for row in 0..m {
            for pair in 0..n / 2 {
                let (reg, lane, _) = place(row, 2 * pair, true);
                let value = results[row * n + 2 * pair] | results[row * n + 2 * pair + 1] << 16;
                warp.set(mma.d[reg], lane, value);
            }
        }
        return Ok(());
    }
    for row in 0..m {
        for column in 0..n {
            let (reg, lane, _) = place(row, column, false);
            warp.set(mma.d[reg], lane, results[row * n + column]);
        }
    }
    Ok(())
}
