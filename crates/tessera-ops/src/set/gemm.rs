//! GEMM: C = alpha * op(A) x op(B) + beta * C, with an optional batch.
//!
//! The variant has two letters for op(A) and op(B), `n` or `t`; a transposed operand is stored with its axes reversed. Behind them stand
//! `alpha` and `beta` where they are not 1 and 0: `nt alpha=0.5 beta=0.25`.

use tessera_types::{Arch, DType, Policy, Storage, policy_name};

use super::gemm_ladder;
use super::gemm_tiles::{self, May};
use super::product::{self, Blend, Part, Product};
use crate::draw::Draw;
use crate::matrix::Matrix;
use crate::operator::{
    Argument, Fill, LaunchSpec, Machine, Operator, OutputRows, Plan, PossibleWay, Role, TensorSpec, Unsupported, Way, Ways,
};
use crate::problem::Problem;
use crate::set::pointwise::number_in;
use crate::signature::{Calls, Operand, Signature};
use crate::work::{Metric, Work, packed_bytes};

pub(crate) static GEMM: Operator = Operator {
    name: "gemm",
    about: "matrix product C = alpha * op(A) x op(B) + beta * C, batched",
    file: "gemm.py",
    source: include_str!("../../kernels/gemm.py"),
    precisions: &["fp32", "fp16", "bf16", "fp8_e4m3@accum(fp32)", "fp8_e5m2@accum(fp32)", "fp6@accum(fp32)", "fp4@accum(fp32)"],
    further_precisions: &[
        "fp64",
        "tf32",
        "fp32@3xtf32",
        "fp32@3xbf16",
        "int8",
        "bf16->bf16",
        "fp16->fp16",
        "fp8_e4m3->bf16",
        "fp8_e5m2->bf16",
    ],
    suite,
    further_suite: batched_suite,
    quick,
    edges,
    draw,
    calls: CALLS,
    numbers: &NUMBERS,
    plan: |problem, policy, machine| made(problem, policy, machine, None),
    ways: Some(Ways {
        names: &gemm_tiles::NAMES,
        of: ways,
        plan: |problem, policy, machine, way| made(problem, policy, machine, Some(way)),
    }),
    gradient: None,
    no_specials: None,
    ladder: &gemm_ladder::LADDER,
};

const CALLS: Calls = Calls {
    variants: &["nn", "nt", "tn", "tt"],
    default: Some("nn"),
    signature: |variant| {
        const C: Operand = Operand("C", "..batch m n");
        let signature = match variant {
            "nt" => Signature::new(&[Operand("A", "..batch m k"), Operand("B", "..batch n k")], &[C]),
            "tn" => Signature::new(&[Operand("A", "..batch k m"), Operand("B", "..batch k n")], &[C]),
            "tt" => Signature::new(&[Operand("A", "..batch k m"), Operand("B", "..batch n k")], &[C]),
            _ => Signature::new(&[Operand("A", "..batch m k"), Operand("B", "..batch k n")], &[C]),
        };
        Signature { scalars: &["alpha", "beta"], rereads: Some("beta"), ..signature }
    },
    problem: |sizes| Ok(Problem::new(&["batch", "m", "n", "k"].map(|name| (name, sizes.get(name))), sizes.variant)),
};

/// What multiplies the product, and what multiplies the old values of C.
const NUMBERS: [(&str, f64); 2] = [("alpha", 1.0), ("beta", 0.0)];

fn problem(m: u64, n: u64, k: u64, variant: &str) -> Problem {
    Problem::new(&[("batch", 1), ("m", m), ("n", n), ("k", k)], variant)
}

/// Squares, shapes of language models with the batch folded into M, and the four transposes: 40 cases.
fn suite() -> Vec<Problem> {
    let mut cases: Vec<Problem> = [256, 512, 1024, 2048, 4096, 8192, 16384].iter().map(|&s| problem(s, s, s, "nn")).collect();
    for (m, n, k) in [(8192, 4096, 4096), (4096, 11008, 4096), (2048, 2048, 8192), (1024, 4096, 1024), (512, 2048, 512)] {
        cases.extend([1, 8, 16, 32, 64].iter().map(|batch| problem(batch * m, n, k, "nn")));
    }
    for s in [1024, 2048] {
        cases.extend(["nn", "nt", "tn", "tt"].iter().map(|variant| problem(s, s, s, variant)));
    }
    cases
}

/// Attention's products, one a head.
fn batched_suite() -> Vec<Problem> {
    let sizes = [(128, 512, 512, 64), (64, 1024, 1024, 128), (32, 2048, 128, 2048)];
    sizes.iter().map(|&(batch, m, n, k)| Problem::new(&[("batch", batch), ("m", m), ("n", n), ("k", k)], "nn")).collect()
}

fn quick() -> Vec<(Problem, &'static str)> {
    let mut cases: Vec<_> = GEMM.precisions.iter().map(|&precision| (problem(256, 256, 256, "nn"), precision)).collect();
    cases.extend(["nt", "tn", "tt"].iter().map(|variant| (problem(256, 256, 256, variant), "fp32")));
    cases.push((problem(512, 512, 512, "nn"), "bf16"));
    cases.push((Problem::new(&[("batch", 4), ("m", 128), ("n", 192), ("k", 256)], "nn"), "fp32"));
    cases
}

fn edges() -> Vec<Problem> {
    let mut cases = Vec::new();
    for (m, n, k) in [(1, 1, 1), (127, 129, 63), (128, 128, 64), (257, 65, 130), (1, 300, 97), (300, 1, 33)] {
        cases.extend(["nn", "nt", "tn", "tt"].iter().map(|variant| problem(m, n, k, variant)));
    }
    // Factors that are copied to whole lines first, where that pays: both, and one of them.
    cases.extend([(33, 31, 449), (17, 64, 449)].map(|(m, n, k)| problem(m, n, k, "nn")));
    // What C held before, too.
    cases.extend(
        [(127, 129, 63, "nt alpha=2 beta=-1"), (33, 31, 449, "nn alpha=3")].map(|(m, n, k, variant)| problem(m, n, k, variant)),
    );
    let batch = [("batch", 3), ("m", 65), ("n", 70), ("k", 40)];
    cases.push(Problem::new(&batch, "tn beta=2"));
    cases.extend(["tt", "tn", "nt", "nn"].iter().map(|&variant| Problem::new(&batch, variant)));
    cases
}

/// Every tenth product is a batch of small ones.
fn draw(draw: &mut Draw<'_>) -> Problem {
    const MOST: u64 = 4224;
    const VARIANTS: [&str; 4] = ["nn", "nt", "tn", "tt"];
    let products = draw.operations() / 2;
    if draw.once_in(10) {
        let [batch, m, n, k] = draw.extents(products, [20, 512, 512, 512]);
        return Problem::new(&[("batch", batch), ("m", m), ("n", n), ("k", k)], draw.one_of(&VARIANTS));
    }
    let [m, n, k] = draw.extents(products, [MOST; 3]);
    let variant = draw.one_of(&VARIANTS);
    problem(m, n, k, variant)
}

/// The type products are taken in: storage-only formats are decoded, exactly, to bfloat16; 8-bit floats to float16 on a GPU whose tensor
/// cores do not take them, or only by converting them themselves.
fn compute_type(storage: DType, machine: Machine) -> DType {
    match storage {
        DType::F8E4M3 | DType::F8E5M2 if converts_8_bits(machine) => DType::F16,
        DType::F6E2M3 | DType::F6E3M2 | DType::F4E2M1 => DType::BF16,
        other => other,
    }
}

/// Neither products of warpgroups nor of warps take 8-bit floats as they are.
fn converts_8_bits(machine: Machine) -> bool {
    matches!(machine, Machine::Gpu(arch) if !arch.has_wgmma() && !arch.has_native_fp8_mma())
}

/// Extents of a tile of C that the tensor cores of warps compute, with the share of their rate that one block reaches: a larger tile reads its
/// operands less often.
const GPU_TILES: [(u64, u64, f64); 4] = [(128, 256, 1.0), (128, 128, 0.8), (64, 128, 0.6), (64, 64, 0.4)];

/// Tile extents: large enough that a block's operands are reused from cache, small enough that a small product has blocks for every core.
/// On a GPU the accumulator lives in registers, and a line of an operand's tile has 128 bytes. What must be decoded before it is
/// multiplied takes registers beside it.
fn tiles([batch, m, n, k]: [u64; 4], storage: DType, machine: Machine) -> (i64, i64, i64) {
    let compute = compute_type(storage, machine);
    let large = m.min(n) >= 1024;
    match machine {
        Machine::Cpu if large => (256, 256, 64),
        Machine::Cpu => (128, 128, 64),
        Machine::Gpu(_) if compute.bits() == 64 => (64, 64, 16),
        Machine::Gpu(_) if compute == DType::F32 && large && batch == 1 && m.max(n) * k <= i32::MAX as u64 => (128, 128, 16),
        // Addresses of three axes, or of 64 bits, leave registers for half as much.
        Machine::Gpu(_) if compute == DType::F32 && large => (128, 64, 16),
        Machine::Gpu(_) if compute == DType::F32 => (64, 64, 32),
        Machine::Gpu(arch) => {
            let time = |&(tm, tn, rate): &(u64, u64, f64)| {
                let blocks = batch * m.div_ceil(tm) * n.div_ceil(tn);
                blocks.div_ceil(u64::from(arch.multiprocessors())) as f64 * (tm * tn) as f64 / rate
            };
            let most = if compute == storage { 128 * 128 } else { 64 * 128 };
            let fits = |&&(tm, tn, _): &&(u64, u64, f64)| tm * tn <= most;
            let best = GPU_TILES.iter().filter(fits).min_by(|a, b| time(a).total_cmp(&time(b))).unwrap_or(&GPU_TILES[3]);
            // Addresses of three axes leave warps registers to decode half as much at a time.
            let lines = if batch > 1 && compute != storage && !arch.has_wgmma() { 2 } else { 1 };
            (best.0 as i64, best.1 as i64, 1024 / i64::from(compute.bits()) / lines)
        }
    }
}

/// Contraction of a tile whose factors are taken apart: a line of them has 128 bytes.
const PARTS_DEPTH: i64 = 32;

/// How a product is cut into blocks.
pub(super) struct Cut {
    /// The type products are taken in.
    pub(super) compute: DType,
    /// Rows, columns and contraction of a tile.
    pub(super) tile: [i64; 3],
    /// What else was chosen, where products of warpgroups take the factors as they are stored.
    pub(super) choice: Option<gemm_tiles::Choice>,
}

impl Cut {
    /// The cut of a product of these matrices, rows, columns and contraction; factors and results of these types; which factors are
    /// transposed, and what the kernel can do.
    pub(super) fn of(sizes: [u64; 4], types: [DType; 2], transposed: [bool; 2], may: May, machine: Machine) -> Cut {
        Cut::made(sizes, types, transposed, (may, false), machine)
    }

    /// The cut of a product whose factors in 32 bits are taken apart into numbers of a type.
    fn in_parts(sizes: [u64; 4], parts: DType, [ta, tb]: [bool; 2], machine: Machine) -> Cut {
        let (mut rows, mut columns, _) = tiles(sizes, parts, machine);
        // Warpgroups multiply 32 bits along the contraction alone, and threads that turn parts have no registers for more; those of warps have
        // none where both factors are transposed.
        if parts == DType::TF32 {
            match machine {
                Machine::Gpu(arch) if arch.has_wgmma() && (ta || !tb) => rows = rows.min(64),
                Machine::Gpu(arch) if !arch.has_wgmma() && ta && tb => (rows, columns) = (rows.min(64), columns.min(64)),
                Machine::Gpu(_) | Machine::Cpu => {}
            }
        }
        Cut { compute: parts, tile: [rows, columns, PARTS_DEPTH], choice: None }
    }

    /// The cut of products of groups of rows: the groups, rows of one at the mean, columns and contraction.
    pub(super) fn of_groups(sizes: [u64; 4], types: [DType; 2], tb: bool, machine: Machine) -> Cut {
        let mut cut = Cut::made(sizes, types, [false, tb], (May::default(), true), machine);
        if machine == Machine::Cpu {
            cut.tile[0] = cut.tile[0].min((2 * sizes[1]).next_power_of_two().max(16) as i64);
        }
        cut
    }

    fn made(sizes: [u64; 4], types: [DType; 2], transposed: [bool; 2], may: (May, bool), machine: Machine) -> Cut {
        match (Cut::product(sizes, types, transposed, may, machine), machine) {
            (Some(product), Machine::Gpu(arch)) => Cut::chosen(types[0], gemm_tiles::choose(product, arch), machine),
            _ => {
                let tile = tiles(sizes, types[0], machine);
                Cut { compute: compute_type(types[0], machine), tile: tile.into(), choice: None }
            }
        }
    }

    /// A launch of the product.
    pub(super) fn launch(&self, kernel: &'static str, arguments: Vec<(&'static str, Argument)>, grid: [u32; 3]) -> LaunchSpec {
        let plain = LaunchSpec::new(kernel, arguments, grid);
        match self.choice {
            Some(gemm_tiles::Choice { sharing, cluster, clusters, warps, .. }) => {
                LaunchSpec { sharing, cluster, clusters, warps, ..plain }
            }
            None => plain,
        }
    }

    /// The cut that a choice is.
    fn chosen(storage: DType, choice: gemm_tiles::Choice, machine: Machine) -> Cut {
        Cut { compute: compute_type(storage, machine), tile: choice.tile.map(|extent| extent as i64), choice: Some(choice) }
    }

    /// A product of warpgroups that take the factors as they are stored, or of threads that do; what the kernel can do, and whether rows are in
    /// groups.
    fn product(
        sizes: [u64; 4],
        [storage, result]: [DType; 2],
        [ta, tb]: [bool; 2],
        (may, ragged): (May, bool),
        machine: Machine,
    ) -> Option<gemm_tiles::Product> {
        let compute = compute_type(storage, machine);
        let Machine::Gpu(arch) = machine else { return None };
        let by_warpgroups = arch.has_wgmma() && (matches!(compute.bits(), 8 | 16) || compute == DType::TF32);
        let [_, m, n, k] = sizes;
        let steps = [if ta { m } else { k }, if tb { k } else { n }];
        // The greatest power of two that divides the bytes of each operand's lines.
        let lines = steps.map(|extent| 1 << packed_bytes(storage, extent).trailing_zeros().min(7));
        let product = gemm_tiles::Product { sizes, storage, result, lines, along: [!ta, tb], may, ragged };
        (compute == storage && (by_warpgroups || compute == DType::F32)).then_some(product)
    }
}

/// A product of two factors as they are stored.
pub(super) struct Cuttable {
    /// Matrices, rows, columns and contraction.
    pub(super) sizes: [u64; 4],
    /// Of the factors and of the result.
    pub(super) types: [DType; 2],
    /// Which factors are stored with their axes reversed.
    pub(super) transposed: [bool; 2],
    /// What the kernel can do.
    pub(super) may: May,
}

impl Cuttable {
    fn product(&self, machine: Machine) -> Option<(gemm_tiles::Product, Arch)> {
        let Machine::Gpu(arch) = machine else { return None };
        let product = Cut::product(self.sizes, self.types, self.transposed, (self.may, false), machine)?;
        Some((product, arch))
    }

    /// The cut that should take least.
    pub(super) fn cut(&self, machine: Machine) -> Cut {
        Cut::of(self.sizes, self.types, self.transposed, self.may, machine)
    }

    /// The ways to cut it, none where there is but one.
    pub(super) fn ways(&self, machine: Machine) -> Vec<PossibleWay> {
        self.product(machine).map_or(Vec::new(), |(product, arch)| gemm_tiles::ways(product, arch))
    }

    /// The cut that a way is, or why it is none; nothing where there is but one.
    pub(super) fn cut_in(&self, way: &Way, machine: Machine) -> Option<Result<Cut, Unsupported>> {
        let (product, _) = self.product(machine)?;
        Some(gemm_tiles::Choice::of_way(way, &product).map(|choice| Cut::chosen(product.storage, choice, machine)))
    }
}

/// What the kernel can do.
const MAY: May = May { copy: true, exchange: true, cluster: true, added: false, banded: false };

/// So many blocks along an axis.
pub(super) fn blocks(extent: u64, tile: i64) -> Result<u32, Unsupported> {
    u32::try_from(extent.div_ceil(tile as u64)).map_err(|_| Unsupported(format!("{extent} needs too many blocks")))
}

/// The product's sizes, and which factors are stored with their axes reversed.
fn sides(problem: &Problem) -> ([u64; 4], [bool; 2]) {
    let transposed = [problem.has("tn") || problem.has("tt"), problem.has("nt") || problem.has("tt")];
    (["batch", "m", "n", "k"].map(|name| problem.get(name)), transposed)
}

/// What a product is whose factors are taken as they are stored, where it can be cut in several ways.
fn cuttable(problem: &Problem, policy: Policy) -> Option<Cuttable> {
    let (Storage::Plain(storage), None) = (policy.storage(), policy.parts()) else { return None };
    let (sizes, transposed) = sides(problem);
    let types = [storage, policy.result().unwrap_or(policy.accumulator())];
    Some(Cuttable { sizes, types, transposed, may: MAY })
}

/// alpha and beta of a problem, as kernels take them that sum up in a type.
fn blend(problem: &Problem, acc: DType) -> Result<Blend, Unsupported> {
    // Up to there a 32-bit float has every whole number.
    const MOST: f64 = (1 << f32::MANTISSA_DIGITS) as f64;
    let [alpha, beta] = NUMBERS.map(|(name, usual)| (name, problem.number(name).unwrap_or(usual)));
    let taken = |(name, value): (&str, f64)| match acc.is_integer() && (value.fract() != 0.0 || value.abs() > MOST) {
        true => Err(Unsupported(format!("`{name}` is {value}: the arrays hold integers, so it is one, of at most {MOST}"))),
        false => Ok(number_in(acc, value)),
    };
    Ok(Blend { alpha: taken(alpha)?, beta: taken(beta)? })
}

fn ways(problem: &Problem, policy: Policy, machine: Machine) -> Result<Vec<PossibleWay>, Unsupported> {
    Ok(cuttable(problem, policy).map_or(Vec::new(), |product| product.ways(machine)))
}

/// The cut that a way is.
fn cut_in(way: &Way, problem: &Problem, policy: Policy, machine: Machine) -> Result<Cut, Unsupported> {
    let only = || Unsupported(format!("gemm cuts `{policy}` in one way alone here"));
    cuttable(problem, policy).and_then(|product| product.cut_in(way, machine)).ok_or_else(only)?
}

pub(super) fn made(problem: &Problem, policy: Policy, machine: Machine, way: Option<&Way>) -> Result<Plan, Unsupported> {
    let Storage::Plain(storage) = policy.storage() else {
        return Err(Unsupported(format!("gemm has no block-scaled kernel for `{policy}`")));
    };
    let acc = policy.accumulator();
    let result = policy.result().unwrap_or(acc);
    if result.is_float() != acc.is_float() || result.bits() < 16 {
        return Err(Unsupported(format!("gemm gives no `{}` of `{}` sums", policy_name(result), policy_name(acc))));
    }
    let integer = storage.is_integer();
    if !(storage.is_float() || matches!(storage, DType::I8 | DType::U8)) || storage == DType::E8M0 {
        return Err(Unsupported(format!("gemm does not multiply `{policy}`")));
    }
    let ([batch, m, n, k], [ta, tb]) = sides(problem);
    let batched = batch != 1;
    let shape = |rows: u64, columns: u64| -> Vec<usize> {
        if batched { vec![batch as usize, rows as usize, columns as usize] } else { vec![rows as usize, columns as usize] }
    };
    let mut a = TensorSpec::new("A", storage, if ta { shape(k, m) } else { shape(m, k) }, Role::Input);
    let mut b = TensorSpec::new("B", storage, if tb { shape(n, k) } else { shape(k, n) }, Role::Input);
    let blend = blend(problem, acc)?;
    let mut c = TensorSpec::new("C", result, shape(m, n), if blend.reads() { Role::InOut } else { Role::Output });
    if integer {
        let least = if storage == DType::U8 { 0 } else { -128 };
        a.fill = Fill::Integers { least, greatest: least + 255 };
        (b.fill, c.fill) = (a.fill, a.fill);
    }

    let cut = match (policy.parts(), way) {
        (_, Some(way)) => cut_in(way, problem, policy, machine)?,
        (Some(parts), None) => Cut::in_parts([batch, m, n, k], parts, [ta, tb], machine),
        (None, None) => Cut::of([batch, m, n, k], [storage, result], [ta, tb], MAY, machine),
    };
    let &Cut { compute, tile: [tm, tn, tk], choice } = &cut;
    let mut tensors = vec![a, b, c];
    let copied = choice.map_or([false; 2], |choice| choice.copied);
    let turned = [ta, !tb].map(|across| across && gemm_tiles::along_alone(storage));
    let turned = [turned[0] && copied[0], turned[1] && copied[1]];
    let (copying, [a, b]) = copying(&mut tensors, copied, turned)?;
    let mut arguments = vec![
        ("A", Argument::Tensor(a)),
        ("B", Argument::Tensor(b)),
        ("C", Argument::Tensor(2)),
        ("alpha", Argument::Float(blend.alpha)),
        ("beta", Argument::Float(blend.beta)),
        ("K", Argument::Int(k as i64)),
        ("COMPUTE", Argument::Type(compute)),
        ("ACC", Argument::Type(acc)),
        ("TM", Argument::Int(tm)),
        ("TN", Argument::Int(tn)),
        ("TK", Argument::Int(tk)),
        ("TRANSPOSE_A", Argument::Bool(ta && !turned[0])),
        ("TRANSPOSE_B", Argument::Bool(tb || turned[1])),
    ];
    let across = choice.is_some_and(|choice| choice.across);
    let mut plane = [blocks(m, tm)?, blocks(n, tn)?];
    if across {
        plane.reverse();
    }
    if !batched {
        arguments.push(("EXCHANGED", Argument::Bool(choice.is_some_and(|choice| choice.exchanged))));
        arguments.push(("ACROSS", Argument::Bool(across)));
    }
    let kernel = if batched { "gemm_batched" } else { "gemm" };
    let written = batch * packed_bytes(result, m * n);
    let product = cut.launch(kernel, arguments, [plane[0], plane[1], blocks(batch, 1)?]);
    Ok(Plan {
        tensors,
        launches: copying.into_iter().chain([product]).collect(),
        outputs: vec![OutputRows { tensor: 2, rows: (batch * m) as usize, row_len: n as usize, exact: integer }],
        work: Work {
            read_bytes: batch * (packed_bytes(storage, m * k) + packed_bytes(storage, k * n))
                + if blend.reads() { written } else { 0 },
            write_bytes: written,
            flops: 2 * batch * m * n * k,
            compute: Some(compute),
            metric: Metric::Compute,
            formula: match blend.reads() {
                true => "2mnk operations; A, B, C read once, C written once",
                false => "2mnk operations; A, B read once, C written once",
            },
        },
        exact_lane: blend.is_short(),
        reference: Box::new(Product {
            parts: Box::new(move |_| {
                (0..batch as usize).map(|at| part(at, [m, n, k].map(|extent| extent as usize), [ta, tb])).collect()
            }),
            sizes: [batch * m, n, if policy.parts().is_some() { 3 * k } else { k }].map(|extent| extent as usize),
            result,
            blend,
            model: product::error_model([storage, result, acc], machine),
            rounding: product::rounding(policy),
        }),
    })
}

/// Rows and columns of a tile that a block copies to where lines are whole; of one that it turns, whose lines are read in the other direction.
const COPIED_TILE: [usize; 2] = [32, 64];
const TURNED_TILE: [usize; 2] = [64, 64];
const TURNED_TILE_OF_BYTES: [usize; 2] = [128, 128];

/// The launch that copies some of the factors, the first two tensors, to lines at multiples of the cache's, and turns some of these; and where the
/// product finds its factors then.
fn copying(
    tensors: &mut Vec<TensorSpec>,
    copied: [bool; 2],
    turned: [bool; 2],
) -> Result<(Option<LaunchSpec>, [usize; 2]), Unsupported> {
    const NAMES: [&str; 2] = ["A_lines", "B_lines"];
    let [rows, columns] = match (turned.contains(&true), tensors[0].dtype.bits()) {
        (true, 8) => TURNED_TILE_OF_BYTES,
        (true, _) => TURNED_TILE,
        (false, _) => COPIED_TILE,
    };
    let mut places = [0, 1];
    let mut tiles = [0; 2];
    for side in (0..2).filter(|&side| copied[side]) {
        let TensorSpec { dtype, ref shape, .. } = tensors[side];
        let line = (gemm_tiles::LINE * 8 / u64::from(dtype.bits())) as usize;
        let [first, second] = if turned[side] { [shape[1], shape[0]] } else { [shape[0], shape[1]] };
        let lines = [first, second.next_multiple_of(line)];
        tiles[side] = lines[0].div_ceil(rows) * lines[1].div_ceil(columns);
        places[side] = tensors.len();
        tensors.push(TensorSpec::new(NAMES[side], dtype, lines, Role::Workspace));
    }
    let grid = u32::try_from(tiles[0] + tiles[1]).map_err(|_| Unsupported("the factors have too many tiles".to_string()))?;
    let tile = [("ROWS", Argument::Int(rows as i64)), ("COLUMNS", Argument::Int(columns as i64))];
    let of = |names: [&'static str; 2], side: usize| names.into_iter().zip([side, places[side]].map(Argument::Tensor));
    let launch = match copied {
        [false, false] => return Ok((None, places)),
        [true, true] => {
            let arguments =
                of(["A", "A_LINES"], 0).chain(of(["B", "B_LINES"], 1)).chain([("tiles", Argument::Int(tiles[0] as i64))]);
            let turns = ["TURN_A", "TURN_B"].into_iter().zip(turned.map(Argument::Bool));
            LaunchSpec::new("copy_both", arguments.chain(tile).chain(turns).collect(), [grid, 1, 1])
        }
        [first, _] => {
            let side = usize::from(!first);
            let turn = [("TURN", Argument::Bool(turned[side]))];
            LaunchSpec::new("copy", of(["X", "LINES"], side).chain(tile).chain(turn).collect(), [grid, 1, 1])
        }
    };
    Ok((Some(launch), places))
}

/// The factors and the result of one matrix of the batch.
fn part(at: usize, [m, n, k]: [usize; 3], [ta, tb]: [bool; 2]) -> Part {
    Part {
        first: at * m,
        matrices: [
            Matrix { tensor: 0, base: at * m * k, rows: m, columns: k, transposed: ta },
            Matrix { tensor: 1, base: at * k * n, rows: k, columns: n, transposed: tb },
            Matrix { tensor: 2, base: at * m * n, rows: m, columns: n, transposed: false },
        ],
    }
}
