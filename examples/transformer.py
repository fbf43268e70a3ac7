"""A small transformer that trains twice from the same weights on the same text: on PyTorch's modules, and on Tessera's after ``tessera.torch.swap``.

::

    python examples/transformer.py [--steps 30] [--device cpu] [--compile BACKEND]

Both runs do the same sums in other orders, in fp32, so that losses drift apart by rounding alone. The script ends with an error if they differ by
more than ``--tolerance`` (1e-3) after any step.
"""

from __future__ import annotations

import argparse
import copy
import sys

import tessera.torch
import torch
from torch import Tensor, nn


class FeedForward(nn.Module):
    """A gated feed-forward layer in PyTorch's own modules."""

    def __init__(self, width: int):
        super().__init__()
        self.gate = nn.Linear(width, 2 * width, bias=False)
        self.up = nn.Linear(width, 2 * width, bias=False)
        self.down = nn.Linear(2 * width, width, bias=False)
        self.activation = nn.SiLU()

    def forward(self, x: Tensor) -> Tensor:
        return self.down(self.activation(self.gate(x)) * self.up(x))


class Block(nn.Module):
    """Attention and a feed-forward layer, each behind a normalisation and around a shortcut."""

    def __init__(self, width: int, heads: int):
        super().__init__()
        self.norm_1 = nn.LayerNorm(width)
        self.attention = nn.MultiheadAttention(width, heads, batch_first=True)
        self.norm_2 = nn.RMSNorm(width, eps=1e-6)
        self.feed_forward = FeedForward(width)

    def forward(self, x: Tensor, mask: Tensor) -> Tensor:
        y = self.norm_1(x)
        x = x + self.attention(y, y, y, need_weights=False, attn_mask=mask, is_causal=True)[0]
        return x + self.feed_forward(self.norm_2(x))


class Transformer(nn.Module):
    """A decoder over ``vocabulary`` letters: tokens ``[batch, tokens]`` to logits ``[batch, tokens, vocabulary]``."""

    def __init__(self, vocabulary: int, width: int, heads: int, depth: int, longest: int):
        super().__init__()
        self.letters = nn.Embedding(vocabulary, width)
        self.places = nn.Embedding(longest, width)
        self.blocks = nn.ModuleList(Block(width, heads) for _ in range(depth))
        self.norm = nn.RMSNorm(width, eps=1e-6)
        self.head = nn.Linear(width, vocabulary, bias=False)
        self.register_buffer("mask", nn.Transformer.generate_square_subsequent_mask(longest), persistent=False)

    def forward(self, tokens: Tensor) -> Tensor:
        length = tokens.shape[1]
        x = self.letters(tokens) + self.places.weight[:length]
        for block in self.blocks:
            x = block(x, self.mask[:length, :length])
        return self.head(self.norm(x))


class Task(nn.Module):
    """The model with its loss: the next letter of each."""

    def __init__(self, model: Transformer):
        super().__init__()
        self.model = model
        self.loss = nn.CrossEntropyLoss()

    def forward(self, text: Tensor) -> Tensor:
        logits = self.model(text[:, :-1])
        return self.loss(logits.flatten(0, 1), text[:, 1:].flatten())


def sentences(batch: int, length: int, vocabulary: int, step: int) -> Tensor:
    """Text ``[batch, length]`` that can be learnt: each letter follows from the last one, with a stride of the sentence's own."""
    chosen = torch.Generator().manual_seed(step)
    first = torch.randint(vocabulary, (batch, 1), generator=chosen)
    stride = torch.randint(1, 4, (batch, 1), generator=chosen)
    return (first + stride * torch.arange(length)) % vocabulary


def train(task: Task, steps: int, batch: int, length: int, compiled: str | None = None) -> list[float]:
    """Trains and gives the loss of each step."""
    device = next(task.parameters()).device
    vocabulary = task.model.head.out_features
    optimiser = torch.optim.AdamW(task.parameters(), lr=3e-3)
    run = task if compiled is None else torch.compile(task, backend=compiled, fullgraph=True)
    losses = []
    for step in range(steps):
        optimiser.zero_grad()
        loss = run(sentences(batch, length + 1, vocabulary, step).to(device))
        loss.backward()
        optimiser.step()
        losses.append(loss.item())
    return losses


def main() -> int:
    arguments = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    arguments.add_argument("--steps", type=int, default=30)
    arguments.add_argument("--batch", type=int, default=8)
    arguments.add_argument("--length", type=int, default=32)
    arguments.add_argument("--width", type=int, default=64)
    arguments.add_argument("--depth", type=int, default=2)
    arguments.add_argument("--device", default="cpu")
    arguments.add_argument("--compile", metavar="BACKEND", help="a backend of torch.compile for the swapped model")
    arguments.add_argument("--tolerance", type=float, default=1e-3, help="by how much losses may differ")
    given = arguments.parse_args()

    torch.manual_seed(0)
    plain = Task(Transformer(vocabulary=32, width=given.width, heads=4, depth=given.depth, longest=given.length)).to(given.device)
    swapped = copy.deepcopy(plain)
    print(tessera.torch.swap(swapped))
    expected = train(plain, given.steps, given.batch, given.length)
    found = train(swapped, given.steps, given.batch, given.length, given.compile)
    for step, (theirs, ours) in enumerate(zip(expected, found, strict=True)):
        if step % 5 == 0 or step == given.steps - 1:
            print(f"step {step:3}: loss {theirs:.6f} on torch.nn, {ours:.6f} on tessera.torch")
    most = max(abs(theirs - ours) for theirs, ours in zip(expected, found, strict=True))
    print(f"largest difference {most:.2e}, allowed {given.tolerance:.0e}")
    return 0 if most <= given.tolerance else 1


if __name__ == "__main__":
    sys.exit(main())
