"""Logarithms of a softmax over the last axis, and the gradients of it and of the softmax, in ACC:

    log_softmax            y = (x - max(x)) - log(sum of exp(x - max(x)))
    softmax_backward       dx = y * (dy - sum(y * dy))            y is the softmax
    log_softmax_backward   dx = dy - exp(y) * sum(dy)             y is its logarithm

Long rows are shared by the blocks of a cluster, where there are some. Those that its registers, or else a block's, cannot hold are taken in
pieces of CHUNK, all blocks together: a block leaves what it finds of one piece, and writes the results of the piece that lies BEHIND it, which
it finds in the cache. It waits for blocks of lower numbers alone, which start before it and leave what they find before they wait (Merrill and
Garland, 2016, "Single-pass Parallel Prefix Scan with Decoupled Look-back", rely on the same order).
"""
import cuda.tile as ct
import tessera

ZERO = ct.PaddingMode.ZERO
LOG2_E = 1.4426950408889634


def power(distance, ACC):
    # Below 2**-126 nothing is left of a probability.
    return ct.exp2(distance * LOG2_E, flush_to_zero=ACC == ct.float32)


@tessera.kernel
def log_softmax(x, y, ACC: ct.Constant, ROWS: ct.Constant[int], N: ct.Constant[int]):
    i = ct.bid(0)
    v = ct.load(x, (i, 0), (ROWS, N), padding_mode=ZERO).astype(ACC)
    d = v - ct.max(v, axis=1, keepdims=True)
    ct.store(y, (i, 0), (d - ct.log(ct.sum(power(d, ACC), axis=1, keepdims=True))).astype(y.dtype))


def lowest(ACC):
    """The lowest finite number: nothing finite lies below, as masks do that are the lowest of their own type."""
    return -1.7976931348623157e308 if ACC == ct.float64 else -3.4028234663852886e38


def leave(x, tops, sums, top, scale, arrived, at, ACC, CHUNK, PIECES, PARTS, N):
    """The largest element of a piece and its sum below that; and, where it is the last of its row, the row's largest and the sum's logarithm."""
    i, j = at // PIECES, at % PIECES
    v = ct.load(x, (i, j), (1, CHUNK), padding_mode=ZERO).astype(ACC)
    if N % CHUNK != 0:
        v = ct.where(ct.arange(CHUNK, dtype=ct.int32)[None, :] < N - j * CHUNK, v, -float("inf"))
    # A finite start: a piece that is all -inf has no part in the sum.
    most = ct.maximum(ct.max(v, axis=1, keepdims=True), lowest(ACC))
    ct.store(tops, (i, j), most)
    ct.store(sums, (i, j), ct.sum(power(v - most, ACC), axis=1, keepdims=True))
    if ct.atomic_add(arrived, i, 1) == PIECES - 1:
        most = ct.full((1, 1), lowest(ACC), ACC)
        whole = ct.zeros((1, 1), ACC)
        for k in range(ct.cdiv(PIECES, PARTS)):
            parts = ct.load(tops, (i, k), (1, PARTS), padding_mode=ct.PaddingMode.NEG_INF)
            above = ct.maximum(most, ct.max(parts, axis=1, keepdims=True))
            parts = power(parts - above, ACC) * ct.load(sums, (i, k), (1, PARTS), padding_mode=ZERO)
            whole = whole * power(most - above, ACC) + ct.sum(parts, axis=1, keepdims=True)
            most = above
        ct.store(top, (i, 0), most)
        ct.store(scale, (i, 0), ct.log(whole))
        ct.atomic_add(arrived, i, 1, memory_order=ct.MemoryOrder.RELEASE)


def is_known(arrived, i, PIECES):
    """Whether all of a row have come, and what they left is put together."""
    return ct.load(arrived, (i,), (), memory_order=ct.MemoryOrder.ACQUIRE, memory_scope=ct.MemoryScope.DEVICE) > PIECES


def is_done(arrived, i, PIECES):
    """Counts a piece whose results can be written; the last one of a row sets the count back."""
    if ct.atomic_add(arrived, i, 1, memory_order=ct.MemoryOrder.RELAXED) == 2 * PIECES:
        ct.atomic_xchg(arrived, i, 0, memory_order=ct.MemoryOrder.RELAXED)


@tessera.kernel(num_warps=8, occupancy=4)
def log_softmax_pieces(
    x,
    tops,
    sums,
    top,
    scale,
    arrived,
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
        leave(x, tops, sums, top, scale, arrived, at, ACC, CHUNK, PIECES, PARTS, N)
    if at >= BEHIND:
        while not is_known(arrived, i, PIECES):
            pass
        most, below = ct.load(top, (i, 0), (1, 1)), ct.load(scale, (i, 0), (1, 1))
        is_done(arrived, i, PIECES)
        ct.store(y, (i, j), ((v.astype(ACC) - most) - below).astype(y.dtype))


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
    ct.store(dx, (i, 0), (p * (d - ct.sum(p * d, axis=1, keepdims=True))).astype(dx.dtype))


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
    whole,
    arrived,
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
        ct.store(sums, (row, k), ct.sum(term(v, g, LOG, ACC), axis=1, keepdims=True))
        if ct.atomic_add(arrived, row, 1) == PIECES - 1:
            total = ct.zeros((1, 1), ACC)
            for part in range(ct.cdiv(PIECES, PARTS)):
                total = total + ct.sum(ct.load(sums, (row, part), (1, PARTS), padding_mode=ZERO), axis=1, keepdims=True)
            ct.store(whole, (row, 0), total)
            ct.atomic_add(arrived, row, 1, memory_order=ct.MemoryOrder.RELEASE)
    if at >= BEHIND:
        while not is_known(arrived, i, PIECES):
            pass
        total = ct.load(whole, (i, 0), (1, 1))
        is_done(arrived, i, PIECES)
        ct.store(dx, (i, j), gradient(p, d, total, LOG, ACC).astype(dx.dtype))
