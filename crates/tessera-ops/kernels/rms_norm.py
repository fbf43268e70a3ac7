"""y = x / sqrt(mean(x^2) + eps) * weight over the last axis, statistics in ACC (Zhang and Sennrich, 2019).

Long rows are shared by the blocks of a cluster, where there are some. Those that its registers, or else a block's, cannot hold are taken in pieces
of CHUNK, all blocks together: a block leaves the sum of one piece's squares, and writes
the results of the piece that lies BEHIND it, which it finds in the cache. It waits for blocks of lower numbers alone, which start
before it and leave what they find before they wait (Merrill and Garland, 2016, "Single-pass Parallel Prefix Scan with Decoupled Look-back",
rely on the same order).
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


def leave(x, squares, scale, arrived, eps, at, ACC, CHUNK, PIECES, PARTS, N):
    """The sum of a piece's squares; and, where it is the last of its row, what the row is scaled by."""
    i, j = at // PIECES, at % PIECES
    v = ct.load(x, (i, j), (1, CHUNK), padding_mode=ct.PaddingMode.ZERO).astype(ACC)
    ct.store(squares, (i, j), ct.sum(v * v, axis=1, keepdims=True))
    if ct.atomic_add(arrived, i, 1) == PIECES - 1:
        total = ct.zeros((1, 1), ACC)
        for k in range(ct.cdiv(PIECES, PARTS)):
            parts = ct.load(squares, (i, k), (1, PARTS), padding_mode=ct.PaddingMode.ZERO)
            total = total + ct.sum(parts, axis=1, keepdims=True)
        ct.store(scale, (i, 0), ct.rsqrt(total / N + eps))
        ct.atomic_add(arrived, i, 1, memory_order=ct.MemoryOrder.RELEASE)


def is_known(arrived, i, PIECES):
    """Whether all of a row have come, and what they left is put together."""
    return ct.load(arrived, (i,), (), memory_order=ct.MemoryOrder.ACQUIRE, memory_scope=ct.MemoryScope.DEVICE) > PIECES


@tessera.kernel(num_warps=8, occupancy=4)
def rms_norm_pieces(
    x,
    weight,
    squares,
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
        leave(x, squares, scale, arrived, eps, at, ACC, CHUNK, PIECES, PARTS, N)
    if at >= BEHIND:
        w = ct.load(weight, (j,), (CHUNK,))
        while not is_known(arrived, i, PIECES):
            pass
        factor = ct.load(scale, (i, 0), (1, 1))
        gone = ct.atomic_add(arrived, i, 1, memory_order=ct.MemoryOrder.RELAXED)
        ct.store(y, (i, j), (v.astype(ACC) * factor * w.astype(ACC)).astype(y.dtype))
        if gone == 2 * PIECES:
            ct.atomic_xchg(arrived, i, 0, memory_order=ct.MemoryOrder.RELAXED)
