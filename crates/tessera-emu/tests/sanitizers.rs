//! Each sanitizer on a kernel with the mistake and on the same kernel without it.

use tessera_driver::{DevicePtr, Dim3, L2Promotion, OutOfBounds, Params, Swizzle, TensorMap, TensorMapSpec};
use tessera_emu::{Class, EmuError, EmuOptions, Emulator, FindingKind, LaunchOptions, Report, Sanitize, Schedule, driver};
use tessera_types::{DType, TimeLimit};

pub(crate) struct Case {
    emulator: Emulator,
    data: DevicePtr,
}

impl Case {
    pub(crate) fn new() -> Case {
        let emulator = Emulator::new(&EmuOptions::default()).unwrap();
        let data = emulator.alloc(4096).unwrap();
        emulator.write(data, &[1; 4096]).unwrap();
        Case { emulator, data }
    }

    pub(crate) fn options() -> LaunchOptions {
        LaunchOptions { sanitize: Sanitize::ALL, schedule: Schedule::Lazy, shared_bytes: 4096, ..LaunchOptions::default() }
    }

    fn run(&self, body: &str, grid: u32, block: u32) -> Result<Report, EmuError> {
        self.run_with(body, grid, block, &Self::options())
    }

    /// Everything that a kernel is reported for, under a schedule.
    pub(crate) fn found(&self, schedule: Schedule, (grid, block): (u32, u32), body: &str) -> Vec<(FindingKind, Class)> {
        let findings = match self.run_with(body, grid, block, &LaunchOptions { schedule, ..Self::options() }) {
            Ok(report) => report.findings,
            Err(EmuError::Fault { report, .. }) => report.findings,
            Err(error) => panic!("{error}"),
        };
        findings.iter().map(|finding| (finding.kind, finding.class)).collect()
    }

    pub(crate) fn run_with(&self, body: &str, grid: u32, block: u32, options: &LaunchOptions) -> Result<Report, EmuError> {
        let text = format!(
            ".version 8.0
.target sm_90a
.address_size 64
.file 1 \"kernel.py\"
.extern .shared .align 1024 .b8 dynamic[];
.visible .entry k(.param .u64 data)
{{
    .reg .pred %p, %q, %w;
    .reg .b32 %t, %b, %base, %at, %v, %x, %y, %r<8>;
    .reg .f32 %d<32>;
    .reg .b64 %g, %o, %k;
    ld.param.u64 %g, [data];
    mov.u32 %t, %tid.x;
    mov.u32 %b, %ctaid.x;
    mov.u32 %base, dynamic;
    mad.lo.u32 %at, %t, 4, %base;
    mul.wide.u32 %o, %t, 4;
    add.u64 %o, %o, %g;
{body}
    ret;
}}"
        );
        let module = self.emulator.load(&text).unwrap_or_else(|error| panic!("{error}"));
        let args = Params::new().pointer(self.data);
        self.emulator.launch(&module, "k", Dim3::from(grid), Dim3::from(block), &args, options)
    }
}

/// The kinds of everything that a kernel is reported for.
fn kinds(grid: u32, block: u32, body: &str) -> Vec<FindingKind> {
    let findings = match Case::new().run(body, grid, block) {
        Ok(report) => report.findings,
        Err(EmuError::Fault { report, .. }) => report.findings,
        Err(error) => panic!("{error}"),
    };
    let mut kinds: Vec<FindingKind> = findings.iter().map(|finding| finding.kind).collect();
    kinds.dedup();
    kinds
}

fn check(kind: FindingKind, grid: u32, block: u32, wrong: &str, right: &str) {
    // Bytes that are read too early may also not have been written yet.
    let mut found = kinds(grid, block, wrong);
    found.retain(|other| *other != FindingKind::Uninitialized || kind == FindingKind::Uninitialized);
    assert_eq!(found, [kind], "{wrong}");
    assert_eq!(kinds(grid, block, right), [], "{right}");
}

#[test]
fn out_of_bounds_and_misaligned() {
    check(FindingKind::OutOfBounds, 1, 32, "ld.global.u32 %v, [%o+4000];", "ld.global.u32 %v, [%o+3968];");
    check(FindingKind::OutOfBounds, 1, 32, "st.shared.u32 [%at+4000], %t;", "st.shared.u32 [%at+3968], %t;");
    check(FindingKind::Misaligned, 1, 32, "ld.global.u32 %v, [%o+2];", "ld.global.u16 %v, [%o+2];");
}

#[test]
fn a_finding_names_line_source_block_and_thread() {
    let body = "    .loc 1 17 5\n    setp.ne.u32 %p, %t, 33;\n    @!%p ld.global.u32 %v, [%o+100000];";
    let Err(EmuError::Fault { finding, report }) = Case::new().run(body, 3, 64) else { panic!("no fault") };
    assert_eq!(finding.kind, FindingKind::OutOfBounds);
    assert_eq!(finding.place.source, Some(("kernel.py".to_owned(), 17, 5)));
    assert_eq!((finding.place.block, finding.place.thread), ([0, 0, 0], Some([33, 0, 0])));
    assert_eq!(finding.place.line, 21);
    assert!(
        finding.message.contains("behind the end of a allocation of 4096 bytes") || finding.message.contains("behind the end")
    );
    assert!(report.to_json().contains("\"out-of-bounds\""));
}

/// Two threads read each other's half of a word, meet, read their own and write it: what they read before is not theirs any more.
#[test]
fn reads_of_an_earlier_turn_keep_their_bytes() {
    let swapped = "xor.b32 %x, %t, 1;\n mul.wide.u32 %k, %x, 2;\n add.u64 %k, %k, %g;\n ld.global.u16 %v, [%k];";
    let own = "mul.wide.u32 %k, %t, 2;\n add.u64 %k, %k, %g;\n ld.global.u16 %r0, [%k];\n st.global.u16 [%k], %r0;";
    let wrong = format!("{swapped}\n {own}");
    check(FindingKind::Race, 1, 32, &wrong, &format!("{swapped}\n bar.warp.sync -1;\n {own}"));
}

/// What goes on for ever is stopped when its time is up, at the loop that it is in.
#[test]
fn a_kernel_that_never_ends_is_stopped_in_its_loop() {
    let case = Case::new();
    let body = "    .loc 1 7 5\nagain:\n    add.u32 %x, %t, 1;\n    .loc 1 8 9\n    st.global.u32 [%o], %x;\n    bra again;";
    for schedule in [Schedule::Eager, Schedule::Random, Schedule::Systematic] {
        for sanitize in [Sanitize::NONE, Sanitize::ALL] {
            let limit = TimeLimit::within(std::time::Duration::from_millis(100));
            let options = LaunchOptions { schedule, sanitize, limit, ..Case::options() };
            let start = std::time::Instant::now();
            let Err(EmuError::Fault { finding, .. }) = case.run_with(body, 2, 64, &options) else { panic!("it has ended") };
            assert!(start.elapsed().as_secs() < 30, "{schedule:?}");
            assert_eq!(finding.kind, FindingKind::NeverEnds, "{finding}");
            assert_eq!(finding.place.source, Some(("kernel.py".to_owned(), 7, 5)), "{finding}");
            assert!(finding.message.contains("has not ended after 0.1 s"), "{finding}");
        }
    }
}

/// Blocks that each end at once are as many as a grid may have: the launch is stopped all the same, and no larger grid is launched.
#[test]
fn a_grid_of_many_short_blocks_keeps_its_time() {
    let case = Case::new();
    for sanitize in [Sanitize::NONE, Sanitize::ALL] {
        let limit = TimeLimit::within(std::time::Duration::from_millis(200));
        let options = LaunchOptions { sanitize, limit, schedule: Schedule::Eager, ..LaunchOptions::default() };
        let start = std::time::Instant::now();
        let Err(EmuError::Fault { finding, .. }) = case.run_with("", i32::MAX as u32, 1, &options) else {
            panic!("it has ended")
        };
        assert!(start.elapsed().as_secs() < 30);
        assert_eq!(finding.kind, FindingKind::NeverEnds, "{finding}");
        assert!(finding.message.contains("has not begun"), "{finding}");
        // What ends in time is not told of.
        let limit = TimeLimit::within(std::time::Duration::from_secs(60));
        assert_eq!(case.run_with("", 100, 1, &LaunchOptions { limit, ..options }).unwrap().findings, []);
    }
    let Err(EmuError::Launch(message)) = case.run_with("", 1 << 31, 1, &LaunchOptions::default()) else {
        panic!("it was launched")
    };
    assert!(message.contains("at most 2147483647 along x, 65535 along y and 65535 along z"), "{message}");
}

#[test]
fn freed_memory() {
    let case = Case::new();
    case.emulator.free(case.data).unwrap();
    let Err(EmuError::Fault { finding, .. }) = case.run("ld.global.u32 %v, [%o];", 1, 32) else { panic!("no fault") };
    assert!(finding.message.contains("freed"), "{finding}");
}

#[test]
fn races_in_shared_memory() {
    // Each thread reads its neighbour's word in the next warp.
    let exchange = |between: &str| {
        format!(
            "st.shared.u32 [%at], %t;\n{between}\n add.u32 %x, %t, 32;\n and.b32 %x, %x, 63;\n mad.lo.u32 %y, %x, 4, %base;\n ld.shared.u32 %v, [%y];"
        )
    };
    check(FindingKind::Race, 1, 64, &exchange("bar.warp.sync -1;"), &exchange("bar.sync 0;"));
    // The next round's write against this round's read.
    let rounds = |end: &str| {
        format!(
            "mov.u32 %r0, 0;\nround:\n st.shared.u32 [%at], %r0;\n bar.sync 0;\n xor.b32 %x, %t, 32;\n mad.lo.u32 %y, %x, 4, %base;\n ld.shared.u32 %v, [%y];\n {end}\n add.u32 %r0, %r0, 1;\n setp.lt.u32 %p, %r0, 3;\n @%p bra round;"
        )
    };
    check(FindingKind::Race, 1, 64, &rounds(""), &rounds("bar.sync 0;"));
    // Lanes of one warp.
    let lanes = |between: &str| {
        format!(
            "st.shared.u32 [%at], %t;\n{between}\n xor.b32 %x, %t, 1;\n mad.lo.u32 %y, %x, 4, %base;\n ld.shared.u32 %v, [%y];"
        )
    };
    check(FindingKind::Race, 1, 32, &lanes(""), &lanes("bar.warp.sync -1;"));
    // Atomics do not race with each other, but with plain stores they do.
    check(
        FindingKind::Race,
        1,
        64,
        "setp.eq.u32 %p, %t, 0;\n @%p st.shared.u32 [%base], 0;\n red.shared.add.u32 [%base], 1;",
        "setp.eq.u32 %p, %t, 0;\n @%p st.shared.u32 [%base], 0;\n bar.sync 0;\n red.shared.add.u32 [%base], 1;",
    );
}

/// Warps that store equal rows of a matrix differ from those that store different ones.
#[test]
fn equal_rows_of_matrices_are_formal() {
    let store = |value: &str| {
        format!(
            "and.b32 %x, %t, 31;\n mad.lo.u32 %y, %x, 16, %base;\n mov.u32 %v, {value};\n \
             stmatrix.sync.aligned.m8n8.x4.shared.b16 [%y], {{%v, %v, %v, %v}};"
        )
    };
    let classes = |value: &str| {
        let report = Case::new().run(&store(value), 1, 64).expect("a race does not end a launch");
        report.findings.iter().map(|finding| (finding.kind, finding.class)).collect::<Vec<_>>()
    };
    assert_eq!(classes("%x"), [(FindingKind::Race, Class::Formal)]);
    assert_eq!(classes("%t"), [(FindingKind::Race, Class::Wrong)]);
}

#[test]
fn races_in_global_memory() {
    check(
        FindingKind::Race,
        2,
        32,
        "st.global.u32 [%o], %b;",
        "mad.lo.u32 %x, %b, 128, 0;\n cvt.u64.u32 %k, %x;\n add.u64 %o, %o, %k;\n st.global.u32 [%o], %b;",
    );
    // A block hands a value to the next one through a flag.
    let hand_over = |store: &str, load: &str| {
        format!(
            "setp.ne.u32 %p, %t, 0;\n @%p bra done;\n setp.ne.u32 %q, %b, 0;\n @%q bra second;\n st.global.u32 [%g], 42;\n {store}\n bra done;\nsecond:\n {load}\n setp.ne.u32 %w, %v, 7;\n @%w bra second;\n ld.global.u32 %x, [%g];\ndone:"
        )
    };
    let right = hand_over("st.release.gpu.global.u32 [%g+64], 7;", "ld.acquire.gpu.global.u32 %v, [%g+64];");
    assert_eq!(kinds(2, 32, &right), []);
    let wrong = "setp.ne.u32 %p, %t, 0;\n @%p bra done;\n setp.ne.u32 %q, %b, 0;\n @%q bra second;\n st.global.u32 [%g], 42;\n bra done;\nsecond:\n ld.global.u32 %x, [%g];\ndone:";
    assert_eq!(kinds(2, 32, wrong), [FindingKind::Race]);
}

/// A word of a table has a reader in each warp of a grid; a write is compared with all of them, and they with one another never, which would
/// take minutes here.
#[test]
fn a_word_that_a_whole_grid_reads() {
    let read = "ld.global.b32 %x, [%g];";
    assert_eq!(kinds(8192, 256, read), []);
    let last = format!("{read} setp.eq.u32 %p, %b, 8191; setp.eq.and.u32 %q, %t, 255, %p; @%q st.global.b32 [%g], %x;");
    assert_eq!(kinds(8192, 256, &format!("{last} mov.u32 %x, 2; @%q st.global.b32 [%g], %x;")), [FindingKind::Race]);
}

#[test]
fn barriers() {
    check(
        FindingKind::DivergentBarrier,
        1,
        32,
        "setp.lt.u32 %p, %t, 16;\n @%p bra first;\n bar.sync 0;\n bra done;\nfirst:\n bar.sync 1;\ndone:",
        "setp.lt.u32 %p, %t, 16;\n @%p bra done;\n mov.u32 %x, 1;\ndone:\n bar.sync 0;",
    );
    check(FindingKind::Deadlock, 1, 64, "setp.lt.u32 %p, %t, 32;\n @%p bra done;\n bar.sync 0, 64;\ndone:", "bar.sync 0, 64;");
    check(FindingKind::Barrier, 1, 64, "bar.sync 0, 33;", "bar.sync 0, 64;");
    let Err(EmuError::Fault { finding, .. }) =
        Case::new().run("setp.lt.u32 %p, %t, 32;\n @%p bra done;\n bar.sync 0, 64;\ndone:", 1, 64)
    else {
        panic!("no deadlock")
    };
    assert!(
        finding.message.contains("block 0, warp 1")
            && finding.message.contains("waits at barrier 0, to which 32 of 64 threads came")
    );
}

#[test]
fn warp_masks() {
    check(FindingKind::WarpMask, 1, 32, "shfl.sync.idx.b32 %x, %t, 0, 31, 0x0000ffff;", "shfl.sync.idx.b32 %x, %t, 0, 31, -1;");
    // Each lane names its own half, quarter or parity of the warp: nothing is wrong with that.
    for mask in [
        "and.b32 %y, %t, 16;\n mov.u32 %v, 0xffff;\n shl.b32 %v, %v, %y;",
        "and.b32 %y, %t, 24;\n mov.u32 %v, 0xff;\n shl.b32 %v, %v, %y;",
        "and.b32 %y, %t, 1;\n mov.u32 %v, 0x55555555;\n shl.b32 %v, %v, %y;",
    ] {
        let use_it = format!(
            "{mask}\n shfl.sync.bfly.b32 %x, %t, 2, 31, %v;\n setp.lt.u32 %p, %x, 9;\n vote.sync.any.pred %q, %p, %v;\n \
             vote.sync.ballot.b32 %r0, %p, %v;\n match.any.sync.b32 %r1, %t, %v;\n redux.sync.add.u32 %r2, %t, %v;\n \
             elect.sync %r3|%w, %v;\n bar.warp.sync %v;\n add.u32 %r0, %r0, %r1;\n add.u32 %r0, %r0, %r2;\n \
             add.u32 %r0, %r0, %r3;\n st.global.u32 [%o], %r0;"
        );
        assert_eq!(kinds(1, 64, &use_it), [], "{mask}");
        // A lane that names the other half.
        let wrong = use_it.replace("shfl.sync", "xor.b32 %v, %v, -1;\n shfl.sync");
        assert_eq!(kinds(1, 32, &wrong), [FindingKind::WarpMask]);
    }
}

const LEADER: &str = "setp.eq.u32 %p, %t, 0;\n";

#[test]
fn mbarriers() {
    let init = format!("{LEADER} @%p mbarrier.init.shared::cta.b64 [%base], 1;\n bar.sync 0;\n");
    let wait = "wait:\n mbarrier.try_wait.parity.shared::cta.b64 %q, [%base], 0;\n @!%q bra wait;";
    let arrive = "@%p mbarrier.arrive.shared::cta.b64 _, [%base];\n";
    check(FindingKind::Deadlock, 1, 64, &format!("{init}{wait}"), &format!("{init}{arrive}{wait}"));
    // Over-arrival: the phase expects one more than come.
    let twice = format!("{LEADER} @%p mbarrier.init.shared::cta.b64 [%base], 2;\n bar.sync 0;\n {arrive}");
    check(
        FindingKind::Mbarrier,
        1,
        64,
        &format!("{twice} @%p mbarrier.arrive.shared::cta.b64 _, [%base], 2;"),
        &format!("{twice}{arrive}"),
    );
    check(FindingKind::Mbarrier, 1, 64, &format!("{LEADER}{arrive}"), &format!("{init}{arrive}"));
    let overwritten = format!("{init}@%p st.shared.u32 [%base], 5;\n {arrive}");
    assert_eq!(kinds(1, 64, &overwritten), [FindingKind::Mbarrier]);
    // What an arrival releases, the wait acquires.
    let data = |order: &str| {
        format!(
            "{init}@%p st.shared.u32 [%base+64], 5;\n @%p mbarrier.arrive{order}.shared::cta.b64 _, [%base];\n {wait}\n ld.shared.u32 %v, [%base+64];"
        )
    };
    check(FindingKind::Race, 1, 64, &data(".relaxed.cta"), &data(""));
}

#[test]
fn bulk_copies() {
    // One kilobyte comes by a bulk copy; every thread reads it.
    let copy = |expect: u32, wait: &str| {
        format!(
            "{LEADER} @%p mbarrier.init.shared::cta.b64 [%base], 1;\n fence.mbarrier_init.release.cluster;\n bar.sync 0;\n @%p mbarrier.arrive.expect_tx.shared::cta.b64 _, [%base], {expect};\n add.u32 %x, %base, 1024;\n @%p cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%x], [%g], 1024, [%base];\n {wait}\n ld.shared.u32 %v, [%at+1024];\n bar.sync 0;\n add.u32 %v, %v, 1;\n"
        )
    };
    let wait = "wait:\n mbarrier.try_wait.parity.shared::cta.b64 %q, [%base], 0;\n @!%q bra wait;";
    assert_eq!(kinds(1, 64, &copy(1024, wait)), []);
    assert_eq!(kinds(1, 64, &copy(2048, wait)), [FindingKind::Deadlock]);
    assert!(kinds(1, 64, &copy(1024, "")).contains(&FindingKind::Race));
    // The tile goes back: the writers need a proxy fence before the copy engine reads.
    let store = |fence: &str, end: &str| {
        format!(
            "st.shared.u32 [%at+1024], %t;\n {fence}\n bar.sync 0;\n {LEADER} add.u32 %x, %base, 1024;\n @%p cp.async.bulk.global.shared::cta.bulk_group [%g], [%x], 256;\n @%p cp.async.bulk.commit_group;\n {end}"
        )
    };
    let end = "@%p cp.async.bulk.wait_group 0;";
    check(FindingKind::ProxyFence, 1, 64, &store("", end), &store("fence.proxy.async.shared::cta;", end));
    check(
        FindingKind::InFlight,
        1,
        64,
        &store("fence.proxy.async.shared::cta;", ""),
        &store("fence.proxy.async.shared::cta;", end),
    );
    // The tile is overwritten before it was read.
    let reuse = |wait: &str| {
        store("fence.proxy.async.shared::cta;", &format!("{wait}\n bar.sync 0;\n st.shared.u32 [%at+1024], 0;\n {end}"))
    };
    check(FindingKind::Race, 1, 64, &reuse(""), &reuse("@%p cp.async.bulk.wait_group.read 0;"));
}

#[test]
fn cp_async() {
    let copy = |wait: &str| {
        format!(
            "cp.async.ca.shared.global [%at], [%o], 4;\n cp.async.commit_group;\n {wait}\n bar.sync 0;\n xor.b32 %x, %t, 32;\n mad.lo.u32 %y, %x, 4, %base;\n ld.shared.u32 %v, [%y];"
        )
    };
    let found = kinds(1, 64, &copy("cp.async.wait_group 1;"));
    assert!(found.contains(&FindingKind::Race), "{found:?}");
    assert_eq!(kinds(1, 64, &copy("cp.async.wait_group 0;")), []);
}

#[test]
fn products_in_flight() {
    let product = |fence: &str, wait: &str, after: &str| {
        format!(
            "mov.u32 %r0, 0;
fill:
    st.shared.u32 [%at], 0;
    add.u32 %at, %at, 512;
    add.u32 %r0, %r0, 1;
    setp.lt.u32 %p, %r0, 8;
    @%p bra fill;
    {fence}
    bar.sync 0;
    shr.u32 %x, %base, 4;
    cvt.u64.u32 %k, %x;
    or.b64 %k, %k, 0x0000001000080000;
    mov.pred %q, 1;
    wgmma.fence.sync.aligned;
    wgmma.mma_async.sync.aligned.m64n8k16.f32.bf16.bf16 {{%d0, %d1, %d2, %d3}}, %k, %k, !%q, 1, 1, 0, 0;
    wgmma.commit_group.sync.aligned;
    {wait}
    {after}"
        )
    };
    let (fence, wait) = ("fence.proxy.async.shared::cta;", "wgmma.wait_group.sync.aligned 0;");
    let use_it = "add.f32 %d4, %d0, %d0;";
    check(FindingKind::InFlight, 1, 128, &product(fence, "", use_it), &product(fence, wait, use_it));
    check(FindingKind::InFlight, 1, 128, &product(fence, "", ""), &product(fence, wait, ""));
    check(FindingKind::ProxyFence, 1, 128, &product("", wait, use_it), &product(fence, wait, use_it));
    // Shared memory is overwritten while the product may still read it.
    let overwrite = |wait: &str| {
        let store = format!("{wait}\n bar.sync 0;\n mad.lo.u32 %at, %t, 4, %base;\n st.shared.u32 [%at], 1;");
        product(fence, &store, "wgmma.wait_group.sync.aligned 0;")
    };
    check(FindingKind::Race, 1, 128, &overwrite(""), &overwrite(wait));
    // An accumulator is written behind the fence.
    let late =
        product(fence, wait, use_it).replace("wgmma.fence.sync.aligned;", "wgmma.fence.sync.aligned;\n mov.f32 %d0, 0f3F800000;");
    assert_eq!(kinds(1, 128, &late), [FindingKind::InFlight]);
}

/// Shared memory ends with the block: a store must have read it by then, whenever the copy engine comes to it.
#[test]
fn bulk_stores_are_waited_for() {
    let store = |behind: &str| {
        format!(
            "st.shared.u32 [%at], %t;\nfence.proxy.async.shared::cta;\nbar.sync 0;\nsetp.eq.u32 %p, %t, 0;\n\
             @%p cp.async.bulk.global.shared::cta.bulk_group [%g], [%base], 256;\n{behind}"
        )
    };
    let late = [(FindingKind::InFlight, Class::Wrong)];
    for schedule in [Schedule::Eager, Schedule::Lazy, Schedule::Random, Schedule::Systematic] {
        let found = |behind: &str| Case::new().found(schedule, (1, 64), &store(behind));
        for wrong in [
            "",
            "@%p cp.async.bulk.commit_group;",
            // What is in no group is not waited for, and one thread does not wait for another.
            "@%p cp.async.bulk.wait_group 0;",
            "@%p cp.async.bulk.commit_group;\n@%p cp.async.bulk.wait_group 1;",
            "@%p cp.async.bulk.commit_group;\n@!%p cp.async.bulk.wait_group 0;",
        ] {
            assert_eq!(found(wrong), late, "{schedule:?}: {wrong}");
        }
        for right in [
            "cp.async.bulk.wait_group 0;",
            "cp.async.bulk.wait_group.read 0;",
            "cp.async.bulk.commit_group;\ncp.async.bulk.wait_group.read 1;",
        ] {
            assert_eq!(found(&format!("cp.async.bulk.commit_group;\n{right}")), [], "{schedule:?}: {right}");
        }
    }
}

#[test]
fn traps_and_stuck_loops() {
    assert_eq!(kinds(1, 32, "trap;"), [FindingKind::Trap]);
    let case = Case::new();
    let text = ".version 8.0\n.target sm_80\n.address_size 64\n.visible .entry k(.param .u64 data)\n{\n .reg .pred %p;\n .reg .b32 %v;\n .reg .b64 %g;\n ld.param.u64 %g, [data];\nspin:\n ld.relaxed.gpu.global.u32 %v, [%g];\n setp.ne.u32 %p, %v, 77;\n @%p bra spin;\n ret;\n}";
    let module = case.emulator.load(text).unwrap();
    let options = LaunchOptions { patience: 1 << 21, ..LaunchOptions::default() };
    let result = case.emulator.launch(&module, "k", Dim3::from(2), Dim3::from(32), &Params::new().pointer(case.data), &options);
    let Err(EmuError::Fault { finding, .. }) = result else { panic!("no deadlock") };
    assert_eq!(finding.kind, FindingKind::Deadlock);
}

#[test]
fn the_driver_reports_and_recovers() {
    let table = driver(&EmuOptions::default()).unwrap();
    let spec = TensorMapSpec {
        dtype: DType::F32,
        address: DevicePtr(16),
        extents: vec![8],
        strides: vec![],
        tile: vec![8],
        swizzle: Swizzle::None,
        l2: L2Promotion::None,
        outside: OutOfBounds::Zero,
    };
    let map: TensorMap = table.tensor_map_encode(&spec).unwrap();
    assert_ne!(map.bytes(), &[0; 128]);
    assert!(table.module_load(b"no PTX").is_err());
    let context = table.context_retain(tessera_driver::DeviceOrdinal(0)).unwrap();
    table.context_set_current(context).unwrap();
    let text = ".version 8.0\n.target sm_80\n.address_size 64\n.visible .entry k(.param .u64 x)\n{\n .reg .b64 %g;\n ld.param.u64 %g, [x];\n st.global.u32 [%g], 1;\n ret;\n}";
    let launch = |pointer: u64| {
        let module = table.module_load(text.as_bytes())?;
        let function = table.module_function(module, "k")?;
        let params = Params::new().u64(pointer);
        table.launch(&tessera_driver::LaunchSpec {
            function,
            grid: Dim3::ONE,
            block: Dim3::from(32),
            cluster: None,
            shared_bytes: 0,
            overlaps_predecessor: false,
            stream: tessera_driver::StreamHandle::DEFAULT,
            params: &params,
        })
    };
    let error = launch(0x1000).unwrap_err();
    assert!(error.poisons_context(), "{error}");
    assert!(error.to_string().contains("PTX line 8"), "{error}");
    assert!(table.mem_alloc(4).is_err());
    table.context_reset(tessera_driver::DeviceOrdinal(0)).unwrap();
    let pointer = table.mem_alloc(4).unwrap();
    launch(pointer.0).unwrap();
}

#[test]
fn blocks_hand_results_on_across_fences_alone() {
    // The last of four blocks reads what all have written; a ticket says who that is.
    let ticket = |before: &str, behind: &str| {
        let body = format!(
            "mul.wide.u32 %o, %b, 4;\nadd.u64 %o, %o, %g;\nst.global.u32 [%o+64], %b;\n{before}\n\
             atom.global.add.u32 %x, [%g], 1;\nsetp.ne.u32 %p, %x, 16843012;\n@%p bra DONE;\n{behind}\n\
             ld.global.u32 %y, [%g+68];\nst.global.u32 [%g+512], %y;\nDONE:"
        );
        kinds(4, 1, &body)
    };
    assert_eq!(ticket("membar.gl;", "membar.gl;"), []);
    assert_eq!(ticket("fence.acq_rel.gpu;", "fence.acq_rel.gpu;"), []);
    assert_eq!(ticket("", "membar.gl;"), [FindingKind::Race]);
    assert_eq!(ticket("membar.gl;", ""), [FindingKind::Race]);
    assert_eq!(ticket("membar.cta;", "membar.gl;"), [FindingKind::Race]);
    // A block waits for the one before it.
    let chain = |write: &str, read: &str| {
        let body = format!(
            "mul.wide.u32 %o, %b, 8;\nadd.u64 %o, %o, %g;\nmov.u32 %x, 0;\nsetp.eq.u32 %p, %b, 0;\n@%p bra FIRST;\nWAIT:\n\
             {read} %y, [%o+-8];\nsetp.ne.u32 %q, %y, 7;\n@%q bra WAIT;\nld.global.u32 %x, [%o+-4];\nFIRST:\n\
             add.u32 %x, %x, %b;\nst.global.u32 [%o+4], %x;\nmov.u32 %y, 7;\n{write} [%o], %y;"
        );
        kinds(4, 1, &body)
    };
    let (release, acquire) = ("st.release.gpu.global.u32", "ld.acquire.gpu.global.u32");
    assert_eq!(chain(release, acquire), []);
    assert_eq!(chain(release, "ld.relaxed.gpu.global.u32"), [FindingKind::Race]);
    assert_eq!(chain("st.relaxed.gpu.global.u32", acquire), [FindingKind::Race]);
    assert_eq!(chain("fence.acq_rel.gpu;\nst.relaxed.gpu.global.u32", acquire), []);
}
