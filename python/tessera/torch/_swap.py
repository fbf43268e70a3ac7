"""Modules of models that there are, replaced by Tessera's."""

from __future__ import annotations

from dataclasses import dataclass, field

import torch

from . import attention, modules


@dataclass
class Swapped:
    """What :func:`swap` did, by the names of modules in the model (``""`` is the model itself).

    Attributes:
        replaced: For each module that was replaced, the name of its class.
        kept: For each that has a class which is replaced, and was not: why.
    """

    replaced: dict[str, str] = field(default_factory=dict)
    kept: dict[str, str] = field(default_factory=dict)

    def __str__(self) -> str:
        lines = [f"replaced {len(self.replaced)} modules, kept {len(self.kept)}"]
        lines += [f"  {name or '(the model)'}: {kind}" for name, kind in self.replaced.items()]
        lines += [f"  {name or '(the model)'} is kept: {reason}" for name, reason in self.kept.items()]
        return "\n".join(lines)


def _nothing(module: torch.nn.Module) -> str | None:
    return None


_CLASSES = {
    torch.nn.RMSNorm: (modules.RMSNorm, _nothing),
    torch.nn.LayerNorm: (modules.LayerNorm, _nothing),
    torch.nn.SiLU: (modules.SiLU, modules.refused_in_place),
    torch.nn.GELU: (modules.GELU, _nothing),
    torch.nn.CrossEntropyLoss: (modules.CrossEntropyLoss, modules.refused_loss),
    torch.nn.MultiheadAttention: (attention.MultiheadAttention, attention.refused_heads),
}


def swap(model: torch.nn.Module) -> Swapped:
    """Replaces modules of ``torch.nn`` in a model by Tessera's, in place.

    Parameters, buffers, hooks and names stay the objects that they are, so that optimisers and state dictionaries go on working. Modules of
    subclasses are left alone: what they do is not known.

    Returns:
        What was replaced, and what was not and why.
    """
    swapped = Swapped()
    for name, module in model.named_modules():
        found = _CLASSES.get(type(module))
        if found is None:
            continue
        ours, refused = found
        reason = refused(module)
        if reason is None:
            # The object stays: whoever holds it, or its parameters, holds the new module.
            module.__class__ = ours
            swapped.replaced[name] = type(module).__name__
        else:
            swapped.kept[name] = reason
    return swapped
