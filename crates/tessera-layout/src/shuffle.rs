//! Conversions within warps, as rounds of `shfl.sync.idx`.
//!
//! In a round each lane offers one register and reads what one lane offers. All three choices, which register to offer, which lane
//! to read and which register to write, are linear in the lane, so each costs a few selects. The element of register `r`, lane `l`
//! lies in register `A r + B l` of lane `C r + D l`. Round `k` writes register `k + M l`, where `M` is chosen so that what a lane
//! has to offer depends on that lane alone: `ker(C M + D)` lies in `ker(A M + B)`. Exchanging register bit 0 with lane bit 0
//! (`A = D = 0`, `B = C = 1`) takes `M = 1`:
//!
//! | round | lane 0                           | lane 1                           |
//! |-------|----------------------------------|----------------------------------|
//! | 0     | register 0 of lane 0, to 0       | register 1 of lane 1, to 1       |
//! | 1     | offers 1, reads lane 1, to 1     | offers 0, reads lane 0, to 0     |

use smallvec::SmallVec;

use crate::matrix::{Echelon, apply};

/// A value that is linear in the lane: `base ^` the entries of the lane's bits.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct LaneMap {
    /// The value at lane 0.
    pub base: u32,
    /// What each bit of the lane changes.
    pub lane: [u32; 5],
}

impl LaneMap {
    /// The value at a lane.
    pub fn at(&self, lane: u32) -> u32 {
        (0..5).filter(|bit| lane >> bit & 1 == 1).fold(self.base, |value, bit| value ^ self.lane[bit])
    }

    /// The same at every lane.
    pub fn is_constant(&self) -> bool {
        self.lane == [0; 5]
    }
}

/// One shuffle with what comes before and after it. Registers are indices into [`Shuffle::from`] and [`Shuffle::to`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Round {
    /// The register that a lane offers.
    pub offer: LaneMap,
    /// The lane that a lane reads from.
    pub source: LaneMap,
    /// The register that a lane writes.
    pub write: LaneMap,
}

impl Round {
    /// Every lane reads itself: selects suffice.
    pub fn stays(&self) -> bool {
        self.source.base == 0 && self.source.lane == [1, 2, 4, 8, 16]
    }
}

/// A plan of shuffles; see the module's head.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Shuffle {
    /// The rounds, in any order: none depends on another.
    pub rounds: Vec<Round>,
    /// The source's registers: plan index to register. `None` is a hole, any value will do.
    pub from: Vec<Option<u32>>,
    /// The result's registers: plan index to register. `None` is not written.
    pub to: Vec<Option<u32>>,
}

/// Where each input bit of the result finds its value: the source register and lane of register bit `i` and lane bit `i`.
pub(crate) struct Moves {
    pub(crate) registers: SmallVec<[(u64, u64); 8]>,
    pub(crate) lanes: [(u64, u64); 5],
}

/// The rounds that make these moves, or `None` where no linear choice exists.
pub(crate) fn rounds(moves: &Moves) -> Option<Vec<Round>> {
    // Vectors (lane part | register part << 8): the lane part has to determine the register part.
    let joined = |(register, lane): (u64, u64)| lane | register << 8;
    let columns: SmallVec<[u64; 8]> = moves.registers.iter().map(|&column| joined(column)).collect();
    let mut spread = Echelon::default();
    let mut chosen = [(0u64, 0u64); 5];
    let mut whole = Echelon::default();
    for (bit, (choice, &lane)) in chosen.iter_mut().zip(&moves.lanes).enumerate() {
        let plain = joined(lane);
        let candidates = (0..1u64 << columns.len()).map(|m| (m, plain ^ apply(&columns, m)));
        // A choice whose lane part is new is always right; one that repeats an old combination entirely is, too.
        let fresh = |vector: u64| spread.solve(vector & 31).is_none();
        let repeated = |vector: u64| whole.solve(vector).is_some();
        let found = candidates.clone().find(|(_, vector)| fresh(*vector));
        let (m, vector) = found.or_else(|| candidates.clone().find(|(_, vector)| repeated(*vector)))?;
        spread.push(vector & 31, 1 << bit);
        whole.push(vector, 1 << bit);
        *choice = (m, vector);
    }
    // S: lane to register with S(lane part) = register part on the span of the choices, zero on a complement.
    let mut offer = [0u32; 5];
    let mut basis = Echelon::default();
    let mut values: Vec<u64> = Vec::new();
    let units = (0..5).map(|bit| 1u64 << bit);
    for vector in chosen.iter().map(|(_, vector)| *vector).chain(units) {
        if basis.push(vector & 31, 1 << values.len()) {
            values.push(vector >> 8);
        }
    }
    for (bit, entry) in offer.iter_mut().enumerate() {
        *entry = apply(&values, basis.solve(1 << bit)?) as u32;
    }
    let offered = |lane: u64| (0..5).filter(|bit| lane >> bit & 1 == 1).fold(0, |register, bit| register ^ offer[bit]);
    let round = |k: u64| {
        let base = apply(&columns, k);
        Round {
            offer: LaneMap { base: (base >> 8) as u32 ^ offered(base & 31), lane: offer },
            source: LaneMap { base: (base & 31) as u32, lane: chosen.map(|(_, vector)| (vector & 31) as u32) },
            write: LaneMap { base: k as u32, lane: chosen.map(|(m, _)| m as u32) },
        }
    };
    Some((0..1 << columns.len()).map(round).collect())
}
