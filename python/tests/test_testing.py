"""``tessera.testing`` and the pytest plugin: each can find what it looks for."""

from __future__ import annotations

import json
import sys
import time
import types

import ml_dtypes
import numpy as np
import pytest
import tessera
import tessera.tile as ct
from processes import python
from tessera import testing

A, B = testing.random((50, 70), seed=1), testing.random((70, 60), seed=2)
PRODUCT = dict(reduction_length=70, magnitude=np.abs(A.astype(float)) @ np.abs(B.astype(float)))


@ct.kernel
def product(a, b, c, T: ct.Constant[int]):
    i, j = ct.bid(0), ct.bid(1)
    acc = ct.zeros((T, T), dtype=ct.float32)
    for k in range(ct.num_tiles(a, 1, (T, T))):
        x = ct.load(a, (i, k), (T, T), padding_mode=ct.PaddingMode.ZERO)
        acc = ct.mma(x, ct.load(b, (k, j), (T, T), padding_mode=ct.PaddingMode.ZERO), acc)
    ct.store(c, (i, j), acc.astype(c.dtype))


# assert_close


@pytest.mark.parametrize("dtype", ["float64", "float32", "float16", "bfloat16", "float8_e4m3fn"])
def test_rounding_once_is_close_and_three_times_as_much_is_not(dtype):
    want = np.random.default_rng(1).uniform(1, 2, 1000)
    got = want.astype(testing._arrays.numpy_dtype(dtype))
    assert 0 <= testing.assert_close(got, want) <= 1
    u = testing.Model.of(dtype).u_out
    with pytest.raises(AssertionError, match="of 1000 results"):
        testing.assert_close(got, want * (1 + 12 * u))


def test_sums_may_lose_what_their_length_and_their_terms_say():
    got, want = (A @ B), A.astype(float) @ B
    testing.assert_close(got, want, **PRODUCT)
    wrong = got.copy()
    wrong[3, 4] += 1e-3
    with pytest.raises(AssertionError, match=r"1 of 3000 results .*\n.*the worst is \[3, 4\].*the first is \[3, 4\]"):
        testing.assert_close(wrong, want, **PRODUCT)
    narrow = (A.astype(np.float16).astype(float) @ B.astype(np.float16)).astype(np.float16)
    testing.assert_close(narrow, A.astype(np.float16).astype(float) @ B.astype(np.float16), **PRODUCT)
    bound = testing.tolerance(want, "bfloat16", **PRODUCT)
    assert bound.shape == want.shape and np.allclose(bound, 2.0**-8 * np.abs(want), rtol=0.1, atol=1e-3)


def test_whole_numbers_are_exact_and_shapes_are_theirs():
    assert testing.assert_close(np.arange(10), np.arange(10)) == 0
    for got, want in ((np.arange(10), np.arange(1, 11)), (np.arange(10), np.arange(9)), (np.array([True]), np.array([False]))):
        with pytest.raises(AssertionError):
            testing.assert_close(got, want)
    assert testing.assert_close(np.zeros((0, 3)), np.zeros((0, 3))) == 0
    large = np.array([1_000_000_000])
    for got, want, most in ((large + 1, large, {}), (large.astype(np.uint32), large - 100, dict(reduction_length=10**9)), (large, large + 0.4, {})):
        with pytest.raises(AssertionError, match="inf times the bound 0; .*\n  bound: none, they are whole numbers"):
            testing.assert_close(got, want, **most)
    assert not testing.tolerance(large, "int64").any()


def test_bounds_that_hold_nothing_are_refused():
    one = np.ones(1, np.float32)
    for magnitude in (np.array([np.inf], np.float16), [np.nan]):
        with pytest.raises(tessera.errors.ArgumentValueError, match="`magnitude` is infinite, or no number"):
            testing.assert_close(one, [500.0], magnitude=magnitude)
    for length in (np.inf, np.nan):
        with pytest.raises(tessera.errors.ArgumentValueError, match="`reduction_length` is"):
            testing.assert_close(one, [500.0], reduction_length=length)
    # Where what is expected is infinite, so may be the terms.
    assert testing.assert_close(one * np.inf, [np.inf], magnitude=one * np.inf) == 0


def test_what_is_no_number_or_infinite():
    special = np.array([np.nan, np.inf, -np.inf, 1.0])
    testing.assert_close(special.astype(np.float32), special)
    for at in range(4):
        wrong = special.astype(np.float32)
        wrong[at] = 7.0
        with pytest.raises(AssertionError):
            testing.assert_close(wrong, special)
        with pytest.raises(AssertionError):
            testing.assert_close(special.astype(np.float32), np.where(np.arange(4) == at, 7.0, special))
    # What a format cannot hold may be its largest number, or infinite.
    for got in (65504.0, np.inf):
        testing.assert_close(np.array([got], np.float16), np.array([1e6]))
    with pytest.raises(AssertionError):
        testing.assert_close(np.array([-np.inf], np.float16), np.array([1e6]))


def test_arrays_of_other_libraries():
    torch = pytest.importorskip("torch")
    want = torch.linspace(1, 2, 100, dtype=torch.float64)
    for dtype in (torch.float32, torch.bfloat16, torch.float8_e5m2):
        testing.assert_close(want.to(dtype).requires_grad_(), want)
        with pytest.raises(AssertionError):
            testing.assert_close((want * 1.5).to(dtype), want)
    assert testing._arrays.on_host(torch.ones(3, dtype=torch.bfloat16)).dtype == ml_dtypes.bfloat16

    class Own(torch.Tensor):
        pass

    Own.__module__ = "elsewhere"
    assert testing.assert_close(torch.ones(3, dtype=torch.bfloat16).as_subclass(Own), np.ones(3)) == 0
    assert testing.assert_close(torch.tensor([1 + 2j]).conj().imag, [-2.0]) == 0


# check


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_a_kernel_is_checked_in_both_places(dtype):
    kind = testing._arrays.numpy_dtype(dtype)
    c = np.zeros((50, 60), kind)
    found = testing.check(product, (A.astype(kind), B.astype(kind), c, 16), reference=lambda a, b, c, t: a @ b, grid=(4, 4), **PRODUCT)
    assert set(found.ratios) == {"cpu", "emu"} and found.worst <= 1
    assert not c.any(), "arguments stay as they are"


def test_a_wrong_kernel_is_found():
    with pytest.raises(AssertionError, match="`c` of `product` on `cpu`"):
        testing.check(product, (A, B, np.zeros((50, 60), np.float32), 16), reference=lambda a, b, *_: a @ b * 1.001, grid=(4, 4), **PRODUCT)
    with pytest.raises(AssertionError, match="on `cpu`: .* of 3000"):
        testing.check(product, (A, B, np.zeros((50, 60), np.float32), 16), reference=lambda a, b, *_: {"c": a @ b}, grid=(3, 4), **PRODUCT)


def test_references_that_do_not_fit():
    args = (A, B, np.zeros((50, 60), np.float32), 16)
    with pytest.raises(tessera.ArgumentError, match="gives 2 results, and the kernel writes c"):
        testing.check(product, args, reference=lambda a, b, *_: (a @ b, 1), grid=(4, 4), **PRODUCT)
    with pytest.raises(tessera.ArgumentError, match="no parameter `d`"):
        testing.check(product, args, reference=lambda a, b, *_: {"d": a @ b}, grid=(4, 4), **PRODUCT)
    args[2][:] = A @ B  # What is there before is no matter.
    testing.check(product, args, reference=lambda a, b, *_: a @ b, devices=("cpu",), grid=(4, 4), **PRODUCT)
    testing.check(product, args, reference=lambda a, b, *_: a @ b, outputs=("c",), devices=("cpu",), grid=(4, 4), **PRODUCT)


def test_races_are_found():
    @ct.kernel
    def races(x):
        ct.store(x, (0,), ct.load(x, (0,), (16,)) + 1)

    with pytest.raises(tessera.KernelFault):
        testing.check(races, (np.zeros(16, np.float32),), reference=lambda x: x + 1, grid=4)


@pytest.mark.parametrize("dtype, beyond", [("float16", 7e4), ("float32", 1e39), ("bfloat16", 3.43e38), ("float8_e5m2", 7e4)])
def test_what_is_too_large_is_no_number_only_where_there_is_no_infinity(dtype, beyond):
    of = lambda value: np.array([value]).astype(testing._arrays.numpy_dtype(dtype))  # noqa: E731
    testing.assert_close(of(np.inf), np.array([beyond]))
    for wrong in (of(np.nan), of(-np.inf)):
        with pytest.raises(AssertionError):
            testing.assert_close(wrong, np.array([beyond]))
    testing.assert_close(np.array([np.nan]).astype(ml_dtypes.float8_e4m3fn), np.array([480.0]))


# gradcheck


def test_gradients():
    x = testing.random((8, 16), seed=3)
    softmax, backward = tessera.ops.softmax, lambda g, x: tessera.ops.softmax_backward(dy=g, y=tessera.ops.softmax(x))
    assert testing.gradcheck(softmax, [x], backward=backward) <= 1
    with pytest.raises(AssertionError, match="the gradient of input 0"):
        testing.gradcheck(softmax, [x], backward=lambda g, x: backward(g, x) * np.float32(1.02))
    wide = x.astype(np.float64)
    assert testing.gradcheck(lambda a, b: a * b, [wide, wide + 1], backward=lambda g, a, b: (g * b, g * a)) <= 1
    with pytest.raises(AssertionError, match="the gradient of input 1"):
        testing.gradcheck(lambda a, b: a * b, [wide, wide + 1], backward=lambda g, a, b: (g * b, g * b))
    with pytest.raises(TypeError, match="2 inputs"):
        testing.gradcheck(lambda a, b: a * b, [wide, wide], backward=lambda g, a, b: g * b)


@pytest.mark.parametrize("dtype", ["float32", "float16", "bfloat16", "float8_e4m3fn", "float8_e5m2"])
@pytest.mark.parametrize("seed", range(4))
def test_gradients_that_are_wrong_are_refused_in_every_format(dtype, seed):
    x = testing.random((8, 16), dtype, seed=seed)

    def check(function, gradient, factor):
        made = lambda g, x: (factor * gradient(g.astype(float), x.astype(float))).astype(x.dtype)  # noqa: E731
        return testing.gradcheck(lambda x: function(x.astype(np.float32)).astype(x.dtype), [x], backward=made, seed=seed)

    for function, gradient in ((lambda x: x * x, lambda g, x: 2 * g * x), (np.exp, lambda g, x: g * np.exp(x))):
        assert check(function, gradient, 1.0) <= 1
        for factor in (2.0, -1.0, 0.5, 10.0, 0.0):
            with pytest.raises(AssertionError, match="the gradient of input 0"):
                check(function, gradient, factor)


def test_formats_too_coarse_for_a_verdict_say_so():
    x = testing.random((4,), "float8_e5m2", seed=1)
    with pytest.raises(tessera.ArgumentError, match="`float8_e5m2` may change .*wider format"):
        exp = lambda x: np.exp(x.astype(np.float32)).astype(x.dtype)  # noqa: E731
        testing.gradcheck(exp, [x], backward=lambda g, x: (g.astype(float) * exp(x).astype(float)).astype(x.dtype))


def test_what_is_not_checked_is_not_right():
    wrong = lambda g, x: 3 * g  # noqa: E731
    for step in (0.0, 1e-30):
        with pytest.raises(tessera.ArgumentError, match="leaves 30 of 30 elements of input 0 as they are"):
            testing.gradcheck(np.copy, [np.ones(30)], backward=wrong, step=step)
    with pytest.raises(tessera.ArgumentError, match="leaves 1 of 2 elements of input 0"):
        testing.gradcheck(np.copy, [np.array([0.0, 1.0])], backward=wrong, step=1e-30, rtol=1e9)
    for function in (np.copy, lambda x: x[:0]):
        with pytest.raises(tessera.ArgumentError, match="without elements, so there is nothing to check"):
            testing.gradcheck(function, [np.zeros(0 if function is np.copy else 3)], backward=wrong)
    assert testing.gradcheck(np.copy, [np.ones(3)], backward=lambda g, x: g, step=1e-5) <= 1


def test_steps_are_as_long_as_inputs_are_large():
    x = (np.random.default_rng(1).standard_normal(5) * 1e6).astype(np.float32)
    assert testing.gradcheck(lambda x: x * x, [x], backward=lambda g, x: 2 * g * x) <= 1
    with pytest.raises(AssertionError):
        testing.gradcheck(lambda x: x * x, [x], backward=lambda g, x: np.float32(2.02) * g * x)


def test_gradients_have_the_shape_of_their_input():
    with pytest.raises(AssertionError, match="shape"):
        testing.gradcheck(lambda x: x * x, [np.ones((5, 1))], backward=lambda g, x: (2 * g * x).reshape(1, 5))


def test_gradients_of_pytorch():
    torch = pytest.importorskip("torch")
    x = torch.randn(10, 10, dtype=torch.float64, requires_grad=True)
    assert testing.gradcheck(lambda x: torch.sin(x) * x, [x]) <= 1
    assert testing.gradcheck(torch.sin, [torch.tensor(0.3, dtype=torch.float64, requires_grad=True)]) <= 1

    class Wrong(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            ctx.save_for_backward(x)
            return x * x

        @staticmethod
        def backward(ctx, g):
            return ctx.saved_tensors[0] * g

    with pytest.raises(AssertionError):
        testing.gradcheck(Wrong.apply, [x])
    with pytest.raises(TypeError, match="requires_grad_"):
        testing.gradcheck(torch.sin, [x.detach()])


# Parameters


@testing.shapes(7, (3, 5), ())
@testing.dtypes("float32", "bf16")
def test_parameters(shape, dtype):
    x = testing.random(shape, dtype, seed=1)
    assert x.shape == shape and x.dtype in (np.float32, ml_dtypes.bfloat16)
    assert testing.random(shape, dtype, seed=1).tobytes() == x.tobytes()


def test_random_elements():
    assert set(np.unique(testing.random((1000,), "int8"))) == set(range(-8, 8))
    assert testing.random((1000,), "uint8", low=3, high=5).min() == 3
    assert testing.random((1000,), bool).dtype == np.bool_
    uniform = testing.random((1000,), "float16", low=2, high=3)
    assert 2 <= uniform.min() and uniform.max() <= 3


# Times


def test_times_are_those_of_the_call():
    found = testing.measure(lambda: time.sleep(0.002), flush=False, warm=0, most=0.05)
    assert 0.002 <= found.fastest <= found.median <= found.slowest and found.fastest <= found.mean <= found.slowest
    assert found.samples >= 5 and found.margin >= 0
    assert 2 <= testing.do_bench(lambda: time.sleep(0.002), warmup=1, rep=20, return_mode="min") < 20
    low, high = testing.do_bench(lambda: None, warmup=1, rep=5, quantiles=(0.2, 0.8))
    assert low <= high
    with pytest.raises(ValueError, match="none of"):
        testing.do_bench(lambda: None, warmup=1, rep=1, return_mode="fastest")


class Bar:
    """What tqdm is asked for."""

    made: list[Bar] = []

    def __init__(self, **said):
        self.said, self.n = said, 0
        Bar.made.append(self)

    def update(self, count):
        self.n += count

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.closed = True


def test_progress_counts_rows_by_tqdm_where_it_is_there(tmp_path, monkeypatch):
    auto = types.ModuleType("tqdm.auto")
    auto.tqdm = Bar
    monkeypatch.setitem(sys.modules, "tqdm", types.ModuleType("tqdm"))
    monkeypatch.setitem(sys.modules, "tqdm.auto", auto)
    found = testing.sweep("relu", out=tmp_path / "r.jsonl", sizes="n=1024,4096", precision="fp32", device="cpu")
    (bar,) = Bar.made
    assert bar.closed and bar.n == len(found.rows) == 2 and bar.said["desc"] == "relu" and bar.said["disable"] is None
    monkeypatch.setitem(sys.modules, "tqdm.auto", None)
    testing.sweep("relu", out=tmp_path / "r.jsonl", sizes="n=1024", precision="fp32", device="cpu")
    assert Bar.made == [bar]


def test_sweeps_write_the_files_that_are_compared_and_shown(tmp_path):
    (tmp_path / "doubled.py").write_text(
        "import cuda.tile as ct\n@ct.kernel\ndef doubled(x, out, T: ct.Constant[int]):\n"
        "    i = ct.bid(0)\n    ct.store(out, (i,), ct.load(x, (i,), (T,)) * 2)\n"
    )
    arguments = {"x": "randn:f32[n]", "out": "empty:f32[n]", "T": 256}
    found = testing.sweep(
        f"{tmp_path}/doubled.py::doubled", out=tmp_path / "r.jsonl", arguments=arguments, sizes="n=1024,4096", grid="cdiv(n,256)", device="cpu"
    )
    assert sorted(row["size"]["n"] for row in found.rows) == [1024, 4096]
    assert all(row["operator"] == "doubled" and 0 < row["median"] < 1 and row["interval"][0] <= row["median"] for row in found.rows)
    assert "doubled" in found.text and "<td>n=1024</td>" in found._repr_html_()
    assert testing.Results.read(found.path).rows == found.rows
    assert json.loads(found.path.read_text().splitlines()[0])["kind"] == "session"
    same, text = testing.compare(found, found)
    assert same and "doubled" in text
    assert "doubled" in testing.report(found, out=tmp_path / "r.md").read_text()
    with pytest.raises(tessera.ArgumentError, match="nowhere"):
        testing.sweep("nowhere", out=tmp_path / "n.jsonl", device="cpu")
    with pytest.raises(tessera.ArgumentError, match="no operator"):
        testing.sweep(3, out=tmp_path / "n.jsonl")


def test_a_kernel_of_a_program_is_swept_by_its_file():
    assert testing._sweep._subject(product) == f"{__file__}::product"
    assert testing._sweep._subject(tessera.ops.softmax) == "softmax"


# The plugin

SUITE = """
import numpy as np, pytest, tessera, tessera.tile as ct
from tessera import testing

@ct.kernel
def k(x):
    ct.store(x, (0,), ct.load(x, (0,), (16,)) + 1)

def launch(blocks=1):
    ct.launch(None, (blocks,), k, (np.zeros(16, np.float32),))

def test_plain(tessera_device):
    launch()
    print("plain on", tessera_device)

@pytest.mark.tessera(device="emu", sanitize="init")
def test_marked(tessera_device):
    launch()
    assert tessera_device == "emu"

@testing.devices()
def test_both(tessera_device):
    launch()

def test_races():
    launch(blocks=4)
"""


def suite(tmp_path, *options: str):
    (tmp_path / "test_suite.py").write_text(SUITE)
    return python("-m", "pytest", "-q", "-s", "-p", "tessera.pytest_plugin", *options, "test_suite.py", cwd=tmp_path)


def test_the_plugin_counts_what_ran_where(tmp_path):
    ran = suite(tmp_path)
    assert "5 passed" in ran.stdout and "plain on cpu" in ran.stdout, ran.stdout + ran.stderr
    assert "cpu: 3 launches in 3 tests\nemu, sanitize=all: 1 launch in 1 tests\nemu, sanitize=init: 1 launch in 1 tests\n" in ran.stdout


def test_the_plugin_puts_a_suite_on_the_emulator(tmp_path):
    ran = suite(tmp_path, "--tessera-device", "emu")
    assert ran.returncode == 1 and "plain on emu" in ran.stdout
    assert "1 failed, 4 passed" in ran.stdout and "test_races" in ran.stdout and "SanitizerError" in ran.stdout
    assert "5 passed" in suite(tmp_path, "--tessera-device", "emu", "--tessera-sanitize", "init").stdout
    assert "invalid choice" in suite(tmp_path, "--tessera-device", "gpu").stderr


def test_the_plugin_refuses_checks_that_there_are_not(tmp_path):
    for device in ("cpu", "emu"):
        ran = suite(tmp_path, "--tessera-device", device, "--tessera-sanitize", "rcae")
        assert ran.returncode == 4 and "`rcae` is no check: there are all, race, init" in ran.stderr, ran.stdout + ran.stderr
    assert "5 passed" in suite(tmp_path, "--tessera-device", "emu", "--tessera-sanitize", "init,bounds").stdout


MARKED = """
@pytest.mark.tessera({marker})
def test_it(tessera_device):
    launch()
    print("marked on", tessera_device)
"""


def marked(tmp_path, marker: str):
    head = SUITE[: SUITE.index("def test_plain")]
    (tmp_path / "test_marked.py").write_text(head + MARKED.format(marker=marker))
    return python("-m", "pytest", "-q", "-s", "-p", "tessera.pytest_plugin", "test_marked.py", cwd=tmp_path)


def test_the_marker_takes_device_and_sanitize_by_position(tmp_path):
    assert "marked on emu" in (out := marked(tmp_path, '"emu"').stdout) and "emu, sanitize=all: 1 launch" in out
    assert "emu, sanitize=init: 1 launch" in marked(tmp_path, '"emu", "init"').stdout
    assert "emu, sanitize=init: 1 launch" in marked(tmp_path, '"emu", sanitize="init"').stdout
    for marker, text in (
        ('"emu", "all", "h200"', "device and sanitize by position"),
        ('"emu", device="cpu"', "says `device` twice"),
        ("speed=3", "has no `speed`"),
        ('"gpu"', "`gpu` is no device"),
        ('"emu", "rcae"', "`rcae` is no check"),
        ('"cpu", "rcae"', "`rcae` is no check"),
    ):
        ran = marked(tmp_path, marker)
        assert ran.returncode == 1 and text in ran.stdout, marker + ran.stdout + ran.stderr


FIXTURES = """
def said():
    launch()
    yield tessera._device.host().device
    launch()
    print("ended on", tessera._device.host().device)

of_module, of_session, of_class = (pytest.fixture(scope=scope)(said) for scope in ("module", "session", "class"))

@pytest.mark.tessera("emu", "init")
class TestOnes:
    def test_it(self, of_class, of_module, of_session):
        assert of_class == of_module == of_session == "emu"

@pytest.mark.tessera("emu", "bounds")
def test_last(of_module):
    assert of_module == "emu"

def test_plain_again(tessera_device):
    assert tessera_device == tessera._device.host().device == "cpu"
"""


def test_fixtures_of_every_scope_run_where_their_test_does(tmp_path):
    head = SUITE[: SUITE.index("def test_plain")]
    (tmp_path / "test_fixtures.py").write_text(head + FIXTURES)
    ran = python("-m", "pytest", "-q", "-s", "-p", "tessera.pytest_plugin", "test_fixtures.py", cwd=tmp_path)
    assert "3 passed" in ran.stdout and ran.stdout.count("ended on emu") == 1, ran.stdout + ran.stderr
    # The class's ends with its test, those of the module and of the session with the last.
    assert "emu, sanitize=init: 4 launches in 1 tests" in ran.stdout and "cpu: 2 launches" in ran.stdout, ran.stdout


def test_launches_of_workers_are_counted(tmp_path):
    pytest.importorskip("xdist")
    ran = suite(tmp_path, "-n", "2")
    assert "5 passed" in ran.stdout, ran.stdout + ran.stderr
    assert "cpu: 3 launches in 3 tests\nemu, sanitize=all: 1 launch in 1 tests\nemu, sanitize=init: 1 launch in 1 tests\n" in ran.stdout


def test_gradients_that_are_no_numbers_or_not_there_are_wrong():
    x = np.ones(4)
    with pytest.raises(AssertionError):
        tessera.testing.gradcheck(lambda x: x * x, (x,), backward=lambda g, x: np.full_like(x, np.nan))
    with pytest.raises(tessera.ArgumentError, match="nothing to check"):
        tessera.testing.gradcheck(lambda x: x * x, (x,), backward=lambda g, x: None)


def test_files_that_cannot_be_compared(tmp_path):
    for name, text in (("missing", None), ("empty", ""), ("garbage", "no record\n")):
        path = tmp_path / name
        if text is not None:
            path.write_text(text)
        with pytest.raises(tessera.ArgumentError, match=name):
            testing.compare(path, path)
    with pytest.raises(tessera.ArgumentError, match="missing"):
        testing.report(tmp_path / "missing", out=tmp_path / "out.md")


def test_integers_count_with_all_their_digits():
    with pytest.raises(AssertionError):
        testing.assert_close(np.array([2**60 + 1]), np.array([2**60]))
