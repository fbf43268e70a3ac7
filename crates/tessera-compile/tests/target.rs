//! Kernels through the whole road to PTX, executed by the emulator, against the CPU executor; and assembled without spills.

use arbtest::arbtest;
use tessera_compile::{CompileOptions, Compiled, OptLevel, compile, compile_for, compile_module, generate};
use tessera_ir::IndexType;
use tessera_ir::text::print_module;
use tessera_lang::{ArgType, parse_file};
use tessera_types::{Arch, DType};

use crate::devices::{self, Data, Launch, assembles, on_cpu, on_emulator, same};

/// Runs a kernel of the language on both and compares every array.
fn agrees(source: &str, args: &[(&str, ArgType)], data: &[Data], grid: [u32; 3]) {
    near(source, args, data, grid, 0.0);
}

/// The same for kernels whose floats may be rounded otherwise.
fn near(source: &str, args: &[(&str, ArgType)], data: &[Data], grid: [u32; 3], tolerance: f64) {
    let compiled = compiled(source, args);
    let launch = Launch { compiled: &compiled, grid };
    let mut cpu = data.to_vec();
    on_cpu(&launch, &mut cpu).unwrap_or_else(|error| panic!("{error}"));
    for arch in [Arch::Sm80, Arch::Sm90a] {
        let mut emulated = data.to_vec();
        if let Err(error) = on_emulator(&launch, arch, &mut emulated) {
            if error.contains("not executed yet") {
                println!("skipped: the emulator does not execute an instruction of this kernel");
                continue;
            }
            panic!("{arch}: {error}\n{}", print_module(&compiled.module));
        }
        for (position, (cpu, emulated)) in cpu.iter().zip(&emulated).enumerate() {
            if let Err(difference) = same(cpu, emulated, tolerance) {
                panic!("{arch}: argument {position}: {difference}\n{}", print_module(&compiled.module));
            }
        }
    }
    assembles(&compiled);
}

fn compiled(source: &str, args: &[(&str, ArgType)]) -> Compiled {
    let file = parse_file("kernel.py", source);
    let args: Vec<(String, ArgType)> = args.iter().map(|(name, ty)| (name.to_string(), ty.clone())).collect();
    compile(&file, "kernel", &args, &CompileOptions::default())
        .unwrap_or_else(|found| panic!("{}", found[0].render(&file.sources, false)))
}

/// An array of which nothing is known but its rank and unit stride.
fn array(dtype: DType, rank: usize) -> ArgType {
    match ArgType::array(dtype, rank) {
        ArgType::Array { dtype, shape, strides, index, disjoint, .. } => ArgType::Array {
            dtype,
            shape,
            strides,
            align: dtype.unpacked_bytes() as u32,
            lines: dtype.unpacked_bytes() as u32,
            index,
            disjoint,
        },
        other => other,
    }
}

const HEAD: &str = "import cuda.tile as ct\n\n";

#[test]
fn elementwise_arithmetic_of_every_float() {
    for dtype in [DType::F32, DType::F64, DType::F16, DType::BF16] {
        let source = format!(
            "{HEAD}@ct.kernel\ndef kernel(x, y, out):\n    i = ct.bid(0)\n    a = ct.load(x, (i,), (64,))\n    b = ct.load(y, (i,), (64,))\n\
             \x20   r = ct.where(a > b, a * b + a, a / b - b) + ct.maximum(a, -b) - ct.sqrt(ct.abs(a)) + ct.floor(b)\n    ct.store(out, (i,), r)\n"
        );
        let array = array(dtype, 1);
        let data = [Data::floats(dtype, &[200], 1), Data::floats(dtype, &[200], 2), Data::zeros(dtype, &[200])];
        agrees(&source, &[("x", array.clone()), ("y", array.clone()), ("out", array)], &data, [4, 1, 1]);
    }
}

#[test]
fn views_in_other_orders_with_wide_indices_and_padding() {
    for (dtype, index) in [(DType::F32, IndexType::I64), (DType::BF16, IndexType::I32), (DType::I8, IndexType::I64)] {
        let wide = |rank| match array(dtype, rank) {
            ArgType::Array { dtype, shape, strides, align, lines, disjoint, .. } => {
                ArgType::Array { dtype, shape, strides, align, lines, disjoint, index }
            }
            other => other,
        };
        let fill = |sizes: &[i64]| if dtype.is_float() { Data::floats(dtype, sizes, 3) } else { Data::ints(dtype, sizes, 3) };
        for lines in [
            "i = ct.bid(0)\nt = ct.load(x, (0, i, 0), (2, 16, 32), padding_mode=ct.PaddingMode.ZERO)\nct.store(out, (0, i, 0), t)",
            "i = ct.bid(0)\nt = ct.load(x, (0, i, 0), (32, 16, 2), order=(2, 1, 0), padding_mode=ct.PaddingMode.ZERO)\nct.store(out, (0, i, 0), t, order=(2, 1, 0))",
            "i = ct.bid(0)\nt = ct.load(x, (i, 0, 0), (1, 8, 64), padding_mode=ct.PaddingMode.ZERO)\nct.store(out, (i, 0, 0), t + t)",
            "i = ct.bid(0)\nr = ct.arange(16, dtype=ct.int32) * 3 % 17\nt = ct.load_advanced_indexing(x, (ct.Slice(0, 2), r, ct.Slice(0, 32)), padding_mode=ct.PaddingMode.ZERO)\nct.store(out, (0, i, 0), t)",
        ] {
            println!("{dtype}: {lines}");
            let args = [("x", wide(3)), ("y", array(DType::F32, 1)), ("out", wide(3))];
            let data = [fill(&[2, 20, 40]), Data::zeros(DType::F32, &[1]), Data::zeros(dtype, &[2, 24, 48])];
            agrees(&body(lines), &args, &data, [2, 1, 1]);
        }
    }
}

#[test]
fn elements_that_share_bytes() {
    for dtype in [DType::F4E2M1, DType::F6E2M3, DType::F6E3M2, DType::I4] {
        let wide = if dtype == DType::I4 { DType::I8 } else { DType::F32 };
        let bytes = (200 * dtype.bits() as usize).div_ceil(8);
        let packed = |fill: bool| Data::Array {
            dtype: DType::I8,
            bytes: (0..bytes).map(|i| if fill { (i * 37 + 11) as u8 } else { 0 }).collect(),
            sizes: vec![200],
        };
        let open = match array(dtype, 1) {
            ArgType::Array { dtype, shape, strides, index, disjoint, .. } => {
                ArgType::Array { dtype, shape, strides, align: 1, lines: 1, index, disjoint }
            }
            other => other,
        };
        let source = body(
            "i = ct.bid(0)\nt = ct.load(x, (i,), (64,))\nct.store(y, (i,), t.astype(y.dtype))\nct.store(out, (i,), (t.astype(y.dtype) * 2).astype(out.dtype))",
        );
        let data = [packed(true), Data::zeros(wide, &[200]), packed(false)];
        println!("{dtype}");
        agrees(&source, &[("x", open.clone()), ("y", array(wide, 1)), ("out", open)], &data, [4, 1, 1]);
    }
}

#[test]
fn a_block_does_once_what_it_does_with_scalars() {
    let source = body(
        "n = ct.atomic_add(out, (0, 0), 1)\nm = ct.atomic_cas(out, (0, 1), 0, 5)\nct.atomic_max(out, (0, 2), n)\nct.scatter(out, (1, n), n + m)\n\
         t = ct.load(x, (0, 0), (8, 8))\nct.store(x, (0, 0), t + 1)\nu = ct.load(x, (0, 0), (4, 8))\nct.store(out, (1, 0), ct.sum(u, 0).reshape((1, 8)))",
    );
    let args = [("x", array(DType::I32, 2)), ("y", array(DType::I32, 1)), ("out", array(DType::I32, 2))];
    let data = [Data::ints(DType::I32, &[8, 8], 1), Data::zeros(DType::I32, &[1]), Data::zeros(DType::I32, &[2, 8])];
    agrees(&source, &args, &data, [1, 1, 1]);
}

/// The text of a kernel's instructions on a target.
fn instructions(source: &str, args: &[(&str, ArgType)], arch: Arch) -> String {
    let made =
        compile_for(&compiled(source, args), arch, OptLevel::default()).unwrap_or_else(|found| panic!("{}", found[0].message));
    made.kernel.ptx()
}

/// Numbers that stand in words are added and multiplied two at a time, with the bits that one at a time gives: zeros of both signs, infinities,
/// NaN, numbers that overflow and that are subnormal are all there.
#[test]
fn arithmetic_of_halves_in_words() {
    for (dtype, pair) in [(DType::F16, "f16x2"), (DType::BF16, "bf16x2")] {
        let source = body(
            "i = ct.bid(0)\na = ct.load(x, (i,), (2048,))\nb = ct.load(y, (i,), (2048,))\n\
             for n, r in ct.static_iter([(0, a + b), (1, a - b), (2, a * b), (3, 0.0 - a), (4, a * b + a)]):\n\
             \x20   ct.store(out, (n, i), r.reshape((1, 2048)))",
        );
        let args = [("x", ArgType::array(dtype, 1)), ("y", ArgType::array(dtype, 1)), ("out", ArgType::array(dtype, 2))];
        let codes = |step: u64| Data::codes(dtype, &[16384], move |at| (at as u64 * step) & 0xffff);
        agrees(&source, &args, &[codes(40503), codes(30011), Data::zeros(dtype, &[5, 16384])], [8, 1, 1]);
        for arch in [Arch::Sm80, Arch::Sm90a] {
            let text = instructions(&source, &args, arch);
            assert!(text.contains(&format!("fma.rn.{pair}")) && !text.contains("cvt.rn"), "{text}");
        }
    }
}

/// A product and a sum in one are rounded once, also where 64 bits do not hold the sum: 7 x 37 - 2^-60 lies below the middle of 258 and 260.
#[test]
fn a_multiply_add_is_rounded_once() {
    let source = body(
        "a = ct.load(x, (0,), (32,))\nc = ct.load(x, (1,), (32,))\nb = ct.load(y, (0,), (32,))\nct.store(out, (0,), a * b + c)",
    );
    let dtype = DType::BF16;
    let args = [("x", ArgType::array(dtype, 1)), ("y", ArgType::array(dtype, 1)), ("out", ArgType::array(dtype, 1))];
    let compiled = compiled(&source, &args);
    let launch = Launch { compiled: &compiled, grid: [1, 1, 1] };
    let [seven, tiny, other, wanted] = [0x40e0, 0xa180, 0x4214, 0x4381];
    let data = [
        Data::codes(dtype, &[64], |at| if at < 32 { seven } else { tiny }),
        Data::codes(dtype, &[32], |_| other),
        Data::zeros(dtype, &[32]),
    ];
    let right = Data::codes(dtype, &[32], |_| wanted);
    let mut cpu = data.to_vec();
    on_cpu(&launch, &mut cpu).unwrap_or_else(|error| panic!("{error}"));
    same(&right, &cpu[2], 0.0).unwrap_or_else(|difference| panic!("on the CPU: {difference}"));
    for arch in [Arch::Sm75, Arch::Sm80, Arch::Sm90a] {
        let mut emulated = data.to_vec();
        on_emulator(&launch, arch, &mut emulated).unwrap_or_else(|error| panic!("{arch}: {error}"));
        same(&right, &emulated[2], 0.0).unwrap_or_else(|difference| panic!("{arch}: {difference}"));
    }
}

/// Words whose halves integers make are pairs of numbers as they are.
#[test]
fn halves_of_words_are_numbers() {
    for (dtype, bits, least) in [(DType::BF16, 0x4300_4300_u32, 128), (DType::F16, 0x6400_6400, 1024)] {
        let source = body(&format!(
            "i = ct.bid(0)\nwords = ct.load(x, (i,), (1024,)) & 0x000f000f | {bits}\n\
             halves = (words.reshape((1024, 1)) >> 16 * ct.arange(2, dtype=ct.int32)).astype(ct.int16)\n\
             r = ct.bitcast(halves, out.dtype) - ct.full((1024, 2), {least}, out.dtype)\nct.store(out, (i,), r.reshape((2048,)))"
        ));
        let args =
            [("x", ArgType::array(DType::I32, 1)), ("y", ArgType::array(DType::I32, 1)), ("out", ArgType::array(dtype, 1))];
        let data = [Data::ints(DType::I32, &[4096], 5), Data::zeros(DType::I32, &[1]), Data::zeros(dtype, &[8192])];
        agrees(&source, &args, &data, [4, 1, 1]);
        let text = instructions(&source, &args, Arch::Sm90a);
        assert!(text.contains("fma.rn.") && !text.contains("cvt."), "{text}");
    }
}

fn body(lines: &str) -> String {
    let lines: String = lines.lines().map(|line| format!("    {line}\n")).collect();
    format!("{HEAD}@ct.kernel\ndef kernel(x, y, out):\n{lines}")
}

const FLOATS: [DType; 4] = [DType::F32, DType::F64, DType::F16, DType::BF16];
const INTS: [DType; 8] = [DType::I8, DType::U8, DType::I16, DType::U16, DType::I32, DType::U32, DType::I64, DType::U64];

#[test]
fn integer_arithmetic_of_every_width() {
    for dtype in INTS {
        let source = body(
            "i = ct.bid(0)\na = ct.load(x, (i,), (64,))\nb = ct.load(y, (i,), (64,))\nc = b | 1\n\
             r = (a // c) ^ (a % c) ^ ct.maximum(a, b) ^ (ct.minimum(a, b) * b) ^ (a << (b & 7)) ^ (a >> (b & 7)) ^ ct.where(a < b, a, -b)\n\
             ct.store(out, (i,), r)",
        );
        let array = array(dtype, 1);
        let data = [Data::ints(dtype, &[200], 1), Data::ints(dtype, &[200], 2), Data::zeros(dtype, &[200])];
        agrees(&source, &[("x", array.clone()), ("y", array.clone()), ("out", array)], &data, [4, 1, 1]);
    }
}

#[test]
fn conversions_between_all_numbers() {
    let small = [DType::F8E4M3, DType::F8E5M2, DType::TF32];
    for from in FLOATS.into_iter().chain(small).chain(INTS) {
        for to in FLOATS.into_iter().chain(small).chain(INTS) {
            if from == to || (from == DType::F64) == (to == DType::F8E5M2) && from == DType::F64 {
                continue;
            }
            let source = body("i = ct.bid(0)\nct.store(out, (i,), ct.load(x, (i,), (64,)).astype(out.dtype))");
            let input = if from.is_float() { Data::floats(from, &[200], 3) } else { Data::ints(from, &[200], 4) };
            let data = [input, Data::zeros(DType::F32, &[1]), Data::zeros(to, &[200])];
            let args = [("x", array(from, 1)), ("y", array(DType::F32, 1)), ("out", array(to, 1))];
            println!("{from} to {to}");
            run_only(&source, &args, &data, [4, 1, 1]);
        }
    }
}

/// Runs on the newest emulated target alone.
fn run_only(source: &str, args: &[(&str, ArgType)], data: &[Data], grid: [u32; 3]) {
    let compiled = compiled(source, args);
    let launch = Launch { compiled: &compiled, grid };
    let mut cpu = data.to_vec();
    on_cpu(&launch, &mut cpu).unwrap_or_else(|error| panic!("{error}"));
    for arch in [Arch::Sm80, Arch::Sm90a] {
        let mut emulated = data.to_vec();
        on_emulator(&launch, arch, &mut emulated).unwrap_or_else(|error| panic!("{arch}: {error}"));
        for (cpu, emulated) in cpu.iter().zip(&emulated) {
            if let Err(difference) = same(cpu, emulated, 0.0) {
                panic!("{arch}: {difference}\n{}", print_module(&compiled.module));
            }
        }
    }
}

#[test]
fn functions_are_accurate() {
    for dtype in FLOATS {
        let functions = ["exp", "exp2", "log", "log2", "sin", "cos", "tan", "sinh", "cosh", "tanh", "rsqrt", "sqrt"];
        let terms: Vec<String> = functions
            .iter()
            .enumerate()
            .map(|(row, name)| {
                let argument = if matches!(*name, "log" | "log2" | "rsqrt" | "sqrt") { "ct.abs(a)" } else { "a" };
                format!("ct.store(out, ({row}, i), ct.{name}({argument}).reshape((1, 64)))")
            })
            .collect();
        let source = body(&format!(
            "i = ct.bid(0)\na = ct.load(x, (i,), (64,))\nb = ct.load(y, (i,), (64,))\n{}\n\
            ct.store(out, (12, i), ct.pow(ct.abs(a), b).reshape((1, 64)))\nct.store(out, (13, i), ct.atan2(a, b).reshape((1, 64)))\nct.store(out, (14, i), ct.mod(a, b).reshape((1, 64)))",
            terms.join("\n")
        ));
        let vector = array(dtype, 1);
        let data = [Data::floats(dtype, &[200], 5), Data::floats(dtype, &[200], 6), Data::zeros(dtype, &[15, 200])];
        let tolerance = match dtype {
            DType::F64 => 1e-14,
            DType::F32 => 4e-7,
            DType::F16 => 1e-3,
            _ => 8e-3,
        };
        near(&source, &[("x", vector.clone()), ("y", vector), ("out", array(dtype, 2))], &data, [4, 1, 1], tolerance);
    }
}

#[test]
fn reductions_and_scans_along_every_axis() {
    for (axis, kept) in [(0, 48), (1, 20)] {
        for function in ["sum", "max", "min", "argmax", "argmin", "prod"] {
            let dtype = if function.starts_with("arg") { DType::I32 } else { DType::F32 };
            let source = body(&format!(
                "t = ct.load(x, (0, 0), (32, 64), padding_mode=ct.PaddingMode.NEG_INF) if {minus} else ct.load(x, (0, 0), (32, 64), padding_mode=ct.PaddingMode.ZERO)\nct.store(out, (0,), ct.{function}(t, {axis}))",
                minus = if function.contains("max") { "True" } else { "False" }
            ));
            let args = [("x", array(DType::F32, 2)), ("y", array(DType::F32, 1)), ("out", array(dtype, 1))];
            let data = [Data::floats(DType::F32, &[20, 48], 7), Data::zeros(DType::F32, &[1]), Data::zeros(dtype, &[kept])];
            near(&source, &args, &data, [1, 1, 1], 1e-4);
        }
        for function in ["cumsum", "cumprod"] {
            let source = body(&format!(
                "t = ct.load(x, (0, 0), (16, 32))\nct.store(out, (0, 0), ct.{function}(t, {axis}, reverse={}))",
                if axis == 0 { "True" } else { "False" }
            ));
            let args = [("x", array(DType::F32, 2)), ("y", array(DType::F32, 1)), ("out", array(DType::F32, 2))];
            let data =
                [Data::floats(DType::F32, &[16, 32], 8), Data::zeros(DType::F32, &[1]), Data::zeros(DType::F32, &[16, 32])];
            near(&source, &args, &data, [1, 1, 1], 2e-2);
        }
    }
}

/// Packed conversions, rows that leave threads idle, warps that share a row and warps with rows of their own, loads under a mask.
#[test]
fn rows_of_every_width_and_length() {
    for dtype in [DType::BF16, DType::F16, DType::F8E4M3, DType::F8E5M2, DType::F32] {
        for (rows, n) in [(8, 96), (4, 768), (4, 1024), (1, 2752)] {
            let source = body(&format!(
                "i = ct.bid(0)
v = ct.load(x, (i, 0), ({rows}, {n})).astype(ct.float32)
last = (i * {rows} + ct.arange({rows}, dtype=ct.int32)) % 5 * {step} + 3
v = ct.where(ct.arange({n}, dtype=ct.int32)[None, :] <= last[:, None], v, 1.5)
m = ct.max(v, axis=1, keepdims=True)
ct.store(out, (i, 0), (v - m).astype(out.dtype))",
                step = n / 4,
            ));
            let source = source
                .replace("@ct.kernel", "@tessera.kernel")
                .replace("import cuda.tile as ct", "import cuda.tile as ct\nimport tessera");
            let args = [("x", ArgType::array(dtype, 2)), ("y", array(DType::F32, 1)), ("out", ArgType::array(dtype, 2))];
            let size = [2 * rows, n];
            let data = [Data::floats(dtype, &size, 13), Data::zeros(DType::F32, &[1]), Data::zeros(dtype, &size)];
            agrees(&source, &args, &data, [2, 1, 1]);
        }
    }
}

#[test]
fn a_mask_guards_the_load() {
    let source = |kept: &str| {
        body(&format!(
            "v = ct.load(x, (ct.bid(0),), (512,)).astype(ct.float32)
kept = ct.arange(512, dtype=ct.int32) <= ct.bid(0)
ct.store(out, (ct.bid(0),), {kept})"
        ))
    };
    let count = |kept: &str, word: &str| {
        let args = [DType::F16, DType::F32, DType::F32];
        let args: Vec<_> = ["x", "y", "out"].into_iter().zip(args.map(|dtype| ArgType::array(dtype, 1))).collect();
        let ptx = devices::lowered(&compiled(&source(kept), &args), Arch::Sm90a).expect("a kernel").ptx();
        ptx.matches(word).count()
    };
    let (some, others, all) = ("ct.where(kept, v, 0.0)", "ct.where(kept, 0.0, v)", "ct.where(kept, v, -v)");
    assert!(count(some, "and.pred") > count(all, "and.pred"));
    // Where elements are needed up to a place, a vector's first one decides; elsewhere any may.
    assert_eq!(count(some, "or.pred"), 0);
    assert!(count(others, "or.pred") > 0);
    assert_eq!(count(all, "or.pred"), 0);
}

#[test]
fn matrix_products_of_every_type() {
    let products = [
        (DType::F32, DType::F32),
        (DType::F64, DType::F64),
        (DType::F16, DType::F32),
        (DType::F16, DType::F16),
        (DType::BF16, DType::F32),
        (DType::F8E4M3, DType::F32),
        (DType::I8, DType::I32),
    ];
    for (factor, acc) in products {
        for (m, n, k) in [(64, 64, 32), (16, 8, 64)] {
            let source = body(&format!(
                "acc = ct.zeros(({m}, {n}), out.dtype)\nfor k in range(ct.cdiv(x.shape[1], {k})):\n    a = ct.load(x, (0, k), ({m}, {k}), padding_mode=ct.PaddingMode.ZERO)\n    b = ct.load(y, (k, 0), ({k}, {n}), padding_mode=ct.PaddingMode.ZERO)\n    acc = ct.mma(a, b, acc)\nct.store(out, (0, 0), acc)"
            ));
            let fill = |sizes: &[i64], seed| {
                if factor == DType::I8 {
                    Data::ints(factor, sizes, seed)
                } else {
                    let format = tessera_types::FloatFormat::of(factor).expect("a float");
                    Data::codes(factor, sizes, |i| {
                        format.encode(
                            ((i * 7 + seed as usize) % 23) as f64 / 8.0 - 1.25,
                            tessera_types::Rounding::NearestEven,
                            tessera_types::Overflow::Saturate,
                        )
                    })
                }
            };
            let args = [("x", array(factor, 2)), ("y", array(factor, 2)), ("out", array(acc, 2))];
            let data = [fill(&[m, 2 * k - 8], 1), fill(&[2 * k - 8, n], 2), Data::zeros(acc, &[m, n])];
            println!("{factor} {acc} {m} {n} {k}");
            let tolerance = match acc {
                DType::I32 => 0.0,
                DType::F16 => 2e-2,
                DType::F64 => 1e-12,
                _ => 1e-5,
            };
            near(&source, &args, &data, [1, 1, 1], tolerance);
        }
    }
}

#[test]
fn shapes_gathers_and_atomics() {
    let args = |dtype| [("x", array(dtype, 2)), ("y", array(DType::I32, 1)), ("out", array(dtype, 2))];
    for dtype in [DType::F32, DType::F16, DType::I8, DType::I64] {
        let fill = if dtype.is_float() { Data::floats(dtype, &[40, 50], 9) } else { Data::ints(dtype, &[40, 50], 9) };
        let index = Data::codes(DType::I32, &[64], |i| (i as u64 * 29) % 45);
        let data = [fill, index, Data::zeros(dtype, &[64, 64])];
        for lines in [
            "t = ct.load(x, (0, 0), (32, 64), padding_mode=ct.PaddingMode.ZERO)\nct.store(out, (0, 0), ct.transpose(t))",
            "t = ct.load(x, (0, 0), (32, 16))\nu = ct.load(x, (0, 1), (32, 16))\nct.store(out, (0, 0), ct.cat((t, u), 1))",
            "t = ct.load(x, (0, 0), (32, 32))\nn = ct.load(y, (0,), (1,)).item()\nct.store(out, (0, 0), ct.extract(t, (1, n % 2), (16, 16)))",
            "t = ct.load(x, (0, 0), (32, 32))\nct.store(out, (0, 0), t.reshape((16, 64)))",
            "r = ct.arange(32, dtype=ct.int32)\nc = ct.load(y, (0,), (32,))\nt = ct.gather(x, (c[:, None], r[None, :]))\nct.scatter(out, (r[:, None], r[None, :]), t)",
            "r = ct.arange(32, dtype=ct.int32)\nt = ct.gather(x, (r[:, None] * 2, r[None, :]), mask=r[None, :] > 3)\nct.store(out, (1, 1), t)",
        ] {
            println!("{dtype}: {lines}");
            if let Some(lines) = Some(lines).filter(|lines| !lines.contains("item")) {
                agrees(&body(lines), &args(dtype), &data, [1, 1, 1]);
            }
        }
    }
    for dtype in [DType::I32, DType::I64, DType::U32, DType::F32, DType::F64] {
        let source = body(
            "i = ct.bid(0)\nk = ct.load(y, (i,), (32,))\nct.atomic_add(out, (k, 0), ct.astype(k, out.dtype))\nct.atomic_add(out, (k % 3, 1), 1)",
        );
        let index = Data::codes(DType::I32, &[64], |i| (i as u64 * 29) % 45);
        let data = [Data::zeros(dtype, &[1, 1]), index, Data::zeros(dtype, &[64, 64])];
        agrees(&source, &args(dtype), &data, [2, 1, 1]);
    }
}

/// Updates of a warp that all meet at one element are one update: where all do, where some warps' do, and where lanes take no part.
#[test]
fn updates_that_meet() {
    let args = [("x", array(DType::I32, 1)), ("y", array(DType::I32, 1)), ("out", array(DType::I32, 1))];
    let meets: [fn(usize) -> u64; 5] =
        [|_| 7, |i| i as u64 / 256, |i| i as u64 / 32, |i| if i == 77 { 3 } else { 7 }, |i| if i < 300 { 7 } else { 1000 }];
    for operation in ["add", "max", "min", "and", "or", "xor"] {
        let source = body(&format!(
            "i = ct.bid(0) * 512 + ct.arange(512, dtype=ct.int32)\nct.atomic_{operation}(out, ct.gather(x, i), ct.gather(y, i))"
        ));
        for meet in meets {
            let index = Data::codes(DType::I32, &[1024], meet);
            let data = [index, Data::ints(DType::I32, &[1000], 4), Data::ints(DType::I32, &[20], 5)];
            agrees(&source, &args, &data, [2, 1, 1]);
        }
    }
    let together = compiled(&body("ct.atomic_add(out, ct.arange(512, dtype=ct.int32) * 0, 1)"), &args);
    let text = devices::lowered(&together, Arch::Sm90a).expect("a kernel").ptx();
    assert!(text.contains("match.all.sync.b64") && text.contains("redux.sync.add.u32"), "{text}");
}

#[test]
fn random_programs_give_what_the_cpu_gives() {
    arbtest(|u| {
        let size = u.int_in_range(5..=60usize)?;
        let module = generate::program(size, &mut |below| u.int_in_range(0..=below - 1).unwrap_or(0));
        let options = CompileOptions { level: OptLevel::O2, ..CompileOptions::default() };
        let compiled = compile_module(module.clone(), &[], &options).unwrap_or_else(|found| panic!("{}", found[0].message));
        let data = [
            Data::floats(DType::F32, &[21], 1),
            Data::ints(DType::I32, &[21], 2),
            Data::floats(DType::F32, &[21], 3),
            Data::ints(DType::I32, &[21], 4),
            Data::Scalar(1.5f32.to_bits().to_le_bytes().to_vec()),
            Data::Scalar(3i32.to_le_bytes().to_vec()),
        ];
        let launch = Launch { compiled: &compiled, grid: [1, 1, 1] };
        let (mut cpu, mut emulated) = (data.to_vec(), data.to_vec());
        on_cpu(&launch, &mut cpu).unwrap_or_else(|error| panic!("{error}\n{}", print_module(&module)));
        on_emulator(&launch, Arch::Sm90a, &mut emulated)
            .unwrap_or_else(|error| panic!("{error}\n{}", print_module(&compiled.module)));
        for (position, (cpu, emulated)) in cpu.iter().zip(&emulated).enumerate() {
            if let Err(difference) = same(cpu, emulated, 0.0) {
                panic!("argument {position}: {difference}\n{}", print_module(&compiled.module));
            }
        }
        Ok(())
    })
    .budget_ms(3_000);
}

/// A product of bf16 matrices by a producer warp, a ring of three slots and a warpgroup, in Tile IR.
#[test]
fn a_ring_feeds_a_warpgroup() {
    let (m, n, k) = (64i64, 128i64, 192i64);
    let atom = tessera_layout::MmaAtom::wgmma(n as u64, 16).expect("an instruction");
    let grid = tessera_layout::WarpGrid { m: 4, n: 1 };
    let acc = atom.operand(tessera_layout::Operand::C, [m as u64, n as u64], grid).expect("a layout");
    let text = format!(
        "tile @kernel(%x: tile<ptr<bf16>>, %xm: tile<i32>, %xk: tile<i32>, %xs: tile<i32>, %xu: tile<i32>, %y: tile<ptr<bf16>>, %yk: tile<i32>, %yn: tile<i32>, %ys: tile<i32>, %yu: tile<i32>, %o: tile<ptr<f32>>, %om: tile<i32>, %on: tile<i32>, %os: tile<i32>, %ou: tile<i32>) \
abi(x: array<bf16, [?, ?], [?, 1], i32, align=16>, y: array<bf16, [?, ?], [?, 1], i32, align=16>, out: array<f32, [?, ?], [?, 1], i32, align=16>) hints(num_warps=8) layouts(#0 = {acc}) {{
  %zero = constant {{value=i32(0)}} : tile<i32>
  %one = constant {{value=i32(1)}} : tile<i32>
  %steps = constant {{value=i32({steps})}} : tile<i32>
  %xt = make_tensor_view %x, [%xm, %xk], [%xs] : tensor_view<?x?xbf16, strides=[?,1]>
  %yt = make_tensor_view %y, [%yk, %yn], [%ys] : tensor_view<?x?xbf16, strides=[?,1]>
  %ot = make_tensor_view %o, [%om, %on], [%os] : tensor_view<?x?xf32, strides=[?,1]>
  %xv = make_partition_view %xt : partition_view<tile=(64x64), tensor_view<?x?xbf16, strides=[?,1]>>
  %yv = make_partition_view %yt : partition_view<tile=(64x{n}), tensor_view<?x?xbf16, strides=[?,1]>>
  %ov = make_partition_view %ot : partition_view<tile=(64x{n}), tensor_view<?x?xf32, strides=[?,1]>>
  %a = tile.alloc_shared {{align=1024}} : shared<3x64x64xbf16, swizzle=<3,4,3>>
  %b = tile.alloc_shared {{align=1024}} : shared<3x64x{n}xbf16, swizzle=<3,4,3>>
  %ring = tile.ring [%a, %b] {{stages=3, producer=tma, consumers=1, bytes={bytes}}} : ring<3, [shared<64x64xbf16, swizzle=<3,4,3>>, shared<64x{n}xbf16, swizzle=<3,4,3>>]>
  tile.barrier
  tile.role {{first_warp=0, warps=4}} () {{
    %start = tile.ring_start %ring : cursor
    %last = for %zero, %steps, %one, [%start] : cursor (%i: tile<i32>, %c: cursor) {{
      tile.acquire %ring, %c
      %as = tile.slot %ring, %c {{buffer=0}} : shared<64x64xbf16, swizzle=<3,4,3>>
      %bs = tile.slot %ring, %c {{buffer=1}} : shared<64x{n}xbf16, swizzle=<3,4,3>>
      tile.tma_load %xv, [%zero, %i], %as, %ring, %c
      tile.tma_load %yv, [%i, %zero], %bs, %ring, %c
      tile.commit %ring, %c
      %d = tile.advance %ring, %c : cursor
      continue [%d]
    }}
    yield []
  }}
  tile.role {{first_warp=4, warps=4}} () {{
    %start2 = tile.ring_start %ring : cursor
    %empty = constant {{value=f32(0.0)}} : tile<64x{n}xf32, #0>
    %sum, %last2 = for %zero, %steps, %one, [%empty, %start2] : tile<64x{n}xf32, #0>, cursor (%i2: tile<i32>, %s: tile<64x{n}xf32, #0>, %c2: cursor) {{
      tile.wait %ring, %c2
      %as2 = tile.slot %ring, %c2 {{buffer=0}} : shared<64x64xbf16, swizzle=<3,4,3>>
      %bs2 = tile.slot %ring, %c2 {{buffer=1}} : shared<64x{n}xbf16, swizzle=<3,4,3>>
      %f = tile.wgmma %as2, %bs2, %s : inflight<64x{n}xf32, #0>
      %w = tile.wgmma_wait [%f] {{pending=0}} : tile<64x{n}xf32, #0>
      tile.release %ring, %c2
      %d2 = tile.advance %ring, %c2 : cursor
      continue [%w, %d2]
    }}
    %t = store_view_tko %sum, %ov, [%zero, %zero] : token
    yield []
  }}
  return
}}
",
        steps = k / 64,
        bytes = 64 * 64 * 2 + 64 * n * 2,
    );
    let module = tessera_ir::text::parse_module("ring.tir", &text)
        .unwrap_or_else(|(module, error)| panic!("{}", error.render(&module.sources, false)));
    let wrong = tessera_ir::verify(&module);
    assert!(wrong.is_empty(), "{}", wrong[0].render(&module.sources, false));
    let format = tessera_types::FloatFormat::of(DType::BF16).expect("a float");
    let fill = |sizes: &[i64], seed: usize| {
        let round = (tessera_types::Rounding::NearestEven, tessera_types::Overflow::Ieee);
        Data::codes(DType::BF16, sizes, |i| format.encode(((i * 7 + seed) % 23) as f64 / 8.0 - 1.25, round.0, round.1))
    };
    let mut data = [fill(&[m, k], 1), fill(&[k, n], 2), Data::zeros(DType::F32, &[m, n])];
    let kernel = tessera_compile::target::lower(&module, &module.funcs[0], Arch::Sm90a)
        .unwrap_or_else(|found| panic!("{}", found.render(&module.sources, false)));
    devices::run(&kernel, [1, 1, 1], &mut data).unwrap_or_else(|error| panic!("{error}"));
    let value = |data: &Data, i: i64| data.number(i as usize);
    for row in 0..m {
        for column in 0..n {
            let wanted: f64 = (0..k).map(|i| value(&data[0], row * k + i) * value(&data[1], i * n + column)).sum();
            let found = value(&data[2], row * n + column);
            assert!((wanted - found).abs() < 1e-3, "({row}, {column}): {found}, but {wanted} is right");
        }
    }
    devices::assembled(&kernel);
}

/// Elements of shared memory, arrays of a thread, atomics in shared memory and exchanges in warps.
#[test]
fn threads_with_elements_of_their_own() {
    let text =
        "tile @kernel(%x: tile<ptr<f32>>, %xn: tile<i32>, %xs: tile<i32>, %o: tile<ptr<f32>>, %on: tile<i32>, %os: tile<i32>) \
abi(x: array<f32, [?], [1], i32, align=16>, out: array<f32, [?], [1], i32, align=16>) hints(num_warps=2) {
  %t = tile.thread_id : tile<i32>
  %lane = tile.lane_id : tile<i32>
  %zero = constant {value=i32(0)} : tile<i32>
  %one = constant {value=i32(1)} : tile<i32>
  %last = constant {value=i32(63)} : tile<i32>
  %buffer = tile.alloc_shared {align=16} : shared<64xf32>
  %count = tile.alloc_shared {align=16} : shared<2xi32>
  %bytes = tile.alloc_shared {align=16} : shared<4xi8>
  %own = tile.alloc_register : registers<3xf32>
  %p = offset %x, %t : tile<ptr<f32>>
  %v, %read = load_ptr_tko %p : tile<f32>, token
  tile.store_element %v, %buffer, [%t]
  %first = cmpi %t, %zero {predicate=eq} : tile<i1>
  if %first () {
    %none = constant {value=i8(0)} : tile<i8>
    tile.store_element %zero, %count, [%zero]
    tile.store_element %none, %bytes, [%one]
    yield []
  } () {
    yield []
  }
  tile.barrier
  %other = subi %last, %t : tile<i32>
  %w = tile.load_element %buffer, [%other] : tile<f32>
  %sum = tile.warp_reduce %w {combine=sum} : tile<f32>
  %next = tile.shuffle %w, %one {mode=xor} : tile<f32>
  tile.store_element %sum, %own, [%one]
  %kept = tile.load_element %own, [%one] : tile<f32>
  %before = tile.atomic_element %t, %count, [%zero] {mode=add} : tile<i32>
  %small = constant {value=i8(1)} : tile<i8>
  %old = tile.atomic_element %small, %bytes, [%one] {mode=add} : tile<i8>
  tile.barrier
  %all = tile.load_element %count, [%zero] : tile<i32>
  %ones = tile.load_element %bytes, [%one] : tile<i8>
  %a = itof %all : tile<f32>
  %b = itof %ones : tile<f32>
  %c = addf %kept, %next : tile<f32>
  %d = addf %c, %a : tile<f32>
  %e = addf %d, %b : tile<f32>
  %q = offset %o, %t : tile<ptr<f32>>
  %done = store_ptr_tko %q, %e : token
  return
}
";
    let module = tessera_ir::text::parse_module("threads.tir", text)
        .unwrap_or_else(|(module, error)| panic!("{}", error.render(&module.sources, false)));
    let wrong = tessera_ir::verify(&module);
    assert!(wrong.is_empty(), "{}", wrong[0].render(&module.sources, false));
    for arch in [Arch::Sm75, Arch::Sm90a] {
        let kernel = tessera_compile::target::lower(&module, &module.funcs[0], arch)
            .unwrap_or_else(|found| panic!("{}", found.render(&module.sources, false)));
        let numbers = Data::codes(DType::F32, &[64], |i| u64::from((i as f32).to_bits()));
        let mut data = [numbers, Data::zeros(DType::F32, &[64])];
        devices::run(&kernel, [1, 1, 1], &mut data).unwrap_or_else(|error| panic!("{arch}: {error}"));
        for thread in 0..64i32 {
            let reversed = |thread: i32| 63 - thread;
            let warp: i32 = (thread / 32 * 32..thread / 32 * 32 + 32).map(reversed).sum();
            let wanted = warp + reversed(thread ^ 1) + 63 * 64 / 2 + 64;
            assert_eq!(data[1].number(thread as usize), f64::from(wanted), "{arch}: thread {thread}");
        }
        devices::assembled(&kernel);
    }
}
