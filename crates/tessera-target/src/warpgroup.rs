//! Products of warpgroups: started, in flight, waited for.
//!
//! Where the tensor cores sum up with fewer bits than the accumulator has, sums of a part of the contraction are added to it.
//!
//! An accumulator's registers enumerate blocks of 64 rows, then instructions along the columns. A factor in shared memory is
//! named by a descriptor whose constant part follows from the buffer's layout and whose address moves from instruction to
//! instruction.

use tessera_ir::attrs::Signedness;
use tessera_ir::{Elem, OpData, TileOp, Type, Value, bug};
use tessera_layout::{Distribution, MatrixDescriptor, MmaAtom, Operand, WarpGrid};
use tessera_ptx::ssa::{Class, Value as Reg, WgmmaA, WgmmaOptions};
use tessera_ptx::{Type as Ty, Word};
use tessera_types::DType;

use super::bound::{Bound, Buffer, Entry, Regs};
use super::lowering::{Lowered, Lowering};
use super::operation::astray;
use super::sparse::Metadata;
use tessera_analysis::arrangement::engine_span;

/// Columns of a product whose sums are not the accumulator.
const MOST_SUMS: u64 = 128;

/// The words of an instruction, `depth` steps of the contraction deep, that say its shape and types.
fn instruction((atom, depth): (&MmaAtom, u64), out: DType, lhs: (DType, Signedness), rhs: (DType, Signedness)) -> String {
    let name = |(dtype, sign): (DType, Signedness)| match dtype {
        DType::F8E4M3 => "e4m3",
        DType::F8E5M2 => "e5m2",
        DType::I8 if sign == Signedness::Unsigned => "u8",
        DType::I8 => "s8",
        other => other.name(),
    };
    let result = if out == DType::I32 { "s32" } else { out.name() };
    format!("m64n{}k{depth}.{result}.{}.{}", atom.n, name(lhs), name(rhs))
}

/// A factor in shared memory.
struct Factor {
    buffer: Buffer,
    /// The axis of rows or columns, and the axis that is contracted.
    outer: usize,
    inner: usize,
    /// Bits of the descriptor's halves that do not depend on the address.
    low: u32,
    high: u32,
}

impl Lowering<'_> {
    /// Lowers an operation on products in flight.
    pub(super) fn warpgroups(&mut self, data: &OpData, kind: &TileOp) -> Lowered<()> {
        match kind {
            TileOp::Wgmma { lhs_signedness, rhs_signedness, .. } => {
                let regs = self.start(data, (*lhs_signedness, *rhs_signedness))?;
                self.bind_regs(data.result(), regs);
            }
            TileOp::WgmmaPromoted { depth } => {
                let regs = self.promoted(data, u64::from(*depth))?;
                self.bind_regs(data.result(), regs);
            }
            TileOp::WgmmaWait { pending } => {
                let mut all = Regs::new();
                for &value in data.group(0) {
                    all.extend(self.regs(value)?);
                }
                let kept = std::mem::take(&mut self.in_flight);
                let done = self.b.wgmma_wait(*pending, &all, &kept);
                if *pending > 0 {
                    self.in_flight = kept;
                }
                let mut at = 0;
                for (&value, &result) in data.group(0).iter().zip(&data.results) {
                    let count = self.regs(value)?.len();
                    self.bind_regs(result, done[at..at + count].iter().copied());
                    at += count;
                }
            }
            _ => astray(kind),
        }
        Ok(())
    }

    /// The instruction and the grid of warps whose accumulator a layout is. An instruction's columns begin where a slab of the right factor does.
    fn group_atom(&self, right: &Buffer, acc: &Distribution) -> Lowered<(MmaAtom, WarpGrid)> {
        let dtype = right.elem;
        let slab = right.slabs.filter(|slabs| slabs.axis == 1).map_or(1, |slabs| slabs.elements);
        let shape = [acc.shape()[0], acc.shape()[1]];
        let grid = WarpGrid { m: acc.warps(), n: 1 };
        let legal = |n: &u64| {
            let whole = *n == shape[1] || n.is_multiple_of(slab);
            whole && shape[1].is_multiple_of(*n) && (dtype != DType::I8 || *n <= 24 || n.is_multiple_of(16))
        };
        for n in (1..=32).rev().map(|eights| 8 * eights).filter(legal) {
            let Ok(atom) = MmaAtom::wgmma(n, u64::from(dtype.bits())) else { continue };
            if atom.operand(Operand::C, shape, grid).is_ok_and(|layout| layout == *acc) {
                return Ok((atom, grid));
            }
        }
        Err(self.broken("an accumulator whose layout no warpgroup instruction has"))
    }

    fn start(&mut self, data: &OpData, signs: (Signedness, Signedness)) -> Lowered<Regs> {
        if !self.arch.has_wgmma() {
            return Err(self.unsupported("there are no products of warpgroups"));
        }
        let (lhs, rhs, acc) = (data.one(0), data.one(1), data.one(2));
        let (layout, out) = match self.func.ty(acc) {
            Type::Distributed(ty) | Type::InFlight(ty) => {
                (ty.layout.clone(), ty.tile.elem.num().ok_or_else(|| self.broken("an accumulator of pointers"))?)
            }
            _ => return Err(self.broken("an accumulator without a layout")),
        };
        let buffer = self.buffer(rhs)?;
        let dtype = buffer.elem;
        let depth = u64::from(buffer.shape[0]);
        let (atom, grid) = self.group_atom(&buffer, &layout)?;
        let right = self.factor(buffer, 1, 0)?;
        let stand = data.places().map(|places| self.group_places(places, (&atom, grid), dtype)).transpose()?;
        // What is stored of the left factor is as long as the instruction's line; the right one's is twice as long where that is a half.
        let deep = if stand.is_some() { 2 } else { 1 };
        let packs = out == DType::F16;
        let mut regs = self.regs(acc)?.to_vec();
        let in_flight = matches!(self.func.ty(acc), Type::InFlight(_));
        if packs && !in_flight {
            regs = self.factors(Elem::Num(out), &regs);
        }
        let left = match self.get(lhs)?.clone() {
            Bound::Buffer(buffer) => Some(self.factor(buffer, 0, 1)?),
            _ => None,
        };
        let mut a_regs = Vec::new();
        if left.is_none() {
            let wanted = atom.operand(Operand::A, [layout.shape()[0], depth / deep], grid);
            if !wanted.is_ok_and(|wanted| self.layout(lhs).is_ok_and(|found| found == wanted)) {
                return Err(self.broken("a left factor that is no fragment"));
            }
            let values = self.regs(lhs)?;
            a_regs = self.factors(Elem::Num(dtype), &values);
        }
        let left_type = if left.is_some() { self.buffer(lhs)?.elem } else { self.dtype(lhs)? };
        let shape = instruction((&atom, deep * atom.k), out, (left_type, signs.0), (dtype, signs.1));
        let groups = grid.m / 4;
        let rows = (layout.shape()[0] / (64 * groups)) as usize;
        let columns = (layout.shape()[1] / atom.n) as usize;
        let steps = (depth / (deep * atom.k)) as usize;
        let size = regs.len() / (rows * columns);
        let group = self.warpgroup();
        // What starts at zero is not read: the first instruction writes it.
        let fresh = !in_flight && self.func.constant(acc).is_some_and(|value| value.splat_bits() == Some(0));
        let mut all = if fresh { self.b.wgmma_fence(&[]) } else { self.b.wgmma_fence(&regs) };
        if fresh {
            all = regs.to_vec();
        }
        for step in 0..steps {
            for row in 0..rows {
                for column in 0..columns {
                    let at = (row * columns + column) * size;
                    let b = self.descriptor(&right, None, column as u64 * atom.n, step as u64 * deep * atom.k);
                    let sparse = stand.as_ref().map(|stand| stand.at((row, step), rows));
                    let options = |transposed: (bool, bool)| WgmmaOptions {
                        fresh: fresh && step == 0,
                        sparse,
                        transpose_a: transposed.0,
                        transpose_b: transposed.1,
                        ..WgmmaOptions::default()
                    };
                    let turned = right.buffer.strides[right.inner] != 1;
                    let done = match &left {
                        Some(left) => {
                            let first = row as u64 * 64 * groups;
                            let moved = (groups > 1).then_some((group, 64));
                            let a = self.descriptor(left, moved, first, step as u64 * atom.k);
                            let options = options((left.buffer.strides[left.inner] != 1, turned));
                            self.b.wgmma(&shape, &all[at..at + size], WgmmaA::Shared(a), b, options)
                        }
                        None => {
                            let count = a_regs.len() / (rows * steps);
                            let a = a_regs[(row * steps + step) * count..][..count].to_vec();
                            self.in_flight.extend(a.iter().copied());
                            self.b.wgmma(&shape, &all[at..at + size], WgmmaA::Registers(&a), b, options((false, turned)))
                        }
                    };
                    all.splice(at..at + size, done);
                }
            }
        }
        self.b.wgmma_commit();
        if packs {
            return Err(self.unsupported("warpgroup products accumulate in `f32` and `i32` here"));
        }
        Ok(all.into_iter().collect())
    }

    /// The registers that say where the left factor of a product stands that is stored by half. Products read them while they are under way.
    fn group_places(&mut self, places: Value, (atom, grid): (&MmaAtom, WarpGrid), dtype: DType) -> Lowered<Metadata> {
        let layout = self.layout(places)?;
        let words = layout.shape()[1];
        if !atom.places([layout.shape()[0], words], grid).is_ok_and(|wanted| wanted == layout) {
            return Err(self.broken("places of a left factor that do not lie as the instruction takes them"));
        }
        let regs = self.regs(places)?;
        Ok(self.metadata(dtype, &regs, words))
    }

    /// A product whose sums over `depth` elements of the contraction are added to the accumulator by each thread. Sums of at most
    /// 128 columns are under way at a time: registers for the accumulator and for all of its sums would be too many.
    fn promoted(&mut self, data: &OpData, depth: u64) -> Lowered<Regs> {
        if !self.arch.has_wgmma() {
            return Err(self.unsupported("there are no products of warpgroups"));
        }
        let (lhs, rhs) = (self.buffer(data.one(0))?, self.buffer(data.one(1))?);
        let layout = self.layout(data.one(2))?;
        let (left_type, right_type) = (lhs.elem, rhs.elem);
        let contraction = u64::from(rhs.shape[0]);
        let (whole, grid) = self.group_atom(&rhs, &layout)?;
        let (left, right) = (self.factor(lhs, 0, 1)?, self.factor(rhs, 1, 0)?);
        // Part of an instruction's columns: its registers are the first of the whole one's.
        let parts = (1..).find(|parts| whole.n.is_multiple_of(8 * parts) && whole.n / parts <= MOST_SUMS);
        let parts = parts.unwrap_or_else(|| bug!("a product that divides into no parts"));
        let atom = MmaAtom::wgmma(whole.n / parts, u64::from(right_type.bits()))
            .map_err(|_| self.broken("a part of an instruction that is none"))?;
        let signed = Signedness::Signed;
        let shape = instruction((&atom, atom.k), DType::F32, (left_type, signed), (right_type, signed));
        let groups = grid.m / 4;
        let (rows, columns) = (layout.shape()[0] / (64 * groups), layout.shape()[1] / atom.n);
        let mut all = self.regs(data.one(2))?;
        let size = all.len() / (rows * columns) as usize;
        let group = self.warpgroup();
        let (zero, no) = (self.b.f32(0.0), self.b.bool(false));
        let mut sums = vec![zero; size];
        for first in (0..contraction).step_by(depth as usize) {
            for row in 0..rows {
                for column in 0..columns {
                    sums = self.b.wgmma_fence(&sums);
                    for inner in (first..first + depth).step_by(atom.k as usize) {
                        let moved = (groups > 1).then_some((group, 64));
                        let a = self.descriptor(&left, moved, row * 64 * groups, inner);
                        let b = self.descriptor(&right, None, column * atom.n, inner);
                        let options = WgmmaOptions { accumulate: (inner == first).then_some(no), ..WgmmaOptions::default() };
                        sums = self.b.wgmma(&shape, &sums, WgmmaA::Shared(a), b, options);
                    }
                    self.b.wgmma_commit();
                    sums = self.b.wgmma_wait(0, &sums, &[]);
                    let at = (row * columns + column) as usize * size;
                    for (value, &sum) in all[at..at + size].iter_mut().zip(&sums) {
                        *value = self.b.add(Ty::F32, *value, sum);
                    }
                }
            }
        }
        Ok(all)
    }

    /// The warpgroup's number in its team, the same in all of its lanes.
    pub(super) fn warpgroup(&mut self) -> Reg {
        if let Some(warp) = self.team.warp {
            let two = self.b.u32(2);
            return self.b.shr(Ty::U32, warp, two);
        }
        let (thread, seven, zero) = (self.thread(), self.b.u32(7), self.b.u32(0));
        let group = self.b.shr(Ty::U32, thread, seven);
        self.b.shfl(Word::Idx, group, zero, 31)
    }

    /// A buffer as a factor: its axes and the constant bits of its descriptors.
    fn factor(&self, buffer: Buffer, outer: usize, inner: usize) -> Lowered<Factor> {
        let bytes = buffer.elem.unpacked_bytes() as u64;
        let span = engine_span(buffer.swizzle);
        let fastest = buffer.strides.iter().position(|&stride| stride == 1);
        let (Some(span), Some(fastest)) = (span, fastest) else {
            return Err(self.unsupported("a factor without a swizzle of 32, 64 or 128 bytes cannot be read by warpgroups"));
        };
        let lines = 1 - fastest;
        if buffer.strides[lines] * bytes != span {
            return Err(self.unsupported("a factor whose lines are shorter than its swizzle cannot be read by warpgroups"));
        }
        let slab = buffer.slabs.map_or(span * u64::from(buffer.shape[lines]), |slabs| slabs.stride);
        let swizzle_code = match span {
            128 => 1,
            64 => 2,
            _ => 3,
        };
        let leading = if fastest == inner { 16 } else { slab };
        let bits = MatrixDescriptor { leading, stride: 8 * span, swizzle_code }.encode(0);
        Ok(Factor { buffer, outer, inner, low: bits as u32, high: (bits >> 32) as u32 })
    }

    /// The descriptor of the part of a factor from an outer and an inner coordinate on; `moved` adds multiples known at run time
    /// along the outer axis. Of a slot, the ring's is made once, outside of loops, and the slot's is one multiplication further.
    fn descriptor(&mut self, factor: &Factor, moved: Option<(Reg, u64)>, outer: u64, inner: u64) -> Reg {
        let mut corner = [0; 2];
        corner[factor.outer] = outer;
        corner[factor.inner] = inner;
        let entry = factor.buffer.entry;
        let mut address = entry.map_or(factor.buffer.base, |entry| entry.first);
        if let Some((group, rows)) = moved {
            let mut step = [0; 2];
            step[factor.outer] = rows;
            let step = self.b.u32(factor.buffer.offset(&step) as u32);
            address = self.b.mad(Ty::U32, group, step, address);
        }
        // Shared memory has fewer than 2^18 bytes: what is added to the field stays in it.
        let (four, mask, low) = (self.b.u32(4), self.b.u32(0x3fff), self.b.u32(factor.low));
        let field = self.b.shr(Ty::U32, address, four);
        let field = self.b.and(field, mask);
        let mut low = self.b.or(field, low);
        if let Some(Entry { index, bytes, .. }) = entry {
            let step = self.b.u32(bytes >> 4);
            low = self.b.mad(Ty::U32, index, step, low);
        }
        let offset = self.b.u32((factor.buffer.offset(&corner) >> 4) as u32);
        let low = self.b.add(Ty::U32, low, offset);
        let high = self.b.u32(factor.high);
        debug_assert_eq!(self.class(low), Class::B32);
        self.b.pack(&[low, high])
    }
}
