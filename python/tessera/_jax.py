"""Kernels in programs of JAX: ``cuda.tile.jax``, for arrays on the CPU.

A call outside ``jax.jit`` is a launch. Inside it is a callback of the compiled program, which runs where the process's :func:`tessera.use` says;
the kernel is compiled while JAX traces, so that its errors are raised there.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import jax
import numpy as np

from . import errors
from ._kernel import launch


@dataclass
class OutputPlaceholder:
    """A result that a kernel writes: an array of a shape and a type, which is made for it."""

    shape: tuple[int, ...]
    dtype: Any


@dataclass
class InputOutput:
    """An array that a kernel reads and writes; what it has become is a result, and the array stays what it was."""

    array: jax.Array


def cutile_call(grid: tuple[int, ...], kernel, args: tuple[Any, ...]):
    """Launches a kernel on JAX's arrays, outside ``jax.jit`` or inside.

    Args:
        grid: Blocks along one to three axes.
        kernel: The kernel.
        args: Arguments by position: arrays, which are read; :class:`OutputPlaceholder`; :class:`InputOutput`; numbers; tuples of these.

    Returns:
        The array of the one :class:`OutputPlaceholder` or :class:`InputOutput`, or a tuple of several in the order of the arguments.

    Raises:
        TileUnsupportedFeatureError: arrays are on a GPU.
        TileError: the kernel does not compile.
        ArgumentError: arguments that the kernel does not take.
    """
    if jax.default_backend() != "cpu":
        text = f"JAX's arrays are on `{jax.default_backend()}`, where kernels in its programs are not done: set `JAX_PLATFORMS=cpu`"
        raise errors.TileUnsupportedFeatureError(text)
    inputs: list[Any] = []
    outputs: list[jax.ShapeDtypeStruct] = []
    plan = [_planned(value, inputs, outputs) for value in args]

    def run(*arrays) -> tuple[np.ndarray, ...]:
        made: list[np.ndarray] = []
        launch(None, grid, kernel, tuple(_argument(own, arrays, outputs, made) for own in plan))
        return tuple(made)

    if any(isinstance(value, jax.core.Tracer) for value in inputs):
        alike = [np.empty(value.shape, value.dtype) for value in inputs]
        made: list[np.ndarray] = []
        kernel.written(tuple(_argument(own, alike, outputs, made) for own in plan), grid=grid)
        found = jax.pure_callback(run, tuple(outputs), *inputs, vmap_method="sequential")
    else:
        found = tuple(jax.device_put(made) for made in run(*inputs))
    return found[0] if len(found) == 1 else found


def _planned(value, inputs: list, outputs: list):
    """What an argument is: a tuple of such, or its kind with the places of its arrays among those that are read and those that are written."""
    if isinstance(value, tuple):
        return tuple(_planned(item, inputs, outputs) for item in value)
    if isinstance(value, OutputPlaceholder):
        outputs.append(jax.ShapeDtypeStruct(value.shape, value.dtype))
        return _Written(None)
    if isinstance(value, InputOutput):
        inputs.append(value.array)
        outputs.append(jax.ShapeDtypeStruct(value.array.shape, value.array.dtype))
        return _Written(len(inputs) - 1)
    if isinstance(value, jax.Array):
        inputs.append(value)
        return _Read(len(inputs) - 1)
    return value


@dataclass(frozen=True)
class _Read:
    at: int


@dataclass(frozen=True)
class _Written:
    #: The place of what it holds before.
    at: int | None


def _argument(own, arrays: tuple, outputs: list[jax.ShapeDtypeStruct], made: list[np.ndarray]):
    """An argument of the launch; arrays that it writes are added to those that were made."""
    if isinstance(own, tuple):
        return tuple(_argument(item, arrays, outputs, made) for item in own)
    if isinstance(own, _Read):
        return np.asarray(arrays[own.at])
    if isinstance(own, _Written):
        like = outputs[len(made)]
        made.append(np.empty(like.shape, like.dtype) if own.at is None else np.array(arrays[own.at]))
        return made[-1]
    return own
