"""Expressions of compile time, which Python evaluates where they name live objects alone."""

import functools
import itertools
import operator
import os
import types

import numpy as np
import pytest
import tessera.tile as ct
from applied import ConstInt, kernel_of, run

NUMBERS, SPACE = {"a": 1, "b": 2.5}, types.SimpleNamespace(tile=128)
TABLE = [1.0, 2.0, 3.0]
EXTENTS = np.array([3, 7])


@functools.cache
def squared(n):
    return n * n


def total(n):
    found = []
    for i in range(n):
        found.append(TABLE[i])
    return sum(found)


@pytest.mark.parametrize(
    ("function", "value"),
    [
        (lambda v: v + ct.static_eval(squared(3)), 9),
        (lambda v: v + ct.static_eval(total(2)), 3),
        (lambda v: v + ct.static_eval(round(2.567, 1)), np.float32(2.6)),
        (lambda v: v + ct.static_eval(int("0x1f", 16)), 31),
        (lambda v: v + ct.static_eval(float(np.finfo(np.float16).max)), 65504),
        (lambda v: v + ct.static_eval(int(np.prod((2, 3, 4)))), 24),
        (lambda v: v + ct.static_eval({**NUMBERS, "b": 7}["b"]), 7),
        (lambda v: v + ct.static_eval(TABLE[slice(1, 2)])[0], 2),
        (lambda v: v + ct.static_eval(getattr(SPACE, "none", 4) if hasattr(SPACE, "tile") and callable(run) else 5), 4),
        (lambda v: v + ct.static_eval(int(os.environ.get("NO_SUCH_VARIABLE", "3"))), 3),
        (lambda v: v + ct.static_eval({n * n for n in range(4)} and max(n * n for n in range(4))), 9),
        (lambda v: ct.static_eval(operator.add)(v, 5), 5),
        (lambda v: ct.static_eval([lambda w: w + 7])[0](v), 7),
        (lambda v: v + ct.static_eval(int(EXTENTS[1]) * len(EXTENTS)), 14),
        (lambda v: v + sum(n * m for n, m in ct.static_eval(list(itertools.product(range(3), range(3))))), 9),
    ],
    ids=lambda value: None if callable(value) else str(value),
)
def test_python_evaluates_what_names_live_objects_alone(function, value):
    assert (run(kernel_of(function))[1] == np.arange(1000, dtype=np.float32) + value).all()


def test_loops_over_what_python_iterates_over():
    @ct.kernel
    def kernel(x, out, T: ConstInt):
        i = ct.bid(0)
        v = ct.load(x, (i,), (T,))
        for a, b in ct.static_iter(itertools.combinations(itertools.accumulate(TABLE), 2)):
            v = v + a * b
        ct.static_assert(squared(2) == 4)
        ct.store(out, (i,), v)

    assert (run(kernel)[1] == np.arange(1000) + (3 + 6 + 18)).all()


def test_what_python_evaluated_is_evaluated_again_where_it_reads_something_else(monkeypatch):
    kernel = kernel_of(lambda v: v + ct.static_eval(total(3)) * ct.static_eval(os.environ.get("TESSERA_TEST_FACTOR", "1") == "1"))
    assert (run(kernel)[1] == np.arange(1000) + 6).all()
    compiled = kernel._native()
    run(kernel)
    assert kernel._native() is compiled, "nothing has changed"
    TABLE[2] = 10.0
    try:
        assert (run(kernel)[1] == np.arange(1000) + 13).all()
    finally:
        TABLE[2] = 3.0
    monkeypatch.setenv("TESSERA_TEST_FACTOR", "0")
    assert (run(kernel)[1] == np.arange(1000)).all()


def test_exceptions_of_python_are_told_at_the_expression():
    @ct.kernel
    def raises(x, out, T: ConstInt):
        if T == 1:
            ct.store(out, (0,), ct.static_eval(NUMBERS["none"]))

    run_of = lambda T: ct.launch(None, (1,), raises, (np.zeros(4, np.float32), np.zeros(4, np.float32), T))  # noqa: E731
    run_of(2)
    with pytest.raises(ct.StaticException, match=r"\(KeyError: 'none'\)") as found:
        run_of(1)
    assert 'NUMBERS["none"]' in found.value.text and found.value.filename == __file__
