//! The attention forward against f64 on random rows and against FlashAttention-3.

use serde_json::json;
use tessera_driver::{DeviceBuffer, Dim3, L2Promotion, OutOfBounds, Params, Swizzle, TensorMap, TensorMapSpec};
use tessera_types::DType;

use crate::data::{Random, bytes, from_bf16, normal, words};
use crate::measure::Mode;
use crate::report::Row;
use crate::{Bench, Outcome};

/// A kernel of the generator and what its launch needs to know.
struct Variant {
    name: &'static str,
    keys: u32,
    stage_in_q: bool,
}

const fn variant(name: &'static str, keys: u32, stage_in_q: bool) -> Variant {
    Variant { name, keys, stage_in_q }
}

const VARIANTS: [Variant; 5] = [
    variant("attention", 128, false),
    variant("attention_free", 128, false),
    variant("attention_160", 160, false),
    variant("attention_160_free", 160, false),
    variant("attention_176", 176, true),
];

/// Elements of a head.
const DEPTH: usize = 128;

/// `[batch, length, heads, 128]`
#[derive(Clone, Copy)]
struct Shape {
    batch: usize,
    length: usize,
    heads: usize,
}

impl Shape {
    fn count(self) -> usize {
        self.batch * self.length * self.heads * DEPTH
    }

    /// Where a row starts.
    fn row(self, batch: usize, position: usize, head: usize) -> usize {
        ((batch * self.length + position) * self.heads + head) * DEPTH
    }
}

pub(crate) fn run(bench: &mut Bench) -> Outcome<()> {
    for &(batch, length, heads) in bench.effort.cases(&[(2, 1000, 3), (4, 4096, 16), (2, 8192, 16), (1, 16384, 16)]) {
        for variant in &VARIANTS {
            let shape = Shape { batch, length, heads };
            case(bench, variant, shape).map_err(|error| format!("{} length {length}: {error}", variant.name))?;
        }
    }
    Ok(())
}

/// A map whose boxes are `rows` rows of `halves` halves of a head, half by half.
fn map(bench: &Bench, buffer: &DeviceBuffer, shape: Shape, rows: u32, halves: u32) -> Outcome<TensorMap> {
    let (batch, length, heads) = (shape.batch as u64, shape.length as u64, shape.heads as u64);
    Ok(bench.context.tensor_map(&TensorMapSpec {
        dtype: DType::BF16,
        address: buffer.pointer(),
        extents: vec![64, length, 2, heads, batch],
        strides: vec![heads * 256, 128, 256, length * heads * 256],
        tile: vec![64, rows, halves, 1, 1],
        swizzle: Swizzle::B128,
        l2: L2Promotion::B256,
        outside: OutOfBounds::Zero,
    })?)
}

fn case(bench: &mut Bench, variant: &Variant, shape: Shape) -> Outcome<()> {
    let Some(kernel) = bench.kernel(variant.name)? else { return Ok(()) };
    let stream = bench.stream.clone();
    let mut inputs = Vec::new();
    let mut buffers = Vec::new();
    for seed in [3, 5, 7] {
        let data = normal(shape.count(), seed);
        let buffer = bench.context.buffer(shape.count() as u64 * 2)?;
        buffer.write(0, &bytes(&data), &stream)?;
        inputs.push(data);
        buffers.push(buffer);
    }
    let out = bench.context.buffer(shape.count() as u64 * 2)?;
    out.fill(0xFF, &stream)?;
    let row_blocks = shape.length.div_ceil(128);
    let tiles = row_blocks * shape.heads * shape.batch;
    let params = Params::new()
        .tensor_map(&map(bench, &buffers[0], shape, 128, 2)?)
        .tensor_map(&map(bench, &buffers[1], shape, variant.keys, 2)?)
        .tensor_map(&map(bench, &buffers[2], shape, variant.keys, 2)?)
        .tensor_map(&map(bench, &out, shape, 64, 1)?)
        .u32(shape.length as u32)
        .u32(row_blocks as u32)
        .u32(shape.heads as u32)
        .u32(tiles as u32)
        .f32(std::f32::consts::LOG2_E / (DEPTH as f32).sqrt());
    let staging = if variant.stage_in_q { 0 } else { 32768 };
    let shared = 32768 + 4 * variant.keys * 256 + staging + 80;
    kernel.allow_shared(shared)?;
    let grid = bench.multiprocessors.min(tiles as u32);
    let launch = || kernel.launch(&stream, Dim3::from(grid), Dim3::from(384), shared, &params);
    launch()?;
    let mut found = vec![0; shape.count() * 2];
    out.read(0, &mut found, &stream)?;
    let error = check(&inputs, &words(&found), shape)?;
    if shape.length < 2000 {
        println!("{} length {}: right, error {error:.2e}", variant.name, shape.length);
        return Ok(());
    }
    let rounds = bench.effort.rounds();
    let case = format!("{}x{}x{}x128", shape.batch, shape.length, shape.heads);
    for mode in [Mode::Cold, Mode::Warm] {
        for peer_name in ["fa3", "cudnn"] {
            let request = json!({
                "op": "attention", "peer": peer_name, "batch": shape.batch, "length": shape.length, "heads": shape.heads,
            });
            let (mut times, mut baseline) = (Vec::new(), Vec::new());
            for round in 0..rounds {
                for ours in if round % 2 == 0 { [true, false] } else { [false, true] } {
                    if ours {
                        times.extend(bench.timer.run(&stream, mode, 4, &launch)?);
                    } else if let Some(peer) = &mut bench.peer {
                        baseline.extend(peer.run(&request, mode, 4)?);
                    }
                }
            }
            bench.report.row(Row {
                kernel: variant.name.to_owned(),
                case: case.clone(),
                mode,
                times,
                baseline: peer_name.to_owned(),
                baseline_times: baseline,
                work: 4.0 * (shape.batch * shape.heads * DEPTH) as f64 * (shape.length as f64).powi(2) * 1e-12,
                unit: "TFLOP/s",
                error,
            });
            if bench.peer.is_none() {
                break;
            }
        }
    }
    Ok(())
}

/// Every element was written, and 256 random rows are right in f64; the largest error relative to its bound.
fn check(inputs: &[Vec<u16>], found: &[u16], shape: Shape) -> Outcome<f64> {
    if let Some(index) = found.iter().position(|&bits| from_bf16(bits).is_nan()) {
        return Err(format!("element {index} is NaN or was not written").into());
    }
    let mut random = Random::new(shape.length as u64);
    let rows: Vec<_> =
        (0..256).map(|_| (random.below(shape.batch), random.below(shape.length), random.below(shape.heads))).collect();
    let threads = std::thread::available_parallelism().map_or(1, usize::from);
    let errors: Vec<Result<f64, String>> = std::thread::scope(|scope| {
        let tasks: Vec<_> = rows
            .chunks(rows.len().div_ceil(threads))
            .map(|part| {
                scope.spawn(move || {
                    part.iter().try_fold(0.0f64, |worst, &row| Ok(worst.max(check_row(inputs, found, shape, row)?)))
                })
            })
            .collect();
        tasks.into_iter().map(|task| task.join().unwrap_or_else(|_| Err("a check ended early".to_owned()))).collect()
    });
    let mut worst = 0.0f64;
    for error in errors {
        worst = worst.max(error?);
    }
    Ok(worst)
}

fn check_row(
    inputs: &[Vec<u16>],
    found: &[u16],
    shape: Shape,
    (batch, position, head): (usize, usize, usize),
) -> Result<f64, String> {
    let at = shape.row(batch, position, head);
    let q = &inputs[0][at..at + DEPTH];
    let scores: Vec<f64> = (0..shape.length)
        .map(|key| {
            let k = &inputs[1][shape.row(batch, key, head)..][..DEPTH];
            q.iter().zip(k).map(|(&a, &b)| from_bf16(a) * from_bf16(b)).sum::<f64>() / (DEPTH as f64).sqrt()
        })
        .collect();
    let largest = scores.iter().copied().fold(f64::NEG_INFINITY, f64::max);
    let weights: Vec<f64> = scores.iter().map(|score| (score - largest).exp()).collect();
    let sum: f64 = weights.iter().sum();
    let mut wanted = [0.0f64; DEPTH];
    let mut size = [0.0f64; DEPTH];
    for (key, weight) in weights.iter().enumerate() {
        let v = &inputs[2][shape.row(batch, key, head)..][..DEPTH];
        for column in 0..DEPTH {
            let term = weight / sum * from_bf16(v[column]);
            wanted[column] += term;
            size[column] += term.abs();
        }
    }
    let mut worst = 0.0f64;
    for column in 0..DEPTH {
        let value = from_bf16(found[at + column]);
        // Probabilities in bf16 put half a step (2^-9) on each term, mostly cancelling; the result is rounded once more.
        let bound = size[column] / 512.0 + wanted[column].abs() / 256.0 + 1e-6;
        let error = (value - wanted[column]).abs() / bound;
        if error.is_nan() || error > 1.0 {
            return Err(format!("batch {batch}, row {position}, head {head}, {column}: {value} for {}", wanted[column]));
        }
        worst = worst.max(error);
    }
    Ok(worst)
}
