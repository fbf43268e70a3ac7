"""Numbers from a counter-based generator, Philox 4x32-10 (Salmon, Moraes, Dror and Shaw, 2011): four words of 32 bits from a counter of four words and a
key of two. No state is kept: a word depends on the seed, the offset, and the place of its element alone, not on the device or the tiles.

    key      seed, its low word first
    counter  r + S b in the first word, 0; offset, its low word first

Elements come in blocks of S counters times the elements that a counter serves, LANES: element b S LANES + l S + r takes what is called lane l, so
neighbours have neighbouring counters.

    dropout         8 lanes: words, each twice, first with its halves exchanged. An element is kept where the upper 31 bits are not below `threshold`
    random_uniform  4 lanes, words: as many of the upper bits as the type has digits; f64 has 2 lanes, of 53 bits of two words
    random_normal   4 lanes: cosine and sine of each pair of words (Box and Muller, 1958)
"""
import math

import cuda.tile as ct
import tessera

S = 512


def product(a, factor):
    """The upper and the lower word."""
    wide = a.astype(ct.uint64) * factor
    return (wide >> 32).astype(ct.uint32), wide.astype(ct.uint32)


def words(seed_low, seed_high, offset_low, offset_high):
    """Four words for each counter of this block."""
    key_0, key_1 = seed_low.astype(ct.uint32), seed_high.astype(ct.uint32)
    none = ct.zeros((S,), ct.uint32)
    a = ct.arange(S, dtype=ct.uint32) + ct.bid(0).astype(ct.uint32) * S
    b, c, d = none, none + offset_low.astype(ct.uint32), none + offset_high.astype(ct.uint32)
    for at in ct.static_iter(range(10)):
        high_0, low_0 = product(a, 0xD2511F53)
        high_1, low_1 = product(c, 0xCD9E8D57)
        a, b, c, d = high_1 ^ b ^ key_0, low_1, high_0 ^ d ^ key_1, low_0
        key_0, key_1 = key_0 + 0x9E3779B9, key_1 + 0xBB67AE85
    return a, b, c, d


def lanes(store, n, LANES):
    """Does what a block's lanes do; of the last block those that have elements."""
    if (ct.bid(0) + 1) * (LANES * S) <= n:
        for lane in ct.static_iter(range(LANES)):
            store(lane, ct.bid(0) * LANES + lane)
    else:
        for lane in ct.static_iter(range(LANES)):
            if (ct.bid(0) * LANES + lane) * S < n:
                store(lane, ct.bid(0) * LANES + lane)


@tessera.kernel
def dropout(x, y, seed_low: int, seed_high: int, offset_low: int, offset_high: int, threshold: int, scale: float, ACC: ct.Constant):
    # p in units of 2^-31, and 1 / (1 - p), which is rounded to ACC alone. Both are numbers of the launch: a kernel is compiled for no p.
    least = threshold.astype(ct.uint32)

    def kept(t, word, lane):
        exchanged = word if lane % 2 else (word << 16) | (word >> 16)
        return ct.where((exchanged >> 1) >= least, t.astype(ACC) * scale, 0.0).astype(y.dtype)

    if (ct.bid(0) + 1) * (8 * S) <= x.shape[0]:
        # Elements are on their way while the words are made.
        held = ()
        for lane in ct.static_iter(range(8)):
            held = held + (ct.load(x, (ct.bid(0) * 8 + lane,), (S,)),)
        four = words(seed_low, seed_high, offset_low, offset_high)
        for lane in ct.static_iter(range(8)):
            ct.store(y, (ct.bid(0) * 8 + lane,), kept(held[lane], four[lane // 2], lane))
    else:
        four = words(seed_low, seed_high, offset_low, offset_high)
        for lane in ct.static_iter(range(8)):
            if (ct.bid(0) * 8 + lane) * S < x.shape[0]:
                at = ct.bid(0) * 8 + lane
                ct.store(y, (at,), kept(ct.load(x, (at,), (S,)), four[lane // 2], lane))


@tessera.kernel
def random_uniform(y, seed_low: int, seed_high: int, offset_low: int, offset_high: int, DIGITS: ct.Constant[int]):
    four = words(seed_low, seed_high, offset_low, offset_high)

    def store(lane, at):
        if DIGITS == 53:
            digits = (four[2 * lane].astype(ct.uint64) << 21) | (four[2 * lane + 1] >> 11).astype(ct.uint64)
            ct.store(y, (at,), digits.astype(ct.float64) * 2.0 ** -53)
        else:
            digits = (four[lane] >> (32 - DIGITS)).astype(ct.int32)
            ct.store(y, (at,), (digits.astype(ct.float32) * 2.0 ** -DIGITS).astype(y.dtype))

    lanes(store, y.shape[0], 2 if DIGITS == 53 else 4)


def logarithm(u):
    """The natural logarithm of a normal number: of 2^e m it is e log 2 + 2 atanh((m - 1) / (m + 1)), with m from sqrt(1/2) to sqrt(2)."""
    bits = ct.bitcast(u, ct.int32) - 0x3f3504f3
    m = ct.bitcast((bits & 0x7fffff) + 0x3f3504f3, ct.float32)
    s = ct.truediv(m - 1.0, m + 1.0, rounding_mode=ct.RoundingMode.APPROX, flush_to_zero=True)
    z = s * s
    tail = z * (0.6666666667 + z * (0.4 + z * (0.2857142857 + z * 0.2222222222)))
    return (bits >> 23).astype(ct.float32) * math.log(2.0) + (2.0 * s + s * tail)


def sine_and_cosine(word):
    """Of 2 pi (word - 2^29) / 2^32: the upper two bits count quarters of a turn, the others go from -1/8 to 1/8 of one."""
    r = ((word & 0x3fffffff).astype(ct.int32) - 0x20000000).astype(ct.float32) * (2.0 * math.pi * 2.0 ** -32)
    z = r * r
    sine = r + r * z * (-1.6666666664e-1 + z * (8.3333317852e-3 + z * (-1.9840038873e-4 + z * 2.7243781409e-6)))
    cosine = 1.0 + z * (-0.5 + z * (4.1666666641e-2 + z * (-1.3888887597e-3 + z * (2.4800560430e-5 - z * 2.7295830828e-7))))
    odd = (word & 0x40000000) != 0
    s, c = ct.where(odd, cosine, sine), ct.where(odd, sine, cosine)
    low = (word & 0x80000000) != 0
    return ct.where(low, -s, s), ct.where(odd != low, -c, c)


def normal_pair(first, second):
    # From 2^-33 to 1.
    u = first.astype(ct.float32) * 2.0 ** -32 + 2.0 ** -33
    radius = ct.sqrt(-2.0 * ct.minimum(logarithm(u), 0.0))
    sine, cosine = sine_and_cosine(second)
    return radius * cosine, radius * sine


@tessera.kernel
def random_normal(y, seed_low: int, seed_high: int, offset_low: int, offset_high: int):
    four = words(seed_low, seed_high, offset_low, offset_high)
    numbers = normal_pair(four[0], four[1]) + normal_pair(four[2], four[3])

    def store(lane, at):
        ct.store(y, (at,), numbers[lane].astype(y.dtype))

    lanes(store, y.shape[0], 4)
