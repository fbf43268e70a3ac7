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
//!
//! Two places of a pair that are the same are undefined (0b0000, 0b0101, 0b1010, 0b1111), and so are, for `tf32`, all fields but those two; where
//! metadata is ordered, the second place must be behind the first. All that is refused.

use tessera_ptx::Type;

use super::Fault;
use crate::finding::FindingKind;
use crate::program::{Metadata, Reg};

/// Rows whose places one warp holds.
const ROWS: usize = 16;

/// Bits of a row's places.
fn bits(ty: Type, k: usize) -> usize {
    match ty {
        Type::Tf32 => 2 * k,
        Type::S4 | Type::U4 => k / 2,
        _ => k,
    }
}

/// Whether a thread has 32 bits of one row, rather than 16 of each of two.
fn narrow(ty: Type) -> bool {
    matches!(ty, Type::S4 | Type::U4) || ty.bits() == 8
}

/// Into how many pieces a row's places are cut, and the bits of one.
fn pieces(ty: Type, k: usize) -> (usize, usize) {
    let width = if narrow(ty) { 32 } else { 16 };
    ((bits(ty, k) / width).max(1), width)
}

/// How many choices there are of the threads of a quad that hold the places.
pub(crate) fn selectors(ty: Type, k: usize) -> u32 {
    let threads = pieces(ty, k).0 * if narrow(ty) { 2 } else { 1 };
    (4 / threads) as u32
}

/// The metadata of each row, which `read` takes from the register.
pub(super) fn words(read: &dyn Fn(Reg, usize) -> u64, metadata: Metadata, ty: Type, k: usize) -> [u64; ROWS] {
    let selector = metadata.selector as usize;
    let (pieces, width) = pieces(ty, k);
    std::array::from_fn(|row| {
        let upper = row / 8;
        (0..pieces).fold(0, |word, piece| {
            let (thread, shift) = match narrow(ty) {
                true => (2 * (selector + piece) + upper, 0),
                false => (selector * pieces + piece, 16 * upper),
            };
            let register = read(metadata.reg, 4 * (row % 8) + thread);
            word | (register >> shift & ((1 << width) - 1)) << (piece * width)
        })
    })
}

/// Where along K each stored element of each row stood: `k / 2` a row.
pub(super) fn places(read: &dyn Fn(Reg, usize) -> u64, metadata: Metadata, ty: Type, k: usize) -> Result<Vec<usize>, Fault> {
    let mut out = Vec::with_capacity(ROWS * k / 2);
    for (row, word) in words(read, metadata, ty, k).into_iter().enumerate() {
        let field = |index: usize, bits: usize| (word >> (index * bits)) as usize & ((1 << bits) - 1);
        let refused =
            |message: String| Fault::new(FindingKind::Matrix, 4 * (row % 8), format!("metadata of row {row}: {message}"));
        if ty == Type::Tf32 {
            for pair in 0..k / 2 {
                out.push(match field(pair, 4) {
                    0b0100 => 2 * pair,
                    0b1110 => 2 * pair + 1,
                    other => return Err(refused(format!("{other:#06b} is the place of no `tf32`"))),
                });
            }
            continue;
        }
        // Elements that have a place together, which are neighbours.
        let together = if matches!(ty, Type::S4 | Type::U4) { 2 } else { 1 };
        for group in 0..k / (4 * together) {
            let pair = [field(2 * group, 2), field(2 * group + 1, 2)];
            if pair[0] == pair[1] {
                return Err(refused(format!("group {group} has {} as the place of both of its elements", pair[0])));
            }
            if metadata.ordered && pair[0] > pair[1] {
                let [first, second] = pair;
                return Err(refused(format!(
                    "group {group} has the places {first} and {second}, which do not rise as ordered ones do"
                )));
            }
            for place in pair {
                out.extend((0..together).map(|at| together * (4 * group + place) + at));
            }
        }
    }
    Ok(out)
}
