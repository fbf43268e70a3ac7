//! Arrays without elements: every argument form, style and device takes them, and a grid without blocks is a launch of nothing.

use tessera_emu::{EmuOptions, Sanitize};
use tessera_runtime::{CompileOptions, Device, Kernel, LaunchGrid, LaunchOptions, Tensor, Value, npy};
use tessera_types::DType;

const SOURCE: &str = "
import cuda.tile as ct
import tessera
from tessera import Tensor, tile

@ct.kernel
def add(x, y, out):
    i = ct.bid(0)
    ct.store(out, (i,), ct.load(x, (i,), (16,)) + ct.load(y, (i,), (16,)))

@ct.kernel
def softmax(x, y):
    v = ct.load(x, (ct.bid(0), 0), (1, 128), padding_mode=ct.PaddingMode.NEG_INF)
    e = ct.exp(v - ct.max(v, axis=1, keepdims=True))
    ct.store(y, (ct.bid(0), 0), e / ct.sum(e, axis=1, keepdims=True))

@ct.kernel
def gemm(a, b, c):
    i = ct.bid(0)
    acc = ct.zeros((64, 64), ct.float32)
    for k in range(ct.cdiv(a.shape[1], 32)):
        x = ct.load(a, (i, k), (64, 32), padding_mode=ct.PaddingMode.ZERO)
        acc = ct.mma(x, ct.load(b, (k, 0), (32, 64), padding_mode=ct.PaddingMode.ZERO), acc)
    ct.store(c, (i, 0), (acc + 2).astype(c.dtype))

@ct.kernel
def padded(x, y):
    ct.store(y, (0, 0), ct.load(x, (0, 0), (64, 64), padding_mode=ct.PaddingMode.ZERO))

@ct.kernel
def gather(x, out):
    i = ct.arange(8, dtype=ct.int32)
    ct.scatter(out, i, ct.gather(x, i, padding_value=5))

@ct.kernel
def hist(x, out):
    ct.atomic_add(out, ct.gather(x, ct.arange(8, dtype=ct.int32)), 1)

@ct.kernel
def lists(xs, out):
    s = ct.zeros((8,), ct.float32)
    for k in range(len(xs)):
        s = s + ct.load(xs[k], (0,), (8,), padding_mode=ct.PaddingMode.ZERO)
    ct.store(out, (0,), s)

@ct.kernel
def sizes(x, out):
    ct.store(out, (0,), ct.full((1,), 10 * x.shape[0] + ct.num_tiles(x, 0, (16,)), dtype=ct.int32))

@tessera.kernel
def whole(a: Tensor[\"M\", \"K\", fp32], b: Tensor[\"K\", \"N\", fp32], c: Tensor[\"M\", \"N\", fp32]):
    tile.store(c, tile.mma(tile.load(a), tile.load(b)))

@tessera.kernel
def threads(x: Tensor[\"N\", fp32], y: Tensor[\"N\", fp32]):
    for i in range(tile.linear_id(), x.shape[0], tile.block_size() * tile.num_blocks()):
        y[i] = x[i] + 1.0
";

/// A launch: the kernel, its arguments, the output's name and what it holds.
struct Case {
    kernel: &'static str,
    arrays: Vec<(&'static str, DType, Vec<usize>)>,
    grid: LaunchGrid,
    want: f64,
}

fn case(kernel: &'static str, arrays: &[(&'static str, DType, &[usize])], grid: impl Into<LaunchGrid>, want: f64) -> Case {
    let arrays = arrays.iter().map(|(name, dtype, shape)| (*name, *dtype, shape.to_vec())).collect();
    Case { kernel, arrays, grid: grid.into(), want }
}

fn cases() -> Vec<Case> {
    use DType::{F16, F32, I32};
    let one = [1, 1, 1];
    vec![
        case("add", &[("x", F32, &[0]), ("y", F32, &[0]), ("out", F32, &[0])], one, 0.0),
        case("add", &[("x", F32, &[0]), ("y", F32, &[0]), ("out", F32, &[0])], [0, 1, 1], 0.0),
        case("add", &[("x", F32, &[9]), ("y", F32, &[9]), ("out", F32, &[9])], [0, 1, 1], 1.0),
        case("softmax", &[("x", F32, &[0, 128]), ("y", F32, &[0, 128])], [0, 1, 1], 0.0),
        case("softmax", &[("x", F32, &[0, 100]), ("y", F32, &[0, 100])], one, 0.0),
        case("softmax", &[("x", F32, &[4, 0]), ("y", F32, &[4, 0])], [4, 1, 1], 0.0),
        case("gemm", &[("a", F16, &[64, 0]), ("b", F16, &[0, 64]), ("c", F16, &[64, 64])], one, 2.0),
        case("gemm", &[("a", F16, &[0, 64]), ("b", F16, &[64, 64]), ("c", F16, &[0, 64])], one, 0.0),
        case("gemm", &[("a", F16, &[64, 64]), ("b", F16, &[64, 0]), ("c", F16, &[64, 0])], one, 0.0),
        case("gemm", &[("a", F16, &[0, 64]), ("b", F16, &[64, 64]), ("c", F16, &[64, 64])], one, 2.0),
        case("padded", &[("x", F16, &[64, 0]), ("y", F16, &[64, 64])], one, 0.0),
        case("padded", &[("x", F32, &[0, 64]), ("y", F32, &[64, 64])], one, 0.0),
        case("gather", &[("x", F32, &[0]), ("out", F32, &[8])], one, 5.0),
        case("gather", &[("x", F32, &[8]), ("out", F32, &[0])], one, 0.0),
        case("hist", &[("x", I32, &[0]), ("out", I32, &[0])], one, 0.0),
        case("sizes", &[("x", F32, &[0]), ("out", I32, &[1])], one, 0.0),
        case("whole", &[("a", F32, &[0, 8]), ("b", F32, &[8, 8]), ("c", F32, &[0, 8])], LaunchGrid::Auto, 0.0),
        case("whole", &[("a", F32, &[8, 0]), ("b", F32, &[0, 8]), ("c", F32, &[8, 8])], LaunchGrid::Auto, 0.0),
        case("whole", &[("a", F32, &[8, 8]), ("b", F32, &[8, 0]), ("c", F32, &[8, 0])], LaunchGrid::Auto, 0.0),
        case("threads", &[("x", F32, &[0]), ("y", F32, &[0])], one, 0.0),
        case("threads", &[("x", F32, &[0]), ("y", F32, &[0])], [0, 1, 1], 0.0),
    ]
}

impl Case {
    /// Runs on a device, unoptimised and optimised: the output's elements are all alike.
    fn check(&self, device: &Device, options: &LaunchOptions) {
        let kernel = Kernel::from_source("empty.py", SOURCE, self.kernel).unwrap();
        let made = |(name, dtype, shape): &(&'static str, DType, Vec<usize>)| {
            let is_output = *name == self.arrays.last().expect("an output").0;
            let tensor = if is_output { Tensor::ones(*dtype, shape) } else { Tensor::zeros(*dtype, shape) };
            (*name, tensor.and_then(|tensor| tensor.to_device(device)).unwrap())
        };
        let arrays: Vec<(&str, Tensor)> = self.arrays.iter().map(made).collect();
        let args: Vec<(&str, Value)> = arrays.iter().map(|(name, tensor)| (*name, Value::from(tensor))).collect();
        let block = (self.kernel == "threads").then_some(64);
        for level in ["O0", "O3"] {
            let compile = CompileOptions { block, level: level.parse().unwrap(), ..CompileOptions::default() };
            let what = format!("{} {:?} at {level} on {device}", self.kernel, self.arrays);
            let launch = kernel.prepare(&args, self.grid, &compile, device).unwrap_or_else(|error| panic!("{what}: {error}"));
            launch.run_with(options).unwrap_or_else(|error| panic!("{what}: {error}"));
            let out = arrays.last().expect("an output").1.to_f64().unwrap();
            assert!(out.iter().all(|&x| x == self.want), "{what}: {out:?}");
        }
    }
}

#[test]
fn on_the_cpu() {
    for case in cases() {
        for checked in [false, true] {
            case.check(&Device::Cpu, &LaunchOptions { checked, ..LaunchOptions::default() });
        }
    }
}

#[test]
fn on_the_emulator() {
    for name in ["h200", "a100"] {
        for sanitize in [Sanitize::NONE, Sanitize::ALL] {
            let mut options = EmuOptions { device: name.to_owned(), ..EmuOptions::default() };
            options.launch.sanitize = sanitize;
            let device = Device::emulated(&options).unwrap();
            cases().iter().for_each(|case| case.check(&device, &LaunchOptions::default()));
        }
    }
}

#[test]
fn lists_of_them() {
    let kernel = Kernel::from_source("empty.py", SOURCE, "lists").unwrap();
    for device in [Device::Cpu, Device::emulator().unwrap()] {
        let there = |shape: usize| Tensor::ones(DType::F32, &[shape]).unwrap().to_device(&device).unwrap();
        let out = there(8);
        let args = [("xs", Value::List(vec![there(0), there(4), there(0)])), ("out", Value::from(&out))];
        kernel.prepare(&args, [1, 1, 1], &CompileOptions::default(), &device).unwrap().run().unwrap();
        assert_eq!(out.to_f64().unwrap(), [1.0, 1.0, 1.0, 1.0, 0.0, 0.0, 0.0, 0.0]);
    }
}

#[test]
fn in_files() {
    let folder = tempfile::tempdir().unwrap();
    for shape in [&[0][..], &[0, 128], &[128, 0], &[2, 0, 3]] {
        for dtype in [DType::F32, DType::F16, DType::I8] {
            let path = folder.path().join("x.npy");
            npy::write(&path, &Tensor::zeros(dtype, shape).unwrap()).unwrap();
            let back = npy::read(&path).unwrap();
            assert_eq!((back.shape(), back.dtype()), (shape, dtype));
        }
    }
}

/// Views without elements, whose places lie nowhere.
#[test]
fn copied_from_view_to_view() {
    for (shape, axis) in [(&[4, 0][..], 0), (&[0, 6], 1), (&[0, 6], 0), (&[3, 0, 5], 2)] {
        for dtype in [DType::F32, DType::F64, DType::F4E2M1] {
            let (from, to) = (Tensor::zeros(dtype, shape).unwrap(), Tensor::zeros(dtype, shape).unwrap());
            let extent = shape[axis];
            for range in [0..extent / 2, extent / 2..extent, extent..extent] {
                let part = |tensor: &Tensor| tensor.slice(axis, range.clone(), 1).unwrap();
                part(&to).copy_from(&part(&from)).unwrap();
                assert!(part(&from).contiguous().unwrap().is_empty());
                part(&to).copy_from(&part(&from).contiguous().unwrap()).unwrap();
            }
        }
    }
}
