"""Tessera in PyTorch: operators with gradients, modules, and a swap for models that there are.

::

    import torch
    import tessera.torch

    y = torch.ops.tessera.rms_norm(x, weight, eps=1e-6)          # or tessera.torch.functional.rms_norm
    y.sum().backward()

    print(tessera.torch.swap(model))                             # what was replaced, and what was left
    model = torch.compile(model, fullgraph=True)
"""

from __future__ import annotations

from . import functional
from ._autograd import add_gradient, refuse_graphs
from ._declared import ENTRIES
from ._registered import registered
from ._swap import Swapped, swap
from ._vmap import add_vmap
from .attention import Attention, MultiheadAttention, scaled_dot_product_attention
from .modules import GELU, CrossEntropyLoss, LayerNorm, LinearCrossEntropyLoss, RMSNorm, RotaryEmbedding, SiLU, SwiGLU

for _entry in ENTRIES.values():
    _made = registered(_entry)
    if _entry.gradient is not None:
        add_gradient(_entry, _made)
    if _entry.updated:
        refuse_graphs(_entry, _made)
    if _entry.inputs and not _entry.updated:
        add_vmap(_entry, _made)

__all__ = [
    "GELU",
    "Attention",
    "CrossEntropyLoss",
    "LayerNorm",
    "LinearCrossEntropyLoss",
    "MultiheadAttention",
    "RMSNorm",
    "RotaryEmbedding",
    "SiLU",
    "Swapped",
    "SwiGLU",
    "functional",
    "scaled_dot_product_attention",
    "swap",
]
