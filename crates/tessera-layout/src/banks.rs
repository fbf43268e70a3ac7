//! Bank conflicts of shared memory, counted as the hardware serves a warp.
//!
//! Shared memory has 32 banks of 4 bytes; a bank gives one word a cycle, to any number of threads. A warp's access of up to 4
//! bytes a thread is one *phase* of 32 lanes; 8 bytes are two phases of half warps, 16 bytes four of quarter warps. A phase takes as
//! many *wavefronts* as there are different words in its busiest bank: its degree. One is conflict-free.
//!
//! ```text
//! f32 tile of 32 columns, a column read by a warp: addresses 0, 128, 256, ...: one bank, 32 words: degree 32
//! the same rows padded to 33 columns:              addresses 0, 132, 264, ...: 32 banks:           degree 1
//! ```

use smallvec::SmallVec;

use crate::distribution::{Distribution, WARP};
use crate::shared::SharedLayout;
use crate::vector::Vector;

/// Banks of shared memory, each of [`BANK_BYTES`].
pub const BANKS: u64 = 32;
/// Width of a bank.
pub const BANK_BYTES: u64 = 4;

/// What one instruction of a warp touches.
#[derive(Clone, Copy, Debug)]
pub struct Access {
    /// Byte offset of each lane; `None` where the lane takes no part.
    pub addresses: [Option<u64>; WARP as usize],
    /// Bytes of each lane: 1, 2, 4, 8 or 16.
    pub bytes: u64,
    /// How many instructions of this pattern there are.
    pub weight: u64,
}

impl Access {
    /// Wavefronts when no bank conflicts: one for each phase with a lane in it.
    pub fn ideal(&self) -> u32 {
        self.addresses.chunks(lanes_a_phase(self.bytes)).filter(|phase| phase.iter().any(Option::is_some)).count() as u32
    }
}

/// What an access pattern costs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Conflicts {
    /// The worst degree of any phase; 1 is conflict-free.
    pub degree: u32,
    /// Instructions of a warp.
    pub instructions: u64,
    /// Wavefronts of all of them.
    pub wavefronts: u64,
    /// Wavefronts without conflicts.
    pub ideal: u64,
}

fn lanes_a_phase(bytes: u64) -> usize {
    match bytes {
        0..=4 => 32,
        5..=8 => 16,
        _ => 8,
    }
}

/// The degree of each phase of one warp's access; 0 for a phase without lanes.
pub fn wavefronts(addresses: &[Option<u64>; WARP as usize], bytes: u64) -> SmallVec<[u32; 4]> {
    addresses
        .chunks(lanes_a_phase(bytes))
        .map(|phase| {
            let mut words: SmallVec<[u64; 32]> = SmallVec::new();
            for address in phase.iter().flatten() {
                words.extend(address / BANK_BYTES..(address + bytes).div_ceil(BANK_BYTES));
            }
            words.sort_unstable();
            words.dedup();
            let mut busy = [0u32; BANKS as usize];
            for word in words {
                busy[(word % BANKS) as usize] += 1;
            }
            busy.into_iter().max().unwrap_or(0)
        })
        .collect()
}

/// The conflicts of a warp that moves a tile between registers and shared memory in vectors. All warps behave alike where offsets
/// are linear; the first warp stands for them.
pub fn bank_conflicts(registers: &Distribution, shared: &SharedLayout, vector: &Vector) -> Conflicts {
    // Within one core box of shared memory an access differs from the first by an XOR that all lanes share, between boxes by a
    // constant sum: where boxes begin at bank 0, one access stands for all.
    let alike = shared.is_aligned_to_banks() && !registers.has_holes();
    sum(&accesses(registers, shared, vector, if alike { Some(1) } else { None }))
}

/// The total of some accesses.
pub(crate) fn sum(accesses: &[Access]) -> Conflicts {
    let mut sum = Conflicts { degree: 0, instructions: 0, wavefronts: 0, ideal: 0 };
    for access in accesses {
        let phases = wavefronts(&access.addresses, access.bytes);
        sum.degree = sum.degree.max(phases.iter().copied().max().unwrap_or(0));
        sum.instructions += access.weight;
        sum.wavefronts += access.weight * u64::from(phases.iter().sum::<u32>());
        sum.ideal += access.weight * u64::from(access.ideal());
    }
    sum
}

/// The first warp's instructions, or the first few of them with the weight of all.
pub(crate) fn accesses(registers: &Distribution, shared: &SharedLayout, vector: &Vector, most: Option<u64>) -> Vec<Access> {
    let bytes = vector.elements() * shared.element_bytes();
    let all = registers.registers() / vector.elements();
    let few = most.unwrap_or(all).min(all);
    let access = |base: u64| {
        let address = |lane| registers.element(base, lane as u64).map(|position| shared.offset(&position));
        Access { addresses: std::array::from_fn(address), bytes, weight: all / few }
    };
    vector.bases(registers).take(few as usize).map(access).collect()
}
