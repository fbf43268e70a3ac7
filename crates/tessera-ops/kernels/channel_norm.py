"""Norms of x[batch, channels, pixels]: over groups of neighbouring channels of an image (group norm, Wu and He, 2018), and over all images of a
channel (batch norm, Ioffe and Szegedy, 2015), with their gradients, in ACC:

    h = (x - mean) * rstd       rstd = 1 / sqrt(variance + eps), of the elements that are normalised together
    y = h * weight + bias       weight and bias of the channel
    g = dy * weight
    dx = (g - mean(g) - h * mean(g * h)) * rstd
    dweight = sum of dy * h, dbias = sum of dy, over the channel

A group that registers hold is read once; longer ones piece by piece, and once more to be written. Of a channel a block takes some tiles. Each
place of a tile has a mean and squared deviations from that of its own, of what was there in all of the block's tiles; then places, and at last
what blocks have left, are put together (Chan, Golub and LeVeque, 1983), so that nothing cancels. The last block of some channels to come does
so, in the blocks' order.

An array is read in whole vectors, whatever the pixels of a channel: x[image, channels * pixels] lies in one piece, and an element's channel
follows from its place there. What batch norm writes is x * scale + shift, with two numbers a channel; its gradient has three.
"""
from typing import NamedTuple

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


def spread(numbers, first, VECTOR, PIXELS):
    """Numbers of the channel of each element, of vectors that begin at `first`: `numbers` gives those of channels."""
    if PIXELS % VECTOR == 0:
        return numbers(first // PIXELS)
    if PIXELS < VECTOR:
        return numbers((first + ct.arange(VECTOR, dtype=ct.int32)) // PIXELS)
    # A vector has elements of two channels at most.
    c = first // PIXELS
    own = ct.arange(VECTOR, dtype=ct.int32) < (c + 1) * PIXELS - first
    return tuple(ct.where(own, a, b) for a, b in zip(numbers(c), numbers(c + 1)))


def gathered(a, c):
    """Numbers of channels; behind the last one, where nothing is stored, its own."""
    return ct.gather(a, ct.minimum(c, a.shape[0] - 1), check_bounds=False)


def total(tiles):
    return sum(tiles[1:], tiles[0])


def two_sums(a, b, axis):
    """Sums of two tiles, which cross the block together."""
    return ct.reduce((a, b), axis, lambda a0, b0, a1, b1: (a0 + a1, b0 + b1), (0.0, 0.0), keepdims=True)


def moments_of_group(tiles, eps, ACC, LENGTH):
    """Mean and scale of a group that lies in tiles of one size, the last of which may have zeros behind it."""
    K = tiles[0].shape[1]
    mean = ct.sum(total([v.astype(ACC) for v in tiles]), axis=1, keepdims=True) * (1.0 / LENGTH)
    d = [v.astype(ACC) - mean for v in tiles]
    if LENGTH % K != 0:
        d = d[:-1] + [ct.where(ct.arange(K, dtype=ct.int32)[None, :] < LENGTH % K, d[-1], 0.0)]
    return mean, ct.rsqrt(ct.sum(total([v * v for v in d]), axis=1, keepdims=True) * (1.0 / LENGTH) + eps)


def in_vectors(numbers, j, s, C, PIXELS, K, VECTOR):
    """Numbers of channels for the elements of tile s of group j."""
    first = s * K + ct.arange(K // VECTOR, dtype=ct.int32)[:, None] * VECTOR
    return spread(lambda c: numbers(j * C + c), first, VECTOR, PIXELS)


@tessera.kernel
def group_norm(
    x,
    weight,
    bias,
    y,
    eps: float,
    groups: int,
    ACC: ct.Constant,
    C: ct.Constant[int],
    PIXELS: ct.Constant[int],
    K: ct.Constant[int],
    VECTOR: ct.Constant[int],
):
    i = ct.bid(0)
    S = ct.cdiv(C * PIXELS, K)
    tiles = [ct.load(x, (i, s), (1, K), padding_mode=ZERO) for s in range(S)]
    mean, scale = moments_of_group(tiles, eps, ACC, C * PIXELS)
    for s in ct.static_iter(range(S)):
        w, b = in_vectors(
            lambda c: (gathered(weight, c).astype(ACC), gathered(bias, c).astype(ACC)), i % groups, s, C, PIXELS, K, VECTOR
        )
        d = ct.reshape(tiles[s].astype(ACC) - mean, (K // VECTOR, VECTOR))
        ct.store(y, (i, s), ct.reshape((d * (scale * w) + b).astype(y.dtype), (1, K)))


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
    K: ct.Constant[int],
    VECTOR: ct.Constant[int],
):
    i = ct.bid(0)
    j = i % groups
    # A tile has whole channels.
    LENGTH, S, EACH = C * PIXELS, C * PIXELS // K, K // PIXELS
    xs, dys = [ct.load(x, (i, s), (1, K)) for s in range(S)], [ct.load(dy, (i, s), (1, K)) for s in range(S)]
    mean, scale = moments_of_group(xs, eps, ACC, LENGTH)
    along, plain = ct.zeros((1, 1), ACC), ct.zeros((1, 1), ACC)
    for s in ct.static_iter(range(S)):
        d = dys[s].astype(ACC)
        of_weight, of_bias = ct.reshape(d * (xs[s].astype(ACC) - mean), (EACH, PIXELS)), ct.reshape(d, (EACH, PIXELS))
        of_weight, of_bias = two_sums(of_weight, of_bias, 1)
        of_weight = of_weight * scale
        ct.store(dweights, (i // groups, j * S + s), ct.reshape(of_weight, (1, EACH)))
        ct.store(dbiases, (i // groups, j * S + s), ct.reshape(of_bias, (1, EACH)))
        w = ct.reshape(ct.load(weight, (j * S + s,), (EACH,)), (EACH, 1)).astype(ACC)
        more = two_sums(of_weight * w, of_bias * w, 0)
        along, plain = along + more[0], plain + more[1]
    slope, common = along * (scale * scale * (1.0 / LENGTH)), plain * (scale * (1.0 / LENGTH))
    for s in ct.static_iter(range(S)):
        (w,) = in_vectors(lambda c: (gathered(weight, c).astype(ACC),), j, s, C, PIXELS, K, VECTOR)
        d = ct.reshape(dys[s].astype(ACC), (K // VECTOR, VECTOR)) * (w * scale)
        ct.store(dx, (i, s), (ct.reshape(d, (1, K)) - ((xs[s].astype(ACC) - mean) * slope + common)).astype(dx.dtype))


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


def part_of(x, j, q, N, C, P, PIXELS):
    """Tile q of block j's channels: N images of C whole channels, or of a piece of one."""
    pieces = ct.cdiv(PIXELS, P)
    i, k = q // pieces, q % pieces
    if PIXELS % P == 0:
        return ct.load(x, (i, 0, j * pieces + k), (N, 1, C * P), padding_mode=ZERO)
    return ct.load(x, (i, j, k), (N, 1, P), padding_mode=ZERO)


def parts_of(x, j, q, N, C, P, PIXELS, AT_ONCE):
    return [part_of(x, j, q + t, N, C, P, PIXELS) for t in range(AT_ONCE)]


def by_channel(v, C):
    return ct.reshape(v, (v.shape[0], C, v.shape[2] // C))


def of_channels(v):
    """The sum of a tile over a channel's images and pixels."""
    return ct.sum(ct.sum(v, axis=2, keepdims=True), axis=0, keepdims=True)


def all_parts(a, j, PARTS, C):
    return ct.load(a, (0, j), (PARTS, C), padding_mode=ZERO)


@tessera.kernel(num_warps=8, occupancy=2)
def batch_statistics(
    x,
    weight,
    bias,
    counts,
    means,
    squares,
    arrived,
    mean,
    rstd,
    scales,
    shifts,
    eps: float,
    ACC: ct.Constant,
    N: ct.Constant[int],
    C: ct.Constant[int],
    P: ct.Constant[int],
    AT_ONCE: ct.Constant[int],
    TILES: ct.Constant[int],
    ALL: ct.Constant[int],
    PARTS: ct.Constant[int],
    PIXELS: ct.Constant[int],
    COUNT: ct.Constant[int],
):
    j, part = ct.bid(0), ct.bid(1)
    ragged = PIXELS % P != 0
    n = ct.zeros((1, 1, P if ragged else 1), ACC)
    centre, deviations = ct.zeros((N, 1, C * P), ACC), ct.zeros((N, 1, C * P), ACC)
    # Each place of a tile has statistics of its own, so that threads exchange nothing before all tiles are read.
    first, last = part * TILES, min(part * TILES + TILES, ALL)
    # The next tiles are on their way while some are added up; behind the last ones these once more, which the cache has.
    next = parts_of(x, j, first, N, C, P, PIXELS, AT_ONCE)
    for q in range(first, last, AT_ONCE):
        tiles = [v.astype(ACC) for v in next]
        next = parts_of(x, j, min(q, last - 2 * AT_ONCE) + AT_ONCE, N, C, P, PIXELS, AT_ONCE)
        own = sum(tiles[1:], tiles[0]) * (1.0 / AT_ONCE)
        more = ct.full((1, 1, 1), AT_ONCE, ACC)
        if ragged:
            more = ct.where(q % ct.cdiv(PIXELS, P) * P + ct.arange(P, dtype=ct.int32)[None, None, :] < PIXELS, more, 0.0)
        share = more / ct.maximum(n + more, 1.0)
        d = own - centre
        centre = centre + d * share
        deviations = sum([(v - own) * (v - own) for v in tiles], deviations) + d * d * (n * share)
        n = n + more
    own = by_channel(centre, C)
    if ragged:
        # Places behind the end of the last piece have no elements, and a mean of 0.
        count = ct.sum(n, axis=2, keepdims=True) * N
        centre = of_channels(own * n) / count
        own = ct.where(n > 0.0, own, centre)
    else:
        count = n * (N * P)
        centre = of_channels(own) * (1.0 / (N * P))
    deviations = of_channels(by_channel(deviations, C) + (own - centre) * (own - centre) * n)
    ct.store(counts, (part, j), ct.reshape(ct.broadcast_to(count, (1, C, 1)), (1, C)))
    ct.store(means, (part, j), ct.reshape(centre, (1, C)))
    ct.store(squares, (part, j), ct.reshape(deviations, (1, C)))
    if is_last(arrived, j):
        n, centres = all_parts(counts, j, PARTS, C), all_parts(means, j, PARTS, C)
        centre = ct.sum(n * centres, axis=0, keepdims=True) * (1.0 / COUNT)
        d = centres - centre
        variance = ct.sum(all_parts(squares, j, PARTS, C) + d * d * n, axis=0) * (1.0 / COUNT)
        centre, factor = ct.reshape(centre, (C,)), ct.rsqrt(variance + eps)
        scale = factor * ct.load(weight, (j,), (C,), padding_mode=ZERO).astype(ACC)
        ct.store(mean, (j,), centre)
        ct.store(rstd, (j,), factor)
        ct.store(scales, (j,), scale)
        ct.store(shifts, (j,), ct.load(bias, (j,), (C,), padding_mode=ZERO).astype(ACC) - centre * scale)


class Block(NamedTuple):
    """K elements of a row of N images, as vectors. Blocks begin with the last ones: the cache still has them."""

    i: int
    r: int
    k: int
    N: int
    K: int
    VECTOR: int
    PIXELS: int

    def load(self, a, ACC):
        v = ct.load(a, (self.i, self.r, self.k), (self.N, 1, self.K), padding_mode=ZERO)
        return ct.reshape(v, (self.N, self.K // self.VECTOR, self.VECTOR)).astype(ACC)

    def store(self, a, v):
        ct.store(a, (self.i, self.r, self.k), ct.reshape(v.astype(a.dtype), (self.N, 1, self.K)))

    def of_channels(self, numbers):
        first = self.k * self.K + ct.arange(self.K // self.VECTOR, dtype=ct.int32)[None, :, None] * self.VECTOR
        return spread(lambda c: numbers(self.r + c), first, self.VECTOR, self.PIXELS)


def block(x, N, K, VECTOR, PIXELS):
    across = ct.cdiv(x.shape[2], K)
    at = ct.num_blocks(0) - 1 - ct.bid(0)
    row = at // across
    return Block(row // x.shape[1], row % x.shape[1], at % across, N, K, VECTOR, PIXELS)


@tessera.kernel(num_warps=8)
def batch_normalise(
    x,
    scales,
    shifts,
    y,
    ACC: ct.Constant,
    N: ct.Constant[int],
    K: ct.Constant[int],
    VECTOR: ct.Constant[int],
    PIXELS: ct.Constant[int],
):
    own = block(x, N, K, VECTOR, PIXELS)
    scale, shift = own.of_channels(lambda c: (gathered(scales, c), gathered(shifts, c)))
    own.store(y, own.load(x, ACC) * scale + shift)


@tessera.kernel(num_warps=8)
def batch_inference(
    x,
    weight,
    bias,
    mean,
    variance,
    y,
    eps: float,
    ACC: ct.Constant,
    N: ct.Constant[int],
    K: ct.Constant[int],
    VECTOR: ct.Constant[int],
    PIXELS: ct.Constant[int],
):
    def numbers(c):
        scale = ct.rsqrt(gathered(variance, c) + eps) * gathered(weight, c).astype(ACC)
        return gathered(mean, c), scale, gathered(bias, c).astype(ACC)

    own = block(x, N, K, VECTOR, PIXELS)
    # Numbers that are given may be infinite: what is subtracted first is no infinity less another one.
    centre, scale, shift = own.of_channels(numbers)
    own.store(y, (own.load(x, ACC) - centre) * scale + shift)


@tessera.kernel(num_warps=8)
def batch_sums(
    x,
    weight,
    mean,
    rstd,
    dy,
    dmean,
    drstd,
    of_weights,
    of_biases,
    arrived,
    dweight,
    dbias,
    scales,
    slopes,
    shifts,
    ACC: ct.Constant,
    N: ct.Constant[int],
    C: ct.Constant[int],
    P: ct.Constant[int],
    AT_ONCE: ct.Constant[int],
    TILES: ct.Constant[int],
    ALL: ct.Constant[int],
    PARTS: ct.Constant[int],
    PIXELS: ct.Constant[int],
    COUNT: ct.Constant[int],
):
    j, part = ct.bid(0), ct.bid(1)
    centre = ct.gather(mean, j * C + ct.arange(C * P, dtype=ct.int32)[None, None, :] // P)
    sums, plain = ct.zeros((N, 1, C * P), ACC), ct.zeros((N, 1, C * P), ACC)
    for q in range(part * TILES, min(part * TILES + TILES, ALL), AT_ONCE):
        xs, dys = parts_of(x, j, q, N, C, P, PIXELS, AT_ONCE), parts_of(dy, j, q, N, C, P, PIXELS, AT_ONCE)
        tiles = [(v.astype(ACC), d.astype(ACC)) for v, d in zip(xs, dys)]
        sums = sum([d * (v - centre) for v, d in tiles], sums)
        plain = sum([d for _, d in tiles], plain)
    sums, plain = two_sums(by_channel(sums, C), by_channel(plain, C), 2)
    sums, plain = two_sums(sums, plain, 0)
    ct.store(of_weights, (part, j), ct.reshape(sums, (1, C)))
    ct.store(of_biases, (part, j), ct.reshape(plain, (1, C)))
    if is_last(arrived, j):
        sums, plain = two_sums(all_parts(of_weights, j, PARTS, C), all_parts(of_biases, j, PARTS, C), 0)
        factor = channel_numbers(rstd, j, C)
        sums, plain = ct.reshape(sums, (1, C, 1)) * factor, ct.reshape(plain, (1, C, 1))
        scale = channel_numbers(weight, j, C).astype(ACC) * factor
        # What is along the deviations of a channel, and what all its elements have in common: of y, and of the statistics as results.
        share = 1.0 / COUNT
        slope = (sums * scale + channel_numbers(drstd, j, C) * factor * factor) * factor * share
        common = (plain * scale - channel_numbers(dmean, j, C)) * share
        ct.store(dweight, (j,), ct.reshape(sums, (C,)).astype(dweight.dtype))
        ct.store(dbias, (j,), ct.reshape(plain, (C,)).astype(dbias.dtype))
        ct.store(scales, (j,), ct.reshape(scale, (C,)))
        ct.store(slopes, (j,), ct.reshape(slope, (C,)))
        ct.store(shifts, (j,), ct.reshape(channel_numbers(mean, j, C) * slope - common, (C,)))


@tessera.kernel(num_warps=8)
def batch_backward(
    x,
    dy,
    scales,
    slopes,
    shifts,
    dx,
    ACC: ct.Constant,
    N: ct.Constant[int],
    K: ct.Constant[int],
    VECTOR: ct.Constant[int],
    PIXELS: ct.Constant[int],
):
    own = block(x, N, K, VECTOR, PIXELS)
    scale, slope, shift = own.of_channels(lambda c: (gathered(scales, c), gathered(slopes, c), gathered(shifts, c)))
    own.store(dx, own.load(dy, ACC) * scale + (shift - own.load(x, ACC) * slope))


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
