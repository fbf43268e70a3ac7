//! Clusters that share a row: right with any number of columns and blocks, whatever is reduced, under every interleaving; kernels that do not wait for
//! what other blocks send are found out.

use tessera_compile::{CompileOptions, Compiled, DeviceCompiled, OptLevel, compile, compile_for};
use tessera_emu::{LaunchOptions, Sanitize, Schedule};
use tessera_ir::Extent;
use tessera_lang::{ArgType, ConstValue, parse_file};
use tessera_types::{Arch, DType, FloatFormat, Overflow, Rounding};

use crate::devices::{Data, Launch, assembled_with, lockstep_of, on_cpu, printed_by, run_under, same};

const ROW: &str = "import cuda.tile as ct
import tessera

@tessera.kernel(sharing=4, num_ctas={blocks})
def kernel(x, w, y, ACC: ct.Constant, N: ct.Constant[int]):
    i = ct.bid(0)
    v = ct.load(x, (i, 0), (1, N)).astype(ACC)
    {work}
";

/// Two reductions of which one needs the other, and one that zeros behind the row would decide.
const CENTRED: &str = "top = ct.max(v, axis=1, keepdims=True)
    total = ct.sum(v - top, axis=1, keepdims=True) + ct.min(v * v, axis=1, keepdims=True)
    b = ct.load(w, (0,), (N,)).astype(ACC)
    ct.store(y, (i, 0), ((v - top) * 0.5 + total * b).astype(y.dtype))";

/// A number of a column, and two things reduced at once.
const FIRST: &str = "at = ct.argmax(v, axis=1, keepdims=True)
    here = ct.arange(N, dtype=ct.int32)[None, :] == at
    ct.store(y, (i, 0), ct.where(here, 3.0, v).astype(y.dtype))";

/// Several rows side by side, for which what is common to them is read once.
const SEVERAL: &str = "import cuda.tile as ct
import tessera

@tessera.kernel(sharing=4, num_ctas={blocks})
def kernel(x, w, y, ACC: ct.Constant, N: ct.Constant[int]):
    i = ct.bid(0)
    v = ct.load(x, (i, 0), ({rows}, N), padding_mode=ct.PaddingMode.ZERO).astype(ACC)
    d = v - ct.sum(v, axis=1, keepdims=True) / N
    top = ct.max(v, axis=1, keepdims=True)
    ct.store(y, (i, 0), (d * ct.load(w, (0,), (N,)).astype(ACC) + top).astype(y.dtype))
";

/// Numbers of whole vectors of a row, and a number of the row that is stored once.
const VECTORS: &str = "total = ct.sum(v, axis=1, keepdims=True)
    own = ct.gather(w, ct.arange(N // 8, dtype=ct.int32)[:, None] * 8).astype(ACC)
    d = ct.reshape(ct.reshape(v, (N // 8, 8)) * own, (1, N))
    ct.store(y, (i, 0), (d + total).astype(y.dtype))
    ct.store(w, (0,), ct.reshape(total, (1,)).astype(w.dtype))";

struct Case {
    source: String,
    storage: DType,
    columns: i64,
    blocks: u32,
}

impl Case {
    fn new(work: &str, storage: DType, columns: i64, blocks: u32) -> Case {
        let source = ROW.replace("{blocks}", &blocks.to_string()).replace("{work}", work);
        Case { source, storage, columns, blocks }
    }

    fn compiled(&self) -> (Compiled, DeviceCompiled) {
        let file = parse_file("row.py", &self.source);
        let array = |rank: usize| {
            let mut array = ArgType::array(self.storage, rank);
            if let ArgType::Array { shape, strides, lines, .. } = &mut array {
                shape[rank - 1] = Extent::Static(self.columns);
                // As a launch states them.
                if self.columns * i64::from(self.storage.bits()) % 128 != 0 {
                    *lines = self.storage.unpacked_bytes() as u32;
                    strides[..rank - 1].iter_mut().for_each(|stride| *stride = Extent::Static(self.columns));
                }
            }
            array
        };
        let acc = if self.storage == DType::F64 { DType::F64 } else { DType::F32 };
        let args = [
            ("x", array(2)),
            ("w", array(1)),
            ("y", array(2)),
            ("ACC", ArgType::Const(ConstValue::DType(acc))),
            ("N", ArgType::Const(ConstValue::Int(self.columns))),
        ];
        let args = args.map(|(name, ty)| (name.to_string(), ty));
        let compiled = compile(&file, "kernel", &args, &CompileOptions::default()).expect("the kernel compiles");
        let device = compile_for(&compiled, Arch::Sm90a, OptLevel::O3)
            .unwrap_or_else(|found| panic!("{}", found[0].render(&compiled.module.sources, false)));
        let plan = device.plan.as_deref().unwrap_or_default();
        assert!(plan.contains(&format!("  split {}\n", self.blocks)), "{plan}{:?}", device.remark());
        (compiled, device)
    }

    /// Quarters from 1/4 to 9/4, so that sums are exact in any order.
    fn data(&self, rows: i64) -> Vec<Data> {
        let format = FloatFormat::of(self.storage).expect("a float");
        let numbers = |sizes: &[i64], seed: usize| {
            let number = move |i: usize| ((i * 7 + i / 13 + seed) % 9 + 1) as f64 / 4.0;
            Data::codes(self.storage, sizes, |i| format.encode(number(i), Rounding::NearestEven, Overflow::Saturate))
        };
        vec![numbers(&[rows, self.columns], 1), numbers(&[self.columns], 2), numbers(&[rows, self.columns], 3)]
    }

    /// Lock-step and the emulator have what the CPU executor has.
    fn agrees(&self, rows: i64) {
        self.of_grid(rows, rows as u32, [2, 1]);
    }

    /// The same of so many clusters, in some of the arrays.
    fn of_grid(&self, rows: i64, clusters: u32, arrays: [usize; 2]) {
        let ((compiled, device), grid, data) = (self.compiled(), [clusters, 1, 1], self.data(rows));
        let mut wanted = data.clone();
        on_cpu(&Launch { compiled: &compiled, grid }, &mut wanted).expect("it runs");
        let told = |how: &str, why: String| {
            panic!("{} of {} columns by {} blocks, {how}: {why}\n{}", self.storage, self.columns, self.blocks, self.source)
        };
        let mut stepped = data.clone();
        lockstep_of(&device.tile, grid, &mut stepped).unwrap_or_else(|error| told("in lock-step", error));
        let alike = |own: &[Data], how: &str| {
            for array in arrays {
                same(&wanted[array], &own[array], 0.0).unwrap_or_else(|error| told(how, error));
            }
        };
        alike(&stepped, "in lock-step");
        for schedule in [Schedule::Eager, Schedule::Lazy, Schedule::Random] {
            let mut emulated = data.clone();
            run_under(schedule, &device.kernel, grid, &mut emulated)
                .unwrap_or_else(|error| told(&format!("{schedule:?}"), error));
            alike(&emulated, &format!("{schedule:?}"));
        }
    }
}

/// Columns that divide, that end in the last block's part, and that begin anywhere.
#[test]
fn any_number_of_columns_and_blocks() {
    for (columns, blocks) in [(1024, 2), (4096, 4), (4096, 8), (5000, 2), (5001, 4), (7500, 8), (3585, 8)] {
        Case::new(CENTRED, DType::F32, columns, blocks).agrees(3);
    }
}

#[test]
fn one_row_and_other_types() {
    for storage in [DType::F64, DType::F16, DType::BF16, DType::F8E4M3] {
        Case::new(CENTRED, storage, 4096, 4).agrees(1);
        Case::new(CENTRED, storage, 3500, 4).agrees(2);
    }
}

#[test]
fn numbers_of_columns_count_through_all_blocks() {
    for columns in [2048, 3100] {
        Case::new(FIRST, DType::F32, columns, 4).agrees(2);
    }
}

#[test]
fn several_rows_at_once() {
    for (rows, columns, storage) in [(2, 4096, DType::BF16), (4, 2048, DType::F32), (2, 3100, DType::F32), (2, 2048, DType::F64)]
    {
        for blocks in [2, 4] {
            let source = SEVERAL.replace("{blocks}", &blocks.to_string()).replace("{rows}", &rows.to_string());
            Case { source, storage, columns, blocks }.agrees(rows * 3 - 1);
        }
    }
}

/// The sum is less than 2^7 quarters' worth of bits, so that the first element is seen to be stored by somebody, and by no one too early.
#[test]
fn vectors_of_columns_and_what_is_stored_once() {
    for columns in [2048, 8192] {
        Case::new(VECTORS, DType::F32, columns, 4).agrees(1);
    }
}

/// The mean of a channel over images, of which each block has some, and over pixels; several channels at once.
#[test]
fn channels_of_images() {
    const IMAGES: &str = "import cuda.tile as ct
import tessera

@tessera.kernel(sharing=4, num_ctas={blocks})
def kernel(x, w, y, ACC: ct.Constant, N: ct.Constant[int]):
    j = ct.bid(0)
    v = ct.load(x, (0, j), (64, {channels} * 96)).astype(ACC)
    by_thread = ct.sum(ct.reshape(v, ({blocks}, 16, 64 // {blocks} // 16, {channels} * 96)), axis=2)
    by_channel = ct.sum(ct.reshape(by_thread, ({blocks}, 16, {channels}, 96)), axis=3)
    total = ct.sum(ct.sum(by_channel, axis=1), axis=0)
    d = ct.reshape(v, (64, {channels}, 96)) - ct.reshape(total * (1.0 / 64), (1, {channels}, 1))
    ct.store(y, (0, j), ct.reshape(d, (64, {channels} * 96)).astype(y.dtype))
    ct.store(w, (j,), total.astype(w.dtype))
";
    for (channels, blocks) in [(1, 2), (4, 4), (8, 2)] {
        let source = IMAGES.replace("{blocks}", &blocks.to_string()).replace("{channels}", &channels.to_string());
        Case { source, storage: DType::F32, columns: 768, blocks }.of_grid(64, 8 / channels as u32, [1, 2]);
    }
}

/// A block that does not wait for what others send, that has no mbarrier for it, that expects less than comes, or more.
#[test]
fn what_is_left_out_is_found() {
    let case = Case::new(CENTRED, DType::F32, 2048, 4);
    let (_, device) = case.compiled();
    let text = device.kernel.ptx();
    let line = |what: &str| text.lines().find(|line| line.contains(what)).unwrap_or_else(|| panic!("no `{what}` in\n{text}"));
    let (wait, made, expected) = (line("mbarrier.try_wait"), line("mbarrier.init"), line("expect_tx"));
    let expects = |bytes: &str| text.replacen(expected, &expected.replacen(", 16;", bytes, 1), 1);
    let waited = wait.split_whitespace().nth(1).expect("a predicate").trim_end_matches(',').to_string();
    let mutants = [
        ("no wait for the numbers", text.replacen(wait, &format!("    setp.eq.u32 {waited}, 0, 0;"), 1)),
        ("no mbarrier", text.replacen(made, "", 1)),
        ("fewer bytes than come", expects(", 12;")),
        ("more bytes than come", expects(", 20;")),
    ];
    for (what, mutant) in mutants {
        assert_ne!(mutant, text, "{what}");
        let found = [Schedule::Eager, Schedule::Lazy, Schedule::Random].into_iter().any(|schedule| {
            let sanitize = Sanitize { races: true, barriers: true, ..Sanitize::NONE };
            let options = LaunchOptions { schedule, seed: 7, sanitize, ..LaunchOptions::default() };
            printed_by(options, (&device.kernel, &mutant), [2, 1, 1], &mut case.data(2)).is_err()
        });
        assert!(found, "{what}: nobody sees it");
    }
}

/// Elements of 16 bits are held as they are, and what is made of them again is what it was.
#[test]
fn what_is_made_again_is_the_same() {
    for storage in [DType::F16, DType::BF16] {
        for columns in [16384, 13000] {
            let case = Case::new(CENTRED, storage, columns, 4);
            let ptx = case.compiled().1.kernel.ptx();
            assert!(columns == 13000 || ptx.matches("xor.b32").count() >= 32, "{ptx}");
            case.agrees(1);
        }
    }
}

/// Next to nothing is spilled (three reductions of 16-bit elements: some bytes), no memory of the launch is used, and blocks meet once, without a fence.
#[test]
fn shared_rows_assemble() {
    let cases = [(32768, DType::BF16, 16), (65536, DType::F32, 0), (131_072, DType::BF16, 0), (32768, DType::F64, 0)];
    for (columns, storage, spills) in cases {
        let (_, device) = Case::new(CENTRED, storage, columns, 8).compiled();
        let ptx = device.kernel.ptx();
        assert_eq!(ptx.matches("barrier.cluster.arrive.relaxed.aligned").count(), 1, "{ptx}");
        assert!(!ptx.contains("workspace") && ptx.matches("barrier.cluster").count() == 2, "{ptx}");
        assembled_with(&device.kernel, spills);
    }
}
