"""Gradients of the norms over the last axis, with statistics computed again from x, in ACC:

    h = (x - c) / sqrt(mean((x - c)^2) + eps)        c is the row's mean (layer norm) or 0 (RMS norm)
    g = dy * weight
    dx = (g - mean(g) - h * mean(g * h)) / sqrt(...)  without mean(g) where c is 0
    dweight = sum of dy * h over rows, dbias = sum of dy over rows

Behind a residual, x is the sum that was stored, which has a cotangent of its own: dsum is added to dx, the gradient of both that were added.

A block takes every STEP-th tile of ROWS rows, whose next one is on its way (AHEAD) while one is worked on, and leaves its part of the sums over rows.
A second launch adds up the parts in the order of the blocks, so a result never depends on how they are scheduled. A row is several tiles
of columns, which are added up in each thread before sums cross threads; the last one may reach beyond it. Rows that leave no registers for such
parts are taken one by one; a block of columns then reads x and dy once more, with what is known of each row.
"""
import cuda.tile as ct
import tessera

ZERO = ct.PaddingMode.ZERO
AT_ONCE = 4


def three_sums(a, b, c):
    """Sums of rows of three tiles, which cross the block together."""
    return ct.reduce((a, b, c), 1, lambda a0, b0, c0, a1, b1, c1: (a0 + a1, b0 + b1, c0 + c1), (0.0, 0.0, 0.0), keepdims=True)


def two_sums(a, b):
    return ct.reduce((a, b), 1, lambda a0, b0, a1, b1: (a0 + a1, b0 + b1), (0.0, 0.0), keepdims=True)


def total_of(tiles):
    return sum(tiles[1:], tiles[0])


def of_rows(x, weight, dy, left, eps, CENTRED, ACC, N):
    """The gradient of some rows, of which so many are left, and their normalised elements; tiles have some columns each."""
    d, g = [v.astype(ACC) for v in x], [a.astype(ACC) * b.astype(ACC) for a, b in zip(dy, weight)]
    if CENTRED:
        mean = ct.sum(total_of(d), axis=1, keepdims=True) * (1.0 / N)
        d = [v - mean for v in d]
        COLUMNS = x[0].shape[1]
        if N % COLUMNS:
            inside = ct.arange(COLUMNS, dtype=ct.int32)[None, :] < N % COLUMNS
            d = d[:-1] + [ct.where(inside, d[-1], 0.0)]
    along, squares = total_of([a * b for a, b in zip(g, d)]), total_of([v * v for v in d])
    if CENTRED:
        plain, along, squares = three_sums(total_of(g), along, squares)
    else:
        along, squares = two_sums(along, squares)
    scale = ct.rsqrt(squares * (1.0 / N) + eps)
    if x[0].shape[0] > 1:
        # What lies behind the last row is 0, and has no scale where eps is 0, too.
        scale = ct.where(ct.arange(x[0].shape[0], dtype=ct.int32)[:, None] < left, scale, 0.0)
    h = [v * scale for v in d]
    # What all elements of a row have in common, and what is along their deviations.
    slope = along * (scale * scale * (1.0 / N))
    if CENTRED:
        common = plain * (scale * (1.0 / N))
        return [a * scale - (b * slope + common) for a, b in zip(g, h)], h
    return [a * scale - b * slope for a, b in zip(g, h)], h


def in_tiles(a, i, ROWS, COLUMNS, N):
    """Rows in tiles of some columns each, zeros behind their ends."""
    return [ct.load(a, (i, k), (ROWS, COLUMNS), padding_mode=ZERO) for k in range(ct.cdiv(N, COLUMNS))]


def sums_of_rows(x, weight, dy, dsum, dx, eps, CENTRED, ADDS, ACC, ROWS, STEP, AHEAD, HELD, COLUMNS, N):
    """Writes the gradients of a block's rows, and gives its sums of dy * h and of dy. HELD: the weight stays in registers meanwhile. ADDS: dsum has a part."""
    # Its blocks have room beside this launch's, and wait until all of these have ended.
    ct.grid_dependency_control_launch_dependents()
    K = ct.cdiv(N, COLUMNS)
    first = ct.bid(0)
    if HELD:
        w = [ct.load(weight, (k,), (COLUMNS,), padding_mode=ZERO) for k in range(K)]
    sums = [ct.zeros((ROWS, COLUMNS), ACC) for k in range(K)]
    plain = [ct.zeros((ROWS, COLUMNS), ACC) for k in range(K)] if CENTRED else None
    v, g = in_tiles(x, first, ROWS, COLUMNS, N), in_tiles(dy, first, ROWS, COLUMNS, N)
    for i in range(first, ct.cdiv(x.shape[0], ROWS), STEP):
        if ADDS and AHEAD:
            # Asked for before threads meet, which is when they wait; where registers are few, behind.
            also = in_tiles(dsum, i, ROWS, COLUMNS, N)
        if AHEAD:
            next = in_tiles(x, i + STEP, ROWS, COLUMNS, N), in_tiles(dy, i + STEP, ROWS, COLUMNS, N)
        elif i > first:
            v, g = in_tiles(x, i, ROWS, COLUMNS, N), in_tiles(dy, i, ROWS, COLUMNS, N)
        left = x.shape[0] - i * ROWS
        weights = w if HELD else [ct.load(weight, (k,), (COLUMNS,), padding_mode=ZERO) for k in range(K)]
        d, h = of_rows(v, weights, g, left, eps, CENTRED, ACC, N)
        if ADDS and not AHEAD:
            also = in_tiles(dsum, i, ROWS, COLUMNS, N)
        for k in ct.static_iter(range(K)):
            own = d[k] + also[k].astype(ACC) if ADDS else d[k]
            ct.store(dx, (i, k), own.astype(dx.dtype))
        if CENTRED and not HELD and dy.dtype != ct.float32:
            # Two sums leave too few registers: cotangents are found in the cache.
            g = in_tiles(dy, i, ROWS, COLUMNS, N)
        sums = [a + b.astype(ACC) * c for a, b, c in zip(sums, g, h)]
        if CENTRED:
            plain = [a + b.astype(ACC) for a, b in zip(plain, g)]
        if AHEAD:
            v, g = next
    return sums, plain


def store_sums(a, sums):
    for k in ct.static_iter(range(len(sums))):
        ct.store(a, (ct.bid(0), k), ct.sum(sums[k], axis=0, keepdims=True))


@tessera.kernel
def rms_norm_backward(
    x,
    weight,
    dy,
    dweights,
    dx,
    eps: float,
    ACC: ct.Constant,
    ROWS: ct.Constant[int],
    STEP: ct.Constant[int],
    AHEAD: ct.Constant[bool],
    HELD: ct.Constant[bool],
    COLUMNS: ct.Constant[int],
    N: ct.Constant[int],
):
    sums, plain = sums_of_rows(x, weight, dy, dy, dx, eps, False, False, ACC, ROWS, STEP, AHEAD, HELD, COLUMNS, N)
    store_sums(dweights, sums)


@tessera.kernel
def layer_norm_backward(
    x,
    weight,
    dy,
    dweights,
    dbiases,
    dx,
    eps: float,
    ACC: ct.Constant,
    ROWS: ct.Constant[int],
    STEP: ct.Constant[int],
    AHEAD: ct.Constant[bool],
    HELD: ct.Constant[bool],
    COLUMNS: ct.Constant[int],
    N: ct.Constant[int],
):
    sums, plain = sums_of_rows(x, weight, dy, dy, dx, eps, True, False, ACC, ROWS, STEP, AHEAD, HELD, COLUMNS, N)
    store_sums(dweights, sums)
    store_sums(dbiases, plain)


@tessera.kernel
def add_rms_norm_backward(
    x,
    weight,
    dy,
    dsum,
    dweights,
    dx,
    eps: float,
    ACC: ct.Constant,
    ROWS: ct.Constant[int],
    STEP: ct.Constant[int],
    AHEAD: ct.Constant[bool],
    HELD: ct.Constant[bool],
    COLUMNS: ct.Constant[int],
    N: ct.Constant[int],
):
    sums, plain = sums_of_rows(x, weight, dy, dsum, dx, eps, False, True, ACC, ROWS, STEP, AHEAD, HELD, COLUMNS, N)
    store_sums(dweights, sums)


@tessera.kernel
def add_layer_norm_backward(
    x,
    weight,
    dy,
    dsum,
    dweights,
    dbiases,
    dx,
    eps: float,
    ACC: ct.Constant,
    ROWS: ct.Constant[int],
    STEP: ct.Constant[int],
    AHEAD: ct.Constant[bool],
    HELD: ct.Constant[bool],
    COLUMNS: ct.Constant[int],
    N: ct.Constant[int],
):
    sums, plain = sums_of_rows(x, weight, dy, dsum, dx, eps, True, True, ACC, ROWS, STEP, AHEAD, HELD, COLUMNS, N)
    store_sums(dweights, sums)
    store_sums(dbiases, plain)


def piece(x, weight, dy, i, k, ACC, CHUNK):
    """Elements of a piece of a row, and cotangents times weights."""
    v = ct.load(x, (i, k), (1, CHUNK), padding_mode=ZERO).astype(ACC)
    w = ct.load(weight, (k,), (CHUNK,), padding_mode=ZERO).astype(ACC)
    return v, ct.load(dy, (i, k), (1, CHUNK), padding_mode=ZERO).astype(ACC) * w


def row_in_pieces(x, weight, dy, dsum, centres, scales, dx, eps, CENTRED, ADDS, ACC, CHUNK, N):
    """A row that is read in pieces several times: all but the first time it is found in the cache."""
    i = ct.bid(0)
    pieces = ct.cdiv(N, CHUNK)
    centre = ct.zeros((1, 1), ACC)
    if CENTRED:
        for k in range(pieces):
            centre = centre + ct.sum(ct.load(x, (i, k), (1, CHUNK), padding_mode=ZERO).astype(ACC), axis=1, keepdims=True)
        centre = centre / N
    squares = ct.zeros((1, 1), ACC)
    for k in range(pieces):
        d = ct.load(x, (i, k), (1, CHUNK), padding_mode=ZERO).astype(ACC) - centre
        if CENTRED:
            d = ct.where(ct.arange(CHUNK, dtype=ct.int32)[None, :] < N - k * CHUNK, d, 0.0)
        squares = squares + ct.sum(d * d, axis=1, keepdims=True)
    scale = ct.rsqrt(squares / N + eps)
    along, plain = ct.zeros((1, 1), ACC), ct.zeros((1, 1), ACC)
    for k in range(pieces):
        v, g = piece(x, weight, dy, i, k, ACC, CHUNK)
        along = along + ct.sum(g * ((v - centre) * scale), axis=1, keepdims=True)
        if CENTRED:
            plain = plain + ct.sum(g, axis=1, keepdims=True)
    along, plain = along / N, plain / N
    for k in range(pieces):
        v, g = piece(x, weight, dy, i, k, ACC, CHUNK)
        d = (g - plain - (v - centre) * scale * along) * scale
        if ADDS:
            d = d + ct.load(dsum, (i, k), (1, CHUNK), padding_mode=ZERO).astype(ACC)
        ct.store(dx, (i, k), d.astype(dx.dtype))
    ct.store(centres, (i, 0), centre)
    ct.store(scales, (i, 0), scale)


@tessera.kernel
def norm_backward_rows(
    x,
    weight,
    dy,
    centres,
    scales,
    dx,
    eps: float,
    CENTRED: ct.Constant[bool],
    ACC: ct.Constant,
    CHUNK: ct.Constant[int],
    N: ct.Constant[int],
):
    row_in_pieces(x, weight, dy, dy, centres, scales, dx, eps, CENTRED, False, ACC, CHUNK, N)


@tessera.kernel
def add_norm_backward_rows(
    x,
    weight,
    dy,
    dsum,
    centres,
    scales,
    dx,
    eps: float,
    CENTRED: ct.Constant[bool],
    ACC: ct.Constant,
    CHUNK: ct.Constant[int],
    N: ct.Constant[int],
):
    row_in_pieces(x, weight, dy, dsum, centres, scales, dx, eps, CENTRED, True, ACC, CHUNK, N)


def sums_of_columns(x, dy, centres, scales, ACC, ROWS, TILES, COLUMNS):
    """A block's sums over TILES tiles of rows of COLUMNS columns, where each row's statistics are known: of dy * h, and of dy."""
    j = ct.bid(0)
    first = ct.bid(1) * TILES
    last = min(first + TILES, ct.cdiv(x.shape[0], ROWS))
    sums, plain = ct.zeros((ROWS, COLUMNS), ACC), ct.zeros((ROWS, COLUMNS), ACC)
    for i in range(first, last):
        v = ct.load(x, (i, j), (ROWS, COLUMNS), padding_mode=ZERO).astype(ACC)
        g = ct.load(dy, (i, j), (ROWS, COLUMNS), padding_mode=ZERO).astype(ACC)
        centre, scale = ct.load(centres, (i, 0), (ROWS, 1), padding_mode=ZERO), ct.load(scales, (i, 0), (ROWS, 1), padding_mode=ZERO)
        sums = sums + g * ((v - centre) * scale)
        plain = plain + g
    return ct.sum(sums, axis=0, keepdims=True), ct.sum(plain, axis=0, keepdims=True)


@tessera.kernel
def rms_norm_backward_columns(
    x, dy, centres, scales, dweights, ACC: ct.Constant, ROWS: ct.Constant[int], TILES: ct.Constant[int], COLUMNS: ct.Constant[int]
):
    sums, plain = sums_of_columns(x, dy, centres, scales, ACC, ROWS, TILES, COLUMNS)
    ct.store(dweights, (ct.bid(1), ct.bid(0)), sums)


@tessera.kernel
def layer_norm_backward_columns(
    x,
    dy,
    centres,
    scales,
    dweights,
    dbiases,
    ACC: ct.Constant,
    ROWS: ct.Constant[int],
    TILES: ct.Constant[int],
    COLUMNS: ct.Constant[int],
):
    sums, plain = sums_of_columns(x, dy, centres, scales, ACC, ROWS, TILES, COLUMNS)
    ct.store(dweights, (ct.bid(1), ct.bid(0)), sums)
    ct.store(dbiases, (ct.bid(1), ct.bid(0)), plain)


def tile_of_parts(parts, i, count, j, PARTS, COLUMNS):
    """Tile i of so many; zeros behind the last one, which is read instead."""
    v = ct.load(parts, (min(i, count - 1), j), (PARTS, COLUMNS), padding_mode=ZERO)
    return ct.where(i < count, v, 0.0)


def total(parts, j, PARTS, COLUMNS):
    """The sum over an array's rows of some of its columns. So many tiles are on their way at once."""
    acc, count = ct.zeros((PARTS, COLUMNS), parts.dtype), ct.cdiv(parts.shape[0], PARTS)
    for i in range(0, count, AT_ONCE):
        acc = sum([tile_of_parts(parts, i + k, count, j, PARTS, COLUMNS) for k in range(AT_ONCE)], acc)
    return ct.sum(acc, axis=0)


@tessera.kernel(num_warps=4)
def rms_norm_sums(dweights, dweight, PARTS: ct.Constant[int], COLUMNS: ct.Constant[int]):
    ct.grid_dependency_control_wait()
    j = ct.bid(0)
    ct.store(dweight, (j,), total(dweights, j, PARTS, COLUMNS).astype(dweight.dtype))


@tessera.kernel(num_warps=4)
def layer_norm_sums(dweights, dbiases, dweight, dbias, PARTS: ct.Constant[int], COLUMNS: ct.Constant[int]):
    """Of weights in the first row of blocks, of biases in the second one."""
    ct.grid_dependency_control_wait()
    j = ct.bid(0)
    if ct.bid(1) == 0:
        ct.store(dweight, (j,), total(dweights, j, PARTS, COLUMNS).astype(dweight.dtype))
    else:
        ct.store(dbias, (j,), total(dbiases, j, PARTS, COLUMNS).astype(dbias.dtype))
