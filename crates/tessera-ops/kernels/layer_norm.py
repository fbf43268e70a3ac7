"""y = (x - mean) / sqrt(var + eps) * weight + bias over the last axis, statistics in ACC, two passes over the row.

The variance is the mean of squared deviations: E[x^2] - mean^2 cancels when the mean is large. A row that registers cannot hold goes by in
pieces of CHUNK, twice; the second time it comes from the cache. Deviations are then from the first piece's mean: a fraction f of the row
that is off by d adds at least f d^2 to the variance, so that no more than a factor 1 / f is lost. Long rows of which there are few are
shared out: each piece's block leaves the piece's mean and its squared deviations from that, and then writes its piece by what all have
left.
"""
import cuda.tile as ct
import tessera


@tessera.kernel
def layer_norm(x, weight, bias, y, eps: float, ACC: ct.Constant, ROWS: ct.Constant[int], N: ct.Constant[int]):
    i = ct.bid(0)
    v = ct.load(x, (i, 0), (ROWS, N), padding_mode=ct.PaddingMode.ZERO).astype(ACC)
    mean = ct.sum(v, axis=1, keepdims=True) / N
    d = v - mean
    var = ct.sum(d * d, axis=1, keepdims=True) / N
    scale = ct.rsqrt(var + eps)
    w = ct.load(weight, (0,), (N,)).astype(ACC)
    b = ct.load(bias, (0,), (N,)).astype(ACC)
    ct.store(y, (i, 0), (d * scale * w + b).astype(y.dtype))


@tessera.kernel
def layer_norm_wide(x, weight, bias, y, eps: float, ACC: ct.Constant, CHUNK: ct.Constant[int], N: ct.Constant[int]):
    i = ct.bid(0)
    first = ct.load(x, (i, 0), (1, CHUNK)).astype(ACC)
    shift = ct.sum(first, axis=1, keepdims=True) / CHUNK
    sums = ct.zeros((1, CHUNK), ACC)
    squares = ct.zeros((1, CHUNK), ACC)
    for j in range(ct.cdiv(N, CHUNK)):
        d = ct.load(x, (i, j), (1, CHUNK)).astype(ACC) - shift
        if N % CHUNK != 0:
            d = ct.where(ct.arange(CHUNK, dtype=ct.int32)[None, :] < N - j * CHUNK, d, 0.0)
        sums = sums + d
        squares = squares + d * d
    moved = ct.sum(sums, axis=1, keepdims=True) / N
    mean = shift + moved
    var = ct.sum(squares, axis=1, keepdims=True) / N - moved * moved
    scale = ct.rsqrt(var + eps)
    for j in range(ct.cdiv(N, CHUNK)):
        v = ct.load(x, (i, j), (1, CHUNK)).astype(ACC)
        w = ct.load(weight, (j,), (CHUNK,)).astype(ACC)
        b = ct.load(bias, (j,), (CHUNK,)).astype(ACC)
        ct.store(y, (i, j), ((v - mean) * scale * w + b).astype(y.dtype))


@tessera.kernel
def layer_norm_parts(x, means, squares, ACC: ct.Constant, CHUNK: ct.Constant[int], N: ct.Constant[int]):
    i, j = ct.bid(0), ct.bid(1)
    v = ct.load(x, (i, j), (1, CHUNK), padding_mode=ct.PaddingMode.ZERO).astype(ACC)
    if N % CHUNK == 0:
        mean = ct.sum(v, axis=1, keepdims=True) / CHUNK
        d = v - mean
    else:
        count = min(N - j * CHUNK, CHUNK)
        mean = ct.sum(v, axis=1, keepdims=True) / ct.full((1, 1), count, ACC)
        d = ct.where(ct.arange(CHUNK, dtype=ct.int32)[None, :] < count, v - mean, 0.0)
    ct.store(means, (i, j), mean)
    ct.store(squares, (i, j), ct.sum(d * d, axis=1, keepdims=True))


@tessera.kernel
def layer_norm_join(
    x,
    weight,
    bias,
    means,
    squares,
    y,
    eps: float,
    ACC: ct.Constant,
    CHUNK: ct.Constant[int],
    PIECES: ct.Constant[int],
    N: ct.Constant[int],
):
    i, j = ct.bid(0), ct.bid(1)
    v = ct.load(x, (i, j), (1, CHUNK), padding_mode=ct.PaddingMode.ZERO).astype(ACC)
    w = ct.load(weight, (j,), (CHUNK,), padding_mode=ct.PaddingMode.ZERO).astype(ACC)
    b = ct.load(bias, (j,), (CHUNK,), padding_mode=ct.PaddingMode.ZERO).astype(ACC)
    counts = ct.minimum(N - ct.arange(PIECES, dtype=ct.int32) * CHUNK, CHUNK).astype(ACC)[None, :]
    all = ct.load(means, (i, 0), (1, PIECES))
    mean = ct.sum(all * counts, axis=1, keepdims=True) / N
    apart = all - mean
    var = ct.sum(ct.load(squares, (i, 0), (1, PIECES)) + counts * apart * apart, axis=1, keepdims=True) / N
    ct.store(y, (i, j), ((v - mean) * ct.rsqrt(var + eps) * w + b).astype(y.dtype))
