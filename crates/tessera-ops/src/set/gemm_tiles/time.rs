//! What a block of a product takes, in clocks of an H100 and an H200, where the figures were fitted to times (`results/tiles/`). Other chips are measured
//! by nobody yet.

use tessera_types::{Arch, DType, Device};

use super::{CLUSTERS, GROUP_ROWS, LINE, Product, SECTOR, VECTOR};
use crate::work::packed_bytes;

/// Bytes a clock that a multiprocessor loads by long lines, as measured.
const STREAM_RATE: f64 = 40.0;
/// Clocks of a block of a thin product beside its rounds; bytes that come meanwhile where sums are left; and those of sums that are added a clock.
const THIN_START: f64 = 2500.0;
const THIN_MEETING: f64 = 256.0 * 1024.0;
const THIN_PART_RATE: f64 = 8.0;
/// What of the memory's rate loads reach.
const MEMORY_SHARE: f64 = 0.9;
/// Multiply-adds of 16-bit floats a clock; of narrower types, whose lines hold more, as many lines a clock.
const MULTIPLY_ADDS: f64 = 2048.0;
/// Bytes a clock that the second-level cache gives a multiprocessor.
const CACHE_RATE: f64 = 60.0;
/// The same that multiprocessors get together.
const CACHE_RATE_OF_ALL: f64 = 7000.0;
/// Bytes a clock that shared memory takes and gives.
const SHARED_RATE: f64 = 128.0;
/// Clocks of a round at least, however small its tiles are: slots are waited for and given back.
const LEAST_ROUND: f64 = 280.0;
/// The same where blocks load together: all of them give a slot back.
const LEAST_ROUND_TOGETHER: f64 = 400.0;
/// Bytes a clock of the cache where lines begin within one of the cache's, so that each touches two, but at its sectors.
const SECTOR_RATE: f64 = 60.0;
/// The same where lines of a factor begin within sectors: for lines along the contraction, and for others.
const RAGGED_RATES: [f64; 2] = [40.0, 24.0];
/// The same where threads bring what the copy engine cannot: for lines at multiples of 2, 4 and 8 bytes.
const THREAD_RATES: [f64; 3] = [8.0, 10.0, 12.0];
/// Clocks of a round at least where threads bring tiles: they wait for memory once a round.
const THREAD_ROUND: f64 = 1600.0;
/// Clocks of a block beside its rounds: to start, and to wait for its first tiles.
const START: f64 = 7000.0;
/// Bytes a clock that a block's result leaves by.
const STORE_RATE: f64 = 20.0;
/// What of the shorter one of products and results of two teams is not hidden under the other, as measured.
const SEEN: f64 = 0.35;
/// What leaving sums for another block takes, in bytes that come meanwhile (`stream_k` of `tessera-compile`), and how many of these a clock.
const MEETING: f64 = 56.0 * 1024.0;
const MEETING_RATE: f64 = 12.0;
/// Bytes a clock at which a block adds up what others have left: where it lies as threads hold it, and where it cannot since extents are no
/// powers of two.
const PART_RATES: [f64; 2] = [512.0, 16.0];
/// What a round takes where two blocks load together, and four, over that of one by itself, as measured: they wait for each other, and ask for
/// less, which counts where lines begin within the cache's; and where all are whole.
const TOGETHER: [f64; 2] = [1.0, 1.1];
const TOGETHER_WHOLE: [f64; 2] = [1.02, 1.1];
/// Clocks that the start of such blocks takes longer, as measured.
const TOGETHER_START: f64 = 4000.0;
/// How much longer they take with three warpgroups, as measured.
const THREE: f64 = 1.18;
/// Rows of tiles of three warpgroups.
const THREE_ROWS: u64 = 192;
/// Rounds that a block has at least where they are shared.
const LEAST_ROUNDS: f64 = 4.0;
/// How much longer rounds take where threads turn one factor, and both, since warpgroups take these types along the contraction alone, as measured:
/// of 8 bits, and of 32.
const TURNING: [[f64; 2]; 2] = [[1.4, 1.75], [2.2, 2.6]];

/// Clocks in which memory gives so many elements once.
pub(super) fn of_memory(storage: DType, elements: u64, arch: Arch) -> f64 {
    let device = Device::ALL.iter().rfind(|device| device.arch == arch);
    let rate = device.map_or(f64::INFINITY, |device| MEMORY_SHARE * device.dram_gbps * 1e3 / f64::from(device.boost_mhz));
    packed_bytes(storage, elements) as f64 / rate
}

/// Clocks of a launch: those of its rounds, which memory may hold up, and all others.
pub(super) struct Time {
    pub(super) looped: f64,
    pub(super) beside: f64,
}

/// Clocks of the parts of a block.
pub(super) struct Block {
    pub(super) round: f64,
    /// Bytes that a round asks the second-level cache for, as if all lay in whole lines.
    pub(super) asked: f64,
    /// To start, and to store the result.
    pub(super) start: f64,
    pub(super) stored: f64,
    /// To leave sums for other blocks and meet them, and to add up what one of them has left.
    pub(super) meeting: f64,
    pub(super) part: f64,
}

impl Block {
    /// One of a cluster's, which load a factor together, or one by itself.
    pub(super) fn of([rows, columns]: [u64; 2], product: &Product, cluster: Option<(u64, usize)>) -> Block {
        let mut asked = [rows, columns];
        let Some((blocks, side)) = cluster else { return Block::of_tile([rows, columns], asked, LEAST_ROUND, product) };
        asked[side] /= blocks;
        let block = Block::of_tile([rows, columns], asked, LEAST_ROUND_TOGETHER, product);
        let factors = if product.lines.iter().all(|&bytes| bytes >= LINE) { TOGETHER_WHOLE } else { TOGETHER };
        let factor = factors[usize::from(blocks > CLUSTERS[0])];
        Block { round: block.round * factor, start: block.start + TOGETHER_START, ..block }
    }

    /// One of a thin product, which waits for memory: rows, columns and contraction of its tile.
    pub(super) fn of_thin([rows, columns, depth]: [u64; 3], storage: DType) -> Block {
        let bytes = packed_bytes(storage, (rows + columns) * depth) as f64;
        let sums = (4 * rows * columns) as f64;
        Block {
            round: bytes / STREAM_RATE,
            asked: bytes,
            start: THIN_START,
            stored: sums / STORE_RATE,
            meeting: (sums + THIN_MEETING) / STREAM_RATE,
            part: sums / THIN_PART_RATE,
        }
    }

    /// The same with as much more a round.
    pub(super) fn longer(self, factor: f64) -> Block {
        Block { round: self.round * factor, ..self }
    }

    /// The same where so many blocks ask the second-level cache at once.
    pub(super) fn among(self, blocks: u64) -> Block {
        Block { round: self.round.max(self.asked * blocks as f64 / CACHE_RATE_OF_ALL), ..self }
    }

    /// One that asks for so many lines of each factor, and whose rounds take so many clocks at least.
    fn of_tile([rows, columns]: [u64; 2], asked: [u64; 2], least: f64, product: &Product) -> Block {
        let &Product { result, lines, along, .. } = product;
        let elements = rows * columns;
        // What begins within sectors holds up the other factor, too.
        let within = lines.iter().any(|&bytes| bytes < SECTOR);
        let by_threads = lines.iter().any(|&bytes| bytes < VECTOR);
        let rate = |bytes: u64, along: bool| match bytes {
            ..VECTOR => THREAD_RATES[(bytes.ilog2() as usize).clamp(1, 3) - 1],
            _ if within => RAGGED_RATES[usize::from(!along)],
            LINE.. => CACHE_RATE,
            _ => SECTOR_RATE,
        };
        let loads: f64 = [0, 1].map(|side| (asked[side] * LINE) as f64 / rate(lines[side], along[side])).iter().sum();
        // What comes is written, and each warpgroup reads its rows and all columns.
        let groups = rows.div_ceil(GROUP_ROWS);
        let shared = (rows + columns + rows + groups * columns) * LINE;
        let products = elements as f64 * LINE as f64 / 2.0 / MULTIPLY_ADDS;
        let longer = if rows == THREE_ROWS { THREE } else { 1.0 };
        let least = if by_threads { THREAD_ROUND } else { least };
        let turned = product.turned();
        let turning = match turned {
            0 => 1.0,
            _ => TURNING[usize::from(product.storage.bits() > 8)][turned - 1],
        };
        let round = products.max(shared as f64 / SHARED_RATE).max(least) * longer * turning;
        let held = rows.is_power_of_two() && columns.is_power_of_two();
        let rate = PART_RATES[usize::from(!held)];
        let sums = 4.0 * elements as f64;
        Block {
            round: round.max(loads),
            asked: loads * CACHE_RATE,
            start: START,
            stored: packed_bytes(result, elements) as f64 / STORE_RATE,
            meeting: (sums + MEETING) / MEETING_RATE,
            part: sums / rate,
        }
    }

    /// In waves, each block by itself.
    pub(super) fn alone(&self, blocks: u64, rounds: f64, sms: u64) -> Time {
        let waves = blocks.div_ceil(sms) as f64;
        Time { looped: waves * rounds * self.round, beside: waves * (self.start + self.stored) }
    }

    /// The same with one block a multiprocessor that takes several tiles: the next one's come while a result leaves.
    pub(super) fn in_turns(&self, blocks: u64, rounds: f64, sms: u64) -> Time {
        let waves = blocks.div_ceil(sms) as f64;
        Time { looped: waves * rounds * self.round, beside: waves * self.stored + self.start }
    }

    /// The same with two teams, one of which stores while the other one multiplies.
    pub(super) fn by_teams(&self, blocks: u64, rounds: f64, sms: u64) -> Time {
        let (waves, looped) = (blocks.div_ceil(sms) as f64, rounds * self.round);
        let tile = looped.max(self.stored) + SEEN * looped.min(self.stored);
        Time { looped: waves * looped, beside: waves * (tile - looped) + self.start + self.stored }
    }

    /// The same with rounds of the last tiles shared evenly among multiprocessors, where several have one of them.
    pub(super) fn shared(&self, blocks: u64, rounds: f64, sms: u64) -> Option<Time> {
        let (whole, rest) = ((blocks / sms) as f64, blocks % sms);
        let most = (rounds * self.round / self.part).sqrt().min(rounds / LEAST_ROUNDS);
        let parts = (sms.checked_div(rest)? as f64).min(most).floor();
        (parts > 1.0).then(|| Time {
            looped: (whole + 1.0 / parts) * rounds * self.round,
            beside: self.start + (whole + 1.0) * self.stored + self.meeting + parts * self.part,
        })
    }
}
