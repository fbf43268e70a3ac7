"""Running sums along rows, from the first element on or, BACK, from the last one, in ACC.

Short rows lie in registers, WIDTH elements of them, zeros behind their ends. Long ones are cut into parts of TILES pieces: one launch leaves the
sum of each part, a second one adds to a part's running sums those of the parts before it, in their order. Where rows are many, a part is a row.
"""
import cuda.tile as ct
import tessera

ZERO = ct.PaddingMode.ZERO


@tessera.kernel
def cumsum_rows(x, y, BACK: ct.Constant[bool], ACC: ct.Constant, ROWS: ct.Constant[int], WIDTH: ct.Constant[int]):
    i = ct.bid(0)
    v = ct.load(x, (i, 0), (ROWS, WIDTH), padding_mode=ZERO).astype(ACC)
    ct.store(y, (i, 0), ct.cumsum(v, axis=1, reverse=BACK).astype(y.dtype))


@tessera.kernel(num_warps=8)
def cumsum_sums(x, sums, ACC: ct.Constant, CHUNK: ct.Constant[int], TILES: ct.Constant[int], N: ct.Constant[int]):
    i, part = ct.bid(0), ct.bid(1)
    acc = ct.zeros((1, CHUNK), ACC)
    for k in range(part * TILES, min(part * TILES + TILES, ct.cdiv(N, CHUNK))):
        acc = acc + ct.load(x, (i, k), (1, CHUNK), padding_mode=ZERO).astype(ACC)
    ct.store(sums, (i, part), ct.sum(acc, axis=1, keepdims=True))


@tessera.kernel(num_warps=8)
def cumsum_parts(
    x,
    sums,
    y,
    BACK: ct.Constant[bool],
    ACC: ct.Constant,
    CHUNK: ct.Constant[int],
    TILES: ct.Constant[int],
    PARTS: ct.Constant[int],
    N: ct.Constant[int],
):
    i, part = ct.bid(0), ct.bid(1)
    carry = ct.zeros((1, 1), ACC)
    if PARTS > 1:
        number = ct.arange(PARTS, dtype=ct.int32)[None, :]
        before = number > part if BACK else number < part
        all = ct.load(sums, (i, 0), (1, PARTS), padding_mode=ZERO)
        carry = ct.sum(ct.where(before, all, 0.0), axis=1, keepdims=True)
    first, last = part * TILES, min(part * TILES + TILES, ct.cdiv(N, CHUNK))
    for step in range(first, last):
        k = first + last - 1 - step if BACK else step
        v = ct.load(x, (i, k), (1, CHUNK), padding_mode=ZERO).astype(ACC)
        ct.store(y, (i, k), (ct.cumsum(v, axis=1, reverse=BACK) + carry).astype(y.dtype))
        carry = carry + ct.sum(v, axis=1, keepdims=True)
