//! How a 2:4 product is cut into blocks: by tiles, whose factors warpgroups' copy engine brings where there is one; else by warps of per-thread code.
//!
//! Tiles are taken from the arrays as they lie where the copy engine takes their lines, else from copies with whole lines. A round of a block takes as
//! long as its instructions read shared memory, which they do at 128 bytes a clock, or as its factors come, at 64: the tensor cores would multiply faster
//! than either. Warps multiply copies of whole blocks and rounds.

use tessera_runtime::Sharing;
use tessera_types::{Arch, DType};

use super::rows;
use super::sparse24::{WORD, by_tiles};
use crate::operator::{Argument, Fill, LaunchSpec, Machine, PossibleWay, Role, TensorSpec, Unsupported, Way};

/// The arrays of a product, by position: its arguments, and copies behind them.
const ARRAYS: [&str; 4] = ["values", "places", "B", "C"];
/// The names of choices, by those of the kernel's constants and of the compiler's.
pub(super) const NAMES: [&str; 5] = ["TM", "TN", "TK", "num_ctas", "sharing"];

/// Rows and columns of tiles.
const TILES: [[u64; 2]; 10] =
    [[128, 256], [256, 192], [192, 192], [256, 128], [128, 192], [128, 128], [64, 256], [64, 128], [64, 64], [64, 16]];
/// The contraction of a round: that of two instructions, whose places one register of a thread holds, and twice as much.
const DEPTHS: [u64; 2] = [64, 128];
/// Rows of a warpgroup's instruction, and the contraction of one.
const GROUP_ROWS: u64 = 64;
const INSTRUCTION: u64 = 32;
/// Bytes that an instruction reads of shared memory in a clock, and that come to a multiprocessor in one.
const SHARED: f64 = 128.0;
const COMES: f64 = 64.0;
/// Clocks beside rounds: until a block's first factors come, and for each element that a tile stores.
const START: f64 = 1500.0;
const STORED: f64 = 1.0 / 32.0;
/// Bytes of slots that a block has, of which it wants two at least.
const SLOTS: u64 = 200 << 10;
/// Bytes that the copy engine wants lines to be multiples of.
const VECTOR: u64 = 16;
/// Columns of copies of the right factor are a multiple of this.
const LINE: u64 = 64;

/// How tiles cut a product.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Choice {
    /// Rows, columns, contraction.
    tile: [u64; 3],
    /// Blocks of a cluster, one below the other, that load tiles of the right factor together; 0 where each loads for itself.
    cluster: u32,
    sharing: Sharing,
}

impl Choice {
    /// The choice that should take least.
    pub(super) fn of(sizes: [u64; 3], machine: Machine) -> Choice {
        match machine {
            Machine::Cpu => {
                let [m, n, _] = sizes;
                let tile = [m.next_power_of_two().min(128), n.next_power_of_two().min(256), DEPTHS[0]];
                Choice { tile, cluster: 0, sharing: Sharing::Nothing }
            }
            Machine::Gpu(arch) => Choice::each(sizes, arch)[0].1,
        }
    }

    /// Those of a GPU with products of warpgroups, by what they should take.
    fn each(sizes @ [m, _, _]: [u64; 3], arch: Arch) -> Vec<(f64, Choice)> {
        let mut found = Vec::new();
        for ([rows, columns], depth) in TILES.into_iter().flat_map(|tile| DEPTHS.map(|depth| (tile, depth))) {
            if 2 * (rows * depth + 2 * depth * columns) > SLOTS {
                continue;
            }
            let neighbours = m.div_ceil(rows).is_multiple_of(2);
            for cluster in [2, 0].into_iter().filter(|&cluster| cluster == 0 || neighbours) {
                for sharing in [Sharing::Nothing, Sharing::Blocks] {
                    let choice = Choice { tile: [rows, columns, depth], cluster, sharing };
                    found.push((choice.clocks(sizes, arch), choice));
                }
            }
        }
        // A stable order: of equal ones the first stands first.
        found.sort_by(|a, b| a.0.total_cmp(&b.0));
        found
    }

    /// Clocks that all blocks should take.
    fn clocks(&self, [m, n, k]: [u64; 3], arch: Arch) -> f64 {
        let [rows, columns, depth] = self.tile;
        let read = (rows / GROUP_ROWS * (depth / INSTRUCTION) * INSTRUCTION * (2 * columns + GROUP_ROWS)) as f64 / SHARED;
        // What neighbours bring comes to each of them all the same, and is asked for once.
        let alone = if self.cluster == 0 { 1.25 } else { 1.0 };
        let comes = (depth * (rows + 2 * columns)) as f64 / COMES * alone;
        let tile = k.div_ceil(depth) as f64 * read.max(comes) + STORED * (rows * columns) as f64;
        let tiles = m.div_ceil(rows) * n.div_ceil(columns);
        let rounds = tiles.div_ceil(u64::from(arch.multiprocessors())) as f64;
        // A block that stays brings the next tile's factors while it stores.
        let starts = if self.sharing == Sharing::Blocks { 1.0 } else { rounds };
        rounds * tile + starts * START
    }

    /// What [`Choice::way`] gives.
    ///
    /// # Errors
    /// Where a name is missing, or is none of a product's.
    pub(super) fn of_way(way: &Way) -> Result<Choice, Unsupported> {
        if let Some(name) = way.keys().find(|name| !NAMES.contains(&name.as_str())) {
            return Err(Unsupported(format!("`{name}` is no choice of a 2:4 product, which has {}", NAMES.join(", "))));
        }
        let number = |name: &str, least: i64, most: i64| match way.get(name) {
            Some(number) if (least..=most).contains(number) => Ok(*number),
            Some(number) => Err(Unsupported(format!("`{name}={number}`: from {least} to {most}"))),
            None => Err(Unsupported(format!("a 2:4 product wants `{name}` chosen, too"))),
        };
        let extent = |name| number(name, 1, 1024).map(|extent| extent as u64);
        let choice = Choice {
            tile: [extent("TM")?, extent("TN")?, extent("TK")?],
            cluster: number("num_ctas", 0, 16)? as u32,
            sharing: Sharing::ALL[number("sharing", 0, Sharing::Turns.number().into())? as usize],
        };
        if !choice.tile[2].is_multiple_of(INSTRUCTION) {
            return Err(Unsupported(format!("`TK={}`: a multiple of {INSTRUCTION}, whose places a word says", choice.tile[2])));
        }
        Ok(choice)
    }

    /// The choice by [`NAMES`].
    fn way(&self) -> Way {
        let [rows, columns, depth] = self.tile.map(|extent| extent as i64);
        let numbers = [rows, columns, depth, self.cluster.into(), self.sharing.number().into()];
        NAMES.into_iter().map(str::to_string).zip(numbers).collect()
    }
}

/// The ways to cut a product by tiles, the one that is taken first; none where warps multiply.
pub(super) fn ways(sizes: [u64; 3], machine: Machine) -> Vec<PossibleWay> {
    match machine {
        Machine::Gpu(arch) if arch.has_wgmma() => {
            Choice::each(sizes, arch).into_iter().map(|(clocks, choice)| PossibleWay { way: choice.way(), clocks }).collect()
        }
        Machine::Gpu(_) | Machine::Cpu => Vec::new(),
    }
}

/// Whether tiles are multiplied rather than fragments of warps.
pub(super) fn takes_tiles(machine: Machine) -> bool {
    match machine {
        Machine::Cpu => true,
        Machine::Gpu(arch) => arch.has_wgmma(),
    }
}

/// The launches of a product by tiles; copies of its factors go behind its arrays.
pub(super) fn tiled(
    tensors: &mut Vec<TensorSpec>,
    sizes @ [m, n, k]: [u64; 3],
    choice: Choice,
    machine: Machine,
) -> Result<Vec<LaunchSpec>, Unsupported> {
    let Choice { tile: [rows, columns, depth], cluster, sharing } = choice;
    // A line of values has a byte for each column of the factor.
    let comes = k.is_multiple_of(VECTOR) && (2 * n).is_multiple_of(VECTOR);
    let is_copied = matches!(machine, Machine::Gpu(_)) && !comes;
    let mut launches = Vec::new();
    let whole = [m.next_multiple_of(rows), n.next_multiple_of(LINE), k.next_multiple_of(depth)];
    if is_copied {
        launches = copies(tensors, whole, machine)?;
    }
    let first = if is_copied { ARRAYS.len() } else { 0 };
    let ragged = !is_copied && [whole[0], whole[2]] != [sizes[0], sizes[2]];
    let mut arguments: Vec<_> = (0..3).map(|at| (ARRAYS[at], Argument::Tensor(first + at))).collect();
    arguments.extend([("C", Argument::Tensor(3)), ("K", Argument::Int(k as i64)), ("RAGGED", Argument::Bool(ragged))]);
    arguments.extend([("TM", rows), ("TN", columns), ("TK", depth)].map(|(name, extent)| (name, Argument::Int(extent as i64))));
    let [down, ..] = rows::grid(m as usize, rows as usize)?;
    let [across, ..] = rows::grid(n as usize, columns as usize)?;
    launches.push(LaunchSpec { cluster, sharing, ..LaunchSpec::new("tiles", arguments, [down, across, 1]) });
    Ok(launches)
}

/// Rows and columns of C that a block of four warps makes, and products of a round, as the kernel says.
const ROWS: u64 = 128;
const COLUMNS: u64 = 128;
const STEPS: u64 = 64;

/// The launches of a product by warps, of copies in whole blocks and rounds.
pub(super) fn by_warps(
    tensors: &mut Vec<TensorSpec>,
    [m, n, k]: [u64; 3],
    machine: Machine,
) -> Result<Vec<LaunchSpec>, Unsupported> {
    let whole = [m.next_multiple_of(ROWS), n.next_multiple_of(COLUMNS), k.next_multiple_of(STEPS)];
    let mut launches = copies(tensors, whole, machine)?;
    let arguments = [(ARRAYS[0], 4), (ARRAYS[1], 5), (ARRAYS[2], 6), (ARRAYS[3], 3)];
    let arguments = arguments.map(|(name, at)| (name, Argument::Tensor(at))).into();
    let ([across, ..], [down, ..]) = (rows::grid(n as usize, COLUMNS as usize)?, rows::grid(m as usize, ROWS as usize)?);
    launches.push(LaunchSpec::new("product", arguments, [across, down, 1]));
    Ok(launches)
}

/// Copies of the factors with so many rows, columns and steps, and the launches that make them.
fn copies(
    tensors: &mut Vec<TensorSpec>,
    [height, width, depth]: [u64; 3],
    machine: Machine,
) -> Result<Vec<LaunchSpec>, Unsupported> {
    let storage = tensors[0].dtype;
    let lines = |name, dtype, shape: [u64; 2]| TensorSpec::new(name, dtype, shape.map(|extent| extent as usize), Role::Workspace);
    tensors.extend([
        lines("values_lines", storage, [height, depth / 2]),
        TensorSpec { fill: Fill::Places, ..lines("places_lines", DType::I32, [height, depth / WORD]) },
        lines("B_lines", storage, [depth, width]),
    ]);
    let mut launches = Vec::new();
    for (kernel, from, to) in [("copy", 0, 4), ("copy_places", 1, 5), ("copy", 2, 6)] {
        let arguments = vec![("x", Argument::Tensor(from)), ("y", Argument::Tensor(to))];
        let shape = [tensors[to].shape[0], tensors[to].shape[1]];
        launches.push(by_tiles(kernel, arguments, shape, 2, machine)?);
    }
    Ok(launches)
}
