//! Matrix products: by the tensor instruction of a warp that an operation names (`tile.mma_sync`), else by multiply-adds of threads or
//! one element of the accumulator after the other from shared memory.
//!
//! A thread's registers of a fragment layout enumerate instructions row-major, each with its registers in the order that the
//! instruction wants, so an operand of one instruction is a slice of them. Factors of 16 bits go two to a register, of 8 bits
//! four.

use std::collections::BTreeMap;

use smallvec::SmallVec;
use tessera_ir::attrs::Signedness;
use tessera_ir::fragment::SIDE;
use tessera_ir::{Elem, OpData, ScheduleOp, TileOp, Value, bug};
use tessera_layout::{Distribution, MmaAtom, Operand};
use tessera_ptx::Type as Ty;
use tessera_ptx::ssa::{Class, Value as Reg};
use tessera_types::{DType, Issuer};

use super::bound::{Bound, Buffer, Regs};
use super::lowering::{Lowered, Lowering};
use super::operation::astray;
use super::place::Place;
use super::view::Run;
use tessera_analysis::sharing::{Sharing, instructions};

/// The words of a warp's product that say how its factors lie and of which types it is.
pub(super) fn product_types(dtype: DType, acc: DType, signs: Signs) -> String {
    let word = |sign: Signedness| match dtype {
        DType::F8E4M3 => "e4m3",
        DType::F8E5M2 => "e5m2",
        DType::I8 if sign == Signedness::Unsigned => "u8",
        DType::I8 => "s8",
        DType::F32 => "tf32",
        other => other.name(),
    };
    let out = match acc {
        DType::I32 => "s32",
        other => other.name(),
    };
    format!("row.col.{out}.{}.{}.{out}", word(signs.0), word(signs.1))
}

/// How integers among the factors are read.
pub(super) type Signs = (Signedness, Signedness);

pub(super) const SIGNED: Signs = (Signedness::Signed, Signedness::Signed);

impl Lowering<'_> {
    /// Lowers a matrix product of tiles.
    pub(super) fn products(&mut self, data: &OpData, kind: &ScheduleOp) -> Lowered<()> {
        if let Some(places) = data.places() {
            let regs = self.sparse_product(data, places)?;
            self.bind_regs(data.result(), regs);
            return Ok(());
        }
        let (factors, signs): (&[usize], Signs) = match kind {
            ScheduleOp::MmaFScaled {} => (&[0, 1, 3, 4], SIGNED),
            ScheduleOp::MmaF { .. } => (&[0, 1], SIGNED),
            ScheduleOp::MmaI { lhs_signedness, rhs_signedness } => (&[0, 1], (*lhs_signedness, *rhs_signedness)),
            _ => astray(kind),
        };
        let factors: Vec<Value> = factors.iter().map(|&position| data.one(position)).collect();
        let regs = self.of_registers(&factors, data.one(2), signs)?;
        self.bind_regs(data.result(), regs);
        Ok(())
    }

    /// Lowers a product of factors in shared memory.
    pub(super) fn shared_products(&mut self, data: &OpData, kind: &TileOp) -> Lowered<()> {
        let regs = match kind {
            TileOp::MmaSync { shape, lhs_signedness, rhs_signedness } => {
                self.by_instruction(data, shape, (*lhs_signedness, *rhs_signedness))?
            }
            TileOp::MmaShared { .. } if data.places().is_some() => {
                return Err(self.unsupported("warpgroups alone multiply a factor that is stored by half from shared memory"));
            }
            TileOp::MmaShared { lhs_signedness, rhs_signedness, .. } => {
                let signs = (*lhs_signedness, *rhs_signedness);
                let (lhs, rhs, acc) = (data.one(0), data.one(1), data.one(2));
                let left = match self.get(lhs)? {
                    Bound::Buffer(buffer) => buffer.clone(),
                    _ => {
                        let left = self.spread_factor(lhs, 0, 1)?;
                        let base = self.exchange(left.bytes.next_multiple_of(16), 16)?;
                        self.spread_part(&[left], 0, base).remove(0)
                    }
                };
                let sides = [left, self.buffer(rhs)?];
                let sums = self.wide_sums(acc)?;
                let sums = self.added(&sides, acc, sums, signs)?;
                self.narrow_sums(acc, sums)?
            }
            _ => astray(kind),
        };
        self.bind_regs(data.result(), regs);
        Ok(())
    }

    // --- tensor instructions

    /// A product of matrices whose elements a warp's lanes hold as scalars.
    pub(super) fn fragments(&mut self, data: &OpData, signs: Signs) -> Lowered<()> {
        let (first, acc) = (data.group(0)[0], self.dtype(data.group(2)[0])?);
        let (elem, dtype) = (self.elem(first)?, self.dtype(first)?);
        let rows = self.arch.matrix_instructions(Issuer::Warp, dtype).filter(|row| SIDE.is_multiple_of(row.depth));
        let Some(depth) = rows.map(|row| u64::from(row.depth)).max() else {
            return Err(self.unsupported(format!("there is no product of a warp's matrices of `{dtype}`")));
        };
        let atom = MmaAtom::sync(16, 8, depth, u64::from(dtype.bits()));
        let atom = atom.map_err(|_| self.broken("an instruction without fragments"))?;
        let (lhs, rhs, sums) = (self.held(data, 0)?, self.held(data, 1)?, self.held(data, 2)?);
        let (a, b) = (self.factors(elem, &lhs), self.factors(elem, &rhs));
        // Words of a step along the contraction: of the left factor one behind the other, of the right one one for each half of its columns.
        let steps = (u64::from(SIDE) / atom.k) as usize;
        let (of_a, of_b) = (a.len() / steps, b.len() / 2 / steps);
        let factors = |_: &mut Self, step: usize| {
            let columns = b.chunks(b.len() / 2).flat_map(|half| half[step * of_b..][..of_b].iter().copied()).collect();
            Ok([a[step * of_a..][..of_a].to_vec(), columns])
        };
        let regs = self.multiplied(&atom, dtype, acc, signs, &sums, steps, factors)?;
        for (&result, reg) in data.results.iter().zip(regs) {
            self.bind_regs(result, [reg]);
        }
        Ok(())
    }

    /// The registers of a group of operands that lanes hold as scalars.
    pub(super) fn held(&self, data: &OpData, group: usize) -> Lowered<Regs> {
        data.group(group).iter().map(|&value| self.reg(value)).collect()
    }

    /// A product by the instruction that the operation names.
    fn by_instruction(&mut self, data: &OpData, shape: &[u32], signs: Signs) -> Lowered<Regs> {
        let (lhs, rhs, acc) = (data.one(0), data.one(1), data.one(2));
        let buffer = matches!(self.get(rhs)?, Bound::Buffer(_));
        let (dtype, depth) = match buffer {
            true => {
                let right = self.buffer(rhs)?;
                (right.elem, u64::from(right.shape[0]))
            }
            false => (self.dtype(rhs)?, self.layout(rhs)?.shape()[0]),
        };
        let &[m, n, k] = shape else { return Err(self.broken("an instruction without a shape")) };
        let own = (u64::from(m), u64::from(n), u64::from(k));
        if !instructions(self.arch, dtype).any(|known| known == own) {
            return Err(self.unsupported(format!("there is no product of {m} x {n} x {k} of `{dtype}`")));
        }
        let atom = MmaAtom::sync(own.0, own.1, own.2, u64::from(dtype.bits()));
        let atom = atom.map_err(|_| self.broken("an instruction without fragments"))?;
        let out = self.layout(acc)?;
        let sharing = Sharing::by(atom, &out, depth);
        let regs = match sharing {
            Some(sharing) if buffer => self.by_shared_fragments(&sharing, lhs, rhs, acc, signs)?,
            Some(sharing) => self.by_fragments(&sharing, lhs, rhs, acc, signs)?,
            None => None,
        };
        regs.ok_or_else(|| {
            self.unsupported("tiles that do not lie in registers as the instruction takes them are no factors of it")
        })
    }

    fn by_fragments(&mut self, sharing: &Sharing, lhs: Value, rhs: Value, acc: Value, signs: Signs) -> Lowered<Option<Regs>> {
        let (left, right, out) = (self.layout(lhs)?, self.layout(rhs)?, self.layout(acc)?);
        let dtype = self.dtype(lhs)?;
        let depth = left.shape()[1];
        let Sharing { atom, grid, .. } = *sharing;
        let fits = |operand, shape: [u64; 2], found: &Distribution| {
            sharing.operand(operand, shape).is_some_and(|layout| layout == *found)
        };
        let (m, n) = (out.shape()[0], out.shape()[1]);
        if !fits(Operand::A, [m, depth], &left) || !fits(Operand::B, [depth, n], &right) {
            return Ok(None);
        }
        let (a, b, c) = (self.regs(lhs)?, self.regs(rhs)?, self.regs(acc)?);
        let elem = self.elem(lhs)?;
        let a = self.factors(elem, &a);
        let b = self.factors(elem, &b);
        let steps = (depth / atom.k) as usize;
        let (rows, size) = ((m / grid.m / atom.m) as usize, a_registers(&atom));
        let columns = b.len() / steps;
        let factors = |_: &mut Self, step: usize| {
            let a = (0..rows).flat_map(|row| a[(row * steps + step) * size..][..size].iter().copied()).collect();
            Ok([a, b[step * columns..][..columns].to_vec()])
        };
        self.multiplied(&atom, dtype, self.dtype(acc)?, signs, &c, steps, factors).map(Some)
    }

    /// Factors packed into the registers that instructions take.
    pub(super) fn factors(&mut self, elem: Elem, regs: &[Reg]) -> Vec<Reg> {
        let per_word = (4 / elem.bytes()).max(1) as usize;
        let mut packed = Vec::new();
        for chunk in regs.chunks(per_word) {
            packed.extend(self.joined(elem, chunk));
        }
        packed
    }

    /// All instructions of a product. `factors` yields the packed factors of one step of the contraction; those of the next step are asked
    /// for before a step's instructions, so that they can be loaded meanwhile. The accumulator is not packed.
    #[allow(clippy::too_many_arguments, reason = "a product has this many parts")]
    pub(super) fn multiplied(
        &mut self,
        atom: &MmaAtom,
        dtype: DType,
        acc: DType,
        signs: Signs,
        accumulator: &Regs,
        steps: usize,
        mut factors: impl FnMut(&mut Self, usize) -> Lowered<[Vec<Reg>; 2]>,
    ) -> Lowered<Regs> {
        if self.is_recording() {
            return Ok(accumulator.clone());
        }
        let shape = format!("m{}n{}k{}.{}", atom.m, atom.n, atom.k, product_types(dtype, acc, signs));
        let per_word = (32 / atom.bits).max(1);
        let (a_size, b_size) = (a_registers(atom), (atom.k * atom.n / 32 / per_word) as usize);
        let c_size = (atom.m * atom.n / 32) as usize;
        let elem = Elem::Num(acc);
        let packs = acc == DType::F16;
        let mut results: Vec<Vec<Reg>> = Vec::new();
        for part in accumulator.chunks(c_size) {
            results.push(if packs { self.factors(elem, part) } else { part.to_vec() });
        }
        let mut next = if steps == 0 { None } else { Some(factors(self, 0)?) };
        for step in 1..=steps {
            let Some([a, b]) = next.take() else { break };
            if step < steps {
                next = Some(factors(self, step)?);
            }
            let (rows, columns) = (a.len() / a_size, b.len() / b_size);
            if rows * columns != results.len() {
                return Err(self.broken("fragments that do not fit each other"));
            }
            for (row, a) in a.chunks(a_size).enumerate() {
                for (column, b) in b.chunks(b_size).enumerate() {
                    let c = &mut results[row * columns + column];
                    *c = self.b.mma(&shape, a, b, c);
                }
            }
        }
        let mut regs = Regs::new();
        for part in results {
            for reg in part {
                if packs {
                    regs.extend(self.b.unpack(reg, Class::B16));
                } else {
                    regs.push(reg);
                }
            }
        }
        Ok(regs)
    }

    /// The same with factors that are read from shared memory.
    fn by_shared_fragments(
        &mut self,
        sharing: &Sharing,
        lhs: Value,
        rhs: Value,
        acc: Value,
        signs: Signs,
    ) -> Lowered<Option<Regs>> {
        let right = self.buffer(rhs)?;
        let out = self.layout(acc)?;
        let (depth, n) = (u64::from(right.shape[0]), u64::from(right.shape[1]));
        let dtype = right.elem;
        let Sharing { atom, grid, .. } = *sharing;
        let m = out.shape()[0];
        let elem = Elem::Num(dtype);
        let steps = (depth / atom.k) as usize;
        let (Some(left_layout), Some(left_step), Some(right_step)) = (
            sharing.operand(Operand::A, [m, depth]),
            sharing.operand(Operand::A, [m, atom.k]),
            sharing.operand(Operand::B, [atom.k, n]),
        ) else {
            return Ok(None);
        };
        let (rows, size) = ((m / grid.m / atom.m) as usize, a_registers(&atom));
        let (left, held) = match self.get(lhs)?.clone() {
            Bound::Buffer(buffer) => (Some(buffer), Vec::new()),
            _ if self.layout(lhs)? == left_layout => {
                let regs = self.regs(lhs)?;
                (None, self.factors(elem, &regs))
            }
            _ => {
                let (from, regs) = (self.layout(lhs)?, self.regs(lhs)?);
                let map = super::remap::Remap::identity(from.shape());
                let regs = self.remapped(elem, (&from, &regs), &left_layout, &map)?;
                (None, self.factors(elem, &regs))
            }
        };
        let factors = |this: &mut Self, step: usize| {
            let first = step as u64 * atom.k;
            let a = match &left {
                Some(buffer) => {
                    let part = this.part(buffer, 1, first, atom.k)?;
                    this.fragment_from(&part, &left_step)?
                }
                None => (0..rows).flat_map(|row| held[(row * steps + step) * size..][..size].iter().copied()).collect(),
            };
            let part = this.part(&right, 0, first, atom.k)?;
            Ok([a, this.fragment_from(&part, &right_step)?])
        };
        let c = self.regs(acc)?;
        self.multiplied(&atom, dtype, self.dtype(acc)?, signs, &c, steps, factors).map(Some)
    }

    /// A factor's fragments out of a buffer, packed.
    fn fragment_from(&mut self, buffer: &Buffer, layout: &Distribution) -> Lowered<Vec<Reg>> {
        let regs = match self.load_matrices(buffer, layout) {
            Some(regs) => regs,
            None => self.load_buffer(buffer, layout),
        };
        Ok(self.factors(Elem::Num(buffer.elem), &regs))
    }

    // --- element by element

    /// Adds the product of factors in shared memory, and of their scales where they have some, to sums.
    pub(super) fn added(&mut self, sides: &[Buffer], acc: Value, sums: Vec<Reg>, signs: Signs) -> Lowered<Vec<Reg>> {
        if self.is_recording() {
            return Ok(sums);
        }
        if let [lhs, rhs] = sides
            && let Some(sums) = self.by_threads(lhs, rhs, acc, &sums)?
        {
            return Ok(sums);
        }
        self.by_elements(sides, acc, sums, signs)
    }

    /// Each thread multiplies rows by columns for the elements of the accumulator that it holds.
    fn by_elements(&mut self, sides: &[Buffer], acc: Value, sums: Vec<Reg>, signs: Signs) -> Lowered<Vec<Reg>> {
        let [lhs, rhs, scales @ ..] = sides else { bug!("a product without factors") };
        let (layout, out) = (self.layout(acc)?, self.dtype(acc)?);
        let place = self.place(&layout);
        let rank = layout.rank();
        let depth = lhs.shape[rank - 1];
        // One address for each row and each column that the thread's elements lie in.
        let (mut rows, mut columns) = (Lines::default(), Lines::default());
        let (mut row_scales, mut column_scales) = (Lines::default(), Lines::default());
        let mut pairs = Vec::new();
        for register in 0..place.len() {
            if let [left, right] = scales {
                // Lines of scales are numbered as the lines that they scale.
                self.line(&mut row_scales, left, &place, register, rank - 2, rank - 2);
                self.line(&mut column_scales, right, &place, register, rank - 1, rank - 1);
            }
            let row = self.line(&mut rows, lhs, &place, register, rank - 2, rank - 2);
            let column = self.line(&mut columns, rhs, &place, register, rank - 1, rank - 1);
            pairs.push((row, column));
        }
        let unroll = [8, 4, 2].into_iter().find(|&unroll| depth.is_multiple_of(unroll)).unwrap_or(1);
        let zero = self.b.u32(0);
        let classes: Vec<Class> = std::iter::once(Class::B32).chain(sums.iter().map(|&reg| self.class(reg))).collect();
        let (body, exit) = (self.b.new_block(&classes), self.b.new_block(&classes[1..]));
        self.b.jump(body, &[&[zero][..], &sums].concat());
        self.b.switch_to(body);
        let params = self.b.block_params(body);
        let (k, mut sums) = (params[0], params[1..].to_vec());
        let along = self.vectors_along(&rows, (lhs, rank - 1), k, u64::from(unroll), out, signs.0)?;
        let across = if layout.has_holes() { Vec::new() } else { columns.groups(rhs, rank - 1, place.thread_bits[rank - 1]) };
        for inner in 0..u64::from(unroll) {
            let mut a = match &along {
                Some(along) => along[inner as usize].clone(),
                None => self.line_values(&rows, (lhs, rank - 1), k, inner, out, signs.0)?,
            };
            let mut b = if across.is_empty() {
                self.line_values(&columns, (rhs, rank - 2), k, inner, out, signs.1)?
            } else {
                self.vectors_across(&columns, &across, (rhs, rank - 2), k, inner, out, signs.1)?
            };
            if let [left, right] = scales {
                let group = self.b.u32((depth / left.shape[rank - 1]).trailing_zeros());
                let ahead = self.b.u32(inner as u32);
                let at = self.b.add(Ty::U32, k, ahead);
                let at = self.b.shr(Ty::U32, at, group);
                let left = self.line_values(&row_scales, (left, rank - 1), at, 0, out, signs.0)?;
                let right = self.line_values(&column_scales, (right, rank - 2), at, 0, out, signs.1)?;
                for (values, scales) in [(&mut a, left), (&mut b, right)] {
                    for (value, scale) in values.iter_mut().zip(scales) {
                        *value = self.b.mul(Ty::F32, *value, scale);
                    }
                }
            }
            for (sum, &(row, column)) in sums.iter_mut().zip(&pairs) {
                *sum = match out {
                    DType::F64 => self.b.fma(Ty::F64, a[row], b[column], *sum),
                    DType::I32 => self.b.mad(Ty::S32, a[row], b[column], *sum),
                    _ => self.b.fma(Ty::F32, a[row], b[column], *sum),
                };
            }
        }
        let (step, limit) = (self.b.u32(unroll), self.b.u32(depth));
        let next = self.b.add(Ty::U32, k, step);
        let again = self.b.setp(tessera_ptx::Word::Lt, Ty::U32, next, limit);
        self.b.branch(again, (body, &[&[next][..], &sums].concat()), (exit, &sums));
        self.b.switch_to(exit);
        Ok(self.b.block_params(exit).to_vec())
    }

    /// The elements of an accumulator in the type that sums have on the way.
    pub(super) fn wide_sums(&mut self, acc: Value) -> Lowered<Vec<Reg>> {
        let (regs, dtype) = (self.regs(acc)?, self.dtype(acc)?);
        regs.into_iter().map(|reg| if dtype == DType::I32 { Ok(reg) } else { self.wide_of(dtype, reg) }).collect()
    }

    /// Sums in the accumulator's own type.
    pub(super) fn narrow_sums(&mut self, acc: Value, sums: Vec<Reg>) -> Lowered<Regs> {
        let dtype = self.dtype(acc)?;
        sums.into_iter().map(|sum| if dtype == DType::I32 { Ok(sum) } else { self.rounded(dtype, sum) }).collect()
    }

    /// The number of the line of a factor that a register needs, by the coordinate `dim` of the accumulator, which is the
    /// factor's axis `axis`; batch coordinates come before.
    fn line(&mut self, lines: &mut Lines, factor: &Buffer, place: &Place, register: usize, dim: usize, axis: usize) -> usize {
        let batch = factor.shape.len() - 2;
        let key: SmallVec<[(u64, u64); 4]> = (0..batch).chain([dim]).map(|position| place.parts(register, position)).collect();
        if let Some(&known) = lines.known.get(&key) {
            return known;
        }
        let mut address = factor.base;
        for position in (0..batch).chain([dim]) {
            let coordinate = self.coordinate(place, register, position);
            // A hole's line may not exist: the last one stands for it.
            let last = self.b.u32(factor.shape[if position == dim { axis } else { position }] - 1);
            let coordinate = self.b.min(Ty::U32, coordinate, last);
            address = self.along(factor, if position == dim { axis } else { position }, coordinate, address);
        }
        lines.known.insert(key, lines.addresses.len());
        lines.addresses.push(address);
        lines.addresses.len() - 1
    }

    /// Elements `k` to `k + count` of every line, by vectors along it: for each of them the lines' values. `None` where
    /// neighbours along the line are no neighbours in memory.
    fn vectors_along(
        &mut self,
        lines: &Lines,
        (factor, axis): (&Buffer, usize),
        k: Reg,
        count: u64,
        out: DType,
        sign: Signedness,
    ) -> Lowered<Option<Vec<Vec<Reg>>>> {
        let bytes = factor.elem.unpacked_bytes() as u64;
        let width = (16 / bytes).min(count);
        let plain = factor.swizzle.bits == 0 && factor.slabs.is_none() && factor.strides[axis] == 1;
        let aligned =
            factor.strides.iter().enumerate().all(|(other, stride)| other == axis || (stride * bytes).is_multiple_of(16));
        if !plain || !aligned || factor.align < 16 || width < 2 || !count.is_multiple_of(width) {
            return Ok(None);
        }
        let elem = Elem::Num(factor.elem);
        let zero = self.bits(elem, 0);
        let mut values: Vec<Vec<Reg>> = vec![Vec::new(); count as usize];
        for &line in &lines.addresses {
            let address = self.along(factor, axis, k, line);
            for first in (0..count).step_by(width as usize) {
                let address = self.b.at(address, (first * bytes) as i64);
                let run = Run { registers: (0..width as usize).collect(), address, when: None, cut: None };
                for (i, value) in self.load_run("shared", elem, &run, zero, false).into_iter().enumerate() {
                    let value = self.multiplied_as(factor.elem, out, sign, value)?;
                    values[first as usize + i].push(value);
                }
            }
        }
        Ok(Some(values))
    }

    /// Element `k + inner` of every line, by vectors across groups of neighbouring lines.
    #[allow(clippy::too_many_arguments, reason = "an element of a line has this many parts")]
    fn vectors_across(
        &mut self,
        lines: &Lines,
        groups: &[Vec<usize>],
        (factor, axis): (&Buffer, usize),
        k: Reg,
        inner: u64,
        out: DType,
        sign: Signedness,
    ) -> Lowered<Vec<Reg>> {
        let bytes = factor.elem.unpacked_bytes() as u64;
        let elem = Elem::Num(factor.elem);
        let zero = self.bits(elem, 0);
        let mut values = vec![zero; lines.addresses.len()];
        for group in groups {
            let address = self.along(factor, axis, k, lines.addresses[group[0]]);
            let address = self.b.at(address, (inner * factor.strides[axis] * bytes) as i64);
            let run = Run { registers: (0..group.len()).collect(), address, when: None, cut: None };
            for (&line, value) in group.iter().zip(self.load_run("shared", elem, &run, zero, false)) {
                values[line] = self.multiplied_as(factor.elem, out, sign, value)?;
            }
        }
        Ok(values)
    }

    /// An element of a factor in the type that is accumulated.
    fn multiplied_as(&mut self, dtype: DType, out: DType, sign: Signedness, value: Reg) -> Lowered<Reg> {
        if out == DType::I32 { Ok(self.extended(dtype, sign == Signedness::Signed, value)) } else { self.wide_of(dtype, value) }
    }

    /// Element `k + inner` of every line along an axis of the factor, in the type that is accumulated.
    fn line_values(
        &mut self,
        lines: &Lines,
        (factor, axis): (&Buffer, usize),
        k: Reg,
        inner: u64,
        out: DType,
        sign: Signedness,
    ) -> Lowered<Vec<Reg>> {
        let elem = Elem::Num(factor.elem);
        let step = factor.strides[axis] * factor.elem.unpacked_bytes() as u64;
        let plain = factor.swizzle.bits == 0 && factor.slabs.is_none();
        let mut values = Vec::new();
        for &line in &lines.addresses {
            let value = if plain {
                let address = self.along(factor, axis, k, line);
                let address = self.b.at(address, (inner * step) as i64);
                self.take(elem, address)
            } else {
                let ahead = self.b.u32(inner as u32);
                let index = self.b.add(Ty::U32, k, ahead);
                let address = self.along(factor, axis, index, line);
                let address = self.mixed(factor.swizzle, address);
                self.take(elem, address)
            };
            values.push(self.multiplied_as(factor.elem, out, sign, value)?);
        }
        Ok(values)
    }
}

/// Registers of one instruction's left factor in a thread.
pub(super) fn a_registers(atom: &MmaAtom) -> usize {
    (atom.m * atom.k / 32 / (32 / atom.bits).max(1)) as usize
}

/// Lines of a factor, each by the address of its first element.
#[derive(Default)]
struct Lines {
    known: BTreeMap<SmallVec<[(u64, u64); 4]>, usize>,
    addresses: Vec<Reg>,
}

impl Lines {
    /// The lines in groups of neighbours that one load along the buffer's axis `axis` takes; nothing where not all lines are in
    /// such groups.
    fn groups(&self, factor: &Buffer, axis: usize, thread_bits: u64) -> Vec<Vec<usize>> {
        let bytes = factor.elem.unpacked_bytes() as u64;
        let width = 16 / bytes;
        let plain = factor.swizzle.bits == 0 && factor.slabs.is_none() && factor.strides[axis] == 1;
        let aligned =
            factor.strides.iter().enumerate().all(|(other, stride)| other == axis || (stride * bytes).is_multiple_of(16));
        if !plain || !aligned || factor.align < 16 || width < 2 || thread_bits & (width - 1) != 0 {
            return Vec::new();
        }
        let mut groups = Vec::new();
        for (key, &line) in &self.known {
            let [batch @ .., (xor, add)] = &key[..] else { bug!("a line without a place") };
            let (xor, add) = (*xor, *add);
            if xor & (width - 1) != 0 {
                return Vec::new();
            }
            if !add.is_multiple_of(width) {
                continue;
            }
            let mut group = vec![line];
            for step in 1..width {
                let mut next: SmallVec<[(u64, u64); 4]> = batch.into();
                next.push((xor, add + step));
                match self.known.get(&next) {
                    Some(&line) => group.push(line),
                    None => return Vec::new(),
                }
            }
            groups.push(group);
        }
        groups.sort_unstable();
        let covered: usize = groups.iter().map(Vec::len).sum();
        if covered == self.addresses.len() { groups } else { Vec::new() }
    }
}
