"""Short rows in order by a block each: a bitonic network (K. E. Batcher, "Sorting networks and their applications", 1968) over words that have an
element's key above its place. So all words differ, and equal elements keep their order.

A thread has ITEMS neighbours. Partners at a distance below that are its own, below a warp's they are another lane's, and else they lie in shared
memory. What stands behind the row's end is larger than all words. BITS: those of an element.
"""
import cuda.tile as ct
import tessera
from tessera import Tensor, fp32, int16, int32, int64, tile

ITEMS = 4


def key_of(v, BITS, LEAST):
    """An integer that is ordered as elements are: both zeros are equal, NaN is the largest."""
    most = 0x7FFFFFFF
    if BITS == 16:
        most = 0x7FFF
        key = tile.cast(tile.bitcast(v, int16), int32)
    else:
        key = tile.bitcast(v, int32)
    if key < 0:
        key = key ^ most
    number = tile.cast(v, fp32)
    if number == 0.0:
        key = 0
    if number != number:
        key = most
    if not LEAST:
        key = -1 - key
    return key


def exchange(word, one, other, rises):
    low = tile.min(word[one], word[other])
    high = tile.max(word[one], word[other])
    word[one] = tile.where(rises, low, high)
    word[other] = tile.where(rises, high, low)


@tessera.kernel
def sort_row(x: Tensor["M", "N", dtype], values: Tensor["M", "N", dtype], indices: Tensor["M", "N", int32], LEAST: ct.Constant[bool],
             WORD: ct.Constant, BITS: ct.Constant[int], SIZE: ct.Constant[int], STEPS: ct.Constant[int]):
    """2 to the power of STEPS is SIZE; a block has SIZE // ITEMS threads."""
    words = tile.alloc_shared[WORD](SIZE)
    word = tile.alloc_register[WORD](ITEMS)
    t = tile.thread_id()
    row = tile.block_id()
    n = x.shape[1]
    for e in range(ITEMS):
        place = t + e * tile.block_size()
        own = tile.cast(((1 << (2 * BITS - 2)) - 1) * 2 + 1, WORD)
        if place < n:
            own = tile.cast(key_of(x[row, place], BITS, LEAST), WORD) * (1 << BITS) + place
        words[place] = own
    tile.barrier()
    for e in range(ITEMS):
        word[e] = words[t * ITEMS + e]
    for step in range(STEPS):
        for half in range(step + 1):
            # Runs of this length rise and fall by turns.
            run = 2 << step
            distance = run >> (half + 1)
            rises = (t * ITEMS) & run == 0
            if distance == 2:
                exchange(word, 0, 2, rises)
                exchange(word, 1, 3, rises)
            elif distance == 1:
                exchange(word, 0, 1, rises)
                exchange(word, 2, 3, (t * ITEMS + 2) & run == 0)
            else:
                keeps_low = ((t * ITEMS) & distance == 0) == rises
                if distance < ITEMS * 32:
                    for e in range(ITEMS):
                        other = tile.shuffle_xor(word[e], distance // ITEMS)
                        word[e] = tile.where(keeps_low, tile.min(word[e], other), tile.max(word[e], other))
                else:
                    # Neighbours lie a block apart here, so that lanes meet in no bank.
                    tile.barrier()
                    for e in range(ITEMS):
                        words[e * tile.block_size() + t] = word[e]
                    tile.barrier()
                    for e in range(ITEMS):
                        other = words[e * tile.block_size() + (t ^ (distance // ITEMS))]
                        word[e] = tile.where(keeps_low, tile.min(word[e], other), tile.max(word[e], other))
    tile.barrier()
    for e in range(ITEMS):
        words[t * ITEMS + e] = word[e]
    tile.barrier()
    for e in range(ITEMS):
        place = t + e * tile.block_size()
        if place < n:
            at = tile.cast(words[place] & ((1 << BITS) - 1), int32)
            values[row, place] = x[row, at]
            indices[row, place] = at
