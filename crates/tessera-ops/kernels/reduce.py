"""Reductions of x[rows, n] over its last axis, a row at a time, and over its first one, a column at a time, in ACC; and their gradients.

OP is the name of the reduction: `sum`, `mean`, `sum_squares`, `norm` (the root of the sum of squares), `max` and `min`, which are NaN where an
element is. `arg` reductions give the place of the largest or smallest element, of equal ones the first, and of the first NaN where there is one.

Short rows lie in registers. Of long rows, and of columns, a block takes some pieces and leaves what they come to; the last block of a row, or
of some columns, to come puts together what all have left, in their order: a result never depends on how blocks are scheduled.
"""
import cuda.tile as ct
import tessera
from .partial import of_threads, partial_shape, whole_pieces

ZERO = ct.PaddingMode.ZERO
RELAXED = ct.MemoryOrder.RELAXED


def is_extreme(OP):
    return OP == "max" or OP == "min"


def padding(OP):
    """What elements outside of an array are taken for, so that they have no part in the result."""
    if OP == "max":
        return ct.PaddingMode.NEG_INF
    if OP == "min":
        return ct.PaddingMode.POS_INF
    return ZERO


def loaded(x, index, shape, inside, OP, ACC):
    """A tile, of which what is not inside has no part in the result. 8-bit floats that have no infinity cannot be padded by one."""
    if is_extreme(OP) and x.dtype == ct.float8_e4m3fn:
        v = ct.load(x, index, shape, padding_mode=ZERO).astype(ACC)
        return ct.where(inside, v, start((1, 1), OP, ACC))
    return ct.load(x, index, shape, padding_mode=padding(OP)).astype(ACC)


def in_row(k, CHUNK, N):
    return ct.arange(CHUNK, dtype=ct.int32)[None, :] < N - k * CHUNK


def start(shape, OP, ACC):
    if OP == "max":
        return ct.full(shape, -float("inf"), ACC)
    if OP == "min":
        return ct.full(shape, float("inf"), ACC)
    return ct.zeros(shape, ACC)


def term(v, OP):
    return v * v if OP == "norm" or OP == "sum_squares" else v


def combine(a, b, OP):
    if OP == "max":
        return ct.maximum(a, b, propagate_nan=True)
    if OP == "min":
        return ct.minimum(a, b, propagate_nan=True)
    return a + b


def along(v, axis, OP):
    if OP == "max":
        return ct.max(v, axis=axis, propagate_nan=True)
    if OP == "min":
        return ct.min(v, axis=axis, propagate_nan=True)
    return ct.sum(v, axis=axis)


def finish(v, count, OP):
    if OP == "mean":
        return v / count
    if OP == "norm":
        return ct.sqrt(v)
    return v


@tessera.kernel
def reduce_rows(x, y, OP: ct.Constant, ACC: ct.Constant, ROWS: ct.Constant[int], N: ct.Constant[int]):
    i = ct.bid(0)
    v = ct.load(x, (i, 0), (ROWS, N), padding_mode=ZERO).astype(ACC)
    ct.store(y, (i,), finish(along(term(v, OP), 1, OP), N, OP))


def by_thread(v, OP, VECTOR):
    """What the elements of a piece come to that a thread has."""
    found = along(of_threads(term(v, OP), VECTOR), 1, OP)
    return ct.reshape(found, (found.shape[0], 1))


@tessera.kernel(num_warps=8, occupancy=6)
def reduce_rows_parts(
    x,
    partials,
    arrived,
    y,
    OP: ct.Constant,
    ACC: ct.Constant,
    CHUNK: ct.Constant[int],
    TILES: ct.Constant[int],
    PARTS: ct.Constant[int],
    VECTOR: ct.Constant[int],
    N: ct.Constant[int],
):
    i, part = ct.bid(0), ct.bid(1)
    acc = start(partial_shape(CHUNK, VECTOR), OP, ACC)
    for k in whole_pieces(part, TILES, PARTS, CHUNK, N):
        acc = combine(acc, by_thread(ct.load(x, (i, k), (1, CHUNK)).astype(ACC), OP, VECTOR), OP)
    if N % CHUNK != 0 and part == PARTS - 1:
        k = N // CHUNK
        acc = combine(acc, by_thread(loaded(x, (i, k), (1, CHUNK), in_row(k, CHUNK, N), OP, ACC), OP, VECTOR), OP)
    whole = ct.reshape(along(acc, 0, OP), (1,))
    if PARTS == 1:
        ct.store(y, (i,), finish(whole, N, OP))
    else:
        ct.store(partials, (i, part), ct.reshape(whole, (1, 1)))
        if ct.atomic_add(arrived, i, 1) == ct.num_blocks(1) - 1:
            ct.atomic_xchg(arrived, i, 0, memory_order=RELAXED)
            all = ct.load(partials, (i, 0), (1, PARTS), padding_mode=padding(OP))
            ct.store(y, (i,), finish(along(all, 1, OP), N, OP))


@tessera.kernel(num_warps=8)
def reduce_columns(
    x,
    partials,
    arrived,
    y,
    count: int,
    OP: ct.Constant,
    ACC: ct.Constant,
    ROWS: ct.Constant[int],
    TILES: ct.Constant[int],
    COLUMNS: ct.Constant[int],
    PARTS: ct.Constant[int],
):
    j, part = ct.bid(0), ct.bid(1)
    acc = start((ROWS, COLUMNS), OP, ACC)
    for i in range(part * TILES, min(part * TILES + TILES, ct.cdiv(count, ROWS))):
        inside = (i * ROWS + ct.arange(ROWS, dtype=ct.int32) < count)[:, None]
        acc = combine(acc, term(loaded(x, (i, j), (ROWS, COLUMNS), inside, OP, ACC), OP), OP)
    if PARTS == 1:
        ct.store(y, (j,), finish(along(acc, 0, OP), ct.full((COLUMNS,), count, ACC), OP))
    else:
        ct.store(partials, (part, j), ct.reshape(along(acc, 0, OP), (1, COLUMNS)))
        if ct.atomic_add(arrived, j, 1) == PARTS - 1:
            ct.atomic_xchg(arrived, j, 0, memory_order=RELAXED)
            acc = start((ROWS, COLUMNS), OP, ACC)
            for i in range(ct.cdiv(PARTS, ROWS)):
                acc = combine(acc, ct.load(partials, (i, j), (ROWS, COLUMNS), padding_mode=padding(OP)), OP)
            ct.store(y, (j,), finish(along(acc, 0, OP), ct.full((COLUMNS,), count, ACC), OP))


def first(v, axis, OP):
    """The place of the largest or smallest element along an axis."""
    if OP == "max":
        return ct.argmax(v, axis=axis, keepdims=True, propagate_nan=True)
    return ct.argmin(v, axis=axis, keepdims=True, propagate_nan=True)


def is_better(a, b, OP):
    """Whether an element takes the place of one that stands before it."""
    more = a > b if OP == "max" else a < b
    return more | (ct.isnan(a) & (b == b))


@tessera.kernel
def arg_rows(x, y, OP: ct.Constant, ACC: ct.Constant, ROWS: ct.Constant[int], N: ct.Constant[int]):
    i = ct.bid(0)
    v = ct.load(x, (i, 0), (ROWS, N), padding_mode=ZERO).astype(ACC)
    ct.store(y, (i,), ct.reshape(first(v, 1, OP), (ROWS,)).astype(ct.int32))


def is_top(v, top):
    return (v == top) | (ct.isnan(v) & ct.isnan(top))


def better_of(best, place, v, k, OP, VECTOR):
    """The best element of each vector's place in a piece, with the piece where it is."""
    own = ct.reshape(along(ct.reshape(v, (v.shape[1] // VECTOR, VECTOR)), 1, OP), (v.shape[1] // VECTOR, 1))
    better = is_better(own, best, OP)
    return ct.where(better, own, best), ct.where(better, k, place)


@tessera.kernel(num_warps=8, occupancy=4)
def arg_rows_parts(
    x,
    partials,
    places,
    arrived,
    y,
    OP: ct.Constant,
    ACC: ct.Constant,
    CHUNK: ct.Constant[int],
    TILES: ct.Constant[int],
    PARTS: ct.Constant[int],
    VECTOR: ct.Constant[int],
    N: ct.Constant[int],
):
    i, part = ct.bid(0), ct.bid(1)
    best = start((CHUNK // VECTOR, 1), OP, ACC)
    place = ct.full((CHUNK // VECTOR, 1), part * TILES, ct.int32)
    for k in whole_pieces(part, TILES, PARTS, CHUNK, N):
        best, place = better_of(best, place, ct.load(x, (i, k), (1, CHUNK)).astype(ACC), k, OP, VECTOR)
    if N % CHUNK != 0 and part == PARTS - 1:
        k = N // CHUNK
        best, place = better_of(best, place, loaded(x, (i, k), (1, CHUNK), in_row(k, CHUNK, N), OP, ACC), k, OP, VECTOR)
    # Of vectors with equal elements the one in the earliest piece, and there the first; which element it is, is looked up.
    top = ct.reshape(along(best, 0, OP), (1, 1))
    vector = place * CHUNK + ct.arange(CHUNK // VECTOR, dtype=ct.int32)[:, None] * VECTOR
    at = ct.min(ct.where(is_top(best, top), vector, 2147483647), axis=0, keepdims=True) + ct.arange(VECTOR, dtype=ct.int32)[None, :]
    own = ct.gather(x, (i, at)).astype(ACC)
    first_of = ct.min(ct.where(is_top(own, top) & (at < N), at, 2147483647), axis=1, keepdims=True)
    if PARTS == 1:
        ct.store(y, (i,), ct.reshape(first_of, (1,)))
    else:
        ct.store(partials, (i, part), top)
        ct.store(places, (i, part), first_of)
        if ct.atomic_add(arrived, i, 1) == ct.num_blocks(1) - 1:
            ct.atomic_xchg(arrived, i, 0, memory_order=RELAXED)
            all = ct.load(partials, (i, 0), (1, PARTS), padding_mode=padding(OP))
            top = ct.reshape(along(all, 1, OP), (1, 1))
            at = ct.load(places, (i, 0), (1, PARTS), padding_mode=ZERO)
            ct.store(y, (i,), ct.min(ct.where(is_top(all, top), at, 2147483647), axis=1))


def row_number(a, i, ROWS):
    """A number a row, beside the row."""
    return ct.reshape(ct.load(a, (i,), (ROWS,), padding_mode=ZERO), (ROWS, 1))


def tile(dx, COLUMNS):
    """The place of a block's tile: its row of tiles, and where it stands there."""
    across = ct.cdiv(dx.shape[1], COLUMNS)
    return ct.bid(0) // across, ct.bid(0) % across


@tessera.kernel
def spread_rows(dy, dx, count: int, ACC: ct.Constant, ROWS: ct.Constant[int], COLUMNS: ct.Constant[int]):
    """Of sums and means each element has the same part: of sums all of a cotangent, of means of so many elements one of as many parts."""
    i, j = tile(dx, COLUMNS)
    d = ct.broadcast_to(row_number(dy, i, ROWS) / ct.full((ROWS, 1), count, ACC), (ROWS, COLUMNS))
    ct.store(dx, (i, j), d.astype(dx.dtype))


@tessera.kernel
def squares_backward(x, y, dy, dx, OP: ct.Constant, ACC: ct.Constant, ROWS: ct.Constant[int], COLUMNS: ct.Constant[int]):
    """Of a sum of squares 2 x dy; of its root x / y dy, and 0 where that is 0."""
    i, j = tile(dx, COLUMNS)
    v = ct.load(x, (i, j), (ROWS, COLUMNS), padding_mode=ZERO).astype(ACC)
    root, d = row_number(y, i, ROWS), row_number(dy, i, ROWS)
    factor = 2.0 * d if OP == "sum_squares" else ct.where(root == 0.0, 0.0, d / root)
    ct.store(dx, (i, j), (v * factor).astype(dx.dtype))


@tessera.kernel
def extreme_backward(x, y, dy, dx, ACC: ct.Constant, CHUNK: ct.Constant[int], N: ct.Constant[int]):
    """Elements that are the largest or smallest share a cotangent equally; of a row with NaN all are NaN. A row is read twice, the second time from the
    cache."""
    i = ct.bid(0)
    top, d = row_number(y, i, 1), row_number(dy, i, 1)
    count = ct.zeros((1, 1), ACC)
    for k in range(ct.cdiv(N, CHUNK)):
        v = ct.load(x, (i, k), (1, CHUNK), padding_mode=ct.PaddingMode.NAN).astype(ACC)
        count = count + ct.sum(ct.where(v == top, 1.0, 0.0).astype(ACC), axis=1, keepdims=True)
    share, others = d / count, ct.where(top == top, 0.0, top)
    for k in range(ct.cdiv(N, CHUNK)):
        v = ct.load(x, (i, k), (1, CHUNK), padding_mode=ct.PaddingMode.NAN).astype(ACC)
        ct.store(dx, (i, k), ct.where(v == top, share, others).astype(dx.dtype))
