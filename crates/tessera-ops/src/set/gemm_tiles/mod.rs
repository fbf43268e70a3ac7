//! Which tiles a product is cut into, and whether blocks share their rounds: what should take the least time.
//!
//! A block's time is its rounds and what comes before and behind them. A round keeps the tensor cores busy for its multiply-adds, shared memory
//! for what comes and what products read, and the second-level cache for its bytes; it takes the longest of the three (`time.rs`).

mod threads;
mod time;

use tessera_runtime::Sharing;
use tessera_types::room::{MOST_CLUSTERS, SENT_BY_WARPGROUP, USEFUL_SLOTS, slots_that_fit};
use tessera_types::{Arch, DType};

use self::time::{Block, Time, of_memory, parts_in_cluster};
use crate::operator::{PossibleWay, Unsupported, Way};
use crate::work::packed_bytes;

/// How a product runs on a GPU.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Choice {
    /// Rows, columns and contraction of a tile.
    pub(super) tile: [u64; 3],
    /// The product is computed transposed.
    pub(super) exchanged: bool,
    /// Blocks of a cluster that load together what all of them read, or split the rounds of one block; 0 where each is by itself.
    pub(super) cluster: u32,
    /// Such clusters that share the rounds of one block; 0 where one has all of them.
    pub(super) clusters: u32,
    /// They lie side by side, else one below the other.
    pub(super) across: bool,
    /// What blocks share.
    pub(super) sharing: Sharing,
    /// Warps of a block; 0 leaves them to the compiler.
    pub(super) warps: u32,
    /// Factors that are copied first, to lines at multiples of [`LINE`] bytes, and along the contraction where warpgroups take no others.
    pub(super) copied: [bool; 2],
}

/// Tiles of rows and columns whose products warpgroups take as the factors lie.
const WARPGROUP_TILES: [[u64; 2]; 16] = [
    [128, 256],
    [256, 128],
    [256, 192],
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
const ALONG_TILES: [[u64; 2]; 4] = [[64, 256], [128, 256], [192, 192], [256, 192]];
const COLUMNS_STEP: u64 = 16;
/// The same where threads turn factors first.
const PLAIN_TILES: [[u64; 2]; 5] = [[128, 256], [128, 128], [128, 64], [64, 128], [64, 64]];
/// Rows of tiles of thin products.
const THIN: [u64; 4] = [8, 16, 32, 64];
/// Columns of tiles of thin products, bytes of their contraction, and what blocks share of them.
const THIN_TILES: [([u64; 2], Sharing); 4] =
    [([64, 512], Sharing::Nothing), ([128, 256], Sharing::Nothing), ([64, 256], Sharing::Rounds), ([128, 256], Sharing::Rounds)];
/// Rows of a thin product up to which lines may begin within sectors: with more, tiles of other products take less.
const THIN_ANYWHERE: u64 = 32;
/// Bytes that the copy engine wants lines to be multiples of.
const VECTOR: u64 = 16;
/// Bytes of a factor's line in a tile, and of one of the cache's.
pub(super) const LINE: u64 = 128;
/// Rows of a warpgroup's instruction.
const GROUP_ROWS: u64 = 64;
/// Rows of tiles of three warpgroups.
const THREE_ROWS: u64 = 192;
/// Rows of tiles of which a warpgroup has those of two instructions.
const FOUR_ROWS: u64 = 256;
/// Columns of which a warpgroup adds up what others have left; of any number up to which where it holds sums twice.
const GROUP_COLUMNS: u64 = 128;
const TWICE_COLUMNS: u64 = 192;
/// Clocks that a launch takes which copies factors, beside its bytes.
const PADDING: f64 = 6800.0;
/// Clocks that a launch takes at least.
const LAUNCH: f64 = 9800.0;
/// Bytes of a sector of the cache's lines.
const SECTOR: u64 = 32;
/// Tiles of a multiprocessor from which on teams take turns.
const TURNS: f64 = 3.0;
/// Elements of a tile that a team of four warps holds.
const TEAM: u64 = 128 * 128;
/// Blocks of clusters, and lines of a tile that each of them brings at least.
const CLUSTERS: [u64; 2] = [2, 4];
const CLUSTER_LINES: u64 = 8;
/// Blocks of clusters that split rounds.
const SPLITS: [u64; 3] = [2, 4, 8];
/// Rounds that each block of clusters that share a tile's has at least.
const LEAST_SHARED: u64 = 4;
/// Bytes of an element of sums.
const SUM: u64 = 4;
/// Of a chip's multiprocessors, those that are in whole clusters of two, four and eight: the groups that these may not leave have no multiple of
/// four.
const IN_CLUSTERS: [f64; 3] = [1.0, 0.91, 0.85];
/// Tiles of the transposed product that a multiprocessor takes at most: where there are more, none was found to be worth it.
const MOST_TURNED: u64 = 3;

/// Columns of a band of scales.
const BAND: u64 = 128;
/// Rows and columns of a tile that threads hold twice.
const HELD_TWICE: [u64; 2] = [192, 128];

/// Columns of the tensor cores' tile by which choices differ that are much alike.
const ALIKE: u64 = 64;

/// The names of choices, by those of the kernel's constants and of the compiler's.
pub(super) const NAMES: [&str; 11] =
    ["TM", "TN", "TK", "EXCHANGED", "ACROSS", "COPY_A", "COPY_B", "num_ctas", "num_clusters", "sharing", "num_warps"];

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
    pub(super) copy: bool,
    /// The transposed product is computed of tiles of any size.
    pub(super) exchange: bool,
    /// Blocks of a cluster load together.
    pub(super) cluster: bool,
    /// A tile is added to the sums. It comes through the slots of the factors, behind a tile's rounds: a team would hand its turn on no sooner.
    pub(super) added: bool,
    /// Sums of a round are scaled and added to those of earlier ones: a thread holds both, and columns of the product have scales in bands of
    /// [`BAND`].
    pub(super) banded: bool,
}

impl Product {
    /// The transposed product.
    fn exchanged(self) -> Product {
        let Product { sizes: [batch, m, n, k], lines: [a, b], along: [of_a, of_b], .. } = self;
        Product { sizes: [batch, n, m, k], lines: [b, a], along: [of_b, of_a], ..self }
    }

    /// The same with some factors copied.
    fn with(self, copied: [bool; 2]) -> Product {
        let mut product = self;
        for side in (0..2).filter(|&side| copied[side]) {
            product.lines[side] = LINE;
            product.along[side] |= along_alone(self.storage);
        }
        product
    }

    /// How many factors threads turn.
    fn turned(&self) -> usize {
        self.along.iter().filter(|&&along| !along && along_alone(self.storage)).count()
    }

    /// Whether the copy engine takes both factors.
    fn comes_by_engine(&self) -> bool {
        self.lines.iter().all(|&bytes| bytes >= VECTOR)
    }

    /// Whether threads hold sums of a round beside those of earlier ones, which two teams have no registers for.
    fn holds_twice(&self) -> bool {
        self.may.banded || self.storage.bits() == 8 && self.storage.is_float()
    }

    /// Whether threads have room for 192 sums each. Integers have, too, and gained no more than 3 in 100 by what is foreseen.
    fn leaves_room(&self) -> bool {
        !self.holds_twice() && self.storage.bits() == 16
    }

    /// Whether a factor may be copied first.
    fn may_copy(&self, side: usize) -> bool {
        let turns = along_alone(self.storage) && !self.along[side];
        self.may.copy && self.sizes[0] == 1 && (self.lines[side] < LINE || turns)
    }
}

/// Warpgroups take factors of a type along the contraction alone.
pub(super) fn along_alone(storage: DType) -> bool {
    storage.bits() != 16
}

/// The choice for a product on a GPU with products of warpgroups.
pub(super) fn choose(product: Product, arch: Arch) -> Choice {
    let mut best = (f64::INFINITY, Choice::default());
    each(product, arch, Thin::Alone, &mut |time, choice| {
        if time < best.0 {
            best = (time, choice);
        }
    });
    best.1
}

/// All choices that there are, the one that is taken first, the others by what they should take; the best of each kind before others, since what is
/// much alike is misjudged alike.
pub(super) fn ways(product: Product, arch: Arch) -> Vec<PossibleWay> {
    let first = choose(product, arch);
    let mut found: Vec<(f64, Choice)> = Vec::new();
    each(product, arch, Thin::Too, &mut |time, choice| found.push((time, choice)));
    found.sort_by(|a, b| (a.1 != first).cmp(&(b.1 != first)).then(a.0.total_cmp(&b.0)));
    let mut kinds: Vec<Choice> = Vec::new();
    let is_new = |(_, choice): &(f64, Choice)| {
        let kind = choice.kind();
        let is_new = !kinds.contains(&kind);
        kinds.extend(is_new.then_some(kind));
        is_new
    };
    let (mut all, alike): (Vec<_>, Vec<_>) = found.into_iter().partition(is_new);
    all.extend(alike);
    all.into_iter().map(|(clocks, choice)| PossibleWay { way: choice.way(), clocks }).collect()
}

/// Whether products that tiles of few rows suit are given these alone, or others too.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Thin {
    Alone,
    Too,
}

/// Gives each choice with the clocks that it should take.
fn each(product: Product, arch: Arch, thin: Thin, take: &mut dyn FnMut(f64, Choice)) {
    let Product { sizes: [_, m, n, k], storage, lines, along, .. } = product;
    if storage == DType::F32 {
        return threads::each(&product, arch, take);
    }
    for copied in [[false, false], [true, false], [false, true], [true, true]] {
        if (0..2).any(|side| copied[side] && !product.may_copy(side)) {
            continue;
        }
        // Each is read and written; where the copy engine takes it as it lies, that pays less than its rates say, as measured.
        let by_engine = |side: usize| lines[side] >= VECTOR && (along[side] || !along_alone(storage));
        let passes = |side: usize| if by_engine(side) { 3.5 } else { 2.0 };
        let bytes = |side: usize| passes(side) * of_memory(storage, [m, n][side] * k, arch);
        let (launch, least) = if copied.contains(&true) { (PADDING, LAUNCH) } else { (0.0, 0.0) };
        let copying = launch + (0..2).filter(|&side| copied[side]).map(bytes).sum::<f64>();
        fitting(product.with(copied), arch, thin, &mut |time, choice| {
            take(time.max(least) + copying, Choice { copied, ..choice });
        });
    }
}

/// The choices for factors as they lie.
fn fitting(product: Product, arch: Arch, thin: Thin, take: &mut dyn FnMut(f64, Choice)) {
    let Product { sizes: [batch, m, _, k], storage, lines, ragged, .. } = product;
    let (vectors, direct) = (product.comes_by_engine(), product.turned() == 0);
    // How many rounds a tile has is known, and what is below it is of the same product.
    let shared = batch == 1 && !ragged;
    // Most groups have no more than twice the rows of the mean.
    let most = if ragged { 2 * m } else { m };
    let thinnest = THIN
        .iter()
        .copied()
        .find(|&rows| rows >= most)
        .filter(|_| direct && vectors && !product.may.banded && (shared || ragged));
    let streams = |rows: u64| rows <= THIN_ANYWHERE || lines.iter().all(|&bytes| bytes >= SECTOR);
    if let Some(rows) = thinnest.filter(|&rows| streams(rows)) {
        thin_tiles(rows, &product, shared, arch, take);
        if thin == Thin::Alone {
            return;
        }
    }
    let line = 8 * LINE / u64::from(storage.bits());
    let freely = vectors && shared;
    let turns = [false, true].into_iter().filter(|&exchanged| !exchanged || freely && product.may.exchange && product.along[0]);
    for exchanged in turns {
        let sides = if exchanged { product.exchanged() } else { product };
        for [rows, columns] in tiles(direct, direct && vectors && sides.along[1]) {
            // A warpgroup would have rows behind the product alone.
            if rows >= sides.sizes[1].max(1).next_multiple_of(GROUP_ROWS) + GROUP_ROWS {
                continue;
            }
            if rows == FOUR_ROWS && columns > GROUP_COLUMNS && !product.leaves_room() {
                continue;
            }
            let of_a_band = if exchanged { rows } else { columns };
            let is_held = rows <= HELD_TWICE[0] && columns <= HELD_TWICE[1];
            if product.may.banded && !(BAND.is_multiple_of(of_a_band) && is_held) {
                continue;
            }
            // What is added comes in 2, 4 or 8 portions; threads that load it for large tiles have few registers left.
            if product.may.added && rows * columns > TEAM && !columns.is_power_of_two() {
                continue;
            }
            // What threads bring and turn leaves no registers for them.
            if !vectors && !columns.is_power_of_two() {
                continue;
            }
            let extents = if exchanged { [columns, rows, line] } else { [rows, columns, line] };
            let tile = Tile { rows, columns, exchanged, freely, line, rounds: k.div_ceil(line) as f64 };
            tile.each(&sides, arch, &mut |time, choice| take(time, Choice { tile: extents, exchanged, ..choice }));
        }
    }
}

/// A tile, of the transposed product or of the product itself.
struct Tile {
    rows: u64,
    columns: u64,
    exchanged: bool,
    /// Rounds can be shared, and blocks can load together.
    freely: bool,
    /// Contraction of a round, and how many there are.
    line: u64,
    rounds: f64,
}

impl Tile {
    /// What blocks with such tiles can share.
    fn each(&self, product: &Product, arch: Arch, take: &mut dyn FnMut(f64, Choice)) {
        let Product { sizes: [batch, m, n, k], storage, .. } = *product;
        let (sms, extents) = (u64::from(arch.multiprocessors()), [self.rows, self.columns]);
        let counts = [m.div_ceil(self.rows), n.div_ceil(self.columns)];
        if self.exchanged && counts[0] * counts[1] > MOST_TURNED * sms {
            return;
        }
        let least = of_memory(storage, batch * (m + n) * k, arch);
        let mut take = |time: Time, choice: Choice| take(time.looped.max(least) + time.beside, choice);
        let block = |cluster: Option<(u64, usize)>| {
            let block = Block::of(extents, product, cluster);
            if self.exchanged { block.exchanged() } else { block }
        };
        // What threads turn lies in a ring of its own, which leaves sums no room.
        if self.freely && product.turned() == 0 {
            split(&block(None), (counts[0] * counts[1], self.rounds, extents), (self.room(product, arch), sms), &mut take);
        }
        self.shared(block(None), [batch * counts[0] * counts[1], sms], product, Choice::default(), &mut take);
        if !(self.freely && product.may.cluster && product.turned() == 0) {
            return;
        }
        for (cluster, side) in CLUSTERS.into_iter().flat_map(|cluster| [(cluster, 0), (cluster, 1)]) {
            let lines = if product.along[side] { extents[side] } else { self.line };
            if !lines.is_multiple_of(CLUSTER_LINES * cluster) {
                continue;
            }
            let mut counts = counts;
            counts[1 - side] = counts[1 - side].next_multiple_of(cluster);
            let block = block(Some((cluster, side)));
            let whole = clusters(sms, cluster);
            let choice = Choice { cluster: cluster as u32, across: (side == 0) != self.exchanged, ..Choice::default() };
            self.shared(block, [counts[0] * counts[1] / cluster, whole], product, choice, &mut take);
        }
    }

    /// Bytes of the slots of a tile's larger factor, where sums of a cluster land. Results that are turned leave through a tile of their own.
    fn room(&self, product: &Product, arch: Arch) -> u64 {
        let &Tile { rows, columns, exchanged, .. } = self;
        // Four warpgroups' rows are computed by two.
        let groups = match rows / GROUP_ROWS {
            4 => 2,
            groups => groups,
        };
        let turned = if exchanged { packed_bytes(product.result, rows * columns) } else { 0 };
        let sent = turned.max(groups * u64::from(SENT_BY_WARPGROUP));
        let slots = slots_that_fit(arch.limits().shared_per_block, ((rows + columns) * LINE) as u32, sent as u32);
        u64::from(slots.min(USEFUL_SLOTS)) * rows.max(columns) * LINE
    }

    /// Blocks, or clusters, on so many multiprocessors, or groups of them.
    fn shared(
        &self,
        block: Block,
        [blocks, sms]: [u64; 2],
        product: &Product,
        choice: Choice,
        take: &mut dyn FnMut(Time, Choice),
    ) {
        let &Tile { rows, columns, exchanged, freely, rounds, .. } = self;
        let block = block.among(blocks.min(sms) * u64::from(choice.cluster.max(1)));
        let mut take = |time: Time, sharing: Sharing| take(time, Choice { sharing, ..choice });
        take(block.alone(blocks, rounds, sms), Sharing::Nothing);
        // Results that are turned leave through all of a block's warps, which products wait for.
        let block = if exchanged { block.turned(choice.cluster > 0) } else { block };
        if blocks > sms {
            take(block.in_turns(blocks, rounds, sms), Sharing::Blocks);
            // Teams take tiles of equally many rounds, and a group's last tile may have none.
            let fits = TEAM / 2 < rows * columns && rows * columns <= TEAM && columns.is_power_of_two();
            let of_teams =
                !product.may.added && !product.ragged && !product.holds_twice() && !exchanged && choice.cluster == 0 && fits;
            let whole = product.comes_by_engine() && product.turned() == 0;
            if whole && of_teams && blocks as f64 >= TURNS * sms as f64 {
                take(block.by_teams(blocks, rounds, sms), Sharing::Turns);
            }
        }
        // A thread loads what was left beside its sums, for which three warpgroups and sums that are held twice leave few registers.
        let beside = match (product.holds_twice(), rows == THREE_ROWS) {
            (true, _) => columns <= TWICE_COLUMNS || columns.is_power_of_two(),
            (_, true) => columns >= GROUP_ROWS,
            _ => true,
        };
        let adds = beside && (columns <= GROUP_COLUMNS || rows > GROUP_ROWS);
        if let Some(time) = block.shared(blocks, rounds, sms).filter(|_| freely && adds) {
            take(time, Sharing::Rounds);
        }
    }
}

/// Clusters of so many blocks that multiprocessors hold at once.
fn clusters(sms: u64, blocks: u64) -> u64 {
    (sms as f64 * IN_CLUSTERS[blocks.ilog2() as usize - 1]) as u64 / blocks
}

/// The choices in which clusters split the rounds of tiles of so many rows and columns of sums: how many there are, and their rounds. What lands in a
/// block of the sums of all has so many bytes of room.
fn split(
    block: &Block,
    (tiles, rounds, sums): (u64, f64, [u64; 2]),
    (room, sms): (u64, u64),
    take: &mut dyn FnMut(Time, Choice),
) {
    let lands = |blocks: u64| SUM * sums[0] * sums[1] * blocks / parts_in_cluster(blocks, sums[1]);
    for blocks in SPLITS.into_iter().filter(|&blocks| blocks as f64 <= rounds && lands(blocks) <= room) {
        let at_once = clusters(sms, blocks);
        let choice = Choice { cluster: blocks as u32, sharing: Sharing::Cluster, ..Choice::default() };
        let time = block.among(tiles.min(at_once) * blocks).split(tiles, rounds, at_once, (blocks, sums));
        take(time, choice);
        // As many as run at once, and half of them, where their blocks have rounds enough.
        let most = (at_once / tiles.max(1)).min(rounds as u64 / (LEAST_SHARED * blocks)).min(u64::from(MOST_CLUSTERS));
        for clusters in [most, most / 2].into_iter().filter(|&clusters| clusters > 1) {
            let time = block.among(tiles * clusters * blocks).split_among(rounds, clusters, (blocks, sums));
            take(time, Choice { clusters: clusters as u32, ..choice });
        }
    }
}

/// Rows and columns of tiles: where warpgroups take both factors as they lie, and where the right one lies along the contraction.
fn tiles(direct: bool, along: bool) -> Vec<[u64; 2]> {
    let given: &[[u64; 2]] = if direct { &WARPGROUP_TILES } else { &PLAIN_TILES };
    let mut tiles = given.to_vec();
    if along {
        let columns = |most: u64| (1..=most / COLUMNS_STEP).map(|steps| COLUMNS_STEP * steps);
        let more = ALONG_TILES.into_iter().flat_map(|[rows, most]| columns(most).map(move |columns| [rows, columns]));
        tiles.extend(more.filter(|tile| tile[1] > COLUMNS_STEP && !given.contains(tile)));
    }
    tiles
}

/// The choices for matrices with few rows, which wait for memory. Blocks that share rounds, where they can, meet; where tiles are
/// enough for what memory gives, they need not.
fn thin_tiles(rows: u64, product: &Product, can_share: bool, arch: Arch, take: &mut dyn FnMut(f64, Choice)) {
    let Product { sizes: [matrices, _, n, k], storage, .. } = *product;
    let sms = u64::from(arch.multiprocessors());
    let least = of_memory(storage, matrices * n * k, arch);
    for ([columns, bytes], sharing) in THIN_TILES {
        let depth = 8 * bytes / u64::from(storage.bits());
        let (rounds, blocks) = (k.div_ceil(depth) as f64, matrices * n.div_ceil(columns));
        let block = Block::of_thin([rows, columns, depth], storage);
        let time = match sharing {
            Sharing::Rounds => block.shared(blocks, rounds, sms).filter(|_| can_share),
            _ => Some(block.alone(blocks, rounds, sms)),
        };
        if let Some(time) = time {
            let choice = Choice { tile: [rows, columns, depth], exchanged: true, sharing, ..Choice::default() };
            take(time.looped.max(least) + time.beside, choice);
        }
        if can_share && sharing == Sharing::Nothing {
            // Two slots of the larger factor, at least.
            split(&block, (blocks, rounds, [columns, rows]), (2 * columns * bytes, sms), &mut |time, choice| {
                let choice = Choice { tile: [rows, columns, depth], exchanged: true, ..choice };
                take(time.looped.max(least) + time.beside, choice);
            });
        }
    }
}

impl Choice {
    /// What choices that are much alike have in common.
    fn kind(&self) -> Choice {
        let [rows, columns, depth] = self.tile;
        let tile = if self.exchanged { [rows.div_ceil(ALIKE), columns, depth] } else { [rows, columns.div_ceil(ALIKE), depth] };
        Choice { tile, cluster: self.cluster.min(1), clusters: self.clusters.min(1), across: false, ..*self }
    }

    /// What [`Choice::way`] gives.
    ///
    /// # Errors
    /// Where a name is missing, or is none of a product's, or the product cannot be cut so.
    pub(super) fn of_way(way: &Way, product: &Product) -> Result<Choice, Unsupported> {
        if let Some(name) = way.keys().find(|name| !NAMES.contains(&name.as_str())) {
            return Err(Unsupported(format!("`{name}` is no choice of a product, which has {}", NAMES.join(", "))));
        }
        let number = |name: &str, least: i64, most: i64| match way.get(name) {
            Some(number) if (least..=most).contains(number) => Ok(*number),
            Some(number) => Err(Unsupported(format!("`{name}={number}`: from {least} to {most}"))),
            None => Err(Unsupported(format!("a product wants `{name}` chosen, too"))),
        };
        let extent = |name| number(name, 1, 1024).map(|extent| extent as u64);
        let is = |name| number(name, 0, 1).map(|is| is == 1);
        let choice = Choice {
            tile: [extent("TM")?, extent("TN")?, extent("TK")?],
            exchanged: is("EXCHANGED")?,
            cluster: number("num_ctas", 0, 16)? as u32,
            clusters: number("num_clusters", 0, MOST_CLUSTERS.into())? as u32,
            across: is("ACROSS")?,
            sharing: Sharing::ALL[number("sharing", 0, Sharing::ALL.len() as i64 - 1)? as usize],
            warps: number("num_warps", 0, 32)? as u32,
            copied: [is("COPY_A")?, is("COPY_B")?],
        };
        if let Some(side) = (0..2).find(|&side| choice.copied[side] && !product.may_copy(side)) {
            return Err(Unsupported(format!("`{}=1`: this factor is taken as it lies", ["COPY_A", "COPY_B"][side])));
        }
        if choice.sharing == Sharing::Cluster && !SPLITS.contains(&u64::from(choice.cluster)) {
            return Err(Unsupported("`sharing=4`: the blocks of a cluster split rounds, `num_ctas` of 2, 4 or 8".to_string()));
        }
        if choice.clusters > 0 && choice.sharing != Sharing::Cluster {
            let clusters = choice.clusters;
            return Err(Unsupported(format!(
                "`num_clusters={clusters}`: clusters share the rounds that blocks split, `sharing=4`"
            )));
        }
        let together = choice.cluster > 0 && choice.sharing != Sharing::Cluster;
        if let Some((name, _)) =
            [("ACROSS", choice.across), ("num_ctas", together)].into_iter().find(|(_, is)| *is && !product.may.cluster)
        {
            return Err(Unsupported(format!("`{name}={}`: blocks of this kernel load for themselves", way[name])));
        }
        // Kernels of several matrices know of none of these.
        let of_one = [
            ("EXCHANGED", choice.exchanged),
            ("ACROSS", choice.across),
            ("num_ctas", choice.cluster > 0),
            ("sharing", matches!(choice.sharing, Sharing::Rounds | Sharing::Cluster)),
        ];
        match of_one.into_iter().find(|(_, is_chosen)| *is_chosen && product.sizes[0] > 1) {
            Some((name, _)) => Err(Unsupported(format!("`{name}={}`: for one matrix alone", way[name]))),
            None => Ok(choice),
        }
    }

    /// The choice by [`NAMES`].
    pub(super) fn way(&self) -> Way {
        let [rows, columns, depth] = self.tile.map(|extent| extent as i64);
        let [copy_a, copy_b] = self.copied.map(i64::from);
        let sharing = i64::from(self.sharing.number());
        let (exchanged, across) = (i64::from(self.exchanged), i64::from(self.across));
        let [cluster, clusters, warps] = [self.cluster, self.clusters, self.warps].map(i64::from);
        let numbers = [rows, columns, depth, exchanged, across, copy_a, copy_b, cluster, clusters, sharing, warps];
        NAMES.into_iter().map(str::to_string).zip(numbers).collect()
    }
}

#[cfg(test)]
mod tests;
