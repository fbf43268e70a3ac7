//! Rarer forms of instructions, each with the values it must give: registers of 128 bits, vectors of atomics, conditions joined
//! with predicates, memory that a function takes for itself.

use tessera_driver::{Dim3, Params};
use tessera_emu::{EmuOptions, Emulator, LaunchOptions, Sanitize, Schedule};

/// Lane t's result of a body without variables of its module.
fn agrees(body: &str, wanted: impl Fn(u32) -> u32) {
    agrees_with("", body, wanted);
}

/// Lane t's result of a body that leaves it in `%x`; memory behind the results starts at `%m`, 64 bytes a lane, word i being i.
fn agrees_with(variables: &str, body: &str, wanted: impl Fn(u32) -> u32) {
    let text = format!(
        ".version 8.6\n.target sm_90a\n.address_size 64
{variables}
.visible .entry k(.param .u64 out)
{{
    .reg .pred %p, %q, %r;
    .reg .b8 %c<2>;
    .reg .b16 %h<4>;
    .reg .b32 %x, %y, %z, %t, %s;
    .reg .f32 %f<4>;
    .reg .b64 %o, %m, %d<8>;
    .reg .b128 %w<4>;
    .shared .align 16 .b8 tile[2048];
    ld.param.u64 %o, [out];
    mov.u32 %t, %tid.x;
    mad.wide.u32 %m, %t, 64, %o;
    add.u64 %m, %m, 128;
    mad.wide.u32 %o, %t, 4, %o;
    mov.u32 %s, tile;
    mad.lo.u32 %s, %t, 64, %s;
    mov.u32 %x, 0;
{body}
    st.global.u32 [%o], %x;
    ret;
}}"
    );
    for schedule in [Schedule::Eager, Schedule::Lazy, Schedule::Random] {
        let emulator = Emulator::new(&EmuOptions::default()).unwrap();
        let module = emulator.load(&text).unwrap_or_else(|error| panic!("{error}\n{text}"));
        let words: Vec<u8> = (0..32).map(|_| 0).chain(0..512u32).flat_map(u32::to_le_bytes).collect();
        let out = emulator.alloc(words.len() as u64).unwrap();
        emulator.write(out, &words).unwrap();
        let options = LaunchOptions { schedule, sanitize: Sanitize::ALL, ..LaunchOptions::default() };
        let report = emulator.launch(&module, "k", Dim3::ONE, Dim3::from(32), &Params::new().pointer(out), &options);
        assert_eq!(report.unwrap_or_else(|error| panic!("{error}\n{text}")).findings, []);
        let mut bytes = [0; 128];
        emulator.read(out, &mut bytes).unwrap();
        let got: Vec<u32> = bytes.chunks_exact(4).map(|word| u32::from_le_bytes(word.try_into().unwrap())).collect();
        assert_eq!(got, (0..32).map(&wanted).collect::<Vec<_>>(), "{body}");
    }
}

#[test]
fn registers_of_128_bits() {
    // Through global and shared memory, halves exchanged.
    let body = "
    ld.global.b128 %w0, [%m+16];
    mov.b128 {%d0, %d1}, %w0;
    mov.b128 %w1, {%d1, %d0};
    st.shared.b128 [%s], %w1;
    ld.shared.v4.b32 {%x, %y, %z, _}, [%s];
    mad.lo.u32 %x, %x, 10, %z;";
    agrees(body, |t| (16 * t + 6) * 10 + 16 * t + 4);
    // An exchange gives the old value.
    let body = "
    mov.b64 %d0, 5;
    mov.b128 %w0, {%d0, %d0};
    atom.global.exch.b128 %w1, [%m], %w0;
    mov.b128 {%d1, %d2}, %w1;
    cvt.u32.u64 %y, %d2;
    ld.global.u32 %x, [%m+8];
    mad.lo.u32 %x, %y, 16, %x;";
    agrees(body, |t| (16 * t + 2) * 16 + 5);
    // A comparison of both halves: odd lanes ask for another upper half, and change nothing.
    let body = "
    ld.global.v2.b64 {%d0, %d1}, [%m];
    and.b32 %y, %t, 1;
    cvt.u64.u32 %d2, %y;
    add.u64 %d1, %d1, %d2;
    mov.b128 %w0, {%d0, %d1};
    mov.b64 %d3, 7;
    mov.b128 %w1, {%d3, %d3};
    atom.acq_rel.gpu.global.cas.b128 %w2, [%m], %w0, %w1;
    mov.b128 {%d4, _}, %w2;
    cvt.u32.u64 %y, %d4;
    ld.global.u32 %x, [%m+8];
    mad.lo.u32 %x, %y, 1000, %x;";
    agrees(body, |t| 16 * t * 1000 + if t % 2 == 0 { 7 } else { 16 * t + 2 });
}

#[test]
fn vectors_of_atomics_give_what_was_there() {
    let body = "
    mov.f32 %f0, 0f3F800000;
    st.global.v2.f32 [%m], {%f0, %f0};
    mov.f32 %f1, 0f40000000;
    mov.f32 %f2, 0f40400000;
    atom.global.v2.f32.add {%f1, %f2}, [%m], {%f1, %f2};
    ld.global.v2.f32 {%f0, %f3}, [%m];
    mul.f32 %f3, %f3, 0f41200000;
    add.f32 %f0, %f0, %f3;
    add.f32 %f0, %f0, %f2;
    cvt.rzi.u32.f32 %x, %f0;";
    agrees(body, |_| 3 + 40 + 1);
    let body = "
    mov.b64 %d0, 0;
    atom.global.add.L2::cache_hint.u32 %y, [%m+4], 3, %d0;
    red.global.add.L2::cache_hint.u32 [%m+4], 3, %d0;
    ld.global.u32 %x, [%m+4];
    mad.lo.u32 %x, %y, 1000, %x;";
    agrees(body, |t| (16 * t + 1) * 1000 + 16 * t + 7);
}

#[test]
fn conditions_are_joined_with_predicates() {
    let body = "
    setp.lt.u32 %p, %t, 16;
    set.lt.or.u32.s32 %x, %t, 4, !%p;
    set.gt.xor.f32.u32 %f0, %t, 7, %p;
    cvt.rzi.u32.f32 %y, %f0;
    xor.b32 %x, %x, %y;";
    agrees(body, |t| (if !(4..16).contains(&t) { u32::MAX } else { 0 }) ^ u32::from((t > 7) ^ (t < 16)));
    // Two halves, each joined.
    let body = "
    cvt.rn.bf16.u32 %h0, %t;
    mov.b16 %h1, 0x4100;
    mov.b32 %y, {%h0, %h1};
    mov.b32 %z, {%h1, %h0};
    setp.lt.u32 %r, %t, 20;
    setp.ge.and.bf16x2 %p|%q, %y, %z, %r;
    selp.u32 %x, 1, 0, %p;
    @%q add.u32 %x, %x, 2;
    set.ge.or.f16x2.bf16x2 %y, %y, %z, %r;
    shr.u32 %y, %y, 16;
    mad.lo.u32 %x, %y, 4, %x;";
    let body =
        &body.replace("set.ge.or.f16x2.bf16x2", "set.ge.or.u32.bf16x2").replace("shr.u32 %y, %y, 16;", "and.b32 %y, %y, 1;");
    agrees(body, |t| {
        let low = u32::from((8..20).contains(&t));
        let high = u32::from(t <= 8);
        low + 2 * high + 4 * u32::from(t >= 8 || t < 20)
    });
}

#[test]
fn functions_take_local_memory() {
    // Two pieces that do not overlap, and one that takes the second's place.
    let body = "
    cvt.u64.u32 %d7, %t;
    add.u64 %d7, %d7, 4;
    alloca.u64 %d0, %d7, 16;
    st.local.u32 [%d0], 11;
    stacksave.u64 %d1;
    alloca.u64 %d2, 100;
    st.local.u32 [%d2], 22;
    stackrestore.u64 %d1;
    alloca.u64 %d3, 100;
    setp.eq.u64 %p, %d2, %d3;
    selp.u32 %x, 1000, 0, %p;
    ld.local.u32 %y, [%d0];
    add.u32 %x, %x, %y;
    and.b64 %d4, %d0, 15;
    cvt.u32.u64 %y, %d4;
    add.u32 %x, %x, %y;
    sub.u64 %d5, %d2, %d0;
    setp.lt.u64 %p, %d5, %d7;
    @%p mov.u32 %x, 0;";
    agrees(body, |_| 1011);
}

#[test]
fn variables_hold_addresses_of_others() {
    let variables = ".global .attribute(.managed) .align 4 .u32 list[4] = {5, 6, 7, 8};
.global .align 8 .u64 places[2] = {generic(list)+8, list+4};";
    let body = "
    ld.global.u64 %d0, [places];
    ld.u32 %x, [%d0];
    ld.global.u64 %d0, [places+8];
    ld.global.u32 %y, [%d0];
    mad.lo.u32 %x, %x, 10, %y;";
    agrees_with(variables, body, |_| 76);
}

#[test]
fn sums_of_upper_parts_saturate() {
    let body = "
    mov.b32 %y, 0x7fffffff;
    mov.b32 %z, 0x7ffffff0;
    mad.hi.sat.s32 %x, %y, %t, %z;";
    agrees(body, |t| (i64::from(0x7fff_fff0u32) + ((i64::from(i32::MAX) * i64::from(t)) >> 32)).min(i64::from(i32::MAX)) as u32);
}

#[test]
fn copies_ignore_their_source_where_a_predicate_says_so() {
    let body = "
    and.b32 %y, %t, 1;
    setp.eq.u32 %p, %y, 0;
    cp.async.cg.shared.global [%s], [%m], 16, %p;
    cp.async.wait_all;
    ld.shared.u32 %x, [%s+4];";
    agrees(body, |t| if t % 2 == 0 { 0 } else { 16 * t + 1 });
}

#[test]
fn barriers_and_fences_by_their_longer_names() {
    let body = "
    setp.lt.u32 %p, %t, 10;
    barrier.cta.red.popc.aligned.u32 %x, 0, %p;
    barrier.red.or.pred %q, 1, 32, !%p;
    @%q add.u32 %x, %x, 100;
    bar.cta.sync 0;
    fence.acquire.gpu;
    fence.release.sync_restrict::shared::cta.cluster;
    fence.proxy.async::generic.acquire.sync_restrict::shared::cluster.cluster;
    mov.b16 %h0, 0x1234;
    mov.b16 {%c0, %c1}, %h0;
    cvt.u32.u8 %y, %c1;
    add.u32 %x, %x, %y;
    pmevent 1;";
    agrees(body, |_| 10 + 100 + 0x12);
}

#[test]
fn blocks_that_meet_at_atomics_run_in_one_order() {
    let text = ".version 8.0\n.target sm_80\n.address_size 64
.visible .entry k(.param .u64 out)
{
    .reg .b32 %x, %b, %n;
    .reg .b64 %o, %to;
    ld.param.u64 %o, [out];
    mov.u32 %b, %ctaid.x;
    mov.u32 %n, 0;
again:
    .reg .pred %p;
    atom.global.add.u32 %x, [%o], 1;
    add.u32 %n, %n, 1;
    setp.lt.u32 %p, %n, 50;
    @%p bra again;
    mad.wide.u32 %to, %b, 4, %o;
    st.global.u32 [%to+4], %x;
    ret;
}";
    let run = || {
        let emulator = Emulator::new(&EmuOptions::default()).unwrap();
        let module = emulator.load(text).unwrap();
        let out = emulator.alloc(4 * 257).unwrap();
        let options = LaunchOptions { threads: Some(8), ..LaunchOptions::default() };
        emulator.launch(&module, "k", Dim3::from(256), Dim3::from(32), &Params::new().pointer(out), &options).unwrap();
        let mut bytes = vec![0; 4 * 257];
        emulator.read(out, &mut bytes).unwrap();
        bytes
    };
    let first = run();
    assert!((0..5).all(|_| run() == first), "the order differs from run to run");
}
