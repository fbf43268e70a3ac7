//! Scans in levels, where the places along the axis are those of a thread's neighbours, of lanes, of warps and of further registers, in this order:
//! as they are where a tile was loaded by lines.
//!
//! ```text
//! place      further registers | warps | lanes | a vector
//! ```
//!
//! Each level adds up what lies below it once for a vector, not for each element:
//!
//! 1. a thread goes along each of its vectors;
//! 2. lanes scan what their vectors come to (W. D. Hillis, G. L. Steele, "Data Parallel Algorithms", 1986);
//! 3. warps leave what they come to in shared memory, and each scans all of that for itself: the totals of all warps of the first of the further
//!    registers, then of the second, and so on;
//! 4. what comes before a vector is combined with each of its elements.
//!
//! With halves ([`scan`](super::scan)) each element is combined in each of log2(n) steps.

use std::collections::BTreeMap;

use smallvec::SmallVec;
use tessera_ir::Elem;
use tessera_layout::{Axis, Distribution, WARP};
use tessera_ptx::ssa::Value as Reg;
use tessera_ptx::{Type as Ty, Word};

use super::bound::Regs;
use super::lowering::{Lowered, Lowering};
use super::parts::Spot;
use super::place::Place;
use super::reduce::{Combiner, Item};
use super::remap::row_major;

/// Bits of a number that follow each other.
#[derive(Clone, Copy)]
struct Field {
    first: u32,
    count: u32,
}

impl Field {
    fn most(self) -> u32 {
        (1 << self.count) - 1
    }

    fn mask(self) -> u32 {
        self.most() << self.first
    }
}

/// A vector of neighbours in a thread: its registers in the scan's order, and which of the further registers' places it has.
struct Vector {
    registers: Vec<usize>,
    set: u64,
}

/// Where a register lies along the axes that a scan does not go along.
type Others = Vec<(u64, u64)>;

/// A layout whose places along an axis are in levels.
pub(super) struct Levels {
    dim: usize,
    reverse: bool,
    lanes: Field,
    warps: Field,
    /// How many places the further registers have.
    sets: u64,
    /// Vectors of equal places along the other axes, in the scan's order.
    rows: Vec<Vec<Vector>>,
}

/// What comes before an element, and where there is something: everywhere, where no predicate is.
struct Before {
    item: Item,
    when: Option<Reg>,
}

impl Levels {
    /// The levels along an axis; none where its places are in another order.
    pub(super) fn of(layout: &Distribution, place: &Place, (dim, reverse): (usize, bool)) -> Option<Levels> {
        let (core, extent) = (layout.core(), layout.shape()[dim]);
        if layout.has_holes() || !extent.is_power_of_two() || !layout.warps().is_power_of_two() {
            return None;
        }
        let mut next = place.thread_bits[dim];
        let vector = 1u64.checked_shl(next.trailing_zeros()).filter(|_| next != 0)?;
        let mut field = |axis: Axis| -> Option<Field> {
            let mut found = Field { first: 0, count: 0 };
            for bit in 0..core.bits(axis) {
                let basis = core.basis(axis, bit);
                if basis[dim] == 0 {
                    continue;
                }
                // Each bit is the next place's, and the next of the number.
                let alone = basis.iter().enumerate().all(|(own, &part)| own == dim || part == 0);
                if found.count == 0 {
                    found.first = bit as u32;
                }
                if !alone || next == 0 || basis[dim] != 1 << next.trailing_zeros() || bit as u32 != found.first + found.count {
                    return None;
                }
                next &= next - 1;
                found.count += 1;
            }
            Some(found)
        };
        let (lanes, warps) = (field(Axis::Lane)?, field(Axis::Warp)?);
        // What warps leave is read by whole warps.
        if warps.count > 0 && 1 << lanes.count != WARP {
            return None;
        }
        let threads = vector << (lanes.count + warps.count);
        let mut found: BTreeMap<(Others, u64), BTreeMap<u64, usize>> = BTreeMap::new();
        for register in 0..place.len() {
            let (xor, add) = place.parts(register, dim);
            let (low, set) = (add % threads, add / threads);
            if xor != 0 || low >= vector {
                return None;
            }
            let others = (0..place.thread_bits.len()).filter(|&own| own != dim).map(|own| place.parts(register, own)).collect();
            if found.entry((others, set)).or_default().insert(low, register).is_some() {
                return None;
            }
        }
        let mut rows: BTreeMap<Others, Vec<Vector>> = BTreeMap::new();
        for ((others, set), registers) in found {
            let mut registers: Vec<usize> = registers.into_values().collect();
            if registers.len() as u64 != vector {
                return None;
            }
            if reverse {
                registers.reverse();
            }
            rows.entry(others).or_default().push(Vector { registers, set });
        }
        let sets = extent / threads;
        let mut rows: Vec<Vec<Vector>> = rows.into_values().collect();
        if rows.iter().any(|row| row.len() as u64 != sets) {
            return None;
        }
        if reverse {
            rows.iter_mut().for_each(|row| row.reverse());
        }
        Some(Levels { dim, reverse, lanes, warps, sets, rows })
    }

    /// Totals of warps in a row.
    fn totals(&self) -> u64 {
        self.sets << self.warps.count
    }
}

impl Lowering<'_> {
    /// Scans in levels.
    pub(super) fn scan_by_levels(
        &mut self,
        combiner: &Combiner<'_>,
        layout: &Distribution,
        (levels, place): (&Levels, &Place),
        mut current: Vec<Regs>,
    ) -> Lowered<Vec<Regs>> {
        let lane = self.lane();
        let mut totals: Vec<Vec<Item>> = Vec::new();
        for row in &levels.rows {
            let mut of_row = Vec::new();
            for vector in row {
                let mut total = self.item(&current, vector.registers[0]);
                for &register in &vector.registers[1..] {
                    let element = self.item(&current, register);
                    total = self.combine(combiner, &total, &element)?;
                    current.iter_mut().zip(&total).for_each(|(regs, &reg)| regs[register] = reg);
                }
                of_row.push(self.scan_lanes(combiner, levels, (levels.lanes, lane), total)?);
            }
            totals.push(of_row);
        }
        let warps = self.before_warps(combiner, layout, (levels, place), &totals)?;
        for ((row, totals), warps) in levels.rows.iter().zip(&totals).zip(warps) {
            for ((vector, total), warps) in row.iter().zip(totals).zip(warps) {
                let Some(before) = self.before_lanes(combiner, (levels, place), (lane, total), warps)? else { continue };
                for &register in &vector.registers {
                    let element = self.item(&current, register);
                    let both = self.combine(combiner, &before.item, &element)?;
                    let chosen = match before.when {
                        Some(when) => self.choose(when, &both, &element),
                        None => both,
                    };
                    current.iter_mut().zip(chosen).for_each(|(regs, reg)| regs[register] = reg);
                }
            }
        }
        Ok(current)
    }

    /// What lanes have of the vectors before and their own, by a field of the lane's number.
    fn scan_lanes(
        &mut self,
        combiner: &Combiner<'_>,
        levels: &Levels,
        (field, lane): (Field, Reg),
        mut total: Item,
    ) -> Lowered<Item> {
        for step in 0..field.count {
            let neighbour = self.neighbour(combiner, levels, &total, 1 << (field.first + step));
            let both = self.combine(combiner, &neighbour, &total)?;
            let is_there = self.has_before(levels, (field, lane), 1 << step);
            total = self.choose(is_there, &both, &total);
        }
        Ok(total)
    }

    /// What the lane has that stands so many lanes before.
    fn neighbour(&mut self, combiner: &Combiner<'_>, levels: &Levels, item: &Item, distance: u32) -> Item {
        let distance = self.b.u32(distance);
        let (mode, clamp) = if levels.reverse { (Word::Down, WARP as u32 - 1) } else { (Word::Up, 0) };
        self.shuffled_item(combiner, item, |b, word| b.shfl(mode, word, distance, clamp))
    }

    /// What another lane has.
    fn item_of_lane(&mut self, combiner: &Combiner<'_>, item: &Item, lane: Reg) -> Item {
        self.shuffled_item(combiner, item, |b, word| b.shfl(Word::Idx, word, lane, WARP as u32 - 1))
    }

    fn shuffled_item(
        &mut self,
        combiner: &Combiner<'_>,
        item: &Item,
        shuffle: impl Fn(&mut tessera_ptx::ssa::Builder, Reg) -> Reg + Copy,
    ) -> Item {
        let elems: SmallVec<[Elem; 2]> = combiner.elems.iter().copied().collect();
        item.iter().zip(elems).map(|(&reg, elem)| self.shuffled_element(elem, reg, shuffle)).collect()
    }

    /// What a field of a number holds.
    fn in_field(&mut self, field: Field, number: Reg) -> Reg {
        let (mask, first) = (self.b.u32(field.mask()), self.b.u32(field.first));
        let bits = self.b.and(number, mask);
        self.b.shr(Ty::U32, bits, first)
    }

    /// Whether so many come before in a field of a number.
    fn has_before(&mut self, levels: &Levels, (field, number): (Field, Reg), distance: u32) -> Reg {
        let mask = self.b.u32(field.mask());
        let bits = self.b.and(number, mask);
        let (compare, bound) = match levels.reverse {
            true => (Word::Le, field.most() - distance),
            false => (Word::Ge, distance),
        };
        let bound = self.b.u32(bound << field.first);
        self.b.setp(compare, Ty::U32, bits, bound)
    }

    /// What comes before a vector: of the lanes before in its warp, behind what comes before the warp.
    fn before_lanes(
        &mut self,
        combiner: &Combiner<'_>,
        (levels, place): (&Levels, &Place),
        (lane, total): (Reg, &Item),
        warps: Option<Before>,
    ) -> Lowered<Option<Before>> {
        let lanes = match levels.lanes.count {
            0 => None,
            _ => {
                let item = self.neighbour(combiner, levels, total, 1 << levels.lanes.first);
                Some((item, self.has_before(levels, (levels.lanes, lane), 1)))
            }
        };
        Ok(match (lanes, warps) {
            (None, warps) => warps,
            (Some((item, when)), None) => Some(Before { item, when: Some(when) }),
            (Some((item, has_lane)), Some(warps)) => {
                let both = self.combine(combiner, &warps.item, &item)?;
                let with_warps = self.choose(has_lane, &both, &warps.item);
                let Some(has_warp) = warps.when else { return Ok(Some(Before { item: with_warps, when: None })) };
                let item = self.choose(has_warp, &with_warps, &item);
                // The thread that has the first place has nothing before it.
                let first = self.b.u32(if levels.reverse { place.thread_bits[levels.dim] as u32 } else { 0 });
                let when = self.b.setp(Word::Ne, Ty::U32, place.thread[levels.dim], first);
                Some(Before { item, when: Some(when) })
            }
        })
    }

    /// What comes before the warp's part of each vector's set: of the other warps, and of the sets before.
    fn before_warps(
        &mut self,
        combiner: &Combiner<'_>,
        layout: &Distribution,
        (levels, place): (&Levels, &Place),
        totals: &[Vec<Item>],
    ) -> Lowered<Vec<Vec<Option<Before>>>> {
        if levels.warps.count > 0 {
            return self.before_by_memory(combiner, layout, (levels, place), totals);
        }
        let lane = self.last_lane(levels);
        let mut rows = Vec::new();
        for row in totals {
            let mut running: Option<Item> = None;
            let mut of_row = Vec::new();
            for (number, total) in row.iter().enumerate() {
                of_row.push(running.clone().map(|item| Before { item, when: None }));
                if number + 1 < row.len() {
                    let whole = self.item_of_lane(combiner, total, lane);
                    running = Some(match running {
                        Some(running) => self.combine(combiner, &running, &whole)?,
                        None => whole,
                    });
                }
            }
            rows.push(of_row);
        }
        Ok(rows)
    }

    /// The lane that has the last place among those of its field.
    fn last_lane(&mut self, levels: &Levels) -> Reg {
        let lane = self.lane();
        let mask = self.b.u32(levels.lanes.mask());
        match levels.reverse {
            true => {
                let others = self.b.u32(!levels.lanes.mask());
                self.b.and(lane, others)
            }
            false => self.b.or(lane, mask),
        }
    }

    fn before_by_memory(
        &mut self,
        combiner: &Combiner<'_>,
        layout: &Distribution,
        (levels, place): (&Levels, &Place),
        totals: &[Vec<Item>],
    ) -> Lowered<Vec<Vec<Option<Before>>>> {
        let (lane, thread) = (self.lane(), self.thread());
        let five = self.b.u32(WARP.trailing_zeros());
        let warp = self.b.shr(Ty::U32, thread, five);
        let found = self.totals_of_warps(combiner, layout, (levels, place, warp), totals)?;
        let has_lane = self.has_before(levels, (Field { first: 0, count: 5 }, lane), 1);
        let has_warp = self.has_before(levels, (levels.warps, warp), 1);
        let own = self.in_field(levels.warps, warp);
        let mut rows = Vec::new();
        for (mut words, row) in found.into_iter().zip(&levels.rows) {
            if levels.reverse {
                words.reverse();
            }
            // What comes before each total: inclusive sums, moved on by one place.
            let mut before: Vec<Item> = Vec::new();
            let mut last: Option<Item> = None;
            for word in words {
                let count = levels.totals().min(WARP).trailing_zeros();
                let mut sums = self.scan_lanes(combiner, levels, (Field { first: 0, count }, lane), word)?;
                if let Some(last) = &last {
                    sums = self.combine(combiner, last, &sums)?;
                }
                let moved = self.neighbour(combiner, levels, &sums, 1);
                before.push(match &last {
                    Some(last) => self.choose(has_lane, &moved, last),
                    None => moved,
                });
                let end = self.b.u32(if levels.reverse { 0 } else { WARP as u32 - 1 });
                last = Some(self.item_of_lane(combiner, &sums, end));
            }
            if levels.reverse {
                before.reverse();
            }
            let mut of_row = Vec::new();
            for (number, vector) in row.iter().enumerate() {
                let place = vector.set << levels.warps.count;
                let from = self.b.u32((place % WARP) as u32);
                let from = self.b.or(own, from);
                let item = self.item_of_lane(combiner, &before[(place / WARP) as usize], from);
                of_row.push(Some(Before { item, when: (number == 0).then_some(has_warp) }));
            }
            rows.push(of_row);
        }
        Ok(rows)
    }

    /// The totals of all warps of each row, in words of one for each lane.
    fn totals_of_warps(
        &mut self,
        combiner: &Combiner<'_>,
        layout: &Distribution,
        (levels, place, warp): (&Levels, &Place, Reg),
        totals: &[Vec<Item>],
    ) -> Lowered<Vec<Vec<Item>>> {
        let lane = self.lane();
        // A row's totals lie side by side, whichever axis the scan goes along.
        let mut shape: SmallVec<[u64; 4]> = layout.shape().iter().copied().collect();
        shape[levels.dim] = 1;
        shape.push(levels.totals());
        let (strides, count) = (row_major(&shape), shape.iter().product::<u64>());
        let end = self.b.u32(if levels.reverse { 0 } else { WARP as u32 - 1 });
        let is_last = self.b.setp(Word::Eq, Ty::U32, lane, end);
        let stores = self.stores(layout);
        let leaves = self.both(Some(is_last), stores);
        let words = levels.totals().div_ceil(WARP);
        let mut found: Vec<Vec<Item>> = vec![vec![Item::new(); words as usize]; levels.rows.len()];
        for (position, &elem) in combiner.elems.iter().enumerate() {
            let size = self.b.u32(elem.bytes() as u32);
            let (mut given, mut wanted) = (Vec::new(), Vec::new());
            for (row, totals) in levels.rows.iter().zip(totals) {
                // Where the row's totals begin.
                let mut begin = self.b.u32(0);
                let others = (0..layout.rank()).filter(|axis| *axis != levels.dim);
                for (axis, stride) in others.map(|axis| (axis, strides[axis])) {
                    let coordinate = self.coordinate(place, row[0].registers[0], axis);
                    let stride = self.b.u32(stride as u32);
                    begin = self.b.mad(Ty::U32, coordinate, stride, begin);
                }
                let own = self.in_field(levels.warps, warp);
                let spot = |lowering: &mut Self, within: Reg, number: u64, when| {
                    let number = lowering.b.u32(number as u32);
                    let at = lowering.b.add(Ty::U32, within, number);
                    let at = lowering.b.add(Ty::U32, at, begin);
                    let at = lowering.b.mul(Ty::U32, at, size);
                    Spot { when, at: (at, 0).into(), range: (0, u64::MAX) }
                };
                for (vector, total) in row.iter().zip(totals) {
                    given.push((total[position], spot(self, own, vector.set << levels.warps.count, leaves)));
                }
                for word in 0..words {
                    let when = (levels.totals() < WARP).then(|| {
                        let most = self.b.u32(levels.totals() as u32);
                        self.b.setp(Word::Lt, Ty::U32, lane, most)
                    });
                    wanted.push(Some(spot(self, lane, word * WARP, when)));
                }
            }
            let bytes = count * elem.bytes();
            let regs = match self.is_recording() {
                // A recording notes what a buffer for all of them takes.
                true => {
                    self.whole_exchange(bytes, 16)?;
                    vec![totals[0][0][position]; wanted.len()]
                }
                false => self.in_parts(elem, &given, &wanted, bytes)?,
            };
            for (row, regs) in found.iter_mut().zip(regs.chunks(words as usize)) {
                row.iter_mut().zip(regs).for_each(|(item, &reg)| item.push(reg));
            }
        }
        Ok(found)
    }
}
