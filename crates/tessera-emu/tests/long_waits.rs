//! One lane of a warp waits long for a flag, and then the whole block meets: the others go ahead meanwhile, and all are one warp
//! again at the barrier.

use tessera_driver::{Dim3, Params};
use tessera_emu::{EmuError, EmuOptions, Emulator, FindingKind, LaunchOptions, Sanitize, Schedule};

const SCHEDULES: [Schedule; 3] = [Schedule::Eager, Schedule::Lazy, Schedule::Random];

/// The kinds of what is found, and the array's first word. `%p0` is true but for lane 0 of a block, `%p2` in the second warp.
fn run(body: &str, (grid, block): (u32, u32), options: &LaunchOptions) -> (Vec<FindingKind>, u32) {
    let emulator = Emulator::new(&EmuOptions::default()).unwrap();
    let text = format!(
        ".version 8.4\n.target sm_90a\n.address_size 64\n.visible .entry k(.param .u64 p)\n{{\n\
         .reg .pred %p<4>;\n.reg .b32 %r<8>;\n.reg .b64 %d<4>;\n.shared .align 8 .b64 bar;\n.shared .align 4 .b32 flag;\n\
         ld.param.u64 %d0, [p];\nmov.u32 %r0, %tid.x;\nmov.u32 %r2, %ctaid.x;\nsetp.ne.u32 %p0, %r0, 0;\n\
         setp.ge.u32 %p2, %r0, 32;\n{body}\nret;\n}}\n"
    );
    let module = emulator.load(&text).unwrap_or_else(|error| panic!("{error}"));
    let data = emulator.alloc(256).unwrap();
    emulator.write(data, &[0; 256]).unwrap();
    let args = Params::new().pointer(data);
    let findings = match emulator.launch(&module, "k", Dim3::from(grid), Dim3::from(block), &args, options) {
        Ok(report) => report.findings,
        Err(EmuError::Fault { report, .. }) => report.findings,
        Err(error) => panic!("{error}"),
    };
    let mut word = [0; 4];
    emulator.read(data, &mut word).unwrap();
    (findings.iter().map(|finding| finding.kind).collect(), u32::from_le_bytes(word))
}

fn checked(schedule: Schedule) -> LaunchOptions {
    LaunchOptions { schedule, sanitize: Sanitize::ALL, ..LaunchOptions::default() }
}

/// Lane 0 of the first warp waits until the second warp has counted down and released a flag; then both do `end`.
fn flagged(init: &str, wait: &str, release: &str, end: &str) -> String {
    format!(
        "{init}\nbar.sync 0;\n@%p2 bra SECOND;\n@%p0 bra MEET;\n{wait}\nMEET:\n{end}\nret;\n\
         SECOND:\nmov.u32 %r5, 20000;\nDOWN:\nsub.u32 %r5, %r5, 1;\nsetp.ne.u32 %p1, %r5, 0;\n@%p1 bra DOWN;\n\
         setp.ne.u32 %p3, %r0, 32;\n@%p3 bra DONE;\n{release}\nDONE:\n{end}"
    )
}

#[test]
fn a_long_wait_for_a_flag_ends_at_the_blocks_barrier() {
    let spin = |load: &str| format!("WAIT:\n{load}\nsetp.eq.u32 %p1, %r6, 0;\n@%p1 bra WAIT;");
    let zero = "@!%p0 st.shared.u32 [flag], 0;";
    let flags = [
        ("", spin("ld.acquire.gpu.global.u32 %r6, [%d0];"), "st.release.gpu.global.u32 [%d0], 1;"),
        (zero, spin("ld.acquire.cta.shared.u32 %r6, [flag];"), "st.release.cta.shared.u32 [flag], 1;"),
        ("", spin("atom.acquire.gpu.global.or.b32 %r6, [%d0], 0;"), "atom.release.gpu.global.exch.b32 %r6, [%d0], 1;"),
        (
            "@!%p0 mbarrier.init.shared.b64 [bar], 1;",
            "WAIT:\nmbarrier.test_wait.parity.shared.b64 %p1, [bar], 0;\n@!%p1 bra WAIT;".to_owned(),
            "mbarrier.arrive.shared.b64 %d3, [bar];",
        ),
    ];
    let ends = [
        "bar.sync 0;",
        "bar.sync 0;\nbar.sync 0;\nbar.sync 1, 64;",
        "bar.red.popc.u32 %r6, 0, %p2;\n@!%p0 st.global.u32 [%d0+64], %r6;",
        // One warp arrives and goes on; the other waits for it.
        "@!%p2 bar.arrive 2, 64;\n@%p2 bar.sync 2, 64;",
        "bar.warp.sync -1;\nbarrier.sync 0;",
        // What lanes wait for is counted by each for itself.
        "barrier.cluster.arrive;\nbarrier.cluster.wait;\nbarrier.cluster.arrive;\nbarrier.cluster.wait;",
    ];
    for (init, wait, release) in &flags {
        for (number, end) in ends.iter().enumerate() {
            let body = flagged(init, wait, release, end);
            for schedule in SCHEDULES {
                let (found, _) = run(&body, (1, 64), &checked(schedule));
                assert_eq!(found, [], "{schedule:?}, end {number}: {body}");
            }
        }
    }
}

/// A semaphore: each block's lane 0 waits for the block behind it, then the whole block does its turn.
#[test]
fn blocks_take_turns_by_a_semaphore() {
    let body = "mov.u32 %r1, %nctaid.x;\nsub.u32 %r1, %r1, %r2;\nsub.u32 %r1, %r1, 1;\n@%p0 bra MEET;\nWAIT:\n\
                ld.acquire.gpu.global.u32 %r6, [%d0];\nsetp.ne.u32 %p1, %r6, %r1;\n@%p1 bra WAIT;\nMEET:\nbar.sync 0;\n\
                @%p0 bra DONE;\nadd.u32 %r1, %r1, 1;\nst.release.gpu.global.u32 [%d0], %r1;\nDONE:";
    for schedule in SCHEDULES {
        assert_eq!(run(body, (4, 64), &checked(schedule)), (vec![], 4), "{schedule:?}");
    }
}

/// Lanes that wait at one barrier while the others of their warp are at another one never meet.
#[test]
fn lanes_at_different_barriers_are_told() {
    let body = "@%p2 bra SECOND;\n@%p0 bra MEET;\nWAIT:\nld.acquire.gpu.global.u32 %r6, [%d0];\nsetp.eq.u32 %p1, %r6, 0;\n\
                @%p1 bra WAIT;\nbar.sync 0;\nbra OUT;\nSECOND:\nsetp.eq.u32 %p3, %r0, 32;\n\
                @%p3 st.release.gpu.global.u32 [%d0], 1;\nMEET:\nbar.sync 0;\nOUT:";
    for schedule in SCHEDULES {
        assert_eq!(run(body, (1, 64), &checked(schedule)).0, [FindingKind::DivergentBarrier], "{schedule:?}");
    }
}
