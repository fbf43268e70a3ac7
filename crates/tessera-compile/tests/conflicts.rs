//! Bank conflicts of the library's kernels: none in loops, at most two-way elsewhere and next to nothing of all.

#![allow(unsafe_code, reason = "the executor takes raw memory; every call owns what it passes")]

#[allow(dead_code, reason = "each test file uses a part")]
mod devices;
#[allow(dead_code, reason = "each test file uses a part")]
mod library;

use std::collections::BTreeMap;
use std::fmt::Write;

use devices::lowered;
use library::Case;
use tessera_compile::target::shared_accesses;
use tessera_types::Arch;

/// How often a loop's body is taken to run, when the accesses in it are weighed against those outside.
const ROUNDS: u64 = 32;

/// The worst conflict in loops of kernels whose products take the generic road, through exchanges that the lowering lays out by itself: factors
/// of 8 bits without warpgroups, and single precision that is not staged. `None` where none is allowed.
fn known_degree(case: &Case, arch: Arch) -> Option<u32> {
    match (case.operator, arch) {
        ("attention", _) if case.policy == "fp32" => Some(32),
        ("gemm", Arch::Sm80) if case.policy.starts_with("fp8") => Some(32),
        ("gemm", Arch::Sm80) if case.policy.starts_with("int8") => Some(4),
        _ => None,
    }
}

/// What is wrong with a kernel's accesses on a target.
fn faults(case: &Case, arch: Arch) -> String {
    let kernel = match lowered(&case.compiled(), arch) {
        Ok(kernel) => kernel,
        Err(error) => return format!("{error}\n"),
    };
    let known = known_degree(case, arch);
    let mut text = String::new();
    let (mut all, mut lost) = (0, 0);
    for access in shared_accesses(&kernel.kernel) {
        let weight = ROUNDS.pow(access.loops) * u64::from(access.instructions);
        all += weight * u64::from(access.wavefronts);
        lost += weight * u64::from(access.wavefronts - access.ideal);
        let most = known.unwrap_or(if access.loops > 0 { 1 } else { 2 });
        if access.degree.is_none_or(|degree| degree > most) {
            let _ = writeln!(
                text,
                "  degree {:?} of {} {} in {} loops at {:?}",
                access.degree, access.instructions, access.operation, access.loops, access.place
            );
        }
    }
    if known.is_none() && lost * 100 > all {
        let _ = writeln!(text, "  {lost} of {all} wavefronts are conflicts");
    }
    text
}

#[test]
fn library_kernels_have_no_conflicts_in_loops() {
    let mut text = String::new();
    for arch in [Arch::Sm80, Arch::Sm90a] {
        let mut largest: BTreeMap<(&str, &str, &str), Case> = BTreeMap::new();
        for case in library::cases(arch) {
            largest.insert((case.operator, case.kernel, case.policy), case);
        }
        for case in largest.values() {
            let found = faults(case, arch);
            if !found.is_empty() {
                let _ = writeln!(text, "{} on {arch}\n{found}", case.name);
            }
        }
    }
    assert!(text.is_empty(), "{text}");
}
