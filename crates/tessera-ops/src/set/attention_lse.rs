//! Attention with the logarithm of each row's sum of exponentials as a second result: what a backward pass and the merging of results over
//! different keys start from.
//!
//! `lse = log(sum over keys of exp(scale * q k))`, in `fp32` (`fp64` beside arrays of `fp64`).

use std::ops::Range;

use rayon::prelude::*;
use tessera_types::{Policy, unit_roundoff};

use super::attention::{self, Attended, Extents};
use super::attention_backward::ATTENTION_BACKWARD;
use super::rows;
use crate::draw::Draw;
use crate::operator::{
    Argument, Expected, Inputs, Machine, Operator, OutputRows, Plan, Reference, Role, TensorSpec, Unsupported,
};
use crate::problem::Problem;
use crate::signature::{Calls, Operand, Signature};
use crate::work::packed_bytes;

pub(crate) static ATTENTION_LSE: Operator = Operator {
    name: "attention_lse",
    about: "attention forward with the logarithms of rows' sums of exponentials, for a backward pass",
    file: "attention.py",
    source: include_str!("../../kernels/attention.py"),
    precisions: &["fp16", "bf16"],
    further_precisions: &["fp32", "fp64"],
    suite: Vec::new,
    further_suite: suite,
    quick,
    edges,
    draw,
    calls: CALLS,
    numbers: &[],
    plan,
    ways: None,
    gradient: Some(&ATTENTION_BACKWARD),
    no_specials: Some("its bounds are of the largest magnitudes of a head, and say nothing where one is infinite"),
    ladder: &[],
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
        const OUTPUTS: [Operand; 2] = [Operand("O", "..batch heads queries dim"), Operand("lse", "..batch heads queries")];
        Signature::new(&INPUTS, &OUTPUTS).scalars(&["scale"]).positive(&["scale"]).sums(&["lse"])
    },
    problem: attention::sizes,
};

/// 16384 tokens and 2048 columns in all: 12 cases.
fn suite() -> Vec<Problem> {
    let lengths = [1024, 4096];
    let of = |variant| {
        lengths.into_iter().flat_map(move |length| {
            [64, 128, 256].map(|dim| attention::problem(16384 / length, 2048 / dim, 1, (length, length), dim, variant))
        })
    };
    of("").chain(of("causal")).collect()
}

fn quick() -> Vec<(Problem, &'static str)> {
    vec![
        (attention::problem(1, 2, 1, (256, 320), 128, ""), "fp16"),
        (attention::problem(1, 2, 2, (256, 256), 64, "causal"), "bf16"),
    ]
}

fn edges() -> Vec<Problem> {
    let lengths = [((1, 1), 64), ((5, 200), 64), ((64, 64), 128), ((127, 129), 128), ((130, 257), 64), ((129, 300), 256)];
    let of = |variant| lengths.map(|(lengths, dim)| attention::problem(1, 2, 1, lengths, dim, variant));
    let mut cases: Vec<Problem> = of("").into_iter().chain(of("causal")).collect();
    cases.push(attention::problem(2, 4, 2, (70, 150), 128, "causal"));
    // More tiles than multiprocessors.
    cases.push(attention::problem(5, 27, 1, (190, 100), 64, ""));
    cases.push(attention::problem(3, 22, 1, (300, 300), 64, "causal"));
    cases
}

fn draw(draw: &mut Draw<'_>) -> Problem {
    const MOST: u64 = 1 << 27;
    let dim = draw.one_of(&[64, 128, 256]);
    let pairs = draw.operations().min(MOST) / (4 * dim);
    let group = draw.one_of(&[1, 1, 2, 3, 4]);
    let [queries, keys, batch, groups] = draw.extents(pairs / group, [2048, 4096, 3, 4]);
    match draw.once_in(2) {
        true => attention::problem(batch, group * groups, group, (queries.min(keys), queries.max(keys)), dim, "causal"),
        false => attention::problem(batch, group * groups, group, (queries, keys), dim, ""),
    }
}

fn plan(problem: &Problem, policy: Policy, machine: Machine) -> Result<Plan, Unsupported> {
    let (storage, acc) = rows::storage(policy, "attention_lse")?;
    if storage.bits() < 16 {
        return Err(Unsupported(format!("attention_lse takes no `{policy}`")));
    }
    let extents = Extents::of(problem)?;
    let Extents { batch, heads, group, queries, keys, dim, .. } = extents;
    let (asked, shared) = ([batch, heads, queries, dim], [batch, heads / group, keys, dim]);
    let tensors = vec![
        TensorSpec::new("Q", storage, asked, Role::Input),
        TensorSpec::new("K", storage, shared, Role::Input),
        TensorSpec::new("V", storage, shared, Role::Input),
        TensorSpec::new("O", storage, asked, Role::Output),
        TensorSpec::new("lse", acc, [batch, heads, queries], Role::Output),
    ];
    let scale = 1.0 / (dim as f64).sqrt();
    let mut work = extents.work(storage);
    work.write_bytes += packed_bytes(acc, extents.rows() as u64);
    Ok(Plan {
        tensors,
        launches: vec![attention::many(&extents, (storage, machine), (scale, acc), Some(Argument::Tensor(4)))?],
        outputs: vec![
            OutputRows { tensor: 3, rows: extents.rows(), row_len: dim, exact: false },
            OutputRows { tensor: 4, rows: extents.rows(), row_len: 1, exact: false },
        ],
        work,
        exact_lane: false,
        reference: Box::new(WithLogarithms(Attended { extents, scale, storage, acc })),
    })
}

/// The reference of attention, and the logarithms.
struct WithLogarithms(Attended);

impl WithLogarithms {
    fn answer(&self, inputs: &dyn Inputs, rows: &[usize], want: &mut [f64], bound: &mut [f64]) {
        let Attended { extents, scale, acc, .. } = &self.0;
        let &Extents { heads, group, queries, keys, dim, .. } = extents;
        let u = unit_roundoff(*acc);
        let mut start = 0;
        for head in rows.chunk_by(|a, b| a / queries == b / queries) {
            let plane = head[0] / queries;
            let base = (plane / heads * (heads / group) + plane % heads / group) * keys * dim;
            let mut k = vec![0.0; keys * dim];
            inputs.numbers(1, base, &mut k);
            let part = start..start + head.len();
            start += head.len();
            let out = want[part.clone()].par_iter_mut().zip(&mut bound[part]).zip(head);
            out.for_each(|((want, bound), &row)| {
                let mut q = vec![0.0; dim];
                inputs.numbers(0, row * dim, &mut q);
                let (mut scores, mut error) = (Vec::new(), 0.0f64);
                for k in k.chunks_exact(dim).take(extents.seen(row % queries)) {
                    let (sum, magnitude) =
                        q.iter().zip(k).fold((0.0, 0.0), |(sum, all), (q, k)| (sum + q * k, all + (q * k).abs()));
                    scores.push(scale * sum);
                    error = error.max(scale * magnitude);
                }
                let largest = scores.iter().copied().fold(f64::NEG_INFINITY, f64::max);
                let total: f64 = scores.iter().map(|score| (score - largest).exp()).sum();
                *want = largest + total.ln();
                // A score's error is one of the logarithm. Exponentials are off relatively by what they are taken of, and their sum by its order.
                let order = 8.0 * (scores.len() as f64).sqrt();
                *bound = u * (4.0 * (dim as f64).sqrt() * error + 4.0 * (2.0 + largest.abs() + total.ln().abs()) + order);
            });
        }
    }
}

impl Reference for WithLogarithms {
    fn rows(&self, inputs: &dyn Inputs, output: usize, rows: Range<usize>, expected: Expected<'_>) {
        match (output, expected) {
            (1, Expected::Bounded { want, bound }) => self.answer(inputs, &rows.collect::<Vec<_>>(), want, bound),
            (_, expected) => self.0.rows(inputs, output, rows, expected),
        }
    }

    fn scattered(&self, inputs: &dyn Inputs, output: usize, row_len: usize, rows: &[Range<usize>], expected: Expected<'_>) {
        match (output, expected) {
            (1, Expected::Bounded { want, bound }) => {
                self.answer(inputs, &rows.iter().cloned().flatten().collect::<Vec<_>>(), want, bound);
            }
            (_, expected) => self.0.scattered(inputs, output, row_len, rows, expected),
        }
    }
}
