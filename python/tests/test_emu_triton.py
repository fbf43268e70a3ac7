"""Kernels of Triton's on the emulator: right against NumPy, and their mistakes found, for sm_80 and sm_90a, without a GPU."""

import collections
import dataclasses
import pathlib
import re
import runpy

import numpy as np
import pytest

import tessera
import tessera.emu as emu

pytest.importorskip("triton", reason="needs Triton: pip install 'triton==3.9.*'")
pytestmark = pytest.mark.filterwarnings("ignore:TRITON_DEFAULT_FP_FUSION")

import triton_cases  # noqa: E402
import triton_kernels  # noqa: E402
import triton_mutants as mutants  # noqa: E402
from triton_cases import CASES, randn  # noqa: E402

TARGETS = ("sm_80", "sm_90a")
#: Cases that one target alone can compile.
ONLY = {"matmul_block_scaled": "sm_90a", "matmul_by_a_cluster": "sm_90a", "matmul_by_warps_of_two_kinds": "sm_90a"}


def prepared(case, target="sm_90a"):
    kernel, grid, args, keywords, rows = case()
    return emu.prepare_triton(kernel, grid, *args, target=target, **keywords), rows


def assert_right(rows):
    for array, expected, tolerance in rows:
        away = np.abs(array.astype(np.float64) - expected).max()
        assert away <= tolerance, f"{away} away"


@pytest.mark.parametrize(
    ("case", "target"),
    [pytest.param(case, target, id=f"{case.__name__}-{target}") for case in CASES for target in TARGETS if ONLY.get(case.__name__, target) == target],
)
def test_a_kernel_is_right_and_clean(case, target):
    launch, rows = prepared(case, target)
    report = launch.run(schedule="random", seed=1)
    assert_right(rows)
    assert report.finished and not [finding for finding in report.findings if finding.class_ == "wrong"]


def test_there_are_enough_kernels():
    assert len({case()[0].__name__ for case in CASES}) >= 25


def without(launch, pattern, nth=0):
    """The launch without the nth line of its PTX that has a pattern."""
    lines = launch.ptx.split("\n")
    hits = [index for index, line in enumerate(lines) if re.search(pattern, line)]
    lines[hits[nth]] = ""
    return dataclasses.replace(launch, ptx="\n".join(lines))


@pytest.mark.parametrize(
    ("case", "target", "pattern", "nth", "kinds"),
    [
        ("sums_of_rows", "sm_80", r"bar\.sync", 0, {"race"}),
        ("cumulative_sum", "sm_90a", r"bar\.sync", 0, {"race"}),
        ("transpose", "sm_80", r"bar\.sync", 0, {"race"}),
        ("sort", "sm_80", r"bar\.sync", 3, {"race"}),
        ("gather", "sm_90a", r"bar\.sync", 1, {"race"}),
        ("fused_softmax", "sm_80", r"bar\.sync", 2, {"race"}),
        ("layer_norm_forward", "sm_90a", r"bar\.sync", 1, {"race"}),
        ("matmul_pipelined", "sm_80", r"cp\.async\.wait_group", 0, {"race"}),
        ("matmul_pipelined", "sm_90a", r"cp\.async\.commit_group", 1, {"race"}),
        ("attention_forward", "sm_80", r"bar\.sync", 1, {"race"}),
        ("matmul_warpgroup", "sm_90a", r"fence\.proxy\.async", 0, {"proxy-fence"}),
        ("matmul_warpgroup", "sm_90a", r"wgmma\.fence", 0, {"in-flight"}),
        ("matmul_warpgroup", "sm_90a", r"wgmma\.wait_group\.sync\.aligned 1", 0, {"race"}),
        ("matmul_by_descriptors", "sm_90a", r"mbarrier\.init", 0, {"mbarrier"}),
        ("matmul_by_descriptors", "sm_90a", r"mbarrier\.arrive\.expect_tx", 0, {"deadlock"}),
        ("matmul_by_descriptors", "sm_90a", r"cp\.async\.bulk\.wait_group", 0, {"in-flight"}),
    ],
)
def test_a_line_that_is_left_out_of_the_ptx_is_missed(case, target, pattern, nth, kinds):
    launch, _ = prepared(getattr(triton_cases, case), target)
    explored = without(launch, pattern, nth).explore(seeds=range(1), raise_on=None)
    wrong = [finding for finding in explored.findings if finding.class_ == "wrong"]
    assert kinds <= {finding.kind for finding in wrong}
    for finding in wrong:
        assert finding.file == triton_kernels.__file__ and finding.line


def line_of(kernel):
    """The line of a mutant that is marked."""
    (offset,) = [offset for offset, line in enumerate(kernel.raw_src) if line.rstrip().endswith("# here")]
    return kernel.starting_line_number + offset


MISTAKES = {
    "add_without_a_mask": lambda: ((4,), (randn(1000), randn(1000), randn(1000), 1000), {"BLOCK": 256}, "out-of-bounds"),
    "transpose_by_the_wrong_stride": lambda: ((2, 2), (randn(40, 50), randn(50, 40), 40, 50), {"BM": 32, "BN": 32}, "out-of-bounds"),
    "histogram_without_atomics": lambda: (
        (3,),
        (np.arange(600, dtype=np.int32) % 16, np.zeros(16, np.int32), 600),
        {"BINS": 16, "BLOCK": 256},
        "race",
    ),
    "split_k_without_atomics": lambda: (
        (2,),
        (randn(16, 64, dtype=np.float16), randn(64, 16, dtype=np.float16, seed=1), np.zeros((16, 16), np.float32), 16, 16, 64),
        {"BM": 16, "BN": 16, "BK": 32},
        "race",
    ),
    "conv1d_before_the_start": lambda: ((2, 3), (randn(3, 150), randn(3, 4), randn(3, 150), 150, 3), {"WIDTH": 4, "BLOCK": 128}, "out-of-bounds"),
    "scores_of_keys_behind_the_end": lambda: (
        (1,),
        (randn(20, 16, dtype=np.float16), randn(20, 16, dtype=np.float16), randn(20, 20), 20),
        {"BM": 32, "D": 16},
        "out-of-bounds",
    ),
    "lock_that_a_plain_store_opens": lambda: ((3,), (np.zeros(1, np.int32), np.zeros(1, np.int32)), {"BLOCK": 1}, "race"),
    "lock_that_nobody_opens": lambda: ((3,), (np.zeros(1, np.int32), np.zeros(1, np.int32)), {"BLOCK": 1, "timeout": 0.5}, "never-ends"),
    "label_without_a_class": lambda: ((2,), (randn(2, 10), np.array([3, -30], np.int64), randn(2), 10), {"BLOCK": 16}, "out-of-bounds"),
    "assertion_that_fails": lambda: ((1,), (np.arange(128, dtype=np.float32),), {"BLOCK": 128, "debug": True}, "trap"),
}


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("name", MISTAKES)
def test_a_mistake_of_a_kernel_is_found_at_its_line(name, target):
    grid, args, keywords, kind = MISTAKES[name]()
    kernel = getattr(mutants, name)
    before = [array.copy() for array in args if isinstance(array, np.ndarray)]
    with pytest.raises(tessera.SanitizerError) as caught:
        emu.triton(kernel, grid, *args, target=target, **keywords)
    found = [finding for finding in caught.value.report.findings if finding.kind == kind]
    assert found, caught.value
    lines = {place.line for finding in found for place in (finding.place, finding.earlier) if place is not None}
    assert line_of(kernel) in lines and found[0].file == mutants.__file__, caught.value
    assert all(np.array_equal(array, old) for array, old in zip((a for a in args if isinstance(a, np.ndarray)), before, strict=True))


def test_a_function_that_is_called_is_named_too():
    grid, args, keywords, _ = MISTAKES["label_without_a_class"]()
    with pytest.raises(tessera.SanitizerError) as caught:
        emu.triton(mutants.label_without_a_class, grid, *args, **keywords)
    inner, outer = caught.value.report.findings[0].place.frames
    assert inner.line == mutants.look_up.starting_line_number + 2 and outer.line == line_of(mutants.label_without_a_class)
    assert f"in triton_mutants.py:{inner.line}" in str(caught.value)


def test_memory_that_nobody_wrote_is_found():
    x = np.arange(1000, dtype=np.int32)
    total, largest = np.zeros(1, np.int32), np.zeros(1, np.int32)
    with pytest.raises(tessera.SanitizerError, match="uninitialized"):
        emu.triton(triton_kernels.grid_sum, (4,), x, emu.Unwritten(total), largest, 1000, BLOCK=256)


def test_arguments_are_specialised_as_by_triton():
    x, y, out = (np.zeros(4096, np.float32) for _ in range(3))
    aligned = emu.prepare_triton(triton_kernels.vector_add, (4,), x, y, out, 1024, BLOCK=256).ptx
    apart = emu.prepare_triton(triton_kernels.vector_add, (4,), x[1:], y[1:], out[1:], 1000, BLOCK=256).ptx
    assert "ld.global.v2" in aligned and "ld.global.v2" not in apart
    assert ".target sm_90a" in aligned


def test_numbers_tuples_and_options_are_passed():
    launch = emu.prepare_triton(triton_kernels.dropout, (3,), randn(600), randn(600), 600, np.float64(0.5), 1, BLOCK=256, num_warps=2, num_stages=2)
    assert launch.block == 64 and launch.entry == "dropout"
    x = randn(8, 64)
    out = np.zeros_like(x)
    grid = lambda meta: (meta["rows"],)  # noqa: E731
    emu.triton(triton_kernels.softmax, grid, x, out, rows=8, stride=64, columns=64, BLOCK=64)
    assert np.allclose(out, triton_cases.softmax_of(x), atol=1e-6)


def test_a_parameter_of_the_kernel_goes_before_the_emulators_own():
    x, out, again = randn(600), np.zeros(600, np.float32), np.zeros(600, np.float32)
    report = emu.triton(triton_kernels.dropout, (3,), x, out, 600, 0.5, seed=3, BLOCK=256, schedule="random")
    assert (report.seed, report.schedule) == (0, "random")
    report = emu.prepare_triton(triton_kernels.dropout, (3,), x, again, 600, 0.5, 3, BLOCK=256).run(schedule="random", seed=5)
    assert report.seed == 5 and np.array_equal(out, again) and out.any()


def test_heuristics_and_configurations():
    import triton

    sized = triton.heuristics({"BLOCK": lambda args: triton.next_power_of_2(args["n"])})(triton_kernels.vector_add)
    x, out = randn(100), np.zeros(100, np.float32)
    assert emu.triton(sized, (1,), x, x, out, 100).finished and np.array_equal(out, 2 * x)
    Kept = collections.namedtuple("Kept", "fn configs")  # as an autotuner is, which itself asks for a GPU
    tuned = Kept(triton_kernels.vector_add, [triton.Config({"BLOCK": 64}, num_warps=2)])
    with pytest.raises(tessera.ArgumentError, match="tuned over 1 configurations"):
        emu.triton(tuned, (2,), x, x, out, 100)
    assert emu.prepare_triton(tuned, (2,), x, x, out, 100, config=tuned.configs[0]).block == 64


def test_what_a_kernel_prints_and_asserts(capsys):
    x = np.arange(64, dtype=np.int32)
    report = emu.triton(triton_kernels.announce, (2,), x, BLOCK=64, num_warps=1, debug=True)
    assert "first" in report.printed and report.printed == capsys.readouterr().out


@pytest.mark.parametrize(
    ("call", "text"),
    [
        (lambda x: emu.triton(triton_kernels.row_sums, (1,), x, x, 100), "BLOCK"),
        (lambda x: emu.triton(triton_kernels.row_sums, (1,), x, x, 100, 128, 3), "takes 4 arguments, and 5 are given"),
        (lambda x: emu.triton(triton_kernels.row_sums, (1,), x, x, 100, BLOCK=128, number=3), "number"),
        (lambda x: emu.triton(triton_kernels.row_sums, (1,), x, x, 100, BLOCK=128, target="h200"), "target='h200'"),
        (lambda x: emu.triton(len, (1,), x), "no kernel of Triton's"),
        (lambda x: emu.triton(triton_kernels.row_sums, (0,), x, x, 100, BLOCK=128), "a grid is"),
        (lambda x: emu.triton(triton_kernels.row_sums, (1,), x[::-1], x, 100, BLOCK=128), "run backwards"),
        (lambda x: emu.triton(triton_kernels.row_sums, (1,), x, x, 1 << 80, BLOCK=128), "too large"),
    ],
)
def test_mistakes_of_a_call_are_told(call, text):
    with pytest.raises(tessera.ArgumentError, match=text):
        call(np.zeros(200, np.float32))


def test_the_pages_example_says_what_the_page_says(tmp_path):
    page = pathlib.Path(__file__).parents[2] / "docs" / "emulate-others.md"
    if not page.exists():
        pytest.skip("the pages are in the repository alone")
    code, told = re.findall(r"```(?:python|text)\n(.*?)```", page.read_text(encoding="utf-8"), re.DOTALL)[:2]
    file = tmp_path / "add.py"
    file.write_text(code, encoding="utf-8")
    with pytest.raises(tessera.SanitizerError) as caught:
        runpy.run_path(str(file))
    said = f"tessera.errors.SanitizerError: {str(caught.value).replace(str(file), 'add.py')}"
    assert re.sub(r"PTX line \d+", "PTX line", said) == re.sub(r"PTX line \d+", "PTX line", told.strip())


def test_tensors_of_pytorch_are_taken():
    torch = pytest.importorskip("torch", reason="needs PyTorch", exc_type=ImportError)
    x, out = torch.arange(100.0), torch.zeros(100)
    emu.triton(triton_kernels.vector_add, (1,), x, x, emu.Unwritten(out), 100, BLOCK=128)
    assert torch.equal(out, 2 * x)
    a, b, c = torch.ones(64, 32, dtype=torch.float16), torch.ones(32, 64, dtype=torch.float16), torch.zeros(64, 64, dtype=torch.float16)
    from triton.tools.tensor_descriptor import TensorDescriptor

    given = [TensorDescriptor.from_tensor(tensor, block) for tensor, block in ((a, [64, 32]), (b, [32, 64]), (c, [64, 64]))]
    emu.triton(triton_kernels.descriptor_matmul, (1, 1), *given, 64, 64, 32, BM=64, BN=64, BK=32)
    assert (c == 32).all()


def test_clusters_and_warps_of_two_kinds_are_what_is_launched():
    cluster, _ = prepared(triton_cases.matmul_by_a_cluster)
    assert (cluster.grid, cluster.cluster) == ((2, 1, 1), (2, 1, 1))
    two, _ = prepared(triton_cases.matmul_by_warps_of_two_kinds)
    assert two.block == 384 and "setmaxnreg" in two.ptx
