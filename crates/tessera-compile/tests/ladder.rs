//! Kernels that ask for more registers or shared memory than a target has: each compiles, gives on the emulator what the CPU executor gives, and
//! assembles, by whichever way out it takes (`tests/large/`).
//!
//! A run of the tests takes a share of the kernels and targets, and always one that lacks memory most; with `TESSERA_TEST_ALL` set (as `cargo
//! xtask nightly` does) it takes all of them. `TESSERA_LARGE` names some by a part of their name, `TESSERA_TARGETS` some of the targets.

use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Instant;

use tessera_compile::ptx::{Assembler, Optimize, Target};
use tessera_compile::{DeviceCompiled, OptLevel, compile_for};
use tessera_types::Arch;

use crate::devices::{Data, Launch, assembler, near, on_cpu, run};
use crate::programs::{self, Program};

const ARCHS: [Arch; 4] = [Arch::Sm75, Arch::Sm80, Arch::Sm90a, Arch::Sm100a];

/// Taken in every run, by the start of the name: a factor alone is as large as a block's shared memory; so is what a reduction exchanges.
const ALWAYS: [(&str, Arch); 2] = [("products.py:224 ", Arch::Sm75), ("rows.py:222 ", Arch::Sm80)];

fn compiled(program: &Program, arch: Arch) -> Result<DeviceCompiled, String> {
    let compiled = program.compiled().map_err(|found| program.shown(&found))?;
    compile_for(&compiled, arch, OptLevel::O3).map_err(|found| program.shown(&found))
}

/// What a kernel writes on the CPU, once it has run there.
type OnCpu = Mutex<Option<Vec<Data>>>;

/// What became of a kernel on a target, or what is wrong with it.
fn outcome(
    (program, data, cpu): (&Program, &[Data], &OnCpu),
    arch: Arch,
    assembler: Option<&Assembler>,
) -> Result<String, String> {
    let start = Instant::now();
    let schedule = program.compiled().map_err(|found| program.shown(&found))?;
    let device = compiled(program, arch)?;
    let time = start.elapsed();
    let taken = &device.attempts[device.taken];
    let launch = Launch { compiled: &schedule, grid: program.grid };
    let wanted = {
        let mut known = cpu.lock().expect("no thread panicked");
        if known.is_none() {
            let mut run = data.to_vec();
            on_cpu(&launch, &mut run)?;
            *known = Some(run);
        }
        known.clone().expect("it has run")
    };
    let mut emulated = data.to_vec();
    run(&device.kernel, program.grid, &mut emulated).map_err(|error| error.lines().take(6).collect::<Vec<_>>().join("\n"))?;
    for (position, (a, b)) in wanted.iter().zip(&emulated).enumerate() {
        near(a, b, program.near, 1.0).map_err(|difference| format!("argument {position}: {difference}"))?;
    }
    let (recipe, cost) = (taken.recipe.unwrap_or("generic"), taken.cost().unwrap_or(0));
    let spills = match (assembler, Target::parse(arch.name())) {
        (Some(assembler), Some(target)) => {
            let assembly = assembler.assemble(&device.kernel.ptx(), target, Optimize::Full).map_err(|error| error.to_string())?;
            format!(", spills {}", assembly.report.spilled_bytes())
        }
        _ => String::new(),
    };
    let tries = device.attempts.len();
    Ok(format!("{} ({recipe}, cost {cost}{spills}, {tries} tries, {time:.0?}, {:.1?})", taken.partition.text(), start.elapsed()))
}

#[test]
fn large_tiles_compile_and_are_right() {
    let filter = std::env::var("TESSERA_LARGE").unwrap_or_default();
    let targets = std::env::var("TESSERA_TARGETS").unwrap_or_default();
    let all = std::env::var_os("TESSERA_TEST_ALL").is_some() || !filter.is_empty();
    let programs = programs::in_folder("large", true);
    let always = |program: &Program, arch: Arch| ALWAYS.iter().any(|(name, of)| program.name.starts_with(name) && arch == *of);
    for (name, arch) in ALWAYS {
        assert!(programs.iter().any(|(program, _)| always(program, arch)), "{name} is no program of the folder");
    }
    let cpu: Vec<OnCpu> = programs.iter().map(|_| Mutex::new(None)).collect();
    let assembler = assembler();
    let mut work = Vec::new();
    for (at, (program, _)) in programs.iter().enumerate().filter(|(_, (program, _))| program.name.contains(&filter)) {
        for (number, arch) in ARCHS.into_iter().enumerate() {
            let taken = all || (at + 8 * number) % 32 == 0 || always(program, arch);
            if taken && (targets.is_empty() || targets.contains(arch.name())) {
                work.push((at, program, arch));
            }
        }
    }
    let (next, lines) = (AtomicUsize::new(0), Mutex::new(Vec::new()));
    std::thread::scope(|scope| {
        for _ in 0..std::thread::available_parallelism().map_or(2, usize::from) {
            scope.spawn(|| {
                while let Some(&(at, program, arch)) = work.get(next.fetch_add(1, Ordering::Relaxed)) {
                    let outcome = outcome((program, &programs[at].1, &cpu[at]), arch, assembler.as_ref());
                    let text = match &outcome {
                        Ok(text) => format!("ok   {} {arch}: {text}", program.name),
                        Err(error) => format!("FAIL {} {arch}: {error}", program.name),
                    };
                    println!("{text}");
                    lines.lock().expect("no thread panicked").push((outcome.is_ok(), text));
                }
            });
        }
    });
    let lines = lines.into_inner().expect("no thread panicked");
    let wrong: Vec<&str> = lines.iter().filter(|(right, _)| !right).map(|(_, text)| text.as_str()).collect();
    println!("{} of {} right", lines.len() - wrong.len(), lines.len());
    assert!(wrong.is_empty() && !lines.is_empty(), "{} wrong:\n{}", wrong.len(), wrong.join("\n"));
}
