"""Softmax over the last axis: exp(x - max) / sum, in ACC, by powers of two. Causal: row q of a square keeps columns up to q, the rest is
written as 0.

A row is divided once: its elements are multiplied by the sum's reciprocal. A row that registers cannot hold goes by in pieces of CHUNK,
twice: first the largest element of each thread's GROUPs and the sum of what lies below that, then the results; the second time it comes
from the cache. Long rows of which there are few are shared out: each piece's block leaves its largest element and its sum, and then
writes its piece by what all have left.
"""
import cuda.tile as ct
import tessera


def power(distance, ACC):
    # Below 2**-126 nothing is left of a probability.
    return ct.exp2(distance, flush_to_zero=ACC == ct.float32)


def exp(v, top, dtype, ACC):
    """exp(v - top), up to a factor that all of a row have. Of numbers that stay finite times 1.45, by a product and a sum in one, where
    rounding `top` makes that factor; of others the product's error is that of the subtraction before it."""
    if dtype == ct.float16 or dtype == ct.float8_e4m3fn:
        return power(v * 1.4426950408889634 - top * 1.4426950408889634, ACC)
    return power((v - top) * 1.4426950408889634, ACC)


@tessera.kernel
def softmax(x, y, ACC: ct.Constant, ROWS: ct.Constant[int], N: ct.Constant[int]):
    i = ct.bid(0)
    v = ct.load(x, (i, 0), (ROWS, N), padding_mode=ct.PaddingMode.ZERO).astype(ACC)
    e = exp(v, ct.max(v, axis=1, keepdims=True), x.dtype, ACC)
    ct.store(y, (i, 0), (e * (1.0 / ct.sum(e, axis=1, keepdims=True))).astype(y.dtype))


@tessera.kernel
def softmax_wide(x, y, ACC: ct.Constant, CHUNK: ct.Constant[int], GROUP: ct.Constant[int], N: ct.Constant[int]):
    i = ct.bid(0)
    # A finite start: a group that is all -inf has no part in the sum. No thread waits for another until all have gone by.
    tops = ct.full((CHUNK // GROUP, 1), -3.0e38, ACC)
    sums = ct.zeros((CHUNK // GROUP, 1), ACC)
    ahead = ct.load(x, (i, 0), (1, CHUNK), padding_mode=ct.PaddingMode.ZERO)
    for j in range(ct.cdiv(N, CHUNK)):
        v = ahead.astype(ACC)
        ahead = ct.load(x, (i, j + 1), (1, CHUNK), padding_mode=ct.PaddingMode.ZERO)
        if N % CHUNK != 0:
            v = ct.where(ct.arange(CHUNK, dtype=ct.int32)[None, :] < N - j * CHUNK, v, -float("inf"))
        v = ct.reshape(v, (CHUNK // GROUP, GROUP))
        most = ct.maximum(tops, ct.max(v, axis=1, keepdims=True))
        below = ct.sum(power((v - most) * 1.4426950408889634, ACC), axis=1, keepdims=True)
        sums = sums * power((tops - most) * 1.4426950408889634, ACC) + below
        tops = most
    top = ct.max(tops, axis=0, keepdims=True)
    scale = 1.0 / ct.sum(sums * power((tops - top) * 1.4426950408889634, ACC), axis=0, keepdims=True)
    for j in range(ct.cdiv(N, CHUNK)):
        v = ct.load(x, (i, j), (1, CHUNK)).astype(ACC)
        ct.store(y, (i, j), (power((v - top) * 1.4426950408889634, ACC) * scale).astype(y.dtype))


@tessera.kernel
def softmax_parts(x, tops, sums, ACC: ct.Constant, CHUNK: ct.Constant[int], N: ct.Constant[int]):
    i, j = ct.bid(0), ct.bid(1)
    v = ct.load(x, (i, j), (1, CHUNK), padding_mode=ct.PaddingMode.ZERO).astype(ACC)
    if N % CHUNK != 0:
        v = ct.where(ct.arange(CHUNK, dtype=ct.int32)[None, :] < N - j * CHUNK, v, -float("inf"))
    top = ct.maximum(ct.max(v, axis=1, keepdims=True), -3.0e38)
    ct.store(tops, (i, j), top)
    ct.store(sums, (i, j), ct.sum(power((v - top) * 1.4426950408889634, ACC), axis=1, keepdims=True))


@tessera.kernel
def softmax_join(x, tops, sums, y, ACC: ct.Constant, CHUNK: ct.Constant[int], PIECES: ct.Constant[int]):
    i, j = ct.bid(0), ct.bid(1)
    v = ct.load(x, (i, j), (1, CHUNK), padding_mode=ct.PaddingMode.ZERO).astype(ACC)
    all = ct.load(tops, (i, 0), (1, PIECES))
    top = ct.max(all, axis=1, keepdims=True)
    parts = ct.load(sums, (i, 0), (1, PIECES)) * power((all - top) * 1.4426950408889634, ACC)
    scale = 1.0 / ct.sum(parts, axis=1, keepdims=True)
    ct.store(y, (i, j), (power((v - top) * 1.4426950408889634, ACC) * scale).astype(y.dtype))


def visible(x, y, i, ACC, ROWS, SEEN, N, QUERIES):
    """A block's rows where no row sees a column from SEEN on."""
    v = ct.load(x, (i, 0), (ROWS, SEEN), padding_mode=ct.PaddingMode.ZERO).astype(ACC)
    query = (i * ROWS + ct.arange(ROWS, dtype=ct.int32)) % QUERIES + (N - QUERIES)
    keep = ct.arange(SEEN, dtype=ct.int32)[None, :] <= query[:, None]
    v = ct.where(keep, v, -float("inf"))
    e = exp(v, ct.max(v, axis=1, keepdims=True), x.dtype, ACC)
    ct.store(y, (i, 0), (e * (1.0 / ct.sum(e, axis=1, keepdims=True))).astype(y.dtype))


@tessera.kernel
def softmax_causal(x, y, ACC: ct.Constant, ROWS: ct.Constant[int], N: ct.Constant[int], QUERIES: ct.Constant[int]):
    i = ct.bid(0)
    # Where lines are whole vectors, rows that see half of the columns take half of the work.
    if N % 32 == 0 and QUERIES % ROWS == 0:
        if (i * ROWS) % QUERIES + ROWS <= QUERIES - N // 2:
            visible(x, y, i, ACC, ROWS, N // 2, N, QUERIES)
            ct.store(y, (i, 1), ct.zeros((ROWS, N // 2), y.dtype))
        else:
            visible(x, y, i, ACC, ROWS, N, N, QUERIES)
    else:
        visible(x, y, i, ACC, ROWS, N, N, QUERIES)
