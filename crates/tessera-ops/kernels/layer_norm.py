"""y = (x - mean) / sqrt(var + eps) * weight + bias over the last axis, statistics in ACC, two passes over the row.

The variance is the mean of squared deviations: E[x^2] - mean^2 cancels when the mean is large. Long rows are shared by the blocks of a
cluster, where there are some. Those that its registers, or else a block's, cannot hold are taken in pieces, all blocks together
(`pieces.py`): each leaves its mean and its squared deviations from that, which are put together after Chan, Golub and LeVeque (1983).
"""
import cuda.tile as ct
import tessera
from .pieces import is_last, leave, left, of_row, set_back


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
def layer_norm_alike(
    x, weight, bias, y, eps: float, ACC: ct.Constant, STEP: ct.Constant[int], AHEAD: ct.Constant[bool], N: ct.Constant[int]
):
    """Rows that are no whole vectors, but begin alike among them: every STEP rows. AHEAD: the next one is on its way meanwhile."""
    w, b = ct.load(weight, (0,), (N,)), ct.load(bias, (0,), (N,))
    if AHEAD:
        v = ct.load(x, (ct.bid(0), 0), (1, N), padding_mode=ct.PaddingMode.ZERO)
    for i in range(ct.bid(0), x.shape[0], STEP):
        if AHEAD:
            next = ct.load(x, (i + STEP, 0), (1, N), padding_mode=ct.PaddingMode.ZERO)
        else:
            v = ct.load(x, (i, 0), (1, N))
        d = v.astype(ACC)
        d = d - ct.sum(d, axis=1, keepdims=True) / N
        scale = ct.rsqrt(ct.sum(d * d, axis=1, keepdims=True) / N + eps)
        ct.store(y, (i, 0), (d * scale * w.astype(ACC) + b.astype(ACC)).astype(y.dtype))
        if AHEAD:
            v = next


def find(x, means, squares, i, j, ACC, CHUNK, N):
    """Leaves the mean of a piece, and its squared deviations from that."""
    v = ct.load(x, (i, j), (1, CHUNK), padding_mode=ct.PaddingMode.ZERO).astype(ACC)
    if N % CHUNK == 0:
        mean = ct.sum(v, axis=1, keepdims=True) / CHUNK
        d = v - mean
    else:
        count = min(N - j * CHUNK, CHUNK)
        mean = ct.sum(v, axis=1, keepdims=True) / ct.full((1, 1), count, ACC)
        d = ct.where(ct.arange(CHUNK, dtype=ct.int32)[None, :] < count, v - mean, 0.0)
    leave(means, i, j, mean)
    leave(squares, i, j, ct.sum(d * d, axis=1, keepdims=True))


def counts(k, ACC, CHUNK, PARTS, N):
    """Elements of some pieces; none of those behind the row."""
    left = N - (k * PARTS + ct.arange(PARTS, dtype=ct.int32)) * CHUNK
    return ct.maximum(ct.minimum(left, CHUNK), 0).astype(ACC)[None, :]


def some(means, squares, i, k, ACC, CHUNK, PIECES, PARTS, N):
    """How many of some pieces have left nothing yet, and what the elements of the others come to; what each has left."""
    mean, square, row = left(means, i, k, PARTS), left(squares, i, k, PARTS), of_row(k, PIECES, PARTS)
    missing = ct.where(row & ((mean == 0) | (square == 0)), 1, 0)
    mean, square = ct.where(row, ct.bitcast(mean, ACC), 0.0), ct.where(row, ct.bitcast(square, ACC), 0.0)
    sum = mean * counts(k, ACC, CHUNK, PARTS, N)
    missing, sum = ct.reduce((missing, sum), 1, lambda a, b, c, d: (a + c, b + d), (0, 0.0))
    return ct.reshape(missing, ()), ct.reshape(sum, (1, 1)), mean, square


def moments_of_row(means, squares, i, ACC, CHUNK, PIECES, PARTS, N):
    """The mean of a row, and its squared deviations from that; waits until all pieces have left theirs."""
    whole, total = ct.zeros((1, 1), ACC), ct.zeros((1, 1), ACC)
    for k in range(ct.cdiv(PIECES, PARTS)):
        missing, sum, mean, square = some(means, squares, i, k, ACC, CHUNK, PIECES, PARTS, N)
        while missing > 0:
            missing, sum, mean, square = some(means, squares, i, k, ACC, CHUNK, PIECES, PARTS, N)
        before, more = k * PARTS * CHUNK, min(N - k * PARTS * CHUNK, PARTS * CHUNK)
        here = sum / more
        apart = mean - here
        total = total + ct.sum(square + counts(k, ACC, CHUNK, PARTS, N) * apart * apart, axis=1, keepdims=True)
        # Of these pieces, and of those before them.
        step = (here - whole) / (before + more)
        total = total + step * (here - whole) * before * more
        whole = whole + step * more
    return whole, total


@tessera.kernel(num_warps=8, occupancy=3)
def layer_norm_pieces(
    x,
    weight,
    bias,
    means,
    squares,
    gone,
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
        find(x, means, squares, at // PIECES, at % PIECES, ACC, CHUNK, N)
    if at >= BEHIND:
        w, b = ct.load(weight, (j,), (CHUNK,)), ct.load(bias, (j,), (CHUNK,))
        mean, total = moments_of_row(means, squares, i, ACC, CHUNK, PIECES, PARTS, N)
        scale = ct.rsqrt(total / N + eps)
        ct.store(y, (i, j), ((v.astype(ACC) - mean) * scale * w.astype(ACC) + b.astype(ACC)).astype(y.dtype))
        if is_last(gone, i, PIECES):
            set_back(means, i, PIECES, PARTS)
            set_back(squares, i, PIECES, PARTS)
