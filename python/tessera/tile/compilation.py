"""Compiling a kernel without launching it, as ``cuda.tile.compilation`` does."""

from __future__ import annotations

import enum
import os
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

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


class CallingConvention(enum.Enum):
    """How a compiled kernel takes its arguments: Tessera's own, see ``docs/bundles.md``."""

    TESSERA = "tessera"


@dataclass(frozen=True)
class KernelSignature:
    """What a kernel is compiled for: a constraint or a constant for each parameter."""

    parameters: Sequence[Any]
    calling_convention: CallingConvention = CallingConvention.TESSERA
    symbol: str | None = None


def _argument(constraint) -> Any:
    """The native module's form of a parameter: what ``tessera compile`` reads."""
    if isinstance(constraint, ConstantConstraint):
        return constraint.value
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
    return constraint


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
        TileUnsupportedFeatureError: another format, or several signatures.
    """
    if output_format != "ptx" or bytecode_version is not None:
        raise TileUnsupportedFeatureError(f"`{output_format}` is not written: `ptx` is, and `tessera bundle` packs machine code")
    if len(signatures) != 1:
        raise TileUnsupportedFeatureError("one signature is compiled at a time")
    arguments = [_argument(constraint) for constraint in signatures[0].parameters]
    text = kernel._native().compile_for(arguments, gpu_code or "sm_90a", "ptx").encode()
    if isinstance(output_file, (str, bytes, os.PathLike)):
        with open(output_file, "wb") as file:
            file.write(text)
    else:
        output_file.write(text)
