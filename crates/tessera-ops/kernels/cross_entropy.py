"""Logarithms of sums of exponentials over rows, the cross entropy of logits and class numbers, and their gradients, in ACC:

    log_sum_exp             y = log(sum of exp(x))
    log_sum_exp_backward    dx = exp(x - y) * dy
    cross_entropy           lse = log_sum_exp(x), loss = lse - x[label], or 0 where the label is the one to ignore
    cross_entropy_backward  dx = exp(x - lse) * (dloss + dlse) - [column is the label] * dloss, with 0 for the dloss of a row to ignore

Short rows lie in registers, of four warps: what is found once a row is found by all threads that have it. Of long ones a block takes some
pieces, and the last block of a row to come puts together what all have left, in their order. As the forward pass gives `lse`, the gradients
know all of a row beforehand: they are taken tile by tile, whatever a row's length.
"""
import cuda.tile as ct
import tessera
from .partial import of_threads, partial_shape, whole_pieces

ZERO = ct.PaddingMode.ZERO
# Tiles of a piece, which are read together, so that a partial sum moves to a new largest element once for all of a thread's.
AT_ONCE = 4
LOG2_E = 1.4426950408889634
LN_2 = 0.6931471805599453
LOG = (
    -1.1514610310e-1,
    1.1676998740e-1,
    -1.2420140846e-1,
    1.4249322787e-1,
    -1.6668057665e-1,
    2.0000714765e-1,
    -2.4999993993e-1,
    3.3333331174e-1,
)


def power(distance, ACC):
    return ct.exp2(distance * LOG2_E, flush_to_zero=ACC == ct.float32)


def below(a, top, ACC):
    """exp(a - top), of infinities, too: an element that is the largest has all of its own part, whatever it is."""
    return ct.where(a == top, 1.0, power(a - top, ACC))


def log(x, ACC):
    """The logarithm of a sum of powers: in fp32 to some roundings, for a few instructions, since all threads of a row find it."""
    if ACC != ct.float32:
        return ct.log(x)
    # x = 2^exponent (1 + f), from the root of 1/2 to that of 2; the polynomial is that of Cephes' logf.
    bits = ct.bitcast(x, ct.int32)
    exponent = (bits - 0x3F3504F3) >> 23
    f = ct.bitcast(bits - (exponent << 23), ct.float32) - 1.0
    p = 7.0376836292e-2
    for c in LOG:
        p = p * f + c
    y = f + f * f * (f * p - 0.5) + exponent.astype(ct.float32) * LN_2
    # Sums are 0, infinite, NaN, or normal numbers.
    return ct.where(x == 0.0, -float("inf"), ct.where(x < float("inf"), y, x))


def finite(most):
    """What powers are taken below: 0 where the largest is infinite. Its power is then infinite, or all of them are 0."""
    return ct.where(ct.abs(most) < float("inf"), most, 0.0)


def in_rows(x, ACC):
    v = x.astype(ACC)
    top = finite(ct.max(v, axis=1, keepdims=True))
    return top + log(ct.sum(power(v - top, ACC), axis=1, keepdims=True), ACC)


def rows_of(i, ROWS):
    return i * ROWS + ct.arange(ROWS, dtype=ct.int32)[:, None]


def labelled(x, labels, i, ACC, ROWS):
    """The labels of rows, and their logits."""
    row = rows_of(i, ROWS)
    label = ct.gather(labels, row)
    return label, ct.gather(x, (row, label)).astype(ACC)


def loss_of(lse, label, own, ignore_index):
    return ct.where(label == ignore_index, 0.0, lse - own)


@tessera.kernel(num_warps=4)
def log_sum_exp(x, y, ACC: ct.Constant, ROWS: ct.Constant[int], N: ct.Constant[int]):
    i = ct.bid(0)
    ct.scatter(y, rows_of(i, ROWS), in_rows(ct.load(x, (i, 0), (ROWS, N), padding_mode=ZERO), ACC))


@tessera.kernel(num_warps=4)
def cross_entropy(x, labels, loss, lse, ignore_index: int, ACC: ct.Constant, ROWS: ct.Constant[int], N: ct.Constant[int]):
    i = ct.bid(0)
    v = ct.load(x, (i, 0), (ROWS, N), padding_mode=ZERO)
    label, own = labelled(x, labels, i, ACC, ROWS)
    y = in_rows(v, ACC)
    # Numbers of a row stay with the threads that have it.
    ct.scatter(lse, rows_of(i, ROWS), y)
    ct.scatter(loss, rows_of(i, ROWS), loss_of(y, label, own, ignore_index))


def add_powers(most, total, tiles, VECTOR, ACC):
    """What tiles add to partial sums of powers, of which each thread has one, below the largest element that it has seen."""
    vectors = [of_threads(v.astype(ACC), VECTOR) for v in tiles]
    above = most
    for v in vectors:
        above = ct.maximum(above, ct.max(v, axis=1, keepdims=True, propagate_nan=True), propagate_nan=True)
    top = finite(above)
    total = ct.where(total == 0.0, 0.0, total * power(finite(most) - top, ACC))
    for v in vectors:
        total = total + ct.sum(power(v - top, ACC), axis=1, keepdims=True)
    return above, total


def in_parts(x, tops, sums, arrived, ACC, CHUNK, TILES, PARTS, VECTOR, N):
    """What a block's pieces of a row come to. True, with the row's result, in the block that finds all others done."""
    i, part = ct.bid(0), ct.bid(1)
    WIDE = CHUNK // AT_ONCE
    shape = partial_shape(WIDE, VECTOR)
    most, total = ct.full(shape, -float("inf"), ACC), ct.zeros(shape, ACC)
    for k in whole_pieces(part, TILES, PARTS, CHUNK, N):
        tiles = [ct.load(x, (i, k * AT_ONCE + t), (1, WIDE)) for t in range(AT_ONCE)]
        most, total = add_powers(most, total, tiles, VECTOR, ACC)
    if N % CHUNK != 0 and part == PARTS - 1:
        first = N // CHUNK * AT_ONCE
        LEFT = ct.cdiv(N % CHUNK, WIDE)
        tiles = [ct.load(x, (i, first + t), (1, WIDE), padding_mode=ct.PaddingMode.NEG_INF) for t in range(LEFT)]
        most, total = add_powers(most, total, tiles, VECTOR, ACC)
    top = ct.max(most, axis=0, keepdims=True, propagate_nan=True)
    sum_below = ct.sum(total * below(most, top, ACC), axis=0, keepdims=True)
    if PARTS == 1:
        return True, top + ct.log(sum_below)
    ct.store(tops, (i, part), top)
    ct.store(sums, (i, part), sum_below)
    last = ct.atomic_add(arrived, i, 1) == ct.num_blocks(1) - 1
    y = ct.zeros((1, 1), ACC)
    if last:
        ct.atomic_xchg(arrived, i, 0, memory_order=ct.MemoryOrder.RELAXED)
        parts = ct.load(tops, (i, 0), (1, PARTS), padding_mode=ct.PaddingMode.NEG_INF)
        top = ct.max(parts, axis=1, keepdims=True, propagate_nan=True)
        all = below(parts, top, ACC) * ct.load(sums, (i, 0), (1, PARTS), padding_mode=ZERO)
        y = top + ct.log(ct.sum(all, axis=1, keepdims=True))
    return last, y


@tessera.kernel(num_warps=8)
def log_sum_exp_parts(
    x,
    tops,
    sums,
    arrived,
    y,
    ACC: ct.Constant,
    CHUNK: ct.Constant[int],
    TILES: ct.Constant[int],
    PARTS: ct.Constant[int],
    VECTOR: ct.Constant[int],
    N: ct.Constant[int],
):
    last, result = in_parts(x, tops, sums, arrived, ACC, CHUNK, TILES, PARTS, VECTOR, N)
    if last:
        ct.store(y, (ct.bid(0),), ct.reshape(result, (1,)))


@tessera.kernel(num_warps=8)
def cross_entropy_parts(
    x,
    labels,
    tops,
    sums,
    arrived,
    loss,
    lse,
    ignore_index: int,
    ACC: ct.Constant,
    CHUNK: ct.Constant[int],
    TILES: ct.Constant[int],
    PARTS: ct.Constant[int],
    VECTOR: ct.Constant[int],
    N: ct.Constant[int],
):
    last, result = in_parts(x, tops, sums, arrived, ACC, CHUNK, TILES, PARTS, VECTOR, N)
    if last:
        i = ct.bid(0)
        ct.store(lse, (i,), ct.reshape(result, (1,)))
        label, own = labelled(x, labels, i, ACC, 1)
        ct.store(loss, (i,), ct.reshape(loss_of(result, label, own, ignore_index), (1,)))


def column(a, i, ROWS):
    """A number a row, beside the row."""
    return ct.reshape(ct.load(a, (i,), (ROWS,), padding_mode=ZERO), (ROWS, 1))


def tile(dx, COLUMNS):
    """The place of a block's tile: its row of tiles, and where it stands there."""
    across = ct.cdiv(dx.shape[1], COLUMNS)
    return ct.bid(0) // across, ct.bid(0) % across


@tessera.kernel
def log_sum_exp_backward(x, y, dy, dx, ACC: ct.Constant, ROWS: ct.Constant[int], COLUMNS: ct.Constant[int]):
    i, j = tile(dx, COLUMNS)
    v = ct.load(x, (i, j), (ROWS, COLUMNS), padding_mode=ZERO).astype(ACC)
    ct.store(dx, (i, j), (power(v - column(y, i, ROWS), ACC) * column(dy, i, ROWS)).astype(dx.dtype))


@tessera.kernel
def cross_entropy_backward(
    x, labels, lse, dloss, dlse, dx, ignore_index: int, ACC: ct.Constant, ROWS: ct.Constant[int], COLUMNS: ct.Constant[int]
):
    i, j = tile(dx, COLUMNS)
    v = ct.load(x, (i, j), (ROWS, COLUMNS), padding_mode=ZERO).astype(ACC)
    label = column(labels, i, ROWS)
    d = ct.where(label == ignore_index, 0.0, column(dloss, i, ROWS))
    own = j * COLUMNS + ct.arange(COLUMNS, dtype=ct.int32)[None, :] == label
    both = power(v - column(lse, i, ROWS), ACC) * (d + column(dlse, i, ROWS))
    ct.store(dx, (i, j), (both - ct.where(own, d, 0.0)).astype(dx.dtype))
