//! Grouped products: rows of `A` in groups of any sizes, each group times a matrix of its own, in one launch.
//!
//! `offsets` rises from 0 to the number of rows, and group `g` has rows `offsets[g]` to `offsets[g + 1]`; it lies where the kernel runs, so how
//! many tiles there are is known there alone. A launch has enough blocks for any groups, and those that have nothing to do end at once.

use tessera_types::{DType, Policy, Storage, policy_name};

use super::gemm::{Cut, blocks};
use super::product::{self, Blend, Part, Product};
use crate::draw::Draw;
use crate::matrix::Matrix;
use crate::operator::{Argument, Fill, Inputs, Machine, Operator, OutputRows, Plan, Role, TensorSpec, Unsupported};
use crate::problem::Problem;
use crate::signature::{Calls, Operand, Signature};
use crate::work::{Metric, Work, packed_bytes};

pub(crate) static GEMM_GROUPED: Operator = Operator {
    name: "gemm_grouped",
    about: "rows in groups of any sizes, each group times a matrix of its own",
    file: "gemm_grouped.py",
    source: include_str!("../../kernels/gemm_grouped.py"),
    precisions: &["bf16->bf16", "fp16->fp16"],
    further_precisions: &["fp32", "bf16->fp32", "fp16->fp32", "fp8_e4m3->bf16", "fp8_e5m2->bf16"],
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
    no_specials: None,
    ladder: &[],
};

/// Bisection takes as many loads as this has bits.
const MOST_GROUPS: u64 = (1 << 16) - 1;

const VARIANTS: [&str; 2] = ["nn", "nt"];

const CALLS: Calls = Calls {
    variants: &VARIANTS,
    default: Some("nn"),
    signature: |variant| {
        const A: Operand = Operand("A", "tokens k");
        const OFFSETS: Operand = Operand("offsets", "bounds");
        const C: Operand = Operand("C", "tokens n");
        let signature = match variant {
            "nt" => Signature::new(&[A, Operand("B", "groups n k"), OFFSETS], &[C]),
            _ => Signature::new(&[A, Operand("B", "groups k n"), OFFSETS], &[C]),
        };
        signature.types(&[("offsets", DType::I32)]).bounds(&[["offsets", "A"]])
    },
    problem: |sizes| {
        let [tokens, groups, n, k, bounds] = ["tokens", "groups", "n", "k", "bounds"].map(|name| sizes.get(name));
        if bounds != groups + 1 {
            return Err(Unsupported(format!(
                "`B` has {groups} groups, of which `offsets` has {} bounds, not {bounds}",
                groups + 1
            )));
        }
        Ok(problem([tokens, groups, n, k], sizes.variant))
    },
};

fn problem([tokens, groups, n, k]: [u64; 4], variant: &str) -> Problem {
    Problem::new(&[("tokens", tokens), ("groups", groups), ("n", n), ("k", k)], variant)
}

/// Experts of language models: few large and many small ones, for prompts and for a few tokens.
fn suite() -> Vec<Problem> {
    let layers = [(8, 14336, 4096), (8, 4096, 14336), (32, 4096, 7168), (128, 1536, 2048)];
    let tokens = [64, 512, 4096, 16384];
    let of_models = layers.iter().flat_map(|&(groups, n, k)| tokens.map(|tokens| problem([tokens, groups, n, k], "nt")));
    of_models.chain([problem([16384, 8, 4096, 4096], "nn")]).collect()
}

fn quick() -> Vec<(Problem, &'static str)> {
    vec![
        (problem([300, 5, 256, 256], "nn"), "bf16->bf16"),
        (problem([300, 5, 256, 256], "nt"), "bf16->bf16"),
        (problem([40, 4, 128, 512], "nt"), "fp16->fp16"),
    ]
}

/// Fewer rows than groups, so that most are empty; groups of a row; and those that begin and end within tiles.
fn edges() -> Vec<Problem> {
    let sizes = [[1, 1, 1, 1], [3, 9, 72, 64], [70, 20, 65, 130], [150, 2, 256, 136], [333, 3, 136, 64]];
    sizes.iter().flat_map(|&sizes| VARIANTS.map(|variant| problem(sizes, variant))).collect()
}

fn draw(draw: &mut Draw<'_>) -> Problem {
    let [groups, rows, n, k] = draw.extents(draw.operations() / 2, [40, 300, 520, 520]);
    let tokens = draw.extent(groups * rows);
    problem([tokens, groups, n, k], draw.one_of(&VARIANTS))
}

fn plan(problem: &Problem, policy: Policy, machine: Machine) -> Result<Plan, Unsupported> {
    let acc = policy.accumulator();
    let result = policy.result().unwrap_or(acc);
    let storage = match policy.storage() {
        Storage::Plain(dtype @ (DType::F32 | DType::F16 | DType::BF16 | DType::F8E4M3 | DType::F8E5M2)) if acc == DType::F32 => {
            dtype
        }
        _ => {
            return Err(Unsupported(format!(
                "gemm_grouped multiplies floats of 8, 16 and 32 bits with sums in `fp32`, not `{policy}`"
            )));
        }
    };
    if !matches!(result, DType::F32 | DType::F16 | DType::BF16) {
        return Err(Unsupported(format!("gemm_grouped gives no `{}`", policy_name(result))));
    }
    let [tokens, groups, n, k] = ["tokens", "groups", "n", "k"].map(|name| problem.get(name));
    if !(1..=MOST_GROUPS).contains(&groups) || tokens > i32::MAX as u64 {
        let text = format!("{tokens} rows in {groups} groups: there are 1 to {MOST_GROUPS} groups, with bounds of 32 bits");
        return Err(Unsupported(text));
    }
    let transposed = problem.has("nt");
    let mean = tokens.div_ceil(groups).max(1);
    let cut = Cut::of_groups([groups, mean, n, k], [storage, result], transposed, machine);
    let &Cut { compute, tile: [tm, tn, tk], choice } = &cut;
    let extents = |extents: &[u64]| -> Vec<usize> { extents.iter().map(|&extent| extent as usize).collect() };
    let right = if transposed { [groups, n, k] } else { [groups, k, n] };
    let tensors = vec![
        TensorSpec::new("A", storage, extents(&[tokens, k]), Role::Input),
        TensorSpec::new("B", storage, extents(&right), Role::Input),
        TensorSpec {
            fill: Fill::Bounds { rows: tokens },
            ..TensorSpec::new("offsets", DType::I32, extents(&[groups + 1]), Role::Input)
        },
        TensorSpec::new("C", result, extents(&[tokens, n]), Role::Output),
    ];
    let arguments = vec![
        ("A", Argument::Tensor(0)),
        ("B", Argument::Tensor(1)),
        ("offsets", Argument::Tensor(2)),
        ("C", Argument::Tensor(3)),
        ("K", Argument::Int(k as i64)),
        ("COMPUTE", Argument::Type(compute)),
        ("ACC", Argument::Type(acc)),
        ("TM", Argument::Int(tm)),
        ("TN", Argument::Int(tn)),
        ("TK", Argument::Int(tk)),
        ("STEPS", Argument::Int(i64::from(u64::BITS - (groups - 1).leading_zeros()))),
        ("TRANSPOSE_B", Argument::Bool(transposed)),
        ("THIN", Argument::Bool(choice.is_some_and(|choice| choice.exchanged))),
    ];
    // Where each group's last tile is not full there is one more than all rows fill.
    let rows =
        u32::try_from(tokens / tm as u64 + groups).map_err(|_| Unsupported(format!("{tokens} rows need too many blocks")))?;
    let read_bytes = packed_bytes(storage, tokens * k) + packed_bytes(storage, groups * n * k) + 4 * (groups + 1);
    let sizes = [tokens, n, k].map(|extent| extent as usize);
    Ok(Plan {
        tensors,
        launches: vec![cut.launch("gemm_grouped", arguments, [rows, blocks(n, tn)?, 1])],
        outputs: vec![OutputRows { tensor: 3, rows: sizes[0], row_len: sizes[1], exact: false }],
        work: Work {
            read_bytes,
            write_bytes: packed_bytes(result, tokens * n),
            flops: 2 * tokens * n * k,
            compute: Some(compute),
            metric: Metric::Compute,
            formula: "2nk operations a row; A and every group's B read once, C written once",
        },
        exact_lane: true,
        reference: Box::new(Product {
            parts: Box::new(move |inputs| parts(inputs, groups as usize, sizes, transposed)),
            sizes,
            result,
            blend: Blend::NOTHING,
            model: product::error_model([storage, result, acc], machine),
            rounding: 0.0,
        }),
    })
}

/// The groups that have rows.
fn parts(inputs: &dyn Inputs, groups: usize, [tokens, n, k]: [usize; 3], transposed: bool) -> Vec<Part> {
    let mut bounds = vec![0.0; groups + 1];
    inputs.numbers(2, 0, &mut bounds);
    let part = |group: usize| {
        let [first, end] = [group, group + 1].map(|at| (bounds[at] as usize).min(tokens));
        let rows = end.checked_sub(first).filter(|&rows| rows > 0)?;
        Some(Part {
            first,
            matrices: [
                Matrix { tensor: 0, base: first * k, rows, columns: k, transposed: false },
                Matrix { tensor: 1, base: group * k * n, rows: k, columns: n, transposed },
                Matrix { tensor: 3, base: first * n, rows, columns: n, transposed: false },
            ],
        })
    };
    (0..groups).filter_map(part).collect()
}
