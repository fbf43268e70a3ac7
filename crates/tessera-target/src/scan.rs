//! Scans.
//!
//! A scan keeps the running values in shared memory and doubles its reach in every round:
//!
//! ```text
//! a b c d   ->   a ab bc cd   ->   a ab abc abcd
//! ```
//!
//! Where shared memory does not hold all values at once, halves of ever longer runs are joined, and only what a first half comes to goes through
//! memory (J. Sklansky, "Conditional-Sum Addition Logic", 1960):
//!
//! ```text
//! a b | c d   ->   a ab | c cd   ->   a ab abc abcd
//!      a, c are exchanged       ab is exchanged
//! ```

use rustc_hash::FxHashMap;
use smallvec::SmallVec;
use tessera_ir::{Const, OpData};
use tessera_layout::Distribution;
use tessera_ptx::ssa::Value as Reg;
use tessera_ptx::{Type as Ty, Word};

use super::bound::Regs;
use super::lowering::{Lowered, Lowering};
use super::parts::Spot;
use super::place::{Inside, Place};
use super::reduce::{Combiner, Item};
use super::remap::{Remap, row_major};

/// Whether something holds of a register's coordinate.
enum Holds {
    Never,
    Always,
    When(Reg),
}

impl Lowering<'_> {
    /// Lowers a scan.
    pub(super) fn scan(&mut self, data: &OpData, dim: usize, identities: &[Const], reverse: bool) -> Lowered<()> {
        let combiner = self.combiner(data, identities)?;
        let layout = self.layout(data.results[0])?;
        let mut current: Vec<Regs> = Vec::new();
        for &operand in &data.operands {
            let (from, regs, elem) = (self.layout(operand)?, self.regs(operand)?, self.elem(operand)?);
            current.push(self.remapped(elem, (&from, &regs), &layout, &Remap::identity(layout.shape()))?);
        }
        let extent = layout.shape()[dim];
        let strides = row_major(layout.shape());
        let place = self.place(&layout);
        let sizes: Vec<u64> =
            combiner.elems.iter().map(|&elem| (layout.elements() * elem.bytes()).next_multiple_of(16)).collect();
        let all: u64 = sizes.iter().sum();
        if self.room_below(all).is_some() {
            let current = self.scan_by_halves(&combiner, &layout, (dim, reverse), current)?;
            for (&result, regs) in data.results.iter().zip(current) {
                self.bind_regs(result, regs);
            }
            return Ok(());
        }
        let mut reach = 1;
        while reach < extent {
            let base = self.whole_exchange(all, 16)?;
            let mut corners = Vec::new();
            let mut offset = 0;
            for (position, &elem) in combiner.elems.iter().enumerate() {
                let start = self.b.u32(offset as u32);
                let corner = self.b.add(Ty::U32, base, start);
                let regs = current[position].clone();
                self.spread(elem, (&layout, &regs), corner);
                corners.push(corner);
                offset += sizes[position];
            }
            self.meet();
            for register in 0..place.len() {
                let within = match self.inside(&place, register) {
                    Inside::Never => continue,
                    Inside::Always => None,
                    Inside::When(within) => Some(within),
                };
                let coordinate = self.coordinate(&place, register, dim);
                let limit = self.b.u32(if reverse { (extent - reach) as u32 } else { reach as u32 });
                let has = self.b.setp(if reverse { Word::Lt } else { Word::Ge }, Ty::U32, coordinate, limit);
                let has = self.both(Some(has), within).unwrap_or(has);
                let mut before = Item::new();
                for (position, &elem) in combiner.elems.iter().enumerate() {
                    let bytes = elem.bytes();
                    let mut address = corners[position];
                    for (axis, stride) in strides.iter().enumerate() {
                        let coordinate = self.coordinate(&place, register, axis);
                        let step = self.b.u32((stride * bytes) as u32);
                        address = self.b.mad(Ty::U32, coordinate, step, address);
                    }
                    let distance = (reach * strides[dim] * bytes) as u32;
                    let distance = self.b.u32(if reverse { distance } else { distance.wrapping_neg() });
                    let address = self.b.add(Ty::U32, address, distance);
                    let address = self.b.select(has, address, corners[position]);
                    before.push(self.take(elem, address));
                }
                let item = self.item(&current, register);
                let both = self.combine(&combiner, &before, &item)?;
                let chosen = self.choose(has, &both, &item);
                for (position, &reg) in chosen.iter().enumerate() {
                    current[position][register] = reg;
                }
            }
            reach *= 2;
        }
        for (&result, regs) in data.results.iter().zip(current) {
            self.bind_regs(result, regs);
        }
        Ok(())
    }

    /// Joins runs of 1, 2, 4, ... elements to their neighbours: each element of the second one takes in what the first one comes to, which its
    /// last element has.
    fn scan_by_halves(
        &mut self,
        combiner: &Combiner<'_>,
        layout: &Distribution,
        (dim, reverse): (usize, bool),
        mut current: Vec<Regs>,
    ) -> Lowered<Vec<Regs>> {
        let place = self.place(layout);
        let mut run = 1;
        while run < layout.shape()[dim] {
            let step = Step { place: &place, dim, run, extent: layout.shape()[dim], reverse };
            let mut before: Vec<Vec<Option<Reg>>> = Vec::new();
            for (position, &elem) in combiner.elems.iter().enumerate() {
                before.push(match step.within_threads() {
                    Some(lasts) => lasts.iter().map(|last| last.map(|last| current[position][last])).collect(),
                    None => {
                        let (given, wanted, total) = self.first_halves(&step, layout, &current[position], elem.bytes());
                        let found = self.in_parts(elem, &given, &wanted, total)?;
                        found.into_iter().zip(&wanted).map(|(found, wanted)| wanted.is_some().then_some(found)).collect()
                    }
                });
            }
            for register in 0..place.len() {
                let Some(before) = before.iter().map(|regs| regs[register]).collect::<Option<Item>>() else { continue };
                let item = self.item(&current, register);
                let both = self.combine(combiner, &before, &item)?;
                let chosen = match self.is_second(&step, register) {
                    Holds::Never => item,
                    Holds::Always => both,
                    Holds::When(second) => self.choose(second, &both, &item),
                };
                for (regs, reg) in current.iter_mut().zip(chosen) {
                    regs[register] = reg;
                }
            }
            run *= 2;
        }
        Ok(current)
    }

    /// The last elements of first halves, the elements of second halves, and the bytes of the former.
    #[allow(clippy::type_complexity, reason = "what an exchange in parts takes")]
    fn first_halves(
        &mut self,
        step: &Step<'_>,
        layout: &Distribution,
        regs: &Regs,
        bytes: u64,
    ) -> (Vec<(Reg, Spot)>, Vec<Option<Spot>>, u64) {
        let mut shape: SmallVec<[u64; 4]> = layout.shape().iter().copied().collect();
        shape[step.dim] = shape[step.dim].div_ceil(2 * step.run);
        let strides = row_major(&shape);
        let total = shape.iter().product::<u64>() * bytes;
        let mine = self.stores(layout);
        let (mut given, mut wanted) = (Vec::new(), Vec::new());
        for register in 0..step.place.len() {
            let within = match self.inside(step.place, register) {
                Inside::Never => {
                    wanted.push(None);
                    continue;
                }
                Inside::Always => None,
                Inside::When(within) => Some(within),
            };
            let mut at = self.b.u32(0);
            for (axis, stride) in strides.iter().enumerate() {
                let mut number = self.coordinate(step.place, register, axis);
                if axis == step.dim {
                    number = self.counted(step, number);
                    let count = self.b.u32((2 * step.run).trailing_zeros());
                    number = self.b.shr(Ty::U32, number, count);
                }
                let size = self.b.u32((stride * bytes) as u32);
                at = self.b.mad(Ty::U32, number, size, at);
            }
            let spot = |when| Spot { when, at: (at, 0).into(), range: (0, u64::MAX) };
            let last = match self.is_last(step, register) {
                Holds::Never => None,
                Holds::Always => Some(within),
                Holds::When(last) => Some(self.both(Some(last), within)),
            };
            if let Some(when) = last.filter(|_| layout.is_primary(register as u64, 0)) {
                given.push((regs[register], spot(self.both(when, mine))));
            }
            wanted.push((!matches!(self.is_second(step, register), Holds::Never)).then(|| spot(within)));
        }
        (given, wanted, total)
    }

    /// A coordinate counted from where the scan starts.
    fn counted(&mut self, step: &Step<'_>, coordinate: Reg) -> Reg {
        if !step.reverse {
            return coordinate;
        }
        let last = self.b.u32(step.extent as u32 - 1);
        self.b.sub(Ty::S32, last, coordinate)
    }

    /// A register's element is the last one of a first half.
    fn is_last(&mut self, step: &Step<'_>, register: usize) -> Holds {
        self.low_bits(step, register, 2 * step.run - 1, step.run - 1)
    }

    /// A register's element is one of a second half.
    fn is_second(&mut self, step: &Step<'_>, register: usize) -> Holds {
        self.low_bits(step, register, step.run, step.run)
    }

    /// The bits `mask` of a register's place along the axis are these.
    fn low_bits(&mut self, step: &Step<'_>, register: usize, mask: u64, wanted: u64) -> Holds {
        if let Some(number) = step.known(register) {
            return if number & mask == wanted { Holds::Always } else { Holds::Never };
        }
        let number = self.coordinate(step.place, register, step.dim);
        let number = self.counted(step, number);
        let (mask, wanted) = (self.b.u32(mask as u32), self.b.u32(wanted as u32));
        let bits = self.b.and(number, mask);
        Holds::When(self.b.setp(Word::Eq, Ty::U32, bits, wanted))
    }
}

/// A step of a scan by halves.
struct Step<'p> {
    place: &'p Place,
    dim: usize,
    /// Elements of a half.
    run: u64,
    extent: u64,
    reverse: bool,
}

impl Step<'_> {
    /// The low bits of a register's place along the axis, up to both halves, where they are the same in all threads.
    fn known(&self, register: usize) -> Option<u64> {
        let mask = 2 * self.run - 1;
        let (xor, add) = self.place.parts(register, self.dim);
        if self.place.thread_bits[self.dim] & mask != 0 {
            return None;
        }
        let number = (xor & mask) + add;
        Some(if self.reverse { (self.extent - 1).wrapping_sub(number) } else { number } & mask)
    }

    /// For each register the one with the last element of the first half, where each thread has both; `None` where one does not.
    fn within_threads(&self) -> Option<Vec<Option<usize>>> {
        let mask = 2 * self.run - 1;
        let mut lasts: FxHashMap<Vec<(u64, u64)>, usize> = FxHashMap::default();
        let pair = |register: usize| -> Vec<(u64, u64)> {
            let parts = |dim: usize| {
                let (xor, add) = self.place.parts(register, dim);
                if dim != self.dim {
                    return (xor, add);
                }
                let from_start = if self.reverse { self.extent.wrapping_sub(1 + add) } else { add };
                (xor & !mask, from_start & !mask)
            };
            (0..self.place.thread_bits.len()).map(parts).collect()
        };
        for register in 0..self.place.len() {
            if self.known(register)? == self.run - 1 {
                lasts.insert(pair(register), register);
            }
        }
        let second = |register: usize| self.known(register).is_some_and(|number| number & self.run != 0);
        (0..self.place.len())
            .map(|register| match second(register) {
                true => lasts.get(&pair(register)).map(|&last| Some(last)),
                false => Some(None),
            })
            .collect()
    }
}
