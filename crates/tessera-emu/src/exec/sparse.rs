//! Sparse factors: of each few neighbours along K half are stored, and metadata says where they stood (PTX ISA, "Sparse matrix
//! storage").
//!
//! | elements | of | are stored | places |
//! |---|---|---|---|
//! | 16 and 8 bits | 4 | 2 | 2 bits each |
//! | `tf32` | 2 | 1 | 4 bits: `0b0100` the first, `0b1110` the second |
//! | 4 bits | 8 | 4, in pairs | 2 bits a pair |
//!
//! A row's places follow each other from the lowest bit, and are cut into pieces, the first the lowest. With g = lane / 4, the
//! threads of a quad hold those of rows g and g + 8. Elements of 16 bits and more: pieces of 16 bits, a thread has one of row g and
//! above it one of row g + 8; one thread for rows of 16 bits, two for 32. Elements of 8 and 4 bits: pieces of 32, an even thread has
//! one of row g, the odd one after it the one of row g + 8. Where not all four hold something the selector says which do.

use tessera_ptx::Type;

use crate::program::Reg;

/// Rows whose places one warp holds.
const ROWS: usize = 16;

/// The metadata of each row, which `read` takes from the register.
pub(super) fn words(read: &dyn Fn(Reg, usize) -> u64, (metadata, selector): (Reg, u32), ty: Type, k: usize) -> [u64; ROWS] {
    // Bits of a row's places.
    let bits = match ty {
        Type::Tf32 => 2 * k,
        Type::S4 | Type::U4 => k / 2,
        _ => k,
    };
    let selector = selector as usize;
    let narrow = matches!(ty, Type::S4 | Type::U4) || ty.bits() == 8;
    let width = if narrow { 32 } else { 16 };
    let pieces = (bits / width).max(1);
    std::array::from_fn(|row| {
        let upper = row / 8;
        (0..pieces).fold(0, |word, piece| {
            let (thread, shift) = match narrow {
                true => (2 * (selector + piece) + upper, 0),
                false => (selector * pieces + piece, 16 * upper),
            };
            let register = read(metadata, 4 * (row % 8) + thread % 4);
            word | (register >> shift & ((1 << width) - 1)) << (piece * width)
        })
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
