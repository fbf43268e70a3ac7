//! Attention forward: O = softmax(Q K^T / sqrt(dim)) V for every head, full or causal, with heads of K and V shared by groups.
//!
//! `group` heads of Q share one of K and V. Causal: query q sees keys up to q + (keys - queries). A block takes a tile of one head's queries;
//! where a group's heads have few together, all of them ([`few_queries`]).

use std::ops::Range;

use rayon::prelude::*;
use tessera_types::{DType, ErrorModel, Policy, unit_roundoff};

use crate::draw::Draw;
use crate::element::{storable, underflow};
use crate::operator::{
    Argument, Expected, Inputs, LaunchSpec, Machine, Operator, OutputRows, Plan, Reference, Role, TensorSpec, Unsupported,
};
use crate::problem::Problem;
use crate::set::attention_tiles::Choice;
use crate::set::few_queries::{self, Tile};
use crate::set::rows;
use crate::signature::{Calls, Operand, Signature, Sizes};
use crate::work::{Metric, Work, packed_bytes};

pub(crate) static ATTENTION: Operator = Operator {
    name: "attention",
    about: "attention forward, full or causal, heads of K and V shared by groups",
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
    gradient: None,
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
        Signature::new(&INPUTS, &[Operand("O", "..batch heads queries dim")]).scalars(&["scale"]).positive(&["scale"])
    },
    problem: sizes,
};

/// The problem of known sizes.
pub(super) fn sizes(sizes: &Sizes) -> Result<Problem, Unsupported> {
    let [batch, heads, shared, queries, keys, dim] =
        ["batch", "heads", "shared", "queries", "keys", "dim"].map(|name| sizes.get(name));
    if shared == 0 || !heads.is_multiple_of(shared) {
        return Err(Unsupported(format!("`Q` has {heads} heads and `K` {shared}: the first are no multiple of the second")));
    }
    Ok(problem(batch, heads, heads / shared, (queries, keys), dim, sizes.variant))
}

pub(super) fn problem(batch: u64, heads: u64, group: u64, (queries, keys): (u64, u64), dim: u64, variant: &str) -> Problem {
    let sizes = [("batch", batch), ("heads", heads), ("group", group), ("queries", queries), ("keys", keys), ("dim", dim)];
    Problem::new(&sizes, variant)
}

/// 16384 tokens and 2048 columns in all, as attention is commonly measured, and queries against a longer past, down to one of each sequence: 40
/// cases.
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
    for batch in [16, 1] {
        for (group, queries, variant) in [(4, 1, ""), (8, 1, ""), (4, 4, ""), (4, 4, "causal")] {
            cases.push(problem(batch, 32, group, (queries, 8192), 128, variant));
        }
    }
    cases
}

fn quick() -> Vec<(Problem, &'static str)> {
    vec![(problem(1, 2, 1, (256, 320), 128, ""), "fp16"), (problem(1, 2, 2, (256, 256), 64, "causal"), "bf16")]
}

fn edges() -> Vec<Problem> {
    let mut cases = Vec::new();
    let lengths = [((1, 1), 64), ((5, 200), 64), ((64, 64), 128), ((127, 129), 128), ((130, 257), 64), ((129, 300), 256)];
    // Groups in one tile of rows, of powers of two of heads and queries and of others; the last key of some is the last query's alone, in a
    // split of its own.
    let groups = [((4, 1), 65, 64), ((3, 3), 449, 128), ((8, 16), 513, 128), ((1, 128), 300, 256)];
    for variant in ["", "causal"] {
        cases.extend(lengths.map(|(lengths, dim)| problem(1, 2, 1, lengths, dim, variant)));
        cases.extend(groups.map(|((group, queries), keys, dim)| problem(1, group, group, (queries, keys), dim, variant)));
    }
    // More tiles of keys than blocks that they are split over.
    cases.push(problem(1, 2, 2, (3, 8321), 128, "causal"));
    cases.push(problem(2, 4, 2, (70, 150), 128, "causal"));
    cases.push(problem(2, 6, 3, (1, 1000), 128, ""));
    // More tiles than multiprocessors: blocks stay, in tiles of 192 queries and of 128, and take them in pairs, with one tile left over.
    cases.push(problem(5, 27, 1, (190, 100), 64, ""));
    cases.push(problem(3, 22, 1, (300, 300), 64, "causal"));
    cases
}

/// The reference is the host's: products of its size take the time of a check.
fn draw(draw: &mut Draw<'_>) -> Problem {
    const MOST: u64 = 1 << 28;
    let dim = draw.one_of(&[64, 128, 256]);
    let pairs = draw.operations().min(MOST) / (4 * dim);
    let group = draw.one_of(&[1, 1, 2, 3, 4, 8]);
    // Once in three times few queries have a long past.
    let (queries, keys) = if draw.once_in(3) { (8, 16384) } else { (2048, 4096) };
    let [queries, keys, batch, groups] = draw.extents(pairs / group, [queries, keys, 3, 4]);
    match draw.once_in(2) {
        true => problem(batch, group * groups, group, (queries.min(keys), queries.max(keys)), dim, "causal"),
        false => problem(batch, group * groups, group, (queries, keys), dim, ""),
    }
}

/// A problem's extents.
#[derive(Clone, Copy)]
pub(super) struct Extents {
    pub(super) batch: usize,
    pub(super) heads: usize,
    pub(super) group: usize,
    pub(super) queries: usize,
    pub(super) keys: usize,
    pub(super) dim: usize,
    pub(super) causal: bool,
}

impl Extents {
    pub(super) fn of(problem: &Problem) -> Result<Extents, Unsupported> {
        let [batch, heads, group, queries, keys, dim] =
            ["batch", "heads", "group", "queries", "keys", "dim"].map(|name| problem.get(name) as usize);
        let causal = problem.has("causal");
        if causal && queries > keys {
            return Err(Unsupported("causal attention needs a key for every query".to_string()));
        }
        if group == 0 || !heads.is_multiple_of(group) {
            return Err(Unsupported(format!("{heads} heads are not groups of {group}")));
        }
        Ok(Extents { batch, heads, group, queries, keys, dim, causal })
    }

    /// Rows of Q and of O.
    pub(super) fn rows(&self) -> usize {
        self.batch * self.heads * self.queries
    }

    /// Rows of K and of V.
    pub(super) fn shared_rows(&self) -> usize {
        self.batch * self.heads / self.group * self.keys
    }

    /// Pairs of a head's query and a key that it sees.
    pub(super) fn pairs(&self) -> u64 {
        (0..self.queries).map(|query| self.seen(query) as u64).sum()
    }

    /// Keys that a query sees.
    pub(super) fn seen(&self, query: usize) -> usize {
        if self.causal { query + self.keys - self.queries + 1 } else { self.keys }
    }

    pub(super) fn work(&self, storage: DType) -> Work {
        let read = ((self.rows() + 2 * self.shared_rows()) * self.dim) as u64;
        Work {
            read_bytes: packed_bytes(storage, read),
            write_bytes: packed_bytes(storage, (self.rows() * self.dim) as u64),
            flops: 4 * (self.batch * self.heads * self.dim) as u64 * self.pairs(),
            compute: Some(storage),
            metric: Metric::Compute,
            formula: "4 dim operations for each pair of a query and a key that it sees",
        }
    }
}

/// The tensors that every plan has, in their places.
const Q: Argument = Argument::Tensor(0);
const K: Argument = Argument::Tensor(1);
const V: Argument = Argument::Tensor(2);
const O: Argument = Argument::Tensor(3);

fn plan(problem: &Problem, policy: Policy, machine: Machine) -> Result<Plan, Unsupported> {
    let (storage, acc) = rows::storage(policy, "attention")?;
    if storage.bits() < 16 {
        return Err(Unsupported(format!("attention takes no `{policy}`")));
    }
    let extents = Extents::of(problem)?;
    let Extents { batch, heads, group, queries, keys, dim, .. } = extents;
    let (asked, shared) = ([batch, heads, queries, dim], [batch, heads / group, keys, dim]);
    let mut tensors = vec![
        TensorSpec::new("Q", storage, asked, Role::Input),
        TensorSpec::new("K", storage, shared, Role::Input),
        TensorSpec::new("V", storage, shared, Role::Input),
        TensorSpec::new("O", storage, asked, Role::Output),
    ];
    let scale = 1.0 / (dim as f64).sqrt();
    let launches = match few_queries::tile(group, queries, dim, storage, machine) {
        Some(tile) => few(&extents, tile, machine, (scale, acc), &mut tensors)?,
        None => vec![many(&extents, (storage, machine), (scale, acc), None)?],
    };
    Ok(Plan {
        tensors,
        launches,
        outputs: vec![OutputRows { tensor: 3, rows: extents.rows(), row_len: dim, exact: false }],
        work: extents.work(storage),
        exact_lane: false,
        reference: Box::new(Attended { extents, scale, storage, acc }),
    })
}

/// A block for a tile of a head's queries, or for two of them; with an array for the logarithms of rows' sums, too.
pub(super) fn many(
    extents: &Extents,
    (storage, machine): (DType, Machine),
    (scale, acc): (f64, DType),
    lse: Option<Argument>,
) -> Result<LaunchSpec, Unsupported> {
    let &Extents { batch, heads, group, dim, causal, .. } = extents;
    let planes = u32::try_from(batch * heads).ok().filter(|&planes| planes < 1 << 16);
    let planes = planes.ok_or_else(|| Unsupported(format!("{} heads need too many blocks", batch * heads)))?;
    let Choice { tile: (tm, tn), blocks, pairs, apart, sharing } = Choice::of(extents, storage, machine, lse.is_some());
    let blocks = u32::try_from(blocks).map_err(|_| Unsupported("too many queries".to_string()))?;
    let mut arguments = vec![
        ("Q", Q),
        ("K", K),
        ("V", V),
        ("O", O),
        ("scale", Argument::Float(scale)),
        ("HEADS", Argument::Int(heads as i64)),
        ("GROUP", Argument::Int(group as i64)),
        ("TM", Argument::Int(tm)),
        ("TN", Argument::Int(tn)),
        ("D", Argument::Int(dim as i64)),
        ("CAUSAL", Argument::Bool(causal)),
        ("APART", Argument::Bool(apart)),
        ("ACC", Argument::Type(acc)),
    ];
    arguments.extend(lse.map(|lse| ("lse", lse)));
    let kernel = match (lse, pairs) {
        (None, false) => "attention",
        (None, true) => "attention_pairs",
        (Some(_), false) => "attention_lse",
        (Some(_), true) => "attention_lse_pairs",
    };
    Ok(LaunchSpec { sharing, ..LaunchSpec::new(kernel, arguments, [blocks, planes, 1]) })
}

/// A block for all queries of a group's heads, or several for parts of its keys and a second launch.
fn few(
    extents: &Extents,
    tile: Tile,
    machine: Machine,
    (scale, acc): (f64, DType),
    tensors: &mut Vec<TensorSpec>,
) -> Result<Vec<LaunchSpec>, Unsupported> {
    let &Extents { batch, heads, group, queries, keys, dim, causal } = extents;
    let blocks = |count: usize| u32::try_from(count).map_err(|_| Unsupported(format!("{count} heads need too many blocks")));
    let groups = batch * heads / group;
    let tiles = keys.div_ceil(tile.keys);
    let splits = match machine {
        Machine::Cpu => 1,
        Machine::Gpu(arch) => few_queries::splits(groups as u64, tiles as u64, arch),
    };
    let int = |value: usize| Argument::Int(value as i64);
    let scale = ("scale", Argument::Float(scale));
    let mut arguments = vec![
        ("Q", Q),
        ("K", K),
        ("V", V),
        scale,
        ("SHARED", int(heads / group)),
        ("GROUP", int(group)),
        ("TG", int(tile.heads)),
        ("TQ", int(tile.queries)),
        ("TN", int(tile.keys)),
        ("D", int(dim)),
        ("CAUSAL", Argument::Bool(causal)),
        ("ACC", Argument::Type(acc)),
    ];
    if splits == 1 {
        arguments.push(("O", O));
        return Ok(vec![LaunchSpec::new("few_queries", arguments, [blocks(groups)?, 1, 1])]);
    }
    let mut workspace = |name, shape: &[usize]| {
        tensors.push(TensorSpec::new(name, acc, shape, Role::Workspace));
        (name, Argument::Tensor(tensors.len() - 1))
    };
    let parts = [batch * heads, queries, splits as usize, dim];
    let (largest, totals, results) =
        (workspace("largest", &parts[..3]), workspace("totals", &parts[..3]), workspace("results", &parts));
    arguments.extend([largest, totals, results, ("tiles", int(tiles.div_ceil(splits as usize)))]);
    let most = ("SPLITS", int(splits.next_power_of_two() as usize));
    let merge = vec![largest, totals, results, ("O", O), scale, ("HEADS", int(heads)), most, ("D", int(dim))];
    Ok(vec![
        LaunchSpec::new("few_queries_split", arguments, [blocks(groups)?, splits as u32, 1]),
        LaunchSpec::new("merge_splits", merge, [blocks(batch * heads)?, queries as u32, 1]),
    ])
}

pub(super) struct Attended {
    pub(super) extents: Extents,
    pub(super) scale: f64,
    pub(super) storage: DType,
    pub(super) acc: DType,
}

impl Attended {
    /// One row: the result and the sum of its terms' magnitudes, from K and V of its head; the largest error of a weight.
    fn row(&self, q: &[f64], kept: usize, k: &[f64], v: &[f64], out: &mut [f64], magnitudes: &mut [f64]) -> f64 {
        let mut weights = vec![0.0; kept];
        let mut error = 0.0f64;
        for (weight, k) in weights.iter_mut().zip(k.chunks_exact(self.extents.dim)) {
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
        for (weight, v) in weights.iter().zip(v.chunks_exact(self.extents.dim)) {
            for ((out, magnitude), v) in out.iter_mut().zip(magnitudes.iter_mut()).zip(v) {
                *out += weight * v;
                *magnitude += weight * v.abs();
            }
        }
        out.iter_mut().chain(magnitudes.iter_mut()).for_each(|value| *value /= total);
        4.0 * (self.extents.dim as f64).sqrt() * error + 4.0 * (2.0 + distance + largest.abs().min(1e3))
    }

    /// Rows in rising order; a head's K and V are decoded once for all of its rows.
    fn answer(&self, inputs: &dyn Inputs, rows: &[usize], want: &mut [f64], bound: &mut [f64]) {
        let u = unit_roundoff(self.acc);
        let Extents { heads, group, queries, keys, dim, .. } = self.extents;
        let model = ErrorModel { floor: underflow(self.storage), ..ErrorModel::nearest(self.storage, self.acc) };
        let mut start = 0;
        for head in rows.chunk_by(|a, b| a / queries == b / queries) {
            let plane = head[0] / queries;
            let base = (plane / heads * (heads / group) + plane % heads / group) * keys * dim;
            let [k, v] = [1, 2].map(|tensor| {
                let mut all = vec![0.0; keys * dim];
                inputs.numbers(tensor, base, &mut all);
                all
            });
            let part = start * dim..(start + head.len()) * dim;
            start += head.len();
            let rows = want[part.clone()].par_chunks_mut(dim).zip(bound[part].par_chunks_mut(dim)).zip(head);
            rows.for_each(|((want, bound), &row)| {
                let mut q = vec![0.0; dim];
                inputs.numbers(0, row * dim, &mut q);
                let kept = self.extents.seen(row % queries);
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
