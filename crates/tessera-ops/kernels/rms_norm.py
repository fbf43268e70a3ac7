"""y = x / sqrt(mean(x^2) + eps) * weight over the last axis, statistics in ACC (Zhang and Sennrich, 2019).

A row that registers cannot hold goes by in pieces of CHUNK, twice; the second time it comes from the cache. Long rows of which there are
few are shared out: each piece's block leaves the sum of its squares, and then writes its piece by what all have left.
"""
import cuda.tile as ct
import tessera


@tessera.kernel
def rms_norm(x, weight, y, eps: float, ACC: ct.Constant, ROWS: ct.Constant[int], N: ct.Constant[int]):
    i = ct.bid(0)
    v = ct.load(x, (i, 0), (ROWS, N), padding_mode=ct.PaddingMode.ZERO).astype(ACC)
    scale = ct.rsqrt(ct.sum(v * v, axis=1, keepdims=True) / N + eps)
    w = ct.load(weight, (0,), (N,)).astype(ACC)
    ct.store(y, (i, 0), (v * scale * w).astype(y.dtype))


@tessera.kernel
def rms_norm_wide(x, weight, y, eps: float, ACC: ct.Constant, CHUNK: ct.Constant[int], N: ct.Constant[int]):
    i = ct.bid(0)
    squares = ct.zeros((1, CHUNK), ACC)
    for j in range(ct.cdiv(N, CHUNK)):
        v = ct.load(x, (i, j), (1, CHUNK), padding_mode=ct.PaddingMode.ZERO).astype(ACC)
        squares = squares + v * v
    scale = ct.rsqrt(ct.sum(squares, axis=1, keepdims=True) / N + eps)
    for j in range(ct.cdiv(N, CHUNK)):
        v = ct.load(x, (i, j), (1, CHUNK)).astype(ACC)
        w = ct.load(weight, (j,), (CHUNK,)).astype(ACC)
        ct.store(y, (i, j), (v * scale * w).astype(y.dtype))


@tessera.kernel
def rms_norm_parts(x, squares, ACC: ct.Constant, CHUNK: ct.Constant[int]):
    i, j = ct.bid(0), ct.bid(1)
    v = ct.load(x, (i, j), (1, CHUNK), padding_mode=ct.PaddingMode.ZERO).astype(ACC)
    ct.store(squares, (i, j), ct.sum(v * v, axis=1, keepdims=True))


@tessera.kernel
def rms_norm_join(
    x, weight, squares, y, eps: float, ACC: ct.Constant, CHUNK: ct.Constant[int], PIECES: ct.Constant[int], N: ct.Constant[int]
):
    i, j = ct.bid(0), ct.bid(1)
    v = ct.load(x, (i, j), (1, CHUNK), padding_mode=ct.PaddingMode.ZERO).astype(ACC)
    w = ct.load(weight, (j,), (CHUNK,), padding_mode=ct.PaddingMode.ZERO).astype(ACC)
    all = ct.sum(ct.load(squares, (i, 0), (1, PIECES)), axis=1, keepdims=True)
    ct.store(y, (i, j), (v * ct.rsqrt(all / N + eps) * w).astype(y.dtype))
