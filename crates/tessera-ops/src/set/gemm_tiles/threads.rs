//! Tiles of products that threads compute by themselves, in 32-bit floats.
//!
//! A block's time is its multiply-adds at the rate of the chip, and by how much they take longer: threads read shared memory for what they multiply,
//! the less of it the more sums each has, and wait for it the longer the fewer warps there are. By how much was measured (`results/tiles/`).

use tessera_runtime::Sharing;
use tessera_types::Arch;

use super::time::of_memory;
use super::{Choice, Product};

/// Rows, columns and contraction of a tile, its warps, and how much longer its multiply-adds take than the chip could: where a multiprocessor has
/// several blocks, and where it has one that shares rounds with others.
const TILES: [([u64; 3], u32, [f64; 2]); 14] = [
    ([128, 128, 16], 8, [1.6, 1.62]),
    ([64, 128, 32], 8, [1.5, 1.7]),
    ([128, 64, 32], 8, [1.52, 1.72]),
    ([64, 128, 16], 4, [1.45, 1.9]),
    ([64, 64, 32], 4, [1.57, 2.0]),
    ([32, 128, 32], 4, [1.62, 2.0]),
    ([128, 32, 32], 4, [1.75, 2.2]),
    ([32, 64, 32], 4, [2.0, 2.6]),
    ([64, 32, 32], 4, [2.0, 2.6]),
    ([32, 32, 32], 4, [2.8, 3.4]),
    ([16, 128, 32], 4, [3.0, 3.1]),
    ([16, 64, 32], 4, [3.3, 3.0]),
    ([8, 128, 32], 4, [5.0, 4.2]),
    ([8, 64, 32], 4, [3.7, 4.5]),
];
/// The most elements of a tile where addresses of three axes, or of 64 bits, take registers.
const MOST_OF_MANY: u64 = 128 * 64;
/// Multiply-adds of a multiprocessor a clock.
const MULTIPLY_ADDS: f64 = 128.0;
/// How much longer they take where a multiprocessor has few warps, and where lines of the right factor lie along the contraction.
const FEW: f64 = 1.25;
const ALONG: f64 = 1.2;
/// Warps that are not few.
const WARPS: u32 = 8;
/// Clocks of a launch beside its rounds, and of one whose blocks meet.
const START: f64 = 8000.0;
const MEETING: f64 = 23000.0;
/// Bytes a clock at which a block adds up what others have left.
const PART_RATE: f64 = 26.0;
/// Rounds that a block has at least where they are shared.
const LEAST_ROUNDS: f64 = 4.0;

/// Gives each choice with the clocks that it should take.
pub(super) fn each(product: &Product, arch: Arch, take: &mut dyn FnMut(f64, Choice)) {
    let Product { sizes: [batch, m, n, k], storage, along, ragged, .. } = *product;
    let sms = f64::from(arch.multiprocessors());
    let memory = of_memory(storage, batch * (m + n) * k, arch);
    let is_wide = batch > 1 || m.max(n) * k > i32::MAX as u64;
    // Nobody has measured others that share rounds.
    let shares = batch == 1 && !ragged && arch.has_wgmma();
    for (tile, warps, [alone, shared]) in TILES {
        let [rows, columns, depth] = tile;
        if is_wide && rows * columns > MOST_OF_MANY {
            continue;
        }
        let blocks = (batch * m.div_ceil(rows) * n.div_ceil(columns)) as f64;
        let rounds = k.div_ceil(depth) as f64;
        let slower = if along[1] { ALONG } else { 1.0 };
        let block = slower * rounds * (rows * columns * depth) as f64 / MULTIPLY_ADDS;
        let waves = (blocks / sms).ceil();
        let few = if waves as u32 * warps < WARPS { FEW } else { 1.0 };
        let choice = Choice { tile, warps, ..Choice::default() };
        take(START + (waves * block * alone * few).max(memory), choice);
        let parts = (sms / blocks).min(rounds / LEAST_ROUNDS);
        if shares && parts > 0.0 {
            let even = (blocks / sms).max(1.0 / (rounds / LEAST_ROUNDS));
            let left = parts.ceil() * (4 * rows * columns) as f64 / PART_RATE;
            take(MEETING + (even * block * shared).max(memory) + left, Choice { sharing: Sharing::Rounds, ..choice });
        }
    }
}
