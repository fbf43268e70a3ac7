//! Loops with two chained products: however they are written, they get roles, and the emulator computes what the CPU executor does.

use tessera_compile::{CompileOptions, Compiled, OptLevel, compile};
use tessera_ir::text::print_module;
use tessera_lang::{ArgType, ConstValue, parse_file};
use tessera_types::{Arch, DType};

use crate::devices::{Data, Launch, assembled, lowered, on_cpu, on_emulator, same, tiled};

const HEAD: &str = "import math
import cuda.tile as ct

LOG2_E = 1.0 / math.log(2)

def step(s, m, l):
    m_new = ct.maximum(m, ct.max(s, axis=1, keepdims=True))
    p = ct.exp2(s - m_new)
    alpha = ct.exp2(m - m_new)
    return p, alpha, m_new, l * alpha + ct.sum(p, axis=1, keepdims=True)

def guarded(s, m):
    return ct.where(m, s, -math.inf)

@ct.kernel
def kernel(Q, K, V, O, B, scale: float, TM: ct.Constant[int], TN: ct.Constant[int], D: ct.Constant[int]):
    i = ct.bid(0)
    n = K.shape[0]
    rows = i * TM + ct.arange(TM, dtype=ct.int32)[:, None]
    columns = ct.arange(TN, dtype=ct.int32)[None, :]
    m = ct.full((TM, 1), -math.inf, dtype=ct.float32)
    l = ct.zeros((TM, 1), dtype=ct.float32)
    acc = ct.zeros((TM, D), dtype=ct.float32)
    zero = ct.zeros((TM, TN), dtype=ct.float32)
    factor = scale * LOG2_E
    q = ct.load(Q, (i, 0), (TM, D), padding_mode=ct.PaddingMode.ZERO)
";

const TAIL: &str = "
    ct.store(O, (i, 0), (acc / l).astype(O.dtype))
";

/// The loop in the way that the others differ from.
const PLAIN: &str = "
    for j in range(ct.cdiv(n, TN)):
        k = ct.load(K, (j, 0), (TN, D), padding_mode=ct.PaddingMode.ZERO)
        s = ct.mma(q, ct.transpose(k), zero) * factor
        s = ct.where(j * TN + columns < n, s, -math.inf)
        p, alpha, m, l = step(s, m, l)
        v = ct.load(V, (j, 0), (TN, D), padding_mode=ct.PaddingMode.ZERO)
        acc = ct.mma(p.astype(V.dtype), v, acc * alpha)
";

/// What is replaced in [`PLAIN`] by what.
const REWRITES: [(&str, &[(&str, &str)]); 13] = [
    ("plain", &[]),
    (
        "renamed",
        &[("acc =", "total = acc\n        acc ="), ("acc * alpha", "total * alpha"), ("k = ct", "w = ct"), ("(k)", "(w)")],
    ),
    (
        "loads first, sums last",
        &[
            ("        v = ct.load(V, (j, 0), (TN, D), padding_mode=ct.PaddingMode.ZERO)\n", ""),
            ("        k = ct", "        v = ct.load(V, (j, 0), (TN, D), padding_mode=ct.PaddingMode.ZERO)\n        k = ct"),
        ],
    ),
    (
        "while",
        &[
            ("for j in range(ct.cdiv(n, TN)):", "j = 0\n    while j < ct.cdiv(n, TN):"),
            ("acc * alpha)", "acc * alpha)\n        j += 1"),
        ],
    ),
    ("another mask", &[("        p, a", "        s = guarded(s, (rows + j * TN + columns) % 7 != 0)\n        p, a")]),
    (
        "a causal mask and a shorter loop",
        &[
            ("range(ct.cdiv(n, TN))", "range(ct.cdiv(min(n, (i + 1) * TM), TN))"),
            ("        p, a", "        s = guarded(s, j * TN + columns <= rows)\n        p, a"),
        ],
    ),
    (
        "a bias",
        &[("        p, a", "        s = s + ct.load(B, (i, j), (TM, TN), padding_mode=ct.PaddingMode.ZERO)\n        p, a")],
    ),
    ("an operator", &[("ct.mma(q, ct.transpose(k), zero)", "(q @ ct.transpose(k)).astype(ct.float32)")]),
    (
        "other exponentials",
        &[
            ("factor", "scale"),
            (
                "        p, alpha, m, l = step(s, m, l)\n",
                "        before = m
        m = ct.maximum(before, ct.max(s, axis=1, keepdims=True))
        p = ct.exp(s - m)
        alpha = ct.exp(before - m)
        l = l * alpha
        l = l + ct.sum(p, axis=1, keepdims=True)\n",
            ),
        ],
    ),
    (
        "the order of a load",
        &[("ct.load(K, (j, 0), (TN, D), p", "ct.load(K, (0, j), (D, TN), order=(1, 0), p"), ("ct.transpose(k)", "k")],
    ),
    (
        "a left factor that is computed",
        &[
            ("    for", "    q = (q.astype(ct.float32) * factor).astype(Q.dtype)\n    for"),
            (" * factor\n        s", "\n        s"),
        ],
    ),
    ("a mask behind a condition", &[("        s = ct.where(j", "        if j >= n // TN:\n            s = ct.where(j")]),
    (
        "two loops",
        &[(
            "    for j in range(ct.cdiv(n, TN)):",
            "    for j in range(n // TN):
        k = ct.load(K, (j, 0), (TN, D), padding_mode=ct.PaddingMode.ZERO)
        p, alpha, m, l = step(ct.mma(q, ct.transpose(k), zero) * factor, m, l)
        v = ct.load(V, (j, 0), (TN, D), padding_mode=ct.PaddingMode.ZERO)
        acc = ct.mma(p.astype(V.dtype), v, acc * alpha)
    for j in range(n // TN, ct.cdiv(n, TN)):",
        )],
    ),
];

fn compiled(text: &str, args: &[(&str, ArgType)]) -> Compiled {
    compiled_at(OptLevel::default(), text, args)
}

fn compiled_at(level: OptLevel, text: &str, args: &[(&str, ArgType)]) -> Compiled {
    let file = parse_file("kernel.py", text);
    let args: Vec<(String, ArgType)> = args.iter().map(|(name, ty)| (name.to_string(), ty.clone())).collect();
    compile(&file, "kernel", &args, &CompileOptions { level, ..CompileOptions::default() })
        .unwrap_or_else(|found| panic!("{}\n{text}", found[0].render(&file.sources, false)))
}

fn constant(value: i64) -> ArgType {
    ArgType::Const(ConstValue::Int(value))
}

/// Numbers between -1 and 1.
fn numbers(dtype: DType, sizes: &[i64], seed: u64) -> Data {
    let wide = Data::ints(DType::I32, sizes, seed);
    let Data::Array { bytes, .. } = wide else { return wide };
    let format = tessera_types::FloatFormat::of(dtype).expect("a float");
    Data::codes(dtype, sizes, |i| {
        let word = i32::from_le_bytes([bytes[4 * i], bytes[4 * i + 1], bytes[4 * i + 2], bytes[4 * i + 3]]);
        let value = f64::from(word.rem_euclid(2001) - 1000) / 1000.0;
        format.encode(value, tessera_types::Rounding::NearestEven, tessera_types::Overflow::Ieee)
    })
}

/// The Tile function for warpgroups.
fn tile_text(compiled: &Compiled) -> String {
    print_module(&tiled(&compiled.module, Arch::Sm90a).unwrap_or_else(|error| panic!("{error}")))
}

#[test]
fn however_it_is_written_it_gets_roles_and_is_right() {
    let (tm, tn, d, rows, n) = (64, 32, 64, 100, 150);
    for (name, changes) in REWRITES {
        let mut body = PLAIN.to_string();
        for (from, to) in changes {
            assert!(body.contains(from), "{name}: `{from}` is not there");
            body = body.replace(from, to);
        }
        println!("{name}");
        let array = |dtype| ArgType::array(dtype, 2);
        let args = [
            ("Q", array(DType::BF16)),
            ("K", array(DType::BF16)),
            ("V", array(DType::BF16)),
            ("O", array(DType::F32)),
            ("B", array(DType::F32)),
            ("scale", ArgType::Scalar(DType::F32)),
            ("TM", constant(tm)),
            ("TN", constant(tn)),
            ("D", constant(d)),
        ];
        let source = format!("{HEAD}{body}{TAIL}");
        let compiled = compiled(&source, &args);
        let text = tile_text(&compiled);
        let loops = if name == "two loops" { 2 } else { 1 };
        assert_eq!(text.matches("tile.role ").count(), 2, "{name}\n{text}");
        assert!(text.matches("tile.wgmma ").count() >= 2 * loops, "{name}\n{text}");
        let copied = if name.contains("computed") { 0 } else { 1 };
        assert_eq!(text.matches("tile.tma_load ").count(), 2 * loops + copied, "{name}\n{text}");
        let launch = Launch { compiled: &compiled, grid: [2, 1, 1] };
        let data = [
            numbers(DType::BF16, &[rows, d], 1),
            numbers(DType::BF16, &[n, d], 2),
            numbers(DType::BF16, &[n, d], 3),
            Data::zeros(DType::F32, &[rows, d]),
            numbers(DType::F32, &[rows, n + 2], 4),
            Data::Scalar(0.5_f32.to_le_bytes().to_vec()),
        ];
        let (mut cpu, mut emulated) = (data.to_vec(), data.to_vec());
        on_cpu(&launch, &mut cpu).unwrap_or_else(|error| panic!("{name}: {error}"));
        on_emulator(&launch, Arch::Sm90a, &mut emulated).unwrap_or_else(|error| panic!("{name}: {error}\n{text}"));
        same(&cpu[3], &emulated[3], 1e-2).unwrap_or_else(|difference| panic!("{name}: {difference}\n{text}"));
        assembled(&lowered(&compiled, Arch::Sm90a).unwrap_or_else(|error| panic!("{error}")));
        // Nothing has been moved out of the loop there.
        let text = tile_text(&compiled_at(OptLevel::O0, &source, &args));
        assert_eq!(text.matches("tile.role ").count(), if name == "while" { 0 } else { 2 }, "{name}\n{text}");
    }
}

#[test]
fn tiles_of_more_axes_rows_of_several_warpgroups_and_depths() {
    let text = "import math
import cuda.tile as ct

@ct.kernel
def kernel(Q, K, V, O, scale: float, TM: ct.Constant[int], TN: ct.Constant[int], D: ct.Constant[int]):
    i, b = ct.bid(0), ct.bid(1)
    m = ct.full((TM, 1), -math.inf, dtype=ct.float32)
    l = ct.zeros((TM, 1), dtype=ct.float32)
    acc = ct.zeros((TM, D), dtype=ct.float32)
    q = ct.load(Q, (b, i, 0, 0), (1, TM, 1, D), padding_mode=ct.PaddingMode.ZERO).reshape((TM, D))
    for j in range(ct.cdiv(K.shape[1], TN)):
        k = ct.load(K, (b, j, 0, 0), (1, TN, 1, D), padding_mode=ct.PaddingMode.ZERO)
        k = ct.permute(k, (0, 2, 3, 1)).reshape((D, TN))
        s = ct.mma(q, k, ct.zeros((TM, TN), dtype=ct.float32)) * scale
        s = ct.where(j * TN + ct.arange(TN, dtype=ct.int32)[None, :] < K.shape[1], s, -math.inf)
        m_new = ct.maximum(m, ct.max(s, axis=1, keepdims=True))
        p = ct.exp(s - m_new)
        alpha = ct.exp(m - m_new)
        l = l * alpha + ct.sum(p, axis=1, keepdims=True)
        v = ct.load(V, (b, j, 0, 0), (1, TN, 1, D), padding_mode=ct.PaddingMode.ZERO).reshape((TN, D))
        acc = ct.mma(p.astype(V.dtype), v, acc * alpha)
        m = m_new
    ct.store(O, (b, i, 0, 0), (acc / l).astype(O.dtype).reshape((1, TM, 1, D)))
";
    // The same in a loop over tiles, of which a block takes more than one.
    let (head, body) = text.split_once("    i, b = ct.bid(0), ct.bid(1)\n").expect("where a block is");
    let body: String = body.lines().map(|line| format!("    {line}\n")).collect();
    let around = format!(
        "{head}    tiles = ct.cdiv(Q.shape[1], TM)\n    for tile in range(ct.bid(0), 2 * tiles, ct.num_blocks(0)):\n        i, b = tile % tiles, tile // tiles\n{body}"
    );
    let cases = [
        (128, 128, 64, DType::F16, text),
        (64, 64, 128, DType::BF16, text),
        (128, 64, 256, DType::BF16, text),
        (64, 64, 64, DType::BF16, &around),
        (128, 64, 128, DType::F16, &around),
    ];
    for (tm, tn, d, dtype, text) in cases {
        println!("{tm} {tn} {d}");
        let array = ArgType::array(dtype, 4);
        let args = [
            ("Q", array.clone()),
            ("K", array.clone()),
            ("V", array.clone()),
            ("O", array),
            ("scale", ArgType::Scalar(DType::F32)),
            ("TM", constant(tm)),
            ("TN", constant(tn)),
            ("D", constant(d)),
        ];
        let compiled = compiled(text, &args);
        let tile = tile_text(&compiled);
        assert_eq!(tile.matches("tile.tma_load ").count(), 3, "{tile}");
        let (rows, n) = (140, 300);
        let data = [
            numbers(dtype, &[2, rows, 1, d], 1),
            numbers(dtype, &[2, n, 1, d], 2),
            numbers(dtype, &[2, n, 1, d], 3),
            Data::zeros(dtype, &[2, rows, 1, d]),
            Data::Scalar(0.25_f32.to_le_bytes().to_vec()),
        ];
        let grid = if text.contains("num_blocks") { [2, 1, 1] } else { [(rows as u32).div_ceil(tm as u32), 2, 1] };
        let launch = Launch { compiled: &compiled, grid };
        let (mut cpu, mut emulated) = (data.to_vec(), data.to_vec());
        on_cpu(&launch, &mut cpu).unwrap_or_else(|error| panic!("{error}"));
        on_emulator(&launch, Arch::Sm90a, &mut emulated).unwrap_or_else(|error| panic!("{error}\n{tile}"));
        same(&cpu[3], &emulated[3], 2e-2).unwrap_or_else(|difference| panic!("{tm} {tn} {d}: {difference}"));
        assembled(&lowered(&compiled, Arch::Sm90a).unwrap_or_else(|error| panic!("{error}")));
    }
}
