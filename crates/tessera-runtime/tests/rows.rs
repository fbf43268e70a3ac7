//! Rows in tiles of powers of two, on the emulated device: of any length, with what a launch states of it, and in blocks of one warp side by side.

use std::sync::Arc;

use tessera_emu::EmuOptions;
use tessera_lang::ArgType;
use tessera_runtime::{CompileOptions, Device, DriverDevice, Kernel, KernelError, Later, Often, RandomStream, Tensor, Value};
use tessera_types::DType;

const SOURCE: &str = "
import cuda.tile as ct
PAD = ct.PaddingMode

@ct.kernel
def softmax(x, out, n: int, N: ct.Constant[int]):
    r = ct.bid(0)
    v = ct.load(x, (r, 0), (1, N), padding_mode=PAD.NEG_INF).astype(ct.float32)
    e = ct.exp(v - ct.max(v, axis=1, keepdims=True))
    ct.store(out, (r, 0), (e / ct.sum(e, axis=1, keepdims=True)).astype(out.dtype))

@ct.kernel
def layer_norm(x, out, n: int, N: ct.Constant[int]):
    r = ct.bid(0)
    v = ct.load(x, (r, 0), (1, N), padding_mode=PAD.ZERO).astype(ct.float32)
    inside = ct.arange(N, dtype=ct.int32)[None, :] < n
    d = ct.where(inside, v - ct.sum(v, axis=1, keepdims=True) / n, 0.0)
    ct.store(out, (r, 0), (d * ct.rsqrt(ct.sum(d * d, axis=1, keepdims=True) / n + 1e-5)).astype(out.dtype))

@ct.kernel
def magnitude(x, out, n: int, N: ct.Constant[int]):
    r = ct.bid(0)
    v = ct.load(x, (r, 0), (1, N), padding_mode=PAD.ZERO).astype(ct.float32)
    ct.store(out, (r, 0), (v / ct.max(v, axis=1, keepdims=True) + ct.max(abs(v), axis=1, keepdims=True)).astype(out.dtype))

@ct.kernel
def in_rows(x, out, n: int, N: ct.Constant[int]):
    # A number for each row, and how many rows count, say nothing of columns.
    r = ct.bid(0)
    v = ct.load(x, (r, 0), (4, N), padding_mode=PAD.ZERO).astype(ct.float32)
    first = ct.load(x, (r, 0), (4, 1), padding_mode=PAD.ZERO).astype(ct.float32)
    some = ct.arange(4, dtype=ct.int32)[:, None] < 3
    ct.store(out, (r, 0), (v + ct.sum(ct.where(some, v + first, 0.0), axis=1, keepdims=True)).astype(out.dtype))

@ct.kernel
def by_column(x, out, n: int, N: ct.Constant[int]):
    # Behind the ends of rows the largest of a column is minus infinity, which it is less itself no number.
    r = ct.bid(0)
    v = ct.load(x, (r, 0), (4, N), padding_mode=PAD.ZERO).astype(ct.float32)
    low = ct.load(x, (r, 0), (4, N), padding_mode=PAD.NEG_INF).astype(ct.float32)
    e = ct.exp(low - ct.max(low, axis=0, keepdims=True))
    ct.store(out, (r, 0), (v + ct.sum(e, axis=1, keepdims=True)).astype(out.dtype))

@ct.kernel
def several(x, out, n: int, N: ct.Constant[int]):
    r = ct.bid(0)
    v = ct.load(x, (r, 0), (4, N), padding_mode=PAD.NEG_INF).astype(ct.float32)
    e = ct.exp(v - ct.max(v, axis=1, keepdims=True))
    ct.store(out, (r, 0), (e / ct.sum(e, axis=1, keepdims=True)).astype(out.dtype))

@ct.kernel
def asserted(x, out, n: int, N: ct.Constant[int]):
    r = ct.bid(0)
    v = ct.load(x, (r, 0), (1, N), padding_mode=PAD.ZERO)
    ct.assert_(ct.max(v, axis=1) < n, 'small')
    ct.store(out, (r, 0), v)

@ct.kernel
def counted(x, out, n: int, N: ct.Constant[int]):
    r = ct.bid(0)
    v = ct.load(x, (r, 0), (1, N), padding_mode=PAD.ZERO).astype(ct.float32)
    ct.store(out, (r, 0), (v + ct.sum(v + 1.0, axis=1, keepdims=True)).astype(out.dtype))
";

fn emulated() -> Device {
    let options = EmuOptions { multiprocessors: Some(1), ..EmuOptions::default() };
    Device::Driver(DriverDevice::open(Arc::new(tessera_emu::driver(&options).unwrap()), 0).unwrap())
}

/// A kernel's result for these rows, and how many blocks are launched for them.
fn result(kernel: &str, x: &Tensor, device: &Device) -> (Vec<f64>, u32) {
    let kernel = Kernel::from_source("rows.py", SOURCE, kernel).unwrap();
    let [rows, columns] = [0, 1].map(|axis| x.shape()[axis]);
    let x = x.to_device(device).unwrap();
    let out = Tensor::empty(x.dtype(), &[rows, columns]).unwrap().to_device(device).unwrap();
    let tile = columns.next_power_of_two() as i64;
    let args = [("x", Value::from(&x)), ("out", Value::from(&out)), ("n", Value::Int(columns as i64)), ("N", Value::Int(tile))];
    let launch = kernel.prepare(&args, [rows as u32, 1, 1], &CompileOptions::default(), device).unwrap();
    launch.run().unwrap();
    (out.to_f64().unwrap(), launch.on_device().map_or(0, |launch| launch.grid().x))
}

#[test]
fn rows_of_any_length_are_those_of_the_processor() {
    let random = RandomStream::new(11);
    for (rows, columns) in [(70, 5), (67, 100), (66, 321), (5, 513), (5, 640), (3, 801), (3, 1024), (3, 1037), (2, 1500)] {
        for dtype in [DType::F32, DType::BF16] {
            let x = random.rand(dtype, &[rows, columns]).unwrap();
            for kernel in ["softmax", "layer_norm", "magnitude", "counted"] {
                let [(wanted, _), (found, blocks)] = [Device::Cpu, emulated()].map(|device| result(kernel, &x, &device));
                let (near, least) = if dtype == DType::F32 { (1e-5, 0.1) } else { (2e-2, 1e-2) };
                let far = |(a, b): &(&f64, &f64)| (*a - *b).abs() > near * a.abs().max(least);
                let wrong = wanted.iter().zip(&found).enumerate().find(|(_, pair)| far(pair));
                assert!(wrong.is_none(), "{kernel} {dtype} {rows}x{columns}: {wrong:?}");
                if rows > 64 && columns <= 512 {
                    assert_eq!(blocks, (rows as u32).div_ceil(4), "{kernel} {dtype} {rows}x{columns}: four programs a block");
                }
            }
        }
    }
}

#[test]
fn a_launch_states_where_rows_end_and_which_arrays_are_alike() {
    let kernel = Kernel::from_source("rows.py", SOURCE, "softmax").unwrap();
    let stated = |columns: usize, n: i64, tile: i64| -> Vec<(Option<i64>, Option<String>)> {
        let [x, out] = [(); 2].map(|()| Tensor::zeros(DType::BF16, &[4, columns]).unwrap());
        let args = [("x", Value::from(&x)), ("out", Value::from(&out)), ("n", Value::Int(n)), ("N", Value::Int(tile))];
        let types = kernel.argument_types(&args).unwrap();
        let of = |(_, ty): &(String, ArgType)| match ty {
            ArgType::Stated { most, like, .. } => (*most, like.clone()),
            _ => (None, None),
        };
        types.iter().map(of).collect()
    };
    let like = || Some("x".to_owned());
    let nothing = (None, None);
    assert_eq!(stated(5120, 5120, 8192), [(Some(5120), None), (Some(5120), None), (Some(5120), None), nothing.clone()]);
    // Whole vectors stay whole where a row begins within one.
    assert_eq!(stated(4097, 7, 8192), [(Some(5105), None), (Some(5105), like()), nothing.clone(), nothing.clone()]);
    assert_eq!(stated(5119, 5119, 8192), [(Some(6129), None), (Some(6129), like()), (Some(5120), None), nothing.clone()]);
    // Full tiles, small ones, and tiles that are not the next power of two.
    assert_eq!(stated(8192, 8192, 8192), [nothing.clone(), nothing.clone(), nothing.clone(), nothing.clone()]);
    assert_eq!(stated(8191, 8191, 8192), [nothing.clone(), (None, like()), nothing.clone(), nothing.clone()]);
    assert_eq!(stated(200, 200, 256), [nothing.clone(), nothing.clone(), nothing.clone(), nothing.clone()]);
    assert_eq!(stated(5120, 5120, 1024), [nothing.clone(), nothing.clone(), nothing.clone(), nothing]);
}

#[test]
fn a_kernel_for_shorter_rows_refuses_longer_ones() {
    let device = emulated();
    let kernel = Kernel::from_source("rows.py", SOURCE, "layer_norm").unwrap();
    let array = |columns: usize| Tensor::zeros(DType::F32, &[2, columns]).unwrap().to_device(&device).unwrap();
    let (x, out) = (array(640), array(640));
    let args = [("x", Value::from(&x)), ("out", Value::from(&out)), ("n", Value::Int(640)), ("N", Value::Int(1024))];
    let launch = kernel.prepare(&args, [2, 1, 1], &CompileOptions::default(), &device).unwrap();
    launch.run().unwrap();
    let driver = device.driver().unwrap();
    let often = |later| kernel.prepare_often(&args, ([2, 1, 1].into(), later), &CompileOptions::default(), driver).unwrap();
    let again = |often: &Often, n: i64| {
        let number = tessera_runtime::Change::Number(tessera_runtime::Constant::Int(n));
        often.prepared.again(driver.stream().handle(), &[("n", number)])
    };
    let alike = often(Later::Alike);
    again(&alike, 600).unwrap();
    let error = again(&alike, 641).unwrap_err().to_string();
    assert!(error.contains("`n` is 641") && error.contains("640 at most"), "{error}");
    again(&often(Later::Any), 641).unwrap();
    // A launch of its own compiles for the longer ones.
    let longer = array(700);
    let out = array(700);
    let args = [("x", Value::from(&longer)), ("out", Value::from(&out)), ("n", Value::Int(700)), ("N", Value::Int(1024))];
    kernel.prepare(&args, [2, 1, 1], &CompileOptions::default(), &device).unwrap().run().unwrap();
}

#[test]
fn what_rows_have_once_is_in_no_column() {
    let random = RandomStream::new(5);
    for columns in [513, 640, 801] {
        let x = random.rand(DType::F32, &[8, columns]).unwrap();
        for kernel in ["in_rows", "by_column", "several"] {
            let [(wanted, _), (found, _)] = [Device::Cpu, emulated()].map(|device| result(kernel, &x, &device));
            let far = |(a, b): &(&f64, &f64)| a.is_nan() != b.is_nan() || (*a - *b).abs() > 1e-4 * a.abs().max(0.1);
            let wrong = wanted.iter().zip(&found).enumerate().find(|(_, pair)| far(pair));
            assert!(wrong.is_none(), "{kernel} 8x{columns}: {wrong:?}");
        }
    }
}

#[test]
fn an_assertion_names_the_block_that_was_asked_for() {
    let device = emulated();
    let kernel = Kernel::from_source("rows.py", SOURCE, "asserted").unwrap();
    let x = Tensor::arange(DType::F32, &[70, 16]).unwrap().to_device(&device).unwrap();
    let out = Tensor::zeros(DType::F32, &[70, 16]).unwrap().to_device(&device).unwrap();
    // Row 37 has 607 as its largest.
    let args = [("x", Value::from(&x)), ("out", Value::from(&out)), ("n", Value::Int(607)), ("N", Value::Int(16))];
    let launch = kernel.prepare(&args, [70, 1, 1], &CompileOptions::default(), &device).unwrap();
    assert_eq!(launch.on_device().unwrap().grid().x, 18, "four a block");
    match launch.run() {
        Err(KernelError::Fault { block: Some([x, 0, 0]), .. }) => assert!(x >= 37, "row {x} holds"),
        other => panic!("{other:?}"),
    }
}
