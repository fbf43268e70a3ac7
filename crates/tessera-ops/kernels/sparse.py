"""Products with sparse matrices in CSR form: row r has the elements row_offsets[r] to row_offsets[r + 1] of values and columns. Sums are in ACC.

By rows: LANES threads take a row. By merging (Merrill and Garland, 2016, "Merge-based Parallel Sparse Matrix-vector Multiplication"): the ends of
rows and the elements are merged to one list, of which everybody takes as many items, whatever the lengths of rows:

```text
rows a b c d of 2, 0, 3, 1 elements     list   0 1 a b 2 3 4 c 5 d        three items each: 0 1 a | b 2 3 | 4 c 5 | d
```

Of each part the row that ends first (the `head`) and what follows the last end (the `tail`) may be shared with other parts. They are left in
memory, and a second kernel adds tails to the head that they belong to, in the order of the parts: so results never depend on the order of blocks.
"""
import cuda.tile as ct
import tessera
from tessera import Tensor, fp32, int32, tile

# Items of a thread in `spmv_merge`: odd, so that neighbours' lie in different banks.
ITEMS = 7
THREADS = 128


def over_lanes(total, LANES):
    """The sum of LANES neighbours, in all of them."""
    if LANES > 16:
        total += tile.shuffle_xor(total, 16)
    if LANES > 8:
        total += tile.shuffle_xor(total, 8)
    if LANES > 4:
        total += tile.shuffle_xor(total, 4)
    if LANES > 2:
        total += tile.shuffle_xor(total, 2)
    if LANES > 1:
        total += tile.shuffle_xor(total, 1)
    return total


@tessera.kernel
def spmv_rows(values: Tensor["Z", dtype], columns: Tensor["Z", int32], row_offsets: Tensor["B", int32], x: Tensor["N", dtype],
              y: Tensor["M", dtype], ACC: ct.Constant, LANES: ct.Constant[int]):
    row = tile.linear_id() // LANES
    lane = tile.linear_id() % LANES
    total = tile.cast(0, ACC)
    if row < y.shape[0]:
        for i in range(row_offsets[row] + lane, row_offsets[row + 1], LANES):
            total += tile.cast(values[i], ACC) * tile.cast(x[columns[i]], ACC)
    total = over_lanes(total, LANES)
    if row < y.shape[0] and lane == 0:
        y[row] = tile.cast(total, y.dtype)


def row_at(place, row_offsets, rows, elements):
    """How many rows end among the first `place` items."""
    low = tile.max(place - elements, 0)
    high = tile.min(place, rows)
    while low < high:
        middle = (low + high) // 2
        if row_offsets[middle + 1] < place - middle:
            low = middle + 1
        else:
            high = middle
    return low


@tessera.kernel
def parts(columns: Tensor["Z", int32], row_offsets: Tensor["B", int32], starts: Tensor["S", int32], PART: ct.Constant[int]):
    """The row in which each part of PART items starts."""
    part = tile.linear_id()
    if part < starts.shape[0]:
        rows = row_offsets.shape[0] - 1
        elements = columns.shape[0]
        starts[part] = row_at(tile.min(part * PART, rows + elements), row_offsets, rows, elements)


@tessera.kernel
def spmv_merge(values: Tensor["Z", dtype], columns: Tensor["Z", int32], row_offsets: Tensor["B", int32], x: Tensor["N", dtype],
               starts: Tensor["S", int32], heads: Tensor["P", acc], tails: Tensor["P", acc], y: Tensor["M", dtype],
               ACC: ct.Constant):
    ends = tile.alloc_shared[int32](ITEMS * THREADS)
    products = tile.alloc_shared[ACC](ITEMS * THREADS)
    last_rows = tile.alloc_shared[int32](THREADS // 32)
    last_sums = tile.alloc_shared[ACC](THREADS // 32)
    column = tile.alloc_register[int32](ITEMS)
    product = tile.alloc_register[ACC](ITEMS)
    t = tile.thread_id()
    part = tile.block_id()
    all_rows = y.shape[0]
    items = tile.min(ITEMS * THREADS, all_rows + columns.shape[0] - part * (ITEMS * THREADS))
    first = starts[part]
    rows = starts[part + 1] - first
    begin = part * (ITEMS * THREADS) - first
    elements = items - rows
    # All loads of a thread are on their way before one is waited for.
    if elements > 0:
        for e in range(ITEMS):
            at = begin + tile.min(t + e * THREADS, elements - 1)
            column[e] = columns[at]
            product[e] = tile.cast(values[at], ACC)
        for e in range(ITEMS):
            product[e] = product[e] * tile.cast(x[column[e]], ACC)
        for e in range(ITEMS):
            if t + e * THREADS < elements:
                products[t + e * THREADS] = product[e]
    for r in range(t, rows, THREADS):
        ends[r] = row_offsets[first + r + 1] - begin
    tile.barrier()

    place = tile.min(t * ITEMS, items)
    low = tile.max(place - elements, 0)
    high = tile.min(place, rows)
    while low < high:
        middle = (low + high) // 2
        if ends[middle] < place - middle:
            low = middle + 1
        else:
            high = middle
    row = low
    element = place - low
    total = tile.cast(0, ACC)
    head = tile.cast(0, ACC)
    head_row = -1
    for e in range(ITEMS):
        if place + e < items:
            if row < rows and ends[row] <= element:
                if head_row < 0:
                    head = total
                    head_row = row
                else:
                    y[first + row] = tile.cast(total, y.dtype)
                total = tile.cast(0, ACC)
                row = row + 1
            else:
                total = total + products[element]
                element = element + 1

    # What threads before have of the row in which this one starts: sums of tails of equal rows.
    lane = tile.lane_id()
    for step in range(5):
        other = tile.shuffle_up(total, 1 << step)
        other_row = tile.shuffle_up(row, 1 << step)
        if lane >= (1 << step) and other_row == row:
            total = other + total
    if lane == 31:
        last_rows[tile.warp_id()] = row
        last_sums[tile.warp_id()] = total
    tile.barrier()
    before = tile.cast(0, ACC)
    before_row = 0
    for w in range(tile.warp_id()):
        before = (before if last_rows[w] == before_row else tile.cast(0, ACC)) + last_sums[w]
        before_row = last_rows[w]
    if row == before_row:
        total = before + total
    carried = tile.shuffle_up(total, 1)
    if lane == 0:
        carried = before
    if head_row == 0:
        heads[part] = carried + head
    if head_row > 0:
        y[first + head_row] = tile.cast(carried + head, y.dtype)
    if t == THREADS - 1:
        tails[part] = total


@tessera.kernel
def spmv_join(starts: Tensor["S", int32], heads: Tensor["P", acc], tails: Tensor["P", acc], y: Tensor["M", dtype], ACC: ct.Constant):
    """A warp takes the row that ends first in a part: its head, and the tails of the parts before in which it did not end."""
    part = tile.linear_id() // 32
    lane = tile.lane_id()
    total = tile.cast(0, ACC)
    ended = False
    if part < heads.shape[0]:
        ended = starts[part + 1] > starts[part]
    if ended:
        row = starts[part]
        # The first part that ends in this row.
        low = 0
        high = part
        while low < high:
            middle = (low + high) // 2
            if starts[middle + 1] < row:
                low = middle + 1
            else:
                high = middle
        for before in range(low + lane, part, 32):
            total += tails[before]
    total = tile.warp_reduce_sum(total)
    if ended and lane == 0:
        y[starts[part]] = tile.cast(total + heads[part], y.dtype)


def add_rows(sums, values, columns, B, first, end, column, ACC, VECTOR):
    """Adds the rows of B that elements `first` to `end` name, each times its element: four at a time, so that their loads are on their way together."""
    fours = first + (end - first) // 4 * 4
    for i in range(first, fours, 4):
        for step in range(4):
            v = tile.cast(values[i + step], ACC)
            source = columns[i + step]
            for e in range(VECTOR):
                sums[e] = sums[e] + v * tile.cast(B[source, column + e], ACC)
    for i in range(fours, end):
        v = tile.cast(values[i], ACC)
        source = columns[i]
        for e in range(VECTOR):
            sums[e] = sums[e] + v * tile.cast(B[source, column + e], ACC)


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
    row = tile.linear_id() // LANES
    column = (tile.block_id(1) * LANES + tile.linear_id() % LANES) * VECTOR
    for e in range(VECTOR):
        sums[e] = tile.cast(0, ACC)
    if row < C.shape[0] and column < C.shape[1]:
        add_rows(sums, values, columns, B, row_offsets[row], row_offsets[row + 1], column, ACC, VECTOR)
        put_row(C, row, column, sums, ACC, VECTOR)


@tessera.kernel
def spmm_merge(values: Tensor["Z", dtype], columns: Tensor["Z", int32], row_offsets: Tensor["R", int32], B: Tensor["K", "N", dtype],
               starts: Tensor["S", int32], heads: Tensor["P", "N", acc], tails: Tensor["P", "N", acc], C: Tensor["M", "N", dtype],
               ACC: ct.Constant, PART: ct.Constant[int], LANES: ct.Constant[int], VECTOR: ct.Constant[int]):
    """LANES threads take a part, VECTOR columns of C each."""
    sums = tile.alloc_register[ACC](VECTOR)
    part = tile.linear_id() // LANES
    column = (tile.block_id(1) * LANES + tile.linear_id() % LANES) * VECTOR
    for e in range(VECTOR):
        sums[e] = tile.cast(0, ACC)
    if part < heads.shape[0] and column < C.shape[1]:
        first = starts[part]
        last = starts[part + 1]
        element = part * PART - first
        stop = tile.min((part + 1) * PART, C.shape[0] + columns.shape[0]) - last
        for row in range(first, last):
            end = row_offsets[row + 1]
            add_rows(sums, values, columns, B, element, end, column, ACC, VECTOR)
            element = end
            if row == first:
                put_row(heads, part, column, sums, ACC, VECTOR)
            else:
                put_row(C, row, column, sums, ACC, VECTOR)
        add_rows(sums, values, columns, B, element, stop, column, ACC, VECTOR)
        put_row(tails, part, column, sums, ACC, VECTOR)


@tessera.kernel
def spmm_join(starts: Tensor["S", int32], heads: Tensor["P", "N", acc], tails: Tensor["P", "N", acc], C: Tensor["M", "N", dtype],
              ACC: ct.Constant):
    """A thread takes a column of the row that ends first in a part."""
    part = tile.block_id(0)
    column = tile.block_id(1) * tile.block_size() + tile.thread_id()
    row = starts[part]
    if starts[part + 1] > row and column < C.shape[1]:
        # The first part that ends in this row.
        low = 0
        high = part
        while low < high:
            middle = (low + high) // 2
            if starts[middle + 1] < row:
                low = middle + 1
            else:
                high = middle
        total = tile.cast(0, ACC)
        for before in range(low, part):
            total += tails[before, column]
        C[row, column] = tile.cast(total + heads[part, column], C.dtype)


@tessera.kernel
def sddmm(A: Tensor["M", "K", dtype], B: Tensor["N", "K", dtype], columns: Tensor["Z", int32], row_offsets: Tensor["R", int32],
          y: Tensor["Z", dtype], ACC: ct.Constant, EACH: ct.Constant[int], LANES: ct.Constant[int], VECTOR: ct.Constant[int]):
    """LANES threads take EACH elements of the pattern, one after the other: a row of A times a row of B."""
    elements = columns.shape[0]
    lane = tile.linear_id() % LANES
    begin = tile.linear_id() // LANES * EACH
    # The row of an element: the first that ends behind it.
    row = 0
    high = A.shape[0] - 1
    place = tile.min(begin, elements - 1)
    while row < high:
        middle = (row + high) // 2
        if row_offsets[middle + 1] <= place:
            row = middle + 1
        else:
            high = middle
    for step in range(EACH):
        element = tile.min(begin + step, elements - 1)
        while row_offsets[row + 1] <= element:
            row = row + 1
        column = columns[element]
        total = tile.cast(0, ACC)
        for k in range(lane * VECTOR, A.shape[1], LANES * VECTOR):
            for e in range(VECTOR):
                total += tile.cast(A[row, k + e], ACC) * tile.cast(B[column, k + e], ACC)
        total = over_lanes(total, LANES)
        if lane == 0 and begin + step < elements:
            y[element] = tile.cast(total, y.dtype)


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
