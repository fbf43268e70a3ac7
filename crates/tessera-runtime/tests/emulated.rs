//! Compiled kernels on the emulated device through the same runtime: source to results, equal to the processor's.

use std::sync::Arc;

use tessera_emu::EmuOptions;
use tessera_runtime::{CompileOptions, Device, DriverDevice, Kernel, KernelError, LaunchGrid, Tensor, Value};
use tessera_types::DType;

const SOURCE: &str = "
import cuda.tile as ct

@ct.kernel
def add(x, y, out, TILE: ct.Constant[int]):
    i = ct.bid(0)
    total = ct.load(x, (i,), (TILE,)) + ct.load(y, (i,), (TILE,))
    ct.store(out, (i,), total)

@ct.kernel
def rows(x, out, N: ct.Constant[int]):
    row = ct.load(x, (ct.bid(0), 0), (1, N))
    ct.store(out, (ct.bid(0), 0), row / ct.sum(row, axis=1, keepdims=True))
";

fn emulated() -> Device {
    let table = tessera_emu::driver(&EmuOptions::default()).unwrap();
    Device::Driver(DriverDevice::open(Arc::new(table), 0).unwrap())
}

/// Runs a kernel on both and gives both outputs.
fn both(kernel: &str, inputs: &[(&str, Tensor)], out: &[usize], constants: &[(&str, i64)], grid: [u32; 3]) -> [Vec<f64>; 2] {
    let kernel = Kernel::from_source("kernels.py", SOURCE, kernel).unwrap();
    [Device::Cpu, emulated()].map(|device| {
        let inputs: Vec<(&str, Tensor)> =
            inputs.iter().map(|(name, tensor)| (*name, tensor.to_device(&device).unwrap())).collect();
        let result = Tensor::empty(DType::F32, out).unwrap().to_device(&device).unwrap();
        let mut args: Vec<(&str, Value)> = inputs.iter().map(|(name, tensor)| (*name, Value::from(tensor))).collect();
        args.push(("out", Value::from(&result)));
        args.extend(constants.iter().map(|(name, value)| (*name, Value::Int(*value))));
        let launch = kernel.prepare(&args, LaunchGrid::Blocks(grid), &CompileOptions::default(), &device).unwrap();
        assert_eq!(launch.on_device().is_some(), !device.is_cpu());
        assert_eq!(launch.written().collect::<Vec<_>>(), ["out"]);
        launch.run().unwrap();
        result.to_f64().unwrap()
    })
}

#[test]
fn an_elementwise_kernel_gives_the_same_bits() {
    let (x, y) = (Tensor::arange(DType::F32, &[100]).unwrap(), Tensor::ones(DType::F32, &[100]).unwrap());
    let [cpu, emulated] = both("add", &[("x", x), ("y", y)], &[100], &[("TILE", 32)], [4, 1, 1]);
    assert_eq!(cpu, emulated);
    assert_eq!(emulated[99], 100.0);
}

#[test]
fn a_reduction_agrees() {
    let x = tessera_runtime::RandomStream::new(3).rand(DType::F32, &[5, 64]).unwrap();
    let [cpu, emulated] = both("rows", &[("x", x)], &[5, 64], &[("N", 64)], [5, 1, 1]);
    assert!(cpu.iter().zip(&emulated).all(|(a, b)| (a - b).abs() <= 1e-6 * a.abs()), "{cpu:?}\n{emulated:?}");
}

#[test]
fn a_launch_beyond_its_memory_names_the_kernel() {
    let text = "
import cuda.tile as ct

@ct.kernel
def wild(x, OFFSET: ct.Constant[int]):
    ct.store(x, (ct.bid(0),), ct.ones((32,), ct.float32))
";
    let device = emulated();
    let kernel = Kernel::from_source("wild.py", text, "wild").unwrap();
    let x = Tensor::zeros_on(DType::F32, &[32], &device).unwrap();
    let args = [("x", Value::from(&x)), ("OFFSET", Value::Int(1))];
    let error =
        kernel.prepare(&[("x", Value::Int(1)), ("OFFSET", Value::Int(1))], [1, 1, 1], &CompileOptions::default(), &device);
    assert!(error.is_err());
    kernel.prepare(&args, [1, 1, 1], &CompileOptions::default(), &device).unwrap().run().unwrap();
    assert_eq!(x.to_f64().unwrap(), [1.0; 32]);
}

#[test]
fn a_failed_assertion_is_told_as_on_the_processor() {
    let source = "
import cuda.tile as ct

@ct.kernel
def bounded(x, out):
    ct.assert_(ct.num_blocks(0) > 0)
    t = ct.load(x, (ct.bid(0),), (32,))
    ct.assert_(t < 40, \"small\")
    ct.store(out, (ct.bid(0),), t)
";
    let kernel = Kernel::from_source("kernels.py", source, "bounded").unwrap();
    for device in [Device::Cpu, emulated()] {
        let x = Tensor::arange(DType::F32, &[64]).unwrap().to_device(&device).unwrap();
        let out = Tensor::zeros(DType::F32, &[64]).unwrap().to_device(&device).unwrap();
        let args = [("x", Value::from(&x)), ("out", Value::from(&out))];
        let launch =
            |blocks| kernel.prepare(&args, LaunchGrid::Blocks([blocks, 1, 1]), &CompileOptions::default(), &device).unwrap();
        launch(1).run().unwrap();
        match launch(2).run() {
            Err(KernelError::Fault { report, block, .. }) => {
                assert_eq!(report.to_string().split("error").next(), Some("kernels.py:8:5: "), "{report}");
                assert!(report.to_string().ends_with("assertion failed: small"), "{report}");
                assert_eq!(block, Some([1, 0, 0]));
            }
            other => panic!("{device}: {other:?}"),
        }
    }
}
