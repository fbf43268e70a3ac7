//! Systematic schedules of small kernels: all orders that can differ and no others, races told from nondeterminism, launches
//! that can get stuck; and launches that need more blocks at once than the device holds.

use tessera_driver::{DevicePtr, Dim3, Params};
use tessera_emu::{Class, EmuError, EmuOptions, Emulator, Finding, FindingKind, LaunchOptions, Report, Sanitize, Schedule};

/// A kernel over one array of zeros: `%b` is the block, `%t` the thread, `%d` the array.
fn text(body: &str) -> String {
    format!(
        ".version 8.0\n.target sm_90\n.address_size 64\n.visible .entry k(.param .u64 data)\n{{\n\
         .reg .pred %p<4>;\n.reg .b32 %r<16>, %b, %t;\n.reg .b64 %d, %e<4>;\n.shared .align 8 .b8 box[4096];\n\
         ld.param.u64 %d, [data];\nmov.u32 %b, %ctaid.x;\nmov.u32 %t, %tid.x;\n{body}\nret;\n}}\n"
    )
}

struct Ran {
    finished: bool,
    report: Report,
    words: Vec<u32>,
}

impl Ran {
    fn kinds(&self) -> Vec<FindingKind> {
        self.report.findings.iter().map(|finding: &Finding| finding.kind).collect()
    }
}

fn run_on(multiprocessors: u32, body: &str, grid: u32, block: u32, options: LaunchOptions) -> Ran {
    let emulator = Emulator::new(&EmuOptions { multiprocessors: Some(multiprocessors), ..EmuOptions::default() }).unwrap();
    let module = emulator.load(&text(body)).unwrap_or_else(|error| panic!("{error}"));
    let data = emulator.alloc(64).unwrap();
    emulator.write(data, &[0; 64]).unwrap();
    let params = Params::new().pointer(data);
    let (report, finished) = match emulator.launch(&module, "k", Dim3::from(grid), Dim3::from(block), &params, &options) {
        Ok(report) => (report, true),
        Err(EmuError::Fault { report, .. }) => (*report, false),
        Err(error) => panic!("{error}"),
    };
    let mut bytes = [0; 64];
    emulator.read(data, &mut bytes).unwrap();
    let words = bytes.chunks_exact(4).map(|word| u32::from_le_bytes(word.try_into().unwrap())).collect();
    Ran { finished, report, words }
}

fn explore(body: &str, grid: u32, block: u32) -> Ran {
    run_on(8, body, grid, block, LaunchOptions { schedule: Schedule::Systematic, ..LaunchOptions::default() })
}

#[test]
fn steps_that_touch_different_memory_have_one_order() {
    // Eight blocks, each with a word of its own.
    let ran = explore("mul.wide.u32 %e0, %b, 4;\nadd.u64 %e0, %d, %e0;\nadd.u32 %r0, %b, 7;\nst.global.u32 [%e0], %r0;", 8, 1);
    let explored = ran.report.explored.unwrap();
    assert!(ran.finished && explored.complete);
    assert_eq!((explored.executions, explored.pruned, explored.outcomes), (1, 0, 1));
    assert_eq!(ran.words[..8], [7, 8, 9, 10, 11, 12, 13, 14]);
}

#[test]
fn every_order_of_conflicting_steps_is_executed() {
    // Three blocks add: six orders, one result.
    let sum = explore("add.u32 %r0, %b, 1;\nred.global.add.u32 [%d], %r0;", 3, 1);
    let explored = sum.report.explored.unwrap();
    assert_eq!((explored.executions, explored.outcomes, explored.complete), (6, 1, true));
    assert!(sum.report.findings.is_empty() && sum.words[0] == 6);
    // Three blocks exchange: the last one stays. No race, but three results.
    let last = explore("add.u32 %r0, %b, 1;\natom.global.exch.b32 %r1, [%d], %r0;", 3, 1);
    assert_eq!(last.report.explored.unwrap().outcomes, 3);
    assert_eq!(last.kinds(), [FindingKind::Nondeterministic]);
    assert_eq!(last.report.findings[0].place.instruction, "atom.global.exch.b32");
    // The same with plain stores is a race, and called nothing else.
    let race = explore("add.u32 %r0, %b, 1;\nst.global.u32 [%d], %r0;", 3, 1);
    assert_eq!(race.kinds(), [FindingKind::Race]);
}

/// Thread 0 of warp 0 hands a word over to thread 0 of warp 1; `order` is how the flag is written and read.
fn hand_over(write: &str, read: &str) -> Ran {
    let body = format!(
        "setp.eq.u32 %p0, %t, 0;\nsetp.eq.u32 %p1, %t, 32;\n@%p1 bra READ;\n@!%p0 bra DONE;\n\
         mov.u32 %r0, 42;\nst.global.u32 [%d], %r0;\nmov.u32 %r1, 1;\n{write} [%d+4], %r1;\nbra DONE;\n\
         READ:\n{read} %r2, [%d+4];\nsetp.eq.u32 %p2, %r2, 0;\n@%p2 bra READ;\n\
         ld.global.u32 %r3, [%d];\nst.global.u32 [%d+8], %r3;\nDONE:\n"
    );
    explore(&body, 1, 64)
}

#[test]
fn a_loop_that_polls_ends() {
    let ran = hand_over("st.release.gpu.global.u32", "ld.acquire.gpu.global.u32");
    let explored = ran.report.explored.unwrap();
    assert!(ran.finished && explored.complete && ran.report.findings.is_empty(), "{:?}", ran.report.findings);
    assert_eq!((ran.words[2], explored.outcomes), (42, 1));
    assert!(explored.executions >= 2, "the reader first, and the writer first");
    // Without an order the word's own accesses race.
    let ran = hand_over("st.relaxed.gpu.global.u32", "ld.relaxed.gpu.global.u32");
    assert!(ran.kinds().contains(&FindingKind::Race));
}

#[test]
fn an_order_that_gets_stuck_is_found() {
    // Whoever comes first waits for a word that nobody writes, where that is block 1.
    let body = "mov.u32 %r0, 1;\natom.global.exch.b32 %r1, [%d], %r0;\nsetp.ne.u32 %p0, %r1, 0;\nsetp.ne.u32 %p1, %b, 1;\n\
                or.pred %p0, %p0, %p1;\n@%p0 bra DONE;\nWAIT:\nld.relaxed.gpu.global.u32 %r2, [%d+4];\nsetp.eq.u32 %p2, %r2, 0;\n\
                @%p2 bra WAIT;\nDONE:\n";
    let eager = run_on(8, body, 2, 1, LaunchOptions::default());
    assert!(eager.finished, "block 0 comes first there");
    let ran = explore(body, 2, 1);
    assert!(!ran.finished);
    assert_eq!(ran.kinds(), [FindingKind::Deadlock]);
}

#[test]
fn barriers_leave_no_choice() {
    // Two warps write, meet, and read what the other wrote.
    let body = "mov.u64 %e0, box;\ncvt.u32.u64 %r0, %e0;\nmad.lo.u32 %r1, %t, 4, %r0;\nst.shared.u32 [%r1], %t;\nbar.sync 0;\n\
                xor.b32 %r2, %t, 32;\nmad.lo.u32 %r1, %r2, 4, %r0;\nld.shared.u32 %r3, [%r1];\n\
                setp.eq.u32 %p0, %t, 0;\n@%p0 st.global.u32 [%d], %r3;";
    let ran = explore(body, 1, 64);
    let explored = ran.report.explored.unwrap();
    assert!(ran.finished && ran.report.findings.is_empty() && explored.complete);
    assert_eq!((explored.outcomes, ran.words[0]), (1, 32));
    assert!(explored.executions <= 2, "{explored:?}");
    // Without the barrier the two orders race.
    let ran = explore(&body.replace("bar.sync 0;", ""), 1, 64);
    assert!(ran.kinds().contains(&FindingKind::Race));
}

#[test]
fn arrivals_at_a_barrier_are_one_order() {
    // Thread 0 takes a number, which its block's four warps read behind a barrier, and writes the block's number there.
    let body = "mov.u64 %e0, box;\ncvt.u32.u64 %r0, %e0;\nmov.u32 %r1, 0;\nsetp.eq.u32 %p0, %t, 0;\n\
                @%p0 atom.global.add.u32 %r1, [%d], 1;\n@%p0 st.shared.u32 [%r0], %r1;\nbar.sync 0;\nld.shared.u32 %r2, [%r0];\n\
                mul.wide.u32 %e1, %r2, 4;\nadd.u64 %e1, %d, %e1;\nadd.u32 %r3, %b, 1;\n@%p0 st.global.u32 [%e1+4], %r3;\nbar.sync 0;";
    let ran = explore(body, 1, 128);
    let explored = ran.report.explored.unwrap();
    assert_eq!((explored.executions, explored.pruned, explored.outcomes, explored.complete), (1, 0, 1, true));
    // Of two blocks either comes first.
    let ran = explore(body, 2, 128);
    let explored = ran.report.explored.unwrap();
    assert_eq!((explored.executions, explored.outcomes, explored.complete), (2, 2, true));
    assert_eq!(ran.kinds(), [FindingKind::Nondeterministic]);
    // Warps that end early are not waited for, whenever they end.
    let early = format!("setp.ge.u32 %p2, %t, 64;\n@%p2 exit;\n{body}");
    let explored = explore(&early, 1, 128).report.explored.unwrap();
    assert_eq!((explored.executions, explored.outcomes, explored.complete), (1, 1, true));
    // Four warps come to a barrier for two: who meets whom decides.
    let pairs = "setp.lt.u32 %p0, %t, 64;\nbar.red.popc.u32 %r0, 1, 64, %p0;\nshr.u32 %r1, %t, 5;\nmul.wide.u32 %e0, %r1, 4;\n\
                 add.u64 %e0, %d, %e0;\nand.b32 %r2, %t, 31;\nsetp.eq.u32 %p1, %r2, 0;\n@%p1 st.global.u32 [%e0], %r0;";
    let explored = explore(pairs, 1, 128).report.explored.unwrap();
    assert!(explored.complete && explored.outcomes == 2, "{explored:?}");
}

#[test]
fn a_copy_arrives_before_or_behind_a_read_that_does_not_wait() {
    let body = |wait: &str| {
        format!(
            "mov.u64 %e0, box;\ncvt.u32.u64 %r0, %e0;\nmov.u32 %r1, 7;\nst.shared.u32 [%r0], %r1;\n\
             cp.async.ca.shared.global [%r0], [%d], 4;\n{wait}\nld.shared.u32 %r2, [%r0];\nst.global.u32 [%d+4], %r2;"
        )
    };
    let ran = explore(&body("cp.async.wait_all;"), 1, 1);
    let explored = ran.report.explored.unwrap();
    assert!(ran.report.findings.is_empty() && explored.complete && explored.outcomes == 1 && ran.words[1] == 0, "{explored:?}");
    let ran = explore(&body(""), 1, 1);
    // The copy against the read, and the read against the copy.
    assert!(!ran.kinds().is_empty() && ran.kinds().iter().all(|&kind| kind == FindingKind::Race), "{:?}", ran.kinds());
    assert_eq!(ran.report.explored.unwrap().outcomes, 2, "the old word and the copied one");
}

#[test]
fn the_bound_is_kept_and_told() {
    let options = LaunchOptions { schedule: Schedule::Systematic, most_schedules: 10, ..LaunchOptions::default() };
    let ran = run_on(8, "mov.u32 %r0, 1;\nred.global.add.u32 [%d], %r0;", 6, 1, options);
    let explored = ran.report.explored.unwrap();
    assert!(!explored.complete && explored.executions + explored.pruned == 10);
}

#[test]
fn a_launch_that_needs_more_blocks_than_are_live_is_stuck() {
    // Block 0 waits for block 1; each takes a whole multiprocessor.
    let body = "mov.u32 %r0, 1;\nsetp.eq.u32 %p0, %b, 1;\n@%p0 st.release.gpu.global.u32 [%d], %r0;\n@%p0 bra DONE;\nWAIT:\n\
                ld.acquire.gpu.global.u32 %r1, [%d];\nsetp.eq.u32 %p1, %r1, 0;\n@%p1 bra WAIT;\nDONE:\n";
    let options = LaunchOptions { shared_bytes: 200 << 10, patience: 1 << 21, ..LaunchOptions::default() };
    assert!(run_on(2, body, 2, 32, options.clone()).finished);
    let watched = run_on(2, body, 2, 32, LaunchOptions { sanitize: Sanitize::ALL, ..options.clone() });
    assert!(watched.finished && watched.kinds().is_empty(), "{:?}", watched.kinds());
    let stuck = run_on(1, body, 2, 32, options.clone());
    assert_eq!(stuck.kinds(), [FindingKind::Deadlock]);
    let stuck = run_on(1, body, 2, 32, LaunchOptions { schedule: Schedule::Systematic, ..options });
    assert_eq!(stuck.kinds(), [FindingKind::Deadlock]);
}

#[test]
fn memory_that_was_freed_is_named() {
    let emulator = Emulator::new(&EmuOptions::default()).unwrap();
    let module = emulator.load(&text("ld.global.u32 %r0, [%d];")).unwrap();
    let data = emulator.alloc(64).unwrap();
    emulator.free(data).unwrap();
    let launch = |at: DevicePtr| {
        let params = Params::new().pointer(at);
        let outcome = emulator.launch(&module, "k", Dim3::ONE, Dim3::ONE, &params, &LaunchOptions::default());
        match outcome {
            Err(EmuError::Fault { finding, .. }) => finding.kind,
            other => panic!("{other:?}"),
        }
    };
    assert_eq!(launch(data), FindingKind::UseAfterFree);
    assert_eq!(launch(DevicePtr(data.0 + 4096)), FindingKind::OutOfBounds);
}

#[test]
fn advice_counts_banks_and_sectors() {
    let body = "mov.u64 %e0, box;\ncvt.u32.u64 %r0, %e0;\nmad.lo.u32 %r1, %t, 128, %r0;\nst.shared.u32 [%r1], %t;\n\
                mad.lo.u32 %r2, %t, 4, %r0;\nst.shared.u32 [%r2], %t;\nshr.u32 %r3, %t, 1;\nmul.wide.u32 %e1, %r3, 4;\n\
                add.u64 %e1, %d, %e1;\nld.global.u32 %r4, [%e1];";
    let options = LaunchOptions { sanitize: Sanitize { advice: true, ..Sanitize::NONE }, ..LaunchOptions::default() };
    let ran = run_on(1, body, 2, 32, options);
    let [advice] = &ran.report.findings[..] else { panic!("{:?}", ran.report.findings) };
    let traffic = advice.traffic.unwrap();
    assert_eq!((advice.kind, advice.class, advice.count), (FindingKind::BankConflicts, Class::Advice, 2));
    assert_eq!((traffic.transactions, traffic.needed), (64, 2));
    assert_eq!(advice.place.instruction, "st.shared.u32");
    // Rows of 4096 bytes: a sector a lane.
    let body =
        "shl.b32 %r1, %t, 5;\nand.b32 %r1, %r1, 32;\ncvt.u64.u32 %e1, %r1;\nadd.u64 %e1, %d, %e1;\nld.global.u8 %r4, [%e1];";
    let ran = run_on(
        1,
        body,
        1,
        32,
        LaunchOptions { sanitize: Sanitize { advice: true, ..Sanitize::NONE }, ..LaunchOptions::default() },
    );
    let scattered = |finding: &Finding| finding.kind == FindingKind::Uncoalesced && finding.traffic.unwrap().transactions == 2;
    assert!(ran.report.findings.iter().all(scattered));
}
