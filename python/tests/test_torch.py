"""The operators in PyTorch: shapes, gradients, compiled models, modules, and the swap."""

from __future__ import annotations

import copy
import importlib.util
import sys
from pathlib import Path

import pytest

torch = pytest.importorskip("torch")

import tessera.torch  # noqa: E402
from tessera import errors  # noqa: E402
from tessera.torch import functional  # noqa: E402
from tessera.torch._declared import ENTRIES  # noqa: E402


def numbers(*shape: int, dtype=torch.float64) -> torch.Tensor:
    """Normal numbers that ask for a gradient."""
    return torch.randn(*shape, dtype=dtype).requires_grad_()


def ints(most: int, *shape: int) -> torch.Tensor:
    """Whole numbers below ``most``."""
    return torch.randint(most, shape, dtype=torch.int32)


#: Tensors and keywords of one call for each entry that has a gradient. Sizes are odd where operators take these.
DIFFERENTIABLE = {
    "conv2d": lambda: ([numbers(2, 3, 6, 5), numbers(4, 3, 3, 3)], {"stride": 2, "padding": 1}),
    "conv2d_nchw_bias": lambda: ([numbers(1, 2, 5, 5), numbers(3, 2, 3, 3), numbers(3)], {}),
    "attention_lse": lambda: ([numbers(1, 4, 5, 16), numbers(1, 2, 5, 16), numbers(1, 2, 5, 16)], {"variant": "causal", "scale": 0.25}),
    "embedding": lambda: ([numbers(7, 5), ints(7, 2, 3)], {}),
    "moe_gate": lambda: ([numbers(5, 8)], {"k": 2}),
    "moe_permute": lambda: ([numbers(4, 6), torch.randperm(8, dtype=torch.int32).view(4, 2)], {"slots": 8}),
    "moe_combine": lambda: ([numbers(8, 6), torch.randperm(8, dtype=torch.int32).view(4, 2), numbers(4, 2)], {}),
    "group_norm": lambda: ([numbers(2, 4, 9), numbers(4), numbers(4)], {"groups": 2, "eps": 1e-5}),
    "batch_norm": lambda: ([numbers(3, 4, 5), numbers(4), numbers(4)], {"eps": 1e-5}),
    "reduce_rows": lambda: ([numbers(3, 9)], {"variant": "norm"}),
    "cumsum": lambda: ([numbers(3, 9)], {"variant": "reverse"}),
    "layer_norm": lambda: ([numbers(2, 3, 12), numbers(12), numbers(12)], {"eps": 1e-5}),
    "rms_norm": lambda: ([numbers(2, 3, 12), numbers(12)], {"eps": 1e-6}),
    "softmax": lambda: ([numbers(2, 5, 5)], {"variant": "causal"}),
    "log_softmax": lambda: ([numbers(3, 9)], {}),
    "log_sum_exp": lambda: ([numbers(3, 9)], {}),
    "cross_entropy": lambda: ([numbers(5, 9), ints(9, 5)], {"ignore_index": -100}),
    "relu": lambda: ([numbers(3, 7)], {}),
    "leaky_relu": lambda: ([numbers(3, 7)], {"slope": 0.1}),
    "elu": lambda: ([numbers(3, 7)], {"alpha": 0.5}),
    "sigmoid": lambda: ([numbers(3, 7)], {}),
    "tanh": lambda: ([numbers(3, 7)], {}),
    "silu": lambda: ([numbers(3, 7)], {}),
    "gelu": lambda: ([numbers(3, 7)], {}),
    "gelu_tanh": lambda: ([numbers(3, 7)], {}),
    "swiglu": lambda: ([numbers(3, 7), numbers(3, 7)], {}),
    "geglu": lambda: ([numbers(3, 7), numbers(3, 7)], {}),
    "geglu_tanh": lambda: ([numbers(3, 7), numbers(3, 7)], {}),
    "bias_relu": lambda: ([numbers(3, 7), numbers(7)], {}),
    "bias_silu": lambda: ([numbers(3, 7), numbers(7)], {}),
    "bias_gelu": lambda: ([numbers(3, 7), numbers(7)], {}),
    "dropout": lambda: ([numbers(3, 7)], {"p": 0.5, "seed": 3}),
    "rope": lambda: ([numbers(1, 3, 2, 8), torch.randn(5, 4), torch.randn(5, 4)], {"start": 1}),
    "rope_halves_theta": lambda: ([numbers(1, 3, 2, 8)], {"start": 1, "theta": 100.0, "dims": 8}),
}

#: The same of some that have none: results with axes of their own, types to choose, tensors that are changed, no tensors.
OTHERS = {
    "gemm": lambda: ([torch.randn(2, 3, 4), torch.randn(2, 4, 5), torch.randn(2, 3, 5)], {"alpha": 0.5, "beta": 2.0}),
    "linear_swiglu": lambda: ([torch.randn(3, 8), torch.randn(6, 8), torch.randn(6, 8)], {"variant": "geglu"}),
    "attention": lambda: ([torch.randn(1, 2, 5, 16)] * 3, {"scale": 0.25}),
    "cast": lambda: ([torch.randn(3, 7)], {"dtype": torch.float16}),
    "top_k": lambda: ([torch.randn(3, 9)], {"k": 4}),
    "kv_append": lambda: ([torch.randn(2, 1, 8), torch.randn(2, 1, 8), ints(8, 2), torch.zeros(4, 2, 1, 8), torch.zeros(4, 2, 1, 8)], {}),
    "random_uniform": lambda: ([], {"n": [3, 4], "dtype": torch.float32, "seed": 5}),
    "quantise": lambda: ([torch.randn(2, 256)], {"variant": "blocks_int8"}),
    "embedding_backward": lambda: ([torch.randn(2, 3, 5), ints(7, 2, 3)], {"vocab": 7}),
    "add_rms_norm": lambda: ([torch.randn(3, 12), torch.randn(3, 12), torch.randn(12)], {"eps": 1e-6}),
}


def the(name: str):
    return getattr(torch.ops.tessera, name)


def test_every_gradient_has_a_sample():
    assert set(DIFFERENTIABLE) == {name for name, entry in ENTRIES.items() if entry.gradient is not None}


@pytest.mark.parametrize("name", DIFFERENTIABLE)
def test_gradients_are_those_of_differences(name):
    torch.manual_seed(0)
    tensors, keywords = DIFFERENTIABLE[name]()

    def floats(*given):
        made = the(name)(*given, **keywords)
        return tuple(part for part in made if part.is_floating_point()) if isinstance(made, tuple) else made

    assert torch.autograd.gradcheck(floats, tensors, eps=1e-6, atol=2e-5, rtol=1e-4, fast_mode=True)


@pytest.mark.parametrize("name", [*DIFFERENTIABLE, *OTHERS])
def test_opcheck(name):
    torch.manual_seed(0)
    tensors, keywords = (DIFFERENTIABLE | OTHERS)[name]()
    torch.library.opcheck(the(name).default, tuple(tensors), keywords)
