//! Arrays that end, and rows that begin, anywhere among the vectors that they are moved in: lock-step and the emulator have what the CPU executor has,
//! and nothing beside an array is touched.

use tessera_compile::{CompileOptions, OptLevel, compile, compile_for};
use tessera_emu::Schedule;
use tessera_ir::Extent;
use tessera_lang::{ArgType, ConstValue, parse_file, state_odd_lines};
use tessera_types::{Arch, DType, FloatFormat, Overflow, Rounding};

use crate::devices::{Data, Launch, lockstep_of, on_cpu, run_under, same};

const HEAD: &str = "import cuda.tile as ct
import tessera

@tessera.kernel
def kernel(x, w, y, ACC: ct.Constant, N: ct.Constant[int]):
    i = ct.bid(0)
";

/// Two reductions of which one needs the other; one that zeros beside the row would decide.
const CENTRED: &str = "    v = ct.load(x, (i, 0), (1, N)).astype(ACC)
    top = ct.max(v, axis=1, keepdims=True)
    total = ct.sum(v - top, axis=1, keepdims=True) + ct.min(v * v, axis=1, keepdims=True)
    ct.store(y, (i, 0), ((v - top) * 0.5 + total).astype(y.dtype))
";

/// A weight, which begins elsewhere than the rows.
const WEIGHTED: &str = "    v = ct.load(x, (i, 0), (1, N)).astype(ACC)
    b = ct.load(w, (0,), (N,)).astype(ACC)
    ct.store(y, (i, 0), (v * ct.max(v, axis=1, keepdims=True) + b).astype(y.dtype))
";

/// Numbers of columns.
const COUNTED: &str = "    v = ct.load(x, (i, 0), (1, N)).astype(ACC)
    seen = ct.where(ct.arange(N, dtype=ct.int32)[None, :] <= i * 7, v, 0.0)
    ct.store(y, (i, 0), (seen + ct.sum(seen, axis=1, keepdims=True)).astype(y.dtype))
";

/// An array that is written where it is read, of which nothing may be read beside a row.
const IN_PLACE: &str = "    v = ct.load(y, (i, 0), (1, N)).astype(ACC)
    ct.store(y, (i, 0), (v + ct.max(v, axis=1, keepdims=True)).astype(y.dtype))
";

/// The same without a reduction: rows that begin between two vectors, of which other blocks write parts meanwhile.
const DOUBLED: &str = "    ct.store(y, (i, 0), (ct.load(y, (i, 0), (1, N)).astype(ACC) * 2.0).astype(y.dtype))
";

/// Rows 16 apart, the next one on its way, and a weight that is held meanwhile.
const ALIKE: &str = "    b = ct.load(w, (0,), (N,))
    v = ct.load(x, (i, 0), (1, N), padding_mode=ct.PaddingMode.ZERO)
    for k in range(i, x.shape[0], 16):
        next = ct.load(x, (k + 16, 0), (1, N), padding_mode=ct.PaddingMode.ZERO)
        u = v.astype(ACC)
        ct.store(y, (k, 0), (u * ct.max(u, axis=1, keepdims=True) + b.astype(ACC)).astype(y.dtype))
        v = next
";

/// Sums over such rows, by columns, and two numbers of each row at once.
const SUMMED: &str = "    sums = ct.zeros((1, N), ACC)
    for k in range(i, x.shape[0], 16):
        v = ct.load(x, (k, 0), (1, N)).astype(ACC)
        low, high = ct.reduce((v, v), 1, lambda a, b, c, d: (min(a, c), max(b, d)), (9.0, 0.0), keepdims=True)
        sums = sums + v * (high - low)
    ct.store(y, (i, 0), (sums * 0.125).astype(y.dtype))
";

/// Rows 4 apart: of elements of 16 bits, they begin at two places.
const OTHER_PLACES: &str = "    for k in range(i, x.shape[0], 4):
        v = ct.load(x, (k, 0), (1, N)).astype(ACC)
        ct.store(y, (k, 0), (v * ct.max(v, axis=1, keepdims=True)).astype(y.dtype))
";

/// Tiles of several rows and of none, which the array ends in.
const TILES: &str = "    ct.store(y, (i, 0), ct.load(x, (i, 0), (4, 64), padding_mode=ct.PaddingMode.ZERO))
    ct.store(y, (i, 1), ct.load(x, (i, 1), (4, 64)))
";

/// Rows of two arrays, which need not begin alike, in tiles that are wider than they.
const PAIRED: &str = "    v = ct.load(x, (i, 0), (1, N), padding_mode=ct.PaddingMode.ZERO).astype(ACC)
    u = ct.load(w, (i, 0), (1, N), padding_mode=ct.PaddingMode.ZERO).astype(ACC)
    ct.store(y, (i, 0), (v * u + ct.sum(v * u, axis=1, keepdims=True) * 0.0078125).astype(y.dtype))
";

/// The second row of several weights.
const SECOND: &str = "    v = ct.load(x, (i, 0), (1, N), padding_mode=ct.PaddingMode.ZERO).astype(ACC)
    b = ct.load(w, (1, 0), (1, N), padding_mode=ct.PaddingMode.ZERO).astype(ACC)
    ct.store(y, (i, 0), (v * ct.max(v, axis=1, keepdims=True) + b).astype(y.dtype))
";

/// Two rows a tile, of which threads have an odd number of registers.
const TWO_ROWS: &str = "    v = ct.load(x, (i, 0), (2, N), padding_mode=ct.PaddingMode.ZERO).astype(ACC)
    ct.store(y, (i, 0), (v + ct.max(v, axis=1, keepdims=True)).astype(y.dtype))
";

/// Whole vectors of two arrays, stored to lines that are none: the last elements of a thread's are the next lane's to store.
const SHIFTED: &str = "    u, v = ct.load(x, (i, 0), (ROWS, N)).astype(ACC), ct.load(w, (i, 0), (ROWS, N)).astype(ACC)
    ct.store(y, (i, 0), ((u + v) * 0.5).astype(y.dtype))
";

/// Neighbours of elements, by indices.
const NEIGHBOURS: &str = "    r = i * 4 + ct.arange(4, dtype=ct.int32)[:, None]
    c = ct.arange(N, dtype=ct.int32)[None, :]
    sides = ct.gather(x, (r, c - 1), padding_value=0) + ct.gather(x, (r, c + 1), padding_value=0)
    ct.scatter(y, (r, c), (ct.gather(x, (r - 1, c), padding_value=0) + sides) * 0.25)
";

fn array(storage: DType, sizes: &[i64]) -> ArgType {
    let mut array = ArgType::array(storage, sizes.len());
    if let (ArgType::Array { lines, .. }, Some(last)) = (&mut array, sizes.last()) {
        let bytes = 1 << (last * storage.unpacked_bytes() as i64).trailing_zeros().min(4);
        *lines = bytes;
    }
    array
}

/// Quarters from 1/4 to 9/4, so that sums are exact in any order.
fn numbers(storage: DType, sizes: &[i64], seed: usize) -> Data {
    let format = FloatFormat::of(storage).expect("a float");
    let number = move |i: usize| ((i * 7 + i / 13 + seed) % 9 + 1) as f64 / 4.0;
    Data::codes(storage, sizes, |i| format.encode(number(i), Rounding::NearestEven, Overflow::Saturate))
}

/// Runs a kernel over rows and a weight everywhere; whether it takes them from whole vectors on.
fn agree(work: &str, storage: DType, [rows, columns]: [i64; 2], grid: u32, arch: Arch) -> bool {
    agree_of(work, storage, [vec![rows, columns], vec![columns], vec![rows, columns]], columns, grid, arch)
}

/// The same of arrays of any sizes, in tiles of so many columns.
fn agree_of(work: &str, storage: DType, sizes: [Vec<i64>; 3], tile: i64, grid: u32, arch: Arch) -> bool {
    let types = sizes.each_ref().map(|sizes| array(storage, sizes));
    agree_as(work, storage, sizes, types, tile, grid, arch)
}

/// The same of arrays of which so much is known.
fn agree_as(work: &str, storage: DType, sizes: [Vec<i64>; 3], types: [ArgType; 3], tile: i64, grid: u32, arch: Arch) -> bool {
    let file = parse_file("odd.py", &format!("{HEAD}{work}"));
    let acc = if storage == DType::F64 { DType::F64 } else { DType::F32 };
    let [rows, columns] = [sizes[0][0], sizes[0][1]];
    let mut args: Vec<(String, ArgType)> = ["x", "w", "y"].map(String::from).into_iter().zip(types).collect();
    args.push(("ACC".to_string(), ArgType::Const(ConstValue::DType(acc))));
    args.push(("N".to_string(), ArgType::Const(ConstValue::Int(tile))));
    state_odd_lines(&mut args, |place| {
        let sizes = sizes.get(place)?;
        Some([sizes.clone(), if sizes.len() == 2 { vec![sizes[1], 1] } else { vec![1] }])
    });
    let stated =
        args.iter().any(|(_, ty)| matches!(ty, ArgType::Array { shape, .. } if shape.contains(&Extent::Static(columns))));
    let compiled = compile(&file, "kernel", &args, &CompileOptions::default()).expect("the kernel compiles");
    let device = compile_for(&compiled, arch, OptLevel::O3)
        .unwrap_or_else(|found| panic!("{}", found[0].render(&compiled.module.sources, false)));
    let data: Vec<Data> = sizes.iter().enumerate().map(|(at, sizes)| numbers(storage, sizes, at)).collect();
    let grid = [grid, 1, 1];
    let mut wanted = data.clone();
    on_cpu(&Launch { compiled: &compiled, grid }, &mut wanted).expect("it runs");
    let told = |how: &str, why: String| panic!("{storage}, {rows} x {columns} on {arch}, {how}: {why}\n{work}");
    let mut stepped = data.clone();
    lockstep_of(&device.tile, grid, &mut stepped).unwrap_or_else(|error| told("in lock-step", error));
    same(&wanted[2], &stepped[2], 0.0).unwrap_or_else(|error| told("in lock-step", error));
    for schedule in [Schedule::Eager, Schedule::Random] {
        let mut emulated = data.clone();
        run_under(schedule, &device.kernel, grid, &mut emulated).unwrap_or_else(|error| told(&format!("{schedule:?}"), error));
        same(&wanted[2], &emulated[2], 0.0).unwrap_or_else(|error| told(&format!("{schedule:?}"), error));
    }
    let aligned = tessera_ir::text::print_module(&device.tile).contains("steps=[1,1]");
    assert!(stated || !aligned || tile != columns, "lines of {columns} are whole vectors");
    aligned
}

#[test]
fn rows_of_any_length() {
    for storage in [DType::F32, DType::BF16, DType::F16, DType::F8E4M3, DType::F64] {
        for (rows, columns) in [(3, 1001), (20, 257), (5, 1023), (2, 4099), (3, 2050), (1, 333), (7, 17)] {
            // Shorter rows are taken by single elements.
            let odd = columns >= 768 && columns * storage.bits() as i64 % 128 != 0;
            for work in [CENTRED, COUNTED, IN_PLACE] {
                let aligned = agree(work, storage, [rows, columns], rows as u32, Arch::Sm90a);
                assert_eq!(aligned, odd, "{storage}, {columns}: {work}");
            }
            for work in [WEIGHTED, DOUBLED] {
                agree(work, storage, [rows, columns], rows as u32, Arch::Sm90a);
            }
        }
    }
    for work in [CENTRED, WEIGHTED, COUNTED] {
        agree(work, DType::BF16, [3, 1001], 3, Arch::Sm80);
    }
}

#[test]
fn rows_of_two_arrays_in_wider_tiles() {
    for storage in [DType::F32, DType::BF16, DType::F8E4M3, DType::F64] {
        for (rows, columns, tile) in [(9, 1001, 1024), (9, 37, 64), (5, 1004, 1024), (4, 5, 8), (9, 1002, 2048)] {
            let sizes = [vec![rows, columns], vec![rows, columns], vec![rows, columns]];
            for work in [PAIRED, SECOND] {
                agree_of(work, storage, sizes.clone(), tile, rows as u32, Arch::Sm90a);
            }
            // Lines of the second array lie further apart than those of the others.
            let sizes = [vec![rows, columns], vec![rows, columns + 3], vec![rows, columns]];
            agree_of(SECOND, storage, sizes, tile, rows as u32, Arch::Sm90a);
        }
    }
    agree_of(PAIRED, DType::BF16, [vec![9, 1001], vec![9, 1001], vec![9, 1001]], 1024, 9, Arch::Sm80);
}

#[test]
fn weights_that_are_shorter_than_a_vector() {
    for storage in [DType::F32, DType::BF16, DType::F16, DType::F8E4M3] {
        for columns in [2, 3, 5, 7, 9, 13] {
            agree(WEIGHTED, storage, [9, columns], 9, Arch::Sm90a);
            agree(WEIGHTED, storage, [9, columns], 9, Arch::Sm80);
        }
    }
}

#[test]
fn odd_numbers_of_registers() {
    for (storage, columns) in [(DType::BF16, 4097), (DType::F16, 4099)] {
        agree(TWO_ROWS, storage, [4, columns], 2, Arch::Sm90a);
    }
}

#[test]
fn loops_over_rows_that_begin_alike() {
    for storage in [DType::F32, DType::BF16, DType::F8E4M3] {
        for (rows, columns) in [(40, 257), (19, 1001), (5, 1023)] {
            for work in [ALIKE, SUMMED] {
                let aligned = agree(work, storage, [rows, columns], 16.min(rows as u32), Arch::Sm90a);
                assert!(aligned, "{storage}, {columns}: {work}");
            }
        }
        let aligned = agree(OTHER_PLACES, storage, [11, 1001], 4, Arch::Sm90a);
        assert_eq!(aligned, storage == DType::F32, "{storage}: rows that are 4 apart");
    }
    agree(ALIKE, DType::BF16, [40, 257], 16, Arch::Sm80);
}

#[test]
fn arrays_that_end_in_a_vector() {
    for storage in [DType::F32, DType::BF16, DType::F8E4M3, DType::F64] {
        for columns in [1, 2, 63, 64, 65, 97, 121, 127] {
            agree(TILES, storage, [9, columns], 3, Arch::Sm90a);
        }
    }
}

#[test]
fn vectors_stored_between_vectors() {
    for storage in [DType::F32, DType::BF16, DType::F8E4M3] {
        for (columns, tile) in [(1001, 1024), (1023, 1024), (514, 1024), (259, 512), (129, 256), (7, 256)] {
            for rows in [1, 2, 8] {
                let work = SHIFTED.replace("ROWS", &rows.to_string());
                let sizes = [vec![8, tile], vec![8, tile], vec![8, columns]];
                agree_of(&work, storage, sizes, tile, 8 / rows, Arch::Sm90a);
            }
        }
    }
    let sizes = [vec![3, 1024], vec![3, 1024], vec![3, 1001]];
    agree_of(&SHIFTED.replace("ROWS", "1"), DType::F16, sizes, 1024, 3, Arch::Sm80);
}

#[test]
fn neighbours_by_indices() {
    for storage in [DType::F32, DType::BF16] {
        for columns in [1024, 1000, 997, 512, 130, 63, 5] {
            for rows in [16, 13] {
                agree_of(NEIGHBOURS, storage, [vec![rows, columns], vec![1], vec![rows, columns]], 1024, 4, Arch::Sm90a);
            }
        }
    }
    agree_of(NEIGHBOURS, DType::F32, [vec![12, 2048], vec![1], vec![12, 2048]], 1024, 3, Arch::Sm80);
}

/// Tiles that lie in lines of a known length, which is a little more than theirs: the last vector of an array's last line is not whole.
#[test]
fn tiles_of_lines_that_are_a_little_longer() {
    for storage in [DType::F32, DType::BF16, DType::F8E4M3] {
        for columns in [1025, 1027, 1031] {
            let sizes = [vec![3, columns], vec![3, 1024], vec![3, 1024]];
            let mut types = sizes.each_ref().map(|sizes| array(storage, sizes));
            if let ArgType::Array { shape, strides, .. } = &mut types[0] {
                shape[1] = Extent::Static(columns);
                strides[0] = Extent::Static(columns);
            }
            agree_as(&SHIFTED.replace("ROWS", "1"), storage, sizes, types, 1024, 3, Arch::Sm90a);
        }
    }
}
