"""Products with sparse matrices in CSR form: row r has the elements row_offsets[r] to row_offsets[r + 1] of values and columns. Sums are in ACC.

Rows may be of any length, and nobody shall wait for who has a long one. A vector's product goes by rows, LANES threads each; a row of more than
SHORT elements is its warp's, and one of LONG or more, which has elements whose numbers are multiples of LONG, is shared by as many warps as it has
of these:

```text
LONG = 4     elements   0 1 2 3 | 4 5 6 7 | 8 9         a row of elements 1 to 9: pieces 1 to 7 and 8 to 9
```

A dense matrix's product goes by merging (Merrill and Garland, 2016, "Merge-based Parallel Sparse Matrix-vector Multiplication"): the ends of rows and
the elements are merged to one list, of which everybody takes as many items:

```text
rows a b c d of 2, 0, 3, 1 elements     list   0 1 a b 2 3 4 c 5 d        three items each: 0 1 a | b 2 3 | 4 c 5 | d
```

Of each part the row that ends first (the `head`) and what follows the last end (the `tail`) may be shared with other parts. They are left in
memory, and a second kernel adds tails to the head that they belong to. Whoever adds up what several have left does so in their order: so results
never depend on the order of blocks.
"""
import cuda.tile as ct
import tessera
from tessera import Tensor, int32, tile

# Elements of a thread whose loads are on their way together.
BATCH = 4


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


def terms(column, factor, values, columns, x, first, end, lane, LANES, ACC):
    """What elements `first` to `end` come to, of which a lane takes each LANES-th."""
    total = tile.cast(0, ACC)
    i = first + lane
    while i < end:
        for e in range(BATCH):
            at = tile.min(i + e * LANES, end - 1)
            column[e] = columns[at]
            factor[e] = tile.cast(values[at], ACC)
        for e in range(BATCH):
            if i + e * LANES < end:
                total += factor[e] * tile.cast(x[column[e]], ACC)
        i += BATCH * LANES
    return total


def leave(tails, piece, total):
    """Leaves what a piece comes to as one word that is not 0, with -0 for 0: it is complete when it is seen."""
    tile.store(tails[piece], tile.bitcast(-0.0 if total == 0 else total, tails.dtype), order="relaxed", scope="device")


def left_by(tails, first, end, ACC):
    """What pieces `first` to `end` come to, whose blocks start before this one; their words are set back to 0, from where the next launch starts."""
    total = tile.cast(0, ACC)
    for piece in range(first + tile.lane_id(), end, 32):
        word = tile.load(tails[piece], order="relaxed", scope="device")
        while word == 0:
            word = tile.load(tails[piece], order="relaxed", scope="device")
        tile.store(tails[piece], 0, order="relaxed", scope="device")
        total += tile.bitcast(word, ACC)
    return tile.warp_reduce_sum(total)


@tessera.kernel
def spmv(values: Tensor["Z", dtype], columns: Tensor["Z", int32], row_offsets: Tensor["B", int32], x: Tensor["N", dtype],
         tails: Tensor["P", word], y: Tensor["M", dtype], ACC: ct.Constant, LANES: ct.Constant[int], SHORT: ct.Constant[int],
         LONG: ct.Constant[int]):
    column = tile.alloc_register[int32](BATCH)
    factor = tile.alloc_register[ACC](BATCH)
    lane = tile.lane_id()
    warps = tile.block_size() // 32
    # The first blocks have pieces, a warp each.
    blocks = (tails.shape[0] + warps - 1) // warps
    if tile.block_id() < blocks:
        piece = tile.block_id() * warps + tile.warp_id()
        at = piece * LONG
        if piece < tails.shape[0] and at < columns.shape[0]:
            row = ends_before(at + 1, 0, y.shape[0] - 1, row_offsets, 0)
            first = row_offsets[row]
            end = row_offsets[row + 1]
            if end - first >= LONG:
                # The first piece has what stands before its own element, too.
                start = first if first > at - LONG else at
                stop = tile.min(end, at + LONG)
                total = tile.warp_reduce_sum(terms(column, factor, values, columns, x, start, stop, lane, 32, ACC))
                if stop < end:
                    if lane == 0:
                        leave(tails, piece, total)
                else:
                    total = left_by(tails, (first + LONG - 1) // LONG, piece, ACC) + total
                    if lane == 0:
                        y[row] = tile.cast(total, y.dtype)
    else:
        row = (tile.block_id() - blocks) * (tile.block_size() // LANES) + tile.thread_id() // LANES
        first = 0
        end = 0
        if row < y.shape[0]:
            first = row_offsets[row]
            end = row_offsets[row + 1]
        total = tile.cast(0, ACC)
        if end - first <= SHORT:
            total = terms(column, factor, values, columns, x, first, end, lane % LANES, LANES, ACC)
        total = over_lanes(total, LANES)
        if row < y.shape[0] and end - first <= SHORT and lane % LANES == 0:
            y[row] = tile.cast(total, y.dtype)
        if tile.warp_reduce_max(end - first) > SHORT:
            for owner in range(0, 32, LANES):
                own_first = tile.shuffle(first, owner)
                own_end = tile.shuffle(end, owner)
                if own_end - own_first > SHORT and own_end - own_first < LONG:
                    total = tile.warp_reduce_sum(terms(column, factor, values, columns, x, own_first, own_end, lane, 32, ACC))
                    if lane == owner:
                        y[row] = tile.cast(total, y.dtype)


@tessera.kernel
def parts(columns: Tensor["Z", int32], row_offsets: Tensor["B", int32], starts: Tensor["S", int32], SIZE: ct.Constant[int]):
    """A warp finds the row in which a part of SIZE items starts."""
    part = tile.block_id() * (tile.block_size() // 32) + tile.warp_id()
    if part < starts.shape[0]:
        rows = row_offsets.shape[0] - 1
        elements = columns.shape[0]
        place = tile.min(part * SIZE, rows + elements)
        row = ends_before(place, tile.max(place - elements, 0), tile.min(place, rows), row_offsets, 1)
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
