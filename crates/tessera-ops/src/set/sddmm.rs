//! A dense product where a sparse matrix has elements: `y[i] = A[row of i] . B[column of i]`.

use std::ops::Range;

use tessera_types::{DType, ErrorModel, Policy};

use super::sparse;
use crate::draw::Draw;
use crate::element::{storable, sum, underflow};
use crate::operator::{
    Argument, Expected, Inputs, LaunchSpec, Machine, Operator, OutputRows, Plan, Reference, Role, TensorSpec, Unsupported,
};
use crate::problem::Problem;
use crate::set::rows;
use crate::signature::{Calls, Operand, Signature};
use crate::work::{Metric, Work, packed_bytes};

pub(crate) static SDDMM: Operator = Operator {
    name: "sddmm",
    about: "the product of two dense matrices where a sparse one has elements",
    file: sparse::FILE.name,
    source: sparse::FILE.text,
    precisions: &["fp32", "fp16", "bf16"],
    further_precisions: &["fp64"],
    suite: Vec::new,
    further_suite: || {
        [32, 128]
            .iter()
            .flat_map(|&k| sparse::of_each(&[[1 << 16, 1 << 16, 1 << 22], [1 << 13, 1 << 13, 3_355_443]], &[("k", k)]))
            .collect()
    },
    quick: || {
        SDDMM
            .precisions
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
            let inputs =
                &[Operand("A", "m k"), Operand("B", "n k"), Operand("columns", "elements"), Operand("row_offsets", "bounds")];
            Signature::new(inputs, &[Operand("y", "elements")]).types(sparse::TYPES).bounds(&[["row_offsets", "columns"]])
        },
        problem: |sizes| {
            let [m, n, elements, bounds, k] = ["m", "n", "elements", "bounds", "k"].map(|name| sizes.get(name));
            if bounds != m + 1 {
                return Err(Unsupported(format!("`A` has {m} rows, of which `row_offsets` has {} bounds, not {bounds}", m + 1)));
            }
            Ok(sparse::problem([m, n, elements], &[("k", k)], ""))
        },
    },
    numbers: &[],
    plan,
    ways: None,
    gradient: None,
    no_specials: None,
    ladder: &[],
};

/// The fewest and the most elements that a warp takes one after the other, and how many warps there shall be for each that the device holds.
const EACH: [usize; 2] = [32, 128];
const ON_A_CPU: usize = 1024;
const ROUNDS: usize = 4;
/// Elements of a row of which a group of threads has the loads on their way together.
const AT_ONCE: usize = 4;

fn draw(draw: &mut Draw<'_>) -> Problem {
    let (sizes, spread) = sparse::drawn(draw);
    let k = draw.extent((draw.elements() / sizes[0].max(sizes[1]).max(sizes[2] / 8)).clamp(1, 512));
    sparse::problem(sizes, &[("k", k)], spread)
}

fn plan(problem: &Problem, policy: Policy, machine: Machine) -> Result<Plan, Unsupported> {
    let (storage, acc) = rows::storage(policy, "sddmm")?;
    if storage.bits() < 16 {
        return Err(Unsupported(format!("sddmm takes floats of 16, 32 and 64 bits, not `{policy}`")));
    }
    let pattern = sparse::pattern(problem)?;
    let k = problem.get("k") as usize;
    let mut tensors = vec![
        TensorSpec::new("A", storage, [pattern.rows, k], Role::Input),
        TensorSpec::new("B", storage, [pattern.columns, k], Role::Input),
    ];
    tensors.extend(sparse::index_tensors(pattern));
    tensors.push(TensorSpec::new("y", storage, [pattern.elements], Role::Output));
    let vector = sparse::vector(k, storage);
    let lanes = match machine {
        Machine::Cpu => 1,
        Machine::Gpu(_) => k.div_ceil(vector).clamp(1, 32).next_power_of_two(),
    };
    let mut arguments = rows::arrays(&tensors, &["A", "B", "columns", "row_offsets", "y"]);
    arguments.push(("ACC", Argument::Type(acc)));
    // No more than the groups of a warp find in half a row.
    let at_once = (pattern.elements / pattern.rows.max(1) * lanes / (2 * sparse::WARP)).clamp(1, AT_ONCE);
    let [least, most] = EACH;
    let each = match machine {
        Machine::Cpu => ON_A_CPU,
        Machine::Gpu(_) => {
            let warps = sparse::resident(machine) / sparse::WARP * ROUNDS;
            (pattern.elements / warps).next_power_of_two().clamp(least, most)
        }
    };
    let constants = [("EACH", each), ("LANES", lanes), ("VECTOR", vector), ("AT_ONCE", 1 << at_once.ilog2())];
    arguments.extend(constants.map(|(name, number)| (name, Argument::Int(number as i64))));
    let grid = rows::grid(pattern.elements.div_ceil(each), sparse::THREADS / sparse::WARP)?;
    let elements = pattern.elements as u64;
    Ok(Plan {
        tensors,
        launches: vec![LaunchSpec::new("sddmm", arguments, grid)],
        outputs: vec![OutputRows { tensor: 4, rows: pattern.elements, row_len: 1, exact: false }],
        work: Work {
            read_bytes: packed_bytes(storage, ((pattern.rows + pattern.columns) * k) as u64)
                + 4 * (elements + pattern.rows as u64 + 1),
            write_bytes: packed_bytes(storage, elements),
            flops: 2 * elements * k as u64,
            compute: None,
            metric: Metric::Compute,
            formula: "2k operations an element; A, B, columns and offsets read once, y written once",
        },
        exact_lane: true,
        reference: Box::new(Sampled { rows: pattern.rows, k, storage, acc }),
    })
}

struct Sampled {
    rows: usize,
    k: usize,
    storage: DType,
    acc: DType,
}

impl Reference for Sampled {
    fn rows(&self, inputs: &dyn Inputs, _output: usize, elements: Range<usize>, expected: Expected<'_>) {
        let Expected::Bounded { want, bound } = expected else { return };
        let model = ErrorModel { floor: underflow(self.storage), ..ErrorModel::nearest(self.storage, self.acc) };
        let mut offsets = vec![0.0; self.rows + 1];
        inputs.numbers(3, 0, &mut offsets);
        let mut columns = vec![0.0; elements.len()];
        inputs.numbers(2, elements.start, &mut columns);
        let (mut left, mut right) = (vec![0.0; self.k], vec![0.0; self.k]);
        for (((element, column), want), bound) in elements.zip(columns).zip(want).zip(bound) {
            let row = offsets.partition_point(|&offset| offset as usize <= element) - 1;
            inputs.numbers(0, row * self.k, &mut left);
            inputs.numbers(1, column as usize * self.k, &mut right);
            let terms = || left.iter().zip(&right).map(|(left, right)| left * right);
            let exact = sum(terms());
            *bound = model.contraction(exact, terms().map(f64::abs).sum(), self.k);
            *want = storable(self.storage, exact);
        }
    }
}
