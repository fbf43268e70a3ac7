//! Attention forward: O = softmax(Q K^T / sqrt(dim)) V for every head, full or causal, with heads of K and V shared by groups.
//!
//! `group` heads of Q share one of K and V. Causal: query q sees keys up to q + (keys - queries).

use std::ops::Range;

use rayon::prelude::*;
use tessera_types::{DType, ErrorModel, Policy, unit_roundoff};

use crate::draw::Draw;
use crate::element::{storable, underflow};
use crate::operator::{
    Argument, Expected, Inputs, LaunchSpec, Machine, Operator, OutputRows, Plan, Reference, Role, TensorSpec, Unsupported,
};
use crate::problem::Problem;
use crate::set::rows;
use crate::signature::{Calls, Operand, Signature};
use crate::work::{Metric, Work, packed_bytes};

pub(crate) static ATTENTION: Operator = Operator {
    name: "attention",
    about: "attention forward, full or causal, heads of K and V shared by groups",
    file: "attention.py",
    source: include_str!("../../kernels/attention.py"),
    precisions: &["fp16", "bf16"],
    further_precisions: &["fp32"],
    suite: Vec::new,
    further_suite: suite,
    quick,
    edges,
    draw,
    calls: CALLS,
    plan,
};

const CALLS: Calls = Calls {
    variants: &["", "causal"],
    default: Some(""),
    signature: |_| {
        const INPUTS: [Operand; 3] = [
            Operand("Q", "..batch heads queries dim"),
            Operand("K", "..batch shared keys dim"),
            Operand("V", "..batch shared keys dim"),
        ];
        Signature::new(&INPUTS, Operand("O", "..batch heads queries dim")).scalars(&["scale"])
    },
    problem: |sizes| {
        let [batch, heads, shared, queries, keys, dim] =
            ["batch", "heads", "shared", "queries", "keys", "dim"].map(|name| sizes.get(name));
        if shared == 0 || !heads.is_multiple_of(shared) {
            return Err(Unsupported(format!("`Q` has {heads} heads and `K` {shared}: the first are no multiple of the second")));
        }
        Ok(problem(batch, heads, heads / shared, (queries, keys), dim, sizes.variant))
    },
};

fn problem(batch: u64, heads: u64, group: u64, (queries, keys): (u64, u64), dim: u64, variant: &str) -> Problem {
    let sizes = [("batch", batch), ("heads", heads), ("group", group), ("queries", queries), ("keys", keys), ("dim", dim)];
    Problem::new(&sizes, variant)
}

/// 16384 tokens and 2048 columns in all, as attention is commonly measured, and queries against a longer past: 32 cases.
fn suite() -> Vec<Problem> {
    let mut cases = Vec::new();
    for variant in ["", "causal"] {
        for length in [512, 1024, 2048, 4096, 8192] {
            for dim in [64, 128, 256] {
                cases.push(problem(16384 / length, 2048 / dim, 1, (length, length), dim, variant));
            }
        }
        cases.push(problem(4, 32, 8, (128, 8192), 128, variant));
    }
    cases
}

fn quick() -> Vec<(Problem, &'static str)> {
    vec![(problem(1, 2, 1, (256, 320), 128, ""), "fp16"), (problem(1, 2, 2, (256, 256), 64, "causal"), "bf16")]
}

fn edges() -> Vec<Problem> {
    let mut cases = Vec::new();
    for (lengths, dim) in [((1, 1), 64), ((5, 200), 64), ((64, 64), 128), ((127, 129), 128), ((130, 257), 64), ((128, 300), 256)]
    {
        for variant in ["", "causal"] {
            cases.push(problem(1, 2, 1, lengths, dim, variant));
        }
    }
    cases.push(problem(2, 4, 2, (70, 150), 128, "causal"));
    cases
}

/// The reference is the host's: products of its size take the time of a check.
fn draw(draw: &mut Draw<'_>) -> Problem {
    const MOST: u64 = 1 << 28;
    let dim = draw.one_of(&[64, 128, 256]);
    let pairs = draw.operations().min(MOST) / (4 * dim);
    let group = draw.one_of(&[1, 1, 2, 4]);
    let [queries, keys, batch, groups] = draw.extents(pairs / group, [2048, 4096, 3, 4]);
    match draw.once_in(2) {
        true => problem(batch, group * groups, group, (queries.min(keys), queries.max(keys)), dim, "causal"),
        false => problem(batch, group * groups, group, (queries, keys), dim, ""),
    }
}

/// Rows of queries and of keys that a block works on at a time. On a GPU what is summed for them stays in registers: two groups of
/// 64 queries each, and fewer keys where heads are deep.
fn tiles(queries: usize, dim: usize, storage: DType, machine: Machine) -> (i64, i64) {
    match machine {
        Machine::Cpu => (64, 64),
        // Both tiles and the result's lie in shared memory.
        Machine::Gpu(arch) if storage.bits() > 16 => {
            (if dim > 128 && arch.limits().shared_per_sm < 200 << 10 { 16 } else { 32 }, 32)
        }
        Machine::Gpu(arch) if arch.has_wgmma() => (if queries <= 64 { 64 } else { 128 }, if dim <= 128 { 128 } else { 64 }),
        // A warp holds the queries, scores and result of 16 rows.
        Machine::Gpu(_) => (64, if dim <= 64 { 64 } else { 32 }),
    }
}

fn plan(problem: &Problem, policy: Policy, machine: Machine) -> Result<Plan, Unsupported> {
    let (storage, acc) = rows::storage(policy, "attention")?;
    if storage.bits() < 16 || storage == DType::F64 {
        return Err(Unsupported(format!("attention takes no `{policy}`")));
    }
    let [batch, heads, group, queries, keys, dim] =
        ["batch", "heads", "group", "queries", "keys", "dim"].map(|name| problem.get(name) as usize);
    let causal = problem.has("causal");
    if causal && queries > keys {
        return Err(Unsupported("causal attention needs a key for every query".to_string()));
    }
    if group == 0 || !heads.is_multiple_of(group) {
        return Err(Unsupported(format!("{heads} heads are not groups of {group}")));
    }
    let (asked, shared) = ([batch, heads, queries, dim], [batch, heads / group, keys, dim]);
    let tensors = vec![
        TensorSpec::new("Q", storage, asked, Role::Input),
        TensorSpec::new("K", storage, shared, Role::Input),
        TensorSpec::new("V", storage, shared, Role::Input),
        TensorSpec::new("O", storage, asked, Role::Output),
    ];
    let (tm, tn) = tiles(queries, dim, storage, machine);
    let scale = 1.0 / (dim as f64).sqrt();
    let blocks = u32::try_from(queries.div_ceil(tm as usize)).map_err(|_| Unsupported("too many queries".to_string()))?;
    let planes = u32::try_from(batch * heads).ok().filter(|&planes| planes < 1 << 16);
    let planes = planes.ok_or_else(|| Unsupported(format!("{} heads need too many blocks", batch * heads)))?;
    let pairs = if causal { (0..queries).map(|q| (q + keys - queries + 1) as u64).sum() } else { (queries * keys) as u64 };
    let read = (batch * heads * queries * dim + 2 * batch * heads / group * keys * dim) as u64;
    Ok(Plan {
        tensors,
        launches: vec![LaunchSpec::new(
            "attention",
            vec![
                ("Q", Argument::Tensor(0)),
                ("K", Argument::Tensor(1)),
                ("V", Argument::Tensor(2)),
                ("O", Argument::Tensor(3)),
                ("scale", Argument::Float(scale)),
                ("HEADS", Argument::Int(heads as i64)),
                ("GROUP", Argument::Int(group as i64)),
                ("TM", Argument::Int(tm)),
                ("TN", Argument::Int(tn)),
                ("D", Argument::Int(dim as i64)),
                ("CAUSAL", Argument::Bool(causal)),
                ("ACC", Argument::Type(acc)),
            ],
            [blocks, planes, 1],
        )],
        outputs: vec![OutputRows { tensor: 3, rows: batch * heads * queries, row_len: dim, exact: false }],
        work: Work {
            read_bytes: packed_bytes(storage, read),
            write_bytes: packed_bytes(storage, (batch * heads * queries * dim) as u64),
            flops: 4 * (batch * heads * dim) as u64 * pairs,
            compute: Some(storage),
            metric: Metric::Compute,
            formula: "4 dim operations for each pair of a query and a key that it sees",
        },
        exact_lane: false,
        reference: Box::new(Attended { heads, group, queries, keys, dim, causal, scale, storage, acc }),
    })
}

struct Attended {
    heads: usize,
    group: usize,
    queries: usize,
    keys: usize,
    dim: usize,
    causal: bool,
    scale: f64,
    storage: DType,
    acc: DType,
}

impl Attended {
    /// One row: the result and the sum of its terms' magnitudes, from K and V of its head; the largest error of a weight.
    fn row(&self, q: &[f64], kept: usize, k: &[f64], v: &[f64], out: &mut [f64], magnitudes: &mut [f64]) -> f64 {
        let mut weights = vec![0.0; kept];
        let mut error = 0.0f64;
        for (weight, k) in weights.iter_mut().zip(k.chunks_exact(self.dim)) {
            let (mut sum, mut magnitude) = (0.0, 0.0);
            for (q, k) in q.iter().zip(k) {
                sum += q * k;
                magnitude += (q * k).abs();
            }
            *weight = self.scale * sum;
            error = error.max(self.scale * magnitude);
        }
        let largest = weights.iter().copied().fold(f64::NEG_INFINITY, f64::max);
        let mut total = 0.0;
        let mut distance = 0.0f64;
        for weight in &mut weights {
            // What is farther below weighs nothing.
            distance = distance.max((largest - *weight).min(30.0));
            *weight = (*weight - largest).exp();
            total += *weight;
        }
        out.fill(0.0);
        magnitudes.fill(0.0);
        for (weight, v) in weights.iter().zip(v.chunks_exact(self.dim)) {
            for ((out, magnitude), v) in out.iter_mut().zip(magnitudes.iter_mut()).zip(v) {
                *out += weight * v;
                *magnitude += weight * v.abs();
            }
        }
        out.iter_mut().chain(magnitudes.iter_mut()).for_each(|value| *value /= total);
        4.0 * (self.dim as f64).sqrt() * error + 4.0 * (2.0 + distance + largest.abs().min(1e3))
    }

    /// Rows in rising order; a head's K and V are decoded once for all of its rows.
    fn answer(&self, inputs: &dyn Inputs, rows: &[usize], want: &mut [f64], bound: &mut [f64]) {
        let (u, dim) = (unit_roundoff(self.acc), self.dim);
        let model = ErrorModel { floor: underflow(self.storage), ..ErrorModel::nearest(self.storage, self.acc) };
        let mut start = 0;
        for head in rows.chunk_by(|a, b| a / self.queries == b / self.queries) {
            let plane = head[0] / self.queries;
            let base = (plane / self.heads * (self.heads / self.group) + plane % self.heads / self.group) * self.keys * dim;
            let [k, v] = [1, 2].map(|tensor| {
                let mut all = vec![0.0; self.keys * dim];
                inputs.numbers(tensor, base, &mut all);
                all
            });
            let part = start * dim..(start + head.len()) * dim;
            start += head.len();
            let rows = want[part.clone()].par_chunks_mut(dim).zip(bound[part].par_chunks_mut(dim)).zip(head);
            rows.for_each(|((want, bound), &row)| {
                let mut q = vec![0.0; dim];
                inputs.numbers(0, row * dim, &mut q);
                let kept = if self.causal { row % self.queries + self.keys - self.queries + 1 } else { self.keys };
                let weight = u * self.row(&q, kept, &k, &v, want, bound);
                // Weights are rounded to the storage type before the second product; both it and their sum add them up.
                let relative = unit_roundoff(self.storage) + 2.0 * weight + 8.0 * u * (kept as f64).sqrt();
                for (want, bound) in want.iter_mut().zip(bound) {
                    *bound = relative * *bound + model.u_out * want.abs() + model.floor;
                    *want = storable(self.storage, *want);
                }
            });
        }
    }
}

impl Reference for Attended {
    fn rows(&self, inputs: &dyn Inputs, _output: usize, rows: Range<usize>, expected: Expected<'_>) {
        let Expected::Bounded { want, bound } = expected else { return };
        self.answer(inputs, &rows.collect::<Vec<_>>(), want, bound);
    }

    fn scattered(&self, inputs: &dyn Inputs, _output: usize, _row_len: usize, rows: &[Range<usize>], expected: Expected<'_>) {
        let Expected::Bounded { want, bound } = expected else { return };
        self.answer(inputs, &rows.iter().cloned().flatten().collect::<Vec<_>>(), want, bound);
    }
}
