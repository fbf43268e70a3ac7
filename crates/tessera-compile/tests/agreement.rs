//! The language means the same everywhere: every accepted block of the language tests and every test kernel gives on lock-step and
//! on the emulator what it gives on the CPU executor; the test kernels assemble without spills.

use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

use tessera_types::Arch;

use crate::devices::{ARCHS, Data, Launch, assembles_fully, in_lockstep, near, on_cpu, on_emulator};
use crate::programs::{self, Program};

/// Runs one program everywhere; what differs. What stops on the CPU stops everywhere.
fn differences(program: &Program, data: &[Data]) -> Vec<String> {
    let compiled = match program.compiled() {
        Ok(compiled) => compiled,
        Err(found) => return vec![format!("{}: {}", program.name, program.shown(&found))],
    };
    let launch = Launch { compiled: &compiled, grid: program.grid };
    let mut cpu = data.to_vec();
    let fault = on_cpu(&launch, &mut cpu).err();
    let mut list = Vec::new();
    let mut compare = |place: String, outcome: Result<(), String>, other: &[Data]| {
        let unequal = |(position, (a, b)): (usize, (&Data, &Data))| {
            near(a, b, program.near, 1.0).err().map(|difference| format!("argument {position}: {difference}"))
        };
        let wrong = match (outcome, &fault) {
            (Err(_), Some(_)) => None,
            (Err(error), None) => Some(error),
            (Ok(()), Some(fault)) => Some(format!("goes on, but on the CPU: {fault}")),
            (Ok(()), None) => cpu.iter().zip(other).enumerate().find_map(unequal),
        };
        list.extend(wrong.map(|wrong| format!("{} on {place}: {}", program.name, first_lines(&wrong))));
    };
    for arch in ARCHS {
        let mut threads = data.to_vec();
        let outcome = in_lockstep(&launch, arch, &mut threads).map(drop);
        compare(format!("lock-step {arch}"), outcome, &threads);
    }
    for arch in [Arch::Sm80, Arch::Sm90a] {
        let mut emulated = data.to_vec();
        let outcome = on_emulator(&launch, arch, &mut emulated);
        compare(format!("emulated {arch}"), outcome, &emulated);
    }
    list
}

/// Messages carry the whole kernel; a list of them is read better without.
fn first_lines(text: &str) -> String {
    text.lines().take(12).collect::<Vec<_>>().join("\n  ")
}

/// Does something with each program, on all cores.
fn for_each(programs: &[(Program, Vec<Data>)], work: impl Fn(&Program, &[Data]) -> Vec<String> + Sync) -> Vec<String> {
    let (next, found) = (AtomicUsize::new(0), Mutex::new(Vec::new()));
    std::thread::scope(|scope| {
        for _ in 0..std::thread::available_parallelism().map_or(2, usize::from) {
            scope.spawn(|| {
                while let Some((program, data)) = programs.get(next.fetch_add(1, Ordering::Relaxed)) {
                    let wrong = work(program, data);
                    found.lock().expect("no thread panicked").extend(wrong);
                }
            });
        }
    });
    let mut found = found.into_inner().expect("no thread panicked");
    found.sort();
    found
}

fn holds(what: &str, programs: &[(Program, Vec<Data>)], least: usize, work: impl Fn(&Program, &[Data]) -> Vec<String> + Sync) {
    assert!(programs.len() >= least, "only {} programs", programs.len());
    let wrong = for_each(programs, work);
    println!("{} programs {what}, {} differences", programs.len(), wrong.len());
    assert!(wrong.is_empty(), "{} differences:\n{}", wrong.len(), wrong.join("\n"));
}

#[test]
fn the_language_tests_agree_everywhere() {
    holds("of the language tests run", &programs::blocks(), 30, differences);
}

#[test]
fn the_test_kernels_agree_everywhere() {
    holds("of the test kernels run", &programs::kernels(), 40, differences);
}

#[test]
fn the_test_kernels_assemble() {
    holds("of the test kernels assembled", &programs::kernels(), 40, |program, _| match program.compiled() {
        Ok(compiled) => assembles_fully(&compiled).into_iter().map(|fault| format!("{}: {fault}", program.name)).collect(),
        Err(found) => vec![format!("{}: {}", program.name, program.shown(&found))],
    });
}
