//! The anchor kernels (bulk tensor copies, mbarriers, `wgmma`, `setmaxnreg`, named barriers) at small sizes, through the driver
//! table, under every schedule and with all sanitizers.

use std::sync::Arc;

use tessera_driver::{
    Context, DeviceBuffer, DeviceOrdinal, Dim3, L2Promotion, OutOfBounds, Params, Stream, Swizzle, TensorMap, TensorMapSpec,
};
use tessera_emu::{EmuOptions, LaunchOptions, Sanitize, Schedule, driver};
use tessera_types::DType;

struct Machine {
    context: Context,
    stream: Stream,
}

fn machine(schedule: Schedule, seed: u64, sanitize: Sanitize) -> Machine {
    let launch = LaunchOptions { schedule, seed, sanitize, ..LaunchOptions::default() };
    let options = EmuOptions { multiprocessors: Some(3), launch, ..EmuOptions::default() };
    let context = Context::open(Arc::new(driver(&options).unwrap()), DeviceOrdinal(0)).unwrap();
    let stream = context.stream().unwrap();
    Machine { context, stream }
}

/// Every schedule, and the last once more with all sanitizers.
fn machines() -> Vec<(String, Machine)> {
    let mut list: Vec<(String, Machine)> =
        [(Schedule::Eager, 0), (Schedule::Lazy, 0), (Schedule::Random, 1), (Schedule::Random, 2)]
            .into_iter()
            .map(|(schedule, seed)| (format!("{schedule:?} {seed}"), machine(schedule, seed, Sanitize::NONE)))
            .collect();
    list.push(("sanitized".to_owned(), machine(Schedule::Lazy, 0, Sanitize::ALL)));
    list
}

fn kernel_text(name: &str) -> String {
    let path = format!("{}/../../kernels/anchors/{name}.ptx", env!("CARGO_MANIFEST_DIR"));
    std::fs::read_to_string(path).unwrap()
}

fn random(count: usize, seed: u64) -> Vec<u16> {
    let mut state = seed;
    (0..count)
        .map(|_| {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            let unit = (state >> 40) as f32 / (1 << 24) as f32 * 4.0 - 2.0;
            (unit.to_bits() >> 16) as u16
        })
        .collect()
}

fn number(bits: u16) -> f64 {
    f64::from(f32::from_bits(u32::from(bits) << 16))
}

impl Machine {
    fn put(&self, data: &[u16]) -> DeviceBuffer {
        let buffer = self.context.buffer(data.len() as u64 * 2).unwrap();
        let bytes: Vec<u8> = data.iter().flat_map(|value| value.to_le_bytes()).collect();
        buffer.write(0, &bytes, &self.stream).unwrap();
        buffer
    }

    fn get(&self, buffer: &DeviceBuffer, count: usize) -> Vec<u16> {
        let mut bytes = vec![0; count * 2];
        buffer.read(0, &mut bytes, &self.stream).unwrap();
        bytes.chunks_exact(2).map(|pair| u16::from_le_bytes([pair[0], pair[1]])).collect()
    }

    fn map(&self, buffer: &DeviceBuffer, extents: &[u64], strides: &[u64], tile: &[u32]) -> TensorMap {
        let spec = TensorMapSpec {
            dtype: DType::BF16,
            address: buffer.pointer(),
            extents: extents.to_vec(),
            strides: strides.to_vec(),
            tile: tile.to_vec(),
            swizzle: Swizzle::B128,
            l2: L2Promotion::B256,
            outside: OutOfBounds::Zero,
        };
        self.context.tensor_map(&spec).unwrap()
    }
}

fn product(layout: &str) {
    let (m, n, k) = (150usize, 320usize, 584usize);
    let (a_data, b_data) = (random(m * k, 11), random(n * k, 13));
    let text = kernel_text(&format!("gemm_{layout}"));
    for (name, machine) in machines() {
        let (a, b, c) = (machine.put(&a_data), machine.put(&b_data), machine.put(&vec![0xffff; m * n]));
        let (wide_m, wide_n, wide_k) = (m as u64, n as u64, k as u64);
        let map_a = machine.map(&a, &[wide_k, wide_m], &[wide_k * 2], &[64, 128]);
        let map_b = match layout {
            "nt" => machine.map(&b, &[wide_k, wide_n], &[wide_k * 2], &[64, 256]),
            _ => machine.map(&b, &[64, wide_k, wide_n / 64], &[wide_n * 2, 128], &[64, 64, 4]),
        };
        let map_c = machine.map(&c, &[wide_n, wide_m], &[wide_n * 2], &[64, 64]);
        let params = Params::new()
            .tensor_map(&map_a)
            .tensor_map(&map_b)
            .tensor_map(&map_c)
            .u32(m.div_ceil(128) as u32)
            .u32(n.div_ceil(256) as u32)
            .u32(k.div_ceil(64) as u32);
        let shared = 4 * (49152 + 16) + 4 * 8192;
        let kernel = machine.context.module(text.as_bytes()).unwrap().kernel(&format!("gemm_{layout}")).unwrap();
        kernel.allow_shared(shared).unwrap();
        kernel
            .launch(&machine.stream, Dim3::from(2), Dim3::from(384), shared, &params)
            .unwrap_or_else(|error| panic!("{name}: {error}"));
        let found = machine.get(&c, m * n);
        for row in (0..m).step_by(7) {
            for column in 0..n {
                let mut sum = 0.0;
                let mut size = 0.0;
                for at in 0..k {
                    let other = if layout == "nt" { b_data[column * k + at] } else { b_data[at * n + column] };
                    let term = number(a_data[row * k + at]) * number(other);
                    sum += term;
                    size += term.abs();
                }
                let value = number(found[row * n + column]);
                assert!((value - sum).abs() <= sum.abs() / 256.0 + size * 1e-5, "{name}: ({row}, {column}): {value} for {sum}");
            }
        }
    }
}

#[test]
fn gemm_nt() {
    product("nt");
}

#[test]
fn gemm_nn() {
    product("nn");
}

#[test]
fn softmax() {
    let (rows, columns) = (3usize, 5000usize);
    let data = random(rows * columns, 7);
    for (name, machine) in machines() {
        let (x, y) = (machine.put(&data), machine.put(&vec![0xffff; rows * columns]));
        let params = Params::new().pointer(x.pointer()).pointer(y.pointer()).u32(columns as u32);
        let kernel = machine.context.module(kernel_text("softmax").as_bytes()).unwrap().kernel("softmax").unwrap();
        kernel
            .launch(&machine.stream, Dim3::from(rows as u32), Dim3::from(512), 0, &params)
            .unwrap_or_else(|error| panic!("{name}: {error}"));
        let found = machine.get(&y, rows * columns);
        for (x, y) in data.chunks_exact(columns).zip(found.chunks_exact(columns)) {
            let largest = x.iter().map(|&bits| number(bits)).fold(f64::NEG_INFINITY, f64::max);
            let sum: f64 = x.iter().map(|&bits| (number(bits) - largest).exp()).sum();
            for (&x, &y) in x.iter().zip(y) {
                let wanted = (number(x) - largest).exp() / sum;
                assert!((number(y) - wanted).abs() <= wanted / 230.0 + 1e-30, "{name}: {} for {wanted}", number(y));
            }
        }
    }
}

#[test]
fn attention() {
    let (batch, length, heads, depth) = (1usize, 300usize, 2usize, 128usize);
    let count = batch * length * heads * depth;
    let inputs: Vec<Vec<u16>> = [3, 5, 9].map(|seed| random(count, seed)).to_vec();
    let at = |position: usize, head: usize| (position * heads + head) * depth;
    for (name, machine) in machines() {
        let buffers: Vec<DeviceBuffer> = inputs.iter().map(|data| machine.put(data)).collect();
        let out = machine.put(&vec![0xffff; count]);
        let map = |buffer: &DeviceBuffer, rows: u32, halves: u32| {
            let (length, heads) = (length as u64, heads as u64);
            let strides = [heads * 256, 128, 256, length * heads * 256];
            machine.map(buffer, &[64, length, 2, heads, batch as u64], &strides, &[64, rows, halves, 1, 1])
        };
        let tiles = length.div_ceil(128) * heads * batch;
        let params = Params::new()
            .tensor_map(&map(&buffers[0], 128, 2))
            .tensor_map(&map(&buffers[1], 128, 2))
            .tensor_map(&map(&buffers[2], 128, 2))
            .tensor_map(&map(&out, 64, 1))
            .u32(length as u32)
            .u32(length.div_ceil(128) as u32)
            .u32(heads as u32)
            .u32(tiles as u32)
            .f32(std::f32::consts::LOG2_E / (depth as f32).sqrt());
        let shared = 32768 + 4 * 128 * 256 + 32768 + 80;
        let kernel = machine.context.module(kernel_text("attention").as_bytes()).unwrap().kernel("attention").unwrap();
        kernel.allow_shared(shared).unwrap();
        kernel
            .launch(&machine.stream, Dim3::from(2), Dim3::from(384), shared, &params)
            .unwrap_or_else(|error| panic!("{name}: {error}"));
        let found = machine.get(&out, count);
        for (position, head) in [(0, 0), (64, 1), (127, 0), (128, 1), (299, 1)] {
            let q = &inputs[0][at(position, head)..][..depth];
            let scores: Vec<f64> = (0..length)
                .map(|key| {
                    let k = &inputs[1][at(key, head)..][..depth];
                    q.iter().zip(k).map(|(&a, &b)| number(a) * number(b)).sum::<f64>() / (depth as f64).sqrt()
                })
                .collect();
            let largest = scores.iter().copied().fold(f64::NEG_INFINITY, f64::max);
            let weights: Vec<f64> = scores.iter().map(|score| (score - largest).exp()).collect();
            let sum: f64 = weights.iter().sum();
            for column in 0..depth {
                let terms =
                    weights.iter().enumerate().map(|(key, weight)| weight / sum * number(inputs[2][at(key, head) + column]));
                let (wanted, size) = terms.fold((0.0, 0.0), |(sum, size), term| (sum + term, size + term.abs()));
                let value = number(found[at(position, head) + column]);
                let bound = size / 512.0 + wanted.abs() / 256.0 + 1e-6;
                assert!((value - wanted).abs() <= bound, "{name}: row {position}, head {head}, {column}: {value} for {wanted}");
            }
        }
    }
}
