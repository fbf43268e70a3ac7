//! Linear layers with what models do behind their products: bias, activation, residual; and two products of which one gates the other.
//!
//! | variant | y |
//! |---|---|
//! | `bias` | `x W^T + bias` |
//! | `relu`, `gelu`, `silu` | `f(x W^T + bias)`; GELU by tanh (Hendrycks and Gimpel, 2016) |
//! | `residual` | `x W^T + bias + residual` |
//! | `swiglu`, `geglu` | `f(x G^T) * (x U^T)`, f being SiLU or GELU (Shazeer, 2020) |

use std::ops::Range;

use rayon::prelude::*;
use tessera_types::{DType, ErrorModel, Policy};

use super::activations::relu;
use super::gemm::{Cut, Cuttable, blocks};
use super::gemm_tiles::{self, May};
use crate::draw::Draw;
use crate::element::storable;
use crate::matrix::{self, Matrix};
use crate::operator::{
    Argument, Expected, Inputs, Machine, Operator, OutputRows, Plan, Reference, Role, TensorSpec, Unsupported, Way, Ways,
};
use crate::problem::Problem;
use crate::set::rows;
use crate::signature::{Calls, Operand, Signature};
use crate::work::{Metric, Work, packed_bytes};

pub(crate) static LINEAR: Operator = Operator {
    name: "linear",
    about: "linear layers y = f(x W^T + bias) + residual, and gated ones f(x G^T) * (x U^T)",
    file: "linear.py",
    source: include_str!("../../kernels/linear.py"),
    precisions: &["fp32", "fp16->fp16", "bf16->bf16"],
    further_precisions: &["fp16", "bf16"],
    suite: Vec::new,
    further_suite,
    quick,
    edges,
    draw,
    calls: CALLS,
    numbers: &[],
    plan: |problem, policy, machine| made(problem, policy, machine, None),
    ways: Some(Ways {
        names: &gemm_tiles::NAMES,
        of: |problem, policy, machine| Ok(cuttable(problem, policy).map_or(Vec::new(), |product| product.ways(machine))),
        plan: |problem, policy, machine, way| made(problem, policy, machine, Some(way)),
    }),
    gradient: None,
    no_specials: Some("a gate that is 0 by flushing makes NaN of a sum that is infinite"),
    ladder: &[],
};

const VARIANTS: [&str; 7] = ["bias", "relu", "gelu", "silu", "residual", "swiglu", "geglu"];

const CALLS: Calls = Calls {
    variants: &VARIANTS,
    default: Some("bias"),
    signature: |variant| {
        const X: Operand = Operand("x", "..rows in");
        const WEIGHT: Operand = Operand("weight", "out in");
        const BIAS: Operand = Operand("bias", "out");
        const Y: Operand = Operand("y", "..rows out");
        match variant {
            "residual" => Signature::new(&[X, WEIGHT, BIAS, Operand("residual", "..rows out")], &[Y]),
            "swiglu" | "geglu" => Signature::new(&[X, Operand("gate", "out in"), Operand("up", "out in")], &[Y]),
            _ => Signature::new(&[X, WEIGHT, BIAS], &[Y]),
        }
    },
    problem: |sizes| Ok(problem(sizes.get("rows"), sizes.get("out"), sizes.get("in"), sizes.variant)),
};

fn problem(rows: u64, out: u64, within: u64, variant: &str) -> Problem {
    Problem::new(&[("rows", rows), ("out", out), ("in", within)], variant)
}

/// Layers of a language model of 7 billion parameters, for prompts and for a few tokens.
fn further_suite() -> Vec<Problem> {
    let layers = [
        (4096, 4096, "bias"),
        (4096, 4096, "residual"),
        (4096, 11008, "residual"),
        (11008, 4096, "swiglu"),
        (16384, 4096, "gelu"),
    ];
    let rows = [1, 16, 64, 512, 4096, 16384];
    let of_models = layers.iter().flat_map(|&(out, within, variant)| rows.map(|rows| problem(rows, out, within, variant)));
    of_models.chain(VARIANTS.map(|variant| problem(4096, 4096, 4096, variant))).collect()
}

fn quick() -> Vec<(Problem, &'static str)> {
    LINEAR
        .precisions
        .iter()
        .zip(["gelu", "residual", "swiglu"])
        .map(|(&precision, it)| (problem(256, 192, 128, it), precision))
        .collect()
}

fn edges() -> Vec<Problem> {
    let sizes = [(1, 1, 1), (1, 72, 130), (16, 200, 64), (65, 96, 40), (130, 257, 72), (200, 136, 264)];
    sizes.iter().flat_map(|&(rows, out, within)| VARIANTS.map(|variant| problem(rows, out, within, variant))).collect()
}

fn draw(draw: &mut Draw<'_>) -> Problem {
    let [rows, out, within] = draw.extents(draw.operations() / 4, [4224; 3]);
    let variant = draw.one_of(&VARIANTS);
    problem(rows, out, within, variant)
}

/// What is applied to a sum.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Activation {
    Identity,
    Relu,
    Gelu,
    Silu,
}

impl Activation {
    fn of(problem: &Problem) -> Activation {
        match problem.variant.as_str() {
            "relu" => Activation::Relu,
            "gelu" | "geglu" => Activation::Gelu,
            "silu" | "swiglu" => Activation::Silu,
            _ => Activation::Identity,
        }
    }

    /// Its number in the kernels.
    fn number(self) -> i64 {
        match self {
            Activation::Identity => 0,
            Activation::Relu => 1,
            Activation::Gelu => 2,
            Activation::Silu => 3,
        }
    }

    /// Its value, and of what its sigmoid is taken, which is what the error of computing it grows with.
    fn at(self, t: f64) -> (f64, f64) {
        let sigmoid = |z: f64| 1.0 / (1.0 + (-z).exp());
        match self {
            Activation::Identity => (t, 0.0),
            Activation::Relu => (relu(t), 0.0),
            Activation::Gelu => {
                let z = (8.0 / std::f64::consts::PI).sqrt() * (t + 0.044715 * t * t * t);
                (t * sigmoid(z), z)
            }
            Activation::Silu => (t * sigmoid(t), t),
        }
    }

    /// The greatest slope: how much of a sum's error it passes on.
    fn slope(self) -> f64 {
        match self {
            Activation::Identity | Activation::Relu => 1.0,
            Activation::Gelu => 1.13,
            Activation::Silu => 1.1,
        }
    }
}

fn made(problem: &Problem, policy: Policy, machine: Machine, way: Option<&Way>) -> Result<Plan, Unsupported> {
    let (storage, acc) = rows::storage(policy, "linear")?;
    if !matches!(storage, DType::F32 | DType::F16 | DType::BF16) {
        return Err(Unsupported(format!("linear takes fp32, fp16 and bf16, not `{policy}`")));
    }
    let result = policy.result().unwrap_or(acc);
    let [m, n, k] = extents(problem);
    let gated = is_gated(problem);
    let activation = Activation::of(problem);
    let input = |name, rows: u64, columns: u64| TensorSpec::new(name, storage, [rows as usize, columns as usize], Role::Input);
    let mut tensors = vec![input("x", m, k)];
    let kernel = if gated {
        tensors.extend([input("gate", n, k), input("up", n, k)]);
        "linear_gated"
    } else {
        tensors.extend([input("weight", n, k), TensorSpec::new("bias", storage, [n as usize], Role::Input)]);
        if problem.has("residual") { "linear_residual" } else { "linear" }
    };
    let residual = problem.has("residual").then_some(tensors.len());
    tensors.extend(residual.map(|_| input("residual", m, n)));
    let read_bytes = tensors.iter().map(TensorSpec::allocated_bytes).sum();
    let output = tensors.len();
    tensors.push(TensorSpec::new("y", result, [m as usize, n as usize], Role::Output));

    let only = || Unsupported(format!("linear cuts `{policy}` in one way alone here"));
    let cut = match way {
        Some(way) => cuttable(problem, policy).and_then(|product| product.cut_in(way, machine)).ok_or_else(only)??,
        None => cut([m, n, k], [gated, residual.is_some()], [storage, result], machine),
    };
    let &Cut { compute, tile: [tm, tn, tk], .. } = &cut;
    let mut arguments: Vec<_> = tensors.iter().enumerate().map(|(at, tensor)| (tensor.name, Argument::Tensor(at))).collect();
    arguments.extend([
        ("K", Argument::Int(k as i64)),
        ("ACT", Argument::Int(activation.number())),
        ("COMPUTE", Argument::Type(compute)),
        ("ACC", Argument::Type(acc)),
        ("TM", Argument::Int(tm)),
        ("TN", Argument::Int(tn)),
        ("TK", Argument::Int(tk)),
        ("THIN", Argument::Bool(is_thin(&cut))),
    ]);
    let grid = [blocks(m, tm)?, blocks(n, tn)?, 1];
    let products = if gated { 2 } else { 1 };
    Ok(Plan {
        tensors,
        launches: vec![cut.launch(kernel, arguments, grid)],
        outputs: vec![OutputRows { tensor: output, rows: m as usize, row_len: n as usize, exact: false }],
        work: Work {
            read_bytes,
            write_bytes: packed_bytes(result, m * n),
            flops: 2 * products * m * n * k,
            compute: Some(compute),
            metric: Metric::Compute,
            formula: "2mnk operations a product; inputs read once, y written once",
        },
        exact_lane: false,
        reference: Box::new(Layer { sizes: [m, n, k].map(|extent| extent as usize), gated, activation, residual, result, acc }),
    })
}

fn extents(problem: &Problem) -> [u64; 3] {
    ["rows", "out", "in"].map(|name| problem.get(name))
}

/// Two products of which one gates the other.
fn is_gated(problem: &Problem) -> bool {
    problem.has("swiglu") || problem.has("geglu")
}

/// What the kernel can do.
const MAY: May = May { copy: false, exchange: true, cluster: false, added: false, banded: false };

/// The product of a layer that is cut as one by itself, where that is possible in several ways.
fn cuttable(problem: &Problem, policy: Policy) -> Option<Cuttable> {
    let ([m, n, k], (storage, acc)) = (extents(problem), rows::storage(policy, "linear").ok()?);
    let types = [storage, policy.result().unwrap_or(acc)];
    let alone = !is_gated(problem) && storage != DType::F32;
    alone.then_some(Cuttable {
        sizes: [1, m, n, k],
        types,
        transposed: [false, true],
        may: May { added: problem.has("residual"), ..MAY },
    })
}

/// Sums of a thread of a 32-bit product that leave registers for half as much beside them; of each of two products.
const HELD: [i64; 2] = [32, 24];

/// How a layer is cut into blocks: as the product alone; two products take the tiles of one with all their columns, half of it each.
fn cut([m, n, k]: [u64; 3], [gated, added]: [bool; 2], types: [DType; 2], machine: Machine) -> Cut {
    // Two sums of a tile that is not cut for them take too many registers.
    let may = May { exchange: !gated, added, ..MAY };
    let of = |columns| Cut::of([1, m, columns, k], types, [false, true], may, machine);
    let mut cut = of(n);
    if gated && !is_thin(&cut) {
        cut = of(2 * n);
        cut.tile[1] /= 2;
    }
    // Threads that multiply by themselves hold the sums.
    let warps = cut.choice.filter(|_| cut.compute == DType::F32).map(|choice| i64::from(choice.warps));
    let most = warps.filter(|_| gated || added).map(|warps| HELD[usize::from(gated)] * 32 * warps);
    while most.is_some_and(|most| cut.tile[0] * cut.tile[1] > most) {
        cut.tile[usize::from(cut.tile[1] >= cut.tile[0])] /= 2;
    }
    cut
}

/// Rows of x are columns of the tensor cores' tile.
fn is_thin(cut: &Cut) -> bool {
    cut.choice.is_some_and(|choice| choice.exchanged)
}

struct Layer {
    /// Rows, columns and contraction.
    sizes: [usize; 3],
    gated: bool,
    activation: Activation,
    /// The tensor that is added.
    residual: Option<usize>,
    result: DType,
    acc: DType,
}

/// Sums of a row's products with how far they may be off.
struct Sums {
    exact: Vec<f64>,
    error: Vec<f64>,
}

impl Layer {
    /// The products of rows with a tensor's, and a row that is added to each.
    fn sums(&self, inputs: &dyn Inputs, rows: &[usize], tensor: usize, added: Option<usize>) -> Sums {
        let [m, n, k] = self.sizes;
        let left = Matrix { tensor: 0, base: 0, rows: m, columns: k, transposed: false };
        let right = Matrix { tensor, base: 0, rows: k, columns: n, transposed: true };
        let (mut exact, mut magnitudes) = (vec![0.0; rows.len() * n], vec![0.0; rows.len() * n]);
        matrix::product(inputs, (&left, rows, &right), &mut exact, &mut magnitudes);
        if let Some(added) = added {
            let mut row = vec![0.0; n];
            inputs.numbers(added, 0, &mut row);
            for (at, (exact, magnitude)) in exact.iter_mut().zip(&mut magnitudes).enumerate() {
                *exact += row[at % n];
                *magnitude += row[at % n].abs();
            }
        }
        let model = ErrorModel::nearest(self.acc, self.acc);
        let error = exact.iter().zip(&magnitudes).map(|(sum, magnitude)| model.contraction(*sum, *magnitude, k + 1)).collect();
        Sums { exact, error }
    }

    /// The function of a sum, and how far it may be off before it is rounded to the result's type.
    fn activated(&self, sum: f64, error: f64) -> (f64, f64) {
        // Instructions for powers and reciprocals are off by some units, and flush what is smaller than normal numbers.
        const ULPS: f64 = 8.0;
        let (value, z) = self.activation.at(sum);
        let unit = tessera_types::unit_roundoff(self.acc);
        let own = ULPS * unit * (1.0 + z.abs()) * value.abs() + f64::from(f32::MIN_POSITIVE) * (1.0 + sum.abs());
        (value, self.activation.slope() * error + if self.activation == Activation::Identity { 0.0 } else { own })
    }

    fn answer(&self, inputs: &dyn Inputs, rows: &[usize], expected: Expected<'_>) {
        let Expected::Bounded { want, bound } = expected else { return };
        let (n, out) = (self.sizes[1], ErrorModel::nearest(self.result, self.acc));
        let sums = self.sums(inputs, rows, 1, (!self.gated).then_some(2));
        let ups = self.gated.then(|| self.sums(inputs, rows, 2, None));
        let row = |(at, (want, bound)): (usize, (&mut [f64], &mut [f64]))| {
            let mut added = vec![0.0; n];
            if let Some(residual) = self.residual {
                inputs.numbers(residual, rows[at] * n, &mut added);
            }
            for j in 0..n {
                let place = at * n + j;
                let (mut value, mut error) = self.activated(sums.exact[place], sums.error[place]);
                if let Some(ups) = &ups {
                    let (up, off) = (ups.exact[place], ups.error[place]);
                    error = error * (up.abs() + off) + value.abs() * off;
                    value *= up;
                }
                value += added[j];
                error += tessera_types::unit_roundoff(self.acc) * value.abs();
                want[j] = storable(self.result, value);
                bound[j] = error + out.u_out * (value.abs() + error) + out.floor;
            }
        };
        want.par_chunks_mut(n).zip(bound.par_chunks_mut(n)).enumerate().for_each(row);
    }
}

impl Reference for Layer {
    fn rows(&self, inputs: &dyn Inputs, _output: usize, rows: Range<usize>, expected: Expected<'_>) {
        self.answer(inputs, &rows.collect::<Vec<_>>(), expected);
    }

    fn scattered(&self, inputs: &dyn Inputs, _output: usize, _row_len: usize, rows: &[Range<usize>], expected: Expected<'_>) {
        self.answer(inputs, &rows.iter().cloned().flatten().collect::<Vec<_>>(), expected);
    }
}
