"""The API of ``cuda.tile`` 1.7: ``import tessera.tile as ct``.

Functions of tiles have a meaning inside kernels alone; the compiler reads kernels' texts, and nothing here is called by them. What may be called on
the host is :func:`launch`, :class:`kernel`, :func:`cdiv`, :func:`compiler_timeout` and :mod:`tune`.
"""

from __future__ import annotations

import contextlib
import enum
import inspect
import numbers
from dataclasses import dataclass
from typing import Annotated, Any, TypeVar

from .. import _native, dtypes, errors
from .._kernel import BlockKernel as kernel
from .._kernel import launch
from ..dtypes import DType
from ..errors import (
    StaticException,
    TileCompilerExecutionError,
    TileCompilerTimeoutError,
    TileError,
    TileInternalError,
    TileRecursionError,
    TileStaticAssertionError,
    TileStaticEvalError,
    TileSyntaxError,
    TileTypeError,
    TileUnsupportedFeatureError,
    TileValueError,
)

bool_ = dtypes.ALL["bool_"]
globals().update(dtypes.ALL)

T = TypeVar("T")


class ConstantAnnotation:
    """Marks a parameter whose value is known when the kernel is compiled."""

    def __repr__(self) -> str:
        return "ConstantAnnotation()"


@dataclass(frozen=True, kw_only=True)
class ArrayAnnotation:
    """Marks an array parameter.

    Attributes:
        index_dtype: Type of sizes and strides.
        static_shape_dims: Axes whose sizes are known when the kernel is compiled.
        static_stride_dims: Axes whose strides are.
    """

    index_dtype: DType = dtypes.ALL["int32"]
    static_shape_dims: tuple[int, ...] = ()
    static_stride_dims: tuple[int, ...] = ()


@dataclass(frozen=True, kw_only=True)
class ListAnnotation:
    """Marks a parameter that is a list of arrays."""

    element: Any


@dataclass(frozen=True)
class _ScalarAnnotation:
    dtype: DType


class PaddingMode(enum.Enum):
    """What elements outside an array are."""

    UNDETERMINED = "undetermined"
    ZERO = "zero"
    NEG_ZERO = "neg_zero"
    NAN = "nan"
    POS_INF = "pos_inf"
    NEG_INF = "neg_inf"


class RoundingMode(enum.Enum):
    """How results are rounded."""

    RN = "nearest_even"
    RZ = "zero"
    RM = "negative_inf"
    RP = "positive_inf"
    RA = "nearest_away"
    FULL = "full"
    APPROX = "approx"
    RZI = "nearest_int_to_zero"


class MemoryOrder(enum.Enum):
    """What an atomic access orders."""

    WEAK = "weak"
    RELAXED = "relaxed"
    ACQUIRE = "acquire"
    RELEASE = "release"
    ACQ_REL = "acq_rel"


class MemoryScope(enum.Enum):
    """Among whom it does."""

    NONE = "none"
    BLOCK = "block"
    CLUSTER = "cluster"
    DEVICE = "device"
    SYS = "sys"


class ByTarget:
    """A hint that depends on the target: ``ByTarget(sm_90=2, default=1)``."""

    def __init__(self, *, default=None, **value_by_target):
        wrong = [name for name in value_by_target if not (name.startswith("sm_") and name[3:].rstrip("af").isdigit())]
        if wrong:
            raise ValueError(f"`{wrong[0]}` is no target: write `sm_90` or the like")
        self._default = default
        self._value_by_target = value_by_target

    def __repr__(self) -> str:
        return f"ByTarget({', '.join(f'{name}={value!r}' for name, value in self._value_by_target.items())}, default={self._default!r})"


def _signature(text: str) -> inspect.Signature:
    """The signature of a parameter list."""
    names: dict[str, Any] = {}
    exec(f"def inside({text}): ...", {"PaddingMode": PaddingMode, "MemoryOrder": MemoryOrder, "MemoryScope": MemoryScope}, names)  # noqa: S102
    return inspect.signature(names["inside"])


def _stub(path: str, name: str, parameters: str, doc: str):
    """A function that has a meaning inside kernels alone."""

    def inside(*_, **__):
        raise errors.KernelsAlone(f"`{name}` is called inside kernels alone: launch a kernel that does")

    inside.__name__ = inside.__qualname__ = name
    inside.__module__ = __name__
    inside.__doc__ = f"{name}({parameters})\n\n{doc[:1].upper()}{doc[1:]}. For kernels alone."
    inside.__signature__ = _signature(parameters)
    inside.__tessera_path__ = f"{path}.{name}"
    return inside


def _member(name: str, doc: str) -> property:
    """An attribute that has a value inside kernels alone."""

    def inside(_):
        raise errors.KernelsAlone(f"`{name}` has a value inside kernels alone")

    return property(inside, doc=f"{doc} For kernels alone.")


class Array:
    """An array as a kernel sees it."""

    dtype = _member("dtype", "The element type.")
    ndim = _member("ndim", "The number of axes.")
    shape = _member("shape", "Its sizes, of the array's index type.")
    strides = _member("strides", "Its strides in elements, of the array's index type.")

    @property
    def foreign_pointer(self):
        """Pointers to foreign code have no meaning where a kernel may run on a CPU: the compiler refuses them."""
        raise errors.KernelsAlone("`foreign_pointer` has a value inside kernels alone")

    @staticmethod
    def from_foreign(pointer, shape, strides):
        """Pointers to foreign code have no meaning where a kernel may run on a CPU: the compiler refuses them."""
        raise errors.KernelsAlone("`from_foreign` is called inside kernels alone")


class Tile:
    """A tile: an immutable array of elements, with extents that are known when the kernel is compiled."""

    dtype = _member("dtype", "The element type.")
    ndim = _member("ndim", "The number of axes.")
    shape = _member("shape", "Its extents, known when the kernel is compiled.")


class TiledView:
    """An array cut into tiles of one shape."""

    dtype = _member("dtype", "The element type.")
    tile_shape = _member("tile_shape", "The extents of a tile.")
    traversal_steps = _member("traversal_steps", "Elements between the origins of tiles that follow each other, by axis.")


class _RawArrayMemory:
    """The memory of an array, by offsets in elements: what ``Array.get_raw_memory`` gives."""


_OWNERS = {"tile": globals(), "tile method": Tile, "array method": Array, "view method": TiledView, "raw method": _RawArrayMemory}
for _space, _name, _parameters, _doc in _native.builtins():
    _owner = _OWNERS.get(_space)
    if isinstance(_owner, dict):
        _owner[_name] = _stub("cuda.tile", _name, _parameters, _doc)
    elif _owner is not None and not hasattr(_owner, _name):
        setattr(_owner, _name, _stub(f"cuda.tile.{_owner.__name__.lstrip('_')}", _name, f"self, {_parameters}", _doc))

Constant = Annotated[T, ConstantAnnotation()]
IndexedWithInt64 = Annotated[T, ArrayAnnotation(index_dtype=dtypes.ALL["int64"])]
ScalarInt64 = Annotated[T, _ScalarAnnotation(dtypes.ALL["int64"])]
Scalar = int | float


class Slice:
    """A range of an axis for advanced indexing. For kernels alone."""

    __tessera_path__ = "cuda.tile.Slice"

    def __init__(self, start, length, /):
        raise errors.KernelsAlone("`Slice` is made inside kernels alone")


def cdiv(a: int, b: int, /) -> int:
    """The quotient of two integers, rounded up; on the host and in kernels."""
    return -(-a // b)


cdiv.__tessera_path__ = "cuda.tile.cdiv"


def function(func=None, /, *, host: bool = False, tile: bool = True):
    """Marks a function that kernels call.

    Args:
        func: The function.
        host: Whether it may be called on the host.
        tile: Whether kernels may call it.
    """

    def mark(inner):
        if host:
            return inner

        def inside(*_, **__):
            raise errors.KernelsAlone(f"`{inner.__name__}` is called inside kernels alone")

        inside.__name__, inside.__qualname__, inside.__doc__ = inner.__name__, inner.__qualname__, inner.__doc__
        inside.__module__ = inner.__module__
        inside.__tessera_function__ = inner
        return inside

    return mark if func is None else mark(func)


def foreign_pointer_dtype(pointee_dtype: DType) -> DType:
    """Pointers to foreign code have no meaning where a kernel may run on a CPU: refused."""
    raise TileUnsupportedFeatureError("pointers to foreign code are not done")


@contextlib.contextmanager
def compiler_timeout(timeout_sec: float):
    """Limits how long compiling may take inside the ``with``, in seconds; a kernel that takes longer raises
    :class:`TileCompilerTimeoutError`.

    Raises:
        ValueError: a limit that is no positive number.
        TypeError: a limit that is no number.
    """
    if not isinstance(timeout_sec, numbers.Real):
        raise TypeError(f"a limit is a positive number of seconds, not {timeout_sec!r}")
    if not timeout_sec > 0:
        raise ValueError(f"a limit is a positive number of seconds, not {timeout_sec!r}")
    before = _native.set_compiler_timeout(timeout_sec)
    try:
        yield
    finally:
        _native.set_compiler_timeout(before)


from . import compilation, tune  # noqa: E402  (they need what is above)

#: The version of ``cuda.tile`` whose API this is.
__version__ = "1.7.0"

__all__ = [
    "Array",
    "ArrayAnnotation",
    "ByTarget",
    "Constant",
    "ConstantAnnotation",
    "DType",
    "IndexedWithInt64",
    "ListAnnotation",
    "MemoryOrder",
    "MemoryScope",
    "PaddingMode",
    "RoundingMode",
    "Scalar",
    "ScalarInt64",
    "Slice",
    "StaticException",
    "Tile",
    "TileCompilerExecutionError",
    "TileCompilerTimeoutError",
    "TileError",
    "TileInternalError",
    "TileRecursionError",
    "TileStaticAssertionError",
    "TileStaticEvalError",
    "TileSyntaxError",
    "TileTypeError",
    "TileUnsupportedFeatureError",
    "TileValueError",
    "TiledView",
    "cdiv",
    "compilation",
    "compiler_timeout",
    "foreign_pointer_dtype",
    "function",
    "kernel",
    "launch",
    "tune",
    *dtypes.ALL,
    *(name for space, name, _, _ in _native.builtins() if space == "tile" and name not in ("Slice", "cdiv")),
]
