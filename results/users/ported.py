"""Kernels as projects bring them: written for `cuda.tile`, in tiles of powers of two, tuned for nothing."""

import math
import tessera
import tessera.tile as ct
Int = ct.Constant[int]
Bool = ct.Constant[bool]
PAD = ct.PaddingMode

@ct.kernel
def softmax(x, y, N: Int):
    r = ct.bid(0)
    v = ct.load(x, (r, 0), (1, N), padding_mode=PAD.NEG_INF).astype(ct.float32)
    e = ct.exp(v - ct.max(v, axis=1, keepdims=True))
    ct.store(y, (r, 0), (e / ct.sum(e, axis=1, keepdims=True)).astype(y.dtype))

@ct.kernel
def layer_norm(x, w, b, y, n: int, eps: float, N: Int):
    r = ct.bid(0)
    v = ct.load(x, (r, 0), (1, N), padding_mode=PAD.ZERO).astype(ct.float32)
    mean = ct.sum(v, axis=1, keepdims=True) / n
    inside = ct.arange(N, dtype=ct.int32)[None, :] < n
    d = ct.where(inside, v - mean, 0.0)
    var = ct.sum(d * d, axis=1, keepdims=True) / n
    g = ct.load(w, (0,), (N,)).astype(ct.float32)
    s = ct.load(b, (0,), (N,)).astype(ct.float32)
    ct.store(y, (r, 0), (d * ct.rsqrt(var + eps) * g + s).astype(y.dtype))

@ct.kernel
def layer_norm_loop(x, w, b, y, n: int, eps: float, N: Int):
    r = ct.bid(0)
    tiles = ct.cdiv(n, N)
    s = ct.zeros((1, N), ct.float32)
    q = ct.zeros((1, N), ct.float32)
    for i in range(tiles):
        v = ct.load(x, (r, i), (1, N), padding_mode=PAD.ZERO).astype(ct.float32)
        s += v
        q += v * v
    mean = ct.sum(s, axis=1, keepdims=True) / n
    var = ct.sum(q, axis=1, keepdims=True) / n - mean * mean
    rstd = ct.rsqrt(var + eps)
    for i in range(tiles):
        v = ct.load(x, (r, i), (1, N), padding_mode=PAD.ZERO).astype(ct.float32)
        g = ct.load(w, (i,), (N,), padding_mode=PAD.ZERO).astype(ct.float32)
        h = ct.load(b, (i,), (N,), padding_mode=PAD.ZERO).astype(ct.float32)
        ct.store(y, (r, i), ((v - mean) * rstd * g + h).astype(y.dtype))

@ct.kernel
def rms_several(x, w, y, n: int, eps: float, R: Int, N: Int):
    r = ct.bid(0)
    v = ct.load(x, (r, 0), (R, N), padding_mode=PAD.ZERO).astype(ct.float32)
    ms = ct.sum(v * v, axis=1, keepdims=True) / n
    g = ct.load(w, (0,), (N,)).astype(ct.float32)
    ct.store(y, (r, 0), (v * ct.rsqrt(ms + eps) * g).astype(y.dtype))

@ct.kernel
def matmul(A, B, O, TM: Int, TN: Int, TK: Int):
    m, n = ct.bid(0), ct.bid(1)
    acc = ct.zeros((TM, TN), ct.float32)
    for k in range(ct.num_tiles(A, axis=1, shape=(TM, TK))):
        a = ct.load(A, (m, k), (TM, TK), padding_mode=PAD.ZERO)
        b = ct.load(B, (k, n), (TK, TN), padding_mode=PAD.ZERO)
        acc = ct.mma(a, b, acc)
    ct.store(O, (m, n), acc.astype(O.dtype))

@ct.kernel
def matmul_silu_gate(A, B, G, O, TM: Int, TN: Int, TK: Int):
    m, n = ct.bid(0), ct.bid(1)
    acc = ct.zeros((TM, TN), ct.float32)
    gate = ct.zeros((TM, TN), ct.float32)
    for k in range(ct.num_tiles(A, axis=1, shape=(TM, TK))):
        a = ct.load(A, (m, k), (TM, TK), padding_mode=PAD.ZERO)
        acc = ct.mma(a, ct.load(B, (k, n), (TK, TN), padding_mode=PAD.ZERO), acc)
        gate = ct.mma(a, ct.load(G, (k, n), (TK, TN), padding_mode=PAD.ZERO), gate)
    ct.store(O, (m, n), (acc * gate / (1 + ct.exp(-gate))).astype(O.dtype))

@ct.kernel
def bmm(A, B, O, TM: Int, TN: Int, TK: Int):
    z, m, n = ct.bid(2), ct.bid(0), ct.bid(1)
    acc = ct.zeros((TM, TN), ct.float32)
    for k in range(ct.num_tiles(A, axis=2, shape=(1, TM, TK))):
        a = ct.load(A, (z, m, k), (1, TM, TK), padding_mode=PAD.ZERO).reshape((TM, TK))
        b = ct.load(B, (z, k, n), (1, TK, TN), padding_mode=PAD.ZERO).reshape((TK, TN))
        acc = ct.mma(a, b, acc)
    ct.store(O, (z, m, n), acc.astype(O.dtype).reshape((1, TM, TN)))

@ct.kernel
def attention(Q, K, V, O, scale: float, H: Int, G: Int, TM: Int, TN: Int, D: Int, CAUSAL: Bool):
    i, bh = ct.bid(0), ct.bid(1)
    b, h = bh // H, bh % H
    q = ct.load(Q, (b, h, i, 0), (1, 1, TM, D)).reshape((TM, D))
    m = ct.full((TM, 1), -math.inf, ct.float32)
    l = ct.zeros((TM, 1), ct.float32)
    acc = ct.zeros((TM, D), ct.float32)
    qs = scale * 1.4426950408889634
    n = K.shape[2]
    rows = i * TM + ct.arange(TM, dtype=ct.int32)[:, None]
    end = ct.cdiv(n, TN)
    full = n // TN
    if CAUSAL:
        end = min(end, ct.cdiv((i + 1) * TM, TN))
        full = min(full, i * TM // TN)
    for j in range(end):
        k = ct.load(K, (b, h // G, 0, j), (1, 1, D, TN), order=(0, 1, 3, 2), latency=2).reshape((D, TN))
        s = ct.mma(q, k, ct.zeros((TM, TN), ct.float32))
        if j >= full:
            cols = j * TN + ct.arange(TN, dtype=ct.int32)[None, :]
            ok = cols < n
            if CAUSAL:
                ok = ok & (cols <= rows)
            s = ct.where(ok, s, -math.inf)
        mn = ct.maximum(m, ct.max(s, axis=1, keepdims=True) * qs)
        p = ct.exp2(s * qs - mn)
        a = ct.exp2(m - mn)
        l = l * a + ct.sum(p, axis=1, keepdims=True)
        v = ct.load(V, (b, h // G, j, 0), (1, 1, TN, D), latency=4).reshape((TN, D))
        acc = ct.mma(p.astype(Q.dtype), v, acc * a)
        m = mn
    ct.store(O, (b, h, i, 0), (acc / l).astype(O.dtype).reshape((1, 1, TM, D)))

@ct.kernel
def swiglu(a, b, y, T: Int):
    i, j = ct.bid(0), ct.bid(1)
    u = ct.load(a, (i, j), (1, T)).astype(ct.float32)
    v = ct.load(b, (i, j), (1, T))
    s = u / (1 + ct.exp(-u))
    ct.store(y, (i, j), s.astype(y.dtype) * v)

@ct.kernel
def cross_entropy(x, t, loss, n: int, N: Int):
    r = ct.bid(0)
    m = ct.full((1, N), -math.inf, ct.float32)
    s = ct.zeros((1, N), ct.float32)
    for i in range(ct.cdiv(n, N)):
        v = ct.load(x, (r, i), (1, N), padding_mode=PAD.NEG_INF).astype(ct.float32)
        mn = ct.maximum(m, v)
        s = s * ct.exp(m - mn) + ct.exp(v - mn)
        m = mn
    top = ct.max(m, axis=1, keepdims=True)
    z = ct.sum(s * ct.exp(m - top), axis=1)
    lab = ct.load(t, (r,), (1,))
    at = ct.gather(x, (r, lab)).astype(ct.float32)
    ct.store(loss, (r,), ct.log(z) + ct.reshape(top, (1,)) - at)

@ct.kernel
def column_sum(x, y, rows: int, TM: Int, TN: Int):
    j = ct.bid(0)
    acc = ct.zeros((TM, TN), ct.float32)
    for i in range(ct.cdiv(rows, TM)):
        acc += ct.load(x, (i, j), (TM, TN), padding_mode=PAD.ZERO).astype(ct.float32)
    ct.store(y, (j,), ct.sum(acc, axis=0).astype(y.dtype))

@ct.kernel
def transpose(x, y, TM: Int, TN: Int):
    i, j = ct.bid(0), ct.bid(1)
    ct.store(y, (j, i), ct.transpose(ct.load(x, (i, j), (TM, TN))))

@ct.kernel
def rope(x, cos, sin, y, H: Int, D: Int):
    t, hh = ct.bid(0), ct.bid(1)
    c = ct.load(cos, (t, 0), (1, D // 2)).astype(ct.float32).reshape((1, 1, D // 2))
    s = ct.load(sin, (t, 0), (1, D // 2)).astype(ct.float32).reshape((1, 1, D // 2))
    a = ct.load(x, (t, hh, 0), (1, H, D // 2)).astype(ct.float32)
    b = ct.load(x, (t, hh, 1), (1, H, D // 2)).astype(ct.float32)
    ct.store(y, (t, hh, 0), (a * c - b * s).astype(y.dtype))
    ct.store(y, (t, hh, 1), (b * c + a * s).astype(y.dtype))

@ct.kernel
def embed(table, ids, y, T: Int):
    r, j = ct.bid(0), ct.bid(1)
    k = ct.load(ids, (r,), (1,))
    cols = j * T + ct.arange(T, dtype=ct.int32)
    ct.store(y, (r, j), ct.gather(table, (k, cols)).reshape((1, T)))

@ct.kernel
def conv1d(x, w, y, TL: Int, TC: Int, K: Int):
    # depthwise causal: x [batch, length, channels], w [K, channels]
    b, i, j = ct.bid(0), ct.bid(1), ct.bid(2)
    rows = i * TL + ct.arange(TL, dtype=ct.int32)[:, None]
    cols = j * TC + ct.arange(TC, dtype=ct.int32)[None, :]
    acc = ct.zeros((TL, TC), ct.float32)
    for k in ct.static_iter(range(K)):
        g = ct.load(w, (k, j), (1, TC)).astype(ct.float32)
        v = ct.gather(x, (b, rows + (k - K + 1), cols), padding_value=0).astype(ct.float32)
        acc += v * g
    s = acc / (1 + ct.exp(-acc))
    ct.scatter(y, (b, rows, cols), s.astype(y.dtype))

@ct.kernel
def cumsum(x, y, N: Int):
    r = ct.bid(0)
    v = ct.load(x, (r, 0), (1, N), padding_mode=PAD.ZERO).astype(ct.float32)
    ct.store(y, (r, 0), ct.cumsum(v, axis=1).astype(y.dtype))

@ct.kernel
def stencil(x, y, TM: Int, TN: Int):
    i, j = ct.bid(0), ct.bid(1)
    rows = i * TM + ct.arange(TM, dtype=ct.int32)[:, None]
    cols = j * TN + ct.arange(TN, dtype=ct.int32)[None, :]
    c = ct.gather(x, (rows, cols), padding_value=0)
    n = ct.gather(x, (rows - 1, cols), padding_value=0)
    s = ct.gather(x, (rows + 1, cols), padding_value=0)
    w = ct.gather(x, (rows, cols - 1), padding_value=0)
    e = ct.gather(x, (rows, cols + 1), padding_value=0)
    ct.scatter(y, (rows, cols), 0.5 * c + 0.125 * (n + s + w + e))

@ct.kernel
def decode(Q, K, V, O, scale: float, G: Int, TN: Int, D: Int):
    b, h = ct.bid(0), ct.bid(1)
    q = ct.load(Q, (b, h, 0, 0), (1, 1, G, D)).reshape((G, D))
    m = ct.full((G, 1), -math.inf, ct.float32)
    l = ct.zeros((G, 1), ct.float32)
    acc = ct.zeros((G, D), ct.float32)
    for j in range(ct.cdiv(K.shape[2], TN)):
        k = ct.load(K, (b, h, j, 0), (1, 1, TN, D)).reshape((TN, D))
        s = ct.mma(q, ct.transpose(k), ct.zeros((G, TN), ct.float32)) * scale
        mn = ct.maximum(m, ct.max(s, axis=1, keepdims=True))
        p = ct.exp(s - mn)
        a = ct.exp(m - mn)
        l = l * a + ct.sum(p, axis=1, keepdims=True)
        v = ct.load(V, (b, h, j, 0), (1, 1, TN, D)).reshape((TN, D))
        acc = ct.mma(p.astype(Q.dtype), v, acc * a)
        m = mn
    ct.store(O, (b, h, 0, 0), (acc / l).astype(O.dtype).reshape((1, 1, G, D)))

@ct.kernel
def linear_attention(Q, K, V, O, T: Int, D: Int):
    # chunked causal linear attention, state D x D
    b = ct.bid(0)
    S = ct.zeros((D, D), ct.float32)
    i = ct.arange(T, dtype=ct.int32)
    low = i[:, None] >= i[None, :]
    for c in range(ct.cdiv(Q.shape[1], T)):
        q = ct.load(Q, (b, c, 0), (1, T, D)).reshape((T, D))
        k = ct.load(K, (b, c, 0), (1, T, D)).reshape((T, D))
        v = ct.load(V, (b, c, 0), (1, T, D)).reshape((T, D))
        a = ct.mma(q, ct.transpose(k), ct.zeros((T, T), ct.float32))
        a = ct.where(low, a, 0.0).astype(Q.dtype)
        o = ct.mma(a, v, ct.zeros((T, D), ct.float32))
        o = ct.mma(q, S.astype(Q.dtype), o)
        S = ct.mma(ct.transpose(k), v, S)
        ct.store(O, (b, c, 0), o.astype(O.dtype).reshape((1, T, D)))

@ct.kernel
def argmax(x, y, N: Int):
    r = ct.bid(0)
    v = ct.load(x, (r, 0), (1, N), padding_mode=PAD.NEG_INF)
    ct.store(y, (r,), ct.argmax(v, axis=1))

@ct.kernel
def dequant(A, W, s, O, TM: Int, TN: Int, TK: Int):
    m, n = ct.bid(0), ct.bid(1)
    acc = ct.zeros((TM, TN), ct.float32)
    for k in range(ct.num_tiles(A, axis=1, shape=(TM, TK))):
        a = ct.load(A, (m, k), (TM, TK), padding_mode=PAD.ZERO)
        w = ct.load(W, (n, k), (TN, TK), padding_mode=PAD.ZERO)
        acc = ct.mma(a, ct.transpose(w.astype(A.dtype)), acc)
    ct.store(O, (m, n), (acc * ct.load(s, (n,), (TN,)).astype(ct.float32)[None, :]).astype(O.dtype))

@ct.kernel
def quant_rows(x, q, s, N: Int):
    r = ct.bid(0)
    v = ct.load(x, (r, 0), (1, N), padding_mode=PAD.ZERO).astype(ct.float32)
    a = ct.max(ct.abs(v), axis=1, keepdims=True)
    k = ct.maximum(a, 1e-10) / 448.0
    ct.store(q, (r, 0), (v / k).astype(ct.float8_e4m3fn))
    ct.store(s, (r,), k.reshape((1,)))

@ct.kernel
def adamw(p, g, m, v, lr: float, b1: float, b2: float, eps: float, wd: float, c1: float, c2: float, T: Int):
    i = ct.bid(0)
    w = ct.load(p, (i,), (T,))
    d = ct.load(g, (i,), (T,)).astype(ct.float32)
    mm = b1 * ct.load(m, (i,), (T,)) + (1 - b1) * d
    vv = b2 * ct.load(v, (i,), (T,)) + (1 - b2) * d * d
    w = w * (1 - lr * wd) - lr * (mm / c1) / (ct.sqrt(vv / c2) + eps)
    ct.store(m, (i,), mm)
    ct.store(v, (i,), vv)
    ct.store(p, (i,), w)

@ct.kernel
def group_norm(x, w, b, y, n: int, eps: float, CG: Int, S: Int, G: Int):
    # x [batch, groups, channels of a group, places]
    i, g = ct.bid(0), ct.bid(1)
    v = ct.load(x, (i, g, 0, 0), (1, 1, CG, S), padding_mode=PAD.ZERO).astype(ct.float32)
    mean = ct.sum(v, axis=(2, 3), keepdims=True) / n
    ms = ct.sum(v * v, axis=(2, 3), keepdims=True) / n
    r = ct.rsqrt(ms - mean * mean + eps)
    ww = ct.load(w, (g, 0), (1, CG)).reshape((1, 1, CG, 1))
    bb = ct.load(b, (g, 0), (1, CG)).reshape((1, 1, CG, 1))
    ct.store(y, (i, g, 0, 0), ((v - mean) * r * ww + bb).astype(y.dtype))

@ct.kernel
def maxpool(x, y, TC: Int):
    # x [batch, h, w, c] NHWC, 2x2
    b, i, j = ct.bid(0), ct.bid(1), ct.bid(2)
    v = ct.load(x, (b, i, j, 0), (1, 2, 2, TC))
    ct.store(y, (b, i, j, 0), ct.max(ct.max(v, axis=1, keepdims=True), axis=2, keepdims=True))
