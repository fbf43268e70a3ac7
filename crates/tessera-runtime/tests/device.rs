//! The runtime's device side against a pretended device: memory, code caches, argument packing, launches, faults.

use std::sync::Arc;

use tessera_driver::DriverCode;
use tessera_ir::{
    Abi, AbiParam, Extent, GridRule, HiddenParam, ImageCode, IndexType, KernelImage, LaunchFacts, ParamKind, TensorMapPlan,
};
use tessera_runtime::{
    CodeOrigin, Device, DeviceError, DeviceKernel, DeviceLaunch, DriverDevice, ModuleCache, Tensor, TensorError, Value,
};
use tessera_types::{DType, L2Promotion, OutOfBounds, Swizzle};

use crate::machine::{self, Machine, Pretended, at, machine, table, word};

/// `y[i] = a * x[i]`: x, sizes, strides; y, sizes, strides; a.
fn scale(memory: &mut [u8], params: &[Vec<u8>], _threads: u64) -> Result<(), DriverCode> {
    let number = |param: usize| word(&params[param]) as usize;
    let (x, n, step, y) = (at(word(&params[0])), number(1), number(2), at(word(&params[3])));
    let a = f32::from_bits(word(&params[6]) as u32);
    for i in 0..n {
        let value = f32::from_le_bytes(memory[x + 4 * i * step..][..4].try_into().unwrap());
        memory[y + 4 * i..][..4].copy_from_slice(&(a * value).to_le_bytes());
    }
    Ok(())
}

fn crash(_: &mut [u8], _: &[Vec<u8>], _: u64) -> Result<(), DriverCode> {
    Err(DriverCode::ILLEGAL_ADDRESS)
}

fn nothing(_: &mut [u8], _: &[Vec<u8>], _: u64) -> Result<(), DriverCode> {
    Ok(())
}

fn kernel(body: machine::Body) -> Pretended {
    Pretended { body, nanoseconds: 1000.0 }
}

fn open() -> (Machine, DriverDevice) {
    let machine = machine(1 << 16, &[("scale", kernel(scale)), ("crash", kernel(crash)), ("nothing", kernel(nothing))]);
    let device = DriverDevice::open(Arc::new(table(&machine)), 0).unwrap();
    (machine, device)
}

fn array(name: &str, dtype: DType, rank: usize, index: IndexType) -> AbiParam {
    let kind = ParamKind::Array {
        dtype,
        shape: std::iter::repeat_n(Extent::Dynamic, rank).collect(),
        strides: std::iter::repeat_n(Extent::Dynamic, rank).collect(),
        index,
        align: dtype.bits() / 8,
        lines: dtype.bits() / 8,
        disjoint: true,
    };
    AbiParam { name: name.into(), kind }
}

fn image(entry: &str, params: Vec<AbiParam>) -> KernelImage {
    KernelImage {
        entry: entry.into(),
        target: "sm_90a".into(),
        code: ImageCode::Ptx(format!("text of {entry}")),
        abi: Abi { params, stated: Vec::new() },
        hidden: Vec::new(),
        launch: LaunchFacts { threads: [128, 1, 1], ..LaunchFacts::default() },
    }
}

fn scale_image() -> KernelImage {
    let a = AbiParam { name: "a".into(), kind: ParamKind::Scalar { dtype: DType::F32 } };
    image("scale", vec![array("x", DType::F32, 1, IndexType::I32), array("y", DType::F32, 1, IndexType::I64), a])
}

fn load(device: &DriverDevice, image: KernelImage) -> Result<DeviceKernel, DeviceError> {
    DeviceKernel::load(device, Arc::new(image), &ModuleCache::new(None))
}

#[test]
fn tensors_travel_keep_their_views_and_take_copies() {
    let (_, device) = open();
    let there = Device::Driver(device.clone());
    let x = Tensor::arange(DType::F32, &[3, 4]).unwrap();
    let on = x.to_device(&there).unwrap();
    assert_eq!(on.transpose(0, 1).unwrap().to_f64().unwrap(), x.transpose(0, 1).unwrap().to_f64().unwrap());
    assert!(matches!(on.read::<f32>(), Err(TensorError::OnDevice { .. })));
    let row = on.slice(0, 1..2, 1).unwrap();
    row.copy_from(&Tensor::ones(DType::F32, &[1, 4]).unwrap()).unwrap();
    let column = on.slice(1, 3..4, 1).unwrap();
    column.copy_from(&Tensor::zeros(DType::F32, &[3, 1]).unwrap()).unwrap();
    assert_eq!(on.to_f64().unwrap(), [0., 1., 2., 0., 1., 1., 1., 0., 8., 9., 10., 0.]);
    let copy = Tensor::zeros_on(DType::F32, &[3, 4], &there).unwrap();
    copy.copy_from(&on).unwrap();
    assert_eq!(copy.to_f64().unwrap(), on.to_f64().unwrap());
}

#[test]
fn memory_is_counted_and_running_out_leaves_everything_usable() {
    let (machine, device) = open();
    let there = Device::Driver(device.clone());
    let held = Tensor::zeros_on(DType::U8, &[40_000], &there).unwrap();
    // Another 20,000 fit only once the pool gives back what it keeps.
    drop(Tensor::zeros_on(DType::U8, &[20_000], &there).unwrap());
    let again = Tensor::zeros_on(DType::U8, &[20_000], &there).unwrap();
    let error = Tensor::zeros_on(DType::U8, &[30_000], &there).unwrap_err();
    assert!(matches!(error, TensorError::DeviceMemory { bytes: 30_000, held: 60_000, .. }), "{error}");
    drop(again);
    assert!(Tensor::zeros_on(DType::U8, &[10_000], &there).is_ok());
    assert_eq!(held.to_device(&Device::Cpu).unwrap().read::<u8>().unwrap()[39_999], 0);
    let counters = device.memory_counters();
    assert_eq!((counters.held, counters.peak, counters.allocations, counters.refused), (40_000, 60_000, 4, 1));
    assert!(counters.retries >= 1 && counters.frees == 3, "{counters:?}");
    assert!(machine.lock().unwrap().trimmed >= 2);
}

#[test]
fn arguments_are_packed_as_the_interface_says_and_the_kernel_runs() {
    let (machine, device) = open();
    let there = Device::Driver(device.clone());
    let kernel = load(&device, scale_image()).unwrap();
    let x = Tensor::arange(DType::F32, &[10]).unwrap().to_device(&there).unwrap().slice(0, 0..10, 2).unwrap();
    let y = Tensor::empty(DType::F32, &[5]).unwrap().to_device(&there).unwrap();
    assert!(y.is_poisoned());
    let args = [("x", Value::from(&x)), ("y", Value::from(&y)), ("a", Value::Float(0.5))];
    let launch = DeviceLaunch::prepare(&kernel, &args, &[false, true, false], [3, 1, 1]).unwrap();
    // x: pointer, 32-bit size and stride; y: pointer, 64-bit size and stride; a.
    assert_eq!(launch.params().offsets(), [0, 8, 12, 16, 24, 32, 40]);
    launch.run().unwrap();
    assert_eq!(y.to_f64().unwrap(), [0., 1., 2., 3., 4.]);
    assert!(!y.is_poisoned());
    assert_eq!(machine.lock().unwrap().last, Some((3, 0, [128, 1, 1])));
}

#[test]
fn wrong_arguments_name_the_parameter() {
    let (_, device) = open();
    let there = Device::Driver(device.clone());
    let kernel = load(&device, scale_image()).unwrap();
    let on = |dtype, n: usize| Tensor::zeros_on(dtype, &[n], &there).unwrap();
    let (x, y) = (on(DType::F32, 4), on(DType::F32, 4));
    let refuse = |x: &Tensor, y: &Tensor| {
        let args = [("x", Value::from(x)), ("y", Value::from(y)), ("a", Value::Float(0.5))];
        DeviceLaunch::prepare(&kernel, &args, &[false, true, false], [1, 1, 1]).unwrap_err().to_string()
    };
    assert!(refuse(&on(DType::F16, 4), &y).contains("`x` holds `f16`"));
    assert!(refuse(&x, &x).contains("overlap in memory"));
    let host = refuse(&x, &Tensor::zeros(DType::F32, &[4]).unwrap());
    assert_eq!(host, "`y` is on `cpu`, the kernel runs on `Pretended`; copy it there with `to_device`");
    assert!(
        DeviceLaunch::prepare(&kernel, &[("x", Value::from(&x))], &[], [1, 1, 1])
            .unwrap_err()
            .to_string()
            .contains("`y` is missing")
    );
}

#[test]
fn hidden_parameters_follow_the_users() {
    let (machine, device) = open();
    let there = Device::Driver(device.clone());
    let mut image = image("nothing", vec![array("x", DType::BF16, 2, IndexType::I32)]);
    let plan = |axes: Vec<usize>| TensorMapPlan {
        param: 0,
        axes,
        tile: vec![64, 8],
        dtype: None,
        swizzle: Swizzle::B128,
        l2: L2Promotion::B128,
        outside: OutOfBounds::Zero,
    };
    image.hidden = vec![
        HiddenParam::TensorMap(plan(vec![1, 0])),
        HiddenParam::Grid,
        HiddenParam::Workspace { bytes: 16, bytes_per_block: 4 },
    ];
    image.launch.grid = GridRule { blocks: [2, 1, 1], per_multiprocessor: Some(1), ..GridRule::default() };
    let x = Tensor::zeros_on(DType::BF16, &[32, 128], &there).unwrap();
    let kernel = load(&device, image.clone()).unwrap();
    let launch = DeviceLaunch::prepare(&kernel, &[("x", Value::from(&x))], &[true], [9, 1, 1]).unwrap();
    let offsets = launch.params().offsets();
    assert_eq!(offsets, [0, 8, 12, 16, 20, 64, 192, 196, 200, 208]);
    let bytes = launch.params().bytes();
    assert_eq!(bytes[64..72], bytes[..8], "the map is over the array");
    assert_eq!(bytes[72], 128, "the contiguous axis comes first");
    assert_eq!(bytes[192], 9, "the grid that was asked for");
    // 18 blocks are wanted, 4 multiprocessors hold one each.
    assert_eq!(launch.grid().x, 4);
    let workspace = word(&bytes[208..216]);
    assert_eq!(machine.lock().unwrap().live[&workspace], 16 + 4 * 4);
    assert_eq!(machine.lock().unwrap().memory[at(workspace)..][..32], [0; 32]);

    image.hidden = vec![HiddenParam::TensorMap(plan(vec![0, 1]))];
    let error = DeviceLaunch::prepare(&load(&device, image).unwrap(), &[("x", Value::from(&x))], &[true], [1, 1, 1]).unwrap_err();
    assert_eq!(error.to_string(), "no tensor map over `x` of `nothing`: its axis 0 has a stride of 128");
}

#[test]
fn what_the_device_cannot_hold_is_refused_with_numbers() {
    let (_, device) = open();
    let mut image = image("nothing", vec![]);
    image.launch.shared_bytes = 240_000;
    assert_eq!(
        load(&device, image.clone()).unwrap_err().to_string(),
        "`nothing` needs 240000 bytes of shared memory for a block, the device has 232448 (7552 too many); \
         use smaller tiles or fewer stages"
    );
    image.launch.shared_bytes = 0;
    image.launch.threads = [512, 1, 1];
    assert!(load(&device, image.clone()).unwrap_err().to_string().contains("registers suffice for, the device has 256"));
    image.launch.threads = [2048, 1, 1];
    assert!(load(&device, image).unwrap_err().to_string().contains("needs 2048 threads"));
}

#[test]
fn code_is_assembled_once_for_all_processes() {
    let folder = tempfile::tempdir().unwrap();
    let cache = || ModuleCache::new(Some(folder.path().to_owned()));
    let image = Arc::new(scale_image());
    let (machine, device) = open();
    let origin = |device: &DriverDevice| DeviceKernel::load(device, image.clone(), &cache()).unwrap().origin();
    assert_eq!((origin(&device), origin(&device)), (CodeOrigin::Assembled, CodeOrigin::Loaded));
    let (other_machine, other) = open();
    assert_eq!(origin(&other), CodeOrigin::Disk);
    assert_eq!((machine.lock().unwrap().assembled, other_machine.lock().unwrap().assembled), (1, 0));
    let mut broken = (*image).clone();
    broken.code = ImageCode::Ptx("broken".into());
    let error = DeviceKernel::load(&other, Arc::new(broken), &cache()).unwrap_err();
    assert!(error.to_string().contains("line 1"), "{error}");
}

#[test]
fn a_fault_names_the_kernel_and_a_fresh_context_goes_on() {
    let (machine, device) = open();
    let launch = DeviceLaunch::prepare(&load(&device, image("crash", vec![])).unwrap(), &[], &[], [1, 1, 1]).unwrap();
    let error = launch.run().unwrap_err();
    assert!(error.poisons_context() && error.to_string().contains("kernel `crash`"), "{error}");
    launch.enqueue().unwrap();
    assert!(device.synchronize().unwrap_err().to_string().contains("kernel `crash`"));
    drop(launch);
    let fresh = device.reopen(Arc::new(table(&machine))).unwrap();
    let there = Device::Driver(fresh);
    assert_eq!(Tensor::zeros_on(DType::F32, &[2], &there).unwrap().to_f64().unwrap(), [0.0, 0.0]);
}
