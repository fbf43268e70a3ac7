"""Compiling a kernel without launching it, as ``cuda.tile.compilation`` does."""

from __future__ import annotations

import base64
import json
import os
import re
import zlib
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

from .. import dtypes
from ..dtypes import DType
from ..errors import TileUnsupportedFeatureError

ConstantValue = bool | int | float


@dataclass(frozen=True)
class ScalarConstraint:
    """A scalar parameter of a type."""

    dtype: DType


@dataclass(frozen=True)
class ConstantConstraint:
    """A parameter's value that is known when the kernel is compiled."""

    value: ConstantValue


@dataclass(frozen=True)
class ArrayConstraint:
    """An array parameter, and what may be assumed of it.

    Attributes:
        dtype: The element type.
        ndim: The rank.
        index_dtype: Type of sizes and strides: ``int32`` or ``int64``.
        stride_lower_bound_incl: What strides are at least.
        alias_groups: Groups of parameters that may share memory with it.
        may_alias_internally: Whether two elements may be one place in memory.
        stride_constant: Strides that are known.
        shape_constant: Sizes that are known.
        stride_divisible_by: What divides the strides, in elements.
        shape_divisible_by: What divides the sizes.
        base_addr_divisible_by: What divides the address, in bytes.
    """

    dtype: DType
    ndim: int
    index_dtype: DType = field(kw_only=True)
    stride_lower_bound_incl: Sequence[int | None] | int | None = field(kw_only=True)
    alias_groups: Sequence[str] = field(kw_only=True)
    may_alias_internally: bool = field(kw_only=True)
    stride_constant: Sequence[int | None] | None = field(default=None, kw_only=True)
    shape_constant: Sequence[int | None] | None = field(default=None, kw_only=True)
    stride_divisible_by: Sequence[int] | int = field(default=1, kw_only=True)
    shape_divisible_by: Sequence[int] | int = field(default=1, kw_only=True)
    base_addr_divisible_by: int = field(default=1, kw_only=True)


@dataclass(frozen=True)
class ListConstraint:
    """A list of arrays."""

    element: ArrayConstraint
    alias_groups: Sequence[str] = field(kw_only=True)
    elements_may_alias: bool = field(kw_only=True)


@dataclass(frozen=True)
class TupleConstraint:
    """A tuple of parameters."""

    items: Sequence[Any]


ParameterConstraint = ScalarConstraint | ArrayConstraint | ListConstraint | TupleConstraint | ConstantConstraint


class CallingConvention(NamedTuple):
    """How a compiled kernel takes its arguments.

    Attributes:
        name: ``tessera`` is what is written, see ``docs/bundles.md``; ``cutile_python_v1`` and ``_v2`` are those of NVIDIA's launcher.
        code: A short form, for symbols.
        version: Its number.
    """

    name: str
    code: str
    version: int

    @staticmethod
    def tessera() -> CallingConvention:
        """Tessera's own."""
        return _CONVENTIONS["x1"]

    @staticmethod
    def cutile_python_v1() -> CallingConvention:
        """The first one of NVIDIA's launcher."""
        return _CONVENTIONS["t1"]

    @staticmethod
    def cutile_python_v2() -> CallingConvention:
        """The second one of NVIDIA's launcher."""
        return _CONVENTIONS["t2"]

    @staticmethod
    def from_code(code: str, /) -> CallingConvention:
        """The one of a code.

        Raises:
            ValueError: no convention has the code.
        """
        if code not in _CONVENTIONS:
            raise ValueError(f"no calling convention has the code {code!r}: {', '.join(_CONVENTIONS)} do")
        return _CONVENTIONS[code]


_ROWS = (("tessera", "x1", 1), ("cutile_python_v1", "t1", 1), ("cutile_python_v2", "t2", 2))
_CONVENTIONS = {code: CallingConvention(name, code, version) for name, code, version in _ROWS}


@dataclass(frozen=True)
class KernelSignature:
    """What a kernel is compiled for.

    Attributes:
        parameters: A constraint or a constant for each parameter; a tuple stands for a :class:`TupleConstraint`.
        calling_convention: How the kernel takes its arguments.
        symbol: The name of the compiled kernel; the function's where it is ``None``.
    """

    parameters: Sequence[Any]
    calling_convention: CallingConvention = _CONVENTIONS["x1"]
    symbol: str | None = None

    def with_symbol(self, symbol: str | None) -> KernelSignature:
        """The same with another symbol."""
        return replace(self, symbol=symbol)

    def with_mangled_symbol(self, function_name: str) -> KernelSignature:
        """The same with a symbol that says what it is compiled for."""
        return self.with_symbol(mangle_kernel_name(function_name, self))

    @staticmethod
    def from_kernel_args(
        kernel, kernel_args: Sequence[Any], calling_convention: CallingConvention = _CONVENTIONS["x1"], *, symbol: str | None = None
    ) -> KernelSignature:
        """What a launch with these arguments compiles the kernel for. What divides addresses and strides of these arrays is assumed of all.

        Args:
            kernel: The kernel.
            kernel_args: Its arguments.
            calling_convention: How the kernel takes its arguments.
            symbol: The name of the compiled kernel; one that says what it is compiled for where it is ``None``.

        Raises:
            TypeError: another number of arguments than the kernel has parameters, or one that is none.
        """
        names = kernel.parameters
        if len(kernel_args) != len(names):
            raise TypeError(f"`{kernel.__name__}` has {len(names)} parameters, and {len(kernel_args)} arguments are given: {', '.join(names)}")
        constants = kernel._native().constants
        given = zip(names, kernel_args, strict=True)
        found = [ConstantConstraint(value) if name in constants else _constraint(value) for name, value in given]
        signature = KernelSignature(found, calling_convention, symbol)
        return signature.with_mangled_symbol(kernel.__name__) if symbol is None else signature


def _constraint(value) -> Any:
    """The constraint of an argument whose value is known at launch."""
    if isinstance(value, (list, tuple)):
        items = [_constraint(item) for item in value]
        if isinstance(value, tuple):
            return TupleConstraint(items)
        if not items or not all(isinstance(item, ArrayConstraint) for item in items):
            raise TypeError("a list that is an argument has arrays in it, at least one")
        return ListConstraint(items[0], alias_groups=(), elements_may_alias=False)
    if isinstance(value, bool):
        return ScalarConstraint(dtypes.ALL["bool_"])
    if isinstance(value, int):
        return ScalarConstraint(dtypes.ALL["int32" if -(1 << 31) <= value < 1 << 31 else "int64"])
    if isinstance(value, float):
        return ScalarConstraint(dtypes.ALL["float32"])
    dtype = dtypes.of(getattr(value, "dtype", None))
    if dtype is None:
        raise TypeError(f"a `{type(value).__name__}` is no argument of a kernel")
    size = max(dtype.bitwidth // 8, 1)
    if hasattr(value, "data_ptr"):
        strides, address = list(value.stride()), value.data_ptr()
    else:
        strides, address = [stride // size for stride in value.strides], value.__array_interface__["data"][0]
    known = [1 if stride == 1 else None for stride in strides]
    divisible = [1 if stride == 1 else 16 // size if size <= 16 and stride * size % 16 == 0 else 1 for stride in strides]
    return ArrayConstraint(
        dtype,
        len(strides),
        index_dtype=dtypes.ALL["int32"],
        stride_lower_bound_incl=0,
        alias_groups=(),
        may_alias_internally=False,
        stride_constant=known,
        stride_divisible_by=divisible,
        base_addr_divisible_by=16 if address % 16 == 0 else size,
    )


def mangle_kernel_name(function_name: str, kernel_signature: KernelSignature) -> str:
    """A symbol from a function's name and what it is compiled for, from which :func:`demangle_kernel_name` has both."""
    text = json.dumps([_argument(constraint) for constraint in kernel_signature.parameters], separators=(",", ":"))
    packed = base64.b32encode(zlib.compress(text.encode(), 9)).decode().rstrip("=")
    return f"{function_name}_K{kernel_signature.calling_convention.code}_{packed}"


def demangle_kernel_name(symbol: str) -> tuple[str, KernelSignature]:
    """The function's name and the signature of a symbol; what was given to the compiler, constraints that it does not use aside.

    Raises:
        ValueError: no symbol of :func:`mangle_kernel_name`.
    """
    head, _, packed = symbol.rpartition("_")
    name, _, code = head.rpartition("_K")
    try:
        text = zlib.decompress(base64.b32decode(packed + "=" * (-len(packed) % 8)))
        found = [_constraint_of(said) for said in json.loads(text)]
    except (ValueError, zlib.error) as error:
        raise ValueError(f"`{symbol}` is no symbol of a kernel with a signature") from error
    return name, KernelSignature(found, CallingConvention.from_code(code), symbol)


def _constraint_of(said: list) -> Any:
    """The inverse of :func:`_argument`."""
    kind, rest = said[0], said[1:]
    if kind == "constant":
        return ConstantConstraint(rest[0])
    if kind == "scalar":
        return ScalarConstraint(dtypes.find(rest[0]))
    index = lambda wide: dtypes.ALL["int64" if wide else "int32"]  # noqa: E731
    if kind == "array":
        dtype, sizes, strides, align, wide, disjoint = rest
        groups = () if disjoint else ("memory",)
        element = dtypes.find(dtype)
        return ArrayConstraint(
            element,
            len(sizes),
            index_dtype=index(wide),
            stride_lower_bound_incl=0,
            alias_groups=groups,
            may_alias_internally=False,
            stride_constant=strides,
            shape_constant=sizes,
            stride_divisible_by=[1 if known is not None else max(align * 8 // element.bitwidth, 1) for known in strides],
            base_addr_divisible_by=align,
        )
    if kind == "list":
        dtype, rank, wide = rest
        element = ArrayConstraint(
            dtypes.find(dtype), rank, index_dtype=index(wide), stride_lower_bound_incl=0, alias_groups=(), may_alias_internally=False
        )
        return ListConstraint(element, alias_groups=(), elements_may_alias=False)
    return TupleConstraint([_constraint_of(item) for item in rest[0]])


def _argument(constraint) -> tuple:
    """The native module's form of a parameter."""
    if isinstance(constraint, ScalarConstraint):
        return ("scalar", constraint.dtype.name)
    if isinstance(constraint, ArrayConstraint):
        several = lambda given: list(given) if isinstance(given, Sequence) else [given] * constraint.ndim  # noqa: E731
        sizes = constraint.shape_constant or [None] * constraint.ndim
        strides = constraint.stride_constant or [None] * constraint.ndim
        align = constraint.base_addr_divisible_by
        itemsize = max(constraint.dtype.bitwidth // 8, 1)
        for known, divisor in zip(strides, several(constraint.stride_divisible_by), strict=True):
            if known is None:
                align = min(align, divisor * itemsize)
        wide = constraint.index_dtype is dtypes.ALL["int64"]
        disjoint = not constraint.may_alias_internally and not constraint.alias_groups
        return ("array", constraint.dtype.name, list(sizes), list(strides), align, wide, disjoint)
    if isinstance(constraint, ListConstraint):
        element = constraint.element
        return ("list", element.dtype.name, element.ndim, element.index_dtype is dtypes.ALL["int64"])
    if isinstance(constraint, (TupleConstraint, tuple)):
        items = constraint.items if isinstance(constraint, TupleConstraint) else constraint
        return ("tuple", [_argument(item) for item in items])
    return ("constant", constraint.value if isinstance(constraint, ConstantConstraint) else constraint)


def export_kernel(
    kernel,
    signatures: Sequence[KernelSignature],
    output_file,
    *,
    gpu_code: str | None = None,
    output_format: str = "ptx",
    bytecode_version: str | None = None,
) -> None:
    """Compiles a kernel for a signature and writes it.

    Args:
        kernel: The kernel.
        signatures: One signature.
        output_file: A path, or a binary file.
        gpu_code: The target, such as ``sm_90a``.
        output_format: ``ptx``; NVIDIA's bytecode is not written, and machine code is made by ``tessera bundle``.
        bytecode_version: Of NVIDIA's bytecode: refused.

    Raises:
        TileUnsupportedFeatureError: another format or calling convention, or several signatures.
    """
    if output_format != "ptx" or bytecode_version is not None:
        raise TileUnsupportedFeatureError(f"`{output_format}` is not written: `ptx` is, and `tessera bundle` packs machine code")
    if len(signatures) != 1:
        raise TileUnsupportedFeatureError("one signature is compiled at a time")
    signature = signatures[0]
    if signature.calling_convention.name != "tessera":
        raise TileUnsupportedFeatureError(f"kernels of the convention `{signature.calling_convention.name}` are not written: `tessera` is")
    arguments = [_argument(constraint) for constraint in signature.parameters]
    text = kernel._native().compile_for(arguments, gpu_code or "sm_90a", "ptx")
    if signature.symbol is not None:
        text = re.sub(r"(\.entry\s+)\w+", lambda found: found[1] + signature.symbol, text, count=1)
    if isinstance(output_file, (str, bytes, os.PathLike)):
        with open(output_file, "wb") as file:
            file.write(text.encode())
    else:
        output_file.write(text.encode())


__all__ = [
    "ArrayConstraint",
    "CallingConvention",
    "ConstantConstraint",
    "ConstantValue",
    "KernelSignature",
    "ListConstraint",
    "ParameterConstraint",
    "ScalarConstraint",
    "TupleConstraint",
    "demangle_kernel_name",
    "export_kernel",
    "mangle_kernel_name",
]
