//! Attention whose queries see a window of keys, with capped scores and biases; results and logarithms of rows' sums, as of `attention_lse`.
//!
//! It stands beside `attention_lse`, since numbers and biases in all combinations would be as many variants of that: `left` and `right` are keys before a
//! query's place, `q + keys - queries`, and behind it (-1: all; `right=0` is causal), `softcap` has scores be `softcap * tanh(score / softcap)` (0: as they
//! are). The variant `alibi` takes `slopes[head]` off for each place between query and key (Press et al. 2022); `bias` adds `bias[head, query, key]`, one
//! for all heads or one each, where `-inf` keeps a key from being seen. A query without keys has a result of 0 and a logarithm of `-inf`.

use tessera_types::{DType, Policy};

use super::attention_scores::{Keys, LEFT, Numbers, RIGHT, Row, SOFTCAP, Scored};
use super::{attention, rows};
use crate::draw::Draw;
use crate::operator::{Fill, Inputs, LaunchSpec, Machine, Operator, OutputRows, Plan, Role, TensorSpec, Unsupported};
use crate::problem::Problem;
use crate::signature::{Calls, Operand, Signature, Sizes};
use crate::work::{Metric, Work, packed_bytes};

pub(crate) static ATTENTION_WINDOW: Operator = Operator {
    name: "attention_window",
    about: "attention forward to a window of keys, with capped scores, linear or any biases, and logarithms of rows' sums",
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
const BIAS: &str = "bias";

const CALLS: Calls = Calls {
    variants: &["", ALIBI, BIAS],
    default: Some(""),
    signature: |variant| {
        const Q: Operand = Operand("Q", "..batch heads queries dim");
        const K: Operand = Operand("K", "..batch shared keys dim");
        const V: Operand = Operand("V", "..batch shared keys dim");
        const OUTPUTS: [Operand; 2] = [Operand("O", "..batch heads queries dim"), Operand("lse", "..batch heads queries")];
        let signature = match variant {
            ALIBI => Signature::new(&[Q, K, V, Operand("slopes", "heads")], &OUTPUTS),
            BIAS => Signature::new(&[Q, K, V, Operand("bias", "biases queries keys")], &OUTPUTS),
            _ => Signature::new(&[Q, K, V], &OUTPUTS),
        };
        signature.types(&[("slopes", DType::F32)]).scalars(&["scale", "left", "right", "softcap"]).sums(&["lse"])
    },
    problem: sizes,
};

/// The problem of known sizes.
fn sizes(sizes: &Sizes) -> Result<Problem, Unsupported> {
    let Problem { mut extents, variant } = attention::sizes(sizes)?;
    // Without biases there is one for all heads that nobody reads.
    extents.push(("biases", if sizes.variant == BIAS { sizes.get("biases") } else { 1 }));
    Ok(Problem::new(&extents, variant))
}

fn problem([batch, heads, group, queries, keys, dim, biases]: [u64; 7], variant: &str) -> Problem {
    let Problem { mut extents, variant } = attention::problem(batch, heads, group, (queries, keys), dim, variant);
    extents.push(("biases", biases));
    Problem::new(&extents, variant)
}

/// 16384 tokens and 2048 columns in all, with windows of models; a bias has a quarter of that.
fn suite() -> Vec<Problem> {
    let windows = [(4096, 1024.0), (8192, 4096.0), (16384, 1024.0)];
    let slid = windows.map(|(length, left)| {
        problem([16384 / length, 16, 1, length, length, 128, 1], "").with_number(LEFT, left).with_number(RIGHT, 0.0)
    });
    let capped = problem([4, 16, 2, 4096, 4096, 128, 1], "").with_number(RIGHT, 0.0).with_number(SOFTCAP, 50.0);
    let linear = problem([4, 16, 1, 4096, 4096, 128, 1], ALIBI).with_number(RIGHT, 0.0);
    slid.into_iter().chain([capped, linear, problem([4, 16, 1, 2048, 2048, 64, 16], BIAS)]).collect()
}

fn quick() -> Vec<(Problem, &'static str)> {
    vec![
        (problem([1, 2, 2, 256, 320, 128, 1], "").with_number(LEFT, 100.0).with_number(RIGHT, 0.0), "bf16"),
        (problem([1, 2, 1, 150, 200, 64, 1], ALIBI).with_number(SOFTCAP, 2.0), "fp16"),
        (problem([2, 2, 1, 100, 130, 64, 2], BIAS), "bf16"),
    ]
}

fn edges() -> Vec<Problem> {
    let mut cases = Vec::new();
    let sizes = [
        [1, 1, 1, 1, 1, 64, 1],
        [1, 2, 1, 5, 200, 64, 2],
        [2, 4, 2, 70, 150, 128, 1],
        [1, 2, 1, 127, 129, 128, 2],
        [1, 3, 3, 130, 257, 64, 1],
        [1, 2, 1, 129, 300, 256, 1],
        // Queries without keys.
        [1, 2, 1, 150, 17, 64, 2],
        [2, 2, 1, 3, 0, 64, 1],
    ];
    let windows = [(-1.0, -1.0), (-1.0, 0.0), (0.0, 0.0), (63.0, 0.0), (64.0, 1.0), (17.0, 70.0), (129.0, -1.0)];
    for (at, size) in sizes.into_iter().enumerate() {
        for (number, (left, right)) in windows.into_iter().enumerate() {
            let variant = ["", ALIBI, BIAS][(at + number) % 3];
            let softcap = if number % 2 == 1 { [0.5, 0.3, 2.0][at % 3] } else { 0.0 };
            cases.push(problem(size, variant).with_number(LEFT, left).with_number(RIGHT, right).with_number(SOFTCAP, softcap));
        }
    }
    // More blocks than multiprocessors.
    cases.push(problem([3, 22, 1, 300, 300, 64, 1], "").with_number(LEFT, 65.0).with_number(RIGHT, 0.0));
    cases
}

fn draw(draw: &mut Draw<'_>) -> Problem {
    const MOST: u64 = 1 << 27;
    let dim = draw.one_of(&[64, 128, 256]);
    let pairs = draw.operations().min(MOST) / (4 * dim);
    let group = draw.one_of(&[1, 1, 2, 3, 4]);
    let [queries, keys, batch, groups] = draw.extents(pairs / group, [2048, 4096, 3, 4]);
    let heads = group * groups;
    let biases = draw.one_of(&[1, heads]);
    let variant = draw.one_of(&["", ALIBI, BIAS]);
    let side = |draw: &mut Draw<'_>| if draw.once_in(3) { -1.0 } else { draw.extent(keys + 1) as f64 - 1.0 };
    let left = side(draw);
    let right = if draw.once_in(2) { 0.0 } else { side(draw) };
    let softcap = draw.one_of(&[0.0, 0.0, 0.7, 30.0]);
    let drawn = problem([batch, heads, group, queries, keys, dim, biases], variant);
    drawn.with_number(LEFT, left).with_number(RIGHT, right).with_number(SOFTCAP, softcap)
}

/// Storage and accumulator: floats of 16 and of 32 bits.
pub(super) fn storage(policy: Policy, operator: &str) -> Result<(DType, DType), Unsupported> {
    let (storage, acc) = rows::storage(policy, operator)?;
    match storage {
        DType::F16 | DType::BF16 | DType::F32 => Ok((storage, acc)),
        _ => Err(Unsupported(format!("{operator} takes no `{policy}`"))),
    }
}

/// Queries and keys of a tile, for so many queries of a head at the most; with a tile of biases or without.
pub(super) fn tile(queries: usize, dim: usize, storage: DType, machine: Machine, biased: bool) -> (usize, usize) {
    match machine {
        Machine::Cpu => (64, 64),
        Machine::Gpu(arch) if storage.bits() > 16 => {
            if dim > 128 && arch.limits().shared_per_sm < 200 << 10 {
                (16, 32)
            } else {
                (32, 32)
            }
        }
        Machine::Gpu(arch) if arch.has_wgmma() => {
            (if queries <= 64 { 64 } else { 128 }, if dim > 128 || biased { 64 } else { 128 })
        }
        // A warp holds the queries, scores and result of 16 rows.
        Machine::Gpu(_) => (64, if dim <= 64 && !biased { 64 } else { 32 }),
    }
}

fn plan(problem: &Problem, policy: Policy, machine: Machine) -> Result<Plan, Unsupported> {
    let (storage, acc) = storage(policy, "attention_window")?;
    let [batch, heads, group, queries, keys, dim, biases] =
        ["batch", "heads", "group", "queries", "keys", "dim", "biases"].map(|name| problem.get(name) as usize);
    let numbers = Numbers::of(problem)?;
    let kind = problem.kind();
    if group == 0 || !heads.is_multiple_of(group) {
        return Err(Unsupported(format!("{heads} heads are not groups of {group}")));
    }
    if kind == BIAS && biases != 1 && biases != heads {
        return Err(Unsupported(format!("biases of {biases} heads for {heads}: there is one for all of them, or one each")));
    }
    let (asked, shared) = ([batch, heads, queries, dim], [batch, heads / group, keys, dim]);
    let mut tensors = vec![
        TensorSpec::new("Q", storage, asked, Role::Input),
        TensorSpec::new("K", storage, shared, Role::Input),
        TensorSpec::new("V", storage, shared, Role::Input),
        TensorSpec::new("O", storage, asked, Role::Output),
        TensorSpec::new("lse", acc, [batch, heads, queries], Role::Output),
    ];
    if kind == ALIBI {
        let slopes = Fill::Normal { mean: 0.05, sd: 0.02 };
        tensors.push(TensorSpec { fill: slopes, ..TensorSpec::new("slopes", DType::F32, [heads], Role::Input) });
    }
    if kind == BIAS {
        tensors.push(TensorSpec::new("bias", storage, [biases, queries, keys], Role::Input));
    }
    let scale = 1.0 / (dim as f64).sqrt();
    let (tm, tn) = tile(queries, dim, storage, machine, kind == BIAS);
    let grid = [queries.div_ceil(tm), batch * heads, 1].map(u32::try_from);
    let [Ok(blocks), Ok(planes), Ok(one)] = grid else { return Err(Unsupported("too many queries or heads".to_string())) };
    let mut arguments = rows::arrays(&tensors, &["Q", "K", "V", "O", "lse"]);
    arguments.extend(rows::arrays(
        &tensors,
        match kind.as_str() {
            ALIBI => &["slopes"],
            BIAS => &["bias"],
            _ => &[],
        },
    ));
    // The first query stands at keys - queries, where that is a key, and the last one at the last.
    arguments.extend(numbers.arguments(scale, [group, tm, tn, dim], [keys, queries.max(keys)], acc));
    arguments.push(("HEADS", rows::int(heads)));
    let kernel = match kind.as_str() {
        ALIBI => "attention_window_alibi",
        BIAS => "attention_window_bias",
        _ => "attention_window",
    };
    let rows = batch * heads * queries;
    let read = (rows + 2 * batch * heads / group * keys) * dim + if kind == BIAS { biases * queries * keys } else { 0 };
    Ok(Plan {
        launches: vec![LaunchSpec::new(kernel, arguments, [blocks, planes, one])],
        outputs: vec![
            OutputRows { tensor: 3, rows, row_len: dim, exact: false },
            OutputRows { tensor: 4, rows, row_len: 1, exact: false },
        ],
        work: Work {
            read_bytes: packed_bytes(storage, read as u64),
            write_bytes: packed_bytes(storage, (rows * dim) as u64) + packed_bytes(acc, rows as u64),
            flops: 4 * (batch * heads * dim) as u64 * numbers.pairs(queries, keys),
            compute: Some(storage),
            metric: Metric::Compute,
            formula: "4 dim operations for each pair of a query and a key that it sees",
        },
        exact_lane: false,
        reference: Box::new(Scored {
            numbers,
            dim,
            scale,
            storage,
            acc,
            rows: Box::new(move |inputs, _, wanted| {
                wanted.iter().map(|&row| of_row(inputs, row, [heads, group, queries, keys, dim, biases], &kind)).collect()
            }),
        }),
        tensors,
    })
}

/// What a row of the result is made of; it has the tensor 5 for slopes or biases.
fn of_row(inputs: &dyn Inputs, row: usize, [heads, group, queries, keys, dim, biases]: [usize; 6], kind: &str) -> Row {
    let (plane, query) = (row / queries, row % queries);
    let head = plane % heads;
    let mut slope = [0.0];
    if kind == ALIBI {
        inputs.numbers(5, head, &mut slope);
    }
    let of_group = plane / heads * (heads / group) + head / group;
    Row {
        query: row * dim,
        keys: Keys { base: of_group * keys * dim, step: dim, count: keys },
        place: (query + keys) as i64 - queries as i64,
        slope: slope[0],
        bias: (kind == BIAS).then(|| (5, (head % biases * queries + query) * keys)),
    }
}
