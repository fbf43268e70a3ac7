//! Attention of sequences of any lengths, packed one behind the other, in one launch: sequence `s` has the queries `cu_seqlens_q[s]` to
//! `cu_seqlens_q[s + 1]` and the keys `cu_seqlens_k[s]` to `cu_seqlens_k[s + 1]`.
//!
//! ```text
//! cu_seqlens_q [0, 2, 2, 5], cu_seqlens_k [0, 4, 7, 10]    3 sequences: 2 queries to 4 keys, no query to 3 keys, 3 queries to 3 keys
//! ```
//!
//! Both lie where the kernel runs, so how many tiles of queries there are is known there alone: a launch has enough blocks for any lengths, each finds its
//! sequence by bisection, and those that have none end at once. Tiles of keys go past their sequence's end: what lies there is read and weighs nothing; it
//! is finite. Windows, caps and slopes are those of `attention_window`.

use tessera_types::{DType, Policy};

use super::attention_scores::{Keys, LEFT, Numbers, RIGHT, Row, SOFTCAP, Scored};
use super::{attention_window, rows};
use crate::draw::Draw;
use crate::operator::{Argument, Fill, Inputs, LaunchSpec, Machine, Operator, OutputRows, Plan, Role, TensorSpec, Unsupported};
use crate::problem::Problem;
use crate::signature::{Calls, Operand, Signature, Sizes};
use crate::work::{Metric, Work, packed_bytes};

pub(crate) static ATTENTION_VARLEN: Operator = Operator {
    name: "attention_varlen",
    about: "attention forward of packed sequences of any lengths, to a window of keys, with capped scores, linear biases",
    file: "attention_window.py",
    source: include_str!("../../kernels/attention_window.py"),
    precisions: &["fp16", "bf16"],
    further_precisions: &["fp32"],
    suite: Vec::new,
    further_suite: suite,
    quick,
    edges,
    draw,
    calls: CALLS,
    numbers: &[LEFT, RIGHT, SOFTCAP],
    plan,
    ways: None,
    gradient: None,
    ladder: &[],
    no_specials: Some("its bounds are of the largest magnitudes of a head, and say nothing where one is infinite"),
};

const ALIBI: &str = "alibi";

/// Bisection takes as many loads as this has bits.
const MOST_SEQUENCES: u64 = (1 << 16) - 1;

const CALLS: Calls = Calls {
    variants: &["", ALIBI],
    default: Some(""),
    signature: |variant| {
        const Q: Operand = Operand("Q", "tokens heads dim");
        const K: Operand = Operand("K", "past shared dim");
        const V: Operand = Operand("V", "past shared dim");
        const OF_Q: Operand = Operand("cu_seqlens_q", "bounds");
        const OF_K: Operand = Operand("cu_seqlens_k", "bounds");
        const OUTPUTS: [Operand; 2] = [Operand("O", "tokens heads dim"), Operand("lse", "heads tokens")];
        const TYPES: &[(&str, DType)] = &[("cu_seqlens_q", DType::I32), ("cu_seqlens_k", DType::I32), ("slopes", DType::F32)];
        let signature = match variant {
            ALIBI => Signature::new(&[Q, K, V, OF_Q, OF_K, Operand("slopes", "heads")], &OUTPUTS),
            _ => Signature::new(&[Q, K, V, OF_Q, OF_K], &OUTPUTS),
        };
        let signature = signature.types(TYPES).scalars(&["scale", "left", "right", "softcap"]).sums(&["lse"]);
        signature.bounds(&[["cu_seqlens_q", "Q"], ["cu_seqlens_k", "K"]])
    },
    problem: sizes,
};

/// The problem of known sizes.
fn sizes(sizes: &Sizes) -> Result<Problem, Unsupported> {
    let [tokens, past, bounds, heads, shared, dim] =
        ["tokens", "past", "bounds", "heads", "shared", "dim"].map(|name| sizes.get(name));
    if shared == 0 || !heads.is_multiple_of(shared) {
        return Err(Unsupported(format!("`Q` has {heads} heads and `K` {shared}: the first are no multiple of the second")));
    }
    let sequences = bounds.checked_sub(1);
    let sequences =
        sequences.ok_or_else(|| Unsupported("`cu_seqlens_q` has no bounds: they are one more than sequences".to_string()))?;
    Ok(problem([sequences, tokens, past, heads, heads / shared, dim], sizes.variant))
}

fn problem([sequences, tokens, past, heads, group, dim]: [u64; 6], variant: &str) -> Problem {
    let sizes = [("tokens", tokens), ("past", past), ("sequences", sequences), ("heads", heads), ("group", group), ("dim", dim)];
    Problem::new(&sizes, variant)
}

/// 16384 tokens and 2048 columns in all, in few sequences and many, and queries against a longer past.
fn suite() -> Vec<Problem> {
    let causal = |sizes: [u64; 6]| problem(sizes, "").with_number(RIGHT, 0.0);
    let packed = [(4, 64), (4, 128), (16, 128), (64, 128)];
    let all = packed.map(|(sequences, dim)| causal([sequences, 16384, 16384, 2048 / dim, 1, dim]));
    let full = problem([16, 16384, 16384, 16, 1, 128], "");
    all.into_iter().chain([full, causal([16, 2048, 65536, 32, 8, 128])]).collect()
}

fn quick() -> Vec<(Problem, &'static str)> {
    vec![
        (problem([5, 300, 400, 4, 2, 128], "").with_number(RIGHT, 0.0), "bf16"),
        (problem([3, 200, 200, 2, 1, 64], ALIBI).with_number(LEFT, 40.0).with_number(SOFTCAP, 2.0), "fp16"),
    ]
}

/// Fewer tokens than sequences, so that most are empty; sequences of a token, and of lengths beside those of tiles.
fn edges() -> Vec<Problem> {
    let sizes = [
        [1, 1, 1, 1, 1, 64],
        [9, 3, 5, 2, 1, 64],
        [1, 129, 300, 2, 2, 128],
        [2, 127, 129, 4, 2, 128],
        [20, 200, 170, 2, 1, 64],
        [7, 500, 700, 3, 3, 64],
        [3, 190, 190, 2, 1, 256],
        // Queries without keys.
        [4, 150, 0, 2, 1, 64],
    ];
    let plain = sizes.iter().flat_map(|&size| [problem(size, ""), problem(size, "").with_number(RIGHT, 0.0)]);
    let mut cases: Vec<Problem> = plain.collect();
    let windows = [(0.0, 0.0), (17.0, 0.0), (63.0, 1.0), (64.0, 64.0), (129.0, -1.0)];
    for (at, (left, right)) in windows.into_iter().enumerate() {
        let softcap = [0.0, 0.5, 0.3][at % 3];
        let case = problem(sizes[2 + at], ["", ALIBI][at % 2]);
        cases.push(case.with_number(LEFT, left).with_number(RIGHT, right).with_number(SOFTCAP, softcap));
    }
    cases.push(problem(sizes[4], ALIBI));
    cases
}

fn draw(draw: &mut Draw<'_>) -> Problem {
    const MOST: u64 = 1 << 26;
    let dim = draw.one_of(&[64, 128, 256]);
    let group = draw.one_of(&[1, 1, 2, 3, 4]);
    let [sequences, queries, keys, groups] = draw.extents(draw.operations().min(MOST) / (4 * dim * group), [40, 600, 900, 3]);
    let (tokens, past) = (draw.extent(sequences * queries), draw.extent(sequences * keys));
    let drawn = problem([sequences, tokens, past, group * groups, group, dim], draw.one_of(&["", ALIBI]));
    let left = if draw.once_in(2) { -1.0 } else { draw.extent(keys) as f64 - 1.0 };
    let right = draw.one_of(&[-1.0, 0.0, 0.0, 5.0]);
    drawn.with_number(LEFT, left).with_number(RIGHT, right).with_number(SOFTCAP, draw.one_of(&[0.0, 0.0, 0.7]))
}

fn plan(problem: &Problem, policy: Policy, machine: Machine) -> Result<Plan, Unsupported> {
    let (storage, acc) = attention_window::storage(policy, "attention_varlen")?;
    let extents = ["sequences", "tokens", "past", "heads", "group", "dim"].map(|name| problem.get(name));
    if !(1..=MOST_SEQUENCES).contains(&extents[0]) || extents[1].max(extents[2]) > i32::MAX as u64 {
        let text =
            format!("{} tokens in {} sequences: there are 1 to {MOST_SEQUENCES}, with bounds of 32 bits", extents[1], extents[0]);
        return Err(Unsupported(text));
    }
    let [sequences, tokens, past, heads, group, dim] = extents.map(|extent| extent as usize);
    let numbers = Numbers::of(problem)?;
    let alibi = problem.has(ALIBI);
    if group == 0 || !heads.is_multiple_of(group) {
        return Err(Unsupported(format!("{heads} heads are not groups of {group}")));
    }
    let (asked, shared) = ([tokens, heads, dim], [past, heads / group, dim]);
    let bounds = |name, rows: usize| {
        let fill = Fill::Bounds { rows: rows as u64 };
        TensorSpec { fill, ..TensorSpec::new(name, DType::I32, [sequences + 1], Role::Input) }
    };
    let mut tensors = vec![
        TensorSpec::new("Q", storage, asked, Role::Input),
        TensorSpec::new("K", storage, shared, Role::Input),
        TensorSpec::new("V", storage, shared, Role::Input),
        bounds("cu_seqlens_q", tokens),
        bounds("cu_seqlens_k", past),
        TensorSpec::new("O", storage, asked, Role::Output),
        TensorSpec::new("lse", acc, [heads, tokens], Role::Output),
    ];
    let mut names = vec!["Q", "K", "V", "cu_seqlens_q", "cu_seqlens_k", "O", "lse"];
    if alibi {
        let slopes = Fill::Normal { mean: 0.05, sd: 0.02 };
        tensors.push(TensorSpec { fill: slopes, ..TensorSpec::new("slopes", DType::F32, [heads], Role::Input) });
        names.push("slopes");
    }
    let scale = 1.0 / (dim as f64).sqrt();
    let mean = tokens.div_ceil(sequences);
    let (tm, tn) = attention_window::tile(mean, dim, storage, machine, false);
    // Where each sequence's last tile is not full there is one more than all queries fill.
    let [Ok(blocks), Ok(planes)] = [tokens / tm + sequences, heads].map(u32::try_from) else {
        return Err(Unsupported(format!("{tokens} tokens of {heads} heads need too many blocks")));
    };
    let mut arguments = rows::arrays(&tensors, &names);
    arguments.extend(numbers.arguments(scale, [group, tm, tn, dim], [past, tokens], acc));
    arguments.push(("STEPS", Argument::Int(i64::from(usize::BITS - (sequences - 1).leading_zeros()))));
    let kernel = if alibi { "attention_varlen_alibi" } else { "attention_varlen" };
    let pairs = numbers.pairs(mean, past.div_ceil(sequences)) * sequences as u64;
    Ok(Plan {
        tensors,
        launches: vec![LaunchSpec::new(kernel, arguments, [blocks, planes, 1])],
        outputs: vec![
            OutputRows { tensor: 5, rows: tokens * heads, row_len: dim, exact: false },
            OutputRows { tensor: 6, rows: heads * tokens, row_len: 1, exact: false },
        ],
        work: Work {
            read_bytes: packed_bytes(storage, ((tokens * heads + 2 * past * heads / group) * dim) as u64),
            write_bytes: packed_bytes(storage, (tokens * heads * dim) as u64) + packed_bytes(acc, (heads * tokens) as u64),
            flops: 4 * (heads * dim) as u64 * pairs,
            compute: Some(storage),
            metric: Metric::Compute,
            formula: "4 dim operations for each pair of a query and a key that it sees, as of sequences of one length",
        },
        exact_lane: false,
        reference: Box::new(Scored {
            numbers,
            dim,
            scale,
            storage,
            acc,
            rows: Box::new(move |inputs, output, wanted| {
                let lengths = Lengths::of(inputs, [sequences, tokens, past]);
                let slopes = alibi.then(|| slopes(inputs, heads));
                let of_row = |&row: &usize| {
                    let (token, head) = if output == 1 { (row % tokens, row / tokens) } else { (row / heads, row % heads) };
                    let (keys, place) = lengths.of_token(token);
                    Row {
                        query: (token * heads + head) * dim,
                        keys: Keys {
                            base: (keys.start * (heads / group) + head / group) * dim,
                            step: heads / group * dim,
                            count: keys.len(),
                        },
                        place,
                        slope: slopes.as_ref().map_or(0.0, |slopes| slopes[head]),
                        bias: None,
                    }
                };
                wanted.iter().map(of_row).collect()
            }),
        }),
    })
}

fn slopes(inputs: &dyn Inputs, heads: usize) -> Vec<f64> {
    let mut slopes = vec![0.0; heads];
    inputs.numbers(7, 0, &mut slopes);
    slopes
}

/// Where sequences begin, and where the last one ends.
struct Lengths {
    queries: Vec<usize>,
    keys: Vec<usize>,
}

impl Lengths {
    fn of(inputs: &dyn Inputs, [sequences, tokens, past]: [usize; 3]) -> Lengths {
        let bounds = |tensor, rows: usize| {
            let mut bounds = vec![0.0; sequences + 1];
            inputs.numbers(tensor, 0, &mut bounds);
            bounds.into_iter().map(|bound| (bound as usize).min(rows)).collect()
        };
        Lengths { queries: bounds(3, tokens), keys: bounds(4, past) }
    }

    /// The keys of a token's sequence, and where among them the token stands.
    fn of_token(&self, token: usize) -> (std::ops::Range<usize>, i64) {
        let sequence = self.queries.partition_point(|&bound| bound <= token) - 1;
        let keys = self.keys[sequence]..self.keys[sequence + 1];
        (keys.clone(), (token + keys.len()) as i64 - self.queries[sequence + 1] as i64)
    }
}
