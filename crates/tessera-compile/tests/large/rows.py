"""Rows that no thread can hold a share of, and what is done with them."""
import math

import cuda.tile as ct

Z = ct.PaddingMode.ZERO


# args: X: f32[2, 16000], W: f32[16000], DY: f32[2, 16000], DX: f32[2, 16000], DW: f32[16000], DB: f32[16000], N = 16384; grid: 1; near: 2e-3
# args: X: bf16[2, 8000], W: bf16[8000], DY: bf16[2, 8000], DX: bf16[2, 8000], DW: f32[8000], DB: f32[8000], N = 8192; grid: 1; near: 2e-2
# args: X: f32[2, 32000], W: f32[32000], DY: f32[2, 32000], DX: f32[2, 32000], DW: f32[32000], DB: f32[32000], N = 32768; grid: 1; near: 2e-3
# args: X: bf16[2, 65000], W: bf16[65000], DY: bf16[2, 65000], DX: bf16[2, 65000], DW: f32[65000], DB: f32[65000], N = 65536; grid: 1; near: 2e-2
@ct.kernel
def layer_norm_backward(X, W, DY, DX, DW, DB, N: ct.Constant[int]):
    w = ct.load(W, (0,), (N,), padding_mode=Z).astype(ct.float32)[None, :]
    dw, db = ct.zeros((1, N), ct.float32), ct.zeros((1, N), ct.float32)
    n = X.shape[1]
    inside = ct.arange(N, dtype=ct.int32)[None, :] < n
    for row in range(ct.bid(0), X.shape[0], ct.num_blocks(0)):
        x = ct.load(X, (row, 0), (1, N), padding_mode=Z).astype(ct.float32)
        dy = ct.load(DY, (row, 0), (1, N), padding_mode=Z).astype(ct.float32)
        mean = ct.sum(x, axis=1, keepdims=True) / n
        d = ct.where(inside, x - mean, 0.0)
        r = ct.rsqrt(ct.sum(d * d, axis=1, keepdims=True) / n + 1e-5)
        xhat = d * r
        g = dy * w
        a = ct.sum(g * xhat, axis=1, keepdims=True) / n
        b = ct.sum(g, axis=1, keepdims=True) / n
        ct.store(DX, (row, 0), ((g - xhat * a - b) * r).astype(DX.dtype))
        dw += dy * xhat
        db += dy
    ct.store(DW, (0,), dw.reshape((N,)))
    ct.store(DB, (0,), db.reshape((N,)))


# args: X: f32[2, 30000], W: f32[30000], DY: f32[2, 30000], DX: f32[2, 30000], DW: f32[30000], N = 32768; grid: 1; near: 2e-3
# args: X: f16[2, 60000], W: f16[60000], DY: f16[2, 60000], DX: f16[2, 60000], DW: f32[60000], N = 65536; grid: 1; near: 2e-2
@ct.kernel
def rms_norm_backward(X, W, DY, DX, DW, N: ct.Constant[int]):
    w = ct.load(W, (0,), (N,), padding_mode=Z).astype(ct.float32)[None, :]
    dw = ct.zeros((1, N), ct.float32)
    n = X.shape[1]
    for row in range(ct.bid(0), X.shape[0], ct.num_blocks(0)):
        x = ct.load(X, (row, 0), (1, N), padding_mode=Z).astype(ct.float32)
        dy = ct.load(DY, (row, 0), (1, N), padding_mode=Z).astype(ct.float32)
        r = ct.rsqrt(ct.sum(x * x, axis=1, keepdims=True) / n + 1e-5)
        xhat = x * r
        g = dy * w
        ct.store(DX, (row, 0), ((g - xhat * (ct.sum(g * xhat, axis=1, keepdims=True) / n)) * r).astype(DX.dtype))
        dw += dy * xhat
    ct.store(DW, (0,), dw.reshape((N,)))


# args: X: f32[2, 16000], Y: f32[2, 16000], N = 16384; grid: 2; near: 1e-4
# args: X: f32[2, 32000], Y: f32[2, 32000], N = 32768; grid: 2; near: 1e-4
# args: X: f32[2, 65000], Y: f32[2, 65000], N = 65536; grid: 2; near: 1e-4
# args: X: f32[2, 131000], Y: f32[2, 131000], N = 131072; grid: 2; near: 1e-4
# args: X: bf16[2, 131000], Y: bf16[2, 131000], N = 131072; grid: 2; near: 2e-2
# args: X: f64[2, 32000], Y: f64[2, 32000], N = 32768; grid: 2; near: 1e-9
# args: X: f64[1, 65000], Y: f64[1, 65000], N = 65536; grid: 1; near: 1e-9
# args: X: f8e4m3[2, 131000], Y: f8e4m3[2, 131000], N = 131072; grid: 2; near: 2e-1
@ct.kernel
def softmax(X, Y, N: ct.Constant[int]):
    row = ct.bid(0)
    # 8 bits have no infinity to pad with.
    pad = ct.PaddingMode.ZERO if X.dtype == ct.float8_e4m3fn else ct.PaddingMode.NEG_INF
    x = ct.load(X, (row, 0), (1, N), padding_mode=pad).astype(ct.float64 if X.dtype == ct.float64 else ct.float32)
    if X.dtype == ct.float8_e4m3fn:
        x = ct.where(ct.arange(N, dtype=ct.int32)[None, :] < X.shape[1], x, -float("inf"))
    e = ct.exp(ct.minimum(x, 10.0) - ct.max(ct.minimum(x, 10.0), axis=1, keepdims=True))
    ct.store(Y, (row, 0), (e / ct.sum(e, axis=1, keepdims=True)).astype(Y.dtype))


# args: X: f32[2, 65000], G: f32[2, 65000], Y: f32[2, 65000], N = 65536; grid: 2; near: 1e-3
# args: X: f16[2, 131000], G: f16[2, 131000], Y: f16[2, 131000], N = 131072; grid: 2; near: 2e-2
@ct.kernel
def log_softmax_backward(X, G, Y, N: ct.Constant[int]):
    row = ct.bid(0)
    x = ct.minimum(ct.load(X, (row, 0), (1, N), padding_mode=ct.PaddingMode.NEG_INF).astype(ct.float32), 10.0)
    g = ct.minimum(ct.load(G, (row, 0), (1, N), padding_mode=Z).astype(ct.float32), 10.0)
    e = ct.exp(x - ct.max(x, axis=1, keepdims=True))
    p = e / ct.sum(e, axis=1, keepdims=True)
    ct.store(Y, (row, 0), (g - p * ct.sum(g, axis=1, keepdims=True)).astype(Y.dtype))


# args: X: f32[2, 8192], Y: f32[2, 8192], N = 8192; grid: 2; near: 1e-4
# args: X: f32[2, 32768], Y: f32[2, 32768], N = 32768; grid: 2; near: 1e-4
# args: X: f16[2, 65536], Y: f16[2, 65536], N = 65536; grid: 2; near: 2e-2
@ct.kernel
def softmax_by_gather(X, Y, N: ct.Constant[int]):
    row = ct.bid(0)
    at = ct.arange(N, dtype=ct.int32)
    x = ct.minimum(ct.gather(X, (row, at), padding_value=-math.inf).astype(ct.float32), 10.0)
    e = ct.exp(x - ct.max(x, axis=0, keepdims=True))
    ct.scatter(Y, (row, at), (e / ct.sum(e, axis=0, keepdims=True)).astype(Y.dtype))


# args: X: f32[3, 50000], T: i32[3], L: f32[3], D: f32[3, 50000], N = 65536; grid: 3; near: 1e-3
# args: X: bf16[3, 100000], T: i32[3], L: f32[3], D: bf16[3, 100000], N = 131072; grid: 3; near: 2e-2
@ct.kernel
def cross_entropy(X, T, L, D, N: ct.Constant[int]):
    row = ct.bid(0)
    target = ct.load(T, (row,), ())
    x = ct.minimum(ct.load(X, (row, 0), (1, N), padding_mode=ct.PaddingMode.NEG_INF).astype(ct.float32), 10.0)
    m = ct.max(x, axis=1, keepdims=True)
    e = ct.exp(x - m)
    s = ct.sum(e, axis=1, keepdims=True)
    hot = ct.arange(N, dtype=ct.int32)[None, :] == target
    ct.store(L, (row,), (ct.log(s) + m - ct.sum(ct.where(hot, x, 0.0), axis=1, keepdims=True)).reshape((1,)))
    ct.store(D, (row, 0), (e / s - ct.where(hot, 1.0, 0.0)).astype(D.dtype))


# args: X: f32[3, 50000], T: i32[3], L: f32[3], D: f32[3, 50000], CHUNK = 16384; grid: 3; near: 1e-3
# args: X: bf16[3, 70000], T: i32[3], L: f32[3], D: bf16[3, 70000], CHUNK = 65536; grid: 3; near: 2e-2
@ct.kernel
def cross_entropy_in_chunks(X, T, L, D, CHUNK: ct.Constant[int]):
    row = ct.bid(0)
    target = ct.load(T, (row,), ())
    m = ct.full((1, 1), -math.inf, ct.float32)
    s, hit = ct.zeros((1, 1), ct.float32), ct.zeros((1, 1), ct.float32)
    for j in range(ct.cdiv(X.shape[1], CHUNK)):
        x = ct.minimum(ct.load(X, (row, j), (1, CHUNK), padding_mode=ct.PaddingMode.NEG_INF).astype(ct.float32), 10.0)
        new = ct.maximum(m, ct.max(x, axis=1, keepdims=True))
        s = s * ct.exp(m - new) + ct.sum(ct.exp(x - new), axis=1, keepdims=True)
        m = new
        hot = j * CHUNK + ct.arange(CHUNK, dtype=ct.int32)[None, :] == target
        hit += ct.sum(ct.where(hot, x, 0.0), axis=1, keepdims=True)
    ct.store(L, (row,), (ct.log(s) + m - hit).reshape((1,)))
    for j in range(ct.cdiv(X.shape[1], CHUNK)):
        x = ct.minimum(ct.load(X, (row, j), (1, CHUNK), padding_mode=ct.PaddingMode.NEG_INF).astype(ct.float32), 10.0)
        hot = j * CHUNK + ct.arange(CHUNK, dtype=ct.int32)[None, :] == target
        ct.store(D, (row, j), (ct.exp(x - m) / s - ct.where(hot, 1.0, 0.0)).astype(D.dtype))


# args: X: i32[2, 32768], Y: i32[2, 32768], N = 32768; grid: 2
# args: X: i32[2, 65536], Y: i32[2, 65536], N = 65536; grid: 2
# args: X: i64[1, 32768], Y: i64[1, 32768], N = 32768; grid: 1
@ct.kernel
def running_sum(X, Y, N: ct.Constant[int]):
    ct.store(Y, (ct.bid(0), 0), ct.cumsum(ct.load(X, (ct.bid(0), 0), (1, N)), axis=1))


# args: X: f32[128, 512], Y: f32[128, 512], P: f32[128, 512], M = 128, N = 512; grid: 1; near: 1e-3
# args: X: f32[256, 256], Y: f32[256, 256], P: f32[256, 256], M = 256, N = 256; grid: 1; near: 1e-3
@ct.kernel
def running_both_ways(X, Y, P, M: ct.Constant[int], N: ct.Constant[int]):
    x = ct.minimum(ct.load(X, (0, 0), (M, N)), 10.0)
    ct.store(Y, (0, 0), ct.cumsum(x, axis=0) + ct.cumsum(x, axis=1))
    ct.store(P, (0, 0), ct.transpose(x).reshape((M, N)) if M == N else x)


# args: V: i32[70000], B: i32[64], T = 32768; grid: 3
# args: V: i32[140000], B: i32[64], T = 65536; grid: 3
@ct.kernel
def histogram(V, B, T: ct.Constant[int]):
    index = ct.bid(0) * T + ct.arange(T, dtype=ct.int32)
    bin = ct.gather(V, index, padding_value=-1)
    ct.atomic_add(B, ct.where(index < V.shape[0], bin, -1), 1)


# args: V: i32[16384], B: i32[64], T = 16384; grid: 1
@ct.kernel
def histogram_by_comparing(V, B, T: ct.Constant[int]):
    v = ct.load(V, (ct.bid(0),), (T,))
    for b in range(64):
        ct.store(B, (b,), ct.sum((v == b).astype(ct.int32)).reshape((1,)))


# args: X: f32[2, 16384], Y: f32[2, 16384], I: i32[2], N = 16384; grid: 2
# args: X: f32[2, 65536], Y: f32[2, 65536], I: i32[2], N = 65536; grid: 2
@ct.kernel
def rounds_of_largest(X, Y, I, N: ct.Constant[int]):
    row = ct.bid(0)
    x = ct.load(X, (row, 0), (1, N))
    at = ct.arange(N, dtype=ct.int32)[None, :]
    y = ct.zeros((1, N), ct.float32)
    last = ct.zeros((1,), ct.int32)
    for k in range(4):
        best = ct.argmax(x, axis=1).astype(ct.int32)
        hot = at == best[:, None]
        y = ct.where(hot, x, y)
        x = ct.where(hot, -math.inf, x)
        last = best
    ct.store(Y, (row, 0), y)
    ct.store(I, (row,), last)


# args: X: f32[2, 16384], Y: f32[2, 16384], N = 16384; grid: 2
# args: X: f32[1, 65536], Y: f32[1, 65536], N = 65536; grid: 1
@ct.kernel
def one_step_of_sorting(X, Y, N: ct.Constant[int]):
    r = ct.bid(0)
    x = ct.load(X, (r, 0), (1, N)).reshape((N,))
    for D in ct.static_iter([1, 64, 4096]):
        pairs = ct.reshape(x, (N // (2 * D), 2, D))
        a = ct.extract(pairs, (0, 0, 0), (N // (2 * D), 1, D))
        b = ct.extract(pairs, (0, 1, 0), (N // (2 * D), 1, D))
        x = ct.reshape(ct.cat((ct.minimum(a, b), ct.maximum(a, b)), 1), (N,))
    ct.store(Y, (r, 0), x.reshape((1, N)))


# args: A: f32[256, 256], B: f32[256, 256], C: f32[256, 256], N = 256; grid: 1; near: 1e-4
# args: A: f16[512, 256], B: f16[512, 256], C: f16[512, 256], N = 512; grid: 1; near: 2e-2
@ct.kernel
def whole_planes(A, B, C, N: ct.Constant[int]):
    a, b = ct.load(A, (0, 0), (N, 256)).astype(ct.float32), ct.load(B, (0, 0), (N, 256)).astype(ct.float32)
    columns, rows = ct.sum(a, axis=0, keepdims=True), ct.max(b, axis=1, keepdims=True)
    c = (a - columns / N) * (b - rows)
    ct.store(C, (0, 0), (c + ct.sum(c, axis=1, keepdims=True) * 0.001 + a).astype(C.dtype))


# args: A: f64[2, 16384], B: f64[2, 16384], C: f64[2, 16384], D: f64[2, 16384], N = 16384; grid: 2; near: 1e-9
# args: A: f32[2, 65536], B: f32[2, 65536], C: f32[2, 65536], D: f32[2, 65536], N = 65536; grid: 2; near: 1e-3
@ct.kernel
def many_sums(A, B, C, D, N: ct.Constant[int]):
    r = ct.bid(0)
    a, b, c = ct.load(A, (r, 0), (1, N)), ct.load(B, (r, 0), (1, N)), ct.load(C, (r, 0), (1, N))
    s, t, u = ct.sum(a * b, axis=1, keepdims=True), ct.sum(b * c, axis=1, keepdims=True), ct.sum(c * a, axis=1, keepdims=True)
    ct.store(D, (r, 0), a * s + b * t + c * u)


# args: X: f64[64, 64, 8], Y: f64[64, 8], Z: i32[64, 8]; grid: 1; near: 1e-12
@ct.kernel
def along_two_axes(X, Y, Z):
    x = ct.load(X, (0, 0, 0), (64, 64, 8))
    y = ct.min(x - ct.max(x, axis=1, keepdims=True), axis=0) + ct.sum(x, axis=1)
    ct.store(Y, (0, 0), y)
    ct.store(Z, (0, 0), ct.argmax(x, axis=1))
