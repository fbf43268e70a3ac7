//! Any legal plan is right. Plans are drawn for programs that are drawn too: what may be changed about a plan is changed at random, one
//! that `pipelining` refuses is refused with a reason, and one that it takes gives in lock-step and on the emulator, with sanitizers and
//! under several schedules, what the CPU executor gives; one in thirty-two is assembled. Every number in these programs is a small multiple of a power of two, so that
//! sums come out the same in every order.
//!
//! A run of the tests takes 500 legal plans; with `TESSERA_TEST_ALL` set (as `cargo xtask nightly` does) 20,000; `TESSERA_PLANS=N` takes N.

use std::fmt::Write as _;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};

use tessera_compile::passes::find;
use tessera_compile::ptx::{Optimize, Target};
use tessera_compile::{CompileOptions, Compiled, OptLevel, compile, compile_for};
use tessera_emu::Schedule;
use tessera_ir::attrs::RingProducer;
use tessera_ir::text::print_plan;
use tessera_ir::{Func, Module, OpKind, Partition, Pass, PassManager, Plan, RingPlan, ScheduleOp, Value};
use tessera_lang::{ArgType, parse_file};
use tessera_types::{Arch, DType, FloatFormat, Overflow, Rounding};

use crate::devices::{Data, Launch, assembler, lockstep_of, on_cpu, run_under, same};

/// A stream of numbers.
struct Draw(u64);

impl Draw {
    fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0
    }

    fn below(&mut self, n: usize) -> usize {
        (self.next() >> 16) as usize % n.max(1)
    }

    fn of<T: Copy>(&mut self, items: &[T]) -> T {
        items[self.below(items.len())]
    }

    fn one_in(&mut self, n: usize) -> bool {
        self.below(n) == 0
    }
}

/// A program: its text, its launch, and its arrays.
struct Program {
    source: String,
    grid: [u32; 3],
    data: Vec<Data>,
}

const ZERO: &str = "padding_mode=ct.PaddingMode.ZERO";

/// Draws a program with products: one or several in a loop, chained or not, of factors as they come or computed, loops behind and around
/// each other, tiles that others use too, and loops that add up rows and columns without a product.
fn program(draw: &mut Draw) -> Program {
    let dtype = draw.of(&[DType::BF16, DType::F16, DType::F16, DType::I8]);
    let (acc, out) = if dtype == DType::I8 { ("int32", DType::I32) } else { ("float32", DType::F32) };
    let (tm, tn, tk): (u64, u64, u64) = (draw.of(&[64, 64, 128]), draw.of(&[32, 64]), draw.of(&[32, 64]));
    let (m, n, k): (u64, u64, u64) =
        (tm * draw.of(&[1, 1, 1, 1, 3]) + draw.of(&[0, 3]), tn * draw.of(&[1, 2]), tk * draw.of(&[1, 3, 5]) - draw.of(&[0, 16]));
    let name = match dtype {
        DType::BF16 => "bfloat16",
        DType::F16 => "float16",
        _ => "int8",
    };
    let chained = dtype != DType::I8 && draw.one_in(3);
    let mut body = String::new();
    let mut line = |depth: usize, text: &str| writeln!(body, "{}{text}", "    ".repeat(depth + 1)).expect("a string");
    let rows_alone = draw.one_in(5);
    let outer = draw.one_in(3);
    let depth = usize::from(outer);
    let rows = m.div_ceil(tm);
    if outer {
        line(0, &format!("for t in range(ct.bid(0), {rows}, ct.num_blocks(0)):"));
        line(1, "i = t");
        line(1, "j = ct.bid(1)");
    } else {
        line(0, "i, j = ct.bid(0), ct.bid(1)");
    }
    line(depth, &format!("acc = ct.zeros(({tm}, {tn}), ct.{acc})"));
    if chained {
        // One factor for the whole loop, and two in each round.
        line(depth, &format!("q = ct.load(x, (i, 0), ({tm}, {tk}), {ZERO})"));
        if !outer && draw.one_in(3) {
            line(depth, "q = q * 2");
        }
        line(depth, &format!("for k in range({}):", k.div_ceil(32)));
        line(depth + 1, &format!("b = ct.load(y, (k, 0), (32, {tk}), {ZERO})"));
        line(depth + 1, &format!("s = ct.mma(q, ct.transpose(b), ct.zeros(({tm}, 32), ct.float32))"));
        line(depth + 1, &format!("p = (s * 0.0625).astype(ct.{name})"));
        line(depth + 1, &format!("v = ct.load(w, (k, j), (32, {tn}), {ZERO})"));
        line(depth + 1, "acc = ct.mma(p, v, acc)");
    } else {
        for again in 0..=usize::from(draw.one_in(4)) {
            let place = draw.one_in(4);
            let shared = draw.one_in(3);
            if place {
                line(depth, "at = 0");
            }
            line(depth, &format!("for k in range({}):", k.div_ceil(tk)));
            let at = if place { "at" } else { "k" };
            line(depth + 1, &format!("a = ct.load(x, (i, {at}), ({tm}, {tk}), {ZERO})"));
            let turned = draw.one_in(3);
            match turned {
                true => line(depth + 1, &format!("b = ct.transpose(ct.load(w, (j, k), ({tn}, {tk}), {ZERO}))")),
                false => line(depth + 1, &format!("b = ct.load(y, (k, j), ({tk}, {tn}), {ZERO})")),
            }
            if draw.one_in(4) {
                line(depth + 1, "b = b + b");
            }
            if draw.one_in(4) {
                line(depth + 1, "a = ct.where(a < 1, a, a + a)");
            }
            if rows_alone {
                let sum = |tile: &str, axis: u8| format!("ct.sum({tile}.astype(ct.{acc}), axis={axis}, keepdims=True)");
                line(depth + 1, &format!("acc = acc + {} + {}", sum("a", 1), sum("b", 0)));
            } else {
                line(depth + 1, "acc = ct.mma(a, b, acc)");
            }
            if shared && !rows_alone {
                line(depth + 1, &format!("acc = ct.mma(a, ct.load(y, (k, {again}), ({tk}, {tn}), {ZERO}), acc)"));
            }
            if draw.one_in(3) {
                line(depth + 1, &format!("acc = acc + ct.sum(a.astype(ct.{acc}), axis=1, keepdims=True)"));
            }
            if place {
                line(depth + 1, "at = at + 1");
            }
        }
    }
    line(depth, "ct.store(out, (i, j), acc)");
    let source = format!("import cuda.tile as ct\n\n@ct.kernel\ndef kernel(x, y, w, out):\n{body}");
    let numbers = |sizes: [u64; 2], seed: usize| {
        let sizes = sizes.map(|size| size as i64);
        let format = FloatFormat::of(dtype);
        Data::codes(dtype, &sizes, |i| {
            let number = ((i * 7 + i / 13 + seed) % 9) as i64 - 4;
            format.map_or(number as u64, |format| format.encode(number as f64 / 4.0, Rounding::NearestEven, Overflow::Ieee))
        })
    };
    let blocks = if outer && draw.one_in(2) { 1 } else { rows };
    let wide = [k, n, tk, tn, 64].into_iter().max().unwrap_or(64).next_multiple_of(16);
    let data = vec![
        numbers([m, wide], 1),
        numbers([wide.max(k), wide], 2),
        numbers([wide.max(k), wide], 5),
        Data::zeros(out, &[m as i64, n as i64]),
    ];
    Program { source, grid: [blocks as u32, (n / tn) as u32, 1], data }
}

fn compiled(program: &Program) -> Result<Compiled, String> {
    let file = parse_file("drawn.py", &program.source);
    let args: Vec<(String, ArgType)> = ["x", "y", "w", "out"]
        .iter()
        .zip(&program.data)
        .filter_map(|(name, data)| match data {
            Data::Array { dtype, .. } => Some((name.to_string(), ArgType::array(*dtype, 2))),
            Data::Scalar(_) => None,
        })
        .collect();
    compile(&file, "kernel", &args, &CompileOptions::default())
        .map_err(|found| format!("{}\n{}", found[0].render(&file.sources, false), program.source))
}

/// Runs passes by name over a module.
fn passes(module: &mut Module, arch: Arch, names: &[&str]) -> Result<(), Vec<tessera_ir::Diagnostic>> {
    let passes: Vec<&Pass> = names.iter().filter_map(|name| find(name)).collect();
    assert_eq!(passes.len(), names.len());
    let mut manager = PassManager { target: Some(arch), verify_each: true, ..PassManager::default() };
    manager.run(module, &passes).map(drop).map_err(|failure| {
        assert!(!failure.broke_module, "{}: {}", failure.pass, failure.diagnostics[0].message);
        failure.diagnostics
    })
}

/// What rings may hold: what loads yield, and what products take.
fn candidates(func: &Func) -> Vec<Value> {
    let mut found = Vec::new();
    for op in func.linked_ops() {
        match &func.ops[op].kind {
            OpKind::Schedule(ScheduleOp::LoadViewTko { .. }) => found.push(func.ops[op].results[0]),
            OpKind::Schedule(ScheduleOp::MmaF { .. } | ScheduleOp::MmaI { .. }) => found.extend(&func.ops[op].operands[..2]),
            _ => {}
        }
    }
    found.sort_unstable();
    found.dedup();
    found
}

/// A plan made of nothing.
fn fresh(draw: &mut Draw, func: &Func) -> Plan {
    let values = candidates(func);
    let part = |name: &str, warps| Partition { name: name.to_string(), warps, registers: None, turns: None, span: func.span };
    let alone = draw.one_in(2);
    let partitions = match alone {
        true => vec![part("all", draw.of(&[1, 2, 4, 8]))],
        false => vec![part("copy", 4), part("compute", draw.of(&[4, 8]))],
    };
    let mut plan = Plan { partitions, ..Plan::new(func.span) };
    for _ in 0..1 + draw.below(3) {
        let fill = (0..1 + draw.below(2)).map(|_| draw.of(&values)).collect();
        let (from, to, by) = match alone {
            true => (0, 0, RingProducer::CopyAsync),
            false => draw.of(&[
                (0, 1, RingProducer::Tma),
                (0, 1, RingProducer::Threads),
                (0, 0, RingProducer::Tma),
                (1, 1, RingProducer::Threads),
            ]),
        };
        plan.rings.push(RingPlan { from, to, by, slots: 1 + draw.below(4) as u32, fills: vec![fill], span: func.span });
    }
    plan
}

/// A plan otherwise.
fn changed(draw: &mut Draw, func: &Func, plan: &mut Plan) {
    let values = candidates(func);
    let rings = plan.rings.len();
    match draw.below(16) {
        0 | 1 if rings > 0 => {
            let ring = draw.below(rings);
            plan.rings[ring].slots = 1 + draw.below(6) as u32;
        }
        2 => {
            let partition = draw.below(plan.partitions.len());
            plan.partitions[partition].warps = draw.of(&[1, 2, 4, 8, 12]);
            plan.partitions.iter_mut().for_each(|partition| partition.registers = None);
        }
        3 if plan.partitions.len() == 2 => {
            let asked = draw.of(&[None, Some((40, 232)), Some((24, 240)), Some((96, 160)), Some((56, 200)), Some((24, 104))]);
            plan.partitions[0].registers = asked.map(|(few, _)| few);
            plan.partitions[1].registers = asked.map(|(_, many)| many);
        }
        // One value more, or less.
        4 if rings > 0 => {
            let ring = draw.below(rings);
            let fill = draw.below(plan.rings[ring].fills.len());
            plan.rings[ring].fills[fill].push(draw.of(&values));
        }
        5 if rings > 0 => {
            let ring = draw.below(rings);
            let fill = draw.below(plan.rings[ring].fills.len());
            plan.rings[ring].fills[fill].pop();
            plan.rings[ring].fills.retain(|fill| !fill.is_empty());
            plan.rings.retain(|ring| !ring.fills.is_empty());
        }
        // One ring in two.
        6 if rings > 0 => {
            let ring = draw.below(rings);
            let mut other = plan.rings[ring].clone();
            plan.rings[ring].fills.iter_mut().for_each(|fill| fill.truncate(1));
            other.fills.iter_mut().for_each(|fill| drop(fill.drain(..1.min(fill.len()))));
            other.fills.retain(|fill| !fill.is_empty());
            if !other.fills.is_empty() {
                other.slots = 1 + draw.below(4) as u32;
                plan.rings.push(other);
            }
        }
        7 if rings > 1 => {
            let ring = draw.below(rings);
            plan.rings.remove(ring);
        }
        8 if rings > 0 => {
            let ring = draw.below(rings);
            plan.rings[ring].fills.iter_mut().for_each(|fill| fill.reverse());
        }
        11 if plan.partitions.len() == 2 && draw.one_in(2) => {
            plan.resident = Some(2);
            plan.partitions[0].registers = Some(24);
            plan.partitions[1].registers = Some(104);
        }
        11 => plan.resident = draw.of(&[None, Some(1), Some(2), Some(3)]),
        9 | 10 => {
            plan.persistent = draw.of(&[None, Some(1), Some(1), Some(2)]);
            plan.stream_k = draw.of(&[None, Some(0), Some(0), Some(2)]);
        }
        13 | 14 if plan.partitions.len() == 2 || draw.one_in(8) => {
            let Some(compute) = plan.partitions.last_mut() else { return };
            compute.turns = if draw.one_in(16) { Some(1) } else { draw.of(&[Some(2), Some(2), Some(3)]) };
            if draw.one_in(2) {
                compute.warps = 4;
                plan.partitions.iter_mut().for_each(|partition| partition.registers = None);
            }
            if !draw.one_in(12) {
                (plan.persistent, plan.stream_k) = (Some(1), None);
            }
        }
        15 => {
            plan.split = draw.of(&[Some(2), Some(2), Some(4), Some(8)]);
            plan.among = draw.of(&[None, Some(2), Some(3)]);
            if !draw.one_in(8) {
                (plan.persistent, plan.stream_k, plan.cluster) = (None, None, None);
            }
        }
        12 => {
            plan.cluster = draw.of(&[None, Some(2), Some(2), Some(4)]);
            if draw.one_in(3) {
                // Two clusters on the two multiprocessors of these tests.
                (plan.persistent, plan.stream_k) = (Some(2), draw.of(&[Some(0), Some(0), Some(2)]));
            }
        }
        _ => {}
    }
}

/// What became of a plan.
enum Outcome {
    Right,
    Refused(String),
}

/// Tries one plan, drawn by a number.
fn tried(seed: u64) -> Result<Outcome, String> {
    let mut draw = Draw(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1);
    for _ in 0..4 {
        draw.next();
    }
    let program = program(&mut draw);
    let arch = draw.of(&[Arch::Sm90a, Arch::Sm90a, Arch::Sm80]);
    let mut compiled = compiled(&program)?;
    let [forms, planning, carrying] = OptLevel::default().staging_pass_names();
    let mut module = compiled.module.clone();
    passes(&mut module, arch, forms).map_err(|found| found[0].message.clone())?;
    if !draw.one_in(6) {
        // What would be chosen, or what comes second.
        let skipped = usize::from(draw.one_in(4));
        passes(&mut module, arch, &planning[skipped..]).map_err(|found| found[0].message.clone())?;
    }
    let func = &mut module.funcs[0];
    let mut plan = match func.plan.take() {
        Some(plan) => plan,
        None => fresh(&mut draw, func),
    };
    for _ in 0..draw.below(4) {
        changed(&mut draw, func, &mut plan);
    }
    func.plan = Some(plan);
    let text = print_plan(func).unwrap_or_default();
    let told = |what: &str| format!("plan {seed} on {arch}: {what}\n{text}\n{}", program.source);
    let id = compiled.module.sources.add("drawn.plan", text.as_str());
    compiled.plan = Some(id);
    let checked = passes(&mut module, arch, carrying);
    let device = match (checked, compile_for(&compiled, arch, OptLevel::O3)) {
        (Err(found), _) | (Ok(()), Err(found)) if found[0].id == "plan" || found[0].id == "target-shared-memory" => {
            return Ok(Outcome::Refused(found[0].message.clone()));
        }
        (Err(found), _) | (Ok(()), Err(found)) => return Err(told(&found[0].render(&compiled.module.sources, false))),
        (Ok(()), Ok(device)) => device,
    };
    let launch = Launch { compiled: &compiled, grid: program.grid };
    let mut wanted = program.data.clone();
    on_cpu(&launch, &mut wanted).map_err(|error| told(&error))?;
    let mut stepped = program.data.clone();
    lockstep_of(&device.tile, program.grid, &mut stepped).map_err(|error| told(&error))?;
    same(&wanted[3], &stepped[3], 0.0).map_err(|difference| told(&format!("in lock-step {difference}")))?;
    if seed.is_multiple_of(32)
        && let (Some(assembler), Some(target)) = (assembler(), Target::parse(arch.name()))
        && let Err(error) = assembler.assemble(&device.kernel.ptx(), target, Optimize::Quick)
    {
        return Err(told(&error.to_string()));
    }
    let schedule = draw.of(&[Schedule::Eager, Schedule::Lazy, Schedule::Random]);
    let mut emulated = program.data.clone();
    run_under(schedule, &device.kernel, program.grid, &mut emulated).map_err(|error| told(&error))?;
    same(&wanted[3], &emulated[3], 0.0).map_err(|difference| told(&format!("on the emulator {difference}")))?;
    Ok(Outcome::Right)
}

#[test]
fn any_legal_plan_is_right() {
    let asked = std::env::var("TESSERA_PLANS").ok().and_then(|count| count.parse().ok());
    let all = std::env::var_os("TESSERA_TEST_ALL").is_some();
    let wanted: u64 = asked.unwrap_or(if all { 20_000 } else { 500 });
    let first: u64 = std::env::var("TESSERA_PLAN").ok().and_then(|seed| seed.parse().ok()).unwrap_or(1);
    let (next, right) = (AtomicU64::new(first), AtomicU64::new(0));
    let (wrong, refused) = (Mutex::new(Vec::new()), Mutex::new(std::collections::BTreeMap::<String, u64>::new()));
    std::thread::scope(|scope| {
        for _ in 0..std::thread::available_parallelism().map_or(2, usize::from) {
            scope.spawn(|| {
                while right.load(Ordering::Relaxed) < wanted && wrong.lock().expect("no thread panicked").len() < 8 {
                    let seed = next.fetch_add(1, Ordering::Relaxed);
                    match std::panic::catch_unwind(|| tried(seed)) {
                        Ok(Ok(Outcome::Right)) => drop(right.fetch_add(1, Ordering::Relaxed)),
                        Ok(Ok(Outcome::Refused(why))) => {
                            let kind: String = why.chars().filter(|c| !c.is_ascii_digit()).collect();
                            *refused.lock().expect("no thread panicked").entry(kind).or_default() += 1;
                        }
                        Ok(Err(error)) => wrong.lock().expect("no thread panicked").push(error),
                        Err(_) => wrong.lock().expect("no thread panicked").push(format!("plan {seed} panicked")),
                    }
                }
            });
        }
    });
    let (wrong, refused) = (wrong.into_inner().expect("no thread panicked"), refused.into_inner().expect("no thread panicked"));
    println!("{} legal plans are right, {} are refused:", right.load(Ordering::Relaxed), refused.values().sum::<u64>());
    for (why, count) in &refused {
        println!("  {count:5} {why}");
    }
    assert!(wrong.is_empty(), "{} wrong:\n\n{}", wrong.len(), wrong.join("\n\n"));
    assert!(refused.len() > 10, "plans are drawn that are refused for many reasons");
}

/// What a row loop reads is copied ahead on Ampere, by a plan: right on the emulator, and assembled without spills.
#[test]
fn a_row_loop_is_pipelined_on_ampere() {
    let source = "import cuda.tile as ct

@ct.kernel
def kernel(x, y, w, out):
    i, j = ct.bid(0), ct.bid(1)
    acc = ct.zeros((64, 32), ct.float32)
    for k in range(ct.cdiv(x.shape[1], 64)):
        a = ct.load(x, (i, k), (64, 64), padding_mode=ct.PaddingMode.ZERO)
        acc = acc + ct.sum(a.astype(ct.float32), axis=1, keepdims=True)
    ct.store(out, (i, j), acc)
";
    let numbers = |sizes: [i64; 2]| {
        let format = FloatFormat::of(DType::F16).expect("a float");
        Data::codes(DType::F16, &sizes, |i| format.encode((i % 9) as f64 - 4.0, Rounding::NearestEven, Overflow::Ieee))
    };
    let data = vec![numbers([70, 304]), numbers([1, 8]), numbers([1, 8]), Data::zeros(DType::F32, &[70, 32])];
    let program = Program { source: source.to_string(), grid: [2, 1, 1], data };
    let mut compiled = compiled(&program).expect("the kernel compiles");
    let plan = "plan @kernel {\n  partition all {warps=4}\n  ring all -> all {by=copy_async, slots=4} [%a]\n}\n";
    compiled.plan = Some(compiled.module.sources.add("rows.plan", plan));
    let device = compile_for(&compiled, Arch::Sm80, OptLevel::O3).expect("the plan is carried out");
    let ptx = device.kernel.ptx();
    assert!(ptx.contains("cp.async.wait_group 2"), "{ptx}");
    let mut wanted = program.data.clone();
    on_cpu(&Launch { compiled: &compiled, grid: program.grid }, &mut wanted).expect("it runs");
    let mut emulated = program.data.clone();
    run_under(Schedule::Lazy, &device.kernel, program.grid, &mut emulated).expect("it runs");
    same(&wanted[3], &emulated[3], 0.0).expect("the same");
    if let Some(assembler) = assembler() {
        let target = Target::parse(Arch::Sm80.name()).expect("a target");
        let assembly = assembler.assemble(&ptx, target, Optimize::Full).expect("it assembles");
        assert_eq!(assembly.report.spilled_bytes(), 0);
    }
}

/// Few tiles and many rounds: blocks share the rounds of a tile, and who comes last adds up what they have left. A workspace as one launch
/// leaves it serves the next.
#[test]
fn rounds_of_a_tile_are_shared() {
    let source = "import cuda.tile as ct

@ct.kernel
def kernel(x, y, w, out):
    i, j = ct.bid(0), ct.bid(1)
    acc = ct.zeros((64, 64), ct.float32)
    for k in range(ct.cdiv(x.shape[1], 32)):
        a = ct.load(x, (i, k), (64, 32), padding_mode=ct.PaddingMode.ZERO)
        b = ct.load(y, (k, j), (32, 64), padding_mode=ct.PaddingMode.ZERO)
        acc = ct.mma(a, b, acc)
    ct.store(out, (i, j), acc * 0.5)
";
    let numbers = |sizes: [i64; 2], seed: usize| {
        let format = FloatFormat::of(DType::F16).expect("a float");
        let number = move |i: usize| ((i * 7 + i / 13 + seed) % 9) as f64 / 4.0 - 1.0;
        Data::codes(DType::F16, &sizes, |i| format.encode(number(i), Rounding::NearestEven, Overflow::Ieee))
    };
    let plan = |shared: &str| {
        format!(
            "plan @kernel {{\n  partition copy {{warps=4}}\n  partition compute {{warps=4}}\n  {shared}\n  stream_k 0
  ring copy -> compute {{by=tma, slots=3}} [%a, %b]\n}}\n"
        )
    };
    // Two blocks, four, and two clusters of two.
    let plans = ["persistent 1", "persistent 2", "persistent 2\n  cluster 2"].map(plan);
    // One tile, three, five, one with a single round, and two of three rounds, which are no whole parts.
    let sizes = [[64, 64, 1000], [130, 40, 504], [300, 64, 72], [64, 64, 8], [128, 64, 72]];
    for ([m, n, k], plan) in sizes.into_iter().flat_map(|sizes| plans.iter().map(move |plan| (sizes, plan))) {
        let data = vec![numbers([m, k], 1), numbers([k, n], 2), numbers([1, 8], 3), Data::zeros(DType::F32, &[m, n])];
        let grid = [(m as u32).div_ceil(64), (n as u32).div_ceil(64), 1];
        let program = Program { source: source.to_string(), grid, data };
        let mut compiled = compiled(&program).expect("the kernel compiles");
        compiled.plan = Some(compiled.module.sources.add("shared.plan", plan.as_str()));
        let device = compile_for(&compiled, Arch::Sm90a, OptLevel::O3).expect("the plan is carried out");
        assert!(device.kernel.ptx().contains("workspace_1"));
        assert_eq!(device.kernel.ptx().contains("multicast"), plan.contains("cluster"));
        let mut wanted = program.data.clone();
        on_cpu(&Launch { compiled: &compiled, grid }, &mut wanted).expect("it runs");
        let mut stepped = program.data.clone();
        lockstep_of(&device.tile, grid, &mut stepped).expect("it runs");
        same(&wanted[3], &stepped[3], 0.0).expect("in lock-step");
        for schedule in [Schedule::Eager, Schedule::Lazy, Schedule::Random] {
            let mut emulated = program.data.clone();
            run_under(schedule, &device.kernel, grid, &mut emulated).expect("it runs");
            same(&wanted[3], &emulated[3], 0.0).unwrap_or_else(|error| panic!("{schedule:?}: {error}"));
        }
    }
}
