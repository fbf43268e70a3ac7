//! Sparse factors: of each few neighbours along K half are stored, and metadata says where they stood (PTX ISA, "Sparse matrix
//! storage").
//!
//! | elements | of | are stored | places |
//! |---|---|---|---|
//! | 16 and 8 bits | 4 | 2 | 2 bits each |
//! | `tf32` | 2 | 1 | 4 bits: `0b0100` the first, `0b1110` the second |
//! | 4 bits | 8 | 4, in pairs | 2 bits a pair |
//!
//! A row's places follow each other from the lowest bit. With g = lane / 4, the threads of a quad hold those of rows g and g + 8,
//! 16 bits of each in one register: one thread for rows of 16 bits, two for 32, all for 64. The selector says which.

use tessera_ptx::Type;

use crate::program::Reg;

/// Rows whose places one warp holds.
const ROWS: usize = 16;

/// The metadata of each row, which `read` takes from the register.
pub(super) fn words(read: &dyn Fn(Reg, usize) -> u64, (metadata, selector): (Reg, u32), ty: Type, k: usize) -> [u64; ROWS] {
    // Bits of a row's places, in pieces of 16 that one thread holds.
    let bits = match ty {
        Type::Tf32 => 2 * k,
        Type::S4 | Type::U4 => k / 2,
        _ => k,
    };
    let pieces = (bits / 16).max(1);
    let first = (selector as usize * pieces) % 4;
    std::array::from_fn(|row| {
        let piece = |index: usize| read(metadata, 4 * (row % 8) + (first + index) % 4) >> (16 * (row / 8)) & 0xffff;
        (0..pieces).fold(0, |word, index| word | piece(index) << (16 * index))
    })
}

/// Where along K each stored element of each row stood: `k / 2` a row.
pub(super) fn places(read: &dyn Fn(Reg, usize) -> u64, metadata: (Reg, u32), ty: Type, k: usize) -> Vec<usize> {
    let mut out = Vec::with_capacity(ROWS * k / 2);
    for word in words(read, metadata, ty, k) {
        let field = |index: usize, bits: usize| (word >> (index * bits)) as usize & ((1 << bits) - 1);
        for stored in 0..k / 2 {
            out.push(match ty {
                Type::Tf32 => 2 * stored + field(stored, 4) / 8,
                Type::S4 | Type::U4 => stored / 4 * 8 + 2 * field(stored / 2, 2) + stored % 2,
                _ => stored / 2 * 4 + field(stored, 2),
            });
        }
    }
    out
}
