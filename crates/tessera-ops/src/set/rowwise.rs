//! Operators each of whose result rows comes from the same row of all inputs: what they say beside their kernels and their mathematics.
//!
//! | array | width | holds |
//! |---|---|---|
//! | logits | a row of `n` elements | the precision's storage |
//! | losses | one element | the type of sums |
//! | labels | one element | `i32` |
//! | the `k` largest | `k` elements | the precision's storage |

use std::ops::Range;

use rayon::prelude::*;
use tessera_types::{DType, ErrorModel, Policy};

use crate::draw::Draw;
use crate::element::{storable, underflow, wrap};
use crate::operator::{
    Argument, Expected, Fill, Inputs, LaunchSpec, Machine, OutputRows, Plan, Reference, Role, TensorSpec, Unsupported,
};
use crate::problem::Problem;
use crate::set::rows::{self, Division};
use crate::work::{Metric, Work, packed_bytes};

/// Elements of an array for each row.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Width {
    /// `n`.
    Row,
    /// One; the array has an axis less.
    One,
    /// `k`.
    Chosen,
}

/// What an array holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Of {
    Storage,
    Sums,
    Index,
}

/// An array of such an operator.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Array {
    pub(crate) name: &'static str,
    pub(crate) width: Width,
    pub(crate) of: Of,
}

/// An array with a row of its own for each row.
pub(crate) const fn row(name: &'static str) -> Array {
    Array { name, width: Width::Row, of: Of::Storage }
}

/// An array with a number for each row, of the type of sums.
pub(crate) const fn one(name: &'static str) -> Array {
    Array { name, width: Width::One, of: Of::Sums }
}

/// An array with an index for each row.
pub(crate) const fn index(name: &'static str) -> Array {
    Array { name, width: Width::One, of: Of::Index }
}

/// One row of an output, by its number, from the same row of each input: results, and the largest error of each.
type RowReference = fn(&Case, inputs: &[Vec<f64>], output: usize, want: &mut [f64], bound: &mut [f64]);

/// Constants of a tile of rows and columns, and the grid: a line of blocks, those of a row of tiles after one another.
type Tiles = ([(&'static str, Argument); 2], [u32; 3]);

/// What an operator over rows says of itself.
pub(crate) struct Rowwise {
    pub(crate) inputs: &'static [Array],
    pub(crate) outputs: &'static [Array],
    /// The launches; what they need in memory is put behind the plan's arrays.
    pub(crate) launches: fn(&Case, &mut Vec<TensorSpec>) -> Result<Vec<LaunchSpec>, Unsupported>,
    /// One row of one output, from the same row of the inputs: exact numbers, and the largest error of each.
    pub(crate) reference: RowReference,
    /// Operations for each element of a row.
    pub(crate) flops: u64,
    pub(crate) formula: &'static str,
}

/// One problem of such an operator.
#[derive(Clone, Debug)]
pub(crate) struct Case {
    pub(crate) rows: usize,
    pub(crate) n: usize,
    pub(crate) k: usize,
    /// Queries of a causal square, each of which sees keys up to its own.
    pub(crate) queries: Option<usize>,
    pub(crate) storage: DType,
    pub(crate) acc: DType,
    pub(crate) machine: Machine,
    pub(crate) variant: String,
}

impl Case {
    /// Of a problem whose extents are `rows`, `n` and perhaps `k`.
    pub(crate) fn of(name: &str, problem: &Problem, policy: Policy, machine: Machine) -> Result<Case, Unsupported> {
        let (storage, acc) = rows::storage(policy, name)?;
        let [rows, n, k] = ["rows", "n", "k"].map(|name| problem.get(name) as usize);
        if n > i32::MAX as usize / 2 || rows > i32::MAX as usize / 2 {
            return Err(Unsupported(format!("{name} counts rows and elements in 32 bits")));
        }
        Ok(Case { rows, n, k, queries: None, storage, acc, machine, variant: problem.variant.clone() })
    }

    fn dtype(&self, of: Of) -> DType {
        match of {
            Of::Storage => self.storage,
            Of::Sums => self.acc,
            Of::Index => DType::I32,
        }
    }

    fn width(&self, width: Width) -> usize {
        match width {
            Width::Row => self.n,
            Width::One => 1,
            Width::Chosen => self.k,
        }
    }

    /// The error model of a result that is stored as the inputs are.
    pub(crate) fn stored(&self) -> ErrorModel {
        ErrorModel { floor: underflow(self.storage), ..ErrorModel::nearest(self.storage, self.acc) }
    }

    /// How a sum of the row is off at most, as a share of its terms' magnitudes.
    pub(crate) fn adding(&self) -> f64 {
        4.0 * tessera_types::unit_roundoff(self.acc) * (self.n.max(1) as f64).sqrt()
    }

    /// The type of sums as kernels are told it.
    pub(crate) fn acc_argument(&self) -> (&'static str, Argument) {
        ("ACC", Argument::Type(self.acc))
    }

    /// Tiles of rows and columns for what is done element by element, and the grid.
    pub(crate) fn tiles(&self) -> Result<Tiles, Unsupported> {
        let elements = rows::elementwise_tile(self.rows * self.n, self.machine) * 32 / self.acc.bits() as usize;
        let columns = self.n.clamp(1, elements);
        let height = match self.machine {
            Machine::Cpu => (elements / columns).clamp(1, 64),
            Machine::Gpu(_) => 1 << (elements / columns).clamp(1, 64).ilog2(),
        };
        let (across, down) = (self.n.div_ceil(columns), self.rows.div_ceil(height));
        Ok(([int("ROWS", height), int("COLUMNS", columns)], rows::grid(across * down, 1)?))
    }
}

/// The launch of a kernel that takes tiles of rows and columns of the plan's arrays.
pub(crate) fn elementwise(
    case: &Case,
    tensors: &[TensorSpec],
    kernel: &'static str,
    scalars: &[(&'static str, Argument)],
) -> Result<Vec<LaunchSpec>, Unsupported> {
    let names: Vec<&'static str> = tensors.iter().map(|tensor| tensor.name).collect();
    let (tile, grid) = case.tiles()?;
    let mut arguments = rows::arrays(tensors, &names);
    arguments.extend(scalars);
    arguments.push(case.acc_argument());
    arguments.extend(tile);
    Ok(vec![LaunchSpec::new(kernel, arguments, grid)])
}

/// Elements of a row that a block takes whole, in numbers of 32 bits.
const WHOLE: usize = 8192;
/// Elements of a piece of a longer one that is read at once.
pub(crate) const PIECE: usize = 4096;
/// The most blocks that share a row.
const PARTS: usize = 256;

/// Kernels that reduce rows.
pub(crate) struct Kernels {
    /// The one for whole rows.
    pub(crate) whole: &'static str,
    /// The one for parts of longer ones.
    pub(crate) in_parts: &'static str,
    /// Elements of those that it reads at once.
    pub(crate) piece: usize,
    /// Elements of a row of no whole vectors that a thread takes, where it takes them in vectors.
    pub(crate) odd: Option<usize>,
}

/// The launch of a kernel that reduces whole rows, or of the one for parts of rows, some elements of which it reads at once: as many as there are blocks for all multiprocessors, each of
/// which leaves a number in each of the arrays `between`.
pub(crate) fn reduction(
    case: &Case,
    tensors: &mut Vec<TensorSpec>,
    kernels: Kernels,
    scalars: &[(&'static str, Argument)],
    between: &[(&'static str, Of)],
) -> Result<Vec<LaunchSpec>, Unsupported> {
    let names: Vec<&'static str> = tensors.iter().map(|tensor| tensor.name).collect();
    let mut arguments = rows::arrays(tensors, &names);
    arguments.extend(scalars);
    arguments.extend([case.acc_argument(), int("N", case.n)]);
    let of_bits = |elements: usize| elements * 32 / case.acc.bits() as usize;
    let chunk = of_bits(kernels.piece);
    let multiprocessors = match case.machine {
        Machine::Gpu(arch) => arch.multiprocessors() as usize,
        Machine::Cpu => 0,
    };
    // A tile of no elements is no tile, and a row of none has a result.
    if case.n > 0 && (multiprocessors == 0 || case.n <= of_bits(WHOLE)) {
        let division = match kernels.odd {
            Some(elements) => Division::reduced(elements, case.n, case.storage, case.machine),
            None => Division::whole(case.n, case.storage, case.machine),
        };
        arguments.extend(division.rows().map(|rows| int("ROWS", rows)));
        return Ok(vec![division.launch(kernels.whole, arguments, division.grid(case.rows)?)]);
    }
    let pieces = case.n.div_ceil(chunk).max(1);
    let wanted = (4 * multiprocessors).div_ceil(case.rows).clamp(1, PARTS);
    let tiles = pieces.div_ceil(wanted.min(pieces));
    let parts = pieces.div_ceil(tiles);
    tensors.extend(between.iter().map(|&(name, of)| TensorSpec::new(name, case.dtype(of), [case.rows, parts], Role::Workspace)));
    tensors.push(TensorSpec::new("arrived", DType::I32, [case.rows], Role::Counter));
    let names: Vec<&'static str> = between.iter().map(|(name, _)| *name).chain(["arrived"]).collect();
    arguments.extend(rows::arrays(tensors, &names));
    // Elements next to each other that a thread has: one, of narrow ones whose rows are no whole vectors.
    let vector = rows::VECTOR_BITS / case.storage.bits() as usize;
    let vector = if case.n.is_multiple_of(vector) || case.storage.bits() >= 32 { vector } else { 1 };
    arguments.extend([int("CHUNK", chunk), int("TILES", tiles), int("PARTS", parts), int("VECTOR", vector)]);
    let [down, ..] = rows::grid(case.rows, 1)?;
    Ok(vec![LaunchSpec::new(kernels.in_parts, arguments, [down, parts as u32, 1])])
}

/// An integer argument.
pub(crate) fn int(name: &'static str, value: usize) -> (&'static str, Argument) {
    (name, Argument::Int(value as i64))
}

/// The plan of an operator for a problem; arrays that are not read are told apart by their names.
pub(crate) fn plan(of: &'static Rowwise, case: Case, unread: &[&str]) -> Result<Plan, Unsupported> {
    let tensor = |array: &Array, role| {
        let shape = if array.width == Width::One { vec![case.rows] } else { vec![case.rows, case.width(array.width)] };
        let fill = match array.of {
            Of::Index => Fill::Integers { least: 0, greatest: case.n.saturating_sub(1) as i64 },
            Of::Storage | Of::Sums => Fill::NORMAL,
        };
        TensorSpec { fill, ..TensorSpec::new(array.name, case.dtype(array.of), shape, role) }
    };
    let inputs = of.inputs.iter().map(|array| tensor(array, Role::Input));
    let mut tensors: Vec<TensorSpec> = inputs.chain(of.outputs.iter().map(|array| tensor(array, Role::Output))).collect();
    let bytes = |array: &Array| packed_bytes(case.dtype(array.of), (case.rows * case.width(array.width)) as u64);
    let judged = of.outputs.iter().enumerate().map(|(at, array)| OutputRows {
        tensor: of.inputs.len() + at,
        rows: case.rows,
        row_len: case.width(array.width),
        exact: array.of == Of::Index,
    });
    let outputs = judged.collect();
    let launches = if case.rows == 0 { Vec::new() } else { (of.launches)(&case, &mut tensors)? };
    Ok(Plan {
        tensors,
        launches,
        outputs,
        work: Work {
            read_bytes: of.inputs.iter().filter(|array| !unread.contains(&array.name)).map(bytes).sum(),
            write_bytes: of.outputs.iter().map(bytes).sum(),
            flops: of.flops * (case.rows * case.n) as u64,
            compute: None,
            metric: Metric::Bandwidth,
            formula: of.formula,
        },
        exact_lane: false,
        reference: Box::new(ByRows { of, case }),
    })
}

struct ByRows {
    of: &'static Rowwise,
    case: Case,
}

impl ByRows {
    fn row(&self, inputs: &dyn Inputs, output: usize, row: usize, want: &mut [f64], bound: &mut [f64]) {
        let read = |(at, array): (usize, &Array)| {
            let width = self.case.width(array.width);
            let mut numbers = vec![0.0; width];
            inputs.numbers(at, row * width, &mut numbers);
            numbers
        };
        let mut given: Vec<Vec<f64>> = self.of.inputs.iter().enumerate().map(read).collect();
        let seen = self.case.queries.map(|queries| row % queries + self.case.n - queries + 1);
        if let Some(seen) = seen {
            given.iter_mut().filter(|numbers| numbers.len() == self.case.n).for_each(|numbers| numbers[seen..].fill(0.0));
        }
        (self.of.reference)(&self.case, &given, output, want, bound);
        if let Some(seen) = seen {
            // Whatever a row's sum is.
            want[seen..].fill(0.0);
            bound[seen..].fill(0.0);
        }
        let dtype = self.case.dtype(self.of.outputs[output].of);
        want.iter_mut().for_each(|want| *want = storable(dtype, *want));
    }
}

impl Reference for ByRows {
    fn rows(&self, inputs: &dyn Inputs, output: usize, rows: Range<usize>, expected: Expected<'_>) {
        let width = self.case.width(self.of.outputs[output].width);
        match expected {
            Expected::Bounded { want, bound } => {
                let chunks = want.par_chunks_mut(width).zip(bound.par_chunks_mut(width)).enumerate();
                chunks.for_each(|(r, (want, bound))| self.row(inputs, output, rows.start + r, want, bound));
            }
            Expected::Codes(codes) => codes.par_chunks_mut(width).enumerate().for_each(|(r, codes)| {
                let (mut want, mut bound) = (vec![0.0; width], vec![0.0; width]);
                self.row(inputs, output, rows.start + r, &mut want, &mut bound);
                codes.iter_mut().zip(want).for_each(|(code, want)| *code = wrap(DType::I32, want as i64));
            }),
        }
    }
}

/// Row lengths around powers of two and vector widths, and longer than registers hold.
pub(crate) fn edges(variants: &[&str]) -> Vec<Problem> {
    let short = [1, 2, 16, 31, 100, 997, 1000, 1023, 1025, 4100].map(|n| (7, n));
    let long = [16500, 33001, 66000, 131_200].map(|n| (2, n));
    let sizes = short.into_iter().chain(long).chain([(1, 1000), (300, 64)]);
    sizes.flat_map(|(rows, n)| variants.iter().map(move |variant| problem(rows, n, variant))).collect()
}

/// Rows of any length, those that no block holds among them.
pub(crate) fn draw(draw: &mut Draw<'_>, variants: &[&str]) -> Problem {
    let [rows, n] = draw.extents(draw.elements(), [4096, 1 << 18]);
    let variant = draw.one_of(variants);
    problem(rows, n, variant)
}

pub(crate) fn problem(rows: u64, n: u64, variant: &str) -> Problem {
    Problem::new(&[("rows", rows), ("n", n)], variant)
}

/// Activations of language models and rows of vocabularies: 16 to 512 MiB in 16 bits.
pub(crate) fn suite(variants: &[&str]) -> Vec<Problem> {
    let sizes =
        [(65536, 128), (65536, 1024), (16384, 4096), (8192, 8192), (4096, 32000), (2048, 50304), (2048, 128_256), (64, 262_144)];
    sizes.iter().flat_map(|&(rows, n)| variants.iter().map(move |variant| problem(rows, n, variant))).collect()
}
