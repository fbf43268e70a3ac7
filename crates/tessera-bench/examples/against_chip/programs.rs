//! Random programs on two devices: the same text, the same inputs, the same bits.

use std::fmt::Write;
use std::sync::Arc;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

use tessera_driver::{Context, DeviceOrdinal, Dim3, DriverTable, LaunchSpec, Params};

use crate::Outcome;
use crate::generator::{CLASSES, INPUT_BYTES, Kind, Program, Shown, Stream, THREADS, inputs, module};

/// Kernels of a module: few modules keep the time for loading down.
const EACH: usize = 64;
/// Differences that are told in full.
const TOLD: usize = 40;

/// What was compared.
#[derive(Default)]
struct Tally {
    programs: usize,
    values: u64,
    different: u64,
    programs_different: usize,
    told: Vec<String>,
}

/// Runs a module's kernels; each thread's results, kernel by kernel.
fn run(table: &Arc<DriverTable>, text: &str, programs: &[Program], input: &[u8]) -> Outcome<Vec<Vec<u8>>> {
    let context = Context::open(Arc::clone(table), DeviceOrdinal(0))?;
    let stream = context.stream()?;
    let module = context.module(&context.assemble(text)?)?;
    let from = context.buffer(input.len() as u64)?;
    from.write(0, input, &stream)?;
    let mut results = Vec::new();
    for program in programs {
        let bytes = (program.bytes * THREADS).max(8);
        let to = context.buffer(bytes as u64)?;
        to.fill(0, &stream)?;
        let kernel = module.kernel(&program.name)?;
        let params = Params::new().pointer(from.pointer()).pointer(to.pointer());
        context.table()?.launch(&LaunchSpec {
            function: kernel.handle(),
            grid: Dim3::ONE,
            block: Dim3::from(THREADS as u32),
            cluster: None,
            shared_bytes: 0,
            overlaps_predecessor: false,
            stream: stream.handle(),
            params: &params,
        })?;
        let mut out = vec![0; bytes];
        to.read(0, &mut out, &stream)?;
        results.push(out);
    }
    Ok(results)
}

fn word(bytes: &[u8]) -> u64 {
    bytes.iter().rev().fold(0, |value, byte| value << 8 | u64::from(*byte))
}

/// What the inputs of a thread are, for a message.
fn shown(input: &[u8], thread: usize) -> String {
    let own = &input[thread * INPUT_BYTES..][..INPUT_BYTES];
    let mut text = String::new();
    let mut start = 0;
    for (class, width) in CLASSES {
        let values: Vec<String> = own[start..start + 8 * width].chunks(width).map(|b| format!("{:x}", word(b))).collect();
        start += 8 * width;
        let _ = write!(text, " {class}=[{}]", values.join(" "));
    }
    text
}

fn compare(kind: Kind, seed: u64, tables: &[Arc<DriverTable>; 2], tally: &Mutex<Tally>) -> Outcome<()> {
    let (text, programs) = module(seed, kind, EACH);
    let input = inputs(seed ^ 0xABCD);
    let [first, second] = [&tables[0], &tables[1]].map(|table| run(table, &text, &programs, &input));
    let (first, second) = match (first, second) {
        (Ok(first), Ok(second)) => (first, second),
        (Err(error), _) | (_, Err(error)) => return Err(format!("{} {seed}: {error}\n{text}", kind.name()).into()),
    };
    let mut own = Tally { programs: programs.len(), ..Tally::default() };
    for (index, program) in programs.iter().enumerate() {
        let mut differs = false;
        for thread in 0..THREADS {
            for Shown { at, width, what, form } in &program.results {
                let start = thread * program.bytes + at;
                let [a, b] = [&first[index], &second[index]].map(|bytes| form.canonical(word(&bytes[start..start + width])));
                own.values += 1;
                if a == b {
                    continue;
                }
                own.different += 1;
                if !std::mem::replace(&mut differs, true) || what.contains(' ') {
                    own.told.push(format!(
                        "{} {seed} k{index} thread {thread}: {what}: {a:x} on the chip, {b:x} emulated;{}",
                        kind.name(),
                        shown(&input, thread)
                    ));
                }
            }
        }
        own.programs_different += usize::from(differs);
    }
    if let Ok(mut tally) = tally.lock() {
        tally.programs += own.programs;
        tally.values += own.values;
        tally.different += own.different;
        tally.programs_different += own.programs_different;
        // One of each instruction says most.
        for line in own.told {
            let mnemonic = |line: &str| line.split(": ").nth(1).and_then(|what| what.split(' ').next()).map(str::to_owned);
            if tally.told.iter().all(|other| mnemonic(other) != mnemonic(&line)) {
                tally.told.push(line);
            }
        }
    }
    Ok(())
}

/// Compares `count` integer programs and a quarter as many of each other kind; the report and whether all agree.
pub(crate) fn agree(tables: &[Arc<DriverTable>; 2], count: usize, seed: u64, report: &mut String) -> Outcome<bool> {
    let _ = writeln!(
        report,
        "{:<30} {:>9} {:>8} {:>12} {:>10} {:>10}",
        "random PTX", "programs", "threads", "values", "different", "programs"
    );
    let mut all = true;
    let mut told = Vec::new();
    for kind in Kind::ALL {
        // Whole programs of integers are the most.
        let modules = if kind == Kind::Integer { count } else { count / 4 }.div_ceil(EACH);
        let mut stream = Stream::new(seed ^ kind as u64);
        let seeds: Vec<u64> = (0..modules).map(|_| stream.bits()).collect();
        let (tally, next, failed) = (Mutex::new(Tally::default()), AtomicUsize::new(0), Mutex::new(None));
        let workers = std::thread::available_parallelism().map_or(1, usize::from);
        std::thread::scope(|scope| {
            for _ in 0..workers {
                scope.spawn(|| {
                    while let Some(&seed) = seeds.get(next.fetch_add(1, Ordering::Relaxed)) {
                        if let Err(error) = compare(kind, seed, tables, &tally) {
                            if let Ok(mut failed) = failed.lock() {
                                failed.get_or_insert(error.to_string());
                            }
                            return;
                        }
                    }
                });
            }
        });
        if let Ok(Some(error)) = failed.into_inner() {
            return Err(error.into());
        }
        let Ok(tally) = tally.into_inner() else { return Err("a worker stopped".into()) };
        let Tally { programs, values, different, programs_different, .. } = tally;
        let _ = writeln!(
            report,
            "{:<30} {programs:>9} {THREADS:>8} {values:>12} {different:>10} {programs_different:>10}",
            kind.name()
        );
        all &= different == 0;
        let mut lines = tally.told;
        lines.sort();
        lines.truncate(TOLD);
        told.extend(lines);
    }
    for line in told {
        let _ = writeln!(report, "{line}");
    }
    Ok(all)
}
