//! A sparse matrix in CSR form times a vector.

use std::ops::Range;

use tessera_types::{DType, ErrorModel, Policy};

use super::sparse::{self, Rows};
use crate::draw::Draw;
use crate::element::{storable, sum, underflow};
use crate::operator::{
    Argument, Expected, Inputs, LaunchSpec, Machine, Operator, OutputRows, Plan, Reference, Role, Rung, TensorSpec, Unsupported,
};
use crate::problem::Problem;
use crate::set::rows;
use crate::signature::{Calls, Operand, Signature};
use crate::work::{Metric, Work, packed_bytes};

pub(crate) static SPMV: Operator = Operator {
    name: "spmv",
    about: "a sparse matrix in CSR form times a vector",
    file: sparse::FILE.name,
    source: sparse::FILE.text,
    precisions: &["fp32", "fp16", "bf16"],
    further_precisions: &["fp64"],
    suite: Vec::new,
    further_suite: || sparse::of_each(&sparse::LARGE, &[]),
    quick: || {
        SPMV.precisions
            .iter()
            .map(|&precision| (sparse::problem([1 << 14, 1 << 14, 1 << 18], &[], "uniform"), precision))
            .collect()
    },
    edges,
    draw,
    calls: Calls {
        variants: &[""],
        default: Some(""),
        signature: |_| {
            let inputs = &[
                Operand("values", "elements"),
                Operand("columns", "elements"),
                Operand("row_offsets", "bounds"),
                Operand("x", "n"),
            ];
            Signature::new(inputs, &[Operand("y", "m")]).types(sparse::TYPES).bounds(&[["row_offsets", "columns"]])
        },
        problem: |sizes| {
            let [m, n, elements, bounds] = ["m", "n", "elements", "bounds"].map(|name| sizes.get(name));
            if bounds != m + 1 {
                return Err(Unsupported(format!("`y` has {m} rows, of which `row_offsets` has {} bounds, not {bounds}", m + 1)));
            }
            Ok(sparse::problem([m, n, elements], &[], ""))
        },
    },
    numbers: &[],
    plan,
    ways: None,
    gradient: None,
    no_specials: None,
    ladder: &[Rung {
        name: "rows",
        about: "a row is no more than one warp's, however long",
        plan: |problem, policy, machine| plan_as(problem, policy, machine, i32::MAX as usize),
    }],
};

/// Elements of a thread whose loads are on their way together, as the kernels' file says.
const BATCH: usize = 4;
/// Elements from which on warps share a row, and that each of them takes.
const LONG: usize = 1024;

fn edges() -> Vec<Problem> {
    sparse::of_each(&[&sparse::SMALL[..], &[[5000, 3000, 40_000], [9, 50_000, 40_000]]].concat(), &[])
}

fn draw(draw: &mut Draw<'_>) -> Problem {
    let (sizes, spread) = sparse::drawn(draw);
    sparse::problem(sizes, &[], spread)
}

fn plan(problem: &Problem, policy: Policy, machine: Machine) -> Result<Plan, Unsupported> {
    plan_as(problem, policy, machine, LONG)
}

fn plan_as(problem: &Problem, policy: Policy, machine: Machine, long: usize) -> Result<Plan, Unsupported> {
    let (storage, acc) = rows::storage(policy, "spmv")?;
    if storage.bits() < 16 {
        return Err(Unsupported(format!("spmv takes floats of 16, 32 and 64 bits, not `{policy}`")));
    }
    let pattern = sparse::pattern(problem)?;
    let mut tensors = Vec::from(sparse::tensors(pattern, storage));
    tensors.push(TensorSpec::new("x", storage, [pattern.columns], Role::Input));
    tensors.push(TensorSpec::new("y", storage, [pattern.rows], Role::Output));
    let pieces = pattern.elements.div_ceil(long).max(1);
    tensors.push(TensorSpec::new("tails", rows::word(acc), [pieces], Role::Counter));
    // Threads that take a row, and the longest rows that they take without the rest of their warp: a few rounds of loads.
    let [lanes, short] = match machine {
        Machine::Cpu => [1, long],
        Machine::Gpu(_) => {
            let lanes = (pattern.elements / pattern.rows.max(1) / BATCH).clamp(1, sparse::WARP).next_power_of_two();
            [lanes, 4 * BATCH * lanes]
        }
    };
    let mut arguments = rows::arrays(&tensors, &["values", "columns", "row_offsets", "x", "tails", "y"]);
    let constants =
        [("LANES", lanes), ("SHORT", short), ("LONG", long)].map(|(name, number)| (name, Argument::Int(number as i64)));
    arguments.push(("ACC", Argument::Type(acc)));
    arguments.extend(constants);
    let [of_pieces, of_rows] = [pieces * sparse::WARP, pattern.rows * lanes].map(|threads| threads.div_ceil(sparse::THREADS));
    let launch = LaunchSpec::new("spmv", arguments, rows::grid(of_pieces + of_rows, 1)?);
    let elements = pattern.elements as u64;
    Ok(Plan {
        tensors,
        launches: vec![launch],
        outputs: vec![OutputRows { tensor: 4, rows: pattern.rows, row_len: 1, exact: false }],
        work: Work {
            read_bytes: packed_bytes(storage, elements + pattern.columns as u64) + 4 * (elements + pattern.rows as u64 + 1),
            write_bytes: packed_bytes(storage, pattern.rows as u64),
            flops: 2 * elements,
            compute: None,
            metric: Metric::Bandwidth,
            formula: "elements, columns, offsets and x read once, y written once",
        },
        exact_lane: true,
        reference: Box::new(Product { columns: pattern.columns, storage, acc }),
    })
}

struct Product {
    columns: usize,
    storage: DType,
    acc: DType,
}

impl Reference for Product {
    fn rows(&self, inputs: &dyn Inputs, _output: usize, rows: Range<usize>, expected: Expected<'_>) {
        let Expected::Bounded { want, bound } = expected else { return };
        let model = ErrorModel { floor: underflow(self.storage), ..ErrorModel::nearest(self.storage, self.acc) };
        let mut x = vec![0.0; self.columns];
        inputs.numbers(3, 0, &mut x);
        let matrix = Rows::read(inputs, [0, 1, 2], rows.clone());
        for ((row, want), bound) in rows.zip(want).zip(bound) {
            let terms: Vec<f64> = matrix.row(row).map(|(column, value)| value * x[column]).collect();
            let exact = sum(terms.iter().copied());
            *bound = model.contraction(exact, terms.iter().map(|term| term.abs()).sum(), terms.len());
            *want = storable(self.storage, exact);
        }
    }
}
