//! Matrices of which two of each four neighbours in a row are stored (2:4): from dense ones and back, and times dense ones on tensor cores.
//!
//! | array | shape | is |
//! |---|---|---|
//! | `values` | `[m, k / 2]` | what stands in each four neighbours, two after two |
//! | `places` | `[m, ceil(k / 32)]` of `i32` | where that stands: four bits for each four neighbours, from the lowest on, the lower two of them for the first |
//!
//! `x = 0 a 0 b | c d 0 0` has the values `a b c d` and the lowest bits `0100 1101` of its word. Of two places the first is the lower one,
//! also where what stands there is 0. Words go on behind the last four of a row with the places 0 and 1.
//!
//! [`sparse24_cut`] says how a product is cut into blocks.

use std::ops::Range;

use rayon::prelude::*;
use tessera_types::{DType, ErrorModel, Policy};

use crate::draw::Draw;
use crate::element::{storable, underflow};
use crate::operator::{
    Argument, Expected, Fill, Inputs, KernelFile, LaunchSpec, Machine, Operator, OutputRows, Plan, PossibleWay, Reference, Role,
    TensorSpec, Unsupported, Way, Ways,
};
use crate::problem::Problem;
use crate::set::rows;
use crate::set::sparse24_cut::{self, Choice};
use crate::signature::{Calls, Follows, Operand, Signature, Sizes, pair_at};
use crate::work::{Metric, Work, packed_bytes};

const FILE: KernelFile = KernelFile { name: "sparse24.py", text: include_str!("../../kernels/sparse24.py") };
const PRECISIONS: &[&str] = &["bf16", "fp16"];
const TYPES: &[(&str, DType)] = &[("places", DType::I32)];
const STORED: &[Operand] = &[Operand("values", "m half"), Operand("places", "m words")];
/// Neighbours of which two are stored, and those whose places a word says.
const FOUR: u64 = 4;
pub(super) const WORD: u64 = 32;

/// How many values a row has, and how many words.
static FOLLOWS: [Follows; 2] = [("half", |problem| Ok(problem.get("k") / 2)), ("words", |problem| Ok(words(problem.get("k"))))];

fn words(k: u64) -> u64 {
    k.div_ceil(WORD)
}

pub(crate) static COMPRESS: Operator = OPERATOR;

const OPERATOR: Operator = Operator {
    name: "sparse24_compress",
    about: "the two of each four neighbours of a row that have the largest magnitude, and where they stand",
    file: FILE.name,
    source: FILE.text,
    precisions: PRECISIONS,
    further_precisions: &["fp32"],
    suite: Vec::new,
    further_suite: || LARGE.iter().map(|&[m, k]| matrix(m, k)).collect(),
    quick: || PRECISIONS.iter().map(|&precision| (matrix(256, 1024), precision)).collect(),
    edges: || SMALL.iter().map(|&[m, k]| matrix(m, k)).collect(),
    draw,
    calls: Calls {
        variants: &[""],
        default: Some(""),
        signature: |_| Signature::new(&[Operand("x", "m k")], STORED).types(TYPES).follows(&FOLLOWS),
        problem: |sizes| whole_fours(matrix(sizes.get("m"), sizes.get("k"))),
    },
    numbers: &[],
    plan: compress,
    ways: None,
    gradient: None,
    ladder: &[],
    no_specials: Some("whether NaN is larger than a number is not said"),
};

pub(crate) static EXPAND: Operator = Operator {
    name: "sparse24_expand",
    about: "a matrix of which two of each four neighbours of a row are stored, with its zeros",
    calls: Calls {
        signature: |_| {
            let signature = Signature::new(STORED, &[Operand("x", "m k")]).types(TYPES).fours("places");
            signature.follows(&[("k", |problem| Ok(problem.get("k")))])
        },
        problem: |sizes| Ok(matrix(sizes.get("m"), stored_columns(sizes)?)),
        ..OPERATOR.calls
    },
    plan: expand,
    no_specials: None,
    ..OPERATOR
};

pub(crate) static GEMM: Operator = Operator {
    name: "sparse24_gemm",
    about: "a matrix of which two of each four neighbours of a row are stored times a dense one, on tensor cores that skip the zeros",
    further_precisions: &[],
    further_suite: || [4096, 8192].iter().map(|&side| product([side; 3])).collect(),
    quick: || PRECISIONS.iter().map(|&precision| (product([128, 192, 256]), precision)).collect(),
    edges: || PRODUCTS.iter().map(|&sizes| product(sizes)).collect(),
    draw: |draw| {
        let [m, n, fours] = draw.extents(draw.operations() / 8, [300, 300, 200]);
        product([m, n, FOUR * fours])
    },
    calls: Calls {
        signature: |_| {
            const INPUTS: &[Operand] = &[STORED[0], STORED[1], Operand("B", "k n")];
            Signature::new(INPUTS, &[Operand("C", "m n")]).types(TYPES).fours("places")
        },
        problem: |sizes| {
            let k = stored_columns(sizes)?;
            if sizes.get("k") != k {
                return Err(Unsupported(format!("`values` are of {k} columns, and `B` has {} rows", sizes.get("k"))));
            }
            Ok(product([sizes.get("m"), sizes.get("n"), k]))
        },
        ..OPERATOR.calls
    },
    plan: |problem, policy, machine| multiply(problem, policy, machine, None),
    ways: Some(Ways {
        names: &sparse24_cut::NAMES,
        of: ways,
        plan: |problem, policy, machine, way| multiply(problem, policy, machine, Some(way)),
    }),
    no_specials: None,
    ..OPERATOR
};

/// Layers of language models.
const LARGE: [[u64; 2]; 3] = [[4096, 4096], [8192, 8192], [4096, 14336]];
/// One four, words that are not full, more than a tile.
const SMALL: [[u64; 2]; 7] = [[1, 4], [3, 32], [16, 36], [33, 100], [5, 1028], [2, 4100], [130, 64]];
const PRODUCTS: [[u64; 3]; 9] = [
    [1, 1, 4],
    [16, 8, 32],
    [64, 64, 64],
    [65, 63, 68],
    [17, 130, 36],
    [130, 7, 260],
    [5, 65, 128],
    [100, 33, 132],
    [1, 200, 516],
];

fn matrix(m: u64, k: u64) -> Problem {
    Problem::new(&[("m", m), ("k", k)], "")
}

fn product([m, n, k]: [u64; 3]) -> Problem {
    Problem::new(&[("m", m), ("n", n), ("k", k)], "")
}

fn draw(draw: &mut Draw<'_>) -> Problem {
    let [m, fours] = draw.extents(draw.elements() / FOUR, [1 << 13, 1 << 13]);
    matrix(m, FOUR * fours)
}

fn whole_fours(problem: Problem) -> Result<Problem, Unsupported> {
    let k = problem.get("k");
    if k.is_multiple_of(FOUR) {
        return Ok(problem);
    }
    Err(Unsupported(format!(
        "two of each four neighbours are stored, and {k} columns are no multiple of 4: add columns of zeros"
    )))
}

/// The columns of which a call's arrays hold half.
fn stored_columns(sizes: &Sizes) -> Result<u64, Unsupported> {
    let [half, given] = ["half", "words"].map(|name| sizes.get(name));
    if !half.is_multiple_of(2) {
        return Err(Unsupported(format!("`values` has {half} columns: two of each four neighbours are an even number")));
    }
    if given != words(2 * half) {
        let wanted = words(2 * half);
        return Err(Unsupported(format!(
            "`places` has {given} columns, and {wanted} are wanted: a word for each 16 values of a row"
        )));
    }
    Ok(2 * half)
}

/// Values and their places, of a matrix `[m, k]`.
fn stored([m, k]: [usize; 2], storage: DType, role: Role) -> [TensorSpec; 2] {
    let values = TensorSpec::new("values", storage, [m, k / 2], role);
    let places = TensorSpec::new("places", DType::I32, [m, words(k as u64) as usize], role);
    [values, TensorSpec { fill: Fill::Places, ..places }]
}

fn extents<const N: usize>(problem: &Problem, names: [&str; N]) -> Result<[usize; N], Unsupported> {
    let problem = whole_fours(problem.clone())?;
    Ok(names.map(|name| problem.get(name) as usize))
}

/// The launch for a matrix of so many rows and columns, in tiles of rows and of `least` columns or more.
pub(super) fn by_tiles(
    kernel: &'static str,
    mut arguments: Vec<(&'static str, Argument)>,
    [m, k]: [usize; 2],
    least: usize,
    machine: Machine,
) -> Result<LaunchSpec, Unsupported> {
    let columns = k.next_power_of_two().clamp(least, 512);
    let height = (rows::elementwise_tile(m * k, machine) / columns).min(m.next_power_of_two());
    arguments.extend([("TM", rows::int(height)), ("TK", rows::int(columns))]);
    let [down, ..] = rows::grid(m, height)?;
    let [across, ..] = rows::grid(k, columns)?;
    Ok(LaunchSpec::new(kernel, arguments, [down, across, 1]))
}

fn compress(problem: &Problem, policy: Policy, machine: Machine) -> Result<Plan, Unsupported> {
    let (storage, bits) = bits_of(policy, "sparse24_compress")?;
    let sizes @ [m, k] = extents(problem, ["m", "k"])?;
    let [values, places] = stored(sizes, storage, Role::Output);
    let tensors = vec![TensorSpec::new("x", storage, [m, k], Role::Input), values, places];
    let mut arguments = rows::arrays(&tensors, &["x", "values", "places"]);
    arguments.push(("BITS", Argument::Type(bits)));
    let output = |tensor: usize| OutputRows { tensor, rows: m, row_len: tensors[tensor].shape[1], exact: true };
    Ok(Plan {
        outputs: vec![output(1), output(2)],
        launches: vec![by_tiles("compress", arguments, sizes, WORD as usize, machine)?],
        work: Work {
            read_bytes: packed_bytes(storage, (m * k) as u64),
            write_bytes: packed_bytes(storage, tensors[1].len() as u64) + 4 * tensors[2].len() as u64,
            flops: (m * k) as u64,
            compute: None,
            metric: Metric::Bandwidth,
            formula: "x read once, values and places written once",
        },
        tensors,
        exact_lane: true,
        reference: Box::new(Compressed { k, sign: 1 << (storage.bits() - 1) }),
    })
}

fn expand(problem: &Problem, policy: Policy, machine: Machine) -> Result<Plan, Unsupported> {
    let (storage, _) = bits_of(policy, "sparse24_expand")?;
    let sizes @ [m, k] = extents(problem, ["m", "k"])?;
    let [values, places] = stored(sizes, storage, Role::Input);
    let tensors = vec![values, places, TensorSpec::new("x", storage, [m, k], Role::Output)];
    let arguments = rows::arrays(&tensors, &["values", "places", "x"]);
    Ok(Plan {
        outputs: vec![OutputRows { tensor: 2, rows: m, row_len: k, exact: true }],
        launches: vec![by_tiles("expand", arguments, sizes, WORD as usize, machine)?],
        work: Work {
            read_bytes: packed_bytes(storage, tensors[0].len() as u64) + 4 * tensors[1].len() as u64,
            write_bytes: packed_bytes(storage, (m * k) as u64),
            flops: (m * k) as u64,
            compute: None,
            metric: Metric::Bandwidth,
            formula: "values and places read once, x written once",
        },
        tensors,
        exact_lane: true,
        reference: Box::new(Expanded { k }),
    })
}

/// The element type, and the integers of as many bits.
fn bits_of(policy: Policy, operator: &str) -> Result<(DType, DType), Unsupported> {
    match rows::storage(policy, operator)?.0 {
        storage @ (DType::F16 | DType::BF16) => Ok((storage, DType::U16)),
        DType::F32 => Ok((DType::F32, DType::U32)),
        _ => Err(Unsupported(format!("{operator} takes floats of 16 and 32 bits, not `{policy}`"))),
    }
}

fn ways(problem: &Problem, _: Policy, machine: Machine) -> Result<Vec<PossibleWay>, Unsupported> {
    Ok(sparse24_cut::ways(["m", "n", "k"].map(|name| problem.get(name)), machine))
}

fn multiply(problem: &Problem, policy: Policy, machine: Machine, way: Option<&Way>) -> Result<Plan, Unsupported> {
    let storage = match rows::storage(policy, "sparse24_gemm")? {
        (storage @ (DType::F16 | DType::BF16), DType::F32) => storage,
        _ => return Err(Unsupported(format!("sparse24_gemm multiplies `fp16` and `bf16` with sums in `fp32`, not `{policy}`"))),
    };
    if let Machine::Gpu(arch) = machine
        && !arch.has_sparse_mma()
    {
        return Err(Unsupported(format!(
            "{arch} has no products of factors that are stored by half: sm_80 is the first that has"
        )));
    }
    let [m, n, k] = extents(problem, ["m", "n", "k"])?;
    let [values, places] = stored([m, k], storage, Role::Input);
    let b = TensorSpec::new("B", storage, [k, n], Role::Input);
    let c = TensorSpec::new("C", storage, [m, n], Role::Output);
    let mut tensors = vec![values, places, b, c];
    let sizes = [m, n, k].map(|extent| extent as u64);
    let launches = match (sparse24_cut::takes_tiles(machine), way) {
        (true, Some(way)) => sparse24_cut::tiled(&mut tensors, sizes, Choice::of_way(way)?, machine)?,
        (true, None) => sparse24_cut::tiled(&mut tensors, sizes, Choice::of(sizes, machine), machine)?,
        (false, None) => sparse24_cut::by_warps(&mut tensors, sizes, machine)?,
        (false, Some(_)) => return Err(Unsupported("sparse24_gemm is cut in one way alone here".to_string())),
    };
    Ok(Plan {
        outputs: vec![OutputRows { tensor: 3, rows: m, row_len: n, exact: false }],
        launches,
        work: Work {
            read_bytes: packed_bytes(storage, (m * k / 2 + k * n) as u64) + 4 * tensors[1].len() as u64,
            write_bytes: packed_bytes(storage, (m * n) as u64),
            flops: (m * n * k) as u64,
            compute: Some(storage),
            metric: Metric::Compute,
            formula: "mnk operations, half of a dense product's; values, places and B read once, C written once",
        },
        tensors,
        exact_lane: true,
        reference: Box::new(Product { n, k, storage }),
    })
}

struct Compressed {
    k: usize,
    /// The sign's bit.
    sign: u64,
}

impl Reference for Compressed {
    fn rows(&self, inputs: &dyn Inputs, output: usize, rows: Range<usize>, expected: Expected<'_>) {
        let Expected::Codes(codes) = expected else { return };
        let each = codes.len() / rows.len();
        codes.par_chunks_mut(each.max(1)).enumerate().for_each(|(r, codes)| {
            let mut line = vec![0; self.k];
            inputs.codes(0, (rows.start + r) * self.k, &mut line);
            let kept = |four: &[u64]| {
                let mut places = [0, 1, 2, 3];
                // A stable order: of equal ones the first stand first.
                places.sort_by_key(|&place| std::cmp::Reverse(four[place] & (self.sign - 1)));
                let [first, second] = [places[0].min(places[1]), places[0].max(places[1])];
                [first, second]
            };
            if output == 0 {
                for (four, codes) in line.chunks(4).zip(codes.chunks_mut(2)) {
                    codes.copy_from_slice(&kept(four).map(|place| four[place]));
                }
                return;
            }
            for (at, word) in codes.iter_mut().enumerate() {
                *word = (0..8).fold(0, |word, four| {
                    let [first, second] = line.get(32 * at + 4 * four..32 * at + 4 * four + 4).map_or([0, 1], kept);
                    word | ((first | second << 2) as u64) << (4 * four)
                });
            }
        });
    }
}

struct Expanded {
    k: usize,
}

impl Reference for Expanded {
    fn rows(&self, inputs: &dyn Inputs, _output: usize, rows: Range<usize>, expected: Expected<'_>) {
        let Expected::Codes(codes) = expected else { return };
        let each = words(self.k as u64) as usize;
        codes.par_chunks_mut(self.k).enumerate().for_each(|(r, codes)| {
            let (mut values, mut places) = (vec![0; self.k / 2], vec![0; each]);
            inputs.codes(0, (rows.start + r) * (self.k / 2), &mut values);
            inputs.codes(1, (rows.start + r) * each, &mut places);
            codes.fill(0);
            for (four, pair) in values.chunks(2).enumerate() {
                for (place, &value) in pair_at(places[four / 8], four).into_iter().zip(pair) {
                    codes[4 * four + place] = value;
                }
            }
        });
    }
}

struct Product {
    n: usize,
    k: usize,
    storage: DType,
}

impl Reference for Product {
    fn rows(&self, inputs: &dyn Inputs, _output: usize, rows: Range<usize>, expected: Expected<'_>) {
        let Expected::Bounded { want, bound } = expected else { return };
        let model = ErrorModel { floor: underflow(self.storage), ..ErrorModel::nearest(self.storage, DType::F32) };
        let each = words(self.k as u64) as usize;
        let outputs = want.par_chunks_mut(self.n).zip(bound.par_chunks_mut(self.n));
        outputs.enumerate().for_each(|(r, (want, bound))| {
            let row = rows.start + r;
            let (mut values, mut places) = (vec![0.0; self.k / 2], vec![0; each]);
            inputs.numbers(0, row * (self.k / 2), &mut values);
            inputs.codes(1, row * each, &mut places);
            let mut line = vec![0.0; self.n];
            want.fill(0.0);
            bound.fill(0.0);
            for (at, value) in values.iter().enumerate() {
                let column = 4 * (at / 2) + pair_at(places[at / 16], at / 2)[at % 2];
                inputs.numbers(2, column * self.n, &mut line);
                for ((want, magnitude), b) in want.iter_mut().zip(bound.iter_mut()).zip(&line) {
                    *want += value * b;
                    *magnitude += (value * b).abs();
                }
            }
            for (want, bound) in want.iter_mut().zip(bound) {
                *bound = model.contraction(*want, *bound, self.k / 2);
                *want = storable(self.storage, *want);
            }
        });
    }
}
