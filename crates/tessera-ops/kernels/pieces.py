"""Rows in pieces of CHUNK, which all blocks take together: a block leaves what it finds of one piece, and writes the results of the piece that lies
BEHIND it, which it finds in the cache. It waits for blocks of lower numbers alone, which start before it and leave what they find before they wait
(Merrill and Garland, 2016, "Single-pass Parallel Prefix Scan with Decoupled Look-back", rely on the same order).

What is left is a word that is not 0, with -0 for 0: so it is complete when it is seen, and no fence is needed. The last block that has read a row's
words sets them back to 0, from where the next launch starts.
"""
import cuda.tile as ct

RELAXED = ct.MemoryOrder.RELAXED
DEVICE = ct.MemoryScope.DEVICE
ZERO = ct.PaddingMode.ZERO
LOG2_E = 1.4426950408889634


def leave(words, i, j, number):
    """Leaves what was found of piece j of row i."""
    word = ct.bitcast(ct.where(number == 0.0, -0.0, number), words.dtype)
    ct.store(words, (i, j), word, memory_order=RELAXED, memory_scope=DEVICE)


def left(words, i, k, PARTS):
    """What the PARTS pieces with this number have left; 0 of one that has not yet."""
    return ct.load(words, (i, k), (1, PARTS), padding_mode=ZERO, memory_order=RELAXED, memory_scope=DEVICE)


def of_row(k, PIECES, PARTS):
    """Which of these pieces the row has."""
    return k * PARTS + ct.arange(PARTS, dtype=ct.int32)[None, :] < PIECES


def some_sums(words, i, k, ACC, PIECES, PARTS):
    """How many of some pieces have left nothing yet, and what the others come to."""
    found, row = left(words, i, k, PARTS), of_row(k, PIECES, PARTS)
    missing, sum = ct.where(row & (found == 0), 1, 0), ct.where(row, ct.bitcast(found, ACC), 0.0)
    missing, sum = ct.reduce((missing, sum), 1, lambda a, b, c, d: (a + c, b + d), (0, 0.0))
    return ct.reshape(missing, ()), ct.reshape(sum, (1, 1))


def sum_of_row(words, i, ACC, PIECES, PARTS):
    """The sum of what all pieces of a row have left; waits until they have."""
    total = ct.zeros((1, 1), ACC)
    for k in range(ct.cdiv(PIECES, PARTS)):
        missing, sum = some_sums(words, i, k, ACC, PIECES, PARTS)
        while missing > 0:
            missing, sum = some_sums(words, i, k, ACC, PIECES, PARTS)
        total = total + sum
    return total


def power(distance, ACC):
    """exp(distance). Below 2**-126 nothing is left of a probability."""
    return ct.exp2(distance * LOG2_E, flush_to_zero=ACC == ct.float32)


def lowest(ACC):
    """The lowest finite number: nothing finite lies below, as masks do that are the lowest of their own type."""
    return -1.7976931348623157e308 if ACC == ct.float64 else -3.4028234663852886e38


def before(j, CHUNK, end):
    """Which elements of piece j lie before the row's `end`."""
    return ct.arange(CHUNK, dtype=ct.int32)[None, :] < end - j * CHUNK


def leave_powers(x, tops, sums, i, j, ACC, CHUNK, end, MASKED):
    """Leaves the largest element of a piece, of those before `end` where it is MASKED, and the sum of exp(element - largest)."""
    v = ct.load(x, (i, j), (1, CHUNK), padding_mode=ZERO).astype(ACC)
    if MASKED:
        v = ct.where(before(j, CHUNK, end), v, -float("inf"))
    # A finite start: a piece that is all -inf has no part in the sum.
    most = ct.maximum(ct.max(v, axis=1, keepdims=True), lowest(ACC))
    leave(tops, i, j, most)
    leave(sums, i, j, ct.sum(power(v - most, ACC), axis=1, keepdims=True))


def some_powers(tops, sums, i, k, ACC, PIECES, PARTS):
    """How many of some pieces have left nothing yet, the largest element of the others; what each has left."""
    top, sum, row = left(tops, i, k, PARTS), left(sums, i, k, PARTS), of_row(k, PIECES, PARTS)
    missing = ct.where(row & ((top == 0) | (sum == 0)), 1, 0)
    top = ct.where(row, ct.bitcast(top, ACC), lowest(ACC))
    missing, most = ct.reduce((missing, top), 1, lambda a, b, c, d: (a + c, ct.maximum(b, d)), (0, lowest(ACC)))
    return ct.reshape(missing, ()), ct.reshape(most, (1, 1)), top, ct.where(row, ct.bitcast(sum, ACC), 0.0)


def powers_of_row(tops, sums, i, ACC, PIECES, PARTS):
    """The largest element of a row, and the sum of exp(element - largest); waits until all pieces have left theirs."""
    most, total = ct.full((1, 1), lowest(ACC), ACC), ct.zeros((1, 1), ACC)
    for k in range(ct.cdiv(PIECES, PARTS)):
        missing, more, top, sum = some_powers(tops, sums, i, k, ACC, PIECES, PARTS)
        while missing > 0:
            missing, more, top, sum = some_powers(tops, sums, i, k, ACC, PIECES, PARTS)
        above = ct.maximum(most, more)
        total = total * power(most - above, ACC) + ct.sum(power(top - above, ACC) * sum, axis=1, keepdims=True)
        most = above
    return most, total


def is_last(gone, i, PIECES):
    """True in the last block that has read what a row's pieces left. It sets the count back."""
    last = ct.atomic_add(gone, i, 1, memory_order=RELAXED) == PIECES - 1
    if last:
        ct.atomic_xchg(gone, i, 0, memory_order=RELAXED)
    return last


def set_back(words, i, PIECES, PARTS):
    for k in range(ct.cdiv(PIECES, PARTS)):
        ct.store(words, (i, k), ct.zeros((1, PARTS), words.dtype), memory_order=RELAXED, memory_scope=DEVICE)
