//! A residual and a norm behind it: `sum = x + residual`, and the norm of that as it is stored. Problems are those of the norms.

use std::ops::Range;

use rayon::prelude::*;
use tessera_types::{DType, ErrorModel, FloatFormat, Policy, RowMoments};

use crate::element::{storable, sum, underflow};
use crate::operator::{
    Argument, Expected, Fill, Inputs, KernelFile, LaunchSpec, Machine, Operator, OutputRows, Plan, Reference, Role, TensorSpec,
    Unsupported,
};
use crate::problem::Problem;
use crate::set::alike::{Alike, Block};
use crate::set::norm::{self, Centre, eps};
use crate::set::norm_backward::{ADD_LAYER_NORM_BACKWARD, ADD_RMS_NORM_BACKWARD};
use crate::set::rows::{self, Division};
use crate::signature::{Calls, Operand, Signature};
use crate::work::{Metric, Work, packed_bytes};

pub(crate) static ADD_RMS_NORM: Operator = Operator {
    name: "add_rms_norm",
    about: "x + residual, and root-mean-square normalisation of the sum",
    file: "add_norm.py",
    source: include_str!("../../kernels/add_norm.py"),
    precisions: &["fp32", "fp16", "bf16"],
    further_precisions: &["fp64", "fp8_e4m3@accum(fp32)", "fp8_e5m2@accum(fp32)"],
    suite: Vec::new,
    further_suite,
    quick: || norm::quick(ADD_RMS_NORM.precisions),
    edges: norm::edges,
    draw: norm::draw,
    calls: Calls { signature: |_| Signature::new(INPUTS.split_at(3).0, &RESULTS).scalars(&["eps"]), ..norm::calls(Centre::Zero) },
    numbers: &[],
    plan: |problem, policy, machine| plan("add_rms_norm", Centre::Zero, problem, policy, machine),
    ways: None,
    gradient: Some(&ADD_RMS_NORM_BACKWARD),
    no_specials: None,
    ladder: &[],
};

pub(crate) static ADD_LAYER_NORM: Operator = Operator {
    name: "add_layer_norm",
    about: "x + residual, and layer normalisation of the sum",
    file: "add_norm.py",
    source: include_str!("../../kernels/add_norm.py"),
    precisions: &["fp32", "fp16", "bf16"],
    further_precisions: &["fp64", "fp8_e4m3@accum(fp32)", "fp8_e5m2@accum(fp32)"],
    suite: Vec::new,
    further_suite,
    quick: || norm::quick(ADD_LAYER_NORM.precisions),
    edges: norm::edges,
    draw: norm::draw,
    calls: Calls { signature: |_| Signature::new(&INPUTS, &RESULTS).scalars(&["eps"]), ..norm::calls(Centre::Mean) },
    numbers: &[],
    plan: |problem, policy, machine| plan("add_layer_norm", Centre::Mean, problem, policy, machine),
    ways: None,
    gradient: Some(&ADD_LAYER_NORM_BACKWARD),
    no_specials: None,
    ladder: &[],
};

/// Blocks for rows that are no whole vectors, in the order in which they are tried: what the norms' have, with registers for a second row.
const ALIKE: &[Block] = &[
    Block::new(1, 32, 12, true),
    Block::new(4, 24, 4, true),
    Block::new(4, 40, 3, true),
    Block::new(8, 24, 2, true),
    Block::new(8, 40, 2, false),
    Block::new(16, 40, 1, false),
];
const ALIKE_CENTRED: &[Block] = &[
    Block::new(1, 32, 12, true),
    Block::new(4, 24, 3, true),
    Block::new(4, 40, 2, true),
    Block::new(8, 24, 2, true),
    Block::new(8, 40, 1, false),
    Block::new(16, 24, 1, false),
];

/// Those of layer norm; RMS norm has no bias.
static INPUTS: [Operand; 4] =
    [Operand("x", "..rows hidden"), Operand("residual", "..rows hidden"), Operand("weight", "hidden"), Operand("bias", "hidden")];
static RESULTS: [Operand; 2] = [Operand("sum", "..rows hidden"), Operand("y", "..rows hidden")];

/// Where the norms' kernels for rows in pieces stand.
fn file_of(centre: Centre) -> KernelFile {
    match centre {
        Centre::Mean => KernelFile { name: "layer_norm.py", text: include_str!("../../kernels/layer_norm.py") },
        Centre::Zero => KernelFile { name: "rms_norm.py", text: include_str!("../../kernels/rms_norm.py") },
    }
}

/// Tokens of language models.
fn further_suite() -> Vec<Problem> {
    [(8192, 4096), (4096, 8192), (16384, 2048), (2048, 11008)]
        .map(|(sequence, hidden)| Problem::new(&[("batch", 1), ("sequence", sequence), ("hidden", hidden)], ""))
        .into()
}

fn plan(kernel: &'static str, centre: Centre, problem: &Problem, policy: Policy, machine: Machine) -> Result<Plan, Unsupported> {
    let (storage, acc) = rows::storage(policy, kernel)?;
    let (count, n) = norm::extents(problem);
    let spec = |name, shape: &[usize], role| TensorSpec::new(name, storage, shape, role);
    let (flops, formula) = match centre {
        Centre::Mean => (9, "x, residual, weight and bias read once, sum and y written once"),
        Centre::Zero => (5, "x, residual and weight read once, sum and y written once"),
    };
    // A mean that is not zero: where it is, a variance that cancels would go unseen.
    let fill = if centre == Centre::Mean { Fill::Normal { mean: 0.5, sd: 1.0 } } else { Fill::NORMAL };
    let parameters = centre.parameters();
    let mut tensors = ["x", "residual"].map(|name| TensorSpec { fill, ..spec(name, &[count, n], Role::Input) }).to_vec();
    tensors.extend(parameters.iter().map(|name| spec(name, &[n], Role::Input)));
    tensors.extend(["sum", "y"].map(|name| spec(name, &[count, n], Role::Output)));
    let stored = tensors.len() - 2;
    let (of_blocks, alike) = match centre {
        Centre::Mean => (ALIKE_CENTRED, "add_layer_norm_alike"),
        Centre::Zero => (ALIKE, "add_rms_norm_alike"),
    };
    let division = Division::of(count, n, storage, machine);
    let launches = match (Alike::of(of_blocks, n, (storage, acc), machine), division) {
        (Some(rows), _) => vec![rows.launch(alike, norm::arguments(&tensors, n, acc), count)?],
        (None, Division::Whole(_) | Division::Cluster { .. }) => {
            vec![centre.launch(kernel, division, &tensors, [count, n], acc)?.0]
        }
        (None, Division::Pieces(pieces)) => {
            let named = |at: usize| (tensors[at].name, Argument::Tensor(at));
            let mut arguments = vec![named(0), named(1), named(stored), ("ACC", Argument::Type(acc))];
            arguments.extend(pieces.constants().into_iter().filter(|(name, _)| *name == "CHUNK"));
            let add = LaunchSpec::new("add", arguments, rows::grid(pieces.all(), 1)?);
            // The norm's own arrays, of which the sum is the first, and those between its pieces.
            let mut own: Vec<TensorSpec> = vec![TensorSpec { name: "x", ..tensors[stored].clone() }];
            own.extend_from_slice(&tensors[2..stored]);
            own.push(tensors[stored + 1].clone());
            let (mut launch, between) = centre.launch(kernel, division, &own, [count, n], acc)?;
            let places: Vec<usize> =
                [stored].into_iter().chain(2..stored).chain(stored + 1..tensors.len() + between.len()).collect();
            for (_, argument) in &mut launch.arguments {
                if let Argument::Tensor(at) = argument {
                    *at = places[*at];
                }
            }
            tensors.extend(between);
            vec![add, launch.of_file(file_of(centre))]
        }
    };
    let bytes = packed_bytes(storage, (count * n) as u64);
    let output = |tensor, exact| OutputRows { tensor, rows: count, row_len: n, exact };
    Ok(Plan {
        outputs: vec![output(stored, true), output(stored + 1, false)],
        tensors,
        launches,
        work: Work {
            read_bytes: 2 * bytes + parameters.len() as u64 * packed_bytes(storage, n as u64),
            write_bytes: 2 * bytes,
            flops: flops * (count * n) as u64,
            compute: None,
            metric: Metric::Bandwidth,
            formula,
        },
        exact_lane: false,
        reference: Box::new(Added { centre, n, out: storage, acc }),
    })
}

struct Added {
    centre: Centre,
    n: usize,
    out: DType,
    acc: DType,
}

impl Added {
    /// A row of the sum as it is stored: rounded in the arithmetic's type, then in the storage's.
    fn stored(&self, inputs: &dyn Inputs, row: usize, codes: &mut [u64]) {
        let format = FloatFormat::of(self.out).expect("norms are of floats");
        let (mut x, mut residual) = (vec![0.0; self.n], vec![0.0; self.n]);
        inputs.numbers(0, row * self.n, &mut x);
        inputs.numbers(1, row * self.n, &mut residual);
        for ((code, x), residual) in codes.iter_mut().zip(x).zip(residual) {
            let sum = if self.acc == DType::F64 { x + residual } else { f64::from(x as f32 + residual as f32) };
            *code = format.encode_nearest(sum);
        }
    }
}

impl Reference for Added {
    fn rows(&self, inputs: &dyn Inputs, _output: usize, rows: Range<usize>, expected: Expected<'_>) {
        let n = self.n;
        let (want, bound) = match expected {
            Expected::Codes(codes) => {
                codes.par_chunks_mut(n).enumerate().for_each(|(r, codes)| self.stored(inputs, rows.start + r, codes));
                return;
            }
            Expected::Bounded { want, bound } => (want, bound),
        };
        let format = FloatFormat::of(self.out).expect("norms are of floats");
        let (mut weight, mut bias) = (vec![0.0; n], vec![0.0; n]);
        inputs.numbers(2, 0, &mut weight);
        if self.centre == Centre::Mean {
            inputs.numbers(3, 0, &mut bias);
        }
        let model = ErrorModel { floor: underflow(self.out), ..ErrorModel::nearest(self.out, self.acc) };
        want.par_chunks_mut(n).zip(bound.par_chunks_mut(n)).enumerate().for_each(|(r, (want, bound))| {
            let mut codes = vec![0; n];
            self.stored(inputs, rows.start + r, &mut codes);
            want.iter_mut().zip(codes).for_each(|(want, code)| *want = format.decode(code));
            let mean = if self.centre == Centre::Mean { sum(want.iter().copied()) / n as f64 } else { 0.0 };
            let square = sum(want.iter().map(|v| (v - mean) * (v - mean))) / n as f64;
            let sd = (square + eps(self.acc)).sqrt();
            for ((want, bound), (weight, bias)) in want.iter_mut().zip(bound).zip(weight.iter().zip(&bias)) {
                let exact = (*want - mean) / sd * weight + bias;
                *bound = match self.centre {
                    Centre::Mean => model.normalisation(exact, RowMoments { n, mean, sd }, *weight, *bias),
                    // Nothing is subtracted, so nothing cancels: the error is relative.
                    Centre::Zero => model.normalisation(exact, RowMoments { n, mean, sd }, 0.0, 0.0),
                };
                *want = storable(self.out, exact);
            }
        });
    }
}
