//! Every kernel of the library assembles for the targets that have recipes, as their plans say, with no spills, and no products of warpgroups that
//! wait for each other.
//!
//! The suites ask for some hundreds of compilations. A run of the tests takes one of each kernel in each precision, that of the
//! largest problem, and spreads the precisions over the targets; with `TESSERA_TEST_ALL` set (as `cargo xtask nightly` does) it takes
//! all of them on every target.

use std::collections::{BTreeMap, BTreeSet};
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

/// What is not mended yet, and is told by name when the test runs: a kernel of an operator, the precisions and the targets in which it has a fault, and what
/// the fault's text contains. Another fault of theirs is a fault.
type Open = ([&'static str; 2], &'static [&'static str], &'static [Arch], &'static str);

const ALL: &[Arch] = &TARGETS;
const CLUSTERS: &[Arch] = &[Arch::Sm90a, Arch::Sm100a];
/// Registers do not suffice.
const SPILLS: &str = "spills";
/// Rows are read twice for want of registers.
const AGAIN: &str = "is loaded again";

const OPEN: [Open; 6] = [
    (["add_layer_norm_backward", "add_layer_norm_backward_wide"], &["fp32"], &[Arch::Sm100a], SPILLS),
    (["attention_varlen", "attention_varlen_alibi"], &["fp32"], &[Arch::Sm100a], SPILLS),
    (["top_k", "select"], &["bf16", "fp16", "fp32", "fp64"], ALL, SPILLS),
    (["top_k", "select_again"], &["bf16", "fp16", "fp32", "fp64"], ALL, SPILLS),
    (
        ["add_layer_norm", "add_layer_norm"],
        &["bf16", "fp16", "fp32", "fp8_e4m3@accum(fp32)", "fp8_e5m2@accum(fp32)"],
        CLUSTERS,
        SPILLS,
    ),
    (["add_layer_norm", "add_layer_norm"], &["bf16", "fp16", "fp32", "fp64"], CLUSTERS, AGAIN),
];

/// The row that knows a fault.
fn known(case: &Case, arch: Arch, fault: &str) -> Option<usize> {
    OPEN.iter().position(|(names, precisions, targets, text)| {
        let is_it = *names == [case.operator, case.kernel] && precisions.contains(&case.policy);
        is_it && targets.contains(&arch) && fault.contains(text)
    })
}

#[test]
fn library_kernels_assemble_without_spills() {
    let Some(assembler) = assembler() else { return };
    let all = || TARGETS.into_iter().flat_map(|arch| library::cases(arch).into_iter().map(move |case| (case, arch))).collect();
    let everything = std::env::var_os("TESSERA_TEST_ALL").is_some();
    let work: Vec<(Case, Arch)> = if everything { all() } else { share() };
    for arch in TARGETS {
        let count = work.iter().filter(|(_, own)| *own == arch).count();
        assert!(count >= 40, "only {count} kernels on {arch}");
    }
    let (next, faults, met) = (AtomicUsize::new(0), Mutex::new(Vec::new()), Mutex::new(BTreeSet::new()));
    let start = Instant::now();
    std::thread::scope(|scope| {
        for _ in 0..std::thread::available_parallelism().map_or(2, usize::from) {
            scope.spawn(|| {
                while let Some((case, arch)) = work.get(next.fetch_add(1, Ordering::Relaxed)) {
                    if let Some(fault) = fault(case, *arch, &assembler) {
                        if let Some(row) = known(case, *arch, &fault) {
                            println!("open: {arch} {}: {fault}", case.name);
                            met.lock().expect("no thread panicked").insert((row, case.policy, *arch));
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
    // A short run takes a precision on some of the targets.
    let met = met.into_inner().expect("no thread panicked");
    for (at, (names, precisions, targets, text)) in OPEN.iter().enumerate().filter(|_| everything) {
        for (precision, arch) in precisions.iter().flat_map(|precision| targets.iter().map(move |arch| (*precision, *arch))) {
            assert!(
                met.contains(&(at, precision, arch)),
                "{names:?} {precision} on {arch}: `{text}` is mended, and still in the list"
            );
        }
    }
}
