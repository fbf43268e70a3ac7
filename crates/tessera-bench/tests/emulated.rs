//! Every kernel of the library on the emulator, as a GPU of compute capability 8.0 and as one of 9.0, in every precision and
//! under several schedules: within the reference's bound, as on the CPU executor, and with equal bits under every schedule.
//!
//! By default two small cases of each operator and precision at the edges of tiles, and two products of each precision that wrap their
//! rings twice, and two that add to what there was, under three schedules. `TESSERA_TEST_ALL` takes every case, `TESSERA_SCHEDULES=N` so many schedules, `TESSERA_PART=I/N` every
//! N-th case: `cargo xtask nightly` sets them.

use std::collections::BTreeMap;
use std::time::Instant;

use tessera_bench::{
    CaseSpec, Check, Expected, GateOptions, Lane, Library, Poison, Selection, Shapes, Sizes, Status, Subject, Suite, TESSERA,
    check,
};
use tessera_emu::{Console, EmuOptions, LaunchOptions, Sanitize, Schedule};
use tessera_runtime::{CompileOptions, Device};

const SEED: u64 = 5;

/// What a case of a short run may ask for. Some at the edges take many times as much: theirs are more tiles than multiprocessors.
const MOST_OPERATIONS: u64 = 100_000_000;

/// The memory that a case of a short run may hold: most of the time would go into a few long rows otherwise.
const MOST_BYTES: u64 = 1 << 20;

/// Products whose K goes round the longest ring twice and ends raggedly, as do their other sides.
fn rings() -> Selection {
    let extents = [("m", 70), ("n", 72), ("k", 840)].map(|(name, extent)| (name.to_string(), vec![extent]));
    Selection {
        operators: vec!["gemm".into()],
        precisions: Vec::new(),
        sizes: Sizes::Given(vec![Shapes { extents: extents.to_vec(), ..Shapes::default() }]),
    }
}

/// Products with what C held before.
fn blended() -> Selection {
    let extents = [("m", 70), ("n", 72), ("k", 200)].map(|(name, extent)| (name.to_string(), vec![extent]));
    let numbers = [("alpha", 2.0), ("beta", -1.0)].map(|(name, number)| (name.to_string(), vec![number]));
    let shapes = Shapes { extents: extents.to_vec(), numbers: numbers.to_vec(), variant: None };
    Selection { operators: vec!["gemm".into()], precisions: Vec::new(), sizes: Sizes::Given(vec![shapes]) }
}

fn edges() -> Selection {
    Selection { operators: Vec::new(), precisions: Vec::new(), sizes: Sizes::Edges }
}

/// The interleavings: both orders that are not random, then seeds. The second is sanitized.
fn schedules() -> Vec<LaunchOptions> {
    let count = std::env::var("TESSERA_SCHEDULES").ok().and_then(|text| text.parse().ok()).unwrap_or(3);
    let plain = LaunchOptions { patience: 1 << 24, ..LaunchOptions::default() };
    let mut list = vec![plain.clone(), LaunchOptions { schedule: Schedule::Lazy, sanitize: Sanitize::ALL, ..plain.clone() }];
    list.extend((1..).map(|seed| LaunchOptions { schedule: Schedule::Random, seed, ..plain.clone() }).take(count));
    list.truncate(count);
    list
}

/// All outputs as codes.
fn codes(subject: &dyn Subject) -> Vec<Vec<u64>> {
    let read = |(index, output): (usize, &tessera_bench::Output)| {
        let mut codes = vec![0; output.len()];
        subject.read(index, 0..output.rows, &mut codes).unwrap();
        codes
    };
    subject.outputs().iter().enumerate().map(read).collect()
}

/// Whether codes lie within the bound of the reference, and so near to the CPU's; the first that does not.
fn judge(subject: &dyn Subject, got: &[Vec<u64>], cpu: &[Vec<u64>]) -> Result<(), String> {
    for (index, output) in subject.outputs().iter().enumerate() {
        if output.check == Check::Exact {
            if let Some(at) = got[index].iter().zip(&cpu[index]).position(|(a, b)| a != b) {
                return Err(format!("`{}`[{at}] is {:#x}, on the CPU {:#x}", output.name, got[index][at], cpu[index][at]));
            }
            continue;
        }
        let (mut want, mut bound) = (vec![0.0; output.len()], vec![0.0; output.len()]);
        let expected = Expected::Values { want: &mut want, bound: &mut bound };
        subject.expect(index, 0..output.rows, expected).map_err(|fault| fault.to_string())?;
        for at in 0..output.len() {
            let (a, b) = ((output.decode)(got[index][at]), (output.decode)(cpu[index][at]));
            let near = |value: f64, want: f64, bound: f64| value == want || (value - want).abs() <= bound;
            if !near(a, want[at], bound[at]) || !near(a, b, 2.0 * bound[at]) {
                return Err(format!("`{}`[{at}] is {a:e} for {:e} +- {:e}, on the CPU {b:e}", output.name, want[at], bound[at]));
            }
        }
    }
    Ok(())
}

/// One case: nothing found, right, and the same bits under every schedule.
fn run(
    emulated: &Library,
    cpu: &Library,
    case: &CaseSpec,
    console: &Console,
    schedules: &[LaunchOptions],
) -> Result<u64, String> {
    let mut subject = match emulated.build(case, TESSERA) {
        Ok(subject) => subject,
        Err(fault) if fault.status == Status::Unsupported => return Ok(0),
        Err(fault) => return Err(fault.to_string()),
    };
    let same = cpu.cases().iter().find(|own| own.key == case.key).ok_or("the CPU has no such case")?;
    let mut reference = cpu.build(same, TESSERA).map_err(|fault| fault.to_string())?;
    let fault = |fault: tessera_bench::Fault| fault.to_string();
    for subject in [&mut subject, &mut reference] {
        subject.refresh(SEED, Lane::Case).map_err(fault)?;
    }
    reference.poison(Poison::Ones).map_err(fault)?;
    reference.launch().map_err(fault)?;
    let wanted = codes(&*reference);
    let mut first: Option<Vec<Vec<u64>>> = None;
    for options in schedules {
        let how = format!("{} {}", options.schedule.name(), options.seed);
        // Harness kernels that fill and poison run as fast as they can.
        console.set(LaunchOptions::default());
        subject.poison(Poison::Ones).map_err(fault)?;
        console.set(options.clone());
        let outcome = subject.launch();
        console.set(LaunchOptions::default());
        if let Some(finding) = console.take().iter().find_map(|launched| launched.report.findings.first()) {
            return Err(format!("{how}: {finding}"));
        }
        outcome.map_err(|fault| format!("{how}: {fault}"))?;
        let got = codes(&*subject);
        match &first {
            None => judge(&*subject, &got, &wanted).map_err(|why| format!("{how}: {why}"))?,
            Some(first) if *first == got => {}
            Some(_) if subject.deterministic() => return Err(format!("{how}: other bits than under the first schedule")),
            Some(_) => judge(&*subject, &got, &wanted).map_err(|why| format!("{how}: {why}"))?,
        }
        first.get_or_insert(got);
    }
    match subject.damaged_guard() {
        Some(damage) => Err(damage),
        None => Ok(schedules.len() as u64),
    }
}

/// Which part of the cases is meant, of how many.
pub(crate) fn part() -> (usize, usize) {
    let text = std::env::var("TESSERA_PART").unwrap_or_default();
    let number = |text: &str| text.parse().ok();
    text.split_once('/').and_then(|(part, parts)| Some((number(part)?, number(parts)?))).unwrap_or((0, 1))
}

fn lane(product: &str) {
    let everything = std::env::var_os("TESSERA_TEST_ALL").is_some();
    let (part, parts) = part();
    let schedules = schedules();
    let options = || EmuOptions { device: product.to_string(), multiprocessors: Some(4), ..EmuOptions::default() };
    let (mut wrong, mut cases, mut launches) = (Vec::new(), 0, 0);
    for selection in [rings(), blended(), edges()] {
        let (device, console) = Device::watched_emulator(&options()).unwrap();
        let mut emulated = Library::select(&selection, CompileOptions::default(), device).unwrap();
        let cpu = Library::select(&selection, CompileOptions::default(), Device::Cpu).unwrap();
        if !everything {
            emulated.retain(|case| case.work.flops < MOST_OPERATIONS && case.work.tensor_bytes <= MOST_BYTES);
            emulated.limit(2, SEED);
        }
        let mut told: BTreeMap<String, (u64, u64, f64)> = BTreeMap::new();
        for case in emulated.cases().iter().skip(part).step_by(parts) {
            let begin = Instant::now();
            let outcome = run(&emulated, &cpu, case, &console, &schedules);
            let row = told.entry(format!("{} {}", case.key.operator, case.key.precision)).or_default();
            row.0 += 1;
            row.2 += begin.elapsed().as_secs_f64();
            match outcome {
                Ok(count) => row.1 += count,
                Err(why) => wrong.push(format!("{}: {why}", case.key)),
            }
        }
        for (name, (own, count, seconds)) in told {
            println!("{product} {name}: {own} cases, {count} launches, {seconds:.1} s");
            (cases, launches) = (cases + own, launches + count);
        }
    }
    println!("{product}: {cases} cases, {launches} launches, {} wrong", wrong.len());
    assert!(launches * parts as u64 > 100, "only {launches} launches");
    assert!(wrong.is_empty(), "{} wrong:\n{}", wrong.len(), wrong.join("\n"));
}

#[test]
fn library_on_capability_8_0() {
    lane("a100");
}

#[test]
fn library_on_capability_9_0() {
    lane("h200");
}

/// An output that is judged by a digest, with a kernel and a digest of the harness that both run on the emulator: an odd number of
/// bytes, so that the digest's last word holds more than the output.
#[test]
fn a_large_output_of_odd_size_is_deterministic() {
    let device = Device::emulated(&EmuOptions::default()).unwrap();
    let selection = Selection {
        operators: vec!["bandwidth".into()],
        precisions: vec!["int8".into()],
        sizes: Sizes::Given(vec![Shapes {
            extents: vec![("bytes".into(), vec![(1 << 22) + 5])],
            variant: Some("copy sequential".into()),
            ..Shapes::default()
        }]),
    };
    let library = Library::select(&selection, CompileOptions::default(), device).unwrap();
    let mut subject = library.build(&library.cases()[0], TESSERA).unwrap();
    let report = check(&mut *subject, GateOptions { seeds: 1, suite_seed: SEED, tolerance: None, specials: false }).unwrap();
    assert_eq!(report.status, Status::Ok, "{:?}", report.reason);
    assert!(report.checks.iter().any(|check| check.name == "repeat"));
}
