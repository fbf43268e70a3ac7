"""The operators as functions of tensors: ``tessera.torch.functional.NAME(tensors..., *, variant=None, numbers...)``.

They are :mod:`tessera.ops` for tensors of PyTorch, with gradients, ``torch.compile`` and ``torch.vmap``. Each calls an operator in PyTorch's registry
(``torch.ops.tessera``); :func:`entry` says which. Arrays are tensors by position or by name. Results that have an axis of a length that no input says
take it as a keyword (``top_k(x, k=5)``); where a result can have one of several types, ``dtype`` chooses.
"""

from __future__ import annotations

import torch

from .. import errors, ops
from ._declared import BY_VARIANT, DEFAULTS, Entry


def entry(operator: str, variant: str | None = None) -> Entry:
    """What PyTorch is told of a variant of an operator: the default one where it is ``None``.

    Raises:
        ArgumentError: there is no such operator, or no such variant, or none goes without saying.
    """
    if operator not in DEFAULTS:
        raise errors.ArgumentError(f"there is no operator `{operator}`: `tessera.list_operators()` lists them")
    wanted = DEFAULTS[operator] if variant is None else variant
    if (operator, wanted) not in BY_VARIANT:
        taken = ", ".join(repr(own) for name, own in BY_VARIANT if name == operator)
        needs = f"`{operator}` needs a variant" if variant is None else f"`{operator}` has no variant `{variant}`"
        raise errors.ArgumentError(f"{needs}: it is one of {taken}")
    return BY_VARIANT[(operator, wanted)]


def _function(operator: str):
    def call(*tensors, variant: str | None = None, **keywords):
        found = entry(operator, variant)
        if found.names_variant:
            keywords["variant"] = DEFAULTS[operator] if variant is None else variant
        return getattr(torch.ops.tessera, found.name)(*tensors, **keywords)

    call.__name__ = call.__qualname__ = operator
    call.__module__ = __name__
    call.__doc__ = getattr(ops, operator).__doc__
    return call


for _operator in DEFAULTS:
    globals()[_operator] = _function(_operator)

__all__ = ["entry"]
__all__ += list(DEFAULTS)
