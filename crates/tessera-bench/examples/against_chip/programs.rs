//! Random programs on two devices: the same text, the same inputs, the same bits.
//!
//! A program whose results differ is assembled once more without optimisation. Where that gives the emulator's bits, the assembler has
//! made something else of the program (`rows` says what is known of that); where it does not, emulator and chip disagree.

use std::fmt::Write;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use tessera_driver::{Context, DeviceOrdinal, Dim3, DriverTable, LaunchSpec, Params};

use crate::Outcome;
use crate::generator::{Kind, Program, module, traced};
use crate::trace::{first_difference, operands};
use crate::values::{Stream, THREADS, inputs, registers, word};

/// Kernels of a module: few modules keep the time for loading down.
const EACH: usize = 64;
/// Programs of a kind whose difference is told.
const TOLD: usize = 40;

/// What was compared.
#[derive(Default)]
struct Tally {
    programs: usize,
    values: u64,
    /// Values and programs that differ, and programs that do so without optimisation.
    different: u64,
    programs_different: usize,
    unoptimized: usize,
    told: Vec<String>,
}

/// Runs kernels of a module; each thread's results, kernel by kernel.
fn run(table: &Arc<DriverTable>, text: &str, programs: &[Program], input: &[u8], optimized: bool) -> Outcome<Vec<Vec<u8>>> {
    let context = Context::open(Arc::clone(table), DeviceOrdinal(0))?;
    let stream = context.stream()?;
    let image = if optimized { context.assemble(text) } else { context.assemble_unoptimized(text) };
    let module = context.module(&image?)?;
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

/// A value that is not the same on both.
struct Difference<'p> {
    thread: usize,
    what: &'p str,
    chip: u64,
    emulated: u64,
}

fn differences<'p>(program: &'p Program, chip: &[u8], emulated: &[u8]) -> Vec<Difference<'p>> {
    let mut found = Vec::new();
    for thread in 0..THREADS {
        for shown in &program.results {
            let start = thread * program.bytes + shown.at;
            let [chip, emulated] = [chip, emulated].map(|out| word(&out[start..start + shown.width]));
            if shown.form.canonical(chip) != shown.form.canonical(emulated) {
                found.push(Difference { thread, what: &shown.what, chip, emulated });
            }
        }
    }
    found
}

/// One module on both.
struct Comparison<'t> {
    kind: Kind,
    seed: u64,
    tables: &'t [Arc<DriverTable>; 2],
    input: Vec<u8>,
}

impl Comparison<'_> {
    fn run(&self) -> Outcome<Tally> {
        let (text, programs) = module(self.seed, self.kind, EACH);
        let chip = |optimized| run(&self.tables[0], &text, &programs, &self.input, optimized);
        let (optimized, emulated) = (chip(true)?, run(&self.tables[1], &text, &programs, &self.input, true)?);
        let mut tally = Tally { programs: programs.len(), ..Tally::default() };
        let mut unoptimized = None;
        for (index, program) in programs.iter().enumerate() {
            tally.values += (program.results.len() * THREADS) as u64;
            let found = differences(program, &optimized[index], &emulated[index]);
            let Some(first) = found.first() else { continue };
            tally.different += found.len() as u64;
            tally.programs_different += 1;
            let plain = match &unoptimized {
                Some(plain) => plain,
                None => unoptimized.insert(chip(false)?),
            };
            let still = !differences(program, &plain[index], &emulated[index]).is_empty();
            tally.unoptimized += usize::from(still);
            let line = self.told(index, first, still)?;
            tally.told.push(line);
        }
        Ok(tally)
    }

    /// A program's difference in a line: those that are there without optimisation, too, sort first.
    fn told(&self, index: usize, first: &Difference<'_>, still: bool) -> Outcome<String> {
        let &Difference { thread, what, chip, emulated } = first;
        let how = if still { "differs" } else { "optimised only" };
        let mut line = format!("{}: {how}: {} k{index}: ", self.kind.name(), self.seed);
        let what = operands(what, &registers(&self.input, thread));
        if self.kind.is_single() {
            let _ = write!(line, "{what} gives {chip:x} on the chip, {emulated:x} emulated");
            return Ok(line);
        }
        let (text, program) = traced(self.seed, self.kind, index);
        let programs = std::slice::from_ref(&program);
        let logs = [0, 1].map(|table| run(&self.tables[table], &text, programs, &self.input, !still));
        let [chip_log, emulated_log] = logs;
        match first_difference(&program, [&chip_log?[0], &emulated_log?[0]], &self.input) {
            Some(step) => line.push_str(&step),
            None => {
                let register = first.what;
                let _ =
                    write!(line, "thread {thread}: {register} is {chip:x} on the chip, {emulated:x} emulated; not when traced");
            }
        }
        Ok(line)
    }
}

/// Compares `count` integer programs and a quarter as many of each other kind; the report and whether all agree.
pub(crate) fn agree(tables: &[Arc<DriverTable>; 2], count: usize, seed: u64, report: &mut String) -> Outcome<bool> {
    let _ = writeln!(
        report,
        "{:<30} {:>9} {:>8} {:>12} | {:>10} {:>10} | {:>13}",
        "random PTX", "programs", "threads", "values", "different", "programs", "not optimised"
    );
    let mut all = true;
    let mut told = Vec::new();
    for kind in Kind::ALL {
        // Whole programs of integers are the most.
        let modules = if kind == Kind::Integer { count } else { count / 4 }.div_ceil(EACH);
        let mut stream = Stream::new(seed ^ kind as u64);
        let seeds: Vec<u64> = (0..modules).map(|_| stream.bits()).collect();
        let Tally { programs, values, different, programs_different, unoptimized, told: mut lines } =
            compared(&seeds, |seed| Comparison { kind, seed, tables, input: inputs(seed ^ 0xABCD) }.run())?;
        let _ = writeln!(
            report,
            "{:<30} {programs:>9} {THREADS:>8} {values:>12} | {different:>10} {programs_different:>10} | {unoptimized:>13}",
            kind.name()
        );
        all &= unoptimized == 0;
        lines.sort();
        let more = lines.len().saturating_sub(TOLD);
        lines.truncate(TOLD);
        told.extend(lines);
        if more > 0 {
            told.push(format!("{}: {more} more", kind.name()));
        }
    }
    for line in told {
        let _ = writeln!(report, "{line}");
    }
    Ok(all)
}

/// The sum over all seeds, spread over the host's cores.
fn compared(seeds: &[u64], compare: impl Fn(u64) -> Outcome<Tally> + Sync) -> Outcome<Tally> {
    let (total, next, failed) = (Mutex::new(Tally::default()), AtomicUsize::new(0), Mutex::new(None));
    let workers = std::thread::available_parallelism().map_or(1, usize::from);
    std::thread::scope(|scope| {
        for _ in 0..workers {
            scope.spawn(|| {
                while let Some(&seed) = seeds.get(next.fetch_add(1, Ordering::Relaxed)) {
                    let own = match compare(seed) {
                        Ok(own) => own,
                        Err(error) => {
                            if let Ok(mut failed) = failed.lock() {
                                failed.get_or_insert(format!("seed {seed}: {error}"));
                            }
                            return;
                        }
                    };
                    if let Ok(mut total) = total.lock() {
                        total.programs += own.programs;
                        total.values += own.values;
                        total.different += own.different;
                        total.programs_different += own.programs_different;
                        total.unoptimized += own.unoptimized;
                        total.told.extend(own.told);
                    }
                }
            });
        }
    });
    match failed.into_inner() {
        Ok(None) => total.into_inner().map_err(|_| "a worker stopped".into()),
        Ok(Some(error)) => Err(error.into()),
        Err(_) => Err("a worker stopped".into()),
    }
}
