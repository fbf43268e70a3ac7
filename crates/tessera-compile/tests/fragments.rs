//! What a warp does together: products of fragments in kernels of threads, in lock-step and on the emulator, against sums computed here; and
//! combinations of integers by one instruction.

use tessera_compile::{CompileOptions, compile};
use tessera_lang::{ArgType, parse_file};
use tessera_types::{Arch, DType, FloatFormat, Overflow, Rounding};

use crate::devices::{self, ARCHS, Data, Launch, in_lockstep, lowered, on_cpu, run, same};

/// 32 x 48 by 48 x 16, two warps with 16 rows each; the right factor comes through shared memory.
const SOURCE: &str = r#"
@tessera.kernel
def kernel(a: Tensor["M", "K", dtype], b: Tensor["K", "N", dtype], c: Tensor["M", "N", out]):
    s = tile.alloc_shared[dtype](48, 16)
    t = tile.thread_id()
    for i in range(t, 48 * 16, 64):
        s[i // 16, i % 16] = b[i // 16, i % 16]
    tile.barrier()
    row = tile.warp_id() * 16
    x = tile.fragment[dtype]("a")
    y = tile.fragment[dtype]("b")
    total = tile.fragment[out]("accumulator")
    tile.fragment_fill(total, 1)
    for k in range(0, 48, 16):
        tile.fragment_load(x, a[row, k])
        tile.fragment_load(y, s[k, 0])
        tile.fragment_mma(total, x, y)
    tile.fragment_store(c[row, 0], total)
"#;

#[test]
fn a_warp_multiplies_fragments() {
    let cases = [
        (DType::F16, DType::F32),
        (DType::BF16, DType::F32),
        (DType::F16, DType::F16),
        (DType::I8, DType::I32),
        (DType::U8, DType::I32),
    ];
    for (dtype, out) in cases {
        // Small whole numbers, so that every sum is exact.
        let number = |at: usize| (at * 7 % 5) as i64 - if dtype == DType::U8 { 0 } else { 2 };
        let code = |dtype: DType, value: i64| match FloatFormat::of(dtype) {
            Some(format) => format.encode(value as f64, Rounding::NearestEven, Overflow::Ieee),
            None => value as u64,
        };
        let array = |rows: i64, columns: i64| Data::codes(dtype, &[rows, columns], |at| code(dtype, number(at)));
        let args: Vec<(String, ArgType)> =
            [("a", dtype), ("b", dtype), ("c", out)].map(|(name, dtype)| (name.to_string(), ArgType::array(dtype, 2))).into();
        let options = CompileOptions { block: Some(64), ..CompileOptions::default() };
        let file = parse_file("kernel.py", SOURCE);
        let compiled =
            compile(&file, "kernel", &args, &options).unwrap_or_else(|found| panic!("{}", found[0].render(&file.sources, false)));
        let data = [array(32, 48), array(48, 16), Data::zeros(out, &[32, 16])];
        let want: Vec<i64> = (0..32 * 16)
            .map(|at| 1 + (0..48).map(|k| number(at / 16 * 48 + k) * number(k * 16 + at % 16)).sum::<i64>())
            .collect();
        let right = |data: &Data, place: &str| {
            let Data::Array { bytes, .. } = data else { panic!() };
            let width = out.unpacked_bytes();
            for (at, (bytes, &want)) in bytes.chunks(width).zip(&want).enumerate() {
                assert_eq!(bytes, &code(out, want).to_le_bytes()[..width], "{dtype} {out} {place}: element {at} is not {want}");
            }
        };
        let launch = Launch { compiled: &compiled, grid: [1, 1, 1] };
        let mut threads = data.to_vec();
        in_lockstep(&launch, ARCHS[0], &mut threads).unwrap_or_else(|error| panic!("{dtype} {out}: {error}"));
        right(&threads[2], "lock-step");
        let archs = if (dtype, out) == (DType::F16, DType::F32) {
            &[Arch::Sm75, Arch::Sm80, Arch::Sm90a][..]
        } else {
            &[Arch::Sm80, Arch::Sm100a]
        };
        for &arch in archs {
            let kernel = lowered(&compiled, arch).unwrap_or_else(|error| panic!("{arch}: {error}"));
            assert!(kernel.instruction_mix()["mma"] >= 2);
            let mut emulated = data.to_vec();
            run(&kernel, [1, 1, 1], &mut emulated).unwrap_or_else(|error| panic!("{arch} {dtype} {out}: {error}"));
            right(&emulated[2], arch.name());
            devices::assembled(&kernel);
        }
    }
}

/// 32 x 64, of which half is stored, by 64 x 16, two warps with 16 rows each.
const STORED_BY_HALF: &str = r#"
@tessera.kernel
def kernel(a: Tensor["M", "H", dtype], where: Tensor["M", "W", int32], b: Tensor["K", "N", dtype], c: Tensor["M", "N", out]):
    row = tile.warp_id() * 16
    x = tile.fragment[dtype]("a")
    places = tile.fragment[int32]("places")
    y = tile.fragment[dtype]("b")
    below = tile.fragment[dtype]("b")
    total = tile.fragment[out]("accumulator")
    tile.fragment_fill(total, 1)
    for k in range(0, 64, 32):
        tile.fragment_load(x, a[row, k // 2])
        tile.fragment_load(places, where[row, k // 32])
        tile.fragment_load(y, b[k, 0])
        tile.fragment_load(below, b[k + 16, 0])
        tile.fragment_mma_sparse(total, x, places, y, below)
    tile.fragment_store(c[row, 0], total)
"#;

fn stored_by_half(dtype: DType, out: DType) -> tessera_compile::Compiled {
    let arrays = [("a", dtype), ("where", DType::I32), ("b", dtype), ("c", out)];
    let args: Vec<(String, ArgType)> = arrays.map(|(name, dtype)| (name.to_string(), ArgType::array(dtype, 2))).into();
    let options = CompileOptions { block: Some(64), ..CompileOptions::default() };
    let file = parse_file("kernel.py", STORED_BY_HALF);
    compile(&file, "kernel", &args, &options).unwrap_or_else(|found| panic!("{}", found[0].render(&file.sources, false)))
}

#[test]
fn a_warp_multiplies_what_is_stored_by_half() {
    // Every pair of places comes in every row.
    const PAIRS: [[usize; 2]; 6] = [[0, 1], [0, 2], [0, 3], [1, 2], [1, 3], [2, 3]];
    let pair = |row: usize, four: usize| PAIRS[(row + 5 * four) % 6];
    let word = |row: usize, word: usize| {
        (0..8)
            .map(|four| (four, pair(row, 8 * word + four)))
            .fold(0, |bits, (four, [first, second])| bits | (first | second << 2) << (4 * four))
    };
    for (dtype, out) in [
        (DType::F16, DType::F32),
        (DType::BF16, DType::F32),
        (DType::F16, DType::F16),
        (DType::I8, DType::I32),
        (DType::U8, DType::I32),
    ] {
        let number = |at: usize| (at * 7 % 5) as i64 - if dtype == DType::U8 { 0 } else { 2 };
        let code = |dtype: DType, value: i64| match FloatFormat::of(dtype) {
            Some(format) => format.encode(value as f64, Rounding::NearestEven, Overflow::Ieee),
            None => value as u64,
        };
        let array = |rows: i64, columns: i64| Data::codes(dtype, &[rows, columns], |at| code(dtype, number(at)));
        let places = Data::codes(DType::I32, &[32, 2], |at| word(at / 2, at % 2) as u64);
        let data = [array(32, 32), places, array(64, 16), Data::zeros(out, &[32, 16])];
        let product = |row: usize, column: usize| {
            let stored = (0..32).map(|at| (at, 4 * (at / 2) + pair(row, at / 2)[at % 2]));
            1 + stored.map(|(at, k)| number(row * 32 + at) * number(k * 16 + column)).sum::<i64>()
        };
        let right = |data: &Data, place: &str| {
            let Data::Array { bytes, .. } = data else { panic!() };
            let width = out.unpacked_bytes();
            for (at, bytes) in bytes.chunks(width).enumerate() {
                let want = product(at / 16, at % 16);
                assert_eq!(bytes, &code(out, want).to_le_bytes()[..width], "{dtype} {out} {place}: element {at} is not {want}");
            }
        };
        let compiled = stored_by_half(dtype, out);
        let launch = Launch { compiled: &compiled, grid: [1, 1, 1] };
        let mut threads = data.to_vec();
        in_lockstep(&launch, ARCHS[0], &mut threads).unwrap_or_else(|error| panic!("{dtype} {out}: {error}"));
        right(&threads[3], "lock-step");
        for arch in [Arch::Sm80, Arch::Sm90a, Arch::Sm100a] {
            let kernel = lowered(&compiled, arch).unwrap_or_else(|error| panic!("{arch}: {error}"));
            assert!(kernel.ptx().contains("mma.sp::ordered_metadata.sync.aligned.m16n8k32"));
            let mut emulated = data.to_vec();
            run(&kernel, [1, 1, 1], &mut emulated).unwrap_or_else(|error| panic!("{arch} {dtype} {out}: {error}"));
            right(&emulated[3], arch.name());
            devices::assembled(&kernel);
        }
    }
    assert!(lowered(&stored_by_half(DType::F16, DType::F32), Arch::Sm75).is_err(), "sm_75 has no such product");
}

/// What does not stand in the left factor takes no part: infinities that it would meet leave no NaN. Places out of order are found.
#[test]
fn what_is_not_stored_meets_nothing_and_places_must_rise() {
    let compiled = stored_by_half(DType::F16, DType::F32);
    let launch = Launch { compiled: &compiled, grid: [1, 1, 1] };
    let kernel = lowered(&compiled, Arch::Sm80).unwrap();
    // Rows 2 and 3 of each four are infinite, and the places are 0 and 1.
    let b = Data::codes(DType::F16, &[64, 16], |at| if at / 16 % 4 < 2 { 0x3c00 } else { 0x7c00 });
    let with_places = |row_20: u64| {
        let places = Data::codes(DType::I32, &[32, 2], |at| if at == 40 { row_20 } else { 0x4444_4444 });
        [Data::codes(DType::F16, &[32, 32], |_| 0x3c00), places, b.clone(), Data::zeros(DType::F32, &[32, 16])]
    };
    let (mut threads, mut emulated) = (with_places(0x4444_4444).to_vec(), with_places(0x4444_4444).to_vec());
    in_lockstep(&launch, ARCHS[0], &mut threads).unwrap();
    run(&kernel, [1, 1, 1], &mut emulated).unwrap();
    for data in [&threads[3], &emulated[3]] {
        let Data::Array { bytes, .. } = data else { panic!() };
        assert!(bytes.chunks(4).all(|bytes| bytes == 33f32.to_le_bytes()));
    }
    for wrong in [0x4444_4144, 0x4444_4a44] {
        let error = in_lockstep(&launch, ARCHS[0], &mut with_places(wrong).to_vec()).unwrap_err().to_string();
        assert!(error.contains("row 4 of a factor stored by half") && error.contains("columns 8 to 11"), "{error}");
        let error = run(&kernel, [1, 1, 1], &mut with_places(wrong).to_vec()).unwrap_err().to_string();
        assert!(error.contains("metadata of row 4: group 2"), "{error}");
    }
}

#[test]
fn integers_of_a_warp_are_combined_by_one_instruction() {
    let source = "
import cuda.tile as ct

@ct.kernel
def kernel(x, y):
    t = ct.load(x, (ct.bid(0), 0), (8, 512))
    ct.store(y, (ct.bid(0), 0), ct.cat((ct.sum(t, 1, keepdims=True), ct.max(t, 1, keepdims=True)), 1))
";
    let args: Vec<(String, ArgType)> = ["x", "y"].map(|name| (name.to_string(), ArgType::array(DType::I32, 2))).into();
    let compiled = compile(&parse_file("kernel.py", source), "kernel", &args, &CompileOptions::default()).unwrap();
    let launch = Launch { compiled: &compiled, grid: [2, 1, 1] };
    let data = [Data::ints(DType::I32, &[16, 512], 1), Data::zeros(DType::I32, &[16, 2])];
    let mut cpu = data.to_vec();
    on_cpu(&launch, &mut cpu).unwrap();
    for arch in [Arch::Sm75, Arch::Sm80] {
        let kernel = lowered(&compiled, arch).unwrap();
        assert_eq!(kernel.instruction_mix().contains_key("redux"), arch == Arch::Sm80);
        let mut emulated = data.to_vec();
        run(&kernel, launch.grid, &mut emulated).unwrap_or_else(|error| panic!("{arch}: {error}"));
        same(&cpu[1], &emulated[1], 0.0).unwrap_or_else(|error| panic!("{arch}: {error}"));
    }
}
