//! Speed of elementwise code: thread-instructions a second on one core.

use std::time::Instant;

use tessera_driver::{Dim3, Params};
use tessera_emu::{EmuOptions, Emulator, LaunchOptions};

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

#[test]
#[ignore = "a measurement: cargo test --release -p tessera-emu --test speed -- --ignored --nocapture"]
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
