//! The widest vectors with which a tile's registers can be loaded from or stored to memory.
//!
//! A vector is a set of register bits: register bit `bits[i]` moves the element `2^i` further in memory, all other bits and the
//! threads move by multiples of the vector, and the tile's edge never falls inside one. The bits need not be the lowest ones: a
//! thread's registers can be gathered freely.

use smallvec::SmallVec;

use crate::distribution::Distribution;
use crate::linear::{Axis, Dims};
use crate::shared::SharedLayout;

/// Registers that move in one instruction; see the module's head.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Default)]
pub struct Vector {
    /// Bits of the core's register index, the one of the next element in memory first.
    pub bits: SmallVec<[u8; 4]>,
}

impl Vector {
    /// Elements of the vector.
    pub fn elements(&self) -> u64 {
        1 << self.bits.len()
    }

    /// The bits as a mask of register indices.
    pub fn mask(&self) -> u64 {
        self.bits.iter().fold(0, |mask, bit| mask | 1 << bit)
    }

    /// The register of an element of the vector that begins at register `base`.
    pub fn register(&self, base: u64, element: u64) -> u64 {
        self.bits.iter().enumerate().fold(base, |register, (i, bit)| register | (element >> i & 1) << bit)
    }

    /// The first register of each vector of a thread, in order.
    pub fn bases(&self, registers: &Distribution) -> impl Iterator<Item = u64> + use<> {
        let mask = self.mask();
        (0..registers.registers()).filter(move |register| register & mask == 0)
    }

    /// The vector of the first `log2(elements)` bits.
    pub fn narrowed(&self, elements: u64) -> Vector {
        let keep = self.bits.len().min(elements.max(1).ilog2() as usize);
        Vector { bits: self.bits[..keep].into() }
    }
}

/// The widest vector of at most `max_bytes` for global memory in which `contiguous` is the dimension of neighbouring elements, and
/// the tile's first element and all other strides are multiples of `alignment` elements.
pub fn widest_global_vector(
    registers: &Distribution,
    contiguous: usize,
    alignment: u64,
    element_bytes: u64,
    max_bytes: u64,
) -> Vector {
    let most = (max_bytes / element_bytes.max(1)).min(1 << alignment.max(1).trailing_zeros());
    let image = |basis: &[u64]| {
        let alone = basis.iter().enumerate().all(|(dim, value)| dim == contiguous || *value == 0);
        Image { offset: basis[contiguous], inside: alone }
    };
    widest(registers, most, |_| true, image)
}

/// The widest vector of at most `max_bytes` between registers and a layout of shared memory.
pub fn widest_shared_vector(registers: &Distribution, shared: &SharedLayout, max_bytes: u64) -> Vector {
    let extents = shared.core().extents();
    let image = |basis: &[u64]| Image {
        offset: shared.split_offset(basis).0,
        inside: basis.iter().zip(&extents).all(|(value, extent)| value < extent),
    };
    let whole = |elements: u64| {
        let repeated = (0..shared.rank()).filter(|&dim| shared.shape()[dim] > extents[dim]);
        repeated.into_iter().all(|dim| shared.pitch()[dim].is_multiple_of(elements))
    };
    widest(registers, max_bytes / shared.element_bytes(), whole, image)
}

/// Where a basis goes in memory.
struct Image {
    /// Elements, as far as they matter for alignment.
    offset: u64,
    /// The offset is all: nothing else moves.
    inside: bool,
}

fn widest(registers: &Distribution, most: u64, whole: impl Fn(u64) -> bool, image: impl Fn(&[u64]) -> Image) -> Vector {
    let core = registers.core();
    let images: Vec<Image> = core.columns().iter().map(|&basis| image(&core.unpack(basis))).collect();
    let mut bits: SmallVec<[u8; 4]> = SmallVec::new();
    for i in 0..most.max(1).ilog2() {
        let next = |bit: &usize| images[*bit].inside && images[*bit].offset == 1 << i && !bits.contains(&(*bit as u8));
        let Some(bit) = (0..core.bits(Axis::Register)).find(next) else { break };
        bits.push(bit as u8);
    }
    // Coordinate bits that repeats of the core reach.
    let mut outer: SmallVec<[u64; 8]> = SmallVec::new();
    for dim in (0..registers.rank()).filter(|&dim| registers.repeat(dim) > 1) {
        let mut basis = Dims::from_elem(0, registers.rank());
        let mut bit = core.extent(dim);
        while bit < registers.shape()[dim] {
            basis[dim] = bit;
            outer.push(image(&basis).offset);
            bit *= 2;
        }
    }
    loop {
        let elements = 1u64 << bits.len();
        let inside = bits.iter().fold(0, |mask, bit| mask | 1u64 << bit);
        let others = images.iter().enumerate().filter(|(bit, _)| inside & 1 << bit == 0).map(|(_, image)| image.offset);
        let aligned = others.chain(outer.iter().copied()).all(|offset| offset.is_multiple_of(elements));
        let edges = (0..registers.rank()).all(|dim| {
            let reach = bits.iter().fold(0, |all, &bit| all | core.basis(Axis::Register, usize::from(bit))[dim]);
            registers.shape()[dim].is_multiple_of((reach + 1).next_power_of_two())
        });
        if bits.is_empty() || (aligned && edges && whole(elements)) {
            return Vector { bits };
        }
        bits.pop();
    }
}
