//! Where a thread's registers lie in a tile: what a coordinate takes from the thread's number, and what from the register.
//!
//! A layout is linear over bits, so a coordinate is `(thread part ^ register part) + origin of the repetition`. Thread and
//! register parts mostly have no bit in common; the exclusive or is then a sum, and the register's share is a constant that
//! ends up in the offset of an address.

use std::collections::BTreeMap;

use smallvec::SmallVec;
use tessera_layout::{Axis, Dims, Distribution, LinearLayout, WARP};
use tessera_ptx::ssa::Value as Reg;
use tessera_ptx::{Type as Ty, Word};

use super::lowering::Lowering;

/// The coordinates of a tile's registers in the current thread.
#[derive(Clone, Debug)]
pub(super) struct Place {
    /// The thread's part of each coordinate, 32 bits.
    pub(super) thread: SmallVec<[Reg; 4]>,
    /// Which bits of each coordinate the thread's part may have.
    pub(super) thread_bits: SmallVec<[u64; 4]>,
    /// The largest part that a thread has: less than all bits where warps are no power of two.
    thread_most: SmallVec<[u64; 4]>,
    /// For each register the part of each coordinate that is combined by exclusive or, and the part that is added.
    registers: Vec<SmallVec<[(u64, u64); 4]>>,
    shape: SmallVec<[u64; 4]>,
}

/// Whether a register holds an element.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Inside {
    /// In every thread.
    Always,
    /// In no thread.
    Never,
    /// Where the predicate holds.
    When(Reg),
}

impl Place {
    /// How many registers there are.
    pub(super) fn len(&self) -> usize {
        self.registers.len()
    }

    /// What is combined by exclusive or and what is added to the thread's part of a coordinate.
    pub(super) fn parts(&self, register: usize, dim: usize) -> (u64, u64) {
        self.registers[register][dim]
    }

    /// The smallest and the largest coordinate that any thread's register can have.
    pub(super) fn range(&self, register: usize, dim: usize) -> (u64, u64) {
        (self.registers[register][dim].1, self.most(register, dim))
    }

    fn most(&self, register: usize, dim: usize) -> u64 {
        let (xor, add) = self.registers[register][dim];
        (if xor == 0 { self.thread_most[dim] } else { self.thread_bits[dim] | xor }) + add
    }
}

/// What a thread's number says of the coordinates within a core.
fn own(core: &LinearLayout, thread: u64) -> Dims {
    core.apply(&[(Axis::Lane, thread % WARP), (Axis::Warp, thread / WARP)])
}

impl Lowering<'_> {
    /// Where the registers of a layout lie.
    pub(super) fn place(&mut self, layout: &Distribution) -> Place {
        let core = layout.core();
        let rank = layout.rank();
        let mut thread = SmallVec::new();
        let mut thread_bits = SmallVec::new();
        for dim in 0..rank {
            let bases = (0..core.bits(Axis::Lane))
                .map(|bit| (bit, core.basis(Axis::Lane, bit)[dim]))
                .chain((0..core.bits(Axis::Warp)).map(|bit| (5 + bit, core.basis(Axis::Warp, bit)[dim])));
            let bases: Vec<(usize, u64)> = bases.collect();
            thread_bits.push(bases.iter().fold(0, |all, (_, basis)| all | basis));
            thread.push(self.scatter_bits(&bases));
        }
        let thread_most = match layout.warps().is_power_of_two() {
            true => thread_bits.clone(),
            false => {
                let mut most = own(core, 0);
                for thread in 1..layout.threads() {
                    most.iter_mut().zip(own(core, thread)).for_each(|(most, part)| *most = part.max(*most));
                }
                most
            }
        };
        let size = core.size(Axis::Register);
        let registers = (0..)
            .zip(layout.positions(0))
            .map(|(register, position)| {
                let inner = core.apply(&[(Axis::Register, register % size)]);
                (0..rank)
                    .map(|dim| {
                        let origin = position[dim] - inner[dim];
                        if inner[dim] & thread_bits[dim] == 0 { (0, position[dim]) } else { (inner[dim], origin) }
                    })
                    .collect()
            })
            .collect();
        Place { thread, thread_bits, thread_most, registers, shape: layout.shape().iter().copied().collect() }
    }

    /// The exclusive or of the bases of the thread number's set bits: bits that move equally far move together.
    pub(super) fn scatter_bits(&mut self, bases: &[(usize, u64)]) -> Reg {
        let mut moves: BTreeMap<i32, u32> = BTreeMap::new();
        let (mut seen, mut overlap) = (0u64, false);
        for &(bit, basis) in bases {
            overlap |= seen & basis != 0;
            seen |= basis;
            let mut left = basis;
            while left != 0 {
                let to = left.trailing_zeros();
                *moves.entry(to as i32 - bit as i32).or_default() |= 1 << bit;
                left &= left - 1;
            }
        }
        let mut sum: Option<Reg> = None;
        for (&distance, &mask) in &moves {
            let thread = self.thread();
            let mask = self.b.u32(mask);
            let part = self.b.and(thread, mask);
            let count = self.b.u32(distance.unsigned_abs());
            let part = match distance {
                0 => part,
                1.. => self.b.shl(part, count),
                _ => self.b.shr(Ty::U32, part, count),
            };
            sum = Some(match sum {
                None => part,
                Some(sum) if overlap => self.b.xor(sum, part),
                Some(sum) => self.b.or(sum, part),
            });
        }
        sum.unwrap_or_else(|| self.b.u32(0))
    }

    /// A register's coordinate along a dimension.
    pub(super) fn coordinate(&mut self, place: &Place, register: usize, dim: usize) -> Reg {
        let (xor, add) = place.parts(register, dim);
        let mut value = place.thread[dim];
        if xor != 0 {
            let xor = self.b.u32(xor as u32);
            value = self.b.xor(value, xor);
        }
        if add == 0 {
            return value;
        }
        let add = self.b.u32(add as u32);
        self.b.add(Ty::S32, value, add)
    }

    /// The least coordinate of the aligned row that a register is of: rows that divide the tile are in it as a whole or not at all.
    fn first_of_row(&mut self, place: &Place, register: usize, dim: usize) -> Reg {
        let (xor, add) = place.parts(register, dim);
        let rows = (place.thread_bits[dim] | place.shape[dim]).trailing_zeros();
        let within = (1u64 << rows.min(63)) - 1;
        if xor != 0 {
            return self.coordinate(place, register, dim);
        }
        let first = self.b.u32((add & !within) as u32);
        self.b.add(Ty::S32, place.thread[dim], first)
    }

    /// Whether a register holds an element of the tile.
    pub(super) fn inside(&mut self, place: &Place, register: usize) -> Inside {
        let mut all: Option<Reg> = None;
        for dim in 0..place.shape.len() {
            let extent = place.shape[dim];
            if place.most(register, dim) < extent {
                continue;
            }
            let (_, add) = place.parts(register, dim);
            if add >= extent {
                return Inside::Never;
            }
            let coordinate = self.first_of_row(place, register, dim);
            let limit = self.b.u32(extent as u32);
            let within = self.b.setp(Word::Lt, Ty::U32, coordinate, limit);
            all = Some(match all {
                None => within,
                Some(all) => self.b.and(all, within),
            });
        }
        all.map_or(Inside::Always, Inside::When)
    }

    /// Whether this thread stores what several threads hold copies of; `None` where there are no such copies.
    pub(super) fn stores(&mut self, layout: &Distribution) -> Option<Reg> {
        let (_, mask) = layout.primary_masks();
        if mask == 0 {
            return None;
        }
        let thread = self.thread();
        let (mask, zero) = (self.b.u32(mask as u32), self.b.u32(0));
        let bits = self.b.and(thread, mask);
        Some(self.b.setp(Word::Eq, Ty::U32, bits, zero))
    }

    /// Both of two conditions, where there are two.
    pub(super) fn both(&mut self, a: Option<Reg>, b: Option<Reg>) -> Option<Reg> {
        match (a, b) {
            (Some(a), Some(b)) => Some(self.b.and(a, b)),
            (a, b) => a.or(b),
        }
    }
}
