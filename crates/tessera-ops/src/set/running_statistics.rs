//! Running statistics of channels, which follow those of a batch: `running += momentum * (batch - running)`.

use std::ops::Range;

use tessera_types::{DType, Policy, unit_roundoff};

use crate::draw::Draw;
use crate::operator::{
    Argument, Expected, Fill, Inputs, LaunchSpec, Machine, Operator, OutputRows, Plan, Reference, Role, TensorSpec, Unsupported,
};
use crate::problem::Problem;
use crate::set::norm;
use crate::set::pointwise::number_in;
use crate::set::rows;
use crate::set::rowwise::int;
use crate::signature::{Calls, Operand, Signature};
use crate::work::{Metric, Work, packed_bytes};

pub(crate) static RUNNING_STATISTICS: Operator = Operator {
    name: "running_statistics",
    about: "moves running means and variances of channels towards those of a batch",
    file: "channel_norm.py",
    source: include_str!("../../kernels/channel_norm.py"),
    precisions: &["fp32"],
    further_precisions: &["fp64"],
    suite: Vec::new,
    further_suite: || [64, 2048].map(problem).to_vec(),
    quick: || vec![(problem(512), "fp32")],
    edges: || {
        // A variance of five elements, beside those that are taken as they are.
        let of_five = Problem::new(&[("channels", 100)], "unbiased=1.25");
        [1, 31, 997, 1025].map(problem).into_iter().chain([of_five]).collect()
    },
    draw: |draw: &mut Draw<'_>| problem(draw.extent(4096)),
    calls: Calls {
        variants: &[""],
        default: Some(""),
        signature: |_| {
            const OUTPUTS: &[Operand] = &[Operand("running_mean", "channels"), Operand("running_var", "channels")];
            let signature = Signature::new(&[Operand("mean", "channels"), Operand("rstd", "channels")], OUTPUTS);
            signature.updated(&["running_mean", "running_var"]).scalars(&["momentum", "unbiased", "eps"])
        },
        problem: |sizes| Ok(problem(sizes.get("channels"))),
    },
    numbers: &[UNBIASED],
    plan,
    ways: None,
    gradient: None,
    no_specials: None,
    ladder: &[],
};

/// The batch's part, where a call names no other.
const MOMENTUM: f64 = 0.1;
/// What a batch's variance is multiplied by: a number of the problem, and of a call.
const UNBIASED: (&str, f64) = ("unbiased", 1.0);
/// Channels of a block.
const TILE: usize = 1024;

fn problem(channels: u64) -> Problem {
    Problem::new(&[("channels", channels)], "")
}

fn plan(problem: &Problem, policy: Policy, _machine: Machine) -> Result<Plan, Unsupported> {
    let (storage, acc) = rows::storage(policy, "running_statistics")?;
    let n = problem.get("channels") as usize;
    let unbiased = number_in(acc, problem.number(UNBIASED.0).unwrap_or(UNBIASED.1));
    let (momentum, eps) = (number_in(acc, MOMENTUM), norm::eps(acc));
    let array = |name, role| TensorSpec::new(name, storage, [n], role);
    // Reciprocals of roots are positive.
    let rstd = TensorSpec { fill: Fill::Normal { mean: 2.0, sd: 0.1 }, ..array("rstd", Role::Input) };
    let tensors = vec![array("mean", Role::Input), rstd, array("running_mean", Role::InOut), array("running_var", Role::InOut)];
    let mut arguments = rows::arrays(&tensors, &["mean", "rstd", "running_mean", "running_var"]);
    arguments.extend(
        [("momentum", momentum), ("unbiased", unbiased), ("eps", eps)].map(|(name, value)| (name, Argument::Float(value))),
    );
    arguments.extend([("ACC", Argument::Type(acc)), int("TILE", TILE)]);
    let outputs = [2, 3].map(|tensor| OutputRows { tensor, rows: n, row_len: 1, exact: false }).to_vec();
    let bytes = packed_bytes(storage, n as u64);
    Ok(Plan {
        launches: vec![LaunchSpec::new("running_statistics", arguments, rows::grid(n, TILE)?)],
        tensors,
        outputs,
        work: Work {
            read_bytes: 4 * bytes,
            write_bytes: 2 * bytes,
            flops: 9 * n as u64,
            compute: None,
            metric: Metric::Bandwidth,
            formula: "four arrays read, two written",
        },
        exact_lane: false,
        reference: Box::new(Followed { unbiased, acc }),
    })
}

struct Followed {
    unbiased: f64,
    acc: DType,
}

impl Reference for Followed {
    fn rows(&self, inputs: &dyn Inputs, output: usize, rows: Range<usize>, expected: Expected<'_>) {
        let Expected::Bounded { want, bound } = expected else { return };
        let u = unit_roundoff(self.acc);
        let mut batch = vec![0.0; rows.len()];
        inputs.numbers(output, rows.start, &mut batch);
        inputs.numbers(2 + output, rows.start, want);
        for ((want, bound), batch) in want.iter_mut().zip(bound).zip(batch) {
            // A variance is a square's reciprocal less eps, times a number: five roundings.
            let square = 1.0 / (batch * batch);
            let (value, error) = if output == 0 {
                (batch, 0.0)
            } else {
                let eps = norm::eps(self.acc);
                ((square - eps) * self.unbiased, 5.0 * u * (square + eps) * self.unbiased.abs())
            };
            let exact = *want + (value - *want) * number_in(self.acc, MOMENTUM);
            *bound = 4.0 * u * (want.abs() + value.abs()) + error;
            *want = exact;
        }
    }
}
