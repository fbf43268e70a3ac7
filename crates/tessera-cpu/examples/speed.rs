//! Rates of the executor on one thread, on programs written as IR text: `cargo run --release -p tessera-cpu --example speed`.

#![allow(unsafe_code, reason = "launches take raw memory")]

use std::time::Instant;

use tessera_cpu::{Arg, Program, RunOptions};
use tessera_ir::text::parse_module;
use tessera_types::TimeLimit;

/// Pages of memory aligned to a cache line.
struct Array(Vec<[u64; 8]>);

impl Array {
    fn new(bytes: usize) -> Array {
        let words = (0..bytes.div_ceil(64)).map(|i| [0x3c00_3c00_3c00_3c00 + (i as u64 % 977) * 0x0001_0001; 8]);
        Array(words.collect())
    }

    fn arg(&mut self) -> Arg {
        Arg::Pointer { base: self.0.as_mut_ptr().cast(), bytes: self.0.len() * 64 }
    }
}

/// Processor seconds of this thread, where the system tells; else the clock's.
fn now(start: Instant) -> f64 {
    let used = std::fs::read_to_string("/proc/thread-self/schedstat").ok();
    let nanoseconds = used.and_then(|text| text.split_whitespace().next()?.parse::<f64>().ok());
    nanoseconds.map_or_else(|| start.elapsed().as_secs_f64(), |used| used / 1e9)
}

/// Mean seconds of a run on one thread: what other programs do to the machine matters less. The system's count is coarse, so that
/// a run is repeated for most of a second.
fn time(mut work: impl FnMut()) -> f64 {
    work();
    let clock = Instant::now();
    let start = now(clock);
    let mut runs = 0;
    while now(clock) - start < 0.6 {
        work();
        runs += 1;
    }
    (now(clock) - start) / f64::from(runs)
}

const ONE: RunOptions<'static> = RunOptions {
    checked: false,
    threads: Some(1),
    allocations: &[],
    uninitialised: &[],
    written: None,
    output: None,
    limit: TimeLimit::NONE,
};

fn prepare(text: &str) -> Program {
    let module = parse_module("speed.tir", text).unwrap_or_else(|(module, d)| panic!("{}", d.render(&module.sources, false)));
    let program = Program::prepare(&module, &module.funcs[0]).unwrap_or_else(|d| panic!("{}", d.render(&module.sources, false)));
    for note in program.notes() {
        println!("    {note}");
    }
    program
}

fn view(name: &str, elem: &str, shape: [usize; 2], tile: [usize; 2], padding: &str) -> String {
    let tensor = format!("tensor_view<{}x{}x{elem}, strides=[{},1]>", shape[0], shape[1], shape[1]);
    format!(
        "  %{name}v = make_tensor_view %{name}, [], [] : {tensor}\n  %{name}p = make_partition_view %{name}v : partition_view<tile=({}x{}){padding}, {tensor}>\n",
        tile[0], tile[1]
    )
}

fn matmul(n: usize, elem: &str, acc: &str, tile: [usize; 3]) {
    let [tm, tn, tk] = tile;
    let op = if acc == "i32" { "mmai" } else { "mmaf" };
    let zero = if acc == "i32" { "i32(0)" } else { "f32(0.0)" };
    let mut s = format!("schedule @mm(%a: tile<ptr<{elem}>>, %b: tile<ptr<{elem}>>, %c: tile<ptr<{acc}>>) {{\n");
    s += "  %i = get_tile_block_id {axis=x} : tile<i32>\n  %j = get_tile_block_id {axis=y} : tile<i32>\n";
    s += &view("a", elem, [n, n], [tm, tk], ", padding=zero");
    s += &view("b", elem, [n, n], [tk, tn], ", padding=zero");
    s += &view("c", acc, [n, n], [tm, tn], "");
    s += &format!(
        "  %zero = constant {{value={zero}}} : tile<{tm}x{tn}x{acc}>\n  %lo = constant {{value=i32(0)}} : tile<i32>\n  %hi = constant {{value=i32({})}} : tile<i32>\n  %one = constant {{value=i32(1)}} : tile<i32>\n",
        n / tk
    );
    s += &format!(
        "  %acc = for %lo, %hi, %one, [%zero] : tile<{tm}x{tn}x{acc}> (%q: tile<i32>, %s: tile<{tm}x{tn}x{acc}>) {{\n    %x, %xt = load_view_tko %ap, [%i, %q] : tile<{tm}x{tk}x{elem}>, token\n    %y, %yt = load_view_tko %bp, [%q, %j] : tile<{tk}x{tn}x{elem}>, token\n    %d = {op} %x, %y, %s : tile<{tm}x{tn}x{acc}>\n    continue [%d]\n  }}\n  %done = store_view_tko %acc, %cp, [%i, %j] : token\n  return\n}}\n"
    );
    let program = prepare(&s);
    let (mut a, mut b, mut c) = (Array::new(n * n * 4), Array::new(n * n * 4), Array::new(n * n * 4));
    let args = [a.arg(), b.arg(), c.arg()];
    let grid = [n.div_ceil(tm) as u32, n.div_ceil(tn) as u32, 1];
    // SAFETY: the arrays outlive the launches.
    let seconds = time(|| unsafe { program.run(grid, &args, &ONE) }.unwrap());
    println!("{elem} product {n}, tiles {tm}x{tn}x{tk}: {:.1} Gop/s", 2.0 * (n as f64).powi(3) / seconds / 1e9);
}

const REDUCE_MAX: &str = "{dim=1, identities=[f32(-inf)]} : tile<1xf32> (%e: tile<f32>, %a: tile<f32>) {
    %h = maxf %e, %a : tile<f32>
    yield [%h]
  }";

fn reduce_sum(result: &str, source: &str) -> String {
    format!(
        "  %{result} = reduce [%{source}] {{dim=1, identities=[f32(0.0)]}} : tile<1xf32> (%{result}e: tile<f32>, %{result}a: tile<f32>) {{\n    %{result}h = addf %{result}e, %{result}a : tile<f32>\n    yield [%{result}h]\n  }}\n"
    )
}

fn spread(result: &str, source: &str, n: usize) -> String {
    format!("  %{result}1 = reshape %{source} : tile<1x1xf32>\n  %{result} = broadcast %{result}1 : tile<1x{n}xf32>\n")
}

fn rows(name: &str, n: usize, passes: f64, body: &str) {
    let mut s = "schedule @rows(%x: tile<ptr<f32>>, %y: tile<ptr<f32>>) {\n  %i = get_tile_block_id {axis=x} : tile<i32>\n  %z = constant {value=i32(0)} : tile<i32>\n".to_string();
    s += &view("x", "f32", [n, n], [1, n], "");
    s += &view("y", "f32", [n, n], [1, n], "");
    s += &format!("  %t, %tt = load_view_tko %xp, [%i, %z] : tile<1x{n}xf32>, token\n");
    s += body;
    s += "  %w = store_view_tko %r, %yp, [%i, %z] : token\n  return\n}\n";
    let program = prepare(&s);
    let (mut x, mut y) = (Array::new(n * n * 4), Array::new(n * n * 4));
    let args = [x.arg(), y.arg()];
    // SAFETY: the arrays outlive the launches.
    let seconds = time(|| unsafe { program.run([n as u32, 1, 1], &args, &ONE) }.unwrap());
    println!("{name} {n}x{n}: {:.1} GB/s", passes * 4.0 * (n * n) as f64 / seconds / 1e9);
}

fn vectors(name: &str, arrays: usize, result: &str, body: &str) {
    let (n, tile) = (1 << 25, 8192);
    let mut s = "schedule @v(%a: tile<ptr<f32>>, %b: tile<ptr<f32>>, %c: tile<ptr<f32>>) {\n  %i = get_tile_block_id {axis=x} : tile<i32>\n".to_string();
    for array in ["a", "b", "c"] {
        let tensor = format!("tensor_view<{n}xf32, strides=[1]>");
        s += &format!(
            "  %{array}v = make_tensor_view %{array}, [], [] : {tensor}\n  %{array}p = make_partition_view %{array}v : partition_view<tile=({tile}), {tensor}>\n"
        );
    }
    s += &format!(
        "  %x, %xt = load_view_tko %ap, [%i] : tile<{tile}xf32>, token\n  %y, %yt = load_view_tko %bp, [%i] : tile<{tile}xf32>, token\n"
    );
    s += body;
    s += &format!("  %w = store_view_tko {result}, %cp, [%i] : token\n  return\n}}\n");
    let program = prepare(&s);
    let (mut a, mut b, mut c) = (Array::new(n * 4), Array::new(n * 4), Array::new(n * 4));
    let args = [a.arg(), b.arg(), c.arg()];
    // SAFETY: the arrays outlive the launches.
    let seconds = time(|| unsafe { program.run([(n / tile) as u32, 1, 1], &args, &ONE) }.unwrap());
    println!("{name}: {:.1} GB/s", arrays as f64 * 4.0 * n as f64 / seconds / 1e9);
}

fn main() {
    let n = 1 << 25;
    let (a, mut c) = (vec![1.0_f32; n], vec![0.0_f32; n]);
    let seconds = time(|| std::hint::black_box(&mut c).copy_from_slice(std::hint::black_box(&a)));
    println!("memcpy: {:.1} GB/s", 8.0 * n as f64 / seconds / 1e9);
    drop((a, c));
    vectors("copy", 2, "%x", "");
    vectors(
        "triad",
        3,
        "%r",
        "  %k = constant {value=f32(3.0)} : tile<8192xf32>\n  %m = mulf %k, %y : tile<8192xf32>\n  %r = addf %x, %m : tile<8192xf32>\n",
    );
    let n = 4096;
    let softmax = format!("  %m = reduce [%t] {REDUCE_MAX}\n")
        + &spread("mb", "m", n)
        + &format!("  %d = subf %t, %mb : tile<1x{n}xf32>\n  %p = exp %d : tile<1x{n}xf32>\n")
        + &reduce_sum("l", "p")
        + &spread("lb", "l", n)
        + &format!("  %r = divf %p, %lb : tile<1x{n}xf32>\n");
    rows("softmax", n, 2.0, &softmax);
    let norm = reduce_sum("s", "t")
        + &format!("  %c = constant {{value=f32({})}} : tile<1xf32>\n  %mean = mulf %s, %c : tile<1xf32>\n", 1.0 / n as f64)
        + &spread("mb", "mean", n)
        + &format!("  %d = subf %t, %mb : tile<1x{n}xf32>\n  %q = mulf %d, %d : tile<1x{n}xf32>\n")
        + &reduce_sum("v", "q")
        + "  %var = mulf %v, %c : tile<1xf32>\n  %rs = rsqrt %var : tile<1xf32>\n"
        + &spread("rb", "rs", n)
        + &format!("  %r = mulf %d, %rb : tile<1x{n}xf32>\n");
    rows("layer norm", n, 2.0, &norm);
    if std::env::args().count() > 1 {
        for t in [128, 256, 512, 1024] {
            matmul(1024, "f32", "f32", [t, t, 32]);
        }
        return;
    }
    for n in [1024, 2048] {
        matmul(n, "f32", "f32", [128, 128, 32]);
        matmul(n, "bf16", "f32", [128, 128, 32]);
        matmul(n, "f16", "f32", [128, 128, 32]);
        matmul(n, "i8", "i32", [128, 128, 64]);
    }
}
