"""Logarithms of a softmax over the last axis, and the gradients of it and of the softmax, in ACC:

    log_softmax            y = (x - max(x)) - log(sum of exp(x - max(x)))
    softmax_backward       dx = y * (dy - sum(y * dy))            y is the softmax
    log_softmax_backward   dx = dy - exp(y) * sum(dy)             y is its logarithm

Long rows are shared by the blocks of a cluster, where there are some. Those that its registers, or else a block's, cannot hold are taken in
pieces, all blocks together (`pieces.py`).
"""
import cuda.tile as ct
import tessera
from .pieces import is_last, leave, leave_powers, power, powers_of_row, set_back, sum_of_row

ZERO = ct.PaddingMode.ZERO


@tessera.kernel
def log_softmax(x, y, ACC: ct.Constant, ROWS: ct.Constant[int], N: ct.Constant[int]):
    i = ct.bid(0)
    v = ct.load(x, (i, 0), (ROWS, N), padding_mode=ZERO).astype(ACC)
    d = v - ct.max(v, axis=1, keepdims=True)
    ct.store(y, (i, 0), (d - ct.log(ct.sum(power(d, ACC), axis=1, keepdims=True))).astype(y.dtype))


@tessera.kernel(num_warps=8, occupancy=4)
def log_softmax_pieces(
    x,
    tops,
    sums,
    gone,
    y,
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
        leave_powers(x, tops, sums, at // PIECES, at % PIECES, ACC, CHUNK, N, N % CHUNK != 0)
    if at >= BEHIND:
        most, total = powers_of_row(tops, sums, i, ACC, PIECES, PARTS)
        ct.store(y, (i, j), ((v.astype(ACC) - most) - ct.log(total)).astype(y.dtype))
        if is_last(gone, i, PIECES):
            set_back(tops, i, PIECES, PARTS)
            set_back(sums, i, PIECES, PARTS)


def term(y, dy, LOG, ACC):
    """What the sum of a row is of."""
    return dy.astype(ACC) if LOG else y.astype(ACC) * dy.astype(ACC)


def gradient(y, dy, total, LOG, ACC):
    if LOG:
        return dy.astype(ACC) - power(y.astype(ACC), ACC) * total
    return y.astype(ACC) * (dy.astype(ACC) - total)


@tessera.kernel
def softmax_gradient(y, dy, dx, LOG: ct.Constant[bool], ACC: ct.Constant, ROWS: ct.Constant[int], N: ct.Constant[int]):
    i = ct.bid(0)
    p, d = ct.load(y, (i, 0), (ROWS, N), padding_mode=ZERO), ct.load(dy, (i, 0), (ROWS, N), padding_mode=ZERO)
    total = ct.sum(term(p, d, LOG, ACC), axis=1, keepdims=True)
    ct.store(dx, (i, 0), gradient(p, d, total, LOG, ACC).astype(dx.dtype))


def seen(y, dy, dx, i, ACC, ROWS, SEEN, N, QUERIES):
    """A block's rows where no row sees a column from SEEN on."""
    query = (i * ROWS + ct.arange(ROWS, dtype=ct.int32)) % QUERIES + (N - QUERIES)
    keep = ct.arange(SEEN, dtype=ct.int32)[None, :] <= query[:, None]
    p = ct.load(y, (i, 0), (ROWS, SEEN), padding_mode=ZERO).astype(ACC)
    d = ct.load(dy, (i, 0), (ROWS, SEEN), padding_mode=ZERO).astype(ACC)
    p, d = ct.where(keep, p, 0.0), ct.where(keep, d, 0.0)
    # Of a row with NaN the sum is NaN, too, and what is not seen stays 0.
    g = ct.where(keep, p * (d - ct.sum(p * d, axis=1, keepdims=True)), 0.0)
    ct.store(dx, (i, 0), g.astype(dx.dtype))


@tessera.kernel
def softmax_gradient_causal(y, dy, dx, ACC: ct.Constant, ROWS: ct.Constant[int], N: ct.Constant[int], QUERIES: ct.Constant[int]):
    i = ct.bid(0)
    # Where lines are whole vectors, rows that see half of the columns take half of the work.
    if N % 32 == 0 and QUERIES % ROWS == 0:
        if (i * ROWS) % QUERIES + ROWS <= QUERIES - N // 2:
            seen(y, dy, dx, i, ACC, ROWS, N // 2, N, QUERIES)
            ct.store(dx, (i, 1), ct.zeros((ROWS, N // 2), dx.dtype))
        else:
            seen(y, dy, dx, i, ACC, ROWS, N, N, QUERIES)
    else:
        seen(y, dy, dx, i, ACC, ROWS, N, N, QUERIES)


@tessera.kernel(num_warps=8, occupancy=4)
def softmax_gradient_pieces(
    y,
    dy,
    sums,
    gone,
    dx,
    LOG: ct.Constant[bool],
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
    p, d = ct.load(y, (i, j), (1, CHUNK)), ct.load(dy, (i, j), (1, CHUNK))
    if at < y.shape[0] * PIECES:
        row, k = at // PIECES, at % PIECES
        v, g = ct.load(y, (row, k), (1, CHUNK), padding_mode=ZERO), ct.load(dy, (row, k), (1, CHUNK), padding_mode=ZERO)
        leave(sums, row, k, ct.sum(term(v, g, LOG, ACC), axis=1, keepdims=True))
    if at >= BEHIND:
        total = sum_of_row(sums, i, ACC, PIECES, PARTS)
        ct.store(dx, (i, j), gradient(p, d, total, LOG, ACC).astype(dx.dtype))
        if is_last(gone, i, PIECES):
            set_back(sums, i, PIECES, PARTS)
