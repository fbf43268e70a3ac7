//! Every kernel of the library assembles for the targets that have recipes, as their plans say, with no spills, and no products of warpgroups that
//! wait for each other.
//!
//! The suites ask for some hundreds of compilations. A run of the tests takes one of each kernel in each precision, that of the
//! largest problem, and spreads the precisions over the targets; with `TESSERA_TEST_ALL` set (as `cargo xtask nightly` does) it takes
//! all of them on every target.

use std::collections::BTreeMap;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Instant;

use tessera_compile::ptx::{Assembler, Optimize};
use tessera_compile::{OptLevel, compile_for};
use tessera_types::Arch;

use crate::devices::{TARGETS, assembler, assembly_fault};
use crate::library::{self, Case};

/// What is wrong with a kernel on a target.
fn fault(case: &Case, arch: Arch, assembler: &Assembler) -> Option<String> {
    let made = match compile_for(&case.compiled(), arch, OptLevel::default()) {
        Ok(made) => made,
        Err(found) => return Some(found[0].message.clone()),
    };
    // What costs something would be as slow as it is quiet: a kernel without its roles takes three times as long.
    let given_up = made.remark().map(|remark| remark.message);
    given_up.or_else(|| assembly_fault(&made.kernel, assembler, Optimize::Full))
}

/// What a short run takes: of each kernel in each precision the largest problem, and of its targets every third, for the next precision
/// from the next one on. So each precision is taken on some target, and each kernel on every one.
fn share() -> Vec<(Case, Arch)> {
    let mut kernels: BTreeMap<_, BTreeMap<_, BTreeMap<Arch, Case>>> = BTreeMap::new();
    for arch in TARGETS {
        for case in library::cases(arch) {
            kernels.entry((case.operator, case.kernel)).or_default().entry(case.policy).or_default().insert(arch, case);
        }
    }
    let mut taken = Vec::new();
    for precisions in kernels.into_values() {
        let count = precisions.len();
        for (number, targets) in precisions.into_values().enumerate() {
            let turns = count.min(targets.len());
            taken.extend(targets.into_iter().map(|(arch, case)| (case, arch)).skip(number % turns).step_by(turns));
        }
    }
    taken
}

/// Kernels that spill, in a precision or, where none is named, in any: not mended yet, and told by name when the test runs.
const OPEN: [(&str, &str, &str); 8] = [
    ("top_k", "select", ""),
    ("top_k", "select_again", ""),
    ("add_layer_norm", "add_layer_norm", "fp16"),
    ("attention_backward", "of_keys", "fp64"),
    ("attention_backward", "of_queries", "fp64"),
    ("attention_backward", "of_keys", "fp32"),
    ("attention_backward", "of_rows", "fp32"),
    ("attention_lse", "attention_lse", "fp64"),
];

fn is_open(case: &Case) -> bool {
    let is_it = |(operator, kernel, policy): &(&str, &str, &str)| {
        (*operator, *kernel) == (case.operator, case.kernel) && (policy.is_empty() || *policy == case.policy)
    };
    OPEN.iter().any(is_it)
}

#[test]
fn library_kernels_assemble_without_spills() {
    let Some(assembler) = assembler() else { return };
    let all = || TARGETS.into_iter().flat_map(|arch| library::cases(arch).into_iter().map(move |case| (case, arch))).collect();
    let work: Vec<(Case, Arch)> = if std::env::var_os("TESSERA_TEST_ALL").is_some() { all() } else { share() };
    for arch in TARGETS {
        let count = work.iter().filter(|(_, own)| *own == arch).count();
        assert!(count >= 40, "only {count} kernels on {arch}");
    }
    let (next, faults) = (AtomicUsize::new(0), Mutex::new(Vec::new()));
    let start = Instant::now();
    std::thread::scope(|scope| {
        for _ in 0..std::thread::available_parallelism().map_or(2, usize::from) {
            scope.spawn(|| {
                while let Some((case, arch)) = work.get(next.fetch_add(1, Ordering::Relaxed)) {
                    if let Some(fault) = fault(case, *arch, &assembler) {
                        if is_open(case) {
                            println!("open: {arch} {}: {fault}", case.name);
                            continue;
                        }
                        faults.lock().expect("no thread panicked").push(format!("{arch} {}: {fault}", case.name));
                    }
                }
            });
        }
    });
    let mut faults = faults.into_inner().expect("no thread panicked");
    println!("{} assemblies in {:?}", work.len(), start.elapsed());
    faults.sort();
    assert!(faults.is_empty(), "{} of {} assemblies:\n{}", faults.len(), work.len(), faults.join("\n"));
}
