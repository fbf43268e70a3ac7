//! What is loaded behind a product's loop comes through the slots of its factors: right with any number of tiles, rounds and slots, under every
//! interleaving, by blocks that stay and in clusters.

use tessera_compile::{CompileOptions, OptLevel, compile, compile_for};
use tessera_emu::Schedule;
use tessera_ir::text::print_module;
use tessera_lang::{ArgType, parse_file};
use tessera_types::{Arch, DType, FloatFormat, Overflow, Rounding};

use crate::devices::{Data, Launch, lockstep_of, on_cpu, run_under, same};

const KERNEL: &str = "import cuda.tile as ct

@ct.kernel
def kernel(x, y, first, second, out):
    i, j = ct.bid(0), ct.bid(1)
    acc = ct.zeros((64, 128), ct.float32)
    for k in range(ct.cdiv(x.shape[1], 32)):
        a = ct.load(x, (i, k), (64, 32), padding_mode=ct.PaddingMode.ZERO)
        b = ct.load(y, (k, j), (32, 128), padding_mode=ct.PaddingMode.ZERO)
        acc = ct.mma(a, b, acc)
    added = ct.load(first, (i, j), (64, 128), padding_mode=ct.PaddingMode.ZERO)
    acc = acc * 0.5 + added.astype(ct.float32)
    more = ct.load(second, (i, j), (64, 128), padding_mode=ct.PaddingMode.ZERO)
    ct.store(out, (i, j), (acc + more.astype(ct.float32)).astype(out.dtype))
";

/// Both tiles are four portions.
const FILLS: &str = "[%a, %b] [%added] [%added.1] [%added.2] [%added.3] [%more] [%more.1] [%more.2] [%more.3]";

/// Lock-step and the emulator have what the CPU executor has, by a plan whose lines these are.
fn agrees(dtype: DType, [m, n, k]: [i64; 3], slots: u32, further: &str) {
    let file = parse_file("portions.py", KERNEL);
    let args = ["x", "y", "first", "second", "out"].map(|name| (name.to_string(), ArgType::array(dtype, 2)));
    let mut compiled = compile(&file, "kernel", &args, &CompileOptions::default()).expect("the kernel compiles");
    let plan = format!(
        "plan @kernel {{\n  partition copy {{warps=4}}\n  partition compute {{warps=4}}\n{further}  ring copy -> compute {{by=tma, slots={slots}}} \
         {FILLS}\n}}\n"
    );
    compiled.plan = Some(compiled.module.sources.add("portions.plan", plan.as_str()));
    let device = compile_for(&compiled, Arch::Sm90a, OptLevel::O3)
        .unwrap_or_else(|found| panic!("{}", found[0].render(&compiled.module.sources, false)));
    let text = print_module(&device.tile);
    // 64 x 32 of 16 bits, of slots that hold 32 x 128 besides.
    assert_eq!(text.matches("{bytes=4096}").count(), 8, "{text}");
    let format = FloatFormat::of(dtype).expect("a float");
    let numbers = |sizes: [i64; 2], seed: usize| {
        let number = move |i: usize| ((i * 7 + i / 13 + seed) % 9) as f64 / 4.0 - 1.0;
        Data::codes(dtype, &sizes, |i| format.encode(number(i), Rounding::NearestEven, Overflow::Ieee))
    };
    let data = vec![numbers([m, k], 1), numbers([k, n], 2), numbers([m, n], 3), numbers([m, n], 4), Data::zeros(dtype, &[m, n])];
    let grid = [(m as u32).div_ceil(64), (n as u32).div_ceil(128), 1];
    let mut wanted = data.clone();
    on_cpu(&Launch { compiled: &compiled, grid }, &mut wanted).expect("it runs");
    let told = |how: &str, why: String| panic!("{m}x{n}x{k} with {slots} slots, {how}: {why}\n{plan}");
    let mut stepped = data.clone();
    lockstep_of(&device.tile, grid, &mut stepped).unwrap_or_else(|error| told("in lock-step", error));
    same(&wanted[4], &stepped[4], 0.0).unwrap_or_else(|error| told("in lock-step", error));
    for schedule in [Schedule::Eager, Schedule::Lazy, Schedule::Random] {
        let mut emulated = data.clone();
        run_under(schedule, &device.kernel, grid, &mut emulated).unwrap_or_else(|error| told(&format!("{schedule:?}"), error));
        same(&wanted[4], &emulated[4], 0.0).unwrap_or_else(|error| told(&format!("{schedule:?}"), error));
    }
}

#[test]
fn any_number_of_tiles_rounds_and_slots() {
    let stays = "  persistent 1\n";
    for (sizes, slots, further) in [
        ([64, 128, 32], 1, ""),
        ([144, 272, 80], 3, ""),
        ([144, 272, 80], 4, stays),
        ([320, 264, 8], 2, stays),
        ([448, 128, 224], 6, stays),
    ] {
        agrees(DType::BF16, sizes, slots, further);
    }
    agrees(DType::F16, [200, 136, 96], 5, stays);
}

#[test]
fn blocks_of_clusters() {
    agrees(DType::BF16, [256, 264, 96], 3, "  cluster 2\n");
    agrees(DType::BF16, [512, 136, 72], 4, "  persistent 1\n  cluster 2\n");
}
