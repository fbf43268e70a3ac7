"""Elements of rows in order, with where they stood: all of them (sort), or the first K (top_k). Equal ones keep their order, and NaN counts as
the largest. LEAST: from the smallest on, else from the largest on.

An element's key is an integer that is ordered as elements are.

top_k: a block takes up to SIZE elements of a row into registers, finds the K-th largest key bit by bit, counting how many are not smaller, and
leaves the elements from it on in the order in which they stand. So of each SIZE elements K are left, in as many levels as it takes to come down
to K; a last launch puts these in order, each at the place that says how many come before it.

sort: rows on the CPU, of 64 bits, and those that are too long for one block (`sort_rows.py`): runs of RUN elements are put in order that way; then pairs of runs are merged until there is one. An element's place in both is its place in
its own, and as many more as come before it in the other one, which a search by halves finds: every element for itself.

The gradients of both: dx[indices] = dvalues, and 0 where no element came from.
"""
import cuda.tile as ct
import tessera

ZERO = ct.PaddingMode.ZERO


def is_wide(dtype):
    return dtype == ct.float64


def bits_of(dtype):
    return 64 if is_wide(dtype) else 32 if dtype == ct.float32 else 16


def absent(dtype):
    """The key of what is no element: below all others."""
    return -(2 ** (bits_of(dtype) - 1))


def keys(v, dtype, LEAST):
    if bits_of(dtype) == 64:
        bits = ct.bitcast(v, ct.int64)
    elif bits_of(dtype) == 32:
        bits = ct.bitcast(v, ct.int32)
    else:
        bits = ct.bitcast(v, ct.int16).astype(ct.int32)
    most = 2 ** (bits_of(dtype) - 1) - 1
    key = ct.where(bits < 0, bits ^ most, bits)
    # Both zeros are equal.
    key = ct.where(v.astype(ct.float64 if is_wide(dtype) else ct.float32) == 0.0, 0, key)
    nan = ct.isnan(v.astype(ct.float64 if is_wide(dtype) else ct.float32))
    if LEAST:
        # The largest key would become the one of what is absent.
        return ct.where(nan, absent(dtype) + 1, -1 - key)
    return ct.where(nan, most, key)


def leave(v, place, part, i, values, indices, LEAST, K, SIZE):
    """Leaves the K most extreme ones of a tile of a row, of which those without a place are none."""
    key = ct.where(place >= 0, keys(v, values.dtype, LEAST), absent(values.dtype))
    # The largest number that K keys are not smaller than.
    bound = ct.full((1, 1), absent(values.dtype), key.dtype)
    step = ct.full((1, 1), 2 ** (bits_of(values.dtype) - 2), key.dtype)
    # The first step is as large as the sign.
    count = ct.sum(ct.where(key >= 0, 1, 0).astype(ct.int32), axis=1, keepdims=True)
    bound = ct.where(count >= K, 0, bound)
    for b in range(bits_of(values.dtype) - 1):
        count = ct.sum(ct.where(key >= bound + step, 1, 0).astype(ct.int32), axis=1, keepdims=True)
        bound = ct.where(count >= K, bound + step, bound)
        step = step >> 1
    more = ct.where(key > bound, 1, 0).astype(ct.int32)
    equal = ct.where(key == bound, 1, 0).astype(ct.int32)
    left = K - ct.sum(more, axis=1, keepdims=True)
    taken = (key > bound) | ((key == bound) & (ct.cumsum(equal, axis=1) <= left))
    to = part * K + ct.cumsum(ct.where(taken, 1, 0).astype(ct.int32), axis=1) - 1
    row = ct.full((1, SIZE), i, ct.int32)
    ct.scatter(values, (row, to), v, mask=taken)
    ct.scatter(indices, (row, to), place, mask=taken)


@tessera.kernel
def select(x, values, indices, LEAST: ct.Constant[bool], K: ct.Constant[int], SIZE: ct.Constant[int], N: ct.Constant[int]):
    i, part = ct.bid(0), ct.bid(1)
    at = part * SIZE + ct.arange(SIZE, dtype=ct.int32)[None, :]
    leave(ct.load(x, (i, part), (1, SIZE), padding_mode=ZERO), ct.where(at < N, at, -1), part, i, values, indices, LEAST, K, SIZE)


@tessera.kernel
def select_again(
    x, places, values, indices, LEAST: ct.Constant[bool], K: ct.Constant[int], SIZE: ct.Constant[int], N: ct.Constant[int]
):
    """The same of what was left before."""
    i, part = ct.bid(0), ct.bid(1)
    at = part * SIZE + ct.arange(SIZE, dtype=ct.int32)[None, :]
    place = ct.where(at < N, ct.load(places, (i, part), (1, SIZE), padding_mode=ZERO), -1)
    leave(ct.load(x, (i, part), (1, SIZE), padding_mode=ZERO), place, part, i, values, indices, LEAST, K, SIZE)


@tessera.kernel
def order(x, places, values, indices, LEAST: ct.Constant[bool], K: ct.Constant[int]):
    """Puts K elements of a row in order."""
    i = ct.bid(0)
    v, place = ct.load(x, (i, 0), (1, K)), ct.load(places, (i, 0), (1, K))
    key = keys(v, x.dtype, LEAST)
    own, other = ct.reshape(key, (K, 1)), key
    number = ct.arange(K, dtype=ct.int32)
    before = (other > own) | ((other == own) & (number[None, :] < number[:, None]))
    to = ct.sum(ct.where(before, 1, 0).astype(ct.int32), axis=1)
    row = ct.full((K,), i, ct.int32)
    ct.scatter(values, (row, to), ct.reshape(v, (K,)))
    ct.scatter(indices, (row, to), ct.reshape(place, (K,)))


@tessera.kernel
def runs(x, values, indices, LEAST: ct.Constant[bool], RUNS: ct.Constant[int], RUN: ct.Constant[int], N: ct.Constant[int]):
    """Puts runs of a row in order, RUNS of them a block."""
    i, part = ct.bid(0), ct.bid(1)
    v = ct.reshape(ct.load(x, (i, part), (1, RUNS * RUN), padding_mode=ZERO), (RUNS, RUN))
    first = (part * RUNS + ct.arange(RUNS, dtype=ct.int32)) * RUN
    at = first[:, None] + ct.arange(RUN, dtype=ct.int32)[None, :]
    key = ct.where(at < N, keys(v, x.dtype, LEAST), absent(x.dtype))
    own, other = ct.reshape(key, (RUNS, RUN, 1)), ct.reshape(key, (RUNS, 1, RUN))
    number = ct.arange(RUN, dtype=ct.int32)
    earlier = ct.reshape(number[None, :] < number[:, None], (1, RUN, RUN))
    before = (other > own) | ((other == own) & earlier)
    to = first[:, None] + ct.sum(ct.where(before, 1, 0).astype(ct.int32), axis=2)
    row = ct.full((RUNS, RUN), i, ct.int32)
    ct.scatter(values, (row, to), v, mask=at < N)
    ct.scatter(indices, (row, to), at, mask=at < N)


@tessera.kernel
def merge(
    x,
    places,
    values,
    indices,
    run: int,
    steps: int,
    LEAST: ct.Constant[bool],
    COLUMNS: ct.Constant[int],
    N: ct.Constant[int],
):
    """Merges pairs of runs of some length."""
    i, part = ct.bid(0), ct.bid(1)
    at = part * COLUMNS + ct.arange(COLUMNS, dtype=ct.int32)
    v = ct.reshape(ct.load(x, (i, part), (1, COLUMNS), padding_mode=ZERO), (COLUMNS,))
    place = ct.reshape(ct.load(places, (i, part), (1, COLUMNS), padding_mode=ZERO), (COLUMNS,))
    key = keys(v, x.dtype, LEAST)
    own = at // run
    is_left = own % 2 == 0
    row = ct.full((COLUMNS,), i, ct.int32)
    begin = ct.minimum(ct.where(is_left, own + 1, own - 1) * run, N)
    low, high = begin, ct.minimum(begin + run, N)
    for step in range(steps):
        middle = (low + high) >> 1
        open = low < high
        found = keys(ct.gather(x, (row, middle), mask=open & (at < N)), x.dtype, LEAST)
        # Of equal elements those of the left run come first.
        before = open & ((found > key) | ((found == key) & (own % 2 == 1)))
        high = ct.where(open & ((found < key) | ((found == key) & is_left)), middle, high)
        low = ct.where(before, middle + 1, low)
    to = own // 2 * 2 * run + (at - own * run) + (low - begin)
    ct.scatter(values, (row, to), v, mask=at < N)
    ct.scatter(indices, (row, to), place, mask=at < N)


def tile(a, COLUMNS):
    """The place of a block's tile: its row of tiles, and where it stands there."""
    across = ct.cdiv(a.shape[1], COLUMNS)
    return ct.bid(0) // across, ct.bid(0) % across


@tessera.kernel
def clear(dx, ROWS: ct.Constant[int], COLUMNS: ct.Constant[int]):
    ct.store(dx, tile(dx, COLUMNS), ct.zeros((ROWS, COLUMNS), dx.dtype))


@tessera.kernel
def put_back(indices, dvalues, dx, ROWS: ct.Constant[int], COLUMNS: ct.Constant[int]):
    """The cotangents of values to where these came from: places of a row are different ones."""
    i, j = tile(indices, COLUMNS)
    to = ct.load(indices, (i, j), (ROWS, COLUMNS), padding_mode=ZERO)
    row = ct.broadcast_to(i * ROWS + ct.arange(ROWS, dtype=ct.int32)[:, None], (ROWS, COLUMNS))
    at = ct.broadcast_to(j * COLUMNS + ct.arange(COLUMNS, dtype=ct.int32)[None, :], (ROWS, COLUMNS))
    v = ct.load(dvalues, (i, j), (ROWS, COLUMNS), padding_mode=ZERO)
    ct.scatter(dx, (row, to), v, mask=(row < dvalues.shape[0]) & (at < dvalues.shape[1]))
