"""What is wrong is told: an exception with text, place and a way out, and never the end of the process."""

from __future__ import annotations

import dataclasses
import importlib
import linecache
import logging
import signal
import sys
import textwrap
import threading
import time

import numpy as np
import pytest
import tessera
import tessera.tile as ct
from processes import python


@ct.kernel
def copy(x, out, T: ct.Constant[int]):
    i = ct.bid(0)
    ct.store(out, (i,), ct.load(x, (i,), (T,)).astype(out.dtype))


X = np.arange(100, dtype=np.float32)


def launch(*args, grid=(7,), kernel=copy):
    ct.launch(None, grid, kernel, args)


# Arguments.


@pytest.mark.parametrize(
    ("args", "error", "says"),
    [
        ((X,), tessera.ArgumentError, "`out` is missing"),
        ((X, X.copy(), 16, 1), tessera.ArgumentError, "takes 3 arguments, and 4 are given: x, out, T"),
        ((X, X.copy(), "a"), tessera.ArgumentError, "`T` takes a constant integer"),
        ((X, X.copy(), 1.5), tessera.ArgumentError, "`T` takes a constant integer"),
        ((X, 3, 16), ct.TileTypeError, "works on an array"),
        ((X.reshape(10, 10), X.copy(), 16), ct.TileTypeError, "rank 2"),
        ((X, X.copy(), 100), ct.TileTypeError, "power of two"),
        ((X, X.copy(), -4), ct.TileTypeError, "extent -4"),
        ((X.astype(np.complex64), X.copy(), 16), tessera.ArgumentError, "complex64"),
    ],
    ids=lambda value: value.replace(" ", "-") if isinstance(value, str) else "",
)
def test_arguments_that_do_not_fit(args, error, says):
    with pytest.raises(error, match=says) as found:
        launch(*args)
    assert isinstance(found.value, tessera.TesseraError)
    if isinstance(found.value, SyntaxError):
        assert found.value.filename == __file__ and "ct.load(x" in found.value.text


def test_arguments_by_name():
    with pytest.raises(tessera.ArgumentError, match="no parameter `z`: it has x, out, T"):
        copy[7](X, X.copy(), 16, z=1)
    with pytest.raises(tessera.ArgumentError, match="given `x` twice"):
        copy[7](X, X.copy(), 16, x=X)
    for args in (5, None, X):
        with pytest.raises(tessera.ArgumentError, match="a tuple"):
            ct.launch(None, (1,), copy, args)


@pytest.mark.parametrize("grid", [None, (), (1, 2, 3, 4), (-1,), "a", 1.5, (1.5,), (1 << 40,), np.zeros(2), {}], ids=repr)
def test_grids_that_are_none(grid):
    with pytest.raises(tessera.ArgumentError, match="a grid is one to three integers"):
        launch(X, X.copy(), 16, grid=grid)


def test_grids_that_are_too_long_and_those_that_are_right():
    with pytest.raises(tessera.ArgumentError, match="65535"):
        launch(X, X.copy(), 16, grid=(1, 1 << 20))
    for grid in (7, [7], (np.int64(7),), np.array([7]), (7, 1, 1)):
        out = np.zeros_like(X)
        launch(X, out, 16, grid=grid)
        assert (out == X).all()


def test_what_is_no_kernel_and_no_stream():
    with pytest.raises(TypeError, match="decorate its function"):
        ct.launch(None, (1,), lambda x: x, (X,))
    with pytest.raises(TypeError, match="not called but launched"):
        copy(X, X, 16)
    with pytest.raises(TypeError, match="a Python function"):
        ct.kernel(3)
    for stream in (object(), -1, 1 << 64):
        with pytest.raises(tessera.ArgumentError, match="no stream"):
            ct.launch(stream, (1,), copy, (X, X.copy(), 16))
    with pytest.raises(tessera.TileError, match="programmatically"):
        ct.launch(None, (1,), copy, (X, X.copy(), 16), programmatic_dependent_launch=True)


def test_places_that_there_are_none_of():
    for options in (("gpu", {}), ("cpu", {"target": "h100"}), ("cpu", {"sanitize": "race"})):
        with pytest.raises(ValueError):
            tessera.use(options[0], **options[1])
    for options in ({"target": "h1"}, {"sanitize": "everything"}, {"schedule": "slow"}):
        with tessera.use("emu", **options), pytest.raises(tessera.ArgumentError):
            launch(X, X.copy(), 16)
    for options in ({"seed": -1}, {"seed": 1 << 64}, {"seed": "a"}, {"threads": 0}, {"threads": -1}, {"sanitize": True}, {"target": 90}, {"timeout": 0}, {"timeout": "a"}):
        with pytest.raises(tessera.ArgumentError, match=f"`{next(iter(options))}` is"):
            tessera.use("emu", **options)
    assert tessera._device.host().device == "cpu"


def test_one_choice_in_several_threads_and_in_any_order():
    chosen, seen = tessera.use("emu"), []
    tessera.use("cpu")

    def enter(before: float, inside: float):
        time.sleep(before)
        with chosen:
            time.sleep(inside)
            seen.append(tessera._device.host().device)
        seen.append(tessera._device.host().device)

    threads = [threading.Thread(target=enter, args=times) for times in ((0, 0.1), (0.05, 0.15))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(seen) == ["cpu", "cpu", "emu", "emu"]
    # Each is entered before another is made, which would count from then on.
    outer = tessera.use("emu")
    outer.__enter__()
    inner = tessera.use("cpu", threads=1)
    inner.__enter__()
    outer.__exit__(None, None, None)
    assert tessera._device.host().threads == 1
    inner.__exit__(None, None, None)
    assert tessera._device.host() == tessera.Host("cpu")


def test_choices_of_schedules_are_integers():
    @tessera.kernel
    def doubled(x: tessera.Tensor["N", tessera.dtype]):  # noqa: F821
        tessera.tile.store(x, tessera.tile.load(x) * 2)

    with pytest.raises(tessera.ArgumentError, match="choices of a schedule are integers"):
        doubled.launch((X.copy(),), BLOCK_N="a")
    for wrong, says in (({"key": ["N"]}, "over a space"), ({"space": {}}, "over a space")):
        with pytest.raises(TypeError, match=says):
            tessera.kernel.autotune(**wrong)
    with pytest.raises(TypeError, match="an integer or a truth value, not 1.5"):
        tessera.kernel.autotune(space={"BLOCK_N": [1.5]})(doubled.__wrapped__).launch((X.copy(),))


def test_programs_without_a_console(monkeypatch):
    @ct.kernel
    def prints(x):
        ct.printf("%d\n", ct.bid(0))
        ct.store(x, (0,), ct.load(x, (0,), (16,)) + 1)

    x = X.copy()
    monkeypatch.setattr(sys, "stdout", None)
    launch(x, kernel=prints, grid=(1,))
    assert x[0] == X[0] + 1


# Kernels.


def test_mistakes_have_the_place_that_editors_show():
    @ct.kernel
    def wrong(x):
        v = ct.load(x, (0,), (16,))
        ct.store(x, (0,), v + undefined)  # noqa: F821

    with pytest.raises(SyntaxError) as found:
        launch(X.copy(), kernel=wrong)
    error = found.value
    line = textwrap.dedent(error.text).strip()
    assert (error.filename, line) == (__file__, "ct.store(x, (0,), v + undefined)  # noqa: F821")
    assert error.text[error.offset - 1 : error.end_offset - 1] == "undefined"
    assert error.lineno == wrong.__tessera_function__.__code__.co_firstlineno + 3
    (diagnostic,) = error.diagnostics
    assert diagnostic["id"] == "unknown-name" and diagnostic["severity"] == "error" and isinstance(error, ct.TileSyntaxError)
    assert str(error).startswith("error[unknown-name]: the name `undefined`") and "help" in str(error)


def helper(v):
    return v + undefined  # noqa: F821


class Helpers:
    @staticmethod
    def helper(v):
        return v + undefined  # noqa: F821


FIVE = 5
wrong_lambda = lambda v: v + undefined  # noqa: E731, F821


def helped(function):
    if True:
        @ct.kernel
        def kernel(x): ct.store(x, (0,), function(ct.load(x, (0,), (16,))))  # fmt: skip
    return kernel


@ct.kernel
def behind_a_default(x, s=FIVE, t=(1,
                                   FIVE)): ct.store(x, (0,), undefined)  # fmt: skip  # noqa: F821


@ct.kernel
def behind_an_object(x, config, /, *, s=(FIVE), other=3): ct.store(x, (0,), undefined)  # fmt: skip  # noqa: F821


@dataclasses.dataclass
class Given:
    a: int = 1


@pytest.mark.parametrize(
    "start",
    [
        lambda: launch(X.copy(), kernel=helped(helper)),
        lambda: launch(X.copy(), kernel=helped(Helpers.helper)),
        lambda: launch(X.copy(), kernel=helped(wrong_lambda)),
        lambda: launch(X.copy(), kernel=behind_a_default),
        lambda: behind_an_object[1](X.copy(), Given()),
        lambda: behind_an_object[1](X.copy(), Given(), other=Given()),
    ],
    ids=["helper", "static", "lambda", "default", "object", "objects"],
)
def test_columns_are_those_of_the_file(start):
    with pytest.raises(SyntaxError) as found:
        start()
    error = found.value
    line = linecache.getline(error.filename, error.lineno)
    assert (error.offset, error.end_offset) == (line.index("undefined") + 1, line.index("undefined") + 1 + len("undefined"))
    assert f"{__file__}:{error.lineno}:{error.offset}" in str(error)
    assert error.text[error.offset - 1 : error.end_offset - 1] == "undefined"
    assert "FIVE" not in line or error.text == line.rstrip("\n"), "what the file says, not what stands for it"


def test_classes_of_mistakes():
    def refused(function, error, says=None):
        with pytest.raises(error, match=says):
            launch(X.copy(), kernel=ct.kernel(function))

    def asserts(x):
        ct.static_assert(x.dtype == ct.int32, "integers only")

    def raises(x):
        raise ct.static_exception(ValueError("no"))

    def constant(x):
        ct.ensure_constant(ct.bid(0))

    def pointer(x):
        x.foreign_pointer

    def recurses(x):
        again(x)

    def again(x):
        again(x)

    def loops(x):
        async def inner():
            pass

    def returns(x):
        return 1

    refused(asserts, ct.TileStaticAssertionError)
    refused(raises, ct.StaticException, r"\(ValueError: no\)")
    refused(constant, ct.TileStaticAssertionError)
    refused(pointer, ct.TileUnsupportedFeatureError, "`foreign_pointer` of an array")
    refused(recurses, ct.TileRecursionError)
    refused(loops, ct.TileSyntaxError)
    refused(returns, ct.TileTypeError)


def test_kernels_without_a_text():
    names = {"ct": ct}
    exec("@ct.kernel\ndef k(x):\n    ct.bid(0)\n", names)
    with pytest.raises(tessera.SourceError, match="define them in a file or a notebook cell"):
        launch(X, kernel=names["k"])
    with pytest.raises(OSError):
        launch(X.copy(), kernel=helped(eval("lambda v: v")))


def test_a_file_that_was_changed_since_it_was_imported(tmp_path, monkeypatch):
    (tmp_path / "changed_since.py").write_text("import tessera.tile as ct\n\n\n@ct.kernel\ndef k(x):\n    ct.bid(0)\n")
    monkeypatch.syspath_prepend(tmp_path)
    import changed_since

    (tmp_path / "changed_since.py").write_text("import tessera.tile as ct\n\n\ndef other(x):\n    ct.bid(0)\n    return 1\n")
    with pytest.raises(tessera.SourceError, match="changed since it was imported"):
        launch(X, kernel=changed_since.k)


def test_a_file_with_another_text_of_the_same_function(tmp_path, monkeypatch):
    def written(number, more=""):
        (tmp_path / "changed_body.py").write_text(
            f"import tessera.tile as ct\n{more}def h(v):\n    return v + {number}\n@ct.kernel\ndef k(x):\n    ct.store(x, 0, h(ct.load(x, 0, 4)))\n"
        )

    written(1)
    monkeypatch.syspath_prepend(tmp_path)
    import changed_body

    written(1.0)
    with pytest.raises(tessera.SourceError, match="another text than that of `h`: it was changed since it was imported"):
        launch(X, kernel=changed_body.k)
    written(1)
    x = np.zeros(4, np.float32)
    launch(x, kernel=changed_body.k, grid=(1,))
    assert (x == 1).all()


def test_kernels_with_parameters_for_any_number_of_arguments():
    with pytest.raises(TypeError, match=r"one parameter for each argument, and .*k` has a `\*` parameter"):

        @ct.kernel
        def k(*arrays):
            ct.bid(0)


@pytest.mark.parametrize(("device", "options"), [("cpu", {}), ("cpu", {"sanitize": "all"}), ("emu", {}), ("emu", {"sanitize": "all"})])
def test_a_kernel_that_never_ends_is_stopped(device, options):
    @ct.kernel
    def waits(flag):
        while ct.load(flag, (0,), (), memory_order=ct.MemoryOrder.RELAXED, memory_scope=ct.MemoryScope.DEVICE) == 0:
            pass

    with tessera.use(device, timeout=0.3, **options):
        with pytest.raises(tessera.KernelFault, match="has not ended after 0.3 s|no thread can go on") as found:
            launch(np.zeros(1, np.int32), kernel=waits, grid=(1,))
        assert "while ct.load(flag" in str(found.value) or f"{__file__}:" in str(found.value)
        launch(np.ones(1, np.int32), kernel=waits, grid=(1,))


def test_faults_name_the_kernel_and_the_place():
    @ct.kernel
    def asserts(x):
        ct.assert_(ct.bid(0) < 3, "too many blocks")

    for device in ("cpu", "emu"):
        with tessera.use(device), pytest.raises(tessera.KernelFault, match="too many blocks") as found:
            launch(X, kernel=asserts)
        assert "asserts" in str(found.value) or __file__ in str(found.value)
    # The process goes on.
    launch(X, np.zeros_like(X), 16)


def test_places_are_in_the_files_of_their_functions_though_others_say_the_same(tmp_path, monkeypatch):
    monkeypatch.syspath_prepend(tmp_path)
    helper = "import tessera.tile as ct\ndef stored(x, v):\n    ct.store(x, (0,), v + 1)\n"

    def of(function):
        @ct.kernel
        def kernel(x):
            function(x, ct.load(x, (0,), (16,)))

        return kernel

    def of_wrong(function):
        @ct.kernel
        def kernel(x):
            function(x, ct.load(x, (0,), (16,)).reshape((4, 4)))

        return kernel

    for name in ("same_a", "same_b"):
        (tmp_path / f"{name}.py").write_text(helper)
        stored = importlib.import_module(name).stored
        with pytest.raises(ct.TileError) as found:
            launch(np.zeros(16, np.float32), kernel=of_wrong(stored), grid=(1,))
        assert (found.value.filename, found.value.lineno) == (str(tmp_path / f"{name}.py"), 3)
        with tessera.use("emu", sanitize="all"), pytest.raises(tessera.SanitizerError) as found:
            launch(np.zeros(16, np.float32), kernel=of(stored), grid=(4,))
        assert f"{name}.py:3:" in str(found.value)


def test_sanitizers_give_their_findings():
    @ct.kernel
    def races(x):
        ct.store(x, (0,), ct.load(x, (0,), (16,)) + 1)

    with tessera.use("emu", sanitize="all"), pytest.raises(tessera.SanitizerError, match="race") as found:
        launch(np.zeros(16, np.float32), kernel=races, grid=(4,))
    assert found.value.findings and __file__ in str(found.value)
    assert isinstance(found.value, tessera.KernelFault)


def test_a_limit_on_compiling():
    @ct.kernel
    def long(x):
        for i in ct.static_iter(range(200)):
            ct.store(x, (i,), ct.load(x, (i,), (16,)) * i + 1)

    with ct.compiler_timeout(1e-6), pytest.raises(ct.TileCompilerTimeoutError, match="was not compiled within"):
        launch(np.zeros(3200, np.float32), kernel=long, grid=(1,))
    launch(np.zeros(3200, np.float32), kernel=long, grid=(1,))


def test_a_limit_on_compiling_to_a_text():
    @ct.kernel
    def long(x):
        for i in ct.static_iter(range(200)):
            ct.store(x, (i,), ct.load(x, (i,), (16,)) * i + 1)

    with ct.compiler_timeout(1e-6), pytest.raises(ct.TileCompilerTimeoutError, match="was not compiled within"):
        long.compile(np.zeros(3200, np.float32))
    assert ".entry" in long.compile(np.zeros(3200, np.float32))
    for wrong, error in (("a", TypeError), (0, ValueError), (float("nan"), ValueError)):
        with pytest.raises(error, match="a positive number of seconds"), ct.compiler_timeout(wrong):
            pass


def test_no_gpu_is_told(caplog):
    class OnGpu:
        device = 0
        __cuda_array_interface__ = {"shape": (100,), "typestr": "<f4", "data": (4096, False), "version": 3}

    with caplog.at_level(logging.DEBUG), pytest.raises(tessera.DeviceError, match="GPU 0"):
        launch(OnGpu(), OnGpu(), 16)
    with pytest.raises(tessera.ArgumentError, match="copy some of them"):
        launch(X, OnGpu(), 16)


# Processes.

HEAD = """
import os, signal, sys, threading, time
import numpy as np, tessera, tessera.tile as ct
# A runner that was started in the background hands down that interrupts are ignored.
signal.signal(signal.SIGINT, signal.default_int_handler)
@ct.kernel
def long(x, out, n, T: ct.Constant[int]):
    i = ct.bid(0)
    v = ct.load(x, (i,), (T,))
    for j in range(n):
        v = v * 1.0001 + 1.0
    ct.store(out, (i,), v)
x = np.arange(10000, dtype=np.float32)
out = np.empty_like(x)
def launch(n):
    ct.launch(None, (79,), long, (x, out, n, 128))
launch(1)
"""


def program(tmp_path, text: str):
    file = tmp_path / "program.py"
    file.write_text(HEAD + textwrap.dedent(text))
    return python(str(file))


@pytest.mark.skipif(not hasattr(sys, "getdlopenflags"), reason="forks are of Unix")
def test_a_fork_after_use_says_so(tmp_path):
    ran = program(
        tmp_path,
        """
        child = os.fork()
        if child == 0:
            for run in (lambda: launch(1), lambda: tessera.ops.softmax(x.reshape(100, 100))):
                try:
                    run()
                except tessera.DeviceError as error:
                    print("told:", error)
            sys.stdout.flush()
            os._exit(0)
        print("ended with", os.waitpid(child, 0)[1])
        launch(1)
        """,
    )
    assert ran.returncode == 0, ran.stderr
    assert ran.stdout.count("told: this process was forked") == 2 and "spawn" in ran.stdout and "ended with 0" in ran.stdout


def test_a_fork_before_use_is_one_like_any_other(tmp_path):
    file = tmp_path / "program.py"
    file.write_text(
        HEAD.replace("launch(1)\n", "")
        + "child = os.fork()\nlaunch(1)\nif child == 0:\n    os._exit(0)\nprint('ended with', os.waitpid(child, 0)[1])\n"
    )
    ran = python(str(file))
    assert ran.stdout == "ended with 0\n", ran.stderr


def test_the_interpreter_ends_while_kernels_run(tmp_path):
    ran = program(
        tmp_path,
        """
        def forever():
            while True:
                launch(20000)
        for _ in range(3):
            threading.Thread(target=forever, daemon=True).start()
        time.sleep(0.3)
        print("the end")
        """,
    )
    assert (ran.returncode, ran.stdout) == (0, "the end\n"), ran.stderr


def test_an_interrupt_is_an_interrupt(tmp_path):
    ran = program(
        tmp_path,
        """
        threading.Timer(0.2, lambda: os.kill(os.getpid(), signal.SIGINT)).start()
        try:
            for _ in range(1000):
                launch(5000)
        except KeyboardInterrupt:
            print("interrupted")
        launch(1)
        """,
    )
    assert (ran.returncode, ran.stdout) == (0, "interrupted\n"), ran.stderr


def test_an_error_that_nobody_catches_shows_the_place(tmp_path):
    ran = program(
        tmp_path,
        """
        @ct.kernel
        def wrong(x):
            ct.nothing(x)
        ct.launch(None, (1,), wrong, (x,))
        """,
    )
    assert ran.returncode == 1 and ran.returncode != -signal.SIGABRT
    assert 'program.py", line' in ran.stderr and "ct.nothing(x)" in ran.stderr and "unknown-attribute" in ran.stderr


def test_the_command_and_its_options():
    assert python("-m", "tessera", "--version").returncode == 0
    ran = python("-m", "tessera", "--cpu", "list")
    assert ran.returncode == 1 and "stands before a program" in ran.stderr


def test_a_fault_of_an_operator_is_a_finding_and_the_device_goes_on():
    values, columns, offsets = np.ones(4, np.float32), np.array([0, 1, 10**8, 3], np.int32), np.array([0, 2, 4], np.int32)
    with tessera.use("emu", sanitize="all"):
        with pytest.raises(tessera.SanitizerError) as found:
            tessera.ops.spmv(values, columns, offsets, np.ones(8, np.float32), out=np.zeros(2, np.float32))
        assert found.value.findings
        assert np.allclose(tessera.ops.softmax(np.ones((1, 4), np.float32)), 0.25)


def test_variants_and_results_that_an_operator_has_not():
    x = np.ones((1, 4), np.float32)
    with pytest.raises(tessera.ArgumentError, match="no variant `nope`"):
        tessera.ops.softmax(x, variant="nope")
    with pytest.raises(tessera.ArgumentError, match="gives 1 results, and `out` has 2"):
        tessera.ops.softmax(x, out=(x.copy(), x.copy()))
    with pytest.raises(tessera.ArgumentError, match="`out` of `top_k` has an array for each result"):
        tessera.ops.top_k(x, k=2, out=(None, x))
    with pytest.raises(tessera.ArgumentError, match="`softmax` has no `foo`: it has x, y"):
        tessera.ops.softmax(x, foo=3)
    with pytest.raises(tessera.ArgumentError, match="`eps` of `rms_norm` is a number, not 'a'"):
        tessera.ops.rms_norm(x, x[0], eps="a")
