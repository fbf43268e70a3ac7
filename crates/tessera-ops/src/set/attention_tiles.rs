//! Tiles of queries and keys that a block of attention works on, and which of them a block takes.
//!
//! Rounds are counted: a tile of queries takes one for each tile of keys. Times are those of an H100 with heads of 128 (`results/attention-h100.txt`):
//! the start and the end of a block take three rounds, and one and a half where it goes on with the next tile, since that one's queries and
//! keys come meanwhile.

use tessera_runtime::Sharing;
use tessera_types::DType;

use super::attention::Extents;
use crate::operator::Machine;

/// Rounds that a block takes beside those of its tile, and that another tile takes beside its own.
const START: f64 = 3.0;
const GO_ON: f64 = 1.5;
/// What a row of 64 columns takes in a tile of 128 rows over what it takes in one of 192.
const TWO_GROUPS: f64 = 1.2;

/// How a launch is cut.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Choice {
    /// Queries and keys of a tile.
    pub(super) tile: (i64, i64),
    /// Blocks along the queries.
    pub(super) blocks: usize,
    /// A block takes two tiles, of which one sees many keys and one few.
    pub(super) pairs: bool,
    /// Tiles of keys that need no mask come in a loop of their own.
    pub(super) apart: bool,
    pub(super) sharing: Sharing,
}

impl Choice {
    /// The choice for a problem; `lse`: logarithms are a result, too.
    pub(super) fn of(extents: &Extents, storage: DType, machine: Machine, lse: bool) -> Choice {
        let plain = |tile: (i64, i64)| {
            let blocks = extents.queries.div_ceil(tile.0 as usize);
            Choice { tile, blocks, pairs: false, apart: true, sharing: Sharing::Nothing }
        };
        match machine {
            Machine::Cpu => plain((64, 64)),
            // Both tiles and the result's lie in shared memory.
            Machine::Gpu(_) if storage.bits() > 32 => plain((if extents.dim > 128 { 8 } else { 16 }, 16)),
            Machine::Gpu(arch) if storage.bits() > 16 => {
                plain((if extents.dim > 128 && arch.limits().shared_per_sm < 200 << 10 { 16 } else { 32 }, 32))
            }
            Machine::Gpu(arch) if arch.has_wgmma() => Choice::of_warpgroups(extents, arch.multiprocessors() as usize, lse),
            // A warp holds the queries, scores and result of 16 rows.
            Machine::Gpu(_) => plain((64, if extents.dim <= 64 { 64 } else { 32 })),
        }
    }

    /// What is summed stays in registers: two groups of 64 queries each, three where heads are thin and there are tiles enough for all
    /// multiprocessors; fewer keys where heads are deep.
    fn of_warpgroups(extents: &Extents, sms: usize, lse: bool) -> Choice {
        let &Extents { batch, heads, queries, dim, causal, .. } = extents;
        let tiles = |rows: usize| queries.div_ceil(rows) * batch * heads;
        let time = |rows: usize| (queries.div_ceil(rows) * rows) as f64;
        let three = dim <= 64 && tiles(192) > sms && time(192) < TWO_GROUPS * time(128);
        let rows = match queries {
            ..=64 => 64,
            _ if three => 192,
            _ => 128,
        };
        let keys = if dim <= 128 { 128 } else { 64 };
        let (blocks, stays) = (queries.div_ceil(rows), tiles(rows) > sms);
        // Beside the result of deep heads a pair's logarithms do not fit the registers.
        let fits = dim <= 128 || !lse;
        let pairs = causal && stays && fits && Choice::pairs_pay(extents, (rows, keys), sms);
        Choice {
            tile: (rows as i64, keys as i64),
            blocks: if pairs { blocks.div_ceil(2) } else { blocks },
            pairs,
            // One pipeline for all rounds pays where each tile of queries has some with a mask.
            apart: !causal,
            // Blocks that are as they come from the scheduler are balanced by it; those that stay take each as many tiles.
            sharing: if stays && (pairs || !causal) { Sharing::Blocks } else { Sharing::Nothing },
        }
    }

    /// Whether blocks that stay and take tiles in pairs are done before those that are handed out one by one.
    fn pairs_pay(extents: &Extents, (rows, keys): (usize, usize), sms: usize) -> bool {
        let blocks = extents.queries.div_ceil(rows);
        let rounds = |block: usize| extents.seen(((block + 1) * rows).min(extents.queries) - 1).div_ceil(keys) as f64;
        let planes = extents.batch * extents.heads;
        let all: f64 = (0..blocks).map(rounds).sum();
        let one_by_one = (all + START * blocks as f64) * planes as f64 / sms as f64 + rounds(blocks - 1) / 2.0;
        let waves = (blocks.div_ceil(2) * planes).div_ceil(sms) as f64;
        waves * (rounds(blocks - 1) + rounds(0) + 2.0 * GO_ON) < one_by_one
    }
}

#[cfg(test)]
mod tests {
    use tessera_types::Arch;

    use super::*;

    fn chosen(planes: usize, length: usize, dim: usize, causal: bool) -> Choice {
        let extents = Extents { batch: planes, heads: 1, group: 1, queries: length, keys: length, dim, causal };
        Choice::of(&extents, DType::BF16, Machine::Gpu(Arch::Sm90a), false)
    }

    #[test]
    fn many_tiles_stay() {
        let full = chosen(64, 4096, 128, false);
        assert_eq!(full, Choice { tile: (128, 128), blocks: 32, pairs: false, apart: true, sharing: Sharing::Blocks });
        let causal = chosen(256, 1024, 128, true);
        assert_eq!(causal, Choice { tile: (128, 128), blocks: 4, pairs: true, apart: false, sharing: Sharing::Blocks });
        let long = chosen(64, 4096, 128, true);
        assert_eq!(long, Choice { tile: (128, 128), blocks: 16, pairs: true, apart: false, sharing: Sharing::Blocks });
        let few = chosen(4, 1024, 128, true);
        assert_eq!(few, Choice { tile: (128, 128), blocks: 8, pairs: false, apart: false, sharing: Sharing::Nothing });
    }

    #[test]
    fn a_second_wave_of_pairs_must_be_full() {
        assert!(!chosen(34, 1024, 128, true).pairs, "136 pairs on 132 multiprocessors");
        assert!(chosen(66, 1024, 128, true).pairs, "264 pairs");
    }

    #[test]
    fn thin_heads_take_three_groups() {
        assert_eq!(chosen(128, 4096, 64, false).tile, (192, 128));
        assert!(!chosen(128, 4096, 64, true).apart);
        assert_eq!(chosen(128, 200, 64, false).tile, (128, 128));
        assert_eq!(chosen(8, 1024, 64, false).tile, (128, 128));
        assert_eq!(chosen(32, 4096, 256, false).tile, (128, 64));
    }
}
