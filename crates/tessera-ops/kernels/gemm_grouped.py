"""C = A x op(B) for groups of rows: rows offsets[g] to offsets[g + 1] of A times the matrix g of B; op transposes or not.

A block computes one TM x TN tile of C whose rows are of one group, accumulated in ACC and stored in C's type. A tile begins where its group
does or a whole number of tiles further on, wherever that is among A's rows; rows of the next group are read and not stored. STEPS: 2 to its
power is no less than the number of groups. THIN: few rows a group; the transposed product, since the tensor cores take no fewer than 64 rows
and as few as 8 columns.
"""
import cuda.tile as ct
import tessera

ZERO = ct.PaddingMode.ZERO


def place(offsets, number, TM, STEPS):
    """The group of a tile, the tile's first row, and the row behind the group's last one.

    Group g has the tiles from number offsets[g] // TM + g on. These numbers rise with g, so bisection finds the group, and no tiles of others need
    be counted; and there are as many between two of them as the group's rows fill, or one more, which begins behind them.
    """
    last = offsets.shape[0] - 2
    group = 0
    for step in ct.static_iter(range(STEPS)):
        later = min(group + (1 << (STEPS - 1 - step)), last)
        group = ct.where(ct.load(offsets, (later,), ()) // TM + later <= number, later, group)
    first = ct.load(offsets, (group,), ())
    row = first + (number - group - first // TM) * TM
    return group, row, ct.load(offsets, (group + 1,), ())


def load_right(B, group, k, j, TK, TN, TRANSPOSE):
    if TRANSPOSE:
        tile = ct.load(B, (group, k, j), (1, TK, TN), order=(0, 2, 1), padding_mode=ZERO)
    else:
        tile = ct.load(B, (group, k, j), (1, TK, TN), padding_mode=ZERO)
    return tile.reshape((TK, TN))


@tessera.kernel
def gemm_grouped(A, B, offsets, C, K: int, COMPUTE: ct.Constant, ACC: ct.Constant,
                 TM: ct.Constant[int], TN: ct.Constant[int], TK: ct.Constant[int],
                 STEPS: ct.Constant[int], TRANSPOSE_B: ct.Constant[bool], THIN: ct.Constant[bool]):
    j = ct.bid(1)
    group, row, end = place(offsets, ct.bid(0), TM, STEPS)
    left = A.tiled_view((TM, TK), padding_mode=ZERO, traversal_steps=(1, TK))
    acc = ct.zeros((TN, TM), ACC) if THIN else ct.zeros((TM, TN), ACC)
    for k in range(ct.where(row < end, ct.cdiv(K, TK), 0)):
        a = left.load((row, k)).astype(COMPUTE)
        b = load_right(B, group, k, j, TK, TN, TRANSPOSE_B).astype(COMPUTE)
        acc = ct.mma(ct.transpose(b), ct.transpose(a), acc) if THIN else ct.mma(a, b, acc)
    out = (ct.transpose(acc) if THIN else acc).astype(C.dtype)
    # What has all its rows leaves as a box.
    if row + TM <= end:
        C.tiled_view((TM, TN), traversal_steps=(1, TN)).store((row, j), out)
    else:
        C.slice(0, 0, min(end, C.shape[0])).tiled_view((TM, TN), traversal_steps=(1, TN)).store((row, j), out)
