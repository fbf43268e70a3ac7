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

use crate::banks::{Access, wavefronts};

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
    /// shift. It stays below bit `limit` and keeps every access' vector whole. The second value is its cost in wavefronts.
    pub fn search(accesses: &[Access], limit: u32) -> (Swizzle, u64) {
        let cost = |swizzle: Swizzle| {
            let one = |access: &Access| {
                let swizzled = access.addresses.map(|address| address.map(|address| swizzle.apply(address)));
                access.weight * u64::from(wavefronts(&swizzled, access.bytes).iter().sum::<u32>())
            };
            accesses.iter().map(one).sum::<u64>()
        };
        let ideal: u64 = accesses.iter().map(|access| access.weight * u64::from(access.ideal())).sum();
        let mut best = (Swizzle::NONE, cost(Swizzle::NONE));
        let whole = accesses.iter().map(|access| access.bytes.max(4).ilog2()).max().unwrap_or(2);
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

impl fmt::Display for Swizzle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Swizzle<{},{},{}>", self.bits, self.base, self.shift)
    }
}
