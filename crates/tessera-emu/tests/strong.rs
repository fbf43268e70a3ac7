//! Strong accesses and read-modify-writes are no race where each sees the other as one step: where both scopes reach the other's thread
//! and both touch the same bytes.

use tessera_driver::Dim3;
use tessera_emu::{Class, EmuError, FindingKind, LaunchOptions, Schedule};

use crate::sanitizers::Case;

const SCHEDULES: [Schedule; 4] = [Schedule::Eager, Schedule::Lazy, Schedule::Random, Schedule::Systematic];
const WRONG: [(FindingKind, Class); 1] = [(FindingKind::Race, Class::Wrong)];
const FORMAL: [(FindingKind, Class); 1] = [(FindingKind::Race, Class::Formal)];

fn check(shape: (u32, u32), body: &str, wanted: &[(FindingKind, Class)]) {
    for schedule in SCHEDULES {
        let mut found = Case::new().found(schedule, shape, body);
        // Orders of atomics that give other results are another matter.
        found.retain(|(kind, _)| *kind != FindingKind::Nondeterministic);
        found.sort_by_key(|(_, class)| std::cmp::Reverse(*class));
        found.dedup();
        assert_eq!(found, wanted, "{schedule:?}: {body}");
    }
}

#[test]
fn the_scope_of_both_reaches_the_other_thread() {
    let add = |scope: &str| format!("red.relaxed{scope}.global.add.u32 [%g], 1;");
    for scope in ["", ".gpu", ".sys"] {
        check((2, 1), &add(scope).replace("relaxed.global", "global"), &[]);
    }
    check((2, 1), &add(".cta"), &WRONG);
    check((2, 1), "atom.relaxed.cta.global.exch.b32 %x, [%g], %b;", &WRONG);
    // One of the two is enough.
    let either = |first: &str, second: &str| format!("setp.eq.u32 %p, %b, 0;\n@%p {}\n@!%p {}", add(first), add(second));
    check((2, 1), &either(".cta", ".gpu"), &WRONG);
    check((2, 1), &either(".gpu", ".cta"), &WRONG);
    check((2, 1), &either(".gpu", ".sys"), &[]);
    // Threads of one block, and words of a block's own.
    check((1, 64), &add(".cta"), &[]);
    check((2, 32), "mul.wide.u32 %k, %b, 4;\nadd.u64 %k, %k, %g;\nred.relaxed.cta.global.add.u32 [%k], 1;", &[]);
    // Stores: as other races, formal where all write one value.
    check((2, 1), "st.relaxed.cta.global.u32 [%g], %b;", &WRONG);
    check((2, 1), "st.relaxed.cta.global.u32 [%g], 7;", &FORMAL);
    check((2, 1), "st.relaxed.gpu.global.u32 [%g], %b;", &[]);
    check((2, 1), "st.volatile.global.u32 [%g], %b;", &[]);
}

#[test]
fn a_wider_access_does_not_hide_a_narrower_one() {
    let body = "setp.eq.u32 %p, %b, 0;\n@%p red.relaxed.cta.global.add.u32 [%g], 1;\nred.relaxed.gpu.global.add.u32 [%g], 1;";
    check((2, 1), body, &WRONG);
}

#[test]
fn the_scope_of_a_cluster_reaches_its_blocks() {
    let run = |grid: u32, scope: &str, space: &str| {
        let far =
            "mapa.shared::cluster.u32 %at, %base, 0;\nst.shared.u32 [%base], 0;\nbarrier.cluster.arrive;\nbarrier.cluster.wait;";
        let at = if space == "global" { "%g" } else { "%at" };
        let body =
            format!("{far}\nred.relaxed.{scope}.{space}.add.u32 [{at}], 1;\nbarrier.cluster.arrive;\nbarrier.cluster.wait;");
        let options = LaunchOptions { cluster: Some(Dim3::from(2)), ..Case::options() };
        let findings = match Case::new().run_with(&body, grid, 1, &options) {
            Ok(report) => report.findings,
            Err(EmuError::Fault { report, .. }) => report.findings,
            Err(error) => panic!("{error}"),
        };
        findings.iter().map(|finding| finding.message.clone()).collect::<Vec<_>>()
    };
    for space in ["global", "shared::cluster"] {
        assert_eq!(run(2, "cluster", space), [""; 0], "{space}");
        let found = run(2, "cta", space);
        assert!(found.len() == 1 && found[0].contains("the scope `.cta` does not reach the other's thread"), "{found:?}");
    }
    assert_eq!(run(4, "gpu", "global"), [""; 0]);
    let found = run(4, "cluster", "global");
    assert!(found.len() == 1 && found[0].contains("the scope `.cluster` does not reach"), "{found:?}");
}

#[test]
fn both_touch_the_same_bytes() {
    let two = |first: &str, second: &str| format!("setp.eq.u32 %p, %t, 0;\n@%p {first}\n@!%p {second}");
    let (narrow, wide) = ("red.relaxed.gpu.global.add.u32 [%g], 1;", "red.relaxed.gpu.global.add.u64 [%g], 1;");
    check((1, 2), &two(narrow, wide), &FORMAL);
    check((1, 2), &two(narrow, "ld.relaxed.gpu.global.u64 %k, [%g];"), &FORMAL);
    check((1, 2), &two(narrow, narrow), &[]);
    check((1, 2), &two(wide, "ld.relaxed.gpu.global.u64 %k, [%g];"), &[]);
    // A vector's elements are accesses of their own, and so are packed ones.
    check((1, 2), &two(narrow, "ld.relaxed.gpu.global.v2.u32 {%x, %y}, [%g];"), &[]);
    check((1, 2), &two(wide, "ld.relaxed.gpu.global.v2.u32 {%x, %y}, [%g];"), &FORMAL);
    // Not in the same order, but after it.
    check((1, 64), &format!("setp.eq.u32 %p, %t, 0;\nsetp.eq.u32 %q, %t, 32;\n@%p {narrow}\nbar.sync 0;\n@%q {wide}"), &[]);
}

/// A launch comes after the one before it, whatever the scopes.
#[test]
fn launches_follow_one_another() {
    let case = Case::new();
    let body = "red.relaxed.cta.global.add.u32 [%g], 1;";
    for _ in 0..2 {
        assert_eq!(case.run_with(body, 1, 32, &Case::options()).unwrap().findings, []);
    }
}
