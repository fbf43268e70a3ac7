"""Writes ``tessera/tile/__init__.pyi``: what editors know of the functions that kernels call, which are made when the package is imported.

``python make_stubs.py`` writes it, ``python make_stubs.py --check`` ends with 1 where it is not what would be written.
"""

from __future__ import annotations

import enum
import inspect
import sys
from pathlib import Path

import tessera.tile as ct
from tessera import _native, dtypes

FILE = Path(ct.__file__).with_suffix(".pyi")

HEAD = '''# ruff: noqa: E501
"""The API of ``cuda.tile`` 1.7: ``import tessera.tile as ct``. Written by ``make_stubs.py``."""

import contextlib
import enum
from collections.abc import Callable
from typing import Annotated, Any, TypeVar

from .._kernel import BlockKernel
from .._kernel import launch as launch
from ..dtypes import DType as DType
from ..errors import StaticException as StaticException
'''

TAIL = '''
kernel = BlockKernel
T = TypeVar("T")
Constant = Annotated[T, ConstantAnnotation()]
IndexedWithInt64 = Annotated[T, ArrayAnnotation()]
ScalarInt64 = Annotated[T, None]
Scalar = int | float

def function(func: Callable | None = None, /, *, host: bool = False, tile: bool = True) -> Any: ...
def foreign_pointer_dtype(pointee_dtype: DType) -> DType: ...
def compiler_timeout(timeout_sec: float) -> contextlib.AbstractContextManager[None]: ...
'''

BY_TARGET = '''class ByTarget:
    """A hint that depends on the target."""

    def __init__(self, *, default: Any = None, **value_by_target: Any) -> None: ...

'''

#: What gives no tile.
RESULTS = {
    **dict.fromkeys(("bid", "num_blocks", "num_tiles", "cdiv", "assume_divisible_by"), "int"),
    **dict.fromkeys(("store", "scatter", "store_advanced_indexing", "store_offset", "printf", "print", "assert_", "static_assert"), "None"),
    **dict.fromkeys(("grid_dependency_control_wait", "grid_dependency_control_launch_dependents"), "None"),
    **dict.fromkeys(("static_eval", "static_iter", "static_exception", "ensure_constant", "Slice", "item", "divmod", "reduce", "scan"), "Any"),
    **dict.fromkeys(("slice",), "Array"),
    **dict.fromkeys(("tiled_view",), "TiledView"),
    **dict.fromkeys(("get_raw_memory",), "RawArrayMemory"),
}


def _result(name: str) -> str:
    return "None" if name.startswith("atomic_store") else RESULTS.get(name, "Tile")


def _function(name: str, parameters: str, doc: str, indent: str = "") -> str:
    if indent:
        parameters = f"self, {parameters}" if parameters else "self"
    text = f'"""{doc[:1].upper()}{doc[1:]}."""'
    return f"{indent}def {name}({parameters}) -> {_result(name)}:\n{indent}    {text}\n"


def _methods(space: str) -> str:
    return "".join(_function(name, parameters, doc, "    ") for own, name, parameters, doc in _native.builtins() if own == space)


#: Operators between tiles and numbers, and those of one tile.
BINARY = ("add", "sub", "mul", "truediv", "floordiv", "mod", "pow", "matmul", "and", "or", "xor", "lshift", "rshift")
OTHERS = ("lt", "le", "gt", "ge")
UNARY = ("neg", "pos", "invert")


def _operators() -> str:
    names = [f"__{side}{name}__" for name in BINARY for side in ("", "r")] + [f"__{name}__" for name in OTHERS]
    lines = [f"    def {name}(self, other: Any) -> Tile: ...\n" for name in names]
    lines += [f"    def __{name}__(self) -> Tile: ...\n" for name in UNARY]
    return "".join([*lines, "    def __getitem__(self, index: Any) -> Tile: ...\n"])


def _class(name: str, space: str, doc: str) -> str:
    kind = getattr(ct, name, None)
    properties = [own for own, value in vars(kind).items() if isinstance(value, property)] if kind is not None else []
    lines = [f'class {name}:\n    """{doc}"""\n\n']
    lines += [f"    @property\n    def {own}(self) -> Any: ...\n" for own in properties]
    return "".join(lines) + (_operators() if name == "Tile" else "") + _methods(space) + "\n"


def _enumeration(kind: type[enum.Enum]) -> str:
    members = "".join(f"    {member.name} = {member.value!r}\n" for member in kind)
    return f'class {kind.__name__}(enum.Enum):\n    """{inspect.getdoc(kind)}"""\n\n{members}\n'


def _annotation(kind: type) -> str:
    fields = getattr(kind, "__dataclass_fields__", {})
    lines = [f"    {own}: {field.type}\n" for own, field in fields.items()]
    doc = (inspect.getdoc(kind) or "").split("\n")[0]
    given = ", ".join(f"{own}: Any = ..." for own in fields)
    made = f"    def __init__(self, *, {given}) -> None: ...\n" if fields else ""
    return f'class {kind.__name__}:\n    """{doc}"""\n\n{"".join(lines)}{made}\n'


def text() -> str:
    """The stub."""
    errors = [f"from ..errors import {name} as {name}\n" for name in ct.__all__ if name.startswith("Tile") and name.endswith("Error")]
    parts = [HEAD, *errors, "from . import compilation as compilation\nfrom . import tune as tune\n\n"]
    parts += [f"{name}: DType\n" for name in dtypes.ALL]
    parts.append("\n")
    parts += [_enumeration(getattr(ct, name)) for name in ("PaddingMode", "RoundingMode", "MemoryOrder", "MemoryScope")]
    parts += [_annotation(getattr(ct, name)) for name in ("ConstantAnnotation", "ArrayAnnotation", "ListAnnotation")]
    parts.append(BY_TARGET)
    parts.append(_class("Array", "array method", "An array as a kernel sees it."))
    parts.append(_class("Tile", "tile method", "A tile of elements."))
    parts.append(_class("TiledView", "view method", "An array cut into tiles of one shape."))
    parts.append(_class("RawArrayMemory", "raw method", "The memory of an array, by offsets in elements."))
    parts += [_function(name, parameters, doc) for space, name, parameters, doc in _native.builtins() if space == "tile"]
    parts.append(TAIL)
    return "".join(parts)


def main() -> None:
    """The program."""
    written = text()
    if "--check" not in sys.argv[1:]:
        FILE.write_text(written)
    elif FILE.read_text() != written:
        sys.exit(f"{FILE} is not what is written: `python make_stubs.py`")


if __name__ == "__main__":
    main()
