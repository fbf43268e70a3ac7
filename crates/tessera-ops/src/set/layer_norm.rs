//! Layer normalisation over the last axis (Ba, Kiros and Hinton, 2016), with weight and bias.

use std::ops::Range;

use rayon::prelude::*;
use tessera_types::{DType, ErrorModel, Policy, RowMoments};

use crate::element::{storable, underflow};
use crate::operator::{
    Argument, Expected, Fill, Inputs, LaunchSpec, Operator, OutputRows, Plan, Reference, Role, TensorSpec, Unsupported,
};
use crate::problem::Problem;
use crate::set::rows::{self, EPS};
use crate::work::{Metric, Work, packed_bytes};

pub(crate) static LAYER_NORM: Operator = Operator {
    name: "layer_norm",
    about: "layer normalisation over the last axis, with weight and bias",
    file: "layer_norm.py",
    source: include_str!("../../../../kernels/layer_norm.py"),
    precisions: &["fp32", "fp16", "bf16", "fp8_e4m3@accum(fp32)", "fp8_e5m2@accum(fp32)"],
    further_precisions: &["fp64"],
    suite: rows::norm_suite,
    further_suite: Vec::new,
    quick: || rows::norm_quick(LAYER_NORM.precisions),
    edges: rows::norm_edges,
    plan,
};

fn plan(problem: &Problem, policy: Policy) -> Result<Plan, Unsupported> {
    let (storage, acc) = rows::storage(policy, "layer_norm")?;
    let (count, n) = rows::norm_extents(problem);
    let mut x = TensorSpec::new("x", storage, [count, n], Role::Input);
    // A mean that is not zero: where it is, a variance that cancels would go unseen.
    x.fill = Fill::Normal { mean: 1.0, sd: 1.0 };
    let tensors = vec![
        x,
        TensorSpec::new("weight", storage, [n], Role::Input),
        TensorSpec::new("bias", storage, [n], Role::Input),
        TensorSpec::new("y", storage, [count, n], Role::Output),
    ];
    let per_block = rows::rows_per_block(n);
    Ok(Plan {
        tensors,
        launches: vec![LaunchSpec {
            kernel: "layer_norm",
            arguments: vec![
                ("x", Argument::Tensor(0)),
                ("weight", Argument::Tensor(1)),
                ("bias", Argument::Tensor(2)),
                ("y", Argument::Tensor(3)),
                ("eps", Argument::Float(EPS)),
                ("ACC", Argument::Type(acc)),
                ("ROWS", Argument::Int(per_block as i64)),
                ("N", Argument::Int(n as i64)),
            ],
            grid: rows::grid(count, per_block)?,
        }],
        outputs: vec![OutputRows { tensor: 3, rows: count, row_len: n, exact: false }],
        work: Work {
            read_bytes: packed_bytes(storage, (count * n) as u64) + 2 * packed_bytes(storage, n as u64),
            write_bytes: packed_bytes(storage, (count * n) as u64),
            flops: 8 * (count * n) as u64,
            compute: None,
            metric: Metric::Bandwidth,
            formula: "x, weight and bias read once, y written once",
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
        let mut bias = vec![0.0; n];
        inputs.numbers(1, 0, &mut weight);
        inputs.numbers(2, 0, &mut bias);
        let model = ErrorModel { floor: underflow(self.out), ..ErrorModel::nearest(self.out, self.acc) };
        want.par_chunks_mut(n).zip(bound.par_chunks_mut(n)).enumerate().for_each(|(r, (want, bound))| {
            inputs.numbers(0, (rows.start + r) * n, want);
            let mean = want.iter().sum::<f64>() / n as f64;
            let variance = want.iter().map(|x| (x - mean) * (x - mean)).sum::<f64>() / n as f64;
            let scale = 1.0 / (variance + EPS).sqrt();
            let moments = RowMoments { n, mean, sd: 1.0 / scale };
            for j in 0..n {
                let exact = (want[j] - mean) * scale * weight[j] + bias[j];
                bound[j] = model.normalisation(exact, moments, weight[j], bias[j]);
                want[j] = storable(self.out, exact);
            }
        });
    }
}
