//! What a block of a product takes, in clocks of an H100 and an H200, where the figures were fitted to times (`results/tiles/`). Other chips are measured
//! by nobody yet.

use tessera_types::room::split_parts;
use tessera_types::{Arch, DType, Device};

use super::{CLUSTERS, FOUR_ROWS, GROUP_COLUMNS, GROUP_ROWS, LINE, Product, SECTOR, THREE_ROWS, VECTOR};
use crate::work::packed_bytes;

/// Bytes a clock that a multiprocessor loads by long lines, as measured.
const STREAM_RATE: f64 = 33.6;
/// Clocks of a block of a thin product beside its rounds; bytes that come meanwhile where sums are left; and those of sums that are added a clock.
const THIN_START: f64 = 5800.0;
const THIN_MEETING: f64 = 323.0 * 1024.0;
const THIN_PART_RATE: f64 = 31.3;
/// What splitting rounds among a cluster's blocks takes: clocks to start together and to meet, and bytes a clock at which a multiprocessor is sent
/// the sums of others.
const SPLIT_MEETING: f64 = 2000.0;
const SPLIT_RATE: f64 = 8.0;
/// What sharing a tile among clusters takes beside that: clocks to leave a part, to be counted and to wait for memory, and bytes a clock at which one
/// block adds up what those of its rank have left. A guess from what leaving whole tiles takes.
const AMONG_MEETING: f64 = 4000.0;
const AMONG_RATE: f64 = 32.0;
/// What of the memory's rate loads reach.
const MEMORY_SHARE: f64 = 0.9;
/// Bytes a clock where threads bring what the copy engine cannot: for lines at multiples of 2, 4 and 8 bytes.
const THREAD_RATES: [f64; 3] = [8.0, 10.0, 12.0];
/// Clocks of a round at least where threads bring tiles: they wait for memory once a round.
const THREAD_ROUND: f64 = 1600.0;
/// How much longer rounds of tiles of 256 rows and more than 128 columns take, of which three slots fit: eleven products took 1.02 to 1.2 times what
/// was said of them, where others took 1.04.
const WIDE: f64 = 1.12;
/// Blocks with the same lines up to which a factor is read as fast as memory gives it to each of them.
const FRESH: u64 = 2;

/// What was measured of products of a type.
pub(super) struct Rates {
    /// Multiply-adds of 16-bit floats a clock; of other types, as many lines.
    multiply_adds: f64,
    /// Clocks that adding sums of 8-bit floats up in `f32` takes beside that, for 128 of them.
    promoted: f64,
    /// Bytes a clock that shared memory takes and gives.
    shared: f64,
    /// Clocks of a round beside its products, and how much longer it takes where one warpgroup has nobody to take turns with.
    beside: f64,
    one: f64,
    /// Bytes a clock that the second-level cache gives a multiprocessor, and all of them together; where lines begin within one of the cache's, so
    /// that each touches two, but at its sectors; within sectors, for lines along the contraction, and for others; and of a factor that few read.
    cache: f64,
    cache_of_all: f64,
    sector: f64,
    ragged: [f64; 2],
    fresh: f64,
    /// Clocks of a round at least, however small its tiles are: slots are waited for and given back; where blocks load together, by all of them.
    least: [f64; 2],
    /// Clocks of a block beside its rounds: to start, and to wait for its first tiles; how much more it takes blocks that load together.
    start: f64,
    together_start: f64,
    /// Bytes a clock that a block's result leaves by; that of the transposed product, which is turned first.
    store: f64,
    turned_store: f64,
    /// What of the shorter one of products and results of two teams is not hidden under the other.
    seen: f64,
    /// What leaving sums for another block takes, in bytes that come meanwhile (`stream_k` of `tessera-compile`), and how many of these a clock.
    meeting: f64,
    meeting_rate: f64,
    /// Bytes a clock at which a block adds up what others have left: where it lies as threads hold it, and where it cannot since extents are no
    /// powers of two.
    parts: [f64; 2],
    /// What a round takes where two blocks load together, and four, over that of one by itself: they wait for each other, and ask for less, which
    /// counts where lines begin within the cache's; and where all are whole.
    together: [f64; 2],
    together_whole: [f64; 2],
    /// How much longer rounds take where the transposed product's results leave between them, of blocks that load for themselves and that load
    /// together; with three warpgroups; and where threads turn one factor, and both, since warpgroups take the type along the contraction alone.
    turned: [f64; 2],
    three: f64,
    turning: [f64; 2],
}

/// Of floats of 16 bits, on an H100 and an H200.
const OF_16_BITS: Rates = Rates {
    multiply_adds: 2050.0,
    promoted: 0.0,
    shared: 125.0,
    beside: 43.0,
    one: 1.14,
    cache: 77.5,
    cache_of_all: 9000.0,
    sector: 47.5,
    ragged: [29.0, 37.0],
    fresh: 39.0,
    least: [309.0, 295.0],
    start: 7850.0,
    together_start: 3290.0,
    store: 13.6,
    turned_store: 9.8,
    seen: 0.37,
    meeting: 332.0 * 1024.0,
    meeting_rate: 33.2,
    parts: [92.0, 25.0],
    together: [1.13, 1.11],
    together_whole: [1.024, 1.16],
    turned: [1.18, 1.0],
    three: 1.08,
    turning: [1.0, 1.0],
};
/// Of integers of 8 bits, on an H200.
const OF_INTEGERS: Rates = Rates {
    multiply_adds: 1960.0,
    promoted: 0.0,
    shared: 175.5,
    beside: 87.0,
    one: 1.56,
    cache: 71.5,
    cache_of_all: 6950.0,
    sector: 79.5,
    ragged: [35.5, 24.0],
    fresh: 65.0,
    least: [158.0, 228.0],
    start: 8220.0,
    together_start: 2465.0,
    store: 13.8,
    turned_store: 14.0,
    seen: 0.41,
    meeting: 123.0 * 1024.0,
    meeting_rate: 19.4,
    parts: [99.0, 20.5],
    together: [1.08, 1.08],
    together_whole: [1.087, 1.16],
    turned: [1.09, 1.0],
    three: 0.976,
    turning: [1.4, 1.75],
};
/// Of floats of 8 bits, on an H200.
const OF_8_BITS: Rates = Rates {
    multiply_adds: 1733.0,
    promoted: 0.45,
    shared: 180.0,
    beside: 105.0,
    one: 1.39,
    cache: 69.0,
    cache_of_all: 6400.0,
    sector: 73.0,
    ragged: [40.5, 24.0],
    fresh: 69.0,
    least: [136.0, 228.0],
    start: 9460.0,
    together_start: 2400.0,
    store: 20.1,
    turned_store: 17.8,
    seen: 0.71,
    meeting: 123.0 * 1024.0,
    meeting_rate: 20.0,
    parts: [102.0, 20.6],
    together: [0.97, 1.08],
    together_whole: [1.026, 1.16],
    turned: [1.085, 1.0],
    three: 0.95,
    turning: [1.4, 1.75],
};
/// Of tf32, on an H200.
const OF_32_BITS: Rates = Rates {
    multiply_adds: 1776.0,
    promoted: 0.0,
    shared: 146.0,
    beside: 49.0,
    one: 1.16,
    cache: 83.0,
    cache_of_all: 8260.0,
    sector: 66.0,
    ragged: [40.0, 24.0],
    fresh: 26.0,
    least: [200.0, 340.0],
    start: 9100.0,
    together_start: 3500.0,
    store: 17.0,
    turned_store: 17.0,
    seen: 0.43,
    meeting: 103.0 * 1024.0,
    meeting_rate: 12.3,
    parts: [410.0, 23.5],
    together: [0.97, 1.1],
    together_whole: [0.98, 1.26],
    turned: [1.04, 1.0],
    three: 1.0,
    turning: [1.88, 2.65],
};

impl Rates {
    /// Those of a type.
    pub(super) fn of(storage: DType) -> &'static Rates {
        match storage.bits() {
            8 if storage.is_integer() => &OF_INTEGERS,
            8 => &OF_8_BITS,
            16 => &OF_16_BITS,
            _ => &OF_32_BITS,
        }
    }
}
/// Rounds that a block has at least where they are shared.
const LEAST_ROUNDS: f64 = 4.0;
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
#[derive(Clone, Copy)]
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
    rates: &'static Rates,
}

impl Block {
    /// One of a cluster's, which load a factor together, or one by itself.
    pub(super) fn of([rows, columns]: [u64; 2], product: &Product, cluster: Option<(u64, usize)>) -> Block {
        let (mut asked, rates) = ([rows, columns], Rates::of(product.storage));
        let [alone, together] = rates.least;
        let Some((blocks, side)) = cluster else { return Block::of_tile([rows, columns], asked, alone, product) };
        asked[side] /= blocks;
        let block = Block::of_tile([rows, columns], asked, together, product);
        let whole = product.lines.iter().all(|&bytes| bytes >= LINE);
        let factors = if whole { rates.together_whole } else { rates.together };
        let factor = factors[usize::from(blocks > CLUSTERS[0])];
        Block { round: block.round * factor, start: block.start + rates.together_start, ..block }
    }

    /// One of a thin product, which waits for memory: rows, columns and contraction of its tile.
    pub(super) fn of_thin([rows, columns, depth]: [u64; 3], storage: DType) -> Block {
        let bytes = packed_bytes(storage, (rows + columns) * depth) as f64;
        let (sums, rates) = ((4 * rows * columns) as f64, Rates::of(storage));
        Block {
            round: bytes / STREAM_RATE,
            asked: bytes,
            start: THIN_START,
            stored: sums / rates.store,
            meeting: (sums + THIN_MEETING) / STREAM_RATE,
            part: sums / THIN_PART_RATE,
            rates,
        }
    }

    /// The same of the transposed product.
    pub(super) fn exchanged(self) -> Block {
        Block { stored: self.stored * self.rates.store / self.rates.turned_store, ..self }
    }

    /// The same where results are turned between rounds.
    pub(super) fn turned(self, together: bool) -> Block {
        Block { round: self.round * self.rates.turned[usize::from(together)], ..self }
    }

    /// The same where so many blocks ask the second-level cache at once.
    pub(super) fn among(&self, blocks: u64) -> Block {
        Block { round: self.round.max(self.asked * blocks as f64 / self.rates.cache_of_all), ..*self }
    }

    /// One that asks for so many lines of each factor, and whose rounds take so many clocks at least.
    fn of_tile([rows, columns]: [u64; 2], asked: [u64; 2], least: f64, product: &Product) -> Block {
        let &Product { sizes: [_, m, n, _], storage, result, lines, along, .. } = product;
        let (elements, rates) = (rows * columns, Rates::of(storage));
        // What begins within sectors holds up the other factor, too.
        let within = lines.iter().any(|&bytes| bytes < SECTOR);
        let by_threads = lines.iter().any(|&bytes| bytes < VECTOR);
        let readers = [n.div_ceil(columns), m.div_ceil(rows)];
        let rate = |side: usize| {
            let rate = match lines[side] {
                bytes @ ..VECTOR => THREAD_RATES[(bytes.ilog2() as usize).clamp(1, 3) - 1],
                _ if within => rates.ragged[usize::from(!along[side])],
                LINE.. => rates.cache,
                _ => rates.sector,
            };
            if readers[side] <= FRESH { rate.min(rates.fresh) } else { rate }
        };
        let loads: f64 = [0, 1].map(|side| (asked[side] * LINE) as f64 / rate(side)).iter().sum();
        // What comes is written, and each warpgroup reads its rows and all columns.
        let groups = rows.div_ceil(GROUP_ROWS);
        let shared = (rows + columns + rows + groups * columns) * LINE;
        let products = elements as f64 * LINE as f64 / 2.0 / rates.multiply_adds;
        let promoted = if storage.is_float() { elements as f64 / 128.0 * rates.promoted } else { 0.0 };
        let products = products + promoted;
        let longer = match rows {
            THREE_ROWS => rates.three,
            FOUR_ROWS if columns > GROUP_COLUMNS => WIDE,
            _ => 1.0,
        };
        let least = if by_threads { THREAD_ROUND } else { least };
        let turning = product.turned().checked_sub(1).map_or(1.0, |more| rates.turning[more]);
        let alone = if groups == 1 { rates.one } else { 1.0 };
        let round = (products.max(shared as f64 / rates.shared).max(least) + rates.beside) * longer * turning * alone;
        let held = rows.is_power_of_two() && columns.is_power_of_two();
        let rate = rates.parts[usize::from(!held)];
        let sums = 4.0 * elements as f64;
        Block {
            round: round.max(loads),
            asked: loads * rates.cache,
            start: rates.start,
            stored: packed_bytes(result, elements) as f64 / rates.store,
            meeting: (sums + rates.meeting) / rates.meeting_rate,
            part: sums / rate,
            rates,
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
        let tile = looped.max(self.stored) + self.rates.seen * looped.min(self.stored);
        Time { looped: waves * looped, beside: waves * (tile - looped) + self.start + self.stored }
    }

    /// The same with each tile's rounds split among so many blocks of a cluster, of which each adds up a part of the columns of the sums.
    pub(super) fn split(&self, tiles: u64, rounds: f64, at_once: u64, (blocks, sums): (u64, [u64; 2])) -> Time {
        let waves = tiles.div_ceil(at_once) as f64;
        let beside = self.exchanged_in_cluster(blocks, sums, parts_in_cluster(blocks, sums[1]));
        Time { looped: waves * (rounds / blocks as f64).ceil() * self.round, beside: waves * beside }
    }

    /// The same with so many clusters for each tile, which all run at once: blocks of one rank add up the parts that their clusters have.
    pub(super) fn split_among(&self, rounds: f64, clusters: u64, (blocks, sums): (u64, [u64; 2])) -> Time {
        let parts = parts_in_cluster(blocks, sums[1]);
        let left = (4 * sums[0] * sums[1] / parts * clusters) as f64;
        let beside = self.exchanged_in_cluster(blocks, sums, parts) + AMONG_MEETING + left / AMONG_RATE;
        Time { looped: (rounds / (blocks * clusters) as f64).ceil() * self.round, beside }
    }

    /// What a block takes beside its rounds that has one of so many parts of the sums.
    fn exchanged_in_cluster(&self, blocks: u64, [rows, columns]: [u64; 2], parts: u64) -> f64 {
        let read = (4 * rows * columns * blocks / parts) as f64 / SPLIT_RATE;
        self.start + SPLIT_MEETING + read + self.stored / parts as f64
    }

    /// The same with rounds of the last tiles shared evenly among multiprocessors, where several have one of them.
    pub(super) fn shared(&self, blocks: u64, rounds: f64, sms: u64) -> Option<Time> {
        let (waves, parts) = shares(blocks, rounds, self.round / self.part, sms)?;
        Some(Time {
            looped: waves * rounds * self.round,
            beside: self.start + waves.ceil() * self.stored + self.meeting + parts * self.part,
        })
    }
}

/// The parts of so many columns that a cluster's blocks have: of both there are hundreds at most.
pub(super) fn parts_in_cluster(blocks: u64, columns: u64) -> u64 {
    u64::from(split_parts(columns as u32, blocks as u32))
}

/// Waves of blocks of which the last one's tiles are in parts, and in how many, where these are more than one; what a round takes, over adding up
/// a part.
pub(super) fn shares(blocks: u64, rounds: f64, round: f64, sms: u64) -> Option<(f64, f64)> {
    let most = (rounds * round).sqrt().min(rounds / LEAST_ROUNDS);
    let parts = (sms.checked_div(blocks % sms)? as f64).min(most).floor();
    (parts > 1.0).then(|| ((blocks / sms) as f64 + 1.0 / parts, parts))
}
