"""Kernels as programs of Python have them: whatever their names stand for is what Python says."""

import collections
import contextlib
import dataclasses
import enum
import functools
import gc
import importlib
import linecache
import textwrap
import threading
import types
from contextlib import contextmanager
from typing import Annotated, ClassVar, NamedTuple

import numpy as np
import pytest
import tessera
import tessera.tile as ct
from applied import ZERO, ConstInt, kernel_of, run
from processes import python
from tessera import Tensor, dtype, fp32, tile

# What names stand for.


def test_factories_give_kernels_of_their_own():
    def make(scale):
        @ct.kernel
        def scaled(x, out, T: ConstInt):
            i = ct.bid(0)
            ct.store(out, (i,), ct.load(x, (i,), (T,)) * scale)

        return scaled

    for scale in (2.0, 3.0):
        x, out = run(make(scale))
        assert (out == x * scale).all()


def test_lambdas_are_found_by_their_place():
    first, second = (lambda v: v + 1), (lambda v: v * 3)
    addend = 2.0
    third = kernel_of(
        lambda v: v
        + addend
    )
    assert (run(kernel_of(first))[1] == np.arange(1000) + 1).all()
    assert (run(kernel_of(second))[1] == np.arange(1000) * 3).all()
    assert (run(third)[1] == np.arange(1000) + 2).all()


def test_a_wrapper_is_its_own_text_and_not_that_of_what_it_wraps():
    def plus_one(function):
        @functools.wraps(function)
        def wrapper(v, *, more=1.0):
            return function(v) + more

        return wrapper

    @plus_one
    def double(v):
        return v * 2

    assert (run(kernel_of(double))[1] == np.arange(1000) * 2 + 1).all()


class Holder:
    SCALE = 4.0

    @staticmethod
    def shifted(v):
        return v + Holder.SCALE

    @ct.kernel
    def kernel(x, out, T: ConstInt):
        i = ct.bid(0)
        ct.store(out, (i,), Holder.shifted(ct.load(x, (i,), (T,))) * Holder.SCALE)


def test_kernels_in_classes_and_attributes_that_change(monkeypatch):
    for kernel in (Holder.kernel, Holder().kernel):
        x, out = run(kernel)
        assert (out == (x + 4) * 4).all()
    monkeypatch.setattr(Holder, "SCALE", 5.0)
    x, out = run(Holder.kernel)
    assert (out == (x + 5) * 5).all()


@dataclasses.dataclass
class Config:
    tile: int
    scale: float = 2.0


class Mode(enum.IntEnum):
    PLAIN = 1
    SHIFTED = 2


class Shift(NamedTuple):
    name: str
    by: float


CONFIG, MODE, SHIFT, WEIGHTS, NUMBER = Config(128), Mode.SHIFTED, Shift("three", 3.0), [1.0, 2.0], np.float32(0.5)


@ct.kernel
def of_constants(x, out, T: ConstInt):
    i = ct.bid(0)
    v = ct.load(x, (i,), (CONFIG.tile,)) * CONFIG.scale
    if MODE == Mode.SHIFTED:
        v = v + SHIFT.by
    ct.store(out, (i,), v * WEIGHTS[1] + NUMBER)


def test_constants_of_all_kinds_and_those_that_change(monkeypatch):
    x, out = run(of_constants)
    assert (out == (x * 2 + 3) * 2 + 0.5).all()
    compiled = of_constants._native()
    run(of_constants)
    assert of_constants._native() is compiled, "nothing has changed"
    monkeypatch.setattr(CONFIG, "scale", 1.0)
    monkeypatch.setitem(globals(), "MODE", Mode.PLAIN)
    WEIGHTS[1] = 1.0
    try:
        x, out = run(of_constants)
    finally:
        WEIGHTS[1] = 2.0
    assert (out == x + 0.5).all()


def test_a_variable_of_a_kernel_is_not_the_global_of_that_name(monkeypatch):
    kernel = kernel_of(lambda v: v)
    monkeypatch.setitem(globals(), "i", 1)
    run(kernel)
    compiled = kernel._native()
    monkeypatch.setitem(globals(), "i", 2)
    assert kernel._native() is compiled


def test_defaults_and_annotations_are_those_of_the_definition():
    kernels = []
    for scale in (2.0, 3.0):
        local = ct.Constant[int]

        @ct.kernel
        def kernel(x, out, T: local, by=scale * 1):
            i = ct.bid(0)
            ct.store(out, (i,), ct.load(x, (i,), (T,)) * by)

        kernels.append(kernel)
    assert (run(kernels[0])[1] == np.arange(1000) * 2).all()
    assert (run(kernels[1])[1] == np.arange(1000) * 3).all()


Marked = ct.Constant
SPACE = types.SimpleNamespace(Int=ct.Constant[int])


@pytest.mark.parametrize("said", [Marked[int], Marked, SPACE.Int, "ct.Constant[int]", "SPACE.Int", "'Marked[int]'"], ids=str)
def test_annotations_are_what_python_makes_of_them(said):
    def kernel(x, out, T: said):
        i = ct.bid(0)
        ct.store(out, (i,), ct.load(x, (i,), (T,)))

    x, out = run(ct.kernel(kernel))
    assert (out == x).all()


def test_annotations_that_only_type_checkers_know_are_none():
    @ct.kernel
    def kernel(x: "checkers.Tensor", out: "not a type", T: ConstInt):  # noqa: F722, F821
        i = ct.bid(0)
        ct.store(out, (i,), ct.load(x, (i,), (T,)))

    x, out = run(kernel)
    assert (out == x).all()


def test_annotations_with_marks():
    @ct.kernel
    def kernel(x: ct.IndexedWithInt64, out: Annotated[ct.Array, ct.ArrayAnnotation(index_dtype=ct.int64)], T: ct.Constant, n: ct.ScalarInt64):
        i = ct.bid(0)
        ct.store(out, (i,), ct.load(x, (i,), (T,)) + n)

    x, out = run(kernel, 5)
    assert (out == x + 5).all()


def test_namespaces_and_modules():
    space = types.SimpleNamespace(a=2.0, inner=types.SimpleNamespace(b=1.0))
    kernel = kernel_of(lambda v: v * space.a + space.inner.b + np.pi)
    assert np.allclose(run(kernel)[1], np.arange(1000) * 2 + 1 + np.pi)
    space.inner.b = 4.0
    assert np.allclose(run(kernel)[1], np.arange(1000) * 2 + 4 + np.pi)


def test_classes_of_a_function_with_bases_and_methods():
    more = 3.0

    @dataclasses.dataclass(frozen=True)
    class Base:
        by: float

        def shifted(self, v):
            return v + self.by + more

    @dataclasses.dataclass(frozen=True)
    class Derived(Base):
        scale: float = 2.0

        def both(self, v):
            return self.shifted(v) * self.scale

    thing = Derived(1.0)
    assert (run(kernel_of(lambda v: thing.both(v)))[1] == (np.arange(1000) + 4) * 2).all()


@dataclasses.dataclass
class Settings:
    tile: int = 128
    by: float = 1.0
    FACTOR: ClassVar[float] = 2.0
    extra = 0.5

    def applied(self, v, more=0.0):
        return v * self.FACTOR + self.by + self.extra + more


SETTINGS = Settings()


def test_attributes_of_classes_that_change(monkeypatch):
    kernel = kernel_of(lambda v: SETTINGS.applied(v))
    assert (run(kernel)[1] == np.arange(1000) * 2 + 1.5).all()
    monkeypatch.setattr(Settings, "FACTOR", 3.0)
    assert (run(kernel)[1] == np.arange(1000) * 3 + 1.5).all()
    monkeypatch.setattr(Settings, "extra", 1)
    assert (run(kernel)[1] == np.arange(1000) * 3 + 2).all()
    # What an object was made with is its own.
    monkeypatch.setattr(Settings, "by", 9.0)
    assert (run(kernel)[1] == np.arange(1000) * 3 + 2).all()
    monkeypatch.setattr(Settings.applied, "__defaults__", (10.0,))
    assert (run(kernel)[1] == np.arange(1000) * 3 + 12).all()
    compiled = kernel._native()
    run(kernel)
    assert kernel._native() is compiled, "nothing has changed"


def test_defaults_that_change(monkeypatch):
    def scaled(v, by=2.0, *, plus=1.0):
        return v * by + plus

    kernel = kernel_of(lambda v: scaled(v))
    assert (run(kernel)[1] == np.arange(1000) * 2 + 1).all()
    monkeypatch.setattr(scaled, "__defaults__", (3.0,))
    assert (run(kernel)[1] == np.arange(1000) * 3 + 1).all()
    monkeypatch.setitem(scaled.__kwdefaults__, "plus", 5.0)
    assert (run(kernel)[1] == np.arange(1000) * 3 + 5).all()


def lessened(v):
    return v / 2


class Namesakes:
    @staticmethod
    def lessened(v):
        return lessened(v) + 1


def test_a_static_method_is_not_the_function_of_its_name(monkeypatch):
    kernel = kernel_of(lambda v: Namesakes.lessened(v))
    assert (run(kernel)[1] == np.arange(1000) / 2 + 1).all()
    monkeypatch.setitem(globals(), "lessened", lambda v: v)
    assert (run(kernel)[1] == np.arange(1000) + 1).all()


def test_lists_whose_items_become_equal_ones_of_other_types():
    flags = [1, 0]
    kernel = kernel_of(lambda v: v + (0.5 if isinstance(flags[0], bool) else 0.0))
    assert (run(kernel)[1] == np.arange(1000)).all()
    flags[0] = True
    assert (run(kernel)[1] == np.arange(1000) + 0.5).all()


def test_arrays_without_axes_that_change():
    factor = np.array(2.0)
    kernel = kernel_of(lambda v: v * factor)
    assert (run(kernel)[1] == np.arange(1000) * 2).all()
    factor[()] = 3.0
    assert (run(kernel)[1] == np.arange(1000) * 3).all()


NUMBERS = {"a": 1, "b": 2.5, "f": lambda v: v * 2, "rest": object()}
ORDERED, FIXED, LETTERS, STEPS = collections.OrderedDict(x=1, y=3), types.MappingProxyType({"z": 4}), frozenset("ab"), range(1, 4)
SPACES = types.SimpleNamespace(d={"k": 3.0})


@ct.kernel
def of_dictionaries(x, out, T: ConstInt, key: ct.Constant[str]):
    i = ct.bid(0)
    v = NUMBERS["f"](ct.load(x, (i,), (T,))) * NUMBERS.get(key, 1) + len(NUMBERS) + SPACES.d["k"]
    for name, weight in ct.static_iter(ORDERED.items()):
        v = v + weight * (2 if name in ORDERED and "z" in FIXED and key in LETTERS else 1)
    for step in ct.static_iter(STEPS):
        v = v + step * FIXED["z"]
    ct.store(out, (i,), v)


def test_dictionaries_and_ranges_of_a_module_and_those_that_change(monkeypatch):
    x, out = run(of_dictionaries, "b")
    assert (out == x * 5 + 4 + 3 + 8 + 24).all()
    assert (run(of_dictionaries, "c")[1] == x * 2 + 4 + 3 + 4 + 24).all()
    compiled = of_dictionaries._native()
    run(of_dictionaries, "b")
    assert of_dictionaries._native() is compiled, "nothing has changed"
    monkeypatch.setitem(NUMBERS, "b", 3.0)
    monkeypatch.setitem(SPACES.d, "k", 0.0)
    assert (run(of_dictionaries, "b")[1] == x * 6 + 4 + 8 + 24).all()


def test_dictionaries_of_a_class_of_their_own():
    class Folded(dict):
        def __getitem__(self, key):
            return super().__getitem__(key.lower())

    folded = Folded(a=3.0)
    assert (run(kernel_of(lambda v: v + ct.static_eval(folded["A"])))[1] == np.arange(1000) + 3).all()
    with pytest.raises(ct.TileError):
        run(kernel_of(lambda v: v + folded["A"]))


class Scaled:
    def __init__(self, by):
        self.by = by

    def __call__(self, v):
        return v * self.by


def test_attributes_of_objects_that_can_be_called(monkeypatch):
    scaled = Scaled(2.0)
    kernel = kernel_of(lambda v: v * scaled.by + ct.static_eval(scaled.by))
    assert (run(kernel)[1] == np.arange(1000) * 2 + 2).all()
    monkeypatch.setattr(scaled, "by", 3.0)
    assert (run(kernel)[1] == np.arange(1000) * 3 + 3).all()


@contextlib.contextmanager
def doubled(v):
    yield v * 2


class Tripled:
    @contextmanager
    def of(self, v):
        yield v * 3


def test_context_managers():
    @contextlib.contextmanager
    def shifted(v, by=1.0):
        yield v + by

    tripled = Tripled()

    @ct.kernel
    def kernel(x, out, T: ConstInt):
        i = ct.bid(0)
        with doubled(ct.load(x, (i,), (T,))) as v, shifted(v, by=4.0) as w:
            with tripled.of(w) as z:
                ct.store(out, (i,), z)

    assert (run(kernel)[1] == (np.arange(1000) * 2 + 4) * 3).all()


def test_texts_that_are_indented_oddly():
    @ct.kernel
    def kernel(x, out, T: ConstInt):
        """A text
that is not indented.
        """
# Nor is this.
        i = ct.bid(0)
        ct.store(out, (i,),
  ct.load(x, (i,), (T,)))

    x, out = run(kernel)
    assert (out == x).all()


def test_functions_for_kernels_alone_and_for_both():
    @ct.function
    def inside(v):
        return v + 1

    @ct.function(host=True)
    def both(v):
        return v * 2

    assert both(3) == 6
    with pytest.raises(TypeError, match="inside kernels alone"):
        inside(1)
    assert (run(kernel_of(lambda v: both(inside(v))))[1] == (np.arange(1000) + 1) * 2).all()


# Ways to make a kernel.


def plain(x, out, T: ConstInt):
    i = ct.bid(0)
    ct.store(out, (i,), ct.load(x, (i,), (T,)) + 1)


@pytest.mark.parametrize(
    "kernel",
    [
        ct.kernel(plain),
        ct.kernel(plain, occupancy=2),
        ct.kernel(occupancy=ct.ByTarget(sm_90=2, default=1), num_ctas=1)(plain),
        ct.kernel(plain).replace_hints(num_ctas=ct.ByTarget(sm_100=2, default=1), opt_level=2),
    ],
    ids=["plain", "hint", "by-target", "replaced"],
)
def test_ways_to_make_a_kernel(kernel):
    x, out = run(kernel)
    assert (out == x + 1).all()


def test_hints_that_there_are_none_of():
    with pytest.raises(TypeError, match="wrong"):
        ct.kernel(plain).replace_hints(wrong=1)
    with pytest.raises(ct.TileValueError, match="occupancy"):
        run(ct.kernel(plain, occupancy=100))


def test_cells_of_a_notebook_and_kernels_that_are_defined_again():
    names: dict = {"x": np.arange(8, dtype=np.float32), "out": np.zeros(8, np.float32)}

    def cell(number, text):
        file = f"/cells/{number}.py"
        linecache.cache[file] = (len(text), None, text.splitlines(True), file)
        exec(compile(text, file, "exec"), names)

    cell(1, "import tessera.tile as ct\nS = 2.0\n")
    for number, factor in ((2, "S"), (3, "S * S")):
        cell(number, f"@ct.kernel\ndef k(x, out):\n    ct.store(out, (0,), ct.load(x, (0,), (8,)) * {factor})\n")
        cell(10, "ct.launch(None, (1,), k, (x, out))")
        assert (names["out"] == names["x"] * (2 if number == 2 else 4)).all()
    cell(11, "S = 3.0\nct.launch(None, (1,), k, (x, out))")
    assert (names["out"] == names["x"] * 9).all()
    cell(12, "@ct.kernel\ndef bad(x):\n    ct.nothing(x)\n")
    with pytest.raises(SyntaxError) as found:
        cell(13, "ct.launch(None, (1,), bad, (x,))")
    assert (found.value.filename, found.value.lineno, found.value.text) == ("/cells/12.py", 3, "    ct.nothing(x)")


def test_kernels_whose_codes_are_equal(tmp_path, monkeypatch):
    monkeypatch.syspath_prepend(tmp_path)
    results = []
    for name, annotation in (("equal_codes_a", ""), ("equal_codes_b", ": ct.ScalarInt64")):
        text = f"import tessera.tile as ct\n@ct.kernel\ndef k(x, n{annotation}):\n    ct.store(x, 0, ct.full((4,), n * 10**9, ct.int64))\n"
        (tmp_path / f"{name}.py").write_text(text)
        kernel, x = importlib.import_module(name).k, np.zeros(4, np.int64)
        ct.launch(None, (1,), kernel, (x, 5))
        results.append((x[0], kernel.__tessera_function__.__code__))
    assert results[0][1] == results[1][1], "annotations and files are no part of a code"
    # One parameter has 32 bits, one 64.
    assert [number for number, _ in results] == [705032704, 5 * 10**9]


def test_texts_are_let_go_with_their_functions():
    def made():
        name, text = "/cells/let_go.py", "def f(v):\n    return v\n"
        linecache.cache[name] = (len(text), None, text.splitlines(True), name)
        names: dict = {}
        exec(compile(text, name, "exec"), names)
        run(kernel_of(names["f"]))

    made()
    gc.collect()
    before = len(tessera._source._READ)
    made()
    gc.collect()
    assert len(tessera._source._READ) == before


class Answers(dict):
    """Has an answer for every name."""

    def __getattr__(self, name):
        return self.get(name, 0)


def test_objects_that_have_every_attribute():
    answers = Answers(k=3.0)
    assert (run(kernel_of(lambda v: v + answers.k))[1] == np.arange(1000) + 3).all()


def test_other_modules_with_late_annotations_and_cutile_by_its_own_name(tmp_path):
    (tmp_path / "parts.py").write_text(
        "import cuda.tile as ct\nK = 3.0\ndef scaled(v):\n    return inner(v) * K\ndef inner(v):\n    return ct.abs(v)\n"
    )
    (tmp_path / "program.py").write_text(
        textwrap.dedent("""\
        from __future__ import annotations
        import sys
        import numpy as np
        import cuda.tile as ct
        from parts import scaled
        import parts
        ConstInt = ct.Constant[int]
        @ct.kernel
        def k(x, out, T: ConstInt):
            i = ct.bid(0)
            ct.store(out, (i,), scaled(ct.load(x, (i,), (T,))) + parts.K)
        x, out = -np.arange(100, dtype=np.float32), np.empty(100, np.float32)
        ct.launch(None, (ct.cdiv(100, 16),), k, (x, out, 16))
        assert (out == np.arange(100) * 3 + 3).all()
        print("right", sys.argv[1:], __name__)
        """)
    )
    for options in ([], ["--emu"]):
        ran = python("-m", "tessera", *options, "program.py", "--flag", cwd=tmp_path)
        assert ran.stdout == "right ['--flag'] __main__\n", ran.stderr


# Launches.


class Colour(enum.Enum):
    PLAIN = "plain"
    BRIGHT = "bright"


@pytest.mark.parametrize("device", ["cpu", "emu"])
def test_objects_of_dataclasses_and_enumerations(device):
    @ct.kernel
    def kernel(
        x,
        config: ct.Constant,  # its tile and its factor
        out,
        colour: ct.Constant = Colour.PLAIN,
    ):
        i = ct.bid(0)
        v = ct.load(x, (i,), (config.tile,)) * config.scale
        ct.store(out, (i,), v + 1 if colour == Colour.BRIGHT else v)

    x = np.arange(1000, dtype=np.float32)

    def ran(*args, **keywords):
        out = np.full(1000, np.nan, np.float32)
        kernel.launch((x, args[0], out, *args[1:]), grid=(8,), keywords=keywords)
        return out

    with tessera.use(device):
        config = Config(128)
        assert (ran(config) == x * 2).all()
        assert (ran(config, Colour.BRIGHT) == x * 2 + 1).all()
        assert (ran(Config(128, 3.0), colour=Colour.BRIGHT) == x * 3 + 1).all()
        config.scale = 4.0
        assert (ran(config) == x * 4).all(), "what an object holds now"
        compiled = kernel._native_with({"config": config})
        assert kernel._native_with({"config": Config(128, 4.0)}) is compiled and kernel._native_with({"config": Config(128, 4)}) is not compiled
        with pytest.raises(tessera.ArgumentError, match="is given `config` twice|`config` is a"):
            kernel.launch((x, config, x), grid=(8,), keywords={"config": 3})
        with pytest.raises(tessera.ArgumentError, match="`config` is a `Config` with something in it that no kernel"):
            ran(Config(128, object()))
        with pytest.raises(tessera.ArgumentError, match="takes 4 arguments, and 5 are given"):
            ran(config, Colour.PLAIN, 1)


def test_tuples_with_arrays_lists_of_arrays_and_types():
    @ct.kernel
    def kernel(pair, several, out, shape: ct.Constant, kind: ct.Constant, T: ConstInt):
        i = ct.bid(0)
        x, (y, scale) = pair
        acc = ct.load(x, (i,), (T,)) + ct.load(y, (i,), (T,)) * scale
        for j in range(len(several)):
            ct.store(several[j], (i,), acc + j)
        ct.store(out, (i,), (acc * shape[1]).astype(kind))

    for device in ("cpu", "emu"):
        x, several, out = np.arange(100, dtype=np.float32), [np.zeros(100, np.float32) for _ in range(2)], np.zeros(100, np.int32)
        with tessera.use(device):
            ct.launch(None, (7,), kernel, ((x, (x.copy(), 2.0)), several, out, (1, 2), np.int32, 16))
        assert (out == 6 * x).all() and (several[0] == 3 * x).all() and (several[1] == 3 * x + 1).all()


@tessera.kernel
def halved(x: Tensor["M", "N", fp32], y: Tensor["M", "N", dtype]):  # noqa: F821
    tile.store(y, tile.load(x) / 2)


def test_names_of_the_other_styles_in_a_module():
    x, y = tessera.testing.random((30, 50)), np.empty((30, 50), np.float32)
    halved.launch((x, y))
    assert (y == x / 2).all()
    with pytest.raises(tessera.TesseraError, match="float"):
        halved.launch((x.astype(np.float16), y))


def test_the_other_styles():
    blocks = (64, 128)

    @tessera.kernel.autotune(space=dict(BLOCK_M=blocks, BLOCK_N=[64], BLOCK_K=range(32, 65, 32)), key=("M", "N"))
    def gemm(A: Tensor["M", "K", dtype], B: Tensor["K", "N", dtype], C: Tensor["M", "N", dtype]):  # noqa: F821
        tile.store(C, tile.mma(tile.load(A), tile.load(B), accum=fp32))

    @tessera.kernel
    def row_sums(x: Tensor["M", "N", dtype], y: Tensor["M", dtype]):  # noqa: F821
        row = tile.block_id()
        total = 0.0
        for j in range(tile.lane_id(), x.shape[1], 32):
            total += x[row, j]
        total = tile.warp_reduce_sum(total)
        if tile.lane_id() == 0:
            y[row] = total

    a, b = tessera.testing.random((100, 70), seed=1), tessera.testing.random((70, 90), seed=2)
    c, y = np.empty((100, 90), np.float32), np.empty(100, np.float32)
    gemm.launch((a, b, c))
    tessera.testing.assert_close(c, a.astype(float) @ b, reduction_length=70, magnitude=np.abs(a) @ np.abs(b))
    gemm[None](a, b, C=c)
    with tessera.use("emu", sanitize="all"):
        gemm.launch((a, b, c), BLOCK_M=128)
        row_sums.launch((a, y), grid=100, block=32)
    tessera.testing.assert_close(c, a.astype(float) @ b, reduction_length=70, magnitude=np.abs(a) @ np.abs(b))
    tessera.testing.assert_close(y, a.astype(float).sum(1), reduction_length=70, magnitude=np.abs(a).sum(1))


def test_threads_launch_one_kernel_at_once():
    kernel = kernel_of(lambda v: v * 2 + NUMBER)
    wrong: list = []

    def work():
        try:
            for _ in range(20):
                x, out = run(kernel)
                assert (out == x * 2 + 0.5).all()
        except BaseException as error:
            wrong.append(error)

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong


def test_what_kernels_print(capsys):
    @ct.kernel
    def kernel(x):
        ct.printf("%d\n", ct.bid(0) + 7)
        print("n", ct.bid(0))

    ct.launch(None, (1,), kernel, (np.zeros(1, np.float32),))
    assert capsys.readouterr().out == "7\nn 0\n"


@pytest.mark.parametrize("device", ["cpu", "emu"])
def test_what_kernels_print_before_they_stop(capsys, device):
    @ct.kernel
    def kernel(x):
        print("so far", ct.bid(0))
        # Threads meet for the sum, so that the one that prints has done so.
        ct.assert_(ct.sum(ct.load(x, (0,), (1024,))) > 0, "no more")

    with tessera.use(device), pytest.raises(tessera.KernelFault, match="no more"):
        ct.launch(None, (1,), kernel, (np.zeros(1024, np.float32),))
    assert capsys.readouterr().out == "so far 0\n"


def test_texts_and_signatures(tmp_path):
    from tessera.tile import compilation

    kernel = ct.kernel(plain)
    x = np.zeros(64, np.float32)
    assert ".entry plain(" in kernel.compile(x, x.copy(), 16)
    assert "plain" in kernel.compile(x, x.copy(), 16, emit="schedule")
    with pytest.raises(tessera.ArgumentError, match="no target"):
        kernel.compile(x, x.copy(), 16, target="sm_1")
    signature = compilation.KernelSignature.from_kernel_args(kernel, (x, x.copy(), 16))
    name, again = compilation.demangle_kernel_name(signature.symbol)
    assert name == "plain" and again.with_mangled_symbol(name) == again
    compilation.export_kernel(kernel, [signature], tmp_path / "plain.ptx", gpu_code="sm_80")
    text = (tmp_path / "plain.ptx").read_text()
    assert f".entry {signature.symbol}(" in text and ".target sm_80" in text
    with pytest.raises(tessera.ArgumentError, match="3 parameters"):
        compilation.export_kernel(kernel, [compilation.KernelSignature([16])], tmp_path / "x")
    with pytest.raises(ValueError, match="no symbol"):
        compilation.demangle_kernel_name("plain_Kx1_AAAA")


def test_a_search_over_configurations():
    from tessera.tile import tune

    x, out = np.arange(1024, dtype=np.float32), np.empty(1024, np.float32)
    found = tune.exhaustive_search(
        [64, 100, 256], None, lambda tile: (ct.cdiv(1024, tile),), ct.kernel(plain), lambda tile: (x, out, tile), quiet=True, flush_l2=False
    )
    assert found.best.config in (64, 256) and len(found.successes) == 2
    assert [config for config, *_ in found.failures] == [100]
    assert "2 ran, 1 failed" in found.summary() and "100: TileTypeError" in found.summary()
    with pytest.raises(ValueError, match="no configuration"):
        tune.exhaustive_search([], None, lambda _: (1,), ct.kernel(plain), lambda _: ())
