"""Test kernels in the manner of those who use the language: routes, sorted rows, rotations, products of two kinds in one loop."""
import math

import cuda.tile as ct


# args: X: f32[3, 64], Y: f32[3, 64], N = 64, STAGES = 6; grid: 3
@ct.kernel
def bitonic_sort(X, Y, N: ct.Constant[int], STAGES: ct.Constant[int]):
    r = ct.bid(0)
    x = ct.load(X, (r, 0), (1, N)).reshape((N,))
    number = ct.arange(N, dtype=ct.int32)
    for stage in ct.static_iter(range(1, STAGES + 1)):
        for step in ct.static_iter(range(stage - 1, -1, -1)):
            D = 1 << step
            pairs = ct.reshape(x, (N // (2 * D), 2, D))
            a = ct.extract(pairs, (0, 0, 0), (N // (2 * D), 1, D))
            b = ct.extract(pairs, (0, 1, 0), (N // (2 * D), 1, D))
            up = ct.reshape((number >> stage) & 1, (N // (2 * D), 2, D))
            up = ct.extract(up, (0, 0, 0), (N // (2 * D), 1, D)) == 0
            low, high = ct.minimum(a, b), ct.maximum(a, b)
            x = ct.reshape(ct.cat((ct.where(up, low, high), ct.where(up, high, low)), 1), (N,))
    ct.store(Y, (r, 0), x.reshape((1, N)))


# args: X: bf16[6, 3, 64], cos: f32[6, 32], sin: f32[6, 32], Y: bf16[6, 3, 64], D = 64; grid: 6, 3
@ct.kernel
def rope(X, cos, sin, Y, D: ct.Constant[int]):
    s, h = ct.bid(0), ct.bid(1)
    half = D // 2
    x1 = ct.load(X, (s, h, 0), (1, 1, half)).reshape((half,)).astype(ct.float32)
    x2 = ct.load(X, (s, h, 1), (1, 1, half)).reshape((half,)).astype(ct.float32)
    c = ct.load(cos, (s, 0), (1, half)).reshape((half,))
    n = ct.load(sin, (s, 0), (1, half)).reshape((half,))
    y = ct.cat((x1 * c - x2 * n, x2 * c + x1 * n), 0)
    ct.store(Y, (s, h, 0), y.astype(Y.dtype).reshape((1, 1, D)))


# args: logits: f32[50, 16], ids: i32[50, 2], counts: i32[16], E = 16, TOPK = 2, T = 32; grid: 2
@ct.kernel
def route(logits, ids, counts, E: ct.Constant[int], TOPK: ct.Constant[int], T: ct.Constant[int]):
    b = ct.bid(0)
    x = ct.load(logits, (b, 0), (T, E), padding_mode=ct.PaddingMode.NEG_INF)
    rows = b * T + ct.arange(T, dtype=ct.int32)
    for k in ct.static_iter(range(TOPK)):
        best = ct.argmax(x, axis=1).astype(ct.int32)
        ct.scatter(ids, (rows, k), best)
        ct.atomic_add(counts, ct.where(rows < logits.shape[0], best, E), 1)
        x = ct.where(ct.arange(E, dtype=ct.int32)[None, :] == best[:, None], -math.inf, x)


# args: X: f16[70, 64], G: f16[64, 40], U: f16[64, 40], Y: f32[70, 40]; grid: 2; near: 1e-1
@ct.kernel
def gated(X, G, U, Y):
    m = ct.bid(0)
    zero = ct.PaddingMode.ZERO
    g, u = ct.zeros((64, 64), ct.float32), ct.zeros((64, 64), ct.float32)
    for k in range(2):
        x = ct.load(X, (m, k), (64, 32), padding_mode=zero)
        x = ct.where(ct.abs(x) < 5, x, 0)
        a, b = ct.load(G, (k, 0), (32, 64), padding_mode=zero), ct.load(U, (k, 0), (32, 64), padding_mode=zero)
        g = ct.mma(x, ct.where(ct.abs(a) < 5, a, 0), g)
        u = ct.mma(x, ct.where(ct.abs(b) < 5, b, 0), u)
    ct.store(Y, (m, 0), g / (1 + ct.exp(-g)) * u)


# args: A: f32[130, 70], B: f32[70, 150], C: f32[130, 150]; grid: 2, 2; near: 1e-1
@ct.kernel
def cast_to_tf32(A, B, C):
    i, j = ct.bid(0), ct.bid(1)
    acc = ct.zeros((128, 128), ct.float32)
    for k in range(ct.cdiv(A.shape[1], 64)):
        a = ct.load(A, (i, k), (128, 64), padding_mode=ct.PaddingMode.ZERO).astype(ct.tfloat32)
        b = ct.load(B, (k, j), (64, 128), padding_mode=ct.PaddingMode.ZERO).astype(ct.tfloat32)
        acc = ct.mma(a, b, acc)
    ct.store(C, (i, j), acc)


# args: X: f32[8, 16], Y: f32[16, 8], n = 1; grid: 1
@ct.kernel
def put_into_transposed(X, Y, n: int):
    x = ct.load(X, (0, 0), (8, 16)).transpose()
    ct.store(Y, (0, 0), ct.insert(x, (0, n), ct.full((16, 4), 1.0, ct.float32)))


# args: X: f32[128, 4], Y: f32[4, 128]; grid: 1
@ct.kernel
def few_lines(X, Y):
    ct.store(Y, (0, 0), ct.load(X, (0, 0), (128, 4)).transpose())
