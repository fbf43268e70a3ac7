"""Matrices of which two of each four neighbours in a row are stored (2:4), and their products.

x[m, k] is `values[m, k / 2]`, what stands in each four, and `places[m, k / 32]`, words that say where: four bits for each four neighbours from the
lowest on, of which the lower two are the place of the value that is stored first, the upper two that of the second. Places rise. Behind the last
four neighbours of a row words have the places 0 and 1.
"""
import cuda.tile as ct
import tessera
from tessera import Tensor, tile

ZERO = ct.PaddingMode.ZERO
# The places 0 and 1 of each four.
FIRST_PLACES = 0x44444444


def beats(a, b, BITS):
    """Whether a, which stands first, is at least as large as b: bits without their sign rise with the magnitude, up to infinities and NaN."""
    return (ct.bitcast(a, BITS) << 1) >= (ct.bitcast(b, BITS) << 1)


def two_of(p, q, r):
    """Whether two of three are true."""
    return (p & q) | (p & r) | (q & r)


@tessera.kernel
def compress(x, values, places, BITS: ct.Constant, TM: ct.Constant[int], TK: ct.Constant[int]):
    """Of each four the two of the largest magnitude: those that beat two of the other three."""
    i, j = ct.bid(0), ct.bid(1)
    fours = ct.load(x, (i, j), (TM, TK), padding_mode=ZERO).reshape((TM, TK // 4, 4))
    a = ct.extract(fours, (0, 0, 0), (TM, TK // 4, 1))
    b = ct.extract(fours, (0, 0, 1), (TM, TK // 4, 1))
    c = ct.extract(fours, (0, 0, 2), (TM, TK // 4, 1))
    d = ct.extract(fours, (0, 0, 3), (TM, TK // 4, 1))
    ab, ac, ad = beats(a, b, BITS), beats(a, c, BITS), beats(a, d, BITS)
    bc, bd, cd = beats(b, c, BITS), beats(b, d, BITS), beats(c, d, BITS)
    keep_a, keep_b = two_of(ab, ac, ad), two_of(~ab, bc, bd)
    keep_c, keep_d = two_of(~ac, ~bc, cd), two_of(~ad, ~bd, ~cd)
    stored = ct.cat((ct.where(keep_a, a, ct.where(keep_b, b, c)), ct.where(keep_d, d, ct.where(keep_c, c, b))), 2)
    ct.store(values, (i, j), stored.reshape((TM, TK // 2)))
    first = ct.where(keep_a, 0, ct.where(keep_b, 1, 2))
    second = ct.where(keep_d, 3, ct.where(keep_c, 2, 1))
    pair = (first | second << 2).reshape((TM, TK // 32, 8))
    ct.store(places, (i, j), ct.sum(pair << 4 * ct.arange(8, dtype=ct.int32), axis=2))


@tessera.kernel
def expand(values, places, x, TM: ct.Constant[int], TK: ct.Constant[int]):
    i, j = ct.bid(0), ct.bid(1)
    stored = ct.load(values, (i, j), (TM, TK // 2), padding_mode=ZERO).reshape((TM, TK // 4, 2))
    words = ct.load(places, (i, j), (TM, TK // 32), padding_mode=ZERO).reshape((TM, TK // 32, 1))
    pair = (words >> 4 * ct.arange(8, dtype=ct.int32)).reshape((TM, TK // 4, 1))
    place = ct.arange(4, dtype=ct.int32)
    first = ct.extract(stored, (0, 0, 0), (TM, TK // 4, 1))
    second = ct.extract(stored, (0, 0, 1), (TM, TK // 4, 1))
    fours = ct.where(place == (pair & 3), first, ct.where(place == (pair >> 2 & 3), second, ct.zeros((1, 1, 1), x.dtype)))
    ct.store(x, (i, j), fours.reshape((TM, TK)))


def within(x, i, j, TM, TK):
    """A tile of x; behind its last ones zeros, for which one of these is read."""
    down, across = ct.cdiv(x.shape[0], TM), ct.cdiv(x.shape[1], TK)
    v = ct.load(x, (min(i, down - 1), min(j, across - 1)), (TM, TK), padding_mode=ZERO)
    return ct.where((i < down) & (j < across), v, ct.zeros((1, 1), x.dtype))


@tessera.kernel
def copy(x, y, TM: ct.Constant[int], TK: ct.Constant[int]):
    """x in the first lines of y, which are longer, with zeros behind it: what a product reads by whole vectors, wherever x begins and its lines end."""
    i, j = ct.bid(0), ct.bid(1)
    ct.store(y, (i, j), within(x, i, j, TM, TK))


@tessera.kernel
def copy_places(x, y, TM: ct.Constant[int], TK: ct.Constant[int]):
    """The same for places, of which those behind x stand in some order, too."""
    i, j = ct.bid(0), ct.bid(1)
    row = i * TM + ct.arange(TM, dtype=ct.int32)[:, None]
    column = j * TK + ct.arange(TK, dtype=ct.int32)[None, :]
    words = within(x, i, j, TM, TK)
    ct.store(y, (i, j), ct.where((row < x.shape[0]) & (column < x.shape[1]), words, FIRST_PLACES))


@tessera.kernel
def tiles(values, places, B, C, K: int, RAGGED: ct.Constant[bool], TM: ct.Constant[int], TN: ct.Constant[int], TK: ct.Constant[int]):
    """By tiles, of which tensor cores multiply what is stored. RAGGED: tiles reach beyond the words, which are no places there; no word is 0."""
    i, j = ct.bid(0), ct.bid(1)
    acc = ct.zeros((TM, TN), ct.float32)
    for k in range(ct.cdiv(K, TK)):
        a = ct.load(values, (i, k), (TM, TK // 2), padding_mode=ZERO)
        words = ct.load(places, (i, k), (TM, TK // 32), padding_mode=ZERO)
        if RAGGED:
            words = ct.where(words == 0, FIRST_PLACES, words)
        b = ct.load(B, (k, j), (TK, TN), padding_mode=ZERO)
        acc = tile.mma_sparse(a, words, b, acc)
    ct.store(C, (i, j), acc.astype(C.dtype))


# Rows and columns of C that a block of four warps makes, each 32 of the columns, and products of a round, of which half are made.
ROWS = 128
COLUMNS = 128
# Columns that are stored at a time: with room for more, sm_86 and its like had none for a block, and others for two.
STRIP = 16
STEPS = 64
HALF = STEPS // 2
# Rounds that are in shared memory or on their way there.
STAGES = 3
# Elements that a thread brings at a time.
VECTOR = 8
# Lines of shared memory are 16 bytes longer than their elements, so that rows of a fragment lie in different banks.
PAD = 8


def bring_round(left, words, right, values, places, B, row, column, k, slot):
    """Begins to bring what the round from k on multiplies to its slot; rounds behind the last one are empty."""
    t = tile.thread_id()
    if k < B.shape[0]:
        i = t // (HALF // VECTOR)
        h = t % (HALF // VECTOR) * VECTOR
        for e in range(0, ROWS, 128 * VECTOR // HALF):
            tile.cp_async(left[slot * ROWS + i + e, h], values[row + i + e, k // 2 + h], VECTOR)
        step = t // (COLUMNS // VECTOR)
        j = t % (COLUMNS // VECTOR) * VECTOR
        for e in range(0, STEPS, 128 * VECTOR // COLUMNS):
            tile.cp_async(right[slot * STEPS + step + e, j], B[k + step + e, column + j], VECTOR)
        tile.cp_async(words[slot * ROWS + t, 0], places[row + t, k // 32], 2)
    tile.commit_group()


def multiply_row(c_0, c_1, a, where, left, words, i, step, b_0, below_0, b_1, below_1):
    """Two products of 16 rows."""
    tile.fragment_load(a, left[i, step // 2])
    tile.fragment_load(where, words[i, step // 32])
    tile.fragment_mma_sparse(c_0, a, where, b_0, below_0)
    tile.fragment_mma_sparse(c_1, a, where, b_1, below_1)


def put_column(sums, c_0, c_1, c_2, c_3, c_4, c_5, c_6, c_7):
    tile.fragment_store(sums[0, 0], c_0)
    tile.fragment_store(sums[16, 0], c_1)
    tile.fragment_store(sums[32, 0], c_2)
    tile.fragment_store(sums[48, 0], c_3)
    tile.fragment_store(sums[64, 0], c_4)
    tile.fragment_store(sums[80, 0], c_5)
    tile.fragment_store(sums[96, 0], c_6)
    tile.fragment_store(sums[112, 0], c_7)


@tessera.kernel(num_warps=4)
def product(values: Tensor["I", "H", dtype], places: Tensor["I", "W", int32], B: Tensor["K", "J", dtype], C: Tensor["M", "N", dtype]):
    """The factors are of whole blocks and rounds. A warp multiplies 16 x 32 elements, of which 16 x 16 are stored, by 32 x 16; the loads of later
    rounds run meanwhile. What it has of B serves all rows of the block, since elements of B are read one by one."""
    left = tile.alloc_shared[dtype](STAGES * ROWS, HALF + PAD)
    words = tile.alloc_shared[int32](STAGES * ROWS, 2)
    right = tile.alloc_shared[dtype](STAGES * STEPS, COLUMNS + PAD)
    sums = tile.alloc_shared[fp32](ROWS, STRIP + PAD)
    a = tile.fragment[dtype]("a")
    where = tile.fragment[int32]("places")
    b_0 = tile.fragment[dtype]("b")
    b_1 = tile.fragment[dtype]("b")
    below_0 = tile.fragment[dtype]("b")
    below_1 = tile.fragment[dtype]("b")
    c_00 = tile.fragment[fp32]("accumulator")
    c_01 = tile.fragment[fp32]("accumulator")
    c_10 = tile.fragment[fp32]("accumulator")
    c_11 = tile.fragment[fp32]("accumulator")
    c_20 = tile.fragment[fp32]("accumulator")
    c_21 = tile.fragment[fp32]("accumulator")
    c_30 = tile.fragment[fp32]("accumulator")
    c_31 = tile.fragment[fp32]("accumulator")
    c_40 = tile.fragment[fp32]("accumulator")
    c_41 = tile.fragment[fp32]("accumulator")
    c_50 = tile.fragment[fp32]("accumulator")
    c_51 = tile.fragment[fp32]("accumulator")
    c_60 = tile.fragment[fp32]("accumulator")
    c_61 = tile.fragment[fp32]("accumulator")
    c_70 = tile.fragment[fp32]("accumulator")
    c_71 = tile.fragment[fp32]("accumulator")
    tile.fragment_fill(c_00, 0.0)
    tile.fragment_fill(c_01, 0.0)
    tile.fragment_fill(c_10, 0.0)
    tile.fragment_fill(c_11, 0.0)
    tile.fragment_fill(c_20, 0.0)
    tile.fragment_fill(c_21, 0.0)
    tile.fragment_fill(c_30, 0.0)
    tile.fragment_fill(c_31, 0.0)
    tile.fragment_fill(c_40, 0.0)
    tile.fragment_fill(c_41, 0.0)
    tile.fragment_fill(c_50, 0.0)
    tile.fragment_fill(c_51, 0.0)
    tile.fragment_fill(c_60, 0.0)
    tile.fragment_fill(c_61, 0.0)
    tile.fragment_fill(c_70, 0.0)
    tile.fragment_fill(c_71, 0.0)
    t = tile.thread_id()
    row = tile.block_id(1) * ROWS
    column = tile.block_id(0) * COLUMNS
    own = tile.warp_id() * 32
    for slot in range(STAGES - 1):
        bring_round(left, words, right, values, places, B, row, column, slot * STEPS, slot)
    slot = 0
    ahead = STAGES - 1
    for k in range(0, B.shape[0], STEPS):
        tile.wait_group(STAGES - 2)
        tile.barrier()
        bring_round(left, words, right, values, places, B, row, column, k + (STAGES - 1) * STEPS, ahead)
        first = slot * ROWS
        for step in range(0, STEPS, 32):
            tile.fragment_load(b_0, right[slot * STEPS + step, own])
            tile.fragment_load(b_1, right[slot * STEPS + step, own + 16])
            tile.fragment_load(below_0, right[slot * STEPS + step + 16, own])
            tile.fragment_load(below_1, right[slot * STEPS + step + 16, own + 16])
            multiply_row(c_00, c_01, a, where, left, words, first, step, b_0, below_0, b_1, below_1)
            multiply_row(c_10, c_11, a, where, left, words, first + 16, step, b_0, below_0, b_1, below_1)
            multiply_row(c_20, c_21, a, where, left, words, first + 32, step, b_0, below_0, b_1, below_1)
            multiply_row(c_30, c_31, a, where, left, words, first + 48, step, b_0, below_0, b_1, below_1)
            multiply_row(c_40, c_41, a, where, left, words, first + 64, step, b_0, below_0, b_1, below_1)
            multiply_row(c_50, c_51, a, where, left, words, first + 80, step, b_0, below_0, b_1, below_1)
            multiply_row(c_60, c_61, a, where, left, words, first + 96, step, b_0, below_0, b_1, below_1)
            multiply_row(c_70, c_71, a, where, left, words, first + 112, step, b_0, below_0, b_1, below_1)
        slot = slot + 1 if slot < STAGES - 1 else 0
        ahead = ahead + 1 if ahead < STAGES - 1 else 0
    for strip in range(0, COLUMNS, STRIP):
        tile.barrier()
        if strip == own:
            put_column(sums, c_00, c_10, c_20, c_30, c_40, c_50, c_60, c_70)
        if strip == own + 16:
            put_column(sums, c_01, c_11, c_21, c_31, c_41, c_51, c_61, c_71)
        tile.barrier()
        for e in range(t, ROWS * STRIP, 128):
            i = e // STRIP
            j = e % STRIP
            if row + i < C.shape[0] and column + strip + j < C.shape[1]:
                C[row + i, column + strip + j] = sums[i, j]
