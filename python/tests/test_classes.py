"""Enumerations, dataclasses and methods in kernels: what their live objects are, whatever their texts say."""

import abc
import copy
import dataclasses
import enum
import pickle

import ml_dtypes
import numpy as np
import pytest
import tessera
import tessera.tile as ct

X = np.arange(16, dtype=np.float32)


def run(kernel, *args):
    """What a kernel makes of 0, 1, 2, ... less these."""
    y = np.full(16, np.nan, np.float32)
    ct.launch(None, (1,), kernel, (X, y, *args))
    assert (y - X == y[0]).all()
    return y[0]


@dataclasses.dataclass(frozen=True)
class Scale:
    by: object


@ct.kernel
def scaled(x, y, scale):
    ct.store(y, (0,), ct.load(x, (0,), (16,)) + scale.by)


# Kernels as objects.


class Holds(abc.ABC):
    @ct.kernel
    def kernel(x, y):
        ct.store(y, (0,), ct.load(x, (0,), (16,)) + 1)


def test_kernels_are_copied_and_pickled_by_name():
    for kernel in (scaled, Holds.kernel):
        assert copy.copy(kernel) is kernel and copy.deepcopy([kernel])[0] is kernel and pickle.loads(pickle.dumps(kernel)) is kernel

    @ct.kernel
    def local(x, y):
        pass

    for kernel in (local, scaled.replace_hints(opt_level=1)):
        assert copy.copy(kernel) is kernel
        with pytest.raises(pickle.PicklingError, match="pickled by name"):
            pickle.dumps(kernel)


def test_kernels_are_made_by_def():
    async def waits(x):
        pass

    for function in (lambda x: None, waits):
        with pytest.raises(TypeError, match="made by `def`"):
            ct.kernel(function)
