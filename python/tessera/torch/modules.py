"""Modules on the operators.

Those with a namesake in ``torch.nn`` are subclasses of it: they take the same arguments and have the same parameters, so that state dictionaries go
both ways. They run on the CPU and on CUDA devices, under autograd, ``torch.compile`` and ``torch.vmap``.

===============================  ===================================================================================
:class:`RMSNorm`                 ``torch.nn.RMSNorm``
:class:`LayerNorm`               ``torch.nn.LayerNorm``
:class:`SiLU`, :class:`GELU`     ``torch.nn.SiLU``, ``torch.nn.GELU``
:class:`CrossEntropyLoss`        ``torch.nn.CrossEntropyLoss`` of class numbers, without weights and smoothing
:class:`LinearCrossEntropyLoss`  a last layer and its loss, without the logits in memory
:class:`SwiGLU`                  ``down_proj(silu(gate_proj(x)) * up_proj(x))``, with the names that Llama's models have
:class:`RotaryEmbedding`         rotary positions of heads, from theta, without tables
===============================  ===================================================================================

Attention stands in :mod:`tessera.torch.attention`.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

from .. import errors
from . import functional


def _rows(x: Tensor, shape: tuple[int, ...], module: torch.nn.Module) -> Tensor:
    """``x`` with the axes of a shape as one last axis."""
    if tuple(x.shape[x.dim() - len(shape) :]) != tuple(shape):
        raise errors.ArgumentError(f"{module} takes tensors whose last axes are {list(shape)}, and is given one of shape {list(x.shape)}")
    return x if len(shape) == 1 else x.flatten(x.dim() - len(shape))


def _flat(parameter: Tensor | None, rows: Tensor, absent: float) -> Tensor:
    """A parameter as one axis, in the type of the rows, which is another one under ``torch.autocast``."""
    return rows.new_full((rows.shape[-1],), absent) if parameter is None else parameter.flatten().to(rows.dtype)


class RMSNorm(torch.nn.RMSNorm):
    """Root-mean-square normalisation over the last axes, ``[..., *normalized_shape]`` to the same shape.

    ``eps`` is the epsilon of the type that PyTorch computes in where it is ``None``: ``float32``'s for types of 16 bits.

    Raises:
        ArgumentError: the last axes of the input are not ``normalized_shape``.
    """

    def forward(self, x: Tensor) -> Tensor:
        """Normalises."""
        rows = _rows(x, self.normalized_shape, self)
        weight = _flat(self.weight, rows, 1.0)
        eps = torch.finfo(torch.promote_types(x.dtype, torch.float32)).eps if self.eps is None else self.eps
        return functional.rms_norm(rows, weight, eps=eps).view(x.shape)


class LayerNorm(torch.nn.LayerNorm):
    """Layer normalisation over the last axes, ``[..., *normalized_shape]`` to the same shape.

    Raises:
        ArgumentError: the last axes of the input are not ``normalized_shape``.
    """

    def forward(self, input: Tensor) -> Tensor:
        """Normalises."""
        rows = _rows(input, self.normalized_shape, self)
        weight = _flat(self.weight, rows, 1.0)
        bias = _flat(self.bias, rows, 0.0)
        return functional.layer_norm(rows, weight, bias, eps=self.eps).view(input.shape)


class SiLU(torch.nn.SiLU):
    """``x * sigmoid(x)``, element by element. What is given stays as it is.

    Raises:
        ArgumentError: ``inplace``, which ``torch.nn.SiLU`` has.
    """

    def __init__(self, inplace: bool = False):
        super().__init__(inplace)
        reason = refused_in_place(self)
        if reason is not None:
            raise errors.ArgumentError(f"SiLU: {reason}; `torch.nn.SiLU` has that")

    def forward(self, input: Tensor) -> Tensor:
        """The activation."""
        return functional.silu(input)


def refused_in_place(module: torch.nn.SiLU) -> str | None:
    """What an activation of PyTorch's asks for that :class:`SiLU` does not have."""
    return "it changes what it is given" if module.inplace else None


class GELU(torch.nn.GELU):
    """``x * Phi(x)``, element by element, or its approximation by a hyperbolic tangent.

    Raises:
        ArgumentError: ``approximate`` is neither ``none`` nor ``tanh``.
    """

    def forward(self, input: Tensor) -> Tensor:
        """The activation."""
        if self.approximate not in ("none", "tanh"):
            raise errors.ArgumentError(f"GELU: `approximate` is `none` or `tanh`, not {self.approximate!r}")
        return functional.gelu_tanh(input) if self.approximate == "tanh" else functional.gelu(input)


class CrossEntropyLoss(torch.nn.CrossEntropyLoss):
    """Cross-entropy of logits ``[classes]``, ``[batch, classes]`` or ``[batch, classes, ...]`` and class numbers of the same shape without the classes.

    Rows of the number ``ignore_index`` count for nothing; on the host other numbers that are no class are refused, on a GPU nobody looks at them. The loss is a number, or one for each row with ``reduction="none"``.

    Raises:
        ArgumentError: weights of classes, label smoothing, or targets that are probabilities: ``torch.nn.CrossEntropyLoss`` has these. Another reduction.
    """

    def __init__(
        self,
        weight: Tensor | None = None,
        size_average=None,
        ignore_index: int = -100,
        reduce=None,
        reduction: str = "mean",
        label_smoothing: float = 0.0,
    ):
        super().__init__(weight, size_average, ignore_index, reduce, reduction, label_smoothing)
        _refuse_reduction(self.reduction)
        reason = refused_loss(self)
        if reason is not None:
            raise errors.ArgumentError(f"CrossEntropyLoss: {reason}; `torch.nn.CrossEntropyLoss` has that")

    def forward(self, input: Tensor, target: Tensor) -> Tensor:
        """The loss."""
        if target.is_floating_point():
            raise errors.ArgumentError("CrossEntropyLoss takes class numbers, and is given probabilities: `torch.nn.CrossEntropyLoss` takes these")
        logits = input.movedim(1, -1) if input.dim() > 1 else input
        losses, _ = functional.cross_entropy(logits, target, ignore_index=self.ignore_index)
        return _reduced(losses, target, self.ignore_index, self.reduction).to(_loss_type(input))


def _loss_type(logits: Tensor) -> torch.dtype:
    """The type of a loss: that of the logits, and 32 bits under ``torch.autocast``, where PyTorch computes losses in these."""
    is_cast = logits.device.type in ("cpu", "cuda") and torch.is_autocast_enabled(logits.device.type)
    return torch.float32 if is_cast else logits.dtype


def _reduced(losses: Tensor, target: Tensor, ignored: int, reduction: str) -> Tensor:
    """Losses of rows as a loss reduces them; the mean is over the rows that count."""
    _refuse_reduction(reduction)
    if reduction == "none":
        return losses
    return losses.sum() / (target != ignored).sum() if reduction == "mean" else losses.sum()


def _refuse_reduction(reduction: str) -> None:
    if reduction not in ("mean", "sum", "none"):
        raise errors.ArgumentError(f"`{reduction}` is no reduction: it is `mean`, `sum` or `none`")


def refused_loss(module: torch.nn.CrossEntropyLoss) -> str | None:
    """What a loss of PyTorch's asks for that :class:`CrossEntropyLoss` does not have."""
    if module.weight is not None:
        return "classes have weights"
    return "labels are smoothed" if module.label_smoothing else None


class LinearCrossEntropyLoss(torch.nn.Module):
    """The last layer of a language model with its loss: the cross-entropy of ``x @ weight.T`` and class numbers, without the logits in memory.

    ``x`` is ``[..., hidden]``, the class numbers ``[...]``. The state dictionary is that of ``torch.nn.Linear(hidden, classes, bias=False)``; a weight
    that another module has, too (an embedding's), is assigned: ``loss.weight = embedding.weight``.

    Args:
        hidden: Width of what goes in.
        classes: How many classes there are.
        ignore_index: The number of rows that count for nothing.
        reduction: ``mean`` over the rows that count, ``sum``, or ``none`` for one loss a row.

    Raises:
        ArgumentError: another reduction.
    """

    def __init__(self, hidden: int, classes: int, ignore_index: int = -100, reduction: str = "mean", device=None, dtype=None):
        super().__init__()
        _refuse_reduction(reduction)
        self.weight = torch.nn.Linear(hidden, classes, bias=False, device=device, dtype=dtype).weight
        self.ignore_index = ignore_index
        self.reduction = reduction

    def forward(self, x: Tensor, target: Tensor) -> Tensor:
        """The loss, in ``x``'s type, and in ``float32`` under ``torch.autocast``."""
        weight = self.weight.to(x.dtype)
        losses, _ = functional.linear_cross_entropy(x, weight, target, ignore_index=self.ignore_index)
        return _reduced(losses, target, self.ignore_index, self.reduction).to(_loss_type(x))


class SwiGLU(torch.nn.Module):
    """A gated feed-forward layer: ``down_proj(silu(gate_proj(x)) * up_proj(x))``, ``[..., hidden]`` to the same shape.

    Args:
        hidden: Width of what goes in and out.
        intermediate: Width between.
        bias: Whether the three projections have biases.
    """

    def __init__(self, hidden: int, intermediate: int, bias: bool = False, device=None, dtype=None):
        super().__init__()
        of = {"bias": bias, "device": device, "dtype": dtype}
        self.gate_proj = torch.nn.Linear(hidden, intermediate, **of)
        self.up_proj = torch.nn.Linear(hidden, intermediate, **of)
        self.down_proj = torch.nn.Linear(intermediate, hidden, **of)

    def forward(self, x: Tensor) -> Tensor:
        """The layer."""
        return self.down_proj(functional.swiglu(self.gate_proj(x), self.up_proj(x)))


class RotaryEmbedding(torch.nn.Module):
    """Rotary positions: turns pairs of elements of ``[..., tokens, heads, dim]`` by angles that grow with the token's place.

    Args:
        theta: The base: pair ``i`` of ``dims / 2`` turns by ``theta ** (-2 i / dims)`` a token.
        interleaved: Whether pairs are neighbours (GPT-J); else an element and the one half of the elements later (Llama).
        dims: How many elements of each head are turned, the first ones; all where it is ``None``.

    Raises:
        ArgumentError: a theta that is no finite number of more than 0, or ``dims`` that are no pairs.
    """

    def __init__(self, theta: float = 10000.0, interleaved: bool = False, dims: int | None = None):
        super().__init__()
        if not 0.0 < theta < math.inf:
            raise errors.ArgumentError(f"`theta` is {theta}: it is a finite number of more than 0")
        if dims is not None and (dims < 2 or dims % 2):
            raise errors.ArgumentError(f"`dims` is {dims}: elements are turned in pairs, 2 of each head or more")
        self.theta = theta
        self.interleaved = interleaved
        self.dims = dims

    def forward(self, x: Tensor, start: int = 0) -> Tensor:
        """Turns; the first token has the place ``start``."""
        variant = "interleaved_theta" if self.interleaved else "halves_theta"
        dims = x.shape[-1] if self.dims is None else self.dims
        return functional.rope(x, variant=variant, start=start, theta=self.theta, dims=dims)

    def extra_repr(self) -> str:
        """What ``print`` shows."""
        return f"theta={self.theta}, interleaved={self.interleaved}, dims={self.dims}"
