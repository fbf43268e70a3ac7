//! Advice: memory instructions that take more transactions than their bytes need.
//!
//! Shared memory has 32 banks of 4 bytes. A warp's access is served in passes of at most 128 bytes (all lanes of 4 bytes or
//! less, half a warp of 8, a quarter of 16); lanes of a pass that ask for different words of one bank take turns ("CUDA C++
//! Programming Guide, Shared Memory"). Global memory moves in sectors of 32 bytes: a warp's access takes as many as it
//! touches. The least is what the bytes would take if they lay together; equal addresses count once.
//!
//! | `ld.f32` of lane i at | shared, passes | global, sectors |
//! |---|---|---|
//! | `4 i` | 1 | 4 |
//! | `8 i` | 2 | 8 |
//! | `128 i` | 32 | 32 |
//! | one address | 1 | 1 |

use std::collections::BTreeMap;

use crate::finding::FindingKind;
use crate::lanes::{LANES, lanes};

/// What one instruction took.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Count {
    pub(crate) accesses: u64,
    pub(crate) transactions: u64,
    pub(crate) needed: u64,
    /// The block and the thread that came first.
    pub(crate) block: [u32; 3],
    pub(crate) thread: u32,
}

/// Counts by instruction.
#[derive(Clone, Debug, Default)]
pub(crate) struct Counts(BTreeMap<(u32, FindingKind), Count>);

impl Counts {
    /// Notes an access of `bytes` bytes a lane.
    pub(crate) fn note(
        &mut self,
        (pc, kind): (u32, FindingKind),
        (block, warp): ([u32; 3], u32),
        mask: u32,
        addresses: &[u64; LANES],
        bytes: u32,
    ) {
        let (transactions, needed) = match kind {
            FindingKind::BankConflicts => passes(mask, addresses, bytes),
            _ => sectors(mask, addresses, bytes),
        };
        let thread = warp * LANES as u32 + mask.trailing_zeros();
        let first = Count { block, thread, ..Count::default() };
        let count = self.0.entry((pc, kind)).or_insert(first);
        count.accesses += 1;
        count.transactions += transactions;
        count.needed += needed;
    }

    /// Takes over the counts of another cluster.
    pub(crate) fn add(&mut self, other: Counts) {
        for (key, theirs) in other.0 {
            let first = Count { block: theirs.block, thread: theirs.thread, ..Count::default() };
            let count = self.0.entry(key).or_insert(first);
            count.accesses += theirs.accesses;
            count.transactions += theirs.transactions;
            count.needed += theirs.needed;
        }
    }

    /// Instructions that take at least a quarter more than they need, the most wasteful first.
    pub(crate) fn wasteful(&self) -> Vec<(u32, FindingKind, Count)> {
        let waste = |count: &Count| count.transactions - count.needed;
        let mut rows: Vec<_> = self.0.iter().map(|(&(pc, kind), &count)| (pc, kind, count)).collect();
        rows.retain(|(.., count)| 4 * waste(count) >= count.needed && waste(count) > 0);
        rows.sort_by_key(|&(pc, kind, count)| (std::cmp::Reverse(waste(&count)), pc, kind));
        rows
    }
}

/// Passes over the banks, and the least.
fn passes(mask: u32, addresses: &[u64; LANES], bytes: u32) -> (u64, u64) {
    let group = (128 / bytes.max(4)) as usize;
    let (mut taken, mut needed) = (0, 0);
    for first in (0..LANES).step_by(group) {
        let mut words: Vec<u64> = lanes(mask)
            .filter(|lane| (first..first + group).contains(lane))
            .flat_map(|lane| addresses[lane] / 4..(addresses[lane] + u64::from(bytes)).div_ceil(4))
            .collect();
        words.sort_unstable();
        words.dedup();
        let mut banks = [0u64; 32];
        words.iter().for_each(|word| banks[(word % 32) as usize] += 1);
        taken += banks.into_iter().max().unwrap_or(0);
        needed += u64::from(!words.is_empty());
    }
    (taken, needed)
}

/// Sectors touched, and the least.
fn sectors(mask: u32, addresses: &[u64; LANES], bytes: u32) -> (u64, u64) {
    let unique = |mut list: Vec<u64>| {
        list.sort_unstable();
        list.dedup();
        list.len() as u64
    };
    let starts = unique(lanes(mask).map(|lane| addresses[lane]).collect());
    let touched = lanes(mask).flat_map(|lane| addresses[lane] / 32..(addresses[lane] + u64::from(bytes)).div_ceil(32));
    (unique(touched.collect()), (starts * u64::from(bytes)).div_ceil(32))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn strides_cost_what_the_table_says() {
        let at = |stride: u64| std::array::from_fn(|lane| 1024 + lane as u64 * stride);
        for (stride, in_shared, in_global) in [(4, 1, 4), (8, 2, 8), (128, 32, 32), (0, 1, 1)] {
            assert_eq!(passes(u32::MAX, &at(stride), 4).0, in_shared, "{stride}");
            assert_eq!(sectors(u32::MAX, &at(stride), 4).0, in_global, "{stride}");
        }
        assert_eq!(passes(u32::MAX, &at(16), 16), (4, 4));
        assert_eq!(passes(u32::MAX, &at(256), 16), (32, 4));
        assert_eq!(passes(1, &at(4), 4), (1, 1));
    }
}
