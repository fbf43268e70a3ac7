//! XOR swizzles of shared memory, and the search for one.
//!
//! [`Swizzle`] is CuTe's `Swizzle<B,M,S>` on *byte* offsets: bits `M+S .. M+S+B` are XORed into bits `M .. M+B`. It keeps runs of
//! `2^M` bytes whole and, as `S >= B`, undoes itself. The TMA's swizzles are members of the family:
//!
//! | TMA    | swizzle          | 16-byte chunk index is XORed with |
//! |--------|------------------|-----------------------------------|
//! | 32 B   | `Swizzle<1,4,3>` | bit 7                             |
//! | 64 B   | `Swizzle<2,4,3>` | bits 7-8                          |
//! | 128 B  | `Swizzle<3,4,3>` | bits 7-9                          |

use std::fmt;

use smallvec::SmallVec;

use crate::banks::{Access, wavefronts};
use crate::matrix::{Columns, Echelon, apply};

/// An XOR swizzle of byte offsets; see the module's head.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Default)]
pub struct Swizzle {
    /// How many bits are changed (B).
    pub bits: u8,
    /// The lowest changed bit (M).
    pub base: u8,
    /// From how much higher the bits are taken that are XORed in (S), at least `bits`.
    pub shift: u8,
}

impl Swizzle {
    /// Leaves every offset as it is.
    pub const NONE: Swizzle = Swizzle { bits: 0, base: 4, shift: 3 };
    /// The TMA's 32-byte swizzle.
    pub const B32: Swizzle = Swizzle { bits: 1, base: 4, shift: 3 };
    /// The TMA's 64-byte swizzle.
    pub const B64: Swizzle = Swizzle { bits: 2, base: 4, shift: 3 };
    /// The TMA's 128-byte swizzle.
    pub const B128: Swizzle = Swizzle { bits: 3, base: 4, shift: 3 };

    /// The swizzled offset. Applying it twice gives the offset back.
    pub fn apply(self, offset: u64) -> u64 {
        offset ^ (offset >> self.shift & ((1 << self.bits) - 1) << self.base)
    }

    /// Bits of an offset that it reads or changes lie below this one.
    pub fn reach(self) -> u32 {
        if self.bits == 0 { 0 } else { u32::from(self.base) + u32::from(self.shift) + u32::from(self.bits) }
    }

    /// Bytes of a row that the TMA swizzle works on: 32, 64 or 128; `None` for any other swizzle.
    pub fn span(self) -> Option<u64> {
        [Swizzle::B32, Swizzle::B64, Swizzle::B128].contains(&self).then_some(16 << self.bits)
    }

    /// Alignment in bytes that a buffer's start needs so that offsets and addresses agree in all bits that matter.
    pub fn alignment(self) -> u64 {
        (1 << self.reach()).max(16)
    }

    /// The cheapest swizzle for accesses to unswizzled offsets: least total of wavefronts, then fewest bits, then the shortest
    /// shift. It stays below bit `limit` and keeps every access' vector whole, and runs of `least` bytes. The second value is its cost in
    /// wavefronts.
    pub fn search(accesses: &[Access], least: u64, limit: u32) -> (Swizzle, u64) {
        let patterns: Vec<Pattern> = accesses.iter().map(Pattern::new).collect();
        let cost = |swizzle: Swizzle| patterns.iter().map(|pattern| pattern.wavefronts(swizzle)).sum::<u64>();
        let ideal: u64 = accesses.iter().map(|access| access.weight * u64::from(access.ideal())).sum();
        let mut best = (Swizzle::NONE, cost(Swizzle::NONE));
        let whole = accesses.iter().map(|access| access.bytes).fold(least.max(4), u64::max).ilog2();
        for bits in 1..=5 {
            for base in whole..=7u32.saturating_sub(bits) {
                for shift in bits..limit.saturating_sub(base + bits) + 1 {
                    if best.1 <= ideal {
                        return best;
                    }
                    let swizzle = Swizzle { bits: bits as u8, base: base as u8, shift: shift as u8 };
                    let found = cost(swizzle);
                    if found < best.1 {
                        best = (swizzle, found);
                    }
                }
            }
        }
        best
    }
}

/// An access made ready for trying swizzles.
enum Pattern<'a> {
    /// Offsets that are linear in the lane. A phase touches `2^words` words in `2^r` banks, `r` the rank of its bank bits, every bank
    /// equally often.
    Linear {
        /// Offset of each bit of a lane within a phase, then of each word within a vector.
        offsets: SmallVec<[u64; 7]>,
        words: u32,
        phases: u64,
    },
    /// Any other.
    Table(&'a Access),
}

impl Pattern<'_> {
    fn new(access: &Access) -> Pattern<'_> {
        let Some(start) = access.addresses[0] else { return Pattern::Table(access) };
        let bit = |bit: usize| access.addresses[1 << bit].map(|address| address ^ start);
        let Some(lanes) = (0..5).map(bit).collect::<Option<Columns>>() else { return Pattern::Table(access) };
        let linear = |lane: usize| access.addresses[lane].is_some_and(|address| address == start ^ apply(&lanes, lane as u64));
        if !start.is_multiple_of(access.bytes) || !(0..32).all(linear) {
            return Pattern::Table(access);
        }
        let phases = u64::from(access.ideal());
        let mut offsets: SmallVec<[u64; 7]> = lanes[..5 - phases.trailing_zeros() as usize].into();
        offsets.extend((2..access.bytes.ilog2()).map(|bit| 1 << bit));
        let words: Columns = offsets.iter().map(|offset| offset >> 2).collect();
        Pattern::Linear { offsets, words: Echelon::new(&words).rank() as u32, phases: phases * access.weight }
    }

    fn wavefronts(&self, swizzle: Swizzle) -> u64 {
        match self {
            Pattern::Linear { offsets, words, phases } => {
                let banks = rank_of_banks(offsets.iter().map(|&offset| swizzle.apply(offset) >> 2 & 31));
                phases << (words - banks)
            }
            Pattern::Table(access) => {
                let swizzled = access.addresses.map(|address| address.map(|address| swizzle.apply(address)));
                access.weight * u64::from(wavefronts(&swizzled, access.bytes).iter().sum::<u32>())
            }
        }
    }
}

/// The rank of vectors of five bits.
fn rank_of_banks(vectors: impl Iterator<Item = u64>) -> u32 {
    let mut pivots = [0u64; 5];
    let mut rank = 0;
    for mut vector in vectors {
        while vector != 0 {
            let lead = vector.ilog2() as usize;
            if pivots[lead] == 0 {
                pivots[lead] = vector;
                rank += 1;
                break;
            }
            vector ^= pivots[lead];
        }
    }
    rank
}

impl fmt::Display for Swizzle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Swizzle<{},{},{}>", self.bits, self.base, self.shift)
    }
}
