"""Gradients of the norms over the last axis, with statistics computed again from x, in ACC:

    h = (x - c) / sqrt(mean((x - c)^2) + eps)        c is the row's mean (layer norm) or 0 (RMS norm)
    g = dy * weight
    dx = (g - mean(g) - h * mean(g * h)) / sqrt(...)  without mean(g) where c is 0
    dweight = sum of dy * h over rows, dbias = sum of dy over rows

A block takes TILES tiles of ROWS rows, whose next one is on its way while one is worked on, and leaves its part of the sums over rows. A
second launch adds up the parts in the order of the blocks, so a result never depends on how they are scheduled. Rows that leave no
registers for such parts are taken one by one; a block of columns then reads x and dy once more, with what is known of each row.
"""
import cuda.tile as ct
import tessera

ZERO = ct.PaddingMode.ZERO


def statistics(v, eps, CENTRED, N):
    """A row's centre, and what it is scaled by."""
    centre = ct.sum(v, axis=1, keepdims=True) / N if CENTRED else ct.zeros((v.shape[0], 1), v.dtype)
    d = v - centre if CENTRED else v
    return centre, ct.rsqrt(ct.sum(d * d, axis=1, keepdims=True) / N + eps)


def of_rows(x, weight, dy, eps, CENTRED, ACC, N):
    """The gradient of some rows, their normalised elements, and their statistics."""
    v, g = x.astype(ACC), dy.astype(ACC) * weight.astype(ACC)
    centre, scale = statistics(v, eps, CENTRED, N)
    h = (v - centre) * scale if CENTRED else v * scale
    along = ct.sum(g * h, axis=1, keepdims=True) / N
    if CENTRED:
        g = g - ct.sum(g, axis=1, keepdims=True) / N
    return (g - h * along) * scale, h, centre, scale


def both(x, dy, i, ROWS, N):
    return ct.load(x, (i, 0), (ROWS, N), padding_mode=ZERO), ct.load(dy, (i, 0), (ROWS, N), padding_mode=ZERO)


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
    TILES: ct.Constant[int],
    AHEAD: ct.Constant[bool],
    N: ct.Constant[int],
):
    first = ct.bid(0) * TILES
    last = min(first + TILES, ct.cdiv(x.shape[0], ROWS))
    w = ct.load(weight, (0,), (N,))
    sums = ct.zeros((ROWS, N), ACC)
    v, g = both(x, dy, first, ROWS, N)
    for i in range(first, last):
        if AHEAD:
            next = both(x, dy, i + 1, ROWS, N)
        elif i > first:
            v, g = both(x, dy, i, ROWS, N)
        d, h, centre, scale = of_rows(v, w, g, eps, False, ACC, N)
        ct.store(dx, (i, 0), d.astype(dx.dtype))
        sums = sums + g.astype(ACC) * h
        if AHEAD:
            v, g = next
    ct.store(dweights, (ct.bid(0), 0), ct.sum(sums, axis=0, keepdims=True))


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
    TILES: ct.Constant[int],
    AHEAD: ct.Constant[bool],
    N: ct.Constant[int],
):
    first = ct.bid(0) * TILES
    last = min(first + TILES, ct.cdiv(x.shape[0], ROWS))
    w = ct.load(weight, (0,), (N,))
    sums, plain = ct.zeros((ROWS, N), ACC), ct.zeros((ROWS, N), ACC)
    v, g = both(x, dy, first, ROWS, N)
    for i in range(first, last):
        if AHEAD:
            next = both(x, dy, i + 1, ROWS, N)
        elif i > first:
            v, g = both(x, dy, i, ROWS, N)
        d, h, centre, scale = of_rows(v, w, g, eps, True, ACC, N)
        ct.store(dx, (i, 0), d.astype(dx.dtype))
        sums = sums + g.astype(ACC) * h
        plain = plain + g.astype(ACC)
        if AHEAD:
            v, g = next
    ct.store(dweights, (ct.bid(0), 0), ct.sum(sums, axis=0, keepdims=True))
    ct.store(dbiases, (ct.bid(0), 0), ct.sum(plain, axis=0, keepdims=True))


def total(parts, j, PARTS, COLUMNS):
    """The sum over an array's rows of some of its columns."""
    acc = ct.zeros((PARTS, COLUMNS), parts.dtype)
    for i in range(ct.cdiv(parts.shape[0], PARTS)):
        acc = acc + ct.load(parts, (i, j), (PARTS, COLUMNS), padding_mode=ZERO)
    return ct.sum(acc, axis=0)


@tessera.kernel
def rms_norm_sums(dweights, dweight, PARTS: ct.Constant[int], COLUMNS: ct.Constant[int]):
    j = ct.bid(0)
    ct.store(dweight, (j,), total(dweights, j, PARTS, COLUMNS).astype(dweight.dtype))


@tessera.kernel
def layer_norm_sums(dweights, dbiases, dweight, dbias, PARTS: ct.Constant[int], COLUMNS: ct.Constant[int]):
    j = ct.bid(0)
    ct.store(dweight, (j,), total(dweights, j, PARTS, COLUMNS).astype(dweight.dtype))
    ct.store(dbias, (j,), total(dbiases, j, PARTS, COLUMNS).astype(dbias.dtype))
