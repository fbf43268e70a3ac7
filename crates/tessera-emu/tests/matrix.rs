//! Matrix instructions against products computed from the fragment layouts of the PTX manual.

use tessera_driver::{DevicePtr, Dim3, Params};
use tessera_emu::{EmuOptions, Emulator, LaunchOptions, Schedule};

fn run(ptx: &str, kernel: &str, block: u32, shared_bytes: u32, args: &Params, emulator: &Emulator, schedule: Schedule) {
    let text = format!(".version 8.4\n.target sm_90a\n.address_size 64\n{ptx}");
    let module = emulator.load(&text).unwrap_or_else(|error| panic!("{error}\n{text}"));
    let options = LaunchOptions { schedule, shared_bytes, seed: 5, ..LaunchOptions::default() };
    emulator.launch(&module, kernel, Dim3::ONE, Dim3::from(block), args, &options).unwrap_or_else(|error| panic!("{error}"));
}

fn put(emulator: &Emulator, bytes: &[u8]) -> DevicePtr {
    let at = emulator.alloc(bytes.len() as u64).unwrap();
    emulator.write(at, bytes).unwrap();
    at
}

fn words(emulator: &Emulator, at: DevicePtr, count: usize) -> Vec<u32> {
    let mut bytes = vec![0; count * 4];
    emulator.read(at, &mut bytes).unwrap();
    bytes.chunks_exact(4).map(|word| u32::from_le_bytes([word[0], word[1], word[2], word[3]])).collect()
}

/// Small integers that every format holds, as codes.
struct Format {
    name: &'static str,
    bits: usize,
    code: fn(i32) -> u32,
}

fn bf16(value: i32) -> u32 {
    (value as f32).to_bits() >> 16
}

fn f16(value: i32) -> u32 {
    let bits = (value as f32).to_bits();
    if value == 0 { 0 } else { (bits >> 16 & 0x8000) | ((bits >> 13 & 0x3ffff) - (112 << 10)) & 0x7fff }
}

fn e4m3(value: i32) -> u32 {
    let bits = (value as f32).to_bits();
    if value == 0 { 0 } else { (bits >> 24 & 0x80) | ((bits >> 20 & 0x7ff) - (120 << 3)) & 0x7f }
}

fn tf32(value: i32) -> u32 {
    (value as f32).to_bits()
}

fn s8(value: i32) -> u32 {
    value as u32 & 0xff
}

fn s4(value: i32) -> u32 {
    value as u32 & 0xf
}

const FORMATS: [Format; 6] = [
    Format { name: "bf16", bits: 16, code: bf16 },
    Format { name: "f16", bits: 16, code: f16 },
    Format { name: "e4m3", bits: 8, code: e4m3 },
    Format { name: "tf32", bits: 32, code: tf32 },
    Format { name: "s8", bits: 8, code: s8 },
    Format { name: "s4", bits: 4, code: s4 },
];

fn format(name: &str) -> &'static Format {
    FORMATS.iter().find(|format| format.name == name).unwrap()
}

fn value(row: usize, column: usize, salt: usize) -> i32 {
    ((row * 31 + column * 17 + salt * 7) % 13) as i32 % 7 - 3
}

/// Each lane loads its registers of A, B and C as 32-bit words, lane by lane.
fn mma_kernel(shape: &str, types: &str, a: usize, b: usize, float: bool) -> String {
    let list = |prefix: &str, count: usize| (0..count).map(|i| format!("%{prefix}{i}")).collect::<Vec<_>>().join(", ");
    let mut body = String::new();
    for (prefix, count, pointer) in [("a", a, "pa"), ("b", b, "pb"), ("c", 4, "pc")] {
        for i in 0..count {
            body += &format!("    ld.global.b32 %{prefix}{i}, [%{pointer}+{}];\n", i * 4);
        }
    }
    for i in 0..4 {
        body += &format!("    mov.b32 %d{i}, %c{i};\n");
    }
    let stores: String = (0..4).map(|i| format!("    st.global.b32 [%pc+{}], %d{i};\n", i * 4)).collect();
    let d = if float { "f32" } else { "b32" };
    format!(
        ".visible .entry product(.param .u64 a, .param .u64 b, .param .u64 c)
{{
    .reg .b32 %t, %a<4>, %b<2>, %c<4>;
    .reg .{d} %d<4>;
    .reg .b64 %pa, %pb, %pc, %o;
    mov.u32 %t, %tid.x;
    ld.param.u64 %pa, [a];
    ld.param.u64 %pb, [b];
    ld.param.u64 %pc, [c];
    mul.wide.u32 %o, %t, {};
    add.u64 %pa, %pa, %o;
    mul.wide.u32 %o, %t, {};
    add.u64 %pb, %pb, %o;
    mul.wide.u32 %o, %t, 16;
    add.u64 %pc, %pc, %o;
{body}    mma.sync.aligned.{shape}.row.col.{types} {{{}}}, {{{}}}, {{{}}}, {{{}}};
{stores}    ret;
}}",
        a * 4,
        b * 4,
        list("d", 4),
        list("a", a),
        list("b", b),
        list("d", 4)
    )
}

#[test]
fn mma_of_each_format() {
    let cases = [
        ("m16n8k16", 16, "f32.bf16.bf16.f32", "bf16", 4, 2),
        ("m16n8k8", 8, "f32.bf16.bf16.f32", "bf16", 2, 1),
        ("m16n8k16", 16, "f32.f16.f16.f32", "f16", 4, 2),
        ("m16n8k8", 8, "f32.tf32.tf32.f32", "tf32", 4, 2),
        ("m16n8k4", 4, "f32.tf32.tf32.f32", "tf32", 2, 1),
        ("m16n8k32", 32, "f32.e4m3.e4m3.f32", "e4m3", 4, 2),
        ("m16n8k32", 32, "s32.s8.s8.s32", "s8", 4, 2),
        ("m16n8k16", 16, "s32.s8.s8.s32", "s8", 2, 1),
        ("m16n8k64", 64, "s32.s4.s4.s32", "s4", 4, 2),
    ];
    for (shape, k, types, name, a_regs, b_regs) in cases {
        let Format { bits, code, .. } = *format(name);
        let each = 32 / bits;
        let float = types.starts_with('f');
        let start = |row: usize, column: usize| value(row, column, 5) * 2;
        let mut a = vec![0u32; 32 * a_regs];
        let mut b = vec![0u32; 32 * b_regs];
        let mut c = vec![0u32; 32 * 4];
        for lane in 0..32 {
            let (g, t) = (lane / 4, lane % 4);
            for element in 0..each {
                // The manual's rule for A: registers alternate between rows g and g + 8, then step along K.
                for reg in 0..a_regs {
                    let (row, column) = (g + 8 * (reg % 2), (reg / 2) * 4 * each + t * each + element);
                    a[lane * a_regs + reg] |= code(value(row, column, 1)) << (element * bits);
                }
                for reg in 0..b_regs {
                    b[lane * b_regs + reg] |= code(value(reg * 4 * each + t * each + element, g, 2)) << (element * bits);
                }
            }
            for i in 0..4 {
                let sum = start(g + 8 * (i / 2), 2 * t + i % 2);
                c[lane * 4 + i] = if float { (sum as f32).to_bits() } else { sum as u32 };
            }
        }
        let bytes = |words: &[u32]| words.iter().flat_map(|word| word.to_le_bytes()).collect::<Vec<_>>();
        let emulator = Emulator::new(&EmuOptions::default()).unwrap();
        let (pa, pb, pc) = (put(&emulator, &bytes(&a)), put(&emulator, &bytes(&b)), put(&emulator, &bytes(&c)));
        let args = Params::new().pointer(pa).pointer(pb).pointer(pc);
        run(&mma_kernel(shape, types, a_regs, b_regs, float), "product", 32, 0, &args, &emulator, Schedule::Eager);
        let found = words(&emulator, pc, 128);
        for lane in 0..32 {
            for i in 0..4 {
                let (row, column) = (lane / 4 + 8 * (i / 2), 2 * (lane % 4) + i % 2);
                let sum = (0..k).fold(start(row, column), |sum, at| sum + value(row, at, 1) * value(at, column, 2));
                let wanted = if float { (sum as f32).to_bits() } else { sum as u32 };
                assert_eq!(found[lane * 4 + i], wanted, "{shape}.{types} ({row}, {column})");
            }
        }
    }
}

/// `cp.async` brings a 32 x 16 matrix of 16-bit values, `ldmatrix` reads its four 8 x 8 parts of the first 16 rows, `stmatrix`
/// writes them elsewhere, both plain and transposed.
#[test]
fn matrices_through_shared_memory() {
    for transpose in ["", ".trans"] {
        let ptx = format!(
            ".visible .entry move(.param .u64 from, .param .u64 to)
{{
    .reg .b32 %t, %at, %row, %half, %r<4>, %base;
    .reg .b64 %from, %to, %o;
    .shared .align 16 .b8 tile[512];
    .shared .align 16 .b8 copy[512];
    mov.u32 %t, %tid.x;
    ld.param.u64 %from, [from];
    ld.param.u64 %to, [to];
    mul.wide.u32 %o, %t, 16;
    add.u64 %from, %from, %o;
    add.u64 %to, %to, %o;
    mov.u32 %base, tile;
    mad.lo.u32 %at, %t, 16, %base;
    cp.async.cg.shared.global [%at], [%from], 16;
    cp.async.commit_group;
    cp.async.wait_group 0;
    bar.warp.sync -1;
    and.b32 %row, %t, 15;
    shr.u32 %half, %t, 4;
    mad.lo.u32 %at, %row, 32, %base;
    mad.lo.u32 %at, %half, 16, %at;
    ldmatrix.sync.aligned.m8n8.x4{transpose}.shared.b16 {{%r0, %r1, %r2, %r3}}, [%at];
    mov.u32 %base, copy;
    mad.lo.u32 %at, %row, 32, %base;
    mad.lo.u32 %at, %half, 16, %at;
    stmatrix.sync.aligned.m8n8.x4.shared.b16 [%at], {{%r0, %r1, %r2, %r3}};
    bar.warp.sync -1;
    mad.lo.u32 %at, %t, 16, %base;
    ld.shared.v4.b32 {{%r0, %r1, %r2, %r3}}, [%at];
    st.global.v4.b32 [%to], {{%r0, %r1, %r2, %r3}};
    ret;
}}"
        );
        for schedule in [Schedule::Eager, Schedule::Lazy, Schedule::Random] {
            let emulator = Emulator::new(&EmuOptions::default()).unwrap();
            let data: Vec<u16> = (0..256).collect();
            let from = put(&emulator, &data.iter().flat_map(|value| value.to_le_bytes()).collect::<Vec<_>>());
            let to = put(&emulator, &[0; 512]);
            run(&ptx, "move", 32, 0, &Params::new().pointer(from).pointer(to), &emulator, schedule);
            let found = words(&emulator, to, 128);
            for row in 0..16 {
                for column in 0..16 {
                    let value = found[(row * 16 + column) / 2] >> (16 * (column % 2)) & 0xffff;
                    // Transposing swaps inside each 8 x 8 part.
                    let (r, c) =
                        if transpose.is_empty() { (row, column) } else { (row / 8 * 8 + column % 8, column / 8 * 8 + row % 8) };
                    assert_eq!(value as usize, r * 16 + c, "{schedule:?} {transpose} ({row}, {column})");
                }
            }
        }
    }
}

#[test]
fn a_missing_wait_shows_under_the_lazy_schedule() {
    let ptx = "
.visible .entry early(.param .u64 from, .param .u64 to)
{
    .reg .b32 %t, %at, %v;
    .reg .b64 %from, %to, %o;
    .shared .align 16 .b8 tile[512];
    mov.u32 %t, %tid.x;
    ld.param.u64 %from, [from];
    ld.param.u64 %to, [to];
    mul.wide.u32 %o, %t, 4;
    add.u64 %from, %from, %o;
    add.u64 %to, %to, %o;
    mov.u32 %at, tile;
    mad.lo.u32 %at, %t, 4, %at;
    cp.async.ca.shared.global [%at], [%from], 4;
    cp.async.commit_group;
    cp.async.wait_group 1;
    ld.shared.u32 %v, [%at];
    st.global.u32 [%to], %v;
    ret;
}";
    let right = |schedule: Schedule| {
        let emulator = Emulator::new(&EmuOptions::default()).unwrap();
        let (from, to) = (put(&emulator, &[7; 128]), put(&emulator, &[0; 128]));
        run(ptx, "early", 32, 0, &Params::new().pointer(from).pointer(to), &emulator, schedule);
        words(&emulator, to, 32) == words(&emulator, from, 32)
    };
    assert!(right(Schedule::Eager));
    assert!(!right(Schedule::Lazy));
}

/// A warpgroup product of one instruction: A and B are laid out by the test, plainly and swizzled, K- and MN-major.
struct Wgmma {
    name: &'static str,
    k: usize,
    n: usize,
    swizzle: usize,
    transpose: bool,
}

/// Where element (i, k) of an operand lies, from the definition of the canonical layouts: an 8 x (swizzle span) atom, atoms of
/// 8 rows behind one another, atoms along the contiguous dimension behind all of those.
fn offset(case: &Wgmma, rows: usize, i: usize, k: usize) -> usize {
    let bytes = format(case.name).bits / 8;
    let span = case.swizzle.max(16);
    let (strip, along, length) = if case.transpose { (k, i * bytes, case.k) } else { (i, k * bytes, rows) };
    let linear = along / span * (length * span) + strip * span + along % span;
    let mask = span / 16 - 1;
    linear ^ ((linear >> 7 & mask) << 4)
}

fn descriptor(case: &Wgmma, rows: usize) -> u64 {
    let span = case.swizzle.max(16);
    let length = if case.transpose { case.k } else { rows };
    // Eight strips, and the whole slab.
    let (eight, slab) = ((8 * span) as u64, (length * span) as u64);
    // Without a swizzle the offsets' roles depend on what is contiguous.
    let (leading, stride) = if case.swizzle == 0 && case.transpose { (eight, slab) } else { (slab, eight) };
    let mode = match case.swizzle {
        0 => 0,
        32 => 3,
        64 => 2,
        _ => 1u64,
    };
    (leading >> 4) << 16 | (stride >> 4) << 32 | mode << 62
}

#[test]
fn wgmma_layouts() {
    let case = |name, k, n, swizzle, transpose| Wgmma { name, k, n, swizzle, transpose };
    let cases = [
        case("bf16", 16, 64, 0, false),
        case("bf16", 16, 96, 32, false),
        case("bf16", 16, 24, 0, true),
        case("bf16", 16, 64, 32, true),
        case("bf16", 16, 128, 64, true),
        case("f16", 16, 256, 128, true),
        case("e4m3", 32, 40, 32, false),
        case("s8", 32, 32, 0, false),
        case("tf32", 8, 8, 32, false),
    ];
    for case in &cases {
        let Format { bits, code, .. } = *format(case.name);
        let (m, n, k) = (64, case.n, case.k);
        let mut a = vec![0u8; 4096 * 4];
        let mut b = vec![0u8; 4096 * 4];
        for (memory, rows, salt) in [(&mut a, m, 1), (&mut b, n, 2)] {
            for i in 0..rows {
                for at in 0..k {
                    let to = offset(case, rows, i, at);
                    let word = code(value(i, at, salt)).to_le_bytes();
                    memory[to..to + bits / 8].copy_from_slice(&word[..bits / 8]);
                }
            }
        }
        let float = case.name != "s8";
        let regs = n / 2;
        let list = (0..regs).map(|i| format!("%d{i}")).collect::<Vec<_>>().join(", ");
        let zeros: String = (0..regs).map(|i| format!("    mov.b32 %d{i}, 0;\n")).collect();
        let stores: String = (0..regs).map(|i| format!("    st.global.b32 [%pc+{}], %d{i};\n", i * 4)).collect();
        let (d, types, rest) = match (float, bits) {
            (false, _) => ("b32", "s32.s8.s8".to_owned(), String::new()),
            (true, 16) => ("f32", format!("f32.{0}.{0}", case.name), format!(", 1, 1, {0}, {0}", u32::from(case.transpose))),
            (true, _) => ("f32", format!("f32.{0}.{0}", case.name), ", 1, 1".to_owned()),
        };
        let ptx = format!(
            ".extern .shared .align 1024 .b8 dynamic[];
.visible .entry product(.param .u64 a, .param .u64 b, .param .u64 c)
{{
    .reg .pred %p, %yes;
    .reg .b32 %t, %i, %at, %base, %v;
    .reg .{d} %d<{regs}>;
    .reg .b64 %pa, %pb, %pc, %o, %q, %da, %db;
    mov.u32 %t, %tid.x;
    mov.u32 %base, dynamic;
    ld.param.u64 %pa, [a];
    ld.param.u64 %pb, [b];
    ld.param.u64 %pc, [c];
    mov.u32 %i, %t;
copy:
    mul.wide.u32 %o, %i, 4;
    add.u64 %q, %pa, %o;
    ld.global.b32 %v, [%q];
    mad.lo.u32 %at, %i, 4, %base;
    st.shared.b32 [%at], %v;
    add.u64 %q, %pb, %o;
    ld.global.b32 %v, [%q];
    st.shared.b32 [%at+16384], %v;
    add.u32 %i, %i, 128;
    setp.lt.u32 %p, %i, 4096;
    @%p bra copy;
    fence.proxy.async.shared::cta;
    bar.sync 0;
    shr.u32 %at, %base, 4;
    cvt.u64.u32 %o, %at;
    or.b64 %da, %o, {};
    add.u32 %at, %base, 16384;
    shr.u32 %at, %at, 4;
    cvt.u64.u32 %o, %at;
    or.b64 %db, %o, {};
    mov.pred %yes, 1;
{zeros}    wgmma.fence.sync.aligned;
    wgmma.mma_async.sync.aligned.m64n{n}k{k}.{types} {{{list}}}, %da, %db, !%yes{rest};
    wgmma.mma_async.sync.aligned.m64n{n}k{k}.{types} {{{list}}}, %da, %db, %yes{rest};
    wgmma.commit_group.sync.aligned;
    wgmma.wait_group.sync.aligned 0;
    mul.wide.u32 %o, %t, {};
    add.u64 %pc, %pc, %o;
{stores}    ret;
}}",
            descriptor(case, m),
            descriptor(case, n),
            regs * 4
        );
        for schedule in [Schedule::Eager, Schedule::Lazy, Schedule::Random] {
            let emulator = Emulator::new(&EmuOptions::default()).unwrap();
            let (pa, pb, pc) = (put(&emulator, &a), put(&emulator, &b), put(&emulator, &vec![0; 128 * regs * 4]));
            let args = Params::new().pointer(pa).pointer(pb).pointer(pc);
            run(&ptx, "product", 128, 32768, &args, &emulator, schedule);
            let found = words(&emulator, pc, 128 * regs);
            for thread in 0..128 {
                for i in 0..regs {
                    let row = 16 * (thread / 32) + thread % 32 / 4 + 8 * (i / 2 % 2);
                    let column = 8 * (i / 4) + 2 * (thread % 4) + i % 2;
                    let sum = 2 * (0..k).map(|at| value(row, at, 1) * value(column, at, 2)).sum::<i32>();
                    let wanted = if float { (sum as f32).to_bits() } else { sum as u32 };
                    assert_eq!(found[thread * regs + i], wanted, "{} {} {schedule:?} ({row}, {column})", case.name, case.swizzle);
                }
            }
        }
    }
}
