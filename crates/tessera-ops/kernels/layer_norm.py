"""y = (x - mean) / sqrt(var + eps) * weight + bias over the last axis, statistics in ACC, two passes over the row.

The variance is the mean of squared deviations: E[x^2] - mean^2 cancels when the mean is large. Long rows are shared by the blocks of a
cluster, where there are some. Those that its registers, or else a block's, cannot hold are taken in pieces of CHUNK, all blocks
together: a block leaves the mean of one piece and its squared deviations from that, and writes the results of the piece that lies BEHIND
it, which it finds in the cache. It waits for blocks of lower numbers alone, which start before it and leave what they find before they
wait (Merrill and Garland, 2016, "Single-pass Parallel Prefix Scan with Decoupled Look-back", rely on the same order). Means and
deviations of pieces are put together after Chan, Golub and LeVeque (1983).
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


def leave(x, means, squares, mean, scale, arrived, eps, at, ACC, CHUNK, PIECES, PARTS, N):
    """The mean of a piece and its squared deviations from that; and, where it is the last of its row, those of the row."""
    i, j = at // PIECES, at % PIECES
    v = ct.load(x, (i, j), (1, CHUNK), padding_mode=ct.PaddingMode.ZERO).astype(ACC)
    if N % CHUNK == 0:
        own = ct.sum(v, axis=1, keepdims=True) / CHUNK
        d = v - own
    else:
        count = min(N - j * CHUNK, CHUNK)
        own = ct.sum(v, axis=1, keepdims=True) / ct.full((1, 1), count, ACC)
        d = ct.where(ct.arange(CHUNK, dtype=ct.int32)[None, :] < count, v - own, 0.0)
    ct.store(means, (i, j), own)
    ct.store(squares, (i, j), ct.sum(d * d, axis=1, keepdims=True))
    if ct.atomic_add(arrived, i, 1) == PIECES - 1:
        total = ct.zeros((1, 1), ACC)
        for k in range(ct.cdiv(PIECES, PARTS)):
            parts = ct.load(means, (i, k), (1, PARTS), padding_mode=ct.PaddingMode.ZERO)
            total = total + ct.sum(parts * counts(k, ACC, CHUNK, PARTS, N), axis=1, keepdims=True)
        whole = total / N
        total = ct.zeros((1, 1), ACC)
        for k in range(ct.cdiv(PIECES, PARTS)):
            apart = ct.load(means, (i, k), (1, PARTS), padding_mode=ct.PaddingMode.ZERO) - whole
            parts = ct.load(squares, (i, k), (1, PARTS), padding_mode=ct.PaddingMode.ZERO)
            total = total + ct.sum(parts + counts(k, ACC, CHUNK, PARTS, N) * apart * apart, axis=1, keepdims=True)
        ct.store(mean, (i, 0), whole)
        ct.store(scale, (i, 0), ct.rsqrt(total / N + eps))
        ct.atomic_add(arrived, i, 1, memory_order=ct.MemoryOrder.RELEASE)


def counts(k, ACC, CHUNK, PARTS, N):
    """Elements of some pieces; none of those behind the row."""
    left = N - (k * PARTS + ct.arange(PARTS, dtype=ct.int32)) * CHUNK
    return ct.maximum(ct.minimum(left, CHUNK), 0).astype(ACC)[None, :]


def is_known(arrived, i, PIECES):
    """Whether all of a row have come, and what they left is put together."""
    return ct.load(arrived, (i,), (), memory_order=ct.MemoryOrder.ACQUIRE, memory_scope=ct.MemoryScope.DEVICE) > PIECES


@tessera.kernel(num_warps=8, occupancy=3)
def layer_norm_pieces(
    x,
    weight,
    bias,
    means,
    squares,
    mean,
    scale,
    arrived,
    y,
    eps: float,
    ACC: ct.Constant,
    CHUNK: ct.Constant[int],
    PIECES: ct.Constant[int],
    PARTS: ct.Constant[int],
    BEHIND: ct.Constant[int],
    N: ct.Constant[int],
):
    at = ct.bid(0)
    # Both pieces are on their way at once.
    i, j = max(at - BEHIND, 0) // PIECES, max(at - BEHIND, 0) % PIECES
    v = ct.load(x, (i, j), (1, CHUNK))
    if at < x.shape[0] * PIECES:
        leave(x, means, squares, mean, scale, arrived, eps, at, ACC, CHUNK, PIECES, PARTS, N)
    if at >= BEHIND:
        w = ct.load(weight, (j,), (CHUNK,))
        b = ct.load(bias, (j,), (CHUNK,))
        while not is_known(arrived, i, PIECES):
            pass
        centre, factor = ct.load(mean, (i, 0), (1, 1)), ct.load(scale, (i, 0), (1, 1))
        gone = ct.atomic_add(arrived, i, 1, memory_order=ct.MemoryOrder.RELAXED)
        ct.store(y, (i, j), ((v.astype(ACC) - centre) * factor * w.astype(ACC) + b.astype(ACC)).astype(y.dtype))
        if gone == 2 * PIECES:
            ct.atomic_xchg(arrived, i, 0, memory_order=ct.MemoryOrder.RELAXED)
