//! Rows of a table by number: a token's embedding, its gradient, and new keys and values that are put into a cache.

use rayon::prelude::*;
use tessera_types::{DType, ErrorModel, Policy, Storage};

use super::by_row::{ByRow, Line, integer, numbers};
use super::rows::{self, int};
use crate::draw::Draw;
use crate::element::{storable, underflow};
use crate::operator::{
    Argument, Expected, Fill, Inputs, LaunchSpec, Machine, Operator, OutputRows, Plan, Reference, Role, TensorSpec, Unsupported,
};
use crate::problem::Problem;
use crate::signature::{Calls, Indices, Operand, Rows, Signature};
use crate::work::{Metric, Work, packed_bytes};

pub(crate) static EMBEDDING: Operator = Operator {
    name: "embedding",
    about: "rows of a table by number",
    calls: Calls {
        variants: &[""],
        default: Some(""),
        signature: |_| {
            let inputs = &[Operand("table", "vocab dim"), Operand("ids", "..tokens")];
            let signature = Signature::new(inputs, &[Operand("y", "..tokens dim")]).types(&[("ids", DType::I32)]);
            signature.indices(const { &[Indices::of("ids", "table")] })
        },
        problem: |sizes| Ok(problem(["tokens", "vocab", "dim"].map(|name| sizes.get(name)))),
    },
    further_precisions: &["fp64", "fp8_e4m3@accum(fp32)", "fp8_e5m2@accum(fp32)"],
    plan: look_up,
    gradient: Some(&EMBEDDING_BACKWARD),
    ..NEW
};

pub(crate) static EMBEDDING_BACKWARD: Operator = Operator {
    name: "embedding_backward",
    about: "gradient of a table whose rows were looked up, the same in every run",
    calls: Calls {
        variants: &[""],
        default: Some(""),
        signature: |_| {
            let inputs = &[Operand("dy", "..tokens dim"), Operand("ids", "..tokens")];
            let signature = Signature::new(inputs, &[Operand("dtable", "vocab dim")]).types(&[("ids", DType::I32)]);
            signature.indices(const { &[Indices::of("ids", "dtable")] })
        },
        problem: |sizes| Ok(problem(["tokens", "vocab", "dim"].map(|name| sizes.get(name)))),
    },
    plan: add_up,
    ..NEW
};

pub(crate) static KV_APPEND: Operator = Operator {
    name: "kv_append",
    about: "new keys and values into pages of a cache, in place",
    precisions: &["fp16", "bf16"],
    further_precisions: &["fp32", "fp64", "fp8_e4m3@accum(fp32)", "fp8_e5m2@accum(fp32)"],
    further_suite: || [(16, 2048), (16384, 8192)].map(|(tokens, pages)| cached([tokens, pages, 64, 8, 128])).into(),
    quick: || vec![(cached([100, 9, 16, 2, 64]), "bf16")],
    edges: || {
        let sizes = [[1, 1, 1, 1, 1], [5, 3, 16, 2, 64], [100, 9, 16, 3, 80], [7, 2, 8, 1, 1025], [0, 2, 8, 1, 16]];
        sizes.map(cached).into()
    },
    draw: |draw| {
        let [tokens, heads, dim] = draw.extents(draw.elements(), [2000, 8, 300]);
        cached([tokens, tokens / 16 + 1, 16, heads, dim])
    },
    calls: Calls {
        variants: &[""],
        default: Some(""),
        signature: |_| {
            let inputs = &[Operand("k", "..tokens heads dim"), Operand("v", "..tokens heads dim"), Operand("slots", "..tokens")];
            let caches = &[Operand("k_cache", "pages page heads dim"), Operand("v_cache", "pages page heads dim")];
            let signature = Signature::new(inputs, caches).types(&[("slots", DType::I32)]).updated(&["k_cache", "v_cache"]);
            signature.indices(const { &[Indices::of("slots", "k_cache").among(Rows::Leading(2)).or_none().once()] })
        },
        problem: |sizes| Ok(cached(["tokens", "pages", "page", "heads", "dim"].map(|name| sizes.get(name)))),
    },
    plan: append,
    ..NEW
};

/// What the operators share.
const NEW: Operator = Operator {
    name: "",
    about: "",
    file: "embedding.py",
    source: include_str!("../../kernels/embedding.py"),
    precisions: &["fp32", "fp16", "bf16"],
    further_precisions: &["fp64"],
    suite: Vec::new,
    further_suite: || {
        let sizes = [[4096, 128_256, 4096], [16384, 32000, 4096], [16384, 50257, 1024], [16384, 151_936, 2048]];
        sizes.map(problem).into()
    },
    quick: || ["fp32", "bf16"].map(|precision| (problem([300, 500, 256]), precision)).into(),
    edges: || {
        let sizes = [
            [1, 1, 1],
            [16, 3, 997],
            [997, 50, 16],
            [100, 1000, 64],
            [1023, 65, 7],
            [33, 129, 1025],
            [5, 300, 4100],
            [2100, 1, 31],
            [0, 7, 8],
        ];
        sizes.map(problem).into()
    },
    draw: |draw: &mut Draw<'_>| {
        let [tokens, vocab, dim] = draw.extents(draw.elements(), [1000, 1000, 2000]);
        problem([tokens, vocab, dim])
    },
    calls: Calls {
        variants: &[""],
        default: Some(""),
        signature: |_| Signature::new(&[], &[]),
        problem: |_| Ok(problem([0; 3])),
    },
    numbers: &[],
    plan: look_up,
    ways: None,
    gradient: None,
    no_specials: None,
    ladder: &[],
};

fn problem([tokens, vocab, dim]: [u64; 3]) -> Problem {
    Problem::new(&[("tokens", tokens), ("vocab", vocab), ("dim", dim)], "")
}

fn cached([tokens, pages, page, heads, dim]: [u64; 5]) -> Problem {
    Problem::new(&[("tokens", tokens), ("pages", pages), ("page", page), ("heads", heads), ("dim", dim)], "")
}

/// Elements of a row that a block takes: some vectors of each thread.
pub(super) fn columns(n: usize) -> usize {
    n.next_power_of_two().clamp(16, 4096)
}

/// Rows of a table whose tokens one block looks for, and tokens that it looks at together.
const GROUP: usize = 64;
const PART: usize = 1024;

fn extents(problem: &Problem) -> Result<[usize; 3], Unsupported> {
    let extents = ["tokens", "vocab", "dim"].map(|name| problem.get(name));
    if extents[0] > i32::MAX as u64 || extents[1] > i32::MAX as u64 {
        return Err(Unsupported(format!("{} tokens of {} rows: they are numbered in 32 bits", extents[0], extents[1])));
    }
    Ok(extents.map(|extent| extent as usize))
}

/// A block for each row and each part of its columns.
pub(super) fn grid(rows: usize, n: usize, tile: usize) -> Result<[u32; 3], Unsupported> {
    let [rows, ..] = rows::grid(rows, 1)?;
    let parts = u32::try_from(n.div_ceil(tile)).ok().filter(|&parts| parts < 1 << 16);
    parts.map(|parts| [rows, parts, 1]).ok_or_else(|| Unsupported(format!("rows of {n} elements are too long")))
}

fn moved(bytes: u64, read: u64, formula: &'static str) -> Work {
    Work { read_bytes: bytes + read, write_bytes: bytes, flops: 0, compute: None, metric: Metric::Bandwidth, formula }
}

fn ids(tokens: usize, vocab: usize) -> TensorSpec {
    let fill = Fill::Integers { least: 0, greatest: vocab.saturating_sub(1) as i64 };
    TensorSpec { fill, ..TensorSpec::new("ids", DType::I32, [tokens], Role::Input) }
}

fn look_up(problem: &Problem, policy: Policy, _machine: Machine) -> Result<Plan, Unsupported> {
    let (storage, _) = rows::storage(policy, "embedding")?;
    let [tokens, vocab, dim] = extents(problem)?;
    let tile = columns(dim);
    let arguments =
        vec![("table", Argument::Tensor(0)), ("ids", Argument::Tensor(1)), ("y", Argument::Tensor(2)), ("TILE", int(tile))];
    let row = move |inputs: &dyn Inputs, _output: usize, row: usize, line: Line<'_>| {
        if let Line::Codes(codes) = line {
            inputs.codes(0, integer(inputs, 1, row) * dim, codes);
        }
    };
    Ok(Plan {
        tensors: vec![
            TensorSpec::new("table", storage, [vocab, dim], Role::Input),
            ids(tokens, vocab),
            TensorSpec::new("y", storage, [tokens, dim], Role::Output),
        ],
        launches: vec![LaunchSpec::new("embedding", arguments, grid(tokens, dim, tile)?)],
        outputs: vec![OutputRows { tensor: 2, rows: tokens, row_len: dim, exact: true }],
        work: moved(packed_bytes(storage, (tokens * dim) as u64), 4 * tokens as u64, "a row read and written for each token"),
        exact_lane: false,
        reference: Box::new(ByRow { row_lens: vec![dim], row }),
    })
}

fn add_up(problem: &Problem, policy: Policy, _machine: Machine) -> Result<Plan, Unsupported> {
    let (storage, acc) = rows::storage(policy, "embedding_backward")?;
    let [tokens, vocab, dim] = extents(problem)?;
    let (groups, tile) = (vocab.div_ceil(GROUP), columns(dim));
    let tensors = vec![
        TensorSpec::new("dy", storage, [tokens, dim], Role::Input),
        ids(tokens, vocab),
        TensorSpec::new("dtable", storage, [vocab, dim], Role::Output),
        TensorSpec::new("counts", DType::I32, [groups], Role::Workspace),
        TensorSpec::new("firsts", DType::I32, [groups + 1], Role::Workspace),
        TensorSpec::new("tokens", DType::I32, [tokens.max(1)], Role::Workspace),
    ];
    let [dy, ids, dtable, counts, firsts, list] = [0, 1, 2, 3, 4, 5].map(Argument::Tensor);
    let (group, part) = (("GROUP", int(GROUP)), ("PART", int(PART)));
    let per_group = rows::grid(groups, 1)?;
    let add = vec![
        ("ids", ids),
        ("dy", dy),
        ("firsts", firsts),
        ("tokens", list),
        ("dtable", dtable),
        group,
        ("TILE", int(tile)),
        ("ACC", Argument::Type(acc)),
    ];
    let launches = vec![
        LaunchSpec::new("count_tokens", vec![("ids", ids), ("counts", counts), group, part], per_group),
        LaunchSpec::new("first_tokens", vec![("counts", counts), ("firsts", firsts), part], [1, 1, 1]),
        LaunchSpec::new("list_tokens", vec![("ids", ids), ("firsts", firsts), ("tokens", list), group, part], per_group),
        LaunchSpec::new("embedding_backward", add, grid(vocab, dim, tile)?),
    ];
    let bytes = |rows: usize| packed_bytes(storage, (rows * dim) as u64);
    Ok(Plan {
        tensors,
        launches,
        outputs: vec![OutputRows { tensor: 2, rows: vocab, row_len: dim, exact: false }],
        work: Work {
            read_bytes: bytes(tokens) + 4 * tokens as u64,
            write_bytes: bytes(vocab),
            flops: (tokens * dim) as u64,
            compute: None,
            metric: Metric::Bandwidth,
            formula: "cotangents and ids read once, the table's gradient written once",
        },
        exact_lane: false,
        reference: Box::new(Summed { tokens, dim, storage, acc }),
    })
}

/// Rows of cotangents, added up by number.
struct Summed {
    tokens: usize,
    dim: usize,
    storage: DType,
    acc: DType,
}

impl Reference for Summed {
    fn rows(&self, inputs: &dyn Inputs, _output: usize, rows: std::ops::Range<usize>, expected: Expected<'_>) {
        let Expected::Bounded { want, bound } = expected else { return };
        let mut of_row: Vec<Vec<usize>> = vec![Vec::new(); rows.len()];
        for (token, id) in numbers(inputs, 1, 0, self.tokens).into_iter().enumerate() {
            if let Some(of_row) = (id as usize).checked_sub(rows.start).and_then(|at| of_row.get_mut(at)) {
                of_row.push(token);
            }
        }
        let model = ErrorModel { floor: underflow(self.storage), ..ErrorModel::nearest(self.storage, self.acc) };
        let out = want.par_chunks_mut(self.dim).zip(bound.par_chunks_mut(self.dim)).zip(of_row);
        out.for_each(|((want, bound), tokens)| {
            want.fill(0.0);
            bound.fill(0.0);
            for &token in &tokens {
                for ((want, bound), dy) in want.iter_mut().zip(&mut *bound).zip(numbers(inputs, 0, token * self.dim, self.dim)) {
                    *want += dy;
                    *bound += dy.abs();
                }
            }
            for (want, bound) in want.iter_mut().zip(bound) {
                *bound = model.contraction(*want, *bound, tokens.len());
                *want = storable(self.storage, *want);
            }
        });
    }
}

fn append(problem: &Problem, policy: Policy, _machine: Machine) -> Result<Plan, Unsupported> {
    let storage = match policy.storage() {
        Storage::Plain(dtype) if dtype.bits() >= 8 => dtype,
        _ => return Err(Unsupported(format!("kv_append takes no `{policy}`"))),
    };
    let [tokens, pages, page, heads, dim] = ["tokens", "pages", "page", "heads", "dim"].map(|name| problem.get(name) as usize);
    let (slots, n) = (pages * page, heads * dim);
    if slots > i32::MAX as usize {
        return Err(Unsupported(format!("{slots} slots: they are numbered in 32 bits")));
    }
    let tile = columns(n);
    let launch = |x, cache| {
        let arguments = vec![
            ("x", Argument::Tensor(x)),
            ("slots", Argument::Tensor(2)),
            ("cache", Argument::Tensor(cache)),
            ("TILE", int(tile)),
        ];
        grid(tokens, n, tile).map(|grid| LaunchSpec::new("append", arguments, grid))
    };
    let launches = vec![launch(0, 3)?, launch(1, 4)?];
    let row = move |inputs: &dyn Inputs, output: usize, row: usize, line: Line<'_>| {
        let Line::Codes(codes) = line else { return };
        let token = numbers(inputs, 2, 0, tokens).into_iter().position(|slot| slot == row as f64);
        match token {
            Some(token) => inputs.codes(output, token * n, codes),
            None => inputs.codes(3 + output, row * n, codes),
        }
    };
    let output = |tensor| OutputRows { tensor, rows: slots, row_len: n, exact: true };
    Ok(Plan {
        tensors: vec![
            TensorSpec::new("k", storage, [tokens, n], Role::Input),
            TensorSpec::new("v", storage, [tokens, n], Role::Input),
            TensorSpec {
                fill: Fill::Distinct { below: slots as u64 },
                ..TensorSpec::new("slots", DType::I32, [tokens], Role::Input)
            },
            TensorSpec::new("k_cache", storage, [slots, n], Role::InOut),
            TensorSpec::new("v_cache", storage, [slots, n], Role::InOut),
        ],
        launches,
        outputs: vec![output(3), output(4)],
        work: moved(2 * packed_bytes(storage, (tokens * n) as u64), 4 * tokens as u64, "keys and values read and written once"),
        exact_lane: false,
        reference: Box::new(ByRow { row_lens: vec![n, n], row }),
    })
}
