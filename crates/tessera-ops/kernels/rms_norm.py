"""y = x / sqrt(mean(x^2) + eps) * weight over the last axis, statistics in ACC (Zhang and Sennrich, 2019).

Long rows are shared by the blocks of a cluster, where there are some. Those that its registers, or else a block's, cannot hold are taken in pieces,
all blocks together (`pieces.py`).
"""
import cuda.tile as ct
import tessera
from .pieces import is_last, leave, set_back, sum_of_row


@tessera.kernel
def rms_norm(x, weight, y, eps: float, ACC: ct.Constant, ROWS: ct.Constant[int], N: ct.Constant[int]):
    i = ct.bid(0)
    v = ct.load(x, (i, 0), (ROWS, N), padding_mode=ct.PaddingMode.ZERO).astype(ACC)
    scale = ct.rsqrt(ct.sum(v * v, axis=1, keepdims=True) / N + eps)
    w = ct.load(weight, (0,), (N,)).astype(ACC)
    ct.store(y, (i, 0), (v * scale * w).astype(y.dtype))


@tessera.kernel
def rms_norm_alike(
    x, weight, y, eps: float, ACC: ct.Constant, STEP: ct.Constant[int], AHEAD: ct.Constant[bool], N: ct.Constant[int]
):
    """Rows that are no whole vectors, but begin alike among them: every STEP rows. AHEAD: the next one is on its way meanwhile."""
    w = ct.load(weight, (0,), (N,))
    if AHEAD:
        v = ct.load(x, (ct.bid(0), 0), (1, N), padding_mode=ct.PaddingMode.ZERO)
    for i in range(ct.bid(0), x.shape[0], STEP):
        if AHEAD:
            next = ct.load(x, (i + STEP, 0), (1, N), padding_mode=ct.PaddingMode.ZERO)
        else:
            v = ct.load(x, (i, 0), (1, N))
        d = v.astype(ACC)
        scale = ct.rsqrt(ct.sum(d * d, axis=1, keepdims=True) / N + eps)
        ct.store(y, (i, 0), (d * scale * w.astype(ACC)).astype(y.dtype))
        if AHEAD:
            v = next


@tessera.kernel(num_warps=8, occupancy=4)
def rms_norm_pieces(
    x,
    weight,
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
        row, k = at // PIECES, at % PIECES
        u = ct.load(x, (row, k), (1, CHUNK), padding_mode=ct.PaddingMode.ZERO).astype(ACC)
        leave(squares, row, k, ct.sum(u * u, axis=1, keepdims=True))
    if at >= BEHIND:
        w = ct.load(weight, (j,), (CHUNK,))
        scale = ct.rsqrt(sum_of_row(squares, i, ACC, PIECES, PARTS) / N + eps)
        ct.store(y, (i, j), (v.astype(ACC) * scale * w.astype(ACC)).astype(y.dtype))
        if is_last(gone, i, PIECES):
            set_back(squares, i, PIECES, PARTS)
