"""The operators in PyTorch: shapes, gradients, compiled models, modules, and the swap."""

from __future__ import annotations

import copy
import importlib.util
import sys
from pathlib import Path

import pytest

torch = pytest.importorskip("torch")

import tessera.torch
from tessera import errors
from tessera.torch import functional
from tessera.torch._declared import ENTRIES

# More threads than cores wait for each other longer than these small tensors take.
torch.set_num_threads(1)


def numbers(*shape: int, dtype=torch.float64) -> torch.Tensor:
    """Normal numbers that ask for a gradient."""
    return torch.randn(*shape, dtype=dtype).requires_grad_()


def ints(most: int, *shape: int) -> torch.Tensor:
    """Whole numbers below ``most``."""
    return torch.randint(most, shape, dtype=torch.int32)


#: Tensors and keywords of one call for each entry that has a gradient. Sizes are odd where operators take these.
DIFFERENTIABLE = {
    "conv2d": lambda: ([numbers(1, 2, 5, 4), numbers(2, 2, 3, 3)], {"stride": 2, "padding": 1}),
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
    "linear_cross_entropy": lambda: ([numbers(5, 8), numbers(9, 8), ints(9, 5)], {"ignore_index": -100}),
    "add_rms_norm": lambda: ([numbers(3, 12), numbers(3, 12), numbers(12)], {"eps": 1e-6}),
    "add_layer_norm": lambda: ([numbers(3, 12), numbers(3, 12), numbers(12), numbers(12)], {"eps": 1e-6}),
    "top_k": lambda: ([numbers(3, 9)], {"k": 4}),
    "sort_rows": lambda: ([numbers(3, 9)], {"variant": "descending"}),
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
    "histogram": lambda: ([torch.randn(3, 9)], {"bins": 4, "least": -1.0, "greatest": 1.0}),
    "kv_append": lambda: ([torch.randn(2, 1, 8), torch.randn(2, 1, 8), torch.randperm(8)[:2].int(), *torch.zeros(2, 4, 2, 1, 8)], {}),
    "random_uniform": lambda: ([], {"n": [3, 4], "dtype": torch.float32, "seed": 5}),
    "quantise": lambda: ([torch.randn(2, 256)], {"variant": "blocks_int8"}),
    "embedding_backward": lambda: ([torch.randn(2, 3, 5), ints(7, 2, 3)], {"vocab": 7}),
    "rope_inplace_halves_theta": lambda: ([torch.randn(1, 3, 2, 8)], {"start": 1, "theta": 100.0, "dims": 8}),
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


def stacked(sample, places: int = 3):
    """A sample's tensors, each with ``places`` different values along a new first axis."""
    return [torch.stack([tensor.detach(), *(_other(tensor) for _ in range(places - 1))]) for tensor in sample]


def _other(tensor: torch.Tensor) -> torch.Tensor:
    return torch.randn_like(tensor) if tensor.is_floating_point() else tensor.flip(0)


@pytest.mark.parametrize(
    "name", [name for name in (DIFFERENTIABLE | OTHERS) if name not in ("kv_append", "random_uniform", "rope_inplace_halves_theta")]
)
def test_vmap_gives_what_calls_give(name, monkeypatch):
    torch.manual_seed(0)
    tensors, keywords = (DIFFERENTIABLE | OTHERS)[name]()
    many = stacked(tensors)
    parts = lambda made: made if isinstance(made, (tuple, list)) else (made,)
    for mapped in (range(len(many)), [0]):
        given = [many[at] if at in mapped else many[at][0] for at in range(len(many))]
        expected = [the(name)(*(x[place] if at in mapped else x for at, x in enumerate(given)), **keywords) for place in range(3)]
        expected = [torch.stack(part) for part in zip(*map(parts, expected), strict=True)]
        calls = []
        real = tessera.ops.call
        monkeypatch.setattr(tessera.ops, "call", lambda *args, real=real, calls=calls, **rest: calls.append(args) or real(*args, **rest))
        # The mapped axis comes last, where it has to be moved.
        found = torch.vmap(lambda *x: the(name)(*x, **keywords), in_dims=tuple(-1 if at in mapped else None for at in range(len(many))))(
            *(x.movedim(0, -1) if at in mapped else x for at, x in enumerate(given))
        )
        monkeypatch.undo()
        for ours, theirs in zip(parts(found), expected, strict=True):
            torch.testing.assert_close(ours, theirs)
        if name in ("silu", "attention_lse", "log_sum_exp", "gemm", "rope_halves_theta"):
            assert len(calls) == 1


@pytest.mark.parametrize("backend", ["eager", "aot_eager"])
def test_compiles_without_graph_breaks_and_for_all_lengths(backend):
    from torch._dynamo.testing import CompileCounterWithBackend

    def model(x, weight, cos, sin, labels):
        x = functional.rms_norm(x, weight, eps=1e-6)
        heads = functional.rope(x.unflatten(-1, (2, 16)), cos, sin).transpose(1, 2)
        out, lse = functional.attention_lse(heads, heads, heads, variant="causal", scale=0.25)
        loss, _ = functional.cross_entropy(functional.swiglu(x, out.transpose(1, 2).flatten(2)), labels)
        best, _ = functional.top_k(loss.detach(), k=3)
        return loss.mean() + best.mean() + lse.mean()

    torch.manual_seed(0)
    counted = CompileCounterWithBackend(backend)
    compiled = torch.compile(model, backend=counted, fullgraph=True, dynamic=True)
    for tokens in (6, 9, 13):
        fixed = [torch.randn(20, 8), torch.randn(20, 8), ints(32, 2, tokens)]
        x, weight = torch.randn(2, tokens, 32), torch.randn(32)
        results = []
        for run in (model, compiled):
            asked = [x.clone().requires_grad_(), weight.clone().requires_grad_()]
            value = run(*asked, *fixed)
            results.append((value.detach(), *torch.autograd.grad(value, asked)))
        torch.testing.assert_close(results[1], results[0])
    assert counted.frame_count == 1


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_functions_are_those_of_pytorch(dtype):
    torch.manual_seed(0)
    nn = torch.nn.functional
    x, weight, bias = torch.randn(4, 24).to(dtype), torch.randn(24).to(dtype), torch.randn(24).to(dtype)
    images, filters = torch.randn(2, 3, 7, 6).to(dtype), torch.randn(4, 3, 3, 3).to(dtype)
    pairs = [
        (functional.rms_norm(x, weight, eps=1e-6), nn.rms_norm(x, (24,), weight, 1e-6)),
        (functional.layer_norm(x, weight, bias, eps=1e-5), nn.layer_norm(x, (24,), weight, bias, 1e-5)),
        (functional.softmax(x), x.softmax(-1)),
        (functional.softmax(x.t()), x.t().softmax(-1)),
        (functional.silu(x[:, :1].expand(4, 24)), nn.silu(x[:, :1].expand(4, 24))),
        (functional.conv2d(images, filters, stride=2, padding=1, dtype=dtype), nn.conv2d(images, filters, stride=2, padding=1)),
        (functional.gemm(x, x, variant="nt", dtype=dtype), x @ x.t()),
        (functional.top_k(x, k=5)[0], x.topk(5).values),
        (functional.cast(x, dtype=torch.float16), x.half()),
        (
            functional.cross_entropy(x, torch.tensor([3, 1, 23, 0], dtype=torch.int32))[0].to(dtype),
            nn.cross_entropy(x, torch.tensor([3, 1, 23, 0]), reduction="none"),
        ),
    ]
    for ours, theirs in pairs:
        torch.testing.assert_close(ours, theirs, rtol=1e-4 if dtype == torch.float32 else 2e-2, atol=1e-5 if dtype == torch.float32 else 2e-2)


def test_tensors_are_changed_in_place():
    pages = torch.zeros(2, 4, 1, 8), torch.zeros(2, 4, 1, 8)
    before = pages[0]._version
    assert functional.kv_append(torch.ones(2, 1, 8), torch.ones(2, 1, 8), ints(1, 2) + torch.tensor([1, 6], dtype=torch.int32), *pages) is None
    assert pages[0].flatten(0, 1)[:, 0, 0].tolist() == [0, 1, 0, 0, 0, 0, 1, 0]
    assert pages[0]._version > before


def test_tensors_of_a_graph_are_not_changed_in_place():
    calls = {name: OTHERS[name]() for name, entry in ENTRIES.items() if entry.updated and name in OTHERS}
    calls["rope_inplace"] = ([torch.randn(5, 4), torch.randn(5, 4), torch.randn(1, 3, 2, 8)], {})
    calls["running_statistics"] = ([torch.zeros(4), torch.ones(4), torch.zeros(4), torch.ones(4)], {})
    assert set(calls) == {name for name, entry in ENTRIES.items() if entry.updated}
    for name, (tensors, keywords) in calls.items():
        before = [tensor.clone() for tensor in tensors]
        for at in (at for at, tensor in enumerate(tensors) if tensor.is_floating_point()):
            for asks in (lambda x: x.clone().requires_grad_(), lambda x: x.clone().requires_grad_() * 1.0):
                given = [asks(tensor) if place == at else tensor for place, tensor in enumerate(tensors)]
                with pytest.raises(errors.ArgumentError, match=f"`{ENTRIES[name].tensors[at]}.detach\\(\\)`"):
                    the(name)(*given, **keywords)
                assert all(torch.equal(tensor, old) for tensor, old in zip(given, before, strict=True))
        with torch.no_grad():
            the(name)(*(tensor.requires_grad_() if tensor.is_floating_point() else tensor for tensor in tensors), **keywords)


def test_results_that_ask_for_a_gradient_are_not_written():
    x, leaf = torch.ones(3), torch.full((3,), -1.0, requires_grad=True)
    for out in (leaf, leaf * 1.0):
        with pytest.raises(errors.ArgumentError, match="`y` of `relu` is written and asks for a gradient"):
            tessera.ops.relu(x, out=out)
        assert out.tolist() == [-1.0] * 3
    with torch.no_grad():
        assert tessera.ops.relu(x, out=leaf) is leaf
    assert leaf.tolist() == [1.0] * 3


def test_infers_without_memory():
    gives = functional.attention_lse(*(torch.empty(2, 8, 1 << 20, 64, device="meta", dtype=torch.bfloat16),) * 3)
    assert [(part.dtype, tuple(part.shape)) for part in gives] == [
        (torch.bfloat16, (2, 8, 1 << 20, 64)),
        (torch.float32, (2, 8, 1 << 20)),
    ]
    assert functional.random_normal(n=[2, 3], dtype=torch.float16).shape == (2, 3)
    made = functional.random_uniform(n=[2, 1 << 40], dtype=torch.float16, device="meta")
    assert (made.shape, made.dtype, made.device.type) == ((2, 1 << 40), torch.float16, "meta")


def test_attention_of_no_keys_is_nothing():
    for queries in (1, 3, 100):
        for dim in (8, 16, 320):
            query, none = numbers(1, 2, queries, dim, dtype=torch.float32), torch.empty(1, 2, 0, dim)
            for made in (
                tessera.torch.scaled_dot_product_attention(query, none, none),
                functional.attention(query, none, none, scale=1.0),
                functional.attention_window(query, none, none)[0],
            ):
                assert torch.equal(made, torch.zeros_like(made)), (queries, dim)
        out, lse = functional.attention_lse(query, none, none)
        assert torch.equal(lse, torch.full_like(lse, -torch.inf))
        out.sum().backward()
        assert not query.grad.any()


@pytest.mark.parametrize("variant", ["max", "min"])
def test_gradients_of_rows_with_nan_are_nan(variant):
    x = torch.tensor([[1.0, torch.nan, 3.0], [2.0, 2.0, 2.0], [1.0, 5.0, -torch.inf]])
    results = []
    for of in (lambda x: functional.reduce_rows(x, variant=variant), lambda x: getattr(x, f"a{variant}")(-1)):
        given = x.clone().requires_grad_()
        of(given).sum().backward()
        results.append(given.grad)
    torch.testing.assert_close(*results, equal_nan=True)


def test_dropout_of_any_probability():
    x = torch.ones(1 << 20, dtype=torch.float64)
    for p in (0.0, 1e-6, 0.1, 0.5, 0.999, 0.999995, 1.0):
        kept = functional.dropout(x, p=p, seed=3)
        count = int(kept.count_nonzero())
        assert abs(count - (1 - p) * len(x)) <= 5 * (p * (1 - p) * len(x)) ** 0.5, (p, count)
        assert kept.unique().tolist() == [value for value, is_there in ((0.0, count < len(x)), (1 / (1 - p) if p < 1 else 1, count)) if is_there]
    # The elements that share a word are dropped each for itself.
    both = functional.dropout(x, p=0.5, seed=3).view(-1, 512) != 0
    assert abs((both[::2] & both[1::2]).double().mean() - 0.25) < 0.005


def test_empty_tensors():
    for call in (
        lambda: functional.reduce_rows(torch.empty(2, 0), variant="max"),
        lambda: functional.reduce_columns(torch.empty(0, 2), variant="min"),
        lambda: functional.vector(torch.empty(0), variant="reduce_max"),
    ):
        with pytest.raises(errors.ArgumentError, match="of no elements none is the largest or smallest"):
            call()
    assert functional.reduce_rows(torch.empty(0, 0), variant="max").shape == (0,)
    assert functional.softmax(torch.empty(0, 6)).shape == (0, 6)
    x = torch.empty(0, 6, requires_grad=True)
    functional.rms_norm(x, torch.ones(6), eps=1e-6).sum().backward()
    assert x.grad.shape == (0, 6)


def decode(table: list, lengths: list) -> torch.Tensor:
    """Attention of one token to the pages of a sequence, of which there are three."""
    pages = torch.randn(3, 8, 2, 16)
    return functional.attention_decode(torch.randn(1, 2, 16), pages, pages, torch.tensor(table), torch.tensor(lengths))


MISTAKES = {
    "there is no operator `soft`": lambda: functional.entry("soft"),
    "has no variant `no`: it is one of '', 'causal'": lambda: functional.softmax(torch.ones(2, 2), variant="no"),
    "needs a variant: it is one of 'sum'": lambda: functional.reduce_rows(torch.ones(2, 2)),
    "takes no `i32`": lambda: functional.softmax(ints(3, 2, 2)),
    "`x` holds `f32` and `weight` `f64`": lambda: functional.rms_norm(torch.ones(2, 4), torch.ones(4).double()),
    "`hidden` is 4 in `x` and 5 in `weight`": lambda: functional.rms_norm(torch.ones(2, 4), torch.ones(5)),
    "of shape \\[2, 5\\]": lambda: tessera.torch.RMSNorm(4)(torch.ones(2, 5)),
    "pass its parts": lambda: functional.silu(torch.eye(3).to_sparse()),
    "`C` is not given, but read as well": lambda: functional.gemm(torch.eye(3), torch.eye(3), beta=1.0),
    "`C` holds `f64`, and gemm of `f32` gives `f32`": lambda: functional.gemm(torch.eye(3), torch.eye(3), dtype=torch.float64),
    "not 9 of 4": lambda: functional.top_k(torch.ones(2, 4), k=9),
    "no gradient of `cos`: pass `cos.detach\\(\\)`": lambda: (
        functional.rope(torch.ones(1, 2, 1, 4), torch.ones(2, 2, requires_grad=True), torch.ones(2, 2)).sum().backward()
    ),
    "no forward-mode gradient": lambda: torch.func.jvp(functional.silu, (torch.ones(3),), (torch.ones(3),)),
    "takes no mask": lambda: tessera.torch.scaled_dot_product_attention(*(torch.ones(2, 3, 16),) * 3, torch.ones(3, 3)),
    "`dropout_p` is 0.5": lambda: tessera.torch.scaled_dot_product_attention(*(torch.ones(2, 3, 16),) * 3, dropout_p=0.5),
    "is given 5 and 3": lambda: tessera.torch.scaled_dot_product_attention(
        torch.ones(2, 3, 16), torch.ones(2, 5, 16), torch.ones(2, 5, 16), is_causal=True
    ),
    "4 heads share 2 of keys": lambda: tessera.torch.scaled_dot_product_attention(torch.ones(4, 3, 16), torch.ones(2, 3, 16), torch.ones(2, 3, 16)),
    "no weights to return": lambda: tessera.torch.MultiheadAttention(32, 2)(*(torch.ones(3, 1, 32),) * 3),
    "takes no masks": lambda: tessera.torch.MultiheadAttention(32, 2)(*(torch.ones(3, 1, 32),) * 3, torch.ones(1, 3), need_weights=False),
    "0.5 of the weights are dropped": lambda: tessera.torch.MultiheadAttention(32, 2, dropout=0.5),
    "labels are smoothed": lambda: tessera.torch.CrossEntropyLoss(label_smoothing=0.1),
    "is given probabilities": lambda: tessera.torch.CrossEntropyLoss()(torch.ones(2, 3), torch.ones(2, 3)),
    "`k` of `tessera::top_k` is the size of an axis, which -1 cannot be": lambda: functional.top_k(torch.ones(2, 4), k=-1),
    "`n` of `tessera::random_uniform` is the size of an axis, which \\[2, -1\\] cannot be": lambda: (
        functional.random_uniform(n=[2, -1], dtype=torch.float32, device="meta")
    ),
    "`block_table`: 3 at place 1 of row 0 is none of the 3 pages": lambda: decode([[0, 3]], [10]),
    "`block_table`: -1 at place 1 of row 0 is none of the 3 pages": lambda: decode([[0, -1]], [10]),
    "`lengths`: 17 at place 0 is no length of a sequence, which has up to 2 pages of 8": lambda: decode([[0, 1]], [17]),
    "`lengths`: -1 at place 0": lambda: decode([[0, 1]], [-1]),
    "`place`: 0 stands at places 0 and 1, and each of the rows of `y` is written once": lambda: (
        functional.moe_permute(torch.ones(2, 4), torch.tensor([[0], [0]]), slots=2)
    ),
    "`slots`: 3 stands at places 0 and 2, and each of the rows of `k_cache` is written once": lambda: (
        functional.kv_append(torch.ones(3, 1, 4), torch.ones(3, 1, 4), torch.tensor([3, -1, 3]), torch.ones(2, 4, 1, 4), torch.zeros(2, 4, 1, 4))
    ),
    "`columns`: 9 at place 2 is none of the 3 groups of `column_offsets`": lambda: (
        functional.csr_to_csc(torch.ones(3), torch.tensor([0, 1, 9]), torch.tensor([0, 2, 3]), column_bounds=4)
    ),
    "`columns`: -1 at place 1 is none of the 3 places of `x`": lambda: (
        functional.csr_to_dense(torch.ones(3), torch.tensor([0, -1, 2]), torch.tensor([0, 2, 3]), m=2, n=3)
    ),
    "`rows`: 5 at place 1 is none of the 3 groups of `row_offsets`": lambda: functional.coo_to_csr(torch.tensor([0, 5]), bounds=4),
    "`rows`: 2 stands before 0 at places 0 and 1, and they rise": lambda: functional.coo_to_csr(torch.tensor([2, 0, 1]), bounds=4),
    "`least` is 2: `greatest` is 1": lambda: functional.histogram(torch.rand(9), bins=2, least=2.0, greatest=1.0),
    "`greatest` is NaN": lambda: functional.histogram(torch.rand(9), bins=2, least=0.0, greatest=float("nan")),
    "`ignore_index` is 2147483647": lambda: functional.cross_entropy(torch.randn(3, 4), torch.tensor([0, 1, 2**40]), ignore_index=2**31 - 1),
    "`labels`: 2147483647 at place 2 is no class": lambda: functional.cross_entropy(torch.randn(3, 4), torch.tensor([0, 1, 2**40])),
    "3 heads do not divide 32": lambda: tessera.torch.Attention(32, 3),
    "0 heads do not divide 32": lambda: tessera.torch.Attention(32, 0),
    "or 0 heads of keys": lambda: tessera.torch.Attention(32, 2, shared=0),
    "tensors of 1, 1 and 1 axes": lambda: tessera.torch.scaled_dot_product_attention(*(torch.ones(8),) * 3),
    "heads of no elements": lambda: tessera.torch.scaled_dot_product_attention(*(torch.ones(1, 2, 3, 0),) * 3),
    "`foo` is no reduction": lambda: tessera.torch.CrossEntropyLoss(reduction="foo"),
    "SiLU: it changes what it is given": lambda: tessera.torch.SiLU(inplace=True),
    "`dims` is 0: elements are turned in pairs": lambda: tessera.torch.RotaryEmbedding(dims=0),
    "`dims` is 3: elements are turned in pairs": lambda: tessera.torch.RotaryEmbedding(dims=3),
    "`theta` is nan: it is a finite number of more than 0": lambda: tessera.torch.RotaryEmbedding(theta=float("nan")),
    "`theta` is -1: it is a finite number of more than 0": lambda: functional.rope(torch.ones(1, 2, 1, 4), variant="halves_theta", theta=-1.0),
    "`eps` is -1: it is a finite number of 0 or more": lambda: functional.rms_norm(torch.ones(2, 4), torch.ones(4), eps=-1.0),
    "`momentum` is 2: it is a share from 0 to 1": lambda: functional.running_statistics(*torch.ones(4, 3), momentum=2.0),
}


@pytest.mark.parametrize("text", MISTAKES)
def test_mistakes_are_said(text):
    with pytest.raises(errors.ArgumentError, match=text):
        MISTAKES[text]()


def test_gradients_have_no_gradients():
    x = numbers(3)
    (first,) = torch.autograd.grad(functional.silu(x).sum(), x, create_graph=True)
    with pytest.raises(RuntimeError, match="silu_backward"):
        torch.autograd.grad(first.sum(), x)


#: Modules, what they are called with, and how.
MODULES = {
    "RMSNorm": ((24,), {"eps": 1e-5}, lambda: [torch.randn(2, 3, 24)], {}),
    "RMSNorm of two axes, plain": (((3, 8),), {"elementwise_affine": False}, lambda: [torch.randn(2, 3, 8)], {}),
    "LayerNorm": (((3, 8),), {}, lambda: [torch.randn(2, 3, 8)], {}),
    "LayerNorm without bias": ((24,), {"bias": False}, lambda: [torch.randn(2, 24)], {}),
    "SiLU": ((), {}, lambda: [torch.randn(2, 7)], {}),
    "GELU": ((), {}, lambda: [torch.randn(2, 7)], {}),
    "GELU by tanh": ((), {"approximate": "tanh"}, lambda: [torch.randn(2, 7)], {}),
    "CrossEntropyLoss": ((), {}, lambda: [torch.randn(5, 9), torch.tensor([1, 2, -100, 8, 0])], {}),
    "CrossEntropyLoss of images": ((), {"reduction": "sum"}, lambda: [torch.randn(2, 9, 4, 3), torch.randint(9, (2, 4, 3))], {}),
    "CrossEntropyLoss of each": ((), {"reduction": "none", "ignore_index": 3}, lambda: [torch.randn(5, 9), torch.tensor([3, 1, 2, 8, 0])], {}),
    "MultiheadAttention": ((32, 2), {}, lambda: [torch.randn(5, 3, 32)] * 3, {"need_weights": False}),
    "MultiheadAttention, batch first": (
        (32, 2),
        {"batch_first": True, "bias": False},
        lambda: [torch.randn(3, 5, 32), torch.randn(3, 7, 32), torch.randn(3, 7, 32)],
        {"need_weights": False},
    ),
    "MultiheadAttention, causal": (
        (32, 2),
        {},
        lambda: [torch.randn(5, 32)] * 3,
        {"need_weights": False, "is_causal": True, "attn_mask": torch.full((5, 5), -torch.inf).triu(1)},
    ),
}


@pytest.mark.parametrize("name", MODULES)
def test_modules_are_those_of_pytorch(name):
    torch.manual_seed(0)
    args, keywords, inputs, called = MODULES[name]
    kind = name.replace(",", " ").split()[0]
    theirs = getattr(torch.nn, kind)(*args, **keywords)
    for parameter in theirs.parameters():
        torch.nn.init.normal_(parameter, std=0.3)
    ours = getattr(tessera.torch, kind)(*args, **keywords)
    ours.load_state_dict(theirs.state_dict())
    assert list(ours.state_dict()) == list(theirs.state_dict())
    given = inputs()
    results = []
    for module in (ours, theirs):
        leaves = {id(x): x.clone().requires_grad_() if x.is_floating_point() else x for x in given}
        made = module(*(leaves[id(x)] for x in given), **called)
        made = made[0] if isinstance(made, tuple) else made
        asked = [x for x in leaves.values() if x.requires_grad] + list(module.parameters())
        results.append((made.detach(), *torch.autograd.grad((made * made.detach().cos()).sum(), asked)))
    torch.testing.assert_close(results[0], results[1], rtol=1e-4, atol=1e-5)


def test_modules_without_namesakes():
    torch.manual_seed(0)
    nn = torch.nn.functional
    x = torch.randn(2, 5, 32)
    gated = tessera.torch.SwiGLU(32, 48)
    torch.testing.assert_close(gated(x), gated.down_proj(nn.silu(gated.gate_proj(x)) * gated.up_proj(x)), rtol=1e-4, atol=1e-5)

    heads = torch.randn(2, 5, 4, 8)
    angles = torch.outer(torch.arange(3.0, 8.0), 100.0 ** (-torch.arange(0, 8, 2) / 8))
    cos, sin = angles.cos().view(5, 1, 4), angles.sin().view(5, 1, 4)
    low, high = heads.chunk(2, -1)
    expected = torch.cat([low * cos - high * sin, high * cos + low * sin], -1)
    torch.testing.assert_close(tessera.torch.RotaryEmbedding(100.0)(heads, start=3), expected, rtol=1e-4, atol=1e-5)

    layer = tessera.torch.Attention(32, 4, shared=2, rotary=tessera.torch.RotaryEmbedding())
    query, key, value = (made(x).unflatten(-1, (-1, 8)) for made in (layer.q_proj, layer.k_proj, layer.v_proj))
    query, key, value = (x.transpose(1, 2) for x in (layer.rotary(query), layer.rotary(key), value))
    out = nn.scaled_dot_product_attention(query, key, value, is_causal=True, enable_gqa=True)
    torch.testing.assert_close(layer(x), layer.o_proj(out.transpose(1, 2).flatten(2)), rtol=1e-4, atol=1e-5)
    plain = [torch.randn(5, 16) for _ in range(3)]
    torch.testing.assert_close(tessera.torch.scaled_dot_product_attention(*plain), nn.scaled_dot_product_attention(*plain), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("reduction", ["mean", "sum", "none"])
def test_last_layer_with_its_loss(reduction):
    torch.manual_seed(0)
    layer = torch.nn.Linear(16, 11, bias=False)
    ours = tessera.torch.LinearCrossEntropyLoss(16, 11, ignore_index=3, reduction=reduction)
    ours.load_state_dict(layer.state_dict())
    theirs = torch.nn.CrossEntropyLoss(ignore_index=3, reduction=reduction)
    x, target = torch.randn(7, 16), torch.tensor([0, 3, 10, 4, 3, 1, 2])
    results = []
    for loss, weight in ((ours, ours.weight), (lambda x, target: theirs(layer(x), target), layer.weight)):
        given = x.clone().requires_grad_()
        made = loss(given, target)
        results.append((made.detach(), *torch.autograd.grad(made.sum(), (given, weight))))
    torch.testing.assert_close(results[0], results[1], rtol=1e-4, atol=1e-5)


def test_norms_take_what_autocast_gives():
    norm = tessera.torch.LayerNorm(8)
    with torch.autocast("cpu", torch.bfloat16):
        norm(torch.nn.Linear(8, 8)(torch.randn(2, 8))).float().sum().backward()
    assert norm.weight.grad.dtype == torch.float32


@pytest.mark.parametrize("reduction", ["mean", "none"])
def test_losses_under_autocast_have_32_bits(reduction):
    layer, x, target = torch.nn.Linear(8, 50), torch.randn(16, 8), torch.randint(50, (16,))
    theirs = torch.nn.CrossEntropyLoss(reduction=reduction)
    ours = tessera.torch.CrossEntropyLoss(reduction=reduction)
    last = tessera.torch.LinearCrossEntropyLoss(8, 50, reduction=reduction)
    with torch.autocast("cpu", torch.bfloat16):
        logits = layer(x)
        made, want = ours(logits, target), theirs(logits, target)
        assert last(logits[:, :8], target).dtype == torch.float32
    assert made.dtype == want.dtype == torch.float32
    torch.testing.assert_close(made, want, rtol=1e-2, atol=1e-2)
    assert ours(logits, target).dtype == torch.bfloat16


def test_an_approximation_that_there_is_none_of():
    with pytest.raises(tessera.ArgumentError, match="`none` or `tanh`"):
        tessera.torch.GELU("foo")(torch.ones(3))


@pytest.mark.parametrize("integer", [torch.int64, torch.uint8, torch.int16])
def test_indices_of_any_width(integer):
    logits, target, table = torch.randn(5, 9), torch.randint(9, (5,)), torch.randn(9, 4)
    want = torch.nn.functional.cross_entropy(logits, target, reduction="none")
    for call in (functional.cross_entropy, tessera.ops.cross_entropy):
        torch.testing.assert_close(call(logits, target.to(integer), ignore_index=-100)[0], want)
    for call in (functional.embedding, tessera.ops.embedding):
        torch.testing.assert_close(call(table, target.to(integer)), table[target])
    assert functional.embedding(table.to("meta"), target.to("meta", integer)).shape == (5, 4)
    mask = logits[0] > 0
    for call in (functional.masked_select, tessera.ops.masked_select):
        values, count = call(logits[0], mask)
        torch.testing.assert_close(values[: int(count)], logits[0][mask])
    given = logits.clone().requires_grad_()
    functional.cross_entropy(given, target.to(integer), ignore_index=-100)[0].sum().backward()
    want = logits.clone().requires_grad_()
    torch.nn.functional.cross_entropy(want, target, reduction="sum").backward()
    torch.testing.assert_close(given.grad, want.grad)


def test_a_product_of_no_batches():
    for call in (functional.gemm, tessera.ops.gemm):
        for shape in ((0, 2, 3), (2, 0, 3), (2, 2, 0)):
            a, b = torch.ones(shape), torch.ones(shape[0], shape[2], 4)
            assert torch.equal(call(a, b), a @ b)


def test_swap_keeps_objects_and_says_what_it_did():
    model = torch.nn.Sequential(
        torch.nn.LayerNorm(8),
        torch.nn.SiLU(inplace=True),
        torch.nn.Sequential(torch.nn.RMSNorm(8), torch.nn.MultiheadAttention(8, 2, dropout=0.1)),
        torch.nn.Linear(8, 8),
    )
    weight, names = model[0].weight, list(model.state_dict())
    seen = []
    model[0].register_forward_hook(lambda *_: seen.append(1))
    said = tessera.torch.swap(model)
    assert said.replaced == {"0": "LayerNorm", "2.0": "RMSNorm"}
    assert said.kept == {"1": "it changes what it is given", "2.1": "0.1 of the weights are dropped"}
    assert "2.1 is kept: 0.1 of the weights are dropped" in str(said)
    assert type(model[0]) is tessera.torch.LayerNorm and model[0].weight is weight and list(model.state_dict()) == names
    assert type(model[1]) is torch.nn.SiLU
    model[0](torch.randn(2, 8))
    assert seen == [1]
    assert tessera.torch.swap(model).replaced == {}
    alone = torch.nn.GELU()
    assert "(the model): GELU" in str(tessera.torch.swap(alone)) and type(alone) is tessera.torch.GELU


def test_swap_of_pytorchs_encoder():
    torch.manual_seed(0)
    theirs = torch.nn.TransformerEncoderLayer(32, 2, 48, dropout=0.0, batch_first=True, activation=torch.nn.GELU())
    ours = copy.deepcopy(theirs)
    assert set(tessera.torch.swap(ours).replaced) == {"self_attn", "norm1", "norm2", "activation"}
    x, mask = torch.randn(2, 5, 32), torch.nn.Transformer.generate_square_subsequent_mask(5)
    torch.testing.assert_close(ours(x, mask, is_causal=True), theirs(x, mask, is_causal=True), rtol=1e-4, atol=1e-5)


@pytest.fixture(scope="module")
def transformer():
    """The example, as a module."""
    path = Path(__file__).parents[2] / "examples" / "transformer.py"
    spec = importlib.util.spec_from_file_location("transformer_example", path)
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize("compiled", [None, "aot_eager"])
def test_a_transformer_trains_to_the_same_loss(transformer, compiled, monkeypatch):
    torch.manual_seed(0)
    called = set()
    real = tessera.ops.call
    monkeypatch.setattr(tessera.ops, "call", lambda name, *args, **keywords: called.add(name) or real(name, *args, **keywords))
    plain = transformer.Task(transformer.Transformer(vocabulary=16, width=32, heads=2, depth=1, longest=12))
    swapped = copy.deepcopy(plain)
    assert len(tessera.torch.swap(swapped).replaced) == 6
    expected = transformer.train(plain, steps=6, batch=4, length=12)
    assert not called
    found = transformer.train(swapped, steps=6, batch=4, length=12, compiled=compiled)
    forward = {"layer_norm", "attention_lse", "rms_norm", "silu", "cross_entropy"}
    assert called == forward | {ENTRIES[name].gradient for name in forward}
    assert expected[-1] < expected[0]
    assert found == pytest.approx(expected, abs=1e-4)


def test_the_emulator_finds_nothing_wrong():
    x, weight = numbers(3, 8, dtype=torch.float32), numbers(8, dtype=torch.float32)
    with tessera.use("emu", sanitize="all"):
        functional.rms_norm(x, weight, eps=1e-6).cos().sum().backward()
    found = x.grad.clone()
    x.grad = None
    torch.nn.functional.rms_norm(x, (8,), weight, 1e-6).cos().sum().backward()
    torch.testing.assert_close(found, x.grad, rtol=1e-4, atol=1e-5)


def test_the_epsilon_of_narrow_types_is_that_of_what_is_computed_in():
    x = (torch.randn(4, 8) * 1e-2).bfloat16()
    own, there = tessera.torch.RMSNorm(8).bfloat16(), torch.nn.RMSNorm(8).bfloat16()
    assert torch.allclose(own(x).float(), there(x).float(), atol=0.05)
