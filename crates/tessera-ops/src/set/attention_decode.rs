//! Attention of the last token of each sequence, whose keys and values lie in pages: a sequence's pages in order are a row of `block_table`, and it
//! has as many keys as `lengths` says.
//!
//! ```text
//! page size 4, lengths [6, 3], block_table [[2, 0], [1, -]]      pages   0: keys 4 5 - - of sequence 0    1: keys 0 1 2 - of 1    2: keys 0 1 2 3 of 0
//! ```
//!
//! What pages hold behind a sequence's end is read and weighs nothing; it is finite. Numbers of a call: `window`, so many last keys are seen (0: all);
//! `softcap`, scores are `softcap * tanh(score / softcap)` (0: as they are). The variant `alibi` adds `slopes[head] * (key - last key)` (Press et al. 2022).

use std::ops::Range;

use rayon::prelude::*;
use tessera_types::{DType, ErrorModel, Policy, unit_roundoff};

use super::attention_scores::{SOFTCAP, softcap};
use super::few_queries::{self, Tile};
use super::rows;
use crate::draw::Draw;
use crate::element::{storable, underflow};
use crate::operator::{
    Argument, Expected, Fill, Inputs, LaunchSpec, Machine, Operator, OutputRows, Plan, Reference, Role, TensorSpec, Unsupported,
};
use crate::problem::Problem;
use crate::signature::{Calls, Operand, Pages, Signature, Sizes};
use crate::work::{Metric, Work, packed_bytes};

pub(crate) static ATTENTION_DECODE: Operator = Operator {
    name: "attention_decode",
    about: "attention of one query a sequence to keys and values in pages, with a window, capped scores, linear biases",
    file: "attention_decode.py",
    source: include_str!("../../kernels/attention_decode.py"),
    precisions: &["fp16", "bf16"],
    further_precisions: &["fp32", "fp64"],
    suite: Vec::new,
    further_suite: suite,
    quick,
    edges,
    draw,
    calls: CALLS,
    numbers: &[WINDOW, SOFTCAP],
    plan,
    ways: None,
    gradient: None,
    no_specials: Some("its bounds are of the largest magnitudes of a head, and say nothing where one is infinite"),
    ladder: &[],
};

const WINDOW: (&str, f64) = ("window", 0.0);
const ALIBI: &str = "alibi";

const CALLS: Calls = Calls {
    variants: &["", ALIBI],
    default: Some(""),
    signature: |variant| {
        const Q: Operand = Operand("Q", "batch heads dim");
        const K: Operand = Operand("k_cache", "pages page shared dim");
        const V: Operand = Operand("v_cache", "pages page shared dim");
        const TABLE: Operand = Operand("block_table", "batch most");
        const LENGTHS: Operand = Operand("lengths", "batch");
        const O: [Operand; 1] = [Operand("O", "batch heads dim")];
        const TYPES: &[(&str, DType)] = &[("block_table", DType::I32), ("lengths", DType::I32), ("slopes", DType::F32)];
        let signature = match variant {
            ALIBI => Signature::new(&[Q, K, V, TABLE, LENGTHS, Operand("slopes", "heads")], &O),
            _ => Signature::new(&[Q, K, V, TABLE, LENGTHS], &O),
        };
        let signature = signature.types(TYPES).scalars(&["scale", "window", "softcap"]);
        signature.pages(Pages { table: "block_table", lengths: "lengths", pages_of: "k_cache" })
    },
    problem: sizes,
};

/// The problem of known sizes.
fn sizes(sizes: &Sizes) -> Result<Problem, Unsupported> {
    let [batch, heads, shared, pages, page, most, dim] =
        ["batch", "heads", "shared", "pages", "page", "most", "dim"].map(|name| sizes.get(name));
    if shared == 0 || !heads.is_multiple_of(shared) {
        return Err(Unsupported(format!(
            "`Q` has {heads} heads and `k_cache` {shared}: the first are no multiple of the second"
        )));
    }
    Ok(problem([batch, heads, heads / shared, pages, page, most, dim], sizes.variant))
}

fn problem([batch, heads, group, pages, page, most, dim]: [u64; 7], variant: &str) -> Problem {
    let sizes =
        [("batch", batch), ("heads", heads), ("group", group), ("pages", pages), ("page", page), ("most", most), ("dim", dim)];
    Problem::new(&sizes, variant)
}

/// A model's heads in groups of 4 and of 8, with 2048 to 32768 keys: 7 cases; the smallest has 64 MiB of keys and values.
fn suite() -> Vec<Problem> {
    let sizes = [(2, 4, 8192), (16, 4, 8192), (64, 4, 2048), (1, 8, 32768), (8, 8, 8192), (128, 8, 4096)];
    let plain = sizes.map(|(batch, group, keys)| problem([batch, 32, group, batch * keys / 64, 64, keys / 64, 128], ""));
    let windowed = problem([16, 32, 4, 2048, 64, 128, 128], "").with_number(WINDOW, 4096.0);
    plain.into_iter().chain([windowed]).collect()
}

fn quick() -> Vec<(Problem, &'static str)> {
    vec![(problem([3, 8, 4, 60, 16, 20, 128], ""), "bf16"), (problem([2, 4, 2, 20, 64, 10, 64], ALIBI), "fp16")]
}

fn edges() -> Vec<Problem> {
    let base = [
        [1, 1, 1, 3, 16, 1, 64],
        [3, 4, 4, 30, 16, 9, 64],
        [2, 6, 3, 20, 64, 7, 128],
        [4, 2, 1, 9, 32, 5, 256],
        [2, 16, 8, 12, 128, 4, 128],
        [2, 4, 2, 40, 8, 30, 64],
    ];
    let mut cases: Vec<Problem> = base.map(|sizes| problem(sizes, "")).into();
    cases.push(problem(base[1], ALIBI));
    cases.push(problem(base[2], ALIBI));
    cases.push(problem(base[1], "").with_number(WINDOW, 40.0));
    cases.push(problem(base[3], "").with_number(WINDOW, 1.0));
    cases.push(problem(base[2], "").with_number(SOFTCAP, 0.5));
    // No number of 32 bits.
    cases.push(problem(base[2], "").with_number(SOFTCAP, 0.3));
    cases.push(problem(base[1], ALIBI).with_number(WINDOW, 33.0).with_number(SOFTCAP, 2.0));
    // Keys of a sequence over many blocks.
    cases.push(problem([1, 4, 4, 130, 16, 128, 128], ""));
    cases
}

fn draw(draw: &mut Draw<'_>) -> Problem {
    let (dim, page, group) = (draw.one_of(&[64, 128, 256]), draw.one_of(&[8, 16, 32, 64, 128]), draw.one_of(&[1, 2, 3, 4, 8]));
    let [batch, shared, most] = draw.extents(draw.elements().min(1 << 20) / (dim * page), [6, 4, 40]);
    let drawn = problem([batch, shared * group, group, batch * most + 1, page, most, dim], draw.one_of(&["", ALIBI]));
    match draw.once_in(3) {
        true => drawn.with_number(WINDOW, draw.extent(most * page) as f64),
        false => drawn,
    }
}

/// A problem's extents.
#[derive(Clone, Copy)]
struct Extents {
    batch: usize,
    heads: usize,
    group: usize,
    pages: usize,
    page: usize,
    most: usize,
    dim: usize,
    window: usize,
    softcap: f64,
    alibi: bool,
}

impl Extents {
    fn of(problem: &Problem) -> Result<Extents, Unsupported> {
        let [batch, heads, group, pages, page, most, dim] =
            ["batch", "heads", "group", "pages", "page", "most", "dim"].map(|name| problem.get(name) as usize);
        let (window, softcap) = (problem.number(WINDOW.0).unwrap_or(WINDOW.1), softcap(problem)?);
        if group == 0 || !heads.is_multiple_of(group) {
            return Err(Unsupported(format!("{heads} heads are not groups of {group}")));
        }
        if !page.is_power_of_two() || page < 8 {
            return Err(Unsupported(format!("pages of {page} tokens: they have a power of two of them, 8 or more")));
        }
        if window < 0.0 || window.fract() != 0.0 || window > f64::from(i32::MAX) {
            return Err(Unsupported(format!("a window of {window} keys")));
        }
        Ok(Extents { batch, heads, group, pages, page, most, dim, window: window as usize, softcap, alibi: problem.has(ALIBI) })
    }

    /// Keys that a sequence can have.
    fn keys(&self) -> usize {
        self.most * self.page
    }

    /// Keys that the longest sequence's query sees.
    fn seen(&self) -> usize {
        if self.window > 0 { self.window.min(self.keys()) } else { self.keys() }
    }

    /// Lengths as they are measured are full; others are any.
    fn lengths(&self) -> Fill {
        const MEASURED: usize = 2048;
        let greatest = self.keys() as i64;
        Fill::Integers { least: if self.keys() >= MEASURED { greatest } else { 0 }, greatest }
    }
}

fn plan(problem: &Problem, policy: Policy, machine: Machine) -> Result<Plan, Unsupported> {
    let (storage, acc) = rows::storage(policy, "attention_decode")?;
    if storage.bits() < 16 {
        return Err(Unsupported(format!("attention_decode takes no `{policy}`")));
    }
    let extents = Extents::of(problem)?;
    let Extents { batch, heads, group, pages, page, most, dim, alibi, .. } = extents;
    let tile = few_queries::tile(group, 1, dim, storage, machine);
    let tile = tile.ok_or_else(|| Unsupported(format!("{group} heads that share one of K and V are too many")))?;
    let cache = [pages, page, heads / group, dim];
    let mut tensors = vec![
        TensorSpec::new("Q", storage, [batch, heads, dim], Role::Input),
        TensorSpec::new("k_cache", storage, cache, Role::Input),
        TensorSpec::new("v_cache", storage, cache, Role::Input),
        TensorSpec {
            fill: Fill::Distinct { below: pages as u64 },
            ..TensorSpec::new("block_table", DType::I32, [batch, most], Role::Input)
        },
        TensorSpec { fill: extents.lengths(), ..TensorSpec::new("lengths", DType::I32, [batch], Role::Input) },
        TensorSpec::new("O", storage, [batch, heads, dim], Role::Output),
    ];
    if alibi {
        let slopes = Fill::Normal { mean: 0.05, sd: 0.02 };
        tensors.push(TensorSpec { fill: slopes, ..TensorSpec::new("slopes", DType::F32, [heads], Role::Input) });
    }
    let scale = 1.0 / (dim as f64).sqrt();
    let launches = launches(&extents, tile, machine, (scale, acc), &mut tensors)?;
    let pairs = (batch * heads * extents.seen()) as u64;
    let (rows, reads) = ((batch * heads * dim) as u64, (2 * batch * heads / group * extents.seen() * dim) as u64);
    Ok(Plan {
        tensors,
        launches,
        outputs: vec![OutputRows { tensor: 5, rows: batch * heads, row_len: dim, exact: false }],
        work: Work {
            read_bytes: packed_bytes(storage, rows + reads),
            write_bytes: packed_bytes(storage, rows),
            flops: 4 * pairs * dim as u64,
            compute: None,
            metric: Metric::Bandwidth,
            formula: "keys and values that are seen read once, as of full lengths",
        },
        exact_lane: false,
        reference: Box::new(Decoded { extents, scale, storage, acc }),
    })
}

fn launches(
    extents: &Extents,
    tile: Tile,
    machine: Machine,
    (scale, acc): (f64, DType),
    tensors: &mut Vec<TensorSpec>,
) -> Result<Vec<LaunchSpec>, Unsupported> {
    let &Extents { batch, heads, group, page, dim, window, softcap, alibi, .. } = extents;
    let blocks = |count: usize| u32::try_from(count).map_err(|_| Unsupported(format!("{count} heads need too many blocks")));
    let keys = tile.keys.min(page);
    let (groups, tiles) = (batch * heads / group, extents.seen().div_ceil(keys));
    let splits = match machine {
        Machine::Cpu => 1,
        Machine::Gpu(arch) => few_queries::splits(groups as u64, tiles as u64, arch) as usize,
    };
    let mut workspace = |name, shape: &[usize]| {
        tensors.push(TensorSpec::new(name, acc, shape, Role::Workspace));
        (name, Argument::Tensor(tensors.len() - 1))
    };
    let parts = [batch * heads, splits, dim];
    let left = [workspace("largest", &parts[..2]), workspace("totals", &parts[..2]), workspace("results", &parts)];
    let int = |value: usize| Argument::Int(value as i64);
    let mut arguments = vec![
        ("Q", Argument::Tensor(0)),
        ("k_cache", Argument::Tensor(1)),
        ("v_cache", Argument::Tensor(2)),
        ("block_table", Argument::Tensor(3)),
        ("lengths", Argument::Tensor(4)),
        ("scale", Argument::Float(scale)),
        ("cap", Argument::Float(softcap)),
        ("SHARED", int(heads / group)),
        ("GROUP", int(group)),
        ("TG", int(tile.heads * tile.queries)),
        ("TN", int(keys)),
        ("D", int(dim)),
        ("WINDOW", int(window)),
        ("CAPPED", Argument::Bool(softcap > 0.0)),
        ("ACC", Argument::Type(acc)),
    ];
    arguments.extend(left);
    if alibi {
        arguments.push(("slopes", Argument::Tensor(6)));
    }
    let most = splits.next_power_of_two();
    let mut merge = vec![("O", Argument::Tensor(5)), ("HEADS", int(heads)), ("PARTS", int(most)), ("D", int(dim))];
    merge.extend(left);
    let kernel = if alibi { "attention_decode_alibi" } else { "attention_decode" };
    Ok(vec![
        LaunchSpec::new(kernel, arguments, [blocks(groups)?, splits as u32, 1]),
        LaunchSpec::new("merge_parts", merge, [blocks(batch * heads)?, 1, 1]),
    ])
}

struct Decoded {
    extents: Extents,
    scale: f64,
    storage: DType,
    acc: DType,
}

impl Decoded {
    /// One head's row of a sequence.
    fn row(&self, inputs: &dyn Inputs, row: usize, want: &mut [f64], bound: &mut [f64]) {
        let Extents { heads, group, page, most, dim, window, softcap, alibi, .. } = self.extents;
        let (batch, head) = (row / heads, row % heads);
        let shared = heads / group;
        let one = |tensor, place| {
            let mut value = [0.0];
            inputs.numbers(tensor, place, &mut value);
            value[0]
        };
        let line = |tensor, place| {
            let mut line = vec![0.0; dim];
            inputs.numbers(tensor, place, &mut line);
            line
        };
        let length = one(4, batch) as usize;
        let slope = if alibi { one(6, head) } else { 0.0 };
        let q = line(0, row * dim);
        let first = if window > 0 { length.saturating_sub(window) } else { 0 };
        let place = |key: usize| {
            let of_page = one(3, batch * most + key / page) as usize * page + key % page;
            (of_page * shared + head / group) * dim
        };
        let (mut scores, mut error) = (Vec::new(), 0.0f64);
        for key in first..length {
            let k = line(1, place(key));
            let (sum, magnitude) = q.iter().zip(&k).fold((0.0, 0.0), |(sum, all), (q, k)| (sum + q * k, all + (q * k).abs()));
            let capped = if softcap > 0.0 { softcap * (self.scale * sum / softcap).tanh() } else { self.scale * sum };
            scores.push(capped + slope * (key as f64 - (length - 1) as f64));
            // The hyperbolic tangent is off by some units in the last place of the cap; a bias by those of its own.
            let beside = softcap + (slope * (key as f64 - (length - 1) as f64)).abs();
            error = error.max(4.0 * (dim as f64).sqrt() * self.scale * magnitude + 8.0 * beside);
        }
        let largest = scores.iter().copied().fold(f64::NEG_INFINITY, f64::max);
        let distance = scores.iter().map(|score| (largest - score).min(30.0)).fold(0.0, f64::max);
        let total: f64 = scores.iter().map(|score| (score - largest).exp()).sum();
        want.fill(0.0);
        let mut magnitudes = vec![0.0; dim];
        for (key, score) in (first..length).zip(&scores) {
            let weight = (score - largest).exp() / total;
            for ((want, magnitude), v) in want.iter_mut().zip(&mut magnitudes).zip(line(2, place(key))) {
                *want += weight * v;
                *magnitude += weight * v.abs();
            }
        }
        let u = unit_roundoff(self.acc);
        let model = ErrorModel { floor: underflow(self.storage), ..ErrorModel::nearest(self.storage, self.acc) };
        let weight = u * (error + 4.0 * (2.0 + distance + largest.abs().min(1e3)));
        let relative = unit_roundoff(self.storage) + 2.0 * weight + 8.0 * u * (scores.len() as f64).sqrt();
        for ((want, bound), magnitude) in want.iter_mut().zip(bound).zip(magnitudes) {
            *bound = relative * magnitude + model.u_out * want.abs() + model.floor;
            *want = storable(self.storage, *want);
        }
    }

    fn answer(&self, inputs: &dyn Inputs, rows: &[usize], expected: Expected<'_>) {
        let Expected::Bounded { want, bound } = expected else { return };
        let dim = self.extents.dim;
        let out = want.par_chunks_mut(dim).zip(bound.par_chunks_mut(dim)).zip(rows);
        out.for_each(|((want, bound), &row)| self.row(inputs, row, want, bound));
    }
}

impl Reference for Decoded {
    fn rows(&self, inputs: &dyn Inputs, _output: usize, rows: Range<usize>, expected: Expected<'_>) {
        self.answer(inputs, &rows.collect::<Vec<_>>(), expected);
    }

    fn scattered(&self, inputs: &dyn Inputs, _output: usize, _row_len: usize, rows: &[Range<usize>], expected: Expected<'_>) {
        self.answer(inputs, &rows.iter().cloned().flatten().collect::<Vec<_>>(), expected);
    }
}
