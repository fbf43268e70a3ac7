//! Mixtures of experts, around the products of [`gemm_grouped`](super::gemm_grouped): the experts of each token and their weights
//! ([`moe_gate`](super::moe_gate)); the places of tokens in the order of their experts, here; rows there and back ([`moe_rows`](super::moe_rows)).
//!
//! ```text
//! ids, 2 of 3 experts a token     place                offsets         rows in order
//! token 0   2 0                   4 0                  0 2 4 6         0: token 0, 1: token 2 | 2: token 1, 3: token 2 | 4: token 0, 5: token 1
//! token 1   1 2                   2 5
//! token 2   0 1                   1 3
//! ```

use tessera_types::{DType, Policy, Storage};

use super::by_row::{ByRow, Line, numbers};
use super::rows::{self, int};
use crate::operator::{Argument, Fill, Inputs, LaunchSpec, Machine, Operator, OutputRows, Plan, Role, TensorSpec, Unsupported};
use crate::problem::Problem;
use crate::signature::{Calls, Indices, Operand, Rows, Signature};
use crate::work::{Metric, Work};

/// Experts whose logits a row of a tile holds.
const MOST_EXPERTS: usize = 256;
/// Numbers in a tile.
pub(super) const ELEMENTS: usize = 4096;
/// Counts that a block goes through at a time.
const PART: usize = 1024;

pub(super) const PLACES: &[(&str, DType)] = &[("place", DType::I32), ("ids", DType::I32)];

pub(crate) static MOE_SORT: Operator = SORT;

/// The sort, with whose file the other operators of mixtures begin.
pub(super) const SORT: Operator = Operator {
    name: "moe_sort",
    about: "tokens in the order of their experts: where each expert begins, and the place of each token's slots",
    file: "moe.py",
    source: include_str!("../../kernels/moe.py"),
    precisions: &["int32"],
    further_precisions: &[],
    suite: Vec::new,
    further_suite: || [[16384, 8, 2], [16384, 64, 6], [16384, 256, 8]].map(|sizes| gated(sizes, "")).into(),
    quick: || vec![(gated([300, 8, 2], ""), "int32")],
    edges: || [[1, 1, 1], [5, 8, 2], [997, 60, 6], [333, 256, 8], [4100, 3, 1], [0, 4, 2]].map(|sizes| gated(sizes, "")).into(),
    draw: |draw| {
        let [experts, tokens, k] = [draw.extent(256), draw.extent(3000), draw.extent(8)];
        gated([tokens, experts, k], "")
    },
    calls: Calls {
        variants: &[""],
        default: Some(""),
        signature: |_| {
            let outputs = &[Operand("offsets", "bounds"), Operand("place", "..tokens k")];
            let signature = Signature::new(&[Operand("ids", "..tokens k")], outputs);
            signature.indices(const { &[Indices::of("ids", "offsets").among(Rows::Between)] })
        },
        problem: |sizes| {
            let [tokens, k, bounds] = ["tokens", "k", "bounds"].map(|name| sizes.get(name));
            let experts = bounds.checked_sub(1).ok_or_else(|| Unsupported("`offsets` has a number more than experts".into()))?;
            Ok(gated([tokens, experts, k], ""))
        },
    },
    numbers: &[],
    plan: sort,
    ways: None,
    gradient: None,
    no_specials: None,
    ladder: &[],
};

pub(super) fn gated([tokens, experts, k]: [u64; 3], variant: &str) -> Problem {
    Problem::new(&[("tokens", tokens), ("experts", experts), ("k", k)], variant)
}

pub(super) fn tensors_of<const N: usize>(names: [&'static str; N]) -> Vec<(&'static str, Argument)> {
    names.into_iter().enumerate().map(|(at, name)| (name, Argument::Tensor(at))).collect()
}

pub(super) fn work(read_bytes: u64, write_bytes: u64, flops: u64, formula: &'static str) -> Work {
    Work { read_bytes, write_bytes, flops, compute: None, metric: Metric::Bandwidth, formula }
}

/// Extents of a gate or of a sort.
pub(super) fn chosen(problem: &Problem) -> Result<[usize; 3], Unsupported> {
    let [tokens, experts, k] = ["tokens", "experts", "k"].map(|name| problem.get(name) as usize);
    if !(1..=MOST_EXPERTS).contains(&experts) {
        return Err(Unsupported(format!("{experts} experts: there are 1 to {MOST_EXPERTS}")));
    }
    countable(tokens, k)?;
    Ok([tokens, experts, k])
}

/// Slots are numbered by 32 bits.
pub(super) fn countable(tokens: usize, k: usize) -> Result<(), Unsupported> {
    match tokens.checked_mul(k).is_some_and(|slots| i32::try_from(slots).is_ok()) {
        true => Ok(()),
        false => Err(Unsupported(format!("slots are numbered by 32 bits, and {tokens} tokens with {k} experts each have more"))),
    }
}

fn sort(problem: &Problem, policy: Policy, _machine: Machine) -> Result<Plan, Unsupported> {
    if policy.storage() != Storage::Plain(DType::I32) {
        return Err(Unsupported(format!("moe_sort takes numbers of experts in `int32`, not `{policy}`")));
    }
    let [tokens, experts, k] = chosen(problem)?;
    let slots = tokens * k;
    let bins = experts.next_power_of_two();
    let tile = (ELEMENTS / bins).clamp(32, 1024);
    let blocks = slots.div_ceil(tile);
    let tensors = vec![
        TensorSpec {
            fill: Fill::Integers { least: 0, greatest: experts as i64 - 1 },
            ..TensorSpec::new("ids", DType::I32, [slots], Role::Input)
        },
        TensorSpec::new("offsets", DType::I32, [experts + 1], Role::Output),
        TensorSpec::new("place", DType::I32, [slots], Role::Output),
        TensorSpec::new("counts", DType::I32, [experts, blocks.max(1)], Role::Workspace),
        TensorSpec::new("totals", DType::I32, [experts], Role::Workspace),
    ];
    let [ids, offsets, place, counts, totals] = [0, 1, 2, 3, 4].map(Argument::Tensor);
    let cut = [("TILE", int(tile)), ("BINS", int(bins))];
    // One block at least says where experts without tokens begin.
    let grid = rows::grid(blocks.max(1), 1)?;
    let with_cut = |mut arguments: Vec<(&'static str, Argument)>| {
        arguments.extend(cut);
        arguments
    };
    let before = vec![("counts", counts), ("totals", totals), ("PART", int(PART))];
    let last = vec![("ids", ids), ("counts", counts), ("totals", totals), ("offsets", offsets), ("place", place)];
    let launches = vec![
        LaunchSpec::new("count", with_cut(vec![("ids", ids), ("counts", counts)]), grid),
        LaunchSpec::new("before", before, rows::grid(experts, 1)?),
        LaunchSpec::new("places", with_cut(last), grid),
    ];
    let row = move |inputs: &dyn Inputs, output: usize, _row: usize, line: Line<'_>| {
        let Line::Codes(codes) = line else { return };
        let ids = numbers(inputs, 0, 0, slots);
        let mut next = vec![0usize; experts + 1];
        ids.iter().for_each(|&id| next[id as usize + 1] += 1);
        (0..experts).for_each(|expert| next[expert + 1] += next[expert]);
        match output {
            0 => codes.iter_mut().zip(next).for_each(|(code, bound)| *code = bound as u64),
            _ => codes.iter_mut().zip(ids).for_each(|(code, id)| {
                *code = next[id as usize] as u64;
                next[id as usize] += 1;
            }),
        }
    };
    let bytes = 4 * slots as u64;
    Ok(Plan {
        tensors,
        launches,
        outputs: vec![
            OutputRows { tensor: 1, rows: 1, row_len: experts + 1, exact: true },
            OutputRows { tensor: 2, rows: 1, row_len: slots, exact: true },
        ],
        work: work(bytes, bytes + 4 * (experts + 1) as u64, 0, "ids read once, places and offsets written once"),
        exact_lane: false,
        reference: Box::new(ByRow { row_lens: vec![experts + 1, slots], row }),
    })
}
