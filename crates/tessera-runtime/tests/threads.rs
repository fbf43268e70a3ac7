//! Per-thread kernels from source to results: in lock-step on the processor, on the emulated device with its sanitizers, and
//! against references in `f64`. Where arithmetic is exact or in one order, both give the same bits.

use tessera_emu::EmuOptions;
use tessera_runtime::{CompileOptions, Device, Kernel, KernelError, LaunchGrid, LaunchOptions, RandomStream, Tensor, Value};
use tessera_types::DType;

const VECTOR: &str = include_str!("../../tessera-lang/tests/seeds/vector_operations.py");
const LAYER_NORM: &str = include_str!("../../tessera-lang/tests/seeds/layernorm_safe.py");
const SOFTMAX: &str = include_str!("../../tessera-lang/tests/seeds/softmax_safe.py");
const BANDWIDTH: &str = include_str!("../../tessera-lang/tests/seeds/memory_bandwidth_kernel.py");

type Args<'a> = Vec<(&'a str, Value)>;

fn shown(error: KernelError) -> String {
    match error {
        KernelError::Rejected(report) | KernelError::Fault { report, .. } => report.render(false),
        error => error.to_string(),
    }
}

fn launch(
    source: &str,
    name: &str,
    args: &Args<'_>,
    grid: [u32; 3],
    options: &CompileOptions,
    device: &Device,
) -> Result<(), String> {
    let kernel = Kernel::from_source("kernel.py", source, name).map_err(shown)?;
    let there = |value: &Value| match value {
        Value::Tensor(tensor) => Value::Tensor(tensor.to_device(device).unwrap()),
        value => value.clone(),
    };
    let own: Args<'_> = args.iter().map(|(name, value)| (*name, there(value))).collect();
    let launch = kernel.prepare(&own, LaunchGrid::Blocks(grid), options, device).map_err(shown)?;
    let checked = LaunchOptions { checked: device.is_cpu(), ..LaunchOptions::default() };
    launch.run_with(&checked).map_err(shown)?;
    // What lies on a device is copied back to where it came from.
    for ((_, value), (_, there)) in args.iter().zip(&own) {
        if let (Value::Tensor(tensor), Value::Tensor(there), false) = (value, there, device.is_cpu()) {
            tensor.copy_from(there).unwrap();
        }
    }
    Ok(())
}

/// What a kernel leaves in an array: in lock-step, without optimisation in lock-step, and emulated.
fn everywhere(source: &str, name: &str, args: &Args<'_>, grid: [u32; 3], block: Option<u32>, out: &str) -> [Vec<f64>; 3] {
    let optimised = CompileOptions { block, ..CompileOptions::default() };
    let plain = CompileOptions { level: tessera_compile::OptLevel::O0, ..optimised.clone() };
    // A byte is swapped with the word around it, neighbours that nobody wrote included.
    let bytes = args.iter().any(|(_, value)| matches!(value, Value::Tensor(tensor) if tensor.dtype().bits() == 8));
    let sanitize = tessera_emu::Sanitize { uninitialized: !bytes, ..tessera_emu::Sanitize::ALL };
    let careful = tessera_emu::LaunchOptions { sanitize, ..Default::default() };
    let emulated = Device::emulated(&EmuOptions { launch: careful, ..EmuOptions::default() }).unwrap();
    let ways = [(optimised.clone(), Device::Cpu), (plain, Device::Cpu), (optimised, emulated)];
    ways.map(|(options, device)| {
        let copies: Args<'_> = args
            .iter()
            .map(|(name, value)| match value {
                Value::Tensor(tensor) => (*name, Value::Tensor(tensor.contiguous().unwrap())),
                value => (*name, value.clone()),
            })
            .collect();
        launch(source, name, &copies, grid, &options, &device).unwrap_or_else(|error| panic!("on {device}: {error}"));
        match copies.iter().find(|(name, _)| *name == out) {
            Some((_, Value::Tensor(tensor))) => tensor.to_f64().unwrap(),
            _ => panic!("no array `{out}`"),
        }
    })
}

fn same(results: &[Vec<f64>; 3]) {
    let bits = |values: &Vec<f64>| values.iter().map(|value| value.to_bits()).collect::<Vec<_>>();
    assert_eq!(bits(&results[0]), bits(&results[1]), "optimised and not");
    assert_eq!(bits(&results[0]), bits(&results[2]), "lock-step and emulated");
}

fn near(results: &[Vec<f64>; 3], want: &[f64], relative: f64, absolute: f64) {
    for got in results {
        assert_eq!(got.len(), want.len());
        for (at, (got, want)) in got.iter().zip(want).enumerate() {
            assert!((got - want).abs() <= relative * want.abs() + absolute, "element {at}: {got}, not {want}");
        }
    }
}

fn random(seed: u64, dtype: DType, shape: &[usize]) -> Tensor {
    RandomStream::new(seed).randn(dtype, shape).unwrap()
}

fn text(value: &str) -> Value {
    Value::Str(value.into())
}

#[test]
fn the_vector_seed_is_right() {
    const N: usize = 1000;
    let (x, y) = (random(1, DType::F32, &[N]), random(2, DType::F32, &[N]));
    let (a, b) = (x.to_f64().unwrap(), y.to_f64().unwrap());
    let elementwise = |f: fn(f64, f64) -> f64| -> Vec<f64> { a.iter().zip(&b).map(|(&x, &y)| f(x, y)).collect() };
    let cases: [(&str, bool, usize, Vec<f64>); 7] = [
        ("axpy", true, N, elementwise(|x, y| 2.5 * x + y)),
        ("add", true, N, elementwise(|x, y| x + y)),
        ("mul", true, N, elementwise(|x, y| x * y)),
        ("dot", true, 1, vec![a.iter().zip(&b).map(|(x, y)| x * y).sum()]),
        ("norm", false, 1, vec![a.iter().map(|x| x * x).sum()]),
        ("reduce_sum", false, 1, vec![a.iter().sum()]),
        ("reduce_max", false, 1, vec![a.iter().copied().fold(f64::NEG_INFINITY, f64::max)]),
    ];
    for (operation, binary, size, want) in cases {
        let result = match operation {
            "reduce_max" => Tensor::full(DType::F32, &[size], f64::NEG_INFINITY).unwrap(),
            _ => Tensor::zeros(DType::F32, &[size]).unwrap(),
        };
        let mut args: Args<'_> = vec![("x", (&x).into()), ("result", (&result).into()), ("alpha", Value::Float(2.5))];
        args.push(("operation", text(operation)));
        if binary {
            args.push(("y", (&y).into()));
        }
        let results = everywhere(VECTOR, "vector_operations", &args, [N.div_ceil(128) as u32, 1, 1], None, "result");
        near(&results, &want, 1e-5, 1e-5);
        if size == N || operation == "reduce_max" {
            same(&results);
        }
    }
}

#[test]
fn the_layer_norm_seed_is_right() {
    let (batch, rows, width) = (2, 3, 300);
    let x = random(3, DType::F32, &[batch, rows, width]);
    let (weight, bias) = (random(4, DType::F32, &[width]), random(5, DType::F32, &[width]));
    let output = Tensor::zeros(DType::F32, &[batch, rows, width]).unwrap();
    let args: Args<'_> = vec![
        ("x", (&x).into()),
        ("weight", (&weight).into()),
        ("bias", (&bias).into()),
        ("output", (&output).into()),
        ("eps", Value::Float(1e-5)),
    ];
    let results = everywhere(LAYER_NORM, "layernorm_safe", &args, [batch as u32, rows as u32, 1], None, "output");
    let (x, w, b) = (x.to_f64().unwrap(), weight.to_f64().unwrap(), bias.to_f64().unwrap());
    let mut want = Vec::new();
    for row in x.chunks(width) {
        let mean = row.iter().sum::<f64>() / width as f64;
        let variance = row.iter().map(|x| (x - mean) * (x - mean)).sum::<f64>() / width as f64;
        want.extend((0..width).map(|h| (row[h] - mean) / (variance + 1e-5).sqrt() * w[h] + b[h]));
    }
    near(&results, &want, 1e-4, 1e-5);
}

#[test]
fn the_softmax_seed_is_right() {
    let shape = [1, 2, 5, 200];
    let x = random(6, DType::F32, &shape);
    for causal in [false, true] {
        let output = Tensor::zeros(DType::F32, &shape).unwrap();
        let args: Args<'_> = vec![("x", (&x).into()), ("output", (&output).into()), ("causal_mask", Value::Bool(causal))];
        let results = everywhere(SOFTMAX, "softmax_safe", &args, [1, 2, 5], Some(256), "output");
        let mut want = Vec::new();
        for (number, row) in x.to_f64().unwrap().chunks(shape[3]).enumerate() {
            let seen = if causal { number % shape[2] + 1 } else { shape[3] };
            let most = row[..seen].iter().copied().fold(f64::NEG_INFINITY, f64::max);
            let total: f64 = row[..seen].iter().map(|x| (x - most).exp()).sum();
            want.extend((0..shape[3]).map(|k| if k < seen { (row[k] - most).exp() / total } else { 0.0 }));
        }
        near(&results, &want, 1e-5, 1e-7);
    }
}

#[test]
fn the_bandwidth_seed_is_right_in_every_pattern() {
    const N: usize = 1024;
    for dtype in [DType::F32, DType::I32, DType::BF16] {
        let of = |seed| match dtype {
            DType::I32 => Tensor::arange(DType::I32, &[N]).unwrap(),
            dtype => random(seed, dtype, &[N]),
        };
        let (a, b) = (of(7), of(8));
        for (operation, pattern) in [("copy", "sequential"), ("scale", "sequential"), ("add", "strided_4"), ("triad", "random")] {
            let c = Tensor::zeros(dtype, &[N]).unwrap();
            let scalar = if dtype == DType::I32 { Value::Int(3) } else { Value::Float(1.5) };
            let args: Args<'_> = vec![
                ("a", (&a).into()),
                ("b", (&b).into()),
                ("c", (&c).into()),
                ("scalar", scalar),
                ("operation", text(operation)),
                ("access_pattern", text(pattern)),
            ];
            let results = everywhere(BANDWIDTH, "memory_bandwidth_kernel", &args, [8, 1, 1], None, "c");
            same(&results);
            let (x, y) = (a.to_f64().unwrap(), b.to_f64().unwrap());
            let k = if dtype == DType::I32 { 3.0 } else { 1.5 };
            let touched = |i: usize| pattern != "strided_4" || i.is_multiple_of(4);
            let want: Vec<f64> = (0..N)
                .map(|i| match operation {
                    _ if !touched(i) => 0.0,
                    "copy" => x[i],
                    "scale" => k * x[i],
                    "add" => x[i] + y[i],
                    _ => x[i] + k * y[i],
                })
                .collect();
            let tolerance = if dtype == DType::BF16 { 1e-2 } else { 1e-6 };
            near(&results, &want, tolerance, tolerance);
        }
    }
}

#[test]
fn the_seeds_run_in_their_other_precisions() {
    for dtype in [DType::F16, DType::BF16, DType::F8E4M3] {
        let x = random(9, dtype, &[1, 1, 2, 96]);
        let output = Tensor::zeros(dtype, &[1, 1, 2, 96]).unwrap();
        let args: Args<'_> = vec![("x", (&x).into()), ("output", (&output).into())];
        let results = everywhere(SOFTMAX, "softmax_safe", &args, [1, 1, 2], None, "output");
        let rows = results[0].chunks(96).map(|row| row.iter().sum::<f64>()).collect::<Vec<_>>();
        assert!(rows.iter().all(|sum| (0.5..2.0).contains(sum)), "{dtype}: {rows:?}");
        same(&results);
    }
    let x = random(10, DType::F64, &[100]);
    let result = Tensor::zeros(DType::F64, &[1]).unwrap();
    let args: Args<'_> = vec![("x", (&x).into()), ("result", (&result).into()), ("operation", text("reduce_sum"))];
    let results = everywhere(VECTOR, "vector_operations", &args, [1, 1, 1], None, "result");
    near(&results, &[x.to_f64().unwrap().iter().sum()], 1e-14, 1e-14);
}

/// Control flow, shared memory, warps, atomics, arrays of registers, helpers, and what is evaluated when.
const MIXED: &str = r#"
def collatz(n, most):
    steps = 0
    while n != 1 and steps < most:
        n = n // 2 if n % 2 == 0 else 3 * n + 1
        steps += 1
    return steps

def at_most(x, i, limit):
    return x[i] if i < limit else 0

@tessera.kernel
def steps(x: Tensor["N", int32], y: Tensor["N", int32]):
    i = tile.linear_id()
    if i >= x.shape[0]:
        return
    y[i] = collatz(x[i], 1000)

@tessera.kernel
def search(x: Tensor["N", int32], y: Tensor["M", int32]):
    t = tile.thread_id()
    found = -1
    for j in range(x.shape[0] - 1, -1, -3):
        if x[j] == t:
            continue
        if x[j] % (t + 1) == 0:
            found = j
            break
    y[t] = found

@tessera.kernel
def reverse(x: Tensor["N", int32], y: Tensor["N", int32]):
    t = tile.thread_id()
    n = tile.block_size()
    first = tile.block_id(0) * n
    s = tile.alloc_shared[int32](160)
    for round in range(3):
        s[t] = x[first + t] + round
        tile.barrier()
        y[first + t] += s[n - 1 - t]
        tile.barrier()

@tessera.kernel
def histogram(x: Tensor["N", int32], y: Tensor["M", int32]):
    t = tile.thread_id()
    bins = tile.alloc_shared[int32](8)
    if t < 8:
        bins[t] = 0
    tile.barrier()
    for i in range(tile.linear_id(), x.shape[0], tile.block_size() * tile.num_blocks()):
        tile.atomic_add(bins[x[i] % 8], 1)
    tile.barrier()
    if t < 8:
        tile.atomic_add(y[t], bins[t])
    if t == 9:
        old = tile.atomic_max(y[8], tile.block_id(0))
        tile.atomic_min(y[9], -tile.block_id(0))
        tile.atomic_cas(y[10], 0, 7)

@tessera.kernel
def warps(x: Tensor["N", int32], y: Tensor["N", int32]):
    i = tile.linear_id()
    v = x[i]
    total = tile.warp_reduce_sum(v) + tile.warp_reduce_max(v) - tile.warp_reduce_min(v)
    if tile.warp_id() == 1:
        total = total + tile.shuffle(v, 5)
    total = total + tile.shuffle_xor(v, 3) - tile.shuffle_up(v, 2) + tile.shuffle_down(v, tile.lane_id() % 4)
    y[i] = total

@tessera.kernel
def equals(x: Tensor["N", int32], y: Tensor["N", int32]):
    i = tile.linear_id()
    same = tile.match_any(x[i], bits=3)
    earlier = tile.popcount(same & ((1 << tile.lane_id()) - 1))
    equal = tile.match_any(x[i])
    held = tile.alloc_shared[int32](64)
    tile.store(held[tile.thread_id() ^ 37], i, order="relaxed")
    tile.barrier()
    y[i] = tile.popcount(same) * 10000 + earlier * 100 + tile.popcount(equal) + held[tile.thread_id()] * 1000000

@tessera.kernel
def registers(x: Tensor["N", int32], y: Tensor["N", int32]):
    i = tile.linear_id()
    a = tile.alloc_register[int32](4)
    b = tile.alloc_register[int32](2, 3)
    for k in range(4):
        a[k] = x[i] + k
    for k in range(6):
        b[k // 3, k % 3] = k * x[i]
    total = a[0] - a[3]
    for k in range(i % 4, 4):
        total += a[k] * b[k % 2, 1]
    y[i] = total

@tessera.kernel
def careful(x: Tensor["N", int32], y: Tensor["M", int32]):
    i = tile.linear_id()
    hits = 0
    if i < x.shape[0] and x[i] > 3:
        hits += 1
    if i >= x.shape[0] or x[i] % 2 == 0:
        hits += 2
    hits += at_most(x, i, x.shape[0])
    hits += tile.where(i < x.shape[0], x[i], 100)
    place = y.shape[0] - 2 - i
    y[place] = y[place] + hits
    first = second = tile.atomic_add(y, 32, 1)
    if 0 <= place < 1:
        y[0] += 10
"#;

fn ints(values: impl IntoIterator<Item = i32>) -> Tensor {
    let values: Vec<i32> = values.into_iter().collect();
    Tensor::from_vec(&[values.len()], values).unwrap()
}

fn run_ints(kernel: &str, x: &[i32], y: &[i32], grid: u32, block: u32) -> Vec<i64> {
    let (x, y) = (ints(x.iter().copied()), ints(y.iter().copied()));
    let args: Args<'_> = vec![("x", (&x).into()), ("y", (&y).into())];
    let results = everywhere(MIXED, kernel, &args, [grid, 1, 1], Some(block), "y");
    same(&results);
    results[0].iter().map(|&value| value as i64).collect()
}

#[test]
fn threads_go_their_own_ways() {
    let x: Vec<i32> = (1..=100).collect();
    let collatz = |mut n: i64| {
        let mut steps = 0;
        while n != 1 {
            n = if n % 2 == 0 { n / 2 } else { 3 * n + 1 };
            steps += 1;
        }
        steps
    };
    let want: Vec<i64> = x.iter().map(|&n| collatz(i64::from(n))).collect();
    assert_eq!(run_ints("steps", &x, &[0; 100], 2, 64), want);

    let x: Vec<i32> = (0..50).map(|i| i * 7 % 31).collect();
    let search = |t: i32| {
        let mut places = (0..50).rev().step_by(3);
        places.find(|&j| x[j] != t && x[j] % (t + 1) == 0).map_or(-1, |j| j as i64)
    };
    let want: Vec<i64> = (0..40).map(search).collect();
    assert_eq!(run_ints("search", &x, &[0; 40], 1, 40), want);
}

#[test]
fn threads_share_memory_and_meet() {
    let x: Vec<i32> = (0..300).map(|i| i * i % 97).collect();
    let want: Vec<i64> = (0..300).map(|i| 3 * i64::from(x[i / 100 * 100 + 99 - i % 100]) + 3).collect();
    assert_eq!(run_ints("reverse", &x, &[0; 300], 3, 100), want);

    let mut want = vec![0; 11];
    x.iter().for_each(|x| want[(x % 8) as usize] += 1);
    (want[8], want[9], want[10]) = (1, -1, 7);
    assert_eq!(run_ints("histogram", &x, &[0; 11], 2, 64), want);
}

#[test]
fn warps_combine_and_pass() {
    let x: Vec<i32> = (0..128).map(|i| i * 37 % 101 - 50).collect();
    let value = |lane: usize, warp: usize| i64::from(x[32 * warp + lane]);
    let want: Vec<i64> = (0..128)
        .map(|i| {
            let (warp, lane) = (i / 32, i % 32);
            let all = || (0..32).map(|lane| value(lane, warp));
            let mut total = all().sum::<i64>() + all().max().unwrap() - all().min().unwrap();
            if warp % 2 == 1 {
                total += value(5, warp);
            }
            let (up, down) = (if lane < 2 { lane } else { lane - 2 }, lane + lane % 4);
            total + value(lane ^ 3, warp) - value(up, warp) + value(if down < 32 { down } else { lane }, warp)
        })
        .collect();
    assert_eq!(run_ints("warps", &x, &[0; 128], 2, 64), want);
}

#[test]
fn lanes_find_who_has_the_same() {
    // Warps of 32 lanes: of each value of the lowest three bits, and of each value, so many.
    let x: Vec<i32> = (0..128).map(|i| if i % 5 == 0 { i } else { i * i % 23 - 9 }).collect();
    let want: Vec<i64> = (0..128)
        .map(|i| {
            let warp = i / 32 * 32..i / 32 * 32 + 32;
            let count = |range: std::ops::Range<usize>, mask: i32| range.filter(|&j| (x[j] ^ x[i]) & mask == 0).count() as i64;
            let held = (i as i64 ^ 37) * 1_000_000;
            count(warp.clone(), 7) * 10000 + count(warp.start..i, 7) * 100 + count(warp, -1) + held
        })
        .collect();
    assert_eq!(run_ints("equals", &x, &[0; 128], 2, 64), want);
}

#[test]
fn arrays_of_registers_hold_what_each_thread_put_there() {
    let x: Vec<i32> = (0..64).map(|i| i * 5 - 40).collect();
    let want: Vec<i64> = (0..64)
        .map(|i| {
            let x = i64::from(x[i]);
            let b = |row: i64| (3 * row + 1) * x;
            (i % 4..4).fold(-3, |total, k| total + (x + k as i64) * b(k as i64 % 2))
        })
        .collect();
    assert_eq!(run_ints("registers", &x, &[0; 64], 2, 32), want);
}

#[test]
fn what_a_condition_excludes_is_not_evaluated() {
    let x: Vec<i32> = (0..10).collect();
    let mut want = vec![0i64; 33];
    for i in 0..32i64 {
        let inside = i < 10;
        let hits = i64::from(inside && i > 3) + if !inside || i % 2 == 0 { 2 } else { 0 };
        want[31 - i as usize] = hits + if inside { i } else { 0 } + if inside { i } else { 100 };
    }
    want[0] += 10;
    want[32] = 32;
    assert_eq!(run_ints("careful", &x, &[0; 33], 1, 32), want);
}

#[test]
fn mistakes_are_told_with_their_place() {
    let x = ints(0..64);
    let args: Args<'_> = vec![("x", (&x).into())];
    let fails = |body: &str, block: Option<u32>| {
        let source = format!("@tessera.kernel\ndef k(x: Tensor[\"N\", int32]):\n{body}");
        let options = CompileOptions { block, ..CompileOptions::default() };
        launch(&source, "k", &args, [1, 1, 1], &options, &Device::Cpu).expect_err("a mistake")
    };
    let outside = fails("    x[tile.thread_id()] = 1\n", Some(128));
    assert!(outside.contains("kernel.py:3:5") && outside.contains("outside"), "{outside}");
    let again = "    while True:\n        tile.barrier()\n        if x[tile.thread_id()] > 3:\n            break\n";
    let again = fails(again, Some(64));
    assert!(again.contains("divergent-barrier") && again.contains("kernel.py:4:9"), "{again}");
    let ended = fails("    if tile.thread_id() > 40:\n        return\n    tile.barrier()\n", Some(64));
    assert!(ended.contains("divergent-barrier") && ended.contains("kernel.py:5:5"), "{ended}");
    let lanes = fails("    if tile.lane_id() > 4:\n        x[0] = tile.warp_reduce_sum(1)\n", Some(64));
    assert!(lanes.contains("divergent-barrier") && lanes.contains("kernel.py:4:16"), "{lanes}");
    let part = fails("    x[0] = tile.warp_reduce_sum(1)\n", Some(40));
    assert!(part.contains("whole warps"), "{part}");
    let much = fails("    tile.barrier()\n", Some(2000));
    assert!(much.contains("block-size-clash"), "{much}");
    let endless = fails("    while True:\n        x[tile.thread_id()] = 1\n", Some(64));
    assert!(endless.contains("endless-loop"), "{endless}");
    let shared = fails("    s = tile.alloc_shared[int32](4)\n    x[0] = s[tile.thread_id()]\n", Some(64));
    assert!(shared.contains("index 4") && shared.contains("kernel.py:4:12"), "{shared}");
}

#[test]
fn one_axis_has_one_size() {
    let source = "@tessera.kernel\ndef k(x: Tensor[\"N\", int32], y: Tensor[\"N\", int32]):\n    x[tile.thread_id()] = y[0]\n";
    let (x, y) = (ints(0..64), ints(0..32));
    let args: Args<'_> = vec![("x", (&x).into()), ("y", (&y).into())];
    let error = launch(source, "k", &args, [1, 1, 1], &CompileOptions::default(), &Device::Cpu).expect_err("two sizes");
    assert!(error.contains("`N`") && error.contains("64") && error.contains("32"), "{error}");
}

#[test]
fn the_text_of_a_compiled_kernel_runs_alike() {
    let x: Vec<i32> = (0..128).map(|i| i * 37 % 101 - 50).collect();
    let want = run_ints("warps", &x, &[0; 128], 2, 64);
    let (x, y) = (ints(x), ints([0; 128]));
    let args: Args<'_> = vec![("x", (&x).into()), ("y", (&y).into())];
    let options = CompileOptions { block: Some(64), ..CompileOptions::default() };
    let kernel = Kernel::from_source("kernel.py", MIXED, "warps").unwrap();
    let compiled = kernel.compile(&kernel.argument_types(&args).unwrap(), &options).unwrap();
    let text = tessera_ir::text::print_module(&compiled.module);
    let again = Kernel::from_ir("warps.tir", &text, "warps").map_err(shown).unwrap();
    again.prepare(&args, [2, 1, 1], &CompileOptions::default(), &Device::Cpu).map_err(shown).unwrap().run().unwrap();
    assert_eq!(y.to_f64().unwrap().iter().map(|&value| value as i64).collect::<Vec<_>>(), want);
    let clash = again.prepare(&args, [2, 1, 1], &CompileOptions { block: Some(96), ..options }, &Device::Cpu);
    assert!(shown(clash.expect_err("another number of threads")).contains("64 threads"));
}

const EXAMPLES: &str = include_str!("../../../examples/threads.py");

#[test]
fn the_examples_are_right() {
    let (m, n, k) = (40, 50, 19);
    let (a, b) = (random(11, DType::F32, &[m, k]), random(12, DType::F32, &[k, n]));
    let c = Tensor::zeros(DType::F32, &[m, n]).unwrap();
    let args: Args<'_> = vec![("a", (&a).into()), ("b", (&b).into()), ("c", (&c).into())];
    let results = everywhere(EXAMPLES, "matmul", &args, [2, 2, 1], Some(64), "c");
    same(&results);
    let (x, y) = (a.to_f64().unwrap(), b.to_f64().unwrap());
    let want: Vec<f64> = (0..m * n).map(|at| (0..k).map(|l| x[at / n * k + l] * y[l * n + at % n]).sum()).collect();
    near(&results, &want, 1e-5, 1e-5);
    // The sums are variables: every index of `acc` is known once its loops are walked round by round.
    let kernel = Kernel::from_source("threads.py", EXAMPLES, "matmul").unwrap();
    let compiled = kernel.compile(&kernel.argument_types(&args).unwrap(), &CompileOptions::default()).unwrap();
    assert!(!tessera_ir::text::print_module(&compiled.module).contains("alloc_register"));

    let x = ints((0..1000).map(|i| i * i % 1009));
    let counts = Tensor::zeros(DType::I32, &[256]).unwrap();
    let args: Args<'_> = vec![("x", (&x).into()), ("counts", (&counts).into())];
    let results = everywhere(EXAMPLES, "histogram", &args, [3, 1, 1], None, "counts");
    let mut want = vec![0.0; 256];
    (0..1000).for_each(|i| want[i * i % 1009 % 256] += 1.0);
    assert_eq!(results[0], want);
    same(&results);

    let x = random(13, DType::BF16, &[3, 500]);
    let y = Tensor::zeros(DType::BF16, &[3, 500]).unwrap();
    let args: Args<'_> = vec![("x", (&x).into()), ("y", (&y).into())];
    let results = everywhere(EXAMPLES, "normalise", &args, [3, 1, 1], Some(96), "y");
    let mut want = Vec::new();
    for row in x.to_f64().unwrap().chunks(500) {
        let mean = row.iter().sum::<f64>() / 500.0;
        let variance = row.iter().map(|x| (x - mean) * (x - mean)).sum::<f64>() / 500.0;
        want.extend(row.iter().map(|x| (x - mean) / (variance + 1e-5).sqrt()));
    }
    near(&results, &want, 1e-2, 1e-2);
}

#[test]
fn neighbours_move_in_vectors_and_keep_their_bits() {
    const SOURCE: &str = "
import tessera
from tessera import Tensor, tile

@tessera.kernel
def four(x: Tensor[\"N\", fp32], y: Tensor[\"N\", fp32]):
    i = 4 * tile.linear_id()
    for j in range(4):
        if i + j < x.shape[0]:
            y[i + j] = x[i + j] * 3.0

@tessera.kernel
def product(a: Tensor[\"M\", \"K\", fp32], b: Tensor[\"K\", \"N\", fp32], c: Tensor[\"M\", \"N\", fp32]):
    left = tile.alloc_shared[fp32](32, 8)
    right = tile.alloc_shared[fp32](8, 32)
    acc = tile.alloc_register[fp32](4, 4)
    for i in range(4):
        for j in range(4):
            acc[i, j] = 0.0
    t = tile.thread_id()
    row = 32 * tile.block_id(1)
    column = 32 * tile.block_id(0)
    for k in range(0, a.shape[1], 8):
        for e in range(4):
            left[t // 2, t % 2 * 4 + e] = a[row + t // 2, k + t % 2 * 4 + e]
            right[t // 8, t % 8 * 4 + e] = b[k + t // 8, column + t % 8 * 4 + e]
        tile.barrier()
        for step in range(8):
            for i in range(4):
                for j in range(4):
                    acc[i, j] += left[t // 8 * 4 + i, step] * right[step, t % 8 * 4 + j]
        tile.barrier()
    for i in range(4):
        for j in range(4):
            c[row + t // 8 * 4 + i, column + t % 8 * 4 + j] = acc[i, j]
";
    let random = RandomStream::new(5);
    let x = random.rand(DType::F32, &[500]).unwrap();
    let y = Tensor::ones(DType::F32, &[500]).unwrap();
    let args: Args<'_> = vec![("x", Value::from(&x)), ("y", Value::from(&y))];
    let [a, b, c] = everywhere(SOURCE, "four", &args, [2, 1, 1], Some(64), "y");
    assert!(a == b && b == c);
    let a = random.rand(DType::F32, &[64, 24]).unwrap();
    let b = random.rand(DType::F32, &[24, 64]).unwrap();
    let c = Tensor::ones(DType::F32, &[64, 64]).unwrap();
    let args: Args<'_> = vec![("a", Value::from(&a)), ("b", Value::from(&b)), ("c", Value::from(&c))];
    let [first, plain, emulated] = everywhere(SOURCE, "product", &args, [2, 2, 1], Some(64), "c");
    assert!(first == plain && plain == emulated);

    let device = Device::emulated(&EmuOptions::default()).unwrap();
    let ptx = |name: &str, args: &Args<'_>| {
        let own: Args<'_> = args
            .iter()
            .map(|(name, value)| match value {
                Value::Tensor(tensor) => (*name, Value::Tensor(tensor.to_device(&device).unwrap())),
                value => (*name, value.clone()),
            })
            .collect();
        let kernel = Kernel::from_source("kernel.py", SOURCE, name).unwrap();
        let options = CompileOptions { block: Some(64), ..CompileOptions::default() };
        let launch = kernel.prepare(&own, LaunchGrid::Blocks([2, 2, 1]), &options, &device).unwrap();
        match &launch.on_device().unwrap().kernel().image().code {
            tessera_ir::ImageCode::Ptx(text) => text.clone(),
            tessera_ir::ImageCode::Cubin(_) => String::new(),
        }
    };
    let four = ptx("four", &vec![("x", Value::from(&x)), ("y", Value::from(&y))]);
    assert!(four.contains("ld.global.v4") && four.contains("st.global.v4"), "{four}");
    let product = ptx("product", &args);
    for wide in ["ld.global.v4", "st.shared.v4", "ld.shared.v4", "st.global.v4"] {
        assert!(product.contains(wide), "no {wide}: {product}");
    }
}

#[test]
fn threads_that_share_memory_at_once_are_told_in_lockstep() {
    let launched = |body: &str| {
        let source = format!(
            "import tessera\nfrom tessera import Tensor, tile\n\n@tessera.kernel\ndef k(v: Tensor[\"N\", int32], y: Tensor[\"M\", int32]):\n    t = tile.thread_id()\n{body}"
        );
        let v = Tensor::from_vec(&[256], (0..256).map(|i| i * 7 % 16).collect::<Vec<i32>>()).unwrap();
        let y = Tensor::zeros(DType::I32, &[64]).unwrap();
        let args = vec![("v", Value::Tensor(v)), ("y", Value::Tensor(y.clone()))];
        let options = CompileOptions { block: Some(64), ..CompileOptions::default() };
        launch(&source, "k", &args, [1, 1, 1], &options, &Device::Cpu).map(|()| y.to_f64().unwrap())
    };
    let told = |body: &str, line: u32| {
        let error = launched(body).expect_err("threads race");
        assert!(error.contains("cpu-conflict") && error.contains(&format!("kernel.py:{line}:")), "{error}");
        assert!(error.contains("thread ") && error.contains("another thread"), "{error}");
    };
    // One element with as many values as threads.
    told("    s = tile.alloc_shared[int32](1)\n    s[0] = t\n    tile.barrier()\n    y[t] = s[0]\n", 8);
    // Counts that are read, added to and written, in a loop whose rounds differ between threads; with atomics they are right.
    let count = |add: &str| {
        format!(
            "    s = tile.alloc_shared[int32](16)\n    if t < 16:\n        s[t] = 0\n    tile.barrier()\n    for i in range(t, v.shape[0], tile.block_size()):\n        {add}\n    tile.barrier()\n    if t < 16:\n        y[t] = s[t]\n"
        )
    };
    told(&count("s[v[i]] += 1"), 12);
    let counts = launched(&count("tile.atomic_add(s[v[i]], 1)")).unwrap();
    assert_eq!(counts[..16], [16.0; 16]);
    // Where all come by, the compiler puts the barriers that are missing.
    let turned = launched("    s = tile.alloc_shared[int32](64)\n    s[t] = t\n    y[t] = s[63 - t]\n    s[t] = y[t]\n    y[t] = s[t] + s[63 - t]\n").unwrap();
    assert_eq!(turned, [63.0; 64]);
    // Where some come, it cannot.
    told(
        "    s = tile.alloc_shared[int32](64)\n    s[t] = t\n    tile.barrier()\n    if t < 40:\n        s[t] = 1\n        y[t] = s[39 - t]\n",
        12,
    );
}
