//! Gradients of the norms: of `x`, and of what is common to all rows, whose gradients are sums over rows. Problems and numbers are the norms'.
//! Behind a residual, `x` is the sum that the forward pass has stored: its own cotangent is added to the norm's, and what comes of that is the gradient
//! of both arrays that were added.
//!
//! What is saved of the forward pass is nothing: a block that has a row and its cotangents knows the row's statistics for the price of two more
//! reductions, where reading them would save no pass over `x`. Two ways to divide the work (`n` elements of a row):
//!
//! | | launches | sums over rows |
//! |---|---|---|
//! | registers hold a row, its cotangents and its sums | 2 | of a block's rows in registers; then of blocks |
//! | longer rows | 3 | of columns that are read once more, beside each row's statistics; then of blocks |

use std::ops::Range;

use rayon::prelude::*;
use tessera_types::{Arch, DType, ErrorModel, Policy};

use crate::element::{storable, sum, underflow};
use crate::operator::{
    Argument, Expected, Fill, Inputs, KernelFile, LaunchSpec, Machine, Operator, OutputRows, Plan, Reference, Role, TensorSpec,
    Unsupported,
};
use crate::problem::Problem;
use crate::set::alike;
use crate::set::norm::{self, Centre};
use crate::set::rows;
use crate::signature::{Calls, Operand, Signature};
use crate::work::{Metric, Work, packed_bytes};

pub(crate) static RMS_NORM_BACKWARD: Operator = operator(Of { centre: Centre::Zero, added: false });
pub(crate) static LAYER_NORM_BACKWARD: Operator = operator(Of { centre: Centre::Mean, added: false });
pub(crate) static ADD_RMS_NORM_BACKWARD: Operator = operator(Of { centre: Centre::Zero, added: true });
pub(crate) static ADD_LAYER_NORM_BACKWARD: Operator = operator(Of { centre: Centre::Mean, added: true });

/// Which norm's gradient, and whether a residual was added before it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Of {
    centre: Centre,
    added: bool,
}

impl Of {
    const fn name(self) -> &'static str {
        match (self.centre, self.added) {
            (Centre::Mean, false) => "layer_norm_backward",
            (Centre::Zero, false) => "rms_norm_backward",
            (Centre::Mean, true) => "add_layer_norm_backward",
            (Centre::Zero, true) => "add_rms_norm_backward",
        }
    }

    /// The place of the first result: behind `x`, `weight`, `dy` and perhaps `dsum`.
    fn first_result(self) -> usize {
        if self.added { 4 } else { 3 }
    }
}

/// Sums over rows of what blocks leave, for other operators, too.
pub(crate) const FILE: KernelFile = KernelFile { name: "norm_backward.py", text: include_str!("../../kernels/norm_backward.py") };

const PRECISIONS: &[&str] = &["fp32", "fp16", "bf16"];

/// How an operator makes plans.
type Planning = fn(&Problem, Policy, Machine) -> Result<Plan, Unsupported>;

const fn operator(of: Of) -> Operator {
    const MEAN: Of = Of { centre: Centre::Mean, added: false };
    const ZERO: Of = Of { centre: Centre::Zero, added: false };
    const ADDED_MEAN: Of = Of { added: true, ..MEAN };
    const ADDED_ZERO: Of = Of { added: true, ..ZERO };
    const DBIAS: Operand = Operand("dbias", "hidden");
    let plan: Planning = match of {
        MEAN => |problem, policy, machine| self::plan(MEAN, problem, policy, machine),
        ZERO => |problem, policy, machine| self::plan(ZERO, problem, policy, machine),
        ADDED_MEAN => |problem, policy, machine| self::plan(ADDED_MEAN, problem, policy, machine),
        ADDED_ZERO => |problem, policy, machine| self::plan(ADDED_ZERO, problem, policy, machine),
    };
    let signature: fn(&str) -> Signature = match of {
        MEAN => |_| Signature::new(INPUTS, &[DX, DWEIGHT, DBIAS]).scalars(&["eps"]),
        ZERO => |_| Signature::new(INPUTS, &[DX, DWEIGHT]).scalars(&["eps"]),
        ADDED_MEAN => |_| Signature::new(ADDED_INPUTS, &[DX, DWEIGHT, DBIAS]).scalars(&["eps"]),
        ADDED_ZERO => |_| Signature::new(ADDED_INPUTS, &[DX, DWEIGHT]).scalars(&["eps"]),
    };
    Operator {
        name: of.name(),
        about: match of {
            MEAN => "gradient of layer normalisation: of x, weight and bias",
            ZERO => "gradient of RMS normalisation: of x and weight",
            ADDED_MEAN => "gradient of add_layer_norm: of x, which is the residual's too, weight and bias",
            ADDED_ZERO => "gradient of add_rms_norm: of x, which is the residual's too, and weight",
        },
        file: FILE.name,
        source: FILE.text,
        precisions: PRECISIONS,
        further_precisions: &["fp64"],
        suite: Vec::new,
        further_suite,
        quick: || norm::quick(PRECISIONS),
        edges: norm::edges,
        draw: norm::draw,
        calls: Calls {
            variants: &[""],
            default: Some(""),
            signature,
            problem: |sizes| Ok(norm::problem(1, sizes.get("rows"), sizes.get("hidden"))),
        },
        numbers: &[],
        plan,
        ways: None,
        gradient: None,
        no_specials: None,
        ladder: &[],
    }
}

/// Activations of language models: 16 to 256 MiB in 16 bits.
fn further_suite() -> Vec<Problem> {
    let sizes =
        [(32768, 768), (16384, 1024), (16384, 2048), (16384, 4096), (8192, 5120), (8192, 8192), (4096, 11008), (2048, 16384)];
    sizes.map(|(sequence, hidden)| norm::problem(1, sequence, hidden)).to_vec()
}

const INPUTS: &[Operand] = &[Operand("x", "..rows hidden"), Operand("weight", "hidden"), Operand("dy", "..rows hidden")];
/// `sum` is what the forward pass gave.
const ADDED_INPUTS: &[Operand] = &[
    Operand("sum", "..rows hidden"),
    Operand("weight", "hidden"),
    Operand("dsum", "..rows hidden"),
    Operand("dy", "..rows hidden"),
];
const DX: Operand = Operand("dx", "..rows hidden");
const DWEIGHT: Operand = Operand("dweight", "hidden");

/// How rows are divided among blocks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Division {
    /// Blocks take some tiles of rows, with the sums of these in registers.
    Held(Held),
    /// Rows are read in pieces, and columns once more.
    Columns,
}

/// Rows that a block has at once, in tiles of so many columns.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Held {
    rows: usize,
    columns: usize,
    /// Warps of a block, and blocks that a multiprocessor shall hold; 0 leaves both to the compiler.
    warps: usize,
    resident: usize,
    /// The next rows are on their way meanwhile.
    ahead: bool,
    /// The weight stays in registers.
    weight: bool,
}

/// A block that can hold rows.
#[derive(Clone, Copy, Debug)]
struct Block {
    warps: usize,
    /// Elements of rows that each of its threads has at most.
    most: usize,
    /// Blocks that a multiprocessor holds of it.
    resident: usize,
    stays: Stays,
    /// Each row is a warp's: what crosses warps takes registers, too.
    alone: bool,
}

const fn block(warps: usize, most: usize, resident: usize, stays: Stays) -> Block {
    Block { warps, most, resident, stays, alone: false }
}

/// What stays in registers beside the rows and the sums.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stays {
    /// The weight, while the next rows are on their way.
    Both,
    /// The next rows: the weight is read from the cache again.
    Next,
    /// The weight: each rows are waited for.
    Weight,
}

/// Blocks of elements of 16 bits, in the order in which they are tried. Few threads with many elements are fastest: sums cross fewer warps, and 255 registers
/// hold what 128 would have to make again (layer norm's of 16384 x 4096 by four warps 108 us, by eight 124).
const NARROW_BLOCKS: &[Block] = &[
    block(4, 24, 4, Stays::Both),
    block(4, 32, 3, Stays::Both),
    block(4, 40, 2, Stays::Both),
    block(8, 32, 2, Stays::Both),
    block(16, 32, 1, Stays::Both),
];
const NARROW_CENTRED_BLOCKS: &[Block] = &[
    Block { alone: true, ..block(4, 24, 3, Stays::Both) },
    block(4, 32, 2, Stays::Both),
    block(8, 32, 1, Stays::Both),
    block(8, 44, 1, Stays::Next),
    block(16, 32, 1, Stays::Weight),
];
/// The same of elements of 32 bits.
const WIDE_BLOCKS: &[Block] =
    &[block(4, 16, 3, Stays::Both), block(4, 32, 2, Stays::Both), block(8, 32, 1, Stays::Both), block(16, 20, 1, Stays::Weight)];
const WIDE_CENTRED_BLOCKS: &[Block] =
    &[block(4, 16, 3, Stays::Both), block(8, 24, 1, Stays::Both), block(16, 16, 1, Stays::Weight)];

/// Elements of the rows of a block of four warps, for each thread, where one row has fewer: of 16 bits, of 32.
const SHORT: [usize; 2] = [32, 16];
/// Columns of a tile at least, where a row has so many, and tiles of such a row at most: in more each thread has few elements of each.
const FEWEST: usize = 32;
const MOST_TILES: usize = 4;
/// Columns of a tile that a warp has alone: a vector a lane.
const WARP_COLUMNS: usize = 256;
/// Columns that may lie beyond a row's end: a part in so many.
const BEYOND: usize = 7;

/// Elements of an accumulator of 64 bits, of which a number takes two registers, and what is computed of them some more: those of a tile, and the most of
/// one row.
const TILE: usize = 4096;
const HELD: usize = 8192;
/// Elements of a piece of a row that is read in pieces.
const CHUNK: usize = 4096;
/// A tile of columns: lines of 128 bytes in 16 bits.
const COLUMN_TILE: (usize, usize) = (32, 64);
/// Parts of sums of a tile that is added up, and columns of a block that does.
const PARTS: usize = 64;
const PART_COLUMNS: usize = 16;

/// Blocks that have a whole row which is no whole vectors in one tile, which then lies as the compiler finds best.
const ALIKE_BLOCKS: &[alike::Block] = &[alike::Block::new(4, 24, 3, true), alike::Block::new(4, 40, 2, true)];
const ALIKE_CENTRED_BLOCKS: &[alike::Block] = &[alike::Block::new(4, 40, 2, true)];
/// The shortest of these rows: several shorter ones are taken at a time.
const ALIKE_SHORTEST: usize = 2048;
const ALIKE_CENTRED_SHORTEST: usize = 3072;

/// The widest of some tiles whose last one reaches little beyond a row, or the one that reaches least beyond it.
fn columns(n: usize, widths: impl Iterator<Item = usize> + Clone) -> Option<usize> {
    let beyond = |width: &usize| n.next_multiple_of(*width) - n;
    widths.clone().find(|width| beyond(width) * BEYOND <= n).or_else(|| widths.min_by_key(beyond))
}

impl Division {
    fn of(of: Of, n: usize, storage: DType, acc: DType, machine: Machine) -> Division {
        let width = n.next_power_of_two();
        let alone = |rows, ahead, weight| Division::Held(Held { rows, columns: n, warps: 0, resident: 0, ahead, weight });
        let weight = n <= TILE;
        match machine {
            Machine::Cpu if n <= 1 << 16 => alone((TILE / width).clamp(1, 16), false, weight),
            Machine::Cpu => Division::Columns,
            Machine::Gpu(arch) if acc.bits() == 32 => Held::of(of, n, storage, arch).map_or(Division::Columns, Division::Held),
            Machine::Gpu(_) => match 4 * width {
                words if words <= TILE => alone((TILE / (2 * words)).clamp(1, 64), true, weight),
                words if words <= HELD => alone(1, false, weight),
                _ => Division::Columns,
            },
        }
    }
}

impl Held {
    /// A row of elements of 16 bits that is no whole vectors, as one tile.
    fn alike(of: Of, n: usize, storage: DType) -> Option<Held> {
        let (blocks, shortest) = match of.centre {
            Centre::Zero => (ALIKE_BLOCKS, ALIKE_SHORTEST),
            Centre::Mean => (ALIKE_CENTRED_BLOCKS, ALIKE_CENTRED_SHORTEST),
        };
        let alike::Block { warps, resident, ahead, .. } = alike::Block::of(blocks, n, storage).filter(|_| n >= shortest)?;
        Some(Held { rows: 1, columns: n, warps, resident, ahead, weight: true })
    }

    /// Rows of `n` elements that are added up in 32 bits; none where no block holds one.
    fn of(of: Of, n: usize, storage: DType, arch: Arch) -> Option<Held> {
        if let Some(alike) = Held::alike(of, n, storage) {
            return Some(alike);
        }
        let limits = arch.limits();
        let narrow = storage.bits() <= 16;
        let (blocks, short) = match (of.centre, narrow) {
            (Centre::Zero, true) => (NARROW_BLOCKS, SHORT[0]),
            (Centre::Mean, true) => (NARROW_CENTRED_BLOCKS, SHORT[0]),
            (Centre::Zero, false) => (WIDE_BLOCKS, SHORT[1]),
            (Centre::Mean, false) => (WIDE_CENTRED_BLOCKS, SHORT[1]),
        };
        // A thread's vector is 16 bytes of what is loaded, or of what is computed.
        let vectors = |warps: usize| [8, 4].into_iter().skip(usize::from(!narrow)).map(move |vector| 32 * warps * vector);
        // Elements that lie anywhere are moved one by one, each through a register of its own; and what is added is there beside a row.
        let more = of.added || rows::is_odd(n, storage);
        let whole = 32 * blocks[0].warps * short;
        let few = (2 * n <= whole).then(|| {
            let widest = (n.next_power_of_two() / 2).max(FEWEST).min(vectors(4).max().unwrap_or(FEWEST));
            let narrower = (0..).map(move |halved| widest >> halved);
            columns(n, narrower.take_while(|&width| width >= FEWEST.max(n / MOST_TILES)))
        });
        blocks.iter().find_map(|&Block { warps, most, resident, stays, alone }| {
            let threads = 32 * warps;
            let columns = match few {
                Some(few) => few?,
                None => columns(n, vectors(warps).filter(|&width| n.next_multiple_of(width) <= threads * most))?,
            };
            if alone && columns > WARP_COLUMNS {
                return None;
            }
            let row = n.next_multiple_of(columns);
            let rows = if few.is_some() { (1 << (whole / row).max(1).ilog2()).min(64) } else { 1 };
            // One block less has more registers, as long as a thread can have more.
            let most_registers = resident * threads * limits.registers_per_thread as usize;
            let fewer = usize::from(more && resident > 1 && most_registers > limits.registers_per_sm as usize);
            let resident = resident - fewer;
            let (ahead, weight) = (stays != Stays::Weight, stays != Stays::Next);
            (rows * row <= threads * most).then_some(Held { rows, columns, warps, resident, ahead, weight })
        })
    }
}

/// Blocks that share rows: what a GPU has resident, or enough for the cores of a CPU.
fn blocks(machine: Machine, each: usize) -> usize {
    match machine {
        Machine::Cpu => 32,
        Machine::Gpu(arch) => each * arch.multiprocessors() as usize,
    }
}

fn plan(of: Of, problem: &Problem, policy: Policy, machine: Machine) -> Result<Plan, Unsupported> {
    let Of { centre, added } = of;
    let (storage, acc) = rows::storage(policy, of.name())?;
    let (count, n) = norm::extents(problem);
    let of_rows = |name, role| TensorSpec::new(name, storage, [count, n], role);
    let mut x = of_rows(if added { "sum" } else { "x" }, Role::Input);
    if centre == Centre::Mean {
        x.fill = Fill::Normal { mean: 1.0, sd: 1.0 };
    }
    let mut tensors = vec![x, TensorSpec::new("weight", storage, [n], Role::Input), of_rows("dy", Role::Input)];
    tensors.extend(added.then(|| of_rows("dsum", Role::Input)));
    let first = of.first_result();
    tensors.push(of_rows("dx", Role::Output));
    tensors.push(TensorSpec::new("dweight", storage, [n], Role::Output));
    if centre == Centre::Mean {
        tensors.push(TensorSpec::new("dbias", storage, [n], Role::Output));
    }
    let common = tensors.len() - first - 1;
    let mut outputs = vec![OutputRows { tensor: first, rows: count, row_len: n, exact: false }];
    outputs.extend((first + 1..tensors.len()).map(|tensor| OutputRows { tensor, rows: 1, row_len: n, exact: false }));
    let launches = launches(of, [count, n], (storage, acc), machine, &mut tensors)?;
    let elements = (count * n) as u64;
    let (read, formula) = match added {
        true => (3, "sum, dsum, dy and weight read once, dx and sums over rows written once"),
        false => (2, "x, dy and weight read once, dx and sums over rows written once"),
    };
    Ok(Plan {
        outputs,
        tensors,
        launches,
        work: Work {
            read_bytes: packed_bytes(storage, read * elements + n as u64),
            write_bytes: packed_bytes(storage, elements + (common * n) as u64),
            flops: (if centre == Centre::Mean { 16 } else { 11 } + u64::from(added)) * elements,
            compute: None,
            metric: Metric::Bandwidth,
            formula,
        },
        exact_lane: false,
        reference: Box::new(Gradients { centre, along: added.then_some(3), count, n, out: storage, acc }),
    })
}

/// The launches, and what they have in memory between them.
fn launches(
    of: Of,
    [count, n]: [usize; 2],
    (storage, acc): (DType, DType),
    machine: Machine,
    tensors: &mut Vec<TensorSpec>,
) -> Result<Vec<LaunchSpec>, Unsupported> {
    let Of { centre, added } = of;
    let int = |name, value: usize| (name, Argument::Int(value as i64));
    // What is normalised is called `sum` behind a residual.
    let x = ("x", Argument::Tensor(0));
    let cotangents: &[_] = if added { &["weight", "dy", "dsum"] } else { &["weight", "dy"] };
    let of_acc = ("ACC", Argument::Type(acc));
    let eps = ("eps", Argument::Float(norm::eps(acc)));
    let (sums, results): (&[_], &[_]) = match centre {
        Centre::Mean => (&["dweights", "dbiases"], &["dweight", "dbias"]),
        Centre::Zero => (&["dweights"], &["dweight"]),
    };
    let mut launches = Vec::new();
    match Division::of(of, n, storage, acc, machine) {
        Division::Held(Held { rows, columns, warps, resident, ahead, weight }) => {
            // Where the compiler chooses, two blocks of a multiprocessor have the registers.
            let blocks = blocks(machine, if resident == 0 { 2 } else { resident });
            // Rows that are no whole vectors begin alike, if they are as many apart.
            let step = if rows::is_odd(n, storage) { alike::apart(blocks, storage) } else { blocks };
            let parts = count.div_ceil(rows).clamp(1, step);
            tensors.extend(sums.iter().map(|name| TensorSpec::new(name, acc, [parts, n], Role::Workspace)));
            let mut arguments = rows::arrays(tensors, cotangents);
            arguments.push(x);
            arguments.extend(rows::arrays(tensors, sums));
            arguments.extend(rows::arrays(tensors, &["dx"]));
            arguments.extend([eps, of_acc, int("ROWS", rows), int("STEP", step), int("COLUMNS", columns), int("N", n)]);
            arguments.extend([("AHEAD", Argument::Bool(ahead)), ("HELD", Argument::Bool(weight))]);
            let launch = LaunchSpec::new(of.name(), arguments, rows::grid(parts, 1)?);
            launches.push(LaunchSpec { warps: warps as u32, resident: resident as u32, ..launch });
        }
        Division::Columns => {
            let (rows, columns) = COLUMN_TILE;
            let (tiles, across) = (count.div_ceil(rows), n.div_ceil(columns));
            let per_block = tiles.div_ceil(blocks(machine, 8).div_ceil(across)).max(1);
            let parts = tiles.div_ceil(per_block).max(1);
            tensors.extend(["centres", "scales"].map(|name| TensorSpec::new(name, acc, [count, 1], Role::Workspace)));
            tensors.extend(sums.iter().map(|name| TensorSpec::new(name, acc, [parts, n], Role::Workspace)));
            let mut arguments = rows::arrays(tensors, &["centres", "scales", "dx"]);
            arguments.extend(rows::arrays(tensors, cotangents));
            arguments.extend([
                x,
                eps,
                ("CENTRED", Argument::Bool(centre == Centre::Mean)),
                of_acc,
                int("CHUNK", CHUNK),
                int("N", n),
            ]);
            if count > 0 {
                let kernel = if added { "add_norm_backward_rows" } else { "norm_backward_rows" };
                launches.push(LaunchSpec::new(kernel, arguments, rows::grid(count, 1)?));
            }
            let mut arguments = rows::arrays(tensors, &["dy", "centres", "scales"]);
            arguments.push(x);
            arguments.extend(rows::arrays(tensors, sums));
            arguments.extend([of_acc, int("ROWS", rows), int("TILES", per_block), int("COLUMNS", columns)]);
            let kernel = if centre == Centre::Mean { "layer_norm_backward_columns" } else { "rms_norm_backward_columns" };
            let [across, ..] = rows::grid(across, 1)?;
            launches.push(LaunchSpec::new(kernel, arguments, [across, parts as u32, 1]));
        }
    }
    let mut arguments = rows::arrays(tensors, sums);
    arguments.extend(rows::arrays(tensors, results));
    launches.push(sums_of_parts(arguments, n)?);
    Ok(launches)
}

/// Adds up what blocks have left of one array's columns, or of two arrays'.
pub(crate) fn sums_of_parts(mut arguments: Vec<(&'static str, Argument)>, n: usize) -> Result<LaunchSpec, Unsupported> {
    let arrays = arguments.len() as u32 / 2;
    let int = |name, value: usize| (name, Argument::Int(value as i64));
    arguments.extend([int("PARTS", PARTS), int("COLUMNS", PART_COLUMNS)]);
    let kernel = if arrays == 2 { "layer_norm_sums" } else { "rms_norm_sums" };
    let [across, ..] = rows::grid(n, PART_COLUMNS)?;
    Ok(LaunchSpec::new(kernel, arguments, [across, arrays, 1]))
}

struct Gradients {
    centre: Centre,
    /// The place of a cotangent that is added to the gradient of rows.
    along: Option<usize>,
    count: usize,
    n: usize,
    out: DType,
    acc: DType,
}

/// What is known of a row.
struct Row {
    /// Normalised elements, and the largest error of each.
    h: Vec<f64>,
    h_error: Vec<f64>,
    scale: f64,
}

/// Sums over some rows: of terms, of their magnitudes, and of the errors that they bring along.
#[derive(Clone)]
struct Sums {
    want: Vec<f64>,
    magnitude: Vec<f64>,
    error: Vec<f64>,
}

/// Rows whose terms are summed up before those of others are added.
const PIECE: usize = 64;

impl Gradients {
    fn model(&self) -> ErrorModel {
        ErrorModel { floor: underflow(self.out), ..ErrorModel::nearest(self.out, self.acc) }
    }

    /// A row's normalised elements. Their errors are those of a norm without weight: `u (8 sqrt(n) |h| + 8 shift)`, where what the mean loses
    /// has its part, too.
    fn row(&self, inputs: &dyn Inputs, row: usize) -> Row {
        let n = self.n;
        let mut h = vec![0.0; n];
        inputs.numbers(0, row * n, &mut h);
        let mean = match self.centre {
            Centre::Mean => sum(h.iter().copied()) / n as f64,
            Centre::Zero => 0.0,
        };
        let scale = 1.0 / (sum(h.iter().map(|x| (x - mean) * (x - mean))) / n as f64 + norm::eps(self.acc)).sqrt();
        let u = self.model().u_acc;
        let shift = if self.centre == Centre::Mean { 8.0 * u * (1.0 + mean.abs() * scale) } else { 0.0 };
        h.iter_mut().for_each(|x| *x = (*x - mean) * scale);
        let h_error = h.iter().map(|h| 8.0 * u * (n as f64).sqrt() * h.abs() + shift).collect();
        Row { h, h_error, scale }
    }

    /// The gradient of a row of `x`. With `g = dy w`: `scale (g - mean(g) - h mean(g h))`; each mean loses what its summation and its terms do.
    fn of_row(&self, inputs: &dyn Inputs, weight: &[f64], row: usize, want: &mut [f64], bound: &mut [f64]) {
        let (n, model) = (self.n as f64, self.model());
        let u = model.u_acc;
        let Row { h, h_error, scale } = self.row(inputs, row);
        inputs.numbers(2, row * self.n, want);
        want.iter_mut().zip(weight).for_each(|(dy, weight)| *dy *= weight);
        let along = sum(want.iter().zip(&h).map(|(g, h)| g * h)) / n;
        let carried: f64 = want.iter().zip(&h_error).map(|(g, error)| g.abs() * error).sum::<f64>() / n;
        let magnitude: f64 = want.iter().zip(&h).map(|(g, h)| (g * h).abs()).sum::<f64>() / n;
        let along_error = 4.0 * u * n.sqrt() * magnitude + carried;
        let (mean, mean_error) = match self.centre {
            Centre::Mean => {
                let magnitude = want.iter().map(|g| g.abs()).sum::<f64>() / n;
                (sum(want.iter().copied()) / n, 4.0 * u * n.sqrt() * magnitude)
            }
            Centre::Zero => (0.0, 0.0),
        };
        let mut added = vec![0.0; self.n];
        if let Some(along) = self.along {
            inputs.numbers(along, row * self.n, &mut added);
        }
        for (j, (want, bound)) in want.iter_mut().zip(bound).enumerate() {
            let g = *want;
            let of_norm = scale * (g - mean - h[j] * along);
            let exact = of_norm + added[j];
            let terms = g.abs() + mean.abs() + (h[j] * along).abs();
            let lost = mean_error + h[j].abs() * along_error + h_error[j] * along.abs() + 4.0 * u * terms;
            *bound = model.u_out * exact.abs()
                + scale * lost
                + 8.0 * u * n.sqrt() * of_norm.abs()
                + 2.0 * u * added[j].abs()
                + model.floor;
            *want = storable(self.out, exact);
        }
    }

    /// The sums over all rows that are the gradient of what is common to them.
    fn sums(&self, inputs: &dyn Inputs, of_weight: bool) -> Sums {
        let zeros = Sums { want: vec![0.0; self.n], magnitude: vec![0.0; self.n], error: vec![0.0; self.n] };
        let of_piece = |piece: usize| {
            let mut sums = zeros.clone();
            let mut dy = vec![0.0; self.n];
            for row in piece * PIECE..self.count.min((piece + 1) * PIECE) {
                inputs.numbers(2, row * self.n, &mut dy);
                let known = of_weight.then(|| self.row(inputs, row));
                for (j, dy) in dy.iter().enumerate() {
                    let (h, error) = known.as_ref().map_or((1.0, 0.0), |row| (row.h[j], row.h_error[j]));
                    sums.want[j] += dy * h;
                    sums.magnitude[j] += (dy * h).abs();
                    sums.error[j] += dy.abs() * error;
                }
            }
            sums
        };
        let pieces: Vec<Sums> = (0..self.count.div_ceil(PIECE)).into_par_iter().map(of_piece).collect();
        let whole = |of: fn(&Sums) -> &Vec<f64>, j: usize| sum(pieces.iter().map(|piece| of(piece)[j]));
        let all = |of: fn(&Sums) -> &Vec<f64>| (0..self.n).map(|j| whole(of, j)).collect();
        Sums { want: all(|sums| &sums.want), magnitude: all(|sums| &sums.magnitude), error: all(|sums| &sums.error) }
    }
}

impl Reference for Gradients {
    fn rows(&self, inputs: &dyn Inputs, output: usize, rows: Range<usize>, expected: Expected<'_>) {
        let Expected::Bounded { want, bound } = expected else { return };
        if output == 0 {
            let mut weight = vec![0.0; self.n];
            inputs.numbers(1, 0, &mut weight);
            let chunks = want.par_chunks_mut(self.n).zip(bound.par_chunks_mut(self.n)).enumerate();
            return chunks.for_each(|(r, (want, bound))| self.of_row(inputs, &weight, rows.start + r, want, bound));
        }
        let model = self.model();
        let Sums { want: exact, magnitude, error } = self.sums(inputs, output == 1);
        for j in 0..self.n {
            // Products are rounded before they are added up, or not.
            bound[j] = model.contraction(exact[j], magnitude[j], self.count) + 2.0 * model.u_acc * magnitude[j] + error[j];
            want[j] = storable(self.out, exact[j]);
        }
    }
}
