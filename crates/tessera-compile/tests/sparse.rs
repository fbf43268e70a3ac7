//! Products of tiles whose left factor is stored by half: on the CPU, in lock-step and on the emulator, against sums computed here.

use tessera_compile::{CompileOptions, Compiled, compile};
use tessera_emu::{LaunchOptions, Sanitize};
use tessera_ir::text::print_module;
use tessera_lang::{ArgType, parse_file};
use tessera_types::{Arch, DType, FloatFormat, Overflow, Rounding};

use crate::devices::{Data, Launch, assembled, in_lockstep, lowered, on_cpu, printed_by, run, tiled};

/// Tiles, and how the right factor lies.
#[derive(Clone, Copy, Debug)]
struct Case {
    dtype: DType,
    tile: [i64; 3],
    turned: bool,
}

/// Sizes: rows, columns, contraction.
const WHOLE: [i64; 3] = [128, 128, 192];
/// No tile is full: places behind the last row, and behind the last word of a row, stand in the kernel.
const RAGGED: [i64; 3] = [80, 72, 160];

impl Case {
    const fn new(dtype: DType, tile: [i64; 3]) -> Case {
        Case { dtype, tile, turned: false }
    }

    fn compiled(&self) -> Compiled {
        let [tm, tn, tk] = self.tile;
        let order = if self.turned { ", order=(1, 0)" } else { "" };
        let depth = usize::from(self.turned);
        let source = format!(
            "import cuda.tile as ct
import tessera
from tessera import tile

@tessera.kernel
def kernel(values, places, b, out):
    i, j = ct.bid(0), ct.bid(1)
    acc = ct.full(({tm}, {tn}), 1, ct.float32)
    for k in range(ct.cdiv(b.shape[{depth}], {tk})):
        v = ct.load(values, (i, k), ({tm}, {tk} // 2), padding_mode=ct.PaddingMode.ZERO)
        words = ct.load(places, (i, k), ({tm}, {tk} // 32), padding_mode=ct.PaddingMode.ZERO)
        words = ct.where(words == 0, 0x44444444, words)
        y = ct.load(b, (k, j), ({tk}, {tn}){order}, padding_mode=ct.PaddingMode.ZERO)
        acc = tile.mma_sparse(v, words, y, acc)
    ct.store(out, (i, j), acc)
"
        );
        let file = parse_file("kernel.py", &source);
        // Rows of words may begin at any of them.
        let words = match ArgType::array(DType::I32, 2) {
            ArgType::Array { dtype, shape, strides, index, disjoint, .. } => {
                ArgType::Array { dtype, shape, strides, align: 4, lines: 4, index, disjoint }
            }
            other => other,
        };
        let array = |dtype: DType| ArgType::array(dtype, 2);
        let args = [("values", array(self.dtype)), ("places", words), ("b", array(self.dtype)), ("out", array(DType::F32))]
            .map(|(name, ty)| (name.to_string(), ty));
        compile(&file, "kernel", &args, &CompileOptions::default())
            .unwrap_or_else(|found| panic!("{}", found[0].render(&file.sources, false)))
    }

    fn launch<'c>(&self, compiled: &'c Compiled, [m, n, _]: [i64; 3]) -> Launch<'c> {
        let [tm, tn, _] = self.tile;
        Launch { compiled, grid: [(m as u64).div_ceil(tm as u64) as u32, (n as u64).div_ceil(tn as u64) as u32, 1] }
    }
}

/// Two of four places, in order; every pair comes in every row.
fn pair(row: usize, four: usize) -> [usize; 2] {
    [[0, 1], [0, 2], [0, 3], [1, 2], [1, 3], [2, 3]][(7 * row + 5 * four + row * four % 11) % 6]
}

fn word(row: usize, word: usize) -> u64 {
    let fours = (0..8).map(|four| (four, pair(row, 8 * word + four)));
    fours.fold(0, |bits, (four, [first, second])| bits | ((first | second << 2) as u64) << (4 * four))
}

/// Small whole numbers, so that every sum is exact.
fn number(at: usize, salt: usize) -> i64 {
    ((at * 7 + at / 13 * salt) % 9) as i64 - 4
}

fn data(case: &Case, [m, n, k]: [i64; 3]) -> [Data; 4] {
    let format = FloatFormat::of(case.dtype).expect("a float");
    let floats = |sizes: [i64; 2], salt: usize| {
        Data::codes(case.dtype, &sizes, |at| format.encode(number(at, salt) as f64, Rounding::NearestEven, Overflow::Ieee))
    };
    let words = (k as usize).div_ceil(32);
    [
        floats([m, k / 2], 3),
        Data::codes(DType::I32, &[m, words as i64], |at| word(at / words, at % words)),
        floats(if case.turned { [n, k] } else { [k, n] }, 5),
        Data::zeros(DType::F32, &[m, n]),
    ]
}

/// The first element that is not what it should be.
fn wrong(case: &Case, [m, n, k]: [i64; 3], found: &Data) -> Option<String> {
    let [m, n, k] = [m, n, k].map(|extent| extent as usize);
    let right = |at: usize, column: usize| number(if case.turned { column * k + at } else { at * n + column }, 5);
    (0..m * n).find_map(|at| {
        let (row, column) = (at / n, at % n);
        let stored = (0..k / 2).map(|at| (at, 4 * (at / 2) + pair(row, at / 2)[at % 2]));
        let want = 1 + stored.map(|(at, k_at)| number(row * (k / 2) + at, 3) * right(k_at, column)).sum::<i64>();
        let is = found.number(at);
        (is != want as f64).then(|| format!("({row}, {column}) is {is} and not {want}"))
    })
}

/// Everywhere the same; by instructions of warpgroups on the target that has them.
fn agrees(case: &Case, sizes: [i64; 3]) {
    let what = format!("{case:?} {sizes:?}");
    let compiled = case.compiled();
    let launch = case.launch(&compiled, sizes);
    let given = data(case, sizes);
    let check = |place: &str, data: &[Data; 4]| {
        if let Some(wrong) = wrong(case, sizes, &data[3]) {
            panic!("{what} {place}: {wrong}");
        }
    };
    let mut cpu = given.clone();
    on_cpu(&launch, &mut cpu).unwrap_or_else(|error| panic!("{what}: {error}"));
    check("CPU", &cpu);
    for arch in [Arch::Sm80, Arch::Sm90a] {
        let mut threads = given.clone();
        let text = in_lockstep(&launch, arch, &mut threads).unwrap_or_else(|error| panic!("{what} {arch}: {error}"));
        check("lock-step", &threads);
        let kernel = lowered(&compiled, arch).unwrap_or_else(|error| panic!("{what} {arch}: {error}"));
        let instruction =
            if arch.has_wgmma() { "wgmma.mma_async.sp.sync.aligned" } else { "mma.sp::ordered_metadata.sync.aligned" };
        assert!(kernel.ptx().contains(instruction), "{what} {arch}:\n{text}");
        let mut emulated = given.clone();
        run(&kernel, launch.grid, &mut emulated).unwrap_or_else(|error| panic!("{what} {arch}: {error}"));
        check(arch.name(), &emulated);
        assembled(&kernel);
    }
}

#[test]
fn tiles_stored_by_half_multiply_as_what_they_stand_for() {
    for tile in [[64, 64, 64], [128, 128, 64], [128, 64, 128]] {
        for dtype in [DType::BF16, DType::F16] {
            agrees(&Case::new(dtype, tile), WHOLE);
        }
        agrees(&Case::new(DType::BF16, tile), RAGGED);
    }
}

/// One word a row, three words a row, a right factor whose lines lie along the contraction, three warpgroups.
#[test]
fn tiles_of_every_form_multiply() {
    agrees(&Case::new(DType::F16, [64, 32, 32]), RAGGED);
    agrees(&Case::new(DType::BF16, [64, 48, 96]), [64, 48, 288]);
    agrees(&Case { turned: true, ..Case::new(DType::BF16, [64, 64, 64]) }, WHOLE);
    agrees(&Case::new(DType::BF16, [192, 64, 64]), [192, 64, 128]);
}

/// Factors come through the ring; places are loaded a round ahead, and no product is under way when the next round's are written.
#[test]
fn places_come_beside_the_rounds() {
    let compiled = Case::new(DType::BF16, [128, 128, 64]).compiled();
    let text = print_module(&tiled(&compiled.module, Arch::Sm90a).unwrap());
    for part in ["tile.tma_load", "places=%", "{pending=0}"] {
        assert!(text.contains(part), "`{part}`:\n{text}");
    }
    assert!(!text.contains("{pending=1}"), "{text}");
}

/// What a line of a product's instruction becomes.
type Break = fn(&str) -> String;

/// Instructions with the other half's selector, and words of other rows and columns, give other sums.
#[test]
fn wrong_selectors_and_metadata_are_found() {
    let case = Case::new(DType::F16, [64, 64, 64]);
    let compiled = case.compiled();
    let launch = case.launch(&compiled, WHOLE);
    let kernel = lowered(&compiled, Arch::Sm90a).unwrap();
    let swapped = |line: &str| {
        let parts: Vec<&str> = line.trim_end_matches(';').split(", ").collect();
        format!("{}, {}, {}, {};", parts[0], parts[2], parts[1], parts[3])
    };
    let mutants: [(&str, &str, Break); 3] = [
        ("the selector of the other half", "wgmma.mma_async.sp", |line| line.replace(", 1, %p", ", 0, %p")),
        ("rows g have the places of rows g + 8", "prmt.b32", swapped),
        ("as it is", "wgmma.mma_async.sp", str::to_string),
    ];
    for (what, instruction, change) in mutants {
        let is_it = |line: &&str| line.trim_start().starts_with(instruction);
        let lines = kernel.ptx();
        let text: String = lines.lines().map(|line| if is_it(&line) { change(line) } else { line.to_string() } + "\n").collect();
        assert_eq!(text.trim_end() == lines.trim_end(), what == "as it is", "{what}: the text");
        let mut emulated = data(&case, WHOLE);
        printed_by(LaunchOptions::default(), (&kernel, &text), launch.grid, &mut emulated)
            .unwrap_or_else(|error| panic!("{what}: {error}"));
        assert_eq!(wrong(&case, WHOLE, &emulated[3]).is_none(), what == "as it is", "{what}: the sums");
    }
}

/// The words of a product that is under way belong to it until it has been waited for.
#[test]
fn metadata_that_is_written_too_early_is_found() {
    let case = Case::new(DType::F16, [64, 64, 64]);
    let compiled = case.compiled();
    let launch = case.launch(&compiled, WHOLE);
    let kernel = lowered(&compiled, Arch::Sm90a).unwrap();
    let ptx = kernel.ptx();
    let product = ptx.lines().find(|line| line.contains("wgmma.mma_async.sp")).expect("a product");
    // The last operands: descriptors, metadata, selector, accumulate, signs, transpositions.
    let operands: Vec<&str> = product.split("}, ").nth(1).expect("operands behind the sums").split(", ").collect();
    let broken = ptx.replacen("wgmma.commit_group", &format!("mov.b32 {}, 0x44444444;\n    wgmma.commit_group", operands[2]), 1);
    let options = LaunchOptions { sanitize: Sanitize { in_flight: true, ..Sanitize::NONE }, ..LaunchOptions::default() };
    let error = printed_by(options, (&kernel, &broken), launch.grid, &mut data(&case, WHOLE)).unwrap_err();
    assert!(error.contains("it is metadata, for which nothing waits"), "{error}");
}

/// Two places that are the same mean nothing on any device; on the CPU places must rise, too.
#[test]
fn places_that_mean_nothing_are_refused() {
    let case = Case::new(DType::BF16, [64, 64, 64]);
    let compiled = case.compiled();
    let launch = case.launch(&compiled, WHOLE);
    let kernel = lowered(&compiled, Arch::Sm90a).unwrap();
    let with = |wrong: u64| {
        let mut given = data(&case, WHOLE);
        given[1] = Data::codes(DType::I32, &[128, 6], |at| if at == 6 * 70 + 1 { wrong } else { word(at / 6, at % 6) });
        given
    };
    for wrong in [0x4444_4144, 0x4444_4a44] {
        let error = on_cpu(&launch, &mut with(wrong)).unwrap_err();
        assert!(error.contains("row 6 of a factor stored by half") && error.contains("columns 8 to 11"), "{error}");
    }
    let error = run(&kernel, launch.grid, &mut with(0x4444_4a44)).unwrap_err();
    assert!(error.contains("metadata of row 6: group 2"), "{error}");
}

#[test]
fn a_target_without_such_products_is_refused() {
    let error = lowered(&Case::new(DType::F16, [64, 64, 64]).compiled(), Arch::Sm75).unwrap_err();
    assert!(error.contains("`sm_75` has no product of these tiles whose left factor is stored by half"), "{error}");
}
