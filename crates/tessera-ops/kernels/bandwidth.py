"""Memory bandwidth after STREAM (McCalpin): copy, scale, add, triad.

Sequential and strided patterns differ in the arrays' strides alone. The random pattern reads through a bijection of 0..n-1 that is computed,
not loaded: rounds of odd multiplication and xor-shift on `BITS` bits, repeated while the result lies outside (cycle walking).
"""
import cuda.tile as ct
import tessera


@tessera.kernel
def copy(a, c, TILE: ct.Constant[int]):
    i = ct.bid(0)
    ct.store(c, (i,), ct.load(a, (i,), (TILE,)))


@tessera.kernel
def scale(a, c, scalar, TILE: ct.Constant[int], ACC: ct.Constant):
    i = ct.bid(0)
    v = ct.load(a, (i,), (TILE,)).astype(ACC)
    ct.store(c, (i,), (v * ct.astype(scalar, ACC)).astype(c.dtype))


@tessera.kernel
def add(a, b, c, TILE: ct.Constant[int], ACC: ct.Constant):
    i = ct.bid(0)
    v = ct.load(a, (i,), (TILE,)).astype(ACC)
    w = ct.load(b, (i,), (TILE,)).astype(ACC)
    ct.store(c, (i,), (v + w).astype(c.dtype))


@tessera.kernel
def triad(a, b, c, scalar, TILE: ct.Constant[int], ACC: ct.Constant):
    i = ct.bid(0)
    v = ct.load(a, (i,), (TILE,)).astype(ACC)
    w = ct.load(b, (i,), (TILE,)).astype(ACC)
    ct.store(c, (i,), (v + ct.astype(scalar, ACC) * w).astype(c.dtype))


def mix(index, BITS):
    mask = (1 << BITS) - 1
    half = (BITS + 1) // 2
    index = (index * 0x2545F491) & mask
    index = index ^ (index >> half)
    index = (index * 0x1B873593) & mask
    index = index ^ (index >> half)
    return (index * 0x5D588B65) & mask


def permuted(n, TILE, BITS, INDEX):
    start = ct.bid(0).astype(INDEX) * TILE + ct.arange(TILE, dtype=INDEX)
    index = mix(start, BITS)
    # A place beyond the array may lie on a cycle that never comes back inside; it is not stored, so it need not.
    if (n & (n - 1)) != 0:
        outside = (index >= n) & (start < n)
        while ct.max(outside.astype(ct.int32), axis=0) > 0:
            index = ct.where(outside, mix(index, BITS), index)
            outside = outside & (index >= n)
    return index


@tessera.kernel
def copy_random(a, c, n, TILE: ct.Constant[int], BITS: ct.Constant[int], INDEX: ct.Constant):
    index = permuted(n, TILE, BITS, INDEX)
    ct.store(c, (ct.bid(0),), ct.gather(a, index))


@tessera.kernel
def scale_random(a, c, n, scalar, TILE: ct.Constant[int], BITS: ct.Constant[int], INDEX: ct.Constant, ACC: ct.Constant):
    index = permuted(n, TILE, BITS, INDEX)
    v = ct.gather(a, index).astype(ACC)
    ct.store(c, (ct.bid(0),), (v * ct.astype(scalar, ACC)).astype(c.dtype))


@tessera.kernel
def add_random(a, b, c, n, TILE: ct.Constant[int], BITS: ct.Constant[int], INDEX: ct.Constant, ACC: ct.Constant):
    index = permuted(n, TILE, BITS, INDEX)
    v = ct.gather(a, index).astype(ACC)
    w = ct.gather(b, index).astype(ACC)
    ct.store(c, (ct.bid(0),), (v + w).astype(c.dtype))


@tessera.kernel
def triad_random(a, b, c, n, scalar, TILE: ct.Constant[int], BITS: ct.Constant[int], INDEX: ct.Constant, ACC: ct.Constant):
    index = permuted(n, TILE, BITS, INDEX)
    v = ct.gather(a, index).astype(ACC)
    w = ct.gather(b, index).astype(ACC)
    ct.store(c, (ct.bid(0),), (v + ct.astype(scalar, ACC) * w).astype(c.dtype))
