//! Launches that are prepared once and queued with other arrays and numbers.

use std::sync::Arc;

use tessera_emu::EmuOptions;
use tessera_runtime::argspec::parse_type;
use tessera_runtime::{
    Argument, Bundle, CompileOptions, Constant, Device, DeviceKernel, DriverDevice, Kernel, LaunchGrid, Prepared, Tensor,
    module_cache,
};
use tessera_types::DType;

const SOURCE: &str = "
import cuda.tile as ct
import tessera
from tessera import fp32, tile

@ct.kernel
def axpy(x, y, out, alpha, TILE: ct.Constant[int]):
    i = ct.bid(0)
    ct.store(out, (i,), ct.load(x, (i,), (TILE,)) * alpha + ct.load(y, (i,), (TILE,)))

@ct.kernel
def total(xs, out, TILE: ct.Constant[int]):
    sum = ct.full((TILE,), 0, dtype=ct.float32)
    for i in range(len(xs)):
        sum = sum + ct.load(xs[i], (0,), (TILE,))
    ct.store(out, (0,), sum)

@tessera.kernel
def product(A: tessera.Tensor[\"M\", \"K\", dtype], B: tessera.Tensor[\"K\", \"N\", dtype], C: tessera.Tensor[\"M\", \"N\", dtype]):
    tile.store(C, tile.mma(tile.load(A), tile.load(B), accum=fp32))
";

fn emulated() -> DriverDevice {
    DriverDevice::open(Arc::new(tessera_emu::driver(&EmuOptions::default()).unwrap()), 0).unwrap()
}

type Args<'a> = Vec<(&'a str, Argument<Tensor>)>;

/// A kernel out of a bundle, prepared on a device.
fn prepared(device: &DriverDevice, kernel: &str, types: &[&str], args: &Args<'_>, grid: LaunchGrid) -> Prepared<Tensor> {
    let mut sources = Default::default();
    let types: Vec<_> = types.iter().map(|text| parse_type(&mut sources, text).unwrap()).map(|one| (one.name, one.ty)).collect();
    let source = Kernel::from_source("kernels.py", SOURCE, kernel).unwrap();
    let packed =
        source.ahead(&types, &CompileOptions::default(), "sm_90a".parse().unwrap()).unwrap_or_else(|error| panic!("{error}"));
    let bundle = Bundle::new(vec![packed.variant]).unwrap();
    let chosen = bundle.choose(device, kernel, args, grid).unwrap_or_else(|error| panic!("{error}"));
    let loaded = DeviceKernel::load(device, Arc::new(chosen.image(device)), module_cache()).unwrap();
    chosen.prepare(loaded).unwrap()
}

fn there(device: &DriverDevice, tensor: Tensor) -> Tensor {
    tensor.to_device(&Device::Driver(device.clone())).unwrap()
}

fn filled(device: &DriverDevice, dtype: DType, shape: &[usize], value: f64) -> Tensor {
    there(device, Tensor::full(dtype, shape, value).unwrap())
}

fn number(value: f64) -> Argument<Tensor> {
    Argument::Constant(Constant::Float(value))
}

fn array(tensor: &Tensor) -> Argument<Tensor> {
    Argument::Array(tensor.clone())
}

/// `out = alpha * x + y` for arrays of ones.
fn axpy(device: &DriverDevice) -> (Prepared<Tensor>, Tensor) {
    let of = |value| filled(device, DType::F32, &[96], value);
    let out = of(0.0);
    let args = vec![("x", array(&of(1.0))), ("y", array(&of(1.0))), ("out", array(&out)), ("alpha", number(2.0))];
    let types = ["x=f32[?]", "y=f32[?]", "out=f32[?]", "alpha=f32", "TILE=32"];
    (prepared(device, "axpy", &types, &args, LaunchGrid::Blocks([3, 1, 1])), out)
}

#[test]
fn arrays_and_numbers_are_those_of_each_launch() {
    let device = emulated();
    let (launch, out) = axpy(&device);
    let stream = device.stream().handle();
    let other = filled(&device, DType::F32, &[96], 10.0);
    let elsewhere = filled(&device, DType::F32, &[96], 0.0);
    launch.enqueue(stream, &[]).unwrap();
    assert_eq!(out.to_f64().unwrap(), [3.0; 96]);
    launch.enqueue(stream, &[("alpha", number(0.5)), ("x", array(&other)), ("out", array(&elsewhere))]).unwrap();
    assert_eq!(elsewhere.to_f64().unwrap(), [6.0; 96]);
    assert_eq!(out.to_f64().unwrap(), [3.0; 96]);
    // What a launch changed is nothing to the next.
    launch.enqueue(stream, &[("y", array(&other))]).unwrap();
    assert_eq!(out.to_f64().unwrap(), [12.0; 96]);
}

#[test]
fn a_tensor_map_is_over_the_array_of_the_launch() {
    let device = emulated();
    let of = |shape: &[usize], value| filled(&device, DType::BF16, shape, value);
    let (a, b, c) = (of(&[128, 64], 1.0), of(&[64, 128], 1.0), of(&[128, 128], 0.0));
    let args = vec![("A", array(&a)), ("B", array(&b)), ("C", array(&c))];
    let launch = prepared(&device, "product", &["A=bf16[?,?]", "B=bf16[?,?]", "C=bf16[?,?]"], &args, LaunchGrid::Auto);
    let maps =
        launch.launch().kernel().image().hidden.iter().filter(|hidden| matches!(hidden, tessera_ir::HiddenParam::TensorMap(_)));
    assert!(maps.count() > 0, "the product copies by the engine");
    launch.enqueue(device.stream().handle(), &[("B", array(&of(&[64, 128], 0.5)))]).unwrap();
    assert_eq!(c.to_f64().unwrap(), vec![32.0; 128 * 128]);
    launch.enqueue(device.stream().handle(), &[]).unwrap();
    assert_eq!(c.to_f64().unwrap(), vec![64.0; 128 * 128]);
}

#[test]
fn a_graph_has_what_it_recorded() {
    let device = emulated();
    let (launch, out) = axpy(&device);
    let stream = device.context().stream().unwrap();
    let second = filled(&device, DType::F32, &[96], 0.0);
    let graph = stream.record(|| {
        launch.enqueue(stream.handle(), &[("alpha", number(4.0))]).expect("recorded");
        launch.enqueue(stream.handle(), &[("x", array(&out)), ("out", array(&second))]).expect("recorded");
        Ok(())
    });
    let graph = graph.unwrap();
    assert_eq!(second.to_f64().unwrap(), [0.0; 96]);
    launch.enqueue(stream.handle(), &[("alpha", number(0.0))]).unwrap();
    graph.launch(&stream).unwrap();
    stream.synchronize().unwrap();
    // 4 * 1 + 1, then 2 * 5 + 1.
    assert_eq!((out.to_f64().unwrap(), second.to_f64().unwrap()), (vec![5.0; 96], vec![11.0; 96]));
}

#[test]
fn what_does_not_fit_is_refused_and_nothing_runs() {
    let device = emulated();
    let (launch, out) = axpy(&device);
    let refuse = |id: &str, says: &str, changes: &Args<'_>| {
        let error = launch.enqueue(device.stream().handle(), changes).expect_err(says);
        let tessera_runtime::DeviceError::Rejected(report) = &error else { panic!("{error}") };
        assert!(report.diagnostics.iter().any(|found| found.id == id && found.message.contains(says)), "{error}");
    };
    let of = |dtype, shape: &[usize]| array(&filled(&device, dtype, shape, 1.0));
    let wide = filled(&device, DType::F32, &[100], 1.0);
    let part = |start| array(&wide.slice(0, start..start + 96, 1).unwrap());
    refuse(
        "argument-shape",
        "`x` is f32[95] with strides [1], the launch was prepared for f32[96]",
        &vec![("x", of(DType::F32, &[95]))],
    );
    refuse("argument-shape", "`x` is i32[96]", &vec![("x", of(DType::I32, &[96]))]);
    refuse("argument-alignment", "`y` does not start at a multiple of 16 bytes", &vec![("y", part(1))]);
    refuse("argument-overlap", "`out` and `x` overlap", &vec![("x", array(&out))]);
    refuse("argument-overlap", "overlap", &vec![("out", part(4)), ("y", part(0))]);
    refuse("argument-kind", "`x` takes an array, not the float 1", &vec![("x", number(1.0))]);
    refuse("argument-scalar", "beyond the range of `f32`", &vec![("alpha", number(1e300))]);
    refuse("argument-scalar", "`alpha` takes a number", &vec![("alpha", part(0))]);
    refuse("argument-twice", "`alpha` is given twice", &vec![("alpha", number(1.0)), ("alpha", number(2.0))]);
    refuse("unknown-argument", "`TILE` is no argument of the prepared launch", &vec![("TILE", number(32.0))]);
    // One mistake keeps what is right beside it from being launched.
    refuse("argument-scalar", "beyond the range", &vec![("y", part(4)), ("alpha", number(1e300))]);
    assert_eq!(out.to_f64().unwrap(), [0.0; 96]);
    launch.enqueue(device.stream().handle(), &[("y", part(4))]).unwrap();
    assert_eq!(out.to_f64().unwrap(), [3.0; 96]);
}

#[test]
fn a_list_stays_as_it_was_prepared() {
    let device = emulated();
    let of = |value| filled(&device, DType::F32, &[32], value);
    let (items, out) = (vec![of(1.0), of(2.0), of(3.0)], of(0.0));
    let args = vec![("xs", Argument::List(items.clone())), ("out", array(&out))];
    let types = ["xs=[f32[?],f32[?]]", "out=f32[?]", "TILE=32"];
    let launch = prepared(&device, "total", &types, &args, LaunchGrid::Blocks([1, 1, 1]));
    assert!(launch.launch().owns_memory());
    let elsewhere = of(0.0);
    launch.enqueue(device.stream().handle(), &[("out", array(&elsewhere))]).unwrap();
    assert_eq!((elsewhere.to_f64().unwrap(), out.to_f64().unwrap()), (vec![6.0; 32], vec![0.0; 32]));
    let error = launch.enqueue(device.stream().handle(), &[("xs", Argument::List(items))]).expect_err("refused").to_string();
    assert!(error.contains("`xs` is a list, which stays as it was prepared"), "{error}");
    // An array of the list is no place for the result of a disjoint one.
    let error = launch.enqueue(device.stream().handle(), &[("out", args[0].1.clone())]).expect_err("refused").to_string();
    assert!(error.contains("`out` takes an array, not a list of 3 arrays"), "{error}");
}
