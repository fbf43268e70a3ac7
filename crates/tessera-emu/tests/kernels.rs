//! Kernels in PTX text, run and compared with the same arithmetic in Rust.

use tessera_driver::{DevicePtr, Dim3, Params};
use tessera_emu::{EmuOptions, Emulator, LaunchOptions, Report, Schedule};

const SCHEDULES: [Schedule; 3] = [Schedule::Eager, Schedule::Lazy, Schedule::Random];

fn header(body: &str) -> String {
    format!(".version 8.0\n.target sm_90a\n.address_size 64\n{body}")
}

struct Bench {
    emulator: Emulator,
}

impl Bench {
    fn new() -> Bench {
        Bench { emulator: Emulator::new(&EmuOptions::default()).unwrap() }
    }

    fn put(&self, values: &[u32]) -> DevicePtr {
        let bytes: Vec<u8> = values.iter().flat_map(|value| value.to_le_bytes()).collect();
        let at = self.emulator.alloc(bytes.len() as u64).unwrap();
        self.emulator.write(at, &bytes).unwrap();
        at
    }

    fn get(&self, at: DevicePtr, count: usize) -> Vec<u32> {
        let mut bytes = vec![0; count * 4];
        self.emulator.read(at, &mut bytes).unwrap();
        bytes.chunks_exact(4).map(|word| u32::from_le_bytes([word[0], word[1], word[2], word[3]])).collect()
    }

    fn run(&self, ptx: &str, kernel: &str, grid: u32, block: u32, args: &Params, schedule: Schedule) -> Report {
        let module = self.emulator.load(&header(ptx)).unwrap_or_else(|error| panic!("{error}"));
        let options = LaunchOptions { schedule, seed: 7, ..LaunchOptions::default() };
        self.emulator
            .launch(&module, kernel, Dim3::from(grid), Dim3::from(block), args, &options)
            .unwrap_or_else(|error| panic!("{error}"))
    }
}

fn floats(values: &[f32]) -> Vec<u32> {
    values.iter().map(|value| value.to_bits()).collect()
}

const VECTOR_ADD: &str = "
.visible .entry add(.param .u64 a, .param .u64 b, .param .u64 c, .param .u32 n)
{
    .reg .pred %p<2>;
    .reg .b32 %r<6>;
    .reg .f32 %f<4>;
    .reg .b64 %rd<11>;
    ld.param.u64 %rd1, [a];
    ld.param.u64 %rd2, [b];
    ld.param.u64 %rd3, [c];
    ld.param.u32 %r2, [n];
    mov.u32 %r3, %ctaid.x;
    mov.u32 %r4, %ntid.x;
    mov.u32 %r5, %tid.x;
    mad.lo.s32 %r1, %r3, %r4, %r5;
    setp.ge.s32 %p1, %r1, %r2;
    @%p1 bra $L__BB0_2;
    cvta.to.global.u64 %rd4, %rd1;
    mul.wide.s32 %rd5, %r1, 4;
    add.s64 %rd6, %rd4, %rd5;
    cvta.to.global.u64 %rd7, %rd2;
    add.s64 %rd8, %rd7, %rd5;
    ld.global.f32 %f1, [%rd8];
    ld.global.f32 %f2, [%rd6];
    add.f32 %f3, %f2, %f1;
    cvta.to.global.u64 %rd9, %rd3;
    add.s64 %rd10, %rd9, %rd5;
    st.global.f32 [%rd10], %f3;
$L__BB0_2:
    ret;
}";

#[test]
fn vector_add_with_a_ragged_end() {
    let bench = Bench::new();
    let n = 1000;
    let a: Vec<f32> = (0..n).map(|i| i as f32 * 0.37).collect();
    let b: Vec<f32> = (0..n).map(|i| 100.0 - i as f32).collect();
    let (at, bt, ct) = (bench.put(&floats(&a)), bench.put(&floats(&b)), bench.put(&vec![0; n]));
    let args = Params::new().pointer(at).pointer(bt).pointer(ct).u32(n as u32);
    bench.run(VECTOR_ADD, "add", 8, 128, &args, Schedule::Eager);
    let wanted: Vec<f32> = a.iter().zip(&b).map(|(a, b)| a + b).collect();
    assert_eq!(bench.get(ct, n), floats(&wanted));
}

const REDUCE: &str = "
.visible .entry reduce(.param .u64 x, .param .u64 out)
{
    .reg .pred %p;
    .reg .b32 %t, %lane, %warp, %v, %o, %at, %b;
    .reg .b64 %rd<4>;
    .shared .align 4 .b8 sums[128];
    ld.param.u64 %rd0, [x];
    ld.param.u64 %rd1, [out];
    mov.u32 %t, %tid.x;
    mov.u32 %b, %ctaid.x;
    mad.lo.u32 %o, %b, 256, %t;
    mul.wide.u32 %rd2, %o, 4;
    add.u64 %rd0, %rd0, %rd2;
    ld.global.u32 %v, [%rd0];
    shfl.sync.down.b32 %o, %v, 16, 31, -1;
    add.u32 %v, %v, %o;
    shfl.sync.down.b32 %o, %v, 8, 31, -1;
    add.u32 %v, %v, %o;
    shfl.sync.down.b32 %o, %v, 4, 31, -1;
    add.u32 %v, %v, %o;
    shfl.sync.down.b32 %o, %v, 2, 31, -1;
    add.u32 %v, %v, %o;
    shfl.sync.down.b32 %o, %v, 1, 31, -1;
    add.u32 %v, %v, %o;
    and.b32 %lane, %t, 31;
    shr.u32 %warp, %t, 5;
    setp.ne.u32 %p, %lane, 0;
    @%p bra stored;
    mov.u32 %at, sums;
    mad.lo.u32 %at, %warp, 4, %at;
    st.shared.u32 [%at], %v;
stored:
    bar.sync 0;
    setp.ge.u32 %p, %t, 8;
    @%p bra done;
    mov.u32 %at, sums;
    mad.lo.u32 %at, %t, 4, %at;
    ld.shared.u32 %v, [%at];
    shfl.sync.bfly.b32 %o, %v, 4, 31, 255;
    add.u32 %v, %v, %o;
    shfl.sync.bfly.b32 %o, %v, 2, 31, 255;
    add.u32 %v, %v, %o;
    shfl.sync.bfly.b32 %o, %v, 1, 31, 255;
    add.u32 %v, %v, %o;
    setp.ne.u32 %p, %t, 0;
    @%p bra done;
    atom.global.add.u32 %o, [%rd1], %v;
done:
    ret;
}";

#[test]
fn reduction_over_warps_and_blocks() {
    let bench = Bench::new();
    for schedule in SCHEDULES {
        let x: Vec<u32> = (0..1024u32).map(|i| i.wrapping_mul(2_654_435_761)).collect();
        let (at, out) = (bench.put(&x), bench.put(&[0]));
        bench.run(REDUCE, "reduce", 4, 256, &Params::new().pointer(at).pointer(out), schedule);
        assert_eq!(bench.get(out, 1)[0], x.iter().fold(0, |sum: u32, x| sum.wrapping_add(*x)), "{schedule:?}");
    }
}

const TILED: &str = "
.visible .entry tiled(.param .u64 a, .param .u64 b, .param .u64 c, .param .u32 n)
{
    .reg .pred %p;
    .reg .b32 %tx, %ty, %row, %col, %n, %k, %i, %x, %sa, %sb, %pa, %pb;
    .reg .f32 %va, %vb, %sum;
    .reg .b64 %a, %b, %c, %o;
    .shared .align 16 .f32 tile_a[256];
    .shared .align 16 .f32 tile_b[256];
    ld.param.u64 %a, [a];
    ld.param.u64 %b, [b];
    ld.param.u64 %c, [c];
    ld.param.u32 %n, [n];
    mov.u32 %tx, %tid.x;
    mov.u32 %ty, %tid.y;
    mov.u32 %x, %ctaid.y;
    mad.lo.u32 %row, %x, 16, %ty;
    mov.u32 %x, %ctaid.x;
    mad.lo.u32 %col, %x, 16, %tx;
    mad.lo.u32 %x, %ty, 16, %tx;
    shl.b32 %x, %x, 2;
    mov.u32 %sa, tile_a;
    add.u32 %sa, %sa, %x;
    mov.u32 %sb, tile_b;
    add.u32 %sb, %sb, %x;
    mov.f32 %sum, 0f00000000;
    mov.u32 %k, 0;
outer:
    mad.lo.u32 %x, %row, %n, %k;
    add.u32 %x, %x, %tx;
    mul.wide.u32 %o, %x, 4;
    add.u64 %o, %o, %a;
    ld.global.f32 %va, [%o];
    st.shared.f32 [%sa], %va;
    add.u32 %x, %k, %ty;
    mad.lo.u32 %x, %x, %n, %col;
    mul.wide.u32 %o, %x, 4;
    add.u64 %o, %o, %b;
    ld.global.f32 %vb, [%o];
    st.shared.f32 [%sb], %vb;
    bar.sync 0;
    mov.u32 %i, 0;
inner:
    mad.lo.u32 %x, %ty, 16, %i;
    mov.u32 %pa, tile_a;
    mad.lo.u32 %pa, %x, 4, %pa;
    ld.shared.f32 %va, [%pa];
    mad.lo.u32 %x, %i, 16, %tx;
    mov.u32 %pb, tile_b;
    mad.lo.u32 %pb, %x, 4, %pb;
    ld.shared.f32 %vb, [%pb];
    fma.rn.f32 %sum, %va, %vb, %sum;
    add.u32 %i, %i, 1;
    setp.lt.u32 %p, %i, 16;
    @%p bra inner;
    bar.sync 0;
    add.u32 %k, %k, 16;
    setp.lt.u32 %p, %k, %n;
    @%p bra outer;
    mad.lo.u32 %x, %row, %n, %col;
    mul.wide.u32 %o, %x, 4;
    add.u64 %o, %o, %c;
    st.global.f32 [%o], %sum;
    ret;
}";

#[test]
fn tiled_product_through_shared_memory() {
    let bench = Bench::new();
    let n = 48usize;
    let a: Vec<f32> = (0..n * n).map(|i| ((i * 7 % 13) as f32 - 6.0) * 0.21).collect();
    let b: Vec<f32> = (0..n * n).map(|i| ((i * 5 % 11) as f32 - 5.0) * 0.37).collect();
    let mut wanted = vec![0.0f32; n * n];
    for row in 0..n {
        for column in 0..n {
            wanted[row * n + column] = (0..n).fold(0.0, |sum, k| a[row * n + k].mul_add(b[k * n + column], sum));
        }
    }
    let module = bench.emulator.load(&header(TILED)).unwrap();
    for schedule in SCHEDULES {
        let (at, bt, ct) = (bench.put(&floats(&a)), bench.put(&floats(&b)), bench.put(&vec![0; n * n]));
        let args = Params::new().pointer(at).pointer(bt).pointer(ct).u32(n as u32);
        let options = LaunchOptions { schedule, seed: 3, ..LaunchOptions::default() };
        bench.emulator.launch(&module, "tiled", Dim3::new(3, 3, 1), Dim3::new(16, 16, 1), &args, &options).unwrap();
        assert_eq!(bench.get(ct, n * n), floats(&wanted), "{schedule:?}");
    }
}

const HISTOGRAM: &str = "
.visible .entry histogram(.param .u64 x, .param .u64 bins, .param .u32 n)
{
    .reg .pred %p;
    .reg .b32 %t, %i, %step, %n, %v, %at, %old;
    .reg .b64 %x, %bins, %o;
    .shared .align 4 .u32 local[16];
    ld.param.u64 %x, [x];
    ld.param.u64 %bins, [bins];
    ld.param.u32 %n, [n];
    mov.u32 %t, %tid.x;
    setp.ge.u32 %p, %t, 16;
    mov.u32 %at, local;
    mad.lo.u32 %at, %t, 4, %at;
    @!%p st.shared.u32 [%at], 0;
    bar.sync 0;
    mov.u32 %i, %ctaid.x;
    mov.u32 %step, %ntid.x;
    mad.lo.u32 %i, %i, %step, %t;
    mov.u32 %v, %nctaid.x;
    mul.lo.u32 %step, %step, %v;
next:
    setp.ge.u32 %p, %i, %n;
    @%p bra counted;
    mul.wide.u32 %o, %i, 4;
    add.u64 %o, %o, %x;
    ld.global.u32 %v, [%o];
    and.b32 %v, %v, 15;
    mov.u32 %old, local;
    mad.lo.u32 %v, %v, 4, %old;
    red.shared.add.u32 [%v], 1;
    add.u32 %i, %i, %step;
    bra next;
counted:
    bar.sync 0;
    setp.ge.u32 %p, %t, 16;
    @%p bra done;
    mul.wide.u32 %o, %t, 4;
    add.u64 %o, %o, %bins;
    ld.shared.u32 %v, [%at];
    red.global.add.u32 [%o], %v;
done:
    ret;
}";

#[test]
fn histogram_with_atomics() {
    let bench = Bench::new();
    for schedule in SCHEDULES {
        let x: Vec<u32> = (0..777u32).map(|i| i.wrapping_mul(40503) >> 7).collect();
        let mut wanted = vec![0; 16];
        for value in &x {
            wanted[(value & 15) as usize] += 1;
        }
        let (at, bins) = (bench.put(&x), bench.put(&[0; 16]));
        bench.run(HISTOGRAM, "histogram", 3, 64, &Params::new().pointer(at).pointer(bins).u32(777), schedule);
        assert_eq!(bench.get(bins, 16), wanted, "{schedule:?}");
    }
}

const COLLATZ: &str = "
.visible .entry steps(.param .u64 x)
{
    .reg .pred %p, %odd;
    .reg .b32 %t, %v, %n, %b;
    .reg .b64 %x, %o;
    ld.param.u64 %x, [x];
    mov.u32 %t, %tid.x;
    mul.wide.u32 %o, %t, 4;
    add.u64 %x, %x, %o;
    ld.global.u32 %v, [%x];
    mov.u32 %n, 0;
loop:
    setp.le.u32 %p, %v, 1;
    @%p bra done;
    and.b32 %b, %v, 1;
    setp.eq.u32 %odd, %b, 1;
    @%odd bra up;
    shr.u32 %v, %v, 1;
    bra next;
up:
    mad.lo.u32 %v, %v, 3, 1;
next:
    add.u32 %n, %n, 1;
    bra loop;
done:
    st.global.u32 [%x], %n;
    ret;
}";

#[test]
fn lanes_that_part_in_a_loop_meet_again() {
    let bench = Bench::new();
    let x: Vec<u32> = (1..=64).collect();
    let at = bench.put(&x);
    bench.run(COLLATZ, "steps", 1, 64, &Params::new().pointer(at), Schedule::Eager);
    let steps = |mut v: u32| {
        let mut n = 0;
        while v > 1 {
            v = if v % 2 == 1 { 3 * v + 1 } else { v / 2 };
            n += 1;
        }
        n
    };
    assert_eq!(bench.get(at, 64), x.into_iter().map(steps).collect::<Vec<_>>());
}

const LOCK: &str = "
.visible .entry locked(.param .u64 lock, .param .u64 count)
{
    .reg .pred %p;
    .reg .b32 %old, %v;
    .reg .b64 %l, %c;
    ld.param.u64 %l, [lock];
    ld.param.u64 %c, [count];
try:
    atom.acquire.gpu.global.cas.b32 %old, [%l], 0, 1;
    setp.ne.u32 %p, %old, 0;
    @%p bra try;
    ld.relaxed.gpu.global.u32 %v, [%c];
    add.u32 %v, %v, 1;
    st.relaxed.gpu.global.u32 [%c], %v;
    atom.release.gpu.global.exch.b32 %old, [%l], 0;
    ret;
}";

#[test]
fn lanes_of_a_warp_may_wait_for_each_other() {
    let bench = Bench::new();
    for schedule in SCHEDULES {
        let (lock, count) = (bench.put(&[0]), bench.put(&[0]));
        bench.run(LOCK, "locked", 3, 64, &Params::new().pointer(lock).pointer(count), schedule);
        assert_eq!(bench.get(count, 1), [192], "{schedule:?}");
    }
}

const CALLS: &str = "
.global .align 4 .b8 text[12] = {120, 61, 37, 100, 32, 37, 46, 49, 102, 10, 0, 0};
.extern .func (.param .b32 r) vprintf(.param .b64 f, .param .b64 a);
.func (.param .b32 result) square_plus(.param .b32 x, .param .b32 y)
{
    .reg .pred %p;
    .reg .b32 %r<4>;
    ld.param.u32 %r0, [x];
    ld.param.u32 %r1, [y];
    setp.gt.u32 %p, %r0, 2;
    @%p bra large;
    st.param.b32 [result], %r1;
    ret;
large:
    mad.lo.u32 %r2, %r0, %r0, %r1;
    st.param.b32 [result], %r2;
    ret;
}
.visible .entry calls(.param .u64 out)
{
    .local .align 8 .b8 depot[16];
    .reg .pred %p;
    .reg .b32 %t, %v, %n;
    .reg .b64 %o, %out, %l, %g, %d;
    mov.u64 %l, depot;
    cvta.local.u64 %g, %l;
    ld.param.u64 %out, [out];
    mov.u32 %t, %tid.x;
    {
        .param .b32 p0;
        .param .b32 p1;
        .param .b32 r0;
        st.param.b32 [p0], %t;
        st.param.b32 [p1], 100;
        call.uni (r0), square_plus, (p0, p1);
        ld.param.b32 %v, [r0];
    }
    mul.wide.u32 %o, %t, 4;
    add.u64 %out, %out, %o;
    st.global.u32 [%out], %v;
    setp.ne.u32 %p, %t, 5;
    @%p bra done;
    st.local.u32 [%l], %v;
    mov.b64 %d, 0d3FF8000000000000;
    st.local.u64 [%l+8], %d;
    mov.u64 %o, text;
    cvta.global.u64 %o, %o;
    {
        .param .b64 p0;
        .param .b64 p1;
        .param .b32 r0;
        st.param.b64 [p0], %o;
        st.param.b64 [p1], %g;
        call.uni (r0), vprintf, (p0, p1);
        ld.param.b32 %n, [r0];
    }
done:
    ret;
}";

#[test]
fn device_functions_and_printf() {
    let bench = Bench::new();
    let out = bench.put(&[0; 8]);
    let report = bench.run(CALLS, "calls", 1, 8, &Params::new().pointer(out), Schedule::Eager);
    assert_eq!(bench.get(out, 8), [100, 100, 100, 109, 116, 125, 136, 149]);
    assert_eq!(report.output, "x=125 1.5\n");
}

#[test]
fn a_warp_can_be_traced() {
    let bench = Bench::new();
    let x: Vec<u32> = (1..=64).collect();
    let at = bench.put(&x);
    let module = bench.emulator.load(&header(COLLATZ)).unwrap();
    let options = LaunchOptions { trace: Some((0, 1)), ..LaunchOptions::default() };
    let args = Params::new().pointer(at);
    let report = bench.emulator.launch(&module, "steps", Dim3::ONE, Dim3::from(64), &args, &options).unwrap();
    assert!(report.trace.iter().any(|line| line.contains("ld.global.u32  %v = 21 22 23")), "{:?}", &report.trace[..8]);
    let end = report.trace.iter().find(|line| line.contains("st.global")).unwrap();
    assert!(end.contains("ffffffff"), "lanes met again before the store: {end}");
}
