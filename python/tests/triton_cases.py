"""What the kernels of ``triton_kernels`` are run on, and what NumPy says of it.

A case is a function that gives the kernel, the grid, its arguments by position, its arguments by name, and rows of an array that it writes,
what should be in it, and how far off an element may be.
"""

import ml_dtypes
import numpy as np
import triton

import tessera.emu as emu
import triton_kernels as kernels

CASES = []


def case(function):
    """Adds a case."""
    CASES.append(function)
    return function


def randn(*shape, dtype=np.float32, seed=0):
    """Numbers of a normal distribution, by a seed."""
    return np.random.default_rng(seed).standard_normal(shape).astype(dtype)


def softmax_of(x):
    """Softmax along the last axis."""
    top = np.exp(x - x.max(-1, keepdims=True))
    return top / top.sum(-1, keepdims=True)


@case
def vector_add():
    x, y, out = randn(1000), randn(1000, seed=1), np.empty(1000, np.float32)
    return kernels.vector_add, (4,), (x, y, emu.Unwritten(out), 1000), {"BLOCK": 256}, [(out, x + y, 0)]


@case
def fused_softmax():
    x = randn(7, 90)
    out = np.empty_like(x)
    return kernels.softmax, (3,), (x, emu.Unwritten(out), 90, 7, 90), {"BLOCK": 128}, [(out, softmax_of(x), 1e-6)]


def products(M, N, K, leaky, **tiles):
    """A product of halves by tiles of some size."""
    a, b = randn(M, K, dtype=np.float16), randn(K, N, dtype=np.float16, seed=1)
    out = np.empty((M, N), np.float16)
    expected = a.astype(np.float32) @ b.astype(np.float32)
    expected = np.where(expected >= 0, expected, 0.01 * expected) if leaky else expected
    grid = lambda meta: (triton.cdiv(M, meta["BM"]) * triton.cdiv(N, meta["BN"]),)  # noqa: E731
    return kernels.matmul, grid, (a, b, emu.Unwritten(out), M, N, K, leaky), {"GROUP": 2, **tiles}, [(out, expected, 0.03)]


@case
def matmul_small_tiles():
    return products(70, 48, 40, False, BM=16, BN=16, BK=16, num_warps=1, num_stages=2)


@case
def matmul_pipelined():
    return products(64, 64, 128, True, BM=32, BN=32, BK=32, num_warps=4, num_stages=4)


@case
def matmul_warpgroup():
    return products(64, 64, 128, False, BM=64, BN=64, BK=64, num_warps=4, num_stages=3)


@case
def matmul_batched():
    a, b = randn(2, 20, 24), randn(2, 24, 18, seed=1)
    out = np.empty((2, 20, 18), np.float32)
    return kernels.batched_matmul, (2, 2, 2), (a, b, emu.Unwritten(out), 20, 18, 24), {"BM": 16, "BN": 16, "BK": 16}, [(out, a @ b, 1e-4)]


@case
def matmul_split_k():
    a, b = randn(16, 64, dtype=np.float16), randn(64, 16, dtype=np.float16, seed=1)
    out = np.zeros((16, 16), np.float32)
    expected = a.astype(np.float32) @ b.astype(np.float32)
    return kernels.split_k_matmul, (2,), (a, b, out, 16, 16, 64), {"BM": 16, "BN": 16, "BK": 32}, [(out, expected, 1e-3)]


@case
def matmul_persistent():
    a, b = randn(64, 40, dtype=np.float16), randn(40, 96, dtype=np.float16, seed=1)
    out = np.empty((64, 96), np.float16)
    expected = a.astype(np.float32) @ b.astype(np.float32)
    return kernels.persistent_matmul, (4,), (a, b, emu.Unwritten(out), 64, 96, 40), {"BM": 32, "BN": 32, "BK": 16}, [(out, expected, 0.03)]


@case
def matmul_by_descriptors():
    a, b = randn(64, 96, dtype=np.float16), randn(96, 64, dtype=np.float16, seed=1)
    out = np.zeros((64, 64), np.float16)
    tiles = {"BM": 64, "BN": 64, "BK": 32}
    given = (emu.tensor_descriptor(a, [64, 32]), emu.tensor_descriptor(b, [32, 64]), emu.tensor_descriptor(out, [64, 64]))
    expected = a.astype(np.float32) @ b.astype(np.float32)
    return kernels.descriptor_matmul, (1, 1), (*given, 64, 64, 96), tiles, [(out, expected, 0.03)]


def of_descriptors(kernel, M, N, K, **keywords):
    """A product by one program, whose tiles the copy engine moves."""
    a, b = randn(M, K, dtype=np.float16), randn(K, N, dtype=np.float16, seed=1)
    out = np.zeros((M, N), np.float16)
    given = (emu.tensor_descriptor(a, [M, 64]), emu.tensor_descriptor(b, [64, N]), emu.tensor_descriptor(out, [M, N]))
    expected = a.astype(np.float32) @ b.astype(np.float32)
    return kernel, (1, 1), (*given, M, N, K), {"BM": M, "BN": N, "BK": 64, **keywords}, [(out, expected, 0.05)]


@case
def matmul_by_a_cluster():
    return of_descriptors(kernels.descriptor_matmul, 128, 64, 128, num_ctas=2)


@case
def matmul_by_warps_of_two_kinds():
    return of_descriptors(kernels.specialised_matmul, 64, 64, 256, num_warps=4)


@case
def descriptors_of_the_device():
    x = randn(40, 64)
    out = np.zeros_like(x)
    return kernels.device_descriptor_copy, (2, 2), (x, out, 40, 64), {"BM": 32, "BN": 32}, [(out, 2 * x, 0)]


@case
def matmul_grouped():
    sizes = [(32, 32, 32), (40, 24, 16), (16, 48, 40)]
    left = [randn(m, k, dtype=np.float16, seed=m) for m, n, k in sizes]
    right = [randn(k, n, dtype=np.float16, seed=n) for m, n, k in sizes]
    out = [np.zeros((m, n), np.float16) for m, n, k in sizes]
    rows = [(c, a.astype(np.float32) @ b.astype(np.float32), 0.03) for a, b, c in zip(left, right, out, strict=True)]
    args = (left, right, out, np.array(sizes, np.int32), 3)
    return kernels.grouped_matmul, (3,), args, {"BM": 16, "BN": 16, "BK": 16}, rows


@case
def matmul_block_scaled():
    M, N, K = 32, 32, 64
    a, b = randn(M, K).astype(ml_dtypes.float8_e4m3fn), randn(K, N, seed=1).astype(ml_dtypes.float8_e4m3fn)
    draw = np.random.default_rng(2)
    a_scale, b_scale = draw.integers(125, 130, (M, K // 32), np.uint8), draw.integers(125, 130, (N, K // 32), np.uint8)
    out = np.empty((M, N), np.float32)
    spread = lambda scale: np.repeat(np.exp2(scale.astype(np.float32) - 127), 32, axis=1)  # noqa: E731
    expected = (a.astype(np.float32) * spread(a_scale)) @ (b.astype(np.float32) * spread(b_scale).T)
    return kernels.scaled_matmul, (1,), (a, a_scale, b, b_scale, emu.Unwritten(out), M, N, K), {}, [(out, expected, 1e-2)]


@case
def attention_forward():
    q, k, v = (randn(2, 50, 32, dtype=np.float16, seed=seed) for seed in range(3))
    out = np.empty_like(q)
    score = np.einsum("hid,hjd->hij", q.astype(np.float32), k.astype(np.float32)) / np.sqrt(32)
    expected = softmax_of(score) @ v.astype(np.float32)
    scale = float(np.log2(np.e) / np.sqrt(32))
    return kernels.attention, (2, 2), (q, k, v, emu.Unwritten(out), 50, scale, False), {"BM": 32, "BN": 32, "D": 32}, [(out, expected, 0.01)]


@case
def attention_causal():
    q, k, v = (randn(1, 64, 16, dtype=np.float16, seed=seed) for seed in range(3))
    out = np.empty_like(q)
    score = np.einsum("hid,hjd->hij", q.astype(np.float32), k.astype(np.float32)) / 4
    score = np.where(np.tril(np.ones((64, 64), bool)), score, -np.inf)
    expected = softmax_of(score) @ v.astype(np.float32)
    scale = float(np.log2(np.e) / 4)
    return kernels.attention, (4, 1), (q, k, v, emu.Unwritten(out), 64, scale, True), {"BM": 16, "BN": 16, "D": 16}, [(out, expected, 0.01)]


@case
def layer_norm_forward():
    x, weight, bias = randn(3, 300), randn(300, seed=1), randn(300, seed=2)
    out, mean, rstd = np.empty_like(x), np.empty(3, np.float32), np.empty(3, np.float32)
    middle, scale = x.mean(1, keepdims=True), 1 / np.sqrt(x.var(1, keepdims=True) + 1e-5)
    rows = [(out, (x - middle) * scale * weight + bias, 1e-5), (mean, middle[:, 0], 1e-6), (rstd, scale[:, 0], 1e-5)]
    args = (x, *map(emu.Unwritten, (out,)), weight, bias, emu.Unwritten(mean), emu.Unwritten(rstd), 300, 1e-5)
    return kernels.layer_norm, (3,), args, {"BLOCK": 128}, rows


@case
def layer_norm_backward():
    rows, columns, groups = 6, 100, 2
    x, dout, weight = randn(rows, columns), randn(rows, columns, seed=1), randn(columns, seed=2)
    mean, rstd = x.mean(1), 1 / np.sqrt(x.var(1) + 1e-5)
    dx = np.empty_like(x)
    dweight, dbias = np.empty((groups, columns), np.float32), np.empty((groups, columns), np.float32)
    lock = np.zeros(2 * groups, np.int32)
    normal, scaled = (x - mean[:, None]) * rstd[:, None], dout * weight
    expected = (scaled - normal * (normal * scaled).mean(1, keepdims=True) - scaled.mean(1, keepdims=True)) * rstd[:, None]
    parts = [(dweight, (dout * normal).reshape(-1, groups, columns).sum(0), 1e-5), (dbias, dout.reshape(-1, groups, columns).sum(0), 1e-5)]
    args = (emu.Unwritten(dx), dout, emu.Unwritten(dweight), emu.Unwritten(dbias), x, weight, mean, rstd, lock, columns)
    return kernels.layer_norm_backward, (rows,), args, {"GROUPS": groups, "BLOCK": 128}, [(dx, expected, 1e-5), *parts]


@case
def sums_of_columns():
    x = randn(50, 40)
    out = np.empty(40, np.float32)
    return kernels.column_sums, (2,), (x, emu.Unwritten(out), 50, 40), {"BM": 32, "BN": 32}, [(out, x.sum(0), 1e-5)]


@case
def dropout():
    x = randn(600) + 10
    out, again = np.empty_like(x), np.empty_like(x)
    args = (emu.Unwritten(out), 600, 0.4, 17)
    emu.triton(kernels.dropout, (3,), x, emu.Unwritten(again), 600, 0.4, 17, BLOCK=256)
    kept = again != 0
    assert 300 < kept.sum() < 420 and np.allclose(again[kept], x[kept] / 0.6)
    return kernels.dropout, (3,), (x, *args), {"BLOCK": 256}, [(out, again, 0)]


@case
def external_function():
    x = np.linspace(-1, 1, 200, dtype=np.float32)
    out = np.empty_like(x)
    return kernels.arc_sine, (2,), (x, emu.Unwritten(out), 200), {"BLOCK": 128}, [(out, np.arcsin(x), 1e-5)]


@case
def sums_of_rows():
    x = randn(5, 700)
    out = np.empty(5, np.float32)
    return kernels.row_sums, (5,), (x, emu.Unwritten(out), 700), {"BLOCK": 1024}, [(out, x.sum(1), 1e-4)]


@case
def welford_variance():
    x = randn(4, 200)
    mean, var = np.empty(4, np.float32), np.empty(4, np.float32)
    args = (x, emu.Unwritten(mean), emu.Unwritten(var), 200)
    return kernels.variance, (4,), args, {"BLOCK": 256}, [(mean, x.mean(1), 1e-5), (var, x.var(1), 1e-4)]


@case
def atomics():
    x = np.random.default_rng(0).integers(-100, 100, 1000, np.int32)
    total, largest = np.zeros(1, np.int32), np.zeros(1, np.int32)
    return kernels.grid_sum, (4,), (x, total, largest, 1000), {"BLOCK": 256}, [(total, x.sum(), 0), (largest, x.max(), 0)]


@case
def cumulative_sum():
    x = randn(2, 500)
    out = np.empty_like(x)
    return kernels.cumulative_sum, (2,), (x, emu.Unwritten(out), 500), {"BLOCK": 512}, [(out, x.cumsum(1), 1e-4)]


@case
def recurrence():
    decay, x = np.random.default_rng(0).random((2, 256), np.float32), randn(2, 256)
    out, state = np.empty_like(x), np.zeros(2, np.float32)
    expected = np.empty_like(x)
    for at in range(256):
        state = state * decay[:, at] + x[:, at]
        expected[:, at] = state
    return kernels.linear_recurrence, (2,), (decay, x, emu.Unwritten(out)), {"BLOCK": 256}, [(out, expected, 1e-5)]


@case
def arg_max():
    x = randn(4, 300)
    out = np.empty(4, np.int32)
    return kernels.arg_max, (4,), (x, emu.Unwritten(out), 300), {"BLOCK": 512}, [(out, x.argmax(1), 0)]


@case
def sort():
    x = randn(2, 128)
    out = np.empty_like(x)
    return kernels.sort_rows, (2,), (x, emu.Unwritten(out)), {"BLOCK": 128, "DESCENDING": True}, [(out, -np.sort(-x, axis=1), 0)]


@case
def embedding():
    table, index = randn(20, 48), np.array([3, 19, 0, 3, 7], np.int64)
    out = np.empty((5, 48), np.float32)
    return kernels.embedding, (5,), (table, index, emu.Unwritten(out), 48), {"BLOCK": 64}, [(out, table[index], 0)]


@case
def gather():
    x = randn(32, 16)
    index = np.random.default_rng(1).integers(0, 32, (32, 16), np.int32)
    out = np.empty_like(x)
    return kernels.permute_rows, (1,), (x, index, emu.Unwritten(out)), {"ROWS": 32, "COLUMNS": 16}, [(out, np.take_along_axis(x, index, 0), 0)]


@case
def conv1d():
    x, weight = randn(3, 150), randn(3, 4, seed=1)
    out = np.empty_like(x)
    expected = np.stack([np.convolve(row, taps[::-1])[:150] for row, taps in zip(x, weight, strict=True)])
    return kernels.conv1d, (2, 3), (x, weight, emu.Unwritten(out), 150, 3), {"WIDTH": 4, "BLOCK": 128}, [(out, expected, 1e-5)]


@case
def cross_entropy():
    logits, target = randn(4, 100), np.array([0, 99, 50, 7], np.int64)
    loss, grad = np.empty(4, np.float32), np.empty_like(logits)
    likely = softmax_of(logits)
    rows = [(loss, -np.log(likely[np.arange(4), target]), 1e-5), (grad, likely - np.eye(100)[target], 1e-5)]
    return kernels.cross_entropy, (4,), (logits, target, emu.Unwritten(loss), emu.Unwritten(grad), 100), {"BLOCK": 128}, rows


@case
def rms_norm():
    x, weight = randn(3, 96).astype(ml_dtypes.bfloat16), randn(96, seed=1).astype(ml_dtypes.bfloat16)
    out = np.empty_like(x)
    wide = x.astype(np.float32)
    expected = wide / np.sqrt((wide * wide).mean(1, keepdims=True) + 1e-6) * weight.astype(np.float32)
    return kernels.rms_norm, (3,), (x, weight, emu.Unwritten(out), 96, 1e-6), {"BLOCK": 128}, [(out, expected, 0.03)]


@case
def rope():
    x, angles = randn(4, 2, 64), np.random.default_rng(1).random((4, 32), np.float32) * 6
    out = np.empty_like(x)
    first, second, angle = x[..., :32], x[..., 32:], angles[:, None]
    expected = np.concatenate((first * np.cos(angle) - second * np.sin(angle), second * np.cos(angle) + first * np.sin(angle)), axis=-1)
    return kernels.rope, (8,), (x, angles, emu.Unwritten(out), 2), {"HALF": 32, "num_warps": 1}, [(out, expected, 1e-5)]


@case
def swiglu():
    gate, up = randn(500, dtype=np.float16), randn(500, dtype=np.float16, seed=1)
    out = np.empty_like(gate)
    wide = gate.astype(np.float32)
    return kernels.swiglu, (4,), (gate, up, emu.Unwritten(out), 500), {"BLOCK": 128}, [(out, wide / (1 + np.exp(-wide)) * up, 0.01)]


@case
def transpose():
    x = randn(40, 50)
    out = np.empty((50, 40), np.float32)
    return kernels.transpose, (2, 2), (x, emu.Unwritten(out), 40, 50), {"BM": 32, "BN": 32}, [(out, x.T, 0)]


@case
def histogram():
    x = np.random.default_rng(0).integers(0, 16, 600, np.int32)
    out = np.zeros(16, np.int32)
    return kernels.histogram, (3,), (x, out, 600), {"BINS": 16, "BLOCK": 256}, [(out, np.bincount(x, minlength=16), 0)]


@case
def interleave():
    x, y, out = randn(128), randn(128, seed=1), np.empty(256, np.float32)
    return kernels.interleave, (1,), (x, y, emu.Unwritten(out)), {"BLOCK": 128}, [(out, np.stack((x, y[::-1]), 1).ravel(), 0)]


@case
def quantise():
    x = randn(3, 100)
    out, scale = np.empty((3, 100), np.int8), np.empty(3, np.float32)
    step = np.abs(x).max(1, keepdims=True) / np.float32(127)
    rows = [(scale, step[:, 0], 1e-6), (out, np.rint(x / step), 1)]
    return kernels.quantise_rows, (3,), (x, emu.Unwritten(out), emu.Unwritten(scale), 100), {"BLOCK": 128}, rows
