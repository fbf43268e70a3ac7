"""Softmax over the last axis: exp(x - max) / sum, in ACC, by powers of two. Causal: row q of a square keeps columns up to q, the rest is
written as 0.

A row is divided once: its elements are multiplied by the sum's reciprocal. Long rows are shared by the blocks of a cluster, where there
are some. Those that its registers, or else a block's, cannot hold are taken in pieces, all blocks together (`pieces.py`).
"""
import cuda.tile as ct
import tessera
from .pieces import before, is_last, leave, leave_powers, lowest, powers_of_row, set_back


def exp2(distance, ACC):
    # Below 2**-126 nothing is left of a probability.
    return ct.exp2(distance, flush_to_zero=ACC == ct.float32)


def exp(v, top, dtype, ACC):
    """exp(v - top), up to a factor that all of a row have. Of numbers that stay finite times 1.45, by a product and a sum in one, where
    rounding `top` makes that factor; of others the product's error is that of the subtraction before it."""
    if dtype == ct.float16 or dtype == ct.float8_e4m3fn:
        return exp2(v * 1.4426950408889634 - top * 1.4426950408889634, ACC)
    return exp2((v - top) * 1.4426950408889634, ACC)


@tessera.kernel
def softmax(x, y, ACC: ct.Constant, ROWS: ct.Constant[int], N: ct.Constant[int]):
    i = ct.bid(0)
    v = ct.load(x, (i, 0), (ROWS, N), padding_mode=ct.PaddingMode.ZERO).astype(ACC)
    e = exp(v, ct.max(v, axis=1, keepdims=True), x.dtype, ACC)
    ct.store(y, (i, 0), (e * (1.0 / ct.sum(e, axis=1, keepdims=True))).astype(y.dtype))


def seen_by(i, N, QUERIES):
    """Columns that row i sees: all, or those of a square up to its own."""
    return N if QUERIES == 0 else i % QUERIES + (N - QUERIES) + 1


@tessera.kernel(num_warps=8, occupancy=4)
def softmax_pieces(
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
    QUERIES: ct.Constant[int],
):
    """QUERIES is 0 where rows see all columns."""
    at = ct.bid(0)
    i, j = max(at - BEHIND, 0) // PIECES, max(at - BEHIND, 0) % PIECES
    seen = seen_by(i, N, QUERIES)
    # Both pieces are on their way at once. Of one that is not seen nothing is read: another one of its row stands for it.
    v = ct.load(x, (i, j if QUERIES == 0 else min(j, (seen - 1) // CHUNK)), (1, CHUNK))
    if at < x.shape[0] * PIECES:
        row, piece = at // PIECES, at % PIECES
        end = seen_by(row, N, QUERIES)
        if piece * CHUNK < end:
            leave_powers(x, tops, sums, row, piece, ACC, CHUNK, end, QUERIES != 0 or N % CHUNK != 0)
        else:
            leave(tops, row, piece, ct.full((1, 1), lowest(ACC), ACC))
            leave(sums, row, piece, ct.zeros((1, 1), ACC))
    if at >= BEHIND:
        most, total = powers_of_row(tops, sums, i, ACC, PIECES, PARTS)
        p = exp2((v.astype(ACC) - most) * 1.4426950408889634, ACC) * (1.0 / total)
        if QUERIES != 0:
            # Of a row with NaN the sum is NaN, too, and what is not seen stays 0.
            p = ct.where(before(j, CHUNK, seen), p, 0.0)
        ct.store(y, (i, j), p.astype(y.dtype))
        if is_last(gone, i, PIECES):
            set_back(tops, i, PIECES, PARTS)
            set_back(sums, i, PIECES, PARTS)


def visible(x, y, i, ACC, ROWS, SEEN, N, QUERIES):
    """A block's rows where no row sees a column from SEEN on."""
    v = ct.load(x, (i, 0), (ROWS, SEEN), padding_mode=ct.PaddingMode.ZERO).astype(ACC)
    query = (i * ROWS + ct.arange(ROWS, dtype=ct.int32)) % QUERIES + (N - QUERIES)
    keep = ct.arange(SEEN, dtype=ct.int32)[None, :] <= query[:, None]
    v = ct.where(keep, v, -float("inf"))
    e = exp(v, ct.max(v, axis=1, keepdims=True), x.dtype, ACC)
    # Of a row with NaN the sum is NaN, too, and what is not seen stays 0.
    p = ct.where(keep, e * (1.0 / ct.sum(e, axis=1, keepdims=True)), 0.0)
    ct.store(y, (i, 0), p.astype(y.dtype))


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
