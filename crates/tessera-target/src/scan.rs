//! Scans, in levels where the layout has them ([`scan_levels`](super::scan_levels)), else by halves.
//!
//! Halves of ever longer runs are joined: each element of the second one takes in what the first one comes to, which its last element has
//! (J. Sklansky, "Conditional-Sum Addition Logic", 1960).
//!
//! ```text
//! a b | c d   ->   a ab | c cd   ->   a ab abc abcd
//! ```
//!
//! | the last element of the first half lies in | step |
//! |---|---|
//! | the same thread | combine two registers |
//! | another lane | one `shfl.idx` for all second halves of a thread that it belongs to, then combine |
//! | another warp | the lane that has it writes, meet, all read, then combine |

use rustc_hash::FxHashMap;
use smallvec::SmallVec;
use tessera_ir::{Const, Elem, OpData};
use tessera_layout::{Axis, Distribution, WARP};
use tessera_ptx::ssa::Value as Reg;
use tessera_ptx::{Type as Ty, Word};

use super::bound::Regs;
use super::lowering::{Lowered, Lowering};
use super::parts::Spot;
use super::place::{Inside, Place};
use super::reduce::{Combiner, Item};
use super::remap::{Remap, row_major};
use super::scan_levels::Levels;

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
        let place = self.place(&layout);
        let current = match Levels::of(&layout, &place, (dim, reverse)) {
            Some(levels) => self.scan_by_levels(&combiner, &layout, (&levels, &place), current)?,
            None => self.scan_by_halves(&combiner, &layout, (dim, reverse), current)?,
        };
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
            let lanes = step.across_lanes(layout);
            for (position, &elem) in combiner.elems.iter().enumerate() {
                before.push(match (step.within_threads(), &lanes) {
                    (Some(lasts), _) => lasts.iter().map(|last| last.map(|last| current[position][last])).collect(),
                    (None, Some(lanes)) => self.shuffled_lasts(elem, lanes, &current[position]),
                    (None, None) => {
                        let (given, wanted, total) = self.first_halves(&step, layout, &current[position], elem.bytes());
                        // A recording notes what a buffer for all of them takes.
                        let found = if self.is_recording() {
                            self.whole_exchange(total, 16)?;
                            current[position].to_vec()
                        } else {
                            self.in_parts(elem, &given, &wanted, total)?
                        };
                        let alike = step.alike().into_iter();
                        alike.map(|first| wanted[first].is_some().then_some(found[first])).collect()
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

    /// What the lanes with the last elements of first halves have, for each register of a second half.
    fn shuffled_lasts(&mut self, elem: Elem, lanes: &Lanes, regs: &Regs) -> Vec<Option<Reg>> {
        let thread = self.thread();
        let (set, kept) = (self.b.u32(lanes.set), self.b.u32(!lanes.cleared & (WARP as u32 - 1)));
        let lane = self.b.or(thread, set);
        let lane = self.b.and(lane, kept);
        let mut moved: FxHashMap<usize, Reg> = FxHashMap::default();
        let mut found = Vec::new();
        for last in &lanes.lasts {
            found.push(last.map(|last| {
                let reg = regs[last];
                *moved
                    .entry(last)
                    .or_insert_with(|| self.shuffled_element(elem, reg, |b, word| b.shfl(Word::Idx, word, lane, 31)))
            }));
        }
        found
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
        // What a first half comes to is read once by each thread.
        for (register, first) in step.alike().into_iter().enumerate() {
            if first != register {
                wanted[register] = None;
            }
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
        if let Some(number) = step.along(register) {
            let fixed = mask & !step.place.thread_bits[step.dim];
            match number & fixed == wanted & fixed {
                false => return Holds::Never,
                true if fixed == mask => return Holds::Always,
                true => {}
            }
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

/// Where the last elements of first halves lie, where that is another lane's register.
struct Lanes {
    /// Bits of the lane's number that are set in the one that has them, and bits that are not.
    set: u32,
    cleared: u32,
    /// For each register of a second half that lane's register.
    lasts: Vec<Option<usize>>,
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

    /// What a register adds to the place along the axis, counted from where the scan starts, where that is a part of its own.
    fn along(&self, register: usize) -> Option<u64> {
        let (xor, add) = self.place.parts(register, self.dim);
        let apart = xor == 0 && add & self.place.thread_bits[self.dim] == 0 && self.extent.is_power_of_two();
        apart.then_some(if self.reverse { self.extent - 1 - add } else { add })
    }

    /// Where a register lies along the other axes.
    fn others(&self, register: usize) -> Vec<(u64, u64)> {
        let dims = (0..self.place.thread_bits.len()).filter(|&dim| dim != self.dim);
        dims.map(|dim| self.place.parts(register, dim)).collect()
    }

    /// For each register the first one whose element lies in the same half, whatever the thread; itself where that is not known.
    fn alike(&self) -> Vec<usize> {
        let mut firsts: FxHashMap<(u64, Vec<(u64, u64)>), usize> = FxHashMap::default();
        let first = |register: usize| match self.along(register) {
            Some(number) => *firsts.entry((number & !(self.run - 1), self.others(register))).or_insert(register),
            None => register,
        };
        (0..self.place.len()).map(first).collect()
    }

    /// Where only lanes of a warp lie between an element and the last one of the first half: no warp's number has a part in the low bits of
    /// the place, and each bit of a lane's number has a bit of its own there or none.
    fn across_lanes(&self, layout: &Distribution) -> Option<Lanes> {
        let mask = 2 * self.run - 1;
        let core = layout.core();
        let (mut set, mut cleared, mut of_lanes) = (0, 0, 0);
        for bit in 0..core.bits(Axis::Lane) {
            let basis = core.basis(Axis::Lane, bit);
            let within = basis[self.dim] & mask;
            if within == 0 {
                continue;
            }
            let alone = basis.iter().enumerate().all(|(dim, &part)| part == if dim == self.dim { within } else { 0 });
            if !alone || !within.is_power_of_two() || of_lanes & within != 0 {
                return None;
            }
            of_lanes |= within;
            *(if (within < self.run) != self.reverse { &mut set } else { &mut cleared }) |= 1 << bit;
        }
        let apart = (0..core.bits(Axis::Warp)).all(|bit| core.basis(Axis::Warp, bit)[self.dim] & mask == 0);
        if !apart || layout.has_holes() || !self.extent.is_power_of_two() {
            return None;
        }
        let own = mask & !of_lanes;
        let mut lasts: FxHashMap<(u64, Vec<(u64, u64)>), usize> = FxHashMap::default();
        for register in 0..self.place.len() {
            let number = self.along(register)?;
            if number & own == (self.run - 1) & own {
                lasts.insert((number & !mask, self.others(register)), register);
            }
        }
        let last = |register: usize| {
            let number = self.along(register)?;
            let second = of_lanes & self.run != 0 || number & self.run != 0;
            Some(if second { Some(*lasts.get(&(number & !mask, self.others(register)))?) } else { None })
        };
        Some(Lanes { set, cleared, lasts: (0..self.place.len()).map(last).collect::<Option<_>>()? })
    }
}
