"""Seventeen ways to write softmax(Q K^T) V with online maxima. `more` marks those that do more than the first."""
import math

import cuda.tile as ct


# args: Q: f16[?,?,?], K: f16[?,?,?], V: f16[?,?,?], O: f16[?,?,?], scale: f32, TM = 128, TN = 64, D = 128
@ct.kernel
def plain(Q, K, V, O, scale: float, TM: ct.Constant[int], TN: ct.Constant[int], D: ct.Constant[int]):
    i, h = ct.bid(0), ct.bid(1)
    q = ct.load(Q, (h, i, 0), (1, TM, D), padding_mode=ct.PaddingMode.ZERO).reshape((TM, D))
    m = ct.full((TM, 1), -math.inf, ct.float32)
    l = ct.zeros((TM, 1), ct.float32)
    acc = ct.zeros((TM, D), ct.float32)
    for j in range(ct.cdiv(K.shape[1], TN)):
        k = ct.load(K, (h, 0, j), (1, D, TN), order=(0, 2, 1), padding_mode=ct.PaddingMode.ZERO).reshape((D, TN))
        s = ct.mma(q, k, ct.zeros((TM, TN), ct.float32)) * scale
        top = ct.maximum(m, ct.max(s, axis=1, keepdims=True))
        p = ct.exp2(s - top)
        alpha = ct.exp2(m - top)
        l = l * alpha + ct.sum(p, axis=1, keepdims=True)
        v = ct.load(V, (h, j, 0), (1, TN, D), padding_mode=ct.PaddingMode.ZERO).reshape((TN, D))
        acc = ct.mma(p.astype(V.dtype), v, acc * alpha)
        m = top
    ct.store(O, (h, i, 0), (acc / l).reshape((1, TM, D)).astype(O.dtype))


# args: queries: f16[?,?,?], keys: f16[?,?,?], values: f16[?,?,?], out: f16[?,?,?], factor: f32, ROWS = 128, COLUMNS = 64, WIDTH = 128
@ct.kernel
def renamed(queries, keys, values, out, factor: float, ROWS: ct.Constant[int], COLUMNS: ct.Constant[int], WIDTH: ct.Constant[int]):
    block = ct.bid(0)
    head = ct.bid(1)
    left = ct.load(queries, index=(head, block, 0), shape=(1, ROWS, WIDTH), padding_mode=ct.PaddingMode.ZERO)
    left = ct.reshape(left, (ROWS, WIDTH))
    largest = ct.full((ROWS, 1), -math.inf, dtype=ct.float32)
    total = ct.full((ROWS, 1), 0.0, dtype=ct.float32)
    result = ct.full((ROWS, WIDTH), 0.0, dtype=ct.float32)
    for step in range(ct.cdiv(keys.shape[1], COLUMNS)):
        right = ct.load(keys, index=(head, 0, step), shape=(1, WIDTH, COLUMNS), order=(0, 2, 1), padding_mode=ct.PaddingMode.ZERO)
        scores = ct.mma(left, ct.reshape(right, (WIDTH, COLUMNS)), ct.full((ROWS, COLUMNS), 0.0, dtype=ct.float32)) * factor
        larger = ct.maximum(largest, ct.max(scores, axis=1, keepdims=True))
        weights = ct.exp2(scores - larger)
        shrink = ct.exp2(largest - larger)
        total = total * shrink + ct.sum(weights, axis=1, keepdims=True)
        rows = ct.load(values, index=(head, step, 0), shape=(1, COLUMNS, WIDTH), padding_mode=ct.PaddingMode.ZERO)
        result = ct.mma(ct.astype(weights, values.dtype), ct.reshape(rows, (COLUMNS, WIDTH)), result * shrink)
        largest = larger
    ct.store(out, index=(head, block, 0), tile=ct.astype(ct.reshape(result / total, (1, ROWS, WIDTH)), out.dtype))


# args: D = 128, TN = 64, TM = 128, O: f16[?,?,?], V: f16[?,?,?], K: f16[?,?,?], Q: f16[?,?,?], scale: f32
@ct.kernel
def reordered(D: ct.Constant[int], TN: ct.Constant[int], TM: ct.Constant[int], O, V, K, Q, scale: float):
    i, h = ct.bid(0), ct.bid(1)
    acc = ct.zeros((TM, D), ct.float32)
    l = ct.zeros((TM, 1), ct.float32)
    m = ct.full((TM, 1), -math.inf, ct.float32)
    q = ct.load(Q, (h, i, 0), (1, TM, D), padding_mode=ct.PaddingMode.ZERO).reshape((TM, D))
    for j in range(0, ct.cdiv(K.shape[1], TN)):
        v = ct.load(V, (h, j, 0), (1, TN, D), padding_mode=ct.PaddingMode.ZERO).reshape((TN, D))
        k = ct.load(K, (h, 0, j), (1, D, TN), order=(0, 2, 1), padding_mode=ct.PaddingMode.ZERO).reshape((D, TN))
        s = ct.mma(q, k, ct.zeros((TM, TN), ct.float32)) * scale
        top = ct.maximum(m, ct.max(s, axis=1, keepdims=True))
        alpha = ct.exp2(m - top)
        p = ct.exp2(s - top)
        acc = ct.mma(p.astype(V.dtype), v, acc * alpha)
        l = l * alpha + ct.sum(p, axis=1, keepdims=True)
        m = top
    ct.store(O, (h, i, 0), (acc / l).reshape((1, TM, D)).astype(O.dtype))


# args: Q: f16[?,?,?], K: f16[?,?,?], V: f16[?,?,?], O: f16[?,?,?], scale: f32, TM = 128, TN = 64, D = 128
@ct.kernel
def with_while(Q, K, V, O, scale: float, TM: ct.Constant[int], TN: ct.Constant[int], D: ct.Constant[int]):
    i, h = ct.bid(0), ct.bid(1)
    q = ct.load(Q, (h, i, 0), (1, TM, D), padding_mode=ct.PaddingMode.ZERO).reshape((TM, D))
    m = ct.full((TM, 1), -math.inf, ct.float32)
    l = ct.zeros((TM, 1), ct.float32)
    acc = ct.zeros((TM, D), ct.float32)
    j = 0
    while j < ct.cdiv(K.shape[1], TN):
        k = ct.load(K, (h, 0, j), (1, D, TN), order=(0, 2, 1), padding_mode=ct.PaddingMode.ZERO).reshape((D, TN))
        s = ct.mma(q, k, ct.zeros((TM, TN), ct.float32)) * scale
        top = ct.maximum(m, ct.max(s, axis=1, keepdims=True))
        p = ct.exp2(s - top)
        alpha = ct.exp2(m - top)
        l = l * alpha + ct.sum(p, axis=1, keepdims=True)
        v = ct.load(V, (h, j, 0), (1, TN, D), padding_mode=ct.PaddingMode.ZERO).reshape((TN, D))
        acc = ct.mma(p.astype(V.dtype), v, acc * alpha)
        m = top
        j += 1
    ct.store(O, (h, i, 0), (acc / l).reshape((1, TM, D)).astype(O.dtype))


def matrix(array, index, shape, order):
    return ct.load(array, index, shape, order=order, padding_mode=ct.PaddingMode.ZERO).reshape(shape[1:])


def advance(s, m, l):
    top = ct.maximum(m, ct.max(s, axis=1, keepdims=True))
    p, alpha = ct.exp2(s - top), ct.exp2(m - top)
    return p, alpha, top, l * alpha + ct.sum(p, axis=1, keepdims=True)


# args: Q: f16[?,?,?], K: f16[?,?,?], V: f16[?,?,?], O: f16[?,?,?], scale: f32, TM = 128, TN = 64, D = 128
@ct.kernel
def with_helpers(Q, K, V, O, scale: float, TM: ct.Constant[int], TN: ct.Constant[int], D: ct.Constant[int]):
    i, h = ct.bid(0), ct.bid(1)
    q = matrix(Q, (h, i, 0), (1, TM, D), (0, 1, 2))
    m = ct.full((TM, 1), -math.inf, ct.float32)
    l = ct.zeros((TM, 1), ct.float32)
    acc = ct.zeros((TM, D), ct.float32)
    for j in range(ct.cdiv(K.shape[1], TN)):
        s = ct.mma(q, matrix(K, (h, 0, j), (1, D, TN), (0, 2, 1)), ct.zeros((TM, TN), ct.float32)) * scale
        p, alpha, m, l = advance(s, m, l)
        acc = ct.mma(p.astype(V.dtype), matrix(V, (h, j, 0), (1, TN, D), (0, 1, 2)), acc * alpha)
    ct.store(O, (h, i, 0), (acc / l).reshape((1, TM, D)).astype(O.dtype))


# args: Q: f16[?,?,?], K: f16[?,?,?], V: f16[?,?,?], O: f16[?,?,?], scale: f32, TM = 128, TN = 64, D = 128
@ct.kernel
def by_vectors(Q, K, V, O, scale: float, TM: ct.Constant[int], TN: ct.Constant[int], D: ct.Constant[int]):
    i, h = ct.bid(0), ct.bid(1)
    q = ct.load(Q, (h, i, 0), (1, TM, D), padding_mode=ct.PaddingMode.ZERO).reshape((TM, D))
    m = ct.full((TM,), -math.inf, ct.float32)
    l = ct.zeros((TM,), ct.float32)
    acc = ct.zeros((TM, D), ct.float32)
    for j in range(ct.cdiv(K.shape[1], TN)):
        k = ct.load(K, (h, 0, j), (1, D, TN), order=(0, 2, 1), padding_mode=ct.PaddingMode.ZERO).reshape((D, TN))
        s = ct.mma(q, k, ct.zeros((TM, TN), ct.float32)) * scale
        top = ct.maximum(m, ct.max(s, axis=1))
        p = ct.exp2(s - top[:, None])
        alpha = ct.exp2(m - top)
        l = l * alpha + ct.sum(p, axis=1)
        v = ct.load(V, (h, j, 0), (1, TN, D), padding_mode=ct.PaddingMode.ZERO).reshape((TN, D))
        acc = ct.mma(p.astype(V.dtype), v, acc * alpha[:, None])
        m = top
    ct.store(O, (h, i, 0), (acc / l[:, None]).reshape((1, TM, D)).astype(O.dtype))


# args: Q: f16[?,?,?], K: f16[?,?,?], V: f16[?,?,?], O: f16[?,?,?], scale: f32, TM = 128, TN = 64, D = 128
@ct.kernel
def transposed_by_hand(Q, K, V, O, scale: float, TM: ct.Constant[int], TN: ct.Constant[int], D: ct.Constant[int]):
    i, h = ct.bid(0), ct.bid(1)
    q = ct.load(Q, (h, i, 0), (1, TM, D), padding_mode=ct.PaddingMode.ZERO).reshape((TM, D))
    m = ct.full((TM, 1), -math.inf, ct.float32)
    l = ct.zeros((TM, 1), ct.float32)
    acc = ct.zeros((TM, D), ct.float32)
    for j in range(ct.cdiv(K.shape[1], TN)):
        k = ct.load(K, (h, j, 0), (1, TN, D), padding_mode=ct.PaddingMode.ZERO).reshape((TN, D))
        s = ct.mma(q, ct.transpose(k), ct.zeros((TM, TN), ct.float32)) * scale
        top = ct.maximum(m, ct.max(s, axis=1, keepdims=True))
        p = ct.exp2(s - top)
        alpha = ct.exp2(m - top)
        l = l * alpha + ct.sum(p, axis=1, keepdims=True)
        v = ct.load(V, (h, j, 0), (1, TN, D), padding_mode=ct.PaddingMode.ZERO).reshape((TN, D))
        acc = ct.mma(p.astype(V.dtype), v, acc * alpha)
        m = top
    ct.store(O, (h, i, 0), (acc / l).reshape((1, TM, D)).astype(O.dtype))


# args: Q: f16[?,?,?], K: f16[?,?,?], V: f16[?,?,?], O: f16[?,?,?], scale: f32, TM = 128, TN = 64, D = 128; more
@ct.kernel
def masked(Q, K, V, O, scale: float, TM: ct.Constant[int], TN: ct.Constant[int], D: ct.Constant[int]):
    i, h = ct.bid(0), ct.bid(1)
    q = ct.load(Q, (h, i, 0), (1, TM, D), padding_mode=ct.PaddingMode.ZERO).reshape((TM, D))
    m = ct.full((TM, 1), -math.inf, ct.float32)
    l = ct.zeros((TM, 1), ct.float32)
    acc = ct.zeros((TM, D), ct.float32)
    rows = i * TM + ct.arange(TM, dtype=ct.int32)[:, None]
    columns = ct.arange(TN, dtype=ct.int32)[None, :]
    for j in range(ct.cdiv(K.shape[1], TN)):
        k = ct.load(K, (h, 0, j), (1, D, TN), order=(0, 2, 1), padding_mode=ct.PaddingMode.ZERO).reshape((D, TN))
        s = ct.mma(q, k, ct.zeros((TM, TN), ct.float32)) * scale
        s = ct.where(j * TN + columns <= rows, s, -math.inf)
        top = ct.maximum(m, ct.max(s, axis=1, keepdims=True))
        p = ct.exp2(s - top)
        alpha = ct.exp2(m - top)
        l = l * alpha + ct.sum(p, axis=1, keepdims=True)
        v = ct.load(V, (h, j, 0), (1, TN, D), padding_mode=ct.PaddingMode.ZERO).reshape((TN, D))
        acc = ct.mma(p.astype(V.dtype), v, acc * alpha)
        m = top
    ct.store(O, (h, i, 0), (acc / l).reshape((1, TM, D)).astype(O.dtype))


# args: Q: f16[?,?,?], K: f16[?,?,?], V: f16[?,?,?], O: f16[?,?,?], scale: f32, TM = 128, TN = 64, D = 128; more
@ct.kernel
def masked_where_needed(Q, K, V, O, scale: float, TM: ct.Constant[int], TN: ct.Constant[int], D: ct.Constant[int]):
    i, h = ct.bid(0), ct.bid(1)
    q = ct.load(Q, (h, i, 0), (1, TM, D), padding_mode=ct.PaddingMode.ZERO).reshape((TM, D))
    m = ct.full((TM, 1), -math.inf, ct.float32)
    l = ct.zeros((TM, 1), ct.float32)
    acc = ct.zeros((TM, D), ct.float32)
    rows = i * TM + ct.arange(TM, dtype=ct.int32)[:, None]
    columns = ct.arange(TN, dtype=ct.int32)[None, :]
    for j in range(ct.cdiv(K.shape[1], TN)):
        k = ct.load(K, (h, 0, j), (1, D, TN), order=(0, 2, 1), padding_mode=ct.PaddingMode.ZERO).reshape((D, TN))
        s = ct.mma(q, k, ct.zeros((TM, TN), ct.float32)) * scale
        if j >= i * TM // TN:
            keep = ct.full((TM, TN), True, dtype=ct.bool_) & (rows >= j * TN + columns)
            s += ct.where(keep, 0.0, -math.inf)
        top = ct.maximum(m, ct.max(s, axis=1, keepdims=True))
        p = ct.exp2(s - top)
        alpha = ct.exp2(m - top)
        l = l * alpha + ct.sum(p, axis=1, keepdims=True)
        v = ct.load(V, (h, j, 0), (1, TN, D), padding_mode=ct.PaddingMode.ZERO).reshape((TN, D))
        acc = ct.mma(p.astype(V.dtype), v, acc * alpha)
        m = top
    ct.store(O, (h, i, 0), (acc / l).reshape((1, TM, D)).astype(O.dtype))


# args: Q: f16[?,?,?], K: f16[?,?,?], V: f16[?,?,?], O: f16[?,?,?], bias: f32[?], scale: f32, TM = 128, TN = 64, D = 128; more
@ct.kernel
def biased(Q, K, V, O, bias, scale: float, TM: ct.Constant[int], TN: ct.Constant[int], D: ct.Constant[int]):
    i, h = ct.bid(0), ct.bid(1)
    q = ct.load(Q, (h, i, 0), (1, TM, D), padding_mode=ct.PaddingMode.ZERO).reshape((TM, D))
    m = ct.full((TM, 1), -math.inf, ct.float32)
    l = ct.zeros((TM, 1), ct.float32)
    acc = ct.zeros((TM, D), ct.float32)
    slope = ct.load(bias, (h,), ())
    for j in range(ct.cdiv(K.shape[1], TN)):
        k = ct.load(K, (h, 0, j), (1, D, TN), order=(0, 2, 1), padding_mode=ct.PaddingMode.ZERO).reshape((D, TN))
        s = ct.mma(q, k, ct.zeros((TM, TN), ct.float32)) * scale
        s = s + slope * (j * TN + ct.arange(TN, dtype=ct.int32)).astype(ct.float32)[None, :]
        top = ct.maximum(m, ct.max(s, axis=1, keepdims=True))
        p = ct.exp2(s - top)
        alpha = ct.exp2(m - top)
        l = l * alpha + ct.sum(p, axis=1, keepdims=True)
        v = ct.load(V, (h, j, 0), (1, TN, D), padding_mode=ct.PaddingMode.ZERO).reshape((TN, D))
        acc = ct.mma(p.astype(V.dtype), v, acc * alpha)
        m = top
    ct.store(O, (h, i, 0), (acc / l).reshape((1, TM, D)).astype(O.dtype))


# args: Q: f16[?,?,?], K: f16[?,?,?], V: f16[?,?,?], O: f16[?,?,?], scale: f32, TM = 128, TN = 64, D = 128; more
@ct.kernel
def scaled_outputs(Q, K, V, O, scale: float, TM: ct.Constant[int], TN: ct.Constant[int], D: ct.Constant[int]):
    i, h = ct.bid(0), ct.bid(1)
    q = ct.load(Q, (h, i, 0), (1, TM, D), padding_mode=ct.PaddingMode.ZERO).reshape((TM, D))
    m = ct.full((TM, 1), -math.inf, ct.float32)
    l = ct.zeros((TM, 1), ct.float32)
    acc = ct.zeros((TM, D), ct.float32)
    for j in range(ct.cdiv(K.shape[1], TN)):
        k = ct.load(K, (h, 0, j), (1, D, TN), order=(0, 2, 1), padding_mode=ct.PaddingMode.ZERO).reshape((D, TN))
        s = ct.mma(q, k, ct.zeros((TM, TN), ct.float32)) * scale
        top = ct.maximum(m, ct.max(s, axis=1, keepdims=True))
        p = ct.exp2(s - top)
        alpha = ct.exp2(m - top)
        l = l * alpha + ct.sum(p, axis=1, keepdims=True)
        v = ct.load(V, (h, j, 0), (1, TN, D), padding_mode=ct.PaddingMode.ZERO).reshape((TN, D))
        acc = ct.mma(p.astype(V.dtype), v, acc * alpha)
        m = top
    ct.store(O, (h, i, 0), (acc / l * 0.5).reshape((1, TM, D)).astype(O.dtype))


# args: Q: f16[?,?,?], K: f16[?,?,?], V: f16[?,?,?], O: f16[?,?,?], scale: f32, TM = 128, TN = 64, D = 128
@ct.kernel
def added_up(Q, K, V, O, scale: float, TM: ct.Constant[int], TN: ct.Constant[int], D: ct.Constant[int]):
    i, h = ct.bid(0), ct.bid(1)
    q = ct.load(Q, (h, i, 0), (1, TM, D), padding_mode=ct.PaddingMode.ZERO).reshape((TM, D))
    m = ct.full((TM, 1), -math.inf, ct.float32)
    l = ct.zeros((TM, 1), ct.float32)
    acc = ct.zeros((TM, D), ct.float32)
    for j in range(ct.cdiv(K.shape[1], TN)):
        k = ct.load(K, (h, 0, j), (1, D, TN), order=(0, 2, 1), padding_mode=ct.PaddingMode.ZERO).reshape((D, TN))
        s = ct.mma(q, k, ct.zeros((TM, TN), ct.float32)) * scale
        top = ct.maximum(m, ct.max(s, axis=1, keepdims=True))
        p = ct.exp2(s - top)
        alpha = ct.exp2(m - top)
        l = l * alpha + ct.sum(p, axis=1, keepdims=True)
        v = ct.load(V, (h, j, 0), (1, TN, D), padding_mode=ct.PaddingMode.ZERO).reshape((TN, D))
        acc = acc * alpha + ct.mma(p.astype(V.dtype), v, ct.zeros((TM, D), ct.float32))
        m = top
    ct.store(O, (h, i, 0), (acc / l).reshape((1, TM, D)).astype(O.dtype))


# args: Q: f16[?,?,?], K: f16[?,?,?], V: f16[?,?,?], O: f16[?,?,?], scale: f32, TM = 128, TN = 64, D = 128
@ct.kernel
def left_by_a_break(Q, K, V, O, scale: float, TM: ct.Constant[int], TN: ct.Constant[int], D: ct.Constant[int]):
    i, h = ct.bid(0), ct.bid(1)
    q = ct.load(Q, (h, i, 0), (1, TM, D), padding_mode=ct.PaddingMode.ZERO).reshape((TM, D))
    m = ct.full((TM, 1), -math.inf, ct.float32)
    l = ct.zeros((TM, 1), ct.float32)
    acc = ct.zeros((TM, D), ct.float32)
    j = 0
    while True:
        if j >= ct.cdiv(K.shape[1], TN):
            break
        k = ct.load(K, (h, 0, j), (1, D, TN), order=(0, 2, 1), padding_mode=ct.PaddingMode.ZERO).reshape((D, TN))
        s = ct.mma(q, k, ct.zeros((TM, TN), ct.float32)) * scale
        top = ct.maximum(m, ct.max(s, axis=1, keepdims=True))
        p = ct.exp2(s - top)
        alpha = ct.exp2(m - top)
        l = l * alpha + ct.sum(p, axis=1, keepdims=True)
        v = ct.load(V, (h, j, 0), (1, TN, D), padding_mode=ct.PaddingMode.ZERO).reshape((TN, D))
        acc = ct.mma(p.astype(V.dtype), v, acc * alpha)
        m = top
        j += 1
    ct.store(O, (h, i, 0), (acc / l).reshape((1, TM, D)).astype(O.dtype))


# args: Q: f16[?,?,?], K: f16[?,?,?], V: f16[?,?,?], O: f16[?,?,?], scale: f32, TM = 128, TN = 64, D = 128
@ct.kernel
def by_offsets(Q, K, V, O, scale: float, TM: ct.Constant[int], TN: ct.Constant[int], D: ct.Constant[int]):
    i, h = ct.bid(0), ct.bid(1)
    q = ct.load(Q, (h, i, 0), (1, TM, D), padding_mode=ct.PaddingMode.ZERO).reshape((TM, D))
    m = ct.full((TM, 1), -math.inf, ct.float32)
    l = ct.zeros((TM, 1), ct.float32)
    acc = ct.zeros((TM, D), ct.float32)
    for start in range(0, K.shape[1], TN):
        j = start // TN
        k = ct.load(K, (h, 0, j), (1, D, TN), order=(0, 2, 1), padding_mode=ct.PaddingMode.ZERO).reshape((D, TN))
        s = ct.mma(q, k, ct.zeros((TM, TN), ct.float32)) * scale
        top = ct.maximum(m, ct.max(s, axis=1, keepdims=True))
        p = ct.exp2(s - top)
        alpha = ct.exp2(m - top)
        l = l * alpha + ct.sum(p, axis=1, keepdims=True)
        v = ct.load(V, (h, j, 0), (1, TN, D), padding_mode=ct.PaddingMode.ZERO).reshape((TN, D))
        acc = ct.mma(p.astype(V.dtype), v, acc * alpha)
        m = top
    ct.store(O, (h, i, 0), (acc / l).reshape((1, TM, D)).astype(O.dtype))


# args: Q: f16[?,?,?], K: f16[?,?,?], V: f16[?,?,?], O: f16[?,?,?], scale: f32, TM = 128, TN = 64, D = 128
@ct.kernel
def extremes_from_numbers(Q, K, V, O, scale: float, TM: ct.Constant[int], TN: ct.Constant[int], D: ct.Constant[int]):
    i, h = ct.bid(0), ct.bid(1)
    q = ct.load(Q, (h, i, 0), (1, TM, D), padding_mode=ct.PaddingMode.ZERO).reshape((TM, D))
    m = ct.full((TM, 1), -1e30, ct.float32)
    l = ct.zeros((TM, 1), ct.float32)
    acc = ct.zeros((TM, D), ct.float32)
    for j in range(ct.cdiv(K.shape[1], TN)):
        k = ct.load(K, (h, 0, j), (1, D, TN), order=(0, 2, 1), padding_mode=ct.PaddingMode.ZERO).reshape((D, TN))
        s = ct.mma(q, k, ct.zeros((TM, TN), ct.float32)) * scale
        own = ct.max(s, axis=1)[:, None]
        top = ct.where(own > m, own, m)
        p = ct.exp2(ct.sub(s, top))
        alpha = ct.exp2(m - top)
        l = l * alpha + ct.sum(p, axis=1, keepdims=True)
        v = ct.load(V, (h, j, 0), (1, TN, D), padding_mode=ct.PaddingMode.ZERO).reshape((TN, D))
        acc = ct.mma(p.astype(V.dtype), v, acc * alpha)
        m = top
    ct.store(O, (h, i, 0), (acc / l).reshape((1, TM, D)).astype(O.dtype))


# args: Q: f16[?,?,?], K: f16[?,?,?], V: f16[?,?,?], O: f16[?,?,?], scale: f32, TM = 128, TN = 64, D = 128; more
@ct.kernel
def guarded_edge(Q, K, V, O, scale: float, TM: ct.Constant[int], TN: ct.Constant[int], D: ct.Constant[int]):
    i, h = ct.bid(0), ct.bid(1)
    q = ct.load(Q, (h, i, 0), (1, TM, D), padding_mode=ct.PaddingMode.ZERO).reshape((TM, D))
    m = ct.full((TM, 1), -math.inf, ct.float32)
    l = ct.zeros((TM, 1), ct.float32)
    acc = ct.zeros((TM, D), ct.float32)
    for j in range(ct.cdiv(K.shape[1], TN)):
        k = ct.load(K, (h, 0, j), (1, D, TN), order=(0, 2, 1), padding_mode=ct.PaddingMode.ZERO).reshape((D, TN))
        s = ct.mma(q, k, ct.zeros((TM, TN), ct.float32)) * scale
        if (j + 1) * TN > K.shape[1]:
            s = ct.where(j * TN + ct.arange(TN, dtype=ct.int32)[None, :] < K.shape[1], s, -math.inf)
        top = ct.maximum(m, ct.max(s, axis=1, keepdims=True))
        p = ct.exp2(s - top)
        alpha = ct.exp2(m - top)
        l = l * alpha + ct.sum(p, axis=1, keepdims=True)
        v = ct.load(V, (h, j, 0), (1, TN, D), padding_mode=ct.PaddingMode.ZERO).reshape((TN, D))
        acc = ct.mma(p.astype(V.dtype), v, acc * alpha)
        m = top
    ct.store(O, (h, i, 0), (acc / l).reshape((1, TM, D)).astype(O.dtype))


# args: Q: f16[?,?,?], K: f16[?,?,?], V: f16[?,?,?], O: f16[?,?,?], scale: f32, TM = 128, TN = 64, D = 128
@ct.kernel
def by_tuples(Q, K, V, O, scale: float, TM: ct.Constant[int], TN: ct.Constant[int], D: ct.Constant[int]):
    i, h = ct.bid(0), ct.bid(1)
    q = ct.load(Q, (h, i, 0), (1, TM, D), padding_mode=ct.PaddingMode.ZERO).reshape((TM, D))
    state = ct.full((TM, 1), -math.inf, ct.float32), ct.zeros((TM, 1), ct.float32), ct.zeros((TM, D), ct.float32)
    for j in range(ct.cdiv(K.shape[1], TN)):
        m, l, acc = state
        k = ct.load(K, (h, 0, j), (1, D, TN), order=(0, 2, 1), padding_mode=ct.PaddingMode.ZERO).reshape((D, TN))
        s = ct.mma(q, k, ct.zeros((TM, TN), ct.float32)) * scale
        top = ct.maximum(m, ct.max(s, axis=1, keepdims=True))
        p = ct.exp2(s - top)
        alpha = ct.exp2(m - top)
        l = l * alpha + ct.sum(p, axis=1, keepdims=True)
        v = ct.load(V, (h, j, 0), (1, TN, D), padding_mode=ct.PaddingMode.ZERO).reshape((TN, D))
        acc = ct.mma(p.astype(V.dtype), v, acc * alpha)
        state = top, l, acc
    ct.store(O, (h, i, 0), (state[2] / state[1]).reshape((1, TM, D)).astype(O.dtype))
