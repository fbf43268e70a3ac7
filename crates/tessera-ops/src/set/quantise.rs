//! Codes of 8 bits with scales, and back: a scale for each block of 128 neighbours of a row, for each row, or for all.
//!
//! The first word of a variant says what has a scale; `quantise` has the type of codes behind it, where that is not `e4m3`: `rows_int8`. References
//! compute with the numbers of 32 bits that the kernels have, step by step, so every bit is known.

use std::ops::Range;

use rayon::prelude::*;
use tessera_types::{DType, FloatFormat, Policy, Storage};

use crate::draw::Draw;
use crate::element::wrap;
use crate::operator::{
    Argument, Expected, Fill, Inputs, LaunchSpec, Machine, Operator, OutputRows, Plan, Reference, Role, TensorSpec, Unsupported,
};
use crate::problem::Problem;
use crate::set::rows::{self, Division, int};
use crate::signature::{Calls, Follows, Operand, Signature};
use crate::work::{Metric, Work, packed_bytes};

pub(crate) static QUANTISE: Operator = Operator {
    name: "quantise",
    about: "codes of 8 bits and scales of blocks, of rows or of all",
    file: "quantise.py",
    source: include_str!("../../kernels/quantise.py"),
    precisions: &["bf16", "fp32"],
    further_precisions: &["fp16"],
    suite: Vec::new,
    further_suite: || further_suite(&VARIANTS),
    quick: || {
        let cases = VARIANTS.iter().map(|variant| (problem(128, 1024, variant), "bf16"));
        cases.chain([(problem(128, 1024, "rows"), "fp32")]).collect()
    },
    edges: || edges(&VARIANTS),
    draw: |draw| drawn(draw, &VARIANTS),
    calls: Calls {
        variants: &VARIANTS,
        default: Some("rows"),
        signature: |variant| {
            const X: &[Operand] = &[Operand("x", "..rows n")];
            const CODES: Operand = Operand("codes", "..rows n");
            let signature = match Scaled::of(variant) {
                Scaled::Blocks => Signature::new(X, &[CODES, Operand("scales", "..rows blocks")]).follows(&BLOCKS_OF_N),
                Scaled::Rows => Signature::new(X, &[CODES, Operand("scales", "..rows")]),
                Scaled::Tensor => Signature::new(X, &[CODES, Operand("scales", "1")]),
            };
            signature.types(match codes_of(variant) {
                DType::I8 => &[("scales", DType::F32), ("codes", DType::I8)],
                DType::F8E5M2 => &[("scales", DType::F32), ("codes", DType::F8E5M2)],
                _ => &[("scales", DType::F32), ("codes", DType::F8E4M3)],
            })
        },
        problem: |sizes| Ok(problem(sizes.get("rows"), sizes.get("n"), sizes.variant)),
    },
    numbers: &[],
    plan: quantise,
    ways: None,
    gradient: None,
    ladder: &[],
};

pub(crate) static DEQUANTISE: Operator = Operator {
    name: "dequantise",
    about: "numbers from codes of 8 bits and scales of blocks, of rows or of all",
    file: "quantise.py",
    source: include_str!("../../kernels/quantise.py"),
    precisions: &["fp8_e4m3->bf16", "int8->fp32"],
    further_precisions: &[
        "fp8_e4m3->fp32",
        "fp8_e4m3->fp16",
        "fp8_e5m2->bf16",
        "fp8_e5m2->fp32",
        "fp8_e5m2->fp16",
        "int8->bf16",
        "int8->fp16",
    ],
    suite: Vec::new,
    further_suite: || further_suite(&SCALED),
    quick: || {
        let cases = SCALED.iter().map(|variant| (problem(128, 1024, variant), "fp8_e4m3->bf16"));
        cases.chain([(problem(128, 1024, "rows"), "int8->fp32")]).collect()
    },
    edges: || edges(&SCALED),
    draw: |draw| drawn(draw, &SCALED),
    calls: Calls {
        variants: &SCALED,
        default: Some("rows"),
        signature: |variant| {
            const CODES: Operand = Operand("codes", "..rows n");
            const Y: &[Operand] = &[Operand("y", "..rows n")];
            let signature = match Scaled::of(variant) {
                Scaled::Blocks => Signature::new(&[CODES, Operand("scales", "..rows blocks")], Y).follows(&BLOCKS_OF_N),
                Scaled::Rows => Signature::new(&[CODES, Operand("scales", "..rows")], Y),
                Scaled::Tensor => Signature::new(&[CODES, Operand("scales", "1")], Y),
            };
            signature.types(&[("scales", DType::F32)])
        },
        problem: |sizes| Ok(problem(sizes.get("rows"), sizes.get("n"), sizes.variant)),
    },
    numbers: &[],
    plan: dequantise,
    ways: None,
    gradient: None,
    ladder: &[],
};

/// What has a scale.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Scaled {
    Blocks,
    Rows,
    Tensor,
}

const SCALED: [&str; 3] = ["blocks", "rows", "tensor"];
const VARIANTS: [&str; 9] =
    ["blocks", "rows", "tensor", "blocks_e5m2", "rows_e5m2", "tensor_e5m2", "blocks_int8", "rows_int8", "tensor_int8"];
/// Neighbours of a row that have a scale.
const BLOCK: usize = 128;
/// How many a row has.
static BLOCKS_OF_N: [Follows; 1] = [("blocks", |problem| Ok(problem.get("n").div_ceil(BLOCK as u64)))];
/// What the largest magnitude counts as where it is smaller.
const LEAST: f32 = f32::from_bits(27 << 23);
/// Elements of a tile of rows that no block holds whole, and maxima of a row that are put together at a time.
const CHUNK: usize = 8192;
const PARTS: usize = 1024;

impl Scaled {
    fn of(variant: &str) -> Scaled {
        match variant.split('_').next() {
            Some("blocks") => Scaled::Blocks,
            Some("rows") => Scaled::Rows,
            Some("tensor") => Scaled::Tensor,
            _ => panic!("no scales `{variant}`"),
        }
    }

    /// The shape of scales: rows of them, and how many each has.
    fn shape(self, count: usize, n: usize) -> Vec<usize> {
        match self {
            Scaled::Blocks => vec![count, n.div_ceil(BLOCK)],
            Scaled::Rows => vec![count],
            Scaled::Tensor => vec![1],
        }
    }
}

/// The type of codes.
fn codes_of(variant: &str) -> DType {
    match variant.split('_').nth(1) {
        Some("int8") => DType::I8,
        Some("e5m2") => DType::F8E5M2,
        None => DType::F8E4M3,
        Some(_) => panic!("no codes `{variant}`"),
    }
}

/// The largest code.
fn most(codes: DType) -> f32 {
    FloatFormat::of(codes).map_or(127.0, |format| format.max_finite() as f32)
}

fn problem(rows: u64, n: u64, variant: &str) -> Problem {
    Problem::new(&[("rows", rows), ("n", n)], variant)
}

/// Activations of language models.
fn further_suite(variants: &[&str]) -> Vec<Problem> {
    let sizes = [(4096, 7168), (8192, 4096), (16384, 14336)];
    sizes.iter().flat_map(|&(rows, n)| variants.iter().map(move |variant| problem(rows, n, variant))).collect()
}

fn edges(variants: &[&str]) -> Vec<Problem> {
    let sizes = [(1, 1), (16, 16), (3, 997), (33, 1000), (2, 1025), (5, 4100), (1, 40_000), (70, 128)];
    sizes.iter().flat_map(|&(rows, n)| variants.iter().map(move |variant| problem(rows, n, variant))).collect()
}

fn drawn(draw: &mut Draw<'_>, variants: &[&'static str]) -> Problem {
    let [rows, n] = draw.extents(draw.elements(), [1 << 14, 1 << 17]);
    problem(rows, n, draw.one_of(variants))
}

/// Rows and columns of an elementwise tile, whose columns are whole blocks.
fn tile(count: usize, n: usize, machine: Machine) -> [usize; 2] {
    let elements = rows::elementwise_tile(count * n, machine).max(4096);
    let columns = n.next_power_of_two().clamp(BLOCK, 1024);
    [(elements / columns).min(count.next_power_of_two()), columns]
}

fn quantise(problem: &Problem, policy: Policy, machine: Machine) -> Result<Plan, Unsupported> {
    let (storage, _) = rows::storage(policy, "quantise")?;
    let (scaled, dtype) = (Scaled::of(&problem.variant), codes_of(&problem.variant));
    let (count, n) = (problem.get("rows") as usize, problem.get("n") as usize);
    let mut tensors = vec![
        TensorSpec::new("x", storage, [count, n], Role::Input),
        TensorSpec::new("codes", dtype, [count, n], Role::Output),
        TensorSpec::new("scales", DType::F32, scaled.shape(count, n), Role::Output),
    ];
    let named = ["x", "codes", "scales"].iter().enumerate().map(|(at, &name)| (name, Argument::Tensor(at)));
    let mut arguments: Vec<_> = named.chain([("MOST", Argument::Float(f64::from(most(dtype))))]).collect();
    let launches = match (scaled, Division::of(count, n, storage, machine)) {
        (Scaled::Blocks, _) => {
            let [down, across] = tile(count, n, machine);
            arguments.extend([("TM", int(down)), ("TN", int(across))]);
            vec![LaunchSpec::new("quantise_blocks", arguments, rows::grid(count.div_ceil(down) * n.div_ceil(across), 1)?)]
        }
        (Scaled::Rows, Division::Whole(each)) if n > 0 => {
            arguments.extend([("ROWS", int(each)), ("N", int(n))]);
            vec![LaunchSpec::new("quantise_rows", arguments, rows::grid(count, each)?)]
        }
        // All elements as one row.
        (Scaled::Tensor, _) => {
            tensors.iter_mut().take(2).for_each(|tensor| tensor.shape = vec![1, count * n]);
            long([1, count * n], &mut tensors, dtype, machine)?
        }
        (Scaled::Rows, Division::Whole(_) | Division::Cluster { .. } | Division::Pieces(_)) => {
            long([count, n], &mut tensors, dtype, machine)?
        }
    };
    let elements = (count * n) as u64;
    let (rows, row_len) = (tensors[0].shape[0], tensors[0].shape[1]);
    let scales = tensors[2].len();
    Ok(Plan {
        outputs: vec![
            OutputRows { tensor: 1, rows, row_len, exact: true },
            OutputRows { tensor: 2, rows: scales.min(rows), row_len: scales / rows.max(1).min(scales.max(1)), exact: true },
        ],
        tensors,
        launches,
        work: Work {
            read_bytes: packed_bytes(storage, elements),
            write_bytes: packed_bytes(dtype, elements) + 4 * scales as u64,
            flops: 3 * elements,
            compute: None,
            metric: Metric::Bandwidth,
            formula: "x read once, codes and scales written once",
        },
        exact_lane: false,
        reference: Box::new(Coded { scaled, dtype, rows, n: row_len }),
    })
}

/// The launches for rows that no block holds.
fn long(
    [count, n]: [usize; 2],
    tensors: &mut Vec<TensorSpec>,
    dtype: DType,
    machine: Machine,
) -> Result<Vec<LaunchSpec>, Unsupported> {
    let tiles = n.div_ceil(CHUNK);
    let blocks = match machine {
        Machine::Cpu => 8,
        Machine::Gpu(arch) => 4 * arch.multiprocessors() as usize,
    };
    // Of no elements there is a largest one, too.
    let each = tiles.div_ceil(blocks.div_ceil(count.max(1))).max(1);
    let parts = tiles.div_ceil(each).max(1);
    tensors.push(TensorSpec::new("partials", DType::F32, [count, parts], Role::Workspace));
    tensors.push(TensorSpec::new("arrived", DType::I32, [count], Role::Counter));
    let [x, codes, scales, partials, arrived] =
        [("x", 0), ("codes", 1), ("scales", 2), ("partials", 3), ("arrived", 4)].map(|(name, at)| (name, Argument::Tensor(at)));
    let most = ("MOST", Argument::Float(f64::from(most(dtype))));
    let numbers = [("CHUNK", int(CHUNK)), ("TILES", int(each)), ("PARTS", int(parts.next_power_of_two().min(PARTS)))];
    let largest = [x, partials, arrived, scales, most].into_iter().chain(numbers).collect();
    let mut launches = vec![LaunchSpec::new("largest", largest, rows::grid(count * parts, 1)?)];
    if tiles > 0 {
        let scaled = vec![x, scales, codes, ("CHUNK", int(CHUNK))];
        launches.push(LaunchSpec::new("scaled", scaled, rows::grid(count * tiles, 1)?));
    }
    Ok(launches)
}

struct Coded {
    scaled: Scaled,
    dtype: DType,
    rows: usize,
    n: usize,
}

impl Coded {
    /// The scales of a row.
    fn scales(&self, numbers: &[f64]) -> Vec<f32> {
        let length = if self.scaled == Scaled::Blocks { BLOCK } else { self.n.max(1) };
        let largest = |part: &[f64]| part.iter().fold(LEAST, |most, x| most.max(x.abs() as f32));
        let mut scales: Vec<f32> = numbers.chunks(length).map(|part| largest(part) / most(self.dtype)).collect();
        if numbers.is_empty() && self.scaled != Scaled::Blocks {
            scales.push(LEAST / most(self.dtype));
        }
        scales
    }

    fn code(&self, x: f64, scale: f32) -> u64 {
        let inverse = 1.0 / scale;
        match FloatFormat::of(self.dtype) {
            Some(format) => format.encode_nearest(f64::from(x as f32 * inverse)),
            // The product and the sum that rounds it are one operation.
            None => wrap(self.dtype, (x * f64::from(inverse)).round_ties_even() as i64),
        }
    }
}

impl Reference for Coded {
    fn rows(&self, inputs: &dyn Inputs, output: usize, rows: Range<usize>, expected: Expected<'_>) {
        let Expected::Codes(codes) = expected else { return };
        debug_assert!(rows.end <= self.rows.max(1));
        let each = if codes.is_empty() { 1 } else { codes.len() / rows.len() };
        codes.par_chunks_mut(each).enumerate().for_each(|(r, codes)| {
            let mut numbers = vec![0.0; self.n];
            inputs.numbers(0, (rows.start + r) * self.n, &mut numbers);
            let scales = self.scales(&numbers);
            let length = if self.scaled == Scaled::Blocks { BLOCK } else { self.n.max(1) };
            for (j, code) in codes.iter_mut().enumerate() {
                *code = if output == 0 { self.code(numbers[j], scales[j / length]) } else { u64::from(scales[j].to_bits()) };
            }
        });
    }
}

fn dequantise(problem: &Problem, policy: Policy, machine: Machine) -> Result<Plan, Unsupported> {
    let unsupported = || Unsupported(format!("dequantise takes codes of 8 bits, not `{policy}`"));
    let (Storage::Plain(dtype), Some(result)) = (policy.storage(), policy.result()) else { return Err(unsupported()) };
    DEQUANTISE.refuse_unlisted(policy)?;
    let scaled = Scaled::of(&problem.variant);
    let (count, n) = (problem.get("rows") as usize, problem.get("n") as usize);
    let fill =
        if dtype == DType::I8 { Fill::Integers { least: -127, greatest: 127 } } else { Fill::Normal { mean: 0.0, sd: 50.0 } };
    let tensors = vec![
        TensorSpec { fill, ..TensorSpec::new("codes", dtype, [count, n], Role::Input) },
        TensorSpec {
            fill: Fill::Normal { mean: 1.0, sd: 0.25 },
            ..TensorSpec::new("scales", DType::F32, scaled.shape(count, n), Role::Input)
        },
        TensorSpec::new("y", result, [count, n], Role::Output),
    ];
    let [down, across] = tile(count, n, machine);
    let mut arguments: Vec<_> = tensors.iter().enumerate().map(|(at, tensor)| (tensor.name, Argument::Tensor(at))).collect();
    arguments.extend([("TM", int(down)), ("TN", int(across))]);
    let kernel = match scaled {
        Scaled::Blocks => "dequantise_blocks",
        Scaled::Rows => "dequantise_rows",
        Scaled::Tensor => "dequantise_tensor",
    };
    let elements = (count * n) as u64;
    Ok(Plan {
        outputs: vec![OutputRows { tensor: 2, rows: count, row_len: n, exact: true }],
        launches: vec![LaunchSpec::new(kernel, arguments, rows::grid(count.div_ceil(down) * n.div_ceil(across), 1)?)],
        work: Work {
            read_bytes: packed_bytes(dtype, elements) + 4 * tensors[1].len() as u64,
            write_bytes: packed_bytes(result, elements),
            flops: elements,
            compute: None,
            metric: Metric::Bandwidth,
            formula: "codes and scales read once, y written once",
        },
        tensors,
        exact_lane: false,
        reference: Box::new(Decoded { scaled, result, n }),
    })
}

struct Decoded {
    scaled: Scaled,
    result: DType,
    n: usize,
}

impl Reference for Decoded {
    fn rows(&self, inputs: &dyn Inputs, _output: usize, rows: Range<usize>, expected: Expected<'_>) {
        let Expected::Codes(codes) = expected else { return };
        let format = FloatFormat::of(self.result).expect("a plan's results are floats");
        let (n, blocks) = (self.n, self.n.div_ceil(BLOCK));
        codes.par_chunks_mut(n.max(1)).enumerate().for_each(|(r, codes)| {
            let row = rows.start + r;
            let (mut numbers, mut scales) = (vec![0.0; n], vec![0.0; if self.scaled == Scaled::Blocks { blocks } else { 1 }]);
            inputs.numbers(0, row * n, &mut numbers);
            let first = match self.scaled {
                Scaled::Blocks => row * blocks,
                Scaled::Rows => row,
                Scaled::Tensor => 0,
            };
            inputs.numbers(1, first, &mut scales);
            for (j, (code, number)) in codes.iter_mut().zip(numbers).enumerate() {
                let scale = if self.scaled == Scaled::Blocks { scales[j / BLOCK] } else { scales[0] };
                *code = format.encode_nearest(f64::from(number as f32 * scale as f32));
            }
        });
    }
}
