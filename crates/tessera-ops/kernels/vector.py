"""Vector operations: axpy, add, mul elementwise; dot, norm, reduce_sum, reduce_max over everything, in one launch.

Arithmetic is in ACC whatever the storage type. Each block of a reduction leaves one partial result, over its tiles in a fixed order, and
counts itself in `arrived`. The one that finds all others counted combines what they have left, in the order of the blocks: so a result
never depends on how they are scheduled. It also sets the count back to 0, from where the next launch starts. A block that is alone (PARTS is 1)
leaves nothing: its partial result is the result.
"""
import cuda.tile as ct
import tessera


@tessera.kernel
def axpy(x, y, z, alpha: float, ACC: ct.Constant, TILE: ct.Constant[int]):
    i = ct.bid(0)
    a = ct.load(x, (i,), (TILE,)).astype(ACC)
    b = ct.load(y, (i,), (TILE,)).astype(ACC)
    ct.store(z, (i,), (a * alpha + b).astype(z.dtype))


@tessera.kernel
def add(x, y, z, ACC: ct.Constant, TILE: ct.Constant[int]):
    i = ct.bid(0)
    a = ct.load(x, (i,), (TILE,)).astype(ACC)
    b = ct.load(y, (i,), (TILE,)).astype(ACC)
    ct.store(z, (i,), (a + b).astype(z.dtype))


@tessera.kernel
def mul(x, y, z, ACC: ct.Constant, TILE: ct.Constant[int]):
    i = ct.bid(0)
    a = ct.load(x, (i,), (TILE,)).astype(ACC)
    b = ct.load(y, (i,), (TILE,)).astype(ACC)
    ct.store(z, (i,), (a * b).astype(z.dtype))


def in_groups(v, GROUP):
    """Sums of GROUP neighbours: on a GPU those of one access, which a thread adds up before it adds them to its running sums. So it holds few of
    these, and many threads have loads on their way."""
    if GROUP == 1:
        return v
    return ct.sum(ct.reshape(v, (v.shape[0] // GROUP, GROUP)), axis=1)


def share(x, TILE):
    """The tiles of a block, from one to before another: as many for each block, or one more."""
    tiles, at = ct.cdiv(x.shape[0], TILE), ct.bid(0)
    each, more = tiles // ct.num_blocks(0), tiles % ct.num_blocks(0)
    first = at * each + min(at, more)
    return first, first + each + min(max(more - at, 0), 1)


def is_last(partial, partials, arrived, PARTS):
    """Leaves a block's result. True in the block that leaves the last one, which sees all others'."""
    if PARTS == 1:
        return True
    ct.store(partials, (ct.bid(0),), partial)
    last = ct.atomic_add(arrived, 0, 1) == ct.num_blocks(0) - 1
    if last:
        ct.store(arrived, (0,), ct.zeros((1,), arrived.dtype))
    return last


def total(partial, partials, PARTS):
    """The sum of what all blocks have left, of which `partial` is one."""
    if PARTS == 1:
        return partial
    acc = ct.zeros((PARTS,), partials.dtype)
    for i in range(ct.cdiv(partials.shape[0], PARTS)):
        acc = acc + ct.load(partials, (i,), (PARTS,), padding_mode=ct.PaddingMode.ZERO)
    return ct.sum(acc, axis=0, keepdims=True)


@tessera.kernel(num_warps=8, occupancy=5)
def reduce_sum(
    x,
    partials,
    arrived,
    result,
    ACC: ct.Constant,
    TILE: ct.Constant[int],
    GROUP: ct.Constant[int],
    PARTS: ct.Constant[int],
):
    first, last = share(x, TILE)
    acc = ct.zeros((TILE // GROUP,), ACC)
    for i in range(first, last):
        a = ct.load(x, (i,), (TILE,), padding_mode=ct.PaddingMode.ZERO).astype(ACC)
        acc = acc + in_groups(a, GROUP)
    partial = ct.sum(acc, axis=0, keepdims=True)
    if is_last(partial, partials, arrived, PARTS):
        ct.store(result, (0,), total(partial, partials, PARTS).astype(result.dtype))


@tessera.kernel(num_warps=8, occupancy=5)
def dot(
    x,
    y,
    partials,
    arrived,
    result,
    ACC: ct.Constant,
    TILE: ct.Constant[int],
    GROUP: ct.Constant[int],
    PARTS: ct.Constant[int],
):
    first, last = share(x, TILE)
    acc = ct.zeros((TILE // GROUP,), ACC)
    for i in range(first, last):
        a = ct.load(x, (i,), (TILE,), padding_mode=ct.PaddingMode.ZERO).astype(ACC)
        b = ct.load(y, (i,), (TILE,), padding_mode=ct.PaddingMode.ZERO).astype(ACC)
        acc = acc + in_groups(a * b, GROUP)
    partial = ct.sum(acc, axis=0, keepdims=True)
    if is_last(partial, partials, arrived, PARTS):
        ct.store(result, (0,), total(partial, partials, PARTS).astype(result.dtype))


@tessera.kernel(num_warps=8, occupancy=5)
def norm(
    x,
    partials,
    arrived,
    result,
    ACC: ct.Constant,
    TILE: ct.Constant[int],
    GROUP: ct.Constant[int],
    PARTS: ct.Constant[int],
):
    first, last = share(x, TILE)
    acc = ct.zeros((TILE // GROUP,), ACC)
    for i in range(first, last):
        a = ct.load(x, (i,), (TILE,), padding_mode=ct.PaddingMode.ZERO).astype(ACC)
        acc = acc + in_groups(a * a, GROUP)
    partial = ct.sum(acc, axis=0, keepdims=True)
    if is_last(partial, partials, arrived, PARTS):
        ct.store(result, (0,), ct.sqrt(total(partial, partials, PARTS)).astype(result.dtype))


def in_groups_max(v, GROUP):
    return v if GROUP == 1 else ct.max(ct.reshape(v, (v.shape[0] // GROUP, GROUP)), axis=1)


def least(x):
    return ct.PaddingMode.ZERO if x.dtype == ct.float8_e4m3fn else ct.PaddingMode.NEG_INF


def largest(partial, partials, PARTS):
    """The largest number that blocks have left, of which `partial` is one."""
    if PARTS == 1:
        return partial
    most = ct.full((PARTS,), -float("inf"), partials.dtype)
    for i in range(ct.cdiv(partials.shape[0], PARTS)):
        most = ct.maximum(most, ct.load(partials, (i,), (PARTS,), padding_mode=ct.PaddingMode.NEG_INF))
    return ct.max(most, axis=0, keepdims=True)


@tessera.kernel(num_warps=8, occupancy=5)
def reduce_max(
    x,
    partials,
    arrived,
    result,
    ACC: ct.Constant,
    TILE: ct.Constant[int],
    GROUP: ct.Constant[int],
    PARTS: ct.Constant[int],
):
    first, last = share(x, TILE)
    acc = ct.full((TILE // GROUP,), -float("inf"), ACC)
    # 8-bit floats that have no infinity cannot be padded by one: what is behind the end of their last tile is masked.
    whole = min(last, x.shape[0] // TILE) if x.dtype == ct.float8_e4m3fn else last
    for i in range(first, whole):
        acc = ct.maximum(acc, in_groups_max(ct.load(x, (i,), (TILE,), padding_mode=least(x)).astype(ACC), GROUP))
    if x.dtype == ct.float8_e4m3fn:
        if whole < last:
            a = ct.load(x, (whole,), (TILE,), padding_mode=ct.PaddingMode.ZERO).astype(ACC)
            a = ct.where(ct.arange(TILE, dtype=ct.int32) < x.shape[0] - whole * TILE, a, -float("inf"))
            acc = ct.maximum(acc, in_groups_max(a, GROUP))
    partial = ct.max(acc, axis=0, keepdims=True)
    if is_last(partial, partials, arrived, PARTS):
        ct.store(result, (0,), largest(partial, partials, PARTS).astype(result.dtype))
