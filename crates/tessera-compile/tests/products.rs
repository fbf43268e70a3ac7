//! Products of warpgroups: every format in every orientation, whole roles of them, as the CPU executor has them.

use tessera_compile::{CompileOptions, Compiled, OptLevel, compile, compile_for};
use tessera_ir::text::print_module;
use tessera_lang::{ArgType, parse_file};
use tessera_types::{Arch, DType, FloatFormat, Overflow, Rounding};

use crate::devices::{Data, Launch, assembled, lowered, on_cpu, run, same};

/// A product and its tiles.
#[derive(Clone, Copy)]
struct Case {
    stored: [DType; 2],
    /// What the factors are converted to, if anything.
    computed: Option<DType>,
    acc: DType,
    /// Which factors lie with their axes reversed.
    turned: [bool; 2],
    tile: [i64; 3],
    batched: bool,
    fast: bool,
}

impl Case {
    fn new(dtype: DType, turned: [bool; 2], tile: [i64; 3]) -> Case {
        let acc = if dtype == DType::I8 { DType::I32 } else { DType::F32 };
        Case { stored: [dtype, dtype], computed: None, acc, turned, tile, batched: false, fast: false }
    }

    fn source(&self) -> String {
        let [tm, tn, tk] = self.tile;
        let load = |array: &str, turned: bool, index: (&str, &str), tile: (i64, i64)| {
            let (at, shape, order) = match (self.batched, turned) {
                (false, false) => (format!("({}, {})", index.0, index.1), format!("({}, {})", tile.0, tile.1), ""),
                (false, true) => (format!("({}, {})", index.0, index.1), format!("({}, {})", tile.0, tile.1), ", order=(1, 0)"),
                (true, _) => (format!("(n, {}, {})", index.0, index.1), format!("(1, {}, {})", tile.0, tile.1), ""),
            };
            let flat = if self.batched { format!(".reshape(({}, {}))", tile.0, tile.1) } else { String::new() };
            let cast = self.computed.map_or(String::new(), |dtype| format!(".astype(ct.{})", name(dtype)));
            format!("ct.load({array}, {at}, {shape}{order}, padding_mode=ct.PaddingMode.ZERO){flat}{cast}")
        };
        let a = load("x", self.turned[0], ("i", "k"), (tm, tk));
        let b = load("y", self.turned[1], ("k", "j"), (tk, tn));
        let fast = if self.fast { ", use_fast_acc=True" } else { "" };
        let (depth, store) = match self.batched {
            true => (2, format!("ct.store(out, (n, i, j), acc.reshape((1, {tm}, {tn})))")),
            false => (usize::from(!self.turned[0]), "ct.store(out, (i, j), acc)".to_string()),
        };
        let acc = name(self.acc);
        format!(
            "import cuda.tile as ct\nimport tessera\n\n@tessera.kernel\ndef kernel(x, y, out):\n    i = ct.bid(0)\n    j = ct.bid(1)\n    n = ct.bid(2)\n    acc = ct.zeros(({tm}, {tn}), ct.{acc})\n    for k in range(ct.cdiv(x.shape[{depth}], {tk})):\n        a = {a}\n        b = {b}\n        acc = ct.mma(a, b, acc{fast})\n    {store}\n"
        )
    }

    fn compiled(&self) -> Compiled {
        let rank = if self.batched { 3 } else { 2 };
        let file = parse_file("kernel.py", &self.source());
        let args = [("x", self.stored[0]), ("y", self.stored[1]), ("out", self.acc)]
            .map(|(name, dtype)| (name.to_string(), ArgType::array(dtype, rank)));
        compile(&file, "kernel", &args, &CompileOptions::default())
            .unwrap_or_else(|found| panic!("{}", found[0].render(&file.sources, false)))
    }

    fn data(&self, [batch, m, n, k]: [i64; 4]) -> [Data; 3] {
        let shape = |turned: bool, rows: i64, columns: i64| -> Vec<i64> {
            let plain = if turned { vec![columns, rows] } else { vec![rows, columns] };
            if self.batched { [vec![batch], plain].concat() } else { plain }
        };
        let [a, b] = self.turned;
        [
            fill(self.stored[0], &shape(a, m, k), 1),
            fill(self.stored[1], &shape(b, k, n), 2),
            Data::zeros(self.acc, &shape(false, m, n)),
        ]
    }
}

fn name(dtype: DType) -> &'static str {
    match dtype {
        DType::F32 => "float32",
        DType::I32 => "int32",
        DType::TF32 => "tfloat32",
        DType::BF16 => "bfloat16",
        DType::F16 => "float16",
        DType::F8E4M3 => "float8_e4m3fn",
        DType::F8E5M2 => "float8_e5m2",
        other => panic!("{other} has no name here"),
    }
}

/// Numbers whose products and sums are exact; in 32 bits with more bits than a product takes.
fn fill(dtype: DType, sizes: &[i64], seed: usize) -> Data {
    if dtype == DType::I8 {
        return Data::ints(dtype, sizes, seed as u64);
    }
    let format = FloatFormat::of(dtype).expect("a float");
    let beyond = if dtype == DType::F32 { 2f64.powi(-16) } else { 0.0 };
    Data::codes(dtype, sizes, |i| {
        let value = ((i * 7 + seed + i / 29) % 23) as f64 / 8.0 - 1.25;
        format.encode(value * (1.0 + beyond), Rounding::NearestEven, Overflow::Saturate)
    })
}

/// The case on the CPU and by the emulator, with its roles.
fn agrees(case: Case, sizes: [i64; 4], ops: &[&str]) {
    let compiled = case.compiled();
    let text = compile_for(&compiled, Arch::Sm90a, OptLevel::O2).map(|device| print_module(&device.tile));
    let text = text.unwrap_or_else(|found| panic!("{}", found[0].render(&compiled.module.sources, false)));
    for op in ops {
        assert!(text.contains(op), "no {op} in\n{text}");
    }
    let [batch, m, n, _] = sizes;
    let count = |extent: i64, tile: i64| (extent as u64).div_ceil(tile as u64) as u32;
    let grid = [count(m, case.tile[0]), count(n, case.tile[1]), if case.batched { batch as u32 } else { 1 }];
    let launch = Launch { compiled: &compiled, grid };
    let (mut cpu, mut emulated) = (case.data(sizes), case.data(sizes));
    on_cpu(&launch, &mut cpu).unwrap_or_else(|error| panic!("{error}"));
    let kernel = lowered(&compiled, Arch::Sm90a).unwrap_or_else(|error| panic!("{error}\n{text}"));
    run(&kernel, grid, &mut emulated).unwrap_or_else(|error| panic!("{error}\n{text}"));
    same(&cpu[2], &emulated[2], 1e-6).unwrap_or_else(|error| panic!("{error}\n{text}"));
    assembled(&kernel);
}

const ORIENTATIONS: [[bool; 2]; 4] = [[false, false], [false, true], [true, false], [true, true]];

/// More rounds than any ring has slots, and no extent a multiple of its tile.
const SIZES: [i64; 4] = [1, 144, 80, 272];

#[test]
fn products_in_every_orientation() {
    for (dtype, k) in
        [(DType::BF16, 64), (DType::F16, 32), (DType::F8E4M3, 32), (DType::F8E5M2, 64), (DType::I8, 32), (DType::TF32, 16)]
    {
        for turned in ORIENTATIONS {
            println!("{dtype} {turned:?}");
            let either = dtype.bits() == 16;
            let copies = !either && (turned[0] || !turned[1]);
            let copy: &[&str] = if copies { &["tile.copy_shared", "tile.tma_load"] } else { &["tile.tma_load"] };
            agrees(Case::new(dtype, turned, [64, 32, k]), SIZES, copy);
        }
    }
}

#[test]
fn large_tiles_take_two_warpgroups() {
    let promoted = ["tile.wgmma_promoted", "tile.copy_shared"];
    agrees(Case::new(DType::F8E4M3, [true, false], [128, 256, 128]), [1, 160, 272, 400], &promoted);
    agrees(Case { fast: true, ..Case::new(DType::F8E5M2, [false, true], [128, 256, 128]) }, [1, 160, 272, 400], &["tile.wgmma "]);
    agrees(Case::new(DType::TF32, [true, false], [128, 256, 32]), [1, 160, 272, 120], &["tile.copy_shared"]);
    agrees(Case::new(DType::I8, [true, false], [128, 128, 128]), [1, 160, 144, 400], &["tile.copy_shared"]);
}

/// 320 columns are two instructions of 160, or five of 64: columns that lie contiguous lie in slabs of 64, which an instruction does not begin within.
#[test]
fn instructions_begin_where_slabs_do() {
    for turned in [[false, false], [false, true]] {
        agrees(Case::new(DType::BF16, turned, [64, 320, 64]), [1, 80, 336, 144], &["tile.wgmma "]);
    }
}

#[test]
fn batches_are_products_of_matrices() {
    for (dtype, k) in [(DType::BF16, 64), (DType::F8E4M3, 64)] {
        let case = Case { batched: true, ..Case::new(dtype, [false, false], [64, 64, k]) };
        agrees(case, [3, 80, 80, 144], &["tile.tma_load", "tile.slice_shared"]);
    }
}

#[test]
fn factors_are_converted_by_a_role_of_their_own() {
    let made = ["producer=threads", "tile.tma_load", "tile.load_shared"];
    for turned in ORIENTATIONS {
        println!("{turned:?}");
        let case = Case { stored: [DType::F32; 2], computed: Some(DType::TF32), ..Case::new(DType::F32, turned, [64, 64, 32]) };
        agrees(case, SIZES, &made);
        let case =
            Case { stored: [DType::F8E4M3; 2], computed: Some(DType::BF16), ..Case::new(DType::BF16, turned, [64, 64, 64]) };
        agrees(case, SIZES, &made);
    }
    let large =
        Case { stored: [DType::F32; 2], computed: Some(DType::BF16), ..Case::new(DType::BF16, [false, false], [128, 128, 64]) };
    agrees(large, SIZES, &made);
}

/// Sums that blocks add up with atomics, which come behind every load; tiles whose number another array holds; a loop that tests a multiple of
/// its counter; two products with a common factor; sums that a round scales; rows from anywhere: none of that is a reason against roles.
#[test]
fn what_stands_around_the_loop_decides_nothing() {
    let split = "    s = ct.bid(2)
    rounds = ct.cdiv(x.shape[1], 32)
    for k in range(s * 2, min(s * 2 + 2, rounds)):
        acc = ct.mma(ct.load(x, (i, k), (64, 32)), ct.load(y, (k, j), (32, 64)), acc)
    rows, columns = i * 64 + ct.arange(64, dtype=ct.int32), j * 64 + ct.arange(64, dtype=ct.int32)
    ct.atomic_add(out, (rows[:, None], columns[None, :]), acc)
";
    let chosen = "    e = ct.gather(at, i)
    k = 0
    while k * 32 < x.shape[1]:
        acc = ct.mma(ct.load(x, (e, k), (64, 32)), ct.load(y, (k, j), (32, 64)), acc)
        k += 1
    ct.store(out, (i, j), acc)
";
    let element = "    e = ct.load(at, i, ())
    for k in range(ct.cdiv(x.shape[1], 32)):
        acc += ct.mma(ct.load(x, (e, k), (64, 32)), ct.load(y, (k, j), (32, 64)), ct.zeros((64, 64), ct.float32))
    ct.store(out, (i, j), acc)
";
    let gated = "    other, left = acc, x.shape[1]
    k = 0
    while left > 0:
        a = ct.load(x, (i, k), (64, 32))
        other = ct.mma(a, ct.load(y, (k, 1 - j), (32, 64)), other)
        acc = ct.mma(a, ct.load(y, (k, j), (32, 64)), acc)
        left, k = left - 32, k + 1
    ct.store(out, (i, j), acc + 2 * other)
";
    let scaled = "    zero = acc
    for k in range(ct.cdiv(x.shape[1], 32)):
        s = ct.load(at, (i,), (1,)).astype(ct.float32) + k
        acc += ct.mma(ct.load(x, (i, k), (64, 32)), ct.load(y, (k, j), (32, 64)), zero) * s
    ct.store(out, (i, j), acc)
";
    let gathered = "    rows = (i * 64 + ct.arange(64, dtype=ct.int32)) ^ 5
    for k in range(ct.cdiv(x.shape[1], 32)):
        columns = k * 32 + ct.arange(32, dtype=ct.int32)
        a = ct.gather(x, (rows[:, None], columns[None, :]), padding_value=0)
        acc = ct.mma(a, ct.load(y, (k, j), (32, 64)), acc)
    ct.store(out, (i, j), acc)
";
    for (body, blocks) in [(split, 3), (chosen, 1), (element, 1), (gated, 1), (scaled, 1), (gathered, 1)] {
        let source = format!(
            "import cuda.tile as ct\n\n@ct.kernel\ndef kernel(x, y, at, out):\n    i, j = ct.bid(0), ct.bid(1)\n    acc = ct.zeros((64, 64), ct.float32)\n{body}"
        );
        let file = parse_file("kernel.py", &source);
        let args = [("x", DType::BF16, 2), ("y", DType::BF16, 2), ("at", DType::I32, 1), ("out", DType::F32, 2)]
            .map(|(name, dtype, rank)| (name.to_string(), ArgType::array(dtype, rank)));
        let compiled = compile(&file, "kernel", &args, &CompileOptions::default());
        let compiled = compiled.unwrap_or_else(|found| panic!("{}", found[0].render(&file.sources, false)));
        let data = [
            fill(DType::BF16, &[128, 160], 1),
            fill(DType::BF16, &[160, 128], 2),
            Data::codes(DType::I32, &[2], |i| 1 - i as u64),
            Data::zeros(DType::F32, &[128, 128]),
        ];
        let kernel = compile_for(&compiled, Arch::Sm90a, OptLevel::O2).unwrap_or_else(|found| panic!("{}", found[0].message));
        let text = print_module(&kernel.tile);
        assert!(text.contains("tile.tma_load") && text.contains("tile.role"), "{text}");
        let launch = Launch { compiled: &compiled, grid: [2, 2, blocks] };
        let (mut cpu, mut emulated) = (data.to_vec(), data.to_vec());
        on_cpu(&launch, &mut cpu).unwrap_or_else(|error| panic!("{error}"));
        run(&kernel.kernel, launch.grid, &mut emulated).unwrap_or_else(|error| panic!("{error}\n{text}"));
        same(&cpu[3], &emulated[3], 1e-6).unwrap_or_else(|error| panic!("{error}\n{text}"));
        assembled(&kernel.kernel);
    }
}
