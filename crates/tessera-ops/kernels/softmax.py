"""Softmax over the last axis: exp(x - max) / sum, in ACC, by powers of two. Causal: row q of a square keeps columns up to q, the rest is
written as 0.

A row is divided once: its elements are multiplied by the sum's reciprocal. Long rows are shared by the blocks of a cluster, where there
are some. Those that its registers, or else a block's, cannot hold are taken in pieces of CHUNK, all blocks together: a block leaves the
largest element and the sum of one piece, and writes the results of the piece that lies BEHIND it, which it finds in the cache. It waits
for blocks of lower numbers alone, which start before it and leave what they find before they wait (Merrill and Garland, 2016,
"Single-pass Parallel Prefix Scan with Decoupled Look-back", rely on the same order).
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


def lowest(ACC):
    """The lowest finite number: nothing finite lies below, as masks do that are the lowest of their own type."""
    return -1.7976931348623157e308 if ACC == ct.float64 else -3.4028234663852886e38


def leave(x, tops, sums, top, scale, arrived, at, ACC, CHUNK, PIECES, PARTS, N):
    """The largest element of a piece and its sum below that; and, where it is the last of its row, those of the row."""
    i, j = at // PIECES, at % PIECES
    v = ct.load(x, (i, j), (1, CHUNK), padding_mode=ct.PaddingMode.ZERO).astype(ACC)
    if N % CHUNK != 0:
        v = ct.where(ct.arange(CHUNK, dtype=ct.int32)[None, :] < N - j * CHUNK, v, -float("inf"))
    # A finite start: a piece that is all -inf has no part in the sum.
    most = ct.maximum(ct.max(v, axis=1, keepdims=True), lowest(ACC))
    ct.store(tops, (i, j), most)
    ct.store(sums, (i, j), ct.sum(power((v - most) * 1.4426950408889634, ACC), axis=1, keepdims=True))
    if ct.atomic_add(arrived, i, 1) == PIECES - 1:
        most = ct.full((1, 1), lowest(ACC), ACC)
        whole = ct.zeros((1, 1), ACC)
        for k in range(ct.cdiv(PIECES, PARTS)):
            parts = ct.load(tops, (i, k), (1, PARTS), padding_mode=ct.PaddingMode.NEG_INF)
            above = ct.maximum(most, ct.max(parts, axis=1, keepdims=True))
            parts = power((parts - above) * 1.4426950408889634, ACC)
            parts = parts * ct.load(sums, (i, k), (1, PARTS), padding_mode=ct.PaddingMode.ZERO)
            whole = whole * power((most - above) * 1.4426950408889634, ACC) + ct.sum(parts, axis=1, keepdims=True)
            most = above
        ct.store(top, (i, 0), most)
        ct.store(scale, (i, 0), 1.0 / whole)
        ct.atomic_add(arrived, i, 1, memory_order=ct.MemoryOrder.RELEASE)


def is_known(arrived, i, PIECES):
    """Whether all of a row have come, and what they left is put together."""
    return ct.load(arrived, (i,), (), memory_order=ct.MemoryOrder.ACQUIRE, memory_scope=ct.MemoryScope.DEVICE) > PIECES


@tessera.kernel(num_warps=8, occupancy=4)
def softmax_pieces(
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
        most, factor = ct.load(top, (i, 0), (1, 1)), ct.load(scale, (i, 0), (1, 1))
        gone = ct.atomic_add(arrived, i, 1, memory_order=ct.MemoryOrder.RELAXED)
        e = power((v.astype(ACC) - most) * 1.4426950408889634, ACC)
        ct.store(y, (i, j), (e * factor).astype(y.dtype))
        if gone == 2 * PIECES:
            ct.atomic_xchg(arrived, i, 0, memory_order=ct.MemoryOrder.RELAXED)


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
