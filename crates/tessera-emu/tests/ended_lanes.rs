//! Barriers of blocks and clusters where some lanes of a warp, or whole warps, have ended: nobody waits for them.

use tessera_driver::{Dim3, Params};
use tessera_emu::{EmuError, EmuOptions, Emulator, FindingKind, LaunchOptions, Sanitize, Schedule};

const WORDS: usize = 256;

/// One cluster of two blocks of 64 threads; `%n` is a thread's number in the cluster, `%o` its word, `%far` that of the same
/// thread of the other block.
fn run(body: &str, schedule: Schedule, sanitize: Sanitize) -> Result<Vec<u32>, EmuError> {
    let text = format!(
        ".version 8.0
.target sm_90a
.address_size 64
.shared .align 4 .b32 box[64];
.visible .entry k(.param .u64 out)
{{
    .reg .pred %p, %q;
    .reg .b32 %x, %t, %n, %at, %other, %far;
    .reg .b64 %o;
    ld.param.u64 %o, [out];
    mov.u32 %t, %tid.x;
    mov.u32 %n, %cluster_ctarank;
    mov.u32 %at, box;
    mad.lo.u32 %at, %t, 4, %at;
    xor.b32 %other, %n, 1;
    mapa.shared::cluster.u32 %far, %at, %other;
    mad.lo.u32 %n, %n, 64, %t;
    mad.wide.u32 %o, %n, 4, %o;
{body}
    st.global.u32 [%o], %x;
    ret;
}}"
    );
    let emulator = Emulator::new(&EmuOptions::default()).unwrap();
    let module = emulator.load(&text).unwrap_or_else(|error| panic!("{error}\n{text}"));
    let out = emulator.alloc(4 * WORDS as u64).unwrap();
    emulator.write(out, &[0; 4 * WORDS]).unwrap();
    let options = LaunchOptions { schedule, seed: 5, sanitize, cluster: Some(Dim3::from(2)), ..LaunchOptions::default() };
    let report = emulator.launch(&module, "k", Dim3::from(2), Dim3::from(64), &Params::new().pointer(out), &options)?;
    assert_eq!(report.findings, [], "{body}");
    let mut bytes = [0; 4 * WORDS];
    emulator.read(out, &mut bytes).unwrap();
    Ok(bytes.chunks_exact(4).map(|word| u32::from_le_bytes(word.try_into().unwrap())).collect())
}

fn agrees(body: &str, wanted: impl Fn(u32) -> u32) {
    for schedule in [Schedule::Eager, Schedule::Lazy, Schedule::Random] {
        for sanitize in [Sanitize::NONE, Sanitize::ALL] {
            let got = run(body, schedule, sanitize).unwrap_or_else(|error| panic!("{schedule:?}\n{error}\n{body}"));
            assert_eq!(got[..128], (0..128).map(&wanted).collect::<Vec<_>>(), "{schedule:?} {body}");
        }
    }
}

#[test]
fn a_block_waits_for_no_lanes_that_ended() {
    for (ends, stays) in [("ge", "lt"), ("lt", "ge")] {
        for (barrier, bound) in [("bar.sync 0;", 40), ("barrier.sync 0;", 40), ("bar.sync 1, 64;", 40), ("bar.sync 0;", 7)] {
            // A guarded exit, and a branch to the end behind which the others come first.
            let quits = [
                format!("setp.{ends}.u32 %p, %t, {bound};\n @%p exit;"),
                format!("setp.{stays}.u32 %p, %t, {bound};\n @%p bra stay;\n ret;\nstay:"),
                format!("setp.{ends}.u32 %p, %t, {bound};\n @%p bra done;"),
            ];
            if barrier.contains("64") && (bound == 7 || ends == "lt") {
                continue;
            }
            for quit in quits {
                let done = if quit.contains("done") { "bra over;\ndone:\n ret;\nover:" } else { "" };
                let body = format!(
                    "{quit}\n st.shared.u32 [%at], %t;\n {barrier}\n ld.shared.u32 %x, [%at];\n {barrier}\n add.u32 %x, %x, 1;\n {done}"
                );
                let lives = |t: u32| if ends == "ge" { t < bound } else { t >= bound };
                agrees(&body, |n| if lives(n % 64) { n % 64 + 1 } else { 0 });
            }
        }
    }
}

#[test]
fn a_cluster_waits_for_no_lanes_that_ended_and_counts_none() {
    // Lanes end before and behind their arrival; the others read what the other block's lanes have left.
    let (arrive, wait) = ("barrier.cluster.arrive;", "barrier.cluster.wait;");
    let write = "st.shared.u32 [%at], %n;";
    let read = format!("ld.shared::cluster.u32 %x, [%far];\n {arrive}\n {wait}");
    let other = |n: u32| if n % 64 < 40 { (n + 64) % 128 } else { 0 };
    for quit in [
        "setp.ge.u32 %p, %t, 40;\n @%p exit;",
        "setp.lt.u32 %p, %t, 40;\n @%p bra stay;\n mov.u32 %x, 0;\nround:\n add.u32 %x, %x, 1;\n setp.lt.u32 %q, %x, 5000;\n \
         @%q bra round;\n ret;\nstay:",
    ] {
        agrees(&format!("{quit}\n {write}\n {arrive}\n {wait}\n {read}"), other);
        agrees(&format!("{write}\n {arrive}\n {quit}\n {wait}\n {read}"), other);
    }
    // A warp arrives and ends long before the last one comes: the others wait for that one all the same.
    let body = format!(
        "setp.lt.u32 %p, %n, 32;\n @%p bra first;\n setp.lt.u32 %p, %n, 96;\n @%p bra come;\n mov.u32 %x, 0;\nround:\n \
         add.u32 %x, %x, 1;\n setp.lt.u32 %q, %x, 5000;\n @%q bra round;\ncome:\n {write}\n {arrive}\n {wait}\n \
         ld.shared.u32 %x, [%at];\n setp.ge.u32 %p, %n, 64;\n @%p bra own;\n ld.shared::cluster.u32 %x, [%far];\nown:\n \
         {arrive}\n {wait}\n bra met;\nfirst:\n {arrive}\n exit;\nmet:"
    );
    agrees(&body, |n| match n {
        0..32 => 0,
        32..64 => n + 64,
        _ => n,
    });
}

#[test]
fn lanes_that_live_and_stay_away_are_waited_for() {
    let body = "setp.ge.u32 %p, %t, 40;\n @%p bra done;\n barrier.sync 0;\n bra done;\ndone:\n bar.sync 1;\n mov.u32 %x, 1;";
    for sanitize in [Sanitize::NONE, Sanitize::ALL] {
        match run(body, Schedule::Eager, sanitize) {
            Err(EmuError::Fault { finding, .. }) => assert_eq!(finding.kind, FindingKind::Deadlock),
            other => panic!("{other:?}"),
        }
    }
}
