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
use crate::set::alike::{Alike, Block};
use crate::set::pointwise::number_in;
use crate::set::rows::{self, Division};
use crate::signature::{Calls, Operand, Signature};
use crate::work::{Metric, Work, packed_bytes};

/// What is added to a mean square, where a call names no other number, as a kernel takes it that computes in a type.
pub(crate) fn eps(acc: DType) -> f64 {
    number_in(acc, 1e-5)
}

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
    pub(crate) fn parameters(self) -> &'static [&'static str] {
        match self {
            Centre::Mean => &["weight", "bias"],
            Centre::Zero => &["weight"],
        }
    }

    /// The kernel for rows in pieces, and what it leaves of pieces.
    fn in_pieces(self) -> (&'static str, &'static [&'static str]) {
        match self {
            Centre::Mean => ("layer_norm_pieces", &["means", "squares"]),
            Centre::Zero => ("rms_norm_pieces", &["squares"]),
        }
    }

    /// The launch for rows that are divided so, and what it has in memory. `tensors` are the kernel's: input, parameters, output.
    pub(crate) fn launch(
        self,
        kernel: &'static str,
        division: Division,
        tensors: &[TensorSpec],
        [count, n]: [usize; 2],
        acc: DType,
    ) -> Result<(LaunchSpec, Vec<TensorSpec>), Unsupported> {
        let grid = division.grid(count)?;
        let mut arguments = arguments(tensors, n, acc);
        Ok(match division {
            Division::Whole(_) | Division::Cluster { .. } => {
                arguments.extend(division.rows().map(|rows| ("ROWS", Argument::Int(rows as i64))));
                (division.launch(kernel, arguments, grid), Vec::new())
            }
            Division::Pieces(pieces) => {
                let (kernel, words) = self.in_pieces();
                let between = pieces.between(words, acc);
                arguments.extend((tensors.len()..).zip(&between).map(|(at, tensor)| (tensor.name, Argument::Tensor(at))));
                arguments.extend(pieces.constants());
                (division.launch(kernel, arguments, grid), between)
            }
        })
    }
}

/// What a kernel of a norm is given: its arrays, and the numbers of all of them.
pub(crate) fn arguments(tensors: &[TensorSpec], n: usize, acc: DType) -> Vec<(&'static str, Argument)> {
    let mut arguments: Vec<_> = tensors.iter().enumerate().map(|(at, tensor)| (tensor.name, Argument::Tensor(at))).collect();
    arguments.extend([("eps", Argument::Float(eps(acc))), ("ACC", Argument::Type(acc)), ("N", Argument::Int(n as i64))]);
    arguments
}

/// Blocks for rows that are no whole vectors, in the order in which they are tried, as they were measured: the next row on its way, as long as registers
/// hold it, is faster than more blocks.
const ALIKE: &[Block] = &[
    Block::new(1, 32, 12, true),
    Block::new(4, 24, 4, true),
    Block::new(4, 40, 3, true),
    Block::new(8, 24, 2, true),
    Block::new(8, 40, 4, false),
    Block::new(16, 40, 2, false),
];
const ALIKE_CENTRED: &[Block] = &[
    Block::new(1, 32, 12, true),
    Block::new(4, 40, 3, true),
    Block::new(8, 24, 2, true),
    Block::new(8, 40, 2, false),
    Block::new(16, 40, 1, false),
];

/// How a norm is called: rows of any shape, with what is common to them.
pub(crate) const fn calls(centre: Centre) -> Calls {
    Calls {
        variants: &[""],
        default: Some(""),
        signature: match centre {
            Centre::Mean => |_| {
                let inputs = &[Operand("x", "..rows hidden"), Operand("weight", "hidden"), Operand("bias", "hidden")];
                Signature::new(inputs, &[Operand("y", "..rows hidden")]).scalars(&["eps"])
            },
            Centre::Zero => |_| {
                let inputs = &[Operand("x", "..rows hidden"), Operand("weight", "hidden")];
                Signature::new(inputs, &[Operand("y", "..rows hidden")]).scalars(&["eps"])
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
    let (of_blocks, alike) = match centre {
        Centre::Mean => (ALIKE_CENTRED, "layer_norm_alike"),
        Centre::Zero => (ALIKE, "rms_norm_alike"),
    };
    let launch = match Alike::of(of_blocks, n, (storage, acc), machine) {
        Some(rows) => rows.launch(alike, arguments(&tensors, n, acc), count)?,
        None => {
            let division = Division::of(count, n, storage, machine);
            let (launch, between) = centre.launch(kernel, division, &tensors, [count, n], acc)?;
            tensors.extend(between);
            launch
        }
    };
    let elements = (count * n) as u64;
    Ok(Plan {
        outputs: vec![OutputRows { tensor: output, rows: count, row_len: n, exact: false }],
        tensors,
        launches: vec![launch],
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
            let scale = 1.0 / (square + eps(self.acc)).sqrt();
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

pub(crate) fn problem(batch: u64, sequence: u64, hidden: u64) -> Problem {
    Problem::new(&[("batch", batch), ("sequence", sequence), ("hidden", hidden)], "")
}

/// Rows and row length of a norm's problem.
pub(crate) fn extents(problem: &Problem) -> (usize, usize) {
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
    // More than the registers of a block hold in the widest precisions, and in any; what a cluster takes; more than its registers hold.
    let long = [16500, 32768, 33001, 66000].map(|n| problem(1, 2, n));
    lengths.chain(long).chain([65536, 131_200].map(|n| problem(1, 1, n))).collect()
}
