//! Products of a warp whose left factor is stored by half, and the registers that say where its elements stand, which warpgroups' products take, too
//! (PTX ISA, "Sparse matrix storage").
//!
//! A thread has the words of rows g and g + 8 for 32 columns, g being the number of its four lanes in the warp. Lanes `2 s` and `2 s + 1` of the four give
//! what an instruction with the selector `s` takes: for elements of 16 bits the even lane the lower half of both words, the odd one the upper half. Tiles
//! of an even number of words a row lie so that the lanes of selector 0 have the words of an instruction and those of selector 1 those of the next one:
//! one register serves two instructions.

use tessera_ir::fragment::{SIDE, WORD};
use tessera_ir::{Elem, OpData, Value};
use tessera_layout::{Distribution, MmaAtom, Operand};
use tessera_ptx::ssa::{Class, Value as Reg};
use tessera_ptx::{Type as Ty, Word};
use tessera_types::DType;

use super::bound::Regs;
use super::lowering::{Lowered, Lowering};
use super::product::{SIGNED, Signs, a_registers, product_types};
use tessera_analysis::sharing::Sharing;

/// The registers of a tile of places.
pub(super) struct Metadata {
    /// Row of instructions by row, along the contraction.
    registers: Vec<Reg>,
    /// Instructions along the contraction that a register serves.
    each: usize,
}

impl Metadata {
    /// The register and the selector of an instruction: its row, of so many, and its step of the contraction.
    pub(super) fn at(&self, (row, step): (usize, usize), rows: usize) -> (Reg, u32) {
        let of_row = self.registers.len() / rows;
        (self.registers[row * of_row + step / self.each], (step % self.each) as u32)
    }
}

impl Lowering<'_> {
    /// A product of matrices whose elements a warp's lanes hold as scalars. An instruction takes 32 of the contraction and 8 columns.
    pub(super) fn sparse_fragments(&mut self, data: &OpData, signs: Signs) -> Lowered<()> {
        let (first, acc) = (data.group(0)[0], self.dtype(data.group(3)[0])?);
        let (elem, dtype) = (self.elem(first)?, self.dtype(first)?);
        if !self.arch.has_sparse_mma() {
            return Err(self.unsupported("there is no product of a factor that is stored by half"));
        }
        let (lhs, rhs) = (self.held(data, 0)?, self.held(data, 2)?);
        let (places, sums) = (self.held(data, 1)?, self.held(data, 3)?);
        if self.is_recording() {
            for (&result, sum) in data.results.iter().zip(sums) {
                self.bind_regs(result, [sum]);
            }
            return Ok(());
        }
        let metadata = self.place_word(dtype, [places[0], places[1]]);
        let (a, b) = (self.factors(elem, &lhs), self.factors(elem, &rhs));
        let shape = format!("m16n8k{}.{}", 2 * SIDE, product_types(dtype, acc, signs));
        // Of each of the two fragments of the right factor the words of one half of its columns.
        let (fragment, half) = (b.len() / 2, b.len() / 4);
        let mut regs = Regs::new();
        for (side, part) in sums.chunks(sums.len() / 2).enumerate() {
            let b = [side * half, fragment + side * half].into_iter().flat_map(|at| b[at..at + half].iter().copied());
            let b: Vec<Reg> = b.collect();
            let c = if acc == DType::F16 { self.factors(Elem::Num(acc), part) } else { part.to_vec() };
            for reg in self.b.mma_sparse(&shape, [&a, &b, &c], metadata, 0) {
                match acc {
                    DType::F16 => regs.extend(self.b.unpack(reg, Class::B16)),
                    _ => regs.push(reg),
                }
            }
        }
        for (&result, reg) in data.results.iter().zip(regs) {
            self.bind_regs(result, [reg]);
        }
        Ok(())
    }

    /// A product of tiles whose left factor is stored by half, by instructions that take 32 of the contraction, in two fragments of the right factor.
    pub(super) fn sparse_product(&mut self, data: &OpData, places: Value) -> Lowered<Regs> {
        if !self.arch.has_sparse_mma() {
            return Err(self.unsupported("there is no product of a factor that is stored by half"));
        }
        let (lhs, rhs, acc) = (data.one(0), data.one(1), data.one(2));
        let (left, right, out, words) = (self.layout(lhs)?, self.layout(rhs)?, self.layout(acc)?, self.layout(places)?);
        let (elem, dtype) = (self.elem(lhs)?, self.dtype(lhs)?);
        let atom = MmaAtom::sync(16, 8, u64::from(SIDE), u64::from(dtype.bits()));
        let atom = atom.map_err(|_| self.broken("an instruction without fragments"))?;
        let shape = |layout: &Distribution| [layout.shape()[0], layout.shape()[1]];
        let depth = right.shape()[0];
        let fits = |sharing: &Sharing| {
            let operand = |which, layout: &Distribution| sharing.operand(which, shape(layout)).is_some_and(|own| own == *layout);
            operand(Operand::A, &left)
                && operand(Operand::B, &right)
                && sharing.places(shape(&words)).is_some_and(|own| own == words)
        };
        let Some(sharing) = Sharing::by(atom, &out, depth).filter(fits) else {
            return Err(self.unsupported("tiles that do not lie in registers as the instruction takes them are no factors of it"));
        };
        let sums = self.regs(acc)?;
        if self.is_recording() {
            return Ok(sums);
        }
        let (a, b, held) = (self.regs(lhs)?, self.regs(rhs)?, self.regs(places)?);
        let metadata = self.metadata(dtype, &held, words.shape()[1]);
        let (a, b) = (self.factors(elem, &a), self.factors(elem, &b));
        let (rows, steps) = ((out.shape()[0] / sharing.grid.m / atom.m) as usize, (depth / u64::from(WORD)) as usize);
        let (size, across, each) = (a_registers(&atom), b.len() / (2 * steps), (atom.k * atom.n / 64) as usize);
        let name = format!("m16n8k{WORD}.{}", product_types(dtype, self.dtype(acc)?, SIGNED));
        let mut results: Vec<Vec<Reg>> = sums.chunks(4).map(<[Reg]>::to_vec).collect();
        for step in 0..steps {
            for row in 0..rows {
                let (places, selector) = metadata.at((row, step), rows);
                let a = &a[(row * steps + step) * size..][..size];
                for column in 0..across / each {
                    let halves =
                        [2 * step, 2 * step + 1].into_iter().flat_map(|half| &b[half * across + column * each..][..each]);
                    let b: Vec<Reg> = halves.copied().collect();
                    let c = &mut results[row * (across / each) + column];
                    *c = self.b.mma_sparse(&name, [a, &b, c], places, selector);
                }
            }
        }
        Ok(results.into_iter().flatten().collect())
    }

    /// The registers for a tile with so many words a row, of which a thread holds these.
    pub(super) fn metadata(&mut self, dtype: DType, held: &[Reg], words: u64) -> Metadata {
        let registers = held.chunks(2).map(|pair| self.place_word(dtype, [pair[0], pair[1]])).collect();
        Metadata { registers, each: if words.is_multiple_of(2) { 2 } else { 1 } }
    }

    /// What a lane gives of the places of rows g and g + 8: for elements of 16 bits the half of both rows' that an even lane or an odd one has, for those
    /// of 8 bits the whole of the one row's or of the other's.
    pub(super) fn place_word(&mut self, dtype: DType, [upper, lower]: [Reg; 2]) -> Reg {
        let (lane, one) = (self.lane(), self.b.u32(1));
        let odd = self.b.and(lane, one);
        if dtype == DType::I8 {
            let zero = self.b.u32(0);
            let is_odd = self.b.setp(Word::Ne, Ty::U32, odd, zero);
            return self.b.select(is_odd, lower, upper);
        }
        // Bytes 0 and 1 of both words, or 2 and 3.
        let (low, step) = (self.b.u32(0x5410), self.b.u32(0x2222));
        let bytes = self.b.mad(Ty::U32, odd, step, low);
        self.b.prmt(upper, lower, bytes)
    }
}
