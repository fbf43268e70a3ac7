//! Products in a loop over tiles: a block takes one tile after the other and its roles never stop between two.
//!
//! However the loop is written, the recipe is that of one tile a block; what is stored is what the CPU executor has.

use tessera_compile::{CompileOptions, Compiled, OptLevel, compile, compile_for};
use tessera_emu::Schedule;
use tessera_ir::text::print_module;
use tessera_lang::{ArgType, parse_file};
use tessera_types::{Arch, DType, FloatFormat, Overflow, Rounding};

use crate::devices::{ARCHS, Data, Launch, assembled, in_lockstep, lowered, on_cpu, run_under, same};

/// Ways to go through the tiles; `{body}` is indented by two levels.
const LOOPS: [(&str, &str); 5] = [
    ("range", "    for tile in range(ct.bid(0), total, ct.num_blocks(0)):\n{body}"),
    ("while", "    tile = ct.bid(0)\n    while tile < total:\n{body}        tile += ct.num_blocks(0)\n"),
    (
        "counted",
        "    for nth in range(ct.cdiv(total - ct.bid(0), ct.num_blocks(0))):\n        tile = ct.bid(0) + nth * ct.num_blocks(0)\n{body}",
    ),
    (
        "carried",
        "    tile = ct.bid(0)\n    for nth in range(ct.cdiv(total - ct.bid(0), ct.num_blocks(0))):\n{body}        tile = tile + ct.num_blocks(0)\n",
    ),
    (
        "break",
        "    tile = ct.bid(0)\n    while True:\n        if tile >= total:\n            break\n{body}        tile += ct.num_blocks(0)\n",
    ),
];

const BODY: &str = "        i = tile // ct.cdiv(y.shape[1], {tn})
        j = tile % ct.cdiv(y.shape[1], {tn})
        acc = ct.zeros(({tm}, {tn}), ct.{acc})
        {inner}
            a = ct.load(x, (i, k), ({tm}, {tk}), padding_mode=ct.PaddingMode.ZERO){cast}
            b = ct.load(y, (k, j), ({tk}, {tn}), padding_mode=ct.PaddingMode.ZERO){cast}
            acc = ct.mma(a, b, acc)
            {step}
        ct.store(out, (i, j), acc.astype(out.dtype))
";

struct Case<'s> {
    way: &'s str,
    dtype: DType,
    cast: &'s str,
    out: DType,
    tile: [i64; 3],
    inner: [&'s str; 2],
}

const FOR: [&str; 2] = ["for k in range(ct.cdiv(x.shape[1], {tk})):", "pass"];

impl Case<'_> {
    fn compiled(&self) -> Compiled {
        let [tm, tn, tk] = self.tile;
        let acc = if self.dtype == DType::I8 { "int32" } else { "float32" };
        let body = BODY.replace("{inner}", self.inner[0]).replace("{step}", self.inner[1]);
        let head = "import cuda.tile as ct\n\n@ct.kernel\ndef kernel(x, y, out):\n    total = ct.cdiv(x.shape[0], {tm}) * ct.cdiv(y.shape[1], {tn})\n";
        let source = format!("{head}{}", self.way.replace("{body}", &body));
        let source = source.replace("{tm}", &tm.to_string()).replace("{tn}", &tn.to_string()).replace("{tk}", &tk.to_string());
        let source = source.replace("{acc}", acc).replace("{cast}", self.cast);
        let file = parse_file("kernel.py", &source);
        let args = [("x", self.dtype), ("y", self.dtype), ("out", self.out)]
            .map(|(name, dtype)| (name.to_string(), ArgType::array(dtype, 2)));
        compile(&file, "kernel", &args, &CompileOptions::default())
            .unwrap_or_else(|found| panic!("{}\n{source}", found[0].render(&file.sources, false)))
    }

    fn data(&self, [m, n, k]: [i64; 3]) -> [Data; 3] {
        let fill = |sizes: &[i64], seed: usize| {
            let Some(format) = FloatFormat::of(self.dtype) else { return Data::ints(self.dtype, sizes, seed as u64) };
            Data::codes(self.dtype, sizes, |i| {
                let value = ((i * 7 + seed + i / 29) % 23) as f64 / 8.0 - 1.25;
                format.encode(value, Rounding::NearestEven, Overflow::Saturate)
            })
        };
        [fill(&[m, k], 1), fill(&[k, n], 2), Data::zeros(self.out, &[m, n])]
    }

    /// Lock-step and the emulator have what the CPU executor has, with tiles that do not divide among the blocks.
    fn agrees(&self, sizes: [i64; 3], blocks: u32, schedules: &[Schedule]) {
        let compiled = self.compiled();
        let device = compile_for(&compiled, Arch::Sm90a, OptLevel::O2);
        let device = device.unwrap_or_else(|found| panic!("{}", found[0].render(&compiled.module.sources, false)));
        let text = print_module(&device.tile);
        assert!(text.contains("tile.role") && text.contains("tile.tma_load"), "no roles in\n{text}");
        let launch = Launch { compiled: &compiled, grid: [blocks, 1, 1] };
        let mut cpu = self.data(sizes);
        on_cpu(&launch, &mut cpu).unwrap_or_else(|error| panic!("{error}"));
        let mut stepped = self.data(sizes);
        in_lockstep(&launch, ARCHS[1], &mut stepped).unwrap_or_else(|error| panic!("{error}"));
        same(&cpu[2], &stepped[2], 1e-6).unwrap_or_else(|error| panic!("lock-step: {error}\n{text}"));
        let kernel = lowered(&compiled, Arch::Sm90a).unwrap_or_else(|error| panic!("{error}\n{text}"));
        for &schedule in schedules {
            let mut emulated = self.data(sizes);
            run_under(schedule, &kernel, launch.grid, &mut emulated)
                .unwrap_or_else(|error| panic!("{schedule:?}: {error}\n{text}"));
            same(&cpu[2], &emulated[2], 1e-6).unwrap_or_else(|error| panic!("{schedule:?}: {error}\n{text}"));
        }
        assembled(&kernel);
    }
}

const SCHEDULES: [Schedule; 3] = [Schedule::Eager, Schedule::Lazy, Schedule::Random];

#[test]
fn however_the_loop_is_written() {
    for (name, way) in LOOPS {
        println!("{name}");
        let case = Case { way, dtype: DType::F16, cast: "", out: DType::F16, tile: [64, 32, 32], inner: FOR };
        case.agrees([144, 80, 112], 4, &SCHEDULES);
    }
    let inner = ["k = 0\n        while k < ct.cdiv(x.shape[1], {tk}):", "k += 1"];
    let case = Case { way: LOOPS[1].1, dtype: DType::BF16, cast: "", out: DType::F32, tile: [64, 32, 32], inner };
    case.agrees([144, 80, 112], 4, &SCHEDULES);
}

#[test]
fn whole_roles() {
    let way = LOOPS[0].1;
    let case = Case { way, dtype: DType::BF16, cast: "", out: DType::BF16, tile: [128, 128, 64], inner: FOR };
    case.agrees([272, 272, 144], 3, &[Schedule::Random]);
}

#[test]
fn factors_that_threads_turn_or_compute() {
    let way = LOOPS[0].1;
    let turned = Case { way, dtype: DType::F8E4M3, cast: "", out: DType::F32, tile: [64, 32, 32], inner: FOR };
    turned.agrees([144, 80, 272], 4, &SCHEDULES);
    let computed = Case { way, dtype: DType::F32, cast: ".astype(ct.bfloat16)", out: DType::F32, tile: [64, 64, 64], inner: FOR };
    computed.agrees([144, 80, 144], 4, &SCHEDULES[1..]);
}

/// A role that only copies is one thread's: in a round nobody parts, and no copy has a guard.
#[test]
fn a_role_of_copies_is_for_one_thread() {
    let case = Case { way: LOOPS[0].1, dtype: DType::BF16, cast: "", out: DType::F32, tile: [128, 256, 64], inner: FOR };
    let ptx = lowered(&case.compiled(), Arch::Sm90a).expect("a kernel").ptx();
    let role =
        ptx.split_once("setmaxnreg.dec").expect("a role of copies").1.split_once("setmaxnreg.inc").expect("another role").0;
    let lines: Vec<&str> = role.lines().map(str::trim).collect();
    let at = |what: &str| lines.iter().position(|line| line.contains(what)).unwrap_or_else(|| panic!("no {what}:\n{role}"));
    let (acquires, commits) = (at("mbarrier.try_wait"), at("mbarrier.arrive.expect_tx"));
    let round = &lines[acquires + 2..=commits];
    assert!(round.iter().filter(|line| line.contains("cp.async.bulk.tensor")).count() >= 2, "{role}");
    assert!(round.iter().all(|line| !line.starts_with('@') && !line.contains("bra")), "{role}");
}
