//! Softmax over the last axis, full or causal.
//!
//! The tensor is batch x heads x queries x keys, flattened to rows. Causal: query q sees keys up to q + (keys - queries).

use std::ops::Range;

use rayon::prelude::*;
use tessera_types::{DType, ErrorModel, Policy};

use crate::draw::Draw;
use crate::element::{sum, underflow};
use crate::operator::{
    Argument, Expected, Inputs, LaunchSpec, Machine, Operator, OutputRows, Plan, Reference, Role, TensorSpec, Unsupported,
};
use crate::problem::Problem;
use crate::set::ladders;
use crate::set::rows::{self, Division};
use crate::signature::{Calls, Operand, Signature, Sizes};
use crate::work::{Metric, Work, packed_bytes};

pub(crate) static SOFTMAX: Operator = Operator {
    name: "softmax",
    about: "softmax over the last axis, full or causal",
    file: "softmax.py",
    source: include_str!("../../kernels/softmax.py"),
    precisions: &["fp32", "fp16", "bf16", "fp8_e4m3@accum(fp32)"],
    further_precisions: &["fp64"],
    suite,
    further_suite: Vec::new,
    quick,
    edges,
    draw,
    calls: CALLS,
    numbers: &[],
    plan,
    ways: None,
    gradient: Some(&crate::set::log_softmax::SOFTMAX_BACKWARD),
    no_specials: None,
    ladder: &ladders::SOFTMAX,
};

/// Rows of any shape; where they are causal, the axis before the last one has the queries.
const CALLS: Calls = Calls {
    variants: &["", "causal"],
    default: Some(""),
    signature: |variant| match variant {
        "causal" => Signature::new(&[Operand("x", "..batch queries keys")], &[Operand("y", "..batch queries keys")]),
        _ => Signature::new(&[Operand("x", "..rows keys")], &[Operand("y", "..rows keys")]),
    },
    problem: called,
};

/// The problem of sizes that a call's arrays say.
pub(crate) fn called(sizes: &Sizes) -> Result<Problem, Unsupported> {
    let [batch, queries] = if sizes.variant == "causal" { ["batch", "queries"] } else { ["", "rows"] };
    Ok(problem(sizes.get(batch), 1, sizes.get(queries), sizes.get("keys"), sizes.variant))
}

pub(crate) fn problem(batch: u64, heads: u64, queries: u64, keys: u64, variant: &str) -> Problem {
    Problem::new(&[("batch", batch), ("heads", heads), ("queries", queries), ("keys", keys)], variant)
}

/// Attention scores, causal ones up to 2048, and single rows: 245 cases.
pub(crate) fn suite() -> Vec<Problem> {
    let mut cases = Vec::new();
    for batch in [1, 4, 8, 16, 32] {
        for heads in [8, 16, 32, 64] {
            for sequence in [128, 256, 512, 1024, 2048, 4096, 8192] {
                cases.push(problem(batch, heads, sequence, sequence, ""));
                if sequence <= 2048 {
                    cases.push(problem(batch, heads, sequence, sequence, "causal"));
                }
            }
        }
    }
    cases.extend([1024, 4096, 16384, 65536, 262144].iter().map(|&n| problem(1, 1, 1, n, "")));
    cases
}

fn quick() -> Vec<(Problem, &'static str)> {
    let mut cases: Vec<_> = SOFTMAX.precisions.iter().map(|&precision| (problem(1, 8, 128, 512, ""), precision)).collect();
    cases.extend(["fp32", "bf16"].iter().map(|&precision| (problem(1, 8, 256, 256, "causal"), precision)));
    cases
}

pub(crate) fn edges() -> Vec<Problem> {
    let mut cases = Vec::new();
    for n in [1, 2, 31, 33, 127, 1000, 1023, 4100] {
        cases.push(problem(1, 1, 5, n, ""));
        cases.push(problem(1, 2, n.min(200), n, "causal"));
    }
    // Rows that see half of the columns, in blocks of their own and not.
    cases.extend([problem(1, 2, 128, 128, "causal"), problem(1, 2, 96, 192, "causal"), problem(1, 1, 40, 64, "causal")]);
    // More than the registers of a block hold in the widest precisions, and in any; what a cluster takes; more than its registers hold.
    cases.extend([16500, 32768, 33001, 66000].map(|n| problem(1, 1, 2, n, "")));
    cases.extend([65536, 131_200].map(|n| problem(1, 1, 1, n, "")));
    // Causal rows of several pieces, the last ones of which most rows do not see.
    cases.extend([problem(1, 1, 3, 32_769, "causal"), problem(1, 1, 2, 70_001, "causal")]);
    cases
}

pub(crate) fn draw(draw: &mut Draw<'_>) -> Problem {
    if draw.once_in(2) {
        let [queries, keys, batch, heads] = draw.extents(draw.elements(), [2048, 2048, 4, 16]);
        return problem(batch, heads, queries.min(keys), queries.max(keys), "causal");
    }
    // Rows longer than registers hold come up too.
    let [queries, keys, batch, heads] = draw.extents(draw.elements(), [4096, 1 << 18, 8, 32]);
    problem(batch, heads, queries, keys, "")
}

fn plan(problem: &Problem, policy: Policy, machine: Machine) -> Result<Plan, Unsupported> {
    let (storage, acc) = rows::storage(policy, "softmax")?;
    let [batch, heads, queries, keys] = ["batch", "heads", "queries", "keys"].map(|name| problem.get(name) as usize);
    let causal = problem.has("causal");
    if causal && queries > keys {
        return Err(Unsupported("causal softmax needs a key for every query".to_string()));
    }
    let count = batch * heads * queries;
    let mut tensors = vec![
        TensorSpec::new("x", storage, [count, keys], Role::Input),
        TensorSpec::new("y", storage, [count, keys], Role::Output),
    ];
    let division = match causal {
        true => Division::of_causal(count, keys, storage, machine),
        false => Division::alone(1, [count, keys], storage, machine),
    };
    let (launch, between) = launch(division, causal.then_some(queries), [count, keys], acc)?;
    tensors.extend(between);
    // A causal row reads what it keeps and writes all of it.
    let kept = if causal {
        (batch * heads) as u64 * (0..queries).map(|q| (q + keys - queries + 1) as u64).sum::<u64>()
    } else {
        (count * keys) as u64
    };
    Ok(Plan {
        tensors,
        launches: vec![launch],
        outputs: vec![OutputRows { tensor: 1, rows: count, row_len: keys, exact: false }],
        work: Work {
            read_bytes: packed_bytes(storage, kept),
            write_bytes: packed_bytes(storage, (count * keys) as u64),
            flops: 5 * kept,
            compute: None,
            metric: Metric::Bandwidth,
            formula: "kept scores read once, all probabilities written once",
        },
        exact_lane: false,
        reference: Box::new(Probabilities { queries, keys, causal, out: storage, acc }),
    })
}

/// The launch for rows that are divided so, and what it has in memory; `queries` of a square where it is causal.
fn launch(
    division: Division,
    queries: Option<usize>,
    [count, keys]: [usize; 2],
    acc: DType,
) -> Result<(LaunchSpec, Vec<TensorSpec>), Unsupported> {
    let grid = division.grid(count)?;
    let n = ("N", Argument::Int(keys as i64));
    let mut arguments = vec![("x", Argument::Tensor(0)), ("y", Argument::Tensor(1)), ("ACC", Argument::Type(acc)), n];
    arguments.extend(queries.map(|queries| ("QUERIES", Argument::Int(queries as i64))));
    Ok(match division {
        Division::Whole(_) | Division::Cluster { .. } => {
            arguments.extend(division.rows().map(|rows| ("ROWS", Argument::Int(rows as i64))));
            let kernel = if queries.is_some() { "softmax_causal" } else { "softmax" };
            (division.launch(kernel, arguments, grid), Vec::new())
        }
        Division::Pieces(pieces) => {
            let between = pieces.between(&["tops", "sums"], acc);
            arguments.extend(between.iter().zip(2..).map(|(tensor, at)| (tensor.name, Argument::Tensor(at))));
            arguments.extend(pieces.constants());
            // All columns are seen where no query is.
            arguments.extend(queries.is_none().then_some(("QUERIES", Argument::Int(0))));
            (division.launch("softmax_pieces", arguments, grid), between)
        }
    })
}

struct Probabilities {
    queries: usize,
    keys: usize,
    causal: bool,
    out: DType,
    acc: DType,
}

impl Reference for Probabilities {
    fn rows(&self, inputs: &dyn Inputs, _output: usize, rows: Range<usize>, expected: Expected<'_>) {
        let Expected::Bounded { want, bound } = expected else { return };
        let n = self.keys;
        let model = ErrorModel { floor: underflow(self.out), ..ErrorModel::nearest(self.out, self.acc) };
        want.par_chunks_mut(n).zip(bound.par_chunks_mut(n)).enumerate().for_each(|(r, (want, bound))| {
            let row = rows.start + r;
            inputs.numbers(0, row * n, want);
            let kept = if self.causal { row % self.queries + n - self.queries + 1 } else { n };
            want[kept..].fill(0.0);
            bound[kept..].fill(0.0);
            let largest = want[..kept].iter().copied().fold(f64::NEG_INFINITY, f64::max);
            // The sum's error is that of adding `kept` positive terms one after another, at worst.
            let summed = tessera_types::unit_roundoff(self.acc) * (kept as f64).sqrt() * 4.0;
            for (x, bound) in want[..kept].iter_mut().zip(&mut bound[..kept]) {
                let distance = *x - largest;
                *x = distance.exp();
                *bound = distance;
            }
            let total = sum(want[..kept].iter().copied());
            for (x, bound) in want[..kept].iter_mut().zip(&mut bound[..kept]) {
                *x /= total;
                *bound = model.softmax(*x, *bound) + summed * *x;
            }
        });
    }
}
