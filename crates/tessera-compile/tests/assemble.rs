//! Every kernel of the library assembles for the targets that have recipes, with no spills, and no products of warpgroups that
//! wait for each other.
//!
//! The suites ask for some hundreds of compilations. A run of the tests takes one of each kernel in each precision, that of the
//! largest problem; with `TESSERA_TEST_ALL` set (as `cargo xtask nightly` does) it takes all of them.

#![allow(unsafe_code, reason = "the executor takes raw memory; every call owns what it passes")]

#[allow(dead_code, reason = "each test file uses a part")]
mod devices;
#[allow(dead_code, reason = "each test file uses a part")]
mod library;

use std::collections::BTreeMap;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Instant;

use devices::{TARGETS, assembler, assembly_fault, lowered};
use library::Case;
use tessera_compile::ptx::{Assembler, Optimize};
use tessera_types::Arch;

/// Kernels that are known to spill: factors decoded in registers, tiles of both factors transposed, and tiles of 8 bits as long as
/// warpgroups want them where there are none; and behind the loop of single precision, a tile that is added to the result. What is
/// listed here may spill but must assemble.
fn may_spill(case: &Case, arch: Arch) -> bool {
    let decoded = case.policy.starts_with("fp4") || case.policy.starts_with("fp6");
    let eight = case.policy.starts_with("fp8") || case.policy.starts_with("int8");
    match case.operator {
        // Its tiles are those that warpgroups want, too.
        "attention" => arch != Arch::Sm90a,
        "gemm" => {
            let both = case.name.contains(" tt ");
            decoded || (eight && arch != Arch::Sm90a) || both && (arch == Arch::Sm90a || case.policy == "fp32")
        }
        _ => false,
    }
}

/// What is wrong with a kernel on a target.
fn fault(case: &Case, arch: Arch, assembler: &Assembler) -> Option<String> {
    match lowered(&case.compiled(), arch) {
        Ok(kernel) => assembly_fault(&kernel, assembler, Optimize::Full, may_spill(case, arch)),
        Err(error) => Some(error),
    }
}

#[test]
fn library_kernels_assemble_without_spills() {
    let Some(assembler) = assembler() else { return };
    let mut cases = library::cases();
    let all = cases.len();
    if std::env::var_os("TESSERA_TEST_ALL").is_none() {
        let mut largest: BTreeMap<(&str, &str, &str), Case> = BTreeMap::new();
        for case in cases {
            largest.insert((case.operator, case.kernel, case.policy), case);
        }
        cases = largest.into_values().collect();
    }
    assert!(cases.len() >= 40, "only {} kernels", cases.len());
    let work: Vec<(&Case, Arch)> = cases.iter().flat_map(|case| TARGETS.map(|arch| (case, arch))).collect();
    let (next, faults) = (AtomicUsize::new(0), Mutex::new(Vec::new()));
    let start = Instant::now();
    std::thread::scope(|scope| {
        for _ in 0..std::thread::available_parallelism().map_or(2, usize::from) {
            scope.spawn(|| {
                while let Some(&(case, arch)) = work.get(next.fetch_add(1, Ordering::Relaxed)) {
                    if let Some(fault) = fault(case, arch, &assembler) {
                        faults.lock().expect("no thread panicked").push(format!("{arch} {}: {fault}", case.name));
                    }
                }
            });
        }
    });
    let mut faults = faults.into_inner().expect("no thread panicked");
    println!("{} of {all} kernels, {} assemblies in {:?}", cases.len(), work.len(), start.elapsed());
    faults.sort();
    assert!(faults.is_empty(), "{} of {} assemblies:\n{}", faults.len(), work.len(), faults.join("\n"));
}
