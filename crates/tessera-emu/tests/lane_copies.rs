//! What a lane copies by `cp.async` is its own until the warp meets: other lanes of the warp may neither use it nor touch what it replaces.

use tessera_emu::{Class, FindingKind, Schedule};

use crate::sanitizers::Case;

const SCHEDULES: [Schedule; 4] = [Schedule::Eager, Schedule::Lazy, Schedule::Random, Schedule::Systematic];
const COPY: &str = "cp.async.ca.shared.global [%at], [%o], 4;\ncp.async.commit_group;\ncp.async.wait_group 0;";
const RACE: (FindingKind, Class) = (FindingKind::Race, Class::Wrong);

/// Runs two lanes. `%at` and `%o` are a lane's own words of shared and global memory, `%y` and `%k` those of the other one.
fn found(schedule: Schedule, body: &str) -> Vec<(FindingKind, Class)> {
    let start = "st.shared.u32 [%at], %t;\nxor.b32 %x, %t, 1;\nmad.lo.u32 %y, %x, 4, %base;\nmul.wide.u32 %k, %x, 4;\n\
                 add.u64 %k, %k, %g;\nbar.sync 0;";
    let mut found = Case::new().found(schedule, (1, 2), &format!("{start}\n{body}"));
    found.dedup();
    found
}

#[test]
fn lanes_meet_between_a_copy_and_the_others_accesses() {
    let pairs = [
        ("", COPY, "ld.shared.u32 %v, [%y];"),
        ("", "ld.shared.u32 %v, [%y];", COPY),
        ("", "st.shared.u32 [%y], 5;", COPY),
        ("", COPY, "st.shared.u32 [%y], 5;"),
        // Where a copy comes from.
        ("", "st.global.u32 [%k], 5;", COPY),
        ("", COPY, "st.global.u32 [%k], 5;"),
        // A copy over another one.
        ("mov.u64 %o, %g;", COPY, "cp.async.ca.shared.global [%y], [%o+64], 4;\ncp.async.wait_all;"),
    ];
    for schedule in SCHEDULES {
        for (before, first, second) in pairs {
            let body = |between: &str| format!("st.global.u32 [%o+64], %t;\nbar.sync 0;\n{before}\n{first}\n{between}\n{second}");
            assert_eq!(found(schedule, &body("")), [RACE], "{schedule:?}: {}", body(""));
            for meet in ["bar.warp.sync -1;", "bar.sync 0;"] {
                assert_eq!(found(schedule, &body(meet)), [], "{schedule:?}: {}", body(meet));
            }
        }
    }
}

#[test]
fn a_lane_needs_nobody_for_its_own_words() {
    for schedule in SCHEDULES {
        let own = format!(
            "ld.shared.u32 %v, [%at];\n{COPY}\nld.shared.u32 %v, [%at];\nst.shared.u32 [%at], 5;\nst.global.u32 [%o], 5;"
        );
        assert_eq!(found(schedule, &format!("{own}\n{COPY}\nld.shared.u32 %v, [%at];")), [], "{schedule:?}");
        // It waits for its own copies, not the others'.
        let others = "setp.eq.u32 %p, %t, 0;\n@%p cp.async.ca.shared.global [%at], [%o], 4;\n@%p cp.async.commit_group;\n\
                      @!%p cp.async.wait_group 0;\nbar.warp.sync -1;\n@%p ld.shared.u32 %v, [%at];";
        assert_eq!(found(schedule, others), [RACE], "{schedule:?}");
    }
}

#[test]
fn an_mbarrier_hands_copies_to_other_lanes() {
    let body = |wait: &str| {
        format!(
            "setp.eq.u32 %p, %t, 0;\n@%p mbarrier.init.shared::cta.b64 [%base+1024], 2;\nbar.sync 0;\n\
             cp.async.ca.shared.global [%at], [%o], 4;\ncp.async.mbarrier.arrive.noinc.shared::cta.b64 [%base+1024];\n\
             {wait}\nld.shared.u32 %v, [%y];"
        )
    };
    let wait = "WAIT:\nmbarrier.try_wait.parity.shared::cta.b64 %q, [%base+1024], 0;\n@!%q bra WAIT;";
    for schedule in SCHEDULES {
        assert_eq!(found(schedule, &body(wait)), [], "{schedule:?}");
        // A lane that waits once more takes nothing back.
        assert_eq!(found(schedule, &body(&format!("{wait}\ncp.async.wait_all;"))), [], "{schedule:?}");
        assert_eq!(found(schedule, &body("")), [RACE], "{schedule:?}");
    }
}
