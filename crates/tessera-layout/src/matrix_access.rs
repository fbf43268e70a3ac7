//! `ldmatrix` and `stmatrix`: moving 8 x 8 matrices of 16-bit words between shared memory and the fragments of matrix instructions.
//!
//! A matrix is eight rows of 16 contiguous bytes at any 16-byte boundaries. Lane `l` gets word `l % 4` of row `l / 4`, or with
//! `.trans`, which is for 16-bit elements only, the elements `2 * (l % 4)` and the next of column `l / 4`. One instruction moves 1, 2 or 4
//! matrices, one 32-bit register each; lane `l` gives the address of row `l % 8` of matrix `l / 8`.
//!
//! Whether a distribution can use them is read off its bases: their images in shared memory must be the bits of the 16 bytes in
//! the places that the instruction puts them, and multiples of 16 bytes elsewhere.

use smallvec::SmallVec;

use crate::banks::{Access, Conflicts, sum};
use crate::distribution::Distribution;
use crate::linear::{Axis, Dims, LinearLayout};
use crate::shared::SharedLayout;
use crate::vector::Vector;

/// How a tile moves by `ldmatrix` or `stmatrix`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MatrixAccess {
    /// The `.trans` form.
    pub transposed: bool,
    /// Matrices an instruction: 1, 2 or 4.
    pub matrices: u64,
    /// Registers of one instruction: the elements of a 32-bit register first, then the matrices.
    pub registers: Vector,
    /// What a lane adds (by XOR, no carry arises) to the coordinates of the first register of lane 0 of its warp to get the row whose
    /// address it gives.
    pub rows: LinearLayout,
}

impl MatrixAccess {
    /// Coordinates of the row that a lane addresses in the instruction that begins at register `base`; `None` outside the tile.
    pub fn row(&self, registers: &Distribution, base: u64, warp: u64, lane: u64) -> Option<Dims> {
        let mut position = registers.position(base, warp * crate::WARP)?;
        for (value, step) in position.iter_mut().zip(self.rows.apply(&[(Axis::Lane, lane)])) {
            *value ^= step;
        }
        let inside = position.iter().zip(registers.shape()).all(|(value, extent)| value < extent);
        inside.then_some(position)
    }
}

/// The widest matrix access between registers and shared memory, if there is one. Tiles with holes have none: rows would cross
/// the edge.
pub fn matrix_access(registers: &Distribution, shared: &SharedLayout) -> Option<MatrixAccess> {
    let (core, bytes) = (registers.core(), shared.element_bytes());
    if registers.has_holes() || bytes > 4 || registers.shape() != shared.shape() {
        return None;
    }
    let extents = shared.core().extents();
    let image = |axis, bit| {
        let basis = core.basis(axis, bit);
        let inside = basis.iter().zip(&extents).all(|(value, extent)| value < extent);
        (shared.split_offset(&basis).0 * bytes, inside)
    };
    let row = |axis, bit| image(axis, bit).0.is_multiple_of(16);
    let word = |axis, bit, offset| image(axis, bit) == (offset, true);
    let lanes_are = |first: usize, offsets: &[u64]| (0..offsets.len()).all(|i| word(Axis::Lane, first + i, offsets[i]));
    let register = |offset, taken: &[u8]| {
        (0..core.bits(Axis::Register)).find(|&bit| !taken.contains(&(bit as u8)) && word(Axis::Register, bit, offset))
    };
    let mut bits: SmallVec<[u8; 4]> = SmallVec::new();
    let mut rows: SmallVec<[(Axis, usize); 3]> = SmallVec::new();
    let straight = lanes_are(0, &[4, 8]) && (2..5).all(|bit| row(Axis::Lane, bit));
    let transposed = !straight && bytes == 2 && lanes_are(2, &[2, 4, 8]) && (0..2).all(|bit| row(Axis::Lane, bit));
    if straight {
        let mut offset = bytes;
        while offset < 4 {
            bits.push(register(offset, &bits)? as u8);
            offset *= 2;
        }
        rows.extend((2..5).map(|bit| (Axis::Lane, bit)));
    } else if transposed {
        // The lowest register bit is the one that the instruction's register packs.
        if core.bits(Axis::Register) == 0 || !row(Axis::Register, 0) {
            return None;
        }
        bits.push(0);
        rows.extend([(Axis::Register, 0), (Axis::Lane, 0), (Axis::Lane, 1)]);
    } else {
        return None;
    }
    let others: SmallVec<[u8; 8]> = (0..core.bits(Axis::Register) as u8).filter(|bit| !bits.contains(bit)).collect();
    let aligned = others.iter().all(|&bit| row(Axis::Register, usize::from(bit)))
        && (0..core.bits(Axis::Warp)).all(|bit| row(Axis::Warp, bit))
        && (0..shared.rank()).all(|dim| shared.shape()[dim] == extents[dim] || (shared.pitch()[dim] * bytes).is_multiple_of(16))
        && (0..registers.rank()).all(|dim| {
            registers.repeat(dim) == 1 || {
                let mut origin = Dims::from_elem(0, registers.rank());
                (1..registers.repeat(dim)).all(|count| {
                    origin[dim] = count * core.extent(dim);
                    (shared.split_offset(&origin).0 * bytes).is_multiple_of(16)
                })
            }
        });
    if !aligned {
        return None;
    }
    for &bit in others.iter().take(2) {
        bits.push(bit);
        rows.push((Axis::Register, usize::from(bit)));
    }
    let matrices = 1u64 << (rows.len() - 3);
    let bases: Vec<Dims> = rows
        .iter()
        .map(|&(axis, bit)| core.basis(axis, bit))
        .chain((rows.len()..5).map(|_| Dims::from_elem(0, core.rank())))
        .collect();
    let rows = LinearLayout::from_bases(&core.extents(), &[(Axis::Lane, bases)]).ok()?;
    Some(MatrixAccess { transposed, matrices, registers: Vector { bits }, rows })
}

/// The conflicts of a warp's matrix moves: the eight rows of a matrix are one phase.
pub fn matrix_conflicts(registers: &Distribution, shared: &SharedLayout, access: &MatrixAccess) -> Conflicts {
    let mut all = Vec::new();
    for base in access.registers.bases(registers) {
        let row = |lane: u64| if lane < 8 * access.matrices { access.row(registers, base, 0, lane) } else { None };
        let address = |lane| row(lane as u64).map(|position| shared.offset(&position));
        all.push(Access { addresses: std::array::from_fn(address), bytes: 16, weight: 1 });
    }
    sum(&all)
}
