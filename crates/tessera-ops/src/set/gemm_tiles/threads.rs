//! Tiles of products that threads compute by themselves, in 32-bit floats.
//!
//! A block's time is its multiply-adds at the rate of the chip, and by how much they take longer: threads read shared memory for what they multiply,
//! the less of it the more sums each has, and wait for it the longer the fewer warps there are. By how much was measured (`results/tiles/`).

use tessera_runtime::Sharing;
use tessera_types::Arch;

use super::time::{of_memory, shares};
use super::{Choice, Product};

/// Rows, columns and contraction of a tile, its warps, and how much longer its multiply-adds take than the chip could: where a multiprocessor has
/// several blocks, and where it has one that shares rounds with others.
const TILES: [([u64; 3], u32, [f64; 2]); 16] = [
    ([128, 256, 16], 8, [1.37, 1.34]),
    ([256, 128, 16], 8, [1.4, 1.35]),
    ([128, 128, 16], 8, [1.54, 1.56]),
    ([64, 128, 32], 8, [1.5, 1.62]),
    ([128, 64, 32], 8, [1.53, 1.67]),
    ([64, 128, 16], 4, [1.58, 1.76]),
    ([64, 64, 32], 4, [1.6, 1.84]),
    ([32, 128, 32], 4, [1.62, 1.87]),
    ([128, 32, 32], 4, [1.67, 1.95]),
    ([32, 64, 32], 4, [2.0, 2.37]),
    ([64, 32, 32], 4, [1.9, 2.39]),
    ([32, 32, 32], 4, [2.39, 2.95]),
    ([16, 128, 32], 4, [2.18, 2.57]),
    ([16, 64, 32], 4, [2.47, 3.13]),
    ([8, 128, 32], 4, [3.31, 4.57]),
    ([8, 64, 32], 4, [4.14, 5.3]),
];
/// The most elements of a tile where addresses of three axes, or of 64 bits, take registers.
const MOST_OF_MANY: u64 = 128 * 64;
/// The most columns of a tile where lines of both factors lie along the contraction, so that each is read in small pieces.
const MOST_COLUMNS: u64 = 128;
/// Multiply-adds of a multiprocessor a clock.
const MULTIPLY_ADDS: f64 = 128.0;
/// How much longer they take where a multiprocessor has few warps, where lines of the right factor lie along the contraction, and where those of
/// the left one do not.
const FEW: f64 = 1.14;
const ALONG: f64 = 1.2;
const ACROSS: f64 = 0.94;
/// Warps that are not few.
const WARPS: u64 = 8;
/// Clocks of a launch beside its rounds, and how many more where blocks meet.
const START: f64 = 13_400.0;
const MEETING: f64 = 500.0;
/// Bytes a clock at which a block adds up what others have left.
const PART_RATE: f64 = 18.5;

/// Gives each choice with the clocks that it should take.
pub(super) fn each(product: &Product, arch: Arch, take: &mut dyn FnMut(f64, Choice)) {
    let Product { sizes: [batch, m, n, k], storage, along, ragged, .. } = *product;
    let sms = u64::from(arch.multiprocessors());
    let memory = of_memory(storage, batch * (m + n) * k, arch);
    let is_wide = batch > 1 || m.max(n) * k > i32::MAX as u64;
    // Nobody has measured others that share rounds.
    let can_share = batch == 1 && !ragged && arch.has_wgmma();
    let slower = if along[1] { ALONG } else { 1.0 } * if along[0] { 1.0 } else { ACROSS };
    for (tile, warps, [alone, shared]) in TILES {
        let [rows, columns, depth] = tile;
        if is_wide && rows * columns > MOST_OF_MANY || along == [true; 2] && columns > MOST_COLUMNS {
            continue;
        }
        let blocks = batch * m.div_ceil(rows) * n.div_ceil(columns);
        let rounds = k.div_ceil(depth) as f64;
        let round = slower * (rows * columns * depth) as f64 / MULTIPLY_ADDS;
        let waves = blocks.div_ceil(sms);
        let few = if waves * u64::from(warps) < WARPS { FEW } else { 1.0 };
        let choice = Choice { tile, warps, ..Choice::default() };
        take(START + (waves as f64 * rounds * round * alone * few).max(memory), choice);
        let part = (4 * rows * columns) as f64 / PART_RATE;
        let Some((waves, parts)) = shares(blocks, rounds, round * shared / part, sms).filter(|_| can_share) else { continue };
        let looped = (waves * rounds * round * shared).max(memory);
        take(START + MEETING + looped + parts * part, Choice { sharing: Sharing::Rounds, ..choice });
    }
}
