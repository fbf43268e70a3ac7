"""Block programs as compiled for GPUs, on the emulator with all sanitizers: what they make of their arrays is what NumPy makes."""

import ml_dtypes
import numpy as np
import pytest

import tessera
import tessera.tile as ct

Int = ct.Constant[int]
ZERO = ct.PaddingMode.ZERO
TARGETS = ["sm_80", "sm_90a"]


def launch(target, grid, kernel, *args):
    with tessera.use(device="emu", target=target, sanitize="all"):
        ct.launch(None, grid, kernel, args)


@ct.kernel
def skipping(x, z, y, n: int):
    a = ct.load(x, (0, 0), (32, 128))
    for i in range(n):
        if i == 2:
            continue
        a = ct.load(z, (i, 0), (32, 128))
    ct.store(y, (0, 0), a)


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("n, last", [(0, -1), (3, 1), (5, 4)])
def test_a_large_tile_goes_round_a_loop_with_continue(target, n, last):
    x, y = np.full((32, 128), -1, np.float32), np.zeros((32, 128), np.float32)
    z = np.repeat(np.arange(5, dtype=np.float32), 32)[:, None] + np.zeros(128, np.float32)
    launch(target, (1,), skipping, x, z, y, n)
    assert (y == last).all()


@ct.kernel
def convolution(X, W, Y, R: Int, S: Int, st: int, pad: int, TM: Int, TN: Int, TC: Int):
    N, P, Q, Kc = Y.shape
    pix = ct.bid(0) * TM + ct.arange(TM, dtype=ct.int32)
    n, p, q = pix // (P * Q), pix % (P * Q) // Q, pix % Q
    acc = ct.zeros((TM, TN), ct.float32)
    for r in range(R):
        for s in range(S):
            h, w = p * st + r - pad, q * st + s - pad
            for c in range(ct.cdiv(X.shape[3], TC)):
                cc = c * TC + ct.arange(TC, dtype=ct.int32)
                a = ct.gather(X, (n[:, None], h[:, None], w[:, None], cc[None, :]), padding_value=0)
                b = ct.load(W, (r, s, c, ct.bid(1)), (1, 1, TC, TN), padding_mode=ZERO).reshape((TC, TN))
                acc = ct.mma(a, b, acc)
    k = ct.bid(1) * TN + ct.arange(TN, dtype=ct.int32)
    ct.scatter(Y, (n[:, None], p[:, None], q[:, None], k[None, :]), acc.astype(Y.dtype))


@pytest.mark.parametrize("target", TARGETS)
def test_a_product_with_a_gathered_factor_in_three_loops(target):
    bf16 = ml_dtypes.bfloat16
    X, W, Y = np.ones((1, 8, 8, 64), bf16), np.ones((3, 3, 64, 128), bf16), np.zeros((1, 8, 8, 128), bf16)
    launch(target, (1, 1), convolution, X, W, Y, 3, 3, 1, 1, 64, 128, 64)
    inside = np.array([2] + [3] * 6 + [2])
    assert (Y[0].astype(np.float32) == 64.0 * (inside[:, None] * inside)[:, :, None]).all()


@ct.kernel
def batched(A, B, C, TB: Int, T: Int, n: int):
    acc = ct.zeros((TB, T, T), ct.float32)
    for k in range(n):
        acc = ct.mma(ct.load(A, (0, 0, k), (TB, T, T)), ct.load(B, (0, k, 0), (TB, T, T)), acc)
    ct.store(C, (0, 0, 0), acc)


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("batch, extent", [(2, 16), (4, 32)])
def test_products_of_several_matrices_in_float32(target, batch, extent):
    random = np.random.default_rng(batch)
    A = random.integers(-3, 4, (batch, extent, 3 * extent)).astype(np.float32)
    B = random.integers(-3, 4, (batch, 3 * extent, extent)).astype(np.float32)
    C = np.zeros((batch, extent, extent), np.float32)
    launch(target, (1,), batched, A, B, C, batch, extent, 3)
    assert (C == A @ B).all()


@ct.kernel
def summed_beside(x0, x1, y0, y1, n: int):
    acc = ct.zeros((128, 256), ct.float32)
    sums = ct.zeros((128,), ct.float32)
    c = ct.arange(256, dtype=ct.int32)
    for k in range(n):
        a = ct.load(x0, (0, k), (128, 64)).astype(ct.float16)
        b = ct.gather(x1, ((k * 64 + ct.arange(64, dtype=ct.int32))[:, None], c[None, :]))
        acc = ct.mma(a, b, acc)
        sums += ct.sum(a.astype(ct.float32), axis=1)
    ct.store(y0, (0,), sums)
    ct.store(y1, (0, 0), acc)


@pytest.mark.parametrize("target", TARGETS)
def test_a_factor_that_is_converted_and_summed_is_in_order(target):
    random = np.random.default_rng(1)
    x0, x1 = random.integers(-3, 4, (128, 192)).astype(np.int8), random.integers(-3, 4, (192, 256)).astype(np.float16)
    y0, y1 = np.zeros(128, np.float32), np.zeros((128, 256), np.float32)
    launch(target, (1, 1), summed_beside, x0, x1, y0, y1, 3)
    assert (y0 == x0.sum(axis=1)).all() and (y1 == x0.astype(np.float32) @ x1.astype(np.float32)).all()


@ct.kernel
def decode(Q, K, V, O, scale: float, G: Int, TN: Int, D: Int):
    b = ct.bid(0)
    q = ct.load(Q, (b, 0, 0), (1, G, D)).reshape((G, D))
    m, l = ct.full((G, 1), -np.inf, ct.float32), ct.zeros((G, 1), ct.float32)
    acc = ct.zeros((G, D), ct.float32)
    for j in range(ct.cdiv(K.shape[1], TN)):
        k = ct.load(K, (b, j, 0), (1, TN, D), padding_mode=ZERO).reshape((TN, D))
        s = ct.mma(q, ct.transpose(k), ct.zeros((G, TN), ct.float32)) * scale
        s = ct.where(j * TN + ct.arange(TN, dtype=ct.int32)[None, :] < K.shape[1], s, -np.inf)
        mn = ct.maximum(m, ct.max(s, axis=1, keepdims=True))
        p, a = ct.exp(s - mn), ct.exp(m - mn)
        l = l * a + ct.sum(p, axis=1, keepdims=True)
        v = ct.load(V, (b, j, 0), (1, TN, D), padding_mode=ZERO).reshape((TN, D))
        acc, m = ct.mma(p.astype(Q.dtype), v, acc * a), mn
    ct.store(O, (b, 0, 0), (acc / l).astype(O.dtype).reshape((1, G, D)))


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("rows", [1, 2, 4, 8])
def test_few_rows_of_queries(target, rows):
    random = np.random.default_rng(rows)
    Q, K, V = (random.standard_normal((2, n, 64)).astype(np.float16) for n in (rows, 150, 150))
    O = np.zeros_like(Q)
    launch(target, (2,), decode, Q, K, V, O, 0.125, rows, 64, 64)
    scores = np.einsum("bgd,bnd->bgn", Q.astype(np.float64), K.astype(np.float64)) * 0.125
    weights = np.exp(scores - scores.max(-1, keepdims=True))
    wanted = np.einsum("bgn,bnd->bgd", weights / weights.sum(-1, keepdims=True), V.astype(np.float64))
    assert np.abs(O - wanted).max() < 4e-3


@ct.kernel
def narrow_products(A, B, C, M: Int, N: Int, K: Int):
    acc = ct.mma(ct.load(A, (0, 0), (M, K)), ct.load(B, (0, 0), (K, N)), ct.zeros((M, N), ct.float32))
    ct.store(C, (0, 0), acc)


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("extents", [(16, 8, 4), (4, 2, 8), (8, 4, 16), (16, 16, 8), (64, 4, 32), (1, 8, 16)])
def test_products_smaller_than_an_instruction(target, extents):
    M, N, K = extents
    random = np.random.default_rng(M)
    A, B = random.integers(-4, 5, (M, K)).astype(np.float16), random.integers(-4, 5, (K, N)).astype(np.float16)
    C = np.zeros((M, N), np.float32)
    launch(target, (1,), narrow_products, A, B, C, M, N, K)
    assert (C == A.astype(np.float32) @ B.astype(np.float32)).all()
