//! Moving a tile from one distribution to another: the cheapest way that does it.
//!
//! | way                             | cost                                             |
//! |---------------------------------|--------------------------------------------------|
//! | [`Conversion::Same`]            | nothing                                          |
//! | [`Conversion::Registers`]       | nothing: registers are renamed                   |
//! | [`Conversion::Shuffle`]         | a shuffle and some selects for each register     |
//! | [`Conversion::Shared`]          | a round trip through shared memory               |
//!
//! Both distributions are made linear first: repeats are rounded up to powers of two, so that a *plan index* of a register has
//! bits; indices beyond the real repeats stand for holes. For each bit of the result's index one source index is then sought that
//! holds the same element, staying in the thread if that can be, in the warp otherwise.

use smallvec::SmallVec;

use crate::LayoutError;
use crate::distribution::Distribution;
use crate::linear::{Axis, LinearLayout};
use crate::matrix::{Echelon, apply};
use crate::scratch::{RoundTrip, round_trip};
use crate::shuffle::{Moves, Shuffle, rounds};

/// A way from one distribution to another.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Conversion {
    /// Every register keeps its place.
    Same,
    /// For each register of the result the register of the same thread that has its value; `None` for a hole.
    Registers(Vec<Option<u32>>),
    /// Threads of a warp exchange values.
    Shuffle(Shuffle),
    /// Through shared memory.
    Shared(Box<RoundTrip>),
}

/// A shuffle of more rounds than this goes through shared memory.
const MOST_ROUNDS: usize = 32;

/// The way from `from` to `to`, two distributions of one shape over the same threads.
///
/// # Errors
/// Shapes or threads differ; element sizes that are no power of two.
pub fn conversion(from: &Distribution, to: &Distribution, element_bytes: u64) -> Result<Conversion, LayoutError> {
    if from.shape() != to.shape() {
        return Err(LayoutError::Reshape);
    }
    if from.warps() != to.warps() {
        return Err(LayoutError::Axes);
    }
    if from == to {
        return Ok(Conversion::Same);
    }
    if let Some(registers) = register_map(from, to) {
        let same = from.registers() == to.registers()
            && registers.iter().enumerate().all(|(register, source)| source.is_none_or(|source| source as usize == register));
        return Ok(if same { Conversion::Same } else { Conversion::Registers(registers) });
    }
    if let Some(shuffle) = shuffle(from, to) {
        return Ok(Conversion::Shuffle(shuffle));
    }
    Ok(Conversion::Shared(Box::new(round_trip(from, to, element_bytes)?)))
}

/// For each register of `to` the register of `from` in the same thread with the same element, where every thread has one; `None` in
/// the list for a hole. Dimensions of extent 1 in `from` are broadcast: this is how a row's maximum meets the row.
pub fn register_map(from: &Distribution, to: &Distribution) -> Option<Vec<Option<u32>>> {
    if from.rank() != to.rank() || from.warps() != to.warps() {
        return None;
    }
    if from.shape().iter().zip(to.shape()).any(|(from, to)| from != to && *from != 1) {
        return None;
    }
    let (source, result) = (Linear::new(from), Linear::new(to));
    let finder = Finder::new(&source.layout, &[Axis::Lane, Axis::Warp]);
    let mut columns: SmallVec<[u64; 16]> = SmallVec::new();
    for axis in [Axis::Register, Axis::Lane, Axis::Warp] {
        for (bit, &basis) in result.layout.packed_bases(axis).iter().enumerate() {
            let target = project(&result.layout, basis, from, &source.layout);
            let wanted = if axis == Axis::Register { 0 } else { 1 << (source.layout.start(axis) + bit) };
            let index = finder.find(target, wanted)?;
            let register = source.layout.unpack_input(index, Axis::Register);
            match axis {
                Axis::Register => columns.push(register),
                // A source register that depends on the thread is no renaming.
                _ if register != 0 => return None,
                _ => {}
            }
        }
    }
    let mut map = vec![None; to.registers() as usize];
    for (index, register) in result.registers.iter().enumerate() {
        if let Some(register) = register {
            map[*register as usize] = source.registers[apply(&columns, index as u64) as usize];
        }
    }
    Some(map)
}

impl Distribution {
    /// The distribution of a tile of `shape` from which broadcasting to `self` costs nothing: extents that are 1 in `shape` are 1.
    ///
    /// # Errors
    /// A shape that does not broadcast to this tile's.
    pub fn before_broadcast(&self, shape: &[u64]) -> Result<Distribution, LayoutError> {
        if shape.len() != self.rank() {
            return Err(LayoutError::Rank { expected: self.rank(), found: shape.len() });
        }
        let mut before = self.clone();
        for dim in (0..shape.len()).filter(|&dim| shape[dim] != self.shape()[dim]) {
            if shape[dim] != 1 {
                return Err(LayoutError::Reshape);
            }
            before = before.slice(dim)?.expand(dim)?;
        }
        Ok(before)
    }
}

/// Shuffles within warps, when they suffice and are few.
fn shuffle(from: &Distribution, to: &Distribution) -> Option<Shuffle> {
    let (source, result) = (Linear::new(from), Linear::new(to));
    if result.registers.len() > MOST_ROUNDS || source.layout.bits(Axis::Register) > 16 {
        return None;
    }
    let within = Finder::new(&source.layout, &[Axis::Warp]);
    let here = Finder::new(&source.layout, &[Axis::Lane, Axis::Warp]);
    let still = Finder::new(&source.layout, &[Axis::Register, Axis::Lane, Axis::Warp]);
    let find = |axis, bit: usize| {
        let target = project(&result.layout, result.layout.packed_bases(axis)[bit], from, &source.layout);
        let own = |axis| 1 << (source.layout.start(axis) + bit);
        let index = match axis {
            Axis::Warp => still.find(target, own(Axis::Warp)),
            Axis::Lane => here.find(target, own(Axis::Lane)).or_else(|| within.find(target, 0)),
            _ => here.find(target, 0).or_else(|| within.find(target, 0)),
        }?;
        Some((source.layout.unpack_input(index, Axis::Register), source.layout.unpack_input(index, Axis::Lane)))
    };
    for bit in 0..result.layout.bits(Axis::Warp) {
        find(Axis::Warp, bit)?;
    }
    let registers = (0..result.layout.bits(Axis::Register)).map(|bit| find(Axis::Register, bit)).collect::<Option<_>>()?;
    let mut lanes = [(0, 0); 5];
    for (bit, lane) in lanes.iter_mut().enumerate() {
        *lane = find(Axis::Lane, bit)?;
    }
    let mut rounds = rounds(&Moves { registers, lanes })?;
    rounds.retain(|round| (0..32).any(|lane| result.registers[round.write.at(lane) as usize].is_some()));
    Some(Shuffle { rounds, from: source.registers, to: result.registers })
}

/// A distribution with its repeats rounded up to powers of two.
pub(crate) struct Linear {
    pub(crate) layout: LinearLayout,
    /// Plan index to register.
    pub(crate) registers: Vec<Option<u32>>,
}

impl Linear {
    pub(crate) fn new(distribution: &Distribution) -> Linear {
        let rank = distribution.rank();
        let mut layout = distribution.core().clone();
        let size = layout.size(Axis::Register);
        // (count, rounded count, registers from one to the next), innermost first.
        let mut digits: SmallVec<[(u64, u64, u64); 4]> = SmallVec::from_slice(&[(size, size, 1)]);
        let mut stride = size;
        for dim in (0..rank).rev() {
            let count = distribution.repeat(dim);
            layout = layout.product(&LinearLayout::identity(Axis::Register, count.next_power_of_two(), dim, rank));
            digits.push((count, count.next_power_of_two(), stride));
            stride *= count;
        }
        let register = |mut index: u64| {
            digits.iter().try_fold(0, |register, &(count, rounded, stride)| {
                let digit = index % rounded;
                index /= rounded;
                (digit < count).then_some(register + (digit * stride) as u32)
            })
        };
        let registers = (0..layout.size(Axis::Register)).map(register).collect();
        Linear { layout, registers }
    }
}

/// Solves for a source index with given values on some axes.
struct Finder {
    echelon: Echelon,
    fixed: u64,
    shift: usize,
}

impl Finder {
    fn new(source: &LinearLayout, axes: &[Axis]) -> Finder {
        let fixed = axes.iter().fold(0, |mask, &axis| mask | (source.size(axis) - 1) << source.start(axis));
        // The fixed bits stand above the coordinates, packed together so that a word suffices.
        let shift = source.out_bits();
        let column = |(bit, &basis): (usize, &u64)| basis | pack_bits(1 << bit & fixed, fixed) << shift;
        let columns: SmallVec<[u64; 16]> = source.columns().iter().enumerate().map(column).collect();
        Finder { echelon: Echelon::new(&columns), fixed, shift }
    }

    fn find(&self, target: u64, wanted: u64) -> Option<u64> {
        self.echelon.solve(target | pack_bits(wanted & self.fixed, self.fixed) << self.shift)
    }
}

/// The bits of `value` at the places set in `mask`, moved together.
fn pack_bits(value: u64, mut mask: u64) -> u64 {
    let (mut packed, mut to) = (0, 0);
    while mask != 0 {
        packed |= (value >> mask.trailing_zeros() & 1) << to;
        to += 1;
        mask &= mask - 1;
    }
    packed
}

/// Coordinates of the result's tile as packed coordinates of the source: bits that only holes have are dropped, so are dimensions
/// that are broadcast.
fn project(result: &LinearLayout, basis: u64, from: &Distribution, source: &LinearLayout) -> u64 {
    let mut coordinates = result.unpack(basis);
    for (dim, value) in coordinates.iter_mut().enumerate() {
        if from.shape()[dim] == 1 {
            *value = 0;
        }
    }
    source.pack(&coordinates)
}

/// Every element that a warp holds in `to` it holds in `from`.
pub(crate) fn keeps_warps(from: &Distribution, to: &Distribution) -> bool {
    let (source, result) = (Linear::new(from), Linear::new(to));
    let finder = Finder::new(&source.layout, &[Axis::Warp]);
    [Axis::Register, Axis::Lane, Axis::Warp].into_iter().all(|axis| {
        result.layout.packed_bases(axis).iter().enumerate().all(|(bit, &basis)| {
            let wanted = if axis == Axis::Warp { 1 << (source.layout.start(axis) + bit) } else { 0 };
            finder.find(project(&result.layout, basis, from, &source.layout), wanted).is_some()
        })
    })
}
