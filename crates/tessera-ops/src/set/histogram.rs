//! Histograms: how many elements of an array lie in each bin. Integers have a bin a value from 0 on; floats have equal bins between two
//! bounds, of which the upper one belongs to the last bin. What lies outside is counted nowhere.

use std::ops::Range;
use std::sync::atomic::{AtomicU32, Ordering};

use rayon::prelude::*;
use tessera_types::{DType, Policy, Storage};

use crate::draw::Draw;
use crate::operator::{
    Argument, Expected, Fill, Inputs, LaunchSpec, Machine, Operator, OutputRows, Plan, Reference, Role, TensorSpec, Unsupported,
};
use crate::problem::Problem;
use crate::set::rows;
use crate::signature::{Calls, Operand, Signature};
use crate::work::{Metric, Work, packed_bytes};

pub(crate) static HISTOGRAM: Operator = Operator {
    name: "histogram",
    about: "how many elements lie in each bin, of integers or of floats between bounds",
    file: "histogram.py",
    source: include_str!("../../kernels/histogram.py"),
    precisions: &["int32", "fp32", "bf16"],
    further_precisions: &["int8", "fp16"],
    suite: Vec::new,
    further_suite,
    quick,
    edges,
    draw,
    calls: CALLS,
    numbers: &[],
    plan,
    ways: None,
    gradient: None,
    no_specials: None,
    ladder: &[],
};

/// An array of any shape; how many bins there are says the result, which is given.
const CALLS: Calls = Calls {
    variants: &[""],
    default: Some(""),
    signature: |_| {
        let signature = Signature::new(&[Operand("x", "..n")], &[Operand("counts", "bins")]).scalars(&["least", "greatest"]);
        signature.rising([("least", BOUNDS[0]), ("greatest", BOUNDS[1])])
    },
    problem: |sizes| Ok(problem(sizes.get("n"), sizes.get("bins"))),
};

/// The bounds of floats, where a call gives none.
const BOUNDS: [f64; 2] = [-4.0, 4.0];
/// Most bins that a block counts in its own memory, of which a multiprocessor has many, some or one; bytes of its memory beside them, and threads.
const PRIVATE: [usize; 3] = [4096, 16_384, 49_152];
const BESIDE: usize = 1024;
const THREADS: usize = 128;
/// Blocks from which on those that have a large part of a multiprocessor's memory are worth it.
const ENOUGH: usize = 16;
/// Elements that a block counts at least for each bin, so that adding up what blocks have takes a part of the time.
const LEAST: usize = 4;
/// Elements of a tile of the results that are set to zero.
const CLEARED: usize = 2048;

fn problem(n: u64, bins: u64) -> Problem {
    Problem::new(&[("n", n), ("bins", bins)], "")
}

fn further_suite() -> Vec<Problem> {
    let sizes = [1 << 20, 1 << 24, 1 << 28];
    sizes.iter().flat_map(|&n| [16, 256, 4096, 65536].map(|bins| problem(n, bins))).collect()
}

fn quick() -> Vec<(Problem, &'static str)> {
    HISTOGRAM.precisions.iter().map(|&precision| (problem(1 << 20, 256), precision)).collect()
}

/// Around vectors, tiles, and what a block holds.
fn edges() -> Vec<Problem> {
    [(1, 1), (7, 3), (1000, 16), (2049, 100), (4097, 4096), (9999, 4097), (30_001, 256), (300_000, 4500)]
        .map(|(n, bins)| problem(n, bins))
        .into()
}

fn draw(draw: &mut Draw<'_>) -> Problem {
    let [n, bins] = [draw.extent(draw.elements()), draw.extent(1 << 14)];
    problem(n, bins)
}

fn plan(problem: &Problem, policy: Policy, machine: Machine) -> Result<Plan, Unsupported> {
    let storage = match policy.storage() {
        Storage::Plain(dtype @ (DType::I32 | DType::I8 | DType::F32 | DType::F16 | DType::BF16)) => dtype,
        _ => return Err(Unsupported(format!("histogram takes integers, and floats of 16 and 32 bits, not `{policy}`"))),
    };
    let (n, bins) = (problem.get("n") as usize, problem.get("bins") as usize);
    let floats = storage.is_float();
    let mut x = TensorSpec::new("x", storage, [n], Role::Input);
    if !floats {
        // One value below and one above the bins are among them, where the type has those.
        let most = if storage == DType::I8 { i64::from(i8::MAX) } else { i64::from(i32::MAX) };
        x.fill = Fill::Integers { least: -1, greatest: most.min(bins as i64) };
    }
    let counts = ("counts", Argument::Tensor(1));
    let mut arguments = vec![("x", Argument::Tensor(0)), counts];
    if floats {
        arguments.extend(["least", "greatest"].into_iter().zip(BOUNDS.map(Argument::Float)));
    }
    let count = match private(n, bins, machine) {
        Some((private, blocks)) => {
            arguments.push(("PRIVATE", Argument::Int(private as i64)));
            LaunchSpec::new(if floats { "between" } else { "values" }, arguments, [blocks as u32, 1, 1])
        }
        None => {
            let elements = rows::elementwise_tile(n, machine);
            arguments.push(("TILE", Argument::Int(elements as i64)));
            let kernel = if floats { "between_in_place" } else { "values_in_place" };
            LaunchSpec::new(kernel, arguments, rows::grid(n.max(1), elements)?)
        }
    };
    let clear = LaunchSpec::new("clear", vec![counts, ("TILE", Argument::Int(CLEARED as i64))], rows::grid(bins, CLEARED)?);
    Ok(Plan {
        tensors: vec![x, TensorSpec::new("counts", DType::I32, [bins], Role::Output)],
        launches: vec![clear, count],
        outputs: vec![OutputRows { tensor: 1, rows: 1, row_len: bins, exact: true }],
        work: Work {
            read_bytes: packed_bytes(storage, n as u64),
            write_bytes: packed_bytes(DType::I32, bins as u64),
            flops: n as u64,
            compute: None,
            metric: Metric::Bandwidth,
            formula: "elements read once, counts written once",
        },
        exact_lane: false,
        reference: Box::new(Counts { n, bins, floats }),
    })
}

/// Bins that a block has room for, and how many blocks count in memory of their own; `None` where all count in the result.
fn private(n: usize, bins: usize, machine: Machine) -> Option<(usize, usize)> {
    let Machine::Gpu(arch) = machine else { return None };
    let limits = arch.limits();
    let bytes = |private: usize| size_of::<i32>() * private;
    let fits = |private: &usize| bins <= *private && bytes(*private) <= limits.shared_per_block as usize;
    let private = PRIVATE.into_iter().find(fits)?;
    let resident = limits.shared_per_sm as usize / (bytes(private) + BESIDE);
    let blocks = (resident * arch.multiprocessors() as usize).min(n / (LEAST * bins.max(THREADS)));
    (private == PRIVATE[0] || blocks >= ENOUGH).then(|| (private, blocks.max(1)))
}

struct Counts {
    n: usize,
    bins: usize,
    floats: bool,
}

/// Elements that are read at a time.
const PIECE: usize = 1 << 16;

impl Counts {
    /// The bin of an element. Floats are rounded as the kernels say: their bins are a matter of definition.
    fn bin(&self, value: f64) -> Option<usize> {
        if !self.floats {
            return (value >= 0.0 && value < self.bins as f64).then_some(value as usize);
        }
        let (value, [least, greatest]) = (value as f32, BOUNDS.map(|bound| bound as f32));
        let within = value >= least && value <= greatest;
        within.then(|| (((value - least) * (self.bins as f32 / (greatest - least))).floor() as usize).min(self.bins - 1))
    }
}

impl Reference for Counts {
    fn rows(&self, inputs: &dyn Inputs, _output: usize, _rows: Range<usize>, expected: Expected<'_>) {
        let Expected::Codes(codes) = expected else { return };
        let counts: Vec<AtomicU32> = (0..self.bins).map(|_| AtomicU32::new(0)).collect();
        (0..self.n.div_ceil(PIECE)).into_par_iter().for_each(|piece| {
            let mut values = vec![0.0; PIECE.min(self.n - piece * PIECE)];
            inputs.numbers(0, piece * PIECE, &mut values);
            for bin in values.into_iter().filter_map(|value| self.bin(value)) {
                counts[bin].fetch_add(1, Ordering::Relaxed);
            }
        });
        codes.iter_mut().zip(counts).for_each(|(code, count)| *code = u64::from(count.into_inner()));
    }
}
