//! Where execution goes: indexed branches, calls with registers as parameters, guarded and recursive calls, calls by pointer
//! that part a warp, and the carry flag from one instruction to the next.

use tessera_driver::{Dim3, Params};
use tessera_emu::{EmuError, EmuOptions, Emulator, FindingKind, LaunchOptions, Sanitize, Schedule};

/// Runs `k` on one warp: lane i's result is word i.
fn run(text: &str, schedule: Schedule) -> Result<Vec<u32>, EmuError> {
    let emulator = Emulator::new(&EmuOptions::default()).unwrap();
    let module = emulator.load(&format!(".version 8.0\n.target sm_90a\n.address_size 64\n{text}"))?;
    let out = emulator.alloc(128).unwrap();
    emulator.write(out, &[0; 128]).unwrap();
    let options = LaunchOptions { schedule, sanitize: Sanitize::ALL, ..LaunchOptions::default() };
    let report = emulator.launch(&module, "k", Dim3::ONE, Dim3::from(32), &Params::new().pointer(out), &options)?;
    assert_eq!(report.findings, []);
    let mut bytes = [0; 128];
    emulator.read(out, &mut bytes).unwrap();
    Ok(bytes.chunks_exact(4).map(|word| u32::from_le_bytes(word.try_into().unwrap())).collect())
}

/// A kernel around a body that leaves its result in `%x`.
fn kernel(functions: &str, body: &str) -> String {
    format!(
        "{functions}
.visible .entry k(.param .u64 out)
{{
    .reg .pred %p, %q;
    .reg .b32 %x, %y, %t, %r<8>;
    .reg .b64 %o, %f;
    ld.param.u64 %o, [out];
    mov.u32 %t, %tid.x;
    mad.wide.u32 %o, %t, 4, %o;
    mov.u32 %x, 0;
{body}
    st.global.u32 [%o], %x;
    ret;
}}"
    )
}

fn agrees(text: &str, wanted: impl Fn(u32) -> u32) {
    for schedule in [Schedule::Eager, Schedule::Lazy, Schedule::Random] {
        let got = run(text, schedule).unwrap_or_else(|error| panic!("{error}"));
        assert_eq!(got, (0..32).map(&wanted).collect::<Vec<_>>());
    }
}

#[test]
fn indexed_branches_part_a_warp_and_meet_again() {
    let body = "
    and.b32 %y, %t, 3;
    setp.lt.u32 %p, %t, 30;
ways: .branchtargets two, one, two, three;
    @%p brx.idx %y, ways;
    mov.u32 %x, 9;
    bra met;
one:
    mov.u32 %x, 100;
    bra met;
two:
    mov.u32 %x, 200;
three:
    add.u32 %x, %x, 5;
met:
    shfl.sync.bfly.b32 %y, %x, 1, 31, -1;
    add.u32 %x, %x, %y;";
    let own = |t: u32| if t >= 30 { 9 } else { [205, 100, 205, 5][(t & 3) as usize] };
    agrees(&kernel("", body), |t| own(t) + own(t ^ 1));
    let beyond = body.replace("and.b32 %y, %t, 3", "and.b32 %y, %t, 7");
    let Err(EmuError::Fault { finding, .. }) = run(&kernel("", &beyond), Schedule::Eager) else { panic!("no fault") };
    assert_eq!((finding.kind, &*finding.message), (FindingKind::OutOfBounds, "branch 4 of 4"));
}

#[test]
fn registers_are_parameters() {
    let functions = "
.func (.reg .b32 sum) both(.reg .b32 a, .reg .b32 b)
{
    .reg .b32 %r<2>;
    add.u32 %r0, a, b;
    mul.lo.u32 sum, %r0, 2;
    ret;
}";
    agrees(&kernel(functions, "    setp.ge.u32 %p, %t, 8;\n    @%p call (%x), both, (%t, 7);"), |t| {
        if t < 8 { 0 } else { (t + 7) * 2 }
    });
}

const FACTORIAL: &str = "
.func (.param .b32 result) factorial(.param .b32 n)
{
    .reg .pred %p;
    .reg .b32 %n, %r;
    .local .align 4 .b8 own[4];
    .param .b32 argument;
    .param .b32 back;
    ld.param.b32 %n, [n];
    st.local.b32 [own], %n;
    mov.u32 %r, 1;
    setp.lt.u32 %p, %n, 2;
    @%p bra done;
    sub.u32 %r, %n, 1;
    st.param.b32 [argument], %r;
    call (back), factorial, (argument);
    ld.param.b32 %r, [back];
    ld.local.b32 %n, [own];
    mul.lo.u32 %r, %r, %n;
done:
    st.param.b32 [result], %r;
    ret;
}";

#[test]
fn each_call_has_a_frame_of_its_own() {
    let body = "
    .param .b32 argument;
    .param .b32 back;
    and.b32 %y, %t, 7;
    st.param.b32 [argument], %y;
    call (back), factorial, (argument);
    ld.param.b32 %x, [back];";
    agrees(&kernel(FACTORIAL, body), |t| (1..=t & 7).product());
    // Without an end the stack runs out.
    let endless = FACTORIAL.replace("    @%p bra done;\n", "");
    let Err(EmuError::Fault { finding, .. }) = run(&kernel(&endless, body), Schedule::Eager) else { panic!("no fault") };
    assert!(finding.message.contains("bytes of stack"), "{finding}");
}

#[test]
fn pointers_part_a_warp() {
    let functions = "
.func (.param .b32 result) plus(.param .b32 n)
{
    .reg .b32 %n;
    ld.param.b32 %n, [n];
    add.u32 %n, %n, 1000;
    st.param.b32 [result], %n;
    ret;
}
.global .u64 table[2] = {plus, factorial};";
    let body = "
    .param .b32 argument;
    .param .b32 back;
    and.b32 %y, %t, 1;
    mov.u64 %f, table;
    mad.wide.u32 %f, %y, 8, %f;
    ld.global.u64 %f, [%f];
    and.b32 %y, %t, 7;
    st.param.b32 [argument], %y;
    setp.lt.u32 %p, %t, 20;
some: .callprototype (.param .b32 _) _ (.param .b32 _);
    @%p call (back), %f, (argument), some;
    @%p ld.param.b32 %x, [back];
    shfl.sync.idx.b32 %y, %x, 0, 31, -1;
    add.u32 %x, %x, %y;";
    let own = |t: u32| match t {
        20.. => 0,
        _ if t & 1 == 0 => (t & 7) + 1000,
        _ => (1..=t & 7).product(),
    };
    agrees(&kernel(&format!("{FACTORIAL}{functions}"), body), |t| own(t) + 1000);
    let nowhere = body.replace("    and.b32 %y, %t, 7;", "    and.b32 %y, %t, 7;\n    mov.u64 %f, 64;");
    let text = kernel(&format!("{FACTORIAL}{functions}"), &nowhere);
    let Err(EmuError::Fault { finding, .. }) = run(&text, Schedule::Eager) else { panic!("no fault") };
    assert!(finding.message.contains("a call to 0x40"), "{finding}");
}

#[test]
fn a_subtraction_sets_the_flag_where_nothing_is_borrowed() {
    // nvcc divides 128-bit numbers with this.
    agrees(&kernel("", "    sub.cc.u32 %y, %t, 10;\n    addc.u32 %x, 0, 0;"), |t| u32::from(t >= 10));
    agrees(&kernel("", "    sub.cc.u32 %y, %t, 10;\n    subc.u32 %x, 5, 0;"), |t| 5 - u32::from(t < 10));
    agrees(&kernel("", "    add.cc.u32 %y, %t, -10;\n    subc.u32 %x, 5, 0;"), |t| 5 - u32::from(t < 10));
}

/// Lanes that end early, or would have trapped, do not keep the others from a barrier.
#[test]
fn paths_that_end_keep_nobody_from_meeting() {
    let trap = ".extern .func __assertfail(.param .b64 a, .param .b64 b, .param .b32 c, .param .b64 d, .param .b64 e);\n";
    // Lanes below 16 check something, and all exchange values at one barrier afterwards.
    let assert = |fails: &str| {
        kernel(
            trap,
            &format!(
                "    setp.ge.u32 %p, %t, 16;
    @%p bra after;
    setp.eq.u32 %q, %t, {fails};
    @%q bra failed;
    add.u32 %x, %x, 100;
    bra after;
failed:
    {{
    .param .b64 a; .param .b64 b; .param .b32 c; .param .b64 d; .param .b64 e;
    call __assertfail, (a, b, c, d, e);
    trap;
    }}
after:
    add.u32 %x, %x, %t;
    bar.sync 0;
    shfl.sync.bfly.b32 %x, %x, 16, 31, -1;"
            ),
        )
    };
    agrees(&assert("99"), |lane| (lane ^ 16) + if lane >= 16 { 100 } else { 0 });
    let Err(EmuError::Fault { finding, .. }) = run(&assert("3"), Schedule::Eager) else { panic!("no trap") };
    assert_eq!(finding.kind, FindingKind::Trap);
    // Even lanes below 16 leave from inside of a branch, by `exit` or by a jump to the one `ret`.
    for leave in ["@%q exit;", "@%q bra out;"] {
        let body = format!(
            "    setp.ge.u32 %p, %t, 16;
    and.b32 %y, %t, 1;
    setp.eq.u32 %q, %y, 0;
    @%p bra after;
    {leave}
    mov.u32 %x, 50;
after:
    bar.sync 0;
    add.u32 %x, %x, 1;
    st.global.u32 [%o], %x;
    bra out;
out:
    ret;"
        );
        agrees(&kernel("", &body), |lane| match lane {
            0..16 if lane % 2 == 0 => 0,
            0..16 => 51,
            _ => 1,
        });
    }
    // Each lane goes round as often as its number says; lane 5 leaves in its second round, to code at the kernel's end.
    let body = "    mov.u32 %r0, 0;
round:
    and.b32 %y, %r0, 1;
    setp.eq.u32 %p, %y, 1;
    @!%p bra even;
    setp.eq.u32 %q, %t, 5;
    @%q bra cold;
    add.u32 %x, %x, 10;
    bra next;
even:
    add.u32 %x, %x, 1;
next:
    add.u32 %r0, %r0, 1;
    setp.lt.u32 %p, %r0, %t;
    @%p bra round;
    bar.sync 0;
    st.global.u32 [%o], %x;
    ret;
cold:
    st.global.u32 [%o], 7;
    ret;";
    agrees(&kernel("", body), |lane| match lane {
        5 => 7,
        _ => {
            let rounds = lane.max(1);
            rounds.div_ceil(2) + 10 * (rounds / 2)
        }
    });
    // One way of an indexed branch traps, one leaves, two go on.
    let body = "    and.b32 %y, %t, 3;
    setp.lt.u32 %p, %t, 32;
ways: .branchtargets one, never, two, gone;
    setp.eq.u32 %q, %y, 1;
    selp.u32 %y, 0, %y, %q;
    brx.idx %y, ways;
never:
    trap;
gone:
    st.global.u32 [%o], 3;
    exit;
one:
    add.u32 %x, %x, 1;
    bra met;
two:
    add.u32 %x, %x, 2;
met:
    bar.sync 0;";
    agrees(&kernel("", body), |lane| [1, 1, 2, 3][lane as usize % 4]);
}
