"""Tile kernels: written once, compiled in milliseconds, run and checked with or without a GPU.

::

    import numpy as np
    import tessera
    import tessera.tile as ct

    @ct.kernel
    def add(x, y, out, TILE: ct.Constant[int]):
        i = ct.bid(0)
        ct.store(out, (i,), ct.load(x, (i,), (TILE,)) + ct.load(y, (i,), (TILE,)))

    x, y, out = np.arange(1000.0), np.ones(1000), np.empty(1000)
    ct.launch(None, (4,), add, (x, y, out, 256))

Arrays of NumPy, PyTorch, CuPy, JAX and whatever has DLPack are taken as they lie, without a copy.
"""

from __future__ import annotations

from . import _native, dtypes, errors
from ._device import Host, use
from ._kernel import Kernel, launch
from ._kernel import OwnKernel as kernel
from .dtypes import DType
from .errors import (
    ArgumentError,
    DeviceError,
    KernelFault,
    SanitizerError,
    SourceError,
    TesseraError,
    TesseraWarning,
    TileError,
)

__version__ = _native.version()

# Element types, by their names and the short ones.
bool_: DType
uint8: DType
uint16: DType
uint32: DType
uint64: DType
int8: DType
int16: DType
int32: DType
int64: DType
float16: DType
float32: DType
float64: DType
bfloat16: DType
tfloat32: DType
float8_e4m3fn: DType
float8_e5m2: DType
float8_e8m0fnu: DType
float8_e5m3fnu: DType
float4_e2m1fn: DType
fp64: DType
fp32: DType
fp16: DType
bf16: DType
tf32: DType
fp8_e4m3: DType
fp8_e5m2: DType
globals().update(dtypes.ALL)
globals().update({short: dtypes.find(short) for short in dtypes.SHORT})


class Tensor:
    """An operand of a kernel: ``Tensor["M", "K", dtype]`` names its axes and its element type."""

    __tessera_path__ = "tessera.Tensor"

    def __class_getitem__(cls, axes):
        return cls


class _Variable:
    """An element type that the first argument which uses it says. To the compiler it is a name that stands for nothing."""

    __tessera_unbound__ = True

    def __repr__(self) -> str:
        return "dtype"


dtype = _Variable()


def list_operators() -> list[dict]:
    """The operators of the library: name, what it computes, variants, precisions, inputs and outputs."""
    return _native.operators()


def doctor() -> str:
    """What this machine has and can do, as ``tessera doctor`` prints it."""
    from . import _process

    # With code 4 it has printed what is wrong.
    _, printed = _process.run(["doctor"], good=(0, 4))
    return printed


def install() -> None:
    """Puts :mod:`tessera.tile` in the place of ``cuda.tile``, so that projects that import it run on Tessera unchanged. Call it before they
    are imported."""
    import sys
    import types

    from . import tile

    cuda = sys.modules.get("cuda")
    if cuda is None:
        try:
            import cuda
        except ImportError:
            cuda = types.ModuleType("cuda")
            cuda.__path__ = []
            sys.modules["cuda"] = cuda
    for name in [name for name in sys.modules if name == "cuda.tile" or name.startswith("cuda.tile.")]:
        del sys.modules[name]
    cuda.tile = tile
    sys.modules["cuda.tile"] = tile
    for name in ("tune", "compilation"):
        sys.modules[f"cuda.tile.{name}"] = getattr(tile, name)


from . import emu, ops, tile  # noqa: E402  (they need what is above)


def __getattr__(name: str):
    """:mod:`tessera.testing`, which needs NumPy, when it is asked for."""
    if name == "testing":
        import importlib

        return importlib.import_module(".testing", __name__)
    raise AttributeError(f"module `{__name__}` has no attribute `{name}`")


__all__ = [
    "ArgumentError",
    "DType",
    "DeviceError",
    "Host",
    "Kernel",
    "KernelFault",
    "SanitizerError",
    "SourceError",
    "Tensor",
    "TesseraError",
    "TesseraWarning",
    "TileError",
    "doctor",
    "dtype",
    "emu",
    "errors",
    "install",
    "kernel",
    "launch",
    "list_operators",
    "ops",
    "tile",
    "use",
    *dtypes.ALL,
    *dtypes.SHORT,
]
