"""``cuda.tile.jax`` on the CPU: launches outside and inside ``jax.jit``."""

from __future__ import annotations

import numpy as np
import pytest
import tessera
import tessera.tile as ct
from processes import python

jax = pytest.importorskip("jax")

from tessera.tile.jax import InputOutput, OutputPlaceholder, cutile_call


@ct.kernel
def scale(x, y, c: ct.Constant, T: ct.Constant):
    i = ct.bid(0)
    ct.store(y, (i,), ct.load(x, (i,), (T,)) * c)


@ct.kernel
def halve(x, T: ct.Constant):
    i = ct.bid(0)
    ct.store(x, (i,), ct.load(x, (i,), (T,)) / 2)


@ct.kernel
def both(pair, add, sub, T: ct.Constant):
    i = ct.bid(0)
    x, y = ct.load(pair[0], (i,), (T,)), ct.load(pair[1], (i,), (T,))
    ct.store(add, (i,), x + y)
    ct.store(sub, (i,), x - y)


def program(x, c, tile):
    grid = (ct.cdiv(x.shape[0], tile),)
    made = OutputPlaceholder(x.shape, x.dtype)
    y = cutile_call(grid, scale, (x, made, c, tile))
    y = cutile_call(grid, halve, (InputOutput(y), tile))
    added, subtracted = cutile_call(grid, both, ((x, y), made, made, tile))
    return added * subtracted


@pytest.mark.parametrize("wrap", [lambda function: function, jax.jit], ids=["plain", "jit"])
def test_calls_are_launches(wrap):
    x = jax.numpy.arange(10, dtype=jax.numpy.float32)
    y = wrap(lambda x: program(x, 3.0, 4))(x)
    assert isinstance(y, jax.Array)
    assert np.array_equal(y, np.arange(10.0) ** 2 * (1 - 1.5**2))
    assert np.array_equal(x, np.arange(10.0)), "what is read stays"


def test_a_mistake_in_a_kernel_is_told():
    with pytest.raises(tessera.TileError, match="power of two"):
        cutile_call((1,), halve, (InputOutput(jax.numpy.ones(10)), 3))


def test_a_mistake_in_a_kernel_is_told_while_jax_traces():
    x = jax.ShapeDtypeStruct((10,), jax.numpy.float32)
    with pytest.raises(tessera.TileError, match="power of two"):
        jax.jit(lambda x: cutile_call((1,), halve, (InputOutput(x), 3))).lower(x)
    with pytest.raises(tessera.ArgumentError, match="`T` is missing"):
        jax.jit(lambda x: cutile_call((1,), halve, (InputOutput(x),))).lower(x)


def test_it_is_imported_by_the_name_of_cutile():
    program = (
        "import tessera; tessera.install()\n"
        "from cuda.tile.jax import cutile_call\n"
        "import cuda.tile.jax, tessera.tile.jax\n"
        "assert cuda.tile.jax.OutputPlaceholder is tessera.tile.jax.OutputPlaceholder\n"
    )
    ran = python("-c", program)
    assert ran.returncode == 0, ran.stderr
    missing = "import sys; sys.modules['jax'] = None\nimport tessera; tessera.install()\nimport cuda.tile.jax\n"
    assert "needs JAX, which is not installed" in python("-c", missing).stderr
