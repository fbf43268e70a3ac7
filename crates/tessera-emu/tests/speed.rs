//! Speed of elementwise code: thread-instructions a second on one core.

use std::sync::Arc;
use std::time::Instant;

use tessera_driver::{Context, DeviceBuffer, DeviceOrdinal, Dim3, L2Promotion, OutOfBounds, Params, Swizzle, TensorMapSpec};
use tessera_emu::{EmuOptions, Emulator, LaunchOptions, Sanitize, driver};
use tessera_types::DType;

const SAXPY: &str = "
.version 8.0
.target sm_80
.address_size 64
.visible .entry saxpy(.param .u64 x, .param .u64 y, .param .f32 a, .param .u32 n)
{
    .reg .pred %p;
    .reg .b32 %i, %b, %d, %n;
    .reg .f32 %a, %x, %y;
    .reg .b64 %px, %py, %o;
    ld.param.u64 %px, [x];
    ld.param.u64 %py, [y];
    ld.param.f32 %a, [a];
    ld.param.u32 %n, [n];
    mov.u32 %i, %tid.x;
    mov.u32 %b, %ctaid.x;
    mov.u32 %d, %ntid.x;
    mad.lo.u32 %i, %b, %d, %i;
    setp.ge.u32 %p, %i, %n;
    @%p bra done;
    mul.wide.u32 %o, %i, 4;
    add.u64 %px, %px, %o;
    add.u64 %py, %py, %o;
    ld.global.f32 %x, [%px];
    ld.global.f32 %y, [%py];
    fma.rn.f32 %y, %a, %x, %y;
    mul.f32 %x, %x, %x;
    add.f32 %y, %y, %x;
    max.f32 %y, %y, 0f00000000;
    st.global.f32 [%py], %y;
done:
    ret;
}";

/// Seconds that this thread has run, where the system counts them: other load does not disturb it.
fn cpu_seconds() -> Option<f64> {
    let text = std::fs::read_to_string("/proc/thread-self/schedstat").ok()?;
    Some(text.split_whitespace().next()?.parse::<f64>().ok()? * 1e-9)
}

/// Seconds that all threads have run: user and system time, in hundredths.
fn processor_seconds() -> f64 {
    let text = std::fs::read_to_string("/proc/self/stat").unwrap_or_default();
    let fields = text.rsplit(") ").next().unwrap_or_default().split_whitespace().skip(11).take(2);
    fields.filter_map(|field| field.parse::<f64>().ok()).sum::<f64>() / 100.0
}

#[test]
#[ignore = "a measurement: cargo test --release -p tessera-emu --test suite speed:: -- --ignored --nocapture"]
fn elementwise() {
    let emulator = Emulator::new(&EmuOptions::default()).unwrap();
    let n = 1u32 << 22;
    let module = emulator.load(SAXPY).unwrap();
    let (x, y) = (emulator.alloc(u64::from(n) * 4).unwrap(), emulator.alloc(u64::from(n) * 4).unwrap());
    let args = Params::new().pointer(x).pointer(y).f32(1.5).u32(n);
    for _ in 0..3 {
        let options = LaunchOptions { threads: Some(1), ..LaunchOptions::default() };
        let (start, before) = (Instant::now(), cpu_seconds());
        let report = emulator.launch(&module, "saxpy", Dim3::from(n / 256), Dim3::from(256), &args, &options).unwrap();
        let wall = start.elapsed().as_secs_f64();
        let seconds = before.and_then(|before| Some(cpu_seconds()? - before)).unwrap_or(wall);
        println!("{:.0} M thread-instructions/s on one core", report.instructions as f64 / seconds * 1e-6);
    }
}

#[test]
#[ignore = "a measurement: cargo test --release -p tessera-emu --test suite speed:: -- --ignored --nocapture"]
fn product() {
    let n = 1024u64;
    for sanitize in [Sanitize::NONE, Sanitize::ALL] {
        let launch = LaunchOptions { sanitize, ..LaunchOptions::default() };
        let context =
            Context::open(Arc::new(driver(&EmuOptions { launch, ..EmuOptions::default() }).unwrap()), DeviceOrdinal(0)).unwrap();
        let stream = context.stream().unwrap();
        let buffer = || {
            let buffer = context.buffer(n * n * 2).unwrap();
            buffer.fill(0, &stream).unwrap();
            buffer
        };
        let (a, b, c) = (buffer(), buffer(), buffer());
        let map = |buffer: &DeviceBuffer, rows: u32| {
            let spec = TensorMapSpec {
                dtype: DType::BF16,
                address: buffer.pointer(),
                extents: vec![n, n],
                strides: vec![n * 2],
                tile: vec![64, rows],
                swizzle: Swizzle::B128,
                l2: L2Promotion::None,
                outside: OutOfBounds::Zero,
            };
            context.tensor_map(&spec).unwrap()
        };
        let params =
            Params::new().tensor_map(&map(&a, 128)).tensor_map(&map(&b, 256)).tensor_map(&map(&c, 64)).u32(8).u32(4).u32(16);
        let path = format!("{}/../../kernels/anchors/gemm_nt.ptx", env!("CARGO_MANIFEST_DIR"));
        let kernel = context.module(&std::fs::read(path).unwrap()).unwrap().kernel("gemm_nt").unwrap();
        let shared = 4 * (49152 + 16) + 4 * 8192;
        kernel.allow_shared(shared).unwrap();
        let (start, before) = (Instant::now(), processor_seconds());
        kernel.launch(&stream, Dim3::from(32), Dim3::from(384), shared, &params).unwrap();
        let (wall, used) = (start.elapsed().as_secs_f64(), processor_seconds() - before);
        println!("1024-cubed bf16 product, sanitizers {}: {wall:.2} s, {used:.2} s of processors", sanitize == Sanitize::ALL);
    }
}
