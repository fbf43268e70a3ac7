//! A bias, one for all rows, and an activation: `f(x + bias)`, and its gradients. That of the bias is a sum over rows.
//!
//! Bounds are those of the activations, for an argument that is off by a rounding of the sum: it goes through the slope, and of the slope through its
//! derivative, which is below 2 for all of them.

use std::ops::Range;

use rayon::prelude::*;
use tessera_types::{DType, ErrorModel, Policy, unit_roundoff};

use crate::draw::Draw;
use crate::element::{storable, sum, underflow};
use crate::operator::{
    Argument, Expected, Inputs, LaunchSpec, Machine, Operator, OutputRows, Plan, Reference, Role, TensorSpec, Unsupported,
};
use crate::problem::Problem;
use crate::set::activations::{self, WIDE};
use crate::set::{norm_backward, pointwise, rows};
use crate::signature::{Calls, Operand, Signature};
use crate::work::{Metric, Work, packed_bytes};

/// The activations that follow a bias.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Activation {
    Relu,
    Silu,
    Gelu,
}

impl Activation {
    /// Operations of an element, the bias's addition among them: of the value, and of the gradients.
    fn flops(self) -> [u64; 2] {
        match self {
            Activation::Relu => [2, 3],
            Activation::Silu => [6, 11],
            Activation::Gelu => [28, 32],
        }
    }

    /// The value at an argument that is off by so many units of roundoff, and the units that it is off by.
    fn value(self, t: f64, off: f64) -> (f64, f64) {
        let (value, lost) = match self {
            Activation::Relu => (activations::relu(t), 0.0),
            Activation::Silu => activations::silu(t),
            Activation::Gelu => activations::gelu(t),
        };
        (value, lost + self.slope(t, 0.0).0.abs() * off)
    }

    /// Its derivative, likewise.
    fn slope(self, t: f64, off: f64) -> (f64, f64) {
        match self {
            Activation::Relu => (f64::from(u8::from(t > 0.0)), 0.0),
            Activation::Silu => more(activations::silu_slope(t), off),
            Activation::Gelu => more(activations::gelu_slope(t), off),
        }
    }
}

fn more((value, lost): (f64, f64), off: f64) -> (f64, f64) {
    (value, lost + 2.0 * off)
}

macro_rules! biased {
    ($($id:ident $backward:ident $activation:ident $kernel:literal $gradient:literal $about:literal;)*) => {
        $(
            pub(crate) static $id: Operator = Operator {
                name: $kernel,
                about: concat!($about, "(x + bias), one bias for all rows"),
                calls: CALLS,
                plan: |problem, policy, machine| forward($kernel, Activation::$activation, problem, policy, machine),
                quick: || quick($id.precisions),
                gradient: Some(&$backward),
                ..OPERATOR
            };
            pub(crate) static $backward: Operator = Operator {
                name: $gradient,
                about: concat!("gradients of ", $kernel, ", that of the bias in one order of rows"),
                calls: GRADIENT_CALLS,
                plan: |problem, policy, machine| backward($gradient, Activation::$activation, problem, policy, machine),
                quick: || quick($backward.precisions),
                ..OPERATOR
            };
        )*
    };
}

biased! {
    BIAS_RELU BIAS_RELU_BACKWARD Relu "bias_relu" "bias_relu_backward" "relu";
    BIAS_SILU BIAS_SILU_BACKWARD Silu "bias_silu" "bias_silu_backward" "silu";
    BIAS_GELU BIAS_GELU_BACKWARD Gelu "bias_gelu" "bias_gelu_backward" "gelu";
}

/// What all of them have.
const OPERATOR: Operator = Operator {
    name: "",
    about: "",
    file: "activations.py",
    source: include_str!("../../kernels/activations.py"),
    precisions: &["fp32", "fp16", "bf16"],
    further_precisions: &["fp64", "fp8_e4m3@accum(fp32)", "fp8_e5m2@accum(fp32)"],
    suite: Vec::new,
    further_suite,
    quick: Vec::new,
    edges,
    draw,
    calls: CALLS,
    numbers: &[],
    plan: |problem, policy, machine| forward("bias_relu", Activation::Relu, problem, policy, machine),
    ways: None,
    gradient: None,
    no_specials: None,
    ladder: &[],
};

const CALLS: Calls = Calls {
    variants: &[""],
    default: Some(""),
    signature: |_| Signature::new(&[Operand("x", "..rows n"), Operand("bias", "n")], &[Operand("y", "..rows n")]),
    problem: |sizes| Ok(problem(sizes.get("rows"), sizes.get("n"))),
};

const GRADIENT_CALLS: Calls = Calls {
    signature: |_| {
        let inputs = &[Operand("x", "..rows n"), Operand("bias", "n"), Operand("dy", "..rows n")];
        Signature::new(inputs, &[Operand("dx", "..rows n"), Operand("dbias", "n")])
    },
    ..CALLS
};

fn problem(rows: u64, n: u64) -> Problem {
    Problem::new(&[("rows", rows), ("n", n)], "")
}

/// Hidden layers of transformers.
fn further_suite() -> Vec<Problem> {
    [(8192, 3072), (4096, 16384), (16384, 4096)].map(|(rows, n)| problem(rows, n)).into()
}

fn quick(precisions: &'static [&'static str]) -> Vec<(Problem, &'static str)> {
    precisions.iter().map(|&precision| (problem(256, 1024), precision)).collect()
}

fn edges() -> Vec<Problem> {
    let sizes = [(1, 1), (16, 16), (33, 997), (7, 1000), (3, 1023), (67, 1025), (5, 4100), (1000, 3), (300, 100)];
    sizes.map(|(rows, n)| problem(rows, n)).into()
}

fn draw(draw: &mut Draw<'_>) -> Problem {
    let [rows, n] = draw.extents(draw.elements(), [1 << 14, 1 << 14]);
    problem(rows, n)
}

/// Warps of a block where rows are added up, and blocks that a multiprocessor shall hold: with as many registers as it would like, two or three fit.
const WARPS: u32 = 8;
const RESIDENT: u32 = 4;

/// Columns of a tile, rows of it, and blocks that share the rows of a column where they are added up.
fn tiles(count: usize, n: usize, machine: Machine) -> [usize; 3] {
    let (widest, elements, blocks) = match machine {
        Machine::Cpu => (4096, 16384, 8),
        Machine::Gpu(arch) => (512, 4096, (RESIDENT * arch.multiprocessors()) as usize),
    };
    let columns = n.next_power_of_two().min(widest);
    let rows = (elements / columns).min(count.next_power_of_two());
    let most = count.div_ceil(rows).max(1);
    [rows, columns, blocks.div_ceil(n.div_ceil(columns).max(1)).clamp(1, most)]
}

fn forward(
    kernel: &'static str,
    activation: Activation,
    problem: &Problem,
    policy: Policy,
    machine: Machine,
) -> Result<Plan, Unsupported> {
    let (storage, acc) = rows::storage(policy, kernel)?;
    let (count, n) = (problem.get("rows") as usize, problem.get("n") as usize);
    let [tile_rows, columns, _] = tiles(count, n, machine);
    let tensors = vec![
        TensorSpec { fill: WIDE, ..TensorSpec::new("x", storage, [count, n], Role::Input) },
        TensorSpec::new("bias", storage, [n], Role::Input),
        TensorSpec::new("y", storage, [count, n], Role::Output),
    ];
    let mut arguments = named(&tensors, acc);
    arguments.extend([("TM", Argument::Int(tile_rows as i64)), ("TN", Argument::Int(columns as i64))]);
    let bytes = packed_bytes(storage, (count * n) as u64);
    Ok(Plan {
        outputs: vec![OutputRows { tensor: 2, rows: count, row_len: n, exact: false }],
        tensors,
        launches: vec![LaunchSpec::new(kernel, arguments, rows::grid(count.div_ceil(tile_rows) * n.div_ceil(columns), 1)?)],
        work: work(bytes + packed_bytes(storage, n as u64), bytes, activation.flops()[0] * (count * n) as u64),
        exact_lane: false,
        reference: Box::new(Biased { activation, count, n, out: storage, acc, gradient: false }),
    })
}

fn backward(
    kernel: &'static str,
    activation: Activation,
    problem: &Problem,
    policy: Policy,
    machine: Machine,
) -> Result<Plan, Unsupported> {
    let (storage, acc) = rows::storage(policy, kernel)?;
    let (count, n) = (problem.get("rows") as usize, problem.get("n") as usize);
    let [tile_rows, columns, parts] = tiles(count, n, machine);
    let per_block = count.div_ceil(tile_rows).div_ceil(parts).max(1);
    // As many as have rows; of no rows there is a sum, too.
    let parts = count.div_ceil(tile_rows * per_block).max(1);
    let across = n.div_ceil(columns);
    let tensors = vec![
        TensorSpec { fill: WIDE, ..TensorSpec::new("x", storage, [count, n], Role::Input) },
        TensorSpec::new("bias", storage, [n], Role::Input),
        TensorSpec::new("dy", storage, [count, n], Role::Input),
        TensorSpec::new("partials", acc, [parts, n], Role::Workspace),
        TensorSpec::new("dx", storage, [count, n], Role::Output),
        TensorSpec::new("dbias", storage, [n], Role::Output),
    ];
    let mut arguments = named(&tensors[..5], acc);
    let numbers = [("TM", tile_rows), ("TN", columns), ("TILES", per_block)];
    arguments.extend(numbers.map(|(name, number)| (name, Argument::Int(number as i64))));
    let (warps, resident) = match machine {
        Machine::Gpu(_) if acc.bits() == 32 => (WARPS, RESIDENT),
        Machine::Gpu(_) | Machine::Cpu => (0, 0),
    };
    let sums = vec![("dweights", Argument::Tensor(3)), ("dweight", Argument::Tensor(5))];
    let bytes = packed_bytes(storage, (count * n) as u64);
    let line = packed_bytes(storage, n as u64);
    Ok(Plan {
        outputs: vec![
            OutputRows { tensor: 4, rows: count, row_len: n, exact: false },
            OutputRows { tensor: 5, rows: 1, row_len: n, exact: false },
        ],
        tensors,
        launches: vec![
            LaunchSpec { warps, resident, ..LaunchSpec::new(kernel, arguments, rows::grid(parts * across, 1)?) },
            norm_backward::sums_of_parts(sums, n)?.of_file(norm_backward::FILE),
        ],
        work: work(2 * bytes + line, bytes + line, activation.flops()[1] * (count * n) as u64),
        exact_lane: false,
        reference: Box::new(Biased { activation, count, n, out: storage, acc, gradient: true }),
    })
}

fn named(tensors: &[TensorSpec], acc: DType) -> Vec<(&'static str, Argument)> {
    let tensors = tensors.iter().enumerate().map(|(at, tensor)| (tensor.name, Argument::Tensor(at)));
    tensors.chain([("ACC", Argument::Type(acc))]).collect()
}

fn work(read_bytes: u64, write_bytes: u64, flops: u64) -> Work {
    let formula = "each array read or written once";
    Work { read_bytes, write_bytes, flops, compute: None, metric: Metric::Bandwidth, formula }
}

struct Biased {
    activation: Activation,
    count: usize,
    n: usize,
    out: DType,
    acc: DType,
    gradient: bool,
}

impl Biased {
    /// A row's results, and in `bound` what each is off by before it is stored.
    fn row(&self, inputs: &dyn Inputs, row: usize, bias: &[f64], want: &mut [f64], bound: &mut [f64]) {
        let mut dy = vec![1.0; self.n];
        inputs.numbers(0, row * self.n, want);
        if self.gradient {
            inputs.numbers(2, row * self.n, &mut dy);
        }
        let u_acc = unit_roundoff(self.acc);
        for (((want, bound), bias), dy) in want.iter_mut().zip(bound).zip(bias).zip(dy) {
            let t = *want + bias;
            let (value, lost) = match self.gradient {
                true => activations::times(self.activation.slope(t, t.abs()), dy),
                false => self.activation.value(t, t.abs()),
            };
            (*want, *bound) = (value, u_acc * lost + pointwise::flushed(self.acc, &[t, dy]));
        }
    }
}

impl Reference for Biased {
    fn rows(&self, inputs: &dyn Inputs, output: usize, rows: Range<usize>, expected: Expected<'_>) {
        let Expected::Bounded { want, bound } = expected else { return };
        let model = ErrorModel { floor: underflow(self.out), ..ErrorModel::nearest(self.out, self.acc) };
        let n = self.n;
        let mut bias = vec![0.0; n];
        inputs.numbers(1, 0, &mut bias);
        if output == 0 {
            want.par_chunks_mut(n).zip(bound.par_chunks_mut(n)).enumerate().for_each(|(at, (want, bound))| {
                self.row(inputs, rows.start + at, &bias, want, bound);
                for (want, bound) in want.iter_mut().zip(bound) {
                    *bound += model.u_out * want.abs() + model.floor;
                    *want = storable(self.out, *want);
                }
            });
            return;
        }
        let lines: Vec<(Vec<f64>, Vec<f64>)> = (0..self.count)
            .into_par_iter()
            .map(|row| {
                let (mut terms, mut lost) = (vec![0.0; n], vec![0.0; n]);
                self.row(inputs, row, &bias, &mut terms, &mut lost);
                (terms, lost)
            })
            .collect();
        for (j, (want, bound)) in want.iter_mut().zip(bound).enumerate() {
            let exact = sum(lines.iter().map(|(terms, _)| terms[j]));
            let magnitude = lines.iter().map(|(terms, _)| terms[j].abs()).sum();
            let lost: f64 = lines.iter().map(|(_, lost)| lost[j]).sum();
            *bound = model.contraction(exact, magnitude, self.count) + lost;
            *want = storable(self.out, exact);
        }
    }
}
