"""The pytest fixture ``emulate``, by tests of its own."""

import pytest

from tessera import _pytest_emulate

pytest_plugins = ("pytester",)

PTX = '''
import numpy as np
import pytest

pytest_plugins = ("tessera._pytest_emulate",)

PTX = """.version 8.0
.target sm_80
.address_size 64
.extern .shared .align 4 .b8 memory[];
.visible .entry sum(.param .u64 x)
{
    .reg .b32 %t, %at, %v, %base;
    .reg .b64 %x, %o;
    ld.param.u64 %x, [x];
    mov.u32 %t, %tid.x;
    mov.u32 %base, memory;
    mad.lo.u32 %at, %t, 4, %base;
    st.shared.u32 [%at], %t;
    BARRIER
    xor.b32 %v, %t, 32;
    mad.lo.u32 %at, %v, 4, %base;
    ld.shared.u32 %v, [%at];
    mad.wide.u32 %x, %t, 4, %x;
    st.global.u32 [%x], %v;
    ret;
}
"""

x = np.zeros(64, np.int32)
'''


#: Without the package's own plugin, which has the option already.
ALONE = ("-p", "no:tessera.pytest_plugin")


def run(pytester, text, *options):
    pytester.makepyfile(PTX + text)
    return pytester.runpytest(*options, "-p", "no:cacheprovider")


def test_findings_fail_a_test(pytester):
    ran = run(
        pytester,
        """
def test_right(emulate):
    report = emulate(PTX.replace("BARRIER", "bar.sync 0;"), 1, 64, (x,), shared=256)
    assert np.array_equal(x, np.arange(64) ^ 32) and emulate.reports == [report]

def test_wrong(emulate):
    emulate(PTX.replace("BARRIER", ""), 1, 64, (x,), shared=256)
""",
    )
    ran.assert_outcomes(passed=1, failed=1)
    ran.stdout.fnmatch_lines(["*race: a write of shared*"])


def test_the_fixture_has_the_functions_of_the_package(pytester):
    ran = run(
        pytester,
        """
def test_right(emulate):
    right = PTX.replace("BARRIER", "bar.sync 0;")
    report = emulate.run(right, 1, 64, (x,), shared=256)
    explored = emulate.explore(right, 1, 64, (x,), shared=256, schedules=("eager", "lazy"))
    assert [report.schedule for report in explored.reports] == ["eager", "lazy"] and explored.outcomes == 1
    assert emulate.reports == [report, explored]

@pytest.mark.emulate(schedules=("eager", "random"), seeds=(5,))
def test_marked(emulate):
    explored = emulate.run(PTX.replace("BARRIER", "bar.sync 0;"), 1, 64, (x,), shared=256)
    assert [(report.schedule, report.seed) for report in explored.reports] == [("eager", 5), ("random", 5)]

def test_compiles(emulate):
    import tessera.emu
    assert emulate.compile_cuda is tessera.emu.compile_cuda

@pytest.mark.parametrize("how", ("run", "explore"))
def test_wrong(emulate, how):
    getattr(emulate, how)(PTX.replace("BARRIER", ""), 1, 64, (x,), shared=256)
""",
        "-W",
        "ignore::pytest.PytestUnknownMarkWarning",
    )
    ran.assert_outcomes(passed=3, failed=2)
    ran.stdout.fnmatch_lines(["*race: a write of shared*"])


def test_markers_name_schedules_and_checks(pytester):
    ran = run(
        pytester,
        """
@pytest.mark.emulate(schedules=("eager", "random"), seeds=range(3))
def test_schedules(emulate):
    explored = emulate(PTX.replace("BARRIER", "bar.sync 0;"), 1, 64, (x,), shared=256)
    assert [report.schedule for report in explored.reports] == ["eager", "random", "random", "random"]

@pytest.mark.emulate(sanitize="init", schedule="lazy")
def test_checks(emulate):
    report = emulate(PTX.replace("BARRIER", "bar.warp.sync -1;"), 1, 64, (x,), shared=256, raise_on=None)
    assert report.schedule == "lazy" and {finding.kind for finding in report.findings} == {"uninitialized"}
""",
        "-W",
        "ignore::pytest.PytestUnknownMarkWarning",
    )
    ran.assert_outcomes(passed=2)


@pytest.mark.parametrize(
    ("marker", "text"),
    [("speed=3", "has no `speed`"), ("seeds=range(3)", "seeds without schedules"), ("'eager'", "takes keywords")],
)
def test_markers_that_say_nothing_are_told(pytester, marker, text):
    ran = run(
        pytester,
        f"""
@pytest.mark.emulate({marker})
def test_it(emulate):
    pass
""",
        "-W",
        "ignore::pytest.PytestUnknownMarkWarning",
    )
    ran.assert_outcomes(errors=1)
    ran.stdout.fnmatch_lines([f"*{text}*"])


def test_the_option_says_what_is_looked_for(pytester):
    pytester.makeconftest(
        """
from tessera import _pytest_emulate

def pytest_addoption(parser):
    parser.addoption("--tessera-sanitize", default=None)

def pytest_configure(config):
    _pytest_emulate.pytest_configure(config)
"""
    )
    text = """
@pytest.mark.emulate(raise_on=None)
def test_it(emulate):
    report = emulate(PTX.replace("BARRIER", "bar.warp.sync -1;"), 1, 64, (x,), shared=256)
    assert not report.findings
"""
    run(pytester, text, "--strict-markers", "--tessera-sanitize", "barrier", *ALONE).assert_outcomes(passed=1)
    run(pytester, text, "--strict-markers", *ALONE).assert_outcomes(failed=1)


def test_its_markers_are_described(pytester):
    lines = []

    class Config:
        def addinivalue_line(self, kind, text):
            lines.append((kind, text.split("(")[0]))

    _pytest_emulate.pytest_configure(Config())
    assert lines == [("markers", "emulate")]


def test_the_plugin_of_the_package_has_the_marker(pytester):
    pytester.makepyfile("import pytest\n\n@pytest.mark.emulate(raise_on=None)\ndef test_it():\n    pass\n")
    ran = pytester.runpytest_subprocess("-p", "tessera.pytest_plugin", "-p", "no:cacheprovider", "--strict-markers")
    assert ran.ret == 0, ran.stdout.str()
