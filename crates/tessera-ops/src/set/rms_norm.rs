//! Root-mean-square normalisation over the last axis (Zhang and Sennrich, 2019), with weight.

use std::ops::Range;

use rayon::prelude::*;
use tessera_types::{DType, ErrorModel, Policy, RowMoments};

use crate::element::{storable, underflow};
use crate::operator::{
    Argument, Expected, Inputs, LaunchSpec, Operator, OutputRows, Plan, Reference, Role, TensorSpec, Unsupported,
};
use crate::problem::Problem;
use crate::set::rows::{self, EPS};
use crate::work::{Metric, Work, packed_bytes};

pub(crate) static RMS_NORM: Operator = Operator {
    name: "rms_norm",
    about: "root-mean-square normalisation over the last axis, with weight",
    file: "rms_norm.py",
    source: include_str!("../../../../kernels/rms_norm.py"),
    precisions: &["fp32", "fp16", "bf16", "fp8_e4m3@accum(fp32)", "fp8_e5m2@accum(fp32)"],
    further_precisions: &["fp64"],
    suite: Vec::new,
    further_suite: rows::norm_suite,
    quick: || rows::norm_quick(RMS_NORM.precisions),
    edges: rows::norm_edges,
    plan,
};

fn plan(problem: &Problem, policy: Policy) -> Result<Plan, Unsupported> {
    let (storage, acc) = rows::storage(policy, "rms_norm")?;
    let (count, n) = rows::norm_extents(problem);
    let tensors = vec![
        TensorSpec::new("x", storage, [count, n], Role::Input),
        TensorSpec::new("weight", storage, [n], Role::Input),
        TensorSpec::new("y", storage, [count, n], Role::Output),
    ];
    let per_block = rows::rows_per_block(n);
    Ok(Plan {
        tensors,
        launches: vec![LaunchSpec {
            kernel: "rms_norm",
            arguments: vec![
                ("x", Argument::Tensor(0)),
                ("weight", Argument::Tensor(1)),
                ("y", Argument::Tensor(2)),
                ("eps", Argument::Float(EPS)),
                ("ACC", Argument::Type(acc)),
                ("ROWS", Argument::Int(per_block as i64)),
                ("N", Argument::Int(n as i64)),
            ],
            grid: rows::grid(count, per_block)?,
        }],
        outputs: vec![OutputRows { tensor: 2, rows: count, row_len: n, exact: false }],
        work: Work {
            read_bytes: packed_bytes(storage, (count * n) as u64) + packed_bytes(storage, n as u64),
            write_bytes: packed_bytes(storage, (count * n) as u64),
            flops: 4 * (count * n) as u64,
            compute: None,
            metric: Metric::Bandwidth,
            formula: "x and weight read once, y written once",
        },
        exact_lane: false,
        reference: Box::new(Normalised { n, out: storage, acc }),
    })
}

struct Normalised {
    n: usize,
    out: DType,
    acc: DType,
}

impl Reference for Normalised {
    fn rows(&self, inputs: &dyn Inputs, _output: usize, rows: Range<usize>, expected: Expected<'_>) {
        let Expected::Bounded { want, bound } = expected else { return };
        let n = self.n;
        let mut weight = vec![0.0; n];
        inputs.numbers(1, 0, &mut weight);
        let model = ErrorModel { floor: underflow(self.out), ..ErrorModel::nearest(self.out, self.acc) };
        want.par_chunks_mut(n).zip(bound.par_chunks_mut(n)).enumerate().for_each(|(r, (want, bound))| {
            inputs.numbers(0, (rows.start + r) * n, want);
            let scale = 1.0 / (want.iter().map(|x| x * x).sum::<f64>() / n as f64 + EPS).sqrt();
            let moments = RowMoments { n, mean: 0.0, sd: 1.0 / scale };
            for j in 0..n {
                let exact = want[j] * scale * weight[j];
                bound[j] = model.normalisation(exact, moments, 0.0, 0.0);
                want[j] = storable(self.out, exact);
            }
        });
    }
}
