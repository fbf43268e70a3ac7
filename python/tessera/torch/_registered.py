"""The operators in PyTorch's registry: what they run, and what they give without running."""

from __future__ import annotations

from typing import Any

import torch
from torch.autograd import forward_ad

from .. import _native, errors, ops
from ._declared import Entry


def registered(entry: Entry) -> torch.library.CustomOpDef:
    """Registers an entry with the function that runs it and the one that infers its results."""

    def run(*args, **keywords):
        return _run(entry, args, keywords)

    def infer(*args, **keywords):
        return _infer(entry, args, keywords)

    made = torch.library.custom_op(f"tessera::{entry.name}", run, mutates_args=entry.updated, schema=entry.schema)
    made.register_fake(infer)
    return made


def variant_of(entry: Entry, keywords: dict[str, Any]) -> str:
    """The variant of a call.

    Raises:
        ArgumentError: the operator has no such variant, or none for these arrays.
    """
    variant = keywords.get("variant", entry.default)
    if variant not in entry.signatures:
        raise errors.ArgumentError(f"`tessera::{entry.name}` has no variant `{variant}`: it is one of {', '.join(map(repr, entry.variants))}")
    return variant


def parts(entry: Entry, args: tuple, keywords: dict[str, Any]) -> tuple[dict[str, torch.Tensor], dict[str, float], dict[str, list]]:
    """A call's tensors, numbers, and sizes of axes that no tensor has, each by name.

    Raises:
        ArgumentValueError: a size that none can have.
    """
    tensors = {name: value for name, value in zip(entry.tensors, args, strict=False) if value is not None}
    numbers = {name: float(keywords[name]) for name in entry.scalars if keywords.get(name) is not None}
    sizes = {axis: list(keywords[axis]) if several else [keywords[axis]] for axis, several in entry.sizes.items()}
    for axis, extents in sizes.items():
        if any(isinstance(size, int) and size < 0 for size in extents):
            raise errors.ArgumentValueError(f"`{axis}` of `tessera::{entry.name}` is the size of an axis, which {keywords[axis]} cannot be")
    return tensors, numbers, sizes


def _run(entry: Entry, args: tuple, keywords: dict[str, Any]):
    # PyTorch drops the tangents of operators that are not its own, without a word.
    if forward_ad._current_level >= 0:
        raise errors.ArgumentError(f"`tessera::{entry.name}` has no forward-mode gradient: use `torch.autograd.grad`, or call it outside of `jvp`")
    if not entry.tensors and keywords.get("device") is not None and torch.device(keywords["device"]).type == "meta":
        # There is no tensor by which PyTorch would know.
        return _infer(entry, args, keywords)
    variant = variant_of(entry, keywords)
    tensors, numbers, sizes = parts(entry, args, keywords)
    dtype = keywords.get("dtype")
    out = {name: tensors.pop(name) for name in entry.updated}
    if entry.reread in tensors:
        out[entry.reread] = tensors.pop(entry.reread).clone(memory_format=torch.contiguous_format)
    elif sizes or dtype is not None:
        device = next(iter(tensors.values())).device if tensors else keywords.get("device")
        for name, of, shape in _outline(entry, variant, (tensors, numbers, sizes, dtype), int):
            out[name] = torch.empty(shape, dtype=getattr(torch, of), device=device)
    result = ops.call(entry.operator, variant=variant, out=out, **tensors, **numbers)
    return None if entry.updated else result


def _infer(entry: Entry, args: tuple, keywords: dict[str, Any]):
    variant = variant_of(entry, keywords)
    tensors, numbers, sizes = parts(entry, args, keywords)
    own = entry.signatures[variant]
    # An extent that follows from others by a formula is asked for with these sizes and holds for no others.
    number = int if own["follows"] else _hint
    said = _outline(entry, variant, (tensors, numbers, sizes, keywords.get("dtype")), number)
    if entry.updated:
        return None
    known = {**sizes, **axes_of(own["inputs"], tensors)}
    device = next(iter(tensors.values())).device if tensors else keywords.get("device")
    results = []
    for (_, of, shape), (_, axes) in zip(said, own["outputs"], strict=True):
        if not own["follows"]:
            shape = [size for axis in axes for size in ([int(axis)] if axis.isdigit() else known[axis.lstrip(".")])]
        results.append(torch.empty(shape, dtype=getattr(torch, of), device=device))
    return results[0] if len(results) == 1 else tuple(results)


def _outline(entry: Entry, variant: str, given: tuple[dict, dict, dict, torch.dtype | None], number) -> list[tuple[str, str, list[int]]]:
    """Name, type and shape of each result; ``number`` makes a number of a size that may be a symbol."""
    tensors, numbers, sizes, dtype = given
    arrays = [(name, ops.taken_as(name, _name(tensor.dtype)), [number(size) for size in tensor.shape]) for name, tensor in tensors.items()]
    axes = [(axis, [number(size) for size in extents]) for axis, extents in sizes.items()]
    return _native.outline(entry.operator, variant, arrays, list(numbers.items()), axes, None if dtype is None else _name(dtype))


def axes_of(operands: list, tensors: dict[str, torch.Tensor]) -> dict[str, list]:
    """The sizes of axes by their names, as tensors have them; sizes may be symbols."""
    known: dict[str, list] = {}
    for name, axes in operands:
        if name not in tensors:
            continue
        shape = list(tensors[name].shape)
        single = [axis for axis in axes if not axis.startswith("..")]
        leading = len(shape) - len(single)
        if len(single) < len(axes):
            known.setdefault(axes[0].lstrip("."), shape[:leading])
        for axis, size in zip(single, shape[leading:], strict=True):
            known.setdefault(axis, [size])
    return known


def _name(dtype: torch.dtype) -> str:
    return str(dtype).removeprefix("torch.")


def _hint(size) -> int:
    """What a size is now; it may be another one in a later call."""
    if isinstance(size, int):
        return size
    return size.node.hint if size.node.has_hint() else int(size.node.shape_env.size_hint(size.node.expr))
