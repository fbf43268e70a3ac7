"""Gradients: each is an operator of the library, called by name.

The gradient of an operator is given what the operator read or wrote under the same names, and the gradients of its results under these names with a
``d`` before them; it gives the gradients of inputs, named likewise. Gradients have no gradients: differentiating twice is an error of PyTorch's.

Operators that change tensors in place have none, and PyTorch, which sees no results of theirs, would go on as if nothing had been changed: they refuse
tensors of a graph.
"""

from __future__ import annotations

import warnings

import torch

from .. import errors
from ._declared import BY_VARIANT, Entry
from ._registered import axes_of, variant_of

#: Inputs whose gradient is that of another one: a sum has one for both of its terms.
_SHARED = {("add_rms_norm", "residual"): "x", ("add_layer_norm", "residual"): "x"}

#: What holds the functions that are registered here, as long as it lives.
_LIBRARY = torch.library.Library("tessera", "IMPL")


def add_gradient(entry: Entry, made: torch.library.CustomOpDef) -> None:
    """Gives an operator of PyTorch's its gradient."""

    def setup_context(ctx, inputs, output, keyword_only_inputs=None):
        _remember(entry, ctx, inputs, output, keyword_only_inputs or {})

    def backward(ctx, *gradients):
        return _backward(entry, ctx, gradients)

    made.register_autograd(backward, setup_context=setup_context)


def refuse_graphs(entry: Entry, made: torch.library.CustomOpDef) -> None:
    """Has an operator that changes tensors in place refuse tensors that ask for a gradient, where gradients are recorded."""
    call = made._opoverload

    def refuse(keyset, *args, **keywords):
        if torch.is_grad_enabled():
            for name, tensor in zip(entry.tensors, args, strict=False):
                if tensor is not None and tensor.requires_grad:
                    text = f"`tessera::{entry.name}` changes tensors in place and has no gradient: pass `{name}.detach()`, or call it under `torch.no_grad()`"
                    raise errors.ArgumentError(text)
        with torch._C._AutoDispatchBelowAutograd():
            return call.redispatch(keyset & torch._C._after_autograd_keyset, *args, **keywords)

    with warnings.catch_warnings():
        # `custom_op` has put a function there, which this one stands for.
        warnings.filterwarnings("ignore", message="Warning only once for all operators")
        _LIBRARY.impl(entry.name, refuse, "Autograd", with_keyset=True)


def _remember(entry: Entry, ctx, inputs: tuple, output, keywords: dict) -> None:
    variant = variant_of(entry, keywords)
    other = BY_VARIANT[(entry.gradient, variant)]
    outputs = output if isinstance(output, tuple) else (output,)
    given = dict(zip(entry.tensors, inputs, strict=True))
    values = {**given, **dict(zip(entry.outputs, outputs, strict=True))}
    kept = [name for name in other.inputs if name in values]
    ctx.save_for_backward(*(values[name] for name in kept))
    ctx.kept = kept
    ctx.variant = variant
    ctx.numbers = {name: keywords[name] for name in other.scalars if keywords.get(name) is not None}
    # An axis that the gradient alone has is one of the input whose gradient has it.
    axes = axes_of(entry.signatures[variant]["inputs"], given)
    ctx.extents = {axis: axes[axis] if several else axes[axis][0] for axis, several in other.sizes.items()}


def _backward(entry: Entry, ctx, gradients: tuple):
    other = BY_VARIANT[(entry.gradient, ctx.variant)]
    values = dict(zip(ctx.kept, ctx.saved_tensors, strict=True))
    for name, gradient in zip(entry.outputs, gradients, strict=True):
        if f"d{name}" in other.inputs:
            values[f"d{name}"] = gradient.contiguous()
    source = {name: f"d{_SHARED.get((entry.operator, name), name)}" for name in entry.tensors}
    for at, name in enumerate(entry.tensors):
        if ctx.needs_input_grad[at] and source[name] not in other.outputs:
            raise errors.ArgumentError(f"`tessera::{entry.name}` has no gradient of `{name}`: pass `{name}.detach()`")
    keywords = {**ctx.numbers, **ctx.extents}
    if other.names_variant:
        keywords["variant"] = ctx.variant
    made = getattr(torch.ops.tessera, other.name)(*(values[name] for name in other.inputs), **keywords)
    found = dict(zip(other.outputs, made if isinstance(made, (tuple, list)) else (made,), strict=True))
    return tuple(found.get(source[name]) for name in entry.tensors)
