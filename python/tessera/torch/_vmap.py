"""``torch.vmap`` of the operators.

Where what an operator gives for several rows is what it gives for each of them, the mapped axis becomes one more axis of rows: one call does all.
Elsewhere, and where an array of which all rows share one is mapped (a weight), there is one call for each place of the axis.
"""

from __future__ import annotations

import torch

from ._declared import Entry
from ._registered import variant_of


def add_vmap(entry: Entry, made: torch.library.CustomOpDef) -> None:
    """Gives an operator of PyTorch's its rule for ``torch.vmap``."""
    call = getattr(torch.ops.tessera, entry.name)

    def rule(info, in_dims, *args, **keywords):
        variant = variant_of(entry, keywords)
        mapped = {at for at in range(len(args)) if in_dims[at] is not None}
        own = entry.signatures[variant]
        axes = dict([*own["outputs"], *own["inputs"]])
        opened = {at for at, name in enumerate(entry.tensors[: len(args)]) if axes[name] and axes[name][0].startswith("..")}
        opened -= {at for at in opened if args[at] is None}
        if entry.is_rowwise[variant] and mapped <= opened:
            moved = list(args)
            for at in opened:
                is_mapped = at in mapped
                moved[at] = args[at].movedim(in_dims[at], 0) if is_mapped else args[at].expand(info.batch_size, *args[at].shape)
            result = call(*moved, **keywords)
        else:
            each = [
                call(*(args[at] if in_dims[at] is None else args[at].select(in_dims[at], place) for at in range(len(args))), **keywords)
                for place in range(info.batch_size)
            ]
            result = tuple(map(torch.stack, zip(*each, strict=True))) if isinstance(each[0], (tuple, list)) else torch.stack(each)
        return result, tuple(0 for _ in result) if isinstance(result, tuple) else 0

    made.register_vmap(rule)
