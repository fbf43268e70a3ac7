"""Softmax over the last axis: exp(x - max) / sum, in ACC, by powers of two. Causal: row q of a square keeps columns up to q, the rest is
written as 0.

A row is divided once: its elements are multiplied by the sum's reciprocal. A row that registers cannot hold goes by in pieces of CHUNK,
twice: first its largest element and the sum of what lies below that, then the results; the second time it comes from the cache.
"""
import cuda.tile as ct
import tessera


def exp(distance, ACC):
    # Below 2**-126 nothing is left of a probability. The product's error is that of the subtraction before it.
    return ct.exp2(distance * 1.4426950408889634, flush_to_zero=ACC == ct.float32)


@tessera.kernel
def softmax(x, y, ACC: ct.Constant, ROWS: ct.Constant[int], N: ct.Constant[int]):
    i = ct.bid(0)
    v = ct.load(x, (i, 0), (ROWS, N), padding_mode=ct.PaddingMode.ZERO).astype(ACC)
    e = exp(v - ct.max(v, axis=1, keepdims=True), ACC)
    ct.store(y, (i, 0), (e * (1.0 / ct.sum(e, axis=1, keepdims=True))).astype(y.dtype))


@tessera.kernel
def softmax_wide(x, y, ACC: ct.Constant, CHUNK: ct.Constant[int], N: ct.Constant[int]):
    i = ct.bid(0)
    # A finite start: a piece that is all -inf has no part in the sum.
    top = ct.full((1, 1), -3.0e38, ACC)
    sums = ct.zeros((1, CHUNK), ACC)
    # The next piece is on its way while threads meet.
    ahead = ct.load(x, (i, 0), (1, CHUNK), padding_mode=ct.PaddingMode.ZERO).astype(ACC)
    for j in range(ct.cdiv(N, CHUNK)):
        v = ahead
        ahead = ct.load(x, (i, j + 1), (1, CHUNK), padding_mode=ct.PaddingMode.ZERO).astype(ACC)
        if N % CHUNK != 0:
            v = ct.where(ct.arange(CHUNK, dtype=ct.int32)[None, :] < N - j * CHUNK, v, -float("inf"))
        most = ct.maximum(top, ct.max(v, axis=1, keepdims=True))
        sums = sums * exp(top - most, ACC) + exp(v - most, ACC)
        top = most
    scale = 1.0 / ct.sum(sums, axis=1, keepdims=True)
    for j in range(ct.cdiv(N, CHUNK)):
        v = ct.load(x, (i, j), (1, CHUNK)).astype(ACC)
        ct.store(y, (i, j), (exp(v - top, ACC) * scale).astype(y.dtype))


@tessera.kernel
def softmax_causal(x, y, ACC: ct.Constant, ROWS: ct.Constant[int], N: ct.Constant[int], QUERIES: ct.Constant[int]):
    i = ct.bid(0)
    v = ct.load(x, (i, 0), (ROWS, N), padding_mode=ct.PaddingMode.ZERO).astype(ACC)
    query = (i * ROWS + ct.arange(ROWS, dtype=ct.int32)) % QUERIES + (N - QUERIES)
    keep = ct.arange(N, dtype=ct.int32)[None, :] <= query[:, None]
    v = ct.where(keep, v, -float("inf"))
    e = exp(v - ct.max(v, axis=1, keepdims=True), ACC)
    ct.store(y, (i, 0), (e * (1.0 / ct.sum(e, axis=1, keepdims=True))).astype(y.dtype))
