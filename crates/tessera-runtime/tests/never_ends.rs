//! Kernels that never end say so on every device, with the loop that they are in, and nothing hangs.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use tessera_emu::{EmuOptions, Sanitize};
use tessera_runtime::{CompileOptions, Device, DriverDevice, Kernel, KernelError, LaunchOptions, Tensor, Value};
use tessera_types::{DType, TimeLimit};

/// Kernels, each with the text of the line that it is stopped in.
const KERNELS: [(&str, &str, &str); 5] = [
    (
        "spins",
        "while ct.atomic_cas(x, 0, 1, 2) != 5:",
        "
@ct.kernel
def spins(x):
    ct.store(x, (0,), ct.full((1,), 3, dtype=ct.int32))
    while ct.atomic_cas(x, 0, 1, 2) != 5:
        pass
",
    ),
    (
        "stores",
        "while ct.load(x, (1,), ()) == 0:",
        "
@ct.kernel
def stores(x):
    v = ct.load(x, (0,), (1,))
    while ct.load(x, (1,), ()) == 0:
        v = v + 1
        ct.store(x, (0,), v)
",
    ),
    (
        "waits",
        "while ct.atomic_add(x, 0, 0) < 1000:",
        "
@ct.kernel
def waits(x):
    while ct.atomic_add(x, 0, 0) < 1000:
        pass
    ct.atomic_add(x, 0, 1)
",
    ),
    (
        "threads",
        "while x[0] == 0:",
        "
@tessera.kernel
def threads(x: Tensor[\"N\", int32]):
    n = tile.thread_id()
    while x[0] == 0:
        n += 1
    x[1] = n
",
    ),
    (
        "apart",
        "while tile.atomic_add(flag[0], 0) == 0:",
        "
@tessera.kernel
def apart(x: Tensor[\"N\", int32]):
    flag = tile.alloc_shared[int32](1)
    if tile.thread_id() == 0:
        flag[0] = 0
    tile.barrier()
    if tile.thread_id() == 3:
        while tile.atomic_add(flag[0], 0) == 0:
            x[1] = 1
    tile.barrier()
",
    ),
];

const GIVEN: Duration = Duration::from_millis(300);

/// Runs a kernel for as long as it is given; the message.
fn stopped(text: &str, name: &str, device: &Device, options: &LaunchOptions) -> String {
    let text = format!("import cuda.tile as ct\nimport tessera\nfrom tessera import Tensor, tile\n{text}");
    let kernel = Kernel::from_source("ends.py", &text, name).unwrap();
    let x = Tensor::zeros(DType::I32, &[4]).unwrap().to_device(device).unwrap();
    let compile = CompileOptions { block: text.contains("tile.thread_id").then_some(64), ..CompileOptions::default() };
    let launch = kernel.prepare(&[("x", Value::from(&x))], [2, 1, 1], &compile, device).unwrap_or_else(|e| panic!("{e}"));
    let start = Instant::now();
    let error = launch.run_with(options).expect_err("it never ends");
    assert!(start.elapsed() < Duration::from_secs(60), "{name}: {:?}", start.elapsed());
    match error {
        KernelError::Fault { report, .. } | KernelError::NeverEnds(report) => report.render(false),
        other => other.to_string(),
    }
}

#[test]
fn on_the_cpu() {
    for (name, line, text) in KERNELS {
        for checked in [false, true] {
            let options = LaunchOptions { checked, limit: TimeLimit::within(GIVEN), ..LaunchOptions::default() };
            let message = stopped(text, name, &Device::Cpu, &options);
            assert!(message.contains("the kernel has not ended after 0.3 s"), "{name}: {message}");
            assert!(message.contains(line) && message.contains("this loop is in round"), "{name}: {message}");
        }
    }
}

#[test]
fn a_block_that_takes_too_long_is_stopped_however_long_the_others_may_take() {
    let limit = TimeLimit { total: None, block: Some(GIVEN) };
    let (name, line, text) = KERNELS[1];
    let message = stopped(text, name, &Device::Cpu, &LaunchOptions { limit, ..LaunchOptions::default() });
    assert!(message.contains("has not ended after 0.3 s") && message.contains(line), "{message}");
}

#[test]
fn on_the_emulator() {
    for (name, line, text) in KERNELS {
        for sanitize in [Sanitize::NONE, Sanitize::ALL] {
            let mut options = EmuOptions::default();
            (options.launch.limit, options.launch.sanitize) = (TimeLimit::within(GIVEN), sanitize);
            let device = Device::emulated(&options).unwrap();
            let message = stopped(text, name, &device, &LaunchOptions::default());
            // Where nothing changes any more, the emulator need not wait.
            let told = ["has not ended after 0.3 s", "no thread can go on"].iter().any(|text| message.contains(text));
            let number = 4 + text.lines().position(|found| found.trim() == line).expect("the line");
            assert!(told && message.contains(&format!("ends.py:{number}:")), "{name}, line {number}: {message}");
        }
    }
}

/// The emulated machine behind a driver whose kernels run on and on.
fn slow(polls: u32) -> Device {
    let mut table = tessera_emu::driver(&EmuOptions::default()).unwrap();
    let asked = AtomicU32::new(0);
    table.launch = Some(Box::new(|_| Ok(())));
    table.stream_query = Some(Box::new(move |_| Ok(asked.fetch_add(1, Ordering::Relaxed) >= polls)));
    Device::Driver(DriverDevice::open(Arc::new(table), 0).unwrap())
}

#[test]
fn on_a_device_that_cannot_be_looked_into() {
    let limit = TimeLimit::within(GIVEN);
    for (name, line, text) in KERNELS {
        let message = stopped(text, name, &slow(u32::MAX), &LaunchOptions { limit, ..LaunchOptions::default() });
        assert!(message.contains("has not ended after 0.3 s, and is left running on"), "{message}");
        assert!(message.contains(line) && message.contains("this loop may never end"), "{name}: {message}");
    }
}

#[test]
fn what_ends_in_time_is_waited_for() {
    let kernel = Kernel::from_source(
        "ends.py",
        "import cuda.tile as ct\n\n@ct.kernel\ndef k(x):\n    ct.store(x, (0,), ct.full((4,), 7, dtype=ct.int32))\n",
        "k",
    )
    .unwrap();
    let device = slow(5);
    let x = Tensor::zeros(DType::I32, &[4]).unwrap().to_device(&device).unwrap();
    let launch = kernel.prepare(&[("x", Value::from(&x))], [1, 1, 1], &CompileOptions::default(), &device).unwrap();
    launch.run_with(&LaunchOptions { limit: TimeLimit::within(Duration::from_secs(60)), ..LaunchOptions::default() }).unwrap();
}
