//! Whole arrays in order: keys of all kinds, in blocks that look back over many others, on the CPU and in the emulator with its sanitizers.

use tessera_emu::{EmuOptions, LaunchOptions, Sanitize, Schedule};
use tessera_ops::{sort_with_order, sort_with_values};
use tessera_runtime::{CompileOptions, Device, Kernel, LaunchGrid, Tensor, Value};
use tessera_types::DType;

const KERNELS: &str = include_str!("../kernels/sort.py");
/// Keys of a block where there are few of them.
const TILE: usize = 2048;

fn careful(seed: u64) -> Device {
    let launch = LaunchOptions { sanitize: Sanitize::ALL, schedule: Schedule::Random, seed, ..LaunchOptions::default() };
    Device::emulated(&EmuOptions { launch, ..EmuOptions::default() }).expect("an emulator")
}

/// The key at a place.
type Key = fn(usize) -> i32;

/// Numbers that seem to be at random.
fn mixed(i: usize) -> i32 {
    (i as u64 + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15).rotate_left(29) as i32
}

fn places(keys: &[i32]) -> Vec<i32> {
    let mut order: Vec<i32> = (0..keys.len() as i32).collect();
    order.sort_by_key(|&at| keys[at as usize]);
    order
}

fn on(device: &Device, values: &[i32]) -> Tensor {
    Tensor::from_vec(&[values.len()], values.to_vec()).and_then(|made| made.to_device(device)).expect("memory")
}

fn back(tensor: &Tensor) -> Vec<i32> {
    let host = tensor.to_device(&Device::Cpu).expect("memory");
    host.to_f64().expect("numbers").into_iter().map(|number| number as i32).collect()
}

fn is_sorted(device: &Device, what: &str, keys: &[i32]) {
    let order = places(keys);
    let sorted: Vec<i32> = order.iter().map(|&at| keys[at as usize]).collect();
    let [y, places] = sort_with_order(&on(device, keys)).expect("a result");
    assert!(back(&y) == sorted, "keys, {what}, {} on {device}", keys.len());
    assert!(back(&places) == order, "places, {what}, {} on {device}", keys.len());
}

#[test]
fn keys_of_all_kinds_are_in_order_and_equal_ones_keep_theirs() {
    let kinds: [(&str, Key); 8] = [
        ("at random", mixed),
        ("equal", |_| -7),
        ("of two kinds", |i| if i % 3 == 0 { i32::MIN } else { i32::MAX }),
        ("of few kinds", |i| mixed(i) % 5),
        ("sorted", |i| i as i32 * 1021 - 9_000_000),
        ("reversed", |i| 9_000_000 - i as i32 * 1021),
        ("apart in the greatest digit alone", |i| mixed(i) << 24),
        ("the greatest, behind which nothing stands", |_| i32::MAX),
    ];
    for device in [Device::Cpu, careful(1)] {
        for (what, key) in kinds {
            // Blocks that are full, one that is not, and one key.
            for n in [3 * TILE, 2 * TILE + 77, 1] {
                is_sorted(&device, what, &(0..n).map(key).collect::<Vec<i32>>());
            }
        }
    }
}

#[test]
fn blocks_look_back_over_many_others() {
    let keys: Vec<i32> = (0..100 * TILE + 1).map(mixed).collect();
    for device in [Device::Cpu, Device::emulator().expect("an emulator")] {
        is_sorted(&device, "many blocks", &keys);
    }
    let keys: Vec<i32> = (0..20 * TILE + 1).map(|i| mixed(i) % 300).collect();
    for seed in 2..5 {
        is_sorted(&careful(seed), "any order of threads", &keys);
    }
}

#[test]
fn words_of_a_call_are_not_seen_by_the_next_one() {
    let device = careful(9);
    for n in [5 * TILE, 4 * TILE + 3, 5 * TILE] {
        let (keys, values): (Vec<i32>, Vec<i32>) = (0..n).map(|i| (mixed(i + n), mixed(i) >> 1)).unzip();
        let [_, w] = sort_with_values(&on(&device, &keys), &on(&device, &values)).expect("a result");
        let want: Vec<i32> = places(&keys).into_iter().map(|at| values[at as usize]).collect();
        assert!(back(&w) == want, "{n}");
    }
}

/// The blocks of large arrays, of which a library's call has too many for a test.
#[test]
fn many_keys_of_a_thread_are_in_order() {
    const THREADS: usize = 512;
    const ITEMS: usize = 16;
    let n = 3 * THREADS * ITEMS + 1001;
    let blocks = n.div_ceil(THREADS * ITEMS);
    let keys: Vec<i32> = (0..n).map(|i| mixed(i) % 100_000).collect();
    for device in [Device::Cpu, careful(3)] {
        let zeros = |len: usize| Tensor::zeros(DType::I32, &[len]).and_then(|made| made.to_device(&device)).expect("memory");
        let launch = |name: &str, args: &[(&str, Value)], blocks: usize, threads: usize| {
            let kernel = Kernel::from_source("sort.py", KERNELS, name).expect("a kernel");
            let options = CompileOptions { block: Some(threads as u32), ..CompileOptions::default() };
            let prepared = kernel.prepare(args, LaunchGrid::Blocks([blocks as u32, 1, 1]), &options, &device);
            prepared.expect("it compiles").run().expect("it runs");
        };
        let number = |value: usize| Value::from(value as i64);
        let (digits, words) = (zeros(4 * 256), [zeros(blocks * 256), zeros(blocks * 256)]);
        let mut from = [on(&device, &keys), zeros(n)];
        let counted: [(&str, Value); 6] = [
            ("keys", (&from[0]).into()),
            ("digits", (&digits).into()),
            ("words", (&words[0]).into()),
            ("PASSES", number(4)),
            ("PART", number(4096)),
            ("FLOATS", false.into()),
        ];
        launch("count_digits", &counted, n.div_ceil(4096), 256);
        for pass in 0..4 {
            let to = [zeros(n), zeros(n)];
            let args: [(&str, Value); 12] = [
                ("keys", (&from[0]).into()),
                ("values", (&from[1]).into()),
                ("digits", (&digits).into()),
                ("words", (&words[pass % 2]).into()),
                ("next_words", (&words[1 - pass % 2]).into()),
                ("new_keys", (&to[0]).into()),
                ("new_values", (&to[1]).into()),
                ("PASS", number(pass)),
                ("ITEMS", number(ITEMS)),
                ("VALUES", number(if pass == 0 { 2 } else { 1 })),
                ("FROM_FLOATS", false.into()),
                ("TO_FLOATS", false.into()),
            ];
            launch("move", &args, blocks, THREADS);
            from = to;
        }
        assert!(back(&from[1]) == places(&keys), "on {device}");
        assert!(back(&digits).iter().all(|&count| count == 0), "the next call finds zeros");
    }
}
