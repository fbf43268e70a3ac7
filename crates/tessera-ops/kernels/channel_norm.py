"""Norms of x[batch, channels, pixels]: over groups of neighbouring channels of an image (group norm, Wu and He, 2018), and over all images of a
channel (batch norm, Ioffe and Szegedy, 2015), with their gradients, in ACC:

    h = (x - mean) * rstd       rstd = 1 / sqrt(variance + eps), of the elements that are normalised together
    y = h * weight + bias       weight and bias of the channel
    g = dy * weight
    dx = (g - mean(g) - h * mean(g * h)) * rstd
    dweight = sum of dy * h, dbias = sum of dy, over the channel

A group that registers hold is read once. Longer ones, and channels, are read in tiles: a tile's mean and its squared deviations from that are put
together with those of the tiles before it (Chan, Golub and LeVeque, 1983), so that nothing cancels, and read once more to be written.
Of a channel a block takes some tiles; the last block of some channels to come puts together what all have left, in their order.
"""
import cuda.tile as ct
import tessera

ZERO = ct.PaddingMode.ZERO
RELAXED = ct.MemoryOrder.RELAXED


def merge(a, b):
    """The count, mean and squared deviations of two sets of elements."""
    n, mean, squares = a
    m, other, more = b
    # Of none and none there is nothing.
    part = m / ct.maximum(n + m, 1.0)
    d = other - mean
    return n + m, mean + d * part, squares + more + d * d * n * part


def none(shape, ACC):
    return ct.zeros(shape, ACC), ct.zeros(shape, ACC), ct.zeros(shape, ACC)


def over(v):
    """The sum over images and pixels of a tile, a number a channel."""
    return ct.sum(ct.sum(v, axis=2, keepdims=True), axis=0, keepdims=True)


def inside(i, k, images, pixels, N, P):
    """Which elements of a tile lie in the array, by images and pixels."""
    rows = i * N + ct.arange(N, dtype=ct.int32) < images
    columns = k * P + ct.arange(P, dtype=ct.int32) < pixels
    return ct.reshape(rows, (N, 1, 1)) & ct.reshape(columns, (1, 1, P))


def moments(v, keep, ACC):
    """Of a tile, a number a channel: elements, their mean, their squared deviations."""
    n = over(ct.where(keep, 1.0, 0.0).astype(ACC))
    mean = over(ct.where(keep, v, 0.0)) / ct.maximum(n, 1.0)
    d = ct.where(keep, v - mean, 0.0)
    return ct.broadcast_to(n, mean.shape), mean, over(d * d)


def whole(v):
    """The sum of a tile over a group."""
    return ct.sum(ct.sum(v, axis=2, keepdims=True), axis=1, keepdims=True)


def channel_numbers(a, j, C):
    """A number a channel, beside images and pixels."""
    return ct.reshape(ct.load(a, (j,), (C,), padding_mode=ZERO), (1, C, 1))


@tessera.kernel
def group_norm(x, weight, bias, y, eps: float, groups: int, ACC: ct.Constant, C: ct.Constant[int], PIXELS: ct.Constant[int]):
    i = ct.bid(0)
    j = i % groups
    v = ct.load(x, (i, 0, 0), (1, C, PIXELS)).astype(ACC)
    mean = whole(v) / (C * PIXELS)
    d = v - mean
    scale = ct.rsqrt(whole(d * d) / (C * PIXELS) + eps)
    w, b = channel_numbers(weight, j, C).astype(ACC), channel_numbers(bias, j, C).astype(ACC)
    ct.store(y, (i, 0, 0), (d * scale * w + b).astype(y.dtype))


def group_statistics(x, i, eps, ACC, C, P, PIXELS):
    """Mean and scale of a group, tile by tile."""
    pieces = ct.cdiv(PIXELS, P)
    n, mean, squares = none((1, 1, 1), ACC)
    for q in range(C * pieces):
        c, k = q // pieces, q % pieces
        v = ct.load(x, (i, c, k), (1, 1, P), padding_mode=ZERO).astype(ACC)
        n, mean, squares = merge((n, mean, squares), moments(v, inside(0, k, 1, PIXELS, 1, P), ACC))
    return mean, ct.rsqrt(squares / (C * PIXELS) + eps)


@tessera.kernel(num_warps=8)
def group_norm_pieces(
    x,
    weight,
    bias,
    y,
    eps: float,
    groups: int,
    ACC: ct.Constant,
    C: ct.Constant[int],
    P: ct.Constant[int],
    PIXELS: ct.Constant[int],
):
    i = ct.bid(0)
    j = i % groups
    mean, scale = group_statistics(x, i, eps, ACC, C, P, PIXELS)
    pieces = ct.cdiv(PIXELS, P)
    for q in range(C * pieces):
        c, k = q // pieces, q % pieces
        v = ct.load(x, (i, c, k), (1, 1, P), padding_mode=ZERO).astype(ACC)
        w, b = channel_numbers(weight, j * C + c, 1).astype(ACC), channel_numbers(bias, j * C + c, 1).astype(ACC)
        ct.store(y, (i, c, k), ((v - mean) * scale * w + b).astype(y.dtype))


@tessera.kernel
def group_norm_backward(
    x,
    weight,
    dy,
    dweights,
    dbiases,
    dx,
    eps: float,
    groups: int,
    ACC: ct.Constant,
    C: ct.Constant[int],
    PIXELS: ct.Constant[int],
):
    i = ct.bid(0)
    j = i % groups
    v = ct.load(x, (i, 0, 0), (1, C, PIXELS)).astype(ACC)
    d = ct.load(dy, (i, 0, 0), (1, C, PIXELS)).astype(ACC)
    v = v - whole(v) / (C * PIXELS)
    scale = ct.rsqrt(whole(v * v) / (C * PIXELS) + eps)
    h = v * scale
    of_weight, of_bias = ct.sum(d * h, axis=2, keepdims=True), ct.sum(d, axis=2, keepdims=True)
    w = channel_numbers(weight, j, C).astype(ACC)
    along, plain = whole(of_weight * w) / (C * PIXELS), whole(of_bias * w) / (C * PIXELS)
    ct.store(dx, (i, 0, 0), ((d * w - plain - h * along) * scale).astype(dx.dtype))
    ct.store(dweights, (i // groups, j), ct.reshape(of_weight, (1, C)))
    ct.store(dbiases, (i // groups, j), ct.reshape(of_bias, (1, C)))


@tessera.kernel(num_warps=8)
def group_norm_backward_pieces(
    x,
    weight,
    dy,
    dweights,
    dbiases,
    dx,
    eps: float,
    groups: int,
    ACC: ct.Constant,
    C: ct.Constant[int],
    P: ct.Constant[int],
    PIXELS: ct.Constant[int],
):
    i = ct.bid(0)
    j = i % groups
    mean, scale = group_statistics(x, i, eps, ACC, C, P, PIXELS)
    along, plain = ct.zeros((1, 1, 1), ACC), ct.zeros((1, 1, 1), ACC)
    for c in range(C):
        of_weight, of_bias = ct.zeros((1, 1, 1), ACC), ct.zeros((1, 1, 1), ACC)
        for k in range(ct.cdiv(PIXELS, P)):
            v = ct.load(x, (i, c, k), (1, 1, P), padding_mode=ZERO).astype(ACC)
            d = ct.load(dy, (i, c, k), (1, 1, P), padding_mode=ZERO).astype(ACC)
            of_weight = of_weight + whole(d * ((v - mean) * scale))
            of_bias = of_bias + whole(d)
        w = channel_numbers(weight, j * C + c, 1).astype(ACC)
        along, plain = along + of_weight * w, plain + of_bias * w
        ct.store(dweights, (i // groups, j * C + c), ct.reshape(of_weight, (1, 1)))
        ct.store(dbiases, (i // groups, j * C + c), ct.reshape(of_bias, (1, 1)))
    along, plain = along / (C * PIXELS), plain / (C * PIXELS)
    for c in range(C):
        w = channel_numbers(weight, j * C + c, 1).astype(ACC)
        for k in range(ct.cdiv(PIXELS, P)):
            v = ct.load(x, (i, c, k), (1, 1, P), padding_mode=ZERO).astype(ACC)
            d = ct.load(dy, (i, c, k), (1, 1, P), padding_mode=ZERO).astype(ACC)
            ct.store(dx, (i, c, k), ((d * w - plain - (v - mean) * scale * along) * scale).astype(dx.dtype))


def is_last(arrived, j):
    """True in the last block of some channels to come, which sees what all others have left. It sets the count back."""
    last = ct.atomic_add(arrived, j, 1) == ct.num_blocks(1) - 1
    if last:
        ct.atomic_xchg(arrived, j, 0, memory_order=RELAXED)
    return last


def numbers_of_part(a, part, j, C):
    return ct.reshape(ct.load(a, (part, j), (1, C), padding_mode=ZERO), (1, C, 1))


@tessera.kernel
def batch_statistics(
    x,
    counts,
    means,
    squares,
    arrived,
    mean,
    rstd,
    eps: float,
    ACC: ct.Constant,
    N: ct.Constant[int],
    C: ct.Constant[int],
    P: ct.Constant[int],
    TILES: ct.Constant[int],
):
    j, part = ct.bid(0), ct.bid(1)
    pieces = ct.cdiv(x.shape[2], P)
    n, centre, deviations = none((1, C, 1), ACC)
    for q in range(part * TILES, min(part * TILES + TILES, ct.cdiv(x.shape[0], N) * pieces)):
        i, k = q // pieces, q % pieces
        v = ct.load(x, (i, j, k), (N, C, P), padding_mode=ZERO).astype(ACC)
        keep = inside(i, k, x.shape[0], x.shape[2], N, P)
        n, centre, deviations = merge((n, centre, deviations), moments(v, keep, ACC))
    ct.store(counts, (part, j), ct.reshape(n, (1, C)))
    ct.store(means, (part, j), ct.reshape(centre, (1, C)))
    ct.store(squares, (part, j), ct.reshape(deviations, (1, C)))
    if is_last(arrived, j):
        n, centre, deviations = none((1, C, 1), ACC)
        for k in range(ct.num_blocks(1)):
            more = numbers_of_part(counts, k, j, C), numbers_of_part(means, k, j, C), numbers_of_part(squares, k, j, C)
            n, centre, deviations = merge((n, centre, deviations), more)
        ct.store(mean, (j,), ct.reshape(centre, (C,)))
        ct.store(rstd, (j,), ct.reshape(ct.rsqrt(deviations / n + eps), (C,)))


@tessera.kernel
def batch_normalise(
    x, weight, bias, mean, rstd, y, ACC: ct.Constant, N: ct.Constant[int], C: ct.Constant[int], P: ct.Constant[int]
):
    j, i, k = ct.bid(1), ct.bid(0), ct.bid(2)
    v = ct.load(x, (i, j, k), (N, C, P), padding_mode=ZERO).astype(ACC)
    w, b = channel_numbers(weight, j, C).astype(ACC), channel_numbers(bias, j, C).astype(ACC)
    ct.store(y, (i, j, k), ((v - channel_numbers(mean, j, C)) * channel_numbers(rstd, j, C) * w + b).astype(y.dtype))


@tessera.kernel
def batch_inference(
    x, weight, bias, mean, variance, y, eps: float, ACC: ct.Constant, N: ct.Constant[int], C: ct.Constant[int], P: ct.Constant[int]
):
    j, i, k = ct.bid(1), ct.bid(0), ct.bid(2)
    v = ct.load(x, (i, j, k), (N, C, P), padding_mode=ZERO).astype(ACC)
    w, b = channel_numbers(weight, j, C).astype(ACC), channel_numbers(bias, j, C).astype(ACC)
    scale = ct.rsqrt(channel_numbers(variance, j, C) + eps)
    ct.store(y, (i, j, k), ((v - channel_numbers(mean, j, C)) * scale * w + b).astype(y.dtype))


@tessera.kernel
def batch_sums(
    x,
    dy,
    mean,
    rstd,
    of_weights,
    of_biases,
    arrived,
    of_weight,
    of_bias,
    dweight,
    dbias,
    ACC: ct.Constant,
    N: ct.Constant[int],
    C: ct.Constant[int],
    P: ct.Constant[int],
    TILES: ct.Constant[int],
):
    j, part = ct.bid(0), ct.bid(1)
    pieces = ct.cdiv(x.shape[2], P)
    centre, scale = channel_numbers(mean, j, C), channel_numbers(rstd, j, C)
    sums, plain = ct.zeros((1, C, 1), ACC), ct.zeros((1, C, 1), ACC)
    for q in range(part * TILES, min(part * TILES + TILES, ct.cdiv(x.shape[0], N) * pieces)):
        i, k = q // pieces, q % pieces
        v = ct.load(x, (i, j, k), (N, C, P), padding_mode=ZERO).astype(ACC)
        d = ct.load(dy, (i, j, k), (N, C, P), padding_mode=ZERO).astype(ACC)
        sums = sums + over(d * ((v - centre) * scale))
        plain = plain + over(d)
    ct.store(of_weights, (part, j), ct.reshape(sums, (1, C)))
    ct.store(of_biases, (part, j), ct.reshape(plain, (1, C)))
    if is_last(arrived, j):
        sums, plain = ct.zeros((1, C, 1), ACC), ct.zeros((1, C, 1), ACC)
        for k in range(ct.num_blocks(1)):
            sums, plain = sums + numbers_of_part(of_weights, k, j, C), plain + numbers_of_part(of_biases, k, j, C)
        ct.store(of_weight, (j,), ct.reshape(sums, (C,)))
        ct.store(of_bias, (j,), ct.reshape(plain, (C,)))
        ct.store(dweight, (j,), ct.reshape(sums, (C,)).astype(dweight.dtype))
        ct.store(dbias, (j,), ct.reshape(plain, (C,)).astype(dbias.dtype))


@tessera.kernel
def batch_backward(
    x,
    weight,
    mean,
    rstd,
    dy,
    dmean,
    drstd,
    of_weight,
    of_bias,
    dx,
    ACC: ct.Constant,
    N: ct.Constant[int],
    C: ct.Constant[int],
    P: ct.Constant[int],
    COUNT: ct.Constant[int],
):
    j, i, k = ct.bid(1), ct.bid(0), ct.bid(2)
    v = ct.load(x, (i, j, k), (N, C, P), padding_mode=ZERO).astype(ACC)
    d = ct.load(dy, (i, j, k), (N, C, P), padding_mode=ZERO).astype(ACC)
    scale = channel_numbers(rstd, j, C)
    w = channel_numbers(weight, j, C).astype(ACC) * scale
    # What all elements of a channel have in common, and what is along their deviations: of y, and of the statistics as results.
    plain = (channel_numbers(of_bias, j, C) * w - channel_numbers(dmean, j, C)) / COUNT
    along = (channel_numbers(of_weight, j, C) * w + channel_numbers(drstd, j, C) * scale * scale) / COUNT
    h = (v - channel_numbers(mean, j, C)) * scale
    ct.store(dx, (i, j, k), (d * w - plain - h * along).astype(dx.dtype))


@tessera.kernel
def running_statistics(
    mean, rstd, running_mean, running_var, momentum: float, unbiased: float, eps: float, ACC: ct.Constant, TILE: ct.Constant[int]
):
    """Moves running statistics towards those of a batch."""
    j = ct.bid(0)
    m, s = ct.load(mean, (j,), (TILE,)).astype(ACC), ct.load(rstd, (j,), (TILE,)).astype(ACC)
    own, variance = ct.load(running_mean, (j,), (TILE,)).astype(ACC), ct.load(running_var, (j,), (TILE,)).astype(ACC)
    batch = (1.0 / (s * s) - eps) * unbiased
    ct.store(running_mean, (j,), own + (m - own) * momentum)
    ct.store(running_var, (j,), variance + (batch - variance) * momentum)
