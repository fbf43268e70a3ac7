"""Other people's kernels on the emulator: launches of PTX, what they are given, what is found and where."""

import dataclasses
import json

import numpy as np
import pytest

import tessera
import tessera.emu as emu
from tessera.emu._places import Places

HEAD = ".version 8.0\n.target sm_90a\n.address_size 64\n"

#: y[i] = x[i] * scale for i < n, of blocks of 64 threads.
SCALE = (
    HEAD
    + """.file 1 "scale.cu"
.visible .entry scale(.param .u64 x, .param .u64 y, .param .f32 factor, .param .u32 n)
{
    .reg .pred %p;
    .reg .b32 %i, %t, %n;
    .reg .f32 %v, %f;
    .reg .b64 %x, %y, %o;
    ld.param.u64 %x, [x];
    ld.param.u64 %y, [y];
    ld.param.f32 %f, [factor];
    ld.param.u32 %n, [n];
    mov.u32 %i, %ctaid.x;
    mov.u32 %t, %tid.x;
    mad.lo.u32 %i, %i, 64, %t;
    setp.ge.u32 %p, %i, %n;
    @%p ret;
    mul.wide.u32 %o, %i, 4;
    add.u64 %x, %x, %o;
    add.u64 %y, %y, %o;
    .loc 1 7 5
    ld.global.f32 %v, [%x];
    mul.f32 %v, %v, %f;
    .loc 1 8 5
    st.global.f32 [%y], %v;
    ret;
}
"""
)


def scaled(x, y, n, **how):
    return emu.run(SCALE, 4, 64, (x, y, 2.0, n), **how)


def entry(params, body, registers=""):
    """A module of one kernel."""
    return f"{HEAD}.visible .entry k({params})\n{{\n{registers}    .reg .b32 %r<8>;\n    .reg .b64 %d<8>;\n{body}\n    ret;\n}}\n"


def test_a_kernel_runs_on_the_arrays_of_the_program():
    x, y = np.arange(200, dtype=np.float32), np.zeros(200, np.float32)
    report = scaled(x, y, 200)
    assert np.array_equal(y, 2 * x)
    assert report.finished and not report.findings and report.instructions > 200 * 10
    assert (report.kernel, report.grid, report.block) == ("scale", (4, 1, 1), (64, 1, 1))
    assert "nothing found" in str(report)


@pytest.mark.parametrize("step", [1, 2])
def test_views_lie_as_they_lie_on_the_host(step):
    base = np.arange(100, dtype=np.float32)
    scaled(base[10 : 10 + 8 * step : step], base[50:], 8)
    assert np.array_equal(base[50:58], 2 * np.arange(10, 18, dtype=np.float32))
    assert np.array_equal(base[:50], np.arange(50))


def test_other_libraries_arrays_are_taken():
    class Other:
        def __init__(self, array):
            self.array = array

        def __dlpack__(self, **keywords):
            return self.array.__dlpack__(**keywords)

        def __dlpack_device__(self):
            return self.array.__dlpack_device__()

    x, y = np.ones(64, np.float32), np.zeros(64, np.float32)
    scaled(Other(x), Other(y), 64)
    assert np.array_equal(y, 2 * x)


@pytest.mark.parametrize(("target", "device"), [("sm_52", "v100"), ("sm_80", "a100"), ("sm_87", "l40s"), ("sm_90a", "h200")])
def test_a_module_runs_on_the_next_chip(target, device):
    x, y = np.ones(64, np.float32), np.zeros(64, np.float32)
    launch = emu.Launch(SCALE.replace("sm_90a", target), 1, 64, (x, y, 3.0, 64))
    assert launch.machine().device in (device, "rtx4090")
    launch.run()
    assert (y == 3).all()


def test_a_module_for_a_chip_that_there_is_not():
    with pytest.raises(tessera.ArgumentError, match="`sm_120` is no device"):
        emu.run(SCALE.replace("sm_90a", "sm_120"), 1, 64, (None, None, 1.0, 0))


def test_a_finding_is_data_with_its_places():
    x, y = np.ones(100, np.float32), np.zeros(100, np.float32)
    with pytest.raises(tessera.SanitizerError) as caught:
        scaled(x, y, 128)
    (finding,) = caught.value.report.findings
    assert (finding.class_, finding.kind, finding.file, finding.line, finding.place.column) == ("wrong", "out-of-bounds", "scale.cu", 7, 5)
    assert SCALE.splitlines()[finding.ptx_line - 1].strip() == "ld.global.f32 %v, [%x];"
    assert finding.place.block == caught.value.block == (1, 0, 0) and finding.place.thread == (36, 0, 0)
    assert "scale.cu:7:5" in str(caught.value) and not caught.value.report.finished
    (plain,) = caught.value.findings
    assert json.loads(json.dumps(plain))["ptx_line"] == finding.ptx_line and plain["id"] == "out-of-bounds"
    assert not y.any(), "what a failing launch wrote is not in the arrays"


def test_what_raises_is_the_callers_choice():
    x, y = np.ones(100, np.float32), np.zeros(100, np.float32)
    report = scaled(x, y, 128, raise_on=None)
    assert [finding.kind for finding in report.findings] == ["out-of-bounds"] and not report.finished
    with pytest.raises(tessera.ArgumentError, match="raise_on='never'"):
        scaled(x, y, 100, raise_on="never")
    report = scaled(x, y, 128, raise_on=None, keep_going=True)
    assert report.finished and [finding.count for finding in report.findings] == [28, 28]
    assert np.array_equal(y, 2 * x)


def test_findings_are_let_pass_by_rules():
    x, y = np.ones(64, np.float32), np.zeros(64, np.float32)
    report = emu.run(SCALE, 1, 64, (emu.Unwritten(x), y, 2.0, 64), suppress="uninitialized scale scale.cu:8 -- the test wants it")
    assert not report.findings and [passed.kind for passed in report.suppressed] == ["uninitialized"]
    with pytest.raises(tessera.ArgumentError, match="suppressions: "):
        scaled(x, y, 64, suppress="uninitialized")


def test_unwritten_contents_are_found_where_they_matter():
    x, y = np.ones(64, np.float32), np.zeros(64, np.float32)
    assert not scaled(x, emu.Unwritten(y), 64).findings
    with pytest.raises(tessera.SanitizerError, match="uninitialized") as caught:
        scaled(emu.Unwritten(x), y, 64)
    (finding,) = caught.value.report.findings
    assert finding.line == 8 and finding.earlier.line == 7 and finding.count == 64
    assert scaled(emu.Unwritten(x), y, 64, sanitize="race").findings == ()
    assert scaled(emu.Unwritten(x), y, 64, sanitize=None).findings == ()


#: A sum of 64 numbers in shared memory, with or without its barrier.
SHARED = (
    HEAD
    + """.extern .shared .align 4 .b8 memory[];
.visible .entry sum(.param .u64 x, .param .u64 y)
{
    .reg .b32 %t, %at, %v, %w, %base;
    .reg .b64 %x, %y, %o;
    ld.param.u64 %x, [x];
    ld.param.u64 %y, [y];
    mov.u32 %t, %tid.x;
    mov.u32 %base, memory;
    mad.lo.u32 %at, %t, 4, %base;
    mul.wide.u32 %o, %t, 4;
    add.u64 %x, %x, %o;
    add.u64 %y, %y, %o;
    ld.global.u32 %v, [%x];
    st.shared.u32 [%at], %v;
    bar.sync 0;
    xor.b32 %t, %t, 63;
    mad.lo.u32 %at, %t, 4, %base;
    ld.shared.u32 %w, [%at];
    add.u32 %v, %v, %w;
    st.global.u32 [%y], %v;
    ret;
}
"""
)


def test_dynamic_shared_memory_and_a_race_in_it():
    x, y = np.arange(64, dtype=np.int32), np.zeros(64, np.int32)
    emu.run(SHARED, 1, 64, (x, y), shared=256)
    assert (y == 63).all()
    with pytest.raises(tessera.SanitizerError, match="out-of-bounds"):
        emu.run(SHARED, 1, 64, (x, y), shared=252)
    with pytest.raises(tessera.SanitizerError, match="race: "):
        emu.run(SHARED.replace("    bar.sync 0;\n", ""), 1, 64, (x, y), shared=256)


def test_an_exploration_collects_what_schedules_find():
    x, y = np.arange(64, dtype=np.int32), np.zeros(64, np.int32)
    launch = emu.Launch(SHARED, 1, 64, (x, y), shared=256)
    explored = launch.explore(seeds=range(3))
    assert [(report.schedule, report.seed) for report in explored.reports] == [("eager", 0), ("lazy", 0), *(("random", seed) for seed in range(3))]
    assert explored.outcomes == 1 and not explored.findings and (y == 63).all()
    wrong = dataclasses.replace(launch, ptx=SHARED.replace("    bar.sync 0;\n", ""))
    explored = wrong.explore(raise_on=None)
    assert {finding.kind for finding in explored.findings} == {"race", "uninitialized"}
    y[:] = 7
    with pytest.raises(tessera.SanitizerError):
        wrong.explore()
    assert (y == 7).all()


def test_results_that_depend_on_the_order_of_atomics_are_counted():
    body = """    ld.param.u64 %d0, [x];
    mov.u32 %r0, %tid.x;
    shr.u32 %r0, %r0, 5;
    add.u32 %r0, %r0, 1;
    atom.global.exch.b32 %r1, [%d0], %r0;"""
    x = np.zeros(1, np.int32)
    explored = emu.explore(entry(".param .u64 x", body), 1, 96, (x,), seeds=range(6))
    assert explored.outcomes > 1 and not explored.findings and x[0] in (1, 2, 3)
    report = emu.run(entry(".param .u64 x", body), 1, 33, (x,), schedule="systematic", raise_on=None)
    assert [finding.kind for finding in report.findings] == ["nondeterministic"] and report.explored["outcomes"] == 2


def test_launches_share_a_machines_memory():
    x, y, z = np.arange(64, dtype=np.float32), np.zeros(64, np.float32), np.zeros(64, np.float32)
    gpu = emu.Machine("sm_90a")
    assert gpu.device == "h200"
    gpu.run(SCALE, 1, 64, (x, emu.Unwritten(y), 2.0, 64))
    gpu.run(SCALE, 1, 64, (y, z, 3.0, 64))
    assert np.array_equal(z, 6 * x)
    for _ in range(3):
        gpu.run(SCALE, 1, 64, (y[:], z[:], 3.0, 64))
    assert sum(len(piece.arrays) for piece in gpu.memory._pieces) == 3, "views of one range are one array"
    y[:32] = 1
    gpu.run(SCALE, 1, 64, (y, z, 3.0, 64))
    assert np.array_equal(z, np.where(np.arange(64) < 32, 3, 6 * x)), "what the host wrote between two launches counts"
    with pytest.raises(tessera.ArgumentError, match="partly"):
        gpu.run(SCALE, 1, 64, (np.lib.stride_tricks.as_strided(x, (65,), (4,)), z, 3.0, 64))


def test_variables_of_a_module_keep_what_launches_write():
    body = "    atom.global.add.u32 %r0, [count], 1;\n    ld.param.u64 %d0, [x];\n    st.global.u32 [%d0], %r0;"
    ptx = entry(".param .u64 x", body).replace(".visible", ".global .u32 count = 5;\n.visible")
    x = np.zeros(1, np.int32)
    gpu = emu.Machine()
    gpu.run(ptx, 1, 1, (x,))
    gpu.run(ptx, 1, 1, (x,))
    assert x[0] == 6


def test_calls_without_end_come_to_the_end_of_the_stack():
    ptx = entry("", "    call again;").replace(".visible", ".func again() { call again; ret; }\n.visible")
    with pytest.raises(tessera.SanitizerError, match="the calls need more than 16384 bytes of stack"):
        emu.run(ptx, 1, 32, (), timeout=20)


def test_structures_and_arrays_of_pointers():
    body = """    ld.param.u64 %d0, [list];
    ld.param.u64 %d1, [both];
    ld.param.u32 %r0, [both+8];
    ld.param.f32 %f, [both+12];
    ld.param.u8 %h, [flag];
    ld.global.u64 %d2, [%d0+8];
    ld.global.u32 %r1, [%d2];
    add.u32 %r1, %r1, %r0;
    cvt.rzi.u32.f32 %r2, %f;
    add.u32 %r1, %r1, %r2;
    cvt.u32.u16 %r2, %h;
    add.u32 %r1, %r1, %r2;
    st.global.u32 [%d1], %r1;"""
    params = ".param .u64 list, .param .align 8 .b8 both[16], .param .u8 flag"
    ptx = entry(params, body, "    .reg .f32 %f;\n    .reg .b16 %h;\n")
    x, y, out = np.array([1], np.int32), np.array([20], np.int32), np.zeros(1, np.int32)
    emu.run(ptx, 1, 1, ([x, y], (out, 300, 4000.0), True))
    assert out[0] == 4321
    for wrong in ((out,), b"abc", np.float64(1)):
        with pytest.raises(tessera.ArgumentError, match="`both` is a parameter of 16 bytes"):
            emu.run(ptx, 1, 1, ([x, y], wrong, True))


def test_numbers_have_the_parameters_type():
    body = "    ld.param.u64 %d0, [x];\n    ld.param.b32 %r0, [v];\n    st.global.u32 [%d0], %r0;"
    ptx = entry(".param .u64 x, .param .b32 v", body)
    out = np.zeros(1, np.uint32)
    for given, bits in (
        (-1, 0xFFFFFFFF),
        (7, 7),
        (1.5, 0x3FC00000),
        (np.float32(1.5), 0x3FC00000),
        (np.float64(2), 0x40000000),
        (1e60, 0x7F800000),
        (-1e60, 0xFF800000),
        (True, 1),
        (None, 0),
    ):
        emu.run(ptx, 1, 1, (out, given))
        assert out[0] == bits, given
    with pytest.raises(tessera.ArgumentError, match="`v` has 4 bytes, and 4294967296 does not fit"):
        emu.run(ptx, 1, 1, (out, 1 << 32))
    with pytest.raises(tessera.ArgumentError, match="`n` is an integer"):
        emu.run(SCALE, 1, 64, (out, out, 1.0, 2.5))


def test_a_tensor_map_is_made_over_an_array():
    body = """    ld.param.u64 %d0, [out];
    mov.u32 %r0, buffer;
    mov.u32 %r1, barrier;
    mbarrier.init.shared.b64 [%r1], 1;
    fence.proxy.async;
    mbarrier.arrive.expect_tx.shared.b64 _, [%r1], 128;
    mov.u64 %d1, map;
    cvta.param.u64 %d1, %d1;
    cp.async.bulk.tensor.2d.shared::cluster.global.tile.mbarrier::complete_tx::bytes [%r0], [%d1, {4, 2}], [%r1];
wait:
    mbarrier.try_wait.parity.shared.b64 %p, [%r1], 0;
    @!%p bra wait;
    ld.shared.f32 %f, [buffer+36];
    st.global.f32 [%d0], %f;"""
    shared = "    .shared .align 128 .b8 buffer[128];\n    .shared .align 8 .b64 barrier;\n    .reg .pred %p;\n    .reg .f32 %f;\n"
    ptx = entry(".param .align 64 .b8 map[128], .param .u64 out", body, shared)
    x, out = np.arange(96, dtype=np.float32).reshape(8, 12), np.zeros(1, np.float32)
    emu.run(ptx, 1, 1, (emu.TensorMap(x, tile=(4, 8)), out))
    assert out[0] == x[3, 5]
    for given, text in (
        ({"tile": (4, 300)}, "300"),
        ({"tile": (4, 8), "swizzle": 48}, "`48` is no swizzle"),
        ({"tile": (4, 8), "fill": "one"}, "fill='one'"),
    ):
        with pytest.raises(tessera.ArgumentError, match=text):
            emu.run(ptx, 1, 1, (emu.TensorMap(x, **given), out))
    with pytest.raises(tessera.ArgumentError, match="last axis is contiguous"):
        emu.run(ptx, 1, 1, (emu.TensorMap(x.T, tile=(4, 8)), out))


def test_clusters_are_launched():
    body = """    ld.param.u64 %d0, [x];
    mov.u32 %r0, %cluster_nctaid.x;
    mov.u32 %r1, %ctaid.x;
    mad.wide.u32 %d0, %r1, 4, %d0;
    st.global.u32 [%d0], %r0;"""
    x = np.zeros(4, np.int32)
    emu.run(entry(".param .u64 x", body), 4, 1, (x,), cluster=2)
    assert (x == 2).all()
    with pytest.raises(tessera.ArgumentError, match="cannot be cut into clusters"):
        emu.run(entry(".param .u64 x", body), 4, 1, (x,), cluster=3)


def test_arrays_that_must_not_be_written_are_not():
    x = np.arange(64, dtype=np.float32)
    x.flags.writeable = False
    out = np.zeros(64, np.float32)
    scaled(x, out, 64)
    assert np.array_equal(out, 2 * x)
    with pytest.raises(tessera.ArgumentError, match="the kernel writes `y`"):
        scaled(out, x, 64)
    assert x[1] == 1
    body = "    ld.param.u64 %d0, [x];\n    ld.param.u64 %d1, [y];\n    st.global.u32 [%d0], 7;\n    st.global.u32 [%d1], 7;"
    with pytest.raises(tessera.ArgumentError, match="the kernel writes `y`"):
        emu.run(entry(".param .u64 x, .param .u64 y", body), 1, 1, (out, x))
    assert out[0] == 0, "nothing is written where something is refused"


class OnGpu:
    """As an array of CuPy's looks."""

    device = 0

    __cuda_array_interface__ = {"shape": (64,), "typestr": "<f4", "data": (4096, False), "version": 3}


@pytest.mark.parametrize(
    ("call", "error", "text"),
    [
        (lambda x: emu.run("nothing", 1, 1, ()), tessera.ArgumentError, r"no `\.target` line"),
        (lambda x: emu.run(7, 1, 1, ()), tessera.ArgumentError, "PTX is a text"),
        (lambda x: emu.run(SCALE, 1, 64, (x, x)), tessera.ArgumentError, "2 arguments for 4 parameters of `scale`"),
        (lambda x: emu.run(SCALE, 1, 64, (x, x, 1.0, 1), entry="other"), tessera.ArgumentError, "no kernel `other`: the PTX has scale"),
        (lambda x: emu.run(SCALE + SCALE[SCALE.index(".visible") :].replace("scale", "two"), 1, 64, ()), tessera.ArgumentError, "no kernel is named"),
        (lambda x: emu.run(SCALE, 0, 64, (x, x, 1.0, 1)), tessera.ArgumentError, "a grid is one to three positive"),
        (lambda x: emu.run(SCALE, 1, 2048, (x, x, 1.0, 1)), tessera.ArgumentError, "at most 1024"),
        (lambda x: emu.run(SCALE, 1, 64, (x, x, 1.0, 1), schedule="fast"), tessera.ArgumentError, "`fast` is no schedule"),
        (lambda x: emu.run(SCALE, 1, 64, (x, x, 1.0, 1), sanitize="rust"), tessera.ArgumentError, "`rust` is no check"),
        (lambda x: emu.run(SCALE, 1, 64, (x, x, 1.0, 1), speed=3), tessera.ArgumentError, "a launch has no `speed`"),
        (lambda x: emu.run(SCALE, 1, 64, (x, x, 1.0, 1), timeout=-1.0), tessera.ArgumentError, "a timeout of -1 s"),
        (lambda x: emu.run(SCALE, 1, 64, (x, x, 1.0, 1), timeout="a"), tessera.ArgumentError, "`timeout` is a number of seconds, not 'a'"),
        (lambda x: emu.run(SCALE, 1, 64, (x, x, 1.0, 1), suppress=3), tessera.ArgumentError, "`suppress` is a text, not 3"),
        (lambda x: emu.run(SCALE, 1, 64, (x, x, 1.0, 1), schedule=None), tessera.ArgumentError, "`schedule` is a text, not None"),
        (lambda x: emu.run(SCALE, 1, 64, (x, x, 1.0, 1), target="sm_12"), tessera.ArgumentError, "`sm_12` is no device"),
        (lambda x: emu.run(SCALE, 1, 64, (x, x, 1.0, 1), target="a100"), tessera.DeviceError, "the device is sm_80"),
        (lambda x: emu.run(SCALE, 1, 64, (object(), x, 1.0, 1)), tessera.ArgumentError, "`x` is a `object`"),
        (lambda x: emu.run(SCALE, 1, 64, (OnGpu(), x, 1.0, 1)), tessera.ArgumentError, "`x` is on GPU 0"),
        (lambda x: emu.run(SCALE, 1, 64, (x[::-1], x, 1.0, 1)), tessera.ArgumentError, "run backwards"),
        (lambda x: emu.explore(SCALE, 1, 64, (x, x, 1.0, 1), schedules=()), tessera.ArgumentError, "a schedule and a seed"),
    ],
)
def test_mistakes_of_a_call_are_told(call, error, text):
    with pytest.raises(error, match=text):
        call(np.zeros(64, np.float32))


def test_ptx_that_is_none_is_a_syntax_error_with_its_line():
    with pytest.raises(tessera.errors.TileSyntaxError) as caught:
        emu.run(entry(".param .u64 x", "    frobnicate.u32 %r0, %r1;"), 1, 1, (None,))
    assert isinstance(caught.value, SyntaxError) and caught.value.lineno == 8 and "frobnicate" in caught.value.text
    with pytest.raises(tessera.errors.TileUnsupportedFeatureError, match="performance counters") as caught:
        emu.run(entry(".param .u64 x", "    mov.u32 %r0, %pm0;"), 1, 1, (None,))
    assert caught.value.lineno == 8


def test_a_launch_that_never_ends_is_stopped():
    body = "    mov.u32 %r0, 1;\nagain:\n    add.u32 %r0, %r0, 2;\n    setp.ne.u32 %p, %r0, 0;\n    @%p bra again;"
    with pytest.raises(tessera.SanitizerError, match="never-ends"):
        emu.run(entry("", body, "    .reg .pred %p;\n"), 1, 1, timeout=0.3)


def test_what_a_kernel_prints_is_printed(capsys):
    body = """    .local .align 8 .b8 own[8];
    mov.u32 %r0, %tid.x;
    st.local.u32 [own], %r0;
    mov.u64 %d0, own;
    cvta.local.u64 %d0, %d0;
    mov.u64 %d1, text;
    cvta.global.u64 %d1, %d1;
    { .param .b64 a; .param .b64 b; .param .b32 c;
    st.param.b64 [a], %d1;
    st.param.b64 [b], %d0;
    call.uni (c), vprintf, (a, b); }"""
    head = ".extern .func (.param .b32 status) vprintf (.param .b64 format, .param .b64 list);\n"
    text = ".global .align 1 .b8 text[9] = {105, 32, 61, 32, 37, 100, 10, 0, 0};\n"
    ptx = entry("", body).replace(".visible", head + text + ".visible")
    assert emu.run(ptx, 1, 2).printed == "i = 0\ni = 1\n" == capsys.readouterr().out


def test_empty_arrays_have_no_memory():
    x = np.zeros(0, np.float32)
    assert scaled(x, x, 0).finished
    with pytest.raises(tessera.SanitizerError, match="out-of-bounds"):
        scaled(x, x, 1)


def test_places_follow_calls_and_inline_assembler():
    places = Places("""
.visible .entry k()
{
    .loc 1 13 18
    .loc 2 216 16, function_name $L__info_string0, inlined_at 1 13 18
    .loc 2 196 12, function_name $L__info_string0, inlined_at 2 216 16
    max.f32 %r12, %r1, %r3;
    .loc 1 7 19
    // begin inline asm
    .loc 1 7 20
    mov.u32 %r1, 0x0;
    .loc 1 8 20
    ld.global.b32 %r1, [%rd1];
    // end inline asm
    .loc 1 0 3
    ret;
}
.func other()
{
    ret;
}
    .file 1 "kernel.py"
    .file 2 "standard.py"
""")
    assert places.of(7) == (("standard.py", 196, 12), ("standard.py", 216, 16), ("kernel.py", 13, 18))
    assert places.of(13) == places.of(11) == (("kernel.py", 7, 20),), "lines within inline assembler are not the source's"
    assert places.of(16) == () and places.of(20) == ()


def test_a_machine_leaves_what_the_host_has_done_to_earlier_arrays():
    machine = emu.Machine("sm_90a")
    x, first, second = np.ones(64, np.float32), np.zeros(64, np.float32), np.zeros(64, np.float32)
    machine.run(SCALE, 1, 64, (x, first, 2.0, 64))
    first[:] = 100
    machine.run(SCALE, 1, 64, (x, second, 3.0, 64))
    assert (first == 100).all() and (second == 3).all()
