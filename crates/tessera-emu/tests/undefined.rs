//! Values that nobody wrote: where they may go, and where they matter.

use tessera_driver::{Dim3, Params};
use tessera_emu::{Class, EmuError, EmuOptions, Emulator, Finding, FindingKind, LaunchOptions, Sanitize, Schedule};

/// Two warps; `%o` is the own place of `data`, of which the second half is never written; `%at` the own word of shared memory.
/// `%u`, `%v`, `%hu`, `%hv`, `%uu`, `%p` are never written.
fn run(body: &str) -> Vec<Finding> {
    let text = format!(
        ".version 8.0
.target sm_90a
.address_size 64
.extern .func (.param .b32 r) vprintf(.param .b64 format, .param .b64 values);
.global .align 1 .b8 format[4] = {{37, 100, 10, 0}};
.shared .align 16 .b8 box[4096];
.func (.param .b32 r) twice(.param .b32 a)
{{
    .reg .b32 %a;
    ld.param.b32 %a, [a];
    add.u32 %a, %a, %a;
    st.param.b32 [r], %a;
    ret;
}}
.func (.reg .b32 %y) same(.reg .b32 %x, .reg .b64 %wide)
{{
    .reg .pred %p;
    .reg .b32 %low;
    cvt.u32.u64 %low, %wide;
    add.u32 %low, %low, 1;
    setp.eq.u32 %p, %low, 0;
    @%p bra ZERO;
    mov.b32 %y, %x;
    ret;
ZERO:
    mov.b32 %y, 0;
    ret;
}}
.visible .entry k(.param .u64 data)
{{
    .local .align 8 .b8 frame[16];
    .reg .pred %p, %q, %d;
    .reg .b16 %h<8>, %hu, %hv;
    .reg .b32 %t, %at, %a, %b, %c, %x<16>, %u, %v;
    .reg .f32 %f<8>, %fu;
    .reg .b64 %o, %oo, %w<8>, %uu;
    ld.param.u64 %oo, [data];
    mov.u32 %t, %tid.x;
    mad.wide.u32 %o, %t, 4, %oo;
    mov.u32 %at, box;
    mad.lo.u32 %at, %t, 16, %at;
    setp.ge.u32 %d, %t, 0;
    mov.u16 %h0, 7;
{body}
    ret;
}}"
    );
    let emulator = Emulator::new(&EmuOptions::default()).unwrap();
    let module = emulator.load(&text).unwrap_or_else(|error| panic!("{error}\n{text}"));
    let data = emulator.alloc(1024).unwrap();
    emulator.write(data, &[1; 512]).unwrap();
    let params = Params::new().pointer(data);
    let options = LaunchOptions { sanitize: Sanitize::ALL, schedule: Schedule::Lazy, ..LaunchOptions::default() };
    match emulator.launch(&module, "k", Dim3::ONE, Dim3::from(64), &params, &options) {
        Ok(report) => report.findings,
        Err(EmuError::Fault { report, .. }) => report.findings,
        Err(error) => panic!("{error}"),
    }
}

fn quiet(body: &str) {
    let findings: Vec<String> = run(body).iter().map(ToString::to_string).collect();
    assert!(findings.is_empty(), "{body}\n{}", findings.join("\n"));
}

/// The first finding, which names all of `parts`.
fn told(body: &str, parts: &[&str]) {
    let findings = run(body);
    let first = findings.first().unwrap_or_else(|| panic!("nothing is found: {body}"));
    let text = first.to_string();
    assert_eq!(first.kind, FindingKind::Uninitialized, "{body}\n{text}");
    for part in parts {
        assert!(text.contains(part), "`{part}` is not in\n{text}\n{body}");
    }
}

/// Reported where the value of `%x0` is stored; and not where the store is left out.
fn matters(body: &str, parts: &[&str]) {
    quiet(body);
    told(&format!("{body}\n st.global.u32 [%o], %x0;"), parts);
}

#[test]
fn registers_matter_where_they_are_used() {
    told("st.global.u32 [%o], %u;", &["`%u` is read before anything was written to it", "st.global.u32"]);
    told("ld.global.u32 %x0, [%uu];", &["`%uu` is read before"]);
    told("@%p st.global.u32 [%o], %t;", &["`%p` is read before"]);
    told("@%p bra done;\ndone:", &["`%p` is read before"]);
    told("bar.sync %u, 64;", &["`%u`"]);
    told("shfl.sync.idx.b32 %x0, %t, 0, 31, %u;", &["`%u`"]);
    told("cvt.u64.u32 %w0, %u;\n add.u64 %w0, %w0, %oo;\n ld.global.u32 %x0, [%w0];", &["`%w0` is an address", "`%u`"]);
    told("setp.lt.u32 %q, %u, 9;\n @%q bra done;\ndone:", &["`%q` decides a branch", "comes from `%u`", "from k, PTX line"]);
    told("setp.lt.u32 %q, %u, 9;\n @%q ld.global.u32 %x0, [%o];", &["`%q` decides whether this is executed"]);
    // Lane by lane: lanes below 7 write it.
    let some = "setp.lt.u32 %q, %t, 7;\n @%q mov.u32 %u, 3;\n add.u32 %x0, %u, 1;\n shfl.sync.bfly.b32 %x0, %x0, 1, 31, -1;";
    quiet(&format!("{some}\n setp.lt.u32 %q, %t, 6;\n @%q st.global.u32 [%o], %x0;"));
    told(&format!("{some}\n st.global.u32 [%o], %x0;"), &["thread (6, 0, 0)", "`%x0` is stored", "`%u`"]);
    // What a guard may have written or not.
    matters("mov.u32 %x0, 1;\n @%p mov.u32 %x0, 2;", &["`%x0` is stored", "`%p`"]);
    // A selection takes one side, and equal sides are equal.
    quiet("selp.u32 %x0, %t, %u, %d;\n st.global.u32 [%o], %x0;");
    matters("selp.u32 %x0, %u, %t, %d;", &["`%u`"]);
    matters("selp.u32 %x0, 5, %t, %p;", &["`%p`"]);
    quiet("selp.u32 %x0, %t, %t, %p;\n st.global.u32 [%o], %x0;");
    told("add.cc.u32 %x0, %u, 1;\n addc.u32 %x1, %t, 0;\n st.global.u32 [%o], %x1;", &["`%x1` is stored", "comes from `%u`"]);
}

#[test]
fn what_registers_hand_over_keeps_what_was_written_of_it() {
    quiet("call (%x0), same, (%t, %oo);\n st.global.u32 [%o], %x0;");
    quiet("call (%x0), same, (%u, %oo);\n call (%x0), same, (%t, %oo);\n st.global.u32 [%o], %x0;");
    matters("call (%x0), same, (%u, %oo);", &["`%x0` is stored", "`%u`"]);
    told("call (%x0), same, (%t, %uu);", &["decides a branch", "`%uu`"]);
}

#[test]
fn bits_are_kept_apart() {
    // Halves put together, taken apart, moved and masked: the half that was written may be used.
    for halves in [
        "mov.b32 %a, {%h0, %hu};\n mov.b32 {%h1, %h2}, %a;\n cvt.u32.u16 %x0, %h1;",
        "mov.b32 %a, {%hu, %h0};\n mov.b32 {%h2, %h1}, %a;\n cvt.u32.u16 %x0, %h1;",
        "mov.b32 %a, {%hu, %h0};\n shr.u32 %x0, %a, 16;",
        "mov.b32 %a, {%h0, %hu};\n and.b32 %x0, %a, 0xffff;",
        "mov.b32 %a, {%h0, %hu};\n shl.b32 %x0, %a, 16;",
        "mov.b32 %a, {%h0, %hu};\n cvt.u32.u16 %x0, %a;",
        "mov.b32 %a, {%h0, %hu};\n prmt.b32 %x0, %a, %t, 0x5410;",
        "mov.b32 %a, {%h0, %hu};\n prmt.b32 %x0, %a, %a, 0x1010;",
        "mov.b32 %a, {%h0, %hu};\n bfe.u32 %x0, %a, 4, 12;",
        "mov.b32 %a, {%hu, %h0};\n bfi.b32 %x0, %t, %a, 0, 16;",
        "mov.b32 %a, {%hu, %h0};\n lop3.b32 %x0, %a, 0xffff0000, %t, 0xea;\n or.b32 %x0, %x0, 0xffff;",
        "mov.b32 %a, {%hu, %h0};\n shf.r.wrap.b32 %x0, %a, %t, 16;",
        "mov.b32 %a, {%h0, %hu};\n mov.b32 %b, {%hv, %h0};\n prmt.b32 %x0, %a, %b, 0x7610;",
        "mov.b32 %a, {%h0, %hu};\n and.b32 %a, %a, 0xffff;\n add.u32 %x0, %a, 65536;",
        "mov.b32 %a, {%h0, %hu};\n mul.lo.u32 %x0, %a, 65536;",
        "mov.b64 %w0, {%t, %u};\n cvt.u32.u64 %x0, %w0;",
        "mov.b64 %w0, {%u, %t};\n shr.u64 %w0, %w0, 32;\n cvt.u32.u64 %x0, %w0;",
        "mov.b64 %w0, {%u, %t};\n mov.b64 {%x1, %x0}, %w0;",
        "or.b32 %x0, %u, -1;",
        "mul.lo.u32 %x0, %u, 0;",
        "mov.b32 %a, {%h0, %hu};\n add.rn.bf16x2 %b, %a, %a;\n mov.b32 {%h1, %h2}, %b;\n cvt.u32.u16 %x0, %h1;",
        "mov.b32 %a, {%hu, %h0};\n fma.rn.f16x2 %b, %a, %a, %a;\n shr.u32 %x0, %b, 16;",
        "cvt.rn.bf16x2.f32 %a, %fu, 0f3F800000;\n and.b32 %x0, %a, 65535;",
        "cvt.rn.f16x2.f32 %a, 0f3F800000, %fu;\n shr.u32 %x0, %a, 16;",
        "mov.b32 %a, {%h0, %hu};\n setp.eq.u32 %q, %a, 9;\n selp.u32 %x0, 1, 0, %q;",
        "mov.b32 %a, {%hu, %h0};\n setp.lt.u32 %q, %a, 65536;\n selp.u32 %x0, 1, 0, %q;",
        "mov.b32 %a, {%hu, %h0};\n setp.gt.s32 %q, %a, -5;\n selp.u32 %x0, 1, 0, %q;",
        "setp.ne.and.u32 %q, %t, %t, %p;\n selp.u32 %x0, 1, 0, %q;",
        "or.pred %q, %d, %p;\n selp.u32 %x0, 1, 0, %q;",
        "vote.sync.any.pred %q, %d, -1;\n selp.u32 %x0, 1, 0, %q;",
    ] {
        quiet(&format!("{halves}\n st.global.u32 [%o], %x0;"));
    }
    // The other half may not.
    for (other, name) in [
        ("mov.b32 %a, {%h0, %hu};\n mov.b32 {%h1, %h2}, %a;\n cvt.u32.u16 %x0, %h2;", "`%hu`"),
        ("mov.b32 %a, {%h0, %hu};\n shr.u32 %x0, %a, 15;", "`%hu`"),
        ("mov.b32 %a, {%hu, %h0};\n and.b32 %x0, %a, 0x8000;", "`%hu`"),
        ("mov.b32 %a, {%h0, %hu};\n prmt.b32 %x0, %a, %t, 0x5420;", "`%hu`"),
        ("mov.b32 %a, {%h0, %hu};\n prmt.b32 %x0, %a, %a, %u;", "`%u`"),
        ("mov.b32 %a, {%h0, %hu};\n bfe.u32 %x0, %a, 4, 13;", "`%hu`"),
        ("mov.b32 %a, {%h0, %hu};\n bfi.b32 %x0, %t, %a, 0, 16;", "`%hu`"),
        ("mov.b32 %a, {%h0, %hu};\n add.u32 %x0, %a, 1;", "`%hu`"),
        ("mov.b32 %a, {%hu, %h0};\n mul.lo.u32 %x0, %a, 2;", "`%hu`"),
        ("shl.b32 %x0, %t, %u;", "`%u`"),
        ("mov.b32 %a, {%hu, %h0};\n add.rn.bf16x2 %b, %a, %a;\n mov.b32 {%h1, %h2}, %b;\n cvt.u32.u16 %x0, %h1;", "`%hu`"),
        ("cvt.rn.bf16x2.f32 %a, %fu, 0f3F800000;\n shr.u32 %x0, %a, 16;", "`%fu`"),
        ("mov.b32 %a, {%h0, %hu};\n setp.eq.u32 %q, %a, 7;\n selp.u32 %x0, 1, 0, %q;", "`%hu`"),
        ("mov.b32 %a, {%h0, %hu};\n setp.lt.u32 %q, %a, 65536;\n selp.u32 %x0, 1, 0, %q;", "`%hu`"),
        ("mov.b32 %a, {%h0, %hu};\n setp.gt.s32 %q, %a, -5;\n selp.u32 %x0, 1, 0, %q;", "`%hu`"),
        ("and.pred %q, %d, %p;\n selp.u32 %x0, 1, 0, %q;", "`%p`"),
        ("vote.sync.ballot.b32 %x0, %p, -1;", "`%p`"),
        ("vote.sync.all.pred %q, %p, -1;\n selp.u32 %x0, 1, 0, %q;", "`%p`"),
        ("match.any.sync.b32 %x0, %u, -1;", "`%u`"),
        ("redux.sync.add.u32 %x0, %u, -1;", "`%u`"),
        ("popc.b32 %x0, %u;", "`%u`"),
        ("cvt.rn.f32.u32 %f0, %u;\n mov.b32 %x0, %f0;", "`%u`"),
    ] {
        matters(other, &["`%x0` is stored", name]);
    }
}

/// Of several values that nobody wrote, the one that reaches the result is named.
#[test]
fn the_right_register_is_named() {
    for (body, name) in [
        ("mov.b32 %a, {%hu, %hv};\n and.b32 %x0, %a, 0xffff;", "`%hu`"),
        ("mov.b32 %a, {%hu, %hv};\n shr.u32 %x0, %a, 16;", "`%hv`"),
        ("mov.b32 %a, {%hu, %hv};\n mov.b32 {%h1, %h2}, %a;\n cvt.u32.u16 %x0, %h2;", "`%hv`"),
        ("mov.b32 %a, {%hu, %hv};\n prmt.b32 %x0, %a, %t, 0x5432;", "`%hv`"),
        ("mov.b32 %a, {%hu, %hv};\n shfl.sync.bfly.b32 %b, %a, 1, 31, -1;\n shr.u32 %x0, %b, 20;", "`%hv`"),
        ("mov.b32 %a, {%hu, %hv};\n st.shared.b32 [%at], %a;\n ld.shared.u16 %x0, [%at+2];", "`%hv`"),
        ("mov.b32 %a, {%hu, %hv};\n st.shared.b32 [%at], %a;\n ld.shared.u16 %x0, [%at];", "`%hu`"),
        ("bfi.b32 %a, %u, %v, 8, 8;\n and.b32 %x0, %a, 0xff00;", "`%u`"),
        ("bfi.b32 %a, %u, %v, 8, 8;\n and.b32 %x0, %a, 0xff;", "`%v`"),
        ("mov.b64 %w0, {%u, %v};\n shr.u64 %w0, %w0, 40;\n cvt.u32.u64 %x0, %w0;", "`%v`"),
        ("selp.u32 %x0, %u, %v, %d;", "`%u`"),
        ("selp.u32 %x0, %v, %u, %d;", "`%v`"),
        ("st.shared.u16 [%at], %hu;\n ld.shared.u32 %a, [%at];\n shr.u32 %x0, %a, 16;", "shared memory at 0x402"),
    ] {
        matters(body, &["`%x0` is stored", name]);
    }
}

#[test]
fn memory_matters_where_what_was_loaded_does() {
    // Shared memory: loaded, moved about, stored back: no mistake. Its own place and the loading instruction are told.
    matters("ld.shared.u32 %x0, [%at];", &["`%x0` is stored", "shared memory at 0x400", "ld.shared.u32"]);
    matters("ld.shared.u32 %x1, [%at];\n st.shared.u32 [%at+4], %x1;\n ld.shared.u32 %x0, [%at+4];", &["shared memory at 0x400"]);
    matters("st.shared.u32 [%at], %u;\n ld.shared.u32 %x0, [%at];", &["comes from `%u`"]);
    matters("ld.shared.v4.u32 {%x0, %x1, %x2, %x3}, [%at];", &["shared memory"]);
    told("ld.shared.u32 %x0, [%at];\n setp.eq.u32 %q, %x0, 1;\n @%q bra done;\ndone:", &["decides a branch", "shared memory"]);
    told("ld.shared.u64 %w0, [%at];\n ld.global.u32 %x0, [%w0];", &["is an address", "shared memory"]);
    // By byte.
    quiet("st.shared.u16 [%at], %h0;\n ld.shared.u32 %x0, [%at];\n and.b32 %x0, %x0, 0xffff;\n st.global.u32 [%o], %x0;");
    quiet("st.shared.v2.u32 [%at], {%t, %u};\n ld.shared.v4.u32 {%x0, %x1, %x2, %x3}, [%at];\n st.global.u32 [%o], %x0;");
    matters("st.shared.u16 [%at+2], %h0;\n ld.shared.u32 %x0, [%at];", &["shared memory at 0x400"]);
    matters("st.shared.u8 [%at+1], %h0;\n ld.shared.s8 %x1, [%at];\n cvt.u32.s8 %x0, %x1;", &["shared memory at 0x400"]);
    quiet(
        "st.shared.v2.u32 [%at], {%t, %u};\n st.shared.u32 [%at+4], %t;\n ld.shared.u32 %x0, [%at+4];\n st.global.u32 [%o], %x0;",
    );
    // Global memory.
    matters("ld.global.u32 %x0, [%o+512];", &["`%x0` is stored", "global memory at"]);
    quiet("ld.global.v2.u32 {%x0, %x1}, [%oo+504];\n st.global.u32 [%o], %x0;");
    told("atom.global.add.u32 %x0, [%o+512], 1;", &["global memory at", "atom.global"]);
    told("red.global.add.u32 [%o], %u;", &["`%u`"]);
    // Local memory, and what is handed to functions.
    matters("st.local.u32 [frame+4], %t;\n ld.local.u32 %x0, [frame];", &["local memory at 0x0"]);
    quiet("st.local.u32 [frame+4], %t;\n ld.local.u32 %x0, [frame+4];\n st.global.u32 [%o], %x0;");
    let call = |value: &str| {
        format!(
            "{{\n .param .b32 a;\n .param .b32 r;\n st.param.b32 [a], {value};\n call (r), twice, (a);\n ld.param.b32 %x0, [r];\n}}"
        )
    };
    quiet(&format!("{}\n st.global.u32 [%o], %x0;", call("%t")));
    matters(&call("%u"), &["`%x0` is stored", "comes from `%u`"]);
    let print = |value: &str| {
        format!(
            "st.local.u32 [frame], {value};\n {{\n .param .b64 a;\n .param .b64 b;\n .param .b32 r;\n mov.u64 %w0, format;\n \
             cvta.global.u64 %w0, %w0;\n mov.u64 %w1, frame;\n cvta.local.u64 %w1, %w1;\n st.param.b64 [a], %w0;\n \
             st.param.b64 [b], %w1;\n call (r), vprintf, (a, b);\n}}"
        )
    };
    quiet(&print("%t"));
    told(&print("%u"), &["an argument is printed", "comes from `%u`"]);
    // Atomics and copies in shared memory hand on what is undefined.
    matters("atom.shared.add.u32 %x1, [%at], 1;\n ld.shared.u32 %x0, [%at];", &["shared memory"]);
    quiet("atom.shared.exch.b32 %x1, [%at], %t;\n ld.shared.u32 %x0, [%at];\n st.global.u32 [%o], %x0;");
    let copy =
        |from: &str| format!("cp.async.ca.shared.global [%at], [{from}], 4;\n cp.async.wait_all;\n ld.shared.u32 %x0, [%at];");
    quiet(&format!("{}\n st.global.u32 [%o], %x0;", copy("%o")));
    matters(&copy("%o+512"), &["global memory"]);
    quiet(
        "cp.async.ca.shared.global [%at], [%o+512], 4, 0;\n cp.async.wait_all;\n ld.shared.u32 %x0, [%at];\n st.global.u32 [%o], %x0;",
    );
    // The value of a lane that takes no part.
    let part = "setp.ge.u32 %q, %t, 8;\n @%q bra done;\n shfl.sync.down.b32 %x0, %t, 4, 31, 0xff;";
    quiet(&format!("{part}\n setp.lt.u32 %q, %t, 4;\n @%q st.global.u32 [%o], %x0;\ndone:"));
    told(&format!("{part}\n st.global.u32 [%o], %x0;\ndone:"), &["the value of lane 8 in a shuffle", "thread (4, 0, 0)"]);
}

#[test]
fn rows_of_products_are_kept_apart() {
    // Rows 8 to 15 of A are never written: rows 0 to 7 of the product may be used, the others not.
    let product = "mov.u32 %x1, 0x3c003c00;
        mma.sync.aligned.m16n8k8.row.col.f32.f16.f16.f32 {%f0, %f1, %f2, %f3}, {%x1, %u}, {%x1}, {%f4, %f4, %f4, %f4};";
    let product = format!("mov.f32 %f4, 0f00000000;\n{product}");
    quiet(&format!("{product}\n st.global.f32 [%o], %f0;\n st.global.f32 [%o], %f1;"));
    told(&format!("{product}\n st.global.f32 [%o], %f2;"), &["`%f2` is stored", "`%u`"]);
    // A summand that nobody wrote spoils its element alone.
    let summand = product.replace("{%x1, %u}", "{%x1, %x1}").replace("%f4, %f4}", "%f4, %fu}");
    quiet(&format!("{summand}\n st.global.f32 [%o], %f2;"));
    told(&format!("{summand}\n st.global.f32 [%o], %f3;"), &["`%f3` is stored", "`%fu`"]);
    // The same through shared memory: rows that were not written there.
    let rows = "and.b32 %x2, %t, 31;\n mov.u32 %x3, box;\n mad.lo.u32 %x4, %x2, 16, %x3;\n mov.u32 %x1, 0x3c003c00;
        setp.lt.u32 %q, %t, 8;\n @%q st.shared.v4.b32 [%x4], {%x1, %x1, %x1, %x1};\n bar.sync 0;
        and.b32 %x5, %t, 15;\n mad.lo.u32 %x5, %x5, 16, %x3;
        ldmatrix.sync.aligned.m8n8.x2.shared.b16 {%x6, %x7}, [%x5];\n mov.f32 %f4, 0f00000000;
        mma.sync.aligned.m16n8k8.row.col.f32.f16.f16.f32 {%f0, %f1, %f2, %f3}, {%x6, %x7}, {%x1}, {%f4, %f4, %f4, %f4};";
    quiet(&format!("{rows}\n st.global.f32 [%o], %f0;"));
    told(&format!("{rows}\n st.global.f32 [%o], %f2;"), &["`%f2` is stored", "shared memory at 0x480", "ldmatrix"]);
}

#[test]
fn the_first_read_is_told_and_the_use_counts() {
    let findings = run("add.u32 %x0, %u, 1;\n mov.u32 %x1, 0;\nround:\n st.global.u32 [%o], %x0;\n add.u32 %x1, %x1, 1;\n \
                        setp.lt.u32 %q, %x1, 3;\n @%q bra round;");
    let [found] = &findings[..] else { panic!("{findings:?}") };
    assert_eq!(found.place.instruction, "st.global.u32");
    assert_eq!(found.earlier.as_ref().map(|place| place.instruction.as_str()), Some("add.u32"));
    // Two warps, 32 lanes, three rounds.
    assert_eq!(found.count, 2 * 32 * 3);
}

/// A structure's padding that is copied with it is formal; a byte that an instruction has taken up is not.
#[test]
fn padding_that_is_copied_is_formal() {
    let class = |body: &str| {
        let findings = run(body);
        assert_eq!(findings.len(), 1, "{body}\n{findings:?}");
        assert_eq!(findings[0].kind, FindingKind::Uninitialized);
        findings[0].class
    };
    // { u32, u8, padding, u64, u16, padding, padding } through shared or local memory, in words and in vectors.
    let fill =
        "mad.wide.u32 %w7, %t, 8, %oo;\n st.shared.u32 [%at], %t;\n st.shared.u8 [%at+4], %t;\n st.shared.u16 [%at+8], %h0;";
    for copy in [
        "ld.shared.v2.u32 {%x0, %x1}, [%at];\n st.global.v2.u32 [%w7], {%x0, %x1};",
        "ld.shared.u32 %x1, [%at+4];\n st.global.u32 [%o], %x1;",
        "ld.shared.v2.u32 {%x2, %x3}, [%at+8];\n st.global.v2.u32 [%w7], {%x2, %x3};",
        "ld.shared.u64 %w0, [%at];\n st.global.u64 [%w7], %w0;",
        "ld.shared.u32 %x1, [%at+4];\n st.local.u32 [frame], %x1;\n ld.local.u32 %x2, [frame];\n st.global.u32 [%o], %x2;",
    ] {
        assert_eq!(class(&format!("{fill}\n {copy}")), Class::Formal, "{copy}");
    }
    for mistake in [
        // Whole elements that nobody wrote, alone or in a vector.
        "ld.shared.u32 %x1, [%at+12];\n st.global.u32 [%o], %x1;",
        "ld.shared.v2.u32 {%x2, %x3}, [%at+8];\n st.global.u32 [%o], %x3;",
        "ld.shared.u8 %x1, [%at+5];\n st.global.u32 [%o], %x1;",
        "ld.shared.u16 %h1, [%at+6];\n cvt.u32.u16 %x1, %h1;\n st.global.u32 [%o], %x1;",
        // What was computed from them, bits of a byte, an address.
        "ld.shared.u32 %x1, [%at+4];\n add.u32 %x2, %x1, 1;\n st.global.u32 [%o], %x2;",
        "ld.shared.u32 %x1, [%at+4];\n prmt.b32 %x2, %x1, %t, 0x4410;\n st.global.u32 [%o], %x2;",
        "ld.shared.u32 %x1, [%at+4];\n and.b32 %x2, %x1, 0xf00;\n st.global.u32 [%o], %x2;",
        "mov.b32 %x1, {%h0, %hu};\n st.global.u32 [%o], %x1;",
    ] {
        assert_eq!(class(&format!("{fill}\n {mistake}")), Class::Wrong, "{mistake}");
    }
}
