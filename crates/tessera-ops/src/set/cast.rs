//! Elements in another type: floats rounded to the nearest, ties to even, and saturated where the type has no infinity; integers likewise.

use std::ops::Range;

use rayon::prelude::*;
use tessera_types::{DType, FloatFormat, Policy, Storage};

use crate::element::wrap;
use crate::operator::{
    Argument, Expected, Fill, Inputs, LaunchSpec, Machine, Operator, OutputRows, Plan, Reference, Role, TensorSpec, Unsupported,
};
use crate::problem::Problem;
use crate::set::{pointwise, rows};
use crate::signature::{Calls, Operand, Signature};
use crate::work::{Metric, Work, packed_bytes};

pub(crate) static CAST: Operator = Operator {
    name: "cast",
    about: "elements in another type, rounded to the nearest",
    file: "quantise.py",
    source: include_str!("../../kernels/quantise.py"),
    precisions: &["fp32->bf16", "bf16->fp32", "bf16->fp8_e4m3"],
    further_precisions: &[
        "fp32->fp16",
        "fp16->fp32",
        "fp16->bf16",
        "bf16->fp16",
        "fp32->fp8_e4m3",
        "fp32->fp8_e5m2",
        "fp16->fp8_e4m3",
        "fp16->fp8_e5m2",
        "bf16->fp8_e5m2",
        "fp8_e4m3->fp32",
        "fp8_e4m3->bf16",
        "fp8_e4m3->fp16",
        "fp8_e5m2->fp32",
        "fp8_e5m2->bf16",
        "fp8_e5m2->fp16",
        "fp32->int8",
        "bf16->int8",
        "fp16->int8",
        "int8->fp32",
        "int8->bf16",
        "int8->fp16",
        "fp32->fp64",
        "fp64->fp32",
    ],
    suite: Vec::new,
    further_suite: pointwise::further_suite,
    quick: || pointwise::quick(CAST.precisions),
    edges: pointwise::edges,
    draw: pointwise::draw,
    calls: Calls {
        variants: &[""],
        default: Some(""),
        signature: |_| Signature::new(&[Operand("x", "..n")], &[Operand("y", "..n")]),
        problem: |sizes| Ok(pointwise::problem(sizes.get("n"))),
    },
    numbers: &[],
    plan,
    ways: None,
    gradient: None,
    ladder: &[],
};

fn plan(problem: &Problem, policy: Policy, machine: Machine) -> Result<Plan, Unsupported> {
    let (Storage::Plain(from), Some(to)) = (policy.storage(), policy.result()) else {
        return Err(Unsupported(format!("cast says what it gives, as `fp32->bf16`, and `{policy}` does not")));
    };
    CAST.refuse_unlisted(policy)?;
    let n = problem.get("n") as usize;
    let tile = rows::elementwise_tile(n, machine);
    // Some beyond what the narrow types hold.
    let fill =
        if from.is_integer() { Fill::Integers { least: -128, greatest: 127 } } else { Fill::Normal { mean: 0.0, sd: 80.0 } };
    let tensors =
        vec![TensorSpec { fill, ..TensorSpec::new("x", from, [n], Role::Input) }, TensorSpec::new("y", to, [n], Role::Output)];
    let arguments = vec![("x", Argument::Tensor(0)), ("y", Argument::Tensor(1)), ("TILE", Argument::Int(tile as i64))];
    Ok(Plan {
        tensors,
        launches: vec![LaunchSpec::new("cast", arguments, rows::grid(n, tile)?)],
        outputs: vec![OutputRows { tensor: 1, rows: n, row_len: 1, exact: true }],
        work: Work {
            read_bytes: packed_bytes(from, n as u64),
            write_bytes: packed_bytes(to, n as u64),
            flops: n as u64,
            compute: None,
            metric: Metric::Bandwidth,
            formula: "x read once, y written once",
        },
        exact_lane: false,
        reference: Box::new(Converted { to }),
    })
}

struct Converted {
    to: DType,
}

impl Reference for Converted {
    fn rows(&self, inputs: &dyn Inputs, _output: usize, rows: Range<usize>, expected: Expected<'_>) {
        let Expected::Codes(codes) = expected else { return };
        codes.par_chunks_mut(4096).enumerate().for_each(|(piece, codes)| {
            let mut numbers = vec![0.0; codes.len()];
            inputs.numbers(0, rows.start + piece * 4096, &mut numbers);
            for (code, x) in codes.iter_mut().zip(numbers) {
                *code = match FloatFormat::of(self.to) {
                    Some(format) => format.encode_nearest(x),
                    None => wrap(self.to, (x.round_ties_even() as i64).clamp(-128, 127)),
                };
            }
        });
    }
}
