"""The library's operators on arrays.

Each is a function ``tessera.ops.NAME(inputs..., *, variant=None, out=None, stream=None, numbers...)``: inputs by position or by name, on the
host or on a GPU, of any library; results are arrays of the same library on the same device, one, or a tuple of several. Results that have an axis of
a length that no input says take it as a keyword (``top_k(x, k=5)``). Class numbers, places and other indices may be integers of any width, and
masks truth values.
:func:`tessera.list_operators` lists them, and each has its own docstring.
"""

from __future__ import annotations

import inspect
import numbers
import operator
import sys
from typing import Any

from . import _device, _native, dtypes, errors

_ROWS: dict[str, dict[str, Any]] = {row["name"]: row for row in _native.operators()}


#: Inputs that are indices, which kernels read in 32 bits.
_INDICES = frozenset(
    ("labels", "ids", "indices", "columns", "rows", "row_offsets", "offsets", "slots", "place", "lengths", "block_table")
    + ("cu_seqlens_q", "cu_seqlens_k")
)
#: Integers that 32 bits have, or that are cut off at the ends of these without becoming an index that there is.
_INTEGERS = frozenset(("uint8", "uint16", "uint32", "int8", "int16", "int64"))


def own_axes(signature: dict) -> dict[str, bool]:
    """Axes of results that no input and no array that is changed in place has; ``True`` where a name stands for several."""
    given = {axis.lstrip(".") for name, axes in signature["outputs"] if name in signature["updated"] for axis in axes}
    several = {axis.lstrip(".") for _, axes in signature["outputs"] for axis in axes if axis.startswith("..")}
    return {axis: axis in several for axis in signature["sizes"] if axis not in given}


for _row in _ROWS.values():
    _row["scalars"] = {name for own in _row["signatures"].values() for name in own["scalars"]}
    _row["axes"] = {axis for own in _row["signatures"].values() for axis in own_axes(own)}
    _arrays = [name for own in _row["signatures"].values() for name, _ in (*own["inputs"], *own["outputs"])]
    _row["names"] = list(dict.fromkeys([*_arrays, *sorted(_row["scalars"]), *sorted(_row["axes"])]))
    for _own in _row["signatures"].values():
        _own["order"] = [name for name, _ in _own["inputs"]]


def taken_as(name: str, dtype: str) -> str:
    """The type in which an operator takes an input that holds another one; that one where it takes nothing else."""
    if name in _INDICES and dtype in _INTEGERS:
        return "int32"
    return "int8" if name == "mask" and dtype in ("bool_", "bool") else dtype


def _taken(name: str, array):
    """An input in the type in which operators take it."""
    held = dtypes.of(getattr(array, "dtype", None))
    wanted = None if held is None else taken_as(name, held.name)
    if held is None or wanted == held.name:
        return array
    if library_of(array) == "torch":
        import torch

        if wanted == "int8":
            return array.view(torch.int8)
        bounds = torch.iinfo(torch.int32)
        return array.to(torch.int64).clamp(bounds.min, bounds.max).to(torch.int32)
    if held.bitwidth >= 32:
        array = array.clip(None if held.name == "uint32" else -(2**31), 2**31 - 1)
    return array.astype(wanted)


def _signature(row: dict, variant: str | None) -> dict:
    """The signature of a variant; of the first where none goes without saying."""
    return row["signatures"].get(variant or row["default"] or "") or next(iter(row["signatures"].values()))


def library_of(array) -> str:
    """The library that an array is of; classes made from PyTorch's are PyTorch's."""
    torch = sys.modules.get("torch")
    if torch is not None and isinstance(array, getattr(torch, "Tensor", ())):
        return "torch"
    library = type(array).__module__.split(".")[0]
    return "jax" if library == "jaxlib" else library


def _like(first, dtype: str, shape: list[int]):
    """A new array of the library and the device of an array; of NumPy's for JAX, whose own cannot be written."""
    library = library_of(first)
    if library == "torch":
        import torch

        return torch.empty(shape, dtype=getattr(torch, dtype), device=first.device)
    if library == "cupy":
        import cupy

        return cupy.empty(shape, dtype=dtype)
    if library == "jax" and any(device.platform != "cpu" for device in first.devices()):
        text = "JAX's arrays cannot be written, so that there is no memory for results on its GPU: pass `out`, or arrays on the CPU"
        raise errors.ArgumentError(text)
    import numpy

    if dtype not in numpy.sctypeDict:
        import ml_dtypes

        return numpy.empty(shape, dtype=getattr(ml_dtypes, dtype))
    return numpy.empty(shape, dtype=dtype)


def _given_back(first, made):
    """A result as an array of the library of the inputs."""
    if library_of(first) != "jax":
        return made
    import jax

    # Its memory is nobody else's from now on, so that JAX may take it as it lies.
    return jax.device_put(made, next(iter(first.devices())))


def _is_number(value) -> bool:
    """Whether it is a number of Python's or one of NumPy's, ``ml_dtypes``' included."""
    if isinstance(value, numbers.Real):
        return True
    return type(value).__module__.split(".")[0] in ("numpy", "ml_dtypes") and getattr(value, "shape", None) == ()


def _variant_of(row: dict, given: dict, variant: str | None) -> str | None:
    """The variant that is named, else the default one, else the one that takes just these arrays."""
    if variant is not None or row["default"] is not None:
        return variant
    fits = [name for name, own in row["signatures"].items() if {input_ for input_, _ in own["inputs"]} == set(given)]
    return fits[0] if len(fits) == 1 else None


def _bind(row: dict, args: tuple, keywords: dict, variant: str | None) -> tuple[dict, dict, dict, str | None]:
    """Arrays, numbers and sizes of axes by name, and the variant."""
    named, values, sizes = {}, {}, {}
    for name, value in keywords.items():
        if value is None:
            continue
        if name in row["scalars"] and _is_number(value):
            values[name] = float(value)
        elif name in row["axes"] and not hasattr(value, "shape"):
            sizes[name] = _extents(row, name, value)
        elif name in row["scalars"] and not hasattr(value, "shape"):
            raise errors.ArgumentError(f"`{name}` of `{row['name']}` is a number, not {value!r}")
        elif name not in row["names"]:
            raise errors.ArgumentError(f"`{row['name']}` has no `{name}`: it has {', '.join(row['names'])}")
        else:
            named[name] = value
    order = _signature(row, variant)["order"]
    if len(args) > len(order):
        raise errors.ArgumentError(f"`{row['name']}` takes {len(order)} arrays ({', '.join(order)}), and {len(args)} are given")
    for name, value in zip(order, args, strict=False):
        if name in named:
            raise errors.ArgumentError(f"`{row['name']}` is given `{name}` twice")
        named[name] = value
    named = {name: _taken(name, value) for name, value in named.items()}
    if "m" in row["axes"] and "m" not in sizes and "row_offsets" in named:
        # Each row has an offset, and there is one behind the last.
        sizes["m"] = [max(named["row_offsets"].shape[0] - 1, 0)]
    return named, values, sizes, _variant_of(row, named, variant)


def _extents(row: dict, axis: str, value) -> list[int]:
    """The sizes that an axis, or several of one name, are given."""
    try:
        found = [operator.index(size) for size in (value if isinstance(value, (tuple, list)) else (value,))]
    except TypeError as error:
        raise errors.ArgumentError(f"`{axis}` of `{row['name']}` is the size of an axis, and {value!r} is none") from error
    if any(size < 0 for size in found):
        raise errors.ArgumentValueError(f"`{axis}` of `{row['name']}` is the size of an axis, which {value!r} cannot be")
    return found


def _results(name: str, variant: str | None, arrays: dict, values: dict, sizes: dict) -> dict:
    """New arrays for the results of a call that names sizes of axes."""
    given = [(input_, dtypes.of(array.dtype).name, list(array.shape)) for input_, array in arrays.items()]
    said = _native.outline(name, variant, given, list(values.items()), list(sizes.items()), None)
    first = next(iter(arrays.values()), None)
    return {result: _like(first, dtype, shape) for result, dtype, shape in said}


def _refuse_graphs(name: str, out: dict) -> None:
    """Refuses tensors for results that ask for a gradient, where gradients are recorded: what they are told of the write is not what made them."""
    for result, array in out.items():
        if library_of(array) == "torch" and array.requires_grad and sys.modules["torch"].is_grad_enabled():
            text = f"`{result}` of `{name}` is written and asks for a gradient: pass `{result}.detach()`, or call it under `torch.no_grad()`"
            raise errors.ArgumentError(text)


def call(name: str, *args, variant: str | None = None, out=None, stream=None, **keywords):
    """Calls an operator.

    Args:
        name: The operator.
        args: Arrays by position, in the order of its inputs.
        variant: One of its variants; the default one, or the one that takes these arrays, where it is ``None``.
        out: Arrays for its results: one, a tuple, or a dictionary by their names. New ones are made for those that are not given.
        stream: The stream on which it is queued, for arrays on a GPU.
        keywords: Arrays and numbers by name.

    Returns:
        The result, or a tuple of several.

    Raises:
        ArgumentError: what the operator does not take.
    """
    row = _ROWS.get(name)
    if row is None:
        raise errors.ArgumentError(f"there is no operator `{name}`")
    if variant is not None and variant not in row["signatures"]:
        raise errors.ArgumentError(f"`{name}` has no variant `{variant}`: it is one of {', '.join(repr(own) for own in row['signatures'])}")
    arrays, values, sizes, variant = _bind(row, args, keywords, variant)
    if out is not None and not isinstance(out, dict):
        given = out if isinstance(out, (tuple, list)) else (out,)
        results = [result for result, _ in _signature(row, variant)["outputs"]]
        if any(one is None for one in given):
            raise errors.ArgumentError(f"`out` of `{name}` has an array for each result, or is a dictionary of some by name")
        if len(given) > len(results):
            raise errors.ArgumentError(f"`{name}` gives {len(results)} results, and `out` has {len(given)} arrays")
        out = dict(zip(results, given, strict=False))
    out = out or {}
    _refuse_graphs(name, out)
    theirs = [*arrays.values(), *out.values()]
    if sizes and not all(result in out for result, _ in _signature(row, variant)["outputs"]):
        out = {**_results(name, variant, arrays, values, sizes), **out}
    arrays.update(out)
    host = _device.host()
    stream_of = _native.stream(stream)
    planned = _native.Call(name, variant, arrays, list(values.items()), host, stream_of)
    first = next(iter(arrays.values()))
    made = [arrays[result] if given else _like(first, dtype, shape) for result, dtype, shape, given in planned.outputs()]
    planned.run(made, stream_of)
    if _device.WATCHERS:
        _device.tell(host, arrays.values())
    made = [one if any(one is given for given in theirs) else _given_back(first, one) for one in made]
    return made[0] if len(made) == 1 else tuple(made)


def _function(row: dict):
    inputs = _signature(row, None)["order"]
    signatures = row["signatures"].values()
    numbers_ = [name for signature in signatures for name in (*signature["scalars"], *own_axes(signature))]

    def function(*args, variant: str | None = None, out=None, stream=None, **keywords):
        return call(row["name"], *args, variant=variant, out=out, stream=stream, **keywords)

    kinds = inspect.Parameter
    parameters = [kinds(name, kinds.POSITIONAL_OR_KEYWORD) for name in inputs]
    parameters += [kinds(name, kinds.KEYWORD_ONLY, default=None) for name in ("variant", "out", "stream", *dict.fromkeys(numbers_))]
    function.__signature__ = inspect.Signature(parameters)
    function.__name__ = function.__qualname__ = row["name"]
    function.__module__ = __name__
    function.__doc__ = _docstring(row)
    return function


def _docstring(row: dict) -> str:
    shown = lambda operands: ", ".join(f"{name}[{', '.join(axes)}]" for name, axes in operands)  # noqa: E731
    lines = [row["about"][:1].upper() + row["about"][1:] + ".", ""]
    for variant, own in row["signatures"].items():
        lines.append(f"    {variant or 'the only variant'}: {shown(own['inputs'])} -> {shown(own['outputs'])}")
    lines += ["", f"Precisions: {', '.join(row['precisions'])}."]
    if row["gradient"]:
        lines.append(f"Its gradient is ``{row['gradient']}``.")
    return "\n".join(lines)


for _row in _ROWS.values():
    globals()[_row["name"]] = _function(_row)

__all__ = ["call", *_ROWS]
