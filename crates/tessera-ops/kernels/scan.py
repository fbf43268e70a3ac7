"""Prefix sums of a whole array, and what is packed by them, in one pass over memory.

A block adds up TILE elements, leaves what they come to, and waits for what lower blocks have left. These start before it and leave theirs before
they wait (Merrill and Garland, 2016, "Single-pass Parallel Prefix Scan with Decoupled Look-back", rely on the same order). Other than there, a
block always adds the same numbers in the same order, so that results never depend on how blocks are scheduled: GROUP blocks are a group, whose
last block leaves what they come to together; a block adds up what the groups before its own have left, and what the blocks of its own before it.

```text
GROUP = 4     block   0 1 2 3 | 4 5 6 7 | 8 9
              block 9 adds    A         B   8        A, B: left by blocks 3 and 7
```

What is left is one word that is not 0: a float's bits, with -0 for 0; an integer with a bit above it. So a word is complete when it is seen, and
no fence is needed. The block that finds all others done sets the words back to 0, from where the next launch starts.
"""
import cuda.tile as ct
import tessera

RELAXED = ct.MemoryOrder.RELAXED
DEVICE = ct.MemoryScope.DEVICE
ZERO = ct.PaddingMode.ZERO
# A bit above those of an integer of 32 bits and its sign.
PRESENT = 1 << 40


def as_word(total, words, ACC):
    if ACC == ct.int32:
        return total.astype(words.dtype) + PRESENT
    return ct.bitcast(ct.where(total == 0.0, -0.0, total), words.dtype)


def as_number(word, ACC):
    if ACC == ct.int32:
        return (word - PRESENT).astype(ACC)
    return ct.bitcast(word, ACC)


def leave(words, at, total, ACC):
    ct.store(words, (at,), as_word(total, words, ACC), memory_order=RELAXED, memory_scope=DEVICE)


def read(words, number, GROUP):
    return ct.load(words, (number,), (GROUP,), memory_order=RELAXED, memory_scope=DEVICE)


def looked_at(words, number, end, ACC, GROUP):
    """How many of the words below `end` are not there yet, of the GROUP with this number, and what the others come to."""
    needed = number * GROUP + ct.arange(GROUP, dtype=ct.int32) < end
    found = read(words, number, GROUP)
    none = ct.zeros((GROUP,), ACC)
    return ct.where(needed & (found == 0), 1, 0), ct.where(needed, as_number(found, ACC), none)


def summed(missing, left, ACC):
    return ct.reduce((missing, left), 0, lambda a, b, c, d: (a + c, b + d), (0, zero(ACC)))


def zero(ACC):
    return 0 if ACC == ct.int32 else 0.0


def left_by(words, number, end, ACC, GROUP):
    """What the words below `end` come to, of the GROUP with this number; waits until they are there."""
    missing, left = summed(*looked_at(words, number, end, ACC, GROUP), ACC)
    while missing > 0:
        missing, left = summed(*looked_at(words, number, end, ACC, GROUP), ACC)
    return left


def before(total, words, groups, ACC, GROUP):
    """What the elements of all blocks before this one come to, which has left its own `total` in `words`."""
    at = ct.bid(0)
    group = at // GROUP
    within = left_by(words, group, at, ACC, GROUP)
    if at % GROUP == GROUP - 1:
        leave(groups, group, within + total, ACC)
    sum = ct.zeros((1,), ACC)
    for i in range(ct.cdiv(group, GROUP)):
        sum = sum + left_by(groups, i, group, ACC, GROUP)
    return sum + within


def begin_anew(words, groups, done, GROUP):
    """The last block that has read what it needs sets all words back."""
    if ct.atomic_add(done, 0, 1, memory_order=RELAXED) == ct.num_blocks(0) - 1:
        for i in range(words.shape[0] // GROUP):
            ct.store(words, (i,), ct.zeros((GROUP,), words.dtype), memory_order=RELAXED, memory_scope=DEVICE)
        for i in range(groups.shape[0] // GROUP):
            ct.store(groups, (i,), ct.zeros((GROUP,), groups.dtype), memory_order=RELAXED, memory_scope=DEVICE)
        ct.store(done, (0,), ct.zeros((1,), done.dtype), memory_order=RELAXED, memory_scope=DEVICE)


@tessera.kernel(num_warps=16, occupancy=1)
def scan(x, words, groups, done, y, ACC: ct.Constant, TILE: ct.Constant[int], GROUP: ct.Constant[int], EXCLUSIVE: ct.Constant[bool]):
    at = ct.bid(0)
    if EXCLUSIVE:
        # The sums of all elements before one are those of an array that is one element further on.
        place = at * TILE + ct.arange(TILE, dtype=ct.int32) - 1
        v = ct.gather(x, place, mask=place >= 0, padding_value=0).astype(ACC)
    else:
        v = ct.load(x, (at,), (TILE,), padding_mode=ZERO).astype(ACC)
    # Others wait for the total alone.
    total = ct.sum(v, axis=0, keepdims=True)
    leave(words, at, total, ACC)
    sums = ct.cumsum(v)
    first = before(total, words, groups, ACC, GROUP)
    ct.store(y, (at,), (sums + first).astype(y.dtype))
    begin_anew(words, groups, done, GROUP)


@tessera.kernel(num_warps=16, occupancy=2)
def select(x, mask, words, groups, done, y, count, TILE: ct.Constant[int], GROUP: ct.Constant[int]):
    at = ct.bid(0)
    v = ct.load(x, (at,), (TILE,), padding_mode=ZERO)
    kept = ct.load(mask, (at,), (TILE,), padding_mode=ZERO) != 0
    ones = kept.astype(ct.int32)
    total = ct.sum(ones, axis=0, keepdims=True)
    leave(words, at, total, ct.int32)
    sums = ct.cumsum(ones)
    first = before(total, words, groups, ct.int32, GROUP)
    ct.scatter(y, first + sums - 1, v, mask=kept)
    if at == ct.num_blocks(0) - 1:
        ct.store(count, (0,), first + total)
    begin_anew(words, groups, done, GROUP)


@tessera.kernel(num_warps=16, occupancy=2)
def to_csr(x, words, groups, done, values, columns, row_offsets, N: ct.Constant[int], TILE: ct.Constant[int], GROUP: ct.Constant[int]):
    """The elements of a matrix that are not 0, row by row, and where each row begins among them."""
    at = ct.bid(0)
    v = ct.load(x, (at,), (TILE,), padding_mode=ZERO)
    kept = v != 0
    ones = kept.astype(ct.int32)
    total = ct.sum(ones, axis=0, keepdims=True)
    leave(words, at, total, ct.int32)
    sums = ct.cumsum(ones)
    first = before(total, words, groups, ct.int32, GROUP)
    index = at * TILE + ct.arange(TILE, dtype=ct.int32)
    place = first + sums - 1
    ct.scatter(values, place, v, mask=kept)
    ct.scatter(columns, place, index % N, mask=kept)
    ct.scatter(row_offsets, index // N, place + 1 - ones, mask=(index % N == 0) & (index < x.shape[0]))
    if at == ct.num_blocks(0) - 1:
        ct.store(row_offsets, (row_offsets.shape[0] - 1,), first + total)
    begin_anew(words, groups, done, GROUP)


@tessera.kernel
def clear_behind(count, y, AT: ct.Constant[int], TILE: ct.Constant[int]):
    """Zeros where nothing was packed."""
    at = ct.bid(0)
    used = ct.load(count, (AT,), ())
    if (at + 1) * TILE > used:
        place = at * TILE + ct.arange(TILE, dtype=ct.int32)
        ct.scatter(y, place, ct.zeros((TILE,), y.dtype), mask=place >= used)
