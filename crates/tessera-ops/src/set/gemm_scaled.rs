//! Products of 8-bit floats with scales in float32: C = (A * SA) x (B * SB)^T.
//!
//! | variant | `SA` | `SB` | as in |
//! |---|---|---|---|
//! | `blocks` | `[m, k / 128]` | `[ceil(n / 128), k / 128]` | DeepSeek-V3: 1 x 128 of activations, 128 x 128 of weights |
//! | `rows` | `[m]` | `[n]` | a scale a token and a scale a channel |
//! | `tensor` | `[1]` | `[1]` | one scale each |

use tessera_types::{DType, ErrorModel, Policy, Storage, policy_name};

use super::decoded::{Decoded, Row};
use super::gemm::{Cut, Cuttable, blocks};
use super::gemm_tiles::{self, May};
use crate::draw::Draw;
use crate::operator::{
    Argument, Fill, Inputs, LaunchSpec, Machine, Operator, OutputRows, Plan, Role, TensorSpec, Unsupported, Way, Ways,
};
use crate::problem::Problem;
use crate::signature::{Calls, Operand, Signature};
use crate::work::{Metric, Work, packed_bytes};

pub(crate) static GEMM_SCALED: Operator = Operator {
    name: "gemm_scaled",
    about: "matrix product of 8-bit floats with scales of blocks, of rows or of all",
    file: "gemm_scaled.py",
    source: include_str!("../../kernels/gemm_scaled.py"),
    precisions: &["fp8_e4m3->bf16"],
    further_precisions: &["fp8_e4m3->fp32", "fp8_e5m2->bf16", "fp8_e5m2->fp32"],
    suite: Vec::new,
    further_suite: suite,
    quick,
    edges,
    draw,
    calls: CALLS,
    numbers: &[],
    plan: |problem, policy, machine| made(problem, policy, machine, None),
    ways: Some(Ways {
        names: &gemm_tiles::NAMES,
        of: |problem, policy, machine| Ok(cuttable(problem, policy)?.ways(machine)),
        plan: |problem, policy, machine, way| made(problem, policy, machine, Some(way)),
    }),
    gradient: None,
    no_specials: Some("its reference does not say what an infinite scale makes of a sum"),
    ladder: &[],
};

const BLOCKS: &str = "blocks";
const ROWS: &str = "rows";
const TENSOR: &str = "tensor";
const VARIANTS: [&str; 3] = [BLOCKS, ROWS, TENSOR];
/// Elements of a block along each axis that is cut into blocks.
const BLOCK: u64 = 128;
/// Multiply-adds from which on scales of blocks are turned first: that takes a launch of some 5 us, and a tenth less time for the product.
const TURNED: u64 = 1 << 34;
/// Elements of a line of 16 bytes of scales, and rows and columns that a block turns.
const LINE: u64 = 4;
const TURN: [u64; 2] = [128, 32];

const CALLS: Calls = Calls {
    variants: &VARIANTS,
    default: Some(BLOCKS),
    signature: |variant| {
        const A: Operand = Operand("A", "m k");
        const B: Operand = Operand("B", "n k");
        const C: Operand = Operand("C", "m n");
        const TYPES: &[(&str, DType)] = &[("SA", DType::F32), ("SB", DType::F32)];
        let signature = match variant {
            ROWS => Signature::new(&[A, B, Operand("SA", "m"), Operand("SB", "n")], &[C]),
            TENSOR => Signature::new(&[A, B, Operand("SA", "1"), Operand("SB", "1")], &[C]),
            _ => Signature::new(&[A, B, Operand("SA", "m blocks"), Operand("SB", "bands blocks")], &[C]),
        };
        signature.types(TYPES)
    },
    problem: |sizes| {
        let [m, n, k, bands, blocks] = ["m", "n", "k", "bands", "blocks"].map(|name| sizes.get(name));
        if sizes.variant == BLOCKS && (bands, blocks) != (n.div_ceil(BLOCK), k.div_ceil(BLOCK)) {
            return Err(Unsupported(format!(
                "{n} rows and {k} columns of `B` are {} x {} blocks of 128, and `SB` has {bands} x {blocks}",
                n.div_ceil(BLOCK),
                k.div_ceil(BLOCK)
            )));
        }
        Ok(problem([m, n, k], sizes.variant))
    },
};

fn problem([m, n, k]: [u64; 3], variant: &str) -> Problem {
    Problem::new(&[("m", m), ("n", n), ("k", k)], variant)
}

/// Squares, and layers of a language model.
fn suite() -> Vec<Problem> {
    let mut cases: Vec<Problem> = VARIANTS.iter().map(|variant| problem([4096; 3], variant)).collect();
    for (n, k) in [(8192, 8192), (7168, 2048), (4096, 7168)] {
        cases.extend([64, 128, 4096].map(|m| problem([m, n, k], BLOCKS)));
    }
    cases
}

fn quick() -> Vec<(Problem, &'static str)> {
    VARIANTS.map(|variant| (problem([128, 256, 256], variant), "fp8_e4m3->bf16")).to_vec()
}

fn edges() -> Vec<Problem> {
    let sizes = [[1, 1, 128], [64, 128, 128], [65, 129, 384], [127, 300, 256], [130, 64, 512]];
    let mut cases: Vec<Problem> = sizes.iter().flat_map(|&sizes| VARIANTS.map(|variant| problem(sizes, variant))).collect();
    cases.extend([ROWS, TENSOR].map(|variant| problem([33, 70, 100], variant)));
    cases
}

fn draw(draw: &mut Draw<'_>) -> Problem {
    let variant = draw.one_of(&VARIANTS);
    let [m, n, blocks] = draw.extents(draw.operations() / 2 / BLOCK, [400, 500, 8]);
    problem([m, n, blocks * BLOCK], variant)
}

fn extents(problem: &Problem) -> [u64; 3] {
    ["m", "n", "k"].map(|name| problem.get(name))
}

fn kernel(problem: &Problem) -> &'static str {
    VARIANTS.into_iter().find(|variant| problem.has(variant)).unwrap_or(BLOCKS)
}

/// The types of the factors and of the result.
fn types(policy: Policy) -> Result<[DType; 2], Unsupported> {
    let storage = match policy.storage() {
        Storage::Plain(dtype @ (DType::F8E4M3 | DType::F8E5M2)) if policy.accumulator() == DType::F32 => dtype,
        _ => return Err(Unsupported(format!("gemm_scaled multiplies 8-bit floats with sums in `fp32`, not `{policy}`"))),
    };
    let result = policy.result().unwrap_or(DType::F32);
    if !matches!(result, DType::F32 | DType::F16 | DType::BF16) {
        return Err(Unsupported(format!("gemm_scaled gives no `{}`", policy_name(result))));
    }
    Ok([storage, result])
}

/// The product; where scales are of blocks, the columns of a tile have one band of them.
fn cuttable(problem: &Problem, policy: Policy) -> Result<Cuttable, Unsupported> {
    let [m, n, k] = extents(problem);
    let may = May { exchange: true, cluster: true, banded: kernel(problem) == BLOCKS, ..May::default() };
    Ok(Cuttable { sizes: [1, m, n, k], types: types(policy)?, transposed: [false, true], may })
}

/// How a product is cut into blocks.
fn cut(product: &Cuttable, machine: Machine) -> Cut {
    let &Cuttable { sizes: [_, m, n, _], .. } = product;
    let cut = product.cut(machine);
    let tile = match (cut.choice, machine) {
        (Some(_), _) => cut.tile,
        (None, Machine::Gpu(arch)) if m > 64 && m.div_ceil(128) * n.div_ceil(128) >= u64::from(arch.multiprocessors()) / 2 => {
            [128, 128, BLOCK as i64]
        }
        (None, Machine::Gpu(_)) => [32, 128, BLOCK as i64],
        (None, Machine::Cpu) => [128, 128, BLOCK as i64],
    };
    Cut { tile, ..cut }
}

fn made(problem: &Problem, policy: Policy, machine: Machine, way: Option<&Way>) -> Result<Plan, Unsupported> {
    let [storage, result] = types(policy)?;
    let ([m, n, k], kernel) = (extents(problem), kernel(problem));
    if kernel == BLOCKS && !k.is_multiple_of(BLOCK) {
        return Err(Unsupported(format!("{k} columns are not of whole blocks of 128: add columns of zeros to both factors")));
    }
    let scales: [Vec<u64>; 2] = match kernel {
        ROWS => [vec![m], vec![n]],
        TENSOR => [vec![1], vec![1]],
        _ => [vec![m, k / BLOCK], vec![n.div_ceil(BLOCK), k / BLOCK]],
    };
    let [sa, sb] = scales;
    let count = sa.iter().product::<u64>() + sb.iter().product::<u64>();
    let tensor = |name, dtype, shape: Vec<u64>, role| {
        TensorSpec::new(name, dtype, shape.into_iter().map(|extent| extent as usize).collect::<Vec<_>>(), role)
    };
    let scale =
        |name, shape| TensorSpec { fill: Fill::Normal { mean: 1.0, sd: 0.3 }, ..tensor(name, DType::F32, shape, Role::Input) };
    let product = cuttable(problem, policy)?;
    let only = || Unsupported(format!("gemm_scaled cuts `{policy}` in one way alone here"));
    let cut = match way {
        Some(way) => product.cut_in(way, machine).ok_or_else(only)??,
        None => cut(&product, machine),
    };
    let &Cut { compute, tile: [tm, tn, tk], choice } = &cut;
    let (exchanged, across) = choice.map_or((false, false), |choice| (choice.exchanged, choice.across));
    let mut plane = [blocks(m, tm)?, blocks(n, tn)?];
    if across {
        plane.reverse();
    }
    let turned = kernel == BLOCKS && choice.is_some() && !exchanged && m * n * k >= TURNED;
    let mut arguments = vec![
        ("A", Argument::Tensor(0)),
        ("B", Argument::Tensor(1)),
        ("SA", Argument::Tensor(if turned { 5 } else { 2 })),
        ("SB", Argument::Tensor(3)),
        ("C", Argument::Tensor(4)),
        ("K", Argument::Int(k as i64)),
        ("COMPUTE", Argument::Type(compute)),
        ("TM", Argument::Int(tm)),
        ("TN", Argument::Int(tn)),
        ("EXCHANGED", Argument::Bool(exchanged)),
        ("ACROSS", Argument::Bool(across)),
    ];
    match kernel {
        BLOCKS => arguments.push(("TURNED", Argument::Bool(turned))),
        _ => arguments.push(("TK", Argument::Int(tk))),
    }
    let model = ErrorModel::nearest(result, DType::F32);
    let sizes = [m, n, k].map(|extent| extent as usize);
    let mut tensors = vec![
        tensor("A", storage, vec![m, k], Role::Input),
        tensor("B", storage, vec![n, k], Role::Input),
        scale("SA", sa),
        scale("SB", sb),
        tensor("C", result, vec![m, n], Role::Output),
    ];
    let mut launches = Vec::new();
    if turned {
        tensors.push(tensor("T", DType::F32, vec![k / BLOCK, m.next_multiple_of(LINE)], Role::Workspace));
        let [rows, columns] = TURN;
        let arguments = vec![
            ("SA", Argument::Tensor(2)),
            ("T", Argument::Tensor(5)),
            ("ROWS", Argument::Int(rows as i64)),
            ("COLUMNS", Argument::Int(columns as i64)),
        ];
        let grid = [blocks(m.next_multiple_of(LINE), rows as i64)?, blocks(k / BLOCK, columns as i64)?, 1];
        launches.push(LaunchSpec::new("turn", arguments, grid));
    }
    launches.push(cut.launch(kernel, arguments, [plane[0], plane[1], 1]));
    Ok(Plan {
        tensors,
        launches,
        outputs: vec![OutputRows { tensor: 4, rows: m as usize, row_len: n as usize, exact: false }],
        work: Work {
            read_bytes: packed_bytes(storage, m * k) + packed_bytes(storage, n * k) + 4 * count,
            write_bytes: packed_bytes(result, m * n),
            flops: 2 * m * n * k,
            compute: Some(compute),
            metric: Metric::Compute,
            formula: "2mnk operations; A, B and scales read once, C written once",
        },
        exact_lane: true,
        reference: Box::new(Decoded {
            sizes,
            factors: [0, 1].map(|factor| scaled(factor, kernel, k as usize)),
            result,
            // Tensor cores sum up products of 8-bit floats with fewer bits than those of other formats.
            model: if matches!(machine, Machine::Gpu(_)) { model.with_coarse_sums() } else { model },
            // The product of two scales, that of a sum with it, and the sum of blocks.
            roundings: 3.0,
        }),
    })
}

/// Rows of A or B with their scales.
fn scaled(factor: usize, kernel: &'static str, k: usize) -> Row {
    Box::new(move |inputs: &dyn Inputs, row, out| {
        inputs.numbers(factor, row * k, out);
        let block = BLOCK as usize;
        let places: Vec<usize> = match (kernel, factor) {
            (TENSOR, _) => vec![0],
            (ROWS, _) => vec![row],
            (_, 0) => (0..k / block).map(|at| row * (k / block) + at).collect(),
            _ => (0..k / block).map(|at| row / block * (k / block) + at).collect(),
        };
        let mut scales = vec![0.0; places.len()];
        inputs.numbers_at(2 + factor, &places, &mut scales);
        let of = |column: usize| if kernel == BLOCKS { column / block } else { 0 };
        out.iter_mut().enumerate().for_each(|(column, out)| *out *= scales[of(column)]);
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::call::Call;
    use tessera_runtime::Tensor;

    #[test]
    fn what_is_not_done_is_told() {
        let told = |sizes, variant: &str| {
            let found = GEMM_SCALED.plan(&problem(sizes, variant), Policy::of(DType::F8E4M3), Machine::Cpu);
            found.err().map(|why| why.to_string()).unwrap_or_default()
        };
        assert!(told([4, 4, 100], BLOCKS).starts_with("100 columns are not of whole blocks of 128: add columns of zeros"));
        assert_eq!(told([4, 4, 100], ROWS), "");
    }

    #[test]
    fn scales_belong_to_blocks() {
        let ones = |dtype, shape: &[usize]| Tensor::ones(dtype, shape).expect("a tensor");
        let call = |bands: usize| {
            let (a, b) = (ones(DType::F8E4M3, &[3, 256]), ones(DType::F8E4M3, &[130, 256]));
            let scales = [("SA", ones(DType::F32, &[3, 2])), ("SB", ones(DType::F32, &[bands, 2]))];
            let [sa, sb] = scales;
            Call { variant: None, tensors: vec![("A", a), ("B", b), sa, sb], scalars: Vec::new(), lock: None }
        };
        let told = GEMM_SCALED.resolve(&call(1)).map(|_| ()).unwrap_err().to_string();
        assert_eq!(told, "130 rows and 256 columns of `B` are 2 x 2 blocks of 128, and `SB` has 1 x 2");
        let results = GEMM_SCALED.resolve(&call(2)).expect("a plan").run().expect("a product");
        let c = &results[0];
        assert_eq!((c.dtype(), c.to_f64().expect("numbers")[0]), (DType::BF16, 256.0));
    }
}
