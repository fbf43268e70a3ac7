"""Attention: the forward pass keeps the logarithms of rows' sums of exponentials, from which the backward pass makes the probabilities again; these
are never in memory.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

from .. import errors
from . import functional
from .modules import RotaryEmbedding


def scaled_dot_product_attention(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attn_mask: Tensor | None = None,
    dropout_p: float = 0.0,
    is_causal: bool = False,
    scale: float | None = None,
    enable_gqa: bool = False,
) -> Tensor:
    """``torch.nn.functional.scaled_dot_product_attention`` without masks and dropout.

    Args:
        query: ``[..., heads, queries, dim]``, or without heads.
        key: ``[..., shared, keys, dim]``.
        value: As ``key``.
        attn_mask: ``None``; ``is_causal`` says the one mask that there is.
        dropout_p: 0.
        is_causal: Whether a query sees no keys behind its own place; there are as many keys as queries.
        scale: What scores are multiplied with; ``1 / sqrt(dim)`` where it is ``None``.
        enable_gqa: Whether groups of heads may share keys and values.

    Returns:
        ``[..., heads, queries, dim]``.

    Raises:
        ArgumentError: a mask, dropout, or shapes that do not fit.
    """
    if attn_mask is not None:
        raise errors.ArgumentError("attention takes no mask: pass `is_causal=True` for the causal one, or use `torch.nn.functional`'s")
    if dropout_p:
        raise errors.ArgumentError(f"attention drops nothing, and `dropout_p` is {dropout_p}: pass 0, or use `torch.nn.functional`'s")
    if min(query.dim(), key.dim(), value.dim()) < 2:
        ranks = [len(x.shape) for x in (query, key, value)]
        raise errors.ArgumentError(f"attention takes `[..., tokens, dim]`, and is given tensors of {ranks[0]}, {ranks[1]} and {ranks[2]} axes")
    if is_causal and query.shape[-2] != key.shape[-2]:
        raise errors.ArgumentError(f"causal attention has as many keys as queries, and is given {key.shape[-2]} and {query.shape[-2]}")
    plain = query.dim() == 2
    if plain:
        query, key, value = query.unsqueeze(0), key.unsqueeze(0), value.unsqueeze(0)
    if query.shape[-3] != key.shape[-3] and not enable_gqa:
        raise errors.ArgumentError(f"{query.shape[-3]} heads share {key.shape[-3]} of keys: pass `enable_gqa=True` where they are meant to")
    if query.shape[-1] == 0:
        raise errors.ArgumentError("attention of heads of no elements has no scores")
    scale = 1.0 / math.sqrt(query.shape[-1]) if scale is None else scale
    out, _ = functional.attention_lse(query, key, value, variant="causal" if is_causal else "", scale=scale)
    return out.squeeze(0) if plain else out


class Attention(torch.nn.Module):
    """Self-attention of a decoder, ``[batch, tokens, hidden]`` to the same shape, with the names that Llama's models have.

    Args:
        hidden: Width of what goes in and out.
        heads: Heads of queries; their width is ``hidden / heads``.
        shared: Heads of keys and values, each for as many heads of queries; as many as ``heads`` where it is ``None``.
        rotary: Positions; none where it is ``None``.
        causal: Whether a token sees only those before it.
        bias: Whether the four projections have biases.

    Raises:
        ArgumentError: ``heads`` does not divide ``hidden``, or ``shared`` does not divide ``heads``.
    """

    def __init__(
        self,
        hidden: int,
        heads: int,
        shared: int | None = None,
        rotary: RotaryEmbedding | None = None,
        causal: bool = True,
        bias: bool = False,
        device=None,
        dtype=None,
    ):
        super().__init__()
        self.heads, self.shared = heads, heads if shared is None else shared
        if heads < 1 or self.shared < 1 or hidden % heads or heads % self.shared:
            raise errors.ArgumentError(f"{heads} heads do not divide {hidden}, or {self.shared} heads of keys do not divide these")
        self.dim = hidden // heads
        self.causal = causal
        self.rotary = rotary
        of = {"bias": bias, "device": device, "dtype": dtype}
        self.q_proj = torch.nn.Linear(hidden, hidden, **of)
        self.k_proj = torch.nn.Linear(hidden, self.shared * self.dim, **of)
        self.v_proj = torch.nn.Linear(hidden, self.shared * self.dim, **of)
        self.o_proj = torch.nn.Linear(hidden, hidden, **of)

    def forward(self, x: Tensor, start: int = 0) -> Tensor:
        """Attends; the first token has the place ``start``."""
        split = lambda made: made.unflatten(-1, (-1, self.dim))
        query, key, value = split(self.q_proj(x)), split(self.k_proj(x)), split(self.v_proj(x))
        if self.rotary is not None:
            query, key = self.rotary(query, start), self.rotary(key, start)
        query, key, value = (made.transpose(-3, -2) for made in (query, key, value))
        out = scaled_dot_product_attention(query, key, value, is_causal=self.causal, enable_gqa=True)
        return self.o_proj(out.transpose(-3, -2).flatten(-2))


class MultiheadAttention(torch.nn.MultiheadAttention):
    """``torch.nn.MultiheadAttention`` whose keys and values are as wide as its queries, without dropout and further keys.

    Raises:
        ArgumentError: what it does not have is asked for: when it is made, or when it is called with masks other than the causal one, or for
            weights.
    """

    def __init__(self, *args, **keywords):
        super().__init__(*args, **keywords)
        reason = refused_heads(self)
        if reason is not None:
            raise errors.ArgumentError(f"MultiheadAttention: {reason}; `torch.nn.MultiheadAttention` has that")

    def forward(
        self,
        query: Tensor,
        key: Tensor,
        value: Tensor,
        key_padding_mask: Tensor | None = None,
        need_weights: bool = True,
        attn_mask: Tensor | None = None,
        average_attn_weights: bool = True,
        is_causal: bool = False,
    ) -> tuple[Tensor, None]:
        """Attends. With ``is_causal`` the mask is the causal one, and ``attn_mask`` is not read, as in PyTorch. ``need_weights`` has to be false."""
        if need_weights:
            raise errors.ArgumentError("MultiheadAttention has no weights to return: pass `need_weights=False`")
        if key_padding_mask is not None or attn_mask is not None and not is_causal:
            raise errors.ArgumentError("MultiheadAttention takes no masks: pass `is_causal=True` for the causal one, or use `torch.nn`'s")
        linear = torch.nn.functional.linear
        if query is key and key is value:
            made = linear(query, self.in_proj_weight, self.in_proj_bias).chunk(3, -1)
        else:
            biases = (None,) * 3 if self.in_proj_bias is None else self.in_proj_bias.chunk(3)
            made = [linear(x, w, b) for x, w, b in zip((query, key, value), self.in_proj_weight.chunk(3), biases)]
        # [tokens, batch, width] or [batch, tokens, width], or without a batch, to [batch, heads, tokens, dim].
        has_batch = query.dim() == 3
        tokens_first = has_batch and not self.batch_first
        heads = [x.unflatten(-1, (self.num_heads, self.head_dim)) for x in made]
        heads = [x.permute(1, 2, 0, 3) if tokens_first else x.transpose(-3, -2) for x in heads]
        out = scaled_dot_product_attention(*heads, is_causal=is_causal)
        out = out.permute(2, 0, 1, 3) if tokens_first else out.transpose(-3, -2)
        return self.out_proj(out.flatten(-2)), None


def refused_heads(module: torch.nn.MultiheadAttention) -> str | None:
    """What an attention of PyTorch's asks for that :class:`MultiheadAttention` does not have."""
    if not module._qkv_same_embed_dim:
        return "keys or values are not as wide as queries"
    if module.bias_k is not None or module.add_zero_attn:
        return "keys are added"
    return f"{module.dropout} of the weights are dropped" if module.dropout else None
