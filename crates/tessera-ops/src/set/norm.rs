//! The norms: `(x - c) / sqrt(mean((x - c)^2) + eps) * weight + bias` over the last axis, where `c` is the row's mean (layer norm) or
//! zero (RMS norm, which has no bias). Both have the same problems: batch x sequence rows of the hidden size.

use std::ops::Range;

use rayon::prelude::*;
use tessera_types::{DType, ErrorModel, Policy, RowMoments};

use crate::draw::Draw;
use crate::element::{storable, sum, underflow};
use crate::operator::{
    Argument, Expected, Fill, Inputs, LaunchSpec, Machine, OutputRows, Plan, Reference, Role, TensorSpec, Unsupported,
};
use crate::problem::Problem;
use crate::set::rows::{self, Division};
use crate::signature::{Calls, Operand, Signature};
use crate::work::{Metric, Work, packed_bytes};

/// Added to the mean square. Kernels take it as a run-time scalar, which has 32 bits in every precision.
const EPS: f64 = 1e-5_f32 as f64;

/// What deviations are measured from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Centre {
    /// The row's mean; a bias is added.
    Mean,
    /// Zero; there is no bias.
    Zero,
}

impl Centre {
    /// Names of the arrays of one row, in the kernel's order.
    fn parameters(self) -> &'static [&'static str] {
        match self {
            Centre::Mean => &["weight", "bias"],
            Centre::Zero => &["weight"],
        }
    }

    /// Kernels for rows that a block takes in turn, for parts of shared rows and for what becomes of those; and what lies between.
    fn in_pieces(self) -> ([&'static str; 3], &'static [&'static str]) {
        match self {
            Centre::Mean => (["layer_norm_wide", "layer_norm_parts", "layer_norm_join"], &["means", "squares"]),
            Centre::Zero => (["rms_norm_wide", "rms_norm_parts", "rms_norm_join"], &["squares"]),
        }
    }

    /// The launches for rows that are divided so, and the tensors between them. `tensors` are the kernel's: input, parameters, output.
    fn launches(
        self,
        kernel: &'static str,
        division: Division,
        tensors: &[TensorSpec],
        [count, n]: [usize; 2],
        acc: DType,
    ) -> Result<(Vec<LaunchSpec>, Vec<TensorSpec>), Unsupported> {
        let grid = division.grid(count, n)?;
        let named: Vec<_> = tensors.iter().enumerate().map(|(at, tensor)| (tensor.name, Argument::Tensor(at))).collect();
        let (eps, accumulator) = (("eps", Argument::Float(EPS)), ("ACC", Argument::Type(acc)));
        let number = |name, number: usize| (name, Argument::Int(number as i64));
        let ([in_turn, parts, join], between) = self.in_pieces();
        let whole = |kernel, constant| {
            let arguments = [&named[..], &[eps, accumulator, constant, number("N", n)]].concat();
            (vec![LaunchSpec::new(kernel, arguments, grid)], Vec::new())
        };
        Ok(match division {
            Division::Whole(rows) => whole(kernel, number("ROWS", rows)),
            Division::InTurn(piece) => whole(in_turn, number("CHUNK", piece)),
            Division::Shared(piece) => {
                let pieces = n.div_ceil(piece);
                let partial = between.iter().map(|name| TensorSpec::new(name, acc, [count, pieces], Role::Workspace));
                let places: Vec<_> = between.iter().zip(named.len()..).map(|(&name, at)| (name, Argument::Tensor(at))).collect();
                let sizes = [number("CHUNK", piece), number("PIECES", pieces), number("N", n)];
                let (inputs, output) = named.split_at(named.len() - 1);
                let known = if self == Centre::Mean { vec![sizes[0], sizes[2]] } else { vec![sizes[0]] };
                let first = [&inputs[..1], &places, &[accumulator], &known].concat();
                let second = [inputs, &places, output, &[eps, accumulator], &sizes].concat();
                let launch = |kernel, arguments| LaunchSpec::new(kernel, arguments, grid);
                (vec![launch(parts, first), launch(join, second)], partial.collect())
            }
        })
    }
}

/// How a norm is called: rows of any shape, with what is common to them.
pub(crate) const fn calls(centre: Centre) -> Calls {
    Calls {
        variants: &[""],
        default: Some(""),
        signature: match centre {
            Centre::Mean => |_| {
                let inputs = &[Operand("x", "..rows hidden"), Operand("weight", "hidden"), Operand("bias", "hidden")];
                Signature::new(inputs, Operand("y", "..rows hidden")).scalars(&["eps"])
            },
            Centre::Zero => |_| {
                let inputs = &[Operand("x", "..rows hidden"), Operand("weight", "hidden")];
                Signature::new(inputs, Operand("y", "..rows hidden")).scalars(&["eps"])
            },
        },
        problem: |sizes| Ok(problem(1, sizes.get("rows"), sizes.get("hidden"))),
    }
}

/// The plan of the norm whose kernel has this name.
pub(crate) fn plan(
    kernel: &'static str,
    centre: Centre,
    problem: &Problem,
    policy: Policy,
    machine: Machine,
) -> Result<Plan, Unsupported> {
    let (storage, acc) = rows::storage(policy, kernel)?;
    let (count, n) = extents(problem);
    let mut x = TensorSpec::new("x", storage, [count, n], Role::Input);
    let (flops, formula) = match centre {
        Centre::Mean => {
            // A mean that is not zero: where it is, a variance that cancels would go unseen.
            x.fill = Fill::Normal { mean: 1.0, sd: 1.0 };
            (8, "x, weight and bias read once, y written once")
        }
        Centre::Zero => (4, "x and weight read once, y written once"),
    };
    let parameters = centre.parameters();
    let mut tensors = vec![x];
    tensors.extend(parameters.iter().map(|name| TensorSpec::new(name, storage, [n], Role::Input)));
    tensors.push(TensorSpec::new("y", storage, [count, n], Role::Output));
    let output = tensors.len() - 1;
    let (launches, partial) = centre.launches(kernel, Division::of(count, n, storage, machine), &tensors, [count, n], acc)?;
    tensors.extend(partial);
    let elements = (count * n) as u64;
    Ok(Plan {
        outputs: vec![OutputRows { tensor: output, rows: count, row_len: n, exact: false }],
        tensors,
        launches,
        work: Work {
            read_bytes: packed_bytes(storage, elements) + parameters.len() as u64 * packed_bytes(storage, n as u64),
            write_bytes: packed_bytes(storage, elements),
            flops: flops * elements,
            compute: None,
            metric: Metric::Bandwidth,
            formula,
        },
        exact_lane: false,
        reference: Box::new(Normalised { centre, n, out: storage, acc }),
    })
}

struct Normalised {
    centre: Centre,
    n: usize,
    out: DType,
    acc: DType,
}

impl Reference for Normalised {
    fn rows(&self, inputs: &dyn Inputs, _output: usize, rows: Range<usize>, expected: Expected<'_>) {
        let Expected::Bounded { want, bound } = expected else { return };
        let n = self.n;
        let mut weight = vec![0.0; n];
        let mut bias = vec![0.0; n];
        inputs.numbers(1, 0, &mut weight);
        if self.centre == Centre::Mean {
            inputs.numbers(2, 0, &mut bias);
        }
        let model = ErrorModel { floor: underflow(self.out), ..ErrorModel::nearest(self.out, self.acc) };
        want.par_chunks_mut(n).zip(bound.par_chunks_mut(n)).enumerate().for_each(|(r, (want, bound))| {
            inputs.numbers(0, (rows.start + r) * n, want);
            let mean = match self.centre {
                Centre::Mean => sum(want.iter().copied()) / n as f64,
                Centre::Zero => 0.0,
            };
            let square = sum(want.iter().map(|x| (x - mean) * (x - mean))) / n as f64;
            let scale = 1.0 / (square + EPS).sqrt();
            let moments = RowMoments { n, mean, sd: 1.0 / scale };
            for j in 0..n {
                let exact = (want[j] - mean) * scale * weight[j] + bias[j];
                bound[j] = match self.centre {
                    Centre::Mean => model.normalisation(exact, moments, weight[j], bias[j]),
                    // Nothing is subtracted, so nothing cancels: the error is relative.
                    Centre::Zero => model.normalisation(exact, moments, 0.0, 0.0),
                };
                want[j] = storable(self.out, exact);
            }
        });
    }
}

fn problem(batch: u64, sequence: u64, hidden: u64) -> Problem {
    Problem::new(&[("batch", batch), ("sequence", sequence), ("hidden", hidden)], "")
}

/// Rows and row length of a norm's problem.
fn extents(problem: &Problem) -> (usize, usize) {
    ((problem.get("batch") * problem.get("sequence")) as usize, problem.get("hidden") as usize)
}

/// Hidden sizes of language models, sequences and batches, up to 2^30 elements: 322 cases.
pub(crate) fn suite() -> Vec<Problem> {
    let mut cases = Vec::new();
    for hidden in [768, 1024, 1536, 2048, 4096, 8192, 11008] {
        for sequence in [128, 256, 512, 1024, 2048, 4096, 8192] {
            for batch in [1, 4, 8, 16, 32, 64, 128] {
                if batch * sequence * hidden <= 1 << 30 {
                    cases.push(problem(batch, sequence, hidden));
                }
            }
        }
    }
    cases
}

/// Each precision once.
pub(crate) fn quick(precisions: &'static [&'static str]) -> Vec<(Problem, &'static str)> {
    precisions.iter().map(|&precision| (problem(1, 512, 1024), precision)).collect()
}

/// Rows of any length, also longer than registers hold.
pub(crate) fn draw(draw: &mut Draw<'_>) -> Problem {
    let [hidden, sequence, batch] = draw.extents(draw.elements(), [1 << 17, 4096, 32]);
    problem(batch, sequence, hidden)
}

/// Row lengths around powers of two and vector widths.
pub(crate) fn edges() -> Vec<Problem> {
    let lengths = [1, 2, 7, 31, 64, 100, 1000, 1023, 1025, 4100];
    let lengths = lengths.iter().flat_map(|&n| [problem(1, 1, n), problem(3, 11, n)]);
    // More than registers hold in the widest precisions, in all but packed ones, and in any.
    lengths.chain([problem(1, 2, 16500), problem(1, 2, 33000), problem(1, 2, 66000)]).collect()
}
