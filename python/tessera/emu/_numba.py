"""Kernels of Numba: compiled by Numba itself as far as PTX, which needs its compiler library and no GPU, and run on the emulator."""

from __future__ import annotations

from typing import Any

from .. import errors
from ._arguments import Unwritten
from ._machine import HOW, Launch
from ._report import Report

_INSTALL = "`pip install 'numba-cuda[cu13]'`, whose compiler library needs no GPU"


def numba(kernel, grid, block, *args, target: str = "sm_90", shared: int = 0, **how) -> Report:
    """Runs a kernel of Numba's on the emulator, and looks for mistakes.

    ::

        @cuda.jit
        def double(x): ...

        tessera.emu.numba(double, 4, 256, x)

    Args:
        kernel: A function of ``@cuda.jit``, or the plain function.
        grid: Blocks along one to three axes.
        block: Threads of a block along one to three axes.
        args: Its arguments: arrays of NumPy or PyTorch (on the CPU), numbers, tuples of these; :class:`Unwritten` arrays.
        target: What it is compiled for: ``sm_80``, ``sm_90``, ...
        shared: Bytes of dynamic shared memory.
        how: ``sanitize``, ``schedule``, ``seed``, ``raise_on`` and the others of :class:`How`.

    Returns:
        What the launch did; arrays hold what the kernel wrote.

    Raises:
        SanitizerError: findings; each has the kernel's file and line. Arrays are as they were.
        ArgumentError: arguments that a kernel of Numba's does not take.
        DeviceError: Numba's compiler library is not there.
        numba.core.errors.NumbaError: what Numba refuses.
    """
    unknown = [name for name in how if name not in HOW]
    if unknown:
        raise errors.ArgumentError(f"a launch has no `{unknown[0]}`: arguments of a kernel of Numba's are given by position")
    return prepare_numba(kernel, grid, block, *args, target=target, shared=shared).run(**how)


def prepare_numba(kernel, grid, block, *args, target: str = "sm_90", shared: int = 0) -> Launch:
    """The launch of a kernel of Numba's: its PTX with its arguments, to be run or explored. Arguments are those of :func:`numba`."""
    try:
        from numba import cuda
        from numba.cuda.cudadrv.error import NvvmSupportError
    except ImportError as error:
        raise ImportError(f"`tessera.emu.numba` needs Numba: {_INSTALL}") from error
    capability = target.removeprefix("sm_").rstrip("af")
    if not target.startswith("sm_") or not capability.isdigit():
        raise errors.ArgumentValueError(f"target={target!r}: Numba compiles for a target such as `sm_80` or `sm_90`")
    function = getattr(kernel, "py_func", kernel)
    flat: list = []
    types = tuple(_flatten(f"argument {index}", value, flat) for index, value in enumerate(args))
    try:
        ptx, _ = cuda.compile_ptx(function, types, cc=divmod(int(capability), 10), lineinfo=True)
    except NvvmSupportError as error:
        raise errors.DeviceError(f"Numba's compiler library is not there: {_INSTALL}") from error
    return Launch(ptx=ptx, grid=grid, block=block, args=flat, shared=shared, target=target, name=function.__name__)


def _flatten(name: str, value: Any, out: list):
    """The type that Numba has for a value; appends what the kernel's parameters get: of an array two handles that kernels do not use, its
    size, the size of an element, its address, and sizes and strides in bytes along each axis."""
    import numba
    import numpy
    from numba import types
    from numba.np.numpy_support import as_dtype

    if isinstance(value, tuple):
        return types.BaseTuple.from_types([_flatten(f"{name}[{index}]", item, out) for index, item in enumerate(value)])
    array = value.array if isinstance(value, Unwritten) else value
    if hasattr(array, "__array__") and getattr(array, "ndim", None) is not None and not isinstance(array, numpy.generic):
        own = numpy.asarray(array)
        words = [own.size, own.itemsize, value, *own.shape, *own.strides]
        out += [None, None, *(numpy.int64(word) if isinstance(word, int) else word for word in words)]
        return numba.typeof(own)
    if not isinstance(value, (bool, int, float, numpy.generic)):
        raise errors.ArgumentError(f"{name} is a `{type(value).__name__}`, and a kernel of Numba's takes arrays, numbers and tuples of these here")
    type_ = numba.typeof(value)
    out.append(numpy.asarray(value, as_dtype(type_)).tobytes())
    return type_
