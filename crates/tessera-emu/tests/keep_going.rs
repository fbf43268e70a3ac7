//! Launches that go on behind a finding: what is read in place of what lies outside, and that all findings are collected.

use std::sync::Arc;

use tessera_driver::{Dim3, Params};
use tessera_emu::{Class, EmuError, EmuOptions, Emulator, FindingKind, LaunchOptions, Report, Sanitize, Schedule, Suppressions};

const BYTES: usize = 4096;

/// A warpgroup; `%o` is the own word of `data`, 4096 bytes of ones, `%at` that of `box`, `%far` an address outside.
fn run(body: &str, options: LaunchOptions) -> (Result<Report, EmuError>, Vec<u32>) {
    let text = format!(
        ".version 8.0
.target sm_90a
.address_size 64
.shared .align 1024 .b8 box[8192];
.visible .entry k(.param .u64 data)
{{
    .reg .pred %p, %q;
    .reg .b32 %t, %base, %at, %a, %x<9>;
    .reg .f32 %d<8>;
    .reg .b64 %g, %o, %far, %k, %bad;
    ld.param.u64 %g, [data];
    mov.u32 %t, %tid.x;
    mad.wide.u32 %o, %t, 4, %g;
    mov.u32 %base, box;
    mad.lo.u32 %at, %t, 16, %base;
    add.u64 %far, %g, 1048576;
    setp.eq.u32 %p, %t, 0;
    st.shared.v4.u32 [%at], {{%t, %t, %t, %t}};
    st.shared.v4.u32 [%at+2048], {{%t, %t, %t, %t}};
    st.shared.v4.u32 [%at+4096], {{0, 0, 0, 0}};
    shr.u32 %a, %base, 4;
    cvt.u64.u32 %k, %a;
    or.b64 %k, %k, 0x0000001000080000;
    or.b64 %bad, %k, 0x3fff;
    @%p mbarrier.init.shared::cta.b64 [box+8128], 1;
    fence.mbarrier_init.release.cluster;
    fence.proxy.async.shared::cta;
    bar.sync 0;
{body}
    bar.sync 0;
    st.global.u32 [%o], %x0;
    ret;
}}"
    );
    let emulator = Emulator::new(&EmuOptions::default()).unwrap();
    let module = emulator.load(&text).unwrap_or_else(|error| panic!("{error}\n{text}"));
    let data = emulator.alloc(BYTES as u64).unwrap();
    emulator.write(data, &[1; BYTES]).unwrap();
    let params = Params::new().pointer(data);
    let result = emulator.launch(&module, "k", Dim3::ONE, Dim3::from(128), &params, &options);
    let mut bytes = [0; 512];
    if result.is_ok() {
        emulator.read(data, &mut bytes).unwrap();
    }
    (result, bytes.chunks_exact(4).map(|word| u32::from_le_bytes(word.try_into().unwrap())).collect())
}

fn options() -> LaunchOptions {
    LaunchOptions { sanitize: Sanitize::ALL, schedule: Schedule::Lazy, ..LaunchOptions::default() }
}

/// The launch ends with the first finding; it goes on where that is asked for, or where a rule lets the finding pass. The word
/// of thread 1 is then `wanted`.
fn goes_on(body: &str, kinds: &[FindingKind], wanted: u32) {
    let (result, _) = run(body, options());
    let Err(EmuError::Fault { finding, .. }) = result else { panic!("the launch does not end: {body}") };
    assert_eq!(finding.kind, kinds[0], "{body}\n{finding}");
    let (result, words) = run(body, LaunchOptions { keep_going: true, ..options() });
    let report = result.unwrap_or_else(|error| panic!("{error}\n{body}"));
    let found: Vec<FindingKind> = report.findings.iter().map(|finding| finding.kind).collect();
    assert_eq!(found, kinds, "{body}\n{:?}", report.findings);
    assert_eq!(words[1], wanted, "{body}");
    let rules = Suppressions::parse(&format!("{} k * -- known", kinds[0].name())).unwrap();
    let (result, words) = run(body, LaunchOptions { suppress: Arc::new(rules), ..options() });
    let report = result.unwrap_or_else(|error| panic!("{error}\n{body}"));
    assert!(report.findings.is_empty() && report.suppressed.len() == kinds.len(), "{body}\n{:?}", report.findings);
    assert_eq!(words[1], wanted, "{body}");
}

#[test]
fn accesses_outside_read_zeros_and_write_nothing() {
    use FindingKind::{Misaligned, OutOfBounds};
    goes_on("ld.global.u32 %x0, [%far];", &[OutOfBounds], 0);
    goes_on("ld.global.u32 %x1, [%far];\n add.u32 %x0, %x1, 5;\n st.global.u32 [%far+8], %t;", &[OutOfBounds; 2], 5);
    goes_on("ld.shared.u32 %x0, [%at+2];", &[Misaligned], 0);
    goes_on("atom.global.add.u32 %x0, [%far], 1;", &[OutOfBounds], 0);
    goes_on("ldmatrix.sync.aligned.m8n8.x1.shared.b16 {%x0}, [%at+65536];", &[OutOfBounds], 0);
    goes_on("mov.u32 %x0, 3;\n stmatrix.sync.aligned.m8n8.x1.shared.b16 [%at+65536], {%x0};", &[OutOfBounds], 3);
    let copy = |to: &str, from: &str| {
        format!("cp.async.ca.shared.global [{to}], [{from}], 4;\n cp.async.wait_all;\n ld.shared.u32 %x0, [%at];")
    };
    goes_on(&copy("%at", "%far"), &[OutOfBounds], 0);
    goes_on(&copy("%at+65536", "%o"), &[OutOfBounds], 1);
    let piece = "{%x0, %x1, %x2, %x3, %x4, %x5, %x6, %x7}";
    goes_on(&format!("wmma.load.a.sync.aligned.row.m16n16k16.global.f16 {piece}, [%far];"), &[OutOfBounds], 0);
    let own = "{%t, %t, %t, %t, %t, %t, %t, %t}";
    goes_on(&format!("mov.u32 %x0, 7;\n wmma.store.d.sync.aligned.row.m16n16k16.global.s32 [%far], {own};"), &[OutOfBounds], 7);
}

#[test]
fn bulk_copies_outside_bring_zeros_and_complete() {
    let load = "@%p mbarrier.arrive.expect_tx.shared::cta.b64 _, [box+8128], 256;
        @%p cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%base], [%far], 256, [box+8128];
        wait:\n mbarrier.try_wait.parity.shared::cta.b64 %q, [box+8128], 0;\n @!%q bra wait;\n ld.shared.u32 %x0, [%at];";
    goes_on(load, &[FindingKind::OutOfBounds], 0);
    let store = "@%p cp.async.bulk.global.shared::cta.bulk_group [%far], [%base], 256;
        @%p cp.async.bulk.commit_group;\n @%p cp.async.bulk.wait_group 0;\n mov.u32 %x0, 9;";
    goes_on(store, &[FindingKind::OutOfBounds], 9);
    let left = "@%p cp.async.bulk.global.shared::cta.bulk_group [%g+2048], [%base], 256;
        @%p cp.async.bulk.commit_group;\n mov.u32 %x0, 9;";
    goes_on(left, &[FindingKind::InFlight], 9);
}

#[test]
fn products_go_on_behind_what_touches_their_registers() {
    let product = |before: &str, descriptor: &str, meanwhile: &str, wait: &str| {
        format!(
            "mov.pred %q, 1;\n wgmma.fence.sync.aligned;\n {before}
            wgmma.mma_async.sync.aligned.m64n8k16.f32.bf16.bf16 {{%d0, %d1, %d2, %d3}}, {descriptor}, %k, !%q, 1, 1, 0, 0;
            wgmma.commit_group.sync.aligned;\n {meanwhile}\n {wait}\n mov.u32 %x0, 4;"
        )
    };
    let wait = "wgmma.wait_group.sync.aligned 0;";
    let in_flight = FindingKind::InFlight;
    goes_on(&product("mov.f32 %d0, 0f00000000;", "%k", "", wait), &[in_flight], 4);
    // ptxas waits where a register is touched early, so values are right and the launch goes on by itself.
    for (meanwhile, found) in [("add.f32 %d4, %d0, %d1;", 1), ("add.f32 %d4, %d0, %d1;\n mov.f32 %d2, 0f00000000;", 2)] {
        let (result, words) = run(&product("", "%k", meanwhile, wait), options());
        let findings = result.expect("a formal finding does not end a launch").findings;
        assert!(findings.iter().all(|finding| (finding.kind, finding.class) == (in_flight, Class::Formal)), "{findings:?}");
        assert_eq!((findings.len(), words[1]), (found, 4));
    }
    goes_on(&product("", "%k", "", ""), &[in_flight], 4);
    goes_on(&product("", "%bad", "", wait), &[FindingKind::OutOfBounds], 4);
}
