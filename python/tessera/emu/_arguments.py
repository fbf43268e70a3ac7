"""What a kernel's parameters are given, as bytes.

| value | the parameter gets |
|---|---|
| an array | the address of its first element |
| a number, a truth value | a number of the parameter's type; in a structure ``i32`` (``i64`` where it does not fit), ``f32``, one byte |
| a number of NumPy's | a number of its own type, where it has the parameter's size |
| ``None`` | zeros: no address |
| ``bytes`` | these bytes |
| a tuple | a structure of these fields, each where C puts it |
| a list | the address of memory that holds these as a structure does: an array of pointers |
| :class:`Unwritten`, :class:`TensorMap` | see there |
"""

from __future__ import annotations

import math
import struct
from dataclasses import dataclass
from typing import Any, NamedTuple

from .. import _native, errors
from ._memory import Memory, Staged


class Parameter(NamedTuple):
    """A parameter of a kernel: its name, its type as PTX names it, its size in bytes."""

    name: str
    type: str
    bytes: int


@dataclass(frozen=True, eq=False)
class Unwritten:
    """An array whose contents count as not written: a kernel that reads an element before it writes it is told of.

    Args:
        array: The array.
    """

    array: Any


@dataclass(frozen=True, eq=False)
class TensorMap:
    """A tensor map over an array, for kernels that take a ``CUtensorMap``. Axes are in the array's order, the contiguous one last.

    Args:
        array: The array; its last axis is contiguous.
        tile: Elements of a box along each axis.
        shape: Elements along each axis, where they are not the array's.
        strides: Bytes between neighbours along each axis but the last, where they are not the array's.
        swizzle: 0, 32, 64 or 128 bytes.
        fill: What is read outside: ``zero`` or ``nan``.
        steps: Steps through each axis.
        dtype: The element type, where it is not the array's.
    """

    array: Any
    tile: tuple[int, ...]
    shape: tuple[int, ...] | None = None
    strides: tuple[int, ...] | None = None
    swizzle: int = 0
    fill: str = "zero"
    steps: tuple[int, ...] | None = None
    dtype: str | None = None

    def encode(self, memory: Memory, name: str) -> bytes:
        """Its 128 bytes."""
        found = _native.describe(self.array, name)
        shape, strides = found.shape, found.strides
        if self.fill not in ("zero", "nan"):
            raise errors.ArgumentValueError(f"`{name}`: fill={self.fill!r}: `zero` or `nan`")
        if self.strides is None and strides and strides[-1] != 1 and shape[-1] > 1:
            raise errors.ArgumentError(f"`{name}`: a tensor map's last axis is contiguous, and the array's is not: pass a copy")
        own = [stride * (found.span // _count(shape, strides)) for stride in strides[:-1]]
        return _native.tensor_map(
            self.dtype or found.dtype,
            memory.address(self.array, name),
            list(self.shape or shape)[::-1],
            list(own if self.strides is None else self.strides)[::-1],
            list(self.tile)[::-1],
            self.swizzle,
            self.fill == "nan",
            list(self.steps or ())[::-1],
        )


def _count(shape: list[int], strides: list[int]) -> int:
    """Elements from the first to the last one, of an array with gaps too."""
    return sum((size - 1) * stride for size, stride in zip(shape, strides, strict=True)) + 1


def arrays(name: str, value: Any) -> list[Staged]:
    """The arrays in a value."""
    if isinstance(value, Unwritten):
        return [Staged(name, value.array, True)]
    if isinstance(value, TensorMap):
        return [Staged(name, value.array, False)]
    if isinstance(value, (tuple, list)):
        return [staged for index, item in enumerate(value) for staged in arrays(f"{name}[{index}]", item)]
    return [] if _is_plain(value) else [Staged(name, value, False)]


def encode(parameter: Parameter, value: Any, memory: Memory) -> bytes:
    """A parameter's bytes. Arrays lie in the memory already.

    Raises:
        ArgumentError: a value that the parameter cannot have.
    """
    if isinstance(value, (bool, int, float)) and parameter.bytes <= 8:
        return _number(parameter, value)
    if value is None:
        return bytes(parameter.bytes)
    content = bytearray()
    if _is_scalar(value) and value.nbytes != parameter.bytes and parameter.bytes <= 8:
        return _number(parameter, value.item())
    _lay(value, parameter.name, memory, content)
    if len(content) != parameter.bytes:
        raise errors.ArgumentError(
            f"`{parameter.name}` is a parameter of {parameter.bytes} bytes (`.{parameter.type}`), and `{type(value).__name__}` has {len(content)}"
        )
    return bytes(content)


def _is_scalar(value: Any) -> bool:
    """Whether it is a number of NumPy's, ``ml_dtypes``' included."""
    return type(value).__module__.split(".")[0] in ("numpy", "ml_dtypes") and hasattr(value, "tobytes") and not hasattr(value, "ctypes")


def _is_plain(value: Any) -> bool:
    return value is None or isinstance(value, (bool, int, float, bytes)) or _is_scalar(value)


def _float(size: int, value: float) -> bytes:
    """A float of so many bytes; what is too large for them is infinite, as it is on a device."""
    form = {2: "<e", 4: "<f", 8: "<d"}[size]
    try:
        return struct.pack(form, value)
    except OverflowError:
        return struct.pack(form, math.copysign(math.inf, value))


def _number(parameter: Parameter, value) -> bytes:
    name, kind, size = parameter
    if kind in ("f16", "f32", "f64") or (isinstance(value, float) and kind in ("b16", "b32", "b64")):
        return _float(size, value)
    if isinstance(value, float):
        raise errors.ArgumentError(f"`{name}` is an integer (`.{kind}`), and {value} is none: pass an integer, or a number of NumPy's")
    low, high = -(1 << (8 * size - 1)), 1 << (8 * size)
    if not low <= value < high:
        raise errors.ArgumentValueError(f"`{name}` has {size} bytes, and {value} does not fit")
    return (int(value) % high).to_bytes(size, "little")


def _lay(value: Any, name: str, memory: Memory, out: bytearray) -> int:
    """Appends a value at the next multiple of its alignment, which it gives."""

    def put(content: bytes, align: int) -> int:
        out.extend(bytes(-len(out) % align))
        out.extend(content)
        return align

    if value is None:
        return put(bytes(8), 8)
    if isinstance(value, bool):
        return put(bytes([value]), 1)
    if isinstance(value, int):
        size = 4 if -(1 << 31) <= value < 1 << 32 else 8
        return put(_number(Parameter(name, f"b{8 * size}", size), value), size)
    if isinstance(value, float):
        return put(_float(4, value), 4)
    if isinstance(value, bytes):
        return put(value, 1)
    if _is_scalar(value):
        return put(value.tobytes(), max(1, value.nbytes))
    if isinstance(value, TensorMap):
        return put(value.encode(memory, name), 64)
    if isinstance(value, (tuple, list)):
        content, align = bytearray(), 1
        for index, item in enumerate(value):
            align = max(align, _lay(item, f"{name}[{index}]", memory, content))
        content.extend(bytes(-len(content) % align))
        return put(bytes(content), align) if isinstance(value, tuple) else put(memory.own(bytes(content)).to_bytes(8, "little"), 8)
    array = value.array if isinstance(value, Unwritten) else value
    return put(memory.address(array, name).to_bytes(8, "little"), 8)
