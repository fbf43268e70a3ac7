//! A sparse matrix in CSR form times a dense one.

use std::ops::Range;

use tessera_types::{DType, ErrorModel, Policy};

use super::sparse::{self, Rows};
use crate::draw::Draw;
use crate::element::{RunningSum, storable, underflow};
use crate::operator::{
    Argument, Expected, Inputs, LaunchSpec, Machine, Operator, OutputRows, Plan, Reference, Role, Rung, TensorSpec, Unsupported,
};
use crate::problem::Problem;
use crate::set::rows;
use crate::signature::{Calls, Operand, Signature};
use crate::work::{Metric, Work, packed_bytes};

pub(crate) static SPMM: Operator = Operator {
    name: "spmm",
    about: "a sparse matrix in CSR form times a dense one",
    file: sparse::FILE.name,
    source: sparse::FILE.text,
    precisions: &["fp32", "fp16", "bf16"],
    further_precisions: &["fp64"],
    suite: Vec::new,
    further_suite,
    quick: || {
        SPMM.precisions
            .iter()
            .map(|&precision| (sparse::problem([1 << 12, 1 << 12, 1 << 16], &[("k", 64)], "uniform"), precision))
            .collect()
    },
    edges: sparse::with_columns,
    draw,
    calls: Calls {
        variants: &[""],
        default: Some(""),
        signature: |_| {
            let inputs = &[
                Operand("values", "elements"),
                Operand("columns", "elements"),
                Operand("row_offsets", "bounds"),
                Operand("B", "n k"),
            ];
            Signature::new(inputs, &[Operand("C", "m k")]).types(sparse::TYPES).bounds(&[["row_offsets", "columns"]])
        },
        problem: |sizes| {
            let [m, n, elements, bounds, k] = ["m", "n", "elements", "bounds", "k"].map(|name| sizes.get(name));
            if bounds != m + 1 {
                return Err(Unsupported(format!("`C` has {m} rows, of which `row_offsets` has {} bounds, not {bounds}", m + 1)));
            }
            Ok(sparse::problem([m, n, elements], &[("k", k)], ""))
        },
    },
    numbers: &[],
    plan,
    ways: None,
    gradient: None,
    no_specials: None,
    ladder: &[Rung {
        name: "rows",
        about: "a row of the result at a time by some threads, whatever the length of the matrix's row",
        plan: |problem, policy, machine| plan_as(problem, policy, machine, false),
    }],
};

/// Elements from which on threads take equal parts.
const MERGED: usize = 1 << 13;
/// The fewest and the most items of a part.
const PARTS: [usize; 2] = [128, 1024];
/// Bytes of B that a cache keeps beside what streams through it.
const KEPT: usize = 32 << 20;

/// Items of a part, for so many items of threads: all threads are there at once, which are half of those that the device holds, since they have many
/// registers. Where B is larger than the cache they come one after the other, so that those that are there have rows of B in common.
fn part(items: usize, b_bytes: usize, machine: Machine) -> usize {
    let wanted = items / (sparse::resident(machine) / 2 * b_bytes.div_ceil(KEPT).max(1));
    let [least, most] = PARTS;
    // The nearest power of two.
    (wanted * 2 / 3).next_power_of_two().clamp(least, most)
}

fn further_suite() -> Vec<Problem> {
    let large = [[1 << 18, 1 << 18, 1 << 22], [1 << 16, 1 << 16, 1 << 22], [1 << 13, 1 << 13, 3_355_443]];
    [32, 128].iter().flat_map(|&k| sparse::of_each(&large, &[("k", k)])).collect()
}

fn draw(draw: &mut Draw<'_>) -> Problem {
    let (sizes, spread) = sparse::drawn(draw);
    let rows = sizes[0].max(sizes[1]).max(sizes[2] / 8);
    let k = draw.extent((draw.elements() / rows).clamp(1, 512));
    sparse::problem(sizes, &[("k", k)], spread)
}

fn plan(problem: &Problem, policy: Policy, machine: Machine) -> Result<Plan, Unsupported> {
    let merged = matches!(machine, Machine::Gpu(_)) && problem.get("elements") as usize >= MERGED;
    plan_as(problem, policy, machine, merged)
}

fn plan_as(problem: &Problem, policy: Policy, machine: Machine, merged: bool) -> Result<Plan, Unsupported> {
    let (storage, acc) = rows::storage(policy, "spmm")?;
    if storage.bits() < 16 {
        return Err(Unsupported(format!("spmm takes floats of 16, 32 and 64 bits, not `{policy}`")));
    }
    let pattern = sparse::pattern(problem)?;
    let k = problem.get("k") as usize;
    let mut tensors = Vec::from(sparse::tensors(pattern, storage));
    tensors.push(TensorSpec::new("B", storage, [pattern.columns, k], Role::Input));
    tensors.push(TensorSpec::new("C", storage, [pattern.rows, k], Role::Output));
    const ARRAYS: [&str; 5] = ["values", "columns", "row_offsets", "B", "C"];
    let vector = sparse::vector(k, storage);
    let lanes = match machine {
        Machine::Cpu => 1,
        Machine::Gpu(_) => k.div_ceil(vector).clamp(1, 32).next_power_of_two(),
    };
    let across = k.div_ceil(vector * lanes);
    let grid = |items: usize| -> Result<[u32; 3], Unsupported> {
        let [blocks, ..] = rows::grid(items * lanes, sparse::THREADS)?;
        Ok([blocks, across as u32, 1])
    };
    let shape = [("ACC", Argument::Type(acc)), ("LANES", Argument::Int(lanes as i64)), ("VECTOR", Argument::Int(vector as i64))];
    let launches = if merged {
        let b_bytes = packed_bytes(storage, (pattern.columns * k) as u64) as usize;
        let size = part((pattern.rows + pattern.elements) * lanes * across, b_bytes, machine);
        let parts = sparse::parts(pattern, size);
        let of_parts = |name| TensorSpec::new(name, acc, [parts, k], Role::Workspace);
        tensors.push(TensorSpec::new("starts", DType::I32, [parts + 1], Role::Workspace));
        tensors.extend(["heads", "tails"].map(of_parts));
        let size = ("SIZE", Argument::Int(size as i64));
        let mut starts = rows::arrays(&tensors, &["columns", "row_offsets", "starts"]);
        starts.push(size);
        let mut merge = rows::arrays(&tensors, &ARRAYS);
        merge.extend(rows::arrays(&tensors, &["starts", "heads", "tails"]));
        merge.extend(shape);
        merge.push(size);
        let mut join = rows::arrays(&tensors, &["row_offsets", "starts", "heads", "tails", "C"]);
        join.extend([shape[0], size]);
        let [blocks, ..] = rows::grid(parts, 1)?;
        vec![
            LaunchSpec::new("parts", starts, rows::grid(parts + 1, sparse::THREADS / sparse::WARP)?),
            LaunchSpec::new("spmm_merge", merge, grid(parts)?),
            LaunchSpec::new("spmm_join", join, [blocks, k.div_ceil(sparse::THREADS) as u32, 1]),
        ]
    } else {
        let mut arguments = rows::arrays(&tensors, &ARRAYS);
        arguments.extend(shape);
        vec![LaunchSpec::new("spmm_rows", arguments, grid(pattern.rows)?)]
    };
    let elements = pattern.elements as u64;
    Ok(Plan {
        tensors,
        launches,
        outputs: vec![OutputRows { tensor: 4, rows: pattern.rows, row_len: k, exact: false }],
        work: Work {
            read_bytes: packed_bytes(storage, elements + (pattern.columns * k) as u64) + 4 * (elements + pattern.rows as u64 + 1),
            write_bytes: packed_bytes(storage, (pattern.rows * k) as u64),
            flops: 2 * elements * k as u64,
            compute: None,
            metric: Metric::Compute,
            formula: "2k operations an element; elements, columns, offsets and B read once, C written once",
        },
        exact_lane: true,
        reference: Box::new(Product { k, storage, acc }),
    })
}

struct Product {
    k: usize,
    storage: DType,
    acc: DType,
}

impl Reference for Product {
    fn rows(&self, inputs: &dyn Inputs, _output: usize, rows: Range<usize>, expected: Expected<'_>) {
        let Expected::Bounded { want, bound } = expected else { return };
        let model = ErrorModel { floor: underflow(self.storage), ..ErrorModel::nearest(self.storage, self.acc) };
        let matrix = Rows::read(inputs, [0, 1, 2], rows.clone());
        let mut line = vec![0.0; self.k];
        let mut sums = vec![RunningSum::default(); self.k];
        for ((row, want), bound) in rows.zip(want.chunks_mut(self.k)).zip(bound.chunks_mut(self.k)) {
            sums.fill(RunningSum::default());
            bound.fill(0.0);
            let terms = matrix.row(row).len();
            for (column, value) in matrix.row(row) {
                inputs.numbers(3, column * self.k, &mut line);
                for ((sum, magnitude), b) in sums.iter_mut().zip(bound.iter_mut()).zip(&line) {
                    sum.add(value * b);
                    *magnitude += (value * b).abs();
                }
            }
            for ((want, bound), sum) in want.iter_mut().zip(bound).zip(&sums) {
                let exact = sum.value();
                *bound = model.contraction(exact, *bound, terms);
                *want = storable(self.storage, exact);
            }
        }
    }
}
