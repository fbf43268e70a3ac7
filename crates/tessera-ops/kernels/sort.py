"""Sorting a whole array, stably, by eight bits of its keys a pass from the least ones on (a radix sort).

Of each pass a block first counts how many keys of its part have each digit; then the prefix sum over all counts, digit by digit, says where a block's
keys of a digit begin. At last a block brings TILE keys at a time into the order of their digits in its own memory, by four bits and by four, from
where neighbours go to neighbours. For four bits a thread counts its own ITEMS keys, which are neighbours, in a column of its own (Satish, Harris and
Garland, 2009, "Designing Efficient Sorting Algorithms for Manycore GPUs"); the order of sixteen digits times all threads is that of the keys.

Floats are sorted as the integers that have their order: IEEE's totalOrder, with -0 before 0 and NaN at the ends.
"""
import cuda.tile as ct
import tessera
from tessera import Tensor, int32, tile

THREADS = 128
ITEMS = 16
TILE = THREADS * ITEMS
# Counts of four bits: of each digit a row of all threads; a place is left free behind 32 others, so that sixteen neighbours lie in different banks.
COUNTS = 16 * THREADS
ROOM = COUNTS + COUNTS // 32
DIGITS = 256


@tessera.kernel
def ordered(x, y, SIZE: ct.Constant[int]):
    """Floats to integers of their order; the same again takes them back."""
    i = ct.bid(0)
    bits = ct.bitcast(ct.load(x, (i,), (SIZE,), padding_mode=ct.PaddingMode.ZERO), ct.int32)
    ct.store(y, (i,), ct.bitcast(bits ^ ((bits >> 31) & 0x7FFFFFFF), y.dtype))


def digit(key, SHIFT):
    """Eight bits of a key; the sign is the greatest one, and stands the other way round."""
    own = (key >> SHIFT) & 255
    if SHIFT == 24:
        own = own ^ 128
    return own


@tessera.kernel
def count_digits(keys: Tensor["N", int32], counts: Tensor["C", int32], SHIFT: ct.Constant[int], PART: ct.Constant[int]):
    own = tile.alloc_shared[int32](DIGITS)
    t = tile.thread_id()
    for d in range(t, DIGITS, THREADS):
        own[d] = 0
    tile.barrier()
    first = tile.block_id() * PART
    for i in range(first + t, tile.min(first + PART, keys.shape[0]), THREADS):
        tile.atomic_add(own[digit(keys[i], SHIFT)], 1)
    tile.barrier()
    for d in range(t, DIGITS, THREADS):
        counts[d * tile.num_blocks() + tile.block_id()] = own[d]


def spread(place):
    return place + place // 32


def order_by_four_bits(keys, moved, counts, warps, key, item, rank, shift, FIRST):
    """Brings a tile into the order of four bits of a digit; `moved` says from which place of the tile a key comes."""
    t = tile.thread_id()
    for d in range(16):
        counts[spread(d * THREADS + t)] = 0
    for e in range(ITEMS):
        key[e] = keys[t * ITEMS + e]
        if FIRST:
            item[e] = t * ITEMS + e
        else:
            item[e] = moved[t * ITEMS + e]
    for e in range(ITEMS):
        place = spread(((key[e] >> shift) & 15) * THREADS + t)
        rank[e] = counts[place]
        counts[place] = rank[e] + 1
    tile.barrier()
    # Prefix sums: of sixteen neighbours, of the threads of a warp, of warps.
    total = 0
    for d in range(16):
        total += counts[spread(t * 16 + d)]
    sum = total
    for step in range(5):
        other = tile.shuffle_up(sum, 1 << step)
        if tile.lane_id() >= (1 << step):
            sum += other
    if tile.lane_id() == 31:
        warps[tile.warp_id()] = sum
    tile.barrier()
    before = sum - total
    for w in range(tile.warp_id()):
        before += warps[w]
    for d in range(16):
        place = spread(t * 16 + d)
        own = counts[place]
        counts[place] = before
        before += own
    tile.barrier()
    for e in range(ITEMS):
        place = counts[spread(((key[e] >> shift) & 15) * THREADS + t)] + rank[e]
        keys[place] = key[e]
        moved[place] = item[e]
    tile.barrier()


@tessera.kernel
def move(keys: Tensor["N", int32], values: Tensor["V", int32], offsets: Tensor["C", int32], new_keys: Tensor["N", int32],
         new_values: Tensor["W", int32], SHIFT: ct.Constant[int], PART: ct.Constant[int], VALUES: ct.Constant[int]):
    """VALUES: 0 for keys alone, 1 for values with them, 2 for values that are the keys' places."""
    digits = tile.alloc_shared[int32](TILE)
    moved = tile.alloc_shared[int32](TILE)
    counts = tile.alloc_shared[int32](ROOM)
    warps = tile.alloc_shared[int32](THREADS // 32)
    next = tile.alloc_shared[int32](DIGITS)
    starts = tile.alloc_shared[int32](DIGITS)
    key = tile.alloc_register[int32](ITEMS)
    item = tile.alloc_register[int32](ITEMS)
    rank = tile.alloc_register[int32](ITEMS)
    t = tile.thread_id()
    n = keys.shape[0]
    for d in range(t, DIGITS, THREADS):
        next[d] = offsets[d * tile.num_blocks() + tile.block_id()]
    start = tile.block_id() * PART
    end = tile.min(start + PART, n)
    for first in range(start, end, TILE):
        size = tile.min(end - first, TILE)
        # What stands behind the last key comes last: all digits are less than 256, and it is behind keys with the greatest one.
        for e in range(ITEMS):
            place = t + e * THREADS
            if place < size:
                digits[place] = digit(keys[first + place], SHIFT)
            else:
                digits[place] = 255
        tile.barrier()
        order_by_four_bits(digits, moved, counts, warps, key, item, rank, 0, True)
        order_by_four_bits(digits, moved, counts, warps, key, item, rank, 4, False)
        for e in range(ITEMS):
            place = t + e * THREADS
            if place < size:
                own = digits[place]
                is_first = True
                if place > 0:
                    is_first = digits[place - 1] != own
                if is_first:
                    starts[own] = place
        tile.barrier()
        for e in range(ITEMS):
            place = t + e * THREADS
            if place < size:
                own = digits[place]
                source = first + moved[place]
                target = next[own] + place - starts[own]
                new_keys[target] = keys[source]
                if VALUES == 1:
                    new_values[target] = values[source]
                if VALUES == 2:
                    new_values[target] = source
        tile.barrier()
        for e in range(ITEMS):
            place = t + e * THREADS
            if place < size:
                own = digits[place]
                is_last = True
                if place + 1 < size:
                    is_last = digits[place + 1] != own
                if is_last:
                    next[own] = next[own] + place + 1 - starts[own]
        tile.barrier()
