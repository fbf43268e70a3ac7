//! Vector operations: axpy, add, mul elementwise; dot, norm, reduce_sum, reduce_max over everything.
//!
//! The variant names the operation, and `strided_2`, `strided_4` or `strided_8` where only every s-th element is touched.

use std::ops::Range;

use rayon::prelude::*;
use tessera_types::{DType, ErrorModel, Policy, unit_roundoff};

use crate::draw::Draw;
use crate::element::{storable, sum, underflow};
use crate::operator::{
    Argument, Expected, Inputs, LaunchSpec, Machine, Operator, OutputRows, Plan, Reference, Role, TensorSpec, Unsupported,
};
use crate::problem::Problem;
use crate::set::reduce::{Reduction, refuse_none};
use crate::set::{ladders, rows};
use crate::signature::{Calls, Operand, Signature};
use crate::work::{Metric, Work, packed_bytes};

pub(crate) static VECTOR: Operator = Operator {
    name: "vector",
    about: "axpy, dot, norm, add, mul, reduce_sum, reduce_max; sequential and strided",
    file: "vector.py",
    source: include_str!("../../kernels/vector.py"),
    precisions: &["fp32", "fp16", "bf16", "fp8_e4m3@accum(fp32)", "fp8_e5m2@accum(fp32)"],
    further_precisions: &["fp64"],
    suite,
    further_suite: Vec::new,
    quick,
    edges,
    draw,
    calls: CALLS,
    numbers: &[],
    plan,
    ways: None,
    gradient: None,
    no_specials: None,
    ladder: &ladders::SUM,
};

/// Arrays of any shape, element by element; what becomes of all of them together has one.
const CALLS: Calls = Calls {
    variants: &["axpy", "dot", "norm", "add", "mul", "reduce_sum", "reduce_max"],
    default: None,
    signature: |variant| {
        const X: Operand = Operand("x", "..n");
        const XY: [Operand; 2] = [X, Operand("y", "..n")];
        const RESULT: Operand = Operand("result", "1");
        match variant {
            "axpy" => Signature::new(&XY, &[Operand("z", "..n")]).scalars(&["alpha"]),
            "add" | "mul" => Signature::new(&XY, &[Operand("z", "..n")]),
            "dot" => Signature::new(&XY, &[RESULT]),
            _ => Signature::new(&[X], &[RESULT]),
        }
    },
    problem: |sizes| Ok(problem(sizes.get("n"), sizes.variant)),
};

/// The operations.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Operation {
    Axpy,
    Dot,
    Norm,
    Add,
    Mul,
    ReduceSum,
    ReduceMax,
}

/// Words of the variant, in the suite's order.
const OPERATIONS: [(&str, Operation); 7] = [
    ("axpy", Operation::Axpy),
    ("dot", Operation::Dot),
    ("norm", Operation::Norm),
    ("add", Operation::Add),
    ("mul", Operation::Mul),
    ("reduce_sum", Operation::ReduceSum),
    ("reduce_max", Operation::ReduceMax),
];

/// `alpha` of axpy.
const ALPHA: f64 = 1.5;
/// Elements of a tile of a reduction on a CPU, where running sums stay in the nearest cache, and tiles that a block adds up at most.
const CPU_TILE: (usize, usize) = (4096, 16);
/// Threads of a block on a GPU, bytes that each has on its way, and blocks that a multiprocessor holds, as the kernels' file says: 80 KiB on their
/// way, where some 40 suffice for its share of the memory's rate.
const THREADS: usize = 256;
const BYTES: usize = 64;
const RESIDENT: usize = 5;
/// Partial results that the last block combines at a time, where there is more than one.
const PARTS: usize = 1024;

fn problem(n: u64, variant: &str) -> Problem {
    Problem::new(&[("n", n)], variant)
}

/// Seven operations at nine sizes, and strided axpy and add: 75 cases.
fn suite() -> Vec<Problem> {
    let sizes = (0..9).map(|step| 1024u64 << (2 * step));
    let mut cases: Vec<Problem> = sizes.flat_map(|n| OPERATIONS.iter().map(move |(name, _)| problem(n, name))).collect();
    for n in [1 << 20, 1 << 22] {
        for stride in [2, 4, 8] {
            cases.extend(["axpy", "add"].iter().map(|name| problem(n, &format!("{name} strided_{stride}"))));
        }
    }
    cases
}

fn quick() -> Vec<(Problem, &'static str)> {
    let mut cases: Vec<_> = OPERATIONS.iter().map(|(name, _)| (problem(1 << 20, name), "fp32")).collect();
    cases.extend(
        [("axpy", "fp16"), ("dot", "bf16"), ("add", "fp8_e4m3@accum(fp32)"), ("reduce_sum", "fp8_e5m2@accum(fp32)")]
            .map(|(name, precision)| (problem(1 << 20, name), precision)),
    );
    cases.push((problem(1 << 20, "add strided_4"), "fp32"));
    cases
}

fn edges() -> Vec<Problem> {
    let sizes = [1, 2, 1000, 4095, 4096, 4097, 65535, 65537, 300_007];
    let mut cases: Vec<Problem> = sizes.iter().flat_map(|&n| OPERATIONS.iter().map(move |(name, _)| problem(n, name))).collect();
    cases.extend([problem(10_000, "axpy strided_8"), problem(9_999, "add strided_2")]);
    cases
}

fn draw(draw: &mut Draw<'_>) -> Problem {
    let n = draw.extent(draw.elements());
    let (name, operation) = draw.one_of(&OPERATIONS);
    let is_strided = matches!(operation, Operation::Axpy | Operation::Add) && draw.once_in(2);
    match draw.one_of(&[2, 4, 8]) {
        stride if is_strided => problem(n, &format!("{name} strided_{stride}")),
        _ => problem(n, name),
    }
}

fn plan(problem: &Problem, policy: Policy, machine: Machine) -> Result<Plan, Unsupported> {
    let (storage, acc) = rows::storage(policy, "vector")?;
    let word = problem.variant.split(' ').next().unwrap_or_default();
    let Some((name, operation)) = OPERATIONS.iter().copied().find(|(name, _)| *name == word) else {
        return Err(Unsupported(format!("`{word}` is not a vector operation")));
    };
    let stride = [2usize, 4, 8].into_iter().find(|s| problem.has(&format!("strided_{s}"))).unwrap_or(1);
    // `n` counts the span: strided cases touch every stride-th element of it.
    let n = (problem.get("n") as usize).div_ceil(stride);
    let vector = |name, role| TensorSpec { step: stride, ..TensorSpec::new(name, storage, [n], role) };
    let reference = Box::new(Vectors { operation, n, out: storage, acc });
    let acc_type = ("ACC", Argument::Type(acc));
    let bytes = packed_bytes(storage, n as u64);

    if matches!(operation, Operation::Axpy | Operation::Add | Operation::Mul) {
        let elements = rows::elementwise_tile(n, machine);
        let tile = ("TILE", Argument::Int(elements as i64));
        let mut arguments =
            vec![("x", Argument::Tensor(0)), ("y", Argument::Tensor(1)), ("z", Argument::Tensor(2)), acc_type, tile];
        let axpy = operation == Operation::Axpy;
        if axpy {
            arguments.push(("alpha", Argument::Float(ALPHA)));
        }
        return Ok(Plan {
            tensors: vec![vector("x", Role::Input), vector("y", Role::Input), vector("z", Role::Output)],
            launches: vec![LaunchSpec::new(name, arguments, rows::grid(n, elements)?)],
            outputs: vec![OutputRows { tensor: 2, rows: n, row_len: 1, exact: false }],
            work: Work {
                read_bytes: 2 * bytes,
                write_bytes: bytes,
                flops: if axpy { 2 } else { 1 } * n as u64,
                compute: None,
                metric: Metric::Bandwidth,
                formula: "two vectors read, one written; touched elements only",
            },
            exact_lane: operation != Operation::Axpy,
            reference,
        });
    }
    if stride != 1 {
        return Err(Unsupported(format!("{name} has no strided case")));
    }

    if operation == Operation::ReduceMax {
        refuse_none(Reduction::Max, [1, n])?;
    }
    let operands = if operation == Operation::Dot { 2 } else { 1 };
    // Of no elements there is a sum, too.
    let (elements, blocks, group) = match machine {
        Machine::Cpu => (CPU_TILE.0, n.div_ceil(CPU_TILE.0 * CPU_TILE.1).max(1), 1),
        Machine::Gpu(arch) => {
            let bits = storage.bits() as usize;
            let elements = THREADS * BYTES * 8 / bits / operands;
            let blocks = n.div_ceil(elements).clamp(1, RESIDENT * arch.multiprocessors() as usize);
            (elements, blocks, rows::VECTOR_BITS / bits)
        }
    };
    let grid = rows::grid(blocks, 1)?;
    let mut tensors: Vec<TensorSpec> = ["x", "y"][..operands].iter().map(|&name| vector(name, Role::Input)).collect();
    tensors.push(TensorSpec::new("partials", acc, [grid[0] as usize], Role::Workspace));
    tensors.push(TensorSpec::new("arrived", DType::I32, [1], Role::Counter));
    tensors.push(TensorSpec::new("result", acc, [1], Role::Output));
    let mut arguments: Vec<_> = tensors.iter().enumerate().map(|(at, tensor)| (tensor.name, Argument::Tensor(at))).collect();
    arguments.push(acc_type);
    let parts = if blocks == 1 { 1 } else { PARTS };
    let numbers = [("TILE", elements), ("GROUP", group), ("PARTS", parts)];
    arguments.extend(numbers.map(|(name, number)| (name, Argument::Int(number as i64))));
    Ok(Plan {
        outputs: vec![OutputRows { tensor: tensors.len() - 1, rows: 1, row_len: 1, exact: false }],
        tensors,
        launches: vec![LaunchSpec::new(name, arguments, grid)],
        work: Work {
            read_bytes: operands as u64 * bytes,
            write_bytes: packed_bytes(acc, 1),
            flops: operands as u64 * n as u64,
            compute: None,
            metric: Metric::Bandwidth,
            formula: "each vector read once",
        },
        // Small integers stay exact as long as their sum fits the accumulator.
        exact_lane: matches!(operation, Operation::ReduceSum | Operation::ReduceMax) && n <= 1 << 22,
        reference,
    })
}

struct Vectors {
    operation: Operation,
    n: usize,
    out: DType,
    acc: DType,
}

/// Reductions walk the vectors in pieces of this many elements.
const PIECE: usize = 1 << 16;

impl Vectors {
    /// Sum of terms and of their magnitudes, and the largest element.
    fn fold(&self, inputs: &dyn Inputs) -> (f64, f64, f64) {
        let pieces: Vec<(f64, f64, f64)> = (0..self.n.div_ceil(PIECE))
            .into_par_iter()
            .map(|piece| {
                let start = piece * PIECE;
                let mut x = vec![0.0; PIECE.min(self.n - start)];
                inputs.numbers(0, start, &mut x);
                let largest = x.iter().copied().fold(f64::NEG_INFINITY, f64::max);
                match self.operation {
                    Operation::Dot => {
                        let mut y = vec![0.0; x.len()];
                        inputs.numbers(1, start, &mut y);
                        x.iter_mut().zip(&y).for_each(|(x, y)| *x *= y);
                    }
                    Operation::Norm => x.iter_mut().for_each(|x| *x *= *x),
                    Operation::Axpy | Operation::Add | Operation::Mul | Operation::ReduceSum | Operation::ReduceMax => {}
                }
                (sum(x.iter().copied()), x.iter().map(|x| x.abs()).sum(), largest)
            })
            .collect();
        pieces.iter().fold((0.0, 0.0, f64::NEG_INFINITY), |(sum, magnitude, largest), piece| {
            (sum + piece.0, magnitude + piece.1, largest.max(piece.2))
        })
    }
}

impl Reference for Vectors {
    fn rows(&self, inputs: &dyn Inputs, _output: usize, rows: Range<usize>, expected: Expected<'_>) {
        let Expected::Bounded { want, bound } = expected else { return };
        match self.operation {
            Operation::Axpy | Operation::Add | Operation::Mul => {
                let model = ErrorModel { floor: underflow(self.out), ..ErrorModel::nearest(self.out, self.acc) };
                let mut y = vec![0.0; rows.len()];
                inputs.numbers(0, rows.start, want);
                inputs.numbers(1, rows.start, &mut y);
                for ((want, bound), y) in want.iter_mut().zip(bound).zip(y) {
                    let (exact, terms) = match self.operation {
                        Operation::Axpy => (ALPHA * *want + y, (ALPHA * *want).abs() + y.abs()),
                        Operation::Mul => (*want * y, (*want * y).abs()),
                        _ => (*want + y, want.abs() + y.abs()),
                    };
                    *bound = model.u_out * exact.abs() + 2.0 * model.u_acc * terms + model.floor;
                    *want = storable(self.out, exact);
                }
            }
            Operation::Dot | Operation::Norm | Operation::ReduceSum | Operation::ReduceMax => {
                let (sum, magnitude, largest) = self.fold(inputs);
                let model = ErrorModel::nearest(self.acc, self.acc);
                let contraction = model.contraction(sum, magnitude, self.n);
                (want[0], bound[0]) = match self.operation {
                    Operation::ReduceMax => (largest, 0.0),
                    // d sqrt(s) = ds / (2 sqrt(s)), and the root itself is rounded.
                    Operation::Norm if sum > 0.0 => {
                        (sum.sqrt(), contraction / (2.0 * sum.sqrt()) + 2.0 * unit_roundoff(self.acc) * sum.sqrt())
                    }
                    _ => (sum, contraction),
                };
            }
        }
    }
}
