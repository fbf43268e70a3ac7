"""Sorting a whole array, stably, by eight bits of its keys a pass from the least ones on (a radix sort in one sweep a pass: Adinets and Merrill,
2022, "Onesweep: A Faster Least Significant Digit Radix Sort for GPUs").

`count_digits` reads the keys once and counts the digits of all passes. A pass, `move`, then reads each key once and writes it once. A block takes
a tile of keys in its registers, a warp 32 neighbours at a time, and finds of each how many of its digit stand before it in the warp's keys: lanes
of equal digits find each other, and the first of them adds them to the warp's count. Sums over warps and digits say where a key stands in the tile
in the order of digits, where it goes in shared memory, so that neighbours leave from there to neighbours.

Where a block's keys of a digit begin in the array is what all blocks before it have of that digit, behind all keys of lesser digits. A thread
finds it for one digit: it looks back from block to block, at a word each, until one has left a sum over all that stands before it, too. Blocks
wait for lower ones alone, which start before them, and leave what they have before they wait (Merrill and Garland, 2016, "Single-pass Parallel
Prefix Scan with Decoupled Look-back", rely on the same order). A word is complete when it is seen, so that no fence is needed:

```text
0         nothing is known yet        block     0     1     2     3        block 3 adds 4 and 2, which blocks 2 and 1 have alone, to
1 + k     the block has k keys        known    <7>    2     4     ?        the 7 at which the digit's keys end in block 0
< 0       where its last one ends; the sign is a mark, and 31 bits are the number
```

Floats are sorted as the integers that have their order: IEEE's totalOrder, with -0 before 0 and NaN at the ends. The first pass makes integers of
them, the last one floats.
"""
import cuda.tile as ct
import tessera
from tessera import Tensor, int32, int64, tile

BITS = 8
DIGITS = 256
# Keys of a thread whose loads are on their way together while digits are counted.
BATCH = 8
# Words that a thread looks at together.
LOOK = 4
LARGEST = 0x7FFFFFFF


def ordered(bits):
    """A float's bits to the integer of its order; the same again takes it back."""
    return bits ^ ((bits >> 31) & LARGEST)


def key_of(element, FLOATS):
    key = tile.bitcast(element, int32)
    if FLOATS:
        key = ordered(key)
    return key


def digit(key, PASS):
    """Eight bits of a key; the sign is the greatest one, and stands the other way round."""
    own = (key >> (BITS * PASS)) & (DIGITS - 1)
    if PASS == 3:
        own = own ^ (DIGITS // 2)
    return own


def count(key, counts, PASSES):
    for own in (0, 1, 2, 3):
        if own < PASSES:
            tile.atomic_add(counts[own * DIGITS + digit(key, own)], 1)


@tessera.kernel(num_warps=8)
def count_digits(keys: Tensor["N", given], digits: Tensor["D", int32], words: Tensor["W", int32], PASSES: ct.Constant[int],
                 PART: ct.Constant[int], FLOATS: ct.Constant[bool]):
    """Adds up the digits of all passes, and sets back the words of the first one."""
    counts = tile.alloc_shared[int32](PASSES * DIGITS)
    key = tile.alloc_register[int32](BATCH)
    t = tile.thread_id()
    size = tile.block_size()
    for d in range(t, PASSES * DIGITS, size):
        counts[d] = 0
    for i in range(tile.block_id() * size + t, words.shape[0], tile.num_blocks() * size):
        words[i] = 0
    tile.barrier()
    start = tile.block_id() * PART
    end = tile.min(start + PART, keys.shape[0])
    for first in range(start, end, size * BATCH):
        source = tile.cast(first + t, int64)
        if first + size * BATCH <= end:
            for e in range(BATCH):
                key[e] = key_of(keys[source + e * size], FLOATS)
            for e in range(BATCH):
                count(key[e], counts, PASSES)
        else:
            for e in range(BATCH):
                if first + t + e * size < end:
                    count(key_of(keys[source + e * size], FLOATS), counts, PASSES)
    tile.barrier()
    for d in range(t, PASSES * DIGITS, size):
        if counts[d] > 0:
            tile.atomic_add(digits[d], counts[d])


def sum_of_warp(own):
    """The sum of the numbers of this lane and those before it."""
    sum = own
    for step in range(5):
        other = tile.shuffle_up(sum, 1 << step)
        if tile.lane_id() >= (1 << step):
            sum += other
    return sum


def rank_in_warps(key, rank, counts, PASS, ITEMS):
    """How many keys of the warp stand before each one that have its digit; `counts` are the warps' digits."""
    row = tile.warp_id() * DIGITS
    below = (1 << tile.lane_id()) - 1
    for e in range(ITEMS):
        place = row + digit(key[e], PASS)
        same = tile.match_any(place, bits=BITS)
        earlier = tile.popcount(same & below)
        before = 0
        if earlier == 0:
            before = tile.atomic_add(counts[place], tile.popcount(same))
        # The first lane of them has the number of zeros below its bit.
        rank[e] = tile.shuffle(before, tile.popcount((same & -same) - 1)) + earlier


def look_back(words, seen):
    """Where the keys of this thread's digit end that stand before the block."""
    t = tile.thread_id()
    at = tile.block_id() - 1
    before = 0
    waits = True
    while waits:
        for k in range(LOOK):
            seen[k] = tile.load(words[tile.max(at - k, 0) * DIGITS + t], order="relaxed")
        goes_on = True
        for k in range(LOOK):
            goes_on = goes_on and seen[k] != 0
            if goes_on:
                if seen[k] < 0:
                    before += seen[k] & LARGEST
                    goes_on = False
                    waits = False
                else:
                    before += seen[k] - 1
                    at -= 1
    return before


@tessera.kernel(num_warps=16, occupancy=2)
def move(keys: Tensor["N", given], values: Tensor["V", int32], digits: Tensor["D", int32], words: Tensor["W", int32],
         next_words: Tensor["W", int32], new_keys: Tensor["N", left], new_values: Tensor["U", int32], PASS: ct.Constant[int],
         ITEMS: ct.Constant[int], VALUES: ct.Constant[int], FROM_FLOATS: ct.Constant[bool], TO_FLOATS: ct.Constant[bool]):
    """A pass. VALUES: 0 for keys alone, 1 for values with them, 2 for values that are the keys' places."""
    size = tile.block_size()
    counts = tile.alloc_shared[int32](size // 32 * DIGITS)
    moved = tile.alloc_shared[int32](size * ITEMS)
    targets = tile.alloc_shared[int32](DIGITS)
    sums = tile.alloc_shared[int32](DIGITS // 32)
    key = tile.alloc_register[int32](ITEMS)
    rank = tile.alloc_register[int32](ITEMS)
    seen = tile.alloc_register[int32](LOOK)
    if VALUES > 0:
        moved_values = tile.alloc_shared[int32](size * ITEMS)
    t = tile.thread_id()
    start = tile.block_id() * size * ITEMS
    count = tile.min(keys.shape[0] - start, size * ITEMS)
    # Lanes are neighbours, and so is what a warp takes at a time. Places of 64 bits do not wrap: one address serves all of a thread's.
    own = tile.warp_id() * 32 * ITEMS + tile.lane_id()
    source = tile.cast(start + own, int64)
    if count == size * ITEMS:
        for e in range(ITEMS):
            key[e] = tile.bitcast(keys[source + e * 32], int32)
    else:
        for e in range(ITEMS):
            # What stands behind the last key comes last: it has the greatest digit, and is behind keys that have it.
            key[e] = LARGEST
            if own + e * 32 < count:
                key[e] = tile.bitcast(keys[source + e * 32], int32)
    if FROM_FLOATS:
        for e in range(ITEMS):
            key[e] = ordered(key[e])
    for i in range(t, size // 32 * DIGITS, size):
        counts[i] = 0
    tile.barrier()
    rank_in_warps(key, rank, counts, PASS, ITEMS)
    tile.barrier()
    has_digit = tile.warp_id() < DIGITS // 32
    word = tile.block_id() * DIGITS + t
    total = 0
    first = 0
    if has_digit:
        for w in range(size // 32):
            of_warp = counts[w * DIGITS + t]
            counts[w * DIGITS + t] = total
            total += of_warp
        if tile.block_id() > 0:
            tile.store(words[word], total + 1, order="relaxed")
        next_words[word] = 0
        first = sum_of_warp(total) - total
        if tile.lane_id() == 31:
            sums[tile.warp_id()] = first + total
    tile.barrier()
    if has_digit:
        for w in range(tile.warp_id()):
            first += sums[w]
        for w in range(size // 32):
            counts[w * DIGITS + t] += first
    tile.barrier()
    for e in range(ITEMS):
        rank[e] += counts[tile.warp_id() * DIGITS + digit(key[e], PASS)]
        tile.store(moved[rank[e]], key[e], order="relaxed")
    if VALUES == 1:
        if count == size * ITEMS:
            for e in range(ITEMS):
                key[e] = values[source + e * 32]
        else:
            for e in range(ITEMS):
                key[e] = 0
                if own + e * 32 < count:
                    key[e] = values[source + e * 32]
        for e in range(ITEMS):
            tile.store(moved_values[rank[e]], key[e], order="relaxed")
    if VALUES == 2:
        for e in range(ITEMS):
            tile.store(moved_values[rank[e]], start + own + e * 32, order="relaxed")
    before = 0
    if tile.block_id() == 0:
        # Before the first block stand the keys of lesser digits. No other block needs their numbers, and the next call finds zeros.
        of_digit = 0
        if has_digit:
            of_digit = digits[PASS * DIGITS + t]
            digits[PASS * DIGITS + t] = 0
            before = sum_of_warp(of_digit)
            if tile.lane_id() == 31:
                sums[tile.warp_id()] = before
        tile.barrier()
        if has_digit:
            before -= of_digit
            for w in range(tile.warp_id()):
                before += sums[w]
    else:
        if has_digit:
            before = look_back(words, seen)
    if has_digit:
        tile.store(words[word], (before + total) | (-1 - LARGEST), order="relaxed")
        targets[t] = before - first
    tile.barrier()
    for e in range(ITEMS):
        key[e] = moved[t + e * size]
        rank[e] = targets[digit(key[e], PASS)] + t + e * size
    for e in range(ITEMS):
        if t + e * size < count:
            if TO_FLOATS:
                key[e] = ordered(key[e])
            new_keys[rank[e]] = tile.bitcast(key[e], left)
    if VALUES > 0:
        for e in range(ITEMS):
            key[e] = moved_values[t + e * size]
        for e in range(ITEMS):
            if t + e * size < count:
                new_values[rank[e]] = key[e]
