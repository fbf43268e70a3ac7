//! Which tiles a product is cut into, and whether blocks share their rounds: what should take the least time.
//!
//! A block's time is its rounds and what comes before and behind them. A round keeps the tensor cores busy for its multiply-adds, shared memory
//! for what comes and what products read, and the second-level cache for its bytes; it takes the longest of the three. Figures are clocks of an
//! H100 and an H200, where the choice was compared with times (`docs/performance.md`); other chips are measured by nobody yet, and their tiles
//! keep the shares of the rate that they were given.

use tessera_runtime::Sharing;
use tessera_types::{Arch, DType, Device};

use crate::work::packed_bytes;

/// How a product runs on a GPU.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Choice {
    /// Rows, columns and contraction of a tile.
    pub(super) tile: [u64; 3],
    /// The product is computed transposed.
    pub(super) exchanged: bool,
    /// Blocks of a cluster that load together what all of them read; 0 where each loads for itself.
    pub(super) cluster: u32,
    /// They lie side by side, else one below the other.
    pub(super) across: bool,
    /// What blocks share.
    pub(super) sharing: Sharing,
    /// Factors that are copied first, to lines at multiples of [`LINE`] bytes.
    pub(super) padded: [bool; 2],
}

/// Tiles of rows and columns whose products warpgroups take in 16-bit floats.
const WARPGROUP_TILES: [[u64; 2]; 15] = [
    [128, 256],
    [256, 128],
    [192, 192],
    [128, 192],
    [192, 128],
    [128, 128],
    [128, 64],
    [64, 256],
    [64, 192],
    [64, 128],
    [64, 64],
    [64, 32],
    [128, 32],
    [256, 64],
    [192, 64],
];
/// The same where the right factor's lines lie along the contraction, so that nothing more is read for other columns: rows, and the most
/// columns, of which every [`COLUMNS_STEP`] is possible.
const ALONG_TILES: [[u64; 2]; 4] = [[64, 256], [128, 256], [192, 192], [256, 128]];
const COLUMNS_STEP: u64 = 16;
/// The same for other types.
const PLAIN_TILES: [[u64; 2]; 4] = [[128, 256], [128, 128], [64, 128], [64, 64]];
/// Rows of tiles of thin products.
const THIN: [u64; 4] = [8, 16, 32, 64];
/// Columns and contraction of tiles of thin products, and what blocks share of them.
const THIN_TILES: [([u64; 2], Sharing); 4] =
    [([64, 256], Sharing::Nothing), ([128, 128], Sharing::Nothing), ([64, 128], Sharing::Rounds), ([128, 128], Sharing::Rounds)];
/// Bytes a clock that a multiprocessor loads by long lines, as measured.
const STREAM_RATE: f64 = 40.0;
/// Clocks of a block of a thin product beside its rounds; bytes that come meanwhile where sums are left; and those of sums that are added a clock.
const THIN_START: f64 = 2500.0;
const THIN_MEETING: f64 = 256.0 * 1024.0;
const THIN_PART_RATE: f64 = 8.0;
/// Rows of a thin product up to which lines may begin within sectors: with more, tiles of other products take less.
const THIN_ANYWHERE: u64 = 32;
/// What of the memory's rate loads reach.
const MEMORY_SHARE: f64 = 0.9;

/// Bytes that the copy engine wants lines to be multiples of.
const VECTOR: u64 = 16;
/// Bytes of a factor's line in a tile, and of one of the cache's.
pub(super) const LINE: u64 = 128;
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
/// Rows of a warpgroup's instruction.
const GROUP_ROWS: u64 = 64;
/// Columns of which a warpgroup adds up what others have left.
const GROUP_COLUMNS: u64 = 128;
/// The same where lines begin within one of the cache's, so that each touches two, but at its sectors.
const SECTOR_RATE: f64 = 60.0;
/// The same where lines of a factor begin within sectors: for lines along the contraction, and for others.
const RAGGED_RATES: [f64; 2] = [40.0, 24.0];
/// The same where threads bring what the copy engine cannot: for lines at multiples of 2, 4 and 8 bytes.
const THREAD_RATES: [f64; 3] = [8.0, 10.0, 12.0];
/// Clocks of a round at least where threads bring tiles: they wait for memory once a round.
const THREAD_ROUND: f64 = 1600.0;
/// Clocks that a launch takes which copies factors, beside its bytes.
const PADDING: f64 = 5000.0;
/// Bytes of a sector of the cache's lines.
const SECTOR: u64 = 32;
/// Clocks of a block beside its rounds: to start, and to wait for its first tiles.
const START: f64 = 7000.0;
/// Bytes a clock that a block's result leaves by.
const STORE_RATE: f64 = 20.0;
/// What of the shorter one of products and results of two teams is not hidden under the other, as measured.
const SEEN: f64 = 0.35;
/// Tiles of a multiprocessor from which on teams take turns.
const TURNS: f64 = 3.0;
/// Elements of a tile that a team of four warps holds.
const TEAM: u64 = 128 * 128;
/// What leaving sums for another block takes, in bytes that come meanwhile (`stream_k` of `tessera-compile`), and how many of these a clock.
const MEETING: f64 = 56.0 * 1024.0;
const MEETING_RATE: f64 = 12.0;
/// Bytes a clock at which a block adds up what others have left: where it lies as threads hold it, and where it cannot since extents are no
/// powers of two.
const PART_RATES: [f64; 2] = [512.0, 16.0];
/// Blocks of clusters, and lines of a tile that each of them brings at least.
const CLUSTERS: [u64; 2] = [2, 4];
const CLUSTER_LINES: u64 = 8;
/// Of a chip's multiprocessors, those that are in whole clusters: the groups that these may not leave have no multiple of four.
const IN_CLUSTERS: [f64; 2] = [1.0, 0.91];
/// What a round takes where two blocks load together, and four, over that of one by itself, as measured: they wait for each other, and ask for
/// less, which counts where lines begin within the cache's; and where all are whole.
const TOGETHER: [f64; 2] = [1.0, 1.1];
const TOGETHER_WHOLE: [f64; 2] = [1.02, 1.1];
/// Clocks that the start of such blocks takes longer, as measured.
const TOGETHER_START: f64 = 4000.0;
/// How much longer rounds take where the transposed product's results leave between them and blocks load for themselves, as measured.
const TURNED: f64 = 1.09;
/// Tiles of the transposed product that a multiprocessor takes at most: where there are more, none was found to be worth it.
const MOST_TURNED: u64 = 3;
/// How much longer they take with three warpgroups, as measured.
const THREE: f64 = 1.18;
/// Rows of tiles of three warpgroups.
const THREE_ROWS: u64 = 192;
/// Rounds that a block has at least where they are shared.
const LEAST_ROUNDS: f64 = 4.0;

/// A product that tensor cores take as it is stored.
#[derive(Clone, Copy, Debug)]
pub(super) struct Product {
    /// Matrices, rows, columns and contraction.
    pub(super) sizes: [u64; 4],
    pub(super) storage: DType,
    pub(super) result: DType,
    /// What the bytes of each operand's lines are multiples of: a power of two, 128 at most.
    pub(super) lines: [u64; 2],
    /// Whether each factor's lines lie along the contraction.
    pub(super) along: [bool; 2],
    pub(super) may: May,
    /// Matrices have rows of their own number, that of a product at the mean.
    pub(super) ragged: bool,
}

/// What the kernel of a product can do.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct May {
    /// Factors are copied first.
    pub(super) pad: bool,
    /// The transposed product is computed of tiles of any size.
    pub(super) exchange: bool,
    /// Blocks of a cluster load together.
    pub(super) cluster: bool,
}

impl Product {
    /// The transposed product.
    fn exchanged(self) -> Product {
        let Product { sizes: [batch, m, n, k], lines: [a, b], along: [of_a, of_b], .. } = self;
        Product { sizes: [batch, n, m, k], lines: [b, a], along: [of_b, of_a], ..self }
    }
}

/// The choice for a product on a GPU with products of warpgroups.
pub(super) fn choose(product: Product, arch: Arch) -> Choice {
    let Product { sizes: [batch, m, n, k], storage, lines, .. } = product;
    let may_pad = |side: usize| product.may.pad && batch == 1 && storage.bits() == 16 && lines[side] < LINE;
    let mut best = fitting(product, arch);
    for padded in [[true, false], [false, true], [true, true]] {
        if (0..2).any(|side| padded[side] && !may_pad(side)) {
            continue;
        }
        let as_line = |side: usize| if padded[side] { LINE } else { lines[side] };
        let (time, choice) = fitting(Product { lines: [as_line(0), as_line(1)], ..product }, arch);
        // Each is read and written; where the copy engine takes it as it lies, that pays less than its rates say, as measured.
        let passes = |side: usize| if lines[side] < VECTOR { 2.0 } else { 3.0 };
        let copied = (0..2).filter(|&side| padded[side]).map(|side| passes(side) * of_memory(storage, [m, n][side] * k, arch));
        let time = time + PADDING + copied.sum::<f64>();
        if time < best.0 {
            best = (time, Choice { padded, ..choice });
        }
    }
    best.1
}

/// The choice for factors as they lie, and the clocks that it should take.
fn fitting(product: Product, arch: Arch) -> (f64, Choice) {
    let Product { sizes: [batch, m, n, k], storage, lines, ragged, .. } = product;
    let vectors = lines.iter().all(|&bytes| bytes >= VECTOR);
    let halves = storage.bits() == 16;
    let depth = 8 * LINE / u64::from(storage.bits());
    // How many rounds a tile has is known, and what is below it is of the same product.
    let shared = batch == 1 && !ragged;
    // Most groups have no more than twice the rows of the mean.
    let most = if ragged { 2 * m } else { m };
    let thinnest = THIN.iter().copied().find(|&rows| rows >= most).filter(|_| halves && vectors && (shared || ragged));
    let streams = |rows: u64| rows <= THIN_ANYWHERE || lines.iter().all(|&bytes| bytes >= SECTOR);
    if let Some(rows) = thinnest.filter(|&rows| streams(rows)) {
        return thin(rows, [batch, n, k], shared, arch);
    }
    let sms = u64::from(arch.multiprocessors());
    let rounds = k.div_ceil(depth) as f64;
    let least = of_memory(storage, batch * (m + n) * k, arch);
    let none =
        Choice { tile: [0; 3], exchanged: false, cluster: 0, across: false, sharing: Sharing::Nothing, padded: [false; 2] };
    let mut best = (f64::INFINITY, none);
    let freely = halves && vectors && shared;
    let turns = [false, true].into_iter().filter(|&exchanged| !exchanged || freely && product.may.exchange && product.along[0]);
    for exchanged in turns {
        let product = if exchanged { product.exchanged() } else { product };
        let [_, m, n, _] = product.sizes;
        for [rows, columns] in tiles(halves, halves && vectors && product.along[1]) {
            // What threads bring and turn leaves no registers for them.
            if !vectors && !columns.is_power_of_two() {
                continue;
            }
            let counts = [m.div_ceil(rows), n.div_ceil(columns)];
            if exchanged && counts[0] * counts[1] > MOST_TURNED * sms {
                continue;
            }
            let extents = if exchanged { [columns, rows, depth] } else { [rows, columns, depth] };
            // A thread loads what was left beside its sums.
            let adds = columns <= GROUP_COLUMNS || rows > GROUP_ROWS;
            let mut take_all = |block: Block, [blocks, sms]: [u64; 2], (cluster, across): (u32, bool)| {
                let together = blocks.min(sms) * u64::from(cluster.max(1));
                let block = Block { round: block.round.max(block.asked * together as f64 / CACHE_RATE_OF_ALL), ..block };
                let mut take = |time: Time, sharing: Sharing| {
                    let time = time.looped.max(least) + time.beside;
                    if time < best.0 {
                        best = (time, Choice { tile: extents, exchanged, cluster, across, sharing, ..none });
                    }
                };
                take(block.alone(blocks, rounds, sms), Sharing::Nothing);
                // Results that are turned leave through all of a block's warps, which products wait for.
                let alone = exchanged && cluster == 0;
                let block = if alone { Block { round: block.round * TURNED, ..block } } else { block };
                if blocks > sms {
                    take(block.in_turns(blocks, rounds, sms), Sharing::Blocks);
                    // Teams take tiles of equally many rounds, and a group's last tile may have none.
                    let fits = TEAM / 2 < rows * columns && rows * columns <= TEAM && columns.is_power_of_two();
                    let of_teams = !ragged && !exchanged && cluster == 0 && fits;
                    if halves && vectors && of_teams && blocks as f64 >= TURNS * sms as f64 {
                        take(block.by_teams(blocks, rounds, sms), Sharing::Turns);
                    }
                }
                if let Some(time) = block.shared(blocks, rounds, sms).filter(|_| freely && adds) {
                    take(time, Sharing::Rounds);
                }
            };
            take_all(Block::of([rows, columns], &product, None), [batch * counts[0] * counts[1], sms], (0, false));
            if !(freely && product.may.cluster) {
                continue;
            }
            for (cluster, side) in CLUSTERS.into_iter().flat_map(|cluster| [(cluster, 0), (cluster, 1)]) {
                let lines = if product.along[side] { [rows, columns][side] } else { depth };
                if !lines.is_multiple_of(CLUSTER_LINES * cluster) {
                    continue;
                }
                let mut counts = counts;
                counts[1 - side] = counts[1 - side].next_multiple_of(cluster);
                let block = Block::of([rows, columns], &product, Some((cluster, side)));
                let whole = (sms as f64 * IN_CLUSTERS[usize::from(cluster > CLUSTERS[0])]) as u64 / cluster;
                take_all(block, [counts[0] * counts[1] / cluster, whole], (cluster as u32, (side == 0) != exchanged));
            }
        }
    }
    best
}

/// Rows and columns of tiles.
fn tiles(halves: bool, along: bool) -> Vec<[u64; 2]> {
    let given: &[[u64; 2]] = if halves { &WARPGROUP_TILES } else { &PLAIN_TILES };
    let mut tiles = given.to_vec();
    if along {
        let columns = |most: u64| (1..=most / COLUMNS_STEP).map(|steps| COLUMNS_STEP * steps);
        let more = ALONG_TILES.into_iter().flat_map(|[rows, most]| columns(most).map(move |columns| [rows, columns]));
        tiles.extend(more.filter(|tile| tile[1] > COLUMNS_STEP && !given.contains(tile)));
    }
    tiles
}

/// The choice for matrices with few rows of 16-bit floats, which wait for memory. Blocks that share rounds, where they can, meet; where tiles are
/// enough for what memory gives, they need not.
fn thin(rows: u64, [matrices, n, k]: [u64; 3], can_share: bool, arch: Arch) -> (f64, Choice) {
    let sms = u64::from(arch.multiprocessors());
    let least = of_memory(DType::BF16, matrices * n * k, arch);
    let none = Choice { tile: [0; 3], exchanged: true, cluster: 0, across: false, sharing: Sharing::Nothing, padded: [false; 2] };
    let mut best = (f64::INFINITY, none);
    for ([columns, depth], sharing) in THIN_TILES {
        let bytes = 2 * (rows + columns) * depth;
        let (rounds, blocks) = (k.div_ceil(depth) as f64, matrices * n.div_ceil(columns));
        let sums = (4 * rows * columns) as f64;
        let block = Block {
            round: bytes as f64 / STREAM_RATE,
            asked: bytes as f64,
            start: THIN_START,
            stored: sums / STORE_RATE,
            meeting: (sums + THIN_MEETING) / STREAM_RATE,
            part: sums / THIN_PART_RATE,
        };
        let time = match sharing {
            Sharing::Rounds => block.shared(blocks, rounds, sms).filter(|_| can_share),
            _ => Some(block.alone(blocks, rounds, sms)),
        };
        let Some(time) = time.map(|time| time.looped.max(least) + time.beside) else { continue };
        if time < best.0 {
            best = (time, Choice { tile: [rows, columns, depth], sharing, ..none });
        }
    }
    best
}

/// Clocks in which memory gives so many elements once.
fn of_memory(storage: DType, elements: u64, arch: Arch) -> f64 {
    let device = Device::ALL.iter().rfind(|device| device.arch == arch);
    let rate = device.map_or(f64::INFINITY, |device| MEMORY_SHARE * device.dram_gbps * 1e3 / f64::from(device.boost_mhz));
    packed_bytes(storage, elements) as f64 / rate
}

/// Clocks of a launch: those of its rounds, which memory may hold up, and all others.
struct Time {
    looped: f64,
    beside: f64,
}

/// Clocks of the parts of a block.
struct Block {
    round: f64,
    /// Bytes that a round asks the second-level cache for, as if all lay in whole lines.
    asked: f64,
    /// To start, and to store the result.
    start: f64,
    stored: f64,
    /// To leave sums for other blocks and meet them, and to add up what one of them has left.
    meeting: f64,
    part: f64,
}

impl Block {
    /// One of a cluster's, which load a factor together, or one by itself.
    fn of([rows, columns]: [u64; 2], product: &Product, cluster: Option<(u64, usize)>) -> Block {
        let mut asked = [rows, columns];
        let Some((blocks, side)) = cluster else { return Block::of_tile([rows, columns], asked, LEAST_ROUND, product) };
        asked[side] /= blocks;
        let block = Block::of_tile([rows, columns], asked, LEAST_ROUND_TOGETHER, product);
        let factors = if product.lines.iter().all(|&bytes| bytes >= LINE) { TOGETHER_WHOLE } else { TOGETHER };
        let factor = factors[usize::from(blocks > CLUSTERS[0])];
        Block { round: block.round * factor, start: block.start + TOGETHER_START, ..block }
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
        let round = products.max(shared as f64 / SHARED_RATE).max(least) * longer;
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
    fn alone(&self, blocks: u64, rounds: f64, sms: u64) -> Time {
        let waves = blocks.div_ceil(sms) as f64;
        Time { looped: waves * rounds * self.round, beside: waves * (self.start + self.stored) }
    }

    /// The same with one block a multiprocessor that takes several tiles: the next one's come while a result leaves.
    fn in_turns(&self, blocks: u64, rounds: f64, sms: u64) -> Time {
        let waves = blocks.div_ceil(sms) as f64;
        Time { looped: waves * rounds * self.round, beside: waves * self.stored + self.start }
    }

    /// The same with two teams, one of which stores while the other one multiplies.
    fn by_teams(&self, blocks: u64, rounds: f64, sms: u64) -> Time {
        let (waves, looped) = (blocks.div_ceil(sms) as f64, rounds * self.round);
        let tile = looped.max(self.stored) + SEEN * looped.min(self.stored);
        Time { looped: waves * looped, beside: waves * (tile - looped) + self.start + self.stored }
    }

    /// The same with rounds of the last tiles shared evenly among multiprocessors, where several have one of them.
    fn shared(&self, blocks: u64, rounds: f64, sms: u64) -> Option<Time> {
        let (whole, rest) = ((blocks / sms) as f64, blocks % sms);
        let most = (rounds * self.round / self.part).sqrt().min(rounds / LEAST_ROUNDS);
        let parts = (sms.checked_div(rest)? as f64).min(most).floor();
        (parts > 1.0).then(|| Time {
            looped: (whole + 1.0 / parts) * rounds * self.round,
            beside: self.start + (whole + 1.0) * self.stored + self.meeting + parts * self.part,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ALL: May = May { pad: true, exchange: true, cluster: true };

    fn chosen(sizes: [u64; 3]) -> Choice {
        of(sizes, DType::BF16, LINE, false)
    }

    fn of([m, n, k]: [u64; 3], storage: DType, lines: u64, along: bool) -> Choice {
        fitting(product([m, n, k], storage, [lines; 2], along), Arch::Sm90a).1
    }

    fn product([m, n, k]: [u64; 3], storage: DType, lines: [u64; 2], along: bool) -> Product {
        Product { sizes: [1, m, n, k], storage, result: DType::F32, lines, along: [true, along], may: ALL, ragged: false }
    }

    #[test]
    fn ragged_lines_are_copied_where_that_pays() {
        let padded = |sizes: [u64; 3], lines: [u64; 2]| choose(product(sizes, DType::BF16, lines, false), Arch::Sm90a).padded;
        // Both factors that threads would bring.
        assert_eq!(padded([3001, 3001, 3001], [2, 2]), [true, true]);
        assert_eq!(padded([57, 38, 5881], [2, 4]), [true, true]);
        // Those of the edges.
        assert_eq!(padded([33, 31, 449], [2, 2]), [true, true]);
        assert_eq!(padded([17, 64, 449], [2, 128]), [true, false]);
        assert_eq!(padded([4096, 4096, 4096], [128, 128]), [false, false]);
        assert_eq!(padded([256, 256, 136], [16, 128]), [false, false]);
        let shared = choose(product([57, 38, 5881], DType::BF16, [2, 4], false), Arch::Sm90a);
        assert_eq!(shared.sharing, Sharing::Rounds, "what is padded can be shared");
        let unasked = Product { may: May { pad: false, ..ALL }, ..product([3001, 3001, 3001], DType::BF16, [2, 2], false) };
        assert_eq!(choose(unasked, Arch::Sm90a).padded, [false, false]);
    }

    #[test]
    fn groups_of_few_rows_are_columns_and_share_no_rounds() {
        let groups = |rows, result| {
            let sizes = [8, rows, 4096, 4096];
            let product = Product {
                sizes,
                storage: DType::BF16,
                result,
                lines: [LINE; 2],
                along: [true; 2],
                may: May::default(),
                ragged: true,
            };
            choose(product, Arch::Sm90a)
        };
        let few = groups(8, DType::BF16);
        assert_eq!((few.exchanged, few.tile[0], few.sharing), (true, 16, Sharing::Nothing));
        assert!(!groups(33, DType::BF16).exchanged);
        let many = groups(2048, DType::BF16);
        assert_eq!((many.tile[0] * many.tile[1], many.sharing, many.cluster > 0), (128 * 256, Sharing::Blocks, false));
    }

    #[test]
    fn large_products_take_the_largest_tiles() {
        for sizes in [[4096, 4096, 4096], [8192, 8192, 8192]] {
            let choice = chosen(sizes);
            assert_eq!((choice.tile[0] * choice.tile[1], choice.sharing), (128 * 256, Sharing::Blocks), "{sizes:?}");
        }
    }

    #[test]
    fn tiles_fill_the_last_wave() {
        // 544 blocks are four waves and 16, whose rounds are shared.
        let choice = chosen([4096, 4104, 4096]);
        assert_eq!((choice.tile, choice.sharing), ([128, 256, 64], Sharing::Rounds));
        assert_eq!(chosen([3072, 3072, 3072]).tile, [128, 192, 64]);
        // 132 blocks are all of one wave, where the right factor may be cut so, or the left one of the transposed product.
        let exchanged = chosen([1536, 1536, 1536]);
        assert_eq!((exchanged.tile, exchanged.exchanged), ([144, 128, 64], true));
        let along = of([1536, 1536, 1536], DType::BF16, LINE, true);
        assert_eq!(along.tile, [128, 144, 64]);
    }

    #[test]
    fn pairs_of_blocks_bring_ragged_lines_together() {
        let tile = |sizes: [u64; 3]| of(sizes, DType::BF16, VECTOR, false).tile;
        assert_eq!(tile([5000, 5000, 5000]), [128, 256, 64]);
        assert_eq!(tile([3000, 3000, 3000]), [192, 192, 64]);
        assert_eq!(tile([4096, 4104, 4096]), [256, 128, 64]);
        // Nor is a factor copied for that.
        let one = Product { lines: [LINE, VECTOR], ..product([4096, 4104, 4096], DType::BF16, [VECTOR; 2], false) };
        let one = choose(Product { along: [true, false], ..one }, Arch::Sm90a);
        assert_eq!((one.tile, one.padded), ([256, 128, 64], [false; 2]));
        let choice = of([3000, 3000, 3000], DType::BF16, VECTOR, false);
        assert_eq!((choice.cluster > 0, choice.sharing), (true, Sharing::Blocks));
        assert_eq!(chosen([3072, 3072, 3072]).cluster, 0);
        // Nothing comes by the copy engine.
        assert_eq!(of([3001, 3001, 3001], DType::BF16, 2, false).cluster, 0);
        let wave = of([1000, 1000, 1000], DType::BF16, VECTOR, false);
        assert_eq!((wave.tile, wave.cluster, wave.sharing), ([160, 64, 64], 4, Sharing::Nothing));
    }

    #[test]
    fn few_tiles_with_a_long_contraction_are_shared() {
        assert_eq!(chosen([128, 128, 65536]).sharing, Sharing::Rounds);
        assert_eq!(chosen([512, 512, 64]).sharing, Sharing::Nothing);
    }

    #[test]
    fn tiles_with_few_rounds_are_taken_in_turn() {
        assert_eq!(chosen([4096, 4096, 128]).sharing, Sharing::Turns);
        assert_eq!(chosen([8192, 8192, 512]).tile, [128, 128, 64]);
        // Sums that take longer than they are stored are done by all warps.
        assert_eq!(chosen([4096, 4096, 4096]).sharing, Sharing::Blocks);
    }

    #[test]
    fn few_rows_are_columns() {
        let thin = Choice {
            tile: [8, 64, 256],
            exchanged: true,
            cluster: 0,
            across: false,
            sharing: Sharing::Nothing,
            padded: [false; 2],
        };
        assert_eq!(chosen([1, 4096, 4096]), thin);
        // Few tiles with long contractions are shared.
        assert_eq!(chosen([1, 512, 16384]), Choice { tile: [8, 64, 128], sharing: Sharing::Rounds, ..thin });
        assert_eq!(chosen([33, 4096, 14336]).tile, [64, 64, 128]);
        assert_eq!(chosen([65, 4096, 4096]).tile[2], 64);
        assert!(!of([1, 4096, 4096], DType::F8E4M3, LINE, false).exchanged);
        assert!(!of([1, 4095, 4096], DType::BF16, 2, false).exchanged);
    }
}
