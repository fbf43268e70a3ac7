//! Every kernel of the library assembles for the targets that have recipes, as their plans say, with no spills, and no products of warpgroups that
//! wait for each other.
//!
//! The suites ask for some hundreds of compilations. A run of the tests takes one of each kernel in each precision, that of the
//! largest problem, and spreads the precisions over the targets; with `TESSERA_TEST_ALL` set (as `cargo xtask nightly` does) it takes
//! all of them on every target.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Instant;

use tessera_compile::ptx::{Assembler, Optimize};
use tessera_compile::{OptLevel, compile_for};
use tessera_types::Arch;

use crate::devices::{AssemblyFault, TARGETS, assembler, assembly_fault};
use crate::library::{self, Case};

/// Something that is wrong with a kernel on a target.
#[derive(Clone, Debug)]
enum Fault {
    /// It does not compile.
    Refused(String),
    /// It gives something up. What costs something would be as slow as it is quiet: a kernel without its roles takes three times as long.
    GivenUp(String),
    Assembly(AssemblyFault),
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Fault::Refused(why) | Fault::GivenUp(why) => f.write_str(why),
            Fault::Assembly(fault) => fault.fmt(f),
        }
    }
}

/// All that is wrong with a kernel on a target.
fn faults(case: &Case, arch: Arch, assembler: &Assembler) -> Vec<Fault> {
    let made = match compile_for(&case.compiled(), arch, OptLevel::default()) {
        Ok(made) => made,
        Err(found) => return vec![Fault::Refused(found[0].message.clone())],
    };
    let given_up = made.remark().map(|remark| Fault::GivenUp(remark.message));
    given_up.into_iter().chain(assembly_fault(&made.kernel, assembler, Optimize::Full).map(Fault::Assembly)).collect()
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

/// What is not mended yet, and is told by name when the test runs: a kernel of an operator, the precisions and the targets in which it has a fault, and
/// which. Another fault of theirs is a fault.
type Open = ([&'static str; 2], &'static [&'static str], &'static [Arch], Excused);

/// A fault that is known.
#[derive(Clone, Copy, Debug)]
enum Excused {
    /// Registers do not suffice for so many bytes at most.
    Spills(u32),
    /// Rows are read twice for want of registers.
    ReadsAgain,
}

impl Excused {
    fn covers(self, fault: &Fault) -> bool {
        match (self, fault) {
            (Excused::Spills(most), Fault::Assembly(AssemblyFault::Spills(bytes))) => *bytes <= most,
            (Excused::ReadsAgain, Fault::GivenUp(why)) => why.contains("is loaded again"),
            (Excused::Spills(_) | Excused::ReadsAgain, Fault::Refused(_) | Fault::GivenUp(_) | Fault::Assembly(_)) => false,
        }
    }
}

const ALL: &[Arch] = &TARGETS;
const CLUSTERS: &[Arch] = &[Arch::Sm90a, Arch::Sm100a];

const OPEN: [Open; 22] = [
    // With 16 keys a thread; 12 spill nothing, and take 1.08 to 1.11 times as long.
    (["sort", "move"], &["fp32", "int32"], ALL, Excused::Spills(56)),
    (["csr_to_csc", "move"], &["fp32"], ALL, Excused::Spills(56)),
    // Groups of 65,536 and of 40,960 elements, which would be read twice otherwise.
    (["group_norm", "group_norm"], &["bf16", "fp16"], ALL, Excused::Spills(396)),
    (["group_norm_backward", "group_norm_backward"], &["bf16", "fp16"], ALL, Excused::Spills(428)),
    // A head a warp: with four warps it spills nothing, and takes 1.12 times as long.
    (["qk_norm_rope", "qk_norm_rope"], &["bf16", "fp16"], &[Arch::Sm90a, Arch::Sm100a], Excused::Spills(32)),
    // Rows of 16,384 and two sums of them, or of 8192 in 32 bits and what is added, in 65,536 registers: they would be read twice otherwise.
    (["layer_norm_backward", "layer_norm_backward"], &["bf16", "fp16"], ALL, Excused::Spills(688)),
    (["add_layer_norm_backward", "add_layer_norm_backward"], &["bf16", "fp16", "fp32"], ALL, Excused::Spills(1000)),
    (["add_rms_norm_backward", "add_rms_norm_backward"], &["bf16", "fp16", "fp32"], ALL, Excused::Spills(112)),
    (["rms_norm_backward", "rms_norm_backward"], &["bf16", "fp16"], ALL, Excused::Spills(140)),
    // The logarithm's registers, beside a piece that is on its way.
    (["log_softmax", "log_softmax_pieces"], &["bf16", "fp16"], &[Arch::Sm80], Excused::Spills(64)),
    // Rows of 16,500 that begin between vectors, a block a multiprocessor.
    (["add_rms_norm", "add_rms_norm_alike"], &["bf16", "fp16"], CLUSTERS, Excused::Spills(8)),
    (["layer_norm", "layer_norm_alike"], &["bf16", "fp16"], &[Arch::Sm80], Excused::Spills(8)),
    // A thread has 64 elements of a row that a cluster of sixteen shares.
    (["log_softmax", "log_softmax"], &["bf16", "fp16"], CLUSTERS, Excused::Spills(24)),
    (["top_k", "select"], &["bf16", "fp16", "fp32"], ALL, Excused::Spills(576)),
    (["top_k", "select"], &["fp64"], ALL, Excused::Spills(400)),
    (["top_k", "select_again"], &["bf16", "fp16", "fp32"], ALL, Excused::Spills(576)),
    (["top_k", "select_again"], &["fp64"], ALL, Excused::Spills(168)),
    (["add_layer_norm", "add_layer_norm"], &["fp8_e4m3@accum(fp32)", "fp8_e5m2@accum(fp32)"], CLUSTERS, Excused::Spills(1320)),
    (["add_layer_norm", "add_layer_norm"], &["bf16", "fp16"], CLUSTERS, Excused::Spills(1488)),
    (["add_layer_norm", "add_layer_norm"], &["fp32"], CLUSTERS, Excused::Spills(2964)),
    (["add_layer_norm", "add_layer_norm"], &["fp64"], CLUSTERS, Excused::Spills(11368)),
    (["add_layer_norm", "add_layer_norm"], &["bf16", "fp16", "fp32", "fp64"], CLUSTERS, Excused::ReadsAgain),
];

/// The row that knows a fault.
fn known(case: &Case, arch: Arch, fault: &Fault) -> Option<usize> {
    OPEN.iter().position(|(names, precisions, targets, excused)| {
        let is_it = *names == [case.operator, case.kernel] && precisions.contains(&case.policy);
        is_it && targets.contains(&arch) && excused.covers(fault)
    })
}

#[test]
fn a_known_fault_excuses_no_other() {
    let spills = |bytes| Fault::Assembly(AssemblyFault::Spills(bytes));
    assert!(Excused::Spills(8).covers(&spills(8)) && !Excused::Spills(8).covers(&spills(12)));
    let again = Fault::GivenUp("a row of `x` is loaded again".to_string());
    assert!(Excused::ReadsAgain.covers(&again) && !Excused::Spills(8).covers(&again) && !Excused::ReadsAgain.covers(&spills(8)));
    assert!(!Excused::ReadsAgain.covers(&Fault::Refused("a row of `x` is loaded again".to_string())));
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
    let (next, found, met) = (AtomicUsize::new(0), Mutex::new(Vec::new()), Mutex::new(BTreeSet::new()));
    let start = Instant::now();
    std::thread::scope(|scope| {
        for _ in 0..std::thread::available_parallelism().map_or(2, usize::from) {
            scope.spawn(|| {
                while let Some((case, arch)) = work.get(next.fetch_add(1, Ordering::Relaxed)) {
                    for fault in faults(case, *arch, &assembler) {
                        if let Some(row) = known(case, *arch, &fault) {
                            println!("open: {arch} {}: {fault}", case.name);
                            met.lock().expect("no thread panicked").insert((row, case.policy, *arch));
                            continue;
                        }
                        found.lock().expect("no thread panicked").push(format!("{arch} {}: {fault}", case.name));
                    }
                }
            });
        }
    });
    let mut found = found.into_inner().expect("no thread panicked");
    println!("{} assemblies in {:?}", work.len(), start.elapsed());
    found.sort();
    assert!(found.is_empty(), "{} faults of {} assemblies:\n{}", found.len(), work.len(), found.join("\n"));
    // A short run takes a precision on some of the targets.
    let met = met.into_inner().expect("no thread panicked");
    for (at, (names, precisions, targets, excused)) in OPEN.iter().enumerate().filter(|_| everything) {
        for (precision, arch) in precisions.iter().flat_map(|precision| targets.iter().map(move |arch| (*precision, *arch))) {
            assert!(
                met.contains(&(at, precision, arch)),
                "{names:?} {precision} on {arch}: {excused:?} is mended, and still in the list"
            );
        }
    }
}
