"""Products with sparse matrices in CSR form: row r has the elements row_offsets[r] to row_offsets[r + 1] of values and columns. Sums are in ACC.

By rows: LANES threads take a row. By merging (Merrill and Garland, 2016, "Merge-based Parallel Sparse Matrix-vector Multiplication"): the ends of
rows and the elements are merged to one list, of which everybody takes as many items, whatever the lengths of rows:

```text
rows a b c d of 2, 0, 3, 1 elements     list   0 1 a b 2 3 4 c 5 d        three items each: 0 1 a | b 2 3 | 4 c 5 | d
```

Of each part the row that ends first and what follows the last end (the `tail`) may be shared with other parts. Who has a row's end adds the tails
that belong to it, in the order of the parts: so results never depend on the order of blocks. In `spmv_merge` the block that has the end does so,
when the blocks before it, which start first, have left their tails; elsewhere a second kernel.
"""
import cuda.tile as ct
import tessera
from tessera import Tensor, int32, int64, tile

# Items of a thread in `spmv_merge`: odd, so that neighbours' lie in different banks.
ITEMS = 11
THREADS = 128
PART = ITEMS * THREADS
# Elements of which a thread has the loads on their way together, where each brings a part of a row of a dense matrix.
BATCH = 8


def over_lanes(total, LANES):
    """The sum of LANES neighbours, in all of them."""
    if LANES > 1:
        total = over_lanes(total + tile.shuffle_xor(total, LANES // 2), LANES // 2)
    return total


def ends_before(place, low, high, row_offsets, ITEM):
    """How many rows end among the first `place` items, `low` to `high`; the end of a row is itself so many items. A warp looks at 32 at a time."""
    while low < high:
        step = (high - low + 31) >> 5
        row = low + (tile.lane_id() + 1) * step - 1
        ends = 0
        if row < high:
            if row_offsets[row + 1] + row * ITEM < place:
                ends = 1
        low += tile.warp_reduce_sum(ends) * step
        high = tile.min(high, low + step - 1)
    return low


def start(part, size, columns, row_offsets):
    """How many rows end before a part of the merged list."""
    rows = row_offsets.shape[0] - 1
    elements = columns.shape[0]
    place = tile.min(part * size, rows + elements)
    return ends_before(place, tile.max(place - elements, 0), tile.min(place, rows), row_offsets, 1)


@tessera.kernel
def spmv_rows(values: Tensor["Z", dtype], columns: Tensor["Z", int32], row_offsets: Tensor["B", int32], x: Tensor["N", dtype],
              y: Tensor["M", dtype], ACC: ct.Constant, LANES: ct.Constant[int]):
    row = tile.block_id() * (tile.block_size() // LANES) + tile.thread_id() // LANES
    lane = tile.thread_id() % LANES
    total = tile.cast(0, ACC)
    if row < y.shape[0]:
        for i in range(row_offsets[row] + lane, row_offsets[row + 1], LANES):
            total += tile.cast(values[i], ACC) * tile.cast(x[columns[i]], ACC)
    total = over_lanes(total, LANES)
    if row < y.shape[0] and lane == 0:
        y[row] = tile.cast(total, y.dtype)


@tessera.kernel
def spmv_merge(values: Tensor["Z", dtype], columns: Tensor["Z", int32], row_offsets: Tensor["B", int32], x: Tensor["N", dtype],
               tails: Tensor["P", word], y: Tensor["M", dtype], ACC: ct.Constant):
    """A block takes a part. Its tail is one word that is not 0, since a sum of 0 is left as -0: it is complete when it is seen."""
    ends = tile.alloc_shared[int32](PART + 1)
    products = tile.alloc_shared[ACC](PART + 1)
    sums = tile.alloc_shared[ACC](PART)
    bounds = tile.alloc_shared[int32](2)
    last_rows = tile.alloc_shared[int32](THREADS // 32)
    last_sums = tile.alloc_shared[ACC](THREADS // 32)
    column = tile.alloc_register[int32](ITEMS)
    product = tile.alloc_register[ACC](ITEMS)
    t = tile.thread_id()
    lane = tile.lane_id()
    warp = tile.warp_id()
    part = tile.block_id()
    if warp < 2:
        bounds[warp] = start(part + warp, PART, columns, row_offsets)
    tile.barrier()
    first = bounds[0]
    rows = bounds[1] - first
    begin = part * PART - first
    end = columns.shape[0]
    elements = tile.min(PART - rows, end - begin)
    # All loads of a thread are on their way before one is waited for. Those behind the part are another one's, but for the last elements.
    if begin + PART <= end:
        own = tile.cast(begin + t, int64)
        for e in range(ITEMS):
            column[e] = columns[own + e * THREADS]
            product[e] = tile.cast(values[own + e * THREADS], ACC)
    elif elements > 0:
        for e in range(ITEMS):
            at = tile.min(begin + t + e * THREADS, end - 1)
            column[e] = columns[at]
            product[e] = tile.cast(values[at], ACC)
    for e in range(ITEMS):
        if t + e * THREADS < elements:
            products[t + e * THREADS] = product[e] * tile.cast(x[column[e]], ACC)
    # Behind the last item there is nothing to add, and no end.
    for e in range(elements + t, PART - rows + 1, THREADS):
        products[e] = tile.cast(0, ACC)
    for r in range(t, rows, THREADS):
        ends[r] = row_offsets[first + r + 1] - begin
    if t == 0:
        ends[rows] = PART
    tile.barrier()

    place = t * ITEMS
    low = tile.max(place - (PART - rows), 0)
    high = tile.min(place, rows)
    while low < high:
        middle = (low + high) >> 1
        if ends[middle] + middle < place:
            low = middle + 1
        else:
            high = middle
    row = low
    element = place - low
    next_end = ends[row]
    total = tile.cast(0, ACC)
    for item in range(ITEMS):
        term = products[element]
        if next_end <= element:
            sums[row] = total
            total = tile.cast(0, ACC)
            row = row + 1
            next_end = ends[row]
        else:
            total = total + term
            element = element + 1

    # What threads before have of the row in which this one starts: sums of tails of equal rows.
    for step in range(5):
        other = tile.shuffle_up(total, 1 << step)
        other_row = tile.shuffle_up(row, 1 << step)
        if lane >= (1 << step) and other_row == row:
            total = other + total
    if lane == 31:
        last_rows[warp] = row
        last_sums[warp] = total
    tile.barrier()
    before = tile.cast(0, ACC)
    before_row = 0
    for w in range(warp):
        before = (before if last_rows[w] == before_row else tile.cast(0, ACC)) + last_sums[w]
        before_row = last_rows[w]
    if row == before_row:
        total = before + total
    carried = tile.shuffle_up(total, 1)
    if lane == 0:
        carried = before
    if row > low:
        sums[low] = carried + sums[low]
    # Somebody waits for the tail of a row that has begun and ends later.
    if t == THREADS - 1 and first + row < y.shape[0]:
        if row_offsets[first + row] < begin + elements:
            left = tile.bitcast(-0.0 if total == 0 else total, tails.dtype)
            tile.store(tails[part], left, order="relaxed", scope="device")
    tile.barrier()
    for r in range(t + 1, rows, THREADS):
        y[first + r] = tile.cast(sums[r], y.dtype)
    if warp == 0 and rows > 0:
        others = tile.cast(0, ACC)
        for earlier in range((row_offsets[first] + first) // PART + lane, part, 32):
            left = tile.load(tails[earlier], order="relaxed", scope="device")
            while left == 0:
                left = tile.load(tails[earlier], order="relaxed", scope="device")
            tile.store(tails[earlier], 0, order="relaxed", scope="device")
            others += tile.bitcast(left, ACC)
        others = tile.warp_reduce_sum(others)
        if lane == 0:
            y[first] = tile.cast(others + sums[0], y.dtype)


@tessera.kernel
def parts(columns: Tensor["Z", int32], row_offsets: Tensor["B", int32], starts: Tensor["S", int32], SIZE: ct.Constant[int]):
    """A warp finds the row in which a part of SIZE items starts."""
    part = tile.block_id() * (tile.block_size() // 32) + tile.warp_id()
    if part < starts.shape[0]:
        row = start(part, SIZE, columns, row_offsets)
        if tile.lane_id() == 0:
            starts[part] = row


def add_rows(sums, right, source, factor, values, columns, B, first, end, column, ACC, VECTOR):
    """Adds the rows of B that elements `first` to `end` name, each times its element."""
    for i in range(first, end, BATCH):
        for step in range(BATCH):
            at = tile.min(i + step, end - 1)
            source[step] = columns[at]
            factor[step] = tile.cast(values[at], ACC)
        for step in range(BATCH):
            for e in range(VECTOR):
                right[step, e] = B[source[step], column + e]
        for step in range(BATCH):
            if i + step < end:
                for e in range(VECTOR):
                    sums[e] = sums[e] + factor[step] * tile.cast(right[step, e], ACC)


def put_row(target, row, column, sums, ACC, VECTOR):
    """Stores the sums, and begins anew."""
    for e in range(VECTOR):
        target[row, column + e] = tile.cast(sums[e], target.dtype)
    for e in range(VECTOR):
        sums[e] = tile.cast(0, ACC)


@tessera.kernel
def spmm_rows(values: Tensor["Z", dtype], columns: Tensor["Z", int32], row_offsets: Tensor["R", int32], B: Tensor["K", "N", dtype],
              C: Tensor["M", "N", dtype], ACC: ct.Constant, LANES: ct.Constant[int], VECTOR: ct.Constant[int]):
    """LANES threads take VECTOR columns each of a row of C."""
    sums = tile.alloc_register[ACC](VECTOR)
    right = tile.alloc_register[dtype](BATCH, VECTOR)
    source = tile.alloc_register[int32](BATCH)
    factor = tile.alloc_register[ACC](BATCH)
    row = tile.block_id() * (tile.block_size() // LANES) + tile.thread_id() // LANES
    column = (tile.block_id(1) * LANES + tile.thread_id() % LANES) * VECTOR
    for e in range(VECTOR):
        sums[e] = tile.cast(0, ACC)
    if row < C.shape[0] and column < C.shape[1]:
        add_rows(sums, right, source, factor, values, columns, B, row_offsets[row], row_offsets[row + 1], column, ACC, VECTOR)
        put_row(C, row, column, sums, ACC, VECTOR)


@tessera.kernel
def spmm_merge(values: Tensor["Z", dtype], columns: Tensor["Z", int32], row_offsets: Tensor["R", int32], B: Tensor["K", "N", dtype],
               starts: Tensor["S", int32], heads: Tensor["P", "N", acc], tails: Tensor["P", "N", acc], C: Tensor["M", "N", dtype],
               ACC: ct.Constant, SIZE: ct.Constant[int], LANES: ct.Constant[int], VECTOR: ct.Constant[int]):
    """LANES threads take a part, VECTOR columns of C each. Of the row that ends first they leave what they have of it (the `head`)."""
    sums = tile.alloc_register[ACC](VECTOR)
    right = tile.alloc_register[dtype](BATCH, VECTOR)
    source = tile.alloc_register[int32](BATCH)
    factor = tile.alloc_register[ACC](BATCH)
    part = tile.block_id() * (tile.block_size() // LANES) + tile.thread_id() // LANES
    column = (tile.block_id(1) * LANES + tile.thread_id() % LANES) * VECTOR
    for e in range(VECTOR):
        sums[e] = tile.cast(0, ACC)
    if part < heads.shape[0] and column < C.shape[1]:
        first = starts[part]
        last = starts[part + 1]
        element = part * SIZE - first
        stop = tile.min((part + 1) * SIZE, C.shape[0] + columns.shape[0]) - last
        for row in range(first, last + 1):
            end = stop
            if row < last:
                end = row_offsets[row + 1]
            add_rows(sums, right, source, factor, values, columns, B, element, end, column, ACC, VECTOR)
            element = end
            if row == last:
                put_row(tails, part, column, sums, ACC, VECTOR)
            elif row == first:
                put_row(heads, part, column, sums, ACC, VECTOR)
            else:
                put_row(C, row, column, sums, ACC, VECTOR)


@tessera.kernel
def spmm_join(row_offsets: Tensor["R", int32], starts: Tensor["S", int32], heads: Tensor["P", "N", acc], tails: Tensor["P", "N", acc],
              C: Tensor["M", "N", dtype], ACC: ct.Constant, SIZE: ct.Constant[int]):
    """A thread takes a column of the row that ends first in a part: its head, and the tails of the parts before from where the row begins."""
    part = tile.block_id(0)
    column = tile.block_id(1) * tile.block_size() + tile.thread_id()
    row = starts[part]
    if starts[part + 1] > row and column < C.shape[1]:
        total = tile.cast(0, ACC)
        for before in range((row_offsets[row] + row) // SIZE, part):
            total += tails[before, column]
        C[row, column] = tile.cast(total + heads[part, column], C.dtype)


def share_out(sums, COUNT, LANES):
    """The sums of LANES neighbours, COUNT each, shared out: a lane is left with those of its part of the COUNT, or lanes have one together."""
    if LANES > 1 and COUNT > 1:
        half = COUNT // 2
        upper = (tile.lane_id() & (LANES // 2)) != 0
        for e in range(half):
            given = sums[e] if upper else sums[e + half]
            kept = sums[e + half] if upper else sums[e]
            sums[e] = kept + tile.shuffle_xor(given, LANES // 2)
        share_out(sums, half, LANES // 2)
    elif LANES > 1:
        sums[0] = over_lanes(sums[0], LANES)


@tessera.kernel
def sddmm(A: Tensor["M", "K", dtype], B: Tensor["N", "K", dtype], columns: Tensor["Z", int32], row_offsets: Tensor["R", int32],
          y: Tensor["Z", dtype], ACC: ct.Constant, EACH: ct.Constant[int], LANES: ct.Constant[int], VECTOR: ct.Constant[int],
          AT_ONCE: ct.Constant[int]):
    """A warp takes EACH elements of the pattern, of a row at a time: LANES threads take AT_ONCE of them, a row of A times as many rows of B."""
    SHARED = max(LANES // AT_ONCE, 1)
    KEPT = max(AT_ONCE // LANES, 1)
    source = tile.alloc_register[int32](AT_ONCE)
    sums = tile.alloc_register[ACC](AT_ONCE)
    left = tile.alloc_register[ACC](VECTOR)
    lane = tile.lane_id() % LANES
    own = tile.lane_id() // LANES * AT_ONCE
    element = (tile.block_id() * (tile.block_size() // 32) + tile.warp_id()) * EACH
    stop = tile.min(element + EACH, columns.shape[0])
    row = 0
    while element < stop:
        end = row_offsets[row + 1]
        if end <= element:
            row = ends_before(element + 1, row + 1, A.shape[0] - 1, row_offsets, 0)
            end = row_offsets[row + 1]
        end = tile.min(end, stop)
        while element < end:
            for e in range(AT_ONCE):
                source[e] = columns[tile.min(element + own + e, end - 1)]
                sums[e] = tile.cast(0, ACC)
            for k in range(lane * VECTOR, A.shape[1], LANES * VECTOR):
                for v in range(VECTOR):
                    left[v] = tile.cast(A[row, k + v], ACC)
                for e in range(AT_ONCE):
                    for v in range(VECTOR):
                        sums[e] = sums[e] + left[v] * tile.cast(B[source[e], k + v], ACC)
            share_out(sums, AT_ONCE, LANES)
            at = element + own + lane // SHARED * KEPT
            if lane % SHARED == 0:
                for e in range(KEPT):
                    if at + e < end:
                        y[at + e] = tile.cast(sums[e], y.dtype)
            element += 32 // LANES * AT_ONCE
        element = end
        row = row + 1


def bisect(array, wanted, end, STEPS, RIGHT):
    """How many of an array's first `end` numbers, which rise, are below `wanted`; or not above it. 2 to the power of STEPS is more than `end`."""
    count = ct.zeros(wanted.shape, ct.int32)
    for step in ct.static_iter(range(STEPS)):
        next = count + (1 << (STEPS - 1 - step))
        inside = next <= end
        found = ct.gather(array, next - 1, mask=inside, padding_value=0)
        below = (found <= wanted) if RIGHT else (found < wanted)
        count = ct.where(inside & below, next, count)
    return count


@tessera.kernel
def rows_of_elements(row_offsets, rows, TILE: ct.Constant[int], STEPS: ct.Constant[int]):
    """The row of each element."""
    i = ct.bid(0)
    element = i * TILE + ct.arange(TILE, dtype=ct.int32)
    ct.store(rows, (i,), bisect(row_offsets, element, row_offsets.shape[0], STEPS, True) - 1)


@tessera.kernel
def offsets_of_rows(rows, row_offsets, TILE: ct.Constant[int], STEPS: ct.Constant[int]):
    """Where each row begins among elements in the order of rows."""
    i = ct.bid(0)
    row = i * TILE + ct.arange(TILE, dtype=ct.int32)
    ct.store(row_offsets, (i,), bisect(rows, row, rows.shape[0], STEPS, False))


@tessera.kernel
def clear(y, TILE: ct.Constant[int]):
    ct.store(y, (ct.bid(0),), ct.zeros((TILE,), y.dtype))


@tessera.kernel
def to_dense(values, columns, row_offsets, y, N: ct.Constant[int], TILE: ct.Constant[int], STEPS: ct.Constant[int]):
    i = ct.bid(0)
    element = i * TILE + ct.arange(TILE, dtype=ct.int32)
    row = bisect(row_offsets, element, row_offsets.shape[0], STEPS, True) - 1
    inside = element < values.shape[0]
    v = ct.load(values, (i,), (TILE,), padding_mode=ct.PaddingMode.ZERO)
    column = ct.load(columns, (i,), (TILE,), padding_mode=ct.PaddingMode.ZERO)
    ct.scatter(y, row * N + column, v, mask=inside)


@tessera.kernel
def in_order(values, rows, order, new_values, new_rows, TILE: ct.Constant[int]):
    """Elements and their rows in another order."""
    i = ct.bid(0)
    place = ct.load(order, (i,), (TILE,), padding_mode=ct.PaddingMode.ZERO)
    ct.store(new_values, (i,), ct.gather(values, place))
    ct.store(new_rows, (i,), ct.gather(rows, place))
