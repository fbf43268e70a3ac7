//! Attention of few queries, as a decoder asks for one token after the other: which rows of Q make a tile, and over how many blocks the keys
//! are split.
//!
//! The heads that share one of K and V are rows of one tile, each with its queries, so that K and V are read once a group:
//!
//! ```text
//! 3 heads of 2 queries, a tile of 4 x 2      h0q0 h0q1 | h1q0 h1q1 | h2q0 h2q1 | -- --
//! ```
//!
//! Reading K and V is then what takes time. With 128 rows a block with products of warpgroups works for 1152 clocks on 16 KiB each of K and V
//! (`tessera compile --emit report`), which an H200's memory brings to each of its multiprocessors in 1600: as many rows cost nothing, twice as
//! many would. Where there are fewer groups than multiprocessors, blocks take some of a group's keys each, and a second launch merges what
//! they leave.

use tessera_types::{Arch, DType};

use crate::operator::Machine;

/// What a block works on at a time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Tile {
    /// Heads of a group, and queries of each: a row each, in powers of two.
    pub(super) heads: usize,
    pub(super) queries: usize,
    /// Keys.
    pub(super) keys: usize,
}

/// Elements of a tile of K where warpgroups multiply: 16 KiB, of which six and as many of V fit a block.
const WARPGROUP_TILE: usize = 8192;
/// The same where all warps copy for themselves, to rings of their own for whole tiles and for the last one.
const WARP_TILE: usize = 4096;

/// What it takes to start a block, to wait for its first tile, and to store: as long as so many tiles of keys when every multiprocessor reads one.
const START: f64 = 3.0;
/// The same of the launch that merges.
const MERGE: f64 = 4.0;
/// The same of a tile in a multiprocessor that has as much of the memory's rate as it can use.
const ALONE: f64 = 0.6;
/// Splits that one block merges at once.
const MOST_SPLITS: u64 = 128;

/// The tile for groups of `group` heads with `queries` queries each; none where that is too many rows for one.
pub(super) fn tile(group: usize, queries: usize, dim: usize, storage: DType, machine: Machine) -> Option<Tile> {
    let elements = |most: usize| (most / dim.max(1).next_power_of_two()).clamp(16, 128);
    let (least, most, keys) = match machine {
        Machine::Cpu => (1, 128, 64),
        // Both tiles and the result's lie in shared memory.
        Machine::Gpu(_) if storage.bits() > 32 => (16, 16, 16),
        Machine::Gpu(arch) if storage.bits() > 16 => {
            (16, if dim > 128 && arch.limits().shared_per_sm < 200 << 10 { 16 } else { 32 }, 32)
        }
        Machine::Gpu(arch) if arch.has_wgmma() => (64, 128, elements(WARPGROUP_TILE)),
        // A warp holds 16 rows.
        Machine::Gpu(_) => (16, 64, elements(WARP_TILE)),
    };
    let heads = group.next_power_of_two();
    let rows = (heads * queries.next_power_of_two()).max(least);
    (rows <= most).then(|| Tile { heads, queries: rows / heads, keys })
}

/// Over how many blocks the `tiles` tiles of keys of each of `groups` groups are split: what should take the least time, with a tile in each
/// and the first ones' tiles equally many.
pub(super) fn splits(groups: u64, tiles: u64, arch: Arch) -> u64 {
    let multiprocessors = u64::from(arch.multiprocessors());
    let mut best = (time(groups, tiles, 1, multiprocessors), 1);
    for splits in 2..=tiles.min(MOST_SPLITS) {
        let time = time(groups, tiles, splits, multiprocessors);
        if tiles.div_ceil(tiles.div_ceil(splits)) == splits && time < best.0 {
            best = (time, splits);
        }
    }
    best.1
}

/// What blocks take in waves; those of the last one share the memory's rate with fewer others.
fn time(groups: u64, tiles: u64, splits: u64, multiprocessors: u64) -> f64 {
    let (blocks, own) = (groups * splits, tiles.div_ceil(splits) as f64);
    let (waves, rest) = (blocks / multiprocessors, blocks % multiprocessors);
    let last = match rest {
        0 => 0.0,
        rest => START + own * ALONE.max(rest as f64 / multiprocessors as f64),
    };
    waves as f64 * (START + own) + last + if splits > 1 { MERGE } else { 0.0 }
}

#[cfg(test)]
mod tests {
    use super::*;

    const H200: Arch = Arch::Sm90a;

    fn on_gpu(group: usize, queries: usize, dim: usize, arch: Arch) -> Option<[usize; 3]> {
        tile(group, queries, dim, DType::BF16, Machine::Gpu(arch)).map(|tile| [tile.heads, tile.queries, tile.keys])
    }

    #[test]
    fn heads_and_queries_are_rows() {
        assert_eq!(on_gpu(4, 1, 128, H200), Some([4, 16, 64]));
        assert_eq!(on_gpu(3, 3, 64, H200), Some([4, 16, 128]));
        assert_eq!(on_gpu(1, 128, 256, H200), Some([1, 128, 32]));
        assert_eq!(on_gpu(128, 1, 128, H200), Some([128, 1, 64]));
        assert_eq!(on_gpu(8, 17, 128, H200), None);
        assert_eq!(on_gpu(4, 1, 128, Arch::Sm80), Some([4, 4, 32]));
        assert_eq!(on_gpu(4, 17, 128, Arch::Sm80), None);
        let floats = |queries, arch| tile(1, queries, 256, DType::F32, Machine::Gpu(arch)).is_some();
        assert!(floats(32, H200) && !floats(33, H200) && floats(16, Arch::Sm80) && !floats(17, Arch::Sm80));
    }

    #[test]
    fn a_wave_of_groups_is_not_split() {
        // 16 x 8 groups of 8192 keys of 128 on 132 multiprocessors.
        assert_eq!(splits(128, 128, H200), 1);
        assert_eq!(splits(1 << 20, 128, H200), 1);
    }

    #[test]
    fn few_groups_are_split_until_blocks_make_a_wave() {
        // 8 groups and 4 of 8192 keys: 128 blocks.
        assert_eq!(splits(8, 128, H200), 16);
        assert_eq!(splits(4, 128, H200), 32);
        assert_eq!(splits(1, 128, H200), 128);
        assert_eq!(splits(1, 2048, H200), 128);
    }

    #[test]
    fn a_wave_and_a_little_is_split() {
        let halves = splits(136, 128, H200);
        assert!((3..12).contains(&halves), "{halves}");
    }

    #[test]
    fn short_keys_are_not_worth_a_second_launch() {
        for tiles in 0..6 {
            assert_eq!(splits(1, tiles, H200), 1, "{tiles}");
        }
    }

    #[test]
    fn every_split_has_a_tile() {
        for groups in [1, 2, 7, 33, 100, 131, 133, 1000] {
            for tiles in 1..300 {
                let splits = splits(groups, tiles, H200);
                let own = tiles.div_ceil(splits);
                assert!((splits - 1) * own < tiles && splits * own >= tiles, "{groups} groups, {tiles} tiles, {splits} splits");
            }
        }
    }
}
