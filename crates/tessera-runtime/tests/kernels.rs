//! Kernels from source to results, and everything that a launch refuses.

use tessera_runtime::{
    CompileOptions, Device, Kernel, KernelError, LaunchGrid, LaunchOptions, PreparedLaunch, RandomStream, Tensor, Value,
};
use tessera_types::DType;

const BLOCK: &str = "
import cuda.tile as ct

@ct.kernel
def add(x, y, out, TILE: ct.Constant[int]):
    i = ct.bid(0)
    ct.store(out, (i,), ct.load(x, (i,), (TILE,)) + ct.load(y, (i,), (TILE,)))

@ct.kernel
def scale(x, factor):
    i = ct.bid(0)
    ct.store(x, (i,), ct.load(x, (i,), (16,)) * factor)

@ct.kernel
def softmax(x, out, TN: ct.Constant[int]):
    row = ct.bid(0)
    t = ct.load(x, (row, 0), (1, TN), padding_mode=ct.PaddingMode.NEG_INF)
    e = ct.exp(t - ct.max(t, axis=1, keepdims=True))
    ct.store(out, (row, 0), e / ct.sum(e, axis=1, keepdims=True))
";

fn kernel(name: &str) -> Kernel {
    Kernel::from_source("kernels.py", BLOCK, name).unwrap_or_else(|error| panic!("{error}"))
}

fn prepare(name: &str, args: &[(&str, Value)], grid: impl Into<LaunchGrid>) -> Result<PreparedLaunch, KernelError> {
    kernel(name).prepare(args, grid, &CompileOptions::default(), &Device::Cpu)
}

fn vector(len: usize) -> Tensor {
    Tensor::arange(DType::F32, &[len]).unwrap()
}

fn add_args(x: &Tensor, y: &Tensor, out: &Tensor) -> Vec<(&'static str, Value)> {
    vec![("x", x.into()), ("y", y.into()), ("out", out.into()), ("TILE", Value::Int(32))]
}

/// The one-line form of what a launch is refused for.
fn refusal(name: &str, args: &[(&str, Value)], grid: impl Into<LaunchGrid>) -> String {
    match prepare(name, args, grid) {
        Err(error @ KernelError::Rejected(_)) => error.to_string(),
        Err(other) => panic!("another error: {other}"),
        Ok(_) => panic!("accepted"),
    }
}

#[test]
fn vectors_are_added_with_a_ragged_end() {
    let (x, y, out) = (vector(1000), vector(1000), Tensor::empty(DType::F32, &[1000]).unwrap());
    let launch = prepare("add", &add_args(&x, &y, &out), [32, 1, 1]).unwrap();
    assert_eq!(launch.written().collect::<Vec<_>>(), ["out"]);
    launch.run().unwrap();
    assert_eq!(out.to_f64().unwrap(), (0..1000).map(|i| f64::from(2 * i)).collect::<Vec<_>>());
    assert!(!out.is_poisoned());
}

#[test]
fn softmax_of_rows_is_right_checked_or_not() {
    let x = RandomStream::new(5).randn(DType::F32, &[7, 100]).unwrap();
    for checked in [false, true] {
        let out = Tensor::empty(DType::F32, &[7, 100]).unwrap();
        let args = [("x", (&x).into()), ("out", (&out).into()), ("TN", Value::Int(128))];
        prepare("softmax", &args, [7, 1, 1]).unwrap().run_with(&LaunchOptions { checked, ..LaunchOptions::default() }).unwrap();
        let (input, found) = (x.to_f64().unwrap(), out.to_f64().unwrap());
        for (row, found) in input.chunks(100).zip(found.chunks(100)) {
            let most = row.iter().copied().fold(f64::NEG_INFINITY, f64::max);
            let sum: f64 = row.iter().map(|v| (v - most).exp()).sum();
            for (v, found) in row.iter().zip(found) {
                let want = (v - most).exp() / sum;
                assert!((found - want).abs() <= 1e-6 * want, "{found} {want}");
            }
        }
    }
}

#[test]
fn transposed_and_sliced_arrays_are_read_in_place() {
    let base = RandomStream::new(3).randn(DType::F32, &[100, 14]).unwrap();
    let x = base.slice(1, 0..14, 2).unwrap().transpose(0, 1).unwrap();
    let (out, want) = (Tensor::empty(DType::F32, &[7, 100]).unwrap(), Tensor::empty(DType::F32, &[7, 100]).unwrap());
    let dense = x.contiguous().unwrap();
    for (x, out) in [(&x, &out), (&dense, &want)] {
        let args = [("x", x.into()), ("out", out.into()), ("TN", Value::Int(128))];
        prepare("softmax", &args, [7, 1, 1]).unwrap().run().unwrap();
    }
    assert!(out.same_bits(&want).unwrap());
}

#[test]
fn a_compiled_kernel_is_found_again() {
    let run = |len: usize| {
        let (x, y, out) = (vector(len), vector(len), vector(len));
        prepare("add", &[("x", (&x).into()), ("y", (&y).into()), ("out", (&out).into()), ("TILE", Value::Int(64))], [1, 1, 1])
            .unwrap()
            .is_cached()
    };
    assert!(!run(64));
    assert!(run(64) && run(192));
    let threads: Vec<_> = (0..4).map(|_| std::thread::spawn(move || run(640))).collect();
    assert!(threads.into_iter().all(|thread| thread.join().unwrap()));
}

#[test]
fn scalars_take_their_parameter_s_type() {
    let x = vector(16);
    prepare("scale", &[("x", (&x).into()), ("factor", Value::Float(0.5))], [1, 1, 1]).unwrap().run().unwrap();
    assert_eq!(x.to_f64().unwrap()[15], 7.5);
}

#[test]
fn wrong_arguments_are_refused_with_their_place() {
    let (x, y, out) = (vector(64), vector(64), vector(64));
    let good = add_args(&x, &y, &out);
    let without = |name: &str| good.iter().filter(|(given, _)| *given != name).cloned().collect::<Vec<_>>();
    let with = |name: &'static str, value: Value| {
        let mut args = without(name);
        args.push((name, value));
        args
    };
    assert_eq!(refusal("add", &without("y"), [2, 1, 1]), "kernels.py:5:12: error[missing-argument]: the argument `y` is missing");
    assert!(refusal("add", &with("z", Value::Int(1)), [2, 1, 1]).contains("`add` has no parameter `z`"));
    let mut twice = good.clone();
    twice.push(("x", (&x).into()));
    assert_eq!(refusal("add", &twice, [2, 1, 1]), "kernels.py:5:9: error[argument-twice]: the argument `x` is given twice");
    assert!(refusal("add", &with("TILE", Value::Float(2.5)), [2, 1, 1]).starts_with("kernels.py:5:20: error["));
    assert!(refusal("add", &with("TILE", (&x).into()), [2, 1, 1]).starts_with("kernels.py:5:20: error["));
    let square = Tensor::zeros(DType::F32, &[8, 8]).unwrap();
    assert!(refusal("add", &with("x", (&square).into()), [2, 1, 1]).starts_with("kernels.py:7:"));
    assert!(refusal("add", &good, [1, 65536, 1]).contains("65536 blocks along y, at most 65535"));
    assert!(refusal("add", &good, LaunchGrid::Auto).contains("the grid of `add` cannot be chosen for it"));
}

#[test]
fn what_is_written_shares_no_memory() {
    let memory = vector(96);
    let part = |range| memory.slice(0, range, 1).unwrap();
    let y = vector(64);
    let message = refusal("add", &add_args(&part(0..64), &y, &part(32..96)), [2, 1, 1]);
    assert_eq!(message, "kernels.py:5:15: error[argument-overlap]: `out` and `x` overlap in memory, and the kernel writes `out`");
    // What is only read may be shared, and neighbours do not overlap.
    prepare("add", &add_args(&part(0..32), &part(0..32), &part(32..64)), [1, 1, 1]).unwrap().run().unwrap();
    let repeated = memory.strided(0, &[16], &[0]).unwrap();
    let message = refusal("scale", &[("x", (&repeated).into()), ("factor", Value::Float(1.0))], [1, 1, 1]);
    assert!(message.contains("several elements of `x` share memory"), "{message}");
}

#[test]
fn a_borrowed_argument_is_refused_by_name() {
    let (x, y, out) = (vector(64), vector(64), vector(64));
    let launch = prepare("add", &add_args(&x, &y, &out), [2, 1, 1]).unwrap();
    let borrowed = out.read::<f32>().unwrap();
    assert_eq!(launch.run().unwrap_err().to_string(), "`out`: the tensor's memory is being read elsewhere");
    drop(borrowed);
    launch.run().unwrap();
}

#[test]
fn checked_launches_report_poison_with_its_line() {
    let (x, y, out) = (Tensor::empty(DType::F32, &[64]).unwrap(), vector(64), vector(64));
    let launch = prepare("add", &add_args(&x, &y, &out), [2, 1, 1]).unwrap();
    let error = launch.run_with(&LaunchOptions { checked: true, ..LaunchOptions::default() }).unwrap_err();
    let KernelError::Fault { report, block, .. } = error else { panic!("{error}") };
    assert_eq!(block, Some([0, 0, 0]));
    assert!(report.to_string().starts_with("kernels.py:7:"), "{report}");
}

#[test]
fn a_source_that_is_no_kernel_says_so() {
    let message = |text: &str, name: &str| Kernel::from_source("k.py", text, name).unwrap_err().to_string();
    assert!(message("def f(:\n  pass", "f").starts_with("k.py:1:"));
    assert!(message(BLOCK, "missing").contains("there is no kernel `missing`"));
    assert!(Kernel::from_file("no/such.py", "f").unwrap_err().to_string().starts_with("`no/such.py`: "));
}

const DECLARATIVE: &str = "
import tessera
from tessera import tile

@tessera.kernel
def gemm(A: Tensor[\"M\", \"K\", dtype], B: Tensor[\"K\", \"N\", dtype], C: Tensor[\"M\", \"N\", dtype]):
    a = tile.load(A)
    b = tile.load(B)
    tile.store(C, tile.mma(a, b))
";

fn gemm(shapes: [[usize; 2]; 3], grid: impl Into<LaunchGrid>) -> Result<[Vec<f64>; 3], KernelError> {
    let kernel = Kernel::from_source("gemm.py", DECLARATIVE, "gemm")?;
    let random = |name: &str, shape: &[usize; 2]| RandomStream::named(1, name).randn(DType::F32, shape).unwrap();
    let (a, b) = (random("a", &shapes[0]), random("b", &shapes[1]));
    let c = Tensor::empty(DType::F32, &shapes[2]).unwrap();
    let args = [("A", (&a).into()), ("B", (&b).into()), ("C", (&c).into())];
    kernel.launch(&args, grid)?;
    Ok([a, b, c].map(|tensor| tensor.to_f64().unwrap()))
}

#[test]
fn a_declarative_product_chooses_its_grid() {
    let (m, k, n) = (37, 50, 29);
    let [a, b, c] = gemm([[m, k], [k, n], [m, n]], LaunchGrid::Auto).unwrap_or_else(|error| panic!("{error}"));
    for i in 0..m {
        for j in 0..n {
            let want: f64 = (0..k).map(|p| a[i * k + p] * b[p * n + j]).sum();
            assert!((c[i * n + j] - want).abs() < 1e-4, "{i} {j}");
        }
    }
    let message = gemm([[m, k], [k, n], [m, n]], [7777, 1, 1]).unwrap_err().to_string();
    assert!(message.contains("`gemm` needs a grid of"), "{message}");
}

#[test]
fn one_symbol_is_one_size() {
    let message = gemm([[8, 16], [32, 8], [8, 8]], LaunchGrid::Auto).unwrap_err().to_string();
    assert!(message.contains("`K` is 16 in `A` (axis 1) but 32 in `B` (axis 0)"), "{message}");
}

#[test]
fn a_list_of_arrays_is_a_table() {
    let source = "
import cuda.tile as ct

@ct.kernel
def total(arrays, out):
    t = ct.zeros((16,), ct.float32)
    for i in range(len(arrays)):
        t = t + ct.load(arrays[i], (0,), (16,), padding_mode=ct.PaddingMode.ZERO)
    ct.store(out, (0,), t)
";
    let kernel = Kernel::from_source("total.py", source, "total").unwrap_or_else(|error| panic!("{error}"));
    let out = Tensor::empty(DType::F32, &[16]).unwrap();
    let args = [("arrays", Value::List(vec![vector(16), vector(4), vector(9)])), ("out", (&out).into())];
    kernel.launch(&args, [1, 1, 1]).unwrap_or_else(|error| panic!("{error}"));
    let want = (0..16).map(|i| f64::from(i * (1 + i32::from(i < 4) + i32::from(i < 9))));
    assert_eq!(out.to_f64().unwrap(), want.collect::<Vec<_>>());
    let mixed = Value::List(vec![vector(16), Tensor::zeros(DType::F16, &[4]).unwrap()]);
    let error = kernel.launch(&[("arrays", mixed), ("out", (&out).into())], [1, 1, 1]).unwrap_err().to_string();
    assert!(error.contains("the arrays of the list `arrays` differ: item 0 is `f32` of rank 1, item 1 is `f16`"), "{error}");
}

/// Items of a tuple are arguments by names of their own, in order.
#[test]
fn items_of_a_tuple() {
    let source = "
import cuda.tile as ct

@ct.kernel
def scaled(pair, out):
    ct.store(out, (0,), ct.load(pair[0], (0,), (16,)) * pair[1])
";
    let kernel = Kernel::from_source("scaled.py", source, "scaled").unwrap_or_else(|error| panic!("{error}"));
    let out = Tensor::empty(DType::F32, &[16]).unwrap();
    let (x, scale) = (("pair.0", Value::from(&vector(16))), ("pair.1", Value::Float(0.5)));
    let launch = |args: &[(&str, Value)]| kernel.launch(&[args, &[("out", (&out).into())]].concat(), [1, 1, 1]);
    launch(&[x.clone(), scale.clone()]).unwrap_or_else(|error| panic!("{error}"));
    assert_eq!(out.to_f64().unwrap()[15], 7.5);
    for (args, wanted) in [
        (&[scale.clone(), x.clone()][..], "`pair.1` is not the next item of a tuple `pair`"),
        (&[x.clone(), x.clone()], "the argument `pair.0` is given twice"),
        (&[x.clone(), scale.clone(), ("pair", Value::Int(1))], "the argument `pair` is given twice"),
        (&[("pair", Value::Int(1)), x.clone()], "`pair.0` is not the next item of a tuple `pair`"),
        (&[("pair.a", Value::Int(1))], "`pair.a` is not the next item of a tuple `pair`"),
    ] {
        let error = launch(args).unwrap_err().to_string();
        assert!(error.contains(wanted), "{error}");
    }
}

#[test]
fn an_annotation_names_axes_that_the_array_has() {
    let source = "
import cuda.tile as ct
from typing import Annotated

@ct.kernel
def k(x: Annotated[ct.Array, ct.ArrayAnnotation(static_shape_dims=(-1,))], y: Annotated[ct.Array, ct.ArrayAnnotation(static_stride_dims=(1,))]):
    ct.static_assert(x.shape[-1] == 8)
    ct.store(y, (0, 0), ct.load(x, (0,), (8,)).reshape((1, 8)) + y.strides[1])
";
    let kernel = Kernel::from_source("static.py", source, "k").unwrap_or_else(|error| panic!("{error}"));
    let ask = |y: &Tensor| {
        let x = vector(8);
        kernel.prepare(&[("x", (&x).into()), ("y", y.into())], [1, 1, 1], &CompileOptions::default(), &Device::Cpu)
    };
    let y = Tensor::empty(DType::F32, &[1, 8]).unwrap();
    ask(&y).unwrap().run().unwrap();
    assert_eq!(y.to_f64().unwrap()[7], 8.0);
    let refused = ask(&vector(8)).unwrap_err().to_string();
    assert_eq!(refused, "static.py:6:76: error[argument-rank]: `static_stride_dims` names axis 1, but `y` has 1 axes");
}

/// A block that waits for another's flag by acquire reads what was written before the release: nothing is reported, and it is there.
#[test]
fn a_release_and_an_acquire_order_two_blocks() {
    let text = "
import cuda.tile as ct

@ct.kernel
def hand_over(data, flag, out):
    if ct.bid(0) == 0:
        ct.store(data, (0,), ct.full((16,), 7.0, dtype=ct.float32))
        one = ct.full((1,), 1, dtype=ct.int32)
        ct.store(flag, (0,), one, memory_order=ct.MemoryOrder.RELEASE, memory_scope=ct.MemoryScope.DEVICE)
    else:
        seen = ct.load(flag, (0,), (), memory_order=ct.MemoryOrder.ACQUIRE, memory_scope=ct.MemoryScope.DEVICE)
        while seen == 0:
            seen = ct.load(flag, (0,), (), memory_order=ct.MemoryOrder.ACQUIRE, memory_scope=ct.MemoryScope.DEVICE)
        ct.store(out, (0,), ct.load(data, (0,), (16,)))
";
    let kernel = Kernel::from_source("flag.py", text, "hand_over").unwrap();
    for checked in [false, true] {
        let (data, out) = (Tensor::zeros(DType::F32, &[16]).unwrap(), Tensor::zeros(DType::F32, &[16]).unwrap());
        let flag = Tensor::zeros(DType::I32, &[1]).unwrap();
        let args = [("data", Value::from(&data)), ("flag", Value::from(&flag)), ("out", Value::from(&out))];
        let launch = kernel.prepare(&args, [2, 1, 1], &CompileOptions::default(), &Device::Cpu).unwrap();
        launch.run_with(&LaunchOptions { checked, ..LaunchOptions::default() }).unwrap_or_else(|error| panic!("{error}"));
        assert_eq!(out.to_f64().unwrap(), [7.0; 16]);
    }
}
