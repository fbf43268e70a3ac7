"""Other people's kernels on the emulator of a GPU, with all its sanitizers: a race detector for PTX that needs no GPU.

::

    import numpy as np, tessera.emu

    report = tessera.emu.run(ptx, grid=4, block=256, args=(x, y, 1000))         # anybody's PTX
    report = tessera.emu.triton(kernel, (4,), x, y, 1000, BLOCK=256)             # a kernel of Triton's
    report = tessera.emu.numba(kernel, 4, 256, x, y)                             # a kernel of Numba's

Arrays are those of NumPy, of PyTorch on the CPU, and of whatever has DLPack. What a kernel writes is in them afterwards. Findings name the line
of the kernel's source, and raise :class:`tessera.SanitizerError`.
"""

from __future__ import annotations

from ._arguments import TensorMap, Unwritten
from ._cuda import compile_cuda
from ._machine import HOW, How, Launch, Machine, Scratch, explore, run
from ._numba import numba, prepare_numba
from ._places import Frame
from ._report import Exploration, Finding, Place, Report
from ._triton import prepare_triton, split_how, tensor_descriptor, triton

__all__ = [
    "HOW",
    "Exploration",
    "Finding",
    "Frame",
    "How",
    "Launch",
    "Machine",
    "Place",
    "Report",
    "Scratch",
    "TensorMap",
    "Unwritten",
    "compile_cuda",
    "explore",
    "numba",
    "prepare_numba",
    "prepare_triton",
    "run",
    "split_how",
    "tensor_descriptor",
    "triton",
]
