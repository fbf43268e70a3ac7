//! Results of 16 bits leave in fragments: by `stmatrix` and the copy engine where that may be, with what the CPU executor has as the result.

use tessera_compile::target::shared_accesses;
use tessera_compile::{CompileOptions, OptLevel, compile, compile_for};
use tessera_emu::Schedule;
use tessera_ir::text::print_module;
use tessera_lang::{ArgType, parse_file};
use tessera_types::{Arch, DType, FloatFormat, Overflow, Rounding};

use crate::devices::{Data, Launch, assembles_fully, in_lockstep_as_it_is, lowered, on_cpu, run_under, same};

const HEAD: &str = "import cuda.tile as ct

@ct.kernel
def kernel(x, y, out, other):
    i, j = ct.bid(0), ct.bid(1)
    acc = ct.zeros((64, 128), ct.float32)
    for k in range(ct.cdiv(x.shape[1], 32)):
        a = ct.load(x, (i, k), (64, 32), padding_mode=ct.PaddingMode.ZERO)
        acc = ct.mma(a, ct.load(y, (k, j), (32, 128), padding_mode=ct.PaddingMode.ZERO), acc)
";

/// Extents that leave ragged tiles on both sides; lines are whole 16 bytes.
const SIZES: [i64; 3] = [144, 272, 80];
const SCHEDULES: [Schedule; 3] = [Schedule::Eager, Schedule::Lazy, Schedule::Random];

/// What a product's tile goes through on its way, and what stores it.
struct Way {
    behind: &'static str,
    /// The results' shapes: of `m` by `n`, turned, or in a batch of one.
    shapes: [&'static [usize]; 2],
    /// Stores by the copy engine.
    sent: usize,
}

const PLAIN: &[usize] = &[0, 1];
const TURNED: &[usize] = &[1, 0];
const BATCH: &[usize] = &[2, 0, 1];

const WAYS: [Way; 7] = [
    Way { behind: "    ct.store(out, (i, j), acc.astype(out.dtype))\n", shapes: [PLAIN, PLAIN], sent: 1 },
    Way { behind: "    ct.store(out, (j, i), ct.transpose(acc.astype(out.dtype)))\n", shapes: [TURNED, PLAIN], sent: 1 },
    Way {
        behind: "    acc = acc + ct.load(out, (i, j), (64, 128), padding_mode=ct.PaddingMode.ZERO).astype(ct.float32)
    ct.store(out, (i, j), acc.astype(out.dtype))\n",
        shapes: [PLAIN, PLAIN],
        sent: 1,
    },
    Way {
        behind: "    ct.store(out, (0, i, j), acc.astype(out.dtype).reshape((1, 64, 128)))\n",
        shapes: [BATCH, PLAIN],
        sent: 1,
    },
    Way {
        behind: "    ct.store(out, (i, j), acc.astype(out.dtype))
    ct.store(other, (i, j), (acc * 2.0).astype(out.dtype))\n",
        shapes: [PLAIN, PLAIN],
        sent: 2,
    },
    // The second of two stores to one array has to come second.
    Way {
        behind: "    ct.store(out, (i, j), acc.astype(out.dtype))
    ct.store(out, (i, j), (acc * 2.0).astype(out.dtype))\n",
        shapes: [PLAIN, PLAIN],
        sent: 0,
    },
    // What is read behind the store is what was stored, and in vectors.
    Way {
        behind: "    ct.store(out, (i, j), acc.astype(out.dtype))
    again = ct.load(out, (i, j), (64, 128), padding_mode=ct.PaddingMode.ZERO)
    ct.store(other, (i, j), again + again)\n",
        shapes: [PLAIN, PLAIN],
        sent: 0,
    },
];

fn fill(dtype: DType, sizes: &[i64], seed: usize) -> Data {
    let format = FloatFormat::of(dtype).expect("a float");
    Data::codes(dtype, sizes, |at| {
        let value = ((at * 7 + seed + at / 29) % 23) as f64 / 8.0 - 1.25;
        format.encode(value, Rounding::NearestEven, Overflow::Saturate)
    })
}

fn agrees(dtype: DType, out: DType, way: &Way) {
    let source = format!("{HEAD}{}", way.behind);
    let file = parse_file("kernel.py", &source);
    let ranks = [(2, true), (2, true), (way.shapes[0].len(), false), (way.shapes[1].len(), false)];
    let args: Vec<(String, ArgType)> = ["x", "y", "out", "other"]
        .iter()
        .zip(ranks)
        .map(|(name, rank)| (name.to_string(), ArgType::array(if rank.1 { dtype } else { out }, rank.0)))
        .collect();
    let compiled = compile(&file, "kernel", &args, &CompileOptions::default())
        .unwrap_or_else(|found| panic!("{}\n{source}", found[0].render(&file.sources, false)));
    let [m, n, k] = SIZES;
    let result = |axes: &[usize], seed| fill(out, &axes.iter().map(|&axis| [m, n, 1][axis]).collect::<Vec<_>>(), seed);
    let start = [fill(dtype, &[m, k], 1), fill(dtype, &[k, n], 2), result(way.shapes[0], 3), result(way.shapes[1], 4)];
    let launch = Launch { compiled: &compiled, grid: [(m as u32).div_ceil(64), (n as u32).div_ceil(128), 1] };
    let mut wanted = start.clone();
    on_cpu(&launch, &mut wanted).unwrap_or_else(|error| panic!("{error}\n{source}"));
    let device = compile_for(&compiled, Arch::Sm90a, OptLevel::O2);
    let device = device.unwrap_or_else(|found| panic!("{}", found[0].render(&compiled.module.sources, false)));
    let text = print_module(&device.tile);
    let sent = text.matches("tile.tma_store ").count() + text.matches("tile.send_tile ").count();
    assert_eq!(sent, way.sent, "{text}");
    let mut stepped = start.clone();
    in_lockstep_as_it_is(device.tile.clone(), launch.grid, &mut stepped).unwrap_or_else(|error| panic!("{error}"));
    let kernel = lowered(&compiled, Arch::Sm90a).unwrap_or_else(|error| panic!("{error}\n{text}"));
    // Four warps hold 64 x 128 elements, and a warp's instruction stores 512 bytes.
    let matrices = |text: &str| text.starts_with("stmatrix");
    let accesses = shared_accesses(&kernel.kernel);
    assert!(accesses.iter().all(|access| access.cost.degree == Some(1)), "{accesses:?}\n{text}");
    let stored: u32 = accesses.iter().filter(|access| matrices(&access.operation)).map(|access| access.instructions).sum();
    let expected = if out.bits() == 16 { way.sent * 64 * 128 * 2 / 4 / 512 } else { 0 };
    assert_eq!(stored as usize, expected, "{accesses:?}\n{text}");
    let mut runs = vec![("lock-step".to_string(), stepped)];
    for schedule in SCHEDULES {
        let mut data = start.clone();
        run_under(schedule, &kernel, launch.grid, &mut data).unwrap_or_else(|error| panic!("{schedule:?}: {error}\n{text}"));
        runs.push((format!("{schedule:?}"), data));
    }
    for (name, data) in &runs {
        for at in [2, 3] {
            same(&wanted[at], &data[at], 1e-6).unwrap_or_else(|error| panic!("{name}: {error}\n{text}"));
        }
    }
    let faults = assembles_fully(&compiled);
    assert!(faults.is_empty(), "{faults:?}\n{source}");
}

#[test]
fn sixteen_bits_leave_by_matrices() {
    WAYS.iter().for_each(|way| agrees(DType::BF16, DType::BF16, way));
}

#[test]
fn halves_leave_by_matrices() {
    WAYS[..2].iter().for_each(|way| agrees(DType::F16, DType::F16, way));
}

/// Sums in 32 bits are sent by warpgroups, and by no matrices.
#[test]
fn words_are_sent_too() {
    for way in [&WAYS[0], &WAYS[2], &WAYS[4], &WAYS[5]] {
        agrees(DType::BF16, DType::F32, way);
    }
}

/// Two neighbours of 8 bits a thread go by vectors of 16.
#[test]
fn eight_bits_leave_by_the_engine_too() {
    for way in [&WAYS[0], &WAYS[3], &WAYS[5]] {
        agrees(DType::BF16, DType::F8E4M3, way);
    }
}

/// A product with tiles of these rows and columns, whose result's lines begin at multiples of so many bytes: lanes store them line by line, three
/// schedules and lock-step have the CPU executor's result, and what lies around the array's end stays as it was.
fn leaves_by_lines(out: DType, [rows, columns]: [u32; 2], align: u32, n: i64) {
    let source = HEAD.replace("64, 128", &format!("{rows}, {columns}")).replace("64, 32", &format!("{rows}, 32"));
    let source = source.replace("32, 128", &format!("32, {columns}")) + "    ct.store(out, (i, j), acc.astype(out.dtype))\n";
    let file = parse_file("kernel.py", &source);
    let aligned = |dtype, align| match ArgType::array(dtype, 2) {
        ArgType::Array { dtype, shape, strides, index, disjoint, .. } => {
            ArgType::Array { dtype, shape, strides, align, lines: align, index, disjoint }
        }
        other => other,
    };
    // As many neighbours of `y` as of the result are at a line's begin.
    let (factor, odd) = (DType::BF16, 2 * align / out.unpacked_bytes() as u32);
    let types = [aligned(factor, 16), aligned(factor, odd), aligned(out, align), aligned(out, align)];
    let args: Vec<(String, ArgType)> = ["x", "y", "out", "other"].iter().map(|name| name.to_string()).zip(types).collect();
    let compiled = compile(&file, "kernel", &args, &CompileOptions::default())
        .unwrap_or_else(|found| panic!("{}\n{source}", found[0].render(&file.sources, false)));
    let (m, k) = (150, 80);
    let start = [fill(factor, &[m, k], 1), fill(factor, &[k, n], 2), fill(out, &[m, n], 3), fill(out, &[1, n], 4)];
    let launch = Launch { compiled: &compiled, grid: [(m as u32).div_ceil(rows), (n as u32).div_ceil(columns), 1] };
    let mut wanted = start.clone();
    on_cpu(&launch, &mut wanted).unwrap_or_else(|error| panic!("{error}\n{source}"));
    let device = compile_for(&compiled, Arch::Sm90a, OptLevel::O3);
    let device = device.unwrap_or_else(|found| panic!("{}", found[0].render(&compiled.module.sources, false)));
    let text = print_module(&device.tile);
    assert_eq!(text.matches("tile.store_lines ").count(), 1, "{text}");
    let mut stepped = start.clone();
    in_lockstep_as_it_is(device.tile.clone(), launch.grid, &mut stepped).unwrap_or_else(|error| panic!("{error}"));
    let kernel = lowered(&compiled, Arch::Sm90a).unwrap_or_else(|error| panic!("{error}\n{text}"));
    // Neighbours that one instruction may take, and no bank twice.
    let word = ["b8", "b16", "b32", "v2.b32"][align.ilog2() as usize];
    let ptx = device.kernel.ptx();
    assert!(ptx.contains(&format!("st.global.{word} ")), "no store of {align} bytes\n{ptx}");
    let accesses = shared_accesses(&kernel.kernel);
    assert!(accesses.iter().all(|access| access.cost.degree == Some(1)), "{accesses:?}\n{text}");
    same(&wanted[2], &stepped[2], 1e-6).unwrap_or_else(|error| panic!("lock-step: {error}\n{text}"));
    for schedule in SCHEDULES {
        let mut data = start.clone();
        run_under(schedule, &kernel, launch.grid, &mut data).unwrap_or_else(|error| panic!("{schedule:?}: {error}\n{text}"));
        same(&wanted[2], &data[2], 1e-6).unwrap_or_else(|error| panic!("{schedule:?}: {error}\n{text}"));
    }
    let faults = assembles_fully(&compiled);
    assert!(faults.is_empty(), "{faults:?}\n{source}");
}

#[test]
fn lines_that_begin_anywhere_leave_by_lanes() {
    leaves_by_lines(DType::BF16, [64, 64], 2, 137);
    leaves_by_lines(DType::F16, [128, 128], 4, 138);
    leaves_by_lines(DType::BF16, [64, 128], 8, 204);
    leaves_by_lines(DType::F32, [64, 64], 4, 101);
    // Two warpgroups, each with eight parts.
    leaves_by_lines(DType::F32, [128, 256], 8, 270);
}

/// What a block stores in several rounds lies there as the last round says. The engine keeps no order between the rounds' tiles: warps wait until
/// one is written before they send the next one, unless no two rounds have the same place.
#[test]
fn rounds_store_in_order() {
    // The rows' place, whether rounds have places of their own, and the loop's rounds.
    let places = [("i", false, "4"), ("i * 2 + t // 2", false, "4"), ("i * 4 + t", true, "4"), ("i", false, "i, 4, 2")];
    for (out, (place, apart, rounds)) in [DType::F32, DType::BF16].into_iter().flat_map(|out| places.map(|place| (out, place))) {
        let source = format!(
            "import cuda.tile as ct

@ct.kernel
def kernel(x, y, out):
    i, j = ct.bid(0), ct.bid(1)
    for t in range({rounds}):
        acc = ct.zeros((64, 64), ct.float32)
        for k in range(ct.cdiv(x.shape[1], 32)):
            acc = ct.mma(ct.load(x, (t, k), (64, 32)), ct.load(y, (k, j), (32, 64)), acc)
        ct.store(out, ({place}, j), acc.astype(out.dtype))
"
        );
        let file = parse_file("kernel.py", &source);
        let args: Vec<(String, ArgType)> = [("x", DType::BF16), ("y", DType::BF16), ("out", out)]
            .map(|(name, dtype)| (name.to_string(), ArgType::array(dtype, 2)))
            .into();
        let compiled = compile(&file, "kernel", &args, &CompileOptions::default())
            .unwrap_or_else(|found| panic!("{}\n{source}", found[0].render(&file.sources, false)));
        let start = [fill(DType::BF16, &[256, 64], 1), fill(DType::BF16, &[64, 128], 2), fill(out, &[512, 128], 3)];
        let launch = Launch { compiled: &compiled, grid: [2, 2, 1] };
        let mut wanted = start.clone();
        on_cpu(&launch, &mut wanted).unwrap_or_else(|error| panic!("{error}\n{source}"));
        let device = compile_for(&compiled, Arch::Sm90a, OptLevel::O3);
        let device = device.unwrap_or_else(|found| panic!("{}", found[0].render(&compiled.module.sources, false)));
        let text = print_module(&device.tile);
        assert_eq!(text.matches("tile.send_tile ").count(), 1, "{text}");
        assert_eq!(text.matches("tile.tma_store_wait {pending=0}\n").count(), usize::from(!apart), "{text}");
        let kernel = lowered(&compiled, Arch::Sm90a).unwrap_or_else(|error| panic!("{error}\n{text}"));
        for schedule in SCHEDULES {
            let mut data = start.clone();
            run_under(schedule, &kernel, launch.grid, &mut data).unwrap_or_else(|error| panic!("{schedule:?}: {error}\n{text}"));
            same(&wanted[2], &data[2], 1e-6).unwrap_or_else(|error| panic!("{schedule:?}: {error}\n{text}"));
        }
    }
}
