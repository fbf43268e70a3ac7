//! Mistakes planted into a kernel that hands values on in every way: by bytes and halves of words, in tiles of a warp, through
//! shared, local and global memory. Each is found under every schedule; what changes nothing that matters is not.

use tessera_driver::{Dim3, Params};
use tessera_emu::{EmuError, EmuOptions, Emulator, FindingKind, LaunchOptions, Sanitize, Schedule};

use FindingKind::{Barrier, Deadlock, DivergentBarrier, Mbarrier, Race, Uninitialized, WarpMask};

/// Two warps. Statements have lines of their own, so that a plant can name them.
const KERNEL: &str = ".version 8.0
.target sm_90a
.address_size 64
.shared .align 16 .b8 box[1024];
.shared .align 8 .b8 bar[8];
.shared .b32 count;
.visible .entry k(.param .u64 in, .param .u64 out)
{
    .local .align 8 .b8 frame[8];
    .reg .pred %p, %q;
    .reg .b16 %lo, %hi;
    .reg .b32 %t, %lane, %at, %other, %near, %m, %a, %x, %y, %z, %v, %n;
    .reg .f32 %d<4>;
    .reg .b64 %i, %o, %w;
    ld.param.u64 %i, [in];
    ld.param.u64 %o, [out];
    mov.u32 %t, %tid.x;
    and.b32 %lane, %t, 31;
    mad.wide.u32 %i, %t, 8, %i;
    mad.wide.u32 %o, %t, 64, %o;
    mov.u32 %x, box;
    mad.lo.u32 %at, %t, 8, %x;
    xor.b32 %y, %t, 32;
    mad.lo.u32 %other, %y, 8, %x;
    xor.b32 %y, %t, 1;
    mad.lo.u32 %near, %y, 8, %x;
    // Two bytes of a word go to the other warp.
    st.shared.u8 [%at], %t;
    st.shared.u8 [%at+1], 7;
    bar.sync 0;
    ld.shared.u32 %a, [%other];
    prmt.b32 %n, %a, %t, 0x4410;
    st.global.u32 [%o], %n;
    bar.sync 0;
    // Tiles of eight lanes.
    and.b32 %y, %lane, 24;
    mov.u32 %m, 0xff;
    shl.b32 %m, %m, %y;
    redux.sync.add.u32 %x, %t, %m;
    shfl.sync.bfly.b32 %v, %x, 4, 0x181f, %m;
    add.u32 %x, %x, %v;
    st.global.u32 [%o+4], %x;
    // Tiles of which one goes another way, and hands on what its lanes have.
    setp.lt.u32 %p, %lane, 8;
    @!%p bra three;
    shfl.sync.down.b32 %x, %t, 1, 31, 0xff;
    setp.eq.u32 %q, %lane, 7;
    @%q mov.u32 %x, 0;
    bra met;
three:
    vote.sync.ballot.b32 %x, %q, 0xffffff00;
    mov.u32 %x, 9;
met:
    bar.warp.sync 0xffffffff;
    st.global.u32 [%o+8], %x;
    // Halves of a register.
    mov.u16 %lo, 0x3c00;
    mov.u16 %hi, 0x4000;
    mov.b32 %a, {%lo, %hi};
    add.rn.f16x2 %a, %a, %a;
    st.global.u32 [%o+12], %a;
    // A register that two sides of a branch write.
    mov.u32 %z, 1;
    @%p mov.u32 %z, 2;
    st.global.u32 [%o+16], %z;
    // The neighbour's word in the own warp.
    st.shared.u32 [%at], %t;
    bar.warp.sync 0xffffffff;
    ld.shared.u32 %x, [%near];
    st.global.u32 [%o+20], %x;
    bar.sync 0;
    // Eight bytes by cp.async.
    cp.async.ca.shared.global [%at], [%i], 8;
    cp.async.commit_group;
    cp.async.wait_group 0;
    bar.sync 0;
    ld.shared.u64 %w, [%other];
    st.global.u64 [%o+24], %w;
    // Whoever is out of range stops the kernel.
    setp.gt.u32 %q, %t, 4000;
    @%q bra fail;
    // A counter.
    setp.eq.u32 %q, %t, 0;
    @%q st.shared.u32 [count], 0;
    bar.sync 0;
    atom.shared.add.u32 %x, [count], 1;
    st.global.u32 [%o+32], %x;
    // A frame.
    st.local.u32 [frame], %t;
    st.local.u32 [frame+4], %lane;
    ld.local.u64 %w, [frame];
    st.global.u64 [%o+40], %w;
    // A product.
    mov.f32 %d0, 0f00000000;
    mov.f32 %d1, 0f00000000;
    mov.f32 %d2, 0f00000000;
    mov.f32 %d3, 0f00000000;
    mov.u32 %v, 0x3c003c00;
    mma.sync.aligned.m16n8k8.row.col.f32.f16.f16.f32 {%d0, %d1, %d2, %d3}, {%a, %v}, {%v}, {%d0, %d1, %d2, %d3};
    st.global.f32 [%o+48], %d1;
    st.global.f32 [%o+52], %d3;
    // An mbarrier.
    @%q mbarrier.init.shared::cta.b64 [bar], 64;
    bar.sync 0;
    st.shared.u32 [%at], %lane;
    mbarrier.arrive.shared::cta.b64 _, [bar];
wait:
    mbarrier.try_wait.parity.shared::cta.b64 %q, [bar], 0;
    @!%q bra wait;
    ld.shared.u32 %x, [%other];
    st.global.u32 [%o+56], %x;
    // What the kernel itself left in global memory.
    st.global.u32 [%o+60], %t;
    ld.global.u32 %x, [%o+60];
    st.global.u32 [%o+36], %x;
    ret;
fail:
    trap;
}
";

/// The kinds of what is found, each once.
fn found(text: &str, schedule: Schedule, seed: u64) -> Vec<FindingKind> {
    let emulator = Emulator::new(&EmuOptions::default()).unwrap();
    let module = emulator.load(text).unwrap_or_else(|error| panic!("{error}\n{text}"));
    let (given, out) = (emulator.alloc(64 * 8).unwrap(), emulator.alloc(64 * 64).unwrap());
    emulator.write(given, &[3; 64 * 8]).unwrap();
    let params = Params::new().pointer(given).pointer(out);
    let options = LaunchOptions { sanitize: Sanitize::ALL, schedule, seed, ..LaunchOptions::default() };
    let findings = match emulator.launch(&module, "k", Dim3::ONE, Dim3::from(64), &params, &options) {
        Ok(report) => report.findings,
        Err(EmuError::Fault { report, .. }) => report.findings,
        Err(error) => panic!("{error}\n{text}"),
    };
    let mut kinds: Vec<FindingKind> = findings.iter().map(|finding| finding.kind).collect();
    kinds.sort();
    kinds.dedup();
    kinds
}

const RUNS: [(Schedule, u64); 5] =
    [(Schedule::Eager, 0), (Schedule::Lazy, 0), (Schedule::Random, 1), (Schedule::Random, 2), (Schedule::Random, 3)];

/// The kernel with the n-th occurrence of a text made another one.
fn planted(from: &str, nth: usize, to: &str) -> String {
    let at = KERNEL.match_indices(from).nth(nth).unwrap_or_else(|| panic!("no `{from}` number {nth}")).0;
    format!("{}{to}{}", &KERNEL[..at], &KERNEL[at + from.len()..])
}

#[test]
fn nothing_is_found_where_nothing_is_planted() {
    for (schedule, seed) in RUNS {
        assert_eq!(found(KERNEL, schedule, seed), [], "{schedule:?} {seed}");
    }
}

#[test]
fn each_mistake_is_found_under_every_schedule() {
    let mistakes: &[(&str, usize, &str, &[FindingKind])] = &[
        // A byte, a half, a register, an element that nobody writes.
        ("st.shared.u8 [%at+1], 7;", 0, "", &[Uninitialized]),
        ("st.shared.u8 [%at+1], 7;", 0, "st.shared.u8 [%at+2], 7;", &[Uninitialized]),
        ("0x4410;", 0, "0x4420;", &[Uninitialized]),
        ("ld.shared.u32 %a, [%other];", 0, "ld.shared.u32 %a, [%other+4];", &[Uninitialized]),
        ("mov.u16 %hi, 0x4000;", 0, "", &[Uninitialized]),
        ("mov.u32 %z, 1;", 0, "@%p mov.u32 %z, 1;", &[Uninitialized]),
        ("mov.f32 %d1, 0f00000000;", 0, "", &[Uninitialized]),
        ("st.local.u32 [frame+4], %lane;", 0, "", &[Uninitialized]),
        ("st.local.u32 [frame+4], %lane;", 0, "st.local.u16 [frame+4], %lane;", &[Uninitialized]),
        ("@%q st.shared.u32 [count], 0;", 0, "@%q st.shared.u16 [count], 0;", &[Uninitialized]),
        ("st.global.u32 [%o+60], %t;", 0, "st.global.u16 [%o+60], %t;", &[Uninitialized]),
        ("[%i], 8;", 0, "[%i], 4;", &[Uninitialized]),
        ("mov.u32 %m, 0xff;", 0, "", &[Uninitialized]),
        ("setp.gt.u32 %q, %t, 4000;", 0, "", &[Uninitialized]),
        ("setp.lt.u32 %p, %lane, 8;", 0, "", &[Uninitialized]),
        ("mad.lo.u32 %near, %y, 8, %x;", 0, "", &[Uninitialized]),
        // Barriers and waits that are missing.
        ("bar.sync 0;", 0, "", &[Race, Uninitialized]),
        ("bar.sync 0;", 1, "", &[Race]),
        ("bar.sync 0;", 3, "", &[Race, Uninitialized]),
        ("bar.sync 0;", 4, "", &[Race, Uninitialized]),
        ("bar.sync 0;", 5, "", &[Mbarrier, Race]),
        ("bar.warp.sync 0xffffffff;", 1, "", &[Race, Uninitialized]),
        ("cp.async.wait_group 0;", 0, "cp.async.wait_group 1;", &[Race]),
        ("cp.async.commit_group;", 0, "", &[Race]),
        ("mbarrier.try_wait.parity.shared::cta.b64 %q, [bar], 0;", 0, "mov.pred %q, 1;", &[Race]),
        ("[bar], 64;", 0, "[bar], 32;", &[Race, Mbarrier]),
        ("[bar], 64;", 0, "[bar], 65;", &[Deadlock]),
        // Masks that do not name who is there.
        ("mov.u32 %m, 0xff;", 0, "mov.u32 %m, 0x7f;", &[WarpMask]),
        ("mov.u32 %m, 0xff;", 0, "mov.u32 %m, 0xfe;", &[WarpMask]),
        ("shl.b32 %m, %m, %y;", 0, "", &[WarpMask]),
        ("and.b32 %y, %lane, 24;", 0, "and.b32 %y, %lane, 28;", &[WarpMask, Deadlock]),
        ("1, 31, 0xff;", 0, "1, 31, 0x7f;", &[WarpMask]),
        ("1, 31, 0xff;", 0, "1, 31, 0x1ff;", &[Deadlock, WarpMask]),
        ("%q, 0xffffff00;", 0, "%q, 0xfffffe00;", &[WarpMask]),
        ("bar.warp.sync 0xffffffff;", 1, "bar.warp.sync 0xfffffffe;", &[WarpMask]),
        // The value of a lane that is not there.
        ("@%q mov.u32 %x, 0;", 0, "", &[Uninitialized]),
        ("1, 31, 0xff;", 0, "9, 31, 0xff;", &[Uninitialized]),
        // Barriers to which lanes come apart, and for other numbers of threads.
        ("@%q mov.u32 %x, 0;", 0, "@%q mov.u32 %x, 0;\n bar.sync 0;", &[DivergentBarrier, Deadlock]),
        ("setp.gt.u32 %q, %t, 4000;", 0, "setp.gt.u32 %q, %t, 40;", &[FindingKind::Trap]),
        ("bar.sync 0;", 0, "bar.sync 0, 96;", &[Deadlock, Barrier]),
        ("bar.sync 0;", 0, "bar.sync 0, 32;", &[Barrier, Race, Uninitialized]),
    ];
    let mut missed = Vec::new();
    for &(from, nth, to, kinds) in mistakes {
        let text = planted(from, nth, to);
        for (schedule, seed) in RUNS {
            let found = found(&text, schedule, seed);
            if !found.iter().any(|kind| kinds.contains(kind)) {
                missed.push(format!("`{from}` {nth} -> `{to}`, {schedule:?} {seed}: {found:?}"));
            }
        }
    }
    assert!(missed.is_empty(), "{}", missed.join("\n"));
}

#[test]
fn what_matters_to_nobody_is_not_told() {
    for (from, nth, to) in [
        // The byte is not taken, the half is written over, the other lanes take the other side.
        ("0x4410;", 0, "0x4400;"),
        ("ld.shared.u32 %a, [%other];", 0, "ld.shared.u16 %a, [%other];"),
        ("st.shared.u8 [%at], %t;", 0, "st.shared.u16 [%at], %t;"),
        ("mov.u32 %z, 1;", 0, "@!%p mov.u32 %z, 1;"),
        // A tile's own mask, a wider tile, all lanes where all are there.
        ("mov.u32 %m, 0xff;", 0, "mov.u32 %m, 0xffffffff;\n mov.u32 %y, 0;"),
        ("and.b32 %y, %lane, 24;\n    mov.u32 %m, 0xff;", 0, "and.b32 %y, %lane, 16;\n    mov.u32 %m, 0xffff;"),
        ("bar.warp.sync 0xffffffff;", 0, ""),
        // Stronger orders.
        ("bar.warp.sync 0xffffffff;", 1, "bar.sync 0;"),
        ("cp.async.wait_group 0;", 0, "cp.async.wait_all;"),
    ] {
        let text = planted(from, nth, to);
        for (schedule, seed) in RUNS {
            assert_eq!(found(&text, schedule, seed), [], "`{from}` {nth} -> `{to}`, {schedule:?} {seed}");
        }
    }
}
