//! Products without warpgroup instructions, through a ring of slots that all warps fill: every precision and transpose, as lock-step, in
//! the emulator under three schedules, and on the CPU executor; and through the assembler.

use tessera_compile::Compiled;
use tessera_emu::Schedule;
use tessera_lang::{ArgType, ConstValue};
use tessera_types::{Arch, DType, FloatFormat, Overflow, Rounding};

use crate::devices::{Data, Launch, assembles_fully, in_lockstep, lowered, on_cpu, run_under, same};
use crate::library;

/// Tile extents, and extents of a product that has ragged edges and fills every slot at least twice.
const TILE: [i64; 3] = [64, 64, 32];
const PROBLEM: [i64; 3] = [80, 112, 9 * 32 + 16];

fn array(dtype: DType, aligned: bool) -> ArgType {
    match ArgType::array(dtype, 2) {
        ArgType::Array { dtype, shape, strides, index, disjoint, align, .. } => {
            let align = if aligned { align } else { dtype.unpacked_bytes() as u32 };
            ArgType::Array { dtype, shape, strides, align, lines: align, index, disjoint }
        }
        other => other,
    }
}

/// The library's product, for other types and transposes.
fn product(factor: DType, acc: DType, transposed: [bool; 2], aligned: bool, tile: [i64; 3]) -> Compiled {
    let flag = |value| ArgType::Const(ConstValue::Bool(value));
    let dtype = |dtype| ArgType::Const(ConstValue::DType(dtype));
    let mut args = library::product_args(tile);
    for (name, ty) in &mut args {
        *ty = match name.as_str() {
            "A" | "B" => array(factor, aligned),
            "C" => array(acc, aligned),
            "alpha" if acc == DType::F64 => ArgType::Scalar(DType::F64),
            "beta" => ArgType::Const(ConstValue::Float(0.0)),
            "COMPUTE" => dtype(factor),
            "ACC" => dtype(acc),
            "TRANSPOSE_A" => flag(transposed[0]),
            "TRANSPOSE_B" => flag(transposed[1]),
            _ => continue,
        };
    }
    library::compiled(&library::file("gemm.py"), "gemm", &args)
}

fn data(factor: DType, acc: DType, transposed: [bool; 2], [m, n, k]: [i64; 3]) -> Vec<Data> {
    let fill = |sizes: [i64; 2], seed: usize| match FloatFormat::of(factor) {
        None => Data::ints(factor, &sizes, seed as u64),
        Some(format) => Data::codes(factor, &sizes, |i| {
            let value = ((i * 7 + seed) % 23) as f64 / 8.0 - 1.25;
            format.encode(value, Rounding::NearestEven, Overflow::Saturate)
        }),
    };
    let side = |flipped: bool, [rows, columns]: [i64; 2]| if flipped { [columns, rows] } else { [rows, columns] };
    let one = if acc == DType::F64 { 1.0_f64.to_le_bytes().to_vec() } else { 1.0_f32.to_le_bytes().to_vec() };
    vec![
        fill(side(transposed[0], [m, k]), 1),
        fill(side(transposed[1], [k, n]), 2),
        Data::zeros(acc, &[m, n]),
        Data::Scalar(one),
        Data::Scalar((k as i32).to_le_bytes().to_vec()),
    ]
}

fn tolerance(acc: DType) -> f64 {
    match acc {
        DType::I32 => 0.0,
        DType::F16 => 3e-2,
        DType::F64 => 1e-12,
        _ => 2e-5,
    }
}

/// The product gives everywhere what the CPU executor gives.
fn agrees(factor: DType, acc: DType, arch: Arch, aligned: bool, problem: [i64; 3], tile: [i64; 3]) {
    for transposed in [[false, false], [false, true], [true, false], [true, true]] {
        let case = format!("{factor} {acc} {transposed:?} {aligned} {arch}");
        let compiled = product(factor, acc, transposed, aligned, tile);
        let blocks = |axis: usize| (problem[axis] as u32).div_ceil(tile[axis] as u32);
        let launch = Launch { compiled: &compiled, grid: [blocks(0), blocks(1), 1] };
        let start = data(factor, acc, transposed, problem);
        let mut wanted = start.clone();
        on_cpu(&launch, &mut wanted).unwrap_or_else(|error| panic!("{case}: {error}"));
        let mut threads = start.clone();
        let text = in_lockstep(&launch, arch, &mut threads).unwrap_or_else(|error| panic!("{case}: {error}"));
        assert!(text.contains("tile.copy_async") && text.contains("tile.mma_shared"), "{case}: {text}");
        same(&wanted[2], &threads[2], tolerance(acc)).unwrap_or_else(|error| panic!("{case}: {error}\n{text}"));
        let kernel = lowered(&compiled, arch).unwrap_or_else(|error| panic!("{case}: {error}"));
        for schedule in [Schedule::Eager, Schedule::Lazy, Schedule::Random] {
            let mut emulated = start.clone();
            run_under(schedule, &kernel, launch.grid, &mut emulated)
                .unwrap_or_else(|error| panic!("{case} {schedule:?}: {error}"));
            same(&wanted[2], &emulated[2], tolerance(acc)).unwrap_or_else(|error| panic!("{case} {schedule:?}: {error}\n{text}"));
        }
    }
}

#[test]
fn single_precision_by_threads() {
    agrees(DType::F32, DType::F32, Arch::Sm80, true, PROBLEM, TILE);
    agrees(DType::F32, DType::F32, Arch::Sm90a, false, [65, 67, 5 * 32 + 1], TILE);
}

#[test]
fn double_precision() {
    agrees(DType::F64, DType::F64, Arch::Sm80, true, PROBLEM, [64, 64, 16]);
    agrees(DType::F64, DType::F64, Arch::Sm90a, true, PROBLEM, [64, 64, 16]);
}

#[test]
fn sixteen_bits() {
    agrees(DType::BF16, DType::F32, Arch::Sm80, true, PROBLEM, TILE);
    agrees(DType::F16, DType::F32, Arch::Sm80, false, [65, 67, 5 * 32 + 1], TILE);
    agrees(DType::F16, DType::F16, Arch::Sm100a, true, PROBLEM, TILE);
}

#[test]
fn thirty_two_bits_rounded() {
    agrees(DType::TF32, DType::F32, Arch::Sm80, true, PROBLEM, TILE);
}

#[test]
fn eight_bits() {
    agrees(DType::I8, DType::I32, Arch::Sm80, true, PROBLEM, TILE);
    agrees(DType::F8E4M3, DType::F32, Arch::Sm89, true, PROBLEM, TILE);
}

/// Rounds that copy half of each line of 128 bytes ask for whole lines.
#[test]
fn halves_of_lines_bring_their_lines_to_the_cache() {
    for (depth, whole) in [(32, true), (64, false)] {
        let kernel = lowered(&product(DType::BF16, DType::F32, [false, true], true, [64, 64, depth]), Arch::Sm80);
        let text = kernel.expect("a kernel").ptx();
        assert_eq!(text.contains("cp.async.cg.shared.global.L2::128B"), whole, "{depth}");
    }
}

/// Tiles of the sizes that large products have fit into registers and shared memory.
#[test]
fn large_tiles_are_assembled_without_spills() {
    let tiles = [
        (DType::F32, DType::F32, [128, 128, 16]),
        (DType::F64, DType::F64, [64, 64, 16]),
        (DType::BF16, DType::F32, [128, 128, 64]),
        (DType::BF16, DType::F32, [128, 256, 64]),
        (DType::TF32, DType::F32, [128, 128, 32]),
        (DType::I8, DType::I32, [128, 128, 64]),
    ];
    for (factor, acc, tile) in tiles {
        for transposed in [[false, false], [false, true], [true, false], [true, true]] {
            let compiled = product(factor, acc, transposed, true, tile);
            let faults = assembles_fully(&compiled);
            assert!(faults.is_empty(), "{factor} {tile:?} {transposed:?}: {faults:?}");
        }
    }
}
