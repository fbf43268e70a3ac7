//! Teams that take a block's tiles in turn: right with any number of tiles, rounds and slots, under every interleaving, and without a wait that
//! would keep the tensor cores idle between two tiles.

use tessera_compile::passes::find;
use tessera_compile::tile::{Units, in_turn};
use tessera_compile::{CompileOptions, Compiled, DeviceCompiled, OptLevel, compile, compile_for};
use tessera_emu::Schedule;
use tessera_ir::text::print_plan;
use tessera_ir::{Pass, PassManager, Plan};
use tessera_lang::{ArgType, parse_file};
use tessera_types::{Arch, DType, FloatFormat, Overflow, Rounding};

use crate::devices::{Data, Launch, assembled, lockstep_of, on_cpu, run_under, same};

const PRODUCT: &str = "import cuda.tile as ct

@ct.kernel
def kernel(x, y, out):
    i, j = ct.bid(0), ct.bid(1)
    acc = ct.zeros(({tm}, {tn}), ct.float32)
    for k in range(ct.cdiv(x.shape[1], {tk})):
        a = ct.load(x, (i, k), ({tm}, {tk}), padding_mode=ct.PaddingMode.ZERO)
        b = ct.load(y, (k, j), ({tk}, {tn}), padding_mode=ct.PaddingMode.ZERO)
        acc = ct.mma(a, b, acc)
    ct.store(out, (i, j), {result})
";

const CHAIN: &str = "import cuda.tile as ct

@ct.kernel
def kernel(x, y, out):
    i, j = ct.bid(0), ct.bid(1)
    acc = ct.zeros((64, 64), ct.float32)
    q = ct.load(x, (i, 0), (64, 64), padding_mode=ct.PaddingMode.ZERO)
    for k in range(ct.cdiv(y.shape[0], 32)):
        b = ct.load(y, (k, 0), (32, 64), padding_mode=ct.PaddingMode.ZERO)
        s = ct.mma(q, ct.transpose(b), ct.zeros((64, 32), ct.float32))
        v = ct.load(y, (k, j), (32, 64), padding_mode=ct.PaddingMode.ZERO)
        acc = ct.mma((s * 0.0625).astype(ct.float16), v, acc)
    ct.store(out, (i, j), acc)
";

struct Case {
    source: String,
    plan: String,
    out: DType,
    tile: [i64; 2],
}

impl Case {
    fn product([tm, tn, tk]: [i64; 3], result: &str, out: DType, plan: &str) -> Case {
        let numbers = [("{tm}", tm), ("{tn}", tn), ("{tk}", tk)];
        let source = numbers.iter().fold(PRODUCT.to_string(), |text, (name, number)| text.replace(name, &number.to_string()));
        let plan = format!("plan @kernel {{\n{plan}  ring copy -> compute {{by=tma, slots={{slots}}}} [%a, %b]\n}}\n");
        Case { source: source.replace("{result}", result), plan, out, tile: [tm, tn] }
    }

    fn compiled(&self, slots: u32) -> (Compiled, DeviceCompiled) {
        let file = parse_file("turns.py", &self.source);
        let args = [("x", DType::F16), ("y", DType::F16), ("out", self.out)];
        let args = args.map(|(name, dtype)| (name.to_string(), ArgType::array(dtype, 2)));
        let mut compiled = compile(&file, "kernel", &args, &CompileOptions::default()).expect("the kernel compiles");
        let plan = self.plan.replace("{slots}", &slots.to_string());
        compiled.plan = Some(compiled.module.sources.add("turns.plan", plan.as_str()));
        let device = compile_for(&compiled, Arch::Sm90a, OptLevel::O3)
            .unwrap_or_else(|found| panic!("{}", found[0].render(&compiled.module.sources, false)));
        (compiled, device)
    }

    /// Lock-step and the emulator, on which two blocks share the tiles, have what the CPU executor has.
    fn agrees(&self, [m, n, k]: [i64; 3], slots: u32) {
        let format = FloatFormat::of(DType::F16).expect("a float");
        let numbers = |sizes: [i64; 2], seed: usize| {
            let number = move |i: usize| ((i * 7 + i / 13 + seed) % 9) as f64 / 4.0 - 1.0;
            Data::codes(DType::F16, &sizes, |i| format.encode(number(i), Rounding::NearestEven, Overflow::Ieee))
        };
        let data = vec![numbers([m, k], 1), numbers([k, n], 2), Data::zeros(self.out, &[m, n])];
        let grid = [
            m.unsigned_abs().div_ceil(self.tile[0].unsigned_abs()) as u32,
            n.unsigned_abs().div_ceil(self.tile[1].unsigned_abs()) as u32,
            1,
        ];
        let (compiled, device) = self.compiled(slots);
        let mut wanted = data.clone();
        on_cpu(&Launch { compiled: &compiled, grid }, &mut wanted).expect("it runs");
        let told = |how: &str, why: String| panic!("{m}x{n}x{k} with {slots} slots, {how}: {why}\n{}", self.plan);
        let mut stepped = data.clone();
        lockstep_of(&device.tile, grid, &mut stepped).unwrap_or_else(|error| told("in lock-step", error));
        same(&wanted[2], &stepped[2], 0.0).unwrap_or_else(|error| told("in lock-step", error));
        for schedule in [Schedule::Eager, Schedule::Lazy, Schedule::Random] {
            let mut emulated = data.clone();
            run_under(schedule, &device.kernel, grid, &mut emulated)
                .unwrap_or_else(|error| told(&format!("{schedule:?}"), error));
            same(&wanted[2], &emulated[2], 0.0).unwrap_or_else(|error| told(&format!("{schedule:?}"), error));
        }
    }
}

const TEAMS: &str = "  partition copy {warps=4}\n  partition compute {warps=4, turns=2}\n  persistent 1\n";

/// One tile and many, one round and many, fewer slots than rounds and more.
#[test]
fn any_number_of_tiles_rounds_and_slots() {
    let case = Case::product([64, 64, 32], "acc", DType::F32, TEAMS);
    for (sizes, slots) in [
        ([64, 64, 32], 2),
        ([128, 64, 96], 3),
        ([192, 64, 8], 4),
        ([320, 192, 160], 2),
        ([320, 192, 64], 3),
        ([448, 128, 224], 5),
    ] {
        case.agrees(sizes, slots);
    }
}

#[test]
fn three_teams() {
    let case = Case::product([64, 64, 32], "acc", DType::F32, &TEAMS.replace("turns=2", "turns=3"));
    case.agrees([448, 192, 96], 2);
    case.agrees([448, 192, 32], 4);
}

#[test]
fn teams_in_clusters() {
    let case = Case::product([64, 64, 32], "acc", DType::F32, &format!("{TEAMS}  cluster 2\n"));
    case.agrees([320, 192, 160], 3);
}

/// Results in 16 bits, and ones that go through shared memory: each team has its own.
#[test]
fn each_team_has_its_own_memory() {
    let half = Case::product([128, 64, 32], "(acc * 0.125).astype(out.dtype)", DType::F16, TEAMS);
    half.agrees([512, 256, 96], 3);
    let rows = "acc - ct.sum(acc, axis=0, keepdims=True) - ct.max(acc, axis=1, keepdims=True)";
    Case::product([64, 64, 32], rows, DType::F32, TEAMS).agrees([320, 192, 96], 3);
}

#[test]
fn chained_products() {
    let rings = "  ring copy -> compute {by=tma, slots={slots}} [%b]\n  ring copy -> compute {by=tma, slots={slots}} [%v]\n";
    let plan = format!("plan @kernel {{\n{TEAMS}{rings}  ring copy -> compute {{by=tma, slots=1}} [%q]\n}}\n");
    let case = Case { source: CHAIN.to_string(), plan, out: DType::F32, tile: [64, 64] };
    case.agrees([320, 192, 192], 2);
}

/// The turn is handed on while the last product runs, and results leave through buffers that teams do not share.
#[test]
fn a_turn_is_handed_on_early() {
    let teams =
        "  partition copy {warps=4, registers=24}\n  partition compute {warps=4, registers=240, turns=2}\n  persistent 1\n";
    let case = Case::product([128, 128, 64], "acc", DType::F32, teams);
    let (_, device) = case.compiled(6);
    let ptx = device.kernel.ptx();
    let teams: Vec<&str> = ptx.split("setmaxnreg.inc").skip(1).collect();
    assert_eq!(teams.len(), 2, "{ptx}");
    for team in teams {
        let lines: Vec<&str> = team.lines().map(str::trim).collect();
        let last = |what: &str| lines.iter().position(|line| line.contains(what)).unwrap_or_else(|| panic!("no {what}:\n{team}"));
        let (ends, round) = (last("wgmma.wait_group.sync.aligned 0"), last("wgmma.wait_group.sync.aligned 1"));
        let arrivals = lines[round..ends].iter().filter(|line| line.contains("mbarrier.arrive.shared::cta.b64")).count();
        assert_eq!(arrivals, 2, "a slot and the turn:\n{team}");
        assert!(team.contains("cp.async.bulk.tensor.2d.global.shared::cta"), "{team}");
    }
    assembled(&device.kernel);
}

/// What a search asks: the plan with two teams, or why not.
#[test]
fn a_plan_in_turn() {
    let asked = |tile: [i64; 3], change: fn(&mut Plan)| {
        let source = Case::product(tile, "acc", DType::F32, "").source;
        let file = parse_file("turns.py", &source);
        let args = [("x", DType::BF16), ("y", DType::BF16), ("out", DType::F32)];
        let args = args.map(|(name, dtype)| (name.to_string(), ArgType::array(dtype, 2)));
        let mut module = compile(&file, "kernel", &args, &CompileOptions::default()).expect("the kernel compiles").module;
        let [forms, planning, _] = OptLevel::default().staging_pass_names();
        let passes: Vec<&Pass> = forms.iter().chain(planning).filter_map(|name| find(name)).collect();
        let mut manager = PassManager { target: Some(Arch::Sm90a), ..PassManager::default() };
        assert!(manager.run(&mut module, &passes).is_ok());
        let func = &mut module.funcs[0];
        let mut plan = func.plan.take().expect("a plan");
        plan.persistent = Some(1);
        change(&mut plan);
        let found = in_turn(func, &Units::of(func, Arch::Sm90a), &plan);
        let told = |plan| {
            func.plan = Some(plan);
            print_plan(func).unwrap_or_default()
        };
        found.map(told).map_err(|reason| reason.text.to_string())
    };
    let wanted = "plan @kernel {
  partition copy {warps=4, registers=24}
  partition compute {warps=4, registers=240, turns=2}
  persistent 1
  ring copy -> compute {by=tma, slots=6} [%a, %b]
}
";
    assert_eq!(asked([128, 128, 64], |_| {}), Ok(wanted.to_string()));
    assert_eq!(asked([64, 256, 64], |_| {}), Ok(wanted.replace("slots=6", "slots=4")));
    let no = |tile, change| asked(tile, change).expect_err("no such plan");
    assert_eq!(no([128, 256, 64], |_| {}), "the accumulators do not fit the registers");
    assert_eq!(
        no([128, 128, 64], |plan| plan.persistent = None),
        "a block with one tile has no turns: `turns` needs `persistent`"
    );
    let alone = |plan: &mut Plan| drop(plan.partitions.pop());
    assert_eq!(no([128, 128, 64], alone), "partition `copy` takes no tiles in turn: the one that computes does");
}
