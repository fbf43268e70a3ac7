//! Groups of lanes: what lanes exchange where each names its own group, and where a group's lanes stand at different places of
//! the text, as an H200 does it.

use tessera_driver::{Dim3, Params};
use tessera_emu::{EmuError, EmuOptions, Emulator, FindingKind, LaunchOptions, Sanitize, Schedule};

/// Runs a body on one warp: `%t` is the lane, `%x` its result.
fn run(body: &str, schedule: Schedule, seed: u64) -> Result<Vec<u32>, EmuError> {
    let text = format!(
        ".version 8.0
.target sm_90a
.address_size 64
.visible .entry k(.param .u64 out)
{{
    .reg .pred %p, %q, %w;
    .reg .b32 %t, %x, %y, %v, %m, %i, %r<8>;
    .reg .b64 %o;
    ld.param.u64 %o, [out];
    mov.u32 %t, %tid.x;
    mad.wide.u32 %o, %t, 4, %o;
    mov.u32 %x, 0;
{body}
    st.global.u32 [%o], %x;
    ret;
}}"
    );
    let emulator = Emulator::new(&EmuOptions::default()).unwrap();
    let module = emulator.load(&text).unwrap_or_else(|error| panic!("{error}\n{text}"));
    let out = emulator.alloc(128).unwrap();
    let options = LaunchOptions { schedule, seed, sanitize: Sanitize::ALL, ..LaunchOptions::default() };
    let report = emulator.launch(&module, "k", Dim3::ONE, Dim3::from(32), &Params::new().pointer(out), &options)?;
    assert_eq!(report.findings, [], "{body}");
    let mut bytes = [0; 128];
    emulator.read(out, &mut bytes).unwrap();
    Ok(bytes.chunks_exact(4).map(|word| u32::from_le_bytes(word.try_into().unwrap())).collect())
}

fn agrees(body: &str, wanted: impl Fn(u32) -> u32) {
    let schedules =
        [(Schedule::Eager, 0), (Schedule::Lazy, 0), (Schedule::Random, 1), (Schedule::Random, 2), (Schedule::Random, 3)];
    for (schedule, seed) in schedules {
        let got = run(body, schedule, seed).unwrap_or_else(|error| panic!("{error}\n{body}"));
        assert_eq!(got, (0..32).map(&wanted).collect::<Vec<_>>(), "{schedule:?} {seed}: {body}");
    }
}

/// The mask of a tile of `size` lanes in `%m`.
fn tile(size: u32) -> String {
    let mask = if size == 32 { u32::MAX } else { (1 << size) - 1 };
    format!("and.b32 %y, %t, {};\n mov.u32 %m, {mask:#x};\n shl.b32 %m, %m, %y;\n", 32 - size)
}

#[test]
fn tiles_of_a_converged_warp() {
    for size in [2, 4, 8, 16] {
        let first = move |lane: u32| lane / size * size;
        let sum = move |lane: u32| (first(lane)..first(lane) + size).sum::<u32>();
        let head = tile(size);
        agrees(&format!("{head} redux.sync.add.u32 %x, %t, %m;"), sum);
        // A reduction by shuffles within the tile.
        let clamp = (32 - size) << 8 | 31;
        let mut steps = format!("{head} mov.u32 %x, %t;\n");
        let mut distance = size / 2;
        while distance > 0 {
            steps += &format!("shfl.sync.bfly.b32 %v, %x, {distance}, {clamp}, %m;\n add.u32 %x, %x, %v;\n");
            distance /= 2;
        }
        agrees(&steps, sum);
        agrees(&format!("{head} setp.gt.u32 %p, %t, 12;\n vote.sync.ballot.b32 %x, %p, %m;"), move |lane| {
            (first(lane)..first(lane) + size).filter(|&lane| lane > 12).fold(0, |mask, lane| mask | 1 << lane)
        });
        agrees(
            &format!("{head} setp.gt.u32 %p, %t, 12;\n vote.sync.all.pred %q, %p, %m;\n selp.u32 %x, 1, 0, %q;"),
            move |lane| u32::from(first(lane) > 12),
        );
        agrees(&format!("{head} shr.u32 %v, %t, 1;\n match.any.sync.b32 %x, %v, %m;"), |lane| 3 << (lane & !1));
        agrees(&format!("{head} elect.sync %x|%p, %m;\n @%p add.u32 %x, %x, 100;"), move |lane| {
            first(lane) + if lane == first(lane) { 100 } else { 0 }
        });
    }
    // Tiles whose loops are of different lengths stay apart while they go round.
    let body = format!(
        "{} shr.u32 %i, %t, 3;\nround:\n redux.sync.add.u32 %v, %t, %m;\n add.u32 %x, %x, %v;\n bar.warp.sync %m;\n \
         setp.eq.u32 %p, %i, 0;\n @%p bra done;\n sub.u32 %i, %i, 1;\n bra round;\ndone:",
        tile(8)
    );
    agrees(&body, |lane| (lane / 8 * 64 + 28) * (lane / 8 + 1));
}

#[test]
fn groups_across_branches() {
    // Lanes below 16 and the others exchange from two places.
    let both =
        |first: &str, second: &str| format!("setp.lt.u32 %p, %t, 16;\n @%p bra one;\n{second}\n bra met;\none:\n{first}\nmet:");
    let shuffle = both(
        "add.u32 %v, %t, 1000;\n shfl.sync.bfly.b32 %x, %v, 16, 31, -1;\n add.u32 %x, %x, 1;",
        "add.u32 %r0, %t, 2000;\n shl.b32 %r0, %r0, 1;\n shfl.sync.bfly.b32 %x, %r0, 16, 31, -1;",
    );
    agrees(&shuffle, |lane| if lane < 16 { 2 * (2000 + lane + 16) + 1 } else { 1000 + lane - 16 });
    let ballot = both(
        "and.b32 %v, %t, 1;\n setp.eq.u32 %q, %v, 1;\n vote.sync.ballot.b32 %x, %q, -1;",
        "and.b32 %v, %t, 2;\n setp.eq.u32 %w, %v, 2;\n vote.sync.ballot.b32 %x, %w, -1;",
    );
    agrees(&ballot, |_| 0xcccc_aaaa);
    let sum = both("redux.sync.add.u32 %x, %t, -1;", "shl.b32 %v, %t, 1;\n redux.sync.add.u32 %x, %v, -1;");
    agrees(&sum, |_| (0..16).sum::<u32>() + (16..32).map(|lane| 2 * lane).sum::<u32>());
    agrees(
        &both("mov.u32 %x, 5;\n bar.warp.sync -1;", "bar.warp.sync -1;\n mov.u32 %x, 6;"),
        |lane| if lane < 16 { 5 } else { 6 },
    );
    // One tile in each branch: nobody waits for the other.
    let tiles = format!("{}{}", tile(16), both("redux.sync.add.u32 %x, %t, %m;", "redux.sync.max.u32 %x, %t, %m;"));
    agrees(&tiles, |lane| if lane < 16 { 120 } else { 31 });
    // Different forms never meet, and neither do barriers of the block (an H200 hangs there).
    let stuck = |first: &str, second: &str| match run(&both(first, second), Schedule::Eager, 0) {
        Err(EmuError::Fault { finding, .. }) => finding.kind,
        other => panic!("{other:?}"),
    };
    let apart = stuck("vote.sync.ballot.b32 %x, %p, -1;", "shfl.sync.bfly.b32 %x, %t, 16, 31, -1;");
    assert_eq!(apart, FindingKind::Deadlock);
    assert_eq!(stuck("bar.sync 0;", "bar.sync 0;\n mov.u32 %x, 1;"), FindingKind::DivergentBarrier);
}
