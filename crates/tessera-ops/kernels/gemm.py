"""C = alpha * op(A) x op(B) + beta * C, accumulated in ACC and stored in C's type; op transposes or not.

A block computes one TM x TN tile of C. COMPUTE is the type the products are taken in: the storage type itself, bfloat16 for formats
that are storage only, or a narrower type that factors in float32 are taken apart into. With beta == 0, C is not read.
"""
import cuda.tile as ct
import tessera


def load_a(A, i, k, TM, TK, TRANSPOSE):
    if TRANSPOSE:
        return ct.load(A, (i, k), (TM, TK), order=(1, 0), padding_mode=ct.PaddingMode.ZERO)
    return ct.load(A, (i, k), (TM, TK), padding_mode=ct.PaddingMode.ZERO)


def load_b(B, k, j, TK, TN, TRANSPOSE):
    if TRANSPOSE:
        return ct.load(B, (k, j), (TK, TN), order=(1, 0), padding_mode=ct.PaddingMode.ZERO)
    return ct.load(B, (k, j), (TK, TN), padding_mode=ct.PaddingMode.ZERO)


def parts(x, TYPE):
    high = x.astype(TYPE)
    return high, (x - high.astype(x.dtype)).astype(TYPE)


def add_product(a, b, acc, COMPUTE):
    """acc + a x b. Of the products of parts that of the low ones is less than what rounding them has lost; the smaller ones are added first."""
    if a.dtype == ct.float32 and COMPUTE != ct.float32:
        (a_high, a_low), (b_high, b_low) = parts(a, COMPUTE), parts(b, COMPUTE)
        acc = ct.mma(a_low, b_high, acc)
        acc = ct.mma(a_high, b_low, acc)
        return ct.mma(a_high, b_high, acc)
    return ct.mma(a.astype(COMPUTE), b.astype(COMPUTE), acc)


@tessera.kernel
def gemm(A, B, C, alpha: float, beta: float, K: int, COMPUTE: ct.Constant, ACC: ct.Constant,
         TM: ct.Constant[int], TN: ct.Constant[int], TK: ct.Constant[int],
         TRANSPOSE_A: ct.Constant[bool], TRANSPOSE_B: ct.Constant[bool], EXCHANGED: ct.Constant[bool] = False,
         ACROSS: ct.Constant[bool] = False):
    """EXCHANGED: the transposed product, since the tensor cores take no fewer than 64 rows and any multiple of 8 columns. ACROSS: neighbours
    of a cluster lie side by side, and load tiles of A together; else one below the other, those of B."""
    i = ct.bid(1) if ACROSS else ct.bid(0)
    j = ct.bid(0) if ACROSS else ct.bid(1)
    if EXCHANGED:
        acc = ct.zeros((TN, TM), ACC)
    else:
        acc = ct.zeros((TM, TN), ACC)
    for k in range(ct.cdiv(K, TK)):
        a = load_a(A, i, k, TM, TK, TRANSPOSE_A)
        b = load_b(B, k, j, TK, TN, TRANSPOSE_B)
        if EXCHANGED:
            acc = add_product(ct.transpose(b), ct.transpose(a), acc, COMPUTE)
        else:
            acc = add_product(a, b, acc, COMPUTE)
    if EXCHANGED:
        acc = ct.transpose(acc)
    out = acc * ct.astype(alpha, ACC)
    if beta != 0.0:
        c = ct.load(C, (i, j), (TM, TN), padding_mode=ct.PaddingMode.ZERO)
        out = out + c.astype(ACC) * ct.astype(beta, ACC)
    ct.store(C, (i, j), out.astype(C.dtype))


@tessera.kernel
def gemm_onto(A, B, PART, C, K: int, COMPUTE: ct.Constant, ACC: ct.Constant, TM: ct.Constant[int], TN: ct.Constant[int], TK: ct.Constant[int]):
    """C = A x B + PART."""
    i, j = ct.bid(0), ct.bid(1)
    acc = ct.zeros((TM, TN), ACC)
    for k in range(ct.cdiv(K, TK)):
        acc = add_product(load_a(A, i, k, TM, TK, False), load_b(B, k, j, TK, TN, False), acc, COMPUTE)
    added = ct.load(PART, (i, j), (TM, TN), padding_mode=ct.PaddingMode.ZERO)
    ct.store(C, (i, j), (acc + added.astype(ACC)).astype(C.dtype))


def load_of_batch(X, n, i, j, ROWS, COLUMNS, TRANSPOSE):
    if TRANSPOSE:
        tile = ct.load(X, (n, i, j), (1, ROWS, COLUMNS), order=(0, 2, 1), padding_mode=ct.PaddingMode.ZERO)
        return tile.reshape((ROWS, COLUMNS))
    return ct.load(X, (n, i, j), (1, ROWS, COLUMNS), padding_mode=ct.PaddingMode.ZERO).reshape((ROWS, COLUMNS))


@tessera.kernel
def gemm_batched(A, B, C, alpha: float, beta: float, K: int, COMPUTE: ct.Constant, ACC: ct.Constant,
                 TM: ct.Constant[int], TN: ct.Constant[int], TK: ct.Constant[int],
                 TRANSPOSE_A: ct.Constant[bool], TRANSPOSE_B: ct.Constant[bool]):
    i = ct.bid(0)
    j = ct.bid(1)
    n = ct.bid(2)
    acc = ct.zeros((TM, TN), ACC)
    for k in range(ct.cdiv(K, TK)):
        a = load_of_batch(A, n, i, k, TM, TK, TRANSPOSE_A)
        b = load_of_batch(B, n, k, j, TK, TN, TRANSPOSE_B)
        acc = add_product(a, b, acc, COMPUTE)
    out = acc * ct.astype(alpha, ACC)
    if beta != 0.0:
        c = ct.load(C, (n, i, j), (1, TM, TN), padding_mode=ct.PaddingMode.ZERO).reshape((TM, TN))
        out = out + c.astype(ACC) * ct.astype(beta, ACC)
    ct.store(C, (n, i, j), out.astype(C.dtype).reshape((1, TM, TN)))


def copied_tile(X, LINES, tile, ROWS, COLUMNS, TURN):
    across = ct.cdiv(LINES.shape[1], COLUMNS)
    at = (tile // across, tile % across)
    if TURN:
        x = ct.load(X, at, (ROWS, COLUMNS), order=(1, 0), padding_mode=ct.PaddingMode.ZERO)
    else:
        x = ct.load(X, at, (ROWS, COLUMNS), padding_mode=ct.PaddingMode.ZERO)
    ct.store(LINES, at, x)


@tessera.kernel
def copy(X, LINES, ROWS: ct.Constant[int], COLUMNS: ct.Constant[int], TURN: ct.Constant[bool]):
    """X, or X turned, with lines that the copy engine takes at full speed, and zeros behind what they have of X."""
    copied_tile(X, LINES, ct.bid(0), ROWS, COLUMNS, TURN)


@tessera.kernel
def copy_both(A, A_LINES, B, B_LINES, tiles: int, ROWS: ct.Constant[int], COLUMNS: ct.Constant[int],
              TURN_A: ct.Constant[bool], TURN_B: ct.Constant[bool]):
    """The same of two matrices, the first of which has so many tiles."""
    if ct.bid(0) < tiles:
        copied_tile(A, A_LINES, ct.bid(0), ROWS, COLUMNS, TURN_A)
    else:
        copied_tile(B, B_LINES, ct.bid(0) - tiles, ROWS, COLUMNS, TURN_B)
