//! Constants and operations on shapes: each thread computes or renames what it holds.

use smallvec::SmallVec;
use tessera_ir::{Const, ConstData, Elem, OpData, ScheduleOp, Value, bug};
use tessera_layout::Distribution;
use tessera_ptx::ssa::Value as Reg;
use tessera_ptx::{Type as Ty, Word};
use tessera_types::DType;
use tessera_types::packed::Packing;

use super::bound::{Regs, register_count};
use super::lowering::{Lowered, Lowering};
use super::operation::astray;
use super::place::Inside;
use super::remap::{Remap, row_major};

const BYTE: Elem = Elem::Num(DType::U8);
const TRUTH: Elem = Elem::Num(DType::B1);

impl Lowering<'_> {
    /// Lowers an operation on shapes.
    pub(super) fn shape(&mut self, data: &OpData, kind: &ScheduleOp) -> Lowered<()> {
        match kind {
            ScheduleOp::Constant { value } => {
                let regs = self.constant(data.result(), value)?;
                self.bind_regs(data.result(), regs);
            }
            ScheduleOp::Iota {} => {
                let regs = self.iota(data.result())?;
                self.bind_regs(data.result(), regs);
            }
            ScheduleOp::Broadcast {} | ScheduleOp::Reshape {} | ScheduleOp::Permute { .. } => self.rearranged(data, kind)?,
            ScheduleOp::Cat { dim } => self.cat(data, *dim as usize)?,
            ScheduleOp::Extract {} => self.extract(data)?,
            ScheduleOp::Insert {} => self.insert(data)?,
            ScheduleOp::Pack {} | ScheduleOp::Unpack {} => self.bytes(data)?,
            _ => astray(kind),
        }
        Ok(())
    }

    /// The layout of a tile; that of a scalar is one element in every thread.
    pub(super) fn layout(&self, value: Value) -> Lowered<Distribution> {
        if let Some(layout) = self.func.ty(value).layout() {
            return Ok(layout.clone());
        }
        let shape: SmallVec<[u64; 4]> = match self.func.ty(value).as_tile() {
            Some(tile) => tile.shape.iter().map(|&extent| u64::from(extent)).collect(),
            None => return Err(self.broken("something else where a tile is needed")),
        };
        Distribution::replicated(&shape, u64::from(self.team.warps) * 32).map_err(|_| self.broken("a tile without a layout"))
    }

    fn constant(&mut self, result: Value, value: &Const) -> Lowered<Regs> {
        let elem = Elem::Num(value.dtype);
        let count = register_count(self.func.ty(result));
        match &value.data {
            ConstData::Splat(bits) => {
                let reg = self.bits(elem, *bits);
                Ok(std::iter::repeat_n(reg, count).collect())
            }
            ConstData::Dense(bits) => {
                let layout = self.layout(result)?;
                self.dense(&layout, elem, bits)
            }
        }
    }

    /// A constant with elements of its own: each register chooses among what the threads need there.
    fn dense(&mut self, layout: &Distribution, elem: Elem, bits: &[u64]) -> Lowered<Regs> {
        let strides = row_major(layout.shape());
        let number = |register: u64, thread: u64| -> Option<u64> {
            let element = layout.element(register, thread)?;
            Some(strides.iter().zip(&element).map(|(stride, at)| stride * at).sum())
        };
        let place = self.place(layout);
        let mut regs = Regs::new();
        for register in 0..layout.registers() {
            let mut choices: Vec<u64> = (0..layout.threads()).filter_map(|thread| number(register, thread)).collect();
            choices.sort_unstable();
            choices.dedup();
            let bits_of = |number: u64| bits[number as usize];
            let Some((&first, rest)) = choices.split_first() else {
                regs.push(self.bits(elem, 0));
                continue;
            };
            let mut chosen = self.bits(elem, bits_of(first));
            if rest.iter().any(|&other| bits_of(other) != bits_of(first)) {
                let mut index = self.b.u32(0);
                for (dim, stride) in strides.iter().enumerate() {
                    let coordinate = self.coordinate(&place, register as usize, dim);
                    let stride = self.b.u32(*stride as u32);
                    index = self.b.mad(Ty::U32, coordinate, stride, index);
                }
                for &other in rest {
                    let (at, bits) = (self.b.u32(other as u32), self.bits(elem, bits_of(other)));
                    let here = self.b.setp(Word::Eq, Ty::U32, index, at);
                    chosen = self.b.select(here, bits, chosen);
                }
            }
            regs.push(chosen);
        }
        Ok(regs)
    }

    fn iota(&mut self, result: Value) -> Lowered<Regs> {
        let layout = self.layout(result)?;
        let dtype = self.dtype(result)?;
        let place = self.place(&layout);
        let mut regs = Regs::new();
        for register in 0..place.len() {
            let coordinate = self.coordinate(&place, register, 0);
            regs.push(self.resized(dtype, false, coordinate));
        }
        Ok(regs)
    }

    fn rearranged(&mut self, data: &OpData, kind: &ScheduleOp) -> Lowered<()> {
        let (source, result) = (data.one(0), data.result());
        let (from, to) = (self.layout(source)?, self.layout(result)?);
        let natural = row_major(from.shape());
        let strides = match kind {
            ScheduleOp::Broadcast {} => {
                let kept = |dim: usize| if from.shape()[dim] == to.shape()[dim] { natural[dim] } else { 0 };
                (0..to.rank()).map(kept).collect()
            }
            ScheduleOp::Permute { permutation } => permutation.iter().map(|&axis| natural[axis as usize]).collect(),
            _ => row_major(to.shape()),
        };
        let regs = self.regs(source)?;
        let elem = self.elem(source)?;
        let regs = self.remapped(elem, (&from, &regs), &to, &Remap { strides, offset: 0 })?;
        self.bind_regs(result, regs);
        Ok(())
    }

    /// `result` read from one or the other source by a coordinate along `dim`.
    fn cat(&mut self, data: &OpData, dim: usize) -> Lowered<()> {
        let (lhs, rhs, result) = (data.one(0), data.one(1), data.result());
        let (from, other, to) = (self.layout(lhs)?, self.layout(rhs)?, self.layout(result)?);
        let elem = self.elem(lhs)?;
        if let Some(part) = to.part(dim, 2).filter(|part| part.shape() == from.shape() && part.shape() == other.shape()) {
            return self.cat_of_parts(data, (&to, &part), dim);
        }
        let split = from.shape()[dim];
        let place = self.place(&to);
        let limit = self.b.u32(split as u32);
        let mut parts = Vec::new();
        for (value, layout, start) in [(lhs, &from, 0), (rhs, &other, split)] {
            parts.push(self.part_of(elem, value, layout, &to, dim, start)?);
        }
        let mut regs = Regs::new();
        for (register, (&left, &right)) in parts[0].iter().zip(&parts[1]).enumerate() {
            let (xor, add) = place.parts(register, dim);
            let chosen = if add >= split {
                right
            } else if (place.thread_bits[dim] | xor) + add < split {
                left
            } else {
                let coordinate = self.coordinate(&place, register, dim);
                let first = self.b.setp(Word::Lt, Ty::U32, coordinate, limit);
                self.b.select(first, left, right)
            };
            regs.push(chosen);
        }
        self.bind_regs(result, regs);
        Ok(())
    }

    /// Two tiles as one whose halves lie as `part` in the same threads: what is left is to name their registers.
    fn cat_of_parts(&mut self, data: &OpData, (to, part): (&Distribution, &Distribution), dim: usize) -> Lowered<()> {
        let mut joined = Regs::from_elem(self.regs(data.one(0))?[0], to.registers() as usize);
        for (number, source) in (0..).zip([data.one(0), data.one(1)]) {
            let (layout, regs, elem) = (self.layout(source)?, self.regs(source)?, self.elem(source)?);
            let regs = self.remapped(elem, (&layout, &regs), part, &Remap::identity(part.shape()))?;
            let places = to.registers_of_part(part, dim, number).unwrap_or_else(|| bug!("parts of one layout lie alike"));
            places.into_iter().zip(regs).for_each(|(place, reg)| joined[place] = reg);
        }
        self.bind_regs(data.result(), joined);
        Ok(())
    }

    /// A tile's elements in the registers of a larger tile whose axis `dim` has it from `start` on; what lies outside of it is
    /// any element.
    fn part_of(
        &mut self,
        elem: Elem,
        value: Value,
        from: &Distribution,
        to: &Distribution,
        dim: usize,
        start: u64,
    ) -> Lowered<Regs> {
        let regs = self.regs(value)?;
        let strides = row_major(from.shape());
        let bytes = elem.bytes();
        let base = self.exchange(from.elements() * bytes, 16)?;
        self.spread(elem, (from, &regs), base);
        self.meet();
        let place = self.place(to);
        let mut taken = Regs::new();
        for register in 0..place.len() {
            let mut address = base;
            for (axis, stride) in strides.iter().enumerate() {
                let coordinate = self.coordinate(&place, register, axis);
                let coordinate = if axis == dim {
                    let start = self.b.u32(start as u32);
                    self.b.sub(Ty::S32, coordinate, start)
                } else {
                    coordinate
                };
                // Outside of the window any element will do.
                let (zero, last) = (self.b.s32(0), self.b.s32(from.shape()[axis] as i32 - 1));
                let coordinate = self.b.max(Ty::S32, coordinate, zero);
                let coordinate = self.b.min(Ty::S32, coordinate, last);
                let stride = self.b.u32((stride * bytes) as u32);
                address = self.b.mad(Ty::U32, coordinate, stride, address);
            }
            taken.push(self.take(elem, address));
        }
        Ok(taken)
    }

    /// The element number at which a subtile starts, as a constant and a part known at run time.
    fn start_of(&mut self, indices: &[Value], part: &[u64], whole: &[u64]) -> Lowered<(u64, Option<Reg>)> {
        let strides = row_major(whole);
        let (mut constant, mut moved) = (0, None);
        for (dim, &index) in indices.iter().enumerate() {
            let step = part[dim] * strides[dim];
            match self.known(index) {
                Some(known) if known >= 0 => constant += known as u64 * step,
                _ => {
                    let index = match self.index32(index)? {
                        Some(index) => index,
                        None => {
                            let wide = self.index64(index)?;
                            self.b.cvt(Ty::U32, Ty::U64, wide)
                        }
                    };
                    let step = self.b.u32(step as u32);
                    let part = self.b.mul(Ty::S32, index, step);
                    moved = Some(match moved {
                        None => part,
                        Some(sum) => self.b.add(Ty::S32, sum, part),
                    });
                }
            }
        }
        Ok((constant, moved))
    }

    fn extract(&mut self, data: &OpData) -> Lowered<()> {
        let (source, result) = (data.one(0), data.result());
        let (from, to) = (self.layout(source)?, self.layout(result)?);
        let (offset, moved) = self.start_of(data.group(1), to.shape(), from.shape())?;
        let map = Remap { strides: row_major(from.shape()), offset };
        let (regs, elem) = (self.regs(source)?, self.elem(source)?);
        let regs = match moved {
            None => self.remapped(elem, (&from, &regs), &to, &map)?,
            Some(_) => self.through_shared(elem, (&from, &regs), &to, &map, moved)?,
        };
        self.bind_regs(result, regs);
        Ok(())
    }

    /// The destination goes through shared memory, and the subtile is written over it there.
    fn insert(&mut self, data: &OpData) -> Lowered<()> {
        let (part, whole, result) = (data.one(0), data.one(1), data.result());
        let (from, into, to) = (self.layout(part)?, self.layout(whole)?, self.layout(result)?);
        let elem = self.elem(part)?;
        let (offset, moved) = self.start_of(data.group(2), from.shape(), into.shape())?;
        let bytes = elem.bytes();
        let (part_regs, whole_regs) = (self.regs(part)?, self.regs(whole)?);
        let base = self.exchange(into.elements() * bytes, 16)?;
        self.spread(elem, (&into, &whole_regs), base);
        self.meet();
        let strides = row_major(into.shape());
        let place = self.place(&from);
        let mine = self.stores(&from);
        let size = self.b.u32(bytes as u32);
        let corner = match moved {
            Some(moved) => self.b.mad(Ty::U32, moved, size, base),
            None => base,
        };
        for (register, &reg) in part_regs.iter().enumerate() {
            let when = match self.inside(&place, register) {
                Inside::Never => continue,
                Inside::Always => mine,
                Inside::When(within) => self.both(Some(within), mine),
            };
            let mut address = corner;
            for (dim, stride) in strides.iter().enumerate() {
                let coordinate = self.coordinate(&place, register, dim);
                let step = self.b.u32((stride * bytes) as u32);
                address = self.b.mad(Ty::U32, coordinate, step, address);
            }
            let address = self.b.at(address, (offset * bytes) as i64);
            self.put(elem, address, reg, when);
        }
        self.meet();
        let place = self.place(&to);
        let mut regs = Regs::new();
        for register in 0..place.len() {
            let mut address = base;
            for (dim, stride) in strides.iter().enumerate() {
                let coordinate = self.coordinate(&place, register, dim);
                let last = self.b.u32(to.shape()[dim] as u32 - 1);
                let coordinate = self.b.min(Ty::U32, coordinate, last);
                let step = self.b.u32((stride * bytes) as u32);
                address = self.b.mad(Ty::U32, coordinate, step, address);
            }
            regs.push(self.take(elem, address));
        }
        self.bind_regs(result, regs);
        Ok(())
    }

    /// A tile's elements as bytes or back: they lie in shared memory between, each in bytes of its own; elements that share
    /// bytes are taken apart or put together on the way out.
    fn bytes(&mut self, data: &OpData) -> Lowered<()> {
        let (source, result) = (data.one(0), data.result());
        let (from, to) = (self.layout(source)?, self.layout(result)?);
        let (old, new) = (self.elem(source)?, self.elem(result)?);
        let shared_bits = |elem: Elem| match elem {
            Elem::Num(dtype) => Packing::of(dtype).map(|_| dtype.bits()),
            Elem::Ptr(_) => None,
        };
        let (old_bytes, new_bytes) = (old.bytes(), new.bytes());
        let regs = self.regs(source)?;
        let base = self.exchange(from.elements() * old_bytes, 16)?;
        self.spread(old, (&from, &regs), base);
        self.meet();
        let strides = row_major(to.shape());
        let place = self.place(&to);
        let mut taken = Regs::new();
        for register in 0..place.len() {
            let mut number = self.b.u32(0);
            for (dim, stride) in strides.iter().enumerate() {
                let coordinate = self.coordinate(&place, register, dim);
                let last = self.b.u32(to.shape()[dim] as u32 - 1);
                let coordinate = self.b.min(Ty::U32, coordinate, last);
                let step = self.b.u32(*stride as u32);
                number = self.b.mad(Ty::U32, coordinate, step, number);
            }
            taken.push(match (shared_bits(old), shared_bits(new)) {
                (_, Some(bits)) => {
                    let code = self.code_in_bytes(base, number, bits, from.elements() as u32 - 1);
                    let one = self.b.u32(1);
                    let code = if new == TRUTH { self.b.and(code, one) } else { code };
                    self.read_element(new, code)
                }
                (Some(bits), None) => self.byte_of_codes(base, number, bits),
                (None, None) => {
                    let size = self.b.u32(new_bytes as u32);
                    let address = self.b.mad(Ty::U32, number, size, base);
                    self.take(new, address)
                }
            });
        }
        self.bind_regs(result, taken);
        Ok(())
    }

    /// The code of a number among bytes that codes of `bits` bits share, the first in the lowest bits.
    fn code_in_bytes(&mut self, base: Reg, number: Reg, bits: u32, last_byte: u32) -> Reg {
        let (width, three, seven) = (self.b.u32(bits), self.b.u32(3), self.b.u32(7));
        let bit = self.b.mul(Ty::U32, number, width);
        let byte = self.b.shr(Ty::U32, bit, three);
        let shift = self.b.and(bit, seven);
        let address = self.b.add(Ty::U32, base, byte);
        let mut word = self.take(BYTE, address);
        if !8u32.is_multiple_of(bits) {
            let (one, last, eight) = (self.b.u32(1), self.b.u32(last_byte), self.b.u32(8));
            let next = self.b.add(Ty::U32, byte, one);
            let next = self.b.min(Ty::U32, next, last);
            let address = self.b.add(Ty::U32, base, next);
            let upper = self.take(BYTE, address);
            let upper = self.b.shl(upper, eight);
            word = self.b.or(word, upper);
        }
        self.b.shr(Ty::U32, word, shift)
    }

    /// The byte of a number that codes of `bits` bits, which lie in a byte each, give together.
    fn byte_of_codes(&mut self, base: Reg, number: Reg, bits: u32) -> Reg {
        let (width, three, mask) = (self.b.u32(bits), self.b.u32(3), self.b.u32((1 << bits) - 1));
        let bit = self.b.shl(number, three);
        let first = self.b.div(Ty::U32, bit, width);
        let address = self.b.add(Ty::U32, base, first);
        let start = self.b.mul(Ty::U32, first, width);
        let begins = self.b.sub(Ty::U32, bit, start);
        // Codes of six bits begin before the byte or within it; two give a byte wherever it lies.
        let mut byte = self.b.u32(0);
        for position in 0..8u32.div_ceil(bits) {
            let place = self.b.at(address, i64::from(position));
            let code = self.take(BYTE, place);
            let code = self.b.and(code, mask);
            let part = if position == 0 {
                self.b.shr(Ty::U32, code, begins)
            } else {
                let end = self.b.u32(position * bits);
                let shift = self.b.sub(Ty::U32, end, begins);
                self.b.shl(code, shift)
            };
            byte = self.b.or(byte, part);
        }
        byte
    }

    /// The same tile under another layout.
    pub(super) fn convert_layout(&mut self, source: Value, result: Value) -> Lowered<()> {
        let (from, to) = (self.layout(source)?, self.layout(result)?);
        let (regs, elem) = (self.regs(source)?, self.elem(source)?);
        let map = Remap::identity(from.shape());
        let regs = self.remapped(elem, (&from, &regs), &to, &map)?;
        self.bind_regs(result, regs);
        Ok(())
    }
}
